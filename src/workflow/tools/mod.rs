//! The programs that run code: Terraform and OpenTofu in many versions (reference 12.1 to 12.3).
//!
//! A program is looked for in `--tf-bin-dir`, among the downloaded ones and on the PATH; where it is not and may be
//! downloaded, it is ([`Downloads`]). Which version a project gets follows from what its configuration, its code and the
//! operator say ([`Wish`]), and the answer comes with its reason ([`VersionChoice`]).
//!
//! Nothing that was downloaded is run before it has been verified: the list of checksums must be signed by one of the
//! keys in this program ([`Keys`]), and the archive must have the checksum that the list gives to its name, which holds
//! the version and the platform. So a mirror can withhold programs, but it cannot put others in their place.

mod choice;
mod download;
mod error;
mod fetch;
mod find;
mod releases;
mod room;
#[cfg(test)]
mod tests;
mod verify;

use std::path::{Path, PathBuf};

use semver::Version;
use tracing::warn;

pub use choice::{ChosenBy, VersionChoice, Wish};
pub use download::{DownloadSettings, Downloads, Platform};
pub use error::{DownloadError, ToolError};
pub use find::Tool;
pub use releases::Sources;
pub use room::{DownloadUse, InUse};
pub use verify::{InvalidKey, Keys};

use super::ChildEnvironment;
use crate::discovery::RequiredVersions;
use crate::model::Distribution;
use choice::{Need, highest};
use find::Programs;

/// Finds programs, downloads those that are not there, and chooses among them.
#[derive(Debug)]
pub struct Tools {
    programs: Programs,
    downloads: Option<Downloads>,
}

impl Tools {
    /// Looks in `dirs` first, then along the `PATH` that children get. Nothing is downloaded.
    pub fn new(dirs: &[&Path], environment: ChildEnvironment) -> Self {
        Self {
            programs: Programs::new(dirs, environment),
            downloads: None,
        }
    }

    /// The same; what is not there is downloaded, into one of `dirs`, so that it is found again.
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

    /// The folders in which programs are that were put there or downloaded for runs, in the order in which they are
    /// looked in. Commands of a workflow find them there by name, such as `terraform1.5.7`.
    pub fn dirs(&self) -> &[PathBuf] {
        self.programs.own_dirs()
    }

    /// Where programs are downloaded to, if they are.
    pub fn downloads(&self) -> Option<&Downloads> {
        self.downloads.as_ref()
    }

    /// The program of a distribution: of that version, downloaded if need be; else the one without a version in its name.
    pub async fn find(
        &self,
        distribution: Distribution,
        wanted: Option<&Version>,
    ) -> Result<Tool, ToolError> {
        let (Some(downloads), Some(version)) = (&self.downloads, wanted) else {
            return self.look_for(distribution, wanted).await;
        };
        // Held before anybody looks, so that what is found is not removed to make room.
        let in_use = downloads.hold(distribution, version);
        let tool = self.look_for(distribution, wanted).await?;
        if !tool.program.starts_with(downloads.dir()) {
            return Ok(tool);
        }
        downloads.note_use(distribution, version);
        Ok(Tool { in_use, ..tool })
    }

    async fn look_for(
        &self,
        distribution: Distribution,
        wanted: Option<&Version>,
    ) -> Result<Tool, ToolError> {
        let found = self.programs.find(distribution, wanted).await;
        match (found, wanted, &self.downloads) {
            (Err(error), Some(wanted), Some(downloads)) if error.is_absence() => {
                if let ToolError::Unasked { .. } = error {
                    warn!(%error, "A program does not say which version it is; the one that is asked for is downloaded");
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
    ) -> Result<Tool, ToolError> {
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

    /// The program for a project, and why it is this one.
    pub async fn choose(&self, wish: &Wish) -> Result<(Tool, VersionChoice), ToolError> {
        let distribution = wish.distribution;
        let (tool, by) = match wish.need()? {
            Need::Exactly(version, by) => {
                match (self.find(distribution, Some(version)).await, by) {
                    (Err(error), ChosenBy::Code(demands)) => {
                        return Err(self.unmet(distribution, &demands, error).await);
                    }
                    (found, by) => (found?, by),
                }
            }
            Need::Matching(demands) => (
                self.matching(distribution, demands).await?,
                ChosenBy::Code(demands.clone()),
            ),
            Need::Whatever => (self.find(distribution, None).await?, ChosenBy::Nobody),
        };
        let choice = VersionChoice {
            distribution,
            version: tool.version.clone(),
            by,
        };
        Ok((tool, choice))
    }

    /// The highest version that meets the demands, of those that are here and those that can be downloaded. Where the
    /// download fails, the highest that is here will do: which one it was is part of the plan.
    async fn matching(
        &self,
        distribution: Distribution,
        demands: &RequiredVersions,
    ) -> Result<Tool, ToolError> {
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
                    warn!(%wanted, %here, %error, "A version cannot be downloaded; an older one is used, which matches too");
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

    /// That a version is missing, in terms of who demands it.
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

    /// Versions that can be downloaded, and why they are not known if so.
    async fn released(&self, distribution: Distribution) -> (Vec<Version>, Option<DownloadError>) {
        let Some(downloads) = &self.downloads else {
            return (Vec::new(), None);
        };
        match downloads.released(distribution).await {
            Ok(versions) => (versions.to_vec(), None),
            Err(error) => {
                warn!(%error, "The list of released versions cannot be read; only installed ones are considered");
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
