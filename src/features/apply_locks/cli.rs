//! `lockkeeper apply-lock (list | set | clear)`: sets and ends apply locks.

use std::time::Duration;

use anyhow::Context as _;

use super::input::{ApplyLockFields, ApplyLockProblem, NewApplyLock};
use super::store::SetApplyLock;
use super::view::ApplyLockView;
use crate::clock::{Clock, SystemClock};
use crate::config::parse_duration;
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, SubcommandArgs, Terminal, actor, block_on,
    safe,
};
use crate::model::{ApplyLock, ApplyLockId, Cause, minute};
use crate::store::{Result, Store};

/// Stop applies, and allow them again
#[derive(clap::Parser)]
pub(super) enum ApplyLockArgs {
    /// Show the apply locks
    List {
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Stop applies
    ///
    /// Applies stop everywhere, in one repository (--repo), or in one directory of it and everything below it (--repo
    /// and --dir). A running apply continues to its end.
    ///
    /// Exit code 1: these applies are already stopped; the message says by whom.
    Set {
        #[command(flatten)]
        lock: ApplyLockFlags,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Allow applies again
    ///
    /// Ends the apply lock with exactly this scope: the whole server, one repository (--repo), or one directory (--repo
    /// and --dir). Other apply locks stay.
    ///
    /// Exit code 1: there is no such apply lock.
    Clear {
        #[command(flatten)]
        scope: ScopeFlags,
        /// Identifier, as `list --json` shows it
        #[arg(long, conflicts_with = "repo")]
        id: Option<ApplyLockId>,
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

/// Scope of an apply lock; without any flag, the whole server.
#[derive(clap::Args)]
pub(super) struct ScopeFlags {
    /// Only this repository, as in github.com/acme/infra
    #[arg(long, value_name = "HOST/OWNER/NAME", value_parser = given)]
    repo: Option<String>,
    /// Only this directory of the repository, and everything below it
    #[arg(long, value_name = "PATH", requires = "repo", value_parser = given)]
    dir: Option<String>,
}

/// New apply lock. [`ApplyLockFields`] reads its texts, as it does for pages and the API.
#[derive(clap::Args)]
pub(super) struct ApplyLockFlags {
    /// Reason, shown to people whose applies are stopped
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    scope: ScopeFlags,
    /// Time at which the lock expires, as in 2026-12-24T18:00Z (UTC if no zone is given)
    #[arg(long, value_name = "TIME", value_parser = given)]
    until: Option<String>,
    /// Time after which the lock expires, as in 90m, 12h or 3d
    #[arg(long = "for", value_name = "TIME", value_parser = duration, conflicts_with = "until")]
    duration: Option<Duration>,
}

/// Parses a text that is not empty. An empty value is probably an unset variable of a script, which must not widen the
/// scope.
fn given(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        Err("it is empty: give a value, or leave the flag out")
    } else {
        Ok(text.to_owned())
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| format!("{error}: write 90m, 12h or 3d"))
}

impl SubcommandArgs for ApplyLockArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::List { format, database } => {
                    list(&database.open().await?, format, terminal).await
                }
                Self::Set { lock, database } => match lock.read() {
                    Ok(lock) => set(&database.open().await?, &lock, terminal).await,
                    Err(problems) => Ok(terminal.usage(&shown(&problems))),
                },
                Self::Clear {
                    id: Some(id),
                    database,
                    ..
                } => {
                    let store = database.open().await?;
                    let ended = store.apply_lock_clear_one(id, &cause()).await;
                    let none = format!("no apply lock has the id {id}");
                    cleared(ended, &none, terminal)
                }
                Self::Clear {
                    scope,
                    id: None,
                    database,
                } => match scope.fields().scope() {
                    Ok(scope) => {
                        let store = database.open().await?;
                        let ended = store.apply_lock_clear(&scope, &cause()).await;
                        let none = format!("no apply lock has exactly this scope: {scope}");
                        cleared(ended, &none, terminal)
                    }
                    Err(problems) => Ok(terminal.usage(&shown(&problems))),
                },
            }
        })?
    }
}

impl ScopeFlags {
    fn fields(&self) -> ApplyLockFields<'_> {
        ApplyLockFields {
            repo: self.repo.as_deref().unwrap_or_default(),
            dir: self.dir.as_deref().unwrap_or_default(),
            ..ApplyLockFields::default()
        }
    }
}

impl ApplyLockFlags {
    fn read(&self) -> Result<NewApplyLock, Vec<ApplyLockProblem>> {
        let fields = ApplyLockFields {
            reason: &self.reason,
            until: self.until.as_deref().unwrap_or_default(),
            ..self.scope.fields()
        };
        let lock = fields.new_lock()?;
        let after = self.duration.map(|time| SystemClock.now() + time);
        Ok(NewApplyLock {
            ends_at: after.or(lock.ends_at),
            ..lock
        })
    }
}

