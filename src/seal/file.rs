//! Reads the key file: one line per key, with `NAME:` and 32 bytes in base64. Empty lines and lines that begin with
//! `#` are ignored. No error repeats the contents.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::zeroize::Zeroizing;

use super::{InvalidKeyName, KEY_BYTES, KeyName, Keyring, SealKey};
use crate::secret::Secret;

/// Maximum number of keys in a file.
const MAX_KEYS: usize = 64;

/// Reason to refuse a key file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeyring {
    /// One line has a fault.
    #[error("line {line}: {reason}")]
    Line {
        /// Number of the line, counted from 1.
        line: usize,
        /// Fault of the line.
        reason: LineFault,
    },
    /// The file has no key.
    #[error("it contains no key. `lockkeeper credentials keygen` prints a line for it")]
    Empty,
    /// Other users may read the file.
    #[error(
        "users other than its owner may read or change it (its mode is {mode:04o}). Run `chmod 600` on it, and \
         replace its keys if somebody may have read them"
    )]
    Open {
        /// Permission bits of the file.
        mode: u32,
    },
}

/// Fault of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The line has no colon.
    #[error(
        "the `:` between the name of a key and the key is missing; expected `NAME:` and 32 bytes in base64"
    )]
    NoColon,
    /// The name of the key is invalid.
    #[error(transparent)]
    Name(#[from] InvalidKeyName),
    /// The key is not base64.
    #[error("the key is not base64 (with `=` at the end)")]
    NotBase64,
    /// The key has the wrong length.
    #[error("the key has {0} bytes, not 32")]
    Length(usize),
    /// All bytes of the key are the same.
    #[error("the key is not random: every byte of it is the same")]
    NotRandom,
    /// Another line has the same name.
    #[error("the name `{name}` is already in line {first}")]
    NameTwice {
        /// Name that occurs twice.
        name: KeyName,
        /// Number of the earlier line.
        first: usize,
    },
    /// Another line has the same key.
    #[error("it is the same key as in line {first}. Remove one of the two lines")]
    KeyTwice {
        /// Number of the earlier line.
        first: usize,
    },
    /// The file has too many keys.
    #[error("there are more than {MAX_KEYS} keys. Remove those that encrypt nothing any more")]
    TooMany,
}

struct KeyLine {
    at: usize,
    name: KeyName,
    key: Zeroizing<[u8; KEY_BYTES]>,
}

impl Keyring {
    /// Reads the text of a key file.
    pub fn parse(text: &str) -> Result<Self, InvalidKeyring> {
        let mut lines: Vec<KeyLine> = Vec::new();
        for (at, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line = parse_line(at, text).and_then(|line| unlike(&lines, line));
            lines.push(line.map_err(|reason| InvalidKeyring::Line { line: at, reason })?);
        }
        if lines.is_empty() {
            return Err(InvalidKeyring::Empty);
        }
        Ok(Self(
            lines
                .into_iter()
                .map(|line| SealKey::new(line.name, &line.key))
                .collect(),
        ))
    }
}

fn parse_line(at: usize, text: &str) -> Result<KeyLine, LineFault> {
    let (name, key) = text.split_once(':').ok_or(LineFault::NoColon)?;
    let name = name.trim().parse()?;
    let bytes = Zeroizing::new(
        STANDARD
            .decode(key.trim())
            .map_err(|_| LineFault::NotBase64)?,
    );
    let key: [u8; KEY_BYTES] = bytes
        .as_slice()
        .try_into()
        .map_err(|_| LineFault::Length(bytes.len()))?;
    if key.iter().all(|byte| *byte == key[0]) {
        return Err(LineFault::NotRandom);
    }
    Ok(KeyLine {
        at,
        name,
        key: Zeroizing::new(key),
    })
}

fn unlike(lines: &[KeyLine], new: KeyLine) -> Result<KeyLine, LineFault> {
    if lines.len() >= MAX_KEYS {
        return Err(LineFault::TooMany);
    }
    if let Some(same) = lines.iter().find(|line| line.name == new.name) {
        return Err(LineFault::NameTwice {
            name: new.name,
            first: same.at,
        });
    }
    match lines.iter().find(|line| *line.key == *new.key) {
        Some(same) => Err(LineFault::KeyTwice { first: same.at }),
        None => Ok(new),
    }
}

