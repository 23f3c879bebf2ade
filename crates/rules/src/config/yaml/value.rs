//! Types of values, each with its shape for the documentation and its reader.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::keys::KeyShape;
use super::node::{Located, YamlNode, YamlValue};
use super::reader::FileReader;

/// A type whose values have one shape in a file.
pub(in crate::config) trait Shaped {
    /// Shape for the JSON Schema and the documentation.
    const SHAPE: KeyShape;
}

/// A type that is read from a value in the same way everywhere.
pub(in crate::config) trait FromYaml: Shaped + Sized {
    /// Reads a value. Reports a value that is wrong.
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self>;
}

/// A type whose values are words of a fixed list.
pub(in crate::config) trait Vocabulary: FromStr {
    /// Returns the words that a file may have.
    fn words() -> Vec<&'static str>;
}

/// Returns the spellings of an enum, for [`Vocabulary::words`].
pub(in crate::config) fn words<T: Copy>(
    all: &[T],
    spelling: fn(T) -> &'static str,
) -> Vec<&'static str> {
    all.iter().map(|value| spelling(*value)).collect()
}

/// A value in messages: that of a key, or an item of its list. `Display` returns `` `key` `` or ``an item of `key` ``.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct ValueName {
    /// The key that has the value or the list.
    pub(in crate::config) key: &'static str,
    is_item: bool,
}

/// A single value, or a list of them.
pub(in crate::config) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// The short form of a value, which is only a text, or its long form.
pub(in crate::config) enum TextOr<M> {
    Text(Located),
    Mapping(M),
}

impl ValueName {
    pub(in crate::config) fn of(key: &'static str) -> Self {
        Self {
            key,
            is_item: false,
        }
    }

    /// Returns the name of an item of the list.
    pub(in crate::config) fn item(self) -> Self {
        Self {
            is_item: true,
            ..self
        }
    }

    /// Returns the phrase for words: ``a value of `key` `` or ``an item of `key` ``.
    pub(in crate::config) fn of_word(self) -> String {
        if self.is_item {
            self.to_string()
        } else {
            format!("a value of {self}")
        }
    }
}

impl fmt::Display for ValueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.is_item { "an item of " } else { "" };
        write!(f, "{of}`{}`", self.key)
    }
}

impl<T> OneOrMany<T> {
    /// Returns all values as a list.
    pub(in crate::config) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value],
            Self::Many(values) => values,
        }
    }
}

impl Shaped for bool {
    const SHAPE: KeyShape = KeyShape::Switch;
}

impl Shaped for i32 {
    const SHAPE: KeyShape = KeyShape::Integer;
}

impl Shaped for u64 {
    const SHAPE: KeyShape = KeyShape::Integer;
}

impl Shaped for Located {
    const SHAPE: KeyShape = KeyShape::Text;
}

impl<T: Vocabulary> Shaped for T {
    const SHAPE: KeyShape = KeyShape::Words(T::words);
}

impl<T: Shaped> Shaped for Vec<T> {
    const SHAPE: KeyShape = KeyShape::List(&T::SHAPE);
}

impl<T: Shaped> Shaped for OneOrMany<T> {
    const SHAPE: KeyShape = KeyShape::Any(&[T::SHAPE, KeyShape::List(&T::SHAPE)]);
}

impl<M: Shaped> Shaped for TextOr<M> {
    const SHAPE: KeyShape = KeyShape::Any(&[KeyShape::Text, M::SHAPE]);
}

impl<T: Shaped> Shaped for BTreeMap<String, T> {
    const SHAPE: KeyShape = KeyShape::Named(&T::SHAPE);
}

impl FromYaml for bool {
    /// Reads a boolean, in any spelling of YAML 1.1, as Atlantis does.
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        reader.boolean_of(node, &name.to_string())
    }
}

impl FromYaml for i32 {
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        reader.integer_of(node, &name.to_string())
    }
}

impl FromYaml for u64 {
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        reader.integer_of(node, &name.to_string())
    }
}

impl FromYaml for Located {
    /// Reads a text. A number or boolean is also a text, with its spelling in the file.
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        reader.text_of(node, &name.to_string())
    }
}

impl<T: Vocabulary> FromYaml for T {
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        let text = Located::read(reader, node, name)?;
        reader.word_of(&text, &name.of_word(), &T::words())
    }
}

impl<T: FromYaml> FromYaml for Vec<T> {
    /// Reads a list. Leaves out items that are wrong.
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        let items = reader.items_of(node, name)?;
        Some(
            items
                .iter()
                .filter_map(|item| T::read(reader, item, name.item()))
                .collect(),
        )
    }
}

impl<T: FromYaml> FromYaml for OneOrMany<T> {
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        match &node.value {
            YamlValue::List(_) => Vec::read(reader, node, name).map(Self::Many),
            YamlValue::Scalar(..) => T::read(reader, node, name).map(Self::One),
            YamlValue::Map(_) | YamlValue::Null => {
                reader.wrong_kind(node, &name.to_string(), "a text or a list");
                None
            }
        }
    }
}

impl<M: FromYaml> FromYaml for TextOr<M> {
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        match &node.value {
            YamlValue::Map(_) => M::read(reader, node, name).map(Self::Mapping),
            YamlValue::Scalar(..) | YamlValue::List(_) | YamlValue::Null => {
                Located::read(reader, node, name).map(Self::Text)
            }
        }
    }
}
