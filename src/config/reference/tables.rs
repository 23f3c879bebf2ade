//! Generates the tables of keys in `docs/configuration.md`.

use super::mappings;
use crate::config::yaml::{Key, Keys, Kind, quoted};
use crate::config::{repo, repos};

/// Returns the lines between `<!-- repo-keys:begin -->` and `<!-- repo-keys:end -->`.
pub fn repo_tables() -> String {
    mappings(&repo::TOP).into_iter().map(table).collect()
}

/// Returns the lines between `<!-- server-keys:begin -->` and `<!-- server-keys:end -->`. Leaves out the mappings
/// that the repository's file has too.
pub fn server_tables() -> String {
    let told = mappings(&repo::TOP);
    let is_new = |keys: &&'static Keys| told.iter().all(|known| !std::ptr::eq(*known, *keys));
    mappings(&repos::TOP)
        .into_iter()
        .filter(is_new)
        .map(table)
        .collect()
}

fn table(keys: &Keys) -> String {
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

fn row(key: &Key) -> String {
    let example = if key.example.is_empty() {
        String::new()
    } else {
        format!("`{}`", key.example.replace('|', "\\|"))
    };
    format!(
        "| `{}` | {} | {} | {} | {example} |\n",
        key.name,
        shape(&key.kind),
        key.default,
        key.meaning
    )
}

fn shape(kind: &Kind) -> String {
    match kind {
        Kind::Switch => "`true` or `false`".to_owned(),
        Kind::Integer => "whole number".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::SlashedRegex => "`/expression/`".to_owned(),
        Kind::Words(words) => quoted(words()),
        Kind::List(kind) => format!("list of {}", shape(kind)),
        Kind::Map(keys) => format!("*{}*", keys.of.replace('`', "")),
        Kind::Named(kind) => format!("by name: {}", shape(kind)),
        Kind::Any(kinds) => kinds.iter().map(shape).collect::<Vec<_>>().join("; or "),
        Kind::NotYetTrue => "`false`".to_owned(),
        Kind::WithoutEffect(Kind::Map(_), _) => "as in Atlantis".to_owned(),
        Kind::WithoutEffect(kind, _) => shape(kind),
        Kind::NotYet(_) => "nothing".to_owned(),
    }
}
