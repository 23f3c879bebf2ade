//! Splits a command line into words, as a POSIX shell would, and remembers the position of each word.
//!
//! The rules are those of the `shlex` crate, and a test compares both: single and double quotes, backslash, and `#`
//! at the start of a word, which begins a comment. The crate does not report positions, which the caret in a reply
//! needs. One rule differs: any Unicode white space separates words, because text copied from a web page often holds
//! no-break spaces.

use std::iter::Peekable;
use std::ops::Range;
use std::str::CharIndices;

/// A word after its quotes and backslashes were removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SplitWord {
    /// Text of the word.
    pub text: String,
    /// Position in the line, in bytes, including quotes.
    pub span: Range<usize>,
}

/// Reason why a line could not be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SplitError {
    /// A quotation mark lacks its partner.
    Quote {
        /// Mark that opens the quotation.
        mark: char,
        /// Position in the line, in bytes.
        at: usize,
    },
    /// The line ends after a backslash.
    Backslash {
        /// Position in the line, in bytes.
        at: usize,
    },
}

/// Splits a line into words.
pub(super) fn split(line: &str) -> Result<Vec<SplitWord>, SplitError> {
    let mut chars = line.char_indices().peekable();
    let mut words = Vec::new();
    while let Some(&(at, c)) = chars.peek() {
        match c {
            '#' => while chars.next_if(|&(_, c)| c != '\n').is_some() {},
            c if c.is_whitespace() => _ = chars.next(),
            _ => {
                let text = word(&mut chars)?;
                let end = chars.peek().map_or(line.len(), |&(end, _)| end);
                words.push(SplitWord {
                    text,
                    span: at..end,
                });
            }
        }
    }
    Ok(words)
}

type Chars<'a> = Peekable<CharIndices<'a>>;

fn word(chars: &mut Chars<'_>) -> Result<String, SplitError> {
    let mut text = String::new();
    while let Some((at, c)) = chars.next_if(|&(_, c)| !c.is_whitespace()) {
        match c {
            '\'' => single_quoted(chars, at, &mut text)?,
            '"' => double_quoted(chars, at, &mut text)?,
            '\\' => match chars.next() {
                Some((_, '\n')) => {}
                Some((_, escaped)) => text.push(escaped),
                None => return Err(SplitError::Backslash { at }),
            },
            plain => text.push(plain),
        }
    }
    Ok(text)
}

fn single_quoted(chars: &mut Chars<'_>, at: usize, text: &mut String) -> Result<(), SplitError> {
    for (_, c) in chars.by_ref() {
        if c == '\'' {
            return Ok(());
        }
        text.push(c);
    }
    Err(SplitError::Quote { mark: '\'', at })
}

fn double_quoted(chars: &mut Chars<'_>, at: usize, text: &mut String) -> Result<(), SplitError> {
    while let Some((_, c)) = chars.next() {
        match c {
            '"' => return Ok(()),
            '\\' => match chars.next() {
                Some((_, c @ ('$' | '`' | '"' | '\\'))) => text.push(c),
                Some((_, '\n')) => {}
                Some((_, c)) => text.extend(['\\', c]),
                None => break,
            },
            plain => text.push(plain),
        }
    }
    Err(SplitError::Quote { mark: '"', at })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::model::quote;

    use super::*;

    fn texts(line: &str) -> Result<Vec<String>, SplitError> {
        Ok(split(line)?.into_iter().map(|word| word.text).collect())
    }

    #[test]
    fn a_hash_starts_a_comment_only_at_the_start_of_a_word() {
        assert_eq!(texts("plan # a 'note").unwrap(), ["plan"]);
        assert_eq!(texts("plan a#b").unwrap(), ["plan", "a#b"]);
    }

    #[test]
    fn positions_cover_the_quotes() {
        let words = split("plan -d 'a b'").unwrap();
        assert_eq!(
            words[2],
            SplitWord {
                text: "a b".into(),
                span: 8..13
            }
        );
    }

    #[test]
    fn a_no_break_space_parts_words() {
        assert_eq!(texts("plan\u{a0}-d x").unwrap(), ["plan", "-d", "x"]);
    }

    #[test]
    fn what_is_not_closed_is_told_with_its_place() {
        assert_eq!(
            split("plan \"a"),
            Err(SplitError::Quote { mark: '"', at: 5 })
        );
        assert_eq!(
            split("plan a'b"),
            Err(SplitError::Quote { mark: '\'', at: 6 })
        );
        assert_eq!(split("plan a\\"), Err(SplitError::Backslash { at: 6 }));
    }

    proptest! {
        #[test]
        fn words_are_those_of_the_shlex_crate(line in "[a-c'\"\\\\ \t\n#$`é-]{0,24}") {
            prop_assert_eq!(texts(&line).ok(), shlex::split(&line));
        }

        #[test]
        fn quoting_and_splitting_agree(word in any::<String>()) {
            prop_assert_eq!(texts(&quote(&word)).unwrap(), [word]);
        }
    }
}
