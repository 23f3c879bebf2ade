//! Tests of repositories whose lists of open pull requests are read, and of the pages of these lists.

use chrono::TimeDelta;
use futures::future::join_all;
use lockkeeper::features::events::{ForgePage, WatchedRepo};
use lockkeeper::model::Subject;
use lockkeeper::model::{PullRef, PullState, RepoId};
use lockkeeper::store::HeadUpdate;

use super::samples::{HOSTILE, URL, pull};
use crate::support::db::{TestDb, store_test};

store_test!(
    an_event_makes_a_repository_known,
    repositories_of_pulls_on_record_are_found,
    whoever_was_not_looked_at_for_longest_goes_first,
    of_many_that_claim_a_turn_one_gets_it,
    an_event_of_a_repository_that_could_not_be_seen_makes_it_due_at_once,
    pages_are_kept_replaced_and_forgotten,
);

const HOUR: TimeDelta = TimeDelta::hours(1);

fn of(name: &str) -> PullRef {
    PullRef {
        repo: format!("github.com/acme/{name}").parse().unwrap(),
        ..pull(1)
    }
}

async fn tell(db: &TestDb, name: &str) {
    db.store()
        .head_note(&of(name), HeadUpdate::Event(None))
        .await
        .unwrap();
}

async fn due(db: &TestDb) -> Vec<WatchedRepo> {
    db.reopen().await.watched_list_due(10).await.unwrap()
}

fn names(watched: &[WatchedRepo]) -> Vec<&str> {
    watched.iter().map(|watched| watched.repo.name()).collect()
}

async fn an_event_makes_a_repository_known(db: &TestDb) {
    let start = db.now();
    for _ in 0..2 {
        tell(db, "infra").await;
        db.clock.advance(std::time::Duration::from_secs(1));
        let watched = due(db).await.remove(0);
        assert_eq!(
            (watched.known_at, watched.due_at, watched.failures),
            (start, start, 0)
        );
    }
}

async fn repositories_of_pulls_on_record_are_found(db: &TestDb) {
    db.store()
        .pull_seen(&of("infra"), PullState::Open, URL)
        .await
        .unwrap();
    let start = db.now();
    db.clock.advance(std::time::Duration::from_mins(1));
    db.store()
        .pull_seen(
            &PullRef {
                subject: Subject::pull(2),
                ..of("infra")
            },
            PullState::Open,
            URL,
        )
        .await
        .unwrap();
    tell(db, "told").await;
    db.store()
        .pull_seen(&of("told"), PullState::Open, URL)
        .await
        .unwrap();
    assert_eq!(db.store().watched_discover().await.unwrap(), 1);
    assert_eq!(db.store().watched_discover().await.unwrap(), 0);
    let watched = due(db).await;
    assert_eq!(names(&watched), ["infra", "told"]);
    assert_eq!(watched[0].known_at, start);
}

async fn whoever_was_not_looked_at_for_longest_goes_first(db: &TestDb) {
    for name in ["a", "b", "c"] {
        tell(db, name).await;
    }
    let all = due(db).await;
    assert_eq!(names(&all), ["a", "b", "c"]);
    assert!(
        db.store()
            .watched_claim(&all[0], db.now() + HOUR)
            .await
            .unwrap()
    );
    assert_eq!(names(&due(db).await), ["b", "c"]);
    assert_eq!(names(&db.store().watched_list_due(1).await.unwrap()), ["b"]);
    db.clock.advance(std::time::Duration::from_hours(1));
    assert_eq!(names(&due(db).await), ["b", "c", "a"]);
}

async fn of_many_that_claim_a_turn_one_gets_it(db: &TestDb) {
    tell(db, "infra").await;
    let watched = due(db).await.remove(0);
    let claims = (0..8).map(|_| async {
        db.reopen()
            .await
            .watched_claim(&watched, db.now() + HOUR)
            .await
            .unwrap()
    });
    assert_eq!(
        join_all(claims)
            .await
            .into_iter()
            .filter(|claimed| *claimed)
            .count(),
        1
    );
}

async fn an_event_of_a_repository_that_could_not_be_seen_makes_it_due_at_once(db: &TestDb) {
    tell(db, "infra").await;
    let repo = of("infra").repo;
    for _ in 0..2 {
        db.store()
            .watched_failed(&repo, db.now() + HOUR)
            .await
            .unwrap();
    }
    assert!(due(db).await.is_empty());
    tell(db, "infra").await;
    let watched = due(db).await.remove(0);
    assert_eq!(watched.failures, 0);
    db.store().watched_failed(&repo, db.now()).await.unwrap();
    assert_eq!(due(db).await[0].failures, 1);
    db.store().watched_seen(&repo, false).await.unwrap();
    assert_eq!(due(db).await[0].failures, 0);
}

async fn pages_are_kept_replaced_and_forgotten(db: &TestDb) {
    let (infra, other): (RepoId, RepoId) = (of("infra").repo, of("other").repo);
    let page = |page, etag: &str| ForgePage {
        page,
        etag: etag.to_owned(),
        content: HOSTILE.replace('\0', ""),
    };
    for kept in [page(2, "b"), page(1, "old"), page(1, "a"), page(3, "c")] {
        db.store().forge_page_keep(&infra, &kept).await.unwrap();
    }
    db.store()
        .forge_page_keep(&other, &page(1, "x"))
        .await
        .unwrap();
    assert_eq!(
        db.reopen().await.forge_page_list(&infra).await.unwrap(),
        [page(1, "a"), page(2, "b"), page(3, "c")]
    );
    db.store().forge_page_forget(&infra, 2).await.unwrap();
    assert_eq!(
        db.store().forge_page_list(&infra).await.unwrap(),
        [page(1, "a")]
    );
    assert_eq!(
        db.store().forge_page_list(&other).await.unwrap(),
        [page(1, "x")]
    );
}
