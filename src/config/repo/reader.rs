//! Takes typed values out of nodes and writes down what is wrong with them, instead of stopping at the first mistake.

use super::nearest::{nearest, quoted};
use super::node::{Located, Node, Scalar, Value};
use super::problem::{Place, Problem, shown};

/// Collects problems while values are taken.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) problems: Vec<Problem>,
}

/// The keys that a mapping may have.
pub(super) struct Keys {
    /// The mapping, for errors: `a project`.
    pub(super) of: &'static str,
    /// What this version reads.
    pub(super) here: &'static [&'static str],
    /// What Atlantis reads and this version does not yet. Ignoring one could be unsafe.
    pub(super) later: &'static [&'static str],
}

/// The entries of a mapping, by key.
pub(super) struct Fields<'n>(Vec<(&'n str, &'n Node)>);

impl<'n> Fields<'n> {
    /// The value of a key; `None` when the key is absent or has no value.
    pub(super) fn get(&self, key: &str) -> Option<&'n Node> {
        let found = self.0.iter().find(|(name, _)| *name == key);
        found.map(|(_, node)| *node).filter(|node| node.value != Value::Null)
    }
}

impl Reader {
    /// Writes down a problem at a place.
    pub(super) fn problem(&mut self, place: Place, what: String, help: impl Into<String>) {
        self.problems.push(Problem { place: Some(place), what, help: help.into() });
    }

    /// Writes down a problem of the file as a whole.
    pub(super) fn problem_of_file(&mut self, what: String, help: impl Into<String>) {
        self.problems.push(Problem { place: None, what, help: help.into() });
    }

    /// Writes down that something is of Atlantis, and not here yet.
    pub(super) fn later(&mut self, place: Place, what: &str) {
        self.problem(
            place,
            format!("{what} is not available in this version yet"),
            "remove it if you can do without it; Lockkeeper stops here, because ignoring it could be unsafe",
        );
    }

    /// Takes the entries of a mapping whose keys are known; `None` when it is no mapping.
    pub(super) fn fields<'n>(&mut self, node: &'n Node, keys: &Keys) -> Option<Fields<'n>> {
        let Value::Map(entries) = &node.value else {
            self.wrong_kind(node, keys.of, "a mapping");
            return None;
        };
        for (key, _) in entries {
            self.check_key(key, keys);
        }
        Some(Fields(entries.iter().map(|(key, value)| (key.text.as_str(), value)).collect()))
    }

    fn check_key(&mut self, key: &Located, keys: &Keys) {
        let name = key.text.as_str();
        if keys.later.contains(&name) {
            self.later(key.place, &format!("`{name}`"));
        } else if !keys.here.contains(&name) {
            let all = keys.here.iter().chain(keys.later).copied();
            let help = nearest(name, all, 1).first().map_or_else(
                || format!("the keys of {} are {}", keys.of, quoted(keys.here)),
                |meant| format!("did you mean `{meant}`?"),
            );
            self.problem(key.place, format!("`{}` is not a key of {}", shown(name), keys.of), help);
        }
    }

    /// Takes a text. A number or boolean is a text too, spelled as in the file.
    pub(super) fn text(&mut self, fields: &Fields<'_>, key: &str) -> Option<Located> {
        self.text_of(fields.get(key)?, &format!("`{key}`"))
    }

    fn text_of(&mut self, node: &Node, what: &str) -> Option<Located> {
        if let Value::Scalar(_, text) = &node.value {
            return Some(Located { place: node.place, text: text.clone() });
        }
        self.wrong_kind(node, what, "a text");
        None
    }

    /// Takes a boolean, in any spelling of YAML 1.1 as Atlantis does.
    pub(super) fn boolean(&mut self, fields: &Fields<'_>, key: &str) -> Option<bool> {
        let node = fields.get(key)?;
        if let Value::Scalar(Scalar::Bool | Scalar::Text, text) = &node.value {
            match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "y" => return Some(true),
                "false" | "no" | "off" | "n" => return Some(false),
                _ => {}
            }
        }
        self.wrong_kind(node, &format!("`{key}`"), "`true` or `false`");
        None
    }

    /// Takes the items of a list.
    pub(super) fn list<'n>(&mut self, fields: &Fields<'n>, key: &str) -> Option<&'n [Node]> {
        let node = fields.get(key)?;
        if let Value::List(items) = &node.value {
            return Some(items);
        }
        self.wrong_kind(node, &format!("`{key}`"), "a list");
        None
    }

    /// Takes a list of texts, without those items that are something else.
    pub(super) fn texts(&mut self, fields: &Fields<'_>, key: &str) -> Option<Vec<Located>> {
        let items = self.list(fields, key)?;
        Some(items.iter().filter_map(|item| self.text_of(item, &format!("an item of `{key}`"))).collect())
    }

    fn wrong_kind(&mut self, node: &Node, what: &str, expected: &str) {
        let found = match &node.value {
            Value::Scalar(_, text) => format!("`{}`", shown(text)),
            Value::Null => "nothing".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        };
        self.problem(node.place, format!("{what} must be {expected}, not {found}"), format!("write {expected} here"));
    }
}
