//! Tags, their outcomes and their moves.
//!
//! A row belongs to a tag and a commit, so what was decided about a commit stays when the tag moves. A tag that moves or is
//! removed keeps its row only if it has published a version; otherwise nobody would ask for it, and a tag that a pipeline
//! moves every hour would fill the table.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::tags::TagName;
use lockkeeper_registry::versions::VersionKey;

use super::super::store::key_of;
use crate::model::{CommitSha, DataDirId, RepoId, RepoUrl, text_enum};
use crate::store::{NewJob, Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx};

text_enum! {
    /// State of a tag at a commit.
    pub enum TagState {
        /// Nothing is decided yet, or the last attempt failed for a passing reason.
        Waiting = "waiting",
        /// The commit is not on the default branch.
        OffBranch = "off_branch",
        /// A rule refuses the tag or one of its versions.
        Refused = "refused",
        /// The tag names no version.
        Ignored = "ignored",
        /// Every version that the tag names has its outcome.
        Done = "done",
    }
}

text_enum! {
    /// Outcome of a version that a tag names.
    pub enum TagOutcome {
        /// The version has the files of the commit.
        Published = "published",
        /// The version has other files, which stay.
        Conflict = "conflict",
        /// The version was taken down, and its number is never used again.
        TakenDown = "taken_down",
        /// A rule refuses the version.
        Refused = "refused",
    }
}

/// A tag at a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagPlace {
    /// Repository of the tag.
    pub repo: RepoId,
    /// Name of the tag.
    pub tag: TagName,
    /// Commit that the tag leads to.
    pub commit: CommitSha,
}

/// A repository whose tags are read.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct TaggedRepo {
    /// Name of the repository.
    pub repo: RepoId,
    /// Time of the last look that succeeded.
    pub looked_at: Option<DateTime<Utc>>,
    /// Time of the next look.
    pub due_at: DateTime<Utc>,
    /// Number of failed looks in a row.
    pub failures: i64,
    /// Text of the last failure, if the last look failed.
    pub failure: Option<String>,
    /// True once all tags are stored that were there in the beginning.
    pub is_listed: bool,
}

/// Tags of a repository at one moment.
#[derive(Clone, Copy, Debug)]
pub struct SeenTags<'a> {
    /// All tags with their commits.
    pub tags: &'a BTreeMap<TagName, CommitSha>,
    /// Maximum number of tags of a repository.
    pub most: usize,
    /// Maximum number of new tags to store, and of those that are gone to remove.
    pub most_new: usize,
    /// Maximum number of new tags in an hour whose outcomes become statuses.
    pub most_told: usize,
}

/// Changes of the tags of a repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagChanges {
    /// Number of new tags, and of those that lead to another commit.
    pub new: usize,
    /// Number of tags that have published a version, and lead to another commit now.
    pub moved: usize,
    /// Number of tags that have published a version, and do not exist any more.
    pub removed: usize,
    /// Number of tags that are left out, because there are too many.
    pub left_out: usize,
}

/// A tag that needs a decision.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct DueTag {
    /// Name of the tag.
    pub tag: TagName,
    /// Commit that the tag leads to.
    pub commit_sha: CommitSha,
    /// True if no status tells the outcome.
    pub is_quiet: bool,
    /// True if a status names the tag alone.
    pub is_told: bool,
    /// State before the decision.
    pub state: TagState,
    /// Reason before the decision.
    pub reason: Option<String>,
    /// Number of failed attempts in a row.
    pub failures: i64,
}

/// Decision about a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagSettled<'a> {
    /// State from now on.
    pub state: TagState,
    /// Reason why the whole tag is not published, or the failure.
    pub reason: Option<&'a str>,
    /// Facts that the decision depends on.
    pub basis: &'a str,
    /// Head of the default branch.
    pub head: &'a CommitSha,
    /// Number of failed attempts in a row.
    pub failures: i64,
    /// Time of the next attempt.
    pub due_at: DateTime<Utc>,
    /// True if a status names the tag alone.
    pub is_told: bool,
}

/// A version that a tag names, with its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagVersion {
    /// Name and number of the version.
    pub key: VersionKey,
    /// Outcome of its publication.
    pub outcome: TagOutcome,
    /// Reason why it was not published.
    pub reason: Option<String>,
}

