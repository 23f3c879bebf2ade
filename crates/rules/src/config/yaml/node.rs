//! Parses YAML into nodes that know their place in the file. A second step reads their types, so that one wrong key
//! does not hide the next one.

use std::fmt;
use std::rc::Rc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned};

use super::problem::{FilePosition, YamlProblem, shown};

/// A value and its place. The place of an alias is the place of its anchored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct YamlNode {
    pub(in crate::config) place: FilePosition,
    pub(in crate::config) value: YamlValue,
}

/// A value of the file. The text of a scalar is unchanged: `1.10` stays `1.10`. Clones share lists
/// and mappings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum YamlValue {
    Null,
    Scalar(Scalar, String),
    List(Rc<[YamlNode]>),
    Map(Rc<[(Located, YamlNode)]>),
}

impl YamlNode {
    /// Returns the text of a scalar.
    pub(in crate::config) fn as_text(&self) -> Option<Located> {
        let YamlValue::Scalar(_, text) = &self.value else {
            return None;
        };
        Some(Located {
            place: self.place,
            text: text.clone(),
        })
    }
}

impl YamlValue {
    /// Returns true if the value is a text without visible characters.
    pub(super) fn is_empty_text(&self) -> bool {
        matches!(self, Self::Scalar(_, text) if text.trim().is_empty())
    }
}

/// The type of a scalar in YAML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Scalar {
    Bool,
    Integer,
    Float,
    Text,
}

/// A text and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct Located {
    pub(in crate::config) place: FilePosition,
    pub(in crate::config) text: String,
}

/// Maximum depth of lists and mappings. The file needs four levels, and the stack must not overflow.
const MAX_DEPTH: usize = 16;

/// Maximum number of events that aliases expand to. Anchors save typing, but a file whose aliases expand further is
/// an attack.
const MAX_REPLAYED_EVENTS: usize = 100_000;

/// Syntax that the author of a text meant. JSON is parsed as YAML, so the syntax only changes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Syntax {
    Yaml,
    Json,
}

/// Parses one YAML document. Returns `Ok(None)` for an empty one.
pub(in crate::config) fn read(source: &str) -> Result<Option<YamlNode>, YamlProblem> {
    read_as(Syntax::Yaml, source)
}

/// Parses one document that may be meant as another syntax.
pub(in crate::config) fn read_as(
    syntax: Syntax,
    source: &str,
) -> Result<Option<YamlNode>, YamlProblem> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            // The ratio would refuse a file whose 150 projects share one anchored `autoplan`.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED_EVENTS },
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        // `yes` and `on` stay texts, because they may be workspaces. The reader of booleans accepts them.
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Spanned<RawNode>>(source, options) {
        Ok(raw) => Ok(Some(node(source, raw)).filter(|node| node.value != YamlValue::Null)),
        Err(serde_saphyr::Error::Eof { .. }) => Ok(None),
        Err(error) => Err(unquoted(source, unreadable(&error, syntax))),
    }
}

/// Translates an error of the YAML parser into our words.
fn unreadable(error: &serde_saphyr::Error, syntax: Syntax) -> YamlProblem {
    use serde_saphyr::Error as E;

    let place = error.location().and_then(|location| place_of(&location));
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum of another crate; it has a hundred variants"
    )]
    let (what, help) = match error.without_snippet() {
        E::AliasError { error: inner, .. } => {
            return YamlProblem {
                place,
                ..unreadable(inner, syntax)
            };
        }
        E::DuplicateMappingKey { key: Some(key), .. } => (
            format!("`{key}` is given twice in one mapping"),
            "keep one of the two",
        ),
        E::Budget { .. }
        | E::AliasReplayLimitExceeded { .. }
        | E::AliasReplayStackDepthExceeded { .. }
        | E::AliasExpansionLimitExceeded { .. } => (
            "the file is nested too deeply, has too many values, or its aliases multiply too much"
                .to_owned(),
            "use fewer aliases, levels or projects",
        ),
        E::MultipleDocuments { .. } => (
            "the file has more than one YAML document".to_owned(),
            "remove the `---` and everything after it",
        ),
        other => match syntax {
            Syntax::Yaml => (
                format!("this is not valid YAML: {}", message(other)),
                "see https://yaml.org for the syntax of YAML",
            ),
            Syntax::Json => (
                format!("this is not valid JSON: {}", message(other)),
                "put texts in quotes, and close every bracket",
            ),
        },
    };
    YamlProblem {
        place,
        what,
        help: help.to_owned(),
    }
}

