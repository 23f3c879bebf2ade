//! The attacks of `tools` with every available version of Terraform and OpenTofu, and the swap of a plan with real
//! OpenTofu. `make interop` installs the versions and names their folder in `LOCKKEEPER_INTEROP`.

use std::path::{Path, PathBuf};

use lockkeeper::model::Distribution;

use super::ordinary;
use super::tools::{CODE, Tool};
use crate::e2e::world::{World, resource};
use crate::support::program::{interop_programs, opentofu};
use crate::support::server::Settings;

/// Code for versions before 1.4, which have no resource without a provider.
const OLD_CODE: &str =
    "variable \"x\" {\n  default = \"1\"\n}\noutput \"x\" {\n  value = var.x\n}\n";

fn is_old(name: &str) -> bool {
    name.starts_with("terraform-0.")
}

fn terraform() -> Vec<(String, Tool)> {
    let tool = |(name, program): (String, PathBuf)| {
        let code = if is_old(&name) { OLD_CODE } else { CODE };
        (name, Tool::new(program, Distribution::Terraform, code))
    };
    interop_programs("terraform-")
        .into_iter()
        .map(tool)
        .collect()
}

fn tofu() -> Tool {
    Tool::new(opentofu(), Distribution::OpenTofu, CODE)
}

/// Returns settings of a server with real OpenTofu, installed in that directory where its user can read it.
fn with_opentofu(bin: &Path) -> Settings {
    std::fs::copy(opentofu(), bin.join("tofu")).unwrap();
    let settings = ordinary()
        .flag("--default-tf-distribution=opentofu")
        .flag(&format!("--tf-bin-dir={}", bin.display()));
    settings.gives(bin);
    settings
}

#[test]
#[ignore = "needs the versions that `make interop` installs"]
fn every_terraform_knows_every_allowed_flag_but_those_that_came_later() {
    for (name, tool) in terraform() {
        // `-replace` came with 0.15.2, `-refresh-only` with 0.15.4. With earlier versions the plan fails with a
        // message.
        let later: &[&str] = if is_old(&name) {
            &["plan -refresh-only", "plan -replace="]
        } else {
            &[]
        };
        assert_eq!(tool.unknown_flags(), later, "{name}");
    }
}

#[test]
#[ignore = "needs the versions that `make interop` installs"]
fn every_terraform_takes_two_dashes_before_every_operand() {
    for (name, tool) in terraform() {
        tool.takes_two_dashes();
        if !is_old(&name) {
            tool.imports_and_removes();
        }
    }
}

#[test]
#[ignore = "needs the OpenTofu that `make interop` builds"]
fn opentofu_knows_every_allowed_flag_and_takes_two_dashes() {
    let tool = tofu();
    assert_eq!(tool.unknown_flags(), Vec::<String>::new());
    tool.takes_two_dashes();
    tool.imports_and_removes();
}

#[test]
#[ignore = "needs the OpenTofu that `make interop` builds"]
fn a_flag_that_dangles_swallows_two_dashes_and_not_the_plan() {
    let tool = tofu();
    let file = tool.plan_file();
    tool.does(&["init", "-input=false"]);
    tool.does(&["apply", "-input=false", "-auto-approve"]);
    tool.does(&["plan", "-input=false", "-var=x=2", &format!("-out={file}")]);
    let attack = [
        "apply",
        "-input=false",
        "-destroy",
        "-auto-approve",
        "-json-into",
    ];
    let guarded = tool.run(&[&attack[..], &["--", &file]].concat());
    assert!(tool.state().contains("terraform_data"), "{}", guarded.text);
    // The attack itself is real: without the dashes, everything is destroyed.
    let swapped = tool.run(&[&attack[..], &[&file]].concat());
    assert!(
        swapped.is_success && !tool.state().contains("terraform_data"),
        "{}",
        swapped.text
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the OpenTofu that `make interop` builds"]
async fn a_program_that_init_runs_has_neither_the_cache_of_providers_nor_credentials_for_modules() {
    let (bin, loot) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = with_opentofu(bin.path())
        .flag("--write-git-creds")
        .writes(loot.path());
    settings.gives(loot.path());
    let world = World::start_with(settings, |files| vec![("main.tf", files.backend("root"))]).await;
    let at = loot.path().display();
    let script = format!(
        "env > {at}/env; (printf get >&3 && dd bs=65536 count=1 <&3) > {at}/secret 2>&1; false"
    );
    let code = format!(
        "terraform {{\n  encryption {{\n    key_provider \"external\" \"x\" {{\n      command = [\"sh\", \"-c\", \"{script}\"]\n    \
         }}\n    method \"aes_gcm\" \"x\" {{\n      keys = key_provider.external.x\n    }}\n    state {{\n      method = \
         method.aes_gcm.x\n    }}\n  }}\n}}\n"
    );
    let pull = world.open("feature", &[("key.tf", &code)]).await;
    let said = world.answer(pull).await;
    said.is("autoplan failure | . default failed").says(
        "`init` may run a program of the pull request: `key.tf` may have a block `encryption`",
    );
    let env = std::fs::read_to_string(loot.path().join("env"))
        .expect("the program ran, so the attack is real");
    assert!(
        !env.contains("TF_PLUGIN_CACHE_DIR") && !env.contains("credential."),
        "{env}"
    );
    let secret = std::fs::read_to_string(loot.path().join("secret")).unwrap();
    assert!(!secret.contains("password"), "{secret}");
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the OpenTofu that `make interop` builds"]
async fn the_reviewed_plan_is_not_swapped_with_real_opentofu() {
    let bin = tempfile::tempdir().unwrap();
    let world = World::start_with(with_opentofu(bin.path()), |files| {
        vec![("main.tf", files.backend("root"))]
    })
    .await;
    let code = |input: &str| world.files().backend("root") + &resource("prod", input);
    let pull = world
        .open("feature", &[("main.tf", &code("\"one\""))])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.push("feature", "main.tf", &code("\"two\"")).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says("0 to add, 1 to change, 0 to destroy");
    for (words, flag) in [
        ("-destroy -auto-approve -json-into", "`-destroy`"),
        ("-json-into", "`-json-into`"),
        ("-help", "`-help`"),
        ("-version", "`-version`"),
    ] {
        let said = world
            .ask(pull, &format!("lockkeeper apply -- {words}"))
            .await;
        said.is("help refused (not_understood)").says(flag);
        assert!(
            world.files().state("root", None).contains("one"),
            "the state is as it was"
        );
    }
    let victim = bin.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    for flag in ["json-into", "target-file", "exclude-file"] {
        let said = world
            .ask(
                pull,
                &format!("lockkeeper plan -- -{flag}={}", victim.display()),
            )
            .await;
        said.is("help refused (not_understood)").says(flag);
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    world
        .ask(pull, "lockkeeper apply -- -concise -parallelism=2")
        .await
        .is("apply success | . default applied");
    assert!(world.files().state("root", None).contains("two"));
    world.finish(&["#1 . default"]).await;
}
