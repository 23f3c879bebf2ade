//! Asks the host of a Go module for its repository, as `go` does: `GET https://PATH?go-get=1`.
//!
//! The page can say anything, so only its `go-import` lines count, and an address that is not allowed is not used.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_registry::names::GoPath;
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, StatusCode};
use url::Url;

use super::refusal::SourceRefusal;
use super::repository::GoRepository;
use crate::config::server::VcsHosts;

/// Longest time for a page.
const PAGE_TIME: Duration = Duration::from_secs(15);
/// Longest time for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Maximum number of bytes of a page that are read.
const MAX_PAGE: usize = 1 << 20;
/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 3;
/// Query of a request for a page.
const QUERY: &str = "go-get=1";

/// Client for pages of hosts.
pub(super) struct GoImports {
    client: Client,
    hosts: Arc<VcsHosts>,
}

/// A line of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoImportLine {
    /// Path of the module at the root of the repository.
    pub root: String,
    /// Kind of the repository, such as `git`.
    pub kind: String,
    /// Address of the repository, as the page has it.
    pub address: String,
    /// Directory of the root in the repository.
    pub directory: String,
}

impl GoImports {
    pub fn new(hosts: Arc<VcsHosts>) -> Result<Self, reqwest::Error> {
        let allowed = Arc::clone(&hosts);
        let client = Client::builder()
            .http1_only()
            .user_agent(concat!("lockkeeper/", env!("CARGO_PKG_VERSION")))
            .https_only(true)
            .connect_timeout(CONNECT_TIME)
            .timeout(PAGE_TIME)
            .redirect(Policy::custom(move |attempt| follow(attempt, &allowed)));
        Ok(Self {
            client: client.build()?,
            hosts,
        })
    }

    /// Finds the repository of a module whose path does not name it. `page` is the address for the path.
    pub async fn find(&self, path: &GoPath, page: &Url) -> Result<GoRepository, SourceRefusal> {
        let line = self.line_for(path.as_str(), page).await?;
        if line.root != path.as_str() {
            // A page below the root could otherwise claim all of it.
            let page = Url::parse(&format!("https://{}", line.root));
            let page = page.map_err(|_| SourceRefusal::refused("the root is not an address"))?;
            let of_root = self.line_for(&line.root, &page).await?;
            if of_root != line {
                return Err(SourceRefusal::refused(format!(
                    "the pages of `{path}` and `{}` name different repositories",
                    line.root
                )));
            }
        }
        let url = Url::parse(&line.address);
        let url = url.map_err(|_| SourceRefusal::refused("the repository has no valid address"))?;
        if line.kind != "git" {
            return Err(SourceRefusal::refused(format!(
                "the repository is one of `{}`, and only Git is read",
                line.kind
            )));
        }
        if !self.hosts.allows(&url) {
            return Err(SourceRefusal::refused(format!(
                "the page of `{path}` leads to {url}, which is not on --registry-vcs-allowlist"
            )));
        }
        Ok(GoRepository {
            root: line.root,
            url,
            directory: line.directory,
        })
    }

    async fn line_for(&self, path: &str, page: &Url) -> Result<GoImportLine, SourceRefusal> {
        if !self.hosts.allows(page) {
            return Err(SourceRefusal::refused(format!(
                "{page} is not on --registry-vcs-allowlist"
            )));
        }
        let mut url = page.clone();
        url.set_query(Some(QUERY));
        let failed = |error: reqwest::Error| {
            let why = if error.is_redirect() {
                "it leads to an address that is not on --registry-vcs-allowlist"
            } else if error.is_timeout() {
                "it does not answer in time"
            } else {
                "it does not answer"
            };
            SourceRefusal::failed(format!("{page} cannot be read: {why}"))
        };
        let mut answer = self.client.get(url).send().await.map_err(failed)?;
        let status = answer.status();
        // `go` reads pages of errors too, because some hosts have no others.
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(SourceRefusal::failed(format!("{page} answers {status}")));
        }
        let mut content = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(failed)? {
            let left = MAX_PAGE - content.len();
            content.extend_from_slice(&part[..part.len().min(left)]);
            if content.len() == MAX_PAGE {
                break;
            }
        }
        import_line(path, &String::from_utf8_lossy(&content))
            .ok_or_else(|| SourceRefusal::not_found(format!("{page} names no repository")))
    }
}

/// Follows redirects to allowed addresses alone.
fn follow(attempt: Attempt<'_>, hosts: &VcsHosts) -> Action {
    if attempt.previous().len() > MAX_REDIRECTS || !is_allowed(attempt.url(), hosts) {
        attempt.error("the address is not allowed")
    } else {
        attempt.follow()
    }
}

