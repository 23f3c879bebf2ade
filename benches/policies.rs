//! Measures how long 100 rules take on a plan with 5,000 resources: with the embedded engine, and in turns with a real
//! conftest, if `make interop` has built one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use lockkeeper::process::Cmd;
use lockkeeper_policy::conftest;
use lockkeeper_policy::embedded::{EvalAnswer, EvalLimits, EvalRequest, RegoFile, evaluate};
use lockkeeper_policy::findings::{PolicyFinding, sort};
use serde_json::{Value, json};

use crate::report::{Section, Table};
use crate::stats::{Samples, ratio};

/// Number of rules of the policy set.
const RULES: usize = 100;
/// Number of resources that the plan changes.
const RESOURCES: usize = 5_000;
/// Number of types of resources. Each rule is about one of them.
const TYPES: usize = 20;
/// Number of times that each case is measured. The cases take turns.
const ROUNDS: usize = 10;
/// Time limit of one program.
const LONG: Duration = Duration::from_mins(5);
/// Maximum size of the output of a program, in bytes.
const MAX_OUTPUT: usize = 32 << 20;

/// Policies, a plan, and the directory that has them as files.
struct PolicyCase {
    dir: PathBuf,
    files: Vec<RegoFile>,
    plan: String,
}

/// Measures the evaluation of policies and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let case = PolicyCase::write(work.join("policies"))?;
    let conftest = find_conftest();
    let (mut theirs, mut child, mut alone) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut found = 0;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let ours = case.evaluate()?;
        alone.push(begun.elapsed());
        let begun = Instant::now();
        let of_child = case.with_child().await?;
        child.push(begun.elapsed());
        ensure!(of_child == ours, "the child process finds something else");
        if let Some(program) = &conftest {
            let begun = Instant::now();
            let of_conftest = case.with_conftest(program).await?;
            theirs.push(begun.elapsed());
            ensure!(
                shown(of_conftest) == shown(ours.clone()),
                "conftest finds something else"
            );
        }
        found = ours.len();
    }
    ensure!(found > 0, "no rule was violated");
    let mut table = Table::new(&["ms", "p50", "p90", "p99", "max", "rounds", "÷ conftest"]);
    let rows = [
        ("conftest test", &theirs),
        ("embedded engine, in a process of its own", &child),
        ("embedded engine, evaluation alone", &alone),
    ];
    for (name, samples) in rows {
        if samples.count() == 0 {
            continue;
        }
        let mut cells = samples.cells();
        if theirs.count() > 0 {
            cells.push(ratio(samples.quantile(50), theirs.quantile(50)));
        }
        table.row(name, cells);
    }
    let mut section = Section::new("Policies");
    section.note(format!(
        "{RULES} rules on a plan of {RESOURCES} resources ({} KB of JSON), with {found} findings. The cases take turns.",
        case.plan.len() / 1000
    ));
    match &conftest {
        Some(program) => {
            let name = program.file_name().unwrap_or_default();
            section.note(format!(
                "{} was started by its path; it has the same findings.",
                name.to_string_lossy()
            ));
        }
        None => section.note(
            "There is no conftest to compare with: `.ci/setup interop` builds one, which takes some minutes once.",
        ),
    }
    Ok(section.with_table(table))
}

impl PolicyCase {
    fn write(dir: PathBuf) -> anyhow::Result<Self> {
        let files = vec![RegoFile {
            path: "rules.rego".to_owned(),
            text: rules(),
        }];
        let plan = plan().to_string();
        let set = dir.join("set");
        std::fs::create_dir_all(&set).context("cannot make a directory for policies")?;
        for file in &files {
            std::fs::write(set.join(&file.path), &file.text)
                .context("cannot write the policies")?;
        }
        std::fs::write(dir.join("plan.json"), &plan).context("cannot write the plan")?;
        Ok(Self { dir, files, plan })
    }

    fn evaluate(&self) -> anyhow::Result<Vec<PolicyFinding>> {
        Ok(evaluate(
            &self.files,
            &[],
            &self.plan,
            &[],
            &EvalLimits::default(),
        )?)
    }

