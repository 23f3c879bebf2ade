//! With which credentials Lockkeeper speaks to GitHub.

use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt;

use super::app::{App, Reach};
use super::call::{Answer, Call, Failure};
use super::wire::{Pass, Wire};
use super::{GitHubSetupError, USER_OF_TOKENS};
use crate::model::RepoId;
use crate::secret::Secret;
use crate::vcs::{GitCredentials, Installation};

/// Most bytes read of a token file; GitHub's longest tokens have about a hundred.
const MAX_TOKEN: u64 = 4096;

/// The credentials an operator can give.
#[derive(Clone, Debug)]
pub enum GitHubAuth {
    /// A personal access token (`--gh-user` with `--gh-token` or `--gh-token-file`).
    Token {
        /// The account it belongs to.
        user: Option<String>,
        /// Where it is.
        token: TokenSource,
    },
    /// A GitHub App (`--gh-app-id` with `--gh-app-key` or `--gh-app-key-file`).
    App {
        /// Its number.
        app_id: u64,
        /// Its RSA key in PEM.
        key: Secret,
        /// The installation for events that do not name one (`--gh-app-installation-id`).
        installation: Option<u64>,
    },
}

/// Where a token is.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// In the configuration.
    Fixed(Secret),
    /// In a file that somebody else may replace at any time (reference 2.9).
    File(PathBuf),
}

impl TokenSource {
    /// The token as it is now. The file is read each time: it is small beside a request, and the times of files are too
    /// coarse to notice every change.
    async fn read(&self) -> Result<Secret, String> {
        let token = match self {
            Self::Fixed(token) => token.clone(),
            Self::File(path) => read_file(path).await.map_err(|error| {
                format!(
                    "the token file `{}` cannot be read: {error}",
                    path.display()
                )
            })?,
        };
        let usable = token.expose().bytes().all(|c| c.is_ascii_graphic());
        match self {
            Self::File(path) if token.is_empty() => {
                Err(format!("the token file `{}` is empty", path.display()))
            }
            Self::Fixed(_) if token.is_empty() => Err("the token is empty".to_owned()),
            Self::Fixed(_) | Self::File(_) if !usable => {
                Err("the token has characters that no token can have".to_owned())
            }
            Self::Fixed(_) | Self::File(_) => Ok(token),
        }
    }
}

async fn read_file(path: &Path) -> std::io::Result<Secret> {
    let mut text = String::new();
    tokio::fs::File::open(path)
        .await?
        .take(MAX_TOKEN)
        .read_to_string(&mut text)
        .await?;
    Ok(Secret::new(&text))
}

/// The credentials at work.
pub(super) enum Credentials {
    Token {
        user: Option<String>,
        token: TokenSource,
    },
    App(App),
}

impl Credentials {
    pub fn new(auth: GitHubAuth) -> Result<Self, GitHubSetupError> {
        Ok(match auth {
            GitHubAuth::Token { user, token } => Self::Token { user, token },
            GitHubAuth::App {
                app_id,
                key,
                installation,
            } => Self::App(App::new(app_id, &key, installation)?),
        })
    }

    /// Sends a request about a repository. A cached token of an installation that GitHub no longer takes is replaced
    /// once: a request that was refused with 401 had no effect.
    pub async fn send(
        &self,
        wire: &Wire,
        repo: &RepoId,
        via: Installation,
        call: &Call,
    ) -> Result<Answer, Failure> {
        let (pass, installation) = self.pass(wire, repo, via).await?;
        let outcome = wire.send(call, &pass).await;
        let refused = outcome
            .as_ref()
            .is_err_and(|failure| failure.status.is_some_and(|status| status == 401));
        match (self, installation) {
            (Self::App(app), Some(installation)) if refused => {
                app.forget(installation, &pass.token).await;
                let (pass, _) = self.pass(wire, repo, Some(installation)).await?;
                wire.send(call, &pass).await
            }
            (Self::App(_) | Self::Token { .. }, _) => outcome,
        }
    }

    /// Whether each owner of repositories is asked with a token of their own, so has limits of their own.
    pub fn are_per_owner(&self) -> bool {
        match self {
            Self::Token { .. } => false,
            Self::App(_) => true,
        }
    }

