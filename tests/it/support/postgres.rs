//! A temporary PostgreSQL cluster, one per test process.
//!
//! The first test that needs it starts it in a temporary directory. A small shell, the keeper, starts it and then
//! reads its standard input, a pipe whose other end only the test process holds. When the test process ends, even by
//! a crash, the keeper reads the end of file, stops the server and removes the directory.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lockkeeper::clock::{ManualClock, RandomIds};
use lockkeeper::store::{DatabaseUrl, Store};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use sqlx_postgres::PgConnectOptions;
use tokio::sync::OnceCell;

/// Script of the keeper. Its arguments are the directory, the folder with PostgreSQL's programs, and the port.
/// PostgreSQL refuses to run as root.
const KEEPER: &str = r#"
set -eu
trap '' HUP INT TERM
dir=$1 bin=$2 port=$3
if [ "$(id -u)" = 0 ]; then
    chown postgres "$dir"
    as() { runuser -u postgres -- "$@"; }
else
    as() { "$@"; }
fi
cd "$dir"
finish() { as "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1 || true; cd /; rm -rf "$dir"; }
trap finish EXIT
as "$bin/initdb" -D "$dir/data" -A trust -U postgres --no-sync -E UTF8 --locale=C 2>&1
cat >>"$dir/data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = ''
max_connections = 600
shared_buffers = 64MB
fsync = off
full_page_writes = off
autovacuum = off
wal_level = minimal
max_wal_senders = 0
CONF
as "$bin/pg_ctl" -D "$dir/data" -w -s -l "$dir/data/log" start 2>&1 || { cat "$dir/data/log"; exit 1; }
echo ready
cat >/dev/null
"#;

/// Number of start attempts. Another program on this machine may take the free port before the server does.
const START_TRIES: usize = 5;

/// Statement that creates a database with the collation of a usual cluster, so that no test relies on the order of
/// bytes.
const MIGRATED: &str =
    "CREATE DATABASE migrated TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'";
const EMPTY: &str =
    "CREATE DATABASE empty TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'";

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
static DATABASES: AtomicU64 = AtomicU64::new(0);
/// The existing databases, each with the thread that requested it.
static MADE: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

struct Cluster {
    port: u16,
    /// Clause that has new databases copied as files, which takes a third of the time that writing them to the log does.
    /// PostgreSQL before 15 knows no other way, and no clause.
    strategy: &'static str,
    /// Holds the pipe until the process ends.
    _keeper: Child,
}

/// Initial content of a new database.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// All tables, with every migration applied.
    Migrated,
    /// No tables at all.
    Empty,
}

/// Creates a database that no other test uses.
pub async fn new_database(content: Content) -> DatabaseUrl {
    let cluster = CLUSTER.get_or_init(Cluster::start).await;
    let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    let template = match content {
        Content::Migrated => "migrated",
        Content::Empty => "empty",
    };
    let strategy = cluster.strategy;
    cluster
        .run(&format!(
            "CREATE DATABASE {name} TEMPLATE {template} {strategy}"
        ))
        .await;
    let url = cluster.url(&name);
    MADE.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((this_thread(), name));
    url
}

fn this_thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

/// Removes the databases of a test. All of them together would take more memory than many machines have.
pub fn drop_databases_of(thread: &str) {
    let own: Vec<String> = {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.extract_if(.., |(by, _)| by == thread)
            .map(|(_, name)| name)
            .collect()
    };
    let Some(cluster) = CLUSTER.get().filter(|_| !own.is_empty()) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(async {
        for name in own {
            cluster
                .run(&format!("DROP DATABASE {name} WITH (FORCE)"))
                .await;
        }
    });
}

