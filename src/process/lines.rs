//! Splits a stream of bytes into lines that can be stored and shown.

/// Splitter of output into lines. `\n` ends a line, with the `\r` before it, and a line of more than `max` bytes
/// becomes several. A `\r` elsewhere stays in the line. A terminal would print the following text over the preceding
/// one, and a pull request could hide text that way. Bytes that are not UTF-8, and NUL, which PostgreSQL cannot
/// store, are replaced.
pub(super) struct LineSplitter {
    line: Vec<u8>,
    max: usize,
}

impl LineSplitter {
    pub(super) fn new(max: usize) -> Self {
        Self {
            line: Vec::new(),
            max,
        }
    }

    /// Takes the next bytes and returns the lines they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut done = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' => done.push(self.end_line()),
                other => self.push_byte(other, &mut done),
            }
        }
        done
    }

    /// Returns the remaining text when the stream ends without a newline.
    pub(super) fn finish(mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.end_line())
    }

    fn push_byte(&mut self, byte: u8, done: &mut Vec<String>) {
        if self.line.len() >= self.max {
            let rest = self
                .line
                .split_off(self.line.len() - unfinished(&self.line));
            done.push(text(&self.line));
            self.line = rest;
        }
        self.line.push(byte);
    }

    fn end_line(&mut self) -> String {
        let end = self
            .line
            .iter()
            .rposition(|byte| *byte != b'\r')
            .map_or(0, |last| last + 1);
        let line = text(&self.line[..end]);
        self.line.clear();
        line
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{FFFD}")
}

/// Returns the number of bytes at the end that begin a character whose rest has not arrived yet.
fn unfinished(bytes: &[u8]) -> usize {
    let lead = bytes
        .iter()
        .rev()
        .take(3)
        .position(|byte| byte & 0b1100_0000 != 0b1000_0000);
    lead.map_or(0, |back| {
        let width = match bytes[bytes.len() - 1 - back] {
            0xF0.. => 4,
            0xE0.. => 3,
            0xC0.. => 2,
            _ => 1,
        };
        if width > back + 1 { back + 1 } else { 0 }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(max: usize, chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = LineSplitter::new(max);
        let mut all: Vec<String> = chunks.iter().flat_map(|chunk| lines.push(chunk)).collect();
        all.extend(lines.finish());
        all
    }

    #[test]
    fn lines_end_where_a_terminal_would_end_them() {
        let cases: &[(&[u8], &[&str])] = &[
            (b"a\nb\n", &["a", "b"]),
            (b"a\n\nb", &["a", "", "b"]),
            (b"a\r\nb\r\r\n", &["a", "b"]),
            (b" 10%\r 50%\r100%\n", &[" 10%\r 50%\r100%"]),
            (b"50%\r", &["50%"]),
            (b"a\0\xFFb\n", &["a\u{FFFD}\u{FFFD}b"]),
            (b"", &[]),
        ];
        for (bytes, expected) in cases {
            assert_eq!(lines(100, &[bytes]), *expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_long_line_is_split_between_characters() {
        assert_eq!(lines(4, &[b"abcdefgh\n"]), ["abcd", "efgh"]);
        assert_eq!(lines(4, &["abcäö€\n".as_bytes()]), ["abc", "äö", "€"]);
        assert_eq!(lines(4, &["😀😀".as_bytes()]), ["😀", "😀"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_the_bytes_arrive(text in "[a-zä€😀\n]{0,60}", at in 0usize..200, max in 4usize..20) {
            let at = at.min(text.len());
            let whole = lines(max, &[text.as_bytes()]);
            prop_assert_eq!(&whole, &lines(max, &[&text.as_bytes()[..at], &text.as_bytes()[at..]]));
            prop_assert_eq!(whole.concat(), text.replace('\n', ""));
            prop_assert!(whole.iter().all(|line| line.len() <= max));
        }
    }
}
