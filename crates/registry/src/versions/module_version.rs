//! Versions of modules of Terraform.

use std::fmt;
use std::str::FromStr;

use lockkeeper_model::model::text_type;
use semver::{BuildMetadata, Version};

use super::MAX_VERSION_BYTES;

/// A version by Semantic Versioning 2.0 without build metadata, such as `1.2.3` or `2.0.0-rc.1`, ordered by precedence.
///
/// Build metadata does not count in the order of versions, so clients could not tell `1.2.3+a` and `1.2.3+b` apart. Both
/// are read as `1.2.3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleVersion(Version);

/// A text is not a version of a module of Terraform.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModuleVersion {
    /// The version is longer than [`MAX_VERSION_BYTES`].
    #[error("a version has at most {MAX_VERSION_BYTES} bytes")]
    Length,
    /// The version begins with `v`, as tags do.
    #[error("a version of a module has no leading `v`: write `{0}`")]
    LeadingV(Box<ModuleVersion>),
    /// The text is not a version by Semantic Versioning.
    #[error(
        "a version of a module is written as `1.2.3` or `1.2.3-rc.1`, by the rules of SemVer 2.0"
    )]
    Syntax,
}

impl ModuleVersion {
    /// Returns true for a version such as `1.0.0-rc.1`, which constraints choose only by its full text.
    pub fn is_prerelease(&self) -> bool {
        !self.0.pre.is_empty()
    }
}

impl FromStr for ModuleVersion {
    type Err = InvalidModuleVersion;

    fn from_str(text: &str) -> Result<Self, InvalidModuleVersion> {
        if text.len() > MAX_VERSION_BYTES {
            return Err(InvalidModuleVersion::Length);
        }
        if let Some(version) = text.strip_prefix('v').and_then(|text| text.parse().ok()) {
            return Err(InvalidModuleVersion::LeadingV(Box::new(version)));
        }
        let mut version = Version::parse(text).map_err(|_| InvalidModuleVersion::Syntax)?;
        version.build = BuildMetadata::EMPTY;
        Ok(Self(version))
    }
}

impl fmt::Display for ModuleVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

text_type!(ModuleVersion);
