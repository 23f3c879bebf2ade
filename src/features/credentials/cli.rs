//! `lockkeeper credentials (add | change | list | remove | rotate | keygen)`: credentials of repositories.
//!
//! Secrets come from a file or standard input, never from an argument, because every user of the machine could read it.
//! Stored secrets are never printed.

mod flags;
mod show;
mod value;

use std::sync::Arc;

use anyhow::Context as _;

pub(super) use self::flags::CredentialsArgs;
use self::value::CredentialSource;
use crate::claims::{ChangeCredential, CredentialError, CredentialStore};
use crate::clock::{Clock as _, SystemClock};
use crate::features::registry::reseal_signing_key;
use crate::kit::term::{
    ExitResult, ExitStatus, OutputFormat, SubcommandArgs, Terminal, Usage, actor, block_on,
};
use crate::locks::reseal_audit_keys;
use crate::model::{Cause, CredentialId, OwnerName, RepoUrl, Rights};
use crate::seal::{KEY_BYTES, KeyName, Keyring, key_line};
use crate::store::Store;

/// Number of credentials that are read at once.
const PART: i64 = 500;

impl SubcommandArgs for CredentialsArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::Add {
                    owner,
                    url,
                    kind,
                    value,
                    server,
                } => {
                    let settings = server.settings()?;
                    let url = settings.repo(&url)?;
                    let source = CredentialSource::of(kind, value).map_err(Usage::new)?;
                    let session = settings.open().await?;
                    session.add(&owner, &url, source, terminal).await
                }
                Self::Change {
                    id,
                    url,
                    kind,
                    value,
                    server,
                } => {
                    let settings = server.settings()?;
                    let url = url.map(|url| settings.repo(&url)).transpose()?;
                    let source = CredentialSource::of_change(kind, value).map_err(Usage::new)?;
                    if url.is_none() && source.is_none() {
                        let problem =
                            "no change was requested: set --url, or --kind and the new value";
                        return Err(Usage::new(problem).into());
                    }
                    let session = settings.open().await?;
                    session.change(id, url, source, terminal).await
                }
                Self::List { owner, url, server } => {
                    let settings = server.settings()?;
                    let url = url.map(|url| settings.repo(&url)).transpose()?;
                    let session = settings.open().await?;
                    session.list(owner.as_ref(), url.as_ref(), terminal).await
                }
                Self::Remove { id, server } => {
                    let session = server.settings()?.open().await?;
                    session.remove(id, terminal).await
                }
                Self::Rotate { server } => {
                    let session = server.settings()?.open().await?;
                    session.rotate(terminal).await
                }
                Self::Keygen { name } => keygen(name, terminal),
            }
        })?
    }
}

fn cause() -> Cause {
    Cause::new(actor(), "")
}

/// Prints a new line for the file of keys.
fn keygen(name: Option<KeyName>, terminal: &mut Terminal<'_>) -> ExitResult {
    let name = name.unwrap_or_else(|| {
        let today = SystemClock.now().format("%Y-%m-%d").to_string();
        today.parse().expect("a date is a name")
    });
    let key = secrecy::zeroize::Zeroizing::new(rand::random::<[u8; KEY_BYTES]>());
    terminal.line(key_line(&name, &key).expose())?;
    terminal.note(
        "Put this line first into the file of --encryption-key-file on every server (chmod 600). Restart the servers, and \
         run `lockkeeper credentials rotate`. Keep the older lines below it until that has ended. Keep a copy of the key, \
         but not with the backups of the database: a credential cannot be read without its key.",
    );
    Ok(ExitStatus::Success)
}

/// Database, keys and format of the output of these commands.
struct CredentialSession {
    credentials: CredentialStore,
    store: Store,
    keys: Option<Arc<Keyring>>,
    format: OutputFormat,
}

impl CredentialSession {
    async fn add(
        &self,
        owner: &OwnerName,
        url: &RepoUrl,
        source: CredentialSource,
        terminal: &mut Terminal<'_>,
    ) -> ExitResult {
        let access = source.read()?;
        let rights = (Rights::Whole, &cause());
        let kept = self.credentials.add(owner, url, &access, rights).await;
        self.print_result(kept.map(|kept| kept.id), "Kept", terminal)
            .await
    }

    async fn change(
        &self,
        id: CredentialId,
        url: Option<RepoUrl>,
        source: Option<CredentialSource>,
        terminal: &mut Terminal<'_>,
    ) -> ExitResult {
        let access = source.map(CredentialSource::read).transpose()?;
        let (change, rights) = (ChangeCredential { url, access }, (Rights::Whole, &cause()));
        let kept = self.credentials.change(id, change, rights).await;
        let id = kept.map(|kept| kept.id);
        self.print_result(id, "Changed", terminal).await
    }

    /// Prints the result of adding or changing a credential.
    async fn print_result(
        &self,
        kept: Result<CredentialId, CredentialError>,
        action: &str,
        terminal: &mut Terminal<'_>,
    ) -> ExitResult {
        let id = match kept {
            Ok(id) => id,
            Err(CredentialError::Store(error)) => {
                return Err(error).context("the credential was not stored");
            }
            Err(error) => {
                terminal.note(format_args!("error: {error}"));
                return Ok(ExitStatus::Failure);
            }
        };
        let row = self
            .store
            .credential_get(id)
            .await
            .context("the credential cannot be read back")?;
        if let Some(row) = row {
            let text = || format!("{action} {}", show::line(&row));
            self.format
                .print(terminal, || show::json_line(&row), text)?;
        }
        Ok(ExitStatus::Success)
    }

