//! How long what is over is kept.

use std::time::Duration;

use super::reader::{Read, Reader};
use crate::config::duration::parse_duration;

/// GitHub offers deliveries for redelivery for three days. What was forgotten sooner would be done a second time (P2).
const SHORTEST: Duration = Duration::from_hours(4 * 24);
/// Says that nothing is removed.
const FOREVER: &str = "forever";

/// How long what is over is kept; `None`: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Webhook deliveries.
    pub deliveries: Option<Duration>,
    /// Commands, their runs, and what those printed.
    pub runs: Option<Duration>,
}

impl Retention {
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let deliveries = read_time(reader, "keep-deliveries");
        let runs = read_time(reader, "keep-runs");
        Ok(Self {
            deliveries: deliveries?,
            runs: runs?,
        })
    }
}

fn read_time(reader: &mut Reader<'_>, flag: &'static str) -> Read<Option<Duration>> {
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
            "`{text}` is too short: GitHub may send a delivery again for three days, and it would be taken for new"
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
