//! Describes the projects that a command is for, and searches for them.

use super::search::SearchFailure;
use crate::command;
use crate::discovery::terragrunt::Unresolved;
use crate::discovery::{self, Input, Project};
use crate::locks::QueuedPlan;
use crate::model::{ApplicationSpec, ProjectKey, ProjectName, RepoPath};

/// Selection of the projects for a command.
pub(in crate::features::planning) enum ProjectSelection<'a> {
    /// Projects that the pull request concerns, if their configuration allows automatic plans.
    Concerned,
    /// Projects that a comment names for a plan.
    Asked(&'a command::CommandTarget),
    /// Projects that were requested while another pull request held their lock.
    Waited(&'a [QueuedPlan]),
    /// Projects that a comment names for another command than a plan: `--restrict-file-list` does not apply to it
    /// (reference 3.8).
    Named(&'a command::CommandTarget),
    /// Exactly these projects, as far as they exist.
    These(Vec<ProjectKey>),
    /// Project of a registered application.
    Registered(&'a ApplicationSpec),
}

impl ProjectSelection<'_> {
    /// Returns true if the whole pull request is searched. Projects that are not found do not concern it any more.
    pub fn is_everything(&self) -> bool {
        match self {
            Self::Concerned => true,
            Self::Asked(target) => !target.is_targeted(),
            Self::Waited(_) | Self::Named(_) | Self::These(_) | Self::Registered(_) => false,
        }
    }

    /// Returns true if nobody waits for a reply when there is nothing to do.
    pub fn is_automatic(&self) -> bool {
        matches!(self, Self::Concerned | Self::Waited(_))
    }

    /// Lists the projects that the pull request waited for until now.
    pub fn waited_for(&self) -> Vec<ProjectKey> {
        match self {
            Self::Concerned
            | Self::Asked(_)
            | Self::Named(_)
            | Self::These(_)
            | Self::Registered(_) => Vec::new(),
            Self::Waited(asks) => asks.iter().map(|ask| ask.project.clone()).collect(),
        }
    }

    /// Returns the arguments of one project, if they were not given for all.
    pub fn extra_args(&self, project: &ProjectKey) -> Option<&[String]> {
        let Self::Waited(asks) = self else {
            return None;
        };
        asks.iter()
            .find(|ask| ask.project == *project)
            .map(|ask| ask.extra_args.as_slice())
    }

    pub(super) fn to_search(&self) -> OwnedSelection {
        match self {
            Self::Concerned => OwnedSelection {
                auto: true,
                ..OwnedSelection::default()
            },
            Self::Asked(target) => OwnedSelection {
                target: to_discovery(target),
                for_plan: true,
                ..OwnedSelection::default()
            },
            Self::Named(target) => OwnedSelection {
                target: to_discovery(target),
                ..OwnedSelection::default()
            },
            Self::Waited(_) => OwnedSelection {
                only: Some(self.waited_for()),
                ..OwnedSelection::default()
            },
            Self::These(projects) => OwnedSelection {
                only: Some(projects.clone()),
                ..OwnedSelection::default()
            },
            Self::Registered(spec) => OwnedSelection {
                registered: Some((*spec).clone()),
                ..OwnedSelection::default()
            },
        }
    }
}

/// Owned form of [`ProjectSelection`], for a search in a thread of its own.
#[derive(Default)]
pub(super) struct OwnedSelection {
    target: Option<discovery::RequestedProjects>,
    for_plan: bool,
    auto: bool,
    only: Option<Vec<ProjectKey>>,
    registered: Option<ApplicationSpec>,
}

impl OwnedSelection {
    /// Lists the unresolved inputs, if the search covers everything that the pull request concerns.
    pub fn not_known(
        &self,
        input: &Input<'_>,
        projects: &[Project],
    ) -> Result<Vec<Unresolved>, SearchFailure> {
        if self.target.is_some() || self.only.is_some() || self.registered.is_some() {
            return Ok(Vec::new());
        }
        discovery::not_known(input, projects).map_err(|error| SearchFailure::of_limit(&error))
    }

    pub fn run(&self, input: &Input<'_>) -> Result<Vec<Project>, SearchFailure> {
        if let Some(spec) = &self.registered {
            return registered(spec, input).map(|project| vec![project]);
        }
        let found = match (&self.target, &self.only) {
            (_, Some(only)) => {
                let concerned =
                    discovery::discover(input).map_err(|error| SearchFailure::of_limit(&error))?;
                only.iter()
                    .filter_map(|key| find(key, &concerned, input))
                    .collect()
            }
            (Some(wanted), None) => {
                let select = if self.for_plan {
                    discovery::select_for_plan
                } else {
                    discovery::select
                };
                select(wanted, input).map_err(|error| SearchFailure::of_target(&error))?
            }
            (None, None) => discovery::discover_for_plan(input, self.auto)
                .map_err(|error| SearchFailure::of_target(&error))?,
        };
        Ok(found
            .into_iter()
            .filter(|project| !self.auto || project.autoplan)
            .collect())
    }
}

/// Finds a project by its key, even if the pull request does not concern it; `None` if it does not exist any more.
fn find(key: &ProjectKey, concerned: &[Project], input: &Input<'_>) -> Option<Project> {
    let is_it = |project: &&Project| project.key == *key;
    let by_name = |name: &ProjectName| discovery::RequestedProjects::Project(name.to_string());
    let by_place = || discovery::RequestedProjects::Place {
        dir: discovery::DirSelector::Path(key.dir.clone()),
        workspace: Some(key.workspace.clone()),
    };
    concerned.iter().find(is_it).cloned().or_else(|| {
        let target = key.name.as_ref().map_or_else(by_place, by_name);
        discovery::select(&target, input)
            .ok()?
            .iter()
            .find(is_it)
            .cloned()
    })
}

/// Finds the one project of the configuration for an application. A project without a name need not be configured.
fn registered(spec: &ApplicationSpec, input: &Input<'_>) -> Result<Project, SearchFailure> {
    let (dir, workspace) = (&spec.dir, &spec.workspace);
    let Some(name) = &spec.name else {
        let by_place = discovery::RequestedProjects::Place {
            dir: discovery::DirSelector::Path(dir.clone()),
            workspace: Some(workspace.clone()),
        };
        let found = discovery::select(&by_place, input).map_err(|error| {
            SearchFailure::Target(format!(
                "{error}; register the application under the name of its project"
            ))
        })?;
        let none = || {
            SearchFailure::Target(format!(
                "there is no project in `{dir}` with the workspace `{workspace}`"
            ))
        };
        return found.into_iter().next().ok_or_else(none);
    };
    let target = discovery::RequestedProjects::Project(name.to_string());
    let found =
        discovery::select(&target, input).map_err(|error| SearchFailure::of_target(&error))?;
    let key = ProjectKey {
        dir: dir.clone(),
        workspace: workspace.clone(),
        name: Some(name.clone()),
    };
    found.into_iter().find(|project| project.key == key).ok_or_else(|| {
        SearchFailure::Target(format!(
            "the application is registered under the name `{name}`, and the configuration of the repository has no project of \
             that name in `{dir}` with the workspace `{workspace}`. Add it there, or change the application"
        ))
    })
}

pub(super) fn to_discovery(
    target: &command::CommandTarget,
) -> Option<discovery::RequestedProjects> {
    match target {
        command::CommandTarget::Generic => None,
        command::CommandTarget::Project(name) => Some(discovery::RequestedProjects::Project(
            name.as_str().to_owned(),
        )),
        command::CommandTarget::DirWorkspace { dir, workspace } => {
            let dir = match dir {
                None => discovery::DirSelector::Path(RepoPath::root()),
                Some(command::DirArgument::Path(path)) => {
                    discovery::DirSelector::Path(path.clone())
                }
                Some(command::DirArgument::Pattern(pattern)) => {
                    discovery::DirSelector::Glob(pattern.as_str().to_owned())
                }
            };
            Some(discovery::RequestedProjects::Place {
                dir,
                workspace: workspace.clone(),
            })
        }
    }
}
