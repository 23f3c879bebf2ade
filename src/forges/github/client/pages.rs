//! Reads GitHub's paginated lists.

use axum::http::HeaderMap;
use axum::http::header::LINK;
use serde::de::DeserializeOwned;

use super::GitHub;
use super::call::{Call, RequestFailure};
use crate::model::RepoId;

/// Number of entries of a page, the maximum of GitHub.
pub(super) const PAGE: usize = 100;
/// Maximum number of pages to read: 6,000 entries. This is twice the number of changed files that GitHub lists, and
/// more comments than any pull has.
const MAX_PAGES: usize = 60;

/// List that is read page by page. Links in answers only tell whether there is another page; they are never followed.
/// The next page is always requested from the configured API, so an answer cannot send the token elsewhere.
pub(super) struct Pages<'a> {
    github: &'a GitHub,
    repo: &'a RepoId,
    /// Path and query, to which the number of the page is added.
    path: String,
    what: String,
    next: Option<usize>,
}

impl<'a> Pages<'a> {
    /// Creates the list. `query` contains parameters besides those of paging, as `name=value&`, or nothing.
    pub fn new(
        github: &'a GitHub,
        repo: &'a RepoId,
        path: &str,
        query: &str,
        what: String,
    ) -> Self {
        Self {
            github,
            repo,
            path: format!("{path}?{query}per_page={PAGE}"),
            what,
            next: Some(1),
        }
    }

    /// Returns the next page; `None` after the last.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, RequestFailure> {
        self.next_as(Vec::len).await
    }

    /// Returns the next page of a list that is wrapped into an object; `len` counts its entries.
    pub async fn next_as<T: DeserializeOwned>(
        &mut self,
        len: impl Fn(&T) -> usize,
    ) -> Result<Option<T>, RequestFailure> {
        let Some(number) = self.next else {
            return Ok(None);
        };
        let wire = &self.github.wire;
        if number > MAX_PAGES {
            let message = format!("the list does not end after {} entries", MAX_PAGES * PAGE);
            return Err(RequestFailure::rejected(&wire.host, &self.what, &message));
        }
        let call = Call::get(format!("{}&page={number}", self.path), self.what.as_str());
        let answer = self.github.credentials.send(wire, self.repo, &call).await?;
        let entries: T = answer.json(&wire.host, &self.what)?;
        self.next = has_more(&answer.headers, len(&entries)).then_some(number + 1);
        Ok(Some(entries))
    }
}

/// Returns true if another page may follow. Without any `Link` (a proxy may drop it) a full page suggests another
/// one.
pub(super) fn has_more(headers: &HeaderMap, entries: usize) -> bool {
    let links: Vec<&str> = headers
        .get_all(LINK)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    if links.is_empty() {
        entries >= PAGE
    } else {
        links.iter().any(|link| link.contains(r#"rel="next""#))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_decides_and_without_one_the_length_of_the_page() {
        let with = |link: &str| HeaderMap::from_iter([(LINK, link.parse().unwrap())]);
        let next = r#"<https://api.github.com/x?page=2>; rel="next", <https://api.github.com/x?page=9>; rel="last""#;
        assert!(has_more(&with(next), 1));
        assert!(!has_more(
            &with(r#"<https://api.github.com/x?page=1>; rel="prev""#),
            100
        ));
        assert!(has_more(&HeaderMap::new(), 100));
        assert!(!has_more(&HeaderMap::new(), 99));
    }
}
