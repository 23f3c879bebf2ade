//! Finds conftest, which evaluates policies (reference 13.2), with the search and the downloads of Terraform.
//!
//! The makers of conftest sign no releases. A download has to have the checksum in the list of its release, which comes from
//! the same server over an encrypted connection. An administrator who trusts no such download installs the program as
//! `conftest0.62.0` in `--tf-bin-dir`, where it is found first.

use std::path::{Path, PathBuf};

use lockkeeper_policy::sets::{PolicyConfig, PolicyEngine, PolicySource};
use semver::Version;

use super::{Downloads, ToolError, ToolInUse, Tools};
use crate::workflow::ChildEnvironment;

/// Name of the program without a version.
pub(super) const PROGRAM: &str = "conftest";
/// Name of the program in messages.
pub(super) const TITLE: &str = "conftest";

/// Variable of the server with the version of conftest, if the policies name none (reference 13.2).
pub(in crate::workflow) const DEFAULT_VERSION: &str = "DEFAULT_CONFTEST_VERSION";

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

impl FoundConftest {
    /// Returns the name of the program with its version, for people.
    pub fn title(&self) -> String {
        match &self.version {
            Some(version) => format!("{TITLE} {version}"),
            None => format!("{TITLE} without a version"),
        }
    }
}

/// Returns the file name of a version.
pub(super) fn file_name(version: &Version) -> String {
    format!("{PROGRAM}{version}")
}

/// Returns the version of conftest that the environment of the server names.
///
/// # Errors
///
/// The value is not a version.
pub(in crate::workflow) fn default_version(
    environment: &ChildEnvironment,
) -> Result<Option<Version>, semver::Error> {
    let Some(text) = environment.get(DEFAULT_VERSION) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    Version::parse(text.trim().trim_start_matches('v')).map(Some)
}

/// Returns the way out if conftest cannot be found, as the end of a message. `downloads` is true if versions are downloaded.
pub(in crate::workflow) fn help_without_conftest(
    wanted: Option<&Version>,
    downloads: bool,
) -> String {
    let program = wanted.map_or_else(|| PROGRAM.to_owned(), file_name);
    let install = format!(
        "install `{program}` in `--tf-bin-dir` or on the PATH of the server, then plan again"
    );
    if wanted.is_none() && downloads {
        return format!(
            "Ask an administrator to set `conftest_version` below `policies`, so that Lockkeeper downloads it, or to {install}"
        );
    }
    format!("Ask an administrator to {install}")
}

