//! The only place that starts child processes.
//!
//! The need: `git` and Terraform are other people's programs, run on other people's files. Each must get exactly
//! the environment it was given, must not hang, flood memory or outlive the work it was started for, and must not
//! lose a Terraform state because somebody pulled the plug on the server.
//!
//! Three ways to run a [`Cmd`]:
//! - [`Cmd::output`] for short calls: output is captured up to a cap, a deadline ends the whole process group, and
//!   dropping the future kills it.
//! - [`Cmd::dialogue`] for a program that is asked many things, one after the other, with the same end.
//! - [`Cmd::supervised`] for runs: lines go to a channel, and between server and program stands a small supervisor
//!   (`lockkeeper supervise`, see [`supervise`]) that holds one end of a pipe, the *leash*.
//!
//! Invariants of a supervised run:
//! - *One way to stop.* Cancel, deadline, shutdown, a dropped future and a killed server all close the leash; the
//!   supervisor then sends SIGINT to the program's group and, after the grace period, SIGKILL.
//! - *No run without a right to run.* Where others may take work over, the leash carries renewals; when they stay away
//!   for as long as a lease lasts, the supervisor stops the program by itself, even if the server is paused ([`Pulse`]).
//! - *Nobody stays behind.* When the supervisor ends, every descendant of the program is dead.
//! - *The hold outlives the program.* The shared lock on the hold file is released after the last descendant is
//!   gone, even when the supervisor is killed, so [`Hold::exclusive`] is proof that no old run still touches the files
//!   it guards.
//! - *Output never kills.* The supervisor keeps reading the program's output when the server is gone: a program
//!   that saves its state after SIGINT is not ended half-way by SIGPIPE or a full pipe.
//!
//! What a child may touch and take is part of its [`Cmd`]: a [`Sandbox`] (enforced by the kernel) and [`Limits`].

mod bubblewrap;
mod cmd;
mod dialogue;
mod group;
mod hold;
mod limits;
mod lines;
mod output;
mod pulse;
mod run;
pub mod runs;
mod sandbox;
mod secret;
pub mod supervise;
mod together;
mod user;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use cmd::Cmd;
pub use dialogue::Dialogue;
pub use hold::{Hold, HoldError};
pub use limits::{Limits, Reached};
pub use output::{Captured, Output};
pub use pulse::{Beat, Pulse};
pub use run::{Exit, Line, MAX_LINE, Stream, Supervised, Supervisor};
pub use runs::Belongs;
pub use sandbox::{Kernel, Mechanism, Sandbox, is_within};

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The program ended by itself.
    Finished,
    /// The caller cancelled it; it may still have ended with success.
    Cancelled,
    /// It ran into its deadline.
    TimedOut,
}

/// Why a program could not be run to an end that has a status.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No such program.
    #[error("the program {program:?} was not found or is not executable (searched: {searched})")]
    NotFound {
        /// As it was asked for.
        program: OsString,
        /// The `PATH` of the command, or a phrase saying that there was none.
        searched: String,
    },
    /// The working directory is not there.
    #[error("cannot run {program:?} in {dir:?}: the directory does not exist")]
    NoDirectory {
        /// What should have run.
        program: OsString,
        /// Where.
        dir: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot start {program:?}")]
    Start {
        /// What should have run.
        program: OsString,
        /// Why not.
        source: io::Error,
    },
    /// Its output or status could not be read.
    #[error("lost contact with {program:?}")]
    Lost {
        /// What was running.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// A short call reached its deadline and was ended.
    #[error("{program:?} did not end within {} seconds and was stopped", .after.as_secs())]
    TimedOut {
        /// What was running.
        program: OsString,
        /// The deadline.
        after: Duration,
    },
    /// SIGKILL was sent and the process is still there: it hangs inside the kernel (a dead network disk). The hold
    /// file stays locked.
    #[error(
        "{program:?} cannot be ended (its supervisor is process {pid}); look for a disk that does not answer"
    )]
    WouldNotDie {
        /// What is running.
        program: OsString,
        /// Process id of the supervisor.
        pid: u32,
    },
}
