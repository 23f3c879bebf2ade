//! Fetches commits and refs into a mirror.

use std::time::Duration;

use super::refused::why;
use super::remote::Checked;
use super::{GitError, Mirror, RefName, Remote, classify};
use crate::forges::GitCredentials;
use crate::model::CommitSha;
use crate::process::{CallOutput, Cmd};

/// Arguments of a fetch that brings objects and the named refs, and does nothing else.
pub(super) const FETCH: [&str; 6] = [
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-recurse-submodules",
    "--no-auto-maintenance",
];

/// Refs and commit to fetch, and their remote.
#[derive(Clone, Debug)]
pub struct FetchRequest<'a> {
    pub url: &'a str,
    /// Credentials for the host of the URL, presented when it asks.
    pub credentials: Option<&'a GitCredentials>,
    /// Refs to update under the same name: base branch and head of the pull.
    pub refs: &'a [RefName],
    /// Commit that must be present afterwards, on any ref.
    pub wanted: Option<&'a CommitSha>,
    /// Longest time for each exchange with the server.
    pub deadline: Duration,
}

/// Result of fetching the wanted commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Head {
    /// The request named no commit.
    NotAsked,
    /// The mirror has the commit.
    Present,
    /// The server no longer offers the commit: a forced push replaced it.
    Gone,
    /// Git refuses the commit; the text is the message of `fsck`.
    Refused(String),
}

/// Result of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Requested refs with their commits; `None` when the server does not have the ref (any more).
    pub refs: Vec<(RefName, Option<CommitSha>)>,
    /// Refs that git refused, with the message of `fsck`. They are not in the mirror.
    pub refused: Vec<(RefName, String)>,
    /// State of the wanted commit.
    pub wanted: Head,
}

/// Refs that a fetch did not bring.
#[derive(Default)]
struct MissingRefs {
    /// Refs that the server does not have.
    missing: Vec<RefName>,
    /// Refs that git refused, each with the reason.
    refused: Vec<(RefName, String)>,
}

impl<'a> FetchRequest<'a> {
    fn remote(&self) -> Remote<'a> {
        Remote {
            url: self.url,
            credentials: self.credentials,
            deadline: self.deadline,
        }
    }
}

impl Fetched {
    /// Returns the commit that a ref has now.
    pub fn commit_of(&self, name: &RefName) -> Option<&CommitSha> {
        self.refs
            .iter()
            .find(|(known, _)| known == name)
            .and_then(|(_, commit)| commit.as_ref())
    }
}

impl Mirror {
    /// Updates refs, and creates the mirror when there is none. Removes a ref that the server does not have or that
    /// git refuses. Requests a wanted commit by its id when no ref brought it. For a partial mirror, it also fetches
    /// the missing objects of these commits and of their merge bases. A fresh mirror with these refs replaces a
    /// damaged one, which stays readable until then.
    pub async fn fetch(&self, request: &FetchRequest<'_>) -> Result<Fetched, GitError> {
        let remote = self.check(&self.doing(), &request.remote())?;
        let _transfer = self.locks.transfer.lock().await;
        match self.fetch_once(&remote, request).await {
            Err(GitError::Corrupt { message, .. } | GitError::Altered { message, .. }) => {
                tracing::warn!(repo = %self.repo, %message, "Replacing a damaged mirror with a new fetch");
                self.replace(async |fresh| fresh.fetch_once(&remote, request).await)
                    .await
            }
            result => result,
        }
    }

    pub(super) fn doing(&self) -> String {
        format!("fetch {}", self.repo)
    }

    async fn fetch_once(
        &self,
        remote: &Checked<'_>,
        request: &FetchRequest<'_>,
    ) -> Result<Fetched, GitError> {
        self.check_damage(&self.doing())?;
        self.init().await?;
        let mut refs = Vec::new();
        let MissingRefs { missing, refused } = self.fetch_refs(remote, request).await?;
        for name in request.refs {
            let is_here =
                !missing.contains(name) && refused.iter().all(|(refused, _)| refused != name);
            let commit = if is_here {
                self.commit_of(name).await?
            } else {
                self.forget(name).await?
            };
            refs.push((name.clone(), commit));
        }
        let wanted = self.fetch_wanted(remote, request).await?;
        let mut commits: Vec<&CommitSha> = refs
            .iter()
            .filter_map(|(_, commit)| commit.as_ref())
            .collect();
        commits.extend(request.wanted.filter(|_| wanted == Head::Present));
        self.complete(remote, &commits).await?;
        Ok(Fetched {
            refs,
            refused,
            wanted,
        })
    }

