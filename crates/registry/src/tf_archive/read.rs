//! Strict reading of archives from outside, as a stream.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use flate2::read::MultiGzDecoder;
use tar::{Archive, EntryType, Header, PaxExtensions};

use super::TfArchiveError;
use crate::dirhash::{DirHash, DirHasher, HashingReader};
use crate::limits::{ArchiveLimits, ExceededLimit, Meter};
use crate::paths::{Collisions, MAX_PATH, PathFault, check_path};

/// Summary of an archive that follows all rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TfContents {
    /// Checksum of the files.
    pub hash: DirHash,
    /// Number of files, without folders.
    pub files: usize,
    /// Number of bytes of all files together.
    pub size: u64,
}

/// Entry that describes the next one.
struct Description {
    long_name: Option<Vec<u8>>,
}

/// Place of the kind of an entry in its header.
const KIND_BYTE: usize = 156;

/// Formats of headers and their place: POSIX, GNU, and the one before both.
const FORMAT_PLACE: Range<usize> = 257..265;
const FORMATS: [&[u8; 8]; 3] = [b"ustar\x0000", b"ustar  \0", &[0; 8]];

/// Two more times in headers of GNU, each eleven octal digits and an end, or nothing.
const GNU_TIMES: [Range<usize>; 2] = [345..357, 357..369];

/// Mark at the end of headers that store other fields behind a shorter name, and its place.
const STAR_MARK: (usize, &[u8]) = (508, b"tar\0");

/// Bits of the mode that tell the kind of an entry, and their value for files and folders.
const KIND_BITS: u32 = 0o170_000;
const KIND_FILE: u32 = 0o100_000;
const KIND_FOLDER: u32 = 0o040_000;

/// Maximum number of bytes of the attributes of an entry.
const MAX_ATTRIBUTES: u64 = 64 << 10;

