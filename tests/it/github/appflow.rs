//! Tests the App flow against an emulator of other authors: `emulate`, from the JWT to the comment.
//!
//! `emulate` 0.11.2 differs from GitHub in some points. These are left out here and are tested against our own
//! emulator only:
//! - It can neither set nor read commit statuses. The test inspects our requests on their way, and asserts the 404:
//!   it fails as soon as `emulate` supports more.
//! - It lists changed files from a count that nothing ever sets: no pull request has any.
//! - It has no git over HTTP, so nothing can be planned. The story consists of commands that end before the checkout:
//!   a fork is refused, and `unlock`.
//! - Its comment webhook lacks the mark `issue.pull_request`, without which a comment is one on an issue. The test
//!   adds the mark and signs again. The webhook of an opened pull request is used as `emulate` makes and signs it.
//!
//! Each test ends with all requests to the API, which also shows that none of them is GraphQL.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta};
use hmac::{Hmac, KeyInit, Mac};
use lockkeeper::clock::{Clock, RandomIds, SystemClock};
use lockkeeper::forges::github::{GitHub, GitHubAuth, GitHubEndpoints, Timeouts};
use lockkeeper::forges::{Forge, ForgeError};
use lockkeeper::model::{
    CommitSha, CommitState, CommitStatus, PullRef, PullState, StatusContext, StatusTarget, Subject,
};
use lockkeeper::render::MachineLine;
use lockkeeper::secret::Secret;
use lockkeeper::store::Store;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use super::emulate::Emulate;
use super::relay::{Passed, Relay};
use super::server::anybody;
use super::tools::run;
use crate::support::server::{APP_ID, APP_KEY, HOST, Server, Settings, WEBHOOK_SECRET};

const ALICE: &str = "token_of_alice";
const MALLORY: &str = "token_of_mallory";
const INSTALLATION: u64 = 4100;
const BOT: &str = "acme-lockkeeper[bot]";
const REPO: &str = "/repos/acme/infra";
const COMMENTS: &str = "/repos/acme/infra/issues/1/comments";

/// Returns the seed. An unknown token counts as the first user, so that user may see nothing. The App has the
/// permissions that the README tells administrators to give it, and only on one of two private repositories.
fn seed(webhooks: &str) -> Value {
    json!({
        "tokens": {
            ALICE: {"login": "alice", "scopes": ["repo"]},
            MALLORY: {"login": "mallory", "scopes": ["repo"]},
        },
        "github": {
            "users": [{"login": "nobody"}, {"login": "alice"}, {"login": "mallory"}],
            "orgs": [{"login": "acme", "members": [{"login": "alice", "role": "admin"}, {"login": "mallory"}]}],
            "repos": [
                {"owner": "acme", "name": "infra", "private": true},
                {"owner": "acme", "name": "other", "private": true},
            ],
            "apps": [{
                "app_id": APP_ID, "slug": "acme-lockkeeper", "name": "Lockkeeper of Acme", "private_key": APP_KEY,
                "permissions": {"contents": "read", "issues": "write", "pull_requests": "write", "statuses": "write",
                    "metadata": "read"},
                "events": ["issue_comment", "pull_request"],
                "webhook_url": format!("{webhooks}/events"), "webhook_secret": WEBHOOK_SECRET,
                "installations": [{"installation_id": INSTALLATION, "account": "acme",
                    "repository_selection": "selected", "repositories": ["acme/infra"]}],
            }],
        },
    })
}

/// `emulate` with a relay in front of its API and one in front of its webhook target.
struct World {
    emulate: Emulate,
    api: Relay,
    webhooks: Relay,
}

impl World {
    async fn start() -> Self {
        let (api, webhooks) = (Relay::start().await, Relay::start().await);
        let emulate = Emulate::start(&seed(&webhooks.url)).await;
        api.lead_to(&emulate.url);
        // Until there is a server, webhooks go to a place that ignores them.
        webhooks.lead_to(&emulate.url);
        Self {
            emulate,
            api,
            webhooks,
        }
    }

    fn client(&self, key: &str) -> GitHub {
        let endpoints = GitHubEndpoints::new(HOST, Some(self.api.url.parse().unwrap())).unwrap();
        let auth = GitHubAuth::App {
            app_id: APP_ID,
            key: Secret::new(key),
            installation: None,
        };
        GitHub::new(endpoints, auth, Arc::new(SystemClock), Timeouts::default()).unwrap()
    }

