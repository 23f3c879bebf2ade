//! Fetches files from a mirror: with limits on size and time, and without passwords in errors.

use std::time::Duration;

use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Response};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use url::Url;

use super::DownloadError;

/// Time limit for a connection. A server that takes longer counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a whole download, which usually takes seconds.
const WHOLE_TIMEOUT: Duration = Duration::from_mins(15);
/// Maximum number of redirects. GitHub redirects once, a mirror perhaps twice.
const MAX_REDIRECTS: usize = 5;

/// HTTP client for the servers of releases.
#[derive(Debug)]
pub(super) struct ReleaseClient(Client);

impl ReleaseClient {
    /// Creates a client. `patience` is the maximum time that the server may send nothing.
    pub fn new(patience: Duration) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .http1_only()
            .user_agent(concat!("lockkeeper/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(patience)
            .timeout(WHOLE_TIMEOUT)
            .redirect(Policy::custom(follow));
        client.build().map(Self)
    }

    /// Fetches a small file into memory.
    pub async fn bytes(&self, url: &Url, limit: u64) -> Result<Vec<u8>, DownloadError> {
        let mut answer = self.open(url, limit).await?;
        let mut bytes = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| broken(url, error))? {
            check_size(url, bytes.len() as u64 + part.len() as u64, limit)?;
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    }

    /// Fetches a large file to disk. Returns its SHA-256 in lower-case hexadecimal.
    pub async fn save(&self, url: &Url, limit: u64, file: &mut File) -> Result<String, SaveError> {
        let mut answer = self.open(url, limit).await?;
        let (mut digest, mut size) = (Sha256::new(), 0);
        while let Some(part) = answer.chunk().await.map_err(|error| broken(url, error))? {
            size += part.len() as u64;
            check_size(url, size, limit)?;
            digest.update(&part);
            file.write_all(&part).await?;
        }
        file.flush().await?;
        Ok(hex::encode(digest.finalize()))
    }

    async fn open(&self, url: &Url, limit: u64) -> Result<Response, DownloadError> {
        let answer = self
            .0
            .get(url.clone())
            .send()
            .await
            .map_err(|error| broken(url, error))?;
        if !answer.status().is_success() {
            return Err(DownloadError::Status {
                url: shown(url),
                status: answer.status(),
            });
        }
        check_size(url, answer.content_length().unwrap_or(0), limit)?;
        Ok(answer)
    }
}

/// Reason that a file was not saved.
#[derive(Debug, thiserror::Error)]
pub(super) enum SaveError {
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error(transparent)]
    Disk(#[from] std::io::Error),
}

/// Follows redirects, but never from an encrypted to an unencrypted connection.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let was_safe = attempt.previous().iter().any(|url| url.scheme() == "https");
    if attempt.previous().len() > MAX_REDIRECTS {
        attempt.error("too many redirects")
    } else if was_safe && attempt.url().scheme() != "https" {
        attempt.error("a redirect from https to http")
    } else {
        attempt.follow()
    }
}

fn check_size(url: &Url, size: u64, limit: u64) -> Result<(), DownloadError> {
    if size > limit {
        Err(DownloadError::TooLarge {
            url: shown(url),
            limit,
        })
    } else {
        Ok(())
    }
}

fn broken(url: &Url, error: reqwest::Error) -> DownloadError {
    let reason = if error.is_timeout() {
        "the server did not answer in time".to_owned()
    } else {
        deepest(&error.without_url())
    };
    DownloadError::Http {
        url: shown(url),
        reason,
    }
}

/// Returns the text of the innermost error. That one says what happened; the outer ones only say where.
fn deepest(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

/// Formats an address without user name, password, query and fragment.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both calls fail for URLs that cannot have a user, which is fine.
    let _no_user = url.set_username("");
    let _no_password = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        let url =
            Url::parse("https://me:secret@mirror.example.com/a/b.zip?token=secret#secret").unwrap();
        assert_eq!(shown(&url), "https://mirror.example.com/a/b.zip");
    }
}
