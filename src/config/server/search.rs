//! What decides which projects are planned, read without the rest of the configuration: for whoever asks on another
//! machine what the server would do, without its secrets.

use super::locking::{RepoFile, read_config_source};
use super::problems::ConfigErrors;
use super::raw::RawSettings;
use super::reader::{Read, Reader};
use super::repos::PlanningConfig;
use super::terraform::TerraformConfig;
use crate::config::repos::ConfigSource;

/// What decides which projects are planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchConfig {
    /// When a plan is made by itself, and what is looked for.
    pub planning: PlanningConfig,
    /// What runs the code.
    pub terraform: TerraformConfig,
    /// The file of `--repo-config`, not read yet, so that its mistakes can be shown as those of a file.
    pub repo_file: Option<RepoFile>,
    /// `--repo-config-source`, for repositories of which the file says nothing about it.
    pub config_source: Option<ConfigSource>,
    /// `--disable-repo-locking`.
    pub locking_is_off: bool,
}

impl SearchConfig {
    /// The flags that count here.
    pub const FLAGS: [&str; 12] = [
        "repo-config",
        "repo-config-json",
        "repo-config-source",
        "autodiscover-mode",
        "autoplan-file-list",
        "autoplan-modules",
        "autoplan-modules-from-projects",
        "disable-autoplan",
        "max-projects",
        "default-tf-distribution",
        "default-tf-version",
        "disable-repo-locking",
    ];

    /// Checks what was said about these settings; others are not looked at.
    pub fn from_raw(raw: &RawSettings) -> Result<Self, ConfigErrors> {
        let mut reader = Reader::new(raw, Vec::new());
        let config = Self::read(&mut reader);
        match (config, ConfigErrors::of(reader.finish().0)) {
            (Ok(config), None) => Ok(config),
            (_, Some(errors)) => Err(errors),
            (Err(_), None) => unreachable!("a reader that gives no value has recorded why"),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let planning = PlanningConfig::read(reader);
        let terraform = TerraformConfig::read(reader);
        let repo_file = RepoFile::read(reader);
        let config_source = read_config_source(reader);
        let locking_is_off = reader.switch("disable-repo-locking");
        Ok(Self {
            planning: planning?,
            terraform: terraform?,
            repo_file: repo_file?,
            config_source: config_source?,
            locking_is_off: locking_is_off?,
        })
    }
}
