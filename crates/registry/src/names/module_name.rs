//! `namespace/name/system`, as Terraform's registry addresses have it.

use std::fmt;
use std::str::FromStr;

use lockkeeper_model::model::text_type;

/// A namespace of modules, such as `acme` in `acme/vpc/aws`, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(String);

/// The name of a module of Terraform, such as `acme/vpc/aws`, in lower case.
///
/// Terraform sends names as they are written in the configuration. `Acme/VPC/aws` is the same module here, so that no
/// two names differ only in case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleName {
    text: String,
    namespace_end: usize,
    name_end: usize,
}

/// A text is not the name of a module of Terraform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModuleName {
    /// The name has more or fewer than three parts.
    #[error("a module is named by three parts, `<namespace>/<name>/<system>`")]
    Parts,
    /// The namespace has a character or a length that Terraform does not accept.
    #[error(
        "a namespace has 1 to 64 letters, digits, `-` and `_`, with a letter or digit first and last"
    )]
    Namespace,
    /// The second part has a character or a length that Terraform does not accept.
    #[error(
        "the name of a module has 1 to 64 letters, digits, `-` and `_`, with a letter or digit first and last"
    )]
    Name,
    /// The third part has a character or a length that Terraform does not accept.
    #[error("the system of a module has 1 to 64 lower-case letters and digits, such as `aws`")]
    System,
}

/// Maximum length of each part in bytes, by Terraform's grammar.
const MAX_PART: usize = 64;

impl ModuleName {
    /// Returns the whole name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the namespace, the first part of the name.
    pub fn namespace(&self) -> Namespace {
        Namespace(self.text[..self.namespace_end].to_owned())
    }

    /// Returns the part between namespace and system.
    pub fn name(&self) -> &str {
        &self.text[self.namespace_end + 1..self.name_end]
    }

    /// Returns the target system, such as `aws`.
    pub fn system(&self) -> &str {
        &self.text[self.name_end + 1..]
    }
}

impl FromStr for ModuleName {
    type Err = InvalidModuleName;

    fn from_str(text: &str) -> Result<Self, InvalidModuleName> {
        let parts: Vec<&str> = text.splitn(4, '/').collect();
        let [namespace, name, system] = parts.as_slice() else {
            return Err(InvalidModuleName::Parts);
        };
        if !is_name(namespace) {
            return Err(InvalidModuleName::Namespace);
        }
        if !is_name(name) {
            return Err(InvalidModuleName::Name);
        }
        let is_system = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        if !(1..=MAX_PART).contains(&system.len()) || !system.bytes().all(is_system) {
            return Err(InvalidModuleName::System);
        }
        Ok(Self {
            text: text.to_ascii_lowercase(),
            namespace_end: namespace.len(),
            name_end: namespace.len() + 1 + name.len(),
        })
    }
}

impl fmt::Display for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

text_type!(ModuleName);

impl Namespace {
    /// Returns the namespace as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Namespace {
    type Err = InvalidModuleName;

    fn from_str(text: &str) -> Result<Self, InvalidModuleName> {
        if is_name(text) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidModuleName::Namespace)
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_type!(Namespace);

/// Checks a namespace or a name: `^[0-9A-Za-z](?:[0-9A-Za-z-_]{0,62}[0-9A-Za-z])?$`.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_inner = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    bytes.len() <= MAX_PART
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(is_inner)
}
