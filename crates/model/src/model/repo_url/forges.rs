//! Known hosts: the forges, their second names, and the shape of their addresses.

use std::collections::BTreeSet;

use super::fault::RepoUrlFault;
use super::spelling::{AddressParts, AddressProtocol, check_segment};
use crate::model::repo::{HostName, RepoId};

const AZURE: &str = "dev.azure.com";
const AZURE_SHAPE: &str = "https://dev.azure.com/organisation/project/_git/name";

/// Public forges. All of them compare names without regard to case.
const PUBLIC: &[&str] = &[
    "github.com",
    "gitlab.com",
    "bitbucket.org",
    AZURE,
    "codeberg.org",
    "gitea.com",
];

/// Second names of forges, for networks that block most outgoing ports.
const SECOND_NAMES: &[(&str, &str)] = &[
    ("www.github.com", "github.com"),
    ("ssh.github.com", "github.com"),
    ("www.gitlab.com", "gitlab.com"),
    ("altssh.gitlab.com", "gitlab.com"),
    ("www.bitbucket.org", "bitbucket.org"),
    ("altssh.bitbucket.org", "bitbucket.org"),
];

/// Hosts that are forges: the public ones and those that the server works for. On these, the case of a path has no
/// meaning, and every port of `ssh` belongs to the forge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgeHosts(BTreeSet<HostName>);

/// Location of a repository: its host and path.
pub(super) struct RepoLocation {
    /// Host, with its port unless that is the default one.
    pub host: String,
    pub segments: Vec<String>,
}

impl ForgeHosts {
    /// Returns the public forges alone.
    pub fn public() -> Self {
        Self::default()
    }

    /// Returns the public forges and these hosts.
    pub fn with(hosts: impl IntoIterator<Item = HostName>) -> Self {
        Self(hosts.into_iter().collect())
    }

    pub(super) fn place(&self, spelling: &AddressParts) -> Result<RepoLocation, RepoUrlFault> {
        if let Some(place) = azure(spelling)? {
            return Ok(place);
        }
        let host = self.host(spelling)?;
        let folds = self.is_forge(&host);
        let mut segments: Vec<String> = spelling.segments.clone();
        if folds {
            segments = folded(&segments)?;
        }
        strip_git(&mut segments)?;
        check_shape(&host, segments.len())?;
        Ok(RepoLocation { host, segments })
    }

    fn host(&self, spelling: &AddressParts) -> Result<String, RepoUrlFault> {
        let second = SECOND_NAMES
            .iter()
            .find(|(second, _)| *second == spelling.host);
        let name = second.map_or(spelling.host.as_str(), |(_, first)| *first);
        match (spelling.way, spelling.port) {
            (AddressProtocol::Web, Some(port)) => Ok(format!("{name}:{port}")),
            (AddressProtocol::Web, None) => Ok(name.to_owned()),
            (AddressProtocol::Shell, port) => self.behind(name, port),
        }
    }

    /// Returns the forge that `ssh` or `git` reaches on a machine.
    fn behind(&self, name: &str, port: Option<u16>) -> Result<String, RepoUrlFault> {
        let mut there: BTreeSet<&str> = self
            .0
            .iter()
            .map(HostName::as_str)
            .filter(|host| is_on(host, name))
            .collect();
        if is_public(name) {
            there.insert(name);
        }
        let mut there = there.into_iter();
        match (there.next(), there.next(), port) {
            (Some(one), None, _) => Ok(one.to_owned()),
            (None, _, None) => Ok(name.to_owned()),
            (Some(_), Some(_), None) => Err(RepoUrlFault::SshPort(22)),
            (_, _, Some(port)) => Err(RepoUrlFault::SshPort(port)),
        }
    }

    fn is_forge(&self, host: &str) -> bool {
        is_public(host) || self.0.iter().any(|own| own.as_str() == host)
    }
}

/// Returns true for public forges. GitHub's enterprise clouds have a host name each.
fn is_public(host: &str) -> bool {
    PUBLIC.contains(&host) || host.ends_with(".ghe.com")
}

