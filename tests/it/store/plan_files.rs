//! Tests of plan files in the database.

use lockkeeper::model::{PlanRecord, PlanState};
use lockkeeper::store::{ApplyGate, PlanParts, RecordPlan};
use lockkeeper::workflow::{ArtifactError, Artifacts};

use super::samples::{begin_apply, new_plan, open_pull, project, taken};
use crate::support::db::{TestDb, by, store_test};

store_test!(
    a_plan_file_is_kept_with_its_record_and_read_by_every_replica,
    a_plan_that_is_not_recorded_leaves_no_file,
    the_files_of_plans_that_nobody_can_apply_go,
    a_plan_file_that_is_too_large_is_refused_with_the_limit_and_the_ways_out,
    a_plan_file_that_was_changed_or_removed_is_not_used,
);

const FILE: &[u8] = b"plan\0\xff";
const LIMIT: u64 = 16;

async fn kept(db: &TestDb, dir: &str) -> PlanRecord {
    let one = open_pull(db.store(), 1).await;
    let lock = taken(db.store(), &one, &project(dir)).await;
    let plan = new_plan(db, &one, &project(dir)).await;
    let saved = Artifacts::in_database(db.store().clone(), LIMIT)
        .save(plan.id, FILE.to_vec())
        .await
        .unwrap();
    let plan = PlanRecord {
        digest: Some(saved.digest),
        ..plan
    };
    let recorded = db
        .store()
        .plan_record(
            &plan,
            Some(lock.id),
            saved.with_record.as_deref(),
            &PlanParts::default(),
        )
        .await
        .unwrap();
    assert_eq!(recorded, RecordPlan::Recorded);
    plan
}

async fn a_plan_file_is_kept_with_its_record_and_read_by_every_replica(db: &TestDb) {
    let plan = kept(db, "a").await;
    let elsewhere = Artifacts::in_database(db.reopen().await, LIMIT);
    assert_eq!(elsewhere.load(&plan).await.unwrap(), FILE);
}

async fn a_plan_that_is_not_recorded_leaves_no_file(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let lock = taken(db.store(), &one, &project("a")).await;
    let plan = new_plan(db, &one, &project("a")).await;
    assert!(
        db.store()
            .lock_release(&one, &project("a"), by())
            .await
            .unwrap()
    );
    let recorded = db
        .store()
        .plan_record(&plan, Some(lock.id), Some(FILE), &PlanParts::default())
        .await
        .unwrap();
    assert_eq!(recorded, RecordPlan::LockLost);
    assert_eq!(db.store().plan_file_get(plan.id).await.unwrap(), None);
}

async fn the_files_of_plans_that_nobody_can_apply_go(db: &TestDb) {
    let (waiting, failed) = (kept(db, "waiting").await, kept(db, "failed").await);
    let (applied, discarded) = (kept(db, "applied").await, kept(db, "discarded").await);
    for (plan, state) in [
        (&failed, PlanState::ApplyFailed),
        (&applied, PlanState::Applied),
    ] {
        let ApplyGate::Granted(grant) = begin_apply(db.store(), plan).await else {
            panic!("nothing stops this")
        };
        db.store()
            .apply_end(grant, &plan.pull, state, by())
            .await
            .unwrap();
    }
    db.store()
        .plan_drop(&discarded.pull, &discarded.project, by())
        .await
        .unwrap();
    assert_eq!(db.store().plan_file_prune(500).await.unwrap(), 2);
    for (plan, is_there) in [
        (&waiting, true),
        (&failed, true),
        (&applied, false),
        (&discarded, false),
    ] {
        assert_eq!(
            db.store().plan_file_get(plan.id).await.unwrap().is_some(),
            is_there,
            "{}",
            plan.project
        );
    }
    db.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(
        db.store().plan_prune(db.now(), 500).await.unwrap(),
        [discarded.id]
    );
}

async fn a_plan_file_that_is_too_large_is_refused_with_the_limit_and_the_ways_out(db: &TestDb) {
    let files = Artifacts::in_database(db.store().clone(), LIMIT);
    let id = lockkeeper::model::PlanId::next(&*db.ids);
    assert!(files.save(id, vec![0; 16]).await.is_ok());
    let error = files.save(id, vec![0; 17]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the plan file has 17 bytes, but the database stores at most 16 (`--plan-size-limit`). Store plan files in a \
         directory that the servers share (`--share-plan-dir`), or raise the limit"
    );
}

async fn a_plan_file_that_was_changed_or_removed_is_not_used(db: &TestDb) {
    let files = Artifacts::in_database(db.store().clone(), LIMIT);
    let plan = kept(db, "a").await;
    let other = PlanRecord {
        digest: Some(lockkeeper::model::Sha256Digest::of(b"another")),
        ..plan.clone()
    };
    assert!(matches!(
        files.load(&other).await,
        Err(ArtifactError::Altered { .. })
    ));
    for _ in 0..2 {
        files.remove(plan.id).await.unwrap();
    }
    assert!(matches!(files.load(&plan).await, Err(ArtifactError::Missing(id)) if id == plan.id));
}
