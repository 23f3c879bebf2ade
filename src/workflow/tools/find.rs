//! Finds a program on this machine, in the right version (reference 12.3).

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use semver::Version;
use tracing::warn;

use super::{ToolError, ToolInUse};
use crate::model::Distribution;
use crate::process::{CallOutput, Cmd, ProcessError};
use crate::workflow::ChildEnvironment;

/// Time limit for `version`. Programs answer in milliseconds; one that does not is broken.
const VERSION_DEADLINE: Duration = Duration::from_secs(30);

/// Number of retries, and time between them, for a program that is still open for writing.
const BUSY_TRIES: u32 = 50;
const BUSY_WAIT: Duration = Duration::from_millis(20);

/// A program with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTool {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Distribution of the program.
    pub distribution: Distribution,
    /// Version that the program reported.
    pub version: Version,
    /// Keeps the program on the disk, if it was downloaded.
    pub in_use: ToolInUse,
}

/// Finds programs in some directories and on the search path, and remembers their versions.
#[derive(Debug)]
pub(super) struct Programs {
    /// Directories to search. Those of the server come first.
    dirs: Vec<PathBuf>,
    /// Number of directories in `dirs` that belong to the server.
    own: usize,
    environment: ChildEnvironment,
    known: Mutex<HashMap<PathBuf, (FileIdentity, Version)>>,
}

/// Identity of a program file. It changes if another file is put in its place while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl FileIdentity {
    fn of(program: &Path) -> Option<Self> {
        let meta = std::fs::metadata(program).ok()?;
        let changed = (meta.ctime(), meta.ctime_nsec());
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            changed,
        })
    }
}

impl Programs {
    /// Creates a value that searches `first`, then the `PATH` of child processes.
    pub fn new(first: &[&Path], environment: ChildEnvironment) -> Self {
        let path = environment.path();
        let along_path = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
        let mut dirs: Vec<PathBuf> = Vec::new();
        let mut own = 0;
        for (at, dir) in first
            .iter()
            .map(|dir| dir.to_path_buf())
            .chain(along_path)
            .enumerate()
        {
            if !dirs.contains(&dir) {
                dirs.push(dir);
                own += usize::from(at < first.len());
            }
        }
        Self {
            dirs,
            own,
            environment,
            known: Mutex::default(),
        }
    }

    /// Returns the directories that are searched before the search path.
    pub fn own_dirs(&self) -> &[PathBuf] {
        &self.dirs[..self.own]
    }

    /// Finds the program of a distribution: `terraform1.9.8` if that version is requested and exists, else
    /// `terraform`.
    pub async fn find(
        &self,
        distribution: Distribution,
        wanted: Option<&Version>,
    ) -> Result<FoundTool, ToolError> {
        let name = distribution.program();
        if let Some(wanted) = wanted
            && let Some(program) = self.first_in_dirs(&format!("{name}{wanted}"))
        {
            return self.check(program, distribution, Some(wanted)).await;
        }
        let Some(program) = self.first_in_dirs(name) else {
            return Err(ToolError::Missing {
                program: name.to_owned(),
                searched: self.searched(),
            });
        };
        match (self.check(program, distribution, wanted).await, wanted) {
            // For example a script that chooses among versions and got none.
            (Err(error @ (ToolError::Unreadable { .. } | ToolError::Process(_))), Some(wanted)) => {
                let (title, wanted, error) =
                    (distribution.title(), wanted.clone(), Box::new(error));
                Err(ToolError::Unasked {
                    title,
                    wanted,
                    error,
                })
            }
            (checked, _) => checked,
        }
    }

    /// Lists the installed versions, sorted: those in the names of programs, and that of the program without a
    /// version in its name.
    pub async fn installed(&self, distribution: Distribution) -> Vec<Version> {
        let name = distribution.program();
        let mut versions: Vec<Version> = self
            .dirs
            .iter()
            .flat_map(|dir| named_versions(dir, name))
            .collect();
        match self.find(distribution, None).await {
            Ok(tool) => versions.push(tool.version),
            Err(error) if error.is_absence() => {}
            Err(error) => {
                warn!(%error, "A program does not report its version, so it is not used");
            }
        }
        versions.sort();
        versions.dedup();
        versions
    }

    /// Returns the first program of this name.
    pub fn first_in_dirs(&self, name: &str) -> Option<PathBuf> {
        self.dirs
            .iter()
            .map(|dir| dir.join(name))
            .find(|path| path.is_file())
    }

    /// Returns the searched directories, for messages.
    pub fn searched(&self) -> String {
        let dirs: Vec<String> = self
            .dirs
            .iter()
            .map(|dir| dir.display().to_string())
            .collect();
        if dirs.is_empty() {
            "no directory (PATH is empty)".to_owned()
        } else {
            dirs.join(", ")
        }
    }

