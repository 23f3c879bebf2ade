//! Reads all accounts of a copy of `All-Users`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gix_hash::ObjectId;
use gix_object::Kind;
use lockkeeper_accounts::blobs::{AccountSequence, StarLabels};
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::external_ids::{ExternalId, NoteName};
use lockkeeper_accounts::findings::Problem;
use lockkeeper_accounts::notes::{NoteFault, NotesError};
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef, ChangeNumber};

use super::stars::{IndexedStars, SharedLabels};
use crate::git::{BranchHistory, LocalCopy, LocalCopyError};
use crate::kit::web::text::shown;

/// Maximum size of a file that is read, in bytes. A valid one is smaller; this one is read to say so.
const MAX_FILE: u64 = 1024 * 1024;

/// Content of all notes by name, or the reasons why they are no notes: none if the ref itself cannot be read.
type Notes = Result<BTreeMap<NoteName, Vec<u8>>, Vec<NoteFault>>;

/// A copy of `All-Users`, with everything that its refs lead to.
pub(super) struct AccountsCopy {
    /// Branches of the accounts, by number.
    pub(super) users: BTreeMap<AccountId, UserBranch>,
    /// Accounts whose branch cannot be read.
    pub(super) unreadable: BTreeSet<AccountId>,
    /// Preferences for everybody and what else is in their branch, by path.
    pub(super) defaults: BTreeMap<String, Vec<u8>>,
    pub(super) notes: Notes,
    /// True if the copy has the ref of external IDs, readable or not.
    pub(super) has_external_ids: bool,
    /// Files of the access control, by path. `None`: the rules of a new installation are in effect.
    pub(super) access: Option<BTreeMap<String, Vec<u8>>>,
    /// Content of each starred change.
    pub(super) stars: BTreeMap<(AccountId, ChangeNumber), Vec<u8>>,
    /// Content of the sequence.
    pub(super) sequence: Option<Vec<u8>>,
    /// Refs that `All-Users` must not have, and those that cannot be read.
    pub(super) bad_refs: Vec<(String, Problem)>,
}

/// Branch of an account.
pub(super) struct UserBranch {
    pub(super) tip: ObjectId,
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) history: BranchHistory,
}

impl AccountsCopy {
    /// Reads a repository on this disk.
    pub(super) fn read(dir: &Path) -> Result<Self, LocalCopyError> {
        LocalCopy::open(dir).map(|copy| Self::of(&copy))
    }

    /// Reads an open repository.
    pub(super) fn of(copy: &LocalCopy) -> Self {
        let mut accounts = Self {
            users: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            defaults: BTreeMap::new(),
            notes: Ok(BTreeMap::new()),
            has_external_ids: false,
            access: None,
            stars: BTreeMap::new(),
            sequence: None,
            bad_refs: Vec::new(),
        };
        let mut of_caller = None;
        for (name, id) in copy.refs() {
            if name.parse() == Ok(AllUsersRef::UserSelf) {
                of_caller = Some((name, id));
                continue;
            }
            // One account that cannot be read must not hide the others.
            if let Err(error) = accounts.add(copy, name, id) {
                accounts.add_unreadable(name, &error);
            }
        }
        if let Some((name, id)) = of_caller
            && !accounts.users.values().any(|branch| branch.tip == id)
        {
            accounts.add_bad(
                name,
                "it stands for the branch of the caller, and no account is at this commit",
            );
        }
        accounts
    }

    fn add(&mut self, copy: &LocalCopy, name: &str, id: ObjectId) -> Result<(), LocalCopyError> {
        let known = match name.parse::<AllUsersRef>() {
            Ok(known) => known,
            // A clone with a worktree has these. They say nothing about accounts.
            Err(_) if is_of_clone(name) => return Ok(()),
            Err(error) => {
                self.add_bad(name, error.to_string());
                return Ok(());
            }
        };
        match known {
            AllUsersRef::User(account) => {
                let branch = UserBranch {
                    tip: id,
                    files: copy.files(id, MAX_FILE)?,
                    history: copy.history(id)?,
                };
                self.users.insert(account, branch);
            }
            AllUsersRef::UserDefault => self.defaults = copy.files(id, MAX_FILE)?,
            AllUsersRef::ExternalIds => {
                self.has_external_ids = true;
                self.notes = notes(copy, id)?;
            }
            AllUsersRef::StarredChange(change, account) => {
                let labels = copy.blob(id, MAX_FILE)?;
                self.stars.insert((account, change), labels);
            }
            AllUsersRef::AccountSequence => self.sequence = Some(copy.blob(id, MAX_FILE)?),
            // Every copy that an account has fetched has it, as one more name of a branch.
            AllUsersRef::UserSelf => {}
            AllUsersRef::Config => self.access = Some(copy.files(id, MAX_FILE)?),
        }
        Ok(())
    }

