//! Permits for runs: limits the number of concurrent runs and decides the order.
//!
//! Invariants, by name:
//! - *never above*: no more permits than the limit in all, and no more for one repository than its own limit;
//! - *no thrashing*: while the processor is busy, a pull gets fewer and fewer permits, down to a few: more of its runs
//!   would end no sooner, and would delay everybody else. An idle processor gives it more again;
//! - *right of way*: while the processor is so busy that each pull has fewer permits, a pull with many plans begins none of them
//!   as long as a command of another pull is in its first second, or has just ended. Most commands are prepared and answered
//!   in that time, unless the processor is kept from it. The large pull gives way for a second at most;
//! - *no permit lies idle*: no permit stays free while an applicant waits that may have it;
//! - *plans last*: applies and other runs go before plans, because a person waits for them now;
//! - *in turns*: among equals, pulls take turns, so that a pull with 500 projects does not delay a pull with a single
//!   project. Each applicant gets a round number on arrival: one more than its pull's last applicant, and more than
//!   the round that is being served. The lowest round is served first. Later applicants can therefore get at most one
//!   permit per pull before one who waits: nobody starves;
//! - *who leaves is forgotten*: an applicant that is dropped, with or without a permit, leaves nothing behind.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::processor::ProcessorMeter;
use crate::model::{PullRef, RepoId, RunKind};

/// Interval at which the use of the processor is measured while somebody waits for a permit.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Minimum number of permits of a pull, if there are as many. A single run can keep a small machine busy, and the plans of others
/// may only wait for a cloud.
const FEWEST: usize = 4;

/// Time for which a command has the right of way. It is prepared by then, or waits for something else than the processor.
const RIGHT_OF_WAY: Duration = Duration::from_secs(1);

/// Time after the end of a command in which its answer is posted.
const ANSWER_TIME: Duration = Duration::from_millis(50);

/// Maximum time for which a large pull gives way.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The permits for runs of one process.
#[derive(Clone, Debug)]
pub struct RunPool(Arc<Mutex<PoolInner>>);

#[derive(Debug)]
struct PoolInner {
    queue: PoolQueue,
    waiters: HashMap<ApplicantNumber, oneshot::Sender<()>>,
    meter: ProcessorMeter,
    /// True while a task watches the processor.
    is_watched: bool,
    /// Time since which an applicant could have a permit and gives way.
    gives_way_since: Option<Instant>,
}

/// The right of way of a command. Dropping the value ends it once the answer can have been posted.
#[derive(Debug)]
pub struct RightOfWay {
    pool: RunPool,
    command: CommandNumber,
}

/// The right to run something. Dropping the value releases it.
#[derive(Debug)]
pub struct RunPermit {
    pool: RunPool,
    applicant: ApplicantNumber,
}

impl RunPool {
    /// Creates a pool with the number of permits in all and the limit for one repository.
    pub fn new(permits: usize, per_repo: usize) -> Self {
        Self(Arc::new(Mutex::new(PoolInner {
            queue: PoolQueue::new(permits, per_repo),
            waiters: HashMap::new(),
            meter: ProcessorMeter::default(),
            is_watched: false,
            gives_way_since: None,
        })))
    }

    /// Gives a command of this pull the right of way.
    pub fn right_of_way(&self, pull: &PullRef) -> RightOfWay {
        let until = Instant::now() + RIGHT_OF_WAY;
        RightOfWay {
            command: self.inner().queue.give_right_of_way(pull, until),
            pool: self.clone(),
        }
    }

    /// Returns the maximum number of concurrent runs of one repository.
    pub fn permits_per_repo(&self) -> usize {
        let queue = &self.inner().queue;
        queue.permits.min(queue.per_repo)
    }

    /// Waits for a permit. Dropping the future leaves the queue.
    pub async fn acquire(&self, kind: RunKind, pull: &PullRef) -> RunPermit {
        let (sender, granted) = oneshot::channel();
        let permit = {
            let mut inner = self.inner();
            let applicant = inner.queue.enter(kind, pull);
            inner.waiters.insert(applicant, sender);
            inner.grant_permits(Instant::now());
            if !inner.queue.waiting.is_empty() && !std::mem::replace(&mut inner.is_watched, true) {
                tokio::spawn(watch_processor(Arc::downgrade(&self.0)));
            }
            RunPermit {
                pool: self.clone(),
                applicant,
            }
        };
        // The sender is dropped only with the permit.
        granted.await.ok();
        permit
    }

