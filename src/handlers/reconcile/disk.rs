//! What may stay on this disk.
//!
//! Checkouts of pulls that are not open go: their removal is a job, but the server may have died over it, or another
//! server did the job on its own disk. Then, if there is a quota, mirrors and checkouts go until it is met, those that were
//! not used for longest first. Never removed are what a command uses right now, and checkouts of open pulls that hold a
//! local Terraform state, which nobody could make anew; a mirror stays as long as there are checkouts of it.

use tracing::{info, warn};

use super::Found;
use crate::config::size::{ByteSize, shown};
use crate::context::Ctx;
use crate::git::{DiskPart, DiskUse};
use crate::model::{PullRef, PullState, RepoId};

/// So many of the largest parts are named when the quota cannot be met.
const NAMED: usize = 5;

/// Removes what is left over, and what is over the quota.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    let mut found = Found::default();
    for pull in ctx.checkouts.disk_pulls().await? {
        found.looked_at += 1;
        if is_over(ctx, &pull).await? && evict(ctx, &DiskPart::Checkouts(pull.clone())).await {
            found.repaired += 1;
            info!(%pull, "Removed the checkouts of a pull request that is not open");
        }
    }
    if let Some(quota) = ctx.settings.disk_quota {
        found += keep_to(ctx, quota).await?;
    }
    Ok(found)
}

async fn is_over(ctx: &Ctx, pull: &PullRef) -> anyhow::Result<bool> {
    Ok(ctx.store.pull_state(pull).await?.is_some_and(|state| state != PullState::Open))
}

/// Why a part stays although there is no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    HasState,
    InUse,
}

impl Stays {
    fn words(self, part: &DiskPart) -> &'static str {
        match (self, part) {
            (Self::HasState, _) => "holds a local Terraform state",
            (Self::InUse, DiskPart::Checkouts(_)) => "in use",
            (Self::InUse, DiskPart::Mirror(_)) => "in use, or its checkouts stay",
        }
    }
}

async fn keep_to(ctx: &Ctx, quota: ByteSize) -> anyhow::Result<Found> {
    let mut parts = ctx.checkouts.disk_use().await?;
    let mut found = Found { looked_at: u64::try_from(parts.len()).unwrap_or(u64::MAX), repaired: 0 };
    let before: u64 = parts.iter().map(|part| part.bytes).sum();
    let (mut total, mut stay) = (before, Vec::new());
    in_order(&mut parts);
    for part in parts {
        if total <= quota.bytes() {
            break;
        }
        match remove(ctx, &part).await {
            Ok(()) => {
                (total, found.repaired) = (total.saturating_sub(part.bytes), found.repaired + 1);
                info!(part = %part.part, size = shown(part.bytes), used_at = %part.used_at, "Removed to make room");
            }
            Err(why) => stay.push((part, why)),
        }
    }
    if total > quota.bytes() {
        warn!(quota = %quota, "{}", not_met(total, quota, stay));
    } else if found.repaired > 0 {
        info!(before = shown(before), now = shown(total), quota = %quota, "Mirrors and checkouts are within --disk-quota");
    }
    Ok(found)
}

/// Those that were not used for longest first, and a mirror after its checkouts.
fn in_order(parts: &mut [DiskUse]) {
    parts.sort_by(|a, b| (a.used_at, &a.part).cmp(&(b.used_at, &b.part)));
}

async fn remove(ctx: &Ctx, part: &DiskUse) -> Result<(), Stays> {
    if part.has_state && matches!(part.part, DiskPart::Checkouts(_)) {
        return Err(Stays::HasState);
    }
    if evict(ctx, &part.part).await { Ok(()) } else { Err(Stays::InUse) }
}

/// `false`: it stays; what went wrong is in the log.
async fn evict(ctx: &Ctx, part: &DiskPart) -> bool {
    match ctx.checkouts.evict(part).await {
        Ok(removed) => {
            if let (true, DiskPart::Mirror(repo)) = (removed, part) {
                forget_facts(ctx, repo).await;
            }
            removed
        }
        Err(error) => {
            warn!(%part, %error, "Cannot be removed from this disk");
            false
        }
    }
}

/// What was known of a mirror is not true of what comes after it.
async fn forget_facts(ctx: &Ctx, repo: &RepoId) {
    if let Err(error) = ctx.syncer.evicted(repo).await {
        warn!(%repo, %error, "That a mirror was removed to make room could not be noted; it will be made again");
    }
}

fn not_met(total: u64, quota: ByteSize, mut stay: Vec<(DiskUse, Stays)>) -> String {
    stay.sort_by(|(a, _), (b, _)| b.bytes.cmp(&a.bytes).then_with(|| a.part.cmp(&b.part)));
    let named = stay
        .iter()
        .take(NAMED)
        .map(|(part, why)| format!("{} ({}, {})", part.part, shown(part.bytes), why.words(&part.part)));
    let mut named = named.collect::<Vec<_>>().join("; ");
    if stay.len() > NAMED {
        named = format!("{named}; and {} more", stay.len() - NAMED);
    }
    format!(
        "Mirrors and checkouts take {}, more than --disk-quota {quota}, and nothing more can be removed: {named}. Give \
         them more room, or close pull requests; with a remote backend no checkout holds a state",
        shown(total)
    )
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn part(pull: Option<i64>, kib: u64, used: i64) -> DiskUse {
        let repo: crate::model::RepoId = "github.com/acme/infra".parse().unwrap();
        let part = match pull {
            Some(number) => DiskPart::Checkouts(PullRef { repo, number: crate::model::PullNumber(number) }),
            None => DiskPart::Mirror(repo),
        };
        DiskUse { part, bytes: kib << 10, used_at: DateTime::from_timestamp(used, 0).unwrap(), has_state: false }
    }

    #[test]
    fn a_mirror_goes_after_the_checkouts_that_were_used_with_it() {
        let mut parts = [part(None, 1, 20), part(Some(2), 1, 20), part(Some(1), 1, 10)];
        in_order(&mut parts);
        assert_eq!(parts, [part(Some(1), 1, 10), part(Some(2), 1, 20), part(None, 1, 20)]);
    }

    #[test]
    fn a_quota_that_is_not_met_is_explained_by_the_largest() {
        let mut stay: Vec<_> = (1..=5).map(|n| (part(Some(n), 1, 0), Stays::InUse)).collect();
        stay.extend([(part(None, 1536, 0), Stays::InUse), (part(Some(9), 700, 0), Stays::HasState)]);
        insta::assert_snapshot!(not_met(5 << 20, "1MiB".parse().unwrap(), stay), @"Mirrors and checkouts take 5 MiB, more than --disk-quota 1 MiB, and nothing more can be removed: the mirror of github.com/acme/infra (1.5 MiB, in use, or its checkouts stay); the checkouts of github.com/acme/infra#9 (700 KiB, holds a local Terraform state); the checkouts of github.com/acme/infra#1 (1 KiB, in use); the checkouts of github.com/acme/infra#2 (1 KiB, in use); the checkouts of github.com/acme/infra#3 (1 KiB, in use); and 2 more. Give them more room, or close pull requests; with a remote backend no checkout holds a state");
    }
}
