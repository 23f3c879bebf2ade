//! Settings for the log.

use super::reader::{ReadResult, SettingReader};
use crate::telemetry::{LogFormat, LogLevel};

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
