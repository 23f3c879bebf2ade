//! One world of deployments: their servers, the wires between them, a deployment that lies, and everything that clients saw.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use lockkeeper::clock::{RandomIds, SystemClock};
use lockkeeper::emulator::{Emulator, Options as GitHubOptions};
use lockkeeper::features::registry::{AddNamespace, ForeignVersions, NewToken, Visibility};
use lockkeeper::model::OwnerName;
use lockkeeper::secret::Secret;
use lockkeeper::store::{DatabaseUrl, Store};
use lockkeeper_registry::signed_note::NoteVerifier;
use tempfile::TempDir;
use tokio::sync::Mutex as AsyncMutex;

use super::super::database_view::DatabaseView;
use super::super::options::{self, Options};
use super::super::proxy::Wire;
use super::book::{AnswerBook, WatchedLog};
use super::fills::{AskedFills, Interruptions};
use super::hostile::{self, HostilePeer};
use crate::registry::outside::{CODE, Outside};
use crate::registry::world::{by_ops, write_keys};
use crate::support::db::Backend;
use crate::support::object_store::{FakeStore, STORE_URL, StoreFault};
use crate::support::postgres::{Content, new_database};
use crate::support::program::{ProgramOutput, lockkeeper, run};
use crate::support::server::{BOT, LOOK, Server, Settings, TOKEN, WEBHOOK_SECRET};

/// Names of the deployments.
pub const DEPLOYMENTS: [&str; 3] = ["one.example.com", "two.example.com", "three.example.com"];
/// Namespaces that every deployment has, and in which all of them publish.
const NAMESPACES: [&str; 2] = ["module acme", "go example.com/acme"];
/// Scopes of the token of the clients.
const SCOPES: [&str; 4] = ["read:*", "publish:*", "deprecate:*", "takedown:*"];
/// Names that deployments exchange. The namespaces have owners at every one, and versions of repositories are not meant by
/// `*`, so patterns name them.
const TERMS: [&str; 14] = [
    "--share",
    "*",
    "--share",
    "module acme/*",
    "--share",
    "go example.com/acme/...",
    "--share",
    "go code.example.org/...",
    "--accept",
    "*",
    "--accept",
    "module acme/*",
    "--accept",
    "go example.com/acme/...",
];

/// Time after the last fault within which all logs and packages are everywhere. Leases of dead servers end within a
/// minute, and a download that has begun can wait for bytes that do not come.
pub const PATIENCE: Duration = Duration::from_mins(4);
/// Time after which a client leaves a server that does not answer.
const CLIENT_TIME: Duration = Duration::from_secs(25);
/// Time for which a service manager tries to start a server.
const PERSISTENCE: Duration = Duration::from_mins(1);
const BETWEEN_STARTS: Duration = Duration::from_millis(500);

/// Peers of a deployment: name, state, last record that was merged, packages with wrong bytes, and last error.
const PEERS: &str = "SELECT name, state, CAST(last_id AS TEXT), CAST(wrong_packages AS TEXT), COALESCE(error, '') \
     FROM registry_peers ORDER BY name";
const LOG_SIZE: &str = "SELECT CAST(COUNT(*) AS TEXT) FROM registry_log";
/// Ends claims to remove a package whose removal is over, on SQLite and on PostgreSQL. A server that was killed, or whose
/// store did not answer, keeps one for five minutes, and nobody can publish the same bytes meanwhile. No removal takes
/// fifteen seconds.
const END_CLAIMS: [&str; 2] = [
    "UPDATE registry_loose_packages SET due_at = '2020-01-01T00:00:00+00:00' \
     WHERE is_removing AND due_at < strftime('%Y-%m-%dT%H:%M:%S', 'now', '+285 seconds') RETURNING digest",
    "UPDATE registry_loose_packages SET due_at = TIMESTAMPTZ '2020-01-01 00:00:00Z' \
     WHERE is_removing AND due_at < now() + INTERVAL '285 seconds' RETURNING digest",
];

