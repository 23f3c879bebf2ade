//! Runs the real program as an administrator would: `lockkeeper server …` against an emulated GitHub.
//!
//! The environment of the machine does not reach the program. Its `PATH` begins with its own folder, which marks
//! every process that it starts: [`Server::children`] finds them, also those that outlive a SIGKILL.

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
/// Token of the bot.
pub const TOKEN: &str = "ghp_EndToEndTokenOfTheBot0123456789abcd";
/// Number of the GitHub App.
pub const APP_ID: u64 = 7;
/// Private key of the App, made for tests.
pub const APP_KEY: &str = include_str!("app_key.pem");
/// Secret that signs the webhooks.
pub const WEBHOOK_SECRET: &str = "end-to-end-webhook-secret-7f3a";
/// User id of runs that have another user than the server.
pub const RUNNER: u32 = 4343;

/// Host in the names of repositories.
pub const HOST: &str = "github.test";
/// Public address of the server.
pub const PUBLIC_URL: &str = "https://lockkeeper.test";

/// Time limit far above the duration of any step. A wait that reaches it has failed.
const LONG: Duration = Duration::from_mins(1);
/// Interval of polling for processes that end and for files that disappear.
pub const LOOK: Duration = Duration::from_millis(20);

/// Waits with a time limit.
pub async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, wait)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen within {LONG:?}"))
}

/// Settings of a server that starts.
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
    shared: Vec<(String, PathBuf)>,
    ordinary_user: bool,
    without_landlock: bool,
    run_as: Option<u32>,
    program: Option<PathBuf>,
}

/// User and group without any right, for servers of tests that run as root.
const NOBODY: u32 = 4242;

impl Settings {
    /// Runs the server as a user without privileges, even if root runs the test.
    #[must_use]
    pub fn without_privileges(self) -> Self {
        Self {
            ordinary_user: true,
            ..self
        }
    }

    /// Makes the kernel answer as one without Landlock.
    #[must_use]
    pub fn without_landlock(self) -> Self {
        Self {
            without_landlock: true,
            ..self
        }
    }

    /// Gives runs another user. Only tests of root can do that.
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

    /// Returns the user of runs, if it is not that of the server.
    pub fn runner(&self) -> Option<u32> {
        self.run_as
    }

    /// Changes the owner of a directory of a story, and of its files, to the user of the server.
    pub fn gives(&self, dir: &Path) {
        if self.ordinary_user && nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)).expect("we are root");
            let below = std::fs::read_dir(dir).into_iter().flatten().flatten();
            below.for_each(|entry| self.gives(&entry.path()));
        }
    }

    /// Lets runs change a directory of the story.
    #[must_use]
    pub fn writes(mut self, dir: &Path) -> Self {
        self.writes.push(dir.to_owned());
        self
    }

    /// Makes a name in the data directory lead to a directory that several servers share.
    #[must_use]
    pub fn shares(mut self, name: &str, dir: &Path) -> Self {
        self.shared.push((name.to_owned(), dir.to_owned()));
        self
    }

    /// Adds a flag, `--name=value`.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Makes the server act as a GitHub App instead of an account with a token.
    #[must_use]
    pub fn with_app(self) -> Self {
        Self {
            is_app: true,
            ..self
        }
    }

    /// Returns true if the server acts as a GitHub App.
    pub fn is_app(&self) -> bool {
        self.is_app
    }

    /// Uses another Lockkeeper than the one under test.
    #[must_use]
    pub fn program(self, program: PathBuf) -> Self {
        Self {
            program: Some(program),
            ..self
        }
    }

    /// Uses another program as `terraform`.
    #[must_use]
    pub fn terraform(self, program: PathBuf) -> Self {
        Self {
            terraform: Some(program),
            ..self
        }
    }

    /// Turns the signal for a file that reaches the size limit into an error, as on a full disk. The signal would end
    /// the server.
    #[must_use]
    pub fn survives_full_disks(self) -> Self {
        Self {
            survives_full_disks: true,
            ..self
        }
    }

    /// Starts the server with these limits of open files, the soft one and the hard one.
    #[must_use]
    pub fn open_files(self, soft: u32, hard: u32) -> Self {
        Self {
            open_files: Some((soft, hard)),
            ..self
        }
    }

    /// Uses another database than SQLite in the data directory.
    #[must_use]
    pub fn database(mut self, url: DatabaseUrl) -> Self {
        self.database = Some(url);
        self
    }
}