    /// Opens a pull request with one commit as Alice. Returns its newest commit.
    async fn open_pull(&self, repo: &str) -> String {
        let main = self
            .emulate
            .get(ALICE, &format!("/repos/{repo}/git/ref/heads/main"))
            .await;
        let branch = json!({"ref": "refs/heads/subnet", "sha": main["object"]["sha"]});
        self.emulate
            .make(
                ALICE,
                Method::POST,
                &format!("/repos/{repo}/git/refs"),
                &branch,
            )
            .await;
        let file =
            json!({"message": "Add a subnet", "content": "IyBhIHN1Ym5ldAo=", "branch": "subnet"});
        let path = format!("/repos/{repo}/contents/net/main.tf");
        let pushed = self.emulate.make(ALICE, Method::PUT, &path, &file).await;
        let pull = json!({"title": "Add a subnet", "head": "subnet", "base": "main"});
        self.emulate
            .make(ALICE, Method::POST, &format!("/repos/{repo}/pulls"), &pull)
            .await;
        pushed["commit"]["sha"].as_str().unwrap().to_owned()
    }

    async fn comment(&self, body: &str) {
        self.emulate
            .make(ALICE, Method::POST, COMMENTS, &json!({ "body": body }))
            .await;
    }

    /// Waits until there are this many comments. Returns the hidden line of the newest, which must be the bot's.
    async fn answer(&self, times: usize) -> MachineLine {
        self.api.saw(&format!("POST {COMMENTS}"), times).await;
        let comments = self.emulate.get(ALICE, COMMENTS).await;
        let newest = comments.as_array().unwrap().last().unwrap();
        assert_eq!(
            (&newest["user"]["login"], &newest["user"]["type"]),
            (&json!(BOT), &json!("Bot"))
        );
        MachineLine::find(newest["body"].as_str().unwrap()).unwrap()
    }

    /// Returns the tokens that `emulate` has issued, each with its installation.
    async fn tokens(&self) -> Vec<Value> {
        let issued = self
            .emulate
            .get(ALICE, "/_emulate/installation-tokens")
            .await;
        let issued = issued["installation_tokens"].as_array().unwrap().iter();
        issued
            .map(|token| token["installation"]["id"].clone())
            .collect()
    }
}

fn pull(repo: &str) -> PullRef {
    PullRef {
        repo: format!("{HOST}/{repo}").parse().unwrap(),
        subject: Subject::pull(1),
    }
}

/// Brings a signed delivery about a repository, which comes from the installation.
fn delivered(github: &GitHub, repo: &str) {
    let body = json!({
        "repository": {"id": 1, "full_name": repo}, "installation": {"id": INSTALLATION},
    });
    super::webhook::bring(github, "push", &body);
}

/// Returns the webhook about the comment of Alice, as `emulate` made it.
async fn webhook_of_comment(webhooks: &Relay) -> Value {
    let of_alice = |passed: &Passed| {
        let payload: Value = serde_json::from_slice(&passed.body).unwrap();
        passed.headers["x-github-event"] == "issue_comment" && payload["sender"]["login"] == "alice"
    };
    serde_json::from_slice(
        &webhooks
            .saw_nth("the webhook of the comment", 1, of_alice)
            .await
            .body,
    )
    .unwrap()
}

