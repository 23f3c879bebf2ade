//! The step `policy_check`: evaluates all sets that no step evaluates, and writes the file of results.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use lockkeeper_policy::sets::PolicyEngine;

use super::PolicyCheck;
use crate::workflow::policies::{PolicyEvaluation, conftest};
use crate::workflow::steps::Steps;
use crate::workflow::steps::builtin::{failed, remove};
use crate::workflow::steps::error::{StepError, StepFailure, StepName};

impl Steps<'_> {
    /// Evaluates all sets that no step evaluates, and writes the file of results.
    pub(super) async fn evaluate_sets(
        &self,
        check: &mut PolicyCheck<'_>,
        extra: &[String],
        name: StepName,
    ) -> Result<(), StepError> {
        let args = self.conftest_args(extra, check.trusts_arguments).await;
        let work = check.work;
        for (number, set) in work.sets.iter().enumerate() {
            if check.verdicts.contains_key(&set.0.name) {
                continue;
            }
            let evaluated = match set.0.engine {
                PolicyEngine::Steps(_) => continue,
                PolicyEngine::Conftest => self.with_conftest(check, (number, &set.0), &args).await,
                PolicyEngine::Embedded => self.with_engine(check, &set.0).await,
            };
            let evaluated = evaluated.unwrap_or_else(|why| PolicyEvaluation::missing(why, ""));
            self.push_lines(&evaluated.output).await;
            let verdict = work.verdict(set, evaluated);
            check.verdicts.insert(set.0.name.clone(), verdict);
        }
        let verdicts = work.sets.iter().filter_map(|(set, _)| {
            let verdict = check.verdicts.get(&set.name)?;
            Some((&**set, verdict))
        });
        replace(&self.files.policies, &conftest::results(verdicts))
            .map_err(|error| failed(name, StepFailure::Disk(error)))
    }
}

/// Puts a new file in the place of one that programs of the run may have left. No link is followed.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    remove(file)?;
    fs::File::create_new(file)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_file_of_results_is_never_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, secret) = (dir.path().join("results"), dir.path().join("secret"));
        fs::write(&secret, "secret").unwrap();
        symlink(&secret, &file).unwrap();
        replace(&file, "[]").unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
        assert_eq!(fs::read_to_string(&file).unwrap(), "[]");
        assert!(!file.symlink_metadata().unwrap().is_symlink());
        replace(&file, "[1]").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "[1]");
    }
}
