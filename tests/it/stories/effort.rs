//! Counts the programs, statements and requests of a command, which must not creep up.

use std::time::Duration;

use super::repositories::infra_of;
use crate::stories::NETWORK;
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};
use crate::support::log;

story!(a_plan_by_comment_starts_no_git_if_the_mirror_has_both_commits);

/// Maximum number of statements and commits of a plan, with all its jobs: the delivery, the command, the comment and
/// the statuses. It is the current number: one of them finds the account of the author. Lower it when you save some.
const MOST_STATEMENTS: usize = 78;

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");

async fn a_plan_by_comment_starts_no_git_if_the_mirror_has_both_commits(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.heard(pull);
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
    let requests: Vec<String> = bot.github.requests()[before..]
        .iter()
        .map(|exchange| format!("{} {}", exchange.method, exchange.path))
        .filter(|request| !request.contains("/statuses/"))
        .collect();
    assert_eq!(
        requests,
        [
            "GET /user",
            "GET /repos/acme/infra/pulls/1",
            "GET /repos/acme/infra/collaborators/alice/permission",
            "GET /repos/acme/infra/branches/main",
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
