//! Reads one entry of `repos` (reference 5.2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::config_source::ConfigSource;
use super::environment::{self, EnvironmentProfiles, ProfileRules};
use super::id::IdPattern;
use super::keys::EntryMapping;
use crate::config::BranchFilter;
use crate::config::hook::{Hook, read_hooks};
use crate::config::lists::SilencedRuns;
use crate::config::lock_block::{self, LockBlock};
use crate::config::overrides::AllowedOverrides;
use crate::config::repo::{AutodiscoverRequest, autodiscover};
use crate::config::workflow::Workflow;
use crate::config::yaml::{Field, FileReader, Located, YamlNode, quoted, shown};
use crate::model::{RepoPath, Requirement, RunKind};

/// An entry: the repositories that it selects, and their settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReposEntry {
    pub(super) id: IdPattern,
    pub(super) said: EntrySettings,
    /// Line of the file where the entry begins, counted from 1.
    pub(super) line: usize,
}

/// Settings of an entry. A missing setting leaves the one of an earlier entry in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntrySettings {
    pub(super) locks: LockBlock,
    /// `repo_locking`, the old form: `false` means that no lock is taken.
    pub(super) locking: Option<bool>,
    pub(super) allowed_overrides: Option<AllowedOverrides>,
    pub(super) config_file: Option<RepoPath>,
    pub(super) config_source: Option<ConfigSource>,
    /// Never empty, because an empty list sets nothing. The same is true for applies.
    pub(super) plan_requirements: Option<Vec<Requirement>>,
    pub(super) apply_requirements: Option<Vec<Requirement>>,
    /// An empty list says that imports do not need the requirements of applies.
    pub(super) import_requirements: Option<Vec<Requirement>>,
    pub(super) four_eyes: Option<bool>,
    pub(super) environment_profile: Option<ProfileRules>,
    pub(super) workflow: Option<String>,
    pub(super) allowed_workflows: Option<Arc<BTreeSet<String>>>,
    pub(super) allow_custom_workflows: Option<bool>,
    pub(super) autodiscover: Option<AutodiscoverRequest>,
    pub(super) silence: Option<BTreeSet<RunKind>>,
    pub(super) policy_check: Option<bool>,
    pub(super) custom_policy_check: Option<bool>,
    pub(super) branch: Option<BranchFilter>,
    pub(super) hooks: Arc<EntryHooks>,
}

/// The hooks of an entry, and their base branches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EntryHooks {
    pub(super) branch: Option<BranchFilter>,
    pub(super) pre: Vec<Hook>,
    pub(super) post: Vec<Hook>,
}

/// Workflows of the server, by name.
pub(super) type Workflows = BTreeMap<String, Arc<Workflow>>;

/// Definitions of the file that entries name.
#[derive(Clone, Copy)]
pub(super) struct Defined<'a> {
    pub(super) workflows: &'a Workflows,
    pub(super) profiles: &'a EnvironmentProfiles,
    /// True if the file has policy sets.
    pub(super) has_policies: bool,
}

/// Reads one entry. Returns `None` if its repositories cannot be determined. `earlier` are the entries before it.
pub(super) fn read(
    reader: &mut FileReader,
    defined: Defined<'_>,
    node: &YamlNode,
    earlier: &[ReposEntry],
) -> Option<ReposEntry> {
    let entry: EntryMapping = reader.mapping(node)?;
    let Defined {
        workflows,
        profiles,
        has_policies,
    } = defined;
    let branch = entry.branch.read(reader);
    let hooks = EntryHooks {
        branch: branch.clone(),
        pre: read_hooks(reader, &entry.pre_workflow_hooks),
        post: read_hooks(reader, &entry.post_workflow_hooks),
    };
    let id = read_id(reader, &entry);
    let said = EntrySettings {
        locks: lock_block::read_of_server(reader, &entry.repo_locks).unwrap_or_default(),
        locking: read_locking(reader, &entry, node.place.line),
        allowed_overrides: entry
            .allowed_overrides
            .read(reader)
            .map(AllowedOverrides::from_iter),
        config_file: read_config_file(reader, &entry),
        config_source: entry.repo_config_source.read(reader),
        plan_requirements: read_requirements(reader, &entry.plan_requirements),
        apply_requirements: read_requirements(reader, &entry.apply_requirements),
        import_requirements: read_import_requirements(reader, earlier, &entry.import_requirements),
        four_eyes: entry.four_eyes.read(reader),
        environment_profile: environment::read_rules(reader, profiles, &entry.environment_profile),
        workflow: entry
            .workflow
            .read(reader)
            .and_then(|name| read_workflow(reader, workflows, &name)),
        allowed_workflows: read_allowed_workflows(reader, workflows, &entry),
        allow_custom_workflows: entry.allow_custom_workflows.read(reader),
        autodiscover: autodiscover::read(reader, &entry.autodiscover),
        silence: entry
            .silence_pr_comments
            .read(reader)
            .map(|SilencedRuns(runs)| runs),
        policy_check: read_check(reader, has_policies, &entry.policy_check),
        custom_policy_check: read_check(reader, has_policies, &entry.custom_policy_check),
        branch,
        hooks: Arc::new(hooks),
    };
    Some(ReposEntry {
        id: id?,
        said,
        line: node.place.line,
    })
}

