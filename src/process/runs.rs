//! Determines which processes belong to runs: those that descend from a supervisor of this server.
//!
//! A supervisor adopts the orphans of its program. So a process of a run always has the supervisor among its
//! ancestors, even if it forks twice, begins a session or enters a namespace. There is one exception: the kernel
//! kills the supervisor itself for lack of memory. Its orphans then belong to no run.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::process::Child;

use super::inherit::{self, Inherited, InheritedSecret};

/// Relation of a process to runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMembership {
    /// The process belongs to a run.
    ToRun,
    /// The process certainly does not belong to a run.
    Elsewhere,
    /// The answer is unknown: the process or an ancestor ended during the check.
    Unknown,
}

/// Process ids of this server's supervisors.
static SUPERVISORS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn supervisors() -> MutexGuard<'static, BTreeSet<i32>> {
    SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a supervisor. Concurrent calls of [`belongs`] wait, so that no process it starts is considered foreign.
pub(super) fn start(
    secret: Option<InheritedSecret>,
    spawn: impl FnOnce() -> io::Result<Child>,
) -> io::Result<Child> {
    let inherited = Inherited { hold: None, secret };
    inherit::start_with(inherited, || {
        let mut supervisors = supervisors();
        let child = spawn()?;
        supervisors.extend(child.id().and_then(|id| i32::try_from(id).ok()));
        Ok(child)
    })
}

/// Records that a supervisor was waited for.
pub(super) fn ended(id: u32) {
    if let Ok(id) = i32::try_from(id) {
        supervisors().remove(&id);
    }
}

/// Returns true if any run is under way.
pub fn any() -> bool {
    let mut supervisors = supervisors();
    let me = Pid::this().as_raw();
    // Supervisors whose end nobody waits for are removed here.
    supervisors.retain(|id| {
        ListedProcess::read(*id).is_ok_and(|process| process.parent == me && !process.has_ended)
    });
    !supervisors.is_empty()
}

/// Determines from the ancestors of a process whether it belongs to a run.
pub fn belongs(id: i32) -> RunMembership {
    let me = Pid::this().as_raw();
    let (mut at, mut younger) = (id, u64::MAX);
    loop {
        if supervisors().contains(&at) {
            return RunMembership::ToRun;
        }
        if at == me || at == 0 {
            return RunMembership::Elsewhere;
        }
        let process = match ListedProcess::read(at) {
            Ok(process) => process,
            Err(UnreadProcess::Hidden) => return RunMembership::Elsewhere,
            Err(UnreadProcess::Gone) => return RunMembership::Unknown,
        };
        // The number belonged to the real ancestor a moment ago.
        if process.began > younger {
            return RunMembership::Unknown;
        }
        (at, younger) = (process.parent, process.began);
    }
}

/// Process as listed in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListedProcess {
    parent: i32,
    /// Start time in ticks since the start of the machine.
    began: u64,
    /// True if the process has ended and its parent has not waited for it yet.
    has_ended: bool,
}

enum UnreadProcess {
    Gone,
    /// The process belongs to another user, and the system hides those.
    Hidden,
}

impl ListedProcess {
    fn read(id: i32) -> Result<Self, UnreadProcess> {
        match std::fs::read_to_string(PathBuf::from(format!("/proc/{id}/stat"))) {
            Ok(text) => Self::parse(&text).ok_or(UnreadProcess::Gone),
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    || error.kind() == ErrorKind::PermissionDenied =>
            {
                Err(if kill(Pid::from_raw(id), None) == Err(Errno::EPERM) {
                    UnreadProcess::Hidden
                } else {
                    UnreadProcess::Gone
                })
            }
            Err(_) => Err(UnreadProcess::Gone),
        }
    }

    /// Parses `/proc/PID/stat`. The name of the program, in parentheses, may contain any character.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // The start time is the 22nd of all fields, and the state is the third.
        let began = fields.nth(17)?.parse().ok()?;
        Some(Self {
            parent,
            began,
            has_ended: matches!(state, "Z" | "X"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use nix::sys::signal::Signal;
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;

    #[test]
    fn the_line_of_a_process_is_read_whatever_its_name_is() {
        let fields = "S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 10 11";
        let process = ListedProcess {
            parent: 7,
            began: 98765,
            has_ended: false,
        };
        for name in ["sh", "a b", ") S 1 (", ""] {
            assert_eq!(
                ListedProcess::parse(&format!("42 ({name}) {fields}\n")),
                Some(process),
                "{name}"
            );
        }
        assert_eq!(
            ListedProcess::parse(&format!("42 (sh) {}", fields.replacen('S', "Z", 1)))
                .map(|p| p.has_ended),
            Some(true)
        );
        for bad in ["", "42 (sh", "42 (sh) S", "42 (sh) S x 1"] {
            assert_eq!(ListedProcess::parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    #[expect(
        clippy::disallowed_methods,
        reason = "children of the test, as somebody else may have them"
    )]
    async fn a_process_belongs_to_the_run_that_it_descends_from() {
        let me = Pid::this().as_raw();
        assert_eq!(
            (belongs(me), belongs(1), belongs(i32::MAX)),
            (
                RunMembership::Elsewhere,
                RunMembership::Elsewhere,
                RunMembership::Unknown
            )
        );
        let start = || {
            let mut shell = tokio::process::Command::new("sh");
            shell
                .args(["-c", "sleep 1000 & echo $!; wait"])
                .stdout(Stdio::piped())
                .spawn()
        };
        let family = async |shell: &mut Child| {
            let mut line = String::new();
            let output = shell.stdout.take().expect("it is piped");
            BufReader::new(output).read_line(&mut line).await.unwrap();
            let parent = i32::try_from(shell.id().expect("nobody has waited for it")).unwrap();
            (parent, line.trim().parse::<i32>().unwrap())
        };
        let mut other = inherit::start_with(Inherited::default(), start).unwrap();
        let (parent, child_of_other) = family(&mut other).await;
        assert_eq!(
            (belongs(parent), belongs(child_of_other)),
            (RunMembership::Elsewhere, RunMembership::Elsewhere)
        );
        let mut supervisor = super::start(None, start).unwrap();
        let (parent, child) = family(&mut supervisor).await;
        assert_eq!(
            (belongs(parent), belongs(child)),
            (RunMembership::ToRun, RunMembership::ToRun)
        );
        assert!(any() && supervisors().contains(&parent));
        // The supervisor ends, and the code that started it reports nothing.
        kill(Pid::from_raw(parent), Signal::SIGKILL).unwrap();
        while ListedProcess::read(parent).is_ok_and(|process| !process.has_ended) {
            tokio::task::yield_now().await;
        }
        any();
        assert!(!supervisors().contains(&parent));
        for child in [child, child_of_other] {
            kill(Pid::from_raw(child), Signal::SIGKILL).unwrap();
        }
        supervisor.wait().await.unwrap();
        other.wait().await.unwrap();
    }
}
