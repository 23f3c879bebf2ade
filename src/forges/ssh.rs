//! Prepares git for SSH to a host with one key and no other settings of this machine.
//!
//! The key is stored in a file for that time. OpenSSH closes every descriptor it inherits and opens the file more
//! than once, so it cannot use a pipe or an open file. An agent would be one more process that outlives a killed
//! server. The file lies in a directory that is emptied when a server starts.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::credential::SshAccess;

/// Key on disk while a caller uses it. Its directory is private and is removed with this value.
#[derive(Debug)]
pub struct SshLogin {
    dir: TempDir,
    user: String,
    host: String,
    port: u16,
}

impl SshLogin {
    /// Writes the key into a new directory below `place`. `host` is the name of the host, without the port of its web
    /// server.
    pub fn new(access: &SshAccess, host: &str, place: &Path) -> std::io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(place)?;
        let dir = tempfile::Builder::new().prefix("ssh-").tempdir_in(place)?;
        // The directory is already private; the mode is set explicitly, regardless of the umask.
        let inner = dir.path().join("login");
        DirBuilder::new().mode(0o700).create(&inner)?;
        // OpenSSH refuses a key without a line break at its end.
        write(&inner.join("key"), &[access.key.expose(), "\n"])?;
        write(&inner.join("known_hosts"), &[&access.known_hosts, "\n"])?;
        Ok(Self {
            dir,
            user: access.user.clone(),
            host: host.to_owned(),
            port: access.port,
        })
    }

    /// Returns the path of the private key.
    pub fn key(&self) -> PathBuf {
        self.dir.path().join("login/key")
    }

    /// Returns the path of the file with the host keys.
    pub fn known_hosts(&self) -> PathBuf {
        self.dir.path().join("login/known_hosts")
    }

    /// Returns `ssh://git@host:22/`, which replaces `https://host/`.
    pub fn base_url(&self) -> String {
        format!("ssh://{}@{}:{}/", self.user, self.host, self.port)
    }
}

fn write(path: &Path, parts: &[&str]) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    parts
        .iter()
        .try_for_each(|part| file.write_all(part.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::secret::Secret;

    #[test]
    fn the_key_lies_where_only_we_can_look_and_is_gone_afterwards() {
        let access = SshAccess {
            user: "git".to_owned(),
            port: 2222,
            key: Secret::new("a key"),
            known_hosts: "git.example ssh-ed25519 AAAA".to_owned(),
        };
        let place = tempfile::tempdir().unwrap();
        let login = SshLogin::new(&access, "git.example", &place.path().join("tmp")).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (key, known_hosts) = (login.key(), login.known_hosts());
        assert_eq!((mode(&key), mode(key.parent().unwrap())), (0o600, 0o700));
        assert!(
            key.starts_with(place.path().join("tmp")),
            "{}",
            key.display()
        );
        assert_eq!(std::fs::read_to_string(&key).unwrap(), "a key\n");
        assert_eq!(login.base_url(), "ssh://git@git.example:2222/");
        assert!(!format!("{login:?}").contains("a key"));
        drop(login);
        assert!(!key.exists() && !known_hosts.exists());
        assert_eq!(
            std::fs::read_dir(place.path().join("tmp")).unwrap().count(),
            0
        );
    }
}
