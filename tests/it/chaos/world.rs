//! One world: a GitHub, servers, the wires between them, and a record of the events so far.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use lockkeeper::clock::SystemClock;
use lockkeeper::emulator::{
    AppOptions, Change, Delivering, Emulator, NewPull, Options as GitHubOptions,
};
use lockkeeper::model::{CommitSha, PullNumber};
use lockkeeper::secret::Secret;
use lockkeeper::store::DatabaseUrl;
use tempfile::TempDir;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::task::AbortOnDropHandle;

use super::database_view::DatabaseView;
use super::options::{self, Options};
use super::post::Postman;
use super::proxy::Wire;
use super::schedule::{End, PROJECTS};
use super::skewed;
use crate::support::db::Backend;
use crate::support::postgres::{Content, new_database};
use crate::support::server::{APP_ID, BOT, LOOK, Server, Settings, TOKEN, WEBHOOK_SECRET};

const APP_PUBLIC_KEY: &str = include_str!("../support/app_key.pub.pem");

/// Names of the repository, in turn.
pub const NAMES: [&str; 2] = ["acme/infra", "acme/platform"];
/// A repository with one pull request, deleted in the first round.
pub const SHORT_LIVED: &str = "acme/short-lived";
/// User name for the API.
pub const WEB_USER: &str = "ops";
/// Password for the API.
pub const WEB_PASSWORD: &str = "chaos-web-password";

/// Configuration in which most projects are locked as usual, one only by its apply, and one not at all.
const LOCK_MODES: &str = "version: 3\n\
    autodiscover: {mode: enabled}\n\
    projects:\n\
    - {dir: p8, repo_locks: {mode: on_apply}}\n\
    - {dir: p9, repo_locks: {mode: disabled}}\n";
/// Server configuration that allows the repository to set lock modes, and ends unused locks after three minutes.
/// Clocks that are wrong can take two of these minutes.
const RULES: &str = "--repo-config-json=\
    {\"repos\": [{\"id\": \"/.*/\", \"allowed_overrides\": [\"repo_locks\"], \"repo_locks\": {\"ttl\": \"3m\"}}]}";

/// Number of seconds by which the clocks of the servers are wrong.
const CLOCKS: [i64; 3] = [60, 0, -60];
/// Maximum time in seconds between reading a clock and comparing it.
const SLOWNESS: i64 = 30;

/// Time after the last fault within which all work must be done. Leases of dead servers expire within a minute;
/// failed requests are retried after waits that double.
const PATIENCE: Duration = Duration::from_mins(4);

/// Time for which a service manager tries to start a server.
const PERSISTENCE: Duration = Duration::from_mins(1);
const BETWEEN_STARTS: Duration = Duration::from_millis(500);

/// A world whose servers run.
pub struct World {
    pub backend: Backend,
    pub options: Options,
    pub number: u64,
    pub github: Emulator,
    /// Account of the servers on GitHub.
    pub bot: String,
    pub post: Postman,
    pub look: DatabaseView,
    pub servers: Vec<AsyncMutex<Server>>,
    wires: Vec<Wires>,
    /// Directory of the forge, the ledger and the plan files.
    pub dir: TempDir,
    record: Mutex<Record>,
    begun: Instant,
    _post: AbortOnDropHandle<()>,
}

struct Wires {
    github: Wire,
    database: Option<Wire>,
}

/// Properties that differ from world to world.
#[derive(Clone, Copy)]
struct Kind {
    /// Servers act as a GitHub App, with tokens that expire.
    is_app: bool,
    /// Plans are made of the branch, so that pull requests with the same files go on after one was merged.
    of_branch: bool,
}

impl Kind {
    /// Returns the kind of a world. Even the first worlds of a short run, one on each database, cover both values of
    /// each property.
    fn of(backend: Backend, number: u64) -> Self {
        let turn = number + u64::from(backend == Backend::Postgres);
        Self {
            is_app: !turn.is_multiple_of(2),
            of_branch: turn % 3 != 1,
        }
    }
}

/// Record of the events in a world.
#[derive(Default)]
pub struct Record {
    /// All pull requests of the repository.
    pub pulls: Vec<PullNumber>,
    /// All commits that were the head of a pull request.
    pub heads: BTreeSet<CommitSha>,
    /// Number of times that each kind of event happened.
    pub counts: BTreeMap<&'static str, usize>,
    /// Promises that were broken.
    pub broken: Vec<String>,
    /// Story of the world, line by line.
    pub story: Vec<String>,
    /// Counter that makes branches and files unique.
    pub serial: u64,
    /// Number of renames of the repository.
    pub renames: usize,
    /// True if the other repository was deleted.
    pub is_deleted: bool,
}

