//! Applications: registered projects. `claims/` has the rules for changing them, together with the references to
//! claims.

use chrono::{DateTime, Utc};

use super::{Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx};
use crate::model::{
    ApplicationId, ApplicationSpec, BranchName, Cause, OwnerId, OwnerName, ProjectName, PullRef,
    RepoPath, RepoUrl, Subject, WorkspaceName,
};

macro_rules! application_sql {
    ($rest:literal) => {
        concat!(
            "SELECT p.id, p.owner AS owner_id, o.name AS owner, p.url, p.branch, p.dir, p.workspace, p.name, p.any_branch, p.number, ",
            "p.created_by, ",
            "p.created_at, p.updated_at FROM applications p JOIN owners o ON o.id = p.owner ",
            $rest
        )
    };
}

const INSERT: &str = "INSERT INTO applications \
     (id, owner, url, branch, dir, workspace, name, number, created_by, created_at, updated_at, any_branch) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11) ON CONFLICT (url, branch, dir, workspace) DO NOTHING";

/// A project that an owner registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    pub id: ApplicationId,
    /// Name of the owner.
    pub owner: OwnerName,
    /// Identifier of the owner.
    pub owner_id: OwnerId,
    /// Repository, branch, directory, workspace and name.
    pub spec: ApplicationSpec,
    /// Number that takes the place of a pull's number.
    pub number: Subject,
    /// Login of the person who registered the application.
    pub created_by: String,
    /// Time of the registration.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub updated_at: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct ApplicationRow {
    id: ApplicationId,
    owner_id: OwnerId,
    owner: OwnerName,
    url: RepoUrl,
    branch: BranchName,
    dir: RepoPath,
    workspace: WorkspaceName,
    name: Option<ProjectName>,
    any_branch: bool,
    number: Subject,
    created_by: String,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<ApplicationRow> for Application {
    fn from(row: ApplicationRow) -> Self {
        let ApplicationRow {
            url,
            branch,
            dir,
            workspace,
            name,
            any_branch,
            ..
        } = row;
        Self {
            id: row.id,
            owner: row.owner,
            owner_id: row.owner_id,
            spec: ApplicationSpec {
                url,
                branch,
                dir,
                workspace,
                name,
                any_branch,
            },
            number: row.number,
            created_by: row.created_by,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl Application {
    /// Returns the reference that stands for the application among the pulls. `None`: its address names no repository
    /// that a forge could have.
    pub fn at(&self) -> Option<PullRef> {
        self.spec.url.repo_id().map(|repo| PullRef {
            repo,
            subject: self.number,
        })
    }
}

impl Store {
    /// Maximum number of applications of one owner (P12).
    pub const MAX_APPLICATIONS: i64 = 10_000;

    /// Returns the application that has this number.
    pub async fn application_of(&self, number: Subject) -> Result<Option<Application>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, ApplicationRow>(application_sql!("WHERE p.number = $1"))
            .bind(number).fetch_optional(db))?;
        Ok(row.map(Application::from))
    }

    /// Returns the application with this identifier.
    pub async fn application_get(&self, id: ApplicationId) -> Result<Option<Application>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, ApplicationRow>(application_sql!("WHERE p.id = $1"))
            .bind(id).fetch_optional(db))?;
        Ok(row.map(Application::from))
    }

    /// Returns the application of this repository, branch, directory and workspace.
    pub async fn application_find(&self, spec: &ApplicationSpec) -> Result<Option<Application>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, ApplicationRow>(application_sql!(
                "WHERE p.url = $1 AND p.branch = $2 AND p.dir = $3 AND p.workspace = $4"))
            .bind(&spec.url).bind(&spec.branch).bind(&spec.dir).bind(&spec.workspace).fetch_optional(db))?;
        Ok(row.map(Application::from))
    }

    /// Lists all applications, or those of one owner, ordered by identifier and beginning after the given one.
    pub async fn application_list(
        &self,
        owner: Option<OwnerId>,
        after: Option<ApplicationId>,
        limit: i64,
    ) -> Result<Vec<Application>> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let rows = match owner {
            Some(owner) => on_pool!(self, db => sqlx::query_as::<_, ApplicationRow>(
                application_sql!("WHERE p.owner = $1 AND p.id > $2 ORDER BY p.id LIMIT $3"))
                .bind(owner).bind(after).bind(limit).fetch_all(db))?,
            None => on_pool!(self, db => sqlx::query_as::<_, ApplicationRow>(
                application_sql!("WHERE p.id > $1 ORDER BY p.id LIMIT $2"))
                .bind(after).bind(limit).fetch_all(db))?,
        };
        Ok(rows.into_iter().map(Application::from).collect())
    }

    /// Registers an application for an owner who has the claim on its repository. `None`: the same application exists
    /// already.
    pub(crate) async fn application_insert_in_tx(
        &self,
        tx: &mut Tx,
        (owner_id, owner): (OwnerId, &OwnerName),
        spec: &ApplicationSpec,
        cause: &Cause,
    ) -> Result<Option<Application>> {
        let now = kept_time(self.now());
        let application = Application {
            id: ApplicationId::next(&*self.ids),
            owner: owner.clone(),
            owner_id,
            spec: spec.clone(),
            number: next_number_in_tx(tx).await?,
            created_by: free_text(&cause.actor.login).into_owned(),
            created_at: now,
            updated_at: now,
        };
        let inserted = execute!(
            tx,
            INSERT,
            application.id,
            owner_id,
            &spec.url,
            &spec.branch,
            &spec.dir,
            &spec.workspace,
            spec.name.as_ref(),
            application.number,
            &application.created_by,
            now,
            spec.any_branch,
        )?;
        Ok((inserted > 0).then_some(application))
    }

    /// Stores a changed application. `None`: another application is the same, and the transaction cannot be used any
    /// more.
    pub(crate) async fn application_update_in_tx(
        &self,
        tx: &mut Tx,
        application: Application,
    ) -> Result<Option<Application>> {
        let application = Application {
            updated_at: kept_time(self.now()),
            ..application
        };
        let spec = &application.spec;
        let updated = execute!(
            tx,
            "UPDATE applications SET url = $2, branch = $3, dir = $4, workspace = $5, name = $6, updated_at = $7, \
             any_branch = $8 WHERE id = $1",
            application.id,
            &spec.url,
            &spec.branch,
            &spec.dir,
            &spec.workspace,
            spec.name.as_ref(),
            application.updated_at,
            spec.any_branch,
        );
        match updated {
            Err(sqlx::Error::Database(refused)) if refused.is_unique_violation() => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Some(application)),
        }
    }
}

