//! Kinds of credentials that an owner can store for a repository, their rules, and their public parts.
//!
//! Values are checked here before anything is stored, so that the person who makes a mistake sees the message at once.
//! Otherwise, somebody else would see it weeks later, when a plan fails. No message repeats a value.

mod known_hosts;
mod ssh_key;
mod token;

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::{CredentialId, HostName, OwnerId, text_enum};
use crate::seal::Binding;
use crate::secret::Secret;

pub use known_hosts::InvalidKnownHosts;
pub use ssh_key::InvalidSshKey;

text_enum! {
    /// Kind of a credential.
    pub enum CredentialKind {
        /// A token, for the API and for git over HTTPS.
        Token = "token",
        /// An installation of a GitHub App, for the API and for git over HTTPS.
        App = "app",
        /// An SSH key, for git alone.
        Ssh = "ssh",
    }
}

impl CredentialKind {
    /// Returns the name for people with its article, such as "a token".
    pub const fn words(self) -> &'static str {
        match self {
            Self::Token => "a token",
            Self::App => "an App installation",
            Self::Ssh => "an SSH key",
        }
    }
}

/// Account on which forges accept SSH keys.
const SSH_USER: &str = "git";
const SSH_PORT: u16 = 22;

/// A credential with its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitAccess {
    /// A token for the API and git.
    Token {
        /// Account that the token belongs to, for git. Most forges accept any name beside a token.
        user: Option<String>,
        /// Secret text of the token.
        token: Secret,
    },
    /// An installation of a GitHub App.
    App {
        /// Number of the App.
        app_id: u64,
        /// Number of the installation.
        installation: u64,
        /// RSA key of the App in PEM.
        key: Secret,
    },
    /// An SSH key for git alone.
    Ssh(SshAccess),
}

/// An SSH key, and the keys that identify the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshAccess {
    /// Account on the host, mostly `git`.
    pub user: String,
    /// Port of the SSH server, mostly 22.
    pub port: u16,
    /// Private key in the format of OpenSSH, without a passphrase.
    pub key: Secret,
    /// Keys of the host, as in a `known_hosts` file.
    pub known_hosts: String,
}

/// Reason to refuse a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAccess {
    /// The token is invalid.
    #[error("the token {0}")]
    Token(&'static str),
    /// The name beside the token, or the account on an SSH host, is invalid.
    #[error(
        "the user name must have 1 to 255 letters, digits, dots, hyphens, underscores or brackets, and must not begin \
         with `-`"
    )]
    User,
    /// The number of the App or of its installation is 0.
    #[error("the number of {0} is 0, but GitHub counts from 1")]
    Zero(&'static str),
    /// The key of the App is invalid.
    #[error(
        "the key of the App is not an RSA private key in PEM ({0}). Download one from the settings of the App"
    )]
    AppKey(String),
    /// The SSH key is invalid.
    #[error("the SSH key {0}")]
    SshKey(#[from] InvalidSshKey),
    /// The keys of the host are invalid.
    #[error("known hosts: {0}")]
    KnownHosts(#[from] InvalidKnownHosts),
    /// The port is 0.
    #[error("the port must not be 0")]
    Port,
}

/// Parts of a credential that may be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicParts {
    /// Short hash that distinguishes two secrets and reveals nothing about them. For an SSH key it is the fingerprint
    /// that `ssh-keygen -l` shows.
    pub fingerprint: String,
    /// Account, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Number of the App.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_id: Option<u64>,
    /// Number of the App's installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installation: Option<u64>,
    /// Algorithm of the SSH key, such as `ssh-ed25519`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
}

impl fmt::Display for PublicParts {
    /// Formats the parts in one line, for lists: `user ci-bot, 1f2e3d4c`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "user {user}, ")?;
        }
        if let (Some(app), Some(installation)) = (self.app_id, self.installation) {
            write!(f, "App {app}, installation {installation}, ")?;
        }
        if let Some(algorithm) = &self.algorithm {
            write!(f, "{algorithm}, ")?;
        }
        f.write_str(&self.fingerprint)
    }
}

impl PublicParts {
    fn of(fingerprint: String) -> Self {
        Self {
            fingerprint,
            user: None,
            app_id: None,
            installation: None,
            algorithm: None,
        }
    }
}

impl GitAccess {
    /// Returns the kind of the credential.
    pub const fn kind(&self) -> CredentialKind {
        match self {
            Self::Token { .. } => CredentialKind::Token,
            Self::App { .. } => CredentialKind::App,
            Self::Ssh(_) => CredentialKind::Ssh,
        }
    }

    /// Creates an SSH credential, with the usual account and port as defaults.
    pub fn ssh(user: Option<String>, port: Option<u16>, key: Secret, known_hosts: String) -> Self {
        let user = user.unwrap_or_else(|| SSH_USER.to_owned());
        Self::Ssh(SshAccess {
            user,
            port: port.unwrap_or(SSH_PORT),
            key,
            known_hosts,
        })
    }

