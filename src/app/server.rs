//! Represents a server as a value: started on a listener, closed, and stopped. `lockkeeper server` and the demo use
//! the same one.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
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

use super::connections::{ConnectionAdmission, ConnectionLimits, Peers, WebServer};
use super::tls::Certificate;
use super::{Replica, ServiceInputs, build, descriptors, loops, reload, web};
use crate::clock::{Ids, RandomIds, SystemClock};
use crate::config::server::{Database, ServerConfig, StorageConfig, TrustedProxies};
use crate::context::ServerCtx;
use crate::kit::reconcile::TickResult;
use crate::leases::LeaseKey;
use crate::process::FileHold;
use crate::store::ReplicaId;
use crate::telemetry::Panics;

/// Time to post the comments and statuses of the last runs. The rest is posted after the next start.
const POST_LAST_WORDS: Duration = Duration::from_secs(5);

/// Time between two checks whether the work of an ending server is finished.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time for killed git processes to end. A killed process ends at once, unless it waits for a disk.
const GIT_ENDS: Duration = Duration::from_mins(1);

/// Time span that is longer than any lease.
const EVERY_LEASE: TimeDelta = TimeDelta::days(3650);

/// Facts about the process and its machine.
pub struct ProcessFacts {
    /// Environment variables of the server.
    pub variables: BTreeMap<String, String>,
    pub hostname: String,
}

/// A running server. Dropping it aborts all work; [`Self::stop`] ends it gracefully.
pub struct Server {
    replica: Arc<Replica>,
    address: SocketAddr,
    /// Cancelled when no new command begins.
    closing: CancellationToken,
    /// Cancelled when all work has ended.
    ended: CancellationToken,
    workers: JoinSet<()>,
    _web: AbortOnDropHandle<()>,
    /// Serves modules to runs, if they use the registry.
    _modules: Option<AbortOnDropHandle<()>>,
    _only_one: Vec<File>,
}

