//! Beginnings of the paths of Go modules that a run may read. `go` gets the modules from the registry, and must not ask the
//! public checksum database about them.
//!
//! Modules of other deployments count as well. A pattern such as `go example.com/net/...` is one beginning. Where all Go modules
//! of a deployment are accepted, or those of a whole host, the modules that are known here are listed. Everything else on a host
//! such as `github.com` comes from its repository, and the database still verifies it.

use lockkeeper_registry::names::{NameKind, NamePattern, RegistryName, begins_with};

use super::super::Visibility;
use super::super::readers::Namespaces;
use super::super::store::broken;
use crate::model::OwnerName;
use crate::store::{Result, Store, on_pool};

/// Maximum number of modules of other deployments that are listed one by one.
const MAX_LISTED: i64 = 1_000;

/// Minimum number of elements of such a name. A name stands for everything below it, and another deployment must not switch
/// the public database off for a whole host or for the modules of others there.
const LISTED_ELEMENTS: usize = 3;

/// Maximum number of bytes of all names, after which no more names of other deployments follow. With longer lists, a run would
/// not get modules of Go at all.
const MAX_BYTES: usize = 48 << 10;

/// Selects the Go modules with a version that another deployment has published.
const OF_PEERS: &str = "SELECT n.name FROM registry_names n WHERE n.kind = 'go' AND EXISTS (SELECT 1 \
    FROM registry_versions v WHERE v.kind = n.kind AND v.name = n.name AND v.origin = 'peer') ORDER BY n.name LIMIT $1";

/// Lists the names for a run that has the rights of this owner, those of namespaces first.
pub(super) async fn go_names(store: &Store, owner: Option<&OwnerName>) -> Result<Vec<String>> {
    let namespaces = Namespaces::read(store).await?;
    let is_listed = namespaces.accepted().any(|(pattern, readers)| {
        readers == Visibility::Public && matches!(go_part(pattern), GoPart::Wide)
    });
    let listed = if is_listed {
        store.registry_go_modules_of_peers().await?
    } else {
        Vec::new()
    };
    Ok(names_of_run(&namespaces, owner, &listed))
}

/// Go modules that a pattern has.
enum GoPart<'a> {
    /// Modules of a whole host, or all modules.
    Wide,
    /// A path, and perhaps those below it.
    Below(&'a str),
    None,
}

fn go_part(pattern: &NamePattern) -> GoPart<'_> {
    match pattern {
        NamePattern::All | NamePattern::GoModules => GoPart::Wide,
        NamePattern::GoBelow(prefix) if !prefix.as_str().contains('/') => GoPart::Wide,
        NamePattern::GoBelow(prefix) => GoPart::Below(prefix.as_str()),
        NamePattern::Go(path) => GoPart::Below(path.as_str()),
        NamePattern::Modules
        | NamePattern::Namespace(_)
        | NamePattern::Systems(..)
        | NamePattern::Module(_) => GoPart::None,
    }
}

/// Puts the names together. `listed` are modules of other deployments that are known here.
fn names_of_run(
    namespaces: &Namespaces,
    owner: Option<&OwnerName>,
    listed: &[RegistryName],
) -> Vec<String> {
    let prefixes = namespaces.owned(NameKind::Go);
    let mut names: Vec<String> = prefixes
        .iter()
        .filter(|(_, access)| access.is_read_by_run(owner))
        .map(|(prefix, _)| (*prefix).to_owned())
        .collect();
    let (public, private): (Vec<_>, Vec<_>) = namespaces
        .accepted()
        .partition(|(_, readers)| *readers == Visibility::Public);
    let mut of_peers = Vec::new();
    for (pattern, _) in public {
        let GoPart::Below(beginning) = go_part(pattern) else {
            continue;
        };
        // The names of a namespace have the readers of the namespace, and a name that several deployments have the fewest.
        let is_owned = prefixes
            .iter()
            .any(|(prefix, _)| begins_with(beginning, prefix));
        let is_private = private.iter().any(|(wider, _)| pattern.is_within(wider));
        if !is_owned && !is_private {
            of_peers.push(beginning);
        }
    }
    of_peers.sort_unstable();
    let listed = listed.iter().filter(|name| {
        let is_narrow = name.as_str().split('/').count() >= LISTED_ELEMENTS;
        let access = namespaces.of(name).filter(|_| is_narrow);
        access.is_some_and(|access| access.owner.is_none() && access.is_read_by_run(owner))
    });
    let mut bytes: usize = names.iter().map(|name| name.len() + 1).sum();
    for name in of_peers.into_iter().chain(listed.map(RegistryName::as_str)) {
        if names.iter().any(|known| begins_with(name, known)) {
            continue;
        }
        bytes += name.len() + 1;
        if bytes > MAX_BYTES {
            break;
        }
        names.push(name.to_owned());
    }
    names
}

impl Store {
    /// Lists Go modules with a version that another deployment has published, by path.
    async fn registry_go_modules_of_peers(&self) -> Result<Vec<RegistryName>> {
        let names = on_pool!(self, db => sqlx::query_scalar::<_, String>(OF_PEERS)
            .bind(MAX_LISTED).fetch_all(db))?;
        let names = names.iter();
        names
            .map(|name| RegistryName::new(NameKind::Go, name).map_err(broken))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(owner: Option<&str>, listed: &[&str]) -> Vec<String> {
        let namespaces = Namespaces::of_tests(
            &[
                ("go example.com/net", "net", Visibility::Owner),
                ("go example.com/open", "net", Visibility::Public),
                ("module acme", "net", Visibility::Public),
            ],
            &[
                (
                    "*\ngo partner.org/a/...\ngo one.org/lib\ngo example.com/net/sub\ngo example.com/...\nmodule partner/*",
                    Visibility::Public,
                ),
                ("go closed.org/...\ngo one.org/...", Visibility::Owner),
            ],
        );
        let owner = owner.map(|owner| owner.parse().unwrap());
        let listed: Vec<RegistryName> = listed.iter().map(|name| name.parse().unwrap()).collect();
        names_of_run(&namespaces, owner.as_ref(), &listed)
    }

    #[test]
    fn a_run_gets_the_names_that_it_may_read() {
        let listed = [
            "go closed.org/secret",
            "go example.com/net/sub",
            "go example.com/other/lib",
            "go github.com",
            "go github.com/hashicorp",
            "go one.org/lib",
            "go partner.org/a/b",
            "go partner.org/net/v2",
            "go wide.org/net/core",
            "go wide.org/net/core/v2",
        ];
        let of_peers = [
            "partner.org/a",
            "example.com/other/lib",
            "partner.org/net/v2",
            "wide.org/net/core",
        ];
        assert_eq!(names(None, &listed)[..1], ["example.com/open"]);
        assert_eq!(names(None, &listed)[1..], of_peers);
        let of_owner = names(Some("net"), &listed);
        assert_eq!(of_owner[..2], ["example.com/net", "example.com/open"]);
        assert_eq!(of_owner[2..], of_peers);
        assert_eq!(names(Some("other"), &listed), names(None, &listed));
    }

    #[test]
    fn only_so_many_names_of_other_deployments_are_listed() {
        let long = "x".repeat(200);
        let listed: Vec<String> = (0..1_000)
            .map(|number| format!("go wide.org/{number}/{long}"))
            .collect();
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let all = names(None, &listed).join(",");
        assert!(all.len() < MAX_BYTES, "{}", all.len());
        assert!(all.len() > MAX_BYTES - 300, "{}", all.len());
    }
}
