//! The queue of jobs: one table, and one conditional statement per step.
//!
//! Invariants, by name:
//! - *head of the lane*: a job is claimable only while no job before it in its lane is queued or running. So the jobs
//!   of a lane run one at a time and in order, no matter who claims them.
//! - *proof of lease*: finishing names the holder and the attempt. Zero rows mean that the lease was lost, and then
//!   nothing is written.
//! - *no job is forgotten*: a job whose lease expired returns to the head of its lane. This is counted apart from
//!   failed attempts. A job that takes its server down with it must come to an end; a job whose forge is unreachable
//!   must not.
//! - *a fair share*: a holder works on a limited number of jobs of one share at once. So a repository with a hundred
//!   slow commands leaves workers to the others.
//! - *order of arrival*: `seq` orders the jobs of a lane as they were committed. PostgreSQL assigns numbers before
//!   the commit, so the statement that adds jobs locks their lanes first, and the transaction holds them until it
//!   ends. Otherwise a later number could be claimed before an earlier one appears as the new head of the lane. Two
//!   jobs of the lane would then run at once.
//!
//! Claiming follows the index of the order, and never sorts the open jobs. PostgreSQL would sort them: if a table was
//! not analyzed since the queue grew, it estimates that reading and sorting all open jobs is cheaper. So there a
//! function of the database claims, which turns off the query plans that read everything (migration 0009). It also
//! saves the round trips of a transaction.
//!
//! Times of leases and waits are those of the deadline clock (`store::time`).
//!
//! Races: two replicas that claim at once are kept apart by the row lock (`SKIP LOCKED` on PostgreSQL, the only
//! writer on SQLite); the loser takes another lane or nothing. A holder that returns after its lease expired finds
//! another attempt number.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, Utc};
use sqlx::Arguments;
use sqlx_postgres::{PgArguments, PgPool, Postgres};
use tracing::warn;

use super::news::{CHANNEL, News, announce_in_tx};
use super::time::{ClockOffset, DeadlineClock};
use super::{
    DbPool, Result, Store, Tx, execute, execute_alone, free_text, kept_time, on_pool, on_tx,
};
use crate::model::{JobId, RepoId, text_enum};

text_enum! {
    /// State of a job.
    pub enum JobState {
        /// Waiting for its turn, or for its time.
        Queued = "queued",
        /// A holder has its lease.
        Running = "running",
        Done = "done",
        /// Failed for the last time; not retried.
        Failed = "failed",
    }
}

/// A job to put into the queue.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Kind of the work.
    pub kind: &'static str,
    /// Arguments of the job as JSON.
    pub payload: String,
    /// Lane of the job. Jobs of one lane run one at a time, in order.
    pub lane: String,
    /// Share of the job. A holder works on a limited number of jobs of one share at once; empty: no limit.
    pub share: String,
    /// Priority among lanes; higher goes first.
    pub priority: i64,
    /// Earliest time to run.
    pub run_after: Option<DateTime<Utc>>,
}

/// Request for the next job that may run now.
#[derive(Clone, Copy, Debug)]
pub struct JobClaim<'a> {
    /// Name of the holder.
    pub holder: &'a str,
    /// End of the lease, unless it is renewed.
    pub until: DateTime<Utc>,
    /// Only jobs of this kind; empty: of any.
    pub only: &'a str,
    /// No jobs of this kind; empty: of any.
    pub except: &'a str,
    /// Maximum number of jobs of one share that the holder works on.
    pub most_of_a_share: i64,
    /// Only jobs of at least this priority.
    pub least_priority: i64,
}

impl<'a> JobClaim<'a> {
    /// Requests the next job of any kind, share and priority.
    pub const fn any(holder: &'a str, until: DateTime<Utc>) -> Self {
        Self {
            holder,
            until,
            only: "",
            except: "",
            most_of_a_share: i64::MAX,
            least_priority: i64::MIN,
        }
    }
}

