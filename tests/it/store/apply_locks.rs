//! Tests of apply locks: everywhere, in a repository, below a directory, and with an end.

use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::features::apply_locks::SetApplyLock;
use lockkeeper::locks::{AuditVerdict, KnownLogState, verify};
use lockkeeper::model::{
    Actor, ApplyLock, ApplyScope, Cause, LockEventKind, Origin, PlanRecord, PlanState, RunKind,
};
use lockkeeper::store::ApplyGate;

use super::samples::{
    HOSTILE, begin_apply, begin_apply_in, open_pull, plan_state, planned, project, run,
};
use crate::support::db::{
    TestDb, allow_applies, applies_in, by, execute, seal_log, start_of_time, stop_applies,
    stop_applies_of, stopped, store_test,
};

store_test!(
    applies_are_allowed_at_first,
    a_set_apply_lock_is_seen_by_every_replica,
    the_first_apply_lock_of_a_scope_stays,
    a_cleared_apply_lock_is_gone,
    of_two_that_set_it_at_once_one_did,
    locks_of_all_scopes_stand_side_by_side_the_widest_first,
    a_lock_whose_time_is_over_is_not_there_any_more,
    an_end_in_the_past_is_refused,
    what_is_not_understood_is_listed_stops_everything_and_can_be_ended,
    there_are_not_endlessly_many,
    the_gate_names_everything_in_the_way_and_nothing_else,
    the_gate_lets_through_at_the_moment_the_time_is_over,
    once_a_set_is_committed_no_gate_opens_any_more,
    every_change_is_an_event_of_a_chain_that_is_whole,
    a_lock_that_is_replaced_after_its_end_leaves_both_on_record,
);

const INFRA: &str = "github.com/acme/infra";

async fn applies_are_allowed_at_first(db: &TestDb) {
    assert_eq!(stopped(db.store()).await, None);
    assert_eq!(db.store().apply_lock_list().await.unwrap(), []);
    assert!(!allow_applies(db.store()).await);
}

async fn a_set_apply_lock_is_seen_by_every_replica(db: &TestDb) {
    let lock = stop_applies_of(
        db.store(),
        &applies_in(INFRA, "a b"),
        None,
        HOSTILE,
        HOSTILE,
    )
    .await;
    assert_eq!(
        (
            lock.holder.login.as_str(),
            lock.reason.as_str(),
            lock.taken_at
        ),
        (HOSTILE, HOSTILE, start_of_time())
    );
    let other = db.reopen().await;
    assert_eq!(
        other
            .apply_lock_get(&applies_in(INFRA, "a b"))
            .await
            .unwrap(),
        Some(lock.clone())
    );
    assert_eq!(other.apply_lock_find(lock.id).await.unwrap(), Some(lock));
    assert_eq!(stopped(&other).await, None);
}

async fn the_first_apply_lock_of_a_scope_stays(db: &TestDb) {
    for scope in [
        ApplyScope::Server,
        applies_in(INFRA, "."),
        applies_in(INFRA, "network"),
    ] {
        let first = stop_applies_of(db.store(), &scope, None, "ada", "incident").await;
        let second = db
            .store()
            .apply_lock_set(
                &scope,
                None,
                &Cause::new(Actor::commenter("bob"), "holiday"),
            )
            .await;
        assert_eq!(second.unwrap(), SetApplyLock::AlreadySet(first));
    }
}

async fn a_cleared_apply_lock_is_gone(db: &TestDb) {
    let (store, network) = (db.store(), applies_in(INFRA, "network"));
    let all = stop_applies(store, "ada", "incident").await;
    let one = stop_applies_of(store, &network, None, "ada", "incident").await;
    assert_eq!(
        store
            .apply_lock_clear(&applies_in(INFRA, "."), by())
            .await
            .unwrap(),
        None,
        "only this very scope"
    );
    assert_eq!(
        store.apply_lock_clear_one(one.id, by()).await.unwrap(),
        Some(one.clone())
    );
    assert_eq!(
        store.apply_lock_clear_one(one.id, by()).await.unwrap(),
        None
    );
    assert_eq!(store.apply_lock_list().await.unwrap(), [all]);
    assert!(allow_applies(store).await);
    assert_eq!(store.apply_lock_list().await.unwrap(), []);
    stop_applies(store, "bob", "holiday").await;
}

