//! `lockkeeper registry uses`: projects that use a module.

use anyhow::Context as _;
use serde_json::json;

use super::super::input::shown_key;
use super::versions::{Shown, shown};
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, safe, time};

#[derive(clap::Args)]
pub(in crate::features::registry) struct UsesArgs {
    /// Name of the module, or name and version, as in acme/vpc/aws@1.2.3
    #[arg(value_name = "NAME[@VERSION]", value_parser = shown)]
    shown: Shown,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl UsesArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let store = self.database.open().await?;
        let (name, version) = match &self.shown {
            Shown::Name(name) => (name.clone(), None),
            Shown::Version(key) => (key.name(), Some(key)),
        };
        let uses = store.registry_uses(&name, version, i64::MAX).await;
        let uses = uses.context("the uses of the module cannot be read")?;
        if uses.is_empty() && !self.format.is_json() {
            let what = version.map_or_else(|| name.as_str().to_owned(), shown_key);
            terminal.line(format_args!("No latest plan of a project uses {what}."))?;
        }
        for used in &uses {
            let (project, version) = (&used.project, used.key.version());
            let json = || {
                json!({
                    "repo": used.pull.repo,
                    "pull": used.pull.subject,
                    "dir": project.dir,
                    "workspace": project.workspace,
                    "project": project.name,
                    "kind": name.kind(),
                    "name": name.as_str(),
                    "version": version,
                    "plan": used.state,
                    "planned_at": used.planned_at,
                })
            };
            let text = || {
                let project = safe(&project.to_string());
                let at = time(used.planned_at);
                format!(
                    "{}: {project} uses {version} (plan {}, {at})",
                    used.pull, used.state
                )
            };
            self.format.print(terminal, json, text)?;
        }
        Ok(ExitStatus::Success)
    }
}
