//! A look at one repository: its tags at one moment, and the outcome of each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::time::Instant;
use tracing::{info, warn};

use super::publish::{make_package, publish};
use super::statuses;
use super::store::{
    CUT_OFF, DueTag, SeenTags, TagChanges, TagOutcome, TagPlace, TagSettled, TagState, TagVersion,
    TaggedRepo,
};
use super::targets::{self, TagOwner, TagTarget, TargetsError, refused_name};
use crate::config::server::TaggedCommits;
use crate::context::{RegistryParts, ServerCtx};
use crate::errors::describe_error;
use crate::features::registry::Registry;
use crate::features::registry::packaging::packing_place;
use crate::forges::GitCredentials;
use crate::git::{CommitSnapshot, ForgeTags, Mirror, Remote};
use crate::model::{CommitSha, CommitState, MirrorEvent, RepoId, SyncState};
use crate::store::MirrorRow;
use crate::telemetry::Metric;

/// Maximum number of tags of a repository that may name a version.
const MAX_TAGS: usize = 10_000;
/// Maximum number of new tags that one look stores. The next look stores the rest.
const MAX_NEW: usize = 2_000;
/// Maximum number of new tags in an hour whose outcomes become statuses. Tags that come in larger numbers are old ones that
/// somebody has pushed together, and their statuses would use up the requests that the forge allows.
const MAX_STATUSES: usize = 100;
/// Maximum number of tags that are decided in one look.
const MOST_DUE: i64 = 200;
/// Time between two looks at a repository in which nothing happens.
const LOOK_EVERY: TimeDelta = TimeDelta::minutes(5);
/// Time until the mirror has probably got the default branch.
const MIRROR_WAIT: TimeDelta = TimeDelta::minutes(1);
/// Pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: TimeDelta = TimeDelta::minutes(1);
const LONGEST_PAUSE: TimeDelta = TimeDelta::hours(1);
/// Maximum number of versions that a tag names. Each has a status and a package.
const MAX_VERSIONS: usize = 20;
/// Number of attempts at a tag that may end with the server, such as for lack of memory.
const MAX_CUT_OFF: i64 = 3;
/// Longest time for the list of tags at the forge, and for the files of a commit. Fetches of mirrors have more, but one slow
/// forge must not keep the tags of all others waiting.
const LIST_TIME: Duration = Duration::from_mins(1);
const COMMIT_TIME: Duration = Duration::from_mins(5);
/// Number of this version of the rules. A larger one lets refused tags be looked at again.
const RULES: u32 = 2;

/// Outcomes in the metric, which begin with 0, so that an alarm sees the first one.
const OUTCOMES: [&str; 6] = [
    "published",
    "conflict",
    "taken_down",
    "refused",
    "off_branch",
    "failed",
];

/// Work that one tick may still do.
pub(super) struct Budget {
    /// Number of versions that may still be packed, and of commits that may be fetched.
    pub versions: usize,
    /// Time after which nothing is begun any more.
    pub until: Instant,
}

impl Budget {
    pub fn is_spent(&self) -> bool {
        self.versions == 0 || Instant::now() >= self.until
    }
}

/// Scan of the tags of repositories.
pub(super) struct TagScan<'a> {
    pub ctx: &'a ServerCtx,
    pub parts: &'a RegistryParts,
    /// The registry, once something is published.
    pub registry: &'a mut Option<Registry>,
    pub budget: &'a mut Budget,
}

/// Facts about a repository that decide about its tags.
struct TagFacts<'a> {
    repo: &'a RepoId,
    mirror: &'a Mirror,
    remote: Remote<'a>,
    names: &'a TagOwner,
    head: &'a CommitSha,
    basis: &'a str,
}

/// Outcome of a tag.
enum TagDecision {
    /// The tag is decided.
    Settled {
        state: TagState,
        /// Reason about the tag as a whole.
        reason: Option<String>,
        /// True if all versions of the tag are published.
        is_published: bool,
    },
    /// The attempt failed for a passing reason.
    Failed(String),
    /// The tick has no time left. What was decided about some versions of the tag is stored.
    Unfinished,
}

impl TagDecision {
    fn settled(state: TagState, reason: impl Into<String>) -> Self {
        Self::Settled {
            state,
            reason: Some(reason.into()),
            is_published: false,
        }
    }
}

