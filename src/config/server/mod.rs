//! What the operator of a server decides: flags and variables become [`ServerConfig`], or a list of everything
//! that is wrong with them.
//!
//! One table ([`SETTINGS`]) says which settings there are. `cli/` makes the command line from it and reads the
//! environment; the texts arrive here as [`RawSettings`], each section reads its own, and what it cannot read it
//! reports and goes on, so that a person sees all problems in one go.

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
pub use absent::{ABSENT, Absent, Reason};
pub use allowlist::{InvalidAllowlist, RepoAllowlist};
pub use comments::{CommentConfig, LookConfig, SilenceConfig};
pub use environment::{PassEnvironment, RunStage};
pub use file::SettingsFile;
pub use github::{GithubAuth, GithubConfig, SecretSource, WebhookConfig, forge_hosts};
pub use hosts::{InvalidWebHost, WebHosts};
pub use locking::{LockingConfig, RepoFile, ReposFile};
pub use logging::LoggingConfig;
pub use periods::Periods;
pub use permissions::{Commenters, PermissionConfig};
pub use problems::{ConfigErrors, Problem, Warning};
pub use proxies::{InvalidNetwork, TrustedProxies};
pub use raw::{Given, Giver, RawSettings};
pub use readme::{flags_page, important_flags};
pub use repos::{
    AutodiscoverMode, AutomergeConfig, CheckoutStrategy, Labels, PlanningConfig, RepoConfig,
};
pub use retention::Retention;
pub use sandbox::{OwnPath, SandboxConfig, SandboxKind};
pub use search::SearchConfig;
pub use setting::{Compat, Fallback, Group, Kind, PREFIXES, Setting, variable};
pub use storage::{Database, PlanFiles, StorageConfig};
pub use strangers::unknown_flag;
pub use sync::SyncConfig;
pub use table::SETTINGS;
pub use terraform::{MirrorUrl, Mirrors, TerraformConfig};
pub use web::{TlsFiles, WebAuth, WebConfig};

use reader::{Read, Reader};

/// Everything the operator decided, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Which repositories and pulls are served.
    pub repos: RepoConfig,
    /// Who Lockkeeper is on GitHub, and where that is.
    pub github: GithubConfig,
    /// What proves that a webhook is GitHub's.
    pub webhooks: WebhookConfig,
    /// The web server.
    pub web: WebConfig,
    /// Where things are kept.
    pub storage: StorageConfig,
    /// How long what is over is kept.
    pub retention: Retention,
    /// How mirrors are kept in step.
    pub sync: SyncConfig,
    /// How often repairs look.
    pub periods: Periods,
    /// Who may do what.
    pub permissions: PermissionConfig,
    /// Commands and answers.
    pub comments: CommentConfig,
    /// When a plan is made by itself.
    pub planning: PlanningConfig,
    /// How locks are taken, and what holds for which repository.
    pub locking: LockingConfig,
    /// How code is run.
    pub terraform: TerraformConfig,
    /// What separates runs from the server.
    pub sandbox: SandboxConfig,
    /// What is logged.
    pub logging: LoggingConfig,
    /// Settings that are accepted and have no effect, a sentence each.
    pub without_effect: Vec<String>,
}

impl ServerConfig {
    /// Checks everything. `found` are problems the caller knows of already (unknown flags, missing files); they
    /// become part of the list.
    pub fn from_raw(
        raw: &RawSettings,
        found: Vec<Problem>,
    ) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        let mut reader = Reader::new(raw, found);
        strangers::check(&mut reader);
        let config = Self::read(&mut reader);
        let (problems, warnings) = reader.finish();
        match (config, ConfigErrors::of(problems)) {
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

    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let repos = RepoConfig::read(reader);
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
