//! Lets tests and the demo inspect the world and wait for changes.

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::model::{CommitSha, PullNumber};

use super::{
    EmulatedCheckRun, EmulatedComment, EmulatedDelivery, EmulatedPull, Emulator, EmulatorError,
    Exchange, Statuses,
};

impl Emulator {
    /// Returns the comments of a pull request, oldest first.
    pub fn comments(
        &self,
        repo: &str,
        number: PullNumber,
    ) -> Result<Vec<EmulatedComment>, EmulatorError> {
        Ok(self.pull(repo, number)?.comments)
    }

    /// Returns the statuses of a commit.
    pub fn statuses(&self, repo: &str, sha: &CommitSha) -> Result<Statuses, EmulatorError> {
        Ok(self.shared.world.state().repo(repo)?.statuses_of(sha))
    }

    /// Returns all check runs of a commit, oldest first.
    pub fn check_runs(
        &self,
        repo: &str,
        sha: &CommitSha,
    ) -> Result<Vec<EmulatedCheckRun>, EmulatorError> {
        let state = self.shared.world.state();
        let runs = state.repo(repo)?.check_runs_of(sha);
        Ok(runs.into_iter().cloned().collect())
    }

    /// Returns the current data of a pull request.
    pub fn pull(&self, repo: &str, number: PullNumber) -> Result<EmulatedPull, EmulatorError> {
        let state = self.shared.world.state();
        Ok(EmulatedPull::clone(state.repo(repo)?.pull(number)?))
    }

    /// Returns the reactions to a comment: the login, and the kind (`eyes`).
    pub fn reactions(
        &self,
        repo: &str,
        comment: u64,
    ) -> Result<Vec<(String, String)>, EmulatorError> {
        let state = self.shared.world.state();
        let reactions = state
            .repo(repo)?
            .reactions
            .iter()
            .filter(|reaction| reaction.comment == comment);
        Ok(reactions
            .map(|reaction| (reaction.login.clone(), reaction.content.clone()))
            .collect())
    }

    /// Returns the tip of every branch.
    pub async fn branches(&self, repo: &str) -> Result<BTreeMap<String, CommitSha>, EmulatorError> {
        let branches = self.shared.world.repo_handle(repo)?.git.branches().await?;
        Ok(branches
            .into_iter()
            .map(|(name, tip)| (name.to_string(), tip))
            .collect())
    }

    /// Returns the newest 4096 exchanges, oldest first.
    pub fn requests(&self) -> Vec<Exchange> {
        self.shared.log.all()
    }

    /// Returns the number of requests that are left of the 5000 of this hour.
    pub fn requests_left(&self) -> u64 {
        self.shared.github.limits.left()
    }

    /// Returns all webhooks, oldest first, sent or held; of the sent ones the newest 4096.
    pub fn deliveries(&self) -> Vec<EmulatedDelivery> {
        self.shared.hooks.all()
    }

    /// Returns the webhooks that wait to be sent, oldest first.
    pub fn held(&self) -> Vec<EmulatedDelivery> {
        self.shared.hooks.waiting()
    }

    /// Returns the web page of a pull request.
    pub fn pull_url(&self, repo: &str, number: PullNumber) -> String {
        format!("{}/{repo}/pull/{number}", self.base_url())
    }

    /// Returns the address for `git clone`, without credentials.
    pub fn clone_url(&self, repo: &str) -> String {
        format!("{}/{repo}.git", self.base_url())
    }

    /// Subscribes to a counter that grows with every change of the world.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.world.changes()
    }

    /// Waits until `look` returns a value, without polling and without a time limit. `look` is called now and after
    /// every change.
    ///
    /// # Panics
    /// Never: the world lives as long as this handle.
    pub async fn wait_for<T>(&self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            if let Some(found) = look(self) {
                return found;
            }
            changes
                .changed()
                .await
                .expect("the world lives as long as this handle");
        }
    }

    /// Waits for the first comment of this author on a pull request with an id greater than `after`.
    pub async fn comment_by(
        &self,
        repo: &str,
        number: PullNumber,
        author: &str,
        after: u64,
    ) -> Result<EmulatedComment, EmulatorError> {
        self.wait_for(|world| match world.comments(repo, number) {
            Ok(comments) => comments
                .into_iter()
                .find(|c| c.id > after && c.author == author)
                .map(Ok),
            Err(error) => Some(Err(error)),
        })
        .await
    }
}
