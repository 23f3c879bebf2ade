//! Tests of project locks: one holder (P4), and none for a closed pull request (P7).

use std::slice;
use std::sync::Arc;

use futures::future::join_all;
use lockkeeper::model::{
    Actor, Cause, Lock, LockId, LockKey, Person, PlanState, ProjectKey, PullRef, PullState,
};
use lockkeeper::store::{ApplyGate, LockAttempt, Store, TakeLock};
use tokio::sync::Barrier;

use super::samples::{
    HOSTILE, URL, begin_apply, named, open_pull, plan_state, planned, project, pull, steal, take,
    taken,
};
use crate::support::db::{Backend, TestDb, by, large_races, start_of_time, store_test};

store_test!(
    a_free_lock_is_taken_and_can_be_read_back_in_every_way,
    the_same_pull_has_its_lock_already,
    a_lock_of_another_scope_is_not_the_one_that_is_taken,
    another_pull_is_told_who_holds_the_lock,
    other_paths_workspaces_and_hosts_are_other_locks,
    a_pull_that_is_closed_or_unknown_takes_no_lock,
    a_closed_pull_is_refused_even_the_lock_that_it_still_holds,
    a_released_lock_is_free_for_the_next,
    only_the_holder_releases,
    release_all_frees_only_the_locks_of_that_pull_and_discards_its_plans,
    release_spares_a_lock_under_which_an_apply_is_running,
    a_discarded_lock_takes_its_plans_with_it,
    a_lock_that_is_gone_cannot_be_discarded,
    locks_are_listed_newest_first_and_those_of_a_pull_by_path,
    locks_are_read_in_parts_and_counted_up_to_a_limit,
    sixty_four_tasks_that_race_for_one_lock_see_exactly_one_winner,
    close_meets_take_and_no_lock_is_left,
    release_meets_take_and_somebody_holds_the_lock,
);

fn key(project: &ProjectKey) -> LockKey {
    LockKey::of(&pull(1).repo, project)
}

async fn a_free_lock_is_taken_and_can_be_read_back_in_every_way(db: &TestDb) {
    let (store, one, net) = (
        db.store(),
        open_pull(db.store(), 1).await,
        named("net", "net~1"),
    );
    let hostile = Cause::new(Actor::commenter(HOSTILE), HOSTILE);
    let attempt = LockAttempt {
        key: &key(&net),
        project: &net,
        pull: &one,
        pull_url: HOSTILE,
        cause: &hostile,
    };
    let outcome = store.lock_take(&attempt).await.unwrap();
    let lock = Lock {
        id: "00000000-0000-7000-8000-000000000001".parse().unwrap(),
        key: key(&net),
        project: net,
        pull: one.clone(),
        title: None,
        pull_url: HOSTILE.to_owned(),
        holder: Person::of_login(HOSTILE),
        reason: HOSTILE.to_owned(),
        taken_at: start_of_time(),
        active_at: start_of_time(),
    };
    assert_eq!(outcome, TakeLock::Taken(lock.clone()));
    assert_eq!(store.lock_get(lock.id).await.unwrap().as_ref(), Some(&lock));
    assert_eq!(
        store.lock_holder(&lock.key).await.unwrap().as_ref(),
        Some(&lock)
    );
    assert_eq!(store.lock_list().await.unwrap(), slice::from_ref(&lock));
    assert_eq!(
        store.lock_list_of_pull(&one).await.unwrap(),
        slice::from_ref(&lock)
    );
    assert_eq!(db.reopen().await.lock_list().await.unwrap(), [lock]);
}

async fn the_same_pull_has_its_lock_already(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let lock = taken(db.store(), &one, &named("net", "a")).await;
    assert_eq!(
        take(db.store(), &one, &named("net", "b")).await,
        TakeLock::AlreadyOurs(lock)
    );
}

/// The scope of locks can be changed while pulls hold some.
async fn a_lock_of_another_scope_is_not_the_one_that_is_taken(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let net = named("net", "a");
    for key in [LockKey::of_project(&one.repo, &net), key(&net)] {
        let attempt = LockAttempt {
            key: &key,
            project: &net,
            pull: &one,
            pull_url: URL,
            cause: by(),
        };
        let TakeLock::Taken(lock) = db.store().lock_take(&attempt).await.unwrap() else {
            panic!("it is another lock");
        };
        assert_eq!(lock.key, key);
    }
}

