//! What is logged.

use super::reader::{Read, Reader};
use crate::telemetry::{LogFormat, LogLevel};

/// What is logged and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggingConfig {
    /// Least important messages.
    pub level: LogLevel,
    /// Form of a line.
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