/// A claimed job: the right to work on it until `until`, unless renewed.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct JobLease {
    pub id: JobId,
    /// Kind of the work.
    pub kind: String,
    /// Arguments of the job as JSON.
    pub payload: String,
    pub lane: String,
    /// Number of this attempt, from 1.
    pub attempt: i64,
    /// Number of earlier attempts that were cut off because their holder was gone.
    pub cut_offs: i64,
    /// Name of the holder.
    #[sqlx(rename = "lease_holder")]
    pub holder: String,
    /// Tells that the end of the job was written with its last change.
    #[sqlx(skip)]
    pub(super) end: EndOfJob,
}

/// Shared record that the end of a claimed job was written with its last change ([`Store::last_of_job`]).
#[derive(Clone, Debug, Default)]
pub(super) struct EndOfJob(Arc<AtomicBool>);

impl EndOfJob {
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl JobLease {
    /// Returns the number of this attempt, from 1, without those that were cut off. The limit of failed attempts
    /// applies to it.
    pub fn tries(&self) -> i64 {
        self.attempt - self.cut_offs
    }

    /// Returns true if the end of the job was written with its last change ([`Store::last_of_job`]).
    pub fn has_ended(&self) -> bool {
        self.end.0.load(Ordering::Acquire)
    }
}

/// A job as pages and tests show it.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct JobView {
    pub id: JobId,
    /// Kind of the work.
    pub kind: String,
    pub lane: String,
    pub state: JobState,
    /// Number of attempts so far.
    pub attempt: i64,
    /// Earliest time to run.
    pub run_after: DateTime<Utc>,
    /// Error of the last attempt.
    pub last_error: Option<String>,
}

/// A job of a lane, in any state.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct LaneJob {
    pub state: JobState,
    /// The job as JSON.
    pub payload: String,
    /// Time of the end, if it has ended.
    pub finished_at: Option<DateTime<Utc>>,
}

/// Outcome of writing the result of a job.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFinish {
    /// The result was written.
    Recorded,
    /// Another holder has the job now; nothing was written.
    LeaseLost,
}

impl JobFinish {
    fn of(rows: u64) -> Self {
        if rows == 0 {
            Self::LeaseLost
        } else {
            Self::Recorded
        }
    }
}

/// Returns the share for commands of a repository that are answered at once. They have their own share, because
/// waiting commands may use up the share that has the name of the repository.
pub fn answers_share(repo: &RepoId) -> String {
    format!("at once: {repo}")
}

/// Claims the next job on SQLite. `state IN ('queued', 'running')` stands beside narrower conditions, because SQLite
/// uses a partial index only if the query repeats its condition word for word. Without it, every claim would also read
/// all finished jobs.
macro_rules! claim_on_sqlite {
    () => {
        "UPDATE jobs SET state = 'running', attempt = attempt + 1, lease_holder = $1, lease_until = $2 \
         WHERE seq = (SELECT j.seq FROM jobs j WHERE j.state IN ('queued', 'running') AND j.state = 'queued' \
         AND j.run_after <= $3 AND j.priority >= $7 \
         AND ($4 = '' OR j.kind = $4) AND ($5 = '' OR j.kind <> $5) \
         AND (j.share = '' OR (SELECT COUNT(*) FROM jobs r WHERE r.share = j.share AND r.lease_holder = $1 \
         AND r.state IN ('queued', 'running') AND r.state = 'running') < $6) \
         AND NOT EXISTS (SELECT 1 FROM jobs o WHERE o.lane = j.lane AND o.seq < j.seq \
         AND o.state IN ('queued', 'running')) ORDER BY j.priority DESC, j.seq LIMIT 1) \
         RETURNING id, kind, payload, lane, attempt, cut_offs, lease_holder"
    };
}

const CLAIM_ON_POSTGRES: &str = "SELECT id, kind, payload, lane, attempt, cut_offs, lease_holder \
     FROM claim_job($1, $2, $3, $4, $5, $6, $7)";
pub(super) const END: &str = "UPDATE jobs SET state = $1, last_error = COALESCE($2, last_error), finished_at = $3, lease_until = NULL \
     WHERE id = $4 AND lease_holder = $5 AND attempt = $6 AND state = 'running'";

const NEWER: &str = "SELECT COUNT(*) FROM jobs WHERE lane = $1 AND state IN ('queued', 'running') AND kind = $2 \
     AND seq > (SELECT seq FROM jobs WHERE id = $3)";
