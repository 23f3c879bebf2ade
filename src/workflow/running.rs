//! Tracks the programs that run in each checkout.
//!
//! All projects of a pull request share its checkout, and their programs can change everything in it. So the server trusts
//! nothing there for others if such a program ran meanwhile ([`ProgramObserver`]). An `init` that was checked before
//! such a program ran, and still runs, may run code that the program has put there. It counts like the program.
//!
//! An `init` that has credentials must not run together with such a program at all: the program could change the
//! configuration after the server has checked it, and before `init` reads it. Another `init` could do that too, because
//! it writes files of modules, and the configuration of one project can be a link to the modules of another one. So
//! there is in a checkout at a time:
//!
//! - any number of [`RunningProgram`]: programs that may run code of the pull request, and each `init` without credentials,
//! - or one [`TrustedInit`]: an `init` with credentials, from before its configuration is checked until it has ended.
//!
//! An `init` that waits does not keep further programs from starting. Each wait ends: a project that waits starts nothing else,
//! a command has so many projects, and each program has to end with its run. Nobody begins one while it has another, so
//! there is no deadlock.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Checkouts by their lock file, which belongs to one server.
static CHECKOUTS: LazyLock<Mutex<HashMap<PathBuf, Counts>>> = LazyLock::new(Mutex::default);

/// Wakes those who wait, after a program has ended in any checkout.
static ENDED: Notify = Notify::const_new();

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Number of programs that may run code of the pull request.
    running: usize,
    /// Number of such programs that were begun since these counts exist.
    begun: u64,
    observers: usize,
    /// Number of those observers that saw a program, so that what they observe for may run code of the pull request.
    doubtful: usize,
    inside: CheckoutPrograms,
}

impl Counts {
    fn are_needed(&self) -> bool {
        let is_used = match self.inside {
            CheckoutPrograms::Programs(count) => count > 0,
            CheckoutPrograms::TrustedInit => true,
        };
        is_used || self.observers > 0
    }
}

/// Programs that are in a checkout.
#[derive(Clone, Copy, Debug)]
enum CheckoutPrograms {
    Programs(usize),
    TrustedInit,
}

impl Default for CheckoutPrograms {
    fn default() -> Self {
        Self::Programs(0)
    }
}

/// Kind of a program that may run beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramKind {
    /// A program that may run code of the pull request.
    Any,
    /// An `init` without credentials that was found to run no such code.
    Init,
}

/// A program that runs until this is dropped.
pub(super) struct RunningProgram {
    hold: PathBuf,
    kind: ProgramKind,
}

/// An `init` with credentials, until this is dropped.
pub(super) struct TrustedInit {
    hold: PathBuf,
}

/// Observes the programs of a checkout for an `init`, from before its configuration is checked until it has ended.
pub struct ProgramObserver {
    hold: PathBuf,
    /// Number of programs that were begun before; `None` if something runs that may run code of the pull request.
    begun: Option<u64>,
}

fn checkouts() -> MutexGuard<'static, HashMap<PathBuf, Counts>> {
    CHECKOUTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the counts of a checkout, which are forgotten when nobody needs them.
fn change<T>(hold: &Path, change: impl FnOnce(&mut Counts) -> T) -> T {
    let mut all = checkouts();
    let counts = all.entry(hold.to_owned()).or_default();
    let changed = change(counts);
    if !counts.are_needed() {
        all.remove(hold);
    }
    changed
}

/// Calls `attempt` until it succeeds, again after each end of a program.
pub(super) async fn when_free<T>(attempt: impl Fn() -> Option<T>) -> T {
    loop {
        // It is made first, so that an end during the attempt wakes this task too.
        let ended = ENDED.notified();
        if let Some(begun) = attempt() {
            return begun;
        }
        ended.await;
    }
}

impl RunningProgram {
    /// Begins a program. Returns `None` while an `init` with credentials is in the checkout.
    pub fn try_begin(hold: &Path, kind: ProgramKind) -> Option<Self> {
        change(hold, |counts| {
            let CheckoutPrograms::Programs(count) = counts.inside else {
                return None;
            };
            counts.inside = CheckoutPrograms::Programs(count + 1);
            if kind == ProgramKind::Any {
                counts.running += 1;
                counts.begun += 1;
                counts.doubtful = counts.observers;
            }
            let hold = hold.to_owned();
            Some(Self { hold, kind })
        })
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        change(&self.hold, |counts| {
            if let CheckoutPrograms::Programs(count) = counts.inside {
                counts.inside = CheckoutPrograms::Programs(count.saturating_sub(1));
            }
            if self.kind == ProgramKind::Any {
                counts.running -= 1;
            }
        });
        ENDED.notify_waiters();
    }
}

