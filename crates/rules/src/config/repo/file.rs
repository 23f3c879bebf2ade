//! Finds the configuration file of a repository: `lockkeeper.yaml`, or `atlantis.yaml` as in Atlantis.

use crate::config::yaml::quoted;
use crate::model::RepoPath;

/// Names of a configuration file in the root of the repository.
pub const FILE_NAMES: [&str; 2] = ["lockkeeper.yaml", "atlantis.yaml"];

/// Names that look right but are not read (reference 3.1).
const NEAR_MISSES: [&str; 2] = ["lockkeeper.yml", "atlantis.yml"];

/// All names that [`find`] looks for.
pub const CANDIDATES: [&str; 4] = [FILE_NAMES[0], FILE_NAMES[1], NEAR_MISSES[0], NEAR_MISSES[1]];

/// The configuration file cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileNameError {
    /// The repository has two files, and either could be meant.
    #[error("the repository has {}, but only one of them may exist; remove the others", quoted(.0))]
    Several(Vec<RepoPath>),
    /// The name has an extension that would not be read.
    #[error("`{found}` is not read because of its name; rename it to `{meant}`")]
    Extension {
        /// The file that exists.
        found: RepoPath,
        /// The name that it should have.
        meant: String,
    },
}

/// Finds the configuration file among the files of a repository. Returns `None` if there is none.
pub fn find<'a>(
    files: impl IntoIterator<Item = &'a RepoPath>,
) -> Result<Option<RepoPath>, FileNameError> {
    let candidate = |file: &&RepoPath| {
        FILE_NAMES.contains(&file.as_str()) || NEAR_MISSES.contains(&file.as_str())
    };
    let mut found: Vec<RepoPath> = files.into_iter().filter(candidate).cloned().collect();
    found.sort();
    if let Some(file) = found
        .iter()
        .find(|file| NEAR_MISSES.contains(&file.as_str()))
    {
        let meant = file.as_str().replace(".yml", ".yaml");
        return Err(FileNameError::Extension {
            found: file.clone(),
            meant,
        });
    }
    if found.len() > 1 {
        Err(FileNameError::Several(found))
    } else {
        Ok(found.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_in_the_root_is_the_configuration() {
        let cases: &[(&[&str], &str)] = &[
            (&["main.tf", "a/atlantis.yaml", "a/atlantis.yml"], "none"),
            (&["main.tf", "atlantis.yaml"], "atlantis.yaml"),
            (&["lockkeeper.yaml"], "lockkeeper.yaml"),
            (
                &["lockkeeper.yaml", "atlantis.yaml"],
                "the repository has `atlantis.yaml`, `lockkeeper.yaml`, but only one of \
                 them may exist; remove the others",
            ),
            (
                &["atlantis.yml"],
                "`atlantis.yml` is not read because of its name; rename it to `atlantis.yaml`",
            ),
            (
                &["lockkeeper.yml", "atlantis.yaml"],
                "`lockkeeper.yml` is not read because of its name; rename it to `lockkeeper.yaml`",
            ),
        ];
        for (files, expected) in cases {
            let files: Vec<RepoPath> = files.iter().map(|file| file.parse().unwrap()).collect();
            let answer = match find(&files) {
                Ok(file) => file.map_or("none".to_owned(), |file| file.to_string()),
                Err(error) => error.to_string(),
            };
            assert_eq!(answer, *expected);
        }
    }
}
