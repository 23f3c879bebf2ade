use std::slice;

use axum::body::Body;
use axum::http::StatusCode;
use lockkeeper::model::{Actor, CommandKind, Lock, ProjectOutcome, RunId, RunKind};
use serde_json::Value;

use super::fixture::{Browser, World, project, pull};
use crate::support::db::stopped;

async fn script(browser: &Browser, method: &str, path: &str) -> (StatusCode, String) {
    let answer = browser
        .send(browser.request(method, path).body(Body::empty()).unwrap())
        .await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn no_locks_are_an_empty_list() {
    let answer = World::new().await.browser().await.get("/api/locks").await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.body, r#"{"Locks":[]}"#);
}

#[tokio::test]
async fn locks_keep_the_shape_that_clients_of_atlantis_know() {
    let world = World::new().await;
    let infra = pull("github.com/acme/infra", 12);
    world
        .lock(
            &infra,
            &project(".", "default", Some("terraform")),
            "jdoe",
            "planned",
        )
        .await;
    world.wait(60);
    world
        .lock(&infra, &project("a/b", "prod", None), "jdoe", "applied")
        .await;
    let body = world.browser().await.get("/api/locks").await.body;
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    insta::assert_json_snapshot!(json, @r#"
    {
      "Locks": [
        {
          "Host": "github.com",
          "ID": "00000000-0000-7000-8000-000000000002",
          "Name": "acme/infra/a/b/prod/",
          "ProjectName": "",
          "ProjectRepo": "acme/infra",
          "ProjectRepoPath": "a/b",
          "PullID": "12",
          "PullURL": "https://github.com/acme/infra/pull/12",
          "Reason": "applied",
          "Time": "2026-03-04T05:07:07Z",
          "User": "jdoe",
          "Workspace": "prod"
        },
        {
          "Host": "github.com",
          "ID": "00000000-0000-7000-8000-000000000001",
          "Name": "acme/infra/./default/terraform",
          "ProjectName": "terraform",
          "ProjectRepo": "acme/infra",
          "ProjectRepoPath": ".",
          "PullID": "12",
          "PullURL": "https://github.com/acme/infra/pull/12",
          "Reason": "planned",
          "Time": "2026-03-04T05:06:07Z",
          "User": "jdoe",
          "Workspace": "default"
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn a_script_with_the_password_uses_the_classic_routes() {
    let world = World::new().await;
    let infra = pull("github.com/acme/infra", 12);
    world
        .lock(&infra, &project("a b", "prod", None), "jdoe", "planned")
        .await;
    let browser = world.browser().await.without_cookie();
    let said = |text: &str| (StatusCode::OK, format!("{text}\n"));
    assert_eq!(
        script(&browser, "POST", "/apply/lock").await,
        said("All applies are stopped.")
    );
    assert_eq!(
        script(&browser, "POST", "/apply/lock").await,
        said("All applies were already stopped.")
    );
    assert_eq!(stopped(&world.store).await.unwrap().holder.login, "ops");
    assert_eq!(
        script(&browser, "DELETE", "/apply/unlock").await,
        said("Applies are allowed again.")
    );
    assert_eq!(
        script(&browser, "DELETE", "/apply/unlock").await,
        said("Applies were not stopped.")
    );
    let path = "/locks?id=acme%2Finfra%2Fa%20b%2Fprod%2F";
    assert_eq!(
        script(&browser, "DELETE", path).await,
        said("The lock was released, and its plans were discarded.")
    );
    assert_eq!(
        script(&browser, "DELETE", path).await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        script(&browser, "DELETE", "/locks").await.0,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn a_name_of_two_locks_gives_back_neither_until_the_host_is_named() {
    let world = World::new().await;
    for host in ["github.com", "git.example"] {
        world
            .lock(
                &pull(&format!("{host}/acme/infra"), 1),
                &project("net", "default", None),
                "a",
                "planned",
            )
            .await;
    }
    let browser = world.browser().await.without_cookie();
    let (status, body) = script(&browser, "DELETE", "/locks?id=acme/infra/net/default/").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(body.contains("Put the host before the name"), "{body}");
    assert_eq!(world.store.lock_list().await.unwrap().len(), 2);
    let path = "/locks?id=git.example/acme/infra/net/default/";
    assert_eq!(script(&browser, "DELETE", path).await.0, StatusCode::OK);
    assert_eq!(
        world.store.lock_list().await.unwrap()[0]
            .key
            .repo
            .host()
            .as_str(),
        "github.com"
    );
}

#[tokio::test]
async fn a_classic_route_refuses_browsers_and_servers_without_a_password() {
    let world = World::new().await;
    let lock = world
        .lock(
            &pull("github.com/acme/infra", 1),
            &project(".", "default", None),
            "a",
            "planned",
        )
        .await;
    let open = world.anonymous().await.without_cookie();
    let user = world.browser().await.without_cookie();
    let discard = format!("/locks?id={}", lock.id);
    for (method, path) in [
        ("POST", "/apply/lock"),
        ("DELETE", "/apply/unlock"),
        ("DELETE", discard.as_str()),
    ] {
        let (status, body) = script(&open, method, path).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(body.contains("nobody signs in to this server"), "{body}");
        for (name, value) in [
            ("origin", "https://locks.example"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-mode", "navigate"),
            ("referer", "https://evil.example"),
            ("cookie", "a=b"),
        ] {
            let request = user
                .request(method, path)
                .header(name, value)
                .body(Body::empty())
                .unwrap();
            assert_eq!(
                user.send(request).await.status,
                StatusCode::FORBIDDEN,
                "{method} {path} {name}"
            );
        }
    }
    assert_eq!(stopped(&world.store).await, None);
    assert_eq!(world.store.lock_list().await.unwrap(), [lock]);
}

/// Takes a lock for #12 with a running plan. #13 is queued for it.
async fn in_use(world: &World) -> (Lock, RunId) {
    let infra = pull("github.com/acme/infra", 12);
    let net = project("infra/net", "prod", None);
    let lock = world
        .lock(&infra, &net, "alice", "planned by a comment")
        .await;
    let command = world
        .command(CommandKind::Plan, &infra, Actor::commenter("alice"))
        .await;
    let run = world.run(command, RunKind::Plan, &infra, &net).await;
    world.wait(60);
    world
        .waiting(&pull("github.com/acme/infra", 13), &net, "bob")
        .await;
    (lock, run)
}

async fn ask(browser: &Browser, path: &str, body: &'static str) -> (StatusCode, Value) {
    let answer = browser
        .send(
            browser
                .request("POST", path)
                .body(Body::from(body))
                .unwrap(),
        )
        .await;
    let json = serde_json::from_str(&answer.body)
        .unwrap_or_else(|error| panic!("{error}: {}", answer.body));
    (answer.status, json)
}

#[tokio::test]
async fn a_lock_is_shown_with_those_who_wait_and_its_history() {
    let world = World::new().await;
    in_use(&world).await;
    world.seal_log().await;
    let browser = world.browser().await;
    let answer = browser
        .get("/api/locks/acme%2Finfra%2Finfra%2Fnet%2Fprod")
        .await;
    let json: Value = serde_json::from_str(&answer.body).unwrap();
    insta::assert_json_snapshot!(json, @r#"
    {
      "at_work": [
        "plan"
      ],
      "change": 1,
      "history": [
        {
          "actor": "bob",
          "at": "2026-03-04T05:07:07Z",
          "kind": "queued",
          "origin": "comment",
          "pull": 13,
          "reason": "planned by comment",
          "seq": 2
        },
        {
          "actor": "alice",
          "at": "2026-03-04T05:06:07Z",
          "kind": "taken",
          "origin": "comment",
          "pull": 12,
          "reason": "planned by a comment",
          "seq": 1
        }
      ],
      "in_use": "plan_running",
      "lock": {
        "dir": "infra/net",
        "holder": "alice",
        "host": "github.com",
        "id": "00000000-0000-7000-8000-000000000001",
        "name": "acme/infra/infra/net/prod/",
        "project": null,
        "pull": 12,
        "pull_url": "https://github.com/acme/infra/pull/12",
        "reason": "planned by a comment",
        "repo": "acme/infra",
        "since": "2026-03-04T05:06:07Z",
        "workspace": "prod"
      },
      "plans": [],
      "waiters": [
        {
          "asker": "bob",
          "exactly": true,
          "place": 1,
          "pull": 13,
          "pull_url": "https://github.com/acme/infra/pull/13",
          "since": "2026-03-04T05:07:07Z"
        }
      ],
      "waiting": 1
    }
    "#);
    for path in [
        "/api/locks/acme/infra/infra/net/prod/",
        "/api/locks/github.com%2facme%2finfra%2finfra%2fnet%2fprod",
    ] {
        assert_eq!(browser.get(path).await.status, StatusCode::OK, "{path}");
    }
    let missing = browser
        .get("/api/locks/00000000-0000-7000-8000-000000000099")
        .await;
    assert_eq!(
        (missing.status, missing.header("content-type")),
        (StatusCode::NOT_FOUND, "application/problem+json")
    );
}

#[tokio::test]
async fn a_lock_is_released_by_the_api_or_the_answer_says_why_not() {
    let world = World::new().await;
    let (lock, run) = in_use(&world).await;
    let browser = world.browser().await.without_cookie();
    let path = format!("/api/locks/{}/release", lock.id);
    let (status, json) = ask(&browser, &path, "").await;
    assert_eq!(status, StatusCode::CONFLICT);
    insta::assert_json_snapshot!(json, @r#"
    {
      "detail": "A plan of pull request #12 is running under this lock. Nothing was changed.",
      "error": "A plan of pull request #12 is running under this lock. Nothing was changed.",
      "field": "force",
      "reason": "plan_running",
      "reference": "00000000000070008000000000000001",
      "status": 409,
      "title": "Conflict",
      "way_out": "Wait until it ends, or use force with a reason. Force interrupts the plan."
    }
    "#);
    let (status, json) = ask(&browser, &path, r#"{"force": true}"#).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    insta::assert_json_snapshot!(json, @r#"
    {
      "detail": "Force requires a reason. pull request #12, the next pull request and the audit log show it. Nothing was changed.",
      "error": "Force requires a reason. pull request #12, the next pull request and the audit log show it. Nothing was changed.",
      "field": "reason",
      "reason": "reason_wanted",
      "reference": "00000000000070008000000000000002",
      "status": 422,
      "title": "Unprocessable Entity",
      "way_out": "Enter a short reason."
    }
    "#);
    let (status, json) = ask(&browser, &path, r#"{"force": "yes"}"#).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    insta::assert_json_snapshot!(json, @r#"
    {
      "detail": "The field “force” cannot be used: invalid type: string \"yes\", expected a boolean. Nothing was changed.",
      "error": "The field “force” cannot be used: invalid type: string \"yes\", expected a boolean. Nothing was changed.",
      "field": "force",
      "reason": "unusable",
      "reference": "00000000000070008000000000000003",
      "status": 422,
      "title": "Unprocessable Entity",
      "way_out": "Give the expected value, or leave the field out if it is not required."
    }
    "#);
    let (status, json) = ask(&browser, &path, r#"{"forse": true}"#).await;
    assert_eq!(
        (status, json["field"].clone()),
        (StatusCode::UNPROCESSABLE_ENTITY, "forse".into())
    );
    for broken in ["{", "[]x", "\"x\"", "{} {}"] {
        let (status, json) = ask(&browser, &path, broken).await;
        assert_eq!(
            (status, json["reason"].clone()),
            (StatusCode::BAD_REQUEST, "unreadable".into()),
            "{broken}"
        );
    }
    assert_eq!(
        ask(&browser, &path, r#"{"pull": 13}"#).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    assert_eq!(
        ask(&browser, &path.replace("release", "steal"), "").await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        world.store.lock_list().await.unwrap(),
        slice::from_ref(&lock)
    );

    world.end_run(run, ProjectOutcome::Planned, None).await;
    let (status, json) = ask(&browser, &path, r#"{"reason": "spring cleaning"}"#).await;
    assert_eq!(status, StatusCode::OK);
    insta::assert_json_snapshot!(json, @r#"
    {
      "lock": {
        "dir": "infra/net",
        "holder": "alice",
        "host": "github.com",
        "id": "00000000-0000-7000-8000-000000000001",
        "name": "acme/infra/infra/net/prod/",
        "project": null,
        "pull": 12,
        "pull_url": "https://github.com/acme/infra/pull/12",
        "reason": "planned by a comment",
        "repo": "acme/infra",
        "since": "2026-03-04T05:06:07Z",
        "workspace": "prod"
      },
      "now": {
        "dir": "infra/net",
        "holder": "bob",
        "host": "github.com",
        "id": "00000000-0000-7000-8000-00000000000a",
        "name": "acme/infra/infra/net/prod/",
        "project": null,
        "pull": 13,
        "pull_url": "https://github.com/acme/infra/pull/13",
        "reason": "next in the queue after pull request 12, whose lock ops released (spring cleaning)",
        "repo": "acme/infra",
        "since": "2026-03-04T05:07:07Z",
        "workspace": "prod"
      },
      "plan_discarded": false,
      "plans_interrupted": 0
    }
    "#);
    assert_eq!(ask(&browser, &path, "").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_lock_is_handed_over_by_the_api() {
    let world = World::new().await;
    let (lock, _) = in_use(&world).await;
    world
        .waiting(&pull("github.com/acme/infra", 14), &lock.project, "carol")
        .await;
    let browser = world.browser().await.without_cookie();
    let path = "/api/locks/acme%2Finfra%2Finfra%2Fnet%2Fprod/hand-over";
    for (body, status, field, reason) in [
        ("", StatusCode::UNPROCESSABLE_ENTITY, "pull", "unusable"),
        (
            r#"{"pull": -1}"#,
            StatusCode::UNPROCESSABLE_ENTITY,
            "pull",
            "unusable",
        ),
        (
            r#"{"pull": "14"}"#,
            StatusCode::UNPROCESSABLE_ENTITY,
            "pull",
            "unusable",
        ),
        (
            r#"{"pull": 14}"#,
            StatusCode::CONFLICT,
            "force",
            "plan_running",
        ),
        (
            r#"{"pull": 15, "force": true, "reason": "x"}"#,
            StatusCode::CONFLICT,
            "pull",
            "not_in_line",
        ),
    ] {
        let (got, json) = ask(&browser, path, body).await;
        assert_eq!(
            (got, json["field"].clone(), json["reason"].clone()),
            (status, field.into(), reason.into()),
            "{body}"
        );
        assert!(
            json["way_out"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{json}"
        );
    }
    let (status, json) = ask(
        &browser,
        path,
        r#"{"pull": 14, "force": true, "reason": "outage"}"#,
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (
            json["now"]["pull"].clone(),
            json["plans_interrupted"].clone()
        ),
        (14.into(), 1.into())
    );
    assert_eq!(
        world.store.lock_list().await.unwrap()[0]
            .pull
            .subject
            .stored(),
        14
    );
}

#[tokio::test]
async fn a_script_of_atlantis_takes_a_lock_by_force() {
    let world = World::new().await;
    let (lock, _) = in_use(&world).await;
    let browser = world.browser().await.without_cookie();
    assert_eq!(
        script(&browser, "DELETE", &format!("/locks?id={}", lock.id))
            .await
            .0,
        StatusCode::OK
    );
    let cause = world
        .store
        .lock_event_list(2)
        .await
        .unwrap()
        .remove(1)
        .event
        .cause;
    assert_eq!(cause.reason, "released by force: by a script");
}

#[tokio::test]
async fn a_change_by_the_api_refuses_browsers_and_servers_without_a_password() {
    let world = World::new().await;
    let (lock, _) = in_use(&world).await;
    let open = world.anonymous().await.without_cookie();
    let user = world.browser().await;
    for verb in ["release", "hand-over"] {
        let path = format!("/api/locks/{}/{verb}", lock.id);
        for browser in [&open, &user] {
            let (status, _) = ask(
                browser,
                &path,
                r#"{"pull": 13, "force": true, "reason": "x"}"#,
            )
            .await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{verb}");
        }
        assert_eq!(open.get(&path).await.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(world.store.lock_list().await.unwrap(), [lock]);
}
