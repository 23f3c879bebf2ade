//! The command line of `lockkeeper server`, made from the table of settings.
//!
//! clap only renders the help. It does not read the flags, because it stops at the first unknown one, and a person
//! wants to see all problems at once.

use std::collections::BTreeMap;
use std::iter::Peekable;

use clap::{Arg, ArgAction, Command};

use crate::config::server::{
    ABSENT, Compat, Fallback, SETTINGS, Setting, StartupProblem, ValueKind, unknown_flag,
};

/// Parsed command line of the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ServerArgs {
    /// Values of each flag in the order given, aliases resolved.
    pub flags: BTreeMap<String, Vec<String>>,
    /// Words that were not understood.
    pub problems: Vec<StartupProblem>,
    /// `--help` or `-h` was given.
    pub wants_help: bool,
}

/// A flag of the table, or a flag of Atlantis that this version does not have.
struct ServerFlag {
    name: &'static str,
    is_switch: bool,
}

impl ServerArgs {
    /// Parses the words after `server` as Atlantis does: `--flag value`, `--flag=value`, `--switch`, `--switch=false`.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Self {
        let mut args = Self::default();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            args.word(&word, &mut words);
        }
        args
    }

    fn word(&mut self, word: &str, rest: &mut Peekable<impl Iterator<Item = String>>) {
        if matches!(word, "--help" | "-h") {
            self.wants_help = true;
            return;
        }
        let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) else {
            return self.problems.push(stray(word));
        };
        let (name, value) = name
            .split_once('=')
            .map_or((name, None), |(name, value)| (name, Some(value.to_owned())));
        let Some(flag) = find(name) else {
            if value.is_none() {
                drop(take_value(false, rest));
            }
            return self.problems.push(unknown_flag(name));
        };
        let value = value.or_else(|| flag.is_switch.then(|| "true".to_owned()));
        match value.or_else(|| take_value(flag.name == "blocked-extra-args", rest)) {
            Some(value) => self
                .flags
                .entry(flag.name.to_owned())
                .or_default()
                .push(value),
            None => self.problems.push(no_value(flag.name)),
        }
    }
}

/// Returns the next word, unless it is a flag.
fn take_value(
    may_begin_with_dash: bool,
    rest: &mut Peekable<impl Iterator<Item = String>>,
) -> Option<String> {
    rest.next_if(|word| may_begin_with_dash || !word.starts_with("--"))
}

/// Splits the words into those without secrets, and the flags whose values are secrets, in order.
pub(super) fn part_secrets(words: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut rest, mut secrets) = (Vec::new(), Vec::new());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let name = word
            .strip_prefix("--")
            .map(|name| name.split_once('=').map_or(name, |(name, _)| name));
        if !name.is_some_and(is_secret) {
            rest.push(word);
        } else if word.contains('=') {
            secrets.push(word);
        } else if let Some(value) = take_value(false, &mut words) {
            secrets.push(format!("{word}={value}"));
        } else {
            rest.push(word);
        }
    }
    (rest, secrets)
}

fn is_secret(name: &str) -> bool {
    let is_called = |setting: &&Setting| setting.flag == name || setting.aliases.contains(&name);
    let setting = SETTINGS.iter().find(is_called);
    setting.is_some_and(|setting| matches!(setting.kind, ValueKind::Secret | ValueKind::Secrets))
}

fn find(name: &str) -> Option<ServerFlag> {
    let is_called = |setting: &&Setting| setting.flag == name || setting.aliases.contains(&name);
    let setting = SETTINGS.iter().find(is_called);
    let setting = setting.map(|setting| ServerFlag {
        name: setting.flag,
        is_switch: setting.kind == ValueKind::Switch,
    });
    let absent = || ABSENT.iter().find(|absent| absent.flag == name);
    setting.or_else(|| {
        absent().map(|absent| ServerFlag {
            name: absent.flag,
            is_switch: absent.is_switch(),
        })
    })
}

fn stray(word: &str) -> StartupProblem {
    let fix =
        "remove it, or put its flag in front of it; write the value of a switch as --flag=false";
    StartupProblem::about(format!("`{word}`"), "belongs to no flag", fix)
}

fn no_value(flag: &str) -> StartupProblem {
    StartupProblem::about(
        format!("--{flag}"),
        "no value follows",
        format!("write --{flag}=VALUE"),
    )
}

/// Renders the help of all settings.
pub(super) fn help() -> String {
    let command = Command::new("server")
        .bin_name("lockkeeper server")
        .override_usage("lockkeeper server [FLAGS]")
        .term_width(100)
        .about(
            "Receives webhooks and runs the requested commands.\n\nEvery flag can also be set by an environment variable or in \
             a file: without --gh-user, the server reads LOCKKEEPER_GH_USER, then ATLANTIS_GH_USER, then the key gh-user of the \
             YAML file that --config names. An empty value counts as not set.",
        )
        .args(SETTINGS.iter().map(arg));
    command.clone().render_help().to_string()
}

/// Builds the flag of a setting.
pub(super) fn arg(setting: &Setting) -> Arg {
    let action = if setting.kind == ValueKind::Switch {
        ArgAction::SetTrue
    } else {
        ArgAction::Append
    };
    Arg::new(setting.flag)
        .long(setting.flag)
        .visible_aliases(setting.aliases.iter().copied())
        .value_name(setting.value_name)
        .action(action)
        .help_heading(setting.group.title())
        .help(help_text(setting))
}

