//! `lockkeeper registry explain`: what happens when a version is not in the registry, and why.

use anyhow::Context as _;
use lockkeeper_registry::names::{NamePattern, RegistryName};
use lockkeeper_registry::states::VersionState;
use serde_json::json;

use super::super::input::shown_key;
use super::super::misses::{
    Lead, MissDecision, MissFacts, MissReason, covers_in_any_case, decide, lead,
};
use super::super::{FailedFill, PeerState, RegistryVersion};
use super::versions::{Shown, shown};
use crate::config::server::{OnMiss, RegistryMisses, StorageConfig};
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, Usage, database, safe, time,
};
use crate::store::Store;

#[derive(clap::Args)]
pub(in crate::features::registry) struct ExplainArgs {
    /// Name of the module, or name and version, as in example.com/net@v1.2.3
    #[arg(value_name = "NAME[@VERSION]", value_parser = shown)]
    shown: Shown,
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

/// Everything that the command says.
struct Explanation {
    decision: MissDecision,
    /// Deployments that are asked first.
    peers: Vec<String>,
    /// Repository or page that is asked, or the reason why nobody is.
    source: Result<String, String>,
    version: Option<RegistryVersion>,
    failure: Option<FailedFill>,
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
        let name = match &self.shown {
            Shown::Name(name) => name.clone(),
            Shown::Version(key) => key.name(),
        };
        let explanation = self.explain(&store, &name, &misses).await;
        let explanation = explanation.context("the registry cannot be read")?;
        self.print(&name, &explanation, &misses, terminal)?;
        Ok(ExitStatus::Success)
    }

    async fn explain(
        &self,
        store: &Store,
        name: &RegistryName,
        misses: &RegistryMisses,
    ) -> Result<Explanation, sqlx::Error> {
        let namespaces = store.registry_namespaces().await?;
        let namespace = namespaces.iter().find(|namespace| {
            let prefix = (namespace.prefix.kind(), namespace.prefix.as_str());
            covers_in_any_case(prefix, name)
        });
        let set = namespace.map(|namespace| NamePattern::from(namespace.prefix.clone()));
        let namespace = namespace.map(|namespace| namespace.prefix.as_str());
        let peers = store.registry_peers().await?;
        let joined = peers.iter().filter(|peer| peer.state == PeerState::Joined);
        let accepted = joined.filter(|peer| match &set {
            Some(set) => peer.accepts.name_it(name, set),
            None => peer.accepts.matches(name),
        });
        let peers: Vec<String> = accepted.map(|peer| peer.name.to_string()).collect();
        let facts = MissFacts {
            namespace,
            is_of_peers: !peers.is_empty(),
        };
        let source = match namespace {
            Some(prefix) => Err(format!("only the owner of {prefix} publishes there")),
            None => source_of(name, misses),
        };
        let (version, failure) = match &self.shown {
            Shown::Name(_) => (None, None),
            Shown::Version(key) => (
                store.registry_version(key).await?,
                store.registry_fill_failure(key).await?,
            ),
        };
        let now = store.now();
        Ok(Explanation {
            decision: decide(name, facts, &misses.rules),
            peers,
            source,
            version,
            failure: failure.filter(|failure| failure.is_in_effect(now)),
        })
    }

