//! The queues of a repository as a value, and the effect of joining them. Pure.

use std::collections::BTreeSet;

use crate::model::{LockKey, Subject};

/// Held locks and the pulls that wait for them.
#[derive(Clone, Debug, Default)]
pub(super) struct LockQueues {
    /// Every lock with its holder.
    pub held: Vec<(LockKey, Subject)>,
    /// Every place in a queue, in order of arrival.
    pub waiting: Vec<(LockKey, Subject)>,
}

/// Step that results from joining queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueueStep {
    /// Join the queue at its end.
    LineUp(LockKey),
    /// Hand this lock over to the first pull in its queue, then join that queue.
    GiveWay(LockKey),
    /// Leave this queue, then join it again at its end.
    FallBack(LockKey),
    /// Do not wait for this lock: these pulls would wait for each other forever.
    Refuse(LockKey, Vec<Subject>),
}

/// Steps of one pull so far.
#[derive(Default)]
struct QueueProgress {
    steps: Vec<QueueStep>,
    /// New places of the pull, which were part of no circle before.
    new: Vec<LockKey>,
}

/// Returns true if two locks exclude each other.
pub(super) fn conflict(a: &LockKey, b: &LockKey) -> bool {
    let projects = a.project.is_none() || b.project.is_none() || a.project == b.project;
    projects && a.repo == b.repo && a.dir == b.dir && a.workspace == b.workspace
}

impl LockQueues {
    /// Returns the pulls that a place in a queue waits for: the holders, and all pulls before it.
    fn ahead(&self, place: usize) -> impl Iterator<Item = Subject> {
        let (key, pull) = &self.waiting[place];
        let holders = self
            .held
            .iter()
            .filter(move |(held, _)| conflict(held, key))
            .map(|(_, pull)| *pull);
        let before = self.waiting[..place]
            .iter()
            .filter(move |(other, _)| conflict(other, key))
            .map(|(_, pull)| *pull);
        holders.chain(before).filter(move |other| other != pull)
    }

    fn waits_of(&self, pull: Subject) -> impl Iterator<Item = usize> {
        (0..self.waiting.len()).filter(move |place| self.waiting[*place].1 == pull)
    }

