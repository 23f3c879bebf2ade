//! `lockkeeper registry publish DIR`.

use std::path::PathBuf;

use anyhow::Context as _;
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::versions::VersionKey;
use serde_json::Value;
use url::Url;

use super::super::input::{read_name, read_version, shown_key};
use super::super::packaging::{CheckedPackage, PackagingError, SourceDirectory};
use super::super::service::{Published, Registry, RegistryError};
use super::super::store::VersionOrigin;
use super::super::view::{PublishedView, VersionView, checksums_of, notice_sentence};
use super::remote::{RemoteAnswer, RemoteRegistry};
use super::{RegistryFlags, cause, working_path};
use crate::kit::term::{ExitResult, ExitStatus, OutputFormat, Terminal, Usage, environment, safe};

/// Maximum number of files that a note names.
const SHOWN: usize = 10;

#[derive(clap::Args)]
pub(in crate::features::registry) struct PublishArgs {
    /// Directory with the files of the module
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Name of the module, as in acme/vpc/aws for Terraform or example.com/net for Go
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Version of the module, as in 1.2.3 for Terraform or v1.2.3 for Go
    #[arg(long, value_name = "VERSION")]
    version: String,
    /// module (Terraform) or go; the default follows from the name
    #[arg(long, value_name = "KIND")]
    kind: Option<NameKind>,
    /// Server to publish at, by its public address [default: the database of the server]
    #[arg(long, value_name = "URL", requires = "token_file")]
    server: Option<Url>,
    /// File with a token for that server
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    flags: RegistryFlags,
}