    fn add_unreadable(&mut self, name: &str, error: &LocalCopyError) {
        let problem = Problem::error(None, error.to_string(), "correct or remove it");
        self.bad_refs.push((shown(name), problem));
        match name.parse() {
            Ok(AllUsersRef::User(account)) => drop(self.unreadable.insert(account)),
            // Not the same as a ref that is not there: nobody knows which external IDs there are.
            Ok(AllUsersRef::ExternalIds) => self.notes = Err(Vec::new()),
            _ => {}
        }
    }

    fn add_bad(&mut self, name: &str, why: impl Into<String>) {
        let problem = Problem::error(None, why, "rename or remove it");
        self.bad_refs.push((shown(name), problem));
    }

    /// Returns true if the account has a branch, readable or not.
    pub(super) fn has_account(&self, account: AccountId) -> bool {
        self.users.contains_key(&account) || self.unreadable.contains(&account)
    }

    /// Returns the highest account that has a branch.
    pub(super) fn highest_account(&self) -> Option<AccountId> {
        let readable = self.users.keys().next_back();
        readable.max(self.unreadable.last()).copied()
    }

    /// Returns the external IDs of accounts, each with the blob of its note. A note that cannot be read, that has the name of
    /// another one, or whose account does not exist has no effect.
    pub(super) fn read_notes(&self) -> impl Iterator<Item = (ObjectId, ExternalId)> {
        let ids = self.named_ids();
        let ids = ids.filter(|(_, id)| self.has_account(id.account));
        ids.map(|(content, id)| (GitObject::new(Kind::Blob, content.clone()).id, id))
    }

    /// Returns the highest number that a branch or an external ID has. A new account with that number would get the external
    /// ID.
    pub(super) fn highest_number(&self) -> Option<AccountId> {
        let named = self.named_ids().map(|(_, id)| id.account);
        named.chain(self.highest_account()).max()
    }

    /// Returns the external IDs in notes with the right names, also of accounts that do not exist.
    fn named_ids(&self) -> impl Iterator<Item = (&Vec<u8>, ExternalId)> {
        let notes = self.notes.iter().flatten();
        notes.filter_map(|(name, content)| {
            let id = ExternalId::read(&ConfigText::parse(content).ok()?).0?;
            (id.key.note_name() == *name).then_some((content, id))
        })
    }

    /// Returns the external IDs of each account, by key.
    pub(super) fn external_ids(&self) -> BTreeMap<AccountId, Vec<ExternalId>> {
        let mut by_account: BTreeMap<AccountId, Vec<ExternalId>> = BTreeMap::new();
        for (_, id) in self.read_notes() {
            by_account.entry(id.account).or_default().push(id);
        }
        for ids in by_account.values_mut() {
            ids.sort_by(|a, b| a.key.cmp(&b.key));
        }
        by_account
    }

    /// Returns the labels of the readable stars.
    pub(super) fn read_stars(&self) -> IndexedStars {
        let mut shared = SharedLabels::default();
        let stars = self.stars.iter();
        let readable = stars.filter_map(|(star, labels)| {
            let labels = StarLabels::parse(labels).ok()?;
            Some((*star, shared.share(labels.into_set())))
        });
        readable.collect()
    }

    /// Returns the next free account number, if it can be read.
    pub(super) fn next_account(&self) -> Option<AccountId> {
        let sequence = self.sequence.as_deref()?;
        AccountSequence::parse(sequence).ok().map(|next| next.0)
    }
}

fn is_of_clone(name: &str) -> bool {
    ["refs/heads/", "refs/remotes/", "refs/tags/", "refs/notes/"]
        .iter()
        .any(|folder| name.starts_with(folder))
}

fn notes(copy: &LocalCopy, commit: ObjectId) -> Result<Notes, LocalCopyError> {
    let blobs = match copy.notes(copy.root(commit)?) {
        Ok(blobs) => blobs,
        Err(NotesError::Read(error)) => return Err(error),
        Err(NotesError::Invalid(faults)) => return Ok(Err(faults)),
    };
    let ids: Vec<ObjectId> = blobs.values().copied().collect();
    let contents = copy.read_blobs(&ids, MAX_FILE, |content| content)?;
    Ok(Ok(blobs.into_keys().zip(contents).collect()))
}
