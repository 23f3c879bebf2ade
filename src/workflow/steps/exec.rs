//! Runs one program for a step or a hook: under the supervisor, within the time of the run, with every line on the
//! page.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::error::{StepError, StepFailure, StepName};
use super::reports::ToolReport;
use crate::process::{
    Cmd, Ended, FileHold, HoldError, OutputLine, OutputStream, RunExit, Supervised, Supervisor,
};
use crate::workflow::running::{ProgramKind, RunningProgram, TrustedInit, when_free};
use crate::workflow::sandbox::{RunPlace, RunSandbox, temporary};
use crate::workflow::{RegistryAccess, RunOutput};

/// Signal that the supervisor sends when the grace period is over.
const SIGKILL: i32 = 9;
/// Maximum number of bytes of a step's output that are kept in memory for the comment. The page has the whole output.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// Notice before the output of an `init` with credentials that has to wait.
const INIT_WAITS: &str = "`init` waits until no program of another project runs in this checkout, because it gets \
                          credentials for private modules.";
/// Notice before the output of a program that has to wait for such an `init`.
const PROGRAM_WAITS: &str = "Waiting for the `init` of another project in this checkout, which has credentials for \
                             private modules.";

/// Point in time at which a run has to be over.
#[derive(Debug)]
pub(in crate::workflow) struct Deadline {
    at: Instant,
    /// Time limit as a span, for messages.
    after: Duration,
    /// Milliseconds that the run has waited for others, which do not count.
    waited: AtomicU64,
}

impl Deadline {
    pub fn after(time: Duration) -> Self {
        Self {
            at: Instant::now() + time,
            after: time,
            waited: AtomicU64::new(0),
        }
    }

    /// Returns the time until then.
    pub fn left(&self) -> Duration {
        let waited = Duration::from_millis(self.waited.load(Ordering::Relaxed));
        (self.at + waited).saturating_duration_since(Instant::now())
    }

    fn postpone(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.waited.fetch_add(time, Ordering::Relaxed);
    }
}

/// Context that all programs of one run share.
#[derive(Clone, Copy)]
pub(in crate::workflow) struct Exec<'a> {
    pub supervisor: &'a Supervisor,
    /// Lock file that the supervisor holds while any process of the run lives.
    pub hold: &'a Path,
    pub output: &'a RunOutput,
    pub stop: &'a CancellationToken,
    pub deadline: &'a Deadline,
    pub sandbox: &'a RunSandbox,
    pub place: RunPlace<'a>,
    /// Access to the registry of modules, which no output may show.
    pub registry: Option<&'a RegistryAccess>,
}

