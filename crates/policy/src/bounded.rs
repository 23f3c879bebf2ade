//! Lists with limits, for readers of JSON. A list of small elements is much larger in memory than in the text, so limits apply
//! while it is read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

/// A list of at most `MAX` elements. A longer one is an error.
#[derive(Debug)]
pub(crate) struct Bounded<T, const MAX: usize>(pub(crate) Vec<T>);

/// First element of a list, if it has one. The others are not kept.
#[derive(Debug)]
pub(crate) struct FirstOf<T>(pub(crate) Option<T>);

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
}
