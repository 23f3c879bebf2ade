//! The real program, started as an operator would: `lockkeeper server …` against an emulated GitHub.
//!
//! Nothing of the machine's environment reaches it. Its `PATH` begins with a folder of its own, by which every process
//! it starts can be told from all others: [`Server::children`] finds them, also those that outlive a SIGKILL.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use lockkeeper::emulator::Emulator;
use lockkeeper::store::DatabaseUrl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;
use url::Url;

/// Account of the bot.
pub const BOT: &str = "lockbot";
/// Its token.
pub const TOKEN: &str = "ghp_EndToEndTokenOfTheBot0123456789abcd";
/// Number of the GitHub App.
pub const APP_ID: u64 = 7;
/// Its private key, made for tests.
pub const APP_KEY: &str = include_str!("app_key.pem");
/// Signs the webhooks.
pub const WEBHOOK_SECRET: &str = "end-to-end-webhook-secret-7f3a";
/// User of runs that are not of the user of the server.
pub const RUNNER: u32 = 4343;

/// Host in the names of repositories.
pub const HOST: &str = "github.test";
/// Where people would reach the server.
pub const PUBLIC_URL: &str = "https://lockkeeper.test";

/// Far more than anything takes; a wait that needs it has failed.
const LONG: Duration = Duration::from_mins(1);
/// Processes end, and files go, without telling us; this often we look.
pub const LOOK: Duration = Duration::from_millis(20);

/// Waits, but not for ever.
pub async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, wait)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen within {LONG:?}"))
}

/// How to start a server.
#[derive(Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Settings {
    flags: Vec<String>,
    variables: BTreeMap<String, String>,
    database: Option<DatabaseUrl>,
    terraform: Option<PathBuf>,
    survives_full_disks: bool,
    open_files: Option<(u32, u32)>,
    is_app: bool,
    writes: Vec<PathBuf>,
    ordinary_user: bool,
    without_landlock: bool,
    run_as: Option<u32>,
    program: Option<PathBuf>,
}

/// A user and group without any right, for servers of tests that run as root.
const NOBODY: u32 = 4242;

impl Settings {
    /// The server runs as a user without privileges, also where the test is run by root.
    #[must_use]
    pub fn without_privileges(self) -> Self {
        Self {
            ordinary_user: true,
            ..self
        }
    }

    /// The kernel answers the server as one without Landlock does.
    #[must_use]
    pub fn without_landlock(self) -> Self {
        Self {
            without_landlock: true,
            ..self
        }
    }

    /// Runs are a user of their own. Only the tests of root can have that.
    #[must_use]
    pub fn run_as(self, user: u32) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this story has runs of another user, and needs root to begin them"
        );
        Self {
            run_as: Some(user),
            ..self.flag(&format!("--run-as={user}"))
        }
    }

    /// Who runs are, if not the server.
    pub fn runner(&self) -> Option<u32> {
        self.run_as
    }

    /// Gives a directory of a story, with what is in it, to the user that the server will be.
    pub fn gives(&self, dir: &Path) {
        if self.ordinary_user && nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)).expect("we are root");
            let below = std::fs::read_dir(dir).into_iter().flatten().flatten();
            below.for_each(|entry| self.gives(&entry.path()));
        }
    }

    /// A directory of the story that runs may change.
    #[must_use]
    pub fn writes(mut self, dir: &Path) -> Self {
        self.writes.push(dir.to_owned());
        self
    }

    /// One more flag, `--name=value`.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// One more variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Acts as a GitHub App instead of an account with a token.
    #[must_use]
    pub fn with_app(self) -> Self {
        Self {
            is_app: true,
            ..self
        }
    }

    /// Whether it acts as a GitHub App.
    pub fn is_app(&self) -> bool {
        self.is_app
    }

    /// Another Lockkeeper than the one under test.
    #[must_use]
    pub fn program(self, program: PathBuf) -> Self {
        Self {
            program: Some(program),
            ..self
        }
    }

    /// Another program as `terraform`.
    #[must_use]
    pub fn terraform(self, program: PathBuf) -> Self {
        Self {
            terraform: Some(program),
            ..self
        }
    }

    /// A limit on the size of files is an error to the server, as a full disk is, instead of a signal that ends it.
    #[must_use]
    pub fn survives_full_disks(self) -> Self {
        Self {
            survives_full_disks: true,
            ..self
        }
    }

    /// Started with these limits of open files, the soft one and the hard one.
    #[must_use]
    pub fn open_files(self, soft: u32, hard: u32) -> Self {
        Self {
            open_files: Some((soft, hard)),
            ..self
        }
    }

    /// Another database than SQLite in the data directory.
    #[must_use]
    pub fn database(mut self, url: DatabaseUrl) -> Self {
        self.database = Some(url);
        self
    }
}

