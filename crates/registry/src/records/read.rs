//! Reads records, line by line. Every fault names its line.

use std::fmt::Display;
use std::str::FromStr;

use lockkeeper_model::model::{Reason, is_hidden};

use super::{
    Checksums, LogAction, MAX_RECORD_BYTES, PackageFile, PackageFiles, Record, RecordChange,
    RecordMaker, RecordNotice, RecordTime, UnsignedRecord, VersionContent,
};
use crate::encoding::from_base64;
use crate::versions::VersionKey;

/// A text is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct InvalidRecord {
    /// Line with the fault, counted from 1.
    pub line: usize,
    /// The fault, in a few words.
    pub reason: String,
}

/// Maximum length of the description of a fault. The faults of some values quote them.
const MAX_REASON_CHARS: usize = 300;

/// The lines of a record that are not read yet.
struct RecordLines<'a> {
    rest: &'a str,
    /// Number of the last line that was read.
    number: usize,
}

/// Parses a record, all of it.
pub(super) fn record(bytes: &[u8]) -> Result<Record, InvalidRecord> {
    let at = |offset: usize, reason: &str| InvalidRecord {
        line: bytes[..offset].split(|byte| *byte == b'\n').count(),
        reason: reason.to_owned(),
    };
    if bytes.len() > MAX_RECORD_BYTES {
        let reason = format!("the record has more than {MAX_RECORD_BYTES} bytes");
        return Err(at(MAX_RECORD_BYTES, &reason));
    }
    let text = str::from_utf8(bytes)
        .map_err(|error| at(error.valid_up_to(), "the line is not text in UTF-8"))?;
    let mut lines = RecordLines {
        rest: text,
        number: 0,
    };

    let head = lines.line()?;
    let (action, subject) = head.split_once(' ').unwrap_or((head, ""));
    let action: LogAction = action
        .parse()
        .map_err(|_| lines.error("a record begins with `add`, `deprecate` or `delete`"))?;
    let key: VersionKey = lines.canonical(subject)?;
    let (change, (fetched, time)) = match action {
        LogAction::Add => {
            let content = lines.content(&key)?;
            (RecordChange::Add(content), lines.times()?)
        }
        LogAction::Deprecate => {
            let times = lines.times()?;
            (RecordChange::Deprecate(lines.notice(&key)?), times)
        }
        LogAction::Delete => {
            let times = lines.times()?;
            let kind = lines.value("takedown")?.parse();
            let kind =
                kind.map_err(|_| lines.error("a takedown is `legal`, `security` or `mistake`"))?;
            (RecordChange::Delete(kind, lines.notice(&key)?), times)
        }
    };
    change.check_key(&key).map_err(|error| lines.error(error))?;
    let maker = lines.value("maker")?;
    let (deployment, id) = lines.two_words(maker)?;
    let maker = RecordMaker {
        deployment: lines.canonical(deployment)?,
        id: lines.canonical(id)?,
    };
    let unsigned = UnsignedRecord {
        key,
        change,
        fetched,
        time,
        maker,
    };

    let signature = lines.value("signature")?;
    let signature = from_base64(signature)
        .ok_or_else(|| lines.error("a signature is the Base64 of 64 bytes"))?;
    if !lines.rest.is_empty() {
        lines.number += 1;
        return Err(lines.error("the record ends with its signature"));
    }
    Ok(Record {
        unsigned,
        signature,
    })
}

impl<'a> RecordLines<'a> {
    /// Describes a fault of the last line that was read.
    fn error(&self, reason: impl Display) -> InvalidRecord {
        let reason = reason.to_string();
        let shown = reason
            .chars()
            .map(|c| if is_hidden(c) { '\u{fffd}' } else { c });
        InvalidRecord {
            line: self.number,
            reason: shown.take(MAX_REASON_CHARS).collect(),
        }
    }

