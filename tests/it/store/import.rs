//! Tests of the import of a batch.

use lockkeeper::model::{ApplyScope, LockEventKind, PullState};
use lockkeeper::store::{
    ImportApplyLock, ImportBatch, ImportLock, ImportMode, ImportStatus, ImportStatuses,
    ImportedApplyLock, ImportedLock, ImportedPull, Store,
};

use super::samples::{HOSTILE, URL, named, open_pull, project, pull, taken};
use crate::support::db::{TestDb, start_of_time, stop_applies, stopped, store_test};

store_test!(
    a_batch_is_written_as_it_is_and_can_be_verified,
    a_trial_reports_the_same_and_leaves_nothing,
    a_batch_a_second_time_changes_nothing,
    what_is_held_here_is_never_overwritten,
    the_first_lock_of_a_batch_wins,
    statuses_are_records_of_which_nothing_can_be_applied,
    closed_pulls_stay_closed_and_take_nothing,
    verification_names_what_is_not_there,
    batches_and_takes_at_once_leave_one_holder_each,
    a_trial_of_a_database_without_tables_finds_none,
);

fn lock(number: i64, dir: &str) -> ImportLock {
    ImportLock {
        pull: pull(number),
        pull_url: URL.to_owned(),
        project: project(dir),
        holder: HOSTILE.to_owned(),
        reason: "taken over from Atlantis".to_owned(),
        taken_at: Some("2026-02-27T13:03:05.123456789Z".parse().unwrap()),
    }
}

fn batch(locks: Vec<ImportLock>) -> ImportBatch {
    ImportBatch {
        locks,
        ..ImportBatch::default()
    }
}

fn whole() -> ImportBatch {
    let apply_lock = ImportApplyLock {
        holder: "x".into(),
        reason: HOSTILE.into(),
        taken_at: start_of_time(),
    };
    ImportBatch {
        pulls: vec![(pull(1), URL.to_owned()), (pull(9), URL.to_owned())],
        locks: vec![lock(1, "a"), lock(2, "b")],
        apply_lock: Some(apply_lock),
        statuses: vec![statuses(9)],
    }
}

/// Returns the statuses of a pull request with an applied project, one without changes, and one that waits for its
/// apply.
fn statuses(number: i64) -> ImportStatuses {
    let (head, base_branch) = ("a1".repeat(20).parse().unwrap(), "main".parse().unwrap());
    let all = [
        ("a", ImportStatus::Applied),
        ("b", ImportStatus::NoChanges),
        ("c", ImportStatus::Unplanned),
    ];
    ImportStatuses {
        pull: pull(number),
        head,
        base_branch,
        holder: "Atlantis".to_owned(),
        reason: HOSTILE.to_owned(),
        spec: "{}".to_owned(),
        projects: all.map(|(dir, status)| (project(dir), status)).into(),
    }
}

async fn write(store: &Store, batch: &ImportBatch) -> Vec<ImportedLock> {
    let imported = store.import(batch, ImportMode::Write).await.unwrap();
    assert_eq!(
        store.import_verify(batch, &imported).await.unwrap(),
        Vec::<String>::new()
    );
    imported.locks
}

async fn a_batch_is_written_as_it_is_and_can_be_verified(db: &TestDb) {
    let batch = whole();
    let imported = db.store().import(&batch, ImportMode::Write).await.unwrap();
    assert_eq!(imported.locks, [ImportedLock::Taken, ImportedLock::Taken]);
    assert_eq!(imported.pulls, [ImportedPull::Taken, ImportedPull::Taken]);
    assert_eq!(imported.apply_lock, Some(ImportedApplyLock::Taken));
    assert!(
        db.store()
            .import_verify(&batch, &imported)
            .await
            .unwrap()
            .is_empty()
    );
    let held = db
        .store()
        .lock_list_of_pull(&pull(1))
        .await
        .unwrap()
        .remove(0);
    assert_eq!(
        (held.project, held.holder.login.as_str()),
        (project("a"), HOSTILE)
    );
    assert_eq!(
        held.taken_at.to_rfc3339(),
        "2026-02-27T13:03:05.123456+00:00"
    );
    for number in [1, 2, 9] {
        assert_eq!(
            db.store().pull_state(&pull(number)).await.unwrap(),
            Some(PullState::Open)
        );
    }
    let held = stopped(db.store()).await.unwrap();
    let held = ImportApplyLock {
        holder: held.holder.login,
        reason: held.reason,
        taken_at: held.taken_at,
    };
    assert_eq!(Some(held), batch.apply_lock);
    let event = db.store().lock_event_list(1).await.unwrap().remove(0).event;
    assert_eq!(
        (event.kind, event.scope),
        (LockEventKind::ApplyLocked, Some(ApplyScope::Server))
    );
}

