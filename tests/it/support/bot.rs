//! A Lockkeeper that a story runs step by step, beside an emulated GitHub.
//!
//! The store (of either kind), git, the connection to GitHub and the supervisor of runs are real. The clock stands
//! still until the story or a wait moves it. Terraform is the fake of `tests/fakes`, which reads its orders from the
//! files of the pull request.
//!
//! A story ends with [`Bot::end`], which fails when a comment was not read, a job not finished, a lock not expected,
//! or an exchange violates GitHub's description.

mod crash;
mod hosts;
mod webhook_request;

use crate::support::rows::recent_runs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use lockkeeper::app::{self, Replica, ServiceInputs};
use lockkeeper::clock::Clock;
use lockkeeper::config::server::{RawSettings, ServerConfig, secret_files_of_hosts};
use lockkeeper::context::{Ctx, ServerCtx};
use lockkeeper::emulator::{
    AppOptions, Delivering, EmulatedComment, Emulator, NewPull, Options, ReviewState,
};
use lockkeeper::http;
use lockkeeper::model::{CommitSha, Lock, PullNumber};
use lockkeeper::queue::Tick;
use lockkeeper::secret::Secret;
use lockkeeper::store::{JobState, Store};
use lockkeeper::telemetry::Panics;

use super::db::{Backend, TestDb};
use super::openapi::OpenApi;

pub use crash::work_together;
pub use hosts::{OTHER_LOGIN, OTHER_SECRET};
pub use webhook_request::{WebhookRequest, comment_payload};

/// Account of the bot.
pub const LOGIN: &str = "lockbot";
/// Repository of the stories.
pub const REPO: &str = "acme/infra";
/// Prefix of the identifiers of tests. The rest depends on the order of concurrent runs and locks.
const ID_START: &str = "00000000-0000-7000-8000-";
const ID_LENGTH: usize = 36;
const TOKEN: &str = "ghp_the_bots_own_token";
/// Secret of the webhooks of the first GitHub.
pub const SECRET: &str = "the-webhook-secret";
/// Account of a team that has its own credential.
pub const TEAM_LOGIN: &str = "team-bot";
/// Token of the team.
pub const TEAM_TOKEN: &str = "ghp_the_teams_own_token";
/// Private key of the App.
pub const APP_KEY: &str = include_str!("app_key.pem");
const APP_PUBLIC_KEY: &str = include_str!("app_key.pub.pem");

/// A Lockkeeper with its GitHub and its database.
pub struct Bot {
    pub github: Emulator,
    /// The database, the clock and the identifiers.
    pub db: TestDb,
    /// The server, which is gone while crashed.
    pub replica: Arc<Replica>,
    /// Directory with the fake Terraform, the fake conftest and their notes.
    pub tools: PathBuf,
    /// Address that receives webhooks.
    pub events: url::Url,
    /// Account of the bot.
    login: String,
    flags: BTreeMap<String, Vec<String>>,
    webhooks: tokio::task::JoinHandle<()>,
    read: BTreeSet<u64>,
    replicas: u32,
}

impl Bot {
    /// Starts a bot with usual settings, for an `acme/infra` with these files.
    pub async fn new(backend: Backend, files: &[(&str, &str)]) -> Self {
        Self::with(backend, files, &[]).await
    }

    /// Starts a bot with more flags: `("allow-draft-prs", "true")`.
    pub async fn with(backend: Backend, files: &[(&str, &str)], flags: &[(&str, &str)]) -> Self {
        Self::start(backend, files, flags, None).await
    }

    /// Starts a bot that acts as a GitHub App.
    pub async fn as_app(backend: Backend, files: &[(&str, &str)]) -> Self {
        Self::as_app_with(backend, files, &[]).await
    }

    /// Starts a bot with more flags that acts as a GitHub App.
    pub async fn as_app_with(
        backend: Backend,
        files: &[(&str, &str)],
        more: &[(&str, &str)],
    ) -> Self {
        let mut flags = vec![
            ("gh-user", ""),
            ("gh-token", ""),
            ("gh-app-id", "7"),
            ("gh-app-key", APP_KEY),
        ];
        flags.extend_from_slice(more);
        Self::start(
            backend,
            files,
            &flags,
            Some(AppOptions::new(7, LOGIN, 70, APP_PUBLIC_KEY)),
        )
        .await
    }