/// A filter that does not know the system calls of Landlock.
fn old_kernel() -> seccompiler::BpfProgram {
    use seccompiler::{SeccompAction, SeccompFilter, TargetArch};
    /// `landlock_create_ruleset`, `landlock_add_rule` and `landlock_restrict_self`, the same on all architectures.
    const LANDLOCK: [i64; 3] = [444, 445, 446];
    const ENOSYS: u32 = 38;
    let calls = LANDLOCK
        .into_iter()
        .map(|call| (call, Vec::new()))
        .collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("an architecture with filters");
    let filter = SeccompFilter::new(
        calls,
        SeccompAction::Allow,
        SeccompAction::Errno(ENOSYS),
        arch,
    );
    filter
        .and_then(TryInto::try_into)
        .expect("a filter of three calls")
}

/// A server on a directory that outlives its process.
pub struct Server {
    api_url: String,
    /// Told where to send webhooks each time the server starts; another GitHub's webhooks are the test's to lead here.
    github: Option<Emulator>,
    events: Option<Url>,
    settings: Settings,
    dir: TempDir,
    /// How the process signs its leases.
    replica: Option<String>,
    process: Option<Child>,
    log: Log,
}

/// What the log ends with when the process has.
const ENDED: &str = "(the process has ended)";

impl Server {
    /// Starts it where it is to end before it is ready; its log.
    pub async fn refuses(github: &Emulator, settings: Settings) -> String {
        let mut server = Self::laid_out(&github.api_url(), Some(github.clone()), settings);
        assert!(
            !server.try_restart().await,
            "it started, and said:\n{}",
            server.log.text()
        );
        // Its last words may still be on the way.
        server.log.line_with(ENDED, 0).await;
        server.log.text()
    }

    /// Starts it and waits until it is ready.
    pub async fn start(github: &Emulator, settings: Settings) -> Self {
        Self::start_for(&github.api_url(), Some(github.clone()), settings).await
    }

    /// The same for a GitHub that is not ours, by the URL of its API.
    pub async fn start_at(api_url: &str, settings: Settings) -> Self {
        Self::start_for(api_url, None, settings).await
    }

    async fn start_for(api_url: &str, github: Option<Emulator>, settings: Settings) -> Self {
        let mut server = Self::laid_out(api_url, github, settings);
        server.restart().await;
        server
    }

