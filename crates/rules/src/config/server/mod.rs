//! Configuration of the server: turns flags and variables into [`ServerConfig`], or into a list of all problems.
//!
//! Each setting is declared once, in the section that it belongs to (see [`section!`]): the field, the flag, the default
//! and the help. [`SETTINGS`] lists the settings of all sections. `cli/` derives the command line from it and reads the
//! environment. The texts arrive here as [`RawSettings`], and each section reads its own settings. A section reports
//! an invalid value and continues, so that people see all problems at once.

mod absent;
mod accounts;
mod allowlist;
mod choice;
mod comments;
mod environment;
mod file;
mod github;
mod github_hosts;
#[cfg(test)]
mod github_hosts_tests;
mod hosts;
mod kinds;
mod locking;
mod logging;
mod periods;
mod permissions;
mod planning;
mod problems;
mod proxies;
mod raw;
mod reader;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod reference;
mod registry;
mod registry_misses;
mod repo_rules;
mod repos;
mod retention;
mod runs;
mod sandbox;
mod search;
mod section;
mod setting;
mod storage;
mod sync;
mod terraform;
#[cfg(test)]
mod tests;
mod unknown;
mod web;

pub use super::access::TeamAuthz;
pub use super::repos::ServerRepos;
pub use absent::{ABSENT, AbsentReason, UnsupportedFlag};
pub use accounts::{AccountsConfig, AccountsMirrorAccess, AccountsMirrorConfig};
pub use allowlist::{InvalidAllowlist, RepoAllowlist};
pub use comments::{CommentConfig, IdleStatuses, LookConfig, SilenceConfig};
pub use environment::{PassEnvironment, RunStage};
pub use file::SettingsFile;
pub use github::{GitHubCredentials, GithubConfig, SecretSource, WebhookConfig, forge_hosts};
#[cfg(test)]
pub(in crate::config) use github_hosts::HostsFileMapping;
pub use github_hosts::{HostsFile, secret_files_of_hosts};
pub use hosts::{InvalidWebHost, WebHosts};
pub use locking::LockingConfig;
pub use logging::{LogFormat, LogLevel, LoggingConfig};
pub use periods::Periods;
pub use permissions::{Commenters, PermissionConfig};
pub use planning::{AUTOPLAN_FILES, PlanningConfig};
pub use problems::{StartupProblem, StartupProblems, StartupWarning};
pub use proxies::{InvalidNetwork, TrustedProxies};
pub use raw::{GivenValue, RawSettings, SettingSource};
pub use registry::{
    ObjectStoreKind, ObjectStoreUrl, OwnRegistry, RegistryConfig, RegistryMisses, TaggedCommits,
};
pub use registry_misses::{
    InvalidMissRule, InvalidVcsHost, MissLimits, MissRule, MissRules, OnMiss, VcsHost, VcsHosts,
};
pub use repo_rules::{RepoFile, RepoRulesConfig, ReposFile};
pub use repos::{ServedReposConfig, StrategySetting};
pub use retention::Retention;
pub use runs::RunConfig;
pub use sandbox::{OwnPath, SandboxConfig, SandboxKind};
pub use search::SearchConfig;
pub use setting::{
    Compat, Fallback, PREFIXES, RunAccess, Setting, SettingGroup, ValueKind, variable,
};
pub use storage::{Database, PlanFiles, StorageConfig};
pub use sync::SyncConfig;
pub use terraform::{MirrorUrl, Mirrors, TerraformConfig};
pub use unknown::unknown_flag;
pub use web::{TlsFiles, WebAccess, WebConfig};

use std::sync::LazyLock;

use reader::SettingReader;
use section::{Section, section};

use crate::command::{BotNames, CommandName, Grammar};
use crate::model::{CommandKind, ForgeHosts, HostName};

/// All settings, in the order in which they are shown.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(ServerConfig::settings);

/// Returns the setting of a flag.
fn setting(flag: &str) -> &'static Setting {
    SETTINGS
        .iter()
        .find(|setting| setting.flag == flag)
        .expect("the caller names the flag of a setting")
}

