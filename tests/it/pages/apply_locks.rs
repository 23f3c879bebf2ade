//! Tests of the page of apply locks, and of their API.

use axum::body::Body;
use axum::http::{StatusCode, header};
use chrono::TimeDelta;
use lockkeeper::clock::Clock;
use lockkeeper::config::access::WebRules;
use lockkeeper::model::ApplyScope;
use serde_json::{Value, json};

use super::fixture::{Answer, Browser, World};
use super::home::settings;
use crate::support::db::{applies_in, stop_applies, stop_applies_of, stopped};

const INFRA: &str = "github.com/acme/infra";

/// Creates a server with an apply lock of every kind.
pub async fn world() -> World {
    let world = World::new().await;
    let freeze = Some(world.clock.now() + TimeDelta::days(3));
    stop_applies(&world.store, "olga", "the database moves").await;
    stop_applies_of(
        &world.store,
        &applies_in(INFRA, "."),
        freeze,
        "pete",
        "no changes over the weekend",
    )
    .await;
    stop_applies_of(
        &world.store,
        &applies_in(INFRA, "environments/production/network"),
        None,
        "rita",
        "maintenance",
    )
    .await;
    world.wait(7200);
    world
}

#[tokio::test]
async fn the_page_names_every_lock_with_its_reason_owner_and_end() {
    let page = world().await.browser().await.get("/apply-locks").await;
    settings().bind(|| insta::assert_snapshot!("apply locks", page.body));
}

#[tokio::test]
async fn the_page_of_a_server_without_any_says_so() {
    let text = World::new()
        .await
        .browser()
        .await
        .get("/apply-locks")
        .await
        .text();
    assert!(
        text.contains("In effect\n0\nNo apply locks.\nEvery pull request"),
        "{text}"
    );
}

