//! Runs Terraform or OpenTofu for one project.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_policy::verdict::Verdict;
use tokio_util::sync::CancellationToken;

use super::data_dir::{self, DataDir};
use super::kept_plan::KeptPlan;
use super::scratch::{self, Scratch};
use super::steps::{
    CommentWords, Deadline, Exec, KeptOutput, Printed, RunFiles, Steps, initialises, preparation,
};
use super::{
    ArtifactError, CheckoutError, ChildEnvironment, ChosenBy, FoundTool, InstalledModule,
    PolicyWork, ProviderCache, PullFacts, RegistryAccess, ResourceList, RunOutput, StageSetup,
    StepError, StepFailure, StepName, ToolError, Tools, VersionSources,
    cli_config::{self, CONFIG_FILE},
};
use crate::config::server::RunStage;
use crate::config::workflow::{Builtin, Stage, Step, Workflow};
use crate::git::ModuleAccess;
use crate::model::{Distribution, ProjectKey, Sha256Digest};
use crate::process::Supervisor;

/// Programs, environment and directories for Terraform and OpenTofu on this machine.
pub struct Terraform {
    /// Programs that are installed or downloaded.
    pub tools: Tools,
    /// Cache of provider packages; `None` if each project fetches its own.
    pub providers: Option<ProviderCache>,
    /// Environment and sandbox of plans.
    pub plans: StageSetup,
    /// Environment and sandbox of applies, imports and `state rm`.
    pub applies: StageSetup,
    /// Environment and sandbox of projects with an environment profile, by name of the profile.
    pub profiles: BTreeMap<String, ProfileSetup>,
    /// Supervisor that ends child processes gracefully when the server dies.
    pub supervisor: Supervisor,
    /// Directory of plan files during a run. It is never inside a checkout, where the pull request could have put a
    /// link in their place.
    pub scratch: PathBuf,
}

/// Environment and sandbox of runs with one environment profile.
pub struct ProfileSetup {
    /// Environment and sandbox of plans.
    pub plans: StageSetup,
    /// Environment and sandbox of applies, imports and `state rm`.
    pub applies: StageSetup,
}

/// Maximum size of a plan file in bytes, because it is held in memory.
const MAX_PLAN: u64 = 512 * 1024 * 1024;

/// Place and context of a run.
pub struct ToolContext<'a> {
    pub project: &'a ProjectKey,
    /// Directory of the project in the checkout.
    pub dir: &'a Path,
    /// Root of the checkout.
    pub root: &'a Path,
    /// Mirror of the repository.
    pub mirror: &'a Path,
    /// Lock file that is held while any process of the run lives.
    pub hold: &'a Path,
    /// True if the lock file of the providers is part of the repository.
    pub lock_file_tracked: bool,
    /// Workflow with the steps of the run.
    pub workflow: &'a Workflow,
    /// Description of the pull request for commands among the steps.
    pub facts: &'a PullFacts,
    /// Environment profile of the project; `None` for the setup that every other run gets.
    pub profile: Option<&'a str>,
    /// Access to private modules of the forge. Only the built-in `init` gets it, and only if that runs no code of the
    /// pull request.
    pub modules: Option<&'a ModuleAccess>,
    /// Access to the registry of modules, if the run has any.
    pub registry: Option<&'a RegistryAccess>,
    /// True if a plan reports the modules that `init` has installed.
    pub lists_modules: bool,
    /// Policies that a plan is checked against; `None` for other runs, and without policy checks.
    pub policies: Option<&'a PolicyWork>,
    /// Arguments of the comment for the built-in steps.
    pub given: CommentWords<'a>,
    /// Destination of the output.
    pub output: &'a RunOutput,
    /// Token that is cancelled to stop the run.
    pub stop: &'a CancellationToken,
    /// Time limit for all steps together.
    pub timeout: Duration,
}

/// Result of the steps that plan.
pub struct PlanMade {
    /// Content of the plan file; `None` if no step has written one.
    pub file: Option<Vec<u8>>,
    /// Output of the steps, as far as a comment may show it.
    pub output: String,
    /// Output of the built-in `plan` alone; `None` if commands of the administrator make the plan.
    pub plan_output: Option<PlanText>,
    /// Changes in the plan file, as the tool shows them.
    pub shown: ResourceList,
    /// Program that made the plan.
    pub tool: FoundTool,
    /// Digest of the workflow that made the plan.
    pub workflow: Sha256Digest,
    /// Modules from registries that the plan uses, as far as they were requested. An error says why they are unknown.
    pub modules: Result<Vec<InstalledModule>, String>,
    /// One verdict for each policy set of the context, in the same order.
    pub policies: Vec<Verdict>,
}

