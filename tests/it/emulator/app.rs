//! Tests of the GitHub App: web token, installation, token of the installation.

use octocrab::jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use reqwest::Method;
use serde_json::{Value, json};

use lockkeeper::clock::{Clock, SystemClock};

use super::rig::{APP_KEY, Answer, REPO, Rig};

fn web_token(app: u64, from: i64, to: i64) -> String {
    let now = SystemClock.now().timestamp();
    let key = EncodingKey::from_rsa_pem(APP_KEY.as_bytes()).expect("the key of the tests is good");
    let claims = json!({ "iss": app, "iat": now + from, "exp": now + to });
    encode(&Header::new(Algorithm::RS256), &claims, &key).expect("claims can be signed")
}

async fn as_app(rig: &Rig, method: Method, path: &str, body: Option<Value>) -> Answer {
    rig.send(
        method,
        path,
        Some(&format!("Bearer {}", web_token(7, -60, 540))),
        body,
    )
    .await
}

/// Returns an `Authorization` header for the installation.
pub async fn installation_token(rig: &Rig) -> String {
    let issued = as_app(
        rig,
        Method::POST,
        "/app/installations/70/access_tokens",
        None,
    )
    .await;
    assert_eq!(issued.status, 201);
    format!(
        "token {}",
        issued.body["token"].as_str().expect("a token is text")
    )
}

#[tokio::test]
async fn the_app_finds_its_installation_and_acts_in_it_as_a_bot() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    assert_eq!(
        as_app(&rig, Method::GET, "/app", None).await.body["slug"],
        "lockkeeper"
    );
    assert_eq!(
        as_app(&rig, Method::GET, "/app/installations", None)
            .await
            .body[0]["id"],
        70
    );
    assert_eq!(
        as_app(&rig, Method::GET, "/repos/acme/infra/installation", None)
            .await
            .body["app_id"],
        7
    );
    let token = installation_token(&rig).await;
    let body = Some(json!({ "body": "Planned." }));
    let posted = rig
        .send(
            Method::POST,
            "/repos/acme/infra/issues/1/comments",
            Some(&token),
            body,
        )
        .await;
    assert_eq!(posted.body["user"]["login"], "lockkeeper[bot]");
    assert_eq!(posted.body["user"]["type"], "Bot");
    assert_eq!(posted.body["performed_via_github_app"]["id"], 7);
    assert_eq!(
        rig.github.comments(REPO, number).unwrap()[0].author,
        "lockkeeper[bot]"
    );
    assert_eq!(
        rig.send(Method::GET, "/user", Some(&token), None)
            .await
            .status,
        403
    );
    rig.check();
}

#[tokio::test]
async fn web_tokens_that_do_not_hold_are_refused() {
    let rig = Rig::start().await;
    for (token, why) in [
        (
            web_token(7, -60, -1),
            "'Expiration time' claim ('exp') must be",
        ),
        (
            web_token(7, 0, 3600),
            "'Expiration time' claim ('exp') is too far in the future",
        ),
        (web_token(8, -60, 540), "Integration not found"),
        (
            web_token(7, -60, 540).replace('.', ".e"),
            "A JSON web token could not be decoded",
        ),
    ] {
        let answer = rig
            .send(Method::GET, "/app", Some(&format!("Bearer {token}")), None)
            .await;
        assert_eq!(answer.status, 401);
        assert!(
            answer.body["message"].as_str().unwrap().starts_with(why),
            "{}",
            answer.body
        );
    }
    assert_eq!(
        as_app(&rig, Method::GET, "/repos/acme/infra", None)
            .await
            .status,
        403
    );
    assert_eq!(
        as_app(
            &rig,
            Method::POST,
            "/app/installations/71/access_tokens",
            None
        )
        .await
        .status,
        404
    );
    rig.check();
}

