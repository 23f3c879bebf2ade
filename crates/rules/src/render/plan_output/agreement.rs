//! Compares the text of a plan with the changes in its machine-readable form.

use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;

use super::clean::clean;
use super::counts::plan_counts;
use crate::model::{PlanChanges, PlanCounts, PlannedAction, ResourceChange, code_span};
use crate::render::escape::shorten;

/// Maximum number of addresses that a message names.
const NAMED: usize = 3;
/// Maximum length of an address in a message, in characters; the middle of a longer one is left out.
const LONGEST_NAME: usize = 160;

/// Describes how the raw text of the built-in `plan` differs from the plan file, as a clause for people; `None` if
/// both agree.
///
/// The text must have the numbers and a heading for each change. Further lines of the text prove nothing, because a
/// text of several lines in an attribute can look like anything. Outputs are not compared: Terraform 0.12 changes
/// them without a word.
pub fn disagreement(raw: &str, changes: &PlanChanges) -> Option<String> {
    let text = clean(raw);
    let counts = changes.counts();
    let file = || format!("the plan file says `{counts}`");
    if let Some(told) = machine_counts(&text) {
        let other = told.into_iter().find(|told| !agrees(*told, counts));
        return other.map(|other| format!("the text says `{other}` and {}", file()));
    }
    let told: Vec<PlanCounts> = PLAN
        .captures_iter(&text)
        .map(|found| plan_counts(&found))
        .collect();
    if let Some(other) = told.iter().find(|told| !agrees(**told, counts)) {
        return Some(format!("the text says `{other}` and {}", file()));
    }
    if told.is_empty() && !changes.resources.is_empty() {
        return Some(format!(
            "the text has no line that begins with `Plan:`, and {}",
            file()
        ));
    }
    missing(&text, changes)
}

/// Terraform's own line, which stands at the start of a line, where the content of a plan never does.
static PLAN: LazyLock<Regex> = LazyLock::new(|| {
    let numbers = r"(?:(?<import>\d+) to import, )?(?<add>\d+) to add, (?<change>\d+) to change, (?<destroy>\d+) to destroy(?:, (?<forget>\d+) to forget)?\.";
    Regex::new(&format!("(?m)^Plan: {numbers}")).expect("a constant pattern")
});

/// Compares two counts. Terraform does not count forgotten resources; OpenTofu does if there are any.
fn agrees(text: PlanCounts, file: PlanCounts) -> bool {
    text == file || text == PlanCounts { forget: 0, ..file }
}

/// Describes the changes without a heading such as `  # terraform_data.a will be created`. Reads need none because
/// they change nothing, and requests to a provider have another form.
fn missing(text: &str, changes: &PlanChanges) -> Option<String> {
    let mut headings: Vec<&str> = text.lines().filter_map(heading).collect();
    headings.sort_unstable();
    let is_missing = |change: &&ResourceChange| {
        let is_shown = !matches!(change.action, PlannedAction::Read | PlannedAction::Invoke);
        is_shown && !has_heading(&headings, &subject(change))
    };
    let missing: Vec<&ResourceChange> = changes.resources.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return None;
    }
    let name = |change: &&ResourceChange| code_span(&shorten(&change.address, LONGEST_NAME));
    let mut names: Vec<String> = missing.iter().take(NAMED).map(name).collect();
    if missing.len() > NAMED {
        names.push(format!("{} more", missing.len() - NAMED));
    }
    Some(format!(
        "the text does not show {}, which the plan file changes",
        names.join(", ")
    ))
}

/// Returns a line that can be a heading, without its indentation. The content of a resource is indented by more.
fn heading(line: &str) -> Option<&str> {
    let body = line.trim_start_matches(' ');
    (line.len() - body.len() <= 2 && body.starts_with("# ")).then_some(body)
}

/// Returns the name of a change in its heading: `a.b (deposed object 07a1)`, or the former address of a resource that
/// only moves.
fn subject(change: &ResourceChange) -> String {
    match (&change.deposed, &change.previous) {
        (Some(key), _) => format!("{} (deposed object {key})", change.address),
        (None, Some(previous)) if change.action == PlannedAction::Move => previous.clone(),
        (None, Some(_) | None) => change.address.clone(),
    }
}

