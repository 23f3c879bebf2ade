//! Tests of Lockkeeper as a GitHub App.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use lockkeeper::clock::{Clock, ManualClock};
use lockkeeper::forges::github::{GitHub, GitHubAuth, GitHubSetupError, Timeouts};
use lockkeeper::forges::{Forge, ForgeError};
use lockkeeper::model::{CommentId, RepoId};
use lockkeeper::secret::Secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::pull_answer;
use super::server::{Asked, Reply, ScriptedGitHub, anybody, endpoints, pull, start};
use super::tools::run;

const PULL: &str = "GET /repos/acme/infra/pulls/12";
const LOOK_UP: &str = "GET /repos/acme/infra/installation";

/// A key that is made once, because OpenSSL takes longer for it than everything else.
static KEY: LazyLock<Secret> = LazyLock::new(|| {
    let pem = run("openssl", &["genrsa", "2048"], &std::env::temp_dir(), b"");
    Secret::new(&String::from_utf8(pem).unwrap())
});

/// A server, a key made by OpenSSL, and a clock.
pub struct World {
    pub server: ScriptedGitHub,
    folder: TempDir,
    key: Secret,
    clock: Arc<ManualClock>,
}

impl World {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(start()));
        Self {
            server: ScriptedGitHub::start().await,
            folder,
            key: KEY.clone(),
            clock,
        }
    }

    pub fn github(&self, installation: Option<u64>) -> GitHub {
        let auth = GitHubAuth::App {
            app_id: 4242,
            key: self.key.clone(),
            installation,
        };
        self.server.client_of(auth, &self.clock)
    }

    /// Scripts one token of an installation, valid for an hour as GitHub's are.
    fn issues(&self, installation: u64, token: &str) {
        self.issues_with(installation, token, &json!({"contents": "read"}));
    }

    /// Scripts one token with these permissions.
    pub fn issues_with(&self, installation: u64, token: &str, permissions: &Value) {
        let expires: DateTime<Utc> = self.clock.now() + TimeDelta::hours(1);
        let answer = json!({"token": token, "expires_at": expires, "permissions": permissions});
        self.server
            .on(&issue(installation), Reply::status(201, &answer));
    }

    fn answers_pulls(&self, times: usize) {
        (0..times).for_each(|_| self.server.on(PULL, Reply::json(&pull_answer())));
    }

    /// Verifies the signature of a JWT with OpenSSL and returns its claims.
    fn claims(&self, asked: &Asked) -> Value {
        let jwt = asked
            .header("authorization")
            .strip_prefix("Bearer ")
            .unwrap();
        let (signed, signature) = jwt.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        assert_eq!(decoded(header), json!({"typ": "JWT", "alg": "RS256"}));
        let folder = self.folder.path();
        std::fs::write(
            folder.join("signature"),
            URL_SAFE_NO_PAD.decode(signature).unwrap(),
        )
        .unwrap();
        self.verify(folder, signed);
        decoded(claims)
    }

    fn verify(&self, folder: &Path, signed: &str) {
        let public = run(
            "openssl",
            &["rsa", "-pubout"],
            folder,
            self.key.expose().as_bytes(),
        );
        std::fs::write(folder.join("public.pem"), public).unwrap();
        let args = [
            "dgst",
            "-sha256",
            "-verify",
            "public.pem",
            "-signature",
            "signature",
        ];
        run("openssl", &args, folder, signed.as_bytes());
    }
}

/// Returns the request for a token of an installation.
pub fn issue(installation: u64) -> String {
    format!("POST /app/installations/{installation}/access_tokens")
}

/// Brings a signed delivery about the repository of the pull request, which comes from an installation.
fn delivered(github: &GitHub, installation: u64) {
    let body = json!({
        "repository": {"id": 1, "full_name": pull().repo.full_name()}, "installation": {"id": installation},
    });
    super::webhook::bring(github, "push", &body);
}

fn refusal() -> Value {
    json!({"message": "Not Found"})
}

fn decoded(part: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test]
async fn the_app_signs_for_itself_and_uses_the_token_of_the_events_installation() {
    let world = World::new().await;
    world.issues(77, "ghs_one");
    world.answers_pulls(1);
    let github = world.github(Some(5));
    delivered(&github, 77);
    github.pull(&pull()).await.unwrap();
    let asked = world.server.asked();
    assert_eq!([&asked[0].line, &asked[1].line], [&issue(77), PULL]);
    let now = start().timestamp();
    assert_eq!(
        world.claims(&asked[0]),
        json!({"iss": 4242, "iat": now - 60, "exp": now + 540})
    );
    assert_eq!(asked[1].header("authorization"), "Bearer ghs_one");
}

#[tokio::test]
async fn without_an_installation_in_the_event_the_configured_one_is_used() {
    let world = World::new().await;
    world.issues(5, "ghs_one");
    world.answers_pulls(1);
    world.github(Some(5)).pull(&pull()).await.unwrap();
    assert_eq!(world.server.lines(), [issue(5).as_str(), PULL]);
}

