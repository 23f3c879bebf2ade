//! Settings for the boundary around runs, and for the share of the machine that each run may use.

use std::path::PathBuf;
use std::time::Duration;

use super::SETTINGS;
use super::choice::choice;
use super::github_hosts::own_secret_files;
use super::reader::{ReadResult, SettingReader};
use super::section::{section, unless_zero};
use super::setting::RunAccess;
use crate::config::size::ByteSize;
use crate::model::RunUser;

choice! {
    /// Mechanism that separates runs from the server (`--sandbox`).
    pub enum SandboxKind {
        /// Landlock, if the kernel has it. Otherwise runs are not separated, and the log says so.
        Landlock = "landlock",
        /// Landlock. The server does not start without it.
        Require = "require",
        /// Namespaces of the program `bwrap`. The server does not start without it.
        Bubblewrap = "bubblewrap",
        /// No separation of runs.
        None = "none",
    }
}

/// A file or folder of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPath {
    /// Absolute path of the file or folder.
    pub path: PathBuf,
    /// Description with its setting: ``the token (--gh-token-file)``.
    pub what: String,
}

section! {
    /// Boundary around runs, and their limits.
    pub struct SandboxConfig in Terraform {
        /// Isolation of runs from the server: `landlock` uses Landlock if the kernel has it, `require` refuses to
        /// start without Landlock, `bubblewrap` uses namespaces of the program bwrap, `none` does not isolate runs
        /// (docs/security.md).
        pub kind: SandboxKind = choice("sandbox", "KIND", SandboxKind::WORDS).or("landlock"),

        /// Additional files and folders that runs may read, such as ~/.aws.
        pub read: Vec<PathBuf> = list("sandbox-read", "LIST"),

        /// Additional files and folders that runs may change, such as a socket or your own cache.
        pub write: Vec<PathBuf> = list("sandbox-write", "LIST"),

        /// Files and folders of all settings that no run may read, also those that the file of --gh-hosts-file names.
        pub secret: Vec<OwnPath> = computed by secret_paths,

        /// Files and folders of all settings that no run may change.
        pub fixed: Vec<OwnPath> = computed by fixed_paths,

        /// User and group of runs, instead of those of the server. The server must be root or have the rights to
        /// change them (docs/security.md).
        pub run_as: Option<RunUser> = text("run-as", "UID[:GID]") => read_run_as,

        /// Maximum memory of all processes of a run together.
        pub memory: Option<ByteSize> = size("run-memory").or_derived("three quarters of the machine's memory"),

        /// Maximum number of processes and threads of the server's user at which a run can start more; 0: no limit.
        pub processes: Option<u64> = number("run-processes", "NUMBER", 0, 1_000_000).or("4096") => unless_zero,

        /// Maximum size of a file that a run writes.
        pub file_size: ByteSize = size("run-file-size").or("10GiB"),

        /// Maximum disk space that the checkout and the temporary files of a run take.
        pub disk: Option<ByteSize> = size("run-disk").or_derived("half of the file system of --data-dir"),

        /// Maximum processor time of all processes of a run together.
        pub cpu: Duration = time("run-cpu-time").or("8h"),
    }
}

fn read_run_as(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Option<RunUser>> {
    let fix =
        "write the number of a user that only runs use, and the number of its group if it differs";
    reader.parsed(flag, str::parse, fix)
}

fn secret_paths(reader: &mut SettingReader<'_>) -> Vec<OwnPath> {
    let mut paths = own_paths(reader, |access| match access {
        RunAccess::None(what) => Some(what),
        RunAccess::Read(_) | RunAccess::AsOthers => None,
    });
    paths.extend(own_secret_files(reader.raw()));
    paths
}

fn fixed_paths(reader: &mut SettingReader<'_>) -> Vec<OwnPath> {
    own_paths(reader, |access| match access {
        RunAccess::Read(what) => Some(what),
        RunAccess::None(_) | RunAccess::AsOthers => None,
    })
}

/// Returns the files and folders that settings name, for the settings whose content `describe` describes.
fn own_paths(
    reader: &mut SettingReader<'_>,
    describe: impl Fn(RunAccess) -> Option<&'static str>,
) -> Vec<OwnPath> {
    let named = SETTINGS.iter().filter_map(|setting| {
        let what = setting.in_runs.and_then(&describe)?;
        Some(OwnPath {
            path: reader.path(setting.flag)?,
            what: format!("{what} (--{})", setting.flag),
        })
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::ValueKind;

    #[test]
    fn of_every_file_that_a_setting_names_it_is_known_whether_runs_may_read_it() {
        for setting in SETTINGS.iter() {
            assert_eq!(
                setting.in_runs.is_some(),
                setting.kind == ValueKind::Path,
                "--{}: may runs read or change it?",
                setting.flag
            );
        }
    }
}
