//! Running Terraform or OpenTofu for one project.

use std::path::{Path, PathBuf};
use std::time::Duration;

use semver::Version;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::steps::Steps;
use super::{ArtifactError, CheckoutError, ChildEnvironment, RunOutput, StepError, Tool, ToolError, Tools};
use crate::model::{Distribution, ProjectKey};
use crate::process::Supervisor;

/// How Terraform and OpenTofu are found and started on this machine.
pub struct Terraform {
    /// Programs.
    pub tools: Tools,
    /// What children see of the server's environment.
    pub environment: ChildEnvironment,
    /// What keeps a child polite when the server dies.
    pub supervisor: Supervisor,
    /// Where plan files are while they are worked on; never inside a checkout, where the pull could have put a link in
    /// their place.
    pub scratch: PathBuf,
}

/// Where and for what a run happens.
pub struct Place<'a> {
    /// The project.
    pub project: &'a ProjectKey,
    /// Its directory in the checkout.
    pub dir: &'a Path,
    /// Held for as long as anything of the run lives.
    pub hold: &'a Path,
    /// Whether the lock file of the providers is part of the repository.
    pub lock_file_tracked: bool,
    /// Arguments after `--` in the comment.
    pub extra: &'a [String],
    /// Where what is printed goes.
    pub output: &'a RunOutput,
    /// Cancelled when the run is to stop.
    pub stop: &'a CancellationToken,
    /// How long all steps together may take.
    pub timeout: Duration,
}

/// A plan file and what was printed while it was made.
pub struct PlanMade {
    /// The file.
    pub file: Vec<u8>,
    /// Output of `plan`.
    pub output: String,
    /// The program that made it.
    pub tool: Tool,
}

/// Why a run did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no program to run it with.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A step did not end well.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The code cannot be had.
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
    /// The plan file cannot be stored or used.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// This machine's disk.
    #[error("cannot work on the plan file on this server's disk")]
    Disk(#[from] std::io::Error),
}

impl RunError {
    /// What the tool printed before it failed.
    pub fn output(&self) -> &str {
        match self {
            Self::Step(error) => error.output(),
            Self::Tool(_) | Self::Checkout(_) | Self::Artifact(_) | Self::Disk(_) => "",
        }
    }
}

impl Terraform {
    /// `init`, the workspace, `plan`.
    pub async fn plan(
        &self,
        place: &Place<'_>,
        distribution: Distribution,
        wanted: Option<&Version>,
    ) -> Result<PlanMade, RunError> {
        let tool = self.tools.find(distribution, wanted).await?;
        let scratch = self.scratch()?;
        let file = scratch.path().join("plan.tfplan");
        let steps = self.steps(place, &tool);
        remove_stale_lock_file(place)?;
        steps.init(!place.lock_file_tracked).await?;
        steps.workspace().await?;
        let output = steps.plan(&file, place.extra).await?;
        let file = tokio::fs::read(&file).await?;
        Ok(PlanMade { file, output, tool })
    }

    /// `apply` of a plan file. A checkout that was made anew since the plan is initialised first.
    pub async fn apply(&self, place: &Place<'_>, tool: &Tool, plan: &[u8]) -> Result<String, RunError> {
        let scratch = self.scratch()?;
        let file = scratch.path().join("plan.tfplan");
        tokio::fs::write(&file, plan).await?;
        let steps = self.steps(place, tool);
        if !self.is_initialised(place.dir) {
            steps.init(!place.lock_file_tracked).await?;
            steps.workspace().await?;
        }
        Ok(steps.apply(&file, place.extra).await?)
    }

    fn is_initialised(&self, dir: &Path) -> bool {
        let data = self.environment.get("TF_DATA_DIR").map_or_else(|| PathBuf::from(".terraform"), PathBuf::from);
        dir.join(data).is_dir()
    }

    /// A directory that only this user can read; it is gone when the run is over.
    fn scratch(&self) -> std::io::Result<TempDir> {
        std::fs::create_dir_all(&self.scratch)?;
        tempfile::Builder::new().prefix("run-").tempdir_in(&self.scratch)
    }

    fn steps<'a>(&'a self, place: &Place<'a>, tool: &'a Tool) -> Steps<'a> {
        Steps {
            tool,
            environment: &self.environment,
            supervisor: &self.supervisor,
            dir: place.dir,
            hold: place.hold,
            project: place.project,
            output: place.output,
            stop: place.stop,
            deadline: tokio::time::Instant::now() + place.timeout,
            timeout: place.timeout,
        }
    }
}

/// A lock file that is not part of the repository is what an earlier `init` left; it would pin old providers.
fn remove_stale_lock_file(place: &Place<'_>) -> std::io::Result<()> {
    if place.lock_file_tracked {
        return Ok(());
    }
    match std::fs::remove_file(place.dir.join(".terraform.lock.hcl")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
