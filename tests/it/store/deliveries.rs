//! Tests of webhook requests as received (P1, P2).

use std::time::Duration;

use futures::future::join_all;
use lockkeeper::store::{Accepted, DeliveryState, JobState, NewDelivery, Store};

use super::samples::{HOSTILE, job};
use crate::support::db::{TestDb, start_of_time, store_test};
use crate::support::rows::deliveries;

store_test!(
    a_new_delivery_is_kept_together_with_its_job,
    the_same_delivery_again_does_nothing,
    a_delivery_that_means_nothing_is_kept_with_the_reason_and_without_a_job,
    a_reason_with_any_text_is_kept,
    the_same_delivery_on_many_connections_at_once_is_one,
    the_same_id_on_another_host_is_another_delivery,
    what_became_of_a_delivery_is_noted,
    old_deliveries_are_forgotten_when_they_are_finished,
    any_body_and_any_header_is_kept,
);

fn delivery(id: &str) -> NewDelivery {
    NewDelivery {
        host: "github.com".parse().unwrap(),
        forge_delivery: id.to_owned(),
        event: "issue_comment".to_owned(),
        content_type: "application/json".to_owned(),
        body: b"{}".to_vec(),
    }
}

async fn accept(store: &Store, new: &NewDelivery) -> Accepted {
    store
        .delivery_accept(new, &[], |id| job(&format!("delivery {id}")))
        .await
        .unwrap()
}

async fn a_delivery_that_means_nothing_is_kept_with_the_reason_and_without_a_job(db: &TestDb) {
    for expected in [false, true] {
        let accepted = db
            .store()
            .delivery_ignore(&delivery("d1"), "a push is not looked at")
            .await
            .unwrap();
        assert_eq!(accepted == Accepted::Duplicate, expected);
    }
    let [kept] = &deliveries(&db.url).await[..] else {
        panic!("one delivery was kept")
    };
    assert_eq!(
        (kept.state, kept.note.as_deref()),
        (DeliveryState::Ignored, Some("a push is not looked at"))
    );
    assert!(db.store().job_list_open().await.unwrap().is_empty());
}

/// The reason quotes the payload.
async fn a_reason_with_any_text_is_kept(db: &TestDb) {
    let reason = format!("{HOSTILE}\0");
    let _new = db
        .store()
        .delivery_ignore(&delivery("d1"), &reason)
        .await
        .unwrap();
    let [kept] = &deliveries(&db.url).await[..] else {
        panic!("one delivery was kept")
    };
    assert_eq!(kept.note, Some(reason.replace('\0', "\u{fffd}")));
}

async fn a_new_delivery_is_kept_together_with_its_job(db: &TestDb) {
    let Accepted::New(id) = accept(db.store(), &delivery("d1")).await else {
        panic!("the delivery is new")
    };
    let other = db.reopen().await;
    let [kept] = &deliveries(&db.url).await[..] else {
        panic!("one delivery was accepted")
    };
    assert_eq!(
        (
            kept.id.as_str(),
            kept.host.as_str(),
            kept.forge_delivery.as_str()
        ),
        (id.to_string().as_str(), "github.com", "d1")
    );
    assert_eq!(
        (kept.event.as_str(), kept.state, &kept.note),
        ("issue_comment", DeliveryState::Received, &None)
    );
    let [job] = &other.job_list_open().await.unwrap()[..] else {
        panic!("one job was made")
    };
    assert_eq!(
        (&job.lane, job.state),
        (&format!("delivery {id}"), JobState::Queued)
    );
}

async fn the_same_delivery_again_does_nothing(db: &TestDb) {
    assert!(matches!(
        accept(db.store(), &delivery("d1")).await,
        Accepted::New(_)
    ));
    let again = NewDelivery {
        body: b"other".to_vec(),
        event: "push".to_owned(),
        ..delivery("d1")
    };
    assert_eq!(accept(db.store(), &again).await, Accepted::Duplicate);
    assert_eq!(deliveries(&db.url).await[0].event, "issue_comment");
    assert_eq!(db.store().job_list_open().await.unwrap().len(), 1);
}

async fn the_same_delivery_on_many_connections_at_once_is_one(db: &TestDb) {
    let other = db.reopen().await;
    for round in 1..=20 {
        let new = delivery(&round.to_string());
        let stores = [db.store(), &other].into_iter().cycle().take(16);
        let outcomes = join_all(stores.map(|store| accept(store, &new))).await;
        assert_eq!(
            outcomes
                .iter()
                .filter(|outcome| matches!(outcome, Accepted::New(_)))
                .count(),
            1
        );
        assert_eq!(db.store().job_list_open().await.unwrap().len(), round);
    }
}

async fn the_same_id_on_another_host_is_another_delivery(db: &TestDb) {
    assert!(matches!(
        accept(db.store(), &delivery("d1")).await,
        Accepted::New(_)
    ));
    let elsewhere = NewDelivery {
        host: "git.example.com:8443".parse().unwrap(),
        ..delivery("d1")
    };
    assert!(matches!(
        accept(db.store(), &elsewhere).await,
        Accepted::New(_)
    ));
}

async fn what_became_of_a_delivery_is_noted(db: &TestDb) {
    let Accepted::New(id) = accept(db.store(), &delivery("d1")).await else {
        panic!("the delivery is new")
    };
    for (&state, note) in
        DeliveryState::ALL
            .iter()
            .zip([None, Some("why"), Some(HOSTILE), Some("nul \0")])
    {
        db.store().delivery_finish(id, state, note).await.unwrap();
        let kept = deliveries(&db.url).await.remove(0);
        assert_eq!(
            (kept.state, kept.note),
            (state, note.map(|note| note.replace('\0', "\u{fffd}")))
        );
    }
}

async fn old_deliveries_are_forgotten_when_they_are_finished(db: &TestDb) {
    let Accepted::New(done) = accept(db.store(), &delivery("done")).await else {
        panic!("the delivery is new")
    };
    assert!(matches!(
        accept(db.store(), &delivery("waiting")).await,
        Accepted::New(_)
    ));
    db.clock.advance(Duration::from_secs(1));
    let Accepted::New(young) = accept(db.store(), &delivery("young")).await else {
        panic!("the delivery is new")
    };
    for id in [done, young] {
        db.store()
            .delivery_finish(id, DeliveryState::Handled, None)
            .await
            .unwrap();
    }
    assert_eq!(
        db.store()
            .delivery_prune(start_of_time(), 500)
            .await
            .unwrap(),
        0
    );
    assert_eq!(db.store().delivery_prune(db.now(), 500).await.unwrap(), 1);
    let left: Vec<_> = deliveries(&db.url)
        .await
        .into_iter()
        .map(|d| d.forge_delivery)
        .collect();
    assert_eq!(left, ["young", "waiting"]);
    assert!(matches!(
        accept(db.store(), &delivery("done")).await,
        Accepted::New(_)
    ));
}

async fn any_body_and_any_header_is_kept(db: &TestDb) {
    let body: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let odd = NewDelivery {
        body,
        event: HOSTILE.to_owned(),
        content_type: "nul \0".to_owned(),
        ..delivery(HOSTILE)
    };
    assert!(matches!(accept(db.store(), &odd).await, Accepted::New(_)));
    assert_eq!(accept(db.store(), &odd).await, Accepted::Duplicate);
    let kept = deliveries(&db.url).await.remove(0);
    assert_eq!(
        (kept.forge_delivery.as_str(), kept.event.as_str()),
        (HOSTILE, HOSTILE)
    );
}
