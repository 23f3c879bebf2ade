//! Checks the conditions for all commands, before any command is carried out (reference 1.6, step 5).

use crate::config::repo::shown;
use crate::context::Ctx;
use crate::features::owners;
use crate::features::replies::Reply;
use crate::model::{BranchName, CommandKind, CommandOutcome, Pull, PullRef, PullState};
use crate::render::{Body, CommandRefusal};
use crate::store::CommandRow;

/// Returns the refusal, if there is one. A plan that somebody's comment waits for is not refused silently.
pub(super) async fn check(
    ctx: &Ctx,
    row: &CommandRow,
    pull: &Pull,
) -> Result<Option<Reply>, sqlx::Error> {
    let by_itself =
        row.kind == CommandKind::Autoplan && !ctx.store.command_stands_in(row.id).await?;
    if let Some(refused) = unclaimed(ctx, row, by_itself).await? {
        return Ok(Some(refused));
    }
    Ok(fork(ctx, row, pull)
        .or_else(|| closed(row, pull, by_itself))
        .or_else(|| branch(ctx, row, pull, by_itself))
        .or_else(|| draft(ctx, pull, by_itself))
        .or_else(|| label(ctx, row, pull, by_itself)))
}

/// Refuses if nobody has claimed the repository: the claim may have ended after the command was accepted. Locks can
/// still be released.
async fn unclaimed(
    ctx: &Ctx,
    row: &CommandRow,
    by_itself: bool,
) -> Result<Option<Reply>, sqlx::Error> {
    if row.kind == CommandKind::Unlock || owners::is_claimed(ctx, &row.pull.repo).await? {
        return Ok(None);
    }
    if by_itself {
        return Ok(Some(Reply::silent_for(
            "unclaimed: nobody has claimed the repository (--require-claims)".to_owned(),
        )));
    }
    Ok(Some(Reply::new(Body::Refused(owners::unclaimed_refusal(
        ctx,
        &row.pull.repo,
    )))))
}

fn fork(ctx: &Ctx, row: &CommandRow, pull: &Pull) -> Option<Reply> {
    if !pull.is_fork() || ctx.settings.repos.allow_forks || row.kind == CommandKind::Unlock {
        return None;
    }
    if ctx.settings.comments.silence.fork_errors {
        return Some(Reply::silent(CommandOutcome::Refused));
    }
    Some(Reply::new(Body::Refused(CommandRefusal::fork(
        pull.head_repo.as_ref(),
    ))))
}

fn closed(row: &CommandRow, pull: &Pull, by_itself: bool) -> Option<Reply> {
    if pull.state == PullState::Open || row.kind == CommandKind::Unlock {
        return None;
    }
    if by_itself {
        return Some(Reply::silent(CommandOutcome::Refused));
    }
    let message = format!(
        "this pull request is {}, and commands run on open pull requests only.",
        pull.state
    );
    let hint = match pull.state {
        PullState::Merged => "Open a new pull request for further changes.",
        PullState::Open | PullState::Closed => "Reopen it, then run the command again.",
    };
    Some(Reply::refused("closed", message, vec![hint.to_owned()]))
}

/// Refuses pull requests into branches that the administrator does not allow (`branch` of an entry of `repos`,
/// reference 3.11). Locks can still be released, because the base branch may have been changed after they were taken.
fn branch(ctx: &Ctx, row: &CommandRow, pull: &Pull, by_itself: bool) -> Option<Reply> {
    let why = other_branch(ctx, &pull.at, &pull.base_branch)?;
    if row.kind == CommandKind::Unlock {
        return None;
    }
    if by_itself {
        return Some(Reply::silent_for(format!("branch: {why}")));
    }
    let what = if pull.at.subject.is_application() {
        "branch of the application"
    } else {
        "base branch of the pull request"
    };
    let hints = vec![
        format!("Change the {what}, if it is the wrong one."),
        "Or an administrator can change that line.".to_owned(),
    ];
    Some(Reply::refused("branch", format!("{why}."), hints))
}

/// Returns why a pull request into this branch is not served, as a clause. `None`: it is served.
pub(crate) fn other_branch(ctx: &Ctx, pull: &PullRef, base: &BranchName) -> Option<String> {
    let rules = ctx.settings.rules(&pull.repo);
    let served = rules.branch().filter(|served| !served.value.fits(base))?;
    if pull.subject.is_application() {
        return Some(format!(
            "this application uses the branch `{base}`, and the server only serves branches that match `/{}/` ({})",
            served.value.as_str(),
            served.by
        ));
    }
    Some(format!(
        "the base branch of this pull request is `{base}`, and the server only serves base branches that match `/{}/` \
         ({})",
        served.value.as_str(),
        served.by
    ))
}

/// Checks `--disable-autoplan-label` and `--disable-unlock-label` (reference 1.7).
fn label(ctx: &Ctx, row: &CommandRow, pull: &Pull, by_itself: bool) -> Option<Reply> {
    let has = |label: &Option<String>| label.clone().filter(|label| pull.has_label(label));
    if by_itself {
        let label = has(&ctx.settings.planning.no_autoplan_label)?;
        return Some(Reply::silent_for(format!(
            "label: the pull request is labelled `{label}` (--disable-autoplan-label)"
        )));
    }
    let label =
        has(&ctx.settings.comments.no_unlock_label).filter(|_| row.kind == CommandKind::Unlock)?;
    let message = format!(
        "this pull request is labelled `{}` (`--disable-unlock-label`).",
        shown(&label)
    );
    Some(Reply::refused(
        "label",
        message,
        vec!["To release the locks, remove the label first.".to_owned()],
    ))
}

/// Refuses automatic plans of drafts. A pull request can become a draft between the event and now. A plan that
/// somebody's comment waits for is still made.
fn draft(ctx: &Ctx, pull: &Pull, by_itself: bool) -> Option<Reply> {
    let refuse = by_itself && pull.draft && !ctx.settings.repos.allow_drafts;
    refuse.then(|| Reply::silent(CommandOutcome::Refused))
}
