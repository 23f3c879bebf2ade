//! `help`
//!
//! The name of a command may follow; `--help` after a command does the same.
//!
//! The whole text comes from the table in `spec.rs`.

use std::fmt::{self, Write as _};

use super::Command;
use super::flags::HELP;
use super::quote::fence;
use super::spec::{CommandName, GrammarRow, Operands};
use super::split::SplitWord;

/// The `help` command, which shows all commands or the usage of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HelpCommand {
    /// Command to explain; `None` for an overview.
    pub topic: Option<CommandName>,
}

pub(super) static SPEC: GrammarRow = GrammarRow {
    name: CommandName::Help,
    about: "Show this overview, or the usage of one command.",
    operands: Operands::None,
    flags: &[],
    extra: false,
    note: "",
    examples: &[],
    build: |_, _| Ok(Command::Help(HelpCommand::default())),
};

/// Reads the topic and never fails: words that name no command lead to the overview.
pub(super) fn read(words: &[SplitWord], may: impl Fn(CommandName) -> bool) -> HelpCommand {
    let topic = words.first().and_then(|word| word.text.parse().ok());
    HelpCommand {
        topic: topic.filter(|name| may(*name)),
    }
}

impl fmt::Display for HelpCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.topic {
            None => f.pad(CommandName::Help.as_str()),
            Some(topic) => f.pad(&format!("{} {topic}", CommandName::Help)),
        }
    }
}

/// Returns the overview of the allowed commands as Markdown.
pub(super) fn overview(executable: &str, allowed: &[CommandName]) -> String {
    let mut text = format!("{executable} COMMAND [FLAGS] [-- TERRAFORM ARGUMENTS]\n\nCommands:\n");
    for spec in allowed.iter().map(|name| name.spec()) {
        writeln!(text, "  {:<22} {}", spec.title(), spec.about).expect("a String takes any text");
    }
    text += "\nExamples:\n";
    let examples = allowed.iter().flat_map(|name| name.spec().examples);
    for (line, meaning) in examples.chain(&[("help", "this overview")]) {
        writeln!(text, "  {executable} {line}\n      {meaning}").expect("a String takes any text");
    }
    writeln!(
        text,
        "\nFlags:\n  -h, --{:<16} After a command: show its usage.",
        HELP.long
    )
    .expect("a String takes any text");
    format!(
        "**Lockkeeper** runs Terraform and OpenTofu for this pull request and keeps the locks. Write a command as a \
         comment of its own, on one line.\n\n{}",
        fence(&text)
    )
}
