//! Orders the projects of a command (reference 3.9): by `execution_order_group`, and within a group every project
//! after those of its `depends_on`.
//!
//! `depends_on` is stronger: a project that depends on one of a later group runs in that later group. Reading the
//! file refuses circles. If a circle still occurs, it is cut at its first project.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::config::repo::ProjectConfig;
use crate::model::{ProjectKey, ProjectName};

/// Position of a project in the order of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrderPosition {
    /// Value of `execution_order_group`: lower groups come first.
    pub group: i32,
    /// Value of `depends_on`: names of projects that come first. Names of projects outside the command have no
    /// effect.
    pub after: Vec<ProjectName>,
}

impl OrderPosition {
    /// Reads the order from an entry of the configuration.
    pub fn of(entry: &ProjectConfig) -> Self {
        Self {
            group: entry.execution_order_group,
            after: entry.depends_on.clone(),
        }
    }

    /// Creates an order with a group alone.
    pub fn in_group(group: i32) -> Self {
        Self {
            group,
            after: Vec::new(),
        }
    }
}

/// Projects that may run in parallel when all earlier stages are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectGroup<T> {
    /// Group of the order; one group may have several stages.
    pub group: i32,
    /// Projects of the stage, in the order of the input.
    pub members: Vec<T>,
}

/// Divides projects into stages. `of` returns key and order of each.
pub fn stages<T>(
    items: Vec<T>,
    of: impl Fn(&T) -> (&ProjectKey, &OrderPosition),
) -> Vec<ProjectGroup<T>> {
    let known: Vec<(&ProjectKey, &OrderPosition)> = items.iter().map(of).collect();
    let ranks = ranks(&known);
    let mut stages: BTreeMap<Rank, Vec<T>> = BTreeMap::new();
    for (rank, item) in ranks.into_iter().zip(items) {
        stages.entry(rank).or_default().push(item);
    }
    stages
        .into_iter()
        .map(|(rank, members)| ProjectGroup {
            group: rank.group,
            members,
        })
        .collect()
}

/// Group of a project and its position within the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    group: i32,
    /// Length of the longest chain of projects in its group that it waits for.
    depth: usize,
}

fn ranks(known: &[(&ProjectKey, &OrderPosition)]) -> Vec<Rank> {
    let named = known
        .iter()
        .enumerate()
        .filter_map(|(at, (key, _))| Some((key.name.as_ref()?, at)));
    let by_name: HashMap<&ProjectName, usize> = named.collect();
    let before: Vec<BTreeSet<usize>> = known
        .iter()
        .map(|(_, order)| {
            order
                .after
                .iter()
                .filter_map(|name| by_name.get(name).copied())
                .collect()
        })
        .collect();
    let mut ranks: Vec<Option<Rank>> = vec![None; known.len()];
    for at in waiting_order(&before) {
        let own = Rank {
            group: known[at].1.group,
            depth: 0,
        };
        let after = |rank: Rank| Rank {
            depth: rank.depth + 1,
            ..rank
        };
        let rank = before[at]
            .iter()
            .filter_map(|one| ranks[*one])
            .map(after)
            .fold(own, Rank::max);
        ranks[at] = Some(rank);
    }
    ranks.into_iter().flatten().collect()
}