/// Returns a filter under which the system calls of Landlock do not exist.
fn old_kernel() -> seccompiler::BpfProgram {
    use seccompiler::{SeccompAction, SeccompFilter, TargetArch};
    /// Numbers of `landlock_create_ruleset`, `landlock_add_rule` and `landlock_restrict_self`, the same on all
    /// architectures.
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

/// A server with a directory that outlives its process.
pub struct Server {
    api_url: String,
    /// Emulator that gets the address for webhooks each time the server starts. A foreign GitHub is configured by the
    /// test.
    github: Option<Emulator>,
    events: Option<Url>,
    settings: Settings,
    dir: TempDir,
    /// Name with which the process signs its leases.
    replica: Option<String>,
    process: Option<Child>,
    log: Log,
}

/// Last line of the log after the process has ended.
const ENDED: &str = "(the process has ended)";

impl Server {
    /// Starts a server that has to end before it is ready. Returns its log.
    pub async fn refuses(github: &Emulator, settings: Settings) -> String {
        let mut server = Self::laid_out(&github.api_url(), Some(github.clone()), settings);
        assert!(
            !server.try_restart().await,
            "it started, and said:\n{}",
            server.log.text()
        );
        // The last lines may not have arrived yet.
        server.log.line_with(ENDED, 0).await;
        server.log.text()
    }

    /// Starts a server and waits until it is ready.
    pub async fn start(github: &Emulator, settings: Settings) -> Self {
        Self::start_for(&github.api_url(), Some(github.clone()), settings).await
    }

    /// Starts a server for a foreign GitHub, by the URL of its API.
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
        for (name, shared) in &settings.shared {
            std::os::unix::fs::symlink(shared, dir.path().join("data").join(name))
                .expect("a new link");
        }
        // Runs may write to existing files. They cannot create files in the directory of the server.
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
            // The same modes as on a real server: others may pass through, and home and data belong to the server
            // alone.
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

    /// Starts the server again with the same data; it must not be running. Webhooks go to the new process.
    pub async fn restart(&mut self) {
        assert!(
            self.try_restart().await,
            "the server ended before it was ready; it said:\n{}",
            self.log.text()
        );
    }

    /// Starts the server again. Returns `false` if it ended before it was ready, which a fault of its environment may
    /// cause.
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

    /// Returns the address that receives webhooks.
    pub fn events(&self) -> &Url {
        self.events
            .as_ref()
            .expect("it is told when the server is ready, and no test has it before")
    }

    /// Returns the address of the server as a URL without a slash at the end.
    pub fn url(&self) -> &str {
        self.events().as_str().trim_end_matches("/events")
    }

    fn spawn(&self) -> Child {
        let mut command = self.command();
        if !self.settings.without_landlock {
            return command.spawn().expect("the program is there");
        }
        // A filter applies to the thread that sets it and to all that it starts.
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
            // An ordinary user with the necessary rights, as systemd grants them.
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

    /// Returns the files that runs may also change: Terraform's log, and the notes of the fake beside it.
    fn writes(&self) -> String {
        let own = [self.terraform_log_path(), self.dir().join("bin")];
        let paths = own
            .iter()
            .chain(&self.settings.writes)
            .map(|path| path.display().to_string());
        paths.collect::<Vec<_>>().join(",")
    }

    /// Returns the directory of a Terraform that consists of several files.
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

    /// Returns the directory with everything of this server.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the data directory (`--data-dir`).
    pub fn data_dir(&self) -> PathBuf {
        self.dir().join("data")
    }

    /// Changes the owner of a directory of a story, and of its files, to the user of the server.
    pub fn owns(&self, dir: &Path) {
        self.settings.gives(dir);
    }

    /// Returns the address of the database.
    pub fn database(&self) -> DatabaseUrl {
        let sqlite = || DatabaseUrl::Sqlite(self.data_dir().join("lockkeeper.db"));
        self.settings.database.clone().unwrap_or_else(sqlite)
    }

    fn terraform_log_path(&self) -> PathBuf {
        self.dir().join("terraform.log")
    }

    /// Returns Terraform's own log of every call.
    pub fn terraform_log(&self) -> String {
        std::fs::read_to_string(self.terraform_log_path()).unwrap_or_default()
    }

    /// Returns the arguments of every call of a Terraform command, oldest first.
    pub fn calls(&self, command: &str) -> Vec<String> {
        let log = self.terraform_log();
        let args = log
            .lines()
            .filter_map(|line| line.split_once("CLI command args: []string{"));
        args.map(|(_, args)| args.to_owned())
            .filter(|args| args.starts_with(&format!("\"{command}\"")))
            .collect()
    }

    /// Waits until Terraform was interrupted this many times.
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

    /// Kills the server as a crash would. Its children are left behind.
    pub async fn kill9(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.kill().await.expect("the process is ours");
    }

    /// Returns true if there is a process that was not waited for.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Sends SIGTERM to the server.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Sends a signal to the server alone, not to its children.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the process is ours");
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> Pid {
        let id = self
            .process
            .as_ref()
            .and_then(Child::id)
            .expect("the server is running");
        Pid::from_raw(i32::try_from(id).expect("process numbers of Linux are below 2^22"))
    }

    /// Returns the name with which the last process signed its leases.
    pub fn replica(&self) -> Option<&str> {
        self.replica.as_deref()
    }

    /// Returns true if the process has ended on its own. The process is then forgotten.
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

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until the process has ended, and returns its status.
    pub async fn exit(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("the server is running");
        within("the end of the server", process.wait())
            .await
            .expect("the process is ours")
    }

    /// Waits for a line of the log that contains this text, and returns it.
    pub async fn logged(&self, part: &str) -> String {
        self.log.line_with(part, 0).await
    }

    /// Returns the living processes that the server started, without itself: process id and command line.
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

    /// Returns the living Terraform processes that the server started.
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

    /// Waits until none of its children lives any more.
    pub async fn alone(&self) {
        within("the end of every child", async {
            while !self.children().is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        })
        .await;
    }

    /// Stops the server and checks everything that holds at the end of any server: it ends without an error, leaves
    /// no process behind, and no credential is in its log or on its disk.
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

/// Returns the command line of a living process whose `PATH` names our folder.
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

/// Returns the texts that no log may contain: the token, the secret, the token as git sends it, a line of the App's
/// key, and the prefix of its tokens.
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
    memchr::memmem::find(content, part).is_some()
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

/// Finds Terraform on `PATH`, or where `make setup` installs it.
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

/// Output of the server, line by line.
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
        // A task that waits for a line reads the text while it holds the length. The text must therefore be unlocked
        // before the length is locked.
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
