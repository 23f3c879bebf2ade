//! Checks extra arguments: the words after `--`, which Lockkeeper hands to Terraform or OpenTofu.
//!
//! Everyone who may comment can write them (P8). Therefore only the flags of a table are allowed, each in one
//! spelling: `-name`, or `-name=value` in one word. A flag that took its value from the next word could swallow the
//! operand that Lockkeeper puts there.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use regex::Regex;

use super::quote::code;
use super::spec::CommandName;
use super::suggest::nearest;
use crate::model::{Distribution, quote};

use CommandName::{Apply, Import, Plan, State};
use Form::{Duration, Number, Switch, Value, Word};

/// Flags that change where Terraform runs (reference 1.1, step 12).
const DEFAULT_BLOCKED: [&str; 2] = ["chdir", "plugin-dir"];

/// Names of the commands that take extra arguments.
const COMMANDS: [CommandName; 4] = [Plan, Apply, Import, State];

/// Spelling of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `-name` and nothing else: the tool compares the whole word.
    Word,
    /// `-name`, `-name=true` or `-name=false`.
    Switch,
    /// `-name=value`.
    Value,
    /// `-name=10`.
    Number,
    /// `-name=30s`, as Go reads it.
    Duration,
}

impl Form {
    fn has_value(self) -> bool {
        match self {
            Self::Value | Self::Number | Self::Duration => true,
            Self::Word | Self::Switch => false,
        }
    }
}

/// One row of the table of flags that comments may give.
struct FlagRow {
    name: &'static str,
    form: Form,
    commands: &'static [CommandName],
    /// The only tool that has the flag; `None` means that both tools have it.
    only: Option<Distribution>,
}

const fn both(name: &'static str, form: Form, commands: &'static [CommandName]) -> FlagRow {
    FlagRow {
        name,
        form,
        commands,
        only: None,
    }
}

const fn of_opentofu(name: &'static str, form: Form, commands: &'static [CommandName]) -> FlagRow {
    FlagRow {
        name,
        form,
        commands,
        only: Some(Distribution::OpenTofu),
    }
}

/// Table of the flags that comments may give. Tests compare it with real programs.
///
/// An apply takes a plan as it is, so no flag for `apply` can change the result. Variables are excluded too, because
/// a plan does not contain the values of ephemeral ones.
const ROWS: [FlagRow; 14] = [
    both("compact-warnings", Word, &[Plan, Apply, Import]),
    of_opentofu("concise", Word, &[Plan, Apply]),
    both("destroy", Switch, &[Plan]),
    of_opentofu("exclude", Value, &[Plan]),
    both("lock", Switch, &[Plan, Apply, Import, State]),
    both("lock-timeout", Duration, &[Plan, Apply, Import, State]),
    both("no-color", Word, &[Plan, Apply, Import]),
    both("parallelism", Number, &[Plan, Apply, Import]),
    both("refresh", Switch, &[Plan]),
    both("refresh-only", Switch, &[Plan]),
    both("replace", Value, &[Plan]),
    both("target", Value, &[Plan]),
    both("var", Value, &[Plan, Import]),
    both("var-file", Value, &[Plan, Import]),
];

const FILES: &str = "Lockkeeper chooses the files that are read and written, so that the plan you see is the stored \
                     plan";
const PLACE: &str =
    "the code of the pull request runs in its own directory, with the providers that it names";
const NOTHING: &str = "nothing would be planned or applied";
const OUTPUT: &str = "Lockkeeper could not read the output and the exit code of the command";

/// Flags that no setting can allow, each with the reason.
const NEVER: [(&str, &str); 20] = [
    (
        "auto-approve",
        "it is not needed, because an apply makes the changes of the reviewed plan; leave it out",
    ),
    ("backup", FILES),
    ("chdir", PLACE),
    ("config", FILES),
    ("detailed-exitcode", OUTPUT),
    ("exclude-file", FILES),
    ("generate-config-out", FILES),
    ("h", NOTHING),
    ("help", NOTHING),
    ("input", "nobody can answer the questions of Terraform"),
    ("json", OUTPUT),
    ("json-into", FILES),
    ("out", FILES),
    ("plugin-dir", PLACE),
    (
        "show-sensitive",
        "it prints values that must not be in a comment",
    ),
    ("state", FILES),
    ("state-out", FILES),
    ("target-file", FILES),
    ("v", NOTHING),
    ("version", NOTHING),
];

