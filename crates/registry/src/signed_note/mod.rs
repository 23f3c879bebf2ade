//! Texts with signatures, such as the head of a log: the notes of Go's checksum database, with keys of Ed25519.
//!
//! A note is text, an empty line, and a line for each signature with the name and the hash of its key. While a key is
//! replaced, a note carries signatures of the old and the new one, and each reader checks those whose keys it knows.
//!
//! `golang.org/x/mod/sumdb/note` is the reference. Two texts that Go reads are refused here, because nobody writes them:
//! base64 with other bits after its end, and names of keys with control characters.

mod keys;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use self::keys::{InvalidNoteKey, NoteSigner, NoteVerifier};
use self::keys::{is_key_name, shown_key};

/// Maximum number of bytes of a note. Go's client reads as many.
pub const MAX_NOTE: usize = 1_000_000;

/// Maximum number of signatures of a note, as in Go.
const MAX_SIGNATURES: usize = 100;

/// Beginning of the line of a signature.
const SIGNATURE_LINE: &str = "— ";

/// A note whose signatures of known keys are valid. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedNote {
    /// The signed text, which ends with a line.
    pub text: String,
    /// Valid signatures of known keys, in the order of the note.
    pub verified: Vec<NoteSignature>,
    /// Signatures of other keys, which say nothing.
    pub unverified: Vec<NoteSignature>,
}

/// A signature in a note, and the key that is said to have made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NoteSignature {
    /// Name of the key.
    pub name: String,
    /// First bytes of the hash of name and key.
    pub key_hash: u32,
    signature: Vec<u8>,
}

/// A message that is not a note, or not signed by a known key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The message does not have the form of a note.
    #[error("not a signed note")]
    Malformed,
    /// The text does not end with a line, or has control characters.
    #[error("the text cannot be signed as a note")]
    BadText,
    /// A signature of a known key does not fit the text.
    #[error("the signature of {0} is not valid")]
    InvalidSignature(String),
    /// Two known keys have the same name and hash, so one of them was made to deceive.
    #[error("two keys are called {0}")]
    AmbiguousKey(String),
    /// No signature is of a known key.
    #[error("no signature is of a known key")]
    Unverified,
}

/// Checks the signatures of a message and returns its text.
///
/// One valid signature of a known key is enough, but no signature of a known key may be invalid. Further signatures of
/// the same key are ignored.
pub fn open_note(message: &[u8], known: &[NoteVerifier]) -> Result<OpenedNote, NoteError> {
    if message.len() > MAX_NOTE {
        return Err(NoteError::Malformed);
    }
    let message = std::str::from_utf8(message).map_err(|_| NoteError::Malformed)?;
    let split = message.rfind("\n\n").ok_or(NoteError::Malformed)?;
    let (text, lines) = (&message[..=split], &message[split + 2..]);
    if !is_note_text(message) || lines.is_empty() {
        return Err(NoteError::Malformed);
    }
    let mut note = OpenedNote {
        text: text.to_owned(),
        verified: Vec::new(),
        unverified: Vec::new(),
    };
    for (number, line) in lines.lines().enumerate() {
        let signature = NoteSignature::parse(line).ok_or(NoteError::Malformed)?;
        if number >= MAX_SIGNATURES {
            return Err(NoteError::Malformed);
        }
        let key = shown_key(&signature.name, signature.key_hash);
        let mut keys = known.iter().filter(|known| {
            known.name() == signature.name && known.key_hash() == signature.key_hash
        });
        let Some(verifier) = keys.next() else {
            if !note.unverified.contains(&signature) {
                note.unverified.push(signature);
            }
            continue;
        };
        if keys.any(|other| other != verifier) {
            return Err(NoteError::AmbiguousKey(key));
        }
        if note
            .verified
            .iter()
            .any(|seen| seen.is_same_key(&signature))
        {
            continue;
        }
        if !verifier.verify(text.as_bytes(), &signature.signature) {
            return Err(NoteError::InvalidSignature(key));
        }
        note.verified.push(signature);
    }
    if note.verified.is_empty() {
        return Err(NoteError::Unverified);
    }
    Ok(note)
}

/// Signs a text with each of the keys and returns the note.
pub fn sign_note(text: &str, signers: &[&NoteSigner]) -> Result<String, NoteError> {
    let unsigned = OpenedNote {
        text: text.to_owned(),
        verified: Vec::new(),
        unverified: Vec::new(),
    };
    unsigned.sign(signers)
}

impl OpenedNote {
    /// Signs the note again and returns it. Its signatures stay in front of the new ones, except those of the same keys.
    pub fn sign(&self, signers: &[&NoteSigner]) -> Result<String, NoteError> {
        if !is_note_text(&self.text) {
            return Err(NoteError::BadText);
        }
        let signed: Vec<NoteSignature> = signers
            .iter()
            .map(|signer| NoteSignature {
                name: signer.name().to_owned(),
                key_hash: signer.key_hash(),
                signature: signer.sign(self.text.as_bytes()).to_vec(),
            })
            .collect();
        let kept = self.verified.iter().chain(&self.unverified);
        let kept = kept.filter(|old| !signed.iter().any(|new| new.is_same_key(old)));
        let mut note = format!("{}\n", self.text);
        for signature in kept.chain(&signed) {
            note.push_str(&signature.line());
        }
        Ok(note)
    }
}

impl NoteSignature {
    fn parse(line: &str) -> Option<Self> {
        let (name, base64) = line.strip_prefix(SIGNATURE_LINE)?.split_once(' ')?;
        let bytes = STANDARD.decode(base64).ok()?;
        let (key_hash, signature) = bytes.split_first_chunk()?;
        let is_signature = is_key_name(name) && !signature.is_empty();
        is_signature.then(|| Self {
            name: name.to_owned(),
            key_hash: u32::from_be_bytes(*key_hash),
            signature: signature.to_vec(),
        })
    }

    fn line(&self) -> String {
        let bytes = [&self.key_hash.to_be_bytes(), self.signature.as_slice()].concat();
        format!("{SIGNATURE_LINE}{} {}\n", self.name, STANDARD.encode(bytes))
    }

    fn is_same_key(&self, other: &Self) -> bool {
        self.name == other.name && self.key_hash == other.key_hash
    }
}

/// A note consists of lines without control characters.
fn is_note_text(text: &str) -> bool {
    text.ends_with('\n') && !text.contains(|c: char| c < ' ' && c != '\n')
}

#[cfg(test)]
mod tests;
