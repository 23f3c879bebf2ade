//! Settings that decide which projects are planned, read without the rest of the configuration. A command on another
//! machine uses them to show the plans of the server, without the secrets of the server.

use super::github_hosts::HostsFile;
use super::planning::PlanningConfig;
use super::problems::StartupProblems;
use super::raw::RawSettings;
use super::reader::{ReadResult, SettingReader};
use super::repo_rules::{RepoFile, read_config_source};
use super::section::Section as _;
use super::terraform::TerraformConfig;
use crate::config::repos::ConfigSource;

/// Settings that decide which projects are planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchConfig {
    /// Settings for automatic plans, and for the search for projects.
    pub planning: PlanningConfig,
    /// Programs that run the code.
    pub terraform: TerraformConfig,
    /// File of `--repo-config`, not parsed yet, so that its mistakes are shown as those of a file.
    pub repo_file: Option<RepoFile>,
    /// File of `--gh-hosts-file`, not parsed yet. It decides about no project, but a check shows its mistakes.
    pub hosts_file: Option<HostsFile>,
    /// `--repo-config-source`, for repositories whose entry names no source.
    pub config_source: Option<ConfigSource>,
    /// `--disable-repo-locking`.
    pub locking_is_off: bool,
}

impl SearchConfig {
    /// Flags that these settings use.
    pub const FLAGS: [&str; 14] = [
        "repo-config",
        "repo-config-json",
        "repo-config-source",
        "autodiscover-mode",
        "autoplan-file-list",
        "autoplan-modules",
        "autoplan-modules-from-projects",
        "disable-autoplan",
        "enable-policy-checks",
        "max-projects",
        "default-tf-distribution",
        "default-tf-version",
        "disable-repo-locking",
        "gh-hosts-file",
    ];

    /// Checks these settings, and ignores all others.
    pub fn from_raw(raw: &RawSettings) -> Result<Self, StartupProblems> {
        let mut reader = SettingReader::new(raw, Vec::new());
        let config = Self::read(&mut reader);
        match (config, StartupProblems::of(reader.finish().0)) {
            (Ok(config), None) => Ok(config),
            (_, Some(errors)) => Err(errors),
            (Err(_), None) => unreachable!("a reader that gives no value has recorded why"),
        }
    }

    fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let planning = PlanningConfig::read(reader);
        let terraform = TerraformConfig::read(reader);
        let repo_file = RepoFile::read(reader);
        let hosts_file = HostsFile::read(reader);
        let config_source = read_config_source(reader, "repo-config-source");
        let locking_is_off = reader.switch("disable-repo-locking");
        Ok(Self {
            planning: planning?,
            terraform: terraform?,
            repo_file: repo_file?,
            hosts_file: hosts_file?,
            config_source: config_source?,
            locking_is_off: locking_is_off?,
        })
    }
}
