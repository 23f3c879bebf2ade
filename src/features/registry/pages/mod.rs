//! `/registry`: modules, their versions and the log, for people.
//!
//! | File | Content |
//! |---|---|
//! | `names.rs` | `/registry`: a search among all names |
//! | `module.rs` | `/registry/modules/{name}`: versions, uses, and what a package tells about itself |
//! | `log.rs` | `/registry/log`: records and their proofs |
//! | `peers.rs` | `/registry/peers`: other deployments |
//! | `api.rs` | `/api/registry/…`: uses, explanations, tags and settings of clients, for the same people |
//! | `peers_api.rs` | `/api/registry/peers`: the same for programs, and changes |
//! | `verify.rs` | `/api/registry/verify`: the log and all versions, recomputed |
//! | `contents.rs` | README, inputs and outputs in a package |
//! | `readme.rs` | a README as HTML |
//! | `store.rs` | queries |
//!
//! People see the names that they may read by [`PageScope`].

mod api;
mod contents;
mod log;
mod module;
mod names;
mod peers;
mod peers_api;
mod readme;
mod store;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use lockkeeper_registry::names::{NamePrefix, RegistryName};
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::error;

use self::contents::ContentsReader;
pub use self::contents::{PackageContents, package_contents};
pub use self::readme::html as readme_html;
pub use self::store::{FoundNames, ListedState, NameSearch};
use self::verify::LastVerification;
use super::PeerExchange;
use super::namespaces::RegistryNamespace;
use super::service::{Registry, RegistryError};
use crate::config::server::{OwnRegistry, RegistryMisses};
use crate::errors::describe_error;
use crate::kit::web::RouteAccess::{Account, Facts};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::Badge;
use crate::kit::web::{Routes, WebError, WebState};
use crate::model::OwnerName;

/// Everything that the pages show, beside the database. Servers without a registry have none.
#[derive(Clone)]
pub(crate) struct RegistryPages(Arc<PagesParts>);

struct PagesParts {
    registry: Arc<Registry>,
    /// Exchange with other deployments.
    peers: Arc<PeerExchange>,
    /// Host in the addresses of modules.
    host: String,
    /// True if public names are served without a token.
    is_open: bool,
    /// Settings for versions that are not here.
    misses: RegistryMisses,
    contents: ContentsReader,
    /// Places for pages, which read many rows. Accounts of the whole server need none, so visitors do not keep them out.
    places: Arc<Semaphore>,
    /// Place for a verification, with the last one.
    verifying: AsyncMutex<Option<LastVerification>>,
    /// Places for joins. Each sends a request to an address that somebody names.
    joining: Arc<Semaphore>,
    /// True if scripts may name deployments on this machine, over HTTP.
    has_local_peers: bool,
}

/// Maximum number of pages that are made for others at a time, and the longest wait for a place.
const AT_ONCE: usize = 3;
const PLACE_TIME: Duration = Duration::from_secs(10);

/// Maximum number of deployments that are joined at a time.
const JOINS_AT_ONCE: usize = 2;

impl RegistryPages {
    pub(crate) fn new(
        registry: Arc<Registry>,
        peers: Arc<PeerExchange>,
        config: &OwnRegistry,
    ) -> Self {
        Self(Arc::new(PagesParts {
            registry,
            peers,
            host: config.host.clone(),
            is_open: config.is_open,
            misses: config.misses.clone(),
            contents: ContentsReader::new(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            verifying: AsyncMutex::default(),
            joining: Arc::new(Semaphore::new(JOINS_AT_ONCE)),
            has_local_peers: config.local_peers_by_api,
        }))
    }

    /// Returns the layer with which the routes of pages find this.
    pub(crate) fn layer(self) -> Extension<Self> {
        Extension(self)
    }
}

impl PagesParts {
    async fn place(&self) -> Result<OwnedSemaphorePermit, WebError> {
        let place = Arc::clone(&self.places).acquire_owned();
        match timeout(PLACE_TIME, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(WebError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The server is busy",
                "Too many pages of the registry are open at this moment. Try again in a few seconds.",
            )),
        }
    }
}

impl FromRequestParts<Arc<WebState>> for RegistryPages {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<WebState>) -> Result<Self, WebError> {
        let pages = parts.extensions.get::<Self>().cloned();
        pages.ok_or_else(WebError::no_such_page)
    }
}

