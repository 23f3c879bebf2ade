//! `lockkeeper repos (list | show | sync)`: the mirrors of repositories.

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::view::view;
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, ReasonFlag, SubcommandArgs, Terminal,
    actor, block_on, safe,
};
use crate::model::{Cause, OwnerName, Reason, RepoId, SyncState, minute};
use crate::store::{MirrorQuery, MirrorRow, MirrorSearch, Store};

/// Maximum number of disks that one repository is listed on.
const DISKS: i64 = 1000;

/// Show the mirrors of repositories, and sync them
#[derive(clap::Parser)]
pub(super) enum MirrorsArgs {
    /// Show the mirrors on every disk, failing mirrors first
    List {
        #[command(flatten)]
        filter: MirrorFilterArgs,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Show all facts about the mirrors of a repository
    Show {
        #[command(flatten)]
        repo: RepoArg,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Sync the mirrors of a repository now
    ///
    /// Every server syncs its mirror of the repository as soon as it can, even if the mirror waits after a failure, and
    /// creates one if it has none. A server that does not serve the repository (--repo-allowlist) ignores the request.
    /// The lists show who requested the sync and why until it has succeeded, and the audit log keeps both.
    ///
    /// Exit code 1: no server has used the database yet.
    Sync {
        #[command(flatten)]
        repo: RepoArg,
        #[command(flatten)]
        reason: ReasonFlag,
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

/// Mirrors that are listed.
#[derive(clap::Args)]
pub(super) struct MirrorFilterArgs {
    /// Only repositories that this owner has claimed
    #[arg(long, value_name = "NAME")]
    owner: Option<OwnerName>,
    /// Only repositories whose name contains this text
    #[arg(value_name = "TEXT")]
    search: Option<String>,
    /// Only mirrors in this state
    #[arg(long, value_parser = sync_state())]
    state: Option<SyncState>,
    /// Maximum number of mirrors
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "1000",
        value_parser = clap::value_parser!(i64).range(1..=100_000)
    )]
    limit: i64,
}

/// Repository that a subcommand is about.
#[derive(clap::Args)]
pub(super) struct RepoArg {
    /// With its host, as in github.com/acme/infra
    repo: RepoId,
}

fn sync_state() -> impl TypedValueParser<Value = SyncState> {
    let words = SyncState::ALL.iter().map(|state| state.as_str());
    PossibleValuesParser::new(words).try_map(|word| word.parse::<SyncState>())
}

impl SubcommandArgs for MirrorsArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::List {
                    filter,
                    format,
                    database,
                } => list(&database.open().await?, &filter, format, terminal).await,
                Self::Show {
                    repo,
                    format,
                    database,
                } => show(&database.open().await?, &repo.repo, format, terminal).await,
                Self::Sync {
                    repo,
                    reason,
                    database,
                } => {
                    sync(
                        &database.open().await?,
                        &repo.repo,
                        &reason.reason,
                        terminal,
                    )
                    .await
                }
            }
        })?
    }
}

async fn list(
    store: &Store,
    filter: &MirrorFilterArgs,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let repos = match &filter.owner {
        Some(name) => Some(claimed_by(store, name).await?),
        None => None,
    };
    let search = MirrorSearch {
        state: filter.state,
        text: filter.search.as_deref().unwrap_or_default(),
        repos: repos.as_deref(),
        skip: 0,
        limit: filter.limit,
    };
    let found = store.mirror_search(search).await;
    let found = found.context("the mirrors could not be read")?;
    for row in &found.rows {
        format.print(terminal, || view(row), || safe(&line(row)))?;
    }
    let shown = i64::try_from(found.rows.len()).unwrap_or(i64::MAX);
    if found.count == 0 && !format.is_json() {
        terminal.line("No mirrors found.")?;
    } else if found.count > shown {
        terminal.note(format_args!(
            "Showing {shown} of {}. Use --limit to see more.",
            found.count
        ));
    }
    Ok(ExitStatus::Success)
}

