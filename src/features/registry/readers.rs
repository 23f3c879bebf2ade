//! Owners and readers of names: those of a namespace here, or else those that an administrator chose for the names of another
//! deployment. Answers to clients and everything about runs use one rule, so that a run reads a version exactly if its comment
//! may name it.

use std::collections::HashMap;

use lockkeeper_registry::names::{NameKind, NamePattern, NamePrefix, RegistryName};

use super::misses::MissFacts;
use super::namespaces::beginnings;
use super::{NamePatterns, PeerState, Visibility};
use crate::model::OwnerName;
use crate::store::{Result, Store};

/// Owner and visibility of all namespaces.
#[derive(Debug)]
pub(super) struct Namespaces {
    owned: HashMap<(NameKind, String), NamespaceAccess>,
    /// Prefixes in lower case, with their spelling.
    folded: HashMap<(NameKind, String), NamePrefix>,
    /// Names that come from other deployments and are private, and those that are not.
    peers: [NamespaceAccess; 2],
    /// Names for which records of a deployment that has joined count.
    joined: Vec<NamePatterns>,
    /// Names for which records of a deployment count.
    accepted: Vec<NamePatterns>,
}

/// Owner and visibility of a namespace, which decide who reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamespaceAccess {
    /// `None`: the name comes from another deployment or was fetched, and belongs to nobody here.
    pub owner: Option<OwnerName>,
    pub visibility: Visibility,
    /// Names of the namespace, or names that are accepted from other deployments.
    pub sets: Vec<NamePattern>,
}

impl NamespaceAccess {
    /// Access to names whose versions were all fetched.
    pub const FOREIGN: Self = Self {
        owner: None,
        visibility: Visibility::Public,
        sets: Vec::new(),
    };

    /// Access to names of a namespace.
    pub fn of_owner(owner: OwnerName, prefix: NamePrefix, visibility: Visibility) -> Self {
        Self {
            owner: Some(owner),
            visibility,
            sets: vec![NamePattern::from(prefix)],
        }
    }

    /// Returns the sets that have a name. Only a scope within all of them names it.
    pub fn sets_of(&self, name: &RegistryName) -> impl Iterator<Item = &NamePattern> {
        self.sets.iter().filter(move |set| set.matches(name))
    }

    /// Returns true if a run reads the names that has the rights of this owner. Without one, it reads public names alone.
    pub fn is_read_by_run(&self, owner: Option<&OwnerName>) -> bool {
        match self.visibility {
            Visibility::Public => true,
            Visibility::Owner => self.owner.is_some() && self.owner.as_ref() == owner,
        }
    }
}

impl Namespaces {
    /// Reads all namespaces and peers.
    pub async fn read(store: &Store) -> Result<Self> {
        let rows = store.registry_namespaces().await?;
        let folded = rows.iter().map(|row| {
            let folded = row.prefix.as_str().to_ascii_lowercase();
            ((row.prefix.kind(), folded), row.prefix.clone())
        });
        let folded = folded.collect();
        let rows = rows.into_iter().map(|row| {
            let key = (row.prefix.kind(), row.prefix.as_str().to_owned());
            let access = NamespaceAccess::of_owner(row.owner, row.prefix, row.visibility);
            (key, access)
        });
        let peers = store.registry_peers().await?;
        let joined = peers.iter().filter(|peer| peer.state == PeerState::Joined);
        let joined = joined.map(|peer| peer.accepts.clone()).collect();
        let accepted = peers.iter().filter(|peer| peer.state.is_accepted());
        let accepted = accepted.map(|peer| peer.accepts.clone()).collect();
        // What came from a removed peer is served as before (R8). Private names stay private when their peer is accepted
        // for less, or for public names. Public ones for which nobody is accepted any more belong to no set, and have no
        // readers.
        let peers = peers.into_iter().flat_map(|peer| {
            let closed = (peer.closed, Visibility::Owner);
            [(peer.accepts, peer.visibility), closed]
        });
        Ok(Self {
            owned: rows.collect(),
            folded,
            peers: Self::sorted_peers(&peers.collect::<Vec<_>>()),
            joined,
            accepted,
        })
    }

    /// Returns true if the takedown of a version that was never here counts for a name: the name belongs to somebody here, it
    /// is private, or a deployment is accepted for it, which may be suspended. Otherwise anybody who was accepted once could
    /// close any public module for good, with takedowns of versions that it makes up.
    pub fn count_takedowns(&self, name: &RegistryName) -> bool {
        self.of(name).is_some_and(|access| {
            access.owner.is_some()
                || access.visibility == Visibility::Owner
                || self.accepted.iter().any(|patterns| patterns.matches(name))
        })
    }

    /// Returns owner and readers of a name. `None`: it is below no namespace and accepted from no other deployment, so only
    /// versions that were fetched are served, and takedowns are answered as those of public names.
    pub fn of(&self, name: &RegistryName) -> Option<&NamespaceAccess> {
        let kind = name.kind();
        let owned = beginnings(name)
            .into_iter()
            .find_map(|prefix| self.owned.get(&(kind, prefix.to_owned())));
        owned.or_else(|| self.of_peers(name))
    }

