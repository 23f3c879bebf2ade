//! Common actions of people in these stories, and the comments as people read them.

use lockkeeper::emulator::{Change, NewPull};
use lockkeeper::model::{PullNumber, PullRef};

use crate::support::bot::{Bot, REPO};

impl Bot {
    /// Returns the only unread comment as people see it, without the parts that differ between runs.
    pub fn comment(&mut self, pull: PullNumber) -> String {
        let answer = self.answer(pull);
        self.plain(&answer)
    }

    /// Returns every unread comment.
    pub fn comments(&mut self, pull: PullNumber) -> Vec<String> {
        let heard = self.read_comments(pull);
        heard.iter().map(|comment| self.plain(comment)).collect()
    }

    /// Replaces the port of the forge and temporary directories.
    pub fn plain(&self, text: &str) -> String {
        let text = text.replace(self.github.base_url(), "https://github.test");
        text.replace(&self.db.dir.path().display().to_string(), "/srv")
    }

    /// Pushes changed files to a branch, and does everything that follows from it.
    pub async fn update(&mut self, branch: &str, files: &[(&str, &str)]) {
        self.push(branch, files).await;
        self.settle().await;
    }

    /// Pushes changes other than new content, and does everything that follows from it.
    pub async fn change(&mut self, branch: &str, changes: &[Change]) {
        self.github.push(REPO, branch, changes).await.unwrap();
        self.settle().await;
    }

    /// Opens a pull request, and does everything that follows from it.
    pub async fn open(&mut self, pull: NewPull) -> PullNumber {
        let number = self.github.open_pull(REPO, pull).await.unwrap();
        self.settle().await;
        number
    }

    /// Closes a pull request as `alice`, and does everything that follows from it.
    pub async fn close(&mut self, pull: PullNumber) {
        self.github.close(REPO, pull, "alice").await.unwrap();
        self.settle().await;
    }

    /// Reopens a closed pull request as `alice`, and does everything that follows from it.
    pub async fn reopen(&mut self, pull: PullNumber) {
        self.github.reopen(REPO, pull, "alice").await.unwrap();
        self.settle().await;
    }

    /// Merges a pull request as `alice`, and does everything that follows from it.
    pub async fn merge(&mut self, pull: PullNumber) {
        self.github.merge(REPO, pull, "alice").await.unwrap();
        self.settle().await;
    }

    /// Returns the arguments of all calls of Terraform, one call per line.
    pub fn arguments(&self) -> String {
        std::fs::read_to_string(self.tools.join("arguments")).unwrap_or_default()
    }

    /// Lets the waiting fakes go on.
    pub fn go(&self) {
        std::fs::write(self.tools.join("go"), "").unwrap();
    }

    /// Returns the pull request with its repository.
    pub fn pull_ref(number: PullNumber) -> PullRef {
        PullRef {
            repo: format!("github.test/{REPO}").parse().unwrap(),
            subject: number.into(),
        }
    }
}