    fn inner(&self) -> MutexGuard<'_, PoolInner> {
        inner(&self.0)
    }
}

fn inner(pool: &Mutex<PoolInner>) -> MutexGuard<'_, PoolInner> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adapts the share of a pull to the use of the processor until nobody waits.
async fn watch_processor(pool: Weak<Mutex<PoolInner>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(pool) = pool.upgrade() else { return };
        if !inner(&pool).adapt() {
            return;
        }
    }
}

impl PoolInner {
    /// Adapts the share of a pull. Returns false if nobody waits, so that there is nothing to adapt.
    fn adapt(&mut self) -> bool {
        if self.queue.waiting.is_empty() {
            self.queue.per_pull = usize::MAX;
            self.meter = ProcessorMeter::default();
            self.is_watched = false;
            return false;
        }
        if let Some(is_busy) = self.meter.is_busy() {
            let processors = available_parallelism().map_or(1, NonZeroUsize::get);
            let largest = self.queue.largest_share();
            self.queue.per_pull = share(self.queue.per_pull, largest, is_busy, processors);
        }
        self.grant_permits(Instant::now());
        true
    }

    fn grant_permits(&mut self, now: Instant) {
        self.queue.right_of_way.retain(|_, (_, until)| now < *until);
        let has_waited = self
            .gives_way_since
            .is_some_and(|since| now >= since + LONGEST_WAIT);
        let mut is_served = false;
        while let Some(applicant) = self.queue.serve(has_waited) {
            is_served = true;
            if let Some(sender) = self.waiters.remove(&applicant) {
                // A receiver that does not listen any more is about to release its permit.
                sender.send(()).ok();
            }
        }
        // A permit that others take meanwhile does not end the wait.
        if (has_waited && is_served) || !self.queue.somebody_gives_way() {
            self.gives_way_since = None;
        } else {
            self.gives_way_since.get_or_insert(now);
        }
    }
}

impl Drop for RightOfWay {
    fn drop(&mut self) {
        let until = Instant::now() + ANSWER_TIME;
        self.pool
            .inner()
            .queue
            .end_right_of_way(self.command, until);
        let pool = Arc::downgrade(&self.pool.0);
        // Without a runtime, the server is ending.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            tokio::time::sleep(ANSWER_TIME).await;
            if let Some(pool) = pool.upgrade() {
                inner(&pool).grant_permits(Instant::now());
            }
        });
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let mut inner = self.pool.inner();
        inner.waiters.remove(&self.applicant);
        inner.queue.leave(self.applicant);
        inner.grant_permits(Instant::now());
    }
}

/// Returns the next share of a pull. A busy processor halves what the largest pull has, an idle one adds to the share.
fn share(now: usize, largest: usize, is_busy: bool, processors: usize) -> usize {
    let fewest = (processors / 2).max(FEWEST);
    if is_busy {
        (now.min(largest) / 2).max(fewest)
    } else {
        now.saturating_add(fewest)
    }
}

/// Number of one applicant. Later applicants have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ApplicantNumber(u64);

/// Number of a command with the right of way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CommandNumber(u64);

/// Order of service: the smallest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServiceOrder {
    /// True for a plan.
    can_wait: bool,
    round: u64,
    applicant: ApplicantNumber,
}

/// Queue of applicants and holders of permits: the rules, without time and tasks.
#[derive(Debug)]
struct PoolQueue {
    permits: usize,
    per_repo: usize,
    /// Maximum number of permits of one pull.
    per_pull: usize,
    next: u64,
    /// Round that is being served, for urgent runs and for plans.
    served: [u64; 2],
    waiting: BTreeMap<ServiceOrder, PullRef>,
    turns: HashMap<ApplicantNumber, ServiceOrder>,
    holders: HashMap<ApplicantNumber, PullRef>,
    of_repo: HashMap<RepoId, usize>,
    of_pull: HashMap<PullRef, usize>,
    waiting_of_pull: HashMap<PullRef, usize>,
    /// Commands with the right of way, and when it ends.
    right_of_way: HashMap<CommandNumber, (PullRef, Instant)>,
}