    fn laid_out(api_url: &str, github: Option<Emulator>, settings: Settings) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("lockkeeper-e2e-")
            .tempdir()
            .expect("a temporary directory");
        for folder in ["bin", "home", "data"] {
            std::fs::create_dir(dir.path().join(folder)).expect("the directory is ours");
        }
        let terraform = settings.terraform.clone().unwrap_or_else(find_terraform);
        std::os::unix::fs::symlink(terraform, dir.path().join("bin/terraform"))
            .expect("a new link");
        // Runs may write to what is there; they cannot make files in the directory of the server.
        std::fs::write(dir.path().join("terraform.log"), "").expect("the directory is ours");
        if settings.ordinary_user && nix::unistd::geteuid().is_root() {
            for path in ["", "bin", "home", "data", "terraform.log"] {
                std::os::unix::fs::chown(dir.path().join(path), Some(NOBODY), Some(NOBODY))
                    .expect("we are root");
            }
        }
        if let Some(user) = settings.run_as {
            let mode = |path: &str, mode| {
                let mode = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(dir.path().join(path), mode).expect("we are root");
            };
            // As on a server: others may come through to what is theirs, and home and data are its own.
            for (path, its_mode) in [("", 0o711), ("home", 0o700), ("data", 0o700)] {
                mode(path, its_mode);
            }
            std::os::unix::fs::chown(dir.path().join("terraform.log"), Some(user), None)
                .expect("we are root");
        }
        let api_url = api_url.to_owned();
        Self {
            api_url,
            github,
            events: None,
            settings,
            dir,
            replica: None,
            process: None,
            log: Log::default(),
        }
    }

    /// Starts it again on the same data; it must not be running. Webhooks go to the new process.
    pub async fn restart(&mut self) {
        assert!(
            self.try_restart().await,
            "the server ended before it was ready; it said:\n{}",
            self.log.text()
        );
    }

    /// The same; `false` when it ended before it was ready, as it may while its surroundings are in trouble.
    pub async fn try_restart(&mut self) -> bool {
        assert!(self.process.is_none(), "the server is still running");
        let begin = self.log.text().len();
        let mut process = self.spawn();
        self.log
            .follow(process.stderr.take().expect("standard error is piped"));
        let ready = tokio::select! {
            ready = self.log.line_with("Lockkeeper is ready", begin) => ready,
            _ = process.wait() => return false,
        };
        self.process = Some(process);
        self.moved_in(&ready);
        true
    }

    fn moved_in(&mut self, ready: &str) {
        let field = |name: &str| {
            ready
                .split(name)
                .nth(1)
                .and_then(|rest| rest.split_whitespace().next())
        };
        let address = field("address=").unwrap_or_else(|| panic!("no address in: {ready}"));
        self.replica = field("replica=").map(str::to_owned);
        let events: Url = format!("http://{address}/events").parse().expect("a URL");
        if let Some(github) = &self.github {
            github.set_webhook_target(events.clone());
        }
        self.events = Some(events);
    }

    /// Where webhooks go.
    pub fn events(&self) -> &Url {
        self.events
            .as_ref()
            .expect("it is told when the server is ready, and no test has it before")
    }

    /// Where it listens, as a URL without a slash at the end.
    pub fn url(&self) -> &str {
        self.events().as_str().trim_end_matches("/events")
    }

    fn spawn(&self) -> Child {
        let mut command = self.command();
        if !self.settings.without_landlock {
            return command.spawn().expect("the program is there");
        }
        // A filter holds for the thread that sets it and for all that it starts.
        let runtime = tokio::runtime::Handle::current();
        let on_thread = || {
            let _entered = runtime.enter();
            seccompiler::apply_filter(&old_kernel()).expect("the kernel takes filters");
            command.spawn().expect("the program is there")
        };
        std::thread::scope(|scope| scope.spawn(on_thread).join().expect("it starts the server"))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the program under test, not a child of it"
    )]
    fn command(&self) -> Command {
        let ours = || PathBuf::from(env!("CARGO_BIN_EXE_lockkeeper"));
        let program = self.settings.program.clone().unwrap_or_else(ours);
        let mut before = Vec::new();
        if let Some((soft, hard)) = self.settings.open_files {
            before.extend(["sh".to_owned(), "-c".to_owned()]);
            before.extend([format!(
                "ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\""
            )]);
        }
        if self.settings.survives_full_disks {
            before.extend(["env", "--ignore-signal=XFSZ"].map(str::to_owned));
        }
        let is_ordinary = self.settings.ordinary_user && nix::unistd::geteuid().is_root();
        if is_ordinary && self.settings.run_as.is_some() {
            // An ordinary user with the rights that it needs for that, as systemd gives them.
            let rights = "+chown,+dac_override,+fowner,+kill,+setgid,+setuid";
            before.extend(["setpriv", "--clear-groups"].map(str::to_owned));
            before.extend([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
            before.extend([
                format!("--inh-caps={rights}"),
                format!("--ambient-caps={rights}"),
            ]);
        }
        before.push(program.display().to_string());
        let mut command = Command::new(&before[0]);
        command.args(&before[1..]);
        command.arg("server").args([
            "--port=0",
            "--bind-address=127.0.0.1",
            "--tf-download=false",
        ]);
        command
            .arg(format!("--gh-hostname={HOST}"))
            .arg(format!("--gh-api-url={}", self.api_url));
        command
            .arg(format!("--repo-allowlist={HOST}/acme/*"))
            .arg(format!("--atlantis-url={PUBLIC_URL}"));
        command.arg("--data-dir").arg(self.data_dir());
        command
            .arg(format!("--sandbox-write={}", self.writes()))
            .arg(format!("--sandbox-read={}", self.reads()));
        command.args(&self.settings.flags);
        command
            .env_clear()
            .env("PATH", self.search_path())
            .env("HOME", self.dir().join("home"));
        if self.settings.is_app {
            command
                .arg(format!("--gh-app-id={APP_ID}"))
                .env("LOCKKEEPER_GH_APP_KEY", APP_KEY);
        } else {
            command
                .arg(format!("--gh-user={BOT}"))
                .env("LOCKKEEPER_GH_TOKEN", TOKEN);
        }
        command.env("LOCKKEEPER_GH_WEBHOOK_SECRET", WEBHOOK_SECRET);
        command.env("LOCKKEEPER_DATABASE_URL", address_of(&self.database()));
        command
            .env("TF_CLI_CONFIG_FILE", "/dev/null")
            .env("TF_LOG", "info");
        command
            .env("TF_LOG_PATH", self.terraform_log_path())
            .envs(&self.settings.variables);
        if is_ordinary && self.settings.run_as.is_none() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir(self.dir()).kill_on_drop(true);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// What runs may change besides: Terraform's log, and the notes of the stand-in beside it.
    fn writes(&self) -> String {
        let own = [self.terraform_log_path(), self.dir().join("bin")];
        let paths = own
            .iter()
            .chain(&self.settings.writes)
            .map(|path| path.display().to_string());
        paths.collect::<Vec<_>>().join(",")
    }

    /// Where a Terraform that is no single file is installed.
    fn reads(&self) -> String {
        let program = self
            .dir()
            .join("bin/terraform")
            .canonicalize()
            .expect("the link leads to a program");
        let folder = program
            .parent()
            .filter(|folder| folder.ends_with("bin"))
            .and_then(Path::parent);
        folder
            .filter(|folder| folder.ends_with(".tools"))
            .map(|folder| folder.display().to_string())
            .unwrap_or_default()
    }

    fn search_path(&self) -> String {
        format!(
            "{}:/usr/local/bin:/usr/bin:/bin",
            self.dir().join("bin").display()
        )
    }

    /// Everything of this server is below here.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `--data-dir`.
    pub fn data_dir(&self) -> PathBuf {
        self.dir().join("data")
    }

    /// Gives a directory of a story, with what is in it, to the user of the server.
    pub fn owns(&self, dir: &Path) {
        self.settings.gives(dir);
    }

    /// The database.
    pub fn database(&self) -> DatabaseUrl {
        let sqlite = || DatabaseUrl::Sqlite(self.data_dir().join("lockkeeper.db"));
        self.settings.database.clone().unwrap_or_else(sqlite)
    }

    fn terraform_log_path(&self) -> PathBuf {
        self.dir().join("terraform.log")
    }

    /// Terraform's own log of every call.
    pub fn terraform_log(&self) -> String {
        std::fs::read_to_string(self.terraform_log_path()).unwrap_or_default()
    }

    /// The arguments of every call of a Terraform command, oldest first.
    pub fn calls(&self, command: &str) -> Vec<String> {
        let log = self.terraform_log();
        let args = log
            .lines()
            .filter_map(|line| line.split_once("CLI command args: []string{"));
        args.map(|(_, args)| args.to_owned())
            .filter(|args| args.starts_with(&format!("\"{command}\"")))
            .collect()
    }

    /// Waits until Terraform has been asked politely to stop so many times.
    pub async fn interrupted(&self, times: usize) {
        let asked = || {
            self.terraform_log()
                .matches("initiating interrupt sequence")
                .count()
        };
        within("the interrupt of Terraform", async {
            while asked() < times {
                tokio::time::sleep(LOOK).await;
            }
        })
        .await;
    }

    /// Kills the server as a crash would; what it had started is left behind.
    pub async fn kill9(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.kill().await.expect("the process is ours");
    }

    /// Whether there is a process that has not been waited for.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Tells it to stop (SIGTERM).
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Sends a signal to the server alone, not to what it has started.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the process is ours");
    }

    /// Number of the process.
    pub fn pid(&self) -> Pid {
        let id = self
            .process
            .as_ref()
            .and_then(Child::id)
            .expect("the server is running");
        Pid::from_raw(i32::try_from(id).expect("process numbers of Linux are below 2^22"))
    }

    /// How the process that ran last signs its leases.
    pub fn replica(&self) -> Option<&str> {
        self.replica.as_deref()
    }

    /// Whether the process has ended by itself; if so, it is forgotten.
    pub fn has_died(&mut self) -> bool {
        let died = self
            .process
            .as_mut()
            .is_some_and(|process| process.try_wait().is_ok_and(|end| end.is_some()));
        if died {
            self.process = None;
        }
        died
    }

    /// Everything it has said.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until it has ended by itself.
    pub async fn exit(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("the server is running");
        within("the end of the server", process.wait())
            .await
            .expect("the process is ours")
    }

    /// Waits for a line of the log that contains this, and returns it.
    pub async fn logged(&self, part: &str) -> String {
        self.log.line_with(part, 0).await
    }

    /// The processes started by it that live: number and program, without the server itself.
    pub fn children(&self) -> Vec<(i32, String)> {
        let own = self.process.as_ref().and_then(Child::id);
        let mark = self.dir().join("bin").display().to_string();
        let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let others = ids.filter(|id| own != u32::try_from(*id).ok());
        others
            .filter_map(|id| Some((id, command_line(id, &mark)?)))
            .collect()
    }

    /// The Terraforms among them.
    pub fn terraforms(&self) -> Vec<(i32, String)> {
        let is_terraform = |line: &str| {
            line.split(' ')
                .next()
                .is_some_and(|program| program.ends_with("/terraform"))
        };
        self.children()
            .into_iter()
            .filter(|(_, line)| is_terraform(line))
            .collect()
    }

    /// Waits until nothing it started lives any more.
    pub async fn alone(&self) {
        within("the end of every child", async {
            while !self.children().is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        })
        .await;
    }

    /// Stops it and holds it to what is true of every server at its end: it ends well, leaves no process behind, and
    /// no credential is in its log or on its disk.
    pub async fn finish(&mut self) {
        self.terminate();
        let status = self.exit().await;
        assert!(status.success(), "the server ended with {status}");
        assert_eq!(self.children(), [], "children were left behind");
        self.assert_no_credentials();
    }

    fn assert_no_credentials(&self) {
        self.log.assert_clean("the log");
        let log = self.log.text();
        assert!(
            !log.contains("panicked at"),
            "something in the server panicked:\n{log}"
        );
        for file in files_below(self.dir()) {
            // A file may be gone again, and a pipe has no content.
            if file.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                assert_clean(
                    &file.display().to_string(),
                    &std::fs::read(&file).unwrap_or_default(),
                );
            }
        }
    }
}