async fn another_pull_is_told_who_holds_the_lock(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let lock = taken(db.store(), &one, &project("net")).await;
    assert_eq!(
        take(&db.reopen().await, &two, &project("net")).await,
        TakeLock::HeldBy(lock)
    );
    assert_eq!(db.store().lock_list_of_pull(&two).await.unwrap(), []);
}

async fn other_paths_workspaces_and_hosts_are_other_locks(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let elsewhere = PullRef {
        repo: "gitlab.com/acme/infra".parse().unwrap(),
        ..one.clone()
    };
    db.store()
        .pull_seen(&elsewhere, PullState::Open, URL)
        .await
        .unwrap();
    let staging = ProjectKey {
        workspace: "staging".parse().unwrap(),
        ..project("net")
    };
    for (pull, project) in [
        (&one, project("net")),
        (&one, project(".")),
        (&one, project("Net")),
        (&one, staging),
        (&elsewhere, project("net")),
    ] {
        taken(db.store(), pull, &project).await;
    }
}

async fn a_pull_that_is_closed_or_unknown_takes_no_lock(db: &TestDb) {
    assert_eq!(
        take(db.store(), &pull(1), &project("net")).await,
        TakeLock::PullClosed
    );
    for state in [PullState::Closed, PullState::Merged] {
        db.store().pull_seen(&pull(1), state, URL).await.unwrap();
        assert_eq!(
            take(db.store(), &pull(1), &project("net")).await,
            TakeLock::PullClosed
        );
    }
    assert_eq!(db.store().lock_list().await.unwrap(), []);
}

async fn a_closed_pull_is_refused_even_the_lock_that_it_still_holds(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("net")).await;
    assert!(matches!(
        begin_apply(db.store(), &plan).await,
        ApplyGate::Granted(_)
    ));
    assert_eq!(
        db.store()
            .pull_close(&one, PullState::Merged, URL, by(), |_| vec![])
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        take(db.store(), &one, &project("net")).await,
        TakeLock::PullClosed
    );
}

async fn a_released_lock_is_free_for_the_next(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let first = taken(db.store(), &one, &project("net")).await;
    assert!(
        db.store()
            .lock_release(&one, &project("net"), by())
            .await
            .unwrap()
    );
    assert_eq!(db.store().lock_holder(&first.key).await.unwrap(), None);
    assert_eq!(db.store().lock_get(first.id).await.unwrap(), None);
    assert_ne!(taken(db.store(), &two, &project("net")).await.id, first.id);
}

async fn only_the_holder_releases(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let lock = taken(db.store(), &one, &project("net")).await;
    assert!(
        !db.store()
            .lock_release(&two, &project("net"), by())
            .await
            .unwrap()
    );
    assert!(
        !db.store()
            .lock_release(&one, &project("other"), by())
            .await
            .unwrap()
    );
    assert_eq!(db.store().lock_release_all(&two, by()).await.unwrap(), []);
    assert_eq!(db.store().lock_list().await.unwrap(), [lock]);
}

async fn release_all_frees_only_the_locks_of_that_pull_and_discards_its_plans(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let (b, a) = (
        planned(db, &one, &project("b")).await,
        planned(db, &one, &project("a")).await,
    );
    let other = planned(db, &two, &project("c")).await;
    let freed = db.store().lock_release_all(&one, by()).await.unwrap();
    assert_eq!(
        freed
            .into_iter()
            .map(|lock| lock.project)
            .collect::<Vec<_>>(),
        [project("a"), project("b")]
    );
    assert_eq!(plan_state(db, &a).await, PlanState::Discarded);
    assert_eq!(plan_state(db, &b).await, PlanState::Discarded);
    assert_eq!(plan_state(db, &other).await, PlanState::Planned);
    assert_eq!(db.store().lock_list().await.unwrap().len(), 1);
}

