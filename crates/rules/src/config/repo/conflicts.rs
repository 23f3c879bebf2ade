//! Finds conflicts between projects: two with the same name, two that are not distinguishable, and cycles of
//! dependencies (reference 4.3). The caller passes the projects of one base branch, because only those occur
//! together.

use std::collections::{HashMap, HashSet};

use super::{ProjectConfig, ProjectDir};
use crate::config::yaml::shown;
use crate::model::ProjectName;

/// A mistake in a project that results from the other projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    /// Index of the project in the given list.
    pub(super) index: usize,
    pub(super) what: String,
    pub(super) help: &'static str,
}

/// Returns all conflicts among the projects.
pub(super) fn among(projects: &[&ProjectConfig]) -> Vec<Conflict> {
    let mut conflicts = same_names(projects);
    conflicts.extend(same_places(projects));
    conflicts.extend(cycles(projects));
    conflicts
}

fn same_names(projects: &[&ProjectConfig]) -> Vec<Conflict> {
    let mut seen = HashMap::new();
    let conflict = |(index, project): (usize, &&ProjectConfig)| {
        let name = project.name.clone()?;
        let what = |first| {
            format!("two projects have the name `{name}`; the other one is in line {first}")
        };
        let first = seen.insert(project.name.clone(), project.line)?;
        Some(Conflict {
            index,
            what: what(first),
            help: "give each project its own name",
        })
    };
    projects.iter().enumerate().filter_map(conflict).collect()
}

/// Finds projects without a name in a directory and workspace that another project has. Only the first of them can do
/// without a name, because no command could select the others.
fn same_places(projects: &[&ProjectConfig]) -> Vec<Conflict> {
    let (mut seen, mut conflicts) = (HashMap::new(), Vec::new());
    for (index, project) in projects.iter().enumerate() {
        let place = (project.dir.to_string(), &project.workspace);
        let Some(first) = seen.get(&place).copied() else {
            seen.insert(place, project.line);
            continue;
        };
        if project.name.is_none() {
            let (dir, workspace) = (shown(&place.0), place.1);
            let what = format!(
                "`dir: {dir}` with workspace `{workspace}` is already a project in line {first}"
            );
            let help = match project.dir {
                ProjectDir::Path(_) => {
                    "give this project a `name`, so that commands can select it: `plan -p NAME`"
                }
                ProjectDir::Glob(_) => "remove one of the two",
            };
            conflicts.push(Conflict { index, what, help });
        }
    }
    conflicts
}

/// Maximum number of names in a message about a cycle.
const MAX_SHOWN: usize = 10;

/// Maximum number of reported cycles.
const MAX_CYCLES: usize = 10;

/// Finds cycles of `depends_on`. Reports each cycle once, at the project where the search entered it.
fn cycles(projects: &[&ProjectConfig]) -> Vec<Conflict> {
    let index_of: HashMap<_, _> = projects
        .iter()
        .enumerate()
        .filter_map(|(index, project)| Some((project.name.as_ref()?, index)))
        .collect();
    let (mut search, mut conflicts) = (
        ConflictSearch {
            projects,
            index_of,
            done: HashSet::new(),
        },
        Vec::new(),
    );
    for start in 0..projects.len() {
        search.walk(start, &mut conflicts);
        if conflicts.len() >= MAX_CYCLES {
            break;
        }
    }
    conflicts
}

struct ConflictSearch<'a> {
    projects: &'a [&'a ProjectConfig],
    index_of: HashMap<&'a ProjectName, usize>,
    /// Projects from which no unreported cycle can be reached.
    done: HashSet<usize>,
}

impl ConflictSearch<'_> {
    fn before(&self, index: usize) -> Vec<usize> {
        let names = self.projects[index].depends_on.iter();
        names
            .filter_map(|name| self.index_of.get(name).copied())
            .filter(|index| !self.done.contains(index))
            .collect()
    }

    /// Follows `depends_on` from a project. Does not recurse, because a hostile file could overflow the stack.
    fn walk(&mut self, start: usize, conflicts: &mut Vec<Conflict>) {
        if self.done.contains(&start) {
            return;
        }
        // The path from the start, with the unvisited dependencies of each project. `on_way` has the position of each
        // project on the path.
        let mut way = vec![(start, self.before(start))];
        let mut on_way = HashMap::from([(start, 0)]);
        while let Some((index, rest)) = way.last_mut() {
            let index = *index;
            let Some(next) = rest.pop() else {
                self.done.insert(index);
                on_way.remove(&index);
                way.pop();
                continue;
            };
            if let Some(entered) = on_way.get(&next) {
                if conflicts.len() < MAX_CYCLES {
                    let cycle: Vec<usize> =
                        way[*entered..].iter().map(|(index, _)| *index).collect();
                    conflicts.push(cycle_of(self.projects, &cycle));
                }
            } else if !self.done.contains(&next) {
                on_way.insert(next, way.len());
                way.push((next, self.before(next)));
            }
        }
    }
}

fn cycle_of(projects: &[&ProjectConfig], cycle: &[usize]) -> Conflict {
    let name = |index: &usize| {
        projects[*index]
            .name
            .as_ref()
            .map(|name| format!("`{name}`"))
            .unwrap_or_default()
    };
    let mut names: Vec<String> = cycle.iter().take(MAX_SHOWN).map(name).collect();
    if cycle.len() > MAX_SHOWN {
        names.push("…".to_owned());
    }
    names.extend(cycle.first().map(name));
    let what = format!(
        "projects depend on each other in a cycle, so none of them can run: {}",
        names.join(" → ")
    );
    Conflict {
        index: cycle[0],
        what,
        help: "remove one of them from `depends_on`",
    }
}
