//! Publishes at a server over HTTPS.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lockkeeper_registry::names::{RegistryName, escape_path, escape_version};
use lockkeeper_registry::records::{Checksums, PackageFileName, VersionContent};
use lockkeeper_registry::versions::VersionKey;
use reqwest::{Response, StatusCode, header, redirect};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::super::packaging::CheckedPackage;
use crate::kit::term::Usage;
use crate::secret::Secret;

/// Maximum size of a file with a token.
const MAX_TOKEN_FILE: u64 = 4096;
/// Maximum size of an answer.
const MAX_ANSWER: usize = 1 << 20;
/// Time limit for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// Time limit for the whole upload, longer than that of the server.
const UPLOAD_TIME: Duration = Duration::from_mins(20);

/// The registry of a server, with a token.
pub(super) struct RemoteRegistry {
    server: Url,
    token: Secret,
}

/// Answer of a server to an upload.
pub(super) enum RemoteAnswer {
    /// The version is published.
    Published {
        /// ID in the log, if the version is new.
        id: Option<i64>,
        /// Description of the version.
        answer: Value,
    },
    /// The server refuses the version for this reason.
    Refused(String),
}

/// Part of a description of a published version.
#[derive(Deserialize)]
struct PublishedBody {
    #[serde(default)]
    id: Option<i64>,
    files: String,
}

/// Part of a description of a failure.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProblemBody {
    detail: String,
    way_out: String,
}

impl RemoteRegistry {
    /// Reads the token from its file.
    pub fn new(server: &Url, token_file: &Path) -> anyhow::Result<Self> {
        if !matches!(server.scheme(), "https" | "http") || server.host().is_none() {
            return Err(Usage::new(
                "--server: write https://HOST, the public address of the server",
            )
            .into());
        }
        if server.scheme() == "http" && !is_local(server) {
            let why = "--server: others could read the token on its way; write https:// in place of http://";
            return Err(Usage::new(why).into());
        }
        let mut text = String::new();
        let file = std::fs::File::open(token_file);
        let read = file.and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text));
        read.with_context(|| format!("cannot read `{}` (--token-file)", token_file.display()))?;
        let token = Secret::new(text.trim());
        if token.expose().is_empty() || token.expose().contains(char::is_whitespace) {
            bail!(
                "`{}` (--token-file) does not have one token",
                token_file.display()
            );
        }
        Ok(Self {
            server: server.clone(),
            token,
        })
    }

    /// Uploads a package, and returns the answer of the server.
    pub async fn publish(&self, package: &CheckedPackage) -> anyhow::Result<RemoteAnswer> {
        let mut url = address(&self.server, &package.key)?;
        let mut names = package.content.packages.iter().map(|file| &file.name);
        let dir = names.find_map(PackageFileName::module_dir);
        if let Some(dir) = dir.filter(|dir| !dir.is_root()) {
            url.query_pairs_mut().append_pair("dir", dir.as_str());
        }
        let digest = hex::decode(package.staged.digest.as_str()).context("not a digest")?;
        let digest = format!("sha-256=:{}:", STANDARD.encode(digest));
        let file = tokio::fs::File::from_std(package.staged.open()?);
        // A redirect would take the token to another server.
        let client = reqwest::Client::builder()
            .http1_only()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIME)
            .timeout(UPLOAD_TIME)
            .build()
            .context("cannot create an HTTP client")?;
        let request = client
            .put(url.clone())
            .bearer_auth(self.token.expose())
            .header(header::CONTENT_LENGTH, package.staged.size)
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header("content-digest", digest)
            .body(file);
        let answer = request.send().await;
        let answer = answer.with_context(|| format!("cannot send the package to {url}"))?;
        let status = answer.status();
        if status.is_redirection() {
            let place = answer.headers().get(header::LOCATION);
            let place = place.and_then(|place| place.to_str().ok());
            let place = place.unwrap_or("another address");
            bail!("{url} redirects to {place}. Name that address with --server");
        }
        let body = read_body(answer).await;
        let body = body.with_context(|| format!("cannot read the answer of {url}"))?;
        match status {
            StatusCode::OK | StatusCode::CREATED => {
                let other = || format!("{url} is not a registry of Lockkeeper");
                let answer: Value = serde_json::from_slice(&body).with_context(other)?;
                let published = PublishedBody::deserialize(&answer).with_context(other)?;
                let files = files_of(&package.content);
                if published.files != files {
                    bail!(
                        "{url} answered with other files: {}, and the package has {files}",
                        published.files
                    );
                }
                let id = published.id;
                Ok(RemoteAnswer::Published { id, answer })
            }
            status => {
                let problem: ProblemBody = serde_json::from_slice(&body).unwrap_or_default();
                Ok(RemoteAnswer::Refused(match problem {
                    ProblemBody { detail, .. } if detail.is_empty() => {
                        format!("{url} answered with {status}")
                    }
                    ProblemBody { detail, way_out } => format!("{detail} {way_out}"),
                }))
            }
        }
    }
}

