//! Reads policies and waivers of sets.
//!
//! The policies of a branch or a tag are those of the commit that the forge names now. That commit is pinned: its files are
//! read from the mirror by its id, and the verdict names it. The head of the pull request is never a source.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use lockkeeper_policy::sets::{PolicyEngine, PolicySet, PolicySource, WaiverFile};
use lockkeeper_policy::waivers::{self, Waiver};
use lockkeeper_registry::git_archive::ArchivedFile;
use lockkeeper_registry::tree::TreeMode;

use super::files::{LIMITS, PolicyFile, PolicyFiles, digest, read_local, read_rego};
use super::{PolicySources, ReadFiles, ReadyPolicies, conftest};
use crate::errors::describe_error;
use crate::git::{CommitSnapshot, RefName, Remote, SnapshotError};
use crate::model::{BranchName, CommitSha, RepoId, RepoPath};
use crate::workflow::{CheckoutError, Checkouts};

/// Maximum number of bytes of a file of waivers that is read.
const MAX_WAIVERS: u64 = 1 << 20;

/// Commits that were read for one command, by repository and revision.
type TrustedCommits = HashMap<(RepoId, Revision), Result<Arc<CommitSnapshot>, String>>;

/// Revision of a repository that the administrator has named.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Revision {
    /// Newest commit of a branch, or commit of a tag.
    Ref(RefName),
    Commit(CommitSha),
}

/// Reason that a commit cannot be read.
#[derive(Debug, thiserror::Error)]
enum SourceError {
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the repository has no `{0}`")]
    NoRef(RefName),
}

impl Checkouts {
    /// Reads the policies and waivers of sets, for a pull request of this repository. `own_branch` is the branch that the
    /// pull request comes from, if it is in this repository: its author can change everything on it.
    pub async fn policy_sources(
        &self,
        repo: &RepoId,
        own_branch: Option<&BranchName>,
        sets: &[Arc<PolicySet>],
    ) -> PolicySources {
        let (mut commits, mut sources) = (TrustedCommits::new(), PolicySources::new());
        for set in sets {
            let waivers = match &set.waivers {
                Some(file) => match trusted_branch(&file.branch, own_branch) {
                    Ok(branch) => self.waivers(repo, (&branch, file), &mut commits).await,
                    Err(why) => Err(why),
                },
                None => Ok(Vec::new()),
            };
            let read = self.policy_files(repo, own_branch, set, &mut commits).await;
            let ready = ReadyPolicies { read, waivers };
            sources.insert(set.name.clone(), Arc::new(ready));
        }
        sources
    }

    async fn policy_files(
        &self,
        repo: &RepoId,
        own_branch: Option<&BranchName>,
        set: &PolicySet,
        commits: &mut TrustedCommits,
    ) -> Result<ReadFiles, String> {
        if let PolicyEngine::Steps(_) = set.engine {
            return Err("the steps of the workflow bring the policies".to_owned());
        }
        match &set.source {
            PolicySource::Steps => Err(
                "the steps of the workflow bring the policies, so no other engine can evaluate them"
                    .to_owned(),
            ),
            PolicySource::Local(path) => local(set.engine, path).await,
            PolicySource::Relative(path) => Err(format!(
                "its path `{path}` is relative, so it would be in the checkout of the pull request, which could change the \
                 policies. An administrator must write an absolute path of the server, or `branch: main` for a directory on \
                 a branch of the repository"
            )),
            PolicySource::Branch { branch, path } => {
                let name = trusted_branch(branch, own_branch)?;
                let revision = Revision::Ref(RefName::branch(&name));
                let commit = self.trusted_commit(repo, revision, commits).await?;
                let files = files_of(&commit, path).await?;
                check_rules(set.engine, &files)?;
                let at = commit.commit().short();
                Ok(fetched(files, format!("{path} on the branch {branch} ({at})")))
            }
            PolicySource::Repository {
                repository,
                reference,
                path,
            } => {
                let other = repository
                    .parse::<RepoId>()
                    .map_err(|error| format!("`{repository}`: {error}"))?;
                let revision = match CommitSha::new(reference) {
                    Ok(commit) => Revision::Commit(commit),
                    Err(_) => Revision::Ref(
                        RefName::new(&format!("refs/tags/{reference}"))
                            .map_err(|error| error.to_string())?,
                    ),
                };
                let commit = self.trusted_commit(&other, revision, commits).await?;
                let files = files_of(&commit, path).await?;
                check_rules(set.engine, &files)?;
                let at = commit.commit().short();
                let origin = format!("{path} in {other} at {reference} ({at})");
                Ok(fetched(files, origin))
            }
        }
    }

    async fn waivers(
        &self,
        repo: &RepoId,
        (branch, file): (&BranchName, &WaiverFile),
        commits: &mut TrustedCommits,
    ) -> Result<Vec<Waiver>, String> {
        let path = &file.path;
        let revision = Revision::Ref(RefName::branch(branch));
        let commit = self.trusted_commit(repo, revision, commits).await?;
        let bytes = commit.read(path, MAX_WAIVERS).await;
        let bytes = bytes.map_err(|error| describe_error(&error))?;
        // A repository without waivers needs no file.
        let Some(bytes) = bytes else {
            return Ok(Vec::new());
        };
        let text = String::from_utf8(bytes)
            .map_err(|_| format!("`{path}` on the branch `{branch}` is not text"))?;
        waivers::read(&text).map_err(|error| format!("`{path}` on the branch `{branch}`: {error}"))
    }

