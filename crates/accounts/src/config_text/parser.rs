//! The grammar of git config files, as git's own reader applies it.

use std::ops::Range;

use crate::findings::Problem;
use crate::text::shown;

/// A section header with its place in the text. The part before the first header is a section with an empty range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SectionSpan {
    pub(super) name: String,
    pub(super) subsection: Option<String>,
    pub(super) header: Range<usize>,
    pub(super) line: usize,
}

/// A key with its value and their places in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntrySpan {
    /// Index of the section.
    pub(super) section: usize,
    /// Name in lower case.
    pub(super) key: String,
    /// `None` stands for a key without `=`, which means true.
    pub(super) value: Option<String>,
    pub(super) line: usize,
    pub(super) key_span: Range<usize>,
    /// The raw value without blanks and comments around it. Empty if there is no value.
    pub(super) value_span: Range<usize>,
    /// End of the line, after its line break.
    pub(super) end: usize,
}

/// Sections and keys in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans {
    pub(super) sections: Vec<SectionSpan>,
    pub(super) entries: Vec<EntrySpan>,
    /// True if the text ends with a backslash that would join the next line to the last value.
    pub(super) ends_joined: bool,
}

/// Position in the text. Reads CRLF as a line feed, and the end of the text as one more.
struct Cursor<'a> {
    text: &'a str,
    pos: usize,
    line: usize,
    /// Line of the byte that was read last.
    last_line: usize,
    at_end: bool,
}

impl Cursor<'_> {
    fn next(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        self.last_line = self.line;
        let Some(&byte) = bytes.get(self.pos) else {
            self.at_end = true;
            return b'\n';
        };
        let is_crlf = byte == b'\r' && bytes.get(self.pos + 1) == Some(&b'\n');
        self.pos += if is_crlf { 2 } else { 1 };
        if is_crlf || byte == b'\n' {
            self.line += 1;
            return b'\n';
        }
        byte
    }

    /// Start of the byte that was read last, which must not have been a line feed.
    fn last_pos(&self) -> usize {
        self.pos - usize::from(!self.at_end)
    }

    fn error(&self, what: &str, fix: &str) -> Problem {
        Problem::error(self.last_line, what, fix)
    }
}

/// Git's idea of a blank has neither vertical tabs nor form feeds.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Parses a text that has no NUL bytes.
pub(super) fn parse(text: &str) -> Result<Spans, Problem> {
    let start = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let mut cursor = Cursor {
        text,
        pos: start,
        line: 1,
        last_line: 1,
        at_end: false,
    };
    let mut spans = Spans {
        sections: vec![SectionSpan {
            name: String::new(),
            subsection: None,
            header: start..start,
            line: 1,
        }],
        entries: Vec::new(),
        ends_joined: false,
    };
    loop {
        let byte = cursor.next();
        if cursor.at_end {
            return Ok(spans);
        }
        match byte {
            b'#' | b';' => while cursor.next() != b'\n' {},
            b'[' => {
                let header = header(&mut cursor)?;
                spans.sections.push(header);
            }
            byte if is_blank(byte) => {}
            byte if byte.is_ascii_alphabetic() => {
                let section = spans.sections.len() - 1;
                let (entry, ends_joined) = entry(&mut cursor, section)?;
                spans.entries.push(entry);
                spans.ends_joined = ends_joined;
            }
            _ => {
                let line = text[cursor.last_pos()..].lines().next();
                return Err(cursor.error(
                    &format!("`{}` is not a key", shown(line.unwrap_or_default())),
                    "write `key = value`, and begin comments with `#`",
                ));
            }
        }
    }
}

