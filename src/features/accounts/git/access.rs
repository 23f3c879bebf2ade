//! Rights of git clients: what they may fetch, and what they may push.

use std::collections::BTreeSet;

use lockkeeper_accounts::access::Capability;
use lockkeeper_accounts::external_ids::ExternalId;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::super::all_users::BranchRights;
use super::super::sign_in::AccountCaller;

impl AccountCaller {
    /// Returns the branch that `refs/users/self` stands for.
    pub(super) fn own_ref(&self) -> Option<AllUsersRef> {
        self.own().map(|row| AllUsersRef::User(row.number))
    }

    /// Returns true if the caller may fetch everything.
    pub(super) fn reads_everything(&self) -> bool {
        self.has(Capability::AccessDatabase)
    }

    /// Returns the name of the repository with what the caller may read.
    pub(super) fn view_name(&self) -> String {
        match self.own() {
            None => "all.git".to_owned(),
            Some(row) if self.reads_everything() => format!("{}-all.git", row.number),
            Some(row) => format!("{}.git", row.number),
        }
    }

    /// Returns true if the objects of the caller's repository are those of the one with all of them.
    pub(super) fn shares_objects(&self) -> bool {
        self.own().is_some() && self.reads_everything()
    }

    /// Returns true if the caller may fetch a ref, or it is their own.
    pub(super) fn may_read_or_owns(&self, name: AllUsersRef) -> bool {
        let own = self.own().map(|row| row.number);
        let is_own = match name {
            AllUsersRef::User(of) | AllUsersRef::StarredChange(_, of) => Some(of) == own,
            AllUsersRef::UserSelf => true,
            AllUsersRef::UserDefault
            | AllUsersRef::ExternalIds
            | AllUsersRef::Config
            | AllUsersRef::AccountSequence => false,
        };
        is_own || self.may_read(name)
    }

    /// Returns the refs that the caller may fetch at most, if that is known without a look at all refs.
    pub(super) fn readable_names(&self) -> Option<BTreeSet<AllUsersRef>> {
        match self {
            Self::Administrator(_) => None,
            Self::Account { access, .. } => access.readable_names(),
        }
    }

    /// Returns the external IDs of the caller's own account.
    pub(super) fn external_ids_of(&self, account: AccountId) -> Option<&[ExternalId]> {
        match self {
            Self::Account {
                row, external_ids, ..
            } if row.number == account => Some(external_ids),
            Self::Account { .. } | Self::Administrator(_) => None,
        }
    }

    /// Returns what the caller may change by a push to the branch of an account.
    pub(super) fn rights_on(&self, account: AccountId) -> BranchRights {
        let is_own = self.own().is_some_and(|own| own.number == account);
        BranchRights {
            may_lock_out: self.may_change(account, Capability::ModifyAccount),
            may_change_keys: is_own || self.has(Capability::AccessDatabase),
        }
    }

    /// Returns the reason why the caller may not push to a ref.
    pub(super) fn why_not(&self, name: AllUsersRef) -> String {
        let capability = match name {
            AllUsersRef::Config | AllUsersRef::UserDefault => Capability::AdministrateServer,
            AllUsersRef::ExternalIds
            | AllUsersRef::AccountSequence
            | AllUsersRef::StarredChange(..) => Capability::AccessDatabase,
            AllUsersRef::User(_) | AllUsersRef::UserSelf => {
                return match self.own_ref() {
                    Some(own) if own != name => {
                        format!(
                            "you may not push to {name}; your own branch is {own} or refs/users/self"
                        )
                    }
                    _ => format!("the access control does not let you push to {name}"),
                };
            }
        };
        let capability = capability.as_str();
        format!(
            "{name} takes the capability `{capability}`; an administrator can give it to one of your groups"
        )
    }
}
