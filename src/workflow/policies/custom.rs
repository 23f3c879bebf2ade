//! Reads what the steps of a workflow report about policies (`custom_policy_check`, reference 13.3).
//!
//! The n-th step with a command belongs to the n-th set that the steps evaluate. A set without a step, and a step without a
//! set, are errors: somebody would believe that something was checked.

use lockkeeper_policy::findings::PolicyFinding;
use lockkeeper_policy::sets::{PolicyEngine, ReportFormat};
use lockkeeper_policy::{conftest, junit, plain, sarif};

use super::{PolicyEvaluation, PolicyWork};

/// Output of a step that evaluates a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::workflow) struct StepReport {
    /// Text to read: standard output, and for [`ReportFormat::Text`] everything that was printed.
    pub text: String,
    /// Text for comments, without what filters hide.
    pub shown: String,
    /// True if the command ended with exit code 0.
    pub succeeded: bool,
}

/// Returns the formats of the outputs of steps, in the order of the sets that steps evaluate.
pub(in crate::workflow) fn formats_of_steps(work: &PolicyWork) -> Vec<ReportFormat> {
    work.sets
        .iter()
        .filter_map(|(set, _)| match set.engine {
            PolicyEngine::Steps(format) => Some(format),
            PolicyEngine::Conftest | PolicyEngine::Embedded => None,
        })
        .collect()
}

/// Evaluates the set at `number`, from 0, among `count` sets of the steps.
pub(in crate::workflow) fn evaluated(
    number: usize,
    count: usize,
    format: ReportFormat,
    reports: &[StepReport],
) -> PolicyEvaluation {
    if reports.len() > count {
        let why = format!(
            "the stage `policy_check` has {} steps with commands for {count} policy sets, so one of them belongs to no \
             set. An administrator must correct the workflow or add a set with `engine: steps`",
            reports.len()
        );
        return PolicyEvaluation::missing(why, "");
    }
    let Some(report) = reports.get(number) else {
        let why = format!(
            "the stage `policy_check` has {} steps with commands for {count} policy sets, so none evaluates this set. \
             An administrator must correct the workflow",
            reports.len()
        );
        return PolicyEvaluation::missing(why, "");
    };
    PolicyEvaluation {
        found: findings(format, report),
        output: report.shown.clone(),
    }
}

fn findings(format: ReportFormat, report: &StepReport) -> Result<Vec<PolicyFinding>, String> {
    let StepReport {
        text, succeeded, ..
    } = report;
    let read = match format {
        ReportFormat::Text => plain::read(text, *succeeded),
        ReportFormat::Conftest => conftest::read(text),
        ReportFormat::Sarif => sarif::read(text),
        ReportFormat::Junit => junit::read(text),
    };
    let found = read.map_err(|error| {
        format!("the output of the step cannot be used: {error}. Correct the step, then plan again")
    })?;
    if !succeeded && !found.iter().any(PolicyFinding::is_violation) {
        return Err(
            "the step failed, but its report has no violation. Look at the page of the run, and correct the step"
                .to_owned(),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, succeeded: bool) -> StepReport {
        StepReport {
            text: text.to_owned(),
            shown: text.to_owned(),
            succeeded,
        }
    }

    fn violations(number: usize, format: ReportFormat, reports: &[StepReport]) -> Option<usize> {
        let found = evaluated(number, 2, format, reports).found.ok()?;
        Some(
            found
                .iter()
                .filter(|finding| finding.is_violation())
                .count(),
        )
    }

    #[test]
    fn each_set_needs_its_own_output() {
        let fine = report("1 test, 1 passed", true);
        let format = ReportFormat::Text;
        let one = [fine.clone()];
        assert_eq!(violations(0, format, &one), Some(0));
        assert_eq!(violations(1, format, &one), None);
        let two = [fine.clone(), fine.clone()];
        assert_eq!(violations(1, format, &two), Some(0));
        let three = [fine.clone(), fine.clone(), fine];
        for number in 0..2 {
            assert_eq!(violations(number, format, &three), None);
        }
    }

    #[test]
    fn a_failed_step_needs_a_violation_in_its_report() {
        let passed = r#"[{"filename": "p", "namespace": "main", "successes": 1}]"#;
        let failed = r#"[{"filename": "p", "namespace": "main", "failures": [{"msg": "public"}]}]"#;
        let format = ReportFormat::Conftest;
        for (text, succeeded, expected) in [
            (passed, true, Some(0)),
            (passed, false, None),
            (failed, false, Some(1)),
            (failed, true, Some(1)),
            ("", true, None),
            ("", false, None),
            ("checkov: command not found", false, None),
        ] {
            let reports = [report(text, succeeded)];
            assert_eq!(
                violations(0, format, &reports),
                expected,
                "{text} {succeeded}"
            );
        }
    }
}
