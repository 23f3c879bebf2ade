//! Reads lists of words that both files have: requirements, and runs without comments (reference 4.2, 5.2).

use super::yaml::{
    DocumentedKey, Fields, FileReader, KeyShape, Located, MappingKeys, YamlNode, YamlValue, words,
};
use crate::model::{Requirement, RunKind};

/// Runs that [`read_silence`] accepts, because their comments can be left out.
const SILENT: [RunKind; 2] = [RunKind::Plan, RunKind::Apply];

/// Kind of a list of requirements.
pub(in crate::config) const REQUIREMENTS: KeyShape = KeyShape::List(&KeyShape::Any(&[
    KeyShape::Words(|| words(Requirement::WORDS, Requirement::as_str)),
    KeyShape::Map(&REQUIREMENT),
]));

static REQUIREMENT: MappingKeys = MappingKeys::choice(
    "a requirement",
    &[DocumentedKey::new(
        "approved",
        KeyShape::Map(&APPROVED),
        DocumentedKey::REQUIRED,
        "The requirement `approved` with options.",
        "{stale: true}",
    )],
);

static APPROVED: MappingKeys = MappingKeys::new(
    "`approved`",
    &[DocumentedKey::new(
        "stale",
        KeyShape::Switch,
        "`false`",
        "Count reviews of older commits too. If the server and the repository differ, the stricter value is in effect. \
         Not a key of Atlantis.",
        "true",
    )],
);

pub(in crate::config) const SILENCE: DocumentedKey = DocumentedKey::new(
    "silence_pr_comments",
    KeyShape::List(&KeyShape::Words(|| words(&SILENT, RunKind::as_str))),
    "none",
    "Runs whose results are not posted in comments. Statuses and pages still show them.",
    "[plan]",
);

/// Reads a list of requirements.
pub(in crate::config) fn read_requirements(
    reader: &mut FileReader,
    fields: &Fields<'_>,
    key: &str,
) -> Option<Vec<Requirement>> {
    let items = reader.list(fields, key)?;
    Some(
        items
            .iter()
            .filter_map(|item| read_requirement(reader, item, key))
            .collect(),
    )
}

fn read_requirement(reader: &mut FileReader, item: &YamlNode, key: &str) -> Option<Requirement> {
    if matches!(item.value, YamlValue::Map(_)) {
        return read_approved(reader, item);
    }
    let text = reader.text_of(item, &format!("an item of `{key}`"))?;
    read_word(reader, &text, key)
}

/// Reads the form `approved: {stale: true}`.
fn read_approved(reader: &mut FileReader, item: &YamlNode) -> Option<Requirement> {
    let fields = reader.fields(item, &REQUIREMENT)?;
    let Some(node) = fields.get("approved") else {
        reader.problem(item.place, "`approved` has no options".to_owned(), HELP);
        return None;
    };
    let approved = reader.fields(node, &APPROVED)?;
    let stale = reader.boolean(&approved, "stale").unwrap_or_default();
    Some(if stale {
        Requirement::ApprovedOnce
    } else {
        Requirement::Approved
    })
}

const HELP: &str =
    "write `approved`, or `approved: {stale: true}` to count reviews of older commits";

/// Reads a requirement that is one word. Accepts `policies_passed`, because people copy it from the answers of
/// Atlantis.
fn read_word(reader: &mut FileReader, text: &Located, key: &str) -> Option<Requirement> {
    if text.text.trim() == "policies_passed" {
        reader.later(text.place, &format!("`policies_passed` in `{key}`"));
        return None;
    }
    reader.word_of(
        text,
        &format!("an item of `{key}`"),
        &words(Requirement::WORDS, Requirement::as_str),
    )
}

/// Reads the list of runs whose comments are left out.
pub(in crate::config) fn read_silence(
    reader: &mut FileReader,
    fields: &Fields<'_>,
) -> Option<Vec<RunKind>> {
    reader.word_list(fields, SILENCE.name, &words(&SILENT, RunKind::as_str))
}
