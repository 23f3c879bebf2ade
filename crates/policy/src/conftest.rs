//! Reads the output of `conftest test --output json`.
//!
//! conftest prints one element for each file and package (its word is "namespace"): the number of rules that hold, and the results
//! of those that do not. A package without rules has none of either.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::bounded::Bounded;
use crate::findings::{
    FindingLevel, MAX_READ, PolicyFinding, ReadError, RegoKeys, input, one_line,
};

/// Maximum number of pairs of a file and a package.
const MAX_CHECKS: usize = 2000;

/// Rules of one package on one file.
#[derive(Deserialize)]
struct ConftestCheck {
    namespace: String,
    successes: u64,
    #[serde(default)]
    failures: Option<Bounded<ConftestResult, MAX_READ>>,
    #[serde(default)]
    warnings: Option<Bounded<ConftestResult, MAX_READ>>,
    #[serde(default)]
    exceptions: Option<Bounded<ConftestResult, MAX_READ>>,
    #[serde(default)]
    skipped: Option<Bounded<ConftestResult, MAX_READ>>,
}

/// Result of one rule.
#[derive(Deserialize)]
struct ConftestResult {
    msg: String,
    /// Value of `_loc` in the result of the rule.
    #[serde(default)]
    loc: Option<Value>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

/// Reads an output. Exceptions are no findings: the policies themselves allow them.
pub fn read(text: &str) -> Result<Vec<PolicyFinding>, ReadError> {
    let text = input(text)?;
    // conftest writes `null` for no files.
    let checks: Option<Bounded<ConftestCheck, MAX_CHECKS>> =
        serde_json::from_str(text).map_err(|error| not_conftest(&error))?;
    let checks = checks.unwrap_or_default().0;
    if checks.is_empty() {
        return Err(ReadError::NotEvaluated(
            "conftest read no file, so it evaluated no rule".to_owned(),
        ));
    }
    let mut findings = Vec::new();
    let mut evaluated = 0_u64;
    let mut namespaces: Vec<&str> = Vec::new();
    for check in &checks {
        let skipped = length(check.skipped.as_ref());
        if skipped > 0 {
            return Err(ReadError::NotEvaluated(format!(
                "conftest skipped {skipped} rules of the package `{}`",
                one_line(&check.namespace, 100)
            )));
        }
        let results = length(check.failures.as_ref())
            + length(check.warnings.as_ref())
            + length(check.exceptions.as_ref());
        evaluated = evaluated
            .saturating_add(check.successes)
            .saturating_add(u64::try_from(results).unwrap_or(u64::MAX));
        if !namespaces.contains(&check.namespace.as_str()) && namespaces.len() < 10 {
            namespaces.push(&check.namespace);
        }
    }
    if evaluated == 0 {
        return Err(ReadError::NotEvaluated(format!(
            "conftest found no rule in the package `{}`. Put `--namespace` or `--all-namespaces` into `extra_args`, or the rules \
             into that package",
            one_line(&namespaces.join("`, `"), 500)
        )));
    }
    for check in checks {
        let namespace = check.namespace;
        for (results, level, rule) in [
            (check.failures, FindingLevel::Deny, "deny"),
            (check.warnings, FindingLevel::Warn, "warn"),
        ] {
            for result in results.unwrap_or_default().0 {
                if findings.len() == MAX_READ {
                    return Err(ReadError::TooMany);
                }
                findings.push(finding(result, level.clone(), &namespace, rule)?);
            }
        }
    }
    Ok(findings)
}

/// Returns the first rule `require_approval` or `require_approval_…` that a file with Rego defines. conftest does not know such
/// rules and ignores them. The file can be in any version of Rego, and need not be valid.
pub fn ignored_rule(text: &str) -> Option<&str> {
    let mut chars = text.char_indices().peekable();
    let mut depth = 0_u32;
    // True where a rule can begin.
    let mut at_start = true;
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' | ';' => at_start = true,
            '#' => while chars.next_if(|(_, c)| *c != '\n').is_some() {},
            '"' | '`' => {
                at_start = false;
                while let Some((_, inner)) = chars.next() {
                    if inner == c {
                        break;
                    }
                    if c == '"' && inner == '\\' {
                        chars.next();
                    }
                }
            }
            '{' | '[' | '(' => {
                at_start = false;
                depth += 1;
            }
            '}' | ']' | ')' => {
                at_start = true;
                depth = depth.saturating_sub(1);
            }
            _ if c.is_ascii_alphabetic() || c == '_' => {
                let mut end = at + 1;
                while chars
                    .next_if(|(_, c)| c.is_ascii_alphanumeric() || *c == '_')
                    .is_some()
                {
                    end += 1;
                }
                let word = &text[at..end];
                let is_ignored =
                    word == "require_approval" || word.starts_with("require_approval_");
                if depth == 0 && at_start && is_ignored {
                    return Some(word);
                }
                // `default` is only the beginning of the head of a rule.
                at_start = at_start && word == "default";
            }
            _ if c.is_whitespace() => {}
            _ => at_start = false,
        }
    }
    None
}

