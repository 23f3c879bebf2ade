//! Uses of the default branches in the database.

use std::collections::{BTreeSet, HashSet};

use chrono::{DateTime, Utc};
use lockkeeper_registry::names::RegistryName;
use lockkeeper_registry::versions::VersionKey;

use super::super::store::{broken, key_of};
use crate::discovery::VersionConstraint;
use crate::model::{CommitSha, DataDirId, RepoId, RepoPath, RepoUrl};
use crate::store::{Result, Store, Tx, execute, free_text, kept_time, on_pool};

/// A repository whose default branch is due to be read.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct WatchedBranch {
    /// Name of the repository.
    pub repo: RepoId,
    /// Commit that was read.
    pub head_sha: Option<CommitSha>,
    /// Facts that its uses depend on.
    pub basis: Option<String>,
    /// Number of failed looks in a row.
    pub failures: i64,
}

/// A use of a name in the code of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BranchUse {
    /// Directory of the code.
    pub dir: RepoPath,
    /// Name that is used.
    pub name: RegistryName,
    /// Versions that the code allows, as it is written; empty: all.
    pub wanted: String,
    /// The only version that is allowed, if there is one.
    pub version: Option<VersionKey>,
}

impl BranchUse {
    /// Returns true if the code allows a version of the name.
    pub fn allows(&self, key: &VersionKey) -> bool {
        if let Some(version) = &self.version {
            return version == key;
        }
        let number = key.version().parse::<semver::Version>();
        let (true, Ok(number)) = (key.as_go().is_none(), number) else {
            return false;
        };
        let constraint = self.wanted.parse::<VersionConstraint>();
        self.wanted.is_empty() || constraint.is_ok_and(|constraint| constraint.matches(&number))
    }
}

/// Outcome of reading a default branch.
#[derive(Clone, Copy, Debug)]
pub struct BranchReading<'a> {
    /// Commit that was read. `None`: the repository has none.
    pub head: Option<&'a CommitSha>,
    /// Facts that the uses depend on.
    pub basis: &'a str,
    /// Everything that is used there.
    pub uses: &'a BTreeSet<BranchUse>,
    /// Time of the next look.
    pub due_at: DateTime<Utc>,
}

/// A use on the default branch of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBranchUse {
    /// Repository with the code.
    pub repo: RepoId,
    /// Commit that was read.
    pub head: Option<CommitSha>,
    /// Time of the last look at the repository.
    pub looked_at: Option<DateTime<Utc>>,
    /// Directory, name and versions.
    pub used: BranchUse,
}

/// Limits of a list of uses for people.
#[derive(Clone, Copy, Debug)]
pub struct BranchUseLimits<'a> {
    /// Repositories whose uses are listed. `None`: all.
    pub repos: Option<&'a [RepoId]>,
    /// Maximum number of uses of one repository.
    pub of_repo: i64,
    /// Maximum number of all uses.
    pub total: i64,
}

#[derive(sqlx::FromRow)]
struct BranchUseRow {
    repo: RepoId,
    head_sha: Option<CommitSha>,
    looked_at: Option<DateTime<Utc>>,
    dir: RepoPath,
    wanted: String,
    version: Option<String>,
}

/// Selects the repositories with a mirror in a data directory that were never looked at, are due, or were synced since.
const DUE: &str = "SELECT s.repo, b.head_sha, b.basis, COALESCE(b.failures, 0) AS failures FROM repository_syncs s \
    LEFT JOIN registry_branch_repos b ON b.repo = s.repo WHERE s.replica = $1 AND s.succeeded_at IS NOT NULL \
    AND (b.repo IS NULL OR b.due_at <= $2 OR (b.failures = 0 AND s.succeeded_at > b.looked_at)) \
    ORDER BY COALESCE(b.due_at, s.succeeded_at), s.repo";

const USES: &str = "SELECT u.repo, b.head_sha, b.looked_at, u.dir, u.wanted, u.version FROM registry_branch_uses u \
    JOIN registry_branch_repos b ON b.repo = u.repo WHERE u.kind = $1 AND u.name = $2 \
    ORDER BY u.repo, u.dir, u.wanted LIMIT $3";

/// Selects at most `$4` uses of a name in each of the listed repositories (`$3`), or in all.
macro_rules! uses_of_each_sql {
    ($repos:literal) => {
        concat!(
            "SELECT u.repo, b.head_sha, b.looked_at, u.dir, u.wanted, u.version FROM (SELECT repo, dir, wanted, version, \
             ROW_NUMBER() OVER (PARTITION BY repo ORDER BY dir, wanted) AS place FROM registry_branch_uses \
             WHERE kind = $1 AND name = $2 AND ",
            $repos,
            ") u JOIN registry_branch_repos b ON b.repo = u.repo WHERE u.place <= $4 ORDER BY u.repo, u.dir, u.wanted LIMIT $5"
        )
    };
}

const USES_OF_EACH_SQLITE: &str =
    uses_of_each_sql!("($3 IS NULL OR repo IN (SELECT value FROM json_each($3) AS each))");
