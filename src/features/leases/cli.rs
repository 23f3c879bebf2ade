//! `lockkeeper leases (list | release)`: work that only one server at a time may do.

use anyhow::Context as _;

use super::view::view;
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, ReasonFlag, SubcommandArgs, Terminal,
    actor, block_on, safe,
};
use crate::leases::LeaseKey;
use crate::model::{Cause, minute};
use crate::store::{FreeLease, Lease, LeaseRow, ReplicaState, Store};

/// Show leases, and release one
#[derive(clap::Parser)]
pub(super) enum LeasesArgs {
    /// Show the work that only one server at a time may do
    List {
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Release a lease of a server
    ///
    /// The audit log shows that it was released manually. If the server that holds the lease is gone, the lease is free
    /// at once. A running server is asked to stop the work, so that no other server begins it at the same time. The
    /// lease is free when that server has stopped, after a minute at most.
    ///
    /// Exit code 1: nobody holds this lease.
    Release {
        #[command(flatten)]
        lease: LeaseRelease,
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

/// Lease to release, and the reason for it.
#[derive(clap::Args)]
pub(super) struct LeaseRelease {
    /// As `list` shows it
    key: String,
    #[command(flatten)]
    reason: ReasonFlag,
    /// Release it only if this is the holder, as `list` shows it
    #[arg(long)]
    holder: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
}

impl SubcommandArgs for LeasesArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::List { format, database } => {
                    list(&database.open().await?, format, terminal).await
                }
                Self::Release { lease, database } => {
                    release(&database.open().await?, &lease, terminal).await
                }
            }
        })?
    }
}

async fn list(store: &Store, format: OutputFormat, terminal: &mut Terminal<'_>) -> ExitResult {
    let leases = store
        .lease_list()
        .await
        .context("the leases could not be read")?;
    if leases.is_empty() && !format.is_json() {
        terminal.line("No lease is held.")?;
    }
    for row in &leases {
        format.print(terminal, || view(row), || line(row))?;
    }
    if leases.len() >= usize::from(Store::LEASES_LISTED) {
        terminal.note(format_args!(
            "Showing the first {} by key; there may be more.",
            leases.len()
        ));
    }
    Ok(ExitStatus::Success)
}

async fn release(store: &Store, args: &LeaseRelease, terminal: &mut Terminal<'_>) -> ExitResult {
    let (key, holder) = (&args.key, args.holder.as_deref());
    let repo = LeaseKey::of_text(key).repo();
    let cause = Cause::new(actor(), args.reason.reason.as_str());
    let freed = store.lease_free(key, holder, repo.as_ref(), &cause).await;
    let (state, lease) = match freed.context("the lease could not be released")? {
        FreeLease::Freed(lease) => ("free", lease),
        FreeLease::Told(lease) | FreeLease::AlreadyTold(lease) => ("stopping", lease),
        FreeLease::NotHeld => {
            terminal.note(format_args!("error: {}", safe(&not_held(key, holder))));
            terminal.note("`lockkeeper leases list` shows the leases that are held.");
            return Ok(ExitStatus::Failure);
        }
    };
    let text = safe(&released(state == "free", &lease));
    let mut json = view(&LeaseRow {
        lease,
        replica: None,
    });
    json["state"] = state.into();
    args.format.print(terminal, || json, || text)?;
    Ok(ExitStatus::Success)
}

fn not_held(key: &str, holder: Option<&str>) -> String {
    match holder {
        Some(holder) => format!("{holder} does not hold the lease {key}"),
        None => format!("nobody holds the lease {key}"),
    }
}

fn released(
    is_free: bool,
    Lease {
        key, holder, until, ..
    }: &Lease,
) -> String {
    if is_free {
        format!("Released {key}. Its holder {holder} was gone.")
    } else {
        format!(
            "{holder} was asked to stop. {key} is free when it has stopped, at {} at the latest.",
            minute(*until)
        )
    }
}

