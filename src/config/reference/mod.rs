//! Generates documents from the tables of keys: the JSON Schemas of both files, and the tables of the documentation.

mod schema;
mod tables;

pub use schema::{repo_schema, server_schema};
pub use tables::{repo_tables, server_tables};

use super::yaml::{Keys, Kind};

/// Returns the mappings that a file may have, each once, outer ones first. Leaves out the shapes of keys that this
/// version does not support.
pub(in crate::config) fn mappings(top: &'static Keys) -> Vec<&'static Keys> {
    let mut found = vec![top];
    let mut next = 0;
    while let Some(keys) = found.get(next) {
        let inner: Vec<_> = keys.list.iter().flat_map(|key| below(&key.kind)).collect();
        for keys in inner {
            if found.iter().all(|known| !std::ptr::eq(*known, keys)) {
                found.push(keys);
            }
        }
        next += 1;
    }
    found
}

fn below(kind: &'static Kind) -> Vec<&'static Keys> {
    match kind {
        Kind::Map(keys) => vec![keys],
        Kind::List(kind) | Kind::Named(kind) => below(kind),
        Kind::Any(kinds) => kinds.iter().flat_map(below).collect(),
        Kind::Switch
        | Kind::Integer
        | Kind::Text
        | Kind::SlashedRegex
        | Kind::Words(_)
        | Kind::NotYetTrue
        | Kind::WithoutEffect(..)
        | Kind::NotYet(_) => Vec::new(),
    }
}

/// Returns the name of a mapping without articles and backticks: `a project` becomes `project`.
fn name_of(keys: &Keys) -> String {
    let plain = keys.of.replace('`', "");
    let words = plain
        .split(' ')
        .filter(|word| !matches!(*word, "a" | "an" | "the" | "of"));
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod page_tests;
