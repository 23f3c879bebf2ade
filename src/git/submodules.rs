//! Fetches the submodules of a commit (`--checkout-submodules`).
//!
//! Files of a pull list the submodules and their URLs. Git's own submodule commands are not used, because they obey
//! too many settings in those files. Only name, path and URL of `.gitmodules` count here. Each submodule is fetched
//! without history into a repository inside the mirror of its parent, with the credentials of the parent. So a
//! submodule cannot read what another repository's mirror holds with better credentials. Number, depth and size of
//! submodules are limited.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use url::Url;

use super::fetch::FETCH;
use super::mirror::remove_all;
use super::remote::Checked;
use super::{
    GitError, GitSettings, Mirror, MirrorLocks, Remote, classify, objects, place, submodule_url,
};
use crate::model::{CommitSha, RepoId, RepoPath};

/// Maximum number of submodules of one checkout, including nested ones.
const MAX_COUNT: usize = 50;
/// Maximum nesting depth of submodules.
const MAX_DEPTH: usize = 4;
/// Maximum size of `.gitmodules` in bytes.
const MAX_LIST: u64 = 256 * 1024;
/// Maximum size of one submodule repository in bytes.
const MAX_BYTES: u64 = 2 << 30;

/// Options that forbid redirects, so that git fetches exactly the admitted repository. A forge redirects a renamed
/// repository to its new name, which may belong to another owner.
const STAY: [&str; 2] = ["-c", "http.followRedirects=false"];

/// Submodule that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submodule {
    /// Path of the submodule in the checkout.
    pub path: RepoPath,
    pub repo: RepoId,
    pub commit: CommitSha,
    /// Repository of the submodule on this disk.
    pub(super) dir: PathBuf,
}

/// Decision about fetching a repository as a submodule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum SubmoduleAdmission {
    /// The repository may be fetched.
    Admitted,
    /// The repository may not be fetched. The text gives the reason and the way out.
    Refused(String),
    /// The decision is not possible at this moment, so the repository is not fetched. The text gives the reason.
    Unknown(String),
}

/// Decides which repositories may be fetched as submodules.
#[async_trait]
pub trait SubmoduleRules: Send + Sync {
    /// Returns the decision for a repository. `by_owner` is true if the fetch would use a credential of the parent's
    /// owner instead of the server's own.
    async fn admission(&self, repo: &RepoId, by_owner: bool) -> SubmoduleAdmission;
}

/// Submodule before it is fetched.
struct Named {
    path: RepoPath,
    url: String,
    commit: CommitSha,
}

/// Repository whose submodules are listed.
struct Parent {
    mirror: Mirror,
    commit: CommitSha,
    url: Url,
    /// Path of its checkout.
    path: RepoPath,
    depth: usize,
}

/// Returns the path of the file that lists the submodules of a repository.
fn list_file() -> RepoPath {
    RepoPath::new(".gitmodules").expect("a plain name is a path")
}

impl Mirror {
    /// Fetches the missing submodules of a commit, including nested ones, as far as the rules admit them. The rules
    /// also apply to submodules that are present. The caller must ensure that nothing else does so for this mirror at
    /// the same time.
    pub async fn bring_submodules(
        &self,
        remote: &Remote<'_>,
        commit: &CommitSha,
        rules: &dyn SubmoduleRules,
    ) -> Result<Vec<Submodule>, GitError> {
        let doing = format!("find the submodules of {}", self.repo);
        let url = self.check(&doing, remote)?.into_url();
        let top = Parent {
            mirror: self.clone(),
            commit: commit.clone(),
            url,
            path: RepoPath::root(),
            depth: 0,
        };
        let (mut todo, mut found, mut shown) = (VecDeque::from([top]), Vec::new(), BTreeSet::new());
        while let Some(parent) = todo.pop_front() {
            for named in parent
                .mirror
                .named_submodules(&doing, &parent.commit)
                .await?
            {
                let path = parent
                    .path
                    .join(named.path.as_str())
                    .map_err(|error| GitError::other(&doing, error))?;
                let doing = format!("check out the submodule `{path}` of {}", self.repo);
                if found.len() == MAX_COUNT || parent.depth == MAX_DEPTH {
                    let limit = format!(
                        "there are more than {MAX_COUNT} submodules, or they are nested more than {MAX_DEPTH} deep"
                    );
                    return Err(refused(doing, &limit));
                }
                let url = submodule_url::resolve(&parent.url, &named.url)
                    .map_err(|error| refused(&doing, &error))?;
                let repo = self
                    .repo_at(&url)
                    .ok_or_else(|| refused(&doing, &NO_REPOSITORY))?;
                admit(&doing, remote, &repo, rules).await?;
                let mirror = self.submodule(&repo);
                let is_known = !by_owner(remote) || !shown.insert(repo.clone());
                mirror
                    .bring_commit(
                        &doing,
                        &Remote {
                            url: url.as_str(),
                            ..*remote
                        },
                        &named.commit,
                        is_known,
                    )
                    .await?;
                found.push(Submodule {
                    path: path.clone(),
                    repo,
                    commit: named.commit.clone(),
                    dir: mirror.dir().to_owned(),
                });
                todo.push_back(Parent {
                    mirror,
                    commit: named.commit,
                    url,
                    path,
                    depth: parent.depth + 1,
                });
            }
        }
        Ok(found)
    }

