//! Runs the built-in steps: argument vectors for Terraform and OpenTofu, never a shell (reference 6.6).

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use semver::Version;

use super::error::{StepError, StepFailure, StepName};
use super::expand::expand;
use super::flags::merged;
use super::reports::ToolReport;
use super::{FoundTool, KeptOutput, Steps, argv, init_programs};
use crate::config::workflow::Builtin;
use crate::model::{Distribution, WorkspaceName};
use crate::process::Cmd;
use crate::workflow::data_dir::DataDir;
use crate::workflow::kept_plan::KeptPlan;
use crate::workflow::running::ProgramObserver;
use crate::workflow::shown::{self, ResourceList};
use crate::workflow::{CacheSession, InitPlace, InstalledModule, beneath, installed_modules};

/// File of the tool with the name of the selected workspace.
const WORKSPACE_FILE: &str = "environment";

/// Maximum number of bytes of [`WORKSPACE_FILE`]; a name has at most 255.
const MAX_WORKSPACE_BYTES: u64 = 4096;

/// Variables that decide which programs the tool runs and where it gets packages from. An `env` step can set them.
const CONFIGURE_TOOLS: [&str; 5] = [
    "TF_CLI_CONFIG_FILE",
    "TERRAFORM_CONFIG",
    "TF_ENCRYPTION",
    "HOME",
    "XDG_CONFIG_HOME",
];

/// Option that makes `init` fetch a configuration first.
const FROM_MODULE: &str = "-from-module";

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