    async fn list(
        &self,
        owner: Option<&OwnerName>,
        url: Option<&RepoUrl>,
        terminal: &mut Terminal<'_>,
    ) -> ExitResult {
        let owner = match owner {
            Some(name) => match self
                .store
                .owner_get(name)
                .await
                .context("the owner cannot be read")?
            {
                Some(owner) => Some(owner.id),
                None => return self.none(terminal),
            },
            None => None,
        };
        let mut after = None;
        loop {
            let part = self
                .store
                .credential_list(owner, url, after, PART)
                .await
                .context("the credentials cannot be read")?;
            let Some(last) = part.last() else {
                return if after.is_none() {
                    self.none(terminal)
                } else {
                    Ok(ExitStatus::Success)
                };
            };
            after = Some(last.id);
            for row in &part {
                self.format
                    .print(terminal, || show::json_line(row), || show::line(row))?;
            }
        }
    }

    fn none(&self, terminal: &mut Terminal<'_>) -> ExitResult {
        if !self.format.is_json() {
            terminal.line("No credentials found.")?;
        }
        Ok(ExitStatus::Success)
    }

    async fn remove(&self, id: CredentialId, terminal: &mut Terminal<'_>) -> ExitResult {
        let Some(row) = self
            .store
            .credential_remove(id, &cause())
            .await
            .context("the credential was not removed")?
        else {
            terminal.note(format_args!("error: {}", CredentialError::NotFound(id)));
            return Ok(ExitStatus::Failure);
        };
        let text = || format!("Removed {}", show::line(&row));
        self.format
            .print(terminal, || show::json_line(&row), text)?;
        Ok(ExitStatus::Success)
    }

    async fn rotate(&self, terminal: &mut Terminal<'_>) -> ExitResult {
        if let Some(keys) = &self.keys {
            // The key of the audit log is encrypted in the same way.
            reseal_audit_keys(&self.store, keys)
                .await
                .context("the key of the audit log could not be encrypted with the first key")?;
            reseal_signing_key(&self.store, keys).await.context(
                "the signing key of the registry could not be encrypted with the first key",
            )?;
        }
        let rotation = self
            .credentials
            .rotate(|done| terminal.note(format_args!("{done} …")))
            .await;
        let rotation = match rotation {
            Ok(rotation) => rotation,
            Err(CredentialError::Store(error)) => {
                return Err(error).context("not all credentials were encrypted with the first key");
            }
            Err(error) => {
                terminal.note(format_args!("error: {error}"));
                return Ok(ExitStatus::Failure);
            }
        };
        for (id, reason) in &rotation.named {
            terminal.note(format_args!(
                "error: the credential {id} cannot be read: {reason}"
            ));
        }
        let key = self.credentials.first_key();
        let key = key.map(ToString::to_string).unwrap_or_default();
        let json = || show::json_rotation(&key, &rotation);
        self.format
            .print(terminal, json, || show::rotation(&key, &rotation))?;
        Ok(if rotation.is_complete() {
            ExitStatus::Success
        } else {
            ExitStatus::Failure
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::call;
    use crate::seal::Keyring;

    #[test]
    fn a_new_line_is_a_key_by_itself_and_never_the_same() {
        let (exit, one, note) = call(&["credentials", "keygen", "--name", "2026-11"]);
        assert_eq!(exit, ExitStatus::Success);
        assert!(note.contains("chmod 600"), "{note}");
        assert_eq!(Keyring::parse(&one).unwrap().first().as_str(), "2026-11");
        let (_, two, _) = call(&["credentials", "keygen"]);
        assert!(Keyring::parse(&two).is_ok() && one != two);
        assert_eq!(
            call(&["credentials", "keygen", "--name", "a b"]).0,
            ExitStatus::Usage
        );
    }

    #[test]
    fn half_a_credential_is_a_usage_error() {
        let add = [
            "credentials",
            "add",
            "--owner",
            "net",
            "--url",
            "https://github.com/acme/infra",
        ];
        for (more, expected) in [
            (
                ["--kind", "app", "--app-id", "7"].as_slice(),
                "--installation-id",
            ),
            (&["--kind", "ssh"], "--known-hosts"),
            (
                &["--kind", "token", "--app-id", "7"],
                "--app-id cannot be used with a token",
            ),
            (
                &["--kind", "app", "--user", "x"],
                "--user cannot be used with an App installation",
            ),
            (&["--kind", "password"], "password"),
            (&["--value", "ghp_x"], "--value"),
        ] {
            let (exit, out, err) = call(&[add.as_slice(), more].concat());
            assert_eq!(
                (exit, out),
                (ExitStatus::Usage, String::new()),
                "{more:?} {err}"
            );
            assert!(err.contains(expected), "{more:?} {err}");
        }
        let (exit, _, err) = call(&[
            "credentials",
            "add",
            "--owner",
            "net",
            "--url",
            "/srv/git/x",
        ]);
        assert_eq!(exit, ExitStatus::Usage, "{err}");
    }
}