/// Returns true if a redirect may lead to this address. Hosts keep the query of the request in it, and allowed addresses have
/// none.
fn is_allowed(url: &Url, hosts: &VcsHosts) -> bool {
    let mut url = url.clone();
    if url.query() == Some(QUERY) {
        url.set_query(None);
    }
    hosts.allows(&url)
}

/// Finds the line for a module in a page.
pub fn import_line(path: &str, page: &str) -> Option<GoImportLine> {
    choose(path, import_lines(page))
}

/// Returns the one line whose root is a beginning of the path. Proxies of modules are not asked.
fn choose(path: &str, lines: Vec<GoImportLine>) -> Option<GoImportLine> {
    let covers = |line: &GoImportLine| {
        let rest = path.strip_prefix(line.root.as_str());
        line.kind != "mod" && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut lines = lines.into_iter().filter(covers);
    let first = lines.next()?;
    lines.next().is_none().then_some(first)
}

/// Finds the lines `<meta name="go-import" content="ROOT KIND ADDRESS [DIRECTORY]">` before the body of a page.
fn import_lines(page: &str) -> Vec<GoImportLine> {
    let mut lines = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let Some(end) = end_of_tag(rest) else {
            break;
        };
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name_end = tag.find(|c: char| c.is_ascii_whitespace() || c == '/');
        let (name, attributes) = tag.split_at(name_end.unwrap_or(tag.len()));
        let name = name.to_ascii_lowercase();
        if name == "body" || tag.eq_ignore_ascii_case("/head") {
            break;
        }
        if name == "meta" && attribute(attributes, "name").as_deref() == Some("go-import") {
            lines.extend(attribute(attributes, "content").and_then(|text| line_of(&text)));
        }
    }
    lines
}

/// Returns the place of the `>` that ends a tag, outside of quotes.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '>') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

/// Returns the value of an attribute. Values that have to be decoded are those of no repository.
fn attribute(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        let end = rest.find(|c: char| c.is_ascii_whitespace() || c == '=')?;
        let name = &rest[..end];
        rest = rest[end..].trim_start();
        let Some(after) = rest.strip_prefix('=') else {
            continue;
        };
        let after = after.trim_start();
        let (value, left) = if let Some(quoted) = after.strip_prefix('"') {
            quoted.split_once('"')?
        } else if let Some(quoted) = after.strip_prefix('\'') {
            quoted.split_once('\'')?
        } else {
            let end = after.find(|c: char| c.is_ascii_whitespace());
            after.split_at(end.unwrap_or(after.len()))
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value.to_owned());
        }
        rest = left;
    }
}

