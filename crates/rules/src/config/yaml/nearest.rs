//! Suggestions for mistyped words: finds the most similar known words.

/// Maximum number of compared characters of a word. Longer words are not typing errors.
const MAX_CHARS: usize = 100;

/// Maximum number of compared known words, so that a long list costs little.
const MAX_KNOWN: usize = 2000;

/// Returns the known words within a few typing errors of `word`, nearest first, at most `limit`.
pub fn nearest<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    limit: usize,
) -> Vec<&'a str> {
    let word: String = word.to_lowercase().chars().take(MAX_CHARS).collect();
    // Words of one or two letters would be similar to everything.
    let allowed = word.chars().count() / 3;
    let distance = |known: &str| strsim::damerau_levenshtein(&word, &known.to_lowercase());
    let near =
        |known: &'a str| Some((distance(known), known)).filter(|(errors, _)| *errors <= allowed);
    let mut found: Vec<_> = known.into_iter().take(MAX_KNOWN).filter_map(near).collect();
    found.sort_unstable();
    found.dedup();
    found
        .into_iter()
        .take(limit)
        .map(|(_, known)| known)
        .collect()
}

/// Formats words for a sentence: `` `a`, `b` ``.
pub fn quoted<T: std::fmt::Display>(words: impl IntoIterator<Item = T>) -> String {
    words
        .into_iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_find_their_word_and_other_words_none() {
        let known = [
            "name",
            "dir",
            "workspace",
            "when_modified",
            "terraform_version",
        ];
        for (word, expected) in [
            ("workspce", &["workspace"][..]),
            ("WhenModified", &["when_modified"]),
            ("dri", &["dir"]),
            ("terraform-version", &["terraform_version"]),
            ("nam", &["name"]),
            ("colour", &[]),
            ("Di", &[]),
            ("", &[]),
        ] {
            assert_eq!(nearest(word, known, 1), expected, "{word}");
        }
        assert_eq!(
            nearest("net-prd", ["net-prod", "net-dev", "net-pre"], 2),
            ["net-pre", "net-prod"]
        );
    }
}
