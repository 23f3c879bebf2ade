//! Stories about checkouts with only the files that their projects need (`--sparse-checkout`), by both strategies.

use insta::assert_snapshot;
use serde_json::json;

use crate::stories::{APP, DB};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    a_checkout_holds_what_its_projects_reach_and_can_be_planned_and_applied,
    what_was_out_of_reach_is_said_and_how_to_reach_it,
    hooks_see_everything,
);

const NETWORK: (&str, &str) = (
    "live/network/main.tf",
    "module \"vpc\" {\n  source = \"../../shared/vpc\"\n}\n",
);
const VPC: (&str, &str) = (
    "shared/vpc/main.tf",
    "module \"dns\" {\n  source = \"../dns\"\n}\n",
);
const DNS: (&str, &str) = (
    "shared/dns/main.tf",
    "resource \"terraform_data\" \"dns\" {}\n",
);
const REGION: (&str, &str) = ("regions/eu.tfvars", "region = \"eu\"\n");
const ON_THE_WAY: (&str, &str) = ("live/root.hcl", "# of all\n");
const CONFIG: (&str, &str) = (
    "atlantis.yaml",
    "version: 3\nprojects:\n- dir: live/network\n  autoplan: {when_modified: ['*.tf', '../../regions/eu.tfvars']}\n- dir: app\n\
     - dir: db\n",
);

impl Bot {
    /// Returns the files in the checkout of the default workspace of the first pull request.
    fn files_on_disk(&self) -> String {
        let mut files = Vec::new();
        let root = self
            .db
            .dir
            .path()
            .join("data/checkouts/github.test/acme/infra/1/default");
        let mut todo = vec![root.clone()];
        while let Some(dir) = todo.pop() {
            for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    todo.push(entry.path());
                } else {
                    files.push(
                        entry
                            .path()
                            .strip_prefix(&root)
                            .unwrap()
                            .display()
                            .to_string(),
                    );
                }
            }
        }
        files.retain(|file| file != ".git");
        files.sort();
        files.join(" ")
    }

    fn remove_checkouts(&self) {
        std::fs::remove_dir_all(self.db.dir.path().join("data/checkouts")).unwrap();
    }
}

/// Starts a bot. Each database uses one of the strategies.
async fn start(backend: Backend, files: &[(&str, &str)], flags: &[(&str, &str)]) -> Bot {
    let strategy = if backend == Backend::Postgres {
        "merge"
    } else {
        "branch"
    };
    let flags: Vec<_> = [("sparse-checkout", "true"), ("checkout-strategy", strategy)]
        .iter()
        .chain(flags)
        .copied()
        .collect();
    Bot::with(backend, files, &flags).await
}

async fn a_checkout_holds_what_its_projects_reach_and_can_be_planned_and_applied(backend: Backend) {
    let files = [NETWORK, VPC, DNS, REGION, ON_THE_WAY, APP, DB, CONFIG];
    let mut bot = start(backend, &files, &[("autoplan-modules", "true")]).await;
    let pull = bot
        .open_pull(
            "dns",
            &[("shared/dns/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for dir: `live/network` workspace: `default`: planned\n")
    );
    let reached = "atlantis.yaml live/network/main.tf live/root.hcl regions/eu.tfvars shared/dns/main.tf shared/vpc/main.tf";
    assert_eq!(bot.files_on_disk(), reached);
    bot.remove_checkouts();
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Apply for dir: `live/network` workspace: `default`: applied\n")
    );
    assert_eq!(bot.files_on_disk(), reached);
    bot.say(pull, "lockkeeper plan -d app").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for dir: `app` workspace: `default`: ")
    );
    assert_eq!(
        bot.files_on_disk(),
        format!("app/main.tf {reached}"),
        "it is made wider"
    );
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/live/network/default by #1",
    ])
    .await;
}

async fn what_was_out_of_reach_is_said_and_how_to_reach_it(backend: Backend) {
    let steps = json!([{"run": "d=../d; test -e ${d}b/main.tf || { echo \"${d}b: No such file or directory\"; exit 1; }"}]);
    let workflow = json!({"plan": {"steps": steps}});
    let config =
        json!({"repos": [{"id": "/.*/", "workflow": "custom"}], "workflows": {"custom": workflow}})
            .to_string();
    let mut bot = start(backend, &[APP, DB], &[("repo-config-json", &config)]).await;
    let pull = bot
        .open_pull("app", &[("app/main.tf", "# changed\n")])
        .await;
    let said = bot.answer(pull);
    assert!(
        said.contains("name it in `when_modified` of the project"),
        "{said}"
    );
    let config = "version: 3\nprojects:\n- dir: app\n  autoplan: {when_modified: ['*.tf', '../db/main.tf']}\n";
    bot.push("app", &[("atlantis.yaml", config)]).await;
    bot.settle().await;
    assert_snapshot!(bot.answer(pull).lines().next().unwrap(), @"Ran Plan for dir: `app` workspace: `default`: planned");
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn hooks_see_everything(backend: Backend) {
    let hooks = json!([{"run": "test -e db/main.tf && echo $REPO_ROOT"}]);
    let config = json!({"repos": [{"id": "/.*/", "pre_workflow_hooks": hooks}]}).to_string();
    let flags = [
        ("repo-config-json", config.as_str()),
        ("fail-on-pre-workflow-hook-error", "true"),
    ];
    let mut bot = start(backend, &[APP, DB], &flags).await;
    let pull = bot
        .open_pull("app", &[("app/main.tf", "# changed\n")])
        .await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for dir: `app` workspace: `default`: ")
    );
    assert_eq!(bot.files_on_disk(), "app/main.tf db/main.tf");
    bot.end(&["acme/infra/app/default by #1"]).await;
}
