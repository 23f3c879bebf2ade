//! Runs steps that evaluate a set, and takes their output as a report.

use lockkeeper_policy::sets::ReportFormat;

use crate::config::workflow::{OutputFilter, RunStep};
use crate::model::Sha256Digest;
use crate::render::plan_output::clean;
use crate::workflow::policies::conftest::MAX_REPORT;
use crate::workflow::policies::custom::StepReport;
use crate::workflow::steps::Steps;
use crate::workflow::steps::builtin::failed;
use crate::workflow::steps::error::{StepError, StepFailure, StepName};
use crate::workflow::steps::exec::EndedProgram;
use crate::workflow::steps::filters::filtered;

/// Exit codes of a shell that could not run a command.
const NOT_RUN: [i32; 2] = [126, 127];

impl Steps<'_> {
    /// Runs a command that reports about a set. A command that fails has reported too.
    pub(super) async fn policy_report(
        &mut self,
        format: ReportFormat,
        step: &RunStep,
        name: StepName,
    ) -> Result<StepReport, StepError> {
        self.touched = true;
        let (cmd, shown) = (self.shell(&step.shell, &step.command), &step.command);
        let mut unclean = None;
        let (raw, succeeded, is_cut) = match format {
            ReportFormat::Text => {
                let EndedProgram { kept, failure, .. } = self.exec.run_to_end(cmd, shown).await;
                let succeeded = failure.is_none();
                if let Some(why) = failure.filter(|why| !is_report(why)) {
                    return Err(StepError {
                        step: name,
                        why,
                        output: kept.text,
                    });
                }
                let text = clean(&kept.text);
                if text != kept.text {
                    unclean = Some(Sha256Digest::of(kept.text.as_bytes()));
                }
                (text, succeeded, kept.is_cut)
            }
            ReportFormat::Conftest | ReportFormat::Sarif | ReportFormat::Junit => {
                let file = &self.files.captured;
                let ended = self
                    .exec
                    .save(cmd, name.clone(), shown, file, MAX_REPORT + 1)
                    .await;
                let succeeded = match ended {
                    Ok(()) => true,
                    Err(error) if is_report(&error.why) => false,
                    Err(error) => return Err(error),
                };
                let report = self.captured().await;
                let report = report.map_err(|error| failed(name, StepFailure::Disk(error)))?;
                self.push_lines(&report).await;
                (report, succeeded, false)
            }
        };
        let but_hidden: Vec<OutputFilter> = step
            .output
            .iter()
            .filter(|filter| !matches!(filter, OutputFilter::Hide))
            .cloned()
            .collect();
        Ok(StepReport {
            shown: filtered(raw.clone(), &step.output, !succeeded),
            text: filtered(raw.clone(), &but_hidden, !succeeded),
            raw,
            unclean,
            succeeded,
            is_cut,
        })
    }
}

/// Returns true if a command ended with an exit code of its own, so that its output is a report. A shell that did not find the command has
/// reported nothing.
fn is_report(failure: &StepFailure) -> bool {
    matches!(failure, StepFailure::Code(Some(code)) if !NOT_RUN.contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_not_found_has_reported_nothing() {
        for (why, expected) in [
            (StepFailure::Code(Some(1)), true),
            (StepFailure::Code(Some(3)), true),
            (StepFailure::Code(Some(126)), false),
            (StepFailure::Code(Some(127)), false),
            (StepFailure::Code(None), false),
            (StepFailure::Stopped { killed: false }, false),
        ] {
            assert_eq!(is_report(&why), expected, "{why:?}");
        }
    }
}
