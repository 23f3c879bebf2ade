//! Globs for directories, in `dir` of a project (reference 4.2) and in `-d` of a comment (reference 3.7).
//!
//! `*` and `?` stay within a name, a segment `**` stands for any number of directories, and `[…]` and `{a,b}` are
//! choices.

use std::fmt;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::config::yaml::shown;
use crate::model::RepoPath;

/// The text is not a glob for directories.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGlob {
    /// The text has `..`, which could leave the repository.
    #[error("`{0}` has `..`, which is not allowed in a pattern of directories")]
    Climbs(String),
    /// The syntax is wrong.
    #[error("`{0}` is not a valid pattern of directories: {1}")]
    Syntax(String, String),
    /// The text is longer than any sensible glob.
    #[error(
        "the pattern of directories is longer than {} bytes",
        DirGlob::MAX_BYTES
    )]
    TooLong,
}

/// A checked glob for directories.
#[derive(Debug, Clone)]
pub struct DirGlob {
    text: String,
    globs: GlobSet,
}

impl DirGlob {
    /// Maximum length of a glob, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Returns true if the text is meant as a glob: it has one of `*?[` (reference 1.1, step 13).
    pub fn is_glob(text: &str) -> bool {
        text.contains(['*', '?', '['])
    }

    /// Checks a glob. Drops one leading `./` and `/`.
    pub fn new(text: &str) -> Result<Self, InvalidGlob> {
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidGlob::TooLong);
        }
        if text.contains("..") {
            return Err(InvalidGlob::Climbs(shown(text)));
        }
        let text = text.strip_prefix("./").unwrap_or(text);
        let text = text.strip_prefix('/').unwrap_or(text).trim_end_matches('/');
        let globs = compile(text)
            .map_err(|error| InvalidGlob::Syntax(shown(text), error.kind().to_string()))?;
        Ok(Self {
            text: text.to_owned(),
            globs,
        })
    }

    /// Returns the glob without its leading `./` or `/`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the directory matches. The root is the text `.`, so `*` matches it.
    pub fn matches(&self, dir: &RepoPath) -> bool {
        self.globs.is_match(dir.as_str())
    }

    /// Returns true if a walk along the glob from the root arrives at the directory. This differs from
    /// [`Self::matches`] only for the root: only `**` arrives there, because `*` needs a name.
    pub fn arrives_at(&self, dir: &RepoPath) -> bool {
        if dir.is_root() {
            self.text.split('/').all(|part| part == "**")
        } else {
            self.matches(dir)
        }
    }
}

/// Compiles a glob. The set has a second glob if `a/**` should also match `a`.
fn compile(text: &str) -> Result<GlobSet, globset::Error> {
    let glob = |text: &str| {
        GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
    };
    let mut set = GlobSetBuilder::new();
    set.add(glob(text)?);
    if let Some(parent) = text.strip_suffix("/**") {
        set.add(glob(parent)?);
    }
    set.build()
}

impl PartialEq for DirGlob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for DirGlob {}

impl fmt::Display for DirGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn globs_stay_within_a_name_unless_they_have_two_stars() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("*", &["a", "."], &["a/b"]),
            (
                "infra/*",
                &["infra/a", "infra/.b"],
                &["infra", "infra/a/b", "x/infra/a"],
            ),
            ("./infra/*/", &["infra/a"], &["infra"]),
            ("/infra/*", &["infra/a"], &[]),
            ("infra/**", &["infra", "infra/a", "infra/a/b"], &["x"]),
            ("**/prod", &["prod", "a/prod", "a/b/prod"], &["a/prod/b"]),
            ("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["ab"]),
            ("a?", &["ab"], &["a", "a/"]),
            ("[ab]*", &["ax", "b"], &["c"]),
            ("[!ab]", &["c"], &["a"]),
            ("{a,b}/*", &["a/x", "b/x"], &["c/x"]),
            ("**", &[".", "a", "a/b"], &[]),
        ];
        for (glob, yes, no) in cases {
            let glob = DirGlob::new(glob).unwrap();
            for dir in *yes {
                assert!(
                    glob.matches(&dir.parse().unwrap()),
                    "`{glob}` should match `{dir}`"
                );
            }
            for dir in *no {
                assert!(
                    !glob.matches(&dir.parse().unwrap()),
                    "`{glob}` should not match `{dir}`"
                );
            }
        }
    }

    #[test]
    fn only_two_stars_arrive_at_the_root() {
        for (glob, expected) in [
            ("**", true),
            ("**/**", true),
            ("*", false),
            ("?", false),
            ("**/*", false),
        ] {
            assert_eq!(
                DirGlob::new(glob).unwrap().arrives_at(&RepoPath::root()),
                expected,
                "{glob}"
            );
        }
    }

    #[test]
    fn bad_globs_are_refused_with_the_reason() {
        let nested = format!("{}{}", "{*,".repeat(250), "}".repeat(250));
        let texts =
            ["a/../*", "[", "[z-a]", "{a*", r"a*\", &nested].map(|text| match DirGlob::new(text) {
                Ok(glob) => format!("fine: {glob}"),
                Err(error) => error.to_string(),
            });
        insta::assert_snapshot!(texts.join("\n"), @r"
        `a/../*` has `..`, which is not allowed in a pattern of directories
        `[` is not a valid pattern of directories: unclosed character class; missing ']'
        `[z-a]` is not a valid pattern of directories: invalid range; 'z' > 'a'
        `{a*` is not a valid pattern of directories: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
        `a*\` is not a valid pattern of directories: dangling '\'
        `{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*,{*…` is not a valid pattern of directories: error parsing pattern 0
        ");
        assert_eq!(DirGlob::new(&"*".repeat(2000)), Err(InvalidGlob::TooLong));
    }

    proptest! {
        #[test]
        fn no_text_makes_a_glob_panic(text in r"(?s).{0,40}", signs in r"[\[\]\\^!*?/.a-c{},-]{0,24}") {
            for text in [text, signs] {
                if let Ok(glob) = DirGlob::new(&text) {
                    let _matched = glob.matches(&RepoPath::root());
                }
            }
        }
    }
}
