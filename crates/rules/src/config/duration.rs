//! Parses durations that people write, such as `1h30m`.

use std::time::Duration;

/// One year. No setting needs more, and sums of such durations cannot overflow.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// Parses `45s`, `90m`, `2h`, `1d` and sums such as `1h30m`. A unit is required, and zero is refused.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("`{text}` is not a duration");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (part, after) = parse_part(rest).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after.trim_start();
    }
    match total {
        Duration::ZERO => Err(format!("`{text}` is zero")),
        total if total > LONGEST => Err(format!("`{text}` is longer than a year")),
        total => Ok(total),
    }
}

fn parse_part(text: &str) -> Option<(Duration, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let letters = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    let seconds = match unit {
        "s" | "sec" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return None,
    };
    Some((
        Duration::from_secs(number.parse::<u64>().ok()?.checked_mul(seconds)?),
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("45s", Some(45)),
            ("90m", Some(5400)),
            ("2h", Some(7200)),
            ("1h30m", Some(5400)),
            ("1h 30m", Some(5400)),
            ("1 d", Some(86400)),
            ("", None),
            ("0s", None),
            ("10", None),
            ("-1h", None),
            ("1.5h", None),
            ("h", None),
            ("2 weeks", None),
            ("400d", None),
            ("99999999999999999999d", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(
                parse_duration(text).ok(),
                seconds.map(Duration::from_secs),
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9smhd \\-é]{0,24}") {
            let parsed = parse_duration(&text);
            prop_assert!(parsed.is_err() || parsed.is_ok_and(|time| time > Duration::ZERO && time <= LONGEST));
        }
    }
}
