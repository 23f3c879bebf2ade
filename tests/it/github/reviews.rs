//! Who approves, as GitHub tells it.

use lockkeeper::model::Approval;
use lockkeeper::vcs::{Forge, ForgeError};
use serde_json::{Value, json};

use super::server::{Reply, ScriptedGitHub, pull};

const PULL: &str = "GET /repos/acme/infra/pulls/12";

fn page(number: usize) -> String {
    format!("GET /repos/acme/infra/pulls/12/reviews?per_page=100&page={number}")
}

fn permission_of(login: &str) -> String {
    format!("GET /repos/acme/infra/collaborators/{login}/permission")
}

/// The pull of `jane`.
fn pull_of(private: bool) -> Value {
    let end = |branch: &str| json!({"ref": branch, "sha": "a1".repeat(20), "repo": {"full_name": "acme/infra", "private": private}});
    json!({
        "number": 12, "html_url": "https://github.com/acme/infra/pull/12", "title": "Add a subnet", "state": "open",
        "user": {"login": "jane"}, "head": end("subnet"), "base": end("main"),
    })
}

fn review(login: &str, state: &str) -> Value {
    json!({"id": 1, "user": {"login": login}, "state": state, "submitted_at": "2026-03-01T12:00:00Z"})
}

async fn approval(reviews: Value) -> Approval {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&pull_of(true)));
    server.on(&page(1), Reply::json(&reviews));
    server.client().approval(&pull(), None).await.unwrap()
}

fn told(approval: &Approval) -> String {
    let names = |names: &std::collections::BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(",");
    let Approval { by, asking, dismissed, onlookers } = approval;
    format!("by {} asking {} dismissed {} onlookers {}", names(by), names(asking), names(dismissed), names(onlookers))
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
    assert_eq!(told(&approval(all).await), "by carol,dave asking bob dismissed eve,gina onlookers ");
    assert!(!approval(json!([])).await.is_given());
}

#[tokio::test]
async fn reviews_are_read_over_all_pages() {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&pull_of(true)));
    let first: Vec<Value> = (0..100).map(|_| review("bob", "APPROVED")).collect();
    server.on(&page(1), Reply::json(&json!(first)));
    server.on(&page(2), Reply::json(&json!([review("bob", "CHANGES_REQUESTED")])));
    let approval = server.client().approval(&pull(), None).await.unwrap();
    assert_eq!(told(&approval), "by  asking bob dismissed  onlookers ");
}

#[tokio::test]
async fn in_a_public_repository_only_people_count_who_may_write() {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&pull_of(false)));
    let reviews = json!([
        review("bob", "APPROVED"),
        review("carol", "APPROVED"),
        review("dave", "APPROVED"),
        review("eve", "CHANGES_REQUESTED"),
        review("renovate[bot]", "APPROVED"),
    ]);
    server.on(&page(1), Reply::json(&reviews));
    let may = |permission: &str| Reply::json(&json!({"permission": permission, "role_name": permission, "user": null}));
    server.on(&permission_of("bob"), may("read"));
    server.on(&permission_of("carol"), may("admin"));
    server.on(&permission_of("dave"), Reply::status(404, &json!({"message": "Not Found"})));
    server.on(&permission_of("eve"), may("none"));
    server.on(&permission_of("renovate%5Bbot%5D"), may("write"));
    let approval = server.client().approval(&pull(), None).await.unwrap();
    assert_eq!(told(&approval), "by carol,renovate[bot] asking  dismissed  onlookers bob,dave");
}

#[tokio::test]
async fn whoever_may_not_be_asked_about_does_not_count_silently() {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&pull_of(false)));
    server.on(&page(1), Reply::json(&json!([review("bob", "APPROVED")])));
    server.on(&permission_of("bob"), Reply::status(403, &json!({"message": "Must have push access"})));
    let error = server.client().approval(&pull(), None).await.unwrap_err();
    assert!(matches!(error, ForgeError::Denied { .. }), "{error}");
    let many = ScriptedGitHub::start().await;
    many.on(PULL, Reply::json(&pull_of(false)));
    let strangers: Vec<Value> = (0..51).map(|n| review(&format!("s{n}"), "APPROVED")).collect();
    many.on(&page(1), Reply::json(&json!(strangers)));
    let error = many.client().approval(&pull(), None).await.unwrap_err();
    insta::assert_snapshot!(error, @"github.com rejected who may write to acme/infra: more than 50 people have reviewed, which are too many to ask about one by one");
}
