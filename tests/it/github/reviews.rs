//! Tests approvals as GitHub reports them.

use std::sync::Arc;

use lockkeeper::clock::ManualClock;
use lockkeeper::forges::github::{GitHubAuth, TokenSource};
use lockkeeper::forges::{Forge, ForgeError};
use lockkeeper::model::{Approval, CommitSha};
use lockkeeper::secret::Secret;
use serde_json::{Value, json};

use super::server::{Reply, ScriptedGitHub, pull, start};

const PULL: &str = "GET /repos/acme/infra/pulls/12";

fn page(number: usize) -> String {
    format!("GET /repos/acme/infra/pulls/12/reviews?per_page=100&page={number}")
}

fn events(number: usize) -> String {
    format!("GET /repos/acme/infra/issues/12/events?per_page=100&page={number}")
}

/// Scripts the answer that the base branch never changed.
fn keep_base(server: &ScriptedGitHub) {
    let other = json!([{"event": "labeled", "created_at": "2026-03-01T13:00:00Z"}]);
    server.on(&events(1), Reply::json(&other));
}

fn permission_of(login: &str) -> String {
    format!("GET /repos/acme/infra/collaborators/{login}/permission")
}

/// Returns a pull request of `jane`.
fn pull_of(private: bool) -> Value {
    let end = |branch: &str| json!({"ref": branch, "sha": "a1".repeat(20), "repo": {"full_name": "acme/infra", "private": private}});
    json!({
        "number": 12, "html_url": "https://github.com/acme/infra/pull/12", "title": "Add a subnet", "state": "open",
        "user": {"login": "jane"}, "head": end("subnet"), "base": end("main"),
    })
}

fn review(login: &str, state: &str) -> Value {
    review_of(&"a1".repeat(20), login, state)
}

fn review_of(commit: &str, login: &str, state: &str) -> Value {
    json!({
        "id": 1, "user": {"login": login}, "state": state, "commit_id": commit, "submitted_at": "2026-03-01T12:00:00Z",
    })
}

/// Starts a server that knows the pull request and the account of the client.
async fn server_with_pull(private: bool) -> ScriptedGitHub {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&pull_of(private)));
    server.on(OWN, Reply::json(&json!({"login": "LockBot"})));
    server
}

const OWN: &str = "GET /user";

async fn approval(reviews: Value) -> Approval {
    let server = server_with_pull(true).await;
    server.on(&page(1), Reply::json(&reviews));
    keep_base(&server);
    server.client().approval(&pull()).await.unwrap()
}

fn told(approval: &Approval) -> String {
    let names = |names: &std::collections::BTreeSet<String>| {
        names.iter().cloned().collect::<Vec<_>>().join(",")
    };
    let Approval {
        by,
        asking,
        dismissed,
        onlookers,
        before_base,
    } = approval;
    let before_base = if before_base.is_empty() {
        String::new()
    } else {
        format!(" before_base {}", names(before_base))
    };
    let by = by.keys().cloned().collect();
    format!(
        "by {} asking {} dismissed {} onlookers {}{before_base}",
        names(&by),
        names(asking),
        names(dismissed),
        names(onlookers)
    )
}

#[tokio::test]
async fn the_newest_word_of_each_reviewer_counts() {
    let all = json!([
        review("bob", "APPROVED"), review("carol", "APPROVED"), review("dave", "CHANGES_REQUESTED"),
        review("eve", "APPROVED"), review("frank", "COMMENTED"), review("gina", "SOMETHING_NEW"),
        review("jane", "APPROVED"), {"user": null, "state": "APPROVED"},
        review("bob", "CHANGES_REQUESTED"), review("carol", "COMMENTED"), review("dave", "APPROVED"),
        review("eve", "DISMISSED"), review("dave", "PENDING"),
    ]);
    assert_eq!(
        told(&approval(all).await),
        "by carol,dave asking bob dismissed eve,gina onlookers "
    );
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&pull_of(true)));
    server.on(&page(1), Reply::json(&json!([])));
    assert!(
        !server
            .client()
            .approval(&pull())
            .await
            .unwrap()
            .is_given_once()
    );
}

