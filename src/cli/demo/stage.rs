//! What the story is played on: a server as `lockkeeper server` runs it, and an emulated GitHub, on loopback.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;

use super::folder::Folder;
use super::script::BOT;
use super::{sample, terraform};
use crate::app::{Server, Surroundings};
use crate::clock::SystemClock;
use crate::config::server::{RawSettings, ServerConfig};
use crate::emulator::{Emulator, Options};
use crate::secret::Secret;

/// Everything that runs.
pub(super) struct Stage {
    pub github: Emulator,
    pub server: Server,
    /// Terraform's states.
    pub states: PathBuf,
}

/// What the stage is set with.
pub(super) struct Props {
    /// Port of the server; 0 takes any free one.
    pub port: u16,
    /// Environment of the server.
    pub variables: BTreeMap<String, String>,
    /// Name of the machine.
    pub hostname: String,
    pub terraform: terraform::Found,
}

impl Stage {
    /// Starts both, with the repository on `main`.
    pub async fn set(folder: &Folder, props: Props) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, props.port)).await;
        let listener = listener.with_context(|| format!("cannot listen on port {} (--port)", props.port))?;
        let url = format!("http://{}", listener.local_addr().context("cannot tell which port is listened on")?);
        let (token, webhook_secret) = (secret(), secret());
        let github = github(folder, &url, &token, &webhook_secret).await?;
        let config = config(folder, &props, &url, &github, [token, webhook_secret])?;
        let surroundings = Surroundings { variables: props.variables, hostname: props.hostname };
        let server = Server::start(listener, &config, surroundings).await?;
        Ok(Self { github, server, states: folder.states() })
    }

    /// Address of the dashboard.
    pub fn dashboard(&self) -> String {
        format!("http://{}/", self.server.address())
    }

    /// Stops everything; runs under way are interrupted.
    pub async fn strike(self) {
        self.server.interrupt();
        self.server.stop().await;
    }
}

async fn github(folder: &Folder, server: &str, token: &Secret, webhook_secret: &Secret) -> anyhow::Result<Emulator> {
    let target = format!("{server}/events").parse().context("the address of the server is not a URL")?;
    let options = Options::new(&folder.github(), Arc::new(SystemClock), webhook_secret.clone())
        .with_token(BOT, token.clone())
        .with_webhook_target(target);
    let github = Emulator::start(options).await?;
    let files = sample::files(&folder.states());
    let files: Vec<(&str, &str)> = files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    let made = github.create_repo(sample::REPO, &files).await;
    made.context("cannot make the sample repository")?;
    Ok(github)
}

/// Made from flags as an operator would write them, and from no variables: those of the person are for other servers.
fn config(
    folder: &Folder,
    props: &Props,
    url: &str,
    github: &Emulator,
    [token, webhook_secret]: [Secret; 2],
) -> anyhow::Result<ServerConfig> {
    let path = |path: PathBuf| path.to_string_lossy().into_owned();
    let flags = [
        ("repo-allowlist", format!("github.com/{}", sample::REPO)),
        ("gh-user", BOT.to_owned()),
        ("gh-token", token.expose().to_owned()),
        ("gh-webhook-secret", webhook_secret.expose().to_owned()),
        ("gh-api-url", github.api_url()),
        ("bind-address", Ipv4Addr::LOCALHOST.to_string()),
        ("atlantis-url", url.to_owned()),
        ("data-dir", path(folder.server())),
        ("checkout-strategy", "merge".to_owned()),
        ("shutdown-grace", "5s".to_owned()),
        ("default-tf-distribution", props.terraform.tool.distribution.to_string()),
        ("tf-bin-dir", path(props.terraform.bin_dir.clone())),
    ];
    let flags = flags.into_iter().map(|(flag, value)| (flag.to_owned(), vec![value])).collect();
    let raw =
        RawSettings { flags, working_dir: folder.server(), hostname: props.hostname.clone(), ..RawSettings::default() };
    let (config, _) = ServerConfig::from_raw(&raw, Vec::new()).context("the settings of the demo's server")?;
    Ok(config)
}

/// Nobody needs to know it.
fn secret() -> Secret {
    Secret::new(&hex::encode(rand::random::<[u8; 20]>()))
}
