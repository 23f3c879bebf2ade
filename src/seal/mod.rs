//! Encryption at rest, and (in `signing`) signatures of the audit log.
//!
//! The need: the database and each of its backups contain the credentials of other people's repositories. A person
//! with the database but without the file of `--encryption-key-file` must not be able to read them. A person who may
//! write to the database must not be able to pass the secret of one row off as that of another.
//!
//! A [`Keyring`] holds the keys of the file. The first key encrypts and all keys decrypt, so every text stays
//! readable while keys are replaced. A [`SealedText`] text carries the name of its key. A [`Binding`] says what the text
//! belongs to. The seal authenticates the binding, and a caller that opens the text has to present the same binding.
//!
//! The cipher is XChaCha20-Poly1305, with a random nonce of 192 bits for each text. No count of nonces is needed,
//! however many servers share a key.

mod file;
mod key_file;
mod name;
mod signing;

use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use secrecy::zeroize::Zeroizing;

use crate::secret::Secret;

pub use file::{InvalidKeyring, check_mode, key_line};
pub use key_file::keyring;
pub(crate) use key_file::private_text;
pub use name::{InvalidKeyName, KeyName};
pub use signing::{Checkpoint, Pruned, PublicKey, Signature, SigningKey};

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// First byte of a sealed text, so that another format can follow this one.
const FORMAT: u8 = 1;

/// Description of the place that a sealed text belongs to. Two that differ in any part are never equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding(Vec<u8>);

impl Binding {
    /// Creates a binding from parts in a fixed order: the kind of the text, and everything that must not change
    /// without it.
    pub fn new(parts: &[&str]) -> Self {
        let mut bytes = Vec::new();
        for part in parts {
            // The length in front distinguishes `ab` and `c` from `a` and `bc`.
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        Self(bytes)
    }
}

/// A text that only the holder of a key can read.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedText {
    /// Name of the key that sealed the text.
    pub key: KeyName,
    /// Format, nonce, encrypted text and authentication tag.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for SealedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({}, {} bytes)", self.key, self.bytes.len())
    }
}

/// Reason why a sealed text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The key is not in the file.
    #[error(
        "it is encrypted with the key `{0}`, which is not in the file of --encryption-key-file. Add the line of that \
         key again, below the first line"
    )]
    MissingKey(KeyName),
    /// The text does not fit the key: another key had the name, the bytes changed, or they belong to something else.
    #[error(
        "the key `{0}` cannot decrypt it: another key had that name when it was encrypted, or it was changed in the \
         database"
    )]
    Refused(KeyName),
    /// The server has no key file.
    #[error("it is encrypted with the key `{0}`, but this server has no --encryption-key-file")]
    NoKeys(KeyName),
}

/// The keys of the file. The first one encrypts.
pub struct Keyring(Vec<SealKey>);

struct SealKey {
    name: KeyName,
    /// Cipher that wipes its key when it is dropped.
    cipher: XChaCha20Poly1305,
}

impl SealKey {
    fn new(name: KeyName, key: &[u8; KEY_BYTES]) -> Self {
        Self {
            name,
            cipher: XChaCha20Poly1305::new(key.into()),
        }
    }
}

impl Keyring {
    /// Returns the name of the key that encrypts.
    #[expect(clippy::missing_panics_doc, reason = "a file without keys is refused")]
    pub fn first(&self) -> &KeyName {
        &self.0.first().expect("a file without keys is refused").name
    }

    /// Returns the names of all keys, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &KeyName> {
        self.0.iter().map(|key| &key.name)
    }

    /// Seals a text with the first key.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the cipher only fails beyond 256 GiB"
    )]
    pub fn seal(&self, text: &Secret, to: &Binding) -> SealedText {
        let key = self.0.first().expect("a file without keys is refused");
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let payload = Payload {
            msg: text.expose().as_bytes(),
            aad: &to.0,
        };
        let encrypted = key
            .cipher
            .encrypt(&XNonce::from(nonce), payload)
            .expect("the text is below 256 GiB");
        let bytes = [&[FORMAT], nonce.as_slice(), &encrypted].concat();
        SealedText {
            key: key.name.clone(),
            bytes,
        }
    }

    /// Reads a sealed text that belongs to `to`.
    pub fn open(&self, sealed: &SealedText, to: &Binding) -> Result<Secret, OpenError> {
        let key = self.0.iter().find(|key| key.name == sealed.key);
        let key = key.ok_or_else(|| OpenError::MissingKey(sealed.key.clone()))?;
        let text = open_bytes(&key.cipher, &sealed.bytes, to);
        text.ok_or_else(|| OpenError::Refused(sealed.key.clone()))
    }
}

/// Reads a sealed text with the configured keys, if any.
pub fn open(
    keys: Option<&Keyring>,
    sealed: &SealedText,
    to: &Binding,
) -> Result<Secret, OpenError> {
    keys.ok_or_else(|| OpenError::NoKeys(sealed.key.clone()))?
        .open(sealed, to)
}

