//! A server as a value: started on a listener, told to close, stopped. `lockkeeper server` and the demo run the same.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use chrono::TimeDelta;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::connections::{Admission, Limits, Peers, WebServer};
use super::tls::Certificate;
use super::{Parts, Replica, build, descriptors, loops, reload, web};
use crate::clock::{Ids, RandomIds, SystemClock};
use crate::config::server::{Database, ServerConfig, StorageConfig};
use crate::context::Ctx;
use crate::leases::LeaseKey;
use crate::process::Hold;
use crate::store::ReplicaId;
use crate::telemetry::Panics;

/// Comments and statuses of the last runs get this long to be posted; what is left is posted after the next start.
const POST_LAST_WORDS: Duration = Duration::from_secs(5);

/// How often a server that is to end looks whether its work has.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A killed process ends at once, unless it waits for a disk.
const GIT_ENDS: Duration = Duration::from_mins(1);

/// Later than the end of any lease.
const EVERY_LEASE: TimeDelta = TimeDelta::days(3650);

/// What the server finds around it.
pub struct Surroundings {
    /// Its environment.
    pub variables: BTreeMap<String, String>,
    /// Name of the machine.
    pub hostname: String,
}

/// A server that runs. Dropping it breaks everything off; [`Self::stop`] is the good end.
pub struct Server {
    replica: Arc<Replica>,
    address: SocketAddr,
    /// No new command is begun.
    closing: CancellationToken,
    /// Nothing is done any more.
    ended: CancellationToken,
    workers: JoinSet<()>,
    _web: AbortOnDropHandle<()>,
    _only_one: Vec<File>,
}