fn help_text(setting: &Setting) -> String {
    let choices = match setting.kind {
        ValueKind::Choice(words) => format!(" [{}]", words.join(", ")),
        ValueKind::Text
        | ValueKind::Secret
        | ValueKind::Secrets
        | ValueKind::List
        | ValueKind::Switch
        | ValueKind::Number(..)
        | ValueKind::Duration
        | ValueKind::Size
        | ValueKind::Path => String::new(),
    };
    let default = match (setting.kind, setting.default) {
        (ValueKind::Switch, Fallback::Value("false")) | (_, Fallback::Unset) => None,
        (_, Fallback::Derived(words)) => Some(words),
        (_, Fallback::Value(_) | Fallback::Differs { .. }) => setting.default_text(Compat::None),
    };
    let default = default
        .map(|default| format!(" [default: {default}]"))
        .unwrap_or_default();
    format!("{}{choices}{default}", setting.help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> (Vec<String>, Vec<String>) {
        let args = ServerArgs::parse(line.split_whitespace().map(str::to_owned));
        let flags = args
            .flags
            .iter()
            .map(|(flag, values)| format!("{flag}={}", values.join("|")))
            .collect();
        let first_line = |problem: &StartupProblem| {
            problem
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        (flags, args.problems.iter().map(first_line).collect())
    }

    #[test]
    fn flags_are_read_as_atlantis_reads_them() {
        for (line, flags) in [
            ("--port 80 --port=81", vec!["port=80|81"]),
            (
                "--allow-fork-prs --allow-draft-prs=false",
                vec!["allow-draft-prs=false", "allow-fork-prs=true"],
            ),
            ("--public-url https://x", vec!["atlantis-url=https://x"]),
            (
                "--blocked-extra-args --chdir",
                vec!["blocked-extra-args=--chdir"],
            ),
            (
                "--automerge --repo-config x",
                vec!["automerge=true", "repo-config=x"],
            ),
            ("--gh-user=", vec!["gh-user="]),
        ] {
            let expected: Vec<String> = flags.into_iter().map(str::to_owned).collect();
            assert_eq!(parse(line), (expected, vec![]), "{line}");
        }
    }

    #[test]
    fn secrets_are_taken_out_of_the_command_line() {
        let parted = |line: &str| {
            let (rest, secrets) =
                part_secrets(line.split_whitespace().map(str::to_owned).collect());
            format!("{} | {}", rest.join(" "), secrets.join(" "))
        };
        for (line, expected) in [
            (
                "--port 80 --gh-token abc --gh-user kim",
                "--port 80 --gh-user kim | --gh-token=abc",
            ),
            (
                "--gh-webhook-secret=a=b --gh-webhook-secret c",
                " | --gh-webhook-secret=a=b --gh-webhook-secret=c",
            ),
            ("--web-password --port 80", "--web-password --port 80 | "),
            (
                "--database-url postgres://u:p@h/n --prot x",
                "--prot x | --database-url=postgres://u:p@h/n",
            ),
        ] {
            assert_eq!(parted(line), expected, "{line}");
        }
        for setting in SETTINGS
            .iter()
            .filter(|setting| matches!(setting.kind, ValueKind::Secret | ValueKind::Secrets))
        {
            assert_eq!(
                parted(&format!("--{} x", setting.flag)),
                format!(" | --{}=x", setting.flag)
            );
        }
    }

    #[test]
    fn every_flag_of_both_tables_is_taken() {
        let of_tables = SETTINGS
            .iter()
            .flat_map(|setting| std::iter::once(&setting.flag).chain(setting.aliases));
        for flag in of_tables.chain(ABSENT.iter().map(|absent| &absent.flag)) {
            let args = ServerArgs::parse([format!("--{flag}=x")]);
            assert_eq!((args.flags.len(), args.problems.len()), (1, 0), "--{flag}");
        }
    }

    #[test]
    fn everything_that_is_not_understood_is_reported() {
        for (line, problems) in [
            (
                "--prot 80 --gh-usr=kim",
                vec![
                    "--prot: this flag does not exist",
                    "--gh-usr: this flag does not exist",
                ],
            ),
            ("--port --gh-user kim", vec!["--port: no value follows"]),
            ("--port", vec!["--port: no value follows"]),
            (
                "--allow-fork-prs false",
                vec!["`false`: belongs to no flag"],
            ),
            (
                "-p 80 --",
                vec![
                    "`-p`: belongs to no flag",
                    "`80`: belongs to no flag",
                    "`--`: belongs to no flag",
                ],
            ),
        ] {
            let expected: Vec<String> = problems.into_iter().map(str::to_owned).collect();
            assert_eq!(parse(line).1, expected, "{line}");
        }
    }

    #[test]
    fn help_names_every_setting_and_no_other_flag() {
        let help = help();
        for setting in SETTINGS.iter() {
            assert!(
                help.contains(&format!("--{} ", setting.flag))
                    || help.contains(&format!("--{}\n", setting.flag))
            );
        }
        assert!(!help.contains("gitlab"));
    }
}