/// Sends the webhook of a comment again, with a new identifier, the mark of pull requests and our own signature.
async fn deliver_marked(server: &Server, mut webhook: Value) {
    assert_eq!(
        webhook["issue"]["pull_request"],
        Value::Null,
        "emulate has learned the mark; nothing is to be added"
    );
    webhook["issue"]["pull_request"] = json!({"url": "http://127.0.0.1/repos/acme/infra/pulls/1"});
    let body = webhook.to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(WEBHOOK_SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client
        .post(server.events().clone())
        .header("content-type", "application/json");
    let request = request
        .header("x-github-delivery", "marked")
        .header("x-github-event", "issue_comment");
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    let answer = request
        .header("x-hub-signature-256", signature)
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
}

async fn assert_nothing_given_up(server: &Server) {
    let store = Store::open(
        &server.database(),
        Arc::new(SystemClock),
        Arc::new(RandomIds),
    )
    .await
    .unwrap();
    let (given_up, _) = store
        .job_list_failed_since(DateTime::UNIX_EPOCH, 10)
        .await
        .unwrap();
    assert!(given_up.is_empty(), "{given_up:#?}");
    store.close().await;
}

#[tokio::test]
async fn the_client_works_as_an_app_with_a_github_that_is_not_ours() {
    let world = World::start().await;
    let head = world.open_pull("acme/infra").await;
    let (github, at) = (world.client(APP_KEY), pull("acme/infra"));
    reads(&github, &at, &head).await;
    comments(&world, &github, &at).await;
    sets_a_status(&world, &github, &at, &head).await;
    let git = github.git_credentials(&at.repo).await.unwrap();
    let (status, seen) = world
        .emulate
        .ask(git.password.expose(), Method::GET, REPO, &Value::Null)
        .await;
    assert_eq!((status, &seen["full_name"]), (200, &json!("acme/infra")));
    assert_eq!(
        world.tokens().await,
        [INSTALLATION],
        "one token is enough for everything"
    );
    insta::assert_snapshot!(world.api.lines().replace(&head, "HEAD"), @"
    GET /repos/acme/infra/installation -> 200
    POST /app/installations/4100/access_tokens -> 201
    GET /repos/acme/infra/pulls/1 -> 200
    GET /app -> 200
    GET /repos/acme/infra/issues/1/comments -> 200
    POST /repos/acme/infra/issues/1/comments -> 201
    GET /repos/acme/infra/issues/1/comments -> 200
    GET /repos/acme/infra/issues/1/comments -> 200
    POST /repos/acme/infra/statuses/HEAD -> 404
    ");
}

async fn reads(github: &GitHub, at: &PullRef, head: &str) {
    let pull = github.pull(at).await.unwrap();
    assert_eq!(
        (pull.title.as_str(), pull.author.as_str(), pull.state),
        ("Add a subnet", "alice", PullState::Open)
    );
    assert_eq!(
        (
            pull.head_branch.as_str(),
            pull.base_branch.as_str(),
            pull.is_fork()
        ),
        ("subnet", "main", false)
    );
    assert_eq!(pull.head.as_str(), head);
}

async fn comments(world: &World, github: &GitHub, at: &PullRef) {
    let (marker, since) = (r#""id":"test""#, SystemClock.now() - TimeDelta::minutes(1));
    world.comment(&format!("What does {marker} mean?")).await;
    assert_eq!(
        github.comment_find(at, marker, since).await.unwrap(),
        [],
        "it is not the bot's"
    );
    let body = format!("Planned.\n\n<!-- lockkeeper {{{marker}}} -->");
    let posted = github.comment_post(at, &body, &anybody()).await.unwrap();
    assert_eq!(
        github.comment_find(at, marker, since).await.unwrap(),
        std::slice::from_ref(&posted)
    );
    assert_eq!(github.comment_find(at, "another", since).await.unwrap(), []);
    let kept = world
        .emulate
        .get(ALICE, &format!("{REPO}/issues/comments/{}", posted.id))
        .await;
    assert_eq!(
        (&kept["body"], &kept["user"]["login"]),
        (&json!(body), &json!(BOT))
    );
}

async fn sets_a_status(world: &World, github: &GitHub, at: &PullRef, head: &str) {
    let status = CommitStatus {
        context: StatusContext::new("lockkeeper/plan"),
        state: CommitState::Pending,
        description: "Planning".to_owned(),
        url: None,
    };
    let on = StatusTarget {
        repo: at.repo.clone(),
        pull: None,
        commit: CommitSha::new(head).unwrap(),
    };
    let refused = github
        .status_set(&on, &status, &anybody())
        .await
        .unwrap_err();
    assert!(matches!(refused, ForgeError::NotFound { .. }), "{refused}");
    let path = format!("{REPO}/statuses/{head}");
    let sent = world.api.saw(&format!("POST {path}"), 1).await;
    let sent: Value = serde_json::from_slice(&sent.body).unwrap();
    let expected = json!({"state": "pending", "context": "lockkeeper/plan", "description": "Planning",
        "target_url": null});
    assert_eq!(sent, expected);
    let (refused, _) = world.emulate.ask(ALICE, Method::POST, &path, &sent).await;
    assert_eq!(
        refused, 404,
        "emulate has learned statuses; read them back here"
    );
}

#[tokio::test]
async fn what_the_installation_does_not_grant_is_refused_by_a_github_that_is_not_ours() {
    let world = World::start().await;
    world.open_pull("acme/infra").await;
    world.open_pull("acme/other").await;
    let github = world.client(APP_KEY);
    let refused = github.pull(&pull("acme/other")).await.unwrap_err();
    assert!(
        matches!(refused, ForgeError::NotFound { .. }),
        "the App is not installed there: {refused}"
    );
    delivered(&github, "acme/other");
    let refused = github.pull(&pull("acme/other")).await.unwrap_err();
    assert!(
        matches!(refused, ForgeError::Denied { .. }),
        "the token is for another repository: {refused}"
    );

    let stranger = run("openssl", &["genrsa", "2048"], &std::env::temp_dir(), b"");
    let stranger = world.client(&String::from_utf8(stranger).unwrap());
    delivered(&stranger, "acme/infra");
    let refused = stranger.pull(&pull("acme/infra")).await.unwrap_err();
    assert!(
        matches!(refused, ForgeError::Denied { .. }),
        "the JWT is signed with another key: {refused}"
    );
    assert_eq!(world.tokens().await, [INSTALLATION]);
    insta::assert_snapshot!(world.api.lines(), @"
    GET /repos/acme/other/installation -> 404
    POST /app/installations/4100/access_tokens -> 201
    GET /repos/acme/other/pulls/1 -> 403
    GET /repos/acme/other/installation -> 404
    POST /app/installations/4100/access_tokens -> 401
    GET /repos/acme/infra/installation -> 200
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_of_a_github_that_is_not_ours_end_in_comments_there() {
    let world = World::start().await;
    // `emulate` does not support reactions.
    let settings = Settings::default().with_app().flag("--emoji-reaction=none");
    let mut server = Server::start_at(&world.api.url, settings).await;
    world
        .webhooks
        .lead_to(&server.events().origin().ascii_serialization());

    world
        .emulate
        .make(MALLORY, Method::POST, &format!("{REPO}/forks"), &json!({}))
        .await;
    let from_fork = json!({"title": "Trust me", "head": "mallory:main", "base": "main"});
    world
        .emulate
        .make(MALLORY, Method::POST, &format!("{REPO}/pulls"), &from_fork)
        .await;
    let line = world.answer(1).await;
    assert_eq!(
        (line.outcome.to_string(), line.reason.as_deref()),
        ("refused".to_owned(), Some("fork"))
    );

    world.comment("lockkeeper unlock").await;
    deliver_marked(&server, webhook_of_comment(&world.webhooks).await).await;
    let line = world.answer(2).await;
    assert_eq!(
        (line.command.unwrap().as_str(), line.outcome.to_string()),
        ("unlock", "success".to_owned())
    );

    assert_eq!(world.tokens().await, [INSTALLATION]);
    assert!(
        world
            .webhooks
            .passed()
            .iter()
            .all(|passed| passed.status == 200),
        "{}",
        world.webhooks.lines()
    );
    server.finish().await;
    assert_nothing_given_up(&server).await;
    // The webhooks name the installation, so only git looks it up. Mirror syncs run whenever there is time, so
    // their requests are left out. At its start the server asks for the permissions of the App, which is left out,
    // too.
    let asks = |line: &&str| {
        !line.contains(".git/")
            && !line.starts_with("GET /app ")
            && !line.contains("/installation ")
    };
    let lines: Vec<_> = world
        .api
        .lines()
        .lines()
        .filter(asks)
        .map(str::to_owned)
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    POST /app/installations/4100/access_tokens -> 201
    GET /repos/acme/infra/pulls/1 -> 200
    POST /repos/acme/infra/issues/1/comments -> 201
    GET /repos/acme/infra/pulls/1 -> 200
    GET /repos/acme/infra/collaborators/alice/permission -> 200
    POST /repos/acme/infra/issues/1/comments -> 201
    ");
}
