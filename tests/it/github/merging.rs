//! Tests whether GitHub would merge a pull request. Requirements that only wait for Lockkeeper itself do not count.

use std::fmt::Write as _;
use std::sync::Arc;

use lockkeeper::clock::{Clock, ManualClock};
use lockkeeper::forges::{Forge, ForgeError};
use lockkeeper::model::{IgnoredStatuses, Mergeability, RunKind};
use serde_json::{Value, json};

use super::server::{Reply, ScriptedGitHub, pull, start, token};

const PULL: &str = "GET /repos/acme/infra/pulls/12";
const RULES: &str = "GET /repos/acme/infra/rules/branches/release%2F1%2E2?per_page=100&page=1";
const BRANCH: &str = "GET /repos/acme/infra/branches/release%2F1%2E2";
const PROTECTION: &str = "GET /repos/acme/infra/branches/release%2F1%2E2/protection";
const REVIEWS: &str = "GET /repos/acme/infra/pulls/12/reviews?per_page=100&page=1";
const ASIDE: IgnoredStatuses<'_> = IgnoredStatuses {
    name: "lockkeeper",
    kinds: &[RunKind::Apply],
    others: &[],
};

fn statuses_line() -> String {
    format!(
        "GET /repos/acme/infra/commits/{}/statuses?per_page=100&page=1",
        "a1".repeat(20)
    )
}

fn runs_line() -> String {
    format!(
        "GET /repos/acme/infra/commits/{}/check-runs?filter=latest&per_page=100&page=1",
        "a1".repeat(20)
    )
}

fn answer(mergeable: &Value, state: &str) -> Value {
    let end = |branch: &str| json!({"ref": branch, "sha": "a1".repeat(20), "repo": {"full_name": "acme/infra", "private": true}});
    json!({
        "number": 12, "html_url": "https://github.com/acme/infra/pull/12", "title": "Add a subnet", "state": "open",
        "draft": state == "draft", "user": {"login": "jane"}, "head": end("subnet"), "base": end("release/1.2"),
        "mergeable": mergeable, "mergeable_state": state,
    })
}

async fn ask(server: &ScriptedGitHub) -> Result<Mergeability, ForgeError> {
    server.client().mergeability(&pull(), &ASIDE).await
}

#[tokio::test]
async fn githubs_own_word_decides() {
    let mut table = String::new();
    for (mergeable, state) in [
        (json!(true), "clean"),
        (json!(true), "unstable"),
        (json!(true), "has_hooks"),
        (json!(true), "draft"),
        (json!(false), "dirty"),
        (json!(false), "clean"),
        (json!(true), "behind"),
        (json!(true), "brand_new"),
    ] {
        let server = ScriptedGitHub::start().await;
        server.on(PULL, Reply::json(&answer(&mergeable, state)));
        let told = ask(&server).await.unwrap();
        writeln!(table, "{mergeable} {state}: {told:?}").unwrap();
    }
    insta::assert_snapshot!(table, @r#"
    true clean: Yes
    true unstable: Yes
    true has_hooks: Yes
    true draft: No([Draft])
    false dirty: No([Conflicts])
    false clean: No([Conflicts])
    true behind: No([Behind])
    true brand_new: No([Other("brand_new")])
    "#);
}

#[tokio::test]
async fn github_is_asked_again_while_it_finds_out() {
    let server = ScriptedGitHub::start().await;
    for _ in 0..3 {
        server.on(PULL, Reply::json(&answer(&Value::Null, "unknown")));
    }
    server.on(PULL, Reply::json(&answer(&json!(true), "clean")));
    let clock = Arc::new(ManualClock::new(start()));
    let client = server.client_of(token("ghp_test"), &clock);
    assert_eq!(
        client.mergeability(&pull(), &ASIDE).await.unwrap(),
        Mergeability::Yes
    );
    assert_eq!((clock.now() - start()).num_seconds(), 7);
}

#[tokio::test]
async fn what_is_not_known_in_the_end_is_not_mergeable() {
    let server = ScriptedGitHub::start().await;
    for reply in [
        answer(&Value::Null, "unknown"),
        answer(&Value::Null, "clean"),
        answer(&json!(true), "unknown"),
    ] {
        server.on(PULL, Reply::json(&reply));
    }
    for _ in 0..2 {
        server.on(PULL, Reply::json(&answer(&Value::Null, "unknown")));
    }
    assert_eq!(ask(&server).await.unwrap(), Mergeability::NotKnownYet);
}

/// Scripts a pull request that GitHub calls blocked, with these branch rules, and these statuses and check runs of
/// its head.
async fn blocked(rules: &Value, statuses: &Value, runs: &Value) -> ScriptedGitHub {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&answer(&json!(true), "blocked")));
    server.on(RULES, Reply::json(rules));
    server.on(
        BRANCH,
        Reply::json(&json!({"name": "main", "protected": true, "protection": {"enabled": false}})),
    );
    server.on(&statuses_line(), Reply::json(statuses));
    server.on(
        &runs_line(),
        Reply::json(&json!({"total_count": 1, "check_runs": runs})),
    );
    server
}

