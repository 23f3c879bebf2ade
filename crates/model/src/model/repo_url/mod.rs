//! The address of a repository, in one normal form for every spelling.
//!
//! A claim is unique by this text, so two rules must hold: two spellings of one repository have the same normal form,
//! and two repositories never do. The normal form is
//!
//! ```text
//! https://host[:port]/path
//! ```
//!
//! - The *scheme* is always `https`, for every written scheme (`http`, `ssh`, `git`, `git@host:path`): the address is
//!   a name, not a protocol.
//! - The *host* is lower-case ASCII (`bücher.example` becomes `xn--bcher-kva.example`), without a dot at its end.
//!   Second names of the public forges (`ssh.github.com`, `acme.visualstudio.com` …) become the first.
//! - The *port* of `https` and `http` stays unless it is 443 or 80, because another port is another server. A port of
//!   `ssh` or `git` reveals nothing about that of `https`. If the host is known as a forge ([`ForgeHosts`]), the
//!   address of that forge is used. On another host, every port but the default one is refused, and the user has to
//!   write the `https` address.
//! - The *path* has no `.git` and no slash at its end. Letters, digits and `-._~+` stay, and every other character is
//!   percent-encoded. The path is in lower case if the host is known as a forge, because forges compare names without
//!   regard to case.
//! - *User* names are left out. A password or a token is refused and never repeated.
//!
//! The normal form does not distinguish `host:path` from `ssh://host/path`. These are two directories to a bare SSH
//! server, and the same repository to every forge.
//!
//! The rules of one kind of forge are in one file of [`kinds`].

mod fault;
mod forges;
mod kinds;
mod spelling;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use self::fault::shown;
use self::spelling::AddressParts;
use super::repo::{HostName, RepoId};
use super::text::text_type;

pub use self::fault::{InvalidRepoUrl, RepoUrlFault};
pub use self::forges::ForgeHosts;

/// Characters that are encoded in a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'+');

const SCHEME: &str = "https://";

/// The address of a repository in normal form, e.g. `https://github.com/acme/infra`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepoUrl(String);

impl RepoUrl {
    /// Maximum length in bytes, above that of any real address. The text fits the indexes of PostgreSQL together with
    /// a branch and a directory.
    pub const MAX_BYTES: usize = 512;

    /// Normalises any spelling. Only the public forges are known as such.
    pub fn parse(text: &str) -> Result<Self, InvalidRepoUrl> {
        Self::parse_at(text, &ForgeHosts::public())
    }

    /// Normalises any spelling, with these hosts as forges besides the public ones. The result is in normal form by
    /// [`Self::normalised`] as well.
    pub fn parse_at(text: &str, forges: &ForgeHosts) -> Result<Self, InvalidRepoUrl> {
        Self::read(text, forges).map_err(|fault| InvalidRepoUrl {
            shown: shown(text),
            fault,
        })
    }

    /// Reads a text in normal form, and refuses every other spelling.
    pub fn normalised(text: &str) -> Result<Self, InvalidRepoUrl> {
        let url = Self::parse(text)?;
        if url.0 == text {
            return Ok(url);
        }
        Err(InvalidRepoUrl {
            shown: shown(text),
            fault: RepoUrlFault::NotNormal(url.0),
        })
    }

    /// Returns the address of a repository on a forge.
    pub fn of(repo: &RepoId) -> Result<Self, InvalidRepoUrl> {
        let path = forges::path_of(repo);
        let path: Vec<String> = path.split('/').map(encoded).collect();
        let only = ForgeHosts::with([repo.host().clone()]);
        Self::parse_at(
            &format!("{SCHEME}{}/{}", repo.host(), path.join("/")),
            &only,
        )
    }

    /// Normalises a spelling, and checks that [`Self::normalised`] accepts the result, because rows are read with it.
    fn read(text: &str, forges: &ForgeHosts) -> Result<Self, RepoUrlFault> {
        let url = Self::rewritten(text, forges)?;
        let again = Self::rewritten(&url.0, &ForgeHosts::public())?;
        if again == url {
            Ok(url)
        } else {
            Err(RepoUrlFault::NotNormal(again.0))
        }
    }

    fn rewritten(text: &str, forges: &ForgeHosts) -> Result<Self, RepoUrlFault> {
        let spelling = AddressParts::read(text)?;
        let place = forges.place(&spelling)?;
        let path: Vec<String> = place
            .segments
            .iter()
            .map(|segment| encoded(segment))
            .collect();
        let url = format!("{SCHEME}{}/{}", place.host, path.join("/"));
        if url.len() > Self::MAX_BYTES {
            Err(RepoUrlFault::TooLong)
        } else {
            Ok(Self(url))
        }
    }

    /// Returns true if a text that is meant as an address may contain a secret, so that callers do not repeat it.
    pub fn may_hold_secret(text: &str) -> bool {
        fault::may_hold_secret(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the host, with its port unless that is the default one.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the host was checked by the constructor"
    )]
    pub fn host(&self) -> HostName {
        HostName::new(self.halves().0).expect("the host was checked by the constructor")
    }

    /// Returns the repository as deliveries name it. Returns `None` for an address that no forge has, such as one
    /// without an owner. Repositories of unknown hosts that differ only by case have the same result.
    pub fn repo_id(&self) -> Option<RepoId> {
        let (host, path) = self.halves();
        let path = percent_decode_str(path).decode_utf8().ok()?;
        RepoId::new(HostName::new(host).ok()?, &forges::name_of(host, &path)).ok()
    }

    fn halves(&self) -> (&str, &str) {
        self.0[SCHEME.len()..]
            .split_once('/')
            .expect("the constructor writes a host and a path")
    }
}

fn encoded(segment: &str) -> String {
    utf8_percent_encode(segment, ENCODED).to_string()
}

impl fmt::Display for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for RepoUrl {
    type Err = InvalidRepoUrl;

    /// Reads the form of rows and JSON: [`RepoUrl::normalised`]. Input of people goes through [`RepoUrl::parse_at`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::normalised(text)
    }
}

text_type!(RepoUrl);
