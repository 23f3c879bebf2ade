//! `lockkeeper locks (list | show | release | hand-over)`: the locks, on the server's database.
//!
//! Everybody who may read the database may do everything, so nobody's permission is checked. Comments on pull requests are
//! queued in the same transaction, and a server posts them.

mod show;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::view::{LockDetails, LockFactsJson, LockJson};
use crate::clock::{Clock, RandomIds, SystemClock};
use crate::handlers::locks::{KeptLockReason, explain, give};
use crate::kit::term::{ExitResult, ExitStatus, Subcommand, Terminal, actor, block_on, database};
use crate::locks::{HandOver, HandOverOutcome};
use crate::model::{CommandId, Lock, LockId, LockName, Reason, RepoId, Subject};
use crate::store::Store;

/// Word that starts commands in comments, unless another one is configured.
const EXECUTABLE: &str = "lockkeeper";
const HOW_IDS_ARE_WRITTEN: &str = "Identifier, or [host/]owner/repo/path/workspace";

pub(super) const SUBCOMMAND: Subcommand = Subcommand {
    name: "locks",
    command,
    run,
};

fn command() -> Command {
    let json = || {
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .help("As JSON")
    };
    let id = || {
        Arg::new("id")
            .value_name("ID")
            .required(true)
            .help(HOW_IDS_ARE_WRITTEN)
    };
    let list = Command::new("list")
        .about("Show every lock")
        .arg(json())
        .arg(
            Arg::new("repo")
                .long("repo")
                .value_name("REPO")
                .value_parser(value_parser!(String))
                .help("Only locks of this repository, as [host/]owner/repo"),
        );
    let show = Command::new("show")
        .about("Show a lock: its holder, its use, its queue and its history")
        .args([id(), json()]);
    let release = Command::new("release")
        .about("Release a lock; the first pull request in the queue gets it")
        .long_about(
            "Releases a lock and discards the plans under it. The first pull request in the queue gets the lock.\n\nRefused \
             while a command of the pull request works under it, and if something was applied under it that is not merged. \
             --force releases it in spite of both, but never while an apply is running. The server posts a comment on both \
             pull requests, as soon as it runs.",
        )
        .arg(id())
        .args(how());
    let hand_over = Command::new("hand-over")
        .about("Hand a lock over to a queued pull request, regardless of its place")
        .arg(id())
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("PULL")
                .required(true)
                .value_parser(pull_number)
                .help("Number of the pull request that gets the lock"),
        )
        .args(how());
    Command::new("locks")
        .about("Show locks, release them, and hand them over")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(
            [list, show, release, hand_over].map(|command| command.args(database::flags())),
        )
}

fn how() -> [Arg; 2] {
    [
        Arg::new("reason")
            .long("reason")
            .value_name("TEXT")
            .value_parser(reason)
            .help("Reason, for both pull requests and the audit log"),
        Arg::new("force")
            .long("force")
            .action(ArgAction::SetTrue)
            .help(
                "Release it even if it is in use or something was applied under it; needs --reason",
            ),
    ]
}

fn pull_number(text: &str) -> Result<Subject, String> {
    let number = text
        .strip_prefix('#')
        .unwrap_or(text)
        .parse()
        .ok()
        .filter(|number| *number > 0);
    number
        .map(Subject::pull)
        .ok_or_else(|| "it is not the number of a pull request, such as 12".to_owned())
}

fn reason(text: &str) -> Result<Reason, String> {
    match Reason::read(text) {
        Ok(Some(reason)) => Ok(reason),
        Ok(None) => Err("it is empty: give a short reason".to_owned()),
        Err(problem) => Err(problem.to_string()),
    }
}

fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let (name, matches) = matches.subcommand().expect("clap demands a subcommand");
    let storage = database::storage(matches)?;
    block_on(async {
        let store = database::open(&storage).await?;
        match name {
            "list" => run_list(&store, matches, terminal).await,
            "show" => run_show(&store, matches, terminal).await,
            "release" => run_give(&store, matches, None, terminal).await,
            _ => run_give(&store, matches, matches.get_one("to").copied(), terminal).await,
        }
    })?
}

async fn run_list(store: &Store, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let mut locks = store
        .lock_list()
        .await
        .context("the locks could not be read")?;
    if let Some(repo) = matches.get_one::<String>("repo") {
        locks.retain(|lock| is_of(&lock.key.repo, repo));
    }
    if matches.get_flag("json") {
        let locks: Vec<LockJson> = locks.iter().map(LockJson::from).collect();
        terminal.line(
            serde_json::to_string_pretty(&locks)
                .context("the locks could not be written as JSON")?,
        )?;
        return Ok(ExitStatus::Success);
    }
    for lock in &locks {
        terminal.line(show::line(lock))?;
    }
    if locks.is_empty() {
        terminal.note("No lock is held.");
    }
    Ok(ExitStatus::Success)
}

