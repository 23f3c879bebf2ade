//! Orders units so that each runs after those that it depends on.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::reading::CONFIG;
use super::{Unit, Unresolved};
use crate::model::RepoPath;

/// Sets the order of every unit, starting with those that depend on nothing. Cycles are reported. Units in a cycle,
/// and those that depend on one, come after all others.
pub(super) fn set(units: &mut [Unit], unresolved: &mut BTreeSet<Unresolved>) {
    let places: HashMap<RepoPath, usize> = units
        .iter()
        .enumerate()
        .map(|(at, unit)| (unit.dir.clone(), at))
        .collect();
    let needs: Vec<Vec<usize>> = units
        .iter()
        .map(|unit| {
            unit.depends_on
                .iter()
                .filter_map(|dir| places.get(dir).copied())
                .collect()
        })
        .collect();
    let (orders, stuck) = levels(&needs);
    for (unit, order) in units.iter_mut().zip(orders) {
        unit.order = order;
    }
    for cycle in cycles(&needs, &stuck) {
        unresolved.insert(described(units, &cycle));
    }
}

/// Returns the level of every node, and the nodes that never become free.
fn levels(needs: &[Vec<usize>]) -> (Vec<usize>, Vec<bool>) {
    let mut users = vec![Vec::new(); needs.len()];
    for (at, own) in needs.iter().enumerate() {
        for need in own {
            users[*need].push(at);
        }
    }
    let (mut left, mut level) = (
        needs.iter().map(Vec::len).collect::<Vec<_>>(),
        vec![0; needs.len()],
    );
    let mut stuck = vec![true; needs.len()];
    let mut free: VecDeque<usize> = (0..needs.len()).filter(|at| left[*at] == 0).collect();
    while let Some(at) = free.pop_front() {
        stuck[at] = false;
        for user in &users[at] {
            level[*user] = level[*user].max(level[at] + 1);
            left[*user] -= 1;
            if left[*user] == 0 {
                free.push_back(*user);
            }
        }
    }
    let last = (0..needs.len())
        .filter(|at| !stuck[*at])
        .map(|at| level[at] + 1)
        .max()
        .unwrap_or(0);
    for at in (0..needs.len()).filter(|at| stuck[*at]) {
        level[at] = last;
    }
    (level, stuck)
}

/// Returns the cycles among the stuck nodes. From each node not yet visited, the search follows the first stuck
/// dependency.
fn cycles(needs: &[Vec<usize>], stuck: &[bool]) -> Vec<Vec<usize>> {
    let mut met = vec![0; needs.len()];
    let mut found = Vec::new();
    for start in (0..needs.len()).filter(|at| stuck[*at]) {
        let (mut way, mut at) = (Vec::new(), start);
        while met[at] == 0 {
            met[at] = start + 1;
            way.push(at);
            // A stuck node depends on at least one stuck node.
            at = needs[at]
                .iter()
                .copied()
                .find(|need| stuck[*need])
                .unwrap_or(at);
        }
        if met[at] == start + 1
            && let Some(from) = way.iter().position(|node| *node == at)
        {
            found.push(way[from..].to_vec());
        }
    }
    found
}

fn described(units: &[Unit], cycle: &[usize]) -> Unresolved {
    const SHOWN: usize = 10;
    let mut names: Vec<String> = cycle
        .iter()
        .take(SHOWN)
        .map(|at| format!("`{}`", units[*at].dir))
        .collect();
    if cycle.len() > SHOWN {
        names.push("…".to_owned());
    }
    names.push(names[0].clone());
    let dir = &units[cycle[0]].dir;
    let file = dir.join(CONFIG).unwrap_or_else(|_| dir.clone());
    Unresolved {
        file,
        line: 1,
        what: format!(
            "units depend on each other in a cycle: {}",
            names.join(" needs ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_the_longest_way_down() {
        // Node 3 needs 2 and 0, 2 needs 1, 1 needs 0.
        let needs = [vec![], vec![0], vec![1], vec![2, 0]];
        assert_eq!(levels(&needs), (vec![0, 1, 2, 3], vec![false; 4]));
    }

    #[test]
    fn cycles_end_and_are_told_once() {
        // Nodes 1 and 2 need each other, 3 needs both, 0 is free, 4 needs itself.
        let needs = [vec![], vec![2], vec![1], vec![1, 2, 0], vec![4]];
        let (level, stuck) = levels(&needs);
        assert_eq!(
            (level, &stuck),
            (vec![0, 1, 1, 1, 1], &vec![false, true, true, true, true])
        );
        assert_eq!(cycles(&needs, &stuck), [vec![1, 2], vec![4]]);
    }
}
