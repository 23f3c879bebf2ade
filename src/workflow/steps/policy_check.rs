//! Runs the stage `policy_check`: its steps, one after the other, until one fails (reference 13).
//!
//! - The step `policy_check` evaluates the sets for conftest and for the engine of this program. If other sets are evaluated
//!   by steps, each `run` step reports about one of them. All other steps run as in any stage.
//! - *Conftest runs outside of the checkout.* In its working directory it reads a configuration, `conftest.toml`, which would
//!   let a pull request choose other policies.
//! - *Policies and facts are in a directory that runs only read*, because programs of the pull request ran before. With a
//!   user of runs or a sandbox, nothing in it can be changed.
//! - *Nothing is skipped.* Each set gets a verdict. A stage that fails, or that evaluates less than it should, leaves verdicts
//!   that say so.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use lockkeeper_policy::embedded::RegoFile;
use lockkeeper_policy::facts::Facts;
use lockkeeper_policy::sets::{PolicyEngine, PolicySet, ReportFormat, SetName};
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use semver::Version;
use tempfile::TempDir;

use super::Steps;
use super::builtin::failed;
use super::error::{StepError, StepFailure, StepName};
use super::filters::filtered;
use crate::config::workflow::{Builtin, OutputFilter, RunStep, Step};
use crate::errors::describe_error;
use crate::model::RunUser;
use crate::process::Cmd;
use crate::render::plan_output::clean;
use crate::workflow::policies::conftest::{self, ConftestRun, MAX_REPORT, REDACTED};
use crate::workflow::policies::custom::{self, StepReport};
use crate::workflow::policies::engine::{self, EngineRequest};
use crate::workflow::policies::files::{self, PolicyFiles};
use crate::workflow::policies::{PolicyEvaluation, PolicyWork, ReadFiles};
use crate::workflow::{FoundConftest, scratch};

/// Maximum number of bytes of a plan as JSON that this program evaluates itself.
const MAX_INPUT: u64 = 64 << 20;

/// Maximum number of lines of a report on the page of the run.
const MAX_LINES: usize = 2_000;

/// Variable with the version of conftest for sets without one (reference 13.2).
const DEFAULT_VERSION: &str = "DEFAULT_CONFTEST_VERSION";

/// Exit codes of a shell that could not run a command.
const NOT_RUN: [i32; 2] = [126, 127];

/// State of the stage.
struct PolicyCheck<'w> {
    work: &'w PolicyWork,
    /// Directory with policies and facts.
    dir: TempDir,
    /// Directory of the server that contains it.
    top: PathBuf,
    /// Formats of the outputs of steps, one for each set that steps evaluate.
    formats: Vec<ReportFormat>,
    /// Outputs of these steps so far.
    reports: Vec<StepReport>,
    /// Verdicts of the other sets.
    verdicts: HashMap<SetName, Verdict>,
    /// Conftest, once it was looked for.
    conftest: Option<Result<FoundConftest, String>>,
}

/// Arguments of the workflow for conftest.
struct ConftestArgs {
    args: Vec<OsString>,
    fails_on_warnings: bool,
}

