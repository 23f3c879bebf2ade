//! What people do in these stories, and the comments as they read them.

use lockkeeper::emulator::{Change, NewPull};
use lockkeeper::model::{PullNumber, PullRef};

use crate::support::bot::{Bot, REPO};

impl Bot {
    /// The one comment that the story has not read yet, as people see it but for what differs from run to run.
    pub fn comment(&mut self, pull: PullNumber) -> String {
        let answer = self.answer(pull);
        self.plain(&answer)
    }

    /// Every comment that the story has not read yet.
    pub fn comments(&mut self, pull: PullNumber) -> Vec<String> {
        let heard = self.heard(pull);
        heard.iter().map(|comment| self.plain(comment)).collect()
    }

    /// Replaces the port of the forge and temporary directories.
    pub fn plain(&self, text: &str) -> String {
        let text = text.replace(self.github.base_url(), "https://github.test");
        text.replace(&self.db.dir.path().display().to_string(), "/srv")
    }

    /// Pushes changed files to a branch, and everything that follows from it is done.
    pub async fn update(&mut self, branch: &str, files: &[(&str, &str)]) {
        self.push(branch, files).await;
        self.settle().await;
    }

    /// Pushes other changes than new content, and everything that follows from it is done.
    pub async fn change(&mut self, branch: &str, changes: &[Change]) {
        self.github.push(REPO, branch, changes).await.unwrap();
        self.settle().await;
    }

    /// Opens a pull request, and everything that follows from it is done.
    pub async fn open(&mut self, pull: NewPull) -> PullNumber {
        let number = self.github.open_pull(REPO, pull).await.unwrap();
        self.settle().await;
        number
    }

    /// `alice` closes a pull request, and everything that follows from it is done.
    pub async fn close(&mut self, pull: PullNumber) {
        self.github.close(REPO, pull, "alice").await.unwrap();
        self.settle().await;
    }

    /// `alice` opens a closed pull request again, and everything that follows from it is done.
    pub async fn reopen(&mut self, pull: PullNumber) {
        self.github.reopen(REPO, pull, "alice").await.unwrap();
        self.settle().await;
    }

    /// `alice` merges a pull request, and everything that follows from it is done.
    pub async fn merge(&mut self, pull: PullNumber) {
        self.github.merge(REPO, pull, "alice").await.unwrap();
        self.settle().await;
    }

    /// With which arguments Terraform was called, a line for each call.
    pub fn arguments(&self) -> String {
        std::fs::read_to_string(self.tools.join("arguments")).unwrap_or_default()
    }

    /// Lets the stand-ins go on that were told to wait.
    pub fn go(&self) {
        std::fs::write(self.tools.join("go"), "").unwrap();
    }

    /// The pull with its repository.
    pub fn pull_ref(number: PullNumber) -> PullRef {
        PullRef {
            repo: format!("github.test/{REPO}").parse().unwrap(),
            number,
        }
    }
}
