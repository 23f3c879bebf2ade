//! Tests of locks that people release or hand over: what prevents it, who gets them, and that one of many wins.

use futures::future::join_all;
use lockkeeper::locks::{
    AuditVerdict, HandOver, HandOverOutcome, HandedOver, KeptReason, KnownLogState, hand_over,
    verify,
};
use lockkeeper::model::{
    Actor, CommandKind, Lock, LockEventKind, LockId, LockKey, LockUse, Origin, PlanState,
    ProjectOutcome, PullRef, Reason, RunId, RunKind, Subject,
};
use lockkeeper::store::{ApplyGate, NewRun, PlanParts, StopKind, Store, TAKE_TURN};

use super::samples::{
    begin_apply, command, job, named, new_plan, open_pull, plan_state, planned, project, run, taken,
};
use super::waiters::{holders, line, want};
use crate::support::db::{TestDb, by, seal_log, store_test};

store_test!(
    a_lock_is_released_to_the_first_in_the_queue_or_to_nobody,
    a_lock_under_which_a_plan_is_made_is_released_by_force_only,
    a_plan_that_took_the_lock_and_has_not_come_to_it_is_at_work,
    a_lock_under_which_something_was_applied_is_released_by_force_only,
    a_lock_under_which_an_apply_runs_is_not_even_taken_by_force,
    an_apply_that_waits_finds_its_plan_gone,
    a_lock_is_handed_to_any_queued_pull_request,
    what_forbids_a_release_forbids_to_hand_over,
    a_lock_is_not_handed_over_into_a_circle,
    what_is_told_is_queued_with_the_change_or_not_at_all,
    a_lock_of_one_project_stands_for_itself,
    of_many_who_take_the_same_lock_one_wins,
    a_release_and_an_apply_at_the_same_time_agree,
);

fn olga(lock: LockId) -> HandOver {
    let actor = Actor::new("olga", Origin::Page);
    HandOver {
        lock,
        to: None,
        force: false,
        reason: None,
        actor,
        remote: Some("192.0.2.7".to_owned()),
    }
}

fn by_force(lock: LockId) -> HandOver {
    HandOver {
        force: true,
        reason: Reason::read("the outage `first`").unwrap(),
        ..olga(lock)
    }
}

fn to(number: i64, giving: HandOver) -> HandOver {
    HandOver {
        to: Some(Subject::pull(number)),
        ..giving
    }
}

async fn done(store: &Store, giving: &HandOver) -> HandedOver {
    match hand_over(store, giving, |_| vec![]).await.unwrap() {
        HandOverOutcome::Done(given) => *given,
        other @ (HandOverOutcome::NotHeld | HandOverOutcome::Refused(..)) => panic!("{other:?}"),
    }
}

async fn refused(store: &Store, giving: &HandOver) -> KeptReason {
    match hand_over(store, giving, |_| vec![job("never")])
        .await
        .unwrap()
    {
        HandOverOutcome::Refused(lock, why) => {
            assert_eq!(lock.id, giving.lock);
            why
        }
        other @ (HandOverOutcome::NotHeld | HandOverOutcome::Done(_)) => panic!("{other:?}"),
    }
}

/// Returns kind, pull request and reason of the newest events, oldest first.
async fn told(store: &Store, events: i64) -> Vec<String> {
    let newest = store.lock_event_list(events).await.unwrap();
    let line = |kept: &lockkeeper::model::LockEvent| {
        let pull = kept.event.pull.as_ref().unwrap();
        format!(
            "{} #{}: {}",
            kept.event.kind, pull.subject, kept.event.cause.reason
        )
    };
    newest.iter().rev().map(line).collect()
}

/// Starts a run with its command.
async fn running(store: &Store, kind: RunKind, pull: &PullRef, dir: &str) -> RunId {
    let run = run(store, kind, pull, &project(dir)).await;
    store.run_start(run).await.unwrap();
    run
}

async fn lock_use(store: &Store, lock: &Lock) -> LockUse {
    store.lock_use(lock).await.unwrap()
}

/// Ends a run and its command.
async fn end(store: &Store, run: RunId) {
    assert!(
        store
            .run_finish(run, ProjectOutcome::Planned, None)
            .await
            .unwrap()
    );
}

