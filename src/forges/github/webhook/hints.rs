//! Takes hints from deliveries: which installation of the App has access to a repository.
//!
//! Only a delivery whose signature was checked is believed, and only about repositories that the server serves. So
//! strangers teach nothing, and others on the same host cannot fill the memory. See [`Installations`] for the uses of
//! a hint.

use std::sync::Arc;

use super::super::client::Installations;
use crate::config::server::RepoAllowlist;
use crate::forges::{ParsedDelivery, VerifiedSender};

/// Destination of hints, and the repositories that they may be about.
pub(super) struct InstallationHints {
    installations: Arc<Installations>,
    served: RepoAllowlist,
}

impl InstallationHints {
    pub fn new(installations: Arc<Installations>, served: RepoAllowlist) -> Self {
        Self {
            installations,
            served,
        }
    }

    /// Remembers the installation for the repositories of a delivery.
    pub fn take(&self, delivery: &ParsedDelivery, installation: u64, _sender: &VerifiedSender) {
        let repos = delivery.repositories.iter().map(|told| &told.repo);
        for repo in repos.filter(|repo| self.served.allows(repo)) {
            self.installations.hint(repo, installation);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use serde_json::{Value, json};

    use super::super::{GitHubWebhook, SIGNATURE, sign};
    use super::*;
    use crate::forges::WebhookSource as _;
    use crate::secret::Secret;

    /// Brings a signed delivery, and returns the installations for the API that are known after it.
    fn taught(event: &str, body: &Value) -> Vec<String> {
        let installations = Arc::new(Installations::new(None));
        let secret = Secret::new("the-webhook-secret");
        let served = RepoAllowlist::new(&["github.com/acme/*"]).unwrap();
        let webhook = GitHubWebhook::new("github.com".parse().unwrap(), vec![secret.clone()])
            .teaching(Arc::clone(&installations), served);
        let text = body.to_string();
        let mut headers = HeaderMap::new();
        headers.insert("x-github-delivery", "1".parse().unwrap());
        headers.insert("x-github-event", event.parse().unwrap());
        headers.insert(SIGNATURE, sign(&secret, text.as_bytes()).parse().unwrap());
        let delivery = webhook.recognise(&headers).unwrap().unwrap();
        let mut check = webhook.begin_check(&headers).unwrap().unwrap();
        check.update(text.as_bytes());
        let sender = check.finish().unwrap();
        webhook
            .parse(&delivery, &headers, text.as_bytes(), Some(&sender))
            .unwrap();
        ["acme/infra", "acme/labs", "other/infra"]
            .into_iter()
            .filter_map(|name| {
                let repo = format!("github.com/{name}").parse().unwrap();
                let id = installations.for_api(&repo)?;
                assert_eq!(installations.for_git(&repo), None, "a hint is not for git");
                Some(format!("{name} {id}"))
            })
            .collect()
    }

    fn repository(name: &str) -> Value {
        json!({"id": 1, "full_name": name})
    }

    #[test]
    fn a_signed_delivery_teaches_the_installation_of_its_repositories() {
        let (infra, labs) = (repository("Acme/Infra"), repository("acme/labs"));
        let by = json!({"id": 7});
        for (event, body) in [
            ("push", json!({"repository": infra, "installation": by})),
            (
                "repository",
                json!({"action": "edited", "repository": infra, "installation": by}),
            ),
            (
                "pull_request",
                json!({"action": "opened", "pull_request": {"number": 1}, "repository": infra, "installation": by}),
            ),
            (
                "issue_comment",
                json!({
                    "action": "created", "issue": {"number": 1, "pull_request": {}}, "comment": {"id": 1},
                    "repository": infra, "installation": by,
                }),
            ),
            (
                "installation_repositories",
                json!({"repositories_added": [infra], "repositories_removed": [labs], "installation": by}),
            ),
            (
                "installation",
                json!({"action": "created", "repositories": [infra], "installation": by}),
            ),
        ] {
            assert_eq!(taught(event, &body), ["acme/infra 7"], "{event}");
        }
    }

    #[test]
    fn what_has_no_installation_or_is_not_served_teaches_nothing() {
        let (infra, by) = (repository("acme/infra"), json!({"id": 7}));
        for (event, body) in [
            ("push", json!({"repository": infra})),
            (
                "push",
                json!({"repository": repository("other/infra"), "installation": by}),
            ),
            ("ping", json!({"repository": infra, "installation": by})),
            (
                "installation",
                json!({"action": "deleted", "repositories": [infra], "installation": by}),
            ),
        ] {
            assert_eq!(taught(event, &body), [""; 0], "{event} {body}");
        }
    }
}
