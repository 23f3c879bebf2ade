//! Reads from the output how many resources a plan or an apply changes.

use std::fmt;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::clean::clean;
use crate::model::PlanCounts;

/// Summary of the output of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanSummary {
    /// Sum of all `Plan:` lines (a wrapper may run several plans). `None` means that there is no such line, so a
    /// custom workflow may have changes.
    pub counts: Option<PlanCounts>,
    /// True if the tool says that there is nothing to do. Only then may an apply be left out.
    pub no_changes: bool,
    /// True if resources were changed by other means than this code.
    pub changes_outside: bool,
}

/// Numbers of resources that an apply changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyCounts {
    /// Number of resources created.
    pub added: u32,
    /// Number of resources changed in place.
    pub changed: u32,
    /// Number of resources destroyed.
    pub destroyed: u32,
    /// Number of resources imported.
    pub imported: u32,
    /// Number of resources dropped from the state.
    pub forgotten: u32,
}

impl fmt::Display for ApplyCounts {
    /// Writes `1 added, 0 changed, 2 destroyed`; imports and forgotten resources appear only if there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.imported > 0 {
            write!(f, "{} imported, ", self.imported)?;
        }
        write!(
            f,
            "{} added, {} changed, {} destroyed",
            self.added, self.changed, self.destroyed
        )?;
        if self.forgotten > 0 {
            write!(f, ", {} forgotten", self.forgotten)?;
        }
        Ok(())
    }
}

/// Reads `Plan: 1 to import, 1 to add, 0 to change, 0 to destroy, 1 to forget.` and the sentences next to it.
/// Indented lines do not count: they are the content of the plan, which a pull request controls.
pub fn summary(raw: &str) -> PlanSummary {
    let text = clean(raw);
    let counts = PLAN
        .captures_iter(&text)
        .map(|c| plan_counts(&c))
        .reduce(plan_sum);
    let outputs_change = text.contains("You can apply this plan to save these new output values");
    PlanSummary {
        counts,
        no_changes: counts.is_none() && NO_CHANGES.is_match(&text) && !outputs_change,
        changes_outside: OUTSIDE.is_match(&text),
    }
}

/// Reads `Apply complete! Resources: 1 added, 0 changed, 0 destroyed.` and returns the sum of all such lines.
pub fn apply_summary(raw: &str) -> Option<ApplyCounts> {
    let text = clean(raw);
    APPLY
        .captures_iter(&text)
        .map(|c| apply_counts(&c))
        .reduce(apply_sum)
}

static PLAN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?m)^(?:\S.*\s)?Plan: (?:(?<import>\d+) to import, )?(?<add>\d+) to add, (?<change>\d+) to change, (?<destroy>\d+) to destroy(?:, (?<forget>\d+) to forget)?\.",
    )
});
/// `No changes. Infrastructure is up-to-date.`, `No changes. Your infrastructure (still) matches the configuration.`,
/// `No changes. No objects need to be destroyed.`
static NO_CHANGES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?m)^(?:\S.*\s)?No changes\. (?:Infrastructure is up-to-date|Your infrastructure (?:still )?matches the configuration|No objects need to be destroyed)\.",
    )
});
static OUTSIDE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?m)^(?:\S.*\s)?Note: Objects have changed outside of (?:Terraform|OpenTofu)")
});
static APPLY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?m)^(?:\S.*\s)?(?:Apply|Destroy) complete! Resources: (?:(?<imported>\d+) imported, )?(?:(?<added>\d+) added, )?(?:(?<changed>\d+) changed, )?(?<destroyed>\d+) destroyed(?:, (?<forgotten>\d+) forgotten)?\.",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern")
}

/// Returns a number of the line: zero if absent, the maximum if it is too large.
fn number(captures: &Captures<'_>, name: &str) -> u32 {
    captures
        .name(name)
        .map_or(0, |digits| digits.as_str().parse().unwrap_or(u32::MAX))
}

pub(super) fn plan_counts(c: &Captures<'_>) -> PlanCounts {
    PlanCounts {
        add: number(c, "add"),
        change: number(c, "change"),
        destroy: number(c, "destroy"),
        import: number(c, "import"),
        forget: number(c, "forget"),
    }
}

fn apply_counts(c: &Captures<'_>) -> ApplyCounts {
    ApplyCounts {
        added: number(c, "added"),
        changed: number(c, "changed"),
        destroyed: number(c, "destroyed"),
        imported: number(c, "imported"),
        forgotten: number(c, "forgotten"),
    }
}

fn plan_sum(a: PlanCounts, b: PlanCounts) -> PlanCounts {
    PlanCounts {
        add: a.add.saturating_add(b.add),
        change: a.change.saturating_add(b.change),
        destroy: a.destroy.saturating_add(b.destroy),
        import: a.import.saturating_add(b.import),
        forget: a.forget.saturating_add(b.forget),
    }
}

