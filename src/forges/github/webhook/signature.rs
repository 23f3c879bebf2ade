//! Checks that the sender of a delivery knows the webhook secret.

use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::forges::{SenderCheck, VerifiedSender, WebhookError};
use crate::secret::Secret;

/// Header with the signature GitHub recommends.
pub const SIGNATURE: &str = "x-hub-signature-256";
/// Header with the SHA-1 signature that GitHub still sends beside it.
const OUTDATED_SIGNATURE: &str = "x-hub-signature";

/// Reason why a delivery is not accepted as one from GitHub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSignature {
    /// No secret is configured for the comparison; with an empty secret everybody could sign.
    #[error(
        "no webhook secret is configured, so signatures cannot be checked. Set one here and in the settings of the \
         webhook"
    )]
    NoSecret,
    /// The webhook has no secret on GitHub's side.
    #[error(
        "the header X-Hub-Signature-256 is missing. Set the same secret in the settings of the webhook on GitHub"
    )]
    Missing,
    /// A proxy dropped the better header, or the sender is not GitHub.
    #[error("only the outdated X-Hub-Signature (SHA-1) was sent; X-Hub-Signature-256 is required")]
    OnlySha1,
    /// The header is not `sha256=` and 64 hexadecimal digits, or was sent twice.
    #[error("the header X-Hub-Signature-256 is not `sha256=` followed by 64 hexadecimal digits")]
    Malformed,
    /// The sender has another secret, or the body was changed in transit.
    #[error(
        "the signature does not match the body: the secrets on both sides differ, or a proxy changed the body"
    )]
    Mismatch,
}

/// Check of `X-Hub-Signature-256`: HMAC-SHA256 over the raw body, compared in constant time. The header is read
/// before the body, and the body is hashed as it arrives. Any of the secrets may match, so that a secret can be
/// rotated without losing deliveries. Empty secrets are ignored.
pub struct SignatureCheck {
    claimed: [u8; 32],
    macs: Vec<Hmac<Sha256>>,
}

impl SignatureCheck {
    /// Reads the header. A delivery without a well-formed header is refused before its body is read.
    pub fn begin(headers: &HeaderMap, secrets: &[Secret]) -> Result<Self, BadSignature> {
        let macs: Vec<_> = secrets
            .iter()
            .filter(|secret| !secret.is_empty())
            .map(mac)
            .collect();
        if macs.is_empty() {
            return Err(BadSignature::NoSecret);
        }
        Ok(Self {
            claimed: signature(headers)?,
            macs,
        })
    }

    /// Compares the signature after the whole body was hashed.
    fn compare(self) -> Result<(), BadSignature> {
        let Self { claimed, macs } = self;
        if macs
            .into_iter()
            .any(|mac| mac.verify_slice(&claimed).is_ok())
        {
            return Ok(());
        }
        Err(BadSignature::Mismatch)
    }
}

impl SenderCheck for SignatureCheck {
    fn update(&mut self, bytes: &[u8]) {
        for mac in &mut self.macs {
            mac.update(bytes);
        }
    }

    fn finish(self: Box<Self>) -> Result<VerifiedSender, WebhookError> {
        self.compare()?;
        Ok(VerifiedSender::checked())
    }
}

fn signature(headers: &HeaderMap) -> Result<[u8; 32], BadSignature> {
    let mut values = headers.get_all(SIGNATURE).iter();
    let value = values.next().ok_or_else(|| nothing_sent(headers))?;
    if values.next().is_some() {
        return Err(BadSignature::Malformed);
    }
    let digits = value
        .as_bytes()
        .strip_prefix(b"sha256=")
        .ok_or(BadSignature::Malformed)?;
    let mut bytes = [0; 32];
    hex::decode_to_slice(digits, &mut bytes).map_err(|_| BadSignature::Malformed)?;
    Ok(bytes)
}

fn nothing_sent(headers: &HeaderMap) -> BadSignature {
    if headers.contains_key(OUTDATED_SIGNATURE) {
        BadSignature::OnlySha1
    } else {
        BadSignature::Missing
    }
}

