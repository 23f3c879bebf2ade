//! The built-in steps: argument vectors for Terraform and OpenTofu, never a shell (reference 6.6).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{ChildEnvironment, RunOutput, Tool};
use crate::model::{ProjectKey, WorkspaceName};
use crate::process::{Cmd, Ended, Exit, Line, ProcessError, Stream, Supervisor};

/// What is left when the grace period is over.
const SIGKILL: i32 = 9;
/// Most bytes of a step's output that are kept in memory for the comment; the page has all of it.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// Why a step did not end well.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The tool said no.
    #[error("`{step}` ended with exit code {}", code.map_or_else(|| "unknown".to_owned(), |code| code.to_string()))]
    Failed {
        /// `terraform init`, …
        step: String,
        /// Exit code.
        code: Option<i32>,
        /// What it printed.
        output: String,
    },
    /// It was told to stop.
    #[error("`{step}` was {}", if *.killed { "interrupted, did not end in time, and was killed" } else { "stopped" })]
    Stopped {
        /// `terraform init`, …
        step: String,
        /// It did not end in time after the interrupt.
        killed: bool,
        /// What it printed until then.
        output: String,
    },
    /// It took longer than it may.
    #[error("`{step}` was stopped because the run took longer than {} (`--run-timeout`)", span(*after))]
    TimedOut {
        /// `terraform init`, …
        step: String,
        /// The limit.
        after: Duration,
        /// What it printed until then.
        output: String,
    },
    /// It could not be run at all.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// `90 s`, `5 min`, `2 h`: as an operator would write it.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

impl StepError {
    /// What the tool printed.
    pub fn output(&self) -> &str {
        match self {
            Self::Failed { output, .. } | Self::Stopped { output, .. } | Self::TimedOut { output, .. } => output,
            Self::Process(_) => "",
        }
    }
}

/// Everything the steps of one run have in common.
pub(super) struct Steps<'a> {
    pub tool: &'a Tool,
    pub environment: &'a ChildEnvironment,
    pub supervisor: &'a Supervisor,
    /// Directory of the project in the checkout.
    pub dir: &'a Path,
    /// Held by the supervisor for as long as anything of the run lives.
    pub hold: &'a Path,
    pub project: &'a ProjectKey,
    pub output: &'a RunOutput,
    pub stop: &'a CancellationToken,
    /// When the whole run has to be over.
    pub deadline: tokio::time::Instant,
    /// The same as a span, for messages.
    pub timeout: Duration,
}

