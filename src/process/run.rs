//! Runs long programs under a supervisor and streams their output line by line.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::lines::LineSplitter;
use super::runs;
use super::secret::SecretWriter;
use super::supervise::DRAIN;
use super::{Cmd, Ended, LeaseHeartbeat, ProcessError};

/// Maximum length of a line delivered in one piece, in bytes.
pub const MAX_LINE: usize = 64 * 1024;
/// Time that the supervisor may take beyond its grace period.
const MARGIN: Duration = DRAIN.saturating_add(Duration::from_secs(10));

/// Source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output of the program.
    Out,
    /// Standard error of the program.
    Err,
    /// Lockkeeper itself: a limit was reached.
    Notice,
}

/// Line of output, without its end. A line has at most [`MAX_LINE`] bytes (a little more where bytes had to be
/// replaced) and never contains NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputLine {
    pub stream: OutputStream,
    pub text: String,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunExit {
    /// Exit code; 128 + n when signal n ended the program. `None` when the program was not started, or when its
    /// supervisor itself was killed.
    pub code: Option<i32>,
    /// Signal that ended the program. A shell that reports a signal of its own child looks the same.
    pub signal: Option<i32>,
    /// Way in which the run ended.
    pub how: Ended,
    /// Time from start to end.
    pub duration: Duration,
}

impl RunExit {
    /// Returns true if the program reported success, even if it was cancelled.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    fn new(status: ExitStatus, how: Ended, duration: Duration) -> Self {
        let code = status.code();
        let signal = code.and_then(|code| (129..=192).contains(&code).then(|| code - 128));
        Self {
            code,
            signal,
            how,
            duration,
        }
    }
}

/// Settings of the supervisor, which stands between the server and a program that must not be cut off.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// Path of the `lockkeeper` executable.
    pub exe: PathBuf,
    /// Time between SIGINT and SIGKILL.
    pub grace: Duration,
    /// Right of the server to let the program run.
    pub heartbeat: LeaseHeartbeat,
}

/// Command that will run under a supervisor.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until it is run"]
pub struct Supervised {
    cmd: Cmd,
    supervisor: Supervisor,
    hold: Option<PathBuf>,
    stdout: Option<PathBuf>,
    /// Maximum number of bytes written to that file, if there is a limit.
    stdout_limit: Option<u64>,
}

impl Cmd {
    /// Puts the command under a supervisor.
    pub fn supervised(self, supervisor: &Supervisor) -> Supervised {
        Supervised {
            cmd: self,
            supervisor: supervisor.clone(),
            hold: None,
            stdout: None,
            stdout_limit: None,
        }
    }
}

impl Supervised {
    /// Names the file that the supervisor holds (shared) until the last process of the run has ended, see
    /// [`super::FileHold`].
    pub fn hold(mut self, file: impl Into<PathBuf>) -> Self {
        self.hold = Some(file.into());
        self
    }

    /// Writes standard output unchanged to a private file instead of sending it as lines.
    pub fn stdout_to(mut self, file: impl Into<PathBuf>) -> Self {
        self.stdout = Some(file.into());
        self
    }

    /// Writes standard output to a file as [`Self::stdout_to`] does, but at most `limit` bytes; the rest is read and
    /// discarded.
    pub fn stdout_within(mut self, file: impl Into<PathBuf>, limit: u64) -> Self {
        self.stdout_limit = Some(limit);
        self.stdout_to(file)
    }

    /// Runs the command to its end. Lines of one stream arrive in order. A slow receiver slows the program down, a
    /// dropped receiver does not. After the cap of the command, one [`OutputStream::Notice`] is sent, and the rest is read
    /// and discarded. Dropping the future closes the lifeline: the program then ends in the same graceful way,
    /// unobserved.
    pub async fn run(
        &self,
        lines: mpsc::Sender<OutputLine>,
        cancel: &CancellationToken,
    ) -> Result<RunExit, ProcessError> {
        let started = Instant::now();
        // This is the last check before the program starts: the server may have been paused since it got the right to
        // start it.
        if cancel.is_cancelled() || !self.supervisor.heartbeat.is_alive() {
            return Ok(RunExit {
                code: None,
                signal: None,
                how: Ended::Cancelled,
                duration: Duration::ZERO,
            });
        }
        let (mut child, _teller) = self.start()?;
        let (lifeline, stdout, stderr) = pipes(&mut child);
        let sink = Sink {
            lines,
            cap: self.cmd.cap,
            used: AtomicUsize::new(0),
        };
        let out = async {
            match (stdout, &self.stdout, self.stdout_limit) {
                (Some(stdout), Some(file), Some(limit)) => save(stdout, file, limit).await,
                (Some(stdout), _, _) => sink.pump(stdout, OutputStream::Out).await,
                (None, _, _) => Ok(()),
            }
        };
        let pumps = async { tokio::try_join!(out, sink.pump(stderr, OutputStream::Err)) };
        let pumps = async { pumps.await.map_err(|source| self.lost(source)) };
        let ((status, how), _) = tokio::try_join!(self.follow(child, lifeline, cancel), pumps)?;
        Ok(RunExit::new(status, how, started.elapsed()))
    }

