//! Reads lists of words that both files have: requirements, and runs without comments (reference 4.2, 5.2).

use std::collections::BTreeSet;

use super::yaml::{
    FileReader, FromYaml, KeyDoc, KeyShape, Located, Mapping, Shaped, ValueName, YamlNode,
    YamlValue, mapping, words,
};
use crate::model::{Requirement, RunKind};

mapping! {
    /// Keys of a requirement that is a mapping.
    pub(in crate::config) struct RequirementMapping("a requirement") {
        approved: ApprovedMapping = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "The requirement `approved` with options.",
            example: "{stale: true}",
        },
    }
    exactly_one: true,
}

mapping! {
    /// Options of the requirement `approved`.
    pub(in crate::config) struct ApprovedMapping("`approved`") {
        stale: bool = KeyDoc {
            default: "`false`",
            meaning: "Count reviews of older commits too. If the server and the repository differ, the stricter value is \
                      in effect. Not a key of Atlantis.",
            example: "true",
        },
    }
}

/// Documentation of `silence_pr_comments` of both files.
pub(in crate::config) const SILENCE: KeyDoc = KeyDoc {
    default: "none",
    meaning: "Runs whose results are not posted in comments. Statuses and pages still show them.",
    example: "[plan]",
};

/// Runs whose comments are left out.
pub(in crate::config) struct SilencedRuns(pub(in crate::config) BTreeSet<RunKind>);

impl SilencedRuns {
    /// Runs whose comments can be left out.
    const POSSIBLE: [RunKind; 2] = [RunKind::Plan, RunKind::Apply];

    fn words() -> Vec<&'static str> {
        words(&Self::POSSIBLE, RunKind::as_str)
    }
}

impl Shaped for SilencedRuns {
    const SHAPE: KeyShape = KeyShape::List(&KeyShape::Words(Self::words));
}

impl FromYaml for SilencedRuns {
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        let texts: Vec<Located> = Vec::read(reader, node, name)?;
        let runs = texts
            .iter()
            .filter_map(|text| reader.word_of(text, &name.item().of_word(), &Self::words()));
        Some(Self(runs.collect()))
    }
}

fn requirements() -> Vec<&'static str> {
    words(Requirement::WORDS, Requirement::as_str)
}

impl Shaped for Requirement {
    const SHAPE: KeyShape =
        KeyShape::Any(&[KeyShape::Words(requirements), RequirementMapping::SHAPE]);
}

impl FromYaml for Requirement {
    /// Reads a word, or the form `approved: {stale: true}`. Knows `policies_passed`, because people copy it from the
    /// answers of Atlantis.
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        if matches!(node.value, YamlValue::Map(_)) {
            let requirement = reader.mapping(node)?;
            return read_approved(reader, &requirement);
        }
        let text = Located::read(reader, node, name)?;
        if text.text.trim() == "policies_passed" {
            reader.problem(
                text.place,
                format!("`policies_passed` cannot be written in `{}`", name.key),
                "remove it: with policy checks, every apply requires that the policies of its plan passed",
            );
            return None;
        }
        reader.word_of(&text, &name.of_word(), &requirements())
    }
}

fn read_approved(reader: &mut FileReader, requirement: &RequirementMapping) -> Option<Requirement> {
    if !requirement.approved.is_set() {
        let what = "`approved` has no options".to_owned();
        reader.problem(requirement.place(), what, HELP);
    }
    let approved = requirement.approved.read(reader)?;
    let stale = approved.stale.read(reader).unwrap_or_default();
    Some(if stale {
        Requirement::ApprovedOnce
    } else {
        Requirement::Approved
    })
}

const HELP: &str =
    "write `approved`, or `approved: {stale: true}` to count reviews of older commits";
