//! Strict reading of packages from outside.

use std::fmt::Display;
use std::io::{self, Read, Seek, SeekFrom};

use zip::read::{ArchiveOffset, Config, ZipFileEntry};
use zip::unstable::read::ZipIterable;
use zip::{CompressionMethod, ZipReadOptions};

use super::{GoZipError, GoZipFault, GoZipReason, MAX_FAULTS, MAX_GO_FILE, prefix_of};
use crate::dirhash::{DirHash, DirHasher, HashingReader};
use crate::limits::{ArchiveLimits, ExceededLimit, Meter};
use crate::names::GoPath;
use crate::paths::{Collisions, MAX_PATH, PathFault, check_go_path};
use crate::versions::GoVersion;

/// Summary of a package that follows all rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoZipContents {
    /// Checksum of the files.
    pub hash: DirHash,
    /// Number of files, without folders.
    pub files: usize,
    /// Number of bytes of all files together.
    pub size: u64,
}

/// Number of bytes of a header in front of the name of an entry, in the directory of the archive and in front of its
/// content.
const CENTRAL_HEADER: usize = 46;
const LOCAL_HEADER: usize = 30;

/// Numbers of bytes behind the directory: the end record without a comment, and the same for large archives.
const ENDS: [u64; 2] = [22, 56 + 20 + 22];

/// Bit of the flags of an entry whose checksum and sizes also follow its content, the optional mark in front of them
/// there, and the maximum number of bytes of all.
const HAS_DESCRIPTOR: u16 = 8;
const DESCRIPTOR_MARK: [u8; 4] = *b"PK\x07\x08";
const MAX_DESCRIPTOR: u64 = 24;

/// Bits of the mode of a file that tell its kind, and their value for files and folders.
const KIND_BITS: u32 = 0o170_000;
const KIND_FILE: u32 = 0o100_000;
const KIND_FOLDER: u32 = 0o040_000;

/// Checks the package of a version. Each file is handed to `visit` with its path in the module, for example to read
/// `go.mod`.
///
/// All names and sizes are checked before any content is read. If `visit` fails, the archive counts as malformed, because
/// most such errors come from the decoder. If `zip` itself fails, the error is [`GoZipError::Io`].
pub fn check_go_zip<R: Read + Seek>(
    path: &GoPath,
    version: &GoVersion,
    mut zip: R,
    limits: &ArchiveLimits,
    visit: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<GoZipContents, GoZipError> {
    let packed = zip.seek(SeekFrom::End(0)).map_err(GoZipError::Io)?;
    limits.check(packed, 0)?;
    let meter = Meter::new(*limits, packed);
    let prefix = prefix_of(path, version);
    let checked = check_archive(&prefix, meter.source(zip), packed, limits, visit);
    // The decoder reports everything as an error of the archive. The meter knows which of them come from the file.
    checked.map_err(|error| meter.take_stop().map_or(error, GoZipError::from))
}

fn check_archive<R: Read + Seek>(
    prefix: &str,
    zip: R,
    packed: u64,
    limits: &ArchiveLimits,
    mut visit: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<GoZipContents, GoZipError> {
    // Nothing comes in front of the archive, so that no reader finds another one there.
    let config = Config {
        archive_offset: ArchiveOffset::Known(0),
    };
    let mut archive = ZipIterable::try_new(zip, config)
        .map_err(malformed)?
        .enforce_header_consistency(true);
    if archive.len() > limits.entries {
        return Err(ExceededLimit::Entries(limits.entries).into());
    }

    let mut rules = Rules::new(prefix);
    let entries = archive.files().map_err(malformed)?;
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(malformed)?;
        let place = check_header(&entry, entries.reader_mut())?;
        rules.add(&entry, place);
        limits.check(packed, rules.size)?;
    }
    let (size, files) = (rules.size, rules.files);
    rules.finish(packed, entries.reader_mut())?;

    let mut hasher = DirHasher::new();
    let entries = archive.files().map_err(malformed)?;
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(malformed)?;
        let name = String::from_utf8(entry.name_raw().to_vec())
            .map_err(|_| malformed("the archive changed"))?;
        let path = name.strip_prefix(prefix).unwrap_or_default().to_owned();
        let size = entry.size();
        let content = entry
            .with_reader(entries.reader_mut(), ZipReadOptions::new())
            .map_err(malformed)?;
        // One byte more than declared is enough to know that the size is a lie.
        let mut hashing = HashingReader::new(content.take(size.saturating_add(1)));
        if !path.is_empty() && !path.ends_with('/') {
            visit(&path, &mut hashing).map_err(malformed)?;
        }
        io::copy(&mut hashing, &mut io::sink()).map_err(malformed)?;
        if hashing.size() != size {
            let reason = GoZipReason::Size;
            return Err(GoZipError::Files(vec![GoZipFault { path: name, reason }]));
        }
        // Folders are part of the checksum that Go computes of a zip file.
        hasher.add(&name, hashing.finish())?;
    }
    Ok(GoZipContents {
        hash: hasher.finish(),
        files,
        size,
    })
}

