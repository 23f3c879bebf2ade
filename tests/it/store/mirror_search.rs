//! Tests of the search for mirrors.

use lockkeeper::model::{
    AttemptLease, DataDirId, FailureKind, Jitter, MirrorEvent, RepoId, SyncFailure, SyncState,
};
use lockkeeper::store::{FoundMirrors, MirrorChange, MirrorSearch};

use super::samples::HOSTILE;
use crate::support::db::{TestDb, store_test};

store_test!(
    what_is_in_trouble_comes_first,
    a_search_finds_names_in_any_case_and_takes_every_character_for_itself,
    mirrors_of_all_disks_are_counted,
);

async fn know(db: &TestDb, data_dir_id: &str, repos: &[&str]) {
    for repo in repos {
        assert!(
            db.store()
                .mirror_know(&data_dir_id.parse().unwrap(), &repo.parse().unwrap())
                .await
                .unwrap()
        );
    }
}

async fn change(db: &TestDb, data_dir_id: &str, repo: &str, event: MirrorEvent) {
    let (data_dir_id, repo): (DataDirId, RepoId) =
        (data_dir_id.parse().unwrap(), repo.parse().unwrap());
    let change = db
        .store()
        .mirror_change(&data_dir_id, &repo, &event)
        .await
        .unwrap();
    assert!(matches!(change, MirrorChange::Changed(_)), "{change:?}");
}

async fn started(db: &TestDb, data_dir_id: &str, repo: &str) {
    let lease = AttemptLease {
        key: "k".to_owned(),
        holder: "one/1".to_owned(),
    };
    change(
        db,
        data_dir_id,
        repo,
        MirrorEvent::Started {
            at: db.now(),
            lease,
        },
    )
    .await;
}

async fn failed(db: &TestDb, data_dir_id: &str, repo: &str) {
    started(db, data_dir_id, repo).await;
    let failure = SyncFailure {
        kind: FailureKind::Unreachable,
        message: "no answer".to_owned(),
    };
    let (at, holder) = (db.now(), "one/1".to_owned());
    change(
        db,
        data_dir_id,
        repo,
        MirrorEvent::Failed {
            at,
            holder,
            failure,
            jitter: Jitter::of("x"),
        },
    )
    .await;
}

async fn search(db: &TestDb, state: Option<SyncState>, text: &str) -> (Vec<String>, i64) {
    let FoundMirrors { rows, count } = db
        .store()
        .mirror_search(MirrorSearch {
            state,
            text,
            limit: 10,
            ..MirrorSearch::default()
        })
        .await
        .unwrap();
    (
        rows.into_iter()
            .map(|row| format!("{} {}", row.data_dir_id, row.repo.name()))
            .collect(),
        count,
    )
}

fn names(names: &[&str], count: i64) -> (Vec<String>, i64) {
    (names.iter().map(ToString::to_string).collect(), count)
}

async fn what_is_in_trouble_comes_first(db: &TestDb) {
    assert_eq!(search(db, None, "").await, names(&[], 0));
    for data_dir_id in ["b", "a"] {
        know(
            db,
            data_dir_id,
            &[
                "github.com/acme/a",
                "github.com/acme/b",
                "github.com/acme/c",
            ],
        )
        .await;
    }
    failed(db, "b", "github.com/acme/c").await;
    started(db, "a", "github.com/acme/b").await;
    assert_eq!(
        search(db, None, "").await,
        names(&["b c", "a b", "a a", "b a", "b b", "a c"], 6)
    );
    assert_eq!(
        search(db, Some(SyncState::Failed), "").await,
        names(&["b c"], 1)
    );
    let first = db
        .store()
        .mirror_search(MirrorSearch {
            limit: 2,
            ..MirrorSearch::default()
        })
        .await
        .unwrap();
    assert_eq!((first.rows.len(), first.count), (2, 6));
}

async fn a_search_finds_names_in_any_case_and_takes_every_character_for_itself(db: &TestDb) {
    know(
        db,
        "a",
        &[
            "github.com/acme/net_work",
            "github.com/acme/network",
            "github.com/acme/netXwork",
        ],
    )
    .await;
    assert_eq!(search(db, None, "NET_").await, names(&["a net_work"], 1));
    assert_eq!(search(db, None, "xwork").await.1, 1);
    assert_eq!(search(db, None, "acme/net").await.1, 3);
    assert_eq!(search(db, Some(SyncState::Pending), "work").await.1, 3);
    for text in ["%", "!", "\\", "'", "\0", HOSTILE] {
        assert_eq!(search(db, None, text).await, names(&[], 0), "{text:?}");
    }
}

async fn mirrors_of_all_disks_are_counted(db: &TestDb) {
    assert_eq!(db.store().mirror_count_all(None).await.unwrap(), []);
    know(db, "a", &["github.com/acme/a", "github.com/acme/b"]).await;
    know(db, "b", &["github.com/acme/a"]).await;
    failed(db, "b", "github.com/acme/a").await;
    let counts = db.store().mirror_count_all(None).await.unwrap();
    assert_eq!(counts, [(SyncState::Failed, 1), (SyncState::Pending, 2)]);
}
