//! Warns about code that could not be read although a decision depends on it. A plan continues without it, so only
//! the explanation can tell people.

use std::collections::HashSet;

use super::super::code::UnreadFile;
use super::super::{Input, auto, cloud};
use super::{ConfigWarning, Planned};
use crate::model::{RepoPath, WorkspaceName};

/// Fact that is unknown without a file.
#[derive(Debug, Clone, Copy)]
enum UnknownFact {
    Version,
    Workspace,
    Modules,
    State,
}

impl UnknownFact {
    fn of(self, unread: &UnreadFile) -> ConfigWarning {
        let UnreadFile { file, line, what } = unread;
        let (lost, instead) = match self {
            Self::Version => (
                "its required version is unknown",
                "name the version with `terraform_version`",
            ),
            Self::Workspace => (
                "the workspace of its `cloud` block is unknown",
                "configure the project",
            ),
            Self::Modules => (
                "its modules are unknown",
                "name their files in `when_modified`",
            ),
            Self::State => (
                "it is unknown whether this module has its own state",
                "configure it as a project",
            ),
        };
        ConfigWarning {
            file: file.to_string(),
            line: Some(*line),
            what: format!("this code could not be read ({what}), so {lost}"),
            help: format!("correct the code if the tool also refuses it; otherwise {instead}"),
        }
    }
}

/// Warns about unknown facts of a project: its version, if only the code sets it, and its workspace, if no setting
/// names it.
pub(super) fn of_planned(input: &Input<'_>, planned: &Planned) -> Vec<ConfigWarning> {
    let version = planned
        .tool
        .code
        .unread()
        .iter()
        .map(|unread| UnknownFact::Version.of(unread));
    let is_found = planned.configured.is_none() && planned.why.file().is_some();
    let is_default = planned.key.workspace == WorkspaceName::default();
    let cloud = if is_found && is_default {
        cloud::unread(input, &planned.key.dir)
    } else {
        Vec::new()
    };
    version
        .chain(cloud.iter().map(|unread| UnknownFact::Workspace.of(unread)))
        .collect()
}

/// Warns about code whose modules are unknown.
pub(super) fn of_modules<'a>(
    unread: impl IntoIterator<Item = &'a UnreadFile>,
) -> Vec<ConfigWarning> {
    unread
        .into_iter()
        .map(|unread| UnknownFact::Modules.of(unread))
        .collect()
}

/// Warns about code of modules that may be projects too. The question does not arise for configured directories.
pub(super) fn of_states(input: &Input<'_>, configured: &HashSet<RepoPath>) -> Vec<ConfigWarning> {
    let Some(modules) = input.modules.filter(|_| input.searches()) else {
        return Vec::new();
    };
    let may_be_found = |unread: &&UnreadFile| {
        let dir = unread.file.parent();
        !configured.contains(&dir)
            && auto::above_modules(&dir).is_none()
            && input.ignored(&dir).is_none()
    };
    modules
        .unread_states()
        .filter(may_be_found)
        .map(|unread| UnknownFact::State.of(unread))
        .collect()
}
