//! The webhook of GitHub: checks that GitHub really sent a delivery, identifies it, and parses its meaning (reference
//! 2.2). The only side effect is a hint for the client: the installation that sent a delivery.
//!
//! | File | Content |
//! |--|--|
//! | `mod.rs` | the webhook of one host as a [`WebhookSource`] |
//! | `header.rs` | the headers that identify a delivery |
//! | `signature.rs` | the signature, checked while the body arrives |
//! | `payload.rs` | events of pull requests and comments |
//! | `repositories.rs` | events of whole repositories |
//! | `hints.rs` | what a delivery teaches about the installation of the App |
//! | `shape.rs` | the fields of the payloads |
//! | `recorded.rs`, `recordings/` | tests with recorded deliveries |

mod header;
mod hints;
mod payload;
#[cfg(test)]
mod recorded;
mod repositories;
mod shape;
mod signature;

use std::sync::Arc;

use axum::http::HeaderMap;

pub use header::{BadHeader, DELIVERY_ID, EVENT};
pub use payload::PayloadError;
pub use signature::{BadSignature, SIGNATURE, SignatureCheck, sign};

use self::hints::InstallationHints;
use self::payload::ReadPayload;
use super::client::Installations;
use crate::config::server::RepoAllowlist;
use crate::forges::{
    DeliveryHeader, ForgeKind, ParsedDelivery, SenderCheck, VerifiedSender, WebhookError,
    WebhookSource,
};
use crate::model::HostName;
use crate::secret::Secret;

/// Webhook of one GitHub.
pub struct GitHubWebhook {
    host: HostName,
    secrets: Vec<Secret>,
    is_one_of_several: bool,
    hints: Option<InstallationHints>,
}

impl GitHubWebhook {
    /// Creates the webhook of a host. Any of the secrets may sign a delivery. Without secrets, unsigned deliveries
    /// are accepted.
    pub fn new(host: HostName, secrets: Vec<Secret>) -> Self {
        Self {
            host,
            secrets,
            is_one_of_several: false,
            hints: None,
        }
    }

    /// Returns the webhook of an App: signed deliveries about served repositories teach the installations of these.
    #[must_use]
    pub(super) fn teaching(self, installations: Arc<Installations>, served: RepoAllowlist) -> Self {
        Self {
            hints: Some(InstallationHints::new(installations, served)),
            ..self
        }
    }

    /// Returns the webhook of one of several hosts of GitHub: it takes only deliveries whose headers name its host.
    #[must_use]
    pub fn one_of_several(self) -> Self {
        Self {
            is_one_of_several: true,
            ..self
        }
    }
}

impl WebhookSource for GitHubWebhook {
    fn kind(&self) -> ForgeKind {
        ForgeKind {
            name: "github",
            title: "GitHub",
        }
    }

    fn host(&self) -> &HostName {
        &self.host
    }

    fn is_signed(&self) -> bool {
        !self.secrets.is_empty()
    }

    fn recognise(&self, headers: &HeaderMap) -> Option<Result<DeliveryHeader, WebhookError>> {
        if self.is_one_of_several && header::host(headers) != self.host.as_str() {
            return None;
        }
        header::delivery(headers).map(|delivery| Ok(delivery?))
    }

    fn other_host(&self, headers: &HeaderMap) -> Option<String> {
        let is_of_github = header::delivery(headers).is_some();
        let host = header::host(headers);
        let is_other = self.is_one_of_several && host != self.host.as_str();
        (is_of_github && is_other).then(|| header::shown(&host))
    }

    fn begin_check(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<Box<dyn SenderCheck>>, WebhookError> {
        if self.secrets.is_empty() {
            return Ok(None);
        }
        let check = SignatureCheck::begin(headers, &self.secrets)?;
        Ok(Some(Box::new(check)))
    }

    fn parse(
        &self,
        delivery: &DeliveryHeader,
        headers: &HeaderMap,
        body: &[u8],
        sender: Option<&VerifiedSender>,
    ) -> Result<ParsedDelivery, WebhookError> {
        let ReadPayload {
            delivery,
            installation,
        } = payload::parse(&delivery.event, headers, body, &self.host)?;
        if let (Some(hints), Some(installation), Some(sender)) = (&self.hints, installation, sender)
        {
            hints.take(&delivery, installation, sender);
        }
        Ok(delivery)
    }
}
