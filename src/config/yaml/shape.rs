//! Checks the shape of known keys that this version does not support, so that their mistakes show now. Then refuses
//! them.

use super::keys::{Keys, Kind};
use super::node::{Located, Node, Value};
use super::reader::{Reader, boolean_in};

impl Reader {
    /// Checks a key that this version does not support. A key without a value requests nothing.
    pub(super) fn check_not_yet(&mut self, key: &Located, value: &Node, kind: &Kind) {
        if value.value == Value::Null {
            return;
        }
        let name = format!("`{}`", key.text);
        match kind {
            Kind::NotYetTrue if self.boolean_of(value, &name) == Some(true) => {
                self.later(value.place, &format!("`{}: true`", key.text));
            }
            Kind::NotYet(shape) => {
                self.check_shape(value, shape, &name);
                self.later(key.place, &name);
            }
            Kind::WithoutEffect(shape, why) => {
                self.check_shape(value, shape, &name);
                let asks_for_nothing =
                    boolean_in(value) == Some(false) || value.value.is_empty_text();
                if !asks_for_nothing {
                    self.without_effect(key.place, format!("{name} has no effect"), *why);
                }
            }
            Kind::NotYetTrue
            | Kind::Switch
            | Kind::Integer
            | Kind::Text
            | Kind::SlashedRegex
            | Kind::Words(_)
            | Kind::List(_)
            | Kind::Map(_)
            | Kind::Named(_)
            | Kind::Any(_) => {}
        }
    }

    /// Compares an unused value with its expected shape.
    fn check_shape(&mut self, node: &Node, kind: &Kind, what: &str) {
        match kind {
            Kind::Switch | Kind::NotYetTrue => drop(self.boolean_of(node, what)),
            Kind::Integer => drop(self.integer_of(node, what)),
            Kind::Text | Kind::SlashedRegex => drop(self.text_of(node, what)),
            Kind::Words(words) => {
                let text = self.text_of(node, what);
                drop(text.and_then(|text| {
                    self.word_of::<String>(&text, &format!("a value of {what}"), &words())
                }));
            }
            Kind::List(kind) => self.check_items(node, kind, what),
            Kind::Map(keys) => self.check_entries(node, keys),
            Kind::Named(kind) => {
                for (key, value) in self.entries_of(node, what) {
                    self.check_shape(value, kind, &format!("`{}`", key.text));
                }
            }
            Kind::NotYet(kind) | Kind::WithoutEffect(kind, _) => self.check_shape(node, kind, what),
            Kind::Any(_) => {}
        }
    }

    fn check_items(&mut self, node: &Node, kind: &Kind, what: &str) {
        let Value::List(items) = &node.value else {
            return self.wrong_kind(node, what, "a list");
        };
        for item in items {
            self.check_shape(item, kind, &format!("an item of {what}"));
        }
    }

    fn check_entries(&mut self, node: &Node, keys: &Keys) {
        let Some(fields) = self.fields(node, keys) else {
            return;
        };
        for (key, value) in fields
            .0
            .iter()
            .filter(|(_, value)| value.value != Value::Null)
        {
            if let Some(known) = keys.list.iter().find(|known| known.name == key.text) {
                self.check_shape(value, &known.kind, &format!("`{}`", key.text));
            }
        }
    }
}
