//! Tiles: the stored hashes cut into files that never change once they are full.
//!
//! A tile of height 8 at level `L` has up to 256 consecutive hashes of the level `8 × L` of the tree. Hashes of the levels
//! in between are computed from them. A tile that is not full yet is a file of its own, named by its width.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::str::FromStr;

use super::hash::{LogHash, node_hash, split_stored_hash_index, stored_hash_index};
use super::tree::HashQuery;
use super::{MAX_SIZE, TlogError, check_size};

/// Height of the tiles that the log serves. Go's checksum database uses the same.
pub const TILE_HEIGHT: u8 = 8;

/// Maximum height of a tile in a path.
const MAX_HEIGHT: u8 = 30;

/// Maximum level of hash tiles.
const MAX_LEVEL: u8 = 63;

/// Each part of a path has three digits of the number, so that no folder grows large.
const PATH_BASE: u64 = 1000;

/// Content of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileLevel {
    /// The texts of records.
    Data,
    /// Hashes of this level, counted in heights of tiles.
    Hashes(u8),
}

/// Coordinates of a tile. The text form is its path, such as `tile/8/0/x001/234.p/5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    height: u8,
    level: TileLevel,
    number: u64,
    width: u32,
}

impl Tile {
    /// Creates a tile, with heights up to 30, levels up to 63, and at least one and at most 2^height entries.
    pub fn new(height: u8, level: TileLevel, number: u64, width: u32) -> Result<Self, TlogError> {
        let is_level = match level {
            TileLevel::Data => true,
            TileLevel::Hashes(level) => level <= MAX_LEVEL,
        };
        let is_height = (1..=MAX_HEIGHT).contains(&height);
        if !is_height || !is_level || number > MAX_SIZE || !(1..=1 << height).contains(&width) {
            return Err(TlogError::BadTile);
        }
        Ok(Self {
            height,
            level,
            number,
            width,
        })
    }

    /// Returns the narrowest tile that has the stored hash at this place. Clients need it, and so do the tests that act
    /// as clients; the server answers for the tiles that they name.
    ///
    /// # Panics
    ///
    /// If the height is not between 1 and 30.
    pub fn for_index(height: u8, index: u64) -> Self {
        assert!((1..=MAX_HEIGHT).contains(&height), "no tile is that high");
        tile_for_index(height, index).0
    }

    /// Returns the height: a full tile has 2^height entries.
    pub fn height(&self) -> u8 {
        self.height
    }

    /// Returns the level, or that the tile has texts of records.
    pub fn level(&self) -> TileLevel {
        self.level
    }

    /// Returns the number of the tile in its level, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of entries.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns true if the tile has all entries that it can have, so that it never changes.
    pub fn is_full(&self) -> bool {
        self.width == 1 << self.height
    }

    /// Returns the entries of the tile, counted in its level of the tree, if a tree of this size has them. For a data
    /// tile these are the numbers of records.
    pub fn entries(&self, size: u64) -> Result<Range<u64>, TlogError> {
        check_size(size)?;
        let level = match self.level {
            TileLevel::Data => 0,
            TileLevel::Hashes(level) => u32::from(level) * u32::from(self.height),
        };
        let in_level = size.checked_shr(level).unwrap_or(0);
        let start = u64::try_from(u128::from(self.number) << self.height);
        let start = start.ok().filter(|start| *start < in_level);
        match start.map(|start| start..start + u64::from(self.width)) {
            Some(entries) if entries.end <= in_level => Ok(entries),
            Some(_) | None => Err(TlogError::NotInTile(self.to_string())),
        }
    }

    /// Returns the content of a hash tile of a tree of this size.
    ///
    /// Tiles higher than [`TILE_HEIGHT`] are refused, because they can be any part of the log.
    pub fn read(&self, size: u64) -> Result<HashQuery<Vec<u8>>, TlogError> {
        let TileLevel::Hashes(level) = self.level else {
            return Err(TlogError::NotInTile(self.to_string()));
        };
        if self.height > TILE_HEIGHT {
            return Err(TlogError::BadTile);
        }
        let entries = self.entries(size)?;
        let level = level * self.height;
        let indexes = entries.map(|n| stored_hash_index(level, n)).collect();
        Ok(HashQuery::new(indexes, |hashes| {
            hashes.iter().flat_map(LogHash::as_bytes).copied().collect()
        }))
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile/{}/", self.height)?;
        match self.level {
            TileLevel::Data => f.write_str("data/")?,
            TileLevel::Hashes(level) => write!(f, "{level}/")?,
        }
        let mut parts = vec![self.number % PATH_BASE];
        let mut rest = self.number / PATH_BASE;
        while rest > 0 {
            parts.push(rest % PATH_BASE);
            rest /= PATH_BASE;
        }
        for part in parts[1..].iter().rev() {
            write!(f, "x{part:03}/")?;
        }
        write!(f, "{:03}", parts[0])?;
        if !self.is_full() {
            write!(f, ".p/{}", self.width)?;
        }
        Ok(())
    }
}

