//! Checks what an update wants, and turns it into objects, refs and rows.

use std::collections::{BTreeMap, HashMap};

use gix_hash::ObjectId;
use gix_object::{Kind, Tree};
use lockkeeper_accounts::account_config::AccountConfig;
use lockkeeper_accounts::blobs::{AccountSequence, StarLabels};
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::external_ids::{ExternalId, NoteName};
use lockkeeper_accounts::findings::{AccountFindings, check_external_ids, check_user_branch};
use lockkeeper_accounts::notes::{NoteTrees, NotesError, WrittenNotes, write_notes};
use lockkeeper_accounts::objects::{CommitText, GitObject, with_files};
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};
use lockkeeper_accounts::ssh_keys::AuthorizedKeys;
use lockkeeper_accounts::watches::Watches;

use super::super::check::KEYS;
use super::super::search::AccountWords;
use super::super::stars::IndexedStar;
use super::super::store::{
    AccountNames, AccountRow, IndexedAccount, WrittenTables, watched_projects,
};
use super::super::update::{AccountsChange, RefUpdate};
use super::edit::{AccountsEdit, EditedAccount};
use super::edit_access::EditedAccess;
use super::objects::AccountObjects;
use super::{AccountsError, damaged};
use crate::model::Cause;

impl AccountsEdit<'_> {
    /// Returns what has to be stored. `None` if nothing differs from what was read.
    pub(super) async fn finish(
        mut self,
        text: &CommitText,
        cause: &Cause,
    ) -> Result<Option<AccountsChange>, AccountsError> {
        self.accounts.retain(|_, account| account.is_changed());
        self.access.take_if(|access| !access.is_changed());
        let stars = self.changed_stars()?;
        let has_accounts = !self.accounts.is_empty() || self.next_account.is_some();
        let has_branches = !self.pushed.is_empty() || self.access.is_some();
        if !has_accounts && !has_branches && stars.is_empty() {
            return Ok(None);
        }
        self.check_actor().await?;
        self.check()?;
        let mut new = NewState {
            objects: Vec::new(),
            refs: std::mem::take(&mut self.refs)
                .into_iter()
                .map(|(name, id)| (name, (id, id)))
                .collect(),
        };
        if let Some(next) = self.next_account {
            let content = AccountSequence(next).to_string().into_bytes();
            let id = new.add(GitObject::new(Kind::Blob, content));
            new.point(AllUsersRef::AccountSequence, id);
        }
        let (mut rows, mut changes, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        if !self.pushed.contains_key(&AllUsersRef::ExternalIds) {
            self.write_notes(&mut new, text).await?;
        }
        for (name, pushed) in std::mem::take(&mut self.pushed) {
            new.objects.extend(pushed.objects);
            new.point(name, pushed.tip);
            changes.push(format!("{name} to {}", pushed.tip));
        }
        if let Some(access) = self.access.take() {
            let commit = access.write(&mut new, text);
            new.point(AllUsersRef::Config, commit);
            changes.push(format!("{} to {commit}", AllUsersRef::Config));
        }
        let mut star_rows = Vec::new();
        for (star, blob) in stars {
            let name = star.name();
            if let Some(blob) = blob {
                changes.push(format!("{name} to {}", blob.id));
                let id = new.add(blob);
                new.point(name, id);
            } else {
                changes.push(format!("{name} is removed"));
                new.remove(name);
            }
            star_rows.push(star);
        }
        for (number, account) in std::mem::take(&mut self.accounts) {
            if account.is_deleted {
                let name = AllUsersRef::User(number);
                changes.push(format!("{name} is removed"));
                new.remove(name);
                deleted.push(number);
                continue;
            }
            let commit = account.write(&mut new, text);
            new.point(AllUsersRef::User(number), commit);
            changes.push(account.describe(number, commit));
            rows.push(account.index(number, commit, text)?);
        }
        let refs = new.refs.into_iter().map(|(name, (from, to))| RefUpdate {
            name: name.to_string(),
            from,
            to,
        });
        Ok(Some(AccountsChange {
            objects: new.objects,
            refs: refs.collect(),
            accounts: rows,
            deleted,
            stars: star_rows,
            starless: self.starless,
            starring: self.starring,
            cause: Cause {
                reason: format!("{}: {}", text.message, listed(&changes)),
                ..cause.clone()
            },
        }))
    }

    /// Returns the stars that differ from what was read, with the objects of their labels. `None`: the star is gone.
    fn changed_stars(&self) -> Result<Vec<(IndexedStar, Option<GitObject>)>, AccountsError> {
        let mut changed = Vec::new();
        for ((change, account), labels) in &self.stars {
            let name = AllUsersRef::StarredChange(*change, *account);
            let blob = if labels.is_empty() {
                None
            } else {
                let labels = StarLabels::new(labels.iter().cloned()).map_err(|problem| {
                    let mut findings = AccountFindings::default();
                    findings.add(&name.to_string(), [problem]);
                    AccountsError::Refused(findings)
                })?;
                let text = labels.to_string().into_bytes();
                Some(GitObject::new(Kind::Blob, text))
            };
            let old = self.refs.get(&name).copied().flatten();
            // An account without stars also loses rows that had no ref.
            let is_starless = self.starless.contains(account);
            if old != blob.as_ref().map(|blob| blob.id) || is_starless {
                let star = IndexedStar {
                    account: *account,
                    change: *change,
                    labels: labels.clone(),
                    is_new: old.is_none() && !is_starless,
                };
                changed.push((star, blob));
            }
        }
        Ok(changed)
    }

    /// Checks the accounts as they will be. What has no effect already, because it was imported, may stay.
    fn check(&self) -> Result<(), AccountsError> {
        for (number, account) in &self.accounts {
            if account.is_deleted || account.is_locked_out {
                continue;
            }
            let ids: Vec<ExternalId> = account.external_ids().cloned().collect();
            let files = match &account.pushed {
                Some(pushed) => pushed.files.clone(),
                None => account.with_other_files(&account.files),
            };
            let mut findings = check_user_branch(&files, &ids, KEYS);
            if !findings.is_accepted() {
                let old_ids = account.old_external_ids.values();
                let old_ids: Vec<ExternalId> = old_ids.map(|(id, _)| id.clone()).collect();
                let mut old_files = account.with_other_files(&account.old_files);
                // A restored account keeps the keys that it had.
                if account.is_restored
                    && let Some(keys) = account.files.get(AuthorizedKeys::FILE)
                {
                    old_files.insert(AuthorizedKeys::FILE.to_owned(), keys.clone());
                }
                findings = findings.except_old(&check_user_branch(&old_files, &old_ids, KEYS));
            }
            if !findings.is_accepted() {
                let branch = AllUsersRef::User(*number).to_string();
                let is_one_of_many = self.pushed.contains_key(&AllUsersRef::ExternalIds);
                return Err(AccountsError::Refused(if is_one_of_many {
                    findings.on_branch(&branch)
                } else {
                    findings
                }));
            }
        }
        let check = |is_old: bool| {
            // Nothing may prevent an account from being locked out.
            let checked = self.accounts.values();
            let checked = checked.filter(|account| is_old || !account.is_locked_out);
            let notes = checked.flat_map(|account| {
                let ids = if is_old {
                    &account.old_external_ids
                } else {
                    &account.external_ids
                };
                let ids = ids.values();
                ids.map(|(id, text)| (id.key.note_name(), text.as_str().as_bytes()))
            });
            check_external_ids(notes, |account| self.accounts.contains_key(&account))
        };
        let mut findings = check(false);
        if !findings.is_accepted() {
            findings = findings.except_old(&check(true));
        }
        if findings.is_accepted() {
            Ok(())
        } else {
            Err(AccountsError::Refused(findings))
        }
    }

    /// Writes the notes of external IDs that differ, with a commit. The first account begins the branch, also if it has
    /// none: a copy with accounts and without this branch lacks it, and is not imported.
    async fn write_notes(
        &self,
        new: &mut NewState,
        text: &CommitText,
    ) -> Result<(), AccountsError> {
        let mut changes: BTreeMap<NoteName, Option<ObjectId>> = BTreeMap::new();
        // An external ID that moves from one account to another is removed there and added here.
        for account in self.accounts.values() {
            for (id, _) in account.old_external_ids.values() {
                if !account.external_ids.contains_key(id.key.as_str()) {
                    changes.entry(id.key.note_name()).or_insert(None);
                }
            }
            for (key, (id, content)) in &account.external_ids {
                let old = account.old_external_ids.get(key);
                if old.is_none_or(|(_, old)| old.as_str() != content.as_str()) {
                    let blob = new.add(GitObject::new(
                        Kind::Blob,
                        content.as_str().as_bytes().to_vec(),
                    ));
                    changes.insert(id.key.note_name(), Some(blob));
                }
            }
        }
        let old = new.refs.get(&AllUsersRef::ExternalIds);
        let old = old.and_then(|(from, _)| *from);
        let mut accounts = self.accounts.values();
        let begins = old.is_none() && accounts.any(|account| account.tip.is_none());
        if changes.is_empty() && !begins {
            return Ok(());
        }
        let root = match old {
            None => None,
            Some(commit) => Some(self.objects.root_of(commit).await?),
        };
        let written = self.written_notes(root, &changes).await?;
        for (_, tree) in &written.trees {
            new.add(GitObject::tree(tree));
        }
        let commit = new.add(GitObject::commit(written.root, old, text));
        new.point(AllUsersRef::ExternalIds, commit);
        Ok(())
    }

    /// Runs the function that changes notes until every tree that it needs is loaded.
    async fn written_notes(
        &self,
        root: Option<ObjectId>,
        changes: &BTreeMap<NoteName, Option<ObjectId>>,
    ) -> Result<WrittenNotes, AccountsError> {
        let mut trees = LoadedTrees::default();
        for name in changes.keys() {
            trees.load_path(self.objects, root, name).await?;
        }
        // Notes that move into folders need trees beside these paths.
        loop {
            match write_notes(&trees, root, changes) {
                Ok(written) => return Ok(written),
                Err(NotesError::Read(MissingTree(id))) => trees.load(self.objects, id).await?,
                Err(error @ NotesError::Invalid(_)) => {
                    let id = root.unwrap_or_else(|| ObjectId::null(gix_hash::Kind::Sha1));
                    return Err(damaged(id, &error));
                }
            }
        }
    }
}

