//! Checks that the answers to many concurrent tasks are those of tasks that run one after another, in an order that
//! respects which call ended before another began (linearizability).
//!
//! Each round is a history of real calls of the store, checked against a model that does one thing at a time. The
//! seed of a round is in the message of its failure.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex};

use lockkeeper::model::{LockId, PullState};
use lockkeeper::store::{Store, TakeLock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::samples::{URL, open_pull, project, pull, steal, take};
use crate::support::db::{TestDb, by, store_test};

store_test!(what_tasks_are_told_about_locks_could_have_happened_one_after_another);

const ROUNDS: u64 = 100;
const TASKS: usize = 5;
const STEPS: usize = 6;
const PULLS: i64 = 3;
const DIRS: [&str; 2] = ["a", "b"];

/// Request of a task.
#[derive(Clone, Debug)]
enum Ask {
    Take(i64, &'static str),
    Release(i64, &'static str),
    Look(&'static str),
    Steal(LockId),
    Warn(LockId),
    Expire(LockId),
    Close(i64),
    Reopen(i64),
}

/// Answer to a task.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    /// The pull request holds the lock with this identifier. After a take, the lock was free before.
    Held(i64, LockId),
    /// The requesting pull request already held the lock.
    Ours(LockId),
    Closed,
    Done(bool),
    Freed(BTreeSet<&'static str>),
}

/// A lock of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    pull: i64,
    id: LockId,
    warned: bool,
}

/// Locks as they would be without concurrency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Model {
    locks: BTreeMap<&'static str, Held>,
    closed: BTreeSet<i64>,
}

impl Model {
    fn free(&mut self, which: impl Fn(&Held) -> bool) -> bool {
        let before = self.locks.len();
        self.locks.retain(|_, held| !which(held));
        self.locks.len() < before
    }

    /// Checks whether this could be the answer now, and carries the request out. The store chooses the identifiers,
    /// so the model can only check answers.
    fn allows(&mut self, ask: &Ask, told: &Told) -> bool {
        match (ask, told) {
            (Ask::Take(pull, _), Told::Closed) => self.closed.contains(pull),
            (Ask::Take(pull, _), _) if self.closed.contains(pull) => false,
            (Ask::Take(pull, dir), Told::Held(holder, id)) => match self.locks.get(dir) {
                None => {
                    holder == pull
                        && self
                            .locks
                            .insert(
                                dir,
                                Held {
                                    pull: *pull,
                                    id: *id,
                                    warned: false,
                                },
                            )
                            .is_none()
                }
                Some(held) => held.pull != *pull && (held.pull, held.id) == (*holder, *id),
            },
            (Ask::Take(pull, dir), Told::Ours(id)) => self
                .locks
                .get(dir)
                .is_some_and(|held| held.pull == *pull && held.id == *id),
            (Ask::Look(dir), Told::Held(holder, id)) => self
                .locks
                .get(dir)
                .is_some_and(|held| held.pull == *holder && held.id == *id),
            (Ask::Look(dir), Told::Done(false)) => !self.locks.contains_key(dir),
            (Ask::Release(pull, dir), Told::Done(done)) => {
                let ours = self.locks.get(dir).is_some_and(|held| held.pull == *pull);
                ours == *done && (!ours || self.locks.remove(dir).is_some())
            }
            (Ask::Steal(id), Told::Done(done)) => self.free(|held| held.id == *id) == *done,
            (Ask::Expire(id), Told::Done(done)) => {
                self.free(|held| held.id == *id && held.warned) == *done
            }
            (Ask::Warn(id), Told::Done(done)) => {
                let unwarned = self
                    .locks
                    .values_mut()
                    .find(|held| held.id == *id && !held.warned);
                unwarned.map(|held| held.warned = true).is_some() == *done
            }
            (Ask::Close(pull), Told::Freed(dirs)) => {
                let held = self
                    .locks
                    .iter()
                    .filter(|(_, held)| held.pull == *pull)
                    .map(|(dir, _)| *dir)
                    .collect();
                self.closed.insert(*pull);
                self.free(|held| held.pull == *pull);
                *dirs == held
            }
            (Ask::Reopen(pull), Told::Done(true)) => {
                self.closed.remove(pull);
                true
            }
            _ => false,
        }
    }
}

/// Sends the request to the real store, and returns the answer.
async fn answer(store: &Store, ask: &Ask) -> Told {
    match *ask {
        Ask::Take(number, dir) => match take(store, &pull(number), &project(dir)).await {
            TakeLock::Taken(lock) | TakeLock::HeldBy(lock) => {
                Told::Held(lock.pull.subject.stored(), lock.id)
            }
            TakeLock::AlreadyOurs(lock) => Told::Ours(lock.id),
            TakeLock::PullClosed => Told::Closed,
        },
        Ask::Release(number, dir) => Told::Done(
            store
                .lock_release(&pull(number), &project(dir), by())
                .await
                .unwrap(),
        ),
        Ask::Look(dir) => {
            let key = lockkeeper::model::LockKey::of(&pull(1).repo, &project(dir));
            let holder = store.lock_holder(&key).await.unwrap();
            holder.map_or(Told::Done(false), |lock| {
                Told::Held(lock.pull.subject.stored(), lock.id)
            })
        }
        Ask::Steal(id) => Told::Done(steal(store, id).await.is_some()),
        Ask::Warn(id) => {
            let Some(seen) = store.lock_get(id).await.unwrap() else {
                return Told::Done(false);
            };
            let warned = store
                .lock_warn(&seen.pull, std::slice::from_ref(&seen), by(), |_| vec![])
                .await
                .unwrap();
            Told::Done(!warned.is_empty())
        }
        Ask::Expire(id) => {
            let Some(seen) = store.lock_get(id).await.unwrap() else {
                return Told::Done(false);
            };
            let expired = store
                .lock_expire(&seen.pull, std::slice::from_ref(&seen), by(), |_| vec![])
                .await
                .unwrap();
            Told::Done(!expired.is_empty())
        }
        Ask::Close(number) => {
            let mut dirs = BTreeSet::new();
            let note = |freed: &[lockkeeper::model::Lock]| {
                dirs = freed
                    .iter()
                    .filter_map(|lock| {
                        DIRS.into_iter()
                            .find(|dir| lock.key.dir.to_string() == *dir)
                    })
                    .collect();
                vec![]
            };
            store
                .pull_close(&pull(number), PullState::Closed, URL, by(), note)
                .await
                .unwrap();
            Told::Freed(dirs)
        }
        Ask::Reopen(number) => {
            store
                .pull_seen(&pull(number), PullState::Open, URL)
                .await
                .unwrap();
            Told::Done(true)
        }
    }
}

fn choose(rng: &mut StdRng, known: &[LockId]) -> Ask {
    let number = rng.random_range(1..=PULLS);
    let dir = DIRS[rng.random_range(0..DIRS.len())];
    let newest = known.last().copied();
    match (rng.random_range(0..20), newest) {
        (0..7, _) => Ask::Take(number, dir),
        (7..10, _) => Ask::Release(number, dir),
        (10, _) => Ask::Close(number),
        (11..13, _) => Ask::Reopen(number),
        (13..15, Some(id)) => Ask::Steal(id),
        (15..17, Some(id)) => Ask::Warn(id),
        (17..19, Some(id)) => Ask::Expire(id),
        _ => Ask::Look(dir),
    }
}

/// Calls and answers in the order in which they happened.
#[derive(Debug, Default)]
struct History {
    calls: Vec<Call>,
    lines: Vec<String>,
}

#[derive(Debug)]
struct Call {
    ask: Ask,
    /// Answer, with the number of calls that had begun before it came.
    told: Option<(Told, usize)>,
}

impl History {
    /// Records a request. Returns the number of the call.
    fn asks(&mut self, who: usize, ask: Ask) -> usize {
        self.lines.push(format!("{who} asks {ask:?}"));
        self.calls.push(Call { ask, told: None });
        self.calls.len() - 1
    }

    fn hears(&mut self, who: usize, call: usize, told: Told) {
        self.lines.push(format!("{who} hears {told:?}"));
        self.calls[call].told = Some((told, self.calls.len()));
    }

    /// Checks whether the calls could have happened one after another, none before one that had ended when it began.
    /// States that were tried in vain are remembered by the finished calls and their result (Wing and Gong's search
    /// with Lowe's memory). Without it the time grows with the number of orders, which is sometimes far too large.
    fn is_explained(&self) -> bool {
        assert!(self.calls.len() <= 64, "one bit for each call");
        let all = u64::MAX >> (64 - self.calls.len());
        let (mut seen, mut open) = (HashSet::new(), vec![(0_u64, Model::default())]);
        while let Some((done, model)) = open.pop() {
            if done == all {
                return true;
            }
            for call in self.next(done) {
                let (
                    Call {
                        ask,
                        told: Some((told, _)),
                    },
                    mut after,
                ) = (&self.calls[call], model.clone())
                else {
                    panic!("call {call} was not answered")
                };
                let done = done | 1 << call;
                if after.allows(ask, told) && seen.insert((done, after.clone())) {
                    open.push((done, after));
                }
            }
        }
        false
    }

    /// Returns the calls that may be next: those that had begun before any of the other remaining calls had ended.
    fn next(&self, done: u64) -> impl Iterator<Item = usize> {
        let left = move |call: &usize| done & 1 << call == 0;
        let end = |call: usize| {
            self.calls[call]
                .told
                .as_ref()
                .map_or(usize::MAX, |(_, end)| *end)
        };
        let first_end = (0..self.calls.len())
            .filter(left)
            .map(end)
            .min()
            .unwrap_or_default();
        (0..first_end.min(self.calls.len())).filter(left)
    }
}

async fn play(store: Store, task: usize, mut rng: StdRng, history: Arc<Mutex<History>>) {
    let mut known = Vec::new();
    for _ in 0..STEPS {
        let ask = choose(&mut rng, &known);
        let call = history.lock().unwrap().asks(task, ask.clone());
        let told = answer(&store, &ask).await;
        if let Told::Held(_, id) | Told::Ours(id) = told {
            known.push(id);
        }
        history.lock().unwrap().hears(task, call, told);
    }
}

async fn what_tasks_are_told_about_locks_could_have_happened_one_after_another(db: &TestDb) {
    let first: u64 = rand::random();
    for seed in (0..ROUNDS).map(|round| first.wrapping_add(round)) {
        let store = db.store();
        for number in 1..=PULLS {
            store
                .pull_close(&pull(number), PullState::Closed, URL, by(), |_| vec![])
                .await
                .unwrap();
            open_pull(store, number).await;
        }
        let history = Arc::<Mutex<History>>::default();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let rng = StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(task as u64));
            tasks.spawn(play(store.clone(), task, rng, Arc::clone(&history)));
        }
        tasks.join_all().await;
        let history = history.lock().unwrap();
        assert!(
            history.is_explained(),
            "no order explains round {seed}:\n{}",
            history.lines.join("\n")
        );
    }
}

