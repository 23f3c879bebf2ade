//! A GitHub with one repository, a server that works for it, and people who comment.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chrono::DateTime;
use lockkeeper::clock::{RandomIds, SystemClock};
use lockkeeper::emulator::{
    AppOptions, Change, Delivering, EmulatedComment, Emulator, NewPull, Options, StatusState,
};
use lockkeeper::features::replies::{RemoveDuplicates, RepeatStatus};
use lockkeeper::model::{CommitSha, Lock, PlanRecord, PullNumber, PullRef};
use lockkeeper::queue::Job as _;
use lockkeeper::render::{MachineLine, MachineProject, PartLine};
use lockkeeper::secret::Secret;
use lockkeeper::store::{JobState, JobView, Store};
use tempfile::TempDir;

use crate::support::openapi::OpenApi;
use crate::support::server::{
    APP_ID, BOT, HOST, LOOK, Server, Settings, TOKEN, WEBHOOK_SECRET, within,
};

const APP_PUBLIC_KEY: &str = include_str!("../support/app_key.pub.pem");

/// Repository of every story.
pub const REPO: &str = "acme/infra";

/// A GitHub, a server, and the comments that the story has read.
pub struct World {
    pub github: Emulator,
    pub server: Server,
    /// Directory of states and of other files of a story, outside of the server's directory.
    pub dir: TempDir,
    bot: String,
    read: Mutex<BTreeMap<PullNumber, u64>>,
    lost: AtomicUsize,
}

/// A comment of the bot, with its hidden line.
#[derive(Debug)]
pub struct BotComment {
    /// Markdown of the comment.
    pub text: String,
    /// Hidden line of the comment.
    pub line: MachineLine,
}

impl BotComment {
    /// Returns `command outcome | dir workspace outcome | …` from the hidden line.
    pub fn outcome(&self) -> String {
        let outcome = |p: &MachineProject| p.outcome.map_or("-", |outcome| outcome.as_str());
        let projects = self
            .line
            .projects
            .iter()
            .map(|p| format!(" | {} {} {}", p.dir, p.workspace, outcome(p)));
        let reason = self
            .line
            .reason
            .as_ref()
            .map(|reason| format!(" ({reason})"))
            .unwrap_or_default();
        let what = self.line.command.map_or_else(
            || self.line.event.clone().unwrap_or_default(),
            |it| it.to_string(),
        );
        format!(
            "{what} {}{reason}{}",
            self.line.outcome,
            projects.collect::<String>()
        )
    }

    /// Asserts the outcome of the command.
    #[track_caller]
    pub fn is(&self, outcome: &str) -> &Self {
        assert_eq!(self.outcome(), outcome, "in:\n{}", self.text);
        self
    }

    /// Asserts that the comment contains this text.
    #[track_caller]
    pub fn says(&self, part: &str) -> &Self {
        assert!(
            self.text.contains(part),
            "`{part}` is not in:\n{}",
            self.text
        );
        self
    }
}

/// Returns true if a job waits some minutes to see whether a request has arrived late.
fn looks_again(job: &JobView) -> bool {
    let kinds = [RemoveDuplicates::KIND, RepeatStatus::KIND];
    job.state == JobState::Queued && kinds.contains(&job.kind.as_str())
}