/// Explains a missing anchor or alias. YAML reads a pattern that begins with `*` as an alias, but its author means a
/// text.
fn unquoted(source: &str, problem: YamlProblem) -> YamlProblem {
    let Some(place) = problem
        .place
        .filter(|_| problem.what.contains("anchor") || problem.what.contains("alias"))
    else {
        return problem;
    };
    let line = source.lines().nth(place.line - 1).unwrap_or_default();
    let from: String = line.chars().skip(place.column - 1).collect();
    let ends = |c: char| c.is_whitespace() || matches!(c, ',' | ']' | '}');
    let Some(word) = from
        .split(ends)
        .next()
        .filter(|word| word.starts_with('*') && word.len() > 1)
    else {
        return problem;
    };
    // The part after the asterisk of an alias is a name. A pattern has a dot, a slash or another asterisk.
    if !word[1..].contains(['.', '/', '*', '?', '[']) {
        return problem;
    }
    let word = shown(word);
    YamlProblem {
        what: format!(
            "`{word}` is not a text in YAML: without quotes, the `*` at the beginning makes it an alias"
        ),
        help: format!("put it in quotes: `'{word}'`"),
        ..problem
    }
}

/// Returns the message without the place, which we show separately.
fn message(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let end = first.find(" at line ").unwrap_or(first.len());
    first[..end].trim_end_matches([',', ':', ' ']).to_owned()
}

fn place_of(location: &Location) -> Option<FilePosition> {
    let whole = |number: u64| usize::try_from(number).ok();
    let (line, column) = (whole(location.line())?, whole(location.column())?);
    (line > 0).then(|| FilePosition {
        line,
        column: column.max(1),
        width: whole(location.span().len()).unwrap_or(1),
    })
}

fn node(source: &str, raw: Spanned<RawNode>) -> YamlNode {
    let located = |location: &Location| place_of(location).unwrap_or(FilePosition::START);
    let place = located(&raw.defined);
    let value = match raw.value {
        RawNode::Null => YamlValue::Null,
        RawNode::Text(text) => YamlValue::Scalar(Scalar::Text, text),
        RawNode::Plain(kind, fallback) => YamlValue::Scalar(
            kind,
            written(source, &raw.defined).map_or(fallback, str::to_owned),
        ),
        RawNode::List(items) => {
            YamlValue::List(items.into_iter().map(|item| node(source, item)).collect())
        }
        RawNode::Map(entries) => {
            let entry = |(key, value): (Spanned<TextKey>, _)| {
                (
                    Located {
                        place: located(&key.defined),
                        text: key.value.0,
                    },
                    node(source, value),
                )
            };
            YamlValue::Map(entries.into_iter().map(entry).collect())
        }
    };
    YamlNode { place, value }
}

/// Returns the characters of a plain scalar in the file, or `None` if it is quoted or tagged.
fn written<'a>(source: &'a str, location: &Location) -> Option<&'a str> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let text = source
        .get(start..start + usize::try_from(span.byte_len()?).ok()?)?
        .trim();
    (!text.is_empty() && !text.starts_with(['"', '\'', '!', '&', '*'])).then_some(text)
}

/// Nodes that serde deserializes, before their places are taken from the wrapper.
enum RawNode {
    Null,
    Text(String),
    /// Type, and a spelling in case the one of the file cannot be found.
    Plain(Scalar, String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<TextKey>, Spanned<Self>)>),
}

/// A key of a mapping, always read as text.
struct TextKey(String);

impl<'de> Deserialize<'de> for TextKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

