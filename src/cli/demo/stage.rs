//! The stage of the story: servers as `lockkeeper server` runs them, and an emulated GitHub, on loopback.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::folder::Folder;
use super::script::BOT;
use super::{sample, terraform};
use crate::app::{ProcessFacts, Replica, Server, ServiceInputs, build_on};
use crate::clock::{RandomIds, SystemClock};
use crate::config::server::{RawSettings, ServerConfig};
use crate::context::ServerCtx;
use crate::emulator::{Emulator, Options};
use crate::git::{Git, GitSettings, RefName};
use crate::model::{RepoId, SyncState};
use crate::seal::{KEY_BYTES, KeyName, key_line};
use crate::secret::Secret;
use crate::telemetry::Panics;

/// Servers, emulated GitHub and their data.
pub(super) struct DemoStage {
    pub github: Emulator,
    pub server: Server,
    second: SecondServer,
    /// The server of another deployment, with its own database and registry.
    pub deployment: Server,
    /// The states of Terraform.
    pub states: PathBuf,
    /// Password of the dashboard.
    password: Secret,
    /// Data directories of the servers, which contain their mirrors.
    data_dirs: [PathBuf; 2],
    /// Folder for what people have on their own machines.
    pub people: PathBuf,
    /// The `PATH` of all programs.
    pub path: String,
}

/// Another server on the same database, with its own disk. It runs in this process, because processes do not share a
/// file of SQLite. It only updates its mirrors.
struct SecondServer {
    ctx: Arc<ServerCtx>,
    _rounds: AbortOnDropHandle<()>,
}

impl SecondServer {
    async fn start(
        config: &ServerConfig,
        props: &Props,
        first: &ServerCtx,
    ) -> anyhow::Result<Self> {
        let parts = ServiceInputs {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            panics: Panics::new(Arc::new(SystemClock)),
            exe: std::env::current_exe()
                .context("cannot find the path of the lockkeeper executable")?,
            environment: props.variables.clone(),
            name: format!("{}-second", props.hostname),
        };
        let name = parts.name.clone();
        let ctx = build_on(config, parts, first.store.clone())
            .await
            .context("cannot start the second server")?;
        let replica = Replica::new(Arc::clone(&ctx), &name);
        replica
            .tick_leases()
            .await
            .context("cannot register the second server in the database")?;
        let rounds = tokio::spawn(async move {
            loop {
                // Errors are in the log, and the next round retries.
                replica.tick_leases().await.ok();
                replica.tick("repositories").await.ok();
                tokio::time::sleep(ROUND_EVERY).await;
            }
        });
        Ok(Self {
            ctx,
            _rounds: AbortOnDropHandle::new(rounds),
        })
    }
}

/// Requirements of a stage.
pub(super) struct Props {
    /// Port of the server; 0 means any free port.
    pub port: u16,
    /// Environment of the server.
    pub variables: BTreeMap<String, String>,
    /// Name of the machine.
    pub hostname: String,
    pub terraform: terraform::DemoTerraform,
    /// Folder with the states of the projects.
    pub states: PathBuf,
}

impl DemoStage {
    /// Starts the servers and the emulated GitHub, with the repository on `main`.
    pub async fn set(folder: &Folder, props: Props) -> anyhow::Result<Self> {
        let (listener, url) = listen(props.port)
            .await
            .with_context(|| format!("cannot listen on port {} (--port)", props.port))?;
        let (token, webhook_secret, password) = (secret(), secret(), secret());
        let github = github(folder, &url, &token, &webhook_secret).await?;
        let secrets = [token, webhook_secret, password.clone()];
        let keys = write_keys(&folder.keys("acme"))?;
        let of_server = |data_dir| DemoServer {
            data_dir,
            url: &url,
            allowlist: "github.com/acme/*",
            registry: sample::MODULE_HOST,
            keys: &keys,
        };
        // The second server of the database only updates its mirrors, so it never opens its folder of packages.
        let (first, second) = (
            of_server(folder.server()).config(&props, &github, &secrets)?,
            of_server(folder.second_server()).config(&props, &github, &secrets)?,
        );
        let facts = || ProcessFacts {
            variables: props.variables.clone(),
            hostname: props.hostname.clone(),
        };
        let server = Server::start(listener, &first, facts()).await?;
        let second = SecondServer::start(&second, &props, server.ctx()).await?;
        let (listener, url) = listen(0).await.context("cannot listen on any port")?;
        let keys = write_keys(&folder.keys("partner"))?;
        let other = DemoServer {
            data_dir: folder.deployment(),
            url: &url,
            allowlist: "github.com/partner/*",
            registry: PARTNER,
            keys: &keys,
        };
        let other = other.config(&props, &github, &secrets)?;
        let deployment = Server::start(listener, &other, facts()).await?;
        let path = props.variables.get("PATH").cloned().unwrap_or_default();
        let data_dirs = [folder.server(), folder.second_server()];
        Ok(Self {
            github,
            server,
            second,
            deployment,
            password,
            states: folder.states(),
            data_dirs,
            people: folder.people(),
            path,
        })
    }