impl Tools {
    /// Returns a warning for the start of the server if conftest evaluates policy sets, and is neither here nor can be
    /// downloaded.
    pub fn warn_without_conftest(
        &self,
        policies: &PolicyConfig,
        environment: &ChildEnvironment,
    ) -> Option<String> {
        let sets: Vec<String> = policies
            .sets
            .iter()
            .filter(|set| {
                set.engine == PolicyEngine::Conftest
                    && !matches!(set.source, PolicySource::Relative(_))
            })
            .map(|set| format!("`{}`", set.name))
            .collect();
        // A value that is no version is an error of each plan, and names the variable.
        let by_default = default_version(environment).ok().flatten();
        let wanted = policies.conftest_version.clone().or(by_default);
        let is_here = self.programs.first_in_dirs(PROGRAM).is_some()
            || wanted
                .as_ref()
                .is_some_and(|version| self.programs.first_in_dirs(&file_name(version)).is_some());
        if sets.is_empty() || is_here || (wanted.is_some() && self.downloads.is_some()) {
            return None;
        }
        let way_out = if wanted.is_none() && self.downloads.is_some() {
            "Set `conftest_version` below `policies`, so that Lockkeeper downloads it, or install it"
        } else {
            "Install it"
        };
        Some(format!(
            "conftest evaluates policy sets ({}), and there is no such program, so no plan that they concern can be applied. \
             {way_out} in `--tf-bin-dir` or on the PATH of the server, or write `engine: embedded`",
            sets.join(", ")
        ))
    }

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
        match self.programs.first_in_dirs(&file_name(wanted)) {
            Some(program) => self.checked(program, Some(wanted)).await,
            None => self.unversioned(Some(wanted)).await,
        }
    }

    /// Finds the program without a version in its name.
    async fn unversioned(&self, wanted: Option<&Version>) -> Result<FoundConftest, ToolError> {
        let program = self.programs.first_in_dirs(PROGRAM);
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
        let output = self.programs.run(&program, &["--version"]).await?;
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
    use std::ffi::OsString;
    use std::sync::Arc;

    use lockkeeper_policy::sets::PolicySet;

    use super::*;
    use crate::clock::SystemClock;
    use crate::workflow::policies::testing::policy_set;
    use crate::workflow::{DownloadSettings, Sources, TrustedKeys};

    fn policies(sets: Vec<PolicySet>, version: Option<&str>) -> PolicyConfig {
        PolicyConfig {
            conftest_version: version.map(|version| version.parse().unwrap()),
            sets,
        }
    }

    #[test]
    fn a_server_warns_if_conftest_is_neither_here_nor_can_be_downloaded() {
        let dir = tempfile::tempdir().unwrap();
        let settings = DownloadSettings::new(dir.path().join("bin"), Sources::new(None, None));
        let downloads =
            Downloads::new(settings, TrustedKeys::official(), Arc::new(SystemClock)).unwrap();
        let none = ChildEnvironment::default();
        let with = Tools::with_downloads(&[dir.path()], none.clone(), downloads);
        let without = Tools::new(&[dir.path()], none.clone());
        let named: ChildEnvironment =
            [(OsString::from(DEFAULT_VERSION), OsString::from("v0.62.0"))]
                .into_iter()
                .collect();
        let conftest = || policy_set("a", PolicyEngine::Conftest);
        let unversioned = policies(vec![conftest()], None);
        let versioned = policies(vec![conftest()], Some("0.62.0"));
        let relative = PolicySet {
            source: PolicySource::Relative("p".to_owned()),
            ..conftest()
        };
        let others = policies(
            vec![policy_set("b", PolicyEngine::Embedded), relative],
            None,
        );
        assert_eq!(with.warn_without_conftest(&versioned, &none), None);
        assert_eq!(with.warn_without_conftest(&unversioned, &named), None);
        assert_eq!(without.warn_without_conftest(&others, &none), None);
        let told = [
            with.warn_without_conftest(&unversioned, &none),
            without.warn_without_conftest(&versioned, &none),
        ];
        insta::assert_snapshot!(told.map(Option::unwrap).join("\n"), @"
        conftest evaluates policy sets (`a`), and there is no such program, so no plan that they concern can be applied. Set `conftest_version` below `policies`, so that Lockkeeper downloads it, or install it in `--tf-bin-dir` or on the PATH of the server, or write `engine: embedded`
        conftest evaluates policy sets (`a`), and there is no such program, so no plan that they concern can be applied. Install it in `--tf-bin-dir` or on the PATH of the server, or write `engine: embedded`
        ");
        std::fs::write(dir.path().join("conftest0.62.0"), "").unwrap();
        assert_eq!(without.warn_without_conftest(&versioned, &none), None);
        assert_eq!(without.warn_without_conftest(&unversioned, &named), None);
        assert!(without.warn_without_conftest(&unversioned, &none).is_some());
        std::fs::write(dir.path().join("conftest"), "").unwrap();
        assert_eq!(without.warn_without_conftest(&unversioned, &none), None);
    }

    #[test]
    fn the_version_is_the_easy_way_only_with_downloads() {
        let version = Version::new(0, 62, 0);
        let told = [
            help_without_conftest(None, true),
            help_without_conftest(None, false),
            help_without_conftest(Some(&version), true),
        ];
        insta::assert_snapshot!(told.join("\n"), @"
        Ask an administrator to set `conftest_version` below `policies`, so that Lockkeeper downloads it, or to install `conftest` in `--tf-bin-dir` or on the PATH of the server, then plan again
        Ask an administrator to install `conftest` in `--tf-bin-dir` or on the PATH of the server, then plan again
        Ask an administrator to install `conftest0.62.0` in `--tf-bin-dir` or on the PATH of the server, then plan again
        ");
    }

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
