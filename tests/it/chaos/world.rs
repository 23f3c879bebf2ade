//! One world: a GitHub, servers, the wires between them, and what has happened so far.

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

use super::look::Look;
use super::options::{self, Options};
use super::post::Postman;
use super::proxy::Wire;
use super::schedule::{End, PROJECTS};
use super::skewed;
use crate::support::db::Backend;
use crate::support::postgres::{Content, new_database};
use crate::support::server::{APP_ID, BOT, LOOK, Server, Settings, TOKEN, WEBHOOK_SECRET};

const APP_PUBLIC_KEY: &str = include_str!("../support/app_key.pub.pem");

/// The repository has one of these names, in turn.
pub const NAMES: [&str; 2] = ["acme/infra", "acme/platform"];
/// A repository with one pull, which is deleted in the first round.
pub const SHORT_LIVED: &str = "acme/short-lived";
/// Who may use the API.
pub const WEB_USER: &str = "ops";
/// With this password.
pub const WEB_PASSWORD: &str = "chaos-web-password";

/// Most projects are locked as usual; one only by its apply, and one not at all.
const LOCK_MODES: &str = "version: 3\n\
    autodiscover: {mode: enabled}\n\
    projects:\n\
    - {dir: p8, repo_locks: {mode: on_apply}}\n\
    - {dir: p9, repo_locks: {mode: disabled}}\n";
/// The repository may say that, and no lock is kept for long by somebody who does nothing: three
/// minutes, of which clocks that are off can take two.
const RULES: &str = "--repo-config-json=\
    {\"repos\": [{\"id\": \"/.*/\", \"allowed_overrides\": [\"repo_locks\"], \"repo_locks\": {\"ttl\": \"3m\"}}]}";

/// How many seconds the clocks of servers are off.
const CLOCKS: [i64; 3] = [60, 0, -60];
/// Between a clock that is read and its comparison.
const SLOWNESS: i64 = 30;

/// How long after the last fault everything must be done. Leases of the dead run out within a minute; what was tried in
/// vain is tried again after waits that double.
const PATIENCE: Duration = Duration::from_mins(4);

/// How long a service manager tries to start a server, and how long it waits between two tries.
const PERSISTENCE: Duration = Duration::from_mins(1);
const BETWEEN_STARTS: Duration = Duration::from_millis(500);

/// A world under way.
pub struct World {
    pub backend: Backend,
    pub options: Options,
    pub number: u64,
    pub github: Emulator,
    /// The account of the servers.
    pub bot: String,
    pub post: Postman,
    pub look: Look,
    pub servers: Vec<AsyncMutex<Server>>,
    wires: Vec<Wires>,
    /// The forge, the ledger, the plan files.
    pub dir: TempDir,
    record: Mutex<Record>,
    begun: Instant,
    _post: AbortOnDropHandle<()>,
}

struct Wires {
    github: Wire,
    database: Option<Wire>,
}

/// What differs from world to world.
#[derive(Clone, Copy)]
struct Kind {
    /// Servers act as a GitHub App, with tokens that end.
    is_app: bool,
    /// Plans are made of the branch, so that pulls with the same files go on after one was merged.
    of_branch: bool,
}

impl Kind {
    /// Even the first worlds of a short run, one on each database, are of both kinds.
    fn of(backend: Backend, number: u64) -> Self {
        let turn = number + u64::from(backend == Backend::Postgres);
        Self {
            is_app: !turn.is_multiple_of(2),
            of_branch: turn % 3 != 1,
        }
    }
}

/// What has happened.
#[derive(Default)]
pub struct Record {
    /// Every pull.
    pub pulls: Vec<PullNumber>,
    /// Every commit that was the head of a pull.
    pub heads: BTreeSet<CommitSha>,
    /// How often what was done.
    pub counts: BTreeMap<&'static str, usize>,
    /// Promises that were broken.
    pub broken: Vec<String>,
    /// Line by line.
    pub story: Vec<String>,
    /// Makes branches and files unlike any before.
    pub serial: u64,
    /// How often the repository was renamed.
    pub renames: usize,
    /// The other repository is gone.
    pub is_deleted: bool,
}

impl World {
    /// A world with servers that run.
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
            Some(url) => Look::at(&url),
            None => Look::at(&servers[0].lock().await.database()),
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

    /// The name of the repository, as it is now.
    pub fn repo(&self) -> &'static str {
        NAMES[self.record().renames % NAMES.len()]
    }

    /// The wire of a server to its database, if there is one, or to GitHub.
    pub fn wire(&self, end: End, server: usize) -> Option<&Wire> {
        let wires = &self.wires[server % self.wires.len()];
        match end {
            End::GitHub => Some(&wires.github),
            End::Database => wires.database.as_ref(),
        }
    }

    /// A server that may have died or be about to be started: whoever has it decides.
    pub fn server(&self, n: usize) -> &AsyncMutex<Server> {
        &self.servers[self.index(n)]
    }

    /// Starts a server that does not run, again and again as a service manager does: during a fault it may not be able
    /// to. `false` when it cannot for longer than any fault lasts.
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

    /// Waits until nothing is left to do; otherwise tells what is.
    pub async fn quiet(&self) {
        // Whatever is still wanted of a repository that is gone is tried for an hour, as long as it may come back.
        const OPEN: &str = "SELECT kind, lane, state, CAST(attempt AS TEXT), COALESCE(last_error, '') FROM jobs \
                            WHERE state IN ('queued', 'running') AND lane NOT LIKE '%/acme/short-lived%' ORDER BY seq";
        // What arrived late is looked for when nothing can arrive any more. Time flies until then; the clocks of those who put
        // these jobs off may be wrong. What failed waits as it does everywhere: its tries are counted.
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
            // What the bot says is a delivery, too, and may be late.
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

    /// Where the stand-in for Terraform notes each apply.
    pub fn ledger(&self) -> PathBuf {
        self.dir.path().join("ledger")
    }

    /// Where plan files are.
    pub fn plans(&self) -> PathBuf {
        self.dir.path().join("plans")
    }

    /// The record, for as long as nobody waits.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    /// Counts something.
    pub fn count(&self, what: &'static str) {
        *self.record().counts.entry(what).or_default() += 1;
    }

    /// A line of the story.
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

    /// A promise was broken.
    pub fn broken(&self, what: &str) {
        self.say(&format!("BROKEN: {what}"));
        self.record().broken.push(what.to_owned());
    }

    /// Puts everything that helps to find a cause where it survives, and tells where.
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

/// What is kept of the database.
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

/// Where each mirror stands.
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

/// The same database through a wire.
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
    // The postman takes them from here.
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
