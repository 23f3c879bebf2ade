//! A version of a commit becomes a package.

use std::sync::Arc;

use super::super::packaging::{CheckedPackage, CommitFault, PackingPlace};
use super::super::service::{Published, Registry, RegistryError};
use super::super::store::VersionOrigin;
use super::super::view::{checksums_of, notice_sentence};
use super::store::{TagOutcome, TagPlace, TagVersion};
use super::targets::TagTarget;
use crate::git::CommitSnapshot;
use crate::model::{Actor, Cause, Origin};

/// Failure of a publication that says nothing about the version, so that it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum PublishFailure {
    #[error(transparent)]
    Package(CommitFault),
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Publishes a version, whose package was made from the files of its commit.
pub(super) async fn publish(
    registry: &Registry,
    package: CheckedPackage,
    place: &TagPlace,
) -> Result<TagVersion, PublishFailure> {
    let (key, content) = (package.key.clone(), package.content.clone());
    let name = key.name();
    // The record of the version has the commit.
    let by = format!("tag {} of {}", place.tag, place.repo);
    let cause = Cause::new(Actor::new(by, Origin::Reconciler), "");
    let published = registry.publish(package, VersionOrigin::Tag, &cause).await;
    let published = match published {
        Err(RegistryError::Refused(reason)) => {
            return Ok(TagVersion {
                key,
                outcome: TagOutcome::Refused,
                reason: Some(reason),
            });
        }
        published => published?,
    };
    let (outcome, reason) = match published {
        Published::New(_) | Published::Same => (TagOutcome::Published, None),
        Published::Conflict(here) => (
            TagOutcome::Conflict,
            Some(format!(
                "published before with other files, which stay. Choose a new version. It has {}, and the tag {}.",
                checksums_of(&here),
                checksums_of(&content)
            )),
        ),
        Published::Tombstoned(notice) => (
            TagOutcome::TakenDown,
            Some(format!(
                "the number cannot be used again. {}",
                notice_sentence(&notice)
            )),
        ),
        Published::Owned => return Err(RegistryError::owned(&key).into()),
        Published::NoNamespace => (
            TagOutcome::Refused,
            Some(format!("{} is in no namespace.", name.as_str())),
        ),
        Published::CaseConflict(other) => (
            TagOutcome::Refused,
            Some(format!(
                "{} exists, and {} differs from it only in case.",
                other.as_str(),
                name.as_str()
            )),
        ),
    };
    Ok(TagVersion {
        key,
        outcome,
        reason,
    })
}

/// Makes the package. The inner error is the reason why the commit has none.
pub(super) async fn make_package(
    registry: &Registry,
    files: &Arc<CommitSnapshot>,
    target: &TagTarget,
    packing: PackingPlace,
) -> Result<Result<CheckedPackage, String>, PublishFailure> {
    let (key, dir) = (target.key.clone(), target.dir.clone());
    let staging = registry.blobs().staging_dir();
    match CheckedPackage::of_commit(key, Arc::clone(files), dir, staging, packing).await {
        Ok(package) => Ok(Ok(package)),
        Err(CommitFault::NoDirectory(dir)) => {
            Ok(Err(format!("the commit has no directory {dir}.")))
        }
        Err(fault) if fault.is_of_commit() => Ok(Err(fault.to_string())),
        Err(fault) => Err(PublishFailure::Package(fault)),
    }
}
