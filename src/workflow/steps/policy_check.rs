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

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use lockkeeper_policy::embedded::RegoFile;
use lockkeeper_policy::facts::Facts;
use lockkeeper_policy::sets::{PolicyEngine, PolicySet, ReportFormat, SetName};
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use semver::Version;
use tempfile::TempDir;

use super::Steps;
use super::builtin::{failed, remove};
use super::error::{StepError, StepFailure, StepName};
use super::exec::EndedProgram;
use super::filters::filtered;
use crate::config::workflow::{Builtin, OutputFilter, RunStep, Step, Workflow, WorkflowOrigin};
use crate::errors::describe_error;
use crate::model::{RunUser, Sha256Digest};
use crate::process::Cmd;
use crate::render::plan_output::clean;
use crate::workflow::policies::conftest::{self, ConftestRun, MAX_REPORT, REDACTED};
use crate::workflow::policies::custom::{self, StepReport, StepRole, StepRoles};
use crate::workflow::policies::engine::{self, EngineRequest};
use crate::workflow::policies::files::{self, PolicyFiles};
use crate::workflow::policies::{PolicyEvaluation, PolicyWork, ReadFiles};
use crate::workflow::tools::{DEFAULT_VERSION, default_version, help_without_conftest};
use crate::workflow::{FoundConftest, scratch};

/// Maximum number of bytes of a plan as JSON that this program evaluates itself.
const MAX_INPUT: u64 = 64 << 20;

/// Maximum number of bytes of a plan as JSON that conftest gets. It needs many times as much memory.
const MAX_CONFTEST_INPUT: u64 = 128 << 20;

/// Maximum number of bytes of a plan as JSON that is kept for policies and steps.
const MAX_SHOWN: u64 = 512 << 20;

/// Maximum number of lines of a report on the page of the run.
const MAX_LINES: usize = 2_000;

/// Exit codes of a shell that could not run a command.
const NOT_RUN: [i32; 2] = [126, 127];

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

/// Arguments of the workflow for conftest.
struct ConftestArgs {
    args: Vec<OsString>,
    fails_on_warnings: bool,
    /// Paths that conftest may read.
    paths: Vec<PathBuf>,
    /// Reason why policies of the arguments cannot be used.
    problem: Result<(), String>,
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
            self.exec.output.say(&summary(verdict)).await;
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
                        self.exec.output.say(&line).await;
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

    /// Runs `show`, and keeps its output where no program of the run can change it. Steps get a copy.
    async fn show_privately(
        &self,
        check: &mut PolicyCheck<'_>,
        extra: &[String],
        name: StepName,
    ) -> Result<(), StepError> {
        let file = check.dir.path().join(PLAN);
        let extra = self.expanded(extra);
        let to = (&*file, MAX_SHOWN + 1);
        self.show_into(extra, name.clone(), to).await?;
        copy(file.clone(), self.files.show.clone())
            .await
            .map_err(|error| failed(name, StepFailure::Disk(error)))?;
        check.plan = Some(Ok(file));
        Ok(())
    }

    /// Returns the plan as JSON, which no program of the run can change any more: the output of the step `show`, or a copy of
    /// the file that another step has written. The error says why there is none.
    async fn private_plan(
        &self,
        check: &mut PolicyCheck<'_>,
        most: u64,
    ) -> Result<PathBuf, String> {
        if let Some(known) = &check.plan {
            let plan = known.clone()?;
            check_plan(&plan, most)?;
            return Ok(plan);
        }
        check_plan(&self.files.show, most)?;
        let file = check.dir.path().join(PLAN);
        let copied = copy(self.files.show.clone(), file.clone()).await;
        let plan = copied.map(|()| file).map_err(|error| {
            format!("the plan as JSON cannot be read: {error}. Correct the workflow, or split the project")
        });
        check.plan = Some(plan.clone());
        plan
    }

