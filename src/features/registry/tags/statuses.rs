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

/// Number of characters of a checksum in a status.
const SHORT_CHECKSUM: usize = 12;

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
    let text = with_short_checksums(&text);
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

/// Shortens checksums, so that a status has room for two of them and the rest of its sentence.
fn with_short_checksums(text: &str) -> String {
    let mut parts = text.split("h1:");
    let mut short = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_other = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '/' | '=');
        let (checksum, rest) = part.split_at(part.find(is_other).unwrap_or(part.len()));
        short.push_str("h1:");
        short.push_str(checksum.get(..SHORT_CHECKSUM).unwrap_or(checksum));
        short.push_str(rest);
    }
    short
}

fn page(ctx: &Ctx, key: &VersionKey) -> String {
    let (base, name) = (&ctx.settings.base_url, key.name());
    format!(
        "{base}/registry/modules/{}@{}",
        name.as_str(),
        key.version()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_shortened() {
        let long = "e0PiG/M7SBc6Mlhzq7GJafoSGuM7tYnFGskHlmRRpkA=";
        for (text, expected) in [
            (
                format!("It has h1:{long} (go.mod: h1:{long}), and the tag h1:{long}."),
                "It has h1:e0PiG/M7SBc6 (go.mod: h1:e0PiG/M7SBc6), and the tag h1:e0PiG/M7SBc6.",
            ),
            ("h1: h1:é".to_owned(), "h1: h1:é"),
            ("no checksum".to_owned(), "no checksum"),
        ] {
            assert_eq!(with_short_checksums(&text), expected);
        }
    }
}
