//! Manages the name of a data directory. A server gets another name with every start, but the files on the disk stay.
//! The database identifies the directory by its name.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use crate::model::DataDirId;
use crate::secret::{create_private, make_private};

/// File in the data directory that contains its name.
const FILE: &str = "replica-id";

/// Reason why a data directory has no name.
#[derive(Debug, thiserror::Error)]
pub enum DataDirIdError {
    /// The file cannot be read or created.
    #[error("cannot read or create {path}")]
    Io {
        /// Path of the file.
        path: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The file contains something other than a name.
    #[error(
        "{path} does not contain the name of a data directory. Restore the file, or delete it: then the mirrors of \
         this directory are checked again under a new name"
    )]
    Invalid {
        /// Path of the file.
        path: String,
    },
}

/// Returns the name of a data directory. It is created once, from the name of the server that uses the directory
/// first. Servers that start at the same moment all get the same name.
pub fn data_dir_id(data_dir: &Path, server: &str) -> Result<DataDirId, DataDirIdError> {
    let path = data_dir.join(FILE);
    let shown = path.display().to_string();
    // Earlier releases made the file readable for everybody.
    let text = make_private(&path).and_then(|_| match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(data_dir, &path, server),
        read => read,
    });
    let text = text.map_err(|source| DataDirIdError::Io {
        path: shown.clone(),
        source,
    })?;
    text.trim()
        .parse()
        .map_err(|_| DataDirIdError::Invalid { path: shown })
}

/// Creates the file. It is written beside its place and then linked, which fails if another server was faster. So no
/// reader ever gets half of it.
fn make(data_dir: &Path, path: &Path, server: &str) -> io::Result<String> {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = server.chars().map(plain).rev().take(64).collect();
    let name: String = name.chars().rev().collect();
    let beside = data_dir.join(format!("{FILE}.{name}"));
    // A server that was killed here may have left this file.
    fs::remove_file(&beside).ok();
    create_private(&beside)?.write_all(format!("{name}\n").as_bytes())?;
    let linked = fs::hard_link(&beside, path);
    fs::remove_file(&beside)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => fs::read_to_string(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_the_name_it_was_given_first() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            data_dir_id(dir.path(), "Host.A/1").unwrap().as_str(),
            "host-a-1"
        );
        assert_eq!(
            data_dir_id(dir.path(), "host-b-2").unwrap().as_str(),
            "host-a-1"
        );
        let files: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(files, [FILE]);
    }

    #[test]
    fn of_many_that_begin_at_once_all_get_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<DataDirId> = std::thread::scope(|scope| {
            let path = dir.path();
            let begin =
                |n: i32| scope.spawn(move || data_dir_id(path, &format!("host-{n}")).unwrap());
            let threads: Vec<_> = (0..8).map(begin).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(names.iter().all(|name| name == &names[0]), "{names:?}");
    }

    #[test]
    fn a_long_name_keeps_its_end_which_is_the_random_part() {
        let dir = tempfile::tempdir().unwrap();
        let name = data_dir_id(dir.path(), &format!("{}-0a1b", "x".repeat(90))).unwrap();
        assert!(
            name.as_str().len() == 64 && name.as_str().ends_with("x-0a1b"),
            "{name}"
        );
    }

    #[test]
    fn something_else_in_the_file_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "not a name!").unwrap();
        let error = data_dir_id(dir.path(), "host").unwrap_err().to_string();
        assert!(
            error.contains("replica-id") && error.contains("delete it"),
            "{error}"
        );
        fs::write(dir.path().join(FILE), "").unwrap();
        assert!(data_dir_id(dir.path(), "host").is_err());
    }
}
