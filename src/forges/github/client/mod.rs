//! Implements [`Forge`] with GitHub's REST API.
//!
//! octocrab provides connections, TLS (rustls with the system's certificates) and the headers GitHub requires.
//! Lockkeeper does the rest itself. It reads answers into its own slim types, because octocrab's models refuse
//! answers without the fields that GitHub Enterprise leaves out. It classifies failures for the caller, limits the
//! size of every answer, and caches tokens by [`Clock`]. It repeats reads after temporary failures. It never repeats
//! writes, because only the caller can find out whether the first one had an effect.

mod annotations;
mod answers;
mod app;
mod auth;
mod call;
mod checks;
mod classify;
mod credentials;
mod endpoints;
mod installations;
mod listing;
mod merge;
mod merging;
mod pages;
mod permissions;
mod reviews;
mod rules;
mod teams;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, SubsecRound, Utc};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::OnceCell;

use self::answers::{CommentAnswer, PullAnswer, RepoAnswer};
use self::auth::ClientCredentials;
use self::call::{Call, RequestFailure};
use self::credentials::CredentialResolver;
use self::pages::Pages;
use self::wire::Wire;
use super::super::{
    AnnotateAnswer, Capabilities, Forge, ForgeError, ForgeFeatures, GitCredentials, HeadSource,
    MergeAnswer, OpenPulls, PageQuery, PostedComment, RateGates, RepoAccess, RepoFacts,
    WritePermit,
};
use super::GitHubWebhook;
use crate::clock::Clock;
use crate::config::server::RepoAllowlist;
use crate::model::{
    AnnotationSet, Approval, BranchName, CommentId, CommitSha, CommitStatus, HostName,
    IgnoredStatuses, MergeMethod, Mergeability, Pull, PullRef, RepoId, StatusTarget,
};
use crate::secret::Secret;
use crate::telemetry::Metrics;

pub use auth::{GitHubAuth, TokenSource};
pub use endpoints::{GitHubEndpoints, InvalidEndpoint};
pub(super) use installations::Installations;
pub use wire::Timeouts;

/// Maximum size of a comment in bytes. GitHub accepts this many characters, which that many bytes never exceed.
const MAX_COMMENT: usize = 65_536;
/// Maximum length of a status description in characters (GitHub REST: "Create a commit status").
const MAX_DESCRIPTION: usize = 140;
/// User name that GitHub accepts with every token.
const USER_OF_TOKENS: &str = "x-access-token";

/// Reason why a connection to GitHub cannot even be prepared.
#[derive(Debug, thiserror::Error)]
pub enum GitHubSetupError {
    /// The key of the App is not valid.
    #[error(
        "the key of the GitHub App is not an RSA private key in PEM ({0}). Download one from the settings of the App"
    )]
    AppKey(String),
    /// The HTTP client cannot be created, usually because this machine has no usable certificates of authorities.
    #[error(
        "cannot create the HTTP client ({0}). Check that the certificates of the system (ca-certificates) are installed"
    )]
    Client(String),
}

/// Connection to one GitHub.
pub struct GitHub {
    endpoints: GitHubEndpoints,
    wire: Wire,
    credentials: CredentialResolver,
    login: OnceCell<String>,
}

impl GitHub {
    /// Prepares a connection and sends nothing yet. Must be called inside a Tokio runtime, which octocrab needs.
    pub fn new(
        endpoints: GitHubEndpoints,
        auth: GitHubAuth,
        clock: Arc<dyn Clock>,
        timeouts: Timeouts,
    ) -> Result<Self, GitHubSetupError> {
        let wire = Wire::new(&endpoints, clock, timeouts)?;
        Ok(Self {
            wire,
            endpoints,
            credentials: CredentialResolver::new(ClientCredentials::new(auth)?),
            login: OnceCell::new(),
        })
    }

    /// Counts the requests of the connection in the metrics.
    #[must_use]
    pub fn counting(mut self, metrics: Metrics) -> Self {
        self.wire.metrics = metrics;
        self
    }

    /// Uses the credentials that owners gave for their repositories, if there are any. SSH keys are written below
    /// `logins` while git works with them. That directory is emptied when the server starts.
    #[must_use]
    pub fn with_access(mut self, access: Arc<dyn RepoAccess>, logins: PathBuf) -> Self {
        self.credentials.set_access(access, logins);
        self
    }

