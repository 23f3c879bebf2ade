//! Names the parts of `All-Users` that belong to a git client.

use lockkeeper_accounts::refs::AllUsersRef;

use super::super::sign_in::AccountCaller;

impl AccountCaller {
    /// Returns the branch that `refs/users/self` stands for.
    pub(super) fn own_ref(&self) -> Option<AllUsersRef> {
        self.own().map(|row| AllUsersRef::User(row.number))
    }

    /// Returns the name of the repository with what the caller may read.
    pub(super) fn view_name(&self) -> String {
        match self.own() {
            None => "all.git".to_owned(),
            Some(row) => format!("{}.git", row.number),
        }
    }
}
