//! Declares the keys of a mapping once, as a struct with a field for each key.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::slice;

use super::keys::{DocumentedKey, MappingKeys};
use super::node::{Located, YamlNode, YamlValue};
use super::problem::FilePosition;
use super::reader::FileReader;
use super::value::{FromYaml, Shaped, ValueName};

/// Declares a mapping: a struct with one [`Field`] for each key that is read, and the table of its keys.
///
/// ```text
/// mapping! {
///     /// An entry of `projects`.
///     pub(super) struct ProjectMapping("a project") {          // description of the mapping in errors
///         dir: Located = KeyDoc {                              // key, type of its value, documentation
///             default: KeyDoc::REQUIRED,
///             meaning: "Directory from the root of the repository.",
///             example: "infra/network",
///         },
///         shell_args as "shellArgs": Vec<Located> = SHELL_ARGS, // a key that is not spelled like a field
///     }
///     without_field: [DELETE_SOURCE_BRANCH],  // keys that are only checked
///     exactly_one: true,                      // the mapping must have exactly one of its keys
///     only_on_server: is_only_on_server,      // keys that are refused, because only the administrator may set them
/// }
///
/// let project: ProjectMapping = reader.mapping(node)?;   // reports unknown keys
/// let dir = project.dir.read(reader)?;                   // a `Located`; reports a value of a wrong type
/// ```
///
/// A key that is not declared cannot be read. The compiler warns about a declared key that is not read.
macro_rules! mapping {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident($of:literal) {
            $($field:ident $(as $spelling:literal)?: $value:ty = $doc:expr,)*
        }
        $(without_field: [$($key:expr),+ $(,)?],)?
        $(exactly_one: $is_choice:literal,)?
        $(only_on_server: $is_only_on_server:expr,)?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            place: $crate::config::yaml::FilePosition,
            $($vis $field: $crate::config::yaml::Field<$value>,)*
        }

        impl $crate::config::yaml::Shaped for $name {
            const SHAPE: $crate::config::yaml::KeyShape =
                $crate::config::yaml::KeyShape::Map(<Self as $crate::config::yaml::Mapping>::KEYS);
        }

        impl $crate::config::yaml::Mapping for $name {
            const KEYS: &'static $crate::config::yaml::MappingKeys = {
                use $crate::config::yaml::{DocumentedKey, MappingKeys, Shaped};
                static KEYS: MappingKeys = MappingKeys {
                    of: $of,
                    list: &[
                        $(DocumentedKey {
                            name: $crate::config::yaml::mapping!(@name $field $($spelling)?),
                            shape: <$value as Shaped>::SHAPE,
                            doc: $doc,
                        },)*
                        $($($key,)+)?
                    ],
                    is_only_on_server: $crate::config::yaml::mapping!(@or |_| false, $($is_only_on_server)?),
                    is_choice: $crate::config::yaml::mapping!(@or false, $($is_choice)?),
                };
                &KEYS
            };

            fn new(fields: &mut $crate::config::yaml::DeclaredFields<'_>) -> Self {
                // The fields of a struct are evaluated in this order, which is that of the table.
                Self {
                    place: fields.place(),
                    $($field: fields.next_field(),)*
                }
            }

            fn place(&self) -> $crate::config::yaml::FilePosition {
                self.place
            }
        }

        impl $crate::config::yaml::FromYaml for $name {
            fn read(
                reader: &mut $crate::config::yaml::FileReader,
                node: &$crate::config::yaml::YamlNode,
                _name: $crate::config::yaml::ValueName,
            ) -> Option<Self> {
                reader.mapping(node)
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $spelling:literal) => { $spelling };
    (@or $default:expr,) => { $default };
    (@or $default:expr, $value:expr) => { $value };
}

pub(in crate::config) use mapping;

/// A mapping with known keys. [`mapping!`] implements it.
pub(in crate::config) trait Mapping: Sized {
    /// Table of the keys.
    const KEYS: &'static MappingKeys;

    /// Takes the fields in the order of the table.
    fn new(fields: &mut DeclaredFields<'_>) -> Self;

    /// Returns the place where the mapping begins.
    fn place(&self) -> FilePosition;
}

/// Fields of one mapping in the order of its table. Only this module creates it, so that nothing else can make a
/// [`Field`].
pub(in crate::config) struct DeclaredFields<'n> {
    place: FilePosition,
    entries: &'n [(Located, YamlNode)],
    keys: slice::Iter<'static, DocumentedKey>,
}

