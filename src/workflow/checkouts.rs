//! Manages the mirrors and checkouts of this replica: a cache of the forge on this disk (P9).
//!
//! A mirror is fetched under a lease in the database, so that nothing else of this replica works on it. A checkout is
//! prepared only when no earlier run still uses it, even one that outlived its server.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::{info, warn};

use super::CheckoutParts;
use super::mirror_leases::MirrorLeases;
use super::state_lock;
use super::uses::{CheckoutUses, PullInUse};
use crate::clock::Clock;
use crate::config::needs::BaseGap;
use crate::config::server::{ServedReposConfig, StrategySetting};
use crate::config::{NotUtf8, text_of};
use crate::forges::{ForgeError, Forges};
use crate::git::{
    BaseCommit, BranchChanges, Checkout, CheckoutRequest, CheckoutStrategy, DirError, DiskPart,
    DiskUse, Extent, FetchRequest, Fetched, Git, GitError, Head, IgnoredFiles, LinkOut, Mirror,
    MirrorInUse, Prepared, RefName, Remote, TreeFiles, TreeReader,
};
use crate::model::{
    BranchName, ChangedFile, CommitSha, PlanRecord, ProjectKey, Pull, PullRef, RepoId, RepoPath,
    WorkspaceName,
};
use crate::render::StateLock;
use crate::sync::{FetchTicket, Syncer};

/// Commits of a pull request that a checkout is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub pull: PullRef,
    /// Head commit of the pull request.
    pub head: CommitSha,
    /// Base branch of the pull request.
    pub base_branch: BranchName,
    /// Commit of the base branch.
    pub base: CommitSha,
}

impl Source {
    /// Returns exactly the source that a plan was made from (P5).
    pub fn of_plan(plan: &PlanRecord) -> Self {
        Self {
            pull: plan.pull.clone(),
            head: plan.head.clone(),
            base_branch: plan.base_branch.clone(),
            base: plan.base.clone(),
        }
    }
}

/// Content of a checkout, as a key: sources with equal content share one checkout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckedOut {
    pull: PullRef,
    head: CommitSha,
    /// Base commit, if the head is merged into it.
    base: Option<CommitSha>,
}

/// Reason that there is no checkout.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// The head cannot be merged into the base.
    #[error("the pull request conflicts with `{base}`")]
    Conflict {
        /// Base branch of the pull request.
        base: BranchName,
        /// Files with merge conflicts.
        files: Vec<String>,
    },
    /// The commit no longer exists in the repository.
    #[error("the commit `{}` does not exist in the repository any more", head.short())]
    HeadGone {
        /// Commit that was requested.
        head: CommitSha,
    },
    /// Another holder works on the mirror.
    #[error("cannot obtain an exclusive lease `{key}`: {holder} holds it")]
    Busy {
        /// Key of the lease.
        key: String,
        /// Current holder of the lease.
        holder: String,
    },
    /// The lease of the mirror was lost during the fetch.
    #[error("the exclusive lease of the mirror of {repo} was lost during the fetch")]
    LeaseLost {
        /// Repository of the mirror.
        repo: RepoId,
    },
    /// The base branch no longer exists.
    #[error("the branch `{base}` does not exist in the repository any more")]
    BaseGone {
        /// Base branch of the pull request.
        base: BranchName,
    },
    /// The directory of the project cannot be used.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The forge did not provide credentials.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// A submodule or LFS content cannot be fetched, and somebody has to fix that.
    #[error(transparent)]
    Part(GitError),
    /// A git command failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The database query failed.
    #[error("the database query failed")]
    Store(#[from] sqlx::Error),
}

/// Settings for the content of checkouts.
#[derive(Clone, Copy, Debug)]
pub struct CheckoutContents {
    /// Commit to check out (`--checkout-strategy`).
    pub strategy: CheckoutStrategy,
    /// True if a checkout contains only the directories that are named (`--sparse-checkout`).
    pub sparse: bool,
    /// True if submodules are checked out (`--checkout-submodules`).
    pub submodules: bool,
    /// True if LFS content is checked out (`--checkout-lfs`).
    pub lfs: bool,
}