/// Parses a header after its opening bracket.
fn header(cursor: &mut Cursor<'_>) -> Result<SectionSpan, Problem> {
    const FIX: &str = "write `[section]` or `[section \"name\"]` in one line";
    let start = cursor.last_pos();
    let line = cursor.line;
    // A dot separates section and subsection, quoted or not, so `[a.b "c"]` is the subsection `b.c`.
    let mut name = Vec::new();
    loop {
        match cursor.next() {
            b']' if !name.is_empty() => break,
            byte if is_key_byte(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
            mut byte if is_blank(byte) => {
                while byte != b'\n' && is_blank(byte) {
                    byte = cursor.next();
                }
                if byte != b'"' {
                    return Err(cursor.error("invalid section header", FIX));
                }
                name.push(b'.');
                quoted_subsection(cursor, &mut name)?;
                if cursor.next() != b']' {
                    return Err(cursor.error("no `]` after the name of a section", FIX));
                }
                break;
            }
            _ => return Err(cursor.error("invalid section header", FIX)),
        }
    }
    let name = utf8(name);
    let (name, subsection) = match name.split_once('.') {
        Some((name, subsection)) => (name.to_owned(), Some(subsection.to_owned())),
        None => (name, None),
    };
    Ok(SectionSpan {
        name,
        subsection,
        header: start..cursor.pos,
        line,
    })
}

fn quoted_subsection(cursor: &mut Cursor<'_>, name: &mut Vec<u8>) -> Result<(), Problem> {
    loop {
        let mut byte = cursor.next();
        if byte == b'"' {
            return Ok(());
        }
        if byte == b'\\' {
            byte = cursor.next();
        }
        if byte == b'\n' {
            return Err(cursor.error(
                "the name of a section does not end in its line",
                "close the name with a double quote",
            ));
        }
        name.push(byte);
    }
}

/// Parses a key after its first letter. Also returns true if the text ends with a joining backslash.
fn entry(cursor: &mut Cursor<'_>, section: usize) -> Result<(EntrySpan, bool), Problem> {
    let line = cursor.line;
    let start = cursor.last_pos();
    let mut byte = cursor.next();
    while is_key_byte(byte) {
        byte = cursor.next();
    }
    let key_end = if byte == b'\n' {
        start
            + cursor.text[start..]
                .find(['\r', '\n'])
                .unwrap_or(cursor.pos - start)
    } else {
        cursor.last_pos()
    };
    while byte == b' ' || byte == b'\t' {
        byte = cursor.next();
    }
    let mut entry = EntrySpan {
        section,
        key: cursor.text[start..key_end].to_ascii_lowercase(),
        value: None,
        line,
        key_span: start..key_end,
        value_span: key_end..key_end,
        end: cursor.pos,
    };
    let mut ends_joined = false;
    match byte {
        b'\n' => {}
        b'=' => {
            let value;
            (value, entry.value_span, ends_joined) = value_after_equals(cursor)?;
            entry.value = Some(value);
            entry.end = cursor.pos;
        }
        _ => {
            return Err(cursor.error(
                &format!("no `=` after `{}`", shown(&cursor.text[start..key_end])),
                "write `key = value`",
            ));
        }
    }
    Ok((entry, ends_joined))
}

fn value_after_equals(cursor: &mut Cursor<'_>) -> Result<(String, Range<usize>, bool), Problem> {
    let mut value = Vec::new();
    // Blanks count only if something follows them.
    let mut blanks = Vec::new();
    let mut span: Option<Range<usize>> = None;
    let after_equals = cursor.pos;
    let (mut is_quoted, mut is_joined) = (false, false);
    loop {
        let byte = cursor.next();
        if byte == b'\n' {
            if is_quoted {
                return Err(cursor.error(
                    "a double quote is not closed in its line",
                    "close it, or write `\\\"` for the character itself",
                ));
            }
            break;
        }
        if is_blank(byte) && !is_quoted {
            if !value.is_empty() {
                blanks.push(byte);
            }
            is_joined = false;
            continue;
        }
        if !is_quoted && matches!(byte, b'#' | b';') {
            is_joined = false;
            while cursor.next() != b'\n' {}
            break;
        }
        let start = span.map_or(cursor.last_pos(), |span| span.start);
        value.append(&mut blanks);
        is_joined = false;
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' => match cursor.next() {
                b'\n' => is_joined = true,
                b't' => value.push(b'\t'),
                b'b' => value.push(8),
                b'n' => value.push(b'\n'),
                byte @ (b'\\' | b'"') => value.push(byte),
                _ => {
                    return Err(cursor.error(
                        "unknown escape in a value",
                        "write `\\\\` for a backslash; only `\\n`, `\\t`, `\\b` and `\\\"` are known besides",
                    ));
                }
            },
            byte => value.push(byte),
        }
        span = Some(start..cursor.pos);
    }
    // The end of the text ends a joined line as well.
    let ends_joined = is_joined && cursor.at_end;
    Ok((
        utf8(value),
        span.unwrap_or(after_equals..after_equals),
        ends_joined,
    ))
}

/// Only ASCII bytes were left out of a text or replaced, so the rest is still UTF-8.
fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("only whole characters were removed")
}