    /// Returns true if a commit in the mirror has a list of submodules.
    pub async fn has_submodules(&self, commit: &CommitSha) -> Result<bool, GitError> {
        self.is_tracked(commit, &list_file()).await
    }

    /// Returns the submodules that a commit names. A submodule without an entry in `.gitmodules` stays empty, as with
    /// git.
    async fn named_submodules(
        &self,
        doing: &str,
        commit: &CommitSha,
    ) -> Result<Vec<Named>, GitError> {
        let Some(text) = self.read(commit, &list_file(), MAX_LIST).await? else {
            return Ok(Vec::new());
        };
        let cmd = self
            .git()
            .args(["config", "--file", "-", "--no-includes", "--null", "--list"])
            .input(text);
        let output = self.run(doing, cmd).await?;
        let mut urls = urls_by_path(&output.stdout.bytes);
        let listing = self.commit_listing(doing, commit).await?;
        let links = listing
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_submodule());
        let named = links.filter_map(|(path, entry)| {
            let path = objects::path_of(path)?;
            Some(Named {
                url: urls.remove(&path)?,
                path,
                commit: CommitSha::new(&entry.id.to_string()).ok()?,
            })
        });
        Ok(named.collect())
    }

    /// Returns the repository of this forge at a URL, or `None` if the URL does not name one.
    fn repo_at(&self, url: &Url) -> Option<RepoId> {
        let path = url.path().trim_matches('/');
        RepoId::new(
            self.repo.host().clone(),
            path.strip_suffix(".git").unwrap_or(path),
        )
        .ok()
    }

    /// Returns the mirror of a submodule inside this mirror.
    fn submodule(&self, repo: &RepoId) -> Self {
        let settings = GitSettings {
            filter: None,
            ..(*self.settings).clone()
        };
        let dir = place::submodule(&place::mirror(&self.settings.data_dir, &self.repo), repo);
        Self::new(Arc::new(settings), repo, Arc::new(MirrorLocks::default())).at(dir)
    }

    /// Fetches the files of one commit, without its history, and keeps them under a ref. Unless the credential is
    /// known to have access (`is_known`), the forge is asked even if the files are present: another credential may
    /// have brought them.
    async fn bring_commit(
        &self,
        doing: &str,
        remote: &Remote<'_>,
        commit: &CommitSha,
        is_known: bool,
    ) -> Result<(), GitError> {
        let remote = self.check(doing, remote)?;
        if self.is_damaged() {
            remove_all(self.dir()).map_err(GitError::from_io(doing))?;
        }
        if self.has_commit_with_files(commit).await? {
            if !is_known {
                let cmd = self
                    .git_to(&remote)
                    .args(STAY)
                    .args(["ls-remote", "--quiet"]);
                let output = self
                    .call(doing, &cmd.operands([remote.url(), "HEAD"]))
                    .await?;
                if !output.is_success() {
                    return Err(self.fetch_failure(doing, commit, &remote, &output));
                }
            }
            return self.note_commit(commit).map_err(GitError::from_io(doing));
        }
        self.init().await?;
        let spec = format!("+{commit}:refs/lockkeeper/{commit}");
        let cmd = self.git_to(&remote).args(STAY).args(FETCH).arg("--depth=1");
        let cmd = cmd.operands([remote.url().to_owned(), spec]);
        let output = self.call(doing, &cmd).await?;
        if output.is_success() {
            self.check_size(doing).await?;
            return self.note_commit(commit).map_err(GitError::from_io(doing));
        }
        Err(self.fetch_failure(doing, commit, &remote, &output))
    }

    fn fetch_failure(
        &self,
        doing: &str,
        commit: &CommitSha,
        remote: &Checked<'_>,
        output: &crate::process::CallOutput,
    ) -> GitError {
        if classify::is_refused_commit(&output.stderr.text()) {
            let (repo, commit) = (&self.repo, commit.short());
            let why = format!(
                "{repo} does not have the commit `{commit}` (any more). Push it there, or select another commit here"
            );
            return GitError::other(doing, why);
        }
        if classify::is_redirect(&output.stderr.text()) {
            let why = format!(
                "the forge redirects {} to another address. The repository may have been renamed",
                self.repo
            );
            return refused(doing, &why);
        }
        let failure = remote.failure(doing, output);
        if let GitError::AuthFailed { doing, message } | GitError::NotFound { doing, message } =
            failure
        {
            let (repo, said) = (&self.repo, message.replace('\n', " "));
            let why = format!(
                "the account or App that reads this repository cannot read {repo} ({said}). Give it access to {repo}, \
                 fix `.gitmodules`, or ask an administrator to turn off `--checkout-submodules`"
            );
            return GitError::other(doing, why);
        }
        failure
    }

    async fn check_size(&self, doing: &str) -> Result<(), GitError> {
        let size = self.size().await.map_err(GitError::from_io(doing))?;
        if size <= MAX_BYTES {
            return Ok(());
        }
        remove_all(self.dir()).map_err(GitError::from_io(doing))?;
        Err(refused(
            doing,
            &format!("it has more than {} GiB", MAX_BYTES >> 30),
        ))
    }
}

