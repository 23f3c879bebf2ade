//! Evaluates a policy set with the engine of this program, in a child process (`lockkeeper policy-engine`,
//! `cli/policy_engine.rs`).
//!
//! The child has no environment, and limits its memory, its time and its output. If it ends without an answer, the set is
//! not evaluated (P6).

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::Duration;

use lockkeeper_policy::embedded::{EvalAnswer, EvalLimits, EvalRequest, RegoFile};
use lockkeeper_policy::findings::PolicyFinding;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::process::{CallOutput, Cmd, ProcessError};
use crate::workflow::steps::{Deadline, Exec};

/// Name of the engine with its version, which is that of this program.
pub(in crate::workflow) const ENGINE: &str =
    concat!("the engine of Lockkeeper ", env!("CARGO_PKG_VERSION"));

/// Maximum size of an answer, in bytes.
const MAX_ANSWER: usize = 32 * 1024 * 1024;
/// Time beyond that of the evaluation, in which the child reads the plan and ends.
const MARGIN: Duration = Duration::from_secs(30);
/// Maximum number of children at once, if the machine has as many processors. Each may need gigabytes of memory.
const MAX_CHILDREN: usize = 4;

/// Permits of the children.
static CHILDREN: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, NonZeroUsize::get);
    Semaphore::new(processors.min(MAX_CHILDREN))
});

/// Policies with everything that they are evaluated on.
pub(in crate::workflow) struct EngineRequest {
    pub files: Vec<RegoFile>,
    /// Documents below `data`, merged.
    pub data: Vec<Value>,
    /// JSON of the plan.
    pub input: String,
    /// Packages to evaluate; `main` if there are none.
    pub namespaces: Vec<String>,
}

/// Evaluates policies. The error says why they could not be evaluated, in a sentence for people.
pub(in crate::workflow) async fn evaluate(
    exec: &Exec<'_>,
    request: &EngineRequest,
) -> Result<Vec<PolicyFinding>, String> {
    let exe = &exec.supervisor.exe;
    let evaluating = in_turn(&CHILDREN, exec.deadline, |limits| {
        evaluate_within(exe, request, limits)
    });
    tokio::select! {
        found = evaluating => found,
        () = exec.stop.cancelled() => {
            Err("the run was stopped before the policies were evaluated. Plan again".to_owned())
        }
    }
}

/// Evaluates policies as soon as there is a permit, within the time that is left for the run.
async fn in_turn<F>(
    permits: &Semaphore,
    deadline: &Deadline,
    evaluate: impl FnOnce(EvalLimits) -> F,
) -> Result<Vec<PolicyFinding>, String>
where
    F: Future<Output = Result<Vec<PolicyFinding>, String>>,
{
    let evaluating = async {
        let _permit = permits
            .acquire()
            .await
            .expect("nobody closes the semaphore");
        let limits = EvalLimits::default();
        let time = limits.time.min(deadline.left());
        evaluate(EvalLimits { time, ..limits }).await
    };
    timeout(deadline.left(), evaluating)
        .await
        .unwrap_or_else(|_| {
            Err(
                "the time limit of the run (`--run-timeout`) ended before the policies were evaluated. Plan again, or ask an \
                 administrator for more time"
                    .to_owned(),
            )
        })
}

/// Evaluates policies with the program `exe`. Dropping the future ends the child.
async fn evaluate_within(
    exe: &Path,
    request: &EngineRequest,
    limits: EvalLimits,
) -> Result<Vec<PolicyFinding>, String> {
    // Before megabytes go through a pipe for nothing.
    if request.input.len() > limits.input_bytes {
        return Err(format!(
            "the JSON of the plan has {} MiB, and the embedded engine reads at most {} MiB. Split the project, or use \
             `engine: conftest`",
            request.input.len().div_ceil(1 << 20),
            limits.input_bytes >> 20
        ));
    }
    let head = EvalRequest {
        files: request.files.clone(),
        data: request.data.clone(),
        namespaces: request.namespaces.clone(),
        limits,
    };
    let mut input = serde_json::to_vec(&head)
        .map_err(|error| format!("the policies cannot be passed to the engine: {error}"))?;
    drop(head);
    input.push(b'\n');
    input.extend_from_slice(request.input.as_bytes());
    let output = Cmd::new(exe)
        .arg("policy-engine")
        .input(input)
        .deadline(limits.time.saturating_add(MARGIN))
        .cap(MAX_ANSWER)
        .output()
        .await;
    match output {
        Ok(output) => findings(&output, limits),
        Err(ProcessError::TimedOut { .. }) => Err(format!(
            "the policies took longer than {} seconds. Make them simpler, or use `engine: conftest`",
            limits.time.as_secs()
        )),
        Err(
            error @ (ProcessError::NotFound { .. }
            | ProcessError::NoDirectory { .. }
            | ProcessError::Start { .. }
            | ProcessError::Lost { .. }
            | ProcessError::WouldNotDie { .. }),
        ) => Err(format!(
            "the embedded engine could not be run: {:#}. Plan again",
            anyhow::Error::new(error)
        )),
    }
}

