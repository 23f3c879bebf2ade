//! A server without a socket, a database in a file, and a browser that remembers its cookie.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::middleware::map_request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use lockkeeper::authz::{AuthzError, Decision, OutsideScope, Resource, by_web, web_offers, within};
use lockkeeper::claims::CredentialStore;
use lockkeeper::clock::{Clock, CountingIds, Ids, ManualClock};
use lockkeeper::config::access::{Action, Identity, NetworkRequester, WebAccounts, WebRules};
use lockkeeper::config::server::{Periods, TrustedProxies, WebHosts};
use lockkeeper::context::{FileState, LiveAccounts};
use lockkeeper::features::accounts::WebPasswords;
use lockkeeper::features::locks::hand_over;
use lockkeeper::http::router;
use lockkeeper::kit::web::{
    Authority, Cancel, Cancelling, HandOverLocks, WebAuth, WebParts, WebState,
};
use lockkeeper::locks::{HandOver, HandOverOutcome, LockRequest, QueuedPlan, take_all};
use lockkeeper::model::{
    Actor, BranchName, Cause, CommandId, CommandKind, CommandOutcome, CommitSha, Distribution,
    ForgeHosts, Lock, LockKey, PlanCounts, PlanId, PlanRecord, PlanState, ProjectKey,
    ProjectOutcome, PullRef, PullState, RepoId, RunId, RunKind, Sha256Digest, Subject,
};
use lockkeeper::queue::WakeUp;
use lockkeeper::seal::{Keyring, SigningKey, key_line};
use lockkeeper::secret::Secret;
use lockkeeper::store::{
    CancelTarget, Cancelled, CommandRow, CreateCommand, DatabaseUrl, FinishedCommand, LockAttempt,
    NewCommand, NewJob, NewRun, OutputPiece, PlanParts, RecordPlan, Store, TakeLock,
};
use lockkeeper::telemetry::Metrics;
use lockkeeper::workflow::OutputHub;
use lockkeeper_policy::sets::PolicySet;
use lockkeeper_policy::verdict::Verdict;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::support::db::Backend;
use crate::support::postgres::{self, Content};

/// Cookie of every test's browser, so that the token of its forms is always the same.
pub const SESSION: &str = "5e5510n05e5510n05e5510n05e5510n05e5510n05e5510n05e5510n05e5510n0";
pub const KEY: &str = "the key of the tests";
/// Account for the whole server.
pub const OPS: (&str, &str) = ("ops", "correct horse battery ü");

pub struct World {
    pub store: Store,
    /// Address for programs that open the database themselves.
    pub url: DatabaseUrl,
    pub clock: Arc<ManualClock>,
    pub ids: Arc<CountingIds>,
    pub hub: OutputHub,
    pub stop: CancellationToken,
    pub metrics: Metrics,
    pub repo_config: Option<FileState>,
    pub without_effect: Vec<String>,
    /// Policy sets that are configured now.
    pub policy_sets: Vec<PolicySet>,
    /// Permissions of the pages and the API (`--web-allow`).
    pub web_rules: WebRules,
    /// Content of the file of accounts that are limited to owners (`--web-accounts-file`).
    pub web_accounts: &'static str,
    /// Proxies that are believed about the address of a client.
    pub trusted_proxies: TrustedProxies,
    pub denials: Denials,
    dir: Arc<TempDir>,
}

