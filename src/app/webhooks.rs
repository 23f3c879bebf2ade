//! Registers the webhooks of the configured forges.

use crate::config::server::ServerConfig;
use crate::model::HostName;
use crate::vcs::Webhooks;
use crate::vcs::github::GitHubWebhook;

/// Creates the webhook of each configured forge; `github` is the host of GitHub.
pub(super) fn webhooks(config: &ServerConfig, github: &HostName) -> Webhooks {
    let secrets = config.webhooks.secrets.clone();
    Webhooks::new(vec![Box::new(GitHubWebhook::new(github.clone(), secrets))])
}