/// Returns the routes of the pages.
pub(super) fn routes() -> Routes<Arc<WebState>> {
    const PEERS: &str = "/api/registry/peers";
    const PEER: &str = "/api/registry/peers/{name}";
    const INVITATIONS: &str = "/api/registry/invitations";
    Routes::new()
        .get("/registry", Facts.and_limited(), names::list)
        .get(
            "/registry/modules/{*asked}",
            Facts.and_limited(),
            module::show,
        )
        .get("/registry/peers", Facts.and_limited(), peers::list_peers)
        .get("/registry/log", Facts.and_limited(), log::list)
        .get("/registry/log/{id}", Facts.and_limited(), log::show)
        .get(
            "/api/registry/explain/{*asked}",
            Facts.and_limited(),
            api::explain,
        )
        .get(
            "/api/registry/uses/{*asked}",
            Facts.and_limited(),
            api::uses,
        )
        .get(PEERS, Facts.and_limited(), peers_api::list)
        .post(PEERS, Account, peers_api::join)
        .get(INVITATIONS, Facts.and_limited(), peers_api::invitations)
        .post(INVITATIONS, Account, peers_api::invite)
        .delete(
            "/api/registry/invitations/{id}",
            Account,
            peers_api::withdraw,
        )
        .get(PEER, Facts.and_limited(), peers_api::show)
        .post(PEER, Account, peers_api::change)
        .delete(PEER, Account, peers_api::remove)
        .post(
            "/api/registry/peers/{name}/approve",
            Account,
            peers_api::approve,
        )
        .post(
            "/api/registry/peers/{name}/suspend",
            Account,
            peers_api::suspend,
        )
        .post(
            "/api/registry/peers/{name}/resume",
            Account,
            peers_api::resume,
        )
        .get("/api/registry/setup", Facts.and_limited(), api::setup)
        .get("/api/registry/key", Facts.and_limited(), api::key)
        .post("/api/registry/verify", Account, verify::verify)
        .get("/api/registry/tags", Account.and_limited(), api::tags)
        .get(
            "/api/registry/tags/{*repo}",
            Account.and_limited(),
            api::tags_of,
        )
}

/// Names that a person sees on pages.
///
/// | Person | Names |
/// |--|--|
/// | signed in | all |
/// | signed in, limited to owners | those of the owners, and those of public namespaces |
/// | not signed in | those of public namespaces with `--registry-anonymous-read`, else none |
#[derive(Debug)]
struct PageScope {
    readers: PageReaders,
    namespaces: Vec<RegistryNamespace>,
    _place: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum PageReaders {
    Everything,
    /// Names of public namespaces, and those of these owners.
    PublicAnd(Vec<OwnerName>),
    Nothing,
}

impl PageScope {
    async fn of(
        web: &WebState,
        pages: &RegistryPages,
        visible: &VisibleScope,
    ) -> Result<Self, WebError> {
        let readers = match (visible.owners(), web.auth.is_some(), pages.0.is_open) {
            (Some(owners), _, _) => PageReaders::PublicAnd(owners.to_vec()),
            (None, true, _) => PageReaders::Everything,
            (None, false, true) => PageReaders::PublicAnd(Vec::new()),
            (None, false, false) => PageReaders::Nothing,
        };
        let place = match readers {
            PageReaders::PublicAnd(_) => Some(pages.0.place().await?),
            PageReaders::Everything | PageReaders::Nothing => None,
        };
        let namespaces = match readers {
            PageReaders::Nothing => Vec::new(),
            PageReaders::Everything | PageReaders::PublicAnd(_) => {
                web.store.registry_namespaces().await?
            }
        };
        Ok(Self {
            readers,
            namespaces,
            _place: place,
        })
    }

    /// Returns the namespace of a name.
    fn namespace_of(&self, name: &RegistryName) -> Option<&RegistryNamespace> {
        let mut namespaces = self.namespaces.iter();
        namespaces.find(|namespace| namespace.prefix.covers(name))
    }

    fn sees(&self, name: &RegistryName) -> bool {
        match &self.readers {
            PageReaders::Everything => true,
            PageReaders::Nothing => false,
            PageReaders::PublicAnd(owners) => self
                .namespace_of(name)
                .is_some_and(|namespace| is_seen(namespace, owners)),
        }
    }

    /// Returns true if the person sees other deployments: their names and addresses are for accounts of the whole server.
    fn sees_peers(&self) -> bool {
        match self.readers {
            PageReaders::Everything => true,
            PageReaders::PublicAnd(_) | PageReaders::Nothing => false,
        }
    }

    /// Returns true if the person may know who owns and publishes the names of a namespace.
    fn knows_owner(&self, namespace: &RegistryNamespace) -> bool {
        match &self.readers {
            PageReaders::Everything => true,
            PageReaders::PublicAnd(owners) => owners.contains(&namespace.owner),
            PageReaders::Nothing => false,
        }
    }

    /// Returns the prefixes of all namespaces that are seen.
    fn seen_prefixes(&self) -> Vec<NamePrefix> {
        self.prefixes().unwrap_or_else(|| {
            let all = self.namespaces.iter();
            all.map(|namespace| namespace.prefix.clone()).collect()
        })
    }

