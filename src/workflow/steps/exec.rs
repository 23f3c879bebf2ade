//! Runs one program for a step or a hook: under the supervisor, within the time of the run, with every line on the
//! page.

use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::{StepError, StepFailure, StepName};
use crate::process::{Cmd, Ended, Exit, Line, Stream, Supervised, Supervisor};
use crate::workflow::RunOutput;

/// What is left when the grace period is over.
const SIGKILL: i32 = 9;
/// Most bytes of a step's output that are kept in memory for the comment; the page has all of it.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// When a run has to be over.
#[derive(Clone, Copy, Debug)]
pub(in crate::workflow) struct Deadline {
    at: Instant,
    /// The same as a span, for messages.
    after: Duration,
}

impl Deadline {
    pub fn after(time: Duration) -> Self {
        Self { at: Instant::now() + time, after: time }
    }

    fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

/// What the programs of one run have in common.
#[derive(Clone, Copy)]
pub(in crate::workflow) struct Exec<'a> {
    pub supervisor: &'a Supervisor,
    /// Held by the supervisor for as long as anything of the run lives.
    pub hold: &'a Path,
    pub output: &'a RunOutput,
    pub stop: &'a CancellationToken,
    pub deadline: Deadline,
}

impl Exec<'_> {
    /// Runs a program to its end and returns what it printed. `shown` is the line that the page has before it. With a
    /// file, standard output goes there and nowhere else.
    pub async fn run(&self, cmd: Cmd, name: StepName, shown: &str, file: Option<&Path>) -> Result<String, StepError> {
        let run = self.supervised(cmd);
        let run = match file {
            Some(file) => run.stdout_to(file),
            None => run,
        };
        self.carry_out(run, name, shown).await.map(|kept| kept.text)
    }

    /// Runs a program to its end and tells whether everything it printed was kept.
    pub async fn run_whole(&self, cmd: Cmd, name: StepName, shown: &str) -> Result<Kept, StepError> {
        self.carry_out(self.supervised(cmd), name, shown).await
    }

    /// Runs a program to its end, with no more than so many bytes of its standard output in a file.
    pub async fn save(&self, cmd: Cmd, name: StepName, shown: &str, file: &Path, limit: u64) -> Result<(), StepError> {
        self.carry_out(self.supervised(cmd).stdout_within(file, limit), name, shown).await.map(drop)
    }

    fn supervised(&self, cmd: Cmd) -> Supervised {
        cmd.deadline(self.deadline.left()).supervised(self.supervisor).hold(self.hold)
    }

    async fn carry_out(&self, run: Supervised, name: StepName, shown: &str) -> Result<Kept, StepError> {
        self.output.say(&format!("$ {shown}")).await;
        let (lines, received) = mpsc::channel(256);
        let (exit, kept) = tokio::join!(run.run(lines, self.stop), collect(received, self.output));
        let fail = |why, kept: Kept| StepError { step: name, why, output: kept.text };
        match exit {
            Ok(exit) => match self.judge(exit) {
                None => Ok(kept),
                Some(why) => Err(fail(why, kept)),
            },
            Err(error) => Err(fail(StepFailure::Process(error), kept)),
        }
    }

    /// A success counts even when the program was told to stop meanwhile: it had come to its end.
    fn judge(&self, exit: Exit) -> Option<StepFailure> {
        match exit.how {
            Ended::Finished | Ended::Cancelled | Ended::TimedOut if exit.is_success() => None,
            Ended::Finished => Some(StepFailure::Code(exit.code)),
            Ended::Cancelled => Some(StepFailure::Stopped { killed: exit.signal == Some(SIGKILL) }),
            Ended::TimedOut => Some(StepFailure::TimedOut(self.deadline.after)),
        }
    }
}

/// Output that is kept for the comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::workflow) struct Kept {
    /// The lines.
    pub text: String,
    /// Whether more was printed.
    pub is_cut: bool,
}

impl Kept {
    /// Output of which nothing is missing.
    pub fn whole(text: String) -> Self {
        Self { text, is_cut: false }
    }
}

/// Hands lines on to the store and keeps them for the comment, up to the first one for which there is no room.
async fn collect(mut lines: mpsc::Receiver<Line>, output: &RunOutput) -> Kept {
    let mut kept = Kept::default();
    while let Some(line) = lines.recv().await {
        kept.is_cut |= line.stream == Stream::Notice || kept.text.len() + line.text.len() >= KEPT_BYTES;
        if !kept.is_cut {
            kept.text.push_str(&line.text);
            kept.text.push('\n');
        }
        output.say(&line.text).await;
    }
    kept
}
