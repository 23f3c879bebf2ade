//! Reads typed values from nodes. Collects all problems instead of stopping at the first.

use std::str::FromStr;

use super::expression::Expressions;
use super::keys::MappingKeys;
use super::nearest::{nearest, quoted};
use super::node::{Located, Scalar, YamlNode, YamlValue};
use super::problem::{FilePosition, YamlNote, YamlProblem, shown};
use super::value::ValueName;

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

    /// Returns the entries of a mapping after a check of their keys. Returns `None` if the node is not a mapping.
    pub(super) fn known_entries<'n>(
        &mut self,
        node: &'n YamlNode,
        keys: &MappingKeys,
    ) -> Option<&'n [(Located, YamlNode)]> {
        let YamlValue::Map(entries) = &node.value else {
            self.wrong_kind(node, keys.of, "a mapping");
            return None;
        };
        for (key, value) in &**entries {
            self.check_key(key, value, keys);
        }
        Some(entries)
    }

    fn check_key(&mut self, key: &Located, value: &YamlNode, keys: &MappingKeys) {
        let name = key.text.as_str();
        if let Some(known) = keys.find(name) {
            self.check_not_yet(key, value, &known.shape);
        } else if (keys.is_only_on_server)(name) {
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
        let text = node.as_text();
        if text.is_none() {
            self.wrong_kind(node, what, "a text");
        }
        text
    }

    pub(super) fn boolean_of(&mut self, node: &YamlNode, what: &str) -> Option<bool> {
        let read = boolean_in(node);
        if read.is_none() {
            self.wrong_kind(node, what, "`true` or `false`");
        }
        read
    }

    pub(super) fn integer_of<T: FromStr>(&mut self, node: &YamlNode, what: &str) -> Option<T> {
        if let YamlValue::Scalar(_, text) = &node.value
            && let Ok(number) = text.trim().parse()
        {
            return Some(number);
        }
        self.wrong_kind(node, what, "a whole number");
        None
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

    pub(super) fn items_of<'n>(
        &mut self,
        node: &'n YamlNode,
        name: ValueName,
    ) -> Option<&'n [YamlNode]> {
        if let YamlValue::List(items) = &node.value {
            return Some(items);
        }
        self.wrong_kind(node, &name.to_string(), "a list");
        None
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
