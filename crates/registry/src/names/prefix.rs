//! Prefixes of names. Only tokens with a scope for its names publish below one (R6).

use std::fmt;
use std::str::FromStr;

use lockkeeper_model::model::text_type;

use super::go_path::check_elements;
use super::{GoPath, InvalidGoPath, InvalidModuleName, NameKind, Namespace, RegistryName};

/// Whole leading elements of Go module paths, such as `github.com/acme`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GoPrefix(String);

/// A set of names with the same beginning: `module acme` is a namespace, and `go github.com/acme` all paths below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NamePrefix {
    /// All modules of a namespace.
    Namespace(Namespace),
    /// All Go modules whose path begins with these elements.
    Go(GoPrefix),
}

/// A text is not a prefix of names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPrefix {
    /// The prefix does not begin with a known kind.
    #[error("a prefix begins with its kind, `module` or `go`, and a space")]
    Kind,
    /// The text is not a namespace.
    #[error(transparent)]
    Namespace(#[from] InvalidModuleName),
    /// The text does not begin a module path.
    #[error(transparent)]
    Go(#[from] InvalidGoPath),
}

impl GoPrefix {
    /// Returns the prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the path begins with all elements of the prefix.
    pub fn covers(&self, path: &GoPath) -> bool {
        begins_with(path.as_str(), &self.0)
    }
}

impl FromStr for GoPrefix {
    type Err = InvalidGoPath;

    fn from_str(text: &str) -> Result<Self, InvalidGoPath> {
        // A prefix needs no major version, not even on gopkg.in.
        check_elements(text)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for GoPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_type!(GoPrefix);

impl NamePrefix {
    /// Returns the kind of all names below the prefix.
    pub fn kind(&self) -> NameKind {
        match self {
            Self::Namespace(_) => NameKind::Module,
            Self::Go(_) => NameKind::Go,
        }
    }

    /// Returns the prefix without its kind.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Namespace(namespace) => namespace.as_str(),
            Self::Go(prefix) => prefix.as_str(),
        }
    }

    /// Returns true if a name is below the prefix, or the prefix itself.
    pub fn covers(&self, name: &RegistryName) -> bool {
        self.kind() == name.kind() && begins_with(name.as_str(), self.as_str())
    }

    /// Returns true if a name could be below both prefixes, in any case. A server has at most one of two
    /// such prefixes.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ours = self.as_str().to_ascii_lowercase();
        let theirs = other.as_str().to_ascii_lowercase();
        self.kind() == other.kind() && (begins_with(&ours, &theirs) || begins_with(&theirs, &ours))
    }
}

impl fmt::Display for NamePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.as_str())
    }
}

impl FromStr for NamePrefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let (kind, prefix) = text.split_once(' ').ok_or(InvalidPrefix::Kind)?;
        Ok(match kind.parse() {
            Ok(NameKind::Module) => Self::Namespace(prefix.parse()?),
            Ok(NameKind::Go) => Self::Go(prefix.parse()?),
            Err(_) => return Err(InvalidPrefix::Kind),
        })
    }
}

text_type!(NamePrefix);

/// Returns true if all elements of a prefix begin a name.
pub fn begins_with(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
