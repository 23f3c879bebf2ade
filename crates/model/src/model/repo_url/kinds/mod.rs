//! Addresses of the kinds of forges. All knowledge about the hosts of one kind is in one file.
//!
//! Claims name repositories on any host, so there are more kinds here than the server can work for. To add a kind,
//! add a file and a line in [`KINDS`].

mod azure;
mod bitbucket;
mod gitea;
mod github;
mod gitlab;

use std::ops::RangeInclusive;

use super::fault::RepoUrlFault;
use super::forges::RepoLocation;
use super::spelling::AddressParts;

/// All kinds of forges whose addresses are known.
pub(super) const KINDS: &[&AddressRules] = &[
    &github::ADDRESSES,
    &gitlab::ADDRESSES,
    &bitbucket::ADDRESSES,
    &azure::ADDRESSES,
    &gitea::ADDRESSES,
];

/// Addresses of one kind of forge.
pub(super) struct AddressRules {
    /// Public hosts. They compare names without regard to case.
    pub hosts: &'static [PublicHost],
    /// End of the names of further public hosts, one for each customer: `.ghe.com`.
    pub customer_hosts: Option<&'static str>,
    /// Prefixes of tokens, in lower case.
    pub tokens: &'static [&'static str],
    /// Form of addresses that are not `host/owner/name`.
    pub own_form: Option<OwnForm>,
}

/// A public host of a forge.
pub(super) struct PublicHost {
    pub name: &'static str,
    /// Second names of the host, for networks that block most outgoing ports.
    pub second_names: &'static [&'static str],
    /// Shape of a path on the host, unless the kind has its own form of addresses.
    pub shape: Option<PathShape>,
}

/// Shape of the path of a repository.
pub(super) struct PathShape {
    /// Permitted numbers of segments.
    pub segments: RangeInclusive<usize>,
    /// Address that shows the shape to people.
    pub example: &'static str,
}

/// Form of the addresses of a kind of forge that differs from `host/owner/name`.
pub(super) struct OwnForm {
    /// Host of the normal form.
    pub host: &'static str,
    /// Reads an address. Returns `None` if it is on another host.
    pub locate: fn(&AddressParts) -> Result<Option<RepoLocation>, RepoUrlFault>,
    /// Returns the path of an address from the owner and the name of its repository.
    pub path_of: fn(owner: &str, name: &str) -> String,
    /// Returns the full name of a repository from the path of its address.
    pub name_of: fn(path: &str) -> String,
}

impl AddressRules {
    /// Returns true if a host is public and of this kind.
    pub fn has_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|known| known.name == host)
            || self.customer_hosts.is_some_and(|end| host.ends_with(end))
    }
}

/// Returns the first name of a public host that this is a second name of.
pub(super) fn first_name(host: &str) -> Option<&'static str> {
    KINDS
        .iter()
        .flat_map(|kind| kind.hosts)
        .find(|known| known.second_names.contains(&host))
        .map(|known| known.name)
}

/// Returns the shape of a path on a host, if it is a public one with a shape.
pub(super) fn shape_on(host: &str) -> Option<&'static PathShape> {
    KINDS
        .iter()
        .flat_map(|kind| kind.hosts)
        .find(|known| known.name == host)?
        .shape
        .as_ref()
}

/// Returns the forms of addresses that are not `host/owner/name`.
pub(super) fn own_forms() -> impl Iterator<Item = &'static OwnForm> {
    KINDS.iter().filter_map(|kind| kind.own_form.as_ref())
}

/// Returns the prefixes of all known tokens, in lower case.
pub(super) fn tokens() -> impl Iterator<Item = &'static str> {
    KINDS.iter().flat_map(|kind| kind.tokens).copied()
}