    /// Shares the gates with other connections: where GitHub asks one of them to wait, all do. Without this call the
    /// connection has its own gates.
    #[must_use]
    pub fn with_gates(mut self, gates: Arc<dyn RateGates>) -> Self {
        self.wire.gates = gates;
        self
    }

    /// Replaces the pause between two writes that GitHub asks for.
    #[must_use]
    pub fn with_pause_between_writes(mut self, pause: Duration) -> Self {
        self.wire.between_writes = pause;
        self
    }

    /// Returns the webhook of this host. From the deliveries about served repositories, the connection learns their
    /// installations.
    pub fn webhook(&self, secrets: Vec<Secret>, served: RepoAllowlist) -> GitHubWebhook {
        let webhook = GitHubWebhook::new(self.host().clone(), secrets);
        match self.credentials.installations() {
            Some(installations) => webhook.teaching(installations, served),
            None => webhook,
        }
    }

    async fn pull_answer(&self, at: &PullRef) -> Result<PullAnswer, RequestFailure> {
        let call = Call::get(
            format!("{}/pulls/{}", repo_path(&at.repo), at.subject),
            pull_words(at),
        );
        let answer = self.credentials.send(&self.wire, &at.repo, &call).await?;
        answer.json(&self.wire.host, &call.what)
    }

    async fn repository_facts(&self, repo: &RepoId, call: Call) -> Result<RepoFacts, ForgeError> {
        let answer = self.credentials.send(&self.wire, repo, &call).await?;
        let answer: RepoAnswer = answer.json(&self.wire.host, &call.what)?;
        let facts = answer.into_facts(&self.wire.host);
        facts.map_err(|message| {
            RequestFailure::rejected(&self.wire.host, &call.what, &message).into()
        })
    }

    /// Returns every login under which Lockkeeper appears in a repository.
    async fn own_logins(&self, repo: &RepoId) -> Result<Vec<String>, RequestFailure> {
        let mut logins = vec![self.known_login().await?.to_owned()];
        logins.extend(self.credentials.configured_login().map(str::to_owned));
        logins.extend(self.credentials.login_for(&self.wire, repo).await?);
        Ok(logins)
    }

    async fn known_login(&self) -> Result<&str, RequestFailure> {
        let login = self
            .login
            .get_or_try_init(|| self.credentials.own_login(&self.wire))
            .await?;
        Ok(login)
    }
}

