//! Attacks of a pull request by programs that its backend names. `init` may have the shared cache of providers, and
//! credentials for private modules.

use std::path::Path;

use lockkeeper::emulator::Change;
use serde_json::json;

use super::ordinary;
use crate::e2e::world::World;
use crate::support::server::RUNNER;

/// Returns the files of a backend whose credentials come from a program. The program writes its environment to a file.
fn spying(backend: &str, report: &Path) -> Vec<Change> {
    let aws = "[default]\ncredential_process = sh ./spy.sh\n";
    let spy = format!(
        "env >>'{}'\nprintf '{{\"Version\": 1, \"AccessKeyId\": \"a\", \"SecretAccessKey\": \"b\"}}'\n",
        report.display()
    );
    vec![
        Change::write("main.tf", backend),
        Change::write("aws", aws),
        Change::write("spy.sh", &spy),
    ]
}

/// Returns a backend with these lines. Nobody listens at its addresses.
fn bucket(lines: &str) -> String {
    format!(
        r#"terraform {{
  backend "s3" {{
    bucket = "acme-state"
    key    = "x"
    region = "eu-central-1"
    skip_requesting_account_id = true
    max_retries = 1
    endpoints   = {{ s3 = "http://127.0.0.1:1", sts = "http://127.0.0.1:1" }}
    {lines}
  }}
}}
"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_of_a_backend_has_nothing_that_a_plan_may_not_have() {
    let world = World::start_with(ordinary(), |_| vec![("main.tf", String::new())]).await;
    let report = world.dir.path().join("report");
    for (branch, lines) in [
        ("open", "shared_config_files = [\"./aws\"]"),
        ("hidden", "/*\n    # */ shared_config_files = [\"./aws\"]"),
    ] {
        let files = spying(&bucket(lines), &report);
        let pull = world.open_with(branch, &files).await;
        world
            .answer(pull)
            .await
            .is("autoplan failure | . default failed");
        let seen = std::fs::read_to_string(&report).unwrap_or_default();
        assert!(seen.contains("TF_IN_AUTOMATION=true"), "{branch}: {seen}");
        assert!(!seen.contains("TF_PLUGIN_CACHE_DIR"), "{branch}: {seen}");
        std::fs::remove_file(&report).unwrap();
    }
    world.finish(&[]).await;
}

/// Git reads the configuration of a bare repository around the current directory, and `init` starts git for modules. The
/// protocol `ext` runs a program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_beside_the_code_gets_nothing_either() {
    let world = World::start_with(ordinary(), |_| vec![("main.tf", String::new())]).await;
    let report = world.dir.path().join("report");
    let config = "[core]\n\tbare = true\n[protocol \"ext\"]\n\tallow = always\n\
                  [url \"ext::sh ./spy.sh \"]\n\tinsteadOf = https://modules.example.com/\n";
    let spy = format!("env >>'{}'\nexit 1\n", report.display());
    let code = "module \"x\" {\n  source = \"git::https://modules.example.com/x.git\"\n}\n";
    let files = [
        Change::write("app/main.tf", code),
        Change::write("app/HEAD", "ref: refs/heads/main\n"),
        Change::write("app/config", config),
        Change::write("app/objects/keep", ""),
        Change::write("app/refs/keep", ""),
        Change::write("app/spy.sh", &spy),
    ];
    let pull = world.open_with("feature", &files).await;
    let said = world.answer(pull).await;
    said.is("autoplan failure | app default failed");
    let told =
        "`app` has `.git`, `.hg` or `HEAD`, so it may be a repository that configures programs";
    assert!(said.text.contains(told), "{}", said.text);
    // The program runs, as programs of a plan do.
    let seen = std::fs::read_to_string(&report).unwrap_or_default();
    assert!(seen.contains("TF_IN_AUTOMATION=true"), "{seen}");
    assert!(!seen.contains("TF_PLUGIN_CACHE_DIR"), "{seen}");
    world.finish(&[]).await;
}

/// With `--run-as`, programs of a run can write to its home directory, and `init` reads its configuration there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_a_step_has_left_gets_nothing_either() {
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "checked"}],
        "workflows": {"checked": {"plan": {"steps": [{"run": "sh ./check.sh"}, "init", "plan"]}}},
    });
    let settings = ordinary()
        .run_as(RUNNER)
        .flag(&format!("--repo-config-json={config}"));
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    for (branch, script, notice) in [
        (
            "quiet",
            "mkdir -p $HOME/.terraform.d && touch $HOME/notes $HOME/.terraform.d/checkpoint_signature",
            "",
        ),
        (
            "evil",
            "echo 'host \"x\" {' >$HOME/.terraformrc",
            "an earlier step left `.terraformrc` in the home directory of the run. Therefore `init` gets neither the \
             shared provider cache nor credentials",
        ),
        (
            "hidden",
            "mkdir -p $HOME/.terraform.d && touch $HOME/.terraform.d/checkpoint_x.tfrc",
            "an earlier step left `.terraform.d` in the home directory",
        ),
    ] {
        // The comment has the notice only if `init` fails.
        let code = "module \"x\" {\n  source = \"./nothing\"\n}\n";
        let files = [
            Change::write("main.tf", code),
            Change::write("check.sh", script),
        ];
        let pull = world.open_with(branch, &files).await;
        let said = world.answer(pull).await;
        said.is("autoplan failure | . default failed");
        if notice.is_empty() {
            assert!(!said.text.contains("an earlier step"), "{}", said.text);
        } else {
            assert!(said.text.contains(notice), "{}", said.text);
        }
    }
    world.finish(&[]).await;
}
