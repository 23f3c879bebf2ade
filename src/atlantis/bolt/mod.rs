//! Reads bbolt files, the database format of Atlantis (reference 15.2).
//!
//! The reader is part of Lockkeeper because it must not trust the file. The existing crate for the format panics on a
//! truncated file, waits forever for a locked one, and refuses files without a stored list of free pages. The needed
//! part of the format is small: two meta pages, and trees of pages. Nothing is written or mapped into memory, and:
//!
//! - *a loop in the tree* ends, because no page is read twice;
//! - *wrong numbers* are checked against the page and the file before any allocation;
//! - *a file in use* is detected: Atlantis holds an exclusive `flock` while it runs, and the reader requests a shared
//!   one without waiting.

mod page;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

use page::{BoltNode, BucketRoot, HEADER, Header, Meta, MetaPage};

/// Maximum number of branch pages above a leaf. A deeper tree would have more entries than there are bytes on earth.
const MAX_DEPTH: usize = 32;
/// Maximum size of all keys and values in bytes. Atlantis stores some KB per pull request.
const MAX_CONTENT: usize = 256 << 20;
/// Possible page sizes, to find the second meta page if the first one is damaged.
const PAGE_SIZES: [u64; 8] = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// Reason that a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    /// The operating system reported an error.
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The path is a directory, a pipe or a device.
    #[error("the path is not a regular file")]
    NotAFile,
    /// Another process has locked the file.
    #[error(
        "another process has locked the file, so Atlantis probably still runs. Stop Atlantis first. Or try the import \
         with a copy of the file, and import again when Atlantis has stopped"
    )]
    InUse,
    /// Neither meta page is valid.
    #[error("the file is not a bbolt database, or both of its meta pages are damaged")]
    NotBolt,
    /// The file has another version of the format.
    #[error("the file has version {0} of the bbolt format; only version 2 is supported")]
    Version(u32),
    /// The file is truncated.
    #[error(
        "the file is truncated: it has {has} bytes of at least {needs}. Stop Atlantis and copy the file again"
    )]
    Truncated {
        /// Length of the file.
        has: u64,
        /// Length that its newest meta page requires.
        needs: u64,
    },
    /// A page of the file is damaged.
    #[error(
        "page {page} is damaged: {damage}. Nothing was imported. Restore the file from a backup, or check if Atlantis can open it"
    )]
    Damaged {
        /// Number of the page.
        page: u64,
        /// Kind of the damage.
        damage: Damage,
    },
    /// The contents exceed the size limit.
    #[error("the entries of the file are larger than {} MiB together, which is more than Atlantis ever stores", MAX_CONTENT >> 20)]
    TooLarge,
}

/// Damage of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The page ends before its required content.
    #[error("it is too short")]
    Short,
    /// The header has the number of another page.
    #[error("its header has the number {0}")]
    Other(u64),
    /// The page is neither a branch nor a leaf.
    #[error("its kind {0:#x} is not allowed in a tree")]
    Kind(u16),
    /// An element lies outside of the page.
    #[error("its element {0} is outside of the page")]
    Element(usize),
    /// The page number is beyond the end of the file.
    #[error("it is beyond the end of the file")]
    Outside,
    /// The tree leads to the page twice.
    #[error("the tree leads to it twice")]
    Twice,
    /// The tree has too many levels.
    #[error("the tree is deeper than {MAX_DEPTH} levels")]
    Deep,
}