impl PublishArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let key = self.key()?;
        let remote = match (&self.server, &self.token_file) {
            (Some(server), Some(file)) => Some(RemoteRegistry::new(server, file)?),
            (Some(_) | None, _) => None,
        };
        let dir = working_path(&self.dir)?;
        let git = environment::for_git(&environment::read()?);
        let source = SourceDirectory::read(&dir, key.kind(), git).await;
        let source = source.context("nothing was published")?;
        let notes = ContentNotes::of(&source, key.kind());
        let status = if let Some(remote) = remote {
            // A package on its way needs no database, only a file.
            let staging = tempfile::tempdir().context("cannot make a temporary directory")?;
            let package = CheckedPackage::of_directory(key, source, staging.path()).await;
            let mut package = notes.explain(package, terminal)?;
            // Before others get it.
            package.check_token().context("nothing was published")?;
            // The server believes no commit of others.
            package.content.commit = None;
            let answer = remote.publish(&package).await?;
            self.show_remote(&package, &answer, terminal)?
        } else {
            let registry = self.flags.open().await?;
            let staging = registry.blobs().staging_dir();
            let package = CheckedPackage::of_directory(key, source, &staging).await;
            let package = notes.explain(package, terminal)?;
            self.publish_here(&registry, package, terminal).await?
        };
        // A refusal may be due to files that were left out.
        print_notes(&notes.left_out, terminal);
        if status == ExitStatus::Success {
            print_notes(&notes.beside, terminal);
        }
        Ok(status)
    }

    fn key(&self) -> Result<VersionKey, Usage> {
        let name = match self.kind {
            Some(kind) => RegistryName::new(kind, &self.name).map_err(|error| error.to_string()),
            None => read_name(&self.name),
        };
        let name = name.map_err(|problem| Usage::new(format_args!("--name: {problem}")))?;
        read_version(name, &self.version)
            .map_err(|problem| Usage::new(format_args!("--version: {problem}")))
    }

    async fn publish_here(
        &self,
        registry: &Registry,
        package: CheckedPackage,
        terminal: &mut Terminal<'_>,
    ) -> ExitResult {
        let (key, content) = (package.key.clone(), package.content.clone());
        let cause = cause("");
        let published = registry.publish(package, VersionOrigin::Command, &cause);
        let refusal = match published.await.context("the version was not published")? {
            Published::New(id) => {
                let told = format!("Published {} as record {id} of the log.", shown_key(&key));
                let id = Some(id.get());
                return self.show_here(registry, &key, id, &told, terminal).await;
            }
            Published::Same => {
                let told = format!(
                    "{} was published before with the same files.",
                    shown_key(&key)
                );
                return self.show_here(registry, &key, None, &told, terminal).await;
            }
            Published::Conflict(here) => format!(
                "{} was published with other files: {}, and the directory has {}. A published version never changes: \
                 choose a new number",
                shown_key(&key),
                checksums_of(&here),
                checksums_of(&content)
            ),
            Published::Tombstoned(notice) => format!(
                "{} cannot be used again. {} Choose a new number",
                shown_key(&key),
                notice_sentence(&notice)
            ),
            Published::Owned => return Err(RegistryError::owned(&key).into()),
            Published::NoNamespace => format!(
                "the name {} belongs to no owner. Add its namespace with `lockkeeper registry namespaces add`",
                key.name().as_str()
            ),
            Published::CaseConflict(other) => format!(
                "the name {} exists, and {} differs from it only in case. Use the other name",
                other.as_str(),
                key.name().as_str()
            ),
        };
        terminal.note(safe(&format!("error: {refusal}")));
        Ok(ExitStatus::Failure)
    }

    fn show_remote(
        &self,
        package: &CheckedPackage,
        answer: &RemoteAnswer,
        terminal: &mut Terminal<'_>,
    ) -> ExitResult {
        let key = &package.key;
        match answer {
            RemoteAnswer::Published { id, answer } => {
                let told = match id {
                    Some(id) => format!("Published {} as record {id} of the log.", shown_key(key)),
                    None => format!(
                        "{} was published before with the same files.",
                        shown_key(key)
                    ),
                };
                self.show(answer, &told, terminal)
            }
            RemoteAnswer::Refused(why) => {
                terminal.note(safe(&format!("error: {why}")));
                Ok(ExitStatus::Failure)
            }
        }
    }

    /// Shows the version as the registry has it, which can have other packages with the same files.
    async fn show_here(
        &self,
        registry: &Registry,
        key: &VersionKey,
        id: Option<i64>,
        told: &str,
        terminal: &mut Terminal<'_>,
    ) -> ExitResult {
        let version = registry.version(key).await;
        let version = version.context("the version cannot be read")?;
        let version = version.context("the version is not there any more")?;
        let version = VersionView::from(&version);
        let view = serde_json::to_value(PublishedView { id, version });
        let view = view.context("the version cannot be shown")?;
        self.show(&view, told, terminal)
    }

    fn show(&self, view: &Value, told: &str, terminal: &mut Terminal<'_>) -> ExitResult {
        self.format
            .print(terminal, || view.clone(), || told.to_owned())?;
        Ok(ExitStatus::Success)
    }
}

/// Notes about files that the package does not have, and about directories that it has as well.
struct ContentNotes {
    left_out: Vec<String>,
    beside: Vec<String>,
}

impl ContentNotes {
    fn of(source: &SourceDirectory, kind: NameKind) -> Self {
        let mut files = source.left_out().to_vec();
        if kind == NameKind::Go {
            files.extend(source.left_out_by_go());
        }
        let shown = files.iter().take(SHOWN);
        let shown = shown.map(|file| format!("Left out {}: {}.", file.path, file.reason));
        let more = files.len().saturating_sub(SHOWN);
        let more = (more > 0).then(|| format!("Left out {more} more."));
        let beside = source.outside_dirs().iter().map(|dir| {
            let what = if dir.is_root() {
                "the whole repository".to_owned()
            } else {
                format!("the directory {dir} of the repository")
            };
            format!("The package also has {what}, because the module uses it.")
        });
        Self {
            left_out: shown.chain(more).collect(),
            beside: beside.collect(),
        }
    }

    /// Returns the package. If there is none, names what was left out, because that may be the reason.
    fn explain(
        &self,
        package: Result<CheckedPackage, PackagingError>,
        terminal: &mut Terminal<'_>,
    ) -> anyhow::Result<CheckedPackage> {
        if package.is_err() {
            print_notes(&self.left_out, terminal);
        }
        package.context("nothing was published")
    }
}

fn print_notes(notes: &[String], terminal: &mut Terminal<'_>) {
    for note in notes {
        terminal.note(safe(note));
    }
}