fn never(name: &str) -> Option<&'static str> {
    NEVER
        .iter()
        .find(|(never, _)| *never == name)
        .map(|(_, why)| *why)
}

/// Rules for the arguments that comments may give after `--`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraArgs {
    blocked: BlockedArgs,
    added: Vec<AddedArg>,
}

impl ExtraArgs {
    /// Allows the flags of the table and those that the administrator adds, except those that the administrator
    /// blocks.
    pub fn new(blocked: BlockedArgs, added: Vec<AddedArg>) -> Self {
        Self { blocked, added }
    }

    /// Refuses the first argument that the command does not allow, or not in this spelling, and the first operand
    /// that the tool could take for a flag. An earlier version may have stored the command and read it by other
    /// rules.
    pub fn check(
        &self,
        command: CommandName,
        arguments: &[String],
        operands: &[String],
    ) -> Result<(), RefusedArg> {
        for (place, argument) in arguments.iter().enumerate() {
            if self.normalize(
                command,
                argument,
                arguments.get(place + 1).map(String::as_str),
            )? != *argument
            {
                return Err(self.unknown(command, argument));
            }
        }
        // Even after `--`, both tools treat `-version` as a flag at any position.
        let is_flag = |operand: &&String| operand.starts_with('-') && operand.len() > 1;
        let flag = operands.iter().find(is_flag);
        flag.map_or(Ok(()), |operand| {
            Err(RefusedArg::Operand {
                operand: operand.clone(),
            })
        })
    }

    /// Returns the first allowed argument that only another tool has, and that tool.
    pub fn of_other_tool<'a>(
        &self,
        arguments: &'a [String],
        distribution: Distribution,
    ) -> Option<(&'a str, Distribution)> {
        arguments.iter().find_map(|argument| {
            let name = argument
                .trim_start_matches('-')
                .split('=')
                .next()
                .unwrap_or_default();
            let row = ROWS.iter().find(|row| row.name == name)?;
            let only = row.only.filter(|only| *only != distribution)?;
            (!self.added.iter().any(|added| added.name == name))
                .then_some((argument.as_str(), only))
        })
    }

    /// Returns the arguments that a command accepts for a tool: `-lock`, `-target=`. Only the tests that compare the
    /// table with real tools call it; the table itself stays private.
    pub fn spellings(&self, command: CommandName, distribution: Distribution) -> Vec<String> {
        let is_had = |only: &Option<Distribution>| only.is_none_or(|only| only == distribution);
        let all = self
            .all(command)
            .into_iter()
            .filter(|(_, _, only)| is_had(only));
        all.map(|(name, form, _)| format!("-{name}{}", if form.has_value() { "=" } else { "" }))
            .collect()
    }

    /// Returns the argument in the spelling that the tool receives, with one dash.
    pub(super) fn normalize(
        &self,
        command: CommandName,
        argument: &str,
        next: Option<&str>,
    ) -> Result<String, RefusedArg> {
        let shown = argument.to_owned();
        if let Some(rule) = self.rule_against(argument) {
            return Err(RefusedArg::Blocked {
                argument: shown,
                rule: rule.to_owned(),
            });
        }
        let Some(any_name) = flag_name(argument) else {
            return Err(RefusedArg::NotAFlag { argument: shown });
        };
        let text = argument
            .strip_prefix("--")
            .or_else(|| argument.strip_prefix('-'))
            .unwrap_or_default();
        let (name, value) = text
            .split_once('=')
            .map_or((text, None), |(name, value)| (name, Some(value)));
        let Some(form) = self.form(command, name) else {
            return Err(match never(&any_name) {
                Some(why) => RefusedArg::Never {
                    argument: shown,
                    why,
                },
                None if command == Apply && self.form(Plan, name).is_some() => {
                    RefusedArg::OfPlan { argument: shown }
                }
                None => self.unknown(command, argument),
            });
        };
        match (form, value) {
            (Value | Number | Duration, None | Some("")) => {
                let next = next.filter(|next| value.is_none() && flag_name(next).is_none());
                Err(RefusedArg::NeedsValue {
                    name: name.to_owned(),
                    next: next.map(str::to_owned),
                })
            }
            (Word, Some(_)) => Err(RefusedArg::TakesNoValue {
                name: name.to_owned(),
            }),
            (Switch, Some(value)) if !matches!(value, "true" | "false") => {
                Err(RefusedArg::WrongValue {
                    name: name.to_owned(),
                    value: value.to_owned(),
                    rule: "`true` or `false`",
                })
            }
            (Number, Some(value)) if !is_number(value) => Err(RefusedArg::WrongValue {
                name: name.to_owned(),
                value: value.to_owned(),
                rule: "a number such as `10`",
            }),
            (Duration, Some(value)) if !is_duration(value) => {
                let rule = "a duration such as `30s` or `1h30m`";
                Err(RefusedArg::WrongValue {
                    name: name.to_owned(),
                    value: value.to_owned(),
                    rule,
                })
            }
            (Value | Number | Duration | Switch, Some(_)) | (Word | Switch, None) => {
                Ok(format!("-{text}"))
            }
        }
    }

    pub(super) fn rule_against(&self, argument: &str) -> Option<&str> {
        self.blocked.rule_against(argument)
    }

    fn form(&self, command: CommandName, name: &str) -> Option<Form> {
        let of_table = ROWS
            .iter()
            .find(|row| row.name == name && row.commands.contains(&command));
        let of_operator = || {
            self.added
                .iter()
                .find(|added| added.name == name && added.is_for(command))
        };
        of_table
            .map(|row| row.form)
            .or_else(|| of_operator().map(|added| added.form))
    }

    /// Returns every flag that a command accepts, sorted by name.
    fn all(&self, command: CommandName) -> Vec<(&str, Form, Option<Distribution>)> {
        let of_table = ROWS
            .iter()
            .filter(|row| row.commands.contains(&command))
            .map(|row| (row.name, row.form, row.only));
        let of_operator = self.added.iter().filter(|added| added.is_for(command));
        let of_operator = of_operator.map(|added| (added.name.as_str(), added.form, None));
        let mut all: Vec<_> = of_table.chain(of_operator).collect();
        all.retain(|(name, ..)| self.blocked.rule_against(&format!("-{name}")).is_none());
        all.sort_unstable_by_key(|(name, ..)| *name);
        all.dedup_by_key(|(name, ..)| *name);
        all
    }

    fn unknown(&self, command: CommandName, argument: &str) -> RefusedArg {
        let all = self.all(command);
        let near = nearest(
            &flag_name(argument).unwrap_or_default(),
            all.iter().map(|(name, ..)| *name),
        );
        RefusedArg::Unknown {
            argument: argument.to_owned(),
            command,
            nearest: near.map(|name| format!("-{name}")),
            choices: all
                .into_iter()
                .map(|(name, form, only)| choice(name, form, only))
                .collect(),
        }
    }
}

