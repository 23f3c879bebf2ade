//! From the path of a Go module to its repository, by the rules of `go`.

use lockkeeper_registry::names::GoPath;
use url::Url;

use crate::config::server::VcsHosts;
use crate::model::RepoId;

/// Hosts whose repositories are named by the first two elements after the host.
const WELL_KNOWN: [&str; 2] = ["github.com", "bitbucket.org"];

/// A Git repository, and the paths of the modules in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::features::registry) struct GoRepository {
    /// Path of the module at the top of the repository.
    pub root: String,
    /// Address of the repository.
    pub url: Url,
    /// Directory to which the root belongs, without slashes at its ends. Empty: the top.
    pub directory: String,
}

/// Way to the repository of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::features::registry) enum RepositoryLookup {
    /// The path names the repository.
    Repository(GoRepository),
    /// The host of the path says where the repository is.
    Ask(Url),
}

/// Place of a module in its repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::features::registry) struct ModulePlace {
    /// Directory that the beginnings of tags name, without slashes at its ends. Empty: the top.
    pub directory: String,
    /// Directory for the major version, such as `sub/v2`, which can have the module instead.
    pub major_directory: Option<String>,
}

/// Returns the way to the repository of a module. The error is a sentence that says why there is none.
pub(in crate::features::registry) fn repository_lookup(
    hosts: &VcsHosts,
    path: &GoPath,
) -> Result<RepositoryLookup, String> {
    let host = path.as_str().split('/').next().unwrap_or_default();
    let not_allowed = |what: &str| Err(format!("{what} is not on --registry-vcs-allowlist"));
    match named_root(path)? {
        Some(root) => {
            let url = address(&root)?;
            if !hosts.allows(&url) {
                return not_allowed(&root);
            }
            Ok(RepositoryLookup::Repository(GoRepository {
                root,
                url,
                directory: String::new(),
            }))
        }
        None if !hosts.allows_module(path) => not_allowed(host),
        None => address(path.as_str()).map(RepositoryLookup::Ask),
    }
}

/// Returns the root that the path itself names.
fn named_root(path: &GoPath) -> Result<Option<String>, String> {
    let elements: Vec<&str> = path.as_str().split('/').collect();
    if WELL_KNOWN.contains(&elements[0]) {
        let Some([host, owner, name]) = elements.first_chunk() else {
            return Err(format!("`{path}` names no repository on {}", elements[0]));
        };
        return Ok(Some(format!("{host}/{owner}/{name}")));
    }
    let named = elements.iter().skip(1).position(|element| {
        element
            .strip_suffix(".git")
            .is_some_and(|name| !name.is_empty())
    });
    Ok(named.map(|at| elements[..at + 2].join("/")))
}

fn address(path: &str) -> Result<Url, String> {
    Url::parse(&format!("https://{path}")).map_err(|error| format!("`{path}`: {error}"))
}

impl GoRepository {
    /// Returns the name that a mirror of this very repository has. `None`: there cannot be one, because of the port or the
    /// name.
    pub fn mirrored_as(&self) -> Option<RepoId> {
        let path = self.url.path().strip_prefix('/')?;
        let path = path.strip_suffix(".git").unwrap_or(path);
        let repo: RepoId = format!("{}/{path}", self.url.host_str()?).parse().ok()?;
        // Names of mirrors have no capital letters. On some hosts, the name with capitals is another repository.
        (self.url.port().is_none() && repo.full_name() == path).then_some(repo)
    }

    /// Returns the place of a module. The error is a sentence that says why the repository cannot have it.
    pub fn place_of(&self, path: &GoPath) -> Result<ModulePlace, String> {
        let join = |one: &str, other: &str| match (one, other) {
            ("", other) => other.to_owned(),
            (one, "") => one.to_owned(),
            (one, other) => format!("{one}/{other}"),
        };
        let whole = path.as_str();
        if whole == self.root {
            return Ok(ModulePlace {
                directory: self.directory.clone(),
                major_directory: None,
            });
        }
        let suffix = path.major_suffix();
        let prefix = whole.strip_suffix(suffix).unwrap_or(whole);
        let rest = prefix.strip_prefix(self.root.as_str());
        let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let Some(rest) = rest else {
            return Err(format!(
                "the repository of `{}` cannot have the module `{path}`",
                self.root
            ));
        };
        let directory = join(&self.directory, rest.trim_matches('/'));
        let major = suffix.strip_prefix('/');
        Ok(ModulePlace {
            major_directory: major.map(|major| join(&directory, major)),
            directory,
        })
    }
}

