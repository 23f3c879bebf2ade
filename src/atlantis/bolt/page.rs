//! The pages of a bbolt file, as bytes: headers, meta pages, and the elements of leaf and branch pages. Every number
//! comes from a file that may be damaged or made up, so every access is checked.
//!
//! Format: the documentation and constants of go.etcd.io/bbolt, version 2 of the file. Numbers are little-endian, as
//! on every machine Atlantis is released for.

use super::Damage;

/// Bytes of the header of a page: id, flags, count of elements, count of overflow pages.
pub(super) const HEADER: usize = 16;
const META_FIELDS: usize = 56;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const BUCKET: u32 = 0x01;
const ELEMENT: usize = 16;
/// Larger keys cannot be written.
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

/// What the first bytes of a page say.
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

/// What a meta page says of the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub page_size: u32,
    /// Page of the bucket that holds the buckets.
    pub root: u64,
    /// Pages in use are below this one.
    pub end: u64,
    pub transaction: u64,
}

/// What the place of a meta page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaPage {
    Good(Meta),
    /// Written by a release whose format we do not know.
    OtherVersion(u32),
    /// Half written, or something else altogether.
    Bad,
}

impl MetaPage {
    /// `page` begins with the header of the page.
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

/// FNV-1a of 64 bits, with which bbolt seals its meta pages.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What a page of a tree holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node<'a> {
    /// Pages of the children.
    Branch(Vec<u64>),
    Leaf(Vec<Item<'a>>),
}

/// A key of a leaf and what is under it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub is_bucket: bool,
}

impl<'a> Node<'a> {
    /// `page` has the whole page with its overflow.
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

/// Where the entries of a bucket are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BucketRoot<'a> {
    Page(u64),
    /// A small bucket is a leaf page inside of the value.
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
