//! Removes files from this disk that are not needed, or that exceed the quota.
//!
//! - Checkouts of pull requests that are not open are removed. A job removes them normally, but the server may have
//!   died before it, or another server did the job on its own disk.
//! - Packages of providers that no `init` has used for a long time are removed, unless a checkout links to them.
//! - If there is a quota, downloaded programs that no run uses are removed until it is met. After them come mirrors,
//!   checkouts and packages. In each group, the longest unused parts go first.
//!
//! Parts that a command uses now are never removed. Neither are checkouts of open pull requests with a local
//! Terraform state, because nobody could recover it. A mirror stays as long as it has checkouts, and a package as
//! long as a checkout links to it.

mod parts;

use std::collections::HashMap;
use std::time::Duration;

use chrono::TimeDelta;
use tracing::{info, warn};

use crate::config::size::{ByteSize, shown};
use crate::context::ServerCtx;
use crate::git::DiskPart;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::model::{PullRef, PullState, RepoId};

use parts::{PartUse, Remover, RestorablePart};

/// The disk reconciler counts all files of all checkouts, so it runs rarely.
pub(super) const RECONCILER: Reconciler = Reconciler::new(
        "disk",
        "Removes checkouts of closed pull requests, unused providers, and more files if --disk-quota is exceeded.",
        Duration::from_mins(15),
        |ctx| Box::pin(tick(ctx)),
    )
    .on_every_replica();

/// Maximum number of former names of repositories whose checkouts are found.
const MOST_NAMES: i64 = 1000;

/// Maximum number of the largest parts in the message when the quota cannot be met.
const NAMED: usize = 5;

/// Time after which unused packages of providers are removed even if there is room.
const IDLE: TimeDelta = TimeDelta::days(30);

/// Removes unneeded parts, and then parts above the quota.
async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let mut found = TickResult::default();
    let mut remover = Remover::new(ctx);
    let former = ctx.store.repository_former_names(MOST_NAMES).await?;
    let now: HashMap<RepoId, RepoId> = former
        .into_iter()
        .map(|name| (name.old, name.now))
        .collect();
    for pull in ctx.checkouts.disk_pulls().await? {
        found.looked_at += 1;
        // A directory that is in the way keeps this one from moving to the current name.
        let current = PullRef {
            repo: now.get(&pull.repo).unwrap_or(&pull.repo).clone(),
            subject: pull.subject,
        };
        if is_over(ctx, &current).await?
            && remover
                .remove(&RestorablePart::Git(DiskPart::Checkouts(pull.clone())))
                .await
        {
            found.repaired += 1;
            info!(%pull, "Removed the checkouts of a pull request that is not open");
        }
    }
    found += idle_packages(ctx, &mut remover).await?;
    if let Some(quota) = ctx.settings.disk_quota {
        found += keep_to(ctx, quota).await?;
    }
    Ok(found)
}

async fn is_over(ctx: &ServerCtx, pull: &PullRef) -> anyhow::Result<bool> {
    Ok(ctx
        .store
        .pull_state(pull)
        .await?
        .is_some_and(|state| state != PullState::Open))
}

/// Removes packages of providers that were not used for a long time. Some provider has a new version every week, and
/// the old ones are hardly ever used again.
async fn idle_packages(ctx: &ServerCtx, remover: &mut Remover<'_>) -> anyhow::Result<TickResult> {
    let Some(cache) = &ctx.runs.terraform.providers else {
        return Ok(TickResult::default());
    };
    let mut found = TickResult::default();
    for package in cache.disk_use().await? {
        found.looked_at += 1;
        let part = RestorablePart::Provider(package.package);
        if package.used_at + IDLE <= ctx.clock.now() && remover.remove(&part).await {
            found.repaired += 1;
            info!(%part, used_at = %package.used_at, "Removed a provider that no project has used for a long time");
        }
    }
    Ok(found)
}

/// Reason why a part stays although there is no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeptPartReason {
    HasState,
    InUse,
}

impl KeptPartReason {
    fn words(self, part: &RestorablePart) -> &'static str {
        match (self, part) {
            (Self::HasState, _) => "holds a local Terraform state",
            (
                Self::InUse,
                RestorablePart::Git(DiskPart::Checkouts(_)) | RestorablePart::Program(_),
            ) => "in use",
            (Self::InUse, RestorablePart::Git(DiskPart::Mirror(_))) => {
                "in use, or its checkouts stay"
            }
            (Self::InUse, RestorablePart::Provider(_)) => "in use, or checkouts link to it",
        }
    }
}

