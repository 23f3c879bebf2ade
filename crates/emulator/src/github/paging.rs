//! Splits lists into pages, and builds the `Link` header with the addresses of the other pages.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Cx;
use super::errors::ApiError;

/// Query parameters of a request.
pub(super) type Params = BTreeMap<String, String>;

const DEFAULT_PER_PAGE: usize = 30;
const MAX_PER_PAGE: usize = 100;

/// Page that a query requests. Invalid values are ignored, as on GitHub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRequest {
    number: usize,
    size: usize,
}

impl PageRequest {
    pub(super) fn of(params: &Params) -> Self {
        let number = |name: &str| {
            params
                .get(name)
                .and_then(|text| text.parse::<usize>().ok())
                .filter(|n| *n > 0)
        };
        Self {
            number: number("page").unwrap_or(1),
            size: number("per_page")
                .unwrap_or(DEFAULT_PER_PAGE)
                .min(MAX_PER_PAGE),
        }
    }

    /// Returns the items of this page.
    pub(super) fn slice<T>(self, items: Vec<T>) -> Vec<T> {
        items
            .into_iter()
            .skip((self.number - 1).saturating_mul(self.size))
            .take(self.size)
            .collect()
    }

    fn last(self, total: usize) -> usize {
        total.div_ceil(self.size).max(1)
    }

    /// Builds the `Link` header, such as `<…?page=2>; rel="next", …`; `None` if everything fits on one page.
    fn links(self, total: usize, origin: &str, uri: &Uri, params: &Params) -> Option<String> {
        let last = self.last(total);
        if last == 1 {
            return None;
        }
        let link = |rel: &str, number: usize| {
            let mut params = params.clone();
            params.insert("page".to_owned(), number.to_string());
            let query = url::form_urlencoded::Serializer::new(String::new())
                .extend_pairs(&params)
                .finish();
            format!("<{origin}{}?{query}>; rel=\"{rel}\"", uri.path())
        };
        let mut links = Vec::new();
        if self.number > 1 {
            links.extend([link("prev", (self.number - 1).min(last)), link("first", 1)]);
        }
        if self.number < last {
            links.extend([link("next", self.number + 1), link("last", last)]);
        }
        Some(links.join(", "))
    }
}

/// URI as it was requested, before routing removed its beginning.
#[derive(Clone)]
pub(super) struct RequestedUri(pub(super) Uri);

/// Request for a list.
pub(super) struct Listing {
    uri: Uri,
    pub(super) params: Params,
}

impl Listing {
    /// Returns the requested page.
    pub(super) fn page(&self) -> PageRequest {
        PageRequest::of(&self.params)
    }

    /// Builds the answer with the requested page of the items.
    pub(super) fn answer<T: Serialize>(&self, cx: &Cx, items: Vec<T>) -> Response {
        let links = self
            .page()
            .links(items.len(), &cx.github.base_url, &self.uri, &self.params);
        let mut response = Json(self.page().slice(items)).into_response();
        if let Some(links) = links.and_then(|links| HeaderValue::from_str(&links).ok()) {
            response.headers_mut().insert(header::LINK, links);
        }
        response
    }
}

impl<S: Sync> FromRequestParts<S> for Listing {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let RequestedUri(uri) = parts
            .extensions
            .get()
            .cloned()
            .unwrap_or_else(|| RequestedUri(parts.uri.clone()));
        let Query(params) = Query::try_from_uri(&uri).map_err(|_| ApiError::NotFound)?;
        Ok(Self { uri, params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(list: &[(&str, &str)]) -> Params {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_size_of_a_page_has_a_default_and_a_limit() {
        assert_eq!(
            PageRequest::of(&params(&[])),
            PageRequest {
                number: 1,
                size: 30
            }
        );
        assert_eq!(
            PageRequest::of(&params(&[("per_page", "1000"), ("page", "x")])),
            PageRequest {
                number: 1,
                size: 100
            }
        );
        assert_eq!(PageRequest { number: 2, size: 2 }.slice(vec![1, 2, 3]), [3]);
        assert!(
            PageRequest {
                number: usize::MAX,
                size: 100
            }
            .slice(vec![1])
            .is_empty()
        );
    }

    #[test]
    fn links_lead_to_the_other_pages_and_keep_the_rest_of_the_query() {
        let params = params(&[("per_page", "2"), ("page", "2"), ("state", "all")]);
        let uri: Uri = "/api/v3/x".parse().unwrap();
        let links = PageRequest::of(&params)
            .links(5, "http://h", &uri, &params)
            .unwrap();
        insta::assert_snapshot!(links.replace(", ", "\n"), @r#"
        <http://h/api/v3/x?page=1&per_page=2&state=all>; rel="prev"
        <http://h/api/v3/x?page=1&per_page=2&state=all>; rel="first"
        <http://h/api/v3/x?page=3&per_page=2&state=all>; rel="next"
        <http://h/api/v3/x?page=3&per_page=2&state=all>; rel="last"
        "#);
        assert_eq!(
            PageRequest::of(&params).links(2, "http://h", &uri, &params),
            None
        );
    }
}
