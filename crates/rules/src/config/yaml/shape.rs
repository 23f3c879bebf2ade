//! Checks the shape of known keys that this version does not support, so that their mistakes show now. Then refuses
//! them.

use super::keys::{KeyShape, MappingKeys};
use super::node::{Located, YamlNode, YamlValue};
use super::reader::{FileReader, boolean_in};

impl FileReader {
    /// Checks a key that this version does not support. A key without a value requests nothing.
    pub(super) fn check_not_yet(&mut self, key: &Located, value: &YamlNode, kind: &KeyShape) {
        if value.value == YamlValue::Null {
            return;
        }
        let name = format!("`{}`", key.text);
        match kind {
            KeyShape::NotYetTrue if self.boolean_of(value, &name) == Some(true) => {
                self.later(value.place, &format!("`{}: true`", key.text));
            }
            KeyShape::NotYet(shape) => {
                self.check_shape(value, shape, &name);
                self.later(key.place, &name);
            }
            KeyShape::WithoutEffect(shape, why) => {
                self.check_shape(value, shape, &name);
                let asks_for_nothing =
                    boolean_in(value) == Some(false) || value.value.is_empty_text();
                if !asks_for_nothing {
                    self.without_effect(key.place, format!("{name} has no effect"), *why);
                }
            }
            KeyShape::NotYetTrue
            | KeyShape::Switch
            | KeyShape::Integer
            | KeyShape::Text
            | KeyShape::SlashedRegex
            | KeyShape::Words(_)
            | KeyShape::List(_)
            | KeyShape::Map(_)
            | KeyShape::Named(_)
            | KeyShape::Any(_) => {}
        }
    }

    /// Compares an unused value with its expected shape.
    fn check_shape(&mut self, node: &YamlNode, kind: &KeyShape, what: &str) {
        match kind {
            KeyShape::Switch | KeyShape::NotYetTrue => drop(self.boolean_of(node, what)),
            KeyShape::Integer => drop(self.integer_of(node, what)),
            KeyShape::Text | KeyShape::SlashedRegex => drop(self.text_of(node, what)),
            KeyShape::Words(words) => {
                let text = self.text_of(node, what);
                drop(text.and_then(|text| {
                    self.word_of::<String>(&text, &format!("a value of {what}"), &words())
                }));
            }
            KeyShape::List(kind) => self.check_items(node, kind, what),
            KeyShape::Map(keys) => self.check_entries(node, keys),
            KeyShape::Named(kind) => {
                for (key, value) in self.entries_of(node, what) {
                    self.check_shape(value, kind, &format!("`{}`", key.text));
                }
            }
            KeyShape::NotYet(kind) | KeyShape::WithoutEffect(kind, _) => {
                self.check_shape(node, kind, what);
            }
            KeyShape::Any(_) => {}
        }
    }

    fn check_items(&mut self, node: &YamlNode, kind: &KeyShape, what: &str) {
        let YamlValue::List(items) = &node.value else {
            return self.wrong_kind(node, what, "a list");
        };
        for item in items {
            self.check_shape(item, kind, &format!("an item of {what}"));
        }
    }

    fn check_entries(&mut self, node: &YamlNode, keys: &MappingKeys) {
        let Some(fields) = self.fields(node, keys) else {
            return;
        };
        for (key, value) in fields
            .0
            .iter()
            .filter(|(_, value)| value.value != YamlValue::Null)
        {
            if let Some(known) = keys.list.iter().find(|known| known.name == key.text) {
                self.check_shape(value, &known.kind, &format!("`{}`", key.text));
            }
        }
    }
}