    /// Returns the facts that decide where a missing version of a name is looked for.
    pub fn miss_facts(&self, name: &RegistryName) -> MissFacts<'_> {
        let kind = name.kind();
        let namespace = beginnings(name)
            .into_iter()
            .find_map(|prefix| self.folded.get(&(kind, prefix.to_ascii_lowercase())));
        let mut joined = self.joined.iter();
        // Records for a name in a namespace count only if a pattern names it.
        let is_of_peers = joined.any(|patterns| match namespace {
            Some(prefix) => patterns.name_it(name, &NamePattern::from(prefix.clone())),
            None => patterns.matches(name),
        });
        MissFacts {
            namespace: namespace.map(NamePrefix::as_str),
            is_of_peers,
        }
    }

    /// Returns the readers of a name that belongs to nobody here. If it is accepted from several deployments, the fewest.
    fn of_peers(&self, name: &RegistryName) -> Option<&NamespaceAccess> {
        let mut peers = self.peers.iter();
        peers.find(|access| access.sets.iter().any(|set| set.matches(name)))
    }

    /// Returns the prefixes of a kind that belong to owners here, in order.
    pub fn owned(&self, kind: NameKind) -> Vec<(&str, &NamespaceAccess)> {
        let owned = self.owned.iter().filter(|((of, _), _)| *of == kind);
        let owned = owned.map(|((_, prefix), access)| (prefix.as_str(), access));
        let mut owned: Vec<(&str, &NamespaceAccess)> = owned.collect();
        owned.sort_unstable_by_key(|(prefix, _)| *prefix);
        owned
    }

    /// Returns the patterns of names that are accepted from other deployments, and the readers of these names.
    pub fn accepted(&self) -> impl Iterator<Item = (&NamePattern, Visibility)> {
        self.peers.iter().flat_map(|access| {
            let visibility = access.visibility;
            access.sets.iter().map(move |pattern| (pattern, visibility))
        })
    }

    /// Creates namespaces from the prefix, owner and readers of each, and peers from patterns and the readers of their names.
    #[cfg(test)]
    pub fn of_tests(namespaces: &[(&str, &str, Visibility)], peers: &[(&str, Visibility)]) -> Self {
        let namespaces = namespaces.iter().map(|(prefix, owner, visibility)| {
            let prefix: NamePrefix = prefix.parse().unwrap();
            let key = (prefix.kind(), prefix.as_str().to_owned());
            let owner = owner.parse().unwrap();
            (key, NamespaceAccess::of_owner(owner, prefix, *visibility))
        });
        let peers = peers.iter();
        let peers = peers.map(|(patterns, readers)| (patterns.parse().unwrap(), *readers));
        Self {
            owned: namespaces.collect(),
            folded: HashMap::new(),
            peers: Self::sorted_peers(&peers.collect::<Vec<_>>()),
            joined: Vec::new(),
            accepted: Vec::new(),
        }
    }

    /// Takes the patterns of names that are accepted from peers. Those of private ones come first.
    fn sorted_peers(peers: &[(NamePatterns, Visibility)]) -> [NamespaceAccess; 2] {
        [Visibility::Owner, Visibility::Public].map(|visibility| {
            let patterns = peers.iter().filter(|(_, of)| *of == visibility);
            let sets = patterns.flat_map(|(patterns, _)| patterns.iter().cloned());
            NamespaceAccess {
                owner: None,
                visibility,
                sets: sets.collect(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_visibility_of_a_name_is_that_of_its_namespace() {
        let namespaces = Namespaces::of_tests(
            &[
                ("module acme", "net", Visibility::Public),
                ("go example.com/net", "net", Visibility::Owner),
            ],
            &[
                ("module *", Visibility::Public),
                ("module closed/*\nmodule acme/*", Visibility::Owner),
            ],
        );
        for (name, expected) in [
            ("module acme/vpc/aws", Some(Visibility::Public)),
            // Names of other deployments, but never those of owners here.
            ("module other/vpc/aws", Some(Visibility::Public)),
            ("module closed/vpc/aws", Some(Visibility::Owner)),
            ("go example.com/net", Some(Visibility::Owner)),
            ("go example.com/net/a/v2", Some(Visibility::Owner)),
            ("go example.com/network", None),
            ("go example.com", None),
        ] {
            let found = namespaces.of(&name.parse().unwrap());
            let found = found.map(|namespace| namespace.visibility);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_namespace_has_its_names_in_any_case() {
        let key = (NameKind::Go, "github.com/acme".to_owned());
        let patterns = |text: &str| text.parse().unwrap();
        let namespaces = Namespaces {
            owned: HashMap::new(),
            folded: HashMap::from([(key, "go github.com/Acme".parse().unwrap())]),
            peers: Namespaces::sorted_peers(&[]),
            joined: vec![
                patterns("go github.com/Acme/net"),
                patterns("module acme/*"),
            ],
            accepted: Vec::new(),
        };
        for (name, namespace, is_of_peers) in [
            ("go github.com/Acme/net", Some("github.com/Acme"), true),
            ("go github.com/acme/net", Some("github.com/Acme"), false),
            ("go github.com/ACME/other", Some("github.com/Acme"), false),
            ("go github.com/acmes/net", None, false),
            ("module acme/vpc/aws", None, true),
        ] {
            let expected = MissFacts {
                namespace,
                is_of_peers,
            };
            let name = name.parse().unwrap();
            assert_eq!(namespaces.miss_facts(&name), expected, "{name}");
        }
    }
}
