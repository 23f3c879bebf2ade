//! Reads configuration files as UTF-8 text. An error names the line with the first invalid byte.

use std::io::{self, Read};

/// A file is not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not UTF-8; save the file as UTF-8")]
pub struct NotUtf8 {
    /// Line of the first invalid byte, counted from 1.
    line: usize,
}

impl From<NotUtf8> for io::Error {
    fn from(error: NotUtf8) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Decodes the complete content of a file.
pub fn text_of(bytes: Vec<u8>) -> Result<String, NotUtf8> {
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        NotUtf8 {
            line: before.split(|byte| *byte == b'\n').count(),
        }
    })
}

/// Reads a text of up to `most` bytes. Of a longer text, returns a part that is longer than `most` bytes, so that the
/// caller sees that it is too large.
pub fn read_text(from: impl Read, most: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        // The cut can be inside a character.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    text_of(bytes).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: &[u8], most: usize) -> String {
        read_text(bytes, most).map_or_else(
            |error| format!("error: {error}"),
            |text| format!("{} bytes", text.len()),
        )
    }

    #[test]
    fn the_line_of_what_is_no_text_is_told() {
        for (bytes, expected) in [
            (&b""[..], "0 bytes"),
            ("version: 3 # é\n".as_bytes(), "16 bytes"),
            (
                b"\xff\xfev",
                "error: line 1 is not UTF-8; save the file as UTF-8",
            ),
            (
                b"a: 1\n# caf\xe9\n",
                "error: line 2 is not UTF-8; save the file as UTF-8",
            ),
            (
                b"a: 1\r\nb: 2\r\n\xe9",
                "error: line 3 is not UTF-8; save the file as UTF-8",
            ),
            (
                b"a: 1\n\xc3",
                "error: line 2 is not UTF-8; save the file as UTF-8",
            ),
        ] {
            assert_eq!(told(bytes, 100), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_text_that_is_too_large_is_longer_than_allowed() {
        assert_eq!(told(b"abcdef", 6), "6 bytes");
        assert_eq!(told(b"abcdefgh", 6), "7 bytes");
        assert_eq!(
            told("aaaéé".as_bytes(), 3),
            "6 bytes",
            "half of a character is shown as another one"
        );
    }
}
