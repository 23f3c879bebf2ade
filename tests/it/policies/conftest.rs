//! Real conftest beside the embedded engine, on the policies and plans of `tests/fixtures/policies`, whose folders say how the
//! two compare. `make interop` builds conftest and names its folder in `LOCKKEEPER_INTEROP`.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_policy::conftest;
use lockkeeper_policy::embedded::{EvalLimits, RegoFile, evaluate};
use lockkeeper_policy::facts::Facts;
use lockkeeper_policy::findings::PolicyFinding;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::{real_conftest, run};

/// Packages of an evaluation: the default, and all.
const NAMESPACES: [&[&str]; 2] = [&[], &["*"]];
/// Number of plans of the corpus.
const PLANS: usize = 5;
/// Time limit far above the duration of any evaluation.
const LONG: Duration = Duration::from_mins(5);

/// Finding as text: its level and rule, and its message.
type FoundText = (String, String);

/// Results of one set on one plan.
struct Comparison {
    /// Set, plan and packages.
    place: String,
    /// Name of the set.
    set: String,
    /// Findings of the embedded engine in order; an error is the reason why there are none.
    embedded: Result<Vec<FoundText>, String>,
    /// Findings of conftest in order.
    conftest: Result<Vec<FoundText>, String>,
}

impl Comparison {
    /// Returns true if both have the same findings, or both have none.
    fn agrees(&self) -> bool {
        match (&self.embedded, &self.conftest) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            (Err(_), Err(_)) => true,
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.place)?;
        match (&self.embedded, &self.conftest) {
            (Ok(ours), Ok(theirs)) => {
                for (mark, some, others) in [("+", ours, theirs), ("-", theirs, ours)] {
                    for (rule, message) in missing_in(some, others) {
                        writeln!(f, "  {mark} {rule}: {message:?}")?;
                    }
                }
            }
            (ours, theirs) => {
                writeln!(f, "  embedded: {ours:?}")?;
                writeln!(f, "  conftest: {theirs:?}")?;
            }
        }
        Ok(())
    }
}

/// Returns the findings that another list does not have, or has fewer times.
fn missing_in(some: &[FoundText], others: &[FoundText]) -> Vec<FoundText> {
    let mut left = others.to_vec();
    let mut missing = Vec::new();
    for found in some {
        match left.iter().position(|other| other == found) {
            Some(at) => {
                left.remove(at);
            }
            None => missing.push(found.clone()),
        }
    }
    missing
}

/// Policies, plans and facts, and the program that evaluates them.
struct Corpus {
    conftest: PathBuf,
    /// Working directory of conftest, with the file of facts.
    dir: TempDir,
    facts: Value,
    /// Names of the plans, with their files.
    plans: Vec<(String, PathBuf)>,
}

impl Corpus {
    fn open() -> Self {
        let plans = entries(&fixtures().join("plans"));
        assert_eq!(plans.len(), PLANS);
        let facts = std::fs::read_to_string(fixtures().join("facts.json")).unwrap();
        let facts: Facts = serde_json::from_str(&facts).unwrap();
        let facts = facts.to_data();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("facts.json"), facts.to_string()).unwrap();
        Self {
            conftest: real_conftest(),
            dir,
            facts,
            plans,
        }
    }

    /// Evaluates all sets of a folder on all plans.
    fn compare(&self, folder: &str) -> Vec<Comparison> {
        let mut compared = Vec::new();
        for (set, dir) in entries(&fixtures().join(folder)) {
            let files = rego_files(&dir);
            assert!(!files.is_empty(), "{set} has no policies");
            let data_file = dir.join("data.json");
            let mut data = vec![self.facts.clone()];
            if data_file.is_file() {
                let text = std::fs::read_to_string(&data_file).unwrap();
                data.push(serde_json::from_str(&text).unwrap());
            }
            for (plan, file) in &self.plans {
                let input = std::fs::read_to_string(file).unwrap();
                for namespaces in NAMESPACES {
                    compared.push(Comparison {
                        place: format!("{folder}/{set} on {plan}, packages {namespaces:?}"),
                        set: set.clone(),
                        embedded: embedded(&files, &data, &input, namespaces),
                        conftest: self.with_conftest(&dir, file, namespaces),
                    });
                }
            }
        }
        assert!(!compared.is_empty(), "{folder} has no set");
        compared
    }

    /// Evaluates a set as a server does.
    fn with_conftest(
        &self,
        set: &Path,
        plan: &Path,
        namespaces: &[&str],
    ) -> Result<Vec<FoundText>, String> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let mut args = ["test", "-p"].map(str::to_owned).to_vec();
        args.extend([text(set), "--no-color".to_owned()]);
        if namespaces == ["*"] {
            args.push("--all-namespaces".to_owned());
        }
        args.extend(["--output", "json"].map(str::to_owned));
        for data in [self.dir.path().join("facts.json"), set.join("data.json")] {
            if data.is_file() {
                args.extend(["--data".to_owned(), text(&data)]);
            }
        }
        args.extend(["--".to_owned(), text(plan)]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        // Without a home, conftest crashes.
        let home = text(self.dir.path());
        let variables = [("HOME", home.as_str())];
        let said = run(&text(&self.conftest), self.dir.path(), &args, &variables);
        let findings =
            conftest::read(&said.out).map_err(|error| format!("{error} {}", said.err.trim()))?;
        assert!(
            said.code == 0 || findings.iter().any(PolicyFinding::is_violation),
            "exit code {} without a violation: {}",
            said.code,
            said.out
        );
        Ok(shown(findings))
    }
}

