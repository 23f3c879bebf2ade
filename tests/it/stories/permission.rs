//! Stories about permissions for commands: teams of the forge, and a program of the administrator in their place.

use std::os::unix::fs::PermissionsExt;

use insta::assert_snapshot;
use lockkeeper::config::access::TeamAuthz;
use lockkeeper::emulator::{Fault, NewPull, NewTeam};
use lockkeeper::model::PullNumber;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    an_apply_needs_a_team_that_may_apply,
    a_member_of_a_child_team_may_what_its_parent_may,
    somebody_who_was_put_into_a_team_may_half_a_minute_later,
    a_command_that_no_rule_gives_is_given_to_nobody,
    unlock_of_the_own_pull_request_needs_a_team_too,
    a_push_of_somebody_who_may_not_plan_is_noted_on_the_dashboard_only,
    an_apply_is_not_waved_through_while_nobody_tells_of_teams,
    a_plan_waits_for_the_forge_to_tell_of_teams,
    cancel_needs_a_team_and_so_does_cutting_off_an_apply,
    help_is_given_to_everybody,
    a_program_decides_in_place_of_the_teams,
    a_program_that_cannot_be_run_lets_nothing_through,
    a_program_may_decide_by_project,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const LIST: (&str, &str) = (
    "gh-team-allowlist",
    "*:plan, Ops:apply, leads:apply, devs:unlock",
);

fn team(bot: &Bot, team: NewTeam) {
    bot.github.set_team("acme", team).unwrap();
}

/// Opens a pull request of `alice`, who is in `devs`. `olga` is in `ops`. The plan was read.
async fn planned(backend: Backend, flags: &[(&str, &str)]) -> (Bot, PullNumber) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], flags).await;
    team(&bot, NewTeam::new("Devs").with(&["alice"]));
    team(&bot, NewTeam::new("Ops").with(&["olga"]));
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    (bot, pull)
}

