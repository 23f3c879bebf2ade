//! Reads settings one by one. Collects every problem instead of stopping at the first.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::problems::{StartupProblem, StartupWarning};
use super::raw::{GivenValue, RawSettings, SettingSource};
use super::setting;
use super::setting::{Compat, Setting, ValueKind};
use crate::config::duration::parse_duration;
use crate::config::size::ByteSize;
use crate::secret::Secret;

/// Minimum length of a password or of a webhook secret, in characters.
const SHORTEST_SECRET: usize = 16;

/// Advice about a secret that is too short.
pub(super) const STRONGER: &str = "create a longer one, for example with `openssl rand -hex 20`";

/// The value could not be read, and the reader has recorded the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProblemRecorded;

/// A value, or the certainty that a problem has been recorded.
pub(super) type ReadResult<T> = Result<T, ProblemRecorded>;

/// A value to check: the given one, or the default.
struct CheckedValue {
    text: String,
    /// `(set by ATLANTIS_PORT)`. Empty for a flag or the settings file.
    source: String,
}

impl From<GivenValue<'_>> for CheckedValue {
    fn from(given: GivenValue<'_>) -> Self {
        let source = match given.by {
            SettingSource::Flag | SettingSource::File => String::new(),
            SettingSource::Variable => format!(" (set by {})", given.source),
        };
        Self {
            text: given.text.to_owned(),
            source,
        }
    }
}

pub(super) struct SettingReader<'a> {
    raw: &'a RawSettings,
    compat: Compat,
    problems: Vec<StartupProblem>,
    warnings: Vec<StartupWarning>,
    asked: BTreeSet<&'static str>,
}

impl<'a> SettingReader<'a> {
    /// Creates a reader. `problems` are those that the caller found before.
    pub fn new(raw: &'a RawSettings, problems: Vec<StartupProblem>) -> Self {
        let mut reader = Self {
            raw,
            compat: Compat::None,
            problems,
            warnings: Vec::new(),
            asked: BTreeSet::new(),
        };
        // The caller has already read this file; it is a part of `raw`.
        reader.asked.insert("config");
        if reader
            .choice::<String>("compat")
            .is_ok_and(|compat| compat.is_some())
        {
            reader.compat = Compat::Atlantis;
        }
        reader
    }

