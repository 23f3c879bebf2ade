//! A push is checked by what it changes, and by what that touches. The verdict has to be that of a check of everything.

use std::collections::HashMap;
use std::io::Write as _;

use chrono::DateTime;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use gix_object::tree::{Entry, EntryKind};
use gix_object::{Kind, Tree};
use lockkeeper_accounts::account_config::AccountConfig;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use lockkeeper_accounts::findings::Severity;
use lockkeeper_accounts::objects::{CommitPerson, CommitText};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sha1::{Digest as _, Sha1};
use tempfile::TempDir;

use super::super::view::Views;
use super::*;
use crate::clock::{CountingIds, ManualClock};
use crate::features::accounts::NewAccount;
use crate::features::accounts::check::CheckedCopy;
use crate::features::accounts::copy::AccountsCopy;
use crate::git::{GitSettings, LocalCopy};
use crate::store::{DatabaseUrl, Store};

const SEED: u64 = 18;
const PUSHES: usize = 120;
/// Least number of accepted and of refused pushes. In a trial, about 40 of 100 were accepted.
const LEAST: usize = PUSHES / 6;

const KEYS: [&str; 8] = [
    "github:1",
    "github:2",
    "github:3",
    "gitlab:9",
    "x:1",
    "username:zoe",
    "username:kim",
    "mailto:a@example.com",
];
const EMAILS: [&str; 6] = [
    "a@example.com",
    "A@Example.com",
    "b@example.com",
    "kim@example.com",
    "lee@example.com",
    "no address",
];
const PASSWORDS: [&str; 2] = [
    "bcrypt:4:LCbmSBDivK/hhGVQMfkDpA==:XcWn0pKYSVU/UJgOvhidkEtmqCp6oKB7",
    "secret",
];

/// Files of a branch by path.
type Files = BTreeMap<String, Vec<u8>>;

/// Pushes of the web user to a server with three accounts.
struct CheckedPushes {
    users: AllUsers,
    views: Views,
    caller: AccountCaller,
    accounts: Vec<AccountId>,
    random: StdRng,
    _dir: TempDir,
}

/// Verdicts on a push: by difference, and the errors that a check of everything finds.
struct Verdicts {
    refused: Option<String>,
    lines: Vec<String>,
    errors: Vec<String>,
}