const END_IF_NEWER: &str = "UPDATE jobs SET state = 'done', finished_at = $1, lease_until = NULL \
     WHERE id = $2 AND lease_holder = $3 AND attempt = $4 AND state = 'running' AND EXISTS (SELECT 1 FROM jobs newer \
     WHERE newer.lane = jobs.lane AND newer.state IN ('queued', 'running') AND newer.kind = jobs.kind \
     AND newer.seq > jobs.seq)";

macro_rules! requeue_sql {
    ($lock:literal) => {
        concat!(
            "UPDATE jobs SET state = 'queued', lease_holder = NULL, lease_until = NULL, ",
            "cut_offs = cut_offs + 1, last_error = 'the lease ran out before the job was finished' ",
            "WHERE seq IN (SELECT seq FROM jobs WHERE state = 'running' ",
            "AND (lease_until < $1 OR lease_holder IN ",
            "(SELECT name FROM replicas WHERE state = 'ended' OR lease_until < $1))",
            $lock,
            ")"
        )
    };
}

const PUSH_ON_SQLITE: &str = "INSERT INTO jobs (id, kind, payload, lane, share, priority, state, run_after, attempt, created_at) \
     VALUES ($1, $2, $3, $4, $5, $6, 'queued', $7, 0, $8)";

/// Number of parameters before those of [`Store::outbox_arguments`]. A statement that is executed together with its
/// jobs has its own parameters there, and those of the jobs always have the same numbers.
const BEFORE_OUTBOX: usize = 20;

/// Locks the lanes of jobs in the given order, so that nobody else adds to them until the transaction ends. Notifies
/// other replicas at the commit. `$from` is empty, or a query and a comma: the lanes are locked after its rows were
/// found.
macro_rules! hold_lanes_sql {
    ($from:literal) => {
        concat!(
            "SELECT pg_advisory_xact_lock(hashtextextended(lane, 0)), pg_notify($21, $22) FROM ",
            $from,
            "unnest($23::TEXT[]) AS lane"
        )
    };
}

/// Adds jobs. Reads all rows of the query `lanes` first, so that no job has a number before its lane is locked.
macro_rules! push_sql {
    () => {
        "INSERT INTO jobs (id, kind, payload, lane, share, priority, state, run_after, attempt, created_at) \
         SELECT job.id, job.kind, job.payload, job.lane, job.share, job.priority, 'queued', \
         COALESCE(job.run_after, clock_timestamp()), 0, $31 \
         FROM unnest($24::TEXT[], $25::TEXT[], $26::TEXT[], $27::TEXT[], $28::TEXT[], $29::BIGINT[], $30::TIMESTAMPTZ[]) \
         WITH ORDINALITY AS job (id, kind, payload, lane, share, priority, run_after, place) \
         WHERE (SELECT COUNT(*) FROM lanes) > 0 ORDER BY job.place"
    };
}

const PUSH_ON_POSTGRES: &str = concat!("WITH lanes AS (", hold_lanes_sql!(""), ") ", push_sql!());

pub(super) use {hold_lanes_sql, push_sql};

impl Store {
    /// Puts a job into the queue.
    pub async fn job_push(&self, job: &NewJob) -> Result<JobId> {
        let mut tx = self.begin_shared().await?;
        let id = self.job_push_in_tx(&mut tx, job).await?;
        tx.commit().await.map(|()| id)
    }

    pub(crate) async fn job_push_in_tx(&self, tx: &mut Tx, job: &NewJob) -> Result<JobId> {
        let id = JobId::next(&*self.ids);
        self.jobs_push_in_tx(tx, &[(id, job)]).await.map(|()| id)
    }

    /// Puts jobs into the queue in this order, as a part of a transaction.
    pub(super) async fn outbox_in_tx(&self, tx: &mut Tx, outbox: &[NewJob]) -> Result<()> {
        self.jobs_push_in_tx(tx, &self.identified(outbox)).await
    }