impl World {
    /// Starts a world with running servers.
    pub async fn begin(backend: Backend, options: &Options, number: u64) -> Arc<Self> {
        let dir = tempfile::Builder::new()
            .prefix("lockkeeper-chaos-")
            .tempdir()
            .expect("a temporary directory");
        let kind = Kind::of(backend, number);
        let (github, bot) = github(&dir.path().join("forge"), kind).await;
        let database = match backend {
            Backend::Sqlite => None,
            Backend::Postgres => Some(new_database(Content::Migrated).await),
        };
        let post = Postman::new(options.seed, number);
        let (mut servers, mut wires) = (Vec::new(), Vec::new());
        for n in 0..if backend == Backend::Sqlite { 1 } else { 3 } {
            let (wire, settings) = (
                Wires::new(&github, database.as_ref()).await,
                settings(dir.path(), kind),
            );
            let off = CLOCKS[(usize::try_from(number).expect("a small number") + n) % CLOCKS.len()];
            let settings = skewed::off_by(settings, off);
            let settings = match (&wire.database, &database) {
                (Some(wire), Some(url)) => settings.database(by_way_of(url, wire.address)),
                _ => settings,
            };
            let server =
                Server::start_at(&format!("http://{}/api/v3", wire.github.address), settings).await;
            post.moved(n, server.events().clone());
            let seen = skewed::clock_of(&post, n).await;
            assert!(
                (seen - off).abs() < SLOWNESS,
                "the clock of server {n} is off by {seen} s, not by {off} s"
            );
            servers.push(AsyncMutex::new(server));
            wires.push(wire);
        }
        let look = match database {
            Some(url) => DatabaseView::at(&url),
            None => DatabaseView::at(&servers[0].lock().await.database()),
        };
        let world = Arc::new(Self {
            backend,
            options: options.clone(),
            number,
            _post: post.work(&github),
            github,
            bot,
            post,
            look,
            servers,
            wires,
            dir,
            record: Mutex::default(),
            begun: Instant::now(),
        });
        let change = [Change::write(
            "p0/main.tf",
            "# fake: add 1 change 0 destroy 0\n",
        )];
        world
            .github
            .push(SHORT_LIVED, "short", &change)
            .await
            .expect("the repository exists");
        world
            .github
            .open_pull(SHORT_LIVED, NewPull::from_branch("short"))
            .await
            .expect("the branch exists");
        world
    }