    /// Evaluates all sets that no step evaluates, and writes the file of results.
    async fn evaluate_sets(
        &self,
        check: &mut PolicyCheck<'_>,
        extra: &[String],
        name: StepName,
    ) -> Result<(), StepError> {
        let words = conftest::words(extra);
        let args = ConftestArgs {
            fails_on_warnings: conftest::fails_on_warnings(&words),
            args: self.expanded(&words),
            paths: if check.trusts_arguments {
                conftest::named_paths(&words)
            } else {
                Vec::new()
            },
            problem: if check.trusts_arguments {
                conftest::check_named_rules(&words).await
            } else {
                Ok(())
            },
        };
        let work = check.work;
        for (number, set) in work.sets.iter().enumerate() {
            if check.verdicts.contains_key(&set.0.name) {
                continue;
            }
            let evaluated = match set.0.engine {
                PolicyEngine::Steps(_) => continue,
                PolicyEngine::Conftest => self.with_conftest(check, (number, &set.0), &args).await,
                PolicyEngine::Embedded => self.with_engine(check, &set.0).await,
            };
            let evaluated = evaluated.unwrap_or_else(|why| PolicyEvaluation::missing(why, ""));
            self.say_lines(&evaluated.output).await;
            let verdict = work.verdict(set, evaluated);
            check.verdicts.insert(set.0.name.clone(), verdict);
        }
        let verdicts = work.sets.iter().filter_map(|(set, _)| {
            let verdict = check.verdicts.get(&set.name)?;
            Some((&**set, verdict))
        });
        replace(&self.files.policies, &conftest::results(verdicts))
            .map_err(|error| failed(name, StepFailure::Disk(error)))
    }

    /// Evaluates a set with conftest. The error says why it cannot be evaluated.
    async fn with_conftest(
        &self,
        check: &mut PolicyCheck<'_>,
        (number, set): (usize, &PolicySet),
        args: &ConftestArgs,
    ) -> Result<PolicyEvaluation, String> {
        let work = check.work;
        let read = work.policies_of(set)?;
        args.problem.clone()?;
        let facts = work.facts.as_ref().map_err(Clone::clone)?;
        let plan = self.private_plan(check, MAX_CONFTEST_INPUT).await?;
        let found = self.conftest_program(check).await?;
        let tool = found.title();
        let user = self.exec.sandbox.user();
        let policies = check.write(number, read, facts, user);
        let policies = policies.map_err(|error| {
            format!(
                "the policies cannot be written to the disk of this server: {error}. Plan again"
            )
        })?;
        let dir = check.dir.path();
        let cmd = Cmd::new(&found.program)
            .args(["test", "-p"])
            .arg(&policies)
            .arg("--no-color")
            .args(namespaces(set))
            .args(&args.args)
            .args(["--output", "json", "--data"])
            .arg(dir.join(FACTS))
            .operands([&plan])
            .dir(dir)
            .env("PATH", self.environment.path())
            .env("HOME", dir);
        let mut read_only = vec![&*policies, dir];
        read_only.extend(args.paths.iter().map(PathBuf::as_path));
        let cmd = self.exec.of_policies(cmd, &found.program, &read_only);
        let shown = format!("conftest test -p {} --no-color {REDACTED}", read.origin);
        let name = StepName::new("conftest test", None);
        let ended = self
            .exec
            .save(cmd, name, &shown, &self.files.captured, MAX_REPORT + 1)
            .await;
        let redacted = |text: &str| self.redacted(&plan, text);
        let report = self.captured().await.map_err(|error| {
            format!("the report of conftest cannot be read: {error}. Let the policies report less, then plan again")
        })?;
        let (code, errors) = match ended {
            Ok(()) => (0, String::new()),
            Err(StepError {
                why: StepFailure::Code(Some(code @ (1 | 2))),
                output,
                ..
            }) => (code, output),
            Err(error) => {
                let why = format!(
                    "{}. Plan again, or ask an administrator",
                    describe_error(&error)
                );
                let output = redacted(&error.output);
                return Ok(PolicyEvaluation::missing(why, output).by(tool));
            }
        };
        let evaluated = conftest::evaluated(&ConftestRun {
            code,
            report: &redacted(&report),
            errors: &redacted(&errors),
            fails_on_warnings: args.fails_on_warnings,
        });
        Ok(evaluated.by(tool))
    }

    /// Finds conftest once for all sets. A download can take a while, and stops when the run is cancelled.
    async fn conftest_program(&self, check: &mut PolicyCheck<'_>) -> Result<FoundConftest, String> {
        if let Some(known) = &check.conftest {
            return known.clone();
        }
        let wanted = self.conftest_version(check.work)?;
        let found = tokio::select! {
            found = self.tools.conftest(wanted.as_ref()) => found.map_err(|error| {
                let downloads = self.tools.downloads().is_some();
                let help = help_without_conftest(wanted.as_ref(), downloads);
                format!("{}. {help}", describe_error(&error))
            }),
            () = self.exec.stop.cancelled() => Err("the run was stopped".to_owned()),
        };
        check.conftest = Some(found.clone());
        found
    }