/// Returns the repositories that an owner has claimed. Fails if no owner has that name.
async fn claimed_by(store: &Store, name: &OwnerName) -> anyhow::Result<Vec<RepoId>> {
    let owner = store
        .owner_get(name)
        .await
        .context("the owners could not be read")?;
    let owner = owner.with_context(|| {
        format!("there is no owner `{name}`; `lockkeeper owners list` lists all owners")
    })?;
    store
        .claim_repos(owner.id)
        .await
        .context("the claims could not be read")
}

async fn show(
    store: &Store,
    repo: &RepoId,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let query = MirrorQuery {
        repo: Some(repo.clone()),
        ..MirrorQuery::default()
    };
    let rows = store
        .mirror_list(&query, DISKS)
        .await
        .context("the mirrors could not be read")?;
    for row in &rows {
        format.print(terminal, || view(row), || safe_lines(&details(row)))?;
    }
    if rows.is_empty() {
        Ok(unknown(repo, terminal))
    } else {
        Ok(ExitStatus::Success)
    }
}

async fn sync(
    store: &Store,
    repo: &RepoId,
    reason: &Reason,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let cause = Cause::new(actor(), reason.as_str());
    match store
        .mirror_request_sync_anywhere(repo, &cause)
        .await
        .context("the sync could not be requested")?
    {
        0 => {
            terminal.note("error: no server has used this database yet, so there are no mirrors");
            terminal.note("Start a server with the same --database-url, then try again.");
            Ok(ExitStatus::Failure)
        }
        mirrors => {
            let what = if mirrors == 1 {
                "1 mirror".to_owned()
            } else {
                format!("{mirrors} mirrors")
            };
            terminal.line(format_args!("Requested a sync of {what}: {repo}"))?;
            Ok(ExitStatus::Success)
        }
    }
}

fn safe_lines(lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| safe(line)).collect();
    lines.join("\n")
}

fn unknown(repo: &RepoId, terminal: &mut Terminal<'_>) -> ExitStatus {
    terminal.note(format_args!("error: no server has a mirror of {repo}"));
    terminal.note(
        "`lockkeeper repos sync` creates one if a server serves the repository (--repo-allowlist). `lockkeeper repos list` \
         lists all mirrors.",
    );
    ExitStatus::Failure
}

fn or_never(at: Option<DateTime<Utc>>) -> String {
    at.map_or_else(|| "never".to_owned(), minute)
}

fn line(row: &MirrorRow) -> String {
    let state = &row.state;
    let label = if state.evicted_at.is_some() {
        "removed to free disk space"
    } else {
        state.state.as_str()
    };
    let retry = state.retry_at.map(|at| {
        format!(
            ", next try {} after {} failures",
            minute(at),
            state.retry_count
        )
    });
    let failure = state
        .failure
        .as_ref()
        .map(|failure| format!(": {}", failure.message));
    let refused = state
        .refused
        .as_ref()
        .map(|lines| format!(" without {}", lines.replace('\n', "; ")));
    format!(
        "{} on disk {}: {label}, last success {}, references {}{}{}{}",
        row.repo,
        row.data_dir_id,
        or_never(state.succeeded_at),
        state.verification,
        refused.unwrap_or_default(),
        retry.unwrap_or_default(),
        failure.unwrap_or_default(),
    )
}

