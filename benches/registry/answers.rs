//! Measures answers to clients beside constant answers of the same size.

use std::path::Path;

use anyhow::Context as _;
use lockkeeper::store::DatabaseUrl;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::connection::{self, Load};
use super::constant::ConstantServer;
use super::office::{BenchRegistry, NAME};
use crate::locks::durable_postgres;
use crate::memory::Memory;
use crate::report::{Section, Table};
use crate::server::{self, Server};
use crate::stats::millis;

/// Numbers of connections. Each sends one request after the other.
const CONNECTIONS: [usize; 2] = [1, 64];
/// Number of versions of the modules with lists.
const VERSIONS: u32 = 100;
/// Sizes of files that no compression makes smaller, in bytes.
const SMALL: usize = 9_500;
const LARGE: usize = 5 << 20;

/// Kinds of requests, with the path of each.
const REQUESTS: [(&str, &str); 7] = [
    (".info", "/registry/go/example.com/net/@v/v1.0.0.info"),
    (".mod", "/registry/go/example.com/net/@v/v1.0.0.mod"),
    (".zip, 10 KB", "/registry/go/example.com/net/@v/v1.0.0.zip"),
    (
        ".zip, 5 MB",
        "/registry/go/example.com/net/large/@v/v1.0.0.zip",
    ),
    (
        "list of 100 Go versions",
        "/registry/go/example.com/net/@v/list",
    ),
    (
        "100 versions of a Terraform module",
        "/registry/v1/modules/acme/vpc/aws/versions",
    ),
    (
        "lookup in the log",
        "/registry/go/sumdb/mods.example.com/lookup/example.com/net@v1.0.0",
    ),
];

/// Measures the answers and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let constant = ConstantServer::start(work)?;
    let (postgres, version) = durable_postgres().await?;
    let head = [
        "answers",
        "bytes",
        "connections",
        "per second",
        "p50 ms",
        "p99 ms",
        "÷ constant",
    ];
    let mut table = Table::new(&head);
    let mut peaks = Vec::new();
    for database in [None, Some(&postgres)] {
        let name = database.map_or("SQLite", |_| "PostgreSQL");
        let dir = work.join(format!("answers-{name}"));
        let peak = answers(&dir, database, &constant, &mut table).await;
        peaks.push(format!("{name} {} MiB", peak.context(name)?));
    }
    let mut section = Section::new("The registry: answers to clients").with_table(table);
    section.note("*÷ constant*: answers per second, divided by those of a server that only sends as many constant bytes, over the same connections right before.");
    section.note("With a token, over loopback, from another process. Goals: 0.5 for `.info`, 0.8 for the zip of 5 MB.");
    section.note(format!(
        "Peak memory of the servers: {}. {version}",
        peaks.join(", ")
    ));
    Ok(section)
}

/// Measures a server, and returns its peak memory in MiB.
async fn answers(
    dir: &Path,
    database: Option<&DatabaseUrl>,
    constant: &ConstantServer,
    table: &mut Table,
) -> anyhow::Result<String> {
    std::fs::create_dir(dir)?;
    let office = BenchRegistry::open(dir, database, NAME).await?;
    publish(&office).await?;
    let (token, flags) = (office.token().await?, office.flags());
    office.close().await;
    let github = server::github(dir).await?;
    let server = Server::start_as(dir, &github, database, &flags).await?;
    let address = server.events.replace("http://", "").replace("/events", "");
    let name = database.map_or("SQLite", |_| "PostgreSQL");
    for (what, path) in REQUESTS {
        let request = connection::request(&address, path, &token);
        let size = connection::size(&address, &request)
            .await
            .with_context(|| format!("{what}\n{}", server.log()))?;
        let same = connection::request(&constant.address, &format!("/{size}"), &token);
        for connections in CONNECTIONS {
            let ceiling = connection::load(&constant.address, &same, connections).await?;
            let load = connection::load(&address, &request, connections)
                .await
                .context(what)?;
            table.row(
                format!("{name}, {what}"),
                cells(size, connections, &load, &ceiling),
            );
        }
    }
    let peak = Memory::peak(server.pid())?;
    server.stop().await?;
    Ok(peak)
}

fn cells(size: u64, connections: usize, load: &Load, ceiling: &Load) -> [String; 6] {
    [
        size.to_string(),
        connections.to_string(),
        format!("{:.0}", load.rate),
        millis(load.latency.quantile(50)),
        millis(load.latency.quantile(99)),
        format!("{:.2}", load.rate / ceiling.rate),
    ]
}

/// Publishes the modules that are requested.
async fn publish(office: &BenchRegistry) -> anyhow::Result<()> {
    office.add_namespace("go example.com/net").await?;
    office.add_namespace("module acme").await?;
    let mut dice = StdRng::seed_from_u64(7);
    let (mut small, mut large) = (vec![0_u8; SMALL], vec![0_u8; LARGE]);
    dice.fill_bytes(&mut small);
    dice.fill_bytes(&mut large);
    for version in 0..VERSIONS {
        let files: [(&str, &[u8]); 2] = [("go.mod", b"module example.com/net\n"), ("data", &small)];
        let key = format!("go example.com/net v1.0.{version}");
        office.publish(&key, &files).await?;
        let files: [(&str, &[u8]); 1] = [("main.tf", b"output \"size\" {\n  value = 1\n}\n")];
        let key = format!("module acme/vpc/aws 1.0.{version}");
        office.publish(&key, &files).await?;
    }
    let files: [(&str, &[u8]); 2] = [
        ("go.mod", b"module example.com/net/large\n"),
        ("data", &large),
    ];
    office
        .publish("go example.com/net/large v1.0.0", &files)
        .await
}