/// Checks an archive while it is read. Each file is handed to `visit` with its path, for example to find the README.
///
/// If `visit` fails, the archive counts as malformed, because most such errors come from the decoder.
///
/// Reads the archive from its start. Reads a file in pieces, so the memory does not grow with its size, but with the
/// number of files.
pub fn check_tf_archive(
    mut packed: impl Read + Seek,
    limits: &ArchiveLimits,
    mut visit: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<TfContents, TfArchiveError> {
    let size = packed.seek(SeekFrom::End(0)).map_err(TfArchiveError::Io)?;
    packed.rewind().map_err(TfArchiveError::Io)?;
    limits.check(size, 0)?;
    let meter = Meter::new(*limits, size);
    // Decoders report everything as an error of reading. The meter knows which of them are something else.
    let failed = |error: io::Error| match meter.take_stop() {
        Some(stop) => stop.into(),
        None => TfArchiveError::Malformed(error.to_string()),
    };
    // A second member of gzip is read as well, because clients do so.
    let gzip = MultiGzDecoder::new(meter.source(packed));
    let mut archive = Archive::new(meter.unpacked(gzip));
    let mut collisions = Collisions::default();
    let mut hasher = DirHasher::new();
    let mut contents = (0, 0);
    let mut description = None;
    // Raw entries, because the crate would keep names and attributes of any length in memory.
    let entries = archive.entries().map_err(failed)?.raw(true);
    for (number, entry) in entries.enumerate() {
        let mut entry = entry.map_err(failed)?;
        if number >= limits.entries {
            return Err(ExceededLimit::Entries(limits.entries).into());
        }
        let kind = entry.header().entry_type();
        let describes_next = kind.is_gnu_longname() || kind.is_pax_local_extensions();
        // Readers disagree on the name then. Some forget the first description, and some prefer it.
        if description.is_some() && (describes_next || kind.is_pax_global_extensions()) {
            return Err(malformed("two descriptions of an entry"));
        }
        if describes_next {
            let content = read_short(&mut entry).map_err(failed)?;
            let long_name = if kind.is_gnu_longname() {
                let end = content.iter().position(|byte| *byte == 0);
                Some(content[..end.unwrap_or(content.len())].to_vec())
            } else {
                pax_path(&content)?
            };
            // Go and others read the name of the header then.
            if long_name.as_ref().is_some_and(Vec::is_empty) {
                return Err(malformed("an empty name"));
            }
            description = Some(Description { long_name });
            continue;
        }
        // Tools such as `git archive` store a comment for the whole archive.
        if kind.is_pax_global_extensions() {
            let attributes = read_short(&mut entry).map_err(failed)?;
            if pax_path(&attributes)?.is_some() {
                return Err(malformed("a name for all entries"));
            }
            continue;
        }
        let name = description
            .take()
            .and_then(|description| description.long_name)
            .unwrap_or_else(|| entry.header().path_bytes().into_owned());
        let bad_path = |fault| TfArchiveError::Path {
            path: shown_path(&name),
            fault,
        };
        if !matches!(kind, EntryType::Regular | EntryType::Directory) {
            return Err(TfArchiveError::Kind {
                path: shown_path(&name),
                kind: kind_name(kind),
            });
        }
        let path = std::str::from_utf8(&name).map_err(|_| bad_path(PathFault::NotUtf8))?;
        // `tar -C DIR .` writes `./` in front of each name.
        let path = path.strip_prefix("./").unwrap_or(path);
        // Old archives have folders that are marked by their name only. Their kind is NUL, and not the digit of a file.
        let is_old = entry.header().as_bytes()[KIND_BYTE] == 0;
        let (path, is_folder) = match path.strip_suffix('/') {
            Some(path) if is_old => (path, true),
            Some(path) if kind == EntryType::Directory => (path, true),
            Some(_) | None => (path, kind == EntryType::Directory),
        };
        check_header(entry.header(), is_folder).map_err(malformed)?;
        if is_folder && entry.size() > 0 {
            return Err(malformed("a folder with content"));
        }
        if is_folder && matches!(path, "" | ".") {
            continue;
        }
        check_path(path)
            .and_then(|()| collisions.add(path, is_folder))
            .map_err(bad_path)?;
        if is_folder {
            continue;
        }
        let size = entry.size();
        let mut hashing = HashingReader::new(&mut entry);
        visit(path, &mut hashing).map_err(failed)?;
        io::copy(&mut hashing, &mut io::sink()).map_err(failed)?;
        if hashing.size() != size {
            return Err(malformed("a file ends early"));
        }
        hasher.add(path, hashing.finish())?;
        contents = (contents.0 + 1, contents.1 + size);
    }
    if description.is_some() {
        return Err(malformed("a description without an entry"));
    }
    // The end is blocks of zeros. Bytes behind it would be an archive that only some readers see.
    let mut rest = archive.into_inner();
    let mut buffer = [0; 8192];
    loop {
        match rest.read(&mut buffer).map_err(failed)? {
            0 => break,
            count if buffer[..count].iter().any(|byte| *byte != 0) => {
                return Err(malformed("data behind the end"));
            }
            _ => {}
        }
    }
    Ok(TfContents {
        hash: hasher.finish(),
        files: contents.0,
        size: contents.1,
    })
}

/// Checks that the rest of a header says the same to every reader. Go, and so Terraform, takes the kind of an entry also
/// from its mode, and would skip a file that is marked as a folder there.
fn check_header(header: &Header, is_folder: bool) -> Result<(), &'static str> {
    let is_empty = header.as_old().mode.iter().all(|byte| *byte == 0);
    let mode = match header.mode() {
        Ok(mode) => mode,
        Err(_) if is_empty => 0,
        Err(_) => return Err("a mode that is no number"),
    };
    let expected = if is_folder { KIND_FOLDER } else { KIND_FILE };
    if ![0, expected].contains(&(mode & KIND_BITS)) {
        return Err("a mode of another kind of entry");
    }
    // Go reads the start of a name from headers of other versions as well.
    let format = &header.as_bytes()[FORMAT_PLACE];
    if !FORMATS.iter().any(|known| *known == format) {
        return Err("a header of an unknown format");
    }
    // Go takes times of GNU that are no numbers for the start of the name.
    let is_time = |place: Range<usize>| {
        let (digits, end) = header.as_bytes()[place].split_at(11);
        let is_number = digits.iter().all(|byte| matches!(byte, b'0'..=b'7'));
        digits[0] == 0 || is_number && matches!(end, b"\0" | b" ")
    };
    if header.as_gnu().is_some() && !GNU_TIMES.into_iter().all(is_time) {
        return Err("a time that is no number");
    }
    if header.as_bytes()[STAR_MARK.0..] == *STAR_MARK.1 {
        return Err("a header with a shorter name");
    }
    Ok(())
}

/// Reads the content of an entry that describes the next one.
fn read_short(entry: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    entry.take(MAX_ATTRIBUTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_ATTRIBUTES {
        return Err(io::Error::other("the attributes of an entry are too long"));
    }
    Ok(content)
}

/// Returns the path among attributes. Those that change how the archive is read are refused.
fn pax_path(attributes: &[u8]) -> Result<Option<Vec<u8>>, TfArchiveError> {
    let mut path = None;
    for attribute in PaxExtensions::new(attributes) {
        let attribute = attribute.map_err(|error| TfArchiveError::Malformed(error.to_string()))?;
        match attribute.key_bytes() {
            b"path" => path = Some(attribute.value_bytes().to_vec()),
            b"size" => return Err(malformed("a size among the attributes")),
            key if key.starts_with(b"GNU.sparse") => {
                return Err(malformed("a file with holes"));
            }
            _ => {}
        }
    }
    Ok(path)
}

fn malformed(reason: &str) -> TfArchiveError {
    TfArchiveError::Malformed(reason.to_owned())
}

/// Name of an entry for a message.
fn shown_path(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(MAX_PATH)]).into_owned()
}

fn kind_name(kind: EntryType) -> &'static str {
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_hard_link() {
        "a hard link"
    } else if kind.is_character_special() || kind.is_block_special() {
        "a device"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "something else"
    }
}
