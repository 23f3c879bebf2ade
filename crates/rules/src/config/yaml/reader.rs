//! Reads typed values from nodes. Collects all problems instead of stopping at the first.

use std::str::FromStr;

use super::expression::Expressions;
use super::keys::MappingKeys;
use super::nearest::{nearest, quoted};
use super::node::{Located, Scalar, YamlNode, YamlValue};
use super::problem::{FilePosition, YamlNote, YamlProblem, shown};

/// Collects problems while it reads values.
#[derive(Debug, Default)]
pub(in crate::config) struct FileReader {
    pub(in crate::config) problems: Vec<YamlProblem>,
    /// Values that are accepted, but may not mean what their author thinks: a line, and a sentence.
    pub(in crate::config) warnings: Vec<(usize, String)>,
    /// Parts that are accepted without effect.
    pub(in crate::config) without_effect: Vec<YamlNote>,
    pub(super) expressions: Expressions,
}

/// The entries of a mapping, by key.
pub(in crate::config) struct Fields<'n>(pub(super) Vec<(&'n Located, &'n YamlNode)>);

impl<'n> Fields<'n> {
    /// Returns the value of a key, or `None` if the key is absent or has no value.
    pub(in crate::config) fn get(&self, key: &str) -> Option<&'n YamlNode> {
        self.entry(key).map(|(_, node)| node)
    }

    /// Returns the place of a key that has a value.
    pub(in crate::config) fn place(&self, key: &str) -> Option<FilePosition> {
        self.entry(key).map(|(key, _)| key.place)
    }

    /// Returns true if the key is `true`, in any spelling.
    pub(in crate::config) fn is_true(&self, key: &str) -> bool {
        self.get(key).and_then(boolean_in) == Some(true)
    }

    fn entry(&self, key: &str) -> Option<(&'n Located, &'n YamlNode)> {
        self.0
            .iter()
            .copied()
            .find(|(name, node)| name.text == key && node.value != YamlValue::Null)
    }
}

impl FileReader {
    /// Records a problem at a place.
    pub(in crate::config) fn problem(
        &mut self,
        place: FilePosition,
        what: String,
        help: impl Into<String>,
    ) {
        self.problems.push(YamlProblem {
            place: Some(place),
            what,
            help: help.into(),
        });
    }

