//! Tables of keys. [`mapping!`](super::mapping::mapping) makes them, and they serve three purposes: readers refuse
//! keys that are not in them, and the JSON Schemas and the documentation list them.

/// The keys of a mapping.
pub(in crate::config) struct MappingKeys {
    /// Description of the mapping for errors: `a project`.
    pub(in crate::config) of: &'static str,
    /// Keys that the mapping may have.
    pub(in crate::config) list: &'static [DocumentedKey],
    /// Returns true if only the administrator may set a key of this name, in the configuration of the server.
    pub(in crate::config) is_only_on_server: fn(&str) -> bool,
    /// True if the mapping must have exactly one of the keys.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the documentation, which a test generates")
    )]
    pub(in crate::config) is_choice: bool,
}

/// A key of a mapping, with its documentation.
pub(in crate::config) struct DocumentedKey {
    pub(in crate::config) name: &'static str,
    pub(in crate::config) shape: KeyShape,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the documentation, which a test generates")
    )]
    pub(in crate::config) doc: KeyDoc,
}

/// Documentation of a key, in Markdown.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "for the documentation, which a test generates")
)]
pub(in crate::config) struct KeyDoc {
    /// Default of the key. [`KeyDoc::REQUIRED`] stands for a required key.
    pub(in crate::config) default: &'static str,
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
    /// A list of values of one shape.
    List(&'static Self),
    /// A mapping with known keys.
    Map(&'static MappingKeys),
    /// A mapping with names that people choose.
    Named(&'static Self),
    /// A value of one of several shapes.
    Any(
        #[cfg_attr(
            not(test),
            expect(dead_code, reason = "for the documentation, which a test generates")
        )]
        &'static [Self],
    ),
    /// Accepted without effect after a check of its shape. The feature does not exist here, and its absence weakens
    /// nothing. The text is the reason.
    WithoutEffect(&'static Self, &'static str),
    /// Refused after a check of its shape, because only a later version supports it. Ignoring it could be unsafe.
    NotYet(&'static Self),
}

impl KeyDoc {
    /// [`KeyDoc::default`] of a required key.
    pub(in crate::config) const REQUIRED: &str = "required";
}

impl DocumentedKey {
    /// Creates a key of a mapping whose shape is checked, but whose values nobody uses yet. It has no documentation.
    pub(in crate::config) const fn unused(name: &'static str, shape: KeyShape) -> Self {
        Self {
            name,
            shape,
            doc: KeyDoc {
                default: "",
                meaning: "",
                example: "",
            },
        }
    }
}

impl MappingKeys {
    /// Creates the keys of a mapping whose shape is checked, but whose values nobody uses yet.
    pub(in crate::config) const fn unused(
        of: &'static str,
        list: &'static [DocumentedKey],
    ) -> Self {
        Self {
            of,
            list,
            is_only_on_server: |_| false,
            is_choice: false,
        }
    }

    /// Returns the key with this name.
    pub(in crate::config) fn find(&self, name: &str) -> Option<&'static DocumentedKey> {
        self.list.iter().find(|key| key.name == name)
    }

    /// Returns the key whose mapping has a key of this name, if there is exactly one.
    pub(in crate::config) fn parent_of(&self, name: &str) -> Option<&'static str> {
        let has = |key: &&DocumentedKey| matches!(&key.shape, KeyShape::Map(below) if below.find(name).is_some());
        let mut parents = self.list.iter().filter(has).map(|key| key.name);
        parents.next().filter(|_| parents.next().is_none())
    }

    /// Returns the names in the order of the table.
    pub(in crate::config) fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.list.iter().map(|key| key.name)
    }
}