impl Drop for Server {
    #[expect(
        clippy::print_stderr,
        reason = "a failed test shows what the server said"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- log of the server\n{}--- its children: {:?}",
                self.log.text(),
                self.children()
            );
        }
    }
}

/// The command line of a living process whose `PATH` names our folder.
fn command_line(id: i32, mark: &str) -> Option<String> {
    let read = |file: &str| std::fs::read(format!("/proc/{id}/{file}")).ok();
    let environment = read("environ")?;
    let ours = environment
        .split(|byte| *byte == 0)
        .filter(|line| line.starts_with(b"PATH="));
    let ours = ours.into_iter().any(|line| contains(line, mark.as_bytes()));
    let line = String::from_utf8_lossy(&read("cmdline")?)
        .trim_end_matches('\0')
        .replace('\0', " ");
    // A process that has ended and was not waited for yet has no command line.
    (ours && !line.is_empty()).then_some(line)
}

/// The token, the secret, the token as git presents it, a line of the App's key, and how its tokens begin.
fn credentials() -> [String; 5] {
    let key = APP_KEY
        .lines()
        .nth(1)
        .expect("a key has several lines")
        .to_owned();
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("{BOT}:{TOKEN}"));
    [
        TOKEN.to_owned(),
        WEBHOOK_SECRET.to_owned(),
        basic,
        key,
        "ghs_".to_owned(),
    ]
}