impl World {
    /// Starts with a repository that has these files on `main`, and a server with the default settings.
    pub async fn start(files: impl FnOnce(&Files) -> Vec<(&'static str, String)>) -> Self {
        Self::start_with(Settings::default(), files).await
    }

    /// Starts with a repository that has these files on `main`, and a server with other settings.
    pub async fn start_with(
        settings: Settings,
        files: impl FnOnce(&Files) -> Vec<(&'static str, String)>,
    ) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("lockkeeper-world-")
            .tempdir()
            .expect("a temporary directory");
        let forge = dir.path().join("forge");
        let options = Options::new(&forge, Arc::new(SystemClock), Secret::new(WEBHOOK_SECRET));
        let (options, bot) = if settings.is_app() {
            let app = AppOptions::new(APP_ID, "lockkeeper", 70, APP_PUBLIC_KEY);
            (options.with_app(app.clone()), app.bot_login())
        } else {
            (options.with_token(BOT, Secret::new(TOKEN)), BOT.to_owned())
        };
        let github = Emulator::start(options).await.expect("it starts");
        let files = files(&Files {
            states: dir.path().join("states"),
        });
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (*path, text.as_str()))
            .collect();
        github.create_repo(REPO, &files).await.expect("it is new");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777))
            .expect("the directory is ours");
        let server = Server::start(&github, settings.writes(dir.path())).await;
        Self {
            github,
            server,
            dir,
            bot,
            read: Mutex::default(),
            lost: AtomicUsize::default(),
        }
    }

    /// Returns the directory of states and other files of the story.
    pub fn files(&self) -> Files {
        Files {
            states: self.dir.path().join("states"),
        }
    }

    /// Pushes a commit with one file to a branch.
    pub async fn push(&self, branch: &str, path: &str, content: &str) -> CommitSha {
        self.github
            .push(REPO, branch, &[Change::write(path, content)])
            .await
            .expect("a push")
    }

    /// Pushes a commit with these files to a new branch and opens a pull request.
    pub async fn open(&self, branch: &str, files: &[(&str, &str)]) -> PullNumber {
        let changes: Vec<Change> = files
            .iter()
            .map(|(path, text)| Change::write(path, text))
            .collect();
        self.github
            .push(REPO, branch, &changes)
            .await
            .expect("a push");
        self.github
            .open_pull(REPO, NewPull::from_branch(branch))
            .await
            .expect("a pull")
    }

    /// Pushes a commit with these changes to a new branch and opens a pull request.
    pub async fn open_with(&self, branch: &str, changes: &[Change]) -> PullNumber {
        self.github
            .push(REPO, branch, changes)
            .await
            .expect("a push");
        self.github
            .open_pull(REPO, NewPull::from_branch(branch))
            .await
            .expect("a pull")
    }

    /// Comments as a developer.
    pub async fn comment(&self, pull: PullNumber, text: &str) {
        self.github
            .comment(REPO, pull, "alice", text)
            .await
            .expect("a comment");
    }

    /// Comments as a developer and returns the answer of the bot.
    pub async fn ask(&self, pull: PullNumber, text: &str) -> BotComment {
        self.comment(pull, text).await;
        self.answer(pull).await
    }

    /// Waits for the next comment of the bot that the story has not read yet.
    pub async fn answer(&self, pull: PullNumber) -> BotComment {
        let text = self.next_comment(pull).await.body;
        let line = MachineLine::find(&text).unwrap_or_else(|| panic!("no hidden line in:\n{text}"));
        BotComment { text, line }
    }

    /// Waits for the next comment, which must be one part of a longer answer.
    pub async fn part(&self, pull: PullNumber) -> (PartLine, Option<MachineLine>) {
        let text = self.next_comment(pull).await.body;
        let part = PartLine::find(&text).unwrap_or_else(|| panic!("no hidden line in:\n{text}"));
        (part, MachineLine::find(&text))
    }

    async fn next_comment(&self, pull: PullNumber) -> EmulatedComment {
        let after = self.read().get(&pull).copied().unwrap_or(0);
        let comment = self.github.comment_by(REPO, pull, &self.bot, after);
        let comment = within("the answer of the bot", comment)
            .await
            .expect("the pull exists");
        self.read().insert(pull, comment.id);
        comment
    }

    fn read(&self) -> std::sync::MutexGuard<'_, BTreeMap<PullNumber, u64>> {
        self.read
            .lock()
            .expect("no test panics while it holds the list")
    }

    /// Returns all comments of the bot on a pull request.
    pub fn said(&self, pull: PullNumber) -> Vec<EmulatedComment> {
        let comments = self.github.comments(REPO, pull).expect("the pull exists");
        comments
            .into_iter()
            .filter(|comment| comment.author == self.bot)
            .collect()
    }

    /// Loses the webhooks of the next events.
    pub async fn lose_webhooks(&self) {
        self.github.set_delivering(Delivering::Held).await;
    }

    /// Delivers webhooks again. Those of the meantime are lost.
    pub async fn keep_webhooks(&self) {
        while self.github.lose_next().is_some() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.github.set_delivering(Delivering::Immediately).await;
    }

    /// Returns the newest commit of a pull request.
    pub fn head(&self, pull: PullNumber) -> CommitSha {
        self.github.pull(REPO, pull).expect("the pull exists").head
    }

    /// Waits for the state of a status on the head of a pull request, and returns its line.
    pub async fn status(&self, pull: PullNumber, context: &str, state: StatusState) -> String {
        let head = self.head(pull);
        let look = |github: &Emulator| {
            let statuses = github.statuses(REPO, &head).expect("the repository exists");
            let status = statuses
                .of(context)
                .filter(|status| status.state == state)?;
            Some(status.description.clone().unwrap_or_default())
        };
        within(
            &format!("{context} {}", state.as_str()),
            self.github.wait_for(look),
        )
        .await
    }

    /// Waits until no status of the head of a pull request is pending.
    pub async fn settled(&self, pull: PullNumber) {
        let head = self.head(pull);
        let look = |github: &Emulator| {
            let statuses = github
                .statuses(REPO, &head)
                .expect("the repository exists")
                .latest;
            statuses
                .iter()
                .all(|status| status.state != StatusState::Pending)
                .then_some(())
        };
        within(
            "the end of every pending status",
            self.github.wait_for(look),
        )
        .await;
    }

    /// Opens the server's database.
    pub async fn store(&self) -> Store {
        let store = Store::open(
            &self.server.database(),
            Arc::new(SystemClock),
            Arc::new(RandomIds),
        )
        .await;
        store.expect("the database of the server opens")
    }

    /// Returns every lock as `#1 dir workspace`.
    pub async fn locks(&self) -> Vec<String> {
        let store = self.store().await;
        let mut locks: Vec<String> = store
            .lock_list()
            .await
            .expect("locks")
            .iter()
            .map(shown)
            .collect();
        store.close().await;
        locks.sort();
        locks
    }

    /// Returns the current plans of a pull request.
    pub async fn plans(&self, pull: PullNumber) -> Vec<PlanRecord> {
        let store = self.store().await;
        let plans = store.plan_list(&Self::pull_ref(pull)).await.expect("plans");
        store.close().await;
        plans
    }

    /// Waits until the checkouts of closed pull requests are gone from the disk.
    pub async fn cleaned(&self) {
        let checkouts = self
            .server
            .data_dir()
            .join(format!("checkouts/{HOST}/{REPO}"));
        let left =
            || std::fs::read_dir(&checkouts).is_ok_and(|mut entries| entries.next().is_some());
        within("the cleaning of the disk", async {
            while left() {
                tokio::time::sleep(LOOK).await;
            }
        })
        .await;
    }

    /// Returns the reference with which the server names the pull request.
    pub fn pull_ref(number: PullNumber) -> PullRef {
        PullRef {
            repo: format!("{HOST}/{REPO}").parse().expect("a repository"),
            subject: number.into(),
        }
    }

    /// Waits until every webhook has arrived and all work that followed from it is done.
    async fn idle(&self) {
        let store = self.store().await;
        let unsent = || {
            self.github
                .deliveries()
                .iter()
                .filter(|delivery| delivery.attempts.is_empty())
                .count()
        };
        let arrived = || unsent() == self.lost.load(Ordering::Relaxed);
        within("the end of all work", async {
            loop {
                let open = store.job_list_open().await.expect("jobs");
                if arrived() && open.iter().all(looks_again) {
                    break;
                }
                tokio::time::sleep(LOOK).await;
            }
        })
        .await;
        store.close().await;
    }

    /// Ends the story. Every comment of the bot was read, no job is left or was given up, every lock is expected, no
    /// process is left, no credential leaked, and GitHub's API was used as it is described.
    pub async fn finish(mut self, locks: &[&str]) {
        if !self.server.is_running() {
            self.server.restart().await;
        }
        self.idle().await;
        self.server.finish().await;
        let store = self.store().await;
        let (given_up, _) = store
            .job_list_failed_since(DateTime::UNIX_EPOCH, 100)
            .await
            .expect("jobs");
        assert_eq!(jobs(&given_up), [""; 0], "jobs were given up");
        store.close().await;
        assert_eq!(self.locks().await, locks);
        let read = self.read().clone();
        for number in (1..)
            .map(PullNumber)
            .take_while(|number| self.github.pull(REPO, *number).is_ok())
        {
            let last = read.get(&number).copied().unwrap_or(0);
            let unread: Vec<EmulatedComment> = self
                .said(number)
                .into_iter()
                .filter(|comment| comment.id > last)
                .collect();
            assert_eq!(
                unread,
                [],
                "the bot said something that the story has not read"
            );
        }
        OpenApi::github().check_all(&self.github.requests());
    }
}

