//! `lockkeeper audit (verify | list | prune)`: the log of what happened to locks.

use anyhow::Context as _;
use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use clap::{Arg, ArgMatches, Command, value_parser};

use super::{Exit, Outcome, Subcommand, Terminal, block_on, database};
use crate::config::server::StorageConfig;
use crate::handlers::as_json;
use crate::locks::{Verdict, verify};
use crate::model::{LockEvent, Sha256Digest};
use crate::store::Store;

pub(super) fn command() -> Command {
    let verify = Command::new("verify")
        .about("Prove that no event was changed or removed, or name the first that was")
        .long_about(
            "Reads the whole log and checks that each event continues the one before it. Prints the hash of the newest \
             event: kept somewhere else, it later proves with --contains that nothing was cut off the end.\n\nExit code \
             1: the log is not whole, or the hash is not in it.",
        )
        .arg(
            Arg::new("contains")
                .long("contains")
                .value_name("HASH")
                .value_parser(value_parser!(Sha256Digest))
                .help("A hash that was printed earlier; it must still be in the log"),
        );
    let list = Command::new("list")
        .about("Show the newest events")
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("NUMBER")
                .default_value("50")
                .value_parser(value_parser!(i64).range(1..=100_000))
                .help("How many"),
        )
        .arg(Arg::new("json").long("json").action(clap::ArgAction::SetTrue).help("As JSON, an event per line"));
    let prune = Command::new("prune").about("Remove old events and leave a seal that the rest continues").arg(
        Arg::new("before")
            .long("before")
            .value_name("DATE")
            .required(true)
            .value_parser(date)
            .help("Events from before this day are removed, as in 2026-01-31 (UTC)"),
    );
    Command::new("audit")
        .about("Look through the log of what happened to locks")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands([verify, list, prune].map(|command| command.args(database::flags())))
}

fn date(text: &str) -> Result<DateTime<Utc>, String> {
    let day = text.parse::<NaiveDate>().map_err(|_| "a day is written as 2026-01-31".to_owned())?;
    Ok(day.and_time(chrono::NaiveTime::MIN).and_utc())
}

pub(super) fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let (name, matches) = matches.subcommand().expect("clap demands a subcommand");
    let storage = match StorageConfig::from_raw(&database::settings(matches)?) {
        Ok(storage) => storage,
        Err(errors) => return Ok(terminal.usage(&format!("error: {errors}\n"))),
    };
    block_on(async {
        let store = database::open(&storage).await?;
        match name {
            "verify" => run_verify(&store, matches.get_one("contains"), terminal).await,
            "list" => run_list(&store, matches, terminal).await,
            _ => run_prune(&store, *matches.get_one("before").expect("clap demands it"), terminal).await,
        }
    })?
}

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "audit", command, run };

async fn run_verify(store: &Store, wanted: Option<&Sha256Digest>, terminal: &mut Terminal<'_>) -> Outcome {
    match verify(store, wanted).await.context("the log could not be read")? {
        Verdict::Whole { events, removed, head, known } => {
            let before = if removed > 0 { format!(" after {removed} that were pruned") } else { String::new() };
            terminal
                .line(format_args!("The log is whole: {events} events{before}, the newest with the hash {head}."))?;
            if !known {
                terminal.note("error: the hash that was asked for is not in the log: events were removed");
                return Ok(Exit::Failure);
            }
            Ok(Exit::Success)
        }
        Verdict::Broken { seq, fault } => {
            terminal.note(format_args!("error: the log is broken: event {seq} {}", fault.says()));
            Ok(Exit::Failure)
        }
    }
}

async fn run_list(store: &Store, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let limit = *matches.get_one("limit").expect("it has a default");
    let events = store.lock_event_list(limit).await.context("the log could not be read")?;
    for event in events.iter().rev() {
        if matches.get_flag("json") {
            terminal.line(as_json::event(event))?;
        } else {
            terminal.line(as_text(event))?;
        }
    }
    Ok(Exit::Success)
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn as_text(kept: &LockEvent) -> String {
    let cause = &kept.event.cause;
    let lock = kept.event.key.as_ref().map(|key| format!(" {key}"));
    let lock = lock.or_else(|| kept.event.scope.as_ref().map(|scope| format!(" {scope}"))).unwrap_or_default();
    let pull = kept.of_whom().map(|whom| format!(" {whom}")).unwrap_or_default();
    let remote = cause.remote.as_ref().map(|remote| format!(" from {remote}")).unwrap_or_default();
    let (kind, actor) = (kept.event.kind, &cause.actor);
    let line = format!(
        "{} {} {kind}{lock}{pull} by {} ({}{remote}): {}",
        kept.seq,
        time(kept.at),
        actor.login,
        actor.origin,
        cause.reason
    );
    // Names and reasons come from others; a terminal must not obey them.
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

async fn run_prune(store: &Store, before: DateTime<Utc>, terminal: &mut Terminal<'_>) -> Outcome {
    let who = super::environment::user();
    match store.lock_event_prune(before, &who).await.context("the log could not be pruned")? {
        Some(seal) => terminal.line(format_args!(
            "Removed {} events, the last of them number {} of {}. The log continues its hash {}.",
            seal.events,
            seal.last_seq,
            time(seal.last_at),
            seal.last_hash
        ))?,
        None => terminal.line("Nothing in the log is that old.")?,
    }
    Ok(Exit::Success)
}