/// A world whose deployments run and have joined.
pub struct RegistryWorld {
    pub options: Options,
    pub backend: Backend,
    pub number: u64,
    pub client: reqwest::Client,
    pub deployments: Vec<LiveDeployment>,
    pub hostile: HostilePeer,
    pub outside: Outside,
    /// Numbers of the repositories at the host that were created.
    pub offered: AsyncMutex<BTreeSet<u64>>,
    /// Versions of these repositories that clients wanted in this round.
    pub asked: AskedFills,
    lanes: Vec<Lane>,
    book: Mutex<AnswerBook>,
    diary: Mutex<Diary>,
    begun: Instant,
    dir: TempDir,
    _github: Emulator,
}

/// A deployment with its servers, which have one database.
pub struct LiveDeployment {
    pub name: &'static str,
    pub look: DatabaseView,
    /// Token with all scopes.
    pub token: String,
    pub servers: Vec<AsyncMutex<Server>>,
    /// Object store with the packages. `None`: they are in a directory.
    pub store: Option<LiveStore>,
    /// Number of the kills and pauses of its servers.
    pub interruptions: Interruptions,
    /// Data directories of the servers.
    disks: Vec<PathBuf>,
    keys: PathBuf,
    /// Addresses of the servers that run.
    addresses: Mutex<Vec<Option<SocketAddr>>>,
    /// Number of requests so far, which go to the servers in turn.
    turn: AtomicUsize,
    log: Mutex<WatchedLog>,
}

/// Object store of a deployment.
pub struct LiveStore {
    pub store: Arc<FakeStore>,
    /// Variables of the servers.
    variables: Vec<(&'static str, String)>,
    /// Held during a fault, so that each of them makes a difference.
    pub turn: AsyncMutex<()>,
}

/// Wire that a deployment uses to reach another one.
struct Lane {
    from: usize,
    to: usize,
    wire: Wire,
}

/// Record of the events in a world of deployments.
#[derive(Default)]
struct Diary {
    counts: BTreeMap<&'static str, usize>,
    broken: Vec<String>,
    story: Vec<String>,
}

/// A peer in the database of a deployment.
pub struct PeerLine {
    pub name: String,
    pub state: String,
    pub last_id: u64,
    pub wrong_packages: u64,
    pub error: String,
}

impl LiveDeployment {
    /// Starts the servers of a deployment. The first one on PostgreSQL has two, which share their packages.
    async fn start(
        (backend, number): (Backend, usize),
        dir: &Path,
        github: &Emulator,
        outside: &Outside,
    ) -> Self {
        let name = DEPLOYMENTS[number];
        let keys = dir.join(format!("keys-{number}"));
        write_keys(&keys);
        let packages = dir.join(format!("packages-{number}"));
        std::fs::create_dir(&packages).expect("the directory is ours");
        // The last of three has SQLite, so that both kinds of databases exchange their logs.
        let database = match backend {
            Backend::Postgres if number < 2 => Some(new_database(Content::Migrated).await),
            Backend::Postgres | Backend::Sqlite => None,
        };
        let count = if database.is_some() && number == 0 {
            2
        } else {
            1
        };
        // Two servers have copies of their own, so one reads from the store what the other has written. On SQLite, the
        // hostile deployment and the store disturb different ones.
        let has_store = match backend {
            Backend::Postgres => number == 0,
            Backend::Sqlite => number == 1,
        };
        let store = if has_store {
            Some(LiveStore::start().await)
        } else {
            None
        };
        let mut servers = Vec::new();
        for _ in 0..count {
            let settings = Settings::default()
                .terraform(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes/terraform"))
                .flag("--registry")
                .flag(&format!("--registry-name={name}"))
                .flag("--registry-sync-interval=1s")
                .flag("--registry-takedown-brake=1000000")
                .flag(&format!("--registry-vcs-allowlist={CODE}"))
                .flag(&format!("--registry-on-miss=go {CODE}/...=wait"))
                .flag(&format!("--encryption-key-file={}", keys.display()))
                .flag("--shutdown-grace=3s");
            // The server and its git read the same variable for authorities.
            let variables = outside.variables().into_iter();
            let settings = variables
                .filter(|(name, _)| *name != "GIT_SSL_CAINFO")
                .fold(settings, |settings, (name, value)| {
                    settings.variable(name, &value)
                });
            let settings = match &store {
                Some(store) => store.variables.iter().fold(
                    settings.flag(&format!("--registry-store={STORE_URL}")),
                    |settings, (name, value)| settings.variable(name, value),
                ),
                None => settings.shares("registry", &packages),
            };
            let settings = match &database {
                Some(url) => settings.database(url.clone()),
                None => settings,
            };
            servers.push(Server::start_at(&github.api_url(), settings).await);
        }
        let url = servers[0].database();
        let (token, key) = Box::pin(prepare(&url)).await;
        let addresses = servers.iter().map(|server| Some(address(server))).collect();
        Self {
            name,
            look: DatabaseView::at(&url),
            token,
            store,
            interruptions: Interruptions::default(),
            disks: servers.iter().map(Server::data_dir).collect(),
            servers: servers.into_iter().map(AsyncMutex::new).collect(),
            keys,
            addresses: Mutex::new(addresses),
            turn: AtomicUsize::new(0),
            log: Mutex::new(WatchedLog::new(key)),
        }
    }

    /// Returns the address of a server that runs. They take turns.
    pub fn url(&self) -> Option<String> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let addresses = self.addresses.lock().expect("nobody panics with it");
        let open: Vec<SocketAddr> = addresses.iter().flatten().copied().collect();
        let address = open.get(turn % open.len().max(1))?;
        Some(format!("http://{address}"))
    }

