//! Checks the requirements of a project before a plan, an apply, an import or a `state rm` (reference 8.1).
//!
//! Only the facts that some project requires are looked up, once per command. But facts become stale while projects
//! run one after the other, and an apply needs the facts right before it. Temporary errors of the forge make a plan
//! wait, and a merge after an apply. The others are refused, because they are never begun twice (P3, P6).

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::Mutex;

use super::CommandCx;
use super::projects::Work;
use crate::clock::Clock;
use crate::config::needs::{
    self, BaseGap, Fact, Needed, RequirementFacts, SentenceNames, UnmetRequirement,
};
use crate::config::repos::Demands;
use crate::errors::describe_error;
use crate::forges::ForgeError;
use crate::model::{Approval, IgnoredStatuses, Mergeability, ProjectKey, Requirement, RunKind};
use crate::queue::JobError;
use crate::render::UserText;
use crate::workflow::{CheckoutError, Source};

/// Time for which a fact counts as current.
const FRESH: TimeDelta = TimeDelta::seconds(30);

/// Facts that a command has looked up about its pull request.
#[derive(Default)]
pub(super) struct Findings {
    approval: CachedAnswer<Approval>,
    mergeability: CachedAnswer<Mergeability>,
    newest: CachedAnswer<Source>,
}

impl Findings {
    /// Returns who approved the pull request of the command.
    pub async fn approval(&self, cx: &CommandCx<'_>) -> Result<Approval, ForgeError> {
        let ask = async {
            cx.ctx
                .forges
                .of(&cx.pull.at.repo)?
                .approval(&cx.pull.at)
                .await
        };
        self.approval.get(&*cx.ctx.clock, ask).await
    }

    /// Returns whether the pull request could be merged, except for the steps that the command itself has yet to do.
    pub async fn mergeability(
        &self,
        cx: &CommandCx<'_>,
        kind: RunKind,
    ) -> Result<Mergeability, ForgeError> {
        let settings = &cx.ctx.settings;
        let ignored = IgnoredStatuses {
            name: &settings.comments.status_name,
            kinds: yet_to_come(kind),
            others: &settings.comments.ignored_status_names,
        };
        let ask = async {
            let forge = cx.ctx.forges.of(&cx.pull.at.repo)?;
            forge.mergeability(&cx.pull.at, &ignored).await
        };
        self.mergeability.get(&*cx.ctx.clock, ask).await
    }

    /// Returns who approved the pull request, and whether it could be merged.
    pub async fn of_pull(
        &self,
        cx: &CommandCx<'_>,
        kind: RunKind,
    ) -> (
        Result<Approval, ForgeError>,
        Result<Mergeability, ForgeError>,
    ) {
        tokio::join!(self.approval(cx), self.mergeability(cx, kind))
    }

    /// Returns how far the current base branch is ahead of the planned commit.
    async fn base(
        &self,
        cx: &CommandCx<'_>,
        kind: RunKind,
        planned: &Source,
    ) -> Result<BaseGap, CheckoutError> {
        let checkouts = &cx.ctx.checkouts;
        let newest = match kind {
            // The plan was fetched for this very command.
            RunKind::Plan | RunKind::Import | RunKind::StateRm | RunKind::Version => {
                planned.clone()
            }
            RunKind::Apply => {
                let ask = checkouts.fetch(cx.pull);
                self.newest.get(&*cx.ctx.clock, ask).await?
            }
        };
        Ok(checkouts.base_gap(&newest, planned).await?)
    }
}

/// Lists the kinds of statuses that cannot be a success before the command is done.
fn yet_to_come(kind: RunKind) -> &'static [RunKind] {
    match kind {
        // A plan may be waiting for an import.
        RunKind::Plan | RunKind::Import | RunKind::StateRm | RunKind::Version => {
            &[RunKind::Plan, RunKind::Apply]
        }
        RunKind::Apply => &[RunKind::Apply],
    }
}

/// Latest answer to a question.
struct CachedAnswer<T>(Mutex<Option<(DateTime<Utc>, T)>>);

