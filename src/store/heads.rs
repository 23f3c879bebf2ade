//! Last known heads of open pulls. They come from events, or from a reconciler if no event came. Both
//! are compared here with what is known, in the transaction that acts on them, so that the second one does nothing
//! (P2).

use chrono::{DateTime, Utc};

use super::{Result, Store, Tx, execute, kept_time, on_pool};
use crate::model::{BranchName, CommitSha, PullHead, PullNumber, PullRef, RepoId};

/// Last known head of an open pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHead {
    /// Number of the pull.
    pub number: PullNumber,
    /// Head, base branch and draft state.
    pub at: PullHead,
    /// Time when a reconciler last found a head that no event had told of, if ever.
    pub found_at: Option<DateTime<Utc>>,
}

/// Head of a pull, by its source.
#[derive(Clone, Copy, Debug)]
pub enum HeadUpdate<'a> {
    /// Head that an event contained, if any.
    Event(Option<&'a PullHead>),
    /// Answer of the forge to a request.
    Forge {
        /// Head that was known before the request. If another one is known by now, an event was faster.
        known: Option<&'a PullHead>,
        /// Head that the forge returned.
        at: &'a PullHead,
    },
}

const LIST: &str = "SELECT number, head, base_branch, draft, found_at FROM pull_heads WHERE repo = $1 ORDER BY number";
const GET: &str = "SELECT number, head, base_branch, draft, found_at FROM pull_heads WHERE repo = $1 AND number = $2";
const UPSERT: &str = "INSERT INTO pull_heads (repo, number, head, base_branch, draft) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (repo, number) DO UPDATE SET head = excluded.head, base_branch = excluded.base_branch, \
     draft = excluded.draft";
const INSERT: &str = "INSERT INTO pull_heads (repo, number, head, base_branch, draft, found_at) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (repo, number) DO NOTHING";
const UPDATE_KNOWN: &str = "UPDATE pull_heads SET head = $3, base_branch = $4, draft = $5, found_at = $6 \
     WHERE repo = $1 AND number = $2 AND head = $7 AND base_branch = $8 AND draft = $9";

impl Store {
    /// Lists the last known heads of the open pulls of a repository.
    pub async fn head_list(&self, repo: &RepoId) -> Result<Vec<KnownHead>> {
        let rows =
            on_pool!(self, db => sqlx::query_as::<_, HeadColumns>(LIST).bind(repo).fetch_all(db))?;
        Ok(rows.into_iter().map(KnownHead::from).collect())
    }

    /// Returns the last known head of an open pull.
    pub async fn head_get(&self, pull: &PullRef) -> Result<Option<KnownHead>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, HeadColumns>(GET)
            .bind(&pull.repo).bind(pull.subject).fetch_optional(db))?;
        Ok(row.map(KnownHead::from))
    }

    /// Stores the head of a pull without a command. `false`: an event was faster, and nothing was stored.
    pub async fn head_note(&self, pull: &PullRef, news: HeadUpdate<'_>) -> Result<bool> {
        let mut tx = self.begin_shared().await?;
        let noted = self.head_in_tx(&mut tx, pull, news).await?;
        tx.commit().await.map(|()| noted)
    }

    /// Stores the head of a pull that was not known to be open, without counting it as a missed event.
    pub async fn head_note_first(&self, pull: &PullRef, at: &PullHead) -> Result<()> {
        let mut tx = self.begin_shared().await?;
        insert_in_tx(&mut tx, pull, at, None).await?;
        tx.commit().await
    }

    /// Stores the head of a pull. `false`: an event was faster, and nothing was stored.
    pub(super) async fn head_in_tx(
        &self,
        tx: &mut Tx,
        pull: &PullRef,
        news: HeadUpdate<'_>,
    ) -> Result<bool> {
        match news {
            HeadUpdate::Event(at) => {
                if let Some(at) = at {
                    upsert_in_tx(tx, pull, at).await?;
                }
                self.watch_in_tx(tx, &pull.repo).await?;
                Ok(true)
            }
            HeadUpdate::Forge { known: None, at } => {
                insert_in_tx(tx, pull, at, Some(self.now())).await
            }
            HeadUpdate::Forge {
                known: Some(known),
                at,
            } => update_known_in_tx(tx, pull, known, at, self.now()).await,
        }
    }
}

async fn upsert_in_tx(tx: &mut Tx, pull: &PullRef, at: &PullHead) -> Result<()> {
    execute!(
        tx,
        UPSERT,
        &pull.repo,
        pull.subject,
        &at.head,
        &at.base_branch,
        at.draft
    )
    .map(drop)
}

async fn insert_in_tx(
    tx: &mut Tx,
    pull: &PullRef,
    at: &PullHead,
    found: Option<DateTime<Utc>>,
) -> Result<bool> {
    let found = found.map(kept_time);
    execute!(
        tx,
        INSERT,
        &pull.repo,
        pull.subject,
        &at.head,
        &at.base_branch,
        at.draft,
        found
    )
    .map(|rows| rows == 1)
}

async fn update_known_in_tx(
    tx: &mut Tx,
    pull: &PullRef,
    known: &PullHead,
    at: &PullHead,
    now: DateTime<Utc>,
) -> Result<bool> {
    execute!(
        tx,
        UPDATE_KNOWN,
        &pull.repo,
        pull.subject,
        &at.head,
        &at.base_branch,
        at.draft,
        kept_time(now),
        &known.head,
        &known.base_branch,
        known.draft,
    )
    .map(|rows| rows == 1)
}

/// Deletes the head of a pull that is not open any more.
pub(super) async fn head_forget_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<()> {
    execute!(
        tx,
        "DELETE FROM pull_heads WHERE repo = $1 AND number = $2",
        &pull.repo,
        pull.subject
    )
    .map(drop)
}

#[derive(sqlx::FromRow)]
struct HeadColumns {
    number: PullNumber,
    head: CommitSha,
    base_branch: BranchName,
    draft: bool,
    found_at: Option<DateTime<Utc>>,
}

impl From<HeadColumns> for KnownHead {
    fn from(row: HeadColumns) -> Self {
        let at = PullHead {
            head: row.head,
            base_branch: row.base_branch,
            draft: row.draft,
        };
        Self {
            number: row.number,
            at,
            found_at: row.found_at,
        }
    }
}
