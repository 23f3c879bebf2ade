//! A credential as pages, the API and the command line show it, without its secret.

use serde::Serialize;

use crate::credential::PublicParts;
use crate::kit::web::text::rfc3339;
use crate::store::CredentialRow;

/// One credential without its secret. Texts are unescaped: pages and terminals escape them.
#[derive(Serialize)]
pub(crate) struct CredentialView {
    id: String,
    owner: String,
    url: String,
    /// `token`, `app` or `ssh`.
    kind: &'static str,
    /// Parts that may be shown.
    public: PublicParts,
    /// Name of the key that it is encrypted with.
    key: String,
    created_by: String,
    created_at: String,
    updated_at: String,
    /// Time of the last use. `null`: it was never used.
    used_at: Option<String>,
}

impl From<&CredentialRow> for CredentialView {
    fn from(row: &CredentialRow) -> Self {
        Self {
            id: row.id.to_string(),
            owner: row.owner_name.to_string(),
            url: row.url.to_string(),
            kind: row.kind.as_str(),
            public: row.public.0.clone(),
            key: row.key_id.to_string(),
            created_by: row.created_by.clone(),
            created_at: rfc3339(row.created_at),
            updated_at: rfc3339(row.updated_at),
            used_at: row.used_at.map(rfc3339),
        }
    }
}
