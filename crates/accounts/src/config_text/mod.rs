//! Texts in the syntax of git config files, read as `git config` reads them and edited in place.
//!
//! An edit replaces the bytes of the keys it means, so comments, unknown keys and their order stay. Sections and keys
//! are compared without case, subsections with case. `include` is a section like any other and never followed.
//!
//! `gix-config` 0.62 was compared with git 2.39. It reads `key # comment`, `one two = 3` and `key[section]`, which git
//! refuses, leaves out keys before the first section, and has no lines for values. It also writes `keyvalue` when a key
//! without `=` gets a value. So the grammar is here.
//!
//! Git before 2.45 reads a tab between two words of a value as a blank. Values are kept as newer versions read them,
//! and tabs are escaped in everything written here, which all versions read alike.

mod parser;

use std::fmt;
use std::ops::Range;

use self::parser::{EntrySpan, SectionSpan, Spans};
use crate::findings::Problem;
use crate::text::{shown, suggestion};

/// A file in the syntax of git config files, with all of its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigText {
    text: String,
    spans: Spans,
}

/// Place of a key: section, subsection and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPath<'a> {
    /// Name of the section.
    pub section: &'a str,
    /// Name of the subsection, such as a project.
    pub subsection: Option<&'a str>,
    /// Name of the key.
    pub key: &'a str,
}

/// A key and its value in a [`ConfigText`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigEntry<'a> {
    /// Section in lower case. Empty for keys before the first header.
    pub section: &'a str,
    /// Name of the subsection, if there is one.
    pub subsection: Option<&'a str>,
    /// Name of the key as it was written.
    pub key: &'a str,
    /// Value without quotes and escapes. `None` stands for a key without `=`.
    pub value: Option<&'a str>,
    /// Line of the key, counted from 1.
    pub line: usize,
}

/// The header of a section in a [`ConfigText`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigSection<'a> {
    /// Section in lower case.
    pub section: &'a str,
    /// Name of the subsection, if there is one.
    pub subsection: Option<&'a str>,
    /// Line of the header, counted from 1.
    pub line: usize,
}

/// A replacement of one part of the text.
type Splice = (Range<usize>, String);

impl<'a> KeyPath<'a> {
    /// Creates the path of a key in a section without subsection.
    pub fn new(section: &'a str, key: &'a str) -> Self {
        Self {
            section,
            subsection: None,
            key,
        }
    }

    /// Creates the path of a key in a subsection.
    pub fn within(section: &'a str, subsection: &'a str, key: &'a str) -> Self {
        Self {
            section,
            subsection: Some(subsection),
            key,
        }
    }
}

impl fmt::Display for KeyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.section)?;
        if let Some(subsection) = self.subsection {
            write!(f, "{subsection}.")?;
        }
        f.write_str(self.key)
    }
}

impl<'a> ConfigEntry<'a> {
    /// Returns true if the entry is a value of this key.
    pub fn is(&self, path: KeyPath<'_>) -> bool {
        self.section.eq_ignore_ascii_case(path.section)
            && self.subsection == path.subsection
            && self.key.eq_ignore_ascii_case(path.key)
    }

    /// Returns the value as text. A key without `=` has none.
    pub fn text(&self) -> Result<&'a str, Problem> {
        self.value.ok_or_else(|| {
            Problem::error(
                self.line,
                format!("`{}` has no value", shown(self.key)),
                format!("write `{} = value`, or remove the line", shown(self.key)),
            )
        })
    }

    /// Reads the value as git reads booleans. A key without `=` is true, and so is a number other than 0.
    pub fn boolean(&self) -> Result<bool, Problem> {
        let Some(value) = self.value else {
            return Ok(true);
        };
        match value.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => return Ok(true),
            "false" | "no" | "off" | "" => return Ok(false),
            _ => {}
        }
        plain_digits(value)
            .map(|number| number != 0)
            .ok_or_else(|| {
                Problem::error(
                    self.line,
                    format!("`{}`: `{}` is not a boolean", shown(self.key), shown(value)),
                    "write `true` or `false`",
                )
            })
    }

    /// Reads the value as an integer of plain digits. Units such as `1k` are refused.
    pub fn integer(&self) -> Result<u32, Problem> {
        let value = self.text()?;
        plain_digits(value).ok_or_else(|| {
            Problem::error(
                self.line,
                format!("`{}`: `{}` is not a number", shown(self.key), shown(value)),
                format!("write at most {} in plain digits, without a unit", u32::MAX),
            )
        })
    }
}