impl From<&ServedReposConfig> for CheckoutContents {
    fn from(repos: &ServedReposConfig) -> Self {
        let strategy = match repos.checkout {
            StrategySetting::Branch => CheckoutStrategy::Branch,
            StrategySetting::Merge => CheckoutStrategy::Merge,
        };
        Self {
            strategy,
            sparse: repos.sparse,
            submodules: repos.submodules,
            lfs: repos.lfs,
        }
    }
}

/// The mirrors and checkouts of this replica.
pub struct Checkouts {
    pub(super) git: Git,
    pub(super) contents: CheckoutContents,
    clock: Arc<dyn Clock>,
    pub(super) leases: MirrorLeases,
    /// Tasks of this process wait at the gates of the syncer; the lease excludes other processes.
    pub(super) syncer: Syncer,
    pub(super) forges: Forges,
    /// Time limit for one exchange with the forge.
    pub(super) fetch_time: Duration,
    uses: CheckoutUses,
    /// Tasks that make spare checkouts. They end with the server.
    spares: Mutex<JoinSet<()>>,
}

impl Checkouts {
    /// Creates the cache on top of `git`. Fetches take leases of this replica.
    pub fn new(
        git: Git,
        contents: CheckoutContents,
        clock: Arc<dyn Clock>,
        leases: MirrorLeases,
        syncer: Syncer,
        forges: Forges,
    ) -> Self {
        let fetch_time = syncer.fetch_time();
        Self {
            git,
            contents,
            clock,
            leases,
            syncer,
            forges,
            fetch_time,
            uses: CheckoutUses::default(),
            spares: Mutex::default(),
        }
    }

    /// Updates the mirror to the head and the base branch of a pull request.
    pub async fn fetch(&self, pull: &Pull) -> Result<Source, CheckoutError> {
        if pull.at.subject.is_application() {
            return self.fetch_application(pull).await;
        }
        let here = self.source_if_here(&pull.at, &pull.head, &pull.base_branch);
        if let Some(source) = here.await? {
            self.used(&source).await;
            return Ok(source);
        }
        let base_ref = RefName::branch(&pull.base_branch);
        let fetched = self
            .fetch_commit(&pull.at, Some(&pull.head), std::slice::from_ref(&base_ref))
            .await?;
        let base = fetched.commit_of(&base_ref).cloned();
        let base = base.ok_or_else(|| CheckoutError::BaseGone {
            base: pull.base_branch.clone(),
        })?;
        Ok(Source {
            pull: pull.at.clone(),
            head: pull.head.clone(),
            base_branch: pull.base_branch.clone(),
            base,
        })
    }

    /// Returns this head and the newest commit of the base branch if the mirror already has both. Then a fetch would
    /// bring nothing. The refs of the mirror must lead to both, so that upkeep keeps their objects.
    pub async fn source_if_here(
        &self,
        at: &PullRef,
        head: &CommitSha,
        base_branch: &BranchName,
    ) -> Result<Option<Source>, CheckoutError> {
        let repo = &at.repo;
        let mirror = self.git.mirror(repo);
        self.check_mirror(repo)?;
        if mirror.is_damaged() || mirror.is_partial() {
            return Ok(None);
        }
        let Some(head_ref) = self.head_ref(at).await? else {
            return Ok(None);
        };
        if mirror.leads_elsewhere(&head_ref, head)
            || mirror.commit_if_known(&head_ref).await.as_ref() != Some(head)
        {
            return Ok(None);
        }
        let base_ref = RefName::branch(base_branch);
        let Some(base) = mirror.commit_if_known(&base_ref).await else {
            return Ok(None);
        };
        // Without an answer, the fetch tells what is wrong.
        let tip = self.forges.of(repo)?.branch_tip(repo, base_branch).await;
        if tip.ok().flatten().as_ref() != Some(&base) {
            return Ok(None);
        }
        Ok(Some(Source {
            pull: at.clone(),
            head: head.clone(),
            base_branch: base_branch.clone(),
            base,
        }))
    }

    /// Records that a command uses the mirror of a source that did not have to be fetched.
    pub async fn used(&self, source: &Source) {
        self.syncer.used(&source.pull.repo).await;
    }

