//! Stories about the choice of the program that runs a project. All programs are the real Terraform; all but one
//! report another version.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lockkeeper::model::PullNumber;
use lockkeeper::process::Cmd;
use tempfile::TempDir;

use super::world::{World, resource};
use crate::support::server::{Settings, find_terraform};

/// Returns the version of the real Terraform.
async fn real_version() -> semver::Version {
    let cmd = Cmd::new(find_terraform())
        .args(["version", "-json"])
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nowhere");
    let output = cmd.env("CHECKPOINT_DISABLE", "1").output().await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout.bytes).unwrap();
    answer["terraform_version"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// Installs the real Terraform under another name. It only reports another version.
fn pretend(dir: &Path, version: &str) {
    let real = find_terraform();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = version ] && echo '{{\"terraform_version\":\"{version}\"}}' && exit\nexec '{}' \"$@\"\n",
        real.display()
    );
    let file = dir.join(format!("terraform{version}"));
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn programs() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for version in ["0.13.7", "0.14.11", "0.15.5"] {
        pretend(dir.path(), version);
    }
    dir
}

async fn planned_by(world: &World, pull: PullNumber) -> Vec<String> {
    let shown = |plan: &lockkeeper::model::PlanRecord| {
        format!("{} {}", plan.project.dir, plan.tool_version)
    };
    let mut plans: Vec<String> = world.plans(pull).await.iter().map(shown).collect();
    plans.sort();
    plans
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_project_gets_the_version_that_its_code_its_configuration_or_the_operator_asks_for() {
    let (programs, real) = (programs(), real_version().await);
    let settings = Settings::default()
        .flag(&format!("--tf-bin-dir={}", programs.path().display()))
        .flag("--default-tf-version=0.14.11");
    let config = "version: 3\nprojects:\n- dir: code\n- dir: configured\n  terraform_version: 0.13.7\n- dir: neither\n";
    let world = World::start_with(settings, |files| {
        vec![
            ("atlantis.yaml", config.to_owned()),
            ("code/main.tf", files.backend("code")),
            ("configured/main.tf", files.backend("configured")),
            ("neither/main.tf", files.backend("neither")),
        ]
    })
    .await;

    let demand = format!(
        "terraform {{\n  required_version = \"~> {}.{}.0\"\n}}\n",
        real.major, real.minor
    );
    let code = |dir: &str| world.files().backend(dir) + &resource("it", "1");
    let [first, second, third] = ["code", "configured", "neither"].map(code);
    let pull = world
        .open(
            "feature",
            &[
                ("code/main.tf", first.as_str()),
                ("code/versions.tf", demand.as_str()),
                ("configured/main.tf", second.as_str()),
                ("neither/main.tf", third.as_str()),
            ],
        )
        .await;
    let planned = "autoplan success | code default planned | configured default planned | neither default planned";
    world.answer(pull).await.is(planned);
    assert_eq!(
        planned_by(&world, pull).await,
        [
            format!("code {real}"),
            "configured 0.13.7".to_owned(),
            "neither 0.14.11".to_owned()
        ]
    );

    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply success | code default applied | configured default applied | neither default applied");
    world.settled(pull).await;
    world
        .finish(&[
            "#1 code default",
            "#1 configured default",
            "#1 neither default",
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_that_no_version_meets_is_refused_with_what_is_there() {
    let programs = programs();
    let settings = Settings::default().flag(&format!("--tf-bin-dir={}", programs.path().display()));
    let world = World::start_with(settings, |files| vec![("main.tf", files.backend("root"))]).await;
    let code = world.files().backend("root") + &resource("it", "1");
    let demand = "terraform {\n  required_version = \">= 0.13, < 0.13.7\"\n}\n";
    let pull = world
        .open("feature", &[("main.tf", &code), ("versions.tf", demand)])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan failure | . default failed")
        .says("line 2 of `versions.tf` says `>= 0.13, < 0.13.7`")
        .says("0.15.5, 0.14.11, 0.13.7")
        .says("`terraform_version`");
    world.finish(&[]).await;
}
