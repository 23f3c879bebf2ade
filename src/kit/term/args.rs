//! Arguments that several subcommands have.

use std::fmt::Display;

use super::Terminal;
use crate::model::Reason;

/// Format of the output of a subcommand that prints a line for each thing.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct OutputFormat {
    /// As JSON, an object per line
    #[arg(long)]
    json: bool,
}

impl OutputFormat {
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Prints a thing as JSON or as a text for people.
    pub fn print<J: Display, T: Display>(
        self,
        terminal: &mut Terminal<'_>,
        json: impl FnOnce() -> J,
        text: impl FnOnce() -> T,
    ) -> std::io::Result<()> {
        if self.json {
            terminal.line(json())
        } else {
            terminal.line(text())
        }
    }
}

/// Required reason of a change that affects others.
#[derive(Clone, clap::Args)]
pub(crate) struct ReasonFlag {
    /// Reason, for other people and the audit log
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub reason: Reason,
}

/// Parses a reason, which must not be empty.
pub(crate) fn reason(text: &str) -> Result<Reason, String> {
    match Reason::read(text) {
        Ok(Some(reason)) => Ok(reason),
        Ok(None) => Err("it is empty: give a short reason".to_owned()),
        Err(problem) => Err(problem.to_string()),
    }
}
