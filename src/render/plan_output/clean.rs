//! Output as plain text, without the chatter of a refresh.

use std::sync::LazyLock;

use regex::Regex;

/// Takes out colours and other terminal sequences, and carriage returns.
pub fn clean(raw: &str) -> String {
    strip_ansi_escapes::strip_str(raw)
}

/// [`clean`], and without the lines by which the tool shows that it is refreshing and reading. They are dropped
/// wherever they stand, the first line included, and nothing else is: output of a step before the plan is kept.
pub fn without_progress(raw: &str) -> String {
    let text = clean(raw);
    let kept: Vec<&str> = text.lines().filter(|line| !is_progress(line)).collect();
    let first = kept.iter().position(|line| !line.trim().is_empty()).unwrap_or(kept.len());
    kept[first..].join("\n").trim_end().to_owned()
}

/// `aws_vpc.a: Refreshing state... [id=vpc-1]`, `data.x.y: Read complete after 0s`, and the frame around the refresh of
/// versions before 0.14.
fn is_progress(line: &str) -> bool {
    static PROGRESS: LazyLock<Regex> = LazyLock::new(|| {
        let of_resource = r"\S.*: (?:Refreshing state\.\.\.|Refreshing\.\.\.|Reading\.\.\.|Still reading\.\.\.|Read complete after |Preparing import\.\.\.|(?:Still )?[Oo]pening\.\.\.|Opening complete after |(?:Still )?[Cc]losing\.\.\.|Closing complete after ).*";
        let of_state = r"(?:Acquiring|Releasing) state lock\. This may take a few moments\.\.\.";
        let of_old = r"Refreshing Terraform state in-memory prior to plan\.\.\.|The refreshed state will be used to calculate this plan, but will not be|persisted to local or remote state storage\.|-{40,}";
        Regex::new(&format!("^(?:{of_resource}|{of_state}|{of_old})$")).expect("a constant pattern")
    });
    PROGRESS.is_match(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_goes_even_from_the_very_first_line() {
        let raw = "\u{1b}[0m\u{1b}[1mterraform_data.imp: Preparing import... [id=abc]\u{1b}[0m\n\
            terraform_data.two: Refreshing state... [id=56390aad]\n\
            data.terraform_remote_state.x: Reading...\n\
            data.terraform_remote_state.x: Read complete after 0s\n\n\
            No changes. Your infrastructure matches the configuration.\n";
        assert_eq!(without_progress(raw), "No changes. Your infrastructure matches the configuration.");
    }

    #[test]
    fn what_other_steps_printed_is_kept() {
        let raw = "tflint: 0 issues\nterraform_data.a: Refreshing state... [id=1]\n\nPlan: 1 to add\n";
        assert_eq!(without_progress(raw), "tflint: 0 issues\n\nPlan: 1 to add");
    }

    #[test]
    fn only_progress_leaves_nothing() {
        assert_eq!(without_progress("a.b: Refreshing state... [id=1]\r\n"), "");
        assert_eq!(without_progress(""), "");
    }
}
