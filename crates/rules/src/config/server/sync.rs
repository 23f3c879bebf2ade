//! Settings for the sync of mirrors.

use std::time::Duration;

use super::reader::{ReadResult, SettingReader};
use crate::config::duration::parse_duration;

/// Minimum duration of a lease. It gives a live holder time to renew, so that a short delay does not cost it the
/// mirror.
const SHORTEST: Duration = Duration::from_mins(1);

const HAS_DEFAULT: &str = "every setting of these has a default";

/// Limits for the sync of mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncConfig {
    /// Time after which the lease of a mirror expires unless its holder renews it.
    pub lease_timeout: Duration,
    /// Maximum number of mirrors that this server syncs at the same time.
    pub parallel: usize,
    /// Maximum duration of one exchange of git with the forge.
    pub fetch_timeout: Duration,
}

impl SyncConfig {
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let fix = "write a time from `1m`, as in `3h`";
        let time = reader.parsed("sync-lease-timeout", parse_time, fix)?;
        let parallel = reader.number::<usize>("sync-parallel")?;
        let fix = "write a time from `1s`, as in `30m`";
        let fetch = reader.parsed("fetch-timeout", parse_fetch_time, fix)?;
        Ok(Self {
            lease_timeout: time.expect(HAS_DEFAULT),
            parallel: parallel.expect(HAS_DEFAULT),
            fetch_timeout: fetch.expect(HAS_DEFAULT),
        })
    }
}

fn parse_fetch_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        short if short < Duration::from_secs(1) => Err(format!(
            "`{text}` is too short for an exchange with the forge"
        )),
        time => Ok(time),
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        short if short < SHORTEST => Err(format!(
            "`{text}` is too short: a server that is busy for a moment would lose its lease"
        )),
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
        assert_eq!(parse_fetch_time("1s"), Ok(Duration::from_secs(1)));
        assert!(parse_fetch_time("0s").is_err());
    }
}