async fn of_two_that_set_it_at_once_one_did(db: &TestDb) {
    let other = db.reopen().await;
    let cause = |who| Cause::new(Actor::commenter(who), "x");
    let (a, b) = (cause("a"), cause("b"));
    for _ in 0..20 {
        let all = ApplyScope::Server;
        let (one, two) = tokio::join!(
            db.store().apply_lock_set(&all, None, &a),
            other.apply_lock_set(&all, None, &b)
        );
        let winner = match (one.unwrap(), two.unwrap()) {
            (SetApplyLock::Set(lock), SetApplyLock::AlreadySet(same))
            | (SetApplyLock::AlreadySet(same), SetApplyLock::Set(lock)) => {
                assert_eq!(lock, same);
                lock
            }
            both => panic!("{both:?}"),
        };
        assert_eq!(stopped(db.store()).await, Some(winner));
        assert!(allow_applies(db.store()).await);
    }
}

async fn locks_of_all_scopes_stand_side_by_side_the_widest_first(db: &TestDb) {
    let wanted = [
        ApplyScope::Server,
        applies_in("git.example/acme/infra", "."),
        applies_in(INFRA, "."),
        applies_in(INFRA, "network"),
        applies_in(INFRA, "network/eu"),
    ];
    for scope in wanted.iter().rev() {
        stop_applies_of(db.store(), scope, None, "ada", "x").await;
    }
    let listed: Vec<ApplyScope> = db
        .store()
        .apply_lock_list()
        .await
        .unwrap()
        .into_iter()
        .map(|lock| lock.scope)
        .collect();
    assert_eq!(listed, wanted);
}

async fn a_lock_whose_time_is_over_is_not_there_any_more(db: &TestDb) {
    let (store, all) = (db.store(), ApplyScope::Server);
    let end = db.now() + TimeDelta::hours(1);
    let lock = stop_applies_of(store, &all, Some(end), "ada", "freeze").await;
    assert_eq!(lock.ends_at, Some(end));
    db.clock.advance(Duration::from_secs(3599));
    assert_eq!(store.apply_lock_list().await.unwrap(), slice(&lock));
    assert_eq!(
        store.apply_lock_expire().await.unwrap(),
        [],
        "it goes on for a second"
    );
    db.clock.advance(Duration::from_secs(1));
    assert_eq!(store.apply_lock_list().await.unwrap(), []);
    assert_eq!(
        (
            stopped(store).await,
            store.apply_lock_find(lock.id).await.unwrap()
        ),
        (None, None)
    );
    assert_eq!(
        db.reopen().await.apply_lock_expire().await.unwrap(),
        slice(&lock)
    );
    assert_eq!(store.apply_lock_expire().await.unwrap(), []);
    // Ending an expired apply lock does nothing.
    stop_applies_of(
        store,
        &all,
        Some(db.now() + TimeDelta::hours(1)),
        "bob",
        "again",
    )
    .await;
    db.clock.advance(Duration::from_hours(1));
    assert!(!allow_applies(store).await);
    assert_eq!(
        store.apply_lock_expire().await.unwrap(),
        [],
        "it was removed on the way"
    );
}

fn slice(lock: &ApplyLock) -> Vec<ApplyLock> {
    vec![lock.clone()]
}

async fn an_end_in_the_past_is_refused(db: &TestDb) {
    for late in [
        TimeDelta::zero(),
        TimeDelta::seconds(1),
        TimeDelta::days(4000),
    ] {
        let set = db
            .store()
            .apply_lock_set(&ApplyScope::Server, Some(db.now() - late), by())
            .await
            .unwrap();
        assert_eq!(set, SetApplyLock::Over(db.now()));
    }
    assert_eq!(stopped(db.store()).await, None);
    assert_eq!(db.store().lock_event_list(1).await.unwrap(), []);
}

const STRANGE: &str = "INSERT INTO apply_locks (id, scope, repo, dir, holder, reason, taken_at, ends_at) VALUES \
     ('00000000-0000-7000-8000-00000000abcd', 'team', 'acme/ops', '', 'ada', 'x', '2026-03-01T00:00:00+00:00', NULL)";

async fn what_is_not_understood_is_listed_stops_everything_and_can_be_ended(db: &TestDb) {
    let plan = planned(db, &open_pull(db.store(), 1).await, &project("a")).await;
    execute(db, STRANGE).await;
    let scope = ApplyScope::Unknown("team acme/ops".to_owned());
    let ApplyGate::ApplyLocked(locks) = begin_apply(db.store(), &plan).await else {
        panic!("it stops everything")
    };
    assert_eq!(locks[0].scope, scope);
    assert!(
        db.store().apply_lock_set(&scope, None, by()).await.is_err(),
        "nobody sets such a lock"
    );
    assert_eq!(
        db.store()
            .apply_lock_clear_one(locks[0].id, by())
            .await
            .unwrap()
            .unwrap()
            .scope,
        scope
    );
    let event = db.store().lock_event_list(1).await.unwrap().remove(0);
    assert_eq!(
        event.event.cause.reason,
        "as the test wants it; set for the unknown scope \"team acme/ops\", by ada on 2026-03-01 00:00 UTC: x"
    );
    assert!(matches!(
        begin_apply(db.store(), &plan).await,
        ApplyGate::Granted(_)
    ));
}