async fn a_lock_is_released_to_the_first_in_the_queue_or_to_nobody(db: &TestDb) {
    let store = db.store();
    let (one, two, three) = (
        open_pull(store, 1).await,
        open_pull(store, 2).await,
        open_pull(store, 3).await,
    );
    let plan = planned(db, &one, &project("a")).await;
    end(store, plan.run).await;
    want(store, &two, &["a"]).await;
    want(store, &three, &["a"]).await;
    let lock = store.lock_list().await.unwrap().remove(0);
    assert!(lock_use(store, &lock).await.is_idle());
    let given = done(store, &olga(lock.id)).await;
    let now = store.lock_list().await.unwrap().remove(0);
    assert_eq!(
        (given.plan, given.interrupted.len(), given.applied),
        (true, 0, false)
    );
    assert_eq!((&given.lock, given.now.as_ref()), (&lock, Some(&now)));
    assert_eq!(
        (now.pull.subject.stored(), now.holder.login.as_str()),
        (2, "ada")
    );
    assert_eq!(
        now.reason,
        "next in the queue after pull request 1, whose lock olga released"
    );
    assert_eq!(plan_state(db, &plan).await, PlanState::Discarded);
    assert_eq!(line(store, "a").await, [3]);
    let jobs = store.job_list_open().await.unwrap();
    assert_eq!(jobs.iter().filter(|job| job.kind == TAKE_TURN).count(), 1);
    assert_eq!(
        hand_over(store, &olga(lock.id), |_| vec![]).await.unwrap(),
        HandOverOutcome::NotHeld
    );
    let because = HandOver {
        reason: Reason::read("spring cleaning").unwrap(),
        ..olga(now.id)
    };
    assert_eq!(done(store, &because).await.now.unwrap().pull, three);
    let last = store.lock_list().await.unwrap().remove(0);
    let given = done(store, &olga(last.id)).await;
    assert_eq!((given.plan, given.now), (false, None));
    assert_eq!(
        told(store, 5).await,
        [
            "released #1: released",
            "taken #2: next in the queue after pull request 1, whose lock olga released",
            "released #2: released: spring cleaning",
            "taken #3: next in the queue after pull request 2, whose lock olga released (spring cleaning)",
            "released #3: released",
        ]
    );
    let event = store.lock_event_list(1).await.unwrap().remove(0).event;
    assert_eq!(
        (
            event.cause.actor.login.as_str(),
            event.cause.remote.as_deref()
        ),
        ("olga", Some("192.0.2.7"))
    );
}

async fn a_lock_under_which_a_plan_is_made_is_released_by_force_only(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let lock = taken(store, &one, &project("a")).await;
    want(store, &two, &["a"]).await;
    let run = running(store, RunKind::Plan, &one, "a").await;
    let other = running(store, RunKind::Plan, &one, "b").await;
    assert_eq!(
        refused(store, &olga(lock.id)).await,
        KeptReason::PlanRunning
    );
    assert_eq!(
        refused(
            store,
            &HandOver {
                force: true,
                ..olga(lock.id)
            }
        )
        .await,
        KeptReason::ReasonWanted
    );
    let given = done(store, &by_force(lock.id)).await;
    let command = store.run_get(run).await.unwrap().unwrap().command;
    assert_eq!(given.interrupted, [command]);
    let stop = store
        .command_get(command)
        .await
        .unwrap()
        .unwrap()
        .stop
        .unwrap();
    assert_eq!(
        (stop.kind, stop.why.as_str()),
        (
            StopKind::Cancelled,
            "`olga` took its lock away on the dashboard"
        )
    );
    let spared = store.run_get(other).await.unwrap().unwrap().command;
    assert_eq!(
        store.command_get(spared).await.unwrap().unwrap().stop,
        None,
        "that is another project"
    );
    assert_eq!(
        told(store, 2).await,
        [
            "stolen #1: released by force: the outage `first`",
            "taken #2: next in the queue after pull request 1, whose lock olga took away (the outage 'first')",
        ]
    );
    assert!(
        store
            .job_list_open()
            .await
            .unwrap()
            .iter()
            .all(|job| job.lane != "never")
    );
}

