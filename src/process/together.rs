//! Enforces limits on the total resources of a run's processes.
//!
//! The limits of the kernel (`setrlimit`) apply to each process alone: a run with a hundred processes could use a
//! hundred times as much. Control groups would count all processes. But a server in a container, or of an ordinary
//! user, can seldom create them. So the supervisor adds up the resources of all its descendants once a second.
//! Without the numbers in `/proc`, nothing is counted.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use rustix::param::clock_ticks_per_second;

use super::RunLimits;

/// Interval between two counts.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Message of the supervisor when a run exceeds its memory. The server recognises the limit by it.
pub(super) const MEMORY: &str = "the processes of this run use more memory than allowed";
/// Message for too many processes and threads.
pub(super) const PROCESSES: &str = "this run has more processes and threads than allowed";
/// Message for too much processor time.
pub(super) const CPU: &str =
    "this run, or passing its output on, used more processor time than allowed";

/// Ways to end a run.
pub(super) trait EndRun: Send + 'static {
    /// Ends the run at once.
    fn at_once(&self);
    /// Asks the run to end.
    fn interrupt(&self);
    /// Returns the time that the run has to clean up after an interrupt.
    fn grace(&self) -> Duration;
    /// Ends the run after it had time to clean up, or as soon as it may have no more time.
    fn in_order(&self, is_too_late: impl Fn() -> bool) {
        self.interrupt();
        let since = Instant::now();
        while let Some(left) = self.grace().checked_sub(since.elapsed()) {
            if is_too_late() {
                break;
            }
            thread::sleep(LOOK_EVERY.min(left));
        }
        self.at_once();
    }
}

/// Watches the descendants of this process from now on. Too much memory ends the largest process, as the kernel does
/// for a control group: a tool can still save its state after one of its providers was killed.
pub(super) fn watch(limits: RunLimits, run: impl EndRun) -> io::Result<()> {
    if limits.memory.is_none() && limits.processes.is_none() && limits.cpu.is_none() {
        return Ok(());
    }
    thread::Builder::new()
        .name("limits".to_owned())
        .spawn(move || {
            let mut has_said = false;
            loop {
                thread::sleep(LOOK_EVERY);
                let Ok(used) = UsedResources::by_descendants() else {
                    return;
                };
                if limits.processes.is_some_and(|most| used.tasks > most) {
                    report_end(PROCESSES);
                    return run.at_once();
                }
                if let Some(most) = limits.cpu
                    && (used.cpu > most || has_used_its_own(most))
                {
                    report_end(CPU);
                    return run.in_order(|| has_used_its_own(most));
                }
                if let Some((_, largest)) = used
                    .largest
                    .filter(|_| limits.memory.is_some_and(|most| used.memory > most))
                {
                    if !std::mem::replace(&mut has_said, true) {
                        report_end(MEMORY);
                    }
                    kill(largest, Signal::SIGKILL).ok();
                }
            }
        })?;
    Ok(())
}

/// Writes that a process is ended to standard error, which is that of the run.
#[expect(
    clippy::print_stderr,
    reason = "readers of the output of the run must see it"
)]
pub(super) fn report_end(what: &str) {
    eprintln!("Lockkeeper ends a process: {what}.");
}

/// Resources that processes use.
#[derive(Debug, Default, PartialEq, Eq)]
struct UsedResources {
    /// Bytes of memory, without pages of files on a disk.
    memory: u64,
    /// Number of processes and threads.
    tasks: u64,
    /// Processor time, including that of ended children.
    cpu: Duration,
    /// Memory in bytes and process id of the largest process.
    largest: Option<(u64, Pid)>,
}

impl UsedResources {
    fn by_descendants() -> io::Result<Self> {
        let own = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let mut used = Self {
            cpu: time_of(UsageWho::RUSAGE_CHILDREN)?,
            ..Self::default()
        };
        let mut files = HashSet::new();
        for pid in descendants(own, children) {
            // The process may have ended meanwhile.
            let read = |file: &str| {
                std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
            };
            if let Some(process) = ProcessStat::parse(&read("stat")) {
                let memory = memory(&read("status")) + memory_files(pid, &mut files);
                used.add(pid, memory, process);
            }
        }
        Ok(used)
    }

    fn add(&mut self, pid: i32, memory: u64, process: ProcessStat) {
        self.memory += memory;
        self.tasks += process.threads;
        self.cpu += process.cpu;
        self.largest = self.largest.max(Some((memory, Pid::from_raw(pid))));
    }
}

/// Returns true if this process, which passes output on, has used as much processor time as a process of the run may use.
/// The limit that the program inherits is also that of this process: a few seconds later the kernel would kill it, and what
/// it started would live on.
fn has_used_its_own(most: Duration) -> bool {
    time_of(UsageWho::RUSAGE_SELF).is_ok_and(|own| own > most)
}

/// Returns the processor time of this process, or of the ended processes that it waited for.
fn time_of(who: UsageWho) -> io::Result<Duration> {
    let usage = getrusage(who)?;
    let both = usage.user_time() + usage.system_time();
    Ok(Duration::from_millis(
        u64::try_from(both.num_milliseconds()).unwrap_or_default(),
    ))
}

