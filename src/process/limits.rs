//! Limits the resources of a run.
//!
//! The supervisor sets the limits (`setrlimit`) right before it starts the program, and the kernel enforces them for
//! each process. So they apply to everything that the program starts, too. The kernel counts processes per user. The
//! supervisor adds up the use of all processes of a run ([`super::together`]), and the space of its files
//! ([`super::disk`]). A short call has no supervisor: its limits are set right after its start (`prlimit`), and it gets its
//! input only then.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::{disk, together};

/// Limits of a run; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// Bytes of memory that a run may have. It also limits the data of each process (`RLIMIT_DATA`).
    pub memory: Option<u64>,
    /// Number of processes and threads that a run may have. It also limits all processes of the user of the server
    /// (`RLIMIT_NPROC`, which the kernel does not enforce for root).
    pub processes: Option<u64>,
    /// Maximum size of a file in bytes (`RLIMIT_FSIZE`).
    pub file_size: Option<u64>,
    /// Disk space in bytes that the places of a run may take, if it has a supervisor.
    pub disk: Option<u64>,
    /// Processor time of a run, and so of each process (`RLIMIT_CPU`), in whole seconds.
    pub cpu: Option<Duration>,
}

/// Limit that a program seems to have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// Memory limit, see [`RunLimits::memory`].
    Memory,
    /// Process limit, see [`RunLimits::processes`].
    Processes,
    /// File size limit, see [`RunLimits::file_size`].
    FileSize,
    /// Limit of disk space, see [`RunLimits::disk`].
    Disk,
    /// Processor time limit, see [`RunLimits::cpu`].
    Cpu,
}

/// Signals with which the kernel reports a reached limit to a program.
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

impl RunLimits {
    /// Returns the same limits as options of `lockkeeper supervise`.
    pub(super) fn supervise_options(&self) -> Vec<OsString> {
        let numbers = [
            ("--memory", self.memory),
            ("--processes", self.processes),
            ("--file-size", self.file_size),
            ("--disk", self.disk),
            ("--cpu", self.cpu.map(|cpu| cpu.as_secs().max(1))),
        ];
        let given = numbers
            .into_iter()
            .filter_map(|(name, number)| Some((name, number?)));
        given
            .flat_map(|(name, number)| [name.into(), number.to_string().into()])
            .collect()
    }

    /// Sets the limits for this process and all processes it starts. A limit that is already lower stays.
    pub(super) fn set(&self) -> io::Result<()> {
        self.set_for(None)
    }

    /// Sets the limits for a child of this process, which has inherited those of this one, and for all processes that it
    /// starts from then on. `None` stands for this process.
    pub(super) fn set_for(&self, child: Option<Pid>) -> io::Result<()> {
        // The soft limit sends a signal that shows the reason; the hard limit is for programs that ignore it.
        let cpu = self.cpu.map(|cpu| cpu.as_secs().max(1));
        for (resource, most, spare) in [
            (Resource::Data, self.memory, 0),
            (Resource::Nproc, self.processes, 0),
            (Resource::Fsize, self.file_size, 0),
            (Resource::Cpu, cpu, 5),
        ] {
            let Some(most) = most else { continue };
            let lower = |most: u64, own: Option<u64>| Some(own.map_or(most, |own| own.min(most)));
            let own = getrlimit(resource);
            let limit = Rlimit {
                current: lower(most, own.current),
                maximum: lower(most.saturating_add(spare), own.maximum),
            };
            prlimit(child, resource, limit)?;
        }
        Ok(())
    }

    /// Returns the limit that a failed program has probably reached. The evidence is the signal that ended it, or the
    /// usual error messages when the kernel refuses memory, a process or more room in a file.
    pub fn reached(&self, signal: Option<i32>, output: &str) -> Option<ReachedLimit> {
        let said = |words: &[&str]| words.iter().any(|word| output.contains(word));
        if self.cpu.is_some() && (signal == Some(SIGXCPU) || said(&[together::CPU])) {
            return Some(ReachedLimit::Cpu);
        }
        if self.disk.is_some() && said(&[disk::DISK]) {
            return Some(ReachedLimit::Disk);
        }
        if self.file_size.is_some()
            && (signal == Some(SIGXFSZ) || said(&["file too large", "File too large"]))
        {
            return Some(ReachedLimit::FileSize);
        }
        let no_memory = [
            together::MEMORY,
            "cannot allocate memory",
            "Cannot allocate memory",
            "out of memory",
            "memory exhausted",
        ];
        if self.memory.is_some() && said(&no_memory) {
            return Some(ReachedLimit::Memory);
        }
        let no_process = [
            together::PROCESSES,
            "resource temporarily unavailable",
            "Resource temporarily unavailable",
            "pthread_create failed",
            "Cannot fork",
            "may need to increase max user processes",
        ];
        (self.processes.is_some() && said(&no_process)).then_some(ReachedLimit::Processes)
    }
}

/// Out-of-memory score of programs, from 0 to 1000. With a higher score, the kernel ends a process sooner.
const SOONER: i32 = 500;

/// Starts a program that the kernel ends before the server when the machine has no memory left. Processes that keep
/// their own limits can still use all memory together. If the score cannot be written, the program is started anyway.
pub(super) fn first_to_go<T>(start: impl FnOnce() -> T) -> T {
    const FILE: &str = "/proc/self/oom_score_adj";
    let own = std::fs::read_to_string(FILE)
        .ok()
        .and_then(|text| text.trim().parse::<i32>().ok());
    let Some(own) = own.filter(|own| *own < SOONER) else {
        return start();
    };
    // A program inherits the score from the process that starts it.
    std::fs::write(FILE, SOONER.to_string()).ok();
    let started = start();
    std::fs::write(FILE, own.to_string()).ok();
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_by_its_signal_or_by_what_programs_say() {
        let all = RunLimits {
            memory: Some(1),
            processes: Some(1),
            file_size: Some(1),
            disk: Some(1),
            cpu: Some(Duration::from_secs(1)),
        };
        for (signal, output, expected) in [
            (Some(SIGXCPU), "", Some(ReachedLimit::Cpu)),
            (Some(SIGXFSZ), "", Some(ReachedLimit::FileSize)),
            (
                None,
                "write x: file too large",
                Some(ReachedLimit::FileSize),
            ),
            (
                None,
                "fatal error: runtime: cannot allocate memory",
                Some(ReachedLimit::Memory),
            ),
            (
                None,
                "fork/exec /x: resource temporarily unavailable",
                Some(ReachedLimit::Processes),
            ),
            (Some(9), together::PROCESSES, Some(ReachedLimit::Processes)),
            (None, together::MEMORY, Some(ReachedLimit::Memory)),
            (None, together::CPU, Some(ReachedLimit::Cpu)),
            (Some(2), disk::DISK, Some(ReachedLimit::Disk)),
            (Some(9), "killed", None),
            (None, "Error: Unsupported argument", None),
        ] {
            assert_eq!(all.reached(signal, output), expected, "{signal:?} {output}");
            assert_eq!(
                RunLimits::default().reached(signal, output),
                None,
                "there is no limit: {output}"
            );
        }
    }
}