impl ModulePlace {
    /// Returns the beginning of the tags of the module.
    pub fn tag_prefix(&self) -> String {
        match self.directory.as_str() {
            "" => String::new(),
            directory => format!("{directory}/"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &[&str]) -> VcsHosts {
        VcsHosts::new(list.iter().map(|host| host.parse().unwrap()).collect())
    }

    #[test]
    fn well_known_hosts_name_their_repositories() {
        let hosts = hosts(&["github.com/acme", "bitbucket.org", "code.example.org"]);
        let lead = |path: &str| match repository_lookup(&hosts, &path.parse().unwrap()) {
            Ok(RepositoryLookup::Repository(repository)) => repository.url.to_string(),
            Ok(RepositoryLookup::Ask(url)) => format!("ask {url}"),
            Err(why) => why,
        };
        for (path, expected) in [
            ("github.com/acme/net", "https://github.com/acme/net"),
            ("github.com/acme/net/http/v2", "https://github.com/acme/net"),
            ("bitbucket.org/a/b/c", "https://bitbucket.org/a/b"),
            (
                "code.example.org/x/net.git/http",
                "https://code.example.org/x/net.git",
            ),
            (
                "code.example.org/x/net",
                "ask https://code.example.org/x/net",
            ),
            ("code.example.org", "ask https://code.example.org/"),
            (
                "github.com/acme",
                "`github.com/acme` names no repository on github.com",
            ),
            (
                "github.com/other/net",
                "github.com/other/net is not on --registry-vcs-allowlist",
            ),
            (
                "other.example.org/net",
                "other.example.org is not on --registry-vcs-allowlist",
            ),
        ] {
            assert_eq!(lead(path), expected, "{path}");
        }
    }

    #[test]
    fn a_repository_is_mirrored_under_the_name_that_it_has_on_its_forge() {
        let name = |url: &str| {
            let repository = GoRepository {
                root: "x".to_owned(),
                url: url.parse().unwrap(),
                directory: String::new(),
            };
            repository.mirrored_as().map(|repo| repo.to_string())
        };
        let same = Some("github.com/acme/net".to_owned());
        assert_eq!(name("https://github.com/acme/net"), same);
        assert_eq!(name("https://github.com/acme/net.git"), same);
        assert_eq!(name("https://github.com/Acme/net"), None);
        assert_eq!(name("https://github.com/acme/net/"), None);
        assert_eq!(name("https://github.com:8443/acme/net"), None);
        assert_eq!(name("https://github.com/net"), None);
        assert_eq!(name("https://github.com/acme/a%20b"), None);
    }

    #[test]
    fn a_module_has_one_or_two_places() {
        let place = |root: &str, directory: &str, path: &str| {
            let repository = GoRepository {
                root: root.to_owned(),
                url: "https://example.com/x".parse().unwrap(),
                directory: directory.to_owned(),
            };
            let place = repository.place_of(&path.parse().unwrap());
            place.map(|place| (place.directory, place.major_directory.unwrap_or_default()))
        };
        let found = |directory: &str, major: &str| Ok((directory.to_owned(), major.to_owned()));
        let root = "example.com/x";
        assert_eq!(place(root, "", "example.com/x"), found("", ""));
        assert_eq!(place(root, "", "example.com/x/v2"), found("", "v2"));
        assert_eq!(place(root, "", "example.com/x/sub"), found("sub", ""));
        assert_eq!(
            place(root, "", "example.com/x/sub/v3"),
            found("sub", "sub/v3")
        );
        assert_eq!(place(root, "go", "example.com/x/sub"), found("go/sub", ""));
        assert_eq!(
            place("example.com/x/v2", "", "example.com/x/v2"),
            found("", "")
        );
        assert_eq!(
            place("gopkg.in/yaml.v3", "", "gopkg.in/yaml.v3"),
            found("", "")
        );
        assert!(place(root, "", "example.com/xy").is_err());
    }
}