impl ConfigEntry<'_> {
    /// Warning about a key that no reader knows. It is kept in the file.
    pub(crate) fn unknown_key(&self, known: &[&str]) -> Problem {
        let what = format!("unknown key `{}`", shown(self.key));
        Problem::warning(self.line, what, suggestion(self.key, known))
    }

    /// Warning about a key in a section that no reader knows. It is kept in the file.
    pub(crate) fn unknown_section(&self, known: &[&str]) -> Problem {
        let (what, fix) = match (self.section, self.subsection) {
            ("", None) => (
                format!("`{}` is in no section", shown(self.key)),
                suggestion("", known),
            ),
            (section, Some(subsection)) if known.contains(&section) => (
                format!("unknown subsection `{section}.{}`", shown(subsection)),
                format!("write `[{section}]`"),
            ),
            (section, _) => (
                format!("unknown section `{}`", shown(section)),
                suggestion(section, known),
            ),
        };
        Problem::warning(self.line, what, fix)
    }
}

fn plain_digits(text: &str) -> Option<u32> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

impl ConfigText {
    /// Maximum size of a file in bytes.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// Parses a file. The error names the line that git would not read.
    pub fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        let text = utf8_file(bytes)?;
        if let Some(nul) = text.find('\0') {
            return Err(Problem::error(
                line_at(text, nul),
                "a NUL byte",
                "remove it",
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            spans: parser::parse(text)?,
        })
    }