impl CheckedPushes {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
        let clock = Arc::new(ManualClock::new(DateTime::UNIX_EPOCH));
        let store = Store::open(&url, clock, Arc::new(CountingIds::default()));
        let users = AllUsers::new(store.await.unwrap(), "localhost");
        let settings = GitSettings::new(dir.path(), "/usr/local/bin:/usr/bin:/bin");
        let caller = AccountCaller::Administrator("ops".to_owned());
        let actor = caller.actor("localhost", Origin::Git, None);
        let mut accounts = Vec::new();
        for name in ["kim", "lee", "max"] {
            let new = NewAccount {
                username: Some(ExternalIdKey::username(name).unwrap()),
                email: Some(format!("{name}@example.com").parse().unwrap()),
                ..NewAccount::default()
            };
            accounts.push(users.create(&actor, &new).await.unwrap());
        }
        Self {
            views: Views::new(&settings, &Arc::default()),
            users,
            caller,
            accounts,
            random: StdRng::seed_from_u64(SEED),
            _dir: dir,
        }
    }

    /// Returns all objects and refs of the server.
    async fn state(&self) -> (Vec<GitObject>, BTreeMap<String, ObjectId>) {
        let begin = (0, ObjectId::null(gix_hash::Kind::Sha1));
        let objects = self.users.store().account_objects_after(begin, 100_000);
        let objects = objects.await.unwrap().into_iter();
        let (refs, _) = self.users.store().account_refs().await.unwrap();
        let objects = objects.map(|(_, object)| object);
        (objects.collect(), refs.into_iter().collect())
    }

    /// Pushes a commit with these files, which the server stores if it accepts them.
    async fn push(&self, name: AllUsersRef, files: &Files) -> Verdicts {
        let (known, refs) = self.state().await;
        let old = refs[&name.to_string()];
        let mut objects = Vec::new();
        let root = add_files(&mut objects, files);
        let person = CommitPerson::new("ops", "ops@localhost");
        let text = CommitText {
            author: person.clone(),
            committer: person,
            at: DateTime::UNIX_EPOCH,
            message: "Edit".to_owned(),
        };
        let commit = GitObject::commit(root, Some(old), &text);
        let new = commit.id;
        objects.push(commit);

        let all = known.iter().chain(&objects);
        let all: HashMap<ObjectId, (Kind, Vec<u8>)> = all
            .map(|object| (object.id, (object.kind, object.content.clone())))
            .collect();
        let mut moved = refs;
        moved.insert(name.to_string(), new);
        let checked = CheckedCopy::of(&AccountsCopy::of(&LocalCopy::of_objects(all, moved)));

        let mut there: HashSet<ObjectId> = known.iter().map(|object| object.id).collect();
        objects.retain(|object| there.insert(object.id));
        let view = self.views.of(&self.users, &self.caller).await.unwrap();
        let quarantine = self.views.quarantine();
        let pack = view.repo.receive(&quarantine, packed(&objects), 1 << 20);
        let pack = Arc::new(pack.await.unwrap().unwrap());
        let request = PushRequest {
            commands: vec![PushCommand {
                name: name.to_string(),
                old: Some(old),
                new: Some(new),
            }],
            is_atomic: false,
            has_side_band: true,
            wants_report: true,
            pack: &[],
        };
        let from = ("localhost", None);
        let pushed = push(
            &self.users,
            &self.caller,
            &view,
            &request,
            Some(&pack),
            from,
        );
        let pushed = pushed.await.unwrap();
        // Nothing was imported, so there are no parts without effect that may stay.
        let unusable = checked.of_severity(Severity::Unusable);
        let errors = checked.errors().chain(unusable);
        Verdicts {
            refused: pushed.outcomes[0].refused.clone(),
            lines: pushed.lines,
            errors: errors.map(ToString::to_string).collect(),
        }
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.random.random_range(0..many) == 0
    }

    fn one_of<T: Clone>(&mut self, these: &[T]) -> T {
        these[self.random.random_range(0..these.len())].clone()
    }

    /// Returns an external ID with this key, mostly a valid one.
    fn note(&mut self, key: &str) -> Vec<u8> {
        let account = if self.one_in(12) {
            1_000_009
        } else {
            let accounts = self.accounts.clone();
            self.one_of(&accounts).get()
        };
        let mut text = format!("[externalId \"{key}\"]\n\taccountId = {account}\n");
        if self.one_in(2) {
            text.extend(["\temail = ", self.one_of(&EMAILS), "\n"]);
        }
        if self.one_in(3) {
            text.extend(["\tpassword = ", self.one_of(&PASSWORDS), "\n"]);
        }
        text.into_bytes()
    }

    /// Replaces the note with this name by one at any of its places.
    fn put(&mut self, notes: &mut Files, name: &str, note: Vec<u8>) {
        let places = places(name);
        notes.retain(|path, _| !places.contains(path));
        notes.insert(self.one_of(&places), note);
    }

    /// Changes a note, or adds something that may be none.
    fn change(&mut self, notes: &mut Files) {
        let key = self.one_of(&KEYS);
        let name = name_of(key);
        let paths: Vec<String> = notes.keys().cloned().collect();
        let kind = self.random.random_range(0..20);
        match kind {
            10..14 | 17..20 if paths.is_empty() => {}
            10..14 => drop(notes.remove(&self.one_of(&paths))),
            14 => self.put(notes, &name, b"[externalId\n".to_vec()),
            15 => {
                let other = self.one_of(&KEYS);
                let note = self.note(other);
                self.put(notes, &name, note);
            }
            16 => drop(notes.insert("README".to_owned(), b"x".to_vec())),
            // At another place, or at two of them.
            17..20 => {
                let path = self.one_of(&paths);
                let note = notes[&path].clone();
                let places = places(&path.replace('/', ""));
                let other = places.into_iter().find(|place| *place != path);
                if kind > 17 {
                    notes.remove(&path);
                }
                notes.extend(other.map(|other| (other, note)));
            }
            _ => {
                let note = self.note(key);
                self.put(notes, &name, note);
            }
        }
    }

    /// Returns another `account.config`, mostly a valid one.
    fn properties(&mut self) -> Option<Vec<u8>> {
        match self.random.random_range(0..6) {
            0 => None,
            1 => Some(b"[account\n".to_vec()),
            _ => {
                let email = self.one_of(&EMAILS);
                let text = format!("[account]\n\tpreferredEmail = {email}\n");
                Some(text.into_bytes())
            }
        }
    }
}

fn name_of(key: &str) -> String {
    let key: ExternalIdKey = key.parse().unwrap();
    key.note_name().to_string()
}