impl FromStr for Tile {
    type Err = TlogError;

    /// Parses a path. Each tile has exactly one.
    fn from_str(path: &str) -> Result<Self, TlogError> {
        let bad = TlogError::BadTile;
        let rest = path.strip_prefix("tile/").ok_or(bad.clone())?;
        let (height, rest) = rest.split_once('/').ok_or(bad.clone())?;
        let (level, rest) = rest.split_once('/').ok_or(bad.clone())?;
        let height: u8 = height.parse().map_err(|_| bad.clone())?;
        let level = match level {
            "data" => TileLevel::Data,
            level => TileLevel::Hashes(level.parse().map_err(|_| bad.clone())?),
        };
        let (digits, width) = match rest.split_once(".p/") {
            Some((digits, width)) => (digits, width.parse().map_err(|_| bad.clone())?),
            None => (rest, 1_u32.checked_shl(height.into()).ok_or(bad.clone())?),
        };
        let mut number = 0_u64;
        for part in digits.split('/') {
            let part: u64 = part
                .strip_prefix('x')
                .unwrap_or(part)
                .parse()
                .map_err(|_| bad.clone())?;
            let next = number.checked_mul(PATH_BASE).map(|n| n.checked_add(part));
            number = next.flatten().ok_or(bad.clone())?;
        }
        let tile = Self::new(height, level, number, width)?;
        // Signs, zeros, an `x` at the wrong place and the width of a full tile would be further names of the same tile.
        if is_text_of(&tile, path) {
            Ok(tile)
        } else {
            Err(bad)
        }
    }
}

/// Compares without a copy, as paths of requests can be long.
fn is_text_of(tile: &Tile, path: &str) -> bool {
    let mut text = String::new();
    write!(text, "{tile}").is_ok() && text == path
}

/// Returns the hash at this place among the stored hashes from the content of a tile, which can be wider than
/// [`Tile::for_index`] says. Clients need it, as they do that function.
pub fn hash_from_tile(tile: &Tile, data: &[u8], index: u64) -> Result<LogHash, TlogError> {
    let error = || TlogError::NotInTile(tile.to_string());
    let (narrowest, entries) = tile_for_index(tile.height, index);
    let is_wide = tile.width >= narrowest.width;
    let is_tile = tile.level == narrowest.level && tile.number == narrowest.number;
    if !is_tile || !is_wide {
        return Err(error());
    }
    let (hashes, rest) = data.as_chunks::<{ LogHash::LEN }>();
    let is_content = rest.is_empty() && hashes.len() == tile.width as usize;
    let hashes = hashes
        .get(entries)
        .filter(|_| is_content)
        .ok_or_else(error)?;
    let mut level: Vec<LogHash> = hashes.iter().copied().map(LogHash::from_bytes).collect();
    while level.len() > 1 {
        let pairs = level.as_chunks::<2>().0.iter();
        level = pairs.map(|[left, right]| node_hash(left, right)).collect();
    }
    Ok(level[0])
}

/// The narrowest tile with a stored hash, and the entries whose subtree has that hash.
fn tile_for_index(height: u8, index: u64) -> (Tile, Range<usize>) {
    let (level, n) = split_stored_hash_index(index);
    let level_in_tile = level % height;
    let number = n >> (height - level_in_tile);
    let n = n - (number << (height - level_in_tile));
    let start = u32::try_from(n << level_in_tile).expect("a tile has at most 2^30 entries");
    let end = start + (1 << level_in_tile);
    let tile = Tile {
        height,
        level: TileLevel::Hashes(level / height),
        number,
        width: end,
    };
    (tile, start as usize..end as usize)
}

/// Returns the hash tiles that a log has to publish when it grows from one size to another, including those that are not
/// full yet. The server makes tiles only when they are requested; this function lets the vectors of Go check all of
/// them.
pub fn new_tiles(height: u8, old: u64, size: u64) -> Result<Vec<Tile>, TlogError> {
    check_size(size)?;
    if old > size {
        return Err(TlogError::NotOlder { old, size });
    }
    let full = 1_u32.checked_shl(height.into()).ok_or(TlogError::BadTile)?;
    let mut tiles = Vec::new();
    for level in 0..=MAX_LEVEL {
        let shift = u32::from(level) * u32::from(height);
        let in_level = |size: u64| size.checked_shr(shift).unwrap_or(0);
        let (old, size) = (in_level(old), in_level(size));
        if size == 0 {
            break;
        }
        if old == size {
            continue;
        }
        let level = TileLevel::Hashes(level);
        for number in old >> height..size >> height {
            tiles.push(Tile::new(height, level, number, full)?);
        }
        let number = size >> height;
        let width = u32::try_from(size - (number << height)).map_err(|_| TlogError::BadTile)?;
        if width > 0 {
            tiles.push(Tile::new(height, level, number, width)?);
        }
    }
    Ok(tiles)
}
