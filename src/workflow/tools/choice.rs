//! Chooses the version for a project, and keeps the reason of the choice.

use std::fmt;

use semver::Version;

use super::ToolError;
use crate::config::repos::{Decided, Decider};
use crate::discovery::RequiredVersions;
use crate::model::Distribution;

/// Sources for the version of a project's program. The first one that is set counts: the project's
/// `terraform_version`, the code's `required_version`, `--default-tf-version`. Otherwise any installed version does
/// (reference 12.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionSources {
    /// Distribution of the program.
    pub distribution: Distribution,
    /// Version in the configuration of the project.
    pub project: Option<Decided<Version>>,
    /// Constraints of the code (`required_version`).
    pub code: RequiredVersions,
    /// Version in the setting `--default-tf-version`.
    pub default: Option<Version>,
}

/// A version with the reason of its choice. `Display` prints a sentence without its full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionChoice {
    pub distribution: Distribution,
    pub version: Version,
    /// Source of the choice.
    pub by: ChosenBy,
}

/// Source that decided a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChosenBy {
    /// `terraform_version` of the project.
    Project(Decider),
    /// `required_version` in the code.
    Code(RequiredVersions),
    /// `--default-tf-version`.
    Flag,
    /// No source decided: the installed version is used.
    Nobody,
}

impl fmt::Display for VersionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            distribution,
            version,
            by,
        } = self;
        write!(f, "{} {version}, ", distribution.title())?;
        match by {
            ChosenBy::Project(decider) => write!(f, "because of {decider}"),
            ChosenBy::Code(demands) => write!(f, "because {demands}"),
            ChosenBy::Flag => f.write_str("because of `--default-tf-version`"),
            ChosenBy::Nobody => write!(
                f,
                "because that is the `{}` of this server",
                distribution.program()
            ),
        }
    }
}

/// Version that has to be found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NeededVersion<'a> {
    /// Exactly this version, with its source.
    Exactly(&'a Version, ChosenBy),
    /// Highest version that matches all constraints.
    Matching(&'a RequiredVersions),
    /// Any version that is installed.
    Whatever,
}

impl VersionSources {
    /// Returns the version that has to be found. The first source that is set decides.
    #[expect(clippy::result_large_err, reason = "made once for a run, at its end")]
    pub(super) fn need(&self) -> Result<NeededVersion<'_>, ToolError> {
        if let Some(Decided { value, by }) = &self.project {
            return Ok(NeededVersion::Exactly(value, ChosenBy::Project(by.clone())));
        }
        if let Some((demand, _)) = self.code.unreadable() {
            return Err(ToolError::Constraint(demand.to_string()));
        }
        if !self.code.is_empty() {
            // If only one version can match, its release need not be checked.
            let only = self
                .code
                .exact()
                .filter(|version| self.code.matches(version));
            let exactly =
                |version| NeededVersion::Exactly(version, ChosenBy::Code(self.code.clone()));
            return Ok(only.map_or(NeededVersion::Matching(&self.code), exactly));
        }
        Ok(self
            .default
            .as_ref()
            .map_or(NeededVersion::Whatever, |version| {
                NeededVersion::Exactly(version, ChosenBy::Flag)
            }))
    }
}

/// Returns the highest version that meets all demands.
pub(super) fn highest<'a>(
    demands: &RequiredVersions,
    versions: &'a [Version],
) -> Option<&'a Version> {
    versions
        .iter()
        .filter(|version| demands.matches(version))
        .max()
}

