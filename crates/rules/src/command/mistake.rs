//! Writes the reply to an invalid command: the fault, its place, the nearest spelling, and the usage.

use std::fmt;
use std::ops::Range;

use super::comment::Formatting;
use super::extra::{RefusedArg, is_dash};
use super::flags::CommandFlag;
use super::quote::{code, copyable, fence, pointed};
use super::spec::{CommandName, GrammarRow, Operands};
use super::split::{SplitError, SplitWord};

/// A comment for the bot that is not a valid command, with the reply that says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    reason: &'static str,
    markdown: String,
}

impl Mistake {
    /// Returns a stable word for the kind of mistake, for the hidden line of the reply and for metrics.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Returns the reply, which quotes the text of the commenter so that it has no effect.
    pub fn markdown(&self) -> &str {
        &self.markdown
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.markdown)
    }
}

/// A problem and its places in the line, in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandFault {
    pub problem: FaultKind,
    pub places: Vec<Range<usize>>,
}

impl CommandFault {
    pub fn at(word: &SplitWord, problem: FaultKind) -> Self {
        Self {
            problem,
            places: vec![word.span.clone()],
        }
    }

    /// Marks the `len` bytes that start at `at`.
    pub fn within(at: usize, len: usize, problem: FaultKind) -> Self {
        Self::at(
            &SplitWord {
                text: String::new(),
                span: at..at + len,
            },
            problem,
        )
    }

    pub fn nowhere(problem: FaultKind) -> Self {
        Self {
            problem,
            places: Vec::new(),
        }
    }

    /// Reports an invalid value. `rule` describes a valid one; the text is our own and contains nothing that was
    /// typed.
    pub fn bad_value(word: &SplitWord, flag: &'static CommandFlag, rule: &str) -> Self {
        Self::at(
            word,
            FaultKind::BadValue {
                flag,
                value: word.text.clone(),
                rule: rule.to_owned(),
            },
        )
    }
}

/// Kind of a fault. Texts are as typed and not safe to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// The comment starts with the name of a tool or a misspelled name of the bot.
    OtherName { typed: String },
    /// The whole comment is longer than the limit in bytes.
    TooLong { limit: usize },
    /// The command has more words than the limit.
    TooManyWords { limit: usize },
    /// The line contains a character that readers cannot see.
    Hidden { character: char },
    /// The line has Markdown that shows readers another text.
    Formatted(Formatting),
    /// The line cannot be split into words.
    Split(SplitError),
    /// No command has this name.
    UnknownCommand {
        typed: String,
        nearest: Option<CommandName>,
    },
    /// The administrator did not allow the command.
    NotAllowed { name: CommandName },
    /// The command has no such flag.
    UnknownFlag {
        flag: String,
        nearest: Option<String>,
    },
    /// A switch has a value that is neither true nor false.
    NotABoolean {
        flag: &'static CommandFlag,
        value: String,
    },
    /// A flag lacks its value.
    MissingValue { flag: &'static CommandFlag },
    /// A flag has an invalid value.
    BadValue {
        flag: &'static CommandFlag,
        value: String,
        rule: String,
    },
    /// The command does not take these words.
    Unexpected { words: Vec<String> },
    /// The command lacks an operand.
    MissingOperand { name: &'static str },
    /// The operand differs from the fixed word.
    NotTheWord { given: String, word: &'static str },
    /// Two flags exclude each other.
    Conflict {
        one: &'static CommandFlag,
        other: &'static CommandFlag,
    },
    /// The command runs no Terraform, but words follow `--`.
    NoExtraArguments,
    /// An extra argument is not allowed.
    ExtraArgument(RefusedArg),
}

impl FaultKind {
    fn reason(&self) -> &'static str {
        match self {
            Self::OtherName { .. } => "other_name",
            Self::TooLong { .. } | Self::TooManyWords { .. } => "too_long",
            Self::Hidden { .. } => "hidden_character",
            Self::Formatted(_) => "formatted",
            Self::Split(_) => "not_closed",
            Self::UnknownCommand { .. } => "unknown_command",
            Self::NotAllowed { .. } => "command_not_allowed",
            Self::UnknownFlag { .. } => "unknown_flag",
            Self::NotABoolean { .. } | Self::BadValue { .. } => "bad_value",
            Self::MissingValue { .. } => "missing_value",
            Self::Unexpected { .. } | Self::NotTheWord { .. } => "unexpected_argument",
            Self::MissingOperand { .. } => "missing_argument",
            Self::Conflict { .. } => "conflicting_flags",
            Self::NoExtraArguments => "extra_arguments_not_used",
            Self::ExtraArgument(refused) => refused.reason(),
        }
    }
}

/// Context that a reply needs besides the fault.
pub(super) struct MistakeContext<'a> {
    /// Line as it was typed.
    pub line: &'a str,
    /// Name of the bot.
    pub executable: &'a str,
    /// Commands that are allowed here, `help` included.
    pub allowed: &'a [CommandName],
    /// Requested command, if known.
    pub spec: Option<&'static GrammarRow>,
}

