//! Checks tokens and the RSA keys of GitHub Apps.

use octocrab::jsonwebtoken::{Algorithm, EncodingKey, Header, encode};

use crate::secret::Secret;

/// Minimum length of a token. Shorter ones could be guessed, and their fingerprint would help with that.
const SHORTEST: usize = 16;
const LONGEST: usize = 4096;
/// Maximum length of an RSA key in bytes. The largest RSA keys in use have 16384 bits.
const LONGEST_KEY: usize = 32 * 1024;

/// Checks a token. The error is the reason to refuse it.
pub(super) fn check(token: &Secret) -> Result<(), &'static str> {
    let text = token.expose();
    if text.is_empty() {
        return Err("is empty");
    }
    if !text.bytes().all(|c| c.is_ascii_graphic()) {
        return Err("has invalid characters");
    }
    if text.len() < SHORTEST {
        return Err("is shorter than 16 characters. Check that it is complete");
    }
    if text.len() > LONGEST {
        return Err("is longer than 4096 characters");
    }
    Ok(())
}

/// Signs something with the key, as each request for a token of the installation will.
pub(super) fn check_rsa(key: &Secret) -> Result<(), String> {
    let text = key.expose();
    if text.len() > LONGEST_KEY {
        return Err(format!("it has more than {LONGEST_KEY} bytes"));
    }
    let key = EncodingKey::from_rsa_pem(text.as_bytes()).map_err(|error| error.to_string())?;
    let signed = encode(&Header::new(Algorithm::RS256), &serde_json::json!({}), &key);
    signed.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_token_has_bounds() {
        let told = |length| check(&Secret::new(&"x".repeat(length)));
        assert_eq!([told(16), told(4096)], [Ok(()), Ok(())]);
        assert!(told(15).is_err() && told(4097).is_err());
    }

    #[test]
    fn a_key_that_cannot_sign_is_refused() {
        let key = include_str!("../../tests/it/support/app_key.pem");
        assert_eq!(check_rsa(&Secret::new(key)), Ok(()));
        let middle = key.len() / 2;
        let damaged = format!("{}{}", &key[..middle], &key[middle + 64..]);
        for text in [
            "",
            "x",
            damaged.as_str(),
            include_str!("../../tests/it/support/app_key.pub.pem"),
        ] {
            assert!(
                check_rsa(&Secret::new(text)).is_err(),
                "{} bytes",
                text.len()
            );
        }
        assert_eq!(
            check_rsa(&Secret::new(&"x".repeat(LONGEST_KEY + 1))).unwrap_err(),
            "it has more than 32768 bytes"
        );
    }
}