    /// Returns the commit of `main` in the mirrors of both servers, with their verification in the table of mirrors.
    pub async fn mirrors(&self) -> anyhow::Result<Vec<String>> {
        let repo: RepoId = format!("github.com/{}", sample::REPO).parse()?;
        let main = RefName::new("refs/heads/main")?;
        let mut mirrors = Vec::new();
        let servers = [
            (self.server.ctx(), &self.data_dirs[0]),
            (&self.second.ctx, &self.data_dirs[1]),
        ];
        for (ctx, data_dir) in servers {
            let row = ctx
                .store
                .mirror_get(ctx.server.syncer.data_dir_id(), &repo)
                .await
                .context("cannot read the registry")?;
            let Some(row) = row.filter(|row| row.state.state == SyncState::Synced) else {
                mirrors.push("no mirror that is in sync".to_owned());
                continue;
            };
            let refs = Git::new(GitSettings::new(data_dir, &self.path))
                .mirror(&repo)
                .refs()
                .await?;
            let commit = refs
                .get(&main)
                .map_or_else(|| "nothing".to_owned(), |commit| commit.short().to_owned());
            mirrors.push(format!("{commit} {}", row.state.verification));
        }
        Ok(mirrors)
    }

    /// Returns the URL of the dashboard.
    pub fn dashboard(&self) -> String {
        format!("http://{}/", self.server.address())
    }

    /// Returns the URL of the modules of the other deployment.
    pub fn other_modules(&self) -> String {
        format!("http://{}/registry", self.deployment.address())
    }

    /// Looks at tags now, because nobody waits for the timers of a demo. Errors are in the log, and the next turn retries.
    pub async fn turn_tags(&self) {
        self.server.tick("repositories").await.ok();
        self.server.tick("registry_tags").await.ok();
    }

    /// Reads the log of the first deployment in the other one now, and downloads the packages. Errors are in the log, and
    /// the next turn retries.
    pub async fn turn_copies(&self) {
        self.deployment.tick("registry_pull").await.ok();
        self.deployment.tick("registry_downloads").await.ok();
    }

    /// Returns how people sign in to the dashboard. Visitors cannot see the output of runs or change anything.
    pub fn sign_in(&self) -> String {
        format!("as {WEB_USER}, password {}", self.password.expose())
    }

    /// Describes the sandbox of the runs.
    pub fn sandbox(&self) -> String {
        match self.server.ctx().runs.terraform.plans.sandbox.mechanism() {
            Some(mechanism) => {
                format!("each run may use only its own files, enforced by {mechanism}")
            }
            None => "none: this kernel has no Landlock, so runs have the rights of the server"
                .to_owned(),
        }
    }

    /// Stops all servers and interrupts the runs in progress.
    pub async fn strike(self) {
        drop(self.second);
        self.server.interrupt();
        self.deployment.interrupt();
        tokio::join!(self.server.stop(), self.deployment.stop());
    }
}

/// Opens a listener on loopback. Returns its URL as well.
async fn listen(port: u16) -> anyhow::Result<(TcpListener, String)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    Ok((listener, format!("http://{address}")))
}