/// Returns the paths at which a note can be.
fn places(name: &str) -> [String; 2] {
    let (folder, rest) = name.split_at(2.min(name.len()));
    [name.to_owned(), format!("{folder}/{rest}")]
}

/// Adds the objects of a directory. Returns its id.
fn add_files(objects: &mut Vec<GitObject>, files: &Files) -> ObjectId {
    let entry = |kind: EntryKind, name: &str, oid| Entry {
        mode: kind.into(),
        filename: name.into(),
        oid,
    };
    let mut folders: BTreeMap<&str, Files> = BTreeMap::new();
    let mut entries = Vec::new();
    for (path, content) in files {
        if let Some((folder, rest)) = path.split_once('/') {
            let below = folders.entry(folder).or_default();
            below.insert(rest.to_owned(), content.clone());
        } else {
            let blob = GitObject::new(Kind::Blob, content.clone());
            entries.push(entry(EntryKind::Blob, path, blob.id));
            objects.push(blob);
        }
    }
    for (folder, files) in &folders {
        let id = add_files(objects, files);
        entries.push(entry(EntryKind::Tree, folder, id));
    }
    entries.sort();
    let tree = GitObject::tree(&Tree { entries });
    let id = tree.id;
    objects.push(tree);
    id
}

/// Returns a pack of these objects.
fn packed(objects: &[GitObject]) -> Vec<u8> {
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    let many = u32::try_from(objects.len()).unwrap();
    pack.extend_from_slice(&many.to_be_bytes());
    for object in objects {
        let kind: u8 = match object.kind {
            Kind::Commit => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
            Kind::Tag => 4,
        };
        let mut size = object.content.len();
        let mut byte = (kind << 4) | u8::try_from(size & 15).unwrap();
        size >>= 4;
        while size > 0 {
            pack.push(byte | 0x80);
            byte = u8::try_from(size & 0x7f).unwrap();
            size >>= 7;
        }
        pack.push(byte);
        let mut zlib = ZlibEncoder::new(pack, Compression::fast());
        zlib.write_all(&object.content).unwrap();
        pack = zlib.finish().unwrap();
    }
    let sum = Sha1::digest(&pack);
    pack.extend_from_slice(sum.as_slice());
    pack
}

#[tokio::test]
async fn a_push_that_is_checked_by_difference_is_checked_as_in_full() {
    let mut pushes = CheckedPushes::new().await;
    let (objects, refs) = pushes.state().await;
    let objects = objects.into_iter();
    let objects = objects.map(|object| (object.id, (object.kind, object.content)));
    let copy = AccountsCopy::of(&LocalCopy::of_objects(objects.collect(), refs));
    let notes = copy.notes.unwrap().into_iter();
    let mut notes: Files = notes.map(|(name, note)| (name.to_string(), note)).collect();
    let branches = copy.users.into_iter();
    let mut branches: BTreeMap<AccountId, Files> = branches
        .map(|(account, branch)| (account, branch.files))
        .collect();

    let (mut accepted, mut refused) = (0, 0);
    for number in 0..PUSHES {
        let (name, files) = if pushes.one_in(4) {
            let accounts = pushes.accounts.clone();
            let account = pushes.one_of(&accounts);
            let mut files = branches[&account].clone();
            files.remove(AccountConfig::FILE);
            let properties = pushes.properties();
            files.extend(properties.map(|text| (AccountConfig::FILE.to_owned(), text)));
            (AllUsersRef::User(account), files)
        } else {
            let mut files = notes.clone();
            for _ in 0..pushes.random.random_range(1..3) {
                pushes.change(&mut files);
            }
            (AllUsersRef::ExternalIds, files)
        };
        let Verdicts {
            refused: reason,
            lines,
            errors,
        } = Box::pin(pushes.push(name, &files)).await;
        assert_eq!(
            reason.is_none(),
            errors.is_empty(),
            "seed {SEED}, push {number} to {name}: {reason:?} {lines:#?}, in full {errors:#?}"
        );
        if reason.is_some() {
            refused += 1;
            continue;
        }
        accepted += 1;
        if let AllUsersRef::User(account) = name {
            branches.insert(account, files);
        } else {
            notes = files;
        }
    }
    assert!(accepted > LEAST && refused > LEAST, "{accepted}, {refused}");
    let checked = pushes.users.check().await.unwrap();
    assert_eq!((checked.looked_at, checked.repaired), (3, 0));
}
