//! Lets writers of SQLite share a commit.
//!
//! The need: SQLite makes one transaction durable at a time, and most of that is waiting for the disk. So transactions
//! that wait for their turn at the same moment become parts of one (a *batch*), each in a savepoint. They are
//! committed together, and each writer gets its answer only after the commit.
//!
//! A part sees what the parts before it have changed, although that is not durable yet. A function may answer with what
//! it has seen only after the commit. So a transaction takes part only if its function ends it on every way out
//! ([`super::Store::begin_shared`]), and both ways to end one wait for the commit of the batch. Any other transaction
//! commits the batch first, and begins alone.
//!
//! A writer alone begins and commits as usual. When it commits while others wait, it leaves that to a task, which
//! queues up behind those that wait. So a batch ends with the last of them, and nobody waits for a later writer.
//!
//! Invariants:
//! - A part that is undone or dropped undoes nothing else.
//! - If the batch is lost, every part of it fails. SQLite can end a transaction on its own, for example when the disk
//!   is full. Each part therefore ends with a statement that fails without its savepoint.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::Transaction;
use sqlx_sqlite::{Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::timeout;
use tracing::debug;

use super::Result;
use super::open::ACQUIRE_TIMEOUT;

/// The connection that writes to SQLite, and the writers that wait for it.
#[derive(Clone)]
pub(crate) struct SqliteWriter {
    pool: SqlitePool,
    queue: Arc<WriterQueue>,
}

#[derive(Default)]
struct WriterQueue {
    /// The batch that is not committed yet. The holder of the mutex writes.
    turn: Arc<Mutex<Option<CommitBatch>>>,
    /// Number of writers that wait for the mutex to begin a transaction.
    waiting: AtomicUsize,
}

/// Transaction with the parts of several writers.
struct CommitBatch {
    transaction: Transaction<'static, Sqlite>,
    /// Number of parts that are ready to be committed.
    parts: usize,
    /// True if the writer of the newest part has gone away, so that its savepoint has to be undone.
    is_abandoned: bool,
    ended: watch::Sender<Option<BatchEnd>>,
}

/// End of a batch, for all its parts.
type BatchEnd = Result<(), CommitFailed>;

/// Error of a writer whose changes were to be committed together with others.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the changes could not be committed together with others")]
struct CommitFailed(#[source] Option<Arc<sqlx::Error>>);

/// Transaction of one writer. Dropping it undoes it.
pub(crate) struct SqliteTx {
    turn: OwnedMutexGuard<Option<CommitBatch>>,
    queue: Arc<WriterQueue>,
    /// True if the transaction is a savepoint in the batch of others.
    is_part: bool,
    has_ended: bool,
}

/// A writer that waits, for as long as the value exists.
struct WaitingWriter<'a>(&'a AtomicUsize);

impl SqliteWriter {
    pub(super) fn new(pool: SqlitePool) -> Self {
        Self {
            pool,
            queue: Arc::default(),
        }
    }

    /// Begins a transaction that holds the write lock. If it is shared, it may become a part of a batch.
    pub(super) async fn begin(&self, is_shared: bool) -> Result<SqliteTx> {
        let waiting = WaitingWriter::new(&self.queue.waiting);
        let turn = timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.queue.turn).lock_owned()).await;
        let mut turn = turn.map_err(|_| sqlx::Error::PoolTimedOut)?;
        drop(waiting);
        if let Some(batch) = &*turn
            && (batch.is_abandoned || !is_shared)
        {
            // In a task of its own: this caller may go away at any moment, and the writers of the batch must not notice.
            let prepared = tokio::spawn(async move {
                if is_shared {
                    clear_up(&mut turn).await;
                } else {
                    commit_batch(&mut turn).await;
                }
                turn
            });
            turn = prepared.await.map_err(|_| sqlx::Error::WorkerCrashed)?;
        }
        let is_part = turn.is_some();
        if !is_part {
            let transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
            *turn = Some(CommitBatch {
                transaction,
                parts: 0,
                is_abandoned: false,
                ended: watch::Sender::new(None),
            });
        }
        let mut tx = SqliteTx {
            turn,
            queue: Arc::clone(&self.queue),
            is_part,
            has_ended: false,
        };
        if is_part {
            sqlx::query("SAVEPOINT part").execute(&mut *tx).await?;
        }
        Ok(tx)
    }

    /// Closes the connection when the last transaction has ended.
    pub(super) async fn close(&self) {
        let turn = self.queue.turn.lock().await;
        drop(turn);
        self.pool.close().await;
    }
}

