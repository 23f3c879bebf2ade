//! Reads objects of `All-Users`, and keeps those that were used last. An update of external IDs reads and writes directories
//! of notes, and the next one needs some of them again.
//!
//! The content of an id never changes, so nothing that is kept can be out of date, whichever replica made the last update.
//! After a restored backup, a kept object may be missing in the database. So an id comes from a ref or a row that was read for
//! the update: the database has everything that these lead to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gix_hash::ObjectId;
use gix_object::tree::Entry;
use gix_object::{CommitRefIter, Tree, TreeRef};
use lockkeeper_accounts::objects::GitObject;

use super::{AccountsError, damaged};
use crate::kit::recent::RecentMap;
use crate::store::Store;

/// Rough limit of the objects that are kept, in bytes. Of the directories of 300,000 notes, those above the last level have
/// 1.9 MB. An update needs two of these and one of the last level. A server has two such readers.
const KEPT_BYTES: usize = 16 * 1024 * 1024;
/// Number of bytes that count for each object besides its content.
const OBJECT_SIZE: usize = 128;

type KeptObjects = RecentMap<ObjectId, Arc<GitObject>>;

/// Reader of the objects of `All-Users`.
pub(in super::super) struct AccountObjects {
    store: Store,
    kept: Mutex<KeptObjects>,
}

