//! Defines the table of commands. The same rows parse a comment and print help and usage, so neither can be
//! forgotten.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use super::extra::{ExtraArgs, RefusedArg};
use super::flags::{self, Arguments, CommandFlag, HELP};
use super::mistake::{CommandFault, FaultKind};
use super::split::SplitWord;
use super::{
    Command, apply, approve_policies, cancel, explain, help, import, plan, state_rm, unlock,
    version,
};

/// Maximum width in columns of a usage text that needs no scrolling in a comment.
const USAGE_COLUMNS: usize = 100;

/// First word of a command.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum CommandName {
    /// `plan`
    Plan,
    /// `apply`
    Apply,
    /// `cancel`
    Cancel,
    /// `unlock`
    Unlock,
    /// `explain`
    Explain,
    /// `approve_policies`
    ApprovePolicies,
    /// `version`
    Version,
    /// `import`
    Import,
    /// `state rm`
    State,
    /// `help`, which needs no permission.
    Help,
}

impl CommandName {
    /// All commands, in the order of the help text.
    pub const ALL: [Self; 10] = [
        Self::Plan,
        Self::Apply,
        Self::Cancel,
        Self::Unlock,
        Self::Explain,
        Self::ApprovePolicies,
        Self::Version,
        Self::Import,
        Self::State,
        Self::Help,
    ];

    /// Returns the name as written in comments and in `--allow-commands`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Cancel => "cancel",
            Self::Unlock => "unlock",
            Self::Explain => "explain",
            Self::ApprovePolicies => "approve_policies",
            Self::Version => "version",
            Self::Import => "import",
            Self::State => "state",
            Self::Help => "help",
        }
    }

    pub(super) const fn spec(self) -> &'static GrammarRow {
        match self {
            Self::Plan => &plan::SPEC,
            Self::Apply => &apply::SPEC,
            Self::Cancel => &cancel::SPEC,
            Self::Unlock => &unlock::SPEC,
            Self::Explain => &explain::SPEC,
            Self::ApprovePolicies => &approve_policies::SPEC,
            Self::Version => &version::SPEC,
            Self::Import => &import::SPEC,
            Self::State => &state_rm::SPEC,
            Self::Help => &help::SPEC,
        }
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that is not the name of a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a command")]
pub struct UnknownCommand(String);

impl FromStr for CommandName {
    type Err = UnknownCommand;

    /// Parses the name without regard to case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL
            .into_iter()
            .find(|name| name.as_str().eq_ignore_ascii_case(text));
        found.ok_or_else(|| UnknownCommand(text.to_owned()))
    }
}

/// Words that a command takes in addition to flags.
#[derive(Debug)]
pub(super) enum Operands {
    /// The command takes no operands.
    None,
    /// The command takes each of these, once.
    Each(&'static [&'static str]),
    /// The command takes a fixed first word, then one or more of the named operand.
    AfterWord(&'static str, &'static str),
}

/// Rules of this server for the words of a command, besides its own row.
pub(super) struct WordRules<'a> {
    /// Extra arguments that comments may give.
    pub extra: &'a ExtraArgs,
    /// True if the value of `-p` may be a regular expression.
    pub regexp: bool,
}

/// Row of a command in the table.
pub(super) struct GrammarRow {
    /// First word of the command.
    pub name: CommandName,
    /// Purpose of the command, as one line for the help text.
    pub about: &'static str,
    /// Operands of the command.
    pub operands: Operands,
    /// Flags of the command, without `--help`.
    pub flags: &'static [&'static CommandFlag],
    /// True if words after `--` are handed to Terraform.
    pub extra: bool,
    /// Further facts, shown under the usage; may be empty.
    pub note: &'static str,
    /// Examples for the general help: the text after the name of the bot, and its meaning.
    pub examples: &'static [(&'static str, &'static str)],
    /// Builds the command from arguments whose flags, operands and extra arguments comply with this row.
    pub build: fn(&Arguments, &WordRules<'_>) -> Result<Command, CommandFault>,
}

impl GrammarRow {
    /// Reads the words after the name of the command.
    pub fn read(
        &self,
        words: &[SplitWord],
        rules: &WordRules<'_>,
    ) -> Result<Command, CommandFault> {
        let mut arguments = flags::read(words, &self.all_flags())?;
        if arguments.switch(&HELP) {
            return Ok(Command::Help(help::HelpCommand {
                topic: Some(self.name),
            }));
        }
        self.check_operands(&mut arguments)?;
        self.check_extra(&mut arguments, rules)?;
        (self.build)(&arguments, rules)
    }

