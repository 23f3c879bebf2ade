//! Passwords of user names: `bcrypt:<cost>:<base64 of 16 bytes of salt>:<base64 of 24 bytes>`.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq as _;

/// Text of a password in a note, decoded or not. It never appears in messages or logs.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredPassword(String);

/// A password as salt and hash.
#[derive(Clone, PartialEq, Eq)]
pub struct HashedPassword {
    variant: Variant,
    cost: u32,
    salt: [u8; 16],
    hash: [u8; 24],
}

/// Version of the hash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// `bcrypt`: the bytes of the password alone.
    Plain,
    /// `bcrypt0`: the bytes of the password and one NUL byte, as the original programs do.
    WithNul,
}

/// A password cannot be decoded. The message never repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the password is not `bcrypt:<cost 4 to 31>:<base64 of 16 bytes>:<base64 of 24 bytes>`")]
pub struct InvalidPassword;

impl StoredPassword {
    /// Keeps the text of a note.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text for a note. Never print it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Decodes the text into salt and hash.
    pub fn decode(&self) -> Result<HashedPassword, InvalidPassword> {
        self.0.parse()
    }
}

impl fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredPassword(…)")
    }
}

impl HashedPassword {
    /// Highest cost that [`Self::verify`] computes, about a second. Each one more doubles the time.
    pub const MAX_COST: u32 = 14;
    /// Maximum length of a password in bytes, a limit of the hash.
    pub const MAX_BYTES: usize = 72;

    /// Hashes a password. Returns `None` if the cost or the length of the password is out of bounds.
    pub fn new(password: &str, cost: u32, salt: [u8; 16]) -> Option<Self> {
        let hash = hash(Variant::Plain, password, cost, salt)?;
        Some(Self {
            variant: Variant::Plain,
            cost,
            salt,
            hash,
        })
    }

    /// Returns the cost. Above [`Self::MAX_COST`] nobody can sign in.
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Returns true if this is the password. Takes as long for a wrong one.
    pub fn verify(&self, password: &str) -> bool {
        let hash = hash(self.variant, password, self.cost, self.salt);
        hash.is_some_and(|hash| hash.ct_eq(&self.hash).into())
    }

    /// Writes the password for a note.
    pub fn to_stored(&self) -> StoredPassword {
        let variant = match self.variant {
            Variant::Plain => "bcrypt",
            Variant::WithNul => "bcrypt0",
        };
        let (salt, hash) = (STANDARD.encode(self.salt), STANDARD.encode(self.hash));
        StoredPassword(format!("{variant}:{}:{salt}:{hash}", self.cost))
    }
}

fn hash(variant: Variant, password: &str, cost: u32, salt: [u8; 16]) -> Option<[u8; 24]> {
    let mut bytes = password.as_bytes().to_vec();
    match variant {
        Variant::Plain => {}
        Variant::WithNul => bytes.push(0),
    }
    let is_usable = !password.is_empty()
        && bytes.len() <= HashedPassword::MAX_BYTES
        && (4..=HashedPassword::MAX_COST).contains(&cost);
    is_usable.then(|| bcrypt::bcrypt(cost, salt, &bytes))
}

impl fmt::Debug for HashedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashedPassword(…)")
    }
}

impl FromStr for HashedPassword {
    type Err = InvalidPassword;

    fn from_str(text: &str) -> Result<Self, InvalidPassword> {
        let parts: Vec<&str> = text.split(':').collect();
        let [variant, cost, salt, hash] = parts[..] else {
            return Err(InvalidPassword);
        };
        let variant = match variant {
            "bcrypt" => Variant::Plain,
            "bcrypt0" => Variant::WithNul,
            _ => return Err(InvalidPassword),
        };
        let number = cost.parse::<u32>().ok();
        let number = number.filter(|number| (4..32).contains(number) && number.to_string() == cost);
        let bytes = |text: &str| STANDARD.decode(text).map_err(|_| InvalidPassword);
        Ok(Self {
            variant,
            cost: number.ok_or(InvalidPassword)?,
            salt: bytes(salt)?.try_into().map_err(|_| InvalidPassword)?,
            hash: bytes(hash)?.try_into().map_err(|_| InvalidPassword)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    const STORED: &str = "bcrypt:4:LCbmSBDivK/hhGVQMfkDpA==:XcWn0pKYSVU/UJgOvhidkEtmqCp6oKB7";

    #[test]
    fn a_password_is_read_and_written_alike() {
        for text in [STORED, &STORED.replace("bcrypt:", "bcrypt0:")] {
            let decoded = StoredPassword::new(text).decode().unwrap();
            assert_eq!(decoded.to_stored().expose(), text);
            assert_eq!(decoded.cost(), 4);
            assert!(!decoded.verify("wrong"));
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_refused() {
        for (from, to) in [
            ("bcrypt", "md5"),
            (":4:", ":3:"),
            (":4:", ":32:"),
            (":4:", ":04:"),
            (":4:", ":"),
            ("LCbm", "LC"),
            ("==", ""),
            ("oKB7", "oKB7AAAA"),
            ("oKB7", "oKB"),
            ("oKB7", "oKB7:"),
        ] {
            let stored = StoredPassword::new(STORED.replacen(from, to, 1));
            assert_eq!(stored.decode(), Err(InvalidPassword), "{from} {to}");
        }
    }

    #[test]
    fn only_the_right_password_is_accepted() {
        let password = HashedPassword::new("secret", 4, [7; 16]).unwrap();
        assert!(password.verify("secret"));
        assert!(
            !password.verify("Secret") && !password.verify("") && !password.verify(&"x".repeat(73))
        );
        let with_nul: HashedPassword = password
            .to_stored()
            .expose()
            .replace("bcrypt:", "bcrypt0:")
            .parse()
            .unwrap();
        assert!(!with_nul.verify("secret"));
        assert!(HashedPassword::new("", 4, [7; 16]).is_none());
        assert!(HashedPassword::new("secret", 15, [7; 16]).is_none());
        // `$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe` is the published hash of `a` with a NUL byte.
        let salt = bcrypt::BASE_64.decode("m0CrhHm10qJ3lXRY.5zDGO").unwrap();
        let hash = hash(Variant::WithNul, "a", 6, salt.try_into().unwrap()).unwrap();
        assert_eq!(
            bcrypt::BASE_64.encode(&hash[..23]),
            "3rS2KdeeWLuGmsfGlMfOxih58VYVfxe"
        );
    }

    #[test]
    fn a_password_is_not_shown() {
        let stored = StoredPassword::new(STORED);
        let shown = format!("{stored:?} {:?} {}", stored.decode(), InvalidPassword);
        assert!(!shown.contains("XcWn0"), "{shown}");
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn no_text_makes_it_panic(text in "bcrypt0?:[0-9]{0,3}:[A-C+/=]{0,30}:[A-C=é]{0,36}|.{0,20}") {
            if let Ok(decoded) = text.parse::<HashedPassword>() {
                let stored = decoded.to_stored();
                prop_assert_eq!(stored.expose(), text);
            }
        }
    }
}