/// Formats a list such as `1.9.8, 1.10.5`, shortened to a length that people read.
pub(super) fn list(versions: &[Version]) -> String {
    const SHOWN: usize = 8;
    let mut all: Vec<String> = versions
        .iter()
        .rev()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect();
    if versions.len() > SHOWN {
        all.push(format!("{} older ones", versions.len() - SHOWN));
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::required_versions;
    use crate::model::RepoPath;

    fn code(constraint: &str) -> RequiredVersions {
        let text = format!("terraform {{\n  required_version = \"{constraint}\"\n}}\n");
        let files: [RepoPath; 1] = ["versions.tf".parse().unwrap()];
        required_versions(&files, Distribution::Terraform, &|_| Some(text.clone()))
    }

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    fn sources() -> VersionSources {
        let by = Decider::Repo {
            file: "atlantis.yaml".to_owned(),
            line: 4,
        };
        VersionSources {
            distribution: Distribution::Terraform,
            project: Some(Decided {
                value: version("1.1.0"),
                by,
            }),
            code: code("~> 1.9.0"),
            default: Some(version("1.3.0")),
        }
    }

    #[test]
    fn whoever_comes_first_decides() {
        let sources = sources();
        assert!(
            matches!(sources.need().unwrap(), NeededVersion::Exactly(one, ChosenBy::Project(_)) if *one == version("1.1.0"))
        );
        let sources = VersionSources {
            project: None,
            ..sources
        };
        assert_eq!(
            sources.need().unwrap(),
            NeededVersion::Matching(&sources.code)
        );
        let exact = VersionSources {
            code: code("= 1.9.8"),
            ..sources.clone()
        };
        assert!(
            matches!(exact.need().unwrap(), NeededVersion::Exactly(one, ChosenBy::Code(_)) if *one == version("1.9.8"))
        );
        let contradicts = VersionSources {
            code: code("= 1.9.8, < 1.9"),
            ..sources.clone()
        };
        assert_eq!(
            contradicts.need().unwrap(),
            NeededVersion::Matching(&contradicts.code)
        );
        let sources = VersionSources {
            code: RequiredVersions::default(),
            ..sources
        };
        assert_eq!(
            sources.need().unwrap(),
            NeededVersion::Exactly(&version("1.3.0"), ChosenBy::Flag)
        );
        let sources = VersionSources {
            default: None,
            ..sources
        };
        assert_eq!(sources.need().unwrap(), NeededVersion::Whatever);
    }

    #[test]
    fn a_constraint_that_cannot_be_read_is_named() {
        let sources = VersionSources {
            project: None,
            code: code("newest"),
            ..sources()
        };
        insta::assert_snapshot!(sources.need().unwrap_err(), @"cannot determine the version to use: line 2 of `versions.tf`: `newest` is not a version constraint: `newest` is not a version; write one such as `1.9.0`");
    }

    #[test]
    fn the_highest_that_matches_is_taken() {
        let versions = ["1.8.5", "1.9.8", "1.9.10", "1.9.2", "1.10.0", "1.9.11-rc1"].map(version);
        assert_eq!(
            highest(&code("~> 1.9.0"), &versions),
            Some(&version("1.9.10"))
        );
        assert_eq!(
            highest(&code("= 1.9.11-rc1"), &versions),
            Some(&version("1.9.11-rc1"))
        );
        assert_eq!(highest(&code(">= 2"), &versions), None);
    }

    #[test]
    fn a_choice_reads_as_a_sentence() {
        let by = [
            ChosenBy::Project(Decider::Repo {
                file: "atlantis.yaml".to_owned(),
                line: 4,
            }),
            ChosenBy::Code(code("~> 1.9.0")),
            ChosenBy::Flag,
            ChosenBy::Nobody,
        ];
        let shown = by.map(|by| {
            VersionChoice {
                distribution: Distribution::Terraform,
                version: version("1.9.8"),
                by,
            }
            .to_string()
        });
        insta::assert_snapshot!(shown.join("\n"), @"
        Terraform 1.9.8, because of line 4 of `atlantis.yaml`
        Terraform 1.9.8, because line 2 of `versions.tf` says `~> 1.9.0`
        Terraform 1.9.8, because of `--default-tf-version`
        Terraform 1.9.8, because that is the `terraform` of this server
        ");
    }

    #[test]
    fn a_list_is_as_long_as_a_person_reads() {
        let versions: Vec<Version> = (0..12).map(|minor| Version::new(1, minor, 0)).collect();
        assert_eq!(
            list(&versions),
            "1.11.0, 1.10.0, 1.9.0, 1.8.0, 1.7.0, 1.6.0, 1.5.0, 1.4.0, 4 older ones"
        );
    }
}
