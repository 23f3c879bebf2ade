//! Lists of words that both files have: requirements, and which comments are left out (reference 4.2, 5.2).

use super::yaml::{Fields, Key, Kind, Located, Reader, words};
use crate::model::{Requirement, RunKind};

/// What [`read_silence`] knows: runs whose comments can be left out.
const SILENT: [RunKind; 2] = [RunKind::Plan, RunKind::Apply];

/// A list of requirements.
pub(in crate::config) const REQUIREMENTS: Kind =
    Kind::List(&Kind::Words(|| words(Requirement::ALL, Requirement::as_str)));

/// `silence_pr_comments`.
pub(in crate::config) const SILENCE: Key = Key::new(
    "silence_pr_comments",
    Kind::List(&Kind::Words(|| words(&SILENT, RunKind::as_str))),
    "none",
    "Runs whose results are not told in comments. Statuses and pages still tell them.",
    "[plan]",
);

/// Takes a list of requirements.
pub(in crate::config) fn read_requirements(
    reader: &mut Reader,
    fields: &Fields<'_>,
    key: &str,
) -> Option<Vec<Requirement>> {
    let texts = reader.texts(fields, key)?;
    Some(texts.iter().filter_map(|text| read_requirement(reader, text, key)).collect())
}

/// `policies_passed` is a word of the answers of Atlantis, so people write it.
fn read_requirement(reader: &mut Reader, text: &Located, key: &str) -> Option<Requirement> {
    if text.text.trim() == "policies_passed" {
        reader.later(text.place, &format!("`policies_passed` in `{key}`"));
        return None;
    }
    reader.word_of(text, &format!("an item of `{key}`"), &words(Requirement::ALL, Requirement::as_str))
}

/// Takes `silence_pr_comments`.
pub(in crate::config) fn read_silence(reader: &mut Reader, fields: &Fields<'_>) -> Option<Vec<RunKind>> {
    reader.word_list(fields, SILENCE.name, &words(&SILENT, RunKind::as_str))
}
