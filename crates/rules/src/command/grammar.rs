//! Turns the raw text of a comment into a command, an answer, or silence.

use super::Command;
use super::comment::{self, IgnoredComment, OnlyLine};
use super::extra::ExtraArgs;
use super::help;
use super::mistake::{CommandFault, FaultKind, Mistake, MistakeContext};
use super::names::{Address, BotNames, reads_like_a_command};
use super::quote::MUTED_AT;
use super::spec::{CommandName, GrammarRow, WordRules};
use super::split::{SplitError, SplitWord, split};
use super::suggest::nearest;
use crate::model::is_hidden;

/// Result of reading a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one such value per comment, and it is read at once"
)]
pub enum CommentReading {
    /// The comment is not for the bot, which does not answer.
    Ignored(IgnoredComment),
    /// The comment is a command to run.
    Command(Command),
    /// The comment is for the bot, but wrong. The bot answers with [`Mistake::markdown`] and runs nothing.
    Mistake(Mistake),
}

/// Names, commands and arguments that this server accepts on one forge.
#[derive(Clone, Debug)]
pub struct Grammar {
    names: BotNames,
    allowed: Vec<CommandName>,
    extra: ExtraArgs,
    regexp: bool,
}

impl Grammar {
    /// Maximum size of a command comment in bytes.
    pub const MAX_BYTES: usize = 64 * 1024;
    /// Maximum number of words in a command.
    pub const MAX_WORDS: usize = 512;

    /// Allows `plan`, `apply` and `unlock`, and the extra arguments of the table.
    pub fn new(names: BotNames) -> Self {
        let grammar = Self {
            names,
            allowed: Vec::new(),
            extra: ExtraArgs::default(),
            regexp: false,
        };
        grammar.with_allowed(&[CommandName::Plan, CommandName::Apply, CommandName::Unlock])
    }

    /// Allows exactly these commands (`--allow-commands`), and `help`, which cannot be disabled.
    #[must_use]
    pub fn with_allowed(mut self, names: &[CommandName]) -> Self {
        let allowed = |name: &CommandName| *name == CommandName::Help || names.contains(name);
        self.allowed = CommandName::ALL.into_iter().filter(allowed).collect();
        self
    }

    /// Sets the extra arguments that are allowed (`--allow-extra-args`, `--blocked-extra-args`).
    #[must_use]
    pub fn with_extra_args(mut self, extra: ExtraArgs) -> Self {
        self.extra = extra;
        self
    }

    /// Allows or forbids a regular expression after `-p` (`--enable-regexp-cmd`).
    #[must_use]
    pub fn with_regexp(mut self, regexp: bool) -> Self {
        self.regexp = regexp;
        self
    }

    /// Reads a comment. The caller first checks with [`Self::is_own`] that the bot did not write it.
    pub fn read(&self, comment: &str) -> CommentReading {
        if comment.len() > Self::MAX_BYTES {
            return self.too_long(comment);
        }
        let line = match comment::line(&comment.replace(MUTED_AT, "@")) {
            Ok(line) => line,
            Err(reason) => return CommentReading::Ignored(reason),
        };
        let mut words = line.text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let like_a_command = reads_like_a_command(words.next());
        match self.names.address(first) {
            Address::Name => self.command(&line),
            Address::Everyday if like_a_command => self.command(&line),
            Address::Mistaken if like_a_command => {
                let fault = CommandFault::nowhere(FaultKind::OtherName {
                    typed: first.to_owned(),
                });
                self.mistake(&line.text, None, &fault)
            }
            Address::Everyday | Address::Mistaken | Address::Stranger => {
                CommentReading::Ignored(IgnoredComment::NotForUs)
            }
        }
    }

    /// Returns true if the bot itself wrote the comment; the caller must not read such a comment.
    pub fn is_own(&self, author: &str) -> bool {
        self.names.is_own(author)
    }

    /// Returns true if the administrator allows the command.
    pub fn allows(&self, name: CommandName) -> bool {
        self.allowed.contains(&name)
    }

    /// Returns the overview of commands, or the usage of one, as Markdown.
    pub fn help(&self, topic: Option<CommandName>) -> String {
        match topic.filter(|name| *name != CommandName::Help) {
            None => help::overview(self.names.primary(), &self.allowed),
            Some(name) => super::quote::fence(&name.spec().usage(self.names.primary())),
        }
    }