#[tokio::test]
async fn links_to_another_host_are_not_followed() {
    let server = server_with_pull(true).await;
    let elsewhere = ScriptedGitHub::start().await;
    let link = format!(
        "<{}/repositories/1/reviews?page=2>; rel=\"next\"",
        elsewhere.url
    );
    server.on(
        &page(1),
        Reply::json(&json!([review("bob", "APPROVED")])).header("link", link),
    );
    let last = Reply::json(&json!([review("carol", "APPROVED")]))
        .header("link", "<http://x/?page=1>; rel=\"prev\"");
    server.on(&page(2), last);
    keep_base(&server);
    let approval = server.client().approval(&pull()).await.unwrap();
    assert_eq!(
        told(&approval),
        "by bob,carol asking  dismissed  onlookers "
    );
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn each_approval_is_of_the_commit_that_was_looked_at() {
    let (older, head) = ("b2".repeat(20), "a1".repeat(20));
    let all = json!([
        review_of(&older, "bob", "APPROVED"), review_of(&head, "bob", "COMMENTED"),
        review_of(&older, "carol", "APPROVED"), review_of(&head, "carol", "APPROVED"),
        review_of("a1a1a1", "dave", "APPROVED"),
        {"id": 1, "user": {"login": "eve"}, "state": "APPROVED", "commit_id": null},
        {"id": 1, "user": {"login": "frank"}, "state": "APPROVED"},
    ]);
    let all = approval(all).await;
    let commit = |text: &str| CommitSha::new(text).unwrap();
    let expected = [
        ("bob", Some(commit(&older))),
        ("carol", Some(commit(&head))),
        ("dave", None),
        ("eve", None),
        ("frank", None),
    ];
    assert_eq!(
        all.by,
        expected
            .into_iter()
            .map(|(login, commit)| (login.to_owned(), commit))
            .collect()
    );
    assert!(all.is_given_for(&commit(&head)) && all.is_given_for(&commit(&older)));
    assert!(!all.is_given_for(&commit(&"c3".repeat(20))));
}

#[tokio::test]
async fn the_bots_own_reviews_never_count() {
    let server = server_with_pull(true).await;
    server.on(
        &page(1),
        Reply::json(&json!([
            review("lockbot", "APPROVED"),
            review("keeper", "APPROVED")
        ])),
    );
    let auth = GitHubAuth::Token {
        user: Some("Keeper".to_owned()),
        token: TokenSource::Fixed(Secret::new("ghp_test")),
    };
    let client = server.client_of(auth, &Arc::new(ManualClock::new(start())));
    assert_eq!(
        told(&client.approval(&pull()).await.unwrap()),
        "by  asking  dismissed  onlookers "
    );
}

#[tokio::test]
async fn without_knowing_who_the_bot_is_no_review_counts() {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&pull_of(true)));
    server.on(
        OWN,
        Reply::status(401, &json!({"message": "Bad credentials"})),
    );
    server.on(&page(1), Reply::json(&json!([review("bob", "APPROVED")])));
    let error = server.client().approval(&pull()).await.unwrap_err();
    assert!(matches!(error, ForgeError::Denied { .. }), "{error}");
}

#[tokio::test]
async fn reviews_are_read_over_all_pages() {
    let server = server_with_pull(true).await;
    let first: Vec<Value> = (0..100).map(|_| review("bob", "APPROVED")).collect();
    server.on(&page(1), Reply::json(&json!(first)));
    server.on(
        &page(2),
        Reply::json(&json!([review("bob", "CHANGES_REQUESTED")])),
    );
    let approval = server.client().approval(&pull()).await.unwrap();
    assert_eq!(told(&approval), "by  asking bob dismissed  onlookers ");
}

#[tokio::test]
async fn in_a_public_repository_only_people_count_who_may_write() {
    let server = server_with_pull(false).await;
    let reviews = json!([
        review("bob", "APPROVED"),
        review("carol", "APPROVED"),
        review("dave", "APPROVED"),
        review("eve", "CHANGES_REQUESTED"),
        review("renovate[bot]", "APPROVED"),
    ]);
    server.on(&page(1), Reply::json(&reviews));
    let may = |permission: &str| {
        Reply::json(&json!({"permission": permission, "role_name": permission, "user": null}))
    };
    server.on(&permission_of("bob"), may("read"));
    server.on(&permission_of("carol"), may("admin"));
    server.on(
        &permission_of("dave"),
        Reply::status(404, &json!({"message": "Not Found"})),
    );
    server.on(&permission_of("eve"), may("none"));
    server.on(&permission_of("renovate%5Bbot%5D"), may("write"));
    keep_base(&server);
    let approval = server.client().approval(&pull()).await.unwrap();
    assert_eq!(
        told(&approval),
        "by carol,renovate[bot] asking  dismissed  onlookers bob,dave"
    );
}