async fn release_spares_a_lock_under_which_an_apply_is_running(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let running = planned(db, &one, &project("net")).await;
    taken(store, &one, &project("free")).await;
    let ApplyGate::Granted(grant) = begin_apply(store, &running).await else {
        panic!("nothing stops this apply")
    };
    assert!(
        !store
            .lock_release(&one, &project("net"), by())
            .await
            .unwrap()
    );
    assert_eq!(steal(store, grant.lock.as_ref().unwrap().id).await, None);
    let freed = store.lock_release_all(&one, by()).await.unwrap();
    assert_eq!(
        freed
            .into_iter()
            .map(|lock| lock.project)
            .collect::<Vec<_>>(),
        [project("free")]
    );
    assert_eq!(
        store.lock_list().await.unwrap(),
        slice::from_ref(grant.lock.as_ref().unwrap())
    );
    assert_eq!(plan_state(db, &running).await, PlanState::Applying);
    store
        .apply_end(grant, &one, PlanState::Applied, by())
        .await
        .unwrap();
    assert_eq!(store.lock_release_all(&one, by()).await.unwrap().len(), 1);
}

async fn a_discarded_lock_takes_its_plans_with_it(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let (a, b) = (
        planned(db, &one, &named("net", "a")).await,
        planned(db, &one, &named("net", "b")).await,
    );
    let other = planned(db, &one, &project("other")).await;
    let lock = db
        .store()
        .lock_holder(&key(&project("net")))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(steal(db.store(), lock.id).await, Some(lock));
    let states = [
        plan_state(db, &a).await,
        plan_state(db, &b).await,
        plan_state(db, &other).await,
    ];
    assert_eq!(
        states,
        [
            PlanState::Discarded,
            PlanState::Discarded,
            PlanState::Planned
        ]
    );
}

async fn a_lock_that_is_gone_cannot_be_discarded(db: &TestDb) {
    assert_eq!(steal(db.store(), LockId::next(&*db.ids)).await, None);
}

