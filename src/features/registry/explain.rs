//! Explains what happens when a version is not in the registry, for the API and the command line.

use lockkeeper_registry::names::{NameKind, NamePattern, RegistryName};
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;
use serde::Serialize;

use super::input::{NameOrVersion, shown_key};
use super::misses::{
    MissFacts, MissReason, RepositoryLookup, covers_in_any_case, decide, repository_lookup,
};
use super::{FailedFill, FillFault, PeerState};
use crate::config::server::{OnMiss, RegistryMisses};
use crate::kit::term::time;
use crate::store::{Result, Store};

/// Decision about missing versions of a name, with its reason.
#[derive(Serialize)]
pub(super) struct Explanation {
    kind: NameKind,
    name: String,
    /// Version that was asked about.
    version: Option<String>,
    /// State of the version; `None` if it was never here.
    state: Option<VersionState>,
    on_miss: OnMiss,
    /// `namespace`, `rule` or `default`.
    because: &'static str,
    rule: Option<String>,
    /// Prefix of the namespace that the name is in.
    namespace: Option<String>,
    /// Deployments that are asked first. Not there for people who do not see them.
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<Vec<String>>,
    /// Repository or page that is asked.
    source: Option<String>,
    /// Reason why no repository is.
    no_source: Option<String>,
    /// Last failure to fetch the version, as long as it is in effect.
    failure: Option<FailureView>,
}

#[derive(Serialize)]
struct FailureView {
    fault: FillFault,
    reason: String,
    attempts: i64,
    failed_at: String,
    retry_at: String,
}

impl From<FailedFill> for FailureView {
    fn from(failure: FailedFill) -> Self {
        Self {
            fault: failure.fault,
            reason: failure.reason,
            attempts: failure.attempts,
            failed_at: time(failure.failed_at),
            retry_at: time(failure.retry_at),
        }
    }
}

impl Explanation {
    /// Collects the facts about a name, or about one version of it.
    pub async fn of(store: &Store, asked: &NameOrVersion, misses: &RegistryMisses) -> Result<Self> {
        let name = asked.name();
        let namespaces = store.registry_namespaces().await?;
        let namespace = namespaces.iter().find(|namespace| {
            let prefix = (namespace.prefix.kind(), namespace.prefix.as_str());
            covers_in_any_case(prefix, &name)
        });
        let set = namespace.map(|namespace| NamePattern::from(namespace.prefix.clone()));
        let namespace = namespace.map(|namespace| namespace.prefix.as_str());
        let peers = store.registry_peers().await?;
        let joined = peers.iter().filter(|peer| peer.state == PeerState::Joined);
        let accepted = joined.filter(|peer| match &set {
            Some(set) => peer.accepts.name_it(&name, set),
            None => peer.accepts.matches(&name),
        });
        let peers: Vec<String> = accepted.map(|peer| peer.name.to_string()).collect();
        let facts = MissFacts {
            namespace,
            is_of_peers: !peers.is_empty(),
        };
        let decision = decide(&name, facts, &misses.rules);
        let (because, rule) = match decision.reason {
            MissReason::Namespace(_) => ("namespace", None),
            MissReason::Rule(rule) => ("rule", Some(rule)),
            MissReason::Default => ("default", None),
        };
        let source = match namespace {
            Some(prefix) => Err(format!("only the owner of {prefix} publishes there")),
            None => source_of(&name, misses),
        };
        let (source, no_source) = match source {
            Ok(source) => (Some(source), None),
            Err(why) => (None, Some(why)),
        };
        let (version, failure) = match asked.version() {
            None => (None, None),
            Some(key) => (
                store.registry_version(key).await?,
                store.registry_fill_failure(key).await?,
            ),
        };
        let now = store.now();
        let failure = failure.filter(|failure| failure.is_in_effect(now));
        Ok(Self {
            kind: name.kind(),
            name: name.as_str().to_owned(),
            version: asked.version().map(VersionKey::version),
            state: version.map(|version| version.known.state()),
            on_miss: decision.action,
            because,
            rule,
            namespace: namespace.map(str::to_owned),
            peers: Some(peers),
            source,
            no_source,
            failure: failure.map(FailureView::from),
        })
    }