impl DeclaredFields<'_> {
    pub(in crate::config) fn place(&self) -> FilePosition {
        self.place
    }

    /// Returns the field of the next key of the table.
    pub(in crate::config) fn next_field<T>(&mut self) -> Field<T> {
        let key = self
            .keys
            .next()
            .expect("every field has a key in the table");
        let named = || {
            self.entries
                .iter()
                .filter(|(name, _)| name.text == key.name)
        };
        // A key of a merged mapping (`<<`) can follow one without a value.
        let with_value = named().find(|(_, node)| node.value != YamlValue::Null);
        Field {
            name: key.name,
            entry: with_value
                .or_else(|| named().next())
                .map(|(name, node)| (name.place, node.clone())),
            value: PhantomData,
        }
    }
}

/// A declared key, and its value in a file. A key without a value counts as absent.
pub(in crate::config) struct Field<T> {
    name: &'static str,
    entry: Option<(FilePosition, YamlNode)>,
    value: PhantomData<T>,
}

impl<T> Field<T> {
    /// Returns the spelling of the key.
    pub(in crate::config) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns true if the key has a value.
    pub(in crate::config) fn is_set(&self) -> bool {
        self.node().is_some()
    }

    /// Returns the value as written.
    pub(in crate::config) fn node(&self) -> Option<&YamlNode> {
        let (_, node) = self.entry.as_ref()?;
        Some(node).filter(|node| node.value != YamlValue::Null)
    }

    /// Returns the place of the key, if it has a value.
    pub(in crate::config) fn place(&self) -> Option<FilePosition> {
        self.written_at().filter(|_| self.is_set())
    }

    /// Returns the place of the key, even if it has no value.
    pub(in crate::config) fn written_at(&self) -> Option<FilePosition> {
        self.entry.as_ref().map(|(place, _)| *place)
    }
}

impl<T: FromYaml> Field<T> {
    /// Reads the value. Reports a value that is wrong.
    pub(in crate::config) fn read(&self, reader: &mut FileReader) -> Option<T> {
        T::read(reader, self.node()?, ValueName::of(self.name))
    }
}

impl<T: Shaped> Field<Vec<T>> {
    /// Returns the items of a list, to be read one by one. Reports a value that is not a list.
    pub(in crate::config) fn items(&self, reader: &mut FileReader) -> Option<&[YamlNode]> {
        reader.items_of(self.node()?, ValueName::of(self.name))
    }
}

impl<T: Shaped> Field<BTreeMap<String, T>> {
    /// Returns the entries of a mapping with names that people choose. Reports a value that is not a mapping.
    pub(in crate::config) fn entries(&self, reader: &mut FileReader) -> &[(Located, YamlNode)] {
        self.node().map_or(&[], |node| {
            reader.entries_of(node, &ValueName::of(self.name).to_string())
        })
    }
}

impl FileReader {
    /// Reads a mapping. Reports keys that are not declared, and keys that this version does not support.
    pub(in crate::config) fn mapping<M: Mapping>(&mut self, node: &YamlNode) -> Option<M> {
        let entries = self.known_entries(node, M::KEYS)?;
        Some(fields(node.place, entries))
    }

    /// Reads the value of a required key. Reports a missing key with this help.
    pub(in crate::config) fn required<M: Mapping, T: FromYaml>(
        &mut self,
        mapping: &M,
        field: &Field<T>,
        help: &str,
    ) -> Option<T> {
        if !field.is_set() {
            let what = format!("{} has no `{}`", M::KEYS.of, field.name);
            self.problem(mapping.place(), what, help);
        }
        field.read(self)
    }
}

/// Takes a mapping without a report of its mistakes. Returns `None` if the node is not a mapping.
pub(in crate::config) fn as_written<M: Mapping>(node: &YamlNode) -> Option<M> {
    let YamlValue::Map(entries) = &node.value else {
        return None;
    };
    Some(fields(node.place, entries))
}

/// Returns a mapping without entries, for the spelling of its keys.
pub(in crate::config) fn without_entries<M: Mapping>() -> M {
    fields(FilePosition::START, &[])
}

/// Takes the declared fields of the entries of a mapping.
fn fields<M: Mapping>(place: FilePosition, entries: &[(Located, YamlNode)]) -> M {
    M::new(&mut DeclaredFields {
        place,
        entries,
        keys: M::KEYS.list.iter(),
    })
}
