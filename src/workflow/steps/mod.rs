//! Runs the steps of a stage, one after the other (reference 6.4): built-in steps with argument vectors for Terraform
//! and OpenTofu, steps of the administrator with their shell.
//!
//! Values that a pull request chooses (names of branches, arguments of a comment) reach a command of the
//! administrator only through its environment. Files of a run are in a directory of the server, outside of the
//! checkout.

mod argv;
mod builtin;
mod comment_args;
mod custom;
mod error;
mod exec;
mod expand;
mod filters;
mod flags;
mod init;
mod multienv;
mod policy_check;
mod reports;
mod variables;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::{ChildEnvironment, FoundTool, InstalledModule, ProviderCache, PullFacts, Tools};
use crate::config::workflow::{Builtin, Step, Workflow, WorkflowOrigin};
use crate::git::ModuleAccess;
use crate::model::ProjectKey;

pub use error::{StepError, StepFailure, StepName};
pub use multienv::MultienvError;

pub(super) use comment_args::escaped;
pub(super) use exec::{Deadline, Exec, KeptOutput};
pub(super) use variables::base;

/// State that the steps of one run share.
pub(super) struct Steps<'a> {
    pub tool: &'a FoundTool,
    /// Programs of this machine, for those that check policies.
    pub tools: &'a Tools,
    pub environment: &'a ChildEnvironment,
    pub providers: Option<&'a ProviderCache>,
    /// Directories of programs that were downloaded or installed for runs.
    pub bin_dirs: &'a [PathBuf],
    pub facts: &'a PullFacts,
    pub exec: Exec<'a>,
    /// Directory of the project in the checkout.
    pub dir: &'a Path,
    pub project: &'a ProjectKey,
    /// True if the lock file of the providers is part of the repository.
    pub lock_file_tracked: bool,
    /// Access to private modules of the forge.
    pub modules: Option<&'a ModuleAccess>,
    /// Arguments of the comment for the built-in steps.
    pub given: CommentWords<'a>,
    pub files: RunFiles,
    /// Plan file for built-in steps that no program of the run can change; `None` while the plan is made.
    pub kept_plan: Option<PathBuf>,
    /// File that defines the workflow.
    pub origin: WorkflowOrigin,
    /// Name of the workflow in messages; `None` for the built-in one.
    pub workflow: Option<&'a str>,
    /// Home directory of commands, if it is not the one of the environment.
    pub home: Option<PathBuf>,
    /// Variables that `env` and `multienv` have set.
    pub set: BTreeMap<OsString, OsString>,
    /// True if the state may have changed: a step ran that changes it, or one with unknown effects.
    pub touched: bool,
    /// True if the administrator has named the configuration of the tools in the environment of runs.
    pub has_named_config: bool,
    /// Modules that the last `init` has installed, if it was one of the server; `None` if nobody needs them.
    pub installed: Option<Mutex<LastInit>>,
}

/// Modules that the last `init` of the server has installed; `None` before the first one.
pub(super) type LastInit = Option<Result<Vec<InstalledModule>, String>>;

/// Words of a comment for the arguments of built-in steps, allowed by [`crate::command::ExtraArgs`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CommentWords<'a> {
    /// Flags after `--` in the comment.
    pub extra: &'a [String],
    /// Resource addresses and ids.
    pub operands: &'a [String],
}

impl<'a> CommentWords<'a> {
    /// Creates a value with flags and without operands.
    pub const fn only(extra: &'a [String]) -> Self {
        Self {
            extra,
            operands: &[],
        }
    }
}

/// Files of a run, in a directory that only the user of the server can read and that is removed after the run.
pub(super) struct RunFiles {
    /// Plan file that the tool writes (`PLANFILE`).
    pub plan: PathBuf,
    /// Plan as JSON for commands of the administrator (`SHOWFILE`).
    pub show: PathBuf,
    /// Result of policy checks (`POLICYCHECKFILE`).
    pub policies: PathBuf,
    /// Standard output of a command that is a value and not shown.
    pub captured: PathBuf,
    /// The plan as JSON, for the list of its resources.
    pub list: PathBuf,
}

