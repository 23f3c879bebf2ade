//! Reads private keys in the format of OpenSSH (its `PROTOCOL.key`), without using them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};

use crate::secret::Secret;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// Maximum length in bytes. An RSA key of 16384 bits takes about 13,000.
const LONGEST: usize = 32 * 1024;
/// Algorithms that forges accept. DSA is not one of them.
const ALGORITHMS: &[&str] = &[
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
];

/// Reason to refuse an SSH key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSshKey {
    /// The text is not in this format.
    #[error(
        "is not a private key of OpenSSH (`-----BEGIN OPENSSH PRIVATE KEY-----`). Create one with `ssh-keygen -t \
         ed25519`, or convert an old one with `ssh-keygen -p -f FILE`"
    )]
    Format,
    /// The text is a public key.
    #[error("is a public key. Use the private key, the file without `.pub`")]
    Public,
    /// The key is damaged.
    #[error("is damaged. Check that it is complete")]
    Damaged,
    /// A passphrase protects the key.
    #[error(
        "is protected by a passphrase, which nobody could enter. Remove it from a copy with `ssh-keygen -p -N '' -f \
         COPY`, or create a key for this purpose only"
    )]
    Passphrase,
    /// The algorithm of the key is not accepted.
    #[error("has an unsupported type. Use ed25519, ECDSA or RSA without a security key")]
    Algorithm,
    /// The text is too long.
    #[error("has more than {LONGEST} bytes")]
    Long,
}

/// Readable parts of a key.
pub(super) struct SshKey {
    pub algorithm: String,
    public: Vec<u8>,
}

impl SshKey {
    /// Returns the fingerprint as `ssh-keygen -l` shows it.
    pub fn fingerprint(&self) -> String {
        format!(
            "SHA256:{}",
            STANDARD_NO_PAD.encode(Sha256::digest(&self.public))
        )
    }
}

pub(super) fn read(key: &Secret) -> Result<SshKey, InvalidSshKey> {
    let text = key.expose();
    if text.len() > LONGEST {
        return Err(InvalidSshKey::Long);
    }
    if text.starts_with("ssh-") || text.starts_with("ecdsa-") {
        return Err(InvalidSshKey::Public);
    }
    let inner = text
        .strip_prefix(BEGIN)
        .and_then(|text| text.strip_suffix(END))
        .ok_or(InvalidSshKey::Format)?;
    let inner = Zeroizing::new(inner.split_ascii_whitespace().collect::<String>());
    let bytes = Zeroizing::new(
        STANDARD
            .decode(inner.as_bytes())
            .map_err(|_| InvalidSshKey::Damaged)?,
    );
    let body = bytes.strip_prefix(MAGIC).ok_or(InvalidSshKey::Damaged)?;
    parse(body).ok_or(InvalidSshKey::Damaged)?
}

/// Reads the parts of a key. Returns `None` if the bytes end too early.
fn parse(body: &[u8]) -> Option<Result<SshKey, InvalidSshKey>> {
    let (cipher, rest) = string(body)?;
    let (_kdf, rest) = string(rest)?;
    let (_kdf_options, rest) = string(rest)?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (public, rest) = string(rest)?;
    let (_private, rest) = string(rest)?;
    if u32::from_be_bytes(*count) != 1 || !rest.is_empty() {
        return None;
    }
    if cipher != b"none" {
        return Some(Err(InvalidSshKey::Passphrase));
    }
    let (algorithm, _) = string(public)?;
    let algorithm = ALGORITHMS
        .iter()
        .find(|known| known.as_bytes() == algorithm);
    Some(match algorithm {
        Some(algorithm) => Ok(SshKey {
            algorithm: (*algorithm).to_owned(),
            public: public.to_vec(),
        }),
        None => Err(InvalidSshKey::Algorithm),
    })
}

/// Splits off a text: a length in four bytes, and as many bytes.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(bytes: &[u8]) -> Vec<u8> {
        [
            u32::try_from(bytes.len()).unwrap().to_be_bytes().as_slice(),
            bytes,
        ]
        .concat()
    }

    /// Returns a key in the right format that opens nothing.
    pub fn made(cipher: &str, algorithm: &str) -> Secret {
        let public = [field(algorithm.as_bytes()), field(&[7; 32])].concat();
        let fields = [
            field(cipher.as_bytes()),
            field(b"none"),
            field(b""),
            vec![0, 0, 0, 1],
            field(&public),
            field(&[0; 64]),
        ];
        let text = STANDARD.encode([MAGIC.to_vec(), fields.concat()].concat());
        let lines: Vec<&str> = text
            .as_bytes()
            .chunks(70)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        Secret::new(&format!("{BEGIN}\n{}\n{END}\n", lines.join("\n")))
    }

    #[test]
    fn a_key_is_told_by_its_kind_and_fingerprint() {
        let key = read(&made("none", "ssh-ed25519")).unwrap();
        assert_eq!(key.algorithm, "ssh-ed25519");
        assert_eq!(
            key.fingerprint(),
            "SHA256:gNSIRW+2Iyiuvsdp/bgjy38bvWHw6wQm3tuoXrl3WjQ"
        );
    }

    #[test]
    fn keys_that_could_not_be_used_are_refused() {
        let rsa = Secret::new(include_str!("../../tests/it/support/app_key.pem"));
        let cut = Secret::new(&made("none", "ssh-ed25519").expose().replace("AAAA", ""));
        for (key, expected) in [
            (made("aes256-ctr", "ssh-ed25519"), InvalidSshKey::Passphrase),
            (made("none", "ssh-dss"), InvalidSshKey::Algorithm),
            (
                made("none", "sk-ssh-ed25519@openssh.com"),
                InvalidSshKey::Algorithm,
            ),
            (
                Secret::new("ssh-ed25519 AAAA me@here"),
                InvalidSshKey::Public,
            ),
            (Secret::new(""), InvalidSshKey::Format),
            (rsa, InvalidSshKey::Format),
            (cut, InvalidSshKey::Damaged),
            (
                Secret::new(&format!("{BEGIN}\n!\n{END}")),
                InvalidSshKey::Damaged,
            ),
            (Secret::new(&"x".repeat(LONGEST + 1)), InvalidSshKey::Long),
        ] {
            assert_eq!(read(&key).map(|key| key.algorithm), Err(expected));
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_inside_is_an_answer(bytes: Vec<u8>) {
            let text = STANDARD.encode([MAGIC, &bytes].concat());
            let answer = read(&Secret::new(&format!("{BEGIN}\n{text}\n{END}"))).map(|key| key.algorithm);
            prop_assert!(!matches!(answer, Err(InvalidSshKey::Format)));
        }
    }
}
