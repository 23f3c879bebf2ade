//! Parses the output of a `multienv` command: variables for the steps that follow (reference 6.5).
//!
//! The format is `NAME=value`, with commas between variables. A value in single or double quotes may contain commas,
//! and its own kind of quote after a backslash.

/// Reason that the output cannot be parsed. The messages contain no value, because it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MultienvError {
    /// A name is not followed by `=`.
    #[error("variable {place} has no `=` after its name")]
    NoValue {
        /// Number of the variable, from 1.
        place: usize,
    },
    /// The name is empty, or contains blanks or quotes.
    #[error("the name of variable {place} is empty, or contains spaces or quotes")]
    Name {
        /// Number of the variable, from 1.
        place: usize,
    },
    /// The quotes do not enclose the whole value.
    #[error(
        "the quotes around the value of `{name}` are misplaced: they must enclose the whole value"
    )]
    Quotes {
        /// Name of the variable.
        name: String,
    },
    /// The closing quote is missing.
    #[error("the quote before the value of `{name}` is never closed")]
    Open {
        /// Name of the variable.
        name: String,
    },
}

/// Parses the variables in the order of the output; none if the output is empty.
pub(super) fn parse(printed: &str) -> Result<Vec<(String, String)>, MultienvError> {
    let mut rest = printed.trim();
    let mut variables = Vec::new();
    while !rest.is_empty() || !variables.is_empty() {
        let place = variables.len() + 1;
        let (name, after) = rest
            .split_once('=')
            .ok_or(MultienvError::NoValue { place })?;
        if !is_name(name) {
            return Err(MultienvError::Name { place });
        }
        let (value, end) = value(name, after)?;
        variables.push((name.to_owned(), value));
        match end {
            Some(next) => rest = next,
            None => break,
        }
    }
    Ok(variables)
}

fn is_name(text: &str) -> bool {
    let is_fine = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '\'' | ',');
    !text.is_empty() && text.chars().all(is_fine)
}

/// Returns the value at the start of the text, and the text after the comma that follows.
fn value<'a>(name: &str, text: &'a str) -> Result<(String, Option<&'a str>), MultienvError> {
    let quotes = || MultienvError::Quotes {
        name: name.to_owned(),
    };
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let (value, after) = quoted(quote, &text[1..]).ok_or_else(|| MultienvError::Open {
            name: name.to_owned(),
        })?;
        return match after.strip_prefix(',') {
            Some(next) => Ok((value, Some(next))),
            None if after.is_empty() => Ok((value, None)),
            None => Err(quotes()),
        };
    }
    let (plain, next) = text
        .split_once(',')
        .map_or((text, None), |(plain, next)| (plain, Some(next)));
    if plain.contains(['"', '\'']) {
        Err(quotes())
    } else {
        Ok((plain.to_owned(), next))
    }
}

/// Returns the text up to the closing quote, and the rest. A backslash before any other character is an ordinary
/// character.
fn quoted(quote: char, text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Some((value, &text[at + 1..]));
        }
        let escaped = if c == '\\' {
            chars.next_if(|(_, next)| *next == quote)
        } else {
            None
        };
        value.push(escaped.map_or(c, |(_, quote)| quote));
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn variables_are_read() {
        for (printed, expected) in [
            ("", &[][..]),
            (" \n ", &[]),
            ("A=1", &[("A", "1")]),
            ("A=1,B=2\n", &[("A", "1"), ("B", "2")]),
            ("A=", &[("A", "")]),
            ("A=,B=", &[("A", ""), ("B", "")]),
            ("A=x=y", &[("A", "x=y")]),
            ("A=a b\tc", &[("A", "a b\tc")]),
            (r#"A="1,2",B='3,4'"#, &[("A", "1,2"), ("B", "3,4")]),
            (
                r#"A="say \"hi\"",B='it\'s'"#,
                &[("A", r#"say "hi""#), ("B", "it's")],
            ),
            (r#"A="it's",B='"'"#, &[("A", "it's"), ("B", "\"")]),
            (r#"A="C:\dir",B="""#, &[("A", r"C:\dir"), ("B", "")]),
            ("A=\"two\nlines\"", &[("A", "two\nlines")]),
            ("A=$(reboot)", &[("A", "$(reboot)")]),
        ] {
            let found = parse(printed).unwrap();
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            assert_eq!(found, expected, "{printed}");
        }
    }

    #[test]
    fn what_is_misplaced_is_told_without_a_value() {
        for (printed, expected) in [
            ("hunter2", "variable 1 has no `=` after its name"),
            ("A=1,", "variable 2 has no `=` after its name"),
            ("A=1,hunter2", "variable 2 has no `=` after its name"),
            (
                "=hunter2",
                "the name of variable 1 is empty, or contains spaces or quotes",
            ),
            (
                "A=1, B=hunter2",
                "the name of variable 2 is empty, or contains spaces or quotes",
            ),
            (
                "A B=hunter2",
                "the name of variable 1 is empty, or contains spaces or quotes",
            ),
            (
                r#""A"=hunter2"#,
                "the name of variable 1 is empty, or contains spaces or quotes",
            ),
            (
                r#"A=hunter"2"#,
                "the quotes around the value of `A` are misplaced: they must enclose the whole value",
            ),
            (
                r#"A="hunter"2"#,
                "the quotes around the value of `A` are misplaced: they must enclose the whole value",
            ),
            (
                r#"A="hunter2"#,
                "the quote before the value of `A` is never closed",
            ),
            (
                r#"A="hunter2\""#,
                "the quote before the value of `A` is never closed",
            ),
        ] {
            assert_eq!(
                parse(printed).unwrap_err().to_string(),
                expected,
                "{printed}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(variables in prop::collection::vec(("[A-Z_]{1,8}", "[^\\\\]*"), 0..5)) {
            let quoted = |(name, value): &(String, String)| format!("{name}=\"{}\"", value.replace('"', "\\\""));
            let printed: Vec<String> = variables.iter().map(quoted).collect();
            prop_assert_eq!(parse(&printed.join(",")), Ok(variables));
        }

        #[test]
        fn nothing_is_too_strange(printed in any::<String>()) {
            parse(&printed).ok();
        }
    }
}
