//! Reads what conftest reports, and writes the file of results for the steps after it (reference 13.2).
//!
//! Only the report in JSON decides. An exit code other than 0 without a violation in the report is an error, and so is
//! everything that conftest prints instead of a report.

use std::path::{Path, PathBuf};

use lockkeeper_policy::conftest;
use lockkeeper_policy::findings::{FindingLevel, PolicyFinding};
use lockkeeper_policy::sets::PolicySet;
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use serde::{Deserialize, Serialize};

use super::PolicyEvaluation;
use super::files::{PolicyFile, read_rego};
use crate::model::Sha256Digest;

/// Text in place of the path of the plan.
pub(in crate::workflow) const REDACTED: &str = "<redacted plan file>";

/// Maximum number of bytes of a report.
pub(in crate::workflow) const MAX_REPORT: u64 = 16 << 20;

/// Maximum number of characters of an error of conftest in a reason.
const MAX_ERROR: usize = 600;

/// One finished run of conftest.
pub(in crate::workflow) struct ConftestRun<'a> {
    /// Exit code: 0, or 1 and 2 if the plan violates policies.
    pub code: i32,
    /// Standard output, which is the report.
    pub report: &'a str,
    /// Standard error, with the reason if there is no report.
    pub errors: &'a str,
    /// True if warnings count as violations (`--fail-on-warn`).
    pub fails_on_warnings: bool,
}

/// Reads the findings of a run, with the text that conftest prints for people.
pub(in crate::workflow) fn evaluated(run: &ConftestRun<'_>) -> PolicyEvaluation {
    let mut found = match conftest::read(run.report) {
        Ok(found) => found,
        Err(error) => {
            let said = first_chars(run.errors.trim(), MAX_ERROR);
            let why = if said.is_empty() {
                format!(
                    "conftest ended with exit code {}, and its report cannot be used: {error}",
                    run.code
                )
            } else {
                format!("conftest ended with exit code {}: {said}", run.code)
            };
            let why = format!("{why}. Correct the policies of the set, then plan again");
            return PolicyEvaluation::missing(why, run.errors);
        }
    };
    if run.fails_on_warnings {
        for finding in &mut found {
            if finding.level == FindingLevel::Warn {
                finding.level = FindingLevel::Deny;
            }
        }
    }
    let output = standard_text(run.report).unwrap_or_else(|| text_of(&found));
    if run.code != 0 && !found.iter().any(PolicyFinding::is_violation) {
        let why = format!(
            "conftest ended with exit code {}, but its report has no violation. Plan again, and look at the page of \
             the run if it happens again",
            run.code
        );
        return PolicyEvaluation::missing(why, output);
    }
    PolicyEvaluation {
        found: Ok(found),
        output,
        tool: None,
    }
}

fn first_chars(text: &str, most: usize) -> String {
    let first: String = text.chars().take(most).collect();
    if first.len() < text.len() {
        format!("{first}…")
    } else {
        first
    }
}

/// Part of a report that conftest prints for people.
#[derive(Deserialize)]
struct ReportedFile {
    #[serde(default)]
    filename: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    successes: u64,
    #[serde(default)]
    failures: Option<Vec<ReportedRule>>,
    #[serde(default)]
    warnings: Option<Vec<ReportedRule>>,
    #[serde(default)]
    exceptions: Option<Vec<ReportedRule>>,
}

#[derive(Deserialize)]
struct ReportedRule {
    msg: String,
}

/// Returns the text that conftest prints by default. Patterns of administrators (`policy_item_regex`) are made for it.
fn standard_text(report: &str) -> Option<String> {
    let files: Vec<ReportedFile> = serde_json::from_str(report).ok()?;
    let mut lines = Vec::new();
    let (mut passed, mut counts) = (0_u64, [0_u64; 3]);
    for file in &files {
        let groups = [
            ("WARN", &file.warnings),
            ("FAIL", &file.failures),
            ("EXCP", &file.exceptions),
        ];
        for ((word, rules), count) in groups.into_iter().zip(&mut counts) {
            for rule in rules.iter().flatten() {
                *count += 1;
                lines.push(line(word, &file.filename, &file.namespace, &rule.msg));
            }
        }
        passed = passed.saturating_add(file.successes);
    }
    let [warnings, failures, exceptions] = counts;
    let tests = counts
        .iter()
        .fold(passed, |sum, count| sum.saturating_add(*count));
    let counted = |count: u64, word: &str| {
        let end = if count == 1 { "" } else { "s" };
        format!("{count} {word}{end}")
    };
    lines.push(format!(
        "\n{}, {passed} passed, {}, {}, {}\n",
        counted(tests, "test"),
        counted(warnings, "warning"),
        counted(failures, "failure"),
        counted(exceptions, "exception")
    ));
    Some(lines.join("\n"))
}

