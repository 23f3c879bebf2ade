//! Serves the registry to `terraform`, `tofu` and `go`.
//!
//! | File | Content |
//! |---|---|
//! | `access.rs` | readers, and the names that each may read |
//! | `catalog.rs` | versions and tokens in memory, never older than a request |
//! | `terraform.rs` | service discovery and the protocol of module registries |
//! | `links.rs` | links to packages, for clients that send no credentials there |
//! | `go.rs`, `go_paths.rs` | the protocol of Go module proxies, and the index |
//! | `go_import.rs` | from import paths on this host to the proxy |
//! | `sumdb.rs` | the log, in the protocol of Go's checksum database |
//! | `packages.rs`, `memory.rs` | downloads, and the memory for those that are requested often |
//! | `runs.rs` | the same for runs of this server, with their tokens |
//! | `answer.rs`, `refusal.rs` | answers with and without content |

mod access;
mod answer;
mod catalog;
mod go;
mod go_import;
mod go_paths;
mod links;
mod memory;
mod packages;
mod refusal;
mod runs;
mod sumdb;
mod terraform;

use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use axum::routing::get;
use bytes::Bytes;
use lockkeeper_registry::names::{GoPath, RegistryName};
use lockkeeper_registry::records::VersionContent;
use lockkeeper_registry::states::{KnownVersion, VersionState};
use lockkeeper_registry::versions::{GoVersion, VersionKey};
use tokio::sync::Semaphore;

pub(super) use self::access::bearer_token;
use self::access::{Reader, token_text};
use self::catalog::{Catalog, CatalogState, KeptName, KeptVersion, ListedVersion};
pub(crate) use self::go_import::{is_go_get, lead_go};
use self::links::LinkKey;
pub(super) use self::refusal::ServeRefusal;
use super::misses::MissAnswer;
use super::places::ClientPlaces;
use super::readers::{NamespaceAccess, Namespaces};
use super::{Misses, PeerExchange, Registry, RegistryVersion};
use crate::kit::web::{RouteAccess, Routes, WebState};

/// Everything that serves the registry.
pub(crate) struct RegistryServer {
    web: Arc<WebState>,
    registry: Arc<Registry>,
    /// Other deployments, which may have a package that is not here yet.
    peers: Arc<PeerExchange>,
    misses: Misses,
    catalog: Catalog,
    /// True if public names are served without a token.
    is_open: bool,
    links: LinkKey,
    /// Places for packages that are sent.
    packages: ClientPlaces,
    /// Places for packages that are sent to runs of this server, which clients do not take from them.
    packages_of_runs: Arc<Semaphore>,
    /// Places for requests that read the index.
    index: ClientPlaces,
    /// Place for runs of this server that read it, for the same reason.
    index_of_runs: Arc<Semaphore>,
    /// Answer to service discovery.
    discovery: Bytes,
    /// Host in the addresses of modules.
    host: String,
    /// Address of the proxy for Go modules.
    go_base: String,
}

impl RegistryServer {
    /// `host` is the one in the addresses of modules, and serves them over HTTPS.
    pub(crate) fn new(
        web: Arc<WebState>,
        (registry, peers, misses): (Arc<Registry>, Arc<PeerExchange>, Misses),
        host: &str,
        is_open: bool,
    ) -> Self {
        let below = web.public_url.path().trim_end_matches('/');
        Self {
            go_base: format!("https://{host}{below}/registry/go"),
            host: host.to_owned(),
            catalog: Catalog::new(Arc::clone(&registry)),
            links: LinkKey::new(registry.link_key()),
            packages: ClientPlaces::new(packages::AT_ONCE, packages::AT_ONCE_OF_TOKEN)
                .with_anonymous(packages::AT_ONCE_OF_ANONYMOUS),
            packages_of_runs: Arc::new(Semaphore::new(packages::AT_ONCE)),
            index: ClientPlaces::new(go::INDEX_AT_ONCE, 1),
            index_of_runs: Arc::new(Semaphore::new(1)),
            discovery: terraform::discovery(&web.public_url),
            web,
            registry,
            peers,
            misses,
            is_open,
        }
    }

