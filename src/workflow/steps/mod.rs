//! Carries out the steps of a stage, one after the other (reference 6.4): the built-in ones with argument vectors for
//! Terraform and OpenTofu, those of the operator with their shell.
//!
//! What a pull request chooses (names of branches, arguments of a comment) reaches a command of the operator as its
//! environment only. Files of a run are in a directory of ours, outside of the checkout.

mod argv;
mod builtin;
mod comment_args;
mod custom;
mod error;
mod exec;
mod expand;
mod filters;
mod flags;
mod init_programs;
mod multienv;
mod plain_init;
mod reports;
mod variables;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{ChildEnvironment, Facts, ProviderCache, Tool};
use crate::config::workflow::{Builtin, Step, Workflow};
use crate::git::ModuleAccess;
use crate::model::ProjectKey;

pub use error::{StepError, StepFailure, StepName};
pub use multienv::MultienvError;

pub(super) use comment_args::escaped;
pub(super) use exec::{Deadline, Exec, Kept};
pub(super) use variables::base;

/// What the steps of one run work on together.
pub(super) struct Steps<'a> {
    pub tool: &'a Tool,
    pub environment: &'a ChildEnvironment,
    pub providers: Option<&'a ProviderCache>,
    /// Where programs are that were fetched or put there for runs.
    pub bin_dirs: &'a [PathBuf],
    pub facts: &'a Facts,
    pub exec: Exec<'a>,
    /// Directory of the project in the checkout.
    pub dir: &'a Path,
    pub project: &'a ProjectKey,
    /// Whether the lock file of the providers is part of the repository.
    pub lock_file_tracked: bool,
    /// What reads private modules of the forge.
    pub modules: Option<&'a ModuleAccess>,
    /// What the comment gives the built-in steps.
    pub given: CommentWords<'a>,
    pub files: Files,
    /// The workflow by the name that messages call it; `None` for the built-in one.
    pub workflow: Option<&'a str>,
    /// What `env` and `multienv` have set.
    pub set: BTreeMap<OsString, OsString>,
    /// Whether the state may be another one than before: something ran that changes it, or of which nobody knows.
    pub touched: bool,
}

/// Words of a comment for the arguments of a built-in step; [`crate::command::ExtraArgs`] has allowed them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommentWords<'a> {
    /// Flags from behind `--`.
    pub extra: &'a [String],
    /// Addresses and ids.
    pub operands: &'a [String],
}

impl<'a> CommentWords<'a> {
    /// Flags alone.
    pub const fn only(extra: &'a [String]) -> Self {
        Self {
            extra,
            operands: &[],
        }
    }
}

/// The files of a run, in a directory that only this user can read and that is gone when the run is over.
pub(super) struct Files {
    /// `PLANFILE`.
    pub plan: PathBuf,
    /// `SHOWFILE`.
    pub show: PathBuf,
    /// `POLICYCHECKFILE`.
    pub policies: PathBuf,
    /// What a command prints that is no output.
    pub captured: PathBuf,
    /// The plan as JSON, for the list of its resources.
    pub list: PathBuf,
}

impl Files {
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

/// What a stage printed.
#[derive(Debug, Default)]
pub(super) struct Printed {
    /// For the comment.
    pub output: String,
    /// What the built-in `plan` printed, if it is among the steps.
    pub plan: Option<Kept>,
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
    /// Carries out steps until one fails.
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

    async fn step(&mut self, step: &Step, name: StepName) -> Result<Kept, StepError> {
        let text = match step {
            Step::Builtin { step, extra_args } => {
                return self.builtin(*step, extra_args, name).await;
            }
            Step::Run(step) => {
                self.touched = true;
                self.run_command(step, name).await
            }
            Step::Env(step) => self.env(step, name).await,
            Step::Multienv(step) => self.multienv(step, name).await,
        };
        text.map(Kept::whole)
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

/// Whether there is an `init` of the project's directory among the steps.
pub(super) fn initialises(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Builtin { step, .. } => *step == Builtin::Init,
        Step::Run(step) => plain_init::is_plain_init(&step.shell, &step.command),
        Step::Env(_) | Step::Multienv(_) => false,
    })
}

/// The steps that prepare a checkout for what follows the plan: all before the built-in `plan`; where the plan is made by
/// a command, those up to the last built-in `init`.
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