    /// Leaves out the names of other deployments.
    pub fn without_peers(self) -> Self {
        Self {
            peers: None,
            ..self
        }
    }

    /// Returns sentences for people.
    pub fn sentences(&self, asked: &NameOrVersion, misses: &RegistryMisses) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(key) = asked.version() {
            let place = match self.state {
                None | Some(VersionState::Absent) => "is not in the registry",
                Some(VersionState::Added | VersionState::Deprecated) => "is in the registry",
                Some(VersionState::Deleted) => "was taken down, and is never fetched again",
            };
            lines.push(format!("{} {place}.", shown_key(key)));
        }
        if self.has_nobody_to_ask() {
            lines.push(format!(
                "A missing version of {} is answered with 404 at once, because there is nobody to ask.",
                self.name
            ));
            lines.push("No other deployment is asked.".to_owned());
        } else {
            lines.push(self.decision_sentence());
        }
        if !matches!(self.on_miss, OnMiss::Background | OnMiss::Wait) {
            return lines;
        }
        let peers = self.peers.as_deref().unwrap_or_default();
        if !peers.is_empty() {
            let peers = peers.join(", ");
            lines.push(format!("Other deployments are asked first: {peers}."));
        }
        if let Some(source) = &self.source {
            lines.push(format!("It would come from {source}."));
        }
        if let Some(why) = &self.no_source {
            lines.push(format!("Nothing is fetched from a repository: {why}."));
        }
        if let Some(failure) = &self.failure {
            lines.push(format!(
                "The last attempt failed on {}, and the next one begins after {}: {}.",
                failure.failed_at, failure.retry_at, failure.reason
            ));
        }
        if self.source.is_some() {
            lines.push(format!(
                "Packages from elsewhere have at most {} together (--registry-cache-quota), and at most {} versions \
                 (--registry-cache-versions).",
                misses.quota, misses.versions
            ));
        }
        lines
    }

    /// Returns true if a missing version would be fetched, but neither from another deployment nor from a repository.
    fn has_nobody_to_ask(&self) -> bool {
        matches!(self.on_miss, OnMiss::Background | OnMiss::Wait)
            && self.source.is_none()
            && self.peers.as_ref().is_some_and(Vec::is_empty)
    }

    fn decision_sentence(&self) -> String {
        let because = match (self.because, &self.namespace, &self.rule) {
            ("namespace", Some(prefix), _) => {
                format!("because only the owner of the namespace {prefix} publishes there")
            }
            (_, _, Some(rule)) => format!("because of the rule `{rule}` (--registry-on-miss)"),
            (_, _, None) => "by default".to_owned(),
        };
        let action = match self.on_miss {
            OnMiss::Background => "answered with 404 at once, and fetched in the background",
            OnMiss::Wait => "fetched while the client waits for up to 8 seconds",
            OnMiss::Never => "answered with 404, and never fetched",
            OnMiss::Refuse => "refused with 403",
        };
        format!("A missing version of {} is {action}, {because}.", self.name)
    }
}

/// Returns the place where versions of a name are looked for, or the reason why nobody is asked.
fn source_of(name: &RegistryName, misses: &RegistryMisses) -> Result<String, String> {
    let RegistryName::Go(path) = name else {
        return Err(
            "nothing leads from the name of a Terraform module to its repository".to_owned(),
        );
    };
    if misses.hosts.is_empty() {
        return Err("--registry-vcs-allowlist names no host".to_owned());
    }
    Ok(match repository_lookup(&misses.hosts, path)? {
        RepositoryLookup::Repository(repository) => format!("the repository {}", repository.url),
        RepositoryLookup::Ask(page) => format!("the repository that {page}?go-get=1 names"),
    })
}