fn is_of(repo: &RepoId, asked: &str) -> bool {
    let asked = asked.trim_matches('/').to_lowercase();
    asked == repo.full_name() || asked == repo.to_string()
}

async fn run_show(store: &Store, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let lock = find(store, matches).await?;
    let facts = LockDetails::read(store, lock)
        .await
        .context("the lock could not be read")?;
    if matches.get_flag("json") {
        let json = LockFactsJson::from(&facts);
        terminal.line(
            serde_json::to_string_pretty(&json).context("the lock could not be written as JSON")?,
        )?;
        return Ok(ExitStatus::Success);
    }
    for line in show::lines(&facts, EXECUTABLE) {
        terminal.line(line)?;
    }
    Ok(ExitStatus::Success)
}

/// Finds the one lock that the arguments name.
async fn find(store: &Store, matches: &ArgMatches) -> anyhow::Result<Lock> {
    let asked: &String = matches.get_one("id").expect("clap demands it");
    let nobody = || {
        format!("there is no lock {asked:?}: `lockkeeper locks list` lists the locks that are held")
    };
    if let Ok(id) = asked.parse::<LockId>() {
        return store
            .lock_get(id)
            .await
            .context("the locks could not be read")?
            .with_context(nobody);
    }
    let name: LockName = asked.parse().with_context(nobody)?;
    let called = store
        .lock_list_called(&name)
        .await
        .context("the locks could not be read")?;
    match name.choose(called) {
        Ok(found) => found.with_context(nobody),
        Err(both) => {
            let ids =
                [both.0, both.1].map(|lock| format!("{} on {}", lock.id, lock.key.repo.host()));
            bail!(
                "more than one lock has the name {asked:?}. Use the identifier of one of them: {}",
                ids.join(", ")
            )
        }
    }
}

async fn run_give(
    store: &Store,
    matches: &ArgMatches,
    to: Option<Subject>,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let lock = find(store, matches).await?;
    let giving = HandOver {
        lock: lock.id,
        to,
        force: matches.get_flag("force"),
        reason: matches.get_one::<Reason>("reason").cloned(),
        actor: actor(),
        remote: None,
    };
    let gave = give(
        store,
        &giving,
        CommandId::next(&RandomIds),
        SystemClock.now(),
    )
    .await;
    match gave.context("the lock could not be released")? {
        HandOverOutcome::Done(given) => {
            terminal.line(show::done(&giving, &given))?;
            terminal.note("The server posts a comment on the pull requests: now if it runs, otherwise when it starts.");
            Ok(ExitStatus::Success)
        }
        HandOverOutcome::NotHeld => bail!("the lock was released in the meantime"),
        HandOverOutcome::Refused(lock, why) => {
            let KeptLockReason {
                message, way_out, ..
            } = explain(&lock, why, EXECUTABLE);
            terminal.note(format_args!(
                "error: {message} Nothing was changed.\n{way_out}"
            ));
            if giving.reason.is_none() || !giving.force {
                terminal.note("(To use force, add --force and --reason TEXT.)");
            }
            Ok(ExitStatus::Failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::call;

    #[test]
    fn what_the_command_line_cannot_mean_is_a_usage_error() {
        for (args, said) in [
            (&["locks"][..], "Usage: lockkeeper locks <COMMAND>"),
            (&["locks", "release"][..], "<ID>"),
            (
                &["locks", "release", "x", "--reason", " "][..],
                "it is empty: give a short reason",
            ),
            (
                &["locks", "release", "x", "--reason", &"x".repeat(301)][..],
                "it has 301 characters, and at most 300",
            ),
            (&["locks", "hand-over", "x"][..], "--to <PULL>"),
            (
                &["locks", "hand-over", "x", "--to", "0"][..],
                "it is not the number of a pull request, such as 12",
            ),
        ] {
            let (exit, _, err) = call(args);
            assert_eq!(exit, ExitStatus::Usage, "{args:?}");
            assert!(err.contains(said), "{args:?}: {err}");
        }
    }

    #[test]
    fn a_pull_request_is_named_by_its_number() {
        assert_eq!(
            (pull_number("12"), pull_number("#12")),
            (Ok(Subject::pull(12)), Ok(Subject::pull(12)))
        );
        assert!(pull_number("-1").is_err() && pull_number("x").is_err());
    }

    #[test]
    fn a_repository_is_named_with_or_without_its_host() {
        let repo: RepoId = "github.com/acme/infra".parse().unwrap();
        for (asked, fits) in [
            ("acme/infra", true),
            ("GitHub.com/Acme/infra/", true),
            ("infra", false),
            ("", false),
        ] {
            assert_eq!(is_of(&repo, asked), fits, "{asked}");
        }
    }
}