    /// Returns the whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns all keys in the order of the text.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = ConfigEntry<'_>> {
        self.spans.entries.iter().map(|entry| {
            let section = &self.spans.sections[entry.section];
            ConfigEntry {
                section: &section.name,
                subsection: section.subsection.as_deref(),
                key: &self.text[entry.key_span.clone()],
                value: entry.value.as_deref(),
                line: entry.line,
            }
        })
    }

    /// Returns all section headers in the order of the text.
    pub fn sections(&self) -> impl Iterator<Item = ConfigSection<'_>> {
        // The first section is the part before the first header.
        let headers = self.spans.sections.iter().skip(1);
        headers.map(|header| ConfigSection {
            section: &header.name,
            subsection: header.subsection.as_deref(),
            line: header.line,
        })
    }

    /// Returns the value of a key: the last one if there are several.
    pub fn value(&self, path: KeyPath<'_>) -> Option<ConfigEntry<'_>> {
        self.entries().rfind(|entry| entry.is(path))
    }

    /// Returns all values of a key in the order of the text.
    pub fn values(&self, path: KeyPath<'_>) -> impl Iterator<Item = ConfigEntry<'_>> {
        self.entries().filter(move |entry| entry.is(path))
    }

    /// Replaces all values of a key by one.
    pub fn set(&mut self, path: KeyPath<'_>, value: &str) -> Result<(), Problem> {
        self.set_values(path, &[value])
    }

    /// Removes all values of a key. The header of the section stays.
    pub fn unset(&mut self, path: KeyPath<'_>) -> Result<(), Problem> {
        self.set_values(path, &[])
    }

    /// Adds one more value to a key, after the others.
    pub fn add(&mut self, path: KeyPath<'_>, value: &str) -> Result<(), Problem> {
        let splice = self.insertion(path, None, &[value])?;
        self.splice(vec![splice])
    }

    /// Replaces the values of a key. Values that stay keep their lines and comments, as far as their order allows.
    pub fn set_values(&mut self, path: KeyPath<'_>, values: &[&str]) -> Result<(), Problem> {
        let old = self.matching(path);
        let mut splices = Vec::new();
        let (mut rest, mut wanted) = (old.as_slice(), values);
        loop {
            // The next value that stays ends a gap, in which values are replaced, removed or added.
            let staying = wanted.iter().enumerate().find_map(|(number, value)| {
                let is_same = |entry: &EntrySpan| entry.value.as_deref() == Some(*value);
                Some((number, rest.iter().position(is_same)?))
            });
            let (values_end, entries_end) = staying.unwrap_or((wanted.len(), rest.len()));
            let (gap, next) = rest.split_at(entries_end);
            let (new, later) = wanted.split_at(values_end);
            for (entry, value) in gap.iter().zip(new) {
                check(path, value)?;
                splices.push(replacement(entry, value));
            }
            for entry in gap.iter().skip(new.len()) {
                splices.push((self.lines_of(entry), String::new()));
            }
            let added = new.get(gap.len()..).unwrap_or_default();
            if !added.is_empty() {
                splices.push(self.insertion(path, next.first(), added)?);
            }
            if staying.is_none() {
                return self.splice(splices);
            }
            (rest, wanted) = (&next[1..], &later[1..]);
        }
    }

    /// Removes all sections of this name with their keys. A comment right above the next header stays.
    pub fn remove_section(
        &mut self,
        section: &str,
        subsection: Option<&str>,
    ) -> Result<(), Problem> {
        let sections = self.spans.sections.iter().enumerate().skip(1);
        let path = KeyPath {
            section,
            subsection,
            key: "",
        };
        let matching = sections.filter(|(_, span)| is_section(span, path));
        let splices = matching
            .map(|(index, span)| {
                let start = self.line_start(span.header.start);
                let end = match self.spans.sections.get(index + 1) {
                    Some(next) => self.above_comments(index, next),
                    None => self.text.len(),
                };
                (start..end, String::new())
            })
            .collect();
        self.splice(splices)
    }

    fn matching(&self, path: KeyPath<'_>) -> Vec<EntrySpan> {
        let pairs = self.spans.entries.iter().zip(self.entries());
        pairs
            .filter(|(_, entry)| entry.is(path))
            .map(|(span, _)| span.clone())
            .collect()
    }

    fn splice(&mut self, mut splices: Vec<Splice>) -> Result<(), Problem> {
        if splices.is_empty() {
            return Ok(());
        }
        splices.sort_by_key(|(range, _)| range.start);
        let mut text = self.text.clone();
        for (range, replacement) in splices.iter().rev() {
            text.replace_range(range.clone(), replacement);
        }
        *self = Self::parse(text.as_bytes())?;
        Ok(())
    }

    /// Lines for new values, before this one or after all others.
    fn insertion(
        &self,
        path: KeyPath<'_>,
        next: Option<&EntrySpan>,
        values: &[&str],
    ) -> Result<Splice, Problem> {
        for value in values {
            check(path, value)?;
        }
        let line_break = self.line_break();
        let lines = |indent: &str| -> String {
            let lines = values.iter().map(|value| {
                let value = escaped(value);
                format!("{indent}{} = {value}{line_break}", path.key)
            });
            lines.collect()
        };
        let matches = |span: &SectionSpan| is_section(span, path);
        let section = match next {
            Some(next) => Some(next.section),
            None => self.spans.sections.iter().rposition(matches),
        };
        let Some(section) = section else {
            let name = match path.subsection {
                None => path.section.to_owned(),
                Some(subsection) => format!("{} {}", path.section, quoted_name(subsection)),
            };
            let text = format!("[{name}]{line_break}{}", lines("\t"));
            return Ok((self.text.len()..self.text.len(), self.at_end(text)));
        };
        let header_end = self.spans.sections[section].header.end;
        let rest = self.text[header_end..].split_inclusive('\n').next();
        let rest = rest.unwrap_or_default();
        // New values follow the others of their key, or all keys.
        let in_section = || {
            let entries = self.spans.entries.iter();
            entries.filter(|entry| entry.section == section)
        };
        let same_key = in_section().rfind(|entry| entry.key.eq_ignore_ascii_case(path.key));
        let (at, text) = if let Some(next) = next {
            match self.indent(next) {
                Some(indent) => (next.key_span.start - indent.len(), lines(indent)),
                None => (header_end, format!("{line_break}{}", lines("\t"))),
            }
        } else if let Some(last) = same_key.or(in_section().next_back()) {
            (last.end, lines(self.indent(last).unwrap_or("\t")))
        } else if rest.trim_start_matches([' ', '\t']).starts_with('[') {
            // Another header is in the same line.
            (header_end, format!("{line_break}{}", lines("\t")))
        } else {
            (header_end + rest.len(), lines("\t"))
        };
        let text = if at == self.text.len() {
            self.at_end(text)
        } else {
            text
        };
        Ok((at..at, text))
    }

    /// Text to add at the end of the file, which may lack its last line break.
    fn at_end(&self, added: String) -> String {
        if self.text.is_empty() || self.text.ends_with('\n') && !self.spans.ends_joined {
            return added;
        }
        // A backslash at the end would swallow the first line break.
        let needed = 1 + usize::from(self.spans.ends_joined);
        format!("{}{added}", self.line_break().repeat(needed))
    }

    fn line_break(&self) -> &'static str {
        match self.text.find('\n') {
            Some(at) if self.text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        }
    }

    /// Blanks between the start of a line and this place. `None` if something else is between.
    fn blanks_before(&self, at: usize) -> Option<&str> {
        let line = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let before = &self.text[line..at];
        before
            .chars()
            .all(|c| matches!(c, ' ' | '\t'))
            .then_some(before)
    }

    /// Start of the line of a header, or the header itself if something is before it.
    fn line_start(&self, header: usize) -> usize {
        header - self.blanks_before(header).map_or(0, str::len)
    }

    /// Blanks before a key. `None` if the header of the section is in the same line.
    fn indent(&self, entry: &EntrySpan) -> Option<&str> {
        self.blanks_before(entry.key_span.start)
    }

    /// Range to remove with an entry: its lines, or the rest of the line after a header.
    fn lines_of(&self, entry: &EntrySpan) -> Range<usize> {
        if let Some(indent) = self.indent(entry) {
            return entry.key_span.start - indent.len()..entry.end;
        }
        let line = self.text[..entry.end].trim_end_matches(['\r', '\n']);
        self.spans.sections[entry.section].header.end..line.len()
    }

    /// End of a section, before the comments right above the next header.
    fn above_comments(&self, section: usize, next: &SectionSpan) -> usize {
        let mut entries = self.spans.entries.iter();
        let last = entries.rfind(|entry| entry.section == section);
        let content = last.map_or(self.spans.sections[section].header.end, |entry| entry.end);
        let mut end = self.line_start(next.header.start).max(content);
        while let Some(line) = self.text[content..end].split_inclusive('\n').next_back() {
            let is_whole = self.text[..end - line.len()].ends_with('\n');
            if !is_whole || !line.trim_start().starts_with(['#', ';']) {
                break;
            }
            end -= line.len();
        }
        end
    }
}

