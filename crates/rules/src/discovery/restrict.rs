//! Implements `--restrict-file-list`: a plan that names projects may only name those that the pull request changes
//! (reference 3.8).

use std::collections::BTreeSet;

use super::{DirSelector, Input, Project, RequestedProjects, SelectError, changed_paths, links};
use crate::config::repo::{quoted, shown};
use crate::model::RepoPath;

/// Maximum number of directories that an error lists.
const MAX_LISTED: usize = 10;

/// Reason why existing projects are not planned. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unchanged {
    /// Nothing changed in the requested place.
    #[error(
        "no file changed in `{}`, and this server plans only directories that the pull request changes \
         (`--restrict-file-list`): {}", shown(.asked), changed_in(.changed)
    )]
    Nothing {
        /// Requested directory or pattern.
        asked: String,
        /// Directories with changed files.
        changed: Vec<String>,
    },
    /// Files outside the requested projects changed too.
    #[error(
        "the pull request also changes {}, which `{}` does not have, and this server plans projects by name only when \
         nothing else changes (`--restrict-file-list`): comment `plan` without `-p`, or choose with `-d`",
        listed(.others), shown(.name)
    )]
    More {
        /// Requested name or expression.
        name: String,
        /// Other directories with changed files.
        others: Vec<String>,
    },
}

/// Returns the projects if they may be planned.
pub(super) fn check(
    target: &RequestedProjects,
    projects: Vec<Project>,
    input: &Input<'_>,
) -> Result<Vec<Project>, SelectError> {
    let files = links::seen(input.tree, changed_paths(input.changed))?;
    let changed: BTreeSet<RepoPath> = files.iter().map(RepoPath::parent).collect();
    let asked = match target {
        RequestedProjects::Project(name) => {
            return by_name(name, projects, &changed, input).map_err(SelectError::from);
        }
        RequestedProjects::Place {
            dir: DirSelector::Path(dir),
            ..
        } => dir.to_string(),
        RequestedProjects::Place {
            dir: DirSelector::Glob(glob),
            ..
        } => glob.clone(),
    };
    let kept = in_changed(projects, &changed);
    let changed = changed.iter().map(RepoPath::to_string).collect();
    if kept.is_empty() {
        Err(Unchanged::Nothing { asked, changed }.into())
    } else {
        Ok(kept)
    }
}

/// Checks projects that were chosen by name. A change seen through a link counts only where the link leads.
fn by_name(
    name: &str,
    projects: Vec<Project>,
    changed: &BTreeSet<RepoPath>,
    input: &Input<'_>,
) -> Result<Vec<Project>, Unchanged> {
    let dirs: BTreeSet<&RepoPath> = projects.iter().map(|project| &project.key.dir).collect();
    let itself: BTreeSet<RepoPath> = changed_paths(input.changed)
        .iter()
        .map(RepoPath::parent)
        .collect();
    let others: Vec<String> = itself
        .iter()
        .filter(|dir| !dirs.contains(dir))
        .map(RepoPath::to_string)
        .collect();
    if !others.is_empty() {
        return Err(Unchanged::More {
            name: name.to_owned(),
            others,
        });
    }
    Ok(if projects.len() > 1 {
        in_changed(projects, changed)
    } else {
        projects
    })
}

fn in_changed(mut projects: Vec<Project>, changed: &BTreeSet<RepoPath>) -> Vec<Project> {
    projects.retain(|project| changed.contains(&project.key.dir));
    projects
}

fn changed_in(dirs: &[String]) -> String {
    if dirs.is_empty() {
        "it changes no file".to_owned()
    } else {
        format!("files changed in {}", listed(dirs))
    }
}

fn listed(dirs: &[String]) -> String {
    let shown_dirs = quoted(dirs.iter().take(MAX_LISTED).map(|dir| shown(dir)));
    match dirs.len().saturating_sub(MAX_LISTED) {
        0 => shown_dirs,
        more => format!("{shown_dirs} and {more} more"),
    }
}
