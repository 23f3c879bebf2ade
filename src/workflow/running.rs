//! Counts the programs of pull requests that run in each checkout.
//!
//! All projects of a pull request share its checkout, and their programs can change everything in it. So the server trusts
//! nothing there for others if such a program ran meanwhile.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Programs by the lock file of their checkout, which belongs to one server.
static CHECKOUTS: LazyLock<Mutex<HashMap<PathBuf, Counts>>> = LazyLock::new(Mutex::default);

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    running: usize,
    /// Number of programs that were begun since these counts exist.
    begun: u64,
    observers: usize,
}

/// A program that runs until this is dropped.
pub(super) struct RunningProgram {
    hold: PathBuf,
}

/// Observes the programs of a checkout.
pub struct ProgramObserver {
    hold: PathBuf,
    /// Number of programs that were begun before; `None` if some are running.
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
    if counts.running == 0 && counts.observers == 0 {
        all.remove(hold);
    }
    changed
}

impl RunningProgram {
    pub fn begin(hold: &Path) -> Self {
        change(hold, |counts| {
            counts.running += 1;
            counts.begun += 1;
        });
        let hold = hold.to_owned();
        Self { hold }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        change(&self.hold, |counts| counts.running -= 1);
    }
}

impl ProgramObserver {
    /// Begins to observe the checkout with this lock file.
    pub fn begin(hold: &Path) -> Self {
        let begun = change(hold, |counts| {
            counts.observers += 1;
            (counts.running == 0).then_some(counts.begun)
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
        change(&self.hold, |counts| counts.observers -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_sees_every_program_of_its_checkout() {
        let (hold, other) = (Path::new("/x/of-this-test"), Path::new("/x/another"));
        let before = RunningProgram::begin(hold);
        let late = ProgramObserver::begin(hold);
        drop(before);
        assert!(!late.saw_none(), "one was running");
        let observer = ProgramObserver::begin(hold);
        drop(RunningProgram::begin(other));
        assert!(observer.saw_none());
        drop(RunningProgram::begin(hold));
        assert!(!observer.saw_none(), "one came and went");
        drop((late, observer));
        assert!(!checkouts().contains_key(hold), "nothing is kept");
    }
}