    /// Returns the state of the web server.
    pub(crate) fn web(&self) -> &Arc<WebState> {
        &self.web
    }

    /// Returns the places that a download of this reader takes, its own first.
    fn places(&self, reader: &Reader) -> Vec<Arc<Semaphore>> {
        match reader {
            Reader::Anonymous | Reader::Token { .. } => self.packages.of(reader.token_id()),
            Reader::Run { downloads, .. } => {
                vec![Arc::clone(downloads), Arc::clone(&self.packages_of_runs)]
            }
        }
    }

    /// Returns the places that a request of this reader for the index takes, its own first.
    fn index_places(&self, reader: &Reader) -> Vec<Arc<Semaphore>> {
        match reader {
            Reader::Anonymous | Reader::Token { .. } => self.index.of(reader.token_id()),
            Reader::Run { .. } => vec![Arc::clone(&self.index_of_runs)],
        }
    }

    /// Finds out who sends a request.
    async fn reader(
        &self,
        snapshot: CatalogState,
        headers: &HeaderMap,
    ) -> Result<Reader, ServeRefusal> {
        let Some(text) = token_text(headers)? else {
            return if self.is_open {
                Ok(Reader::Anonymous)
            } else {
                Err(ServeRefusal::SignIn)
            };
        };
        let token = self.catalog.token(snapshot, &text).await?;
        let token = token.filter(|token| token.is_valid(self.web.clock.now()));
        Ok(Reader::Token {
            token: token.ok_or(ServeRefusal::WrongToken)?,
            is_open: self.is_open,
        })
    }

    /// Finds out what the sender of a request may read. Fails if the request has no valid token and needs one, or if the
    /// database fails.
    pub(super) async fn read_scope(&self, headers: &HeaderMap) -> Result<ReadScope, ServeRefusal> {
        let snapshot = self.catalog.snapshot().await?;
        Ok(ReadScope {
            reader: self.reader(snapshot, headers).await?,
            namespaces: self.catalog.namespaces(snapshot).await?,
        })
    }

    /// Refuses a name that the reader may not read, as if it were not here. `version` is the one that the request names.
    ///
    /// A name in no namespace is served as one of a public namespace, if all of its versions were fetched from where
    /// everyone can read them. Of other names in no namespace, only takedowns of versions that were here are answered.
    async fn check(
        &self,
        snapshot: CatalogState,
        reader: &Reader,
        name: &RegistryName,
        version: Option<&VersionKey>,
    ) -> Result<(), ServeRefusal> {
        let namespaces = self.catalog.namespaces(snapshot).await?;
        let checked = match namespaces.of(name) {
            Some(namespace) => reader.check(name, Some(namespace)),
            None => match reader.check(name, Some(&NamespaceAccess::FOREIGN)) {
                Ok(()) => {
                    let known = self.catalog.name(snapshot, name).await?;
                    if known.is_foreign {
                        return Ok(());
                    }
                    // Another deployment has published the name, and is not accepted for it any more.
                    let takedown = self.takedown(snapshot, name, version, &known).await?;
                    Err(takedown.unwrap_or_else(|| ServeRefusal::unknown(name)))
                }
                refused => refused,
            },
        };
        match checked {
            Err(ServeRefusal::NotFound(_)) => {
                let unknown = match version {
                    Some(key) => ServeRefusal::unknown_version(key),
                    None => ServeRefusal::unknown(name),
                };
                Err(self.missing(snapshot, reader, name, unknown).await)
            }
            checked => checked,
        }
    }

