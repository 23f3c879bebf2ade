//! Reads `output` of a step: filters for the part of the output that a comment shows (reference 6.2, 6.3).

use super::OutputFilter;
use super::keys::FilterMapping;
use crate::config::yaml::{
    Field, FileReader, KeyShape, Located, Mapping, OneOrMany, Shaped, YamlNode, YamlValue, quoted,
    shown,
};

/// Value of `output` of a `run` step: a word, or a list of words and filters.
pub(in crate::config) enum OutputFilters {}

const WORDS: [&str; 3] = ["show", "hide", "strip_refreshing"];

fn words() -> Vec<&'static str> {
    WORDS.to_vec()
}

impl Shaped for OutputFilter {
    const SHAPE: KeyShape = KeyShape::Any(&[KeyShape::Words(words), FilterMapping::SHAPE]);
}

impl Shaped for OutputFilters {
    const SHAPE: KeyShape =
        KeyShape::Any(&[KeyShape::Words(words), KeyShape::List(&OutputFilter::SHAPE)]);
}

/// Reads `output` of `run`.
pub(super) fn read(reader: &mut FileReader, output: &Field<OutputFilters>) -> Vec<OutputFilter> {
    let Some(node) = output.node() else {
        return Vec::new();
    };
    match &node.value {
        YamlValue::List(items) => items
            .iter()
            .flat_map(|item| read_item(reader, item))
            .collect(),
        YamlValue::Map(_) => {
            let what = "`output` must be a word or a list, not a mapping".to_owned();
            reader.problem(
                node.place,
                what,
                "write it as an item of a list: `output: [{filter_regex: …}]`",
            );
            Vec::new()
        }
        YamlValue::Scalar(..) | YamlValue::Null => read_item(reader, node),
    }
}

fn read_item(reader: &mut FileReader, item: &YamlNode) -> Vec<OutputFilter> {
    if let YamlValue::Map(_) = item.value {
        return read_filter(reader, item).unwrap_or_default();
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
    let all = || WORDS.into_iter().chain(FilterMapping::KEYS.names());
    let help = reader.nearest(&word.text, all()).map_or_else(
        || {
            format!(
                "write one of {}, or `{{filter_regex: …}}` in a list",
                quoted(WORDS)
            )
        },
        |meant| {
            if WORDS.contains(&meant) {
                format!("did you mean `{meant}`?")
            } else {
                FILTER_HELP.to_owned()
            }
        },
    );
    reader.problem(
        word.place,
        format!("`{}` is not a valid value of `output`", shown(&word.text)),
        help,
    );
}

const FILTER_HELP: &str = "write `{filter_regex: …}`, with the expression to redact";

fn read_filter(reader: &mut FileReader, item: &YamlNode) -> Option<Vec<OutputFilter>> {
    let filter: FilterMapping = reader.mapping(item)?;
    let texts: OneOrMany<Located> = reader.required(&filter, &filter.filter_regex, FILTER_HELP)?;
    let redact = |text| reader.expression(&text).map(OutputFilter::Redact);
    Some(texts.into_vec().into_iter().filter_map(redact).collect())
}
