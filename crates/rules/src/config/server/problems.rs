//! Problems of a configuration, reported all at once and with a fix for each.

use std::fmt;

use super::raw::{GivenValue, RawSettings, SettingSource};
use super::setting;
use super::setting::Setting;

/// A problem that keeps the server from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupProblem {
    subject: String,
    /// Flag with the problem, if it concerns one flag.
    flag: Option<&'static str>,
    what: String,
    /// Lines of a file that show the problem.
    excerpt: Vec<String>,
    fix: String,
}

impl StartupProblem {
    /// Creates a problem of one setting.
    pub fn with(flag: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            flag: Some(flag),
            ..Self::about(subject(setting(flag)), what, fix)
        }
    }

    /// Creates a problem of anything else. `subject` opens the sentence.
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

    /// Names the place in the file of `--config`, if the value comes from that file.
    pub(super) fn placed(self, raw: &RawSettings) -> Self {
        let given = self.flag.and_then(|flag| raw.given(setting(flag)));
        match (self.flag, given) {
            (
                Some(flag),
                Some(GivenValue {
                    source,
                    by: SettingSource::File,
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

    /// Adds the lines of the file that show the problem.
    pub(super) fn showing(self, excerpt: Vec<String>) -> Self {
        Self { excerpt, ..self }
    }
}

/// Formats a setting: `--gh-user (LOCKKEEPER_GH_USER)`.
fn subject(setting: &Setting) -> String {
    format!("--{} ({})", setting.flag, setting.variable())
}

impl fmt::Display for StartupProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.what)?;
        self.excerpt
            .iter()
            .try_for_each(|line| write!(f, "\n     {line}"))?;
        write!(f, "\n     Fix: {}", self.fix)
    }
}

/// All problems that keep the server from starting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct StartupProblems(Vec<StartupProblem>);

impl StartupProblems {
    /// Returns the errors, or `None` if there is no problem.
    pub(super) fn of(problems: Vec<StartupProblem>) -> Option<Self> {
        (!problems.is_empty()).then_some(Self(problems))
    }

    /// Returns the problems in the order in which they were found.
    pub fn problems(&self) -> &[StartupProblem] {
        &self.0
    }
}

impl fmt::Display for StartupProblems {
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
            "the server cannot start because of {count} {noun} in its configuration"
        )?;
        for (index, problem) in self.0.iter().enumerate() {
            write!(f, "\n\n{:>3}. {problem}", index + 1)?;
        }
        f.write_str("\n\nAll settings: lockkeeper server --help")
    }
}

/// A problem that does not keep the server from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupWarning {
    text: String,
    /// True if the warning is about a setting without effect.
    is_idle: bool,
}

impl StartupWarning {
    /// Creates a warning about one setting.
    pub(super) fn with(flag: &'static str, what: impl fmt::Display) -> Self {
        Self::about(format!("{}: {what}", subject(setting(flag))))
    }

    /// Creates a warning about anything else.
    pub(super) fn about(text: String) -> Self {
        Self {
            text,
            is_idle: false,
        }
    }

    /// Creates a warning about a setting that is accepted without effect.
    pub(super) fn without_effect(text: String) -> Self {
        Self {
            text,
            is_idle: true,
        }
    }

    /// Returns true if the warning is about a setting that is accepted without effect.
    pub fn is_without_effect(&self) -> bool {
        self.is_idle
    }
}

impl fmt::Display for StartupWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