/// Returns all indices, each after those it waits for unless there is a circle.
fn waiting_order(before: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
    for (at, others) in before.iter().enumerate() {
        for other in others {
            after[*other].push(at);
        }
    }
    let mut open: Vec<usize> = before.iter().map(BTreeSet::len).collect();
    let mut left: BTreeSet<(usize, usize)> = open.iter().copied().zip(0..).collect();
    let mut order = Vec::with_capacity(before.len());
    // The next index waits for the fewest others, which are none unless there is a circle.
    while let Some((_, at)) = left.pop_first() {
        order.push(at);
        for next in &after[at] {
            if left.remove(&(open[*next], *next)) {
                open[*next] -= 1;
                left.insert((open[*next], *next));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses `name group after,after` as a project.
    fn project(text: &str) -> (ProjectKey, OrderPosition) {
        let mut words = text.split(' ');
        let name = words.next().unwrap();
        let group = words.next().map_or(0, |group| group.parse().unwrap());
        let after = words
            .next()
            .into_iter()
            .flat_map(|names| names.split(','))
            .map(|name| name.parse().unwrap());
        let key = ProjectKey {
            name: Some(name.parse().unwrap()),
            ..ProjectKey::of_dir(name.parse().unwrap())
        };
        (
            key,
            OrderPosition {
                group,
                after: after.collect(),
            },
        )
    }

    /// Writes `group: names` for each stage.
    fn told(projects: &[&str]) -> String {
        let projects = projects.iter().map(|text| project(text)).collect();
        let line = |stage: ProjectGroup<(ProjectKey, OrderPosition)>| {
            let names: Vec<_> = stage
                .members
                .iter()
                .map(|(key, _)| key.status_id())
                .collect();
            format!("{}: {}", stage.group, names.join(" "))
        };
        stages(projects, |(key, order)| (key, order))
            .into_iter()
            .map(line)
            .collect::<Vec<_>>()
            .join(" | ")
    }

    #[test]
    fn groups_come_one_after_another_and_dependencies_first() {
        for (projects, expected) in [
            (&[][..], ""),
            (&["b", "a"], "0: b a"),
            (&["a 1", "b", "c -1"], "-1: c | 0: b | 1: a"),
            (&["a 0 b", "b", "c"], "0: b c | 0: a"),
            (&["a 0 b", "b 0 c", "c", "d 0 c"], "0: c | 0: b d | 0: a"),
            (&["a 0 elsewhere", "b"], "0: a b"),
            (&["a 0 b", "b 1", "c"], "0: c | 1: b | 1: a"),
            (&["a 1 b", "b 0", "c 1"], "0: b | 1: a c"),
            (&["a 0 a"], "0: a"),
        ] {
            assert_eq!(told(projects), expected, "{projects:?}");
        }
    }

    #[test]
    fn a_circle_is_cut_open() {
        assert_eq!(told(&["a 0 b", "b 0 a", "c 0 a"]), "0: a | 0: b c");
    }

    #[test]
    fn five_thousand_in_a_row_are_no_trouble() {
        let row: Vec<String> = (0..5_000).map(|n| format!("p{n} 0 p{}", n + 1)).collect();
        let row: Vec<_> = row.iter().map(|text| project(text)).collect();
        assert_eq!(stages(row, |(key, order)| (key, order)).len(), 5_000);
    }

    proptest! {
        #[test]
        fn everybody_has_a_turn_after_those_before(
            list in proptest::collection::vec((-2..3_i32, proptest::collection::vec(0..8_usize, 0..3)), 0..8)
        ) {
            // A project depends on later ones of the list only, so there is no circle.
            let text = |(at, (group, after)): (usize, &(i32, Vec<usize>))| {
                let after: Vec<_> = after.iter().filter(|one| **one > at).map(|one| format!("p{one}")).collect();
                format!("p{at} {group} {}", after.join(",")).trim_end().to_owned()
            };
            let texts: Vec<String> = list.iter().enumerate().map(text).collect();
            let projects: Vec<_> = texts.iter().map(|text| project(text)).collect();
            let stages = stages(projects.clone(), |(key, order)| (key, order));
            let turn = |name: &ProjectName| {
                stages.iter().position(|stage| stage.members.iter().any(|(key, _)| key.name.as_ref() == Some(name)))
            };
            prop_assert_eq!(stages.iter().map(|stage| stage.members.len()).sum::<usize>(), projects.len());
            prop_assert!(stages.windows(2).all(|pair| pair[0].group <= pair[1].group));
            for (key, order) in &projects {
                let own = turn(key.name.as_ref().unwrap());
                for name in order.after.iter().filter(|name| turn(name).is_some()) {
                    prop_assert!(turn(name) < own, "{} after {}", key, name);
                }
            }
        }
    }
}
