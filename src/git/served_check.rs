//! Looks for damage in a repository for clients, without git and without a change.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind};

use super::GitSettings;
use super::local_copy::{LocalCopyError, loose_refs, packed_refs};
use super::object_db::{ObjectDb, ObjectError, entries_of};
use super::served::{CONFIG, ServedRepo};

/// Maximum number of missing objects that one look names. One is enough to know that the repository is damaged.
const MAX_MISSING: usize = 1_000;

/// Damage of a repository for clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServedDamage {
    /// The configuration is not the one that Lockkeeper writes.
    #[error("its configuration is another one")]
    Config,
    /// The refs cannot be read.
    #[error("its refs cannot be read: {0}")]
    Refs(String),
    /// A ref has a file of its own. Lockkeeper writes none, and no request would correct it.
    #[error("it has a file for {0}, which Lockkeeper never writes")]
    RefFile(String),
    /// An object cannot be read.
    #[error("the object {0} cannot be read: {1}")]
    Object(ObjectId, String),
}

/// An object that is missing, and one that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingObject {
    /// Object that is missing.
    pub id: ObjectId,
    /// Object that leads to it.
    pub of: ObjectId,
}

impl ServedRepo {
    /// Names the repository in `dir` for a look. Nothing is created if it is not there.
    pub fn at(settings: &GitSettings, dir: PathBuf) -> Self {
        Self {
            settings: settings.clone(),
            dir,
        }
    }

    /// Returns all refs as git reads them.
    pub fn present_refs(&self) -> Result<BTreeMap<String, ObjectId>, ServedDamage> {
        match fs::read_to_string(self.dir.join("config")) {
            Ok(config) if config == CONFIG => {}
            _ => return Err(ServedDamage::Config),
        }
        let unreadable = |error: LocalCopyError| ServedDamage::Refs(error.to_string());
        let loose = loose_refs(&self.dir).map_err(unreadable)?;
        match loose.into_keys().next() {
            Some(name) => Err(ServedDamage::RefFile(name)),
            None => packed_refs(&self.dir).map_err(unreadable),
        }
    }

    /// Reads all objects whose ids begin with a byte, and looks for those that they lead to. Returns missing ones. `known`
    /// are objects that were found before; it gets the others.
    pub fn check_objects(
        &self,
        first: u8,
        known: &mut HashSet<ObjectId>,
    ) -> Result<Vec<MissingObject>, ServedDamage> {
        let null = ObjectId::null(gix_hash::Kind::Sha1);
        let ids = self.ids(first);
        let ids = ids.map_err(|error| ServedDamage::Object(null, error.to_string()))?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let objects = ObjectDb::open(&self.dir);
        let objects = objects.map_err(|error| ServedDamage::Object(ids[0], error.to_string()))?;
        known.extend(&ids);
        let mut missing = Vec::new();
        for of in ids {
            let links = links(&objects, of);
            let links = links.map_err(|error| ServedDamage::Object(of, error.to_string()))?;
            for id in links {
                if known.contains(&id) {
                    continue;
                }
                if self.has(id) {
                    known.insert(id);
                } else if missing.len() < MAX_MISSING {
                    missing.push(MissingObject { id, of });
                }
            }
        }
        Ok(missing)
    }

    /// Returns the ids of the objects in a folder. Files that a crash has left there have other names.
    fn ids(&self, first: u8) -> io::Result<Vec<ObjectId>> {
        let folder = format!("{first:02x}");
        let entries = match fs::read_dir(self.dir.join("objects").join(&folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut ids = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let hex = name.to_str().map(|rest| format!("{folder}{rest}"));
            ids.extend(hex.and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok()));
        }
        Ok(ids)
    }
}