    /// Returns the ref of the head of a pull in its repository, if the forge keeps one there.
    async fn head_ref(&self, at: &PullRef) -> Result<Option<RefName>, CheckoutError> {
        if at.subject.is_application() {
            return Ok(None);
        }
        let source = self.forges.of(&at.repo)?.head_source(at).await?;
        Ok(source
            .ref_in(&at.repo)
            .and_then(|name| RefName::new(&name).ok()))
    }

    /// Returns the source of an application. The commit is the one that was observed on its branch, even if the
    /// branch has moved since. Usually that observation has already fetched it.
    async fn fetch_application(&self, pull: &Pull) -> Result<Source, CheckoutError> {
        let (at, head, base) = (pull.at.clone(), pull.head.clone(), pull.head.clone());
        if !self
            .git
            .mirror(&at.repo)
            .has_commit(&head)
            .await
            .unwrap_or(false)
        {
            self.fetch_commit(&at, Some(&head), &[RefName::branch(&pull.base_branch)])
                .await?;
        }
        Ok(Source {
            pull: at,
            head,
            base_branch: pull.base_branch.clone(),
            base,
        })
    }

    /// Updates the mirror to a branch and returns the newest commit of the branch; `None` if the branch does not
    /// exist.
    pub async fn fetch_tip(
        &self,
        at: &PullRef,
        branch: &BranchName,
    ) -> Result<Option<CommitSha>, CheckoutError> {
        let name = RefName::branch(branch);
        let fetched = self
            .fetch_commit(at, None, std::slice::from_ref(&name))
            .await?;
        Ok(fetched.commit_of(&name).cloned())
    }

    /// Counts the commits of the base branch that the planned commits lack. `newest` was fetched just now.
    pub async fn base_gap(&self, newest: &Source, planned: &Source) -> Result<BaseGap, GitError> {
        let mirror = self.git.mirror(&newest.pull.repo);
        let in_head = mirror.count_missing(&newest.base, &[&planned.head]).await?;
        let is_merged = self.contents.strategy == CheckoutStrategy::Merge;
        let in_planned = match self.contents.strategy {
            CheckoutStrategy::Branch => in_head,
            CheckoutStrategy::Merge => {
                mirror
                    .count_missing(&newest.base, &[&planned.head, &planned.base])
                    .await?
            }
        };
        Ok(BaseGap {
            in_head,
            in_planned,
            is_merged,
        })
    }

    /// Returns the checkout strategy (`--checkout-strategy`).
    pub fn strategy(&self) -> CheckoutStrategy {
        self.contents.strategy
    }

    /// Returns the current commit of a branch; `None` if the branch does not exist.
    pub async fn fetch_branch(
        &self,
        source: &Source,
        branch: &BranchName,
    ) -> Result<Option<CommitSha>, CheckoutError> {
        let name = RefName::branch(branch);
        let fetched = self
            .fetch_commit(
                &source.pull,
                Some(&source.head),
                std::slice::from_ref(&name),
            )
            .await?;
        Ok(fetched.commit_of(&name).cloned())
    }

    /// Returns the merge of the head into the base branch, regardless of the checkout strategy.
    pub async fn merged(&self, source: &Source) -> Result<CommitSha, CheckoutError> {
        let merged = self
            .git
            .mirror(&source.pull.repo)
            .merged(&source.base, &source.head)
            .await?;
        merged.map_err(|files| CheckoutError::Conflict {
            base: source.base_branch.clone(),
            files,
        })
    }

    /// Updates the mirror to the commits of a plan, because this replica may never have fetched them (P9).
    pub async fn fetch_plan(&self, plan: &PlanRecord) -> Result<Source, CheckoutError> {
        let source = Source::of_plan(plan);
        self.fetch_source(&source).await?;
        Ok(source)
    }

