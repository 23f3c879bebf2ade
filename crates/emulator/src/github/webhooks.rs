//! Turns events of the world into webhooks: GitHub's payload, headers and signature.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::secret::Secret;
use crate::world::WorldEvent;
use crate::{EmulatedDelivery, RecordedDelivery};

use super::{ENTERPRISE_VERSION, GitHubWire, views};

/// Value of the header `X-GitHub-Hook-ID`.
const HOOK_ID: u64 = 1;

impl GitHubWire {
    /// Builds the webhook for an event.
    pub(crate) fn webhook(&self, id: Uuid, event: &WorldEvent) -> EmulatedDelivery {
        let (name, body) = views::payload(self, event);
        let action = body.get("action").and_then(|action| action.as_str());
        EmulatedDelivery {
            id,
            event: name.to_owned(),
            action: action.map(str::to_owned),
            recorded: self.record(id, name, event.repo.id, body),
            attempts: Vec::new(),
        }
    }

    fn record(
        &self,
        id: Uuid,
        event: &str,
        repo: u64,
        body: serde_json::Value,
    ) -> RecordedDelivery {
        // The owner of the hook: the App, or else the repository.
        let (target, kind) = match &self.app {
            Some(app) => (app.id, "integration"),
            None => (repo, "repository"),
        };
        let host = self.base_url.split_once("://").map_or("", |(_, host)| host);
        let signature = signature(&self.webhook_secret, body.to_string().as_bytes());
        let headers = [
            ("Accept", "*/*".to_owned()),
            ("Content-Type", "application/json".to_owned()),
            ("User-Agent", "GitHub-Hookshot/0000001".to_owned()),
            ("X-GitHub-Delivery", id.to_string()),
            ("X-GitHub-Enterprise-Host", host.to_owned()),
            ("X-GitHub-Enterprise-Version", ENTERPRISE_VERSION.to_owned()),
            ("X-GitHub-Event", event.to_owned()),
            ("X-GitHub-Hook-ID", HOOK_ID.to_string()),
            ("X-GitHub-Hook-Installation-Target-ID", target.to_string()),
            ("X-GitHub-Hook-Installation-Target-Type", kind.to_owned()),
            ("X-Hub-Signature-256", signature),
        ];
        let headers = headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        RecordedDelivery { headers, body }
    }
}

/// Computes the signature `sha256=…` of the body (GitHub webhooks: validating deliveries).
fn signature(secret: &Secret, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())
        .expect("HMAC takes a key of any length");
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::Options;
    use crate::clock::SystemClock;

    use super::*;

    #[test]
    fn the_signature_is_that_of_githubs_own_example() {
        let secret = Secret::new("It's a Secret to Everybody");
        assert_eq!(
            signature(&secret, b"Hello, World!"),
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
    }

    #[test]
    fn a_recorded_delivery_keeps_its_signature_through_a_file() {
        let secret = Secret::new("s");
        let clock = Arc::new(SystemClock);
        let options = Options::new(Path::new("unused"), clock, secret.clone());
        let github = GitHubWire::new(&options, "http://127.0.0.1:1".to_owned()).unwrap();
        let body = serde_json::json!({ "z": 1, "a": { "ü": null } });
        let recorded = github.record(Uuid::nil(), "push", 1, body);
        let file = serde_json::to_string_pretty(&recorded).unwrap();
        let read: RecordedDelivery = serde_json::from_str(&file).unwrap();
        assert_eq!(read, recorded);
        assert_eq!(
            read.headers["X-Hub-Signature-256"],
            signature(&secret, &read.body_bytes())
        );
    }
}
