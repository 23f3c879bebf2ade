//! Reads text that is written for people (reference 13.3).
//!
//! The reader only searches such a text for failures, and for counts that say that nothing was evaluated. It passes only if the
//! command succeeded and printed something else.

use std::sync::LazyLock;

use regex::Regex;

use crate::findings::{PolicyFinding, ReadError, input, visible_lines};

/// Signs of a failure: a number of failures other than 0, also as trivy writes it (`FAILURES: 7`), failures in JSON, a line that
/// begins with `FAIL`, or the number of secrets and other findings of trivy (`Total: 1 (UNKNOWN: 0, …`).
static FAILURE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?im)[1-9]([\d,.']*\d)?\s+failure|"?failures"?\s*:\s*([1-9]|\[\s*[^\]\s])|^\s*(?-i:FAIL)|^Total: [1-9]\d* \([A-Z]+: \d"#,
    )
    .expect("the pattern is valid")
});

/// Counts of conftest and checkov that say that nothing was evaluated.
static NO_TESTS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?im)^\s*0 tests, 0 passed\b|^\s*passed checks: 0, failed checks: 0\b")
        .expect("the pattern is valid")
});

/// The same counts, if something was evaluated.
static SOME_TESTS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?im)^\s*[1-9]\d* tests?, \d+ passed\b|^\s*passed checks: ([1-9]|\d+, failed checks: [1-9])",
    )
    .expect("the pattern is valid")
});

/// Banner with which checkov begins. It prints nothing else about a plan that it cannot read, and succeeds.
static BANNER_OF_CHECKOV: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?im)^\s*by (prisma cloud|bridgecrew\.io) \| version: ")
        .expect("the pattern is valid")
});

/// Counts of checkov, if something was evaluated.
static SOME_CHECKS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?im)^\s*passed checks: ([1-9]|\d+, failed checks: [1-9])")
        .expect("the pattern is valid")
});

/// Count of checkov that says that it could not read some files. It can succeed, and the other files can have counts.
static UNREAD_FILES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?im)^\s*passed checks: \d+, failed checks: \d+,.* parsing errors: [1-9]")
        .expect("the pattern is valid")
});

/// Signs that trivy could not read a file, or has recognised none: a line of its log, a summary with nothing but dashes, and
/// its report as JSON without results. It succeeds.
static UNREAD_BY_TRIVY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?m)\[terraform parser\] Error parsing file|^│ Target +│ +Type +│ +Misconfigurations +│\n├.*\n│ +- +│|"ArtifactType": *"[a-z_]+"\s*\}"#,
    )
    .expect("the pattern is valid")
});

/// Summary of trivy about a plan, for people or as JSON. It counts no finding, too, if trivy cannot use the plan.
static PLAN_OF_TRIVY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?m)^│[^│\n]+│ *terraformplan *│|"Type": *"terraformplan""#)
        .expect("the pattern is valid")
});

