//! Versions in the registry, ordered as the clients order them.
//!
//! Modules of Terraform have the versions of Semantic Versioning 2.0. Go modules have canonical versions of Go, whose
//! major version agrees with the path: only [`VersionKey`] brings both together.

mod go_version;
mod module_version;

use std::fmt;
use std::str::FromStr;

use lockkeeper_model::model::text_type;

pub use self::go_version::{
    GoVersion, InvalidGoVersion, InvalidPseudoVersion, MajorMismatch, PseudoVersion,
};
pub use self::module_version::{InvalidModuleVersion, ModuleVersion};
use crate::names::{GoPath, InvalidRegistryName, ModuleName, NameKind, RegistryName};

/// Maximum length of a version in bytes. Semantic Versioning has no limit.
pub const MAX_VERSION_BYTES: usize = 128;

/// A version of a name: `module acme/vpc/aws 1.2.3`, `go example.com/m/v2 v2.0.1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionKey(Key);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Module(ModuleName, ModuleVersion),
    Go(GoPath, GoVersion),
}

/// A text is not a version of its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVersionKey {
    /// Kind, name and version are not three words.
    #[error(
        "a version is written as its kind, its name and the version, with a space between them"
    )]
    Words,
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidRegistryName),
    /// The version does not follow Semantic Versioning.
    #[error(transparent)]
    Module(#[from] InvalidModuleVersion),
    /// The version is not a canonical version of Go.
    #[error(transparent)]
    Go(#[from] InvalidGoVersion),
    /// The major version is not that of the module path.
    #[error(transparent)]
    Major(#[from] MajorMismatch),
}

impl VersionKey {
    /// Reads a version of a name.
    pub fn new(name: RegistryName, version: &str) -> Result<Self, InvalidVersionKey> {
        match name {
            RegistryName::Module(name) => Ok(Self::module(name, version.parse()?)),
            RegistryName::Go(path) => Ok(Self::go(path, version.parse()?)?),
        }
    }

    /// Creates the key of a version of a module of Terraform.
    pub fn module(name: ModuleName, version: ModuleVersion) -> Self {
        Self(Key::Module(name, version))
    }

    /// Creates the key of a version of a Go module. Its major version has to agree with the path.
    pub fn go(path: GoPath, version: GoVersion) -> Result<Self, MajorMismatch> {
        version.check_major(&path)?;
        Ok(Self(Key::Go(path, version)))
    }

    /// Returns the kind of the name.
    pub fn kind(&self) -> NameKind {
        match self.0 {
            Key::Module(..) => NameKind::Module,
            Key::Go(..) => NameKind::Go,
        }
    }

    /// Returns the name that has this version.
    pub fn name(&self) -> RegistryName {
        match &self.0 {
            Key::Module(name, _) => RegistryName::Module(name.clone()),
            Key::Go(path, _) => RegistryName::Go(path.clone()),
        }
    }

    /// Returns the version alone, as clients write it.
    pub fn version(&self) -> String {
        match &self.0 {
            Key::Module(_, version) => version.to_string(),
            Key::Go(_, version) => version.to_string(),
        }
    }

    /// Returns true for a version that comes before a release, such as `2.0.0-rc.1`. Clients choose one only by its name.
    pub fn is_prerelease(&self) -> bool {
        match &self.0 {
            Key::Module(_, version) => version.is_prerelease(),
            Key::Go(_, version) => version.is_prerelease(),
        }
    }

    /// Returns path and version, if this is a version of a Go module.
    pub fn as_go(&self) -> Option<(&GoPath, &GoVersion)> {
        match &self.0 {
            Key::Go(path, version) => Some((path, version)),
            Key::Module(..) => None,
        }
    }
}

impl fmt::Display for VersionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Key::Module(name, version) => write!(f, "module {name} {version}"),
            Key::Go(path, version) => write!(f, "go {path} {version}"),
        }
    }
}

impl FromStr for VersionKey {
    type Err = InvalidVersionKey;

    fn from_str(text: &str) -> Result<Self, InvalidVersionKey> {
        let (name, version) = text.rsplit_once(' ').ok_or(InvalidVersionKey::Words)?;
        Self::new(name.parse()?, version)
    }
}

text_type!(VersionKey);

#[cfg(test)]
mod tests;