impl TrustedInit {
    /// Begins an `init` with credentials. Returns `None` while anything else is in the checkout. Processes of earlier programs
    /// may be left there.
    pub fn try_begin(hold: &Path) -> Option<Self> {
        change(hold, |counts| match counts.inside {
            CheckoutPrograms::Programs(0) => {
                counts.inside = CheckoutPrograms::TrustedInit;
                Some(Self {
                    hold: hold.to_owned(),
                })
            }
            CheckoutPrograms::Programs(_) | CheckoutPrograms::TrustedInit => None,
        })
    }
}

impl Drop for TrustedInit {
    fn drop(&mut self) {
        change(&self.hold, |counts| {
            counts.inside = CheckoutPrograms::default();
        });
        ENDED.notify_waiters();
    }
}

impl ProgramObserver {
    /// Begins to observe the checkout with this lock file.
    pub fn begin(hold: &Path) -> Self {
        let begun = change(hold, |counts| {
            let is_clean = counts.running == 0 && counts.doubtful == 0;
            counts.observers += 1;
            counts.doubtful += usize::from(!is_clean);
            is_clean.then_some(counts.begun)
        });
        let hold = hold.to_owned();
        Self { hold, begun }
    }

    /// Returns true if no program of the pull request ran since this was made.
    pub fn saw_none(&self) -> bool {
        let now = checkouts().get(&self.hold).map(|counts| counts.begun);
        self.begun.is_some() && now == self.begun
    }
}

impl Drop for ProgramObserver {
    fn drop(&mut self) {
        change(&self.hold, |counts| {
            counts.observers -= 1;
            counts.doubtful -= usize::from(self.begun != Some(counts.begun));
        });
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    fn begin(hold: &Path) -> Option<RunningProgram> {
        RunningProgram::try_begin(hold, ProgramKind::Any)
    }

    #[test]
    fn an_observer_sees_every_program_of_its_checkout() {
        let (hold, other) = (Path::new("/x/of-this-test"), Path::new("/x/another"));
        let before = begin(hold).unwrap();
        let late = ProgramObserver::begin(hold);
        drop(before);
        assert!(!late.saw_none(), "one was running");
        let after = ProgramObserver::begin(hold);
        assert!(
            !after.saw_none(),
            "the `init` of the first one may run what that left"
        );
        drop((late, after));
        let observer = ProgramObserver::begin(hold);
        drop(begin(other).unwrap());
        drop(RunningProgram::try_begin(hold, ProgramKind::Init).unwrap());
        assert!(observer.saw_none());
        drop(begin(hold).unwrap());
        assert!(!observer.saw_none(), "one came and went");
        let after = ProgramObserver::begin(hold);
        assert!(!after.saw_none(), "its `init` may run what that left");
        drop((observer, after));
        assert!(!checkouts().contains_key(hold), "nothing is kept");
        assert!(ProgramObserver::begin(hold).saw_none());
    }

    #[tokio::test]
    async fn an_init_with_credentials_and_programs_wait_for_each_other() {
        let (hold, other) = (Path::new("/x/of-both"), Path::new("/x/of-nobody-else"));
        let programs = (
            begin(hold).unwrap(),
            RunningProgram::try_begin(hold, ProgramKind::Init).unwrap(),
        );
        let mut waiting = pin!(when_free(|| TrustedInit::try_begin(hold)));
        assert!(poll!(waiting.as_mut()).is_pending());
        drop(programs.0);
        assert!(poll!(waiting.as_mut()).is_pending(), "one is left");
        drop(programs.1);
        let first = waiting.await;
        let mut second = pin!(when_free(|| TrustedInit::try_begin(hold)));
        let mut late = pin!(when_free(|| begin(hold)));
        assert!(poll!(second.as_mut()).is_pending());
        assert!(poll!(late.as_mut()).is_pending());
        assert!(begin(other).is_some(), "it is another checkout");
        drop(first);
        drop(second.await);
        drop(late.await);
        assert!(!checkouts().contains_key(hold), "nothing is kept");
    }

    #[test]
    fn an_init_that_finds_a_program_lets_others_begin() {
        let hold = Path::new("/x/of-one-that-gives-up");
        drop(TrustedInit::try_begin(hold).unwrap());
        drop(begin(hold).unwrap());
        assert!(!checkouts().contains_key(hold), "nothing is kept");
    }
}