async fn there_are_not_endlessly_many(db: &TestDb) {
    let rows = (0..1000).map(|n| {
        format!(
            "('{:08x}-0000-7000-8000-0000000000ff', 'path', '{INFRA}', 'd{n}', 'a', 'x', '2026-03-01T00:00:00+00:00')",
            n + 1
        )
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    execute(
        db,
        &format!(
            "INSERT INTO apply_locks (id, scope, repo, dir, holder, reason, taken_at) VALUES {rows}"
        ),
    )
    .await;
    let set = db
        .store()
        .apply_lock_set(&ApplyScope::Server, None, by())
        .await
        .unwrap();
    assert_eq!(set, SetApplyLock::TooMany(1000));
    let again = db
        .store()
        .apply_lock_set(&applies_in(INFRA, "d7"), None, by())
        .await
        .unwrap();
    assert!(matches!(again, SetApplyLock::AlreadySet(_)));
}

async fn the_gate_names_everything_in_the_way_and_nothing_else(db: &TestDb) {
    let plan = planned(db, &open_pull(db.store(), 1).await, &project("network/eu")).await;
    for elsewhere in [
        applies_in("git.example/acme/infra", "."),
        applies_in("github.com/acme/apps", "."),
        applies_in(INFRA, "network-2"),
        applies_in(INFRA, "network/eu/west"),
        applies_in(INFRA, "app"),
    ] {
        stop_applies_of(db.store(), &elsewhere, None, "ada", "x").await;
    }
    let in_way = [
        ApplyScope::Server,
        applies_in(INFRA, "."),
        applies_in(INFRA, "network"),
        applies_in(INFRA, "network/eu"),
    ];
    for scope in in_way.iter().rev() {
        stop_applies_of(db.store(), scope, None, "ada", "x").await;
    }
    for at in 0..in_way.len() {
        let ApplyGate::ApplyLocked(locks) = begin_apply(db.store(), &plan).await else {
            panic!("{at}")
        };
        assert_eq!(
            locks.iter().map(|lock| &lock.scope).collect::<Vec<_>>(),
            in_way[at..].iter().collect::<Vec<_>>()
        );
        assert_eq!(plan_state(db, &plan).await, PlanState::Planned);
        assert!(
            db.store()
                .apply_lock_clear(&in_way[at], by())
                .await
                .unwrap()
                .is_some()
        );
    }
    assert!(matches!(
        begin_apply(db.store(), &plan).await,
        ApplyGate::Granted(_)
    ));
}

async fn the_gate_lets_through_at_the_moment_the_time_is_over(db: &TestDb) {
    let plan = planned(db, &open_pull(db.store(), 1).await, &project("a")).await;
    let (short, long) = (
        db.now() + TimeDelta::minutes(5),
        db.now() + TimeDelta::minutes(10),
    );
    stop_applies_of(db.store(), &applies_in(INFRA, "a"), Some(short), "ada", "x").await;
    let lasting =
        stop_applies_of(db.store(), &applies_in(INFRA, "."), Some(long), "ada", "x").await;
    db.clock.advance(Duration::from_mins(5));
    let ApplyGate::ApplyLocked(locks) = begin_apply(db.store(), &plan).await else {
        panic!("one goes on")
    };
    assert_eq!(locks, [lasting]);
    db.clock.advance(Duration::from_mins(5));
    assert!(
        matches!(begin_apply(db.store(), &plan).await, ApplyGate::Granted(_)),
        "nobody has tidied up yet"
    );
}

/// Many gates meet a new apply lock at once. Applies are granted before the lock is committed, and never afterwards.
async fn once_a_set_is_committed_no_gate_opens_any_more(db: &TestDb) {
    const GATES: i64 = 8;
    let other = db.reopen().await;
    let mut granted = 0;
    for round in 0..12_i64 {
        let mut ready = Vec::new();
        for number in round * GATES + 1..=(round + 1) * GATES {
            let pull = open_pull(db.store(), number).await;
            let plan = planned(db, &pull, &project(&number.to_string())).await;
            ready.push((
                run(db.store(), RunKind::Apply, &pull, &plan.project).await,
                plan,
            ));
        }
        let plans: Vec<PlanRecord> = ready.iter().map(|(_, plan)| plan.clone()).collect();
        let gates: Vec<_> = ready
            .into_iter()
            .map(|(run, plan)| {
                let store = db.store().clone();
                tokio::spawn(async move { begin_apply_in(&store, &plan, run).await.unwrap() })
            })
            .collect();
        for _ in 0..round % 4 {
            tokio::task::yield_now().await;
        }
        let scope = if round % 2 == 0 {
            ApplyScope::Server
        } else {
            applies_in(INFRA, ".")
        };
        stop_applies_of(&other, &scope, None, "bob", "incident").await;
        let begun = applying(db, &plans).await;
        for gate in gates {
            match gate.await.unwrap() {
                ApplyGate::Granted(_) => granted += 1,
                ApplyGate::ApplyLocked(locks) => assert_eq!(locks.len(), 1),
                other @ (ApplyGate::HeldBy(_)
                | ApplyGate::PullClosed
                | ApplyGate::PlanGone(_)
                | ApplyGate::ModuleTakenDown
                | ApplyGate::PoliciesUnmet(_)) => {
                    panic!("{other:?}")
                }
            }
        }
        assert_eq!(
            applying(db, &plans).await,
            begun,
            "an apply began after applies were stopped"
        );
        assert!(
            other
                .apply_lock_clear(&scope, by())
                .await
                .unwrap()
                .is_some()
        );
    }
    assert!(
        granted < 12 * GATES,
        "every set came too late to tell anything"
    );
}

async fn applying(db: &TestDb, plans: &[PlanRecord]) -> usize {
    let mut applying = 0;
    for plan in plans {
        applying += usize::from(plan_state(db, plan).await == PlanState::Applying);
    }
    applying
}

async fn every_change_is_an_event_of_a_chain_that_is_whole(db: &TestDb) {
    let (store, network) = (db.store(), applies_in(INFRA, "network"));
    let page = Cause::new(Actor::new("ops", Origin::Page), "the database moves");
    let until = Some(db.now() + TimeDelta::hours(1));
    let _all = store
        .apply_lock_set(&ApplyScope::Server, None, &page)
        .await
        .unwrap();
    let _again = store
        .apply_lock_set(&ApplyScope::Server, None, &page)
        .await
        .unwrap();
    let _path = store.apply_lock_set(&network, until, &page).await.unwrap();
    assert!(allow_applies(store).await);
    assert!(!allow_applies(store).await);
    db.clock.advance(Duration::from_hours(1));
    assert_eq!(store.apply_lock_expire().await.unwrap().len(), 1);
    let mut events = store.lock_event_list(10).await.unwrap();
    events.reverse();
    let told: Vec<String> = events
        .iter()
        .map(|kept| {
            let (event, scope) = (&kept.event, kept.event.scope.as_ref().unwrap());
            format!(
                "{} {scope} by {} ({}): {}",
                event.kind, event.cause.actor.login, event.cause.actor.origin, event.cause.reason
            )
        })
        .collect();
    insta::allow_duplicates! { insta::assert_snapshot!(told.join("\n"), @"
    apply_locked everywhere by ops (page): the database moves
    apply_locked network in github.com/acme/infra by ops (page): the database moves (until 2026-03-02 10:00 UTC)
    apply_unlocked everywhere by ada (comment): as the test wants it; set by ops on 2026-03-02 09:00 UTC: the database moves
    apply_unlocked network in github.com/acme/infra by lockkeeper (reconciler): it expired; set by ops on 2026-03-02 09:00 UTC: the database moves
    ") }
    assert_eq!(seal_log(db).await, 4);
    let whole = async || {
        matches!(
            verify(store, &KnownLogState::default(), None)
                .await
                .unwrap(),
            AuditVerdict::Whole(_)
        )
    };
    assert!(whole().await);
    execute(db, "UPDATE lock_events SET dir = 'app' WHERE seq = 2").await;
    assert!(!whole().await, "the hash covers the scope");
}

async fn a_lock_that_is_replaced_after_its_end_leaves_both_on_record(db: &TestDb) {
    let scope = applies_in(INFRA, ".");
    stop_applies_of(
        db.store(),
        &scope,
        Some(db.now() + TimeDelta::hours(1)),
        "ada",
        "one",
    )
    .await;
    db.clock.advance(Duration::from_hours(2));
    let next = stop_applies_of(db.store(), &scope, None, "bob", "two").await;
    assert_eq!(db.store().apply_lock_list().await.unwrap(), [next]);
    let kinds: Vec<_> = db
        .store()
        .lock_event_list(10)
        .await
        .unwrap()
        .into_iter()
        .map(|kept| kept.event.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            LockEventKind::ApplyLocked,
            LockEventKind::ApplyUnlocked,
            LockEventKind::ApplyLocked
        ]
    );
}
