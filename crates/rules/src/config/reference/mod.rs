//! Generates documents from the tables of keys: the JSON Schemas of all files, and the tables of the documentation.
//! Only tests use it: they compare the documents with those in `docs/`, or write them.

mod page_tests;
mod schema;
mod tables;

pub(super) use schema::{hosts_schema, repo_schema, server_schema};
pub(super) use tables::{hosts_tables, repo_tables, server_tables};

use super::yaml::{KeyShape, MappingKeys};

/// Returns the mappings that a file may have, each once, outer ones first. Leaves out the shapes of keys that this
/// version does not support.
pub(in crate::config) fn mappings(top: &'static MappingKeys) -> Vec<&'static MappingKeys> {
    let mut found = vec![top];
    let mut next = 0;
    while let Some(keys) = found.get(next) {
        let inner: Vec<_> = keys.list.iter().flat_map(|key| below(&key.shape)).collect();
        for keys in inner {
            if found.iter().all(|known| !std::ptr::eq(*known, keys)) {
                found.push(keys);
            }
        }
        next += 1;
    }
    found
}

fn below(kind: &'static KeyShape) -> Vec<&'static MappingKeys> {
    match kind {
        KeyShape::Map(keys) => vec![keys],
        KeyShape::List(kind) | KeyShape::Named(kind) => below(kind),
        KeyShape::Any(kinds) => kinds.iter().flat_map(below).collect(),
        KeyShape::Switch
        | KeyShape::Integer
        | KeyShape::Text
        | KeyShape::SlashedRegex
        | KeyShape::Words(_)
        | KeyShape::WithoutEffect(..)
        | KeyShape::NotYet(_) => Vec::new(),
    }
}

/// Returns the name of a mapping without articles and backticks: `a project` becomes `project`.
fn name_of(keys: &MappingKeys) -> String {
    let plain = keys.of.replace('`', "");
    let words = plain
        .split(' ')
        .filter(|word| !matches!(*word, "a" | "an" | "the" | "of"));
    words.collect::<Vec<_>>().join("-")
}