impl Exec<'_> {
    /// Confines the tool to its sandbox.
    pub fn of_tool(&self, cmd: Cmd, program: &Path) -> Cmd {
        cmd.sandbox(self.sandbox.of_tool(self.place, program))
    }

    /// Confines a command of the administrator to its sandbox.
    pub fn of_command(&self, cmd: Cmd, program: &Path) -> Cmd {
        cmd.sandbox(self.sandbox.of_command(self.place, program))
    }

    /// Confines a program that evaluates policies to its sandbox, with paths that it only reads.
    pub fn of_policies(&self, cmd: Cmd, program: &Path, read: &[&Path]) -> Cmd {
        let sandbox = self.sandbox.of_tool(self.place, program);
        cmd.sandbox(sandbox.map(|sandbox| sandbox.reads(read.iter().copied())))
    }

    /// Runs a program to its end and returns its output. `shown` is the line before the output on the page. With a
    /// file, standard output goes only there.
    pub async fn run(
        &self,
        cmd: Cmd,
        name: StepName,
        shown: &str,
        file: Option<&Path>,
    ) -> Result<String, StepError> {
        let run = self.supervised(cmd);
        let run = match file {
            Some(file) => run.stdout_to(file),
            None => run,
        };
        self.carry_out(run, name, shown, None)
            .await
            .map(|(kept, _)| kept.text)
    }

    /// Runs an `init` that runs no program of the pull request. One with credentials was begun by [`Self::trusted_init`].
    pub(super) async fn run_init(
        &self,
        cmd: Cmd,
        name: StepName,
        shown: &str,
        trusted: Option<&TrustedInit>,
    ) -> Result<String, StepError> {
        let run = self.supervised(cmd);
        let ended = match trusted {
            Some(_) => self.end_begun(run, shown, None).await,
            None => self.end(run, shown, None, ProgramKind::Init).await,
        };
        ended.output(name).map(|(kept, _)| kept.text)
    }

    /// Begins an `init` with credentials: waits until no other program is in the checkout, and keeps all others out until the
    /// returned value is dropped.
    pub(super) async fn trusted_init(&self) -> Result<TrustedInit, StepFailure> {
        let attempt = || TrustedInit::try_begin(self.hold);
        let begun = self.begin(attempt, INIT_WAITS).await?;
        // A step can end before its processes: they have a grace period, or do not answer.
        let none_is_left = FileHold::exclusive(self.hold, self.deadline.left());
        let proof = tokio::select! {
            proof = none_is_left => proof,
            () = self.stop.cancelled() => return Err(StepFailure::Stopped { killed: false }),
        };
        // Not even this `init` could begin while somebody has the proof.
        drop(proof.map_err(|error| match error {
            HoldError::Busy { .. } => StepFailure::TimedOut {
                after: self.deadline.after,
                killed: false,
            },
            error @ HoldError::Io { .. } => StepFailure::Disk(io::Error::other(error)),
        })?);
        Ok(begun)
    }

    /// Waits until something may begin in the checkout. The wait does not count as time of the run.
    async fn begin<T>(
        &self,
        attempt: impl Fn() -> Option<T>,
        notice: &str,
    ) -> Result<T, StepFailure> {
        if let Some(begun) = attempt() {
            return Ok(begun);
        }
        debug!(checkout = %self.place.root.display(), "{notice}");
        self.output.push_line(notice).await;
        let since = Instant::now();
        let begun = tokio::select! {
            begun = when_free(attempt) => Ok(begun),
            () = self.stop.cancelled() => Err(StepFailure::Stopped { killed: false }),
        };
        self.deadline.postpone(since.elapsed());
        begun
    }

    /// Runs a program that has to report its result.
    pub(super) async fn run_until_reported(
        &self,
        cmd: Cmd,
        name: StepName,
        shown: &str,
        report: ToolReport,
    ) -> Result<String, StepError> {
        let (kept, is_reported) = self
            .carry_out(self.supervised(cmd), name.clone(), shown, Some(report))
            .await?;
        if is_reported {
            return Ok(kept.text);
        }
        Err(StepError {
            step: name,
            why: StepFailure::Unreported(report.line()),
            output: kept.text,
        })
    }

    /// Runs a program to its end and returns its output, with a mark if the output was cut.
    pub async fn run_to_output(
        &self,
        cmd: Cmd,
        name: StepName,
        shown: &str,
    ) -> Result<KeptOutput, StepError> {
        self.carry_out(self.supervised(cmd), name, shown, None)
            .await
            .map(|(kept, _)| kept)
    }

    /// Runs a program to its end and writes at most `limit` bytes of its standard output to a file.
    pub async fn save(
        &self,
        cmd: Cmd,
        name: StepName,
        shown: &str,
        file: &Path,
        limit: u64,
    ) -> Result<(), StepError> {
        self.carry_out(
            self.supervised(cmd).stdout_within(file, limit),
            name,
            shown,
            None,
        )
        .await
        .map(drop)
    }

    fn supervised(&self, cmd: Cmd) -> Supervised {
        let cmd = cmd
            .envs(temporary(self.place.tmp))
            .limits(self.sandbox.limits())
            .owns([self.place.root, self.place.scratch, self.place.tmp])
            .deadline(self.deadline.left());
        let user = self.sandbox.user();
        let cmd = if user.is_some() {
            cmd.user(user).env_unless_set("HOME", self.place.tmp)
        } else {
            cmd
        };
        cmd.supervised(self.supervisor).hold(self.hold)
    }

    /// Runs a program to its end, also if it fails.
    pub(super) async fn run_to_end(&self, cmd: Cmd, shown: &str) -> EndedProgram {
        self.end(self.supervised(cmd), shown, None, ProgramKind::Any)
            .await
    }

    /// Runs the program. Returns the output, and true if the output contains the report.
    async fn carry_out(
        &self,
        run: Supervised,
        name: StepName,
        shown: &str,
        report: Option<ToolReport>,
    ) -> Result<(KeptOutput, bool), StepError> {
        self.end(run, shown, report, ProgramKind::Any)
            .await
            .output(name)
    }

    /// Runs a program that may run beside others.
    async fn end(
        &self,
        run: Supervised,
        shown: &str,
        report: Option<ToolReport>,
        kind: ProgramKind,
    ) -> EndedProgram {
        let attempt = || RunningProgram::try_begin(self.hold, kind);
        match self.begin(attempt, PROGRAM_WAITS).await {
            Ok(_running) => self.end_begun(run, shown, report).await,
            Err(why) => EndedProgram::not_run(why),
        }
    }

    async fn end_begun(
        &self,
        run: Supervised,
        shown: &str,
        report: Option<ToolReport>,
    ) -> EndedProgram {
        let mut line = format!("$ {shown}");
        if let Some(access) = self.registry {
            access.hide(&mut line);
        }
        self.output.push_line(&line).await;
        if let Err(error) = self.sandbox.hand_over(self.place).await {
            return EndedProgram::not_run(StepFailure::Disk(error));
        }
        let (lines, received) = mpsc::channel(256);
        let (exit, (kept, is_reported)) = tokio::join!(
            run.run(lines, self.stop),
            collect(received, self.output, report, self.registry)
        );
        let failure = match exit {
            Ok(exit) => self.failure_of(exit, &kept.text),
            Err(error) => Some(StepFailure::Process(error)),
        };
        EndedProgram {
            kept,
            is_reported,
            failure,
        }
    }

    /// Decides whether a program failed. A success counts even if the program was cancelled meanwhile: it had come to
    /// its end.
    fn failure_of(&self, exit: RunExit, output: &str) -> Option<StepFailure> {
        match exit.how {
            Ended::Finished | Ended::Cancelled | Ended::TimedOut if exit.is_success() => None,
            Ended::Finished => Some(match self.sandbox.reached(exit.signal, output) {
                Some(limit) => StepFailure::Limit {
                    code: exit.code,
                    limit,
                },
                None => StepFailure::Code(exit.code),
            }),
            Ended::Cancelled => Some(StepFailure::Stopped {
                killed: exit.signal == Some(SIGKILL),
            }),
            Ended::TimedOut => Some(StepFailure::TimedOut {
                after: self.deadline.after,
                killed: exit.signal == Some(SIGKILL),
            }),
        }
    }
}

