//! The value of a credential, from flags, files and standard input.

use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use secrecy::zeroize::Zeroizing;

use super::flags::CredentialFlags;
use crate::credential::{CredentialKind, GitAccess};
use crate::secret::Secret;

/// Maximum size of a secret, twice that of the largest keys.
const MAX_BYTES: u64 = 64 * 1024;

/// Sources of the parts of a credential.
pub(super) struct CredentialSource {
    secret: Option<PathBuf>,
    parts: CredentialParts,
}

enum CredentialParts {
    Token {
        user: Option<String>,
    },
    App {
        app_id: u64,
        installation: u64,
    },
    Ssh {
        user: Option<String>,
        port: Option<u16>,
        known_hosts: PathBuf,
    },
}

impl CredentialSource {
    /// Reads the flags of a value.
    pub fn of(kind: CredentialKind, flags: CredentialFlags) -> Result<Self, String> {
        if let Some((flag, _)) = flags.given().find(|(_, kinds)| !kinds.contains(&kind)) {
            return Err(format!("--{flag} cannot be used with {}", kind.words()));
        }
        Ok(Self {
            secret: flags.value_file.clone(),
            parts: CredentialParts::of(kind, flags)?,
        })
    }

    /// Reads the flags of a new value. `None`: none of them was given.
    pub fn of_change(
        kind: Option<CredentialKind>,
        flags: CredentialFlags,
    ) -> Result<Option<Self>, String> {
        let stray = flags.given().next().map(|(flag, _)| flag);
        match (kind, stray) {
            (Some(kind), _) => Self::of(kind, flags).map(Some),
            (None, Some(flag)) => Err(format!("--{flag} needs --kind")),
            (None, None) => Ok(None),
        }
    }

    /// Reads the secret from its source.
    pub fn read(self) -> anyhow::Result<GitAccess> {
        let secret = match &self.secret {
            Some(path) => Secret::new(&read_file("value-file", path)?),
            None => Secret::new(&read_input()?),
        };
        Ok(match self.parts {
            CredentialParts::Token { user } => GitAccess::Token {
                user,
                token: secret,
            },
            CredentialParts::App {
                app_id,
                installation,
            } => GitAccess::App {
                app_id,
                installation,
                key: secret,
            },
            CredentialParts::Ssh {
                user,
                port,
                known_hosts,
            } => {
                let known_hosts = read_file("known-hosts", &known_hosts)?;
                GitAccess::ssh(user, port, secret, known_hosts.to_string())
            }
        })
    }
}

impl CredentialFlags {
    /// Returns the flags that were given, with the kinds of credentials that have them.
    fn given(&self) -> impl Iterator<Item = (&'static str, &'static [CredentialKind])> {
        use CredentialKind::{App, Ssh, Token};
        let flags: [(_, _, &[CredentialKind]); 6] = [
            (self.user.is_some(), "user", &[Token, Ssh]),
            (self.app_id.is_some(), "app-id", &[App]),
            (self.installation_id.is_some(), "installation-id", &[App]),
            (self.known_hosts.is_some(), "known-hosts", &[Ssh]),
            (self.ssh_port.is_some(), "ssh-port", &[Ssh]),
            (self.value_file.is_some(), "value-file", CredentialKind::ALL),
        ];
        flags
            .into_iter()
            .filter_map(|(is_given, flag, kinds)| is_given.then_some((flag, kinds)))
    }
}

impl CredentialParts {
    fn of(kind: CredentialKind, flags: CredentialFlags) -> Result<Self, String> {
        let needed = |number: Option<u64>, flag: &str| {
            number.ok_or_else(|| format!("--{flag} is needed for an App installation"))
        };
        Ok(match kind {
            CredentialKind::Token => Self::Token { user: flags.user },
            CredentialKind::App => Self::App {
                app_id: needed(flags.app_id, "app-id")?,
                installation: needed(flags.installation_id, "installation-id")?,
            },
            CredentialKind::Ssh => Self::Ssh {
                user: flags.user,
                port: flags.ssh_port,
                known_hosts: flags.known_hosts.ok_or(
                    "--known-hosts is needed for an SSH key: print the lines with `ssh-keyscan HOST`, and compare them with \
                     the keys that the host publishes",
                )?,
            },
        })
    }
}

fn read_file(flag: &str, path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let doing = || format!("cannot read {} (--{flag})", path.display());
    read_limited(std::fs::File::open(path).with_context(doing)?).with_context(doing)
}

fn read_input() -> anyhow::Result<Zeroizing<String>> {
    let input = std::io::stdin();
    if input.is_terminal() {
        bail!(
            "a secret cannot be typed into a terminal: name a file with --value-file, or pipe the secret to standard input"
        );
    }
    read_limited(input.lock()).context("cannot read the secret from standard input")
}

fn read_limited(from: impl Read) -> anyhow::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let read = from.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        bail!("it has more than {MAX_BYTES} bytes");
    }
    Ok(text)
}
