//! `lockkeeper registry setup`: the settings of clients.

use anyhow::Context as _;
use url::Url;

use super::super::setup::ClientSettings;
use super::log_key;
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, Usage};

#[derive(clap::Args)]
pub(in crate::features::registry) struct SetupArgs {
    /// Public address of the server, as in `https://lockkeeper.example.com`
    #[arg(long, value_name = "URL")]
    url: Url,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl SetupArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let Some(host) = self.url.host_str().filter(|_| self.url.scheme() == "https") else {
            let problem =
                "--url: Terraform, OpenTofu and Go need an address that begins with https://";
            return Err(Usage::new(problem).into());
        };
        let host = match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let store = self.database.open().await?;
        let log = log_key(&store).await?;
        let namespaces = store.registry_namespaces().await;
        let namespaces = namespaces.context("the namespaces cannot be read")?;
        let prefixes = namespaces.iter().map(|namespace| &namespace.prefix);
        let settings = ClientSettings::new(host, self.url.as_str(), log, prefixes);
        self.format
            .print(terminal, || settings.json(), || settings.text())?;
        Ok(ExitStatus::Success)
    }
}