impl SqliteTx {
    /// Makes everything done in the transaction durable, together with the transactions that wait for their turn.
    pub(super) async fn commit(mut self) -> Result<()> {
        if self.is_part {
            sqlx::query("RELEASE part").execute(&mut *self).await?;
        }
        self.has_ended = true;
        let is_alone = !self.is_part && self.queue.waiting.load(Ordering::Acquire) == 0;
        if is_alone && let Some(batch) = self.turn.take() {
            return batch.transaction.commit().await;
        }
        if !self.is_part {
            let turn = Arc::clone(&self.queue.turn);
            tokio::spawn(async move { commit_batch(&mut *turn.lock().await).await });
        }
        self.committed().await
    }

    /// Undoes everything done in the transaction. Returns when everything that it has seen is durable.
    pub(super) async fn roll_back(mut self) -> Result<()> {
        if !self.is_part
            && let Some(batch) = self.turn.take()
        {
            self.has_ended = true;
            return batch.transaction.rollback().await;
        }
        undo_part(self.batch()).await?;
        self.has_ended = true;
        self.committed().await
    }

    /// Waits until the batch with this part is committed.
    async fn committed(mut self) -> Result<()> {
        let batch = self.batch();
        batch.parts += 1;
        let mut ended = batch.ended.subscribe();
        drop(self);
        // Without a value, the task that commits has gone away, and so does this one.
        let end = ended.wait_for(Option::is_some).await;
        let end = end.map_or(Err(CommitFailed(None)), |end| {
            end.clone().unwrap_or(Err(CommitFailed(None)))
        });
        end.map_err(|failed| sqlx::Error::AnyDriverError(Box::new(failed)))
    }

    fn batch(&mut self) -> &mut CommitBatch {
        self.turn
            .as_mut()
            .expect("it is there until the transaction ends")
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if self.is_part {
            self.batch().is_abandoned = true;
        } else {
            // The transaction is rolled back when it is dropped.
            self.turn.take();
        }
    }
}

impl Deref for SqliteTx {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self
            .turn
            .as_ref()
            .expect("it is there until the transaction ends")
            .transaction
    }
}

impl DerefMut for SqliteTx {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.batch().transaction
    }
}

impl<'a> WaitingWriter<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Undoes a part whose writer has gone away. It may have gone before its savepoint was made, or after it was released:
/// then there is nothing to undo.
async fn clear_up(turn: &mut Option<CommitBatch>) {
    let Some(batch) = turn.as_mut().filter(|batch| batch.is_abandoned) else {
        return;
    };
    if let Err(error) = undo_part(batch).await
        && !is_open(batch).await
    {
        let failed = CommitFailed(Some(Arc::new(error)));
        batch.ended.send_replace(Some(Err(failed)));
        *turn = None;
    } else {
        batch.is_abandoned = false;
    }
}

/// Returns false if SQLite has ended the transaction on its own. A transaction cannot begin inside another one.
async fn is_open(batch: &mut CommitBatch) -> bool {
    let begun = sqlx::query("BEGIN").execute(&mut *batch.transaction).await;
    begun.is_err()
}

async fn undo_part(batch: &mut CommitBatch) -> Result<()> {
    let connection = &mut *batch.transaction;
    sqlx::query("ROLLBACK TO part")
        .execute(&mut *connection)
        .await?;
    sqlx::query("RELEASE part").execute(connection).await?;
    Ok(())
}