fn embedded(
    files: &[RegoFile],
    data: &[Value],
    input: &str,
    namespaces: &[&str],
) -> Result<Vec<FoundText>, String> {
    let limits = EvalLimits {
        time: LONG,
        ..EvalLimits::default()
    };
    let namespaces: Vec<String> = namespaces.iter().map(|&name| name.to_owned()).collect();
    let findings = evaluate(files, data, input, &namespaces, &limits);
    findings.map(shown).map_err(|error| error.to_string())
}

fn shown(findings: Vec<PolicyFinding>) -> Vec<FoundText> {
    let text = |finding: PolicyFinding| {
        // As verdicts keep it.
        let finding = finding.clean();
        let rule = format!("{:?} {}", finding.level, finding.rule);
        (rule, finding.message)
    };
    let mut shown: Vec<FoundText> = findings.into_iter().map(text).collect();
    shown.sort();
    shown
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/policies")
}

/// Returns the entries of a directory by name.
fn entries(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let mut entries: Vec<(String, PathBuf)> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect();
    entries.sort();
    entries
}

/// Returns the policies below a directory.
fn rego_files(dir: &Path) -> Vec<RegoFile> {
    let mut files = Vec::new();
    for (name, path) in entries(dir) {
        if path.is_dir() {
            let below = rego_files(&path);
            files.extend(below.into_iter().map(|file| RegoFile {
                path: format!("{name}/{}", file.path),
                ..file
            }));
        } else if path.extension().is_some_and(|end| end == "rego") {
            let text = std::fs::read_to_string(&path).unwrap();
            files.push(RegoFile { path: name, text });
        }
    }
    files
}

/// Fails with all comparisons that are not as expected.
fn assert_all(compared: &[Comparison], is_expected: impl Fn(&Comparison) -> bool) {
    let others: Vec<String> = compared
        .iter()
        .filter(|comparison| !is_expected(comparison))
        .map(Comparison::to_string)
        .collect();
    assert!(
        others.is_empty(),
        "{} of {} differ (+ only embedded, - only conftest):\n{}",
        others.len(),
        compared.len(),
        others.concat()
    );
}

/// Checks that each set has at least one comparison of a kind.
fn assert_each_set(compared: &[Comparison], is_of_kind: impl Fn(&Comparison) -> bool) {
    let set = |comparison: &Comparison| comparison.set.clone();
    let all: BTreeSet<String> = compared.iter().map(set).collect();
    let some = compared.iter().filter(|comparison| is_of_kind(comparison));
    let of_kind: BTreeSet<String> = some.map(set).collect();
    assert_eq!(of_kind, all);
}

#[test]
#[ignore = "needs the conftest that `make interop` builds"]
fn the_embedded_engine_finds_what_conftest_finds() {
    let compared = Corpus::open().compare("agree");
    assert_all(&compared, Comparison::agrees);
    assert_each_set(&compared, |comparison| comparison.conftest.is_ok());
    let findings = compared
        .iter()
        .filter_map(|comparison| comparison.conftest.as_ref().ok());
    assert!(findings.map(Vec::len).sum::<usize>() > 1000);
}

#[test]
#[ignore = "needs the conftest that `make interop` builds"]
fn some_messages_have_other_words() {
    let rules = |found: &[FoundText]| -> Vec<String> {
        found.iter().map(|(rule, _)| rule.clone()).collect()
    };
    let compared = Corpus::open().compare("worded");
    assert_all(&compared, |comparison| {
        match (&comparison.embedded, &comparison.conftest) {
            (Ok(ours), Ok(theirs)) => rules(ours) == rules(theirs),
            (_, Err(_)) | (Err(_), _) => false,
        }
    });
    assert_each_set(&compared, |comparison| !comparison.agrees());
}

#[test]
#[ignore = "needs the conftest that `make interop` builds"]
fn what_conftest_refuses_the_embedded_engine_refuses() {
    let compared = Corpus::open().compare("refused");
    assert_all(&compared, |comparison| {
        comparison.embedded.is_err() && comparison.conftest.is_err()
    });
}

#[test]
#[ignore = "needs the conftest that `make interop` builds"]
fn where_the_engines_differ_the_embedded_one_refuses_or_finds_more() {
    let compared = Corpus::open().compare("stricter");
    assert_all(&compared, |comparison| {
        match (&comparison.embedded, &comparison.conftest) {
            (Ok(ours), Ok(theirs)) => missing_in(theirs, ours).is_empty(),
            (Err(_), _) => true,
            (Ok(_), Err(_)) => false,
        }
    });
    assert_each_set(&compared, |comparison| !comparison.agrees());
}

/// A policy with such a mistake never worked with conftest. The list may only become shorter.
#[test]
#[ignore = "needs the conftest that `make interop` builds"]
fn some_mistakes_are_noticed_by_conftest_alone() {
    let compared = Corpus::open().compare("looser");
    assert_all(&compared, |comparison| comparison.conftest.is_err());
    assert_each_set(&compared, |comparison| comparison.embedded.is_ok());
}
