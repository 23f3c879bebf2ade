//! Configuration of the server: turns flags and variables into [`ServerConfig`], or into a list of all problems.
//!
//! One table ([`SETTINGS`]) lists the settings. `cli/` derives the command line from it and reads the environment.
//! The texts arrive here as [`RawSettings`], and each section reads its own settings. A section reports an invalid
//! value and continues, so that people see all problems at once.

mod absent;
mod allowlist;
mod choice;
mod comments;
mod environment;
mod file;
mod github;
mod hosts;
mod kinds;
mod locking;
mod logging;
mod periods;
mod permissions;
mod problems;
mod proxies;
mod raw;
mod reader;
mod readme;
#[cfg(test)]
mod reference;
mod repos;
mod retention;
mod sandbox;
mod search;
mod setting;
mod storage;
mod strangers;
mod sync;
mod table;
mod terraform;
#[cfg(test)]
mod tests;
mod web;

pub use super::access::TeamAuthz;
pub use super::repos::ServerRepos;
pub use absent::{ABSENT, AbsentReason, UnsupportedFlag};
pub use allowlist::{InvalidAllowlist, RepoAllowlist};
pub use comments::{CommentConfig, LookConfig, SilenceConfig};
pub use environment::{PassEnvironment, RunStage};
pub use file::SettingsFile;
pub use github::{GithubAuth, GithubConfig, SecretSource, WebhookConfig, forge_hosts};
pub use hosts::{InvalidWebHost, WebHosts};
pub use locking::{LockingConfig, RepoFile, ReposFile};
pub use logging::{LogFormat, LogLevel, LoggingConfig};
pub use periods::Periods;
pub use permissions::{Commenters, PermissionConfig};
pub use problems::{StartupProblem, StartupProblems, StartupWarning};
pub use proxies::{InvalidNetwork, TrustedProxies};
pub use raw::{GivenValue, RawSettings, SettingSource};
pub use readme::{flags_page, important_flags};
pub use repos::{
    AutomergeConfig, Labels, PlanningConfig, ServedReposConfig, ServerAutodiscover, StrategySetting,
};
pub use retention::Retention;
pub use sandbox::{OwnPath, SandboxConfig, SandboxKind};
pub use search::SearchConfig;
pub use setting::{Compat, Fallback, PREFIXES, Setting, SettingGroup, ValueKind, variable};
pub use storage::{Database, PlanFiles, StorageConfig};
pub use strangers::unknown_flag;
pub use sync::SyncConfig;
pub use table::SETTINGS;
pub use terraform::{MirrorUrl, Mirrors, TerraformConfig};
pub use web::{TlsFiles, WebAccess, WebConfig};

use reader::{ReadResult, SettingReader};

/// All settings of the server, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Repositories and pulls to serve.
    pub repos: ServedReposConfig,
    /// Address of GitHub, and the credentials of Lockkeeper there.
    pub github: GithubConfig,
    /// Secrets that prove that a webhook comes from GitHub.
    pub webhooks: WebhookConfig,
    /// Settings of the web server.
    pub web: WebConfig,
    /// Places for data: database, mirrors, plan files.
    pub storage: StorageConfig,
    /// Times after which old data is removed.
    pub retention: Retention,
    /// Limits for the sync of mirrors.
    pub sync: SyncConfig,
    /// Periods of the reconcilers.
    pub periods: Periods,
    /// Rules about permitted actions.
    pub permissions: PermissionConfig,
    /// Settings for commands in comments, and for the replies.
    pub comments: CommentConfig,
    /// Settings for automatic plans.
    pub planning: PlanningConfig,
    /// Settings for locks, and the rules for single repositories.
    pub locking: LockingConfig,
    /// Programs that run the code, and their limits.
    pub terraform: TerraformConfig,
    /// Boundary between runs and the server.
    pub sandbox: SandboxConfig,
    /// Level and format of the log.
    pub logging: LoggingConfig,
    /// Settings that are accepted without effect, one sentence each.
    pub without_effect: Vec<String>,
}

impl ServerConfig {
    /// Checks all settings. `found` are problems that the caller already knows (unknown flags, missing files). They
    /// become part of the list.
    pub fn from_raw(
        raw: &RawSettings,
        found: Vec<StartupProblem>,
    ) -> Result<(Self, Vec<StartupWarning>), StartupProblems> {
        let mut reader = SettingReader::new(raw, found);
        strangers::check(&mut reader);
        let config = Self::read(&mut reader);
        let (problems, warnings) = reader.finish();
        match (config, StartupProblems::of(problems)) {
            (Ok(config), None) => {
                let idle = warnings
                    .iter()
                    .filter(|warning| warning.is_without_effect())
                    .map(ToString::to_string);
                Ok((
                    Self {
                        without_effect: idle.collect(),
                        ..config
                    },
                    warnings,
                ))
            }
            (_, Some(errors)) => Err(errors),
            (Err(_), None) => unreachable!("a reader that gives no value has recorded why"),
        }
    }

    fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let repos = ServedReposConfig::read(reader);
        let github = GithubConfig::read(reader);
        let webhooks = WebhookConfig::read(reader);
        let web = WebConfig::read(reader);
        let storage = StorageConfig::read(reader);
        let retention = Retention::read(reader);
        let sync = SyncConfig::read(reader);
        let periods = Periods::read(reader);
        let permissions = PermissionConfig::read(reader);
        let comments = CommentConfig::read(reader);
        let planning = PlanningConfig::read(reader);
        let locking = LockingConfig::read(reader);
        let terraform = TerraformConfig::read(reader);
        let sandbox = SandboxConfig::read(reader);
        let logging = LoggingConfig::read(reader);
        Ok(Self {
            repos: repos?,
            github: github?,
            webhooks: webhooks?,
            web: web?,
            storage: storage?,
            retention: retention?,
            sync: sync?,
            periods: periods?,
            permissions: permissions?,
            comments: comments?,
            planning: planning?,
            locking: locking?,
            terraform: terraform?,
            sandbox: sandbox?,
            logging: logging?,
            without_effect: Vec::new(),
        })
    }
}
