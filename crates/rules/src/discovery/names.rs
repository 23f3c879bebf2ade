//! Chooses projects by the value of `-p` (reference 3.7). The value is the exact name of one project. If no project
//! has that name and `--enable-regexp-cmd` is set, the value is a regular expression that must match whole names.

use std::collections::BTreeSet;

use regex::{Regex, RegexBuilder};

use crate::config::repo::{quoted, shown};

/// Maximum size of a compiled expression in bytes.
const MAX_COMPILED: usize = 1 << 20;

/// Reason why the value of `-p` is not usable. Displays as a sentence with the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The value is neither a name nor an expression.
    #[error("`{}` is neither the name of a project nor a valid regular expression", shown(.0))]
    NotAnExpression(String),
    /// The repository requires a fixed beginning of expressions for several projects.
    #[error(
        "`{}` matches {count} projects, and an expression for several projects must begin with {} in this repository \
         (`allowed_regexp_prefixes` of the configuration file)",
        shown(.typed), quoted(.prefixes.iter().map(|prefix| shown(prefix)))
    )]
    PrefixNeeded {
        /// Expression as it was typed.
        typed: String,
        /// Number of projects that it matches.
        count: usize,
        /// Allowed beginnings of expressions.
        prefixes: Vec<String>,
    },
}

/// Returns the chosen names among `names`; none if the name is unknown. `regexp` is `--enable-regexp-cmd`, and
/// `prefixes` are the `allowed_regexp_prefixes` of the repository.
pub fn choose<'n>(
    typed: &str,
    names: &[&'n str],
    regexp: bool,
    prefixes: &[String],
) -> Result<BTreeSet<&'n str>, NameError> {
    if let Some(exact) = names.iter().find(|name| **name == typed) {
        return Ok(BTreeSet::from([*exact]));
    }
    if !regexp {
        return Ok(BTreeSet::new());
    }
    let expression =
        expression(typed).ok_or_else(|| NameError::NotAnExpression(typed.to_owned()))?;
    let matched: BTreeSet<&str> = names
        .iter()
        .copied()
        .filter(|name| expression.is_match(name))
        .collect();
    let is_allowed = prefixes.is_empty()
        || prefixes
            .iter()
            .any(|prefix| typed.starts_with(prefix.as_str()));
    if matched.len() > 1 && !is_allowed {
        let (typed, prefixes) = (typed.to_owned(), prefixes.to_vec());
        return Err(NameError::PrefixNeeded {
            typed,
            count: matched.len(),
            prefixes,
        });
    }
    Ok(matched)
}

/// Compiles an expression that must match the whole name.
fn expression(typed: &str) -> Option<Regex> {
    // The expression is compiled alone first: only the added parentheses would make `a)(b` valid.
    let build = |text: &str| {
        RegexBuilder::new(text)
            .size_limit(MAX_COMPILED)
            .build()
            .ok()
    };
    build(typed).and_then(|_| build(&format!("^(?:{typed})$")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(typed: &str, regexp: bool, prefixes: &[&str]) -> String {
        let names = ["app-one", "app-two", "net", "net.prod", "netxprod"];
        let prefixes: Vec<String> = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        match choose(typed, &names, regexp, &prefixes) {
            Ok(chosen) => chosen.into_iter().collect::<Vec<_>>().join(" "),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn without_the_switch_only_the_exact_name_counts() {
        for (typed, expected) in [
            ("net", "net"),
            ("net.prod", "net.prod"),
            ("app-.*", ""),
            ("Net", ""),
        ] {
            assert_eq!(chosen(typed, false, &[]), expected, "{typed}");
        }
    }

    #[test]
    fn expressions_match_whole_names_and_an_exact_name_comes_first() {
        for (typed, expected) in [
            ("net", "net"),
            ("net.prod", "net.prod"),
            ("net.pro[d]", "net.prod netxprod"),
            ("app-.*", "app-one app-two"),
            ("app", ""),
            ("app-one|net", "app-one net"),
            (".*", "app-one app-two net net.prod netxprod"),
        ] {
            assert_eq!(chosen(typed, true, &[]), expected, "{typed}");
        }
    }

    #[test]
    fn several_projects_may_need_a_prefix() {
        let told = [
            chosen("app-.*", true, &["net", "app-"]),
            chosen("net.*", true, &["app-"]),
            chosen("net\\.prod", true, &["app-"]),
            chosen("a(", true, &[]),
            chosen("a)(b", true, &[]),
            chosen("a{1000}{1000}", true, &[]),
        ];
        insta::assert_snapshot!(told.join("\n"), @"
        app-one app-two
        error: `net.*` matches 3 projects, and an expression for several projects must begin with `app-` in this repository (`allowed_regexp_prefixes` of the configuration file)
        net.prod
        error: `a(` is neither the name of a project nor a valid regular expression
        error: `a)(b` is neither the name of a project nor a valid regular expression
        error: `a{1000}{1000}` is neither the name of a project nor a valid regular expression
        ");
    }
}
