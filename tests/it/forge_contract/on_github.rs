//! GitHub's REST API in front of the emulated GitHub.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkeeper::clock::ManualClock;
use lockkeeper::emulator::{Change, Emulator, Fault, NewPull, NewTeam, Options, ReviewState};
use lockkeeper::forges::github::{GitHub, GitHubAuth, GitHubEndpoints, Timeouts, TokenSource};
use lockkeeper::model::{CommentId, CommitSha, CommitState, PullNumber, RepoId};
use lockkeeper::secret::Secret;
use tempfile::TempDir;

use super::{BOT, ForgeUnderTest, ForgeWorld, WorldFailure};

const REPO: &str = "acme/infra";
const TOKEN: &str = "ghp_the_bots_own_token";

struct EmulatedGitHub(Emulator);

/// Starts an emulated GitHub, and a connection with a token.
pub async fn start() -> ForgeUnderTest {
    let directory = TempDir::new().unwrap();
    let clock = Arc::new(ManualClock::new("2026-03-02T09:00:00Z".parse().unwrap()));
    let world = directory.path().join("github");
    let options = Options::new(&world, clock.clone(), Secret::new("unused"))
        .with_token(BOT, Secret::new(TOKEN));
    let github = Emulator::start(options).await.unwrap();
    github
        .create_repo(REPO, &[("main.tf", "# root\n")])
        .await
        .unwrap();
    github
        .set_team("acme", NewTeam::new("Platform").with(&["alice"]))
        .unwrap();
    let api = github.api_url().parse().unwrap();
    let endpoints = GitHubEndpoints::new("github.test", Some(api)).unwrap();
    let auth = GitHubAuth::Token {
        user: Some(BOT.to_owned()),
        token: TokenSource::Fixed(Secret::new(TOKEN)),
    };
    let forge = GitHub::new(endpoints, auth, clock, Timeouts::default())
        .unwrap()
        .with_pause_between_writes(Duration::ZERO);
    ForgeUnderTest {
        world: Box::new(EmulatedGitHub(github)),
        forge: Box::new(forge),
        directory,
    }
}

#[async_trait]
impl ForgeWorld for EmulatedGitHub {
    fn repo(&self) -> RepoId {
        format!("github.test/{REPO}").parse().unwrap()
    }

    async fn push(&self, branch: &str) -> CommitSha {
        let pushed = self.0.requests().len();
        let change = Change::write("main.tf", &format!("# {branch} {pushed}\n"));
        self.0.push(REPO, branch, &[change]).await.unwrap()
    }

    async fn open_pull(&self, branch: &str) -> PullNumber {
        self.push(branch).await;
        let pull = NewPull::from_branch(branch);
        self.0.open_pull(REPO, pull).await.unwrap()
    }

    async fn close(&self, pull: PullNumber) {
        self.0.close(REPO, pull, "alice").await.unwrap();
    }

    async fn rename(&self, name: &str) -> RepoId {
        self.0.rename_repo(REPO, name, "alice").await.unwrap();
        format!("github.test/{name}").parse().unwrap()
    }

    async fn comment(&self, pull: PullNumber, who: &str, body: &str) -> CommentId {
        self.0.comment(REPO, pull, who, body).await.unwrap().into()
    }

    fn comments(&self, pull: PullNumber) -> Vec<(String, String)> {
        let comments = self.0.comments(REPO, pull).unwrap();
        comments
            .into_iter()
            .map(|comment| (comment.author, comment.body))
            .collect()
    }

    fn reactions(&self, comment: &CommentId) -> Vec<(String, String)> {
        let id = comment.as_str().parse().unwrap();
        self.0.reactions(REPO, id).unwrap()
    }

    fn review(&self, pull: PullNumber, who: &str, approves: bool) {
        let state = if approves {
            ReviewState::Approved
        } else {
            ReviewState::ChangesRequested
        };
        self.0.review(REPO, pull, who, state).unwrap();
    }

    fn statuses(&self, commit: &CommitSha) -> Vec<(String, CommitState)> {
        let statuses = self.0.statuses(REPO, commit).unwrap();
        let state = |shown: String| match shown.as_str() {
            "Pending" => CommitState::Pending,
            "Success" => CommitState::Success,
            _ => CommitState::Failure,
        };
        statuses
            .latest
            .into_iter()
            .map(|status| (status.context, state(format!("{:?}", status.state))))
            .collect()
    }

    fn fail(&self, failure: WorldFailure) {
        let (times, fault) = match failure {
            WorldFailure::Denied => (1, Fault::Forbidden),
            WorldFailure::Limited => {
                let (status, retry_after) = (429, 60);
                (
                    1,
                    Fault::SecondaryLimit {
                        status,
                        retry_after,
                    },
                )
            }
            WorldFailure::Away => (100, Fault::BadGateway),
        };
        self.0.fault("* /repos/*/*/pulls/*", times, fault);
    }
}
