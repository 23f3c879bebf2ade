//! Base64 of fields with a fixed number of bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Encodes bytes with padding, as Go does.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes exactly `N` bytes. Every value has one encoding.
pub(crate) fn from_base64<const N: usize>(text: &str) -> Option<[u8; N]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}
