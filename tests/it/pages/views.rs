//! Tests that `--json` on the command line prints a thing as the API answers it.

use std::time::Duration;

use lockkeeper::model::OwnerName;
use serde_json::{Value, json};

use super::fixture::World;
use super::{apps, credentials};
use crate::support::db::by;
use crate::support::program::lockkeeper;

/// Returns what a command prints with `--json`, line by line.
fn printed(world: &World, command: &[&str]) -> Value {
    let said = lockkeeper(command, &world.url, &["--json"], &[]);
    assert_eq!(said.code, 0, "{command:?}: {}{}", said.out, said.err);
    let lines = said.out.lines();
    lines
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .collect()
}

/// Returns the answer to a script.
async fn answered(world: &World, path: &str) -> Value {
    let script = world.browser().await.without_cookie();
    let answer = script.get(path).await;
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

/// Returns the names of all fields, in the order of the alphabet.
fn fields(object: &Value) -> String {
    let mut names: Vec<&str> = object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.join(" ")
}

#[tokio::test]
async fn credentials_are_printed_as_they_are_answered_and_without_secrets() {
    let world = credentials::world().await;
    let listed = answered(&world, "/api/credentials").await;
    assert_eq!(listed["credentials"].as_array().unwrap().len(), 3);
    assert_eq!(
        printed(&world, &["credentials", "list"]),
        listed["credentials"]
    );
    let used = &listed["credentials"][0];
    insta::assert_snapshot!(fields(used), @"created_at created_by id key kind owner public updated_at url used_at");
    assert_eq!(
        (&used["kind"], &used["public"]["user"], &used["used_at"]),
        (
            &json!("token"),
            &json!("ci-bot"),
            &json!("2026-03-04T06:06:07Z")
        )
    );
    insta::assert_snapshot!(fields(&used["public"]), @"fingerprint user");
    assert!(!listed.to_string().contains("ghp_"), "{listed}");
}

#[tokio::test]
async fn owners_and_claims_are_printed_as_they_are_answered() {
    let world = credentials::world().await;
    world.clock.advance(Duration::from_millis(250));
    let dns = OwnerName::new("dns").unwrap();
    drop(world.store.owner_create(&dns, by()).await.unwrap());
    let listed = answered(&world, "/api/owners").await;
    assert_eq!(printed(&world, &["owners", "list"]), listed["owners"]);
    let first = &listed["owners"][0];
    insta::assert_snapshot!(fields(first), @"created_at created_by id name");
    assert_eq!(
        (&first["name"], &first["created_at"]),
        (&json!("dns"), &json!("2026-03-04T06:07:07.250Z"))
    );
    let listed = answered(&world, "/api/claims").await;
    assert_eq!(printed(&world, &["claims", "list"]), listed["claims"]);
    assert_eq!(listed["claims"].as_array().unwrap().len(), 3);
    let claim = answered(&world, "/api/claims?url=https://github.com/acme/infra").await;
    assert_eq!(
        printed(&world, &["claims", "show", "https://github.com/acme/infra"]),
        claim["claims"]
    );
    insta::assert_snapshot!(fields(&claim["claims"][0]), @"applications credentials id owner since url");
}

#[tokio::test]
async fn applications_are_printed_as_they_are_answered_with_their_plans_locks_and_runs() {
    let (world, pages) = apps::world().await;
    let listed = answered(&world, "/api/apps").await;
    assert_eq!(printed(&world, &["apps", "list"]), listed["apps"]);
    insta::assert_snapshot!(fields(&listed["apps"][0]), @"any_branch branch created_at created_by dir id name owner updated_at url workspace");
    let [planned, busy] = pages.map(|page| page.replace("/apps/", ""));
    for id in [&busy, &planned] {
        let shown = answered(&world, &format!("/api/apps/{id}")).await;
        assert_eq!(printed(&world, &["apps", "show", id]), json!([shown]));
    }
    let shown = answered(&world, &format!("/api/apps/{planned}")).await;
    insta::assert_snapshot!(fields(&shown), @"any_branch branch created_at created_by dir id locks name owner plan runs updated_at url workspace");
    insta::assert_snapshot!(fields(&shown["plan"]), @"commit counts made_at run state url_path");
    let run = &shown["runs"][0];
    insta::assert_snapshot!(fields(run), @"account asked_at by commit ended_at id jobs kind origin outcome reason result state");
    insta::assert_snapshot!(fields(&run["jobs"][0]), @"id kind message outcome state url_path");
    assert_eq!(run["jobs"][0]["url_path"], shown["plan"]["url_path"]);
    assert_eq!(
        (&run["origin"], &run["result"]),
        (
            &json!("api"),
            &json!("Ran Plan for dir: `network`: planned <b>")
        )
    );
    assert_eq!(
        printed(&world, &["apps", "discard", &planned]),
        json!([{ "released": shown["locks"] }])
    );
    assert_eq!(shown["locks"].as_array().unwrap().len(), 1);
}
