//! Settings for locks, and the administrator's rules for single repositories.

use std::path::PathBuf;
use std::sync::Arc;

use super::problems::{StartupProblem, StartupWarning};
use super::reader::{ProblemRecorded, ReadResult, SettingReader};
use crate::config::repos::{ConfigSource, ServerRepos};
use crate::config::yaml::{self, FilePosition};
use crate::model::Sha256Digest;

/// Settings for locks, and the rules for single repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockingConfig {
    /// Rules of `--repo-config` and `--disable-repo-locking`.
    pub repos: Arc<ServerRepos>,
    /// Source of the repositories' own files. `None` stands for the checked-out commit.
    pub config_source: Option<ConfigSource>,
    /// File of `--repo-config`, if the rules come from a file.
    pub file: Option<ReposFile>,
    /// True if a plan waits in the queue of a lock that another pull holds.
    pub queue: bool,
}

/// The file of `--repo-config`, for reading it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReposFile {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Digest of the file's text.
    pub digest: Sha256Digest,
    /// `--disable-repo-locking`.
    pub without_locking: bool,
}

impl LockingConfig {
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let repos = read_repos(reader);
        let file = read_from(reader);
        let is_off = reader.switch("disable-repo-locking");
        let queue = reader.switch("lock-queue");
        let config_source = read_config_source(reader);
        let (repos, is_off) = (repos?, is_off?);
        if is_off {
            let advice = "no lock is taken anywhere, so two pull requests can change the same state at once; deprecated: \
                          write `repo_locks: {mode: disabled}` for these repositories into the file of \
                          --repo-config";
            reader.warn(StartupWarning::with("disable-repo-locking", advice));
        }
        let repos = if is_off {
            repos.without_locking()
        } else {
            repos
        };
        let file = file.map(|file| ReposFile {
            without_locking: is_off,
            ..file
        });
        Ok(Self {
            repos: Arc::new(repos),
            config_source: config_source?,
            file,
            queue: queue?,
        })
    }
}

/// Reads the source of repositories' own files, for repositories whose entry names none.
pub(super) fn read_config_source(
    reader: &mut SettingReader<'_>,
) -> ReadResult<Option<ConfigSource>> {
    let fix = "write `pull_head`, `merge_result`, `base`, or `branch:` and the name of a branch";
    reader.parsed("repo-config-source", str::parse::<ConfigSource>, fix)
}

fn read_from(reader: &mut SettingReader<'_>) -> Option<ReposFile> {
    let path = reader.path("repo-config")?;
    let text = reader.raw().files.get("repo-config")?.as_ref().ok()?;
    Some(ReposFile {
        path,
        digest: Sha256Digest::of(text.as_bytes()),
        without_locking: false,
    })
}

fn read_repos(reader: &mut SettingReader<'_>) -> ReadResult<ServerRepos> {
    let Some(file) = RepoFile::read(reader)? else {
        return Ok(ServerRepos::default());
    };
    let repos = file.parse().map_err(|errors| record(reader, &errors))?;
    repos
        .warnings()
        .into_iter()
        .for_each(|sentence| reader.warn(StartupWarning::about(sentence)));
    Ok(repos)
}

/// Rules for repositories, not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFile {
    /// Path of the file, or name of the flag with the text.
    pub name: String,
    /// Text in YAML or JSON.
    text: String,
    is_json: bool,
}

impl RepoFile {
    /// Parses the rules. Errors name the file or the flag.
    pub fn parse(&self) -> Result<ServerRepos, yaml::YamlErrors> {
        let parse = if self.is_json {
            ServerRepos::parse_json
        } else {
            ServerRepos::parse
        };
        parse(&self.name, &self.text)
    }

    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Option<Self>> {
        let file = reader.path("repo-config");
        let json = reader.text("repo-config-json");
        match (file, json) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => reader.refuse(
                "repo-config",
                "set, although --repo-config-json is set too",
                "keep one of the two",
            ),
            (None, Some(text)) => Ok(Some(Self {
                name: "--repo-config-json".to_owned(),
                text,
                is_json: true,
            })),
            (Some(path), None) => {
                let name = path.display().to_string();
                match reader.raw().files.get("repo-config") {
                    Some(Ok(text)) => Ok(Some(Self {
                        name,
                        text: text.clone(),
                        is_json: false,
                    })),
                    Some(Err(reason)) => unreadable(reader, &name, reason),
                    None => unreadable(reader, &name, "the file was not read"),
                }
            }
        }
    }
}

fn unreadable<T>(reader: &mut SettingReader<'_>, name: &str, reason: &str) -> ReadResult<T> {
    let fix = "check the path, and check that the user account of the server can read the file";
    reader.refuse(
        "repo-config",
        format!("`{name}` cannot be read: {reason}"),
        fix,
    )
}

/// Adds every problem of the file to the problems of the server's configuration.
fn record(reader: &mut SettingReader<'_>, errors: &yaml::YamlErrors) -> ProblemRecorded {
    for (problem, excerpt) in errors.with_excerpts() {
        let place = problem
            .place
            .map(|FilePosition { line, column, .. }| format!(":{line}:{column}"));
        let subject = format!("{}{}", errors.file(), place.unwrap_or_default());
        reader
            .record(StartupProblem::about(subject, &problem.what, &problem.help).showing(excerpt));
    }
    if errors.left_out() > 0 {
        let what = format!("there are {} more problems", errors.left_out());
        reader.record(StartupProblem::about(
            errors.file(),
            what,
            "fix the problems above first",
        ));
    }
    ProblemRecorded
}
