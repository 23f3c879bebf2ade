//! Measures how long another deployment needs to read a log with many versions for the first time.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use lockkeeper::features::registry::{
    JoinRequest, NamePatterns, NewInvitation, PeerTerms, Visibility,
};
use lockkeeper::secret::Secret;
use lockkeeper::store::DatabaseUrl;

use super::long_log::fill;
use super::office::{BenchRegistry, cause};
use crate::locks::durable_postgres;
use crate::report::{Section, Table};
use crate::server::{self, Server};

/// Name of the deployment with the log.
const SOURCE: &str = "one.example.com";
/// Names that are exchanged.
const SHARED: &str = "module acme/*";
/// Address of the readers, which do not listen.
const NOBODY: &str = "http://127.0.0.1:9";

/// Measures both databases and returns the section of the report.
pub async fn measure(work: &Path, versions: u64) -> anyhow::Result<Section> {
    let (postgres, version) = durable_postgres().await?;
    let dir = work.join("source");
    let source = BenchRegistry::open(&dir, None, SOURCE).await?;
    source.add_namespace("module acme").await?;
    let files: [(&str, &[u8]); 1] = [("main.tf", b"output \"size\" {\n  value = 1\n}\n")];
    source.publish("module acme/vpc/aws 1.0.0", &files).await?;
    fill(&source, versions).await?;
    let (flags, mut words) = (source.flags(), Vec::new());
    let exchange = source.exchange()?;
    for _ in 0..2 {
        let invitation = NewInvitation {
            url: NOBODY.parse()?,
            shares: patterns()?,
            accepts: NamePatterns::default(),
            visibility: Visibility::Public,
            expires: Duration::from_hours(1),
        };
        let secret_word = exchange.invite(invitation, &cause()).await?;
        words.push(secret_word.context("there are too many invitations")?);
    }
    drop(exchange);
    source.close().await;
    let github = server::github(&dir).await?;
    let server = Server::start_as(&dir, &github, None, &flags).await?;
    let mut table = Table::new(&["database of the reader", "versions", "s", "versions/s"]);
    let readers = [
        ("SQLite", "two.example.com", None),
        ("PostgreSQL", "three.example.com", Some(&postgres)),
    ];
    for ((name, deployment, database), secret_word) in readers.into_iter().zip(words) {
        let dir = work.join(deployment);
        let reader = Reader {
            dir: &dir,
            deployment,
            database,
        };
        let took = reader
            .read(&server, secret_word, versions)
            .await
            .context(name)?;
        let rate = f64::from(u32::try_from(versions)?) / took.as_secs_f64();
        table.row(
            name,
            [
                versions.to_string(),
                format!("{:.1}", took.as_secs_f64()),
                format!("{rate:.0}"),
            ],
        );
    }
    server.stop().await?;
    let mut section =
        Section::new("The registry: another deployment reads the log").with_table(table);
    section.note("From the first page until everything is merged: heads, proofs and signatures are verified. Packages are not in it. Goal: 100,000 versions in 60 s.");
    section.note(format!(
        "The source is a server with SQLite, in a process of its own. Both databases are durable. {version}"
    ));
    Ok(section)
}

fn patterns() -> anyhow::Result<NamePatterns> {
    Ok(SHARED.parse()?)
}

/// A deployment that joins and reads.
struct Reader<'a> {
    dir: &'a Path,
    deployment: &'static str,
    database: Option<&'a DatabaseUrl>,
}

impl Reader<'_> {
    /// Joins, reads everything, and returns how long the reading took.
    async fn read(
        &self,
        server: &Server,
        secret_word: Secret,
        versions: u64,
    ) -> anyhow::Result<Duration> {
        let reader = BenchRegistry::open(self.dir, self.database, self.deployment).await?;
        let exchange = reader.exchange()?;
        let request = JoinRequest {
            url: server.events.replace("/events", "").parse()?,
            word: secret_word,
            shares: NamePatterns::default(),
            accepts: patterns()?,
            visibility: Visibility::Public,
        };
        let joined = exchange.join(request, &cause()).await?;
        joined.with_context(|| format!("cannot join\n{}", server.log()))?;
        // A peer may add fewer versions, unless an administrator changes that.
        let terms = PeerTerms {
            max_versions: Some(2 * versions),
            ..PeerTerms::default()
        };
        let (source, cause) = (SOURCE.parse()?, cause());
        let store = reader.registry.store();
        let changed = store.registry_peer_change(&source, &terms, &cause).await?;
        changed.context("there is no such peer")?;
        let (since, mut merged) = (Instant::now(), 0);
        while merged < versions {
            let report = exchange.pull_all().await?;
            merged += report.records;
            if report.records == 0 {
                let peers = reader.registry.store().registry_peers().await?;
                let errors: Vec<String> = peers
                    .into_iter()
                    .filter_map(|peer| Some(peer.error?.0))
                    .collect();
                bail!("only {merged} records came: {}", errors.join(", "));
            }
        }
        let took = since.elapsed();
        let verified = reader.registry.verify(false).await?;
        ensure!(verified.is_ok(), "what was merged is wrong: {verified:?}");
        drop(exchange);
        reader.close().await;
        Ok(took)
    }
}