/// Reads a switch of policy checks. Refuses `true` if there is nothing to check.
fn read_check(reader: &mut FileReader, has_policies: bool, field: &Field<bool>) -> Option<bool> {
    let is_on = field.read(reader)?;
    if let (true, false, Some(place)) = (is_on, has_policies, field.place()) {
        reader.problem(
            place,
            format!("`{}: true` needs policy sets, and this file has none", field.name()),
            "write `policies: {policy_sets: [{name: NAME, path: /FOLDER/OF/POLICIES}]}` at the top of the file, or remove it",
        );
    }
    Some(is_on)
}

fn read_locking(reader: &mut FileReader, entry: &EntryMapping, line: usize) -> Option<bool> {
    let locking = entry.repo_locking.read(reader)?;
    let instead = if locking {
        "remove it"
    } else {
        "write `repo_locks: {mode: disabled}`"
    };
    reader
        .warnings
        .push((line, format!("`repo_locking` is deprecated: {instead}")));
    Some(locking)
}

fn read_requirements(
    reader: &mut FileReader,
    field: &Field<Vec<Requirement>>,
) -> Option<Vec<Requirement>> {
    let requirements = field.read(reader)?;
    if requirements.is_empty() {
        let help = "requirements of earlier entries stay in effect. To require less, change the expressions of those entries \
                    so that they do not match this repository";
        if let Some(place) = field.place() {
            let what = format!("`{}: []` has no effect", field.name());
            reader.without_effect(place, what, help);
        }
    }
    Some(requirements).filter(|list| !list.is_empty())
}

/// Reads the requirements for imports. An empty list sets something here, but does not remove requirements for imports
/// of an earlier entry.
fn read_import_requirements(
    reader: &mut FileReader,
    earlier: &[ReposEntry],
    field: &Field<Vec<Requirement>>,
) -> Option<Vec<Requirement>> {
    let requirements = field.read(reader)?;
    let sets_some = |entry: &ReposEntry| {
        let set = entry.said.import_requirements.as_ref();
        set.is_some_and(|list| !list.is_empty())
    };
    if requirements.is_empty()
        && earlier.iter().any(sets_some)
        && let Some(place) = field.place()
    {
        let what = format!(
            "`{}: []` has no effect on repositories for which an earlier entry sets it",
            field.name()
        );
        let help = "requirements of earlier entries stay in effect. To require less, change the expressions of those entries \
                    so that they do not match this repository";
        reader.without_effect(place, what, help);
    }
    Some(requirements)
}

fn read_config_file(reader: &mut FileReader, entry: &EntryMapping) -> Option<RepoPath> {
    const HELP: &str =
        "write the path from the root of the repository, such as `ci/lockkeeper.yaml`";
    let text = entry.repo_config_file.read(reader)?;
    let is_plain =
        !text.text.starts_with('/') && text.text.split(['/', '\\']).all(|part| part != "..");
    let path = RepoPath::new(&text.text)
        .ok()
        .filter(|path| is_plain && !path.is_root());
    if path.is_none() {
        reader.problem(
            text.place,
            format!("`{}` is not a file of the repository", shown(&text.text)),
            HELP,
        );
    }
    path
}

fn read_workflow(reader: &mut FileReader, workflows: &Workflows, name: &Located) -> Option<String> {
    let text = name.text.trim();
    if text == Workflow::DEFAULT || workflows.contains_key(text) {
        return Some(text.to_owned());
    }
    let known = || std::iter::once(Workflow::DEFAULT).chain(workflows.keys().map(String::as_str));
    let help = reader.nearest(text, known()).map_or_else(
        || {
            format!(
                "define it under `workflows`; the defined ones are {}",
                quoted(known().take(20).map(shown))
            )
        },
        |meant| format!("did you mean `{}`?", shown(meant)),
    );
    reader.problem(
        name.place,
        format!("there is no workflow `{}`", shown(text)),
        help,
    );
    None
}

fn read_allowed_workflows(
    reader: &mut FileReader,
    workflows: &Workflows,
    entry: &EntryMapping,
) -> Option<Arc<BTreeSet<String>>> {
    let names = entry.allowed_workflows.read(reader)?;
    Some(Arc::new(
        names
            .iter()
            .filter_map(|name| read_workflow(reader, workflows, name))
            .collect(),
    ))
}

fn read_id(reader: &mut FileReader, entry: &EntryMapping) -> Option<IdPattern> {
    const HELP: &str = "name its repositories: `id: github.com/acme/infra`, or `id: /.*/`";
    let id = reader.required(entry, &entry.id, HELP)?;
    let refuse =
        |error: super::id::InvalidId| reader.problem(id.place, error.to_string(), error.help());
    IdPattern::new(&id.text).map_err(refuse).ok()
}