fn line(LeaseRow { lease, replica }: &LeaseRow) -> String {
    let server = match replica {
        Some((_, ReplicaState::Alive)) => "",
        Some((_, ReplicaState::Stopping)) => " (its server is stopping)",
        Some((_, ReplicaState::Ended | ReplicaState::Gone)) => " (its server is gone)",
        None => " (its server is unknown)",
    };
    let told = if lease.revoked_at.is_some() {
        ", asked to stop"
    } else {
        ""
    };
    let Lease {
        key,
        holder,
        purpose,
        taken_at,
        until,
        ..
    } = lease;
    let (since, until) = (minute(*taken_at), minute(*until));
    safe(&format!(
        "{key}, held by {holder}{server} since {since}, until {until}{told}: {purpose}"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insta::assert_snapshot;
    use regex::Regex;
    use serde_json::json;

    use super::*;
    use crate::cli::tests::call;
    use crate::clock::{Clock, RandomIds, SystemClock};
    use crate::store::{DatabaseUrl, LeaseHold, NewLease, Presence, ReplicaId, TakeLease};

    const KEY: &str = "repository_sync:home:github.com/acme/infra";

    async fn open(dir: &tempfile::TempDir) -> Store {
        let url = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
        Store::open(&url, Arc::new(SystemClock), Arc::new(RandomIds))
            .await
            .unwrap()
    }

    /// Creates a lease of a server that is alive, and one of a server that is gone.
    fn data() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        block_on(async {
            let (store, now) = (open(&dir).await, SystemClock.now());
            let leases = [
                (KEY, "alive", 60, "sync it\u{1b}[31m"),
                ("reconciler:disk", "gone", -60, "looks"),
            ];
            for (key, name, seconds, purpose) in leases {
                let (host, address, version) = ("h".to_owned(), "a".to_owned(), "1".to_owned());
                let id = ReplicaId {
                    name: name.to_owned(),
                    host,
                    address,
                    version,
                };
                let heard_until = now + chrono::TimeDelta::seconds(seconds);
                store
                    .replica_beat(&id, Presence::Serving, &[], heard_until)
                    .await
                    .unwrap();
                let hold = LeaseHold {
                    key: key.to_owned(),
                    holder: format!("{name}/1"),
                };
                let new = NewLease {
                    hold: &hold,
                    purpose,
                    until: now + chrono::TimeDelta::hours(3),
                };
                assert!(matches!(
                    store.lease_take(new).await.unwrap(),
                    TakeLease::Taken(_)
                ));
            }
        })
        .unwrap();
        dir
    }

    /// Returns the exit code and the output, with times replaced.
    fn leases(dir: &tempfile::TempDir, args: &[&str]) -> (ExitStatus, String) {
        let data = dir.path().display().to_string();
        let (exit, out, err) = call(&[&["leases"], args, &["--data-dir", &data]].concat());
        let minute = Regex::new(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC").unwrap();
        (
            exit,
            minute
                .replace_all(&format!("{out}{err}"), "TIME")
                .into_owned(),
        )
    }

    #[test]
    fn leases_are_listed_and_taken_away() {
        let dir = data();
        let (exit, listed) = leases(&dir, &["list"]);
        assert_eq!(exit, ExitStatus::Success);
        assert_snapshot!(listed, @"
        reconciler:disk, held by gone/1 (its server is gone) since TIME, until TIME: looks
        repository_sync:home:github.com/acme/infra, held by alive/1 since TIME, until TIME: sync it�[31m
        ");
        let (exit, said) = leases(&dir, &["release", "reconciler:disk", "--reason", "stuck"]);
        assert_eq!(exit, ExitStatus::Success);
        assert_snapshot!(said, @"Released reconciler:disk. Its holder gone/1 was gone.");
        assert_eq!(
            leases(
                &dir,
                &["release", KEY, "--reason", "x", "--holder", "gone/1"]
            )
            .0,
            ExitStatus::Failure
        );
        let [(exit, said), again] = [(); 2].map(|()| {
            leases(
                &dir,
                &["release", KEY, "--reason", "stuck", "--holder", "alive/1"],
            )
        });
        assert_eq!(exit, ExitStatus::Success);
        assert_snapshot!(said, @"alive/1 was asked to stop. repository_sync:home:github.com/acme/infra is free when it has stopped, at TIME at the latest.");
        assert_eq!((exit, said), again);
        let (_, listed) = leases(&dir, &["list", "--json"]);
        let lease: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(
            (&lease["key"], &lease["replica_state"]),
            (&json!(KEY), &json!("alive"))
        );
        assert!(lease["revoked_at"].is_string(), "{lease}");
        let (_, said) = leases(&dir, &["release", KEY, "--reason", "x", "--json"]);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&said).unwrap()["state"],
            json!("stopping")
        );
        let events =
            block_on(async { open(&dir).await.lock_event_list(9).await.unwrap() }).unwrap();
        let whys: Vec<&str> = events
            .iter()
            .map(|event| event.event.cause.reason.as_str())
            .collect();
        assert!(
            whys.len() == 2 && whys[1].starts_with("stuck; lease reconciler:disk, held by gone/1"),
            "{whys:?}"
        );
    }

    #[test]
    fn a_lease_that_nobody_holds_and_a_reason_that_says_nothing_are_refused() {
        let dir = data();
        let (exit, said) = leases(&dir, &["release", "other", "--reason", "x"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert_snapshot!(said, @"
        error: nobody holds the lease other
        `lockkeeper leases list` shows the leases that are held.
        ");
        assert_eq!(leases(&dir, &["release", KEY]).0, ExitStatus::Usage);
        let (exit, said) = leases(&dir, &["release", KEY, "--reason", " "]);
        assert_eq!(
            (exit, said.as_str()),
            (
                ExitStatus::Usage,
                "error: invalid value ' ' for '--reason <TEXT>': it is empty: give a short reason\n\n\
                 For more information, try '--help'.\n"
            )
        );
    }
}