async fn a_trial_reports_the_same_and_leaves_nothing(db: &TestDb) {
    let trial = db
        .store()
        .import(&whole(), ImportMode::Trial)
        .await
        .unwrap();
    assert!(db.store().lock_list().await.unwrap().is_empty());
    assert_eq!(db.store().pull_state(&pull(9)).await.unwrap(), None);
    assert_eq!(stopped(db.store()).await, None);
    assert_eq!(db.store().lock_event_list(1).await.unwrap(), []);
    assert_eq!(
        db.store()
            .import(&whole(), ImportMode::Write)
            .await
            .unwrap(),
        trial
    );
}

async fn a_batch_a_second_time_changes_nothing(db: &TestDb) {
    write(db.store(), &whole()).await;
    let (before, again) = (
        db.store().lock_list().await.unwrap(),
        write(db.store(), &whole()).await,
    );
    assert!(
        again
            .iter()
            .all(|outcome| matches!(outcome, ImportedLock::AlreadyThere(_))),
        "{again:?}"
    );
    assert_eq!(db.store().lock_list().await.unwrap(), before);
}

async fn what_is_held_here_is_never_overwritten(db: &TestDb) {
    let ours = open_pull(db.store(), 5).await;
    let held = taken(db.store(), &ours, &project("a")).await;
    assert_eq!(
        write(db.store(), &batch(vec![lock(1, "a")])).await,
        [ImportedLock::HeldBy(Box::new(held.clone()))]
    );
    assert_eq!(db.store().lock_list().await.unwrap(), [held]);
    stop_applies(db.store(), "ada", "incident").await;
    let imported = db
        .store()
        .import(&whole(), ImportMode::Write)
        .await
        .unwrap();
    assert!(
        matches!(imported.apply_lock, Some(ImportedApplyLock::AlreadyThere(lock)) if lock.holder.login == "ada")
    );
}

async fn statuses_are_records_of_which_nothing_can_be_applied(db: &TestDb) {
    let store = db.store();
    write(store, &whole()).await;
    let head = &statuses(9).head;
    let states = async || {
        let mut plans = store.plan_list(&pull(9)).await.unwrap();
        plans.sort_by(|a, b| a.project.cmp(&b.project));
        plans
            .iter()
            .map(|plan| format!("{} {} {:?}", plan.project.dir, plan.state, plan.digest))
            .collect::<Vec<_>>()
    };
    assert_eq!(states().await, ["a applied None", "b no_changes None"]);
    let runs = store.run_list_of_head(&pull(9), head).await.unwrap();
    let told: Vec<String> = runs
        .iter()
        .map(|run| format!("{} {:?}", run.project.dir, run.outcome.unwrap()))
        .collect();
    assert_eq!(told, ["a Applied", "b NoChanges", "c Discarded"]);
    write(store, &whole()).await;
    assert_eq!(
        store.run_list_of_head(&pull(9), head).await.unwrap().len(),
        3,
        "a second time nothing is new"
    );
    assert_eq!(states().await.len(), 2);
}

