//! Reads `repo_config_source`: the source of the repository's file. Atlantis always reads the file of the pull.

use std::fmt;
use std::str::FromStr;

use crate::config::yaml::{DocumentedKey, Fields, FileReader, KeyShape, MappingKeys, YamlValue};
use crate::model::BranchName;

/// Source of the repository's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// The head of the pull.
    PullHead,
    /// The head merged into the base branch.
    MergeResult,
    /// The base branch, so that a pull cannot change its own rules.
    Base,
    /// A fixed branch, independent of the base branch.
    Branch(BranchName),
}

impl ConfigSource {
    /// Spellings of the sources without a branch.
    pub const WORDS: [&str; 3] = ["pull_head", "merge_result", "base"];
}

/// The text is not a source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither `pull_head`, `merge_result`, `base` nor `branch:NAME`")]
pub struct InvalidSource(String);

impl FromStr for ConfigSource {
    type Err = InvalidSource;

    /// Parses the syntax of a flag: one of [`Self::WORDS`], or `branch:NAME`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || InvalidSource(crate::config::yaml::shown(text));
        match text {
            "pull_head" => Ok(Self::PullHead),
            "merge_result" => Ok(Self::MergeResult),
            "base" => Ok(Self::Base),
            text => {
                let name = text.strip_prefix("branch:").ok_or_else(refuse)?;
                BranchName::new(name)
                    .map(Self::Branch)
                    .map_err(|_| refuse())
            }
        }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PullHead => f.write_str("pull_head"),
            Self::MergeResult => f.write_str("merge_result"),
            Self::Base => f.write_str("base"),
            Self::Branch(name) => write!(f, "branch:{name}"),
        }
    }
}

/// Kind of the value of the key.
pub(super) const SOURCE: KeyShape = KeyShape::Any(&[
    KeyShape::Words(|| ConfigSource::WORDS.to_vec()),
    KeyShape::Map(&BRANCH),
]);

static BRANCH: MappingKeys = MappingKeys::new(
    "`repo_config_source`",
    &[DocumentedKey::new(
        "branch",
        KeyShape::Text,
        DocumentedKey::REQUIRED,
        "Branch from which the file is read.",
        "main",
    )],
);

/// Reads `repo_config_source` from an entry of the server's file.
pub(super) fn read(reader: &mut FileReader, fields: &Fields<'_>) -> Option<ConfigSource> {
    const HELP: &str = "write the name of a branch: `{branch: main}`";
    let node = fields.get("repo_config_source")?;
    if !matches!(node.value, YamlValue::Map(_)) {
        return reader.word(fields, "repo_config_source", &ConfigSource::WORDS);
    }
    let branch = reader.fields(node, &BRANCH)?;
    if branch.get("branch").is_none() {
        reader.problem(
            node.place,
            "`repo_config_source` has no `branch`".to_owned(),
            HELP,
        );
    }
    let name = reader.text(&branch, "branch")?;
    let read = BranchName::new(&name.text).map(ConfigSource::Branch);
    read.map_err(|error| reader.problem(name.place, error.to_string(), HELP))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_they_are_written() {
        for text in ["pull_head", "merge_result", "base", "branch:release/1"] {
            assert_eq!(text.parse::<ConfigSource>().unwrap().to_string(), text);
        }
        for text in ["", "head", "branch", "branch:", "branch:a..b", "Base"] {
            assert!(text.parse::<ConfigSource>().is_err(), "{text}");
        }
    }
}
