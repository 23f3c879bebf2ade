//! Selects the repositories to serve: `--repo-allowlist` (reference 2.8).
//!
//! Two slips of the reference are fixed: entries are trimmed, and `*` is a wildcard at any position. With
//! `--require-claims`, a listed repository must also have an owner.

use std::fmt;

use crate::model::RepoId;

/// The text is not a list of repositories.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAllowlist {
    /// An entry begins like a URL.
    #[error("`{0}` is not an entry for repositories: write it without `://`")]
    Url(String),
    /// An entry cannot match any repository.
    #[error("`{0}` is not of the form host/owner/name")]
    Form(String),
    /// The list has only exclusions.
    #[error("all entries are exclusions, so no repository would be served")]
    NothingIncluded,
}

/// The repositories to serve. At least one rule must include a repository, and no rule may exclude it; the order does
/// not matter. The list also stores whether a repository must have an owner, so that no user of the list can miss it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoAllowlist {
    include: Vec<String>,
    exclude: Vec<String>,
    demands_claims: bool,
}

impl RepoAllowlist {
    /// Parses the entries of the list.
    pub fn new(entries: &[impl AsRef<str>]) -> Result<Self, InvalidAllowlist> {
        let (mut include, mut exclude) = (Vec::new(), Vec::new());
        for entry in entries
            .iter()
            .map(|entry| entry.as_ref().trim())
            .filter(|entry| !entry.is_empty())
        {
            match entry.strip_prefix('!') {
                Some(pattern) => exclude.push(pattern_of(pattern.trim())?),
                None => include.push(pattern_of(entry)?),
            }
        }
        if include.is_empty() {
            return Err(InvalidAllowlist::NothingIncluded);
        }
        Ok(Self {
            include,
            exclude,
            demands_claims: false,
        })
    }

    /// Sets whether an owner must have claimed a repository (`--require-claims`).
    #[must_use]
    pub fn demanding_claims(self, demands_claims: bool) -> Self {
        Self {
            demands_claims,
            ..self
        }
    }

    /// Returns true if a listed repository is served only with a claim. The database knows the claims.
    pub fn demands_claims(&self) -> bool {
        self.demands_claims
    }

    /// Returns the repositories that the list names without a wildcard.
    pub fn named(&self) -> impl Iterator<Item = RepoId> {
        let exact = self.include.iter().filter(|pattern| !pattern.contains('*'));
        exact.filter_map(|name| name.parse().ok())
    }

    /// Returns true if the repository is on the list.
    pub fn allows(&self, repo: &RepoId) -> bool {
        let id = repo.to_string().to_lowercase();
        let any = |patterns: &[String]| {
            patterns
                .iter()
                .any(|pattern| wildcard_matches(pattern, &id))
        };
        any(&self.include) && !any(&self.exclude)
    }
}

impl fmt::Display for RepoAllowlist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.include.join(","))?;
        self.exclude
            .iter()
            .try_for_each(|pattern| write!(f, ",!{pattern}"))
    }
}

/// Checks an entry. An entry without a wildcard must be the full name of a repository, or it could never match.
fn pattern_of(entry: &str) -> Result<String, InvalidAllowlist> {
    if entry.contains("://") {
        return Err(InvalidAllowlist::Url(entry.to_owned()));
    }
    if !entry.contains('*') && entry.parse::<RepoId>().is_err() {
        return Err(InvalidAllowlist::Form(entry.to_owned()));
    }
    Ok(entry.to_lowercase())
}

/// Matches the whole text. `*` stands for any number of characters, including slashes. The match takes at most
/// `pattern × text` steps, so that no entry can be slow.
pub(super) fn wildcard_matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(first) else {
        return false;
    };
    let Some((middle, last)) = rest.rsplit_once('*') else {
        return left.ends_with(rest);
    };
    for part in middle.split('*') {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(text: &str) -> Result<RepoAllowlist, InvalidAllowlist> {
        RepoAllowlist::new(&text.split(',').collect::<Vec<_>>())
    }

    #[test]
    fn repositories_are_allowed_by_rules() {
        for (text, repo, expected) in [
            ("*", "github.com/acme/infra", true),
            ("github.com/acme/*", "github.com/acme/infra", true),
            ("github.com/acme/*", "github.com/acme-evil/infra", false),
            ("github.com/acme*", "github.com/acme-evil/infra", true),
            ("GitHub.com/Acme/Infra", "github.com/acme/infra", true),
            (
                " github.com/acme/a , github.com/acme/b ",
                "github.com/acme/b",
                true,
            ),
            ("github.com/acme/*-infra", "github.com/acme/net-infra", true),
            (
                "github.com/acme/*-infra",
                "github.com/evil/net-infra",
                false,
            ),
            ("*/acme/*", "ghe.example.com/acme/x", true),
            ("github.com/*/infra*", "github.com/acme/infra-2", true),
            ("github.com/*/infra*", "github.com/acme/app", false),
            (
                "github.com/acme/*,!github.com/acme/secret",
                "github.com/acme/secret",
                false,
            ),
            (
                "!github.com/acme/se*,github.com/acme/*",
                "github.com/acme/secret",
                false,
            ),
            (
                "github.com/acme/*,! github.com/acme/secret",
                "github.com/acme/infra",
                true,
            ),
        ] {
            assert_eq!(
                list(text).unwrap().allows(&repo.parse().unwrap()),
                expected,
                "{text} {repo}"
            );
        }
    }

    #[test]
    fn entries_that_cannot_match_are_refused() {
        for (text, expected) in [
            (
                "https://github.com/acme/*",
                "`https://github.com/acme/*` is not an entry for repositories: write it without `://`",
            ),
            (
                "!https://github.com/acme/*",
                "`https://github.com/acme/*` is not an entry for repositories: write it without `://`",
            ),
            (
                "github.com/acme",
                "`github.com/acme` is not of the form host/owner/name",
            ),
            ("*,!", "`` is not of the form host/owner/name"),
            (
                "!github.com/acme/x",
                "all entries are exclusions, so no repository would be served",
            ),
        ] {
            assert_eq!(list(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_wildcard_does_not_use_a_character_twice() {
        for (pattern, text, expected) in [
            ("ab*ba", "aba", false),
            ("ab*ba", "abba", true),
            ("a*b*b", "ab", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(
                wildcard_matches(pattern, text),
                expected,
                "{pattern} {text}"
            );
        }
    }

    /// Matches a wildcard pattern by its definition, as the reference for the fast version.
    fn matches_by_definition(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => {
                (0..=text.len()).any(|skip| matches_by_definition(rest, &text[skip..]))
            }
            Some((c, rest)) => text.first() == Some(c) && matches_by_definition(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn wildcards_match_as_defined(pattern in "[ab*]{0,7}", text in "[ab]{0,8}") {
            let by_definition = matches_by_definition(&pattern.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>());
            prop_assert_eq!(wildcard_matches(&pattern, &text), by_definition);
        }
    }
}
