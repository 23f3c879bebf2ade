//! Stores the output of a run and notifies its watchers.
//!
//! Lines are gathered for a moment, so that a chatty tool costs a few rows and not thousands. A watcher is notified
//! of each row and reads it from the store, so that a page shows the same on every replica (P9).

use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::model::RunId;
use crate::store::{OutputPiece, Store};

/// Maximum time that lines wait before they are stored.
const GATHER: Duration = Duration::from_millis(200);
/// Size at which gathered lines are stored at once.
const PIECE_BYTES: usize = 32 * 1024;
/// Number of lines that may wait for the database before the tool has to wait.
const WAITING_LINES: usize = 1024;

/// Channel that notifies watchers of this process when a run has printed something or ended.
#[derive(Clone, Debug)]
pub struct OutputHub(broadcast::Sender<RunId>);

impl Default for OutputHub {
    fn default() -> Self {
        Self(broadcast::channel(1024).0)
    }
}

impl OutputHub {
    /// Subscribes to news of all runs from now on. A watcher that falls behind misses news, not output: it reads the
    /// store.
    pub fn subscribe(&self) -> broadcast::Receiver<RunId> {
        self.0.subscribe()
    }

    /// Announces that there is news of a run.
    pub fn announce(&self, run: RunId) {
        // Sending fails if nobody watches, which is no error.
        drop(self.0.send(run));
    }
}

/// Receiver of the lines of one run.
pub struct RunOutput {
    lines: mpsc::Sender<String>,
    writer: JoinHandle<()>,
}

impl RunOutput {
    /// Starts a task that stores the lines of a run.
    pub fn start(store: Store, hub: OutputHub, run: RunId) -> Self {
        let (lines, received) = mpsc::channel(WAITING_LINES);
        let writer = OutputWriter {
            store,
            hub,
            run,
            seq: 0,
            pending: String::new(),
        };
        Self {
            lines,
            writer: tokio::spawn(writer.work(received)),
        }
    }

    /// Adds a line. Waits if the database cannot keep up.
    pub async fn push_line(&self, line: &str) {
        if self.lines.send(line.to_owned()).await.is_err() {
            warn!("Output of a run is no longer stored");
        }
    }

    /// Stores the remaining lines and ends the task.
    pub async fn finish(self) {
        drop(self.lines);
        if let Err(error) = self.writer.await {
            warn!(%error, "The writer of a run's output ended early");
        }
    }
}

struct OutputWriter {
    store: Store,
    hub: OutputHub,
    run: RunId,
    seq: i64,
    pending: String,
}

impl OutputWriter {
    async fn work(mut self, mut lines: mpsc::Receiver<String>) {
        while let Some(line) = lines.recv().await {
            self.add(&line);
            self.gather(&mut lines).await;
            self.flush().await;
        }
    }

    fn add(&mut self, line: &str) {
        self.pending.push_str(line);
        self.pending.push('\n');
    }

    /// Collects the lines that arrive within [`GATHER`].
    async fn gather(&mut self, lines: &mut mpsc::Receiver<String>) {
        let end = tokio::time::Instant::now() + GATHER;
        while self.pending.len() < PIECE_BYTES {
            match tokio::time::timeout_at(end, lines.recv()).await {
                Ok(Some(line)) => self.add(&line),
                Ok(None) | Err(_) => return,
            }
        }
    }

    async fn flush(&mut self) {
        self.seq += 1;
        let piece = OutputPiece {
            seq: self.seq,
            text: std::mem::take(&mut self.pending),
        };
        if let Err(error) = self.store.run_output_append(self.run, &piece).await {
            warn!(run = %self.run, %error, "Could not store output of a run");
        }
        self.hub.announce(self.run);
    }
}