const USES_OF_EACH_POSTGRES: &str = uses_of_each_sql!(
    "($3::text IS NULL OR repo = ANY(ARRAY(SELECT jsonb_array_elements_text($3::jsonb))))"
);

/// Adds the uses of a repository from a list of lists with directory, kind, name, constraint and version.
const ADD_SQLITE: &str = "INSERT INTO registry_branch_uses (repo, dir, kind, name, wanted, version) \
    SELECT $1, json_extract(each.value, '$[0]'), json_extract(each.value, '$[1]'), json_extract(each.value, '$[2]'), \
    json_extract(each.value, '$[3]'), json_extract(each.value, '$[4]') FROM json_each($2) AS each";
const ADD_POSTGRES: &str = "INSERT INTO registry_branch_uses (repo, dir, kind, name, wanted, version) \
    SELECT $1, each.value->>0, each.value->>1, each.value->>2, each.value->>3, each.value->>4 \
    FROM jsonb_array_elements($2::jsonb) AS each (value)";

/// Selects the names of Go modules in a JSON list that the registry has.
const KNOWN_SQLITE: &str = "SELECT name FROM registry_names WHERE kind = 'go' AND name IN (SELECT value FROM json_each($1))";
const KNOWN_POSTGRES: &str = "SELECT name FROM registry_names WHERE kind = 'go' \
    AND name = ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))";

const FORGET_USES: &str = "DELETE FROM registry_branch_uses WHERE repo = $1";

/// Forgets the tags of a repository (`$1`), unless its address (`$2`) is claimed.
const FORGET_TAGS: [&str; 3] = [
    "DELETE FROM registry_tag_versions WHERE repo = $1 AND outcome <> 'published' \
     AND NOT EXISTS (SELECT 1 FROM repository_claims WHERE url = $2)",
    "DELETE FROM registry_tags WHERE repo = $1 AND NOT EXISTS (SELECT 1 FROM repository_claims WHERE url = $2)",
    "DELETE FROM registry_tag_repos WHERE repo = $1 AND NOT EXISTS (SELECT 1 FROM repository_claims WHERE url = $2)",
];

fn listed(name: &RegistryName, rows: Vec<BranchUseRow>) -> Result<Vec<ListedBranchUse>> {
    let uses = rows.into_iter().map(|row| {
        let version = row.version.as_deref();
        let version = version.map(|version| key_of(name.kind(), name.as_str(), version));
        Ok(ListedBranchUse {
            repo: row.repo,
            head: row.head_sha,
            looked_at: row.looked_at,
            used: BranchUse {
                dir: row.dir,
                name: name.clone(),
                wanted: row.wanted,
                version: version.transpose()?,
            },
        })
    });
    uses.collect()
}

impl Store {
    /// Lists the repositories with a mirror in a data directory whose default branches are due to be read, those that have
    /// waited longest first.
    pub async fn registry_branches_due(
        &self,
        data_dir_id: &DataDirId,
    ) -> Result<Vec<WatchedBranch>> {
        on_pool!(self, db => sqlx::query_as::<_, WatchedBranch>(DUE)
            .bind(data_dir_id).bind(kept_time(self.now())).fetch_all(db))
    }