/// Lists the tags and the head of the default branch at the forge. Also returns the address of the repository there. The
/// error is a sentence for the log.
pub(in crate::features::registry) async fn list_forge(
    ctx: &ServerCtx,
    repo: &RepoId,
    mirror: &Mirror,
) -> Result<(String, GitCredentials, ForgeTags), String> {
    let forge = ctx
        .forges
        .of(repo)
        .map_err(|error| describe_error(&error))?;
    let credentials = forge.git_credentials(repo).await;
    let credentials = credentials.map_err(|error| describe_error(&error))?;
    let url = forge.clone_url(repo);
    let remote = Remote {
        url: &url,
        credentials: Some(&credentials),
        deadline: ctx.server.syncer.fetch_time().min(LIST_TIME),
    };
    let listed = mirror.forge_tags(&remote).await;
    let listed = listed.map_err(|error| describe_error(&error))?;
    Ok((url, credentials, listed))
}

/// Returns the pause after a number of failures in a row.
pub(in crate::features::registry) fn pause(failures: i64) -> TimeDelta {
    let doublings = u32::try_from(failures.clamp(1, 10) - 1).unwrap_or_default();
    (FIRST_PAUSE * 2_i32.pow(doublings)).min(LONGEST_PAUSE)
}

impl TagScan<'_> {
    /// Scans the tags of a repository. Returns the number of decided tags. A failure is recorded and not returned, so
    /// that it concerns no other repository.
    pub async fn scan(&mut self, repo: &RepoId, known: Option<&TaggedRepo>) -> anyhow::Result<u64> {
        let store = &self.ctx.store;
        let Some(owner) = store.claim_owner_of(repo).await? else {
            return Ok(0);
        };
        let names = TagOwner::of(store, owner).await?;
        let mirror = self.ctx.server.syncer.mirror(repo);
        let (url, credentials, listed) = match list_forge(self.ctx, repo, &mirror).await {
            Ok(listed) => listed,
            Err(failure) => {
                let failures = known.map_or(0, |known| known.failures) + 1;
                warn!(%repo, failures, failure, "Could not read the tags of a repository");
                let due_at = self.ctx.clock.now() + pause(failures);
                store
                    .registry_tag_repo_failed(repo, failures, &failure, due_at)
                    .await?;
                return Ok(0);
            }
        };
        let Some(head) = &listed.head else {
            if listed.tags.is_empty() {
                // A new repository. Its first tags are new ones.
                self.record_tags(repo, &listed).await?;
                return Ok(0);
            }
            let failure = "the repository has no default branch";
            let due_at = self.ctx.clock.now() + LONGEST_PAUSE;
            store
                .registry_tag_repo_failed(repo, 1, failure, due_at)
                .await?;
            return Ok(0);
        };
        self.record_tags(repo, &listed).await?;
        let (from, facts) = (self.parts.config.tags_from, names.facts());
        let basis = format!("{RULES} {from:?} {repo} {facts}");
        let basis = crate::model::Sha256Digest::of(basis.as_bytes()).to_string();
        let off_branch = store.registry_tags_off_branch(repo, head, &basis).await?;
        let mut due = store.registry_tags_due(repo, &basis, MOST_DUE).await?;
        if due.is_empty() && off_branch.is_empty() {
            return Ok(0);
        }
        let has_head = mirror.has_commit(head).await.unwrap_or(false);
        if !has_head {
            self.wake_mirror(repo).await?;
            return Ok(0);
        }
        if !off_branch.is_empty() {
            let Some(merged) = self.merged(repo, &mirror, head, off_branch).await? else {
                return Ok(0);
            };
            store
                .registry_tags_merged(repo, head, &basis, &merged)
                .await?;
            due = store.registry_tags_due(repo, &basis, MOST_DUE).await?;
        }
        let remote = Remote {
            url: &url,
            credentials: Some(&credentials),
            deadline: self.ctx.server.syncer.fetch_time().min(COMMIT_TIME),
        };
        let facts = TagFacts {
            repo,
            mirror: &mirror,
            remote,
            names: &names,
            head,
            basis: &basis,
        };
        self.decide_all(&facts, due).await
    }

    /// Stores the tags, and reports those that have moved.
    async fn record_tags(&self, repo: &RepoId, listed: &ForgeTags) -> anyhow::Result<()> {
        let seen = SeenTags {
            tags: &listed.tags,
            most: MAX_TAGS,
            most_new: MAX_NEW,
            most_told: MAX_STATUSES,
        };
        let due_at = self.ctx.clock.now() + LOOK_EVERY;
        let changes = self
            .ctx
            .store
            .registry_tags_record(repo, &seen, due_at)
            .await?;
        let TagChanges {
            new,
            moved,
            removed,
            left_out,
        } = changes;
        let metrics = &self.ctx.metrics;
        for outcome in OUTCOMES {
            metrics.add(Metric::RegistryTags, &[outcome], 0);
        }
        metrics.add(Metric::RegistryTags, &["moved"], moved as u64);
        metrics.add(Metric::RegistryTags, &["removed"], removed as u64);
        if moved + removed > 0 {
            warn!(%repo, moved, removed, "Tags that had published versions were moved or removed; the versions stay as they are");
        }
        let unsafe_names = listed.left_out;
        if new > 0 {
            info!(%repo, new, left_out, unsafe_names, "Found new tags of a repository");
        }
        if left_out > 0 && new > 0 {
            warn!(%repo, left_out, "A repository has more than {MAX_TAGS} tags of versions; the lowest ones are left out");
        }
        Ok(())
    }

    /// Makes sure that the mirror gets the default branch, and looks again soon.
    async fn wake_mirror(&self, repo: &RepoId) -> anyhow::Result<()> {
        let (store, syncer) = (&self.ctx.store, &self.ctx.server.syncer);
        syncer.used(repo).await;
        let (data_dir_id, now) = (syncer.data_dir_id(), self.ctx.clock.now());
        let row = store.mirror_get(data_dir_id, repo).await?;
        // A mirror that cannot have the branch, because git refuses it, is not synced all the time.
        let is_old = |row: &MirrorRow| {
            let last = row.state.succeeded_at;
            row.state.state == SyncState::Synced && last.is_none_or(|last| now - last >= LOOK_EVERY)
        };
        if row.as_ref().is_some_and(is_old) {
            let _change = store
                .mirror_change(data_dir_id, repo, &MirrorEvent::Updated { at: now })
                .await?;
            self.ctx.mirror_wake_up.send();
        }
        store.registry_tag_repo_due(repo, now + MIRROR_WAIT).await?;
        Ok(())
    }

    /// Returns those of the commits that the default branch has. `None`: this cannot be said now, and the next look tries it
    /// again.
    async fn merged(
        &self,
        repo: &RepoId,
        mirror: &Mirror,
        head: &CommitSha,
        commits: BTreeSet<CommitSha>,
    ) -> anyhow::Result<Option<BTreeSet<CommitSha>>> {
        match mirror.in_history(head, commits).await {
            Ok(found) => Ok(Some(found)),
            Err(error) => {
                // The mirror may have been replaced or removed meanwhile. Nothing is decided without it.
                let error = describe_error(&error);
                warn!(%repo, error, "Could not compare tags with the default branch; this will be retried");
                self.wake_mirror(repo).await?;
                Ok(None)
            }
        }
    }

    async fn decide_all(&mut self, facts: &TagFacts<'_>, due: Vec<DueTag>) -> anyhow::Result<u64> {
        let is_full = i64::try_from(due.len()).is_ok_and(|many| many >= MOST_DUE);
        let on_branch = match self.parts.config.tags_from {
            TaggedCommits::Any => None,
            TaggedCommits::None => return Ok(0),
            TaggedCommits::DefaultBranch => {
                let commits = due.iter().map(|tag| tag.commit_sha.clone()).collect();
                let merged = self.merged(facts.repo, facts.mirror, facts.head, commits);
                match merged.await? {
                    Some(merged) => Some(merged),
                    None => return Ok(0),
                }
            }
        };
        let (mut decided, mut is_unfinished) = (0, is_full);
        for tag in due {
            if self.budget.is_spent() || self.ctx.closing.is_cancelled() {
                is_unfinished = true;
                break;
            }
            let place = TagPlace {
                repo: facts.repo.clone(),
                tag: tag.tag.clone(),
                commit: tag.commit_sha.clone(),
            };
            let is_allowed = on_branch
                .as_ref()
                .is_none_or(|found| found.contains(&tag.commit_sha));
            let decision = if is_allowed {
                self.decide(facts, &place, &tag).await
            } else {
                let reason =
                    "The commit is not on the default branch. The tag is published once it is.";
                Ok(TagDecision::settled(TagState::OffBranch, reason))
            };
            let decision = match decision {
                Ok(decision) => decision,
                Err(error) => TagDecision::Failed(format!("{error:#}")),
            };
            if matches!(decision, TagDecision::Unfinished) {
                is_unfinished = true;
                break;
            }
            decided += u64::from(matches!(decision, TagDecision::Settled { .. }));
            self.settle(facts, &place, &tag, decision).await?;
        }
        if is_unfinished {
            let now = self.ctx.clock.now();
            self.ctx
                .store
                .registry_tag_repo_due(facts.repo, now)
                .await?;
        }
        Ok(decided)
    }

    /// Decides about a tag whose commit may publish.
    async fn decide(
        &mut self,
        facts: &TagFacts<'_>,
        place: &TagPlace,
        tag: &DueTag,
    ) -> anyhow::Result<TagDecision> {
        if tag.reason.as_deref() == Some(CUT_OFF) && tag.failures >= MAX_CUT_OFF {
            let reason = "The server stopped three times while it made a package of this tag, so it was given up.";
            return Ok(TagDecision::settled(TagState::Refused, reason));
        }
        // A mirror without files gets them from the forge, which is too much for a tag that names nothing.
        if facts.mirror.is_partial()
            && let Some(places) = targets::places(&place.repo, &place.tag, facts.names)
            && let Ok(false) = facts.mirror.has_any(&place.commit, places).await
        {
            let reason = targets::absence_without_files(&place.repo, &place.tag, facts.names);
            return Ok(TagDecision::settled(TagState::Ignored, reason));
        }
        let store = &self.ctx.store;
        let files = facts.mirror.commit_files(&facts.remote, &place.commit);
        let files = match files.await {
            Ok(files) => Arc::new(files),
            Err(error) if error.is_of_commit() => {
                return Ok(TagDecision::settled(TagState::Refused, error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        if files.is_fetched() {
            self.budget.versions = self.budget.versions.saturating_sub(1);
        }
        let found = targets::find(store, &files, (&place.repo, &place.tag), facts.names).await;
        let found = match found {
            Ok(found) => found,
            Err(TargetsError::Files(error)) if error.is_of_commit() => {
                return Ok(TagDecision::settled(TagState::Refused, error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        if found.versions.is_empty() {
            return Ok(match found.refusal {
                Some(reason) => TagDecision::settled(TagState::Refused, reason),
                None => TagDecision::Settled {
                    state: TagState::Ignored,
                    reason: found.absence,
                    is_published: false,
                },
            });
        }
        if found.versions.len() > MAX_VERSIONS {
            let reason = format!(
                "The tag names {} modules, more than {MAX_VERSIONS}. Give them other tags in lockkeeper.yaml.",
                found.versions.len()
            );
            return Ok(TagDecision::settled(TagState::Refused, reason));
        }
        let before = store.registry_tag_versions(place).await?;
        let mut is_refused = found.refusal.is_some();
        let mut is_published = !is_refused;
        for target in &found.versions {
            let old = before.iter().find(|old| old.key == target.key);
            // What was decided for good is not decided again.
            if let Some(old) = old
                && old.outcome != TagOutcome::Refused
            {
                is_published &= old.outcome == TagOutcome::Published;
                continue;
            }
            if self.budget.is_spent() || self.ctx.closing.is_cancelled() {
                return Ok(TagDecision::Unfinished);
            }
            let version = self.outcome(facts, &files, place, (tag, target)).await?;
            is_refused |= version.outcome == TagOutcome::Refused;
            is_published &= version.outcome == TagOutcome::Published;
            if old == Some(&version) {
                continue;
            }
            self.ctx
                .metrics
                .count(Metric::RegistryTags, &[version.outcome.as_str()]);
            info!(
                repo = %place.repo, tag = %place.tag, commit = place.commit.short(), version = %version.key,
                outcome = %version.outcome, reason = version.reason, "Decided about a tag"
            );
            let status = (!tag.is_quiet).then(|| statuses::of_version(self.ctx, place, &version));
            store
                .registry_tag_version_record(place, &version, status.as_ref())
                .await?;
            self.ctx.wake_up.send();
        }
        let state = if is_refused {
            TagState::Refused
        } else {
            TagState::Done
        };
        Ok(TagDecision::Settled {
            state,
            reason: found.refusal,
            is_published,
        })
    }

    /// Returns the registry, which is opened for the first version of a tick.
    async fn open(&mut self) -> anyhow::Result<Registry> {
        if let Some(registry) = self.registry {
            return Ok(registry.clone());
        }
        let RegistryParts {
            config,
            packages,
            keys,
            ..
        } = self.parts;
        let (store, name) = (self.ctx.store.clone(), config.name.clone());
        let opened = Registry::reopen(store, keys.clone(), name, packages).await?;
        let opened = opened.waking(self.ctx.registry_wake_up.clone());
        Ok(self.registry.insert(opened).clone())
    }

    /// Publishes a version, unless a rule refuses it.
    async fn outcome(
        &mut self,
        facts: &TagFacts<'_>,
        files: &Arc<CommitSnapshot>,
        place: &TagPlace,
        (tag, target): (&DueTag, &TagTarget),
    ) -> anyhow::Result<TagVersion> {
        let refused = |reason: String| TagVersion {
            key: target.key.clone(),
            outcome: TagOutcome::Refused,
            reason: Some(reason),
        };
        if let Some(reason) = &target.refusal {
            return Ok(refused(reason.clone()));
        }
        let registry = self.open().await?;
        self.budget.versions = self.budget.versions.saturating_sub(1);
        let store = &self.ctx.store;
        // Before the attempt is recorded: a look that is cut off while it waits for others is none.
        let packing = packing_place().await;
        let failures = tag.failures + 1;
        let due_at = self.ctx.clock.now() + pause(failures);
        store.registry_tag_attempt(place, failures, due_at).await?;
        let package = match Box::pin(make_package(&registry, files, target, packing)).await? {
            Ok(package) => package,
            Err(reason) => return Ok(refused(reason)),
        };
        // The claim or the namespace may have gone to another owner while the package was made.
        let owner = store.claim_owner_of(&place.repo).await?;
        if owner.as_ref() != Some(&facts.names.owner) {
            anyhow::bail!("the repository was claimed by another owner meanwhile");
        }
        let name = target.key.name();
        if let Some(reason) = refused_name(store, &facts.names.owner, &name).await? {
            return Ok(refused(reason));
        }
        Ok(Box::pin(publish(&registry, package, place)).await?)
    }

    /// Stores a decision, with the status that tells it.
    async fn settle(
        &self,
        facts: &TagFacts<'_>,
        place: &TagPlace,
        tag: &DueTag,
        decision: TagDecision,
    ) -> anyhow::Result<()> {
        let now = self.ctx.clock.now();
        let (state, reason, failures, is_published) = match decision {
            TagDecision::Unfinished => return Ok(()),
            TagDecision::Settled {
                state,
                reason,
                is_published,
            } => (state, reason, 0, is_published),
            TagDecision::Failed(failure) => {
                let failures = tag.failures + 1;
                self.ctx.metrics.count(Metric::RegistryTags, &["failed"]);
                warn!(repo = %place.repo, tag = %place.tag, failures, failure, "Could not decide about a tag; this will be retried");
                (TagState::Waiting, Some(failure), failures, false)
            }
        };
        let is_new = (tag.state, tag.reason.as_ref()) != (state, reason.as_ref());
        let (status, is_told) = match (state, &reason) {
            (TagState::Waiting, _) => (None, tag.is_told),
            (TagState::Ignored, _) if tag.is_told => {
                (Some((CommitState::Success, "Nothing to publish.")), false)
            }
            (TagState::Ignored, _) => (None, false),
            (_, Some(_)) if tag.is_quiet || !is_new => (None, tag.is_told),
            (_, Some(reason)) => (Some((CommitState::Failure, reason.as_str())), true),
            (TagState::Done, None) if tag.is_told && is_published => {
                (Some((CommitState::Success, "Published.")), false)
            }
            (TagState::Done | TagState::Refused, None) if tag.is_told => (
                Some((
                    CommitState::Failure,
                    "Not all versions of this tag are published. Their own statuses say why.",
                )),
                true,
            ),
            (_, None) => (None, tag.is_told),
        };
        let status = status.map(|(state, text)| statuses::of_tag(self.ctx, place, state, text));
        if is_new && let Some(reason) = &reason {
            let outcome = match state {
                TagState::OffBranch => Some("off_branch"),
                TagState::Refused => Some("refused"),
                TagState::Waiting | TagState::Ignored | TagState::Done => None,
            };
            if let Some(outcome) = outcome {
                self.ctx.metrics.count(Metric::RegistryTags, &[outcome]);
                info!(repo = %place.repo, tag = %place.tag, outcome, reason, "Decided about a tag");
            }
        }
        let settled = TagSettled {
            state,
            reason: reason.as_deref(),
            basis: facts.basis,
            head: facts.head,
            failures,
            due_at: now + pause(failures),
            is_told,
        };
        self.ctx
            .store
            .registry_tag_settle(place, &settled, status.as_ref())
            .await?;
        if status.is_some() {
            self.ctx.wake_up.send();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour() {
        let minutes = [0, 1, 2, 3, 6, 7, 8, i64::MAX].map(|failures| pause(failures).num_minutes());
        assert_eq!(minutes, [1, 1, 2, 4, 32, 60, 60, 60]);
    }
}
