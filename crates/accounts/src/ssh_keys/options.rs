//! Options before a key: `from="10.0.0.0/8,!10.1.0.0/16",expiry-time="20270101Z"`.
//!
//! Ignoring an option such as `command=` would open what it closes, so every other option is refused.

use std::net::IpAddr;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use ipnet::IpNet;

use crate::findings::Problem;
use crate::text::shown;

/// Limits of the use of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions {
    from: Option<Vec<FromPattern>>,
    expires: Option<DateTime<Utc>>,
}

/// A part of `from=`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FromPattern {
    is_negated: bool,
    network: IpNet,
}

impl KeyOptions {
    /// Options of OpenSSH without a value. They mark the beginning of options, and are refused.
    pub(super) const KNOWN_FLAGS: [&'static str; 14] = [
        "agent-forwarding",
        "cert-authority",
        "no-agent-forwarding",
        "no-port-forwarding",
        "no-pty",
        "no-touch-required",
        "no-user-rc",
        "no-X11-forwarding",
        "port-forwarding",
        "pty",
        "restrict",
        "user-rc",
        "verify-required",
        "X11-forwarding",
    ];

    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let mut options = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            let (name, value);
            (name, value, rest) = next_option(rest)?;
            let is_known = |known: &str| name.eq_ignore_ascii_case(known);
            let is_twice = match value {
                Some(value) if is_known("from") => options.from.replace(patterns(value)?).is_some(),
                Some(value) if is_known("expiry-time") => {
                    options.expires.replace(expiry_time(value)?).is_some()
                }
                _ => {
                    let what = format!("the option `{}` is not supported", shown(name));
                    let fix = "remove it; only `from=\"…\"` and `expiry-time=\"…\"` are";
                    return Err(Problem::error(None, what, fix));
                }
            };
            if is_twice {
                let what = format!("the option `{}` is given twice", shown(name));
                return Err(Problem::error(None, what, "write it once"));
            }
        }
        Ok(options)
    }

    /// Returns true if the key may be used from this address at this time.
    pub fn admits(&self, address: IpAddr, now: DateTime<Utc>) -> bool {
        if self.expires.is_some_and(|expires| now >= expires) {
            return false;
        }
        let Some(from) = &self.from else {
            return true;
        };
        let address = address.to_canonical();
        let matches = |is_negated: bool| {
            let mut patterns = from
                .iter()
                .filter(|pattern| pattern.is_negated == is_negated);
            patterns.any(|pattern| pattern.network.contains(&address))
        };
        matches(false) && !matches(true)
    }
}