    /// Starts a bot with its own token, at a GitHub that also has an App. `read_comments` returns the comments of the App.
    pub async fn beside_app(
        backend: Backend,
        files: &[(&str, &str)],
        flags: &[(&str, &str)],
    ) -> Self {
        Self::start(
            backend,
            files,
            flags,
            Some(AppOptions::new(7, LOGIN, 70, APP_PUBLIC_KEY)),
        )
        .await
    }

    async fn start(
        backend: Backend,
        files: &[(&str, &str)],
        flags: &[(&str, &str)],
        app: Option<AppOptions>,
    ) -> Self {
        let db = TestDb::new(backend).await;
        let secret = Secret::new(SECRET);
        let options = Options::new(&db.dir.path().join("github"), db.clock.clone(), secret)
            .with_token(TEAM_LOGIN, Secret::new(TEAM_TOKEN));
        let (options, login) = match app {
            None => (
                options.with_token(LOGIN, Secret::new(TOKEN)),
                LOGIN.to_owned(),
            ),
            Some(app) => (
                options.with_app(app.clone().with_clock(db.clock.clone())),
                app.bot_login(),
            ),
        };
        let github = Emulator::start(options).await.expect("the emulator starts");
        github
            .create_repo(REPO, files)
            .await
            .expect("the repository is made");
        let tools = db.dir.path().join("tools");
        std::fs::create_dir(&tools).expect("a directory can be made");
        for program in ["terraform", "conftest"] {
            std::fs::copy(stand_in(program), tools.join(program))
                .expect("the stand-in can be copied");
        }
        let mut all = usual_flags(&github, &tools, &db);
        all.extend(
            flags
                .iter()
                .map(|(flag, value)| ((*flag).to_owned(), vec![(*value).to_owned()])),
        );
        let replica = build(&db, &all, 1).await;
        let (events, webhooks) = serve_webhooks(&replica).await;
        github.set_webhook_target(events.clone());
        Self {
            github,
            db,
            replica,
            tools,
            events,
            login,
            flags: all,
            webhooks,
            read: BTreeSet::new(),
            replicas: 1,
        }
    }

    /// Returns the store of the server.
    pub fn store(&self) -> &Store {
        &self.replica.ctx.store
    }

    /// Pushes changed files to a branch and opens a pull request from it.
    pub async fn open_pull(&mut self, branch: &str, files: &[(&str, &str)]) -> PullNumber {
        let pull = self.pushed_pull(branch, files).await;
        self.settle().await;
        pull
    }

    /// Opens a pull request with changed files. The server knows of it, and has not begun to plan it.
    pub async fn announce_pull(&self, branch: &str, files: &[(&str, &str)]) -> PullNumber {
        let pull = self.pushed_pull(branch, files).await;
        self.settle_short().await;
        pull
    }

    async fn pushed_pull(&self, branch: &str, files: &[(&str, &str)]) -> PullNumber {
        self.push(branch, files).await;
        let pull = NewPull::from_branch(branch);
        let pull = self.github.open_pull(REPO, pull).await;
        pull.expect("the pull is opened")
    }

    /// Pushes changed files to a branch.
    pub async fn push(&self, branch: &str, files: &[(&str, &str)]) -> CommitSha {
        let changes: Vec<_> = files
            .iter()
            .map(|(path, text)| lockkeeper::emulator::Change::write(path, text))
            .collect();
        self.github
            .push(REPO, branch, &changes)
            .await
            .expect("the push is taken")
    }

    /// Comments as `alice`, and does everything that follows from it.
    pub async fn say(&mut self, pull: PullNumber, text: &str) {
        self.github
            .comment(REPO, pull, "alice", text)
            .await
            .expect("the comment is taken");
        self.settle().await;
    }

    /// Comments as somebody, and does everything that follows from it.
    pub async fn hear(&mut self, pull: PullNumber, who: &str, text: &str) {
        self.github
            .comment(REPO, pull, who, text)
            .await
            .expect("the comment is taken");
        self.settle().await;
    }