impl RunFiles {
    pub fn within(dir: &Path) -> Self {
        Self {
            plan: dir.join("plan.tfplan"),
            show: dir.join("plan.json"),
            policies: dir.join("plan-policyout.json"),
            captured: dir.join("captured"),
            list: dir.join("list.json"),
        }
    }
}

/// Output of a stage.
#[derive(Debug, Default)]
pub(super) struct Printed {
    /// Output for the comment.
    pub output: String,
    /// Output of the built-in `plan`, if it is among the steps.
    pub plan: Option<KeptOutput>,
}

impl Printed {
    fn add(&mut self, output: &str) {
        if output.trim().is_empty() {
            return;
        }
        if !self.output.is_empty() && !self.output.ends_with('\n') {
            self.output.push('\n');
        }
        self.output.push_str(output);
    }
}

impl Steps<'_> {
    /// Runs steps until one fails.
    pub async fn run(&mut self, steps: &[Step]) -> Result<Printed, StepError> {
        let mut printed = Printed::default();
        for (at, step) in steps.iter().enumerate() {
            let name = self.name(step, at + 1);
            match self.step(step, name).await {
                Ok(kept) => {
                    printed.add(&kept.text);
                    if is_plan(step) {
                        printed.plan = Some(kept);
                    }
                }
                Err(error) => {
                    printed.add(&error.output);
                    return Err(StepError {
                        output: printed.output,
                        ..error
                    });
                }
            }
        }
        Ok(printed)
    }

    async fn step(&mut self, step: &Step, name: StepName) -> Result<KeptOutput, StepError> {
        let text = match step {
            Step::Builtin { step, extra_args } => {
                return self.builtin(*step, extra_args, name).await;
            }
            Step::Run(step) => {
                self.touched = true;
                let ran = self.run_command(step, name).await;
                // The command may have installed other modules.
                self.note_modules().await;
                ran
            }
            Step::Env(step) => self.env(step, name).await,
            Step::Multienv(step) => self.multienv(step, name).await,
        };
        text.map(KeptOutput::whole)
    }

    fn name(&self, step: &Step, number: usize) -> StepName {
        let place = self.workflow.map(|workflow| (number, workflow.to_owned()));
        let text = match step {
            Step::Builtin { step, .. } => builtin::title(self.tool, *step),
            Step::Run(step) => format!("run: {}", step.command.trim_start()),
            Step::Env(step) => format!("env: {}", step.name),
            Step::Multienv(step) => format!("multienv: {}", step.command.trim_start()),
        };
        StepName::new(&text, place)
    }
}

fn is_plan(step: &Step) -> bool {
    matches!(
        step,
        Step::Builtin {
            step: Builtin::Plan,
            ..
        }
    )
}

/// Returns true if one of the steps is an `init` of the project's directory.
pub(super) fn initialises(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Builtin { step, .. } => *step == Builtin::Init,
        Step::Run(step) => init::is_plain_init(&step.shell, &step.command),
        Step::Env(_) | Step::Multienv(_) => false,
    })
}

/// Returns the steps of the plan that prepare a checkout: all before the built-in `plan`. If a command makes the
/// plan, these are the steps up to the last built-in `init`.
pub(super) fn preparation(workflow: &Workflow) -> &[Step] {
    let steps = &*workflow.plan.steps;
    let is_init = |step: &Step| {
        matches!(
            step,
            Step::Builtin {
                step: Builtin::Init,
                ..
            }
        )
    };
    let end = steps
        .iter()
        .position(is_plan)
        .or_else(|| steps.iter().rposition(is_init).map(|at| at + 1));
    &steps[..end.unwrap_or(0)]
}
