//! Tests of requests that GitHub refuses, and of its answers.

use lockkeeper::emulator::{Emulator, NewPull, Options};
use lockkeeper::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use super::rig::{Answer, REPO, Rig, TOKEN};

fn said(answer: &Answer) -> String {
    let error = answer.body["errors"][0]["message"]
        .as_str()
        .unwrap_or_default();
    format!(
        "{} {} {error}",
        answer.status,
        answer.body["message"].as_str().unwrap_or_default()
    )
    .trim_end()
    .to_owned()
}

#[tokio::test]
async fn wrong_credentials_are_refused_and_none_see_nothing() {
    let rig = Rig::start().await;
    let get = async |path: &str, authorization: Option<&str>| {
        said(&rig.send(Method::GET, path, authorization, None).await)
    };
    assert_eq!(
        get("/user", Some("Bearer ghp_wrong")).await,
        "401 Bad credentials"
    );
    assert_eq!(get("/user", Some("Digest x")).await, "401 Bad credentials");
    assert_eq!(get("/user", None).await, "401 Requires authentication");
    assert_eq!(get("/repos/acme/infra", None).await, "404 Not Found");
    assert_eq!(
        get("/app", Some(&format!("Bearer {TOKEN}"))).await,
        "401 A JSON web token could not be decoded"
    );
    let body = Some(json!({ "body": "x" }));
    let post = rig
        .send(
            Method::POST,
            "/repos/acme/infra/issues/1/comments",
            None,
            body,
        )
        .await;
    assert_eq!(said(&post), "401 Requires authentication");
    rig.check();
}

#[tokio::test]
async fn comments_that_are_empty_or_too_long_are_refused() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let post =
        async |body: Value| said(&rig.post("/repos/acme/infra/issues/1/comments", body).await);
    assert_eq!(
        post(json!({ "body": " \n" })).await,
        "422 Validation Failed Body cannot be blank"
    );
    let long = "422 Validation Failed Body is too long (maximum is 65536 characters)";
    assert_eq!(post(json!({ "body": "ü".repeat(65_537) })).await, long);
    assert_eq!(
        post(json!({})).await,
        "422 Invalid request.\n\nmissing field `body`"
    );
    assert!(rig.github.comments(REPO, number).unwrap().is_empty());
    assert_eq!(
        post(json!({ "body": "ü".repeat(65_536) })).await.trim(),
        "201"
    );
    let reactions = format!("/repos/acme/infra/issues/comments/{}/reactions", 0);
    assert_eq!(
        rig.post(&reactions, json!({ "content": "eyes" }))
            .await
            .status,
        404
    );
    assert_eq!(
        rig.post(&reactions, json!({ "content": "shrug" }))
            .await
            .status,
        422
    );
    rig.check();
}

#[tokio::test]
async fn statuses_that_break_a_rule_are_refused() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let head = rig.github.pull(REPO, number).unwrap().head;
    let post = async |sha: &str, body: Value| {
        said(
            &rig.post(&format!("/repos/acme/infra/statuses/{sha}"), body)
                .await,
        )
    };
    let good = json!({ "state": "success" });
    let nowhere = "0123456789012345678901234567890123456789";
    assert_eq!(
        post(nowhere, good.clone()).await,
        format!("422 No commit found for SHA: {nowhere}")
    );
    assert_eq!(
        post("main", good).await,
        "422 No commit found for SHA: main"
    );
    let long = json!({ "state": "success", "description": "x".repeat(141) });
    assert_eq!(
        post(head.as_str(), long).await,
        "422 Validation Failed description is too long (maximum is 140 characters)"
    );
    let state = json!({ "state": "done" });
    assert_eq!(
        post(head.as_str(), state).await,
        "422 Validation Failed state is not included in the list"
    );
    rig.check();
}

#[tokio::test]
async fn what_does_not_exist_is_not_found_in_githubs_shape() {
    let rig = Rig::start().await;
    for path in [
        "/repos/acme/nothing",
        "/repos/acme/infra/pulls/99",
        "/repos/acme/infra/pulls/x",
        "/nothing/at/all",
    ] {
        let answer = rig.get(path).await;
        assert_eq!(said(&answer), "404 Not Found", "{path}");
        assert!(answer.body["documentation_url"].is_string(), "{path}");
    }
    let wrong_method = rig
        .send(Method::PUT, "/user", Some(&format!("token {TOKEN}")), None)
        .await;
    assert_eq!(wrong_method.status, 404);
}

#[tokio::test]
async fn a_client_must_say_what_it_is_and_send_json() {
    let rig = Rig::start().await;
    let nameless = reqwest::Client::new();
    let user = nameless
        .get(format!("{}/user", rig.github.api_url()))
        .send()
        .await
        .unwrap();
    assert_eq!(user.status(), 403);
    let comments = format!(
        "{}/repos/acme/infra/issues/1/comments",
        rig.github.api_url()
    );
    let request = nameless
        .post(comments)
        .header("user-agent", "test")
        .bearer_auth(TOKEN)
        .body("{");
    assert_eq!(request.send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn every_answer_tells_its_request_id_and_what_is_left_of_the_hour() {
    let rig = Rig::start().await;
    let (first, second) = (rig.get("/user").await, rig.get("/user").await);
    assert_ne!(
        first.header("x-github-request-id"),
        second.header("x-github-request-id")
    );
    assert_eq!(
        (
            first.header("x-ratelimit-limit"),
            first.header("x-ratelimit-remaining")
        ),
        ("5000", "4999")
    );
    assert_eq!(second.header("x-ratelimit-used"), "2");
}

#[tokio::test]
async fn a_directory_of_an_earlier_world_is_not_taken_over() {
    let rig = Rig::start().await;
    let clock: std::sync::Arc<dyn lockkeeper::clock::Clock> = rig.clock.clone();
    let options = Options::new(rig.directory.path(), clock, Secret::new("s"));
    let second = Emulator::start(options).await.unwrap();
    let refusal = second.create_repo(REPO, &[]).await.unwrap_err().to_string();
    assert!(refusal.ends_with(
        "infra.git was left by an earlier emulator; remove it or name another directory"
    ));
    let mistake = second.create_repo("infra", &[]).await.unwrap_err();
    insta::assert_snapshot!(mistake, @"`infra` is not a repository name: expected `owner/name` of letters, digits, `.`, `-` and `_`");
}

#[tokio::test]
async fn the_world_refuses_what_github_would_not_allow() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let again = rig
        .github
        .open_pull(REPO, NewPull::from_branch("feature"))
        .await;
    insta::assert_snapshot!(again.unwrap_err(), @"a forge would refuse: #1 from feature into main is already open");
    let from_main = rig
        .github
        .open_pull(REPO, NewPull::from_branch("main"))
        .await;
    insta::assert_snapshot!(from_main.unwrap_err(), @"a forge would refuse: no commits between main and main");
    rig.github
        .convert_to_draft(REPO, number, "alice")
        .await
        .unwrap();
    insta::assert_snapshot!(rig.github.merge(REPO, number, "alice").await.unwrap_err(), @"a forge would refuse: #1 is a draft");
    rig.github.close(REPO, number, "alice").await.unwrap();
    insta::assert_snapshot!(rig.github.close(REPO, number, "alice").await.unwrap_err(), @"a forge would refuse: #1 is closed, not open");
}
