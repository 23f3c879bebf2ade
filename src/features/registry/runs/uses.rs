//! Versions of the registry that plans use.
//!
//! They are stored with the record of a plan, in one transaction, and deleted with it. The gate of an apply looks at
//! them in the transaction that lets the apply begin.

use chrono::{DateTime, Utc};
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::records::{RecordNotice, TakedownKind};
use lockkeeper_registry::versions::VersionKey;

use super::super::store::{VersionNotice, broken, key_of};
use crate::model::{
    PlanId, PlanState, ProjectKey, ProjectName, PullRef, Reason, RepoId, RepoPath, Subject,
    WorkspaceName,
};
use crate::store::{Result, Store, Tx, execute, on_pool, on_tx};

/// Maximum number of versions of the registry that a plan may use. Nobody uses that many, and each is a row.
pub(super) const MAX_USES: usize = 1_000;

/// A version that a plan uses and that is deprecated or taken down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionUse {
    /// Name and number of the version.
    pub key: VersionKey,
    /// Reason of the deprecation or takedown.
    pub notice: VersionNotice,
}

/// A plan that uses a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleUse {
    /// Pull request or application that was planned.
    pub pull: PullRef,
    /// Project that was planned.
    pub project: ProjectKey,
    /// Version that the plan uses.
    pub key: VersionKey,
    /// State of the plan.
    pub state: PlanState,
    /// Time of the plan.
    pub planned_at: DateTime<Utc>,
}

/// Adds the uses of a plan from a list of lists with kind, name and version.
const ADD_SQLITE: &str = "INSERT INTO registry_uses (plan, kind, name, version) \
    SELECT $1, json_extract(each.value, '$[0]'), json_extract(each.value, '$[1]'), json_extract(each.value, '$[2]') \
    FROM json_each($2) AS each";
const ADD_POSTGRES: &str = "INSERT INTO registry_uses (plan, kind, name, version) \
    SELECT $1, each.value->>0, each.value->>1, each.value->>2 FROM jsonb_array_elements($2::jsonb) AS each (value)";

/// Selects the uses of a plan that are deprecated or taken down.
const NOTICES: &str = "SELECT v.kind, v.name, v.version, v.reason, v.replacement, v.takedown, v.noticed_at \
    FROM registry_uses u JOIN registry_versions v ON v.kind = u.kind AND v.name = u.name AND v.version = u.version \
    WHERE u.plan = $1 AND v.state IN ('deprecated', 'deleted')";

/// Selects the plans that use a name, or one version of it: those that count in their pulls, and the newest plan of each
/// project.
const USES: &str = "SELECT p.repo, p.pull, p.dir, p.workspace, p.name AS project, u.version, p.state, p.created_at \
    FROM registry_uses u JOIN plans p ON p.id = u.plan \
    WHERE u.kind = $1 AND u.name = $2 AND ($3 = '' OR u.version = $3) AND (p.state <> 'discarded' OR NOT EXISTS \
    (SELECT 1 FROM plans q WHERE q.repo = p.repo AND q.dir = p.dir AND q.workspace = p.workspace AND q.name = p.name \
    AND q.created_at > p.created_at)) \
    ORDER BY p.created_at DESC, p.id LIMIT $4";

#[derive(sqlx::FromRow)]
struct NoticeRow {
    kind: NameKind,
    name: String,
    version: String,
    reason: Option<String>,
    replacement: Option<VersionKey>,
    takedown: Option<TakedownKind>,
    noticed_at: Option<DateTime<Utc>>,
}

/// A deprecated or deleted version has no reason.
#[derive(Debug, thiserror::Error)]
#[error("the row of {0} has no reason")]
struct UseWithoutReason(VersionKey);

impl NoticeRow {
    fn version_use(self) -> Result<VersionUse> {
        let key = key_of(self.kind, &self.name, &self.version)?;
        let reason = Reason::read(self.reason.as_deref().unwrap_or_default()).map_err(broken)?;
        let (Some(reason), Some(at)) = (reason, self.noticed_at) else {
            return Err(broken(UseWithoutReason(key)));
        };
        let notice = RecordNotice {
            reason,
            replacement: self.replacement,
        };
        Ok(VersionUse {
            key,
            notice: VersionNotice {
                takedown: self.takedown,
                notice,
                at,
            },
        })
    }
}