    /// Returns the files of a commit, which is fetched at most once for a command.
    async fn trusted_commit(
        &self,
        repo: &RepoId,
        revision: Revision,
        commits: &mut TrustedCommits,
    ) -> Result<Arc<CommitSnapshot>, String> {
        let key = (repo.clone(), revision);
        if let Some(known) = commits.get(&key) {
            return known.clone();
        }
        // Boxed, because the future is large, and everything that plans awaits it.
        let read = Box::pin(self.fetch_revision(repo, &key.1)).await;
        let read = read.map(Arc::new).map_err(|error| {
            format!(
                "the policies cannot be fetched from {repo}: {}. If the repository or the revision is gone, an \
                 administrator must correct the policy set. Otherwise plan again later",
                describe_error(&error)
            )
        });
        commits.insert(key, read.clone());
        read
    }

    async fn fetch_revision(
        &self,
        repo: &RepoId,
        revision: &Revision,
    ) -> Result<CommitSnapshot, SourceError> {
        let mirror = self.git.mirror(repo);
        let purpose = "fetch policies";
        let commit = match revision {
            Revision::Ref(name) => {
                let refs = std::slice::from_ref(name);
                let fetched = self.fetch_trusted(repo, purpose, None, refs).await?;
                let commit = fetched.commit_of(name).cloned();
                commit.ok_or_else(|| SourceError::NoRef(name.clone()))?
            }
            Revision::Commit(commit) => {
                // A mirror that does not exist yet has no commits, and a query of it is an error.
                let is_here =
                    !mirror.is_damaged() && mirror.has_commit(commit).await.unwrap_or(false);
                if !is_here {
                    // The commit is there afterwards, or the fetch is an error.
                    self.fetch_trusted(repo, purpose, Some(commit), &[]).await?;
                }
                commit.clone()
            }
        };
        let forge = self.forges.of(repo).map_err(CheckoutError::from)?;
        let credentials = forge.git_credentials(repo).await;
        let credentials = credentials.map_err(CheckoutError::from)?;
        let url = forge.clone_url(repo);
        let remote = Remote {
            url: &url,
            credentials: Some(&credentials),
            deadline: self.fetch_time,
        };
        Ok(mirror.commit_files(&remote, &commit).await?)
    }
}

/// Returns the branch that policies or waivers are read from, unless it is the branch of the pull request itself.
fn trusted_branch(name: &str, own_branch: Option<&BranchName>) -> Result<BranchName, String> {
    let branch = BranchName::new(name).map_err(|error| error.to_string())?;
    if own_branch == Some(&branch) {
        return Err(format!(
            "the pull request comes from the branch `{branch}`, so its author could change them there. Open the pull request \
             from another branch"
        ));
    }
    Ok(branch)
}

fn fetched(files: Vec<PolicyFile>, origin: String) -> ReadFiles {
    ReadFiles {
        content: Some(digest(&files)),
        files: PolicyFiles::Read(files),
        origin,
    }
}

/// Checks that the engine knows all rules.
fn check_rules(engine: PolicyEngine, files: &[PolicyFile]) -> Result<(), String> {
    match engine {
        PolicyEngine::Conftest => conftest::check_rules(files),
        PolicyEngine::Embedded | PolicyEngine::Steps(_) => Ok(()),
    }
}

/// Reads a directory or file of the server.
async fn local(engine: PolicyEngine, path: &Path) -> Result<ReadFiles, String> {
    let origin = path.display().to_string();
    let top = path.to_owned();
    let reading = move || -> std::io::Result<(Vec<PolicyFile>, Vec<PolicyFile>)> {
        let searched = match engine {
            PolicyEngine::Conftest => read_rego(&top)?,
            PolicyEngine::Embedded | PolicyEngine::Steps(_) => Vec::new(),
        };
        Ok((read_local(&top)?, searched))
    };
    let read = tokio::task::spawn_blocking(reading).await;
    let read = read.map_err(std::io::Error::other).and_then(|read| read);
    let (files, searched) = read.map_err(|error| {
        format!(
            "the policies in {origin} cannot be read: {error}. An administrator must create the directory or correct \
             the policy set"
        )
    })?;
    check_rules(engine, &searched)?;
    match engine {
        PolicyEngine::Conftest => Ok(ReadFiles {
            files: PolicyFiles::Here(path.to_owned()),
            origin,
            content: Some(digest(&files)),
        }),
        PolicyEngine::Embedded | PolicyEngine::Steps(_) => Ok(fetched(files, origin)),
    }
}