#[tokio::test]
async fn without_any_installation_github_is_asked_once_per_repository() {
    let world = World::new().await;
    let github = world.github(None);
    world
        .server
        .on(LOOK_UP, Reply::json(&json!({"id": 99, "app_id": 4242})));
    world.issues(99, "ghs_one");
    world.answers_pulls(2);
    github.pull(&pull()).await.unwrap();
    github.pull(&pull()).await.unwrap();
    let asked = world.server.asked();
    assert_eq!(
        asked
            .iter()
            .map(|asked| asked.line.as_str())
            .collect::<Vec<_>>(),
        [LOOK_UP, &issue(99), PULL, PULL]
    );
    assert_eq!(world.claims(&asked[0])["iss"], 4242);
}

#[tokio::test]
async fn a_repository_without_the_app_is_named() {
    let world = World::new().await;
    world.server.on(
        LOOK_UP,
        Reply::status(404, &json!({"message": "Not Found"})),
    );
    let error = world.github(None).pull(&pull()).await.unwrap_err();
    insta::assert_snapshot!(
        error,
        @"the installation of the GitHub App for acme/infra was not found on github.com, or the credentials of Lockkeeper may not see it"
    );
    assert!(matches!(error, ForgeError::NotFound { .. }));
}

#[tokio::test]
async fn an_app_that_was_installed_again_is_looked_up_again() {
    let world = World::new().await;
    let github = world.github(None);
    world.server.on(LOOK_UP, Reply::json(&json!({"id": 1})));
    world.issues(1, "ghs_one");
    world.answers_pulls(1);
    github.pull(&pull()).await.unwrap();
    world.server.asked();
    for line in [PULL, &issue(1)] {
        let status = if line == PULL { 401 } else { 404 };
        world.server.on(line, Reply::status(status, &refusal()));
    }
    world.server.on(LOOK_UP, Reply::json(&json!({"id": 2})));
    world.issues(2, "ghs_two");
    world.answers_pulls(1);
    github.pull(&pull()).await.unwrap();
    assert_eq!(
        world.server.lines(),
        [PULL, &issue(1), LOOK_UP, &issue(2), PULL]
    );
}

#[tokio::test]
async fn an_app_that_is_not_installed_any_more_is_looked_up_once_per_request() {
    let world = World::new().await;
    let github = world.github(None);
    delivered(&github, 1);
    world.server.on(&issue(1), Reply::status(404, &refusal()));
    world.server.on(LOOK_UP, Reply::status(404, &refusal()));
    let error = github.pull(&pull()).await.unwrap_err();
    assert!(matches!(error, ForgeError::NotFound { .. }), "{error}");
    assert_eq!(world.server.lines(), [issue(1).as_str(), LOOK_UP]);
}

#[tokio::test]
async fn a_delivery_with_a_wrong_installation_costs_one_request() {
    let world = World::new().await;
    let github = world.github(None);
    delivered(&github, 66);
    world.issues(66, "ghs_wrong");
    world.server.on(PULL, Reply::status(404, &refusal()));
    world.server.on(LOOK_UP, Reply::json(&json!({"id": 7})));
    world.issues(7, "ghs_right");
    world.answers_pulls(2);
    github.pull(&pull()).await.unwrap();
    delivered(&github, 66);
    github.pull(&pull()).await.unwrap();
    let asked = world.server.asked();
    assert_eq!(asked.len(), 6);
    assert_eq!(asked[5].header("authorization"), "Bearer ghs_right");
}

#[tokio::test]
async fn a_delivery_does_not_choose_the_token_for_git() {
    let world = World::new().await;
    let github = world.github(None);
    delivered(&github, 66);
    world.server.on(LOOK_UP, Reply::json(&json!({"id": 7})));
    world.issues(7, "ghs_right");
    let git = github.git_credentials(&pull().repo).await.unwrap();
    assert_eq!(git.password.expose(), "ghs_right");
    assert_eq!(world.server.lines(), [LOOK_UP, &issue(7)]);
}

#[tokio::test]
async fn a_burst_looks_the_installation_of_an_owner_up_once() {
    let world = World::new().await;
    let github = world.github(None);
    world.server.on(LOOK_UP, Reply::json(&json!({"id": 7})));
    world.issues(7, "ghs_one");
    let repos = ["infra", "infra", "labs", "web"]
        .map(|name| format!("github.com/acme/{name}").parse::<RepoId>().unwrap());
    let tokens = join_all(repos.iter().map(|repo| github.git_credentials(repo))).await;
    assert!(tokens.iter().all(Result::is_ok), "{tokens:?}");
    assert_eq!(world.server.lines(), [LOOK_UP, &issue(7)]);
}

