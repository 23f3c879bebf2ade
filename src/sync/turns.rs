//! Whose turn it is. What somebody asked for comes first; of the other sorts one each in turn, so that ten thousand new
//! repositories, or a forge that is away, never keep a push waiting for longer than a few others take.

use std::collections::{HashSet, VecDeque};

use crate::model::RepoId;
use crate::store::MirrorsDue;

/// Every mirror that is due, once, in the order of its turn.
pub(super) fn in_turn(due: MirrorsDue) -> VecDeque<RepoId> {
    let MirrorsDue { asked, updated, retries, never } = due;
    let mut sorts = [updated, retries, never].map(Vec::into_iter);
    let mut turns = asked;
    loop {
        let before = turns.len();
        turns.extend(sorts.iter_mut().filter_map(Iterator::next));
        if turns.len() == before {
            break;
        }
    }
    let mut seen = HashSet::new();
    turns.retain(|repo| seen.insert(repo.clone()));
    turns.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repos(names: &str) -> Vec<RepoId> {
        names.split_whitespace().map(|name| format!("h/o/{name}").parse().unwrap()).collect()
    }

    #[test]
    fn who_is_asked_for_comes_first_and_no_sort_starves_another() {
        let due = MirrorsDue {
            asked: repos("a1 a2"),
            updated: repos("u1 u2"),
            retries: repos("r1 r2 r3 r4"),
            never: repos("n1 n2 n3 u1"),
        };
        let turns = in_turn(due);
        let names: Vec<&str> = turns.iter().map(RepoId::name).collect();
        assert_eq!(names, ["a1", "a2", "u1", "r1", "n1", "u2", "r2", "n2", "r3", "n3", "r4"]);
    }
}
