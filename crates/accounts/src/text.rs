//! Small helpers for messages: safe excerpts and suggestions for mistyped words.

/// Maximum number of characters of an excerpt or of a compared word. Longer words are not typing errors.
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

/// Returns the known word within a few typing errors of `word`.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = word.to_lowercase().chars().take(MAX_CHARS).collect();
    // Words of one or two letters would be similar to everything.
    let allowed = word.chars().count().div_ceil(3);
    let distance = |known: &str| strsim::damerau_levenshtein(&word, &known.to_lowercase());
    known
        .into_iter()
        .map(|known| (distance(known), known))
        .filter(|(errors, _)| *errors <= allowed)
        .min()
        .map(|(_, known)| known)
}

/// Describes how to correct an unknown word: the nearest known one, or all of them.
pub(crate) fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("use one of {}", quoted(known)),
    }
}

/// Formats words for a sentence: `` `a`, `b` ``.
pub(crate) fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_and_harmless() {
        assert_eq!(shown("a`b\tc\u{1b}\u{202e}"), "a'b c\u{fffd}\u{fffd}");
        assert_eq!(shown(&"x".repeat(100)).chars().count(), MAX_CHARS + 1);
    }

    #[test]
    fn a_mistyped_word_gets_the_nearest_one() {
        let known = ["fullName", "preferredEmail", "status", "active"];
        assert_eq!(suggestion("fulName", &known), "did you mean `fullName`?");
        assert_eq!(suggestion("STATSU", &known), "did you mean `status`?");
        assert_eq!(
            suggestion("q", &known[2..]),
            "use one of `status`, `active`"
        );
    }
}