    /// Returns the present name of the repository.
    pub fn repo(&self) -> &'static str {
        NAMES[self.record().renames % NAMES.len()]
    }

    /// Returns the wire of a server to its database, if there is one, or to GitHub.
    pub fn wire(&self, end: End, server: usize) -> Option<&Wire> {
        let wires = &self.wires[server % self.wires.len()];
        match end {
            End::GitHub => Some(&wires.github),
            End::Database => wires.database.as_ref(),
        }
    }

    /// Returns a server. It may have died or be about to start: the task that locks it decides.
    pub fn server(&self, n: usize) -> &AsyncMutex<Server> {
        &self.servers[self.index(n)]
    }

    /// Starts a stopped server, and retries as a service manager does, because a fault may prevent the start. Returns
    /// `false` if the start fails for longer than any fault lasts.
    pub async fn start(&self, n: usize, server: &mut Server) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < PERSISTENCE {
            if server.try_restart().await {
                self.post.moved(self.index(n), server.events().clone());
                return true;
            }
            self.count("starts in vain");
            tokio::time::sleep(BETWEEN_STARTS).await;
        }
        false
    }

    fn index(&self, n: usize) -> usize {
        n % self.servers.len()
    }

    /// Waits until no work is left. Otherwise it reports the remaining work.
    pub async fn quiet(&self) {
        // Jobs of a deleted repository are retried for an hour, because it may come back.
        const OPEN: &str = "SELECT kind, lane, state, CAST(attempt AS TEXT), COALESCE(last_error, '') FROM jobs \
                            WHERE state IN ('queued', 'running') AND lane NOT LIKE '%/acme/short-lived%' ORDER BY seq";
        // Late arrivals are only looked for when nothing can arrive any more. The time until then is skipped, and the
        // clocks of the servers that delayed these jobs may be wrong. Failed jobs wait as usual, because their
        // attempts are counted.
        const HASTEN: [&str; 2] = [
            "UPDATE jobs SET run_after = '2020-01-01T00:00:00+00:00' \
             WHERE kind IN ('remove_duplicates', 'repeat_status') AND state = 'queued' AND last_error IS NULL RETURNING kind",
            "UPDATE jobs SET run_after = TIMESTAMPTZ '2020-01-01 00:00:00Z' \
             WHERE kind IN ('remove_duplicates', 'repeat_status') AND state = 'queued' AND last_error IS NULL RETURNING kind",
        ];
        let hasten = HASTEN[usize::from(self.backend == Backend::Postgres)];
        for wires in &self.wires {
            wires.github.nothing_is_late().await;
        }
        let (begun, mut calm) = (Instant::now(), 0);
        while calm < 3 {
            self.look.rows(hasten).await;
            let open = self.look.rows(OPEN).await;
            // Comments of the bot are deliveries, too, and may be late.
            calm = if open.is_empty() && self.post.is_idle(&self.github) {
                calm + 1
            } else {
                0
            };
            if begun.elapsed() > PATIENCE {
                let open: Vec<String> = open.iter().map(|job| job.join(" | ")).collect();
                return self.broken(&format!(
                    "work is left after {PATIENCE:?}:\n    {}",
                    open.join("\n    ")
                ));
            }
            tokio::time::sleep(LOOK * 5).await;
        }
    }

    /// Returns the file in which the fake Terraform records each apply.
    pub fn ledger(&self) -> PathBuf {
        self.dir.path().join("ledger")
    }

    /// Returns the directory of plan files.
    pub fn plans(&self) -> PathBuf {
        self.dir.path().join("plans")
    }

    /// Locks the record. The guard must not be held across an await.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    /// Counts an event by its name.
    pub fn count(&self, what: &'static str) {
        *self.record().counts.entry(what).or_default() += 1;
    }

    /// Adds a line to the story.
    #[expect(
        clippy::print_stdout,
        reason = "a round that fails is to be played again from what was printed"
    )]
    pub fn say(&self, line: &str) {
        let time = self.begun.elapsed().as_secs_f32();
        let line = format!(
            "{} {}.{} {time:8.3} {line}",
            options::name(self.backend),
            self.options.seed,
            self.number
        );
        println!("{line}");
        self.record().story.push(line);
    }

    /// Records a broken promise.
    pub fn broken(&self, what: &str) {
        self.say(&format!("BROKEN: {what}"));
        self.record().broken.push(what.to_owned());
    }

    /// Copies everything that helps to find a cause to a place where it survives. Returns the place.
    pub async fn keep_traces(&self) -> PathBuf {
        let name = format!(
            "{}-{}-{}",
            options::name(self.backend),
            self.options.seed,
            self.number
        );
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("chaos")
            .join(name);
        std::fs::create_dir_all(&dir).expect("a directory for traces");
        let write = |file: &str, text: String| {
            std::fs::write(dir.join(file), text).expect("a file for traces");
        };
        write("story", self.record().story.join("\n"));
        write(
            "ledger",
            std::fs::read_to_string(self.ledger()).unwrap_or_default(),
        );
        for (n, server) in self.servers.iter().enumerate() {
            write(&format!("server-{n}.log"), server.lock().await.log());
        }
        for (file, sql) in TRACES {
            let lines: Vec<String> = self
                .look
                .rows(sql)
                .await
                .iter()
                .map(|row| row.join(" | "))
                .collect();
            write(file, lines.join("\n"));
        }
        let (repo, pulls) = (self.repo(), self.record().pulls.clone());
        let comments = |number: &PullNumber| {
            let comments = self.github.comments(repo, *number).unwrap_or_default();
            let texts = comments
                .iter()
                .map(|c| format!("#{number} {} by {}: {}\n", c.id, c.author, c.body));
            texts.collect::<String>()
        };
        let comments: String = pulls.iter().map(comments).collect();
        write("comments", comments);
        dir
    }
}