/// Reads the header of an entry in the directory of the archive and returns the places of the entry. Compares the name,
/// because the decoder takes names from additional fields as well, which Go does not know.
fn check_header(
    entry: &ZipFileEntry<'_>,
    reader: &mut (impl Read + Seek),
) -> Result<EntryPlace, GoZipError> {
    let header_start = entry.central_header_start();
    let header: [u8; CENTRAL_HEADER] = read_at(reader, header_start)?;
    let length_at = |place| u16::from_le_bytes([header[place], header[place + 1]]);
    let [name, extra, comment] = [28, 30, 32].map(length_at);
    let mut raw = vec![0; name.into()];
    reader.read_exact(&mut raw).map_err(malformed)?;
    if raw != entry.name_raw() {
        return Err(malformed("an entry has two names"));
    }
    // The header in front of the content has additional fields of its own.
    let start = entry.header_start();
    let local: [u8; LOCAL_HEADER] = read_at(reader, start)?;
    let local_length = |place| u64::from(u16::from_le_bytes([local[place], local[place + 1]]));
    let parts = [
        LOCAL_HEADER as u64,
        local_length(26),
        local_length(28),
        entry.compressed_size(),
    ];
    let lengths = [name, extra, comment].map(u64::from);
    Ok(EntryPlace {
        start,
        end: parts.into_iter().fold(start, u64::saturating_add),
        descriptor: (length_at(8) & HAS_DESCRIPTOR != 0).then(|| Descriptor {
            crc: entry.crc32(),
            packed: entry.compressed_size(),
            size: entry.size(),
        }),
        directory_end: header_start + CENTRAL_HEADER as u64 + lengths.iter().sum::<u64>(),
    })
}

/// Reads a number of bytes at a place of the archive.
fn read_at<const LENGTH: usize>(
    reader: &mut (impl Read + Seek),
    place: u64,
) -> Result<[u8; LENGTH], GoZipError> {
    let mut bytes = [0; LENGTH];
    reader.seek(SeekFrom::Start(place)).map_err(malformed)?;
    reader.read_exact(&mut bytes).map_err(malformed)?;
    Ok(bytes)
}

/// Places of an entry in the archive.
struct EntryPlace {
    start: u64,
    /// End of the content.
    end: u64,
    /// Fields behind the content.
    descriptor: Option<Descriptor>,
    /// End of the header in the directory.
    directory_end: u64,
}

impl EntryPlace {
    /// Checks that the next entry, or the directory, begins where this entry ends.
    fn check_next(&self, next: u64, reader: &mut (impl Read + Seek)) -> Result<(), GoZipError> {
        let Some(length) = next.checked_sub(self.end) else {
            return Err(malformed("entries overlap"));
        };
        let Some(descriptor) = &self.descriptor else {
            return match length {
                0 => Ok(()),
                _ => Err(malformed("data behind an entry")),
            };
        };
        let mut found = Vec::new();
        let place = SeekFrom::Start(self.end);
        reader.seek(place).map_err(malformed)?;
        reader
            .take(length.min(MAX_DESCRIPTOR + 1))
            .read_to_end(&mut found)
            .map_err(malformed)?;
        if descriptor.has_form(&found) {
            Ok(())
        } else {
            Err(malformed(
                "other data behind an entry than its checksum and sizes",
            ))
        }
    }
}

/// Checksum and sizes of an entry, which readers of streams find behind its content. Go compares the checksum.
struct Descriptor {
    crc: u32,
    packed: u64,
    size: u64,
}

impl Descriptor {
    /// Returns true for each of the ways to write the fields: with or without the mark, and with sizes of 4 or 8 bytes.
    fn has_form(&self, bytes: &[u8]) -> bool {
        let crc = self.crc.to_le_bytes();
        let fields = match bytes.strip_prefix(&DESCRIPTOR_MARK) {
            Some(fields) => fields,
            // Go would take the checksum for the mark.
            None if crc == DESCRIPTOR_MARK => return false,
            None => bytes,
        };
        let Some(sizes) = fields.strip_prefix(&crc) else {
            return false;
        };
        let read_short = |size: &[u8; 4]| u64::from(u32::from_le_bytes(*size));
        let read_long = |size: &[u8; 8]| u64::from_le_bytes(*size);
        let found: Vec<u64> = match sizes.len() {
            8 => sizes.as_chunks().0.iter().map(read_short).collect(),
            16 => sizes.as_chunks().0.iter().map(read_long).collect(),
            _ => return false,
        };
        found == [self.packed, self.size]
    }
}

/// Rules for the entries of an archive, and the faults found so far.
struct Rules<'a> {
    prefix: &'a str,
    collisions: Collisions,
    faults: Vec<GoZipFault>,
    places: Vec<EntryPlace>,
    directory_start: Option<u64>,
    directory_end: u64,
    files: usize,
    size: u64,
}

impl<'a> Rules<'a> {
    fn new(prefix: &'a str) -> Self {
        Self {
            prefix,
            collisions: Collisions::default(),
            faults: Vec::new(),
            places: Vec::new(),
            directory_start: None,
            directory_end: 0,
            files: 0,
            size: 0,
        }
    }

