//! Authenticates as a GitHub App. The App signs a short-lived JWT to identify itself, and exchanges it for a token
//! per installation (GitHub REST: "Authenticating as a GitHub App", "Generating an installation access token").
//!
//! Tokens are cached by Lockkeeper's clock and not by octocrab. Octocrab's cache reads the machine's clock and does
//! not limit the size of the answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use chrono::{DateTime, TimeDelta, Utc};
use octocrab::jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::call::{Call, RequestFailure, SuccessResponse};
use super::installations::Installations;
use super::permissions::AppFacts;
use super::wire::{Pass, Wire};
use super::{GitHubSetupError, url_segments};
use crate::model::RepoId;
use crate::secret::Secret;

/// Backdating of a JWT. Without it, a JWT of a server with a fast clock would come from the future.
const JWT_BACKDATED: TimeDelta = TimeDelta::seconds(60);
/// Lifetime of a JWT. GitHub accepts JWTs that end within ten minutes; this is one less for a slow clock.
const JWT_LASTS: TimeDelta = TimeDelta::minutes(9);
/// Minimum remaining lifetime of a token; an older one is replaced. A git fetch that starts with the token must be
/// able to finish, and to fetch missing objects. GitHub's tokens are valid for an hour; a fetch has 30 minutes,
/// unless `--fetch-timeout` says otherwise.
const TOKEN_MARGIN: TimeDelta = TimeDelta::minutes(35);

/// GitHub App with its cached installations and tokens.
pub(super) struct App {
    id: u64,
    key: EncodingKey,
    pub installations: Arc<Installations>,
    tokens: Mutex<HashMap<(u64, TokenReach), TokenSlot>>,
}

/// Permissions of an installation token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum TokenReach {
    /// All permissions of the App.
    Whole,
    /// Permission to read the contents of the installation's repositories.
    ReadContents,
}

/// Slot for the token of an installation. It is locked while the token is being replaced, so that a burst of requests
/// asks once.
type TokenSlot = Arc<tokio::sync::Mutex<Option<IssuedToken>>>;

#[derive(Clone)]
struct IssuedToken {
    token: Secret,
    expires: DateTime<Utc>,
    /// True if the installation has the permission to write check runs. The App may have more permissions than its
    /// installations, whose owners accept new ones.
    writes_checks: bool,
}

#[derive(Serialize)]
struct AppClaims {
    /// Id of the App, as a number: older GitHub Enterprise Servers refuse a text.
    iss: u64,
    iat: i64,
    exp: i64,
}

impl App {
    pub fn new(id: u64, key: &Secret, configured: Option<u64>) -> Result<Self, GitHubSetupError> {
        let key = EncodingKey::from_rsa_pem(key.expose().as_bytes())
            .map_err(|error| GitHubSetupError::AppKey(error.to_string()))?;
        Ok(Self {
            id,
            key,
            installations: Arc::new(Installations::new(configured)),
            tokens: Mutex::default(),
        })
    }

    /// Sends a request about a repository. A request that GitHub refused had no effect. So it is sent again with a new
    /// token if GitHub no longer accepts the cached one, and with another installation if GitHub names another one.
    pub async fn send(
        &self,
        wire: &Wire,
        repo: &RepoId,
        call: &Call,
    ) -> Result<SuccessResponse, RequestFailure> {
        let Some(installation) = self.installations.for_api(repo) else {
            let installation = self.look_up(wire, repo).await?;
            return self.send_as(wire, installation, call).await;
        };
        let outcome = self.send_as(wire, installation, call).await;
        let Err(failure) = &outcome else {
            return outcome;
        };
        // A request that follows redirects finds a transferred repository, which has another installation.
        let is_answered = self.installations.answered(repo) == Some(installation) && !call.follow;
        if is_answered || !failure.is_of_credentials() {
            return outcome;
        }
        self.installations.doubt(repo);
        match self.look_up(wire, repo).await {
            Ok(other) if other != installation => self.send_as(wire, other, call).await,
            Ok(_) | Err(_) => outcome,
        }
    }