    /// Fetches the commits of a source that the mirror does not have, and for a partial mirror their missing files.
    pub async fn fetch_source(&self, source: &Source) -> Result<(), CheckoutError> {
        let mirror = self.git.mirror(&source.pull.repo);
        self.check_mirror(&source.pull.repo)?;
        let commits = [&source.head, &source.base];
        // A mirror that does not exist yet has no commits, and a query of it is an error.
        if mirror.is_damaged() || !mirror.has_commits(&commits).await.unwrap_or(false) {
            for commit in commits {
                if mirror.is_damaged() || !mirror.has_commit(commit).await.unwrap_or(false) {
                    self.fetch_commit(&source.pull, Some(commit), &[]).await?;
                }
            }
        }
        if mirror.is_partial() {
            let forge = self.forges.of(&source.pull.repo)?;
            let credentials = forge.git_credentials(&source.pull.repo).await?;
            let url = forge.clone_url(&source.pull.repo);
            let remote = Remote {
                url: &url,
                credentials: Some(&credentials),
                deadline: self.fetch_time,
            };
            mirror.bring_files(&remote, &commits).await?;
        }
        Ok(())
    }

    /// Returns true if the mirror is whole, but lacks a commit of the source.
    ///
    /// A command that has fetched its commits may miss them a moment later: if the fetch of another command finds
    /// the mirror damaged, it replaces the mirror with a fresh one that has only its own commits.
    pub async fn has_lost(&self, source: &Source) -> bool {
        let mirror = self.git.mirror(&source.pull.repo);
        !mirror.is_damaged()
            && mirror
                .has_commits(&[&source.head, &source.base])
                .await
                .is_ok_and(|has_all| !has_all)
    }

    async fn fetch_commit(
        &self,
        at: &PullRef,
        commit: Option<&CommitSha>,
        refs: &[RefName],
    ) -> Result<Fetched, CheckoutError> {
        self.check_mirror(&at.repo)?;
        let pull_ref = self.head_ref(at).await?;
        self.fetch_refs(
            (&at.repo, &format!("fetch for {at}")),
            commit,
            refs,
            pull_ref,
        )
        .await
    }

    /// Updates the mirror of a repository to refs, and to a commit. `purpose` is for people who wait for the mirror. No
    /// head of a pull request comes along.
    pub(super) async fn fetch_trusted(
        &self,
        repo: &RepoId,
        purpose: &str,
        commit: Option<&CommitSha>,
        refs: &[RefName],
    ) -> Result<Fetched, CheckoutError> {
        self.check_mirror(repo)?;
        self.fetch_refs((repo, purpose), commit, refs, None).await
    }

    /// Fetches refs and a commit. The error of the ref `pull_ref` is of no interest.
    async fn fetch_refs(
        &self,
        (repo, purpose): (&RepoId, &str),
        commit: Option<&CommitSha>,
        needed: &[RefName],
        pull_ref: Option<RefName>,
    ) -> Result<Fetched, CheckoutError> {
        let refs: Vec<RefName> = needed.iter().cloned().chain(pull_ref).collect();
        let ticket = self.syncer.enter(repo, &refs);
        let _gate = self.syncer.gate(repo).await;
        if let Some(brought) = ticket.brought() {
            let fetched = brought?;
            let Some(commit) = commit else {
                return Ok(fetched);
            };
            if self.git.mirror(repo).has_commit(commit).await? {
                self.syncer.used(repo).await;
                return Ok(Fetched {
                    wanted: Head::Present,
                    ..fetched
                });
            }
        }
        // The future is large, and every caller's future would contain it.
        let fetched = Box::pin(self.fetch_for_all((repo, purpose), commit, &ticket)).await?;
        self.syncer.used(repo).await;
        let refused = |name: &dyn std::fmt::Display, why: &String| {
            GitError::Fsck {
                doing: format!("fetch {name} of {repo}"),
                message: why.clone(),
            }
            .into()
        };
        if let Some((name, why)) = fetched
            .refused
            .iter()
            .find(|(name, _)| needed.contains(name))
        {
            return Err(refused(name, why));
        }
        match (&fetched.wanted, commit) {
            (Head::Gone, Some(commit)) => Err(CheckoutError::HeadGone {
                head: commit.clone(),
            }),
            (Head::Refused(why), Some(commit)) => Err(refused(&commit.short(), why)),
            (Head::Present | Head::NotAsked | Head::Gone | Head::Refused(_), _) => Ok(fetched),
        }
    }

