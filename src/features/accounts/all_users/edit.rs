//! The state that an update has read, and what it wants instead.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use gix_hash::ObjectId;
use gix_object::Tree;
use gix_object::tree::Entry;
use lockkeeper_accounts::account_config::AccountConfig;
use lockkeeper_accounts::blobs::StarLabels;
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::external_ids::{ExternalId, ExternalIdKey, StoredPassword};
use lockkeeper_accounts::findings::{AccountFindings, MAX_BRANCH_FILES, Problem};
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::preferences::Preferences;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef, ChangeNumber};
use lockkeeper_accounts::ssh_keys::{AccountSshKey, AuthorizedKeys, KeySlot};
use lockkeeper_accounts::watches::Watches;

use super::super::check::KEYS;
use super::edit_access::EditedAccess;
use super::numbers::AccountNumbers;
use super::objects::AccountObjects;
use super::{AccountsError, SignedInAccount, read_note};
use crate::git::PushedNote;
use crate::kit::web::text::shown;
use crate::store::Store;

/// Files with a meaning, all in the root directory of a user branch.
const FILES: [&str; 4] = [
    AccountConfig::FILE,
    Preferences::FILE,
    Watches::FILE,
    AuthorizedKeys::FILE,
];

/// An update that is being made.
pub(in super::super) struct AccountsEdit<'a> {
    pub(super) store: &'a Store,
    pub(super) objects: &'a AccountObjects,
    pub(super) numbers: &'a AccountNumbers,
    /// Newest commit that each account must have.
    expected: Option<ObjectId>,
    signed_in: Option<&'a SignedInAccount>,
    /// True once the account of the actor was read, and lets the actor in.
    is_actor_known: bool,
    /// Refs that were read, with the objects that they pointed to.
    pub(super) refs: BTreeMap<AllUsersRef, Option<ObjectId>>,
    pub(super) accounts: BTreeMap<AccountId, EditedAccount>,
    /// New labels of stars that were read.
    pub(super) stars: BTreeMap<(ChangeNumber, AccountId), BTreeSet<String>>,
    /// Accounts that lose all their stars.
    pub(super) starless: BTreeSet<AccountId>,
    /// Accounts whose number of stars has a limit in this update.
    pub(super) starring: BTreeSet<AccountId>,
    /// Commits that were pushed to branches of no account.
    pub(super) pushed: BTreeMap<AllUsersRef, PushedBranch>,
    /// The access control, if the update changes it.
    pub(super) access: Option<EditedAccess>,
    /// Number to write into the sequence.
    pub(super) next_account: Option<AccountId>,
    /// Numbers below it that no account of this update has.
    pub(super) taken: Range<u32>,
}

/// An account that was read, and what it will be.
pub(in super::super) struct EditedAccount {
    /// Newest commit. `None` if the account is new.
    pub(super) tip: Option<ObjectId>,
    pub(super) root: Tree,
    /// Time of the first commit. `None` if the account is new.
    pub(super) registered_at: Option<DateTime<Utc>>,
    pub(super) old_files: BTreeMap<&'static str, Vec<u8>>,
    pub(super) files: BTreeMap<&'static str, Vec<u8>>,
    /// Files without a meaning, by path. `None`: too many directories.
    pub(super) other_files: Option<BTreeMap<String, Vec<u8>>>,
    /// Content of the notes by key.
    pub(super) old_external_ids: BTreeMap<String, (ExternalId, ConfigText)>,
    pub(super) external_ids: BTreeMap<String, (ExternalId, ConfigText)>,
    /// True if the files are those of an earlier commit. Then `root` and `old_files` are its own.
    pub(super) is_restored: bool,
    /// True if the account is locked out by this update, which no limit may prevent.
    pub(super) is_locked_out: bool,
    pub(super) is_deleted: bool,
    /// Commits that were pushed to the branch.
    pub(super) pushed: Option<PushedBranch>,
}

