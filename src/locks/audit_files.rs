//! Files outside of the database that prove the audit log: the private key, the last checkpoint that this server has
//! signed, and the file of `--audit-checkpoint-file`.
//!
//! Somebody with write access to the database can replace all of it, with every counter and checkpoint. So the server
//! keeps the last checkpoint in its data directory, and does not continue a log that does not reach that checkpoint.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use tempfile::NamedTempFile;

use crate::model::{Actor, Cause, LockEventKind, NewLockEvent, Origin, Sha256Digest};
use crate::seal::{Binding, Checkpoint, Keyring, PublicKey, SigningKey};
use crate::secret::{Secret, make_private};
use crate::store::Store;

/// Folder in the data directory.
const FOLDER: &str = "audit";
/// File in the folder with the private key, if there is no key file.
const KEY: &str = "signing-key";

/// Files of one server that prove the audit log of its database.
#[derive(Clone, Debug)]
pub struct AuditFiles {
    folder: PathBuf,
    mark: PathBuf,
    export: Option<PathBuf>,
    keys: Option<Arc<Keyring>>,
}

impl AuditFiles {
    /// Creates the files below a data directory, for the database of that name. With `keys` the private key is in the
    /// database, encrypted; otherwise it is in the data directory. Every checkpoint is appended to `export`.
    pub fn new(
        data_dir: &Path,
        database: &str,
        export: Option<PathBuf>,
        keys: Option<Arc<Keyring>>,
    ) -> Self {
        let folder = data_dir.join(FOLDER);
        // The data directory may be used with another database later, which has another log.
        let name = &Sha256Digest::of(database.as_bytes()).to_string()[..16];
        let mark = folder.join(format!("{name}.checkpoint"));
        Self {
            folder,
            mark,
            export,
            keys,
        }
    }

    /// Path of the file with the last checkpoint that this server has signed.
    pub fn mark_path(&self) -> &Path {
        &self.mark
    }

    /// Returns the private key of this server, if it already has one.
    pub async fn key(&self, store: &Store) -> anyhow::Result<Option<SigningKey>> {
        match &self.keys {
            Some(keys) => Ok(open(keys, store).await?.ok()),
            None => self.read_key(),
        }
    }

    /// Returns the private key of this server, and creates it if there is none.
    pub(super) async fn key_or_new(&self, store: &Store) -> anyhow::Result<SigningKey> {
        let Some(keys) = &self.keys else {
            let key = match self.read_key()? {
                Some(key) => key,
                None => self.make_key()?,
            };
            // The key may have been created for another database.
            let why = "the key is in the data directory of a server";
            store
                .audit_key_add(
                    key.public(),
                    None,
                    key_event(store, key.public(), why).await?,
                )
                .await?;
            return Ok(key);
        };
        let why = match open(keys, store).await? {
            Ok(key) => return Ok(key),
            Err(why) => why,
        };
        let key = SigningKey::generate();
        let sealed = keys.seal(&key.secret(), &binding(key.public()));
        let event = key_event(store, key.public(), &why).await?;
        store
            .audit_key_add(key.public(), Some(&sealed), event)
            .await?;
        Ok(key)
    }

    fn read_key(&self) -> anyhow::Result<Option<SigningKey>> {
        let path = self.folder.join(KEY);
        let shown = || format!("cannot read the key of the audit log, {}", path.display());
        make_private(&path).with_context(shown)?;
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => Secret::new(&text.with_context(shown)?),
        };
        match SigningKey::from_secret(&text) {
            Some(key) => Ok(Some(key)),
            None => bail!(
                "{} does not contain a key of the audit log. Restore the file, or move it away; the server then creates a new key",
                path.display()
            ),
        }
    }

    /// Creates the private key. If two processes do so at the same time, both get the same key.
    fn make_key(&self) -> anyhow::Result<SigningKey> {
        let path = self.folder.join(KEY);
        let key = SigningKey::generate();
        let made = self
            .write_temp_file(key.secret().expose())
            .and_then(|file| match file.persist_noclobber(&path) {
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                kept => kept.map(drop).map_err(|error| error.error),
            });
        made.with_context(|| {
            format!(
                "cannot write the key of the audit log in {}",
                path.display()
            )
        })?;
        self.read_key()?.with_context(|| {
            format!(
                "the key of the audit log, {}, was removed right after it was written",
                path.display()
            )
        })
    }

    /// Returns the last checkpoint that this server has signed.
    pub fn mark(&self) -> anyhow::Result<Option<Checkpoint>> {
        let shown = || format!("cannot read {}", self.mark.display());
        let text = match fs::read_to_string(&self.mark) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(shown)?,
        };
        text.trim()
            .parse()
            .map(Some)
            .map_err(anyhow::Error::msg)
            .with_context(shown)
    }

    /// Writes a checkpoint outside of the database, where a change of the database cannot revoke it.
    pub(super) fn publish(&self, checkpoint: &Checkpoint) -> anyhow::Result<()> {
        if let Some(path) = &self.export {
            append(path, checkpoint).with_context(|| {
                format!(
                    "cannot append to {} (--audit-checkpoint-file)",
                    path.display()
                )
            })?;
        }
        let line = checkpoint.to_string();
        let kept = self
            .write_temp_file(&line)
            .and_then(|file| file.persist(&self.mark).map_err(|error| error.error));
        kept.map(drop)
            .with_context(|| format!("cannot write {}", self.mark.display()))
    }

    /// Writes a new file in the folder, readable only by its owner, complete and flushed to the disk.
    fn write_temp_file(&self, line: &str) -> io::Result<NamedTempFile> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        let mut file = NamedTempFile::new_in(&self.folder)?;
        writeln!(file, "{line}")?;
        file.as_file().sync_all()?;
        Ok(file)
    }

    /// Returns every checkpoint that is outside of the database.
    pub fn checkpoints(&self) -> anyhow::Result<Vec<Checkpoint>> {
        let mut all = match &self.export {
            Some(path) => read_exported(path)?,
            None => Vec::new(),
        };
        all.extend(self.mark()?);
        Ok(all)
    }
}

