//! Checks the requirements of a pull (reference 8).
//!
//! A refusal names the rule and who made it, the state that was found, and who can change that state (P10). An
//! unknown fact does not meet a requirement (P6).

mod facts;
mod merging;
mod words;

pub use facts::{BaseGap, Fact, RequirementFacts};
pub use words::{SentenceNames, UnmetRequirement};

use super::repos::{Decided, Demands};
use crate::model::{Approval, CommitSha, Mergeability, Requirement, code_span};

/// Facts that a decision depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needed {
    /// True if the decision depends on the approvals.
    pub approval: bool,
    /// True if the decision depends on the mergeability.
    pub mergeability: bool,
    /// True if the decision depends on new commits of the base branch.
    pub base: bool,
}

impl Needed {
    /// Returns the facts that these demands depend on.
    pub fn by(demands: &Demands) -> Self {
        let any = |wanted| demands.iter().any(|demand| demand.value == wanted);
        Self {
            approval: any(Requirement::Approved) || any(Requirement::ApprovedOnce),
            mergeability: any(Requirement::Mergeable),
            base: any(Requirement::Undiverged),
        }
    }
}

/// Returns every demand that is not met for this head commit, in the order of the demands.
pub fn unmet(
    demands: &Demands,
    head: &CommitSha,
    facts: &RequirementFacts,
    words: &SentenceNames<'_>,
) -> Vec<UnmetRequirement> {
    demands
        .iter()
        .filter_map(|demand| check(demand, head, facts, words))
        .collect()
}

fn check(
    demand: &Decided<Requirement>,
    head: &CommitSha,
    facts: &RequirementFacts,
    words: &SentenceNames<'_>,
) -> Option<UnmetRequirement> {
    let (why, hints) = match demand.value {
        Requirement::Approved => approved(&facts.approval, Some(head), words),
        Requirement::ApprovedOnce => approved(&facts.approval, None, words),
        Requirement::Mergeable => merging::mergeable(facts, words),
        Requirement::Undiverged => undiverged(&facts.base, words),
    }?;
    Some(UnmetRequirement {
        message: format!("`{}` is required ({}), and {why}.", demand.value, demand.by),
        hints,
    })
}

/// The reason why a requirement is not met, as a clause, and the ways to meet it.
type Refusal = (String, Vec<String>);

/// Checks the approvals. `head` is the commit that reviews must be about; `None` accepts reviews of any commit.
fn approved(
    fact: &Fact<Approval>,
    head: Option<&CommitSha>,
    words: &SentenceNames<'_>,
) -> Option<Refusal> {
    let approval = match fact {
        Fact::Known(approval) => approval,
        Fact::Unknown(why) => return Some(words::unknown("who has approved", why)),
    };
    if head.map_or_else(
        || approval.is_given_once(),
        |head| approval.is_given_for(head),
    ) {
        return None;
    }
    let stale =
        head.and_then(|head| words::approvals_of_older(&approval.by).map(|said| (head, said)));
    let mut said = vec![match &stale {
        Some((head, approvals)) => {
            format!(
                "nobody has approved the head commit {} of the pull request; {approvals}",
                words::commit(head)
            )
        }
        None => "nobody has approved the pull request".to_owned(),
    }];
    if !approval.before_base.is_empty() {
        let (approvals, were) = if approval.before_base.len() == 1 {
            ("approval", "was")
        } else {
            ("approvals", "were")
        };
        said.push(format!(
            "the {approvals} by {} {were} given before the base branch changed to {}",
            words::names(&approval.before_base),
            code_span(words.base)
        ));
    }
    let more = [
        (&approval.asking, "asks for changes", "ask for changes"),
        (
            &approval.dismissed,
            "reviewed it, but the review was dismissed",
            "reviewed it, but the review was dismissed",
        ),
        (
            &approval.onlookers,
            "approved it, but has no write access to this public repository",
            "approved it, but have no write access to this public repository",
        ),
    ];
    for (people, one, many) in more.into_iter().filter(|(people, ..)| !people.is_empty()) {
        said.push(format!(
            "{} {}",
            words::names(people),
            if people.len() == 1 { one } else { many }
        ));
    }
    let author = code_span(words.author);
    let ways = match &stale {
        Some((head, _)) => vec![
            words::then(&format!(
                "Somebody other than the author {author} must review the head commit {} and approve it",
                words::commit(head)
            )),
            "Or ask an administrator to change that line to `approved: {stale: true}`, so that approvals of older commits count."
                .to_owned(),
        ],
        None if !approval.before_base.is_empty() => vec![words::then(&format!(
            "Ask for a new review: somebody other than the author {author} must approve the pull request with its \
             present base branch {}",
            code_span(words.base)
        ))],
        None => {
            vec![words::then(&format!("Somebody other than the author {author} must approve the pull request"))]
        }
    };
    Some((said.join("; "), ways))
}

fn undiverged(fact: &Fact<BaseGap>, words: &SentenceNames<'_>) -> Option<Refusal> {
    let gap = match fact {
        Fact::Known(gap) if gap.in_planned == 0 => return None,
        Fact::Known(gap) => gap,
        Fact::Unknown(why) => {
            return Some(words::unknown(
                "whether the base branch has newer commits",
                why,
            ));
        }
    };
    let base = code_span(words.base);
    let has = if gap.in_planned == 1 {
        "1 commit".to_owned()
    } else {
        format!("{} commits", gap.in_planned)
    };
    let (what, out) = if gap.is_merged {
        (
            "the planned merge does not contain",
            format!(
                "Comment `{} plan` to plan the merge with the newest {base}. Check the new plan, then apply it.",
                words.executable
            ),
        )
    } else {
        (
            "the pull request does not contain",
            format!(
                "Merge {base} into the branch of the pull request, or rebase it, and push. Lockkeeper plans the push automatically."
            ),
        )
    };
    Some((format!("{base} has {has} that {what}"), vec![out]))
}

#[cfg(test)]
mod tests;
