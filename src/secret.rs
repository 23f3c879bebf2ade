//! Values that must never be printed: tokens, webhook secrets, passwords, private keys.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// A secret text. `Debug` shows only that there is one; there is no `Display` and no serialisation.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Wraps a text; surrounding white space (the newline at the end of a token file) is dropped.
    pub fn new(text: &str) -> Self {
        Self(SecretString::from(text.trim().to_owned()))
    }

    /// Gives the text to the one place that has to send it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Whether nothing is left after trimming.
    pub fn is_empty(&self) -> bool {
        self.expose().is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl PartialEq for Secret {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        use subtle::ConstantTimeEq;
        self.expose().as_bytes().ct_eq(other.expose().as_bytes()).into()
    }
}

impl Eq for Secret {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new("ghp_abc\n")), "Secret(…)");
        assert_eq!(Secret::new(" ghp_abc\n").expose(), "ghp_abc");
    }
}
