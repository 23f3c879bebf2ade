//! Project locks (P4, P7).

use crate::support::db::{TestDb, store_test};

store_test!(an_empty_database_answers);

async fn an_empty_database_answers(db: &TestDb) {
    db.store().ping().await.unwrap();
}