async fn the_first_lock_of_a_batch_wins(db: &TestDb) {
    let named = |number, name| ImportLock {
        project: named("a", name),
        ..lock(number, "a")
    };
    let outcomes = write(
        db.store(),
        &batch(vec![named(1, "x"), named(2, "y"), named(1, "z")]),
    )
    .await;
    assert_eq!(outcomes[0], ImportedLock::Taken);
    assert!(matches!(&outcomes[1], ImportedLock::HeldBy(held) if held.pull == pull(1)));
    assert!(
        matches!(&outcomes[2], ImportedLock::AlreadyThere(held) if held.project == super::samples::named("a", "x"))
    );
}

async fn closed_pulls_stay_closed_and_take_nothing(db: &TestDb) {
    db.store()
        .pull_seen(&pull(1), PullState::Merged, URL)
        .await
        .unwrap();
    let batch = whole();
    let imported = db.store().import(&batch, ImportMode::Write).await.unwrap();
    assert_eq!(
        imported.locks[0],
        ImportedLock::PullClosed(PullState::Merged)
    );
    assert_eq!(
        imported.pulls[0],
        ImportedPull::AlreadyThere(PullState::Merged)
    );
    assert!(
        db.store()
            .import_verify(&batch, &imported)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        db.store().pull_state(&pull(1)).await.unwrap(),
        Some(PullState::Merged)
    );
}

async fn verification_names_what_is_not_there(db: &TestDb) {
    let trial = db
        .store()
        .import(&whole(), ImportMode::Trial)
        .await
        .unwrap();
    let wrong = db.store().import_verify(&whole(), &trial).await.unwrap();
    let expected = [
        "the lock acme/infra/a/default differs from what was written",
        "the lock acme/infra/b/default differs from what was written",
        "the pull request github.com/acme/infra#1 is not recorded as open",
        "the pull request github.com/acme/infra#9 is not recorded as open",
        "dir: `a` workspace: `default` of github.com/acme/infra#9 is not recorded as applied",
        "dir: `b` workspace: `default` of github.com/acme/infra#9 is not recorded as no_changes",
        "applies are not stopped",
    ];
    assert_eq!(wrong, expected);
}

async fn batches_and_takes_at_once_leave_one_holder_each(db: &TestDb) {
    let (one, two) = (db.reopen().await, db.reopen().await);
    let dirs: Vec<String> = (0..20).map(|n| format!("d{n}")).collect();
    let of = |number| batch(dirs.iter().map(|dir| lock(number, dir)).collect());
    let (first, second) = (of(1), of(2));
    let third = open_pull(db.store(), 3).await;
    let taking = async {
        let mut took = 0;
        for dir in dirs.iter().rev() {
            let outcome = super::samples::take(db.store(), &third, &project(dir)).await;
            took += usize::from(matches!(outcome, lockkeeper::store::TakeLock::Taken(_)));
        }
        took
    };
    let (a, b, took) = tokio::join!(
        one.import(&first, ImportMode::Write),
        two.import(&second, ImportMode::Write),
        taking
    );
    let count = |outcome: lockkeeper::store::Imported| {
        outcome
            .locks
            .iter()
            .filter(|lock| matches!(lock, ImportedLock::Taken))
            .count()
    };
    assert_eq!(count(a.unwrap()) + count(b.unwrap()) + took, dirs.len());
    assert_eq!(db.store().lock_list().await.unwrap().len(), dirs.len());
}

async fn a_trial_of_a_database_without_tables_finds_none(db: &TestDb) {
    use crate::support::db::Backend;
    use crate::support::postgres::{Content, new_database};
    use lockkeeper::store::DatabaseUrl;

    let clock = || (db.clock.clone(), db.ids.clone());
    let existing = Store::open_existing(&db.url, clock().0, clock().1)
        .await
        .unwrap();
    assert!(existing.unwrap().lock_list().await.unwrap().is_empty());
    let path = db.dir.path().join("none.db");
    let none = match db.backend {
        Backend::Sqlite => DatabaseUrl::Sqlite(path.clone()),
        Backend::Postgres => new_database(Content::Empty).await,
    };
    assert!(
        Store::open_existing(&none, clock().0, clock().1)
            .await
            .unwrap()
            .is_none()
    );
    assert!(!path.exists());
}
