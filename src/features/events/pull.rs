//! Handles a pull request that was opened or changed: its projects are planned. That plan replaces every older one
//! that waits or runs, because nobody may apply those any more. An apply is left alone.
//!
//! A reconciler (`features/events/missed.rs`) finds changes without an event, and uses the same code. The last
//! handled head of a pull request is recorded, so the later one of the event and the reconciler does nothing.

use chrono::TimeDelta;

use super::DeliveryEnd;
use crate::context::Ctx;
use crate::features::planning::{CommandSpec, RunCommand, other_branch};
use crate::model::{
    Actor, CommandKind, DeliveryId, Pull, PullAction, PullEvent, PullHead, PullState,
    RepositoryChange, RepositoryEventKind,
};
use crate::queue::{Job, JobError};
use crate::store::{CreateCommand, HeadUpdate, KnownHead, NewCommand};

/// Maximum delay of an event. GitHub offers deliveries for redelivery for three days, so an event can arrive this
/// late after the reconciler found its change.
const LATE: TimeDelta = TimeDelta::days(3);

/// Result of news about a pull request.
enum PullUpdate {
    /// A plan was requested.
    Planned,
    /// Another server was faster, or the delivery was accepted before.
    Known,
    /// The news requires nothing, for this reason.
    Ignored(String),
}

/// Value of an event at this moment.
enum EventValue {
    /// News, with the current state on the forge if the delivery may be late.
    News(PullEvent),
    /// No news, for this reason.
    Late(String),
}

pub(super) async fn handle(
    ctx: &Ctx,
    delivery: DeliveryId,
    event: &PullEvent,
    actor: Actor,
) -> Result<DeliveryEnd, JobError> {
    let event = match still_news(ctx, event).await? {
        EventValue::News(event) => event,
        EventValue::Late(why) => {
            return Ok(DeliveryEnd::ignored(format!("the delivery is late: {why}")));
        }
    };
    let at = event.pull_head();
    let news = HeadUpdate::Event(at.as_ref());
    Ok(
        match take_up(ctx, Some(delivery), &event, actor, news).await? {
            PullUpdate::Planned | PullUpdate::Known => DeliveryEnd::handled(),
            PullUpdate::Ignored(why) => DeliveryEnd::ignored(why),
        },
    )
}

/// Handles an open pull request that differs from its last known state, as if an event had reported it. `known` was
/// read before the forge was asked. Returns true if a plan was requested.
pub(crate) async fn found(
    ctx: &Ctx,
    pull: &Pull,
    known: Option<&PullHead>,
) -> Result<bool, JobError> {
    let at = pull.pull_head();
    let news = HeadUpdate::Forge { known, at: &at };
    let Some(action) = missed_action(ctx, pull, known).await? else {
        ctx.store.head_note(&pull.at, news).await?;
        return Ok(false);
    };
    // The mirrors have missed the event as well.
    let (repo, kind) = (pull.at.repo.clone(), RepositoryEventKind::Found);
    ctx.store
        .repository_event_append(&RepositoryChange { repo, kind })
        .await?;
    let event = PullEvent {
        pull: pull.at.clone(),
        action,
        draft: pull.draft,
        head: Some(at.head.clone()),
        base_branch: Some(at.base_branch.clone()),
        // The author of the push is unknown, but the author of the pull request is known.
        sender: pull.author.clone(),
        sender_id: None,
    };
    Ok(matches!(
        take_up(ctx, None, &event, Actor::of_pull(&pull.author), news).await?,
        PullUpdate::Planned
    ))
}

/// Determines the missed event; `None` if it requires nothing.
async fn missed_action(
    ctx: &Ctx,
    pull: &Pull,
    known: Option<&PullHead>,
) -> Result<Option<PullAction>, sqlx::Error> {
    let Some(known) = known else {
        let before = ctx.store.pull_state(&pull.at).await?;
        let was_closed = before.is_some_and(|state| state != PullState::Open);
        return Ok(Some(if was_closed {
            PullAction::Reopened
        } else {
            PullAction::Opened
        }));
    };
    Ok(if known.head != pull.head {
        Some(PullAction::Updated)
    } else if known.base_branch != pull.base_branch {
        Some(PullAction::BaseChanged)
    } else {
        (known.draft && !pull.draft).then_some(PullAction::ReadyForReview)
    })
}

