//! `lockkeeper locks (list | show | release | hand-over)`: the locks, on the server's database.
//!
//! Everybody who may read the database may do everything, so nobody's permission is checked. Comments on pull requests are
//! queued in the same transaction, and a server posts them.

mod show;

use anyhow::{Context as _, bail};

use super::view::{LockDetails, LockFactsJson, LockJson};
use super::{KeptLockReason, explain, hand_over};
use crate::clock::{Clock, RandomIds, SystemClock};
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, SubcommandArgs, Terminal, actor, block_on, reason,
};
use crate::locks::{HandOver, HandOverOutcome};
use crate::model::{CommandId, Lock, LockId, LockName, Reason, RepoId, Subject};
use crate::store::{MOST_LISTED, Store};

/// Word that starts commands in comments, unless another one is configured.
const EXECUTABLE: &str = "lockkeeper";

/// Show locks, release them, and hand them over
#[derive(clap::Parser)]
pub(super) enum LocksArgs {
    /// Show every lock that is held
    List {
        /// As one JSON document
        #[arg(long)]
        json: bool,
        /// Only locks of this repository, as [host/]owner/repo
        #[arg(long)]
        repo: Option<String>,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Show a lock: its holder, its use, its queue and its history
    Show {
        #[command(flatten)]
        lock: LockArg,
        /// As one JSON document
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Release a lock; the first pull request in the queue gets it
    ///
    /// The plans under the lock are discarded.
    ///
    /// Refused while a command of the pull request works under it, and if something was applied under it that is not
    /// merged. --force releases it in spite of both, but never while an apply is running. The server posts a comment on
    /// both pull requests, as soon as it runs.
    Release {
        #[command(flatten)]
        lock: LockArg,
        #[command(flatten)]
        how: ReleaseFlags,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Hand a lock over to a queued pull request, regardless of its place
    HandOver {
        #[command(flatten)]
        lock: LockArg,
        /// Number of the pull request that gets the lock
        #[arg(long, value_name = "PULL", value_parser = pull_number)]
        to: Subject,
        #[command(flatten)]
        how: ReleaseFlags,
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

/// Lock that a subcommand is about.
#[derive(clap::Args)]
pub(super) struct LockArg {
    /// Identifier of the lock, or [host/]owner/repo/path/workspace
    id: String,
}

/// Reason and force, with which a lock is taken from a pull request.
#[derive(clap::Args)]
pub(super) struct ReleaseFlags {
    /// Reason, for both pull requests and the audit log
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<Reason>,
    /// Release it even if it is in use or something was applied under it; needs --reason
    #[arg(long)]
    force: bool,
}

impl SubcommandArgs for LocksArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::List {
                    json,
                    repo,
                    database,
                } => list(&database.open().await?, repo.as_deref(), json, terminal).await,
                Self::Show {
                    lock,
                    json,
                    database,
                } => show(&database.open().await?, &lock, json, terminal).await,
                Self::Release {
                    lock,
                    how,
                    database,
                } => release(&database.open().await?, &lock, None, how, terminal).await,
                Self::HandOver {
                    lock,
                    to,
                    how,
                    database,
                } => release(&database.open().await?, &lock, Some(to), how, terminal).await,
            }
        })?
    }
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

async fn list(
    store: &Store,
    repo: Option<&str>,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let mut locks = store
        .lock_list()
        .await
        .context("the locks could not be read")?;
    if locks.len() >= MOST_LISTED {
        terminal.note(format!(
            "There are more locks. Only the newest {MOST_LISTED} were read."
        ));
    }
    if let Some(repo) = repo {
        locks.retain(|lock| is_of(&lock.key.repo, repo));
    }
    if as_json {
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

async fn show(
    store: &Store,
    lock: &LockArg,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let lock = lock.find(store).await?;
    let facts = LockDetails::read(store, lock)
        .await
        .context("the lock could not be read")?;
    if as_json {
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

impl LockArg {
    /// Finds the one lock that the argument names.
    async fn find(&self, store: &Store) -> anyhow::Result<Lock> {
        let asked = &self.id;
        let nobody = || {
            format!(
                "there is no lock {asked:?}: `lockkeeper locks list` lists the locks that are held"
            )
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
            .lock_list_named(&name)
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
}

/// Releases a lock, or hands it over to the pull request `to`.
async fn release(
    store: &Store,
    lock: &LockArg,
    to: Option<Subject>,
    how: ReleaseFlags,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let lock = lock.find(store).await?;
    let giving = HandOver {
        lock: lock.id,
        to,
        force: how.force,
        reason: how.reason,
        actor: actor(),
        remote: None,
    };
    let outcome = hand_over(
        store,
        &giving,
        CommandId::next(&RandomIds),
        SystemClock.now(),
    )
    .await;
    match outcome.context("the lock could not be released")? {
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
