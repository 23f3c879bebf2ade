//! Changes of the access control (`refs/meta/config`) in an update.

use std::collections::{BTreeMap, BTreeSet};

use gix_hash::ObjectId;
use gix_object::Tree;
use lockkeeper_accounts::access::{AccessControl, AccountGroups};
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::findings::{AccountFindings, Problem, check_access};
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::AccountsError;
use super::edit::{AccountsEdit, PushedBranch};
use crate::store::Store;

/// The access control that was read, and what it will be.
pub(super) struct EditedAccess {
    /// Newest commit. `None` if it begins with this update.
    pub(super) tip: Option<ObjectId>,
    pub(super) root: Tree,
    pub(super) old_files: BTreeMap<String, Vec<u8>>,
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

impl AccountsEdit<'_> {
    /// Replaces the access control by pushed commits, if it is where the pusher saw it.
    pub(in super::super) async fn push_access(
        &mut self,
        seen: Option<ObjectId>,
        pushed: PushedBranch,
    ) -> Result<(), AccountsError> {
        if self.read_ref(AllUsersRef::Config).await? != seen {
            return Err(AccountsError::Moved);
        }
        // Before their rows: an account that goes or is locked out in between is then not where it was read.
        let (control, _) = AccessControl::read(&pushed.files);
        for account in control.groups().members() {
            self.read_ref(AllUsersRef::User(account)).await?;
        }
        let findings = check_new_access(self.store, &pushed.files).await?;
        if !findings.is_accepted() {
            return Err(AccountsError::Refused(findings));
        }
        self.pushed.insert(AllUsersRef::Config, pushed);
        Ok(())
    }

    /// Returns the access control for changes. If there is none, it begins with the rules of a new installation.
    pub(super) async fn access(&mut self) -> Result<&mut EditedAccess, AccountsError> {
        let tip = self.read_ref(AllUsersRef::Config).await?;
        let access = match self.access.take() {
            Some(access) => access,
            None => self.read_access(tip).await?,
        };
        Ok(self.access.insert(access))
    }

    async fn read_access(&self, tip: Option<ObjectId>) -> Result<EditedAccess, AccountsError> {
        let Some(commit) = tip else {
            let rules = AccessControl::FIRST_RULES.as_bytes().to_vec();
            return Ok(EditedAccess {
                tip,
                root: Tree::empty(),
                old_files: BTreeMap::new(),
                files: BTreeMap::from([(AccessControl::RULES_FILE.to_owned(), rules)]),
            });
        };
        let root = self.objects.root(commit).await?;
        let files = self.objects.files_in(&root).await?;
        Ok(EditedAccess {
            tip,
            root,
            old_files: files.clone(),
            files,
        })
    }

    /// Edits the groups of accounts.
    pub(in super::super) async fn edit_groups(
        &mut self,
        edit: impl FnOnce(&mut ConfigText) -> Result<(), Problem>,
    ) -> Result<(), AccountsError> {
        let access = self.access().await?;
        let name = AccessControl::GROUPS_FILE;
        let old = access.files.get(name).map_or(&[][..], Vec::as_slice);
        let mut text = ConfigText::parse(old)?;
        edit(&mut text)?;
        let new = text.as_str().as_bytes().to_vec();
        if new != old {
            access.files.insert(name.to_owned(), new);
        }
        Ok(())
    }

    /// Ends all memberships of an account. `heir` gets them.
    pub(in super::super) async fn leave_groups(
        &mut self,
        account: AccountId,
        heir: Option<AccountId>,
    ) -> Result<(), AccountsError> {
        if self.read_ref(AllUsersRef::Config).await?.is_none() {
            return Ok(());
        }
        self.edit_groups(|text| {
            let (groups, _) = AccountGroups::read(text);
            for group in groups.names() {
                if AccountGroups::remove_member(text, group, account)?
                    && let Some(heir) = heir
                {
                    AccountGroups::add_member(text, group, heir)?;
                }
            }
            Ok(())
        })
        .await
    }
}

/// Checks the files of `refs/meta/config`: each member exists, and an active account administrates the server.
pub(in super::super) async fn check_new_access(
    store: &Store,
    files: &BTreeMap<String, Vec<u8>>,
) -> Result<AccountFindings, AccountsError> {
    let (control, _) = AccessControl::read(files);
    let members: BTreeSet<AccountId> = control.groups().members().collect();
    let mut active = BTreeMap::new();
    for account in members {
        if let Some(row) = store.account_get(account).await? {
            active.insert(account, row.active);
        }
    }
    let mut findings = check_access(files, |account| active.contains_key(&account));
    if !control
        .administrators()
        .any(|account| active.get(&account) == Some(&true))
    {
        let what = "no active account would have the capability `administrateServer`";
        let fix = "add `member = NUMBER` to a group that has it";
        findings.add(
            AccessControl::GROUPS_FILE,
            [Problem::error(None, what, fix)],
        );
    }
    Ok(findings)
}
