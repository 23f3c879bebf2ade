//! Lists with limits, for readers of JSON. A list of small elements is much larger in memory than in the text, so limits apply
//! while it is read.

use std::fmt;
use std::marker::PhantomData;

use lockkeeper_model::model::Sha256Digest;
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

/// A list of at most `MAX` elements. A longer one is an error.
#[derive(Debug)]
pub(crate) struct Bounded<T, const MAX: usize>(pub(crate) Vec<T>);

/// First element of a list, if it has one. The others are not kept.
#[derive(Debug)]
pub(crate) struct FirstOf<T>(pub(crate) Option<T>);

/// First element of a list, with a digest of the others.
#[derive(Debug)]
pub(crate) struct FirstWithDigest<T> {
    pub(crate) first: Option<T>,
    /// `None` if there are no others.
    pub(crate) others: Option<Sha256Digest>,
}

/// Adds a value to the digest of the values before it.
pub(crate) fn add_to_digest<T: Serialize + ?Sized>(digest: &mut Option<Sha256Digest>, value: &T) {
    let before = digest.as_ref().map(Sha256Digest::as_str);
    let text = serde_json::to_string(&(before, value)).expect("texts and numbers are always JSON");
    *digest = Some(Sha256Digest::of(text.as_bytes()));
}

impl<T, const MAX: usize> Default for Bounded<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedVisitor::<T, MAX>(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FirstOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FirstVisitor::<T>(PhantomData))
    }
}

impl<'de, T: Deserialize<'de> + Serialize> Deserialize<'de> for FirstWithDigest<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(DigestVisitor::<T>(PhantomData))
    }
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            if elements.len() == MAX {
                return Err(A::Error::custom(format_args!(
                    "a list has more than {MAX} elements"
                )));
            }
            elements.push(element);
        }
        Ok(Bounded(elements))
    }
}

struct FirstVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FirstVisitor<T> {
    type Value = FirstOf<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let first = list.next_element()?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FirstOf(first))
    }
}

struct DigestVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Serialize> Visitor<'de> for DigestVisitor<T> {
    type Value = FirstWithDigest<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let first = list.next_element()?;
        let mut others = None;
        while let Some(other) = list.next_element::<T>()? {
            add_to_digest(&mut others, &other);
        }
        Ok(FirstWithDigest { first, others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_lists_are_errors() {
        let read = |text: &str| serde_json::from_str::<Bounded<u8, 2>>(text).map(|list| list.0);
        assert_eq!(read("[]").unwrap(), Vec::<u8>::new());
        assert_eq!(read("[1, 2]").unwrap(), [1, 2]);
        assert!(
            read("[1, 2, 3]")
                .unwrap_err()
                .to_string()
                .contains("more than 2")
        );
        assert!(read("{}").is_err());
    }

    #[test]
    fn only_the_first_element_is_kept() {
        let read = |text: &str| serde_json::from_str::<FirstOf<u8>>(text).map(|list| list.0);
        assert_eq!(read("[]").unwrap(), None);
        assert_eq!(read("[1, \"x\", {}]").unwrap(), Some(1));
        assert!(read("[1, ").is_err());
    }

    #[test]
    fn the_others_have_a_digest() {
        let read = |text: &str| serde_json::from_str::<FirstWithDigest<u8>>(text).unwrap();
        assert_eq!(read("[]").first, None);
        assert_eq!(read("[1]").first, Some(1));
        let digests: Vec<_> = ["[1]", "[1, 2]", "[1, 3]", "[1, 2, 3]", "[1, 3, 2]"]
            .into_iter()
            .map(|text| read(text).others)
            .collect();
        assert_eq!(digests[0], None);
        for (n, digest) in digests.iter().enumerate() {
            assert!(!digests[..n].contains(digest), "{n}");
        }
    }
}
