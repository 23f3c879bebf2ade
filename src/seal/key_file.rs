//! Reads the file of `--encryption-key-file`.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use secrecy::zeroize::Zeroizing;

use super::{Keyring, check_mode};

/// Maximum size of a file with secrets. Sixty-four lines of a name and a key need a tenth of it.
const MAX_BYTES: u64 = 64 * 1024;

/// Reads the keys. Error messages never repeat them.
pub fn keyring(path: &Path) -> anyhow::Result<Keyring> {
    let shown = || {
        format!(
            "cannot use the keys of {} (--encryption-key-file)",
            path.display()
        )
    };
    let text = private_text(path, "replace its keys").with_context(shown)?;
    Keyring::parse(&text).with_context(shown)
}

/// Reads a file with secrets, which only its owner may read. `otherwise` says in the error message what to do if
/// others could read it.
pub(crate) fn private_text(path: &Path, otherwise: &str) -> anyhow::Result<Zeroizing<String>> {
    let file = std::fs::File::open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        bail!("it is not a regular file");
    }
    let mode = meta.permissions().mode();
    if check_mode(mode).is_err() {
        bail!(
            "users other than its owner may read or change it (its mode is {:04o}). Run `chmod 600` on it, and \
             {otherwise} if somebody may have read them",
            mode & 0o7777
        );
    }
    let mut text = Zeroizing::new(String::new());
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        bail!("it has more than {MAX_BYTES} bytes");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn a_file_is_read_unless_others_may_read_it_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let told = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match keyring(&path) {
                Ok(keys) => keys.first().to_string(),
                Err(error) => {
                    format!("{error:#}").replace(&dir.path().display().to_string(), "DIR")
                }
            }
        };
        let line =
            crate::seal::key_line(&"a".parse().unwrap(), b"0123456789abcdef0123456789abcdef");
        assert_eq!(told(line.expose(), 0o600), "a");
        insta::assert_snapshot!(told(line.expose(), 0o644), @"cannot use the keys of DIR/keys (--encryption-key-file): users other than its owner may read or change it (its mode is 0644). Run `chmod 600` on it, and replace its keys if somebody may have read them");
        insta::assert_snapshot!(told("a:AAAA", 0o600), @"cannot use the keys of DIR/keys (--encryption-key-file): line 1: the key has 3 bytes, not 32");
        insta::assert_snapshot!(told(&"#".repeat(70_000), 0o600), @"cannot use the keys of DIR/keys (--encryption-key-file): it has more than 65536 bytes");
        assert!(keyring(dir.path()).is_err() && keyring(&dir.path().join("absent")).is_err());
    }
}
