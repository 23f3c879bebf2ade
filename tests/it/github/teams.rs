//! Tests team memberships as GitHub reports them.

use lockkeeper::forges::{Forge, ForgeError};
use serde_json::{Value, json};

use super::server::{Reply, ScriptedGitHub, pull};

const MEMBER: &str = "GET /orgs/acme/teams/platform-eng/memberships/renovate%5Bbot%5D";

async fn has(reply: Reply) -> Result<bool, ForgeError> {
    let server = ScriptedGitHub::start().await;
    server.on(MEMBER, reply);
    server
        .client()
        .team_has(&pull().repo, "platform-eng", "renovate[bot]")
        .await
}

#[tokio::test]
async fn only_who_has_accepted_the_membership_is_in_a_team() {
    let state = |state: &str| {
        Reply::json(&json!({"url": "https://api.github.com/x", "role": "member", "state": state}))
    };
    assert!(has(state("active")).await.unwrap());
    assert!(!has(state("pending")).await.unwrap());
    assert!(
        !has(Reply::status(404, &json!({"message": "Not Found"})))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_missing_permission_is_no_answer() {
    let reply = Reply::status(
        403,
        &json!({"message": "Resource not accessible by integration"}),
    );
    let error = has(reply.header("x-accepted-github-permissions", "members=read"))
        .await
        .unwrap_err();
    insta::assert_snapshot!(
        error,
        @"github.com refused the credentials for the membership of `renovate[bot]` in the team `acme/platform-eng`: Resource not accessible by integration (permission needed: members=read)"
    );
    assert!(has(Reply::json(&json!({"state": 7}))).await.is_err());
}

fn teams(range: std::ops::Range<usize>) -> Value {
    range
        .map(|n| json!({"id": n, "slug": format!("team-{n}"), "name": format!("Team {n}")}))
        .collect()
}

#[tokio::test]
async fn teams_are_listed_over_all_pages_but_not_without_limit() {
    let page = |number: usize| format!("GET /orgs/acme/teams?per_page=100&page={number}");
    let server = ScriptedGitHub::start().await;
    for _ in 0..2 {
        server.on(&page(1), Reply::json(&teams(0..100)));
        server.on(&page(2), Reply::json(&teams(100..130)));
    }
    let client = server.client();
    let all = client.team_list(&pull().repo, 130).await.unwrap();
    assert_eq!((all.len(), all[129].as_str()), (130, "team-129"));
    let error = client.team_list(&pull().repo, 129).await.unwrap_err();
    insta::assert_snapshot!(error, @"github.com rejected the teams of `acme`: there are more than 129, too many to check one by one. List the teams that matter in --gh-team-allowlist");
    let person = ScriptedGitHub::start().await;
    person.on(
        &page(1),
        Reply::status(404, &json!({"message": "Not Found"})),
    );
    assert_eq!(
        person.client().team_list(&pull().repo, 10).await.unwrap(),
        [""; 0]
    );
}
