//! Changes the world on behalf of tests and the demo. Each action sends webhooks to the target, as GitHub would.

use url::Url;
use uuid::Uuid;

use crate::model::{CommitSha, MergeMethod, PullNumber};

use super::world::{Author, CommentError, Push, StatusError};
use super::{
    Change, Delivering, EmulatedDelivery, Emulator, EmulatorError, Fault, NewPull, NewStatus,
    NewTeam, Protection, ReviewState, Role,
};

impl Emulator {
    /// Creates a private repository `owner/name` with these files on `main`.
    pub async fn create_repo(
        &self,
        repo: &str,
        files: &[(&str, &str)],
    ) -> Result<CommitSha, EmulatorError> {
        self.shared.world.create_repo(repo, files).await
    }

    /// Gives a repository another name, or another owner, or both (`owner/name`). Requests with the old name are
    /// redirected until another repository takes that name.
    pub async fn rename_repo(&self, repo: &str, to: &str, by: &str) -> Result<(), EmulatorError> {
        let events = self.shared.world.rename_repo(repo, to, by).await?;
        self.publish(&events).await;
        Ok(())
    }

    /// Deletes a repository with everything in it.
    pub async fn delete_repo(&self, repo: &str, by: &str) -> Result<(), EmulatorError> {
        let events = self.shared.world.delete_repo(repo, by).await?;
        self.publish(&events).await;
        Ok(())
    }

    /// Archives a repository: its pull requests stay open, and nothing in it can be changed.
    pub async fn archive_repo(&self, repo: &str, by: &str) -> Result<(), EmulatorError> {
        let events = self.shared.world.archive_repo(repo, by)?;
        self.publish(&events).await;
        Ok(())
    }

    /// Forks a repository to a person and returns the name of the fork.
    pub async fn fork(&self, repo: &str, owner: &str) -> Result<String, EmulatorError> {
        self.shared.world.fork(repo, owner).await
    }

    /// Stores a content with Git LFS. Returns the pointer that commits contain in its place.
    pub fn keep_lfs(&self, repo: &str, content: &str) -> Result<String, EmulatorError> {
        self.shared.world.keep_lfs(repo, content)
    }

    /// Creates a team of the organisation that owns a repository. A team of the same name is replaced.
    pub fn set_team(&self, org: &str, team: NewTeam) -> Result<(), EmulatorError> {
        self.shared.world.set_team(org, team)
    }

    /// Sets a status on a commit as a person.
    pub async fn set_status(
        &self,
        repo: &str,
        sha: &CommitSha,
        by: &str,
        status: NewStatus,
    ) -> Result<(), EmulatorError> {
        let refused = |error: StatusError| EmulatorError::Refused(error.to_string());
        let world = &self.shared.world;
        let commit = world.commit(repo, sha.as_str()).await.map_err(refused)?;
        world
            .set_status(repo, commit, &Author::person(by), status)
            .map_err(refused)?;
        Ok(())
    }

    /// Protects a branch, or changes its protection.
    pub fn protect(
        &self,
        repo: &str,
        branch: &str,
        rules: Protection,
    ) -> Result<(), EmulatorError> {
        self.shared.world.protect(repo, branch, rules)
    }

    /// Gives an account a role in a repository. By default the accounts of the usual stories may write, and all
    /// others have no access.
    pub fn set_role(&self, repo: &str, login: &str, role: Role) -> Result<(), EmulatorError> {
        self.shared.world.set_role(repo, login, role)
    }

    /// Makes a repository readable for everybody. By default it is private.
    pub fn make_public(&self, repo: &str) -> Result<(), EmulatorError> {
        self.shared.world.make_public(repo)
    }

    /// Allows only these methods to merge pull requests from now on.
    pub fn set_merge_methods(
        &self,
        repo: &str,
        methods: &[MergeMethod],
    ) -> Result<(), EmulatorError> {
        self.shared.world.set_merge_methods(repo, methods)
    }