/// Entries of a bucket, in the order of their keys.
pub type BucketEntries = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads the top-level buckets with these names. Missing buckets are left out. The file is opened for reading only.
pub fn read_file(
    path: &Path,
    wanted: &[&str],
) -> Result<BTreeMap<String, BucketEntries>, BoltError> {
    if !path.metadata()?.is_file() {
        return Err(BoltError::NotAFile);
    }
    let file = File::options()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    match file.try_lock_shared() {
        Ok(()) => read(file, wanted),
        Err(std::fs::TryLockError::WouldBlock) => Err(BoltError::InUse),
        Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Reads buckets like [`read_file`], from any source that supports seeking.
pub fn read(
    source: impl Read + Seek,
    wanted: &[&str],
) -> Result<BTreeMap<String, BucketEntries>, BoltError> {
    let mut reader = BoltReader::new(source)?;
    let root = reader.meta.root;
    let (mut buckets, mut content) = (Vec::new(), 0);
    reader.walk(root, 0, &mut |item| {
        let name = std::str::from_utf8(item.key)
            .ok()
            .filter(|name| item.is_bucket && wanted.contains(name));
        if let Some(name) = name {
            // A crafted page can contain one name many times, with one value for all of them.
            content += item.value.len();
            if content > MAX_CONTENT {
                return Err(BoltError::TooLarge);
            }
            buckets.push((name.to_owned(), item.value.to_vec()));
        }
        Ok(())
    })?;
    let entries = |(name, value): (String, Vec<u8>)| Ok((name, reader.bucket(root, &value)?));
    buckets.into_iter().map(entries).collect()
}

struct BoltReader<R> {
    source: R,
    meta: Meta,
    seen: HashSet<u64>,
    /// Number of bytes of keys and values so far.
    content: usize,
}

impl<R: Read + Seek> BoltReader<R> {
    fn new(mut source: R) -> Result<Self, BoltError> {
        let len = source.seek(SeekFrom::End(0))?;
        let meta = newest_meta(&mut source)?;
        let needs = meta.end.saturating_mul(u64::from(meta.page_size));
        if len < needs {
            return Err(BoltError::Truncated { has: len, needs });
        }
        Ok(Self {
            source,
            meta,
            seen: HashSet::new(),
            content: 0,
        })
    }

    /// Reads the entries of a bucket, whose value was found on page `at`. Nested buckets are left out; Atlantis
    /// creates none.
    fn bucket(&mut self, at: u64, value: &[u8]) -> Result<BucketEntries, BoltError> {
        let mut entries = BucketEntries::new();
        let mut content = self.content;
        let mut keep = |item: &page::Item<'_>| {
            if item.is_bucket {
                return Ok(());
            }
            content += item.key.len() + item.value.len();
            entries.push((item.key.to_vec(), item.value.to_vec()));
            if content > MAX_CONTENT {
                Err(BoltError::TooLarge)
            } else {
                Ok(())
            }
        };
        match BucketRoot::read(value).map_err(|damage| BoltError::Damaged { page: at, damage })? {
            BucketRoot::Page(root) => self.walk(root, 0, &mut keep)?,
            BucketRoot::Inline(page) => match node(at, page)? {
                BoltNode::Leaf(items) => items.iter().try_for_each(&mut keep)?,
                BoltNode::Branch(_) => {
                    return Err(BoltError::Damaged {
                        page: at,
                        damage: Damage::Kind(1),
                    });
                }
            },
        }
        self.content = content;
        Ok(entries)
    }

    /// Calls `take` for every item of the leaves below a page, in order.
    fn walk(
        &mut self,
        id: u64,
        depth: usize,
        take: &mut impl FnMut(&page::Item<'_>) -> Result<(), BoltError>,
    ) -> Result<(), BoltError> {
        if depth > MAX_DEPTH {
            return Err(BoltError::Damaged {
                page: id,
                damage: Damage::Deep,
            });
        }
        let page = self.page(id)?;
        match node(id, &page)? {
            BoltNode::Leaf(items) => items.iter().try_for_each(take),
            BoltNode::Branch(children) => children
                .into_iter()
                .try_for_each(|child| self.walk(child, depth + 1, take)),
        }
    }

    /// Reads a page with its overflow pages.
    fn page(&mut self, id: u64) -> Result<Vec<u8>, BoltError> {
        let damaged = |damage| Err(BoltError::Damaged { page: id, damage });
        if id >= self.meta.end {
            return damaged(Damage::Outside);
        }
        if !self.seen.insert(id) {
            return damaged(Damage::Twice);
        }
        let mut start = [0; HEADER];
        self.read_at(id, &mut start)?;
        let header = Header::read(&start).expect("the bytes of a header are a header");
        if header.id != id {
            return damaged(Damage::Other(header.id));
        }
        let pages = u64::from(header.overflow) + 1;
        // Overflow pages belong to this page alone, so that all pages together are no larger than the file.
        if id + pages > self.meta.end {
            return damaged(Damage::Outside);
        }
        if (id + 1..id + pages).any(|overflow| !self.seen.insert(overflow)) {
            return damaged(Damage::Twice);
        }
        let len = pages * u64::from(self.meta.page_size);
        let mut page = vec![
            0;
            usize::try_from(len)
                .ok()
                .filter(|len| *len <= MAX_CONTENT)
                .ok_or(BoltError::TooLarge)?
        ];
        self.read_at(id, &mut page)?;
        Ok(page)
    }

    fn read_at(&mut self, id: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.source
            .seek(SeekFrom::Start(id * u64::from(self.meta.page_size)))?;
        self.source.read_exact(bytes)
    }
}

fn node(id: u64, page: &[u8]) -> Result<BoltNode<'_>, BoltError> {
    BoltNode::read(page).map_err(|damage| BoltError::Damaged { page: id, damage })
}

/// Returns the valid meta page with the later transaction, as bbolt itself does after a crash.
fn newest_meta(source: &mut (impl Read + Seek)) -> Result<Meta, BoltError> {
    let first = meta_at(source, 0)?;
    let second = match first {
        MetaPage::Good(meta) => meta_at(source, u64::from(meta.page_size))?,
        MetaPage::OtherVersion(_) | MetaPage::Bad => second_meta(source)?,
    };
    match (first, second) {
        (MetaPage::Good(a), MetaPage::Good(b))
            if b.page_size == a.page_size && b.transaction > a.transaction =>
        {
            Ok(b)
        }
        (MetaPage::Good(meta), _) | (_, MetaPage::Good(meta)) => Ok(meta),
        (MetaPage::OtherVersion(version), _) | (_, MetaPage::OtherVersion(version)) => {
            Err(BoltError::Version(version))
        }
        (MetaPage::Bad, MetaPage::Bad) => Err(BoltError::NotBolt),
    }
}

/// Searches for the second meta page when the first one is damaged and does not tell the page size.
fn second_meta(source: &mut (impl Read + Seek)) -> io::Result<MetaPage> {
    for size in PAGE_SIZES {
        let found = meta_at(source, size)?;
        if matches!(found, MetaPage::Good(meta) if u64::from(meta.page_size) == size) {
            return Ok(found);
        }
    }
    Ok(MetaPage::Bad)
}

fn meta_at(source: &mut (impl Read + Seek), at: u64) -> io::Result<MetaPage> {
    let mut page = Vec::with_capacity(HEADER + 64);
    source.seek(SeekFrom::Start(at))?;
    source
        .by_ref()
        .take(HEADER as u64 + 64)
        .read_to_end(&mut page)?;
    Ok(MetaPage::read(&page))
}

#[cfg(test)]
mod tests;
