//! Runs the stage `policy_check`: its steps, one after the other, until one fails (reference 13).
//!
//! - The step `policy_check` evaluates the sets for conftest and for the engine of this program. If other sets are evaluated
//!   by steps, `run` steps report about them ([`custom`]). All other steps run as in any stage.
//! - *Conftest runs outside of the checkout.* In its working directory it reads a configuration, `conftest.toml`, which would
//!   let a pull request choose other policies.
//! - *Conftest gets no variables.* Policies can print and send their environment. Variables and the home directory of the run
//!   can come from the pull request, and would configure conftest and its plugins.
//! - *Policies, facts and the plan as JSON are in a directory that runs only read*, because programs of the pull request ran
//!   before. With a user of runs or a sandbox, nothing in it can be changed. `$SHOWFILE` is a copy for steps.
//! - *Commands get an empty home directory* after each program of the pull request. In the usual one, a plan could leave a
//!   configuration that switches the checks off.
//! - *Nothing is skipped.* Each set gets a verdict. A stage that fails, or that evaluates less than it should, leaves verdicts
//!   that say so.
//!
//! | File | Content |
//! |---|---|
//! | `plan.rs` | the plan as JSON: the step `show`, and the private copy |
//! | `sets.rs` | the step `policy_check`: each set by its engine, and the file of results |
//! | `conftest.rs` | a set with the program conftest |
//! | `engine.rs` | a set with the engine of this program |
//! | `step_report.rs` | `run` steps that report about a set |
//! | `output.rs` | what programs printed: as a value, and on the page of the run |

mod conftest;
mod engine;
mod output;
mod plan;
mod sets;
mod step_report;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lockkeeper_policy::sets::{PolicyEngine, ReportFormat, SetName};
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use tempfile::TempDir;

use super::Steps;
use super::builtin::{failed, remove};
use super::error::{StepError, StepFailure};
use crate::config::workflow::{Builtin, Step, Workflow, WorkflowOrigin};
use crate::errors::describe_error;
use crate::workflow::policies::custom::{self, StepReport, StepRole, StepRoles};
use crate::workflow::policies::{PolicyEvaluation, PolicyWork};
use crate::workflow::{FoundConftest, scratch};

/// State of the stage.
struct PolicyCheck<'w> {
    work: &'w PolicyWork,
    /// Directory with policies, facts and the plan as JSON.
    dir: TempDir,
    /// Plan as JSON in that directory; an error says why there is none, and `None` that nobody has looked yet.
    plan: Option<Result<PathBuf, String>>,
    /// Directory of the server that contains it.
    top: PathBuf,
    /// Purposes of the steps.
    roles: StepRoles,
    /// Outputs of steps that evaluate sets.
    reports: HashMap<SetName, StepReport>,
    /// Verdicts of the other sets.
    verdicts: HashMap<SetName, Verdict>,
    /// True if the administrator has written the arguments of the steps.
    trusts_arguments: bool,
    /// True if the plan file was changed during the stage.
    plan_changed: bool,
    /// Result of the search for conftest; `None` before it.
    conftest: Option<Result<FoundConftest, String>>,
}

