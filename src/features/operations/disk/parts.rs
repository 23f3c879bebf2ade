//! Lists and removes all parts of this disk that may be removed to make room.

use std::fmt;

use chrono::{DateTime, Utc};
use tracing::warn;

use crate::context::ServerCtx;
use crate::git::{DiskPart, DiskUse};
use crate::workflow::{DownloadUse, Linked, PackagePath, PackageUse, ProviderCache};

/// Part of the disk that can be restored when it is needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RestorablePart {
    /// A mirror, or the checkouts of a pull request.
    Git(DiskPart),
    /// A package of a provider, which checkouts may link to.
    Provider(PackagePath),
    /// A downloaded program, by its file name.
    Program(String),
}

impl fmt::Display for RestorablePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Git(part) => write!(f, "{part}"),
            Self::Provider(package) => write!(f, "the provider {package}"),
            Self::Program(name) => write!(f, "the downloaded program {name}"),
        }
    }
}

/// Disk use of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartUse {
    pub part: RestorablePart,
    pub bytes: u64,
    pub used_at: DateTime<Utc>,
    /// True if the part contains files that could not be restored.
    pub has_state: bool,
}

impl From<DiskUse> for PartUse {
    fn from(
        DiskUse {
            part,
            bytes,
            used_at,
            has_state,
        }: DiskUse,
    ) -> Self {
        let has_state = has_state && matches!(part, DiskPart::Checkouts(_));
        Self {
            part: RestorablePart::Git(part),
            bytes,
            used_at,
            has_state,
        }
    }
}

impl From<PackageUse> for PartUse {
    fn from(
        PackageUse {
            package,
            bytes,
            used_at,
        }: PackageUse,
    ) -> Self {
        Self {
            part: RestorablePart::Provider(package),
            bytes,
            used_at,
            has_state: false,
        }
    }
}

impl From<DownloadUse> for PartUse {
    fn from(
        DownloadUse {
            name,
            bytes,
            used_at,
        }: DownloadUse,
    ) -> Self {
        Self {
            part: RestorablePart::Program(name),
            bytes,
            used_at,
            has_state: false,
        }
    }
}

/// Lists all parts of the disk.
pub(super) async fn all(ctx: &ServerCtx) -> anyhow::Result<Vec<PartUse>> {
    let mut parts: Vec<PartUse> = ctx
        .checkouts
        .disk_use()
        .await?
        .into_iter()
        .map(PartUse::from)
        .collect();
    if let Some(cache) = &ctx.runs.terraform.providers {
        parts.extend(cache.disk_use().await?.into_iter().map(PartUse::from));
    }
    if let Some(downloads) = ctx.runs.terraform.tools.downloads() {
        parts.extend(downloads.disk_use().await?.into_iter().map(PartUse::from));
    }
    Ok(parts)
}

/// Removes parts. It looks up the links to providers once, and only if a provider is to be removed.
pub(super) struct Remover<'a> {
    ctx: &'a ServerCtx,
    linked: Option<Linked>,
}

impl<'a> Remover<'a> {
    pub fn new(ctx: &'a ServerCtx) -> Self {
        Self { ctx, linked: None }
    }

    /// Removes a part. Returns `false` if the part stays, and logs errors.
    pub async fn remove(&mut self, part: &RestorablePart) -> bool {
        let removed = match part {
            RestorablePart::Git(part) => self
                .ctx
                .checkouts
                .evict(part)
                .await
                .map_err(anyhow::Error::from),
            RestorablePart::Provider(package) => match &self.ctx.runs.terraform.providers {
                Some(cache) => self
                    .evict(cache, package)
                    .await
                    .map_err(anyhow::Error::from),
                None => Ok(false),
            },
            RestorablePart::Program(name) => match self.ctx.runs.terraform.tools.downloads() {
                Some(downloads) => downloads.evict(name).await.map_err(anyhow::Error::from),
                None => Ok(false),
            },
        };
        removed.unwrap_or_else(|error| {
            warn!(%part, %error, "Cannot be removed from this disk");
            false
        })
    }

    async fn evict(
        &mut self,
        cache: &ProviderCache,
        package: &PackagePath,
    ) -> std::io::Result<bool> {
        let linked = match self.linked.take() {
            Some(linked) => linked,
            None => cache.scan_links().await?,
        };
        cache.evict(package, self.linked.insert(linked)).await
    }
}