async fn keep_to(ctx: &ServerCtx, quota: ByteSize) -> anyhow::Result<TickResult> {
    let mut parts = parts::all(ctx).await?;
    let mut found = TickResult {
        looked_at: u64::try_from(parts.len()).unwrap_or(u64::MAX),
        repaired: 0,
    };
    let before: u64 = parts.iter().map(|part| part.bytes).sum();
    let (mut total, mut stay, mut remover) = (before, Vec::new(), Remover::new(ctx));
    in_order(&mut parts);
    for part in parts {
        if total <= quota.bytes() {
            break;
        }
        match remove(&mut remover, &part).await {
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
        info!(before = shown(before), now = shown(total), quota = %quota, "This disk is within --disk-quota");
    }
    Ok(found)
}

/// Sorts the parts for removal. Downloaded programs come first, because they can be downloaded again quickly. The
/// longest unused parts come next, with mirrors after their checkouts, and packages after the checkouts that link to
/// them.
fn in_order(parts: &mut [PartUse]) {
    let stays_longer = |part: &PartUse| !matches!(part.part, RestorablePart::Program(_));
    parts.sort_by(|a, b| {
        (stays_longer(a), a.used_at, &a.part).cmp(&(stays_longer(b), b.used_at, &b.part))
    });
}

async fn remove(remover: &mut Remover<'_>, part: &PartUse) -> Result<(), KeptPartReason> {
    match part.has_state {
        true => Err(KeptPartReason::HasState),
        false if remover.remove(&part.part).await => Ok(()),
        false => Err(KeptPartReason::InUse),
    }
}

fn not_met(total: u64, quota: ByteSize, mut stay: Vec<(PartUse, KeptPartReason)>) -> String {
    stay.sort_by(|(a, _), (b, _)| b.bytes.cmp(&a.bytes).then_with(|| a.part.cmp(&b.part)));
    let named = stay.iter().take(NAMED).map(|(part, why)| {
        format!(
            "{} ({}, {})",
            part.part,
            shown(part.bytes),
            why.words(&part.part)
        )
    });
    let mut named = named.collect::<Vec<_>>().join("; ");
    if stay.len() > NAMED {
        named = format!("{named}; and {} more", stay.len() - NAMED);
    }
    format!(
        "Mirrors, checkouts, providers and programs take {}, more than --disk-quota {quota}, and nothing more can be \
         removed: {named}. Increase the quota, or close pull requests; with a remote backend, checkouts hold no state",
        shown(total)
    )
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn part(pull: Option<i64>, kib: u64, used: i64) -> PartUse {
        let repo: crate::model::RepoId = "github.com/acme/infra".parse().unwrap();
        let part = match pull {
            Some(number) => DiskPart::Checkouts(PullRef {
                repo,
                subject: crate::model::Subject::pull(number),
            }),
            None => DiskPart::Mirror(repo),
        };
        let part = RestorablePart::Git(part);
        PartUse {
            part,
            bytes: kib << 10,
            used_at: DateTime::from_timestamp(used, 0).unwrap(),
            has_state: false,
        }
    }

    #[test]
    fn a_mirror_goes_after_the_checkouts_that_were_used_with_it() {
        let mut parts = [
            part(None, 1, 20),
            part(Some(2), 1, 20),
            part(Some(1), 1, 10),
        ];
        in_order(&mut parts);
        assert_eq!(
            parts,
            [
                part(Some(1), 1, 10),
                part(Some(2), 1, 20),
                part(None, 1, 20)
            ]
        );
    }

    #[test]
    fn downloaded_programs_go_first() {
        let program = |name: &str, used| PartUse {
            part: RestorablePart::Program(name.to_owned()),
            ..part(None, 1, used)
        };
        let mut parts = [
            part(None, 1, 20),
            program("tofu1.9.0", 40),
            part(Some(1), 1, 10),
            program("terraform1.5.7", 30),
        ];
        in_order(&mut parts);
        let expected = [
            program("terraform1.5.7", 30),
            program("tofu1.9.0", 40),
            part(Some(1), 1, 10),
            part(None, 1, 20),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn a_quota_that_is_not_met_is_explained_by_the_largest() {
        let mut stay: Vec<_> = (1..=5)
            .map(|n| (part(Some(n), 1, 0), KeptPartReason::InUse))
            .collect();
        stay.extend([
            (part(None, 1536, 0), KeptPartReason::InUse),
            (part(Some(9), 700, 0), KeptPartReason::HasState),
        ]);
        insta::assert_snapshot!(not_met(5 << 20, "1MiB".parse().unwrap(), stay), @"Mirrors, checkouts, providers and programs take 5 MiB, more than --disk-quota 1 MiB, and nothing more can be removed: the mirror of github.com/acme/infra (1.5 MiB, in use, or its checkouts stay); the checkouts of github.com/acme/infra#9 (700 KiB, holds a local Terraform state); the checkouts of github.com/acme/infra#1 (1 KiB, in use); the checkouts of github.com/acme/infra#2 (1 KiB, in use); the checkouts of github.com/acme/infra#3 (1 KiB, in use); and 2 more. Increase the quota, or close pull requests; with a remote backend, checkouts hold no state");
    }
}