impl MistakeContext<'_> {
    /// Writes the reply to a fault.
    pub fn mistake(&self, fault: &CommandFault) -> Mistake {
        let mut parts = vec![format!(
            "**Nothing was run**: {}",
            self.sentence(&fault.problem)
        )];
        if let FaultKind::OtherName { .. } = fault.problem {
            parts.extend(copyable(&self.corrected()));
        } else if !self.line.is_empty() {
            parts.push(pointed(self.line, &fault.places));
        }
        parts.push(self.way_out());
        Mistake {
            reason: fault.problem.reason(),
            markdown: parts.join("\n\n"),
        }
    }

    /// Returns the line with the name of the bot in place of its first word.
    fn corrected(&self) -> String {
        let rest = self
            .line
            .split_once(char::is_whitespace)
            .map_or("", |(_, rest)| rest.trim_start());
        format!("{} {rest}", self.executable).trim_end().to_owned()
    }

    fn way_out(&self) -> String {
        match self.spec {
            Some(spec) => fence(&spec.usage(self.executable)),
            None => format!(
                "{} lists the commands.",
                code(&format!("{} help", self.executable))
            ),
        }
    }

    fn sentence(&self, problem: &FaultKind) -> String {
        match problem {
            FaultKind::OtherName { typed } => self.other_name(typed),
            FaultKind::TooLong { limit } => {
                format!("a comment with a command may have at most {limit} bytes.")
            }
            FaultKind::TooManyWords { limit } => {
                format!("a command may have at most {limit} words.")
            }
            FaultKind::Hidden { character } => hidden(*character),
            FaultKind::Formatted(formatting) => formatted(*formatting),
            FaultKind::Split(error) => not_closed(error),
            FaultKind::UnknownCommand { typed, nearest } => self.unknown_command(typed, *nearest),
            FaultKind::NotAllowed { name } => self.not_allowed(*name),
            FaultKind::UnknownFlag { flag, nearest } => self.unknown_flag(flag, nearest.as_deref()),
            FaultKind::NotABoolean { flag, value } => {
                format!(
                    "{} is a switch. Its value can be `true` or `false`, but not {}.",
                    spelled(flag),
                    code(value)
                )
            }
            FaultKind::MissingValue { flag } => {
                let usage = format!("--{} {}", flag.long, flag.value.unwrap_or_default());
                format!("{} needs a value: {}.", spelled(flag), code(&usage))
            }
            FaultKind::BadValue { flag, value, rule } => {
                format!("{} cannot be {}: {rule}.", spelled(flag), code(value))
            }
            FaultKind::Unexpected { words } => self.unexpected(words),
            FaultKind::MissingOperand { name } => {
                format!("{} is missing its argument {}.", self.command(), code(name))
            }
            FaultKind::NotTheWord { given, word } => {
                format!(
                    "after {} comes {}, not {}.",
                    self.command(),
                    code(word),
                    code(given)
                )
            }
            FaultKind::Conflict { one, other } => format!(
                "{} and {} cannot be used together.",
                spelled(one),
                spelled(other)
            ),
            FaultKind::NoExtraArguments => {
                format!(
                    "{} passes nothing to Terraform, so nothing is allowed after `--`.",
                    self.command()
                )
            }
            FaultKind::ExtraArgument(refused @ RefusedArg::Unknown { argument, .. }) => {
                format!("{refused}{}", typography(std::slice::from_ref(argument)))
            }
            FaultKind::ExtraArgument(refused) => refused.to_string(),
        }
    }

    fn other_name(&self, typed: &str) -> String {
        let (name, typed) = (code(self.executable), code(typed));
        format!("comments for this bot start with {name}, not with {typed}. Did you mean that?")
    }

    fn not_allowed(&self, name: CommandName) -> String {
        let (name, choices) = (code(name.as_str()), self.choices());
        format!(
            "{name} is disabled on this server; an administrator can allow it with `--allow-commands`. {choices}"
        )
    }

    fn command(&self) -> String {
        self.spec
            .map_or_else(|| "the command".to_owned(), |spec| code(spec.name.as_str()))
    }

    fn choices(&self) -> String {
        let names: Vec<String> = self
            .allowed
            .iter()
            .map(|name| code(name.as_str()))
            .collect();
        format!("Commands here: {}.", names.join(", "))
    }

    fn unknown_command(&self, typed: &str, nearest: Option<CommandName>) -> String {
        let choices = self.choices();
        match nearest {
            Some(name) => {
                let (typed, name, foreign) =
                    (code(typed), code(name.as_str()), foreign_letters(typed));
                format!("{typed} is not a command. Did you mean {name}? {foreign}{choices}")
            }
            None if typed.starts_with('-') => {
                format!(
                    "{} is in the place of a command; flags follow the command. {choices}",
                    code(typed)
                )
            }
            None => format!("{} is not a command. {choices}", code(typed)),
        }
    }

    fn unknown_flag(&self, flag: &str, nearest: Option<&str>) -> String {
        let what = format!("{} is not a flag of {}.", code(flag), self.command());
        match (nearest, self.spec) {
            (Some(nearest), _) => format!("{what} Did you mean {}?", code(nearest)),
            (None, Some(spec)) if spec.extra => {
                let example = format!("{} {} -- {flag}", self.executable, spec.title());
                format!(
                    "{what} If Terraform is meant, write it after two dashes: {}",
                    code(&example)
                )
            }
            (None, _) => what,
        }
    }

    fn unexpected(&self, words: &[String]) -> String {
        let shown: Vec<String> = words.iter().take(5).map(|word| code(word)).collect();
        let more = if words.len() > shown.len() {
            " and more"
        } else {
            ""
        };
        let takes = match self
            .spec
            .map(|spec| (&spec.operands, spec.flags.is_empty()))
        {
            Some((Operands::None, true)) => format!("{} takes no arguments", self.command()),
            Some((Operands::None, false)) => format!("{} takes flags only", self.command()),
            Some((Operands::Each(_) | Operands::AfterWord(..), _)) | None => {
                format!("{} takes fewer arguments", self.command())
            }
        };
        let words_for = if words.len() == 1 {
            "argument"
        } else {
            "arguments"
        };
        format!(
            "unexpected {words_for} {}{more}; {takes}.{}",
            shown.join(", "),
            typography(words)
        )
    }
}

