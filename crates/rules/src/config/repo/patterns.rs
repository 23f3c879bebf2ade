//! Lists of file patterns with the rules of a `.dockerignore` file, for `when_modified` and `--autoplan-file-list`
//! (reference 3.3, 3.4). A later pattern overrides an earlier one, `!` excludes files again, and a pattern that
//! matches a directory matches everything in it.
//!
//! Patterns are relative to a base directory, which the caller passes for each match. So thousands of projects with
//! the same list share one compiled list, and special characters in the name of a directory have no meaning.

use std::sync::Arc;

use regex::Regex;

use super::pattern_syntax::{self, InvalidPattern};
use crate::model::RepoPath;

/// A checked list of patterns. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Arc<[Pattern]>);

/// One pattern of a list.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    /// Text of the pattern, without the white space around it.
    text: Arc<str>,
    /// True if the pattern excludes files.
    excludes: bool,
    /// Number of directories that the pattern climbs above the base.
    climbs: usize,
    rule: PatternRule,
}

#[derive(Debug, Clone)]
enum PatternRule {
    /// Matches everything in the base.
    Everything,
    /// A path without special characters, and everything in it.
    Literal(Arc<str>),
    /// An expression for a path or one of the directories above it.
    Regex(Regex),
}

impl Patterns {
    /// Checks patterns. The first invalid one is the error.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidPattern> {
        patterns
            .into_iter()
            .map(Pattern::new)
            .collect::<Result<Vec<_>, _>>()
            .map(Self::from_list)
    }

    /// Parses a list with commas, as flags have it. Skips empty items.
    pub fn from_flag(list: &str) -> Result<Self, InvalidPattern> {
        Self::new(list.split(',').filter(|pattern| !pattern.trim().is_empty()))
    }

    pub(super) fn from_list(patterns: Vec<Pattern>) -> Self {
        Self(patterns.into())
    }

    /// Returns the patterns as they were written.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|pattern| &*pattern.text)
    }

    /// Returns each pattern that includes files, as a list of its own.
    pub fn including(&self) -> impl Iterator<Item = Self> {
        let including = self.0.iter().filter(|pattern| !pattern.excludes);
        including.map(|pattern| Self::from_list(vec![pattern.clone()]))
    }

    /// Returns the number of patterns, which is the cost of matching one file.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the list is empty. An empty list matches nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the pattern that makes the list match `file`, or `None` if the list does not match.
    pub fn matching(&self, base: &RepoPath, file: &RepoPath) -> Option<&str> {
        let mut matched = None;
        for pattern in self.0.iter() {
            // Only a pattern that can change the answer is tried.
            if pattern.excludes == matched.is_some() && pattern.matches(base, file) {
                matched = (!pattern.excludes).then_some(&*pattern.text);
            }
        }
        matched
    }

    /// Returns the lowest directory that contains all possible matches, for a project in `base`.
    pub fn reach(&self, base: &RepoPath) -> RepoPath {
        let including = self.0.iter().filter(|pattern| !pattern.excludes);
        let highest = including
            .filter_map(|pattern| ancestor(base, pattern.climbs))
            .min_by_key(|dir| dir.len());
        RepoPath::new(highest.unwrap_or(base.as_str())).unwrap_or_else(|_| RepoPath::root())
    }
}

/// Two lists are equal if their texts are equal.
impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        self.texts().eq(other.texts())
    }
}

impl Eq for Patterns {}

impl Pattern {
    /// Checks and compiles one pattern.
    pub(super) fn new(text: &str) -> Result<Self, InvalidPattern> {
        let text = text.trim();
        if text.len() > InvalidPattern::MAX_BYTES {
            return Err(InvalidPattern::TooLong);
        }
        let (excludes, body) = text
            .strip_prefix('!')
            .map_or((false, text), |body| (true, body.trim_start()));
        if body.is_empty() {
            return Err(if excludes {
                InvalidPattern::OnlyExclamation
            } else {
                InvalidPattern::Empty
            });
        }
        let (climbs, clean) = clean(body);
        Ok(Self {
            text: text.into(),
            excludes,
            climbs,
            rule: PatternRule::new(&clean)?,
        })
    }

    fn matches(&self, base: &RepoPath, file: &RepoPath) -> bool {
        let below = ancestor(base, self.climbs).and_then(|dir| below(dir, file.as_str()));
        below.is_some_and(|path| self.rule.matches(path))
    }
}

impl PatternRule {
    fn new(clean: &str) -> Result<Self, InvalidPattern> {
        if clean.is_empty() {
            return Ok(Self::Everything);
        }
        if !clean.contains(pattern_syntax::SPECIAL) {
            return Ok(Self::Literal(clean.into()));
        }
        pattern_syntax::compile(clean).map(Self::Regex)
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Literal(text) => path
                .strip_prefix(&**text)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            Self::Regex(regex) => regex.is_match(path),
        }
    }
}