    /// Asks a program for its version. A version other than the requested one is an error.
    pub async fn check(
        &self,
        program: PathBuf,
        distribution: Distribution,
        wanted: Option<&Version>,
    ) -> Result<FoundTool, ToolError> {
        let version = self.version_of(&program).await?;
        match wanted {
            Some(wanted) if *wanted != version => Err(ToolError::OtherVersion {
                title: distribution.title(),
                wanted: wanted.clone(),
                found: version,
            }),
            _ => Ok(FoundTool {
                program,
                distribution,
                version,
                in_use: ToolInUse::default(),
            }),
        }
    }

    /// Runs a program that answers at once, with the environment of programs.
    pub async fn run(&self, program: &Path, args: &[&str]) -> Result<CallOutput, ProcessError> {
        let cmd = Cmd::new(program)
            .args(args)
            .envs(self.environment.iter())
            .env("CHECKPOINT_DISABLE", "1")
            .deadline(VERSION_DEADLINE);
        patiently(&cmd).await
    }

    async fn version_of(&self, program: &Path) -> Result<Version, ToolError> {
        let stamp = FileIdentity::of(program);
        let known = self
            .known
            .lock()
            .expect("no code panics while it holds the versions")
            .get(program)
            .cloned();
        if let Some((_, version)) = known.filter(|(known, _)| Some(*known) == stamp) {
            return Ok(version);
        }
        let version = self.read_version(program).await?;
        if let Some(stamp) = stamp {
            let mut known = self
                .known
                .lock()
                .expect("no code panics while it holds the versions");
            known.insert(program.to_owned(), (stamp, version.clone()));
        }
        Ok(version)
    }

    async fn read_version(&self, program: &Path) -> Result<Version, ToolError> {
        let output = self.run(program, &["version", "-json"]).await?;
        answered(&output).ok_or_else(|| ToolError::Unreadable {
            program: program.display().to_string(),
            answer: output
                .stdout
                .text()
                .lines()
                .chain(output.stderr.text().lines())
                .next()
                .unwrap_or("")
                .to_owned(),
        })
    }
}

/// Parses the version in the answer of a program. Terraform before 0.13 does not support `-json` and answers with
/// text.
fn answered(output: &CallOutput) -> Option<Version> {
    let answer: Option<VersionAnswer> = serde_json::from_slice(&output.stdout.bytes).ok();
    match answer {
        Some(answer) => Some(answer.terraform_version),
        None if output.is_success() => output.stdout.text().lines().find_map(version_in),
        None => None,
    }
}

/// Parses a line such as `Terraform v0.12.31` (reference 12.1).
fn version_in(line: &str) -> Option<Version> {
    let version = ["Terraform v", "OpenTofu v"]
        .iter()
        .find_map(|title| line.strip_prefix(title))?;
    Version::parse(version.split_whitespace().next()?).ok()
}

/// Runs a command, with retries while the program is open for writing. A child process that was forked while the
/// program was being written keeps that file open until it starts its own program.
async fn patiently(cmd: &Cmd) -> Result<CallOutput, ProcessError> {
    for _ in 0..BUSY_TRIES {
        match cmd.output().await {
            Err(ProcessError::Start { source, .. })
                if source.kind() == ErrorKind::ExecutableFileBusy =>
            {
                tokio::time::sleep(BUSY_WAIT).await;
            }
            ended => return ended,
        }
    }
    cmd.output().await
}

/// Lists the versions in file names such as `terraform1.9.8`.
fn named_versions(dir: &Path, program: &str) -> Vec<Version> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let version = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let version = Version::parse(name.to_str()?.strip_prefix(program)?).ok()?;
        entry.path().is_file().then_some(version)
    };
    entries.filter_map(Result::ok).filter_map(version).collect()
}

/// Answer of `version -json`. Both distributions use this key.
#[derive(serde::Deserialize)]
struct VersionAnswer {
    terraform_version: Version,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_the_line_that_says_it() {
        for (line, expected) in [
            ("Terraform v0.12.31", "0.12.31"),
            ("Terraform v0.12.0-rc1", "0.12.0-rc1"),
            ("Terraform v0.12.0-dev (0a1b2c3d)", "0.12.0-dev"),
            ("OpenTofu v1.9.0", "1.9.0"),
            ("Terraform v", ""),
            ("Terraform vague", ""),
            ("+ provider.aws v2.70.0", ""),
            (
                "Your version of Terraform is out of date! The latest version",
                "",
            ),
            (
                "is Terraform v1.9.8. You can update by downloading from https://www.terraform.io",
                "",
            ),
        ] {
            assert_eq!(
                version_in(line)
                    .map(|version| version.to_string())
                    .unwrap_or_default(),
                expected,
                "{line}"
            );
        }
    }
}