/// Checks that a file with these permission bits is hidden from other users. Its group may read it, because mounted
/// secrets reach the account of a container that way.
pub fn check_mode(mode: u32) -> Result<(), InvalidKeyring> {
    const OTHERS: [u32; 2] = [0o030, 0o007];
    let mode = mode & 0o777;
    if OTHERS.iter().all(|bit| mode & bit == 0) {
        Ok(())
    } else {
        Err(InvalidKeyring::Open { mode })
    }
}

/// Returns the line of a key, for the file.
pub fn key_line(name: &KeyName, key: &[u8; KEY_BYTES]) -> Secret {
    let encoded = Zeroizing::new(STANDARD.encode(key));
    Secret::new(&Zeroizing::new(format!("{name}:{}", *encoded)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(start: u8) -> [u8; KEY_BYTES] {
        std::array::from_fn(|at| start.wrapping_add(u8::try_from(at).unwrap()))
    }

    fn line(name: &str, start: u8) -> String {
        key_line(&name.parse().unwrap(), &key(start))
            .expose()
            .to_owned()
    }

    #[test]
    fn the_keys_stand_in_the_order_of_the_file() {
        let text = format!(
            "# rotated in November\n\n {} \r\n{}\n",
            line("2026-11", 1),
            line("2025", 2)
        );
        assert_eq!(
            format!("{:?}", Keyring::parse(&text).unwrap()),
            r#"Keyring([KeyName("2026-11"), KeyName("2025")])"#
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_key() {
        let many = (0..=64)
            .map(|n| line(&format!("k{n}"), n))
            .collect::<Vec<_>>()
            .join("\n");
        let short = format!("a:{}", STANDARD.encode([3; 16]));
        let two = |other: &str| format!("{}\n\n{other}", line("a", 1));
        for (text, expected) in [
            (
                String::new(),
                "it contains no key. `lockkeeper credentials keygen` prints a line for it",
            ),
            (
                "# nothing\n".to_owned(),
                "it contains no key. `lockkeeper credentials keygen` prints a line for it",
            ),
            (
                "\nc2VjcmV0".to_owned(),
                "line 2: the `:` between the name of a key and the key is missing; expected `NAME:` and 32 bytes in \
                 base64",
            ),
            (
                "c2Vj cmV0:a".to_owned(),
                "line 1: the name of a key must have 1 to 64 letters, digits, dots, hyphens and underscores, as in \
                 `2026-11`",
            ),
            (
                "a:c2Vjcm!V0".to_owned(),
                "line 1: the key is not base64 (with `=` at the end)",
            ),
            (short, "line 1: the key has 16 bytes, not 32"),
            (
                line("a", 1)[..20].to_owned() + "==",
                "line 1: the key has 13 bytes, not 32",
            ),
            (
                format!("a:{}", STANDARD.encode([0; 32])),
                "line 1: the key is not random: every byte of it is the same",
            ),
            (
                two(&line("a", 2)),
                "line 3: the name `a` is already in line 1",
            ),
            (
                two(&line("b", 1)),
                "line 3: it is the same key as in line 1. Remove one of the two lines",
            ),
            (
                many,
                "line 65: there are more than 64 keys. Remove those that encrypt nothing any more",
            ),
        ] {
            let told = Keyring::parse(&text).unwrap_err().to_string();
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        for mode in [0o100_600, 0o400, 0o640, 0o440, 0o700] {
            assert_eq!(check_mode(mode), Ok(()), "{mode:o}");
        }
        for mode in [0o100_644, 0o604, 0o660, 0o602, 0o601, 0o650, 0o777] {
            assert!(check_mode(mode).is_err(), "{mode:o}");
        }
        insta::assert_snapshot!(check_mode(0o100_644).unwrap_err(), @"users other than its owner may read or change it (its mode is 0644). Run `chmod 600` on it, and replace its keys if somebody may have read them");
    }
}
