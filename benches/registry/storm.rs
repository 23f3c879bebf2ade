//! Measures many clients that want the same version at once, which the server does not have and fetches from a repository.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use lockkeeper::store::DatabaseUrl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::{self, HttpConnection};
use super::office::{BenchRegistry, NAME};
use crate::locks::durable_postgres;
use crate::report::{Section, Table};
use crate::server::{self, Server};
use crate::stats::{Samples, millis};
use crate::support::outside::{CODE, Outside};

/// Number of clients, each with an address of its own.
const CLIENTS: u16 = 1_000;
/// Pause of a client between two requests.
const RETRY: Duration = Duration::from_millis(500);
/// Time after which the measurement fails.
const PATIENCE: Duration = Duration::from_mins(1);
/// Open files that the clients, the proxy and the server of the repositories need.
const OPEN_FILES: u64 = 4_096;
/// Repositories of the modules, and the rule for the first one: clients wait for its versions.
const WAITED: &str = "acme/waited.git";
const LATER: &str = "acme/later.git";
const RULE: &str = "go code.example.org/acme/waited.git=wait";
/// Requests to the repository in which one version is fetched: the list of tags, and the commit.
const GIT_REQUESTS: usize = 2;

/// First answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstAnswer {
    /// The server answered with the version.
    Content,
    /// The server answered with status 404.
    NotFound,
    /// The server answered with another status, or closed the connection.
    Refused,
}

/// A client that has got the version.
struct ServedClient {
    first: FirstAnswer,
    /// Time since all clients have begun.
    took: Duration,
}

/// Clients that all have got the version.
struct EndedStorm {
    /// Rule for the module, for the report.
    rule: &'static str,
    served: Vec<ServedClient>,
    /// Number of times that the repository was read.
    fetches: usize,
}

/// Measures the clients and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    raise_open_files()?;
    let outside = Outside::open().await;
    for repository in [WAITED, LATER] {
        let go_mod = format!("module {CODE}/{repository}\n");
        let files = [("go.mod", go_mod.as_str()), ("net.go", "package net\n")];
        outside.repository(repository, &files).tag("v1.0.0");
    }
    let (postgres, version) = durable_postgres().await?;
    let head = [
        "a missing version",
        "clients",
        "200 at first",
        "404 at first",
        "refused at first",
        "p50 ms",
        "all ms",
        "fetches",
    ];
    let (mut table, mut failures) = (Table::new(&head), Vec::new());
    for database in [None, Some(&postgres)] {
        let name = database.map_or("SQLite", |_| "PostgreSQL");
        let dir = work.join(format!("storm-{name}"));
        let storms = Box::pin(storms(&dir, database, &outside)).await;
        for ended in storms.context(name)? {
            let (rule, fetches) = (ended.rule, ended.fetches);
            if fetches != 1 {
                failures.push(format!("{name}, {rule}: {fetches} fetches of one version"));
            }
            table.row(format!("{name}, {rule}"), cells(&ended));
        }
    }
    let title = "The registry: many clients want one missing version";
    let mut section = Section::new(title).with_table(table);
    for why in failures {
        section.fail(why);
    }
    section.note("Each client has an address and a connection of its own, and one token is that of all. A client without the version asks again after 500 ms. *all*: until the last one has it.");
    section.note("The repository has two small files, and is reached over TLS and a proxy in the process of the clients. *refused*: the server has no place for the connection.");
    section.note(version);
    Ok(section)
}

/// Lets this process have as many open files as the clients need. Programs that it starts may have as many.
fn raise_open_files() -> anyhow::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    ensure!(
        hard >= OPEN_FILES,
        "{CLIENTS} clients need {OPEN_FILES} open files, and the limit is {hard}: raise it with `ulimit -Hn`"
    );
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(OPEN_FILES), hard)?;
    Ok(())
}