/// Move or removal of a tag that had published a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::features::registry) struct TagMove {
    /// Version that the tag had published.
    pub key: VersionKey,
    /// Repository of the tag.
    pub repo: RepoId,
    /// Name of the tag.
    pub tag: TagName,
    /// Commit that the version was published from.
    pub from: CommitSha,
    /// Commit that the tag leads to since then. `None`: the tag was removed.
    pub to: Option<CommitSha>,
    /// Time at which the change was found.
    pub at: DateTime<Utc>,
}

/// A tag of a repository, as people read it.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub(in crate::features::registry) struct ListedTag {
    /// Name of the tag.
    pub tag: TagName,
    /// Commit that the tag leads to.
    pub commit_sha: CommitSha,
    /// State of the tag at the commit.
    pub state: TagState,
    /// Reason why the whole tag is not published, or of the last failed attempt.
    pub reason: Option<String>,
    /// Number of failed attempts in a row.
    pub failures: i64,
    /// Time of the next attempt, if the tag waits.
    pub due_at: DateTime<Utc>,
}

/// A version that a tag names and that was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::features::registry) struct TagRefusal {
    /// Name of the tag.
    pub tag: TagName,
    /// Commit that the tag led to.
    pub commit: CommitSha,
    /// The version, with the reason.
    pub version: TagVersion,
}

/// Number of new tags of a repository that got statuses since a time.
#[derive(sqlx::FromRow)]
struct TagStatusCount {
    is_listed: bool,
    first_told_at: DateTime<Utc>,
    told: i64,
}

/// A tag that is stored.
struct KnownTag {
    tag: TagName,
    commit_sha: CommitSha,
    /// True if the tag has published a version from this commit.
    has_published: bool,
    /// True if the tag has ever published a version.
    has_ever: bool,
}

#[derive(sqlx::FromRow)]
struct TagVersionRow {
    kind: NameKind,
    name: String,
    version: String,
    outcome: TagOutcome,
    reason: Option<String>,
}

#[derive(sqlx::FromRow)]
struct TagRefusalRow {
    tag: TagName,
    commit_sha: CommitSha,
    kind: NameKind,
    name: String,
    version: String,
    outcome: TagOutcome,
    reason: Option<String>,
}

#[derive(sqlx::FromRow)]
struct TagMoveRow {
    version: String,
    repo: RepoId,
    tag: TagName,
    from_sha: CommitSha,
    to_sha: Option<CommitSha>,
    moved_at: DateTime<Utc>,
}

/// Period in which the number of new tags with statuses is limited.
const STATUS_PERIOD: TimeDelta = TimeDelta::hours(1);
/// Reason of a tag whose attempt has begun, and has not ended.
pub(super) const CUT_OFF: &str = "The server stopped while it made the package.";
/// Maximum number of moves of a tag that are kept, the newest ones.
const MAX_MOVES: i64 = 50;
/// Maximum number of moves in an answer.
const MOST_MOVES: i64 = 200;

const DUE: &str = "SELECT tag, commit_sha, is_quiet, is_told, state, reason, failures FROM registry_tags \
    WHERE repo = $1 AND gone_at IS NULL AND ((state = 'waiting' AND due_at <= $2) \
    OR (state IN ('off_branch', 'refused', 'ignored') AND (basis IS NULL OR basis <> $3))) \
    ORDER BY is_quiet, due_at, tag LIMIT $4";

impl Store {
    /// Lists the repositories that may publish: those that an owner with a namespace has claimed.
    pub async fn registry_tag_places(&self) -> Result<Vec<RepoId>> {
        let urls = on_pool!(self, db => sqlx::query_scalar::<_, RepoUrl>(
            "SELECT c.url FROM repository_claims c \
             WHERE EXISTS (SELECT 1 FROM registry_namespaces n WHERE n.owner = c.owner) ORDER BY c.url")
            .fetch_all(db))?;
        let own = |url: &RepoUrl| {
            let repo = url.repo_id();
            repo.filter(|repo| RepoUrl::of(repo).as_ref() == Ok(url))
        };
        Ok(urls.iter().filter_map(own).collect())
    }

    /// Lists the repositories whose tags were read, or could not be.
    pub async fn registry_tag_repos(&self) -> Result<Vec<TaggedRepo>> {
        on_pool!(self, db => sqlx::query_as::<_, TaggedRepo>(
            "SELECT repo, looked_at, due_at, failures, failure, is_listed FROM registry_tag_repos ORDER BY due_at, repo")
            .fetch_all(db))
    }

