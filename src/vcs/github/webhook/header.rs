//! Reads the headers that identify a delivery.

use axum::http::HeaderMap;

/// Maximum length of a delivery identifier; GitHub sends 36 characters.
const MAX_ID: usize = 128;
/// Maximum length of an event name; GitHub's longest has about 40 characters.
const MAX_EVENT: usize = 100;

/// Headers of a delivery, which are read before its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryHeader {
    /// Identifier from GitHub (`X-GitHub-Delivery`); a redelivery carries the same one (P2).
    pub id: String,
    /// Name of the event (`X-GitHub-Event`), such as `pull_request` or `issue_comment`.
    pub event: String,
}

/// Reason why the headers are not those of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// A header is missing that GitHub always sends.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// A header has a value that GitHub does not send.
    #[error("the header {0} is empty or too long, or has characters that GitHub does not use")]
    Malformed(&'static str),
}

/// Reads `X-GitHub-Delivery` and `X-GitHub-Event`.
pub fn delivery(headers: &HeaderMap) -> Result<DeliveryHeader, BadHeader> {
    let id = word(headers, "X-GitHub-Delivery", MAX_ID)?;
    let event = word(headers, "X-GitHub-Event", MAX_EVENT)?;
    Ok(DeliveryHeader { id, event })
}

fn word(headers: &HeaderMap, name: &'static str, max: usize) -> Result<String, BadHeader> {
    let value = headers.get(name).ok_or(BadHeader::Missing(name))?;
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let text = value.to_str().unwrap_or_default();
    if text.is_empty() || text.len() > max || !text.bytes().all(plain) {
        return Err(BadHeader::Malformed(name));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(id: &str, event: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("X-GitHub-Delivery", id.parse().unwrap());
        headers.insert("X-GitHub-Event", event.parse().unwrap());
        headers
    }

    #[test]
    fn a_delivery_has_an_identifier_and_an_event() {
        let read = delivery(&headers(
            "72d3162e-cc78-11e3-81ab-4c9367dc0958",
            "issue_comment",
        ))
        .unwrap();
        assert_eq!(
            (read.id.as_str(), read.event.as_str()),
            ("72d3162e-cc78-11e3-81ab-4c9367dc0958", "issue_comment")
        );
    }

    #[test]
    fn missing_and_odd_headers_are_named() {
        assert_eq!(
            delivery(&HeaderMap::new()),
            Err(BadHeader::Missing("X-GitHub-Delivery"))
        );
        for id in ["", "a b", "a\tb", &"x".repeat(MAX_ID + 1)] {
            assert_eq!(
                delivery(&headers(id, "push")),
                Err(BadHeader::Malformed("X-GitHub-Delivery")),
                "{id:?}"
            );
        }
        let long = "x".repeat(MAX_EVENT + 1);
        assert_eq!(
            delivery(&headers("1", &long)),
            Err(BadHeader::Malformed("X-GitHub-Event"))
        );
    }
}
