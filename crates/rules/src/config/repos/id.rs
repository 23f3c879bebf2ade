//! Selects the repositories of an entry: `id` (reference 5.2), a name or a regular expression.
//!
//! In Atlantis an expression matches if it fits any part of the id, so `/acme\/infra/` also selects
//! `evilacme/infra-2`. Here an expression must fit the whole id. A warning names entries that relied on the old rule,
//! see [`Match::Part`].

use std::fmt;

use regex::{Regex, RegexBuilder};

use crate::config::yaml::shown;
use crate::model::RepoId;

/// The `id` of an entry, checked.
#[derive(Debug, Clone)]
pub(super) struct IdPattern {
    text: String,
    rule: IdRule,
}

#[derive(Debug, Clone)]
enum IdRule {
    Exact(RepoId),
    Regex { whole: Regex, part: Regex },
}

/// Result of comparing an id with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// The entry selects the repository.
    Whole,
    /// The expression fits only a part of the id. The entry does not select the repository, but it would in Atlantis.
    Part,
    /// The entry does not select the repository.
    No,
}

/// The text is not an `id`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidId {
    /// The text is neither a repository nor an expression.
    #[error("`{0}` is neither a repository nor a regular expression between slashes")]
    Form(String),
    /// The text begins with a slash, like an expression, but does not end with one.
    #[error("`{0}` begins like a regular expression, but does not end with a slash")]
    Open(String),
    /// The expression between the slashes is empty.
    #[error("`{0}` is a regular expression that matches no repository")]
    Empty(String),
    /// The text between the slashes is not an expression.
    #[error("`{0}` is not a regular expression: {1}")]
    Regex(String, String),
}

impl InvalidId {
    /// Returns the correction to suggest.
    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::Form(_) | Self::Empty(_) => {
                r"write `host/owner/repo`, or an expression such as `/github\.com/acme/.*/` (`/.*/` is every repository)"
            }
            Self::Open(_) => r"write a slash before and after it, as in `/github\.com/acme/.*/`",
            Self::Regex(..) => "see https://docs.rs/regex/#syntax; the syntax is almost that of Go",
        }
    }
}

impl IdPattern {
    pub(super) fn new(text: &str) -> Result<Self, InvalidId> {
        let text = text.trim();
        let rule = match text.strip_prefix('/') {
            Some(rest) => rule(
                text,
                rest.strip_suffix('/')
                    .ok_or_else(|| InvalidId::Open(shown(text)))?,
            )?,
            None => IdRule::Exact(text.parse().map_err(|_| InvalidId::Form(shown(text)))?),
        };
        Ok(Self {
            text: text.to_owned(),
            rule,
        })
    }

    /// Compares the pattern with a repository. `id` is the text of `repo`.
    pub(super) fn matches(&self, repo: &RepoId, id: &str) -> Match {
        match &self.rule {
            IdRule::Exact(own) if own == repo => Match::Whole,
            IdRule::Regex { whole, .. } if whole.is_match(id) => Match::Whole,
            IdRule::Regex { part, .. } if part.is_match(id) => Match::Part,
            IdRule::Exact(_) | IdRule::Regex { .. } => Match::No,
        }
    }
}

/// Compiles an expression. Compiles it alone first, so that no expression can close the group that anchors it.
fn rule(text: &str, expression: &str) -> Result<IdRule, InvalidId> {
    if expression.is_empty() {
        return Err(InvalidId::Empty(shown(text)));
    }
    let refuse = |error: regex::Error| InvalidId::Regex(shown(text), reason(&error));
    let part = compile(expression).map_err(refuse)?;
    let whole = compile(&format!(r"\A(?:{expression})\z")).map_err(refuse)?;
    Ok(IdRule::Regex { whole, part })
}

/// Compiles an expression without case, because forges compare names without case.
fn compile(expression: &str) -> Result<Regex, regex::Error> {
    // Maximum memory of one compiled expression, in bytes.
    const MAX_COMPILED: usize = 1 << 20;
    RegexBuilder::new(expression)
        .case_insensitive(true)
        .size_limit(MAX_COMPILED)
        .build()
}

