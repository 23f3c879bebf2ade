//! Patterns of refs in the rules: an exact name, the beginning of a name, or a regular expression.

use std::cmp::Reverse;

use regex::{Regex, RegexBuilder};

use crate::findings::Problem;
use crate::refs::{AccountId, AllUsersRef};
use crate::text::shown;

/// Refs that a section is about.
#[derive(Clone, Debug)]
pub(super) enum RefPattern {
    /// `refs/users/default`
    Exact(String),
    /// `refs/users/${shardeduserid}`: the branch of the account that asks, or another ref with its number in it.
    Own(String),
    /// `refs/users/*`, without the asterisk.
    Below(String),
    /// `^refs/users/[0-9]{2}/.*`, which has to match the whole name, with the number of bytes at its beginning that
    /// stand for themselves.
    Matching(Regex, usize),
}

/// Stands for `56/1000856`, the number of the account that asks.
const SHARDED_ID: &str = "${shardeduserid}";
/// Folders of the refs that rules decide about. For all others, capabilities alone do.
const GOVERNED: [&str; 2] = ["refs/users/", "refs/starred-changes/"];

impl RefPattern {
    /// Maximum number of bytes of a pattern.
    const MAX_BYTES: usize = 500;
    /// Maximum size of a compiled regular expression in bytes.
    const MAX_COMPILED: usize = 64 * 1024;

    /// Parses the name of a section.
    pub(super) fn parse(text: &str) -> Result<Self, (String, String)> {
        let error = |what: String, fix: &str| Err((what, fix.to_owned()));
        if text.len() > Self::MAX_BYTES {
            let fix = format!("use at most {} bytes", Self::MAX_BYTES);
            return Err(("the pattern of refs is too long".to_owned(), fix));
        }
        if let Some(expression) = text.strip_prefix('^') {
            if expression.contains("${") {
                let what = format!("`{}` has a variable in a regular expression", shown(text));
                return error(what, "use variables in names without `^`");
            }
            // Without brackets first: `a)|(b` is one only between the brackets, and would not match whole names.
            let whole = compiled(expression)
                .and_then(|_| compiled(&format!("^(?:{expression})$")))
                .ok();
            let fixed = fixed_beginning(expression);
            return whole
                .map(|whole| Self::Matching(whole, fixed))
                .ok_or_else(|| {
                    let what = format!("`{}` is not a regular expression", shown(text));
                    (
                        what,
                        "correct or shorten it; `^refs/users/.*` is one".to_owned(),
                    )
                });
        }
        if !text.starts_with("refs/") {
            let what = format!("`{}` is not a pattern of refs", shown(text));
            let fix = "begin with `refs/`, or with `^refs/` for a regular expression";
            return error(what, fix);
        }
        if let Some(folder) = text.strip_suffix('*') {
            if !folder.ends_with('/') || folder.contains(['*', '$']) {
                let what = format!("`{}` is not a pattern of refs", shown(text));
                return error(
                    what,
                    "write `*` at the end, after a `/`, and no variable with it",
                );
            }
            return Ok(Self::Below(folder.to_owned()));
        }
        let rest = text.replacen(SHARDED_ID, "", 1);
        if rest.contains(['*', '$']) {
            let what = format!("`{}` is not a pattern of refs", shown(text));
            let fix = "the only variable is `${shardeduserid}`, once; `*` stands at the end";
            return error(what, fix);
        }
        Ok(if rest == text {
            Self::Exact(text.to_owned())
        } else {
            Self::Own(text.to_owned())
        })
    }

    /// Returns true if the pattern fits a ref, for the account that asks.
    pub(super) fn fits(&self, name: &str, account: AccountId) -> bool {
        match self {
            Self::Exact(exact) => name == exact,
            Self::Own(own) => name == own_name(own, account),
            Self::Below(folder) => name.starts_with(folder.as_str()),
            Self::Matching(expression, _) => expression.is_match(name),
        }
    }

    /// Returns the only ref that the pattern fits. `Err`: it may fit more than one.
    pub(super) fn only_ref(&self, account: AccountId) -> Result<Option<AllUsersRef>, AnyRef> {
        match self {
            Self::Exact(exact) => Ok(exact.parse().ok()),
            Self::Own(own) => Ok(own_name(own, account).parse().ok()),
            Self::Below(_) | Self::Matching(..) => Err(AnyRef),
        }
    }

    /// Returns the order of patterns, the most specific first: names before patterns, longer fixed beginnings before
    /// shorter ones, and of two that are as long, a folder before an expression.
    pub(super) fn rank(&self) -> (u8, Reverse<usize>, u8) {
        match self {
            Self::Exact(name) => (0, Reverse(name.len()), 0),
            Self::Own(name) => (1, Reverse(name.len()), 0),
            Self::Below(folder) => (2, Reverse(folder.len()), 0),
            Self::Matching(_, fixed) => (2, Reverse(*fixed), 1),
        }
    }

    /// Returns the warning about a pattern that fits none of the refs that rules decide about.
    pub(super) fn warning(&self, line: usize, text: &str) -> Option<Problem> {
        let is_governed = match self {
            Self::Exact(name) | Self::Own(name) => {
                GOVERNED.iter().any(|folder| name.starts_with(folder))
            }
            Self::Below(folder) => GOVERNED
                .iter()
                .any(|known| known.starts_with(folder.as_str()) || folder.starts_with(known)),
            Self::Matching(..) => true,
        };
        let what = format!("rules for `{}` have no effect", shown(text));
        let fix =
            "give a capability: `accessDatabase`, or `administrateServer` for refs/meta/config";
        (!is_governed).then(|| Problem::warning(line, what, fix))
    }
}

fn compiled(expression: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(expression)
        .size_limit(RefPattern::MAX_COMPILED)
        .dfa_size_limit(RefPattern::MAX_COMPILED)
        .build()
}

/// Returns the number of bytes at the beginning of an expression that stand for themselves.
fn fixed_beginning(expression: &str) -> usize {
    if expression.contains('|') {
        return 0;
    }
    let special = expression.find(|c: char| !c.is_alphanumeric() && !"/-_".contains(c));
    let Some(end) = special else {
        return expression.len();
    };
    // These repeat the character in front of them.
    let is_repeated = expression[end..].starts_with(['?', '*', '{']);
    end - usize::from(is_repeated && end > 0)
}

/// A pattern may fit more than one ref.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnyRef;

fn own_name(pattern: &str, account: AccountId) -> String {
    let sharded = format!("{:02}/{account}", account.get() % 100);
    pattern.replacen(SHARDED_ID, &sharded, 1)
}
