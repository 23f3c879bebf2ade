//! Small helpers for messages: safe excerpts.

/// Maximum number of characters of an excerpt.
const MAX_CHARS: usize = 80;

/// Shortens a pushed text for use between backticks. Replaces backticks, and characters that move the cursor or change
/// the direction of the line, because messages are printed on terminals.
pub(crate) fn shown(text: &str) -> String {
    let harmless = |c: char| match c {
        '`' => '\'',
        '\t' => ' ',
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    let mut shown: String = text.chars().take(MAX_CHARS).map(harmless).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_and_harmless() {
        assert_eq!(shown("a`b\tc\u{1b}\u{202e}"), "a'b c\u{fffd}\u{fffd}");
        assert_eq!(shown(&"x".repeat(100)).chars().count(), MAX_CHARS + 1);
    }
}
