//! A child that is the leader of a process group and takes the group with it.

use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long a short call may clean up after SIGTERM (git removes its lock files then).
const GRACE: Duration = Duration::from_secs(2);

/// A running child with its group; dropping it kills both.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) child: Child,
    id: Pid,
    has_namespaces: bool,
}

impl Group {
    /// Starts a command that was set up to lead its own group; in namespaces it is `bwrap` that waits for the program.
    pub(super) fn start(mut command: Command, has_namespaces: bool) -> std::io::Result<Self> {
        let child = command.kill_on_drop(true).spawn()?;
        let id = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .expect("a child that was not waited for has an id");
        Ok(Self {
            child,
            id: Pid::from_raw(id),
            has_namespaces,
        })
    }

    /// Waits for the leader, then ends whoever it left behind.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.signal(Signal::SIGKILL);
        status
    }

    /// Ends the group: politely first, by force after [`GRACE`].
    pub(super) async fn stop(mut self) {
        self.ask_to_end();
        if timeout(GRACE, self.wait()).await.is_err() {
            self.signal(Signal::SIGKILL);
            drop(self.child.wait().await);
        }
    }

    /// `bwrap` would not wait for a program that cleans up if it were asked as well.
    fn ask_to_end(&self) {
        let first = Some(self.id)
            .filter(|_| self.has_namespaces)
            .and_then(children);
        let programs = first.and_then(|first| children(*first.first()?));
        let Some(programs) = programs else {
            return self.signal(Signal::SIGTERM);
        };
        for program in programs {
            kill(program, Signal::SIGTERM).ok();
        }
    }

    /// A group that is gone already is what was wanted, so the answer does not matter.
    fn signal(&self, signal: Signal) {
        killpg(self.id, signal).ok();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Once the leader has been waited for its number may belong to somebody else.
        if self.child.id().is_some() {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Children of the main thread of a process; `None`: it is gone, or the kernel does not list them
/// (`CONFIG_PROC_CHILDREN`).
pub(super) fn children(id: Pid) -> Option<Vec<Pid>> {
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    Some(
        text.split_whitespace()
            .filter_map(|pid| pid.parse().ok().map(Pid::from_raw))
            .collect(),
    )
}
