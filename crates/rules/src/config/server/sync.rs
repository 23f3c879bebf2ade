//! Settings for the sync of mirrors.

use std::time::Duration;

use super::reader::{ReadResult, SettingReader};
use super::section::section;
use crate::config::duration::parse_duration;

/// Minimum duration of a lease. It gives a live holder time to renew, so that a short delay does not cost it the
/// mirror.
const SHORTEST: Duration = Duration::from_mins(1);

section! {
    /// Limits for the sync of mirrors.
    pub struct SyncConfig in Storage {
        /// Duration of the exclusive lease of a mirror. The server renews the lease while it works. At least 1m.
        pub lease_timeout: Duration = time("sync-lease-timeout").or("3h") => read_lease_timeout,

        /// Maximum number of concurrent mirror syncs on this server. 0: none, and commands fetch what they need.
        pub parallel: usize = number("sync-parallel", "NUMBER", 0, 64).or("2"),

        /// Time limit for one exchange of git with the forge; a longer one is stopped and retried later. It must
        /// allow the first fetch of the largest repository. At least 1s.
        pub fetch_timeout: Duration = time("fetch-timeout").or("30m") => read_fetch_timeout,
    }
}

fn read_lease_timeout(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Duration> {
    let time = reader.parsed(flag, parse_time, "write a time from `1m`, as in `3h`")?;
    Ok(time.expect("the lease has a default"))
}

fn read_fetch_timeout(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Duration> {
    let fix = "write a time from `1s`, as in `30m`";
    let time = reader.parsed(flag, parse_fetch_time, fix)?;
    Ok(time.expect("the time limit has a default"))
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
