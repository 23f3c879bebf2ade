use axum::http::StatusCode;
use lockkeeper::model::{Actor, CommandKind};

use super::fixture::{World, pull};

#[tokio::test]
async fn health_readiness_and_status_keep_their_shapes() {
    let world = World::new().await;
    let browser = world.browser().await;
    assert_eq!(browser.get("/healthz").await.body, r#"{"status":"ok"}"#);
    assert_eq!(browser.get("/readyz").await.body, r#"{"status":"ok"}"#);
    let status = browser.get("/status").await.body;
    assert_eq!(
        status,
        r#"{"shutting_down":false,"in_progress_operations":0,"version":"1.2.3"}"#
    );

    let command = world
        .command(
            CommandKind::Plan,
            &pull("github.com/acme/infra", 1),
            Actor::commenter("a"),
        )
        .await;
    world.store.command_start(command, None, &[]).await.unwrap();
    world.stop.cancel();
    let status = browser.get("/status").await.body;
    assert_eq!(
        status,
        r#"{"shutting_down":true,"in_progress_operations":1,"version":"1.2.3"}"#
    );
}

#[tokio::test]
async fn the_version_is_for_those_who_may_see_the_pages() {
    let world = World::new().await;
    let known = world.browser().await.get("/status").await.body;
    assert!(known.contains(r#""version":"1.2.3""#));
    let unknown = world
        .browser()
        .await
        .without_password()
        .get("/status")
        .await
        .body;
    assert_eq!(
        unknown,
        r#"{"shutting_down":false,"in_progress_operations":0}"#
    );
    assert_eq!(world.anonymous().await.get("/status").await.body, unknown);
}

#[tokio::test]
async fn a_server_without_its_database_is_alive_but_not_ready() {
    let world = World::new().await;
    let browser = world.browser().await;
    world.store.close().await;
    assert_eq!(browser.get("/healthz").await.status, StatusCode::OK);
    let ready = browser.get("/readyz").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    let expected = r#"{"status":"error","error":"the database does not answer; the log of this replica has the reason"}"#;
    assert_eq!(ready.body, expected);
    for path in [
        "/",
        "/api/locks",
        "/status",
        "/jobs/00000000-0000-7000-8000-000000000001",
    ] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(
            answer
                .body
                .contains("The database does not work as expected."),
            "{path}"
        );
    }
}
