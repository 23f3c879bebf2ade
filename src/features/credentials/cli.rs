//! `lockkeeper credentials (add | change | list | remove | rotate | keygen)`: credentials of repositories.
//!
//! Secrets come from a file or standard input, never from an argument, because every user of the machine could read it.
//! Stored secrets are never printed.

mod flags;
mod show;
mod value;

use std::sync::Arc;

use anyhow::Context as _;
use clap::ArgMatches;

use self::flags::{CredentialRequest, command};
use crate::claims::{ChangeCredential, CredentialError, CredentialStore};
use crate::clock::{Clock as _, RandomIds, SystemClock};
use crate::config::server::{RawSettings, StorageConfig, forge_hosts};
use crate::kit::term::{
    ExitResult, ExitStatus, Subcommand, Terminal, Usage, actor, block_on, database,
};
use crate::locks::reseal_audit_keys;
use crate::model::{Cause, CredentialId, OwnerName, RepoUrl, Rights};
use crate::seal::{KEY_BYTES, KeyName, key_line, keyring};
use crate::store::Store;

pub(super) const SUBCOMMAND: Subcommand = Subcommand {
    name: "credentials",
    command,
    run,
};

/// Number of credentials that are read at once.
const PART: i64 = 500;

fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let (name, matches) = matches.subcommand().expect("clap demands a subcommand");
    if name == "keygen" {
        return keygen(matches, terminal);
    }
    let raw = settings(matches)?;
    let read = StorageConfig::from_raw(&raw).and_then(|storage| Ok((storage, forge_hosts(&raw)?)));
    let (storage, forges) = read.map_err(Usage::new)?;
    let given = CredentialRequest::read(name, matches, &forges).map_err(Usage::new)?;
    block_on(async {
        let store = database::open(&storage).await?;
        let keys = storage
            .encryption_keys
            .as_deref()
            .map(keyring)
            .transpose()?
            .map(Arc::new);
        let credentials = CredentialStore::new(store.clone(), Arc::new(RandomIds), keys.clone());
        let as_json = matches.get_flag("json");
        match given {
            CredentialRequest::Add { owner, url, value } => {
                let access = value.read()?;
                let kept = credentials
                    .add(&owner, &url, &access, (Rights::Whole, &cause()))
                    .await;
                told(kept.map(|kept| kept.id), &store, "Kept", as_json, terminal).await
            }
            CredentialRequest::Change { id, url, value } => {
                let access = value.map(value::CredentialSource::read).transpose()?;
                let kept = credentials
                    .change(
                        id,
                        ChangeCredential { url, access },
                        (Rights::Whole, &cause()),
                    )
                    .await;
                told(
                    kept.map(|kept| kept.id),
                    &store,
                    "Changed",
                    as_json,
                    terminal,
                )
                .await
            }
            CredentialRequest::List { owner, url } => {
                list(&store, owner.as_ref(), url.as_ref(), as_json, terminal).await
            }
            CredentialRequest::Remove { id } => remove(&store, id, as_json, terminal).await,
            CredentialRequest::Rotate => {
                if let Some(keys) = &keys {
                    // The key of the audit log is encrypted in the same way.
                    reseal_audit_keys(&store, keys).await.context(
                        "the key of the audit log could not be encrypted with the first key",
                    )?;
                }
                rotate(&credentials, as_json, terminal).await
            }
        }
    })?
}

/// Reads the settings from the environment, the flags and the settings file, with the keys and the host of the forge.
fn settings(matches: &ArgMatches) -> anyhow::Result<RawSettings> {
    let mut raw = database::settings(matches)?;
    for flag in [flags::KEY_FILE, flags::HOST] {
        let given = matches.get_one::<String>(flag).cloned();
        raw.flags
            .extend(given.map(|value| (flag.to_owned(), vec![value])));
    }
    Ok(raw)
}

fn cause() -> Cause {
    Cause::new(actor(), "")
}

/// Prints a new line for the file of keys.
fn keygen(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let name = match matches.get_one::<KeyName>("name") {
        Some(name) => name.clone(),
        None => SystemClock
            .now()
            .format("%Y-%m-%d")
            .to_string()
            .parse()
            .expect("a date is a name"),
    };
    let key = secrecy::zeroize::Zeroizing::new(rand::random::<[u8; KEY_BYTES]>());
    terminal.line(key_line(&name, &key).expose())?;
    terminal.note(
        "Put this line first into the file of --encryption-key-file on every server (chmod 600). Restart the servers, and \
         run `lockkeeper credentials rotate`. Keep the older lines below it until that has ended. Keep a copy of the key, \
         but not with the backups of the database: a credential cannot be read without its key.",
    );
    Ok(ExitStatus::Success)
}

/// Prints the result of adding or changing a credential.
async fn told(
    kept: Result<CredentialId, CredentialError>,
    store: &Store,
    deed: &str,
    as_json: bool,
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
    let row = store
        .credential_get(id)
        .await
        .context("the credential cannot be read back")?;
    let Some(row) = row else {
        return Ok(ExitStatus::Success);
    };
    if as_json {
        terminal.line(show::json_line(&row))?;
    } else {
        terminal.line(format_args!("{deed} {}", show::line(&row)))?;
    }
    Ok(ExitStatus::Success)
}

async fn list(
    store: &Store,
    owner: Option<&OwnerName>,
    url: Option<&RepoUrl>,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let owner = match owner {
        Some(name) => match store
            .owner_get(name)
            .await
            .context("the owner cannot be read")?
        {
            Some(owner) => Some(owner.id),
            None => return none(as_json, terminal),
        },
        None => None,
    };
    let mut after = None;
    loop {
        let part = store
            .credential_list(owner, url, after, PART)
            .await
            .context("the credentials cannot be read")?;
        let Some(last) = part.last() else {
            return if after.is_none() {
                none(as_json, terminal)
            } else {
                Ok(ExitStatus::Success)
            };
        };
        after = Some(last.id);
        for row in &part {
            if as_json {
                terminal.line(show::json_line(row))?;
            } else {
                terminal.line(show::line(row))?;
            }
        }
    }
}

fn none(as_json: bool, terminal: &mut Terminal<'_>) -> ExitResult {
    if !as_json {
        terminal.line("No credentials found.")?;
    }
    Ok(ExitStatus::Success)
}

async fn remove(
    store: &Store,
    id: CredentialId,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let Some(row) = store
        .credential_remove(id, &cause())
        .await
        .context("the credential was not removed")?
    else {
        terminal.note(format_args!("error: {}", CredentialError::NotThere(id)));
        return Ok(ExitStatus::Failure);
    };
    if as_json {
        terminal.line(show::json_line(&row))?;
    } else {
        terminal.line(format_args!("Removed {}", show::line(&row)))?;
    }
    Ok(ExitStatus::Success)
}

async fn rotate(
    credentials: &CredentialStore,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let rotation = credentials
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
    let key = credentials
        .first_key()
        .map(ToString::to_string)
        .unwrap_or_default();
    if as_json {
        terminal.line(show::json_rotation(&key, &rotation))?;
    } else {
        terminal.line(show::rotation(&key, &rotation))?;
    }
    Ok(if rotation.is_complete() {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
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
