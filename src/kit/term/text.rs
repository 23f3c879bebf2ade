//! Formats texts and times for a terminal.

use chrono::{DateTime, SecondsFormat, Utc};

use crate::render::escape::push_visible;

/// Makes the text of another person safe, in the same way as comments and pages do. A terminal must not obey it, and
/// nothing in it is hidden.
pub(crate) fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        push_visible(&mut safe, c);
    }
    safe
}

/// Formats a time for programs, to the second.
pub(crate) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_neither_obeys_a_text_nor_hides_a_part_of_it() {
        assert_eq!(safe("alice\u{1b}[2J"), "alice\u{fffd}[2J");
        assert_eq!(safe("freeze\u{202e}yadnom"), "freeze[U+202E]yadnom");
    }
}
