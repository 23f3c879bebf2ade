//! Finds the forge of an address, and the place of the repository there. Knows no single forge: their rules are in
//! [`super::kinds`].

use std::collections::BTreeSet;

use super::fault::RepoUrlFault;
use super::kinds;
use super::spelling::{AddressParts, AddressProtocol, check_segment};
use crate::model::repo::{HostName, RepoId};

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
        for form in kinds::own_forms() {
            if let Some(place) = (form.locate)(spelling)? {
                return Ok(place);
            }
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
        let name = kinds::first_name(&spelling.host).unwrap_or(&spelling.host);
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

/// Returns true for the hosts of public forges.
fn is_public(host: &str) -> bool {
    kinds::KINDS.iter().any(|kind| kind.has_host(host))
}

/// Returns true if a forge, perhaps with a port, is on the machine of this name.
fn is_on(forge: &str, name: &str) -> bool {
    forge
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Lower-cases the segments, and checks them again. Some capital letters outside of ASCII have small ones in ASCII,
/// so the result can be invalid.
pub(super) fn folded(segments: &[String]) -> Result<Vec<String>, RepoUrlFault> {
    let fold = |segment: &String| {
        let folded = segment.to_lowercase();
        check_segment(&folded).map(|()| folded)
    };
    segments.iter().map(fold).collect()
}

/// Removes `.git` from the end, because Git serves `name` and `name.git` as one.
pub(super) fn strip_git(segments: &mut [String]) -> Result<(), RepoUrlFault> {
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

fn check_shape(host: &str, segments: usize) -> Result<(), RepoUrlFault> {
    match kinds::shape_on(host) {
        Some(shape) if !shape.segments.contains(&segments) => {
            Err(RepoUrlFault::Shape(shape.example))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the path of a repository's address.
pub(super) fn path_of(repo: &RepoId) -> String {
    let host = repo.host().as_str();
    let form = kinds::own_forms().find(|form| form.host == host);
    match (form, repo.full_name().rsplit_once('/')) {
        (Some(form), Some((owner, name))) => (form.path_of)(owner, name),
        (_, _) => repo.full_name().to_owned(),
    }
}

/// Returns the name of a repository from the path of its address.
pub(super) fn name_of(host: &str, path: &str) -> String {
    match kinds::own_forms().find(|form| form.host == host) {
        Some(form) => (form.name_of)(path),
        None => path.to_owned(),
    }
}