/// Returns the newest key in the database that the key file can decrypt, or the reason why there is none.
async fn open(keys: &Keyring, store: &Store) -> anyhow::Result<Result<SigningKey, String>> {
    let mut why = "no earlier key is encrypted with --encryption-key-file".to_owned();
    for known in store.audit_keys().await? {
        let Some(sealed) = &known.sealed else {
            continue;
        };
        match keys.open(sealed, &binding(known.public)) {
            Ok(secret) => {
                match SigningKey::from_secret(&secret).filter(|key| key.public() == known.public) {
                    Some(key) => return Ok(Ok(key)),
                    None => why = String::from("the earlier key is damaged"),
                }
            }
            Err(error) => why = format!("the earlier key cannot be used: {error}"),
        }
    }
    Ok(Err(why))
}

/// Encrypts the private keys in the database with the first key of the key file, if one of its keys can decrypt them.
/// Returns the number of encrypted keys.
pub async fn reseal_audit_keys(store: &Store, keys: &Keyring) -> anyhow::Result<u64> {
    let mut resealed = 0;
    for known in store.audit_keys().await? {
        let Some(sealed) = known.sealed.filter(|sealed| sealed.key != *keys.first()) else {
            continue;
        };
        let to = binding(known.public);
        if let Ok(secret) = keys.open(&sealed, &to) {
            store
                .audit_key_reseal(known.public, &keys.seal(&secret, &to))
                .await?;
            resealed += 1;
        }
    }
    Ok(resealed)
}

fn binding(public: PublicKey) -> Binding {
    Binding::new(&["audit key", &public.to_string()])
}

/// Creates the event for a key that is not the first one.
async fn key_event(
    store: &Store,
    key: PublicKey,
    why: &str,
) -> anyhow::Result<Option<NewLockEvent>> {
    let others = store.audit_keys().await?;
    let reason = format!("checkpoints are signed with {key} from now on: {why}");
    let cause = Cause::new(Actor::lockkeeper(Origin::Reconciler), reason);
    let event = NewLockEvent {
        kind: LockEventKind::KeyAdded,
        key: None,
        scope: None,
        pull: None,
        concern: None,
        cause,
    };
    Ok((!others.is_empty()).then_some(event))
}

/// Appends a line, completely or not at all. The file is opened for each line, so that it can be rotated.
fn append(path: &Path, checkpoint: &Checkpoint) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let before = file.metadata()?.len();
    let written = file
        .write_all(format!("{checkpoint}\n").as_bytes())
        .and_then(|()| file.sync_data());
    if written.is_err() {
        // A pipe, or a file that can only grow, keeps what it has.
        file.set_len(before).ok();
    }
    written
}

/// Reads exported checkpoints. All must be authentic.
fn read_exported(path: &Path) -> anyhow::Result<Vec<Checkpoint>> {
    let shown = || {
        format!(
            "cannot read the checkpoints of {} (--audit-checkpoint-file)",
            path.display()
        )
    };
    let mut all = Vec::new();
    for (number, line) in
        (1..).zip(BufReader::new(fs::File::open(path).with_context(shown)?).lines())
    {
        let line = line.with_context(shown)?;
        if line.trim().is_empty() {
            continue;
        }
        match line.parse::<Checkpoint>() {
            Ok(checkpoint) if checkpoint.is_authentic() => all.push(checkpoint),
            Ok(_) => bail!(
                "{}: line {number} was changed: its signature does not match",
                path.display()
            ),
            Err(error) => bail!("{}: line {number}: {error}", path.display()),
        }
    }
    Ok(all)
}