    async fn send_as(
        &self,
        wire: &Wire,
        installation: u64,
        call: &Call,
    ) -> Result<SuccessResponse, RequestFailure> {
        let mut token = self.token(wire, installation, TokenReach::Whole).await?;
        let pass = |token: &Secret| Pass {
            token: token.clone(),
            credential: format!("installation {installation}"),
        };
        let outcome = wire.send(call, &pass(&token)).await;
        if !matches!(&outcome, Err(failure) if failure.status == Some(StatusCode::UNAUTHORIZED)) {
            return outcome;
        }
        self.forget(installation, &token).await;
        token = self.token(wire, installation, TokenReach::Whole).await?;
        wire.send(call, &pass(&token)).await
    }

    /// Returns the id of the App if it may write check runs of a repository. GitHub names the permissions of an
    /// installation with each of its tokens, so this costs no request while a token is cached.
    pub async fn writes_checks(
        &self,
        wire: &Wire,
        repo: &RepoId,
    ) -> Result<Option<u64>, RequestFailure> {
        let installation = match self.installations.for_api(repo) {
            Some(installation) => installation,
            None => self.look_up(wire, repo).await?,
        };
        let issued = self.issued(wire, installation, TokenReach::Whole).await;
        let issued = match issued {
            Err(failure) if failure.is_of_credentials() => {
                self.installations.doubt(repo);
                let other = self.look_up(wire, repo).await?;
                if other == installation {
                    return Err(failure);
                }
                self.issued(wire, other, TokenReach::Whole).await?
            }
            issued => issued?,
        };
        Ok(issued.writes_checks.then_some(self.id))
    }

    /// Returns a token for git.
    pub async fn git_token(
        &self,
        wire: &Wire,
        repo: &RepoId,
        reach: TokenReach,
    ) -> Result<Secret, RequestFailure> {
        let Some(installation) = self.installations.for_git(repo) else {
            let installation = self.look_up(wire, repo).await?;
            return self.token(wire, installation, reach).await;
        };
        let outcome = self.token(wire, installation, reach).await;
        if !matches!(&outcome, Err(failure) if failure.is_of_credentials()) {
            return outcome;
        }
        self.installations.doubt(repo);
        match self.look_up(wire, repo).await {
            Ok(other) if other != installation => self.token(wire, other, reach).await,
            Ok(_) | Err(_) => outcome,
        }
    }

    /// Asks GitHub for the installation of a repository. Of several calls for repositories of one owner, the first one
    /// asks, and the others wait for its answer.
    async fn look_up(&self, wire: &Wire, repo: &RepoId) -> Result<u64, RequestFailure> {
        #[derive(Deserialize)]
        struct RepositoryInstallation {
            id: u64,
        }
        let turn = self.installations.turn(repo);
        let _turn = turn.lock().await;
        if let Some(installation) = self.installations.for_git(repo) {
            return Ok(installation);
        }
        let path = format!("/repos/{}/installation", url_segments(repo.full_name()));
        let call = Call::get(
            path,
            format!(
                "the installation of the GitHub App for {}",
                repo.full_name()
            ),
        )
        .following();
        let found: RepositoryInstallation = wire
            .send(&call, &self.pass(wire)?)
            .await?
            .json(&wire.host, &call.what)?;
        self.installations.answer(repo, found.id);
        Ok(found.id)
    }

    /// Returns a token of the installation that is valid for at least [`TOKEN_MARGIN`].
    async fn token(
        &self,
        wire: &Wire,
        installation: u64,
        reach: TokenReach,
    ) -> Result<Secret, RequestFailure> {
        let issued = self.issued(wire, installation, reach).await?;
        Ok(issued.token)
    }

