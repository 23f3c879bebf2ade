//! The webhook of GitHub: checks that GitHub really sent a delivery, identifies it, and parses its meaning (reference
//! 2.2). Nothing here has side effects.
//!
//! | File | Content |
//! |--|--|
//! | `mod.rs` | the webhook of one host as a [`WebhookSource`] |
//! | `header.rs` | the headers that identify a delivery |
//! | `signature.rs` | the signature, checked while the body arrives |
//! | `payload.rs` | events of pull requests and comments |
//! | `repositories.rs` | events of whole repositories |
//! | `installations.rs` | the installation of the App that sent a delivery |
//! | `shape.rs` | the fields of the payloads |
//! | `recorded.rs`, `recordings/` | tests with recorded deliveries |

mod header;
mod installations;
mod payload;
#[cfg(test)]
mod recorded;
mod repositories;
mod shape;
mod signature;

use axum::http::HeaderMap;

pub use header::{BadHeader, DELIVERY_ID, EVENT};
pub use installations::installations;
pub use payload::PayloadError;
pub use signature::{BadSignature, SIGNATURE, SignatureCheck, sign};

use crate::forges::{
    DeliveryHeader, ForgeKind, ParsedDelivery, SenderCheck, WebhookError, WebhookSource,
};
use crate::model::HostName;
use crate::secret::Secret;

/// Webhook of one GitHub.
pub struct GitHubWebhook {
    host: HostName,
    secrets: Vec<Secret>,
    is_one_of_several: bool,
}

impl GitHubWebhook {
    /// Creates the webhook of a host. Any of the secrets may sign a delivery. Without secrets, unsigned deliveries
    /// are accepted.
    pub fn new(host: HostName, secrets: Vec<Secret>) -> Self {
        Self {
            host,
            secrets,
            is_one_of_several: false,
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
    ) -> Result<ParsedDelivery, WebhookError> {
        Ok(payload::parse(&delivery.event, headers, body, &self.host)?)
    }
}
