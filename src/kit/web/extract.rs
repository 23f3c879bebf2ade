//! Queries and path segments that cannot fail with somebody else's words.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Failure;

/// A query; one that cannot be read counts as none.
pub(crate) struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        Ok(Self(query.map(|Query(query)| query).unwrap_or_default()))
    }
}

/// Longest text that is searched for; forms take no more either.
const LONGEST_SEARCH: usize = 200;

/// The text of a search that the database makes.
pub(crate) fn search_text(text: &str) -> Result<&str, Failure> {
    let text = text.trim();
    if text.chars().count() > LONGEST_SEARCH {
        Err(Failure::search_too_long(LONGEST_SEARCH))
    } else {
        Ok(text)
    }
}

/// The variable part of a path; one that is not UTF-8 leads nowhere.
pub(crate) struct Segment<T = String>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segment<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path))
            .map_err(|_| Failure::no_such_page())
    }
}

/// A body of JSON; an empty one says nothing.
pub(crate) struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|rejection| Failure::unreadable_form(rejection.status()))?;
        if body.trim_ascii().is_empty() {
            return Ok(Self(T::default()));
        }
        let mut reader = serde_json::Deserializer::from_slice(&body);
        let read =
            serde_path_to_error::deserialize(&mut reader).map_err(|error| unreadable(&error))?;
        reader
            .end()
            .map_err(|error| Failure::unreadable_json(&error.to_string()))?;
        Ok(Self(read))
    }
}

fn unreadable(error: &serde_path_to_error::Error<serde_json::Error>) -> Failure {
    match (error.inner().is_data(), error.path().to_string()) {
        (true, path) if path != "." => Failure::unusable_field(
            &path,
            &error.inner().to_string(),
            "Leave it out, or give what is expected.",
        ),
        (true | false, _) => Failure::unreadable_json(&error.inner().to_string()),
    }
}

/// `?owner=…`: only what concerns this owner.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct OfOwner {
    pub owner: Option<String>,
}