    /// What a request about a repository goes with, and of which installation that is.
    async fn pass(
        &self,
        wire: &Wire,
        repo: &RepoId,
        via: Installation,
    ) -> Result<(Pass, Installation), Failure> {
        match self {
            Self::Token { token, .. } => Ok((Pass::of_token(read_token(wire, token).await?), None)),
            Self::App(app) => {
                let installation = app.installation(wire, repo, via).await?;
                let token = app.token(wire, installation, Reach::Whole).await?;
                Ok((
                    Pass {
                        token,
                        credential: format!("installation {installation}"),
                    },
                    Some(installation),
                ))
            }
        }
    }

    /// User name and password for git.
    pub async fn git(
        &self,
        wire: &Wire,
        repo: &RepoId,
        via: Installation,
    ) -> Result<GitCredentials, Failure> {
        let password = self.pass(wire, repo, via).await?.0.token;
        let user = match self {
            Self::Token { user, .. } => user.as_deref(),
            Self::App(_) => None,
        };
        Ok(GitCredentials::new(
            user.unwrap_or(USER_OF_TOKENS).to_owned(),
            password,
        ))
    }

    /// User name and password with which code may be read that belongs to the same installation, or that the token may
    /// read: a token of an App is made for nothing else.
    pub async fn git_to_read(
        &self,
        wire: &Wire,
        repo: &RepoId,
        via: Installation,
    ) -> Result<GitCredentials, Failure> {
        match self {
            Self::Token { .. } => self.git(wire, repo, via).await,
            Self::App(app) => {
                let installation = app.installation(wire, repo, via).await?;
                let token = app.token(wire, installation, Reach::ReadContents).await?;
                Ok(GitCredentials::new(USER_OF_TOKENS.to_owned(), token))
            }
        }
    }

    /// The name that came with a token.
    pub fn configured_login(&self) -> Option<&str> {
        match self {
            Self::App(_) => None,
            Self::Token { user, .. } => user.as_deref(),
        }
    }

    /// The login under which comments of Lockkeeper appear.
    pub async fn login(&self, wire: &Wire) -> Result<String, Failure> {
        match self {
            Self::App(app) => app.login(wire).await,
            Self::Token { user, token } => user_login(wire, user.as_deref(), token).await,
        }
    }
}

/// What goes with a request that is about no repository.
pub(super) async fn pass_of(wire: &Wire, token: &TokenSource) -> Result<Pass, Failure> {
    read_token(wire, token).await.map(Pass::of_token)
}

async fn read_token(wire: &Wire, token: &TokenSource) -> Result<Secret, Failure> {
    // A file that is being replaced is whole again in a moment, so this is a passing fault.
    token
        .read()
        .await
        .map_err(|message| Failure::passing(&wire.host, "any request", &message))
}

/// Asks GitHub; some tokens work but may not read their own account, for those the configured name has to do.
async fn user_login(
    wire: &Wire,
    configured: Option<&str>,
    token: &TokenSource,
) -> Result<String, Failure> {
    #[derive(serde::Deserialize)]
    struct User {
        login: String,
    }
    let call = Call::get("/user".to_owned(), "the account of the token");
    let failure = match wire.send(&call, &pass_of(wire, token).await?).await {
        Ok(answer) => {
            return answer
                .json::<User>(&wire.host, &call.what)
                .map(|user| user.login);
        }
        Err(failure) => failure,
    };
    match configured {
        Some(user) if failure.is_of_another_kind() => {
            tracing::warn!(host = %wire.host, user, "The token may not read its own account; `{user}` is taken to be it");
            Ok(user.to_owned())
        }
        _ => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_file_is_read_anew_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let source = TokenSource::File(path.clone());
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(source.read().await.unwrap().expose(), "one");
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(source.read().await.unwrap().expose(), "two");
    }

    #[tokio::test]
    async fn useless_tokens_are_explained_without_showing_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let told = async |source: TokenSource| {
            let shown = folder.path().display().to_string();
            source.read().await.unwrap_err().replace(&shown, "DIR")
        };
        insta::assert_snapshot!(
            told(TokenSource::File(path.clone())).await,
            @"the token file `DIR/token` cannot be read: No such file or directory (os error 2)"
        );
        std::fs::write(&path, " \n").unwrap();
        insta::assert_snapshot!(told(TokenSource::File(path)).await, @"the token file `DIR/token` is empty");
        insta::assert_snapshot!(told(TokenSource::Fixed(Secret::new(""))).await, @"the token is empty");
        insta::assert_snapshot!(
            told(TokenSource::Fixed(Secret::new("ghp_a\nb"))).await,
            @"the token has characters that no token can have"
        );
    }
}
