//! Reading files of a checkout, such as the code that the search looks into. No link is followed.

use crate::discovery::{self, RequiredVersions};
use crate::git::Checkout;
use crate::model::{Distribution, RepoPath};

/// A file of Terraform code that is looked into is not larger.
pub(super) const MAX_CODE_BYTES: u64 = 1024 * 1024;

/// Bytes of the text of a symbolic link; a longer one leads nowhere.
pub(super) const MAX_LINK_BYTES: usize = 4096;

/// The text of a file of code.
pub(super) fn read_code(checkout: &Checkout, path: &RepoPath) -> Option<String> {
    read_file(checkout, path, MAX_CODE_BYTES).ok()
}

/// What the code of a directory demands of the version that runs it.
pub(super) fn required(checkout: &Checkout, dir: &RepoPath, distribution: Distribution) -> RequiredVersions {
    let entries = checkout.resolve_dir(dir).ok().and_then(|path| std::fs::read_dir(path).ok());
    let file = |entry: std::fs::DirEntry| dir.join(entry.file_name().to_str()?).ok();
    let mut files: Vec<RepoPath> = entries.into_iter().flatten().filter_map(Result::ok).filter_map(file).collect();
    files.sort_unstable();
    discovery::required_versions(&files, distribution, &|path| read_code(checkout, path))
}

/// What a symbolic link says; a run may have put something else in its place.
pub(super) fn link_target(checkout: &Checkout, link: &RepoPath) -> Option<String> {
    let target = std::fs::read_link(checkout.path.join(link.as_str())).ok()?;
    target.to_str().filter(|target| target.len() <= MAX_LINK_BYTES).map(str::to_owned)
}

/// Reads a regular file of a checkout; no link is followed, so nothing outside can be read.
pub(in crate::handlers::commands) fn read_file(
    checkout: &Checkout,
    path: &RepoPath,
    most: u64,
) -> std::io::Result<String> {
    let invalid = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let dir = checkout.resolve_dir(&path.parent()).map_err(|error| invalid(error.to_string()))?;
    let file = dir.join(path.file_name());
    let meta = file.symlink_metadata()?;
    if !meta.is_file() {
        return Err(invalid("it is not a regular file".to_owned()));
    }
    if meta.len() > most {
        return Err(invalid(format!("it is larger than {most} bytes")));
    }
    std::fs::read_to_string(file)
}
