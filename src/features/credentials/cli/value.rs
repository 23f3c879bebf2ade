//! The value of a credential, from flags, files and standard input.

use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ArgMatches;
use secrecy::zeroize::Zeroizing;

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
    /// Reads the flags of a value. `None`: none of them was given.
    pub fn of(matches: &ArgMatches) -> Result<Option<Self>, String> {
        const FOR: [(&str, &[CredentialKind]); 5] = [
            ("user", &[CredentialKind::Token, CredentialKind::Ssh]),
            ("app-id", &[CredentialKind::App]),
            ("installation-id", &[CredentialKind::App]),
            ("known-hosts", &[CredentialKind::Ssh]),
            ("ssh-port", &[CredentialKind::Ssh]),
        ];
        let secret = matches.get_one::<PathBuf>("value-file").cloned();
        let Some(kind) = matches.get_one::<String>("kind") else {
            let stray = FOR
                .iter()
                .map(|(flag, _)| *flag)
                .chain(["value-file"])
                .find(|flag| matches.contains_id(flag));
            return stray.map_or(Ok(None), |flag| Err(format!("--{flag} needs --kind")));
        };
        let kind: CredentialKind = kind.parse()?;
        if let Some((flag, _)) = FOR
            .iter()
            .find(|(flag, kinds)| matches.contains_id(flag) && !kinds.contains(&kind))
        {
            return Err(format!("--{flag} cannot be used with {}", kind.words()));
        }
        Ok(Some(Self {
            secret,
            parts: CredentialParts::of(kind, matches)?,
        }))
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

impl CredentialParts {
    fn of(kind: CredentialKind, matches: &ArgMatches) -> Result<Self, String> {
        let user = matches.get_one::<String>("user").cloned();
        let needed = |flag: &str| {
            let number = matches.get_one::<u64>(flag).copied();
            number.ok_or_else(|| format!("--{flag} is needed for an App installation"))
        };
        Ok(match kind {
            CredentialKind::Token => Self::Token { user },
            CredentialKind::App => Self::App { app_id: needed("app-id")?, installation: needed("installation-id")? },
            CredentialKind::Ssh => Self::Ssh {
                user,
                port: matches.get_one("ssh-port").copied(),
                known_hosts: matches.get_one::<PathBuf>("known-hosts").cloned().ok_or(
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