#[async_trait]
impl Forge for GitHub {
    fn host(&self) -> &HostName {
        self.endpoints.host()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            comment_bytes: MAX_COMMENT,
        }
    }

    async fn login(&self) -> Result<String, ForgeError> {
        Ok(self.known_login().await?.to_owned())
    }

    async fn missing(&self, uses: ForgeFeatures) -> Result<Vec<String>, ForgeError> {
        Ok(self.credentials.missing(&self.wire, uses).await?)
    }

    fn renew_access(&self, repo: &RepoId) {
        self.credentials.doubt(repo);
    }

    async fn pull(&self, at: &PullRef) -> Result<Pull, ForgeError> {
        let pull = self.pull_answer(at).await?.into_pull(at);
        pull.map_err(|message| {
            RequestFailure::rejected(&self.wire.host, &pull_words(at), &message).into()
        })
    }

    async fn repository(&self, repo: &RepoId) -> Result<RepoFacts, ForgeError> {
        let call = Call::get(
            repo_path(repo),
            format!("the repository {}", repo.full_name()),
        )
        .following();
        self.repository_facts(repo, call).await
    }

    async fn repository_by_id(&self, id: u64, known_as: &RepoId) -> Result<RepoFacts, ForgeError> {
        let call = Call::get(
            format!("/repositories/{id}"),
            format!("the repository with the identifier {id}"),
        );
        self.repository_facts(known_as, call).await
    }

    async fn branch_tip(
        &self,
        repo: &RepoId,
        branch: &BranchName,
    ) -> Result<Option<CommitSha>, ForgeError> {
        #[derive(Deserialize)]
        struct ResponseBody {
            name: String,
            commit: Tip,
        }
        #[derive(Deserialize)]
        struct Tip {
            sha: String,
        }
        let path = format!("{}/branches/{}", repo_path(repo), segment(branch.as_str()));
        let call = Call::get(
            path,
            format!("the branch `{branch}` of {}", repo.full_name()),
        )
        .following();
        match self
            .credentials
            .send(&self.wire, repo, &call)
            .await
            .map_err(ForgeError::from)
        {
            // GitHub redirects a request for a renamed branch to the new one.
            Ok(answer) => {
                let body: ResponseBody = answer.json(&self.wire.host, &call.what)?;
                if body.name != branch.as_str() {
                    return Ok(None);
                }
                CommitSha::new(&body.commit.sha).map(Some).map_err(|error| {
                    RequestFailure::rejected(&self.wire.host, &call.what, &error.to_string()).into()
                })
            }
            Err(ForgeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn open_pulls(
        &self,
        repo: &RepoId,
        page: PageQuery<'_>,
    ) -> Result<OpenPulls, ForgeError> {
        Ok(listing::open_pulls(self, repo, page).await?)
    }

    async fn approval(&self, at: &PullRef) -> Result<Approval, ForgeError> {
        Ok(reviews::approval(self, at).await?)
    }

    async fn may_write(&self, repo: &RepoId, login: &str) -> Result<bool, ForgeError> {
        Ok(reviews::may_write(self, repo, login).await?)
    }

    async fn is_public(&self, repo: &RepoId) -> Result<bool, ForgeError> {
        let call = Call::get(
            repo_path(repo),
            format!("the visibility of {}", repo.full_name()),
        );
        let answer = self
            .credentials
            .send(&self.wire, repo, &call)
            .await
            .map_err(ForgeError::from)?;
        Ok(answer
            .json::<RepoAnswer>(&self.wire.host, &call.what)
            .map_err(ForgeError::from)?
            .is_public())
    }

    async fn mergeability(
        &self,
        at: &PullRef,
        ignored: &IgnoredStatuses<'_>,
    ) -> Result<Mergeability, ForgeError> {
        Ok(merging::mergeability(self, at, ignored).await?)
    }

    async fn merge_methods(&self, repo: &RepoId) -> Result<Vec<MergeMethod>, ForgeError> {
        Ok(merge::methods(self, repo).await?)
    }

    async fn merge(
        &self,
        at: &PullRef,
        head: &CommitSha,
        method: MergeMethod,
        permit: &WritePermit,
    ) -> Result<MergeAnswer, ForgeError> {
        Ok(merge::merge(self, at, (head, method), permit).await?)
    }

    async fn comment_post(
        &self,
        at: &PullRef,
        body: &str,
        permit: &WritePermit,
    ) -> Result<PostedComment, ForgeError> {
        let call = Call::post(
            comments_path(at),
            json!({ "body": body }),
            format!("a comment on {}", short(at)),
        );
        let call = call.with_permit(permit);
        let answer = self.credentials.send(&self.wire, &at.repo, &call).await?;
        Ok(answer
            .json::<CommentAnswer>(&self.wire.host, &call.what)?
            .into())
    }

    async fn comment_delete(
        &self,
        at: &PullRef,
        comment: &CommentId,
        permit: &WritePermit,
    ) -> Result<(), ForgeError> {
        let repo = &at.repo;
        let path = format!(
            "{}/issues/comments/{}",
            repo_path(repo),
            segment(comment.as_str())
        );
        let what = format!("the removal of comment {comment} in {}", repo.full_name());
        match self
            .credentials
            .send(
                &self.wire,
                repo,
                &Call::delete(path, what).with_permit(permit),
            )
            .await
        {
            Ok(_)
            | Err(RequestFailure {
                error: ForgeError::NotFound { .. },
                ..
            }) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn comment_find(
        &self,
        at: &PullRef,
        marker: &str,
        since: DateTime<Utc>,
    ) -> Result<Vec<PostedComment>, ForgeError> {
        let login = match self.credentials.login_for(&self.wire, &at.repo).await? {
            Some(login) => login,
            None => self.known_login().await?.to_owned(),
        };
        // GitHub stores whole seconds, so a comment can seem older than the moment just before it was written.
        let since = since.trunc_subsecs(0);
        let query = format!(
            "since={}&",
            since.to_rfc3339_opts(SecondsFormat::Secs, true)
        );
        let what = format!("the comments of {}", short(at));
        let mut pages = Pages::new(self, &at.repo, &comments_path(at), &query, what);
        let mut found = Vec::new();
        while let Some(page) = pages.next::<CommentAnswer>().await? {
            let ours = page
                .into_iter()
                .filter(|comment| comment.is_ours(&login, marker, since));
            found.extend(ours);
        }
        // GitHub gives later comments greater numbers.
        found.sort_unstable_by_key(|comment| comment.id);
        Ok(found.into_iter().map(PostedComment::from).collect())
    }

    async fn comment_react(
        &self,
        at: &PullRef,
        comment: &CommentId,
        content: &str,
    ) -> Result<(), ForgeError> {
        let repo = &at.repo;
        let path = format!(
            "{}/issues/comments/{}/reactions",
            repo_path(repo),
            segment(comment.as_str())
        );
        let what = format!("a reaction to comment {comment} in {}", repo.full_name());
        self.credentials
            .send(
                &self.wire,
                repo,
                &Call::post(path, json!({ "content": content }), what),
            )
            .await?;
        Ok(())
    }

    async fn status_set(
        &self,
        on: &StatusTarget,
        status: &CommitStatus,
        permit: &WritePermit,
    ) -> Result<(), ForgeError> {
        let StatusTarget { repo, commit, .. } = on;
        let body = json!({
            "state": status.state,
            "context": status.context,
            "description": cut_chars(&status.description, MAX_DESCRIPTION),
            "target_url": status.url,
        });
        let what = format!(
            "the status `{}` of {}@{}",
            status.context,
            repo.full_name(),
            commit.short()
        );
        let call = Call::post(format!("{}/statuses/{commit}", repo_path(repo)), body, what)
            .with_permit(permit);
        self.credentials.send(&self.wire, repo, &call).await?;
        Ok(())
    }

    async fn annotate(
        &self,
        on: &StatusTarget,
        annotations: &AnnotationSet,
        permit: &WritePermit,
    ) -> Result<AnnotateAnswer, ForgeError> {
        Ok(annotations::annotate(self, on, annotations, permit).await?)
    }

    async fn team_has(&self, repo: &RepoId, team: &str, login: &str) -> Result<bool, ForgeError> {
        Ok(teams::has(self, repo, team, login).await?)
    }

    async fn team_list(&self, repo: &RepoId, most: usize) -> Result<Vec<String>, ForgeError> {
        Ok(teams::list(self, repo, most).await?)
    }

    fn clone_url(&self, repo: &RepoId) -> String {
        self.endpoints.clone_url(repo)
    }

    async fn head_source(&self, at: &PullRef) -> Result<HeadSource, ForgeError> {
        Ok(HeadSource::Ref(format!("refs/pull/{}/head", at.subject)))
    }

    async fn module_credentials(
        &self,
        repo: &RepoId,
    ) -> Result<Option<GitCredentials>, ForgeError> {
        Ok(self.credentials.git_to_read(&self.wire, repo).await?)
    }

    async fn git_credentials(&self, repo: &RepoId) -> Result<GitCredentials, ForgeError> {
        Ok(self.credentials.git(&self.wire, repo).await?)
    }
}

fn repo_path(repo: &RepoId) -> String {
    format!("/repos/{}", url_segments(repo.full_name()))
}

fn comments_path(at: &PullRef) -> String {
    format!("{}/issues/{}/comments", repo_path(&at.repo), at.subject)
}

/// Returns `acme/infra#12`, because the surrounding error names the host.
fn short(at: &PullRef) -> String {
    format!("{}#{}", at.repo.full_name(), at.subject)
}

fn pull_words(at: &PullRef) -> String {
    format!("pull request {}", short(at))
}

/// Encodes a name with slashes as part of a URL.
fn url_segments(name: &str) -> String {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~');
    utf8_percent_encode(name, KEPT).to_string()
}

/// Encodes a name as one part of a path, including slashes.
fn segment(name: &str) -> String {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');
    utf8_percent_encode(name, KEPT).to_string()
}

/// Cuts a text to a number of characters. A cut text ends in `…`.
fn cut_chars(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut_chars("äöü", 3), "äöü");
        assert_eq!(cut_chars("äöüß", 3), "äö…");
        assert_eq!(
            cut_chars(&"é".repeat(200), MAX_DESCRIPTION).chars().count(),
            MAX_DESCRIPTION
        );
    }

    #[test]
    fn names_cannot_leave_their_place_in_a_url() {
        assert_eq!(url_segments("acme/infra.git-2_x~"), "acme/infra.git-2_x~");
        assert_eq!(url_segments("a b/ü?x#y%2f"), "a%20b/%C3%BC%3Fx%23y%252f");
    }

    #[test]
    fn a_name_stays_one_part_of_the_path() {
        assert_eq!(segment("renovate[bot]"), "renovate%5Bbot%5D");
        assert_eq!(segment("../../user"), "%2E%2E%2F%2E%2E%2Fuser");
        assert_eq!(segment("platform-eng"), "platform-eng");
    }
}
