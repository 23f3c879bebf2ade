//! What many tasks at once are told about locks is what one after another could have been told, in an order that
//! respects who had ended before whom began (linearizability).
//!
//! Each round is a history of real calls of the store, checked against a model that does one thing at a time. The seed
//! of a round is in the message of its failure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use lockkeeper::model::{LockId, PullNumber, PullState};
use lockkeeper::store::{Store, TakeLock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::samples::{URL, open_pull, project, pull, steal, take};
use crate::support::db::{TestDb, by, store_test};

store_test!(what_tasks_are_told_about_locks_could_have_happened_one_after_another);

const ROUNDS: u64 = 40;
const TASKS: usize = 5;
const STEPS: usize = 6;
const PULLS: i64 = 3;
const DIRS: [&str; 2] = ["a", "b"];

/// What a task asks for.
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

/// What it is told.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    /// The lock is that pull's under this identifier; by a take, it was free before.
    Held(i64, LockId),
    /// The pull that asks had it before.
    Ours(LockId),
    Closed,
    Done(bool),
    Freed(BTreeSet<&'static str>),
}

/// One lock as the model has it.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    pull: i64,
    id: LockId,
    warned: bool,
}

/// Locks as they would be if nobody did anything at the same time.
#[derive(Clone, Debug, Default)]
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
}

impl SequentialSpec for Model {
    type Op = Ask;
    type Ret = Told;

    fn invoke(&mut self, _: &Ask) -> Told {
        unreachable!("identifiers are the store's to choose, so steps are only judged")
    }

