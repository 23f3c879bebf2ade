//! Recognizes the line with which a tool reports success. Exit code 0 alone proves nothing: `-help` and `-version`
//! end with it too.
//!
//! All versions of both tools since 0.12 print these lines to standard output, or in the `@message` of a line of
//! JSON. Programs of the code cannot fake them: their output follows the address of its resource and never starts a
//! line.

use serde::Deserialize;

use crate::render::plan_output::clean;

/// Report that the tool has to print before some of the built-in steps count as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolReport {
    /// `Apply complete! Resources: 1 added, 0 changed, 0 destroyed.`
    Applied,
    /// `Import successful!`
    Imported,
    /// `Successfully removed 1 resource instance(s).`
    Removed,
}

/// Part of a line of JSON that people read.
#[derive(Deserialize)]
struct ReportMessage {
    #[serde(rename = "@message")]
    message: String,
}

impl ToolReport {
    /// Returns the line as messages quote it.
    pub fn line(self) -> &'static str {
        match self {
            Self::Applied => "Apply complete! Resources: …",
            Self::Imported => "Import successful!",
            Self::Removed => "Successfully removed … resource instance(s).",
        }
    }

    /// Returns true if a line of standard output is this report.
    pub fn is_in(self, line: &str) -> bool {
        let line = clean(line);
        let line = line.trim();
        if line.starts_with('{') {
            return serde_json::from_str(line)
                .is_ok_and(|said: ReportMessage| self.is(said.message.trim()));
        }
        self.is(line)
    }

    fn is(self, line: &str) -> bool {
        match self {
            Self::Applied => {
                let counts = line.strip_prefix("Apply complete! Resources: ");
                counts.is_some_and(|counts| counts.starts_with(|c: char| c.is_ascii_digit()))
            }
            Self::Imported => line.starts_with("Import successful!"),
            Self::Removed => {
                let count = line.strip_prefix("Successfully removed ");
                let count = count.and_then(|rest| rest.strip_suffix(" resource instance(s)."));
                count.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count > 0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_versions_are_known() {
        for (report, line) in [
            (
                ToolReport::Applied,
                "Apply complete! Resources: 1 added, 0 changed, 0 destroyed.",
            ),
            (
                ToolReport::Applied,
                "\u{1b}[0m\u{1b}[1m\u{1b}[32mApply complete! Resources: 0 added, 0 changed, 1 destroyed.\u{1b}[0m",
            ),
            (
                ToolReport::Applied,
                "Apply complete! Resources: 1 imported, 0 added, 0 changed, 0 destroyed.",
            ),
            (
                ToolReport::Applied,
                r#"{"@level":"info","@message":"Apply complete! Resources: 1 added, 0 changed, 0 destroyed.","type":"change_summary"}"#,
            ),
            (ToolReport::Imported, "\u{1b}[32mImport successful!"),
            (
                ToolReport::Removed,
                "Successfully removed 2 resource instance(s).",
            ),
        ] {
            assert!(report.is_in(line), "{line}");
        }
    }

    #[test]
    fn nothing_else_is_taken_for_them() {
        for (report, line) in [
            (
                ToolReport::Applied,
                "Usage: terraform [global options] apply [options] [PLAN]",
            ),
            (ToolReport::Applied, "Terraform v1.11.4"),
            (ToolReport::Applied, "Apply complete!"),
            (ToolReport::Applied, "Apply complete! Resources: none"),
            (
                ToolReport::Applied,
                "terraform_data.a (local-exec): Apply complete! Resources: 1 added, 0 changed, 0 destroyed.",
            ),
            (
                ToolReport::Applied,
                r#"{"@message":"terraform_data.a: (local-exec): Apply complete! Resources: 1 added"}"#,
            ),
            (
                ToolReport::Applied,
                "Destroy complete! Resources: 1 destroyed.",
            ),
            (ToolReport::Imported, "terraform_data.a: Import prepared!"),
            (ToolReport::Removed, "Would remove terraform_data.a"),
            (
                ToolReport::Removed,
                "Successfully removed 0 resource instance(s).",
            ),
        ] {
            assert!(!report.is_in(line), "{line}");
        }
    }
}