impl Steps<'_> {
    /// Runs the stage, and returns a verdict for each set of the work. `parent` is for temporary directories.
    ///
    /// # Errors
    ///
    /// The run was stopped before all sets were evaluated.
    pub(in crate::workflow) async fn check_policies(
        &mut self,
        work: &PolicyWork,
        stage: &[Step],
        parent: &Path,
    ) -> Result<Vec<Verdict>, StepError> {
        if work.sets.is_empty() {
            return Ok(Vec::new());
        }
        let (verdicts, failure) = match PolicyCheck::new(work, parent) {
            Ok(mut check) => {
                let ended = self.policy_steps(&mut check, stage).await;
                let failure = ended.err();
                (check.finish(failure.as_ref()), failure)
            }
            Err(error) => {
                let failure = StepError::not_begun("policy_check", StepFailure::Disk(error));
                let verdict = |set| work.verdict(set, of_failure(&failure));
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

    async fn policy_steps(
        &mut self,
        check: &mut PolicyCheck<'_>,
        stage: &[Step],
    ) -> Result<(), StepError> {
        for (at, step) in stage.iter().enumerate() {
            let name = self.name(step, at + 1);
            match step {
                Step::Builtin {
                    step: Builtin::PolicyCheck,
                    extra_args,
                } => self.evaluate_sets(check, extra_args, name).await?,
                Step::Run(step) if !check.formats.is_empty() => {
                    let format = check.formats.get(check.reports.len());
                    // A report beyond the last set is an error that says so.
                    let format = format.copied().unwrap_or(ReportFormat::Text);
                    let report = self.policy_report(format, step, name).await?;
                    check.reports.push(report);
                }
                Step::Builtin { .. } | Step::Run(_) | Step::Env(_) | Step::Multienv(_) => {
                    self.step(step, name).await?;
                }
            }
        }
        Ok(())
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
        };
        let work = check.work;
        for (number, set) in work.sets.iter().enumerate() {
            if check.verdicts.contains_key(&set.0.name) {
                continue;
            }
            let evaluated = match set.0.engine {
                PolicyEngine::Steps(_) => continue,
                PolicyEngine::Conftest => self.with_conftest(check, (number, &set.0), &args).await,
                PolicyEngine::Embedded => self.with_engine(work, &set.0).await,
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
        let facts = work.facts.as_ref().map_err(Clone::clone)?;
        self.show_file()?;
        let found = self.conftest_program(check).await?;
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
            .operands([&self.files.show])
            .dir(dir)
            .envs(self.of_builtin());
        let cmd = self.exec.of_policies(cmd, &found.program, [&policies, dir]);
        let shown = format!("conftest test -p {} --no-color {REDACTED}", read.origin);
        let name = StepName::new("conftest test", None);
        let ended = self
            .exec
            .save(cmd, name, &shown, &self.files.captured, MAX_REPORT + 1)
            .await;
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
                return Ok(PolicyEvaluation::missing(why, self.redacted(&error.output)));
            }
        };
        Ok(conftest::evaluated(&ConftestRun {
            code,
            report: &self.redacted(&report),
            errors: &self.redacted(&errors),
            fails_on_warnings: args.fails_on_warnings,
        }))
    }

    /// Finds conftest once for all sets. A download can take a while, and stops when the run is cancelled.
    async fn conftest_program(&self, check: &mut PolicyCheck<'_>) -> Result<FoundConftest, String> {
        if let Some(known) = &check.conftest {
            return known.clone();
        }
        let wanted = self.conftest_version(check.work)?;
        let found = tokio::select! {
            found = self.tools.conftest(wanted.as_ref()) => found.map_err(|error| {
                let program = wanted.as_ref().map_or_else(|| "conftest".to_owned(), |version| format!("conftest{version}"));
                format!(
                    "{}. Ask an administrator to install `{program}` in `--tf-bin-dir` or on the PATH of the server, then \
                     plan again",
                    describe_error(&error)
                )
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
        let Some(text) = self.environment.get(DEFAULT_VERSION) else {
            return Ok(None);
        };
        let text = text.to_string_lossy();
        Version::parse(text.trim().trim_start_matches('v'))
            .map(Some)
            .map_err(|error| {
                format!(
                    "the variable `{DEFAULT_VERSION}` of the server is not a version: {error}. An administrator must \
                     correct it"
                )
            })
    }

    /// Evaluates a set with the engine of this program. The error says why it cannot be evaluated.
    async fn with_engine(
        &self,
        work: &PolicyWork,
        set: &PolicySet,
    ) -> Result<PolicyEvaluation, String> {
        let files = rego_files(work.policies_of(set)?)?;
        let facts = work.facts.as_ref().map_err(Clone::clone)?;
        self.show_file()?;
        let input = scratch::read(self.files.show.clone(), MAX_INPUT).await;
        let input = input.map_err(|error| {
            format!(
                "the plan as JSON cannot be read: {error}. Split the project, or let conftest evaluate the set \
                 (`engine: conftest`)"
            )
        })?;
        let input = String::from_utf8(input.unwrap_or_default())
            .map_err(|_| "the plan as JSON is not text. Plan again".to_owned())?;
        let request = EngineRequest {
            files,
            data: vec![facts.to_data()],
            input,
            namespaces: set.namespaces.clone(),
        };
        let found = engine::evaluate(&self.exec, &request).await?;
        Ok(PolicyEvaluation {
            output: conftest::text_of(&found),
            found: Ok(found),
        })
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
        let (text, succeeded) = match format {
            ReportFormat::Text => match self.exec.run(cmd, name, shown, None).await {
                Ok(output) => (clean(&output), true),
                Err(error) if is_report(&error) => (clean(&error.output), false),
                Err(error) => return Err(error),
            },
            ReportFormat::Conftest | ReportFormat::Sarif | ReportFormat::Junit => {
                let file = &self.files.captured;
                let ended = self
                    .exec
                    .save(cmd, name.clone(), shown, file, MAX_REPORT + 1)
                    .await;
                let succeeded = match ended {
                    Ok(()) => true,
                    Err(error) if is_report(&error) => false,
                    Err(error) => return Err(error),
                };
                let report = self.captured().await;
                let report = report.map_err(|error| failed(name, StepFailure::Disk(error)))?;
                self.say_lines(&report).await;
                (report, succeeded)
            }
        };
        let but_hidden: Vec<OutputFilter> = step
            .output
            .iter()
            .filter(|filter| !matches!(filter, OutputFilter::Hide))
            .cloned()
            .collect();
        Ok(StepReport {
            shown: filtered(text.clone(), &step.output, !succeeded),
            text: filtered(text, &but_hidden, !succeeded),
            succeeded,
        })
    }

    /// Checks that there is a plan as JSON.
    fn show_file(&self) -> Result<(), String> {
        if self.files.show.is_file() {
            return Ok(());
        }
        Err(
            "there is no plan as JSON, because no step before `policy_check` wrote `$SHOWFILE`. An administrator must add \
             the step `show` to the stage `policy_check` of the workflow"
                .to_owned(),
        )
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

    /// Removes the path of the plan, which is internal.
    fn redacted(&self, text: &str) -> String {
        text.replace(&*self.files.show.to_string_lossy(), REDACTED)
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

impl<'w> PolicyCheck<'w> {
    fn new(work: &'w PolicyWork, parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        let dir = tempfile::Builder::new()
            .prefix("policies-")
            .tempdir_in(parent)?;
        Ok(Self {
            work,
            dir,
            top: parent.parent().unwrap_or(parent).to_owned(),
            formats: custom::formats_of_steps(work),
            reports: Vec::new(),
            verdicts: HashMap::new(),
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
        fs::write(dir.join(FACTS), facts.to_data().to_string())?;
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
    fn finish(mut self, failure: Option<&StepError>) -> Vec<Verdict> {
        let (mut of_steps, count) = (0, self.formats.len());
        let mut verdicts = Vec::new();
        for set in &self.work.sets {
            let evaluated = match (failure, set.0.engine) {
                (Some(error), _) => of_failure(error),
                (None, PolicyEngine::Steps(format)) => {
                    of_steps += 1;
                    custom::evaluated(of_steps - 1, count, format, &self.reports)
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

fn of_failure(error: &StepError) -> PolicyEvaluation {
    let why = format!(
        "{}. Plan again, or ask an administrator",
        describe_error(error)
    );
    PolicyEvaluation::missing(why, error.output.clone())
}

/// Returns true if a command ended with an exit code of its own, so that its output is a report. A shell that did not find the command has
/// reported nothing.
fn is_report(error: &StepError) -> bool {
    matches!(error.why, StepFailure::Code(Some(code)) if !NOT_RUN.contains(&code))
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

/// Returns the files of policies in Rego.
fn rego_files(read: &ReadFiles) -> Result<Vec<RegoFile>, String> {
    let PolicyFiles::Read(files) = &read.files else {
        return Err(format!("the policies in {} were not read", read.origin));
    };
    let is_rego = |path: &str| Path::new(path).extension().is_some_and(|end| end == "rego");
    let rego: Result<Vec<RegoFile>, String> = files
        .iter()
        .filter(|file| is_rego(&file.path))
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
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::File::create_new(file)?.write_all(text.as_bytes())
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

    #[test]
    fn a_command_that_was_not_found_has_reported_nothing() {
        let error = |why| StepError::not_begun("run: checkov", why);
        for (why, expected) in [
            (StepFailure::Code(Some(1)), true),
            (StepFailure::Code(Some(3)), true),
            (StepFailure::Code(Some(126)), false),
            (StepFailure::Code(Some(127)), false),
            (StepFailure::Code(None), false),
            (StepFailure::Stopped { killed: false }, false),
        ] {
            let error = error(why);
            assert_eq!(is_report(&error), expected, "{error}");
        }
    }
}
