//! Tests of leases on the page of operations, and of ending them there and over the API.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use chrono::TimeDelta;
use lockkeeper::config::access::WebRules;
use lockkeeper::store::{LeaseHold, NewLease, Presence, ReplicaId, Store, TakeLease};
use serde_json::{Value, json};

use super::fixture::{Browser, World};

const KEY: &str = "repository_sync:disk-1:github.com/acme/infra";

/// Creates a lease of a living server and one of a lost server.
async fn leases(world: &World) {
    let held = [
        (
            KEY,
            "keeper-1",
            TimeDelta::days(1),
            "sync <b>github.com/acme/infra</b>",
        ),
        (
            "reconciler:missed_events",
            "keeper-0",
            TimeDelta::seconds(-1),
            "Lists the open pull requests of the forge.",
        ),
    ];
    for (key, name, heard, purpose) in held {
        let (host, address, version) =
            (format!("{name}.example"), String::new(), "1.2.3".to_owned());
        let id = ReplicaId {
            name: name.to_owned(),
            host,
            address,
            version,
        };
        world
            .store
            .replica_beat(&id, Presence::Serving, &[], world.clock_now() + heard)
            .await
            .unwrap();
        let claim = LeaseHold {
            key: key.to_owned(),
            holder: format!("{name}/1"),
        };
        let new = NewLease {
            hold: &claim,
            purpose,
            until: world.clock_now() + TimeDelta::hours(3),
        };
        assert!(matches!(
            world.store.lease_take(new).await.unwrap(),
            TakeLease::Taken(_)
        ));
    }
    world.wait(600);
}

pub async fn world() -> World {
    let world = World::new().await;
    leases(&world).await;
    world
}

async fn delete(browser: &Browser, path: &str) -> (StatusCode, Value) {
    let answer = browser
        .send(browser.request("DELETE", path).body(Body::empty()).unwrap())
        .await;
    (
        answer.status,
        serde_json::from_str(&answer.body).unwrap_or(Value::Null),
    )
}

fn section(text: &str) -> &str {
    let (_, rest) = text.split_once("Leases\n").expect("the section is there");
    rest.split_once("\nReconcilers\n")
        .expect("another follows")
        .0
}

#[tokio::test]
async fn the_page_tells_who_does_what_since_when_and_until_when() {
    let text = world()
        .await
        .browser()
        .await
        .get("/operations")
        .await
        .text();
    insta::assert_snapshot!(section(&text));
    let text = World::new()
        .await
        .browser()
        .await
        .get("/operations")
        .await
        .text();
    assert!(
        section(&text).contains("No lease is held. No server is changing a mirror"),
        "{text}"
    );
}

#[tokio::test]
async fn a_list_that_is_cut_says_so() {
    let world = World::new().await;
    for n in 0..=Store::LEASES_LISTED {
        let claim = LeaseHold {
            key: format!("reconciler:{n:04}"),
            holder: "keeper-1/1".to_owned(),
        };
        let new = NewLease {
            hold: &claim,
            purpose: "looks",
            until: world.clock_now() + TimeDelta::hours(3),
        };
        assert!(matches!(
            world.store.lease_take(new).await.unwrap(),
            TakeLease::Taken(_)
        ));
    }
    let browser = world.browser().await;
    let text = browser.get("/operations").await.text();
    assert!(text.contains("At least 950 more are not shown"), "{text}");
    let json: Value =
        serde_json::from_str(&browser.without_cookie().get("/api/leases").await.body).unwrap();
    assert_eq!(
        (json["leases"].as_array().unwrap().len(), &json["more"]),
        (1000, &json!(true))
    );
}

