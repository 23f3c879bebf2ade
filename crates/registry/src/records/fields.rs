//! Small parts of a record: the name of a deployment, the ID and the time.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Datelike as _, NaiveDateTime, Utc};
use lockkeeper_model::model::text_type;

/// A text is not a part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidField {
    /// The text could not be the name of a deployment.
    #[error("a deployment is named like a host, in lower case and with at most 253 bytes")]
    Deployment,
    /// The number is not the ID of a record.
    #[error("an ID is a number from 1 to 9223372036854775807")]
    Id,
    /// The text is not a time of a record.
    #[error("a time is written as `2026-11-03T10:00:00Z`, from 1970 to 9999")]
    Time,
    /// The text could not be the name of a package.
    #[error(
        "a package is named by at most 128 letters, digits and `-._+~`, with a letter or digit first and last"
    )]
    FileName,
}

/// Name of a deployment and of its log, such as `mods.example.com`. Never the host that several deployments share,
/// because `go` takes two logs under one name for fraud.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeploymentName(String);

impl DeploymentName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeploymentName {
    type Err = InvalidField;

    fn from_str(text: &str) -> Result<Self, InvalidField> {
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        };
        if text.len() <= 253 && text.split('.').all(is_label) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidField::Deployment)
        }
    }
}

impl fmt::Display for DeploymentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_type!(DeploymentName);

/// Place of a record in a log, from 1 without gaps. `go` counts records from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId(i64);

impl LogId {
    /// ID of the first record of a log.
    pub const FIRST: Self = Self(1);

    /// Checks a number. Databases have signed ones.
    pub fn new(number: i64) -> Result<Self, InvalidField> {
        if number >= 1 {
            Ok(Self(number))
        } else {
            Err(InvalidField::Id)
        }
    }

    /// Returns the ID as a number.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl FromStr for LogId {
    type Err = InvalidField;

    fn from_str(text: &str) -> Result<Self, InvalidField> {
        let id = text.parse().ok().and_then(|number| Self::new(number).ok());
        // A sign or zeros in front would be a second spelling.
        id.filter(|id| id.to_string() == text)
            .ok_or(InvalidField::Id)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Time of a change, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordTime(DateTime<Utc>);

const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%SZ";

impl RecordTime {
    /// Truncates a time to seconds.
    pub fn new(time: DateTime<Utc>) -> Result<Self, InvalidField> {
        DateTime::from_timestamp(time.timestamp(), 0)
            .filter(|time| (1970..=9999).contains(&time.year()))
            .map(Self)
            .ok_or(InvalidField::Time)
    }

    /// Returns the time as one of chrono.
    pub fn get(self) -> DateTime<Utc> {
        self.0
    }
}

impl FromStr for RecordTime {
    type Err = InvalidField;

    fn from_str(text: &str) -> Result<Self, InvalidField> {
        let time = NaiveDateTime::parse_from_str(text, TIME_FORMAT);
        let time = Self::new(time.map_err(|_| InvalidField::Time)?.and_utc())?;
        // Chrono also reads spaces before a number, numbers without zeros, and leap seconds.
        let is_only_form = time.to_string() == text;
        is_only_form.then_some(time).ok_or(InvalidField::Time)
    }
}

impl fmt::Display for RecordTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.format(TIME_FORMAT), f)
    }
}
