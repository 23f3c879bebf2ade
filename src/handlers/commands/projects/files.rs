//! Reading a checkout: the configuration, and the code that the search looks into. No link is followed.

use anyhow::anyhow;

use super::search::Trouble;
use crate::config::repo::{self, Permissions, RepoConfig};
use crate::discovery::{self, RequiredVersions, Tree};
use crate::git::Checkout;
use crate::model::{BranchName, Distribution, RepoPath};

/// A file of Terraform code that is looked into is not larger.
const MAX_CODE_BYTES: u64 = 1024 * 1024;

/// Bytes of the text of a symbolic link; a longer one leads nowhere.
const MAX_LINK_BYTES: usize = 4096;

/// The configuration among the files of a checkout.
pub(super) fn configuration(
    tree: &Tree,
    checkout: &Checkout,
    permissions: &Permissions,
    base: &BranchName,
) -> Result<Option<RepoConfig>, Trouble> {
    let Some(file) = repo::find(tree.files()).map_err(|error| Trouble::Config(error.to_string()))? else {
        return Ok(None);
    };
    let text = read_file(checkout, &file, RepoConfig::MAX_BYTES as u64 + 1);
    let text = text.map_err(|error| Trouble::Config(format!("`{file}` cannot be read: {error}")))?;
    let config = RepoConfig::parse(file.as_str(), &text, permissions);
    let config = config.map_err(|errors| Trouble::Config(errors.to_string()))?;
    config.for_base(base).map(Some).map_err(|error| Trouble::Config(error.to_string()))
}

/// The configuration as it lies in a checkout, whether or not it is part of the repository.
pub(super) fn on_disk(
    checkout: &Checkout,
    permissions: &Permissions,
    base: &BranchName,
) -> anyhow::Result<Option<RepoConfig>> {
    let path = |name: &&str| RepoPath::new(name).expect("a plain name is a path");
    let there =
        repo::FILE_NAMES.iter().map(path).filter(|path| checkout.path.join(path.as_str()).symlink_metadata().is_ok());
    let tree = Tree::new(there.collect::<Vec<_>>());
    configuration(&tree, checkout, permissions, base).map_err(|trouble| match trouble {
        Trouble::Config(text) | Trouble::Target(text) | Trouble::Limit(text) => anyhow!(text),
    })
}

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
fn read_file(checkout: &Checkout, path: &RepoPath, most: u64) -> std::io::Result<String> {
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