fn line(word: &str, file: &str, namespace: &str, message: &str) -> String {
    format!("{word} - {file} - {namespace} - {message}")
}

/// Returns findings in the form of conftest.
pub(in crate::workflow) fn text_of(findings: &[PolicyFinding]) -> String {
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| {
            let word = match finding.level {
                FindingLevel::Deny | FindingLevel::RequireApproval { .. } => "FAIL",
                FindingLevel::Warn => "WARN",
            };
            let rule = &finding.rule;
            let namespace = rule
                .rsplit_once('.')
                .map_or(&**rule, |(package, _)| package);
            line(word, REDACTED, namespace, &finding.message)
        })
        .collect();
    lines.join("\n")
}

/// Result of a set in the file of results, with the keys of Atlantis.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SetResult<'a> {
    policy_set_name: &'a str,
    policy_output: &'a str,
    passed: bool,
    req_approval_count: u32,
    approvals: [(); 0],
    hashes: Vec<&'a str>,
    policy_item_regex: &'a str,
}

/// Returns the content of the file of results (`POLICYCHECKFILE`).
pub(in crate::workflow) fn results<'a>(
    verdicts: impl Iterator<Item = (&'a PolicySet, &'a Verdict)>,
) -> String {
    let results: Vec<SetResult<'_>> = verdicts
        .map(|(set, verdict)| SetResult {
            policy_set_name: set.name.as_str(),
            policy_output: match &verdict.outcome {
                VerdictOutcome::Passed | VerdictOutcome::Failed => &verdict.output,
                VerdictOutcome::NotEvaluated(why) => why,
            },
            passed: verdict.outcome == VerdictOutcome::Passed,
            req_approval_count: set.approve_count,
            approvals: [],
            hashes: verdict.items.iter().map(Sha256Digest::as_str).collect(),
            policy_item_regex: set.item_regex.as_str(),
        })
        .collect();
    serde_json::to_string(&results).expect("texts and numbers are always JSON")
}

/// Returns the arguments of the configuration, split into words as a shell would (reference 13.2), so that
/// `--namespace main` can be one item of the list.
pub(in crate::workflow) fn words(extra: &[String]) -> Vec<String> {
    extra
        .iter()
        .flat_map(|argument| shlex::split(argument).unwrap_or_else(|| vec![argument.clone()]))
        .collect()
}

/// Options of conftest whose values are paths of policies.
const POLICY_OPTIONS: [&str; 2] = ["-p", "--policy"];
/// Options of conftest whose values are paths of data.
const DATA_OPTIONS: [&str; 2] = ["-d", "--data"];

/// Returns the absolute paths of policies and data among arguments of the configuration. Values with variables are left out: a
/// step can set a variable to text of the pull request.
pub(in crate::workflow) fn named_paths(words: &[String]) -> Vec<PathBuf> {
    let mut paths = policy_paths(words);
    paths.extend(absolute(values_of(words, &DATA_OPTIONS)));
    paths
}

/// Returns the absolute paths of policies among arguments of the configuration, without variables.
fn policy_paths(words: &[String]) -> Vec<PathBuf> {
    absolute(values_of(words, &POLICY_OPTIONS))
}

fn absolute(values: Vec<&str>) -> Vec<PathBuf> {
    values
        .into_iter()
        .filter(|value| !value.contains('$'))
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path != Path::new("/"))
        .collect()
}

/// Returns the values of options, which can be lists.
fn values_of<'w>(words: &'w [String], options: &[&str]) -> Vec<&'w str> {
    let mut all = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let found = options.iter().find_map(|option| {
            let rest = word.strip_prefix(option)?;
            let is_short = option.len() == 2;
            Some(rest).filter(|rest| is_short || rest.is_empty() || rest.starts_with('='))
        });
        let values = match found {
            Some("") => words.next().unwrap_or_default(),
            Some(rest) => rest.strip_prefix('=').unwrap_or(rest),
            None => continue,
        };
        all.extend(values.split(',').filter(|value| !value.is_empty()));
    }
    all
}

/// Checks that conftest knows all rules of these files. It ignores rules `require_approval`, and the plan would pass without
/// them.
pub(in crate::workflow) fn check_rules(files: &[PolicyFile]) -> Result<(), String> {
    for file in files.iter().filter(|file| file.is_rego()) {
        let text = String::from_utf8_lossy(&file.content);
        if let Some(rule) = conftest::ignored_rule(&text) {
            return Err(format!(
                "`{}` has a rule `{rule}`, which conftest ignores. An administrator must write `engine: embedded` for the \
                 set, or replace the rule by a `violation` with the key `require_approval`",
                file.path
            ));
        }
    }
    Ok(())
}

