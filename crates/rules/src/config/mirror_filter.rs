//! Filters for the content that mirrors leave at the forge.

use std::fmt;
use std::str::FromStr;

/// Content that a new mirror leaves at the forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorFilter {
    /// The content of all files (`blob:none`).
    Files,
    /// The content of files with at least this number of bytes (`blob:limit=1m`).
    LargeFiles(u64),
}

/// The text is not a filter for mirrors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a filter for mirrors; write `blob:none` to fetch files only when they are needed, or \
     `blob:limit=1m` to do so for files of 1 MiB or more (k, m and g are units)"
)]
pub struct InvalidFilter(String);

impl FromStr for MirrorFilter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidFilter(text.chars().take(80).collect());
        if text == "blob:none" {
            return Ok(Self::Files);
        }
        let size = text
            .strip_prefix("blob:limit=")
            .and_then(bytes)
            .ok_or_else(invalid)?;
        Ok(Self::LargeFiles(size))
    }
}

/// Parses `500`, `10k`, `1m`, `2g`.
fn bytes(text: &str) -> Option<u64> {
    let unit = text.bytes().last()?.to_ascii_lowercase();
    let shift = match unit {
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        _ => 0,
    };
    let digits = if shift > 0 {
        &text[..text.len() - 1]
    } else {
        text
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        .then(|| digits.parse::<u64>().ok()?.checked_mul(1 << shift))
        .flatten()
}

impl fmt::Display for MirrorFilter {
    /// Writes the filter in the syntax of git.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files => f.write_str("blob:none"),
            Self::LargeFiles(bytes) => write!(f, "blob:limit={bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_that_leave_files_out() {
        for (text, git) in [
            ("blob:none", "blob:none"),
            ("blob:limit=0", "blob:limit=0"),
            ("blob:limit=500", "blob:limit=500"),
            ("blob:limit=10k", "blob:limit=10240"),
            ("blob:limit=1M", "blob:limit=1048576"),
        ] {
            let filter: MirrorFilter = text.parse().unwrap();
            assert_eq!(filter.to_string(), git);
            assert_eq!(git.parse(), Ok(filter));
        }
        for text in [
            "",
            "none",
            "tree:0",
            "blob:limit=",
            "blob:limit=k",
            "blob:limit=-1",
            "blob:limit=99999999999g",
            "sparse:oid=1",
            "blob:limit=1µ",
            "blob:limit=+1",
        ] {
            assert_eq!(
                text.parse::<MirrorFilter>(),
                Err(InvalidFilter(text.to_owned()))
            );
        }
    }
}
