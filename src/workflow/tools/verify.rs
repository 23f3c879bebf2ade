//! Verifies that a program is the one that its makers released, with their `OpenPGP` keys, which are part of this
//! program.
//!
//! | file | whose | fingerprint |
//! | --- | --- | --- |
//! | `keys/hashicorp.asc` | HashiCorp Security, published at hashicorp.com/security | C874 011F 0AB4 0511 0D02 1055 3436 5D94 72D7 468F |
//! | `keys/opentofu.asc` | OpenTofu, published at get.opentofu.org/opentofu.asc | E3E6 E43D 84CB 852E ADB0 051D 0C0A F313 E5FD 9F80 |
//!
//! A key is trusted because it is part of this program, so its expiry date does not count: releases that were signed
//! while it was valid stay good, and a server that is not updated does not stop on that day. OpenTofu's cosign
//! signatures are not checked: they state the same about the same file, and checking them needs a service on the
//! network.

use pgp::composed::{Deserializable, DetachedSignature, SignedPublicKey, SignedPublicSubKey};
use pgp::types::KeyDetails;

use crate::model::Distribution;

const HASHICORP: &str = include_str!("keys/hashicorp.asc");
const OPENTOFU: &str = include_str!("keys/opentofu.asc");

/// Keys that may sign programs.
#[derive(Debug)]
pub struct TrustedKeys {
    terraform: SigningKeys,
    opentofu: SigningKeys,
}

/// Error for a text that is not a key.
#[derive(Debug, thiserror::Error)]
#[error("this is not an OpenPGP public key: {0}")]
pub struct InvalidKey(#[from] pgp::errors::Error);

impl TrustedKeys {
    /// Returns the keys of the makers.
    ///
    /// # Panics
    ///
    /// Never: the keys are constants, and a test reads them.
    pub fn official() -> Self {
        Self::from_armored(HASHICORP, OPENTOFU)
            .expect("the keys in the source are keys, which a test proves")
    }

    /// Reads other keys from text: for tests, and for administrators who build programs themselves.
    pub fn from_armored(terraform: &str, opentofu: &str) -> Result<Self, InvalidKey> {
        Ok(Self {
            terraform: SigningKeys::read(terraform)?,
            opentofu: SigningKeys::read(opentofu)?,
        })
    }

    /// Checks that a maker signed these bytes. The error says why the signature is not valid.
    pub(super) fn verify(
        &self,
        maker: Distribution,
        bytes: &[u8],
        signature: &[u8],
    ) -> Result<(), String> {
        let key = match maker {
            Distribution::Terraform => &self.terraform,
            Distribution::OpenTofu => &self.opentofu,
        };
        key.verify(bytes, signature)
    }
}

/// A primary key and those of its subkeys that may sign.
#[derive(Debug)]
struct SigningKeys {
    primary: SignedPublicKey,
    signing: Vec<SignedPublicSubKey>,
}

impl SigningKeys {
    /// Reads a key. Subkeys without a valid binding signature of the primary key are left out.
    fn read(armored: &str) -> Result<Self, InvalidKey> {
        let (primary, _) = SignedPublicKey::from_string(armored)?;
        let may_sign = |part: &&SignedPublicSubKey| {
            part.signatures
                .iter()
                .any(|binding| binding.key_flags().sign())
                && part.verify_bindings(&primary.primary_key).is_ok()
        };
        let signing = primary
            .public_subkeys
            .iter()
            .filter(may_sign)
            .cloned()
            .collect();
        Ok(Self { primary, signing })
    }

    fn verify(&self, bytes: &[u8], signature: &[u8]) -> Result<(), String> {
        let signature = DetachedSignature::from_bytes(signature)
            .map_err(|_| "it is not an OpenPGP signature".to_owned())?;
        let good = signature.verify(&self.primary, bytes).is_ok()
            || self
                .signing
                .iter()
                .any(|part| signature.verify(part, bytes).is_ok());
        let key = || {
            format!(
                "it is not a signature of this file with the key {:X}",
                self.primary.fingerprint()
            )
        };
        good.then_some(()).ok_or_else(key)
    }
}

/// Returns the SHA-256 of a file in a list of checksums, in lower-case hexadecimal.
pub(super) fn checksum_of(list: &str, file: &str) -> Option<String> {
    list.lines().find_map(|line| {
        let (digest, name) = line.split_once(char::is_whitespace)?;
        // An asterisk means "read as binary".
        let name = name.trim().trim_start_matches('*');
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        (name == file && is_digest).then(|| digest.to_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_those_whose_fingerprints_the_makers_publish() {
        let keys = TrustedKeys::official();
        let shown = |key: &SigningKeys| {
            let parts: Vec<String> = key
                .signing
                .iter()
                .map(|part| format!("{:X}", part.fingerprint()))
                .collect();
            format!("{:X}: {}", key.primary.fingerprint(), parts.join(" "))
        };
        insta::assert_snapshot!(shown(&keys.terraform), @"C874011F0AB405110D02105534365D9472D7468F: B36CBA91A2C0730C435FC280B0B441097685B676 374EC75B485913604A831CC7C820C6D5CD27AB87");
        insta::assert_snapshot!(shown(&keys.opentofu), @"E3E6E43D84CB852EADB0051D0C0AF313E5FD9F80:");
        keys.terraform.primary.verify_bindings().unwrap();
        keys.opentofu.primary.verify_bindings().unwrap();
    }

    #[test]
    fn what_is_no_signature_is_not_good() {
        let keys = TrustedKeys::official();
        for bytes in [
            b"".as_slice(),
            b"x",
            b"\xc2",
            &[0xff; 300],
            HASHICORP.as_bytes(),
        ] {
            assert!(
                keys.verify(Distribution::Terraform, b"sums", bytes)
                    .is_err()
            );
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert!(TrustedKeys::from_armored("", OPENTOFU).is_err());
        assert!(TrustedKeys::from_armored(HASHICORP, &OPENTOFU[..200]).is_err());
    }

    #[test]
    fn checksums_are_found_by_the_whole_name() {
        let (a, b) = ("a".repeat(64), "B".repeat(64));
        let list = format!("{a}  x.zip\r\n{b} *y.zip\nshort  z.zip\n\nx\n");
        assert_eq!(checksum_of(&list, "x.zip"), Some(a));
        assert_eq!(checksum_of(&list, "y.zip"), Some(b.to_lowercase()));
        for absent in ["z.zip", ".zip", "x", ""] {
            assert_eq!(checksum_of(&list, absent), None, "{absent}");
        }
    }
}
