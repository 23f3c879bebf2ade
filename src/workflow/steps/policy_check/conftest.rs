//! Evaluates a set with the program conftest, which runs outside of the checkout and gets no variables.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

use lockkeeper_policy::facts::Facts;
use lockkeeper_policy::sets::PolicySet;
use semver::Version;

use super::PolicyCheck;
use super::plan::MAX_CONFTEST_INPUT;
use crate::errors::describe_error;
use crate::model::RunUser;
use crate::process::Cmd;
use crate::workflow::FoundConftest;
use crate::workflow::policies::conftest::{self, ConftestRun, MAX_REPORT, REDACTED};
use crate::workflow::policies::files::{self, PolicyFiles};
use crate::workflow::policies::{PolicyEvaluation, PolicyWork, ReadFiles};
use crate::workflow::steps::Steps;
use crate::workflow::steps::error::{StepError, StepFailure, StepName};
use crate::workflow::tools::{DEFAULT_VERSION, default_version, help_without_conftest};

/// File of the facts in the directory of policies.
const FACTS: &str = "facts.json";

/// Arguments of the workflow for conftest.
pub(super) struct ConftestArgs {
    args: Vec<OsString>,
    fails_on_warnings: bool,
    /// Paths that conftest may read.
    paths: Vec<PathBuf>,
    /// Reason why policies of the arguments cannot be used.
    problem: Result<(), String>,
}

impl Steps<'_> {
    /// Returns the arguments of the step for conftest. Those of a repository name no files that it may read.
    pub(super) async fn conftest_args(&self, extra: &[String], is_trusted: bool) -> ConftestArgs {
        let words = conftest::words(extra);
        ConftestArgs {
            fails_on_warnings: conftest::fails_on_warnings(&words),
            args: self.expanded(&words),
            paths: if is_trusted {
                conftest::named_paths(&words)
            } else {
                Vec::new()
            },
            problem: if is_trusted {
                conftest::check_named_rules(&words).await
            } else {
                Ok(())
            },
        }
    }

    /// Evaluates a set with conftest. The error says why it cannot be evaluated.
    pub(super) async fn with_conftest(
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
}

impl PolicyCheck<'_> {
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
