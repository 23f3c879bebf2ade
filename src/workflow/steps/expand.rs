//! Expands `$NAME` and `${NAME}` in the arguments that a workflow gives to built-in steps (reference 6.6). Words of a
//! comment are never expanded.

use std::ffi::{OsStr, OsString};

/// Replaces names by their values. The result is always one argument. A name that is not set becomes empty, and a `$`
/// without a name stays.
pub(super) fn expand<'a>(argument: &str, value: impl Fn(&str) -> Option<&'a OsStr>) -> OsString {
    let mut all = OsString::new();
    let mut rest = argument;
    while let Some(at) = rest.find('$') {
        all.push(&rest[..at]);
        let after = &rest[at + 1..];
        let Some((name, length)) = name(after) else {
            all.push("$");
            rest = after;
            continue;
        };
        all.push(value(name).unwrap_or_default());
        rest = &after[length..];
    }
    all.push(rest);
    all
}

/// Returns the name at the start of the text, and the number of bytes that it takes.
fn name(text: &str) -> Option<(&str, usize)> {
    if let Some(inside) = text.strip_prefix('{') {
        let end = inside.find('}')?;
        return is_name(&inside[..end]).then_some((&inside[..end], end + 2));
    }
    let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    is_name(&text[..end]).then_some((&text[..end], end))
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| is_part(c) && !c.is_ascii_digit()) && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(name: &str) -> Option<&'static OsStr> {
        match name {
            "WORKSPACE" => Some(OsStr::new("prod")),
            "HOSTILE" => Some(OsStr::new("$WORKSPACE -x $(reboot) \"'\n")),
            _ => None,
        }
    }

    #[test]
    fn names_become_values_and_everything_else_stays() {
        for (argument, expected) in [
            ("", ""),
            ("-input=false", "-input=false"),
            ("-var-file=$WORKSPACE.tfvars", "-var-file=prod.tfvars"),
            ("${WORKSPACE}_1 $WORKSPACE_1", "prod_1 "),
            ("a$MISSING,b", "a,b"),
            ("${MISSING}", ""),
            ("$", "$"),
            ("$$WORKSPACE", "$prod"),
            ("cost: 5$ or $5", "cost: 5$ or $5"),
            ("${WORKSPACE", "${WORKSPACE"),
            ("${}", "${}"),
            ("${a b}", "${a b}"),
            ("$(reboot)", "$(reboot)"),
            ("\u{e9}$WORKSPACE\u{e9}", "\u{e9}prod\u{e9}"),
        ] {
            assert_eq!(expand(argument, value), expected, "{argument}");
        }
    }

    #[test]
    fn a_value_is_not_looked_into() {
        assert_eq!(
            expand("-var=a=$HOSTILE", value),
            "-var=a=$WORKSPACE -x $(reboot) \"'\n"
        );
    }

    proptest! {
        #[test]
        fn an_argument_without_a_dollar_is_itself(argument in "[^$]*") {
            prop_assert_eq!(expand(&argument, value), OsString::from(argument));
        }

        #[test]
        fn no_argument_is_too_strange(argument in any::<String>()) {
            let unset = expand(&argument, |_| None);
            prop_assert!(unset.len() <= argument.len());
        }
    }
}
