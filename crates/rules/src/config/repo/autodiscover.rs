//! Discovery of projects that no configuration lists (reference 3.5).

use std::fmt;
use std::str::FromStr;

use super::{AutodiscoverRequest, DirGlob};
use crate::config::yaml::{
    Field, FileReader, KeyDoc, Located, Mapping, Vocabulary, mapping, shown, words,
};

/// Condition under which directories that no project names become projects automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AutodiscoverMode {
    /// Only if the repository configures no project at all.
    #[default]
    Auto,
    /// In every repository, in addition to the configured projects.
    Enabled,
    /// In no repository at all.
    Disabled,
}

impl AutodiscoverMode {
    /// All modes, for messages and tables.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Enabled, Self::Disabled];

    /// Returns the spelling in flags and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
        }
    }

    /// Returns true if a repository with that many configured projects is searched.
    pub const fn is_active(self, configured_projects: usize) -> bool {
        match self {
            Self::Auto => configured_projects == 0,
            Self::Enabled => true,
            Self::Disabled => false,
        }
    }
}

/// The text is not a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the autodiscover mode must be `auto`, `enabled` or `disabled`")]
pub struct InvalidMode;

impl FromStr for AutodiscoverMode {
    type Err = InvalidMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or(InvalidMode)
    }
}

impl fmt::Display for AutodiscoverMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

mapping! {
    /// Keys of `autodiscover` in both files.
    pub(in crate::config) struct AutodiscoverMapping("`autodiscover`") {
        mode: AutodiscoverMode = KeyDoc {
            default: "`auto`",
            meaning: "`enabled`: directories that no project names are projects too. `disabled`: they are not. `auto`: \
                      only if the repository lists no project.",
            example: "enabled",
        },
        ignore_paths: Vec<Located> = KeyDoc {
            default: "none",
            meaning: "Directories that never become projects automatically; patterns may have `*`, `**`, `?`, `[a-z]` and `{a,b}`.",
            example: "[legacy/**]",
        },
    }
}

impl Vocabulary for AutodiscoverMode {
    fn words() -> Vec<&'static str> {
        words(&Self::ALL, Self::as_str)
    }
}

/// Maximum number of entries of `ignore_paths`, because each is tried on every directory.
const MAX_IGNORED: usize = 100;

/// Reads `autodiscover` from either file. A block without `mode` means `auto`, as in Atlantis.
pub(in crate::config) fn read(
    reader: &mut FileReader,
    autodiscover: &Field<AutodiscoverMapping>,
) -> Option<AutodiscoverRequest> {
    let block = autodiscover.read(reader)?;
    Some(AutodiscoverRequest {
        mode: block.mode.read(reader).unwrap_or_default(),
        ignore_paths: read_ignored(reader, &block),
        line: block.place().line,
    })
}

fn read_ignored(reader: &mut FileReader, block: &AutodiscoverMapping) -> Option<Vec<DirGlob>> {
    let texts = block.ignore_paths.read(reader)?;
    if texts.len() > MAX_IGNORED {
        let what = format!(
            "there are {} `ignore_paths`; the maximum is {MAX_IGNORED}",
            texts.len()
        );
        reader.problem_of_file(what, "join patterns, for example with `{a,b}` or `**`");
        return None;
    }
    Some(
        texts
            .iter()
            .filter_map(|text| read_glob(reader, text))
            .collect(),
    )
}

fn read_glob(reader: &mut FileReader, text: &Located) -> Option<DirGlob> {
    const HELP: &str = "write a path from the root of the repository without a slash before it, such as `legacy/**`";
    if text.text.trim().is_empty() || text.text.starts_with('/') {
        let what = format!(
            "`{}` is not a valid pattern of directories",
            shown(&text.text)
        );
        reader.problem(text.place, what, HELP);
        return None;
    }
    DirGlob::new(&text.text)
        .map_err(|error| reader.problem(text.place, error.to_string(), HELP))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in AutodiscoverMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("Auto".parse::<AutodiscoverMode>(), Err(InvalidMode));
    }

    #[test]
    fn auto_discovers_only_where_nothing_is_configured() {
        let active = AutodiscoverMode::ALL.map(|mode| (mode.is_active(0), mode.is_active(1)));
        assert_eq!(active, [(true, false), (true, true), (false, false)]);
    }
}