    /// Lists the repositories whose mirrors in a data directory were synced since the last look at their tags.
    pub async fn registry_tag_repos_synced(&self, data_dir_id: &DataDirId) -> Result<Vec<RepoId>> {
        on_pool!(self, db => sqlx::query_scalar::<_, RepoId>(
            "SELECT t.repo FROM registry_tag_repos t JOIN repository_syncs s ON s.replica = $1 AND s.repo = t.repo \
             WHERE t.failures = 0 AND s.succeeded_at > t.looked_at ORDER BY t.repo")
            .bind(data_dir_id).fetch_all(db))
    }

    /// Records a look at the tags of a repository that failed.
    pub async fn registry_tag_repo_failed(
        &self,
        repo: &RepoId,
        failures: i64,
        failure: &str,
        due_at: DateTime<Utc>,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "INSERT INTO registry_tag_repos (repo, due_at, failures, failure, is_listed, first_told_at, told) \
             VALUES ($1, $2, $3, $4, FALSE, $2, 0) \
             ON CONFLICT (repo) DO UPDATE SET due_at = excluded.due_at, failures = excluded.failures, \
             failure = excluded.failure",
            repo,
            kept_time(due_at),
            failures,
            free_text(failure),
        )?;
        tx.commit().await
    }

    /// Records all tags of a repository, and the time of the next look.
    pub async fn registry_tags_record(
        &self,
        repo: &RepoId,
        seen: &SeenTags<'_>,
        due_at: DateTime<Utc>,
    ) -> Result<TagChanges> {
        let now = kept_time(self.now());
        // Sorting many tags takes a while, which no transaction has to wait for.
        let wanted = highest(seen);
        let mut tx = self.begin().await?;
        let row = on_tx!(&mut tx, db => sqlx::query_as::<_, TagStatusCount>(
            "SELECT is_listed, first_told_at, told FROM registry_tag_repos WHERE repo = $1")
            .bind(repo).fetch_optional(db))?;
        let mut row = row.unwrap_or(TagStatusCount {
            is_listed: false,
            first_told_at: now,
            told: 0,
        });
        if now - row.first_told_at >= STATUS_PERIOD {
            (row.first_told_at, row.told) = (now, 0);
        }
        let is_listed = row.is_listed;
        let known = known_in_tx(&mut tx, repo).await?;
        let mut changes = TagChanges {
            left_out: seen.tags.len() - wanted.len(),
            ..TagChanges::default()
        };
        let (mut new, mut gone) = (wanted.clone(), 0);
        for old in &known {
            let current = seen.tags.get(&old.tag);
            let is_same = current == Some(&old.commit_sha);
            // A version that was published stays with its tag, however many higher ones there are.
            if is_same && (old.has_published || wanted.contains_key(&old.tag)) {
                new.remove(&old.tag);
                continue;
            }
            if gone == seen.most_new {
                continue;
            }
            gone += 1;
            if old.has_ever && !is_same {
                match current {
                    Some(_) => changes.moved += 1,
                    None => changes.removed += 1,
                }
                move_add_in_tx(&mut tx, repo, old, current, now).await?;
            }
            mark_gone_in_tx(&mut tx, repo, old, now).await?;
        }
        let is_whole = new.len() <= seen.most_new && gone < seen.most_new;
        changes.new = new.len().min(seen.most_new);
        let told = i64::try_from(changes.new).unwrap_or(i64::MAX);
        let most_told = i64::try_from(seen.most_told).unwrap_or(i64::MAX);
        let is_quiet = !is_listed || row.told.saturating_add(told) > most_told;
        row.told = match (is_quiet, is_whole || !is_listed) {
            (false, _) => row.told + told,
            (true, true) => row.told,
            // The rest of many tags is as quiet as these.
            (true, false) => most_told,
        };
        for (tag, commit) in new.into_iter().take(seen.most_new) {
            execute!(
                &mut tx,
                "INSERT INTO registry_tags (repo, tag, commit_sha, seen_at, is_quiet, state, failures, due_at, is_told) \
                 VALUES ($1, $2, $3, $4, $5, 'waiting', 0, $4, FALSE) \
                 ON CONFLICT (repo, tag, commit_sha) DO UPDATE SET gone_at = NULL",
                repo,
                tag,
                commit,
                now,
                is_quiet,
            )?;
        }
        execute!(
            &mut tx,
            "INSERT INTO registry_tag_repos (repo, looked_at, due_at, failures, is_listed, first_told_at, told) \
             VALUES ($1, $2, $3, 0, $4, $5, $6) \
             ON CONFLICT (repo) DO UPDATE SET looked_at = excluded.looked_at, due_at = excluded.due_at, failures = 0, \
             failure = NULL, is_listed = excluded.is_listed, first_told_at = excluded.first_told_at, told = excluded.told",
            repo,
            now,
            kept_time(if is_whole { due_at } else { now }),
            is_listed || is_whole,
            row.first_told_at,
            row.told,
        )?;
        tx.commit().await.map(|()| changes)
    }

    /// Makes the next look at the tags of a repository due at this time.
    pub async fn registry_tag_repo_due(&self, repo: &RepoId, due_at: DateTime<Utc>) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE registry_tag_repos SET due_at = $2 WHERE repo = $1",
            repo,
            kept_time(due_at),
        )?;
        tx.commit().await
    }

    /// Lists tags of a repository that need a decision, given the facts that decisions depend on.
    pub async fn registry_tags_due(
        &self,
        repo: &RepoId,
        basis: &str,
        limit: i64,
    ) -> Result<Vec<DueTag>> {
        on_pool!(self, db => sqlx::query_as::<_, DueTag>(DUE)
            .bind(repo).bind(kept_time(self.now())).bind(basis).bind(limit).fetch_all(db))
    }

    /// Lists the commits of a repository that had tags and were not on the default branch, when its head was another one.
    pub async fn registry_tags_off_branch(
        &self,
        repo: &RepoId,
        head: &CommitSha,
        basis: &str,
    ) -> Result<BTreeSet<CommitSha>> {
        let commits = on_pool!(self, db => sqlx::query_scalar::<_, CommitSha>(
            "SELECT DISTINCT commit_sha FROM registry_tags WHERE repo = $1 AND gone_at IS NULL \
             AND state = 'off_branch' AND basis = $2 AND (head_sha IS NULL OR head_sha <> $3)")
            .bind(repo).bind(basis).bind(head).fetch_all(db))?;
        Ok(commits.into_iter().collect())
    }

    /// Makes the tags of these commits due, which are on the default branch now, and records that the others of
    /// [`registry_tags_off_branch`](Self::registry_tags_off_branch) are not.
    pub async fn registry_tags_merged(
        &self,
        repo: &RepoId,
        head: &CommitSha,
        basis: &str,
        merged: &BTreeSet<CommitSha>,
    ) -> Result<()> {
        let now = kept_time(self.now());
        let mut tx = self.begin().await?;
        for commit in merged {
            execute!(
                &mut tx,
                "UPDATE registry_tags SET state = 'waiting', due_at = $3 \
                 WHERE repo = $1 AND commit_sha = $2 AND state = 'off_branch' AND gone_at IS NULL",
                repo,
                commit,
                now,
            )?;
        }
        execute!(
            &mut tx,
            "UPDATE registry_tags SET head_sha = $3 \
             WHERE repo = $1 AND state = 'off_branch' AND basis = $2 AND gone_at IS NULL",
            repo,
            basis,
            head,
        )?;
        tx.commit().await
    }

    /// Lists all tags of a repository that it has now, those that were seen last first.
    pub(in crate::features::registry) async fn registry_tags_of(
        &self,
        repo: &RepoId,
    ) -> Result<Vec<ListedTag>> {
        on_pool!(self, db => sqlx::query_as::<_, ListedTag>(
            "SELECT tag, commit_sha, state, reason, failures, due_at FROM registry_tags \
             WHERE repo = $1 AND gone_at IS NULL ORDER BY seen_at DESC, tag")
            .bind(repo).fetch_all(db))
    }

    /// Lists the versions that tags of a repository name and that were not published, by tag and commit.
    pub(in crate::features::registry) async fn registry_tag_refusals(
        &self,
        repo: &RepoId,
    ) -> Result<Vec<TagRefusal>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, TagRefusalRow>(
            "SELECT tag, commit_sha, kind, name, version, outcome, reason FROM registry_tag_versions \
             WHERE repo = $1 AND outcome <> 'published' ORDER BY tag, commit_sha, kind, name, version")
            .bind(repo).fetch_all(db))?;
        let rows = rows.into_iter().map(|row| {
            Ok(TagRefusal {
                tag: row.tag,
                commit: row.commit_sha,
                version: TagVersion {
                    key: key_of(row.kind, &row.name, &row.version)?,
                    outcome: row.outcome,
                    reason: row.reason,
                },
            })
        });
        rows.collect()
    }

    /// Counts the tags of each repository by state.
    pub(in crate::features::registry) async fn registry_tag_counts(
        &self,
    ) -> Result<Vec<(RepoId, TagState, i64)>> {
        on_pool!(self, db => sqlx::query_as::<_, (RepoId, TagState, i64)>(
            "SELECT repo, state, COUNT(*) FROM registry_tags WHERE gone_at IS NULL \
             GROUP BY repo, state ORDER BY repo, state")
            .fetch_all(db))
    }

    /// Counts the tags of each repository that are done although a version of theirs was not published: it has other files, or
    /// was taken down.
    pub(in crate::features::registry) async fn registry_tags_unpublished(
        &self,
    ) -> Result<Vec<(RepoId, i64)>> {
        on_pool!(self, db => sqlx::query_as::<_, (RepoId, i64)>(
            "SELECT t.repo, COUNT(*) FROM registry_tags t WHERE t.gone_at IS NULL AND t.state = 'done' \
             AND EXISTS (SELECT 1 FROM registry_tag_versions v WHERE v.repo = t.repo AND v.tag = t.tag \
             AND v.commit_sha = t.commit_sha AND v.outcome <> 'published') GROUP BY t.repo ORDER BY t.repo")
            .fetch_all(db))
    }

    /// Records that an attempt to publish a tag begins, so that one which ends with the server counts as a failure.
    pub async fn registry_tag_attempt(
        &self,
        place: &TagPlace,
        failures: i64,
        due_at: DateTime<Utc>,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE registry_tags SET state = 'waiting', reason = $4, failures = $5, due_at = $6 \
             WHERE repo = $1 AND tag = $2 AND commit_sha = $3",
            &place.repo,
            &place.tag,
            &place.commit,
            CUT_OFF,
            failures,
            kept_time(due_at),
        )?;
        tx.commit().await
    }

    /// Records a decision about a tag, with the status that tells it.
    pub async fn registry_tag_settle(
        &self,
        place: &TagPlace,
        settled: &TagSettled<'_>,
        status: Option<&NewJob>,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE registry_tags SET state = $4, reason = $5, basis = $6, head_sha = $7, failures = $8, due_at = $9, \
             is_told = $10 WHERE repo = $1 AND tag = $2 AND commit_sha = $3",
            &place.repo,
            &place.tag,
            &place.commit,
            settled.state,
            settled.reason.map(free_text),
            settled.basis,
            settled.head,
            settled.failures,
            kept_time(settled.due_at),
            settled.is_told,
        )?;
        if let Some(job) = status {
            self.job_push_in_tx(&mut tx, job).await?;
        }
        tx.commit().await
    }

    /// Returns the versions that a tag names at a commit, as far as they have an outcome.
    pub async fn registry_tag_versions(&self, place: &TagPlace) -> Result<Vec<TagVersion>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, TagVersionRow>(
            "SELECT kind, name, version, outcome, reason FROM registry_tag_versions \
             WHERE repo = $1 AND tag = $2 AND commit_sha = $3 ORDER BY kind, name, version")
            .bind(&place.repo).bind(&place.tag).bind(&place.commit).fetch_all(db))?;
        let rows = rows.into_iter().map(|row| {
            Ok(TagVersion {
                key: key_of(row.kind, &row.name, &row.version)?,
                outcome: row.outcome,
                reason: row.reason,
            })
        });
        rows.collect()
    }

    /// Records the outcome of a version that a tag names, with the status that tells it.
    pub async fn registry_tag_version_record(
        &self,
        place: &TagPlace,
        version: &TagVersion,
        status: Option<&NewJob>,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        let name = version.key.name();
        execute!(
            &mut tx,
            "INSERT INTO registry_tag_versions (repo, tag, commit_sha, kind, name, version, outcome, reason, decided_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (repo, tag, commit_sha, kind, name, version) \
             DO UPDATE SET outcome = excluded.outcome, reason = excluded.reason, \
             decided_at = excluded.decided_at",
            &place.repo,
            &place.tag,
            &place.commit,
            name.kind(),
            name.as_str(),
            version.key.version(),
            version.outcome,
            version.reason.as_deref().map(free_text),
            kept_time(self.now()),
        )?;
        if let Some(job) = status {
            self.job_push_in_tx(&mut tx, job).await?;
        }
        tx.commit().await
    }

    /// Lists the newest moves and removals of the tags that have published versions of a name, oldest first.
    pub(in crate::features::registry) async fn registry_tag_moves(
        &self,
        name: &RegistryName,
    ) -> Result<Vec<TagMove>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, TagMoveRow>(
            "SELECT v.version, m.repo, m.tag, m.from_sha, m.to_sha, m.moved_at FROM registry_tag_versions v \
             JOIN registry_tag_moves m ON m.repo = v.repo AND m.tag = v.tag AND m.from_sha = v.commit_sha \
             WHERE v.kind = $1 AND v.name = $2 AND v.outcome = 'published' \
             ORDER BY m.moved_at DESC, m.tag LIMIT $3")
            .bind(name.kind()).bind(name.as_str()).bind(MOST_MOVES).fetch_all(db))?;
        let rows = rows.into_iter().rev().map(|row| {
            Ok(TagMove {
                key: key_of(name.kind(), name.as_str(), &row.version)?,
                repo: row.repo,
                tag: row.tag,
                from: row.from_sha,
                to: row.to_sha,
                at: row.moved_at,
            })
        });
        rows.collect()
    }
}

