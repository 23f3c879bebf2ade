//! `authorized_keys`: the SSH keys of an account.
//!
//! The number of a key is its place, counted from 1. `# DELETED` keeps the place of a deleted key, and `# INVALID ` marks
//! a key that the server does not accept. Other comments and empty lines do not count.

mod key;
mod options;

use std::fmt;
use std::ops::Range;

pub use self::key::AccountSshKey;
pub use self::options::KeyOptions;
use crate::config_text::utf8_file;
use crate::findings::Problem;

/// The file with the SSH keys of an account, with all of its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizedKeys {
    text: String,
    slots: Vec<SlotSpan>,
}

/// A numbered line of `authorized_keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySlot<'a> {
    /// Line of a key, which may still be one that cannot be decoded.
    Key(&'a str),
    /// Line after the mark of an invalid key.
    Invalid(&'a str),
    /// Place of a deleted key.
    Deleted,
}

/// Place of a numbered line in the text, without its line break.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotSpan {
    line: usize,
    range: Range<usize>,
}

/// Smallest keys that the server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRules {
    /// Minimum length of an RSA key in bits.
    pub min_rsa_bits: usize,
}

const DELETED: &str = "# DELETED";
const INVALID: &str = "# INVALID ";
/// Mark of newer versions of Gerrit in front of a key. Here, such a line is a comment.
const EXPIRES: &str = "# EXPIRES ";

impl AuthorizedKeys {
    /// Name of the file in a user branch.
    pub const FILE: &'static str = "authorized_keys";
    /// Maximum number of keys of an account. Deleted ones do not count.
    pub const MAX_KEYS: usize = 100;

    /// Splits a file into its numbered lines.
    pub fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        let text = utf8_file(bytes)?;
        let mut slots = Vec::new();
        let mut start = 0;
        for (line, content) in (1..).zip(text.split_inclusive('\n')) {
            let trimmed = content.trim();
            let is_marked = trimmed.starts_with(DELETED) || trimmed.starts_with(INVALID);
            if is_marked || !(trimmed.is_empty() || trimmed.starts_with('#')) {
                let start = start + content.len() - content.trim_start().len();
                let range = start..start + trimmed.len();
                slots.push(SlotSpan { line, range });
            }
            start += content.len();
        }
        Ok(Self {
            text: text.to_owned(),
            slots,
        })
    }

    /// Returns the whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the numbered lines with their numbers.
    pub fn slots(&self) -> impl Iterator<Item = (usize, KeySlot<'_>)> {
        (1..).zip(self.slots.iter().map(|slot| self.slot(slot)))
    }

    fn slot(&self, slot: &SlotSpan) -> KeySlot<'_> {
        let line = &self.text[slot.range.clone()];
        if let Some(key) = line.strip_prefix(INVALID) {
            KeySlot::Invalid(key)
        } else if line.starts_with(DELETED) {
            KeySlot::Deleted
        } else {
            KeySlot::Key(line)
        }
    }

    /// Returns the keys that the server accepts, with their numbers.
    pub fn keys(&self, rules: KeyRules) -> impl Iterator<Item = (usize, AccountSshKey)> {
        self.slots().filter_map(move |(number, slot)| match slot {
            KeySlot::Key(line) => Some((number, AccountSshKey::parse(line, rules).ok()?)),
            KeySlot::Invalid(_) | KeySlot::Deleted => None,
        })
    }

    /// Lists the lines that are neither keys nor marked as invalid, and those whose key is in a comment.
    pub fn problems(&self, rules: KeyRules) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self
            .slots
            .iter()
            .filter_map(|slot| match self.slot(slot) {
                KeySlot::Key(line) => {
                    AccountSshKey::parse(line, rules)
                        .err()
                        .map(|problem| Problem {
                            line: Some(slot.line),
                            ..problem
                        })
                }
                KeySlot::Invalid(_) | KeySlot::Deleted => None,
            })
            .collect();
        problems.extend(too_many(self.len()).err());
        let lines = (1..).zip(self.text.lines());
        let expiring = lines.filter(|(_, line)| line.trim_start().starts_with(EXPIRES));
        problems.extend(expiring.map(|(line, _)| {
            let what = "`# EXPIRES` makes the key a comment";
            let fix = "write `expiry-time=\"20301231Z\"` in front of the key instead";
            Problem::warning(line, what, fix)
        }));
        problems
    }

    /// Adds a key at the end, and returns its number. Returns the number of the same key if it is already there.
    pub fn add(&mut self, line: &str, rules: KeyRules) -> Result<usize, Problem> {
        let line = line.trim();
        if line.contains(['\r', '\n']) {
            let fix = "add one key at a time";
            return Err(Problem::error(None, "the key has several lines", fix));
        }
        let key = AccountSshKey::parse(line, rules)?;
        let same = self.keys(rules).find(|(_, known)| known.is_same(&key));
        if let Some((number, _)) = same {
            return Ok(number);
        }
        too_many(self.len() + 1)?;
        let line_break = self.line_break();
        let mut text = self.text.clone();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push_str(line_break);
        }
        text.push_str(line);
        text.push_str(line_break);
        *self = Self::parse(text.as_bytes())?;
        Ok(self.slots.len())
    }

    /// Deletes a key and keeps its place. Returns false if no key has this number.
    pub fn delete(&mut self, number: usize) -> Result<bool, Problem> {
        let slot = number
            .checked_sub(1)
            .and_then(|index| self.slots.get(index))
            .filter(|slot| self.slot(slot) != KeySlot::Deleted);
        let Some(slot) = slot.cloned() else {
            return Ok(false);
        };
        let mut text = self.text.clone();
        text.replace_range(slot.range, DELETED);
        *self = Self::parse(text.as_bytes())?;
        Ok(true)
    }

    /// Number of keys, with invalid and without deleted ones.
    fn len(&self) -> usize {
        let slots = self.slots.iter().map(|slot| self.slot(slot));
        slots.filter(|slot| *slot != KeySlot::Deleted).count()
    }

    fn line_break(&self) -> &'static str {
        if self.text.contains("\r\n") {
            "\r\n"
        } else {
            "\n"
        }
    }
}

fn too_many(number: usize) -> Result<(), Problem> {
    if number <= AuthorizedKeys::MAX_KEYS {
        return Ok(());
    }
    let fix = format!("keep at most {}", AuthorizedKeys::MAX_KEYS);
    let what = format!("there are {number} keys");
    Err(Problem::limit(number, what, fix))
}

impl fmt::Display for AuthorizedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
