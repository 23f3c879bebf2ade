//! Runs the built-in steps: argument vectors for Terraform and OpenTofu, never a shell (reference 6.6).

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use semver::Version;

use super::error::{StepError, StepFailure, StepName};
use super::expand::expand;
use super::reports::ToolReport;
use super::{FoundTool, KeptOutput, Steps, argv};
use crate::boxed::boxed;
use crate::config::workflow::Builtin;
use crate::model::WorkspaceName;
use crate::process::Cmd;
use crate::workflow::kept_plan::KeptPlan;
use crate::workflow::shown::{self, ResourceList};
use crate::workflow::{InstalledModule, inside, installed_modules};

/// File of the tool with the name of the selected workspace.
const WORKSPACE_FILE: &str = "environment";

/// Maximum number of bytes of [`WORKSPACE_FILE`]; a name has at most 255.
const MAX_WORKSPACE_BYTES: u64 = 4096;

/// First Terraform version that shows a plan as JSON. OpenTofu always could.
const LISTS_SINCE: Version = Version::new(0, 12, 0);

/// Returns the title of a step, such as `terraform init`.
pub(super) fn title(tool: &FoundTool, step: Builtin) -> String {
    let words = match step {
        Builtin::PolicyCheck => return step.to_string(),
        Builtin::StateRm => "state rm",
        Builtin::Init | Builtin::Plan | Builtin::Show | Builtin::Apply | Builtin::Import => {
            step.as_str()
        }
    };
    format!("{} {words}", tool.distribution.program())
}

impl<'a> Steps<'a> {
    pub(super) async fn builtin(
        &mut self,
        step: Builtin,
        extra: &[String],
        name: StepName,
    ) -> Result<KeptOutput, StepError> {
        let extra = self.expanded(extra);
        let text = match step {
            Builtin::Plan => return self.plan(extra, name).await,
            // Its future holds two programs.
            Builtin::Init => boxed(|| self.init(extra, name)).await,
            Builtin::Show => self.show(extra, name).await,
            Builtin::Apply => self.apply(extra, name).await,
            Builtin::Import => {
                self.change_state(&["import"], extra, name, ToolReport::Imported)
                    .await
            }
            Builtin::StateRm => {
                self.change_state(&["state", "rm"], extra, name, ToolReport::Removed)
                    .await
            }
            Builtin::PolicyCheck => Err(failed(name, StepFailure::OtherStage)),
        };
        text.map(KeptOutput::whole)
    }

    pub(super) fn expanded(&self, extra: &[String]) -> Vec<OsString> {
        let all = self.of_builtin();
        let value = |name: &str| all.get(OsStr::new(name)).map(OsString::as_os_str);
        extra
            .iter()
            .map(|argument| expand(argument, value))
            .collect()
    }

    /// Reads which modules are installed, if somebody needs them. That happens right after an `init` and after each command
    /// of the administrator, because later programs of the pull request could change the list.
    pub(super) async fn note_modules(&self) {
        let Some(installed) = &self.installed else {
            return;
        };
        let (dir, data_dir) = (self.dir.to_owned(), self.data_dir());
        let read = run_blocking(move || installed_modules::read(&dir, &data_dir)).await;
        let read = read.map_err(|error| error.to_string());
        *installed.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
    }

    /// Returns the modules that are installed, if somebody needs them. Without an `init` of the server, commands of the
    /// administrator have installed them.
    pub(in crate::workflow) async fn modules_used(&self) -> Result<Vec<InstalledModule>, String> {
        let noted = || {
            let installed = self.installed.as_ref()?;
            let noted = installed.lock();
            noted.unwrap_or_else(PoisonError::into_inner).clone()
        };
        if noted().is_none() {
            self.note_modules().await;
        }
        noted().unwrap_or(Ok(Vec::new()))
    }

    /// Selects the workspace of the project and creates it if it does not exist. Without a `.terraform/environment`
    /// the default one is selected already.
    pub(in crate::workflow) async fn workspace(&self) -> Result<(), StepError> {
        let workspace = &self.project.workspace;
        if self.selected_workspace().await? == *workspace {
            return Ok(());
        }
        match self.switch("select").await {
            Err(StepError {
                why: StepFailure::Code(_),
                ..
            }) => self.switch("new").await,
            other => other,
        }
    }

    async fn switch(&self, how: &str) -> Result<(), StepError> {
        let name = format!("{} workspace {how}", self.tool.distribution.program());
        let args = argv::workspace(how, self.project.workspace.as_str());
        self.tool(args, StepName::new(&name, None), None)
            .await
            .map(drop)
    }

