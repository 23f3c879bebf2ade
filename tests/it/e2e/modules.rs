//! Stories about private modules of a pull request, with real Terraform and git.

use lockkeeper::emulator::Change;
use lockkeeper::model::PullNumber;
use serde_json::json;

use super::world::{BotComment, REPO, World};
use crate::support::server::{RUNNER, Settings, TOKEN};

const MODULES: &str = "acme/modules";
/// Code of the module.
const CODE: &str = "resource \"terraform_data\" \"of_a_module\" {}\n";

/// Makes another private repository with a module. Returns code that uses it.
async fn private_module(world: &World) -> String {
    let files = [("net/main.tf", CODE)];
    let made = world.github.create_repo(MODULES, &files).await;
    made.expect("it is new");
    let source = format!("git::{}//net", world.github.clone_url(MODULES));
    format!("module \"it\" {{\n  source = \"{source}\"\n}}\n")
}

/// Opens a pull request whose project uses a module of another private repository.
async fn using(settings: Settings) -> (World, PullNumber) {
    // A step beside `init` looks for everything that could lead to the credentials.
    let look = "env | grep -c ^GIT_CONFIG_COUNT || true; ls -l /proc/self/fd | grep -c socket: || true; cat .terraform/modules/it/.git/config";
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "looks"}],
        "workflows": {"looks": {"plan": {"steps": ["init", {"run": look}, "plan"]}}},
    });
    let settings = settings.flag(&format!("--repo-config-json={config}"));
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let main = private_module(&world).await;
    let pull = world.open("feature", &[("main.tf", &main)]).await;
    (world, pull)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_modules_are_read_by_init_and_by_nothing_else() {
    are_read(Settings::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_modules_are_read_in_bubblewrap() {
    are_read(Settings::default().flag("--sandbox=bubblewrap")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_modules_are_read_by_another_user() {
    are_read(Settings::default().run_as(RUNNER)).await;
}

async fn are_read(settings: Settings) {
    let (world, pull) = using(settings.flag("--write-git-creds")).await;
    let said = world.answer(pull).await;
    said.is("autoplan success | . default planned")
        .says("Plan: 1 to add")
        .says("module.it.terraform_data.of_a_module");
    said.says("0\n0\n[core]").says("/acme/modules.git");
    assert!(!said.text.contains(TOKEN) && !world.server.log().contains(TOKEN));
    world.server.owns(world.server.dir());
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_init_that_fetches_its_configuration_first_reads_no_private_modules() {
    let rules = json!({"repos": [{"id": "/.*/", "allowed_overrides": ["workflow"], "allow_custom_workflows": true}]});
    let settings = Settings::default()
        .flag("--write-git-creds")
        .flag(&format!("--repo-config-json={rules}"));
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    world
        .github
        .create_repo(MODULES, &[("net/main.tf", "")])
        .await
        .expect("it is new");
    let from = format!("-from-module=git::{}//net", world.github.clone_url(MODULES));
    let config = json!({
        "version": 3,
        "projects": [
            {"name": "argument", "dir": "one", "workflow": "argument"},
            {"name": "variable", "dir": "two", "workflow": "variable"},
        ],
        "workflows": {
            "argument": {"plan": {"steps": [{"init": {"extra_args": [from]}}, "plan"]}},
            "variable": {"plan": {"steps": [{"env": {"name": "TF_CLI_ARGS_init", "value": from}}, "init", "plan"]}},
        },
    });
    // Only the fetched modules make these directories projects.
    let files = [
        ("atlantis.yaml", config.to_string()),
        ("one/notes", String::new()),
        ("two/notes", String::new()),
    ];
    let pull = world
        .open(
            "feature",
            &files.each_ref().map(|(path, text)| (*path, text.as_str())),
        )
        .await;
    for name in ["argument", "variable"] {
        let said = world.ask(pull, &format!("lockkeeper plan -p {name}")).await;
        said.says(
            "`init` may run a program of the pull request: `-from-module` copies files that cannot be checked before",
        )
        .says("acme/modules.git");
    }
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_flag_private_modules_are_not_read() {
    let (world, pull) = using(Settings::default()).await;
    world
        .answer(pull)
        .await
        .is("autoplan failure | . default failed")
        .says("terraform init")
        .says("acme/modules.git");
    let without = [Change::write(
        "main.tf",
        "resource \"terraform_data\" \"own\" {}\n",
    )];
    world
        .github
        .push(REPO, "feature", &without)
        .await
        .expect("a push");
    world
        .answer(pull)
        .await
        .is("autoplan failure | . default failed");
    world.finish(&[]).await;
}

/// Plans `net`, which uses a private module, while a program of its neighbour `app` runs in the same checkout. The program ends
/// when the `init` of `net` waits for it, and runs `attack` then. Returns the answer about both.
async fn beside(attack: &str) -> (World, BotComment) {
    let steps = |script: &str| json!({"plan": {"steps": [{"run": script}, "init", "plan"]}});
    let config = json!({
        "repos": [{"id": "/.*/", "allowed_overrides": ["workflow"]}],
        "workflows": {"net": steps("sh ../net.sh"), "app": steps("sh ../app.sh")},
    });
    let settings = Settings::default()
        .flag("--write-git-creds")
        .flag("--log-level=debug")
        .flag(&format!("--repo-config-json={config}"));
    let world = World::start_with(settings, |_| vec![("notes", String::new())]).await;
    let net = private_module(&world).await;
    let projects =
        "version: 3\nprojects:\n- {dir: app, workflow: app}\n- {dir: net, workflow: net}\n";
    let at = world.dir.path().display();
    // The neighbour is there before the `init`, so that it is the `init` that waits.
    let of_net = format!("while ! test -e {at}/running; do sleep 0.01; done\n");
    let of_app = format!(
        "touch {at}/running\nwhile ! test -e {at}/end; do sleep 0.01; done\n\
         if test -e ../net/.terraform; then touch {at}/seen; fi\n{attack}\n"
    );
    let files = [
        ("atlantis.yaml", projects),
        ("net/main.tf", net.as_str()),
        ("app/main.tf", CODE),
        ("net.sh", of_net.as_str()),
        ("app.sh", of_app.as_str()),
        ("store", "terraform {\n  state_store \"x\" {}\n}\n"),
    ];
    let pull = world.open("feature", &files).await;
    world
        .server
        .logged("waits until no program of another project runs in this checkout")
        .await;
    std::fs::write(world.dir.path().join("end"), "").unwrap();
    let said = world.answer(pull).await;
    assert!(
        !world.dir.path().join("seen").exists(),
        "`init` ran beside the program"
    );
    (world, said)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_modules_are_read_when_no_program_of_a_neighbour_runs() {
    let (world, said) = beside("").await;
    said.is("autoplan success | app default planned | net default planned")
        .says("module.it.terraform_data.of_a_module");
    world.finish(&["#1 app default", "#1 net default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_a_neighbour_has_changed_meanwhile_gets_no_credentials() {
    let (world, said) = beside("cp ../store ../net/late.tf").await;
    said.is("autoplan partial | app default planned | net default failed")
        .says("`init` may run a program of the pull request: `late.tf` may have a block `state_store`");
    world.finish(&["#1 app default"]).await;
}