    fn conftest_version(&self, work: &PolicyWork) -> Result<Option<Version>, String> {
        if let Some(version) = &work.conftest_version {
            return Ok(Some(version.clone()));
        }
        default_version(self.environment).map_err(|error| {
            format!(
                "the variable `{DEFAULT_VERSION}` of the server is not a version: {error}. An administrator must correct it"
            )
        })
    }

    /// Evaluates a set with the engine of this program. The error says why it cannot be evaluated.
    async fn with_engine(
        &self,
        check: &mut PolicyCheck<'_>,
        set: &PolicySet,
    ) -> Result<PolicyEvaluation, String> {
        let plan = self.private_plan(check, MAX_INPUT).await?;
        let request = engine_request(check.work, set, &plan).await?;
        let evaluated = match engine::evaluate(&self.exec, &request).await {
            Ok(found) => PolicyEvaluation {
                output: conftest::text_of(&found),
                found: Ok(found),
                tool: None,
            },
            Err(why) => PolicyEvaluation::missing(why, ""),
        };
        Ok(evaluated.by(engine::ENGINE.to_owned()))
    }

    /// Runs a command that reports about a set. A command that fails has reported too.
    async fn policy_report(
        &mut self,
        format: ReportFormat,
        step: &RunStep,
        name: StepName,
    ) -> Result<StepReport, StepError> {
        self.touched = true;
        let (cmd, shown) = (self.shell(&step.shell, &step.command), &step.command);
        let mut unclean = None;
        let (raw, succeeded, is_cut) = match format {
            ReportFormat::Text => {
                let EndedProgram { kept, failure, .. } = self.exec.run_to_end(cmd, shown).await;
                let succeeded = failure.is_none();
                if let Some(why) = failure.filter(|why| !is_report(why)) {
                    return Err(StepError {
                        step: name,
                        why,
                        output: kept.text,
                    });
                }
                let text = clean(&kept.text);
                if text != kept.text {
                    unclean = Some(Sha256Digest::of(kept.text.as_bytes()));
                }
                (text, succeeded, kept.is_cut)
            }
            ReportFormat::Conftest | ReportFormat::Sarif | ReportFormat::Junit => {
                let file = &self.files.captured;
                let ended = self
                    .exec
                    .save(cmd, name.clone(), shown, file, MAX_REPORT + 1)
                    .await;
                let succeeded = match ended {
                    Ok(()) => true,
                    Err(error) if is_report(&error.why) => false,
                    Err(error) => return Err(error),
                };
                let report = self.captured().await;
                let report = report.map_err(|error| failed(name, StepFailure::Disk(error)))?;
                self.say_lines(&report).await;
                (report, succeeded, false)
            }
        };
        let but_hidden: Vec<OutputFilter> = step
            .output
            .iter()
            .filter(|filter| !matches!(filter, OutputFilter::Hide))
            .cloned()
            .collect();
        Ok(StepReport {
            shown: filtered(raw.clone(), &step.output, !succeeded),
            text: filtered(raw.clone(), &but_hidden, !succeeded),
            raw,
            unclean,
            succeeded,
            is_cut,
        })
    }

    /// Reads and removes the standard output of a program; empty if there is none.
    async fn captured(&self) -> io::Result<String> {
        let file = &self.files.captured;
        let read = scratch::read(file.clone(), MAX_REPORT).await;
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let bytes = read?.unwrap_or_default();
        let mut text = String::from_utf8_lossy(&bytes).replace('\0', "\u{FFFD}");
        if let Some(access) = self.exec.registry {
            access.hide(&mut text);
        }
        Ok(text)
    }

    /// Removes the paths of the plan, which are internal.
    fn redacted(&self, plan: &Path, text: &str) -> String {
        text.replace(&*plan.to_string_lossy(), REDACTED)
            .replace(&*self.files.show.to_string_lossy(), REDACTED)
    }

