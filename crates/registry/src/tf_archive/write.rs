//! Writing of packages, always with the same bytes for the same files.

use std::borrow::Cow;
use std::io::Write;

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::TfArchiveError;
use crate::dirhash::{DirHash, hash_files};
use crate::paths::{Collisions, check_path};

/// A file of a Terraform module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TfFile<'a> {
    /// Path in the package.
    pub path: Cow<'a, str>,
    /// All bytes of the file.
    pub content: &'a [u8],
    /// True for scripts that a module runs.
    pub is_executable: bool,
}

/// The operating system of the header of gzip is unknown, as the same package is made on each.
const NO_SYSTEM: u8 = 255;

/// Writes the package of these files, in any order, and returns the checksum of the files.
pub fn write_tf_archive(files: &[TfFile<'_>], out: impl Write) -> Result<DirHash, TfArchiveError> {
    let mut collisions = Collisions::default();
    for file in files {
        check_path(&file.path)
            .and_then(|()| collisions.add(&file.path, false))
            .map_err(|fault| TfArchiveError::Path {
                path: file.path.clone().into_owned(),
                fault,
            })?;
    }
    let mut sorted: Vec<&TfFile<'_>> = files.iter().collect();
    sorted.sort_unstable_by_key(|file| &file.path);
    let gzip = GzBuilder::new()
        .operating_system(NO_SYSTEM)
        .write(out, Compression::best());
    let mut archive = Builder::new(gzip);
    for file in &sorted {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(file.content.len() as u64);
        header.set_mode(if file.is_executable { 0o755 } else { 0o644 });
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        archive
            .append_data(&mut header, &*file.path, file.content)
            .map_err(TfArchiveError::Io)?;
    }
    let gzip = archive.into_inner().map_err(TfArchiveError::Io)?;
    gzip.finish().map_err(TfArchiveError::Io)?;
    Ok(hash_files(
        sorted.iter().map(|file| (&*file.path, file.content)),
    )?)
}
