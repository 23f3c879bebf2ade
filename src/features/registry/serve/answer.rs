//! Answers with content: entity tags, conditional requests and parts.

use std::ops::Range;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use lockkeeper_registry::dirhash::DirHash;

use crate::model::Sha256Digest;

/// Lifetime of an answer in the caches of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The content never changes. Only the cache of the client itself may keep it, because nobody could take a version
    /// down in the caches of others.
    Immutable,
    /// The content can change at any time.
    Revalidated,
}

impl Freshness {
    fn header(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Immutable => "private, max-age=31536000, immutable",
            Self::Revalidated => "private, no-cache",
        })
    }
}

/// Entity tag of content with a digest or checksum. The same bytes always have the same one, so it is a strong one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntityTag(HeaderValue);

/// Content with its entity tag, which is computed once.
#[derive(Clone, Debug)]
pub(super) struct TaggedContent {
    bytes: Bytes,
    tag: EntityTag,
}

impl TaggedContent {
    pub fn new(bytes: Bytes, tag: EntityTag) -> Self {
        Self { bytes, tag }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl From<Bytes> for TaggedContent {
    fn from(bytes: Bytes) -> Self {
        let tag = EntityTag::of_content(&bytes);
        Self { bytes, tag }
    }
}

impl EntityTag {
    pub fn of_digest(digest: &Sha256Digest) -> Self {
        let tag = format!("\"{}\"", digest.as_str());
        Self(HeaderValue::try_from(tag).expect("digits in quotes are the value of a header"))
    }

    /// Returns the entity tag of a file whose recorded checksum is that of no other file.
    pub fn of_checksum(checksum: &DirHash) -> Self {
        let tag = format!("\"{checksum}\"");
        Self(HeaderValue::try_from(tag).expect("Base64 in quotes is the value of a header"))
    }

    pub fn of_content(content: &[u8]) -> Self {
        Self::of_digest(&Sha256Digest::of(content))
    }

    /// Returns true if the client has this content already (`If-None-Match`).
    pub fn is_known(&self, headers: &HeaderMap) -> bool {
        let values = headers.get_all(header::IF_NONE_MATCH).iter();
        let mut tags = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim);
        tags.any(|tag| tag == "*" || self.0 == *tag.strip_prefix("W/").unwrap_or(tag))
    }

    fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// Answers with content in memory.
pub(super) fn content(
    headers: &HeaderMap,
    content_type: &'static str,
    freshness: Freshness,
    content: impl Into<TaggedContent>,
) -> Response {
    let TaggedContent { bytes, tag } = content.into();
    if tag.is_known(headers) {
        return not_modified(&tag, freshness);
    }
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CACHE_CONTROL, freshness.header()),
        (header::ETAG, tag.header()),
    ];
    (headers, bytes).into_response()
}

/// Answers that the client has the content already.
pub(super) fn not_modified(tag: &EntityTag, freshness: Freshness) -> Response {
    let headers = [
        (header::CACHE_CONTROL, freshness.header()),
        (header::ETAG, tag.header()),
    ];
    (StatusCode::NOT_MODIFIED, headers).into_response()
}

/// Requested part of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All bytes of the package.
    Whole,
    /// A range of its bytes.
    Bytes(Range<u64>),
    /// Bytes after the end.
    AfterEnd,
}

impl Part {
    /// Reads the requested part of `size` bytes. A header that is not one range of bytes is ignored, as is one for other
    /// content (`If-Range`).
    pub fn requested(headers: &HeaderMap, tag: &EntityTag, size: u64) -> Self {
        let Some(range) = headers.get(header::RANGE) else {
            return Self::Whole;
        };
        if let Some(only_for) = headers.get(header::IF_RANGE)
            && only_for.as_bytes() != tag.0.as_bytes()
        {
            return Self::Whole;
        }
        let range = range
            .to_str()
            .ok()
            .and_then(|text| text.strip_prefix("bytes="));
        range
            .and_then(|range| Self::parse(range.trim(), size))
            .unwrap_or(Self::Whole)
    }

    fn parse(range: &str, size: u64) -> Option<Self> {
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
            is_number.then(|| text.parse().unwrap_or(u64::MAX))
        };
        let (first, last) = range.split_once('-')?;
        let range = match (first, last) {
            ("", count) => size.saturating_sub(number(count)?)..size,
            (first, "") => number(first)?..size,
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return None;
                }
                first..last.saturating_add(1).min(size)
            }
        };
        Some(if range.start < range.end {
            Self::Bytes(range)
        } else {
            Self::AfterEnd
        })
    }
}