    async fn say_lines(&self, text: &str) {
        let mut lines = text.lines();
        for line in lines.by_ref().take(MAX_LINES) {
            self.exec.output.say(line).await;
        }
        let more = lines.count();
        if more > 0 {
            self.exec.output.say(&format!("… {more} more lines")).await;
        }
    }
}

/// File of the facts in the directory of policies.
const FACTS: &str = "facts.json";
/// File of the plan as JSON in the directory of policies.
const PLAN: &str = "plan.json";

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

    /// Writes the facts and the policies of a set for a program of the run. Returns the place of the policies.
    fn write(
        &self,
        number: usize,
        read: &ReadFiles,
        facts: &Facts,
        user: Option<RunUser>,
    ) -> io::Result<PathBuf> {
        let dir = self.dir.path();
        // The facts are the same for every set, and nobody may write the shared file any more.
        if !dir.join(FACTS).exists() {
            fs::write(dir.join(FACTS), facts.to_data().to_string())?;
        }
        let policies = match &read.files {
            PolicyFiles::Here(path) => path.clone(),
            PolicyFiles::Read(files) => {
                let to = dir.join(format!("set-{number}"));
                files::write(&to, files)?;
                to
            }
        };
        if let Some(user) = user {
            files::share(&self.top, dir, user)?;
        }
        Ok(policies)
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

/// Returns true if a command ended with an exit code of its own, so that its output is a report. A shell that did not find the command has
/// reported nothing.
fn is_report(failure: &StepFailure) -> bool {
    matches!(failure, StepFailure::Code(Some(code)) if !NOT_RUN.contains(code))
}

/// Returns the options of conftest for the packages of a set.
fn namespaces(set: &PolicySet) -> Vec<String> {
    if set.namespaces.iter().any(|name| name == "*") {
        return vec!["--all-namespaces".to_owned()];
    }
    set.namespaces
        .iter()
        .flat_map(|name| ["--namespace".to_owned(), name.clone()])
        .collect()
}

/// Checks that a step has written the plan as JSON, with at most `most` bytes.
fn check_plan(show: &Path, most: u64) -> Result<(), String> {
    let found = fs::metadata(show).ok().filter(fs::Metadata::is_file);
    let Some(bytes) = found.map(|found| found.len()) else {
        return Err(
            "there is no plan as JSON, because no step before `policy_check` wrote `$SHOWFILE`. An administrator must add \
             the step `show` to the stage `policy_check` of the workflow"
                .to_owned(),
        );
    };
    if bytes <= most {
        return Ok(());
    }
    let way_out = if bytes <= MAX_CONFTEST_INPUT {
        "Split the project, or let conftest evaluate the set (`engine: conftest`)"
    } else {
        "Split the project"
    };
    Err(format!(
        "the plan as JSON has {} MiB, and at most {} MiB are evaluated. {way_out}, then plan again",
        bytes.div_ceil(1 << 20),
        most >> 20
    ))
}

/// Collects what the engine of this program needs for a set. The error says why the set cannot be evaluated.
async fn engine_request(
    work: &PolicyWork,
    set: &PolicySet,
    show: &Path,
) -> Result<EngineRequest, String> {
    let files = rego_files(work.policies_of(set)?)?;
    let facts = work.facts.as_ref().map_err(Clone::clone)?;
    check_plan(show, MAX_INPUT)?;
    let input = scratch::read(show.to_owned(), MAX_INPUT).await;
    let input =
        input.map_err(|error| format!("the plan as JSON cannot be read: {error}. Plan again"))?;
    let input = String::from_utf8(input.unwrap_or_default())
        .map_err(|_| "the plan as JSON is not text. Plan again".to_owned())?;
    Ok(EngineRequest {
        files,
        data: vec![facts.to_data()],
        input,
        namespaces: set.namespaces.clone(),
    })
}

/// Returns the files of policies in Rego.
fn rego_files(read: &ReadFiles) -> Result<Vec<RegoFile>, String> {
    let PolicyFiles::Read(files) = &read.files else {
        return Err(format!("the policies in {} were not read", read.origin));
    };
    let rego: Result<Vec<RegoFile>, String> = files
        .iter()
        .filter(|file| file.is_rego())
        .map(|file| {
            let text = std::str::from_utf8(&file.content)
                .map_err(|_| format!("`{}` is not text. Correct the policies", file.path))?;
            Ok(RegoFile {
                path: file.path.clone(),
                text: text.to_owned(),
            })
        })
        .collect();
    match rego {
        Ok(files) if files.is_empty() => Err(format!(
            "there is no file with policies (`*.rego`) in {}. An administrator must correct the policy set",
            read.origin
        )),
        rego => rego,
    }
}

/// Puts a new file in the place of one that programs of the run may have left. No link is followed.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    remove(file)?;
    fs::File::create_new(file)?.write_all(text.as_bytes())
}

