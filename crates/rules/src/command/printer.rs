//! Writes a command as a person would type it.

use std::fmt;

use super::flags::CommandFlag;
use super::spec::CommandName;
use crate::model::quote;

/// Collects the words of a command and quotes them.
pub(super) struct Printer(String);

impl Printer {
    /// Starts with the name of the command.
    pub fn new(name: CommandName) -> Self {
        Self(name.to_string())
    }

    /// Adds an operand, quoted if necessary.
    pub fn word(&mut self, word: &str) {
        self.0.push(' ');
        self.0.push_str(&quote(word));
    }

    /// Adds a flag with its value. Joins them with `=` where the value alone could be read as a flag.
    pub fn value(&mut self, flag: &CommandFlag, value: &str) {
        if value.starts_with('-') {
            self.word(&format!("--{}={value}", flag.long));
        } else {
            self.word(
                &flag
                    .short
                    .map_or_else(|| format!("--{}", flag.long), |short| format!("-{short}")),
            );
            self.word(value);
        }
    }

    /// Adds a switch if it is on.
    pub fn switch(&mut self, flag: &CommandFlag, on: bool) {
        if on {
            self.word(&format!("--{}", flag.long));
        }
    }

    /// Adds the extra arguments after `--`.
    pub fn extra(&mut self, words: &[String]) {
        if !words.is_empty() {
            self.0.push_str(" --");
            for word in words {
                self.word(word);
            }
        }
    }

    /// Writes the collected words.
    pub fn finish(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