    /// Returns the prefixes of all names that are seen. `None`: all names.
    fn prefixes(&self) -> Option<Vec<NamePrefix>> {
        let owners = match &self.readers {
            PageReaders::Everything => return None,
            PageReaders::Nothing => return Some(Vec::new()),
            PageReaders::PublicAnd(owners) => owners,
        };
        let seen = self.namespaces.iter();
        let seen = seen.filter(|namespace| is_seen(namespace, owners));
        Some(seen.map(|namespace| namespace.prefix.clone()).collect())
    }
}

fn is_seen(namespace: &RegistryNamespace, owners: &[OwnerName]) -> bool {
    namespace.is_public() || owners.contains(&namespace.owner)
}

fn badge(state: VersionState) -> Badge {
    match state {
        VersionState::Absent => Badge::new("idle", "unknown"),
        VersionState::Added => Badge::new("good", "served"),
        VersionState::Deprecated => Badge::new("warn", "deprecated"),
        VersionState::Deleted => Badge::new("bad", "taken down"),
    }
}

/// Returns how well a version stands for its name. Deleted ones come last. Clients of Go choose among the versions that are
/// not deprecated: first the highest release, then the highest version with a tag. Terraform does not know deprecations,
/// and people want a release.
fn rank(state: VersionState, key: &VersionKey) -> (bool, [bool; 3], VersionKey) {
    let (is_added, is_release) = (state == VersionState::Added, !key.is_prerelease());
    let order = match key.as_go() {
        Some((_, version)) => [is_added, is_release, !version.is_pseudo()],
        None => [is_release, is_added, true],
    };
    (state != VersionState::Deleted, order, key.clone())
}

/// Returns the path of the page of a name, or of one of its versions.
fn name_path(name: &RegistryName, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("/registry/modules/{}@{version}", name.as_str()),
        None => format!("/registry/modules/{}", name.as_str()),
    }
}

impl From<RegistryError> for WebError {
    fn from(failure: RegistryError) -> Self {
        error!(
            error = describe_error(&failure),
            "The registry failed to answer a page"
        );
        Self::internal()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Visibility;
    use super::*;

    fn scope(readers: PageReaders) -> PageScope {
        let namespace = |prefix: &str, owner: &str, visibility| RegistryNamespace {
            prefix: prefix.parse().unwrap(),
            owner: owner.parse().unwrap(),
            visibility,
            created_by: "kim".to_owned(),
            created_at: chrono::DateTime::UNIX_EPOCH,
        };
        PageScope {
            readers,
            namespaces: vec![
                namespace("module open", "net", Visibility::Public),
                namespace("module acme", "net", Visibility::Owner),
                namespace("go example.com/other", "other", Visibility::Owner),
            ],
            _place: None,
        }
    }

    #[test]
    fn everyone_sees_the_names_of_the_table() {
        let names = [
            "module open/vpc/aws",
            "module acme/vpc/aws",
            "go example.com/other/m",
            "module none/vpc/aws",
        ];
        let owners = |name: &str| PageReaders::PublicAnd(vec![name.parse().unwrap()]);
        for (readers, expected) in [
            (PageReaders::Everything, [true, true, true, true]),
            (owners("net"), [true, true, false, false]),
            (owners("other"), [true, false, true, false]),
            (PageReaders::PublicAnd(vec![]), [true, false, false, false]),
            (PageReaders::Nothing, [false, false, false, false]),
        ] {
            let scope = scope(readers);
            let names = names.map(|name| name.parse().unwrap());
            assert_eq!(names.each_ref().map(|name| scope.sees(name)), expected);
            if let Some(prefixes) = scope.prefixes() {
                let covered = |name| prefixes.iter().any(|prefix| prefix.covers(name));
                assert_eq!(names.each_ref().map(covered), expected);
            }
        }
    }

    #[test]
    fn a_name_is_shown_by_its_highest_release_that_is_served() {
        use VersionState::{Added, Deleted, Deprecated};
        let best_of = |name: &str, versions: &[(&str, VersionState)]| {
            let keys = versions.iter().map(|(version, state)| {
                let key: VersionKey = format!("{name} {version}").parse().unwrap();
                (*state, key)
            });
            let best = keys.max_by_key(|(state, key)| rank(*state, key)).unwrap();
            best.1.version()
        };
        let best = |versions: &[(&str, VersionState)]| best_of("module acme/vpc/aws", versions);
        let best_go = |versions: &[(&str, VersionState)]| best_of("go example.com/m", versions);
        assert_eq!(
            best_go(&[("v1.0.0", Deprecated), ("v1.1.0-rc.1", Added)]),
            "v1.1.0-rc.1"
        );
        let pseudo = "v0.1.1-0.20260101000000-0123456789ab";
        assert_eq!(
            best_go(&[("v0.1.0-beta", Added), (pseudo, Added)]),
            "v0.1.0-beta"
        );
        assert_eq!(
            best(&[("1.9.0", Added), ("1.10.0", Added), ("2.0.0-rc.1", Added)]),
            "1.10.0"
        );
        assert_eq!(best(&[("1.0.0", Added), ("1.1.0", Deprecated)]), "1.0.0");
        assert_eq!(best(&[("1.0.0", Deprecated), ("1.1.0", Deleted)]), "1.0.0");
        assert_eq!(
            best(&[("1.0.0-rc.1", Added), ("1.1.0", Deleted)]),
            "1.0.0-rc.1"
        );
    }
}