    /// Fetches the refs that the server has and returns the refs that it did not bring. Git names one missing ref at
    /// a time. It refuses all refs if the objects of one are bad; then the refs are fetched in halves.
    async fn fetch_refs(
        &self,
        remote: &Checked<'_>,
        request: &FetchRequest<'_>,
    ) -> Result<MissingRefs, GitError> {
        let mut not_brought = MissingRefs::default();
        let mut cleared = false;
        let mut open: Vec<Vec<&RefName>> = vec![request.refs.iter().collect()];
        while let Some(mut group) = open.pop() {
            group.retain(|name| !not_brought.missing.contains(*name));
            if group.is_empty() {
                continue;
            }
            let specs: Vec<String> = group.iter().map(|name| format!("+{name}:{name}")).collect();
            let output = self.fetch_specs(remote, &specs).await?;
            if output.is_success() {
                continue;
            }
            let stderr = output.stderr.text();
            if let Some(name) = group
                .iter()
                .find(|name| classify::missing_ref(&stderr) == Some(name.as_str()))
            {
                not_brought.missing.push((*name).clone());
                open.push(group);
            } else if classify::is_name_in_the_way(&stderr) && !cleared {
                self.clear_refs().await?;
                (open, cleared) = (vec![request.refs.iter().collect()], true);
            } else if !classify::is_fsck(&stderr) {
                return Err(remote.failure(&self.doing(), &output));
            } else if let [name] = group[..] {
                not_brought
                    .refused
                    .push((name.clone(), why(&remote.failure(&self.doing(), &output))));
            } else {
                let (one, other) = group.split_at(group.len() / 2);
                open.extend([one.to_vec(), other.to_vec()]);
            }
        }
        Ok(not_brought)
    }

    async fn fetch_wanted(
        &self,
        remote: &Checked<'_>,
        request: &FetchRequest<'_>,
    ) -> Result<Head, GitError> {
        let Some(wanted) = request.wanted else {
            return Ok(Head::NotAsked);
        };
        if self.has_commit(wanted).await? {
            return Ok(Head::Present);
        }
        let output = self.fetch_specs(remote, &[wanted.to_string()]).await?;
        if output.is_success() && self.has_commit(wanted).await? {
            return Ok(Head::Present);
        }
        if classify::is_fsck(&output.stderr.text()) {
            return Ok(Head::Refused(why(&remote.failure(&self.doing(), &output))));
        }
        let gone = output.is_success() || classify::is_refused_commit(&output.stderr.text());
        if gone {
            Ok(Head::Gone)
        } else {
            Err(remote.failure(&self.doing(), &output))
        }
    }

    async fn fetch_specs(
        &self,
        remote: &Checked<'_>,
        specs: &[String],
    ) -> Result<CallOutput, GitError> {
        let cmd = self
            .fetch_cmd(remote)
            .operands([remote.name(self)])
            .operands(specs);
        self.call(&self.doing(), &cmd).await
    }

    pub(super) fn fetch_cmd(&self, remote: &Checked<'_>) -> Cmd {
        self.git_to(remote).args(FETCH)
    }

    /// Removes a ref that the server does not have.
    async fn forget(&self, name: &RefName) -> Result<Option<CommitSha>, GitError> {
        let cmd = self
            .git()
            .args(["update-ref", "--no-deref", "-d"])
            .operands([name.as_str()]);
        self.run(&self.doing(), cmd).await.map(|_| None)
    }

    /// Removes all refs. Detached checkouts are not affected; the next fetch restores the refs that it needs.
    async fn clear_refs(&self) -> Result<(), GitError> {
        let list = self
            .run(
                &self.doing(),
                self.git().args(["for-each-ref", "--format=%(refname)"]),
            )
            .await?;
        for name in list
            .stdout
            .text()
            .lines()
            .filter_map(|line| RefName::new(line).ok())
        {
            self.forget(&name).await?;
        }
        Ok(())
    }
}