section! {
    /// All settings of the server, checked.
    pub struct ServerConfig in Operation {
        /// Settings that are accepted without effect, one sentence each.
        pub without_effect: Vec<String> = computed by check_unknown,

        /// Repositories and pulls to serve.
        pub repos: ServedReposConfig = section,

        /// Rules for single repositories.
        pub repo_rules: RepoRulesConfig = section,

        /// Hosts of GitHub to serve, each with its address, the credentials of Lockkeeper there, and the secrets of its
        /// webhooks. The flags configure one, and a file the others.
        pub github: Vec<GithubConfig> = section,

        /// Settings of the web server.
        pub web: WebConfig = section,

        /// Places for data: database, mirrors, plan files.
        pub storage: StorageConfig = section,

        /// Limits for the sync of mirrors.
        pub sync: SyncConfig = section,

        /// Settings for accounts in Git.
        pub accounts: AccountsConfig = section,

        /// Settings of the registry of modules.
        pub registry: RegistryConfig = section,

        /// Times after which old data is removed.
        pub retention: Retention = section,

        /// Periods of the reconcilers.
        pub periods: Periods = section,

        /// Rules about permitted actions.
        pub permissions: PermissionConfig = section,

        /// Settings for commands in comments, and for the replies.
        pub comments: CommentConfig = section,

        /// Settings for automatic plans, and for merges.
        pub planning: PlanningConfig = section,

        /// Settings for locks, and for their queues.
        pub locking: LockingConfig = section,

        /// Programs that run the code.
        pub terraform: TerraformConfig = section,

        /// Boundary between runs and the server.
        pub sandbox: SandboxConfig = section,

        /// Limits of runs, and their variables.
        pub runs: RunConfig = section,

        /// Level and format of the log.
        pub logging: LoggingConfig = section,
    }
}

impl ServerConfig {
    /// Checks all settings. `found` are problems that the caller already knows (unknown flags, missing files). They
    /// become part of the list.
    pub fn from_raw(
        raw: &RawSettings,
        found: Vec<StartupProblem>,
    ) -> Result<(Self, Vec<StartupWarning>), StartupProblems> {
        let mut reader = SettingReader::new(raw, found);
        let config = Self::read(&mut reader);
        let (problems, warnings) = reader.finish();
        match (config, StartupProblems::of(problems)) {
            (Ok(config), None) => Ok((config, warnings)),
            (_, Some(errors)) => Err(errors),
            (Err(_), None) => unreachable!("a reader that gives no value has recorded why"),
        }
    }
}

impl ServerConfig {
    /// Returns the hosts that are forges.
    pub fn forge_hosts(&self) -> ForgeHosts {
        ForgeHosts::with(self.github.iter().map(|github| github.host.clone()))
    }

    /// Returns the grammar of commands in comments on a host. It knows only the account of Lockkeeper there, because an
    /// account of the same name on another host is somebody else.
    pub fn grammar(&self, host: Option<&HostName>) -> Grammar {
        let comments = &self.comments;
        let allowed: Vec<CommandName> = comments.allowed.iter().copied().map(name_of).collect();
        let logins: Vec<String> = self
            .github
            .iter()
            .filter(|github| Some(&github.host) == host)
            .filter_map(|github| github.auth.login())
            .collect();
        let names = BotNames::new(
            &comments.executable_names,
            logins.iter().map(String::as_str),
        );
        Grammar::new(names)
            .with_allowed(&allowed)
            .with_extra_args(comments.extra_args())
            .with_regexp(comments.regexp)
    }
}

/// Returns the name of a command in comments.
fn name_of(kind: CommandKind) -> CommandName {
    match kind {
        CommandKind::Plan | CommandKind::Autoplan => CommandName::Plan,
        CommandKind::Apply => CommandName::Apply,
        CommandKind::Unlock => CommandName::Unlock,
        CommandKind::Cancel => CommandName::Cancel,
        CommandKind::Explain => CommandName::Explain,
        CommandKind::ApprovePolicies => CommandName::ApprovePolicies,
        CommandKind::Version => CommandName::Version,
        CommandKind::Import => CommandName::Import,
        CommandKind::StateRm => CommandName::State,
        CommandKind::Help => CommandName::Help,
    }
}

/// Checks the flags and variables that are not settings, and returns a sentence about each that has no effect.
fn check_unknown(reader: &mut SettingReader<'_>) -> Vec<String> {
    unknown::check(reader);
    reader.without_effect()
}
