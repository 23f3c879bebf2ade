//! Finds conftest, which evaluates policies (reference 13.2), with the search and the downloads of Terraform.
//!
//! The makers of conftest sign no releases. A download has to have the checksum in the list of its release, which comes from
//! the same server over an encrypted connection. An administrator who trusts no such download installs the program as
//! `conftest0.62.0` in `--tf-bin-dir`, where it is found first.

use std::path::{Path, PathBuf};

use semver::Version;

use super::{Downloads, ToolError, ToolInUse, Tools};

/// Name of the program without a version.
pub(super) const PROGRAM: &str = "conftest";
/// Name of the program in messages.
pub(super) const TITLE: &str = "conftest";

/// Conftest with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundConftest {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Version that the program reported; `None` for a program that was built without one.
    pub version: Option<Version>,
    /// Keeps the program on the disk, if it was downloaded.
    in_use: ToolInUse,
}

/// Returns the file name of a version.
pub(super) fn file_name(version: &Version) -> String {
    format!("{PROGRAM}{version}")
}

impl Tools {
    /// Finds conftest: in the requested version, downloaded if necessary; else the one without a version in its name.
    ///
    /// # Errors
    ///
    /// No such program exists and it cannot be downloaded, or the program does not run.
    pub async fn conftest(&self, wanted: Option<&Version>) -> Result<FoundConftest, ToolError> {
        let Some(wanted) = wanted else {
            return self.unversioned(None).await;
        };
        let Some(downloads) = &self.downloads else {
            return self.installed(wanted).await;
        };
        // The version is held before the search, so that the result is not removed to free disk space.
        let name = file_name(wanted);
        let in_use = downloads.hold_name(&name);
        let found = match self.installed(wanted).await {
            Err(error) if error.is_absence() => self.downloaded(downloads, wanted).await?,
            found => found?,
        };
        if !found.program.starts_with(downloads.dir()) {
            return Ok(found);
        }
        downloads.note_use_of(&name);
        Ok(FoundConftest { in_use, ..found })
    }

    /// Finds a version on this machine. A program with the version in its name may be one that reports none.
    async fn installed(&self, wanted: &Version) -> Result<FoundConftest, ToolError> {
        match self.programs.look(&file_name(wanted)) {
            Some(program) => self.checked(program, Some(wanted)).await,
            None => self.unversioned(Some(wanted)).await,
        }
    }

    /// Finds the program without a version in its name.
    async fn unversioned(&self, wanted: Option<&Version>) -> Result<FoundConftest, ToolError> {
        let program = self.programs.look(PROGRAM);
        let program = program.ok_or_else(|| ToolError::Missing {
            program: wanted.map_or_else(|| PROGRAM.to_owned(), file_name),
            searched: self.programs.searched(),
        })?;
        let found = self.checked(program, wanted).await?;
        match (wanted, &found.version) {
            (Some(wanted), None) => Err(ToolError::Unasked {
                title: TITLE,
                wanted: wanted.clone(),
                error: Box::new(unreadable(&found.program, "no version")),
            }),
            (Some(_), Some(_)) | (None, _) => Ok(found),
        }
    }

    async fn downloaded(
        &self,
        downloads: &Downloads,
        wanted: &Version,
    ) -> Result<FoundConftest, ToolError> {
        let program = downloads.fetch_conftest(wanted).await;
        let program = program.map_err(|error| ToolError::Download {
            title: TITLE,
            wanted: wanted.clone(),
            error,
        })?;
        self.checked(program, Some(wanted)).await
    }

    /// Asks a program for its version. A version other than the requested one is an error.
    async fn checked(
        &self,
        program: PathBuf,
        wanted: Option<&Version>,
    ) -> Result<FoundConftest, ToolError> {
        let output = self.programs.ask(&program, &["--version"]).await?;
        let answer = output.stdout.text();
        if !output.is_success() {
            let said = output.stderr.text();
            let first = answer.lines().chain(said.lines()).next();
            return Err(unreadable(&program, first.unwrap_or_default()));
        }
        let version = answer.lines().find_map(version_in);
        match (wanted, &version) {
            (Some(wanted), Some(found)) if wanted != found => Err(ToolError::OtherVersion {
                title: TITLE,
                wanted: wanted.clone(),
                found: found.clone(),
            }),
            _ => Ok(FoundConftest {
                program,
                version,
                in_use: ToolInUse::default(),
            }),
        }
    }
}

fn unreadable(program: &Path, answer: &str) -> ToolError {
    ToolError::Unreadable {
        program: program.display().to_string(),
        answer: answer.to_owned(),
    }
}

/// Parses a line such as `Conftest: 0.62.0` or, of versions before 0.28, `Version: 0.27.0, Commit: …`.
fn version_in(line: &str) -> Option<Version> {
    let version = ["Conftest: ", "Version: "]
        .iter()
        .find_map(|title| line.strip_prefix(title))?;
    let version = version.split([' ', ',']).next()?;
    Version::parse(version.trim_start_matches('v')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_the_line_that_says_it() {
        for (line, expected) in [
            ("Conftest: 0.62.0", "0.62.0"),
            ("Conftest: v0.60.0", "0.60.0"),
            ("Version: 0.21.0, Commit: 3b0a3a6, Date: 2020", "0.21.0"),
            ("Conftest: dev", ""),
            ("OPA: 1.6.0", ""),
            ("", ""),
        ] {
            let read = version_in(line).map(|version| version.to_string());
            assert_eq!(read.unwrap_or_default(), expected, "{line}");
        }
    }
}