    /// Returns every pull that one of these waits for, also through others.
    fn reach(&self, from: impl IntoIterator<Item = Subject>) -> BTreeSet<Subject> {
        let mut open: Vec<Subject> = from.into_iter().collect();
        let mut seen: BTreeSet<Subject> = open.iter().copied().collect();
        while let Some(pull) = open.pop() {
            for next in self.waits_of(pull).flat_map(|place| self.ahead(place)) {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    }

    /// Returns the pulls before a place, and every pull that they wait for.
    fn beyond(&self, place: usize) -> BTreeSet<Subject> {
        self.reach(self.ahead(place).collect::<Vec<_>>())
    }

    /// Returns true if a pull waits for itself.
    pub(super) fn has_circle(&self) -> bool {
        (0..self.waiting.len()).any(|place| self.beyond(place).contains(&self.waiting[place].1))
    }

    /// Returns the place of a pull in the queue of a lock, from 1.
    pub(super) fn place(&self, key: &LockKey, pull: Subject) -> usize {
        let own = self
            .waiting
            .iter()
            .position(|(k, p)| k == key && *p == pull)
            .unwrap_or(self.waiting.len());
        1 + self.waiting[..own]
            .iter()
            .filter(|(other, _)| conflict(other, key))
            .count()
    }

    /// Adds a pull to the queues of locks that others hold. Returns the steps to carry out, in order. `may_give` returns true
    /// if a lock of the pull can be handed over.
    pub(super) fn line_up(
        &mut self,
        pull: Subject,
        wanted: Vec<LockKey>,
        may_give: &dyn Fn(&LockKey) -> bool,
    ) -> Vec<QueueStep> {
        let mut turn = QueueProgress::default();
        for key in wanted {
            if !self.waiting.contains(&(key.clone(), pull)) {
                self.join(&key, pull, &mut turn);
            }
            turn.steps.push(QueueStep::LineUp(key));
        }
        loop {
            let beyond: BTreeSet<Subject> = self
                .waits_of(pull)
                .flat_map(|place| self.beyond(place))
                .filter(|other| *other != pull)
                .collect();
            let locks = self.locks_wanted_by(pull, &beyond);
            let places = self.places_before(pull, &beyond);
            if locks.is_empty() && places.is_empty() {
                return turn.steps;
            }
            if let Some(fast) = locks.iter().find(|key| !may_give(key)) {
                self.refuse(fast, pull, &mut turn);
                continue;
            }
            for key in locks {
                self.give(&key, pull);
                self.join(&key, pull, &mut turn);
                turn.steps.push(QueueStep::GiveWay(key));
            }
            for key in places {
                self.leave(&key, pull);
                self.join(&key, pull, &mut turn);
                turn.steps.push(QueueStep::FallBack(key));
            }
        }
    }

    /// Adds a pull to the end of the queue of a lock.
    fn join(&mut self, key: &LockKey, pull: Subject, turn: &mut QueueProgress) {
        self.waiting.push((key.clone(), pull));
        turn.new.push(key.clone());
    }

    /// Removes the new places by which the pull would wait for pulls that wait for a lock that it cannot hand over.
    fn refuse(&mut self, fast: &LockKey, pull: Subject, turn: &mut QueueProgress) {
        let behind = self.waiters_for(fast, pull);
        let circle = |key: &LockKey| Some((key.clone(), self.circle(key, pull, &behind)?));
        let refused: Vec<_> = turn.new.iter().filter_map(circle).collect();
        assert!(
            !refused.is_empty(),
            "every circle goes through a place that is new"
        );
        for (key, circle) in refused {
            self.leave(&key, pull);
            turn.new.retain(|k| *k != key);
            turn.steps
                .retain(|step| !matches!(step, QueueStep::LineUp(k) if *k == key));
            turn.steps.push(QueueStep::Refuse(key, circle));
        }
    }

    /// Returns the pulls that would wait in a circle with the pull because of its place in the queue of a lock. `None`: none.
    fn circle(&self, key: &LockKey, pull: Subject, behind: &[Subject]) -> Option<Vec<Subject>> {
        let place = self
            .waiting
            .iter()
            .position(|(k, p)| k == key && *p == pull)?;
        let beyond = self.beyond(place);
        let closes = behind.iter().any(|waiter| beyond.contains(waiter));
        let member = |other: &Subject| *other != pull && self.reach([*other]).contains(&pull);
        closes.then(|| beyond.into_iter().filter(member).collect())
    }

    fn waiters_for(&self, key: &LockKey, holder: Subject) -> Vec<Subject> {
        let waits = self
            .waiting
            .iter()
            .filter(|(other, pull)| conflict(other, key) && *pull != holder);
        waits.map(|(_, pull)| *pull).collect()
    }

    fn locks_wanted_by(&self, holder: Subject, by: &BTreeSet<Subject>) -> Vec<LockKey> {
        let own = self
            .held
            .iter()
            .filter(|(_, pull)| *pull == holder)
            .map(|(key, _)| key);
        own.filter(|key| {
            self.waiters_for(key, holder)
                .iter()
                .any(|waiter| by.contains(waiter))
        })
        .cloned()
        .collect()
    }

    fn places_before(&self, pull: Subject, others: &BTreeSet<Subject>) -> Vec<LockKey> {
        let behind = |place: usize| {
            let key = &self.waiting[place].0;
            self.waiting[place + 1..]
                .iter()
                .any(|(other, waiter)| conflict(other, key) && others.contains(waiter))
        };
        self.waits_of(pull)
            .filter(|place| behind(*place))
            .map(|place| self.waiting[place].0.clone())
            .collect()
    }

    /// Removes a pull from a queue. If projects have their own locks, the pulls behind it may have nobody before them now.
    fn leave(&mut self, key: &LockKey, pull: Subject) {
        self.waiting.retain(|(k, p)| !(k == key && *p == pull));
        self.hand_on(key);
    }

    /// Releases a lock of a pull.
    pub(super) fn give(&mut self, key: &LockKey, holder: Subject) {
        self.held.retain(|(k, p)| !(k == key && *p == holder));
        self.hand_on(key);
    }

    /// Gives locks to the pulls that have nobody before them any more.
    fn hand_on(&mut self, key: &LockKey) {
        let next = |lines: &Self| {
            let wants = |place: &usize| conflict(&lines.waiting[*place].0, key);
            (0..lines.waiting.len())
                .filter(wants)
                .find(|place| lines.ahead(*place).next().is_none())
        };
        while let Some(place) = next(self) {
            let handed = self.waiting.remove(place);
            self.held.push(handed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{ProjectKey, RepoPath};

    fn key(dir: &str) -> LockKey {
        LockKey::of(
            &"github.com/acme/infra".parse().unwrap(),
            &ProjectKey::of_dir(RepoPath::new(dir).unwrap()),
        )
    }

    fn lines(held: &[(&str, i64)], waiting: &[(&str, i64)]) -> LockQueues {
        let places = |list: &[(&str, i64)]| {
            list.iter()
                .map(|(dir, pull)| (key(dir), Subject::pull(*pull)))
                .collect()
        };
        LockQueues {
            held: places(held),
            waiting: places(waiting),
        }
    }

    #[test]
    fn whoever_closes_a_circle_gives_way_with_what_was_not_applied() {
        let mut lines = lines(&[("a", 1), ("b", 2)], &[("b", 1)]);
        let steps = lines.line_up(Subject::pull(2), vec![key("a")], &|_| true);
        assert_eq!(
            steps,
            [QueueStep::LineUp(key("a")), QueueStep::GiveWay(key("b"))]
        );
        assert_eq!(
            lines.held,
            [(key("a"), Subject::pull(1)), (key("b"), Subject::pull(1))]
        );
        assert_eq!(
            lines.waiting,
            [(key("a"), Subject::pull(2)), (key("b"), Subject::pull(2))]
        );
    }

    #[test]
    fn whoever_has_applied_is_not_lined_up_in_a_circle_and_hears_of_whom_it_consists() {
        let mut lines = lines(&[("a", 1), ("b", 2), ("c", 3)], &[("b", 1)]);
        let steps = lines.line_up(Subject::pull(2), vec![key("a"), key("c")], &|_| false);
        assert_eq!(
            steps,
            [
                QueueStep::LineUp(key("c")),
                QueueStep::Refuse(key("a"), vec![Subject::pull(1)])
            ]
        );
        assert_eq!(
            lines.waiting,
            [(key("b"), Subject::pull(1)), (key("c"), Subject::pull(2))]
        );
    }

    #[test]
    fn those_who_wait_in_one_line_do_not_block_each_other_in_another() {
        // 2 is before 3 in the line for a; 3 holds b, which 2 wants: 2 closes no circle by waiting for 3,
        // but 3 would wait for 2 and 2 for 3.
        let mut lines = lines(&[("a", 1), ("b", 3)], &[("a", 2), ("a", 3)]);
        let steps = lines.line_up(Subject::pull(2), vec![key("b")], &|_| true);
        assert_eq!(
            steps,
            [QueueStep::LineUp(key("b")), QueueStep::FallBack(key("a"))]
        );
        assert!(!lines.has_circle());
    }

    #[derive(Clone, Debug)]
    enum LineAction {
        Want {
            pull: i64,
            dirs: Vec<u8>,
            project: bool,
        },
        Close {
            pull: i64,
        },
    }

    fn actions() -> impl Strategy<Value = Vec<LineAction>> {
        let want = (
            1..6_i64,
            prop::collection::vec(0..4_u8, 1..4),
            any::<bool>(),
        )
            .prop_map(|(pull, dirs, project)| LineAction::Want {
                pull,
                dirs,
                project,
            });
        let close = (1..6_i64).prop_map(|pull| LineAction::Close { pull });
        prop::collection::vec(prop_oneof![4 => want, 1 => close], 1..60)
    }

    fn lock(dir: u8, pull: i64, project: bool) -> LockKey {
        let name = project.then(|| format!("p{}", pull % 2).parse().unwrap());
        LockKey {
            project: name,
            ..key(&format!("d{dir}"))
        }
    }

    fn want(lines: &mut LockQueues, pull: Subject, wanted: Vec<LockKey>, applied: u8) {
        let mut missing = Vec::new();
        for key in wanted {
            let mut before = lines.held.iter().chain(&lines.waiting);
            let foreign = before.any(|(other, whose)| conflict(other, &key) && *whose != pull);
            if foreign {
                missing.push(key);
            } else if !lines.held.contains(&(key.clone(), pull)) {
                lines.held.push((key, pull));
            }
        }
        lines.line_up(pull, missing, &|key| {
            !key.dir.as_str().ends_with(&applied.to_string())
        });
    }

    fn close(lines: &mut LockQueues, pull: Subject) {
        let places: Vec<LockKey> = lines
            .waiting
            .iter()
            .filter(|(_, waiter)| *waiter == pull)
            .map(|(key, _)| key.clone())
            .collect();
        for key in places {
            lines.leave(&key, pull);
        }
        let own: Vec<LockKey> = lines
            .held
            .iter()
            .filter(|(_, p)| *p == pull)
            .map(|(key, _)| key.clone())
            .collect();
        for key in own {
            lines.give(&key, pull);
        }
    }

    proptest! {
        #[test]
        fn nobody_waits_for_ever(actions in actions(), applied in 0..5_u8) {
            let mut lines = LockQueues::default();
            for action in actions {
                match action {
                    LineAction::Want { pull, dirs, project } => {
                        let mut wanted: Vec<LockKey> = dirs.iter().map(|dir| lock(*dir, pull, project)).collect();
                        wanted.sort();
                        wanted.dedup();
                        want(&mut lines, Subject::pull(pull), wanted, applied);
                    }
                    LineAction::Close { pull } => close(&mut lines, Subject::pull(pull)),
                }
                prop_assert!(!lines.has_circle(), "{lines:?}");
                for place in 0..lines.waiting.len() {
                    prop_assert!(lines.ahead(place).next().is_some(), "place {place} waits for nobody: {lines:?}");
                }
            }
            while let Some((_, pull)) = lines.held.iter().find(|(_, pull)| lines.waits_of(*pull).next().is_none()).cloned() {
                close(&mut lines, pull);
            }
            prop_assert!(lines.held.is_empty() && lines.waiting.is_empty(), "{lines:?}");
        }
    }
}
