//! Names in the registry: modules of Terraform, Go modules, and prefixes of names.
//!
//! Only the constructors decide whether a text is a name. Modules of Terraform follow the grammar of its registry
//! addresses, and Go modules the rules of `golang.org/x/mod/module`.

mod escape;
mod go_path;
mod module_name;
mod pattern;
mod prefix;

use std::fmt;
use std::str::FromStr;

use lockkeeper_model::model::{text_enum, text_type};

pub use self::escape::{
    InvalidEscape, escape_path, escape_version, unescape_path, unescape_version,
};
pub use self::go_path::{GoPath, InvalidGoPath};
pub use self::module_name::{InvalidModuleName, ModuleName, Namespace};
pub use self::pattern::{InvalidNamePattern, NamePattern};
pub use self::prefix::{GoPrefix, InvalidPrefix, NamePrefix, begins_with};

text_enum! {
    /// The kind of a name, which decides its grammar and the protocol that serves it.
    pub enum NameKind {
        /// A module of Terraform or OpenTofu.
        Module = "module",
        /// A Go module, named by its path.
        Go = "go",
    }
}

/// A name in the registry, written as kind and name: `module acme/vpc/aws`, `go example.com/m/v2`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RegistryName {
    /// A module of Terraform or OpenTofu.
    Module(ModuleName),
    /// A Go module, named by its path.
    Go(GoPath),
}

/// A text is not a name of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRegistryName {
    /// The name does not begin with a known kind.
    #[error("a name begins with its kind, `module` or `go`, and a space")]
    Kind,
    /// The text is not the name of a module of Terraform.
    #[error(transparent)]
    Module(#[from] InvalidModuleName),
    /// The text is not the path of a Go module.
    #[error(transparent)]
    Go(#[from] InvalidGoPath),
}

impl RegistryName {
    /// Reads a name of a known kind.
    pub fn new(kind: NameKind, name: &str) -> Result<Self, InvalidRegistryName> {
        Ok(match kind {
            NameKind::Module => Self::Module(name.parse()?),
            NameKind::Go => Self::Go(name.parse()?),
        })
    }

    /// Returns the kind of the name.
    pub fn kind(&self) -> NameKind {
        match self {
            Self::Module(_) => NameKind::Module,
            Self::Go(_) => NameKind::Go,
        }
    }

    /// Returns the name without its kind.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Module(name) => name.as_str(),
            Self::Go(path) => path.as_str(),
        }
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.as_str())
    }
}

impl FromStr for RegistryName {
    type Err = InvalidRegistryName;

    fn from_str(text: &str) -> Result<Self, InvalidRegistryName> {
        let (kind, name) = text.split_once(' ').ok_or(InvalidRegistryName::Kind)?;
        let kind = kind.parse().map_err(|_| InvalidRegistryName::Kind)?;
        Self::new(kind, name)
    }
}

text_type!(RegistryName);

#[cfg(test)]
mod tests;
