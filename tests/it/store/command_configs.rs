//! Tests of configurations that hooks wrote for a command, stored for its plans.

use lockkeeper::features::planning::WrittenConfig;
use lockkeeper::model::{CommandId, RepoPath};

use super::samples::{open_pull, planned, project};
use crate::support::db::{TestDb, by, store_test};

store_test!(
    what_was_written_for_a_command_is_found_by_its_plans,
    that_there_was_no_file_is_kept_as_well,
);

fn written(text: &str) -> WrittenConfig {
    WrittenConfig(Some((
        RepoPath::new("atlantis.yaml").unwrap(),
        text.to_owned(),
    )))
}

async fn command_of(db: &TestDb, plan: &lockkeeper::model::PlanRecord) -> CommandId {
    db.store().run_get(plan.run).await.unwrap().unwrap().command
}

async fn what_was_written_for_a_command_is_found_by_its_plans(db: &TestDb) {
    let pull = open_pull(db.store(), 1).await;
    let (old, new) = (
        planned(db, &pull, &project("a")).await,
        planned(db, &pull, &project("b")).await,
    );
    let (first, second) = (command_of(db, &old).await, command_of(db, &new).await);
    assert_eq!(db.store().command_config(first).await.unwrap(), None);
    assert_eq!(db.store().plan_configs(&pull).await.unwrap().len(), 0);
    db.store()
        .command_config_keep(first, &written("broken off"))
        .await
        .unwrap();
    db.store()
        .command_config_keep(first, &written("version: 3\n"))
        .await
        .unwrap();
    assert_eq!(
        db.store().command_config(first).await.unwrap(),
        Some(written("version: 3\n"))
    );
    assert_eq!(
        db.store().plan_configs(&pull).await.unwrap(),
        [(old.run, first)].into()
    );
    db.clock.advance(std::time::Duration::from_secs(1));
    let newest = planned(db, &pull, &project("c")).await;
    let third = command_of(db, &newest).await;
    db.store()
        .command_config_keep(third, &written("version: 3 # newest\n"))
        .await
        .unwrap();
    let head = Some(&newest.head);
    for command in [first, third] {
        assert!(db.store().command_start(command, head, &[]).await.unwrap());
    }
    let of_head = db
        .store()
        .command_config_of_head(&pull, &newest.head)
        .await
        .unwrap();
    assert_eq!(of_head, Some(written("version: 3 # newest\n")));
    assert_eq!(
        db.store()
            .command_config_of_head(&pull, &"c3".repeat(20).parse().unwrap())
            .await
            .unwrap(),
        None
    );
    db.store()
        .plan_drop(&pull, &newest.project, by())
        .await
        .unwrap();
    assert_eq!(
        db.store().plan_configs(&pull).await.unwrap(),
        [(old.run, first)].into()
    );
    assert_eq!(
        db.store()
            .command_config_of_head(&pull, &newest.head)
            .await
            .unwrap(),
        of_head,
        "without its plan, too"
    );
    assert_eq!(db.store().command_config(second).await.unwrap(), None);
}

async fn that_there_was_no_file_is_kept_as_well(db: &TestDb) {
    let pull = open_pull(db.store(), 1).await;
    let plan = planned(db, &pull, &project("a")).await;
    let command = command_of(db, &plan).await;
    db.store()
        .command_config_keep(command, &WrittenConfig(None))
        .await
        .unwrap();
    assert_eq!(
        db.store().command_config(command).await.unwrap(),
        Some(WrittenConfig(None))
    );
    assert_eq!(
        db.store().plan_configs(&pull).await.unwrap(),
        [(plan.run, command)].into()
    );
}
