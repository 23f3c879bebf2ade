//! Repositories whose list of open pulls is read regularly, and the pages of these lists.

use chrono::{DateTime, Utc};

use crate::model::RepoId;
use crate::store::{Result, Store, Tx, execute, free_text, kept_time, on_pool};

/// A repository whose list of open pulls is read regularly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedRepo {
    pub repo: RepoId,
    /// Time since when the repository is known. An earlier change is no missed event.
    pub known_at: DateTime<Utc>,
    /// Earliest time of the next read.
    pub due_at: DateTime<Utc>,
    /// Number of consecutive failed reads.
    pub failures: i64,
}

/// A page of a forge's list, from its last answer.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct ForgePage {
    /// Number of the page, from 1.
    pub page: i64,
    /// Tag that the forge gave to the answer.
    pub etag: String,
    /// Content of the page.
    pub content: String,
}

const DISCOVER: &str = "INSERT INTO watched_repos (repo, known_at, due_at, failures) \
     SELECT p.repo, MIN(p.updated_at), $1, 0 FROM pulls p \
     WHERE NOT EXISTS (SELECT 1 FROM watched_repos w WHERE w.repo = p.repo) GROUP BY p.repo \
     ON CONFLICT (repo) DO NOTHING";
/// Updates a repository after an event. Most events change nothing, and must not lock the row.
const WATCH: &str = "INSERT INTO watched_repos (repo, known_at, due_at, failures) \
     SELECT $1, $2, $2, 0 WHERE NOT EXISTS (SELECT 1 FROM watched_repos WHERE repo = $1 AND failures = 0) \
     ON CONFLICT (repo) DO UPDATE SET failures = 0, \
     due_at = CASE WHEN watched_repos.failures > 0 THEN excluded.due_at ELSE watched_repos.due_at END";
const DUE: &str = "SELECT repo, known_at, due_at, failures FROM watched_repos WHERE due_at <= $1 \
     ORDER BY due_at, repo LIMIT $2";

impl Store {
    /// Begins to watch repositories that are known only by pulls, such as those of imported locks.
    pub async fn watched_discover(&self) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = execute!(&mut tx, DISCOVER, self.now())?;
        tx.commit().await.map(|()| rows)
    }

    /// Lists repositories that are due, the one with the oldest due time first.
    pub async fn watched_list_due(&self, limit: i64) -> Result<Vec<WatchedRepo>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, WatchedColumns>(DUE).bind(self.now()).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(WatchedRepo::from).collect())
    }

    /// Takes the turn of a repository, which is not due again before `until`; `false`: another replica took it.
    pub async fn watched_claim(&self, watched: &WatchedRepo, until: DateTime<Utc>) -> Result<bool> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "UPDATE watched_repos SET due_at = $1 WHERE repo = $2 AND due_at = $3",
            kept_time(until),
            &watched.repo,
            watched.due_at,
        )?;
        tx.commit().await.map(|()| rows == 1)
    }

    /// Stores that a repository was read. `complete`: all of its open pulls were compared with the known ones.
    pub async fn watched_seen(&self, repo: &RepoId, complete: bool) -> Result<()> {
        let complete_at = complete.then(|| kept_time(self.now()));
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE watched_repos SET failures = 0, complete_at = COALESCE($1, complete_at) WHERE repo = $2",
            complete_at,
            repo,
        )?;
        tx.commit().await
    }

    /// Stores that a repository could not be read.
    pub async fn watched_failed(&self, repo: &RepoId, due_at: DateTime<Utc>) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE watched_repos SET failures = failures + 1, due_at = $1 WHERE repo = $2",
            kept_time(due_at),
            repo,
        )?;
        tx.commit().await
    }

    /// Lists the stored pages of a repository's list of open pulls, in order.
    pub async fn forge_page_list(&self, repo: &RepoId) -> Result<Vec<ForgePage>> {
        on_pool!(self, db => sqlx::query_as::<_, ForgePage>(
            "SELECT page, etag, content FROM forge_pages WHERE repo = $1 ORDER BY page").bind(repo).fetch_all(db))
    }

    /// Stores a page of a list.
    pub async fn forge_page_keep(&self, repo: &RepoId, page: &ForgePage) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "INSERT INTO forge_pages (repo, page, etag, content) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (repo, page) DO UPDATE SET etag = excluded.etag, content = excluded.content",
            repo,
            page.page,
            free_text(&page.etag),
            free_text(&page.content),
        )?;
        tx.commit().await
    }

    /// Deletes the pages from a number on.
    pub async fn forge_page_forget(&self, repo: &RepoId, from: i64) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "DELETE FROM forge_pages WHERE repo = $1 AND page >= $2",
            repo,
            from
        )?;
        tx.commit().await
    }

    /// Watches a repository from now on, after an event of it.
    pub(crate) async fn watch_in_tx(&self, tx: &mut Tx, repo: &RepoId) -> Result<()> {
        execute!(tx, WATCH, repo, self.now()).map(drop)
    }
}

#[derive(sqlx::FromRow)]
struct WatchedColumns {
    repo: RepoId,
    known_at: DateTime<Utc>,
    due_at: DateTime<Utc>,
    failures: i64,
}

impl From<WatchedColumns> for WatchedRepo {
    fn from(row: WatchedColumns) -> Self {
        Self {
            repo: row.repo,
            known_at: row.known_at,
            due_at: row.due_at,
            failures: row.failures,
        }
    }
}
