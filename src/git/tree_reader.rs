//! Reads many files of a commit without a checkout.

use gix_object::Kind;

use super::object_db::{Dirs, ObjectDb, ObjectError};
use super::{GitError, Mirror};
use crate::model::{CommitSha, RepoPath};

/// Reader for the files of one commit. It reads the disk, so it belongs on a thread for blocking work.
pub struct TreeReader {
    mirror: Mirror,
    commit: CommitSha,
    opened: Option<Opened>,
}

/// Objects of the mirror, and the directories that were read.
struct Opened {
    objects: ObjectDb,
    root: gix_hash::ObjectId,
    dirs: Dirs,
}

impl Mirror {
    /// Returns a reader for the files of a fetched commit.
    pub fn reader(&self, commit: &CommitSha) -> TreeReader {
        TreeReader {
            mirror: self.clone(),
            commit: commit.clone(),
            opened: None,
        }
    }
}

impl TreeReader {
    /// Returns the content of a file, or the text of a symbolic link. Returns `None` if the file does not exist, is
    /// larger than `most`, or was left at the forge by a partial mirror.
    pub fn read(&mut self, path: &RepoPath, most: u64) -> Result<Option<Vec<u8>>, GitError> {
        let doing = format!("read `{path}` at {}", self.commit.short());
        if self.opened.is_none() {
            self.mirror.check_integrity(&doing)?;
        }
        self.find(path, most)
            .map_err(|error| self.mirror.object_error(&doing, &error))
    }

    fn find(&mut self, path: &RepoPath, most: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let opened = match &mut self.opened {
            Some(opened) => opened,
            none => none.insert(Opened::of(&self.mirror, &self.commit)?),
        };
        let entry = opened.dirs.entry_at(&opened.objects, opened.root, path)?;
        let Some(entry) = entry.filter(|entry| entry.is_file() || entry.is_link()) else {
            return Ok(None);
        };
        match opened.objects.header(entry.id)? {
            Some((Kind::Blob, size)) if size <= most => {
                opened.objects.read(entry.id, Kind::Blob).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Opened {
    fn of(mirror: &Mirror, commit: &CommitSha) -> Result<Self, ObjectError> {
        let objects = ObjectDb::open(mirror.dir())?;
        Ok(Self {
            root: objects.tree_of(commit)?,
            objects,
            dirs: Dirs::default(),
        })
    }
}
