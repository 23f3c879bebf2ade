//! Statuses that tell on a commit what became of its tags.
//!
//! Reasons may quote `lockkeeper.yaml` or git. The forge shows a status as plain text, and `render::status` limits its length.
//! A status is stored with the outcome that it tells, and its job sets it, so that a forge that is away or asks to wait
//! changes nothing.

use lockkeeper_registry::versions::VersionKey;

use super::store::{TagOutcome, TagPlace, TagVersion};
use crate::context::Ctx;
use crate::features::replies::SetStatus;
use crate::model::{CommitState, StatusContext, StatusTarget};
use crate::queue::Job as _;
use crate::render::status;
use crate::store::NewJob;

/// Returns the job for the status `lockkeeper/publish: acme/vpc/aws 1.2.3`.
pub(super) fn of_version(ctx: &Ctx, place: &TagPlace, version: &TagVersion) -> NewJob {
    let (state, text) = match version.outcome {
        TagOutcome::Published => (
            CommitState::Success,
            format!("Published from the tag {}.", place.tag),
        ),
        TagOutcome::Conflict | TagOutcome::TakenDown | TagOutcome::Refused => (
            CommitState::Failure,
            version.reason.clone().unwrap_or_default(),
        ),
    };
    let key = &version.key;
    let is_there = version.outcome == TagOutcome::Published;
    job(
        ctx,
        place,
        &format!("{} {}", key.name().as_str(), key.version()),
        (state, &text),
        is_there.then(|| page(ctx, key)),
    )
}

/// Returns the job for the status `lockkeeper/publish: v1.2.3` of a tag whose versions are not known.
pub(super) fn of_tag(ctx: &Ctx, place: &TagPlace, state: CommitState, text: &str) -> NewJob {
    job(ctx, place, place.tag.as_str(), (state, text), None)
}

fn job(
    ctx: &Ctx,
    place: &TagPlace,
    what: &str,
    (state, text): (CommitState, &str),
    url: Option<String>,
) -> NewJob {
    let name = &ctx.settings.comments.status_name;
    let context = StatusContext::new(&format!("{name}/publish: {what}"));
    // Problems of a file have several lines.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let job = SetStatus {
        target: StatusTarget {
            repo: place.repo.clone(),
            pull: None,
            commit: place.commit.clone(),
        },
        status: status::status(context, state, &text, url),
        promised: None,
    };
    job.to_new()
}

fn page(ctx: &Ctx, key: &VersionKey) -> String {
    let (base, name) = (&ctx.settings.base_url, key.name());
    format!(
        "{base}/registry/modules/{}@{}",
        name.as_str(),
        key.version()
    )
}