    async fn issued(
        &self,
        wire: &Wire,
        installation: u64,
        reach: TokenReach,
    ) -> Result<IssuedToken, RequestFailure> {
        let slot = self.slot(installation, reach);
        let mut slot = slot.lock().await;
        if let Some(issued) = slot
            .as_ref()
            .filter(|issued| issued.expires - wire.clock.now() > TOKEN_MARGIN)
        {
            return Ok(issued.clone());
        }
        match self.issue(wire, installation, reach).await {
            Ok(issued) => Ok(slot.insert(issued).clone()),
            Err(failure) => {
                if failure.is_of_credentials() {
                    self.installations.remove(installation);
                }
                Err(failure)
            }
        }
    }

    fn slot(&self, installation: u64, reach: TokenReach) -> TokenSlot {
        let mut tokens = self
            .tokens
            .lock()
            .expect("nothing panics while it holds this lock");
        Arc::clone(tokens.entry((installation, reach)).or_default())
    }

    async fn issue(
        &self,
        wire: &Wire,
        installation: u64,
        reach: TokenReach,
    ) -> Result<IssuedToken, RequestFailure> {
        #[derive(Deserialize)]
        struct Issued {
            token: String,
            expires_at: DateTime<Utc>,
            permissions: Option<TokenPermissions>,
        }
        #[derive(Deserialize)]
        struct TokenPermissions {
            checks: Option<String>,
        }
        let path = format!("/app/installations/{installation}/access_tokens");
        let what = format!("a token for installation {installation} of the GitHub App");
        let body = match reach {
            TokenReach::Whole => json!({}),
            TokenReach::ReadContents => json!({"permissions": {"contents": "read"}}),
        };
        let call = Call::post(path, body, what).repeatable().counted_as_read();
        let issued: Issued = wire
            .send(&call, &self.pass(wire)?)
            .await?
            .json(&wire.host, &call.what)?;
        Ok(IssuedToken {
            token: Secret::new(&issued.token),
            expires: issued.expires_at,
            writes_checks: issued
                .permissions
                .and_then(|permissions| permissions.checks)
                .is_some_and(|level| level == "write"),
        })
    }

    /// Drops a token that GitHub no longer accepts, unless another request has already replaced it.
    async fn forget(&self, installation: u64, refused: &Secret) {
        let slot = self.slot(installation, TokenReach::Whole);
        let mut slot = slot.lock().await;
        if slot.as_ref().is_some_and(|issued| issued.token == *refused) {
            *slot = None;
        }
    }

    /// Returns the login of the App: its comments appear under its slug and `[bot]`.
    pub async fn login(&self, wire: &Wire) -> Result<String, RequestFailure> {
        #[derive(Deserialize)]
        struct AppPayload {
            slug: String,
        }
        let call = Call::get("/app".to_owned(), "the GitHub App itself");
        let myself: AppPayload = wire
            .send(&call, &self.pass(wire)?)
            .await?
            .json(&wire.host, &call.what)?;
        Ok(format!("{}[bot]", myself.slug))
    }

    /// Returns the permissions and events of the App.
    pub async fn facts(&self, wire: &Wire) -> Result<AppFacts, RequestFailure> {
        let call = Call::get("/app".to_owned(), "the GitHub App itself");
        wire.send(&call, &self.pass(wire)?)
            .await?
            .json(&wire.host, &call.what)
    }

    /// Creates the pass for requests about the App itself, which have a separate rate limit.
    fn pass(&self, wire: &Wire) -> Result<Pass, RequestFailure> {
        Ok(Pass {
            token: self.jwt(wire)?,
            credential: format!("app {}", self.id),
        })
    }

    fn jwt(&self, wire: &Wire) -> Result<Secret, RequestFailure> {
        let now = wire.clock.now();
        let claims = AppClaims {
            iss: self.id,
            iat: (now - JWT_BACKDATED).timestamp(),
            exp: (now + JWT_LASTS).timestamp(),
        };
        encode(&Header::new(Algorithm::RS256), &claims, &self.key)
            .map(|jwt| Secret::new(&jwt))
            .map_err(|error| {
                let message = format!("cannot sign with the key of the GitHub App: {error}");
                RequestFailure::denied(&wire.host, "any request of the GitHub App", &message)
            })
    }
}
