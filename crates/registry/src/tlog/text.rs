//! Texts of heads and records.
//!
//! Numbers and hashes have one spelling here. Go reads a few more, such as a number with a sign, but never writes them.

use std::fmt;
use std::str::FromStr;

use super::hash::LogHash;
use super::{MAX_SIZE, TlogError};

/// Size and root of a log. The text form is what a log signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TreeHead {
    /// Number of its records.
    pub size: u64,
    /// Hash of the tree over all records.
    pub root: LogHash,
}

/// First line of a head. Another one would be another format.
const HEAD_LINE: &str = "go.sum database tree";

/// Maximum number of bytes of a head, as in Go. Lines after the third are ignored.
const MAX_HEAD: usize = 1_000_000;

impl fmt::Display for TreeHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD_LINE}\n{}\n{}", self.size, self.root)
    }
}

impl FromStr for TreeHead {
    type Err = TlogError;

    fn from_str(text: &str) -> Result<Self, TlogError> {
        let mut lines = text.splitn(4, '\n');
        let mut line = || lines.next().ok_or(TlogError::BadHead);
        let (first, size, root, _) = (line()?, line()?, line()?, line()?);
        if first != HEAD_LINE || text.len() > MAX_HEAD {
            return Err(TlogError::BadHead);
        }
        Ok(Self {
            size: number(size).ok_or(TlogError::BadHead)?,
            root: root.parse().map_err(|_| TlogError::BadHead)?,
        })
    }
}

/// Returns the text of a record for a lookup: its number from 0, its lines, and an empty line.
pub fn format_record(record: u64, text: &str) -> Result<String, TlogError> {
    Ok(format!("{record}\n{}", format_data_record(text)?))
}

/// Returns the text of a record for a data tile, which is that of a lookup without the number.
pub fn format_data_record(text: &str) -> Result<String, TlogError> {
    check_text(text)?;
    Ok(format!("{text}\n"))
}

/// Parses a record of a lookup. Returns its number, its text, and the rest of the message, which is a signed head.
pub fn parse_record(message: &[u8]) -> Result<(u64, &str, &[u8]), TlogError> {
    let end = message.iter().position(|byte| *byte == b'\n');
    let (line, rest) = end
        .and_then(|end| message.split_at_checked(end))
        .ok_or(TlogError::BadRecord)?;
    let record = std::str::from_utf8(line).ok().and_then(number);
    let record = record.ok_or(TlogError::BadRecord)?;
    let (text, rest) = parse_data_record(&rest[1..])?;
    Ok((record, text, rest))
}

/// Parses the first record of a data tile. Returns its text and the records after it.
pub fn parse_data_record(message: &[u8]) -> Result<(&str, &[u8]), TlogError> {
    let end = message.windows(2).position(|pair| pair == b"\n\n");
    let end = end.ok_or(TlogError::BadRecord)?;
    let (text, rest) = message.split_at(end + 1);
    let text = std::str::from_utf8(text).map_err(|_| TlogError::BadRecord)?;
    check_text(text)?;
    Ok((text, &rest[1..]))
}

/// Checks that a text has whole lines, none of them empty, because an empty line ends a record.
fn check_text(text: &str) -> Result<(), TlogError> {
    let is_control = |c: char| c < ' ' && c != '\n';
    let has_empty_line = text.starts_with('\n') || text.contains("\n\n");
    if text.contains(is_control) || has_empty_line || !text.ends_with('\n') {
        return Err(TlogError::BadRecord);
    }
    Ok(())
}

/// Parses a number that is written without sign and leading zeros.
fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number <= MAX_SIZE && number.to_string() == text).then_some(number)
}