/// Sequences that colour a terminal.
static COLOURS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\x1b\[[0-9;:]*[A-Za-z]").expect("the pattern is valid"));

/// Returns true if nothing shows that a check was evaluated. conftest writes a count for each namespace, and one that has rules
/// is enough. Each call of checkov needs a count of its own.
fn is_without_tests(text: &str) -> bool {
    let mut calls_of_checkov = BANNER_OF_CHECKOV.split(text).skip(1);
    calls_of_checkov.any(|output| !SOME_CHECKS.is_match(output))
        || (NO_TESTS.is_match(text) && !SOME_TESTS.is_match(text))
}

/// Reads an output. A failure is one violation, with the text as its evidence, so that approvals are bound to the text.
pub fn read(text: &str, succeeded: bool) -> Result<Vec<PolicyFinding>, ReadError> {
    let raw = input(text)?;
    let text = visible_lines(COLOURS.replace_all(raw, "").into_owned());
    if text.trim().is_empty() {
        return Err(ReadError::Empty);
    }
    if UNREAD_FILES.is_match(&text) {
        return Err(ReadError::NotEvaluated(
            "checkov could not read some files".to_owned(),
        ));
    }
    if UNREAD_BY_TRIVY.is_match(&text) {
        return Err(ReadError::NotEvaluated(
            "trivy could not read some files, or recognised none".to_owned(),
        ));
    }
    let message = if FAILURE.is_match(&text) {
        "The check reports a failure."
    } else if is_without_tests(&text) {
        return Err(ReadError::NotEvaluated(
            "the output counts no tests, so no check was evaluated".to_owned(),
        ));
    } else if PLAN_OF_TRIVY.is_match(&text) {
        return Err(ReadError::NotEvaluated(
            "trivy found nothing, and prints the same if it cannot use the plan. Let it write SARIF, with a check that finds \
             something in each plan (`--config-check`)"
                .to_owned(),
        ));
    } else if succeeded {
        return Ok(Vec::new());
    } else {
        "The command of the check failed."
    };
    let is_changed = text != raw;
    let mut finding = PolicyFinding {
        evidence: Some(text),
        ..PolicyFinding::deny("", message)
    };
    if is_changed {
        finding.tell_apart(raw);
    }
    Ok(vec![finding.clean()])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_passes_only_without_a_failure() {
        for (text, passes) in [
            ("ok", true),
            (
                "1 test, 1 passed, 0 warnings, 0 failures, 0 exceptions",
                true,
            ),
            ("\"failures\": []", true),
            ("no check can fail here", true),
            ("\u{1b}[32mfine\u{1b}[0m", true),
            ("1 failure", false),
            ("10 failures", false),
            ("1,000 Failures", false),
            ("100 \u{1b}[31mfailures", false),
            ("{\"failures\": [{\"msg\": \"m\"}]}", false),
            ("\"failures\":[\n  \"a\"]", false),
            ("FAIL - plan.json - main - Bucket is public", false),
            ("0 failures\n  FAIL", false),
            ("Tests: 9 (SUCCESSES: 9, FAILURES: 0)", true),
            ("Tests: 9 (SUCCESSES: 2, FAILURES: 7)", false),
            ("\"Failures\": 7", false),
            ("Total: 0 (UNKNOWN: 0, LOW: 0)", true),
            ("Total: 12 (UNKNOWN: 0, LOW: 12)", false),
            ("Total: 12 (of 12)", true),
            ("\u{1b}[31mFAIL\u{1b}[0m - a", false),
            ("FA\u{200b}IL", false),
        ] {
            let findings = read(text, true).unwrap();
            assert_eq!(findings.is_empty(), passes, "{text:?}");
            assert!(findings.iter().all(PolicyFinding::is_violation), "{text:?}");
        }
    }

    #[test]
    fn a_failed_command_never_passes() {
        let findings = read("ok", false).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].evidence.as_deref(), Some("ok"));
    }

    #[test]
    fn an_empty_text_is_an_error() {
        for text in ["", " \n\t", "\u{1b}[0m", "\u{200b}", "\0"] {
            for succeeded in [true, false] {
                assert_eq!(read(text, succeeded), Err(ReadError::Empty), "{text:?}");
            }
        }
    }

    #[test]
    fn an_output_that_counts_no_tests_is_an_error() {
        let nothing = "0 tests, 0 passed, 0 warnings, 0 failures, 0 exceptions";
        let of_checkov = "terraform_plan scan results:\n\nPassed checks: 0, Failed checks: 0, Skipped checks: 2\n";
        let banner = "   _  \n  / __| '_ \\ \n\nBy Prisma Cloud | version: 3.3.30 \n\n";
        let then_conftest = format!("{banner}1 test, 1 passed, 0 warnings, 0 failures\n");
        let then_another =
            format!("{banner}{banner}Passed checks: 3, Failed checks: 0, Skipped checks: 0\n");
        let unread = "Passed checks: 3, Failed checks: 0, Skipped checks: 0, Parsing errors: 1\n";
        let unread_and_failed = format!("{unread}\n\tFAILED for resource: a.b\n");
        for text in [
            nothing,
            of_checkov,
            banner,
            &then_conftest,
            &then_another,
            unread,
            &unread_and_failed,
            "\u{1b}[32m0 tests, 0 passed\u{1b}[0m",
        ] {
            for succeeded in [true, false] {
                let read = read(text, succeeded);
                assert!(
                    matches!(read, Err(ReadError::NotEvaluated(_))),
                    "{text}: {read:?}"
                );
            }
        }
        // One of several calls has found rules.
        for more in [
            "1 test, 1 passed, 0 warnings, 0 failures, 0 exceptions",
            "12 tests, 12 passed, 0 warnings, 0 failures, 0 exceptions",
            "Passed checks: 3, Failed checks: 0, Skipped checks: 0",
            "By Prisma Cloud | version: 3.3.30 \n\nPassed checks: 3, Failed checks: 0, Skipped checks: 0",
        ] {
            assert_eq!(read(&format!("{nothing}\n{more}\n"), true), Ok(vec![]));
        }
        let text = "it is fine that 0 tests, 0 passed";
        assert_eq!(read(text, true), Ok(vec![]), "it is no count");
        let failed = read(&format!("{nothing}\nFAIL - a"), true).unwrap();
        assert_eq!(failed.len(), 1);
    }

    #[test]
    fn a_summary_of_trivy_without_a_plan_needs_no_finding() {
        let summary = |title: &str, kind: &str, count: &str| {
            format!(
                "Report Summary\n\n┌───┬───┬───┐\n│ Target │ Type │ {title} │\n├───┼───┼───┤\n│ {count} │ {kind} │ {count} │\n"
            )
        };
        for (title, kind, count, passes) in [
            ("Misconfigurations", "terraform", "0", true),
            ("Misconfigurations", "terraformplan", "0", false),
            ("Misconfigurations", "-", "-", false),
            // A scan for secrets that finds none has no target either.
            ("Secrets", "-", "-", true),
        ] {
            let read = read(&summary(title, kind, count), true);
            assert_eq!(read == Ok(vec![]), passes, "{title} {kind}: {read:?}");
            let is_refused = matches!(read, Err(ReadError::NotEvaluated(_)));
            assert_eq!(is_refused, !passes, "{title} {kind}");
        }
        let unread = "ERROR\t[terraform parser] Error parsing file\tmodule=\"root\"\nTests: 9 (SUCCESSES: 8, FAILURES: 1)";
        assert!(matches!(
            read(unread, true),
            Err(ReadError::NotEvaluated(_))
        ));
    }

    #[test]
    fn failures_with_other_texts_are_other_findings() {
        let long = "x".repeat(10_000);
        let one = read(&format!("FAIL {long} a"), true).unwrap();
        let other = read(&format!("FAIL {long} b"), true).unwrap();
        assert_ne!(one, other);
        let texts = [
            "FAIL a",
            "FAIL \u{1b}[31ma",
            "FAIL \u{1b}[32ma",
            "FAIL \u{200b}a",
        ];
        let found = texts.map(|text| read(text, true).unwrap().remove(0).identity());
        for (n, one) in found.iter().enumerate() {
            assert!(!found[..n].contains(one), "{:?}", texts[n]);
        }
    }

    proptest! {
        #[test]
        fn nothing_before_or_after_hides_a_failure(before in "(?s).{0,20}", after in "(?s).{0,20}") {
            let text = format!("{before}\nFAIL - a\n{after}");
            prop_assert!(!read(&text, true).unwrap().is_empty());
            prop_assert!(!read(&before, false).is_ok_and(|findings| findings.is_empty()));
        }
    }
}