/// Number of changes that the reason of an event names. The commits tell the rest.
const NAMED_CHANGES: usize = 20;

fn listed(changes: &[String]) -> String {
    let named = changes[..changes.len().min(NAMED_CHANGES)].join(", ");
    match changes.len().saturating_sub(NAMED_CHANGES) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

/// Objects and refs of an update.
struct NewState {
    objects: Vec<GitObject>,
    /// The object of each ref when it was read, and its new one.
    refs: BTreeMap<AllUsersRef, (Option<ObjectId>, Option<ObjectId>)>,
}

impl NewState {
    fn add(&mut self, object: GitObject) -> ObjectId {
        let id = object.id;
        self.objects.push(object);
        id
    }

    fn point(&mut self, name: AllUsersRef, to: ObjectId) {
        self.refs.entry(name).or_default().1 = Some(to);
    }

    fn remove(&mut self, name: AllUsersRef) {
        self.refs.entry(name).or_default().1 = None;
    }
}

impl EditedAccess {
    fn is_changed(&self) -> bool {
        self.files != self.old_files
    }

    /// Adds the objects of the branch, and returns its newest commit.
    fn write(&self, new: &mut NewState, text: &CommitText) -> ObjectId {
        let mut changed = BTreeMap::new();
        for (name, content) in &self.files {
            if self.old_files.get(name) != Some(content) {
                let blob = new.add(GitObject::new(Kind::Blob, content.clone()));
                changed.insert(name.as_str(), Some(blob));
            }
        }
        let root = new.add(GitObject::tree(&with_files(&self.root, &changed)));
        let begins = CommitText {
            message: "Begin Access Control".to_owned(),
            ..text.clone()
        };
        let text = if self.tip.is_none() { &begins } else { text };
        new.add(GitObject::commit(root, self.tip, text))
    }
}

impl EditedAccount {
    /// Adds the files without a meaning, which no update but a push changes. In a branch with too many directories they do not
    /// count.
    fn with_other_files(
        &self,
        files: &BTreeMap<&'static str, Vec<u8>>,
    ) -> BTreeMap<String, Vec<u8>> {
        let files = files.iter();
        files
            .map(|(name, content)| ((*name).to_owned(), content.clone()))
            .chain(self.other_files.clone().unwrap_or_default())
            .collect()
    }

    fn is_changed(&self) -> bool {
        self.tip.is_none()
            || self.is_restored
            || self.is_deleted
            || self.pushed.is_some()
            || self.files != self.old_files
            || texts(&self.external_ids) != texts(&self.old_external_ids)
    }

    /// Adds the objects of the branch, and returns its newest commit. If only external IDs have changed, it changes no
    /// file, so that the branch tells everything that happened to the account.
    fn write(&self, new: &mut NewState, text: &CommitText) -> ObjectId {
        if let Some(pushed) = &self.pushed {
            new.objects.extend(pushed.objects.iter().cloned());
            return pushed.tip;
        }
        let mut changed = BTreeMap::new();
        for name in self.old_files.keys().chain(self.files.keys()) {
            let content = self.files.get(name);
            if content != self.old_files.get(name) {
                let blob = content.map(|content| GitObject::new(Kind::Blob, content.clone()));
                changed.insert(*name, blob.map(|blob| new.add(blob)));
            }
        }
        let root = new.add(GitObject::tree(&with_files(&self.root, &changed)));
        new.add(GitObject::commit(root, self.tip, text))
    }

    fn describe(&self, number: AccountId, commit: ObjectId) -> String {
        let name = AllUsersRef::User(number);
        match self.tip {
            None => format!("{name} begins with {commit}"),
            Some(tip) => format!("{name} from {tip} to {commit}"),
        }
    }

    /// Returns the rows of the account.
    fn index(
        &self,
        number: AccountId,
        commit: ObjectId,
        text: &CommitText,
    ) -> Result<IndexedAccount, AccountsError> {
        let since = self.registered_at.unwrap_or(text.at);
        let row = |files: &BTreeMap<&str, Vec<u8>>, ids: &BTreeMap<_, (ExternalId, ConfigText)>| {
            let ids = ids.values().map(|(id, _)| id);
            AccountRow::new(number, commit, since, files.get(AccountConfig::FILE), ids)
        };
        let notes = |ids: &BTreeMap<_, (ExternalId, ConfigText)>| -> Vec<_> {
            let notes = ids.values().map(|(id, text)| {
                let note = GitObject::new(Kind::Blob, text.as_str().as_bytes().to_vec());
                (id.key.clone(), note.id)
            });
            notes.collect()
        };
        let mut new = IndexedAccount {
            row: row(&self.files, &self.external_ids)?,
            external_ids: notes(&self.external_ids),
            emails: self
                .external_ids()
                .filter_map(|id| id.email.clone())
                .collect(),
            watches: watched_projects(self.files.get(Watches::FILE)),
            written: WrittenTables::ALL,
        };
        // A restored account has the files of an earlier commit as its old ones.
        let old = (self.tip.is_some() && !self.is_restored).then_some(&self.old_files);
        if let Some(old) = old
            && let Ok(old_row) = row(old, &self.old_external_ids)
        {
            let old_ids = notes(&self.old_external_ids).into_iter();
            let old_emails = self.old_external_ids.values();
            let old_emails = old_emails.filter_map(|(id, _)| Some(id.email.as_ref()?.key()));
            new.written = WrittenTables {
                names_before: Some(AccountNames {
                    external_ids: old_ids
                        .map(|(key, note)| (key.as_str().to_owned(), note))
                        .collect(),
                    emails: old_emails.collect(),
                }),
                watches: new.watches != watched_projects(old.get(Watches::FILE)),
                words: AccountWords::of(&new.row) != AccountWords::of(&old_row),
            };
        }
        Ok(new)
    }
}

/// Returns the contents of notes by key.
fn texts(ids: &BTreeMap<String, (ExternalId, ConfigText)>) -> BTreeMap<&str, &str> {
    let ids = ids.iter();
    ids.map(|(key, (_, text))| (key.as_str(), text.as_str()))
        .collect()
}

/// Trees of notes that were read from the database.
#[derive(Default)]
struct LoadedTrees(HashMap<ObjectId, Tree>);

/// A tree that has to be read first.
#[derive(Debug, thiserror::Error)]
#[error("the tree {0} is not loaded")]
struct MissingTree(ObjectId);

impl LoadedTrees {
    async fn load(&mut self, objects: &AccountObjects, id: ObjectId) -> Result<(), AccountsError> {
        self.0.insert(id, objects.tree(id).await?);
        Ok(())
    }

    /// Loads the trees from the root to the one that has a note, or would have it.
    async fn load_path(
        &mut self,
        objects: &AccountObjects,
        root: Option<ObjectId>,
        name: &NoteName,
    ) -> Result<(), AccountsError> {
        let mut next = root;
        for byte in name.as_bytes() {
            let Some(id) = next else {
                break;
            };
            if !self.0.contains_key(&id) {
                self.load(objects, id).await?;
            }
            let digits = format!("{byte:02x}");
            let mut entries = self.0[&id].entries.iter();
            next = entries
                .find(|entry| entry.mode.is_tree() && entry.filename == digits)
                .map(|entry| entry.oid);
        }
        Ok(())
    }
}

impl NoteTrees for LoadedTrees {
    type Error = MissingTree;

    fn tree(&self, id: ObjectId) -> Result<Tree, MissingTree> {
        self.0.get(&id).cloned().ok_or(MissingTree(id))
    }
}