async fn a_plan_that_took_the_lock_and_has_not_come_to_it_is_at_work(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let plan = command(store, CommandKind::Autoplan, &one).await;
    assert!(store.command_start(plan, None, &[]).await.unwrap());
    let lock = taken(store, &one, &project("a")).await;
    assert_eq!(
        lock_use(store, &lock).await.at_work,
        [(plan, CommandKind::Autoplan)]
    );
    let new = NewRun {
        command: plan,
        kind: RunKind::Plan,
        pull: one.clone(),
        project: project("a"),
    };
    let run = store.run_create(&new).await.unwrap();
    assert_eq!(
        lock_use(store, &lock).await.at_work,
        [(plan, CommandKind::Autoplan)],
        "it waits for a place"
    );
    end(store, run).await;
    assert_eq!(
        lock_use(store, &lock).await.at_work,
        [],
        "it goes on with other projects"
    );
    db.clock.advance(std::time::Duration::from_mins(1));
    let later = command(store, CommandKind::Plan, &one).await;
    assert!(store.command_start(later, None, &[]).await.unwrap());
    assert_eq!(
        lock_use(store, &lock).await.at_work,
        [],
        "it may be about anything"
    );
}

async fn a_lock_under_which_something_was_applied_is_released_by_force_only(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let plan = planned(db, &one, &project("a")).await;
    end(store, plan.run).await;
    let apply = running(store, RunKind::Apply, &one, "b").await;
    end(store, apply).await;
    let lock = store.lock_list().await.unwrap().remove(0);
    assert!(
        lock_use(store, &lock).await.is_idle(),
        "another project was applied"
    );
    let ApplyGate::Granted(grant) = begin_apply(store, &plan).await else {
        panic!("nothing stops this apply")
    };
    store
        .apply_end(grant, &one, PlanState::Applied, by())
        .await
        .unwrap();
    for (id, _) in lock_use(store, &lock).await.at_work {
        for run in store.run_list(id).await.unwrap() {
            end(store, run.id).await;
        }
    }
    assert_eq!(refused(store, &olga(lock.id)).await, KeptReason::Applied);
    let given = done(store, &by_force(lock.id)).await;
    assert_eq!(
        (given.applied, given.plan, given.now),
        (true, false, None),
        "what is applied is no loss"
    );
}

async fn a_lock_under_which_an_apply_runs_is_not_even_taken_by_force(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let plan = planned(db, &one, &project("a")).await;
    want(store, &two, &["a"]).await;
    let ApplyGate::Granted(grant) = begin_apply(store, &plan).await else {
        panic!("nothing stops this apply")
    };
    let lock = store.lock_list().await.unwrap().remove(0);
    let before = store.lock_event_list(100).await.unwrap();
    for giving in [
        olga(lock.id),
        by_force(lock.id),
        to(2, by_force(lock.id)),
        HandOver {
            force: true,
            ..olga(lock.id)
        },
    ] {
        assert_eq!(refused(store, &giving).await, KeptReason::ApplyRunning);
    }
    assert_eq!(store.lock_list().await.unwrap(), [lock]);
    assert_eq!(store.lock_event_list(100).await.unwrap(), before);
    store
        .apply_end(grant, &one, PlanState::Applied, by())
        .await
        .unwrap();
}

async fn an_apply_that_waits_finds_its_plan_gone(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let plan = planned(db, &one, &project("a")).await;
    end(store, plan.run).await;
    let apply = run(store, RunKind::Apply, &one, &project("a")).await;
    let lock = store.lock_list().await.unwrap().remove(0);
    assert_eq!(
        refused(store, &olga(lock.id)).await,
        KeptReason::ApplyWaiting
    );
    let given = done(store, &by_force(lock.id)).await;
    assert_eq!(
        (given.plan, given.interrupted.len()),
        (true, 0),
        "only plans are interrupted"
    );
    let gate = super::samples::begin_apply_in(store, &plan, apply)
        .await
        .unwrap();
    assert!(
        matches!(gate, ApplyGate::PlanGone(PlanState::Discarded)),
        "{gate:?}"
    );
}