    /// Returns the selected workspace. Below the directory of the project the file may be of the pull request, so no
    /// link is followed there.
    async fn selected_workspace(&self) -> Result<WorkspaceName, StepError> {
        let of_operator = self.variable("TF_WORKSPACE").and_then(|name| name.to_str());
        if let Some(workspace) = of_operator.and_then(|name| name.parse().ok()) {
            return Ok(workspace);
        }
        let (data_dir, dir) = (self.data_dir(), self.dir.to_owned());
        let (dir, file) = match data_dir.strip_prefix(&dir) {
            Ok(below) => (dir, below.join(WORKSPACE_FILE)),
            Err(_) => (data_dir, PathBuf::from(WORKSPACE_FILE)),
        };
        let read = run_blocking(move || inside::read(&dir, &file, MAX_WORKSPACE_BYTES));
        let name = || {
            StepName::new(
                &format!("{} workspace", self.tool.distribution.program()),
                None,
            )
        };
        let text = read
            .await
            .map_err(|error| failed(name(), StepFailure::WorkspaceFile(error)))?;
        Ok(text
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or_default())
    }

    /// Writes the plan file, with the variables of `env/<workspace>.tfvars` if the project has that file.
    async fn plan(&self, extra: Vec<OsString>, name: StepName) -> Result<KeptOutput, StepError> {
        self.workspace().await?;
        let vars = PathBuf::from("env").join(format!("{}.tfvars", self.project.workspace));
        let (dir, file) = (self.dir.to_owned(), vars.clone());
        let has_vars = run_blocking(move || inside::is_there(&dir, &file)).await;
        let not_plain = |_| {
            failed(
                name.clone(),
                StepFailure::VarFile(vars.display().to_string()),
            )
        };
        let vars = has_vars.map_err(not_plain)?.then_some(vars.clone());
        let args = argv::plan(&self.files.plan, extra, self.given, vars.as_deref());
        let shown = self.shown(&args);
        let kept = self
            .exec
            .run_to_output(self.command(args), name.clone(), &shown)
            .await?;
        self.plan_is_there(name).map(|()| kept)
    }

    /// Lets built-in steps use a plan file that no program of the run can change.
    pub(in crate::workflow) fn use_plan(&mut self, kept: &'a KeptPlan) {
        self.kept_plan = Some(kept.file());
        self.files.list = kept.dir().join("list.json");
        self.exec.place.plan = Some(kept.dir());
    }

    /// Returns the plan file for built-in steps.
    fn plan_file(&self) -> &Path {
        self.kept_plan.as_deref().unwrap_or(&self.files.plan)
    }

    /// Lists the resources of the plan file, no matter which step wrote it. Only problems that would stop any other
    /// step too are errors.
    pub(in crate::workflow) async fn list(&self) -> Result<ResourceList, StepError> {
        if !self.plan_file().is_file() {
            return Ok(ResourceList::NoFile);
        }
        if self.tool.version < LISTS_SINCE {
            return Ok(ResourceList::TooOld);
        }
        let program = self.tool.distribution.program();
        let name = StepName::new(&format!("{program} show -json"), None);
        let cmd = self
            .command(["show", "-json"].map(OsString::from).into())
            .operands([self.plan_file()]);
        // The arguments that the administrator adds to every call are meant for output that people read.
        let cmd = cmd
            .without_env("TF_CLI_ARGS")
            .without_env("TF_CLI_ARGS_show");
        let line = format!("{program} show -json plan.tfplan");
        match self
            .exec
            .save(cmd, name, &line, &self.files.list, shown::MAX_BYTES + 1)
            .await
        {
            Ok(()) => {}
            Err(StepError {
                why: why @ (StepFailure::Code(_) | StepFailure::Limit { .. }),
                step,
                ..
            }) => {
                return Ok(ResourceList::Failed(format!("{step} {why}")));
            }
            Err(error) => return Err(error),
        }
        let file = self.files.list.clone();
        let read = tokio::task::spawn_blocking(move || {
            let read = shown::read(&file);
            // The file contains every value of the plan.
            std::fs::remove_file(&file).ok();
            read
        });
        let read = read.await;
        Ok(match read {
            Ok(Ok(changes)) => ResourceList::Listed(changes),
            Ok(Err(error)) => ResourceList::Failed(error.to_string()),
            Err(_) => ResourceList::Failed(
                "reading the machine-readable form of the plan was interrupted".to_owned(),
            ),
        })
    }

