//! Stories about `version`: the program that would run.

use insta::assert_snapshot;
use lockkeeper::model::PullNumber;

use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    the_version_is_told_of_what_is_planned,
    the_version_of_a_project_that_is_named_is_told_and_nothing_is_locked,
    a_version_that_nobody_has_is_told,
);

async fn planned(backend: Backend) -> (Bot, PullNumber) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .open_pull(
            "both",
            &[
                ("network/main.tf", "# wider\n"),
                ("app/main.tf", "# wider\n"),
            ],
        )
        .await;
    bot.comment(pull);
    (bot, pull)
}

async fn the_version_is_told_of_what_is_planned(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    let statuses = bot.statuses(pull);
    bot.say(pull, "lockkeeper version").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Version for 2 projects

    | | Project | Outcome |
    |:-:|:--|:--|
    | ℹ️ | `app` | [reported](https://locks.example.com/jobs/ID) |
    | ℹ️ | `network` | [reported](https://locks.example.com/jobs/ID) |

    ---

    ### ℹ️ dir: `app` workspace: `default`

    ```text
    Terraform v1.11.4
    on fake_amd64
    ```

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### ℹ️ dir: `network` workspace: `default`

    ```text
    Terraform v1.11.4
    on fake_amd64
    ```

    [Output of this project](https://locks.example.com/jobs/ID)

    <sub>Commit `23b99ac0` · 0 s</sub>
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"command":"version","id":"ID","pull":1,"head":"23b99ac076cebdd1a863f19963e84d34726019d4","outcome":"success","projects":[{"name":null,"dir":"app","workspace":"default","outcome":"told","plan":null},{"name":null,"dir":"network","workspace":"default","outcome":"told","plan":null}]} -->"#);
    assert_eq!(bot.statuses(pull), statuses);
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains(": 2 applied\n"));
    bot.say(pull, "lockkeeper version").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Version for 0 projects

    No project of this pull request has a plan.

    * Plan first, or name a project: `lockkeeper version -d DIR`.

    <sub>Commit `23b99ac0` · 0 s</sub>
    ");
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn the_version_of_a_project_that_is_named_is_told_and_nothing_is_locked(backend: Backend) {
    let (mut bot, first) = planned(backend).await;
    let second = bot.open_pull("docs", &[("README.md", "words\n")]).await;
    // This request comes while another pull request has the lock.
    bot.say(second, "lockkeeper version -d network").await;
    assert_snapshot!(bot.comment(second), @"
    Ran Version for dir: `network` workspace: `default`

    ```text
    Terraform v1.11.4
    on fake_amd64
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `c9fae437` · 0 s</sub>
    ");
    bot.say(first, "lockkeeper unlock").await;
    bot.comment(first);
    bot.end(&[]).await;
}

async fn a_version_that_nobody_has_is_told(backend: Backend) {
    let file = "version: 3\nprojects:\n- dir: network\n  terraform_version: 1.2.3\n";
    let mut bot = Bot::new(backend, &[NETWORK, ("lockkeeper.yaml", file)]).await;
    let pull = bot.open_pull("docs", &[("README.md", "words\n")]).await;
    bot.say(pull, "lockkeeper version -d network").await;
    let comment = bot.comment(pull);
    assert!(
        comment.starts_with("Ran Version for dir: `network` workspace: `default`: failed\n"),
        "{comment}"
    );
    assert!(
        comment.contains("1.2.3") && comment.contains("--tf-bin-dir"),
        "{comment}"
    );
    bot.end(&[]).await;
}
