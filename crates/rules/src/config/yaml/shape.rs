//! Checks the shape of known keys that this version does not support, so that their mistakes show now. Then refuses
//! them.

use super::keys::{KeyShape, MappingKeys};
use super::node::{Located, YamlNode, YamlValue};
use super::reader::{FileReader, boolean_in};

impl FileReader {
    /// Checks a key that this version does not support. A key without a value requests nothing.
    pub(super) fn check_not_yet(&mut self, key: &Located, value: &YamlNode, shape: &KeyShape) {
        if value.value == YamlValue::Null {
            return;
        }
        let name = format!("`{}`", key.text);
        match shape {
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
            KeyShape::Switch
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
    fn check_shape(&mut self, node: &YamlNode, shape: &KeyShape, what: &str) {
        match shape {
            KeyShape::Switch => drop(self.boolean_of(node, what)),
            KeyShape::Integer => drop(self.integer_of::<i32>(node, what)),
            KeyShape::Text | KeyShape::SlashedRegex => drop(self.text_of(node, what)),
            KeyShape::Words(words) => {
                let text = self.text_of(node, what);
                drop(text.and_then(|text| {
                    self.word_of::<String>(&text, &format!("a value of {what}"), &words())
                }));
            }
            KeyShape::List(shape) => self.check_items(node, shape, what),
            KeyShape::Map(keys) => self.check_entries(node, keys),
            KeyShape::Named(shape) => {
                for (key, value) in self.entries_of(node, what) {
                    self.check_shape(value, shape, &format!("`{}`", key.text));
                }
            }
            KeyShape::NotYet(shape) | KeyShape::WithoutEffect(shape, _) => {
                self.check_shape(node, shape, what);
            }
            KeyShape::Any(_) => {}
        }
    }

    fn check_items(&mut self, node: &YamlNode, shape: &KeyShape, what: &str) {
        let YamlValue::List(items) = &node.value else {
            return self.wrong_kind(node, what, "a list");
        };
        for item in &**items {
            self.check_shape(item, shape, &format!("an item of {what}"));
        }
    }

    fn check_entries(&mut self, node: &YamlNode, keys: &MappingKeys) {
        let entries = self.known_entries(node, keys).unwrap_or_default();
        for (key, value) in entries
            .iter()
            .filter(|(_, value)| value.value != YamlValue::Null)
        {
            if let Some(known) = keys.find(&key.text) {
                self.check_shape(value, &known.shape, &format!("`{}`", key.text));
            }
        }
    }
}
