//! Reads the headers that identify a delivery.

use axum::http::HeaderMap;

use crate::forges::DeliveryHeader;

/// Header with the identifier of a delivery.
pub const DELIVERY_ID: &str = "X-GitHub-Delivery";
/// Header with the name of the event, such as `pull_request` or `issue_comment`.
pub const EVENT: &str = "X-GitHub-Event";

/// Maximum length of a delivery identifier; GitHub sends 36 characters.
const MAX_ID: usize = 128;
/// Maximum length of an event name; GitHub's longest has about 40 characters.
const MAX_EVENT: usize = 100;

/// Maximum length of a host name (RFC 1035), in messages.
const MAX_HOST: usize = 253;

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

/// Reads `X-GitHub-Delivery` and `X-GitHub-Event`. Returns `None` if both are missing, because then GitHub has not sent
/// the delivery.
pub(super) fn delivery(headers: &HeaderMap) -> Option<Result<DeliveryHeader, BadHeader>> {
    let is_ours = headers.contains_key(DELIVERY_ID) || headers.contains_key(EVENT);
    is_ours.then(|| {
        let id = word(headers, DELIVERY_ID, MAX_ID)?;
        let event = word(headers, EVENT, MAX_EVENT)?;
        Ok(DeliveryHeader { id, event })
    })
}

/// Returns the host that sent a delivery, in the words of the sender. An Enterprise Server names itself, and github.com
/// does not.
pub(super) fn host(headers: &HeaderMap) -> String {
    let named = headers.get("X-GitHub-Enterprise-Host");
    let named = named.map(|value| String::from_utf8_lossy(value.as_bytes()));
    named
        .as_deref()
        .unwrap_or("github.com")
        .to_ascii_lowercase()
}

/// Formats the name of a host that is not known: the letters of host names only, and not more than a name has.
pub(super) fn shown(host: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':');
    let mut letters = host.chars();
    let start = letters.by_ref().take(MAX_HOST);
    let mut shown: String = start.map(|c| if plain(c) { c } else { '?' }).collect();
    if letters.next().is_some() {
        shown.push('…');
    }
    shown
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
        headers.insert(DELIVERY_ID, id.parse().unwrap());
        headers.insert(EVENT, event.parse().unwrap());
        headers
    }

    #[test]
    fn a_delivery_has_an_identifier_and_an_event() {
        let read = delivery(&headers(
            "72d3162e-cc78-11e3-81ab-4c9367dc0958",
            "issue_comment",
        ))
        .unwrap()
        .unwrap();
        assert_eq!(
            (read.id.as_str(), read.event.as_str()),
            ("72d3162e-cc78-11e3-81ab-4c9367dc0958", "issue_comment")
        );
    }

    #[test]
    fn missing_and_odd_headers_are_named() {
        for (dropped, kept) in [(DELIVERY_ID, EVENT), (EVENT, DELIVERY_ID)] {
            let mut headers = headers("1", "push");
            headers.remove(dropped);
            assert_eq!(
                delivery(&headers),
                Some(Err(BadHeader::Missing(dropped))),
                "only {kept}"
            );
        }
        for id in ["", "a b", "a\tb", &"x".repeat(MAX_ID + 1)] {
            assert_eq!(
                delivery(&headers(id, "push")),
                Some(Err(BadHeader::Malformed(DELIVERY_ID))),
                "{id:?}"
            );
        }
        let long = "x".repeat(MAX_EVENT + 1);
        assert_eq!(
            delivery(&headers("1", &long)),
            Some(Err(BadHeader::Malformed(EVENT)))
        );
    }

    #[test]
    fn the_host_is_compared_as_sent_and_shown_without_odd_characters() {
        let host_of = |value: Option<&[u8]>| {
            let mut headers = headers("1", "push");
            if let Some(value) = value {
                let value = axum::http::HeaderValue::from_bytes(value).unwrap();
                headers.insert("X-GitHub-Enterprise-Host", value);
            }
            shown(&host(&headers))
        };
        assert_eq!(host_of(None), "github.com");
        assert_eq!(
            host_of(Some(b"Code.Example.com:8443")),
            "code.example.com:8443"
        );
        assert_eq!(host_of(Some(b"a`b\xff <c>")), "a?b???c?");
        let long = host_of(Some(&[b'a'; 300]));
        assert_eq!(long, format!("{}…", "a".repeat(MAX_HOST)));
    }

    #[test]
    fn a_delivery_without_these_headers_is_of_another_forge() {
        let mut headers = HeaderMap::new();
        headers.insert("X-Gitlab-Event", "Note Hook".parse().unwrap());
        assert_eq!(delivery(&headers), None);
    }
}