/// Returns the hash of the files of a package.
fn files_of(content: &VersionContent) -> String {
    match content.checksums {
        Checksums::Module { files } => files.to_string(),
        Checksums::Go { zip, .. } => zip.to_string(),
    }
}

/// Returns the address of a version at a server.
fn address(server: &Url, key: &VersionKey) -> anyhow::Result<Url> {
    let path = match key.name() {
        RegistryName::Module(name) => format!("api/registry/module/{name}/{}", key.version()),
        RegistryName::Go(path) => {
            let version = escape_version(&key.version()).context("the version cannot be sent")?;
            format!("api/registry/go/{}/@v/{version}", escape_path(&path))
        }
    };
    let mut base = server.clone();
    base.set_query(None);
    base.set_fragment(None);
    if !base.path().ends_with('/') {
        base.set_path(&format!("{}/", server.path()));
    }
    base.join(&path)
        .context("the address of the server cannot be used")
}

fn is_local(server: &Url) -> bool {
    match server.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

async fn read_body(mut answer: Response) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await? {
        body.extend_from_slice(&part);
        if body.len() > MAX_ANSWER {
            bail!("it is longer than {MAX_ANSWER} bytes");
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::registry::input::read_key;

    #[test]
    fn a_version_has_its_address_at_the_server() {
        let address = |server: &str, key: &str| {
            let url = address(&server.parse().unwrap(), &read_key(key).unwrap());
            url.unwrap().to_string()
        };
        assert_eq!(
            address("https://lockkeeper.example.com", "acme/vpc/aws@1.2.3-rc.1"),
            "https://lockkeeper.example.com/api/registry/module/acme/vpc/aws/1.2.3-rc.1"
        );
        assert_eq!(
            address(
                "https://example.com/lockkeeper?x#y",
                "example.com/Net/v2@v2.0.0-RC.1"
            ),
            "https://example.com/lockkeeper/api/registry/go/example.com/!net/v2/@v/v2.0.0-!r!c.1"
        );
    }

    #[test]
    fn a_token_is_the_only_word_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let server: Url = "https://lockkeeper.example.com".parse().unwrap();
        std::fs::write(&file, "lkr_x\n").unwrap();
        let remote = RemoteRegistry::new(&server, &file).unwrap();
        assert_eq!(remote.token.expose(), "lkr_x");
        for text in ["", "\n", "lkr_x lkr_y"] {
            std::fs::write(&file, text).unwrap();
            assert!(RemoteRegistry::new(&server, &file).is_err(), "{text:?}");
        }
        std::fs::write(&file, "lkr_x").unwrap();
        for (server, is_good) in [
            ("file:///x", false),
            ("http://registry.example.com", false),
            ("http://127.0.0.1.example.com", false),
            ("http://127.0.0.1:4141", true),
            ("http://localhost", true),
        ] {
            let remote = RemoteRegistry::new(&server.parse().unwrap(), &file);
            assert_eq!(remote.is_ok(), is_good, "{server}");
        }
        assert!(RemoteRegistry::new(&server, &dir.path().join("none")).is_err());
    }
}
