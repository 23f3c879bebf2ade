//! Attacks of code in a plan on the files that its apply runs, where no reviewer looks: in `.terraform`.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use serde_json::json;

use super::ordinary;
use crate::e2e::world::World;
use crate::support::server::Settings;

/// A module with a script that applies run. The script writes to a file that the story reads.
const MODULE: &str = r#"resource "terraform_data" "it" {
  input = "x"
  provisioner "local-exec" {
    command = "sh ${path.module}/run.sh"
  }
}
"#;

/// Returns settings in which the administrator's workflow runs a script of the repository in plans, as many run
/// linters.
fn settings() -> Settings {
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "checked"}],
        "workflows": {"checked": {"plan": {"steps": ["init", "plan", {"run": "sh ./check.sh"}]}}},
    });
    ordinary().flag(&format!("--repo-config-json={config}"))
}

/// Starts a server with code that uses a module of another repository. Also returns the report of the module's
/// script.
async fn world() -> (World, String, PathBuf) {
    // Without a lock file in the repository, `init` takes the newest version of everything each time.
    let files = ["check.sh", ".terraform.lock.hcl"].map(|path| (path, "# nothing\n".to_owned()));
    let world = World::start_with(settings(), |_| files.to_vec()).await;
    let report = world.dir.path().join("report");
    let script = format!("echo reviewed >>'{}'\n", report.display());
    world
        .github
        .create_repo("acme/modules", &[("main.tf", MODULE), ("run.sh", &script)])
        .await
        .unwrap();
    let modules = world.dir.path().join("forge/git/acme/modules.git");
    world.server.owns(&modules);
    let module = format!(
        "module \"m\" {{\n  source = \"git::file://{}\"\n}}\n",
        modules.display()
    );
    let code = world.files().backend("root") + &module;
    (world, code, report)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_does_not_run_what_a_plan_left_in_the_directory_of_the_tool() {
    let (world, code, report) = world().await;
    let attack = format!(
        "for f in .terraform/modules/*/run.sh; do test -f $f && echo \"echo attacked >>'{}'\" >$f; done\n",
        report.display()
    );
    let pull = world
        .open("feature", &[("main.tf", &code), ("check.sh", &attack)])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    // A second plan does not repair the files that the first one changed.
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    assert_eq!(std::fs::read_to_string(&report).unwrap(), "reviewed\n");
    world.finish(&["#1 . default"]).await;
}

/// Unchanged files are not created again: an apply begins at once, and a second plan does not fetch modules again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_changed_is_used_as_it_is() {
    let (world, code, report) = world().await;
    let pull = world
        .open("feature", &[("main.tf", &code), ("check.sh", "true\n")])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    let script = "checkouts/github.test/acme/infra/1/default/.terraform/modules/m/run.sh";
    let file = || {
        std::fs::metadata(world.server.data_dir().join(script))
            .unwrap()
            .ino()
    };
    let first = file();
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    assert_eq!(file(), first, "the file was made again");
    assert_eq!(std::fs::read_to_string(&report).unwrap(), "reviewed\n");
    world.finish(&["#1 . default"]).await;
}