    /// Reads the next line, without its line feed.
    fn line(&mut self) -> Result<&'a str, InvalidRecord> {
        self.number += 1;
        let line = self.rest.split_once('\n');
        let (line, rest) = line.ok_or_else(|| self.error("a line feed is missing"))?;
        self.rest = rest;
        Ok(line)
    }

    /// Reads a line that begins with a word, and returns the rest of it.
    fn value(&mut self, word: &str) -> Result<&'a str, InvalidRecord> {
        let line = self.line()?;
        let value = line
            .strip_prefix(word)
            .and_then(|rest| rest.strip_prefix(' '));
        value.ok_or_else(|| self.error(format!("the line should begin with `{word} `")))
    }

    /// Returns true if the next line begins with a word.
    fn is_next(&self, word: &str) -> bool {
        let value = self.rest.strip_prefix(word);
        value.is_some_and(|value| value.starts_with(' '))
    }

    /// Reads a line that is a word and one value.
    fn field<T: FromStr<Err: Display> + Display>(
        &mut self,
        word: &str,
    ) -> Result<T, InvalidRecord> {
        let value = self.value(word)?;
        self.canonical(value)
    }

    /// Parses a value of the last line, which must be written as this program would write it.
    fn canonical<T: FromStr<Err: Display> + Display>(
        &self,
        text: &str,
    ) -> Result<T, InvalidRecord> {
        let value: T = text.parse().map_err(|error| self.error(error))?;
        let written = value.to_string();
        if written == text {
            Ok(value)
        } else {
            Err(self.error(format!("the value is written as `{written}`")))
        }
    }

    /// Splits two words of the last line.
    fn two_words(&self, text: &'a str) -> Result<(&'a str, &'a str), InvalidRecord> {
        text.split_once(' ')
            .ok_or_else(|| self.error("the line has too few words"))
    }

    /// Reads checksums, packages and commit of an added version.
    fn content(&mut self, key: &VersionKey) -> Result<VersionContent, InvalidRecord> {
        let checksums = match key.as_go() {
            None => Checksums::Module {
                files: self.field("files")?,
            },
            Some((path, version)) => Checksums::Go {
                zip: self.field(&format!("{path} {version}"))?,
                go_mod: self.field(&format!("{path} {version}/go.mod"))?,
            },
        };
        let mut packages = Vec::new();
        while packages.is_empty() || self.is_next("package") {
            let line = self.value("package")?;
            let (digest, rest) = self.two_words(line)?;
            let (size, name) = self.two_words(rest)?;
            let package = PackageFile {
                name: self.canonical(name)?,
                digest: self.canonical(digest)?,
                size: self.canonical(size)?,
            };
            let last: Option<&PackageFile> = packages.last();
            if last.is_some_and(|last| last.name >= package.name) {
                return Err(self.error("packages are sorted by name"));
            }
            packages.push(package);
        }
        let packages = PackageFiles::new(packages).map_err(|error| self.error(error))?;
        let commit = if self.is_next("commit") {
            Some(self.field("commit")?)
        } else {
            None
        };
        Ok(VersionContent {
            checksums,
            packages,
            commit,
        })
    }

    /// Reads the time of the commit, if the version was fetched, and that of the record.
    fn times(&mut self) -> Result<(Option<RecordTime>, RecordTime), InvalidRecord> {
        let fetched = if self.is_next("fetched") {
            Some(self.field("fetched")?)
        } else {
            None
        };
        Ok((fetched, self.field("time")?))
    }

    /// Reads reason and replacement.
    fn notice(&mut self, key: &VersionKey) -> Result<RecordNotice, InvalidRecord> {
        let text = self.value("reason")?;
        let reason = Reason::read(text)
            .map_err(|error| self.error(error))?
            .filter(|reason| reason.as_str() == text)
            .ok_or_else(|| {
                self.error("a reason is one line without control characters or spaces in excess")
            })?;
        let replacement = if self.is_next("replacement") {
            let line = self.value("replacement")?;
            Some(self.canonical(&format!("{} {line}", key.kind()))?)
        } else {
            None
        };
        Ok(RecordNotice {
            reason,
            replacement,
        })
    }
}
