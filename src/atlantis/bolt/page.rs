//! Parses the pages of a bbolt file: headers, meta pages, and the elements of leaf and branch pages. Every number
//! comes from a file that may be damaged or crafted, so every access is checked.
//!
//! The format follows the documentation and constants of go.etcd.io/bbolt, version 2 of the file. Numbers are
//! little-endian, as on every machine that Atlantis is released for.

use super::Damage;

/// Size of a page header in bytes: id, flags, count of elements, count of overflow pages.
pub(super) const HEADER: usize = 16;
const META_FIELDS: usize = 56;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const BUCKET: u32 = 0x01;
const ELEMENT: usize = 16;
/// Maximum size of a key that bbolt can write.
const MAX_KEY: usize = 32768;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        bytes.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(bytes, at)?).ok()
}

/// Header at the start of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub id: u64,
    pub overflow: u32,
    kind: u16,
    count: u16,
}

impl Header {
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            id: u64_at(bytes, 0)?,
            kind: u16_at(bytes, 8)?,
            count: u16_at(bytes, 10)?,
            overflow: u32_at(bytes, 12)?,
        })
    }
}

/// Description of the whole file in a meta page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub page_size: u32,
    /// Page of the root bucket, which contains the other buckets.
    pub root: u64,
    /// End of the used pages: all page numbers are below it.
    pub end: u64,
    pub transaction: u64,
}

/// Result of parsing a meta page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaPage {
    Good(Meta),
    /// The page was written by a release with an unknown format.
    OtherVersion(u32),
    /// The page is half written, or not a meta page at all.
    Bad,
}

impl MetaPage {
    /// Parses a meta page. `page` begins with the header of the page.
    pub fn read(page: &[u8]) -> Self {
        Self::try_read(page).unwrap_or(Self::Bad)
    }

    fn try_read(page: &[u8]) -> Option<Self> {
        let fields = page.get(HEADER..HEADER + META_FIELDS)?;
        if u32_at(fields, 0)? != MAGIC || u64_at(page, HEADER + META_FIELDS)? != checksum(fields) {
            return None;
        }
        let version = u32_at(fields, 4)?;
        if version != VERSION {
            return Some(Self::OtherVersion(version));
        }
        let page_size = u32_at(fields, 8)?;
        let sane = page_size.is_power_of_two() && (512..=1 << 20).contains(&page_size);
        sane.then_some(Self::Good(Meta {
            page_size,
            root: u64_at(fields, 16)?,
            end: u64_at(fields, 40)?,
            transaction: u64_at(fields, 48)?,
        }))
    }
}

/// Computes 64-bit FNV-1a, the checksum of bbolt's meta pages.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Content of a page in a tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BoltNode<'a> {
    /// Page numbers of the children.
    Branch(Vec<u64>),
    Leaf(Vec<Item<'a>>),
}

/// Key of a leaf with its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub is_bucket: bool,
}

impl<'a> BoltNode<'a> {
    /// Parses a page of a tree. `page` is the whole page with its overflow.
    pub fn read(page: &'a [u8]) -> Result<Self, Damage> {
        let header = Header::read(page).ok_or(Damage::Short)?;
        let count = usize::from(header.count);
        match header.kind {
            BRANCH => (0..count)
                .map(|n| child(page, n).ok_or(Damage::Element(n)))
                .collect::<Result<_, _>>()
                .map(Self::Branch),
            LEAF => (0..count)
                .map(|n| item(page, n).ok_or(Damage::Element(n)))
                .collect::<Result<_, _>>()
                .map(Self::Leaf),
            other => Err(Damage::Kind(other)),
        }
    }
}

fn child(page: &[u8], n: usize) -> Option<u64> {
    u64_at(page, HEADER + n * ELEMENT + 8)
}

fn item(page: &[u8], n: usize) -> Option<Item<'_>> {
    let at = HEADER + n * ELEMENT;
    let (from, key, value) = (
        usize_at(page, at + 4)?,
        usize_at(page, at + 8)?,
        usize_at(page, at + 12)?,
    );
    let start = at.checked_add(from)?;
    let middle = start.checked_add(key).filter(|_| key <= MAX_KEY)?;
    Some(Item {
        key: page.get(start..middle)?,
        value: page.get(middle..middle.checked_add(value)?)?,
        is_bucket: u32_at(page, at)? & BUCKET != 0,
    })
}

/// Location of the entries of a bucket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BucketRoot<'a> {
    Page(u64),
    /// Leaf page inside of the value, used for small buckets.
    Inline(&'a [u8]),
}

impl<'a> BucketRoot<'a> {
    pub fn read(value: &'a [u8]) -> Result<Self, Damage> {
        match u64_at(value, 0)
            .filter(|_| value.len() >= 16)
            .ok_or(Damage::Short)?
        {
            0 => Ok(Self::Inline(&value[16..])),
            page => Ok(Self::Page(page)),
        }
    }
}