/// Copies a file of at most [`MAX_SHOWN`] bytes to the place of another one. No link is followed.
async fn copy(from: PathBuf, to: PathBuf) -> io::Result<()> {
    let copying = move || {
        let too_large = || {
            let what = format!("it has more than {} MiB", MAX_SHOWN >> 20);
            io::Error::new(io::ErrorKind::FileTooLarge, what)
        };
        let opened = scratch::open(&from)?.ok_or(io::ErrorKind::NotFound)?;
        if opened.metadata()?.len() > MAX_SHOWN {
            return Err(too_large());
        }
        remove(&to)?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&to)?;
        // The file may grow meanwhile.
        if io::copy(&mut opened.take(MAX_SHOWN + 1), &mut file)? > MAX_SHOWN {
            return Err(too_large());
        }
        Ok(())
    };
    tokio::task::spawn_blocking(copying)
        .await
        .map_err(io::Error::other)?
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::workflow::policies::ReadyPolicies;
    use crate::workflow::policies::files::PolicyFile;
    use crate::workflow::policies::testing::{policy_set, work_of};

    /// Returns the work for a set that the engine of this program evaluates, with files of these names.
    fn embedded(names: &[&str]) -> PolicyWork {
        let file = |name: &&str| PolicyFile {
            path: (*name).to_owned(),
            content: b"package main".to_vec(),
        };
        let read = ReadFiles {
            files: PolicyFiles::Read(names.iter().map(file).collect()),
            origin: "policies at `main`".to_owned(),
            content: None,
        };
        let mut set = policy_set("a", PolicyEngine::Embedded);
        set.namespaces = vec!["net".to_owned()];
        let waivers = Ok(Vec::new());
        let read = Ok(read);
        work_of(set, ReadyPolicies { read, waivers })
    }

    #[tokio::test]
    async fn the_engine_gets_the_rego_the_facts_and_the_plan() {
        let dir = tempfile::tempdir().unwrap();
        let show = dir.path().join("plan.json");
        fs::write(&show, r#"{"resource_changes": []}"#).unwrap();
        let work = embedded(&["a.rego", "aws/b.rego", "README.md", "data.json"]);
        let request = engine_request(&work, &work.sets[0].0, &show).await.unwrap();
        let paths: Vec<&str> = request.files.iter().map(|file| &*file.path).collect();
        assert_eq!(paths, ["a.rego", "aws/b.rego"]);
        assert_eq!(request.files[0].text, "package main");
        assert_eq!(request.data, [work.facts.as_ref().unwrap().to_data()]);
        assert_eq!(request.input, r#"{"resource_changes": []}"#);
        assert_eq!(request.namespaces, ["net"]);
    }

    #[tokio::test]
    async fn without_policies_facts_or_plan_nothing_is_evaluated() {
        let dir = tempfile::tempdir().unwrap();
        let (show, absent) = (dir.path().join("plan.json"), dir.path().join("absent"));
        fs::write(&show, "{}").unwrap();
        let damaged = dir.path().join("damaged");
        fs::write(&damaged, [0xff]).unwrap();
        let large = dir.path().join("large");
        fs::File::create_new(&large)
            .unwrap()
            .set_len(MAX_INPUT + 1)
            .unwrap();
        let fine = || embedded(&["a.rego"]);
        let mut binary = fine();
        let not_text = PolicyFile {
            path: "a.rego".to_owned(),
            content: vec![0xff],
        };
        let read = ReadFiles {
            files: PolicyFiles::Read(vec![not_text]),
            origin: String::new(),
            content: None,
        };
        let set = policy_set("a", PolicyEngine::Embedded);
        let ready = |read| ReadyPolicies {
            read,
            waivers: Ok(Vec::new()),
        };
        binary.sources = work_of(set.clone(), ready(Ok(read))).sources;
        let gone = work_of(set, ready(Err("the branch is gone".to_owned())));
        let mut unread = fine();
        unread.sources.clear();
        let mut unknown = fine();
        unknown.facts = Err("the approvals cannot be determined".to_owned());
        for (work, show, problem) in [
            (
                embedded(&["README.md"]),
                &show,
                "no file with policies (`*.rego`)",
            ),
            (embedded(&[]), &show, "no file with policies (`*.rego`)"),
            (binary, &show, "`a.rego` is not text"),
            (gone, &show, "the branch is gone"),
            (unread, &show, "its policies were not read"),
            (unknown, &show, "the approvals cannot be determined"),
            (fine(), &absent, "must add the step `show`"),
            (fine(), &damaged, "the plan as JSON is not text"),
            (
                fine(),
                &large,
                "the plan as JSON has 65 MiB, and at most 64 MiB are evaluated",
            ),
        ] {
            let request = engine_request(&work, &work.sets[0].0, show).await;
            let error = request.err().unwrap();
            assert!(error.contains(problem), "{error}");
        }
    }

    /// The files have holes in place of their bytes.
    #[test]
    fn a_plan_that_is_too_large_for_its_engine_is_refused_with_a_way_out() {
        const MANY: u64 = 200_000_000;
        let dir = tempfile::tempdir().unwrap();
        let show = dir.path().join("plan.json");
        let file = fs::File::create_new(&show).unwrap();
        let mut told = Vec::new();
        for (bytes, most) in [
            (MAX_INPUT, MAX_INPUT),
            (MAX_INPUT + 1, MAX_INPUT),
            (MANY, MAX_INPUT),
            (MAX_CONFTEST_INPUT, MAX_CONFTEST_INPUT),
            (MANY, MAX_CONFTEST_INPUT),
        ] {
            file.set_len(bytes).unwrap();
            let problem = check_plan(&show, most).err();
            told.push(problem.unwrap_or_else(|| "fits".to_owned()));
        }
        insta::assert_snapshot!(told.join("\n"), @"
        fits
        the plan as JSON has 65 MiB, and at most 64 MiB are evaluated. Split the project, or let conftest evaluate the set (`engine: conftest`), then plan again
        the plan as JSON has 191 MiB, and at most 64 MiB are evaluated. Split the project, then plan again
        fits
        the plan as JSON has 191 MiB, and at most 128 MiB are evaluated. Split the project, then plan again
        ");
        fs::remove_file(&show).unwrap();
        fs::create_dir(&show).unwrap();
        let error = check_plan(&show, MAX_INPUT).unwrap_err();
        assert!(error.contains("no plan as JSON"), "{error}");
    }

    #[test]
    fn the_file_of_results_is_never_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, secret) = (dir.path().join("results"), dir.path().join("secret"));
        fs::write(&secret, "secret").unwrap();
        symlink(&secret, &file).unwrap();
        replace(&file, "[]").unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
        assert_eq!(fs::read_to_string(&file).unwrap(), "[]");
        assert!(!file.symlink_metadata().unwrap().is_symlink());
        replace(&file, "[1]").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "[1]");
    }

    #[tokio::test]
    async fn a_plan_is_copied_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("plan"), "{}").unwrap();
        fs::write(at("secret"), "secret").unwrap();
        symlink(at("secret"), at("link")).unwrap();
        copy(at("plan"), at("link")).await.unwrap();
        assert_eq!(fs::read_to_string(at("link")).unwrap(), "{}");
        assert_eq!(fs::read_to_string(at("secret")).unwrap(), "secret");
        symlink(at("secret"), at("other")).unwrap();
        assert!(copy(at("other"), at("to")).await.is_err());
        assert!(copy(at("absent"), at("to")).await.is_err());
        fs::File::create_new(at("large"))
            .unwrap()
            .set_len(MAX_SHOWN + 1)
            .unwrap();
        let error = copy(at("large"), at("to")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_command_that_was_not_found_has_reported_nothing() {
        for (why, expected) in [
            (StepFailure::Code(Some(1)), true),
            (StepFailure::Code(Some(3)), true),
            (StepFailure::Code(Some(126)), false),
            (StepFailure::Code(Some(127)), false),
            (StepFailure::Code(None), false),
            (StepFailure::Stopped { killed: false }, false),
        ] {
            assert_eq!(is_report(&why), expected, "{why:?}");
        }
    }
}