fn spelled(flag: &CommandFlag) -> String {
    code(&format!("--{}", flag.long))
}

/// Explains dashes and curly quotes, because some editors replace `--` and straight quotes with them.
fn typography(words: &[String]) -> &'static str {
    if words
        .iter()
        .any(|word| word.starts_with(|c| is_dash(c) && c != '-'))
    {
        " That is a long dash; some editors replace two hyphens with it. Flags start with `--`."
    } else if words
        .iter()
        .any(|word| word.contains(['“', '”', '„', '‘', '’']))
    {
        " Those are curly quotation marks; only straight ones (`'` and `\"`) group words."
    } else {
        ""
    }
}

fn hidden(character: char) -> String {
    format!(
        "the command has an invisible character (U+{:04X}), so readers see another text. Such characters often come \
         from copied text. Type that part again.",
        u32::from(character)
    )
}

fn formatted(formatting: Formatting) -> String {
    let what = match formatting {
        Formatting::Code => "a part of the command is formatted as code",
        Formatting::Link => "the command has a link or an image in it",
        Formatting::Html => "the command has HTML in it",
    };
    format!(
        "{what}, so readers see another text than the one typed. Put the whole line into a code block."
    )
}

fn not_closed(error: &SplitError) -> String {
    match error {
        SplitError::Quote { mark, .. } => format!(
            "the quotation mark {} is not closed.",
            code(&mark.to_string())
        ),
        SplitError::Backslash { .. } => "nothing follows the backslash at the end.".to_owned(),
    }
}

/// Names letters that only look like a to z, because nobody would see why the word is not understood.
fn foreign_letters(typed: &str) -> String {
    let mut foreign: Vec<char> = typed
        .chars()
        .filter(|c| c.is_alphabetic() && !c.is_ascii())
        .collect();
    foreign.sort_unstable();
    foreign.dedup();
    let named: Vec<String> = foreign
        .iter()
        .take(5)
        .map(|c| format!("{} is U+{:04X}", code(&c.to_string()), u32::from(*c)))
        .collect();
    match named.as_slice() {
        [] => String::new(),
        [_] => format!("{}, which is no letter from a to z. ", named[0]),
        [_, ..] => format!("{}, which are no letters from a to z. ", named.join(", ")),
    }
}
