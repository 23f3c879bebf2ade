//! Accounts in the database.

use lockkeeper::features::accounts::AccountsActor;
use lockkeeper::model::{Actor, Cause, Origin};
use lockkeeper_accounts::objects::CommitPerson;

/// Returns an administrator as the author of changes.
pub fn by_ops() -> AccountsActor {
    let actor = Actor::new("ops", Origin::Cli);
    AccountsActor {
        author: CommitPerson::new("Ops", "ops@example.com"),
        cause: Cause::new(actor, ""),
        expected: None,
        signed_in: None,
    }
}
