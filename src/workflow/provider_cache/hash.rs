//! Computes the checksum of an unpacked package as lock files have it: `h1:` and the Base64 of the SHA-256 of a
//! sorted list of all files with their SHA-256. These are Go module checksums, which Terraform took over.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// Maximum number of files in one package; real ones have two or three.
const MAX_FILES: usize = 10_000;

/// Computes the checksum, such as `h1:8LspDpj9PUI+W8/bZZOpyxpjyIWr+WihmQ7W51UKuz4=`. A package with links or other
/// special files is an error.
pub(super) fn h1(package: &Path) -> Result<String> {
    let mut lines: Vec<(String, PathBuf)> = Vec::new();
    for file in files(package)? {
        let name = file.strip_prefix(package).map_err(Error::other)?;
        let name = name
            .to_str()
            .filter(|name| !name.contains('\n'))
            .ok_or_else(|| unexpected_file(&file))?;
        lines.push((name.to_owned(), file));
    }
    lines.sort();
    let mut list = Sha256::new();
    for (name, file) in lines {
        list.update(format!("{}  {name}\n", sha256(&file)?));
    }
    Ok(format!("h1:{}", STANDARD.encode(list.finalize())))
}

/// Lists all files below a directory.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut todo) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() && found.len() < MAX_FILES {
                found.push(entry.path());
            } else {
                return Err(unexpected_file(&entry.path()));
            }
        }
    }
    Ok(found)
}

fn unexpected_file(file: &Path) -> Error {
    Error::new(
        ErrorKind::InvalidData,
        format!("{} must not be in a provider package", file.display()),
    )
}

fn sha256(file: &Path) -> Result<String> {
    let mut file = File::open(file)?;
    let (mut digest, mut part) = (Sha256::new(), vec![0; 256 << 10]);
    loop {
        let length = file.read(&mut part)?;
        if length == 0 {
            return Ok(hex::encode(digest.finalize()));
        }
        digest.update(&part[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value and package come from a real `terraform init`.
    #[test]
    fn it_is_what_terraform_writes_into_lock_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("terraform-provider-fake_v1.1.0"),
            "#!/bin/sh\nexit 1\n",
        )
        .unwrap();
        assert_eq!(
            h1(dir.path()).unwrap(),
            "h1:8LspDpj9PUI+W8/bZZOpyxpjyIWr+WihmQ7W51UKuz4="
        );
    }

    #[test]
    fn names_count_and_links_have_no_place() {
        let dir = tempfile::tempdir().unwrap();
        let empty = h1(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), "").unwrap();
        let one = h1(dir.path()).unwrap();
        std::fs::rename(dir.path().join("a/b"), dir.path().join("a/c")).unwrap();
        let other = h1(dir.path()).unwrap();
        assert!(empty != one && one != other);
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("d")).unwrap();
        assert_eq!(h1(dir.path()).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
