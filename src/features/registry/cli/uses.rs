//! `lockkeeper registry uses`: plans and default branches that use a module.

use anyhow::Context as _;
use lockkeeper_registry::versions::VersionKey;
use serde_json::json;

use super::super::input::shown_key;
use super::versions::{Shown, shown};
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, safe, time};
use crate::model::CommitSha;

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
        let plans = store.registry_uses(&name, version, i64::MAX).await;
        let plans = plans.context("the uses of the module cannot be read")?;
        let branches = store.registry_branch_uses(&name, version, i64::MAX).await;
        let branches = branches.context("the uses of the module cannot be read")?;
        if plans.is_empty() && branches.is_empty() && !self.format.is_json() {
            let what = version.map_or_else(|| name.as_str().to_owned(), shown_key);
            let told = format!("No latest plan of a project and no default branch uses {what}.");
            terminal.line(format_args!("{told}"))?;
        }
        for used in &plans {
            let (project, version) = (&used.project, used.key.version());
            let json = || {
                json!({
                    "used_by": "plan",
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
        for listed in &branches {
            let used = &listed.used;
            let json = || {
                json!({
                    "used_by": "default_branch",
                    "repo": listed.repo,
                    "commit": listed.head,
                    "dir": used.dir,
                    "kind": name.kind(),
                    "name": name.as_str(),
                    "wanted": used.wanted,
                    "version": used.version.as_ref().map(VersionKey::version),
                    "looked_at": listed.looked_at,
                })
            };
            let text = || {
                let dir = safe(used.dir.as_str());
                let wanted = match used.wanted.as_str() {
                    "" => "any version".to_owned(),
                    wanted => safe(wanted),
                };
                let head = listed.head.as_ref().map_or("unknown", CommitSha::short);
                format!(
                    "{}: dir: `{dir}` uses {wanted} (default branch at {head})",
                    listed.repo
                )
            };
            self.format.print(terminal, json, text)?;
        }
        Ok(ExitStatus::Success)
    }
}
