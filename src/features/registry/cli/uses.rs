//! `lockkeeper registry uses`: plans and default branches that use a module.

use anyhow::Context as _;

use super::super::input::{NameOrVersion, read_name_or_version, shown_key};
use super::super::used_by::ModuleUses;
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, safe, time};
use crate::model::CommitSha;

#[derive(clap::Args)]
pub(in crate::features::registry) struct UsesArgs {
    /// Name of the module, or name and version, as in acme/vpc/aws@1.2.3
    #[arg(value_name = "NAME[@VERSION]", value_parser = read_name_or_version)]
    shown: NameOrVersion,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl UsesArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let store = self.database.open().await?;
        let (name, version) = (self.shown.name(), self.shown.version());
        let uses = ModuleUses::all(&store, &name, version).await;
        let uses = uses.context("the uses of the module cannot be read")?;
        if self.format.is_json() {
            for used in uses.views() {
                terminal.line(serde_json::to_string(&used)?)?;
            }
            return Ok(ExitStatus::Success);
        }
        if uses.plans.is_empty() && uses.branches.is_empty() {
            let what = version.map_or_else(|| name.as_str().to_owned(), shown_key);
            let told = format!("No latest plan of a project and no default branch uses {what}.");
            terminal.line(format_args!("{told}"))?;
        }
        for used in &uses.plans {
            let (project, version) = (safe(&used.project.to_string()), used.key.version());
            let at = time(used.planned_at);
            terminal.line(format_args!(
                "{}: {project} uses {version} (plan {}, {at})",
                used.pull, used.state
            ))?;
        }
        for listed in &uses.branches {
            let call = &listed.used;
            let dir = safe(call.dir.as_str());
            let wanted = match call.wanted.as_str() {
                "" => "any version".to_owned(),
                wanted => safe(wanted),
            };
            let head = listed.head.as_ref().map_or("unknown", CommitSha::short);
            terminal.line(format_args!(
                "{}: dir: `{dir}` uses {wanted} (default branch at {head})",
                listed.repo
            ))?;
        }
        Ok(ExitStatus::Success)
    }
}