async fn an_apply_needs_a_team_that_may_apply(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[LIST]).await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: `alice` may not apply: `--gh-team-allowlist` allows `apply` only for the teams `ops` and `leads` of `acme`, and `alice` is in none of them, but in `devs`.

    * A member of `ops` or `leads` can comment the command.
    * Or a maintainer of `ops` or `leads` can add `alice`. Run the command again 30 seconds later.
    * Or an administrator can change the list. A team counts as empty if `acme` does not have it, or if the account of Lockkeeper may not see it.

    <sub>Commit `85684520` · 0 s</sub>
    ");
    let line = bot.machine_line(pull);
    assert_snapshot!(line, @r#"<!-- lockkeeper {"v":1,"command":"apply","id":"ID","pull":1,"head":"856845201b3cf6048a652acc870e30b35e0dfeed","outcome":"refused","reason":"not_allowed","projects":[]} -->"#);
    assert_eq!(runs(&bot, "apply"), 0);
    bot.hear(pull, "olga", "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_member_of_a_child_team_may_what_its_parent_may(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[LIST]).await;
    team(&bot, NewTeam::new("Ops EMEA").below("ops").with(&["emil"]));
    bot.hear(pull, "emil", "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn somebody_who_was_put_into_a_team_may_half_a_minute_later(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[LIST]).await;
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("**Apply refused**: `alice` may not apply")
    );
    team(&bot, NewTeam::new("Ops").with(&["alice"]));
    bot.db.clock.advance(std::time::Duration::from_secs(30));
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    team(&bot, NewTeam::new("Ops"));
    bot.db.clock.advance(std::time::Duration::from_secs(30));
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("**Apply refused**: `alice` may not apply")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_command_that_no_rule_gives_is_given_to_nobody(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[("gh-team-allowlist", "*:plan")]).await;
    bot.hear(pull, "olga", "lockkeeper unlock").await;
    assert_snapshot!(bot.comment(pull), @"
    **Unlock refused**: `olga` may not unlock: `--gh-team-allowlist` allows `unlock` for no team, and `olga` is in none of the teams that it names.

    * An administrator can allow `unlock` for a team.

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn unlock_of_the_own_pull_request_needs_a_team_too(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[LIST]).await;
    bot.hear(pull, "olga", "lockkeeper unlock").await;
    assert_snapshot!(bot.comment(pull), @"
    **Unlock refused**: `olga` may not unlock: `--gh-team-allowlist` allows `unlock` only for the team `devs` of `acme`, and `olga` is not in it, but in `ops`.

    * A member of `devs` can comment the command.
    * Or a maintainer of `devs` can add `olga`. Run the command again 30 seconds later.
    * Or an administrator can change the list. A team counts as empty if `acme` does not have it, or if the account of Lockkeeper may not see it.

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper unlock").await;
    assert!(bot.comment(pull).starts_with("Ran Unlock for"));
    bot.end(&[]).await;
}

async fn a_push_of_somebody_who_may_not_plan_is_noted_on_the_dashboard_only(backend: Backend) {
    let mut bot = Bot::with(
        backend,
        &[NETWORK],
        &[("gh-team-allowlist", "ops:*,devs:plan")],
    )
    .await;
    team(&bot, NewTeam::new("Ops").with(&["olga"]));
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_eq!(bot.read_comments(pull), [""; 0]);
    assert_eq!(bot.statuses(pull), "");
    let command = bot.store().command_list(10).await.unwrap().remove(0);
    assert_snapshot!(command.reason.unwrap(), @"not_allowed: `alice` may not plan: `--gh-team-allowlist` allows `plan` only for the teams `ops` and `devs` of `acme`, and `alice` is in none of them.");
    bot.hear(pull, "olga", "lockkeeper plan").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

const MEMBERSHIPS: &str = "GET /orgs/acme/teams/*/memberships/*";

async fn an_apply_is_not_waved_through_while_nobody_tells_of_teams(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[LIST]).await;
    bot.github.fault(MEMBERSHIPS, 100, Fault::BadGateway);
    bot.hear(pull, "olga", "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply failed**: this command could not be run: github.test could not be reached for the membership of `olga` in the team `acme/ops`: Server Error.

    * Run the command again to retry.
    * If it fails again, an administrator can find the cause in the log under `ID`.

    <sub>46 s</sub>
    ");
    assert_eq!(runs(&bot, "apply"), 0);
    bot.github.clear_faults();
    bot.end_given_up(&["acme/infra/network/default by #1"], &["run_command"])
        .await;
}

async fn a_plan_waits_for_the_forge_to_tell_of_teams(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[("gh-team-allowlist", "devs:plan")]).await;
    bot.db.clock.advance(std::time::Duration::from_mins(1));
    bot.github.fault(MEMBERSHIPS, 40, Fault::BadGateway);
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn cancel_needs_a_team_and_so_does_cutting_off_an_apply(backend: Backend) {
    let list = ("gh-team-allowlist", "*:plan, devs:cancel, ops:cancel_force");
    let (mut bot, pull) = planned(backend, &[list]).await;
    for (who, command, may) in [
        ("alice", "lockkeeper cancel", true),
        ("alice", "lockkeeper cancel --force", false),
        ("olga", "lockkeeper cancel", false),
        ("olga", "lockkeeper cancel --force", true),
    ] {
        bot.hear(pull, who, command).await;
        let told = bot.comment(pull);
        let expected = if may {
            "Ran Cancel: this pull request has no queued"
        } else {
            "**Cancel refused**: `"
        };
        assert!(told.starts_with(expected), "{who} {command}: {told}");
    }
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn help_is_given_to_everybody(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[("gh-team-allowlist", "devs:plan")]).await;
    bot.hear(pull, "mallory", "lockkeeper help").await;
    assert!(!bot.answer(pull).contains("refused"));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// Returns how often Terraform was started for this step.
fn runs(bot: &Bot, step: &str) -> usize {
    bot.calls()
        .iter()
        .filter(|call| call.starts_with(step))
        .count()
}

/// Writes a program beside the fake Terraform. The program records each call.
fn program(bot: &Bot, script: &str) -> TeamAuthz {
    let path = bot.tools.join("may.sh");
    let notes = bot.tools.join("asked");
    std::fs::write(
        &path,
        format!("#!/bin/sh\necho \"$*\" >>'{}'\n{script}\n", notes.display()),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    TeamAuthz {
        command: path.display().to_string(),
        args: vec!["--mode".to_owned(), "two words".to_owned()],
    }
}

fn asked(bot: &Bot) -> String {
    std::fs::read_to_string(bot.tools.join("asked")).unwrap_or_default()
}

async fn a_program_decides_in_place_of_the_teams(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[LIST]).await;
    let script = "env | sort >\"$0.env\"\necho \"I ask myself\"\n[ \"$USER_NAME\" = alice ] && echo PASS || echo \"no, $USER_NAME\"";
    let may = program(&bot, script);
    bot.restart_asking(may).await;
    bot.hear(pull, "olga", "lockkeeper apply -d network").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: `olga` may not apply: the program `may.sh` (`team_authz.command`) has to answer `pass`, and its last line was `no, olga`.

    * An administrator knows the rules of the program, and finds its output in the log.

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper plan -d network -- -target=a,b")
        .await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    assert_snapshot!(asked(&bot), @"
    --mode two words apply acme/infra acme/ops
    --mode two words plan acme/infra acme/devs
    --mode two words plan acme/infra acme/devs
    ");
    let environment = std::fs::read_to_string(bot.tools.join("may.sh.env")).unwrap();
    let head = bot.github.pull(REPO, pull).unwrap().head.to_string();
    let environment = environment
        .replace(bot.github.base_url(), "GITHUB")
        .replace(&head, "HEAD");
    let by_the_shell = |line: &&str| {
        ["PWD=", "OLDPWD=", "SHLVL=", "_="]
            .iter()
            .any(|name| line.starts_with(name))
    };
    let environment: Vec<&str> = environment
        .lines()
        .filter(|line| !by_the_shell(line))
        .collect();
    assert_snapshot!(environment.join("\n"), @r"
    BASE_BRANCH_NAME=main
    BASE_REPO_NAME=infra
    BASE_REPO_OWNER=acme
    COMMAND_NAME=plan
    COMMENT_ARGS=\-\t\a\r\g\e\t\=\a\,\b
    GIT_CONFIG_GLOBAL=/dev/null
    HEAD_BRANCH_NAME=wider
    HEAD_COMMIT=HEAD
    HEAD_REPO_NAME=infra
    HEAD_REPO_OWNER=acme
    HOME=/nonexistent
    PATH=/usr/local/bin:/usr/bin:/bin
    PROJECT_NAME=
    PULL_AUTHOR=alice
    PULL_NUM=1
    PULL_URL=GITHUB/acme/infra/pull/1
    REPO_REL_PATH=network
    USER_NAME=alice
    WORKSPACE=default
    ");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_program_that_cannot_be_run_lets_nothing_through(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[]).await;
    bot.restart_asking(TeamAuthz {
        command: "/nowhere/may".to_owned(),
        args: vec![],
    })
    .await;
    bot.hear(pull, "olga", "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @r#"
    **Apply refused**: `olga` may not apply: the program `may` (`team_authz.command`) has to answer `pass`, and it could not be run: the program "/nowhere/may" was not found or is not executable (searched: that path only).

    * An administrator knows the rules of the program, and finds its output in the log.

    <sub>Commit `85684520` · 0 s</sub>
    "#);
    let may = program(&bot, "echo pass; exit 3");
    bot.restart_asking(may).await;
    bot.hear(pull, "olga", "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .contains("it ended with exit code 3 and the last line `pass`")
    );
    assert_snapshot!(asked(&bot), @"--mode two words apply acme/infra acme/ops");
    assert_eq!(runs(&bot, "apply"), 0);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_program_may_decide_by_project(backend: Backend) {
    let (mut bot, _) = planned(backend, &[("disable-autoplan", "true")]).await;
    bot.push(
        "both",
        &[WIDER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")],
    )
    .await;
    let pull = bot
        .github
        .open_pull(REPO, NewPull::from_branch("both"))
        .await
        .unwrap();
    let may = program(
        &bot,
        "[ \"$REPO_REL_PATH\" = app ] && echo 'not app' || echo pass",
    );
    bot.restart_asking(may).await;
    bot.say(pull, "lockkeeper plan").await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for 2 projects: 1 refused, 1 planned

    | | Project | Outcome | + | ~ | - |
    |:-:|:--|:--|--:|--:|--:|
    | ⛔ | `app` | [refused](https://locks.example.com/jobs/ID) | | | |
    | 📝 | `network` | [planned](https://locks.example.com/jobs/ID) | 2 | 1 | 0 |

    ---

    ### ⛔ dir: `app` workspace: `default`

    **Plan refused**: `alice` may not plan: the program `may.sh` (`team_authz.command`) has to answer `pass`, and its last line was `not app`.

    * An administrator knows the rules of the program, and finds its output in the log.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d app
      ```

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### 📝 dir: `network` workspace: `default`

    **Plan: 2 to add, 1 to change, 0 to destroy.**

    1 to update, 2 to create:

    * update `terraform_data.other[1]`
    * create `terraform_data.it`
    * create `terraform_data.it[2]`

    <details><summary>Output (10 lines)</summary>

    ```diff
    Terraform will perform the following actions:

      # terraform_data.other[1] will be updated in-place
      # terraform_data.it will be created
    + resource "terraform_data" "it" {
          + id = (known after apply)
        }
      # terraform_data.it[2] will be created

    Plan: 2 to add, 1 to change, 0 to destroy.
    ```

    </details>

    * To **apply** this plan, comment:
      ```shell
      lockkeeper apply -d network
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID)

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    * To **apply** all plans of this pull request, comment:
      ```shell
      lockkeeper apply
      ```
    * To **discard** all its plans and release its locks, comment:
      ```shell
      lockkeeper unlock
      ```

    <sub>Commit `5b5fb783` · 0 s</sub>
    "#);
    assert_eq!(runs(&bot, "plan"), 1);
    bot.end(&["acme/infra/network/default by #2"]).await;
}
