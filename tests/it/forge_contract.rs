//! Requirements that every forge meets. Each test runs against every connection of [`every_forge`], with an emulated
//! forge of its own behind it.
//!
//! The world of a forge speaks in neutral words ([`ForgeWorld`]). Tests about the requests, answers and limits of one
//! forge belong to that forge.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests may stop a test where it stands, like the tests do"
)]

mod on_github;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use lockkeeper::forges::{
    Forge, ForgeError, ListedPage, MergeAnswer, PageQuery, Permit, WritePermit,
};
use lockkeeper::model::{
    BranchName, CommentId, CommitSha, CommitState, CommitStatus, IgnoredStatuses, MergeMethod,
    Mergeability, PullNumber, PullRef, PullState, RepoId, StatusContext, StatusTarget,
};
use tempfile::TempDir;

/// Runs each test against each forge.
macro_rules! every_forge {
    ($($test:ident),+ $(,)?) => {
        mod github {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(super::on_github::start().await).await;
                }
            )+
        }
    };
}

every_forge!(
    a_pull_is_reported_as_it_is_now,
    open_pulls_are_listed_and_an_unchanged_list_is_said_to_be_so,
    a_review_counts_for_the_commit_that_it_was_about,
    a_pull_without_obstacles_can_be_merged,
    a_pull_is_merged_at_the_requested_head_only,
    a_comment_is_posted_found_by_its_marker_and_deleted,
    a_reaction_to_a_comment_may_be_repeated,
    the_newest_status_of_a_name_counts,
    members_of_a_team_are_known,
    branches_and_rights_are_known,
    a_renamed_repository_is_found_under_its_new_name,
    git_fetches_the_base_branch_and_the_head_of_a_pull,
    a_missing_pull_is_not_found,
    refused_credentials_are_denied,
    a_limit_says_when_to_come_back,
    a_forge_that_does_not_answer_is_unavailable,
);

/// Account of the bot on every emulated forge.
const BOT: &str = "lockbot";
const HIDDEN: &str = "<!-- lockkeeper {marker-7} -->";

/// Failure of requests about one pull.
#[derive(Clone, Copy, Debug)]
enum WorldFailure {
    /// The next request is refused for its credentials.
    Denied,
    /// The next request is answered with the wish to wait for a minute.
    Limited,
    /// No request is answered.
    Away,
}

/// People and programs on an emulated forge. There is one private repository with the branch `main`, and the team
/// `platform` of its owner with the member `alice`.
#[async_trait]
trait ForgeWorld: Send + Sync {
    fn repo(&self) -> RepoId;
    /// Pushes a commit to a branch.
    async fn push(&self, branch: &str) -> CommitSha;
    /// Opens a pull from a new branch as `alice`.
    async fn open_pull(&self, branch: &str) -> PullNumber;
    async fn close(&self, pull: PullNumber);
    /// Gives the repository another name, as `owner/name`.
    async fn rename(&self, name: &str) -> RepoId;
    async fn comment(&self, pull: PullNumber, who: &str, body: &str) -> CommentId;
    /// Returns author and body of each comment, the oldest first.
    fn comments(&self, pull: PullNumber) -> Vec<(String, String)>;
    /// Returns account and kind of each reaction.
    fn reactions(&self, comment: &CommentId) -> Vec<(String, String)>;
    /// Approves a pull, or requests changes.
    fn review(&self, pull: PullNumber, who: &str, approves: bool);
    /// Returns name and state of each status of a commit.
    fn statuses(&self, commit: &CommitSha) -> Vec<(String, CommitState)>;
    fn fail(&self, failure: WorldFailure);
}

/// A connection and the forge behind it.
struct ForgeUnderTest {
    world: Box<dyn ForgeWorld>,
    forge: Box<dyn Forge>,
    directory: TempDir,
}

impl ForgeUnderTest {
    async fn open_pull(&self, branch: &str) -> (PullNumber, PullRef) {
        let number = self.world.open_pull(branch).await;
        let at = PullRef {
            repo: self.world.repo(),
            subject: number.into(),
        };
        (number, at)
    }
}