    /// Checks everything that can be checked without a request to the host of the repository. Returns the public
    /// parts.
    pub fn check(&self, host: &HostName) -> Result<PublicParts, InvalidAccess> {
        match self {
            Self::Token { user, token } => {
                check_user(user.as_deref())?;
                token::check(token).map_err(InvalidAccess::Token)?;
                Ok(PublicParts {
                    user: user.clone(),
                    ..PublicParts::of(fingerprint(token))
                })
            }
            Self::App {
                app_id,
                installation,
                key,
            } => {
                check_number(*app_id, "the App")?;
                check_number(*installation, "the installation")?;
                token::check_rsa(key).map_err(InvalidAccess::AppKey)?;
                let public = PublicParts::of(fingerprint(key));
                Ok(PublicParts {
                    app_id: Some(*app_id),
                    installation: Some(*installation),
                    ..public
                })
            }
            Self::Ssh(ssh) => ssh.check(host),
        }
    }

    /// Serialises the credential for sealing. The text has every field, so that nobody can change an important one in
    /// the database.
    #[expect(
        clippy::missing_panics_doc,
        reason = "texts and numbers always become JSON"
    )]
    pub fn to_sealed_text(&self) -> Secret {
        let kept = match self {
            Self::Token { user, token } => SealedForm::Token {
                user: user.as_deref().map(Into::into),
                token: token.expose().into(),
            },
            Self::App {
                app_id,
                installation,
                key,
            } => SealedForm::App {
                app_id: *app_id,
                installation: *installation,
                key: key.expose().into(),
            },
            Self::Ssh(SshAccess {
                user,
                port,
                key,
                known_hosts,
            }) => SealedForm::Ssh {
                user: user.as_str().into(),
                port: *port,
                key: key.expose().into(),
                known_hosts: known_hosts.as_str().into(),
            },
        };
        let text = serde_json::to_string(&kept).expect("it consists of texts and numbers");
        Secret::new(&secrecy::zeroize::Zeroizing::new(text))
    }

    /// Reads the text of [`Self::to_sealed_text`].
    pub fn from_sealed_text(text: &Secret) -> Result<Self, serde_json::Error> {
        // The error names a line and a column, but not the values there: the fields are texts and numbers.
        let kept: SealedForm<'_> = serde_json::from_str(text.expose())?;
        Ok(match kept {
            SealedForm::Token { user, token } => Self::Token {
                user: user.map(Into::into),
                token: Secret::new(&token),
            },
            SealedForm::App {
                app_id,
                installation,
                key,
            } => Self::App {
                app_id,
                installation,
                key: Secret::new(&key),
            },
            SealedForm::Ssh {
                user,
                port,
                key,
                known_hosts,
            } => Self::Ssh(SshAccess {
                user: user.into(),
                port,
                key: Secret::new(&key),
                known_hosts: known_hosts.into(),
            }),
        })
    }
}

impl SshAccess {
    fn check(&self, host: &HostName) -> Result<PublicParts, InvalidAccess> {
        check_user(Some(&self.user))?;
        if self.port == 0 {
            return Err(InvalidAccess::Port);
        }
        let key = ssh_key::read(&self.key)?;
        known_hosts::check(&self.known_hosts, host, self.port)?;
        let public = PublicParts::of(key.fingerprint());
        Ok(PublicParts {
            user: Some(self.user.clone()),
            algorithm: Some(key.algorithm),
            ..public
        })
    }
}

/// Form of a credential under the seal.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum SealedForm<'a> {
    Token {
        user: Option<std::borrow::Cow<'a, str>>,
        token: std::borrow::Cow<'a, str>,
    },
    App {
        app_id: u64,
        installation: u64,
        key: std::borrow::Cow<'a, str>,
    },
    Ssh {
        user: std::borrow::Cow<'a, str>,
        port: u16,
        key: std::borrow::Cow<'a, str>,
        known_hosts: std::borrow::Cow<'a, str>,
    },
}

/// Binds a sealed credential to its row, owner, repository and kind. It opens for no other row, owner or repository,
/// nor as another kind. `url` is in normal form.
pub fn binding(id: CredentialId, owner: OwnerId, url: &str, kind: CredentialKind) -> Binding {
    Binding::new(&[
        "credential",
        &id.to_string(),
        &owner.to_string(),
        url,
        kind.as_str(),
    ])
}

fn check_user(user: Option<&str>) -> Result<(), InvalidAccess> {
    let Some(user) = user else { return Ok(()) };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']');
    let valid = (1..=255).contains(&user.len()) && !user.starts_with('-') && user.chars().all(fits);
    if valid {
        Ok(())
    } else {
        Err(InvalidAccess::User)
    }
}

