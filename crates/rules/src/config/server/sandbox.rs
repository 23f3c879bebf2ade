//! Settings for the boundary around runs, and for the share of the machine that each run may use.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::reader::{ReadResult, SettingReader};
use crate::config::size::ByteSize;
use crate::model::RunUser;

/// Mechanism that separates runs from the server (`--sandbox`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxKind {
    /// Landlock, if the kernel has it. Otherwise runs are not separated, and the log says so.
    Landlock,
    /// Landlock. The server does not start without it.
    Require,
    /// Namespaces of the program `bwrap`. The server does not start without it.
    Bubblewrap,
    /// No separation of runs.
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

/// Settings that name files and folders with secrets of the server, and the words for their content.
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

/// Settings that name files that the server relies on. Runs may read them, but must not change them.
const FIXED: [(&str, &str); 3] = [
    ("repo-config", "the rules for repositories"),
    ("ssl-cert-file", "the certificate"),
    ("audit-checkpoint-file", "the checkpoints of the audit log"),
];

/// A file or folder of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPath {
    /// Absolute path of the file or folder.
    pub path: PathBuf,
    /// Description with its setting: ``the token (--gh-token-file)``.
    pub what: String,
}

/// Boundary around runs, and their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Mechanism of the separation.
    pub kind: SandboxKind,
    /// User of the processes of runs. `None` stands for the user of the server.
    pub run_as: Option<RunUser>,
    /// Additional files and directories that runs may read.
    pub read: Vec<PathBuf>,
    /// Additional files and directories that runs may change.
    pub write: Vec<PathBuf>,
    /// Files and folders of settings that no run may read.
    pub secret: Vec<OwnPath>,
    /// Files and folders of settings that no run may change.
    pub fixed: Vec<OwnPath>,
    /// Maximum memory of a run. `None` stands for three quarters of the machine's memory.
    pub memory: Option<ByteSize>,
    /// Maximum number of processes and threads of a run, and of the user of the server. `None` stands for no limit.
    pub processes: Option<u64>,
    /// Maximum size of a file that a run writes.
    pub file_size: ByteSize,
    /// Maximum processor time of a run.
    pub cpu: Duration,
}

impl SandboxConfig {
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let kind = reader.choice("sandbox");
        let paths = |reader: &mut SettingReader<'_>, flag| -> Vec<PathBuf> {
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
        let named =
            |reader: &mut SettingReader<'_>, settings: &[(&'static str, &str)]| -> Vec<OwnPath> {
                let own = |&(flag, what): &(&'static str, &str)| {
                    Some(OwnPath {
                        path: reader.path(flag)?,
                        what: format!("{what} (--{flag})"),
                    })
                };
                settings.iter().filter_map(own).collect()
            };
        let (secret, fixed) = (named(reader, &SECRET), named(reader, &FIXED));
        let fix = "write the number of a user that only runs use, and the number of its group if it differs";
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
    use crate::config::server::{SETTINGS, ValueKind};

    /// Settings that name programs of runs. The administrator decides whether runs may change them, as for the
    /// folders of `PATH`.
    const PROGRAMS: [&str; 1] = ["tf-bin-dir"];

    #[test]
    fn of_every_file_that_a_setting_names_it_is_known_whether_runs_may_read_it() {
        let named = |settings: &[(&'static str, &str)]| {
            settings.iter().map(|(flag, _)| *flag).collect::<Vec<_>>()
        };
        let mut known = [named(&SECRET), named(&FIXED), PROGRAMS.to_vec()].concat();
        let all = SETTINGS
            .iter()
            .filter(|setting| setting.kind == ValueKind::Path);
        let mut all: Vec<&str> = all.map(|setting| setting.flag).collect();
        known.sort_unstable();
        all.sort_unstable();
        assert_eq!(known, all);
    }
}