/// Returns the last line of the error. The lines before it draw the expression.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl fmt::Display for IdPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl PartialEq for IdPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for IdPattern {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, repo: &str) -> Match {
        let repo: RepoId = repo.parse().unwrap();
        IdPattern::new(pattern)
            .unwrap()
            .matches(&repo, &repo.to_string())
    }

    #[test]
    fn an_id_fits_as_a_whole_or_not_at_all() {
        use Match::{No, Part, Whole};
        for (pattern, repo, expected) in [
            ("github.com/acme/infra", "github.com/acme/infra", Whole),
            ("GitHub.com/Acme/Infra", "github.com/acme/infra", Whole),
            ("github.com/acme/infra", "github.com/acme/infra-2", No),
            ("github.com/acme/infra", "ghe.example.com/acme/infra", No),
            ("/.*/", "github.com/acme/infra", Whole),
            (r"/github\.com\/acme\/.*/", "github.com/acme/infra", Whole),
            (r"/github\.com/acme/.*/", "github.com/acme/infra", Whole),
            ("/github.com/Acme/.*/", "github.com/acme/infra", Whole),
            ("/acme/", "github.com/acme/infra", Part),
            ("/acme/infra/", "github.com/acme/infra", Part),
            ("/^github.com/acme/infra$/", "github.com/acme/infra", Whole),
            ("/^github.com/acme/i/", "github.com/acme/infra", Part),
            (
                "/github.com/acme/a|github.com/acme/b/",
                "github.com/acme/b",
                Whole,
            ),
            (
                "/github.com/acme/a|github.com/acme/b/",
                "github.com/acme/bc",
                Part,
            ),
            (
                "/github.com/acme/(a|infra)/",
                "github.com/acme/infra",
                Whole,
            ),
            ("/umbrella/", "github.com/acme/infra", No),
        ] {
            assert_eq!(matches(pattern, repo), expected, "{pattern} {repo}");
        }
    }

    #[test]
    fn what_is_no_id_is_refused_with_the_reason() {
        let bad = [
            "",
            "acme/infra",
            "github.com/acme/*",
            "https://github.com/acme/infra",
            "/acme",
            "/",
            "//",
            "/a(/",
            "/a)|(?:b/",
        ];
        let told = bad.map(|text| {
            let error = IdPattern::new(text).unwrap_err();
            format!("{error} => {}", error.help())
        });
        insta::assert_snapshot!(told.join("\n"), @r"
        `` is neither a repository nor a regular expression between slashes => write `host/owner/repo`, or an expression such as `/github\.com/acme/.*/` (`/.*/` is every repository)
        `acme/infra` is neither a repository nor a regular expression between slashes => write `host/owner/repo`, or an expression such as `/github\.com/acme/.*/` (`/.*/` is every repository)
        `github.com/acme/*` is neither a repository nor a regular expression between slashes => write `host/owner/repo`, or an expression such as `/github\.com/acme/.*/` (`/.*/` is every repository)
        `https://github.com/acme/infra` is neither a repository nor a regular expression between slashes => write `host/owner/repo`, or an expression such as `/github\.com/acme/.*/` (`/.*/` is every repository)
        `/acme` begins like a regular expression, but does not end with a slash => write a slash before and after it, as in `/github\.com/acme/.*/`
        `/` begins like a regular expression, but does not end with a slash => write a slash before and after it, as in `/github\.com/acme/.*/`
        `//` is a regular expression that matches no repository => write `host/owner/repo`, or an expression such as `/github\.com/acme/.*/` (`/.*/` is every repository)
        `/a(/` is not a regular expression: unclosed group => see https://docs.rs/regex/#syntax; the syntax is almost that of Go
        `/a)|(?:b/` is not a regular expression: unopened group => see https://docs.rs/regex/#syntax; the syntax is almost that of Go
        ");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r"(?s)/?.{0,30}/?") {
            if let Ok(pattern) = IdPattern::new(&text) {
                let repo: RepoId = "github.com/acme/infra".parse().unwrap();
                let _fit = pattern.matches(&repo, &repo.to_string());
            }
        }

        #[test]
        fn an_expression_fits_exactly_what_it_spells(name in "[a-z]{1,4}", other in "[a-z]{1,4}") {
            let fit = matches(&format!("/github.com/acme/{name}/"), &format!("github.com/acme/{other}"));
            prop_assert_eq!(fit == Match::Whole, name == other);
        }
    }
}