    /// Returns the comment that gives a command, in one line: for "to plan again, write …". Show it as code.
    pub fn line(&self, command: &Command) -> String {
        format!("{} {command}", self.names.primary())
    }

    /// Answers a comment over the limit only if it clearly addresses the bot, because long comments are mostly prose or
    /// logs.
    fn too_long(&self, comment: &str) -> CommentReading {
        let text = comment.trim();
        let first = text.split_whitespace().next().unwrap_or_default();
        if text.contains('\n') || self.names.address(first) != Address::Name {
            return CommentReading::Ignored(IgnoredComment::TooLong);
        }
        self.mistake(
            "",
            None,
            &CommandFault::nowhere(FaultKind::TooLong {
                limit: Self::MAX_BYTES,
            }),
        )
    }

    fn command(&self, line: &OnlyLine) -> CommentReading {
        match self
            .words(line)
            .map_err(|fault| (None, fault))
            .and_then(|words| self.parse(&words))
        {
            Ok(command) => CommentReading::Command(command),
            Err((spec, fault)) => self.mistake(&line.text, spec, &fault),
        }
    }

    /// Splits the line into words and drops the name of the bot.
    fn words(&self, line: &OnlyLine) -> Result<Vec<SplitWord>, CommandFault> {
        if let Some(formatting) = line.formatting {
            return Err(CommandFault::nowhere(FaultKind::Formatted(formatting)));
        }
        if let Some((at, character)) = line.text.char_indices().find(|(_, c)| is_hidden(*c)) {
            return Err(CommandFault::within(
                at,
                character.len_utf8(),
                FaultKind::Hidden { character },
            ));
        }
        let mut words = split(&line.text).map_err(|error| self.not_split(&line.text, error))?;
        if words.len() > Self::MAX_WORDS {
            return Err(CommandFault::nowhere(FaultKind::TooManyWords {
                limit: Self::MAX_WORDS,
            }));
        }
        words.remove(0);
        Ok(words)
    }

    /// Reports an unknown command where an apostrophe in a sentence ("lockkeeper doesn't …") is no open quotation.
    fn not_split(&self, line: &str, error: SplitError) -> CommandFault {
        let rest = line
            .trim_start_matches(|c: char| !c.is_whitespace())
            .trim_start();
        let second = rest.split_whitespace().next().unwrap_or_default();
        if second
            .trim_matches(['\'', '"', '\\'])
            .parse::<CommandName>()
            .is_err()
        {
            let start = line.len() - rest.len();
            return self.unknown_command(&SplitWord {
                text: second.to_owned(),
                span: start..start + second.len(),
            });
        }
        let at = match error {
            SplitError::Quote { at, .. } | SplitError::Backslash { at } => at,
        };
        CommandFault::within(at, 1, FaultKind::Split(error))
    }

    fn parse(
        &self,
        words: &[SplitWord],
    ) -> Result<Command, (Option<&'static GrammarRow>, CommandFault)> {
        let Some((name, rest)) = words.split_first() else {
            return Ok(Command::Help(help::HelpCommand::default()));
        };
        if matches!(name.text.as_str(), "-h" | "--help") {
            return Ok(Command::Help(help::HelpCommand::default()));
        }
        let known: CommandName = name
            .text
            .parse()
            .map_err(|_| (None, self.unknown_command(name)))?;
        if known == CommandName::Help {
            return Ok(Command::Help(help::read(rest, |topic| self.allows(topic))));
        }
        if !self.allows(known) {
            return Err((
                None,
                CommandFault::at(name, FaultKind::NotAllowed { name: known }),
            ));
        }
        let rules = WordRules {
            extra: &self.extra,
            regexp: self.regexp,
        };
        known
            .spec()
            .read(rest, &rules)
            .map_err(|fault| (Some(known.spec()), fault))
    }

    fn unknown_command(&self, word: &SplitWord) -> CommandFault {
        let near = nearest(&word.text, self.allowed.iter().map(|name| name.as_str()));
        let nearest = near.and_then(|name| name.parse().ok());
        CommandFault::at(
            word,
            FaultKind::UnknownCommand {
                typed: word.text.clone(),
                nearest,
            },
        )
    }

    fn mistake(
        &self,
        line: &str,
        spec: Option<&'static GrammarRow>,
        fault: &CommandFault,
    ) -> CommentReading {
        let scene = MistakeContext {
            line,
            executable: self.names.primary(),
            allowed: &self.allowed,
            spec,
        };
        CommentReading::Mistake(scene.mistake(fault))
    }
}