#[tokio::test]
async fn a_token_for_one_repository_does_not_open_another() {
    let rig = Rig::start().await;
    rig.github.create_repo("acme/other", &[]).await.unwrap();
    let body = Some(json!({ "repositories": ["infra"], "permissions": { "contents": "read" } }));
    let issued = as_app(
        &rig,
        Method::POST,
        "/app/installations/70/access_tokens",
        body,
    )
    .await
    .body;
    let token = format!("Bearer {}", issued["token"].as_str().unwrap());
    assert_eq!(
        rig.send(Method::GET, "/repos/acme/infra", Some(&token), None)
            .await
            .status,
        200
    );
    assert_eq!(
        rig.send(Method::GET, "/repos/acme/other", Some(&token), None)
            .await
            .status,
        404
    );
    let body = Some(json!({ "repositories": ["nothing"] }));
    assert_eq!(
        as_app(
            &rig,
            Method::POST,
            "/app/installations/70/access_tokens",
            body
        )
        .await
        .status,
        422
    );
    rig.check();
}

#[tokio::test]
async fn only_the_app_writes_check_runs_and_the_newest_of_a_name_counts() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let head = rig.github.pull(REPO, number).unwrap().head;
    let annotation = json!({
        "path": "net/main.tf", "start_line": 2, "end_line": 2, "annotation_level": "warning", "message": "m",
    });
    let output = json!({ "title": "t", "summary": "s", "annotations": [annotation] });
    let body = json!({
        "name": "policies", "head_sha": head, "status": "completed", "conclusion": "neutral", "output": output,
    });
    let by_person = rig.post("/repos/acme/infra/check-runs", body.clone()).await;
    assert_eq!(by_person.status, 403);
    let token = installation_token(&rig).await;
    let send = async |method: Method, path: String, body: Option<Value>| {
        rig.send(method, &path, Some(&token), body).await
    };
    let runs = "/repos/acme/infra/check-runs".to_owned();
    let first = send(Method::POST, runs.clone(), Some(body.clone())).await;
    assert_eq!(first.status, 201);
    assert_eq!(first.body["output"]["annotations_count"], 1);
    assert_eq!(first.body["app"]["id"], 7);
    let second = send(Method::POST, runs.clone(), Some(body.clone())).await;
    let path = format!("{runs}/{}", second.body["id"]);
    let more = send(Method::PATCH, path, Some(json!({ "output": output }))).await;
    assert_eq!(more.body["output"]["annotations_count"], 2);
    let listed = |query: &str| format!("/repos/acme/infra/commits/{head}/check-runs?{query}");
    let latest = send(Method::GET, listed("check_name=policies"), None).await;
    assert_eq!(latest.body["total_count"], 1);
    assert_eq!(latest.body["check_runs"][0]["id"], second.body["id"]);
    let all = send(Method::GET, listed("filter=all"), None).await;
    assert_eq!(all.body["total_count"], 2);
    let other = send(Method::GET, listed("check_name=other"), None).await;
    assert_eq!(other.body["check_runs"], json!([]));
    let unknown = json!({ "name": "n", "head_sha": "0".repeat(40) });
    assert_eq!(send(Method::POST, runs, Some(unknown)).await.status, 422);
    rig.check();
}

#[tokio::test]
async fn an_independent_client_reads_what_we_serve() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let key = EncodingKey::from_rsa_pem(APP_KEY.as_bytes()).unwrap();
    let app = octocrab::Octocrab::builder()
        .base_uri(rig.github.api_url())
        .unwrap()
        .app(7.into(), key)
        .build()
        .unwrap();
    let installation = app
        .apps()
        .get_repository_installation("acme", "infra")
        .await
        .unwrap();
    let client = app.installation(installation.id).unwrap();
    let pull = client.pulls("acme", "infra").get(1).await.unwrap();
    assert_eq!(
        pull.head.sha,
        rig.github.pull(REPO, number).unwrap().head.as_str()
    );
    let files = client.pulls("acme", "infra").list_files(1).await.unwrap();
    assert_eq!(files.items[0].filename, "net/main.tf");
    let posted = client
        .issues("acme", "infra")
        .create_comment(1, "Planned.")
        .await
        .unwrap();
    assert_eq!(posted.user.login, "lockkeeper[bot]");
    rig.check();
}
