//! Reads `output` of a step: filters for the part of the output that a comment shows (reference 6.2, 6.3).

use super::OutputFilter;
use super::keys::FILTER;
use crate::config::yaml::{
    Fields, FileReader, Located, YamlNode, YamlValue, list_of, quoted, shown,
};

/// Words that `output` of `run` accepts.
pub(super) const WORDS: [&str; 3] = ["show", "hide", "strip_refreshing"];

/// Reads `output` from `run`.
pub(super) fn read(reader: &mut FileReader, fields: &Fields<'_>) -> Vec<OutputFilter> {
    let Some(node) = fields.get("output") else {
        return Vec::new();
    };
    if matches!(node.value, YamlValue::Map(_)) {
        let what = "`output` must be a word or a list, not a mapping".to_owned();
        reader.problem(
            node.place,
            what,
            "write it as an item of a list: `output: [{filter_regex: …}]`",
        );
        return Vec::new();
    }
    list_of(node)
        .iter()
        .flat_map(|item| read_item(reader, item))
        .collect()
}

fn read_item(reader: &mut FileReader, item: &YamlNode) -> Vec<OutputFilter> {
    if let YamlValue::Map(_) = item.value {
        return read_filter(reader, item);
    }
    let Some(word) = reader.text_of(item, "an item of `output`") else {
        return Vec::new();
    };
    match word.text.trim() {
        "show" => Vec::new(),
        "hide" => vec![OutputFilter::Hide],
        "strip_refreshing" => vec![OutputFilter::StripRefreshing],
        _ => {
            refuse(reader, &word);
            Vec::new()
        }
    }
}

fn refuse(reader: &mut FileReader, word: &Located) {
    let all = || WORDS.into_iter().chain(["filter_regex"]);
    let help = reader.nearest(&word.text, all()).map_or_else(
        || {
            format!(
                "write one of {}, or `{{filter_regex: …}}` in a list",
                quoted(WORDS)
            )
        },
        |meant| match meant {
            "filter_regex" => "write `{filter_regex: …}`, with the expression to redact".to_owned(),
            meant => format!("did you mean `{meant}`?"),
        },
    );
    reader.problem(
        word.place,
        format!("`{}` is not a valid value of `output`", shown(&word.text)),
        help,
    );
}

fn read_filter(reader: &mut FileReader, item: &YamlNode) -> Vec<OutputFilter> {
    let Some(fields) = reader.fields(item, &FILTER) else {
        return Vec::new();
    };
    let Some(node) = fields.get("filter_regex") else {
        let what = "an item of `output` has no `filter_regex`".to_owned();
        reader.problem(
            item.place,
            what,
            "write `{filter_regex: …}`, with the expression to redact",
        );
        return Vec::new();
    };
    let texts: Vec<Located> = list_of(node)
        .iter()
        .filter_map(|text| reader.text_of(text, "`filter_regex`"))
        .collect();
    texts
        .iter()
        .filter_map(|text| reader.expression(text))
        .map(OutputFilter::Redact)
        .collect()
}
