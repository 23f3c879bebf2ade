//! `lockkeeper registry explain`: what happens when a version is not in the registry, and why.

use anyhow::Context as _;

use super::super::explain::Explanation;
use super::super::input::{NameOrVersion, read_name_or_version};
use crate::config::server::{RegistryMisses, StorageConfig};
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, Usage, database, safe,
};

#[derive(clap::Args)]
pub(in crate::features::registry) struct ExplainArgs {
    /// Name of the module, or name and version, as in example.com/net@v1.2.3
    #[arg(value_name = "NAME[@VERSION]", value_parser = read_name_or_version)]
    shown: NameOrVersion,
    /// Hosts to fetch from, as for `lockkeeper server`
    #[arg(long, value_name = "HOSTS")]
    registry_vcs_allowlist: Option<String>,
    /// Rules for missing versions, as for `lockkeeper server`
    #[arg(long, value_name = "RULES")]
    registry_on_miss: Option<String>,
    /// Size of all packages from elsewhere, as for `lockkeeper server`
    #[arg(long, value_name = "SIZE")]
    registry_cache_quota: Option<String>,
    /// Number of versions from elsewhere, as for `lockkeeper server`
    #[arg(long, value_name = "NUMBER")]
    registry_cache_versions: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl ExplainArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let more = [
            (
                "registry-vcs-allowlist",
                self.registry_vcs_allowlist.as_ref(),
            ),
            ("registry-on-miss", self.registry_on_miss.as_ref()),
            ("registry-cache-quota", self.registry_cache_quota.as_ref()),
            (
                "registry-cache-versions",
                self.registry_cache_versions.as_ref(),
            ),
        ];
        let raw = self.database.settings_with(more)?;
        let misses = RegistryMisses::from_raw(&raw).map_err(Usage::new)?;
        let storage = StorageConfig::from_raw(&raw).map_err(Usage::new)?;
        let store = database::open(&storage).await?;
        let explanation = Explanation::of(&store, &self.shown, &misses).await;
        let explanation = explanation.context("the registry cannot be read")?;
        let json = serde_json::to_string(&explanation)?;
        let text = || {
            let lines = explanation.sentences(&self.shown, &misses);
            let lines: Vec<String> = lines.iter().map(|line| safe(line)).collect();
            lines.join("\n")
        };
        self.format.print(terminal, || json, text)?;
        Ok(ExitStatus::Success)
    }
}
