//! What is wrong with a configuration, told all at once and so that a person can act on it.

use std::fmt;

use super::raw::{Given, Giver, RawSettings};
use super::setting::Setting;
use super::table::setting;

/// One thing that keeps the server from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    subject: String,
    /// The flag it is about, if it is about one.
    flag: Option<&'static str>,
    what: String,
    /// Lines to show, of a file.
    excerpt: Vec<String>,
    fix: String,
}

impl Problem {
    /// About one setting.
    pub fn with(flag: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            flag: Some(flag),
            ..Self::about(subject(setting(flag)), what, fix)
        }
    }

    /// About anything else; `subject` opens the sentence.
    pub fn about(
        subject: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            subject: subject.into(),
            flag: None,
            what: what.into(),
            excerpt: Vec::new(),
            fix: fix.into(),
        }
    }

    /// If the file of `--config` says what is wrong: with the place there.
    pub(super) fn placed(self, raw: &RawSettings) -> Self {
        let given = self.flag.and_then(|flag| raw.given(setting(flag)));
        match (self.flag, given) {
            (
                Some(flag),
                Some(Given {
                    source,
                    by: Giver::File,
                    ..
                }),
            ) => Self {
                subject: format!("{source}: {flag}"),
                excerpt: raw.settings_file.excerpt(flag),
                ..self
            },
            (_, _) => self,
        }
    }

    /// With the lines of the file it is about.
    pub(super) fn showing(self, excerpt: Vec<String>) -> Self {
        Self { excerpt, ..self }
    }
}

/// `--gh-user (LOCKKEEPER_GH_USER)`.
fn subject(setting: &Setting) -> String {
    format!("--{} ({})", setting.flag, setting.variable())
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.what)?;
        self.excerpt
            .iter()
            .try_for_each(|line| write!(f, "\n     {line}"))?;
        write!(f, "\n     Fix: {}", self.fix)
    }
}

/// Everything that keeps the server from starting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(Vec<Problem>);

impl ConfigErrors {
    /// `None` if there is none.
    pub(super) fn of(problems: Vec<Problem>) -> Option<Self> {
        (!problems.is_empty()).then_some(Self(problems))
    }

    /// The problems, in the order in which they were found.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, noun) = (
            self.0.len(),
            if self.0.len() == 1 {
                "problem"
            } else {
                "problems"
            },
        );
        write!(
            f,
            "the server cannot start: {count} {noun} in its configuration"
        )?;
        for (index, problem) in self.0.iter().enumerate() {
            write!(f, "\n\n{:>3}. {problem}", index + 1)?;
        }
        f.write_str("\n\nAll settings: lockkeeper server --help")
    }
}

/// Something the server starts with, but that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    text: String,
    /// Whether it is about a setting that is accepted and has no effect.
    is_idle: bool,
}

impl Warning {
    /// About one setting.
    pub(super) fn with(flag: &'static str, what: impl fmt::Display) -> Self {
        Self::about(format!("{}: {what}", subject(setting(flag))))
    }

    /// About anything else.
    pub(super) fn about(text: String) -> Self {
        Self {
            text,
            is_idle: false,
        }
    }

    /// About a setting that is accepted and has no effect.
    pub(super) fn without_effect(text: String) -> Self {
        Self {
            text,
            is_idle: true,
        }
    }

    /// Whether it is about a setting that is accepted and has no effect.
    pub fn is_without_effect(&self) -> bool {
        self.is_idle
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