fn details(row: &MirrorRow) -> Vec<String> {
    let state = &row.state;
    let mut lines = vec![line(row)];
    if let Some(failure) = &state.failure {
        lines.push(format!("  fix: {}", failure.kind.fix()));
    }
    if let Some(asked) = &state.asked {
        let why = asked
            .reason
            .as_ref()
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default();
        lines.push(format!(
            "  sync requested by {} on {}{why}",
            asked.by,
            minute(asked.at)
        ));
    }
    lines.push(format!(
        "  last attempt {}, last known change {}, last used {}",
        or_never(state.synced_at),
        or_never(state.updated_at),
        or_never(state.used_at)
    ));
    if let (Some(at), Some(refs), Some(checksum)) = (state.verified_at, state.refs, &state.checksum)
    {
        lines.push(format!(
            "  {refs} references, compared {}, checksum {checksum}",
            minute(at)
        ));
    }
    if let Some(differs) = &state.verification_failure {
        lines.push(format!(
            "  differed {} times in a row: {differs}",
            state.verification_retry_count
        ));
    }
    let (objects, tidied) = (
        or_never(state.connectivity_at),
        or_never(state.maintained_at),
    );
    let size = state
        .bytes
        .map(|bytes| format!(", {} MiB", bytes >> 20))
        .unwrap_or_default();
    lines.push(format!(
        "  objects checked {objects}, maintained {tidied}{size}"
    ));
    if let Some(lease) = &state.lease {
        lines.push(format!(
            "  in progress: lease {}, held by {}",
            lease.key, lease.holder
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insta::assert_snapshot;
    use regex::Regex;
    use serde_json::json;

    use super::*;
    use crate::claims::application_add;
    use crate::cli::tests::call;
    use crate::clock::{Clock as _, RandomIds, SystemClock};
    use crate::kit::term::environment;
    use crate::model::{
        Actor, ApplicationFields, AttemptLease, Cause, FailureKind, ForgeHosts, Jitter,
        LockEventKind, MirrorEvent, Origin, Rights, SyncFailure,
    };
    use crate::store::{DatabaseUrl, MirrorChange};

    async fn open(dir: &tempfile::TempDir) -> Store {
        let url = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
        Store::open(&url, Arc::new(SystemClock), Arc::new(RandomIds))
            .await
            .unwrap()
    }

    /// Creates one mirror whose fetch failed, and one that was never tried.
    fn data() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        block_on(async {
            let (store, data_dir_id, at) = (
                open(&dir).await,
                "disk-1".parse().unwrap(),
                SystemClock.now(),
            );
            let [infra, labs]: [RepoId; 2] =
                ["github.com/acme/infra", "github.com/acme/labs"].map(|repo| repo.parse().unwrap());
            for repo in [&infra, &labs] {
                assert!(store.mirror_know(&data_dir_id, repo).await.unwrap());
            }
            let holder = "one/1".to_owned();
            let lease = AttemptLease {
                key: "repository_sync:disk-1:x".to_owned(),
                holder: holder.clone(),
            };
            let failure = SyncFailure {
                kind: FailureKind::NotFound,
                message: "it is not\u{1b}[31m there".to_owned(),
            };
            let failed = MirrorEvent::Failed {
                at,
                holder,
                failure,
                jitter: Jitter::of("x"),
            };
            for event in [MirrorEvent::Started { at, lease }, failed] {
                let change = store
                    .mirror_change(&data_dir_id, &infra, &event)
                    .await
                    .unwrap();
                assert!(matches!(change, MirrorChange::Changed(_)), "{change:?}");
            }
        })
        .unwrap();
        dir
    }

    /// Returns the exit code and the output, with the user and times replaced.
    fn repos(dir: &tempfile::TempDir, args: &[&str]) -> (ExitStatus, String) {
        let data = dir.path().display().to_string();
        let (exit, out, err) = call(&[&["repos"], args, &["--data-dir", &data]].concat());
        let minute = Regex::new(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC").unwrap();
        let text =
            format!("{out}{err}").replace(&format!("by {} on", environment::user()), "by USER on");
        (exit, minute.replace_all(&text, "TIME").into_owned())
    }

    #[test]
    fn mirrors_are_listed_shown_and_asked_to_be_synchronised() {
        let dir = data();
        let (exit, listed) = repos(&dir, &["list"]);
        assert_eq!(exit, ExitStatus::Success);
        assert_snapshot!(listed, @"
        github.com/acme/infra on disk disk-1: failed, last success never, references unknown, next try TIME after 1 failures: it is not�[31m there
        github.com/acme/labs on disk disk-1: pending, last success never, references unknown
        ");
        assert_eq!(repos(&dir, &["list", "LABS"]).1.lines().count(), 1);
        block_on(async {
            let (store, by) = (
                open(&dir).await,
                Cause::new(Actor::commenter("ada"), "for the test"),
            );
            let (net, fields) = ("net".parse().unwrap(), ApplicationFields::default());
            let fields = ApplicationFields {
                url: Some("https://github.com/acme/labs"),
                branch: Some("main"),
                ..fields
            };
            let spec = fields.spec(&ForgeHosts::public()).unwrap();
            drop(store.owner_create(&net, &by).await.unwrap());
            application_add(&store, &net, &spec, (Rights::Whole, &by))
                .await
                .unwrap()
                .or_why()
                .unwrap();
        })
        .unwrap();
        let (_, of_net) = repos(&dir, &["list", "--owner", "Net"]);
        assert!(
            of_net.starts_with("github.com/acme/labs on disk") && of_net.lines().count() == 1,
            "{of_net}"
        );
        assert_eq!(
            repos(&dir, &["list", "--state", "synced"]).1,
            "No mirrors found.\n"
        );
        assert!(
            repos(&dir, &["list", "--limit", "1"])
                .1
                .ends_with("Showing 1 of 2. Use --limit to see more.\n")
        );
        assert_eq!(
            repos(
                &dir,
                &[
                    "sync",
                    "github.com/acme/infra",
                    "--reason",
                    "access was given"
                ]
            ),
            (
                ExitStatus::Success,
                "Requested a sync of 1 mirror: github.com/acme/infra\n".to_owned()
            )
        );
        let (exit, shown) = repos(&dir, &["show", "github.com/acme/infra"]);
        assert_eq!(exit, ExitStatus::Success);
        let events =
            block_on(async { open(&dir).await.lock_event_list(9).await.unwrap() }).unwrap();
        let asked = &events[0].event;
        assert_eq!(
            (asked.kind, asked.cause.actor.origin),
            (LockEventKind::SyncAsked, Origin::Cli)
        );
        assert_eq!(
            asked.cause.reason,
            "github.com/acme/infra: access was given"
        );
        assert_snapshot!(shown, @"
        github.com/acme/infra on disk disk-1: pending, last success never, references unknown: it is not�[31m there
          fix: The repository does not exist under this name, or the credentials may not see it. Give the account or the GitHub App access to it; if it was renamed or deleted, remove it from --repo-allowlist.
          sync requested by USER on TIME: access was given
          last attempt TIME, last known change never, last used never
          objects checked never, maintained never
        ");
        let (_, json) = repos(&dir, &["show", "github.com/acme/infra", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json["state"], &json["asked"]["reason"]),
            (&json!("pending"), &json!("access was given"))
        );
        assert_eq!(json["failure"]["kind"], json!("not_found"));
    }

    #[test]
    fn a_sync_of_a_repository_that_no_server_knows_makes_its_mirror_known_to_all_of_them() {
        let dir = tempfile::tempdir().unwrap();
        block_on(async {
            let store = open(&dir).await;
            for data_dir_id in ["disk-1", "disk-2"] {
                assert_eq!(
                    store
                        .repository_event_begin(&data_dir_id.parse().unwrap())
                        .await
                        .unwrap(),
                    0
                );
            }
        })
        .unwrap();
        let sync = ["sync", "github.com/acme/x", "--reason", "it is new"];
        assert_eq!(
            repos(&dir, &sync),
            (
                ExitStatus::Success,
                "Requested a sync of 2 mirrors: github.com/acme/x\n".to_owned()
            )
        );
        let (exit, listed) = repos(&dir, &["list"]);
        assert_eq!(
            (
                exit,
                listed.matches("github.com/acme/x on disk disk-").count()
            ),
            (ExitStatus::Success, 2),
            "{listed}"
        );
    }

    #[test]
    fn what_nobody_has_and_what_is_no_repository_is_said_so() {
        let dir = data();
        let (exit, said) = repos(&dir, &["show", "github.com/acme/x"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert!(
            said.starts_with(
                "error: no server has a mirror of github.com/acme/x\n`lockkeeper repos sync`"
            ),
            "{said}"
        );
        let (exit, said) = repos(&dir, &["sync", "github.com/acme/x", "--reason", "y"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert!(
            said.starts_with("error: no server has used this database yet"),
            "{said}"
        );
        assert_eq!(repos(&dir, &["show", "infra"]).0, ExitStatus::Usage);
        assert_eq!(
            repos(&dir, &["sync", "github.com/acme/infra"]).0,
            ExitStatus::Usage
        );
        let (exit, said) = repos(&dir, &["sync", "github.com/acme/infra", "--reason", " "]);
        assert_eq!(exit, ExitStatus::Usage);
        assert!(
            said.starts_with(
                "error: invalid value ' ' for '--reason <TEXT>': it is empty: give a short reason\n"
            ),
            "{said}"
        );
    }
}
