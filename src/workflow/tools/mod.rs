//! Provides the programs that run code: Terraform and OpenTofu in many versions (reference 12.1 to 12.3), and conftest.
//!
//! A program is searched in `--tf-bin-dir`, among the downloaded ones and on the PATH. If it is missing and downloads
//! are allowed, it is downloaded ([`Downloads`]). The configuration of a project, its code and the administrator
//! decide on the version ([`VersionSources`]), and the answer includes the reason ([`VersionChoice`]).
//!
//! Nothing that was downloaded runs before it has been verified. The list of checksums must be signed by one of the
//! keys in this program ([`TrustedKeys`]). The archive must have the checksum that the list gives for its name, which
//! contains the version and the platform. So a mirror can withhold programs, but it cannot replace them.

mod choice;
mod conftest;
mod disk_use;
mod download;
mod error;
mod fetch;
mod find;
mod releases;
#[cfg(test)]
mod tests;
mod verify;

use std::path::{Path, PathBuf};

use semver::Version;
use tracing::warn;

pub use choice::{ChosenBy, VersionChoice, VersionSources};
pub use conftest::FoundConftest;
pub(super) use conftest::{DEFAULT_VERSION, default_version, help_without_conftest};
pub use disk_use::{DownloadUse, ToolInUse};
pub use download::{DownloadSettings, Downloads, Platform};
pub use error::{DownloadError, ToolError};
pub use find::FoundTool;
pub use releases::Sources;
pub use verify::{InvalidKey, TrustedKeys};

use super::ChildEnvironment;
use crate::discovery::RequiredVersions;
use crate::model::Distribution;
use choice::{NeededVersion, highest};
use find::Programs;

/// Finds programs, downloads missing ones, and chooses among them.
#[derive(Debug)]
pub struct Tools {
    programs: Programs,
    downloads: Option<Downloads>,
}

impl Tools {
    /// Creates a value that searches `dirs` first, then the `PATH` of child processes. Nothing is downloaded.
    pub fn new(dirs: &[&Path], environment: ChildEnvironment) -> Self {
        Self {
            programs: Programs::new(dirs, environment),
            downloads: None,
        }
    }

    /// Creates the same value with downloads. They go into one of `dirs`, so that later searches find them.
    pub fn with_downloads(
        dirs: &[&Path],
        environment: ChildEnvironment,
        downloads: Downloads,
    ) -> Self {
        Self {
            downloads: Some(downloads),
            ..Self::new(dirs, environment)
        }
    }

    /// Returns the directories of programs that were installed or downloaded for runs, in search order. Commands of a
    /// workflow find programs there by name, such as `terraform1.5.7`.
    pub fn dirs(&self) -> &[PathBuf] {
        self.programs.own_dirs()
    }

    /// Returns the downloads, if they are enabled.
    pub fn downloads(&self) -> Option<&Downloads> {
        self.downloads.as_ref()
    }

    /// Finds the program of a distribution: in the requested version, downloaded if necessary; else the one without a
    /// version in its name.
    pub async fn find(
        &self,
        distribution: Distribution,
        wanted: Option<&Version>,
    ) -> Result<FoundTool, ToolError> {
        let (Some(downloads), Some(version)) = (&self.downloads, wanted) else {
            return self.find_or_download(distribution, wanted).await;
        };
        // The version is held before the search, so that the result is not removed to free disk space.
        let in_use = downloads.hold(distribution, version);
        let tool = self.find_or_download(distribution, wanted).await?;
        if !tool.program.starts_with(downloads.dir()) {
            return Ok(tool);
        }
        downloads.note_use(distribution, version);
        Ok(FoundTool { in_use, ..tool })
    }

    async fn find_or_download(
        &self,
        distribution: Distribution,
        wanted: Option<&Version>,
    ) -> Result<FoundTool, ToolError> {
        let found = self.programs.find(distribution, wanted).await;
        match (found, wanted, &self.downloads) {
            (Err(error), Some(wanted), Some(downloads)) if error.is_absence() => {
                if let ToolError::Unasked { .. } = error {
                    warn!(%error, "A program does not report its version; the required version is downloaded");
                }
                self.download(downloads, distribution, wanted).await
            }
            (found, ..) => found,
        }
    }

