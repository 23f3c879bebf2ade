//! Running Terraform or OpenTofu for one project.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::data_dir::DataDir;
use super::scratch::{self, Scratch};
use super::steps::{
    CommentWords, Deadline, Exec, Files, Kept, Printed, Steps, initialises, preparation,
};
use super::{
    ArtifactError, CheckoutError, ChosenBy, Facts, ProviderCache, RunOutput, Shown, StageSetup,
    StepError, StepFailure, StepName, Tool, ToolError, Tools, Wish,
};
use crate::config::server::RunStage;
use crate::config::workflow::{Builtin, Stage, Step, Workflow};
use crate::git::ModuleAccess;
use crate::model::{ProjectKey, Sha256Digest};
use crate::process::Supervisor;

/// How Terraform and OpenTofu are found and started on this machine.
pub struct Terraform {
    /// Programs.
    pub tools: Tools,
    /// Packages of providers; `None`: each project fetches its own.
    pub providers: Option<ProviderCache>,
    /// What plans are given.
    pub plans: StageSetup,
    /// What applies, imports and `state rm` are given.
    pub applies: StageSetup,
    /// What projects with an environment profile are given in place of these.
    pub profiles: BTreeMap<String, ProfileSetup>,
    /// What keeps a child polite when the server dies.
    pub supervisor: Supervisor,
    /// Where plan files are while they are worked on; never inside a checkout, where the pull could have put a link in
    /// their place.
    pub scratch: PathBuf,
}

/// What the runs of projects with one environment profile are given.
pub struct ProfileSetup {
    /// Plans.
    pub plans: StageSetup,
    /// Applies, imports and `state rm`.
    pub applies: StageSetup,
}

/// Longest plan file, in bytes: it is held in memory.
const MAX_PLAN: u64 = 512 * 1024 * 1024;

/// Where and for what a run happens.
pub struct Place<'a> {
    /// The project.
    pub project: &'a ProjectKey,
    /// Its directory in the checkout.
    pub dir: &'a Path,
    /// Root of the checkout.
    pub root: &'a Path,
    /// Mirror of the repository.
    pub mirror: &'a Path,
    /// Held for as long as anything of the run lives.
    pub hold: &'a Path,
    /// Whether the lock file of the providers is part of the repository.
    pub lock_file_tracked: bool,
    /// Its steps.
    pub workflow: &'a Workflow,
    /// What commands among them are told of the pull.
    pub facts: &'a Facts,
    /// Its environment profile; `None`: it gets what every run gets.
    pub profile: Option<&'a str>,
    /// What reads private modules of the forge, for the built-in `init` alone, where that runs no code of the pull.
    pub modules: Option<&'a ModuleAccess>,
    /// What the comment gives the built-in steps.
    pub given: CommentWords<'a>,
    /// Where what is printed goes.
    pub output: &'a RunOutput,
    /// Cancelled when the run is to stop.
    pub stop: &'a CancellationToken,
    /// How long all steps together may take.
    pub timeout: Duration,
}

/// What came of the steps that plan.
pub struct PlanMade {
    /// The plan file; `None` when no step has written one.
    pub file: Option<Vec<u8>>,
    /// What the steps printed, as far as a comment may show it.
    pub output: String,
    /// Output of the built-in `plan` alone; `None` when commands of the operator make the plan.
    pub plan_output: Option<PlanText>,
    /// What the file would do, as the tool shows it.
    pub shown: Shown,
    /// The program that made it.
    pub tool: Tool,
    /// What the workflow that made it does.
    pub workflow: Sha256Digest,
}

/// What the built-in `plan` printed.
pub struct PlanText {
    /// The lines that were kept.
    pub text: String,
    /// Whether more was printed than is kept.
    pub is_cut: bool,
}

/// What came of the steps of a stage that changes a state.
pub struct StateWork {
    /// What they printed, as far as a comment may show it.
    pub ended: Result<String, RunError>,
    /// Whether the state may be another one than before. Where a command of the operator began, nobody knows.
    pub touched: bool,
}

impl StateWork {
    /// Nothing was begun.
    pub fn not_begun(error: impl Into<RunError>) -> Self {
        Self {
            ended: Err(error.into()),
            touched: false,
        }
    }
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
            Self::Step(error) => &error.output,
            Self::Tool(_) | Self::Checkout(_) | Self::Artifact(_) | Self::Disk(_) => "",
        }
    }
}

impl Terraform {
    /// The steps that plan.
    pub async fn plan(&self, place: &Place<'_>, wish: &Wish) -> Result<PlanMade, RunError> {
        let tool = self.tool(place, wish).await?;
        let scratch = self.scratch()?;
        let setup = self.setup(place, RunStage::Plan)?;
        let mut steps = self.steps(
            place,
            &tool,
            &scratch,
            setup,
            Deadline::after(place.timeout),
        );
        let Printed { output, plan } = steps.run(&place.workflow.plan.steps).await?;
        let shown = match steps.list().await {
            Ok(shown) => shown,
            Err(error) => return Err(StepError { output, ..error }.into()),
        };
        let file = scratch::read(Files::within(scratch.dir()).plan, MAX_PLAN).await?;
        let plan_output = plan.map(|Kept { text, is_cut }| PlanText { text, is_cut });
        Ok(PlanMade {
            file,
            output,
            plan_output,
            shown,
            tool,
            workflow: place.workflow.fingerprint(),
        })
    }