impl Steps<'_> {
    /// `init`. Its output matters only when it fails.
    pub async fn init(&self, upgrade: bool) -> Result<(), StepError> {
        let upgrade = upgrade.then_some("-upgrade");
        self.run(["init", "-input=false"].into_iter().chain(upgrade)).await.map(drop)
    }

    /// Selects the workspace of the project, making it when it does not exist. Without a `.terraform/environment` the
    /// default one is selected already.
    pub async fn workspace(&self) -> Result<(), StepError> {
        let workspace = &self.project.workspace;
        if self.selected_workspace() == *workspace {
            return Ok(());
        }
        let name = workspace.as_str();
        match self.run(["workspace", "select", name]).await {
            Err(StepError::Failed { .. }) => self.run(["workspace", "new", name]).await.map(drop),
            other => other.map(drop),
        }
    }

    fn selected_workspace(&self) -> WorkspaceName {
        let data = self.environment.get("TF_DATA_DIR").map_or_else(|| PathBuf::from(".terraform"), PathBuf::from);
        let text = std::fs::read_to_string(self.dir.join(data).join("environment")).unwrap_or_default();
        self.environment
            .get("TF_WORKSPACE")
            .and_then(|name| name.to_str())
            .and_then(|name| name.parse().ok())
            .unwrap_or_else(|| text.trim().parse().unwrap_or_default())
    }

    /// `plan` into a file, with `env/<workspace>.tfvars` when the project has one.
    pub async fn plan(&self, file: &Path, extra: &[String]) -> Result<String, StepError> {
        let mut args: Vec<OsString> = ["plan", "-input=false", "-refresh", "-out"].map(OsString::from).into();
        args.push(file.into());
        args.extend(extra.iter().map(OsString::from));
        let vars = PathBuf::from("env").join(format!("{}.tfvars", self.project.workspace));
        if self.dir.join(&vars).is_file() {
            args.push("-var-file".into());
            args.push(vars.into());
        }
        self.run(args).await
    }

    /// `apply` of a plan file.
    pub async fn apply(&self, file: &Path, extra: &[String]) -> Result<String, StepError> {
        let mut args: Vec<OsString> = ["apply", "-input=false"].map(OsString::from).into();
        args.extend(extra.iter().map(OsString::from));
        args.push(file.into());
        self.run(args).await
    }

    async fn run(&self, args: impl IntoIterator<Item: Into<OsString>>) -> Result<String, StepError> {
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let step = self.title(&args);
        self.output.say(&format!("$ {}", self.shown(&args))).await;
        let left = self.deadline.saturating_duration_since(tokio::time::Instant::now());
        let cmd = self.command(args).deadline(left).supervised(self.supervisor).hold(self.hold);
        let (lines, received) = mpsc::channel(256);
        let (exit, output) = tokio::join!(cmd.run(lines, self.stop), collect(received, self.output));
        self.judge(step, exit?, output)
    }

    fn command(&self, args: Vec<OsString>) -> Cmd {
        Cmd::new(&self.tool.program)
            .args(args)
            .dir(self.dir)
            .envs(self.environment.iter())
            .env("TF_IN_AUTOMATION", "true")
            .env("CHECKPOINT_DISABLE", "1")
            .env("WORKSPACE", self.project.workspace.as_str())
            .env("ATLANTIS_TERRAFORM_VERSION", self.tool.version.to_string())
            .env("DIR", self.dir)
    }

    /// A success counts even when the tool was told to stop meanwhile: it had come to its end.
    fn judge(&self, step: String, exit: Exit, output: String) -> Result<String, StepError> {
        match exit.how {
            Ended::Finished | Ended::Cancelled | Ended::TimedOut if exit.is_success() => Ok(output),
            Ended::Finished => Err(StepError::Failed { step, code: exit.code, output }),
            Ended::Cancelled => Err(StepError::Stopped { step, killed: exit.signal == Some(SIGKILL), output }),
            Ended::TimedOut => Err(StepError::TimedOut { step, after: self.timeout, output }),
        }
    }

    /// `terraform workspace select`: the words before the first flag or operand that is not a sub-command.
    fn title(&self, args: &[OsString]) -> String {
        let words = args.iter().map(|arg| arg.to_string_lossy());
        let count = if args.first().is_some_and(|arg| arg == "workspace") { 2 } else { 1 };
        let command: Vec<String> = words.take(count).map(String::from).collect();
        format!("{} {}", self.tool.distribution.program(), command.join(" "))
    }

    /// The command line as a person would read it; the path of the plan file is ours and says nothing.
    fn shown(&self, args: &[OsString]) -> String {
        let word = |arg: &OsString| {
            let path = Path::new(arg);
            let shown = if path.is_absolute() { path.file_name().unwrap_or(arg) } else { arg };
            shown.to_string_lossy().into_owned()
        };
        let words: Vec<String> = args.iter().map(word).collect();
        format!("{} {}", self.tool.distribution.program(), words.join(" "))
    }
}

/// Hands lines on to the store and keeps them for the comment.
async fn collect(mut lines: mpsc::Receiver<Line>, output: &RunOutput) -> String {
    let mut kept = String::new();
    while let Some(line) = lines.recv().await {
        if kept.len() + line.text.len() < KEPT_BYTES && line.stream != Stream::Notice {
            kept.push_str(&line.text);
            kept.push('\n');
        }
        output.say(&line.text).await;
    }
    kept
}