/// Answers with a part of a package, or with its headers alone.
pub(super) fn package(
    content_type: &'static str,
    tag: &EntityTag,
    size: u64,
    part: Option<&Range<u64>>,
    body: Body,
) -> Response {
    let length = part.map_or(size, |part| part.end - part.start);
    let mut response = immutable(content_type, tag, length, body);
    let mut set = |name: HeaderName, value: HeaderValue| {
        response.headers_mut().insert(name, value);
    };
    set(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(part) = part {
        let text = format!("bytes {}-{}/{size}", part.start, part.end - 1);
        let text = HeaderValue::from_str(&text).expect("numbers are the value of a header");
        set(header::CONTENT_RANGE, text);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

/// Answers with a body of this length that never changes, or with its headers alone.
pub(super) fn immutable(
    content_type: &'static str,
    tag: &EntityTag,
    length: u64,
    body: Body,
) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CACHE_CONTROL, Freshness::Immutable.header()),
        (header::ETAG, tag.header()),
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
    ];
    (headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::fixed_seed;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    fn text(tag: &EntityTag) -> &str {
        tag.0.to_str().unwrap()
    }

    #[test]
    fn a_client_has_content_that_it_names() {
        let tag = EntityTag::of_content(b"x");
        let other = EntityTag::of_content(b"y");
        let (own_text, other_text) = (text(&tag), text(&other));
        for (value, expected) in [
            (own_text.to_owned(), true),
            (format!("W/{own_text}"), true),
            (format!("{other_text}, {own_text}"), true),
            ("*".to_owned(), true),
            (other_text.to_owned(), false),
            (own_text.trim_matches('"').to_owned(), false),
        ] {
            let headers = with(header::IF_NONE_MATCH, &value);
            assert_eq!(tag.is_known(&headers), expected, "{value}");
        }
        assert!(!tag.is_known(&HeaderMap::new()));
    }

    #[test]
    fn one_range_is_answered_and_all_others_are_ignored() {
        let tag = EntityTag::of_content(b"x");
        let part = |value: &str| Part::requested(&with(header::RANGE, value), &tag, 100);
        for (value, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=10-19", 10..20),
            ("bytes=10-", 10..100),
            ("bytes=10-1000", 10..100),
            ("bytes=99-99", 99..100),
            ("bytes=0-99999999999999999999", 0..100),
            ("bytes=-1", 99..100),
            ("bytes=-1000", 0..100),
        ] {
            assert_eq!(part(value), Part::Bytes(expected), "{value}");
        }
        for value in [
            "bytes=100-",
            "bytes=100-200",
            "bytes=-0",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(part(value), Part::AfterEnd, "{value}");
        }
        for value in [
            "bytes=0-1,3-4",
            "bytes=2-1",
            "bytes=-",
            "bytes=",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=1",
            "lines=1-2",
            "",
        ] {
            assert_eq!(part(value), Part::Whole, "{value}");
        }
        assert_eq!(Part::requested(&HeaderMap::new(), &tag, 100), Part::Whole);
        assert_eq!(
            Part::requested(&with(header::RANGE, "bytes=0-"), &tag, 0),
            Part::AfterEnd
        );
    }

    #[test]
    fn a_range_is_only_for_the_content_that_it_names() {
        let tag = EntityTag::of_content(b"x");
        let part = |only_for: &str| {
            let mut headers = with(header::RANGE, "bytes=1-2");
            headers.insert(header::IF_RANGE, only_for.parse().unwrap());
            Part::requested(&headers, &tag, 100)
        };
        assert_eq!(part(text(&tag)), Part::Bytes(1..3));
        for other in [
            "\"x\"",
            &format!("W/{}", text(&tag)),
            "Wed, 21 Oct 2015 07:28:00 GMT",
        ] {
            assert_eq!(part(other), Part::Whole, "{other}");
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn any_range_is_within_the_content(
            range in "(bytes=)?[0-9]{0,21}-[0-9]{0,21}|[ -~]{0,30}",
            size in 0..200_u64,
        ) {
            let tag = EntityTag::of_content(b"x");
            match Part::requested(&with(header::RANGE, &range), &tag, size) {
                Part::Bytes(part) => prop_assert!(part.start < part.end && part.end <= size, "{part:?}"),
                Part::Whole | Part::AfterEnd => {}
            }
            prop_assert!(!tag.is_known(&with(header::IF_NONE_MATCH, &range)) || range.contains('*'));
        }
    }
}
