//! Signatures of the audit log.
//!
//! The need: a person who may write to the database can rewrite every row of a chain of hashes, or cut off its end.
//! The server signs with a key that is not in the database, so nobody can forge its statements. A copy of a statement
//! elsewhere shows how far the log reached.
//!
//! The algorithm is Ed25519. A statement is one line of text. The signature covers that line without the signature at
//! its end, so that every tool that knows Ed25519 can verify it.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat, Utc};
use ed25519_dalek::Signer as _;
use secrecy::zeroize::Zeroizing;

use crate::model::{Sha256Digest, text_type};
use crate::secret::Secret;

/// First words of a checkpoint, with the version of its format.
const CHECKPOINT: &str = "lockkeeper-audit-checkpoint 1";
/// First words of a statement that events were pruned.
const PRUNED: &str = "lockkeeper-audit-pruned 1";

/// A public key, as 32 bytes in base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

/// A signature, as 64 bytes in base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

/// Implements the text form of a byte array.
macro_rules! base64_text {
    ($type:ident, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&STANDARD.encode(self.0))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($type))
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let bytes = STANDARD
                    .decode(text)
                    .ok()
                    .and_then(|bytes| bytes.try_into().ok());
                bytes
                    .map(Self)
                    .ok_or_else(|| concat!("it is not ", $what, " in base64").to_owned())
            }
        }

        text_type!($type);
    };
}

base64_text!(PublicKey, "a public key of 32 bytes");
base64_text!(Signature, "a signature of 64 bytes");

impl PublicKey {
    fn verifies(&self, statement: &str, signature: &Signature) -> bool {
        let key = ed25519_dalek::VerifyingKey::from_bytes(&self.0);
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        key.is_ok_and(|key| key.verify_strict(statement.as_bytes(), &signature).is_ok())
    }
}

/// The key that the server signs with. Dropping the value wipes the key.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// Generates a new key.
    pub fn generate() -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(&Zeroizing::new(
            rand::random(),
        )))
    }

    /// Reads a key as [`Self::secret`] writes it.
    pub fn from_secret(secret: &Secret) -> Option<Self> {
        let bytes = Zeroizing::new(STANDARD.decode(secret.expose()).ok()?);
        let bytes: &[u8; 32] = bytes.as_slice().try_into().ok()?;
        Some(Self(ed25519_dalek::SigningKey::from_bytes(bytes)))
    }

    /// Returns the private key in base64.
    pub fn secret(&self) -> Secret {
        Secret::new(&Zeroizing::new(
            STANDARD.encode(Zeroizing::new(self.0.to_bytes()).as_slice()),
        ))
    }

    /// Returns the key that verifies the signatures of this one.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    fn sign(&self, statement: &str) -> Signature {
        Signature(self.0.sign(statement.as_bytes()).to_bytes())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey of {}", self.public())
    }
}

/// A signed statement that the log reached an event with a given hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Number of the event.
    pub seq: i64,
    /// Hash of the event, which covers everything before it.
    pub hash: Sha256Digest,
    /// Time of the signature, to the microsecond.
    pub signed_at: DateTime<Utc>,
    /// Public half of the key that signed the statement.
    pub key: PublicKey,
    /// Signature of the statement.
    pub signature: Signature,
}

impl Checkpoint {
    /// Signs that the log reaches an event.
    pub fn sign(key: &SigningKey, seq: i64, hash: Sha256Digest, signed_at: DateTime<Utc>) -> Self {
        let public = key.public();
        let signature = key.sign(&Self::statement(seq, &hash, signed_at, public));
        Self {
            seq,
            hash,
            signed_at,
            key: public,
            signature,
        }
    }

    /// Returns true if the named key signed exactly this statement.
    pub fn is_authentic(&self) -> bool {
        self.key.verifies(
            &Self::statement(self.seq, &self.hash, self.signed_at, self.key),
            &self.signature,
        )
    }

    fn statement(seq: i64, hash: &Sha256Digest, at: DateTime<Utc>, key: PublicKey) -> String {
        format!("{CHECKPOINT} {seq} {hash} {} {key}", time(at))
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            Self::statement(self.seq, &self.hash, self.signed_at, self.key),
            self.signature
        )
    }
}

