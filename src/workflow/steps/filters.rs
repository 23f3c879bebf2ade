//! Filters the output of a `run` step for the comment (reference 6.3). The page of the run has the whole output.

use crate::config::workflow::OutputFilter;
use crate::render::plan_output::{clean, without_progress};

/// Applies the filters in their order. The output of a failed command is not hidden, because it explains the failure.
/// Colours are removed first: they could stand in the middle of text that a pattern has to match.
pub(super) fn filtered(output: String, filters: &[OutputFilter], has_failed: bool) -> String {
    let mut text = if filters.is_empty() {
        output
    } else {
        clean(&output)
    };
    for filter in filters {
        match filter {
            OutputFilter::Hide if has_failed => {}
            OutputFilter::Hide => return String::new(),
            OutputFilter::StripRefreshing => text = without_progress(&text),
            OutputFilter::Redact(pattern) => {
                text = pattern
                    .replace_all(&text, "${1}<redacted>${2}")
                    .into_owned();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use OutputFilter::{Hide, Redact, StripRefreshing};
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    fn redact(pattern: &str) -> OutputFilter {
        Redact(Regex::new(pattern).unwrap())
    }

    #[test]
    fn filters_are_applied_in_their_order() {
        let output = "a.b: Refreshing state... [id=1]\ntoken: abc123 end\nPlan: 1 to add\n";
        for (filters, has_failed, expected) in [
            (vec![], false, output),
            (vec![Hide], false, ""),
            (vec![Hide], true, output),
            (
                vec![StripRefreshing],
                false,
                "token: abc123 end\nPlan: 1 to add",
            ),
            (
                vec![redact(r"(token: )\S+( end)"), StripRefreshing],
                true,
                "token: <redacted> end\nPlan: 1 to add",
            ),
            (
                vec![Hide, StripRefreshing, redact("abc123")],
                true,
                "token: <redacted> end\nPlan: 1 to add",
            ),
            (vec![redact("^.*$"), Hide], false, ""),
        ] {
            assert_eq!(
                filtered(output.to_owned(), &filters, has_failed),
                expected,
                "{filters:?} {has_failed}"
            );
        }
    }

    #[test]
    fn what_is_around_a_redacted_place_stays_as_far_as_there_are_groups() {
        let cases = [
            ("abc", "<redacted>"),
            ("(a)bc", "a<redacted>"),
            ("(a)b(c)", "a<redacted>c"),
            ("ab(c)?", "c<redacted>"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(
                filtered("abc".to_owned(), &[redact(pattern)], false),
                expected,
                "{pattern}"
            );
        }
    }

    #[test]
    fn colours_do_not_hide_what_is_to_be_redacted() {
        let output = "pass\u{1b}[1mword=hunter2\u{1b}[0m".to_owned();
        assert_eq!(
            filtered(output, &[redact("(password=).*")], false),
            "password=<redacted>"
        );
    }

    proptest! {
        #[test]
        fn a_word_that_is_redacted_is_nowhere_left(before in "[a-y ]*", after in "[a-y ]*", has_failed: bool) {
            let output = format!("{before}zzz{after}zzz");
            prop_assert!(!filtered(output, &[redact("z+")], has_failed).contains('z'));
        }
    }
}