    /// Fetches everything that the tasks waiting at this moment need.
    async fn fetch_for_all(
        &self,
        (repo, purpose): (&RepoId, &str),
        commit: Option<&CommitSha>,
        ticket: &FetchTicket,
    ) -> Result<Fetched, CheckoutError> {
        let forge = self.forges.of(repo)?;
        let credentials = forge.git_credentials(repo).await?;
        let held = self.leases.obtain(repo, purpose).await?;
        let included = ticket.include();
        let request = FetchRequest {
            url: &forge.clone_url(repo),
            credentials: Some(&credentials),
            refs: &included.refs,
            wanted: commit,
            deadline: self.fetch_time,
        };
        let Some(fetched) = held.run(self.git.mirror(repo).fetch(&request)).await.done() else {
            return Err(CheckoutError::LeaseLost { repo: repo.clone() });
        };
        ticket.finish(&included, &fetched);
        if fetched.is_err() {
            forge.renew_access(repo);
        }
        Ok(fetched?)
    }

    /// Refuses a mirror that another program changed. A fetch would replace it silently, and people should know
    /// before anything runs. A mirror that is marked as damaged is replaced by the next fetch.
    pub fn check_mirror(&self, repo: &RepoId) -> Result<(), CheckoutError> {
        let mirror = self.git.mirror(repo);
        if mirror.is_damaged() {
            Ok(())
        } else {
            Ok(mirror.check_integrity(&format!("use the mirror of {repo}"))?)
        }
    }

    /// Returns true if checkouts may contain only a part of a commit.
    pub fn is_sparse(&self) -> bool {
        self.contents.sparse
    }

    /// Returns the content of a checkout of this source.
    pub fn checked_out(&self, source: &Source) -> CheckedOut {
        let base = match self.contents.strategy {
            CheckoutStrategy::Branch => None,
            CheckoutStrategy::Merge => Some(source.base.clone()),
        };
        CheckedOut {
            pull: source.pull.clone(),
            head: source.head.clone(),
            base,
        }
    }

    /// Returns the commit that is checked out for a source.
    pub async fn commit(&self, source: &Source) -> Result<CommitSha, CheckoutError> {
        match self.contents.strategy {
            CheckoutStrategy::Branch => Ok(source.head.clone()),
            CheckoutStrategy::Merge => self.merged(source).await,
        }
    }

    /// Prepares the checkout of a workspace: exactly the source, at least the directories of `extent`, and the
    /// fetched parts.
    pub async fn prepare(
        &self,
        source: &Source,
        workspace: &WorkspaceName,
        extent: &Extent,
        parts: &CheckoutParts,
    ) -> Result<Checkout, CheckoutError> {
        let wanted = CheckoutRequest {
            pull: source.pull.subject,
            workspace,
            head: &source.head,
            base: &source.base,
            strategy: self.contents.strategy,
            extent,
        };
        let mirror = self.git.mirror(&source.pull.repo);
        match mirror.prepare(&wanted).await? {
            Prepared::Ready(checkout) => {
                self.place_parts(&checkout, parts, &mirror).await?;
                if let Err(error) = mirror.touch(Some(source.pull.subject), self.clock.now()) {
                    warn!(%error, pull = %source.pull, "Could not record the use of a checkout; it may be removed too early");
                }
                if checkout.fresh {
                    self.make_spare(mirror, checkout.clone());
                }
                Ok(checkout)
            }
            Prepared::Conflict { files } => Err(CheckoutError::Conflict {
                base: source.base_branch.clone(),
                files,
            }),
        }
    }

