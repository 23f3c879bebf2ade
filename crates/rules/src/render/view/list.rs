//! Builds the list of resources in the section of a plan.

use serde::Serialize;

use crate::model::{PlanChanges, PlannedAction, ResourceChange};

/// Maximum number of lines in the list of one project; the rest is counted. Destroyed resources come first, so they
/// are the last to be left out.
const MAX_LINES: usize = 50;

/// Resources of a plan, grouped by action.
#[derive(Serialize)]
pub(super) struct ListView {
    /// `1 to destroy, 2 to create, 1 output to change`
    tally: String,
    lines: Vec<ListLine>,
    /// `12 more: 10 to create, 2 to move`
    more: Option<String>,
}

#[derive(Serialize)]
struct ListLine {
    verb: &'static str,
    marked: bool,
    address: String,
    previous: Option<String>,
    moves: bool,
    deposed: Option<String>,
    /// True if the resource is imported and then changed.
    imported: bool,
}

impl ListView {
    /// Builds the list; `None` if nothing changes.
    pub(super) fn of(changes: &PlanChanges) -> Option<Self> {
        if changes.is_empty() {
            return None;
        }
        let mut sorted: Vec<&ResourceChange> = changes.resources.iter().collect();
        sorted.sort_by_key(|change| change.action);
        let (shown, rest) = sorted.split_at(sorted.len().min(MAX_LINES));
        let outputs = match changes.outputs {
            0 => None,
            1 => Some("1 output to change".to_owned()),
            many => Some(format!("{many} outputs to change")),
        };
        Some(Self {
            tally: numbers(&sorted)
                .into_iter()
                .chain(outputs)
                .collect::<Vec<_>>()
                .join(", "),
            lines: shown.iter().map(|change| line(change)).collect(),
            more: (!rest.is_empty())
                .then(|| format!("{} more: {}", rest.len(), numbers(rest).join(", "))),
        })
    }

    /// Returns true if the list names any resource.
    pub(super) fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }
}

/// Formats the numbers of changes: `2 to destroy`, `1 to create`.
fn numbers(changes: &[&ResourceChange]) -> Vec<String> {
    let number = |action| {
        changes
            .iter()
            .filter(|change| change.action == action)
            .count()
    };
    let words = |action: PlannedAction| match number(action) {
        0 => None,
        many => Some(format!("{many} to {}", action.verb())),
    };
    PlannedAction::ALL.into_iter().filter_map(words).collect()
}

fn line(change: &ResourceChange) -> ListLine {
    ListLine {
        verb: change.action.verb(),
        marked: change.action.is_marked(),
        address: change.address.clone(),
        previous: change.previous.clone(),
        moves: change.action == PlannedAction::Move,
        deposed: change.deposed.clone(),
        imported: change.imported && change.action != PlannedAction::Import,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_keeps_what_is_lost_and_counts_the_rest() {
        let one = |action, n: usize| ResourceChange {
            address: format!("a.b[{n}]"),
            deposed: None,
            previous: None,
            action,
            imported: false,
        };
        let creates = (0..60).map(|n| one(PlannedAction::Create, n));
        let others = [
            PlannedAction::Move,
            PlannedAction::Update,
            PlannedAction::Replace,
            PlannedAction::Destroy,
        ];
        let resources = creates.chain(others.map(|action| one(action, 1))).collect();
        let list = ListView::of(&PlanChanges {
            resources,
            outputs: 2,
        })
        .unwrap();
        assert_eq!(
            list.tally,
            "1 to destroy, 1 to replace, 1 to update, 60 to create, 1 to move, 2 outputs to change"
        );
        let verbs: Vec<&str> = list.lines.iter().take(4).map(|line| line.verb).collect();
        assert_eq!(
            (verbs, list.lines.len()),
            (vec!["destroy", "replace", "update", "create"], MAX_LINES)
        );
        assert_eq!(
            list.more.as_deref(),
            Some("14 more: 13 to create, 1 to move")
        );
    }
}