/// Accepts short plain numbers only. Workflow steps of the administrator see the same words, and one that splits them
/// at white space finds no other flag in a number or a duration.
fn is_number(value: &str) -> bool {
    value.len() <= 9 && value.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_duration(value: &str) -> bool {
    static GO: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(0|([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|ms|s|m|h)){1,6})$")
            .expect("a constant pattern")
    });
    GO.is_match(value)
}

/// Formats `-lock-timeout=…`, with the tool if only one tool has the flag.
fn choice(name: &str, form: Form, only: Option<Distribution>) -> String {
    let value = if form.has_value() { "=…" } else { "" };
    let tool = only
        .map(|only| format!(" ({})", only.title()))
        .unwrap_or_default();
    format!("`-{name}{value}`{tool}")
}

/// An argument that Lockkeeper does not hand to the tool. All texts are as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedArg {
    /// The administrator blocks the flag.
    Blocked {
        /// Argument as it was typed.
        argument: String,
        /// Matching entry of `--blocked-extra-args`.
        rule: String,
    },
    /// No setting can allow the flag.
    Never {
        /// Argument as it was typed.
        argument: String,
        /// Reason why the flag is never allowed.
        why: &'static str,
    },
    /// The flag is not in the list of allowed flags.
    Unknown {
        /// Argument as it was typed.
        argument: String,
        /// Command that the flag was given to.
        command: CommandName,
        /// Most similar flag that is allowed.
        nearest: Option<String>,
        /// All flags that are allowed.
        choices: Vec<String>,
    },
    /// The flag belongs to `plan` and was given to `apply`.
    OfPlan {
        /// Argument as it was typed.
        argument: String,
    },
    /// The word does not begin with a dash.
    NotAFlag {
        /// Argument as it was typed.
        argument: String,
    },
    /// An address or an id begins with a dash.
    Operand {
        /// Operand as it was typed.
        operand: String,
    },
    /// The value is missing, or is a word of its own.
    NeedsValue {
        /// Name of the flag.
        name: String,
        /// Following word, which may be the value.
        next: Option<String>,
    },
    /// The flag takes no value, but one was given.
    TakesNoValue {
        /// Name of the flag.
        name: String,
    },
    /// The value is not of the kind that the flag takes.
    WrongValue {
        /// Name of the flag.
        name: String,
        /// Value as it was typed.
        value: String,
        /// Description of the values that the flag takes.
        rule: &'static str,
    },
}

