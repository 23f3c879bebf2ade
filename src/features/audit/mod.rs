//! The audit log as people see it: reading, verifying and pruning it, and the reconcilers that seal and verify it
//! continuously. Its chain, signatures and checkpoints follow the rules of [`crate::locks`] and [`crate::seal`].
//!
//! | File | Content |
//! |---|---|
//! | `view.rs` | one event, as API and command line show it |
//! | `log.rs` | the state of the whole log, for the page of operations and for monitors |
//! | `page.rs` | `/audit` |
//! | `api.rs` | `/api/audit` |
//! | `cli.rs` | `lockkeeper audit` |
//! | `sealing.rs` | makes new events a part of the chain |
//! | `verifying.rs` | verifies the chain, piece by piece |

mod api;
mod cli;
mod log;
mod page;
mod sealing;
mod verifying;
mod view;

use std::sync::Arc;

pub(crate) use log::{AuditLog, MismatchedEvent};
pub(crate) use view::view;

use super::Feature;
use crate::config::server::StorageConfig;
use crate::kit::term::Subcommand;
use crate::kit::term::database::database_url;
use crate::kit::web::RouteAccess::Account;
use crate::kit::web::{Routes, WebState};
use crate::locks::AuditFiles;
use crate::model::LockEventKind;
use crate::seal::Keyring;

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::AuditArgs>("audit")],
    reconcilers: &[sealing::RECONCILER, verifying::RECONCILER],
    jobs: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/audit", Account.and_limited(), page::show)
        .get("/api/audit", Account.and_limited(), api::list)
}

/// Returns the files with the key and the last checkpoint of the audit log of a server.
pub(crate) fn files(
    storage: &StorageConfig,
    keys: Option<Arc<Keyring>>,
) -> anyhow::Result<AuditFiles> {
    let database = database_url(&storage.database, "--database-url")?.to_string();
    Ok(AuditFiles::new(
        &storage.data_dir,
        &database,
        storage.audit_checkpoints.clone(),
        keys,
    ))
}

/// Returns the kind of an event in words.
pub(crate) const fn event_words(kind: LockEventKind) -> &'static str {
    match kind {
        LockEventKind::Taken => "taken",
        LockEventKind::Renewed => "renewed",
        LockEventKind::Queued => "queued",
        LockEventKind::Left => "left the queue",
        LockEventKind::Released => "released",
        LockEventKind::Stolen => "taken away",
        LockEventKind::Expired => "expired",
        LockEventKind::Denied => "not allowed",
        LockEventKind::ApplyLocked => "applies stopped",
        LockEventKind::ApplyUnlocked => "applies allowed",
        LockEventKind::LeaseReleased => "lease released manually",
        LockEventKind::SyncAsked => "sync requested",
        LockEventKind::RepositoryRenamed => "repository renamed",
        LockEventKind::Claimed => "repository claimed",
        LockEventKind::Unclaimed => "claim ended",
        LockEventKind::Registered => "registered",
        LockEventKind::Unregistered => "removed",
        LockEventKind::Pruned => "log pruned",
        LockEventKind::AccountChanged => "account changed",
        LockEventKind::RegistryPublished => "version published",
        LockEventKind::RegistryDeprecated => "version deprecated",
        LockEventKind::RegistryTakenDown => "version taken down",
        LockEventKind::RegistryNamespaceAdded => "registry namespace added",
        LockEventKind::RegistryNamespaceChanged => "registry namespace changed",
        LockEventKind::RegistryNamespaceRemoved => "registry namespace removed",
        LockEventKind::RegistryTokenCreated => "registry token created",
        LockEventKind::RegistryTokenRevoked => "registry token revoked",
        LockEventKind::RegistryPeerChanged => "registry peer changed",
        LockEventKind::PolicyApproved => "policy violations approved",
        LockEventKind::PolicyCleared => "policy approvals removed",
        LockEventKind::KeyAdded => "new log key",
    }
}
