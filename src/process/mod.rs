//! Starts all child processes; no other module may do so.
//!
//! The need: `git` and Terraform are foreign programs that work on foreign files. Each must get exactly the
//! environment it was given. None may hang, flood memory or outlive the work it was started for. None may lose a
//! Terraform state because the server was switched off.
//!
//! A [`Cmd`] runs in one of three ways:
//! - [`Cmd::output`] is for short calls. Output is captured up to a cap, a deadline ends the whole process group, and
//!   dropping the future kills it.
//! - [`Cmd::dialogue`] is for a program that answers many requests, one after the other. It ends in the same way.
//! - [`Cmd::supervised`] is for runs. Lines go to a channel, and a small supervisor stands between server and program
//!   (`lockkeeper supervise`, see [`supervise`]). It holds one end of a pipe, the *lifeline*.
//!
//! Invariants of a supervised run:
//! - *One way to stop.* Cancel, deadline, shutdown, a dropped future and a killed server all close the lifeline. The
//!   supervisor then sends SIGINT to the program's group and, after the grace period, SIGKILL.
//! - *No run without a right to run.* Where other servers may take work over, the lifeline carries renewals. Without a
//!   renewal for the length of a lease, the supervisor stops the program on its own, even if the server is paused
//!   ([`LeaseHeartbeat`]).
//! - *Nobody stays behind.* When the supervisor ends, every descendant of the program is dead.
//! - *The hold outlives the program.* The shared lock on the hold file is released after the last descendant has
//!   ended, even when the supervisor is killed. So [`FileHold::exclusive`] proves that no old run still uses the files it
//!   guards. A process of the run can release the lock that it inherited. Then the lock of the supervisor remains,
//!   which goes on until the last descendant has ended.
//! - *Output never kills.* The supervisor keeps reading the program's output after the server has ended. So SIGPIPE
//!   or a full pipe does not end a program that saves its state after SIGINT.
//!
//! Each [`Cmd`] also defines the access of its child, a [`Sandbox`] that the kernel enforces, and its [`RunLimits`].

mod bubblewrap;
mod cmd;
mod dialogue;
mod disk;
mod group;
mod heartbeat;
mod hold;
mod inherit;
mod ipc;
mod limits;
mod lines;
mod output;
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
pub use disk::DiskSpace;
pub use heartbeat::{LeaseHeartbeat, RenewalTime};
pub use hold::{FileHold, HoldError};
pub use inherit::reserve_secret_fd;
pub use limits::{ReachedLimit, RunLimits};
pub use output::{CallOutput, Captured};
pub use run::{MAX_LINE, OutputLine, OutputStream, RunExit, Supervised, Supervisor};
pub use runs::RunMembership;
pub use sandbox::{Kernel, Mechanism, Sandbox, is_within};
pub(crate) use together::of_ticks;
pub use user::{is_own_user, missing_rights};

/// Way in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The program ended without intervention.
    Finished,
    /// The caller cancelled the run; the program may still have ended with success.
    Cancelled,
    /// The run reached its deadline.
    TimedOut,
}

/// Reason why a program did not run to an end with a status.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The program was not found or is not executable.
    #[error("the program {program:?} was not found or is not executable (searched: {searched})")]
    NotFound {
        /// Program name of the command.
        program: OsString,
        /// The `PATH` of the command, or a phrase saying that there was none.
        searched: String,
    },
    /// The working directory does not exist.
    #[error("cannot run {program:?} in {dir:?}: the directory does not exist")]
    NoDirectory {
        /// Program of the command.
        program: OsString,
        /// Path of the missing directory.
        dir: PathBuf,
    },
    /// The kernel refused to start the program.
    #[error("cannot start {program:?}")]
    Start {
        /// Program of the command.
        program: OsString,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The output or status of the program could not be read.
    #[error("lost contact with {program:?}")]
    Lost {
        /// Program of the command.
        program: OsString,
        /// Error of the read.
        source: io::Error,
    },
    /// A short call reached its deadline and was ended.
    #[error("{program:?} did not end within {} seconds and was stopped", .after.as_secs())]
    TimedOut {
        /// Program of the command.
        program: OsString,
        /// Deadline of the command.
        after: Duration,
    },
    /// SIGKILL was sent and the process still exists: it hangs inside the kernel (a dead network disk). The hold file
    /// stays locked.
    #[error(
        "{program:?} cannot be stopped (its supervisor is process {pid}). Check for a disk that does not respond"
    )]
    WouldNotDie {
        /// Program of the command.
        program: OsString,
        /// Process id of the supervisor.
        pid: u32,
    },
}