impl RefusedArg {
    /// Returns a stable word for replies and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Blocked { .. } | Self::Never { .. } => "blocked_argument",
            Self::Unknown { .. } | Self::OfPlan { .. } => "argument_not_allowed",
            Self::NotAFlag { .. }
            | Self::Operand { .. }
            | Self::NeedsValue { .. }
            | Self::TakesNoValue { .. }
            | Self::WrongValue { .. } => "argument_spelling",
        }
    }
}

impl fmt::Display for RefusedArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked { argument, rule } => write!(
                f,
                "{} may not be passed to Terraform. The administrator of this server forbids {} \
                 (`--blocked-extra-args`).",
                code(argument),
                code(rule)
            ),
            Self::Never { argument, why } => write!(
                f,
                "{} may not be passed to Terraform: {why}.",
                code(argument)
            ),
            Self::Unknown {
                argument,
                command,
                nearest,
                choices,
            } => {
                write!(
                    f,
                    "{} is not an argument that `{command}` accepts after `--`.",
                    code(argument)
                )?;
                if let Some(nearest) = nearest {
                    write!(f, " Did you mean {}?", code(nearest))?;
                }
                write!(
                    f,
                    " Allowed are: {}. The administrator of this server can allow more with `--allow-extra-args`.",
                    choices.join(", ")
                )
            }
            Self::OfPlan { argument } => write!(
                f,
                "{} is not possible for an apply, because a plan is applied as a whole. Plan with the argument, look \
                 at that plan, then apply it without the argument.",
                code(argument)
            ),
            Self::NotAFlag { argument } => write!(
                f,
                "{} is not allowed after `--`: only flags are, each with its value in the same word.",
                code(argument)
            ),
            Self::Operand { operand } => {
                write!(
                    f,
                    "{} cannot be an address or an id, because it begins with a dash.",
                    code(operand)
                )
            }
            Self::NeedsValue {
                name,
                next: Some(next),
            } => write!(
                f,
                "{} takes its value in the same word, after an equals sign: write {}.",
                code(&format!("-{name}")),
                code(&quote(&format!("-{name}={next}")))
            ),
            Self::NeedsValue { name, next: None } => {
                let (name, example) = (code(&format!("-{name}")), code(&format!("-{name}=VALUE")));
                write!(
                    f,
                    "{name} needs a value in the same word, after an equals sign: {example}."
                )
            }
            Self::TakesNoValue { name } => {
                write!(
                    f,
                    "{} takes no value: write it without the equals sign.",
                    code(&format!("-{name}"))
                )
            }
            Self::WrongValue { name, value, rule } => {
                write!(
                    f,
                    "The value of {} is {rule}, and cannot be {}.",
                    code(&format!("-{name}")),
                    code(value)
                )
            }
        }
    }
}

/// A flag that the administrator allows in addition to the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedArg {
    /// The only command that accepts the flag; `None` means all commands.
    command: Option<CommandName>,
    /// Name of the flag without dashes.
    name: String,
    form: Form,
}

impl AddedArg {
    fn is_for(&self, command: CommandName) -> bool {
        self.command.is_none_or(|only| only == command)
    }
}

/// An invalid entry of `--allow-extra-args`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddedArg {
    /// The entry is not spelled like a flag.
    #[error("`{0}` is not spelled like a flag")]
    Spelling(String),
    /// The command before the colon takes no extra arguments.
    #[error("`{0}` is not a command that takes arguments after `--`")]
    Command(String),
    /// No setting can allow the flag.
    #[error("`-{name}` cannot be allowed: {why}")]
    Never {
        /// Name of the flag.
        name: String,
        /// Reason why the flag is never allowed.
        why: &'static str,
    },
    /// The flag needs a value, but the entry has no equals sign.
    #[error("`-{0}` takes a value")]
    Value(String),
}

impl InvalidAddedArg {
    /// Tells the administrator how to correct the entry.
    pub fn fix(&self) -> String {
        match self {
            Self::Spelling(_) => {
                "write `-name` for a switch, `-name=` for a flag with a value".to_owned()
            }
            Self::Command(_) => {
                "write plan, apply, import or state before the colon, or leave both out".to_owned()
            }
            Self::Never { .. } => {
                "leave it out, or set it in a step of a workflow of the server".to_owned()
            }
            Self::Value(name) => format!("write `-{name}=`"),
        }
    }
}