/// Commits a batch and wakes the writers of its parts.
async fn commit_batch(turn: &mut Option<CommitBatch>) {
    clear_up(turn).await;
    let Some(batch) = turn.take() else {
        return;
    };
    debug!(parts = batch.parts, "Committed transactions together");
    let end = batch.transaction.commit().await;
    let end = end.map_err(|error| CommitFailed(Some(Arc::new(error))));
    batch.ended.send_replace(Some(end));
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::{FusedFuture as _, join_all, poll_immediate};
    use sqlx::AssertSqlSafe;

    use super::*;
    use crate::store::open::sqlite_pools;

    struct TestWriter {
        writer: SqliteWriter,
        read: SqlitePool,
        dir: tempfile::TempDir,
    }

    impl TestWriter {
        async fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (write, read) = sqlite_pools(&dir.path().join("l.db"), true).await.unwrap();
            let writer = SqliteWriter::new(write);
            let mut tx = writer.begin(true).await.unwrap();
            run(&mut tx, "CREATE TABLE t (n INTEGER PRIMARY KEY)")
                .await
                .unwrap();
            tx.commit().await.unwrap();
            Self { writer, read, dir }
        }

        async fn add(&self, n: i64) -> Result<()> {
            let mut tx = self.writer.begin(true).await?;
            run(&mut tx, &format!("INSERT INTO t VALUES ({n})")).await?;
            tx.commit().await
        }

        async fn all(&self) -> Vec<i64> {
            let rows = sqlx::query_scalar("SELECT n FROM t ORDER BY n");
            rows.fetch_all(&self.read).await.unwrap()
        }

        /// Returns the number of frames in the write-ahead log that end a transaction: its header has the size of the
        /// database instead of 0 (SQLite file format, section 4.1).
        fn commits(&self) -> usize {
            let log = std::fs::read(self.dir.path().join("l.db-wal")).unwrap();
            let size = 24 + 4096;
            let frames = log.get(32..).unwrap_or_default().chunks_exact(size);
            frames.filter(|frame| frame[4..8] != [0; 4]).count()
        }
    }

    async fn run(tx: &mut SqliteTx, sql: &str) -> Result<()> {
        let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
        query.execute(&mut **tx).await.map(drop)
    }

    #[tokio::test]
    async fn writers_that_wait_share_one_commit() {
        let test = TestWriter::new().await;
        let before = test.commits();
        let mut first = test.writer.begin(true).await.unwrap();
        run(&mut first, "INSERT INTO t VALUES (0)").await.unwrap();
        let mut others = Box::pin(join_all((1..=20).map(|n| test.add(n))));
        assert!(poll_immediate(&mut others).await.is_none());
        let (first, others) = tokio::join!(first.commit(), others);
        first.unwrap();
        assert!(others.into_iter().all(|added| added.is_ok()));
        assert_eq!(test.all().await, (0..=20).collect::<Vec<_>>());
        assert_eq!(test.commits() - before, 1);
    }

    #[tokio::test]
    async fn a_part_that_fails_or_is_dropped_undoes_nothing_else() {
        let test = TestWriter::new().await;
        let mut first = test.writer.begin(true).await.unwrap();
        run(&mut first, "INSERT INTO t VALUES (1)").await.unwrap();
        let mut taken = Box::pin(test.add(1));
        let mut rolled_back = Box::pin(async {
            let mut tx = test.writer.begin(true).await?;
            run(&mut tx, "INSERT INTO t VALUES (2)").await?;
            tx.roll_back().await
        });
        let mut dropped = Box::pin(async {
            let mut tx = test.writer.begin(true).await?;
            run(&mut tx, "INSERT INTO t VALUES (3)").await
        });
        let mut last = Box::pin(test.add(4));
        assert!(poll_immediate(&mut taken).await.is_none());
        assert!(poll_immediate(&mut rolled_back).await.is_none());
        assert!(poll_immediate(&mut dropped).await.is_none());
        assert!(poll_immediate(&mut last).await.is_none());
        let (first, taken, rolled_back, dropped, last) =
            tokio::join!(first.commit(), taken, rolled_back, dropped, last);
        for done in [first, rolled_back, dropped, last] {
            done.unwrap();
        }
        assert!(taken.unwrap_err().to_string().contains("UNIQUE"));
        assert_eq!(test.all().await, [1, 4]);
    }

    #[tokio::test]
    async fn what_a_part_has_seen_is_durable_when_it_ends() {
        let test = TestWriter::new().await;
        let mut first = test.writer.begin(true).await.unwrap();
        run(&mut first, "INSERT INTO t VALUES (1)").await.unwrap();
        let mut looking = Box::pin(async {
            let mut tx = test.writer.begin(true).await?;
            let seen: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM t")
                .fetch_one(&mut *tx)
                .await?;
            tx.roll_back().await?;
            Ok::<_, sqlx::Error>((seen, test.all().await))
        });
        let mut alone = Box::pin(async {
            let tx = test.writer.begin(false).await?;
            let there = test.all().await;
            drop(tx);
            Ok::<_, sqlx::Error>(there)
        });
        assert!(poll_immediate(&mut looking).await.is_none());
        assert!(poll_immediate(&mut alone).await.is_none());
        let (first, looking, alone) = tokio::join!(first.commit(), looking, alone);
        first.unwrap();
        assert_eq!(looking.unwrap(), (1, vec![1]));
        assert_eq!(alone.unwrap(), [1]);
    }

    #[tokio::test]
    async fn a_writer_may_go_away_at_any_moment() {
        let test = TestWriter::new().await;
        for polls in 0..60 {
            let mut first = test.writer.begin(true).await.unwrap();
            let n = i64::from(polls) * 10;
            run(&mut first, &format!("INSERT INTO t VALUES ({n})"))
                .await
                .unwrap();
            let mut leaving = Box::pin(async {
                let mut tx = test.writer.begin(polls % 3 > 0).await?;
                run(&mut tx, &format!("INSERT INTO t VALUES ({})", n + 1)).await?;
                run(&mut tx, &format!("INSERT INTO t VALUES ({})", n + 3)).await?;
                tx.commit().await
            });
            let mut staying = Box::pin(test.add(n + 2));
            assert!(poll_immediate(&mut leaving).await.is_none());
            assert!(poll_immediate(&mut staying).await.is_none());
            let mut leaving = leaving.fuse();
            let mut first = Box::pin(first.commit()).fuse();
            for _ in 0..polls {
                poll_immediate(&mut leaving).await;
                if let Some(committed) = poll_immediate(&mut first).await {
                    committed.unwrap();
                }
                tokio::task::yield_now().await;
            }
            drop(leaving);
            let first = async {
                if !first.is_terminated() {
                    first.await.unwrap();
                }
            };
            let ((), staying) = tokio::join!(first, staying);
            staying.unwrap();
            let all = test.all().await;
            assert!(
                all.contains(&n) && all.contains(&(n + 2)),
                "{polls}: {all:?}"
            );
            let halves = [n + 1, n + 3].map(|n| all.contains(&n));
            assert!(halves[0] == halves[1], "{polls}: half of it is there");
        }
    }

    #[tokio::test]
    async fn all_parts_fail_if_sqlite_gives_the_transaction_up() {
        let test = TestWriter::new().await;
        for _ in 0..3 {
            let mut first = test.writer.begin(true).await.unwrap();
            run(&mut first, "INSERT INTO t VALUES (1)").await.unwrap();
            let mut fatal = Box::pin(async {
                let mut tx = test.writer.begin(true).await?;
                // SQLite does the same when it cannot write, without notifying the connection.
                run(&mut tx, "ROLLBACK").await?;
                tx.commit().await
            });
            let mut last = Box::pin(test.add(2));
            assert!(poll_immediate(&mut fatal).await.is_none());
            assert!(poll_immediate(&mut last).await.is_none());
            let (first, fatal, last) = tokio::join!(first.commit(), fatal, last);
            assert!(first.is_err() && fatal.is_err());
            last.unwrap();
            assert_eq!(test.all().await, [2]);
            let mut tx = test.writer.begin(true).await.unwrap();
            run(&mut tx, "DELETE FROM t").await.unwrap();
            tx.commit().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_lone_transaction_that_sqlite_gave_up_blocks_nobody() {
        let test = TestWriter::new().await;
        for _ in 0..3 {
            let mut tx = test.writer.begin(true).await.unwrap();
            run(&mut tx, "ROLLBACK").await.unwrap();
            tx.commit().await.unwrap_err();
        }
        drop(test.writer.begin(true).await.unwrap());
        test.add(1).await.unwrap();
    }
}
