//! Table of keys, from which the readers, the JSON Schemas and the documentation are generated.

/// The keys of a mapping.
pub(in crate::config) struct MappingKeys {
    /// Description of the mapping for errors: `a project`.
    pub(in crate::config) of: &'static str,
    /// Keys that the mapping may have.
    pub(in crate::config) list: &'static [DocumentedKey],
    /// Keys that only the administrator may set, in the configuration of the server.
    pub(in crate::config) of_server: &'static [&'static str],
    /// True if the mapping must have exactly one of the keys.
    pub(in crate::config) is_choice: bool,
}

/// A key of a mapping, with its documentation.
pub(in crate::config) struct DocumentedKey {
    pub(in crate::config) name: &'static str,
    pub(in crate::config) kind: KeyShape,
    /// Default in Markdown. [`DocumentedKey::REQUIRED`] stands for a required key.
    pub(in crate::config) default: &'static str,
    /// Description for the documentation, in Markdown.
    pub(in crate::config) meaning: &'static str,
    /// Example of a value, in YAML on one line.
    pub(in crate::config) example: &'static str,
}

/// Shape of the value of a key.
pub(in crate::config) enum KeyShape {
    /// `true` or `false`.
    Switch,
    /// A whole number, without a unit.
    Integer,
    /// Any text without a special form.
    Text,
    /// A regular expression between slashes.
    SlashedRegex,
    /// One word of a fixed list.
    Words(fn() -> Vec<&'static str>),
    /// A list of values of one kind.
    List(&'static Self),
    /// A mapping with known keys.
    Map(&'static MappingKeys),
    /// A mapping with names that people choose.
    Named(&'static Self),
    /// A value of one of several kinds.
    Any(&'static [Self]),
    /// A switch whose `false` is the current behaviour. A later version will support `true`.
    NotYetTrue,
    /// Accepted without effect after a check of its shape. The feature does not exist here, and its absence weakens
    /// nothing. The text is the reason.
    WithoutEffect(&'static Self, &'static str),
    /// Refused after a check of its shape, because only a later version supports it. Ignoring it could be unsafe.
    NotYet(&'static Self),
}

impl DocumentedKey {
    /// [`DocumentedKey::default`] of a required key.
    pub(in crate::config) const REQUIRED: &str = "required";

    /// Creates a key from its name, kind, default, meaning and example.
    pub(in crate::config) const fn new(
        name: &'static str,
        kind: KeyShape,
        default: &'static str,
        meaning: &'static str,
        example: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            default,
            meaning,
            example,
        }
    }
}

impl MappingKeys {
    /// Creates the keys of a mapping without keys of the administrator.
    pub(in crate::config) const fn new(of: &'static str, keys: &'static [DocumentedKey]) -> Self {
        Self {
            of,
            list: keys,
            of_server: &[],
            is_choice: false,
        }
    }

    /// Creates the keys of a mapping that must have exactly one of them.
    pub(in crate::config) const fn choice(
        of: &'static str,
        keys: &'static [DocumentedKey],
    ) -> Self {
        Self {
            is_choice: true,
            ..Self::new(of, keys)
        }
    }

    /// Returns the key whose mapping has a key of this name, if there is exactly one.
    pub(in crate::config) fn parent_of(&self, name: &str) -> Option<&'static str> {
        let has = |key: &&DocumentedKey| matches!(&key.kind, KeyShape::Map(below) if below.names().any(|below| below == name));
        let mut parents = self.list.iter().filter(has).map(|key| key.name);
        parents.next().filter(|_| parents.next().is_none())
    }

    /// Returns the names in the order of the table.
    pub(in crate::config) fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.list.iter().map(|key| key.name)
    }
}

/// Returns the spellings of an enum, for [`KeyShape::Words`].
pub(in crate::config) fn words<T: Copy>(
    all: &[T],
    spelling: fn(T) -> &'static str,
) -> Vec<&'static str> {
    all.iter().map(|value| spelling(*value)).collect()
}
