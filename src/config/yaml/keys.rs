//! The table of keys: what the readers accept, the JSON Schemas and the documentation are all made of it.

/// The keys that a mapping may have.
pub(in crate::config) struct Keys {
    /// The mapping, for errors: `a project`.
    pub(in crate::config) of: &'static str,
    /// What may be written.
    pub(in crate::config) list: &'static [Key],
    /// What only the operator decides, in the configuration of the server.
    pub(in crate::config) of_server: &'static [&'static str],
    /// Whether exactly one of the keys is written.
    pub(in crate::config) is_choice: bool,
}

/// One key.
pub(in crate::config) struct Key {
    pub(in crate::config) name: &'static str,
    pub(in crate::config) kind: Kind,
    /// What holds where it is left out, in Markdown; [`Key::REQUIRED`] where it may not be.
    pub(in crate::config) default: &'static str,
    /// What it is for, in Markdown.
    pub(in crate::config) meaning: &'static str,
    /// A value, in YAML on one line.
    pub(in crate::config) example: &'static str,
}

/// What the value of a key looks like.
pub(in crate::config) enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Integer,
    /// Any text.
    Text,
    /// A regular expression between slashes.
    SlashedRegex,
    /// One of these words.
    Words(fn() -> Vec<&'static str>),
    /// A list.
    List(&'static Self),
    /// A mapping with known keys.
    Map(&'static Keys),
    /// A mapping of names that people choose.
    Named(&'static Self),
    /// One of these.
    Any(&'static [Self]),
    /// `false` is what is the case; `true` is for a later version.
    NotYetTrue,
    /// Accepted, with nothing but a look at its shape: what it asks for does not exist here, and to leave it out weakens
    /// nothing. The text says why.
    WithoutEffect(&'static Self, &'static str),
    /// Only its shape is looked at; what it asks for is for a later version. Ignoring it could be unsafe.
    NotYet(&'static Self),
}

impl Key {
    /// [`Key::default`] of a key that may not be left out.
    pub(in crate::config) const REQUIRED: &str = "must be given";

    /// Name, kind, default, meaning and example.
    pub(in crate::config) const fn new(
        name: &'static str,
        kind: Kind,
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

impl Keys {
    /// Keys of a mapping that belongs to whoever writes the file.
    pub(in crate::config) const fn new(of: &'static str, keys: &'static [Key]) -> Self {
        Self {
            of,
            list: keys,
            of_server: &[],
            is_choice: false,
        }
    }

    /// Keys of which exactly one is written.
    pub(in crate::config) const fn choice(of: &'static str, keys: &'static [Key]) -> Self {
        Self {
            is_choice: true,
            ..Self::new(of, keys)
        }
    }

    /// The key whose mapping has a key of this name, if only one has.
    pub(in crate::config) fn parent_of(&self, name: &str) -> Option<&'static str> {
        let has = |key: &&Key| matches!(&key.kind, Kind::Map(below) if below.names().any(|below| below == name));
        let mut parents = self.list.iter().filter(has).map(|key| key.name);
        parents.next().filter(|_| parents.next().is_none())
    }

    /// The names, in the order of the table.
    pub(in crate::config) fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.list.iter().map(|key| key.name)
    }
}

/// The spellings of an enum, for [`Kind::Words`].
pub(in crate::config) fn words<T: Copy>(
    all: &[T],
    spelling: fn(T) -> &'static str,
) -> Vec<&'static str> {
    all.iter().map(|value| spelling(*value)).collect()
}