/// Signs a body as GitHub does, and returns the value of `X-Hub-Signature-256`.
pub fn sign(secret: &Secret, body: &[u8]) -> String {
    let mut mac = mac(secret);
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

fn mac(secret: &Secret) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())
        .expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    /// The values are from GitHub's documentation: "Validating webhook deliveries", section "Testing the webhook
    /// payload validation".
    const SECRET: &str = "It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const SIGNED: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn secrets(texts: &[&str]) -> Vec<Secret> {
        texts.iter().map(|text| Secret::new(text)).collect()
    }

    /// Verifies a body that arrives in two pieces.
    fn verify(headers: &HeaderMap, body: &[u8], secrets: &[Secret]) -> Result<(), BadSignature> {
        let mut check = SignatureCheck::begin(headers, secrets)?;
        let (first, rest) = body.split_at(body.len() / 2);
        check.update(first);
        check.update(rest);
        check.compare()
    }

    #[test]
    fn the_example_of_the_documentation_is_accepted() {
        assert_eq!(sign(&Secret::new(SECRET), BODY), SIGNED);
        assert_eq!(
            verify(&headers(&[(SIGNATURE, SIGNED)]), BODY, &secrets(&[SECRET])),
            Ok(())
        );
        let upper = SIGNED.to_uppercase().replace("SHA256", "sha256");
        assert_eq!(
            verify(&headers(&[(SIGNATURE, &upper)]), BODY, &secrets(&[SECRET])),
            Ok(())
        );
    }

    #[test]
    fn any_secret_may_match_while_secrets_are_rotated() {
        assert_eq!(
            verify(
                &headers(&[(SIGNATURE, SIGNED)]),
                BODY,
                &secrets(&["new", "", SECRET])
            ),
            Ok(())
        );
        assert_eq!(
            verify(&headers(&[(SIGNATURE, SIGNED)]), BODY, &secrets(&["new"])),
            Err(BadSignature::Mismatch)
        );
    }

    #[test]
    fn a_changed_body_is_refused() {
        let changed = verify(
            &headers(&[(SIGNATURE, SIGNED)]),
            b"Hello, World?",
            &secrets(&[SECRET]),
        );
        assert_eq!(changed, Err(BadSignature::Mismatch));
    }

    #[test]
    fn a_missing_signature_is_named_and_sha1_alone_is_not_enough() {
        assert_eq!(
            verify(&headers(&[]), BODY, &secrets(&[SECRET])),
            Err(BadSignature::Missing)
        );
        let sha1 = headers(&[(
            OUTDATED_SIGNATURE,
            "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59",
        )]);
        assert_eq!(
            verify(&sha1, BODY, &secrets(&[SECRET])),
            Err(BadSignature::OnlySha1)
        );
    }

    #[test]
    fn a_malformed_signature_is_refused() {
        for value in [
            "",
            "sha256=",
            "sha256=zz",
            &SIGNED[7..],
            &SIGNED[..70],
            "sha1=757107ea",
            &format!("{SIGNED}00"),
        ] {
            let refused = verify(&headers(&[(SIGNATURE, value)]), BODY, &secrets(&[SECRET]));
            assert_eq!(refused, Err(BadSignature::Malformed), "{value}");
        }
        let mut twice = headers(&[(SIGNATURE, SIGNED)]);
        twice.append(SIGNATURE, SIGNED.parse().unwrap());
        assert_eq!(
            verify(&twice, BODY, &secrets(&[SECRET])),
            Err(BadSignature::Malformed)
        );
    }

    #[test]
    fn without_a_secret_nobody_is_believed() {
        // HMAC with an empty key is well defined, so an empty secret would accept every sender.
        for none in [secrets(&[]), secrets(&["", " "])] {
            assert_eq!(
                verify(&headers(&[(SIGNATURE, SIGNED)]), BODY, &none),
                Err(BadSignature::NoSecret)
            );
        }
    }

    proptest! {
        #[test]
        fn arbitrary_headers_and_bodies_never_panic_and_never_pass(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..3),
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut headers = HeaderMap::new();
            for value in values.iter().filter_map(|value| HeaderValue::from_bytes(value).ok()) {
                headers.append(SIGNATURE, value);
            }
            prop_assert!(verify(&headers, &body, &secrets(&[SECRET])).is_err());
        }

        #[test]
        fn what_was_signed_passes_and_one_other_byte_does_not(
            body in prop::collection::vec(any::<u8>(), 1..200), at in any::<prop::sample::Index>(), secret in "[!-~]{1,80}",
        ) {
            let headers = headers(&[(SIGNATURE, &sign(&Secret::new(&secret), &body))]);
            prop_assert_eq!(verify(&headers, &body, &secrets(&[&secret])), Ok(()));
            let mut other = body.clone();
            other[at.index(body.len())] ^= 1;
            prop_assert_eq!(verify(&headers, &other, &secrets(&[&secret])), Err(BadSignature::Mismatch));
        }
    }
}