fn checks(strict: bool, contexts: &[&str]) -> Value {
    let all: Vec<Value> = contexts
        .iter()
        .map(|context| json!({ "context": context }))
        .collect();
    json!([{"type": "required_status_checks", "parameters":
        {"strict_required_status_checks_policy": strict, "required_status_checks": all}}])
}

#[tokio::test]
async fn a_pull_that_waits_only_for_our_own_apply_is_mergeable_but_for_that() {
    let statuses = json!([
        {"context": "ci/test", "state": "success"}, {"context": "ci/test", "state": "failure"},
        {"context": "lockkeeper/apply", "state": "pending"},
    ]);
    let runs = json!([{"name": "lint", "status": "completed", "conclusion": "success", "app": {"id": 15368}}]);
    let server = blocked(
        &checks(true, &["ci/test", "lint", "lockkeeper/apply"]),
        &statuses,
        &runs,
    )
    .await;
    let told = ask(&server).await.unwrap();
    let ours = ["lockkeeper/apply".to_owned()].into();
    assert_eq!(
        told,
        Mergeability::ButFor {
            statuses: ours,
            up_to_date: true
        }
    );
}

#[tokio::test]
async fn another_check_that_is_missing_stands_in_the_way() {
    let server = blocked(
        &checks(false, &["ci/test", "lint", "lockkeeper/apply"]),
        &json!([]),
        &json!([]),
    )
    .await;
    insta::assert_debug_snapshot!(ask(&server).await.unwrap(), @r#"
    No(
        [
            Check {
                name: "ci/test",
                state: Missing,
            },
            Check {
                name: "lint",
                state: Missing,
            },
        ],
    )
    "#);
}

#[tokio::test]
async fn a_block_that_no_rule_explains_stays_one() {
    let statuses = json!([{"context": "lockkeeper/apply", "state": "success"}]);
    let server = blocked(&checks(false, &["lockkeeper/apply"]), &statuses, &json!([])).await;
    insta::assert_debug_snapshot!(ask(&server).await.unwrap(), @"
    No(
        [
            Unexplained,
        ],
    )
    ");
}

#[tokio::test]
async fn rules_that_may_not_be_looked_at_stand_in_the_way() {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&answer(&json!(true), "blocked")));
    server.on(RULES, Reply::json(&json!([])));
    server.on(
        BRANCH,
        Reply::json(&json!({"name": "main", "protected": true})),
    );
    let denied = Reply::status(
        403,
        &json!({"message": "Resource not accessible by integration"}),
    );
    server.on(
        PROTECTION,
        denied.header("x-accepted-github-permissions", "administration=read"),
    );
    insta::assert_debug_snapshot!(ask(&server).await.unwrap(), @r#"
    No(
        [
            Hidden {
                rule: "the classic protection of the branch",
                why: "github.com refused the credentials for the protection of the branch `release/1.2` of acme/infra, which requires the permission to read administration: Resource not accessible by integration (permission needed: administration=read)",
            },
        ],
    )
    "#);
}

#[tokio::test]
async fn approvals_are_counted_by_the_rules_of_the_branch() {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&answer(&json!(true), "blocked")));
    server.on(RULES, Reply::json(&json!([])));
    server.on(
        BRANCH,
        Reply::json(&json!({"name": "main", "protected": true, "protection": {"enabled": true}})),
    );
    let protection =
        json!({"required_pull_request_reviews": {"required_approving_review_count": 2}});
    server.on(PROTECTION, Reply::json(&protection));
    server.on("GET /user", Reply::json(&json!({"login": "lockbot"})));
    let review = |login: &str, state: &str| json!({"user": {"login": login}, "state": state});
    server.on(
        REVIEWS,
        Reply::json(&json!([
            review("bob", "APPROVED"),
            review("eve", "APPROVED"),
            review("carol", "CHANGES_REQUESTED")
        ])),
    );
    for (login, may) in [("bob", "write"), ("eve", "read"), ("carol", "admin")] {
        let line = format!("GET /repos/acme/infra/collaborators/{login}/permission");
        server.on(
            &line,
            Reply::json(&json!({"permission": may, "role_name": may, "user": null})),
        );
    }
    insta::assert_debug_snapshot!(ask(&server).await.unwrap(), @r#"
    No(
        [
            Approvals {
                wanted: 2,
                given: {
                    "bob",
                },
            },
            ChangesAsked(
                {
                    "carol",
                },
            ),
        ],
    )
    "#);
}

#[tokio::test]
async fn a_fault_is_no_answer() {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::json(&answer(&json!(true), "blocked")));
    for _ in 0..3 {
        server.on(RULES, Reply::status(502, &json!({})));
    }
    assert!(matches!(
        ask(&server).await,
        Err(ForgeError::Unavailable { .. })
    ));
}