macro_rules! plain {
    ($($method:ident($type:ty) => $kind:ident,)+) => {
        $(fn $method<E>(self, value: $type) -> Result<RawNode, E> {
            Ok(RawNode::Plain(Scalar::$kind, value.to_string()))
        })+
    };
}

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, number, boolean, list or mapping")
    }

    plain! {
        visit_bool(bool) => Bool,
        visit_i64(i64) => Integer,
        visit_u64(u64) => Integer,
        visit_i128(i128) => Integer,
        visit_u128(u128) => Integer,
        visit_f64(f64) => Float,
    }

    fn visit_str<E>(self, text: &str) -> Result<RawNode, E> {
        Ok(RawNode::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<RawNode, E> {
        Ok(RawNode::Null)
    }

    fn visit_none<E>(self) -> Result<RawNode, E> {
        Ok(RawNode::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawNode, D::Error> {
        RawNode::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(RawNode::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawNode, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawNode::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(node: &YamlNode) -> String {
        let at = format!(
            "{}:{}+{}",
            node.place.line, node.place.column, node.place.width
        );
        match &node.value {
            YamlValue::Null => format!("null@{at}"),
            YamlValue::Scalar(kind, text) => format!("{kind:?} {text}@{at}"),
            YamlValue::List(items) => format!(
                "[{}]@{at}",
                items.iter().map(show).collect::<Vec<_>>().join(", ")
            ),
            YamlValue::Map(entries) => {
                let entry = |(key, value): &(Located, YamlNode)| {
                    format!(
                        "{}@{}:{}: {}",
                        key.text,
                        key.place.line,
                        key.place.column,
                        show(value)
                    )
                };
                format!(
                    "{{{}}}@{at}",
                    entries.iter().map(entry).collect::<Vec<_>>().join(", ")
                )
            }
        }
    }

    fn shown(source: &str) -> String {
        match read(source) {
            Ok(node) => node.as_ref().map_or("empty".to_owned(), show),
            Err(problem) => format!("{:?}: {}", problem.place, problem.what),
        }
    }

    #[test]
    fn scalars_keep_the_spelling_of_the_file() {
        let cases = [
            "a: 1.10",
            "a: 007",
            "a: 0x1F",
            "a: yes",
            "a: True",
            "a: true",
            "a: '12'",
            "a: 1e999",
            "a: ~",
            "a:",
            "a: 2001-01-01",
            "a: .inf",
            "a: !!str 1.10",
            "a: 99999999999999999999999999999999999999999999",
        ];
        insta::assert_snapshot!(cases.map(shown).join("\n"), @"
        {a@1:1: Float 1.10@1:4+4}@1:1+0
        {a@1:1: Float 007@1:4+3}@1:1+0
        {a@1:1: Integer 0x1F@1:4+4}@1:1+0
        {a@1:1: Text yes@1:4+3}@1:1+0
        {a@1:1: Bool True@1:4+4}@1:1+0
        {a@1:1: Bool true@1:4+4}@1:1+0
        {a@1:1: Text 12@1:4+4}@1:1+0
        {a@1:1: Float 1e999@1:4+5}@1:1+0
        {a@1:1: null@1:4+1}@1:1+0
        {a@1:1: null@1:2+0}@1:1+0
        {a@1:1: Text 2001-01-01@1:4+10}@1:1+0
        {a@1:1: Float .inf@1:4+4}@1:1+0
        {a@1:1: Text 1.10@1:10+4}@1:1+0
        {a@1:1: Float 99999999999999999999999999999999999999999999@1:4+44}@1:1+0
        ");
    }

    #[test]
    fn lists_mappings_aliases_and_merges_know_their_places() {
        insta::assert_snapshot!(shown("a:\n  - &x {b: 1.0}\n  - *x\n  - <<: *x\n    c: é\n"), @"{a@1:1: [{b@2:9: Float 1.0@2:12+3}@2:8+1, {b@2:9: Float 1.0@2:12+3}@2:8+1, {c@5:5: Text é@5:8+1, b@2:9: Float 1.0@2:12+3}@4:5+0]@2:3+0}@1:1+0");
    }

    #[test]
    fn documents_without_content_are_empty() {
        for source in ["", "# only a comment\n", "---\n", "null", "\n\n"] {
            assert_eq!(read(source), Ok(None), "{source:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said_in_our_words() {
        let deep = "[".repeat(10_000);
        let bomb = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
            format!("{text}a{i}: &a{i} [*a{0}, *a{0}, *a{0}, *a{0}]\n", i - 1)
        });
        let cases = [
            "a: 1\na: 2",
            "a: [",
            "a: b: c",
            "\ta: 1",
            "a: *x",
            "a: 1\n---\nb: 2",
            "a: !foo b",
            "? [x]\n: y",
            &deep,
            &bomb,
        ];
        insta::assert_snapshot!(cases.map(shown).join("\n"), @"
        Some(FilePosition { line: 2, column: 1, width: 1 }): `a` is given twice in one mapping
        Some(FilePosition { line: 1, column: 4, width: 1 }): this is not valid YAML: unclosed bracket '['
        Some(FilePosition { line: 1, column: 5, width: 1 }): this is not valid YAML: mapping values are not allowed in this context
        {a@1:2: Integer 1@1:5+1}@1:2+0
        Some(FilePosition { line: 1, column: 4, width: 1 }): this is not valid YAML: alias references unknown anchor
        Some(FilePosition { line: 3, column: 1, width: 0 }): the file has more than one YAML document
        Some(FilePosition { line: 1, column: 9, width: 1 }): this is not valid YAML: unsupported tag `!foo`
        Some(FilePosition { line: 1, column: 3, width: 1 }): this is not valid YAML: expected string scalar
        Some(FilePosition { line: 1, column: 17, width: 1 }): this is not valid YAML: recursion limit exceeded
        Some(FilePosition { line: 8, column: 25, width: 3 }): the file is nested too deeply, has too many values, or its aliases multiply too much
        ");
    }
}
