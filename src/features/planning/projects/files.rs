//! Reads files of a checkout, such as the code for the search. It follows no links, except to the code of a project
//! that is run, as the tool does. Even then it never leaves the checkout.

use crate::config::text_of;
use crate::discovery::{self, RequiredVersions};
use crate::git::Checkout;
use crate::model::{Distribution, RepoPath};

/// Maximum size of a file of Terraform code that is read.
pub(super) const MAX_CODE_BYTES: u64 = 1024 * 1024;

/// Maximum size of the target of a symbolic link, in bytes. A longer one leads nowhere.
pub(super) const MAX_LINK_BYTES: usize = 4096;

/// Returns the text of a file of code.
pub(super) fn read_code(checkout: &Checkout, path: &RepoPath) -> Option<String> {
    read_file(checkout, path, MAX_CODE_BYTES).ok()
}

/// Returns the version constraints in the code of a directory.
pub(super) fn required(
    checkout: &Checkout,
    dir: &RepoPath,
    distribution: Distribution,
) -> RequiredVersions {
    let entries = checkout
        .resolve_dir(dir)
        .ok()
        .and_then(|path| std::fs::read_dir(path).ok());
    let file = |entry: std::fs::DirEntry| dir.join(entry.file_name().to_str()?).ok();
    let mut files: Vec<RepoPath> = entries
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter_map(file)
        .collect();
    files.sort_unstable();
    discovery::required_versions(&files, distribution, &|path| {
        read_linked_code(checkout, path)
    })
}

/// Returns the text of a file of code, or of the target of a symbolic link. The target has to be in the checkout and
/// outside of `.git`.
fn read_linked_code(checkout: &Checkout, path: &RepoPath) -> Option<String> {
    let root = checkout.path.canonicalize().ok()?;
    let real = root.join(path.as_str()).canonicalize().ok()?;
    let inside = real.strip_prefix(&root).ok()?;
    if inside.components().any(|part| part.as_os_str() == ".git") {
        return None;
    }
    read_code(checkout, &RepoPath::new(inside.to_str()?).ok()?)
}

/// Returns the target of a symbolic link. A run may have replaced the link with something else.
pub(super) fn link_target(checkout: &Checkout, link: &RepoPath) -> Option<String> {
    let target = std::fs::read_link(checkout.path.join(link.as_str())).ok()?;
    target
        .to_str()
        .filter(|target| target.len() <= MAX_LINK_BYTES)
        .map(str::to_owned)
}

/// Reads a regular file of a checkout. It follows no link, so it can read nothing outside.
pub(in crate::features::planning) fn read_file(
    checkout: &Checkout,
    path: &RepoPath,
    most: u64,
) -> std::io::Result<String> {
    let invalid = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let dir = checkout
        .resolve_dir(&path.parent())
        .map_err(|error| invalid(error.to_string()))?;
    let file = dir.join(path.file_name());
    let meta = file.symlink_metadata()?;
    if !meta.is_file() {
        return Err(invalid("it is not a regular file".to_owned()));
    }
    if meta.len() > most {
        return Err(invalid(format!("it is larger than {most} bytes")));
    }
    text_of(std::fs::read(file)?).map_err(std::io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::git::Extent;
    use crate::model::CommitSha;

    const DEMAND: &str = "terraform {\n  required_version = \"~> 1.9.0\"\n}\n";

    /// Returns the version constraint of `live/prod` if its `versions.tf` is a link to `target`. A file with a
    /// constraint is beside the checkout.
    fn demanded(target: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkout");
        for place in ["live/prod", "base", ".git"] {
            std::fs::create_dir_all(path.join(place)).unwrap();
        }
        for file in [
            "versions.tf",
            "base/versions.tf",
            ".git/versions.tf",
            "../versions.tf",
        ] {
            std::fs::write(path.join(file), DEMAND).unwrap();
        }
        symlink("../../base", path.join("live/prod/lib")).unwrap();
        symlink("again.tf", path.join("live/prod/circle.tf")).unwrap();
        symlink("circle.tf", path.join("live/prod/again.tf")).unwrap();
        symlink(
            target.replace("ROOT", path.to_str().unwrap()),
            path.join("live/prod/versions.tf"),
        )
        .unwrap();
        let commit = CommitSha::new(&"1".repeat(40)).unwrap();
        let (head, base, hold) = (commit.clone(), commit.clone(), dir.path().join("hold"));
        let checkout = Checkout {
            path,
            hold,
            commit,
            head,
            base,
            merged: false,
            extent: Extent::Whole,
            fresh: true,
            copy: 0,
        };
        required(
            &checkout,
            &"live/prod".parse().unwrap(),
            Distribution::Terraform,
        )
        .to_string()
    }

    #[test]
    fn code_behind_links_counts_where_the_link_is() {
        for target in [
            "../../versions.tf",
            "../../base/versions.tf",
            "lib/versions.tf",
        ] {
            assert_eq!(
                demanded(target),
                "line 2 of `live/prod/versions.tf` says `~> 1.9.0`",
                "{target}"
            );
        }
    }

    #[test]
    fn links_out_of_the_checkout_in_a_circle_or_to_no_code_are_not_followed() {
        for target in [
            "../../../versions.tf",
            "ROOT/../versions.tf",
            "/etc/passwd",
            "circle.tf",
            "versions.tf",
            "gone.tf",
            "../../base",
            "../../.git/versions.tf",
        ] {
            assert_eq!(demanded(target), "", "{target}");
        }
    }
}