/// Commits that somebody pushed to a branch.
#[derive(Clone, Debug)]
pub(in super::super) struct PushedBranch {
    /// New commit at the tip of the branch.
    pub(in super::super) tip: ObjectId,
    /// All files of the newest commit by path.
    pub(in super::super) files: BTreeMap<String, Vec<u8>>,
    /// Objects that are not stored yet.
    pub(in super::super) objects: Vec<GitObject>,
}

impl<'a> AccountsEdit<'a> {
    pub(super) fn new(
        objects: &'a AccountObjects,
        numbers: &'a AccountNumbers,
        expected: Option<ObjectId>,
        signed_in: Option<&'a SignedInAccount>,
    ) -> Self {
        Self {
            store: objects.store(),
            objects,
            numbers,
            expected,
            signed_in,
            is_actor_known: false,
            refs: BTreeMap::new(),
            accounts: BTreeMap::new(),
            stars: BTreeMap::new(),
            starless: BTreeSet::new(),
            starring: BTreeSet::new(),
            pushed: BTreeMap::new(),
            access: None,
            next_account: None,
            taken: 0..0,
        }
    }

    /// Reads a ref. The update is made again if it moves.
    pub(super) async fn read_ref(
        &mut self,
        name: AllUsersRef,
    ) -> Result<Option<ObjectId>, AccountsError> {
        if let Some(id) = self.refs.get(&name) {
            return Ok(*id);
        }
        let id = self.store.account_ref(&name.to_string()).await?;
        self.refs.insert(name, id);
        Ok(id)
    }

    /// Reads an account, unless this update has read it before, and returns it for changes.
    pub(in super::super) async fn account(
        &mut self,
        account: AccountId,
    ) -> Result<&mut EditedAccount, AccountsError> {
        if !self.accounts.contains_key(&account) {
            let read = self.read(account, self.expected).await?;
            self.accounts.insert(account, read);
        }
        self.accounts
            .get_mut(&account)
            .ok_or(AccountsError::NoAccount(account))
    }

    async fn read(
        &mut self,
        account: AccountId,
        expected: Option<ObjectId>,
    ) -> Result<EditedAccount, AccountsError> {
        let state = self.store.account_state(account).await?;
        let state = state.ok_or(AccountsError::NoAccount(account))?;
        let branch = AllUsersRef::User(account);
        // A ref that was read before counts: if it has moved since, the update is made again.
        for (name, id) in [
            (branch, state.branch),
            (AllUsersRef::ExternalIds, state.notes),
        ] {
            self.refs.entry(name).or_insert(id);
        }
        let tip = self.read_ref(branch).await?;
        let tip = tip.ok_or(AccountsError::NoAccount(account))?;
        if expected.is_some_and(|expected| expected != tip) {
            return Err(AccountsError::Changed(account));
        }
        let root = self.objects.root(tip).await?;
        let notes = state.external_ids.iter().map(|row| row.note);
        let known = known_entries(&root).map(|(_, id)| id);
        let blobs = self.objects.get_all(notes.chain(known)).await?;
        let files = known_files(&root, &blobs);
        let mut external_ids = BTreeMap::new();
        for row in state.external_ids {
            external_ids.insert(row.key, read_note(&blobs[&row.note])?);
        }
        let read = EditedAccount {
            tip: Some(tip),
            other_files: self.other_files(&root).await?,
            root,
            registered_at: Some(state.registered_at),
            old_files: files.clone(),
            files,
            old_external_ids: external_ids.clone(),
            external_ids,
            is_restored: false,
            is_locked_out: false,
            is_deleted: false,
            pushed: None,
        };
        let signed_in = self.signed_in.filter(|by| by.account == account);
        if let Some(by) = signed_in {
            if !read.lets_in(by) {
                return Err(AccountsError::LockedOut);
            }
            self.is_actor_known = true;
        }
        Ok(read)
    }

    /// Makes sure that who made the update could still sign in and make it.
    pub(super) async fn check_actor(&mut self) -> Result<(), AccountsError> {
        let Some(by) = self.signed_in else {
            return Ok(());
        };
        if self.read_ref(AllUsersRef::Config).await? != by.access {
            return Err(AccountsError::RightsChanged);
        }
        if self.is_actor_known {
            return Ok(());
        }
        match self.read(by.account, None).await {
            Err(AccountsError::NoAccount(_)) => Err(AccountsError::LockedOut),
            read => read.map(drop),
        }
    }

