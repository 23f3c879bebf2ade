//! Runs `lockkeeper server` from the start to an orderly end.
//!
//! The first SIGTERM or SIGINT stops claiming work and waits for runs. The second, or the end of `--shutdown-grace`,
//! interrupts them: a plan is made again after the next start, an apply reports how far it came. On SIGHUP the server
//! reads the files of `--repo-config` and `--web-accounts-file` again.

use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::{ProcessFacts, Server, descriptors};
use crate::config::server::ServerConfig;
use crate::process::reserve_secret_fd;

/// Runs the server until a signal stops it.
pub async fn serve(config: ServerConfig, surroundings: ProcessFacts) -> anyhow::Result<()> {
    // Terraform runs as the same user. Without this, it could read the variables of the server, and the secrets in
    // them, from /proc.
    nix::sys::prctl::set_dumpable(false)
        .context("cannot hide the memory of the server from other programs")?;
    if nix::unistd::geteuid().is_root() && config.sandbox.run_as.is_none() {
        warn!(
            "The server runs as root, and so does code from pull requests. Start the server as a user of its own, or \
             use --run-as (docs/security.md)"
        );
    }
    if !reserve_secret_fd() {
        warn!(
            "Descriptor 3 was open when the server started, so git and Terraform start more slowly the more memory the \
             server uses. Close it before you start the server (in a shell: `3<&-`)"
        );
    }
    descriptors::raise();
    let mut signals = Signals::new()?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let listener = TcpListener::bind(config.web.listen).await;
    let listener = listener.with_context(|| {
        format!(
            "cannot listen on {} (--bind-address, --port): is another server running?",
            config.web.listen
        )
    })?;
    let server = Server::start(listener, &config, surroundings).await?;
    loop {
        tokio::select! {
            () = signals.next() => break,
            _ = hang_up.recv() => server.reload().await,
        }
    }
    info!(
        runs = server.runs(),
        "Stopping: the server starts no new work; send the signal again to interrupt runs"
    );
    server.close();
    tokio::select! {
        () = server.drained() => {}
        why = impatience(&mut signals, config.runs.shutdown_grace) => {
            warn!(runs = server.runs(), "{why}: runs are interrupted");
            server.interrupt();
        }
    }
    server.stop().await;
    Ok(())
}

/// Waits until the time of runs is over, and returns the reason.
async fn impatience(signals: &mut Signals, grace: Duration) -> &'static str {
    tokio::select! {
        () = signals.next() => "Received a second signal",
        () = tokio::time::sleep(grace) => "Runs took longer than --shutdown-grace",
    }
}

/// Signals that ask a program to end.
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Starts to listen. From now on the signals do not end the program automatically.
    pub fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
