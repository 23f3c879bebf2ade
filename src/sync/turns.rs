//! Whose turn it is. What somebody asked for comes first; of the other sorts one each in turn, so that a forge that is away
//! never keeps a push waiting for longer than a few others take. Mirrors that nobody waits for come when there is nothing
//! else to do, and never have all workers.

use std::collections::{HashSet, VecDeque};

use crate::model::RepoId;
use crate::store::MirrorsDue;

/// Mirrors that are due.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// In the order of their turns.
    first: VecDeque<RepoId>,
    /// Those that nobody waits for.
    backfill: VecDeque<RepoId>,
    /// Workers that are at one of these.
    backfilling: usize,
}

/// The next mirror for a worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) repo: RepoId,
    /// To be told when it is over ([`Turns::backfilled`]).
    pub(super) is_backfill: bool,
}

impl Turns {
    /// Takes up what is due now.
    pub(super) fn set(&mut self, due: MirrorsDue) {
        let backfill = due.backfill.iter().cloned().collect();
        (self.first, self.backfill) = (in_turn(due), backfill);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.backfill.len()
    }

    /// The next one, for one of so many workers. Half of them may be at what nobody waits for.
    pub(super) fn next(&mut self, workers: usize) -> Option<Turn> {
        if let Some(repo) = self.first.pop_front() {
            return Some(Turn {
                repo,
                is_backfill: false,
            });
        }
        if self.backfilling >= (workers / 2).max(1) {
            return None;
        }
        let repo = self.backfill.pop_front()?;
        self.backfilling += 1;
        Some(Turn {
            repo,
            is_backfill: true,
        })
    }

    /// A worker is done with one that nobody waited for.
    pub(super) fn backfilled(&mut self) {
        self.backfilling = self.backfilling.saturating_sub(1);
    }
}

/// Every mirror that is due and that somebody may wait for, once, in the order of its turn.
fn in_turn(due: MirrorsDue) -> VecDeque<RepoId> {
    let MirrorsDue {
        asked,
        updated,
        retries,
        never,
        backfill: _,
    } = due;
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
        names
            .split_whitespace()
            .map(|name| format!("h/o/{name}").parse().unwrap())
            .collect()
    }

    #[test]
    fn who_is_asked_for_comes_first_and_no_sort_starves_another() {
        let due = MirrorsDue {
            asked: repos("a1 a2"),
            updated: repos("u1 u2"),
            retries: repos("r1 r2 r3 r4"),
            never: repos("n1 n2 n3 u1"),
            backfill: repos("b1"),
        };
        let turns = in_turn(due);
        let names: Vec<&str> = turns.iter().map(RepoId::name).collect();
        assert_eq!(
            names,
            [
                "a1", "a2", "u1", "r1", "n1", "u2", "r2", "n2", "r3", "n3", "r4"
            ]
        );
    }

    #[test]
    fn what_nobody_waits_for_comes_last_and_leaves_half_of_the_workers() {
        let mut turns = Turns::default();
        turns.set(MirrorsDue {
            never: repos("n1"),
            backfill: repos("b1 b2 b3 b4"),
            ..MirrorsDue::default()
        });
        assert_eq!(turns.len(), 5);
        let next = |turns: &mut Turns, workers| {
            turns.next(workers).map(|turn| turn.repo.name().to_owned())
        };
        let told: Vec<_> = (0..4).map(|_| next(&mut turns, 4)).collect();
        assert_eq!(
            told,
            [
                Some("n1".to_owned()),
                Some("b1".to_owned()),
                Some("b2".to_owned()),
                None
            ]
        );
        turns.set(MirrorsDue {
            updated: repos("u1"),
            backfill: repos("b3 b4"),
            ..MirrorsDue::default()
        });
        assert_eq!(
            (next(&mut turns, 4).as_deref(), next(&mut turns, 4)),
            (Some("u1"), None),
            "two are still at it"
        );
        turns.backfilled();
        assert_eq!(next(&mut turns, 4).as_deref(), Some("b3"));
        let mut alone = Turns::default();
        alone.set(MirrorsDue {
            backfill: repos("b1 b2"),
            ..MirrorsDue::default()
        });
        assert_eq!(
            (next(&mut alone, 1).as_deref(), next(&mut alone, 1)),
            (Some("b1"), None)
        );
    }
}