    /// Gives each job its identifier.
    pub(super) fn identified<'j>(&self, jobs: &'j [NewJob]) -> Vec<(JobId, &'j NewJob)> {
        let with_id = |job| (JobId::next(&*self.ids), job);
        jobs.iter().map(with_id).collect()
    }

    /// Puts jobs into the queue in this order. PostgreSQL gets all of them in one statement.
    pub(super) async fn jobs_push_in_tx(
        &self,
        tx: &mut Tx,
        jobs: &[(JobId, &NewJob)],
    ) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let offset = if has_time(jobs) {
            self.clock_offset_in_tx(tx).await?
        } else {
            ClockOffset::NONE
        };
        if let Tx::Postgres(tx) = tx {
            let mut arguments = PgArguments::default();
            self.outbox_arguments(&mut arguments, jobs, offset)?;
            return sqlx::query_with(PUSH_ON_POSTGRES, arguments)
                .execute(&mut **tx)
                .await
                .map(drop);
        }
        for (id, job) in jobs {
            execute!(
                &mut *tx,
                PUSH_ON_SQLITE,
                id,
                job.kind,
                free_text(&job.payload),
                &job.lane,
                &job.share,
                job.priority,
                offset.of(job.run_after.unwrap_or_else(|| self.now())),
                self.now(),
            )?;
        }
        Ok(())
    }

    /// Appends the parameters of `push_sql!`, after [`BEFORE_OUTBOX`] others. Lanes are sorted, so that every
    /// transaction locks them in the same order. The database fills in the time of jobs that may run now.
    pub(super) fn outbox_arguments(
        &self,
        arguments: &mut PgArguments,
        jobs: &[(JobId, &NewJob)],
        offset: ClockOffset,
    ) -> Result<()> {
        let lanes: BTreeSet<&str> = jobs.iter().map(|(_, job)| job.lane.as_str()).collect();
        let run_after = |job: &NewJob| match (self.deadline_clock, job.run_after) {
            (DeadlineClock::Database, None) => None,
            (_, at) => Some(offset.of(at.unwrap_or_else(|| self.now()))),
        };
        let texts = |text: fn(&NewJob) -> &str| -> Vec<String> {
            let texts = jobs.iter().map(|(_, job)| free_text(text(job)));
            texts.map(Cow::into_owned).collect()
        };
        while arguments.len() < BEFORE_OUTBOX {
            add(arguments, None::<i64>)?;
        }
        add(arguments, CHANNEL)?;
        add(arguments, News::Jobs.to_string())?;
        add(
            arguments,
            lanes.into_iter().map(str::to_owned).collect::<Vec<_>>(),
        )?;
        add(
            arguments,
            jobs.iter()
                .map(|(id, _)| id.to_string())
                .collect::<Vec<_>>(),
        )?;
        add(arguments, texts(|job| job.kind))?;
        add(arguments, texts(|job| &job.payload))?;
        add(arguments, texts(|job| &job.lane))?;
        add(arguments, texts(|job| &job.share))?;
        add(
            arguments,
            jobs.iter().map(|(_, job)| job.priority).collect::<Vec<_>>(),
        )?;
        add(
            arguments,
            jobs.iter()
                .map(|(_, job)| run_after(job))
                .collect::<Vec<_>>(),
        )?;
        add(arguments, self.now())
    }
    /// Returns true if a lane has jobs that have not ended.
    pub async fn job_lane_is_open(&self, lane: &str) -> Result<bool> {
        let open = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM jobs WHERE lane = $1 AND state IN ('queued', 'running')")
            .bind(lane).fetch_one(db))?;
        Ok(open > 0)
    }

    /// Returns true if a newer job of the same kind waits in the lane of a claimed job, which then has nothing to do.
    /// On PostgreSQL that job is ended in the same statement, unless its lease was lost.
    pub async fn job_is_outdated(&self, lease: &JobLease) -> Result<bool> {
        match &self.pool {
            DbPool::Sqlite { read, .. } => {
                let newer: i64 = sqlx::query_scalar(NEWER)
                    .bind(&lease.lane)
                    .bind(&lease.kind)
                    .bind(lease.id)
                    .fetch_one(read)
                    .await?;
                Ok(newer > 0)
            }
            DbPool::Postgres(pool) => {
                let ended = sqlx::query(END_IF_NEWER)
                    .bind(self.now())
                    .bind(lease.id)
                    .bind(&lease.holder)
                    .bind(lease.attempt)
                    .execute(pool)
                    .await?;
                if ended.rows_affected() == 0 {
                    return Ok(false);
                }
                lease.end.note();
                Ok(true)
            }
        }
    }

    /// Puts a copy of the newest job of a lane into the queue, if that job is done. The newest job is not older than
    /// the job `since`, which must be recent.
    pub async fn job_repeat_newest(
        &self,
        kind: &'static str,
        priority: i64,
        lane: &str,
        since: JobId,
    ) -> Result<Option<JobId>> {
        let mut tx = self.begin().await?;
        // Nobody adds a newer job until this transaction ends.
        lane_hold_in_tx(&mut tx, lane).await?;
        let newest = on_tx!(&mut tx, db => sqlx::query_as::<_, (String, JobState)>(
            "SELECT payload, state FROM jobs WHERE seq >= (SELECT seq FROM jobs WHERE id = $1) AND lane = $2 \
             AND kind = $3 ORDER BY seq DESC LIMIT 1")
            .bind(since).bind(lane).bind(kind).fetch_optional(db))?;
        let done = newest.filter(|(_, state)| *state == JobState::Done);
        let Some((payload, _)) = done else {
            return tx.roll_back().await.map(|()| None);
        };
        let (lane, share) = (lane.to_owned(), String::new());
        let id = self
            .job_push_in_tx(
                &mut tx,
                &NewJob {
                    kind,
                    payload,
                    lane,
                    share,
                    priority,
                    run_after: None,
                },
            )
            .await?;
        tx.commit().await.map(|()| Some(id))
    }

    /// Takes the lease of the next job that may run now.
    pub async fn job_claim(&self, claim: &JobClaim<'_>) -> Result<Option<JobLease>> {
        match &self.pool {
            DbPool::Sqlite { .. } => {
                let mut tx = self.begin_shared().await?;
                let lease = self.claim_on_sqlite_in_tx(&mut tx, claim).await?;
                tx.commit().await.map(|()| lease)
            }
            DbPool::Postgres(pool) => self.claim_on_postgres(pool, claim).await,
        }
    }

    async fn claim_on_sqlite_in_tx(
        &self,
        tx: &mut Tx,
        claim: &JobClaim<'_>,
    ) -> Result<Option<JobLease>> {
        on_tx!(tx, db => sqlx::query_as::<_, JobLease>(claim_on_sqlite!())
            .bind(claim.holder).bind(kept_time(claim.until)).bind(kept_time(self.now()))
            .bind(claim.only).bind(claim.except).bind(claim.most_of_a_share).bind(claim.least_priority)
            .fetch_optional(db))
    }

    /// Claims by one statement, which is a transaction of its own.
    async fn claim_on_postgres(
        &self,
        pool: &PgPool,
        claim: &JobClaim<'_>,
    ) -> Result<Option<JobLease>> {
        let now = self.now();
        // The time that the statement is on its way makes the lease longer for others, never for us.
        let lease_time = (claim.until - now).num_microseconds().unwrap_or(i64::MAX);
        let present = match self.deadline_clock {
            DeadlineClock::Database => None,
            DeadlineClock::Own => Some(kept_time(now)),
        };
        sqlx::query_as::<_, JobLease>(CLAIM_ON_POSTGRES)
            .bind(claim.holder)
            .bind(lease_time)
            .bind(present)
            .bind(claim.only)
            .bind(claim.except)
            .bind(claim.most_of_a_share)
            .bind(claim.least_priority)
            .fetch_optional(pool)
            .await
    }

    /// Marks a job as done, unless its last change did so.
    pub async fn job_finish(&self, lease: &JobLease) -> Result<JobFinish> {
        if lease.has_ended() {
            return Ok(JobFinish::Recorded);
        }
        self.job_end(lease, JobState::Done, None).await
    }

    /// Marks a job as done, and takes the lease of the next one.
    pub async fn job_finish_and_claim(
        &self,
        lease: &JobLease,
        claim: &JobClaim<'_>,
    ) -> Result<(JobFinish, Option<JobLease>)> {
        if self.is_shared() || lease.has_ended() {
            let finish = self.job_finish(lease).await?;
            // The end is durable even if the claim fails. The worker looks at the queue again.
            let next = self.job_claim(claim).await.unwrap_or_else(|error| {
                warn!(%error, "Could not claim the next job");
                None
            });
            return Ok((finish, next));
        }
        let mut tx = self.begin_shared().await?;
        let rows = execute!(
            &mut tx,
            END,
            JobState::Done,
            None::<&str>,
            self.now(),
            lease.id,
            &lease.holder,
            lease.attempt,
        )?;
        let next = self.claim_on_sqlite_in_tx(&mut tx, claim).await?;
        tx.commit().await.map(|()| (JobFinish::of(rows), next))
    }

    /// Marks a job as failed for good, and stores the reason.
    pub async fn job_fail(&self, lease: &JobLease, error: &str) -> Result<JobFinish> {
        self.job_end(lease, JobState::Failed, Some(error)).await
    }

    async fn job_end(
        &self,
        lease: &JobLease,
        state: JobState,
        error: Option<&str>,
    ) -> Result<JobFinish> {
        let rows = execute_alone!(
            self,
            END,
            state,
            error.map(free_text),
            self.now(),
            lease.id,
            &lease.holder,
            lease.attempt,
        )?;
        Ok(JobFinish::of(rows))
    }

    /// Returns a job to the head of its lane, to run no earlier than `at`.
    pub async fn job_retry(
        &self,
        lease: &JobLease,
        at: DateTime<Utc>,
        error: &str,
    ) -> Result<JobFinish> {
        let mut tx = self.begin_shared().await?;
        let offset = self.clock_offset_in_tx(&mut tx).await?;
        let rows = execute!(
            &mut tx,
            "UPDATE jobs SET state = 'queued', run_after = $1, last_error = $2, lease_holder = NULL, lease_until = NULL \
             WHERE id = $3 AND lease_holder = $4 AND attempt = $5 AND state = 'running'",
            offset.of(at),
            free_text(error),
            lease.id,
            &lease.holder,
            lease.attempt,
        )?;
        announce_in_tx(&mut tx, News::Jobs).await?;
        tx.commit().await.map(|()| JobFinish::of(rows))
    }

    /// Requeues jobs whose lease expired, and those of replicas that have ended or are gone. On a database that is
    /// not shared, these are all jobs that were running. Skips rows that somebody is writing right now, until the
    /// next time. So a replica that was paused in the middle of a transaction keeps nobody waiting.
    pub async fn job_requeue_orphans(&self, expired_before: DateTime<Utc>) -> Result<u64> {
        let mut tx = self.begin().await?;
        let expired_before = self.clock_offset_in_tx(&mut tx).await?.of(expired_before);
        let sql = match tx {
            Tx::Sqlite(_) => requeue_sql!(""),
            Tx::Postgres(_) => requeue_sql!(" FOR UPDATE SKIP LOCKED"),
        };
        let rows = execute!(&mut tx, sql, expired_before)?;
        if rows > 0 {
            announce_in_tx(&mut tx, News::Jobs).await?;
        }
        tx.commit().await.map(|()| rows)
    }

    /// Lists the jobs that are queued or running, in order.
    pub async fn job_list_open(&self) -> Result<Vec<JobView>> {
        // The sign `+` keeps SQLite from walking through all jobs ever stored, which are in this order already.
        on_pool!(self, db => sqlx::query_as::<_, JobView>(
            "SELECT id, kind, lane, state, attempt, run_after, last_error FROM jobs \
             WHERE state IN ('queued', 'running') ORDER BY +seq LIMIT 10000").fetch_all(db))
    }

    /// Lists the jobs of a kind and lane that are open, or that ended since a time.
    pub async fn job_list_of_lane(
        &self,
        lane: &str,
        kind: &str,
        since: DateTime<Utc>,
    ) -> Result<Vec<LaneJob>> {
        on_pool!(self, db => sqlx::query_as::<_, LaneJob>(
            "SELECT state, payload, finished_at FROM jobs \
             WHERE lane = $1 AND kind = $2 AND state IN ('queued', 'running') \
             UNION ALL SELECT state, payload, finished_at FROM jobs \
             WHERE lane = $1 AND kind = $2 AND state IN ('done', 'failed') AND finished_at >= $3")
            .bind(lane).bind(kind).bind(kept_time(since)).fetch_all(db))
    }

    /// Deletes jobs that ended before the given time, at most `limit` of them.
    pub async fn job_prune(&self, before: DateTime<Utc>, limit: i64) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "DELETE FROM jobs WHERE seq IN (SELECT seq FROM jobs WHERE state IN ('done', 'failed') \
             AND finished_at < $1 ORDER BY finished_at LIMIT $2)",
            kept_time(before),
            limit,
        )?;
        tx.commit().await.map(|()| rows)
    }
}