/// Returns the objects that an object leads to.
fn links(objects: &ObjectDb, id: ObjectId) -> Result<Vec<ObjectId>, ObjectError> {
    let unreadable = |error: &dyn std::fmt::Display| ObjectError::Unreadable(error.to_string());
    let (kind, content) = objects.read_any(id)?;
    match kind {
        Kind::Blob | Kind::Tag => Ok(Vec::new()),
        Kind::Tree => {
            let entries = entries_of(&content)?.into_iter();
            // A submodule is a commit of another repository.
            let inside = entries.filter(|(_, entry)| !entry.is_submodule());
            Ok(inside.map(|(_, entry)| entry.id).collect())
        }
        Kind::Commit => {
            let iter = || CommitRefIter::from_bytes(&content, gix_hash::Kind::Sha1);
            let tree = iter().tree_id().map_err(|error| unreadable(&error))?;
            Ok(std::iter::once(tree).chain(iter().parent_ids()).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_found_and_what_a_crash_left_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let settings = GitSettings::new(dir.path(), "");
        let repo = ServedRepo::open(&settings, dir.path().join("x.git")).unwrap();
        let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let commit =
            format!("tree {tree}\nauthor x <x> 0 +0000\ncommitter x <x> 0 +0000\n\nBegin\n");
        repo.add([
            (Kind::Commit, commit.as_bytes()),
            (Kind::Blob, b"text".as_slice()),
        ])
        .unwrap();
        let look = || {
            let mut known = HashSet::new();
            let mut missing = Vec::new();
            for first in 0..=u8::MAX {
                missing.extend(repo.check_objects(first, &mut known)?);
            }
            Ok::<_, ServedDamage>((known.len(), missing))
        };
        let (found, missing) = look().unwrap();
        assert_eq!(found, 2);
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].id.to_string(), tree);
        repo.add([(Kind::Tree, b"".as_slice())]).unwrap();
        assert_eq!(look().unwrap(), (3, Vec::new()));

        let folder = repo.dir().join("objects").join(&tree[..2]);
        fs::write(folder.join("tmp_obj_x1"), "half").unwrap();
        assert_eq!(look().unwrap(), (3, Vec::new()));
        let file = folder.join(&tree[2..]);
        fs::remove_file(&file).unwrap();
        fs::write(&file, "").unwrap();
        let damage = look().unwrap_err();
        assert!(
            matches!(damage, ServedDamage::Object(id, _) if id == missing[0].id),
            "{damage}"
        );
        // The content of another object.
        let blob = missing[0].of.to_string();
        let other = repo.dir().join("objects").join(&blob[..2]).join(&blob[2..]);
        fs::remove_file(&file).unwrap();
        fs::copy(other, &file).unwrap();
        let damage = look().unwrap_err().to_string();
        assert!(damage.contains("does not match its id"), "{damage}");
    }

    #[test]
    fn refs_are_those_that_lockkeeper_has_written() {
        let dir = tempfile::tempdir().unwrap();
        let settings = GitSettings::new(dir.path(), "");
        let repo = ServedRepo::open(&settings, dir.path().join("x.git")).unwrap();
        assert_eq!(repo.present_refs(), Ok(BTreeMap::new()));
        let [one, two] = [1, 2].map(|byte| ObjectId::from_bytes_or_panic(&[byte; 20]));
        let name = "refs/users/00/1000000".to_owned();
        repo.set_refs(&[(name.clone(), one)], "refs/meta/config")
            .unwrap();
        assert_eq!(repo.present_refs(), Ok([(name.clone(), one)].into()));
        fs::create_dir_all(repo.dir().join("refs/users/00")).unwrap();
        fs::write(repo.dir().join(&name), format!("{two}\n")).unwrap();
        let damage = repo.present_refs().unwrap_err();
        assert_eq!(damage, ServedDamage::RefFile(name.clone()));
        fs::write(repo.dir().join(&name), "").unwrap();
        let damage = repo.present_refs().unwrap_err();
        assert!(matches!(damage, ServedDamage::Refs(_)), "{damage}");
        fs::write(repo.dir().join("config"), "").unwrap();
        assert_eq!(repo.present_refs(), Err(ServedDamage::Config));
    }
}
