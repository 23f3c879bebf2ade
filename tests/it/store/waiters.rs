//! Tests of queues for locks: first come, first served, and no pull request waits without need.

use std::collections::BTreeSet;

use futures::future::join_all;
use lockkeeper::locks::{LockRequest, NotQueued, QueuedPlan, TakeAll, TakeOutcome, take_all};
use lockkeeper::model::{CommandKind, LockKey, PlanState, ProjectKey, PullRef, PullState};
use lockkeeper::store::{ApplyGate, NewJob, Store, TAKE_TURN};

use super::samples::{
    URL, begin_apply, job, named, new_command, open_pull, plan_state, planned, project, pull, taken,
};
use crate::support::db::{TestDb, by, store_test};

store_test!(
    a_pull_takes_what_it_can_and_waits_for_the_rest,
    a_freed_lock_goes_to_the_first_in_the_queue_with_a_job_for_it,
    whoever_asks_again_keeps_the_place,
    unlocking_and_closing_leave_every_line,
    a_new_search_leaves_the_lines_of_projects_that_are_gone,
    the_newest_pull_gives_way_where_two_would_wait_for_each_other,
    whoever_has_applied_does_not_give_way_and_is_not_lined_up,
    turns_become_one_command,
    projects_with_locks_of_their_own_wait_each_for_its_own,
    a_lock_of_the_whole_directory_makes_way_for_several_projects,
    many_pulls_that_want_many_locks_all_get_them,
);

fn request(key: LockKey, project: &ProjectKey) -> LockRequest {
    LockRequest {
        key,
        ask: QueuedPlan {
            project: project.clone(),
            extra_args: vec!["-lock=false".to_owned()],
        },
    }
}

pub async fn want(store: &Store, pull: &PullRef, dirs: &[&str]) -> TakeAll {
    let requests: Vec<LockRequest> = dirs
        .iter()
        .map(|dir| request(LockKey::of(&pull.repo, &project(dir)), &project(dir)))
        .collect();
    take_all(store, pull, URL, &requests, by(), true)
        .await
        .unwrap()
}

/// Returns `held`, or the holder and the position in the queue.
fn told(all: &TakeAll, dir: &str) -> String {
    match &all.took[&project(dir)] {
        TakeOutcome::Held(_) => "held".to_owned(),
        TakeOutcome::Queued { holder, place } => format!("#{} then {place}", holder.pull.subject),
        TakeOutcome::Refused { holder, why } => format!("#{} {why:?}", holder.pull.subject),
        TakeOutcome::PullClosed => "closed".to_owned(),
    }
}

pub async fn holders(store: &Store) -> Vec<String> {
    let mut locks: Vec<String> = store
        .lock_list()
        .await
        .unwrap()
        .iter()
        .map(|lock| format!("{} #{}", lock.project.dir, lock.pull.subject))
        .collect();
    locks.sort();
    locks
}

pub async fn line(store: &Store, dir: &str) -> Vec<i64> {
    let key = LockKey::of(&pull(1).repo, &project(dir));
    store
        .waiter_list(&key)
        .await
        .unwrap()
        .into_iter()
        .map(|waiter| waiter.pull.subject.stored())
        .collect()
}

async fn a_pull_takes_what_it_can_and_waits_for_the_rest(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    taken(store, &one, &project("a")).await;
    let all = want(store, &two, &["a", "b"]).await;
    assert_eq!(
        (told(&all, "a"), told(&all, "b")),
        ("#1 then 1".to_owned(), "held".to_owned())
    );
    let three = open_pull(store, 3).await;
    assert_eq!(told(&want(store, &three, &["a"]).await, "a"), "#1 then 2");
    let requests = [request(
        LockKey::of(&one.repo, &project("b")),
        &project("b"),
    )];
    let off = take_all(store, &three, URL, &requests, by(), false)
        .await
        .unwrap();
    assert!(matches!(
        off.took[&project("b")],
        TakeOutcome::Refused {
            why: NotQueued::Off,
            ..
        }
    ));
    assert_eq!(line(store, "a").await, [2, 3]);
    let waiting = store.waiter_list_of_pull(&two).await.unwrap().remove(0);
    assert_eq!(
        (
            waiting.project,
            waiting.asker.login,
            waiting.pull_url.as_str()
        ),
        (project("a"), "ada".to_owned(), URL)
    );
    assert_eq!(store.held().await.unwrap().waiters, 2);
    assert_eq!(
        told(&want(store, &pull(9), &["a"]).await, "a"),
        "closed",
        "a pull that is not open does not wait"
    );
}

