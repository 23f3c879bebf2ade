//! Reads requests of a repository that need the server's permission: workflows, requirements, silence (reference
//! 4.3).

use std::collections::BTreeSet;

use crate::config::RepoPermissions;
use crate::config::lists::SilencedRuns;
use crate::config::overrides::AllowedOverrides;
use crate::config::yaml::{Field, FileReader, Located, quoted, shown};
use crate::model::{Requirement, RunKind};

/// The workflow that a project requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRequest {
    /// Name of the workflow.
    pub name: String,
    /// Line of the file with the request, counted from 1.
    pub line: usize,
}

/// Requirements that a project requests in addition to those of the administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequirementRequest {
    /// Requirements in the order of the file.
    pub requirements: Vec<Requirement>,
    /// Line of the file with the request, counted from 1.
    pub line: usize,
}

/// Runs whose comments a repository wants to leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilenceRequest {
    /// Kinds of the runs.
    pub runs: BTreeSet<RunKind>,
    /// Line of the file with the request, counted from 1.
    pub line: usize,
}

/// Policy checks that a project switches on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyCheckRequest {
    /// Value of the switch.
    pub is_on: bool,
    /// Line of the file with the request, counted from 1.
    pub line: usize,
}

/// Context for reading a project.
pub(super) struct ProjectContext<'a> {
    pub(super) permissions: &'a RepoPermissions,
    /// Names of the workflows of the file.
    pub(super) own_workflows: &'a [&'a str],
}

/// Maximum number of names in a message.
const MAX_NAMES: usize = 20;

/// Reads a list of requirements from a project.
pub(super) fn read_requirements(
    reader: &mut FileReader,
    allowed: &AllowedOverrides,
    field: &Field<Vec<Requirement>>,
) -> Option<RequirementRequest> {
    let line = field.place()?.line;
    let is_allowed = allowed.check(reader, field);
    let requirements = field.read(reader)?;
    is_allowed.then_some(RequirementRequest { requirements, line })
}

/// Reads `policy_check` or `custom_policy_check` from a project. If the server has no policy sets, `true` is refused
/// without a word about permission, because permission would not change that.
pub(super) fn read_check(
    reader: &mut FileReader,
    permissions: &RepoPermissions,
    field: &Field<bool>,
) -> Option<PolicyCheckRequest> {
    let place = field.place()?;
    let is_on = field.read(reader)?;
    if is_on && !permissions.policy_sets {
        reader.problem(
            place,
            format!("`{}: true` needs policy sets, and the server has none", field.name()),
            "remove it, or ask an administrator of Lockkeeper to define `policies` in the server's configuration \
             (`--repo-config`)",
        );
        return None;
    }
    let is_allowed = permissions.overrides().check(reader, field);
    is_allowed.then_some(PolicyCheckRequest {
        is_on,
        line: place.line,
    })
}

/// Reads `silence_pr_comments` from a project or from the top level of the file.
pub(super) fn read_silence(
    reader: &mut FileReader,
    allowed: &AllowedOverrides,
    field: &Field<SilencedRuns>,
) -> Option<SilenceRequest> {
    let line = field.place()?.line;
    let is_allowed = allowed.check(reader, field);
    let SilencedRuns(runs) = field.read(reader)?;
    is_allowed.then_some(SilenceRequest { runs, line })
}

/// Reads `workflow` from a project.
pub(super) fn read_workflow(
    reader: &mut FileReader,
    around: &ProjectContext<'_>,
    field: &Field<Located>,
) -> Option<WorkflowRequest> {
    let text = field.read(reader)?;
    let is_allowed = around.permissions.overrides().check(reader, field);
    let name = text.text.trim();
    let is_own = around.own_workflows.contains(&name);
    let allowed = &around.permissions.allowed_workflows;
    if !is_own && around.permissions.names().all(|known| known != name) {
        let known = || {
            around
                .permissions
                .names()
                .chain(around.own_workflows.iter().copied())
        };
        let help = reader.nearest(name, known()).map_or_else(
            || {
                format!(
                    "the workflows are {}",
                    quoted(known().take(MAX_NAMES).map(shown))
                )
            },
            |meant| format!("did you mean `{}`?", shown(meant)),
        );
        reader.problem(
            text.place,
            format!("there is no workflow `{}`", shown(name)),
            help,
        );
    } else if !is_own && !allowed.is_empty() && !allowed.contains(name) {
        let what = format!(
            "the server does not allow the workflow `{}` for this repository",
            shown(name)
        );
        let names = quoted(allowed.iter().take(MAX_NAMES).map(|name| shown(name)));
        let help = format!(
            "choose one of {names}, or ask an administrator of Lockkeeper to add it to `allowed_workflows` of this \
             repository in the server's configuration (`--repo-config`)"
        );
        reader.problem(text.place, what, help);
    }
    is_allowed.then(|| WorkflowRequest {
        name: name.to_owned(),
        line: text.place.line,
    })
}