fn open_bytes(cipher: &XChaCha20Poly1305, bytes: &[u8], to: &Binding) -> Option<Secret> {
    let (format, bytes) = bytes.split_first()?;
    let (nonce, encrypted) = bytes.split_first_chunk::<NONCE_BYTES>()?;
    if *format != FORMAT {
        return None;
    }
    let payload = Payload {
        msg: encrypted,
        aad: &to.0,
    };
    let text = Zeroizing::new(cipher.decrypt(&XNonce::from(*nonce), payload).ok()?);
    std::str::from_utf8(&text).ok().map(Secret::new)
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keyring")
            .field(&self.names().collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(names: &[(&str, u8)]) -> Keyring {
        Keyring(
            names
                .iter()
                .map(|(name, fill)| SealKey::new(name.parse().unwrap(), &[*fill; KEY_BYTES]))
                .collect(),
        )
    }

    fn binding() -> Binding {
        Binding::new(&["credential", "1", "https://github.com/acme/infra"])
    }

    #[test]
    fn the_first_key_seals_and_every_key_opens() {
        let sealed = keys(&[("old", 1)]).seal(&Secret::new("ghp_x"), &binding());
        assert_eq!(sealed.key.as_str(), "old");
        let both = keys(&[("new", 2), ("old", 1)]);
        let opened = both.open(&sealed, &binding()).unwrap();
        assert_eq!(opened.expose(), "ghp_x");
        assert_eq!(both.seal(&opened, &binding()).key.as_str(), "new");
    }

    #[test]
    fn the_same_text_is_never_sealed_to_the_same_bytes() {
        let (keys, text) = (keys(&[("a", 1)]), Secret::new("ghp_x"));
        assert_ne!(
            keys.seal(&text, &binding()).bytes,
            keys.seal(&text, &binding()).bytes
        );
    }

    #[test]
    fn what_cannot_be_opened_says_which_key_is_missing_or_wrong() {
        let sealed = keys(&[("2026-a", 1)]).seal(&Secret::new("ghp_x"), &binding());
        let told =
            |keys: Option<&Keyring>| open(keys, &sealed, &binding()).unwrap_err().to_string();
        insta::assert_snapshot!(told(Some(&keys(&[("b", 1)]))), @"it is encrypted with the key `2026-a`, which is not in the file of --encryption-key-file. Add the line of that key again, below the first line");
        insta::assert_snapshot!(told(Some(&keys(&[("2026-a", 2)]))), @"the key `2026-a` cannot decrypt it: another key had that name when it was encrypted, or it was changed in the database");
        insta::assert_snapshot!(told(None), @"it is encrypted with the key `2026-a`, but this server has no --encryption-key-file");
    }

    #[test]
    fn a_sealed_text_of_one_row_does_not_open_for_another() {
        let keys = keys(&[("a", 1)]);
        let sealed = keys.seal(&Secret::new("ghp_x"), &Binding::new(&["ab", "c"]));
        for parts in [
            ["a", "bc"].as_slice(),
            &["abc"],
            &["ab", "c", ""],
            &["ab", "d"],
            &[],
        ] {
            assert!(
                keys.open(&sealed, &Binding::new(parts)).is_err(),
                "{parts:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_opened_again(text in "[ -~äß€]{0,300}", fill: u8, parts in prop::collection::vec(".*", 0..4)) {
            let keys = keys(&[("a", fill)]);
            let to = Binding::new(&parts.iter().map(String::as_str).collect::<Vec<_>>());
            let text = Secret::new(&text);
            prop_assert_eq!(keys.open(&keys.seal(&text, &to), &to), Ok(text));
        }

        #[test]
        fn a_sealed_text_that_was_changed_or_cut_is_refused(at: prop::sample::Index, bit in 0_u8..8, cut: prop::sample::Index) {
            let keys = keys(&[("a", 7)]);
            let sealed = keys.seal(&Secret::new("ghp_0123456789"), &binding());
            let mut flipped = sealed.clone();
            flipped.bytes[at.index(sealed.bytes.len())] ^= 1 << bit;
            prop_assert!(keys.open(&flipped, &binding()).is_err());
            let mut short = sealed.clone();
            short.bytes.truncate(cut.index(sealed.bytes.len()));
            prop_assert!(keys.open(&short, &binding()).is_err());
        }

        #[test]
        fn nothing_here_shows_a_secret(secret in "[a-zA-Z0-9]{12,40}", fill: u8) {
            let keys = keys(&[("a", fill)]);
            let sealed = keys.seal(&Secret::new(&secret), &binding());
            let shown = format!("{keys:?} {sealed:?} {:?} {}", Secret::new(&secret), keys.open(&sealed, &Binding::new(&[])).unwrap_err());
            prop_assert!(!shown.contains(&secret), "{}", shown);
            prop_assert!(!shown.contains(&hex::encode([fill; 4])), "{}", shown);
        }
    }
}