    /// Records a look that failed. Known uses stay.
    pub async fn registry_branch_failed(
        &self,
        repo: &RepoId,
        failures: i64,
        failure: &str,
        due_at: DateTime<Utc>,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "INSERT INTO registry_branch_repos (repo, due_at, failures, failure) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (repo) DO UPDATE SET due_at = excluded.due_at, failures = excluded.failures, \
             failure = excluded.failure",
            repo,
            kept_time(due_at),
            failures,
            free_text(failure),
        )?;
        tx.commit().await
    }

    /// Records a look that found the same commit as the one before, and the time of the next look.
    pub async fn registry_branch_same(&self, repo: &RepoId, due_at: DateTime<Utc>) -> Result<()> {
        let now = kept_time(self.now());
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE registry_branch_repos SET looked_at = $2, due_at = $3, failures = 0, failure = NULL WHERE repo = $1",
            repo,
            now,
            kept_time(due_at),
        )?;
        tx.commit().await
    }

    /// Records what the default branch of a repository uses, in place of everything that it used before.
    pub async fn registry_branch_record(
        &self,
        repo: &RepoId,
        reading: &BranchReading<'_>,
    ) -> Result<()> {
        let now = kept_time(self.now());
        let rows = reading.uses.iter().map(|used| {
            let version = used.version.as_ref().map(VersionKey::version);
            let (kind, name) = (used.name.kind().to_string(), used.name.as_str());
            let wanted = free_text(&used.wanted).into_owned();
            (used.dir.to_string(), kind, name.to_owned(), wanted, version)
        });
        let rows: Vec<_> = rows.collect();
        let rows = serde_json::to_string(&rows).map_err(broken)?;
        let mut tx = self.begin().await?;
        execute!(&mut tx, FORGET_USES, repo)?;
        let add = match &tx {
            Tx::Sqlite(_) => ADD_SQLITE,
            Tx::Postgres(_) => ADD_POSTGRES,
        };
        execute!(&mut tx, add, repo, rows)?;
        execute!(
            &mut tx,
            "INSERT INTO registry_branch_repos (repo, head_sha, basis, looked_at, due_at, failures) \
             VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT (repo) DO UPDATE SET head_sha = excluded.head_sha, \
             basis = excluded.basis, looked_at = excluded.looked_at, due_at = excluded.due_at, failures = 0, failure = NULL",
            repo,
            reading.head,
            reading.basis,
            now,
            kept_time(reading.due_at),
        )?;
        tx.commit().await
    }

    /// Lists the default branches that use a name, by repository and directory. With a version, only those that allow it.
    /// At most `limit` uses are read.
    pub async fn registry_branch_uses(
        &self,
        name: &RegistryName,
        version: Option<&VersionKey>,
        limit: i64,
    ) -> Result<Vec<ListedBranchUse>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, BranchUseRow>(USES)
            .bind(name.kind()).bind(name.as_str()).bind(limit).fetch_all(db))?;
        let mut uses = listed(name, rows)?;
        uses.retain(|listed| version.is_none_or(|version| listed.used.allows(version)));
        Ok(uses)
    }

    /// Lists the default branches that use a name, by repository and directory, so that no repository hides the others.
    pub async fn registry_branch_uses_of_each(
        &self,
        name: &RegistryName,
        limits: BranchUseLimits<'_>,
    ) -> Result<Vec<ListedBranchUse>> {
        let repos = limits.repos.map(|repos| {
            let repos: Vec<String> = repos.iter().map(ToString::to_string).collect();
            serde_json::to_string(&repos)
        });
        let repos = repos.transpose().map_err(broken)?;
        let sql = self.either(USES_OF_EACH_SQLITE, USES_OF_EACH_POSTGRES);
        let rows = on_pool!(self, db => sqlx::query_as::<_, BranchUseRow>(sql)
            .bind(name.kind()).bind(name.as_str()).bind(repos.as_deref()).bind(limits.of_repo).bind(limits.total)
            .fetch_all(db))?;
        listed(name, rows)
    }

    /// Returns those of the paths of Go modules that the registry has.
    pub(super) async fn registry_go_known(&self, paths: &[&str]) -> Result<HashSet<String>> {
        let paths = serde_json::to_string(paths).expect("texts are JSON");
        let sql = if self.is_shared() {
            KNOWN_POSTGRES
        } else {
            KNOWN_SQLITE
        };
        let known = on_pool!(self, db => sqlx::query_scalar::<_, String>(sql)
            .bind(&paths).fetch_all(db))?;
        Ok(known.into_iter().collect())
    }

    /// Forgets the uses of repositories that have no mirror any more, of at most so many. Returns their number.
    pub async fn registry_branches_forget(&self, most: i64) -> Result<u64> {
        let gone = on_pool!(self, db => sqlx::query_scalar::<_, RepoId>(
            "SELECT b.repo FROM registry_branch_repos b \
             WHERE NOT EXISTS (SELECT 1 FROM repository_syncs s WHERE s.repo = b.repo) ORDER BY b.repo LIMIT $1")
            .bind(most).fetch_all(db))?;
        let mut forgotten = 0;
        for repo in gone {
            // A mirror that comes back at this moment is read again.
            let mut tx = self.begin().await?;
            execute!(&mut tx, FORGET_USES, &repo)?;
            let sql = "DELETE FROM registry_branch_repos WHERE repo = $1";
            forgotten += execute!(&mut tx, sql, &repo)?;
            tx.commit().await?;
        }
        Ok(forgotten)
    }

    /// Forgets the tags of repositories that nobody has claimed any more, of at most so many. Returns their number. Versions
    /// that the tags have published stay, with the tag of each.
    pub async fn registry_tags_forget(&self, most: usize) -> Result<u64> {
        let repos = on_pool!(self, db => sqlx::query_scalar::<_, RepoId>(
            "SELECT repo FROM registry_tag_repos ORDER BY repo").fetch_all(db))?;
        if repos.is_empty() {
            return Ok(0);
        }
        let claimed = on_pool!(self, db => sqlx::query_scalar::<_, RepoUrl>(
            "SELECT url FROM repository_claims").fetch_all(db))?;
        let claimed: HashSet<String> = claimed.iter().map(|url| url.as_str().to_owned()).collect();
        let address = |repo: &RepoId| {
            let url = RepoUrl::of(repo);
            url.map_or_else(|_| String::new(), |url| url.as_str().to_owned())
        };
        let gone = repos.into_iter().map(|repo| (address(&repo), repo));
        let gone = gone.filter(|(url, _)| !claimed.contains(url)).take(most);
        let mut forgotten = 0;
        for (url, repo) in gone {
            let mut tx = self.begin().await?;
            let mut rows = 0;
            for sql in FORGET_TAGS {
                rows = execute!(&mut tx, sql, &repo, &url)?;
            }
            // The last statement removes the repository itself.
            forgotten += rows;
            tx.commit().await?;
        }
        Ok(forgotten)
    }
}
