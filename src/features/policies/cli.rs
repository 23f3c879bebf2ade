//! `lockkeeper policy (test | eval)`: policies on this machine, with the embedded engine.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use lockkeeper_policy::embedded::{
    EvalLimits, MAX_FILES, MAX_POLICY_BYTES, RegoFile, TestOutcome, TestResult, evaluate, test,
};
use lockkeeper_policy::facts::Facts;
use lockkeeper_policy::findings::{FindingLevel, PolicyFinding};
use serde_json::{Value, json};

use crate::kit::term::{ExitResult, ExitStatus, OutputFormat, SubcommandArgs, Terminal, safe};

/// Maximum depth of directories with policies.
const DEEPEST: usize = 20;
/// Maximum size of a file of facts or data, in bytes.
const MAX_DATA: usize = 16 * 1024 * 1024;

/// Run the tests of policies, and evaluate policies on a plan
#[derive(clap::Parser)]
pub(super) enum PolicyArgs {
    /// Run the tests of policies
    ///
    /// Tests are the rules whose names begin with `test_`, in all packages. Prints one line for each test. If a test does
    /// not pass, also prints the reason and the lines of `print`. Policies are read as Rego v1.
    ///
    /// Exit code 1: a test did not pass, or there is none.
    Test {
        #[command(flatten)]
        policies: PolicyFlags,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Evaluate policies on a plan
    ///
    /// Evaluates the rules `deny`, `violation`, `warn` and `require_approval` with the engine of the server, and prints a
    /// line for each finding, worst first. The plan is `input`, and the facts are `data.lockkeeper`.
    ///
    /// Exit code 1: a policy is violated, or the policies cannot be evaluated.
    Eval {
        /// Plan, as `terraform show -json` writes it; `-` is standard input
        #[arg(long, value_name = "FILE")]
        plan: PathBuf,
        /// Facts of a pull request, as JSON (docs/policies.md); without it they are empty
        #[arg(long, value_name = "FILE")]
        facts: Option<PathBuf>,
        /// Package to evaluate; `*` for all. May be given several times [default: main]
        #[arg(long = "namespace", value_name = "NAME")]
        namespaces: Vec<String>,
        #[command(flatten)]
        policies: PolicyFlags,
        #[command(flatten)]
        format: OutputFormat,
    },
}

/// Policies of a subcommand.
#[derive(clap::Args)]
pub(super) struct PolicyFlags {
    /// Directory with policies, or one file
    #[arg(value_name = "DIR", default_value = "policy")]
    dir: PathBuf,
    /// File with data for the policies, as JSON. May be given several times
    #[arg(long, value_name = "FILE")]
    data: Vec<PathBuf>,
}

impl SubcommandArgs for PolicyArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        match self {
            Self::Test { policies, format } => run_tests(&policies, format, terminal),
            Self::Eval {
                plan,
                facts,
                namespaces,
                policies,
                format,
            } => {
                let limits = EvalLimits::default();
                let facts = match facts {
                    Some(file) => serde_json::from_str::<Facts>(&read(&file, MAX_DATA)?)
                        .with_context(|| format!("`{}` has no facts", file.display()))?,
                    None => Facts::default(),
                };
                let mut data = policies.data()?;
                data.push(facts.to_data());
                let files = policies.files()?;
                let plan = read(&plan, limits.input_bytes)?;
                let findings = evaluate(&files, &data, &plan, &namespaces, &limits)?;
                for finding in &findings {
                    format.print(
                        terminal,
                        || json!(finding),
                        || safe_lines(&finding_text(finding)),
                    )?;
                }
                let violations = findings
                    .iter()
                    .filter(|finding| finding.level != FindingLevel::Warn)
                    .count();
                terminal.note(format_args!(
                    "{}, {}.",
                    count(violations, "violation"),
                    count(findings.len() - violations, "warning")
                ));
                Ok(if violations == 0 {
                    ExitStatus::Success
                } else {
                    ExitStatus::Failure
                })
            }
        }
    }
}