fn shown(lock: &Lock) -> String {
    format!(
        "#{} {} {}",
        lock.pull.subject, lock.key.dir, lock.key.workspace
    )
}

fn jobs(jobs: &[lockkeeper::features::operations::FailedJob]) -> Vec<String> {
    jobs.iter()
        .map(|job| format!("{} in {}: {:?}", job.kind, job.lane, job.last_error))
        .collect()
}

/// Terraform code for stories. Each directory keeps its state outside of any checkout, as real backends do.
pub struct Files {
    states: PathBuf,
}

impl Files {
    /// Returns the backend of a directory.
    pub fn backend(&self, name: &str) -> String {
        let states = self.states.display();
        format!(
            "terraform {{\n  backend \"local\" {{\n    path = \"{states}/{name}.tfstate\"\n    \
             workspace_dir = \"{states}/{name}.d\"\n  }}\n}}\n"
        )
    }

    /// Returns the state of a directory, of `default` unless a workspace is named. Empty if there is none.
    pub fn state(&self, name: &str, workspace: Option<&str>) -> String {
        let path = match workspace {
            None => self.states.join(format!("{name}.tfstate")),
            // Terraform names the file by its base name.
            Some(workspace) => self
                .states
                .join(format!("{name}.d"))
                .join(workspace)
                .join("terraform.tfstate"),
        };
        std::fs::read_to_string(path).unwrap_or_default()
    }
}

/// Returns code of a resource that only stores a value.
pub fn resource(name: &str, value: &str) -> String {
    format!("resource \"terraform_data\" \"{name}\" {{\n  input = {value}\n}}\n")
}
