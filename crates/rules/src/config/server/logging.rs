//! Settings for the log.

use std::str::FromStr;

use super::reader::{ReadResult, SettingReader};

/// Level and format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggingConfig {
    /// Level of the least important messages in the log.
    pub level: LogLevel,
    /// Format of a log line.
    pub format: LogFormat,
}

impl LoggingConfig {
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let level = reader.choice("log-level");
        let format = reader.choice("log-format");
        Ok(Self {
            level: level?.expect("the level has a default"),
            format: format?.expect("the format has a default"),
        })
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
