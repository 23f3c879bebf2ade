//! Letters and differences of case as the `go` command knows them.
//!
//! The standard library follows a newer version of Unicode. A package with a letter that only the newer version has
//! would be published here and refused by clients, so the tables come from Go.

use std::sync::LazyLock;

const TABLES: &str = include_str!("unicode.txt");

/// First and last character of each range of letters.
static LETTERS: LazyLock<Vec<(u32, u32)>> = LazyLock::new(|| {
    let letters = numbers_after("letter ").map(|range| match range[..] {
        [first, last] => (first, last),
        _ => panic!("a range has two ends"),
    });
    letters.collect()
});

/// Characters that are replaced to compare without case, each with its replacement.
static FOLDED: LazyLock<Vec<(u32, u32)>> = LazyLock::new(|| {
    let mut folded = Vec::new();
    for range in numbers_after("fold ") {
        let [first, last, step, to] = range[..] else {
            panic!("a range has four numbers");
        };
        folded.extend(
            (0..=last - first)
                .step_by(step as usize)
                .map(|n| (first + n, to + n)),
        );
    }
    folded
});

fn numbers_after(kind: &str) -> impl Iterator<Item = Vec<u32>> {
    let lines = TABLES
        .lines()
        .filter_map(move |line| line.strip_prefix(kind));
    lines.map(|line| {
        let numbers = line
            .split(' ')
            .map(|digits| u32::from_str_radix(digits, 16));
        numbers
            .collect::<Result<_, _>>()
            .expect("Go wrote hexadecimal digits")
    })
}

/// Returns true for letters, as `unicode.IsLetter` of Go.
pub(super) fn is_letter(c: char) -> bool {
    let c = u32::from(c);
    let range = LETTERS.partition_point(|(_, last)| *last < c);
    LETTERS.get(range).is_some_and(|(first, _)| *first <= c)
}

/// Returns a character that is the same for all that differ only in case, as `strings.EqualFold` of Go.
pub(super) fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    fold_by_table(c)
}

fn fold_by_table(c: char) -> char {
    let place = FOLDED.binary_search_by_key(&u32::from(c), |(from, _)| *from);
    let folded = place.ok().and_then(|place| char::from_u32(FOLDED[place].1));
    folded.unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_agree_with_the_standard_library() {
        assert!(LETTERS.is_sorted() && FOLDED.is_sorted());
        assert!(FOLDED.len() > 1400);
        let letters = (0..=0x0010_ffff)
            .filter_map(char::from_u32)
            .filter(|c| is_letter(*c));
        assert!(letters.clone().count() > 130_000);
        assert!(
            (0..128)
                .map(char::from)
                .all(|c| fold(c) == fold_by_table(c))
        );
        // The standard library also counts marks as alphabetic.
        assert!(letters.clone().all(char::is_alphabetic));
        for c in ['ſ', 'K', 'Σ', 'ς', 'ǅ', 'Å', 'ẞ', 'A', 'z', 'ꭰ'] {
            let folded = fold(c);
            assert_eq!(fold(folded), folded);
            assert_eq!(
                folded.to_lowercase().to_string(),
                c.to_lowercase()
                    .to_string()
                    .replace('ς', "σ")
                    .replace('ſ', "s")
            );
        }
    }
}
