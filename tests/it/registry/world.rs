//! A registry with its servers in this process, and people who publish, read and take down.

use std::borrow::Cow;
use std::io::Cursor;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use chrono::{DateTime, Utc};
use lockkeeper::app::{self, ServiceInputs};
use lockkeeper::clock::Clock;
use lockkeeper::config::server::{MissLimits, RawSettings, ServerConfig};
use lockkeeper::context::{PackagePlace, ServerCtx};
use lockkeeper::features::registry::{
    AddNamespace, ChangeNamespace, CheckedPackage, ForeignVersions, NewToken, PeerExchange,
    Published, Registry, RemoveNamespace, TakenDown, Token, VersionOrigin, Visibility,
};
use lockkeeper::model::{Actor, Cause, Origin, Reason, RepoPath};
use lockkeeper::objects::RemoteObjects;
use lockkeeper::queue::WakeUps;
use lockkeeper::seal::{key_line, keyring};
use lockkeeper::store::Store;
use lockkeeper::telemetry::Panics;
use lockkeeper_registry::dirhash::{hash_files, hash_go_mod};
use lockkeeper_registry::go_zip::{select_go_files, write_go_zip};
use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::records::{
    Checksums, PackageFile, PackageFileName, PackageFiles, RecordNotice, TakedownKind,
    VersionContent,
};
use lockkeeper_registry::tf_archive::{TfFile, write_tf_archive};
use lockkeeper_registry::tree::{TreeFile, TreeMode};
use lockkeeper_registry::versions::VersionKey;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::support::db::TestDb;

/// Host and name of the registry.
pub const HOST: &str = "mods.example.com";

/// Packages that the tests upload.
pub const MAX_PACKAGE: u64 = 512 << 20;

/// The registry of a test, as the command line sees it.
pub struct RegistryAdmin {
    pub registry: Registry,
    store: Store,
    keys: PathBuf,
    packages: PathBuf,
    /// Lets scripts name deployments on this machine.
    pub has_local_peers: bool,
}

/// A server in this process.
pub struct Replica {
    pub router: Router,
    ctx: Arc<ServerCtx>,
}

/// Answer of a server.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// Returns the cause of changes of an administrator.
pub fn by_ops() -> Cause {
    Cause::new(Actor::new("ops", Origin::Cli), "for a test")
}

/// Returns a reason, and a version to use instead.
pub fn notice(reason: &str, replacement: Option<&str>) -> RecordNotice {
    RecordNotice {
        reason: Reason::read(reason).unwrap().unwrap(),
        replacement: replacement.map(|key| key.parse().unwrap()),
    }
}

