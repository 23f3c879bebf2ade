//! Texts and times as a terminal shows them.

use chrono::{DateTime, SecondsFormat, Utc};

/// Somebody else's text: a terminal must not obey it.
pub(crate) fn safe(text: &str) -> String {
    let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(visible).collect()
}

/// A time for programs, to the second.
pub(crate) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