impl AccountObjects {
    pub fn new(store: Store) -> Self {
        let kept = Mutex::new(RecentMap::new(KEPT_BYTES));
        Self { store, kept }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns an object. The error says if it is neither kept nor in the database.
    pub async fn get(&self, id: ObjectId) -> Result<Arc<GitObject>, AccountsError> {
        let kept = self.kept().get(&id);
        if let Some(object) = kept {
            return Ok(object);
        }
        let object = Arc::new(self.store.account_object(id).await?);
        keep(&mut self.kept(), &object);
        Ok(object)
    }

    /// Returns several objects with at most one statement. The error names one that does not exist.
    pub async fn get_all(
        &self,
        ids: impl IntoIterator<Item = ObjectId>,
    ) -> Result<HashMap<ObjectId, Arc<GitObject>>, AccountsError> {
        let (mut objects, mut unread) = (HashMap::new(), BTreeSet::new());
        {
            let mut kept = self.kept();
            for id in ids {
                match kept.get(&id) {
                    Some(object) => drop(objects.insert(id, object)),
                    None => drop(unread.insert(id)),
                }
            }
        }
        for (id, object) in self.store.account_objects_of(unread).await? {
            let object = Arc::new(object);
            keep(&mut self.kept(), &object);
            objects.insert(id, object);
        }
        Ok(objects)
    }

    /// Returns the entries of a directory.
    pub async fn tree(&self, id: ObjectId) -> Result<Tree, AccountsError> {
        let object = self.get(id).await?;
        TreeRef::from_bytes(&object.content, gix_hash::Kind::Sha1)
            .map(|tree| tree.to_owned())
            .map_err(|error| damaged(id, &error))
    }

    /// Returns the id of the root directory of a commit.
    pub async fn root_of(&self, commit: ObjectId) -> Result<ObjectId, AccountsError> {
        let object = self.get(commit).await?;
        CommitRefIter::from_bytes(&object.content, gix_hash::Kind::Sha1)
            .tree_id()
            .map_err(|error| damaged(commit, &error))
    }

    /// Returns the entries of the root directory of a commit.
    pub async fn root(&self, commit: ObjectId) -> Result<Tree, AccountsError> {
        self.tree(self.root_of(commit).await?).await
    }

    /// Returns the files in a directory, without those in directories below it.
    pub async fn files_in(&self, dir: &Tree) -> Result<BTreeMap<String, Vec<u8>>, AccountsError> {
        let blobs = dir.entries.iter().filter(|entry| entry.mode.is_blob());
        let blobs: Vec<&Entry> = blobs.collect();
        let objects = self.get_all(blobs.iter().map(|entry| entry.oid)).await?;
        let files = blobs.into_iter().map(|entry| {
            let content = objects[&entry.oid].content.clone();
            (entry.filename.to_string(), content)
        });
        Ok(files.collect())
    }

    /// Keeps objects that were stored.
    pub fn keep(&self, objects: impl IntoIterator<Item = GitObject>) {
        let mut kept = self.kept();
        for object in objects {
            keep(&mut kept, &Arc::new(object));
        }
    }

    fn kept(&self) -> MutexGuard<'_, KeptObjects> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep(kept: &mut KeptObjects, object: &Arc<GitObject>) {
    let bytes = object.content.len() + OBJECT_SIZE;
    kept.insert(object.id, Arc::clone(object), bytes);
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use gix_object::Kind;
    use lockkeeper_accounts::external_ids::ExternalIdKey;
    use lockkeeper_accounts::objects::CommitPerson;

    use super::*;
    use crate::clock::{CountingIds, ManualClock};
    use crate::features::accounts::{AccountsActor, AllUsers, NewAccount};
    use crate::model::{Actor, Cause, Origin};
    use crate::store::DatabaseUrl;

    /// Returns the ids of all objects of the database, and the kinds of those that a server keeps.
    async fn kept(users: &AllUsers) -> (BTreeSet<ObjectId>, BTreeMap<ObjectId, Kind>) {
        let begin = (0, ObjectId::null(gix_hash::Kind::Sha1));
        let all = users.store().account_objects_after(begin, 10_000).await;
        let all = all.unwrap();
        let mut kept = users.objects.kept();
        let found = all.iter().map(|(_, object)| object);
        let found = found.filter(|object| kept.get(&object.id).is_some());
        let found = found.map(|object| (object.id, object.kind)).collect();
        (all.iter().map(|(_, object)| object.id).collect(), found)
    }

    /// The same is counted for trees of three levels where they are compared, and here with the contents.
    #[tokio::test]
    async fn after_a_change_of_one_external_id_few_trees_and_one_blob_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let url = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
        let clock = Arc::new(ManualClock::new(DateTime::UNIX_EPOCH));
        let store = Store::open(&url, clock, Arc::new(CountingIds::default()));
        let store = store.await.unwrap();
        let [ours, other] = [(); 2].map(|()| AllUsers::new(store.clone(), "localhost"));
        let actor = AccountsActor {
            author: CommitPerson::new("Ops", "ops@example.com"),
            cause: Cause::new(Actor::new("ops", Origin::Cli), ""),
            expected: None,
            signed_in: None,
        };
        // More than 256, so that the notes are in folders.
        let mut accounts = Vec::new();
        for account in 0..4 {
            let keys = (0..90).map(|key| format!("github:{}", 100 * account + key + 1));
            let new = NewAccount {
                external_ids: keys.map(|key| key.parse().unwrap()).collect(),
                ..NewAccount::default()
            };
            accounts.push(ours.create(&actor, &new).await.unwrap());
        }
        for account in &accounts {
            assert_eq!(ours.external_ids(*account).await.unwrap().len(), 90);
        }
        let (_, before) = kept(&ours).await;

        let [first, second] = ["gitlab:1", "gitlab:2"].map(|key| key.parse().unwrap());
        let link = async |users: &AllUsers, key: &ExternalIdKey| {
            users.link(&actor, accounts[0], key, None).await.unwrap();
        };
        link(&other, &first).await;
        let (there, _) = kept(&ours).await;
        assert_eq!(ours.external_ids(accounts[0]).await.unwrap().len(), 91);
        // The next change is made on top of it.
        link(&ours, &second).await;
        let (_, after) = kept(&ours).await;
        let read = after.into_iter().filter(|(id, _)| there.contains(id));
        let read = read.filter(|(id, _)| !before.contains_key(id));
        let kinds: Vec<Kind> = read.map(|(_, kind)| kind).collect();
        let many = |kind| kinds.iter().filter(|read| **read == kind).count();
        assert!((1..=6).contains(&many(Kind::Tree)), "{kinds:?}");
        assert_eq!(many(Kind::Blob), 1, "{kinds:?}");
    }
}
