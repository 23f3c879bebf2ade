//! Generates the tables of keys in `docs/configuration.md`.

use super::mappings;
use crate::config::server::HostsFileMapping;
use crate::config::yaml::{DocumentedKey, KeyShape, Mapping, MappingKeys, quoted};
use crate::config::{repo, repos};

/// Returns the lines between `<!-- repo-keys:begin -->` and `<!-- repo-keys:end -->`.
pub(in crate::config) fn repo_tables() -> String {
    mappings(repo::RepoFileMapping::KEYS)
        .into_iter()
        .map(table)
        .collect()
}

/// Returns the lines between `<!-- server-keys:begin -->` and `<!-- server-keys:end -->`. Leaves out the mappings
/// that the repository's file has too.
pub(in crate::config) fn server_tables() -> String {
    let told = mappings(repo::RepoFileMapping::KEYS);
    let is_new =
        |keys: &&'static MappingKeys| told.iter().all(|known| !std::ptr::eq(*known, *keys));
    mappings(repos::ServerFileMapping::KEYS)
        .into_iter()
        .filter(is_new)
        .map(table)
        .collect()
}

/// Returns the lines between `<!-- hosts-keys:begin -->` and `<!-- hosts-keys:end -->`.
pub(in crate::config) fn hosts_tables() -> String {
    mappings(HostsFileMapping::KEYS)
        .into_iter()
        .map(table)
        .collect()
}

fn table(keys: &MappingKeys) -> String {
    let mut title = keys.of.to_owned();
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let one = if keys.is_choice {
        " (exactly one of these)"
    } else {
        ""
    };
    let rows: String = keys.list.iter().map(row).collect();
    format!(
        "\n**{title}**{one}\n\n| Key | Value | Default | Meaning | Example |\n|--|--|--|--|--|\n{rows}"
    )
}

fn row(key: &DocumentedKey) -> String {
    let example = if key.doc.example.is_empty() {
        String::new()
    } else {
        format!("`{}`", key.doc.example.replace('|', "\\|"))
    };
    format!(
        "| `{}` | {} | {} | {} | {example} |\n",
        key.name,
        shape(&key.shape),
        key.doc.default,
        key.doc.meaning
    )
}

fn shape(kind: &KeyShape) -> String {
    match kind {
        KeyShape::Switch => "`true` or `false`".to_owned(),
        KeyShape::Integer => "whole number".to_owned(),
        KeyShape::Text => "text".to_owned(),
        KeyShape::SlashedRegex => "`/expression/`".to_owned(),
        KeyShape::Words(words) => quoted(words()),
        KeyShape::List(kind) => format!("list of {}", shape(kind)),
        KeyShape::Map(keys) => format!("*{}*", keys.of.replace('`', "")),
        KeyShape::Named(kind) => format!("by name: {}", shape(kind)),
        KeyShape::Any(kinds) => kinds.iter().map(shape).collect::<Vec<_>>().join("; or "),
        KeyShape::WithoutEffect(KeyShape::Map(_), _) => "as in Atlantis".to_owned(),
        KeyShape::WithoutEffect(kind, _) => shape(kind),
        KeyShape::NotYet(_) => "nothing".to_owned(),
    }
}