fn run_tests(
    policies: &PolicyFlags,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let results = test(
        &policies.files()?,
        &policies.data()?,
        &EvalLimits::default(),
    )?;
    ensure!(
        !results.is_empty(),
        "`{}` has no test: no rule has a name that begins with `test_`",
        policies.dir.display()
    );
    for result in &results {
        format.print(
            terminal,
            || test_json(result),
            || safe_lines(&test_text(result)),
        )?;
    }
    let passed = results
        .iter()
        .filter(|result| result.outcome == TestOutcome::Passed)
        .count();
    terminal.note(format_args!(
        "{}, {passed} passed.",
        count(results.len(), "test")
    ));
    Ok(if passed == results.len() {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

fn test_json(result: &TestResult) -> Value {
    let (outcome, reason) = match &result.outcome {
        TestOutcome::Passed => ("passed", None),
        TestOutcome::Failed => ("failed", None),
        TestOutcome::Broken(why) => ("broken", Some(why)),
    };
    json!({
        "rule": result.rule,
        "place": result.place,
        "outcome": outcome,
        "reason": reason,
        "prints": result.prints,
    })
}

/// Describes a test; what it printed is interesting only if it did not pass.
fn test_text(result: &TestResult) -> String {
    let TestResult { rule, place, .. } = result;
    let (mut text, is_shown) = match &result.outcome {
        TestOutcome::Passed => (format!("pass   {rule} ({place})"), false),
        TestOutcome::Failed => (format!("fail   {rule} ({place}): it is not true"), true),
        TestOutcome::Broken(why) => (format!("broken {rule} ({place}): {why}"), true),
    };
    if is_shown {
        for line in &result.prints {
            text.push_str("\n       ");
            text.push_str(line);
        }
    }
    text
}

/// Describes a finding: weight, rule, message, resource, place and link, and the evidence below.
fn finding_text(finding: &PolicyFinding) -> String {
    let level = match &finding.level {
        FindingLevel::Deny => "deny".to_owned(),
        FindingLevel::RequireApproval { count: 1, teams } if teams.is_empty() => {
            "require 1 approval".to_owned()
        }
        FindingLevel::RequireApproval { count, teams } if teams.is_empty() => {
            format!("require {count} approvals")
        }
        FindingLevel::RequireApproval { count, teams } => {
            format!("require {count} of {}", teams.join(", "))
        }
        FindingLevel::Warn => "warn".to_owned(),
    };
    let mut text = format!("{level} {}: {}", finding.rule, finding.message);
    if let Some(resource) = &finding.resource {
        text.push_str(" — ");
        text.push_str(resource);
    }
    if let Some(place) = &finding.place {
        text.push_str(", ");
        text.push_str(&place.file);
        if let Some(line) = place.line {
            text.push(':');
            text.push_str(&line.to_string());
        }
    }
    if let Some(link) = &finding.link {
        text.push_str(" (");
        text.push_str(link);
        text.push(')');
    }
    for line in finding.evidence.iter().flat_map(|text| text.lines()) {
        text.push_str("\n    ");
        text.push_str(line);
    }
    text
}

/// Makes a text of several lines safe for a terminal.
fn safe_lines(text: &str) -> String {
    text.lines().map(safe).collect::<Vec<_>>().join("\n")
}

fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

impl PolicyFlags {
    /// Reads the policies: files whose names end in `.rego`, without hidden ones.
    fn files(&self) -> anyhow::Result<Vec<RegoFile>> {
        let mut files = Vec::new();
        let meta = fs::metadata(&self.dir)
            .with_context(|| format!("cannot find the policies in `{}`", self.dir.display()))?;
        if meta.is_dir() {
            add_files(&self.dir, 0, &mut files)?;
        } else {
            files.push(rego_file(&self.dir)?);
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    fn data(&self) -> anyhow::Result<Vec<Value>> {
        let documents = self.data.iter().map(|file| {
            serde_json::from_str::<Value>(&read(file, MAX_DATA)?)
                .with_context(|| format!("`{}` is not JSON", file.display()))
        });
        documents.collect()
    }
}

/// Adds the policies of a directory. Links are not followed.
fn add_files(dir: &Path, depth: usize, files: &mut Vec<RegoFile>) -> anyhow::Result<()> {
    let context = || format!("cannot read `{}`", dir.display());
    ensure!(
        depth <= DEEPEST,
        "`{}` is more than {DEEPEST} directories deep",
        dir.display()
    );
    for entry in fs::read_dir(dir).with_context(context)? {
        let entry = entry.with_context(context)?;
        let (path, kind) = (entry.path(), entry.file_type().with_context(context)?);
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if kind.is_dir() {
            add_files(&path, depth + 1, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|end| end == "rego") {
            files.push(rego_file(&path)?);
            ensure!(
                files.len() <= MAX_FILES,
                "there are more than {MAX_FILES} policies in one set"
            );
        }
    }
    Ok(())
}

fn rego_file(path: &Path) -> anyhow::Result<RegoFile> {
    Ok(RegoFile {
        path: path.display().to_string(),
        text: read(path, MAX_POLICY_BYTES)?,
    })
}

/// Reads a text of at most `most` bytes; `-` is standard input.
fn read(path: &Path, most: usize) -> anyhow::Result<String> {
    let context = || format!("cannot read `{}`", path.display());
    let mut bytes = Vec::new();
    let limit = most as u64 + 1;
    let read = if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        let file = File::open(path).with_context(context)?;
        file.take(limit).read_to_end(&mut bytes)
    };
    read.with_context(context)?;
    if bytes.len() > most {
        bail!("`{}` is larger than {} MiB", path.display(), most >> 20);
    }
    if bytes.starts_with(b"PK\x03\x04") {
        bail!(
            "`{}` is an archive, like the plan files of Terraform. Write the plan as JSON with `terraform show -json`",
            path.display()
        );
    }
    String::from_utf8(bytes).with_context(|| format!("`{}` is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use crate::cli::tests::call;
    use crate::kit::term::ExitStatus;

    const POLICY: &str = r#"package main

deny contains {"msg": "Buckets are private.", "resource": change.address} if {
    some change in input.resource_changes
    change.change.after.acl == "public-read"
}

warn contains sprintf("%s did this", [data.lockkeeper.author]) if data.lockkeeper.author != ""

test_public if count(deny) == 1 with input as {"resource_changes": [{
    "address": "a",
    "change": {"after": {"acl": "public-read"}},
}]}
"#;
    const PLAN: &str = r#"{"resource_changes": [{"address": "aws_s3_bucket.logs", "change": {"after": {"acl": "public-read"}}}]}"#;

    /// Writes files, runs `lockkeeper policy`, and returns exit code and output without the directory.
    fn policy(files: &[(&str, &str)], args: &[&str]) -> (ExitStatus, String) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let top = dir.path().to_str().unwrap();
        let args: Vec<String> = args.iter().map(|arg| arg.replace("DIR", top)).collect();
        let words: Vec<&str> = ["policy"]
            .into_iter()
            .chain(args.iter().map(String::as_str))
            .collect();
        let (exit, out, err) = call(&words);
        (exit, format!("{out}{err}").replace(top, "DIR"))
    }

    #[test]
    fn a_violated_policy_is_a_failure_and_a_kept_one_is_not() {
        let files = [
            ("policy/a/deny.rego", POLICY),
            ("policy/.hidden/broken.rego", "package"),
            ("policy/README.md", "no policy"),
            ("plan.json", PLAN),
            ("empty.json", "{}"),
            ("plan.bin", "PK\u{3}\u{4}"),
            ("facts.json", r#"{"author": "alice"}"#),
        ];
        let eval = |args: &[&str]| policy(&files, &[&["eval", "DIR/policy"][..], args].concat());
        let (exit, out) = eval(&["--plan", "DIR/plan.json", "--facts", "DIR/facts.json"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert_snapshot!(out, @"
        deny main.deny: Buckets are private. — aws_s3_bucket.logs
        warn main.warn: alice did this
        1 violation, 1 warning.
        ");
        let (exit, out) = eval(&["--plan", "DIR/empty.json"]);
        assert_eq!(
            (exit, out.as_str()),
            (ExitStatus::Success, "0 violations, 0 warnings.\n")
        );
        let (exit, out) = eval(&["--plan", "DIR/plan.json", "--json"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert!(out.contains(r#""resource":"aws_s3_bucket.logs""#), "{out}");
        for (args, problem) in [
            (
                &["--plan", "DIR/plan.json", "--namespace", "x"][..],
                "no rule was evaluated",
            ),
            (&["--plan", "DIR/none.json"], "cannot read `DIR/none.json`"),
            (&["--plan", "DIR/policy/README.md"], "not a JSON object"),
            (&["--plan", "DIR/plan.bin"], "with `terraform show -json`"),
            (
                &["--plan", "DIR/plan.json", "--facts", "DIR/plan.json"],
                "has no facts",
            ),
        ] {
            let (exit, out) = eval(args);
            assert_eq!(exit, ExitStatus::Failure, "{args:?}");
            assert!(out.contains(problem), "{args:?}: {out}");
        }
    }

    #[test]
    fn tests_say_why_they_do_not_pass() {
        let failing =
            "package main\n\ntest_private if {\n    print(\"found\", deny)\n    false\n}\n";
        let files = [("deny.rego", POLICY), ("deny_test.rego", failing)];
        let (exit, out) = policy(&files, &["test", "DIR"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert_snapshot!(out, @"
        fail   main.test_private (DIR/deny_test.rego:3): it is not true
               DIR/deny_test.rego:4: found {}
        pass   main.test_public (DIR/deny.rego:10)
        2 tests, 1 passed.
        ");
        let (exit, out) = policy(&files[..1], &["test", "DIR/deny.rego", "--json"]);
        assert_eq!(exit, ExitStatus::Success);
        assert!(out.contains(r#""outcome":"passed""#), "{out}");
        let (exit, out) = policy(&[("a.rego", "package main\n")], &["test", "DIR"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert!(out.contains("has no test"), "{out}");
        let (exit, out) = policy(&[("a.txt", "")], &["test", "DIR"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert!(out.contains("there is no policy"), "{out}");
    }
}