async fn a_lock_is_handed_to_any_queued_pull_request(db: &TestDb) {
    let store = db.store();
    let pulls = [
        open_pull(store, 1).await,
        open_pull(store, 2).await,
        open_pull(store, 3).await,
    ];
    let lock = taken(store, &pulls[0], &project("a")).await;
    want(store, &pulls[1], &["a"]).await;
    want(store, &pulls[2], &["a"]).await;
    for nobody in [9, 1] {
        assert_eq!(
            refused(store, &to(nobody, olga(lock.id))).await,
            KeptReason::NotQueued(Subject::pull(nobody))
        );
    }
    let reason = Reason::read("the outage first").unwrap();
    let given = done(
        store,
        &to(
            3,
            HandOver {
                reason,
                ..olga(lock.id)
            },
        ),
    )
    .await;
    let now = store.lock_list().await.unwrap().remove(0);
    assert_eq!(
        (given.now.as_ref(), now.pull.subject.stored()),
        (Some(&now), 3)
    );
    assert_eq!(
        now.reason,
        "chosen by olga, who handed the lock over from pull request 1 (the outage first)"
    );
    assert_eq!(line(store, "a").await, [2], "the others keep their places");
    assert_eq!(
        hand_over(store, &to(2, olga(lock.id)), |_| vec![])
            .await
            .unwrap(),
        HandOverOutcome::NotHeld
    );
    assert_eq!(
        told(store, 2).await,
        [
            "stolen #1: handed over to pull request 3: the outage first",
            "taken #3: chosen by olga, who handed the lock over from pull request 1 (the outage first)",
        ]
    );
}

async fn what_forbids_a_release_forbids_to_hand_over(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let lock = taken(store, &one, &project("a")).await;
    want(store, &two, &["a"]).await;
    running(store, RunKind::Plan, &one, "a").await;
    assert_eq!(
        refused(store, &to(2, olga(lock.id))).await,
        KeptReason::PlanRunning
    );
    assert_eq!(
        refused(store, &to(9, by_force(lock.id))).await,
        KeptReason::NotQueued(Subject::pull(9))
    );
    let given = done(store, &to(2, by_force(lock.id))).await;
    assert_eq!(given.interrupted.len(), 1);
    let stop = store
        .command_get(given.interrupted[0])
        .await
        .unwrap()
        .unwrap()
        .stop
        .unwrap();
    assert_eq!(
        stop.why,
        "`olga` handed its lock over to pull request 2 on the dashboard"
    );
    assert_eq!(
        told(store, 2).await[0],
        "stolen #1: handed over to pull request 2 by force: the outage `first`"
    );
}

async fn a_lock_is_not_handed_over_into_a_circle(db: &TestDb) {
    let store = db.store();
    let (one, two, three) = (
        open_pull(store, 1).await,
        open_pull(store, 2).await,
        open_pull(store, 3).await,
    );
    let lock = taken(store, &one, &project("a")).await;
    taken(store, &two, &project("b")).await;
    want(store, &two, &["a"]).await;
    want(store, &three, &["a", "b"]).await;
    assert_eq!(
        refused(store, &to(3, by_force(lock.id))).await,
        KeptReason::Circle(Subject::pull(3))
    );
    assert_eq!(holders(store).await, ["a #1", "b #2"]);
    done(store, &to(2, olga(lock.id))).await;
    assert_eq!(holders(store).await, ["a #2", "b #2"]);
    assert_eq!(
        (line(store, "a").await, line(store, "b").await),
        (vec![3], vec![3])
    );
}

async fn what_is_told_is_queued_with_the_change_or_not_at_all(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let lock = taken(store, &one, &project("a")).await;
    let run = running(store, RunKind::Plan, &one, "a").await;
    assert_eq!(
        refused(store, &olga(lock.id)).await,
        KeptReason::PlanRunning
    );
    let lanes = async || {
        let jobs = store.job_list_open().await.unwrap();
        jobs.into_iter()
            .map(|job| job.lane)
            .filter(|lane| !lane.starts_with("command"))
            .collect::<Vec<_>>()
    };
    assert_eq!(lanes().await, [""; 0]);
    end(store, run).await;
    let told = |given: &HandedOver| {
        assert_eq!(given.lock, lock);
        vec![job("told")]
    };
    assert!(matches!(
        hand_over(store, &olga(lock.id), told).await.unwrap(),
        HandOverOutcome::Done(_)
    ));
    assert_eq!(lanes().await, ["told"]);
}

