//! The access control of `All-Users` (`refs/meta/config`), as the server applies and changes it.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use gix_hash::ObjectId;
use lockkeeper_accounts::access::{
    AccessControl, AccessMember, AccessVerdict, AccountGroups, Capability, RefPermission,
};
use lockkeeper_accounts::findings::Problem;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::view::GroupJson;

/// The access control at a moment.
#[derive(Clone, Debug)]
pub(super) struct SeenAccess {
    pub control: Arc<AccessControl>,
    /// Newest commit. `None`: the rules of a new installation are in effect.
    pub commit: Option<ObjectId>,
}

/// Rights of an account, as they were when it signed in.
#[derive(Clone, Debug)]
pub(super) struct CallerAccess {
    seen: SeenAccess,
    member: AccessMember,
}

impl CallerAccess {
    pub(super) fn new(seen: SeenAccess, account: AccountId) -> Self {
        let member = seen.control.member(account);
        Self { seen, member }
    }

    /// Returns the newest commit of the access control. `None`: the rules of a new installation are in effect.
    pub(super) fn commit(&self) -> Option<ObjectId> {
        self.seen.commit
    }

    pub(super) fn has(&self, capability: Capability) -> bool {
        self.seen.control.has(&self.member, capability)
    }

    /// Returns the names of the groups of the account.
    pub(super) fn groups(&self) -> impl Iterator<Item = &str> {
        self.member.groups()
    }

    /// Returns true if another account has a capability that gives power over everybody, and this one lacks it.
    pub(super) fn is_below(&self, other: AccountId) -> bool {
        let control = &self.seen.control;
        let other = control.member(other);
        [Capability::AdministrateServer, Capability::AccessDatabase]
            .into_iter()
            .any(|capability| control.has(&other, capability) && !self.has(capability))
    }

    /// Returns true if the account may fetch a ref. The rules decide about the branches of accounts; external IDs, the
    /// sequence and the access control take a capability.
    pub(super) fn may_read(&self, name: AllUsersRef, account: AccountId) -> bool {
        if self.has(Capability::AccessDatabase) {
            return true;
        }
        match name {
            AllUsersRef::Config => self.has(Capability::AdministrateServer),
            AllUsersRef::ExternalIds | AllUsersRef::AccountSequence | AllUsersRef::UserSelf => {
                false
            }
            AllUsersRef::User(_) => self.permits(RefPermission::Read, name) == Some(true),
            AllUsersRef::UserDefault => self.permits(RefPermission::Read, name) != Some(false),
            AllUsersRef::StarredChange(_, of) => self
                .permits(RefPermission::Read, name)
                .unwrap_or(of == account),
        }
    }

    /// Returns true if the account may push to a ref. A rule gives nobody the branch of an account with more power.
    pub(super) fn may_push(&self, name: AllUsersRef, account: AccountId) -> bool {
        let is_permitted = || self.permits(RefPermission::Push, name) == Some(true);
        match name {
            AllUsersRef::Config => self.has(Capability::AdministrateServer),
            AllUsersRef::UserDefault => self.has(Capability::AdministrateServer) || is_permitted(),
            AllUsersRef::User(of) => {
                self.has(Capability::AccessDatabase)
                    || is_permitted() && (of == account || !self.is_below(of))
            }
            AllUsersRef::ExternalIds
            | AllUsersRef::AccountSequence
            | AllUsersRef::StarredChange(..) => self.has(Capability::AccessDatabase),
            AllUsersRef::UserSelf => false,
        }
    }

    /// Returns the refs besides `refs/users/default` and the own stars that the account may read at most. `None`: all
    /// refs have to be looked at.
    pub(super) fn readable_names(&self) -> Option<BTreeSet<AllUsersRef>> {
        if self.has(Capability::AccessDatabase) {
            return None;
        }
        let mut names = self.seen.control.readable_names(&self.member)?;
        names.extend([AllUsersRef::UserDefault, AllUsersRef::Config]);
        Some(names)
    }

    /// Asks the rules. `None`: none concerns the account.
    fn permits(&self, permission: RefPermission, name: AllUsersRef) -> Option<bool> {
        match self.seen.control.verdict(&self.member, permission, name) {
            AccessVerdict::Granted => Some(true),
            AccessVerdict::Refused => Some(false),
            AccessVerdict::Undecided => None,
        }
    }
}

impl AllUsers {
    /// Reads the access control.
    pub(super) async fn access(&self) -> Result<SeenAccess, AccountsError> {
        let name = AllUsersRef::Config.to_string();
        let Some(commit) = self.store().account_ref(&name).await? else {
            return Ok(SeenAccess {
                control: Arc::new(AccessControl::first()),
                commit: None,
            });
        };
        if let Some(seen) = self.remembered_access(commit) {
            return Ok(seen);
        }
        let (control, findings) = AccessControl::read(&self.files(commit).await?);
        if !findings.is_accepted() {
            let problems = findings.lines().join("; ");
            return Err(AccountsError::Damaged(format!("{name}: {problems}")));
        }
        let seen = SeenAccess {
            control: Arc::new(control),
            commit: Some(commit),
        };
        let mut newest = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = Some(seen.clone());
        Ok(seen)
    }

    fn remembered_access(&self, commit: ObjectId) -> Option<SeenAccess> {
        let newest = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        newest.clone().filter(|seen| seen.commit == Some(commit))
    }

    /// Returns a group with the names of its members.
    pub(super) async fn group(
        &self,
        access: &SeenAccess,
        name: &str,
    ) -> Result<GroupJson, AccountsError> {
        let groups = access.control.groups();
        let mut members = Vec::new();
        for account in groups.members_of(name) {
            let row = self.store().account_get(account).await?;
            members.push((account, row.and_then(|row| row.username)));
        }
        Ok(GroupJson::new(name, members, groups.includes_of(name)))
    }

    /// Returns true if an active account administrates the server.
    pub(super) async fn has_administrator(&self) -> Result<bool, AccountsError> {
        let access = self.access().await?;
        for account in access.control.administrators() {
            let row = self.store().account_get(account).await?;
            if row.is_some_and(|row| row.active) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes an account a member of a group.
    pub async fn add_to_group(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        group: &str,
        may_be_new: bool,
    ) -> Result<(), AccountsError> {
        let message = format!("Add Account {account} to Group {group}");
        let update = self.update(actor, &message).await?;
        loop {
            let mut edit = update.begin();
            // An account that is deleted at this moment must not become a member.
            edit.account(account).await?;
            edit.edit_groups(|text| {
                if !may_be_new {
                    AccountGroups::read(text).0.check(group)?;
                }
                AccountGroups::add_member(text, group, account)
            })
            .await?;
            if update.store(edit).await? {
                return Ok(());
            }
        }
    }

    /// Ends the membership of an account in a group. Returns false if it was no member of its own.
    pub async fn remove_from_group(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        group: &str,
    ) -> Result<bool, AccountsError> {
        let message = format!("Remove Account {account} from Group {group}");
        let update = self.update(actor, &message).await?;
        loop {
            let mut edit = update.begin();
            let mut was_member = false;
            edit.edit_groups(|text| {
                AccountGroups::read(text).0.check(group)?;
                was_member = AccountGroups::remove_member(text, group, account)?;
                Ok::<_, Problem>(())
            })
            .await?;
            if update.store(edit).await? {
                return Ok(was_member);
            }
        }
    }
}