impl Steps<'_> {
    /// Runs the stage, and returns a verdict for each set of the work. `plan` is the content of the plan file, and `parent` is
    /// for temporary directories.
    ///
    /// # Errors
    ///
    /// The run was stopped before all sets were evaluated.
    pub(in crate::workflow) async fn check_policies(
        &mut self,
        work: &PolicyWork,
        workflow: &Workflow,
        plan: Option<&[u8]>,
        parent: &Path,
    ) -> Result<Vec<Verdict>, StepError> {
        if work.sets.is_empty() {
            return Ok(Vec::new());
        }
        let (verdicts, failure) = match PolicyCheck::new(work, workflow, parent) {
            Ok(mut check) => {
                let stage = &workflow.policy_check.steps;
                let ended = self.policy_steps(&mut check, stage).await;
                let failure = ended.err();
                check.plan_changed = !self.is_plan(plan).await;
                let is_sandboxed = self.exec.sandbox.mechanism().is_some();
                (check.finish(failure.as_ref(), is_sandboxed), failure)
            }
            Err(error) => {
                let failure = StepError::not_begun("policy_check", StepFailure::Disk(error));
                let verdict = |set| work.verdict(set, of_failure(&failure, false));
                (work.sets.iter().map(verdict).collect(), Some(failure))
            }
        };
        let is_whole = verdicts
            .iter()
            .all(|verdict| !matches!(verdict.outcome, VerdictOutcome::NotEvaluated(_)));
        if !is_whole && self.exec.stop.is_cancelled() {
            let stopped = StepFailure::Stopped { killed: false };
            return Err(failure.unwrap_or_else(|| StepError::not_begun("policy_check", stopped)));
        }
        for verdict in &verdicts {
            self.exec.output.push_line(&summary(verdict)).await;
        }
        Ok(verdicts)
    }

    /// Returns true if the plan file still has this content. A step of the stage runs programs of the pull request, which could
    /// have let the policies see another plan.
    async fn is_plan(&self, plan: Option<&[u8]>) -> bool {
        let Some(plan) = plan else {
            return true;
        };
        let now = scratch::read(self.files.plan.clone(), plan.len() as u64).await;
        now.is_ok_and(|now| now.as_deref() == Some(plan))
    }

    async fn policy_steps(
        &mut self,
        check: &mut PolicyCheck<'_>,
        stage: &[Step],
    ) -> Result<(), StepError> {
        // Programs of the pull request may have left these while the plan was made.
        for file in [&self.files.show, &self.files.policies] {
            let disk = |error| StepError::not_begun("policy_check", StepFailure::Disk(error));
            remove(file).map_err(disk)?;
        }
        for (at, step) in stage.iter().enumerate() {
            let name = self.name(step, at + 1);
            match step {
                Step::Run(_) | Step::Env(_) | Step::Multienv(_) => self
                    .enter_home()
                    .map_err(|error| failed(name.clone(), StepFailure::Disk(error)))?,
                Step::Builtin {
                    step: Builtin::PolicyCheck,
                    ..
                } => {}
                // It can run programs of the pull request.
                Step::Builtin { .. } => self.home = None,
            }
            match step {
                Step::Builtin {
                    step: Builtin::Show,
                    extra_args,
                } => self.show_privately(check, extra_args, name).await?,
                Step::Builtin {
                    step: Builtin::PolicyCheck,
                    extra_args,
                } => self.evaluate_sets(check, extra_args, name).await?,
                Step::Run(run) => match check.roles.of(at).clone() {
                    StepRole::Plain => {
                        self.step(step, name).await?;
                    }
                    StepRole::Report(set, format) => {
                        let report = self.policy_report(format, run, name).await?;
                        check.reports.insert(set, report);
                    }
                    StepRole::Skipped(set) => {
                        let line = format!(
                            "The step {name} is skipped, because steps do not check the policy set `{set}` in this project."
                        );
                        self.exec.output.push_line(&line).await;
                    }
                    // Its output is for the page only. The sets say that there is no set for it.
                    StepRole::Excess => {
                        self.policy_report(ReportFormat::Text, run, name).await?;
                    }
                },
                Step::Builtin { .. } | Step::Env(_) | Step::Multienv(_) => {
                    self.step(step, name).await?;
                }
            }
        }
        Ok(())
    }

    /// Gives commands an empty home directory, unless they have one already. It is in the directory of the run, so that the run
    /// owns it.
    fn enter_home(&mut self) -> io::Result<()> {
        if self.home.is_none() {
            let dir = tempfile::Builder::new()
                .prefix("home-")
                .tempdir_in(self.exec.place.scratch)?;
            self.home = Some(dir.keep());
        }
        Ok(())
    }
}

impl<'w> PolicyCheck<'w> {
    fn new(work: &'w PolicyWork, workflow: &Workflow, parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        let dir = tempfile::Builder::new()
            .prefix("policies-")
            .tempdir_in(parent)?;
        Ok(Self {
            work,
            dir,
            plan: None,
            top: parent.parent().unwrap_or(parent).to_owned(),
            roles: StepRoles::new(
                &work.step_sets,
                &custom::formats(&work.sets),
                &workflow.policy_check.steps,
            ),
            reports: HashMap::new(),
            verdicts: HashMap::new(),
            trusts_arguments: match workflow.origin {
                WorkflowOrigin::Server => true,
                WorkflowOrigin::Repository => false,
            },
            plan_changed: false,
            conftest: None,
        })
    }

    /// Returns a verdict for each set, in their order.
    fn finish(mut self, failure: Option<&StepError>, is_sandboxed: bool) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for set in &self.work.sets {
            let evaluated = match (failure, set.0.engine) {
                (Some(error), _) => of_failure(error, is_sandboxed),
                (None, _) if self.plan_changed => PolicyEvaluation::missing(
                    "a step of the stage `policy_check` has changed `$PLANFILE`, so the policies may have seen another plan. An \
                     administrator must correct the workflow",
                    "",
                ),
                (None, PolicyEngine::Steps(format)) => {
                    let report = self.reports.get(&set.0.name);
                    self.roles.evaluated(&set.0.name, format, report)
                }
                (None, PolicyEngine::Conftest | PolicyEngine::Embedded) => {
                    if let Some(verdict) = self.verdicts.remove(&set.0.name) {
                        verdicts.push(verdict);
                        continue;
                    }
                    PolicyEvaluation::missing(
                        "the stage `policy_check` of the workflow has no step `policy_check`, so nothing evaluates this set. \
                         An administrator must correct the workflow",
                        "",
                    )
                }
            };
            verdicts.push(self.work.verdict(set, evaluated));
        }
        verdicts
    }
}

fn of_failure(error: &StepError, is_sandboxed: bool) -> PolicyEvaluation {
    let way_out = if is_sandboxed && error.is_denied() {
        "If the step needs the path in its output, ask an administrator to name it in `--sandbox-read` or `--sandbox-write`, \
         then plan again"
    } else {
        "Plan again, or ask an administrator"
    };
    let why = format!("{}. {way_out}", describe_error(error));
    PolicyEvaluation::missing(why, error.output.clone())
}

/// Returns the line of a verdict for the page of the run.
fn summary(verdict: &Verdict) -> String {
    let set = &verdict.set;
    match &verdict.outcome {
        VerdictOutcome::Passed => format!("Policy set {set}: passed."),
        VerdictOutcome::Failed => format!("Policy set {set}: violated."),
        VerdictOutcome::NotEvaluated(why) => format!("Policy set {set}: not evaluated: {why}."),
    }
}