async fn a_freed_lock_goes_to_the_first_in_the_queue_with_a_job_for_it(db: &TestDb) {
    let store = db.store();
    let (one, two, three) = (
        open_pull(store, 1).await,
        open_pull(store, 2).await,
        open_pull(store, 3).await,
    );
    taken(store, &one, &project("a")).await;
    want(store, &two, &["a"]).await;
    want(store, &three, &["a"]).await;
    assert_eq!(store.lock_release_all(&one, by()).await.unwrap().len(), 1);
    let lock = store.lock_list().await.unwrap().remove(0);
    assert_eq!(
        (&lock.pull, lock.holder.login.as_str(), lock.reason.as_str()),
        (&two, "ada", "next in the queue after pull request 1")
    );
    assert_eq!(line(store, "a").await, [3]);
    let jobs = store.job_list_open().await.unwrap();
    assert_eq!(
        jobs.iter().map(|job| job.kind.as_str()).collect::<Vec<_>>(),
        [TAKE_TURN]
    );
    store.plan_drop(&two, &project("a"), by()).await.unwrap();
    assert_eq!(holders(store).await, ["a #3"]);
    store
        .pull_close(&three, PullState::Closed, URL, by(), |_| vec![])
        .await
        .unwrap();
    assert_eq!(holders(store).await, [""; 0]);
    let events = store.lock_event_list(100).await.unwrap();
    let events: Vec<&str> = events
        .iter()
        .rev()
        .map(|kept| kept.event.kind.as_str())
        .collect();
    assert_eq!(
        events,
        [
            "taken", "queued", "queued", "released", "taken", "released", "taken", "released"
        ],
        "everything is told"
    );
}

async fn whoever_asks_again_keeps_the_place(db: &TestDb) {
    let store = db.store();
    let (one, two, three) = (
        open_pull(store, 1).await,
        open_pull(store, 2).await,
        open_pull(store, 3).await,
    );
    taken(store, &one, &project("a")).await;
    want(store, &two, &["a"]).await;
    want(store, &three, &["a"]).await;
    assert_eq!(told(&want(store, &two, &["a"]).await, "a"), "#1 then 1");
    assert_eq!(line(store, "a").await, [2, 3]);
}

async fn unlocking_and_closing_leave_every_line(db: &TestDb) {
    let store = db.store();
    let (one, two, three) = (
        open_pull(store, 1).await,
        open_pull(store, 2).await,
        open_pull(store, 3).await,
    );
    for dir in ["a", "b"] {
        taken(store, &one, &project(dir)).await;
        want(store, &two, &[dir]).await;
        want(store, &three, &[dir]).await;
    }
    assert_eq!(store.lock_release_all(&two, by()).await.unwrap(), []);
    assert_eq!(
        (line(store, "a").await, line(store, "b").await),
        (vec![3], vec![3])
    );
    store
        .pull_close(&three, PullState::Merged, URL, by(), |_| vec![])
        .await
        .unwrap();
    assert_eq!(store.held().await.unwrap().waiters, 0);
    store.lock_release_all(&one, by()).await.unwrap();
    assert_eq!(
        store.lock_list().await.unwrap(),
        [],
        "nobody was left to hand them to"
    );
}

async fn a_new_search_leaves_the_lines_of_projects_that_are_gone(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    for dir in ["a", "b"] {
        taken(store, &one, &project(dir)).await;
    }
    want(store, &two, &["a", "b"]).await;
    store
        .plan_keep_only(&two, &[project("b")], by())
        .await
        .unwrap();
    assert_eq!(
        (line(store, "a").await, line(store, "b").await),
        (vec![], vec![2])
    );
}

async fn the_newest_pull_gives_way_where_two_would_wait_for_each_other(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    taken(store, &one, &project("a")).await;
    let plan = planned(db, &two, &project("b")).await;
    assert_eq!(told(&want(store, &one, &["b"]).await, "b"), "#2 then 1");
    let all = want(store, &two, &["a", "b"]).await;
    assert_eq!(
        (told(&all, "a"), told(&all, "b")),
        ("#1 then 1".to_owned(), "#1 then 1".to_owned())
    );
    assert_eq!(
        all.gave_way
            .iter()
            .map(|lock| &lock.project)
            .collect::<Vec<_>>(),
        [&project("b")]
    );
    assert_eq!(plan_state(db, &plan).await, PlanState::Discarded);
    assert_eq!(holders(store).await, ["a #1", "b #1"]);
    store.lock_release_all(&one, by()).await.unwrap();
    assert_eq!(holders(store).await, ["a #2", "b #2"]);
}

async fn whoever_has_applied_does_not_give_way_and_is_not_lined_up(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    taken(store, &one, &project("a")).await;
    let plan = planned(db, &two, &project("b")).await;
    let ApplyGate::Granted(grant) = begin_apply(store, &plan).await else {
        panic!("nothing stops this apply")
    };
    store
        .apply_end(grant, &two, PlanState::Applied, by())
        .await
        .unwrap();
    want(store, &one, &["b"]).await;
    let all = want(store, &two, &["a"]).await;
    assert_eq!(told(&all, "a"), "#1 Circle([Pull(PullNumber(1))])");
    assert_eq!(
        (line(store, "a").await, line(store, "b").await),
        (vec![], vec![1])
    );
    assert_eq!(holders(store).await, ["a #1", "b #2"]);
}

