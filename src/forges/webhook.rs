//! Deliveries of webhooks, as far as the server treats those of all forges alike.
//!
//! A delivery passes four steps, and [`WebhookSource`] has a method for each:
//!
//! 1. The headers show which forge sent it ([`Webhooks::recognise`]).
//! 2. The headers begin the check of the sender, before the first byte of the body is read.
//! 3. The check sees each piece of the body as it arrives, and decides at the end.
//! 4. Headers and body become a [`ParsedDelivery`].

use std::error::Error;

use axum::http::HeaderMap;

use crate::model::{Event, ForgeRepo, HostName};

/// Reason why a delivery is refused, in one line and without secrets.
pub type WebhookError = Box<dyn Error + Send + Sync>;

/// Names of a kind of forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgeKind {
    /// Name in the log: `github`.
    pub name: &'static str,
    /// Name for people: `GitHub`.
    pub title: &'static str,
}

/// Identity of a delivery, from its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryHeader {
    /// Identifier that the forge gave to the delivery; a redelivery has the same one (P2).
    pub id: String,
    /// Name of the event in the words of the forge: `pull_request`.
    pub event: String,
}

/// Content of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedDelivery {
    /// Meaning of the delivery.
    pub event: Event,
    /// Repositories that the delivery names with their identifiers.
    pub repositories: Vec<ForgeRepo>,
}

/// Source of deliveries: the webhook of one configured forge.
pub trait WebhookSource: Send + Sync + 'static {
    /// Returns the kind of the forge.
    fn kind(&self) -> ForgeKind;

    /// Returns the host of the repositories that deliveries name.
    fn host(&self) -> &HostName;

    /// Returns false if everybody may send deliveries, because no secret is configured.
    fn is_signed(&self) -> bool;

    /// Reads the headers that identify a delivery. Returns `None` if another kind of forge sent it.
    fn recognise(&self, headers: &HeaderMap) -> Option<Result<DeliveryHeader, WebhookError>>;

    /// Returns the host that the headers name, in the words of the sender, if another host of this kind of forge sent the
    /// delivery.
    fn other_host(&self, headers: &HeaderMap) -> Option<String>;

    /// Begins to check the sender. Returns `None` if deliveries are not signed.
    fn begin_check(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<Box<dyn SenderCheck>>, WebhookError>;

    /// Converts a delivery to an event. The body is parsed once. A delivery that requests nothing becomes
    /// [`Event::Ignored`] with the reason. If its sender was checked, the adapter may learn from it how to reach the
    /// repositories that it names.
    fn parse(
        &self,
        delivery: &DeliveryHeader,
        headers: &HeaderMap,
        body: &[u8],
        sender: Option<&VerifiedSender>,
    ) -> Result<ParsedDelivery, WebhookError>;
}

/// Check in progress that the forge sent a delivery.
pub trait SenderCheck: Send {
    /// Takes the next bytes of the body.
    fn update(&mut self, bytes: &[u8]);

    /// Decides after the last byte of the body.
    fn finish(self: Box<Self>) -> Result<VerifiedSender, WebhookError>;
}

/// Proof that the sender of a delivery was checked. Only the check of an adapter makes it.
#[derive(Debug)]
pub struct VerifiedSender(());

impl VerifiedSender {
    /// Creates the proof, after the check.
    pub(super) fn checked() -> Self {
        Self(())
    }
}

/// Webhooks of all configured forges.
pub struct Webhooks(Vec<Box<dyn WebhookSource>>);

/// Error for a delivery that no configured forge sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum UnknownSender {
    #[error(
        "the headers are not those of a configured forge. This server accepts webhooks of {configured}"
    )]
    Kind { configured: String },
    #[error("`{host}` is not a host of this server, which accepts webhooks of {configured}")]
    Host { host: String, configured: String },
}

impl Webhooks {
    /// Registers the webhooks of the configured forges. They are asked in this order. Gitea and Forgejo also send
    /// GitHub's headers, so a forge with headers of its own comes before GitHub.
    pub fn new(sources: Vec<Box<dyn WebhookSource>>) -> Self {
        Self(sources)
    }

    /// Finds the forge that sent a delivery, and reads the headers that identify it.
    pub fn recognise(
        &self,
        headers: &HeaderMap,
    ) -> Result<(&dyn WebhookSource, DeliveryHeader), WebhookError> {
        for source in self.sources() {
            if let Some(delivery) = source.recognise(headers) {
                return Ok((source, delivery?));
            }
        }
        let names = self
            .sources()
            .map(|source| format!("{} ({})", source.kind().title, source.host()));
        let configured = names.collect::<Vec<_>>().join(", ");
        let other = self.sources().find_map(|source| source.other_host(headers));
        Err(match other {
            Some(host) => UnknownSender::Host { host, configured },
            None => UnknownSender::Kind { configured },
        }
        .into())
    }

