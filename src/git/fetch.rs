//! Bringing commits into a mirror.

use std::time::Duration;

use url::Url;

use super::environment::git_to;
use super::{GitError, Mirror, RefName, classify};
use crate::model::CommitSha;
use crate::process::{Cmd, Output};
use crate::vcs::GitCredentials;

/// What to fetch, and from where.
#[derive(Clone, Debug)]
pub struct FetchRequest<'a> {
    /// URL without credentials.
    pub url: &'a str,
    /// Presented to the host of the URL when it asks.
    pub credentials: Option<&'a GitCredentials>,
    /// Refs to bring up to date under the same name: base branch and head of the pull.
    pub refs: &'a [RefName],
    /// A commit that must be there afterwards, on whatever ref.
    pub wanted: Option<&'a CommitSha>,
    /// Longest time for each exchange with the server.
    pub deadline: Duration,
}

/// Whether the wanted commit is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Head {
    /// None was asked for.
    NotAsked,
    /// It is there.
    Present,
    /// The server no longer gives it away: it was replaced by a forced push and is gone.
    Gone,
}

/// What a fetch brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Each ref asked for with its commit; `None` when the server does not have it (any more).
    pub refs: Vec<(RefName, Option<CommitSha>)>,
    /// The wanted commit.
    pub wanted: Head,
}

impl Fetched {
    /// The commit a ref has now.
    pub fn commit_of(&self, name: &RefName) -> Option<&CommitSha> {
        self.refs.iter().find(|(known, _)| known == name).and_then(|(_, commit)| commit.as_ref())
    }
}

impl Mirror {
    /// Brings refs up to date, making the mirror when there is none. A ref that the server does not have is removed
    /// here too. A wanted commit that came with no ref is asked for by its id. A damaged mirror is thrown away and
    /// fetched once more.
    pub async fn fetch(&self, request: &FetchRequest<'_>) -> Result<Fetched, GitError> {
        let url = self.check_url(request)?;
        let _writer = self.writer.lock().await;
        match self.fetch_once(&url, request).await {
            Err(GitError::Corrupt { message, .. }) => {
                tracing::warn!(repo = %self.repo, %message, "Fetching a damaged mirror anew");
                self.discard()?;
                self.fetch_once(&url, request).await
            }
            result => result,
        }
    }

    fn doing(&self) -> String {
        format!("fetch {}", self.repo)
    }

    /// Credentials in the URL would end up in argument lists and messages, so they are refused.
    fn check_url(&self, request: &FetchRequest<'_>) -> Result<Url, GitError> {
        let problem = |text: &str| GitError::other(self.doing(), text);
        let url = Url::parse(request.url).map_err(|error| problem(&format!("the URL is not valid: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(problem("the URL contains credentials; they must be configured apart from it"));
        }
        let known = matches!(url.scheme(), "https" | "http") || (url.scheme() == "file" && self.settings.allow_file);
        if !known {
            return Err(problem(&format!("`{}:` URLs are not supported, only `https:` and `http:`", url.scheme())));
        }
        let bad = |c: GitCredentials| c.username.chars().chain(c.password.expose().chars()).any(char::is_control);
        if request.credentials.cloned().is_some_and(bad) {
            return Err(problem("user name or token contains a line break or another control character"));
        }
        Ok(url)
    }

    async fn fetch_once(&self, url: &Url, request: &FetchRequest<'_>) -> Result<Fetched, GitError> {
        self.init().await?;
        let mut refs = Vec::new();
        let missing = self.fetch_refs(url, request).await?;
        for name in request.refs {
            let commit = if missing.contains(name) { self.forget(name).await? } else { self.commit_of(name).await? };
            refs.push((name.clone(), commit));
        }
        Ok(Fetched { refs, wanted: self.fetch_wanted(url, request).await? })
    }

    /// Fetches what the server has of the refs and returns those it does not have. Git names one missing ref at a time.
    async fn fetch_refs(&self, url: &Url, request: &FetchRequest<'_>) -> Result<Vec<RefName>, GitError> {
        let mut missing = Vec::new();
        let mut cleared = false;
        loop {
            let left: Vec<&RefName> = request.refs.iter().filter(|name| !missing.contains(*name)).collect();
            if left.is_empty() {
                return Ok(missing);
            }
            let specs: Vec<String> = left.iter().map(|name| format!("+{name}:{name}")).collect();
            let output = self.fetch_specs(url, request, &specs).await?;
            if output.is_success() {
                return Ok(missing);
            }
            let stderr = output.stderr.text();
            if let Some(name) = left.into_iter().find(|name| classify::missing_ref(&stderr) == Some(name.as_str())) {
                missing.push(name.clone());
            } else if classify::is_name_in_the_way(&stderr) && !cleared {
                self.clear_refs().await?;
                cleared = true;
            } else {
                return Err(self.failure(request, &output));
            }
        }
    }

    async fn fetch_wanted(&self, url: &Url, request: &FetchRequest<'_>) -> Result<Head, GitError> {
        let Some(wanted) = request.wanted else {
            return Ok(Head::NotAsked);
        };
        if self.has_commit(wanted).await? {
            return Ok(Head::Present);
        }
        let output = self.fetch_specs(url, request, &[wanted.to_string()]).await?;
        if output.is_success() && self.has_commit(wanted).await? {
            return Ok(Head::Present);
        }
        let gone = output.is_success() || classify::is_refused_commit(&output.stderr.text());
        if gone { Ok(Head::Gone) } else { Err(self.failure(request, &output)) }
    }

    async fn fetch_specs(&self, url: &Url, request: &FetchRequest<'_>, specs: &[String]) -> Result<Output, GitError> {
        let cmd = self.fetch_cmd(url, request).operands([request.url]).operands(specs);
        self.call(&self.doing(), &cmd).await
    }

    fn fetch_cmd(&self, url: &Url, request: &FetchRequest<'_>) -> Cmd {
        git_to(&self.settings, self.dir(), url, request.credentials).deadline(request.deadline).args([
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
        ])
    }

    fn failure(&self, request: &FetchRequest<'_>, output: &Output) -> GitError {
        GitError::from_output(self.doing(), output, request.credentials.map(|c| c.password.expose()))
    }

    /// Removes a ref that the server does not have.
    async fn forget(&self, name: &RefName) -> Result<Option<CommitSha>, GitError> {
        let cmd = self.git().args(["update-ref", "--no-deref", "-d"]).operands([name.as_str()]);
        self.run(&self.doing(), cmd).await.map(|_| None)
    }

    /// Removes all refs. Checkouts are detached and do not mind; the next fetch brings back what it needs.
    async fn clear_refs(&self) -> Result<(), GitError> {
        let list = self.run(&self.doing(), self.git().args(["for-each-ref", "--format=%(refname)"])).await?;
        for name in list.stdout.text().lines().filter_map(|line| RefName::new(line).ok()) {
            self.forget(&name).await?;
        }
        Ok(())
    }
}
