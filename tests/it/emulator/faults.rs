//! Tests of faults on request.

use lockkeeper::emulator::Fault;
use reqwest::Method;
use serde_json::json;

use super::rig::{REPO, Rig, TOKEN};

#[tokio::test]
async fn a_lost_answer_leaves_the_comment_behind() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let post = async || {
        let (path, token) = (
            "/repos/acme/infra/issues/1/comments",
            format!("Bearer {TOKEN}"),
        );
        rig.try_send(
            Method::POST,
            path,
            Some(&token),
            Some(json!({ "body": "once" })),
        )
        .await
    };
    rig.github
        .fault("POST /repos/*/*/issues/*/comments", 1, Fault::LoseAnswer);
    assert!(post().await.is_err(), "the connection is gone");
    assert_eq!(rig.github.comments(REPO, number).unwrap().len(), 1);
    rig.github.fault(
        "POST /repos/{owner}/{repo}/issues/{number}/comments",
        1,
        Fault::DropConnection,
    );
    assert!(post().await.is_err(), "the connection is gone");
    assert_eq!(
        rig.github.comments(REPO, number).unwrap().len(),
        1,
        "nothing was done"
    );
    assert_eq!(post().await.unwrap().status, 201);
    assert_eq!(rig.github.faults_left(), 0);
    rig.check();
}

#[tokio::test]
async fn gateways_break_and_limits_say_when_to_come_back() {
    let rig = Rig::start().await;
    rig.github.fault("GET /user", 2, Fault::BadGateway);
    rig.github.fault(
        "GET /user",
        1,
        Fault::SecondaryLimit {
            status: 429,
            retry_after: 7,
        },
    );
    let reset = "2025-01-15T10:30:00Z".parse().unwrap();
    rig.github
        .fault("GET /user", 1, Fault::PrimaryLimit { reset });
    assert_eq!(
        [rig.get("/user").await.status, rig.get("/user").await.status],
        [502, 502]
    );
    let secondary = rig.get("/user").await;
    assert_eq!(
        (secondary.status, secondary.header("retry-after")),
        (429, "7")
    );
    let primary = rig.get("/user").await;
    assert_eq!(
        (primary.status, primary.header("x-ratelimit-remaining")),
        (403, "0")
    );
    assert_eq!(primary.header("x-ratelimit-reset"), "1736937000");
    assert_eq!(rig.get("/user").await.status, 200);
    rig.check();
}

#[tokio::test]
async fn a_new_pull_can_hide_for_some_reads() {
    let rig = Rig::start().await;
    rig.github.hide_new_pulls(2);
    rig.open_pull().await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(rig.get("/repos/acme/infra/pulls/1").await.status);
    }
    assert_eq!(seen, [404, 404, 200]);
    rig.check();
}
