//! Whether projects are found without being configured (reference 3.5).

use std::fmt;
use std::str::FromStr;

/// When directories that no project names become projects by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AutodiscoverMode {
    /// When the repository configures no project at all.
    #[default]
    Auto,
    /// Always, beside the configured projects.
    Enabled,
    /// Never.
    Disabled,
}

impl AutodiscoverMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Enabled, Self::Disabled];

    /// The spelling in flags and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
        }
    }

    /// Whether discovery happens in a repository with that many configured projects.
    pub const fn is_active(self, configured_projects: usize) -> bool {
        match self {
            Self::Auto => configured_projects == 0,
            Self::Enabled => true,
            Self::Disabled => false,
        }
    }
}

/// A text that is not a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the autodiscover mode must be `auto`, `enabled` or `disabled`")]
pub struct InvalidMode;

impl FromStr for AutodiscoverMode {
    type Err = InvalidMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or(InvalidMode)
    }
}

impl fmt::Display for AutodiscoverMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in AutodiscoverMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("Auto".parse::<AutodiscoverMode>(), Err(InvalidMode));
    }

    #[test]
    fn auto_discovers_only_where_nothing_is_configured() {
        let active = AutodiscoverMode::ALL.map(|mode| (mode.is_active(0), mode.is_active(1)));
        assert_eq!(active, [(true, false), (true, true), (false, false)]);
    }
}