/// Reads the answer of the child.
fn findings(output: &CallOutput, limits: EvalLimits) -> Result<Vec<PolicyFinding>, String> {
    if output.is_success() && output.stdout.truncated {
        return Err(format!(
            "the findings have more than {} MiB. Let the policies find less, such as one finding for each resource",
            MAX_ANSWER >> 20
        ));
    }
    if output.is_success() {
        return match serde_json::from_slice(&output.stdout.bytes) {
            Ok(EvalAnswer::Findings(findings)) => Ok(findings),
            Ok(EvalAnswer::NotEvaluated(why)) => Err(why),
            Err(error) => Err(format!(
                "the answer of the embedded engine is not as expected: {error}. Plan again"
            )),
        };
    }
    let said = output.stderr.text();
    let why = limits.explain_end(output.code, &said).unwrap_or_else(|| {
        let said: String = said.trim().chars().take(300).collect();
        let code = output.code.unwrap_or_default();
        format!("the embedded engine failed with exit code {code}: {said}")
    });
    Err(why)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use lockkeeper_policy::findings::FindingLevel;

    use super::*;
    use crate::process::Captured;

    fn output(code: Option<i32>, stdout: &str, stderr: &str) -> CallOutput {
        let captured = |text: &str| Captured {
            bytes: text.as_bytes().to_vec(),
            truncated: false,
        };
        CallOutput {
            code,
            stdout: captured(stdout),
            stderr: captured(stderr),
        }
    }

    #[test]
    fn only_an_answer_is_a_verdict() {
        let limits = EvalLimits::default();
        let finding = PolicyFinding {
            level: FindingLevel::Deny,
            rule: "main.deny".to_owned(),
            message: "m".to_owned(),
            resource: None,
            place: None,
            link: None,
            evidence: None,
            other: None,
            waived: None,
        };
        let answer = serde_json::to_string(&EvalAnswer::Findings(vec![finding.clone()])).unwrap();
        assert_eq!(
            findings(&output(Some(0), &answer, ""), limits),
            Ok(vec![finding])
        );
        let none = serde_json::to_string(&EvalAnswer::Findings(Vec::new())).unwrap();
        for (output, problem) in [
            (output(Some(0), "", ""), "not as expected"),
            (output(Some(0), &none[1..], ""), "not as expected"),
            (
                output(Some(1), &none, "the request"),
                "exit code 1: the request",
            ),
            (output(None, &none, ""), "ended by a signal"),
            (
                output(None, "", "memory allocation of 7 bytes failed"),
                "more than 2048 MiB",
            ),
            (
                output(Some(0), r#"{"not_evaluated": "no rule"}"#, ""),
                "no rule",
            ),
        ] {
            let error = findings(&output, limits).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
        let mut cut = output(Some(0), &none, "");
        cut.stdout.truncated = true;
        assert!(findings(&cut, limits).unwrap_err().contains("32 MiB"));
    }

    #[tokio::test]
    async fn an_evaluation_waits_for_its_turn_and_ends_with_the_run() {
        let permits = Semaphore::new(1);
        let limits_of = |deadline| {
            let permits = &permits;
            async move {
                let mut seen = None;
                let evaluating = in_turn(permits, &deadline, |limits| {
                    seen = Some(limits);
                    ready(Ok(Vec::new()))
                });
                let found = evaluating.await;
                (found, seen)
            }
        };
        let day = Duration::from_hours(24);
        let (found, limits) = limits_of(Deadline::after(day)).await;
        assert_eq!(
            (found, limits),
            (Ok(Vec::new()), Some(EvalLimits::default()))
        );
        let short = EvalLimits::default().time / 2;
        let (_, limits) = limits_of(Deadline::after(short)).await;
        assert!(limits.unwrap().time <= short);
        // Another evaluation has the only permit.
        let permit = permits.acquire().await.unwrap();
        let (found, limits) = limits_of(Deadline::after(Duration::ZERO)).await;
        assert!(found.unwrap_err().contains("`--run-timeout`"));
        assert_eq!(limits, None);
        drop(permit);
    }

    #[tokio::test]
    async fn a_large_plan_is_not_even_sent() {
        let request = EngineRequest {
            files: Vec::new(),
            data: Vec::new(),
            input: "{}".repeat(10),
            namespaces: Vec::new(),
        };
        let limits = EvalLimits {
            input_bytes: 19,
            ..EvalLimits::default()
        };
        let error = evaluate_within(Path::new("/nonexistent"), &request, limits).await;
        assert!(error.unwrap_err().contains("Split the project"));
        let limits = EvalLimits::default();
        let error = evaluate_within(Path::new("/nonexistent"), &request, limits).await;
        assert!(error.unwrap_err().contains("could not be run"));
    }
}
