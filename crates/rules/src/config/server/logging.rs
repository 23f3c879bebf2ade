//! Settings for the operation of the server: its log, and the settings that are read before all others.

use std::str::FromStr;

use super::section::section;
use super::setting::Compat;

section! {
    /// Level and format of the log.
    pub struct LoggingConfig in Operation {
        given to caller {
            /// YAML file with settings; its keys are the names of the flags. Flags and variables override it.
            path("config", "FILE").hidden_from_runs("the settings"),
        }

        /// Minimum level of logged messages.
        pub level: LogLevel = choice("log-level", "LEVEL", &["debug", "info", "warn", "error"]).or("info"),

        /// Format of the log: lines for people, or one JSON object per line.
        pub format: LogFormat = choice("log-format", "FORMAT", &["text", "json"]).or("text"),

        given to reader {
            /// Use the defaults of Atlantis that carry a name (command word, status name, data dir, user name).
            choice("compat", "PRODUCT", &[Compat::ATLANTIS]),
        }
    }
}

/// Lowest level of messages that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Details that help to find a bug.
    Debug,
    /// Normal events of the server.
    #[default]
    Info,
    /// Problems that do not prevent anything.
    Warn,
    /// Problems that a person should look at.
    Error,
}

impl FromStr for LogLevel {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "debug" => Ok(Self::Debug),
            "info" => Ok(Self::Info),
            "warn" => Ok(Self::Warn),
            "error" => Ok(Self::Error),
            _ => Err(()),
        }
    }
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

impl FromStr for LogFormat {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}
