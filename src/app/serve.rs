//! `lockkeeper server`: from start to a good end.
//!
//! The first SIGTERM or SIGINT stops claiming work and waits for runs; the second, or the end of `--shutdown-grace`,
//! interrupts them: a plan is made again after the next start, an apply reports how far it came.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use chrono::TimeDelta;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Parts, Replica, build, loops};
use crate::clock::{Ids, RandomIds, SystemClock};
use crate::config::server::ServerConfig;
use crate::http;

/// Comments and statuses of the last runs get this long to be posted; what is left is posted after the next start.
const POST_LAST_WORDS: Duration = Duration::from_secs(5);

/// Later than the end of any lease.
const EVERY_LEASE: TimeDelta = TimeDelta::days(3650);

/// What the server finds around it.
pub struct Surroundings {
    /// Its environment.
    pub variables: BTreeMap<String, String>,
    /// Name of the machine.
    pub hostname: String,
}

/// Runs the server until it is told to stop.
pub async fn serve(config: ServerConfig, surroundings: Surroundings) -> anyhow::Result<()> {
    std::fs::create_dir_all(&config.storage.data_dir).with_context(|| {
        format!("cannot make the data directory {} (--data-dir)", config.storage.data_dir.display())
    })?;
    let _only_one = only_one(&config.storage.data_dir)?;
    let ids = RandomIds;
    let name = format!("{}-{}", surroundings.hostname, ids.next());
    let parts = Parts {
        clock: Arc::new(SystemClock),
        ids: Arc::new(ids),
        exe: std::env::current_exe().context("cannot tell where the lockkeeper executable is")?,
        environment: surroundings.variables,
        name: name.clone(),
    };
    let ctx = build(&config, parts).await?;
    take_over(&ctx).await?;
    let listener = TcpListener::bind(config.web.listen).await;
    let listener = listener.with_context(|| {
        format!("cannot listen on {} (--bind-address, --port): is another server running?", config.web.listen)
    })?;
    let address = listener.local_addr().context("cannot tell on which address the server listens")?;
    info!(%address, url = ctx.settings.public_url, replica = name, "Lockkeeper is ready");
    let replica = Arc::new(Replica::new(ctx, &name));
    run(replica, listener, &config).await
}

async fn run(replica: Arc<Replica>, listener: TcpListener, config: &ServerConfig) -> anyhow::Result<()> {
    let (closing, ended) = (CancellationToken::new(), CancellationToken::new());
    let router = http::door(Arc::clone(&replica.ctx));
    let serving = axum::serve(listener, router).with_graceful_shutdown(ended.clone().cancelled_owned());
    let serving = tokio::spawn(serving.into_future());
    let mut workers = loops::start(&replica, &closing, &ended);
    let mut signals = Signals::new()?;
    signals.next().await;
    info!(
        runs = replica.running.count(),
        "Told to stop: no new work is begun; send the signal again to interrupt runs"
    );
    closing.cancel();
    tokio::select! {
        () = drained(&replica) => {}
        why = impatience(&mut signals, config.terraform.shutdown_grace) => {
            warn!(runs = replica.running.count(), "{why}: runs are interrupted");
            replica.ctx.interrupt.cancel();
            drained(&replica).await;
        }
    }
    ended.cancel();
    tokio::time::timeout(POST_LAST_WORDS, async { while workers.join_next().await.is_some() {} }).await.ok();
    serving.abort();
    replica.ctx.store.close().await;
    info!("Lockkeeper has stopped");
    Ok(())
}

/// Waits until runs get no more time, and says why.
async fn impatience(signals: &mut Signals, grace: Duration) -> &'static str {
    tokio::select! {
        () = signals.next() => "Told to stop again",
        () = tokio::time::sleep(grace) => "Runs took longer than --shutdown-grace",
    }
}

/// Waits until no job is worked on, and for a moment more until what the last ones put into the outbox is posted.
async fn drained(replica: &Replica) {
    while replica.running.count() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let posted = async {
        while replica.ctx.store.job_list_open().await.is_ok_and(|jobs| jobs.iter().any(|job| job.kind != "run_command"))
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(POST_LAST_WORDS, posted).await.ok();
}

/// Two servers on one data directory would tread on each other's checkouts.
fn only_one(data_dir: &Path) -> anyhow::Result<File> {
    let path = data_dir.join("lockkeeper.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            bail!("another Lockkeeper uses the data directory {} (--data-dir)", data_dir.display())
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// On a database of our own every job that is marked as running was left by an earlier server.
async fn take_over(ctx: &crate::context::Ctx) -> anyhow::Result<()> {
    if ctx.store.is_shared() {
        return Ok(());
    }
    let orphans = ctx.store.job_requeue_orphans(ctx.clock.now() + EVERY_LEASE).await?;
    if orphans > 0 {
        info!(orphans, "Taking up work that an earlier server left");
    }
    Ok(())
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