    fn is_valid_step(&mut self, ask: &Ask, told: &Told) -> bool {
        match (ask, told) {
            (Ask::Take(pull, _), Told::Closed) => self.closed.contains(pull),
            (Ask::Take(pull, _), _) if self.closed.contains(pull) => false,
            (Ask::Take(pull, dir), Told::Held(holder, id)) => match self.locks.get(dir) {
                None => {
                    holder == pull && self.locks.insert(dir, Held { pull: *pull, id: *id, warned: false }).is_none()
                }
                Some(held) => held.pull != *pull && (held.pull, held.id) == (*holder, *id),
            },
            (Ask::Take(pull, dir), Told::Ours(id)) => {
                self.locks.get(dir).is_some_and(|held| held.pull == *pull && held.id == *id)
            }
            (Ask::Look(dir), Told::Held(holder, id)) => {
                self.locks.get(dir).is_some_and(|held| held.pull == *holder && held.id == *id)
            }
            (Ask::Look(dir), Told::Done(false)) => !self.locks.contains_key(dir),
            (Ask::Release(pull, dir), Told::Done(done)) => {
                let ours = self.locks.get(dir).is_some_and(|held| held.pull == *pull);
                ours == *done && (!ours || self.locks.remove(dir).is_some())
            }
            (Ask::Steal(id), Told::Done(done)) => self.free(|held| held.id == *id) == *done,
            (Ask::Expire(id), Told::Done(done)) => self.free(|held| held.id == *id && held.warned) == *done,
            (Ask::Warn(id), Told::Done(done)) => {
                let unwarned = self.locks.values_mut().find(|held| held.id == *id && !held.warned);
                unwarned.map(|held| held.warned = true).is_some() == *done
            }
            (Ask::Close(pull), Told::Freed(dirs)) => {
                let held = self.locks.iter().filter(|(_, held)| held.pull == *pull).map(|(dir, _)| *dir).collect();
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

/// Does it on the real thing.
async fn answer(store: &Store, ask: &Ask) -> Told {
    match *ask {
        Ask::Take(number, dir) => match take(store, &pull(number), &project(dir)).await {
            TakeLock::Taken(lock) | TakeLock::HeldBy(lock) => Told::Held(lock.pull.number.0, lock.id),
            TakeLock::AlreadyOurs(lock) => Told::Ours(lock.id),
            TakeLock::PullClosed => Told::Closed,
        },
        Ask::Release(number, dir) => Told::Done(store.lock_release(&pull(number), &project(dir), by()).await.unwrap()),
        Ask::Look(dir) => {
            let key = lockkeeper::model::LockKey::of(&pull(1).repo, &project(dir));
            let holder = store.lock_holder(&key).await.unwrap();
            holder.map_or(Told::Done(false), |lock| Told::Held(lock.pull.number.0, lock.id))
        }
        Ask::Steal(id) => Told::Done(steal(store, id).await.is_some()),
        Ask::Warn(id) => {
            let Some(seen) = store.lock_get(id).await.unwrap() else { return Told::Done(false) };
            let warned = store.lock_warn(&seen.pull, std::slice::from_ref(&seen), by(), |_| vec![]).await.unwrap();
            Told::Done(!warned.is_empty())
        }
        Ask::Expire(id) => {
            let Some(seen) = store.lock_get(id).await.unwrap() else { return Told::Done(false) };
            let expired = store.lock_expire(&seen.pull, std::slice::from_ref(&seen), by(), |_| vec![]).await.unwrap();
            Told::Done(!expired.is_empty())
        }
        Ask::Close(number) => {
            let mut dirs = BTreeSet::new();
            let note = |freed: &[lockkeeper::model::Lock]| {
                dirs = freed
                    .iter()
                    .filter_map(|lock| DIRS.into_iter().find(|dir| lock.key.dir.to_string() == *dir))
                    .collect();
                vec![]
            };
            store.pull_close(&pull(number), PullState::Closed, URL, by(), note).await.unwrap();
            Told::Freed(dirs)
        }
        Ask::Reopen(number) => {
            store.pull_seen(&pull(number), PullState::Open, URL).await.unwrap();
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

type History = Arc<Mutex<(LinearizabilityTester<usize, Model>, Vec<String>)>>;

async fn play(store: Store, task: usize, mut rng: StdRng, history: History) {
    let mut known = Vec::new();
    for _ in 0..STEPS {
        let ask = choose(&mut rng, &known);
        note(&history, format!("{task} asks {ask:?}"), |tester| tester.on_invoke(task, ask.clone()).map(drop));
        let told = answer(&store, &ask).await;
        if let Told::Held(_, id) | Told::Ours(id) = told {
            known.push(id);
        }
        note(&history, format!("{task} hears {told:?}"), |tester| tester.on_return(task, told.clone()).map(drop));
    }
}

fn note(
    history: &History,
    line: String,
    record: impl FnOnce(&mut LinearizabilityTester<usize, Model>) -> Result<(), String>,
) {
    let mut history = history.lock().unwrap();
    record(&mut history.0).unwrap();
    history.1.push(line);
}

async fn what_tasks_are_told_about_locks_could_have_happened_one_after_another(db: &TestDb) {
    let first: u64 = rand::random();
    for seed in (0..ROUNDS).map(|round| first.wrapping_add(round)) {
        let store = db.store();
        for number in 1..=PULLS {
            store.pull_close(&pull(number), PullState::Closed, URL, by(), |_| vec![]).await.unwrap();
            open_pull(store, number).await;
        }
        let history = Arc::new(Mutex::new((LinearizabilityTester::new(Model::default()), Vec::new())));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let rng = StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(task as u64));
            tasks.spawn(play(store.clone(), task, rng, Arc::clone(&history)));
        }
        tasks.join_all().await;
        let history = history.lock().unwrap();
        assert!(history.0.is_consistent(), "no order explains round {seed}:\n{}", history.1.join("\n"));
    }
}

/// A history as the store must never make it is found out, so that the test above can fail.
#[test]
fn two_who_are_told_that_they_hold_the_same_lock_are_found_out() {
    let [one, two] = [1, 2].map(|n| LockId::from(uuid::Uuid::from_u128(n)));
    let judge = |told: [(i64, Told); 2]| {
        let mut tester = LinearizabilityTester::new(Model::default());
        for (pull, _) in &told {
            tester.on_invoke(PullNumber(*pull).0, Ask::Take(*pull, "a")).unwrap();
        }
        for (pull, told) in told {
            tester.on_return(PullNumber(pull).0, told).unwrap();
        }
        tester.is_consistent()
    };
    assert!(judge([(1, Told::Held(1, one)), (2, Told::Held(1, one))]), "the second was told of the first");
    assert!(judge([(1, Told::Held(2, two)), (2, Told::Held(2, two))]), "or the other way round");
    assert!(!judge([(1, Told::Held(1, one)), (2, Told::Held(2, two))]), "both were told that it was theirs");
    assert!(!judge([(1, Told::Held(2, two)), (2, Told::Held(1, one))]), "each was told of the other");
}
