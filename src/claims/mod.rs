//! Who drives which repository: the rules over the rows of `store`.
//!
//! Two teams on one server must never drive the same repository by accident. So whoever registers a project of a
//! repository, or gives a credential for it, claims it first: for its owner, for as long as one of these is there. What
//! meets the claim of another owner changes nothing, and is told whose it is. The first claim of a repository takes the
//! rights of the whole server. `store/claims.rs` says what makes that hold
//! under races.

mod applications;
mod collect;
mod credentials;

pub use applications::{
    ApplicationRemoved, ApplicationSaved, application_add, application_change, application_remove,
};
pub use collect::{Collection, collect};
pub use credentials::{ChangeCredential, CredentialError, Credentials, Kept, Rotation};

use crate::model::{OwnerName, RepoUrl};

/// Why nothing was changed: a sentence for the API and the command line, with the way out.
pub fn owned_by(url: &RepoUrl, owner: &OwnerName) -> String {
    format!(
        "{url} is owned by `{owner}`. Ask them, or have what they registered for it removed; `lockkeeper claims show {url}` \
         says how much that is."
    )
}

/// Why nothing was changed: sentences for the API and the command line, with the way out.
pub fn unclaimed(url: &RepoUrl) -> String {
    format!(
        "Nobody has claimed {url}, and only the account of the whole server makes the first claim of a repository. Whoever \
         has it can register the first application or credential of it for the owner: on the page of the owner, through the \
         API, or with `lockkeeper apps add`."
    )
}

/// Why nobody was added: sentences with the way out.
pub fn too_many_owners(most: i64) -> String {
    format!(
        "There are {most} owners, and no server may have more. Remove some that nothing belongs to any more: `lockkeeper \
         owners list`, `lockkeeper owners remove NAME`."
    )
}

/// There is no such owner: a sentence with the way out.
pub fn no_owner(name: &OwnerName) -> String {
    format!(
        "There is no owner `{name}`. `lockkeeper owners add {name}` adds one, `lockkeeper owners list` shows all."
    )
}
