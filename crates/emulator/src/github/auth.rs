//! Authenticates callers: a person by token, the App's installation by its token, or the App itself by a JSON web
//! token.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, Validation, decode};
use serde::Deserialize;
use serde_json::Value;

use crate::secret::Secret;
use crate::world::{Author, Repo, WorldState};

use super::errors::ApiError;
use super::etags::Condition;
use super::{Cx, limits, repos};

/// Authenticated caller of a request.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// A caller without credentials.
    Anonymous,
    /// An account with a personal access token.
    User(String),
    /// The App, acting in its installation, limited to these repositories if any are named.
    Installation {
        login: String,
        repositories: Option<Vec<String>>,
    },
    /// The App, without an installation.
    App,
}

impl Caller {
    /// Returns a repository that the caller may read. Without credentials no repository is visible.
    pub(super) fn repo<'a>(
        &self,
        state: &'a WorldState,
        owner: &str,
        name: &str,
    ) -> Result<&'a Repo, ApiError> {
        let repo = state.repo(&format!("{owner}/{name}"))?;
        match self {
            Self::Installation {
                repositories: Some(keys),
                ..
            } if !keys.contains(&repo.name.key()) => Err(ApiError::NotFound),
            Self::Installation { .. } | Self::User(_) => Ok(repo),
            Self::App => Err(ApiError::NotForIntegrations),
            Self::Anonymous => Err(ApiError::NotFound),
        }
    }

    /// Returns the key of a repository and the caller's account, for a caller that writes. Works like [`Self::repo`].
    pub(super) fn writes(
        &self,
        state: &WorldState,
        owner: &str,
        name: &str,
    ) -> Result<(String, Author), ApiError> {
        let author = self.author().ok_or(ApiError::AuthenticationRequired)?;
        Ok((self.repo(state, owner, name)?.name.key(), author))
    }

    /// Returns the account that the caller acts as.
    pub(super) fn author(&self) -> Option<Author> {
        match self {
            Self::User(login) => Some(Author::person(login)),
            Self::Installation { login, .. } => Some(Author {
                login: login.clone(),
                via_app: true,
            }),
            Self::App | Self::Anonymous => None,
        }
    }

    /// Refuses every caller except the App in its installation.
    pub(super) fn must_be_installation(&self) -> Result<(), ApiError> {
        match self {
            Self::Installation { .. } => Ok(()),
            Self::User(_) => Err(ApiError::OnlyForApps),
            Self::App => Err(ApiError::NotForIntegrations),
            Self::Anonymous => Err(ApiError::AuthenticationRequired),
        }
    }

    /// Refuses every caller except the App itself.
    pub(super) fn must_be_app(&self) -> Result<(), ApiError> {
        match self {
            Self::App => Ok(()),
            Self::Anonymous | Self::User(_) | Self::Installation { .. } => {
                Err(ApiError::BadJwt("A JSON web token could not be decoded"))
            }
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts
            .extensions
            .get()
            .cloned()
            .ok_or_else(|| ApiError::Broken("a route without authentication".to_owned()))
    }
}

/// Authenticates the caller, counts the request, and passes it on.
pub(super) async fn admit(State(cx): State<Cx>, mut request: Request, next: Next) -> Response {
    let mut window = cx.github.limits.count(cx.world.now());
    let condition = Condition::of(&request);
    if window.is_exceeded() {
        return limits::exceeded(window.reset());
    }
    let header = request
        .headers()
        .get(AUTHORIZATION)
        .map(|value| value.to_str().unwrap_or_default());
    let response = match header.map_or(Ok(Caller::Anonymous), |header| by_header(&cx, header)) {
        Err(error) => error.into_response(),
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            let path = request.uri().path();
            let path = path.strip_prefix("/api/v3").unwrap_or(path);
            match repos::moved(&cx, path, request.uri().query()) {
                Some(moved) => moved,
                None => next.run(request).await,
            }
        }
    };
    let (mut response, unchanged) = condition.apply(response).await;
    if unchanged {
        window = cx.github.limits.take_back(window);
    }
    window.write(response.headers_mut());
    response.headers_mut().insert(
        "x-github-media-type",
        axum::http::HeaderValue::from_static("github.v3; format=json"),
    );
    response
}