const NO_REPOSITORY: &str = "its URL does not lead to a repository of the forge";

/// Appends the way out to a refusal.
fn refused(doing: impl Into<String>, why: &impl std::fmt::Display) -> GitError {
    GitError::other(
        doing,
        format!(
            "{why}. Fix `.gitmodules`, or ask an administrator to turn off `--checkout-submodules`"
        ),
    )
}

/// Returns true if the credential comes from the parent's owner.
fn by_owner(remote: &Remote<'_>) -> bool {
    remote
        .credentials
        .is_some_and(|credentials| credentials.of_owner)
}

async fn admit(
    doing: &str,
    remote: &Remote<'_>,
    repo: &RepoId,
    rules: &dyn SubmoduleRules,
) -> Result<(), GitError> {
    match rules.admission(repo, by_owner(remote)).await {
        SubmoduleAdmission::Admitted => Ok(()),
        SubmoduleAdmission::Refused(why) => Err(GitError::other(doing, why)),
        SubmoduleAdmission::Unknown(message) => Err(GitError::Unreachable {
            doing: doing.to_owned(),
            message,
        }),
    }
}

/// Parses `submodule.NAME.path LF a/b NUL submodule.NAME.url LF ../b.git NUL`.
fn urls_by_path(list: &[u8]) -> BTreeMap<RepoPath, String> {
    let mut by_name: BTreeMap<&str, (Option<RepoPath>, Option<&str>)> = BTreeMap::new();
    for entry in list
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok())
    {
        let Some((key, value)) = entry.split_once('\n') else {
            continue;
        };
        let Some((name, what)) = key
            .strip_prefix("submodule.")
            .and_then(|key| key.rsplit_once('.'))
        else {
            continue;
        };
        let one = by_name.entry(name).or_default();
        match what {
            "path" => one.0 = RepoPath::new(value).ok().filter(|path| !path.is_root()),
            "url" => one.1 = Some(value),
            _ => {}
        }
    }
    by_name
        .into_values()
        .filter_map(|(path, url)| Some((path?, url?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_path_and_url_count() {
        let list = b"submodule.a.b.path\nlib/a\0submodule.a.b.url\n../a.git\0submodule.a.b.update\n!rm -rf /\0\
                     submodule.c.url\n../c\0core.hookspath\nx\0submodule.d.path\n../up\0submodule.d.url\n../d\0submodule.e.path\0";
        let urls = urls_by_path(list);
        let told: Vec<_> = urls
            .iter()
            .map(|(path, url)| format!("{path} {url}"))
            .collect();
        assert_eq!(told, ["lib/a ../a.git"]);
    }
}