/// Measures both rules with a server.
async fn storms(
    dir: &Path,
    database: Option<&DatabaseUrl>,
    outside: &Outside,
) -> anyhow::Result<Vec<EndedStorm>> {
    std::fs::create_dir(dir)?;
    let office = BenchRegistry::open(dir, database, NAME).await?;
    let (token, flags) = (office.token().await?, office.flags());
    office.close().await;
    let more: [(&str, PathBuf); 2] = [
        ("--registry-vcs-allowlist", CODE.into()),
        ("--registry-on-miss", RULE.into()),
    ];
    let flags: Vec<(&str, PathBuf)> = flags.into_iter().chain(more).collect();
    let github = server::github(dir).await?;
    let variables = outside.variables();
    let server = Server::start_among(dir, &github, database, &flags, &variables).await?;
    let address = server.events.replace("http://", "").replace("/events", "");
    let mut ended = Vec::new();
    for (rule, repository) in [
        ("`wait`", WAITED),
        ("`background`, the default of Go", LATER),
    ] {
        let path = format!("/registry/go/{CODE}/{repository}/@v/v1.0.0.info");
        let request = connection::request(&address, &path, &token);
        let before = outside.git_requests();
        let answers = storm(address.parse()?, &request).await;
        let answers = answers.with_context(|| format!("{rule}\n{}", server.log()))?;
        let requests = outside.git_requests() - before;
        ended.push(EndedStorm {
            rule,
            served: answers,
            fetches: requests.div_ceil(GIT_REQUESTS),
        });
    }
    server.stop().await?;
    Ok(ended)
}

/// Lets all clients begin at once, and waits until each has the version.
async fn storm(address: SocketAddr, request: &str) -> anyhow::Result<Vec<ServedClient>> {
    let request: Arc<str> = request.into();
    let since = Instant::now();
    let mut running = JoinSet::new();
    for number in 1..=CLIENTS {
        let request = Arc::clone(&request);
        running.spawn(async move {
            let served = timeout(PATIENCE, client(number, address, &request, since)).await;
            served.with_context(|| format!("client {number} did not get the version in time"))?
        });
    }
    let mut served = Vec::new();
    while let Some(ended) = running.join_next().await {
        served.push(ended??);
    }
    Ok(served)
}

async fn client(
    number: u16,
    address: SocketAddr,
    request: &str,
    since: Instant,
) -> anyhow::Result<ServedClient> {
    let [high, low] = number.to_be_bytes();
    let own = Ipv4Addr::new(127, 1, high, low);
    let (mut connection, mut first) = (None, None);
    loop {
        let status = attempt(&mut connection, own, address, request).await;
        let answer = match status {
            Ok(200) => FirstAnswer::Content,
            Ok(404) => FirstAnswer::NotFound,
            Ok(_) | Err(_) => FirstAnswer::Refused,
        };
        let first = *first.get_or_insert(answer);
        if answer == FirstAnswer::Content {
            let took = since.elapsed();
            return Ok(ServedClient { first, took });
        }
        sleep(RETRY).await;
    }
}

/// Sends a request over the connection, or over a new one. Returns the status. A connection that fails is not used again.
async fn attempt(
    connection: &mut Option<HttpConnection>,
    own: Ipv4Addr,
    address: SocketAddr,
    request: &str,
) -> anyhow::Result<u16> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => HttpConnection::open_from(own.into(), address).await?,
    };
    let (status, _size) = open.ask(request.as_bytes()).await?;
    *connection = Some(open);
    Ok(status)
}

fn cells(
    EndedStorm {
        served, fetches, ..
    }: &EndedStorm,
) -> [String; 7] {
    let first = |wanted: FirstAnswer| {
        let clients = served.iter().filter(|client| client.first == wanted);
        clients.count().to_string()
    };
    let took: Samples = served.iter().map(|client| client.took).collect();
    [
        served.len().to_string(),
        first(FirstAnswer::Content),
        first(FirstAnswer::NotFound),
        first(FirstAnswer::Refused),
        millis(took.quantile(50)),
        millis(took.quantile(100)),
        fetches.to_string(),
    ]
}
