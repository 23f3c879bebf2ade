//! Reads the installation of the App from a delivery.

use axum::http::HeaderMap;
use serde::Deserialize;

use super::payload::{json, read, repo_id};
use super::shape::Repository;
use crate::model::{HostName, RepoId};

/// Actions after which the App has no access to the repositories of an `installation` delivery.
const ENDS: [&str; 2] = ["deleted", "suspend"];

/// Fields of a delivery about an installation and its repositories.
#[derive(Deserialize)]
struct InstallationPayload {
    #[serde(default)]
    action: Option<String>,
    #[serde(default)]
    installation: Option<WebhookInstallation>,
    #[serde(default)]
    repository: Option<Repository>,
    #[serde(default)]
    repositories_added: Vec<Repository>,
    #[serde(default)]
    repositories: Vec<Repository>,
}

#[derive(Deserialize)]
struct WebhookInstallation {
    id: u64,
}

/// Returns the repositories that a delivery names, each with the installation that sent it. Returns none if the body
/// cannot be read, or if the delivery comes from the webhook of a repository.
pub fn installations(headers: &HeaderMap, body: &[u8], host: &HostName) -> Vec<(RepoId, u64)> {
    let payload: Option<InstallationPayload> =
        json(headers, body).ok().and_then(|json| read(&json).ok());
    let Some(payload) = payload else {
        return Vec::new();
    };
    let Some(WebhookInstallation { id }) = payload.installation else {
        return Vec::new();
    };
    let is_end = payload
        .action
        .is_some_and(|action| ENDS.contains(&action.as_str()));
    let repositories = if is_end {
        Vec::new()
    } else {
        payload.repositories
    };
    payload
        .repository
        .into_iter()
        .chain(payload.repositories_added)
        .chain(repositories)
        .filter_map(|one| Some((repo_id(host, &one.full_name).ok()?, id)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn named(body: &Value) -> Vec<String> {
        let host = HostName::new("github.com").unwrap();
        installations(&HeaderMap::new(), body.to_string().as_bytes(), &host)
            .into_iter()
            .map(|(repo, id)| format!("{} {id}", repo.full_name()))
            .collect()
    }

    #[test]
    fn a_delivery_names_the_installation_of_its_repositories() {
        let repository = json!({"full_name": "Acme/Infra"});
        assert_eq!(
            named(&json!({"repository": repository, "installation": {"id": 7}})),
            ["acme/infra 7"]
        );
        assert_eq!(named(&json!({"repository": repository})), [""; 0]);
        assert_eq!(named(&json!(["no object"])), [""; 0]);
        assert_eq!(
            named(&json!({"repositories_added": [repository], "installation": {"id": 7}})),
            ["acme/infra 7"]
        );
        let all = |action: &str| json!({"action": action, "repositories": [repository], "installation": {"id": 7}});
        assert_eq!(named(&all("created")), ["acme/infra 7"]);
        assert_eq!(named(&all("deleted")), [""; 0]);
    }
}
