//! Reads `workflows` of the server's file and of a repository's file (reference 5.4, 6).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::keys::{STAGE, WORKFLOW};
use super::{Stage, Step, Workflow, step};
use crate::config::yaml::{Fields, FileReader, Located, YamlNode, YamlValue, shown};

/// Version of a repository's file, which decides how commands are read (reference 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum FileVersion {
    /// Version 2: commands of plan and apply lose their quotes.
    Two,
    /// Version 3: commands run as they are written.
    Three,
}

/// Maximum number of steps in one stage. No real workflow has so many.
const MAX_STEPS: usize = 200;

/// Maximum length of the name of a workflow, in characters.
const MAX_NAME: usize = 255;

/// Reads `workflows` from a file.
pub(in crate::config) fn read_workflows(
    reader: &mut FileReader,
    fields: &Fields<'_>,
    version: FileVersion,
) -> BTreeMap<String, Arc<Workflow>> {
    let entries = reader.named(fields, "workflows");
    let read = |(name, node): &(Located, YamlNode)| {
        let workflow = read_workflow(reader, name, node, version)?;
        Some((workflow.name.clone(), Arc::new(workflow)))
    };
    entries.iter().filter_map(read).collect()
}

fn read_workflow(
    reader: &mut FileReader,
    name: &Located,
    node: &YamlNode,
    version: FileVersion,
) -> Option<Workflow> {
    let text = name.text.as_str();
    if text.trim().is_empty()
        || text.chars().count() > MAX_NAME
        || text.chars().any(char::is_control)
    {
        let what = format!("`{}` cannot be the name of a workflow", shown(text));
        reader.problem(
            name.place,
            what,
            "use 1 to 255 characters, and no line breaks",
        );
    }
    let mut workflow = Workflow {
        name: text.to_owned(),
        ..Workflow::clone(&Workflow::builtin())
    };
    if node.value == YamlValue::Null {
        return Some(workflow);
    }
    let fields = reader.fields(node, &WORKFLOW)?;
    let Workflow {
        name: _,
        plan,
        apply,
        policy_check,
        import,
        state_rm,
    } = &mut workflow;
    let stages = [
        ("plan", plan),
        ("apply", apply),
        ("policy_check", policy_check),
        ("import", import),
        ("state_rm", state_rm),
    ];
    for (key, stage) in stages {
        // Version 2 differs only in these two stages.
        let version = if matches!(key, "plan" | "apply") {
            version
        } else {
            FileVersion::Three
        };
        if let Some(place) = fields.place(key).filter(|_| key == "policy_check") {
            let what = format!(
                "the stage `policy_check` of the workflow `{}` never runs",
                shown(text)
            );
            reader.without_effect(place, what, "policies are not checked in this version");
        }
        if let Some(read) = fields
            .get(key)
            .and_then(|node| read_stage(reader, node, version))
        {
            *stage = read;
        }
    }
    Some(workflow)
}

/// Reads a stage. `None` keeps the default steps.
fn read_stage(reader: &mut FileReader, node: &YamlNode, version: FileVersion) -> Option<Stage> {
    let fields = reader.fields(node, &STAGE)?;
    let nodes = reader.list(&fields, "steps")?;
    if nodes.len() > MAX_STEPS {
        let what = format!(
            "there are {} steps; the maximum is {MAX_STEPS}",
            nodes.len()
        );
        reader.problem(
            node.place,
            what,
            "put the commands into a script and run the script",
        );
        return None;
    }
    let mut steps = Vec::new();
    for node in nodes {
        let Some(step) = step::read(reader, node) else {
            continue;
        };
        if version == FileVersion::Two {
            check_quotes(reader, node, &step);
        }
        steps.push(step);
    }
    Some(Stage {
        steps: steps.into(),
    })
}

/// Refuses a command that version 2 would change. Version 2 splits commands at spaces and joins them again, so that
/// quotes are lost. The author either does not know this rule, or relies on it.
fn check_quotes(reader: &mut FileReader, node: &YamlNode, step: &Step) {
    let Step::Run(run) = step else { return };
    let split = shlex::split(&run.command).map(|words| words.join(" "));
    if split.as_deref() != Some(run.command.trim()) {
        let what = format!(
            "version 2 of the file would not run this command as written: `{}`",
            shown(&run.command)
        );
        reader.problem(
            node.place,
            what,
            "write `version: 3`, which runs commands as they are written",
        );
    }
}