    /// The program for a project. A download can take a while, and ends when the run is told to.
    async fn tool(&self, place: &Place<'_>, wish: &Wish) -> Result<Tool, RunError> {
        let (tool, choice) = tokio::select! {
            chosen = self.tools.choose(wish) => chosen?,
            () = place.stop.cancelled() => return Err(stopped(wish).into()),
        };
        if choice.by != ChosenBy::Nobody {
            place.output.say(&format!("Using {choice}.")).await;
        }
        Ok(tool)
    }

    /// The steps that apply a plan, with its file if it has one. As for the plan, a checkout is prepared first when it was
    /// made anew since then, or when something else than `init` has changed what `init` left: that would run with the
    /// credentials of applies.
    pub async fn apply(
        &self,
        place: &Place<'_>,
        tool: &Tool,
        plan: Option<&[u8]>,
    ) -> Result<String, RunError> {
        let scratch = self.scratch()?;
        if let Some(plan) = plan {
            tokio::fs::write(Files::within(scratch.dir()).plan, plan).await?;
        }
        let deadline = Deadline::after(place.timeout);
        let setup = self.setup(place, RunStage::Apply)?;
        if has_to_be_prepared(place, setup).await {
            let mut steps = self.steps(place, tool, &scratch, setup, deadline);
            steps.run(preparation(place.workflow)).await?;
            steps.workspace().await?;
        }
        Ok(self
            .steps(place, tool, &scratch, setup, deadline)
            .run(&place.workflow.apply.steps)
            .await?
            .output)
    }

    /// The steps of `import` or `state_rm`.
    pub async fn change_state(&self, place: &Place<'_>, wish: &Wish, stage: &Stage) -> StateWork {
        let tool = match self.tool(place, wish).await {
            Ok(tool) => tool,
            Err(error) => return StateWork::not_begun(error),
        };
        let scratch = match self.scratch() {
            Ok(scratch) => scratch,
            Err(error) => return StateWork::not_begun(error),
        };
        let setup = match self.setup(place, RunStage::Apply) {
            Ok(setup) => setup,
            Err(error) => return StateWork::not_begun(error),
        };
        let mut steps = self.steps(
            place,
            &tool,
            &scratch,
            setup,
            Deadline::after(place.timeout),
        );
        let ended = steps.run(&stage.steps).await;
        StateWork {
            ended: ended.map(|printed| printed.output).map_err(RunError::from),
            touched: steps.touched,
        }
    }

    /// What the program that would run says of itself.
    pub async fn version(&self, place: &Place<'_>, wish: &Wish) -> Result<String, RunError> {
        let tool = self.tool(place, wish).await?;
        let scratch = self.scratch()?;
        Ok(self
            .steps(
                place,
                &tool,
                &scratch,
                &self.plans,
                Deadline::after(place.timeout),
            )
            .version()
            .await?)
    }

    /// What the programs of a stage are given. An environment profile that the server did not find at its start never becomes
    /// none.
    #[expect(
        clippy::result_large_err,
        reason = "made once for a run, at its beginning"
    )]
    fn setup(&self, place: &Place<'_>, stage: RunStage) -> Result<&StageSetup, StepError> {
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

    /// Directories of a run that are gone when it is over.
    pub(super) fn scratch(&self) -> std::io::Result<Scratch> {
        Scratch::new(&self.scratch)
    }

    /// Each stage begins without variables of another one.
    fn steps<'a>(
        &'a self,
        place: &Place<'a>,
        tool: &'a Tool,
        scratch: &'a Scratch,
        setup: &'a StageSetup,
        deadline: Deadline,
    ) -> Steps<'a> {
        Steps {
            tool,
            environment: &setup.environment,
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
            },
            dir: place.dir,
            project: place.project,
            lock_file_tracked: place.lock_file_tracked,
            modules: place.modules,
            given: place.given,
            files: Files::within(scratch.dir()),
            workflow: (*place.workflow != *Workflow::builtin())
                .then_some(place.workflow.name.as_str()),
            set: BTreeMap::new(),
            touched: false,
        }
    }
}

fn stopped(wish: &Wish) -> StepError {
    let step = StepName::new(&format!("finding {}", wish.distribution.title()), None);
    StepError {
        step,
        why: StepFailure::Stopped { killed: false },
        output: String::new(),
    }
}

/// Whether an apply has to prepare the directory: nothing has, or what `init` left was changed since.
async fn has_to_be_prepared(place: &Place<'_>, setup: &StageSetup) -> bool {
    let data_dir = setup
        .environment
        .get("TF_DATA_DIR")
        .map_or_else(|| PathBuf::from(".terraform"), PathBuf::from);
    let data_dir = place.dir.join(data_dir);
    if !data_dir.is_dir() {
        return needs_preparation(place.workflow);
    }
    // Only what an `init` of ours made is known, and only where one would make it again.
    if !initialises(preparation(place.workflow)) || initialises(&place.workflow.apply.steps) {
        return false;
    }
    let data_dir = DataDir::new(data_dir, place.hold);
    tokio::task::spawn_blocking(move || data_dir.is_changed())
        .await
        .unwrap_or(true)
}

/// Whether the built-in `apply` finds a checkout that no step of its own stage has initialised.
fn needs_preparation(workflow: &Workflow) -> bool {
    let mut builtin = workflow.apply.steps.iter().filter_map(|step| match step {
        Step::Builtin { step, .. } => Some(*step),
        Step::Run(_) | Step::Env(_) | Step::Multienv(_) => None,
    });
    builtin.find(|step| matches!(step, Builtin::Init | Builtin::Apply)) == Some(Builtin::Apply)
}