pub struct Browser {
    app: Router,
    /// Accounts of the server that are limited to owners.
    pub accounts: Arc<LiveAccounts>,
    https: bool,
    authorization: Option<String>,
    cookie: Option<String>,
    /// Directory of the database, which lives as long as a browser may use it.
    kept: Arc<TempDir>,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

/// Hands locks over. No server posts the notices.
struct PlainHandOver(Store, Arc<ManualClock>, Arc<CountingIds>);

#[async_trait]
impl HandOverLocks for PlainHandOver {
    async fn hand_over(&self, request: &HandOver) -> Result<HandOverOutcome, sqlx::Error> {
        assert!(!request.actor.login.is_empty());
        hand_over(&self.0, request, CommandId::next(&*self.2), self.1.now()).await
    }
}

/// Denied actions, and the addresses of the clients.
pub type Denials = Arc<Mutex<Vec<String>>>;

/// Permissions that the pages know: `--web-allow`, and the accounts that are limited to owners.
struct PlainAuthority {
    store: Store,
    rules: WebRules,
    accounts: Arc<LiveAccounts>,
    denials: Denials,
}

#[async_trait]
impl Authority for PlainAuthority {
    async fn check(
        &self,
        who: &NetworkRequester,
        action: Action,
        on: &Resource<'_>,
    ) -> Result<Decision, AuthzError> {
        let decision = by_web(
            &self.store,
            &self.rules,
            &self.accounts.now(),
            &who.who,
            action,
            on,
        )
        .await?;
        if decision != Decision::Granted {
            self.denials
                .lock()
                .unwrap()
                .push(format!("{action} from {:?}", who.remote));
        }
        Ok(decision)
    }

    async fn within(
        &self,
        user: &str,
        on: &Resource<'_>,
    ) -> Result<Result<(), OutsideScope>, AuthzError> {
        within(&self.store, &self.accounts.now(), user, on).await
    }

    /// Returns the usual branch of every repository, because there is no forge.
    async fn default_branch(&self, _repo: &RepoId) -> Result<BranchName, AuthzError> {
        Ok(BranchName::new("main").unwrap())
    }

    fn offers(&self, who: &Identity, action: Action) -> bool {
        web_offers(&self.rules, &self.accounts.now(), who.name(), action)
    }
}

/// Cancels commands without a notice.
struct PlainCancel(Store);

#[async_trait]
impl Cancel for PlainCancel {
    async fn cancel(
        &self,
        id: CommandId,
        who: &Actor,
        force: bool,
    ) -> Result<Cancelling, sqlx::Error> {
        let why = format!("`{}` cancelled it {}", who.login, who.origin.way());
        let end = |row: &CommandRow| {
            let (outcome, result) = (
                CommandOutcome::Refused,
                Some(format!("{why} before its turn came.")),
            );
            FinishedCommand {
                id: row.id,
                outcome,
                reason: None,
                result,
                outbox: Vec::new(),
                comments: 0,
            }
        };
        let ends = |cancelled: &Cancelled| cancelled.dropped.iter().map(end).collect();
        let cancelled = self
            .0
            .command_cancel(CancelTarget::One(id), &why, force, ends)
            .await?;
        Ok(
            match (
                cancelled.dropped.len(),
                cancelled.interrupted.len(),
                cancelled.spared.len(),
            ) {
                (1, ..) => Cancelling::Dropped,
                (_, 1, _) => Cancelling::Interrupted,
                (_, _, 1) => Cancelling::ApplyRunning,
                _ => Cancelling::Over,
            },
        )
    }
}

impl World {
    pub async fn new() -> Self {
        Self::on(Backend::Sqlite).await
    }

    /// Creates a world with a database of this kind.
    pub async fn on(backend: Backend) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let start = DateTime::parse_from_rfc3339("2026-03-04T05:06:07Z")
            .unwrap()
            .to_utc();
        let (clock, ids) = (
            Arc::new(ManualClock::new(start)),
            Arc::new(CountingIds::default()),
        );
        let url = match backend {
            Backend::Sqlite => DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db")),
            Backend::Postgres => postgres::new_database(Content::Migrated).await,
        };
        let store = Store::open(
            &url,
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::clone(&ids) as Arc<dyn Ids>,
        )
        .await
        .unwrap();
        store.setting_get_or_insert("csrf_key", KEY).await.unwrap();
        let (hub, stop) = (OutputHub::default(), CancellationToken::new());
        let (web_rules, web_accounts, trusted_proxies) =
            (WebRules::default(), "", TrustedProxies::default());
        let (denials, metrics) = (Denials::default(), Metrics::default());
        let (repo_config, dir) = (None, Arc::new(dir));
        Self {
            store,
            url,
            clock,
            ids,
            hub,
            stop,
            metrics,
            repo_config,
            without_effect: Vec::new(),
            policy_sets: Vec::new(),
            web_rules,
            web_accounts,
            trusted_proxies,
            denials,
            dir,
        }
    }