    async fn download(
        &self,
        downloads: &Downloads,
        distribution: Distribution,
        wanted: &Version,
    ) -> Result<FoundTool, ToolError> {
        let program = downloads
            .fetch(distribution, wanted)
            .await
            .map_err(|error| ToolError::Download {
                title: distribution.title(),
                wanted: wanted.clone(),
                error,
            })?;
        self.programs
            .check(program, distribution, Some(wanted))
            .await
    }

    /// Chooses the program for a project, with the reason of the choice.
    pub async fn choose(
        &self,
        sources: &VersionSources,
    ) -> Result<(FoundTool, VersionChoice), ToolError> {
        let distribution = sources.distribution;
        let (tool, by) = match sources.need()? {
            NeededVersion::Exactly(version, by) => {
                match (self.find(distribution, Some(version)).await, by) {
                    (Err(error), ChosenBy::Code(demands)) => {
                        return Err(self.unmet(distribution, &demands, error).await);
                    }
                    (found, by) => (found?, by),
                }
            }
            NeededVersion::Matching(demands) => (
                self.matching(distribution, demands).await?,
                ChosenBy::Code(demands.clone()),
            ),
            NeededVersion::Whatever => (self.find(distribution, None).await?, ChosenBy::Nobody),
        };
        let choice = VersionChoice {
            distribution,
            version: tool.version.clone(),
            by,
        };
        Ok((tool, choice))
    }

    /// Finds the highest version that meets the demands, among the installed ones and those that can be downloaded.
    /// If the download fails, the highest installed version is used; the version is part of the plan.
    async fn matching(
        &self,
        distribution: Distribution,
        demands: &RequiredVersions,
    ) -> Result<FoundTool, ToolError> {
        let installed = self.programs.installed(distribution).await;
        let here = highest(demands, &installed).cloned();
        let (released, unlisted) = self.released(distribution).await;
        let wanted = highest(demands, &released)
            .filter(|version| here.as_ref().is_none_or(|here| *version > here));
        match (wanted, here) {
            (Some(wanted), None) => match self.find(distribution, Some(wanted)).await {
                Err(error) => Err(self.unmet(distribution, demands, error).await),
                found => found,
            },
            (Some(wanted), Some(here)) => match self.find(distribution, Some(wanted)).await {
                Err(error @ ToolError::Download { .. }) => {
                    warn!(%wanted, %here, %error, "Could not download a version; an older version that matches is used");
                    self.find(distribution, Some(&here)).await
                }
                found => found,
            },
            (None, Some(here)) => self.find(distribution, Some(&here)).await,
            (None, None) => Err(ToolError::Unsatisfied {
                title: distribution.title(),
                demands: demands.clone(),
                installed,
                list: unlisted.map_or_else(
                    || self.list_state(&released),
                    error::ReleaseList::Unreadable,
                ),
            }),
        }
    }

    /// Converts an error about a missing version into one that names the demands.
    async fn unmet(
        &self,
        distribution: Distribution,
        demands: &RequiredVersions,
        error: ToolError,
    ) -> ToolError {
        let list = match error {
            ToolError::Download { error, .. } => error::ReleaseList::NotDownloaded(error),
            ToolError::Missing { .. } | ToolError::OtherVersion { .. } => {
                error::ReleaseList::NotAllowed
            }
            other @ (ToolError::Constraint(_)
            | ToolError::Unsatisfied { .. }
            | ToolError::Unasked { .. }
            | ToolError::Unreadable { .. }
            | ToolError::Process(_)) => return other,
        };
        let installed = self.programs.installed(distribution).await;
        ToolError::Unsatisfied {
            title: distribution.title(),
            demands: demands.clone(),
            installed,
            list,
        }
    }

    /// Lists the versions that can be downloaded. If the list cannot be read, it is empty and the error is returned
    /// too.
    async fn released(&self, distribution: Distribution) -> (Vec<Version>, Option<DownloadError>) {
        let Some(downloads) = &self.downloads else {
            return (Vec::new(), None);
        };
        match downloads.released(distribution).await {
            Ok(versions) => (versions.to_vec(), None),
            Err(error) => {
                warn!(%error, "Could not read the list of released versions; only installed versions are considered");
                (Vec::new(), Some(error))
            }
        }
    }

    fn list_state(&self, released: &[Version]) -> error::ReleaseList {
        match &self.downloads {
            None => error::ReleaseList::NotAllowed,
            Some(_) => error::ReleaseList::Searched(released.len()),
        }
    }
}
