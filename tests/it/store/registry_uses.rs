//! Tests of the versions of the registry that plans use.

use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::features::registry::{AddNamespace, ForeignVersions, Visibility};
use lockkeeper::model::{PlanRecord, PlanState, ProjectKey, PullRef, RunKind};
use lockkeeper::store::{ApplyChecks, ApplyGate, PlanParts, RecordPlan, Store};
use lockkeeper_registry::versions::VersionKey;

use super::registry::{add, delete, deprecate};
use super::samples::{new_plan, open_pull, plan_state, project, run, taken};
use crate::support::db::{TestDb, by, store_test};

store_test!(
    the_uses_of_a_plan_are_those_that_were_stored_with_it,
    a_plan_that_is_not_stored_has_no_uses,
    the_gate_stops_a_plan_whose_module_was_taken_down,
    uses_are_those_of_current_and_newest_plans_and_go_with_them,
);

fn key(version: &str) -> VersionKey {
    format!("module acme/vpc/aws {version}").parse().unwrap()
}

/// Adds three versions of a module, in a namespace that everyone reads.
async fn publish(store: &Store) {
    store
        .owner_create(&"net".parse().unwrap(), by())
        .await
        .map(drop)
        .unwrap();
    let (prefix, owner) = ("module acme".parse().unwrap(), "net".parse().unwrap());
    let added = store.registry_namespace_add(
        &prefix,
        &owner,
        Visibility::Public,
        ForeignVersions::Refuse,
        by(),
    );
    assert!(matches!(added.await.unwrap(), AddNamespace::Added(_)));
    for (number, version) in (1..).zip(["1.0.0", "1.1.0", "1.2.0"]) {
        let _added = add(store, &key(version), number).await;
    }
}

/// Stores a plan that uses these versions.
async fn planned(
    db: &TestDb,
    pull: &PullRef,
    project: &ProjectKey,
    uses: &[VersionKey],
) -> PlanRecord {
    let plan = new_plan(db, pull, project).await;
    let parts = PlanParts {
        modules: uses,
        ..PlanParts::default()
    };
    let recorded = db.store().plan_record(&plan, None, None, &parts);
    assert_eq!(recorded.await.unwrap(), RecordPlan::Recorded);
    plan
}

async fn apply(store: &Store, plan: &PlanRecord, checks_modules: bool) -> ApplyGate {
    let run = run(store, RunKind::Apply, &plan.pull, &plan.project).await;
    let checks = ApplyChecks {
        modules: checks_modules,
        ..ApplyChecks::default()
    };
    let begun = store.apply_begin(plan, run, None, &checks);
    begun.await.unwrap()
}

/// Returns the uses of the module as `pull dir version state`.
async fn uses(store: &Store, version: Option<&str>) -> Vec<String> {
    let version = version.map(key);
    let name = key("1.0.0").name();
    let uses = store.registry_uses(&name, version.as_ref(), 100);
    let uses = uses.await.unwrap().into_iter();
    uses.map(|used| {
        format!(
            "#{} {} {} {}",
            used.pull.subject,
            used.project.dir,
            used.key.version(),
            used.state
        )
    })
    .collect()
}

async fn the_uses_of_a_plan_are_those_that_were_stored_with_it(db: &TestDb) {
    let store = db.store();
    publish(store).await;
    let pull = open_pull(store, 1).await;
    let unknown = key("9.9.9");
    // A version that several modules of a configuration use counts once.
    let used = [key("1.0.0"), key("1.1.0"), key("1.0.0"), unknown];
    let plan = planned(db, &pull, &project("a"), &used).await;
    assert_eq!(store.registry_plan_notices(plan.id).await.unwrap(), []);
    let _deprecated = deprecate(store, &key("1.0.0"), "leaks addresses").await;
    let _deleted = delete(store, &key("1.1.0"), "has a key").await;
    // No plan uses it.
    let _deleted = delete(store, &key("1.2.0"), "not used").await;
    let notices = store.registry_plan_notices(plan.id).await.unwrap();
    let shown = notices.iter().map(|used| {
        let (notice, kind) = (&used.notice.notice, used.notice.takedown);
        (used.key.version(), kind.is_some(), notice.reason.as_str())
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            ("1.0.0".to_owned(), false, "leaks addresses"),
            ("1.1.0".to_owned(), true, "has a key")
        ]
    );
    assert_eq!(uses(store, Some("9.9.9")).await, ["#1 a 9.9.9 planned"]);
}

async fn a_plan_that_is_not_stored_has_no_uses(db: &TestDb) {
    let store = db.store();
    let pull = open_pull(store, 1).await;
    let lock = taken(store, &pull, &project("a")).await;
    let plan = new_plan(db, &pull, &project("a")).await;
    let released = store.lock_release(&pull, &project("a"), by()).await;
    assert!(released.unwrap());
    let used = [key("1.0.0")];
    let parts = PlanParts {
        modules: &used,
        ..PlanParts::default()
    };
    let recorded = store.plan_record(&plan, Some(lock.id), None, &parts);
    assert_eq!(recorded.await.unwrap(), RecordPlan::LockLost);
    assert_eq!(uses(store, None).await, [""; 0]);
}

async fn the_gate_stops_a_plan_whose_module_was_taken_down(db: &TestDb) {
    let store = db.store();
    publish(store).await;
    let pull = open_pull(store, 1).await;
    let other = planned(db, &pull, &project("b"), &[key("1.1.0")]).await;
    let plan = planned(db, &pull, &project("a"), &[key("1.0.0"), key("1.1.0")]).await;
    let _deprecated = deprecate(store, &key("1.0.0"), "leaks addresses").await;
    let _deprecated = deprecate(store, &key("1.1.0"), "leaks addresses").await;
    let _deleted = delete(store, &key("1.0.0"), "has a key").await;
    let gate = apply(store, &plan, true).await;
    assert!(matches!(gate, ApplyGate::ModuleTakenDown), "{gate:?}");
    assert_eq!(plan_state(db, &plan).await, PlanState::Planned);
    let gate = apply(store, &other, true).await;
    assert!(matches!(gate, ApplyGate::Granted(_)), "{gate:?}");
    // A server without a registry does not look.
    let gate = apply(store, &plan, false).await;
    assert!(matches!(gate, ApplyGate::Granted(_)), "{gate:?}");
}

async fn uses_are_those_of_current_and_newest_plans_and_go_with_them(db: &TestDb) {
    let store = db.store();
    let (one, two) = (open_pull(store, 1).await, open_pull(store, 2).await);
    let project = project("a");
    planned(db, &one, &project, &[key("1.0.0")]).await;
    db.clock.advance(Duration::from_secs(1));
    planned(db, &two, &project, &[key("1.1.0")]).await;
    assert_eq!(
        uses(store, None).await,
        ["#1 a 1.0.0 planned", "#2 a 1.1.0 planned"]
    );
    // Plans of closed pull requests are discarded, and the newest one still says what the project uses.
    for pull in [&one, &two] {
        store.plan_discard(pull, &project).await.unwrap();
    }
    assert_eq!(uses(store, None).await, ["#2 a 1.1.0 discarded"]);
    assert_eq!(uses(store, Some("1.0.0")).await, [""; 0]);
    assert_eq!(uses(store, Some("1.1.0")).await, ["#2 a 1.1.0 discarded"]);
    let pruned = store
        .plan_prune(db.now() + TimeDelta::seconds(1), 500)
        .await;
    assert_eq!(pruned.unwrap().len(), 2);
    assert_eq!(uses(store, None).await, [""; 0]);
}