/// Renews the leases of the jobs that a holder works on, until a time of the deadline clock. Returns the jobs that it
/// still holds. A job may be held without being worked on: its claim or its end was committed, but the holder did not
/// get the answer. The lease of such a job expires.
pub(super) async fn job_renew_in_tx(
    tx: &mut Tx,
    holder: &str,
    working: &[JobId],
    until: DateTime<Utc>,
) -> Result<Vec<JobId>> {
    let working: Vec<String> = working.iter().map(ToString::to_string).collect();
    on_tx!(tx, db => sqlx::query_scalar::<_, JobId>(
        "UPDATE jobs SET lease_until = $1 WHERE lease_holder = $2 AND state = 'running' AND $3 LIKE '%' || CAST(id AS TEXT) || '%' RETURNING id")
        .bind(until).bind(holder).bind(working.join(" ")).fetch_all(db))
}

/// Returns true if any of the jobs has to wait until a time.
pub(super) fn has_time(jobs: &[(JobId, &NewJob)]) -> bool {
    jobs.iter().any(|(_, job)| job.run_after.is_some())
}

/// Appends a parameter of a statement for PostgreSQL.
pub(super) fn add<'t, T>(arguments: &mut PgArguments, value: T) -> Result<()>
where
    T: sqlx::Encode<'t, Postgres> + sqlx::Type<Postgres>,
{
    Arguments::add(arguments, value).map_err(sqlx::Error::Encode)
}