impl Server {
    /// Opens all resources, continues the work that an earlier server left, and serves on the listener.
    pub async fn start(
        listener: TcpListener,
        config: &ServerConfig,
        surroundings: ProcessFacts,
    ) -> anyhow::Result<Self> {
        build::own_dir(&config.storage.data_dir).with_context(|| {
            format!(
                "cannot create the data directory {} (--data-dir)",
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
            .context("cannot determine the address that the server listens on")?;
        let replica = Arc::new(replica(config, surroundings, address).await?);
        reload::show(&replica.ctx);
        replica
            .tick_leases()
            .await
            .context("cannot register this server in the database")?;
        let (closing, ended) = (replica.ctx.closing.clone(), CancellationToken::new());
        let routers = web::routers(&replica.ctx, config, closing.clone()).await?;
        let limits = ConnectionLimits::within(descriptors::limit());
        let (limits, modules) = match routers.runs {
            Some(router) => {
                let (public, of_runs) = limits.with_runs();
                let serving = serve_runs(router, &replica.ctx, of_runs, ended.clone());
                (public, Some(serving.await?))
            }
            None => (limits, None),
        };
        let peers = peers(&listener, &replica.ctx)?;
        let web = web_server(routers.public, config, limits, &replica.ctx)?
            .keeping_away_runs(peers)
            .serve(listener, ended.clone());
        web::log_web_access(config);
        info!(%address, replica = %replica.name(), url = replica.ctx.settings.base_url, "Lockkeeper is ready");
        Ok(Self {
            workers: loops::start(&replica, &closing, &ended),
            _web: AbortOnDropHandle::new(tokio::spawn(web)),
            _modules: modules,
            _only_one: only_one,
            replica,
            address,
            closing,
            ended,
        })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the services of this server.
    pub fn ctx(&self) -> &Arc<ServerCtx> {
        &self.replica.ctx
    }

    /// Counts the jobs that are being worked on.
    pub fn runs(&self) -> usize {
        self.replica.running.count()
    }

    /// Reads the files of `--repo-config` and `--web-accounts-file` again, and logs the result.
    pub async fn reload(&self) {
        let look = self.replica.tick_repo_config().await;
        reload::log_result("--repo-config", look, self.ctx().live.file());
        let look = self.replica.tick_web_accounts().await;
        reload::log_result(
            "--web-accounts-file",
            look,
            self.ctx().settings.web_accounts.file(),
        );
    }

    /// Runs the reconciler of that name now. The demo does not wait for timers.
    pub async fn tick(&self, name: &str) -> anyhow::Result<TickResult> {
        self.replica.tick(name).await
    }

    /// Begins no new command. Running commands continue.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Interrupts all runs: a plan is made again after the next start, an apply reports how far it came.
    pub fn interrupt(&self) {
        self.replica.ctx.runs.interrupt.cancel();
    }

    /// Waits until no job is running, and for a short time until the replies of the last commands are posted.
    pub async fn drained(&self) {
        while self.runs() > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let posted = async {
            while self.has_outbox_jobs().await {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(POST_LAST_WORDS, posted).await.ok();
    }

    async fn has_outbox_jobs(&self) -> bool {
        let open = self.replica.ctx.store.job_list_open().await;
        open.is_ok_and(|jobs| jobs.iter().any(|job| job.kind != "run_command"))
    }

    /// Begins no new work, waits for the current work, and ends.
    pub async fn stop(mut self) {
        self.close();
        self.drained().await;
        self.ended.cancel();
        let workers = async { while self.workers.join_next().await.is_some() {} };
        tokio::time::timeout(POST_LAST_WORDS, workers).await.ok();
        // Running syncs of mirrors record that they were interrupted, so that nobody has to find out.
        tokio::time::timeout(POST_LAST_WORDS, self.replica.ctx.server.syncer.idle())
            .await
            .ok();
        if let Err(error) = self.replica.end().await {
            warn!(%error, "Could not notify the other replicas; they take over when the lease of this server expires");
        }
        if let Some(flags) = &self.replica.ctx.server.flag_store {
            flags.close().await;
        }
        self.replica.ctx.store.close().await;
        info!("Lockkeeper has stopped");
    }
}

/// Builds the web server, with TLS if there is a certificate.
fn web_server(
    router: Router,
    config: &ServerConfig,
    limits: ConnectionLimits,
    ctx: &ServerCtx,
) -> anyhow::Result<WebServer> {
    let certificate = config.web.tls.clone().map(Certificate::open).transpose()?;
    info!(
        in_all = limits.in_all,
        per_address = limits.per_address,
        "Limited the connections to the web server"
    );
    let admission = ConnectionAdmission::new(
        limits,
        config.web.trusted_proxies.clone(),
        ctx.metrics.clone(),
    );
    Ok(WebServer::new(router, certificate.map(Arc::new), admission))
}

/// Serves modules to the runs of this server, until it ends: runs outlive the moment in which it begins no more work.
async fn serve_runs(
    router: Router,
    ctx: &ServerCtx,
    limits: ConnectionLimits,
    ended: CancellationToken,
) -> anyhow::Result<AbortOnDropHandle<()>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.context("cannot listen on the loopback interface for runs")?;
    let address = listener
        .local_addr()
        .context("cannot determine the address that serves modules to runs")?;
    let admission =
        ConnectionAdmission::new(limits, TrustedProxies::default(), ctx.metrics.clone());
    let serving = WebServer::new(router, None, admission).serve(listener, ended);
    let serving = AbortOnDropHandle::new(tokio::spawn(serving));
    ctx.runs.registry.open(address);
    info!(%address, "Runs get modules from the registry (--no-registry-for-runs turns it off)");
    Ok(serving)
}

/// Builds the check that keeps runs from the pages. `None` if runs are not separated from the server anyway.
fn peers(listener: &TcpListener, ctx: &ServerCtx) -> anyhow::Result<Option<Peers>> {
    let sandbox = &ctx.runs.terraform.plans.sandbox;
    if sandbox.mechanism().is_none() && sandbox.user().is_none() {
        return Ok(None);
    }
    Peers::new(listener, sandbox.user())
        .context("cannot determine the address that the server listens on")
}

async fn replica(
    config: &ServerConfig,
    surroundings: ProcessFacts,
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
    let parts = ServiceInputs {
        clock: Arc::new(SystemClock),
        ids: Arc::new(ids),
        panics,
        exe: std::env::current_exe()
            .context("cannot determine the path of the lockkeeper executable")?,
        environment: surroundings.variables,
        name,
    };
    let ctx = build(config, parts).await?;
    take_over(&ctx).await?;
    Ok(Replica::known_as(ctx, id))
}

/// Takes the locks that only one server may have. Two servers on one data directory would disturb each other's
/// checkouts, and two on one SQLite file would take over each other's work.
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

/// Ends git processes that outlived an earlier, killed server of the data directory. They could still write into
/// mirrors whose leases are about to end. Their mirrors are left as any killed git leaves them.
async fn end_git(hold: &Path) -> anyhow::Result<()> {
    let ended = FileHold::by_force(hold, GIT_ENDS).await;
    let (_hold, killed) = ended.context(
        "git processes of an earlier server of this data directory were killed but do not end. Check for a disk that \
         does not respond",
    )?;
    if killed > 0 {
        info!(
            processes = killed,
            "Ended git processes that an earlier server left behind"
        );
    }
    Ok(())
}

/// Removes the short-lived files of an earlier server that was killed. A run that outlives its server has already
/// read the files that it needs.
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
                "another Lockkeeper uses this {what}: it has locked {}",
                path.display()
            )
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// Takes over the work of an earlier server. The earlier holder of the mirrors of this data directory is gone,
/// because we hold its lock, and so is its git. Commands that need a mirror therefore need not wait until the lease
/// of the dead server expires. On a database of our own, an earlier server also left every job that is marked as
/// running.
async fn take_over(ctx: &ServerCtx) -> anyhow::Result<()> {
    if ctx.store.is_shared() {
        let beginning = LeaseKey::beginning_of_data_dir(ctx.server.syncer.data_dir_id().as_str());
        let mirrors = ctx.store.lease_end_all_of(&beginning).await?;
        if mirrors > 0 {
            info!(
                mirrors,
                "Taking over mirrors of an earlier server of this data directory"
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
        info!(orphans, "Taking over work of an earlier server");
    }
    Ok(())
}
