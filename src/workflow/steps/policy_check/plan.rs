//! The plan as JSON, which policies and steps read. The stage keeps it where no program of the run can change it.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::PolicyCheck;
use crate::workflow::scratch;
use crate::workflow::steps::Steps;
use crate::workflow::steps::builtin::{failed, remove};
use crate::workflow::steps::error::{StepError, StepFailure, StepName};

/// Maximum number of bytes of a plan as JSON that this program evaluates itself.
pub(super) const MAX_INPUT: u64 = 64 << 20;

/// Maximum number of bytes of a plan as JSON that conftest gets. It needs many times as much memory.
pub(super) const MAX_CONFTEST_INPUT: u64 = 128 << 20;

/// Maximum number of bytes of a plan as JSON that is kept for policies and steps.
const MAX_SHOWN: u64 = 512 << 20;

/// File of the plan as JSON in the directory of policies.
const PLAN: &str = "plan.json";

impl Steps<'_> {
    /// Runs `show`, and keeps its output where no program of the run can change it. Steps get a copy.
    pub(super) async fn show_privately(
        &self,
        check: &mut PolicyCheck<'_>,
        extra: &[String],
        name: StepName,
    ) -> Result<(), StepError> {
        let file = check.dir.path().join(PLAN);
        let extra = self.expanded(extra);
        let to = (&*file, MAX_SHOWN + 1);
        self.show_into(extra, name.clone(), to).await?;
        copy(file.clone(), self.files.show.clone())
            .await
            .map_err(|error| failed(name, StepFailure::Disk(error)))?;
        check.plan = Some(Ok(file));
        Ok(())
    }

    /// Returns the plan as JSON, which no program of the run can change any more: the output of the step `show`, or a copy of
    /// the file that another step has written. The error says why there is none.
    pub(super) async fn private_plan(
        &self,
        check: &mut PolicyCheck<'_>,
        most: u64,
    ) -> Result<PathBuf, String> {
        if let Some(known) = &check.plan {
            let plan = known.clone()?;
            check_plan(&plan, most)?;
            return Ok(plan);
        }
        check_plan(&self.files.show, most)?;
        let file = check.dir.path().join(PLAN);
        let copied = copy(self.files.show.clone(), file.clone()).await;
        let plan = copied.map(|()| file).map_err(|error| {
            format!("the plan as JSON cannot be read: {error}. Correct the workflow, or split the project")
        });
        check.plan = Some(plan.clone());
        plan
    }
}

/// Checks that a step has written the plan as JSON, with at most `most` bytes.
pub(super) fn check_plan(show: &Path, most: u64) -> Result<(), String> {
    let found = fs::metadata(show).ok().filter(fs::Metadata::is_file);
    let Some(bytes) = found.map(|found| found.len()) else {
        return Err(
            "there is no plan as JSON, because no step before `policy_check` wrote `$SHOWFILE`. An administrator must add \
             the step `show` to the stage `policy_check` of the workflow"
                .to_owned(),
        );
    };
    if bytes <= most {
        return Ok(());
    }
    let way_out = if bytes <= MAX_CONFTEST_INPUT {
        "Split the project, or let conftest evaluate the set (`engine: conftest`)"
    } else {
        "Split the project"
    };
    Err(format!(
        "the plan as JSON has {} MiB, and at most {} MiB are evaluated. {way_out}, then plan again",
        bytes.div_ceil(1 << 20),
        most >> 20
    ))
}

/// Copies a file of at most [`MAX_SHOWN`] bytes to the place of another one. No link is followed.
async fn copy(from: PathBuf, to: PathBuf) -> io::Result<()> {
    let copying = move || {
        let too_large = || {
            let what = format!("it has more than {} MiB", MAX_SHOWN >> 20);
            io::Error::new(io::ErrorKind::FileTooLarge, what)
        };
        let opened = scratch::open(&from)?.ok_or(io::ErrorKind::NotFound)?;
        if opened.metadata()?.len() > MAX_SHOWN {
            return Err(too_large());
        }
        remove(&to)?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&to)?;
        // The file may grow meanwhile.
        if io::copy(&mut opened.take(MAX_SHOWN + 1), &mut file)? > MAX_SHOWN {
            return Err(too_large());
        }
        Ok(())
    };
    tokio::task::spawn_blocking(copying)
        .await
        .map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The files have holes in place of their bytes.
    #[test]
    fn a_plan_that_is_too_large_for_its_engine_is_refused_with_a_way_out() {
        const MANY: u64 = 200_000_000;
        let dir = tempfile::tempdir().unwrap();
        let show = dir.path().join("plan.json");
        let file = fs::File::create_new(&show).unwrap();
        let mut told = Vec::new();
        for (bytes, most) in [
            (MAX_INPUT, MAX_INPUT),
            (MAX_INPUT + 1, MAX_INPUT),
            (MANY, MAX_INPUT),
            (MAX_CONFTEST_INPUT, MAX_CONFTEST_INPUT),
            (MANY, MAX_CONFTEST_INPUT),
        ] {
            file.set_len(bytes).unwrap();
            let problem = check_plan(&show, most).err();
            told.push(problem.unwrap_or_else(|| "fits".to_owned()));
        }
        insta::assert_snapshot!(told.join("\n"), @"
        fits
        the plan as JSON has 65 MiB, and at most 64 MiB are evaluated. Split the project, or let conftest evaluate the set (`engine: conftest`), then plan again
        the plan as JSON has 191 MiB, and at most 64 MiB are evaluated. Split the project, then plan again
        fits
        the plan as JSON has 191 MiB, and at most 128 MiB are evaluated. Split the project, then plan again
        ");
        fs::remove_file(&show).unwrap();
        fs::create_dir(&show).unwrap();
        let error = check_plan(&show, MAX_INPUT).unwrap_err();
        assert!(error.contains("no plan as JSON"), "{error}");
    }

    #[tokio::test]
    async fn a_plan_is_copied_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("plan"), "{}").unwrap();
        fs::write(at("secret"), "secret").unwrap();
        symlink(at("secret"), at("link")).unwrap();
        copy(at("plan"), at("link")).await.unwrap();
        assert_eq!(fs::read_to_string(at("link")).unwrap(), "{}");
        assert_eq!(fs::read_to_string(at("secret")).unwrap(), "secret");
        symlink(at("secret"), at("other")).unwrap();
        assert!(copy(at("other"), at("to")).await.is_err());
        assert!(copy(at("absent"), at("to")).await.is_err());
        fs::File::create_new(at("large"))
            .unwrap()
            .set_len(MAX_SHOWN + 1)
            .unwrap();
        let error = copy(at("large"), at("to")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