    fn all_flags(&self) -> Vec<&'static CommandFlag> {
        self.flags.iter().copied().chain([&HELP]).collect()
    }

    /// Checks the operands. Afterwards `arguments.operands` holds as many as the row says, without a fixed first
    /// word.
    fn check_operands(&self, arguments: &mut Arguments) -> Result<(), CommandFault> {
        let given = &mut arguments.operands;
        match &self.operands {
            Operands::None => surplus(given, 0),
            Operands::Each(names) => {
                surplus(given, names.len())?;
                names.get(given.len()).map_or(Ok(()), |name| {
                    Err(CommandFault::nowhere(FaultKind::MissingOperand { name }))
                })
            }
            Operands::AfterWord(word, name) => {
                let Some(first) = given.first() else {
                    return Err(CommandFault::nowhere(FaultKind::MissingOperand {
                        name: word,
                    }));
                };
                if !first.text.eq_ignore_ascii_case(word) {
                    return Err(CommandFault::at(
                        first,
                        FaultKind::NotTheWord {
                            given: first.text.clone(),
                            word,
                        },
                    ));
                }
                given.remove(0);
                if given.is_empty() {
                    Err(CommandFault::nowhere(FaultKind::MissingOperand { name }))
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Checks the extra arguments. Afterwards `arguments.extra` holds the spellings that the tool receives.
    fn check_extra(
        &self,
        arguments: &mut Arguments,
        rules: &WordRules<'_>,
    ) -> Result<(), CommandFault> {
        if let (false, Some(separator)) = (self.extra, &arguments.separator) {
            let places = [separator]
                .into_iter()
                .chain(&arguments.extra)
                .map(|word| word.span.clone())
                .collect();
            return Err(CommandFault {
                problem: FaultKind::NoExtraArguments,
                places,
            });
        }
        for word in &arguments.operands {
            if let Some(rule) = rules.extra.rule_against(&word.text) {
                let refused = RefusedArg::Blocked {
                    argument: word.text.clone(),
                    rule: rule.to_owned(),
                };
                return Err(CommandFault::at(word, FaultKind::ExtraArgument(refused)));
            }
        }
        for place in 0..arguments.extra.len() {
            let (word, next) = (&arguments.extra[place], arguments.extra.get(place + 1));
            let normalized =
                rules
                    .extra
                    .normalize(self.name, &word.text, next.map(|next| next.text.as_str()));
            let text = normalized
                .map_err(|refused| CommandFault::at(word, FaultKind::ExtraArgument(refused)))?;
            arguments.extra[place].text = text;
        }
        Ok(())
    }

    /// Formats `plan [-d DIR] [--verbose] [-- TERRAFORM ARGUMENTS]`, broken into lines if it is long.
    fn synopsis(&self, executable: &str) -> String {
        let flags = self.flags.iter().map(|flag| {
            let spelling = flag
                .short
                .map_or_else(|| format!("--{}", flag.long), |short| format!("-{short}"));
            format!(
                "[{spelling}{}]",
                flag.value
                    .map(|value| format!(" {value}"))
                    .unwrap_or_default()
            )
        });
        let extra = self.extra.then(|| "[-- TERRAFORM ARGUMENTS]".to_owned());
        let mut text = format!("Usage: {executable} {}", self.title());
        let mut width = text.chars().count();
        for piece in flags.chain(extra) {
            let break_line = width + piece.len() >= USAGE_COLUMNS;
            width = piece.len() + if break_line { 4 } else { width + 1 };
            text += if break_line { "\n    " } else { " " };
            text += &piece;
        }
        text
    }

    /// Returns name and operands: `import ADDRESS ID`.
    pub fn title(&self) -> String {
        match &self.operands {
            Operands::None => self.name.to_string(),
            Operands::Each(names) => format!("{} {}", self.name, names.join(" ")),
            Operands::AfterWord(word, name) => format!("{} {word} {name}...", self.name),
        }
    }

    /// Returns the usage text of the command, without Markdown.
    pub fn usage(&self, executable: &str) -> String {
        let mut text = format!(
            "{}\n\n{}\n\nFlags:\n",
            self.synopsis(executable),
            self.about
        );
        for flag in self.all_flags() {
            let short = flag
                .short
                .map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
            let value = flag
                .value
                .map(|value| format!(" {value}"))
                .unwrap_or_default();
            let spelling = format!("{short}--{}{value}", flag.long);
            writeln!(text, "  {spelling:<32} {}", flag.about).expect("a String takes any text");
        }
        if !self.note.is_empty() {
            writeln!(text, "\n{}", self.note).expect("a String takes any text");
        }
        text
    }
}

fn surplus(given: &[SplitWord], allowed: usize) -> Result<(), CommandFault> {
    let Some(rest) = given.get(allowed..).filter(|rest| !rest.is_empty()) else {
        return Ok(());
    };
    let words = rest.iter().map(|word| word.text.clone()).collect();
    Err(CommandFault {
        problem: FaultKind::Unexpected { words },
        places: rest.iter().map(|word| word.span.clone()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_has_its_own_row() {
        for name in CommandName::ALL {
            assert_eq!(name.as_str().to_uppercase().parse(), Ok(name));
            assert_eq!(name.spec().name, name);
            assert_eq!(serde_json::to_string(&name).unwrap(), format!("\"{name}\""));
        }
        assert!("policy_check".parse::<CommandName>().is_err());
    }

    #[test]
    fn no_row_spells_two_flags_alike() {
        for name in CommandName::ALL {
            let flags = name.spec().all_flags();
            for (n, flag) in flags.iter().enumerate() {
                let clash = |other: &&CommandFlag| {
                    other.long == flag.long || (flag.short.is_some() && other.short == flag.short)
                };
                assert!(
                    !flags[..n].iter().copied().any(|other| clash(&other)),
                    "{name} --{}",
                    flag.long
                );
            }
        }
    }
}