#[tokio::test]
async fn a_lease_is_taken_away_on_the_page() {
    let world = world().await;
    let browser = world.browser().await;
    let form = "key=repository_sync%3Adisk-1%3Agithub.com%2Facme%2Finfra&holder=keeper-1%2F1";
    let path = "/operations/leases/release";
    let answer = browser.post(path, &format!("{form}&reason=+")).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer
            .text()
            .contains("The field “reason” cannot be used: it is empty."),
        "{}",
        answer.text()
    );
    assert_eq!(world.store.lock_event_list(9).await.unwrap(), []);
    for _ in 0..2 {
        let answer = browser
            .post(path, &format!("{form}&reason=the+line+hangs"))
            .await;
        assert_eq!(
            answer.header("location"),
            "/operations?notice=lease-stopping#leases"
        );
    }
    let text = browser
        .get("/operations?notice=lease-stopping")
        .await
        .text();
    assert!(
        text.contains("The server that holds the lease was asked to stop."),
        "{text}"
    );
    assert!(
        section(&text).contains("asked to stop\n") && section(&text).contains("stopping"),
        "{text}"
    );
    let events = world.store.lock_event_list(9).await.unwrap();
    let [event] = &events[..] else {
        panic!("one event: {events:?}")
    };
    let cause = &event.event.cause;
    assert_eq!(
        (event.event.kind.as_str(), cause.actor.login.as_str()),
        ("lease_released", "ops")
    );
    assert!(
        cause.reason.starts_with(&format!(
            "the line hangs; lease {KEY}, held by keeper-1/1 since"
        )),
        "{cause:?}"
    );
    let gone = "key=reconciler%3Amissed_events&holder=keeper-0%2F1&reason=x";
    assert_eq!(
        browser.post(path, gone).await.header("location"),
        "/operations?notice=lease-free#leases"
    );
    assert_eq!(
        browser.post(path, gone).await.header("location"),
        "/operations?notice=lease-gone#leases"
    );
    for notice in ["lease-free", "lease-gone"] {
        assert!(
            browser
                .get(&format!("/operations?notice={notice}"))
                .await
                .body
                .contains("role=\"status\"")
        );
    }
    assert!(
        !browser
            .get("/operations?notice=other")
            .await
            .body
            .contains("role=\"status\"")
    );
}

#[tokio::test]
async fn who_may_not_is_not_offered_it_and_is_refused() {
    let mut world = world().await;
    let token = world.browser().await.token().await;
    world.web_rules = WebRules::new(&["discard"]).unwrap();
    let browser = world.browser().await;
    assert!(
        !browser
            .get("/operations")
            .await
            .body
            .contains("Yes, release it")
    );
    let request = browser
        .request("POST", "/operations/leases/release")
        .header("sec-fetch-site", "same-origin");
    let fields =
        format!("token={token}&key=reconciler%3Amissed_events&holder=keeper-0%2F1&reason=x");
    assert_eq!(
        browser
            .send(super::fixture::form(request, &fields))
            .await
            .status,
        StatusCode::FORBIDDEN
    );
    let browser = browser.without_cookie();
    let (status, _) = delete(&browser, "/api/leases/reconciler:missed_events?reason=x").await;
    assert_eq!(
        (status, world.store.lease_list().await.unwrap().len()),
        (StatusCode::FORBIDDEN, 2)
    );
}

#[tokio::test]
async fn programs_see_leases_and_take_them_away() {
    let world = world().await;
    let browser = world.browser().await.without_cookie();
    let body = browser.get("/api/leases").await.body;
    let mut json: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["more"], json!(false));
    insta::assert_json_snapshot!(json["leases"][1].take(), @r#"
    {
      "holder": "keeper-1/1",
      "key": "repository_sync:disk-1:github.com/acme/infra",
      "purpose": "sync <b>github.com/acme/infra</b>",
      "renewed_at": "2026-03-04T05:06:07Z",
      "replica": "keeper-1",
      "replica_state": "alive",
      "revoked_at": null,
      "since": "2026-03-04T05:06:07Z",
      "until": "2026-03-04T08:06:07Z"
    }
    "#);
    assert_eq!(json["leases"][0]["replica_state"], json!("gone"));
    let path = format!("/api/leases/{KEY}");
    assert_eq!(
        delete(&browser, &path).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    assert_eq!(
        delete(&browser, &format!("{path}?reason=x&holder=keeper-0/1"))
            .await
            .0,
        StatusCode::NOT_FOUND
    );
    let (status, released) = delete(&browser, &format!("{path}?reason=x&holder=keeper-1/1")).await;
    assert_eq!(
        (status, &released["state"]),
        (StatusCode::ACCEPTED, &json!("stopping"))
    );
    assert_eq!(
        released["until"],
        json!("2026-03-04T05:17:07Z"),
        "a minute from now"
    );
    let path = "/api/leases/reconciler:missed_events?reason=x";
    let (status, released) = delete(&browser, path).await;
    assert_eq!(
        (status, &released["state"]),
        (StatusCode::OK, &json!("free"))
    );
    assert_eq!(delete(&browser, path).await.0, StatusCode::NOT_FOUND);
    let headers: HeaderMap = browser.get("/api/leases").await.headers;
    assert_eq!(headers["content-type"], "application/json");
}
