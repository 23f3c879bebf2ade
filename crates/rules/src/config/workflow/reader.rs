//! Reads `workflows` of the server's file and of a repository's file (reference 5.4, 6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::keys::{StageMapping, WorkflowMapping};
use super::{Builtin, Stage, Step, Workflow, WorkflowOrigin, step};
use crate::config::yaml::{
    Field, FilePosition, FileReader, FromYaml, KeyShape, Located, Mapping, Shaped, ValueName,
    YamlNode, YamlValue, shown,
};

/// Version of a repository's file, which decides how commands are read (reference 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum FileVersion {
    /// Version 2: commands of plan and apply lose their quotes.
    Two,
    /// Version 3: commands run as they are written.
    Three,
}

impl Shaped for FileVersion {
    const SHAPE: KeyShape = KeyShape::Words(|| vec!["2", "3"]);
}

impl FromYaml for FileVersion {
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        const HELP: &str = "write `version: 3`";
        let Some(version) = node.as_text() else {
            reader.problem(node.place, format!("{name} must be a number"), HELP);
            return None;
        };
        match version.text.as_str() {
            "2" => Some(Self::Two),
            "3" => Some(Self::Three),
            other => {
                let what = format!("version `{}` of this file does not exist", shown(other));
                reader.problem(node.place, what, HELP);
                None
            }
        }
    }
}

/// Treatment of the stage `policy_check` of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum PolicyStage {
    /// The stage runs for projects whose plans are checked.
    Runs,
    /// The stage never runs, for this reason.
    Idle(&'static str),
    /// The stage is an error: it is a repository's, and would let a pull request decide about its own verdicts.
    Refused,
}

/// Maximum number of steps in one stage. No real workflow has so many.
const MAX_STEPS: usize = 200;

/// Maximum length of the name of a workflow, in characters.
const MAX_NAME: usize = 255;

/// Reads `workflows` from a file.
pub(in crate::config) fn read_workflows(
    reader: &mut FileReader,
    workflows: &Field<BTreeMap<String, WorkflowMapping>>,
    version: FileVersion,
    stage: PolicyStage,
    origin: WorkflowOrigin,
) -> BTreeMap<String, Arc<Workflow>> {
    let entries = workflows.entries(reader);
    let read = |(name, node): &(Located, YamlNode)| {
        let workflow = read_workflow(reader, (name, node), version, stage, origin)?;
        Some((workflow.name.clone(), Arc::new(workflow)))
    };
    entries.iter().filter_map(read).collect()
}

fn read_workflow(
    reader: &mut FileReader,
    (name, node): (&Located, &YamlNode),
    version: FileVersion,
    policy_stage: PolicyStage,
    origin: WorkflowOrigin,
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
    let builtin = Workflow::clone(&Workflow::builtin());
    let name = text.to_owned();
    if node.value == YamlValue::Null {
        return Some(Workflow {
            name,
            origin,
            ..builtin
        });
    }
    let stages: WorkflowMapping = reader.mapping(node)?;
    if let Some(place) = stages.policy_check.place() {
        check_policy_stage(reader, text, place, policy_stage);
    }
    // Version 2 differs only in `plan` and `apply`.
    let mut stage_or = |default: Stage, field: &Field<StageMapping>, version| {
        read_stage(reader, field, version).unwrap_or(default)
    };
    Some(Workflow {
        name,
        origin,
        plan: stage_or(builtin.plan, &stages.plan, version),
        apply: stage_or(builtin.apply, &stages.apply, version),
        policy_check: stage_or(
            builtin.policy_check,
            &stages.policy_check,
            FileVersion::Three,
        ),
        import: stage_or(builtin.import, &stages.import, FileVersion::Three),
        state_rm: stage_or(builtin.state_rm, &stages.state_rm, FileVersion::Three),
    })
}

fn check_policy_stage(
    reader: &mut FileReader,
    workflow: &str,
    place: FilePosition,
    stage: PolicyStage,
) {
    let of = format!(
        "the stage `policy_check` of the workflow `{}`",
        shown(workflow)
    );
    match stage {
        PolicyStage::Runs => {}
        PolicyStage::Idle(why) => {
            reader.without_effect(place, format!("{of} never runs"), why);
        }
        PolicyStage::Refused => reader.problem(
            place,
            format!("{of} may not be set here: the server checks plans against its own policies"),
            "remove the stage, or ask an administrator of Lockkeeper to add `custom_policy_check` to `allowed_overrides` of \
             this repository in the server's configuration (`--repo-config`)",
        ),
    }
}

/// Reads a stage. `None` keeps the default steps.
fn read_stage(
    reader: &mut FileReader,
    field: &Field<StageMapping>,
    version: FileVersion,
) -> Option<Stage> {
    let stage = field.read(reader)?;
    let nodes = stage.steps.items(reader)?;
    if nodes.len() > MAX_STEPS {
        let what = format!(
            "there are {} steps; the maximum is {MAX_STEPS}",
            nodes.len()
        );
        reader.problem(
            stage.place(),
            what,
            "put the commands into a script and run the script",
        );
        return None;
    }
    let mut steps = Vec::new();
    let mut named = BTreeSet::new();
    for node in nodes {
        let Some(step) = step::read(reader, node) else {
            continue;
        };
        if version == FileVersion::Two {
            check_quotes(reader, node, &step);
        }
        if let Some(set) = step.policy_set() {
            if field.name() != Builtin::PolicyCheck.as_str() {
                let what = format!(
                    "`policy_set` has no meaning in the stage `{}`",
                    field.name()
                );
                let help = "remove it, or move the step into the stage `policy_check`";
                reader.problem(node.place, what, help);
            } else if !named.insert(set.clone()) {
                let what = format!("two steps name the policy set `{}`", shown(set.as_str()));
                let help = "let one step check the set: join the commands with `&&`";
                reader.problem(node.place, what, help);
            }
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