/// Reads a directory of a commit, or one file.
async fn files_of(commit: &CommitSnapshot, path: &RepoPath) -> Result<Vec<PolicyFile>, String> {
    let archived = commit.archive(path, None, LIMITS).await;
    if let Some(archived) = archived.map_err(|error| describe_error(&error))? {
        return archived
            .into_iter()
            .map(|file| policy_file(file, path))
            .collect();
    }
    let content = commit.read(path, LIMITS.bytes).await;
    let content = content.map_err(|error| describe_error(&error))?;
    let content = content.ok_or_else(|| {
        let at = commit.commit().short();
        format!(
            "the commit {at} has neither a directory nor a file `{path}`. An administrator must correct the path of \
             the policy set"
        )
    })?;
    Ok(vec![PolicyFile {
        path: path.file_name().to_owned(),
        content,
    }])
}

/// Takes a file from the archive of a directory. A link is an error: nobody would notice policies that are left out.
fn policy_file(file: ArchivedFile, top: &RepoPath) -> Result<PolicyFile, String> {
    let text = String::from_utf8_lossy(&file.path).into_owned();
    match file.mode {
        TreeMode::File | TreeMode::Executable => {}
        TreeMode::Link | TreeMode::Submodule => {
            return Err(format!(
                "`{text}` is a link. Replace it with a regular file, because policies are read without following links"
            ));
        }
    }
    let is_plain = RepoPath::new(&text).is_ok_and(|path| path.as_str() == text);
    if !is_plain || std::str::from_utf8(&file.path).is_err() {
        return Err(format!("`{text}` is not a path for a file of policies"));
    }
    let below = if top.is_root() {
        text.as_str()
    } else {
        text.strip_prefix(top.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(|| format!("`{text}` is not below `{top}`"))?
    };
    Ok(PolicyFile {
        path: below.to_owned(),
        content: file.content,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archived(path: &str, mode: TreeMode) -> ArchivedFile {
        ArchivedFile {
            path: path.into(),
            mode,
            content: b"package main".to_vec(),
        }
    }

    #[test]
    fn files_of_a_commit_lie_below_their_directory_and_are_no_links() {
        let top = RepoPath::new("policies/aws").unwrap();
        for (path, mode, expected) in [
            ("policies/aws/s3.rego", TreeMode::File, Some("s3.rego")),
            (
                "policies/aws/a/b.rego",
                TreeMode::Executable,
                Some("a/b.rego"),
            ),
            ("policies/aws/link.rego", TreeMode::Link, None),
            ("policies/aws2/s3.rego", TreeMode::File, None),
            ("policies/aws/../../x", TreeMode::File, None),
            ("/etc/passwd", TreeMode::File, None),
        ] {
            let read = policy_file(archived(path, mode), &top);
            let read = read.as_ref().ok().map(|file| file.path.as_str());
            assert_eq!(read, expected, "{path}");
        }
        let root = policy_file(archived("a.rego", TreeMode::File), &RepoPath::root());
        assert_eq!(root.unwrap().path, "a.rego");
    }

    #[test]
    fn the_branch_of_the_pull_request_is_not_trusted() {
        let branch = |name: &str| BranchName::new(name).unwrap();
        let own = branch("develop");
        assert_eq!(trusted_branch("main", Some(&own)), Ok(branch("main")));
        assert_eq!(trusted_branch("develop", None), Ok(own.clone()));
        let error = trusted_branch("develop", Some(&own)).unwrap_err();
        assert!(error.contains("comes from the branch `develop`"), "{error}");
    }

    #[tokio::test]
    async fn a_directory_of_the_server_has_to_exist() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.rego"), "package main").unwrap();
        let embedded = local(PolicyEngine::Embedded, dir.path()).await.unwrap();
        assert!(matches!(&embedded.files, PolicyFiles::Read(files) if files.len() == 1));
        let conftest = local(PolicyEngine::Conftest, dir.path()).await.unwrap();
        assert!(matches!(&conftest.files, PolicyFiles::Here(path) if path == dir.path()));
        assert_eq!(conftest.content, embedded.content);
        let absent = dir.path().join("absent");
        for engine in [PolicyEngine::Embedded, PolicyEngine::Conftest] {
            let error = local(engine, &absent).await.err().unwrap();
            assert!(error.contains("An administrator must"), "{error}");
        }
    }

    #[tokio::test]
    async fn rules_that_conftest_ignores_are_no_policies_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            "package main\ndeny contains 1 if { false }\nrequire_approval contains 1 if { true }";
        std::fs::write(dir.path().join("a.rego"), text).unwrap();
        let error = local(PolicyEngine::Conftest, dir.path()).await.err();
        assert_eq!(
            error.as_deref(),
            Some(
                "`a.rego` has a rule `require_approval`, which conftest ignores. An administrator must write \
                 `engine: embedded` for the set, or replace the rule by a `violation` with the key `require_approval`"
            )
        );
        local(PolicyEngine::Embedded, dir.path()).await.unwrap();
        // Only policies have rules.
        std::fs::rename(dir.path().join("a.rego"), dir.path().join("README.md")).unwrap();
        local(PolicyEngine::Conftest, dir.path()).await.unwrap();
    }
}
