//! Tests of the rewriting: by hand, on damaged texts, and on generated policies whose findings are known.

mod meaning;
mod shape;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proptest::test_runner::{Config, RngSeed};

use super::super::{Evaluation, on_large_stack, parsed};
use super::*;
use crate::embedded::{EvalLimits, RegoFile};

/// Returns a configuration with a fixed seed, so that a failing case is the same on every machine.
fn fixed_seed(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(41),
        ..Config::default()
    }
}

/// Decisions that a policy is made of. When none is left, the first choice is taken, so that everything ends.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl<'a> Choices<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    fn number(&mut self, count: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % count
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.number(of.len())]
    }

    fn is_rare(&mut self) -> bool {
        self.number(5) == 4
    }
}

fn file(text: &str) -> RegoFile {
    RegoFile {
        path: "main.rego".to_owned(),
        text: text.to_owned(),
    }
}

/// Returns the sorted values of `deny`, each as JSON.
fn denied(policy: &str, input: &serde_json::Value) -> Result<Vec<String>, EvalError> {
    let value = on_large_stack(|| {
        let mut evaluation = Evaluation::prepare(&[file(policy)], &[], &EvalLimits::default())?;
        evaluation.engine.set_input(input.clone().into());
        evaluation.value("main.deny")
    })?;
    let values = match value {
        None => Vec::new(),
        Some(serde_json::Value::Array(values)) => values,
        Some(other) => panic!("{other}: a set is expected"),
    };
    let mut values: Vec<String> = values.iter().map(ToString::to_string).collect();
    values.sort();
    Ok(values)
}

fn input() -> serde_json::Value {
    serde_json::json!({"name": "w", "changes": [
        {"id": "a", "after": {"name": "one", "tags": {"team": "x", "env": "p"}}},
        {"id": "b", "after": null},
        {"id": "c", "after": {"name": "three", "tags": null}},
        {"id": "d", "after": null},
        {"id": "é", "after": {"name": "{\"#`", "tags": {"team": "y"}}},
    ]})
}

#[test]
fn values_are_found_between_comments_lines_and_brackets() {
    for (policy, expected) in [
        (
            "names := {\"a\": \"1\", \"b\": \"2\"}\ndeny contains x if some x in names",
            &["1", "2"][..],
        ),
        (
            "deny contains x if some x in {(\"a\"): \"1\", \"b\": \"2\"}",
            &["1", "2"],
        ),
        (
            "deny contains \"m\" if every k, x in {\"a\": \"1\", \"b\": \"2\"} { x != k }",
            &["m"],
        ),
        (
            "none := set()\n\ndeny contains \"m\" if count(none) == 0\n\ndeny contains x if some x in set()",
            &["m"],
        ),
        (
            "deny contains concat(\"\",\r\n  [change.id]) if {\r\n  some change in input.changes\r\n}",
            &["a", "b", "c", "d", "é"],
        ),
        (
            "others(x) := {y |\n  some y in x\n  y != \"a\"\n} if true\ndeny contains y if some y in others([\"a\", \"b\"])",
            &["b"],
        ),
        (
            "deny # contains\ncontains # if\nchange.after.name # if\nif # if {\n{ # why\n  some change in input.changes # ; }\n  # last\n}",
            &["one", "three", "{\"#`"],
        ),
        (
            "deny contains \"m\" if { every x in set() { x == 1 } }",
            &["m"],
        ),
        (
            "deny contains{\"a\": x}[\"a\"]if{some x in[\"1\", \"2\"];every y in{x}{y==\"1\"}}\ndeny contains[\"b\"][0]",
            &["1", "b"],
        ),
        (
            "env := \"none\" if false\nelse := change.after.tags.env if some change in input.changes\ndeny contains env",
            &["p"],
        ),
        (
            "f(x) if { x == \"a\" } { x == \"b\" }\ndeny contains x if { some x in [\"a\", \"b\", \"c\"]; f(x) }",
            &["a", "b"],
        ),
    ] {
        let policy = format!("package main\n\n{policy}\n");
        let mut expected: Vec<String> = expected.iter().map(|text| format!("{text:?}")).collect();
        expected.sort();
        assert_eq!(denied(&policy, &input()), Ok(expected), "{policy}");
    }
}

#[test]
fn policies_that_would_mean_something_else_are_refused() {
    for (policy, problem) in [
        (
            "f(x) := concat(\"\", [x, \"1\"]) if { x == \"a\" } { x == \"b\" }",
            "main.rego:3: a rule with a value or a key cannot have several bodies",
        ),
        (
            "f(x) := \"1\" if { x == \"a\" } { x == \"b\" }",
            "main.rego:3: a rule with a value or a key cannot have several bodies",
        ),
        (
            "m[x] := x if { x := \"a\" } { x := \"b\" }",
            "main.rego:3: a rule with a value or a key cannot have several bodies",
        ),
        (
            "names[input.name]",
            "main.rego:3: this form of a rule is not supported",
        ),
        (
            "lockkeeper_items(x) := [] if x",
            "names cannot begin with `lockkeeper_items`",
        ),
        (
            "lockkeeper_value_1 := 1",
            "names cannot begin with `lockkeeper_value_`",
        ),
        (
            "x := 1\n\0\ndeny contains \"m\" if true",
            "main.rego:4: a NUL character is not allowed",
        ),
    ] {
        let policy = format!("package main\n\n{policy}\n\ndeny contains \"m\" if true\n");
        let error = denied(&policy, &input()).unwrap_err().to_string();
        assert!(error.contains(problem), "{policy}: {error}");
    }
}
