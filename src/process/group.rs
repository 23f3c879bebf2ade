//! Manages a child that leads a process group and ends the group with it.

use std::collections::BTreeSet;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::io::Errno;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::RunLimits;

/// Time that a short call has to clean up after SIGTERM (git removes its lock files then).
const GRACE: Duration = Duration::from_secs(2);

/// Running child with its group; dropping it kills both.
#[derive(Debug)]
pub(super) struct ChildGroup {
    pub(super) child: Child,
    id: Pid,
    has_namespaces: bool,
}

impl ChildGroup {
    /// Starts a command that leads its own group; in namespaces, `bwrap` waits for the program.
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

    /// Limits the program and everything that it starts. In namespaces, `bwrap` starts the program at this very moment. A
    /// process that was started before its parent was limited is found after that, so the search ends when it finds
    /// nothing new.
    pub(super) fn limit(&self, limits: RunLimits) -> io::Result<()> {
        let mut limited = BTreeSet::new();
        loop {
            let mut found = family(self.id);
            found.retain(|process| limited.insert(*process));
            if found.is_empty() {
                return Ok(());
            }
            for process in found {
                // Without a number, the limits would be those of the server.
                let Some(process) = rustix::process::Pid::from_raw(process.as_raw()) else {
                    continue;
                };
                match limits.set_for(Some(process)) {
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                    set => set?,
                }
            }
        }
    }

    /// Waits for the leader, then kills the rest of the group.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.signal(Signal::SIGKILL);
        status
    }

    /// Ends the group with SIGTERM, and with SIGKILL after [`GRACE`].
    pub(super) async fn stop(mut self) {
        self.terminate();
        if timeout(GRACE, self.wait()).await.is_err() {
            self.signal(Signal::SIGKILL);
            drop(self.child.wait().await);
        }
    }

    /// Sends SIGTERM to the programs. `bwrap` gets none, because it would then not wait for a program that cleans up.
    fn terminate(&self) {
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

    /// Signals the group and ignores errors: a group that has ended needs no signal.
    fn signal(&self, signal: Signal) {
        killpg(self.id, signal).ok();
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        // After the wait for the leader, its number may belong to another process.
        if self.child.id().is_some() {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Returns a process with everything that descends from it.
fn family(leader: Pid) -> Vec<Pid> {
    let mut family = vec![leader];
    let mut next = 0;
    while let Some(process) = family.get(next).copied() {
        family.extend(children(process).unwrap_or_default());
        next += 1;
    }
    family
}

/// Returns the children of the main thread of a process. Returns `None` if the process has ended or the kernel does
/// not list children (`CONFIG_PROC_CHILDREN`).
pub(super) fn children(id: Pid) -> Option<Vec<Pid>> {
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    Some(
        text.split_whitespace()
            .filter_map(|pid| pid.parse().ok().map(Pid::from_raw))
            .collect(),
    )
}