    /// Returns a browser that has signed in with the account for the whole server.
    pub async fn browser(&self) -> Browser {
        self.browser_with(Some(OPS), "https://locks.example").await
    }

    /// Returns a browser at a server on which nobody signs in.
    pub async fn anonymous(&self) -> Browser {
        self.browser_with(None, "https://locks.example").await
    }

    /// Returns a browser with an account that is limited to owners. Scripts are [`Browser::without_cookie`].
    pub async fn browser_of(&self, user: &str, password: &str) -> Browser {
        let mut browser = self.browser().await;
        browser.authorization = Some(basic(user, password));
        browser
    }

    pub async fn browser_with(&self, auth: Option<(&str, &str)>, public_url: &str) -> Browser {
        self.browser_and(auth, public_url, self.hand_over()).await
    }

    pub async fn browser_and(
        &self,
        auth: Option<(&str, &str)>,
        public_url: &str,
        hand_over: Arc<dyn HandOverLocks>,
    ) -> Browser {
        let accounts = self.accounts(auth.map_or("", |(user, _)| user));
        let app = self
            .app(auth, public_url, hand_over, Arc::clone(&accounts))
            .await;
        let https = public_url.starts_with("https");
        let name = if https {
            "__Host-lockkeeper"
        } else {
            "lockkeeper"
        };
        let cookie = Some(format!("{name}={}", SESSION.replace(['n', '5'], "f")));
        Browser {
            app,
            accounts,
            https,
            authorization: auth.map(|(user, password)| basic(user, password)),
            cookie,
            kept: Arc::clone(&self.dir),
        }
    }