impl PoolQueue {
    fn new(permits: usize, per_repo: usize) -> Self {
        Self {
            permits,
            per_repo,
            per_pull: usize::MAX,
            next: 0,
            served: [0; 2],
            waiting: BTreeMap::new(),
            turns: HashMap::new(),
            holders: HashMap::new(),
            of_repo: HashMap::new(),
            of_pull: HashMap::new(),
            waiting_of_pull: HashMap::new(),
            right_of_way: HashMap::new(),
        }
    }

    fn give_right_of_way(&mut self, pull: &PullRef, until: Instant) -> CommandNumber {
        let command = CommandNumber(self.next);
        self.next += 1;
        self.right_of_way.insert(command, (pull.clone(), until));
        command
    }

    /// Ends the right of way at this time, if it has not ended earlier.
    fn end_right_of_way(&mut self, command: CommandNumber, until: Instant) {
        if let Some((_, end)) = self.right_of_way.get_mut(&command) {
            *end = until.min(*end);
        }
    }

    /// Returns true if an applicant waits for the commands of other pulls: plans of a pull that has many, while the processor
    /// is so busy that each pull has fewer permits.
    fn gives_way(&self, turn: &ServiceOrder, pull: &PullRef) -> bool {
        let is_busy = self.per_pull < self.permits.min(self.per_repo);
        turn.can_wait
            && is_busy
            && self
                .waiting_of_pull
                .get(pull)
                .is_some_and(|count| *count > FEWEST)
            && self.right_of_way.values().any(|(other, _)| other != pull)
    }

    fn somebody_gives_way(&self) -> bool {
        self.waiting
            .iter()
            .any(|(turn, pull)| self.gives_way(turn, pull))
    }

    /// Returns the number of permits of the pull that has most of them.
    fn largest_share(&self) -> usize {
        self.of_pull.values().max().copied().unwrap_or_default()
    }

    /// Adds an applicant to the queue.
    fn enter(&mut self, kind: RunKind, pull: &PullRef) -> ApplicantNumber {
        let can_wait = kind == RunKind::Plan;
        let before = self
            .waiting
            .iter()
            .filter(|(turn, other)| turn.can_wait == can_wait && *other == pull);
        let last = before.map(|(turn, _)| turn.round).max();
        let served = self.served[usize::from(can_wait)];
        let round = last.unwrap_or(0).max(served) + 1;
        let applicant = ApplicantNumber(self.next);
        self.next += 1;
        let turn = ServiceOrder {
            can_wait,
            round,
            applicant,
        };
        self.waiting.insert(turn, pull.clone());
        self.turns.insert(applicant, turn);
        *self.waiting_of_pull.entry(pull.clone()).or_default() += 1;
        applicant
    }

    /// Returns the next applicant that may have a permit, if one is free. With `has_waited`, no pull gives way.
    fn next(&self, has_waited: bool) -> Option<ServiceOrder> {
        if self.holders.len() >= self.permits {
            return None;
        }
        let full: BTreeSet<&RepoId> = self
            .of_repo
            .iter()
            .filter(|(_, count)| **count >= self.per_repo)
            .map(|(repo, _)| repo)
            .collect();
        let may = |turn: &ServiceOrder, pull: &PullRef| {
            !full.contains(&pull.repo)
                && !self.has_its_share(pull)
                && (has_waited || !self.gives_way(turn, pull))
        };
        let (turn, _) = self.waiting.iter().find(|(turn, pull)| may(turn, pull))?;
        Some(*turn)
    }

