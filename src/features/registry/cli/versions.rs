//! `lockkeeper registry (list | show | deprecate | takedown)`.

use std::io::{IsTerminal as _, stdin};

use anyhow::Context as _;
use lockkeeper_registry::names::RegistryName;
use lockkeeper_registry::records::{RecordNotice, TakedownKind};
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;

use super::super::input::{NameOrVersion, read_name_or_version, read_replacement, shown_key};
use super::super::service::{Deprecated, Registry, TakenDown};
use super::super::store::RegistryVersion;
use super::super::tags::TagMove;
use super::super::view::{NameView, VersionView, move_sentence, notice_sentence};
use super::{KeyArgs, RegistryFlags, cause};
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, ReasonFlag, Terminal, Usage, safe, time,
};
use crate::store::Store;

/// Number of names that are read at once.
const PART: i64 = 500;

#[derive(clap::Args)]
pub(in crate::features::registry) struct ListArgs {
    /// Only names that begin with this text, as in acme/
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

#[derive(clap::Args)]
pub(in crate::features::registry) struct ShowArgs {
    /// Name of the module, or name and version, as in acme/vpc/aws@1.2.3
    #[arg(value_name = "NAME[@VERSION]", value_parser = read_name_or_version)]
    shown: NameOrVersion,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

#[derive(clap::Args)]
pub(in crate::features::registry) struct DeprecateArgs {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    notice: NoticeFlags,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    server: RegistryFlags,
}

#[derive(clap::Args)]
pub(in crate::features::registry) struct TakedownArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// legal, security or mistake
    #[arg(long, value_name = "KIND")]
    kind: TakedownKind,
    #[command(flatten)]
    notice: NoticeFlags,
    /// Name and version again, as in acme/vpc/aws@1.2.3
    #[arg(long, value_name = "NAME@VERSION")]
    confirm: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    server: RegistryFlags,
}

/// Reason of a change, and the version to use instead.
#[derive(clap::Args)]
struct NoticeFlags {
    #[command(flatten)]
    reason: ReasonFlag,
    /// Version to use instead: of the same module, as in 1.2.4, or of another one, as in acme/network/aws@1.0.0
    #[arg(long, value_name = "VERSION")]
    instead: Option<String>,
}

impl NoticeFlags {
    fn read(&self, key: &VersionKey) -> Result<RecordNotice, Usage> {
        let replacement = self.instead.as_deref();
        let replacement = replacement
            .map(|text| read_replacement(key, text))
            .transpose();
        Ok(RecordNotice {
            reason: self.reason.reason.clone(),
            replacement: replacement
                .map_err(|problem| Usage::new(format_args!("--instead: {problem}")))?,
        })
    }
}

impl ListArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let store = self.database.open().await?;
        let mut after: Option<RegistryName> = None;
        loop {
            let prefix = self.prefix.as_deref();
            let names = store.registry_names(prefix, after.as_ref(), PART).await;
            let names = names.context("the names cannot be read")?;
            for name in &names {
                self.print(&store, name, terminal).await?;
            }
            match names.last() {
                Some(last) => after = Some(last.clone()),
                None if after.is_none() && !self.format.is_json() => {
                    terminal.line(match prefix {
                        None => "There are no published versions.".to_owned(),
                        Some(prefix) => format!(
                            "There are no published versions whose names begin with {}.",
                            safe(prefix)
                        ),
                    })?;
                    return Ok(ExitStatus::Success);
                }
                None => return Ok(ExitStatus::Success),
            }
        }
    }

    async fn print(
        &self,
        store: &Store,
        name: &RegistryName,
        terminal: &mut Terminal<'_>,
    ) -> anyhow::Result<()> {
        let versions = sorted_versions(store, name).await?;
        let states = versions
            .iter()
            .map(|version| (&version.key, version.known.state()));
        let view = NameView::new(name, states);
        let json = serde_json::to_string(&view)?;
        let is_served = versions
            .iter()
            .any(|version| version.known.state() != VersionState::Deleted);
        let text = || {
            let newest = view.newest.as_deref().unwrap_or(if is_served {
                "all versions are deprecated"
            } else {
                "all versions were taken down"
            });
            let count = view.versions;
            let unit = if count == 1 { "version" } else { "versions" };
            format!("{}: {newest} ({count} {unit})", name.as_str())
        };
        self.format.print(terminal, || json, text)?;
        Ok(())
    }
}

impl ShowArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let store = self.database.open().await?;
        let versions = match &self.shown {
            NameOrVersion::Name(name) => sorted_versions(&store, name).await?,
            NameOrVersion::Version(key) => {
                let version = store.registry_version(key).await;
                version
                    .context("the version cannot be read")?
                    .into_iter()
                    .collect()
            }
        };
        if versions.is_empty() {
            let name = self.shown.name();
            let what = self.shown.version().map(shown_key);
            let what = what.unwrap_or_else(|| name.as_str().to_owned());
            terminal.note(format_args!("error: there is no {what}"));
            let hint = match self.shown {
                NameOrVersion::Name(_) => "`lockkeeper registry list` lists all names.".to_owned(),
                NameOrVersion::Version(_) => {
                    format!(
                        "`lockkeeper registry show {}` lists its versions.",
                        name.as_str()
                    )
                }
            };
            terminal.note(hint);
            return Ok(ExitStatus::Failure);
        }
        let moves = store.registry_tag_moves(&self.shown.name()).await;
        let moves = moves.context("the tags of the versions cannot be read")?;
        for version in &versions {
            print(version, &moves, self.format, terminal)?;
        }
        Ok(ExitStatus::Success)
    }
}

