//! Checks `mergeable`: the answer of the forge, without the obstacles that Lockkeeper itself still has to remove
//! (reference 8.3).

use super::words::{SentenceNames, names, then, unknown};
use super::{Fact, Mergeability, Refusal, RequirementFacts};
use crate::model::{CheckState, MergeObstacle, code_span};

pub(super) fn mergeable(facts: &RequirementFacts, words: &SentenceNames<'_>) -> Option<Refusal> {
    match &facts.mergeability {
        Fact::Known(Mergeability::Yes) => None,
        Fact::Known(Mergeability::ButFor { up_to_date, .. }) => {
            if *up_to_date {
                contains_base(facts, words)
            } else {
                None
            }
        }
        Fact::Known(Mergeability::No(obstacles)) => Some(blocked(obstacles, words)),
        Fact::Known(Mergeability::NotKnownYet) => Some((
            "the forge is still checking whether the pull request can be merged".to_owned(),
            vec!["Run the command again in a minute.".to_owned()],
        )),
        Fact::Unknown(why) => Some(unknown("whether the pull request can be merged", why)),
    }
}

/// Checks that the head contains the base branch. A forge can require this in addition to the statuses that
/// Lockkeeper ignores.
fn contains_base(facts: &RequirementFacts, words: &SentenceNames<'_>) -> Option<Refusal> {
    match &facts.base {
        Fact::Known(gap) if gap.in_head == 0 => None,
        Fact::Known(_) => Some(blocked(&[MergeObstacle::Behind], words)),
        Fact::Unknown(why) => Some(unknown("whether the base branch has newer commits", why)),
    }
}

/// Refuses with all obstacles at once, so that nobody clears one only to learn about the next.
fn blocked(obstacles: &[MergeObstacle], words: &SentenceNames<'_>) -> Refusal {
    let clauses: Vec<String> = obstacles
        .iter()
        .map(|obstacle| clause(obstacle, words))
        .collect();
    let mut hints: Vec<String> = Vec::new();
    for hint in obstacles.iter().map(|obstacle| hint(obstacle, words)) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    (
        format!("the pull request cannot be merged: {}", clauses.join("; ")),
        hints,
    )
}

fn clause(obstacle: &MergeObstacle, words: &SentenceNames<'_>) -> String {
    match obstacle {
        MergeObstacle::Draft => "it is a draft".to_owned(),
        MergeObstacle::Conflicts => format!("it conflicts with {}", code_span(words.base)),
        MergeObstacle::Behind => format!(
            "it does not contain the newest commits of {}",
            code_span(words.base)
        ),
        MergeObstacle::Check { name: check, state } => {
            let state = match state {
                CheckState::Missing => "has not been set",
                CheckState::Pending => "is pending",
                CheckState::Failed => "failed",
            };
            format!("the required check {} {state}", code_span(check))
        }
        MergeObstacle::Approvals { wanted, given } => {
            let wanted = if *wanted == 1 {
                "1 approval is".to_owned()
            } else {
                format!("{wanted} approvals are")
            };
            let given = if given.is_empty() {
                "nobody has approved".to_owned()
            } else {
                format!("there is only the approval of {}", names(given))
            };
            format!("{wanted} required from people with write access, and {given}")
        }
        MergeObstacle::ChangesAsked(people) => {
            format!(
                "{} {} for changes",
                names(people),
                if people.len() == 1 { "asks" } else { "ask" }
            )
        }
        MergeObstacle::Hidden { rule, why } => {
            format!("Lockkeeper cannot check {rule}, because {why}")
        }
        MergeObstacle::Other(word) => format!("the forge calls it {}", code_span(word)),
        MergeObstacle::Unexplained => {
            "the forge calls it blocked, although all rules that it reports are met".to_owned()
        }
    }
}

fn hint(obstacle: &MergeObstacle, words: &SentenceNames<'_>) -> String {
    let base = code_span(words.base);
    match obstacle {
        MergeObstacle::Draft => then("Mark the pull request as ready for review"),
        MergeObstacle::Conflicts => format!("Resolve the conflicts with {base} and push. Lockkeeper plans the push automatically."),
        MergeObstacle::Behind => {
            format!(
                "Merge {base} into the branch of the pull request, or rebase it, and push. Lockkeeper plans the push automatically."
            )
        }
        MergeObstacle::Check { state: CheckState::Failed, .. } => then("Fix the failed checks"),
        MergeObstacle::Check { .. } => then("Wait for the required checks"),
        MergeObstacle::Approvals { .. } => {
            then("Somebody with write access other than the author must approve the pull request")
        }
        MergeObstacle::ChangesAsked(_) => then("The reviewer who requested changes must approve, or somebody must dismiss the review"),
        MergeObstacle::Hidden { .. } => format!(
            "The merge box of the pull request shows the rule. If `{}/apply` is a required check of {base}, Lockkeeper \
             cannot use the merge box, because it waits for this status; so Lockkeeper must check all other rules \
             itself. An administrator of the repository can change the rule, extend Lockkeeper's permissions, or \
             remove that check from the required checks.",
            words.status_name
        ),
        MergeObstacle::Other(_) | MergeObstacle::Unexplained => {
            "The merge box of the pull request shows what is missing. An administrator of the repository can change the \
             rules of the branch."
                .to_owned()
        }
    }
}
