//! Manages the credentials for requests to GitHub.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::AsyncReadExt;

use super::app::{App, TokenReach};
use super::call::{Call, RequestFailure, SuccessResponse};
use super::installations::Installations;
use super::wire::{Pass, Wire};
use super::{GitHubSetupError, USER_OF_TOKENS};
use crate::forges::GitCredentials;
use crate::model::RepoId;
use crate::secret::Secret;

/// Maximum size of a token file in bytes; GitHub's longest tokens have about a hundred.
const MAX_TOKEN: u64 = 4096;

/// Credentials that an administrator can configure.
#[derive(Clone, Debug)]
pub enum GitHubAuth {
    /// Personal access token (`--gh-user` with `--gh-token` or `--gh-token-file`).
    Token {
        /// Account of the token.
        user: Option<String>,
        token: TokenSource,
    },
    /// GitHub App (`--gh-app-id` with `--gh-app-key` or `--gh-app-key-file`).
    App {
        /// Id of the App.
        app_id: u64,
        /// RSA key of the App in PEM.
        key: Secret,
        /// Installation for events that do not name one (`--gh-app-installation-id`).
        installation: Option<u64>,
    },
}

/// Place of a token.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// Token from the configuration.
    Fixed(Secret),
    /// File with the token, which another program may replace at any time (reference 2.9).
    File(PathBuf),
}