fn line_of(content: &str) -> Option<GoImportLine> {
    let words: Vec<&str> = content.split_ascii_whitespace().collect();
    let (root, kind, address, directory) = match words.as_slice() {
        [root, kind, address] => (root, kind, address, ""),
        [root, kind, address, directory] => (root, kind, address, *directory),
        _ => return None,
    };
    let is_plain = |element: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
        !element.starts_with('.') && !element.is_empty() && element.chars().all(is_allowed)
    };
    let directory = directory.trim_matches('/');
    let are_plain = root.split('/').all(is_plain)
        && (directory.is_empty() || directory.split('/').all(is_plain));
    are_plain.then(|| GoImportLine {
        root: (*root).to_owned(),
        kind: (*kind).to_owned(),
        address: (*address).to_owned(),
        directory: directory.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::{fixed_seed, texts_of};

    fn chosen(path: &str, page: &str) -> Option<(String, String)> {
        let line = import_line(path, page)?;
        Some((
            line.root,
            format!("{} {} {}", line.kind, line.address, line.directory),
        ))
    }

    #[test]
    fn a_page_names_the_repository_of_a_module() {
        let page = "<!DOCTYPE html><html><head>\n<!-- <meta name=\"go-import\" content=\"a.org/x git https://no.org/x\"> -->\n\
            <META content='a.org/x  git https://git.org/x' name=go-import />\n\
            <meta name=\"go-import\" content=\"a.org/y mod https://proxy.org\"><meta name=\"go-source\" content=\"a b c\">\n\
            </head><body><meta name=\"go-import\" content=\"a.org/x git https://late.org/x\"></body>";
        let expected = ("a.org/x".to_owned(), "git https://git.org/x ".to_owned());
        assert_eq!(chosen("a.org/x", page), Some(expected.clone()));
        assert_eq!(chosen("a.org/x/sub/v2", page), Some(expected));
        assert_eq!(chosen("a.org/xy", page), None);
        assert_eq!(chosen("a.org/y", page), None);
        let below = "<meta name=\"go-import\" content=\"a.org/x git https://git.org/x go/x\">";
        let below = chosen("a.org/x", below).unwrap();
        assert_eq!(below.1, "git https://git.org/x go/x");
        let two = "<meta name=go-import content='a.org/x git https://one.org'>\
            <meta name=go-import content='a.org/x git https://two.org'>";
        assert_eq!(chosen("a.org/x", two), None);
    }

    #[test]
    fn a_redirect_with_the_query_of_the_request_leads_to_allowed_hosts() {
        let hosts = ["go.example.org", "code.example.org/acme"];
        let hosts = hosts.iter().map(|host| host.parse().unwrap());
        let hosts = VcsHosts::new(hosts.collect());
        for (url, expected) in [
            ("https://go.example.org/net?go-get=1", true),
            ("https://go.example.org/net/?go-get=1", true),
            ("https://go.example.org/net", true),
            ("https://code.example.org/acme/net?go-get=1", true),
            ("https://code.example.org/other/net?go-get=1", false),
            ("https://other.example.org/net?go-get=1", false),
            ("http://go.example.org/net?go-get=1", false),
            ("https://go.example.org/net?go-get=1#x", false),
            ("https://go.example.org/net?go-get=2", false),
            ("https://go.example.org/net?go-get=1&to=x", false),
            ("https://go.example.org/net?", false),
        ] {
            assert_eq!(is_allowed(&url.parse().unwrap(), &hosts), expected, "{url}");
        }
    }

    #[test]
    fn a_page_that_is_none_names_nothing() {
        for page in [
            "",
            "<",
            "<meta name=\"go-import\" content=\"a.org/x git",
            "<meta name=go-import>",
            "<meta name=go-import content>",
            "<meta name=go-import content=",
            "<meta name='go-import' content='a.org/x git'>",
            "<meta name='go-import' content='a.org/x git https://x.org ../..'>",
            "<meta name='go-import' content='../x git https://x.org'>",
            "<!-- <meta name='go-import' content='a.org/x git https://x.org'>",
            "é<é é='>",
        ] {
            assert_eq!(chosen("a.org/x", page), None, "{page}");
        }
    }

    /// Pieces of a page.
    const PIECES: &[&str] = &[
        "<meta ",
        "<META\t",
        "<",
        ">",
        "/>",
        "<head>",
        "</head>",
        "<body>",
        "<!--",
        "-->",
        "name=",
        "name",
        "content=",
        "content = ",
        "\"go-import\"",
        "go-import",
        "'go-import' ",
        "=",
        "\"",
        "'",
        " ",
        "/",
        "\u{a0}",
        "\"a.org/x git https://git.org/x\"",
        "'a.org/x git https://git.org/x go'",
        "a.org/x",
        "../..",
    ];

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn any_page_names_plain_roots_and_directories(page in texts_of(PIECES)) {
            let lines = import_lines(&page);
            for line in &lines {
                let elements = line.root.split('/').chain(line.directory.split('/'));
                let elements: Vec<&str> = elements.filter(|element| !element.is_empty()).collect();
                prop_assert!(!line.root.is_empty() && !line.root.contains("//"), "{line:?}");
                prop_assert!(!elements.iter().any(|element| element.starts_with('.')), "{line:?}");
                prop_assert!(page.contains(&line.address), "{line:?}");
            }
            drop(choose("a.org/x/sub", lines));
        }

        #[test]
        fn a_line_is_read_as_it_was_written(
            root in "[a-z]{1,6}\\.org(/[A-Za-z0-9_~-]{1,6}){0,3}",
            kind in "git|hg|svn",
            address in "https://[a-z]{1,6}\\.org/[a-z./?&=-]{0,12}",
            directory in "([a-z]{1,4}(/[a-z]{1,4})?)?",
            (quote, is_name_first) in (proptest::sample::select(&["\"", "'"][..]), any::<bool>()),
        ) {
            let name = format!("name={quote}go-import{quote}");
            let content = format!("content={quote}{root} {kind}  {address} {directory}{quote}");
            let attributes = if is_name_first {
                format!("{name} {content}")
            } else {
                format!("{content}\n{name}/")
            };
            let page = format!("<!DOCTYPE html><!-- <meta> --><title>a > b</title><meta {attributes}></head>");
            let line = GoImportLine { root: root.clone(), kind, address, directory };
            prop_assert_eq!(import_lines(&page), vec![line.clone()]);
            prop_assert_eq!(choose(&format!("{root}/sub"), vec![line.clone()]), Some(line));
        }
    }
}
