//! Finding the program that runs a project, in the right version (reference 12.3, without downloads).

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use semver::Version;

use super::ChildEnvironment;
use crate::model::Distribution;
use crate::process::{Cmd, ProcessError};

/// `version` answers in milliseconds; a program that does not is broken.
const VERSION_DEADLINE: Duration = Duration::from_secs(30);

/// A program and what it says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Absolute path.
    pub program: PathBuf,
    /// Terraform or OpenTofu.
    pub distribution: Distribution,
    /// Its version.
    pub version: Version,
}

/// Why there is no program to run a project with.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No executable of that name.
    #[error("no `{program}` was found in {searched}")]
    Missing {
        /// Name of the executable.
        program: String,
        /// Where was looked.
        searched: String,
    },
    /// There is one, but of another version.
    #[error("{title} {wanted} is asked for, and this server has {found}")]
    OtherVersion {
        /// `Terraform` or `OpenTofu`.
        title: &'static str,
        /// The version asked for.
        wanted: Version,
        /// The version found.
        found: Version,
    },
    /// It would not say what it is.
    #[error("`{program} version` did not answer with a version: {answer}")]
    Unreadable {
        /// The executable.
        program: String,
        /// What it said instead, cut to one line.
        answer: String,
    },
    /// It could not be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Finds programs in `--tf-bin-dir` and on the search path, and remembers what they said they are.
#[derive(Debug)]
pub struct Tools {
    dirs: Vec<PathBuf>,
    environment: ChildEnvironment,
    known: Mutex<HashMap<PathBuf, (Stamp, Version)>>,
}

/// Tells a program from another one that was put in its place while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(program: &Path) -> Option<Self> {
        let meta = std::fs::metadata(program).ok()?;
        let changed = (meta.ctime(), meta.ctime_nsec());
        Some(Self { device: meta.dev(), inode: meta.ino(), bytes: meta.len(), changed })
    }
}

impl Tools {
    /// Looks in `bin_dir` first, then along the `PATH` that children get.
    pub fn new(bin_dir: &Path, environment: ChildEnvironment) -> Self {
        let path = environment.path();
        let along_path = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
        let dirs = std::iter::once(bin_dir.to_owned()).chain(along_path).collect();
        Self { dirs, environment, known: Mutex::default() }
    }

    /// The program of a distribution: `terraform1.9.8` when that version is asked for and there is one, else `terraform`.
    pub async fn find(&self, distribution: Distribution, wanted: Option<&Version>) -> Result<Tool, ToolError> {
        let name = distribution.program();
        if let Some(wanted) = wanted
            && let Some(program) = self.look(&format!("{name}{wanted}"))
        {
            return self.check(program, distribution, Some(wanted)).await;
        }
        let Some(program) = self.look(name) else {
            return Err(ToolError::Missing { program: name.to_owned(), searched: self.searched() });
        };
        self.check(program, distribution, wanted).await
    }

    fn look(&self, name: &str) -> Option<PathBuf> {
        self.dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file())
    }

    fn searched(&self) -> String {
        let dirs: Vec<String> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        if dirs.is_empty() { "no directory (PATH is empty)".to_owned() } else { dirs.join(", ") }
    }

    async fn check(
        &self,
        program: PathBuf,
        distribution: Distribution,
        wanted: Option<&Version>,
    ) -> Result<Tool, ToolError> {
        let version = self.version_of(&program).await?;
        match wanted {
            Some(wanted) if *wanted != version => {
                Err(ToolError::OtherVersion { title: distribution.title(), wanted: wanted.clone(), found: version })
            }
            _ => Ok(Tool { program, distribution, version }),
        }
    }

    async fn version_of(&self, program: &Path) -> Result<Version, ToolError> {
        let stamp = Stamp::of(program);
        let known = self.known.lock().expect("no code panics while it holds the versions").get(program).cloned();
        if let Some((_, version)) = known.filter(|(known, _)| Some(*known) == stamp) {
            return Ok(version);
        }
        let version = self.ask_version(program).await?;
        if let Some(stamp) = stamp {
            let mut known = self.known.lock().expect("no code panics while it holds the versions");
            known.insert(program.to_owned(), (stamp, version.clone()));
        }
        Ok(version)
    }

    async fn ask_version(&self, program: &Path) -> Result<Version, ToolError> {
        let cmd = Cmd::new(program)
            .args(["version", "-json"])
            .envs(self.environment.iter())
            .env("CHECKPOINT_DISABLE", "1")
            .deadline(VERSION_DEADLINE);
        let output = cmd.output().await?;
        let answer: Option<VersionAnswer> = serde_json::from_slice(&output.stdout.bytes).ok();
        answer.map(|answer| answer.terraform_version).ok_or_else(|| ToolError::Unreadable {
            program: program.display().to_string(),
            answer: output.stdout.text().lines().chain(output.stderr.text().lines()).next().unwrap_or("").to_owned(),
        })
    }
}

/// Both distributions name the key so.
#[derive(serde::Deserialize)]
struct VersionAnswer {
    terraform_version: Version,
}