async fn a_lock_of_one_project_stands_for_itself(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let lock_of = async |name: &str| {
        let project = named("a", name);
        let key = LockKey::of_project(&one.repo, &project);
        let attempt = lockkeeper::store::LockAttempt {
            key: &key,
            project: &project,
            pull: &one,
            pull_url: "",
            cause: by(),
        };
        let _took = store.lock_take(&attempt).await.unwrap();
        store.lock_holder(&key).await.unwrap().unwrap()
    };
    let (x, y) = (lock_of("x").await, lock_of("y").await);
    let run = run(store, RunKind::Plan, &one, &named("a", "x")).await;
    assert_eq!(
        (
            lock_use(store, &x).await.is_idle(),
            lock_use(store, &y).await.is_idle()
        ),
        (false, true)
    );
    done(store, &olga(y.id)).await;
    assert_eq!(refused(store, &olga(x.id)).await, KeptReason::PlanRunning);
    end(store, run).await;
    done(store, &olga(x.id)).await;
    let history = store.lock_event_list_of(&x.key, 100).await.unwrap();
    assert_eq!(
        history
            .iter()
            .map(|kept| kept.event.kind.as_str())
            .collect::<Vec<_>>(),
        ["released", "taken"]
    );
}

async fn of_many_who_take_the_same_lock_one_wins(db: &TestDb) {
    const TASKS: i64 = 16;
    let one = open_pull(db.store(), 1).await;
    for round in 0..3 {
        let dir = format!("d{round}");
        let lock = taken(db.store(), &one, &project(&dir)).await;
        // Each round has other pull requests, because otherwise some would be queued behind each other.
        let first = 10 * round + 2;
        for number in first..first + 4 {
            want(db.store(), &open_pull(db.store(), number).await, &[&dir]).await;
        }
        let tries = (0..TASKS).map(|task| {
            let giving = match task % 4 {
                0 => olga(lock.id),
                1 => by_force(lock.id),
                place => to(first + place, olga(lock.id)),
            };
            async move {
                let store = db.reopen().await;
                hand_over(&store, &giving, |_| vec![job("told")])
                    .await
                    .unwrap()
            }
        });
        let gave = join_all(tries).await;
        let done = gave
            .iter()
            .filter(|gave| matches!(gave, HandOverOutcome::Done(_)))
            .count();
        let late = gave
            .iter()
            .filter(|gave| **gave == HandOverOutcome::NotHeld)
            .count();
        assert_eq!((done, late), (1, 15), "{gave:?}");
        let held = db.store().lock_list().await.unwrap();
        let holders: Vec<i64> = held
            .iter()
            .filter(|l| l.key == lock.key)
            .map(|l| l.pull.subject.stored())
            .collect();
        assert!(
            holders.len() == 1 && (first..first + 4).contains(&holders[0]),
            "{holders:?}"
        );
        assert_eq!(line(db.store(), &dir).await.len(), 3);
    }
    let kinds: Vec<LockEventKind> = db
        .store()
        .lock_event_list(1000)
        .await
        .unwrap()
        .iter()
        .map(|kept| kept.event.kind)
        .collect();
    let count = |kinds: &[LockEventKind], wanted: &[LockEventKind]| {
        kinds.iter().filter(|k| wanted.contains(k)).count()
    };
    assert_eq!(
        count(&kinds, &[LockEventKind::Released, LockEventKind::Stolen]),
        3
    );
    assert_eq!(count(&kinds, &[LockEventKind::Taken]), 6);
    assert_eq!(seal_log(db).await, kinds.len() as u64);
    assert!(matches!(
        verify(db.store(), &KnownLogState::default(), None)
            .await
            .unwrap(),
        AuditVerdict::Whole(_)
    ));
}

async fn a_release_and_an_apply_at_the_same_time_agree(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    for round in 0..8 {
        let plan = new_plan(db, &one, &project(&format!("d{round}"))).await;
        let lock = taken(db.store(), &one, &plan.project).await;
        let recorded = db
            .store()
            .plan_record(&plan, Some(lock.id), None, &PlanParts::default())
            .await
            .unwrap();
        assert_eq!(recorded, lockkeeper::store::RecordPlan::Recorded);
        end(db.store(), plan.run).await;
        let (other, giving) = (db.reopen().await, by_force(lock.id));
        let (begun, gave) = tokio::join!(
            begin_apply(db.store(), &plan),
            hand_over(&other, &giving, |_| vec![])
        );
        match (begun, gave.unwrap()) {
            (ApplyGate::Granted(grant), HandOverOutcome::Refused(_, KeptReason::ApplyRunning)) => {
                db.store()
                    .apply_end(grant, &one, PlanState::Applied, by())
                    .await
                    .unwrap();
            }
            // The gate takes a lock that is free again, but nothing is left to apply.
            (ApplyGate::PlanGone(PlanState::Discarded), HandOverOutcome::Done(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}