    /// Writes the plan as JSON, for commands of the administrator.
    async fn show(&self, extra: Vec<OsString>, name: StepName) -> Result<String, StepError> {
        self.plan_is_there(name.clone())?;
        let args = argv::show(self.plan_file(), extra);
        self.tool(args, name, Some(&self.files.show))
            .await
            .map(|_| String::new())
    }

    /// Writes the plan as JSON into a file that no program of the run has open, at most `limit` bytes of it.
    pub(super) async fn show_into(
        &self,
        extra: Vec<OsString>,
        name: StepName,
        (file, limit): (&Path, u64),
    ) -> Result<(), StepError> {
        self.plan_is_there(name.clone())?;
        let args = argv::show(self.plan_file(), extra);
        let shown = self.shown(&args);
        self.exec
            .save(self.command(args), name, &shown, file, limit)
            .await
    }

    async fn apply(&self, extra: Vec<OsString>, name: StepName) -> Result<String, StepError> {
        self.plan_is_there(name.clone())?;
        self.tool_reports(
            argv::apply(self.plan_file(), extra, self.given),
            name,
            ToolReport::Applied,
        )
        .await
    }

    /// Runs `import` or `state rm`; a plan that was made before is worth nothing afterwards. A tool that reports its
    /// own failure has left the state as it was; one that was stopped may have changed it.
    async fn change_state(
        &mut self,
        words: &[&str],
        extra: Vec<OsString>,
        name: StepName,
        report: ToolReport,
    ) -> Result<String, StepError> {
        self.workspace().await?;
        let args = argv::change_state(words, extra, self.given);
        let ended = self.tool_reports(args, name.clone(), report).await;
        self.touched |= !matches!(
            ended,
            Err(StepError {
                why: StepFailure::Code(Some(_)),
                ..
            })
        );
        let output = ended?;
        self.kept_plan = None;
        remove(&self.files.plan).map_err(|error| failed(name, StepFailure::Disk(error)))?;
        Ok(output)
    }

    /// Returns the versions of the program and of the providers of the project, as the program prints them.
    pub(in crate::workflow) async fn version(&self) -> Result<String, StepError> {
        let name = StepName::new(
            &format!("{} version", self.tool.distribution.program()),
            None,
        );
        self.tool(vec!["version".into()], name, None).await
    }

    #[expect(clippy::result_large_err, reason = "made once for a run, at its end")]
    fn plan_is_there(&self, name: StepName) -> Result<(), StepError> {
        if self.plan_file().is_file() {
            Ok(())
        } else {
            Err(failed(name, StepFailure::NoPlan))
        }
    }

    pub(super) async fn tool(
        &self,
        args: Vec<OsString>,
        name: StepName,
        file: Option<&Path>,
    ) -> Result<String, StepError> {
        let shown = self.shown(&args);
        self.exec.run(self.command(args), name, &shown, file).await
    }

    /// Runs a command that changes something. It counts as done when the tool reports that.
    async fn tool_reports(
        &self,
        args: Vec<OsString>,
        name: StepName,
        report: ToolReport,
    ) -> Result<String, StepError> {
        let shown = self.shown(&args);
        self.exec
            .run_until_reported(self.command(args), name, &shown, report)
            .await
    }

    pub(super) fn command(&self, args: Vec<OsString>) -> Cmd {
        let cmd = Cmd::new(&self.tool.program)
            .args(args)
            .dir(self.dir)
            .envs(self.of_builtin());
        self.exec.of_tool(cmd, &self.tool.program)
    }

    /// Returns the command line for people. The path of the plan file is internal, so only the file name is shown.
    pub(super) fn shown(&self, args: &[OsString]) -> String {
        let file = |path: &Path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let out = format!("-out={}", self.files.plan.display());
        let word = |arg: &OsString| {
            let text = arg.to_string_lossy();
            if Path::new(arg) == self.plan_file() {
                file(self.plan_file())
            } else if text == out {
                format!("-out={}", file(&self.files.plan))
            } else {
                text.into_owned()
            }
        };
        let words: Vec<String> = args.iter().map(word).collect();
        format!("{} {}", self.tool.distribution.program(), words.join(" "))
    }
}

/// Runs a file operation on a thread for blocking work.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(std::io::Error::other)?
}

pub(super) fn failed(step: StepName, why: StepFailure) -> StepError {
    StepError {
        step,
        why,
        output: String::new(),
    }
}

/// Removes a file. Succeeds if the file does not exist.
pub(super) fn remove(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