    /// Approves a pull request as somebody.
    pub fn approve(&self, pull: PullNumber, who: &str) {
        self.github
            .review(REPO, pull, who, ReviewState::Approved)
            .expect("the review is taken");
    }

    /// Requests changes of a pull request as somebody.
    pub fn ask_for_changes(&self, pull: PullNumber, who: &str) {
        self.github
            .review(REPO, pull, who, ReviewState::ChangesRequested)
            .expect("the review is taken");
    }

    /// Works until nothing is left to do. The clock is moved to the time of waiting jobs.
    pub async fn settle(&self) {
        loop {
            self.github.set_delivering(Delivering::Immediately).await;
            let short = self.replica.tick_short().await.expect("the queue answers");
            let command = self
                .replica
                .tick_command()
                .await
                .expect("the queue answers");
            if short == Tick::Idle && command == Tick::Idle && !self.wait_for_next().await {
                return;
            }
        }
    }

    /// Moves the clock to the next job that waits for its time. Returns `false` if there is none.
    async fn wait_for_next(&self) -> bool {
        let Some(next) = self.next_due().await else {
            return false;
        };
        self.db.clock.advance_to(next);
        true
    }

    /// Returns the time when the next job may run. Only the first job of each lane counts, because the others wait
    /// for it.
    async fn next_due(&self) -> Option<DateTime<Utc>> {
        let open = self
            .store()
            .job_list_open()
            .await
            .expect("the jobs can be listed");
        let mut lanes = BTreeSet::new();
        let heads = open.iter().filter(|job| lanes.insert(&job.lane));
        heads
            .filter(|job| job.state == JobState::Queued)
            .map(|job| job.run_after)
            .min()
    }

    /// Returns the unread comments of the bot on a pull request, oldest first, without their hidden lines.
    pub fn read_comments(&mut self, pull: PullNumber) -> Vec<String> {
        let comments = self.unread(pull);
        self.read.extend(comments.iter().map(|comment| comment.id));
        comments
            .into_iter()
            .map(|comment| without_ids(&without_machine_line(&comment.body)))
            .collect()
    }

    /// Returns the only unread comment of the bot.
    pub fn answer(&mut self, pull: PullNumber) -> String {
        let mut heard = self.read_comments(pull);
        assert_eq!(heard.len(), 1, "expected one comment, heard: {heard:#?}");
        heard.remove(0)
    }

    /// Returns the hidden line of the newest comment of the bot, without identifiers.
    pub fn machine_line(&self, pull: PullNumber) -> String {
        let comments = self.github.comments(REPO, pull).expect("the pull exists");
        let own = comments
            .iter()
            .rev()
            .find(|comment| comment.author == self.login)
            .expect("the bot has commented");
        without_ids(own.body.lines().next_back().unwrap_or_default())
    }

    fn unread(&self, pull: PullNumber) -> Vec<EmulatedComment> {
        let comments = self.github.comments(REPO, pull).expect("the pull exists");
        comments
            .into_iter()
            .filter(|comment| comment.author == self.login && !self.read.contains(&comment.id))
            .collect()
    }

    /// Returns `context: state, description` of every status of the head commit, one per line.
    pub fn statuses(&self, pull: PullNumber) -> String {
        let head = self.github.pull(REPO, pull).expect("the pull exists").head;
        let statuses = self
            .github
            .statuses(REPO, &head)
            .expect("the commit exists");
        let line = |status: &lockkeeper::emulator::ShaStatus| {
            let description = status.description.as_deref().unwrap_or_default();
            format!("{}: {:?}, {description}\n", status.context, status.state)
        };
        let mut lines: Vec<String> = statuses.latest.iter().map(line).collect();
        lines.sort();
        lines.concat()
    }

    /// Returns every lock as `owner/repo/dir/workspace by #pull`.
    pub async fn locks(&self) -> Vec<String> {
        let mut locks = self
            .store()
            .lock_list()
            .await
            .expect("the locks can be listed");
        locks.sort_by(|a, b| a.key.cmp(&b.key));
        locks
            .iter()
            .map(|lock: &Lock| format!("{} by #{}", lock.key, lock.pull.subject))
            .collect()
    }