    /// Makes a spare checkout for the next pull of a large repository, while this one is being planned.
    fn make_spare(&self, mirror: Mirror, like: Checkout) {
        let mut tasks = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            if let Err(error) = mirror.make_spare(&like).await {
                warn!(%error, "Could not make a spare checkout; the first plan of the next pull request takes longer");
            }
        });
    }

    /// Returns the symbolic links of a checkout that lead out of it.
    pub async fn links_out(
        &self,
        repo: &RepoId,
        checkout: &Checkout,
    ) -> Result<Vec<LinkOut>, GitError> {
        let links = self.git.mirror(repo).links(&checkout.commit).await?;
        let checkout = checkout.clone();
        let looked = tokio::task::spawn_blocking(move || checkout.links_out(&links)).await;
        looked.map_err(|error| GitError::Other {
            doing: "check the symbolic links".to_owned(),
            message: error.to_string(),
        })?
    }

    /// Lists the files of a commit that was fetched.
    pub async fn files(&self, source: &Source, commit: &CommitSha) -> Result<TreeFiles, GitError> {
        self.git.mirror(&source.pull.repo).files(commit).await
    }

    /// Returns the changes of the pull request, regardless of the checkout strategy; `None` if there are too many to
    /// list.
    pub async fn changed(&self, source: &Source) -> Result<Option<BranchChanges>, GitError> {
        self.git
            .mirror(&source.pull.repo)
            .changed(&source.base, &source.head)
            .await
    }

    /// Returns the changes of the base branch since the pull request left it, if the planned commits lack them.
    /// `None` if there are too many to list.
    pub async fn lacks(
        &self,
        source: &Source,
        left_at: &CommitSha,
    ) -> Result<Option<Vec<ChangedFile>>, GitError> {
        match self.contents.strategy {
            CheckoutStrategy::Branch if *left_at != source.base => {
                self.git
                    .mirror(&source.pull.repo)
                    .changed_since(left_at, &source.base)
                    .await
            }
            CheckoutStrategy::Branch | CheckoutStrategy::Merge => Ok(Some(Vec::new())),
        }
    }

    /// Returns the commits merged into the base branch since the pull request left it that change files in one of
    /// `dirs`: the newest first, at most `most`.
    pub async fn merged_since(
        &self,
        source: &Source,
        left_at: &CommitSha,
        dirs: &[RepoPath],
        most: usize,
    ) -> Result<Vec<BaseCommit>, GitError> {
        self.git
            .mirror(&source.pull.repo)
            .merged_between((left_at, &source.base), dirs, most)
            .await
    }

    /// Returns a reader of the files of a commit.
    pub fn reader(&self, source: &Source, commit: &CommitSha) -> TreeReader {
        self.git.mirror(&source.pull.repo).reader(commit)
    }

    /// Lists untracked files of a checkout, except those that runs leave behind.
    pub async fn untracked(
        &self,
        source: &Source,
        checkout: &Checkout,
        ignored: IgnoredFiles,
    ) -> Result<TreeFiles, GitError> {
        self.git
            .mirror(&source.pull.repo)
            .untracked(checkout, ignored)
            .await
    }

    /// Returns the id of the tree of a commit. Commits with the same files have the same id.
    pub async fn tree_id(&self, source: &Source, commit: &CommitSha) -> Result<String, GitError> {
        self.git.mirror(&source.pull.repo).tree_id(commit).await
    }

    /// Returns those of `paths` at which a fetched commit has a file, link or directory.
    pub async fn tracked(
        &self,
        repo: &RepoId,
        commit: &CommitSha,
        paths: &[RepoPath],
    ) -> Result<Vec<RepoPath>, GitError> {
        self.git.mirror(repo).tracked(commit, paths).await
    }

    /// Returns the text of a file of a fetched commit; `None` if the file does not exist. A file that is not text is
    /// an error, because nobody would notice if it counted as missing.
    pub async fn read(
        &self,
        repo: &RepoId,
        commit: &CommitSha,
        path: &RepoPath,
        max_bytes: u64,
    ) -> Result<Option<String>, GitError> {
        let bytes = self.git.mirror(repo).read(commit, path, max_bytes).await?;
        let not_text = |error: NotUtf8| GitError::Other {
            doing: format!("read `{path}` at {}", commit.short()),
            message: error.to_string(),
        };
        bytes.map(text_of).transpose().map_err(not_text)
    }

    /// Returns true if a file belongs to the commit of a checkout.
    pub async fn is_tracked(
        &self,
        repo: &RepoId,
        checkout: &Checkout,
        path: &RepoPath,
    ) -> Result<bool, GitError> {
        self.git
            .mirror(repo)
            .is_tracked(&checkout.commit, path)
            .await
    }

    /// Returns Terraform's own lock of a local state that a run left behind in the checkout of a project, if that
    /// checkout is on this disk.
    pub async fn state_lock_left(&self, pull: &PullRef, project: &ProjectKey) -> Option<StateLock> {
        let root = self
            .git
            .mirror(&pull.repo)
            .checkout_root(pull.subject, &project.workspace);
        let (dir, workspace) = (project.dir.clone(), project.workspace.clone());
        let left =
            tokio::task::spawn_blocking(move || state_lock::left_in(&root, &dir, &workspace)).await;
        left.unwrap_or_else(|error| {
            warn!(%error, %pull, "Could not check whether Terraform left a state lock behind");
            None
        })
    }

    /// Marks a pull request as in use. Nothing of it is removed to free disk space until the returned value is
    /// dropped.
    pub async fn enter(&self, pull: &PullRef) -> PullInUse {
        self.uses.enter(pull).await
    }

    /// Begins a run in a checkout of the repository. The mirror is not replaced before the run ends.
    pub async fn begin_run(&self, repo: &RepoId) -> MirrorInUse {
        self.git.mirror(repo).begin_run().await
    }

    /// Returns true if a checkout belongs to the current mirror. A checkout of a mirror that was replaced has to be
    /// prepared again.
    pub fn is_current(&self, repo: &RepoId, checkout: &Checkout) -> bool {
        self.git.mirror(repo).copy() == checkout.copy
    }

    /// Returns the directory of the mirror of a repository, even if the mirror does not exist.
    pub fn mirror_dir(&self, repo: &RepoId) -> PathBuf {
        self.git.mirror(repo).dir().to_owned()
    }

    /// Returns the disk use of mirrors and checkouts.
    pub async fn disk_use(&self) -> std::io::Result<Vec<DiskUse>> {
        self.git.disk_use().await
    }

    /// Lists the pull requests that have checkouts on this disk.
    pub async fn disk_pulls(&self) -> std::io::Result<BTreeSet<PullRef>> {
        self.git.disk_pulls().await
    }

    /// Removes a part of the cache. Returns `false` and keeps it if it is in use or a checkout needs it.
    pub async fn evict(&self, part: &DiskPart) -> Result<bool, GitError> {
        let Some(_alone) = self.uses.alone(part) else {
            return Ok(false);
        };
        match part {
            DiskPart::Checkouts(pull) => self.git.mirror(&pull.repo).evict_pull(pull.subject).await,
            DiskPart::Mirror(repo) => self.evict_mirror(repo).await,
        }
    }

    /// Removes a mirror. What is known of the old mirror is not true of the next one, so no sync ends or begins until
    /// the removal is recorded.
    async fn evict_mirror(&self, repo: &RepoId) -> Result<bool, GitError> {
        let Some(_gate) = self.syncer.gate_if_free(repo) else {
            return Ok(false);
        };
        let removed = self.git.mirror(repo).evict().await?;
        if removed && let Err(error) = self.syncer.evicted(repo).await {
            warn!(%repo, %error, "Could not record the removal of a mirror; the mirror will be created again");
        }
        Ok(removed)
    }

    /// Moves the mirror and the checkouts of a renamed repository, unless they are in use at this moment. They are a
    /// cache, so it is no failure if they stay.
    pub async fn follow_name(&self, old: &RepoId, new: &RepoId) {
        if !self.git.has(old) {
            return;
        }
        let uses = [old, new].map(|repo| self.uses.alone(&DiskPart::Mirror(repo.clone())));
        let gates = [old, new].map(|repo| self.syncer.gate_if_free(repo));
        if uses.iter().any(Option::is_none) || gates.iter().any(Option::is_none) {
            return;
        }
        match self.git.rename(old, new).await {
            Ok(true) => info!(%old, %new, "Moved the mirror of a renamed repository"),
            Ok(false) => {}
            Err(error) => {
                warn!(%old, %new, %error, "Could not move the mirror of a renamed repository");
            }
        }
    }

    /// Removes every checkout of a pull request as soon as nothing uses them.
    pub async fn remove_pull(&self, pull: &PullRef) -> Result<(), GitError> {
        self.git.mirror(&pull.repo).remove_pull(pull.subject).await
    }
}
