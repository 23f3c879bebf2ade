//! How mirrors are kept in step.

use std::time::Duration;

use super::reader::{Read, Reader};
use crate::config::duration::parse_duration;

/// A holder that is alive renews in time, and one that is slow for a moment must not lose what it works on.
const SHORTEST: Duration = Duration::from_mins(1);

const HAS_DEFAULT: &str = "both settings have a default";

/// How mirrors are kept in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncConfig {
    /// How long the lease of a mirror lasts unless its holder renews it.
    pub lease_timeout: Duration,
    /// Mirrors that are brought in step at the same time at most.
    pub parallel: usize,
}

impl SyncConfig {
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let fix = "write a time from `1m`, as in `3h`";
        let time = reader.parsed("sync-lease-timeout", parse_time, fix)?;
        let parallel = reader.number::<usize>("sync-parallel")?;
        let (lease_timeout, parallel) = (time.expect(HAS_DEFAULT), parallel.expect(HAS_DEFAULT));
        Ok(Self { lease_timeout, parallel })
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        short if short < SHORTEST => {
            Err(format!("`{text}` is too short: a server that is busy for a moment would lose what it works on"))
        }
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_a_minute_at_least() {
        assert_eq!(parse_time("3h"), Ok(Duration::from_hours(3)));
        assert_eq!(parse_time("1m"), Ok(Duration::from_mins(1)));
        for refused in ["59s", "0h", "never", "30"] {
            assert!(parse_time(refused).is_err(), "{refused}");
        }
    }
}
