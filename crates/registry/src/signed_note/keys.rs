//! Keys of notes, in the text forms of Go: `<name>+<hash>+<base64>` and `PRIVATE+KEY+<name>+<hash>+<base64>`.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

use crate::encoding::{base64, from_base64};

/// First byte of a key, which stands for Ed25519. Go has no other algorithm for notes.
const ED25519: u8 = 1;

/// Maximum number of bytes of the name of a key.
const MAX_NAME: usize = 1000;

/// A text that is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNoteKey {
    /// The parts of a key are missing or not encoded as they should be.
    #[error("not a key of the form `<name>+<hash>+<base64>`")]
    Malformed,
    /// The name is empty or long, or has spaces, control characters or `+`.
    #[error("the name of a key has neither spaces nor `+`")]
    BadName,
    /// The key is of another algorithm.
    #[error("the key is not one of Ed25519")]
    UnknownAlgorithm,
    /// The hash is that of another name or key.
    #[error("the hash in the key does not fit its name and bytes")]
    WrongHash,
}

/// Public key that verifies notes. The text form is what clients configure, such as `GOSUMDB` of Go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteVerifier {
    name: String,
    key_hash: u32,
    key: VerifyingKey,
}

/// Secret key that signs notes. It is never shown, except by [`secret_text`](Self::secret_text).
#[derive(Clone)]
pub struct NoteSigner {
    verifier: NoteVerifier,
    key: SigningKey,
}

impl NoteVerifier {
    fn new(name: &str, key: VerifyingKey) -> Result<Self, InvalidNoteKey> {
        if !is_key_name(name) {
            return Err(InvalidNoteKey::BadName);
        }
        let mut hash = Sha256::new();
        hash.update(name);
        hash.update([b'\n', ED25519]);
        hash.update(key.as_bytes());
        let [a, b, c, d, ..]: [u8; 32] = hash.finalize().into();
        Ok(Self {
            name: name.to_owned(),
            key_hash: u32::from_be_bytes([a, b, c, d]),
            key,
        })
    }

    /// Returns the name of the key, which is that of the log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the first bytes of the hash of name and key, by which a signature names its key.
    pub fn key_hash(&self) -> u32 {
        self.key_hash
    }

    /// Returns true if the signature is one of this text.
    pub fn verify(&self, text: &[u8], signature: &[u8]) -> bool {
        // A weak key would accept one signature for many texts. Go does not check that, but its keys are its own.
        Signature::from_slice(signature)
            .is_ok_and(|signature| self.key.verify_strict(text, &signature).is_ok())
    }
}

impl fmt::Display for NoteVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = encode_key(self.key.as_bytes());
        write!(f, "{}+{key}", shown_key(&self.name, self.key_hash))
    }
}

impl FromStr for NoteVerifier {
    type Err = InvalidNoteKey;

    fn from_str(text: &str) -> Result<Self, InvalidNoteKey> {
        let (name, key_hash, key) = parse_key(text)?;
        let key = VerifyingKey::from_bytes(&key).map_err(|_| InvalidNoteKey::Malformed)?;
        let verifier = Self::new(name, key)?;
        if verifier.key_hash != key_hash {
            return Err(InvalidNoteKey::WrongHash);
        }
        Ok(verifier)
    }
}

impl NoteSigner {
    /// Makes the key of a random seed.
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, InvalidNoteKey> {
        let key = SigningKey::from_bytes(seed);
        let verifier = NoteVerifier::new(name, key.verifying_key())?;
        Ok(Self { verifier, key })
    }

    /// Parses the text form of a secret key.
    pub fn parse(text: &str) -> Result<Self, InvalidNoteKey> {
        let text = text
            .strip_prefix("PRIVATE+KEY+")
            .ok_or(InvalidNoteKey::Malformed)?;
        let (name, key_hash, seed) = parse_key(text)?;
        let signer = Self::from_seed(name, &seed)?;
        // The hash is that of the public key, so a mistyped secret does not become another key.
        if signer.key_hash() != key_hash {
            return Err(InvalidNoteKey::WrongHash);
        }
        Ok(signer)
    }

    /// Returns the text form with the secret, for encryption at rest.
    pub fn secret_text(&self) -> String {
        let key = shown_key(self.name(), self.key_hash());
        format!("PRIVATE+KEY+{key}+{}", encode_key(self.key.as_bytes()))
    }

    /// Returns the public key.
    pub fn verifier(&self) -> &NoteVerifier {
        &self.verifier
    }

    /// Returns the name of the key.
    pub fn name(&self) -> &str {
        self.verifier.name()
    }

    /// Returns the first bytes of the hash of name and public key.
    pub fn key_hash(&self) -> u32 {
        self.verifier.key_hash()
    }

    /// Signs a text, such as that of a note or a record.
    pub fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.key.sign(text).to_bytes()
    }
}

impl fmt::Debug for NoteSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = shown_key(self.name(), self.key_hash());
        f.debug_tuple("NoteSigner").field(&key).finish()
    }
}

/// Splits the text form of a key into its name, its hash, and the 32 bytes after the algorithm.
fn parse_key(text: &str) -> Result<(&str, u32, [u8; 32]), InvalidNoteKey> {
    let mut parts = text.splitn(3, '+');
    let mut part = || parts.next().ok_or(InvalidNoteKey::Malformed);
    let (name, key_hash, key) = (part()?, part()?, part()?);
    if !is_key_name(name) {
        return Err(InvalidNoteKey::BadName);
    }
    if key_hash.len() != 8 || !key_hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(InvalidNoteKey::Malformed);
    }
    let key_hash = u32::from_str_radix(key_hash, 16).map_err(|_| InvalidNoteKey::Malformed)?;
    let [algorithm, key @ ..]: [u8; 33] = from_base64(key).ok_or(InvalidNoteKey::Malformed)?;
    if algorithm != ED25519 {
        return Err(InvalidNoteKey::UnknownAlgorithm);
    }
    Ok((name, key_hash, key))
}

fn encode_key(key: &[u8; 32]) -> String {
    base64(&[[ED25519].as_slice(), key].concat())
}

/// Formats name and hash of a key, which name it without its bytes.
pub(super) fn shown_key(name: &str, key_hash: u32) -> String {
    format!("{name}+{key_hash:08x}")
}

/// Returns true for names that can be told apart from the rest of a line.
pub(super) fn is_key_name(name: &str) -> bool {
    let is_separator = |c: char| c == '+' || c < ' ' || c.is_whitespace();
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains(is_separator)
}
