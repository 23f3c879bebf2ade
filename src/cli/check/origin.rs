//! The repository that the URL of a remote names.

use crate::model::{RepoId, RepoUrl};

/// Returns the repository at a URL as git accepts it; `None` when the URL is not one of a forge. A password in the URL
/// is removed before the URL is parsed. A port of `ssh` says nothing about the forge, so it is removed, too.
pub(super) fn repo_of(url: &str) -> Option<RepoId> {
    let plain = match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/')?;
            let host = authority.rsplit('@').next()?;
            let host = if matches!(scheme, "http" | "https") {
                host
            } else {
                host.split(':').next()?
            };
            format!("{scheme}://{host}/{path}")
        }
        None => url.to_owned(),
    };
    RepoUrl::parse(&plain).ok()?.repo_id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_forges_are_understood_in_every_form() {
        for (url, expected) in [
            ("git@github.com:Acme/Infra.git", "github.com/acme/infra"),
            ("https://github.com/acme/infra", "github.com/acme/infra"),
            (
                "https://kim:secret@github.com/acme/infra.git/",
                "github.com/acme/infra",
            ),
            (
                "ssh://git@git.example.com:2222/group/sub/infra.git",
                "git.example.com/group/sub/infra",
            ),
            (
                "https://git.example.com:8443/acme/infra.git",
                "git.example.com:8443/acme/infra",
            ),
        ] {
            assert_eq!(repo_of(url).unwrap().to_string(), expected, "{url}");
        }
        for url in [
            "/srv/git/infra.git",
            "../infra",
            "file:///srv/git/infra.git",
            "https://github.com/infra",
            "",
        ] {
            assert_eq!(repo_of(url), None, "{url}");
        }
    }
}