/// Upper case sorts before lower case, and `-` before `/`, regardless of the locale of the database.
async fn locks_are_listed_newest_first_and_those_of_a_pull_by_path(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    for dir in ["b/c", "a", "b-c", "B", "é"] {
        db.clock.advance(std::time::Duration::from_micros(1));
        taken(db.store(), &one, &project(dir)).await;
    }
    let dirs = |locks: Vec<Lock>| {
        locks
            .into_iter()
            .map(|lock| lock.key.dir.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        dirs(db.store().lock_list().await.unwrap()),
        ["é", "B", "b-c", "a", "b/c"]
    );
    assert_eq!(
        dirs(db.store().lock_list_of_pull(&one).await.unwrap()),
        ["B", "a", "b-c", "b/c", "é"]
    );
    assert_eq!(
        dirs(db.store().lock_release_all(&one, by()).await.unwrap()),
        ["B", "a", "b-c", "b/c", "é"]
    );
}

const RACERS: i64 = 64;
/// Number of groups of racers that run side by side, each with its share of the rounds. One group alone would leave
/// the database idle while its last racer is running.
const GROUPS: usize = 4;

async fn locks_are_read_in_parts_and_counted_up_to_a_limit(db: &TestDb) {
    let store = db.store();
    let one = open_pull(store, 1).await;
    let mut newest_first = Vec::new();
    // Pairs are taken at the same time, so that only their identifiers order them.
    for n in 0..6 {
        newest_first.insert(0, taken(store, &one, &project(&format!("p{n}"))).await.id);
        if n % 2 == 1 {
            db.clock.advance(std::time::Duration::from_micros(1));
        }
    }
    let (ours, other) = (
        [one.repo.clone()],
        ["github.com/acme/other".parse().unwrap()],
    );
    for repos in [None, Some(ours.as_slice())] {
        let mut read: Vec<Lock> = Vec::new();
        loop {
            let part = store.lock_part(repos, read.last(), 1).await.unwrap();
            if part.is_empty() {
                break;
            }
            read.extend(part);
        }
        let ids: Vec<LockId> = read.iter().map(|lock| lock.id).collect();
        assert_eq!(ids, newest_first);
        let part = store.lock_part(repos, Some(&read[3]), 9).await.unwrap();
        assert_eq!(part, read[4..]);
        assert_eq!(store.lock_count(repos, 100).await.unwrap(), 6);
        assert_eq!(store.lock_count(repos, 4).await.unwrap(), 4);
    }
    assert_eq!(store.lock_part(Some(&other), None, 9).await.unwrap(), []);
    assert_eq!(store.lock_count(Some(&other), 9).await.unwrap(), 0);
    assert_eq!(store.lock_count(Some(&[]), 9).await.unwrap(), 0);
}

async fn sixty_four_tasks_that_race_for_one_lock_see_exactly_one_winner(db: &TestDb) {
    for number in 1..=RACERS {
        open_pull(db.store(), number).await;
    }
    let stores = [db.store().clone(), second_replica(db).await];
    let rounds = large_races(db.backend) / GROUPS;
    join_all((0..GROUPS).map(|group| race(&stores, group, rounds))).await;
    assert_eq!(db.store().lock_list().await.unwrap().len(), rounds * GROUPS);
}

/// Opens a second replica on PostgreSQL. SQLite serves one process, so there it is the same store.
async fn second_replica(db: &TestDb) -> Store {
    match db.backend {
        Backend::Sqlite => db.store().clone(),
        Backend::Postgres => db.reopen().await,
    }
}

/// Starts all racers of a round together. Every one of them must name the same winner.
async fn race(stores: &[Store; 2], group: usize, rounds: usize) {
    let start = Arc::new(Barrier::new(usize::try_from(RACERS).unwrap()));
    let racers = (1..=RACERS).map(|number| {
        let (store, start) = (
            stores[usize::try_from(number % 2).unwrap()].clone(),
            start.clone(),
        );
        tokio::spawn(async move {
            let mut winners = Vec::new();
            for round in 0..rounds {
                start.wait().await;
                winners.push(
                    winner(&store, &pull(number), &project(&format!("{group}/{round}"))).await,
                );
            }
            winners
        })
    });
    let seen: Vec<_> = join_all(racers)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    for round in 0..rounds {
        let winners: Vec<_> = seen.iter().map(|winners| &winners[round]).collect();
        assert_eq!(
            winners.iter().filter(|(won, _)| *won).count(),
            1,
            "group {group}, round {round}"
        );
        assert!(
            winners.iter().all(|(_, id)| *id == winners[0].1),
            "group {group}, round {round}: {winners:?}"
        );
    }
}

/// Takes the lock. Returns whether this pull request won, and the lock that it saw.
async fn winner(store: &Store, pull: &PullRef, project: &ProjectKey) -> (bool, LockId) {
    match take(store, pull, project).await {
        TakeLock::Taken(lock) => (true, lock.id),
        TakeLock::HeldBy(lock) => (false, lock.id),
        other @ (TakeLock::AlreadyOurs(_) | TakeLock::PullClosed) => panic!("{other:?}"),
    }
}

async fn close_meets_take_and_no_lock_is_left(db: &TestDb) {
    let other = second_replica(db).await;
    let rounds = (1..=200).map(|number| {
        let other = &other;
        async move {
            let (pull, net) = (
                open_pull(db.store(), number).await,
                project(&number.to_string()),
            );
            let take_one = take(db.store(), &pull, &net);
            let take_two = take(other, &pull, &net);
            let (_, closed, _) = tokio::join!(
                take_one,
                other.pull_close(&pull, PullState::Closed, URL, by(), |_| vec![]),
                take_two
            );
            closed.unwrap();
        }
    });
    join_all(rounds).await;
    assert_eq!(db.store().lock_list().await.unwrap(), []);
}

async fn release_meets_take_and_somebody_holds_the_lock(db: &TestDb) {
    let other = second_replica(db).await;
    for number in 1..=100 {
        let (one, two) = (
            open_pull(db.store(), 2 * number).await,
            open_pull(db.store(), 2 * number + 1).await,
        );
        let net = project(&number.to_string());
        taken(db.store(), &one, &net).await;
        let (released, outcome) = tokio::join!(
            db.store().lock_release(&one, &net, by()),
            take(&other, &two, &net)
        );
        assert!(released.unwrap());
        let holder = db.store().lock_holder(&key(&net)).await.unwrap();
        match outcome {
            TakeLock::Taken(lock) => assert_eq!(holder, Some(lock)),
            TakeLock::HeldBy(lock) => assert_eq!((lock.pull, holder), (one, None)),
            other @ (TakeLock::AlreadyOurs(_) | TakeLock::PullClosed) => panic!("{other:?}"),
        }
    }
}