/// Output of the built-in `plan`.
pub struct PlanText {
    /// Lines that were kept.
    pub text: String,
    /// True if the step printed more than was kept.
    pub is_cut: bool,
}

/// Result of the steps of a stage that changes a state.
pub struct StateWork {
    /// Output of the steps, as far as a comment may show it, or the reason of the failure.
    pub ended: Result<String, RunError>,
    /// True if the state may have changed. The effects of a command of the administrator are unknown, so the value is
    /// true as soon as one has started.
    pub touched: bool,
}

impl StateWork {
    /// Creates the result of a stage that was not begun.
    pub fn not_begun(error: impl Into<RunError>) -> Self {
        Self {
            ended: Err(error.into()),
            touched: false,
        }
    }
}

/// Reason that a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No suitable program was found.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A step of the workflow failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The code could not be checked out.
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
    /// The plan file cannot be stored or used.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// A file operation on the disk of this server failed.
    #[error("cannot work on the plan file on this server's disk")]
    Disk(#[from] std::io::Error),
    /// The database does not answer.
    #[error("cannot determine what the run may read in the registry of modules")]
    Registry(#[source] sqlx::Error),
}

impl RunError {
    /// Returns the output of the tool before it failed.
    pub fn output(&self) -> &str {
        match self {
            Self::Step(error) => &error.output,
            Self::Tool(_)
            | Self::Checkout(_)
            | Self::Artifact(_)
            | Self::Disk(_)
            | Self::Registry(_) => "",
        }
    }
}

impl Terraform {
    /// Runs the steps that plan, and then those that check the plan against policies. A check that fails is a verdict, and
    /// not an error.
    pub async fn plan(
        &self,
        place: &ToolContext<'_>,
        sources: &VersionSources,
    ) -> Result<PlanMade, RunError> {
        let tool = self.tool(place, sources).await?;
        let setup = self.setup(place, RunStage::Plan)?;
        let (scratch, environment) = self.begin(place.registry, tool.distribution, setup)?;
        let deadline = Deadline::after(place.timeout);
        let of_stage = (setup, &*environment);
        let mut steps = self.steps(place, &tool, &scratch, of_stage, &deadline);
        let Printed { output, plan } = steps.run(&place.workflow.plan.steps).await?;
        let modules = steps.modules_used().await;
        // Everything from here on sees these bytes, which are stored: nobody can exchange the plan after it was read.
        let file = scratch::read(RunFiles::within(scratch.dir()).plan, MAX_PLAN).await?;
        let kept = self.kept(file.as_deref(), setup).await?;
        if let Some(kept) = &kept {
            steps.use_plan(kept);
        }
        let shown = match steps.list().await {
            Ok(shown) => shown,
            Err(error) => return Err(StepError { output, ..error }.into()),
        };
        let policies = match place.policies {
            None => Vec::new(),
            Some(work) => {
                let mut steps = self.steps(place, &tool, &scratch, of_stage, &deadline);
                if let Some(kept) = &kept {
                    steps.use_plan(kept);
                    // Steps that check policies see the same.
                    steps.files.plan = kept.file();
                }
                // Boxed, because the future is large, and most plans have no policies.
                let plan = file.as_deref();
                let checked = steps.check_policies(work, place.workflow, plan, &self.scratch);
                let checked = Box::pin(checked).await;
                match checked {
                    Ok(verdicts) => verdicts,
                    Err(error) => return Err(StepError { output, ..error }.into()),
                }
            }
        };
        let plan_output = plan.map(|KeptOutput { text, is_cut }| PlanText { text, is_cut });
        Ok(PlanMade {
            file,
            output,
            plan_output,
            shown,
            tool,
            workflow: place.workflow.fingerprint(place.policies.is_some()),
            modules,
            policies,
        })
    }

    /// Chooses the program for a project. A download can take a while, and stops when the run is cancelled.
    async fn tool(
        &self,
        place: &ToolContext<'_>,
        sources: &VersionSources,
    ) -> Result<FoundTool, RunError> {
        let (tool, choice) = tokio::select! {
            chosen = self.tools.choose(sources) => chosen?,
            () = place.stop.cancelled() => return Err(stopped(sources).into()),
        };
        if choice.by != ChosenBy::Nobody {
            place.output.push_line(&format!("Using {choice}.")).await;
        }
        Ok(tool)
    }

    /// Runs the steps that apply a plan, with its plan file if it has one. As for the plan, the checkout is prepared
    /// first in two cases: it was created again since the plan, or a program other than `init` has changed the files
    /// that `init` left. Such a change would run with the credentials of applies.
    pub async fn apply(
        &self,
        place: &ToolContext<'_>,
        tool: &FoundTool,
        plan: Option<&[u8]>,
    ) -> Result<String, RunError> {
        let setup = self.setup(place, RunStage::Apply)?;
        let (scratch, environment) = self.begin(place.registry, tool.distribution, setup)?;
        let kept = self.kept(plan, setup).await?;
        if let Some(plan) = plan {
            // A copy for commands of the administrator, which may change it.
            tokio::fs::write(RunFiles::within(scratch.dir()).plan, plan).await?;
        }
        let deadline = Deadline::after(place.timeout);
        let of_stage = (setup, &*environment);
        let steps = || {
            let mut steps = self.steps(place, tool, &scratch, of_stage, &deadline);
            if let Some(kept) = &kept {
                steps.use_plan(kept);
            }
            steps
        };
        if has_to_be_prepared(place, setup).await {
            let mut steps = steps();
            steps.run(preparation(place.workflow)).await?;
            steps.workspace().await?;
        }
        Ok(steps().run(&place.workflow.apply.steps).await?.output)
    }

    /// Keeps a plan file where runs only read it.
    async fn kept(
        &self,
        plan: Option<&[u8]>,
        setup: &StageSetup,
    ) -> std::io::Result<Option<KeptPlan>> {
        match plan {
            None => Ok(None),
            Some(plan) => {
                let kept = KeptPlan::new(&self.scratch, setup.sandbox.user(), plan);
                kept.await.map(Some)
            }
        }
    }

    /// Runs the steps of `import` or `state_rm`.
    pub async fn change_state(
        &self,
        place: &ToolContext<'_>,
        sources: &VersionSources,
        stage: &Stage,
    ) -> StateWork {
        let tool = match self.tool(place, sources).await {
            Ok(tool) => tool,
            Err(error) => return StateWork::not_begun(error),
        };
        let setup = match self.setup(place, RunStage::Apply) {
            Ok(setup) => setup,
            Err(error) => return StateWork::not_begun(error),
        };
        let begun = self.begin(place.registry, tool.distribution, setup);
        let (scratch, environment) = match begun {
            Ok(begun) => begun,
            Err(error) => return StateWork::not_begun(error),
        };
        let deadline = Deadline::after(place.timeout);
        let of_stage = (setup, &*environment);
        let mut steps = self.steps(place, &tool, &scratch, of_stage, &deadline);
        let ended = steps.run(&stage.steps).await;
        StateWork {
            ended: ended.map(|printed| printed.output).map_err(RunError::from),
            touched: steps.touched,
        }
    }

    /// Returns the output of `version` of the program for the project.
    pub async fn version(
        &self,
        place: &ToolContext<'_>,
        sources: &VersionSources,
    ) -> Result<String, RunError> {
        let tool = self.tool(place, sources).await?;
        let scratch = self.scratch()?;
        let deadline = Deadline::after(place.timeout);
        let of_stage = (&self.plans, &self.plans.environment);
        let steps = self.steps(place, &tool, &scratch, of_stage, &deadline);
        Ok(steps.version().await?)
    }

    /// Returns environment and sandbox of a stage. An environment profile that the server did not find at its start
    /// is an error, and never falls back to no profile.
    #[expect(
        clippy::result_large_err,
        reason = "made once for a run, at its beginning"
    )]
    fn setup(&self, place: &ToolContext<'_>, stage: RunStage) -> Result<&StageSetup, StepError> {
        let of_stage = |plans, applies| match stage {
            RunStage::Plan => plans,
            RunStage::Apply => applies,
        };
        let Some(name) = place.profile else {
            return Ok(of_stage(&self.plans, &self.applies));
        };
        let unknown = || StepError::not_begun("the run", StepFailure::Profile(name.to_owned()));
        let profile = self.profiles.get(name).ok_or_else(unknown)?;
        Ok(of_stage(&profile.plans, &profile.applies))
    }

    /// Creates directories of a run, which are removed on drop.
    pub(super) fn scratch(&self) -> std::io::Result<Scratch> {
        Scratch::new(&self.scratch)
    }

    /// Creates the directories of a run, and its environment, which lets it use the registry of modules if it has
    /// access.
    pub(super) fn begin<'s>(
        &self,
        access: Option<&RegistryAccess>,
        tool: Distribution,
        setup: &'s StageSetup,
    ) -> std::io::Result<(Scratch, Cow<'s, ChildEnvironment>)> {
        let scratch = self.scratch()?;
        let Some(access) = access else {
            return Ok((scratch, Cow::Borrowed(&setup.environment)));
        };
        let user = setup.sandbox.user();
        let (environment, config) =
            cli_config::environment(&setup.environment, access, tool, &self.scratch, user)?;
        Ok((scratch.with_config(config), Cow::Owned(environment)))
    }

    /// Prepares the steps of a stage. Each stage begins without variables of another one.
    fn steps<'a>(
        &'a self,
        place: &ToolContext<'a>,
        tool: &'a FoundTool,
        scratch: &'a Scratch,
        (setup, environment): (&'a StageSetup, &'a ChildEnvironment),
        deadline: &'a Deadline,
    ) -> Steps<'a> {
        Steps {
            tool,
            tools: &self.tools,
            environment,
            providers: self.providers.as_ref(),
            bin_dirs: self.tools.dirs(),
            facts: place.facts,
            exec: Exec {
                supervisor: &self.supervisor,
                hold: place.hold,
                output: place.output,
                stop: place.stop,
                deadline,
                sandbox: &setup.sandbox,
                place: scratch.place(place.root, place.mirror),
                registry: place.registry,
            },
            dir: place.dir,
            project: place.project,
            lock_file_tracked: place.lock_file_tracked,
            modules: place.modules,
            given: place.given,
            files: RunFiles::within(scratch.dir()),
            kept_plan: None,
            origin: place.workflow.origin,
            workflow: (*place.workflow != *Workflow::builtin())
                .then_some(place.workflow.name.as_str()),
            home: None,
            set: BTreeMap::new(),
            touched: false,
            has_named_config: setup.environment.get(CONFIG_FILE).is_some(),
            installed: place.lists_modules.then(Mutex::default),
        }
    }
}