/// Returns the tags with the highest versions, as many as are kept.
fn highest<'a>(seen: &SeenTags<'a>) -> BTreeMap<&'a TagName, &'a CommitSha> {
    let mut tags: Vec<(&TagName, &CommitSha)> = seen.tags.iter().collect();
    if tags.len() > seen.most {
        tags.sort_by_cached_key(|(tag, _)| std::cmp::Reverse(tag.numbers()));
        tags.truncate(seen.most);
    }
    tags.into_iter().collect()
}

async fn known_in_tx(tx: &mut Tx, repo: &RepoId) -> Result<Vec<KnownTag>> {
    let published = on_tx!(&mut *tx, db => sqlx::query_as::<_, (TagName, CommitSha)>(
        "SELECT tag, commit_sha FROM registry_tag_versions WHERE repo = $1 AND outcome = 'published'")
        .bind(repo).fetch_all(db))?;
    let published: BTreeSet<(TagName, CommitSha)> = published.into_iter().collect();
    let ever: BTreeSet<&TagName> = published.iter().map(|(tag, _)| tag).collect();
    let tags = on_tx!(&mut *tx, db => sqlx::query_as::<_, (TagName, CommitSha)>(
        "SELECT tag, commit_sha FROM registry_tags WHERE repo = $1 AND gone_at IS NULL")
        .bind(repo).fetch_all(db))?;
    let known = tags.into_iter().map(|place| KnownTag {
        has_published: published.contains(&place),
        has_ever: ever.contains(&place.0),
        tag: place.0,
        commit_sha: place.1,
    });
    Ok(known.collect())
}