impl FromStr for AddedArg {
    type Err = InvalidAddedArg;

    /// Parses `-name`, `-name=` or, for one command, `plan:-name=`, with one dash or two.
    fn from_str(entry: &str) -> Result<Self, Self::Err> {
        let spelling = || InvalidAddedArg::Spelling(entry.to_owned());
        let (command, flag) = entry
            .split_once(':')
            .map_or((None, entry), |(command, flag)| (Some(command), flag));
        let command = command.map(command_of).transpose()?;
        let text = flag
            .strip_prefix("--")
            .or_else(|| flag.strip_prefix('-'))
            .ok_or_else(spelling)?;
        let (name, form) = text
            .strip_suffix('=')
            .map_or((text, Switch), |name| (name, Value));
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_name) {
            return Err(spelling());
        }
        if let Some(why) = never(name) {
            return Err(InvalidAddedArg::Never {
                name: name.to_owned(),
                why,
            });
        }
        if !form.has_value()
            && ROWS
                .iter()
                .any(|row| row.name == name && row.form.has_value())
        {
            return Err(InvalidAddedArg::Value(name.to_owned()));
        }
        Ok(Self {
            command,
            name: name.to_owned(),
            form,
        })
    }
}

/// Accepts both `state`, as in comments, and `state_rm`, as in the configuration.
fn command_of(text: &str) -> Result<CommandName, InvalidAddedArg> {
    let name = if text == "state_rm" { "state" } else { text };
    let found = COMMANDS
        .into_iter()
        .find(|command| command.as_str() == name);
    found.ok_or_else(|| InvalidAddedArg::Command(text.to_owned()))
}

/// Terraform flags that the administrator blocks, by name without dashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedArgs(Vec<String>);

impl Default for BlockedArgs {
    fn default() -> Self {
        Self::new(DEFAULT_BLOCKED)
    }
}

impl BlockedArgs {
    /// Reads the entries of `--blocked-extra-args`, with or without dashes. They replace the defaults.
    pub fn new<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Self {
        let names = entries
            .into_iter()
            .map(|entry| bare(entry.as_ref()).to_lowercase());
        Self(names.filter(|name| !name.is_empty()).collect())
    }

    /// Returns the entry that blocks the argument. An argument matches if it is the name of the entry after any
    /// number and kind of dashes, alone or followed by `=`.
    pub(super) fn rule_against(&self, argument: &str) -> Option<&str> {
        let name = flag_name(argument)?;
        self.0
            .iter()
            .map(String::as_str)
            .find(|entry| *entry == name)
    }
}

fn flag_name(argument: &str) -> Option<String> {
    let is_flag = argument.trim_start().starts_with(is_dash);
    is_flag.then(|| {
        bare(argument)
            .split('=')
            .next()
            .unwrap_or_default()
            .trim()
            .to_lowercase()
    })
}

/// Returns the text without leading dashes.
fn bare(text: &str) -> &str {
    text.trim().trim_start_matches(is_dash)
}

/// Returns true for hyphen, minus and every dash that text editors put in their place.
pub(super) fn is_dash(c: char) -> bool {
    matches!(
        c,
        '-' | '\u{2010}'
            ..='\u{2015}'
                | '\u{2212}'
                | '\u{fe58}'
                | '\u{fe63}'
                | '\u{ff0d}'
                | '\u{2e3a}'
                | '\u{2e3b}'
    )
}

/// Returns the var files of extra arguments that leave the directory of the project: absolute paths, and paths that
/// start with `~` or climb with `..`. The caller compares them with `--var-file-allowlist` (reference 1.6, step 8).
pub fn var_files_outside(arguments: &[String]) -> Vec<&str> {
    let named = arguments
        .iter()
        .filter_map(|argument| argument.strip_prefix("-var-file="));
    named.filter(|path| !stays_inside(path)).collect()
}

