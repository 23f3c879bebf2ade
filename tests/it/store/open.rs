//! Opening a database, and bringing it up to date.

use std::sync::Arc;

use lockkeeper::clock::{CountingIds, ManualClock};
use lockkeeper::model::PullState;
use lockkeeper::store::{DatabaseUrl, Store};
use sqlx::{Connection, Executor};

use super::samples::{URL, pull};
use crate::support::db::{Backend, TestDb, start_of_time, store_test};
use crate::support::postgres::{Content, new_database};

store_test!(
    migrations_apply_to_an_empty_database_and_change_nothing_on_a_current_one,
    replicas_may_open_a_current_database_together,
    a_database_of_a_newer_release_still_opens,
    only_a_database_on_a_server_is_shared,
    a_closed_store_answers_no_more,
    a_database_that_does_not_exist_is_an_error,
);

async fn open(url: &DatabaseUrl) -> Result<Store, sqlx::Error> {
    Store::open(url, Arc::new(ManualClock::new(start_of_time())), Arc::new(CountingIds::default())).await
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
        store.pull_seen(&pull(1), PullState::Merged, URL).await.unwrap();
        store.close().await;
    }
    assert_eq!(open(&url).await.unwrap().pull_state(&pull(1)).await.unwrap(), Some(PullState::Merged));
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
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
            sqlx::SqliteConnection::connect_with(&options).await.unwrap().execute(newer).await.unwrap();
        }
        DatabaseUrl::Postgres(options) => {
            sqlx::PgConnection::connect_with(options).await.unwrap().execute(newer).await.unwrap();
        }
    }
    db.reopen().await.ping().await.unwrap();
}

async fn only_a_database_on_a_server_is_shared(db: &TestDb) {
    assert_eq!(db.store().is_shared(), db.backend == Backend::Postgres);
}

async fn a_closed_store_answers_no_more(db: &TestDb) {
    db.store().ping().await.unwrap();
    db.store().close().await;
    db.store().ping().await.unwrap_err();
    db.store().pull_seen(&pull(1), PullState::Open, URL).await.unwrap_err();
    db.reopen().await.ping().await.unwrap();
}

async fn a_database_that_does_not_exist_is_an_error(db: &TestDb) {
    let url = match &db.url {
        DatabaseUrl::Sqlite(path) => DatabaseUrl::Sqlite(path.join("under a file.db")),
        DatabaseUrl::Postgres(options) => DatabaseUrl::Postgres(Box::new((**options).clone().database("nowhere"))),
    };
    assert!(open(&url).await.is_err());
}
