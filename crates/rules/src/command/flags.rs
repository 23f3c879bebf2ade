//! Reads flags in the way of GNU and Go's `pflag`.
//!
//! Accepted spellings are `--dir x`, `--dir=x`, `-d x`, `-dx` and `-d=x`, before, between or after operands. `--`
//! ends the flags. If a flag is given twice, the last one counts.
//!
//! Four readings that `pflag` would allow are refused, because nobody means them:
//! - an empty value (`-w ''` would turn a targeted apply into an apply of everything)
//! - a flag in the place of a value (`-d -w x`)
//! - a long flag with one dash (`-workspace=x` would be workspace `orkspace=x`)
//! - a Terraform flag before `--` (`-destroy` would be directory `estroy`)

use super::mistake::{CommandFault, FaultKind};
use super::split::SplitWord;
use super::suggest::nearest;

/// Spelling of a flag and its line in the help text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandFlag {
    /// Name after two dashes.
    pub long: &'static str,
    /// Letter after one dash.
    pub short: Option<char>,
    /// Name of the value in the help text; `None` for a switch.
    pub value: Option<&'static str>,
    /// One line for the help text.
    pub about: &'static str,
}

/// The `--help` flag, which every command has.
pub(super) static HELP: CommandFlag = CommandFlag {
    long: "help",
    short: Some('h'),
    value: None,
    about: "Show this text.",
};

/// Terraform flags that our short flags would swallow if the commenter forgets `--`.
const TERRAFORM_FLAGS: [&str; 4] = ["destroy", "detailed-exitcode", "parallelism", "plugin-dir"];

/// Words after the name of a command, sorted into flags, operands and extra arguments.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    values: Vec<(&'static CommandFlag, SplitWord)>,
    switches: Vec<(&'static CommandFlag, bool)>,
    /// Words before `--` that are not flags.
    pub operands: Vec<SplitWord>,
    /// All words that follow `--`.
    pub extra: Vec<SplitWord>,
    /// The separator `--`, if the line has one.
    pub separator: Option<SplitWord>,
}

impl Arguments {
    /// Returns the value of a flag; the last one counts.
    pub fn value(&self, flag: &'static CommandFlag) -> Option<&SplitWord> {
        self.values
            .iter()
            .rev()
            .find(|(given, _)| *given == flag)
            .map(|(_, value)| value)
    }

    /// Returns true if a switch is on; the last one counts.
    pub fn switch(&self, flag: &'static CommandFlag) -> bool {
        self.switches
            .iter()
            .rev()
            .find(|(given, _)| *given == flag)
            .is_some_and(|(_, on)| *on)
    }

    /// Returns the words after `--` as texts.
    pub fn extra_texts(&self) -> Vec<String> {
        self.extra.iter().map(|word| word.text.clone()).collect()
    }
}

/// Reads the words after the name of a command with the flags of that command.
pub(super) fn read(
    words: &[SplitWord],
    flags: &[&'static CommandFlag],
) -> Result<Arguments, CommandFault> {
    let mut reader = FlagReader {
        words: words.iter(),
        flags,
        arguments: Arguments::default(),
    };
    while let Some(word) = reader.words.next() {
        match word.text.strip_prefix('-') {
            None | Some("") => reader.arguments.operands.push(word.clone()),
            Some("-") => {
                reader.arguments.separator = Some(word.clone());
                reader.arguments.extra = reader.words.by_ref().cloned().collect();
            }
            Some(rest) => match rest.strip_prefix('-') {
                Some(long) => reader.long(word, long)?,
                None => reader.short(word, rest)?,
            },
        }
    }
    Ok(reader.arguments)
}

struct FlagReader<'a> {
    words: std::slice::Iter<'a, SplitWord>,
    flags: &'a [&'static CommandFlag],
    arguments: Arguments,
}