#[derive(sqlx::FromRow)]
struct UseRow {
    repo: RepoId,
    pull: Subject,
    dir: RepoPath,
    workspace: WorkspaceName,
    project: String,
    version: String,
    state: PlanState,
    created_at: DateTime<Utc>,
}

impl Store {
    /// Stores the versions that a plan uses.
    pub(crate) async fn registry_uses_add_in_tx(
        tx: &mut Tx,
        plan: PlanId,
        uses: &[VersionKey],
    ) -> Result<()> {
        if uses.is_empty() {
            return Ok(());
        }
        let mut rows: Vec<[String; 3]> = uses
            .iter()
            .map(|key| {
                let name = key.name();
                [
                    name.kind().to_string(),
                    name.as_str().to_owned(),
                    key.version(),
                ]
            })
            .collect();
        rows.sort();
        rows.dedup();
        let sql = match tx {
            Tx::Sqlite(_) => ADD_SQLITE,
            Tx::Postgres(_) => ADD_POSTGRES,
        };
        let rows = serde_json::to_string(&rows).expect("texts are JSON");
        execute!(tx, sql, plan, rows).map(drop)
    }

    /// Returns true if a plan uses a version that was taken down.
    pub(crate) async fn registry_uses_taken_down_in_tx(tx: &mut Tx, plan: PlanId) -> Result<bool> {
        let name = on_tx!(tx, db => sqlx::query_scalar::<_, String>(
            "SELECT u.name FROM registry_uses u \
             JOIN registry_versions v ON v.kind = u.kind AND v.name = u.name AND v.version = u.version \
             WHERE u.plan = $1 AND v.state = 'deleted' LIMIT 1").bind(plan).fetch_optional(db))?;
        Ok(name.is_some())
    }

    /// Lists the versions that a plan uses and that are deprecated or taken down, by name and version.
    pub async fn registry_plan_notices(&self, plan: PlanId) -> Result<Vec<VersionUse>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, NoticeRow>(NOTICES)
            .bind(plan).fetch_all(db))?;
        let uses = rows.into_iter().map(NoticeRow::version_use);
        let mut uses: Vec<VersionUse> = uses.collect::<Result<_>>()?;
        uses.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(uses)
    }

    /// Lists the plans that use a name, or one version of it: the current plans of all pulls, and the newest plan of each
    /// project. At most `limit` of them, the newest ones.
    pub async fn registry_uses(
        &self,
        name: &RegistryName,
        version: Option<&VersionKey>,
        limit: i64,
    ) -> Result<Vec<ModuleUse>> {
        let number = version.map(VersionKey::version).unwrap_or_default();
        let rows = on_pool!(self, db => sqlx::query_as::<_, UseRow>(USES)
            .bind(name.kind()).bind(name.as_str()).bind(&number).bind(limit).fetch_all(db))?;
        let uses = rows.into_iter().map(|row| {
            let project: Option<ProjectName> = (!row.project.is_empty())
                .then(|| row.project.parse())
                .transpose()
                .map_err(broken)?;
            Ok(ModuleUse {
                pull: PullRef {
                    repo: row.repo,
                    subject: row.pull,
                },
                project: ProjectKey {
                    dir: row.dir,
                    workspace: row.workspace,
                    name: project,
                },
                key: key_of(name.kind(), name.as_str(), &row.version)?,
                state: row.state,
                planned_at: row.created_at,
            })
        });
        let mut uses: Vec<ModuleUse> = uses.collect::<Result<_>>()?;
        uses.sort_by(|one, other| {
            let place = |used: &ModuleUse| (used.pull.clone(), used.project.clone());
            (place(one), &one.key).cmp(&(place(other), &other.key))
        });
        Ok(uses)
    }
}