/// Moment at which the backend of an `init` is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InitBackend {
    /// In the same command.
    Now,
    /// In a command of its own, because the `init` has what no program of the pull request may have.
    Later,
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
            Builtin::Init => self.init(extra, name).await,
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
        let value = |name: &str| all.get(std::ffi::OsStr::new(name)).map(OsString::as_os_str);
        extra
            .iter()
            .map(|argument| expand(argument, value))
            .collect()
    }

    /// Runs `init`. Its output matters only if it fails. A lock file that is not part of the repository was left by
    /// an earlier `init` and would pin old providers, so it is removed first.
    async fn init(&self, extra: Vec<OsString>, name: StepName) -> Result<String, StepError> {
        let disk = |error| failed(name.clone(), StepFailure::Disk(error));
        let own: &[&str] = if self.lock_file_tracked {
            &["-input=false"]
        } else {
            remove(&self.dir.join(".terraform.lock.hcl")).map_err(disk)?;
            &["-input=false", "-upgrade"]
        };
        let args: Vec<OsString> = [OsString::from("init")]
            .into_iter()
            .chain(merged(own, extra))
            .collect();
        let runs_programs = self
            .init_runs_programs(Some(self.tool.distribution), &args)
            .await
            .map_err(disk)?;
        // The notice explains why `init` takes longer, or cannot read private modules.
        let told = runs_programs.as_ref().filter(|_| self.providers.is_some() || self.modules.is_some()).map(|why| {
            format!(
                "`init` may run a program of the pull request: {why}. Therefore `init` gets neither the shared \
                 provider cache nor credentials for private modules."
            )
        });
        if let Some(told) = &told {
            self.exec.output.say(told).await;
        }
        let session = if runs_programs.is_some() || args.iter().any(|arg| names_packages(arg)) {
            None
        } else {
            self.provider_session().await.map_err(disk)?
        };
        let modules = self.modules.filter(|_| runs_programs.is_none());
        let shares = session.is_some() || modules.is_some();
        let is_in_two = shares && self.init_may_use_backend(&args).await.map_err(disk)?;
        let first = if is_in_two {
            without_backend(args.clone())
        } else {
            args.clone()
        };
        let shown = self.shown(&first);
        let cmd = self.command(first);
        let cmd = match modules {
            Some(access) => {
                let before = self
                    .variable("GIT_CONFIG_COUNT")
                    .and_then(|count| count.to_str()?.parse().ok());
                access.give(cmd, before.unwrap_or(0))
            }
            None => cmd,
        };
        let backend = if is_in_two {
            InitBackend::Later
        } else {
            InitBackend::Now
        };
        let init = self.one_init(cmd, session, name.clone(), (&shown, backend));
        let mut ended = init.await;
        if is_in_two && ended.is_ok() {
            ended = self.init_backend(without_upgrade(args), name).await;
        }
        match ended {
            Ok(_) => Ok(String::new()),
            Err(error) => Err(match told {
                // The notice may explain the failure.
                Some(told) => StepError {
                    output: format!("{told}\n{}", error.output),
                    ..error
                },
                None => error,
            }),
        }
    }

    /// Runs the second part of an `init`, which prepares the backend after the first one has fetched everything. Programs that
    /// the backend names run now, so this part has nothing that a plan may not have. It fetches what is not there yet.
    async fn init_backend(&self, args: Vec<OsString>, name: StepName) -> Result<String, StepError> {
        let disk = |error| failed(name.clone(), StepFailure::Disk(error));
        let data_dir = self.init_dir();
        let fetched = data_dir.clone();
        let before = apart(move || fetched.without_backend()).await;
        let before = before.map_err(disk)?;
        let output = self.tool(args, name.clone(), None).await?;
        self.exec
            .sandbox
            .hand_over(self.exec.place)
            .await
            .map_err(disk)?;
        let note = move || {
            if data_dir.without_backend()? == before {
                data_dir.note()
            } else {
                // The next `init` makes the directory again.
                data_dir.forget()
            }
        };
        apart(note).await.map_err(disk)?;
        Ok(output)
    }

    /// Returns true if an `init` may prepare a backend, because of the configuration, of arguments, or of the last `init`.
    pub(super) async fn init_may_use_backend(&self, args: &[OsString]) -> std::io::Result<bool> {
        let args = args.iter().map(OsString::as_os_str);
        let args: Vec<_> = args
            .chain(self.args_of_variables())
            .map(|arg| arg.to_string_lossy())
            .collect();
        if args.iter().any(|arg| arg.contains("-backend=false")) {
            return Ok(false);
        }
        if args.iter().any(|arg| arg.contains("-backend-config")) || self.init_dir().has_backend() {
            return Ok(true);
        }
        let dir = self.dir.to_owned();
        apart(move || init_programs::may_have_backend(&dir)).await
    }

    fn init_dir(&self) -> DataDir {
        let checkout = (self.exec.place.root, self.exec.hold);
        DataDir::new(self.data_dir(), checkout, self.facts.head_commit())
    }

    /// Runs a command that does one `init` in the directory of the project and nothing else. Files in the data
    /// directory that no `init` has left are removed first.
    pub(super) async fn one_init(
        &self,
        cmd: Cmd,
        session: Option<CacheSession>,
        name: StepName,
        (shown, backend): (&str, InitBackend),
    ) -> Result<String, StepError> {
        let disk = |error| failed(name.clone(), StepFailure::Disk(error));
        let data_dir = self.init_dir();
        let old = data_dir.clone();
        if apart(move || old.remove_changed()).await.map_err(disk)? {
            self.exec
                .output
                .say(&format!(
                    "Removed {}: it was changed after the last `init`.",
                    self.data_dir_shown()
                ))
                .await;
        }
        if backend == InitBackend::Later {
            let old = data_dir.clone();
            apart(move || old.remove_backend()).await.map_err(disk)?;
        }
        let output = match session {
            None => self.exec.run(cmd, name.clone(), shown, None).await?,
            Some(session) => {
                let cmd = cmd.envs(session.variables()).writes(session.dir());
                let programs = ProgramObserver::begin(self.exec.hold);
                let output = self.exec.run_init(cmd, name.clone(), shown).await?;
                session.finish(programs).await.map_err(disk)?;
                output
            }
        };
        // Hand over before the note is written: a later change of owner would count as a change of the files.
        self.exec
            .sandbox
            .hand_over(self.exec.place)
            .await
            .map_err(disk)?;
        apart(move || data_dir.note()).await.map_err(disk)?;
        self.note_modules().await;
        Ok(output)
    }

    /// Reads which modules are installed, if somebody needs them. That happens right after an `init` and after each command
    /// of the administrator, because later programs of the pull request could change the list.
    pub(super) async fn note_modules(&self) {
        let Some(installed) = &self.installed else {
            return;
        };
        let (dir, data_dir) = (self.dir.to_owned(), self.data_dir());
        let read = apart(move || installed_modules::read(&dir, &data_dir)).await;
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

    /// Returns the data directory as people of the repository know it.
    fn data_dir_shown(&self) -> String {
        let dir = self.data_dir();
        format!("`{}`", dir.strip_prefix(self.dir).unwrap_or(&dir).display())
    }

    /// Returns the reason that an `init` may run a program that the pull request names, if any. Such an `init` gets
    /// nothing that a plan may not have.
    pub(super) async fn init_runs_programs(
        &self,
        tool: Option<Distribution>,
        args: &[OsString],
    ) -> std::io::Result<Option<String>> {
        if let Some(name) = CONFIGURE_TOOLS
            .iter()
            .find(|name| self.set.contains_key(OsStr::new(name)))
        {
            return Ok(Some(format!("a step sets `{name}`")));
        }
        let args = args.iter().map(OsString::as_os_str);
        if args
            .chain(self.args_of_variables())
            .any(|arg| arg.to_string_lossy().contains(FROM_MODULE))
        {
            return Ok(Some(format!(
                "`{FROM_MODULE}` copies files that cannot be checked before"
            )));
        }
        let dir = self.dir.to_owned();
        apart(move || init_programs::why(&dir, tool)).await
    }

    /// Returns the arguments that variables add to `init`.
    fn args_of_variables(&self) -> impl Iterator<Item = &OsStr> {
        ["TF_CLI_ARGS", "TF_CLI_ARGS_init"]
            .into_iter()
            .filter_map(|name| self.variable(name))
    }

    /// Begins a session of the provider cache for one `init`. Returns `None` if the administrator disabled the cache
    /// or set a cache directory for all, or if the arguments say where packages come from: those packages may be of
    /// the pull request.
    pub(super) async fn provider_session(&self) -> std::io::Result<Option<CacheSession>> {
        let Some(cache) = self.providers else {
            return Ok(None);
        };
        if self.args_of_variables().any(names_packages) {
            return Ok(None);
        }
        let place = InitPlace {
            dir: self.dir.to_owned(),
            data_dir: self.data_dir(),
            lock_file_tracked: self.lock_file_tracked,
        };
        cache
            .enter(place, self.variable("TF_PLUGIN_CACHE_DIR"))
            .await
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
        let read = apart(move || beneath::read(&dir, &file, MAX_WORKSPACE_BYTES));
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
        let has_vars = apart(move || beneath::is_there(&dir, &file)).await;
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
            .run_whole(self.command(args), name.clone(), &shown)
            .await?;
        self.plan_is_there(name).map(|()| kept)
    }

    /// Uses a plan file that no program of the run can change.
    pub(in crate::workflow) fn use_plan(&mut self, kept: &'a KeptPlan) {
        self.files.plan = kept.file();
        self.exec.place.plan = Some(kept.dir());
    }

    /// Lists the resources of the plan file, no matter which step wrote it. Only problems that would stop any other
    /// step too are errors.
    pub(in crate::workflow) async fn list(&self) -> Result<ResourceList, StepError> {
        if !self.files.plan.is_file() {
            return Ok(ResourceList::NoFile);
        }
        if self.tool.version < LISTS_SINCE {
            return Ok(ResourceList::TooOld);
        }
        let program = self.tool.distribution.program();
        let name = StepName::new(&format!("{program} show -json"), None);
        let cmd = self
            .command(["show", "-json"].map(OsString::from).into())
            .operands([&self.files.plan]);
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
        let args = argv::show(&self.files.plan, extra);
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
        let args = argv::show(&self.files.plan, extra);
        let shown = self.shown(&args);
        self.exec
            .save(self.command(args), name, &shown, file, limit)
            .await
    }

    async fn apply(&self, extra: Vec<OsString>, name: StepName) -> Result<String, StepError> {
        self.plan_is_there(name.clone())?;
        self.tool_reports(
            argv::apply(&self.files.plan, extra, self.given),
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
        if self.files.plan.is_file() {
            Ok(())
        } else {
            Err(failed(name, StepFailure::NoPlan))
        }
    }

    async fn tool(
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

    fn command(&self, args: Vec<OsString>) -> Cmd {
        let cmd = Cmd::new(&self.tool.program)
            .args(args)
            .dir(self.dir)
            .envs(self.of_builtin());
        self.exec.of_tool(cmd, &self.tool.program)
    }

    /// Returns the command line for people. The path of the plan file is internal, so only the file name is shown.
    fn shown(&self, args: &[OsString]) -> String {
        let file = |path: &Path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let out = format!("-out={}", self.files.plan.display());
        let word = |arg: &OsString| {
            let text = arg.to_string_lossy();
            if Path::new(arg) == self.files.plan {
                file(&self.files.plan)
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
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(std::io::Error::other)?
}

/// Adds the option with which `init` prepares no backend, behind all others.
fn without_backend(mut args: Vec<OsString>) -> Vec<OsString> {
    args.push("-backend=false".into());
    args
}

/// Removes the option with which `init` fetches everything again.
fn without_upgrade(mut args: Vec<OsString>) -> Vec<OsString> {
    args.retain(|arg| {
        let arg = arg.to_string_lossy();
        let option = arg.trim_start_matches('-');
        !(arg.starts_with('-') && (option == "upgrade" || option.starts_with("upgrade=")))
    });
    args
}

/// Returns true if arguments of `init` say where packages come from, or where the configuration itself comes from.
fn names_packages(args: &OsStr) -> bool {
    let args = args.to_string_lossy();
    args.contains("-plugin-dir") || args.contains(FROM_MODULE)
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
