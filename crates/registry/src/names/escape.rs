//! Escaped paths and versions, as they are on the wire: `!a` stands for `A`.
//!
//! File systems that ignore case would otherwise confuse `github.com/Azure` with `github.com/azure`. An upper-case letter
//! on the wire is an error, so every text has one escaped form.

use super::go_path::{GoPath, InvalidGoPath};
use crate::paths::check_go_part;

/// A text cannot be escaped, or is not the escaped form of anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEscape {
    /// The text has an upper-case letter.
    #[error("an upper-case letter is escaped as `!` and the lower-case letter")]
    UpperCase,
    /// No lower-case letter follows a `!`.
    #[error("a lower-case letter follows each `!`")]
    Bang,
    /// The text has a character outside of ASCII.
    #[error("{0:?} is not a character of ASCII")]
    NotAscii(char),
    /// The unescaped text is not a module path.
    #[error(transparent)]
    Path(#[from] InvalidGoPath),
    /// The unescaped text is not the name of a file, so no version, branch or commit that Go accepts.
    #[error("the version could not be the name of a file")]
    Version,
}

/// Maximum length of a requested version in bytes. Names of branches can be longer than versions.
const MAX_VERSION_QUERY: usize = 256;

/// Escapes a module path.
pub fn escape_path(path: &GoPath) -> String {
    escape(path.as_str())
}

/// Reads an escaped module path.
pub fn unescape_path(escaped: &str) -> Result<GoPath, InvalidEscape> {
    Ok(unescape(escaped)?.parse()?)
}

/// Escapes a version, or the name of a branch or commit that `go` may use in its place.
pub fn escape_version(version: &str) -> Result<String, InvalidEscape> {
    check_version(version)?;
    if version.contains('!') {
        return Err(InvalidEscape::Bang);
    }
    Ok(escape(version))
}

/// Reads an escaped version, or the name of a branch or commit.
pub fn unescape_version(escaped: &str) -> Result<String, InvalidEscape> {
    let version = unescape(escaped)?;
    check_version(&version)?;
    Ok(version)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_uppercase() {
            escaped.push('!');
        }
        escaped.push(c.to_ascii_lowercase());
    }
    escaped
}

fn unescape(escaped: &str) -> Result<String, InvalidEscape> {
    let mut text = String::with_capacity(escaped.len());
    let mut chars = escaped.chars();
    while let Some(c) = chars.next() {
        match c {
            '!' => {
                let letter = chars.next().filter(char::is_ascii_lowercase);
                text.push(letter.ok_or(InvalidEscape::Bang)?.to_ascii_uppercase());
            }
            'A'..='Z' => return Err(InvalidEscape::UpperCase),
            c if !c.is_ascii() => return Err(InvalidEscape::NotAscii(c)),
            c => text.push(c),
        }
    }
    Ok(text)
}

/// Checks a version as Go checks the name of a file, and in ASCII alone.
fn check_version(version: &str) -> Result<(), InvalidEscape> {
    if let Some(other) = version.chars().find(|c| !c.is_ascii()) {
        return Err(InvalidEscape::NotAscii(other));
    }
    let is_file_name = version.len() <= MAX_VERSION_QUERY && check_go_part(version).is_ok();
    is_file_name.then_some(()).ok_or(InvalidEscape::Version)
}