/// Program that has ended.
pub(super) struct EndedProgram {
    pub kept: KeptOutput,
    /// True if the output contains the report that was looked for.
    pub is_reported: bool,
    /// Reason that the program failed; `None` if it succeeded.
    pub failure: Option<StepFailure>,
}

impl EndedProgram {
    fn not_run(why: StepFailure) -> Self {
        Self {
            kept: KeptOutput::default(),
            is_reported: false,
            failure: Some(why),
        }
    }

    /// Returns the output, and true if it contains the report that was looked for.
    #[expect(clippy::result_large_err, reason = "the callers return the same error")]
    fn output(self, name: StepName) -> Result<(KeptOutput, bool), StepError> {
        match self.failure {
            None => Ok((self.kept, self.is_reported)),
            Some(why) => Err(StepError {
                step: name,
                why,
                output: self.kept.text,
            }),
        }
    }
}

/// Output that is kept in memory for the comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::workflow) struct KeptOutput {
    pub text: String,
    /// True if the program printed more than was kept.
    pub is_cut: bool,
}

impl KeptOutput {
    /// Creates a value for complete output.
    pub fn whole(text: String) -> Self {
        Self {
            text,
            is_cut: false,
        }
    }
}

/// Passes lines to the store and looks for the report on standard output. Lines are kept for the comment up to the
/// first one that exceeds the limit.
async fn collect(
    mut lines: mpsc::Receiver<OutputLine>,
    output: &RunOutput,
    report: Option<ToolReport>,
    registry: Option<&RegistryAccess>,
) -> (KeptOutput, bool) {
    let (mut kept, mut is_reported) = (KeptOutput::default(), false);
    while let Some(mut line) = lines.recv().await {
        if let Some(access) = registry {
            access.hide(&mut line.text);
        }
        is_reported |= line.stream == OutputStream::Out
            && report.is_some_and(|report| report.is_in(&line.text));
        kept.is_cut |=
            line.stream == OutputStream::Notice || kept.text.len() + line.text.len() >= KEPT_BYTES;
        if !kept.is_cut {
            kept.text.push_str(&line.text);
            kept.text.push('\n');
        }
        output.push_line(&line.text).await;
    }
    (kept, is_reported)
}
