//! Counts the programs, statements and requests of a command, which must not creep up.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join;
use lockkeeper::emulator::{Delivering, Fault};
use lockkeeper::model::PullNumber;
use lockkeeper::queue::Tick;

use super::repositories::infra_of;
use crate::stories::NETWORK;
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};
use crate::support::log;

story!(a_plan_by_comment_starts_no_git_if_the_mirror_has_both_commits);
story!(a_plan_asks_the_forge_everything_at_once);
story!(an_apply_asks_the_forge_for_the_pull_request_and_its_base_branch_at_once);
story!(answers_about_an_earlier_head_are_not_used);
story!(answers_about_an_earlier_base_branch_are_not_used);

/// Maximum number of statements and commits of a plan, with all its jobs: the delivery, the command, the comment and
/// the statuses. It is the current number: one of them finds the account of the author. Lower it when you save some.
const MOST_STATEMENTS: usize = 78;

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");

async fn a_plan_by_comment_starts_no_git_if_the_mirror_has_both_commits(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.db.clock.advance(Duration::from_mins(5));
    let (before, since) = (bot.github.requests().len(), bot.db.now());
    let heard = log::listen();
    bot.say(pull, "lockkeeper plan").await;
    let heard = heard.end();
    let programs = started(&heard);
    assert!(bot.comment(pull).contains("**Plan: 2 to add"));
    assert_eq!(
        programs,
        ["terraform init", "terraform plan", "terraform show"]
    );
    // Some are asked at the same time, in no certain order.
    let requests: BTreeSet<String> = requests(&bot, before).into_iter().collect();
    assert_eq!(
        requests.iter().collect::<Vec<_>>(),
        [
            "GET /repos/acme/infra/branches/main",
            "GET /repos/acme/infra/collaborators/alice/permission",
            "GET /repos/acme/infra/pulls/1",
            "GET /user",
            "POST /repos/acme/infra/issues/1/comments",
        ]
    );
    let mirror = infra_of(&bot.replica).await;
    assert!(mirror.used_at >= Some(since), "the mirror was used");
    // Statements of SQLite run on a thread that is not listened to.
    if backend == Backend::Postgres {
        // A new connection of the pool is not part of a command.
        let of_command = |line: &&str| {
            line.contains("sqlx::query:") && !line.contains("SET idle_in_transaction")
        };
        let statements = heard.lines().filter(of_command).count();
        assert!(
            (1..=MOST_STATEMENTS).contains(&statements),
            "{statements} statements"
        );
    }
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// Route of a question that a plan needs the answer of.
const PULL: &str = "GET /repos/acme/infra/pulls/1";
const PERMISSION: &str = "GET /repos/acme/infra/collaborators/alice/permission";
const BASE: &str = "GET /repos/acme/infra/branches/main";

/// Over the internet, a request takes longer than everything else that comes before Terraform.
async fn a_plan_asks_the_forge_everything_at_once(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.db.clock.advance(Duration::from_mins(5));
    for route in [PULL, PERMISSION, BASE] {
        bot.github.fault(route, 1, Fault::Hang);
    }
    comment(&bot, pull, "lockkeeper plan").await;
    let command = join(bot.replica.tick_command(), async {
        bot.github.hanging(3).await;
        bot.github.clear_faults();
    });
    assert_eq!(command.await.0.unwrap(), Tick::Worked);
    bot.settle().await;
    assert!(bot.comment(pull).contains("**Plan: 2 to add"));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn an_apply_asks_the_forge_for_the_pull_request_and_its_base_branch_at_once(
    backend: Backend,
) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    for route in [PULL, BASE] {
        bot.github.fault(route, 1, Fault::Hang);
    }
    comment(&bot, pull, "lockkeeper apply").await;
    let command = join(bot.replica.tick_command(), async {
        bot.github.hanging(2).await;
        bot.github.clear_faults();
    });
    assert_eq!(command.await.0.unwrap(), Tick::Worked);
    bot.settle().await;
    assert!(bot.comment(pull).contains("Apply complete!"));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// The early questions are about the head that was known before. If the pull request has another one now, exactly that
/// one is planned.
async fn answers_about_an_earlier_head_are_not_used(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.db.clock.advance(Duration::from_mins(5));
    bot.github.set_delivering(Delivering::Held).await;
    let changes = [("network/main.tf", "# fake: add 7 change 0 destroy 0\n")];
    let head = bot.push("wider", &changes).await;
    while bot.github.lose_next().is_some() {}
    let before = bot.github.requests().len();
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.comment(pull).contains("**Plan: 7 to add"));
    let asked = requests(&bot, before);
    assert!(asked.iter().any(|request| request == BASE), "{asked:?}");
    let plans = bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    assert!(plans.iter().all(|plan| plan.head == head));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// The event about the new base branch is lost, so only the forge knows it.
async fn answers_about_an_earlier_base_branch_are_not_used(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    bot.push("release", &[("notes.md", "For the release.\n")])
        .await;
    bot.settle().await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.github.set_delivering(Delivering::Held).await;
    bot.github
        .change_base(REPO, pull, "alice", "release")
        .await
        .unwrap();
    while bot.github.lose_next().is_some() {}
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.comment(pull).contains("**Plan: 2 to add"));
    let tips = bot.github.branches(REPO).await.unwrap();
    let plans = bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].base_branch.as_str(), "release");
    assert_eq!(plans[0].base, tips["release"]);

    // The apply looks for the base branch that the pull request has now.
    let before = bot.github.requests().len();
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains("Apply complete!"));
    let asked = requests(&bot, before);
    let of_release = "GET /repos/acme/infra/branches/release";
    assert!(
        asked.iter().any(|request| request == of_release),
        "{asked:?}"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// Comments as `alice`, without doing what follows from it.
async fn comment(bot: &Bot, pull: PullNumber, text: &str) {
    bot.github.comment(REPO, pull, "alice", text).await.unwrap();
    bot.settle_short().await;
}

/// Returns the requests that the forge got after the first `before`, without statuses.
fn requests(bot: &Bot, before: usize) -> Vec<String> {
    bot.github.requests()[before..]
        .iter()
        .map(|exchange| format!("{} {}", exchange.method, exchange.path))
        .filter(|request| !request.contains("/statuses/"))
        .collect()
}

/// Returns the programs that were started, each with its subcommand.
fn started(log: &str) -> Vec<String> {
    let starts = log
        .lines()
        .filter(|line| line.contains("Starting a program"));
    let program = |line: &str| {
        let (_, rest) = line.split_once("program: \"")?;
        let (path, rest) = rest.split_once('"')?;
        let (_, rest) = rest.split_once("args: [\"")?;
        let (command, _) = rest.split_once('"')?;
        let name = path.rsplit('/').next()?;
        Some(format!("{name} {command}"))
    };
    starts.filter_map(program).collect()
}