async fn turns_become_one_command(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    for dir in ["a", "b"] {
        taken(store, &one, &project(dir)).await;
    }
    want(store, &two, &["a", "b"]).await;
    store.lock_release_all(&one, by()).await.unwrap();
    let mut seen = Vec::new();
    let make = |turns: Vec<(lockkeeper::model::Lock, String)>| {
        seen = turns
            .iter()
            .map(|(lock, asks)| (lock.project.clone(), asks.clone()))
            .collect();
        Some(new_command(CommandKind::Autoplan, &two))
    };
    let job = |id| NewJob {
        lane: format!("command {id}"),
        ..job("x")
    };
    assert!(
        store
            .command_create_for_turn(&two, make, job)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        seen.iter()
            .map(|(project, _)| project.clone())
            .collect::<Vec<_>>(),
        [project("a"), project("b")]
    );
    let asks = lockkeeper::locks::read_queued_plans(&seen[0].1).unwrap();
    assert_eq!(asks[0].extra_args, ["-lock=false"]);
    let none = |turns: Vec<_>| {
        turns
            .first()
            .map(|_| new_command(CommandKind::Autoplan, &two))
    };
    assert_eq!(
        store
            .command_create_for_turn(&two, none, job)
            .await
            .unwrap(),
        None,
        "a turn is taken once"
    );
}

async fn projects_with_locks_of_their_own_wait_each_for_its_own(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let own = |name: &str| {
        let project = named("a", name);
        request(LockKey::of_project(&one.repo, &project), &project)
    };
    let both = take_all(store, &one, URL, &[own("x"), own("y")], by(), true)
        .await
        .unwrap();
    assert!(
        both.took
            .values()
            .all(|took| matches!(took, TakeOutcome::Held(_))),
        "{both:?}"
    );
    let second = take_all(store, &two, URL, &[own("y"), own("z")], by(), true)
        .await
        .unwrap();
    assert!(matches!(
        second.took[&named("a", "z")],
        TakeOutcome::Held(_)
    ));
    assert!(matches!(
        second.took[&named("a", "y")],
        TakeOutcome::Queued { place: 1, .. }
    ));
    store.plan_drop(&one, &named("a", "x"), by()).await.unwrap();
    assert_eq!(
        store.lock_list_of_pull(&two).await.unwrap().len(),
        1,
        "the lock of x is not the one of y"
    );
    store.plan_drop(&one, &named("a", "y"), by()).await.unwrap();
    assert_eq!(store.lock_list_of_pull(&two).await.unwrap().len(), 2);
}

async fn a_lock_of_the_whole_directory_makes_way_for_several_projects(db: &TestDb) {
    let store = db.store();
    let (one, two, three) = (
        open_pull(store, 1).await,
        open_pull(store, 2).await,
        open_pull(store, 3).await,
    );
    taken(store, &one, &project("a")).await;
    for (pull, name) in [(&two, "x"), (&three, "y")] {
        let wanted = named("a", name);
        let requests = [request(LockKey::of_project(&one.repo, &wanted), &wanted)];
        let all = take_all(store, pull, URL, &requests, by(), true)
            .await
            .unwrap();
        assert!(
            matches!(&all.took[&wanted], TakeOutcome::Queued { holder, place: 1 } if holder.pull == one),
            "{all:?}"
        );
    }
    store.lock_release_all(&one, by()).await.unwrap();
    assert_eq!(store.lock_list().await.unwrap().len(), 2);
    assert_eq!(
        told(&want(store, &one, &["a"]).await, "a")
            .split(' ')
            .next_back(),
        Some("1")
    );
}

async fn many_pulls_that_want_many_locks_all_get_them(db: &TestDb) {
    const PULLS: i64 = 12;
    let dirs = ["a", "b", "c", "d"];
    let mut open: BTreeSet<i64> = (1..=PULLS).collect();
    let ask_all = (1..=PULLS).map(|number| {
        let dirs = if number % 2 == 0 {
            dirs.to_vec()
        } else {
            dirs.iter().rev().copied().collect()
        };
        async move {
            let store = db.reopen().await;
            let pull = open_pull(&store, number).await;
            want(&store, &pull, &dirs).await;
        }
    });
    join_all(ask_all).await;
    while !open.is_empty() {
        let held = db.store().lock_list().await.unwrap();
        let ready = open.iter().copied().find(|number| {
            held.iter()
                .filter(|lock| lock.pull.subject.stored() == *number)
                .count()
                == 4
        });
        let ready = ready.unwrap_or_else(|| panic!("everybody waits: {held:?}"));
        db.store()
            .pull_close(&pull(ready), PullState::Merged, URL, by(), |_| vec![])
            .await
            .unwrap();
        open.remove(&ready);
    }
    assert_eq!(db.store().lock_list().await.unwrap(), []);
    assert_eq!(db.store().held().await.unwrap().waiters, 0);
}