async fn move_add_in_tx(
    tx: &mut Tx,
    repo: &RepoId,
    old: &KnownTag,
    current: Option<&CommitSha>,
    now: DateTime<Utc>,
) -> Result<()> {
    let moves = on_tx!(tx, db => sqlx::query_scalar::<_, i64>(
        "SELECT COUNT(*) FROM registry_tag_moves WHERE repo = $1 AND tag = $2")
        .bind(repo).bind(&old.tag).fetch_one(db))?;
    if moves >= MAX_MOVES {
        let oldest = "DELETE FROM registry_tag_moves WHERE repo = $1 AND tag = $2 AND moved_at = \
            (SELECT MIN(moved_at) FROM registry_tag_moves WHERE repo = $1 AND tag = $2)";
        execute!(&mut *tx, oldest, repo, &old.tag)?;
    }
    execute!(
        tx,
        "INSERT INTO registry_tag_moves (repo, tag, from_sha, to_sha, moved_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (repo, tag, from_sha, moved_at) DO NOTHING",
        repo,
        &old.tag,
        &old.commit_sha,
        current,
        now,
    )
    .map(drop)
}

/// Records that a tag does not lead to a commit any more, or forgets that it did.
async fn mark_gone_in_tx(
    tx: &mut Tx,
    repo: &RepoId,
    old: &KnownTag,
    now: DateTime<Utc>,
) -> Result<()> {
    let (tag, commit) = (&old.tag, &old.commit_sha);
    if old.has_published {
        let gone = "UPDATE registry_tags SET gone_at = $4 WHERE repo = $1 AND tag = $2 AND commit_sha = $3";
        return execute!(tx, gone, repo, tag, commit, now).map(drop);
    }
    for sql in [
        "DELETE FROM registry_tag_versions WHERE repo = $1 AND tag = $2 AND commit_sha = $3",
        "DELETE FROM registry_tags WHERE repo = $1 AND tag = $2 AND commit_sha = $3",
    ] {
        execute!(&mut *tx, sql, repo, tag, commit)?;
    }
    Ok(())
}