/// The test above can fail: the checker rejects a history that the store must never make.
#[test]
fn two_who_are_told_that_they_hold_the_same_lock_are_found_out() {
    let [one, two] = [1, 2].map(|n| LockId::from(uuid::Uuid::from_u128(n)));
    let explains = |told: [(i64, LockId); 2]| {
        let mut history = History::default();
        let calls = told.map(|(pull, _)| history.asks(0, Ask::Take(pull, "a")));
        // The second request begins before the first has an answer.
        for (call, (pull, id)) in calls.into_iter().zip(told) {
            history.hears(0, call, Told::Held(pull, id));
        }
        history.is_explained()
    };
    assert!(
        !explains([(1, one), (2, two)]),
        "both were told that it was theirs"
    );
    let mut history = History::default();
    for (pull, told) in [(1, Told::Held(1, one)), (2, Told::Held(1, one))] {
        let call = history.asks(0, Ask::Take(pull, "a"));
        history.hears(0, call, told);
    }
    assert!(history.is_explained(), "the second was told of the first");
    let call = history.asks(0, Ask::Look("a"));
    history.hears(0, call, Told::Done(false));
    assert!(
        !history.is_explained(),
        "it was there, and had not been given back"
    );
}

impl SequentialSpec for Model {
    type Op = Ask;
    type Ret = Told;