/// Returns true if one of the sorted headings is `# SUBJECT will …`.
fn has_heading(headings: &[&str], subject: &str) -> bool {
    let start = clean(&format!("# {subject} "));
    let from = headings.partition_point(|heading| *heading < start.as_str());
    let rest = headings[from..]
        .iter()
        .map_while(|heading| heading.strip_prefix(start.as_str()));
    rest.into_iter().any(|rest| {
        ["will ", "must ", "is ", "has "]
            .iter()
            .any(|verb| rest.starts_with(verb))
    })
}

/// Returns the numbers in the output of `plan -json`; `None` if the text has another form. That form escapes control
/// characters, and only the tool can write the start of the first line.
fn machine_counts(text: &str) -> Option<Vec<PlanCounts>> {
    text.trim_start().starts_with("{\"@level\"").then(|| {
        let summary = |line: &str| {
            serde_json::from_str::<PlanMessage>(line)
                .ok()
                .filter(|m| m.kind == "change_summary")
        };
        text.lines()
            .filter_map(summary)
            .filter_map(|message| message.changes)
            .map(PlanCounts::from)
            .collect()
    })
}

/// One line of the output of `plan -json`.
#[derive(Deserialize)]
struct PlanMessage {
    #[serde(rename = "type")]
    kind: String,
    changes: Option<Summary>,
}

/// Numbers of a line of the type `change_summary`.
#[derive(Deserialize)]
struct Summary {
    add: u32,
    change: u32,
    remove: u32,
    #[serde(default)]
    import: u32,
    #[serde(default)]
    forget: u32,
}

