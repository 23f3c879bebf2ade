//! Repositories by the forge's identifier, their former names, and everything that the forge did not find.
//!
//! The identifier stands for the repository; its name is an attribute. All other tables use the current name of a
//! repository, so that people can read them and no look-up is needed. When the name changes, `store/renames.rs` moves
//! all of their rows together.

use chrono::{DateTime, Utc};

use super::{Result, Store, Tx, execute, kept_time, on_pool};
use crate::model::{ForgeRepo, HostName, PullRef, RepoId, Subject};

/// Result of comparing a repository with the database.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownRepository {
    /// The database has this identifier with this name.
    Same,
    /// The database has neither the identifier nor the name.
    New,
    /// The database has the identifier with another name, or the name with another identifier.
    Differs,
}

/// Name that a repository had before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerName {
    pub old: RepoId,
    /// Current name of the same repository.
    pub now: RepoId,
}

/// A repository or pull that the forge did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence<'a> {
    /// A whole repository, with all its pulls.
    Repo(&'a RepoId),
    /// A pull of a repository that exists.
    Pull(&'a PullRef),
}

impl Absence<'_> {
    fn columns(&self) -> (&RepoId, Subject) {
        match self {
            Self::Repo(repo) => (repo, Subject::pull(0)),
            Self::Pull(pull) => (&pull.repo, pull.subject),
        }
    }
}

const KNOWN: &str = "SELECT CAST(SUM(CASE WHEN forge_id = $2 AND repo = $3 THEN 1 ELSE 0 END) AS BIGINT), COUNT(*) \
     FROM repositories WHERE (host = $1 AND forge_id = $2) OR repo = $3";
const FORMER: &str = "SELECT f.repo, r.repo FROM former_names f \
     JOIN repositories r ON r.host = f.host AND r.forge_id = f.forge_id WHERE r.repo <> f.repo ORDER BY f.repo LIMIT $1";

impl Store {
    /// Compares the identifier and the name of a repository with the database.
    pub async fn repository_known(&self, told: &ForgeRepo) -> Result<KnownRepository> {
        let id = told.id.cast_signed();
        let (same, any) = on_pool!(self, db => sqlx::query_as::<_, (Option<i64>, i64)>(KNOWN)
            .bind(told.repo.host()).bind(id).bind(&told.repo).fetch_one(db))?;
        Ok(match (same.unwrap_or_default(), any) {
            (1, 1) => KnownRepository::Same,
            (_, 0) => KnownRepository::New,
            (_, _) => KnownRepository::Differs,
        })
    }

    /// Returns the stored name of a repository.
    pub async fn repository_name(&self, host: &HostName, id: u64) -> Result<Option<RepoId>> {
        on_pool!(self, db => sqlx::query_scalar::<_, RepoId>(
            "SELECT repo FROM repositories WHERE host = $1 AND forge_id = $2")
            .bind(host).bind(id.cast_signed()).fetch_optional(db))
    }

    /// Returns the stored identifier of the repository that has a name.
    pub async fn repository_id(&self, repo: &RepoId) -> Result<Option<u64>> {
        let id = on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT forge_id FROM repositories WHERE repo = $1")
            .bind(repo).fetch_optional(db))?;
        Ok(id.map(i64::cast_unsigned))
    }

    /// Stores a repository whose identifier and name are both unknown. `false`: one of them is known.
    pub async fn repository_note(&self, told: &ForgeRepo) -> Result<bool> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "INSERT INTO repositories (host, forge_id, repo, named_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            told.repo.host(),
            told.id.cast_signed(),
            &told.repo,
            kept_time(self.now()),
        )?;
        if rows > 0 {
            execute!(
                &mut tx,
                "DELETE FROM former_names WHERE repo = $1",
                &told.repo
            )?;
        }
        tx.commit().await.map(|()| rows > 0)
    }

    /// Lists former names of repositories, each with the current name of the repository.
    pub async fn repository_former_names(&self, limit: i64) -> Result<Vec<FormerName>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, (RepoId, RepoId)>(FORMER).bind(limit).fetch_all(db))?;
        Ok(rows
            .into_iter()
            .map(|(old, now)| FormerName { old, now })
            .collect())
    }

    /// Stores that the forge did not find something, and returns the time when this was first noticed.
    pub async fn absence_note(&self, what: Absence<'_>) -> Result<DateTime<Utc>> {
        let (repo, number) = what.columns();
        let now = kept_time(self.now());
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "INSERT INTO absences (repo, number, noticed_at) VALUES ($1, $2, $3) ON CONFLICT (repo, number) DO NOTHING",
            repo,
            number,
            now,
        )?;
        tx.commit().await?;
        let since = on_pool!(self, db => sqlx::query_scalar::<_, DateTime<Utc>>(
            "SELECT noticed_at FROM absences WHERE repo = $1 AND number = $2").bind(repo).bind(number).fetch_optional(db))?;
        Ok(since.unwrap_or(now))
    }

    /// Deletes the note that something was not found: the forge has it, or nobody looks for it any more.
    pub async fn absence_forget(&self, what: Absence<'_>) -> Result<()> {
        let (repo, number) = what.columns();
        let noted = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM absences WHERE repo = $1 AND number = $2").bind(repo).bind(number).fetch_one(db))?;
        if noted == 0 {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "DELETE FROM absences WHERE repo = $1 AND number = $2",
            repo,
            number
        )?;
        tx.commit().await
    }
}

/// Stores the new name of a repository, and the old one as a former name.
pub(super) async fn repository_named_in_tx(
    tx: &mut Tx,
    id: u64,
    (old, new): (&RepoId, &RepoId),
    now: DateTime<Utc>,
) -> Result<()> {
    let id = id.cast_signed();
    execute!(
        &mut *tx,
        "INSERT INTO repositories (host, forge_id, repo, named_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (host, forge_id) DO UPDATE SET repo = excluded.repo, named_at = excluded.named_at",
        new.host(),
        id,
        new,
        now,
    )?;
    execute!(&mut *tx, "DELETE FROM former_names WHERE repo = $1", new)?;
    execute!(
        tx,
        "INSERT INTO former_names (repo, host, forge_id, left_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (repo) DO UPDATE SET host = excluded.host, forge_id = excluded.forge_id, left_at = excluded.left_at",
        old,
        old.host(),
        id,
        now,
    )
    .map(drop)
}
