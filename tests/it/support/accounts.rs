//! Accounts in the database.

use lockkeeper::features::accounts::AccountsActor;
use lockkeeper::model::{Actor, Cause, Origin};
use lockkeeper_accounts::objects::CommitPerson;

use super::db::TestDb;
use super::program::lockkeeper;

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

/// Checks every rule, and the derived tables.
pub fn assert_sound(db: &TestDb) {
    let checked = lockkeeper(&["accounts", "check"], &db.url, &[], &[]);
    // Unknown keys of a copy are warnings.
    let errors = checked
        .out
        .lines()
        .find(|line| !line.contains(": warning: "));
    assert_eq!((checked.code, errors), (0, None), "{}", checked.err);
}
