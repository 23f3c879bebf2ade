//! Finds the cause of a failure in the output.

use std::sync::LazyLock;

use regex::Regex;

use super::clean::clean;

/// Holder of the tool's own state lock, as the error reports it (not one of our locks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLock {
    /// Identifier that `force-unlock` takes.
    pub id: String,
    /// User and machine that hold the lock.
    pub who: Option<String>,
    /// Start time, in the tool's spelling.
    pub created: Option<String>,
    /// Operation that holds the lock: `OperationTypeApply`.
    pub operation: Option<String>,
}

/// Returns the errors of an output without warnings and without the text before them. Errors are the boxes that start
/// with `Error:`, or, without boxes, everything from the first `Error:` on. `None` means that the output has no such
/// line.
pub fn error_part(raw: &str) -> Option<String> {
    let text = clean(raw);
    boxes(&text).or_else(|| after_first_error(&text))
}

/// Returns true if the tool refused a plan because the state has changed since: `Error: Saved plan is stale`.
pub fn plan_is_stale(raw: &str) -> bool {
    error_part(raw).is_some_and(|error| error.contains("Saved plan is stale"))
}

/// Reads the `Lock Info:` block of `Error acquiring the state lock`, or its remains in the output of an apply that
/// was cut off.
pub fn state_lock(raw: &str) -> Option<StateLock> {
    let text = clean(raw);
    let (_, info) = text.split_once("Lock Info:")?;
    let field = |name: &str| {
        let line = info
            .lines()
            .map(unboxed)
            .take(12)
            .find_map(|line| line.trim().strip_prefix(name))?;
        Some(line.trim().to_owned()).filter(|value| !value.is_empty())
    };
    StateLock::new(
        field("ID:")?,
        field("Who:"),
        field("Created:"),
        field("Operation:"),
    )
}

impl StateLock {
    /// Creates a lock whose identifier is safe in a command that people copy; `None` for any other identifier.
    pub fn new(
        id: String,
        who: Option<String>,
        created: Option<String>,
        operation: Option<String>,
    ) -> Option<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/+=@".contains(c);
        let usable = id.len() <= 256
            && id.starts_with(|c: char| c.is_ascii_alphanumeric())
            && id.chars().all(plain);
        usable.then_some(Self {
            id,
            who,
            created,
            operation,
        })
    }
}

/// Removes the left border from a line of a box: `│ Error: …`.
fn unboxed(line: &str) -> &str {
    line.strip_prefix("│ ")
        .or_else(|| line.strip_prefix('│'))
        .unwrap_or(line)
}

fn boxes(text: &str) -> Option<String> {
    let mut errors: Vec<String> = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in text.lines() {
        match (line.chars().next(), &mut open) {
            (Some('╷'), _) => open = Some(Vec::new()),
            (Some('╵'), Some(lines)) => {
                errors.extend(error_of(lines));
                open = None;
            }
            (_, Some(lines)) => lines.push(unboxed(line).trim_end()),
            (_, None) => {}
        }
    }
    errors.extend(open.as_deref().and_then(error_of));
    (!errors.is_empty()).then(|| errors.join("\n\n"))
}

/// Returns the text of a box, if it is about an error.
fn error_of(lines: &[&str]) -> Option<String> {
    let text = lines.join("\n");
    text.starts_with("Error: ")
        .then(|| text.trim_end().to_owned())
}

fn after_first_error(text: &str) -> Option<String> {
    static ERROR: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^Error: ").expect("a constant pattern"));
    ERROR
        .find(text)
        .map(|found| text[found.start()..].trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of Terraform 1.11.4 with colours.
    const LOCKED: &str = "\u{1b}[31m╷\u{1b}[0m\u{1b}[0m
\u{1b}[31m│\u{1b}[0m \u{1b}[0m\u{1b}[1m\u{1b}[31mError: \u{1b}[0m\u{1b}[0m\u{1b}[1mError acquiring the state lock\u{1b}[0m
\u{1b}[31m│\u{1b}[0m \u{1b}[0m
\u{1b}[31m│\u{1b}[0m \u{1b}[0m\u{1b}[0mError message: resource temporarily unavailable
\u{1b}[31m│\u{1b}[0m \u{1b}[0mLock Info:
\u{1b}[31m│\u{1b}[0m \u{1b}[0m  ID:        83c9c04d-b3d3-9f5b-2b56-0bb4969084ff
\u{1b}[31m│\u{1b}[0m \u{1b}[0m  Path:      terraform.tfstate
\u{1b}[31m│\u{1b}[0m \u{1b}[0m  Operation: OperationTypeApply
\u{1b}[31m│\u{1b}[0m \u{1b}[0m  Who:       root@vm
\u{1b}[31m│\u{1b}[0m \u{1b}[0m  Version:   1.11.4
\u{1b}[31m│\u{1b}[0m \u{1b}[0m  Created:   2026-11-21 09:00:31.370811785 +0000 UTC
\u{1b}[31m│\u{1b}[0m \u{1b}[0m  Info:      
\u{1b}[31m╵\u{1b}[0m\u{1b}[0m\n";

    const STALE: &str = "╷\n│ Warning: Old thing\n│ \n│ Do not.\n╵\n╷\n│ Error: Saved plan is stale\n│ \n\
        │ The given plan file can no longer be applied because the state was changed\n\
        │ by another operation after the plan was created.\n╵\n";

    #[test]
    fn a_locked_state_names_its_holder() {
        let lock = state_lock(LOCKED).unwrap();
        assert_eq!(lock.id, "83c9c04d-b3d3-9f5b-2b56-0bb4969084ff");
        assert_eq!(lock.who.as_deref(), Some("root@vm"));
        assert_eq!(
            lock.created.as_deref(),
            Some("2026-11-21 09:00:31.370811785 +0000 UTC")
        );
        assert_eq!(lock.operation.as_deref(), Some("OperationTypeApply"));
        assert_eq!(state_lock(&clean(LOCKED).replace("│ ", "")), Some(lock));
        assert_eq!(state_lock("Lock Info:\n"), None);
    }

    #[test]
    fn errors_are_taken_out_of_their_boxes_and_warnings_left() {
        insta::assert_snapshot!(error_part(STALE).unwrap(), @r"
        Error: Saved plan is stale

        The given plan file can no longer be applied because the state was changed
        by another operation after the plan was created.
        ");
        assert!(plan_is_stale(STALE));
    }

    #[test]
    fn without_boxes_the_error_starts_at_its_word() {
        let raw = "terraform_data.fail: Creating...\n\nError: local-exec provisioner error\n\n  with terraform_data.fail,\n";
        assert_eq!(
            error_part(raw).unwrap(),
            "Error: local-exec provisioner error\n\n  with terraform_data.fail,"
        );
        assert_eq!(error_part("all is well"), None);
        assert!(!plan_is_stale("Saved plan is stale, says a resource"));
    }

    #[test]
    fn a_box_that_was_cut_off_still_counts() {
        assert_eq!(
            error_part("╷\n│ Error: half\n│ of").unwrap(),
            "Error: half\nof"
        );
    }
}