fn length(results: Option<&Bounded<ConftestResult, MAX_READ>>) -> usize {
    results.map_or(0, |results| results.0.len())
}

fn finding(
    result: ConftestResult,
    level: FindingLevel,
    namespace: &str,
    rule: &str,
) -> Result<PolicyFinding, ReadError> {
    let mut keys = result.metadata.unwrap_or_default();
    if let Some(place) = result.loc {
        keys.insert("_loc".to_owned(), place);
    }
    // conftest adds the query, such as `data.main.deny_public`.
    let query = keys.remove("query");
    let query = query.as_ref().and_then(Value::as_str);
    let rule = query.map_or_else(
        || format!("{namespace}.{rule}"),
        |query| query.strip_prefix("data.").unwrap_or(query).to_owned(),
    );
    PolicyFinding::of_rego(level, &rule, &result.msg, RegoKeys::of(keys))
}

fn not_conftest(error: &serde_json::Error) -> ReadError {
    ReadError::Format {
        format: "the JSON of `conftest test --output json`",
        problem: one_line(&error.to_string(), 500),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::findings::FindingPlace;

    const REAL: &str = r#"[
	{
		"filename": "plan.json",
		"namespace": "main",
		"successes": 2,
		"warnings": [
			{
				"msg": "Bucket has no tags",
				"metadata": {
					"query": "data.main.warn"
				}
			}
		],
		"failures": [
			{
				"msg": "Bucket is public",
				"loc": {
					"file": "prod/main.tf",
					"line": 3
				},
				"metadata": {
					"details": {"acl": "public-read"},
					"query": "data.main.deny_public",
					"resource": "aws_s3_bucket.logs"
				}
			},
			{
				"msg": "IAM changes need the security team",
				"metadata": {
					"query": "data.main.violation",
					"require_approval": {
						"count": 2,
						"teams": ["acme/security"]
					}
				}
			}
		],
		"exceptions": [
			{
				"msg": "data.main.exception[_][_] == \"deny_tags\""
			}
		]
	},
	{
		"filename": "plan.json",
		"namespace": "lib.tags",
		"successes": 0
	}
]
"#;

    #[test]
    fn rules_that_conftest_ignores_are_found_in_every_form() {
        for (text, expected) in [
            (
                "package main\n\nrequire_approval contains x if { true }",
                Some("require_approval"),
            ),
            (
                "package main\nrequire_approval[x] { true }",
                Some("require_approval"),
            ),
            (
                "  require_approval_iam := [1]",
                Some("require_approval_iam"),
            ),
            ("default require_approval := []", Some("require_approval")),
            (
                "deny contains 1 if { true } require_approval contains 1",
                Some("require_approval"),
            ),
            (
                "a := \"{\"\nrequire_approval contains 1",
                Some("require_approval"),
            ),
            (
                "a := `\"{`\nrequire_approval contains 1",
                Some("require_approval"),
            ),
            (
                "# it's {\nrequire_approval contains 1",
                Some("require_approval"),
            ),
            (
                "a := \"\\\"{\"\nrequire_approval contains 1",
                Some("require_approval"),
            ),
            (
                "this is { no Rego } \u{e4}\nrequire_approval",
                Some("require_approval"),
            ),
            ("# require_approval contains 1", None),
            ("deny contains \"require_approval\" if { true }", None),
            ("a := `\nrequire_approval`", None),
            (
                "violation contains {\n\"msg\": 1,\n\"require_approval\": {}}",
                None,
            ),
            ("deny contains 1 if {\n  require_approval_x\n}", None),
            ("import data.lib.require_approval", None),
            ("require_approvals contains 1", None),
            ("must_require_approval contains 1", None),
            ("", None),
        ] {
            assert_eq!(ignored_rule(text), expected, "{text}");
        }
    }

    #[test]
    fn a_real_output_is_read() {
        let public = PolicyFinding {
            resource: Some("aws_s3_bucket.logs".to_owned()),
            place: Some(FindingPlace {
                file: "prod/main.tf".to_owned(),
                line: Some(3),
            }),
            evidence: Some("{\n  \"acl\": \"public-read\"\n}".to_owned()),
            ..PolicyFinding::deny("main.deny_public", "Bucket is public")
        };
        let teams = vec!["acme/security".to_owned()];
        let message = "IAM changes need the security team";
        let expected = vec![
            public,
            PolicyFinding::require_approval(2, teams, "main.violation", message),
            PolicyFinding::warn("main.warn", "Bucket has no tags"),
        ];
        assert_eq!(read(REAL), Ok(expected));
    }

    #[test]
    fn an_output_of_successes_has_no_findings() {
        let text = r#"[{"filename": "plan.json", "namespace": "main", "successes": 3}]"#;
        assert_eq!(read(text), Ok(vec![]));
        let excepted = r#"[{"filename": "", "namespace": "main", "successes": 0, "exceptions": [{"msg": "q"}]}]"#;
        assert_eq!(read(excepted), Ok(vec![]));
    }

    #[test]
    fn a_result_without_metadata_is_a_finding_of_the_package() {
        let text =
            r#"[{"filename": "", "namespace": "a.b", "successes": 0, "failures": [{"msg": ""}]}]"#;
        let findings = read(text).unwrap();
        assert_eq!(findings[0].rule, "a.b.deny");
        assert!(!findings[0].message.is_empty());
        assert!(findings[0].is_violation());
    }

    #[test]
    fn results_that_differ_in_any_key_are_different() {
        let read_one = |metadata: &str| {
            let text = format!(
                r#"[{{"namespace": "main", "successes": 0, "failures": [{{"msg": "m", "metadata": {metadata}}}]}}]"#
            );
            read(&text).unwrap().remove(0)
        };
        let one = read_one(r#"{"query": "data.main.deny", "address": "a"}"#);
        let other = read_one(r#"{"query": "data.main.deny", "address": "b"}"#);
        assert_eq!((&one.rule, &one.message), (&other.rule, &other.message));
        assert_ne!(one, other);
        assert_eq!(read_one(r#"{"query": "data.main.deny"}"#).other, None);
    }

    #[test]
    fn nothing_evaluated_is_an_error() {
        for text in [
            "null",
            "[]",
            r#"[{"filename": "plan.json", "namespace": "main", "successes": 0}]"#,
            r#"[{"filename": "", "namespace": "main", "successes": 0, "failures": null, "warnings": []}]"#,
            r#"[{"filename": "", "namespace": "main", "successes": 9, "skipped": [{"msg": "deny"}]}]"#,
        ] {
            assert!(
                matches!(read(text), Err(ReadError::NotEvaluated(_))),
                "{text}"
            );
        }
        for text in ["", " \n", "\u{feff}"] {
            assert_eq!(read(text), Err(ReadError::Empty), "{text:?}");
        }
    }

    #[test]
    fn other_outputs_are_errors() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in [
            "Error: running test: parse configurations: no such file",
            "2 tests, 2 passed, 0 warnings, 0 failures, 0 exceptions",
            "{}",
            "[1]",
            r#"[{"successes": 1}]"#,
            r#"[{"namespace": "main"}]"#,
            r#"[{"namespace": "main", "successes": -1}]"#,
            r#"[{"namespace": "main", "successes": 1, "failures": 0}]"#,
            r#"[{"namespace": "main", "successes": 1, "failures": ["text"]}]"#,
            r#"[{"namespace": "main", "successes": 1, "failures": [{}]}]"#,
            r#"[{"namespace": "main", "successes": 1}] Error: panic"#,
            r#"[{"namespace": "main", "successes": 1"#,
            deep.as_str(),
        ] {
            let error = read(text).unwrap_err();
            assert!(matches!(error, ReadError::Format { .. }), "{error}");
        }
        assert_eq!(read(&" ".repeat(9 << 20)), Err(ReadError::TooLarge));
        let wrong = r#"[{"namespace": "main", "successes": 0, "failures":
            [{"msg": "m", "metadata": {"require_approval": true}}]}]"#;
        assert!(matches!(read(wrong), Err(ReadError::Approval { .. })));
    }

    proptest! {
        #[test]
        fn damaged_outputs_never_panic_and_never_pass(end in 0..REAL.len() - 1, other in ".{0,3}") {
            let end = REAL.floor_char_boundary(end);
            prop_assert!(read(&REAL[..end]).is_err());
            let damaged = format!("{}{other}{}", &REAL[..end], &REAL[end..]);
            drop(read(&damaged));
        }
    }
}