    /// Returns the calls of Terraform in order: `init network`, `plan network`.
    pub fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.tools.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Starts to work on the next command without waiting for its end.
    pub fn begin_command(&self) -> tokio::task::JoinHandle<Tick> {
        let replica = Arc::clone(&self.replica);
        tokio::spawn(async move { replica.tick_command().await.expect("the queue answers") })
    }

    /// Processes deliveries, comments and statuses, but no command.
    pub async fn settle_short(&self) {
        loop {
            self.github.set_delivering(Delivering::Immediately).await;
            if self.replica.tick_short().await.expect("the queue answers") == Tick::Idle {
                return;
            }
        }
    }

    /// Waits until some run has printed a line that contains the text.
    pub async fn printed(&self, text: &str) {
        let mut news = self.replica.ctx.runs.hub.subscribe();
        loop {
            for run in recent_runs(self.store(), 50).await {
                if self
                    .store()
                    .run_output(run.id)
                    .await
                    .expect("the output can be read")
                    .contains(text)
                {
                    return;
                }
            }
            news.recv().await.expect("the hub lives as long as the bot");
        }
    }

    /// Ends the process between two instructions: its unfinished work stays as it is in the database. The server that
    /// takes over is another replica. Leases of the dead one are over.
    pub async fn crash_and_restart(&mut self) {
        self.webhooks.abort();
        self.db.end_statements().await;
        self.replicas += 1;
        self.db.clock.advance(lockkeeper::queue::LEASE * 2);
        self.replica = build(&self.db, &self.flags, self.replicas).await;
        (self.events, self.webhooks) = serve_webhooks(&self.replica).await;
        self.github.set_webhook_target(self.events.clone());
        self.replica
            .tick("orphans")
            .await
            .expect("the queue answers");
    }

    /// Changes a setting, from the next start of the server on.
    pub fn configure(&mut self, flag: &str, value: &str) {
        self.flags.insert(flag.to_owned(), vec![value.to_owned()]);
    }

    /// Ends the story. `locks` are those that may remain.
    pub async fn end(self, locks: &[&str]) {
        self.end_given_up(locks, &[]).await;
    }

    /// Ends a story in which jobs of these kinds were given up, in this order.
    pub async fn end_given_up(mut self, locks: &[&str], kinds: &[&str]) {
        self.settle().await;
        let open = self
            .store()
            .job_list_open()
            .await
            .expect("the jobs can be listed");
        assert!(open.is_empty(), "jobs are not finished: {open:#?}");
        let (failed, _) = self
            .store()
            .job_list_failed_since(DateTime::UNIX_EPOCH, 100)
            .await
            .expect("the jobs can be listed");
        let given_up: Vec<&str> = failed.iter().rev().map(|job| job.kind.as_str()).collect();
        assert_eq!(given_up, kinds, "jobs were given up: {failed:#?}");
        let mut number = 1;
        while self.github.pull(REPO, PullNumber(number)).is_ok() {
            let unread: Vec<String> = self.read_comments(PullNumber(number));
            assert!(
                unread.is_empty(),
                "nobody has read these comments of #{number}: {unread:#?}"
            );
            number += 1;
        }
        assert_eq!(
            self.locks().await,
            locks,
            "locks remain that the story does not explain"
        );
        assert_eq!(
            self.github.faults_left(),
            0,
            "a fault was ordered that did not happen"
        );
        let requests = self.github.requests();
        if requests
            .iter()
            .any(|request| request.is_api && request.fault.is_none())
        {
            OpenApi::github().check_all(&requests);
        }
        self.webhooks.abort();
    }
}

fn stand_in(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fakes")
        .join(program)
}

