//! Rules of claims, over the rows of `store`.
//!
//! Two teams on one server must never manage the same repository by accident. A project or a credential of a repository
//! therefore claims it for the owner first. The claim lasts as long as one of them exists. If another owner has claimed
//! the repository, nothing is changed, and the error names that owner. The first claim of a repository requires the
//! rights of the whole server. `store/claims.rs` explains why this is safe under races.

mod applications;
mod collect;
mod credentials;

pub use applications::{
    ApplicationRemoved, ApplicationSaved, application_add, application_change, application_remove,
};
pub use collect::{Collection, collect};
pub use credentials::{
    ChangeCredential, CredentialError, CredentialStore, Rotation, StoredCredential,
};

use crate::model::{OwnerName, RepoUrl};

/// Returns a sentence for the API and the command line that names the owner of the repository, with the way out.
pub fn owned_by(url: &RepoUrl, owner: &OwnerName) -> String {
    format!(
        "{url} is owned by `{owner}`. Ask that owner to remove its applications and credentials for the repository; \
         `lockkeeper claims show {url}` shows how many there are."
    )
}

/// Returns sentences for the API and the command line that nobody has claimed the repository, with the way out.
pub fn unclaimed(url: &RepoUrl) -> String {
    format!(
        "Nobody has claimed {url}, and only the account of the whole server can make the first claim of a repository. Use \
         that account to register the first application or credential for the owner: on the page of the owner, with the \
         API, or with `lockkeeper apps add`."
    )
}

/// Returns sentences that there are too many owners, with the way out.
pub fn too_many_owners(most: i64) -> String {
    format!(
        "There are {most} owners, which is the maximum. Remove owners that have no applications or credentials: `lockkeeper \
         owners list`, `lockkeeper owners remove NAME`."
    )
}

/// Returns sentences that no owner has this name, with the way out.
pub fn no_owner(name: &OwnerName) -> String {
    format!(
        "There is no owner `{name}`. `lockkeeper owners add {name}` adds one, `lockkeeper owners list` lists all owners."
    )
}