/// Checks the rules of all policies that arguments of the administrator name by absolute paths.
pub(in crate::workflow) async fn check_named_rules(words: &[String]) -> Result<(), String> {
    let paths = policy_paths(words);
    let checking = move || {
        for path in paths {
            let files = read_rego(&path).map_err(|error| {
                format!(
                    "the policies in {}, which the arguments of the step `policy_check` name, cannot be read: {error}. An \
                     administrator must correct the workflow",
                    path.display()
                )
            })?;
            check_rules(&files)?;
        }
        Ok(())
    };
    tokio::task::spawn_blocking(checking)
        .await
        .unwrap_or_else(|error| Err(format!("the policies cannot be read: {error}. Plan again")))
}

/// Returns true if warnings count as violations.
pub(in crate::workflow) fn fails_on_warnings(words: &[String]) -> bool {
    words
        .iter()
        .any(|word| matches!(word.as_str(), "--fail-on-warn" | "--fail-on-warn=true"))
}

#[cfg(test)]
mod tests {
    use lockkeeper_policy::sets::{ItemRegex, PolicyEngine};
    use regex::Regex;

    use super::*;
    use crate::workflow::policies::testing::policy_set;

    const REPORT: &str = r#"[
        {
            "filename": "<redacted plan file>",
            "namespace": "main",
            "successes": 2,
            "warnings": [{"msg": "no tag", "metadata": {"query": "data.main.warn"}}],
            "failures": [{"msg": "bucket is public", "metadata": {"query": "data.main.deny"}}]
        }
    ]"#;
    const WARNING: &str = r#"[{"filename": "p", "namespace": "main", "successes": 1, "warnings": [{"msg": "no tag"}]}]"#;
    const PASSED: &str = r#"[{"filename": "p", "namespace": "main", "successes": 1}]"#;

    fn run(code: i32, report: &str, errors: &str, fails_on_warnings: bool) -> PolicyEvaluation {
        evaluated(&ConftestRun {
            code,
            report,
            errors,
            fails_on_warnings,
        })
    }

    fn violations(evaluated: &PolicyEvaluation) -> Result<usize, &str> {
        let found = evaluated.found.as_ref().map_err(String::as_str)?;
        Ok(found
            .iter()
            .filter(|finding| finding.is_violation())
            .count())
    }

    #[test]
    fn the_report_decides_and_not_the_exit_code_alone() {
        for (code, report, errors, fails_on_warnings, expected) in [
            (0, PASSED, "", false, Some(0)),
            (1, REPORT, "", false, Some(1)),
            (2, REPORT, "", true, Some(2)),
            (0, REPORT, "", false, Some(1)),
            (0, WARNING, "", false, Some(0)),
            (1, WARNING, "", true, Some(1)),
            (1, WARNING, "", false, None),
            (1, PASSED, "", false, None),
            (0, "", "", false, None),
            (1, "", "Error: running test: rego_parse_error", false, None),
            (0, "PASS: 0/0", "", false, None),
        ] {
            let evaluated = run(code, report, errors, fails_on_warnings);
            assert_eq!(
                violations(&evaluated).ok(),
                expected,
                "{code} {report} {errors}"
            );
        }
    }

    #[test]
    fn the_error_of_conftest_is_the_reason() {
        let evaluated = run(1, "", "Error: load policies: no policies found\n", false);
        assert_eq!(
            violations(&evaluated),
            Err(
                "conftest ended with exit code 1: Error: load policies: no policies found. Correct the policies of the \
                 set, then plan again"
            )
        );
    }

    #[test]
    fn the_text_is_that_of_conftest() {
        assert_eq!(
            run(1, REPORT, "", false).output,
            "WARN - <redacted plan file> - main - no tag\n\
             FAIL - <redacted plan file> - main - bucket is public\n\n\
             4 tests, 2 passed, 1 warning, 1 failure, 0 exceptions\n"
        );
    }

    #[test]
    fn the_file_of_results_has_the_keys_of_atlantis() {
        let sets = ["violated", "passed", "broken"].map(|name| {
            let mut set = policy_set(name, PolicyEngine::Conftest);
            if name == "violated" {
                set.approve_count = 2;
                set.item_regex = ItemRegex(Regex::new("FAIL.*").unwrap());
            }
            set
        });
        let [violated, passed, broken] = &sets;
        let verdict = |set: &PolicySet, findings: Vec<PolicyFinding>, output: &str| {
            let origin = "/policies".to_owned();
            let output = output.to_owned();
            Verdict::of_findings(set, set.digest(None), origin, None, findings, output)
        };
        let public = PolicyFinding::deny("main.deny", "public");
        let verdicts = [
            verdict(violated, vec![public], "FAIL public"),
            verdict(passed, Vec::new(), "1 test, 1 \"passed\""),
            Verdict::not_evaluated(
                &broken.name,
                broken.digest(None),
                "/policies".to_owned(),
                "conftest ended with exit code 3".to_owned(),
                "an output that is no result".to_owned(),
            ),
        ];
        insta::assert_snapshot!(
            results(sets.iter().zip(&verdicts)).replace("},", "},\n"),
            @r#"
        [{"PolicySetName":"violated","PolicyOutput":"FAIL public","Passed":false,"ReqApprovalCount":2,"Approvals":[],"Hashes":["773639b0d1d6f6100ed81be455e0d7e2ecc4cb68ff628a7c04492f92e892b15e"],"PolicyItemRegex":"FAIL.*"},
        {"PolicySetName":"passed","PolicyOutput":"1 test, 1 \"passed\"","Passed":true,"ReqApprovalCount":1,"Approvals":[],"Hashes":[],"PolicyItemRegex":"(?s).+"},
        {"PolicySetName":"broken","PolicyOutput":"conftest ended with exit code 3","Passed":false,"ReqApprovalCount":1,"Approvals":[],"Hashes":[],"PolicyItemRegex":"(?s).+"}]
        "#
        );
    }

    #[test]
    fn absurd_numbers_have_an_end() {
        let most = u64::MAX;
        let file = format!(
            r#"{{"filename": "p", "namespace": "main", "successes": {most}, "warnings": [{{"msg": "m"}}]}}"#
        );
        let output = run(0, &format!("[{file}, {file}]"), "", false).output;
        assert!(
            output.contains(&format!("{most} tests, {most} passed")),
            "{output}"
        );
    }

    #[test]
    fn arguments_are_words() {
        let words = words(&["--namespace main".to_owned(), "-d '/a b'".to_owned()]);
        assert_eq!(words, ["--namespace", "main", "-d", "/a b"]);
        assert!(!fails_on_warnings(&words));
        assert!(fails_on_warnings(&["--fail-on-warn".to_owned()]));
    }

    #[test]
    fn absolute_paths_of_policies_and_data_are_found() {
        for (arguments, expected) in [
            ("-p /a --policy /b -d /c --data /d", "/a /b /c /d"),
            ("-p=/a --policy=/b -d/c --data=/d,/e", "/a /b /c /d /e"),
            ("--data /d,relative,/e", "/d /e"),
            ("-p relative -p ../up -d", ""),
            ("-d $DATA -d /x/$NAME --data=${DATA} -p /", ""),
            ("--namespace /a --output /b --datafile=/c /d", ""),
        ] {
            let found = named_paths(&words(&[arguments.to_owned()]));
            let expected: Vec<&Path> = expected.split_whitespace().map(Path::new).collect();
            assert_eq!(found, expected, "{arguments}");
        }
    }

    #[test]
    fn policies_are_searched_wherever_arguments_name_them() {
        let words = words(&["-p /a,/b --policy=c,/$D -d /d --output -p/e --policy".to_owned()]);
        let expected = ["/a", "/b", "/e"].map(PathBuf::from);
        assert_eq!(policy_paths(&words), expected);
    }

    #[tokio::test]
    async fn rules_that_conftest_ignores_are_found_in_policies_of_the_arguments() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("more/.hidden")).unwrap();
        let file = dir.path().join("more/.hidden/a.rego");
        std::fs::write(&file, "package main\ndeny contains 1 if { false }").unwrap();
        let check = async |option: &str, below: &str| {
            let path = dir.path().join(below).display().to_string();
            check_named_rules(&[option.to_owned(), path]).await
        };
        assert_eq!(check("-p", "more").await, Ok(()));
        let text = "package main\nrequire_approval contains 1 if { true }";
        std::fs::write(&file, text).unwrap();
        for (option, below) in [("-p", "more"), ("--policy", "more/.hidden"), ("-p", "")] {
            let error = check(option, below).await.unwrap_err();
            assert!(error.contains("which conftest ignores"), "{error}");
        }
        assert_eq!(check("-d", "more").await, Ok(()));
        let error = check("-p", "absent").await.unwrap_err();
        assert!(error.contains("cannot be read"), "{error}");
    }
}
