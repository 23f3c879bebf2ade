//! Tests of the recorded heads of open pull requests. If an event and a reconciler find the same head, one of them
//! counts.

use futures::future::join_all;
use lockkeeper::model::{BranchName, CommandKind, CommitSha, PullHead, PullState};
use lockkeeper::store::{CreateCommand, HeadUpdate, KnownHead, NewCommand};

use super::samples::{URL, new_command, pull};
use crate::support::db::{TestDb, by, store_test};

store_test!(
    what_is_told_last_counts,
    what_is_found_counts_unless_an_event_was_faster,
    a_first_note_changes_nothing_that_is_known,
    a_pull_that_is_closed_stands_nowhere,
    found_on_many_connections_at_once_leads_to_one_command,
    a_delivery_that_is_known_changes_nothing,
);

fn at(digit: &str) -> PullHead {
    let head = CommitSha::new(&digit.repeat(40)).unwrap();
    PullHead {
        head,
        base_branch: BranchName::new("main").unwrap(),
        draft: false,
    }
}

async fn known(db: &TestDb) -> Option<(PullHead, bool)> {
    let known = db.reopen().await.head_get(&pull(1)).await.unwrap();
    known.map(|KnownHead { at, found_at, .. }| (at, found_at.is_some()))
}

async fn what_is_told_last_counts(db: &TestDb) {
    assert_eq!(known(db).await, None);
    for digit in ["a", "b", "a"] {
        assert!(
            db.store()
                .head_note(&pull(1), HeadUpdate::Event(Some(&at(digit))))
                .await
                .unwrap()
        );
        assert_eq!(known(db).await, Some((at(digit), false)));
    }
    assert!(
        db.store()
            .head_note(&pull(1), HeadUpdate::Event(None))
            .await
            .unwrap()
    );
    assert_eq!(
        known(db).await,
        Some((at("a"), false)),
        "an event without details changes nothing"
    );
    let draft = PullHead {
        draft: true,
        base_branch: BranchName::new("release").unwrap(),
        ..at("c")
    };
    db.store()
        .head_note(&pull(2), HeadUpdate::Event(Some(&draft)))
        .await
        .unwrap();
    let list = db.store().head_list(&pull(1).repo).await.unwrap();
    assert_eq!(
        list.iter()
            .map(|known| (known.number.0, known.at.clone()))
            .collect::<Vec<_>>(),
        [(1, at("a")), (2, draft)]
    );
}

async fn what_is_found_counts_unless_an_event_was_faster(db: &TestDb) {
    let (store, pull) = (db.store(), pull(1));
    assert!(
        store
            .head_note(
                &pull,
                HeadUpdate::Forge {
                    known: None,
                    at: &at("a")
                }
            )
            .await
            .unwrap()
    );
    assert_eq!(known(db).await, Some((at("a"), true)));
    assert!(
        !store
            .head_note(
                &pull,
                HeadUpdate::Forge {
                    known: None,
                    at: &at("b")
                }
            )
            .await
            .unwrap()
    );
    assert!(
        !store
            .head_note(
                &pull,
                HeadUpdate::Forge {
                    known: Some(&at("c")),
                    at: &at("b")
                }
            )
            .await
            .unwrap()
    );
    assert!(
        store
            .head_note(
                &pull,
                HeadUpdate::Forge {
                    known: Some(&at("a")),
                    at: &at("b")
                }
            )
            .await
            .unwrap()
    );
    assert_eq!(known(db).await, Some((at("b"), true)));
    store
        .head_note(&pull, HeadUpdate::Event(Some(&at("c"))))
        .await
        .unwrap();
    assert_eq!(
        known(db).await,
        Some((at("c"), true)),
        "other events may still be late"
    );
}

async fn a_first_note_changes_nothing_that_is_known(db: &TestDb) {
    for digit in ["a", "b"] {
        db.store()
            .head_note_first(&pull(1), &at(digit))
            .await
            .unwrap();
        assert_eq!(known(db).await, Some((at("a"), false)));
    }
}

async fn a_pull_that_is_closed_stands_nowhere(db: &TestDb) {
    db.store()
        .head_note_first(&pull(1), &at("a"))
        .await
        .unwrap();
    db.store()
        .head_note_first(&pull(2), &at("a"))
        .await
        .unwrap();
    db.store()
        .pull_close(&pull(1), PullState::Merged, URL, by(), |_| vec![])
        .await
        .unwrap();
    assert_eq!(known(db).await, None);
    assert!(db.store().head_get(&pull(2)).await.unwrap().is_some());
}

async fn found_on_many_connections_at_once_leads_to_one_command(db: &TestDb) {
    db.store()
        .head_note_first(&pull(1), &at("a"))
        .await
        .unwrap();
    let new = new_command(CommandKind::Autoplan, &pull(1));
    let find = async || {
        let (known, at) = (at("a"), at("b"));
        let news = HeadUpdate::Forge {
            known: Some(&known),
            at: &at,
        };
        db.reopen()
            .await
            .command_create_instead(&new, |_| vec![], "a newer commit was pushed", news)
            .await
            .unwrap()
            .0
    };
    let told = async || {
        let at = at("b");
        db.reopen()
            .await
            .head_note(&pull(1), HeadUpdate::Event(Some(&at)))
            .await
            .unwrap();
    };
    let (outcomes, ()) = tokio::join!(join_all((0..8).map(|_| find())), told());
    let created = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, CreateCommand::Created(_)))
        .count();
    assert!(created <= 1, "{created}");
    assert_eq!(db.store().command_list(10).await.unwrap().len(), created);
    assert_eq!(known(db).await.unwrap().0, at("b"));
}

async fn a_delivery_that_is_known_changes_nothing(db: &TestDb) {
    let delivery = Some(lockkeeper::model::DeliveryId::next(&*db.ids));
    let new = NewCommand {
        delivery,
        ..new_command(CommandKind::Autoplan, &pull(1))
    };
    let tell = async |digit: &str| {
        let at = at(digit);
        let news = HeadUpdate::Event(Some(&at));
        db.store()
            .command_create_instead(&new, |_| vec![], "a newer commit was pushed", news)
            .await
            .unwrap()
            .0
    };
    assert!(matches!(tell("a").await, CreateCommand::Created(_)));
    assert_eq!(tell("b").await, CreateCommand::Known);
    assert_eq!(known(db).await, Some((at("a"), false)));
}