/// Returns true if a forge, perhaps with a port, is on the machine of this name.
fn is_on(forge: &str, name: &str) -> bool {
    forge
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Lower-cases the segments, and checks them again. Some capital letters outside of ASCII have small ones in ASCII,
/// so the result can be invalid.
fn folded(segments: &[String]) -> Result<Vec<String>, RepoUrlFault> {
    let fold = |segment: &String| {
        let folded = segment.to_lowercase();
        check_segment(&folded).map(|()| folded)
    };
    segments.iter().map(fold).collect()
}

/// Removes `.git` from the end, because Git serves `name` and `name.git` as one.
fn strip_git(segments: &mut [String]) -> Result<(), RepoUrlFault> {
    let Some(name) = segments.last_mut() else {
        return Err(RepoUrlFault::EmptyPart);
    };
    if let Some(bare) = name.strip_suffix(".git") {
        *name = bare.to_owned();
    }
    if name.strip_suffix(".git").is_some() {
        Err(RepoUrlFault::TwiceGit)
    } else {
        check_segment(name)
    }
}

fn check_shape(host: &str, parts: usize) -> Result<(), RepoUrlFault> {
    let (fits, shape) = match host {
        "gitlab.com" => (parts >= 2, "https://gitlab.com/group/name"),
        "github.com" => (parts == 2, "https://github.com/owner/name"),
        "bitbucket.org" => (parts == 2, "https://bitbucket.org/workspace/name"),
        "codeberg.org" => (parts == 2, "https://codeberg.org/owner/name"),
        "gitea.com" => (parts == 2, "https://gitea.com/owner/name"),
        _ => (true, ""),
    };
    if fits {
        Ok(())
    } else {
        Err(RepoUrlFault::Shape(shape))
    }
}

/// Reads an address of Azure DevOps, which has one form per protocol, and older forms with the organisation as a
/// host.
fn azure(spelling: &AddressParts) -> Result<Option<RepoLocation>, RepoUrlFault> {
    if spelling.way == AddressProtocol::Web && spelling.port.is_some() {
        return Ok(None);
    }
    let mut parts = folded(&spelling.segments)?;
    let organisation = spelling
        .host
        .strip_suffix(".visualstudio.com")
        .filter(|name| *name != "vs-ssh");
    match (spelling.host.as_str(), organisation) {
        (AZURE | "ssh.dev.azure.com" | "vs-ssh.visualstudio.com", _) => {}
        (_, Some(organisation)) if !organisation.contains('.') => {
            check_segment(organisation)?;
            parts.insert(0, organisation.to_owned());
        }
        _ => return Ok(None),
    }
    strip_git(&mut parts)?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (organisation, project, name) = match parts[..] {
        ["v3", organisation, project, name] if spelling.way == AddressProtocol::Shell => {
            (organisation, project, name)
        }
        [organisation, project, "_git" | "_ssh", name]
        | [
            organisation,
            "defaultcollection",
            project,
            "_git" | "_ssh",
            name,
        ] => (organisation, project, name),
        [organisation, "_git" | "_ssh", name] => (organisation, name, name),
        _ => return Err(RepoUrlFault::Shape(AZURE_SHAPE)),
    };
    let segments = [organisation, project, "_git", name]
        .map(str::to_owned)
        .to_vec();
    Ok(Some(RepoLocation {
        host: AZURE.to_owned(),
        segments,
    }))
}

/// Returns the path of a repository's address.
pub(super) fn path_of(repo: &RepoId) -> String {
    match (repo.host().as_str(), repo.full_name().rsplit_once('/')) {
        (AZURE, Some((owner, name))) => format!("{owner}/_git/{name}"),
        _ => repo.full_name().to_owned(),
    }
}

/// Returns the name of a repository from the path of its address.
pub(super) fn name_of(host: &str, path: &str) -> String {
    if host == AZURE {
        path.replacen("/_git/", "/", 1)
    } else {
        path.to_owned()
    }
}