impl FromStr for Checkpoint {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let wrong = || "it is not a checkpoint of the audit log".to_owned();
        let rest = line
            .trim_end()
            .strip_prefix(CHECKPOINT)
            .and_then(|rest| rest.strip_prefix(' '))
            .ok_or_else(wrong)?;
        let [seq, hash, at, key, signature] = rest.split(' ').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        Ok(Self {
            seq: seq.parse().map_err(|_| wrong())?,
            hash: hash.parse()?,
            signed_at: at.parse().map_err(|_| wrong())?,
            key: key.parse()?,
            signature: signature.parse()?,
        })
    }
}

/// A statement that events were removed from the beginning of the log.
#[derive(Clone, Copy, Debug)]
pub struct Pruned<'a> {
    /// Number of the last event that was removed.
    pub last_seq: i64,
    /// Hash of that event.
    pub last_hash: &'a Sha256Digest,
    /// Time of that event.
    pub last_at: DateTime<Utc>,
    /// Number of removed events.
    pub events: i64,
    /// Person or program that removed them.
    pub actor: &'a str,
    /// Time of the removal.
    pub at: DateTime<Utc>,
}

impl Pruned<'_> {
    /// Signs the statement with the key.
    pub fn sign(self, key: &SigningKey) -> Signature {
        key.sign(&self.statement(key.public()))
    }

    /// Returns true if the key signed exactly this statement.
    pub fn is_authentic(self, key: PublicKey, signature: &Signature) -> bool {
        key.verifies(&self.statement(key), signature)
    }

    fn statement(self, key: PublicKey) -> String {
        let Self {
            last_seq,
            last_hash,
            last_at,
            events,
            actor,
            at,
        } = self;
        // A name may contain spaces and line ends.
        let actor = serde_json::Value::from(actor);
        format!(
            "{PRUNED} {last_seq} {last_hash} {} {events} {} {actor} {key}",
            time(last_at),
            time(at)
        )
    }
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checkpoint() -> Checkpoint {
        Checkpoint::sign(
            &SigningKey::generate(),
            6,
            Sha256Digest::of(b"six"),
            DateTime::UNIX_EPOCH,
        )
    }

    #[test]
    fn a_checkpoint_is_a_line_that_reads_back_and_is_authentic() {
        let one = checkpoint();
        let read: Checkpoint = format!("{one}\n").parse().unwrap();
        assert_eq!(read, one);
        assert!(read.is_authentic());
        let start = format!(
            "lockkeeper-audit-checkpoint 1 6 {} 1970-01-01T00:00:00.000000Z {} ",
            one.hash, one.key
        );
        assert!(one.to_string().starts_with(&start), "{one}");
    }

    #[test]
    fn what_was_changed_or_signed_by_another_is_not_authentic() {
        let (one, other) = (checkpoint(), checkpoint());
        assert!(
            !Checkpoint {
                seq: 7,
                ..one.clone()
            }
            .is_authentic()
        );
        assert!(
            !Checkpoint {
                hash: Sha256Digest::of(b"7"),
                ..one.clone()
            }
            .is_authentic()
        );
        assert!(
            !Checkpoint {
                key: other.key,
                ..one.clone()
            }
            .is_authentic()
        );
        assert!(
            !Checkpoint {
                signature: other.signature,
                ..one
            }
            .is_authentic()
        );
    }

    #[test]
    fn a_key_reads_back_and_is_not_printed() {
        let key = SigningKey::generate();
        assert_eq!(
            SigningKey::from_secret(&key.secret()).unwrap().public(),
            key.public()
        );
        assert!(!format!("{key:?}").contains(key.secret().expose()));
        assert!(SigningKey::from_secret(&Secret::new("AAAA")).is_none());
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_panic(text in ".*") {
            drop(text.parse::<Checkpoint>());
            drop(format!("{CHECKPOINT} {text}").parse::<Checkpoint>());
        }

        #[test]
        fn who_pruned_is_part_of_what_is_signed(actor in ".*", other in ".*") {
            let (key, hash) = (SigningKey::generate(), Sha256Digest::of(b""));
            let of = |actor| Pruned {
                last_seq: 4, last_hash: &hash, last_at: DateTime::UNIX_EPOCH, events: 4, actor, at: DateTime::UNIX_EPOCH,
            };
            let signature = of(&actor).sign(&key);
            prop_assert!(of(&actor).is_authentic(key.public(), &signature));
            prop_assert_eq!(of(&other).is_authentic(key.public(), &signature), actor == other);
        }
    }
}
