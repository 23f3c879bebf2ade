//! Extracts queries and path segments with our own errors instead of those of the framework.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::WebError;

/// A query. A query that cannot be read counts as none.
pub(crate) struct LenientQuery<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequestParts<S> for LenientQuery<T> {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, WebError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        Ok(Self(query.map(|Query(query)| query).unwrap_or_default()))
    }
}

/// Maximum length of a search text in characters. Forms have the same limit.
const LONGEST_SEARCH: usize = 200;

/// Reads the text of a search that the database performs.
pub(crate) fn search_text(text: &str) -> Result<&str, WebError> {
    let text = text.trim();
    if text.chars().count() > LONGEST_SEARCH {
        Err(WebError::search_too_long(LONGEST_SEARCH))
    } else {
        Ok(text)
    }
}

/// The variable part of a path. A part that is not UTF-8 leads to no page.
pub(crate) struct Segment<T = String>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segment<T> {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, WebError> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path))
            .map_err(|_| WebError::no_such_page())
    }
}

/// A JSON body. An empty body counts as one without fields.
pub(crate) struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for JsonBody<T> {
    type Rejection = WebError;

    async fn from_request(request: Request, state: &S) -> Result<Self, WebError> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|rejection| WebError::unreadable_form(rejection.status()))?;
        if body.trim_ascii().is_empty() {
            return Ok(Self(T::default()));
        }
        let mut reader = serde_json::Deserializer::from_slice(&body);
        let read =
            serde_path_to_error::deserialize(&mut reader).map_err(|error| unreadable(&error))?;
        reader
            .end()
            .map_err(|error| WebError::unreadable_json(&error.to_string()))?;
        Ok(Self(read))
    }
}

fn unreadable(error: &serde_path_to_error::Error<serde_json::Error>) -> WebError {
    match (error.inner().is_data(), error.path().to_string()) {
        (true, path) if path != "." => WebError::unusable_field(
            &path,
            &without_place(error.inner()),
            // The types of bodies do not say which fields a request requires.
            "Give the expected value, or leave the field out if it is not required.",
        ),
        (true | false, _) => WebError::unreadable_json(&error.inner().to_string()),
    }
}

/// Returns the text of an error without the place in the body, because the field is named anyway.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

/// `?owner=…`: limits a list to one owner.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct OwnerQuery {
    pub owner: Option<String>,
}