    /// Returns the refusal of a version that was taken down, or of a name whose versions all were, for a name that nobody
    /// reads any more. After an answer that it is not here, `go` would fetch the same code elsewhere. The name was public
    /// as long as somebody was accepted for it, because private ones keep their readers ([`Namespaces::read`]). Takedowns
    /// of versions that were never here do not count ([`Catalog::version`]).
    async fn takedown(
        &self,
        snapshot: CatalogState,
        name: &RegistryName,
        version: Option<&VersionKey>,
        known: &KeptName,
    ) -> Result<Option<ServeRefusal>, ServeRefusal> {
        let Some(key) = version else {
            let is_left = |version: &ListedVersion| version.state != VersionState::Deleted;
            let is_any_left = known.versions.iter().any(is_left);
            return Ok(
                (!is_any_left).then(|| ServeRefusal::none_left(name, known.takedown.as_ref()))
            );
        };
        let version = self.catalog.version(snapshot, key).await?;
        Ok(version.and_then(|kept| match &kept.version.known {
            KnownVersion::Deleted => {
                let notice = kept.version.notice.as_ref()?;
                Some(ServeRefusal::taken_down(key, notice))
            }
            KnownVersion::Absent | KnownVersion::Added(_) | KnownVersion::Deprecated(_) => None,
        }))
    }

    /// Returns the refusal of a name or version that is not here for the reader: `refusal`, or the rule of the operator that
    /// refuses the name.
    ///
    /// No rule is for a name in a namespace. But a name that the reader may not read is refused as if no namespace had it, so
    /// that no rule shows which names are private. What else does is in docs/registry.md (Refusals): no fetch begins for a
    /// name in a namespace, so its answer takes no time, and never says that a limit of the token keeps it from a fetch.
    async fn missing(
        &self,
        snapshot: CatalogState,
        reader: &Reader,
        name: &RegistryName,
        refusal: ServeRefusal,
    ) -> ServeRefusal {
        let namespaces = match self.catalog.namespaces(snapshot).await {
            Ok(namespaces) => namespaces,
            Err(error) => return error.into(),
        };
        let namespace = namespaces.of(name);
        let is_owned = namespace.is_some_and(|namespace| namespace.owner.is_some());
        let is_seen = is_owned && reader.may_read(name, namespace);
        if is_seen || !reader.may_read(name, Some(&NamespaceAccess::FOREIGN)) {
            return refusal;
        }
        match self.misses.refusing_rule(name) {
            Some(rule) => ServeRefusal::Rule {
                name: name.clone(),
                rule,
            },
            None => refusal,
        }
    }

    /// Returns the versions of a name, after a look at other deployments that may have newer ones.
    async fn name_or_ask(
        &self,
        snapshot: CatalogState,
        reader: &Reader,
        name: &RegistryName,
    ) -> Result<Arc<KeptName>, ServeRefusal> {
        let known = self.catalog.name(snapshot, name).await?;
        let Reader::Token { token, .. } = reader else {
            return Ok(known);
        };
        let namespaces = self.catalog.namespaces(snapshot).await?;
        let facts = namespaces.miss_facts(name);
        let is_here = !known.versions.is_empty();
        if !self.misses.ask_peers(token, name, is_here, facts).await {
            return Ok(known);
        }
        let snapshot = self.catalog.snapshot().await?;
        Ok(self.catalog.name(snapshot, name).await?)
    }

    /// Lists the versions of a Go module that can be fetched from elsewhere. Empty: nobody may be asked, or nobody answers.
    async fn versions_elsewhere(
        &self,
        snapshot: CatalogState,
        reader: &Reader,
        path: &GoPath,
        is_here: bool,
    ) -> Result<Arc<Vec<GoVersion>>, ServeRefusal> {
        let Reader::Token { token, .. } = reader else {
            return Ok(Arc::default());
        };
        let namespaces = self.catalog.namespaces(snapshot).await?;
        let facts = namespaces.miss_facts(&RegistryName::Go(path.clone()));
        let versions = self.misses.versions(token, path, is_here, facts).await;
        Ok(versions.unwrap_or_default())
    }

