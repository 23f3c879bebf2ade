//! Registers the webhooks of the configured forges.

use std::sync::Arc;

use crate::config::server::ServerConfig;
use crate::forges::github::GitHub;
use crate::forges::{WebhookSource, Webhooks};

/// Creates the webhook of each configured forge. `clients` are the connections to them, in the same order.
pub(super) fn webhooks(config: &ServerConfig, clients: &[Arc<GitHub>]) -> Webhooks {
    let is_only_one = clients.len() == 1;
    let sources = config.github.iter().zip(clients).map(|(github, client)| {
        let served = config.repos.allowlist.clone();
        let webhook = client.webhook(github.webhooks.secrets.clone(), served);
        let webhook = if is_only_one {
            webhook
        } else {
            webhook.one_of_several()
        };
        Box::new(webhook) as Box<dyn WebhookSource>
    });
    Webhooks::new(sources.collect())
}
