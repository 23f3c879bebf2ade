//! Creates the temporary directories of a run and reads the files that its programs leave there.
//!
//! The files that a program leaves are as hostile as its code: with a link in place of the plan file, the server
//! would read a file of its own and pass its content to the next step. So files are opened without following links,
//! only if they are regular, and only up to a size.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use tempfile::TempDir;

use super::sandbox::RunPlace;

/// Maximum length of the path of a temporary directory inside the scratch directory. Plugins of Terraform create
/// sockets there, and the path of a socket has at most 107 bytes.
const LONGEST_TMP: usize = 60;

/// Directories of one run that only the user of the server can read.
pub(super) struct Scratch {
    dir: TempDir,
    tmp: Tmp,
    /// Directory with the configuration of the tools, if the server writes one.
    config: Option<TempDir>,
}

enum Tmp {
    Within(PathBuf),
    Beside(TempDir),
}

impl Scratch {
    /// Creates the directories in `top`.
    pub fn new(top: &Path) -> Result<Self> {
        std::fs::create_dir_all(top)?;
        let dir = tempfile::Builder::new().prefix("run-").tempdir_in(top)?;
        let within = dir.path().join("tmp");
        if within.as_os_str().len() <= LONGEST_TMP {
            std::fs::create_dir(&within)?;
            return Ok(Self {
                dir,
                tmp: Tmp::Within(within),
                config: None,
            });
        }
        let beside = tempfile::Builder::new().prefix("lockkeeper-").tempdir()?;
        Ok(Self {
            dir,
            tmp: Tmp::Beside(beside),
            config: None,
        })
    }

    /// Keeps a directory with the configuration of the tools for the run.
    pub fn with_config(self, config: Option<TempDir>) -> Self {
        Self { config, ..self }
    }

    /// Returns the directory of plan files and other files of the run.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the directory for temporary files of the programs.
    fn tmp(&self) -> &Path {
        match &self.tmp {
            Tmp::Within(path) => path,
            Tmp::Beside(dir) => dir.path(),
        }
    }

    /// Returns the directories of a run in a checkout.
    pub fn place<'a>(&'a self, root: &'a Path, mirror: &'a Path) -> RunPlace<'a> {
        RunPlace {
            root,
            mirror,
            scratch: self.dir(),
            tmp: self.tmp(),
            config: self.config.as_ref().map(TempDir::path),
            plan: None,
        }
    }
}

/// Reads a file of at most `most` bytes that programs of a run have left; `None` if it does not exist.
pub(super) async fn read(file: PathBuf, most: u64) -> Result<Option<Vec<u8>>> {
    let reading = move || {
        let Some(opened) = open(&file)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        opened.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            let what = format!(
                "{} is larger than the limit of {most} bytes",
                file.display()
            );
            return Err(Error::new(ErrorKind::FileTooLarge, what));
        }
        Ok(Some(bytes))
    };
    tokio::task::spawn_blocking(reading)
        .await
        .map_err(Error::other)?
}

/// Opens a regular file without following links; `None` if it does not exist.
pub(super) fn open(file: &Path) -> Result<Option<File>> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let opened = match OpenOptions::new().read(true).custom_flags(flags).open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if opened.metadata()?.is_file() {
        return Ok(Some(opened));
    }
    Err(Error::new(
        ErrorKind::InvalidData,
        format!("{} is not a regular file", file.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_regular_files_are_read_and_only_so_far() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("secret"), "hunter2").unwrap();
        std::os::unix::fs::symlink(at("secret"), at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read(at("absent"), 7).await.unwrap(), None);
        assert_eq!(
            read(at("secret"), 7).await.unwrap().as_deref(),
            Some(&b"hunter2"[..])
        );
        assert_eq!(
            read(at("secret"), 6).await.unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
        for name in ["link", "pipe", ""] {
            assert!(read(at(name), 7).await.is_err(), "{name}");
        }
    }

    #[test]
    fn a_run_has_a_short_temporary_directory_wherever_its_files_are() {
        let top = tempfile::tempdir().unwrap();
        for top in [top.path().to_owned(), top.path().join("x".repeat(80))] {
            let scratch = Scratch::new(&top).unwrap();
            let place = scratch.place(Path::new("/c"), Path::new("/m"));
            assert!(
                place.scratch.starts_with(&top) && place.tmp.is_dir(),
                "{place:?}"
            );
            assert!(
                place.tmp.as_os_str().len() <= 80 || !place.tmp.starts_with(&top),
                "{place:?}"
            );
        }
    }
}
