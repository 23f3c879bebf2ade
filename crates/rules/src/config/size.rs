//! Parses and shows amounts of bytes that people write, such as `20GiB`.

use std::fmt;
use std::str::FromStr;

/// An amount of bytes, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

const UNITS: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl ByteSize {
    /// Returns the number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = String;

    /// Parses `20GiB`, `500 MB`. A unit is required, and zero is refused.
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("`{text}` is not a size");
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .ok_or_else(invalid)?;
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        let (_, factor) = UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .ok_or_else(invalid)?;
        let bytes = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(*factor))
            .ok_or_else(invalid)?;
        if bytes == 0 {
            Err(format!("`{text}` is zero"))
        } else {
            Ok(Self(bytes))
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.0))
    }
}

/// Formats an amount of bytes for people, rounded down: `1.5 GiB`, `12 KiB`.
pub fn shown(bytes: u64) -> String {
    let unit = UNITS[..4].iter().rev().find(|(_, factor)| bytes >= *factor);
    let Some((name, factor)) = unit else {
        return format!("{bytes} B");
    };
    let tenths = u128::from(bytes) * 10 / u128::from(*factor);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {name}"),
        (whole, tenth) => format!("{whole}.{tenth} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("20GiB", Some(20 << 30)),
            ("20 gib", Some(20 << 30)),
            ("500MB", Some(500_000_000)),
            ("1TiB", Some(1 << 40)),
            ("", None),
            ("20", None),
            ("0GiB", None),
            ("1.5GiB", None),
            ("-1GiB", None),
            ("GiB", None),
            ("20 GiB of it", None),
            ("99999999999999TiB", None),
        ] {
            assert_eq!(
                text.parse::<ByteSize>().ok().map(ByteSize::bytes),
                bytes,
                "{text:?}"
            );
        }
    }

    #[test]
    fn sizes_are_shown_with_one_digit_at_most() {
        let cases = [0, 1023, 1 << 10, 1536, (20 << 30) + 1, u64::MAX];
        assert_eq!(
            cases.map(shown),
            [
                "0 B",
                "1023 B",
                "1 KiB",
                "1.5 KiB",
                "20 GiB",
                "16777215.9 TiB"
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,20}") {
            drop(text.parse::<ByteSize>());
        }
    }
}
