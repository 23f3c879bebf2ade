//! Represents the remote from which a mirror is filled.

use std::path::Path;
use std::time::Duration;

use url::Url;

use super::environment::{FORGE, git_to};
use super::{GitError, GitSettings, Mirror};
use crate::config::MirrorFilter;
use crate::forges::GitCredentials;
use crate::process::{CallOutput, Cmd};

/// Repository on a forge, with the credentials for it.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    pub url: &'a str,
    /// Credentials for the host of the URL, presented when it asks.
    pub credentials: Option<&'a GitCredentials>,
    /// Longest time for each exchange with the server.
    pub deadline: Duration,
}

/// Remote whose URL and credentials were checked.
pub(super) struct Checked<'a> {
    remote: Remote<'a>,
    url: Url,
}

impl<'a> Remote<'a> {
    /// Checks the URL and the credentials. Credentials in the URL are refused, because they would end up in argument
    /// lists and messages.
    pub(super) fn check(self, doing: &str, allow_file: bool) -> Result<Checked<'a>, GitError> {
        let problem = |text: &str| GitError::other(doing, text);
        let url = Url::parse(self.url)
            .map_err(|error| problem(&format!("the URL is not valid: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(problem(
                "the URL contains credentials. Configure them separately",
            ));
        }
        let known =
            matches!(url.scheme(), "https" | "http") || (url.scheme() == "file" && allow_file);
        if !known {
            return Err(problem(&format!(
                "`{}:` URLs are not supported, only `https:` and `http:`",
                url.scheme()
            )));
        }
        let bad = |c: &GitCredentials| {
            c.username
                .chars()
                .chain(c.password.expose().chars())
                .any(char::is_control)
        };
        if self.credentials.is_some_and(bad) {
            return Err(problem(
                "user name or token contains a line break or another control character",
            ));
        }
        Ok(Checked { remote: self, url })
    }
}

impl Checked<'_> {
    pub(super) fn into_url(self) -> Url {
        self.url
    }

    /// Returns the URL, for an argument.
    pub(super) fn url(&self) -> &str {
        self.remote.url
    }

    /// Creates a git command on a repository that may talk to the remote and present credentials.
    pub(super) fn git_in(
        &self,
        settings: &GitSettings,
        dir: &Path,
        filter: Option<&MirrorFilter>,
    ) -> Cmd {
        git_to(settings, dir, filter, (&self.url, self.remote.credentials))
            .deadline(self.remote.deadline)
    }

    /// Returns true if git uses SSH for the remote, regardless of the URL.
    pub(super) fn is_by_ssh(&self) -> bool {
        self.remote
            .credentials
            .is_some_and(|credentials| credentials.ssh.is_some())
    }

    /// Returns true if there are a user name and a password for the remote.
    pub(super) fn presents_password(&self) -> bool {
        self.remote.credentials.is_some() && !self.is_by_ssh()
    }

    /// Returns the HTTP helper of git for this remote, or `None` if git does not use HTTP for it.
    pub(super) fn helper(&self) -> Option<&'static str> {
        match self.url.scheme() {
            _ if self.is_by_ssh() => None,
            "https" => Some("remote-https"),
            "http" => Some("remote-http"),
            _ => None,
        }
    }

    /// Returns the name of the remote in a fetch: a partial mirror has a configured name for it.
    pub(super) fn name<'s>(&'s self, mirror: &Mirror) -> &'s str {
        if mirror.filter().is_some() {
            FORGE
        } else {
            self.url()
        }
    }

    /// Converts a failed call to an error without the password.
    pub(super) fn failure(&self, doing: &str, output: &CallOutput) -> GitError {
        GitError::from_output(
            doing,
            output,
            self.remote.credentials.map(|c| c.password.expose()),
        )
    }
}

impl Mirror {
    pub(super) fn check<'a>(
        &self,
        doing: &str,
        remote: &Remote<'a>,
    ) -> Result<Checked<'a>, GitError> {
        remote.check(doing, self.settings.allow_file)
    }

    /// Creates a git command that may talk to the remote and present credentials.
    pub(super) fn git_to(&self, remote: &Checked<'_>) -> Cmd {
        remote.git_in(&self.settings, self.dir(), self.filter().as_ref())
    }
}