/// Cleans a pattern as a path. Returns the number of directories that it climbs, and the rest (empty for the
/// directory itself). A leading slash stands for the base.
fn clean(pattern: &str) -> (usize, String) {
    let absolute = pattern.starts_with('/');
    let (mut climbs, mut parts) = (0, Vec::new());
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_some() || absolute => {}
            ".." => climbs += 1,
            name => parts.push(name),
        }
    }
    (climbs, parts.join("/"))
}

/// Returns the directory `climbs` levels above: `""` for the root, `None` above it.
fn ancestor(base: &RepoPath, climbs: usize) -> Option<&str> {
    let mut dir = if base.is_root() { "" } else { base.as_str() };
    for _ in 0..climbs {
        if dir.is_empty() {
            return None;
        }
        dir = dir.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    Some(dir)
}

/// Returns the part of `file` after `dir`, or `None` if the file is not in the directory.
fn below<'a>(dir: &str, file: &'a str) -> Option<&'a str> {
    if dir.is_empty() {
        Some(file)
    } else {
        file.strip_prefix(dir)?.strip_prefix('/')
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> RepoPath {
        RepoPath::new(text).unwrap()
    }

    fn matches(base: &str, patterns: &[&str], file: &str) -> bool {
        Patterns::new(patterns.iter().copied())
            .unwrap()
            .matching(&path(base), &path(file))
            .is_some()
    }

    #[test]
    fn each_sign_means_what_it_means_in_a_dockerignore_file() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "main.tf",
                &["main.tf", "main.tf/x"],
                &["a/main.tf", "main.tfx", "xmain.tf"],
            ),
            (
                "*.tf",
                &["a.tf", ".tf", "x.tf/deep/file"],
                &["a/b.tf", "a.tfvars"],
            ),
            ("**/*.tf", &["a.tf", "a/b.tf", "a/b/c.tf"], &["a.tfvars"]),
            (
                "**/*.tf*",
                &["a.tf", "a/b.tfvars", "a/b.tf.json", "a/x.tf.d/y"],
                &["a/tf"],
            ),
            ("**", &["a", "a/b/c"], &[]),
            ("*", &["a", "a/b/c"], &[]),
            ("a/**", &["a/b", "a/b/c"], &["a", "ab", "b/a"]),
            (
                "a/**/b",
                &["a/b", "a/x/b", "a/x/y/b", "a/b/c"],
                &["ab", "a/xb", "b"],
            ),
            ("a**b", &["ab", "ax/b"], &["axb"]),
            ("**foo", &["foo", "xfoo", "a/foo", "a/xfoo"], &["foox"]),
            ("**/foo", &["foo", "a/foo", "foo/x"], &["xfoo"]),
            ("**foo*", &["foo", "a/foox"], &["xfoo"]),
            ("a?c", &["abc", "aéc"], &["ac", "a/c", "abbc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "-x", "x"]),
            ("[^a-c]x", &["dx"], &["ax", "x"]),
            ("[!a]x", &["!x", "ax"], &["bx"]),
            (r"[\]\-]x", &["]x", "-x"], &["ax", r"\x"]),
            (r"\*.tf", &["*.tf"], &["a.tf"]),
            ("a.b+(c)|{d}$^", &["a.b+(c)|{d}$^"], &["aXb+(c)|{d}$^"]),
            ("{a,b}.tf", &["{a,b}.tf"], &["a.tf"]),
            ("a]*", &["a]b"], &["ab"]),
            ("dir/", &["dir", "dir/a/b"], &["dirx"]),
            ("./a//b/../c", &["a/c"], &["a/b/c"]),
            ("/a", &["a", "a/b"], &["b/a"]),
            ("/../a", &["a"], &[]),
            ("  a \t", &["a"], &[]),
            (".", &["a", "a/b"], &[]),
            ("../a", &[], &["a"]),
        ];
        for (pattern, yes, no) in cases {
            for file in *yes {
                assert!(
                    matches(".", &[pattern], file),
                    "`{pattern}` should match `{file}`"
                );
            }
            for file in *no {
                assert!(
                    !matches(".", &[pattern], file),
                    "`{pattern}` should not match `{file}`"
                );
            }
        }
    }

    #[test]
    fn patterns_are_relative_to_the_base_and_may_climb() {
        let cases = [
            ("a/b", "*.tf", "a/b/x.tf", true),
            ("a/b", "*.tf", "a/x.tf", false),
            ("a/b", "*.tf", "a/bc/x.tf", false),
            ("a/b", "../*.tf", "a/x.tf", true),
            ("a/b", "../../modules/**/*.tf", "modules/net/x.tf", true),
            ("a/b", "../../*.tf", "x.tf", true),
            ("a/b", "../../../*.tf", "x.tf", false),
            ("a/b", "../..", "anything/at/all", true),
            ("a/b", "..", "a/c", true),
            ("a/b", "..", "b/c", false),
            ("a/b", "x/../../c", "a/c", true),
            ("a[1]", "*.tf", "a[1]/x.tf", true),
            ("a[1]", "*.tf", "a1/x.tf", false),
        ];
        for (base, pattern, file, expected) in cases {
            assert_eq!(
                matches(base, &[pattern], file),
                expected,
                "{base}: {pattern} and {file}"
            );
        }
    }

    #[test]
    fn the_last_pattern_that_matches_decides() {
        let cases: &[(&[&str], &str, bool)] = &[
            (&["**/*.tf", "!test.tf"], "test.tf", false),
            (&["**/*.tf", "!test.tf"], "a/test.tf", true),
            (&["**/*.tf", "!**/test.tf"], "a/test.tf", false),
            (&["!test.tf", "**/*.tf"], "test.tf", true),
            (&["**", "!docs", "docs/keep.tf"], "docs/a.md", false),
            (&["**", "!docs", "docs/keep.tf"], "docs/keep.tf", true),
            (&["**", " ! docs "], "docs/a.md", false),
            (&["!a"], "b", false),
            (&[], "a", false),
        ];
        for (patterns, file, expected) in cases {
            assert_eq!(
                matches(".", patterns, file),
                *expected,
                "{patterns:?} and {file}"
            );
        }
        let patterns = Patterns::new(["*.tf", "!a.tf", "a.*"]).unwrap();
        assert_eq!(patterns.matching(&path("."), &path("a.tf")), Some("a.*"));
    }

    #[test]
    fn a_flag_lists_patterns_with_commas() {
        assert_eq!(
            Patterns::from_flag("a, b,,").unwrap(),
            Patterns::new(["a", "b"]).unwrap()
        );
        assert!(Patterns::from_flag("").unwrap().is_empty());
        assert!(Patterns::from_flag("a,[").is_err());
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        let long = "a".repeat(2000);
        let bad = [
            "", "  ", "!", "! ", "[", "[]", "[]a]", "[^]", "[a", "[a-]", "[-a]", "[z-a]", r"a\",
            r"[\", &long,
        ];
        let reasons = bad.map(|text| Patterns::new([text]).unwrap_err().to_string());
        insta::assert_snapshot!(reasons.join("\n"), @r"
        the pattern is empty
        the pattern is empty
        no pattern follows the `!`
        no pattern follows the `!`
        `[` is not closed by `]`
        `[…]` is empty, or has a `-` or `]` that needs a backslash before it
        `[…]` is empty, or has a `-` or `]` that needs a backslash before it
        `[…]` is empty, or has a `-` or `]` that needs a backslash before it
        `[` is not closed by `]`
        `[…]` is empty, or has a `-` or `]` that needs a backslash before it
        `[…]` is empty, or has a `-` or `]` that needs a backslash before it
        the end of a range in `[…]` is before its beginning
        no character follows the `\` at the end
        `[` is not closed by `]`
        the pattern is longer than 1024 bytes
        ");
    }

    #[test]
    fn nothing_outside_the_reach_matches() {
        let reach = |patterns: &[&str]| {
            Patterns::new(patterns.iter().copied())
                .unwrap()
                .reach(&path("a/b/c"))
        };
        assert_eq!(reach(&["*.tf"]), path("a/b/c"));
        assert_eq!(reach(&["*.tf", "../x", "!../../../y"]), path("a/b"));
        assert_eq!(reach(&["../../../x"]), path("."));
        assert_eq!(reach(&["../../../../x"]), path("a/b/c"));
        assert_eq!(reach(&[]), path("a/b/c"));
    }

    proptest! {
        #[test]
        fn no_text_makes_a_pattern_panic(text in r"(?s).{0,40}", signs in r"[\[\]\\^!*?/.a-c{}()|+$&~-]{0,24}", file in "[a-c/.*-]{1,12}") {
            for pattern in [text.as_str(), signs.as_str()] {
                if let (Ok(patterns), Ok(file)) = (Patterns::new([pattern]), RepoPath::new(&file)) {
                    let _matched = patterns.matching(&path("a/b"), &file);
                }
            }
        }

        #[test]
        fn a_pattern_that_matches_a_directory_matches_all_in_it(
            pattern in r"[a-c/*?]{1,8}", dir in "[a-c]{1,2}(/[a-c]{1,2}){0,2}", name in "[a-c]{1,3}"
        ) {
            if let Ok(patterns) = Patterns::new([pattern.as_str()]) {
                let inside = path(&dir).join(&name).unwrap();
                if patterns.matching(&path("."), &path(&dir)).is_some() {
                    prop_assert!(patterns.matching(&path("."), &inside).is_some());
                }
            }
        }

        #[test]
        fn what_matches_lies_within_the_reach(
            pattern in r"(\.\./){0,3}[a-c/*]{1,6}", base in "[a-c](/[a-c]){0,3}", file in "[a-c](/[a-c]){0,4}"
        ) {
            if let Ok(patterns) = Patterns::new([pattern.as_str()]) {
                let (base, file) = (path(&base), path(&file));
                prop_assert!(patterns.matching(&base, &file).is_none() || patterns.reach(&base).contains(&file));
            }
        }
    }
}