    /// Reads the files without a meaning, up to one more than a branch may have. They count for its limits. `None`: the
    /// branch has more directories than files may be in it.
    async fn other_files(
        &self,
        root: &Tree,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, AccountsError> {
        let known = |entry: &Entry| FILES.iter().any(|name| entry.filename == *name);
        let entries = root.entries.iter().filter(|entry| !known(entry)).cloned();
        let mut open: Vec<(String, Vec<Entry>)> = vec![(String::new(), entries.collect())];
        let (mut files, mut dirs) = (BTreeMap::new(), 0);
        while let Some((dir, entries)) = open.pop() {
            dirs += 1;
            if dirs > MAX_BRANCH_FILES {
                return Ok(None);
            }
            for entry in entries {
                let path = format!("{dir}{}", entry.filename);
                if entry.mode.is_tree() {
                    let tree = self.objects.tree(entry.oid).await?;
                    open.push((format!("{path}/"), tree.entries));
                } else if entry.mode.is_blob() {
                    let blob = self.objects.get(entry.oid).await?;
                    files.insert(path, blob.content.clone());
                }
                if files.len() > MAX_BRANCH_FILES {
                    return Ok(Some(files));
                }
            }
        }
        Ok(Some(files))
    }

    /// Gives an account the files of an earlier commit, which the caller has found in its history. `active` and SSH keys stay as
    /// they are, and an address that the account has no more is left out.
    pub(in super::super) async fn restore(
        &mut self,
        account: AccountId,
        commit: ObjectId,
    ) -> Result<(), AccountsError> {
        let root = self.objects.root(commit).await?;
        let blobs = known_entries(&root).map(|(_, id)| id);
        let blobs = self.objects.get_all(blobs).await?;
        let mut files = known_files(&root, &blobs);
        let other_files = self.other_files(&root).await?;
        let edited = self.account(account).await?;
        if edited.root == root {
            return Ok(());
        }
        let was_active = is_active(edited.old_files.get(AccountConfig::FILE));
        // A deleted key does not come back, and its number is not given again.
        let keys = edited.files.remove(AuthorizedKeys::FILE);
        edited.old_files = files.clone();
        match keys {
            Some(keys) => files.insert(AuthorizedKeys::FILE, keys),
            None => files.remove(AuthorizedKeys::FILE),
        };
        (edited.root, edited.files, edited.other_files) = (root, files, other_files);
        edited.is_restored = true;
        edited.edit_properties(|config| config.active = was_active)?;
        edited.drop_foreign_email()
    }

    /// Adds an account with the next free number.
    pub(in super::super) async fn create(&mut self) -> Result<AccountId, AccountsError> {
        self.read_ref(AllUsersRef::ExternalIds).await?;
        // The first account is a good moment to show which rules are in effect.
        if self.read_ref(AllUsersRef::Config).await?.is_none() {
            self.access().await?;
        }
        let number = self.next_number().await?;
        self.refs.insert(AllUsersRef::User(number), None);
        self.accounts.insert(
            number,
            EditedAccount {
                tip: None,
                root: Tree::empty(),
                registered_at: None,
                old_files: BTreeMap::new(),
                files: BTreeMap::new(),
                old_external_ids: BTreeMap::new(),
                external_ids: BTreeMap::new(),
                other_files: Some(BTreeMap::new()),
                is_restored: false,
                is_locked_out: false,
                is_deleted: false,
                pushed: None,
            },
        );
        Ok(number)
    }

    /// Gives an account an external ID, or replaces the one with the same key.
    pub(in super::super) async fn put_external_id(
        &mut self,
        id: ExternalId,
    ) -> Result<(), AccountsError> {
        let key = id.key.as_str().to_owned();
        // Of many who arrive at once, all but one need not get as far as the transaction, which decides.
        if self.account(id.account).await?.tip.is_none()
            && let Some(there) = self.store.account_external_id(&key).await?
        {
            return Err(AccountsError::ExternalIdTaken(id.key, there.account));
        }
        let ids = &mut self.account(id.account).await?.external_ids;
        let is_new = !ids.contains_key(&key);
        if let Some(name) = id.key.as_username().filter(|_| is_new) {
            check_new_username(name)?;
        }
        if let Some(scheme) = id.key.misspelled_scheme().filter(|_| is_new) {
            let what = format!("nobody knows the scheme of `{}`", shown(&key));
            let fix = format!("write `{scheme}:{}`", shown(id.key.id()));
            return Err(Problem::error(None, what, fix).into());
        }
        let mut text = match ids.get(&key) {
            Some((_, text)) => text.clone(),
            None => ConfigText::default(),
        };
        id.write(&mut text)?;
        ids.insert(key, (id, text));
        Ok(())
    }

    /// Replaces the preferences of everybody by pushed commits, if they are where the pusher saw them.
    pub(in super::super) async fn push_defaults(
        &mut self,
        seen: Option<ObjectId>,
        pushed: PushedBranch,
    ) -> Result<(), AccountsError> {
        if self.read_ref(AllUsersRef::UserDefault).await? != seen {
            return Err(AccountsError::Moved);
        }
        self.pushed.insert(AllUsersRef::UserDefault, pushed);
        Ok(())
    }

    /// Replaces external IDs by those of pushed commits, if they are where the pusher saw them. Each account that loses or
    /// gets one has a new commit.
    pub(in super::super) async fn push_external_ids(
        &mut self,
        seen: Option<ObjectId>,
        pushed: PushedBranch,
        notes: &[PushedNote],
    ) -> Result<(), AccountsError> {
        if self.read_ref(AllUsersRef::ExternalIds).await? != seen {
            return Err(AccountsError::Moved);
        }
        for note in notes {
            let Some(before) = note.before else {
                continue;
            };
            // An imported note may be no external ID of an account. It had no effect.
            let Ok((id, _)) = read_note(&*self.objects.get(before).await?) else {
                continue;
            };
            if id.key.note_name() != note.name {
                continue;
            }
            match self.account(id.account).await {
                Ok(account) => drop(account.external_ids.remove(id.key.as_str())),
                Err(AccountsError::NoAccount(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for content in notes.iter().filter_map(|note| note.after.as_deref()) {
            let text = ConfigText::parse(content)?;
            let (Some(id), _) = ExternalId::read(&text) else {
                let fix = "correct the note";
                return Err(Problem::error(None, "a note is no external ID", fix).into());
            };
            let key = id.key.as_str().to_owned();
            let account = self.account(id.account).await?;
            let is_known = account.old_external_ids.contains_key(&key);
            if let Some(name) = id.key.as_username().filter(|_| !is_known) {
                check_new_username(name)?;
            }
            account.external_ids.insert(key, (id, text));
        }
        self.pushed.insert(AllUsersRef::ExternalIds, pushed);
        Ok(())
    }

    /// Returns the labels that an account gives a change, for changes. Labels that cannot be read count as none.
    pub(in super::super) async fn star(
        &mut self,
        account: AccountId,
        change: ChangeNumber,
    ) -> Result<&mut BTreeSet<String>, AccountsError> {
        // The account must be there, and its actor must not be locked out.
        self.account(account).await?;
        let star = (change, account);
        if !self.stars.contains_key(&star) {
            let blob = self.read_ref(AllUsersRef::StarredChange(change, account));
            let labels = match blob.await? {
                None => BTreeSet::new(),
                Some(id) => {
                    let blob = self.objects.get(id).await?;
                    StarLabels::parse(&blob.content)
                        .map_or_else(|_| BTreeSet::new(), StarLabels::into_set)
                }
            };
            self.stars.insert(star, labels);
        }
        Ok(self.stars.entry(star).or_default())
    }

    /// Refuses the update if the account has too many stars after it.
    pub(in super::super) fn limit_stars(&mut self, account: AccountId) {
        self.starring.insert(account);
    }

    /// Replaces the labels of a change by pushed ones, if they are where the pusher saw them.
    pub(in super::super) async fn push_star(
        &mut self,
        seen: Option<ObjectId>,
        (account, change): (AccountId, ChangeNumber),
        labels: Option<&StarLabels>,
    ) -> Result<(), AccountsError> {
        let name = AllUsersRef::StarredChange(change, account);
        if self.read_ref(name).await? != seen {
            return Err(AccountsError::Moved);
        }
        let Some(labels) = labels else {
            // Also a star of an account that is gone can be removed.
            self.stars.insert((change, account), BTreeSet::new());
            return Ok(());
        };
        if self.store.change_get(change).await?.is_none() {
            return Err(AccountsError::NoChange(change));
        }
        *self.star(account, change).await? = labels.iter().map(str::to_owned).collect();
        Ok(())
    }

    /// Removes an account with everything that belongs to it.
    pub(in super::super) async fn delete(
        &mut self,
        account: AccountId,
    ) -> Result<(), AccountsError> {
        self.remove_stars(account).await?;
        let deleted = self.account(account).await?;
        deleted.external_ids.clear();
        deleted.is_deleted = true;
        Ok(())
    }

    /// Removes all stars of an account, and returns their labels.
    async fn remove_stars(
        &mut self,
        account: AccountId,
    ) -> Result<BTreeMap<ChangeNumber, BTreeSet<String>>, AccountsError> {
        let mut removed = BTreeMap::new();
        for star in self.store.change_list_starred(account).await? {
            let labels = std::mem::take(self.star(account, star.number).await?);
            removed.insert(star.number, labels);
        }
        self.starless.insert(account);
        Ok(removed)
    }

    /// Moves what identifies an account, and what its person has set up, to another account of the same person. The
    /// first one stays, inactive. It keeps its user name if the other one has one.
    pub(in super::super) async fn merge(
        &mut self,
        from: AccountId,
        into: AccountId,
    ) -> Result<(), AccountsError> {
        for account in [into, from] {
            // Otherwise somebody who is locked out would be let in by the other account.
            if !is_active(self.account(account).await?.files.get(AccountConfig::FILE)) {
                let what = format!("account {account} is inactive");
                let fix = "activate it first, if its person may use both";
                return Err(Problem::error(None, what, fix).into());
            }
        }
        let source = self.account(from).await?;
        let ids = std::mem::take(&mut source.external_ids);
        let old_keys = source.files.get(AuthorizedKeys::FILE).cloned();
        let old_watches = source.files.remove(Watches::FILE);
        // What has no effect here is not taken along. It stays in the history.
        let keys = AuthorizedKeys::parse(&old_keys.unwrap_or_default()).unwrap_or_default();
        let watches = ConfigText::parse(&old_watches.unwrap_or_default()).unwrap_or_default();

        let target = self.account(into).await?;
        let has_username = target.username().is_some();
        let mut kept = BTreeMap::new();
        for (key, (mut id, mut text)) in ids {
            if has_username && id.key.as_username().is_some() {
                kept.insert(key, (id, text));
                continue;
            }
            id.account = into;
            id.write(&mut text)?;
            target.external_ids.insert(key, (id, text));
        }
        target.edit_keys(|new| {
            for (_, slot) in keys.slots() {
                if let KeySlot::Key(line) = slot
                    && AccountSshKey::parse(line, KEYS).is_ok()
                {
                    new.add(line, KEYS)?;
                }
            }
            Ok(())
        })?;
        target.edit_config(Watches::FILE, |text| {
            for (project, more) in Watches::read(&watches).0.iter() {
                let (own, _) = Watches::read(text);
                let own = own.iter().find(|(name, _)| *name == project);
                let own = own.map_or(&[][..], |(_, watches)| watches);
                Watches::set_project(text, project, &[own, more].concat())?;
            }
            Ok(())
        })?;

        for (change, labels) in self.remove_stars(from).await? {
            let own = self.star(into, change).await?;
            // Of labels that exclude each other, those of the account that goes on stay.
            let is_muted = own.contains(StarLabels::IGNORE);
            let is_starred = own.contains(StarLabels::STAR);
            own.extend(labels.into_iter().filter(|label| {
                !(is_muted && label == StarLabels::STAR
                    || is_starred && label == StarLabels::IGNORE)
            }));
        }

        let source = self.account(from).await?;
        source.external_ids = kept;
        source.edit_keys(|keys| {
            let numbers: Vec<usize> = keys.slots().map(|(number, _)| number).collect();
            for number in numbers {
                keys.delete(number)?;
            }
            Ok(())
        })?;
        source.edit_properties(|config| config.preferred_email = None)?;
        source.lock_out()?;
        self.leave_groups(from, Some(into)).await
    }
}

impl EditedAccount {
    /// Edits a file that has the syntax of git's configuration.
    pub(in super::super) fn edit_config(
        &mut self,
        file: &'static str,
        edit: impl FnOnce(&mut ConfigText) -> Result<(), Problem>,
    ) -> Result<(), AccountsError> {
        let old = self.files.get(file).map_or(&[][..], Vec::as_slice);
        let mut text = ConfigText::parse(old)?;
        edit(&mut text)?;
        if text.as_str().is_empty() {
            self.files.remove(file);
        } else {
            self.files.insert(file, text.as_str().as_bytes().to_vec());
        }
        Ok(())
    }

    /// Edits the SSH keys.
    pub(in super::super) fn edit_keys<T>(
        &mut self,
        edit: impl FnOnce(&mut AuthorizedKeys) -> Result<T, Problem>,
    ) -> Result<T, AccountsError> {
        let file = AuthorizedKeys::FILE;
        let old = self.files.get(file).map_or(&[][..], Vec::as_slice);
        let mut keys = AuthorizedKeys::parse(old)?;
        let edited = edit(&mut keys)?;
        if !keys.as_str().is_empty() {
            self.files.insert(file, keys.as_str().as_bytes().to_vec());
        }
        Ok(edited)
    }

    /// Changes properties of the account.
    pub(in super::super) fn edit_properties(
        &mut self,
        edit: impl FnOnce(&mut AccountConfig),
    ) -> Result<(), AccountsError> {
        self.edit_config(AccountConfig::FILE, |text| {
            let (mut config, _) = AccountConfig::read(text);
            edit(&mut config);
            config.write(text)
        })
    }

    /// Removes an external ID. If no other one has the preferred address, that goes too.
    pub(in super::super) fn remove_external_id(
        &mut self,
        key: &ExternalIdKey,
    ) -> Result<(), AccountsError> {
        if self.external_ids.remove(key.as_str()).is_none() {
            return Err(AccountsError::NoExternalId(key.clone()));
        }
        self.drop_foreign_email()
    }

    /// Removes a preferred address that is on no external ID.
    fn drop_foreign_email(&mut self) -> Result<(), AccountsError> {
        let emails: Vec<String> = self
            .external_ids
            .values()
            .filter_map(|(id, _)| Some(id.email.as_ref()?.key()))
            .collect();
        self.edit_properties(|config| {
            config
                .preferred_email
                .take_if(|preferred| !emails.contains(&preferred.key()));
        })
    }

    /// Returns true if the account can still sign in with a password that was right before.
    fn lets_in(&self, by: &SignedInAccount) -> bool {
        let username = self.username();
        let password = username.as_ref().and_then(|id| id.password.as_ref());
        is_active(self.files.get(AccountConfig::FILE))
            && password.map(StoredPassword::expose)
                == by.password.as_ref().map(StoredPassword::expose)
    }

    /// Returns the external IDs by key.
    pub(in super::super) fn external_ids(&self) -> impl Iterator<Item = &ExternalId> {
        self.external_ids.values().map(|(id, _)| id)
    }

    /// Returns the external ID with this key.
    pub(in super::super) fn external_id(&self, key: &ExternalIdKey) -> Option<ExternalId> {
        self.external_ids
            .get(key.as_str())
            .map(|(id, _)| id.clone())
    }

    /// Returns the external ID of the user name.
    pub(in super::super) fn username(&self) -> Option<ExternalId> {
        let mut ids = self.external_ids();
        ids.find(|id| id.key.as_username().is_some()).cloned()
    }

    /// Locks the account out, also if its file has no room for another line or cannot be read: then a new file has what
    /// can be read of the old one.
    pub(in super::super) fn lock_out(&mut self) -> Result<(), AccountsError> {
        self.is_locked_out = true;
        if self.edit_properties(|config| config.active = false).is_ok() {
            return Ok(());
        }
        let old = self.files.remove(AccountConfig::FILE).unwrap_or_default();
        let kept = ConfigText::parse(&old).map(|text| AccountConfig::read(&text).0);
        self.edit_properties(|config| {
            *config = kept.unwrap_or_default();
            config.active = false;
        })
    }

    /// Replaces the branch by pushed commits, if it is where the pusher saw it. The state is the one that the update
    /// compares, so nobody gets in between.
    pub(in super::super) fn push(
        &mut self,
        seen: Option<ObjectId>,
        pushed: PushedBranch,
        rights: BranchRights,
    ) -> Result<(), AccountsError> {
        if self.tip != seen {
            return Err(AccountsError::Moved);
        }
        let was_active = is_active(self.old_files.get(AccountConfig::FILE));
        let config = pushed.files.get(AccountConfig::FILE);
        if !(rights.may_lock_out || was_active && is_active(config)) {
            let text = config.and_then(|content| ConfigText::parse(content).ok());
            let line = text.as_ref().and_then(AccountConfig::active_line);
            let what = "`active` cannot be changed without the capability `modifyAccount`";
            let fix = "remove the line; an administrator uses `lockkeeper accounts deactivate`";
            let mut findings = AccountFindings::default();
            findings.add(AccountConfig::FILE, [Problem::error(line, what, fix)]);
            return Err(AccountsError::Refused(findings));
        }
        let keys = AuthorizedKeys::FILE;
        if !rights.may_change_keys && pushed.files.get(keys) != self.old_files.get(keys) {
            let what =
                "SSH keys of others cannot be changed without the capability `accessDatabase`";
            let fix = "leave the file as it is";
            let mut findings = AccountFindings::default();
            findings.add(keys, [Problem::error(None, what, fix)]);
            return Err(AccountsError::Refused(findings));
        }
        self.files = FILES
            .iter()
            .filter_map(|name| Some((*name, pushed.files.get(*name)?.clone())))
            .collect();
        self.pushed = Some(pushed);
        Ok(())
    }
}

/// Rights of somebody who pushes to the branch of an account.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct BranchRights {
    /// True if they may change `active`, and push to an account that is locked out.
    pub(in super::super) may_lock_out: bool,
    /// True if they may change SSH keys, which let in.
    pub(in super::super) may_change_keys: bool,
}

/// Refuses a new user name that would stand for something else wherever accounts are named.
pub(in super::super) fn check_new_username(name: &str) -> Result<(), Problem> {
    let what = if name == "self" {
        "in paths and refs, `self` is the account that asks"
    } else if name.bytes().all(|byte| byte.is_ascii_digit()) {
        "a number names the account with this number"
    } else {
        return Ok(());
    };
    let what = format!("`{name}` cannot be a user name: {what}");
    Err(Problem::error(None, what, "choose another one"))
}

/// Returns the state that a file says. One that cannot be read says nothing.
fn is_active(content: Option<&Vec<u8>>) -> bool {
    let text = content.and_then(|content| ConfigText::parse(content).ok());
    text.is_none_or(|text| AccountConfig::read(&text).0.active)
}

/// Returns the files with a meaning in a root directory, with their blobs.
fn known_entries(root: &Tree) -> impl Iterator<Item = (&'static str, ObjectId)> {
    FILES.into_iter().filter_map(|name| {
        let mut entries = root.entries.iter();
        let entry = entries.find(|entry| entry.filename == name)?;
        entry.mode.is_blob().then_some((name, entry.oid))
    })
}

fn known_files(
    root: &Tree,
    blobs: &HashMap<ObjectId, Arc<GitObject>>,
) -> BTreeMap<&'static str, Vec<u8>> {
    let files = known_entries(root);
    files
        .map(|(name, id)| (name, blobs[&id].content.clone()))
        .collect()
}