async fn still_news(ctx: &Ctx, event: &PullEvent) -> Result<EventValue, JobError> {
    let known = ctx.store.head_get(&event.pull).await?;
    let Some(told) = event.pull_head() else {
        return Ok(EventValue::News(event.clone()));
    };
    if !may_be_late(ctx, event, known.as_ref()).await? {
        return Ok(EventValue::News(event.clone()));
    }
    let found = || EventValue::Late("its change was found before it arrived".to_owned());
    let known = known.map(|known| known.at);
    if known.as_ref() == Some(&told) {
        return Ok(found());
    }
    let forge = ctx.forges.of(&event.pull.repo)?;
    let pull = forge.pull(&event.pull).await?;
    if pull.state != PullState::Open {
        return Ok(EventValue::Late(format!(
            "the pull request is {}",
            pull.state
        )));
    }
    if known == Some(pull.pull_head()) {
        return Ok(found());
    }
    let (head, base_branch) = (Some(pull.head), Some(pull.base_branch));
    Ok(EventValue::News(PullEvent {
        head,
        base_branch,
        draft: pull.draft,
        ..event.clone()
    }))
}

/// Returns true if an event can be late: only if the reconciler found a change without an event, or if the pull
/// request is closed.
async fn may_be_late(
    ctx: &Ctx,
    event: &PullEvent,
    known: Option<&KnownHead>,
) -> Result<bool, sqlx::Error> {
    match known {
        Some(known) => Ok(known
            .found_at
            .is_some_and(|found| ctx.clock.now() - found < LATE)),
        None if event.action == PullAction::Reopened => Ok(false),
        None => Ok(ctx
            .store
            .pull_state(&event.pull)
            .await?
            .is_some_and(|state| state != PullState::Open)),
    }
}

async fn take_up(
    ctx: &Ctx,
    delivery: Option<DeliveryId>,
    event: &PullEvent,
    actor: Actor,
    news: HeadUpdate<'_>,
) -> Result<PullUpdate, JobError> {
    if let Some(why) = asks_for_nothing(ctx, event) {
        ctx.store.head_note(&event.pull, news).await?;
        return Ok(PullUpdate::Ignored(why));
    }
    let new = NewCommand {
        kind: CommandKind::Autoplan,
        pull: event.pull.clone(),
        comment: None,
        delivery,
        actor,
        spec: CommandSpec::Autoplan.to_json(),
    };
    let job = |command| {
        vec![
            RunCommand {
                command,
                pull: event.pull.clone(),
                kind: new.kind,
            }
            .to_new(),
        ]
    };
    let (outcome, replaced) = ctx
        .store
        .command_create_instead(&new, job, what_came(event.action), news)
        .await?;
    ctx.stops.stop(&replaced);
    Ok(match outcome {
        CreateCommand::Created(_) => PullUpdate::Planned,
        CreateCommand::Known => PullUpdate::Known,
    })
}

fn asks_for_nothing(ctx: &Ctx, event: &PullEvent) -> Option<String> {
    if !ctx.settings.planning.autoplan {
        return Some("automatic plans are disabled (--disable-autoplan)".to_owned());
    }
    if let Some(why) = event
        .base_branch
        .as_ref()
        .and_then(|base| other_branch(ctx, &event.pull, base))
    {
        return Some(why);
    }
    let is_draft = event.draft && !ctx.settings.repos.allow_drafts;
    is_draft.then(|| "the pull request is a draft (--allow-draft-prs is not set)".to_owned())
}

/// Returns the reason why older plans are useless now, as a clause.
fn what_came(action: PullAction) -> &'static str {
    match action {
        PullAction::Opened | PullAction::Updated => "a newer commit was pushed",
        PullAction::Reopened | PullAction::Closed => "the pull request was opened again",
        PullAction::ReadyForReview => "the pull request was marked as ready for review",
        PullAction::BaseChanged => "the base branch was changed",
    }
}