    /// Evaluates in a child process, as a server does.
    async fn with_child(&self) -> anyhow::Result<Vec<PolicyFinding>> {
        let request = EvalRequest {
            files: self.files.clone(),
            data: Vec::new(),
            namespaces: Vec::new(),
            limits: EvalLimits::default(),
        };
        let mut input = serde_json::to_vec(&request)?;
        input.push(b'\n');
        input.extend_from_slice(self.plan.as_bytes());
        let output = Cmd::new(env!("CARGO_BIN_EXE_lockkeeper"))
            .arg("policy-engine")
            .input(input)
            .deadline(LONG)
            .cap(MAX_OUTPUT)
            .output()
            .await?;
        ensure!(output.is_success(), "{}", output.stderr.text());
        match serde_json::from_slice(&output.stdout.bytes)? {
            EvalAnswer::Findings(findings) => Ok(findings),
            EvalAnswer::NotEvaluated(why) => anyhow::bail!("{why}"),
        }
    }

    /// Evaluates with conftest, as a server does.
    async fn with_conftest(&self, program: &Path) -> anyhow::Result<Vec<PolicyFinding>> {
        let output = Cmd::new(program)
            .args(["test", "-p"])
            .arg(self.dir.join("set"))
            .args(["--no-color", "--output", "json"])
            .operands([self.dir.join("plan.json")])
            .dir(&self.dir)
            // Without a home, conftest crashes.
            .env("HOME", &self.dir)
            .deadline(LONG)
            .cap(MAX_OUTPUT)
            .output()
            .await?;
        conftest::read(&output.stdout.text())
            .with_context(|| format!("conftest says: {}", output.stderr.text()))
    }
}

/// Returns the findings as verdicts keep them.
fn shown(findings: Vec<PolicyFinding>) -> Vec<PolicyFinding> {
    let mut shown: Vec<PolicyFinding> = findings.into_iter().map(PolicyFinding::clean).collect();
    sort(&mut shown);
    shown
}

/// Finds the conftest that `.ci/setup interop` keeps.
fn find_conftest() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let folder = std::env::var_os("LOCKKEEPER_INTEROP")
        .map_or_else(|| cache.join("lockkeeper-tools/interop"), PathBuf::from);
    let programs = std::fs::read_dir(folder).ok()?.flatten();
    let mut found: Vec<PathBuf> = programs
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("conftest-"))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.pop()
}

/// Returns the rules, of four kinds.
fn rules() -> String {
    let mut text = "package main\n\nimport rego.v1\n".to_owned();
    for rule in 0..RULES {
        let condition = match rule % 4 {
            0 => format!("change.change.after.size > {}", 900 + rule % 100),
            1 => "not change.change.after.tags.owner".to_owned(),
            2 => format!("not regex.match(`^[a-z]+-{}[0-9]*$`, change.change.after.name)", rule % 10),
            _ => "some entry in change.change.after.ingress\n\tentry.from_port < 100\n\t\"0.0.0.0/0\" in entry.cidr_blocks"
                .to_owned(),
        };
        write!(
            text,
            "\ndeny_{rule} contains {{\"msg\": sprintf(\"%s breaks rule %d\", [change.address, {rule}]), \"resource\": \
             change.address}} if {{\n\tsome change in input.resource_changes\n\tchange.type == \"aws_type{}\"\n\t\
             \"create\" in change.change.actions\n\t{condition}\n}}\n",
            rule % TYPES
        )
        .expect("a text takes everything");
    }
    text
}

/// Returns a plan in the form of `terraform show -json`. About one resource of a hundred breaks a rule.
fn plan() -> Value {
    let resource = |number: usize| {
        let mut tags = json!({"env": "prod", "team": format!("team{}", number % 30)});
        if !number.is_multiple_of(97) {
            tags["owner"] = json!("ops");
        }
        let open = if number.is_multiple_of(89) {
            "0.0.0.0/0"
        } else {
            "10.0.0.0/8"
        };
        json!({
            "address": format!("aws_type{}.resource{number}", number % TYPES),
            "mode": "managed",
            "type": format!("aws_type{}", number % TYPES),
            "name": format!("resource{number}"),
            "provider_name": "registry.terraform.io/hashicorp/aws",
            "change": {
                "actions": ["create"],
                "before": null,
                "after": {
                    "name": format!("name-{}", number % TYPES % 10),
                    "size": number % 1000,
                    "tags": tags,
                    "ingress": [
                        {"from_port": 443, "to_port": 443, "cidr_blocks": ["10.0.0.0/8"]},
                        {"from_port": 22, "to_port": 22, "cidr_blocks": [open]},
                    ],
                },
                "after_unknown": {"id": true, "arn": true},
                "before_sensitive": false,
                "after_sensitive": {},
            },
        })
    };
    let resources: Vec<Value> = (0..RESOURCES).map(resource).collect();
    json!({
        "format_version": "1.2",
        "terraform_version": "1.11.4",
        "resource_changes": resources,
    })
}
