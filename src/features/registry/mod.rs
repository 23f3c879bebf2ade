//! The registry of Terraform modules and Go modules (`docs/registry.md`). The formats and their rules are in
//! [`lockkeeper_registry`], with the invariants that comments cite.
//!
//! | File | Content |
//! |---|---|
//! | `store.rs` | versions, the log and its hashes |
//! | `rows.rs` | rows that are written many at a time |
//! | `namespaces.rs` | names that belong to owners |
//! | `readers.rs` | owners and readers of names, of peers as well |
//! | `tokens.rs` | tokens of clients and of scripts |
//! | `places.rs` | limits for all clients, and the share of each token |
//! | `deployment.rs` | the name and the signing key of this deployment |
//! | `service.rs` | `Registry`: everything that other files do with versions and the log |
//! | `verify.rs` | everything that is stored, computed again |
//! | `blobs/` | packages by SHA-256, in a directory or an object store |
//! | `leftovers.rs` | packages that nothing refers to are removed |
//! | `packaging/` | a directory or an upload becomes a checked package |
//! | `state.rs` | the state that servers compare with what they have in memory |
//! | `peers/` | other deployments: their logs and packages come here, and they read ours |
//! | `serve/` | answers to `terraform`, `tofu` and `go` |
//! | `misses/` | versions that are not here are fetched from elsewhere |
//! | `runs/` | runs of this server: modules without tokens, what a plan uses, and which of it is not to be used |
//! | `input.rs`, `view.rs` | names as people write them, and a version as they see it |
//! | `setup.rs` | settings of clients |
//! | `explain.rs`, `used_by.rs` | what happens to a missing version, and who uses a module, as people see it |
//! | `pages/` | `/registry`: modules and the log for people, and the part of the API for them |
//! | `tags/` | publishes versions from tags of repositories |
//! | `branches/` | names that the default branches of repositories use |
//! | `upload.rs` | `/api/registry/…`: publishes, deprecates and takes down by tokens |
//! | `lists.rs` | `/api/registry/…`: names, versions and the log for scripts |
//! | `cli/` | `lockkeeper registry` |

mod blobs;
mod branches;
mod cli;
mod deployment;
mod explain;
mod input;
mod leftovers;
mod lists;
mod misses;
mod namespaces;
mod packaging;
mod pages;
mod peers;
mod places;
mod readers;
mod rows;
mod runs;
mod serve;
mod service;
mod setup;
mod state;
mod store;
mod tags;
#[cfg(test)]
mod testing;
mod tokens;
mod upload;
mod used_by;
mod verify;
mod view;

pub use blobs::{
    BlobError, BlobWriter, Blobs, LowSpace, PackageReader, RemoteFault, StagedBlob, StoreId,
};
pub use branches::{BranchReading, BranchUse, BranchUseLimits, ListedBranchUse, WatchedBranch};
pub(crate) use deployment::reseal_signing_key;
pub(crate) use misses::{FILLS_DIR, MissParts, Misses, open_misses};
pub use misses::{FailedFill, FillFault, FilledCache, GoImportLine, import_line};
pub use namespaces::{
    AddNamespace, ChangeNamespace, ForeignVersions, RegistryNamespace, RemoveNamespace, Visibility,
};
pub use packaging::{CheckedPackage, PackagingError};
pub(crate) use pages::RegistryPages;
pub use pages::{
    FoundNames, ListedState, NameSearch, PackageContents, package_contents, readme_html,
};
pub use peers::{
    CheckedDiff, CheckedItem, DownloadReport, ExchangeSettings, Invitation, InvitationId,
    JoinFault, JoinOutcome, JoinRequest, JoinedPeer, NamePatterns, NewInvitation, PageFault, Peer,
    PeerConflict, PeerExchange, PeerLimits, PeerPushes, PeerState, PeerTerms, PeerUrl, PeerWalk,
    PullReport, PushReport, WaitingDownload, check_join, check_members, check_page, check_push,
};
pub(crate) use peers::{PeerServer, routes as peer_routes};
pub use runs::{ModuleUse, VersionUse};
pub(crate) use runs::{access_of_run, module_notes, plan_notices, refused_apply, used_versions};
pub(crate) use serve::{
    RegistryServer, RunModuleServer, is_go_get, lead_go, routes as serve_routes, run_router,
};
pub use service::{Deprecated, ProvenRecord, Published, Registry, RegistryError, TakenDown};
pub use state::{RegistryState, StateReader};
pub use store::{LogOutcome, NewChange, RegistryVersion, VersionNotice, VersionOrigin};
pub use tags::{
    DueTag, SeenTags, TagChanges, TagOutcome, TagPlace, TagSettled, TagState, TagVersion,
    TaggedRepo,
};
pub use tokens::{InvalidScope, InvalidToken, NewToken, Token, TokenAction, TokenId, TokenScope};
pub(crate) use upload::{RegistryUploads, routes as upload_routes};
pub use verify::{VerifyFault, VerifyReport};

/// Directory of the packages in the data directory.
pub(crate) const PACKAGES_DIR: &str = "registry";

use super::Feature;
use crate::kit::term::Subcommand;

pub(super) const FEATURE: Feature = Feature {
    routes: pages::routes,
    subcommands: &[Subcommand::of::<cli::RegistryArgs>("registry")],
    reconcilers: &[
        leftovers::RECONCILER,
        leftovers::COPIES,
        tags::RECONCILER,
        branches::RECONCILER,
        peers::PULL,
        peers::PUSH,
        peers::DOWNLOADS,
    ],
    jobs: &[],
};
