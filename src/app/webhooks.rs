//! Registers the webhooks of the configured forges.

use crate::config::server::ServerConfig;
use crate::forges::github::GitHubWebhook;
use crate::forges::{WebhookSource, Webhooks};

/// Creates the webhook of each configured forge.
pub(super) fn webhooks(config: &ServerConfig) -> Webhooks {
    let is_only_one = config.github.len() == 1;
    let sources = config.github.iter().map(|github| {
        let webhook = GitHubWebhook::new(github.host.clone(), github.webhooks.secrets.clone());
        let webhook = if is_only_one {
            webhook
        } else {
            webhook.one_of_several()
        };
        Box::new(webhook) as Box<dyn WebhookSource>
    });
    Webhooks::new(sources.collect())
}
