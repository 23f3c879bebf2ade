//! `lockkeeper apply-lock (list | set | clear)`: sets and ends apply locks.

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::input::{ApplyLockFields, ApplyLockProblem, NewApplyLock};
use super::store::SetApplyLock;
use super::view::ApplyLockView;
use crate::clock::{Clock, SystemClock};
use crate::config::parse_duration;
use crate::kit::term::{
    ExitResult, ExitStatus, Subcommand, Terminal, actor, block_on, database, safe,
};
use crate::model::{ApplyLock, ApplyLockId, ApplyScope, Cause, minute};
use crate::store::{Result, Store};

pub(super) fn command() -> Command {
    let list = Command::new("list").about("Show the apply locks").arg(
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .help("As JSON, an apply lock per line"),
    );
    let set = Command::new("set")
        .about("Stop applies")
        .long_about(
            "Stops applies everywhere, in one repository (--repo), or in one directory of it and everything below it \
             (--repo and --dir). A running apply continues to its end.\n\nExit code 1: these applies are already stopped; \
             the message says by whom.",
        )
        .arg(text("reason", "TEXT", "Reason, shown to people whose applies are stopped").required(true))
        .args(scope_args())
        .arg(text("until", "TIME", "Time at which the lock expires, as in 2026-12-24T18:00Z (UTC if no zone is given)"))
        .arg(text("for", "TIME", "Time after which the lock expires, as in 90m, 12h or 3d").conflicts_with("until"));
    let clear = Command::new("clear")
        .about("Allow applies again")
        .long_about(
            "Ends the apply lock with exactly this scope: the whole server, one repository (--repo), or one directory (--repo \
             and --dir). Other apply locks stay.\n\nExit code 1: there is no such apply lock.",
        )
        .args(scope_args())
        .arg(
            text("id", "ID", "Identifier, as `list --json` shows it")
                .value_parser(value_parser!(ApplyLockId))
                .conflicts_with("repo"),
        );
    Command::new("apply-lock")
        .about("Stop applies, and allow them again")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands([list, set, clear].map(|command| command.args(database::flags())))
}

fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn scope_args() -> [Arg; 2] {
    [
        text(
            "repo",
            "HOST/OWNER/NAME",
            "Only this repository, as in github.com/acme/infra",
        ),
        text(
            "dir",
            "PATH",
            "Only this directory of the repository, and everything below it",
        )
        .requires("repo"),
    ]
}

pub(super) const SUBCOMMAND: Subcommand = Subcommand {
    name: "apply-lock",
    command,
    run,
};

/// Request, read before anything is opened.
enum ApplyLockRequest {
    List { as_json: bool },
    Set(NewApplyLock),
    Clear(ApplyScope),
    ClearOne(ApplyLockId),
}

fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let (name, matches) = matches.subcommand().expect("clap demands a subcommand");
    let storage = database::storage(matches)?;
    let wanted = match wanted(name, matches) {
        Ok(wanted) => wanted,
        Err(problems) => return Ok(terminal.usage(&problems)),
    };
    block_on(async {
        let store = database::open(&storage).await?;
        match wanted {
            ApplyLockRequest::List { as_json } => list(&store, as_json, terminal).await,
            ApplyLockRequest::Set(wish) => set(&store, &wish, terminal).await,
            ApplyLockRequest::Clear(scope) => {
                let ended = store.apply_lock_clear(&scope, &cause()).await;
                cleared(
                    ended,
                    &format!("no apply lock has exactly this scope: {scope}"),
                    terminal,
                )
            }
            ApplyLockRequest::ClearOne(id) => {
                let ended = store.apply_lock_clear_one(id, &cause()).await;
                cleared(ended, &format!("no apply lock has the id {id}"), terminal)
            }
        }
    })?
}

fn wanted(name: &str, matches: &ArgMatches) -> Result<ApplyLockRequest, String> {
    let given = |name: &str| {
        let value = matches.try_get_one::<String>(name).ok().flatten();
        value.map(String::as_str).unwrap_or_default()
    };
    let fields = ApplyLockFields {
        repo: given("repo"),
        dir: given("dir"),
        reason: given("reason"),
        until: given("until"),
    };
    // An empty value is probably an unset variable of a script, which must not widen the scope.
    let is_empty = |name: &str| {
        let value = matches.try_get_one::<String>(name).ok().flatten();
        value.is_some_and(|value| value.trim().is_empty())
    };
    if let Some(name) = ["repo", "dir", "until", "for"]
        .into_iter()
        .find(|name| is_empty(name))
    {
        return Err(format!(
            "error: --{name} has no value: give a value, or leave the flag out\n"
        ));
    }
    Ok(match name {
        "list" => ApplyLockRequest::List {
            as_json: matches.get_flag("json"),
        },
        "clear" if matches.contains_id("id") => {
            ApplyLockRequest::ClearOne(*matches.get_one("id").expect("it was given"))
        }
        "clear" => ApplyLockRequest::Clear(fields.scope().map_err(|problems| shown(&problems))?),
        _ => {
            let wish = fields.wish().map_err(|problems| shown(&problems))?;
            let ends_at = ends_after(given("for"), SystemClock.now())?.or(wish.ends_at);
            ApplyLockRequest::Set(NewApplyLock { ends_at, ..wish })
        }
    })
}

fn ends_after(text: &str, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let time = parse_duration(text)
        .map_err(|error| format!("error: --for: {error}: write 90m, 12h or 3d\n"))?;
    Ok(Some(now + time))
}

fn shown(problems: &[ApplyLockProblem]) -> String {
    let lines = problems
        .iter()
        .map(|problem| format!("error: --{}: {}\n", problem.field, problem.text));
    lines.collect::<Vec<_>>().concat()
}

async fn list(store: &Store, as_json: bool, terminal: &mut Terminal<'_>) -> ExitResult {
    let locks = store
        .apply_lock_list()
        .await
        .context("the apply locks could not be read")?;
    if locks.is_empty() && !as_json {
        terminal.line("Applies are not stopped anywhere.")?;
    }
    for lock in &locks {
        if as_json {
            terminal.line(serde_json::to_string(&ApplyLockView::from(lock))?)?;
        } else {
            terminal.line(line(lock))?;
        }
    }
    Ok(ExitStatus::Success)
}

async fn set(store: &Store, wish: &NewApplyLock, terminal: &mut Terminal<'_>) -> ExitResult {
    let set = store
        .apply_lock_set(&wish.scope, wish.ends_at, &wish.cause(actor()))
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
            let problem = wish.ends_at.map(|end| ApplyLockProblem::over(end, now));
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
                "error: --repo has no value",
            ),
            (
                &["set", "--reason", "x", "--until", "2020-01-01T00:00Z"],
                "2020-01-01 00:00 UTC is in the past: it is ",
            ),
            (
                &["set", "--reason", "x", "--for", "soon"],
                "error: --for: `soon` is not a duration: write 90m",
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