/// Takes `name`, `name=value` or `name="value"` and the comma after it.
fn next_option(text: &str) -> Result<(&str, Option<&str>, &str), Problem> {
    let end = text.find([',', '=']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let Some(quoted) = rest.strip_prefix("=\"") else {
        let end = rest.find(',').unwrap_or(rest.len());
        return Ok((name, None, rest[end..].trim_start_matches(',')));
    };
    let parts = quoted.split_once('"');
    match parts {
        Some((value, rest)) if rest.is_empty() || rest.starts_with(',') => {
            Ok((name, Some(value), rest.trim_start_matches(',')))
        }
        Some(_) | None => Err(Problem::error(
            None,
            format!("the option `{}` does not end after its value", shown(name)),
            "write `name=\"value\"`, with commas and without blanks between options",
        )),
    }
}

/// Host names are refused: the server does not look them up, so they would match nothing.
fn patterns(value: &str) -> Result<Vec<FromPattern>, Problem> {
    let pattern = |text: &str| {
        let network = text.strip_prefix('!').unwrap_or(text);
        let parsed = network.parse::<IpNet>().ok();
        let parsed = parsed.or_else(|| network.parse::<IpAddr>().ok().map(IpNet::from));
        let parsed = parsed.or_else(|| wildcard(network));
        let network = parsed.ok_or_else(|| {
            let what = format!("`from=`: `{}` is not an address", shown(text));
            let fix = "write addresses such as `10.0.0.1` or `10.0.0.0/8`, not host names";
            Problem::error(None, what, fix)
        })?;
        Ok(FromPattern {
            is_negated: text.starts_with('!'),
            network,
        })
    };
    value.split(',').map(pattern).collect()
}

/// Reads `10.1.*.*` and `10.*` as networks.
fn wildcard(text: &str) -> Option<IpNet> {
    let fixed: Vec<&str> = text.split('.').take_while(|part| *part != "*").collect();
    let stars = text.split('.').skip(fixed.len());
    if fixed.is_empty() || fixed.len() > 3 || stars.clone().count() == 0 {
        return None;
    }
    if stars.clone().any(|part| part != "*") || fixed.len() + stars.count() > 4 {
        return None;
    }
    let zeros = ["0"; 4];
    let address = [&fixed[..], &zeros[fixed.len()..]].concat().join(".");
    format!("{address}/{}", fixed.len() * 8).parse().ok()
}

/// Reads `YYYYMMDD`, `YYYYMMDDHHMM` or `YYYYMMDDHHMMSS`, with or without `Z`. All of them mean UTC.
fn expiry_time(value: &str) -> Result<DateTime<Utc>, Problem> {
    let digits = value.strip_suffix(['Z', 'z']).unwrap_or(value);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let part = |range: std::ops::Range<usize>| digits.get(range)?.parse::<u32>().ok();
    let time = || {
        if !is_plain || ![8, 12, 14].contains(&digits.len()) {
            return None;
        }
        let year = i32::try_from(part(0..4)?).ok()?;
        let date = NaiveDate::from_ymd_opt(year, part(4..6)?, part(6..8)?)?;
        let [hour, minute, second] = [8..10, 10..12, 12..14].map(|range| part(range).unwrap_or(0));
        let time = NaiveTime::from_hms_opt(hour, minute, second)?;
        Some(NaiveDateTime::new(date, time).and_utc())
    };
    time().ok_or_else(|| {
        let what = format!("`expiry-time=`: `{}` is not a time", shown(value));
        Problem::error(
            None,
            what,
            "write it as `20271231` or `202712312359Z`, in UTC",
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    fn admits(options: &str, address: &str, now: &str) -> bool {
        let now = DateTime::parse_from_rfc3339(now).unwrap().to_utc();
        let options = KeyOptions::parse(options).unwrap();
        options.admits(address.parse().unwrap(), now)
    }

    #[test]
    fn addresses_and_times_limit_a_key() {
        let now = "2026-11-26T12:00:00Z";
        let from = r#"from="10.0.0.0/8,!10.1.0.0/16,192.168.*.*,2001:db8::1""#;
        for (address, is_admitted) in [
            ("10.2.0.1", true),
            ("::ffff:10.2.0.1", true),
            ("10.1.0.1", false),
            ("192.168.7.1", true),
            ("192.169.7.1", false),
            ("2001:db8::1", true),
            ("2001:db8::2", false),
        ] {
            assert_eq!(admits(from, address, now), is_admitted, "{address}");
        }
        for (time, is_admitted) in [
            ("20261126", false),
            ("20261127Z", true),
            ("202611261200", false),
            ("202611261201", true),
            ("20261126120001Z", true),
        ] {
            let options = format!("EXPIRY-TIME=\"{time}\",from=\"10.0.0.1\"");
            assert_eq!(admits(&options, "10.0.0.1", now), is_admitted, "{time}");
            assert!(!admits(&options, "10.0.0.2", now), "{time}");
        }
    }

    #[test]
    fn an_option_that_would_be_ignored_is_refused() {
        for (options, problem) in [
            (
                "command=\"ls\"",
                "the option `command` is not supported; remove it; only `from=\"…\"` and `expiry-time=\"…\"` are",
            ),
            (
                "no-pty,from=\"10.0.0.1\"",
                "the option `no-pty` is not supported; remove it; only `from=\"…\"` and `expiry-time=\"…\"` are",
            ),
            (
                "from=\"10.0.0.1\",from=\"10.0.0.2\"",
                "the option `from` is given twice; write it once",
            ),
            (
                "from=\"host.example.com\"",
                "`from=`: `host.example.com` is not an address; \
                 write addresses such as `10.0.0.1` or `10.0.0.0/8`, not host names",
            ),
            (
                "expiry-time=\"tomorrow\"",
                "`expiry-time=`: `tomorrow` is not a time; write it as `20271231` or `202712312359Z`, in UTC",
            ),
            (
                "from=\"10.0.0.1",
                "the option `from` does not end after its value; \
                 write `name=\"value\"`, with commas and without blanks between options",
            ),
        ] {
            assert_eq!(KeyOptions::parse(options).unwrap_err().to_string(), problem);
        }
        for time in ["20260230", "2026", "20261126250000", "２０２６１１２６"] {
            assert!(expiry_time(time).is_err(), "{time}");
        }
        for pattern in ["*", "*.1", "10.*.1", "10.1.1.1.*", "", "!", "10.0.0.0/33"] {
            assert!(patterns(pattern).is_err(), "{pattern}");
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn no_text_makes_it_panic(text in "(from=|expiry-time=|[\",!*0-9./é]){0,12}|.{0,20}") {
            drop(KeyOptions::parse(&text));
        }
    }
}