fn check_number(number: u64, what: &'static str) -> Result<(), InvalidAccess> {
    if number == 0 {
        Err(InvalidAccess::Zero(what))
    } else {
        Ok(())
    }
}

/// Returns a few bits of a hash: enough to distinguish two secrets, far too few to test guesses of one.
fn fingerprint(secret: &Secret) -> String {
    let hash = Sha256::new()
        .chain_update("lockkeeper credential\0")
        .chain_update(secret.expose())
        .finalize();
    hex::encode(&hash[..4])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host() -> HostName {
        HostName::new("github.com").unwrap()
    }

    fn token(user: Option<&str>, token: &str) -> GitAccess {
        GitAccess::Token {
            user: user.map(str::to_owned),
            token: Secret::new(token),
        }
    }

    #[test]
    fn of_a_token_its_user_and_a_fingerprint_are_shown() {
        let public = token(Some("renovate[bot]"), "ghp_0123456789abcdef")
            .check(&host())
            .unwrap();
        assert_eq!(public.to_string(), "user renovate[bot], 671aea5c");
        let public = token(None, "ghp_0123456789abcdeg").check(&host()).unwrap();
        assert_eq!(
            serde_json::to_string(&public).unwrap(),
            r#"{"fingerprint":"aecf4e85"}"#
        );
    }

    #[test]
    fn what_is_wrong_with_a_credential_is_said_without_showing_it() {
        let app = |app_id, installation| GitAccess::App {
            app_id,
            installation,
            key: Secret::new("ghp_secret"),
        };
        let ssh = |user: &str, port| {
            GitAccess::ssh(
                Some(user.to_owned()),
                Some(port),
                Secret::new("s3cr3t"),
                String::new(),
            )
        };
        for (access, expected) in [
            (token(None, ""), "the token is empty"),
            (
                token(None, "hunter2"),
                "the token is shorter than 16 characters. Check that it is complete",
            ),
            (
                token(None, "ghp_0123456789 abcdef"),
                "the token has invalid characters",
            ),
            (
                token(Some(""), "ghp_0123456789abcdef"),
                "the user name must have 1 to 255 letters",
            ),
            (
                token(Some("a b"), "ghp_0123456789abcdef"),
                "the user name must have 1 to 255 letters",
            ),
            (
                token(Some("-oProxyCommand=x"), "ghp_0123456789abcdef"),
                "the user name must have 1 to 255 letters",
            ),
            (app(0, 1), "the number of the App is 0"),
            (app(1, 0), "the number of the installation is 0"),
            (
                app(1, 1),
                "the key of the App is not an RSA private key in PEM",
            ),
            (ssh("git", 0), "the port must not be 0"),
            (
                ssh("git", 22),
                "the SSH key is not a private key of OpenSSH",
            ),
        ] {
            let told = access.check(&host()).unwrap_err().to_string();
            assert!(told.starts_with(expected), "{told}");
            assert!(
                !["hunter2", "ghp_", "s3cr3t"]
                    .iter()
                    .any(|secret| told.contains(secret)),
                "{told}"
            );
        }
    }

    #[test]
    fn no_two_rows_have_the_same_binding() {
        let id = |n: u128| uuid::Uuid::from_u128(n);
        let of = |credential, owner, url: &str, kind| {
            binding(id(credential).into(), id(owner).into(), url, kind)
        };
        let all = [
            of(1, 1, "https://a/b/c", CredentialKind::Token),
            of(2, 1, "https://a/b/c", CredentialKind::Token),
            of(1, 2, "https://a/b/c", CredentialKind::Token),
            of(1, 1, "https://a/b/d", CredentialKind::Token),
            of(1, 1, "https://a/b/c", CredentialKind::App),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| one != other), "{at}");
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        "[!-~]([ -~\n\u{e4}]{0,60}[!-~])?"
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read_back_and_never_shown(secret in "[!-~]{16,60}", more in texts(), user in prop::option::of("[a-z]{1,8}"), n in any::<u64>(), m in any::<u64>(), port in any::<u16>()) {
            for access in [
                GitAccess::Token { user: user.clone(), token: Secret::new(&secret) },
                GitAccess::App { app_id: n, installation: m, key: Secret::new(&secret) },
                GitAccess::ssh(user.clone(), Some(port), Secret::new(&secret), more.clone()),
            ] {
                let text = access.to_sealed_text();
                prop_assert_eq!(GitAccess::from_sealed_text(&text).unwrap(), access.clone());
                let told = access.check(&host()).map_or_else(|e| e.to_string(), |p| p.to_string());
                let shown = format!("{access:?} {text:?} {told}");
                prop_assert!(!shown.contains(&secret), "{}", shown);
            }
        }
    }
}