    fn print(
        &self,
        name: &RegistryName,
        explanation: &Explanation,
        misses: &RegistryMisses,
        terminal: &mut Terminal<'_>,
    ) -> anyhow::Result<()> {
        let Explanation {
            decision,
            peers,
            source,
            version,
            failure,
        } = explanation;
        let key = match &self.shown {
            Shown::Name(_) => None,
            Shown::Version(key) => Some(key),
        };
        let json = || {
            let (reason, rule, namespace) = match &decision.reason {
                MissReason::Namespace(prefix) => ("namespace", None, Some(prefix)),
                MissReason::Rule(rule) => ("rule", Some(rule), None),
                MissReason::Default => ("default", None, None),
            };
            json!({
                "kind": name.kind(),
                "name": name.as_str(),
                "version": key.map(lockkeeper_registry::versions::VersionKey::version),
                "state": version.as_ref().map(|version| version.known.state()),
                "on_miss": decision.action,
                "because": reason,
                "rule": rule,
                "namespace": namespace,
                "peers": peers,
                "source": source.as_ref().ok(),
                "no_source": source.as_ref().err(),
                "failure": failure.as_ref().map(|failure| json!({
                    "fault": failure.fault,
                    "reason": failure.reason,
                    "attempts": failure.attempts,
                    "failed_at": time(failure.failed_at),
                    "retry_at": time(failure.retry_at),
                })),
            })
        };
        let text = || {
            let mut lines = Vec::new();
            if let Some(key) = key {
                let state = version.as_ref().map(|version| version.known.state());
                let place = match state {
                    None | Some(VersionState::Absent) => "is not in the registry",
                    Some(VersionState::Added | VersionState::Deprecated) => "is in the registry",
                    Some(VersionState::Deleted) => "was taken down, and is never fetched again",
                };
                lines.push(format!("{} {place}.", shown_key(key)));
            }
            lines.push(decision_sentence(name, decision));
            let may_fetch = matches!(decision.action, OnMiss::Background | OnMiss::Wait);
            if may_fetch && !peers.is_empty() {
                let peers = peers.join(", ");
                lines.push(format!("Other deployments are asked first: {peers}."));
            }
            match source {
                _ if !may_fetch => {}
                Ok(source) => lines.push(format!("It would come from {source}.")),
                Err(why) => lines.push(format!("Nothing is fetched from a repository: {why}.")),
            }
            if let Some(failure) = failure.as_ref().filter(|_| may_fetch) {
                lines.push(format!(
                    "The last attempt failed on {}, and the next one begins after {}: {}.",
                    time(failure.failed_at),
                    time(failure.retry_at),
                    failure.reason
                ));
            }
            if may_fetch && source.is_ok() {
                lines.push(format!(
                    "Packages from elsewhere have at most {} together (--registry-cache-quota), and at most {} versions \
                     (--registry-cache-versions).",
                    misses.quota, misses.versions
                ));
            }
            let lines: Vec<String> = lines.iter().map(|line| safe(line)).collect();
            lines.join("\n")
        };
        self.format.print(terminal, json, text)?;
        Ok(())
    }
}

/// Returns the place where versions of a name are looked for, or the reason why nobody is.
fn source_of(name: &RegistryName, misses: &RegistryMisses) -> Result<String, String> {
    let RegistryName::Go(path) = name else {
        return Err(
            "nothing leads from the name of a Terraform module to its repository".to_owned(),
        );
    };
    if misses.hosts.is_empty() {
        return Err("--registry-vcs-allowlist names no host".to_owned());
    }
    Ok(match lead(&misses.hosts, path)? {
        Lead::Repository(repository) => format!("the repository {}", repository.url),
        Lead::Ask(page) => format!("the repository that {page}?go-get=1 names"),
    })
}

fn decision_sentence(name: &RegistryName, decision: &MissDecision) -> String {
    let name = name.as_str();
    let because = match &decision.reason {
        MissReason::Namespace(prefix) => {
            format!("because only the owner of the namespace {prefix} publishes there")
        }
        MissReason::Rule(rule) => format!("because of the rule `{rule}` (--registry-on-miss)"),
        MissReason::Default => "by default".to_owned(),
    };
    let action = match decision.action {
        OnMiss::Background => "answered with 404 at once, and fetched in the background",
        OnMiss::Wait => "fetched while the client waits for up to 8 seconds",
        OnMiss::Never => "answered with 404, and never fetched",
        OnMiss::Refuse => "refused with 403",
    };
    format!("A missing version of {name} is {action}, {because}.")
}