fn shown(problems: &[ApplyLockProblem]) -> String {
    let lines = problems
        .iter()
        .map(|problem| format!("error: --{}: {}\n", problem.field, problem.text));
    lines.collect::<Vec<_>>().concat()
}

async fn list(store: &Store, format: OutputFormat, terminal: &mut Terminal<'_>) -> ExitResult {
    let locks = store
        .apply_lock_list()
        .await
        .context("the apply locks could not be read")?;
    if locks.is_empty() && !format.is_json() {
        terminal.line("Applies are not stopped anywhere.")?;
    }
    for lock in &locks {
        let json = serde_json::to_string(&ApplyLockView::from(lock))?;
        format.print(terminal, || json, || line(lock))?;
    }
    Ok(ExitStatus::Success)
}

async fn set(store: &Store, lock: &NewApplyLock, terminal: &mut Terminal<'_>) -> ExitResult {
    let set = store
        .apply_lock_set(&lock.scope, lock.ends_at, &lock.cause(actor()))
        .await;
    match set.context("the apply lock could not be set")? {
        SetApplyLock::Set(lock) => {
            terminal.line(format_args!("Applies are stopped: {}", line(&lock)))?;
            Ok(ExitStatus::Success)
        }
        SetApplyLock::AlreadySet(lock) => {
            terminal.note(format_args!(
                "error: these applies are already stopped: {}",
                line(&lock)
            ));
            Ok(ExitStatus::Failure)
        }
        SetApplyLock::Over(now) => {
            let problem = lock.ends_at.map(|end| ApplyLockProblem::over(end, now));
            Ok(terminal.usage(&shown(problem.as_slice())))
        }
        SetApplyLock::TooMany(most) => {
            terminal.note(format_args!(
                "error: there are {most} apply locks, which is the maximum: clear some first"
            ));
            Ok(ExitStatus::Failure)
        }
    }
}

fn cause() -> Cause {
    Cause::new(actor(), "allowed again on the command line")
}

fn cleared(
    ended: Result<Option<ApplyLock>>,
    none: &str,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let Some(lock) = ended.context("the apply lock could not be ended")? else {
        terminal.note(format_args!("error: {none}"));
        terminal.note("`lockkeeper apply-lock list` lists all apply locks.");
        return Ok(ExitStatus::Failure);
    };
    terminal.line(format_args!("Ended: {}", line(&lock)))?;
    Ok(ExitStatus::Success)
}

