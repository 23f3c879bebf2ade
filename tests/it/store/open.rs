//! Tests of opening a database, and of migrating it.

use std::sync::Arc;

use lockkeeper::claims::application_add;
use lockkeeper::clock::{CountingIds, ManualClock};
use lockkeeper::model::{ApplicationFields, ForgeHosts, PullState, Rights};
use lockkeeper::store::{DatabaseUrl, Store};
use sqlx::{Connection, Executor};

use super::samples::{URL, open_pull, project, pull, taken};
use crate::support::db::{Backend, TestDb, by, execute, start_of_time, store_test};
use crate::support::postgres::{Content, new_database};

store_test!(
    migrations_apply_to_an_empty_database_and_change_nothing_on_a_current_one,
    replicas_may_open_a_current_database_together,
    a_database_of_a_newer_release_still_opens,
    what_an_older_release_has_written_is_read_and_allows_no_more_than_it_said,
    only_a_database_on_a_server_is_shared,
    a_closed_store_answers_no_more,
    a_database_that_does_not_exist_is_an_error,
);

async fn open(url: &DatabaseUrl) -> Result<Store, sqlx::Error> {
    Store::open(
        url,
        Arc::new(ManualClock::new(start_of_time())),
        Arc::new(CountingIds::default()),
    )
    .await
}

async fn empty_database(db: &TestDb) -> DatabaseUrl {
    match db.backend {
        Backend::Sqlite => DatabaseUrl::Sqlite(db.dir.path().join("empty.db")),
        Backend::Postgres => new_database(Content::Empty).await,
    }
}

async fn migrations_apply_to_an_empty_database_and_change_nothing_on_a_current_one(db: &TestDb) {
    let url = empty_database(db).await;
    for _ in 0..2 {
        let store = open(&url).await.unwrap();
        store.ping().await.unwrap();
        store
            .pull_seen(&pull(1), PullState::Merged, URL)
            .await
            .unwrap();
        store.close().await;
    }
    assert_eq!(
        open(&url)
            .await
            .unwrap()
            .pull_state(&pull(1))
            .await
            .unwrap(),
        Some(PullState::Merged)
    );
}

async fn replicas_may_open_a_current_database_together(db: &TestDb) {
    for store in futures::future::join_all((0..4).map(|_| open(&db.url))).await {
        store.unwrap().ping().await.unwrap();
    }
}

/// While replicas are replaced one by one, an old one must be able to restart.
async fn a_database_of_a_newer_release_still_opens(db: &TestDb) {
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (9999, 'from the future', TRUE, '', 0)";
    match &db.url {
        DatabaseUrl::Sqlite(path) => {
            let options = sqlx_sqlite::SqliteConnectOptions::new().filename(path);
            sqlx_sqlite::SqliteConnection::connect_with(&options)
                .await
                .unwrap()
                .execute(newer)
                .await
                .unwrap();
        }
        DatabaseUrl::Postgres(options) => {
            sqlx_postgres::PgConnection::connect_with(options)
                .await
                .unwrap()
                .execute(newer)
                .await
                .unwrap();
        }
    }
    db.reopen().await.ping().await.unwrap();
}

/// In the first tables, applications had no branches, and names of repositories could contain other characters than
/// ASCII.
async fn what_an_older_release_has_written_is_read_and_allows_no_more_than_it_said(db: &TestDb) {
    let owner = "net".parse().unwrap();
    drop(db.store().owner_create(&owner, by()).await.unwrap());
    let fields = ApplicationFields {
        url: Some("https://github.com/acme/infra"),
        branch: Some("release"),
        any_branch: Some(true),
        ..ApplicationFields::default()
    };
    let spec = fields.spec(&ForgeHosts::public()).unwrap();
    let app = application_add(db.store(), &owner, &spec, (Rights::Whole, by()))
        .await
        .unwrap()
        .or_why()
        .unwrap();
    let at = open_pull(db.store(), 1).await;
    taken(db.store(), &at, &project("network")).await;
    for sql in [
        "ALTER TABLE applications DROP COLUMN any_branch",
        "DELETE FROM _sqlx_migrations WHERE version = 2",
        "UPDATE locks SET repo = 'github.com/acme/ünfra x'",
    ] {
        execute(db, sql).await;
    }
    let store = db.reopen().await;
    let read = store.application_get(app.id).await.unwrap().unwrap();
    assert_eq!(
        (read.spec.branch.as_str(), read.spec.any_branch),
        ("release", false)
    );
    let locks = store.lock_list().await.unwrap();
    assert_eq!(locks[0].key.repo.to_string(), "github.com/acme/ünfra x");
}

async fn only_a_database_on_a_server_is_shared(db: &TestDb) {
    assert_eq!(db.store().is_shared(), db.backend == Backend::Postgres);
}

async fn a_closed_store_answers_no_more(db: &TestDb) {
    db.store().ping().await.unwrap();
    db.store().close().await;
    db.store().ping().await.unwrap_err();
    db.store()
        .pull_seen(&pull(1), PullState::Open, URL)
        .await
        .unwrap_err();
    db.reopen().await.ping().await.unwrap();
}

async fn a_database_that_does_not_exist_is_an_error(db: &TestDb) {
    let url = match &db.url {
        DatabaseUrl::Sqlite(path) => DatabaseUrl::Sqlite(path.join("under a file.db")),
        DatabaseUrl::Postgres(options) => {
            DatabaseUrl::Postgres(Box::new((**options).clone().database("nowhere")))
        }
    };
    assert!(open(&url).await.is_err());
}