/// Writes the file of `--encryption-key-file` with a new key, and returns its path.
fn write_keys(path: &Path) -> anyhow::Result<String> {
    let name: KeyName = "demo".parse().context("the name of the key of the demo")?;
    let line = key_line(&name, &rand::random::<[u8; KEY_BYTES]>());
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| writeln!(file, "{}", line.expose()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

async fn github(
    folder: &Folder,
    server: &str,
    token: &Secret,
    webhook_secret: &Secret,
) -> anyhow::Result<Emulator> {
    let target = format!("{server}/events")
        .parse()
        .context("the server's address is not a URL")?;
    let options = Options::new(
        &folder.github(),
        Arc::new(SystemClock),
        webhook_secret.clone(),
    )
    .with_token(BOT, token.clone())
    .with_webhook_target(target);
    let github = Emulator::start(options).await?;
    let files = sample::files(&folder.states());
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_str()))
        .collect();
    let made = github.create_repo(sample::REPO, &files).await;
    made.context("cannot create the sample repository")?;
    let made = github
        .create_repo(sample::MODULE_REPO, &sample::MODULE_FILES)
        .await;
    made.context("cannot create the repository of the module")?;
    Ok(github)
}

/// Interval between rounds of the second server.
const ROUND_EVERY: Duration = Duration::from_secs(1);

/// Name of the registry of the other deployment.
const PARTNER: &str = "modules.partner.example";

/// Time between two reads of the logs of other deployments. A shorter time also shortens the random pause before each.
const SYNC_EVERY: &str = "1s";

/// Settings in which the servers differ.
struct DemoServer<'a> {
    data_dir: PathBuf,
    url: &'a str,
    /// Repositories that it works for.
    allowlist: &'a str,
    /// Name of its registry, and host in the addresses of modules.
    registry: &'a str,
    /// File with the keys that encrypt its secrets.
    keys: &'a str,
}

impl DemoServer<'_> {
    /// Builds the configuration from flags, as an administrator would write them. Variables of the person are ignored,
    /// because they are for other servers.
    fn config(
        self,
        props: &Props,
        github: &Emulator,
        [token, webhook_secret, password]: &[Secret; 3],
    ) -> anyhow::Result<ServerConfig> {
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let flags = [
            ("repo-allowlist", self.allowlist.to_owned()),
            ("gh-user", BOT.to_owned()),
            ("gh-token", token.expose().to_owned()),
            ("gh-webhook-secret", webhook_secret.expose().to_owned()),
            ("gh-api-url", github.api_url()),
            ("web-basic-auth", "true".to_owned()),
            ("web-username", WEB_USER.to_owned()),
            ("web-password", password.expose().to_owned()),
            ("bind-address", Ipv4Addr::LOCALHOST.to_string()),
            ("atlantis-url", self.url.to_owned()),
            ("data-dir", path(self.data_dir.clone())),
            ("checkout-strategy", "merge".to_owned()),
            ("shutdown-grace", "5s".to_owned()),
            (
                "default-tf-distribution",
                props.terraform.tool.distribution.to_string(),
            ),
            ("tf-bin-dir", path(props.terraform.bin_dir.clone())),
            (
                "sandbox-read",
                props.terraform.installed_in().map(path).unwrap_or_default(),
            ),
            ("sandbox-write", path(props.states.clone())),
            ("registry", "true".to_owned()),
            ("registry-name", self.registry.to_owned()),
            ("registry-host", self.registry.to_owned()),
            ("registry-sync-interval", SYNC_EVERY.to_owned()),
            ("encryption-key-file", self.keys.to_owned()),
        ];
        let flags = flags
            .into_iter()
            .map(|(flag, value)| (flag.to_owned(), vec![value]))
            .collect();
        let raw = RawSettings {
            flags,
            working_dir: self.data_dir,
            hostname: props.hostname.clone(),
            ..RawSettings::default()
        };
        let (mut config, _) = ServerConfig::from_raw(&raw, Vec::new())
            .context("invalid settings of the demo's server")?;
        // The emulator appears under the name github.com, and has no limits.
        for github in &mut config.github {
            github.write_pause = Some(Duration::ZERO);
        }
        Ok(config)
    }
}

/// User of the dashboard.
const WEB_USER: &str = "demo";

/// Returns a random secret, which is never stored.
fn secret() -> Secret {
    Secret::new(&hex::encode(rand::random::<[u8; 20]>()))
}