impl<T> Default for CachedAnswer<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> CachedAnswer<T> {
    /// Returns the answer, and asks for it if there is none yet or it is stale.
    async fn get<E>(
        &self,
        clock: &dyn Clock,
        ask: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut known = self.0.lock().await;
        if let Some((at, value)) = &*known
            && clock.now() - *at < FRESH
        {
            return Ok(value.clone());
        }
        // The answer of the forge is from some moment after this one.
        let asked_at = clock.now();
        let value = ask.await?;
        *known = Some((asked_at, value.clone()));
        Ok(value)
    }
}

/// Returns why a project may not be planned, if so. Retries after temporary errors of the forge.
pub(super) async fn refusal_of_plan(
    cx: &CommandCx<'_>,
    work: &Work,
    project: &ProjectKey,
) -> Result<Option<UserText>, JobError> {
    let demands = work.demands(RunKind::Plan, project);
    let (kind, left) = (RunKind::Plan, "Nothing was planned, and no lock was taken.");
    let asking = RequirementQuestion {
        cx,
        findings: &work.findings,
        kind,
        planned: work.source(),
        left,
        patient: true,
    };
    if asking.is_of_application() {
        return Ok(asking.unmet_by_application(&demands));
    }
    let facts = asking.facts(&demands).await?;
    Ok(asking.check(&demands, &facts))
}

/// Returns why a plan may not be applied, if so. A requirement that cannot be checked is not met.
pub(super) async fn refusal_of_apply(
    cx: &CommandCx<'_>,
    work: &Work,
    demands: &Demands,
    planned: &Source,
) -> Option<UserText> {
    let left = "Nothing was applied, and the plan is kept.";
    let asking = RequirementQuestion {
        cx,
        findings: &work.findings,
        kind: RunKind::Apply,
        planned,
        left,
        patient: false,
    };
    if asking.is_of_application() {
        return asking.unmet_by_application(demands);
    }
    let facts = asking.facts(demands).await.unwrap_or_default();
    asking.check(demands, &facts)
}

/// Returns why a pull request may not be merged after its apply, if so: the same requirements must be met. Retries
/// after temporary errors of the forge.
pub(super) async fn refusal_of_merge(
    cx: &CommandCx<'_>,
    work: &Work,
    demands: &Demands,
    planned: &Source,
) -> Result<Option<UserText>, JobError> {
    let left = "The pull request stays open.";
    let asking = RequirementQuestion {
        cx,
        findings: &work.findings,
        kind: RunKind::Apply,
        planned,
        left,
        patient: true,
    };
    let facts = asking.facts(demands).await?;
    Ok(asking.check(demands, &facts))
}

/// Returns why an import or a `state rm` may not change the state of a project, if so. A requirement that cannot be
/// checked is not met.
pub(super) async fn refusal_of_state_change(
    cx: &CommandCx<'_>,
    work: &Work,
    kind: RunKind,
    project: &ProjectKey,
) -> Option<UserText> {
    let demands = work.demands(kind, project);
    let left = "Nothing was changed, and no lock was taken.";
    let asking = RequirementQuestion {
        cx,
        findings: &work.findings,
        kind,
        planned: work.source(),
        left,
        patient: false,
    };
    let facts = asking.facts(&demands).await.unwrap_or_default();
    asking.check(&demands, &facts)
}

/// Question about requirements, and its purpose.
struct RequirementQuestion<'a> {
    cx: &'a CommandCx<'a>,
    findings: &'a Findings,
    kind: RunKind,
    planned: &'a Source,
    /// Consequence of an unmet requirement, as a sentence.
    left: &'static str,
    /// True if temporary errors of the forge lead to a retry.
    patient: bool,
}

