//! How often repairs look, where the operator has a say in it.

use std::time::Duration;

use super::reader::{Read, Reader};

/// How long from one look of a repair to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// For claims that nothing refers to.
    pub claims: Duration,
}

impl Periods {
    /// What holds where nothing is set.
    pub const DEFAULT: Self = Self {
        claims: Duration::from_mins(10),
    };

    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self {
            claims: reader.duration("claims-gc-interval")?,
        })
    }
}
