//! Versions that the registry does not have: who may make the server fetch them, from where, and how often.
//!
//! | File | Content |
//! |---|---|
//! | `decision.rs` | what happens when a version of a name is missing, and why |
//! | `fills.rs` | one fetch of each version over all replicas (R7), and clients that wait for it |
//! | `lists.rs` | lists of versions that repositories have |
//! | `version_control.rs` | fetches of Git repositories |
//! | `repository.rs`, `go_import.rs` | from the path of a Go module to its repository |
//! | `revision.rs` | from a version to the commit that it names, by the rules of `go` |
//! | `refusal.rs` | reasons why a version cannot be fetched |
//! | `store.rs` | failures that are remembered, and the size of everything from elsewhere |
//!
//! # Order
//!
//! First the logs of other deployments are read, if one of them is accepted for the name. What they have of it is merged with
//! all checks of replication. Only if none has it, its repository is fetched.
//!
//! # Limits
//!
//! - Only a token with the scope `read` for the name makes the server ask anybody. Anonymous readers and
//!   runs do not. Nothing is fetched from a repository below a namespace (R6).
//! - Requests go to deployments that have joined, and to hosts that the operator has named (`--registry-vcs-allowlist`), over
//!   HTTPS and without credentials.
//! - [`MissLimits`](crate::config::server::MissLimits) has the limits of fetches, of clients that wait, and of the bytes of a
//!   repository. The packages of all have a quota.
//! - A failure is remembered, so that the probing of `go` for `a/b/c`, `a/b` and `a` costs a look-up.

mod decision;
mod fills;
mod go_import;
mod lists;
mod refusal;
mod repository;
mod revision;
mod store;
mod version_control;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub(super) use self::decision::{MissFacts, MissReason, covers_in_any_case, decide};
use self::fills::FillParts;
pub(crate) use self::fills::Misses;
pub(super) use self::fills::{FillLimit, MissAnswer};
pub use self::go_import::{GoImportLine, import_line};
pub(super) use self::repository::{RepositoryLookup, repository_lookup};
pub use self::store::{FailedFill, FillFault, FilledCache};
use self::version_control::{VcsParts, VersionControl, sweep};
use super::{PeerExchange, Registry};
use crate::config::server::RegistryMisses;
use crate::git::{Git, GitSettings};
use crate::leases::Leases;
use crate::telemetry::Metrics;

/// Part of the quota of everything from elsewhere that one token may fill in an hour: 1/10.
const TOKEN_PART: u64 = 10;

/// Directory of scratch repositories in the data directory.
pub(crate) const FILLS_DIR: &str = "registry-fills";

/// Parts from which the fetches of a server are made.
pub(crate) struct MissParts {
    /// Registry that gets the versions.
    pub registry: Arc<Registry>,
    /// Deployments that may have a version.
    pub peers: Arc<PeerExchange>,
    /// Rules, hosts, quota and limits.
    pub config: RegistryMisses,
    /// Settings of git for repositories elsewhere.
    pub git: GitSettings,
    /// Mirrors of this server.
    pub mirrors: Git,
    /// Directory for scratch repositories.
    pub scratch: PathBuf,
    /// Leases of this server.
    pub leases: Leases,
    /// Metrics of this server.
    pub metrics: Metrics,
    /// Cancelled when the server begins no more work.
    pub closing: CancellationToken,
}

/// Opens the fetches of a server, and removes the scratch repositories that an earlier one has left. Waits for the disk.
pub(crate) fn open_misses(parts: MissParts) -> Result<Misses, reqwest::Error> {
    let MissParts {
        registry,
        peers,
        config,
        git,
        mirrors,
        scratch,
        leases,
        metrics,
        closing,
    } = parts;
    // The data directory belongs to this server alone.
    sweep(&scratch, Duration::ZERO);
    let (limits, rules) = (config.limits, config.rules);
    let bytes_of_token = config.quota.bytes() / TOKEN_PART;
    // Without hosts there is nothing to ask.
    let hosts = if config.hosts.is_empty() {
        None
    } else {
        Some(VersionControl::new(VcsParts {
            registry: Arc::clone(&registry),
            hosts: config.hosts,
            quota: config.quota,
            versions: config.versions,
            limits,
            git,
            mirrors,
            scratch,
        })?)
    };
    Ok(Misses::new(FillParts {
        registry,
        peers,
        hosts,
        rules,
        limits,
        bytes_of_token,
        leases,
        metrics,
        closing,
    }))
}
