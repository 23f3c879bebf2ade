//! Determines whether GitHub would let a pull be merged (GitHub REST: "Get a pull request").
//!
//! GitHub decides. Only where it says `blocked`, Lockkeeper looks for the reason. A branch may require a status that
//! Lockkeeper sets at the end of the very apply that waits for it. The two must not wait for each other forever. For
//! that, Lockkeeper must know that the pull meets all other conditions of the branch (P6).

use std::collections::BTreeSet;
use std::time::Duration;

use super::answers::{MergeState, PullAnswer};
use super::call::RequestFailure;
use super::checks::{self, RequiredState};
use super::reviews;
use super::rules::{self, BranchRules, RequiredCheck};
use super::{GitHub, pull_words};
use crate::forges::ForgeError;
use crate::model::{
    CheckState, IgnoredStatuses, MergeObstacle, Mergeability, Pull, PullRef, code_span,
};

/// Waits while GitHub computes whether a pull can be merged. The computation begins with the first request and takes
/// seconds.
const SETTLE_WAITS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

pub(super) async fn mergeability(
    github: &GitHub,
    at: &PullRef,
    ignored: &IgnoredStatuses<'_>,
) -> Result<Mergeability, RequestFailure> {
    let answer = settled(github, at).await?;
    Ok(match answer.merge_state() {
        MergeState::Unsettled => Mergeability::NotKnownYet,
        MergeState::Free => Mergeability::Yes,
        MergeState::Draft => Mergeability::No(vec![MergeObstacle::Draft]),
        MergeState::Conflicts => Mergeability::No(vec![MergeObstacle::Conflicts]),
        MergeState::Behind => Mergeability::No(vec![MergeObstacle::Behind]),
        MergeState::Other(word) => Mergeability::No(vec![MergeObstacle::Other(word)]),
        MergeState::Blocked => blocked(github, at, answer, ignored).await?,
    })
}

async fn settled(github: &GitHub, at: &PullRef) -> Result<PullAnswer, RequestFailure> {
    let mut answer = github.pull_answer(at).await?;
    for wait in SETTLE_WAITS {
        if answer.merge_state() != MergeState::Unsettled {
            break;
        }
        github.wire.clock.sleep(wait).await;
        answer = github.pull_answer(at).await?;
    }
    Ok(answer)
}

async fn blocked(
    github: &GitHub,
    at: &PullRef,
    answer: PullAnswer,
    ignored: &IgnoredStatuses<'_>,
) -> Result<Mergeability, RequestFailure> {
    let author = answer.author().map(str::to_owned);
    let pull = answer.into_pull(at);
    let pull = pull.map_err(|message| {
        RequestFailure::rejected(&github.wire.host, &pull_words(at), &message)
    })?;
    let rules = rules::of(github, &at.repo, &pull.base_branch).await?;
    let mut obstacles = rules.hidden.clone();
    let (ours, others): (Vec<_>, Vec<_>) = rules
        .checks
        .iter()
        .partition(|check| ignored.covers(&check.context));
    let states = checks::of(github, &pull, &rules.checks).await;
    let waits: BTreeSet<String> = match &states {
        Ok(states) => {
            obstacles.extend(
                others
                    .iter()
                    .filter_map(|check| obstacle(check, states.of(check))),
            );
            let open = ours
                .iter()
                .filter(|check| states.of(check) != RequiredState::Passed);
            open.map(|check| check.context.clone()).collect()
        }
        Err(failure) => {
            obstacles.push(hidden_by(failure, "every required check")?);
            BTreeSet::new()
        }
    };
    obstacles.extend(approvals(github, &pull, author.as_deref(), &rules).await?);
    Ok(match (obstacles.is_empty(), waits.is_empty()) {
        (true, false) => Mergeability::ButFor {
            statuses: waits,
            up_to_date: rules.strict,
        },
        (true, true) => Mergeability::No(vec![MergeObstacle::Unexplained]),
        (false, _) => Mergeability::No(obstacles),
    })
}

fn obstacle(check: &RequiredCheck, state: RequiredState) -> Option<MergeObstacle> {
    let is = |state| {
        Some(MergeObstacle::Check {
            name: check.context.clone(),
            state,
        })
    };
    match state {
        RequiredState::Passed => None,
        RequiredState::Missing => is(CheckState::Missing),
        RequiredState::Pending => is(CheckState::Pending),
        RequiredState::Failed => is(CheckState::Failed),
        RequiredState::OfUnknownApp => Some(MergeObstacle::Hidden {
            rule: format!("the required check {}", code_span(&check.context)),
            why: "it must come from a specific GitHub App, and GitHub does not return which App set the status"
                .to_owned(),
        }),
    }
}

/// Returns the obstacles from the approvals that the rules of the branch require.
async fn approvals(
    github: &GitHub,
    pull: &Pull,
    author: Option<&str>,
    rules: &BranchRules,
) -> Result<Vec<MergeObstacle>, RequestFailure> {
    if !rules.wants_reviews {
        return Ok(Vec::new());
    }
    let approval = reviews::approval_of_writers(github, &pull.at, author).await?;
    let mut obstacles = Vec::new();
    if approval.by.len() < rules.approvals as usize {
        obstacles.push(MergeObstacle::Approvals {
            wanted: rules.approvals,
            given: approval.by.into_keys().collect(),
        });
    }
    if !approval.asking.is_empty() {
        obstacles.push(MergeObstacle::ChangesAsked(approval.asking));
    }
    Ok(obstacles)
}

/// Converts a refused request for a rule to an obstacle. Temporary failures are for the caller.
pub(super) fn hidden_by(
    failure: &RequestFailure,
    rule: &str,
) -> Result<MergeObstacle, RequestFailure> {
    match &failure.error {
        error @ (ForgeError::Denied { .. }
        | ForgeError::NotConfigured { .. }
        | ForgeError::NotFound { .. }
        | ForgeError::Rejected { .. }) => Ok(MergeObstacle::Hidden {
            rule: rule.to_owned(),
            why: error.to_string(),
        }),
        ForgeError::RateLimited { what, host, until } => Err(RequestFailure {
            status: failure.status,
            exhausted: failure.exhausted,
            error: ForgeError::RateLimited {
                what: what.clone(),
                host: host.clone(),
                until: *until,
            },
        }),
        ForgeError::Moved {
            what,
            repo,
            message,
        } => Err(RequestFailure {
            status: failure.status,
            exhausted: failure.exhausted,
            error: ForgeError::Moved {
                what: what.clone(),
                repo: repo.clone(),
                message: message.clone(),
            },
        }),
        ForgeError::Unavailable {
            what,
            host,
            message,
        } => Err(RequestFailure::passing(host, what, message)),
    }
}
