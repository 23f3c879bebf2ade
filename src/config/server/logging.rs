//! Settings for the log.

use super::reader::{Read, Reader};
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
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let level = reader.choice("log-level");
        let format = reader.choice("log-format");
        Ok(Self {
            level: level?.expect("the level has a default"),
            format: format?.expect("the format has a default"),
        })
    }
}