#[tokio::test]
async fn tokens_are_kept_until_shortly_before_they_end() {
    let world = World::new().await;
    let github = world.github(None);
    delivered(&github, 7);
    world.issues(7, "ghs_one");
    world.answers_pulls(3);
    github.pull(&pull()).await.unwrap();
    world.clock.advance(Duration::from_mins(24));
    github.pull(&pull()).await.unwrap();
    assert_eq!(world.server.lines(), [issue(7).as_str(), PULL, PULL]);
    world.clock.advance(Duration::from_mins(1));
    world.issues(7, "ghs_two");
    github.pull(&pull()).await.unwrap();
    assert_eq!(
        world.server.asked()[1].header("authorization"),
        "Bearer ghs_two"
    );
    world.server.on(LOOK_UP, Reply::json(&json!({"id": 7})));
    let git = github.git_credentials(&pull().repo).await.unwrap();
    assert_eq!(
        (git.username.as_str(), git.password.expose()),
        ("x-access-token", "ghs_two")
    );
}

#[tokio::test]
async fn a_burst_asks_for_one_token_per_installation() {
    let world = World::new().await;
    let github = world.github(None);
    delivered(&github, 7);
    world.issues(7, "ghs_seven");
    world.answers_pulls(10);
    let pull = pull();
    let results = join_all((0..10).map(|_| github.pull(&pull))).await;
    assert!(results.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_token_that_github_revoked_is_replaced_once() {
    let world = World::new().await;
    let github = world.github(None);
    let comment = "POST /repos/acme/infra/issues/12/comments";
    let refused = || Reply::status(401, &json!({"message": "Bad credentials"}));
    delivered(&github, 7);
    world.issues(7, "ghs_revoked");
    world.server.on(comment, refused());
    world.issues(7, "ghs_new");
    world.server.on(
        comment,
        Reply::status(201, &json!({"id": 1, "created_at": "2026-03-01T12:00:05Z"})),
    );
    let posted = github.comment_post(&pull(), "x", &anybody()).await;
    assert_eq!(posted.unwrap().id, CommentId::new("1"));
    world.server.on(comment, refused());
    world.issues(7, "ghs_newer");
    world.server.on(comment, refused());
    world.server.on(LOOK_UP, Reply::json(&json!({"id": 7})));
    let error = github
        .comment_post(&pull(), "x", &anybody())
        .await
        .unwrap_err();
    assert!(matches!(error, ForgeError::Denied { .. }), "{error}");
}

#[tokio::test]
async fn asking_for_a_token_is_repeated_after_a_passing_fault() {
    let world = World::new().await;
    world.server.on(&issue(7), Reply::Drop);
    world.issues(7, "ghs_one");
    world.answers_pulls(1);
    let github = world.github(None);
    delivered(&github, 7);
    github.pull(&pull()).await.unwrap();
}

#[tokio::test]
async fn the_login_of_an_app_is_its_slug_with_bot() {
    let world = World::new().await;
    let github = world.github(None);
    world.server.on(
        "GET /app",
        Reply::json(&json!({"id": 4242, "slug": "lockkeeper-acme", "name": "Lockkeeper"})),
    );
    assert_eq!(github.login().await.unwrap(), "lockkeeper-acme[bot]");
    assert_eq!(github.login().await.unwrap(), "lockkeeper-acme[bot]");
    assert_eq!(world.claims(&world.server.asked()[0])["iss"], 4242);
}

#[tokio::test]
async fn a_key_that_is_none_is_refused_at_the_start() {
    let auth = GitHubAuth::App {
        app_id: 1,
        key: Secret::new("ghp_not_a_key"),
        installation: None,
    };
    assert_eq!(
        format!("{auth:?}"),
        "App { app_id: 1, key: Secret(…), installation: None }"
    );
    let clock = Arc::new(ManualClock::new(start()));
    let refused = GitHub::new(
        endpoints("http://127.0.0.1:1"),
        auth,
        clock,
        Timeouts::default(),
    )
    .err()
    .unwrap();
    assert!(
        matches!(&refused, GitHubSetupError::AppKey(_))
            && !refused.to_string().contains("ghp_not_a_key")
    );
    insta::assert_snapshot!(
        refused,
        @"the key of the GitHub App is not an RSA private key in PEM (InvalidKeyFormat). Download one from the settings of the App"
    );
}

#[tokio::test]
async fn a_token_for_modules_can_only_read_and_is_asked_for_once() {
    let world = World::new().await;
    world.issues(70, "ghs_reads");
    let repo = pull().repo;
    let github = world.github(Some(70));
    for _ in 0..2 {
        let given = github.module_credentials(&repo).await.unwrap().unwrap();
        assert_eq!(
            (given.username.as_str(), given.password.expose()),
            ("x-access-token", "ghs_reads")
        );
    }
    let asked = world.server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].body, json!({"permissions": {"contents": "read"}}));
    world.issues(70, "ghs_whole");
    let given = github.git_credentials(&repo).await.unwrap();
    assert_eq!(
        given.password.expose(),
        "ghs_whole",
        "it is never used for anything else"
    );
}