impl FlagReader<'_> {
    fn long(&mut self, word: &SplitWord, text: &str) -> Result<(), CommandFault> {
        let (name, value) = text
            .split_once('=')
            .map_or((text, None), |(name, value)| (name, Some(value)));
        let flag = self
            .flags
            .iter()
            .find(|flag| flag.long == name)
            .ok_or_else(|| self.unknown(word, name))?;
        self.take(word, flag, value)
    }

    /// Reads a word with one dash: a cluster of switches, whose last one may take a value.
    fn short(&mut self, word: &SplitWord, cluster: &str) -> Result<(), CommandFault> {
        let name = cluster.split_once('=').map_or(cluster, |(name, _)| name);
        if self.flags.iter().any(|flag| flag.long == name) || TERRAFORM_FLAGS.contains(&name) {
            return Err(self.unknown(word, name));
        }
        for (at, c) in cluster.char_indices() {
            let flag = self
                .flags
                .iter()
                .find(|flag| flag.short == Some(c))
                .ok_or_else(|| self.unknown(word, cluster))?;
            let rest = &cluster[at + c.len_utf8()..];
            let glued = rest
                .strip_prefix('=')
                .or((flag.value.is_some() && !rest.is_empty()).then_some(rest));
            self.take(word, flag, glued)?;
            if glued.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        word: &SplitWord,
        flag: &'static CommandFlag,
        glued: Option<&str>,
    ) -> Result<(), CommandFault> {
        if flag.value.is_none() {
            let on = switch_value(glued).ok_or_else(|| {
                CommandFault::at(
                    word,
                    FaultKind::NotABoolean {
                        flag,
                        value: glued.unwrap_or_default().to_owned(),
                    },
                )
            })?;
            self.arguments.switches.push((flag, on));
            return Ok(());
        }
        let value = match glued {
            Some(text) => SplitWord {
                text: text.to_owned(),
                span: word.span.clone(),
            },
            None => self
                .next_value()
                .ok_or_else(|| CommandFault::at(word, FaultKind::MissingValue { flag }))?,
        };
        if value.text.is_empty() {
            return Err(CommandFault::at(&value, FaultKind::MissingValue { flag }));
        }
        self.arguments.values.push((flag, value));
        Ok(())
    }

    /// Returns the next word, unless it is clearly the next flag.
    fn next_value(&mut self) -> Option<SplitWord> {
        let next = self.words.as_slice().first()?;
        let name = next
            .text
            .split_once('=')
            .map_or(next.text.as_str(), |(name, _)| name);
        let is_flag = |flag: &&CommandFlag| {
            name.strip_prefix("--") == Some(flag.long)
                || flag
                    .short
                    .is_some_and(|short| name.strip_prefix('-') == Some(short.to_string().as_str()))
        };
        if next.text == "--" || self.flags.iter().copied().any(|flag| is_flag(&flag)) {
            return None;
        }
        self.words.next().cloned()
    }

    fn unknown(&self, word: &SplitWord, name: &str) -> CommandFault {
        let nearest = if TERRAFORM_FLAGS.contains(&name) {
            None
        } else {
            nearest(name, self.flags.iter().map(|flag| flag.long)).map(|long| format!("--{long}"))
        };
        CommandFault::at(
            word,
            FaultKind::UnknownFlag {
                flag: word.text.clone(),
                nearest,
            },
        )
    }
}

/// Accepts the spellings of Go's `strconv.ParseBool`; a switch without a value is on.
fn switch_value(text: Option<&str>) -> Option<bool> {
    match text.map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "t" | "1") => Some(true),
        Some("false" | "f" | "0") => Some(false),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::split::split;
    use super::*;

    static DIR: CommandFlag = CommandFlag {
        long: "dir",
        short: Some('d'),
        value: Some("DIR"),
        about: "",
    };
    static WORKSPACE: CommandFlag = CommandFlag {
        long: "workspace",
        short: Some('w'),
        value: Some("NAME"),
        about: "",
    };
    static LOUD: CommandFlag = CommandFlag {
        long: "loud",
        short: Some('l'),
        value: None,
        about: "",
    };

    fn parse(line: &str) -> Result<Arguments, CommandFault> {
        read(&split(line).unwrap(), &[&DIR, &WORKSPACE, &LOUD, &HELP])
    }

    fn problem(line: &str) -> FaultKind {
        parse(line).expect_err(line).problem
    }

    #[test]
    fn every_spelling_of_a_value_is_read() {
        for line in [
            "--dir x",
            "--dir=x",
            "-d x",
            "-dx",
            "-d=x",
            "-ld x",
            "-ldx",
            "-l -d=x",
            "--dir y -d x",
        ] {
            assert_eq!(
                parse(line)
                    .unwrap()
                    .value(&DIR)
                    .map(|word| word.text.as_str()),
                Some("x"),
                "{line}"
            );
        }
        assert_eq!(parse("--dir=a=b").unwrap().value(&DIR).unwrap().text, "a=b");
    }

    #[test]
    fn switches_can_be_set_and_taken_back() {
        for (line, on) in [
            ("", false),
            ("--loud", true),
            ("-l", true),
            ("--loud=false", false),
            ("-l --loud=0", false),
        ] {
            assert_eq!(parse(line).unwrap().switch(&LOUD), on, "{line}");
        }
        assert_eq!(
            problem("--loud=often"),
            FaultKind::NotABoolean {
                flag: &LOUD,
                value: "often".into()
            }
        );
    }

    #[test]
    fn flags_and_operands_mix_until_two_dashes() {
        let arguments = parse("a -d x - b -- -d y --").unwrap();
        let texts = |words: &[SplitWord]| {
            words
                .iter()
                .map(|word| word.text.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&arguments.operands), ["a", "-", "b"]);
        assert_eq!(texts(&arguments.extra), ["-d", "y", "--"]);
    }

    #[test]
    fn a_value_that_is_missing_is_told() {
        for line in [
            "-d",
            "--dir",
            "-d --",
            "-d -w x",
            "-d --workspace=x",
            "--dir=",
            "-d=",
            "-d ''",
        ] {
            assert_eq!(
                problem(line),
                FaultKind::MissingValue { flag: &DIR },
                "{line}"
            );
        }
        assert_eq!(parse("-d -x").unwrap().value(&DIR).unwrap().text, "-x");
    }

    #[test]
    fn an_unknown_flag_comes_with_the_nearest_one() {
        for (line, nearest) in [
            ("--worskpace x", Some("--workspace")),
            ("-workspace=x", Some("--workspace")),
            ("-dir x", Some("--dir")),
            ("-e", None),
            ("--abc", None),
            ("---dir", Some("--dir")),
            ("--=x", None),
            ("-destroy", None),
            ("-lé", None),
        ] {
            let flag = line.split(' ').next().unwrap().to_owned();
            assert_eq!(
                problem(line),
                FaultKind::UnknownFlag {
                    flag,
                    nearest: nearest.map(str::to_owned)
                },
                "{line}"
            );
        }
    }
}
