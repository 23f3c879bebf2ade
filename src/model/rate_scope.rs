//! Requests that a forge counts together.

use super::repo::HostName;
use super::text::text_enum;

text_enum! {
    /// Effect of a request on the forge.
    pub enum Traffic {
        /// Changes nothing that anybody sees.
        Read = "read",
        /// Creates, changes or deletes something.
        Write = "write",
    }
}

/// Requests that a forge counts together: those with the credentials of one installation of an App, one App or one token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateScope {
    /// The forge.
    pub host: HostName,
    /// Name of the credentials; it tells nothing of a secret.
    pub credential: String,
}
