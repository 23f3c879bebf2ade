//! Checks the values of flags that nothing reads yet, so that people notice a wrong value before the flag has an
//! effect.

use super::reader::{one_of, parse_switch};
use super::setting::ValueKind;

/// Returns the mistake and its correction, or `None` if the text is a valid value of the kind.
pub(super) fn malformed(kind: ValueKind, text: &str) -> Option<(String, String)> {
    match kind {
        ValueKind::Switch if parse_switch(text).is_none() => Some((
            format!("`{text}` is not `true` or `false`"),
            "write `true` or `false`".to_owned(),
        )),
        ValueKind::Number(min, max)
            if !text
                .parse()
                .is_ok_and(|number: u64| (min..=max).contains(&number)) =>
        {
            Some((
                format!("`{text}` is not a number in the allowed range"),
                format!("write a whole number from {min} to {max}"),
            ))
        }
        ValueKind::Choice(words) if !words.iter().any(|word| word.eq_ignore_ascii_case(text)) => {
            Some((
                format!("`{text}` is not one of the choices"),
                format!("choose {}", one_of(words)),
            ))
        }
        ValueKind::Text
        | ValueKind::Secret
        | ValueKind::Secrets
        | ValueKind::List
        | ValueKind::Switch
        | ValueKind::Number(..)
        | ValueKind::Duration
        | ValueKind::Size
        | ValueKind::Path
        | ValueKind::Choice(_) => None,
    }
}
