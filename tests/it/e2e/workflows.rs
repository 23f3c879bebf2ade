//! Stories about workflows and hooks of the administrator with real Terraform.

use lockkeeper::emulator::StatusState;
use serde_json::{Value, json};

use super::world::World;
use crate::support::server::Settings;

fn configured(config: &Value) -> Settings {
    Settings::default().flag(&format!("--repo-config-json={config}"))
}

fn code(world: &World) -> String {
    let variables = "variable \"one\" {}\nvariable \"two\" {}\n";
    world.files().backend("root")
        + variables
        + "resource \"terraform_data\" \"it\" {\n  input = \"${var.one} and ${var.two}\"\n}\n"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_of_a_workflow_reach_terraform_and_its_commands_see_the_plan() {
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "custom"}],
        "workflows": {"custom": {
            "plan": {"steps": [
                {"env": {"name": "TF_VAR_one", "command": "echo \"of #$PULL_NUM by $PULL_AUTHOR\""}},
                {"multienv": "echo \"TF_VAR_two='at $REPO_REL_DIR, $WORKSPACE'\""},
                {"init": {"extra_args": ["-upgrade=false"]}},
                {"plan": {"extra_args": ["-lock-timeout=${MISSING}5s"]}},
                "show",
                {"run": "grep -o '\"actions\":\\[\"create\"\\]' $SHOWFILE"},
                {"run": "terraform show -no-color $PLANFILE | grep -c will.be.created"},
            ]},
            "apply": {"steps": [
                {"run": "echo \"before the apply: ${TF_VAR_one:-nothing}\""},
                "apply",
                {"run": "terraform state list"},
            ]},
        }},
    });
    let world = World::start_with(configured(&config), |_| vec![("main.tf", String::new())]).await;
    let pull = world.open("feature", &[("main.tf", &code(&world))]).await;
    let said = world.answer(pull).await;
    said.is("autoplan success | . default planned")
        .says("of #1 by")
        .says("at ., default")
        .says("Variables were set");
    said.says("\"actions\":[\"create\"]\n1\n");
    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply success | . default applied")
        .says("before the apply: nothing")
        .says("Apply complete!");
    said.says("terraform_data.it\n");
    assert!(world.files().state("root", None).contains("at ., default"));
    world.finish(&["#1 . default"]).await;
}

/// The repository contains only a list; a hook makes the code from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_writes_a_project_which_counts_as_changed_where_the_operator_says_so() {
    let generate = "while read -r team; do mkdir -p $team cache/$team; \
                    sed s/TEAM/$team/ project.txt | tee $team/main.tf >cache/$team/main.tf; done <teams.txt";
    let config = json!({"repos": [{"id": "/.*/", "pre_workflow_hooks": [{"run": generate}]}]});
    let files = |files: &super::world::Files| {
        let template = files.backend("TEAM") + "resource \"terraform_data\" \"it\" {}\n";
        vec![
            ("project.txt", template),
            ("teams.txt", String::new()),
            (".gitignore", "cache/\n".to_owned()),
        ]
    };
    let settings = configured(&config).flag("--include-git-untracked-files");
    let world = World::start_with(settings, files).await;
    let pull = world
        .open("feature", &[("teams.txt", "blue\ngreen\n")])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | blue default planned | green default planned");
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | blue default planned | green default planned");
    world
        .ask(pull, "lockkeeper apply -d blue")
        .await
        .is("apply success | blue default applied")
        .says("1 added");
    assert!(world.files().state("blue", None).contains("terraform_data"));
    world.finish(&["#1 blue default", "#1 green default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_writes_the_configuration_of_the_repository() {
    let generate = "for dir in */; do test \"$dir\" = old/ || printf -- '- dir: %s\\n  name: of-%s\\n' ${dir%/} ${dir%/}; \
                    done | sed '1i version: 3\\nprojects:' >atlantis.yaml";
    let config = json!({"repos": [{
        "id": "/.*/",
        "pre_workflow_hooks": [{"run": generate, "description": "Generate"}],
        "post_workflow_hooks": [{"run": "echo \"errors: $COMMAND_HAS_ERRORS\" >$OUTPUT_STATUS_FILE"}],
    }]});
    let files = |files: &super::world::Files| {
        ["net/main.tf", "old/main.tf"]
            .map(|path| (path, files.backend(&path[..3])))
            .to_vec()
    };
    let world = World::start_with(configured(&config), files).await;
    let code = |name: &str| world.files().backend(name) + "resource \"terraform_data\" \"it\" {}\n";
    let pull = world
        .open(
            "feature",
            &[("net/main.tf", &code("net")), ("old/main.tf", &code("old"))],
        )
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | net default planned")
        .says("project: `of-net`");
    let line = world
        .status(
            pull,
            "lockkeeper/pre_workflow_hook: Generate",
            StatusState::Success,
        )
        .await;
    assert_eq!(line, "Succeeded.");
    world
        .ask(pull, "lockkeeper apply -p of-net")
        .await
        .is("apply success | net default applied");
    let context = "lockkeeper/post_workflow_hook: Post workflow hook #0";
    assert_eq!(
        world.status(pull, context, StatusState::Success).await,
        "errors: false"
    );
    world.finish(&["#1 net default"]).await;
}