fn apply_sum(a: ApplyCounts, b: ApplyCounts) -> ApplyCounts {
    ApplyCounts {
        added: a.added.saturating_add(b.added),
        changed: a.changed.saturating_add(b.changed),
        destroyed: a.destroyed.saturating_add(b.destroyed),
        imported: a.imported.saturating_add(b.imported),
        forgotten: a.forgotten.saturating_add(b.forgotten),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(add: u32, change: u32, destroy: u32, import: u32, forget: u32) -> PlanCounts {
        PlanCounts {
            add,
            change,
            destroy,
            import,
            forget,
        }
    }

    #[test]
    fn plan_lines_are_counted_and_summed() {
        for (raw, expected) in [
            (
                "\u{1b}[1mPlan:\u{1b}[0m 2 to add, 0 to change, 0 to destroy.\n\u{1b}[0m",
                Some(counts(2, 0, 0, 0, 0)),
            ),
            (
                "Plan: 1 to import, 1 to add, 0 to change, 1 to destroy.",
                Some(counts(1, 0, 1, 1, 0)),
            ),
            (
                "Plan: 0 to add, 0 to change, 0 to destroy, 3 to forget.",
                Some(counts(0, 0, 0, 0, 3)),
            ),
            (
                "Plan: 1 to add, 2 to change, 3 to destroy. Actions: 1 to invoke.",
                Some(counts(1, 2, 3, 0, 0)),
            ),
            (
                "[a] Plan: 1 to add, 0 to change, 0 to destroy.\n12:00:01 STDOUT tofu: Plan: 0 to add, 2 to change, 1 to destroy.",
                Some(counts(1, 2, 1, 0, 0)),
            ),
            (
                "Plan: 99999999999 to add, 0 to change, 0 to destroy.",
                Some(counts(u32::MAX, 0, 0, 0, 0)),
            ),
            ("nothing of the kind", None),
            (
                "            Plan: 9 to add, 9 to change, 9 to destroy.\n",
                None,
            ),
        ] {
            assert_eq!(summary(raw).counts, expected, "{raw}");
        }
    }

    #[test]
    fn nothing_to_do_is_only_what_the_tool_calls_so() {
        for (raw, expected) in [
            (
                "\nNo changes. Your infrastructure matches the configuration.\n\nTerraform has compared",
                true,
            ),
            (
                "No changes. Your infrastructure matches the configuration.\n\nOpenTofu has compared",
                true,
            ),
            (
                "No changes. Infrastructure is up-to-date.\n\nThis means that Terraform did not detect",
                true,
            ),
            (
                "\u{1b}[1m\u{1b}[32mNo changes.\u{1b}[0m\u{1b}[1m Your infrastructure still matches the configuration.",
                true,
            ),
            ("No changes. No objects need to be destroyed.", true),
            (
                "No changes. No objects need to be destroyed.\n\nChanges to Outputs:\n  + x = 1\n\nYou can apply this plan to save these new output values to the Terraform\nstate, without changing any real infrastructure.",
                false,
            ),
            (
                "No changes. Infrastructure is up-to-date.\nPlan: 1 to add, 0 to change, 0 to destroy.",
                false,
            ),
            ("Plan: 0 to add, 0 to change, 0 to destroy.", false),
            (
                "      + text = No changes. Infrastructure is up-to-date.",
                false,
            ),
            ("a workflow of one's own", false),
        ] {
            assert_eq!(summary(raw).no_changes, expected, "{raw}");
        }
    }

    #[test]
    fn changes_by_others_are_noticed() {
        for tool in ["Terraform", "OpenTofu"] {
            assert!(
                summary(&format!(
                    "\u{1b}[1mNote: \u{1b}[0mObjects have changed outside of {tool}\n"
                ))
                .changes_outside
            );
        }
        assert!(!summary("Plan: 1 to add, 0 to change, 0 to destroy.").changes_outside);
    }

    #[test]
    fn an_apply_is_counted() {
        let raw = "\u{1b}[0m\u{1b}[1m\u{1b}[32m\nApply complete! Resources: 2 added, 1 changed, 1 destroyed.\n\u{1b}[0m";
        assert_eq!(
            apply_summary(raw).unwrap().to_string(),
            "2 added, 1 changed, 1 destroyed"
        );
        let raw =
            "Apply complete! Resources: 1 imported, 2 added, 1 changed, 1 destroyed, 1 forgotten.";
        assert_eq!(
            apply_summary(raw).unwrap().to_string(),
            "1 imported, 2 added, 1 changed, 1 destroyed, 1 forgotten"
        );
        assert_eq!(
            apply_summary("Destroy complete! Resources: 3 destroyed.")
                .unwrap()
                .destroyed,
            3
        );
        assert_eq!(apply_summary("Apply complete?"), None);
    }
}