impl Cluster {
    async fn start() -> Self {
        let cluster = tokio::task::spawn_blocking(start_cluster)
            .await
            .expect("starting a cluster does not panic");
        let mut cluster =
            cluster.unwrap_or_else(|log| panic!("PostgreSQL did not start; it said:\n{log}"));
        if cluster.has_strategies().await {
            cluster.strategy = "STRATEGY FILE_COPY";
        }
        cluster.run(MIGRATED).await;
        cluster.run(EMPTY).await;
        let clock = ManualClock::new(super::db::start_of_time());
        let store = Store::open(
            &cluster.url("migrated"),
            Arc::new(clock),
            Arc::new(RandomIds),
        )
        .await;
        store
            .expect("the migrations apply to an empty database")
            .close()
            .await;
        cluster
    }

    /// Returns true from PostgreSQL 15 on.
    async fn has_strategies(&self) -> bool {
        let mut connection = self.connect().await;
        let version: String = sqlx::query_scalar("SHOW server_version_num")
            .fetch_one(&mut connection)
            .await
            .expect("every version says which it is");
        version
            .parse::<u32>()
            .is_ok_and(|version| version >= 150_000)
    }

    async fn connect(&self) -> sqlx_postgres::PgConnection {
        let options: PgConnectOptions = self
            .address("postgres")
            .parse()
            .expect("our own address is well-formed");
        options
            .connect()
            .await
            .expect("the cluster accepts connections")
    }

    async fn run(&self, sql: &str) {
        let mut connection = self.connect().await;
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
        connection.close().await.expect("the connection is idle");
    }

    fn address(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    fn url(&self, database: &str) -> DatabaseUrl {
        self.address(database)
            .parse()
            .expect("our own address is well-formed")
    }
}

fn start_cluster() -> Result<Cluster, String> {
    let programs = find_programs();
    let mut log = String::new();
    for _ in 0..START_TRIES {
        match try_start(&programs, free_port()) {
            Ok(cluster) => return Ok(cluster),
            Err(said) => log = said,
        }
    }
    Err(log)
}

/// Waits for the keeper's `ready`. Returns its output if it fails.
fn try_start(programs: &Path, port: u16) -> Result<Cluster, String> {
    let dir = tempfile::Builder::new()
        .prefix("lockkeeper-pg-")
        .tempdir()
        .expect("a temporary directory can be made");
    let mut keeper = keeper_command(&dir.keep(), programs, port)
        .spawn()
        .expect("every system has a shell");
    let mut lines = BufReader::new(keeper.stdout.take().expect("stdout is a pipe")).lines();
    let mut said = String::new();
    while let Some(Ok(line)) = lines.next() {
        if line == "ready" {
            return Ok(Cluster {
                port,
                strategy: "",
                _keeper: keeper,
            });
        }
        said += &(line + "\n");
    }
    keeper.wait().expect("the keeper is our child");
    Err(said)
}

/// Starts the keeper in its own process group, so that an interrupted test run does not interrupt the cleanup.
#[expect(
    clippy::disallowed_methods,
    reason = "process::Cmd would end the keeper before it has cleaned up"
)]
fn keeper_command(dir: &Path, programs: &Path, port: u16) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", KEEPER, "sh"])
        .arg(dir)
        .arg(programs)
        .arg(port.to_string());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

/// Returns the newest of the folders that contain all necessary programs.
fn find_programs() -> PathBuf {
    let complete = |dir: &PathBuf| {
        ["initdb", "pg_ctl", "postgres"]
            .iter()
            .all(|name| dir.join(name).exists())
    };
    let debian = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut folders: Vec<PathBuf> = debian
        .map(|entry| entry.path().join("bin"))
        .filter(complete)
        .collect();
    folders.sort_by_key(|path| {
        path.components()
            .rev()
            .nth(1)
            .and_then(|v| v.as_os_str().to_str()?.parse::<u32>().ok())
    });
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&on_path).find(complete);
    on_path
        .or(folders.pop())
        .expect("PostgreSQL's `initdb`, `pg_ctl` and `postgres` were not found: run `make setup`")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    listener
        .local_addr()
        .expect("a bound socket has an address")
        .port()
}
