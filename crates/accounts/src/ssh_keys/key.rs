//! One line of `authorized_keys`: options, type, key and comment.

use ssh_key::PublicKey;

use super::KeyRules;
use super::options::KeyOptions;
use crate::findings::Problem;
use crate::text::{quoted, shown};

/// A key that the server accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountSshKey {
    public_key: PublicKey,
    algorithm: &'static str,
    encoded: String,
    options: KeyOptions,
}

/// Types of keys that the server accepts.
const ALGORITHMS: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

impl AccountSshKey {
    /// Parses a line. The error says why the key is not accepted.
    pub fn parse(line: &str, rules: KeyRules) -> Result<Self, Problem> {
        let error = |what: String, fix: &str| Err(Problem::error(None, what, fix));
        let line = line.trim();
        let (options, line) = split_options(line)?;
        let mut words = line.splitn(3, [' ', '\t']).map(str::trim);
        let algorithm = words.next().unwrap_or_default();
        let encoded = words.next().unwrap_or_default();
        let comment = words.next().unwrap_or_default();
        if algorithm == "ssh-dss" {
            return error("DSA keys are not accepted".to_owned(), NEW_KEY);
        }
        let Some(algorithm) = ALGORITHMS.into_iter().find(|known| *known == algorithm) else {
            let what = format!("`{}` is not a type of key", shown(algorithm));
            let fix = format!(
                "write the whole line of the `.pub` file, with one of {}, or begin a comment with `#`",
                quoted(&ALGORITHMS)
            );
            return error(what, &fix);
        };
        let Ok(mut public_key) = PublicKey::from_openssh(&format!("{algorithm} {encoded}")) else {
            return error(
                "the key cannot be decoded".to_owned(),
                "copy the whole line of the `.pub` file",
            );
        };
        public_key.set_comment(comment);
        if let Some(rsa) = public_key.key_data().rsa() {
            let bytes = rsa.n.as_positive_bytes().unwrap_or_default();
            let unused = bytes
                .first()
                .map_or(0, |byte| byte.leading_zeros() as usize);
            let bits = bytes.len() * 8 - unused;
            if bits < rules.min_rsa_bits {
                let what = format!(
                    "the RSA key has {bits} bits, fewer than {}",
                    rules.min_rsa_bits
                );
                return error(what, NEW_KEY);
            }
        }
        Ok(Self {
            public_key,
            algorithm,
            encoded: encoded.to_owned(),
            options,
        })
    }

    /// Returns the type of the key, such as `ssh-ed25519`.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// Returns the key in base64.
    pub fn encoded(&self) -> &str {
        &self.encoded
    }

    /// Returns the comment after the key.
    pub fn comment(&self) -> &str {
        self.public_key.comment()
    }

    /// Returns the options before the key.
    pub fn options(&self) -> &KeyOptions {
        &self.options
    }

    /// Returns true if both lines have the same key, with any options and comments.
    pub fn is_same(&self, other: &Self) -> bool {
        self.public_key.key_data() == other.public_key.key_data()
    }
}

const NEW_KEY: &str = "make a new one with `ssh-keygen -t ed25519`";

/// Splits a line at the first blank outside of quotes, unless it begins with the type of a key.
fn split_options(line: &str) -> Result<(KeyOptions, &str), Problem> {
    let first = line.split([' ', '\t']).next().unwrap_or_default();
    let is_type = ["ssh-", "ecdsa-", "sk-"]
        .iter()
        .any(|prefix| first.starts_with(prefix));
    if is_type || !first.contains(['=', ',', '"']) && !KeyOptions::KNOWN_FLAGS.contains(&first) {
        return Ok((KeyOptions::default(), line));
    }
    let mut is_quoted = false;
    let mut is_escaped = false;
    let end = line.find(|c: char| {
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        !is_quoted && (c == ' ' || c == '\t')
    });
    let (options, rest) = line.split_at(end.unwrap_or(line.len()));
    Ok((KeyOptions::parse(options)?, rest.trim_start()))
}