#[tokio::test]
async fn whoever_may_not_be_asked_about_does_not_count_silently() {
    let server = server_with_pull(false).await;
    server.on(&page(1), Reply::json(&json!([review("bob", "APPROVED")])));
    server.on(
        &permission_of("bob"),
        Reply::status(403, &json!({"message": "Must have push access"})),
    );
    let error = server.client().approval(&pull()).await.unwrap_err();
    assert!(matches!(error, ForgeError::Denied { .. }), "{error}");
    let many = server_with_pull(false).await;
    let strangers: Vec<Value> = (0..51)
        .map(|n| review(&format!("s{n}"), "APPROVED"))
        .collect();
    many.on(&page(1), Reply::json(&json!(strangers)));
    let error = many.client().approval(&pull()).await.unwrap_err();
    insta::assert_snapshot!(error, @"github.com rejected the people with write access to acme/infra: more than 50 people have reviewed, too many to check one by one");
}

fn review_at(time: &str, login: &str, state: &str) -> Value {
    json!({
        "id": 1, "user": {"login": login}, "state": state, "commit_id": "a1".repeat(20), "submitted_at": time,
    })
}

#[tokio::test]
async fn only_approvals_after_the_last_change_of_the_base_branch_count() {
    let reviews = json!([
        review_at("2026-03-01T12:00:00Z", "bob", "APPROVED"),
        review_at("2026-03-01T12:00:00Z", "frank", "CHANGES_REQUESTED"),
        review_at("2026-03-01T13:00:00Z", "carol", "APPROVED"),
        review_at("2026-03-01T13:00:01Z", "dave", "APPROVED"),
        {"id": 1, "user": {"login": "eve"}, "state": "APPROVED", "commit_id": "a1".repeat(20)},
        review_at("2026-03-01T12:00:00Z", "gina", "APPROVED"),
        review_at("2026-03-01T13:30:00Z", "gina", "APPROVED"),
    ]);
    let labeled: Vec<Value> = (0..100)
        .map(|_| json!({"event": "labeled", "created_at": "2026-03-01T14:00:00Z"}))
        .collect();
    for change in ["base_ref_changed", "automatic_base_change_succeeded"] {
        let server = server_with_pull(true).await;
        server.on(&page(1), Reply::json(&reviews));
        server.on(&events(1), Reply::json(&json!(labeled)));
        let rest = json!([
            {"event": change, "created_at": "2026-03-01T13:00:00Z"},
            {"event": "base_ref_changed", "created_at": "2026-03-01T11:00:00Z"},
            {"event": "automatic_base_change_failed", "created_at": "2026-03-01T15:00:00Z"},
        ]);
        server.on(&events(2), Reply::json(&rest));
        let approval = server.client().approval(&pull()).await.unwrap();
        assert_eq!(
            told(&approval),
            "by dave,gina asking frank dismissed  onlookers  before_base bob,carol,eve"
        );
    }
}

#[tokio::test]
async fn nobody_asks_about_the_base_branch_without_an_approval_that_counts() {
    let server = server_with_pull(false).await;
    let reviews = json!([
        review("bob", "APPROVED"),
        review("carol", "CHANGES_REQUESTED")
    ]);
    server.on(&page(1), Reply::json(&reviews));
    let may = |permission: &str| Reply::json(&json!({"permission": permission}));
    server.on(&permission_of("bob"), may("read"));
    server.on(&permission_of("carol"), may("write"));
    let approval = server.client().approval(&pull()).await.unwrap();
    assert_eq!(told(&approval), "by  asking carol dismissed  onlookers bob");
}

#[tokio::test]
async fn no_approval_counts_while_the_base_branch_may_have_changed() {
    let approving = async |reply: Reply| {
        let server = server_with_pull(true).await;
        server.on(&page(1), Reply::json(&json!([review("bob", "APPROVED")])));
        server.on(&events(1), reply);
        let error = server.client().approval(&pull()).await.unwrap_err();
        error.to_string()
    };
    let refused = Reply::status(
        403,
        &json!({"message": "Resource not accessible by integration"}),
    )
    .header("x-accepted-github-permissions", "issues=read");
    insta::assert_snapshot!(approving(refused).await, @"github.com refused the credentials for the last change of the base branch of acme/infra#12: Resource not accessible by integration (permission needed: issues=read)");
    let missing = Reply::status(404, &json!({"message": "Not Found"}));
    insta::assert_snapshot!(approving(missing).await, @"the last change of the base branch of acme/infra#12 was not found on github.com, or the credentials of Lockkeeper may not see it");
    let timeless = Reply::json(&json!([{"event": "base_ref_changed", "created_at": null}]));
    insta::assert_snapshot!(approving(timeless).await, @"github.com rejected the last change of the base branch of acme/infra#12: it has no time, so approvals cannot be compared with it");
    let nameless = Reply::json(&json!([{"created_at": "2026-03-01T13:00:00Z"}]));
    let error = approving(nameless).await;
    assert!(error.contains("cannot parse the answer"), "{error}");
}
