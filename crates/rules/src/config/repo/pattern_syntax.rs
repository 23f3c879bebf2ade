//! Translates a file pattern into a regular expression.
//!
//! `*` and `?` stay within a name, and `**` crosses directories. `[a-z]` and `[^a-z]` match one character. A
//! backslash takes the next character literally.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// Characters with a meaning in a pattern.
pub(super) const SPECIAL: [char; 5] = ['*', '?', '[', ']', '\\'];

/// The text is not a file pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// The text has only white space.
    #[error("the pattern is empty")]
    Empty,
    /// `!` without a pattern.
    #[error("no pattern follows the `!`")]
    OnlyExclamation,
    /// `[` that no `]` closes.
    #[error("`[` is not closed by `]`")]
    OpenClass,
    /// `[]`, `[^]`, or a `-` without characters on both sides.
    #[error("`[…]` is empty, or has a `-` or `]` that needs a backslash before it")]
    BadClass,
    /// `[z-a]`.
    #[error("the end of a range in `[…]` is before its beginning")]
    BackwardRange,
    /// The text ends with a backslash.
    #[error(r"no character follows the `\` at the end")]
    TrailingBackslash,
    /// The text is longer than any sensible pattern.
    #[error("the pattern is longer than {} bytes", InvalidPattern::MAX_BYTES)]
    TooLong,
    /// The pattern has more special characters than the matcher can hold.
    #[error("the pattern has too many special characters")]
    TooComplex,
}

impl InvalidPattern {
    /// Maximum length of a pattern, in bytes.
    pub const MAX_BYTES: usize = 1024;
}

type PatternChars<'a> = Peekable<Chars<'a>>;

/// Compiles a cleaned pattern. The result matches a path, and any path below one that matches.
pub(super) fn compile(pattern: &str) -> Result<Regex, InvalidPattern> {
    // Maximum memory of one compiled pattern, in bytes.
    const MAX_COMPILED: usize = 1 << 20;
    let regex = format!(r"\A(?:{})(?:/|\z)", translate(pattern)?);
    RegexBuilder::new(&regex)
        .size_limit(MAX_COMPILED)
        .build()
        .map_err(|_| InvalidPattern::TooComplex)
}

fn translate(pattern: &str) -> Result<String, InvalidPattern> {
    let mut regex = String::new();
    let mut input = pattern.chars().peekable();
    while let Some(c) = input.next() {
        match c {
            '*' if input.next_if_eq(&'*').is_some() => {
                regex.push_str(double_star(pattern, regex.is_empty(), &mut input));
            }
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '[' => class(&mut input, &mut regex)?,
            '\\' => push_literal(
                &mut regex,
                input.next().ok_or(InvalidPattern::TrailingBackslash)?,
            ),
            literal => push_literal(&mut regex, literal),
        }
    }
    Ok(regex)
}

/// Translates `**/` and `**`, which stand for any number of directories, or for everything at the end of a pattern.
/// If a pattern begins with `**` directly before plain text, it matches every path that ends with the text, even in
/// the middle of a name.
fn double_star(pattern: &str, first: bool, input: &mut PatternChars<'_>) -> &'static str {
    let slash = input.next_if_eq(&'/').is_some();
    let suffix = first
        && !slash
        && pattern
            .strip_prefix("**")
            .is_some_and(|rest| !rest.contains(SPECIAL));
    if input.peek().is_none() || suffix {
        ".*"
    } else {
        "(?:.*/)?"
    }
}

/// Translates a class such as `[a-z]`, after its `[`.
fn class(input: &mut PatternChars<'_>, regex: &mut String) -> Result<(), InvalidPattern> {
    regex.push('[');
    if input.next_if_eq(&'^').is_some() {
        regex.push('^');
    }
    let mut empty = true;
    while empty || input.next_if_eq(&']').is_none() {
        let low = class_char(input)?;
        let high = if input.next_if_eq(&'-').is_some() {
            class_char(input)?
        } else {
            low
        };
        if high < low {
            return Err(InvalidPattern::BackwardRange);
        }
        push_literal(regex, low);
        regex.push('-');
        push_literal(regex, high);
        empty = false;
    }
    regex.push(']');
    Ok(())
}

fn class_char(input: &mut PatternChars<'_>) -> Result<char, InvalidPattern> {
    match input.next().ok_or(InvalidPattern::OpenClass)? {
        '-' | ']' => Err(InvalidPattern::BadClass),
        '\\' => input.next().ok_or(InvalidPattern::OpenClass),
        c => Ok(c),
    }
}

fn push_literal(regex: &mut String, c: char) {
    regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_cannot_smuggle_in_a_regular_expression() {
        assert_eq!(translate("(a|b)+.{2}^$").unwrap(), r"\(a\|b\)\+\.\{2\}\^\$");
        assert_eq!(translate("[a&&[b]").unwrap(), r"[a-a\&-\&\&-\&\[-\[b-b]");
    }

    #[test]
    fn the_worst_pattern_is_compiled_or_refused() {
        let worst = |piece: &str| {
            let pattern = piece.repeat(InvalidPattern::MAX_BYTES / piece.len());
            let answer = compile(&pattern).map(|regex| regex.is_match(&"a/b".repeat(1000)));
            format!("{piece:?}: {answer:?}")
        };
        let pieces = [
            "?",
            "*",
            "**/",
            "[^a]",
            "[\u{1}-\u{10ffff}]",
            "**",
            "*?",
            r"\*",
        ];
        insta::assert_snapshot!(pieces.map(worst).join("\n"), @r#"
        "?": Ok(false)
        "*": Ok(true)
        "**/": Ok(true)
        "[^a]": Ok(false)
        "[\u{1}-\u{10ffff}]": Ok(false)
        "**": Ok(true)
        "*?": Ok(false)
        "\\*": Ok(false)
        "#);
    }
}