    /// Returns true if the sender of every delivery about repositories of a host is checked.
    pub fn are_signed(&self, host: &HostName) -> bool {
        self.sources()
            .find(|source| source.host() == host)
            .is_some_and(WebhookSource::is_signed)
    }

    fn sources(&self) -> impl Iterator<Item = &dyn WebhookSource> {
        self.0.iter().map(Box::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forge that recognises its deliveries by one header.
    struct FakeWebhook {
        kind: ForgeKind,
        host: HostName,
        header: &'static str,
        signed: bool,
    }

    impl WebhookSource for FakeWebhook {
        fn kind(&self) -> ForgeKind {
            self.kind
        }

        fn host(&self) -> &HostName {
            &self.host
        }

        fn is_signed(&self) -> bool {
            self.signed
        }

        fn recognise(&self, headers: &HeaderMap) -> Option<Result<DeliveryHeader, WebhookError>> {
            let id = headers.get(self.header)?;
            let header = |id: &str| DeliveryHeader {
                id: id.to_owned(),
                event: self.kind.name.to_owned(),
            };
            Some(id.to_str().map(header).map_err(Into::into))
        }

        fn other_host(&self, headers: &HeaderMap) -> Option<String> {
            let host = headers.get("x-fake-host")?.to_str().ok()?;
            (self.kind.name == "github").then(|| host.to_owned())
        }

        fn begin_check(
            &self,
            _headers: &HeaderMap,
        ) -> Result<Option<Box<dyn SenderCheck>>, WebhookError> {
            Ok(None)
        }

        fn parse(
            &self,
            _delivery: &DeliveryHeader,
            _headers: &HeaderMap,
            _body: &[u8],
            _sender: Option<&VerifiedSender>,
        ) -> Result<ParsedDelivery, WebhookError> {
            Err("no test parses a delivery".into())
        }
    }

    fn webhooks() -> Webhooks {
        let fake = |name, title, host: &str, header, signed| {
            Box::new(FakeWebhook {
                kind: ForgeKind { name, title },
                host: host.parse().unwrap(),
                header,
                signed,
            }) as Box<dyn WebhookSource>
        };
        Webhooks::new(vec![
            fake("gitea", "Gitea", "git.acme.com", "x-gitea-delivery", true),
            fake("github", "GitHub", "github.com", "x-github-delivery", false),
        ])
    }

    fn recognised(headers: &[(&'static str, &'static [u8])]) -> Result<String, String> {
        let headers = headers.iter().map(|(name, value)| {
            (
                axum::http::HeaderName::from_static(name),
                axum::http::HeaderValue::from_bytes(value).unwrap(),
            )
        });
        webhooks()
            .recognise(&headers.collect())
            .map(|(source, delivery)| format!("{} {}", source.kind().name, delivery.id))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_forge_that_knows_the_headers_gets_the_delivery() {
        assert_eq!(
            recognised(&[("x-github-delivery", b"1")]),
            Ok("github 1".to_owned())
        );
        assert_eq!(
            recognised(&[("x-github-delivery", b"1"), ("x-gitea-delivery", b"2")]),
            Ok("gitea 2".to_owned())
        );
        let malformed = recognised(&[("x-github-delivery", b"1"), ("x-gitea-delivery", b"\xff")]);
        assert!(
            malformed.is_err(),
            "a malformed delivery is not offered to the next forge"
        );
    }

    #[test]
    fn a_delivery_of_another_forge_is_refused_with_the_configured_ones() {
        insta::assert_snapshot!(
            recognised(&[("x-gitlab-event", b"Note Hook")]).unwrap_err(),
            @"the headers are not those of a configured forge. This server accepts webhooks of Gitea (git.acme.com), GitHub (github.com)"
        );
    }

    #[test]
    fn a_delivery_of_another_host_is_refused_with_its_name() {
        insta::assert_snapshot!(
            recognised(&[("x-fake-host", b"git.example")]).unwrap_err(),
            @"`git.example` is not a host of this server, which accepts webhooks of Gitea (git.acme.com), GitHub (github.com)"
        );
    }

    #[test]
    fn deliveries_about_a_host_are_signed_if_its_forge_has_a_secret() {
        let signed = |host: &str| webhooks().are_signed(&host.parse().unwrap());
        assert!(signed("git.acme.com"));
        assert!(!signed("github.com"));
        assert!(!signed("gitlab.com"), "no configured forge has this host");
    }
}