    /// Returns the known word that is most similar to a mistyped one. A hostile file can have more problems than
    /// anybody reads, so the later ones get no suggestion.
    pub(in crate::config) fn nearest<'a>(
        &self,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        const MAX_SEARCHED: usize = 100;
        if self.problems.len() >= MAX_SEARCHED {
            return None;
        }
        nearest(word, known, 1).first().copied()
    }

    /// Records a problem of the file as a whole.
    pub(in crate::config) fn problem_of_file(&mut self, what: String, help: impl Into<String>) {
        self.problems.push(YamlProblem {
            place: None,
            what,
            help: help.into(),
        });
    }

    /// Records a part that is accepted without effect.
    pub(in crate::config) fn without_effect(
        &mut self,
        place: FilePosition,
        what: String,
        help: impl Into<String>,
    ) {
        self.without_effect.push(YamlNote {
            line: place.line,
            what,
            help: help.into(),
        });
    }

    /// Records a feature of Atlantis that this version does not support yet.
    pub(in crate::config) fn later(&mut self, place: FilePosition, what: &str) {
        self.problem(
            place,
            format!("{what} is not available in this version yet"),
            "remove it if you do not need it; Lockkeeper stops here, because ignoring it could be unsafe",
        );
    }

    /// Reads the entries of a mapping with known keys. Returns `None` if the node is not a mapping.
    pub(in crate::config) fn fields<'n>(
        &mut self,
        node: &'n YamlNode,
        keys: &MappingKeys,
    ) -> Option<Fields<'n>> {
        let YamlValue::Map(entries) = &node.value else {
            self.wrong_kind(node, keys.of, "a mapping");
            return None;
        };
        for (key, value) in entries {
            self.check_key(key, value, keys);
        }
        Some(Fields(
            entries.iter().map(|(key, value)| (key, value)).collect(),
        ))
    }

    fn check_key(&mut self, key: &Located, value: &YamlNode, keys: &MappingKeys) {
        let name = key.text.as_str();
        if let Some(known) = keys.list.iter().find(|known| known.name == name) {
            self.check_not_yet(key, value, &known.kind);
        } else if keys.of_server.contains(&name) {
            self.problem(
                key.place,
                format!("`{name}` of {} can be set only on the server, not by a pull request", keys.of),
                "remove it; an administrator can set it in the server's configuration (`--repo-config`)",
            );
        } else {
            let help = match (keys.parent_of(name), self.nearest(name, keys.names())) {
                (Some(parent), _) => {
                    format!(
                        "`{name}` belongs under `{parent}`: write `{parent}:` with `{name}` in it"
                    )
                }
                (None, Some(meant)) => format!("did you mean `{meant}`?"),
                (None, None) => format!("the keys of {} are {}", keys.of, quoted(keys.names())),
            };
            self.problem(
                key.place,
                format!("`{}` is not a key of {}", shown(name), keys.of),
                help,
            );
        }
    }

    /// Reads a text. A number or boolean is also a text, with its spelling in the file.
    pub(in crate::config) fn text(&mut self, fields: &Fields<'_>, key: &str) -> Option<Located> {
        self.text_of(fields.get(key)?, &format!("`{key}`"))
    }

    /// Reads one of the words that its type has.
    pub(in crate::config) fn word<T: FromStr>(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        words: &[&str],
    ) -> Option<T> {
        let text = self.text(fields, key)?;
        self.word_of(&text, &format!("a value of `{key}`"), words)
    }

    /// Parses a text that must be one of the words.
    pub(in crate::config) fn word_of<T: FromStr>(
        &mut self,
        text: &Located,
        what: &str,
        words: &[&str],
    ) -> Option<T> {
        let word = text.text.trim();
        if let Some(read) = words.contains(&word).then(|| word.parse().ok()).flatten() {
            return Some(read);
        }
        let help = self.nearest(word, words.iter().copied()).map_or_else(
            || format!("write one of {}", quoted(words)),
            |meant| format!("did you mean `{meant}`? The words are {}", quoted(words)),
        );
        self.problem(text.place, format!("`{}` is not {what}", shown(word)), help);
        None
    }

    /// Reads a text. `what` describes the value in errors.
    pub(in crate::config) fn text_of(&mut self, node: &YamlNode, what: &str) -> Option<Located> {
        if let YamlValue::Scalar(_, text) = &node.value {
            return Some(Located {
                place: node.place,
                text: text.clone(),
            });
        }
        self.wrong_kind(node, what, "a text");
        None
    }

    /// Reads a boolean, in any spelling of YAML 1.1, as Atlantis does.
    pub(in crate::config) fn boolean(&mut self, fields: &Fields<'_>, key: &str) -> Option<bool> {
        self.boolean_of(fields.get(key)?, &format!("`{key}`"))
    }

    pub(super) fn boolean_of(&mut self, node: &YamlNode, what: &str) -> Option<bool> {
        let read = boolean_in(node);
        if read.is_none() {
            self.wrong_kind(node, what, "`true` or `false`");
        }
        read
    }

    /// Reads a whole number of a key.
    pub(in crate::config) fn integer(&mut self, fields: &Fields<'_>, key: &str) -> Option<i32> {
        self.integer_of(fields.get(key)?, &format!("`{key}`"))
    }

    pub(super) fn integer_of(&mut self, node: &YamlNode, what: &str) -> Option<i32> {
        if let YamlValue::Scalar(_, text) = &node.value
            && let Ok(number) = text.trim().parse()
        {
            return Some(number);
        }
        self.wrong_kind(node, what, "a whole number");
        None
    }

    /// Reads the entries of a mapping with names that people choose.
    pub(in crate::config) fn named<'n>(
        &mut self,
        fields: &Fields<'n>,
        key: &str,
    ) -> &'n [(Located, YamlNode)] {
        fields
            .get(key)
            .map_or(&[], |node| self.entries_of(node, &format!("`{key}`")))
    }

    pub(super) fn entries_of<'n>(
        &mut self,
        node: &'n YamlNode,
        what: &str,
    ) -> &'n [(Located, YamlNode)] {
        if let YamlValue::Map(entries) = &node.value {
            return entries;
        }
        self.wrong_kind(node, what, "a mapping");
        &[]
    }

    /// Reads the items of a list.
    pub(in crate::config) fn list<'n>(
        &mut self,
        fields: &Fields<'n>,
        key: &str,
    ) -> Option<&'n [YamlNode]> {
        let node = fields.get(key)?;
        if let YamlValue::List(items) = &node.value {
            return Some(items);
        }
        self.wrong_kind(node, &format!("`{key}`"), "a list");
        None
    }

    /// Reads a list of texts. Leaves out items that are not texts.
    pub(in crate::config) fn texts(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
    ) -> Option<Vec<Located>> {
        let items = self.list(fields, key)?;
        Some(
            items
                .iter()
                .filter_map(|item| self.text_of(item, &format!("an item of `{key}`")))
                .collect(),
        )
    }

    /// Reads a list of words.
    pub(in crate::config) fn word_list<T: FromStr>(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        words: &[&str],
    ) -> Option<Vec<T>> {
        let texts = self.texts(fields, key)?;
        let what = format!("an item of `{key}`");
        Some(
            texts
                .iter()
                .filter_map(|text| self.word_of(text, &what, words))
                .collect(),
        )
    }

    /// Records a value of the wrong kind.
    pub(in crate::config) fn wrong_kind(&mut self, node: &YamlNode, what: &str, expected: &str) {
        let found = match &node.value {
            YamlValue::Scalar(_, text) => format!("`{}`", shown(text)),
            YamlValue::Null => "nothing".to_owned(),
            YamlValue::List(_) => "a list".to_owned(),
            YamlValue::Map(_) => "a mapping".to_owned(),
        };
        self.problem(
            node.place,
            format!("{what} must be {expected}, not {found}"),
            format!("write {expected} here"),
        );
    }
}

pub(super) fn boolean_in(node: &YamlNode) -> Option<bool> {
    let YamlValue::Scalar(Scalar::Bool | Scalar::Text, text) = &node.value else {
        return None;
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Some(true),
        "false" | "no" | "off" | "n" => Some(false),
        _ => None,
    }
}

/// Returns the items of a list, or a single item as a list, because some keys allow both.
pub(in crate::config) fn list_of(node: &YamlNode) -> &[YamlNode] {
    if let YamlValue::List(items) = &node.value {
        items
    } else {
        std::slice::from_ref(node)
    }
}
