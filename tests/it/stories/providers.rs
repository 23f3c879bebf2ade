//! Stories about provider packages on this disk: built-in and plain commands share them, and unused ones are removed.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper::kit::reconcile::TickResult;
use lockkeeper::model::PullNumber;
use serde_json::{Value, json};

use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    a_command_that_is_an_init_shares_packages_with_the_built_in_one,
    what_does_more_than_an_init_keeps_its_packages_to_itself,
    an_init_fetches_before_it_prepares_a_backend,
    an_init_prepares_a_bucket_at_once,
    packages_that_no_checkout_links_to_go_after_a_while,
    packages_go_for_room_after_the_checkouts_that_link_to_them,
);

const NEEDS: &str = "# fake: provider\n# fake: add 1 change 0 destroy 0\n";
const LOCKS: [&str; 2] = [
    "acme/infra/app/default by #2",
    "acme/infra/network/default by #1",
];

/// A backend can name programs, such as `credential_process` of S3.
async fn an_init_fetches_before_it_prepares_a_backend(backend: Backend) {
    let inits = inits_with(backend, "backend \"s3\" {\n    profile = \"x\"\n  }").await;
    assert_eq!(
        inits,
        [
            "init -input=false -upgrade -backend=false",
            "init -input=false"
        ]
    );
}

async fn an_init_prepares_a_bucket_at_once(backend: Backend) {
    let bucket =
        "backend \"s3\" {\n    bucket = \"acme-state\" # of all\n    key = \"network\"\n  }";
    assert_eq!(
        inits_with(backend, bucket).await,
        ["init -input=false -upgrade"]
    );
}

/// Plans a project with this backend. Returns the arguments of each `init`.
async fn inits_with(backend: Backend, block: &str) -> Vec<String> {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let code = format!("{NEEDS}terraform {{\n  {block}\n}}\n");
    let pull = bot.open_pull("remote", &[("network/main.tf", &code)]).await;
    assert!(bot.answer(pull).contains(": planned\n"));
    assert_eq!(bot.provider_of(1, "network"), Some(bot.kept()));
    let arguments = bot.arguments();
    bot.end(&LOCKS[1..]).await;
    arguments
        .lines()
        .filter_map(|line| Some(line[line.find("init -input")?..].to_owned()))
        .collect()
}

/// Returns a configuration with these steps for the directory `network`. Others use the built-in workflow.
fn for_network(plan: &Value) -> String {
    json!({
        "repos": [{"id": "/.*/", "allowed_overrides": ["workflow"]}],
        "workflows": {"custom": {"plan": {"steps": plan}}},
    })
    .to_string()
}

const PROJECTS: (&str, &str) = (
    "lockkeeper.yaml",
    "version: 3\nprojects:\n- {dir: network, workflow: custom}\n- {dir: app}\n",
);

async fn planned_by(backend: Backend, plan: &Value, flags: &[(&str, &str)]) -> Bot {
    let config = for_network(plan);
    let flags: Vec<(&str, &str)> = flags
        .iter()
        .copied()
        .chain([("repo-config-json", config.as_str())])
        .collect();
    let mut bot = Bot::with(backend, &[NETWORK, APP, PROJECTS], &flags).await;
    for dir in ["network", "app"] {
        let pull = bot
            .open_pull(dir, &[(&format!("{dir}/main.tf"), NEEDS)])
            .await;
        assert!(bot.answer(pull).contains(": planned\n"));
    }
    bot
}

impl Bot {
    /// Returns the target of the link of a project to its provider. `None`: it is not a link.
    fn provider_of(&self, pull: i64, dir: &str) -> Option<PathBuf> {
        let checkout = format!("data/checkouts/github.test/acme/infra/{pull}/default/{dir}");
        let link = ".terraform/providers/example.com/acme/fake/1.0.0/here";
        let link = self.db.dir.path().join(checkout).join(link);
        assert!(link.is_dir(), "{} leads nowhere", link.display());
        std::fs::read_link(link).ok()
    }