    /// Replaces the labels of a pull request. No webhook is sent.
    pub fn set_labels(
        &self,
        repo: &str,
        pull: PullNumber,
        labels: &[&str],
    ) -> Result<(), EmulatorError> {
        self.shared.world.set_labels(repo, pull, labels)
    }

    /// Makes another branch the default branch in answers.
    pub fn set_default_branch(&self, repo: &str, branch: &str) -> Result<(), EmulatorError> {
        self.shared.world.set_default_branch(repo, branch)
    }

    /// Submits a review as a person. No webhook is sent, because Lockkeeper does not listen to reviews.
    pub fn review(
        &self,
        repo: &str,
        pull: PullNumber,
        by: &str,
        state: ReviewState,
    ) -> Result<(), EmulatorError> {
        self.shared.world.review(repo, pull, by, state)
    }

    /// Dismisses every review of an account.
    pub fn dismiss_reviews(
        &self,
        repo: &str,
        pull: PullNumber,
        of: &str,
    ) -> Result<(), EmulatorError> {
        self.shared.world.dismiss(repo, pull, of)
    }

    /// Lets the next `reads` reads of a pull request answer that its mergeability is not known yet.
    pub fn unsettle(&self, repo: &str, pull: PullNumber, reads: u32) -> Result<(), EmulatorError> {
        let pull = self.pull(repo, pull)?;
        self.shared.github.unsettle(&pull, reads);
        Ok(())
    }

    /// Makes one commit on a branch and returns it. A new branch starts at the tip of `main`.
    pub async fn push(
        &self,
        repo: &str,
        branch: &str,
        changes: &[Change],
    ) -> Result<CommitSha, EmulatorError> {
        self.push_as(
            repo,
            &Push {
                branch,
                changes,
                force: false,
            },
        )
        .await
    }

    /// Discards the commits of a branch and makes one commit on the tip of `main` instead.
    pub async fn force_push(
        &self,
        repo: &str,
        branch: &str,
        changes: &[Change],
    ) -> Result<CommitSha, EmulatorError> {
        self.push_as(
            repo,
            &Push {
                branch,
                changes,
                force: true,
            },
        )
        .await
    }

    /// Sets a tag to a commit. No webhook is sent, because Lockkeeper looks for new tags regularly.
    pub async fn tag(
        &self,
        repo: &str,
        tag: &str,
        commit: &CommitSha,
    ) -> Result<(), EmulatorError> {
        self.shared.world.tag(repo, tag, commit).await
    }

    /// Deletes a branch. Pull requests from that branch are closed.
    pub async fn delete_branch(&self, repo: &str, branch: &str) -> Result<(), EmulatorError> {
        let events = self.shared.world.delete_branch(repo, branch).await?;
        self.publish(&events).await;
        Ok(())
    }

    async fn push_as(&self, repo: &str, push: &Push<'_>) -> Result<CommitSha, EmulatorError> {
        let (sha, events) = self.shared.world.push(repo, push).await?;
        self.publish(&events).await;
        Ok(sha)
    }

    /// Opens a pull request.
    pub async fn open_pull(&self, repo: &str, pull: NewPull) -> Result<PullNumber, EmulatorError> {
        let (number, events) = self.shared.world.open_pull(repo, &pull).await?;
        self.shared
            .github
            .hide_pull(&self.shared.faults, repo, number);
        self.publish(&events).await;
        Ok(number)
    }

    /// Comments as a person and returns the comment's id.
    pub async fn comment(
        &self,
        repo: &str,
        number: PullNumber,
        author: &str,
        body: &str,
    ) -> Result<u64, EmulatorError> {
        let (comment, event) = self
            .shared
            .world
            .comment(repo, number, &Author::person(author), body)
            .map_err(refused)?;
        self.publish(&[event]).await;
        Ok(comment.id)
    }

    /// Edits a comment as a person.
    pub async fn edit_comment(
        &self,
        repo: &str,
        id: u64,
        by: &str,
        body: &str,
    ) -> Result<(), EmulatorError> {
        let (_, event) = self
            .shared
            .world
            .edit_comment(repo, id, &Author::person(by), body)
            .map_err(refused)?;
        self.publish(&[event]).await;
        Ok(())
    }