    fn invoke(&mut self, _: &Ask) -> Told {
        unreachable!("identifiers are the store's to choose, so steps are only checked")
    }

    fn is_valid_step(&mut self, ask: &Ask, told: &Told) -> bool {
        self.allows(ask, told)
    }
}

/// Generates random histories. Our checker and stateright's, which has no memory, must agree on them.
#[test]
fn the_checker_agrees_with_stateright() {
    let seed: u64 = rand::random();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut explained = 0;
    for round in 0..1_000 {
        let (mut history, mut reference) = (
            History::default(),
            LinearizabilityTester::new(Model::default()),
        );
        let (mut model, mut left, mut open) = (Model::default(), 8, [const { None }; 3]);
        while left > 0 || open.iter().any(Option::is_some) {
            let task = rng.random_range(0..open.len());
            match open[task].take() {
                Some((call, ask)) => {
                    let told = made_up(&mut model, &ask, &mut rng);
                    reference.on_return(task, told.clone()).unwrap();
                    history.hears(task, call, told);
                }
                None if left > 0 => {
                    let ask = choose(&mut rng, &[]);
                    reference.on_invoke(task, ask.clone()).unwrap();
                    (left, open[task]) = (left - 1, Some((history.asks(task, ask.clone()), ask)));
                }
                None => {}
            }
        }
        let is_explained = history.is_explained();
        assert_eq!(
            is_explained,
            reference.is_consistent(),
            "seed {seed}, round {round}:\n{}",
            history.lines.join("\n")
        );
        explained += u32::from(is_explained);
    }
    assert!(
        (100..900).contains(&explained),
        "{explained} could be explained: too many of one kind (seed {seed})"
    );
}

/// Returns the answer of a sequential execution, or sometimes any other.
fn made_up(model: &mut Model, ask: &Ask, rng: &mut StdRng) -> Told {
    let id = LockId::from(uuid::Uuid::from_u128(1));
    let mut answers = vec![
        Told::Done(true),
        Told::Done(false),
        Told::Ours(id),
        Told::Closed,
    ];
    answers.extend((1..=PULLS).map(|pull| Told::Held(pull, id)));
    answers.extend(
        [vec![], vec!["a"], vec!["b"], vec!["a", "b"]]
            .map(|dirs| Told::Freed(dirs.into_iter().collect())),
    );
    let any = answers[rng.random_range(0..answers.len())].clone();
    if rng.random_range(0..10) == 0 {
        return any;
    }
    let right = answers.into_iter().find_map(|told| {
        let mut after = model.clone();
        after.allows(ask, &told).then_some((told, after))
    });
    right.map_or(any, |(told, after)| {
        *model = after;
        told
    })
}