/// Fields of a line of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    threads: u64,
    cpu: Duration,
}

impl ProcessStat {
    /// Parses a line. The name of the program is in parentheses and may contain anything; numbers follow the last
    /// parenthesis.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        // The fields are utime, stime, and the same of children that were waited for.
        let ticks = [11, 12, 13, 14]
            .into_iter()
            .map(number)
            .sum::<Option<u64>>()?;
        Some(Self {
            threads: number(17)?,
            cpu: of_ticks(ticks),
        })
    }
}

/// Returns the time of clock ticks, in which the kernel counts processor time.
pub(crate) fn of_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1000) / clock_ticks_per_second().max(1))
}

/// Returns the bytes of memory without pages of files, from `/proc/PID/status`. Shared memory counts for each process that
/// uses it.
fn memory(status: &str) -> u64 {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number =
            line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        number.unwrap_or_default()
    };
    kib("RssAnon:")
        .saturating_add(kib("RssShmem:"))
        .saturating_mul(1024)
}

/// Returns the bytes of the files in memory (`memfd_create`) that a process has open: nothing else counts those that it has
/// not mapped. A file that was counted before is left out.
fn memory_files(pid: i32, known: &mut HashSet<u64>) -> u64 {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let files = open.into_iter().flatten().flatten().filter_map(|entry| {
        let name = std::fs::read_link(entry.path()).ok()?;
        if !name.as_os_str().as_encoded_bytes().starts_with(b"/memfd:") {
            return None;
        }
        // The link leads to the file, which has no name elsewhere.
        let found = std::fs::metadata(entry.path()).ok()?;
        known.insert(found.ino()).then(|| found.blocks() * 512)
    });
    files.fold(0, u64::saturating_add)
}

/// Returns the children of all threads of a process. The function does not look at every process of the machine:
/// there may be thousands, and many runs at once.
pub(super) fn children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

pub(super) fn descendants(of: i32, children: impl Fn(i32) -> Vec<i32>) -> BTreeSet<i32> {
    let (mut found, mut left) = (BTreeSet::new(), vec![of]);
    while let Some(parent) = left.pop() {
        // Numbers are reused: lists read at different times could even form a cycle.
        left.extend(
            children(parent)
                .into_iter()
                .filter(|pid| *pid != of && found.insert(*pid))
                .collect::<Vec<_>>(),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A run that notes each request, and may clean up for an hour.
    #[derive(Clone, Default)]
    struct Patient(Arc<Mutex<Vec<&'static str>>>);

    impl EndRun for Patient {
        fn at_once(&self) {
            self.0.lock().unwrap().push("killed");
        }

        fn interrupt(&self) {
            self.0.lock().unwrap().push("interrupted");
        }

        fn grace(&self) -> Duration {
            Duration::from_hours(1)
        }
    }

    #[test]
    fn a_run_does_not_clean_up_at_the_cost_of_its_supervisor() {
        let run = Patient::default();
        run.in_order(|| true);
        assert_eq!(*run.0.lock().unwrap(), ["interrupted", "killed"]);
    }

    #[test]
    fn a_name_of_a_program_says_nothing_about_its_numbers() {
        let rest = "S 7 3 3 0 -1 0 0 0 0 0 100 50 25 25 20 0 4 0 0 0 0";
        let expected = ProcessStat {
            threads: 4,
            cpu: Duration::from_secs(2),
        };
        for name in ["sh", "a b", ") R 1 1", "((", ""] {
            assert_eq!(
                ProcessStat::parse(&format!("12 ({name}) {rest}")).as_ref(),
                Some(&expected),
                "{name}"
            );
        }
        for broken in ["", "12 (sh", "12 (sh) S", "12 (sh) S x"] {
            assert_eq!(ProcessStat::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn descendants_are_found_at_every_depth_and_nobody_else() {
        let all = [
            (1, 0),
            (5, 1),
            (6, 5),
            (7, 6),
            (8, 1),
            (9, 7),
            (20, 21),
            (21, 20),
        ];
        let children = |of: i32| {
            all.iter()
                .filter(|(_, parent)| *parent == of)
                .map(|(pid, _)| *pid)
                .collect()
        };
        assert_eq!(descendants(5, children), BTreeSet::from([6, 7, 9]));
        assert_eq!(descendants(20, children), BTreeSet::from([21]));
        assert_eq!(descendants(9, children), BTreeSet::new());
    }

    #[test]
    fn shared_memory_counts_and_pages_of_files_do_not() {
        let status = "Name:\tsh\nVmRSS:\t    900 kB\nRssAnon:\t     300 kB\nRssFile:\t     500 kB\nRssShmem:\t     100 kB\n";
        assert_eq!(memory(status), 400 * 1024);
        assert_eq!(memory("RssAnon:\t7 kB\n"), 7 * 1024);
        assert_eq!(memory("RssAnon:\tx kB\n"), 0);
        assert_eq!(memory(""), 0);
    }
}
