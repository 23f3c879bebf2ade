//! Whether a text is a value of a kind at all, for flags that nothing reads yet: a wrong word should not wait to be
//! found until the flag does something.

use super::reader::{one_of, parse_switch};
use super::setting::Kind;

/// What is wrong with the text, and what to write; `None`: it is a value of that kind.
pub(super) fn malformed(kind: Kind, text: &str) -> Option<(String, String)> {
    match kind {
        Kind::Switch if parse_switch(text).is_none() => Some((
            format!("`{text}` is neither yes nor no"),
            "write `true` or `false`".to_owned(),
        )),
        Kind::Number(min, max)
            if !text
                .parse()
                .is_ok_and(|number: u64| (min..=max).contains(&number)) =>
        {
            Some((
                format!("`{text}` is not a number in the allowed range"),
                format!("write a whole number from {min} to {max}"),
            ))
        }
        Kind::Choice(words) if !words.iter().any(|word| word.eq_ignore_ascii_case(text)) => Some((
            format!("`{text}` is not one of the choices"),
            format!("choose {}", one_of(words)),
        )),
        Kind::Text
        | Kind::Secret
        | Kind::Secrets
        | Kind::List
        | Kind::Switch
        | Kind::Number(..)
        | Kind::Duration
        | Kind::Size
        | Kind::Path
        | Kind::Choice(_) => None,
    }
}