#[tokio::test]
async fn the_first_page_tells_of_the_one_for_everything_and_counts_the_others() {
    let world = world().await;
    let text = world.browser().await.get("/").await.text();
    assert!(
        text.contains("All applies are stopped\nthe database moves\n"),
        "{text}"
    );
    assert!(text.contains("2 more apply locks\n"), "{text}");
    assert!(crate::support::db::allow_applies(&world.store).await);
    let text = world.browser().await.get("/").await.text();
    assert!(
        text.contains(
            "Applies are allowed, but not everywhere\n2 apply locks in repositories and directories"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn a_directory_is_stopped_for_a_time_and_allowed_again() {
    let world = World::new().await;
    let browser = world.browser().await;
    let fields = "scope=path&repo=+https%3A%2F%2Fgithub.com%2FAcme%2Finfra%2F&dir=.%2Fnetwork%2F&reason=freeze&until=2026-03-05T18%3A00";
    let answer = browser.post("/apply-locks", fields).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (StatusCode::SEE_OTHER, "/apply-locks?notice=set")
    );
    let lock = world.store.apply_lock_list().await.unwrap().remove(0);
    assert_eq!(lock.scope, applies_in(INFRA, "network"));
    assert_eq!(
        (lock.holder.login.as_str(), lock.reason.as_str()),
        ("ops", "freeze")
    );
    assert_eq!(
        lock.ends_at.unwrap().to_rfc3339(),
        "2026-03-05T18:00:00+00:00"
    );
    assert!(
        browser
            .get(answer.header("location"))
            .await
            .text()
            .contains("These applies are stopped.")
    );
    let event = world
        .store
        .lock_event_list(1)
        .await
        .unwrap()
        .remove(0)
        .event;
    assert_eq!(
        (
            event.cause.reason.as_str(),
            event.cause.actor.login.as_str()
        ),
        ("freeze (until 2026-03-05 18:00 UTC)", "ops")
    );

    let end = format!("/apply-locks/{}/end", lock.id);
    assert_eq!(
        browser.post(&end, "").await.header("location"),
        "/apply-locks?notice=ended"
    );
    assert_eq!(world.store.apply_lock_list().await.unwrap(), []);
    assert_eq!(
        browser.post(&end, "").await.header("location"),
        "/apply-locks?notice=gone"
    );
    assert_eq!(
        browser.post("/apply-locks/7/end", "").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn what_is_wrong_is_said_at_the_field_and_what_was_typed_stays() {
    let world = World::new().await;
    let browser = world.browser().await;
    let cases: [(&str, &[&str]); 9] = [
        ("scope=server&reason=+", &["Give a short reason"]),
        (
            "scope=server&reason=x&repo=github.com%2Fa%2Fb&dir=net",
            &["Choose one repository there", "Choose one directory there"],
        ),
        (
            "scope=repo&reason=x",
            &["Give the repository with its host"],
        ),
        (
            "scope=repo&reason=x&repo=infra",
            &["“infra” is not a repository: expected “host/owner/name”"],
        ),
        (
            "scope=repo&reason=x&repo=github.com%2Fa%2Fb&dir=net",
            &["A whole repository is chosen above"],
        ),
        (
            "scope=path&reason=x&dir=net",
            &["Give the repository of the directory"],
        ),
        (
            "scope=path&reason=x&repo=github.com%2Fa%2Fb&dir=..%2Fx",
            &["“../x” leaves the repository"],
        ),
        (
            "scope=server&reason=x&until=2026-03-04T05%3A00",
            &["2026-03-04 05:00 UTC is in the past: it is 2026-03-04 05:06 UTC now"],
        ),
        ("reason=x", &["Choose above which applies to stop"]),
    ];
    for (fields, problems) in cases {
        let answer = browser.post("/apply-locks", fields).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{fields}");
        for problem in problems {
            assert!(
                answer.text().contains(problem),
                "{fields} {}",
                answer.text()
            );
        }
        assert!(
            answer.body.contains("role=\"alert\"") && answer.body.contains("aria-invalid=\"true\""),
            "{fields}"
        );
        assert_eq!(answer.body.matches(" autofocus").count(), 1, "{fields}");
    }
    let fields = "scope=path&repo=%22%3Ex&dir=a+b&reason=because&until=soon";
    let page = browser.post("/apply-locks", fields).await.body;
    for kept in [
        "value=\"path\" checked",
        "value=\"&quot;&gt;x\"",
        "value=\"a b\"",
        "value=\"because\"",
        "value=\"soon\"",
    ] {
        assert!(page.contains(kept), "{kept} {page}");
    }
    assert_eq!(world.store.apply_lock_list().await.unwrap(), []);
}

#[tokio::test]
async fn a_lock_that_somebody_set_before_stays_and_is_named() {
    let world = world().await;
    let answer = world
        .browser()
        .await
        .post(
            "/apply-locks",
            "scope=repo&repo=github.com%2Facme%2Finfra&reason=mine",
        )
        .await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    let said = "pete has stopped these applies since 2026-03-04 05:06 UTC until 2026-03-07 05:06 UTC: no changes over the weekend.";
    assert!(answer.text().contains(said), "{}", answer.text());
    assert!(answer.body.contains("value=\"mine\""));
}

#[tokio::test]
async fn pages_that_may_not_stop_applies_show_them_only() {
    let mut world = world().await;
    let (token, lock) = (
        world.browser().await.token().await,
        stopped(&world.store).await.unwrap(),
    );
    world.web_rules = WebRules::new(&["discard"]).unwrap();
    let browser = world.browser().await;
    let page = browser.get("/apply-locks").await;
    assert!(
        page.text().contains("the database moves") && !page.body.contains("<form"),
        "{}",
        page.body
    );
    for (path, fields) in [
        (
            "/apply-locks".to_owned(),
            "scope=repo&repo=github.com%2Fa%2Fb&reason=x",
        ),
        (format!("/apply-locks/{}/end", lock.id), "x=y"),
    ] {
        let request = browser
            .request("POST", &path)
            .header("sec-fetch-site", "same-origin");
        let answer = browser
            .send(super::fixture::form(
                request,
                &format!("token={token}&{fields}"),
            ))
            .await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(
            answer
                .text()
                .contains("“ops” may not stop applies or allow them again"),
            "{}",
            answer.text()
        );
    }
    assert_eq!(world.store.apply_lock_list().await.unwrap().len(), 3);
}

async fn call(browser: &Browser, method: &str, path: &str, body: &str) -> (StatusCode, Value) {
    let request = browser
        .request(method, path)
        .header(header::CONTENT_TYPE, "application/json");
    let Answer { status, body, .. } = browser
        .send(request.body(Body::from(body.to_owned())).unwrap())
        .await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn a_script_stops_a_directory_lists_it_and_allows_it_again() {
    let world = World::new().await;
    let browser = world.browser().await.without_cookie();
    let body = json!({ "repo": INFRA, "dir": "network", "reason": "freeze", "until": "2026-03-05T18:00Z" }).to_string();
    let (status, set) = call(&browser, "POST", "/api/apply-locks", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{set}");
    let id = set["id"].as_str().unwrap().to_owned();
    insta::assert_json_snapshot!(set, @r#"
    {
      "dir": "network",
      "holder": "ops",
      "id": "00000000-0000-7000-8000-000000000001",
      "reason": "freeze",
      "repo": "github.com/acme/infra",
      "scope": "path",
      "since": "2026-03-04T05:06:07Z",
      "until": "2026-03-05T18:00:00Z"
    }
    "#);
    let (status, again) = call(&browser, "POST", "/api/apply-locks", &body).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(
        again["error"]
            .as_str()
            .unwrap()
            .starts_with("ops has stopped these applies since"),
        "{again}"
    );
    let (status, _) = call(&browser, "POST", "/api/apply-locks", r#"{"reason": "all"}"#).await;
    assert_eq!(status, StatusCode::CREATED);
    let (_, listed) = call(&browser, "GET", "/api/apply-locks", "").await;
    let scopes: Vec<&Value> = listed["apply_locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| &lock["scope"])
        .collect();
    assert_eq!(scopes, [&json!("server"), &json!("path")]);
    assert_eq!(
        call(&browser, "DELETE", &format!("/api/apply-locks/{id}"), "").await,
        (StatusCode::OK, set)
    );
    for gone in [id.as_str(), "x", "%ff"] {
        let (status, error) =
            call(&browser, "DELETE", &format!("/api/apply-locks/{gone}"), "").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{error}");
    }
    assert_eq!(world.store.apply_lock_list().await.unwrap().len(), 1);
    let events = world.store.lock_event_list(9).await.unwrap();
    assert_eq!(
        events[0].event.cause.reason,
        "allowed again by a script; set by ops on 2026-03-04 05:06 UTC: freeze"
    );
    assert_eq!(events[1].event.scope, Some(ApplyScope::Server));
}

#[tokio::test]
async fn a_wrong_request_is_answered_with_the_field_and_the_way_out() {
    let world = World::new().await;
    let browser = world.browser().await.without_cookie();
    let cases = [
        (
            r#"{"reason": ""}"#,
            422,
            json!("reason"),
            "“reason”: Give a short reason",
        ),
        (
            r#"{"reason": "x", "dir": "net"}"#,
            422,
            json!("repo"),
            "“repo”: A directory needs its repository",
        ),
        (
            r#"{"reason": "x", "repo": ""}"#,
            422,
            json!("repo"),
            "“repo”: The value is empty. Give a value, or leave the field out.",
        ),
        (
            r#"{"reason": "x", "repo": "infra"}"#,
            422,
            json!("repo"),
            "“infra” is not a repository",
        ),
        (
            r#"{"reason": "x", "until": "2020-01-01T00:00Z"}"#,
            422,
            json!("until"),
            "2020-01-01 00:00 UTC is in the past",
        ),
        (
            r#"{"reason": "x", "until": "3d"}"#,
            422,
            json!("until"),
            "Write it in UTC, as in 2026-12-24T18:00Z",
        ),
        (
            r#"{"reason": "x", "path": "net"}"#,
            422,
            json!("path"),
            "unknown field `path`",
        ),
        (
            "reason=x",
            400,
            json!(null),
            "The body cannot be read as JSON",
        ),
    ];
    for (body, status, field, text) in cases {
        let (answered, error) = call(&browser, "POST", "/api/apply-locks", body).await;
        assert_eq!(
            (answered.as_u16(), &error["field"]),
            (status, &field),
            "{body} {error}"
        );
        assert!(
            error["error"].as_str().unwrap().contains(text),
            "{body} {error}"
        );
    }
    let (status, _) = call(&browser, "POST", "/api/apply-locks", &"x".repeat(20_000)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(world.store.apply_lock_list().await.unwrap(), []);
}

#[tokio::test]
async fn only_a_script_with_the_password_and_the_right_may_change_something() {
    let mut world = world().await;
    let lock = stopped(&world.store).await.unwrap();
    let end = format!("/api/apply-locks/{}", lock.id);
    world.web_rules = WebRules::new(&["discard"]).unwrap();
    let (open, user) = (
        world.anonymous().await.without_cookie(),
        world.browser().await,
    );
    for (browser, why) in [
        (&open, "nobody signs in to this server"),
        (&user, "This address is for scripts"),
        (
            &world.browser().await.without_cookie(),
            "may not stop applies or allow them again",
        ),
    ] {
        for (method, path) in [("POST", "/api/apply-locks"), ("DELETE", end.as_str())] {
            let body = r#"{"reason": "x", "repo": "github.com/a/b"}"#;
            let (status, error) = call(browser, method, path, body).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{method} {why}");
            assert!(error["error"].as_str().unwrap().contains(why), "{error}");
        }
    }
    assert_eq!(world.store.apply_lock_list().await.unwrap().len(), 3);
}
