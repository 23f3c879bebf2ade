use axum::body::Body;
use axum::http::StatusCode;

use super::fixture::{Browser, World, project, pull};
use crate::support::db::stopped;

async fn script(browser: &Browser, method: &str, path: &str) -> (StatusCode, String) {
    let answer = browser.send(browser.request(method, path).body(Body::empty()).unwrap()).await;
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
    world.lock(&infra, &project(".", "default", Some("terraform")), "jdoe", "planned").await;
    world.wait(60);
    world.lock(&infra, &project("a/b", "prod", None), "jdoe", "applied").await;
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
    world.lock(&infra, &project("a b", "prod", None), "jdoe", "planned").await;
    let browser = world.browser_of_user().await.without_cookie();
    let said = |text: &str| (StatusCode::OK, format!("{text}\n"));
    assert_eq!(script(&browser, "POST", "/apply/lock").await, said("All applies are stopped."));
    assert_eq!(script(&browser, "POST", "/apply/lock").await, said("All applies were stopped before."));
    assert_eq!(stopped(&world.store).await.unwrap().holder, "ops");
    assert_eq!(script(&browser, "DELETE", "/apply/unlock").await, said("Applies are allowed again."));
    assert_eq!(script(&browser, "DELETE", "/apply/unlock").await, said("Applies were not stopped."));
    let path = "/locks?id=acme%2Finfra%2Fa%20b%2Fprod%2F";
    assert_eq!(script(&browser, "DELETE", path).await, said("The lock is given back and its plans are discarded."));
    assert_eq!(script(&browser, "DELETE", path).await.0, StatusCode::NOT_FOUND);
    assert_eq!(script(&browser, "DELETE", "/locks").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_name_of_two_locks_gives_back_neither_until_the_host_is_named() {
    let world = World::new().await;
    for host in ["github.com", "git.example"] {
        world.lock(&pull(&format!("{host}/acme/infra"), 1), &project("net", "default", None), "a", "planned").await;
    }
    let browser = world.browser_of_user().await.without_cookie();
    let (status, body) = script(&browser, "DELETE", "/locks?id=acme/infra/net/default/").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(body.contains("Put the host before the name"), "{body}");
    assert_eq!(world.store.lock_list().await.unwrap().len(), 2);
    let path = "/locks?id=git.example/acme/infra/net/default/";
    assert_eq!(script(&browser, "DELETE", path).await.0, StatusCode::OK);
    assert_eq!(world.store.lock_list().await.unwrap()[0].key.repo.host().as_str(), "github.com");
}

#[tokio::test]
async fn a_classic_route_refuses_browsers_and_servers_without_a_password() {
    let world = World::new().await;
    let lock = world.lock(&pull("github.com/acme/infra", 1), &project(".", "default", None), "a", "planned").await;
    let open = world.browser().await.without_cookie();
    let user = world.browser_of_user().await.without_cookie();
    let discard = format!("/locks?id={}", lock.id);
    for (method, path) in [("POST", "/apply/lock"), ("DELETE", "/apply/unlock"), ("DELETE", discard.as_str())] {
        let (status, body) = script(&open, method, path).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(body.contains("web basic authentication"), "{body}");
        for (name, value) in [
            ("origin", "https://locks.example"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-mode", "navigate"),
            ("referer", "https://evil.example"),
            ("cookie", "a=b"),
        ] {
            let request = user.request(method, path).header(name, value).body(Body::empty()).unwrap();
            assert_eq!(user.send(request).await.status, StatusCode::FORBIDDEN, "{method} {path} {name}");
        }
    }
    assert_eq!(stopped(&world.store).await, None);
    assert_eq!(world.store.lock_list().await.unwrap(), [lock]);
}
