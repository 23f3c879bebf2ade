//! How much of the machine a run may take.
//!
//! The kernel holds each process to the limits (`setrlimit`), set by the supervisor right before it starts the program, so
//! they hold for everything the program starts, too. It counts processes for the user. What the processes of a run take
//! together is counted by the supervisor ([`super::together`]).

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::together;

/// Limits of a run; `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory that a run may have; one process, of its own (`RLIMIT_DATA`).
    pub memory: Option<u64>,
    /// Processes and threads that a run may have, and the user of the server (`RLIMIT_NPROC`; the kernel does not hold root
    /// to it).
    pub processes: Option<u64>,
    /// Bytes that a file may be long (`RLIMIT_FSIZE`).
    pub file_size: Option<u64>,
    /// Processor time of a run, and so of one process (`RLIMIT_CPU`), in whole seconds.
    pub cpu: Option<Duration>,
}

/// Limit that a program seems to have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// See [`Limits::memory`].
    Memory,
    /// See [`Limits::processes`].
    Processes,
    /// See [`Limits::file_size`].
    FileSize,
    /// See [`Limits::cpu`].
    Cpu,
}

/// Signals by which the kernel tells a program that it has reached a limit.
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

impl Limits {
    /// Options of `lockkeeper supervise` that say the same.
    pub(super) fn supervise_options(&self) -> Vec<OsString> {
        let numbers = [
            ("--memory", self.memory),
            ("--processes", self.processes),
            ("--file-size", self.file_size),
            ("--cpu", self.cpu.map(|cpu| cpu.as_secs().max(1))),
        ];
        let given = numbers
            .into_iter()
            .filter_map(|(name, number)| Some((name, number?)));
        given
            .flat_map(|(name, number)| [name.into(), number.to_string().into()])
            .collect()
    }

    /// Sets them for this process and all it starts. A limit that is lower already stays.
    pub(super) fn set(&self) -> io::Result<()> {
        for (resource, most) in [
            (Resource::RLIMIT_DATA, self.memory),
            (Resource::RLIMIT_NPROC, self.processes),
            (Resource::RLIMIT_FSIZE, self.file_size),
        ] {
            lower(resource, most, 0)?;
        }
        // The soft limit ends with a signal that says why; the hard one is for programs that go on all the same.
        lower(
            Resource::RLIMIT_CPU,
            self.cpu.map(|cpu| cpu.as_secs().max(1)),
            5,
        )
    }

    /// The limit that a failed program has probably reached: told by the signal that ended it, or by what programs print
    /// when the kernel refuses them memory, a process or more room in a file.
    pub fn reached(&self, signal: Option<i32>, output: &str) -> Option<Reached> {
        let said = |words: &[&str]| words.iter().any(|word| output.contains(word));
        if self.cpu.is_some() && (signal == Some(SIGXCPU) || said(&[together::CPU])) {
            return Some(Reached::Cpu);
        }
        if self.file_size.is_some()
            && (signal == Some(SIGXFSZ) || said(&["file too large", "File too large"]))
        {
            return Some(Reached::FileSize);
        }
        let no_memory = [
            together::MEMORY,
            "cannot allocate memory",
            "Cannot allocate memory",
            "out of memory",
            "memory exhausted",
        ];
        if self.memory.is_some() && said(&no_memory) {
            return Some(Reached::Memory);
        }
        let no_process = [
            together::PROCESSES,
            "resource temporarily unavailable",
            "Resource temporarily unavailable",
            "pthread_create failed",
            "Cannot fork",
            "may need to increase max user processes",
        ];
        (self.processes.is_some() && said(&no_process)).then_some(Reached::Processes)
    }
}

/// How much sooner than others the kernel ends a program when the machine has no memory left, of 1000.
const SOONER: i32 = 500;

/// Starts a program that the kernel ends before the server when the machine has no memory left: together, processes that
/// each keep to their limit can take all of it. Whoever may not say so starts it all the same.
pub(super) fn first_to_go<T>(start: impl FnOnce() -> T) -> T {
    const FILE: &str = "/proc/self/oom_score_adj";
    let own = std::fs::read_to_string(FILE)
        .ok()
        .and_then(|text| text.trim().parse::<i32>().ok());
    let Some(own) = own.filter(|own| *own < SOONER) else {
        return start();
    };
    // A program inherits it from the process that starts it.
    std::fs::write(FILE, SOONER.to_string()).ok();
    let started = start();
    std::fs::write(FILE, own.to_string()).ok();
    started
}

fn lower(resource: Resource, most: Option<u64>, spare: u64) -> io::Result<()> {
    let Some(most) = most else { return Ok(()) };
    let (soft, hard) = getrlimit(resource)?;
    Ok(setrlimit(
        resource,
        most.min(soft),
        most.saturating_add(spare).min(hard),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_by_its_signal_or_by_what_programs_say() {
        let all = Limits {
            memory: Some(1),
            processes: Some(1),
            file_size: Some(1),
            cpu: Some(Duration::from_secs(1)),
        };
        for (signal, output, expected) in [
            (Some(SIGXCPU), "", Some(Reached::Cpu)),
            (Some(SIGXFSZ), "", Some(Reached::FileSize)),
            (None, "write x: file too large", Some(Reached::FileSize)),
            (
                None,
                "fatal error: runtime: cannot allocate memory",
                Some(Reached::Memory),
            ),
            (
                None,
                "fork/exec /x: resource temporarily unavailable",
                Some(Reached::Processes),
            ),
            (Some(9), together::PROCESSES, Some(Reached::Processes)),
            (None, together::MEMORY, Some(Reached::Memory)),
            (None, together::CPU, Some(Reached::Cpu)),
            (Some(9), "killed", None),
            (None, "Error: Unsupported argument", None),
        ] {
            assert_eq!(all.reached(signal, output), expected, "{signal:?} {output}");
            assert_eq!(
                Limits::default().reached(signal, output),
                None,
                "there is no limit: {output}"
            );
        }
    }
}
