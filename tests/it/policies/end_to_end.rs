//! Stories about policies with the whole program and real Terraform: the embedded engine, and with `make interop` a real
//! conftest.

use std::path::Path;

use lockkeeper::emulator::StatusState;
use lockkeeper::model::PullNumber;
use serde_json::json;
use tempfile::TempDir;

use crate::e2e::world::{BotComment, REPO, World, resource};
use crate::support::program::real_conftest;
use crate::support::server::Settings;

/// Policy against the loss of databases.
const KEEP: &str = r#"package main

import rego.v1

deny contains msg if {
  some change in input.resource_changes
  change.type == "terraform_data"
  "delete" in change.change.actions
  data.lockkeeper.project.dir == "."
  msg := {
    "msg": sprintf("%s would be destroyed", [change.address]),
    "resource": change.address,
  }
}
"#;
const APPLY: &str = "lockkeeper apply";
const APPROVE: &str = "lockkeeper approve_policies";

/// A server with one policy set, whose owner is `bob`.
struct PolicyStory {
    world: World,
    /// Directory of the policies and of conftest.
    dir: TempDir,
}

impl PolicyStory {
    async fn start(engine: &str, policy: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), policy);
        let config = json!({"policies": {"policy_sets": [{
            "name": "databases",
            "path": dir.path().join("databases"),
            "engine": engine,
            "owners": {"users": ["bob"]},
        }]}});
        let mut settings = Settings::default()
            .flag("--enable-policy-checks")
            .flag(&format!("--repo-config-json={config}"));
        if engine == "conftest" {
            let bin = dir.path().join("bin");
            std::fs::create_dir(&bin).unwrap();
            std::fs::copy(real_conftest(), bin.join("conftest")).unwrap();
            settings = settings.flag(&format!("--tf-bin-dir={}", bin.display()));
        }
        let world =
            World::start_with(settings, |files| vec![("main.tf", files.backend("root"))]).await;
        Self { world, dir }
    }

    fn code(&self, resources: &str) -> String {
        self.world.files().backend("root") + resources
    }

    /// Opens a pull request that makes a database.
    async fn open(&self) -> (PullNumber, BotComment) {
        let code = self.code(&resource("db", "\"orders\""));
        let pull = self.world.open("feature", &[("main.tf", &code)]).await;
        (pull, self.world.answer(pull).await)
    }

    /// Comments as somebody and returns the answer.
    async fn ask(&self, pull: PullNumber, who: &str, text: &str) -> BotComment {
        let github = &self.world.github;
        github.comment(REPO, pull, who, text).await.unwrap();
        self.world.answer(pull).await
    }

    fn state(&self) -> String {
        self.world.files().state("root", None)
    }
}

fn write(dir: &Path, policy: &str) {
    let set = dir.join("databases");
    std::fs::create_dir_all(&set).unwrap();
    std::fs::write(set.join("keep.rego"), policy).unwrap();
}

async fn a_violation_refuses_the_apply_until_it_is_approved(engine: &str) {
    let story = PolicyStory::start(engine, KEEP).await;
    let world = &story.world;
    let (pull, said) = story.open().await;
    said.is("autoplan success | . default planned");
    let said = story.ask(pull, "alice", APPLY).await;
    said.is("apply success | . default applied");
    assert!(story.state().contains("orders"));

    let removed = story.code("# The database is gone.\n");
    world.push("feature", "main.tf", &removed).await;
    let said = world.answer(pull).await;
    said.says("**❌ Policies did not pass**")
        .says("would be destroyed")
        .says("1 violation, 0 of 1 approval")
        .says("`bob` can approve this.");
    let context = "lockkeeper/policy_check";
    world.status(pull, context, StatusState::Failure).await;
    let refused = "**Apply refused**: the policies of this plan did not pass: `databases` is violated and has 0 of 1 approval. \
                   Nothing was applied, and the plan is kept.";
    for command in [APPLY, "lockkeeper apply -d ."] {
        story.ask(pull, "alice", command).await.says(refused);
    }
    let said = story.ask(pull, "alice", APPROVE).await;
    said.says("`alice` may not approve `databases`. `bob` can approve it.");
    story.ask(pull, "alice", APPLY).await.says(refused);
    assert!(story.state().contains("orders"), "nothing was destroyed");

    let said = story.ask(pull, "bob", APPROVE).await;
    said.says("`bob` approved the violations of `databases`.");
    world.status(pull, context, StatusState::Success).await;
    let said = story.ask(pull, "alice", APPLY).await;
    said.is("apply success | . default applied");
    assert!(!story.state().contains("orders"));
    story.world.finish(&["#1 . default"]).await;
}

async fn a_policy_that_cannot_be_read_refuses_the_apply(engine: &str) {
    let story = PolicyStory::start(engine, "package main\n\ndeny contains msg if {\n").await;
    let (pull, said) = story.open().await;
    said.says("**Policy set `databases`**: not evaluated")
        .says("keep.rego");
    let said = story.ask(pull, "bob", APPROVE).await;
    said.says("No approval can let this plan pass. Plan again.");
    let said = story.ask(pull, "alice", APPLY).await;
    said.says("A set that could not be evaluated cannot be approved.");
    assert_eq!(story.world.server.calls("apply").len(), 0);

    write(story.dir.path(), KEEP);
    let said = story.ask(pull, "alice", "lockkeeper plan").await;
    said.is("plan success | . default planned")
        .says("Policies passed");
    let said = story.ask(pull, "alice", APPLY).await;
    said.is("apply success | . default applied");
    assert!(story.state().contains("orders"));
    story.world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_violation_refuses_the_apply_until_it_is_approved_with_the_embedded_engine() {
    a_violation_refuses_the_apply_until_it_is_approved("embedded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the conftest that `make interop` builds"]
async fn a_violation_refuses_the_apply_until_it_is_approved_with_real_conftest() {
    a_violation_refuses_the_apply_until_it_is_approved("conftest").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_cannot_be_read_refuses_the_apply_with_the_embedded_engine() {
    a_policy_that_cannot_be_read_refuses_the_apply("embedded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the conftest that `make interop` builds"]
async fn a_policy_that_cannot_be_read_refuses_the_apply_with_real_conftest() {
    a_policy_that_cannot_be_read_refuses_the_apply("conftest").await;
}