fn stopped(sources: &VersionSources) -> StepError {
    let step = StepName::new(&format!("finding {}", sources.distribution.title()), None);
    StepError {
        step,
        why: StepFailure::Stopped { killed: false },
        output: String::new(),
    }
}

/// Returns true if an apply has to prepare the directory: it was not prepared, or the files that `init` left were
/// changed.
async fn has_to_be_prepared(place: &ToolContext<'_>, setup: &StageSetup) -> bool {
    let set = setup
        .environment
        .get("TF_DATA_DIR")
        .map(OsString::as_os_str);
    let data_dir = data_dir::path(place.dir, set);
    if !data_dir.is_dir() {
        return needs_preparation(place.workflow);
    }
    // Only a directory that an `init` of the server made has a note, and only such an `init` could create it again.
    if !initialises(preparation(place.workflow)) || initialises(&place.workflow.apply.steps) {
        return false;
    }
    let checkout = (place.root, place.dir, place.hold);
    let data_dir = DataDir::new(data_dir, checkout, place.facts.head_commit());
    tokio::task::spawn_blocking(move || data_dir.is_changed())
        .await
        .unwrap_or(true)
}

/// Returns true if the built-in `apply` runs before any `init` in its own stage.
fn needs_preparation(workflow: &Workflow) -> bool {
    let mut builtin = workflow.apply.steps.iter().filter_map(|step| match step {
        Step::Builtin { step, .. } => Some(*step),
        Step::Run(_) | Step::Env(_) | Step::Multienv(_) => None,
    });
    builtin.find(|step| matches!(step, Builtin::Init | Builtin::Apply)) == Some(Builtin::Apply)
}