    /// Returns the records and heads of the log that were seen. The guard must not be held across an await.
    pub fn log(&self) -> MutexGuard<'_, WatchedLog> {
        self.log.lock().expect("nobody panics with it")
    }

    /// Returns the peers in the database.
    pub async fn peers(&self) -> Vec<PeerLine> {
        let number = |text: &str| text.parse().expect("it is a number");
        let rows = self.look.rows(PEERS).await;
        let lines = rows.iter().map(|row| PeerLine {
            name: row[0].clone(),
            state: row[1].clone(),
            last_id: number(&row[2]),
            wrong_packages: number(&row[3]),
            error: row[4].clone(),
        });
        lines.collect()
    }

    /// Removes the copies of packages on the disks of all servers, as if others had needed the room. The packages are read
    /// from the store again.
    pub fn remove_copies(&self) {
        let entries = |dir: &Path| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        for disk in &self.disks {
            for dir in entries(&disk.join("registry/cached")) {
                for copy in entries(&dir) {
                    // A server may remove it at the same moment.
                    std::fs::remove_file(copy).ok();
                }
            }
        }
    }

    /// Ends old claims to remove a package by hand, as those of dead servers end by themselves after some minutes.
    pub async fn end_claims(&self) {
        let is_postgres = matches!(self.look, DatabaseView::Postgres(_));
        self.look.rows(END_CLAIMS[usize::from(is_postgres)]).await;
    }

    /// Returns the number of records in the database.
    pub async fn log_size(&self) -> u64 {
        let rows = self.look.rows(LOG_SIZE).await;
        rows[0][0].parse().expect("it is a number")
    }

    /// Runs `lockkeeper registry …` with the database, the data directory and the keys of the deployment.
    async fn registry(&self, args: &[&str]) -> ProgramOutput {
        let (url, data) = {
            let server = self.servers[0].lock().await;
            (server.database(), server.data_dir())
        };
        let url = match &url {
            DatabaseUrl::Sqlite(_) => url.to_string(),
            DatabaseUrl::Postgres(_) => url.to_string().replace("://", "://postgres@"),
        };
        let (data, keys) = (data.display().to_string(), self.keys.display().to_string());
        let mut common = vec![
            "--database-url",
            &url,
            "--data-dir",
            &data,
            "--encryption-key-file",
            &keys,
        ];
        let variables = match &self.store {
            Some(store) => {
                common.extend(["--registry-store", STORE_URL]);
                store.variables.as_slice()
            }
            None => &[],
        };
        let variables = variables.iter();
        let variables: Vec<(&str, &str)> = variables
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let args = [&["registry"][..], args, common.as_slice()].concat();
        // The program sends requests over wires, which tasks of this process carry.
        tokio::task::block_in_place(|| {
            run(
                env!("CARGO_BIN_EXE_lockkeeper"),
                Path::new("/"),
                &args,
                &variables,
            )
        })
    }

    /// Recomputes everything that the deployment has stored. Returns what is wrong.
    pub async fn verify(&self) -> Option<String> {
        let said = self.registry(&["verify", "--packages"]).await;
        (said.code != 0).then(|| format!("{}{}", said.out, said.err))
    }

