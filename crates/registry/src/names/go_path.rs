//! Paths of Go modules, by the rules of `module.CheckPath`.

use std::fmt;
use std::str::FromStr;

use lockkeeper_model::model::text_type;

use crate::paths::reserved_name;

/// The path of a Go module, such as `example.com/m/v2` or `gopkg.in/yaml.v3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GoPath {
    text: String,
    /// Start of the major version suffix, or the length.
    major_at: usize,
}

/// A text is not the path of a Go module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGoPath {
    /// The path is empty or too long.
    #[error("a module path has 1 to {} bytes", GoPath::MAX_BYTES)]
    Length,
    /// The path begins or ends with a slash, or has two in a row.
    #[error("a module path has no slash at its start or end, and no two in a row")]
    Slash,
    /// The first element could not be a host.
    #[error(
        "`{0}` is not a host: a module path begins with lower-case letters, digits, `-` and at least one dot, and not with `-`"
    )]
    Host(String),
    /// An element has a dot at its start or end.
    #[error("`{0}` begins or ends with a dot")]
    Dot(String),
    /// An element has a character that no path has.
    #[error("{0:?} is not a letter, a digit, `-`, `.`, `_` or `~`")]
    Character(char),
    /// An element is a name of a device on Windows, with or without an extension.
    #[error("Windows reserves the name `{0}`")]
    Reserved(String),
    /// An element looks like a short name of Windows, such as `PROGRA~1`.
    #[error("`{0}` has a tilde and digits at the end of its name")]
    ShortName(String),
    /// The last element is a major version that no path has, such as `/v1`, `/v02` or `/v2.1`.
    #[error("the major version suffix is `/v2` or higher, without leading zeros and dots")]
    MajorSuffix,
    /// A path of gopkg.in does not end in a major version.
    #[error("a path on gopkg.in ends in its major version, such as `.v2`")]
    GopkgIn,
}

impl GoPath {
    /// Maximum length in bytes. Go has no limit, and the longest paths in use are a third of this.
    pub const MAX_BYTES: usize = 512;

    /// Returns the whole path.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the major version suffix, such as `/v2`, or `.v1` and `.v1-unstable` on gopkg.in. Empty for `v0` and `v1`
    /// elsewhere.
    pub fn major_suffix(&self) -> &str {
        &self.text[self.major_at..]
    }
}

impl FromStr for GoPath {
    type Err = InvalidGoPath;

    fn from_str(text: &str) -> Result<Self, InvalidGoPath> {
        check_elements(text)?;
        let major_at = if text.starts_with("gopkg.in/") {
            gopkg_in_major(text).ok_or(InvalidGoPath::GopkgIn)?
        } else {
            major(text).ok_or(InvalidGoPath::MajorSuffix)?
        };
        Ok(Self {
            text: text.to_owned(),
            major_at,
        })
    }
}

impl fmt::Display for GoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

text_type!(GoPath);

/// Checks everything but the major version suffix, so also what precedes a slash of a path.
pub(super) fn check_elements(text: &str) -> Result<(), InvalidGoPath> {
    if !(1..=GoPath::MAX_BYTES).contains(&text.len()) {
        return Err(InvalidGoPath::Length);
    }
    for element in text.split('/') {
        check_element(element)?;
    }
    let host = text.split('/').next().unwrap_or_default();
    let is_host = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    if host.starts_with('-') || !host.contains('.') || !host.chars().all(is_host) {
        return Err(InvalidGoPath::Host(host.to_owned()));
    }
    Ok(())
}

/// Checks an element as `checkElem` does for module paths.
fn check_element(element: &str) -> Result<(), InvalidGoPath> {
    if element.is_empty() {
        return Err(InvalidGoPath::Slash);
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
    if let Some(other) = element.chars().find(|c| !is_allowed(*c)) {
        return Err(InvalidGoPath::Character(other));
    }
    if element.starts_with('.') || element.ends_with('.') {
        return Err(InvalidGoPath::Dot(element.to_owned()));
    }
    if let Some(name) = reserved_name(element) {
        return Err(InvalidGoPath::Reserved(name.to_owned()));
    }
    let stem = element.split('.').next().unwrap_or_default();
    let digits = stem.rsplit_once('~').map(|(_, digits)| digits);
    if digits.is_some_and(|text| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())) {
        return Err(InvalidGoPath::ShortName(element.to_owned()));
    }
    Ok(())
}

/// Returns the start of `/vN`, or the length if there is none. `None` if there is one that no path has.
fn major(text: &str) -> Option<usize> {
    let start = text.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[start.len()..];
    let Some(prefix) = start.strip_suffix("/v").filter(|_| !number.is_empty()) else {
        return Some(text.len());
    };
    let is_valid = !number.starts_with('0') && !number.contains('.') && number != "1";
    is_valid.then_some(prefix.len())
}

/// Returns the start of `.vN` or `.vN-unstable` of a path on gopkg.in. Like Go, takes `.v0` but not `.v0-unstable`, and
/// `.v-unstable`, which no version agrees with.
fn gopkg_in_major(text: &str) -> Option<usize> {
    let stable = text.strip_suffix("-unstable").unwrap_or(text);
    let prefix = stable
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .strip_suffix(".v")?;
    let number = &text[prefix.len() + ".v".len()..];
    let is_valid = !number.is_empty() && (!number.starts_with('0') || number == "0");
    is_valid.then_some(prefix.len())
}
