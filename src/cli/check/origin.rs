//! Which repository a remote is.

use crate::model::{HostName, RepoId};

/// The repository at an address as git takes it; `None` when it is none of a forge. The address may hold a password, so
/// nothing else of it is kept.
pub(super) fn repo_of(url: &str) -> Option<RepoId> {
    let (host, path) = if let Some((scheme, rest)) = url.split_once("://") {
        let (authority, path) = rest.split_once('/')?;
        (host_of(scheme, authority)?, path)
    } else {
        // `git@github.com:acme/infra.git`
        let (authority, path) = url.split_once(':')?;
        (host_of("ssh", authority)?, path)
    };
    let path = path.trim_matches('/');
    RepoId::new(host, path.strip_suffix(".git").unwrap_or(path)).ok()
}

/// Without the account; the port belongs to the name of a forge only where pages are served at it.
fn host_of(scheme: &str, authority: &str) -> Option<HostName> {
    let host = authority.rsplit('@').next()?;
    let host = if matches!(scheme, "http" | "https") { host } else { host.split(':').next()? };
    HostName::new(host).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_forges_are_understood_in_every_form() {
        for (url, expected) in [
            ("git@github.com:Acme/Infra.git", "github.com/acme/infra"),
            ("https://github.com/acme/infra", "github.com/acme/infra"),
            ("https://kim:secret@github.com/acme/infra.git/", "github.com/acme/infra"),
            ("ssh://git@git.example.com:2222/group/sub/infra.git", "git.example.com/group/sub/infra"),
            ("https://git.example.com:8443/acme/infra.git", "git.example.com:8443/acme/infra"),
        ] {
            assert_eq!(repo_of(url).unwrap().to_string(), expected, "{url}");
        }
        for url in ["/srv/git/infra.git", "../infra", "file:///srv/git/infra.git", "https://github.com/infra", ""] {
            assert_eq!(repo_of(url), None, "{url}");
        }
    }
}
