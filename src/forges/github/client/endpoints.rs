//! Defines the addresses of a GitHub: its API and its web origin for git.

use url::Url;

use super::url_segments;
use crate::model::{HostName, RepoId};

/// Reason why the addresses of a GitHub are unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// The value of `--gh-hostname` is not a host name.
    #[error(
        "`{0}` is not a host name. Write it without `https://` and without a path, like `github.example.com`"
    )]
    Host(String),
    /// The value of `--gh-api-url` cannot be the base of an API.
    #[error("`{url}` cannot be the base URL of an API: {reason}")]
    Api {
        /// URL without any password.
        url: String,
        /// Description of the problem.
        reason: &'static str,
    },
}

/// Addresses of one GitHub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubEndpoints {
    host: HostName,
    api: Url,
    web: String,
}

impl GitHubEndpoints {
    /// Derives the addresses from a host: github.com, a GitHub Enterprise Cloud with data residency (`*.ghe.com`), or
    /// a GitHub Enterprise Server (reference 15.5).
    ///
    /// `api_url` overrides the base of the API. If it has another origin than the host's own API, git and pages are
    /// expected at that origin too. Then a test server or the demo's emulator replaces the whole host, while
    /// repositories keep the name of the host.
    pub fn new(hostname: &str, api_url: Option<Url>) -> Result<Self, InvalidEndpoint> {
        let host =
            HostName::new(hostname).map_err(|_| InvalidEndpoint::Host(hostname.to_owned()))?;
        let own = own_api(&host)?;
        let (api, web) = match api_url {
            Some(api) if api.origin() != own.origin() => {
                (checked(api.clone())?, api.origin().ascii_serialization())
            }
            given => (checked(given.unwrap_or(own))?, format!("https://{host}")),
        };
        Ok(Self { host, api, web })
    }

    /// Returns the host in the names of repositories.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// Returns the base of the REST API, without a trailing slash: `https://github.example.com/api/v3`.
    pub fn api_url(&self) -> &str {
        self.api.as_str().trim_end_matches('/')
    }

    /// Returns the URL for git, without credentials.
    pub fn clone_url(&self, repo: &RepoId) -> String {
        format!("{}/{}.git", self.web, url_segments(repo.full_name()))
    }

    /// Returns scheme, host and port of the API.
    pub(super) fn api_origin(&self) -> String {
        self.api.origin().ascii_serialization()
    }

    /// Returns the path of the API without a trailing slash; empty on github.com.
    pub(super) fn api_path(&self) -> &str {
        self.api.path().trim_end_matches('/')
    }
}

fn own_api(host: &HostName) -> Result<Url, InvalidEndpoint> {
    let text = match host.as_str() {
        "github.com" => "https://api.github.com".to_owned(),
        cloud if cloud.ends_with(".ghe.com") => format!("https://api.{cloud}"),
        server => format!("https://{server}/api/v3"),
    };
    Url::parse(&text).map_err(|_| InvalidEndpoint::Host(host.to_string()))
}

fn checked(url: Url) -> Result<Url, InvalidEndpoint> {
    let reason = if !matches!(url.scheme(), "http" | "https") {
        "it starts with neither `https://` nor `http://`"
    } else if !url.username().is_empty() || url.password().is_some() {
        "it contains credentials. Use the flags for credentials"
    } else if url.query().is_some() || url.fragment().is_some() {
        "it has a query or a fragment"
    } else {
        return Ok(url);
    };
    Err(InvalidEndpoint::Api {
        url: without_credentials(url),
        reason,
    })
}

fn without_credentials(mut url: Url) -> String {
    // Both calls fail only for URLs that cannot contain credentials.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(host: &str, api: Option<&str>) -> String {
        match GitHubEndpoints::new(host, api.map(|url| url.parse().unwrap())) {
            Ok(at) => {
                let repo = RepoId::new(at.host().clone(), "Acme/infra").unwrap();
                format!("{} | {}", at.api_url(), at.clone_url(&repo))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_kind_of_github_has_its_addresses() {
        for (host, api, expected) in [
            (
                "github.com",
                None,
                "https://api.github.com | https://github.com/acme/infra.git",
            ),
            (
                "GitHub.com",
                None,
                "https://api.github.com | https://github.com/acme/infra.git",
            ),
            (
                "acme.ghe.com",
                None,
                "https://api.acme.ghe.com | https://acme.ghe.com/acme/infra.git",
            ),
            (
                "git.acme.dev",
                None,
                "https://git.acme.dev/api/v3 | https://git.acme.dev/acme/infra.git",
            ),
            (
                "git.acme.dev:8443",
                None,
                "https://git.acme.dev:8443/api/v3 | https://git.acme.dev:8443/acme/infra.git",
            ),
            (
                "github.com",
                Some("https://api.github.com/"),
                "https://api.github.com | https://github.com/acme/infra.git",
            ),
            (
                "github.com",
                Some("http://127.0.0.1:81"),
                "http://127.0.0.1:81 | http://127.0.0.1:81/acme/infra.git",
            ),
            (
                "github.com",
                Some("http://[::1]:81/v3/"),
                "http://[::1]:81/v3 | http://[::1]:81/acme/infra.git",
            ),
        ] {
            assert_eq!(addresses(host, api), expected, "{host} {api:?}");
        }
    }

    #[test]
    fn odd_addresses_are_explained_without_secrets() {
        insta::assert_snapshot!(
            addresses("https://github.com", None),
            @"`https://github.com` is not a host name. Write it without `https://` and without a path, like `github.example.com`"
        );
        insta::assert_snapshot!(
            addresses("github.com", Some("ftp://github.com")),
            @"`ftp://github.com/` cannot be the base URL of an API: it starts with neither `https://` nor `http://`"
        );
        insta::assert_snapshot!(
            addresses("github.com", Some("https://me:hunter2@ghe.dev/api")),
            @"`https://ghe.dev/api` cannot be the base URL of an API: it contains credentials. Use the flags for credentials"
        );
        insta::assert_snapshot!(
            addresses("github.com", Some("https://ghe.dev/api?x=1")),
            @"`https://ghe.dev/api?x=1` cannot be the base URL of an API: it has a query or a fragment"
        );
        insta::assert_snapshot!(
            addresses("a:b:c", None),
            @"`a:b:c` is not a host name. Write it without `https://` and without a path, like `github.example.com`"
        );
    }
}
