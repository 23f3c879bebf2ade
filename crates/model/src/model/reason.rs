//! Reasons of people for changes that affect others.

/// A reason to stop applies or to take a lock from a pull: one line of 1 to [`Self::MAX_CHARS`] characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(String);

/// Error for a text that is too long to be stored, with its number of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has {0} characters, and at most {max} are allowed", max = Reason::MAX_CHARS)]
pub struct InvalidReason(pub usize);

impl Reason {
    /// Maximum length in characters.
    pub const MAX_CHARS: usize = 300;

    /// Reads a text and joins its lines into one. A text of blanks alone is no reason.
    pub fn read(text: &str) -> Result<Option<Self>, InvalidReason> {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.chars().count() {
            0 => Ok(None),
            1..=Self::MAX_CHARS => Ok(Some(Self(line.replace(char::is_control, "\u{fffd}")))),
            chars => Err(InvalidReason(chars)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_limited_length() {
        let read = |text: &str| {
            Reason::read(text).map(|reason| reason.map(|reason| reason.as_str().to_owned()))
        };
        assert_eq!(
            read(" the outage\r\n  first\t"),
            Ok(Some("the outage first".to_owned()))
        );
        assert_eq!(
            read("a\u{1b}[31m\0b"),
            Ok(Some("a\u{fffd}[31m\u{fffd}b".to_owned()))
        );
        for blank in ["", " \n\t "] {
            assert_eq!(read(blank), Ok(None));
        }
        assert_eq!(read(&"é".repeat(300)), Ok(Some("é".repeat(300))));
        assert_eq!(read(&"é".repeat(301)), Err(InvalidReason(301)));
        assert_eq!(
            InvalidReason(301).to_string(),
            "it has 301 characters, and at most 300 are allowed"
        );
    }
}
