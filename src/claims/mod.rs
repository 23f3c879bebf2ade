//! Who drives which repository, and with what.

mod credentials;

pub use credentials::{ChangeCredential, CredentialError, Credentials, Kept, Rotation};
