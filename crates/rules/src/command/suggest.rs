//! Finds the spelling that a person probably meant.

/// Maximum length of a word to compare, in characters. A longer word is not a misspelling of anything we know, and
/// comparing it would take time.
const MAX_CHARS: usize = 40;

/// Returns the number of typing mistakes between two words; `None` if the first one is too long to compare.
pub(super) fn distance(a: &str, b: &str) -> Option<usize> {
    let comparable = a.chars().nth(MAX_CHARS).is_none();
    comparable.then(|| strsim::damerau_levenshtein(&a.to_lowercase(), &b.to_lowercase()))
}

/// Returns the candidate nearest to the word, or one that starts with the word; `None` if nothing is near.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let score = |candidate: &'a str| {
        let steps = distance(word, candidate)?;
        let begun = word.chars().count() >= 3 && candidate.starts_with(&word.to_lowercase());
        let tolerated = (candidate.chars().count() / 3).clamp(1, 3);
        (steps <= tolerated || begun).then_some((steps, candidate))
    };
    candidates
        .into_iter()
        .filter_map(score)
        .min_by_key(|(steps, _)| *steps)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let commands = ["plan", "apply", "unlock", "approve_policies", "version"];
        for (word, meant) in [
            ("paln", Some("plan")),
            ("APLY", Some("apply")),
            ("approve-policies", Some("approve_policies")),
            ("approve", Some("approve_policies")),
            ("verison", Some("version")),
            ("the", None),
            ("pl", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, commands), meant, "{word}");
        }
        assert_eq!(nearest(&"plan".repeat(20), commands), None);
    }
}
