//! Periods of the reconcilers that the administrator can change.

use std::time::Duration;

use super::reader::{ReadResult, SettingReader};

/// Time between two runs of a reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// Time between two removals of claims that nothing refers to.
    pub claims: Duration,
}

impl Periods {
    /// Periods without a setting.
    pub const DEFAULT: Self = Self {
        claims: Duration::from_mins(10),
    };

    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        Ok(Self {
            claims: reader.duration("claims-gc-interval")?,
        })
    }
}
