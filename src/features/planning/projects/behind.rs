//! Finds changes that a plan lacks because other pull requests were merged after its branch was made.
//!
//! With `--checkout-strategy branch` the head of the pull request is planned as it is. Changes that others have
//! merged and applied meanwhile are not part of it, so the plan would remove them. Such a plan is not wrong, but its
//! readers have to know.

use std::collections::BTreeSet;

use super::Work;
use crate::features::planning::CommandCx;
use crate::git::BaseCommit;
use crate::model::{CommitSha, ProjectKey, RepoPath, code_span, without_backticks};
use crate::queue::JobError;

/// Maximum number of commits that the note names.
const NAMED: usize = 3;
/// Maximum number of directories to search for the commits. A pull request with more projects gets a note about all
/// merged commits.
const MOST_DIRS: usize = 100;

/// Projects that the base branch has changed since the pull request left it.
pub(super) struct BaseChanges {
    /// Commit where the pull request left the branch.
    pub left_at: CommitSha,
    pub projects: BTreeSet<ProjectKey>,
}

impl Work {
    /// Returns a note about projects that lack changes of the base branch; `None` if no project does.
    pub async fn lacking(&self, cx: &CommandCx<'_>) -> Result<Option<String>, JobError> {
        let Some(behind) = &self.behind else {
            return Ok(None);
        };
        let keys = self.projects.iter().map(|project| &project.key);
        let lacking: Vec<&ProjectKey> = keys.filter(|key| behind.projects.contains(key)).collect();
        if lacking.is_empty() {
            return Ok(None);
        }
        let dirs: BTreeSet<RepoPath> = lacking.iter().map(|key| key.dir.clone()).collect();
        let dirs = if dirs.len() > MOST_DIRS {
            vec![RepoPath::root()]
        } else {
            dirs.into_iter().collect()
        };
        let checkouts = &cx.ctx.checkouts;
        let merged = checkouts
            .merged_since(self.source(), &behind.left_at, &dirs, NAMED + 1)
            .await;
        let is_whole = lacking.len() == self.projects.len();
        Ok(Some(sentence(
            &cx.pull.base_branch,
            &lacking,
            is_whole,
            &merged.map_err(JobError::retry)?,
        )))
    }
}

fn sentence(
    base: &impl std::fmt::Display,
    lacking: &[&ProjectKey],
    is_whole: bool,
    merged: &[BaseCommit],
) -> String {
    let of = match lacking {
        [_] if is_whole => "this project".to_owned(),
        _ if is_whole => "these projects".to_owned(),
        some => listed(some.iter().map(|key| project(key)), some.len()),
    };
    // The files of a module are elsewhere, so no commit may be found.
    let named = if merged.is_empty() {
        String::new()
    } else {
        format!(": {}", listed(merged.iter().map(named), NAMED))
    };
    format!(
        "This branch does not include changes to {of} that were merged into `{base}` since it branched off{named}. Applying \
         a plan without them may undo them. Merge `{base}` into this branch or rebase it; the push is planned automatically."
    )
}

fn project(key: &ProjectKey) -> String {
    let place = if key.workspace.is_default() {
        key.dir.to_string()
    } else {
        format!("{}/{}", key.dir, key.workspace)
    };
    let text = key.name.as_ref().map_or(place, ToString::to_string);
    code_span(&text)
}

fn named(commit: &BaseCommit) -> String {
    format!(
        "`{}` {}",
        commit.commit.short(),
        without_backticks(&commit.title)
    )
}

/// Formats a list: `a, b and more`.
fn listed(items: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let is_all = items.len() <= most;
    let text = items.take(most).collect::<Vec<_>>().join(", ");
    if is_all {
        text
    } else {
        format!("{text} and more")
    }
}
