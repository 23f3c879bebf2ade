//! Tests of the child process that evaluates policies (`lockkeeper policy-engine`): no policy and no plan gets an answer
//! that passes by using up its time, memory or stack.

use std::time::Duration;

use lockkeeper::process::{CallOutput, Cmd};
use lockkeeper_policy::embedded::{EvalAnswer, EvalLimits, EvalRequest, RegoFile};

use crate::support::program::run;

const LOCKKEEPER: &str = env!("CARGO_BIN_EXE_lockkeeper");
/// Time limit far above the duration of any test.
const LONG: Duration = Duration::from_mins(5);

fn limits() -> EvalLimits {
    EvalLimits {
        time: LONG,
        ..EvalLimits::default()
    }
}

async fn said(input: Vec<u8>) -> CallOutput {
    let child = Cmd::new(LOCKKEEPER).arg("policy-engine");
    child.input(input).deadline(LONG).output().await.unwrap()
}

async fn answer(policy: &str, limits: EvalLimits, plan: &str) -> CallOutput {
    let request = EvalRequest {
        files: vec![RegoFile {
            path: "deny.rego".to_owned(),
            text: policy.to_owned(),
        }],
        data: vec![serde_json::json!({"lockkeeper": {"author": "alice"}})],
        namespaces: Vec::new(),
        limits,
    };
    let mut input = serde_json::to_vec(&request).unwrap();
    input.push(b'\n');
    input.extend_from_slice(plan.as_bytes());
    said(input).await
}

fn understood(output: &CallOutput) -> EvalAnswer {
    assert!(output.is_success(), "{output:?}");
    serde_json::from_slice(&output.stdout.bytes).unwrap()
}

fn why_not(output: &CallOutput) -> String {
    match understood(output) {
        EvalAnswer::NotEvaluated(why) => why,
        EvalAnswer::Findings(findings) => panic!("not an error: {findings:?}"),
    }
}

#[tokio::test]
async fn the_child_answers_with_findings() {
    let policy = "package main\n\ndeny contains data.lockkeeper.author if input.bad\n";
    let output = answer(policy, limits(), r#"{"bad": true}"#).await;
    let EvalAnswer::Findings(findings) = understood(&output) else {
        panic!("no findings: {output:?}");
    };
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].message, "alice");
    let output = answer(policy, limits(), r#"{"bad": false}"#).await;
    assert_eq!(understood(&output), EvalAnswer::Findings(Vec::new()));
}

#[tokio::test]
async fn policies_and_plans_that_cannot_be_read_are_not_evaluated() {
    let policy = "package main\n\ndeny contains \"m\" if input.bad\n";
    let why = why_not(&answer("package main\n\ndeny contains", limits(), "{}").await);
    assert!(why.contains("deny.rego:3"), "{why}");
    for plan in ["", "{", "[1]"] {
        let why = why_not(&answer(policy, limits(), plan).await);
        assert!(why.contains("not a JSON object"), "{plan}: {why}");
    }
    let small = EvalLimits {
        input_bytes: 8,
        ..limits()
    };
    let why = why_not(&answer(policy, small, r#"{"bad": false}"#).await);
    assert!(why.contains("at most 8"), "{why}");
    let output = said(b"no request\n{}".to_vec()).await;
    assert_eq!(output.code, Some(1), "{output:?}");
}

#[tokio::test]
async fn a_policy_that_takes_too_long_is_not_evaluated() {
    let policy = "package main\n\nmany := numbers.range(1, 2000)\n\ndeny contains \"m\" if {\n    some a in many\n    \
                  some b in many\n    some c in many\n    a + b + c == 0\n}\n";
    let short = EvalLimits {
        time: Duration::from_millis(100),
        ..limits()
    };
    let why = why_not(&answer(policy, short, "{}").await);
    assert!(why.contains("took longer than 0.1 seconds"), "{why}");
}

#[tokio::test]
async fn a_policy_that_uses_up_memory_or_stack_has_no_answer() {
    let small = EvalLimits {
        memory_bytes: 512 * 1024 * 1024,
        ..limits()
    };
    let large = "package main\n\ndeny contains \"m\" if count(numbers.range(1, 4000000000)) == 0\n";
    let output = answer(large, small, "{}").await;
    assert_eq!(output.code, None, "{output:?}");
    let said = output.stderr.text();
    assert!(said.contains("memory allocation of"), "{said}");

    let nested = format!(
        "package main\n\ndeny contains \"m\" if {}1{} == 1\n",
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let why = why_not(&answer(&nested, limits(), "{}").await);
    assert!(why.starts_with("deny.rego:3: "), "{why}");
    assert!(why.contains("are nested more than 20 levels deep"), "{why}");

    let deep = "package main\n\nf(x) := y if y := f(x + 1)\n\ndeny contains \"m\" if f(1) == 1\n";
    let output = answer(deep, limits(), "{}").await;
    if output.is_success() {
        // The evaluator may notice the recursion.
        why_not(&output);
    } else {
        assert_eq!(output.code, None, "{output:?}");
    }
}

/// People try policies with the program before a server has them.
#[test]
fn the_command_line_says_which_limit_was_reached() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("plan.json", "{}");
    for (rule, expected) in [
        (
            "f(x) := y if y := f(x + 1)\n\ndeny contains \"x\" if f(1) == 2",
            "call each other too deeply",
        ),
        (
            "deny contains \"x\" if count(numbers.range(1, 4000000000)) == 1",
            "more than 2048 MiB of memory",
        ),
    ] {
        write("deny.rego", &format!("package main\n\n{rule}\n"));
        write(
            "deny_test.rego",
            "package main\n\ntest_deny if count(deny) == 0\n",
        );
        for args in [
            &["policy", "eval", "--plan", "plan.json", "deny.rego"][..],
            &["policy", "test", "."],
        ] {
            let said = run(LOCKKEEPER, dir.path(), args, &[]);
            assert_eq!(said.code, 1, "{}", said.err);
            let (start, why) = said.err.split_once(": ").unwrap();
            assert_eq!(start, "lockkeeper policy");
            assert!(why.contains(expected), "{args:?}: {}", said.err);
            assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        }
    }
}