/// Formats a lock. Names and reasons come from other people, and a terminal must not obey them.
fn line(lock: &ApplyLock) -> String {
    let until = lock
        .ends_at
        .map_or_else(|| "somebody ends it".to_owned(), minute);
    let line = format!(
        "{}, by {} since {}, until {until}: {}",
        lock.scope,
        lock.holder,
        minute(lock.taken_at),
        lock.reason
    );
    safe(&line)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insta::assert_snapshot;
    use regex::Regex;
    use serde_json::json;

    use super::*;
    use crate::cli::tests::call;
    use crate::clock::RandomIds;
    use crate::kit::term::environment;
    use crate::locks::{AuditVerdict, KnownLogState, verify};
    use crate::store::DatabaseUrl;

    /// Creates a directory with an empty database.
    fn data() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        drop(block_on(open(dir.path())).unwrap());
        dir
    }

    async fn open(dir: &std::path::Path) -> Store {
        let url = DatabaseUrl::Sqlite(dir.join("lockkeeper.db"));
        Store::open(&url, Arc::new(SystemClock), Arc::new(RandomIds))
            .await
            .unwrap()
    }

    /// Returns the exit code and the output, with the user and times replaced.
    fn apply_lock(dir: &tempfile::TempDir, args: &[&str]) -> (ExitStatus, String) {
        let data = dir.path().display().to_string();
        let (exit, out, err) = call(&[&["apply-lock"], args, &["--data-dir", &data]].concat());
        let text = format!("{out}{err}").replace(
            &format!("by {} since", environment::user()),
            "by USER since",
        );
        let since = Regex::new(r"since \d{4}-\d\d-\d\d \d\d:\d\d UTC").unwrap();
        (exit, since.replace_all(&text, "since TIME").into_owned())
    }

    const INFRA: [&str; 2] = ["--repo", "github.com/acme/infra"];

    #[test]
    fn applies_are_stopped_listed_and_allowed_again() {
        let dir = data();
        let set = |args: &[&str]| apply_lock(&dir, &[&["set"], args].concat());
        assert_eq!(
            apply_lock(&dir, &["list"]),
            (
                ExitStatus::Success,
                "Applies are not stopped anywhere.\n".to_owned()
            )
        );
        let (exit, said) = set(&["--reason", "the database moves"]);
        assert_eq!(exit, ExitStatus::Success);
        assert_snapshot!(said, @"Applies are stopped: everywhere, by USER since TIME, until somebody ends it: the database moves");
        let freeze = [
            "--reason",
            "freeze\u{1b}[31m",
            "--until",
            "2126-12-24T18:00Z",
        ];
        assert_eq!(
            set(&[&freeze[..], &INFRA, &["--dir", "network/"]].concat()).0,
            ExitStatus::Success
        );
        assert_eq!(
            set(&[&["--reason", "x", "--for", "3d"][..], &INFRA].concat()).0,
            ExitStatus::Success
        );
        let (exit, said) = set(&["--reason", "mine"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert_snapshot!(said, @"error: these applies are already stopped: everywhere, by USER since TIME, until somebody ends it: the database moves");
        let (_, listed) = apply_lock(&dir, &["list"]);
        assert_eq!(listed.lines().count(), 3, "{listed}");
        assert_snapshot!(listed.lines().last().unwrap(), @"network in github.com/acme/infra, by USER since TIME, until 2126-12-24 18:00 UTC: freeze�[31m");
        assert_eq!(
            apply_lock(&dir, &[&["clear", "--dir", "network"][..], &INFRA].concat()).0,
            ExitStatus::Success
        );
        let (exit, said) = apply_lock(&dir, &[&["clear", "--dir", "network"][..], &INFRA].concat());
        assert_eq!(exit, ExitStatus::Failure);
        assert_snapshot!(said, @"
        error: no apply lock has exactly this scope: network in github.com/acme/infra
        `lockkeeper apply-lock list` lists all apply locks.
        ");
        assert_eq!(apply_lock(&dir, &["clear"]).0, ExitStatus::Success);
        let (_, json) = apply_lock(&dir, &["list", "--json"]);
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&line["scope"], &line["repo"], &line["dir"]),
            (&json!("repo"), &json!(INFRA[1]), &json!(null))
        );
        assert_eq!(line["holder"], json!(environment::user()));
        let id = line["id"].as_str().unwrap();
        assert_eq!(
            apply_lock(&dir, &["clear", "--id", id]).0,
            ExitStatus::Success
        );
        let gone = apply_lock(&dir, &["clear", "--id", id]);
        assert!(
            gone.0 == ExitStatus::Failure
                && gone
                    .1
                    .starts_with(&format!("error: no apply lock has the id {id}\n")),
            "{gone:?}"
        );
        let verdict = block_on(async {
            verify(&open(dir.path()).await, &KnownLogState::default(), None)
                .await
                .unwrap()
        })
        .unwrap();
        assert!(
            matches!(&verdict, AuditVerdict::Whole(whole) if whole.unsigned == 6),
            "{verdict:?}"
        );
    }

    #[test]
    fn what_is_wrong_is_a_usage_error_and_nothing_is_set() {
        let dir = data();
        let cases: [(&[&str], &str); 8] = [
            (&["set"], "--reason <TEXT>"),
            (
                &["set", "--reason", " "],
                "error: --reason: Give a short reason",
            ),
            (
                &["set", "--reason", "x", "--repo", "infra"],
                "error: --repo: `infra` is not a repository",
            ),
            (
                &["set", "--reason", "x", "--dir", "net"],
                "--repo <HOST/OWNER/NAME>",
            ),
            (
                &["set", "--reason", "x", "--repo", ""],
                "'--repo <HOST/OWNER/NAME>': it is empty",
            ),
            (
                &["set", "--reason", "x", "--until", "2020-01-01T00:00Z"],
                "2020-01-01 00:00 UTC is in the past: it is ",
            ),
            (
                &["set", "--reason", "x", "--for", "soon"],
                "'--for <TIME>': `soon` is not a duration: write 90m",
            ),
            (
                &[
                    "set",
                    "--reason",
                    "x",
                    "--for",
                    "1h",
                    "--until",
                    "2126-01-01T00:00Z",
                ],
                "cannot be used with",
            ),
        ];
        for (args, text) in cases {
            let (exit, said) = apply_lock(&dir, args);
            assert_eq!(exit, ExitStatus::Usage, "{args:?} {said}");
            assert!(said.contains(text), "{args:?} {said}");
        }
        assert_eq!(
            apply_lock(&dir, &["list"]).1,
            "Applies are not stopped anywhere.\n"
        );
    }
}