fn assert_clean(place: &str, content: &[u8]) {
    for credential in credentials() {
        assert!(
            !contains(content, credential.as_bytes()),
            "a credential is in {place}"
        );
    }
}

fn contains(content: &[u8], part: &[u8]) -> bool {
    content.windows(part.len()).any(|window| window == part)
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    entries
        .flat_map(|path| {
            if is_dir(&path) {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

fn address_of(database: &DatabaseUrl) -> String {
    match database {
        DatabaseUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
        DatabaseUrl::Postgres(options) => format!(
            "postgres://{}@{}:{}/{}",
            options.get_username(),
            options.get_host(),
            options.get_port(),
            options
                .get_database()
                .expect("databases of tests have a name")
        ),
    }
}

/// On `PATH`, or where `make setup` puts it.
pub fn find_terraform() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path)
        .chain([tools])
        .map(|folder| folder.join("terraform"));
    folders
        .find(|program| program.is_file())
        .expect("no `terraform` was found: run `make setup`")
}

/// What the server says, line by line.
#[derive(Clone)]
struct Log {
    text: Arc<Mutex<String>>,
    length: watch::Sender<usize>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            text: Arc::default(),
            length: watch::Sender::new(0),
        }
    }
}

impl Log {
    fn follow(&self, stderr: ChildStderr) {
        let log = self.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                log.add(&line);
            }
            log.add(ENDED);
        });
    }

    fn add(&self, line: &str) {
        // Who waits for a line reads the text while it holds the length, so the text is given up before the length is taken.
        let length = {
            let mut text = self
                .text
                .lock()
                .expect("no test panics while it holds the log");
            writeln!(text, "{line}").expect("writing to a string does not fail");
            text.len()
        };
        self.length.send_replace(length);
    }

    fn text(&self) -> String {
        self.text
            .lock()
            .expect("no test panics while it holds the log")
            .clone()
    }

    async fn line_with(&self, part: &str, after: usize) -> String {
        let mut length = self.length.subscribe();
        let found =
            length.wait_for(|_| self.text()[after..].lines().any(|line| line.contains(part)));
        let what = format!("a line with `{part}` in the log");
        drop(
            within(&what, found)
                .await
                .expect("the log lives as long as this handle"),
        );
        let text = self.text();
        text[after..]
            .lines()
            .find(|line| line.contains(part))
            .expect("it was there a moment ago")
            .to_owned()
    }

    fn assert_clean(&self, place: &str) {
        assert_clean(place, self.text().as_bytes());
    }
}