/// Queries whose results are kept as traces.
const TRACES: [(&str, &str); 7] = [
    (
        "jobs",
        "SELECT CAST(id AS TEXT), kind, lane, state, CAST(attempt AS TEXT), COALESCE(lease_holder, ''), \
         COALESCE(CAST(lease_until AS TEXT), ''), CAST(created_at AS TEXT), COALESCE(CAST(finished_at AS TEXT), ''), \
         COALESCE(last_error, '') FROM jobs ORDER BY seq",
    ),
    (
        "commands",
        "SELECT CAST(id AS TEXT), kind, CAST(pull AS TEXT), COALESCE(CAST(comment AS TEXT), ''), state, \
         COALESCE(outcome, ''), COALESCE(reason, ''), CAST(created_at AS TEXT), COALESCE(CAST(finished_at AS TEXT), '') \
         FROM commands ORDER BY created_at",
    ),
    (
        "runs",
        "SELECT CAST(id AS TEXT), CAST(command AS TEXT), kind, dir, state, COALESCE(outcome, ''), \
         COALESCE(message, ''), COALESCE(CAST(started_at AS TEXT), ''), COALESCE(CAST(finished_at AS TEXT), '') \
         FROM runs ORDER BY created_at",
    ),
    (
        "plans",
        "SELECT CAST(id AS TEXT), CAST(pull AS TEXT), dir, state, COALESCE(digest, '') FROM plans ORDER BY created_at",
    ),
    ("mirrors", MIRRORS),
    (
        "leases",
        "SELECT key, holder, purpose, CAST(taken_at AS TEXT), CAST(until AS TEXT) FROM leases ORDER BY key",
    ),
    (
        "locks",
        "SELECT CAST(id AS TEXT), dir, workspace, CAST(pull AS TEXT), holder, reason FROM locks",
    ),
];

/// Query for the state of each mirror.
pub const MIRRORS: &str = "SELECT replica, repo, state, verification, CAST(retry_count AS TEXT), \
     COALESCE(CAST(retry_at AS TEXT), ''), COALESCE(asked_by, ''), COALESCE(lease_holder, ''), COALESCE(failure, '') \
     FROM repository_syncs ORDER BY replica, repo";

impl Wires {
    async fn new(github: &Emulator, database: Option<&DatabaseUrl>) -> Self {
        let address = github
            .base_url()
            .trim_start_matches("http://")
            .parse()
            .expect("an address");
        let database = match database {
            Some(DatabaseUrl::Postgres(options)) => {
                Some(Wire::to(SocketAddr::from(([127, 0, 0, 1], options.get_port()))).await)
            }
            Some(DatabaseUrl::Sqlite(_)) | None => None,
        };
        Self {
            github: Wire::to(address).await,
            database,
        }
    }
}

/// Returns the address of the same database through a wire.
fn by_way_of(url: &DatabaseUrl, address: SocketAddr) -> DatabaseUrl {
    match url {
        DatabaseUrl::Sqlite(path) => DatabaseUrl::Sqlite(path.clone()),
        DatabaseUrl::Postgres(options) => {
            DatabaseUrl::Postgres(Box::new(options.as_ref().clone().port(address.port())))
        }
    }
}

async fn github(dir: &Path, kind: Kind) -> (Emulator, String) {
    let options = GitHubOptions::new(dir, Arc::new(SystemClock), Secret::new(WEBHOOK_SECRET));
    let (options, bot) = if kind.is_app {
        let app = AppOptions::new(APP_ID, "lockkeeper", 70, APP_PUBLIC_KEY);
        (options.with_app(app.clone()), app.bot_login())
    } else {
        (options.with_token(BOT, Secret::new(TOKEN)), BOT.to_owned())
    };
    let github = Emulator::start(options).await.expect("it starts");
    let files: Vec<String> = (0..PROJECTS).map(|n| format!("p{n}/main.tf")).collect();
    let code = files.iter().map(|path| (path.as_str(), "# nothing yet\n"));
    let files: Vec<(&str, &str)> = code.chain([("atlantis.yaml", LOCK_MODES)]).collect();
    github
        .create_repo(NAMES[0], &files)
        .await
        .expect("it is new");
    github
        .create_repo(SHORT_LIVED, &files)
        .await
        .expect("it is new");
    // The postman takes deliveries from here.
    github.set_delivering(Delivering::Held).await;
    (github, bot)
}

fn settings(dir: &Path, kind: Kind) -> Settings {
    let ledger = dir.join("ledger");
    File::options()
        .create(true)
        .append(true)
        .open(&ledger)
        .expect("the directory is ours");
    let settings = if kind.is_app {
        Settings::default().with_app()
    } else {
        Settings::default()
    };
    settings
        .writes(&ledger)
        .terraform(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes/terraform"))
        .survives_full_disks()
        .flag(&format!("--share-plan-dir={}", dir.join("plans").display()))
        .flag("--shutdown-grace=3s")
        .flag(RULES)
        .flag(if kind.of_branch {
            "--checkout-strategy=branch"
        } else {
            "--checkout-strategy=merge"
        })
        .flag("--fetch-timeout=5s")
        .flag("--web-basic-auth")
        .flag(&format!("--web-username={WEB_USER}"))
        .variable("LOCKKEEPER_WEB_PASSWORD", WEB_PASSWORD)
        .variable("TF_FAKE_LEDGER", &ledger.display().to_string())
        .variable("TF_FAKE_PACE", "0.3")
}
