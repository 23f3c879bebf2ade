//! Times after which old data is removed.

use std::time::Duration;

use super::reader::{ReadResult, SettingReader};
use super::section::section;
use crate::config::duration::parse_duration;

/// Minimum time for deliveries. GitHub offers them for redelivery for three days. A delivery that was removed earlier
/// would be processed a second time (P2).
const SHORTEST: Duration = Duration::from_hours(4 * 24);
/// Word for data that is never removed.
const FOREVER: &str = "forever";

section! {
    /// Times after which old data is removed. `None`: the data is never removed.
    #[derive(Copy)]
    pub struct Retention in Storage {
        /// Time after which webhook deliveries are removed; at least 4d, or `forever`.
        pub deliveries: Option<Duration> = time("keep-deliveries").or("30d") => read_time,

        /// Time after which commands, their runs and their output are removed, unless the plans of an open pull
        /// request need them; at least 4d, or `forever`.
        pub runs: Option<Duration> = time("keep-runs").or("90d") => read_time,
    }
}

fn read_time(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Option<Duration>> {
    let fix = "write a time from `4d` to `366d`, or `forever`";
    Ok(reader
        .parsed(flag, parse_time, fix)?
        .expect("settings that are times have a default"))
}

fn parse_time(text: &str) -> Result<Option<Duration>, String> {
    if text.eq_ignore_ascii_case(FOREVER) {
        return Ok(None);
    }
    match parse_duration(text)? {
        short if short < SHORTEST => Err(format!(
            "`{text}` is too short: GitHub can send a delivery again for three days, and the server would not recognize it"
        )),
        time => Ok(Some(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_long_enough_to_know_a_delivery_again() {
        let days = |days: u64| Ok(Some(Duration::from_hours(days * 24)));
        assert_eq!(parse_time("4d"), days(4));
        assert_eq!(parse_time("366d"), days(366));
        assert_eq!(parse_time("Forever"), Ok(None));
        for refused in ["95h", "0d", "367d", "never", "30"] {
            assert!(parse_time(refused).is_err(), "{refused}");
        }
    }
}