struct AlwaysPermitted;

#[async_trait]
impl Permit for AlwaysPermitted {
    async fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

fn permit() -> WritePermit {
    Arc::new(AlwaysPermitted)
}

async fn a_pull_is_reported_as_it_is_now(test: ForgeUnderTest) {
    let (number, at) = test.open_pull("feature").await;
    let opened = test.forge.pull(&at).await.unwrap();
    assert_eq!(
        (opened.at.clone(), opened.state, opened.author.as_str()),
        (at.clone(), PullState::Open, "alice")
    );
    assert_eq!(
        (opened.head_branch.as_str(), opened.base_branch.as_str()),
        ("feature", "main")
    );
    assert!(!opened.is_fork() && !opened.draft);
    let head = test.world.push("feature").await;
    let pushed = test.forge.pull(&at).await.unwrap();
    assert_eq!((&pushed.head, &pushed.base), (&head, &opened.base));
    test.world.close(number).await;
    let closed = test.forge.pull(&at).await.unwrap();
    assert_eq!(closed.state, PullState::Closed);
}

async fn open_pulls_are_listed_and_an_unchanged_list_is_said_to_be_so(test: ForgeUnderTest) {
    let repo = test.world.repo();
    let (first, _) = test.open_pull("one").await;
    let (second, at) = test.open_pull("two").await;
    let ask = |etag| PageQuery { number: 1, etag };
    let listed = test.forge.open_pulls(&repo, ask(None)).await.unwrap().page;
    let ListedPage::Fresh { pulls, more, etag } = listed else {
        panic!("an unconditional request has an answer: {listed:?}")
    };
    let numbers: Vec<PullNumber> = pulls.iter().map(|pull| pull.number).collect();
    assert_eq!((numbers, more), (vec![first, second], false));
    assert_eq!(
        pulls[1].at,
        test.forge.pull(&at).await.unwrap().pull_head(),
        "the list is as good as the pull itself"
    );
    let etag = etag.expect("the next request can be conditional");
    let again = test
        .forge
        .open_pulls(&repo, ask(Some(&etag)))
        .await
        .unwrap();
    assert_eq!(again.page, ListedPage::Unchanged);
    test.world.close(first).await;
    let changed = test
        .forge
        .open_pulls(&repo, ask(Some(&etag)))
        .await
        .unwrap();
    assert!(
        matches!(&changed.page, ListedPage::Fresh { pulls, .. } if pulls.len() == 1),
        "{changed:?}"
    );
}

async fn a_review_counts_for_the_commit_that_it_was_about(test: ForgeUnderTest) {
    let (number, at) = test.open_pull("feature").await;
    let none = test.forge.approval(&at).await.unwrap();
    assert!(none.by.is_empty() && none.asking.is_empty(), "{none:?}");
    test.world.review(number, "bob", true);
    test.world.review(number, "carol", false);
    let given = test.forge.approval(&at).await.unwrap();
    let head = test.forge.pull(&at).await.unwrap().head;
    assert!(given.is_given_for(&head) && given.by.contains_key("bob"));
    assert!(given.asking.contains("carol"), "{given:?}");
    let newer = test.world.push("feature").await;
    let stale = test.forge.approval(&at).await.unwrap();
    assert!(!stale.is_given_for(&newer), "{stale:?}");
}

async fn a_pull_without_obstacles_can_be_merged(test: ForgeUnderTest) {
    let (number, at) = test.open_pull("feature").await;
    let aside = IgnoredStatuses {
        name: "lockkeeper",
        kinds: &[],
        others: &[],
    };
    let open = test.forge.mergeability(&at, &aside).await.unwrap();
    assert_eq!(open, Mergeability::Yes);
    test.world.close(number).await;
    let closed = test.forge.mergeability(&at, &aside).await.unwrap();
    assert_ne!(closed, Mergeability::Yes);
}

async fn a_pull_is_merged_at_the_requested_head_only(test: ForgeUnderTest) {
    let (_, at) = test.open_pull("feature").await;
    let methods = test.forge.merge_methods(&at.repo).await.unwrap();
    assert!(methods.contains(&MergeMethod::Merge), "{methods:?}");
    let old = test.forge.pull(&at).await.unwrap().head;
    let head = test.world.push("feature").await;
    let merge = async |head: &CommitSha| {
        test.forge
            .merge(&at, head, MergeMethod::Merge, &permit())
            .await
            .unwrap()
    };
    assert_eq!(merge(&old).await, MergeAnswer::HeadMoved);
    assert_eq!(test.forge.pull(&at).await.unwrap().state, PullState::Open);
    assert_eq!(merge(&head).await, MergeAnswer::Merged);
    assert_eq!(test.forge.pull(&at).await.unwrap().state, PullState::Merged);
}

async fn a_comment_is_posted_found_by_its_marker_and_deleted(test: ForgeUnderTest) {
    let (number, at) = test.open_pull("feature").await;
    let body = format!("Planned.\n\n{HIDDEN}");
    let since = "2026-03-02T08:00:00Z".parse().unwrap();
    let find = async || {
        test.forge
            .comment_find(&at, "marker-7", since)
            .await
            .unwrap()
    };
    test.world.comment(number, "mallory", &body).await;
    assert_eq!(find().await, [], "it is not the bot's");
    let first = test
        .forge
        .comment_post(&at, &body, &permit())
        .await
        .unwrap();
    assert_eq!(find().await, std::slice::from_ref(&first));
    assert_eq!(
        test.world.comments(number).last().unwrap(),
        &(BOT.to_owned(), body.clone())
    );
    let other = test.forge.comment_find(&at, "marker-8", since).await;
    assert_eq!(other.unwrap(), []);
    let twice = test
        .forge
        .comment_post(&at, &body, &permit())
        .await
        .unwrap();
    assert_eq!(
        find().await,
        [first.clone(), twice.clone()],
        "the oldest first"
    );
    for _ in 0..2 {
        let deleted = test.forge.comment_delete(&at, &twice.id, &permit()).await;
        deleted.expect("a missing comment is no error");
    }
    assert_eq!(find().await, [first]);
}

async fn a_reaction_to_a_comment_may_be_repeated(test: ForgeUnderTest) {
    let (number, at) = test.open_pull("feature").await;
    let id = test.world.comment(number, "alice", "lockkeeper plan").await;
    for _ in 0..2 {
        test.forge.comment_react(&at, &id, "eyes").await.unwrap();
    }
    assert_eq!(
        test.world.reactions(&id),
        [(BOT.to_owned(), "eyes".to_owned())]
    );
}

async fn the_newest_status_of_a_name_counts(test: ForgeUnderTest) {
    let (number, at) = test.open_pull("feature").await;
    let commit = test.forge.pull(&at).await.unwrap().head;
    let on = StatusTarget {
        repo: at.repo.clone(),
        pull: Some(number),
        commit: commit.clone(),
    };
    for state in [
        CommitState::Pending,
        CommitState::Failure,
        CommitState::Success,
    ] {
        let status = CommitStatus {
            context: StatusContext::new("lockkeeper/plan"),
            state,
            description: "x".repeat(1000),
            url: Some("https://locks.example.com/jobs/1".to_owned()),
        };
        let set = test.forge.status_set(&on, &status, &permit()).await;
        set.expect("a long description is cut");
        assert_eq!(
            test.world.statuses(&commit),
            [("lockkeeper/plan".to_owned(), state)]
        );
    }
}

async fn members_of_a_team_are_known(test: ForgeUnderTest) {
    let repo = test.world.repo();
    let has = async |team: &str, who: &str| test.forge.team_has(&repo, team, who).await.unwrap();
    assert!(has("platform", "alice").await);
    assert!(!has("platform", "mallory").await);
    assert!(!has("nobody", "alice").await, "a missing team is empty");
    let teams = test.forge.team_list(&repo, 10).await.unwrap();
    assert_eq!(teams, ["platform"]);
}

async fn branches_and_rights_are_known(test: ForgeUnderTest) {
    let repo = test.world.repo();
    assert_eq!(test.forge.host(), repo.host());
    assert_eq!(test.forge.login().await.unwrap(), BOT);
    let tip = async |name: &str| {
        let branch = BranchName::new(name).unwrap();
        test.forge.branch_tip(&repo, &branch).await.unwrap()
    };
    let pushed = test.world.push("topic").await;
    assert_eq!(tip("topic").await, Some(pushed));
    assert_eq!(tip("missing").await, None);
    assert!(!test.forge.is_public(&repo).await.unwrap());
    assert!(!test.forge.may_write(&repo, "nobody-at-all").await.unwrap());
}

async fn a_renamed_repository_is_found_under_its_new_name(test: ForgeUnderTest) {
    let (_, at) = test.open_pull("feature").await;
    let before = test.forge.repository(&at.repo).await.unwrap();
    assert_eq!(
        (before.at.repo, before.default_branch.as_str()),
        (at.repo.clone(), "main")
    );
    let renamed = test.world.rename("acme/platform").await;
    let error = test.forge.pull(&at).await.unwrap_err();
    assert!(
        matches!(&error, ForgeError::Moved { repo, .. } if **repo == at.repo),
        "{error}"
    );
    let after = test.forge.repository(&at.repo).await.unwrap();
    assert_eq!((&after.at.repo, after.at.id), (&renamed, before.at.id));
    let by_id = test.forge.repository_by_id(before.at.id, &at.repo).await;
    assert_eq!(by_id.unwrap(), after);
}

async fn git_fetches_the_base_branch_and_the_head_of_a_pull(test: ForgeUnderTest) {
    let (_, at) = test.open_pull("feature").await;
    let pull = test.forge.pull(&at).await.unwrap();
    let source = test.forge.head_source(&at).await.unwrap();
    let head = source.ref_in(&at.repo).expect("it is no fork");
    let credentials = test.forge.git_credentials(&at.repo).await.unwrap();
    let mut url: url::Url = test.forge.clone_url(&at.repo).parse().unwrap();
    url.set_username(&credentials.username).unwrap();
    url.set_password(Some(credentials.password.expose()))
        .unwrap();
    let clone = test.directory.path().join("clone");
    std::fs::create_dir(&clone).unwrap();
    git(&clone, &["init", "--quiet"]);
    for (name, commit) in [("refs/heads/main", &pull.base), (head.as_str(), &pull.head)] {
        git(&clone, &["fetch", "--quiet", url.as_str(), name]);
        assert_eq!(git(&clone, &["rev-parse", "FETCH_HEAD"]), commit.as_str());
    }
}

/// Runs git without any configuration of this machine.
#[expect(
    clippy::disallowed_methods,
    reason = "a test's own helper program, not a child of the product"
)]
fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn a_missing_pull_is_not_found(test: ForgeUnderTest) {
    let (_, at) = test.open_pull("feature").await;
    let missing = PullRef {
        subject: PullNumber(99).into(),
        ..at
    };
    let error = test.forge.pull(&missing).await.unwrap_err();
    assert!(matches!(error, ForgeError::NotFound { .. }), "{error}");
}

async fn refused_credentials_are_denied(test: ForgeUnderTest) {
    let error = error_after(&test, WorldFailure::Denied).await;
    assert!(matches!(error, ForgeError::Denied { .. }), "{error}");
}

async fn a_limit_says_when_to_come_back(test: ForgeUnderTest) {
    let error = error_after(&test, WorldFailure::Limited).await;
    let minute: chrono::DateTime<chrono::Utc> = "2026-03-02T09:01:00Z".parse().unwrap();
    assert!(
        matches!(&error, ForgeError::RateLimited { until, .. } if *until >= minute),
        "{error}"
    );
}

async fn a_forge_that_does_not_answer_is_unavailable(test: ForgeUnderTest) {
    let error = error_after(&test, WorldFailure::Away).await;
    assert!(matches!(error, ForgeError::Unavailable { .. }), "{error}");
}

async fn error_after(test: &ForgeUnderTest, failure: WorldFailure) -> ForgeError {
    let (_, at) = test.open_pull("feature").await;
    test.world.fail(failure);
    test.forge.pull(&at).await.unwrap_err()
}