impl From<Summary> for PlanCounts {
    fn from(summary: Summary) -> Self {
        let Summary {
            add,
            change,
            remove: destroy,
            import,
            forget,
        } = summary;
        Self {
            add,
            change,
            destroy,
            import,
            forget,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(action: PlannedAction, address: &str) -> ResourceChange {
        let imported = action == PlannedAction::Import;
        ResourceChange {
            address: address.to_owned(),
            deposed: None,
            previous: None,
            action,
            imported,
        }
    }

    fn plan(resources: Vec<ResourceChange>) -> PlanChanges {
        PlanChanges {
            resources,
            outputs: 0,
        }
    }

    /// Output of Terraform 1.11.4, without the contents of resources.
    const TEXT: &str = r#"
Terraform will perform the following actions:

  # data.terraform_remote_state.r will be read during apply
  # (config refers to values not yet known)
 <= data "terraform_remote_state" "r" {

  # terraform_data.cbd must be replaced
+/- resource "terraform_data" "cbd" {

  # terraform_data.each["it will be \u001b]0;"] will be created
 # terraform_data.forget will no longer be managed by Terraform, but will not be destroyed
  # terraform_data.gone will be destroyed
  # terraform_data.gone (deposed object 07a1d2) will be destroyed
  # terraform_data.imp will be imported
  # terraform_data.mv has moved to terraform_data.mv2
  # terraform_data.tainted is tainted, so it must be replaced
  # terraform_data.upd will be updated in-place

Plan: 1 to import, 3 to add, 1 to change, 4 to destroy.
"#;

    fn all() -> PlanChanges {
        use PlannedAction::{Create, Destroy, Forget, Import, Move, Read, Replace, Update};
        let moved = ResourceChange {
            previous: Some("terraform_data.mv".to_owned()),
            ..change(Move, "terraform_data.mv2")
        };
        let deposed = ResourceChange {
            deposed: Some("07a1d2".to_owned()),
            ..change(Destroy, "terraform_data.gone")
        };
        plan(vec![
            change(Read, "data.terraform_remote_state.r"),
            change(Replace, "terraform_data.cbd"),
            change(Create, r#"terraform_data.each["it will be \u001b]0;"]"#),
            change(Forget, "terraform_data.forget"),
            change(Destroy, "terraform_data.gone"),
            deposed,
            change(Import, "terraform_data.imp"),
            moved,
            change(Replace, "terraform_data.tainted"),
            change(Update, "terraform_data.upd"),
        ])
    }

    #[test]
    fn a_text_that_shows_every_change_agrees() {
        assert_eq!(disagreement(TEXT, &all()), None);
        let coloured = TEXT
            .replace("  # ", "\u{1b}[1m  # ")
            .replace("Plan:", "\u{1b}[1mPlan:\u{1b}[0m");
        assert_eq!(disagreement(&coloured, &all()), None);
        assert_eq!(
            disagreement(
                &TEXT.replace("4 to destroy.", "4 to destroy, 1 to forget."),
                &all()
            ),
            None
        );
    }

    #[test]
    fn a_change_that_the_text_does_not_show_is_named() {
        for heading in TEXT
            .lines()
            .filter(|line| line.trim_start().starts_with("# "))
            .skip(2)
        {
            let without = TEXT.replace(heading, "");
            let why = disagreement(&without, &all()).unwrap_or_else(|| panic!("{heading}"));
            assert!(
                why.starts_with("the text does not show `terraform_data."),
                "{why}"
            );
        }
        let content = TEXT.replace("  # terraform_data.upd", "      # terraform_data.upd");
        assert_eq!(
            disagreement(&content, &all()).as_deref(),
            Some("the text does not show `terraform_data.upd`, which the plan file changes")
        );
        let none = TEXT
            .split_inclusive('\n')
            .filter(|line| !line.contains("# "))
            .collect::<String>();
        assert_eq!(
            disagreement(&none, &all()).as_deref(),
            Some(
                "the text does not show `terraform_data.cbd`, `terraform_data.each[\"it will be \\u001b]0;\"]`, \
                 `terraform_data.forget`, 6 more, which the plan file changes"
            )
        );
    }

    #[test]
    fn other_numbers_are_named() {
        let says = "the plan file says `Plan: 1 to import, 3 to add, 1 to change, 4 to destroy, 1 to forget.`";
        for (text, other) in [
            (
                TEXT.replace("Plan: 1 to import, 3", "Plan: 3"),
                "the text says `Plan: 3 to add, 1 to change, 4 to destroy.` and ",
            ),
            (
                TEXT.replace("4 to destroy", "0 to destroy"),
                "the text says `Plan: 1 to import, 3 to add, 1 to change, 0 to destroy.` and ",
            ),
            (
                format!("{TEXT}Plan: 0 to add, 0 to change, 0 to destroy.\n"),
                "the text says `Plan: 0 to add, 0 to change, 0 to destroy.` and ",
            ),
            (
                TEXT.replace("Plan:", "      Plan:"),
                "the text has no line that begins with `Plan:`, and ",
            ),
            (
                TEXT.replace("Plan:", "\u{1b}]Plan:"),
                "the text has no line that begins with `Plan:`, and ",
            ),
        ] {
            assert_eq!(disagreement(&text, &all()), Some(format!("{other}{says}")));
        }
    }

    #[test]
    fn a_plan_without_resources_has_no_numbers() {
        let outputs = PlanChanges {
            outputs: 1,
            ..PlanChanges::default()
        };
        let saved = "Changes to Outputs:\n  + o = 1\n\nYou can apply this plan to save these new output values to the \
                     Terraform\nstate, without changing any real infrastructure.\n";
        let nothing = "No changes. Your infrastructure matches the configuration.\n";
        let refreshed =
            "Note: Objects have changed outside of Terraform\n\nThis is a refresh-only plan\n";
        for (text, changes, agrees) in [
            (saved, &outputs, true),
            (nothing, &outputs, true),
            (nothing, &PlanChanges::default(), true),
            (refreshed, &PlanChanges::default(), true),
            (
                nothing,
                &plan(vec![change(PlannedAction::Move, "a.b")]),
                false,
            ),
            (
                "Plan: 1 to add, 0 to change, 0 to destroy.",
                &PlanChanges::default(),
                false,
            ),
        ] {
            assert_eq!(disagreement(text, changes).is_none(), agrees, "{text}");
        }
    }

    #[test]
    fn the_machine_readable_text_is_compared_by_its_numbers() {
        let text = |add| {
            format!(
                "{{\"@level\":\"info\",\"@message\":\"Terraform 1.11.4\",\"type\":\"version\"}}\n\
                 {{\"@level\":\"info\",\"changes\":{{\"add\":{add},\"change\":0,\"import\":0,\"remove\":0,\
                 \"operation\":\"plan\"}},\"type\":\"change_summary\"}}\n"
            )
        };
        let one = plan(vec![change(PlannedAction::Create, "a.b")]);
        assert_eq!(disagreement(&text(1), &one), None);
        assert_eq!(
            disagreement(&text(0), &one).as_deref(),
            Some(
                "the text says `Plan: 0 to add, 0 to change, 0 to destroy.` and the plan file says `Plan: 1 to add, 0 to \
                 change, 0 to destroy.`"
            )
        );
    }
}