fn by_header(cx: &Cx, header: &str) -> Result<Caller, ApiError> {
    let (scheme, value) = header.split_once(' ').ok_or(ApiError::BadCredentials)?;
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "bearer" | "token" if value.matches('.').count() == 2 => by_jwt(cx, value.trim()),
        "bearer" | "token" => by_token(cx, value).ok_or(ApiError::BadCredentials),
        "basic" => by_basic(cx, value).ok_or(ApiError::BadCredentials),
        _ => Err(ApiError::BadCredentials),
    }
}

/// Authenticates by basic credentials: any user name, and the token as password. Git clients send these.
pub(super) fn by_basic(cx: &Cx, value: &str) -> Option<Caller> {
    let text = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
    by_token(cx, text.split_once(':')?.1)
}

fn by_token(cx: &Cx, token: &str) -> Option<Caller> {
    let token = Secret::new(token);
    if let Some((login, _)) = cx.github.accounts.iter().find(|(_, known)| *known == token) {
        return Some(Caller::User(login.clone()));
    }
    let app = cx.github.app.as_ref()?;
    let tokens = cx.github.tokens();
    let found = tokens.get(token.expose())?;
    let fresh = app.clock.now() < found.expires_at;
    fresh.then(|| Caller::Installation {
        login: app.bot_login(),
        repositories: found.repositories.clone(),
    })
}

/// Claims in the App's token (GitHub Apps: generating a JSON web token).
#[derive(Deserialize)]
struct TokenClaims {
    iss: Value,
    iat: i64,
    exp: i64,
}

/// Maximum life of a JSON web token. The extra minute is for clients that date it back against clock drift.
const MAX_LIFE_SECONDS: i64 = 660;

fn by_jwt(cx: &Cx, token: &str) -> Result<Caller, ApiError> {
    let undecodable = ApiError::BadJwt("A JSON web token could not be decoded");
    let (Some(app), Some(key)) = (&cx.github.app, &cx.github.app_key) else {
        return Err(undecodable);
    };
    let mut rules = Validation::new(Algorithm::RS256);
    rules.required_spec_claims.clear();
    (rules.validate_exp, rules.validate_aud) = (false, false);
    let Ok(decoded) = decode::<TokenClaims>(token, key, &rules) else {
        return Err(undecodable);
    };
    let claims = decoded.claims;
    let issuer = claims
        .iss
        .as_u64()
        .or_else(|| claims.iss.as_str()?.parse().ok());
    if issuer != Some(app.id) {
        return Err(ApiError::BadJwt("Integration not found"));
    }
    check_life(&claims, app.clock.now().timestamp())?;
    Ok(Caller::App)
}

fn check_life(claims: &TokenClaims, now: i64) -> Result<(), ApiError> {
    if claims.exp <= now {
        return Err(ApiError::BadJwt(
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
        ));
    }
    if claims.iat > now {
        return Err(ApiError::BadJwt(
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        ));
    }
    if claims.exp - now > MAX_LIFE_SECONDS || claims.exp - claims.iat > MAX_LIFE_SECONDS {
        return Err(ApiError::BadJwt(
            "'Expiration time' claim ('exp') is too far in the future",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_token_lives_ten_minutes_at_most_and_not_in_the_past_or_future() {
        let life = |iat, exp| {
            check_life(
                &TokenClaims {
                    iss: Value::Null,
                    iat,
                    exp,
                },
                1000,
            )
            .is_ok()
        };
        assert!(life(940, 1540));
        assert!(!life(400, 1000), "expired");
        assert!(!life(1001, 1500), "not yet issued");
        assert!(!life(1000, 1700), "too long");
    }
}
