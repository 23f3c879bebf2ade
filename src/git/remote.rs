//! Where a mirror is filled from.

use std::time::Duration;

use url::Url;

use super::environment::{FORGE, git_to};
use super::{GitError, Mirror};
use crate::process::{Cmd, Output};
use crate::vcs::GitCredentials;

/// A repository on a forge, and how to get in.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    /// URL without credentials.
    pub url: &'a str,
    /// Presented to the host of the URL when it asks.
    pub credentials: Option<&'a GitCredentials>,
    /// Longest time for each exchange with the server.
    pub deadline: Duration,
}

/// A remote whose URL and credentials were looked at.
pub(super) struct Checked<'a> {
    remote: Remote<'a>,
    url: Url,
}

impl<'a> Remote<'a> {
    /// Credentials in the URL would end up in argument lists and messages, so they are refused.
    pub(super) fn check(self, doing: &str, allow_file: bool) -> Result<Checked<'a>, GitError> {
        let problem = |text: &str| GitError::other(doing, text);
        let url = Url::parse(self.url)
            .map_err(|error| problem(&format!("the URL is not valid: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(problem(
                "the URL contains credentials; they must be configured apart from it",
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

    /// The URL, for an argument.
    pub(super) fn url(&self) -> &str {
        self.remote.url
    }

    /// Whether it is reached by SSH, whatever the URL says.
    pub(super) fn is_by_ssh(&self) -> bool {
        self.remote
            .credentials
            .is_some_and(|credentials| credentials.ssh.is_some())
    }

    /// Whether there are a user name and a password for it.
    pub(super) fn presents_password(&self) -> bool {
        self.remote.credentials.is_some() && !self.is_by_ssh()
    }

    /// Git's helper that speaks with it; `None`: it is not reached by HTTP.
    pub(super) fn helper(&self) -> Option<&'static str> {
        match self.url.scheme() {
            _ if self.is_by_ssh() => None,
            "https" => Some("remote-https"),
            "http" => Some("remote-http"),
            _ => None,
        }
    }

    /// What to call it in a fetch: a partial mirror knows it by name.
    pub(super) fn name<'s>(&'s self, mirror: &Mirror) -> &'s str {
        if mirror.filter().is_some() {
            FORGE
        } else {
            self.url()
        }
    }

    /// What a failed call came to, without the password.
    pub(super) fn failure(&self, doing: &str, output: &Output) -> GitError {
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

    /// A git command that may talk to the remote, and show it credentials.
    pub(super) fn git_to(&self, remote: &Checked<'_>) -> Cmd {
        let to = (&remote.url, remote.remote.credentials);
        git_to(&self.settings, self.dir(), self.filter().as_ref(), to)
            .deadline(remote.remote.deadline)
    }
}