    /// Returns a router on which every request carries the password.
    pub async fn signed_in_app(&self) -> Router {
        let app = self
            .app(
                Some(OPS),
                "http://127.0.0.1",
                self.hand_over(),
                self.accounts(OPS.0),
            )
            .await;
        app.layer(map_request(|mut request: Request<Body>| async move {
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, basic(OPS.0, OPS.1).parse().unwrap());
            request
        }))
    }

    /// Returns the permissions on a server with or without a password.
    fn rules(&self, has_password: bool) -> WebRules {
        match has_password {
            true => self.web_rules.clone(),
            false if self.web_rules == WebRules::default() => WebRules::read_only(),
            false => self.web_rules.clone().without_account(),
        }
    }

    /// Returns the credentials of owners, with a key to encrypt them.
    pub fn credentials(&self) -> CredentialStore {
        let line = key_line(
            &"2026".parse().unwrap(),
            b"0123456789abcdef0123456789abcdef",
        );
        let keys = Keyring::parse(line.expose()).unwrap();
        CredentialStore::new(
            self.store.clone(),
            Arc::clone(&self.ids) as Arc<dyn Ids>,
            Some(Arc::new(keys)),
        )
    }

    /// Seals the audit log, as a server does every few seconds. The key is always the same.
    pub async fn seal_log(&self) {
        let key = SigningKey::from_secret(&Secret::new(&STANDARD.encode([7; 32]))).unwrap();
        self.store
            .audit_key_add(key.public(), None, None)
            .await
            .unwrap();
        let _sealed = self
            .store
            .lock_event_seal(&key, None, 10_000)
            .await
            .unwrap();
    }

    fn hand_over(&self) -> Arc<dyn HandOverLocks> {
        Arc::new(PlainHandOver(
            self.store.clone(),
            Arc::clone(&self.clock),
            Arc::clone(&self.ids),
        ))
    }

    fn accounts(&self, main: &str) -> Arc<LiveAccounts> {
        if self.web_accounts.is_empty() {
            return Arc::default();
        }
        let (accounts, digest) = (
            WebAccounts::parse(self.web_accounts, main),
            Sha256Digest::of(self.web_accounts.as_bytes()),
        );
        let path = "/etc/lockkeeper/accounts".into();
        Arc::new(LiveAccounts::of_file(
            accounts.unwrap(),
            path,
            digest,
            self.clock_now(),
        ))
    }

    async fn app(
        &self,
        auth: Option<(&str, &str)>,
        public_url: &str,
        hand_over: Arc<dyn HandOverLocks>,
        accounts: Arc<LiveAccounts>,
    ) -> Router {
        let (public_url, version) = (public_url.parse().unwrap(), "1.2.3");
        let parts = WebParts::load(&self.store, &public_url, version, false)
            .await
            .unwrap();
        router(Arc::new(WebState {
            store: self.store.clone(),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            ids: Arc::new(CountingIds::default()),
            hub: self.hub.clone(),
            auth: auth.map(|(user, password)| WebAuth {
                user: user.to_owned(),
                password: Secret::new(password),
            }),
            hosts: WebHosts::new(
                &public_url,
                ([127, 0, 0, 1], 4141).into(),
                &["locks.example"],
            )
            .unwrap(),
            public_url,
            accounts: Arc::clone(&accounts),
            passwords: Arc::new(WebPasswords::new(self.store.clone())),
            trusted_proxies: self.trusted_proxies.clone(),
            executable: "lockkeeper".to_owned(),
            hand_over,
            cancel: Arc::new(PlainCancel(self.store.clone())),
            credentials: self.credentials(),
            authority: Arc::new(PlainAuthority {
                store: self.store.clone(),
                rules: self.rules(auth.is_some()),
                accounts,
                denials: Arc::clone(&self.denials),
            }),
            shutting_down: self.stop.clone(),
            version: version.to_owned(),
            metrics: self.metrics.clone(),
            keep_runs: Some(Duration::from_hours(90 * 24)),
            periods: Periods::DEFAULT,
            forges: ForgeHosts::public(),
            mirror_wake_up: WakeUp::default(),
            repo_config: {
                let file = self.repo_config.clone();
                Arc::new(move || file.clone())
            },
            without_effect: {
                let idle = self.without_effect.clone();
                Arc::new(move || idle.clone())
            },
            policy_sets: {
                let sets = self.policy_sets.clone();
                Arc::new(move || sets.clone())
            },
            parts,
        }))
    }

    pub fn clock_now(&self) -> DateTime<chrono::Utc> {
        self.clock.now()
    }

    pub fn wait(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub async fn lock(
        &self,
        pull: &PullRef,
        project: &ProjectKey,
        holder: &str,
        reason: &str,
    ) -> Lock {
        let url = format!(
            "https://github.com/{}/pull/{}",
            pull.repo.full_name(),
            pull.subject
        );
        self.lock_with_url(pull, &url, project, holder, reason)
            .await
    }

    pub async fn lock_with_url(
        &self,
        pull: &PullRef,
        url: &str,
        project: &ProjectKey,
        holder: &str,
        reason: &str,
    ) -> Lock {
        self.store
            .pull_seen(pull, PullState::Open, url)
            .await
            .unwrap();
        let (key, cause) = (
            LockKey::of(&pull.repo, project),
            Cause::new(Actor::commenter(holder), reason),
        );
        match self
            .store
            .lock_take(&LockAttempt {
                key: &key,
                project,
                pull,
                pull_url: url,
                cause: &cause,
            })
            .await
            .unwrap()
        {
            TakeLock::Taken(lock) => lock,
            other @ (TakeLock::AlreadyOurs(_) | TakeLock::HeldBy(_) | TakeLock::PullClosed) => {
                panic!("{other:?}")
            }
        }
    }

    /// Queues a pull request for a lock that another one holds.
    pub async fn waiting(&self, pull: &PullRef, project: &ProjectKey, asker: &str) {
        let url = format!(
            "https://github.com/{}/pull/{}",
            pull.repo.full_name(),
            pull.subject
        );
        self.store
            .pull_seen(pull, PullState::Open, &url)
            .await
            .unwrap();
        let ask = QueuedPlan {
            project: project.clone(),
            extra_args: Vec::new(),
        };
        let requests = [LockRequest {
            key: LockKey::of(&pull.repo, project),
            ask,
        }];
        let cause = Cause::new(Actor::commenter(asker), "planned by comment");
        take_all(&self.store, pull, &url, &requests, &cause, true)
            .await
            .unwrap();
    }

    pub async fn command(&self, kind: CommandKind, pull: &PullRef, actor: Actor) -> CommandId {
        let new = NewCommand {
            kind,
            pull: pull.clone(),
            comment: None,
            delivery: None,
            actor,
            spec: "{}".to_owned(),
        };
        let job = |_| {
            vec![NewJob {
                kind: "command",
                payload: "{}".to_owned(),
                lane: "lane".to_owned(),
                share: String::new(),
                priority: 0,
                run_after: None,
            }]
        };
        match self.store.command_create(&new, job).await.unwrap() {
            CreateCommand::Created(id) => id,
            CreateCommand::Known => panic!("the command is new"),
        }
    }

    pub async fn end_command(&self, id: CommandId, outcome: CommandOutcome, reason: Option<&str>) {
        let end = FinishedCommand {
            id,
            outcome,
            reason: reason.map(str::to_owned),
            result: None,
            outbox: Vec::new(),
            comments: 0,
        };
        assert!(self.store.command_finish(&end).await.unwrap());
    }

    pub async fn run(
        &self,
        command: CommandId,
        kind: RunKind,
        pull: &PullRef,
        project: &ProjectKey,
    ) -> RunId {
        let new = NewRun {
            command,
            kind,
            pull: pull.clone(),
            project: project.clone(),
        };
        let id = self.store.run_create(&new).await.unwrap();
        self.store.run_start(id).await.unwrap();
        id
    }

    pub async fn print(&self, run: RunId, seq: i64, text: &str) {
        self.store
            .run_output_append(
                run,
                &OutputPiece {
                    seq,
                    text: text.to_owned(),
                },
            )
            .await
            .unwrap();
    }

    pub async fn end_run(&self, run: RunId, outcome: ProjectOutcome, message: Option<&str>) {
        assert!(self.store.run_finish(run, outcome, message).await.unwrap());
    }

    pub async fn plan(&self, lock: &Lock, run: RunId) -> PlanRecord {
        self.checked_plan(lock, run, &[]).await
    }

    /// Records a plan with the verdicts of policy sets.
    pub async fn checked_plan(&self, lock: &Lock, run: RunId, verdicts: &[Verdict]) -> PlanRecord {
        let parts = PlanParts {
            verdicts,
            ..PlanParts::default()
        };
        let plan = PlanRecord {
            id: PlanId::next(&*self.ids),
            pull: lock.pull.clone(),
            project: lock.project.clone(),
            run,
            head: CommitSha::new(&"a1".repeat(20)).unwrap(),
            base_branch: "main".parse().unwrap(),
            base: CommitSha::new(&"b2".repeat(20)).unwrap(),
            distribution: Distribution::Terraform,
            tool_version: "1.9.8".parse().unwrap(),
            workflow: Sha256Digest::of(b"workflow"),
            order_group: 0,
            digest: Some(Sha256Digest::of(b"plan")),
            counts: PlanCounts {
                add: 2,
                change: 1,
                ..PlanCounts::default()
            },
            blocked: None,
            state: PlanState::Planned,
            created_at: self.clock.now(),
        };
        assert_eq!(
            self.store
                .plan_record(&plan, Some(lock.id), None, &parts)
                .await
                .unwrap(),
            RecordPlan::Recorded
        );
        plan
    }
}