/// Returns the next number. Numbers are never used twice, so that the history of a removed application stays its own.
async fn next_number_in_tx(tx: &mut Tx) -> Result<Subject> {
    const KEY: &str = "last_application";
    execute!(
        tx,
        "INSERT INTO settings (key, value) VALUES ($1, '0') ON CONFLICT (key) DO NOTHING",
        KEY
    )?;
    let serial = on_tx!(tx, db => sqlx::query_scalar::<_, String>(
        "UPDATE settings SET value = CAST(CAST(value AS BIGINT) + 1 AS TEXT) WHERE key = $1 RETURNING value")
        .bind(KEY).fetch_one(db))?;
    let serial = serial
        .parse()
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Subject::Application(serial))
}

/// Returns the application and locks its row until the transaction ends.
pub(crate) async fn application_hold_in_tx(
    tx: &mut Tx,
    id: ApplicationId,
) -> Result<Option<Application>> {
    let sql = match tx {
        Tx::Sqlite(_) => application_sql!("WHERE p.id = $1"),
        Tx::Postgres(_) => application_sql!("WHERE p.id = $1 FOR UPDATE OF p"),
    };
    let row =
        on_tx!(tx, db => sqlx::query_as::<_, ApplicationRow>(sql).bind(id).fetch_optional(db))?;
    Ok(row.map(Application::from))
}

/// Returns true if another application is the same. Without this check, two applications could be changed into each
/// other at the same time. Their transactions would wait for each other at the unique key.
pub(crate) async fn application_is_taken_in_tx(
    tx: &mut Tx,
    id: ApplicationId,
    spec: &ApplicationSpec,
) -> Result<bool> {
    on_tx!(tx, db => sqlx::query_scalar::<_, i64>(
        "SELECT COUNT(*) FROM applications WHERE url = $1 AND branch = $2 AND dir = $3 AND workspace = $4 AND id <> $5")
        .bind(&spec.url).bind(&spec.branch).bind(&spec.dir).bind(&spec.workspace).bind(id).fetch_one(db))
    .map(|others| others > 0)
}

/// Counts the applications of an owner.
pub(crate) async fn application_count_in_tx(tx: &mut Tx, owner: OwnerId) -> Result<i64> {
    on_tx!(tx, db => sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM applications WHERE owner = $1")
        .bind(owner).fetch_one(db))
}

/// Removes an application whose reference to a claim is already gone.
pub(crate) async fn application_delete_in_tx(tx: &mut Tx, id: ApplicationId) -> Result<()> {
    execute!(tx, "DELETE FROM applications WHERE id = $1", id).map(drop)
}
