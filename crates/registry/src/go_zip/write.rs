//! Writing of packages, with the same bytes for the same files and the same compressor.

use std::io::{Seek, Write};

use sha2::{Digest as _, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::{GoModuleFiles, GoZipError, prefix_of};
use crate::dirhash::{DirHash, DirHasher};
use crate::names::GoPath;
use crate::versions::GoVersion;

/// Writes the package of a version and returns the checksum of its files.
pub fn write_go_zip(
    path: &GoPath,
    version: &GoVersion,
    files: &GoModuleFiles<'_>,
    out: impl Write + Seek,
) -> Result<DirHash, GoZipError> {
    let prefix = prefix_of(path, version);
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    let mut hasher = DirHasher::new();
    let mut archive = ZipWriter::new(out);
    for (path, content) in &files.files {
        let name = format!("{prefix}{path}");
        hasher.add(&name, Sha256::digest(content).into())?;
        archive.start_file(name, options).map_err(zip_error)?;
        archive.write_all(content).map_err(GoZipError::Io)?;
    }
    archive.finish().map_err(zip_error)?;
    Ok(hasher.finish())
}

fn zip_error(error: zip::result::ZipError) -> GoZipError {
    GoZipError::Io(error.into())
}
