//! Forms that were refused: the page appears again with everything that was typed, and each problem is beside its
//! field.
//!
//! By name:
//! - *what can be corrected is corrected there*: input that cannot be used (422) or that conflicts with something
//!   (409) is answered on the page of the form. A missing permission and a missing page have a page of their own as
//!   before;
//! - *no problem goes unseen*: a problem with a field that the form does not have is shown above the form;
//! - *no secret is repeated*: the field stays empty, and the text beside it says so
//!   ([`FormProblems::mark_removed_value`]).

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Serialize;

use super::errors::FieldProblem;
use super::{WebError, WebState};

/// Message above a form that has a problem beside one of its fields.
const CORRECT_FIELDS: &str = "Nothing was changed. Correct the marked fields and resubmit.";

/// Problems of a form. The templates show it with `parts.html`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct FormProblems {
    /// Problem with the form as a whole. Empty if nothing is wrong.
    pub all: String,
    /// Problems of single fields, by name.
    fields: BTreeMap<&'static str, String>,
    /// Field that the browser moves to.
    first: Option<&'static str>,
}

impl FormProblems {
    /// Creates a problem with sentences about the form in general.
    pub fn general(all: String) -> Self {
        Self {
            all,
            ..Self::default()
        }
    }

    /// Places problems beside the fields of a form. `names` lists the fields in the order of the form.
    pub fn by_field(names: &[&'static str], problems: Vec<FieldProblem>) -> Self {
        let mut wrong = Self::general(CORRECT_FIELDS.to_owned());
        for FieldProblem { field, text } in problems {
            match names.iter().copied().find(|name| *name == field) {
                // The first problem may be the cause of all others.
                Some(name) => drop(wrong.fields.entry(name).or_insert_with(|| sentence(&text))),
                None => wrong.all = format!("{} {}", wrong.all, sentence(&text)),
            }
        }
        wrong.first = names
            .iter()
            .copied()
            .find(|name| wrong.fields.contains_key(name));
        wrong
    }

    /// Notes beside a field that it was emptied, because its text may contain a secret.
    pub fn mark_removed_value(&mut self, name: &'static str) {
        let text = self.fields.entry(name).or_default();
        let note = "The value was removed, because it may contain a secret. Type it again without the secret.";
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(note);
        self.first = self.first.or(Some(name));
    }

    /// Reads the problems with which a form can be shown again. Other failures are returned and have a page of their
    /// own.
    fn of(failure: WebError, names: &[&'static str]) -> Result<Self, WebError> {
        if !matches!(
            failure.status(),
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY
        ) {
            return Err(failure);
        }
        let problems = failure.problems();
        Ok(if problems.is_empty() {
            Self::general(failure.sentences())
        } else {
            Self::by_field(names, problems)
        })
    }
}

/// Formats a problem as a sentence: parsers begin in lower case and leave out the full stop. A first word that
/// contains other characters than letters, such as an address, stays as it is.
pub(crate) fn sentence(text: &str) -> String {
    let is_word = text
        .split(' ')
        .next()
        .is_some_and(|word| word.chars().all(char::is_alphabetic));
    let split = text
        .chars()
        .next()
        .filter(|_| is_word)
        .map_or(0, char::len_utf8);
    let (first, rest) = text.split_at(split);
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{}{rest}{end}", first.to_uppercase())
}

/// Redirects to the path of an accepted form, otherwise answers with the page of the form again. `names` are the
/// fields of the form.
pub(crate) async fn redirect_or_page<P: Future<Output = Result<Response, WebError>>>(
    web: &WebState,
    taken: Result<String, WebError>,
    names: &[&'static str],
    page: impl FnOnce(FormProblems) -> P,
) -> Result<Response, WebError> {
    let failure = match taken {
        Ok(path) => return Ok(Redirect::to(&web.link(&path)).into_response()),
        Err(failure) => failure,
    };
    let status = failure.status();
    let again = page(FormProblems::of(failure, names)?).await?;
    Ok((status, again).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["url", "dir"];

    fn problem(field: &str, text: &str) -> FieldProblem {
        FieldProblem {
            field: field.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_browser_goes_to_the_first_field_of_the_form_and_a_field_says_what_was_found_first() {
        let wrong = FormProblems::by_field(
            NAMES,
            vec![
                problem("dir", "a/b is"),
                problem("url", "é x."),
                problem("dir", "c"),
            ],
        );
        assert_eq!(
            (wrong.first, wrong.all.as_str()),
            (Some("url"), CORRECT_FIELDS)
        );
        assert_eq!(
            wrong.fields,
            BTreeMap::from([("dir", "a/b is.".to_owned()), ("url", "É x.".to_owned())])
        );
    }

    #[test]
    fn what_is_wrong_with_a_field_that_is_not_there_is_said_above_the_form() {
        let wrong = FormProblems::by_field(NAMES, vec![problem("owner", "it stays")]);
        assert_eq!(
            (wrong.first, wrong.all),
            (None, format!("{CORRECT_FIELDS} It stays."))
        );
        assert_eq!(wrong.fields, BTreeMap::new());
    }

    #[test]
    fn a_field_that_was_emptied_says_so_beside_what_is_wrong_with_it() {
        let mut wrong = FormProblems::by_field(NAMES, vec![problem("dir", "b")]);
        wrong.mark_removed_value("dir");
        wrong.mark_removed_value("url");
        assert!(
            wrong.fields["dir"].starts_with("B. The value was removed"),
            "{wrong:?}"
        );
        assert!(
            wrong.fields["url"].starts_with("The value was removed"),
            "{wrong:?}"
        );
    }

    #[test]
    fn what_nobody_can_mend_in_a_form_is_a_page_of_its_own() {
        assert!(FormProblems::of(WebError::no_such_app(), NAMES).is_err());
        assert!(FormProblems::of(WebError::outside("No."), NAMES).is_err());
        assert_eq!(
            FormProblems::of(WebError::conflict("In use", "It runs."), NAMES)
                .unwrap()
                .all,
            "It runs. Nothing was changed."
        );
    }
}