impl RequirementQuestion<'_> {
    /// Looks up the facts for these requirements. Without requirements it looks up nothing.
    async fn facts(&self, demands: &Demands) -> Result<RequirementFacts, ForgeError> {
        let Self {
            cx,
            findings,
            kind,
            planned,
            ..
        } = self;
        let needed = Needed::by(demands);
        let mut facts = RequirementFacts::default();
        if needed.approval {
            facts.approval = self.fact(findings.approval(cx).await)?;
        }
        if needed.mergeability {
            facts.mergeability = self.fact(findings.mergeability(cx, *kind).await)?;
        }
        if needed.base
            || matches!(
                facts.mergeability,
                Fact::Known(Mergeability::ButFor {
                    up_to_date: true,
                    ..
                })
            )
        {
            let gap = findings.base(cx, *kind, planned).await;
            facts.base =
                gap.map_or_else(|error| Fact::Unknown(describe_error(&error)), Fact::Known);
        }
        Ok(facts)
    }

    fn fact<T>(&self, found: Result<T, ForgeError>) -> Result<Fact<T>, ForgeError> {
        match found {
            Ok(value) => Ok(Fact::Known(value)),
            Err(error @ (ForgeError::Unavailable { .. } | ForgeError::RateLimited { .. }))
                if self.patient =>
            {
                Err(error)
            }
            Err(error) => Ok(Fact::Unknown(error.to_string())),
        }
    }

    /// Returns the requirements that an application cannot meet, because only a pull request can. The plan of an
    /// application is made from its branch, so it is never behind that branch.
    fn unmet_by_application(&self, demands: &Demands) -> Option<UserText> {
        let of_a_pull = demands
            .iter()
            .filter(|demand| demand.value != Requirement::Undiverged);
        let unmet = of_a_pull.map(|demand| UnmetRequirement {
            message: format!(
                "`{}` is required ({}), but applications have no pull request that could meet it.",
                demand.value, demand.by
            ),
            hints: vec![
                "Make the change in a pull request, and apply it there.".to_owned(),
                "Or change that line, if applications may be applied without a review.".to_owned(),
            ],
        });
        let unmet: Vec<UnmetRequirement> = unmet.collect();
        (!unmet.is_empty()).then(|| text(self.left, unmet))
    }

    fn is_of_application(&self) -> bool {
        self.cx.pull.at.subject.is_application()
    }

    fn check(&self, demands: &Demands, facts: &RequirementFacts) -> Option<UserText> {
        let Self { cx, planned, .. } = self;
        let settings = &cx.ctx.settings;
        let words = SentenceNames {
            author: &cx.pull.author,
            base: cx.pull.base_branch.as_str(),
            executable: settings.comments.executable(),
            status_name: &settings.comments.status_name,
        };
        let unmet = needs::unmet(demands, &planned.head, facts, &words);
        (!unmet.is_empty()).then(|| text(self.left, unmet))
    }
}

/// Lists all unmet requirements at once, so that nobody fixes one only to read about the next.
fn text(left: &str, unmet: Vec<UnmetRequirement>) -> UserText {
    let mut message: Vec<String> = Vec::new();
    let mut hints: Vec<String> = Vec::new();
    for one in unmet {
        message.push(one.message);
        hints.extend(
            one.hints
                .into_iter()
                .filter(|hint| !hints.contains(hint))
                .collect::<Vec<_>>(),
        );
    }
    message.push(left.to_owned());
    UserText::new(message.join("\n"), hints)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;

    #[tokio::test]
    async fn an_answer_is_believed_for_half_a_minute() {
        let clock = ManualClock::new(DateTime::UNIX_EPOCH);
        let fresh = CachedAnswer::<u32>::default();
        let answer = async |value: u32| fresh.get(&clock, async { Ok::<_, ()>(value) }).await;
        assert_eq!(
            fresh.get(&clock, async { Err::<u32, _>("down") }).await,
            Err("down")
        );
        assert_eq!(answer(1).await, Ok(1));
        clock.advance(Duration::from_secs(29));
        assert_eq!(answer(2).await, Ok(1));
        clock.advance(Duration::from_secs(1));
        assert_eq!(answer(3).await, Ok(3));
    }
}