/// Writes the file of `--encryption-key-file`.
pub fn write_keys(path: &Path) {
    let line = key_line(
        &"first".parse().unwrap(),
        &std::array::from_fn(|at| 7 + u8::try_from(at).unwrap()),
    );
    std::fs::write(path, format!("{}\n", line.expose())).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Flags or variables with their values.
type Pairs<'a> = &'a [(&'a str, &'a str)];

impl RegistryAdmin {
    /// Opens the registry in a database. Packages are below the directory of the test.
    pub async fn open(db: &TestDb) -> Self {
        let keys = db.dir.path().join("keys");
        write_keys(&keys);
        let packages = db.dir.path().join("packages");
        Self::with(db.reopen().await, keys, packages).await
    }

    /// Opens the registry of another deployment.
    pub async fn named(db: &TestDb, name: &str) -> Self {
        let keys = db.dir.path().join("keys");
        write_keys(&keys);
        let packages = db.dir.path().join("packages");
        Self::open_as(db.reopen().await, keys, packages, name).await
    }

    /// Opens the registry of a server that has other files.
    pub async fn with(store: Store, keys: PathBuf, packages: PathBuf) -> Self {
        Self::open_as(store, keys, packages, HOST).await
    }

    /// Opens a registry whose packages are in an object store.
    pub async fn in_store(db: &TestDb, objects: RemoteObjects) -> Self {
        Self::named_in_store(db, HOST, objects).await
    }

    /// Opens the registry of another deployment, whose packages are in an object store.
    pub async fn named_in_store(db: &TestDb, name: &str, objects: RemoteObjects) -> Self {
        let keys = db.dir.path().join("keys");
        write_keys(&keys);
        let packages = db.dir.path().join("packages");
        let place = PackagePlace {
            remote: Some(objects),
            ..PackagePlace::from(&packages)
        };
        Self::open_at(db.reopen().await, keys, &place, name).await
    }

    async fn open_as(store: Store, keys: PathBuf, packages: PathBuf, name: &str) -> Self {
        Self::open_at(store, keys, &PackagePlace::from(&packages), name).await
    }

    async fn open_at(store: Store, keys: PathBuf, place: &PackagePlace, name: &str) -> Self {
        let ring = Arc::new(keyring(&keys).unwrap());
        let name = name.parse().unwrap();
        let registry = Registry::open(store.clone(), Some(ring), name, place);
        Self {
            registry: registry.await.unwrap(),
            store,
            keys,
            packages: place.dir.clone(),
            has_local_peers: false,
        }
    }

    /// Creates an owner with a namespace, such as `module acme` or `go example.com/net`.
    pub async fn namespace(&self, prefix: &str, visibility: Visibility) {
        let owner = "net".parse().unwrap();
        // The owner may be there.
        let created = self.store.owner_create(&owner, &by_ops()).await;
        created.map(drop).unwrap();
        let (prefix, by) = (prefix.parse().unwrap(), by_ops());
        let added = self.store.registry_namespace_add(
            &prefix,
            &owner,
            visibility,
            ForeignVersions::Refuse,
            &by,
        );
        let added = added.await.unwrap();
        assert!(matches!(added, AddNamespace::Added(_)), "{added:?}");
    }

    /// Removes a namespace without versions.
    pub async fn remove_namespace(&self, prefix: &str) {
        let (prefix, by) = (prefix.parse().unwrap(), by_ops());
        let removed = self.store.registry_namespace_remove(&prefix, &by);
        let removed = removed.await.unwrap();
        assert!(
            matches!(removed, RemoveNamespace::Removed(_)),
            "{removed:?}"
        );
    }

    /// Gives a namespace to other readers.
    pub async fn change_namespace(&self, prefix: &str, visibility: Visibility) {
        let prefix = prefix.parse().unwrap();
        let cause = by_ops();
        let changed = self
            .store
            .registry_namespace_change(&prefix, None, Some(visibility), &cause);
        assert!(matches!(changed.await, Ok(ChangeNamespace::Changed(_))));
    }

    /// Creates a token with these scopes. Returns its text as well.
    pub async fn token(&self, scopes: &[&str]) -> (Token, String) {
        self.token_until(scopes, None).await
    }

    /// Creates a token that expires.
    pub async fn token_until(
        &self,
        scopes: &[&str],
        expires_at: Option<DateTime<Utc>>,
    ) -> (Token, String) {
        let scopes: Vec<_> = scopes.iter().map(|scope| scope.parse().unwrap()).collect();
        let token = NewToken::new("test", &scopes, expires_at).unwrap();
        let created = self.store.registry_token_create(&token, &by_ops()).await;
        let (token, text) = created.unwrap().unwrap();
        (token, text.expose().to_owned())
    }

    pub async fn revoke(&self, token: &Token) {
        let revoked = self.store.registry_token_revoke(token.id, &by_ops()).await;
        assert!(revoked.unwrap().is_some());
    }

    /// Publishes a version such as `go example.com/net v1.0.0` with these files.
    pub async fn publish(&self, key: &str, files: &[(&str, &[u8])]) {
        let key: VersionKey = key.parse().unwrap();
        let package = self.package(&key, files).await;
        let by = by_ops();
        let published = self.registry.publish(package, VersionOrigin::Command, &by);
        let published = published.await.unwrap();
        assert!(matches!(published, Published::New(_)), "{published:?}");
    }

    /// Publishes a version of a Go module as releases did that had no limit of their own for `go.mod`, its first file.
    pub async fn publish_unlimited(&self, key: &str, files: &[(&str, &[u8])]) {
        let key: VersionKey = key.parse().unwrap();
        let (path, version) = key.as_go().unwrap();
        let names = files.iter().map(|(name, content)| {
            let name = format!("{path}@{version}/{name}");
            (name, *content)
        });
        let names: Vec<(String, &[u8])> = names.collect();
        let zip = hash_files(
            names
                .iter()
                .map(|(name, content)| (name.as_str(), *content)),
        );
        let go_mod = files[0].1;
        let checksums = Checksums::Go {
            zip: zip.unwrap(),
            go_mod: hash_go_mod(go_mod),
        };
        self.publish_unchecked(&key, &archive(&key, files), checksums, Some(go_mod))
            .await;
    }

    /// Publishes an archive that follows no rules. Its record is signed and has the right SHA-256.
    pub async fn publish_hostile(&self, key: &VersionKey, archive: &[u8]) {
        let files = hash_files([("main.tf", b"".as_slice())]).unwrap();
        let go_mod: &[u8] = b"module example.com/net\n";
        let (checksums, go_mod) = match key.kind() {
            NameKind::Module => (Checksums::Module { files }, None),
            NameKind::Go => {
                let checksums = Checksums::Go {
                    zip: files,
                    go_mod: hash_go_mod(go_mod),
                };
                (checksums, Some(go_mod))
            }
        };
        self.publish_unchecked(key, archive, checksums, go_mod)
            .await;
    }

    async fn publish_unchecked(
        &self,
        key: &VersionKey,
        archive: &[u8],
        checksums: Checksums,
        go_mod: Option<&[u8]>,
    ) {
        let mut staging = self.registry.blobs().stage(MAX_PACKAGE).await.unwrap();
        staging.write(archive).await.unwrap();
        let staged = staging.finish().await.unwrap();
        let name = match key.kind() {
            NameKind::Module => PackageFileName::of_module_in(&RepoPath::root()).unwrap(),
            NameKind::Go => "module.zip".parse().unwrap(),
        };
        let file = PackageFile {
            name,
            digest: staged.digest.clone(),
            size: staged.size,
        };
        let package = CheckedPackage {
            content: VersionContent {
                checksums,
                packages: PackageFiles::new(vec![file]).unwrap(),
                commit: None,
            },
            key: key.clone(),
            go_mod: go_mod.map(<[u8]>::to_vec),
            committed_at: None,
            token_in: None,
            staged,
        };
        let by = by_ops();
        let published = self.registry.publish(package, VersionOrigin::Command, &by);
        let published = published.await.unwrap();
        assert!(matches!(published, Published::New(_)), "{published:?}");
    }

    /// Makes a package of files.
    pub async fn package(&self, key: &VersionKey, files: &[(&str, &[u8])]) -> CheckedPackage {
        let mut staging = self.registry.blobs().stage(MAX_PACKAGE).await.unwrap();
        staging.write(&archive(key, files)).await.unwrap();
        let staged = staging.finish().await.unwrap();
        let checked = CheckedPackage::of_upload(key.clone(), staged, RepoPath::root(), ()).await;
        checked.unwrap().0
    }

    pub async fn deprecate(&self, key: &str, reason: &str, replacement: Option<&str>) {
        let (key, by) = (key.parse().unwrap(), by_ops());
        let deprecated = self
            .registry
            .deprecate(&key, notice(reason, replacement), &by);
        drop(deprecated.await.unwrap());
    }

    pub async fn take_down(&self, key: &str, kind: TakedownKind, reason: &str) {
        let (key, by) = (key.parse().unwrap(), by_ops());
        let taken = self
            .registry
            .take_down(&key, kind, notice(reason, None), &by);
        let taken = taken.await.unwrap();
        assert!(matches!(taken, TakenDown::New(_)), "{taken:?}");
    }

    /// Starts a server with further flags. All servers of a test have one store of packages.
    pub async fn server(&self, db: &TestDb, number: u32, more: &[(&str, &str)]) -> Replica {
        self.server_with(db, number, more, &[]).await
    }

    /// Starts a server with further flags and environment variables.
    pub async fn server_with(
        &self,
        db: &TestDb,
        number: u32,
        more: &[(&str, &str)],
        variables: &[(&str, &str)],
    ) -> Replica {
        let as_usual = |_: &mut MissLimits| {};
        self.server_within(db, number, (more, variables), as_usual)
            .await
    }

    /// Starts a server with further flags and environment variables, and with other limits for missing versions.
    pub async fn server_within(
        &self,
        db: &TestDb,
        number: u32,
        (more, variables): (Pairs<'_>, Pairs<'_>),
        limit: impl FnOnce(&mut MissLimits),
    ) -> Replica {
        let data = db.dir.path().join(format!("data-{number}"));
        std::fs::create_dir_all(&data).unwrap();
        symlink(&self.packages, data.join("registry")).unwrap();
        self.start(db, number, &data, (more, variables), limit)
            .await
    }

    /// Starts a server with a data directory and variables of its own.
    pub async fn server_in(
        &self,
        db: &TestDb,
        number: u32,
        data: &Path,
        more: &[(&str, &str)],
        variables: &[(&str, &str)],
    ) -> Replica {
        let as_usual = |_: &mut MissLimits| {};
        self.start(db, number, data, (more, variables), as_usual)
            .await
    }

    async fn start(
        &self,
        db: &TestDb,
        number: u32,
        data: &Path,
        (more, variables): (Pairs<'_>, Pairs<'_>),
        limit: impl FnOnce(&mut MissLimits),
    ) -> Replica {
        let (data, keys) = (data.display().to_string(), self.keys.display().to_string());
        let flags = [
            ("repo-allowlist", "github.test/acme/*"),
            ("gh-hostname", "github.test"),
            ("gh-user", "lockbot"),
            ("gh-token", "ghp_TokenOfTheRegistryTests0123456789abc"),
            ("gh-webhook-secret", "registry-webhook-secret-7f3a"),
            ("atlantis-url", "https://mods.example.com"),
            ("tf-download", "false"),
            ("sandbox", "none"),
            ("registry", "true"),
            ("data-dir", &data),
            ("encryption-key-file", &keys),
        ];
        let flags = flags.iter().chain(more);
        let flags = flags.map(|(flag, value)| ((*flag).to_owned(), vec![(*value).to_owned()]));
        let raw = RawSettings {
            flags: flags.collect(),
            ..RawSettings::default()
        };
        let (mut config, _) =
            ServerConfig::from_raw(&raw, Vec::new()).unwrap_or_else(|errors| panic!("{errors}"));
        if let Some(own) = config.registry.own.as_mut() {
            limit(&mut own.misses.limits);
            own.local_peers_by_api = self.has_local_peers;
        }
        let parts = ServiceInputs {
            clock: db.clock.clone() as Arc<dyn Clock>,
            ids: db.ids.clone(),
            exe: env!("CARGO_BIN_EXE_lockkeeper").into(),
            environment: [("PATH", "/usr/bin:/bin")]
                .iter()
                .chain(variables)
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            panics: Panics::new(db.clock.clone()),
            name: format!("replica-{number}"),
        };
        let ctx = app::build_on(&config, parts, db.reopen().await)
            .await
            .unwrap();
        let router = app::router(&ctx, &config, CancellationToken::new());
        Replica {
            router: router.await.unwrap(),
            ctx,
        }
    }
}

/// Makes a `go.mod` file with this number of bytes.
pub fn go_mod_of_size(path: &str, bytes: usize) -> String {
    let mut text = format!("module {path}\n\n//");
    let missing = bytes.checked_sub(text.len() + 1).unwrap();
    text.push_str(&"x".repeat(missing));
    text.push('\n');
    text
}

/// Makes the archive of a version.
pub fn archive(key: &VersionKey, files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    if let Some((path, version)) = key.as_go() {
        let files = files.iter().map(|(path, content)| TreeFile {
            path: path.as_bytes(),
            mode: TreeMode::File,
            content,
        });
        let files: Vec<TreeFile<'_>> = files.collect();
        let selected = select_go_files(&files, "").unwrap();
        write_go_zip(path, version, &selected, &mut out).unwrap();
    } else {
        let files = files.iter().map(|(path, content)| TfFile {
            path: Cow::Borrowed(*path),
            content,
            is_executable: false,
        });
        let files: Vec<TfFile<'_>> = files.collect();
        write_tf_archive(&files, &mut out).unwrap();
    }
    out.into_inner()
}

impl Replica {
    /// Returns what the reconcilers of the server use.
    pub async fn peers(&self) -> PeerExchange {
        PeerExchange::of(&self.ctx).await.unwrap().unwrap()
    }

    /// Returns a receiver of wake-ups about new records of the registry.
    pub fn wake_ups(&self) -> WakeUps {
        self.ctx.registry_wake_up.listen()
    }

    /// Returns all metrics of the server.
    pub fn metrics(&self) -> String {
        self.ctx.metrics.render()
    }

    /// Returns a value of `/metrics`, such as that of `registry_peers{state="joined"}`. `None`: there is no such line.
    /// Values from the database are at most five seconds old.
    pub async fn metric(&self, name: &str) -> Option<u64> {
        let answer = self.get("/metrics", "").await;
        let line = format!("lockkeeper_{name} ");
        let lines = answer.text().lines();
        let mut values = lines.filter_map(|text| text.strip_prefix(&line));
        values.next().map(|value| value.parse().unwrap())
    }

    /// Returns the number of failures of the object store of one kind that `/metrics` says, if there were any.
    pub async fn store_failures(&self, kind: &str) -> Option<u64> {
        let name = format!("registry_store_failures_total{{kind=\"{kind}\"}}");
        self.metric(&name).await
    }

    /// Returns the number of versions that the server fetches now.
    pub fn running(&self) -> f64 {
        let name = "lockkeeper_registry_fills_running ";
        let metrics = self.metrics();
        let mut values = metrics.lines().filter_map(|line| line.strip_prefix(name));
        values.next().map_or(0.0, |value| value.parse().unwrap())
    }

    /// Sends a request with these headers.
    pub async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(method, path, headers, Body::empty()).await
    }

    /// Sends a request with these headers and a body.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, HOST);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: axum::body::to_bytes(body, usize::MAX).await.unwrap(),
        }
    }

    /// Sends a request with a token, or without one if it is empty.
    pub async fn get(&self, path: &str, token: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let headers = if token.is_empty() { &[][..] } else { &headers };
        self.request(Method::GET, path, headers).await
    }

    pub async fn status(&self, path: &str, token: &str) -> u16 {
        self.get(path, token).await.status.as_u16()
    }
}
