//! The folder with all files of the demo: those of the servers, the emulated GitHub, states and the log.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tempfile::TempDir;

/// The folder of one demo.
pub(super) struct Folder {
    path: PathBuf,
    /// Removes the folder at the end; `None` for a folder that a person named.
    temporary: Option<TempDir>,
}

impl Folder {
    /// Opens the named folder, which must be empty because the demo begins with nothing, or else a temporary one.
    pub fn open(named: Option<&Path>) -> anyhow::Result<Self> {
        let folder = if let Some(path) = named {
            Self {
                path: empty(path)?,
                temporary: None,
            }
        } else {
            let made = tempfile::Builder::new()
                .prefix("lockkeeper-demo-")
                .tempdir();
            let made =
                made.context("cannot create a temporary folder; name a folder with --data-dir")?;
            Self {
                path: made.path().to_owned(),
                temporary: Some(made),
            }
        };
        for part in [
            folder.server(),
            folder.github(),
            folder.states(),
            folder.people(),
        ] {
            std::fs::create_dir(&part)
                .with_context(|| format!("cannot create the folder {}", part.display()))?;
        }
        Ok(folder)
    }

    /// Returns the data directory of the server.
    pub fn server(&self) -> PathBuf {
        self.path.join("server")
    }

    /// Returns the data directory of the second server.
    pub fn second_server(&self) -> PathBuf {
        self.path.join("second-server")
    }

    /// Returns the data directory of the server of the other deployment.
    pub fn deployment(&self) -> PathBuf {
        self.path.join("deployment")
    }

    /// Returns the file with the keys that encrypt the secrets of a deployment.
    pub fn keys(&self, of: &str) -> PathBuf {
        self.path.join(format!("keys-{of}"))
    }

    pub fn github(&self) -> PathBuf {
        self.path.join("github")
    }

    /// Returns the directory with the states of Terraform.
    pub fn states(&self) -> PathBuf {
        self.path.join("states")
    }

    /// Returns the directory with the clones of people, as if on their own machines.
    pub fn people(&self) -> PathBuf {
        self.path.join("people")
    }

    /// Returns the file with the log of the server.
    pub fn log(&self) -> PathBuf {
        self.path.join("lockkeeper.log")
    }

    /// Creates the log file.
    pub fn open_log(&self) -> anyhow::Result<File> {
        File::create(self.log()).with_context(|| format!("cannot write {}", self.log().display()))
    }

    /// Returns the last lines of the log.
    pub fn end_of_log(&self, lines: usize) -> Vec<String> {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..]
            .iter()
            .map(|line| (*line).to_owned())
            .collect()
    }

    /// Keeps the folder on the disk, so that a person can find out what went wrong.
    pub fn keep(&mut self) -> &Path {
        if let Some(temporary) = self.temporary.take() {
            drop(temporary.keep());
        }
        &self.path
    }
}

fn empty(path: &Path) -> anyhow::Result<PathBuf> {
    let cannot = || format!("cannot use the folder {} (--data-dir)", path.display());
    std::fs::create_dir_all(path).with_context(cannot)?;
    if std::fs::read_dir(path)
        .with_context(cannot)?
        .next()
        .is_some()
    {
        bail!(
            "the folder {} is not empty (--data-dir); name a new or empty folder",
            path.display()
        );
    }
    path.canonicalize().with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("precious"), "").unwrap();
        let error = Folder::open(Some(dir.path())).err().unwrap();
        assert!(error.to_string().contains("is not empty"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_temporary_folder_is_removed_unless_it_is_kept() {
        let mut kept = Folder::open(None).unwrap();
        let path = kept.keep().to_owned();
        drop(kept);
        assert!(path.is_dir());
        std::fs::remove_dir_all(path).unwrap();
        let gone = Folder::open(None).unwrap().server();
        assert!(!gone.exists());
    }
}