impl TokenSource {
    /// Reads the current token. The file is read each time: this is cheap compared with a request, and file times are
    /// too coarse to notice every change.
    async fn read(&self) -> Result<Secret, String> {
        let token = match self {
            Self::Fixed(token) => token.clone(),
            Self::File(path) => read_file(path).await.map_err(|error| {
                format!("cannot read the token file `{}`: {error}", path.display())
            })?,
        };
        let usable = token.expose().bytes().all(|c| c.is_ascii_graphic());
        match self {
            Self::File(path) if token.is_empty() => {
                Err(format!("the token file `{}` is empty", path.display()))
            }
            Self::Fixed(_) if token.is_empty() => Err("the token is empty".to_owned()),
            Self::Fixed(_) | Self::File(_) if !usable => {
                Err("the token has invalid characters".to_owned())
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

/// Credentials that requests use.
pub(super) enum ClientCredentials {
    Token {
        user: Option<String>,
        token: TokenSource,
    },
    App(Box<App>),
}

impl ClientCredentials {
    pub fn new(auth: GitHubAuth) -> Result<Self, GitHubSetupError> {
        Ok(match auth {
            GitHubAuth::Token { user, token } => Self::Token { user, token },
            GitHubAuth::App {
                app_id,
                key,
                installation,
            } => Self::App(Box::new(App::new(app_id, &key, installation)?)),
        })
    }

    /// Sends a request about a repository.
    pub async fn send(
        &self,
        wire: &Wire,
        repo: &RepoId,
        call: &Call,
    ) -> Result<SuccessResponse, RequestFailure> {
        match self {
            Self::Token { token, .. } => wire.send(call, &pass_of(wire, token).await?).await,
            Self::App(app) => app.send(wire, repo, call).await,
        }
    }

    /// Returns the id of the App that may write check runs of a repository. Only Apps may, and only with a permission
    /// of their own.
    pub async fn writes_checks(
        &self,
        wire: &Wire,
        repo: &RepoId,
    ) -> Result<Option<u64>, RequestFailure> {
        match self {
            Self::Token { .. } => Ok(None),
            Self::App(app) => app.writes_checks(wire, repo).await,
        }
    }

    /// Returns true if requests use a separate token for each owner of repositories, so that each owner has separate
    /// limits.
    pub fn are_per_owner(&self) -> bool {
        match self {
            Self::Token { .. } => false,
            Self::App(_) => true,
        }
    }

    /// Returns user name and password for git.
    pub async fn git(&self, wire: &Wire, repo: &RepoId) -> Result<GitCredentials, RequestFailure> {
        self.git_within(wire, repo, TokenReach::Whole).await
    }

    /// Returns user name and password to read the code of the same installation, or the code that the token may read.
    /// A token of an App is created with this permission alone.
    pub async fn git_to_read(
        &self,
        wire: &Wire,
        repo: &RepoId,
    ) -> Result<GitCredentials, RequestFailure> {
        self.git_within(wire, repo, TokenReach::ReadContents).await
    }

    async fn git_within(
        &self,
        wire: &Wire,
        repo: &RepoId,
        reach: TokenReach,
    ) -> Result<GitCredentials, RequestFailure> {
        let (user, password) = match self {
            Self::Token { user, token } => (user.as_deref(), read_token(wire, token).await?),
            Self::App(app) => (None, app.git_token(wire, repo, reach).await?),
        };
        Ok(GitCredentials::new(
            user.unwrap_or(USER_OF_TOKENS).to_owned(),
            password,
        ))
    }

    /// Returns the installations of an App.
    pub fn installations(&self) -> Option<Arc<Installations>> {
        match self {
            Self::Token { .. } => None,
            Self::App(app) => Some(Arc::clone(&app.installations)),
        }
    }

    /// Looks up the installation of a repository again before the next request.
    pub fn doubt(&self, repo: &RepoId) {
        match self {
            Self::Token { .. } => {}
            Self::App(app) => app.installations.doubt(repo),
        }
    }

    /// Returns the name that was configured with a token.
    pub fn configured_login(&self) -> Option<&str> {
        match self {
            Self::App(_) => None,
            Self::Token { user, .. } => user.as_deref(),
        }
    }

    /// Returns the login under which comments of Lockkeeper appear.
    pub async fn login(&self, wire: &Wire) -> Result<String, RequestFailure> {
        match self {
            Self::App(app) => app.login(wire).await,
            Self::Token { user, token } => user_login(wire, user.as_deref(), token).await,
        }
    }
}

/// Returns the pass for a request that concerns no repository.
pub(super) async fn pass_of(wire: &Wire, token: &TokenSource) -> Result<Pass, RequestFailure> {
    read_token(wire, token).await.map(Pass::of_token)
}

async fn read_token(wire: &Wire, token: &TokenSource) -> Result<Secret, RequestFailure> {
    // A file that is being replaced is whole again in a moment, so this failure is temporary.
    token
        .read()
        .await
        .map_err(|message| RequestFailure::passing(&wire.host, "any request", &message))
}

/// Asks GitHub for the login. Some valid tokens may not read their own account; then the configured name is used.
async fn user_login(
    wire: &Wire,
    configured: Option<&str>,
    token: &TokenSource,
) -> Result<String, RequestFailure> {
    #[derive(serde::Deserialize)]
    struct UserPayload {
        login: String,
    }
    let call = Call::get("/user".to_owned(), "the account of the token");
    let failure = match wire.send(&call, &pass_of(wire, token).await?).await {
        Ok(answer) => {
            return answer
                .json::<UserPayload>(&wire.host, &call.what)
                .map(|user| user.login);
        }
        Err(failure) => failure,
    };
    match configured {
        Some(user) if failure.is_of_another_kind() => {
            tracing::warn!(host = %wire.host, user, "The token cannot read its own account; `{user}` is assumed");
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
            @"cannot read the token file `DIR/token`: No such file or directory (os error 2)"
        );
        std::fs::write(&path, " \n").unwrap();
        insta::assert_snapshot!(told(TokenSource::File(path)).await, @"the token file `DIR/token` is empty");
        insta::assert_snapshot!(told(TokenSource::Fixed(Secret::new(""))).await, @"the token is empty");
        insta::assert_snapshot!(
            told(TokenSource::Fixed(Secret::new("ghp_a\nb"))).await,
            @"the token has invalid characters"
        );
    }
}