    /// Grants the [`Self::next`] applicant a permit.
    fn serve(&mut self, has_waited: bool) -> Option<ApplicantNumber> {
        let turn = self.next(has_waited)?;
        let pull = self.waiting.remove(&turn)?;
        let served = &mut self.served[usize::from(turn.can_wait)];
        *served = (*served).max(turn.round);
        self.turns.remove(&turn.applicant);
        subtract(&mut self.waiting_of_pull, &pull);
        *self.of_repo.entry(pull.repo.clone()).or_default() += 1;
        *self.of_pull.entry(pull.clone()).or_default() += 1;
        self.holders.insert(turn.applicant, pull);
        Some(turn.applicant)
    }

    fn has_its_share(&self, pull: &PullRef) -> bool {
        self.of_pull
            .get(pull)
            .is_some_and(|count| *count >= self.per_pull)
    }

    /// Removes an applicant that stopped waiting or releases its permit.
    fn leave(&mut self, applicant: ApplicantNumber) {
        if let Some(turn) = self.turns.remove(&applicant)
            && let Some(pull) = self.waiting.remove(&turn)
        {
            subtract(&mut self.waiting_of_pull, &pull);
        }
        let Some(pull) = self.holders.remove(&applicant) else {
            return;
        };
        subtract(&mut self.of_repo, &pull.repo);
        subtract(&mut self.of_pull, &pull);
    }
}