    pub fn raw(&self) -> &'a RawSettings {
        self.raw
    }

    /// Ends reading, and returns the problems and warnings.
    pub fn finish(self) -> (Vec<StartupProblem>, Vec<StartupWarning>) {
        (self.problems, self.warnings)
    }

    /// Returns a sentence about each setting that was found to have no effect.
    pub fn without_effect(&self) -> Vec<String> {
        let warnings = self.warnings.iter();
        warnings
            .filter(|warning| warning.is_without_effect())
            .map(ToString::to_string)
            .collect()
    }

    #[cfg(test)]
    pub fn asked(&self) -> &BTreeSet<&'static str> {
        &self.asked
    }

    /// Records a warning, once. So a function may read the setting of another function again.
    pub fn warn(&mut self, warning: StartupWarning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Records a problem, once. So a function may read the setting of another function again.
    pub fn record(&mut self, problem: StartupProblem) -> ProblemRecorded {
        let problem = problem.placed(self.raw);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        ProblemRecorded
    }

    /// Records a problem with the value of `flag`.
    pub fn refuse<T>(
        &mut self,
        flag: &'static str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> ReadResult<T> {
        Err(self.record(StartupProblem::with(flag, what, fix)))
    }

    fn setting(&mut self, flag: &'static str) -> &'static Setting {
        self.asked.insert(flag);
        setting(flag)
    }

    /// Returns the given value, without a default.
    pub fn given(&mut self, flag: &'static str) -> Option<GivenValue<'a>> {
        let setting = self.setting(flag);
        self.raw.given(setting)
    }

    fn value(&mut self, flag: &'static str) -> Option<CheckedValue> {
        let setting = self.setting(flag);
        let default = || {
            Some(CheckedValue {
                text: setting.default_text(self.compat)?.to_owned(),
                source: String::new(),
            })
        };
        self.raw
            .given(setting)
            .map(CheckedValue::from)
            .or_else(default)
    }

    /// Returns the value as text, or the default.
    pub fn text(&mut self, flag: &'static str) -> Option<String> {
        self.value(flag)
            .map(|value| value.text.trim().to_owned())
            .filter(|text| !text.is_empty())
    }

    /// Parses the value with `parse`. Reports a failure with `fix`.
    pub fn parsed<T, E: Display>(
        &mut self,
        flag: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        fix: &str,
    ) -> ReadResult<Option<T>> {
        let Some(value) = self.value(flag) else {
            return Ok(None);
        };
        match parse(value.text.trim()) {
            Ok(parsed) => Ok(Some(parsed)),
            Err(reason) => self.refuse(flag, format!("{reason}{}", value.source), fix),
        }
    }

    pub fn switch(&mut self, flag: &'static str) -> ReadResult<bool> {
        let parse = |text: &str| {
            parse_switch(text).ok_or_else(|| format!("`{text}` is not `true` or `false`"))
        };
        self.parsed(flag, parse, "write `true` or `false`")
            .map(Option::unwrap_or_default)
    }

    /// Reads one of the words of the setting.
    pub fn choice<T: FromStr>(&mut self, flag: &'static str) -> ReadResult<Option<T>> {
        let ValueKind::Choice(words) = self.setting(flag).kind else {
            unreachable!("--{flag} is a choice")
        };
        let parse = |text: &str| {
            let word = words.iter().find(|word| word.eq_ignore_ascii_case(text));
            word.and_then(|word| word.parse().ok())
                .ok_or_else(|| format!("`{text}` is not one of the choices"))
        };
        self.parsed(flag, parse, &format!("choose {}", one_of(words)))
    }

    /// Reads a number within the bounds of the setting.
    pub fn number<T: TryFrom<u64>>(&mut self, flag: &'static str) -> ReadResult<Option<T>> {
        let ValueKind::Number(min, max) = self.setting(flag).kind else {
            unreachable!("--{flag} is a number")
        };
        let in_bounds = |number: &u64| (min..=max).contains(number);
        let parse = |text: &str| {
            let number = text.parse().ok().filter(in_bounds);
            number
                .and_then(|number| T::try_from(number).ok())
                .ok_or_else(|| format!("`{text}` is not a number in the allowed range"))
        };
        let fix = if max == u64::MAX {
            "write a whole number".to_owned()
        } else {
            format!("write a whole number from {min} to {max}")
        };
        self.parsed(flag, parse, &fix)
    }

    pub fn duration(&mut self, flag: &'static str) -> ReadResult<Duration> {
        let fix = "write a time such as `90m`, `2h` or `1h30m`";
        Ok(self
            .parsed(flag, parse_duration, fix)?
            .expect("settings that are times have a default"))
    }

    pub fn size(&mut self, flag: &'static str) -> ReadResult<Option<ByteSize>> {
        self.parsed(flag, str::parse, "write a size such as `20GiB` or `500MB`")
    }

    /// Reads a list of items between commas. Trims the items and leaves out empty ones.
    pub fn list(&mut self, flag: &'static str) -> Vec<String> {
        let text = self.text(flag).unwrap_or_default();
        text.split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect()
    }

    pub fn path(&mut self, flag: &'static str) -> Option<PathBuf> {
        self.text(flag).map(|text| self.raw.absolute(&text))
    }

    /// Reads a list of paths, and makes them absolute.
    pub fn paths(&mut self, flag: &'static str) -> Vec<PathBuf> {
        let paths = self.list(flag);
        paths.iter().map(|path| self.raw.absolute(path)).collect()
    }

    /// Reads a secret. Warns if the command line has it.
    pub fn secret(&mut self, flag: &'static str) -> Option<Secret> {
        self.warn_of_secret_flag(flag);
        self.hidden(flag)
    }

    /// Reads a text that may contain a secret.
    pub fn hidden(&mut self, flag: &'static str) -> Option<Secret> {
        let given = self.given(flag)?;
        Some(Secret::new(given.text)).filter(|secret| !secret.is_empty())
    }

    /// Returns all values of a repeated flag, else the lines of the variable.
    pub fn secrets(&mut self, flag: &'static str) -> Vec<Secret> {
        let setting = self.setting(flag);
        self.warn_of_secret_flag(flag);
        let texts: Vec<&str> = match self
            .raw
            .flags
            .get(flag)
            .filter(|texts| texts.iter().any(|t| !t.is_empty()))
        {
            Some(texts) => texts.iter().map(String::as_str).collect(),
            None => self
                .raw
                .given(setting)
                .map(|given| given.text)
                .into_iter()
                .collect(),
        };
        let lines = texts.into_iter().flat_map(str::lines);
        lines
            .map(Secret::new)
            .filter(|secret| !secret.is_empty())
            .collect()
    }

    /// Refuses a secret that is short enough to guess. Only warns with `--compat atlantis`, because the secret may
    /// come from an Atlantis server.
    pub fn long_enough(&mut self, flag: &'static str, secret: &Secret) -> ReadResult<()> {
        match weakness(secret) {
            None => Ok(()),
            Some(what) if self.accepts_weak_secrets() => {
                self.warn(StartupWarning::with(flag, format!("{what}; {STRONGER}")));
                Ok(())
            }
            Some(what) => self.refuse(flag, what, STRONGER),
        }
    }

    /// Returns true if a short secret is only a warning.
    pub fn accepts_weak_secrets(&self) -> bool {
        self.compat == Compat::Atlantis
    }

    /// Warns about a secret in a flag, because every process of the machine can read the command line.
    pub fn warn_of_secret_flag(&mut self, flag: &'static str) {
        if self.raw.flag(flag).is_some() {
            let advice = "every process of this machine can read it on the command line; use the variable or a file instead";
            self.warn(StartupWarning::with(flag, advice));
        }
    }
}

/// Returns the problem with a secret that is short enough to guess.
pub(super) fn weakness(secret: &Secret) -> Option<String> {
    let length = secret.expose().chars().count();
    (length < SHORTEST_SECRET).then(|| {
        format!(
            "{length} characters long; a secret needs at least {SHORTEST_SECRET}, so that it cannot be guessed"
        )
    })
}

/// Parses the words that people write for yes and no.
pub(super) fn parse_switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" | "yes" | "y" | "on" => Some(true),
        "false" | "f" | "0" | "no" | "n" | "off" => Some(false),
        _ => None,
    }
}

/// Formats a list of choices: `` `a`, `b` or `c` ``.
pub(super) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