impl DeprecateArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let key = self.key.read()?;
        let notice = self.notice.read(&key)?;
        let registry = self.server.open().await?;
        // The record has the reason.
        let cause = cause("");
        let deprecated = registry.deprecate(&key, notice, &cause).await;
        match deprecated.context("the version was not deprecated")? {
            Deprecated::New(_) => print_changed(&registry, &key, self.format, terminal).await,
            Deprecated::Before(notice) => {
                terminal.note(safe(&format!(
                    "error: {} stays deprecated, with the first reason. {}",
                    shown_key(&key),
                    notice_sentence(&notice)
                )));
                Ok(ExitStatus::Failure)
            }
            Deprecated::Tombstoned(notice) => {
                terminal.note(safe(&format!(
                    "error: {} is gone. {}",
                    shown_key(&key),
                    notice_sentence(&notice)
                )));
                Ok(ExitStatus::Failure)
            }
            Deprecated::NotFound => Ok(version_not_found(&key, terminal)),
        }
    }
}

impl TakedownArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let key = self.key.read()?;
        let notice = self.notice.read(&key)?;
        let registry = self.server.open().await?;
        let version = registry.version(&key).await;
        if version.context("the version cannot be read")?.is_none() {
            return Ok(version_not_found(&key, terminal));
        }
        if !self.is_confirmed(&key, terminal)? {
            terminal.note(format_args!(
                "error: nothing was removed, because the takedown was not confirmed. Type {0}, or give it as --confirm {0}",
                shown_key(&key)
            ));
            return Ok(ExitStatus::Failure);
        }
        let cause = cause("");
        let taken_down = registry.take_down(&key, self.kind, notice, &cause).await;
        match taken_down.context("the version was not taken down")? {
            TakenDown::New(_) => print_changed(&registry, &key, self.format, terminal).await,
            TakenDown::Before(notice) => {
                terminal.note(safe(&format!(
                    "error: {} is gone already. {}",
                    shown_key(&key),
                    notice_sentence(&notice)
                )));
                Ok(ExitStatus::Failure)
            }
            TakenDown::Confirmed(notice) => {
                terminal.note(safe(&format!(
                    "Another deployment has taken {} down before. {} The takedown counts as yours from now on.",
                    shown_key(&key),
                    notice_sentence(&notice)
                )));
                print_changed(&registry, &key, self.format, terminal).await
            }
            TakenDown::NotFound => Ok(version_not_found(&key, terminal)),
        }
    }

    /// Asks a person at a terminal. Scripts give the flag.
    fn is_confirmed(&self, key: &VersionKey, terminal: &mut Terminal<'_>) -> anyhow::Result<bool> {
        let expected = shown_key(key);
        let typed = match &self.confirm {
            Some(given) => given.clone(),
            None if stdin().is_terminal() => {
                terminal.note(format_args!(
                    "This removes {expected} for good: clients get the reason, and the number is never used again. Type \
                     {expected} to confirm:"
                ));
                let mut line = String::new();
                stdin()
                    .read_line(&mut line)
                    .context("cannot read the confirmation")?;
                line
            }
            None => return Ok(false),
        };
        Ok(typed.trim() == expected)
    }
}

/// Returns the versions of a name, the highest first.
async fn sorted_versions(
    store: &Store,
    name: &RegistryName,
) -> anyhow::Result<Vec<RegistryVersion>> {
    let versions = store.registry_versions(name).await;
    let mut versions = versions.context("the versions cannot be read")?;
    versions.sort_by(|one, other| other.key.cmp(&one.key));
    Ok(versions)
}

fn version_not_found(key: &VersionKey, terminal: &mut Terminal<'_>) -> ExitStatus {
    terminal.note(format_args!("error: there is no {}", shown_key(key)));
    let name = key.name();
    terminal.note(format_args!(
        "`lockkeeper registry show {}` lists its versions.",
        name.as_str()
    ));
    ExitStatus::Failure
}

/// Prints a version as it is after a change.
async fn print_changed(
    registry: &Registry,
    key: &VersionKey,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let version = registry.version(key).await;
    if let Some(version) = version.context("the version cannot be read")? {
        print(&version, &[], format, terminal)?;
    }
    Ok(ExitStatus::Success)
}

fn print(
    version: &RegistryVersion,
    moves: &[TagMove],
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> anyhow::Result<()> {
    let view = VersionView::from(version).with_moves(version, moves);
    let json = serde_json::to_string(&view)?;
    format.print(terminal, || json, || text(version, moves))?;
    Ok(())
}

fn text(version: &RegistryVersion, moves: &[TagMove]) -> String {
    let mut parts = vec![format!(
        "{}: {}",
        shown_key(&version.key),
        version.known.state()
    )];
    if let Some(at) = version.added_at {
        let by = version.publisher();
        let by = by.map_or_else(String::new, |by| format!(" by {by}"));
        parts.push(format!("published {}{by}", time(at)));
    }
    if let Some(located) = version.known.content() {
        if let Some(commit) = &located.content.commit {
            parts.push(format!("commit {}", commit.as_str()));
        }
        let packages = located.content.packages.iter();
        parts.extend(
            packages.map(|package| format!("{} bytes, SHA-256 {}", package.size, package.digest)),
        );
    }
    let notice = version.notice.as_ref();
    let notice = notice.map_or_else(String::new, |notice| {
        format!(" {}", notice_sentence(notice))
    });
    let moves = moves.iter().filter(|one| one.key == version.key);
    let moves: Vec<String> = moves
        .map(|one| format!(" {}", move_sentence(one)))
        .collect();
    let moves = moves.concat();
    safe(&format!("{}.{notice}{moves}", parts.join(", ")))
}
