//! Compiles the regular expressions of a file, with limits on their number and size. Compiles each only once.

use std::collections::HashMap;

use regex::{Regex, RegexBuilder};

use super::node::Located;
use super::problem::shown;
use super::reader::FileReader;

/// Cache of compiled expressions. `None` stands for an invalid one.
#[derive(Debug, Default)]
pub(super) struct Expressions(HashMap<String, Option<Regex>>);

impl Expressions {
    /// Maximum number of different expressions in one file.
    pub(super) const MAX: usize = 200;

    /// Maximum memory of one compiled expression, in bytes.
    const MAX_COMPILED: usize = 1 << 18;
}

impl FileReader {
    /// Reads a regular expression between slashes (reference 4.2).
    pub(in crate::config) fn slashed_expression(
        &mut self,
        text: &Located,
        key: &str,
    ) -> Option<Regex> {
        let inner = text
            .text
            .trim()
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'));
        let Some(inner) = inner.filter(|inner| !inner.is_empty()) else {
            let what = format!(
                "`{}` is not a regular expression between slashes",
                shown(&text.text)
            );
            self.problem(
                text.place,
                what,
                format!("write a slash before and after it: `{key}: /^main$/`"),
            );
            return None;
        };
        self.expression(&Located {
            place: text.place,
            text: inner.to_owned(),
        })
    }

    /// Reads a regular expression without slashes.
    pub(in crate::config) fn expression(&mut self, text: &Located) -> Option<Regex> {
        if let Some(known) = self.expressions.0.get(&text.text) {
            return known.clone();
        }
        if self.expressions.0.len() >= Expressions::MAX {
            let what = format!(
                "the file has more than {} different regular expressions",
                Expressions::MAX
            );
            self.problem_of_file(what, "join some of them with `|`");
            return None;
        }
        let compiled = RegexBuilder::new(&text.text)
            .size_limit(Expressions::MAX_COMPILED)
            .build();
        let compiled = compiled
            .map_err(|error| self.refuse_expression(text, &error))
            .ok();
        self.expressions
            .0
            .insert(text.text.clone(), compiled.clone());
        compiled
    }

    fn refuse_expression(&mut self, text: &Located, error: &regex::Error) {
        let what = format!(
            "`{}` is not a regular expression: {}",
            shown(&text.text),
            reason(error)
        );
        self.problem(
            text.place,
            what,
            "see https://docs.rs/regex/#syntax; the syntax is almost that of Go",
        );
    }
}

/// Returns the last line of the error. The lines before it draw the expression.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}