pub fn pull(repo: &str, number: i64) -> PullRef {
    PullRef {
        repo: repo.parse().unwrap(),
        subject: Subject::pull(number),
    }
}

pub fn project(dir: &str, workspace: &str, name: Option<&str>) -> ProjectKey {
    ProjectKey {
        dir: dir.parse().unwrap(),
        workspace: workspace.parse().unwrap(),
        name: name.map(|name| name.parse().unwrap()),
    }
}

pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

impl Browser {
    /// Returns a browser of another user at the same server.
    pub fn signed_in(&self, user: &str, password: &str) -> Self {
        Self {
            app: self.app.clone(),
            accounts: Arc::clone(&self.accounts),
            https: self.https,
            authorization: Some(basic(user, password)),
            cookie: self.cookie.clone(),
            kept: Arc::clone(&self.kept),
        }
    }

    #[must_use]
    pub fn without_cookie(mut self) -> Self {
        self.cookie = None;
        self
    }

    #[must_use]
    pub fn without_password(mut self) -> Self {
        self.authorization = None;
        self
    }

    /// Requests a page as a browser does when a person follows a link.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(
            self.request("GET", path)
                .header(header::ACCEPT, "text/html,*/*")
                .body(Body::empty())
                .unwrap(),
        )
        .await
    }

    /// Submits the form of a page, as the page's browser would.
    pub async fn post(&self, path: &str, fields: &str) -> Answer {
        let token = self.token().await;
        let request = self
            .request("POST", path)
            .header("sec-fetch-site", "same-origin");
        self.send(form(request, &format!("token={token}&{fields}")))
            .await
    }

    /// Returns the token in the forms of the first page, or of the next page if the first has none.
    pub async fn token(&self) -> String {
        let mut page = self.get("/").await.body;
        if !page.contains("name=\"token\"") {
            page = self.get("/apply-locks").await.body;
        }
        let start = page
            .split_once("name=\"token\" value=\"")
            .expect("the page has a form")
            .1;
        start.split_once('"').unwrap().0.to_owned()
    }

    pub fn request(&self, method: &str, path: &str) -> axum::http::request::Builder {
        let host = if self.https {
            "locks.example"
        } else {
            "localhost:4141"
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if let Some(cookie) = &self.cookie {
            request = request.header(header::COOKIE, cookie);
        }
        request
    }

    pub async fn respond(&self, request: Request<Body>) -> axum::response::Response {
        self.app.clone().oneshot(request).await.unwrap()
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.respond(request).await.into_parts();
        let body = to_bytes(body, 64 * 1024 * 1024).await.unwrap();
        // The templates write a slash as an entity, which browsers read as a slash.
        let body = String::from_utf8(body.to_vec())
            .unwrap()
            .replace("&#x2f;", "/");
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }
}

pub fn form(request: axum::http::request::Builder, fields: &str) -> Request<Body> {
    let request = request
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::ACCEPT, "text/html,*/*");
    request.body(Body::from(fields.to_owned())).unwrap()
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the text inside the first `<main>`, without tags, in separate lines.
    pub fn text(&self) -> String {
        let main = self
            .body
            .split_once("<main")
            .and_then(|(_, rest)| rest.split_once("</main>"));
        let html = main
            .map_or(self.body.as_str(), |(main, _)| main)
            .split_once('>')
            .unwrap()
            .1;
        let text = regex::Regex::new("<[^>]*>")
            .unwrap()
            .replace_all(html, "\n");
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        lines.join("\n")
    }
}