fn usual_flags(
    github: &Emulator,
    tools: &std::path::Path,
    db: &TestDb,
) -> BTreeMap<String, Vec<String>> {
    let data = db.dir.path().join("data");
    [
        ("repo-allowlist", "github.test/acme/*"),
        ("gh-hostname", "github.test"),
        ("gh-api-url", &github.api_url()),
        ("gh-user", LOGIN),
        ("gh-token", TOKEN),
        ("gh-webhook-secret", SECRET),
        ("atlantis-url", "https://locks.example.com"),
        ("data-dir", &data.display().to_string()),
        (
            "share-plan-dir",
            &db.dir.path().join("plans").display().to_string(),
        ),
        ("tf-bin-dir", &tools.display().to_string()),
        // Applications are planned and applied by people who have signed in.
        ("web-basic-auth", "true"),
        ("web-username", "ops"),
        ("web-password", "correct horse battery"),
        // The fake writes its notes there.
        ("sandbox-write", &tools.display().to_string()),
        // Missing programs are not downloaded.
        ("tf-download", "false"),
        ("shutdown-grace", "2s"),
        // Reactions are one more request for every comment, which only the stories about them test.
        ("emoji-reaction", "none"),
    ]
    .map(|(flag, value)| (flag.to_owned(), vec![value.to_owned()]))
    .into()
}

async fn build(db: &TestDb, flags: &BTreeMap<String, Vec<String>>, number: u32) -> Arc<Replica> {
    let (ctx, name) = services(db, flags, number).await;
    Arc::new(Replica::new(ctx, &name))
}

async fn services(
    db: &TestDb,
    flags: &BTreeMap<String, Vec<String>>,
    number: u32,
) -> (Arc<ServerCtx>, String) {
    services_with(db, &config_of(flags), number).await
}

/// Reads the settings of a server from its flags.
fn config_of(flags: &BTreeMap<String, Vec<String>>) -> ServerConfig {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let files = ["repo-config", "gh-hosts-file"].map(|flag| {
        let path = flags.get(flag)?.last()?;
        Some((flag.to_owned(), read(path.as_ref())))
    });
    let raw = RawSettings {
        flags: flags.clone(),
        files: files.into_iter().flatten().collect(),
        ..RawSettings::default()
    };
    let secrets = secret_files_of_hosts(&raw).into_iter().map(|path| {
        let secret = read(&path).map(|text| Secret::new(&text));
        (path, secret)
    });
    let raw = RawSettings {
        secret_files: secrets.collect(),
        ..raw
    };
    let (config, _) =
        ServerConfig::from_raw(&raw, Vec::new()).unwrap_or_else(|errors| panic!("{errors}"));
    config
}

async fn services_with(
    db: &TestDb,
    config: &ServerConfig,
    number: u32,
) -> (Arc<ServerCtx>, String) {
    let parts = ServiceInputs {
        clock: db.clock.clone() as Arc<dyn Clock>,
        ids: db.ids.clone(),
        exe: env!("CARGO_BIN_EXE_lockkeeper").into(),
        environment: BTreeMap::from(
            [
                ("PATH", "/usr/local/bin:/usr/bin:/bin"),
                ("HOME", "/nonexistent"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        ),
        panics: Panics::new(db.clock.clone()),
        name: format!("replica-{number}"),
    };
    let name = parts.name.clone();
    let store = db.reopen().await;
    (
        app::build_on(config, parts, store)
            .await
            .expect("the services can be built"),
        name,
    )
}

/// Listens for deliveries. Returns the address and the task that listens.
async fn serve_webhooks(replica: &Arc<Replica>) -> (url::Url, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    let address = listener.local_addr().expect("a listener has an address");
    let router = http::webhook_router(Ctx::clone(&replica.ctx));
    let webhooks = tokio::spawn(async move {
        axum::serve(listener, router)
            .await
            .expect("the server listens");
    });
    (
        format!("http://{address}/events")
            .parse()
            .expect("an address makes a URL"),
        webhooks,
    )
}

/// Replaces every identifier with `ID`.
pub fn without_ids(text: &str) -> String {
    let mut parts = text.split(ID_START);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + "ID" + &part[ID_LENGTH - ID_START.len()..]
    })
}

fn without_machine_line(body: &str) -> String {
    let lines: Vec<&str> = body
        .lines()
        .filter(|line| !line.starts_with("<!-- lockkeeper "))
        .collect();
    lines.join("\n").trim_end().to_owned()
}