    fn kept(&self) -> PathBuf {
        self.db
            .dir
            .path()
            .join("data/plugin-cache/example.com/acme/fake/1.0.0/here")
    }
}

async fn a_command_that_is_an_init_shares_packages_with_the_built_in_one(backend: Backend) {
    let plan = json!([{"run": "terraform${ATLANTIS_TERRAFORM_VERSION} init -input=false"}, "plan"]);
    let mut bot = planned_by(
        backend,
        &json!([{"run": "terraform init -input=false"}, "plan"]),
        &[],
    )
    .await;
    assert_eq!(bot.provider_of(1, "network"), Some(bot.kept()));
    assert_eq!(
        bot.provider_of(2, "app"),
        Some(bot.kept()),
        "the built-in init takes the same"
    );
    let said = |bot: &Bot, text: &str| {
        bot.arguments()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    };
    assert_eq!(said(&bot, "init -input=false"), 2);
    // No program here has this version in its name, so the command fails. Its session leaves nothing behind.
    bot.configure("repo-config-json", &for_network(&plan));
    bot.crash_and_restart().await;
    bot.say(PullNumber(1), "lockkeeper plan").await;
    assert!(bot.answer(PullNumber(1)).contains(": failed\n"));
    assert_eq!(
        std::fs::read_dir(bot.db.dir.path().join("data/tmp"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(bot.provider_of(1, "network"), Some(bot.kept()));
    bot.end(&LOCKS[..1]).await;
}

async fn what_does_more_than_an_init_keeps_its_packages_to_itself(backend: Backend) {
    let plan = json!([{"run": "terraform init -input=false && echo done"}, "plan"]);
    let bot = planned_by(backend, &plan, &[]).await;
    assert_eq!(bot.provider_of(1, "network"), None);
    assert_eq!(bot.provider_of(2, "app"), Some(bot.kept()));
    bot.end(&LOCKS).await;
}

async fn packages_that_no_checkout_links_to_go_after_a_while(backend: Backend) {
    let mut bot = planned_by(backend, &json!(["init", "plan"]), &[]).await;
    bot.db.clock.advance(Duration::from_hours(24 * 40));
    assert_eq!(
        bot.replica.tick("disk").await.unwrap(),
        TickResult {
            looked_at: 3,
            repaired: 0
        },
        "pulls are open"
    );
    bot.close(PullNumber(1)).await;
    bot.answer(PullNumber(1));
    assert_eq!(
        bot.replica.tick("disk").await.unwrap(),
        TickResult {
            looked_at: 2,
            repaired: 0
        },
        "one still links to it"
    );
    bot.close(PullNumber(2)).await;
    bot.answer(PullNumber(2));
    assert!(bot.kept().exists());
    assert_eq!(
        bot.replica.tick("disk").await.unwrap(),
        TickResult {
            looked_at: 1,
            repaired: 1
        }
    );
    assert!(!bot.kept().exists());
    bot.end(&[]).await;
}

async fn packages_go_for_room_after_the_checkouts_that_link_to_them(backend: Backend) {
    let mut bot = planned_by(backend, &json!(["init", "plan"]), &[]).await;
    let state = bot
        .db
        .dir
        .path()
        .join("data/checkouts/github.test/acme/infra/2/default/app/terraform.tfstate");
    std::fs::write(&state, "{}").unwrap();
    bot.restart_with(&[("disk-quota", &["1KiB"])]).await;
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 1);
    assert!(bot.kept().exists(), "a checkout that stays links to it");
    std::fs::remove_file(&state).unwrap();
    assert_eq!(
        bot.replica.tick("disk").await.unwrap().repaired,
        3,
        "a checkout, the mirror, and the package"
    );
    assert!(!bot.kept().exists());
    bot.say(PullNumber(1), "lockkeeper apply").await;
    assert!(bot.answer(PullNumber(1)).contains(": applied\n"));
    assert_eq!(
        bot.provider_of(1, "network"),
        Some(bot.kept()),
        "it is made anew when it is needed"
    );
    bot.end(&LOCKS).await;
}