impl Server {
    /// Opens everything, takes up what an earlier server left, and serves on the listener.
    pub async fn start(
        listener: TcpListener,
        config: &ServerConfig,
        surroundings: Surroundings,
    ) -> anyhow::Result<Self> {
        build::own_dir(&config.storage.data_dir).with_context(|| {
            format!(
                "cannot make the data directory {} (--data-dir)",
                config.storage.data_dir.display()
            )
        })?;
        if let Some(warning) =
            build::open_to_others(&config.storage.data_dir, config.sandbox.run_as)
        {
            warn!("{warning}");
        }
        let only_one = only_one(&config.storage)?;
        end_git(&build::git_hold(&config.storage.data_dir)).await?;
        empty(&build::scratch(&config.storage.data_dir))?;
        let address = listener
            .local_addr()
            .context("cannot tell on which address the server listens")?;
        let replica = Arc::new(replica(config, surroundings, address).await?);
        reload::show(&replica.ctx);
        replica
            .tick_leases()
            .await
            .context("cannot tell the database that this server is there")?;
        let (closing, ended) = (replica.ctx.closing.clone(), CancellationToken::new());
        let router = web::router(&replica.ctx, config, closing.clone()).await?;
        let peers = peers(&listener, &replica.ctx)?;
        let web = web_server(router, config, &replica.ctx)?
            .keeping_away_runs(peers)
            .serve(listener, ended.clone());
        web::tell_use(config);
        info!(%address, replica = %replica.name(), url = replica.ctx.settings.public_url, "Lockkeeper is ready");
        Ok(Self {
            workers: loops::start(&replica, &closing, &ended),
            _web: AbortOnDropHandle::new(tokio::spawn(web)),
            _only_one: only_one,
            replica,
            address,
            closing,
            ended,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its services.
    pub fn ctx(&self) -> &Arc<Ctx> {
        &self.replica.ctx
    }

    /// How many jobs are being worked on.
    pub fn runs(&self) -> usize {
        self.replica.running.count()
    }

    /// Reads the files of `--repo-config` and `--web-accounts-file` again, and says in the log what came of it.
    pub async fn reload(&self) {
        let look = self.replica.tick_repo_config().await;
        reload::tell("--repo-config", look, self.ctx().live.file());
        let look = self.replica.tick_web_accounts().await;
        reload::tell(
            "--web-accounts-file",
            look,
            self.ctx().settings.web_accounts.file(),
        );
    }

    /// Begins no new command; those under way go on.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Interrupts the runs under way: a plan is made again after the next start, an apply reports how far it came.
    pub fn interrupt(&self) {
        self.replica.ctx.interrupt.cancel();
    }

    /// Waits until nothing is worked on, and for a moment more until what the last commands had to say is posted.
    pub async fn drained(&self) {
        while self.runs() > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let posted = async {
            while self.has_something_to_say().await {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(POST_LAST_WORDS, posted).await.ok();
    }

    async fn has_something_to_say(&self) -> bool {
        let open = self.replica.ctx.store.job_list_open().await;
        open.is_ok_and(|jobs| jobs.iter().any(|job| job.kind != "run_command"))
    }

    /// Begins nothing new, waits for what is under way, and ends.
    pub async fn stop(mut self) {
        self.close();
        self.drained().await;
        self.ended.cancel();
        let workers = async { while self.workers.join_next().await.is_some() {} };
        tokio::time::timeout(POST_LAST_WORDS, workers).await.ok();
        // Those that are at a mirror write that they were interrupted, so that nobody has to find that out.
        tokio::time::timeout(POST_LAST_WORDS, self.replica.ctx.syncer.idle())
            .await
            .ok();
        if let Err(error) = self.replica.end().await {
            warn!(%error, "The other replicas could not be told of the end; they miss this one when its lease ends");
        }
        self.replica.ctx.store.close().await;
        info!("Lockkeeper has stopped");
    }
}

/// Answers requests, with TLS if there is a certificate, on as many connections as there are descriptors for.
fn web_server(router: Router, config: &ServerConfig, ctx: &Ctx) -> anyhow::Result<WebServer> {
    let certificate = config.web.tls.clone().map(Certificate::open).transpose()?;
    let limits = Limits::within(descriptors::limit());
    info!(
        in_all = limits.in_all,
        per_address = limits.per_address,
        "Connections to the web server are limited"
    );
    let admission = Admission::new(
        limits,
        config.web.trusted_proxies.clone(),
        ctx.metrics.clone(),
    );
    Ok(WebServer::new(router, certificate.map(Arc::new), admission))
}

/// What keeps runs from the pages; `None`: runs are not separated from the server anyway.
fn peers(listener: &TcpListener, ctx: &Ctx) -> anyhow::Result<Option<Peers>> {
    let sandbox = &ctx.terraform.plans.sandbox;
    if sandbox.mechanism().is_none() && sandbox.user().is_none() {
        return Ok(None);
    }
    Peers::new(listener, sandbox.user()).context("cannot tell on which address the server listens")
}

async fn replica(
    config: &ServerConfig,
    surroundings: Surroundings,
    address: SocketAddr,
) -> anyhow::Result<Replica> {
    let ids = RandomIds;
    let name = format!("{}-{}", surroundings.hostname, ids.next());
    let id = ReplicaId {
        name: name.clone(),
        address: format!("{}:{}", surroundings.hostname, address.port()),
        host: surroundings.hostname,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let panics = Panics::new(Arc::new(SystemClock));
    panics.watch();
    let parts = Parts {
        clock: Arc::new(SystemClock),
        ids: Arc::new(ids),
        panics,
        exe: std::env::current_exe().context("cannot tell where the lockkeeper executable is")?,
        environment: surroundings.variables,
        name,
    };
    let ctx = build(config, parts).await?;
    take_over(&ctx).await?;
    Ok(Replica::known_as(ctx, id))
}

/// Two servers on one data directory would tread on each other's checkouts, two on one file of SQLite would take over
/// each other's work.
fn only_one(storage: &StorageConfig) -> anyhow::Result<Vec<File>> {
    let mut files = vec![lock(
        &storage.data_dir.join("lockkeeper.lock"),
        "data directory (--data-dir)",
    )?];
    if let Database::Sqlite(path) = &storage.database {
        let mut beside = path.clone().into_os_string();
        beside.push(".lock");
        files.push(lock(Path::new(&beside), "database file (--database-url)")?);
    }
    Ok(files)
}

/// Ends git processes that outlived an earlier server of the data directory, which was killed. They could still write into
/// mirrors whose leases are about to be free. What they leave behind is what a killed git leaves.
async fn end_git(hold: &Path) -> anyhow::Result<()> {
    let ended = Hold::by_force(hold, GIT_ENDS).await;
    let (_hold, killed) = ended.context(
        "git processes of an earlier server of this data directory do not end, although they were killed; a disk that does not \
         answer can be the cause",
    )?;
    if killed > 0 {
        info!(
            processes = killed,
            "Ended git processes that an earlier server left behind"
        );
    }
    Ok(())
}

/// Removes what an earlier server left that was killed. A run that outlives its server has read what it needs of it.
fn empty(scratch: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(scratch) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot empty {}", scratch.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn lock(path: &Path, what: &str) -> anyhow::Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            bail!(
                "another Lockkeeper uses this {what}: it holds {}",
                path.display()
            )
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// Whoever held the mirrors of this data directory is gone, because we hold its lock, and so is their git; commands that need
/// one do not wait until others miss the dead one. On a database of our own every job that is marked as running was left by
/// an earlier server, too.
async fn take_over(ctx: &Ctx) -> anyhow::Result<()> {
    if ctx.store.is_shared() {
        let beginning = LeaseKey::beginning_of_home(ctx.syncer.home().as_str());
        let mirrors = ctx.store.lease_end_all_of(&beginning).await?;
        if mirrors > 0 {
            info!(
                mirrors,
                "Taking over mirrors that an earlier server of this data directory was at"
            );
        }
        return Ok(());
    }
    ctx.store.replica_end_all().await?;
    let orphans = ctx
        .store
        .job_requeue_orphans(ctx.clock.now() + EVERY_LEASE)
        .await?;
    if orphans > 0 {
        info!(orphans, "Taking up work that an earlier server left");
    }
    Ok(())
}