    /// Starts the supervisor. The child can read its secret while the caller keeps the second value. The supervisor
    /// passes the descriptor on, like all descriptors that it inherits.
    fn start(&self) -> Result<(Child, Option<SecretWriter>), ProcessError> {
        debug!(command = ?self.cmd, "Starting a program under a supervisor");
        let program = self.cmd.resolve()?;
        let mut command = self.cmd.prepare(&self.supervisor.exe);
        command
            .arg("supervise")
            .arg("--grace")
            .arg(self.supervisor.grace.as_secs_f64().to_string());
        if let Some(file) = &self.hold {
            command.arg("--hold").arg(file);
        }
        if let Some(seconds) = self.supervisor.heartbeat.seconds_left() {
            command.arg("--lease").arg(seconds.to_string());
        }
        if let Some(sandbox) = &self.cmd.sandbox {
            command.args(sandbox.supervise_options());
        }
        if let Some(user) = self.cmd.user {
            command.arg("--run-as").arg(user.to_string());
        }
        command.args(self.cmd.limits.supervise_options());
        if self.cmd.limits.disk.is_some() {
            for place in &self.cmd.places {
                command.arg("--place").arg(place);
            }
        }
        command
            .arg("--")
            .arg(program)
            .args(self.cmd.argv())
            .stdin(Stdio::piped());
        let start = |source| ProcessError::Start {
            program: self.supervisor.exe.clone().into_os_string(),
            source,
        };
        if let (Some(file), None) = (&self.stdout, self.stdout_limit) {
            command.stdout(private_file(file).map_err(start)?);
        }
        let (secret, teller) = self.cmd.secret_for_child(&mut command).map_err(start)?;
        let child = runs::start(secret, || command.spawn()).map_err(start)?;
        Ok((child, teller))
    }

    async fn follow(
        &self,
        mut child: Child,
        mut lifeline: ChildStdin,
        cancel: &CancellationToken,
    ) -> Result<(ExitStatus, Ended), ProcessError> {
        let pid = child.id().unwrap_or_default();
        let how = tokio::select! {
            biased;
            status = child.wait() => {
                runs::ended(pid);
                return status.map(|status| (status, Ended::Finished)).map_err(|e| self.lost(e));
            }
            () = cancel.cancelled() => Ended::Cancelled,
            () = sleep(self.cmd.deadline) => Ended::TimedOut,
            () = self.pass_on_renewals(&mut lifeline) => Ended::Cancelled,
        };
        drop(lifeline);
        match timeout(self.supervisor.grace.saturating_add(MARGIN), child.wait()).await {
            Ok(status) => {
                runs::ended(pid);
                status
                    .map(|status| (status, how))
                    .map_err(|source| self.lost(source))
            }
            Err(_) => Err(ProcessError::WouldNotDie {
                program: self.cmd.program().to_owned(),
                pid,
            }),
        }
    }

    /// Passes renewals to the supervisor until the last one has expired.
    async fn pass_on_renewals(&self, lifeline: &mut ChildStdin) {
        let heartbeat = &self.supervisor.heartbeat;
        let mut beats = heartbeat.listen();
        let beating = async {
            while beats.changed().await.is_ok() {
                // A supervisor that no longer reads has ended.
                if let Some(seconds) = heartbeat.seconds_left() {
                    lifeline.write_all(&[seconds]).await.ok();
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = beating => {}
            () = heartbeat.ran_out() => {}
        }
    }

    fn lost(&self, source: std::io::Error) -> ProcessError {
        ProcessError::Lost {
            program: self.cmd.program().to_owned(),
            source,
        }
    }
}

/// Takes the pipes of a child. Standard output is missing if it goes into a file.
fn pipes(child: &mut Child) -> (ChildStdin, Option<ChildStdout>, ChildStderr) {
    let lifeline = child.stdin.take().expect("standard input is piped");
    let stderr = child.stderr.take().expect("standard error is piped");
    (lifeline, child.stdout.take(), stderr)
}

/// Creates a new private file. An earlier program of the run may have put a link in its place: the link is removed,
/// and its target stays.
fn private_file(path: &Path) -> std::io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Writes the data of a pipe into a private file, at most `limit` bytes.
async fn save(mut pipe: impl AsyncRead + Unpin, file: &Path, limit: u64) -> std::io::Result<()> {
    let mut file = tokio::fs::File::from_std(private_file(file)?);
    tokio::io::copy(&mut (&mut pipe).take(limit), &mut file).await?;
    file.flush().await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink())
        .await
        .map(drop)
}

/// Destination of both streams of a run.
struct Sink {
    lines: mpsc::Sender<OutputLine>,
    cap: usize,
    used: AtomicUsize,
}

impl Sink {
    async fn pump(
        &self,
        mut pipe: impl AsyncRead + Unpin,
        stream: OutputStream,
    ) -> std::io::Result<()> {
        let mut lines = LineSplitter::new(MAX_LINE);
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let n = pipe.read(&mut buffer).await?;
            if n == 0 {
                break;
            }
            self.deliver(stream, lines.push(&buffer[..n])).await;
        }
        self.deliver(stream, lines.finish()).await;
        Ok(())
    }

    async fn deliver(&self, stream: OutputStream, lines: impl IntoIterator<Item = String>) {
        for text in lines {
            let size = text.len() + 1;
            let before = self.used.fetch_add(size, Ordering::Relaxed);
            let line = if before + size <= self.cap {
                OutputLine { stream, text }
            } else if before <= self.cap {
                // Only one line can cross the cap, so the notice appears once.
                let text = format!(
                    "The output is longer than {} bytes. The rest is not stored.",
                    self.cap
                );
                OutputLine {
                    stream: OutputStream::Notice,
                    text,
                }
            } else {
                continue;
            };
            // Without a listener, reading goes on so that the program can end.
            self.lines.send(line).await.ok();
        }
    }
}
