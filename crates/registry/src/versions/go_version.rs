//! Versions of Go modules.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use chrono::{DateTime, NaiveDateTime, Utc};
use lockkeeper_model::model::text_type;
use regex::Regex;
use semver::{BuildMetadata, Prerelease, Version};

use super::MAX_VERSION_BYTES;
use crate::names::GoPath;

/// A canonical version of a Go module, such as `v1.2.3`, `v2.0.0+incompatible` or
/// `v0.0.0-20191109021931-daa7c04131f5`.
///
/// Versions are ordered by [`Self::compare`]; the suffix `+incompatible` only decides between versions that are equal
/// to Go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GoVersion(Version);

/// A text is not a canonical version of a Go module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGoVersion {
    /// The version is longer than [`MAX_VERSION_BYTES`].
    #[error("a version has at most {MAX_VERSION_BYTES} bytes")]
    Length,
    /// The text is not a version by Semantic Versioning with a leading `v`.
    #[error("a version of a Go module is written as `v1.2.3` or `v1.2.3-rc.1`")]
    Syntax,
    /// The version has build metadata other than `+incompatible`.
    #[error("a version of a Go module has no build metadata but `+incompatible`: write `{0}`")]
    Build(Box<GoVersion>),
}

/// The major version of a version is not that of the module path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MajorMismatch {
    /// The path asks for another major version.
    #[error("`{path}` has versions {expected}, and `{version}` is none of them")]
    Other {
        /// Path of the module.
        path: GoPath,
        /// Version that does not agree with it.
        version: GoVersion,
        /// Major versions of the path, for people.
        expected: String,
    },
    /// The suffix `+incompatible` is not needed.
    #[error("`{0}` agrees with its module path, so it has no `+incompatible`")]
    Compatible(GoVersion),
}

/// The parts of a pseudo-version, by which Go names a commit without a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PseudoVersion {
    /// The newest tagged version before the commit.
    pub base: Option<GoVersion>,
    /// Time of the commit.
    pub time: DateTime<Utc>,
    /// The first digits of the commit.
    pub revision: String,
}

/// A version has the form of a pseudo-version, but its parts contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPseudoVersion {
    /// Month, day, hour, minute or second are too large.
    #[error("the pseudo-version has a time that does not exist")]
    Time,
    /// The form implies a tagged version before it, and there can be none.
    #[error("no tagged version can precede the pseudo-version")]
    Base,
}

const INCOMPATIBLE: &str = "incompatible";

/// The three forms: `vX.0.0-TIME-REV`, `vX.Y.Z-0.TIME-REV`, `vX.Y.Z-PRE.0.TIME-REV`.
static PSEUDO: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"^v[0-9]+\.(?:0\.0-|[0-9]+\.[0-9]+-(?:[^+]*\.)?0\.)([0-9]{14})-([A-Za-z0-9]+)(?:\+incompatible)?$";
    Regex::new(pattern).expect("the pattern is valid")
});

