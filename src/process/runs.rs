//! Which processes belong to runs: those that descend from a supervisor of this server.
//!
//! A supervisor adopts what its program leaves behind, so a process of a run has the supervisor among its ancestors for as
//! long as it lives, whatever it does (fork twice, begin a session, enter a namespace). Only where the kernel kills the
//! supervisor itself, for want of memory, is what it leaves nobody's.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::process::Child;

/// Whose a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// A run's.
    ToRun,
    /// Somebody else's, for certain.
    Elsewhere,
    /// Nobody can tell: it ended, or an ancestor did, while its ancestors were looked at.
    Unknown,
}

/// Numbers of the supervisors of this process.
static SUPERVISORS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn supervisors() -> MutexGuard<'static, BTreeSet<i32>> {
    SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a supervisor. Whoever asks about processes meanwhile waits, so that nothing it starts is taken for somebody else's.
pub(super) fn start(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    let mut supervisors = supervisors();
    let child = spawn()?;
    supervisors.extend(child.id().and_then(|id| i32::try_from(id).ok()));
    Ok(child)
}

/// A supervisor was waited for.
pub(super) fn ended(id: u32) {
    if let Ok(id) = i32::try_from(id) {
        supervisors().remove(&id);
    }
}

/// Whether any run is under way.
pub fn any() -> bool {
    let mut supervisors = supervisors();
    let me = Pid::this().as_raw();
    // Those that nobody waits for are noticed here.
    supervisors.retain(|id| {
        Process::read(*id).is_ok_and(|process| process.parent == me && !process.has_ended)
    });
    !supervisors.is_empty()
}

/// Whose a process is, by its ancestors.
pub fn belongs(id: i32) -> Belongs {
    let me = Pid::this().as_raw();
    let (mut at, mut younger) = (id, u64::MAX);
    loop {
        if supervisors().contains(&at) {
            return Belongs::ToRun;
        }
        if at == me || at == 0 {
            return Belongs::Elsewhere;
        }
        let process = match Process::read(at) {
            Ok(process) => process,
            Err(Unread::Hidden) => return Belongs::Elsewhere,
            Err(Unread::Gone) => return Belongs::Unknown,
        };
        // Its number belonged to the real ancestor a moment ago.
        if process.began > younger {
            return Belongs::Unknown;
        }
        (at, younger) = (process.parent, process.began);
    }
}

/// A process in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    /// In ticks since the start of the machine.
    began: u64,
    /// Nobody has waited for it yet.
    has_ended: bool,
}

enum Unread {
    Gone,
    /// It is another user's, and the system does not show those.
    Hidden,
}

impl Process {
    fn read(id: i32) -> Result<Self, Unread> {
        match std::fs::read_to_string(PathBuf::from(format!("/proc/{id}/stat"))) {
            Ok(text) => Self::parse(&text).ok_or(Unread::Gone),
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    || error.kind() == ErrorKind::PermissionDenied =>
            {
                Err(if kill(Pid::from_raw(id), None) == Err(Errno::EPERM) {
                    Unread::Hidden
                } else {
                    Unread::Gone
                })
            }
            Err(_) => Err(Unread::Gone),
        }
    }

    /// The name of the program, in parentheses, may have any character.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // The 22nd field of all, and the state is the third.
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
        let process = Process {
            parent: 7,
            began: 98765,
            has_ended: false,
        };
        for name in ["sh", "a b", ") S 1 (", ""] {
            assert_eq!(
                Process::parse(&format!("42 ({name}) {fields}\n")),
                Some(process),
                "{name}"
            );
        }
        assert_eq!(
            Process::parse(&format!("42 (sh) {}", fields.replacen('S', "Z", 1)))
                .map(|p| p.has_ended),
            Some(true)
        );
        for bad in ["", "42 (sh", "42 (sh) S", "42 (sh) S x 1"] {
            assert_eq!(Process::parse(bad), None, "{bad}");
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
            (Belongs::Elsewhere, Belongs::Elsewhere, Belongs::Unknown)
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
        let mut other = start().unwrap();
        let (parent, child_of_other) = family(&mut other).await;
        assert_eq!(
            (belongs(parent), belongs(child_of_other)),
            (Belongs::Elsewhere, Belongs::Elsewhere)
        );
        let mut supervisor = super::start(start).unwrap();
        let (parent, child) = family(&mut supervisor).await;
        assert_eq!(
            (belongs(parent), belongs(child)),
            (Belongs::ToRun, Belongs::ToRun)
        );
        assert!(any() && supervisors().contains(&parent));
        // It ends, and whoever started it says nothing.
        kill(Pid::from_raw(parent), Signal::SIGKILL).unwrap();
        while Process::read(parent).is_ok_and(|process| !process.has_ended) {
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