    /// Invites the deployment at an address, with these names. Returns the word.
    fn invite(&self, url: &str, terms: &[&str]) -> String {
        let args = [&["--url", url][..], terms].concat();
        let said = lockkeeper(
            &["registry", "peers", "invite"],
            &self.look.url(),
            &args,
            &[],
        );
        assert_eq!(said.code, 0, "{}", said.err);
        said.out.trim().to_owned()
    }

    /// Goes on with a peer that has diverged.
    pub fn resume(&self, peer: &str) -> ProgramOutput {
        let command = ["registry", "peers", "resume"];
        lockkeeper(&command, &self.look.url(), &[peer], &[])
    }
}

impl LiveStore {
    async fn start() -> Self {
        let (store, variables) = FakeStore::start().await;
        Self {
            store,
            variables,
            turn: AsyncMutex::default(),
        }
    }
}

/// Creates the namespaces and the token of a deployment. Returns the token, and the public key of the log.
async fn prepare(url: &DatabaseUrl) -> (String, NoteVerifier) {
    let store = Store::open(url, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    let store = store.expect("the database answers");
    let owner: OwnerName = "net".parse().expect("the name is valid");
    let created = store.owner_create(&owner, &by_ops()).await;
    created.map(drop).expect("the database answers");
    for prefix in NAMESPACES {
        let prefix = prefix.parse().expect("the prefix is valid");
        let by = by_ops();
        let added = store.registry_namespace_add(
            &prefix,
            &owner,
            Visibility::Public,
            ForeignVersions::Refuse,
            &by,
        );
        let added = added.await.expect("the database answers");
        assert!(matches!(added, AddNamespace::Added(_)), "{added:?}");
    }
    let scopes: Vec<_> = SCOPES
        .iter()
        .map(|scope| scope.parse().expect("the scope is valid"))
        .collect();
    let token = NewToken::new("chaos", &scopes, None).expect("the token is valid");
    let created = store.registry_token_create(&token, &by_ops()).await;
    let (_, text) = created
        .expect("the database answers")
        .expect("it is the first token");
    let key = store.registry_log_key().await;
    let key = key
        .expect("the database answers")
        .expect("the server has made it");
    store.close().await;
    (text.expose().to_owned(), key)
}

fn address(server: &Server) -> SocketAddr {
    let url = server.url().trim_start_matches("http://");
    url.parse().expect("it listens on an address")
}

impl RegistryWorld {
    /// Starts a world whose deployments have joined each other, and the hostile one the first of them.
    pub async fn begin(backend: Backend, options: &Options, number: u64) -> Arc<Self> {
        let dir = tempfile::Builder::new()
            .prefix("lockkeeper-deployments-")
            .tempdir()
            .expect("a temporary directory");
        let secret = Secret::new(WEBHOOK_SECRET);
        let forge = GitHubOptions::new(&dir.path().join("forge"), Arc::new(SystemClock), secret);
        let forge = forge.with_token(BOT, Secret::new(TOKEN));
        let github = Emulator::start(forge).await.expect("it starts");
        let outside = Outside::open().await;
        let mut deployments = Vec::new();
        for place in 0..options.deployments.clamp(2, DEPLOYMENTS.len()) {
            let of_backend = (backend, place);
            let deployment = LiveDeployment::start(of_backend, dir.path(), &github, &outside);
            deployments.push(Box::pin(deployment).await);
        }
        let mut lanes = Vec::new();
        for from in 0..deployments.len() {
            for to in (0..deployments.len()).filter(|to| *to != from) {
                let server = deployments[to].servers[0].lock().await;
                let wire = Wire::to(address(&server)).await;
                lanes.push(Lane { from, to, wire });
            }
        }
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(CLIENT_TIME)
            .pool_max_idle_per_host(0)
            .build()
            .expect("a client can be built");
        let world = Arc::new(Self {
            options: options.clone(),
            backend,
            number,
            client,
            deployments,
            hostile: HostilePeer::open().await,
            outside,
            offered: AsyncMutex::default(),
            asked: AskedFills::default(),
            lanes,
            book: Mutex::default(),
            diary: Mutex::default(),
            begun: Instant::now(),
            dir,
            _github: github,
        });
        world.join_all().await;
        world
    }

    async fn join_all(&self) {
        for left in 0..self.deployments.len() {
            for right in left + 1..self.deployments.len() {
                let (inviting, joining) = (&self.deployments[left], &self.deployments[right]);
                let word = inviting.invite(&self.url(left, right), &TERMS);
                let file = self.dir.path().join(format!("word-{left}-{right}"));
                std::fs::write(&file, word).expect("the directory is ours");
                let (file, url) = (file.display().to_string(), self.url(right, left));
                let join = ["peers", "join", &url, "--word-file", &file];
                let said = joining.registry(&[&join[..], &TERMS].concat()).await;
                assert_eq!(said.code, 0, "{}", said.err);
            }
        }
        let first = &self.deployments[0];
        let terms = ["--share", "*", "--accept", hostile::NAMES];
        let word = first.invite(&self.hostile.url, &terms);
        let url = first.url().expect("its server runs");
        self.hostile.join(&self.client, &url, &word).await;
    }

    /// Returns the address at which a deployment reaches another one.
    fn url(&self, from: usize, to: usize) -> String {
        let lane = self
            .lanes
            .iter()
            .find(|lane| (lane.from, lane.to) == (from, to));
        format!("http://{}", lane.expect("there is one").wire.address)
    }

    /// Returns some wire, with the names of its ends.
    pub fn wire(&self, some: usize) -> (&Wire, String) {
        let Lane { from, to, wire } = &self.lanes[some % self.lanes.len()];
        let ends = format!("{} to {}", DEPLOYMENTS[*from], DEPLOYMENTS[*to]);
        (wire, ends)
    }

    /// Returns some deployment whose packages are in an object store, by its number, and the store.
    pub fn store(&self, some: usize) -> (usize, &LiveStore) {
        let deployments = self.deployments.iter().enumerate();
        let stores = deployments.filter_map(|(at, of)| Some((at, of.store.as_ref()?)));
        let stores: Vec<(usize, &LiveStore)> = stores.collect();
        stores[some % stores.len()]
    }

    /// Ends the faults of all wires and stores.
    pub fn heal_places(&self) {
        self.lanes.iter().for_each(|lane| lane.wire.heal());
        for live in self.deployments.iter().filter_map(|of| of.store.as_ref()) {
            live.store.set(StoreFault::None);
        }
    }

    /// Returns the number of a deployment, and that of a server of it.
    pub fn place(&self, some: usize) -> (usize, usize) {
        let at = some % self.deployments.len();
        let servers = self.deployments[at].servers.len();
        (at, some / self.deployments.len() % servers)
    }

    /// Stores the address of a server that has started, or that none runs any more. Wires lead to one that runs.
    fn moved(&self, (at, n): (usize, usize), to: Option<SocketAddr>) {
        let open = {
            let mut addresses = self.deployments[at]
                .addresses
                .lock()
                .expect("nobody panics with it");
            addresses[n] = to;
            to.or_else(|| addresses.iter().flatten().next().copied())
        };
        let Some(open) = open else { return };
        for lane in self.lanes.iter().filter(|lane| lane.to == at) {
            lane.wire.lead_to(open);
        }
    }

    /// Kills a server, and starts it again after some time. Its leases are ended by hand unless there is time to wait until
    /// they expire.
    pub async fn kill(&self, place: (usize, usize), server: &mut Server, back: Duration) {
        self.check_alive(place, server);
        if server.is_running() {
            self.count("servers killed");
            let interruptions = &self.deployments[place.0].interruptions;
            interruptions.begin();
            server.kill9().await;
            interruptions.end();
        }
        self.moved(place, None);
        let is_ended_by_hand = !self.options.patient || back.as_millis().is_multiple_of(2);
        let ended = server.replica().filter(|_| is_ended_by_hand);
        if let Some(replica) = ended.map(str::to_owned) {
            let look = &self.deployments[place.0].look;
            look.end_leases(&replica).await;
        }
        tokio::time::sleep(back).await;
        self.start(place, server).await;
    }

    /// Checks that nobody but this test has ended a server.
    pub fn check_alive(&self, (at, _): (usize, usize), server: &mut Server) {
        if server.has_died() {
            let name = self.deployments[at].name;
            self.broken(&format!("a server of {name} ended by itself"));
        }
    }

    /// Starts a stopped server, and retries as a service manager does.
    pub async fn start(&self, place: (usize, usize), server: &mut Server) {
        let begun = Instant::now();
        while !server.is_running() {
            if server.try_restart().await {
                self.moved(place, Some(address(server)));
            } else if begun.elapsed() > PERSISTENCE {
                let name = self.deployments[place.0].name;
                return self.broken(&format!("a server of {name} does not start"));
            } else {
                self.count("starts in vain");
                tokio::time::sleep(BETWEEN_STARTS).await;
            }
        }
    }

    /// Pauses a wait for something. Returns false if the wait has taken too long, which breaks a promise.
    pub async fn may_wait(&self, begun: Instant, what: &str) -> bool {
        if begun.elapsed() > PATIENCE {
            self.broken(&format!("{what}: not within {PATIENCE:?}"));
            return false;
        }
        tokio::time::sleep(LOOK * 5).await;
        true
    }

    /// Returns everything that clients saw. The guard must not be held across an await.
    pub fn book(&self) -> MutexGuard<'_, AnswerBook> {
        self.book.lock().expect("nobody panics with it")
    }

    fn diary(&self) -> MutexGuard<'_, Diary> {
        self.diary.lock().expect("nobody panics with it")
    }

    /// Counts an event by its name.
    pub fn count(&self, what: &'static str) {
        *self.diary().counts.entry(what).or_default() += 1;
    }

    /// Returns the number of events of each kind.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        self.diary().counts.clone()
    }

    /// Adds a line to the story.
    #[expect(
        clippy::print_stdout,
        reason = "a round that fails is to be played again from what was printed"
    )]
    pub fn say(&self, line: &str) {
        let (time, name) = (self.begun.elapsed(), options::name(self.backend));
        let line = format!(
            "deployments {name} {}.{} {:8.3} {line}",
            self.options.seed,
            self.number,
            time.as_secs_f32()
        );
        println!("{line}");
        self.diary().story.push(line);
    }

    /// Records a broken promise.
    pub fn broken(&self, what: &str) {
        let is_new = {
            let mut diary = self.diary();
            let is_new = !diary.broken.iter().any(|known| known == what);
            if is_new {
                diary.broken.push(what.to_owned());
            }
            is_new
        };
        // Readers find the same again and again.
        if is_new {
            self.say(&format!("BROKEN: {what}"));
        }
    }

    /// Returns the number of promises that were broken.
    pub fn broken_count(&self) -> usize {
        self.diary().broken.len()
    }

    /// Copies everything that helps to find a cause to a place where it survives. Returns the place.
    pub async fn keep_traces(&self) -> PathBuf {
        let (name, seed) = (options::name(self.backend), self.options.seed);
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("chaos")
            .join(format!("deployments-{name}-{seed}-{}", self.number));
        std::fs::create_dir_all(&dir).expect("a directory for traces");
        let write = |file: &str, text: String| {
            std::fs::write(dir.join(file), text).expect("a file for traces");
        };
        write("story", self.diary().story.join("\n"));
        for deployment in &self.deployments {
            for (n, server) in deployment.servers.iter().enumerate() {
                let log = server.lock().await.log();
                write(&format!("{}-{n}.log", deployment.name), log);
            }
            for (file, sql) in TRACES {
                let rows = deployment.look.rows(sql).await;
                let lines: Vec<String> = rows.iter().map(|row| row.join(" | ")).collect();
                write(&format!("{}-{file}", deployment.name), lines.join("\n"));
            }
        }
        dir
    }
}

/// Queries whose results are kept as traces.
const TRACES: [(&str, &str); 5] = [
    ("peers", PEERS),
    (
        "log",
        "SELECT CAST(id AS TEXT), record FROM registry_log ORDER BY id",
    ),
    (
        "versions",
        "SELECT kind, name, version, state, COALESCE(files_hash, ''), base FROM registry_versions \
         ORDER BY kind, name, version",
    ),
    (
        "downloads",
        "SELECT kind, name, version, peer, CAST(attempts AS TEXT), CAST(next_at AS TEXT), COALESCE(error, '') \
         FROM registry_downloads ORDER BY kind, name, version",
    ),
    (
        "conflicts",
        "SELECT kind, name, version, peer, record FROM registry_conflicts ORDER BY kind, name, version",
    ),
];