impl GoVersion {
    /// Compares versions as Go does, so without regard to `+incompatible`.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.0.cmp_precedence(&other.0)
    }

    /// Returns true for a version by which Go names a commit without a tag.
    pub fn is_pseudo(&self) -> bool {
        PSEUDO.is_match(&self.to_string())
    }

    /// Returns true for a version with a pre-release part, and so for every pseudo-version.
    pub fn is_prerelease(&self) -> bool {
        !self.0.pre.is_empty()
    }

    /// Returns true for a version 2 or higher of a module without a major version in its path.
    pub fn is_incompatible(&self) -> bool {
        !self.0.build.is_empty()
    }

    /// Returns the version that `go` takes as `latest`: the highest release, or else the highest pre-release. A list of
    /// nothing but pseudo-versions has none, because they are not listed.
    pub fn latest<'a>(versions: impl IntoIterator<Item = &'a Self>) -> Option<&'a Self> {
        let listed = versions.into_iter().filter(|version| !version.is_pseudo());
        listed.max_by_key(|version| (!version.is_prerelease(), *version))
    }

    /// Returns the parts of a pseudo-version, or `None` for another version.
    pub fn pseudo(&self) -> Result<Option<PseudoVersion>, InvalidPseudoVersion> {
        let text = self.to_string();
        let Some(parts) = PSEUDO.captures(&text) else {
            return Ok(None);
        };
        let time = NaiveDateTime::parse_from_str(&parts[1], "%Y%m%d%H%M%S")
            .map_err(|_| InvalidPseudoVersion::Time)?
            .and_utc();
        // A leap second can be read, but Go knows none.
        if time.format("%Y%m%d%H%M%S").to_string() != parts[1] || time.timestamp_subsec_nanos() > 0
        {
            return Err(InvalidPseudoVersion::Time);
        }
        Ok(Some(PseudoVersion {
            base: self.pseudo_base(&parts[1], &parts[2])?,
            time,
            revision: parts[2].to_owned(),
        }))
    }

    /// Returns the tagged version before a pseudo-version with this time and revision.
    fn pseudo_base(
        &self,
        time: &str,
        revision: &str,
    ) -> Result<Option<Self>, InvalidPseudoVersion> {
        // From the end, because the base and the revision can have the same digits as the time.
        let before_time = self.0.pre.strip_suffix(&format!("{time}-{revision}"));
        let mut base = self.0.clone();
        match before_time.unwrap_or_default().strip_suffix("0.") {
            None if self.is_incompatible() => return Err(InvalidPseudoVersion::Base),
            None => return Ok(None),
            Some("") => {
                base.pre = Prerelease::EMPTY;
                base.patch = base
                    .patch
                    .checked_sub(1)
                    .ok_or(InvalidPseudoVersion::Base)?;
            }
            Some(pre) => {
                let pre = pre.strip_suffix('.').unwrap_or(pre);
                base.pre = Prerelease::new(pre).map_err(|_| InvalidPseudoVersion::Base)?;
            }
        }
        Ok(Some(Self(base)))
    }

    /// Checks that the major version agrees with a module path, as `module.CheckPathMajor` does. Refuses `+incompatible`
    /// where it is not needed, as the `go` command does.
    pub(super) fn check_major(&self, path: &GoPath) -> Result<(), MajorMismatch> {
        let suffix = path.major_suffix();
        let major = format!("v{}", self.0.major);
        let stable = suffix.strip_suffix("-unstable").unwrap_or(suffix);
        // Old releases of Go made pseudo-versions `v0.0.0-…` for paths on gopkg.in that end in `.v1`.
        let is_old_pseudo = (self.0.major, self.0.minor, self.0.patch) == (0, 0, 0)
            && self.is_prerelease()
            && stable == ".v1";
        let agrees = is_old_pseudo
            || match stable.get(1..) {
                None => matches!(self.0.major, 0 | 1),
                Some(expected) => expected == major,
            };
        match (agrees, self.is_incompatible()) {
            (true, false) => Ok(()),
            (false, true) if suffix.is_empty() => Ok(()),
            (true, true) => Err(MajorMismatch::Compatible(self.clone())),
            (false, _) => Err(MajorMismatch::Other {
                path: path.clone(),
                version: self.clone(),
                expected: match stable.get(1..) {
                    None => "`v0` and `v1`, and higher ones with `+incompatible`".to_owned(),
                    Some(major) => format!("`{major}`"),
                },
            }),
        }
    }
}

impl FromStr for GoVersion {
    type Err = InvalidGoVersion;

    fn from_str(text: &str) -> Result<Self, InvalidGoVersion> {
        if text.len() > MAX_VERSION_BYTES {
            return Err(InvalidGoVersion::Length);
        }
        let number = text.strip_prefix('v').ok_or(InvalidGoVersion::Syntax)?;
        let mut version = Version::parse(number).map_err(|_| InvalidGoVersion::Syntax)?;
        if matches!(version.build.as_str(), "" | INCOMPATIBLE) {
            return Ok(Self(version));
        }
        version.build = BuildMetadata::EMPTY;
        Err(InvalidGoVersion::Build(Box::new(Self(version))))
    }
}

impl fmt::Display for GoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

text_type!(GoVersion);
