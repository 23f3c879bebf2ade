//! Orders the mirrors that are due. Requested mirrors come first. The other kinds take turns, one mirror of each. So
//! an unreachable forge delays a push at most by a few other mirrors. Mirrors that no command waits for come last,
//! and never occupy all workers.

use std::collections::{HashSet, VecDeque};

use crate::model::RepoId;
use crate::store::MirrorsDue;

/// Mirrors that are due, in order.
#[derive(Debug, Default)]
pub(super) struct DueMirrors {
    /// Mirrors that a command may wait for, in the order of their turns.
    first: VecDeque<RepoId>,
    /// Mirrors that no command waits for.
    backfill: VecDeque<RepoId>,
    /// Number of workers that handle such a mirror.
    backfilling: usize,
}

/// Next mirror for a worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextMirror {
    pub(super) repo: RepoId,
    /// True if the worker must call [`DueMirrors::backfilled`] at its end.
    pub(super) is_backfill: bool,
}

impl DueMirrors {
    /// Replaces the queue by the mirrors that are due now.
    pub(super) fn set(&mut self, due: MirrorsDue) {
        let backfill = due.backfill.iter().cloned().collect();
        (self.first, self.backfill) = (in_turn(due), backfill);
    }

    /// Returns the number of queued mirrors.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.backfill.len()
    }

    /// Returns the next mirror, given the maximum number of workers. At most half of them may handle mirrors that no
    /// command waits for.
    pub(super) fn next(&mut self, workers: usize) -> Option<NextMirror> {
        if let Some(repo) = self.first.pop_front() {
            return Some(NextMirror {
                repo,
                is_backfill: false,
            });
        }
        if self.backfilling >= (workers / 2).max(1) {
            return None;
        }
        let repo = self.backfill.pop_front()?;
        self.backfilling += 1;
        Some(NextMirror {
            repo,
            is_backfill: true,
        })
    }

    /// Records that a worker has finished a mirror that no command waited for.
    pub(super) fn backfilled(&mut self) {
        self.backfilling = self.backfilling.saturating_sub(1);
    }
}

/// Returns every due mirror that a command may wait for, once, in the order of its turn.
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
        let mut turns = DueMirrors::default();
        turns.set(MirrorsDue {
            never: repos("n1"),
            backfill: repos("b1 b2 b3 b4"),
            ..MirrorsDue::default()
        });
        assert_eq!(turns.len(), 5);
        let next = |turns: &mut DueMirrors, workers| {
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
        let mut alone = DueMirrors::default();
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
