//! Values that must never be printed: tokens, webhook secrets, passwords, private keys.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use secrecy::{ExposeSecret, SecretString};

/// A secret text. `Debug` shows only a placeholder. The type has no `Display` and no serialisation.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Wraps a text and trims white space around it, such as the newline at the end of a token file.
    pub fn new(text: &str) -> Self {
        Self(SecretString::from(text.trim().to_owned()))
    }

    /// Returns the text, for the one place that has to send it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Returns true if nothing is left after trimming.
    pub fn is_empty(&self) -> bool {
        self.expose().is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl PartialEq for Secret {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        use subtle::ConstantTimeEq;
        self.expose()
            .as_bytes()
            .ct_eq(other.expose().as_bytes())
            .into()
    }
}

impl Eq for Secret {}

/// Creates a file that only its owner may read. Fails if the file exists.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Restricts an existing file of this user to its owner (mode 0600). Returns true if other users could read or write
/// it before. Leaves a file alone that is missing or belongs to another user.
pub fn make_private(path: &Path) -> io::Result<bool> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        metadata => metadata?,
    };
    let is_ours = metadata.is_file() && metadata.uid() == nix::unistd::geteuid().as_raw();
    let was_open = is_ours && metadata.mode() & 0o077 != 0;
    if was_open {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(was_open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_files_are_for_their_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (made, old) = (dir.path().join("made"), dir.path().join("old"));
        drop(create_private(&made).unwrap());
        fs::write(&old, "").unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
        assert!(
            make_private(&old).unwrap()
                && !make_private(&old).unwrap()
                && !make_private(&made).unwrap()
        );
        for file in [&made, &old] {
            assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
        }
        assert!(!make_private(&dir.path().join("none")).unwrap());
        assert!(create_private(&made).is_err());
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new("ghp_abc\n")), "Secret(…)");
        assert_eq!(Secret::new(" ghp_abc\n").expose(), "ghp_abc");
    }
}