/// Counts one less; what has none is forgotten.
fn subtract<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    let Some(count) = counts.get_mut(key) else {
        return;
    };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::model::Subject;

    fn pull(repo: u8, number: i64) -> PullRef {
        PullRef {
            repo: format!("github.com/acme/r{repo}").parse().unwrap(),
            subject: Subject::pull(number),
        }
    }

    /// Returns the order of service when every permit is released at once.
    fn served(queue: &mut PoolQueue, count: usize) -> Vec<ApplicantNumber> {
        let mut order = Vec::new();
        for _ in 0..count {
            let Some(applicant) = queue.serve(false) else {
                break;
            };
            queue.leave(applicant);
            order.push(applicant);
        }
        order
    }

    #[test]
    fn a_pull_with_one_project_goes_before_the_rest_of_a_pull_with_five_hundred() {
        let mut queue = PoolQueue::new(1, 1);
        for _ in 0..500 {
            queue.enter(RunKind::Plan, &pull(1, 1));
        }
        assert_eq!(served(&mut queue, 100).len(), 100);
        let small = queue.enter(RunKind::Plan, &pull(1, 2));
        let position = served(&mut queue, 400)
            .iter()
            .position(|applicant| *applicant == small);
        assert!(position.unwrap() <= 1, "{position:?}");
    }

    #[test]
    fn a_pull_with_many_projects_is_not_starved_by_many_small_ones() {
        let mut queue = PoolQueue::new(1, 1);
        let many: Vec<ApplicantNumber> = (0..3)
            .map(|_| queue.enter(RunKind::Plan, &pull(1, 1)))
            .collect();
        let mut order = Vec::new();
        for number in 2..20 {
            queue.enter(RunKind::Plan, &pull(1, number));
            queue.enter(RunKind::Plan, &pull(1, -number));
            order.extend(served(&mut queue, 1));
        }
        assert!(
            many[..2].iter().all(|applicant| order.contains(applicant)),
            "{order:?}"
        );
    }

    #[test]
    fn applies_go_first_and_a_full_repository_lets_others_pass() {
        let mut queue = PoolQueue::new(3, 1);
        let plan = queue.enter(RunKind::Plan, &pull(1, 1));
        let apply = queue.enter(RunKind::Apply, &pull(1, 2));
        let elsewhere = queue.enter(RunKind::Plan, &pull(2, 1));
        assert_eq!(
            (queue.serve(false), queue.serve(false), queue.serve(false)),
            (Some(apply), Some(elsewhere), None)
        );
        queue.leave(apply);
        assert_eq!((queue.serve(false), queue.serve(false)), (Some(plan), None));
    }

    #[tokio::test]
    async fn a_permit_is_handed_on_and_a_dropped_wait_leaves_the_queue() {
        let (pool, one, two) = (RunPool::new(1, 1), pull(1, 1), pull(2, 2));
        let first = pool.acquire(RunKind::Plan, &pull(1, 1)).await;
        let mut second = Box::pin(pool.acquire(RunKind::Plan, &one));
        let mut third = Box::pin(pool.acquire(RunKind::Plan, &two));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(second);
        drop(first);
        let third = third.now_or_never().expect("the permit is free");
        // An applicant that got a permit, but is dropped before it learns of it, releases the permit.
        let mut unheard = Box::pin(pool.acquire(RunKind::Apply, &one));
        assert!((&mut unheard).now_or_never().is_none());
        drop(third);
        drop(unheard);
        assert!(
            pool.acquire(RunKind::Plan, &pull(1, 3))
                .now_or_never()
                .is_some()
        );
        let inner = pool.inner();
        assert!(
            inner.queue.waiting.is_empty()
                && inner.queue.holders.is_empty()
                && inner.queue.of_repo.is_empty()
                && inner.queue.of_pull.is_empty()
        );
        assert!(inner.waiters.is_empty() && inner.queue.turns.is_empty());
    }

    #[test]
    fn a_pull_keeps_to_its_share_and_leaves_the_rest_to_others() {
        let mut queue = PoolQueue::new(15, usize::MAX);
        for _ in 0..100 {
            queue.enter(RunKind::Plan, &pull(1, 1));
        }
        let all: Vec<ApplicantNumber> = std::iter::from_fn(|| queue.serve(false)).collect();
        assert_eq!((all.len(), queue.largest_share()), (15, 15));
        queue.per_pull = share(queue.per_pull, queue.largest_share(), true, 4);
        assert_eq!(queue.per_pull, 7);
        for applicant in &all[..8] {
            queue.leave(*applicant);
        }
        assert_eq!((queue.largest_share(), queue.serve(false)), (7, None));
        let small = queue.enter(RunKind::Plan, &pull(1, 2));
        assert_eq!(
            (queue.serve(false), queue.serve(false)),
            (Some(small), None)
        );
        queue.per_pull = share(queue.per_pull, queue.largest_share(), false, 4);
        assert_eq!(std::iter::from_fn(|| queue.serve(false)).count(), 4);
    }

    /// A large pull and the permits that it has on a busy processor.
    fn busy_with_a_large_pull() -> (PoolQueue, Vec<ApplicantNumber>) {
        let mut queue = PoolQueue::new(15, usize::MAX);
        queue.per_pull = FEWEST;
        for _ in 0..100 {
            queue.enter(RunKind::Plan, &pull(1, 1));
        }
        let holders: Vec<ApplicantNumber> = std::iter::from_fn(|| queue.serve(false)).collect();
        assert_eq!(holders.len(), FEWEST);
        (queue, holders)
    }

    #[test]
    fn a_large_pull_gives_way_to_the_commands_of_others() {
        let (mut queue, holders) = busy_with_a_large_pull();
        let later = Instant::now() + RIGHT_OF_WAY;
        queue.give_right_of_way(&pull(1, 1), later);
        queue.leave(holders[0]);
        assert!(queue.serve(false).is_some(), "its own command is no reason");
        queue.give_right_of_way(&pull(1, 2), later);
        queue.leave(holders[1]);
        assert_eq!(queue.serve(false), None);
        let small = queue.enter(RunKind::Plan, &pull(1, 2));
        assert_eq!(
            (queue.serve(false), queue.serve(false)),
            (Some(small), None)
        );
        // Nobody waits for an apply longer than for a plan.
        let apply = queue.enter(RunKind::Apply, &pull(1, 1));
        assert_eq!(
            (queue.serve(false), queue.serve(false)),
            (Some(apply), None)
        );
        // An idle processor has time for both.
        queue.per_pull = 15;
        assert!(queue.serve(false).is_some());
    }

    /// Small pulls that take each free permit do not lengthen the wait.
    #[test]
    fn a_large_pull_gets_its_permits_beside_many_commands() {
        let (queue, holders) = busy_with_a_large_pull();
        let now = Instant::now();
        let mut inner = PoolInner {
            queue,
            waiters: HashMap::new(),
            meter: ProcessorMeter::default(),
            is_watched: false,
            gives_way_since: None,
        };
        inner.queue.permits = FEWEST + 1;
        for applicant in holders {
            inner.queue.leave(applicant);
        }
        let of_large = |inner: &PoolInner| inner.queue.of_pull.contains_key(&pull(1, 1));
        let step = LONGEST_WAIT / 10;
        let mut served_after = None;
        for number in 0..12 {
            let (at, small) = (now + step * number, pull(1, i64::from(number) + 2));
            inner.queue.give_right_of_way(&small, at + RIGHT_OF_WAY);
            // Each fills the pool, and one permit becomes free in the next step.
            while inner.queue.holders.len() < inner.queue.permits {
                let applicant = inner.queue.enter(RunKind::Plan, &small);
                inner.grant_permits(at);
                if !inner.queue.holders.contains_key(&applicant) {
                    break;
                }
            }
            if of_large(&inner) {
                served_after = Some(step * number);
                break;
            }
            let oldest = inner.queue.holders.keys().min().copied();
            inner.queue.leave(oldest.expect("the pool is full"));
        }
        assert_eq!(served_after, Some(LONGEST_WAIT));
    }

    #[tokio::test]
    async fn the_end_of_a_right_of_way_wakes_the_large_pull() {
        let pool = RunPool::new(15, usize::MAX);
        // Nobody measures the processor, which would grant the permits as well.
        pool.inner().is_watched = true;
        pool.inner().queue.per_pull = FEWEST;
        let large = pull(1, 1);
        let mut permits = Vec::new();
        for _ in 0..FEWEST {
            permits.push(pool.acquire(RunKind::Plan, &large).await);
        }
        let mut waiting: Vec<_> = (0..=FEWEST)
            .map(|_| Box::pin(pool.acquire(RunKind::Plan, &large)))
            .collect();
        for permit in &mut waiting {
            assert!(permit.now_or_never().is_none());
        }
        let command = pool.right_of_way(&pull(1, 2));
        drop(permits.pop());
        assert!((&mut waiting[0]).now_or_never().is_none());
        drop(command);
        drop((&mut waiting[0]).await);
    }

    #[tokio::test]
    async fn the_right_of_way_ends_with_the_answer_or_after_a_second() {
        let (pool, now) = (RunPool::new(1, 1), Instant::now());
        let is_held = |pool: &RunPool, after: Duration| {
            let mut inner = pool.inner();
            inner.grant_permits(now + after);
            !inner.queue.right_of_way.is_empty()
        };
        let command = pool.right_of_way(&pull(1, 2));
        assert!(is_held(&pool, RIGHT_OF_WAY));
        drop(command);
        assert!(is_held(&pool, ANSWER_TIME));
        assert!(!is_held(&pool, RIGHT_OF_WAY / 2));
        let command = pool.right_of_way(&pull(1, 2));
        assert!(!is_held(&pool, Duration::from_hours(1)));
        drop(command);
    }

    #[test]
    fn a_large_pull_gets_its_permits_in_every_second() {
        let (mut queue, holders) = busy_with_a_large_pull();
        let now = Instant::now();
        queue.give_right_of_way(&pull(1, 2), now + Duration::from_hours(1));
        let mut inner = PoolInner {
            queue,
            waiters: HashMap::new(),
            meter: ProcessorMeter::default(),
            is_watched: false,
            gives_way_since: None,
        };
        for applicant in holders {
            inner.queue.leave(applicant);
        }
        let mut permits = |after: Duration| {
            let before = inner.queue.holders.len();
            inner.grant_permits(now + after);
            let given = inner.queue.holders.len() - before;
            let held: Vec<ApplicantNumber> = inner.queue.holders.keys().copied().collect();
            for held in held {
                inner.queue.leave(held);
            }
            given
        };
        assert_eq!(permits(Duration::ZERO), 0);
        assert_eq!(permits(LONGEST_WAIT / 2), 0);
        assert_eq!(permits(LONGEST_WAIT), FEWEST);
        assert_eq!(permits(LONGEST_WAIT), 0, "the next second begins");
        assert_eq!(permits(LONGEST_WAIT * 2), FEWEST);
    }

    #[test]
    fn the_share_of_a_pull_follows_the_processor() {
        let shares = |mut now: usize, is_busy: bool, processors: usize| -> Vec<usize> {
            let next = std::iter::from_fn(|| {
                now = share(now, now.min(15), is_busy, processors);
                Some(now)
            });
            next.take(4).collect()
        };
        assert_eq!(shares(usize::MAX, true, 1), [7, 4, 4, 4]);
        assert_eq!(shares(usize::MAX, true, 12), [7, 6, 6, 6]);
        assert_eq!(shares(usize::MAX, true, 64), [32, 32, 32, 32]);
        assert_eq!(shares(4, false, 2), [8, 12, 16, 20]);
        assert_eq!(shares(6, false, 12), [12, 18, 24, 30]);
        assert_eq!(shares(usize::MAX, false, 2), [usize::MAX; 4]);
    }

    #[derive(Clone, Debug)]
    enum Move {
        Enter(bool, u8, i64),
        /// Index among the present applicants, waiting or served.
        Leave(usize),
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let enter = (any::<bool>(), 0u8..3, 0i64..4)
            .prop_map(|(apply, repo, pull)| Move::Enter(apply, repo, pull));
        prop::collection::vec(
            prop_oneof![2 => enter, 1 => (0usize..100).prop_map(Move::Leave)],
            0..120,
        )
    }

    proptest! {
        #[test]
        fn limits_hold_no_permit_lies_idle_and_who_leaves_is_forgotten(
            permits in 1usize..5, per_repo in 1usize..4, per_pull in 1usize..4, has_right_of_way in any::<bool>(),
            moves in moves(),
        ) {
            let mut queue = PoolQueue::new(permits, per_repo);
            queue.per_pull = per_pull;
            if has_right_of_way {
                queue.give_right_of_way(&pull(0, 0), Instant::now() + RIGHT_OF_WAY);
            }
            let mut present: BTreeMap<ApplicantNumber, RepoId> = BTreeMap::new();
            for step in moves {
                match step {
                    Move::Enter(apply, repo, number) => {
                        let kind = if apply { RunKind::Apply } else { RunKind::Plan };
                        present.insert(queue.enter(kind, &pull(repo, number)), pull(repo, number).repo);
                    }
                    Move::Leave(n) => {
                        let Some(applicant) = present.keys().nth(n % present.len().max(1)).copied() else { continue };
                        present.remove(&applicant);
                        queue.leave(applicant);
                    }
                }
                while queue.serve(false).is_some() {}
                let running = |repo: &RepoId| queue.holders.values().filter(|other| other.repo == *repo).count();
                let of_pull = |pull: &PullRef| queue.holders.values().filter(|other| *other == pull).count();
                prop_assert!(queue.holders.len() <= permits);
                prop_assert!(queue.holders.values().all(|pull| running(&pull.repo) <= per_repo && of_pull(pull) <= per_pull));
                prop_assert_eq!(queue.holders.len() + queue.waiting.len(), present.len());
                prop_assert_eq!(queue.turns.len(), queue.waiting.len());
                let idle = queue.holders.len() < permits
                    && queue.waiting.iter().any(|(turn, pull)| {
                        running(&pull.repo) < per_repo && of_pull(pull) < per_pull && !queue.gives_way(turn, pull)
                    });
                prop_assert!(!idle, "somebody waits beside a free permit");
                prop_assert_eq!(queue.waiting_of_pull.values().sum::<usize>(), queue.waiting.len());
            }
        }

        #[test]
        fn who_waits_is_served_after_two_permits_per_pull_beside_it(
            before in prop::collection::vec(0i64..6, 0..200), after in prop::collection::vec(0i64..6, 0..200), warm in 0usize..100,
        ) {
            let mut queue = PoolQueue::new(1, 1);
            for number in before {
                queue.enter(RunKind::Plan, &pull(1, number));
            }
            served(&mut queue, warm);
            let ours = queue.enter(RunKind::Plan, &pull(1, 99));
            let mut after = after.into_iter();
            for _ in 0..=12 {
                for number in after.by_ref().take(5) {
                    queue.enter(RunKind::Plan, &pull(1, number));
                }
                if served(&mut queue, 1) == [ours] {
                    return Ok(());
                }
            }
            prop_assert!(false, "it was passed over too often");
        }
    }
}
