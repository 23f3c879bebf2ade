//! Requests that a forge counts together against one rate limit.

use super::repo::HostName;
use super::text::text_enum;

text_enum! {
    /// Effect of a request on the forge.
    pub enum Traffic {
        /// The request changes nothing that people see.
        Read = "read",
        /// The request creates, changes or deletes something.
        Write = "write",
    }
}

/// Requests that a forge counts together: those with the credentials of one installation of an App, one App or one
/// token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateScope {
    /// Host of the forge.
    pub host: HostName,
    /// Name of the credentials, which reveals nothing of a secret.
    pub credential: String,
}