    /// Closes a pull request without merging.
    pub async fn close(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
    ) -> Result<(), EmulatorError> {
        let events = self.shared.world.close(repo, number, by).await?;
        self.publish(&events).await;
        Ok(())
    }

    /// Opens a closed pull request again.
    pub async fn reopen(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
    ) -> Result<(), EmulatorError> {
        let events = self.shared.world.reopen(repo, number, by).await?;
        self.publish(&events).await;
        Ok(())
    }

    /// Merges a pull request and returns the merge commit.
    pub async fn merge(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
    ) -> Result<CommitSha, EmulatorError> {
        let (sha, events) = self.shared.world.merge(repo, number, by).await?;
        self.publish(&events).await;
        Ok(sha)
    }

    /// Marks a draft as ready for review.
    pub async fn ready_for_review(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
    ) -> Result<(), EmulatorError> {
        let events = self.shared.world.set_draft(repo, number, by, false)?;
        self.publish(&events).await;
        Ok(())
    }

    /// Converts a pull request to a draft.
    pub async fn convert_to_draft(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
    ) -> Result<(), EmulatorError> {
        let events = self.shared.world.set_draft(repo, number, by, true)?;
        self.publish(&events).await;
        Ok(())
    }

    /// Changes the base branch of a pull request.
    pub async fn change_base(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
        base: &str,
    ) -> Result<(), EmulatorError> {
        let events = self
            .shared
            .world
            .change_base(repo, number, by, base)
            .await?;
        self.publish(&events).await;
        Ok(())
    }

    /// Sets the target of webhooks.
    pub fn set_webhook_target(&self, target: Url) {
        self.shared.hooks.set_target(target);
    }

    /// Sets the mode of sending webhooks. Webhooks that were held are sent when the mode becomes
    /// [`Delivering::Immediately`].
    pub async fn set_delivering(&self, mode: Delivering) {
        self.shared.hooks.set_mode(mode);
        self.shared.hooks.pump().await;
    }

    /// Sends the oldest held webhook; `None` if there is none.
    pub async fn deliver_next(&self) -> Option<EmulatedDelivery> {
        self.shared.hooks.deliver_next().await
    }

    /// Loses the oldest held webhook; `None` if there is none.
    pub fn lose_next(&self) -> Option<EmulatedDelivery> {
        self.shared.hooks.lose_next()
    }

    /// Sends a webhook again with the same id, even if it was never sent before.
    pub async fn redeliver(&self, id: Uuid) -> Result<EmulatedDelivery, EmulatorError> {
        self.shared.hooks.redeliver(id).await
    }

    /// Orders a fault for the next `times` requests of a route such as `POST /repos/*/*/issues/*/comments`, without
    /// `/api/v3`. `*` or `{name}` stands for any one segment, and `*` for any method.
    pub fn fault(&self, route: &str, times: u32, fault: Fault) {
        self.shared.faults.add(route, times, fault);
    }

    /// Sets how many of the 5000 requests of this hour are left.
    pub fn leave_requests(&self, left: u64) {
        self.shared
            .github
            .limits
            .leave(self.shared.world.now(), left);
    }

    /// Answers 404 to the first `reads` reads of every pull request opened from now on; 0 stops this.
    pub fn hide_new_pulls(&self, reads: u32) {
        self.shared.github.hide_new_pulls(reads);
    }

    /// Returns the number of ordered faults that have not occurred yet.
    pub fn faults_left(&self) -> u32 {
        self.shared.faults.left()
    }

    /// Withdraws the faults that have not occurred yet. Requests that hang are executed.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    /// Waits until `many` requests hang ([`Fault::Hang`]).
    pub async fn hanging(&self, many: usize) {
        self.shared.faults.hanging(many).await;
    }
}

fn refused(error: CommentError) -> EmulatorError {
    match error {
        CommentError::Missing(error) => error,
        CommentError::Blank | CommentError::TooLong(_) => EmulatorError::Refused(error.to_string()),
    }
}
