//! Reads `repo_config_source`: the source of the repository's file. Atlantis always reads the file of the pull.

use std::fmt;
use std::str::FromStr;

use crate::config::yaml::{
    FileReader, FromYaml, KeyDoc, KeyShape, Located, Shaped, ValueName, YamlNode, YamlValue,
    mapping,
};
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

mapping! {
    /// Keys of `repo_config_source` with a branch.
    pub(in crate::config) struct BranchMapping("`repo_config_source`") {
        branch: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Branch from which the file is read.",
            example: "main",
        },
    }
}

fn words() -> Vec<&'static str> {
    ConfigSource::WORDS.to_vec()
}

impl Shaped for ConfigSource {
    const SHAPE: KeyShape = KeyShape::Any(&[KeyShape::Words(words), BranchMapping::SHAPE]);
}

impl FromYaml for ConfigSource {
    /// Reads one of [`Self::WORDS`], or the form `{branch: NAME}`.
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        const HELP: &str = "write the name of a branch: `{branch: main}`";
        if !matches!(node.value, YamlValue::Map(_)) {
            let word = Located::read(reader, node, name)?;
            return reader.word_of(&word, &name.of_word(), &words());
        }
        let source: BranchMapping = reader.mapping(node)?;
        let branch = reader.required(&source, &source.branch, HELP)?;
        BranchName::new(&branch.text)
            .map(Self::Branch)
            .map_err(|error| reader.problem(branch.place, error.to_string(), HELP))
            .ok()
    }
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