    /// Returns a version that is served, after a check that the reader may read it. If it is not here, it may come from
    /// elsewhere first.
    async fn version_or_fill(
        &self,
        snapshot: CatalogState,
        reader: &Reader,
        key: &VersionKey,
    ) -> Result<Arc<KeptVersion>, ServeRefusal> {
        let refusal = match self.version(snapshot, reader, key).await {
            Err(refusal @ ServeRefusal::NotFound(_)) => refusal,
            answer => return answer,
        };
        let Reader::Token { token, .. } = reader else {
            return Err(refusal);
        };
        // The version is not here, or the reader may not read the name.
        let name = key.name();
        self.check(snapshot, reader, &name, Some(key)).await?;
        let stored = self.catalog.stored_version(snapshot, key).await?;
        if stored.is_some_and(|stored| stored.version.known.state() == VersionState::Deleted) {
            // It is not fetched, although its takedown does not count.
            return Err(refusal);
        }
        let namespaces = self.catalog.namespaces(snapshot).await?;
        let facts = namespaces.miss_facts(&name);
        match self.misses.handle_miss(token, key, facts).await? {
            MissAnswer::Here => {
                let snapshot = self.catalog.snapshot().await?;
                self.version(snapshot, reader, key).await
            }
            MissAnswer::NotHere => Err(refusal),
            MissAnswer::Limited(limit) => Err(ServeRefusal::not_fetched(key, limit)),
        }
    }

    /// Returns a version that is served, after a check that the reader may read it.
    async fn version(
        &self,
        snapshot: CatalogState,
        reader: &Reader,
        key: &VersionKey,
    ) -> Result<Arc<KeptVersion>, ServeRefusal> {
        let name = key.name();
        self.check(snapshot, reader, &name, Some(key)).await?;
        let Some(version) = self.catalog.version(snapshot, key).await? else {
            let unknown = ServeRefusal::unknown_version(key);
            return Err(self.missing(snapshot, reader, &name, unknown).await);
        };
        served(key, Some(&version.version))?;
        Ok(version)
    }
}

/// Names that the sender of a request may read.
pub(super) struct ReadScope {
    reader: Reader,
    namespaces: Arc<Namespaces>,
}

impl ReadScope {
    /// Returns true if the sender may read a name.
    pub(super) fn may_read(&self, name: &RegistryName) -> bool {
        self.reader.may_read(name, self.namespaces.of(name))
    }
}

/// Returns the content of a version that is served, or the reason why it is not.
fn served<'a>(
    key: &VersionKey,
    version: Option<&'a RegistryVersion>,
) -> Result<&'a VersionContent, ServeRefusal> {
    let unknown = || ServeRefusal::unknown_version(key);
    let version = version.ok_or_else(unknown)?;
    match (&version.known, &version.notice) {
        (KnownVersion::Deleted, Some(notice)) => Err(ServeRefusal::taken_down(key, notice)),
        (KnownVersion::Deleted, None) => Err(unknown()),
        (known, _) => match known.content() {
            Some(located) => Ok(&located.content),
            None => Err(unknown()),
        },
    }
}

pub(crate) use self::runs::{RunModuleServer, run_router};

/// Returns the routes, which sign in on their own.
pub(crate) fn routes() -> Routes<Arc<RegistryServer>> {
    let open = RouteAccess::Everybody;
    Routes::new()
        .with(
            Method::GET,
            "/.well-known/terraform.json",
            open,
            get(terraform::discover),
        )
        .with(
            Method::GET,
            "/registry/v1/modules/{namespace}/{name}/{system}/versions",
            open,
            get(terraform::versions),
        )
        .with(
            Method::GET,
            "/registry/v1/modules/{namespace}/{name}/{system}/{version}/download",
            open,
            get(terraform::download),
        )
        .with(
            Method::GET,
            "/registry/v1/modules/{namespace}/{name}/{system}/{version}/{file}",
            open,
            get(terraform::package),
        )
        .with(Method::GET, "/registry/go/{*path}", open, get(go::answer))
}