/// Locks a lane, so that nobody else adds to it until the transaction ends. Notifies other replicas at the commit, in
/// the same round trip. SQLite has only one writing transaction and one server anyway.
pub(super) async fn lane_hold_in_tx(tx: &mut Tx, lane: &str) -> Result<()> {
    match tx {
        Tx::Sqlite(_) => Ok(()),
        Tx::Postgres(tx) => {
            sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0)), pg_notify($2, $3)")
                .bind(lane)
                .bind(CHANNEL)
                .bind(News::Jobs.to_string())
                .execute(&mut **tx)
                .await
                .map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::DatabaseUrl;
    use super::*;
    use crate::clock::{CountingIds, ManualClock};

    #[tokio::test]
    async fn claiming_on_sqlite_reads_open_jobs_in_order_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(DateTime::UNIX_EPOCH));
        let url = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
        let store = Store::open(&url, clock, Arc::new(CountingIds::default()))
            .await
            .unwrap();
        let DbPool::Sqlite { read, .. } = &store.pool else {
            panic!("SQLite was asked for")
        };
        let explain = concat!("EXPLAIN QUERY PLAN ", claim_on_sqlite!());
        let steps: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(explain).fetch_all(read).await.unwrap();
        let steps: Vec<&str> = steps.iter().map(|(.., step)| step.as_str()).collect();
        assert_eq!(
            steps,
            [
                "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)",
                "SCALAR SUBQUERY 3",
                "SEARCH j USING INDEX jobs_in_order (priority>?)",
                "CORRELATED SCALAR SUBQUERY 1",
                "SEARCH r USING INDEX jobs_of_share (share=? AND lease_holder=?)",
                "CORRELATED SCALAR SUBQUERY 2",
                "SEARCH o USING INDEX jobs_open (lane=? AND seq<?)",
            ]
        );
    }
}
