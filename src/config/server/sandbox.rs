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

/// Settings that name files and folders with secrets of the server, and the words for what is there.
const SECRET: [(&str, &str); 8] = [
    ("config", "the settings"),
    ("data-dir", "the data directory"),
    ("share-plan-dir", "the plan files"),
    ("encryption-key-file", "the keys"),
    ("gh-token-file", "the token"),
    ("gh-app-key-file", "the key of the App"),
    ("ssl-key-file", "the private key"),
    ("web-accounts-file", "the accounts"),
];

/// Settings that name what the server goes by: runs may read it, and must not change it.
const FIXED: [(&str, &str); 3] = [
    ("repo-config", "the rules for repositories"),
    ("ssl-cert-file", "the certificate"),
    ("audit-checkpoint-file", "the checkpoints of the audit log"),
];

/// A file or folder of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPath {
    /// Where it is; absolute.
    pub path: PathBuf,
    /// What it is, with its setting: ``the token (--gh-token-file)``.
    pub what: String,
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
    /// What settings name that no run may read.
    pub secret: Vec<OwnPath>,
    /// What settings name that no run may change.
    pub fixed: Vec<OwnPath>,
    /// Most memory of a run; `None`: three quarters of what the machine has.
    pub memory: Option<ByteSize>,
    /// Most processes and threads of a run, and of the user of the server; `None`: any number.
    pub processes: Option<u64>,
    /// Longest file.
    pub file_size: ByteSize,
    /// Most processor time of a run.
    pub cpu: Duration,
}

impl SandboxConfig {
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let kind = reader.choice("sandbox");
        let paths = |reader: &mut Reader<'_>, flag| -> Vec<PathBuf> {
            reader
                .list(flag)
                .iter()
                .map(|path| reader.raw().absolute(path))
                .collect()
        };
        let (read, write) = (
            paths(reader, "sandbox-read"),
            paths(reader, "sandbox-write"),
        );
        let named = |reader: &mut Reader<'_>, settings: &[(&'static str, &str)]| -> Vec<OwnPath> {
            let own = |&(flag, what): &(&'static str, &str)| {
                Some(OwnPath {
                    path: reader.path(flag)?,
                    what: format!("{what} (--{flag})"),
                })
            };
            settings.iter().filter_map(own).collect()
        };
        let (secret, fixed) = (named(reader, &SECRET), named(reader, &FIXED));
        let fix =
            "write the number of a user that only runs have, and of its group if that differs";
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
            secret,
            fixed,
            memory: memory?,
            processes: processes?.filter(|most| *most > 0),
            file_size: file_size?.expect("the size of files has a default"),
            cpu: cpu?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::{Kind, SETTINGS};

    /// Programs of runs; whether runs may change them is for the operator to say, as for the folders of `PATH`.
    const PROGRAMS: [&str; 1] = ["tf-bin-dir"];

    #[test]
    fn of_every_file_that_a_setting_names_it_is_known_whether_runs_may_read_it() {
        let named = |settings: &[(&'static str, &str)]| {
            settings.iter().map(|(flag, _)| *flag).collect::<Vec<_>>()
        };
        let mut known = [named(&SECRET), named(&FIXED), PROGRAMS.to_vec()].concat();
        let all = SETTINGS.iter().filter(|setting| setting.kind == Kind::Path);
        let mut all: Vec<&str> = all.map(|setting| setting.flag).collect();
        known.sort_unstable();
        all.sort_unstable();
        assert_eq!(known, all);
    }
}