impl fmt::Display for ConfigText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn is_section(span: &SectionSpan, path: KeyPath<'_>) -> bool {
    span.name.eq_ignore_ascii_case(path.section) && span.subsection.as_deref() == path.subsection
}

/// Replaces the value of an entry, and leaves the rest of the line alone.
fn replacement(entry: &EntrySpan, value: &str) -> Splice {
    let value = escaped(value);
    if entry.value.is_none() {
        let end = entry.key_span.end;
        return (end..end, format!(" = {value}"));
    }
    (entry.value_span.clone(), value)
}

/// Checks that git can read the new key and value again.
fn check(path: KeyPath<'_>, value: &str) -> Result<(), Problem> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let subsection = path.subsection.unwrap_or_default();
    if !is_name(path.section) || !is_name(path.key) || subsection.contains(char::is_control) {
        return Err(Problem::error(
            None,
            format!("`{}` is not the name of a key", shown(&path.to_string())),
            "use letters, digits and `-`, and subsections without control characters",
        ));
    }
    if value.contains('\0') {
        let what = format!("the value of `{}` has a NUL byte", shown(&path.to_string()));
        return Err(Problem::error(None, what, "remove it"));
    }
    Ok(())
}

/// Writes a value so that every version of git reads it back.
fn escaped(value: &str) -> String {
    let is_blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r');
    let needs_quotes = value.is_empty()
        || value.starts_with(is_blank)
        || value.ends_with(is_blank)
        || value.contains(['#', ';', '\r']);
    let quote = if needs_quotes { "\"" } else { "" };
    let mut text = quote.to_owned();
    for c in value.chars() {
        match c {
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '"' | '\\' => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    text + quote
}

fn quoted_name(subsection: &str) -> String {
    format!(
        "\"{}\"",
        subsection.replace('\\', "\\\\").replace('"', "\\\"")
    )
}

/// Checks the size of a file, and that it is UTF-8.
pub(crate) fn utf8_file(bytes: &[u8]) -> Result<&str, Problem> {
    if bytes.len() > ConfigText::MAX_BYTES {
        let what = format!("the file has {} bytes", bytes.len());
        let fix = format!("keep it below the limit of {} bytes", ConfigText::MAX_BYTES);
        return Err(Problem::limit(bytes.len(), what, fix));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        Problem::error(
            line_at(&valid, valid.len()),
            "the text is not UTF-8",
            "save the file as UTF-8",
        )
    })
}

fn line_at(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

#[cfg(test)]
mod tests;
