//! Runs `lockkeeper server` as a process, beside an emulated GitHub in this process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use lockkeeper::clock::{RandomIds, SystemClock};
use lockkeeper::emulator::{Emulator, Options};
use lockkeeper::secret::Secret;
use lockkeeper::store::{DatabaseUrl, Store};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::ConnectOptions as _;

/// Login name of the bot.
pub const LOGIN: &str = "lockbot";
/// Repository that the server works for.
pub const REPO: &str = "acme/infra";
/// Secret that signs webhooks.
pub const SECRET: &str = "a webhook secret";
/// Password of the pages.
pub const PASSWORD: &str = "a password for the pages";

const TOKEN: &str = "ghp_of_the_bot";
const START_DEADLINE: Duration = Duration::from_secs(30);
const STOP_DEADLINE: Duration = Duration::from_secs(20);
const READY: &str = "Lockkeeper is ready";

/// A running server, killed on drop.
pub struct Server {
    child: Child,
    dir: PathBuf,
    /// Address that receives webhooks.
    pub events: String,
}

/// Adds the token of the bot to the URL of a repository of the emulated GitHub.
pub fn with_token(url: &str) -> String {
    url.replacen("://", &format!("://{LOGIN}:{TOKEN}@"), 1)
}

/// Starts the emulated GitHub in `dir`.
pub async fn github(dir: &Path) -> anyhow::Result<Emulator> {
    let options = Options::new(
        &dir.join("github"),
        Arc::new(SystemClock),
        Secret::new(SECRET),
    );
    Ok(Emulator::start(options.with_token(LOGIN, Secret::new(TOKEN))).await?)
}

impl Server {
    /// Starts a server with usual settings: SQLite in the data directory, defaults for everything else.
    pub async fn start(dir: &Path, github: &Emulator) -> anyhow::Result<Self> {
        Self::started(dir, spawn(dir, github, &[], &[])).await
    }

    /// Starts a server as [`Self::start`] does, with more flags.
    pub async fn start_with(
        dir: &Path,
        github: &Emulator,
        flags: &[(&str, PathBuf)],
    ) -> anyhow::Result<Self> {
        Self::started(dir, spawn(dir, github, &[], flags)).await
    }

    /// Starts a server with a database that several servers share.
    pub async fn start_on(
        dir: &Path,
        github: &Emulator,
        database: &DatabaseUrl,
    ) -> anyhow::Result<Self> {
        let DatabaseUrl::Postgres(options) = database else {
            bail!("{database} is not shared")
        };
        let url = options.to_url_lossy();
        let variables = [database_variable(url.as_str())];
        Self::started(dir, spawn(dir, github, &variables, &[])).await
    }

    /// Starts a server with more flags, on PostgreSQL if there is a database. A flag with an empty value is a switch.
    pub async fn start_as(
        dir: &Path,
        github: &Emulator,
        database: Option<&DatabaseUrl>,
        flags: &[(&str, PathBuf)],
    ) -> anyhow::Result<Self> {
        Self::start_among(dir, github, database, flags, &[]).await
    }

    /// Starts a server as [`Self::start_as`] does, with more environment variables.
    pub async fn start_among(
        dir: &Path,
        github: &Emulator,
        database: Option<&DatabaseUrl>,
        flags: &[(&str, PathBuf)],
        variables: &[(&'static str, String)],
    ) -> anyhow::Result<Self> {
        let mut variables = variables.to_vec();
        if let Some(DatabaseUrl::Postgres(options)) = database {
            variables.push(database_variable(options.to_url_lossy().as_str()));
        }
        Self::started(dir, spawn(dir, github, &variables, flags)).await
    }

    async fn started(dir: &Path, child: anyhow::Result<Child>) -> anyhow::Result<Self> {
        let child = child.context("cannot start lockkeeper")?;
        let mut server = Self {
            child,
            dir: dir.to_owned(),
            events: String::new(),
        };
        let address = server.address().await?;
        server.events = format!("http://{address}/events");
        Ok(server)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens the database of the server.
    pub async fn store(&self) -> anyhow::Result<Store> {
        let url = DatabaseUrl::Sqlite(self.dir.join("data/lockkeeper.db"));
        Store::open(&url, Arc::new(SystemClock), Arc::new(RandomIds))
            .await
            .context("cannot open its database")
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Stops the server with SIGTERM and waits for its end.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        kill(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGTERM,
        )
        .context("cannot signal the server")?;
        let since = Instant::now();
        while since.elapsed() < STOP_DEADLINE {
            if let Some(status) = self
                .child
                .try_wait()
                .context("cannot wait for the server")?
            {
                return if status.success() {
                    Ok(())
                } else {
                    bail!("the server ended with {status}\n{}", self.log())
                };
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("the server did not stop\n{}", self.log())
    }

    /// Waits for the log line with the address on which the server listens.
    async fn address(&mut self) -> anyhow::Result<String> {
        let since = Instant::now();
        while since.elapsed() < START_DEADLINE
            && self.child.try_wait().is_ok_and(|ended| ended.is_none())
        {
            let log = self.log();
            let ready = log.lines().find(|line| line.contains(READY));
            if let Some(address) =
                ready.and_then(|line| line.split_once("address=")?.1.split_whitespace().next())
            {
                return Ok(address.to_owned());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("the server did not start\n{}", self.log())
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing only fails if the server has already ended.
        self.kill();
    }
}

fn database_variable(url: &str) -> (&'static str, String) {
    ("LOCKKEEPER_DATABASE_URL", url.to_owned())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server itself, not a child of the product"
)]
fn spawn(
    dir: &Path,
    github: &Emulator,
    variables: &[(&'static str, String)],
    more: &[(&str, PathBuf)],
) -> anyhow::Result<Child> {
    std::fs::write(dir.join("token"), TOKEN)?;
    let flags = [
        ("--repo-allowlist", "github.test/acme/*".into()),
        ("--gh-hostname", "github.test".into()),
        ("--gh-api-url", github.api_url().into()),
        ("--gh-user", LOGIN.into()),
        ("--gh-token-file", dir.join("token")),
        ("--bind-address", "127.0.0.1".into()),
        ("--port", "0".into()),
        ("--data-dir", dir.join("data")),
        ("--tf-bin-dir", dir.join("tools")),
        ("--sandbox-write", dir.join("tools")),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command
        .arg("server")
        .env_clear()
        .env("LOCKKEEPER_GH_WEBHOOK_SECRET", SECRET)
        .env("LOCKKEEPER_WEB_BASIC_AUTH", "true")
        .env("LOCKKEEPER_WEB_PASSWORD", PASSWORD);
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir);
    command.envs(variables.iter().cloned());
    for (flag, value) in flags.iter().chain(more) {
        command.arg(flag);
        if !value.as_os_str().is_empty() {
            command.arg(value);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(dir.join("log"))?);
    Ok(command.spawn()?)
}

/// Waits until every job is done. Returns how long that took.
pub async fn drained(store: &Store, deadline: Duration) -> anyhow::Result<Duration> {
    let since = Instant::now();
    loop {
        let open = store.job_list_open().await?;
        if open.is_empty() {
            return Ok(since.elapsed());
        }
        if since.elapsed() > deadline {
            bail!(
                "after {deadline:?} {} jobs are still open, the first: {:?}",
                open.len(),
                open[0]
            );
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
