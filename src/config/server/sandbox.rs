//! The boundary around runs, and how much of the machine each may take.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::reader::{Read, Reader};
use crate::config::size::ByteSize;
use crate::model::RunUser;

/// What separates runs from the server (`--sandbox`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxKind {
    /// Landlock where the kernel has it; where it has not, runs are not separated, and the log says so.
    Landlock,
    /// Landlock, or the server does not start.
    Require,
    /// Namespaces made by the program `bwrap`, or the server does not start.
    Bubblewrap,
    /// Nothing.
    None,
}

impl FromStr for SandboxKind {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "landlock" => Ok(Self::Landlock),
            "require" => Ok(Self::Require),
            "bubblewrap" => Ok(Self::Bubblewrap),
            "none" => Ok(Self::None),
            _ => Err(()),
        }
    }
}

/// The boundary around runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxConfig {
    /// What holds it.
    pub kind: SandboxKind,
    /// Who runs are; `None`: the user of the server.
    pub run_as: Option<RunUser>,
    /// Files and directories that runs may read besides.
    pub read: Vec<PathBuf>,
    /// Files and directories that runs may change besides.
    pub write: Vec<PathBuf>,
    /// Most memory of a process; `None`: three quarters of what the machine has.
    pub memory: Option<ByteSize>,
    /// Most processes and threads of the user of the server; `None`: any number.
    pub processes: Option<u64>,
    /// Longest file.
    pub file_size: ByteSize,
    /// Most processor time of a process.
    pub cpu: Duration,
}

impl SandboxConfig {
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let kind = reader.choice("sandbox");
        let paths = |reader: &mut Reader<'_>, flag| -> Vec<PathBuf> {
            reader.list(flag).iter().map(|path| reader.raw().absolute(path)).collect()
        };
        let (read, write) = (paths(reader, "sandbox-read"), paths(reader, "sandbox-write"));
        let fix = "write the number of a user that only runs have, and of its group if that differs";
        let run_as = reader.parsed("run-as", str::parse::<RunUser>, fix);
        let memory = reader.size("run-memory");
        let processes = reader.number::<u64>("run-processes");
        let file_size = reader.size("run-file-size");
        let cpu = reader.duration("run-cpu-time");
        Ok(Self {
            kind: kind?.expect("the sandbox has a default"),
            run_as: run_as?,
            read,
            write,
            memory: memory?,
            processes: processes?.filter(|most| *most > 0),
            file_size: file_size?.expect("the size of files has a default"),
            cpu: cpu?,
        })
    }
}