    fn add(&mut self, entry: &ZipFileEntry<'_>, place: EntryPlace) {
        self.directory_start
            .get_or_insert(entry.central_header_start());
        self.directory_end = place.directory_end;
        self.places.push(place);
        self.size = self.size.saturating_add(entry.size());
        let fault = self.check(entry).err();
        if let Some(reason) = fault.filter(|_| self.faults.len() < MAX_FAULTS) {
            let name = entry.name_raw();
            let path = String::from_utf8_lossy(&name[..name.len().min(MAX_PATH)]).into_owned();
            self.faults.push(GoZipFault { path, reason });
        }
    }

    /// Applies the rules of `checkZip` in `golang.org/x/mod/zip`, and those for uploads.
    fn check(&mut self, entry: &ZipFileEntry<'_>) -> Result<(), GoZipReason> {
        let name = std::str::from_utf8(entry.name_raw()).map_err(|_| PathFault::NotUtf8)?;
        let path = name
            .strip_prefix(self.prefix)
            .ok_or_else(|| GoZipReason::Prefix(self.prefix.to_owned()))?;
        let is_known = matches!(
            entry.compression(),
            CompressionMethod::Stored | CompressionMethod::Deflated
        );
        if entry.encrypted() || !is_known {
            return Err(GoZipReason::Method);
        }
        let is_folder = path.is_empty() || path.ends_with('/');
        let kind = entry.unix_mode().unwrap_or_default() & KIND_BITS;
        let allowed = if is_folder { KIND_FOLDER } else { KIND_FILE };
        // Windows and Go itself write no kind.
        if kind != 0 && kind != allowed {
            return Err(GoZipReason::Kind);
        }
        if is_folder && entry.size() > 0 {
            return Err(GoZipReason::Size);
        }
        if path.is_empty() {
            return Ok(());
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        check_go_path(path)?;
        self.collisions.add(path, is_folder)?;
        if is_folder {
            return Ok(());
        }
        self.files += 1;
        let file = path.rsplit('/').next().unwrap_or(path);
        if file.eq_ignore_ascii_case("go.mod") {
            if file != path {
                return Err(GoZipReason::GoModNotAtTop);
            }
            if path != "go.mod" {
                return Err(GoZipReason::GoModCase);
            }
        }
        if matches!(path, "go.mod" | "LICENSE") && entry.size() > MAX_GO_FILE {
            return Err(GoZipReason::TooLarge);
        }
        Ok(())
    }

    /// Fails if there was a fault, or if the archive is not laid out as all writers do it. Entries that share bytes would
    /// make a large package from a small archive, and bytes around them could be another archive to other readers.
    fn finish(mut self, packed: u64, reader: &mut (impl Read + Seek)) -> Result<(), GoZipError> {
        if !self.faults.is_empty() {
            return Err(GoZipError::Files(self.faults));
        }
        self.places.sort_unstable_by_key(|place| place.start);
        let directory_start = self.directory_start.unwrap_or_default();
        let mut starts: Vec<u64> = self.places.iter().map(|place| place.start).collect();
        starts.push(directory_start);
        let is_first = starts[0] == 0;
        let behind = packed.checked_sub(self.directory_end);
        let Some(behind) = behind.filter(|behind| is_first && ENDS.contains(behind)) else {
            return Err(malformed(
                "data before the first entry or behind the directory",
            ));
        };
        for (place, next) in self.places.iter().zip(&starts[1..]) {
            place.check_next(*next, reader)?;
        }
        let mut end = Vec::new();
        let start = SeekFrom::Start(self.directory_end);
        reader.seek(start).map_err(malformed)?;
        reader
            .take(behind)
            .read_to_end(&mut end)
            .map_err(malformed)?;
        let directory = (self.directory_end - directory_start, directory_start);
        if end_directories(&end).all(|found| found == directory) {
            Ok(())
        } else {
            Err(malformed("the directory is not where the archive ends"))
        }
    }
}

/// Returns size and start of the directory, as each of the end records has them. The small one refers to the large one by
/// numbers that are too large for it.
fn end_directories(end: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let (large, small) = end.split_at(end.len().saturating_sub(22));
    let small = small.get(12..20).and_then(|fields| {
        let [size, start] = fields.as_chunks::<4>().0 else {
            return None;
        };
        Some([*size, *start].map(u32::from_le_bytes))
    });
    let large = large.get(40..56).and_then(|fields| {
        let [size, start] = fields.as_chunks::<8>().0 else {
            return None;
        };
        Some((u64::from_le_bytes(*size), u64::from_le_bytes(*start)))
    });
    let refers = large.is_some() && small.is_some_and(|fields| fields.contains(&u32::MAX));
    let small = small.filter(|_| !refers);
    let small = small.map(|[size, start]| (size.into(), start.into()));
    small.into_iter().chain(large)
}

fn malformed(reason: impl Display) -> GoZipError {
    GoZipError::Malformed(reason.to_string())
}
