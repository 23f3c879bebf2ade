//! Decides what a git client may read.

use gix_hash::ObjectId;
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

    /// Returns the refs that the caller may read, of all refs.
    pub(super) fn readable(&self, all: Vec<(String, ObjectId)>) -> Vec<(String, ObjectId)> {
        let Some(own) = self.own_ref().map(|own| own.to_string()) else {
            return all;
        };
        let defaults = AllUsersRef::UserDefault.to_string();
        let mut refs: Vec<_> = all
            .into_iter()
            .filter(|(name, _)| *name == own || *name == defaults)
            .collect();
        let tip = refs
            .iter()
            .find(|(name, _)| *name == own)
            .map(|(_, id)| *id);
        refs.extend(tip.map(|tip| (AllUsersRef::UserSelf.to_string(), tip)));
        refs.sort();
        refs
    }
}