fn stays_inside(path: &str) -> bool {
    if path.is_empty() || path.starts_with(['/', '~', '\\']) {
        return false;
    }
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocked_flags_are_found_in_every_spelling() {
        let blocked = BlockedArgs::new(["-chdir", "--Plugin-Dir"]);
        for argument in [
            "-chdir",
            "--chdir",
            "-chdir=/",
            "--chdir=/",
            "---chdir",
            "\u{2013}chdir",
            "\u{2014}chdir=x",
            "\u{2212}chdir",
            " -chdir",
            "-CHDIR=/",
            "-plugin-dir",
            "--plugin-dir=x",
            "-chdir =x",
        ] {
            assert!(blocked.rule_against(argument).is_some(), "{argument}");
        }
        for argument in [
            "chdir",
            "--plugin-dirx",
            "-chdirx=1",
            "-target=-chdir",
            "x-chdir",
            "-",
            "",
        ] {
            assert_eq!(blocked.rule_against(argument), None, "{argument}");
        }
    }

    fn args(blocked: &[&str], added: &[&str]) -> ExtraArgs {
        ExtraArgs::new(
            BlockedArgs::new(blocked),
            added.iter().map(|entry| entry.parse().unwrap()).collect(),
        )
    }

    fn normalized(command: CommandName, argument: &str, next: Option<&str>) -> String {
        let normalized = args(&["chdir"], &[]).normalize(command, argument, next);
        normalized.unwrap_or_else(|refused| format!("{}: {refused}", refused.reason()))
    }

    #[test]
    fn only_flags_of_the_table_are_taken_and_only_in_their_spelling() {
        for (command, argument, expected) in [
            (Plan, "-destroy", "-destroy"),
            (Plan, "--destroy=false", "-destroy=false"),
            (
                Plan,
                "--target=module.a[\"b c\"]",
                "-target=module.a[\"b c\"]",
            ),
            (Plan, "-var=a=b=c", "-var=a=b=c"),
            (Plan, "-no-color", "-no-color"),
            (Plan, "--concise", "-concise"),
            (Apply, "-parallelism=5", "-parallelism=5"),
            (Import, "-var-file=x.tfvars", "-var-file=x.tfvars"),
            (State, "-lock-timeout=5m", "-lock-timeout=5m"),
            (Apply, "-lock-timeout=1h1.5m", "-lock-timeout=1h1.5m"),
            (Apply, "-lock-timeout=0", "-lock-timeout=0"),
        ] {
            assert_eq!(normalized(command, argument, None), expected, "{argument}");
        }
        for (command, argument, reason) in [
            (Apply, "-destroy", "argument_not_allowed"),
            (Apply, "-auto-approve", "blocked_argument"),
            (Apply, "-json-into", "blocked_argument"),
            (Apply, "-help", "blocked_argument"),
            (Apply, "-h", "blocked_argument"),
            (Apply, "-version", "blocked_argument"),
            (Apply, "-var=a=b", "argument_not_allowed"),
            (Apply, "-target=a", "argument_not_allowed"),
            (Plan, "-json-into=x", "blocked_argument"),
            (Plan, "-target-file=x", "blocked_argument"),
            (Plan, "-exclude-file=x", "blocked_argument"),
            (Plan, "\u{2013}OUT=x", "blocked_argument"),
            (Plan, "-state-out=x", "blocked_argument"),
            (Plan, "---destroy", "argument_not_allowed"),
            (Plan, "\u{2014}destroy", "argument_not_allowed"),
            (Plan, "-DESTROY", "argument_not_allowed"),
            (Plan, " -destroy", "argument_not_allowed"),
            (Plan, "-destroy ", "argument_not_allowed"),
            (Plan, "-", "argument_not_allowed"),
            (Plan, "--", "argument_not_allowed"),
            (Plan, "--=x", "argument_not_allowed"),
            (Plan, "", "argument_spelling"),
            (Plan, "/plan.bin", "argument_spelling"),
            (Plan, "-target", "argument_spelling"),
            (Plan, "-target=", "argument_spelling"),
            (Plan, "-no-color=true", "argument_spelling"),
            (Plan, "-lock=maybe", "argument_spelling"),
            (
                Apply,
                "-lock-timeout=1s -destroy -auto-approve",
                "argument_spelling",
            ),
            (Apply, "-lock-timeout=soon", "argument_spelling"),
            (Apply, "-parallelism=5 -destroy", "argument_spelling"),
            (Apply, "-parallelism=-1", "argument_spelling"),
            (Apply, "-parallelism=", "argument_spelling"),
            (State, "-dry-run", "argument_not_allowed"),
            (State, "-no-color", "argument_not_allowed"),
        ] {
            let refused = normalized(command, argument, None);
            assert!(refused.starts_with(reason), "{argument}: {refused}");
        }
    }

    #[test]
    fn the_way_out_can_be_copied() {
        for (argument, next, expected) in [
            (
                "-var",
                Some("a=b c"),
                "argument_spelling: `-var` takes its value in the same word, after an equals sign: write `'-var=a=b c'`.",
            ),
            (
                "-var",
                Some("-destroy"),
                "argument_spelling: `-var` needs a value in the same word, after an equals sign: `-var=VALUE`.",
            ),
            (
                "-tarket=x",
                None,
                "argument_not_allowed: `-tarket=x` is not an argument that `plan` accepts after `--`. \
             Did you mean `-target`? Allowed are: `-compact-warnings`, `-concise` (OpenTofu), `-destroy`, `-exclude=…` \
             (OpenTofu), `-lock`, `-lock-timeout=…`, `-no-color`, `-parallelism=…`, `-refresh`, `-refresh-only`, \
             `-replace=…`, `-target=…`, `-var=…`, `-var-file=…`. The administrator of this server can allow more with \
             `--allow-extra-args`.",
            ),
        ] {
            assert_eq!(normalized(Plan, argument, next), expected);
        }
    }

    #[test]
    fn an_operator_adds_and_forbids_flags() {
        let own = args(
            &["destroy"],
            &[
                "plan:-json-x=",
                "--loud",
                "state_rm:-ignore-remote-version",
                "apply:-var=",
            ],
        );
        let taken = |command, argument| own.normalize(command, argument, None).is_ok();
        assert!(taken(Plan, "-json-x=1") && !taken(Plan, "-json-x") && !taken(Apply, "-json-x=1"));
        assert!(taken(Plan, "-loud") && taken(State, "--loud=true") && !taken(Plan, "-loud=x"));
        assert!(taken(State, "-ignore-remote-version") && !taken(Plan, "-ignore-remote-version"));
        assert!(taken(Apply, "-var=a=b") && !taken(Plan, "-destroy"));
        assert!(!own.unknown(Plan, "-x").to_string().contains("`-destroy`"));
    }

    #[test]
    fn no_operator_allows_what_swaps_a_plan_or_chooses_files() {
        for entry in NEVER
            .iter()
            .flat_map(|(name, _)| [format!("-{name}"), format!("apply:--{name}=")])
        {
            assert!(
                matches!(
                    entry.parse::<AddedArg>(),
                    Err(InvalidAddedArg::Never { .. })
                ),
                "{entry}"
            );
        }
        for (entry, expected) in [
            (
                "loud",
                "`loud` is not spelled like a flag; write `-name` for a switch, `-name=` for a flag with a value",
            ),
            (
                "-Loud",
                "`-Loud` is not spelled like a flag; write `-name` for a switch, `-name=` for a flag with a value",
            ),
            (
                "-a=b",
                "`-a=b` is not spelled like a flag; write `-name` for a switch, `-name=` for a flag with a value",
            ),
            (
                "---a",
                "`---a` is not spelled like a flag; write `-name` for a switch, `-name=` for a flag with a value",
            ),
            (
                "",
                "`` is not spelled like a flag; write `-name` for a switch, `-name=` for a flag with a value",
            ),
            (
                "show:-x",
                "`show` is not a command that takes arguments after `--`; write plan, apply, import or state before the colon, or leave both out",
            ),
            ("apply:-target", "`-target` takes a value; write `-target=`"),
        ] {
            let error = entry.parse::<AddedArg>().unwrap_err();
            assert_eq!(format!("{error}; {}", error.fix()), expected);
        }
    }

    #[test]
    fn the_page_about_arguments_has_the_table() {
        let page = include_str!("../../../../docs/arguments.md");
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.starts_with("| `-"))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let name = |row: &[&str]| {
            row[0]
                .trim_matches(['`', '-'])
                .split('=')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(
            rows.iter().map(|row| name(row)).collect::<Vec<_>>(),
            ROWS.map(|row| row.name)
        );
        for (shown, row) in rows.iter().zip(&ROWS) {
            let ticked = COMMANDS.map(|command| row.commands.contains(&command));
            assert_eq!(
                [1, 2, 3, 4].map(|column| shown[column] == "✓"),
                ticked,
                "{}",
                row.name
            );
            assert_eq!(shown[5] == "OpenTofu", row.only.is_some(), "{}", row.name);
        }
        let never = NEVER
            .iter()
            .map(|(name, _)| format!("`-{name}`"))
            .collect::<Vec<_>>()
            .join(", ");
        assert!(page.replace('\n', " ").contains(&never), "{never}");
    }

    #[test]
    fn flags_of_one_tool_are_known() {
        let list = ["-lock=false".to_owned(), "-exclude=a.b".to_owned()];
        let own = ExtraArgs::default();
        assert_eq!(own.of_other_tool(&list, Distribution::OpenTofu), None);
        assert_eq!(
            own.of_other_tool(&list, Distribution::Terraform),
            Some(("-exclude=a.b", Distribution::OpenTofu))
        );
        assert_eq!(
            args(&[], &["-exclude="]).of_other_tool(&list, Distribution::Terraform),
            None
        );
    }

    #[test]
    fn stored_arguments_in_another_spelling_are_refused() {
        let check = |list: &[&str]| {
            ExtraArgs::default().check(
                Plan,
                &list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(),
                &[],
            )
        };
        assert_eq!(check(&["-destroy", "-target=a"]), Ok(()));
        for list in [
            &["--destroy"][..],
            &["-target", "a"],
            &["-destroy", "-out=x"],
            &["x"],
        ] {
            assert!(check(list).is_err(), "{list:?}");
        }
        let operand = |operand: &str| {
            ExtraArgs::default().check(Import, &[], &["a.b".to_owned(), operand.to_owned()])
        };
        assert!(operand("-version").is_err() && operand("--").is_err());
        assert!(operand("-").is_ok() && operand("vpc-1").is_ok());
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_one_word_of_the_table(argument in hostile_argument(), command in prop::sample::select(COMMANDS.to_vec())) {
            if let Ok(taken) = ExtraArgs::default().normalize(command, &argument, None) {
                let two_dashes = format!("-{taken}");
                prop_assert!(argument == taken || argument == two_dashes);
                let text = taken.strip_prefix('-').unwrap();
                let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
                let row = ROWS.iter().find(|row| row.name == name && row.commands.contains(&command)).unwrap();
                match (row.form, value) {
                    (Word | Switch, None) | (Switch, Some("true" | "false")) => {}
                    (Value, Some(value)) => prop_assert!(!value.is_empty()),
                    (Number | Duration, Some(value)) => {
                        prop_assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || c == '.'));
                    }
                    other => prop_assert!(false, "{taken}: {other:?}"),
                }
            }
        }
    }

    /// Generates flags of real tools, broken in all ways, and arbitrary texts.
    fn hostile_argument() -> impl Strategy<Value = String> {
        let names = ROWS
            .iter()
            .map(|row| row.name)
            .chain(NEVER.iter().map(|(name, _)| *name))
            .collect::<Vec<_>>();
        let parts = (
            prop::sample::select(vec!["", "-", "--", "---", "\u{2013}", " -"]),
            prop::sample::select(names),
            prop_oneof![Just(String::new()), "=[a-z./= -]{0,6}", ".{0,3}"],
        );
        prop_oneof![
            parts.prop_map(|(dash, name, rest)| format!("{dash}{name}{rest}")),
            any::<String>()
        ]
    }

    #[test]
    fn an_own_list_replaces_the_default() {
        assert_eq!(
            BlockedArgs::default().rule_against("-chdir=x"),
            Some("chdir")
        );
        let own = BlockedArgs::new(["destroy"]);
        assert_eq!(own.rule_against("-destroy"), Some("destroy"));
        assert_eq!(own.rule_against("-chdir=x"), None);
        assert_eq!(BlockedArgs::new(["", "--"]).rule_against("--"), None);
    }

    fn outside(arguments: &[&str]) -> Vec<String> {
        let owned: Vec<String> = arguments
            .iter()
            .map(|&argument| argument.to_owned())
            .collect();
        var_files_outside(&owned)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn var_files_inside_are_fine() {
        for argument in [
            "-var-file=env/prod.tfvars",
            "-var-file=./a/../b=c.tfvars",
            "-var=path=/etc/passwd",
            "-var-file",
        ] {
            assert_eq!(outside(&[argument]), Vec::<String>::new(), "{argument}");
        }
    }

    #[test]
    fn var_files_outside_are_named() {
        for (arguments, path) in [
            (&["-var-file=/etc/x"][..], "/etc/x"),
            (&["-var-file=../x"], "../x"),
            (&["-var-file=/a=b"], "/a=b"),
            (&["-var-file=a/../../x"], "a/../../x"),
            (&["-var-file=~/x"], "~/x"),
            (&["-var-file="], ""),
            (&["-var-file=ok", "-var-file=/y"], "/y"),
        ] {
            assert_eq!(outside(arguments), [path], "{arguments:?}");
        }
    }
}
