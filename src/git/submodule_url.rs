//! Resolves the URLs of submodules. The author of a pull writes such a URL, so it may lead only to the forge of the
//! parent repository. Credentials never go elsewhere, and a URL cannot name disks or programs.

use url::Url;

/// Maximum length of a URL in bytes.
const MAX_URL: usize = 2048;

/// Reason why a submodule is not fetched from its URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadUrl {
    #[error("its URL is not valid")]
    Invalid,
    #[error(
        "its URL begins with `{0}`, but it must be a URL of the same forge: `https://…`, `git@…` or `../…`"
    )]
    Protocol(String),
    #[error("its URL leads to `{0}`, not to the host and port of the repository")]
    OtherHost(String),
    #[error("its URL contains credentials")]
    Credentials,
    #[error("its URL leads out of the repositories of the forge")]
    Outside,
}

/// Resolves the URL of a submodule from the text in `.gitmodules` (gitmodules(5)). The result has the form of the
/// parent's URL.
pub(super) fn resolve(parent: &Url, text: &str) -> Result<Url, BadUrl> {
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    if text.is_empty() || text.len() > MAX_URL || text.contains(is_odd) {
        return Err(BadUrl::Invalid);
    }
    if text.starts_with("./") || text.starts_with("../") {
        return at(parent, &relative(parent, text)?);
    }
    if let Some((host, path)) = scp_like(text) {
        return on_host(parent, host, path);
    }
    // Other forms such as `ext::sh`, `/etc` and `file:…` get a message of their own.
    let url = Url::parse(text).map_err(|_| BadUrl::Protocol(beginning(text)))?;
    match url.scheme() {
        "https" | "http" if !url.username().is_empty() || url.password().is_some() => {
            Err(BadUrl::Credentials)
        }
        "https" | "http" if url.origin() != parent.origin() => {
            Err(BadUrl::OtherHost(url.origin().ascii_serialization()))
        }
        "https" | "http" if url.query().is_some() || url.fragment().is_some() => {
            Err(BadUrl::Invalid)
        }
        "https" | "http" => at(parent, url.path()),
        "ssh" if url.password().is_some() => Err(BadUrl::Credentials),
        "ssh" => on_host(parent, url.host_str().unwrap_or_default(), url.path()),
        _ => Err(BadUrl::Protocol(beginning(text))),
    }
}

/// Returns the protocol, such as `file:` or `ext::sh`, or the beginning of a path on a disk, so that the message
/// identifies it.
fn beginning(text: &str) -> String {
    match text.split('/').next().unwrap_or_default() {
        "" => text.chars().take(60).collect(),
        protocol => protocol.chars().take(20).collect(),
    }
}

/// Parses `git@host:path`, with no slash before the colon and no double colon.
fn scp_like(text: &str) -> Option<(&str, &str)> {
    let (host, path) = text.split_once(':')?;
    let (user, host) = host.split_once('@')?;
    let is_one =
        !user.is_empty() && !host.contains('/') && !user.contains('/') && !path.starts_with(':');
    (is_one && !path.starts_with("//")).then_some((host, path))
}

/// Converts a URL for SSH to the protocol of the parent.
fn on_host(parent: &Url, host: &str, path: &str) -> Result<Url, BadUrl> {
    if !parent
        .host_str()
        .is_some_and(|own| own.eq_ignore_ascii_case(host))
    {
        return Err(BadUrl::OtherHost(host.chars().take(200).collect()));
    }
    at(parent, path)
}

fn relative(parent: &Url, text: &str) -> Result<String, BadUrl> {
    let mut path: Vec<&str> = parent.path().trim_matches('/').split('/').collect();
    let mut rest = text;
    loop {
        if let Some(next) = rest.strip_prefix("./") {
            rest = next;
        } else if let Some(next) = rest.strip_prefix("../") {
            path.pop().ok_or(BadUrl::Outside)?;
            rest = next;
        } else {
            path.push(rest);
            return Ok(path.join("/"));
        }
    }
}

fn at(parent: &Url, path: &str) -> Result<Url, BadUrl> {
    let path = path.trim_matches('/');
    let is_plain = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && !part.contains(['%', '?', '#', '~', ':', '@'])
    };
    if path.is_empty() || !path.split('/').all(is_plain) {
        return Err(BadUrl::Outside);
    }
    let mut url = parent.clone();
    url.set_path(&format!("/{path}"));
    Ok(url)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(text: &str) -> String {
        let parent = Url::parse("https://git.example.com:8443/acme/infra.git").unwrap();
        resolve(&parent, text).map_or_else(|error| format!("{error}"), |url| url.to_string())
    }

    #[test]
    fn all_spellings_of_the_same_forge_are_its_https() {
        for text in [
            "https://git.example.com:8443/acme/modules.git",
            "https://GIT.example.com:8443/acme/modules.git/",
            "../modules.git",
            "./../modules.git",
            "../../acme/modules.git",
            "git@git.example.com:acme/modules.git",
            "ssh://git@git.example.com:2222/acme/modules.git",
        ] {
            assert_eq!(
                told(text),
                "https://git.example.com:8443/acme/modules.git",
                "{text}"
            );
        }
    }

    #[test]
    fn dots_within_a_name_lead_nowhere() {
        assert_eq!(told("../a..b"), "https://git.example.com:8443/acme/a..b");
        assert_eq!(
            told("git@git.example.com:acme/..."),
            "https://git.example.com:8443/acme/..."
        );
    }

    #[test]
    fn nothing_else_is_fetched() {
        let cases = [
            "",
            "a b",
            "https://git.example.com/acme/x",
            "http://git.example.com:8443/acme/x",
            "https://evil.example/acme/x",
            "https://git.example.com:8443@evil.example/x",
            "https://u:p@git.example.com:8443/a/x",
            "git@evil.example:acme/x",
            "ssh://git@evil.example/acme/x",
            "file:///etc",
            "/etc/passwd",
            "ext::sh -c x",
            "ext::sh",
            "fd::17",
            "git://git.example.com/acme/x",
            "../../../x",
            "../../..",
            "../%2e%2e/x",
            "-u:x",
            "git@git.example.com:../x",
            "https://git.example.com:8443/",
            "https://git.example.com:8443/a/x?y",
            "C:\\x",
            "../a@{b}",
        ];
        let told: Vec<String> = cases
            .iter()
            .map(|text| format!("{text} => {}", told(text)))
            .collect();
        assert!(
            told.iter().all(|line| line.contains("its URL")),
            "{told:#?}"
        );
        assert!(told[4].ends_with(
            "leads to `https://evil.example`, not to the host and port of the repository"
        ));
        assert!(
            told[9].contains("begins with `file:`") && told[12].contains("begins with `ext::sh`")
        );
        assert!(
            told[10].contains("begins with `/etc/passwd`"),
            "{}",
            told[10]
        );
    }

    proptest! {
        #[test]
        fn whatever_is_written_it_stays_on_the_forge(text in "[a./:@%~-]{0,20}", path in "(https://|git@|ssh://git@)?h[/:][a./%:@-]{0,9}") {
            let parent = Url::parse("https://h/acme/infra.git").unwrap();
            for text in [text, path] {
                if let Ok(url) = resolve(&parent, &text) {
                    prop_assert_eq!(url.origin(), parent.origin());
                    prop_assert!(url.username().is_empty() && url.password().is_none(), "{}", url);
                    prop_assert!(!url.path().split('/').any(|part| part == "." || part == ".."), "{}", url);
                }
            }
        }
    }
}
