//! The administrator's rules for single repositories: `--repo-config`.

use std::path::PathBuf;
use std::sync::Arc;

use super::locking::read_lock_switch;
use super::problems::{StartupProblem, StartupWarning};
use super::reader::{ProblemRecorded, ReadResult, SettingReader};
use super::section::section;
use crate::config::repos::{ConfigSource, NoPolicySets, ServerRepos};
use crate::config::yaml::{self, FilePosition};
use crate::model::Sha256Digest;

const POLICY_CHECKS: &str = "enable-policy-checks";

section! {
    /// The administrator's rules for single repositories.
    #[expect(clippy::doc_markdown, reason = "the comment of a setting is its help on the command line")]
    pub struct RepoRulesConfig in Repositories {
        /// Source of the repository's file: pull_head, merge_result, base (the base branch) or branch:NAME. With
        /// `base` or a branch, a pull request cannot change its own rules. `repo_config_source` of --repo-config
        /// wins.
        pub config_source: Option<ConfigSource> =
            text("repo-config-source", "SOURCE").or_derived("the commit of --checkout-strategy") => read_config_source,

        /// Rules of `--repo-config`, `--enable-policy-checks` and `--disable-repo-locking`.
        pub repos: Arc<ServerRepos> = read_repos from {
            /// File with rules for repositories, usually called repos.yaml: how locks are taken, which settings a
            /// repository can change, and who may do what.
            path("repo-config", "FILE").fixed_in_runs("the rules for repositories"),

            /// Content of --repo-config as JSON.
            text("repo-config-json", "JSON"),
        },

        /// File of `--repo-config`, if the rules come from a file.
        pub file: Option<ReposFile> = computed by repos_file,
    }
}

/// The file of `--repo-config`, for reading it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReposFile {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Digest of the file's text.
    pub digest: Sha256Digest,
}

/// Reads the source of repositories' own files, for repositories whose entry names none.
pub(super) fn read_config_source(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<Option<ConfigSource>> {
    let fix = "write `pull_head`, `merge_result`, `base`, or `branch:` and the name of a branch";
    reader.parsed(flag, str::parse::<ConfigSource>, fix)
}

fn repos_file(reader: &mut SettingReader<'_>) -> Option<ReposFile> {
    let text = reader.raw().files.get("repo-config");
    let read = (reader.path("repo-config"), text);
    let (Some(path), Some(Ok(text))) = read else {
        return None;
    };
    Some(ReposFile {
        path,
        digest: Sha256Digest::of(text.as_bytes()),
    })
}

fn read_repos(reader: &mut SettingReader<'_>) -> ReadResult<Arc<ServerRepos>> {
    let repos = match RepoFile::read(reader)? {
        Some(file) => file.parse().map_err(|errors| record(reader, &errors))?,
        None => ServerRepos::default(),
    };
    for sentence in repos.warnings() {
        reader.warn(StartupWarning::about(sentence));
    }
    let repos = if reader.switch(POLICY_CHECKS)? {
        repos
            .with_policy_checks()
            .or_else(|error| reader.refuse(POLICY_CHECKS, error.to_string(), NoPolicySets::FIX))?
    } else {
        repos
    };
    if repos.has_idle_policies() {
        reader.warn(StartupWarning::without_effect(
            "the policy sets of --repo-config have no effect: set --enable-policy-checks, or `policy_check: true` for some \
             of its repositories"
                .to_owned(),
        ));
    }
    let without_owners = repos.sets_without_owners();
    if !without_owners.is_empty() {
        let names: Vec<String> = without_owners
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        reader.warn(StartupWarning::about(format!(
            "nobody may approve violations of policy sets without owners ({}), so a plan that violates them is never applied, \
             unless the rule names a team. Write `owners: {{teams: [TEAM]}}` below `policies` in the rules for repositories \
             (--repo-config)",
            names.join(", ")
        )));
    }
    let without_locking = read_lock_switch(reader, "disable-repo-locking")?;
    Ok(Arc::new(if without_locking {
        repos.without_locking()
    } else {
        repos
    }))
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
                    Some(Err(reason)) => unreadable(reader, "repo-config", &name, reason),
                    None => unreadable(reader, "repo-config", &name, "the file was not read"),
                }
            }
        }
    }
}

/// Reports a file that is part of the configuration and cannot be read.
pub(super) fn unreadable<T>(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
    name: &str,
    reason: &str,
) -> ReadResult<T> {
    let fix = "check the path, and check that the user account of the server can read the file";
    reader.refuse(flag, format!("`{name}` cannot be read: {reason}"), fix)
}

/// Adds every problem of the file to the problems of the server's configuration.
pub(super) fn record(reader: &mut SettingReader<'_>, errors: &yaml::YamlErrors) -> ProblemRecorded {
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
