//! Finds the versions that a tag names, by the files of its commit.
//!
//! `lockkeeper.yaml` at the commit decides. Without it, the name of the repository names a Terraform module, and `go.mod`
//! files name Go modules. What nobody has asked to publish, such as a Go module whose path is in no namespace, is left out
//! without a status. The list of tags says why.

use lockkeeper_registry::go_mod::{MAX_GO_MOD, parse_go_mod};
use lockkeeper_registry::names::{GoPath, ModuleName, NamePrefix, Namespace, RegistryName};
use lockkeeper_registry::tags::{GoTag, TagName, module_of_repository};
use lockkeeper_registry::versions::{ModuleVersion, VersionKey};

use super::super::RegistryNamespace;
use crate::config::repo::{PublishedModule, RegistryRequest, RepoConfig};
use crate::git::{CommitSnapshot, SnapshotError};
use crate::model::{OwnerName, RepoId, RepoPath};
use crate::store::Store;

/// File that says what a repository publishes.
const CONFIG_FILE: &str = "lockkeeper.yaml";
/// Maximum length of a reason that is stored.
const MAX_REASON: usize = 1_000;
/// Maximum number of patterns of tags in a reason.
const MAX_PATTERNS: usize = 3;

/// A version that a tag names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TagTarget {
    pub key: VersionKey,
    /// Directory with the files of the module.
    pub dir: RepoPath,
    /// Reason why the version is not published.
    pub refusal: Option<String>,
}

/// Versions that a tag names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TagTargets {
    pub versions: Vec<TagTarget>,
    /// Reason why other versions of the tag, whose names are not known, are not published.
    pub refusal: Option<String>,
    /// Reason why the tag names no version, if it names none and none is refused.
    pub absence: Option<String>,
}

/// Failure to read what a commit publishes, which says nothing about the commit.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetsError {
    #[error(transparent)]
    Files(#[from] SnapshotError),
    #[error("the namespaces cannot be read")]
    Database(#[from] sqlx::Error),
}

/// The owner of a repository, and the names of the owner.
#[derive(Clone, Debug)]
pub(super) struct TagOwner {
    pub owner: OwnerName,
    pub namespaces: Vec<RegistryNamespace>,
}

impl TagOwner {
    /// Reads the namespaces of an owner.
    pub async fn of(store: &Store, owner: OwnerName) -> Result<Self, sqlx::Error> {
        let mut namespaces = store.registry_namespaces().await?;
        namespaces.retain(|namespace| namespace.owner == owner);
        Ok(Self { owner, namespaces })
    }

    /// Returns everything that decides whether the owner may publish a name, as a text that can be compared.
    pub fn facts(&self) -> String {
        let prefixes = self.namespaces.iter().map(|one| one.prefix.to_string());
        let mut prefixes: Vec<String> = prefixes.collect();
        prefixes.sort();
        format!("{} {}", self.owner, prefixes.join(","))
    }

    fn covers(&self, name: &RegistryName) -> bool {
        let mut namespaces = self.namespaces.iter();
        namespaces.any(|namespace| namespace.prefix.covers(name))
    }

    /// Returns the namespaces of Terraform modules.
    fn of_modules(&self) -> Vec<&Namespace> {
        let namespaces = self.namespaces.iter();
        namespaces
            .filter_map(|one| match &one.prefix {
                NamePrefix::Namespace(namespace) => Some(namespace),
                NamePrefix::Go(_) => None,
            })
            .collect()
    }
}

/// Returns why the owner may not publish a name. `None`: the owner may.
pub(super) async fn refused_name(
    store: &Store,
    owner: &OwnerName,
    name: &RegistryName,
) -> Result<Option<String>, sqlx::Error> {
    let name_text = name.as_str();
    Ok(match store.registry_namespace_of(name).await? {
        Some(namespace) if namespace.owner == *owner => None,
        Some(_) => Some(format!(
            "{name_text} is in a namespace of another owner than {owner}, who has claimed this repository."
        )),
        None => Some(format!(
            "{name_text} is in no namespace. An administrator can add one for {owner}: lockkeeper registry namespaces add."
        )),
    })
}

/// Returns the files that decide whether a tag names a version. `None`: its name does already.
pub(super) fn places(repo: &RepoId, tag: &TagName, names: &TagOwner) -> Option<Vec<RepoPath>> {
    if !matches!(default_module(repo, tag, names), Ok(None)) {
        return None;
    }
    let of_go = tag.as_go().as_ref().map(go_mods).unwrap_or_default();
    let of_go = of_go.into_iter().map(|(_, _, file)| file);
    Some(of_go.chain(RepoPath::new(CONFIG_FILE)).collect())
}

/// Explains why a tag names no version if its commit has none of the files that [`places`] returns.
pub(super) fn absence_without_files(repo: &RepoId, tag: &TagName, names: &TagOwner) -> String {
    absence(&no_module(None, repo, names), &no_go_mod(tag))
}

fn absence(no_module: &str, no_go: &str) -> String {
    let text = format!(
        "No Terraform module: {}. No Go module: {}.",
        no_module.trim_end_matches('.'),
        no_go.trim_end_matches('.')
    );
    text.chars().take(MAX_REASON).collect()
}

/// Explains why a tag, which names no version, is none of a Terraform module. `modules` are those of the configuration file.
fn no_module(modules: Option<&[PublishedModule]>, repo: &RepoId, names: &TagOwner) -> String {
    let Some(modules) = modules else {
        return match names.of_modules().first() {
            None => format!("{} has no namespace of Terraform modules", names.owner),
            Some(namespace) if module_of_repository(repo.name(), namespace).is_none() => format!(
                "the repository is not named terraform-SYSTEM-NAME, and no {CONFIG_FILE} lists modules"
            ),
            Some(_) => "the tag is not a version such as `v1.2.3` or `1.2.3`".to_owned(),
        };
    };
    let patterns = modules.iter().take(MAX_PATTERNS);
    let patterns: Vec<String> = patterns
        .map(|module| format!("`{}`", module.tags))
        .collect();
    let more = match modules.len() - patterns.len() {
        0 => String::new(),
        more => format!(" or {more} more"),
    };
    if patterns.is_empty() {
        return format!("{CONFIG_FILE} lists none");
    }
    format!(
        "{CONFIG_FILE} wants {}{more}, with a version such as `1.2.3` in place of `*`",
        patterns.join(" or ")
    )
}

/// Explains why a tag is no version of a Go module if its commit has no `go.mod` file where it should be.
fn no_go_mod(tag: &TagName) -> String {
    let Some(go) = tag.as_go() else {
        return "the tag is not a version such as `v1.2.3` or `http/v1.2.3`".to_owned();
    };
    let files = go_mods(&go).into_iter();
    let files: Vec<String> = files.map(|(_, _, file)| file.to_string()).collect();
    format!("the commit has no {}", files.join(" or "))
}

/// Returns the places of a tag of a Go module, each with its directory and its `go.mod` file.
fn go_mods(go: &GoTag) -> Vec<(String, RepoPath, RepoPath)> {
    let places = go.places().into_iter();
    places
        .filter_map(|place| {
            let dir = RepoPath::new(&place).ok()?;
            let file = dir.join("go.mod").ok()?;
            Some((place, dir, file))
        })
        .collect()
}

/// Finds the versions that a tag names.
pub(super) async fn find(
    store: &Store,
    files: &CommitSnapshot,
    (repo, tag): (&RepoId, &TagName),
    names: &TagOwner,
) -> Result<TagTargets, TargetsError> {
    let request = match read_request(files).await? {
        Ok(request) => request.unwrap_or_default(),
        Err(refusal) => {
            return Ok(TagTargets {
                refusal: Some(refusal),
                ..TagTargets::default()
            });
        }
    };
    let mut targets = TagTargets::default();
    let modules = match &request.modules {
        Some(modules) => modules
            .iter()
            .filter_map(|module| {
                let version = module.tags.version_of(tag)?;
                Some((module.name.clone(), version, module.dir.clone()))
            })
            .collect(),
        None => match default_module(repo, tag, names) {
            Ok(module) => module.into_iter().collect::<Vec<_>>(),
            Err(refusal) => {
                targets.refusal = Some(refusal);
                Vec::new()
            }
        },
    };
    for (name, version, dir) in modules {
        let key = VersionKey::module(name, version);
        let refusal = refused_name(store, &names.owner, &key.name()).await?;
        targets.versions.push(TagTarget { key, dir, refusal });
    }
    let no_go = if request.go == Some(false) {
        Some(format!("{CONFIG_FILE} says `go: false`"))
    } else {
        find_go(store, files, tag, (names, request.go), &mut targets).await?
    };
    if targets.versions.is_empty() && targets.refusal.is_none() {
        let no_module = no_module(request.modules.as_deref(), repo, names);
        targets.absence = no_go.map(|no_go| absence(&no_module, &no_go));
    }
    Ok(targets)
}

/// Reads `registry` of the configuration file. The inner error is a sentence for people.
async fn read_request(
    files: &CommitSnapshot,
) -> Result<Result<Option<RegistryRequest>, String>, SnapshotError> {
    let path = RepoPath::new(CONFIG_FILE).expect("a plain name is a path");
    let bytes = match files.read(&path, RepoConfig::MAX_BYTES as u64).await {
        Ok(None) => return Ok(Ok(None)),
        Ok(Some(bytes)) => bytes,
        Err(error) if error.is_of_commit() => return Ok(Err(error.to_string())),
        Err(error) => return Err(error),
    };
    let Ok(text) = String::from_utf8(bytes) else {
        return Ok(Err(format!("{CONFIG_FILE} is not UTF-8.")));
    };
    Ok(RepoConfig::parse_registry(CONFIG_FILE, &text)
        .map_err(|errors| errors.to_string().chars().take(MAX_REASON).collect()))
}

/// Returns the module that the repository is by its name. Fails with a sentence for people if its owner has several namespaces
/// of modules.
fn default_module(
    repo: &RepoId,
    tag: &TagName,
    names: &TagOwner,
) -> Result<Option<(ModuleName, ModuleVersion, RepoPath)>, String> {
    let namespaces = names.of_modules();
    let Some(first) = namespaces.first() else {
        return Ok(None);
    };
    let name = module_of_repository(repo.name(), first);
    let (Some(name), Some(version)) = (name, tag.module_version()) else {
        return Ok(None);
    };
    if namespaces.len() > 1 {
        return Err(format!(
            "{} has several namespaces, so the name of this repository names no module. Add it to {CONFIG_FILE}.",
            names.owner
        ));
    }
    Ok(Some((name, version, RepoPath::root())))
}

/// Finds the version of a Go module. `wanted` is true if the file asks for it. Returns the reason if none is found, and none
/// is refused.
async fn find_go(
    store: &Store,
    files: &CommitSnapshot,
    tag: &TagName,
    (names, wanted): (&TagOwner, Option<bool>),
    targets: &mut TagTargets,
) -> Result<Option<String>, TargetsError> {
    let Some(go) = tag.as_go() else {
        return Ok(Some(no_go_mod(tag)));
    };
    let is_wanted = wanted == Some(true);
    // Faults of the files, each with true if it is a refusal.
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for (place, dir, file) in go_mods(&go) {
        let bytes = match files.read(&file, MAX_GO_MOD).await {
            Ok(None) => continue,
            Ok(Some(bytes)) => bytes,
            Err(error) if error.is_of_commit() => {
                faults.push((is_wanted, error.to_string()));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let path = match read_path(&bytes) {
            Ok(path) => path,
            Err(fault) => {
                faults.push((is_wanted, format!("{file}: {fault}")));
                continue;
            }
        };
        match go.version_of(&place, &path) {
            Ok(key) => found.push((key, dir)),
            Err(fault) => {
                let is_ours = is_wanted || names.covers(&RegistryName::Go(path));
                faults.push((is_ours, format!("{file}: {fault}.")));
            }
        }
    }
    if found.len() > 1 {
        let dirs: Vec<&str> = found.iter().map(|(_, dir)| dir.as_str()).collect();
        targets.refusal = Some(format!(
            "The go.mod files of {} are both those of the tag, so go refuses the version. Remove one of them.",
            dirs.join(" and ")
        ));
        return Ok(None);
    }
    let Some((key, dir)) = found.pop() else {
        let refusal = faults.iter().find(|(is_refusal, _)| *is_refusal);
        let refusal = refusal.map(|(_, fault)| fault.clone());
        targets.refusal = targets.refusal.take().or(refusal);
        let fault = faults.into_iter().next().map(|(_, fault)| fault);
        return Ok(Some(fault.unwrap_or_else(|| no_go_mod(tag))));
    };
    let name = key.name();
    // Most Go modules of a company are in no registry, and forks are those of others.
    if !is_wanted && !names.covers(&name) {
        return Ok(Some(format!(
            "{} is in no namespace of {}",
            name.as_str(),
            names.owner
        )));
    }
    let refusal = refused_name(store, &names.owner, &name).await?;
    targets.versions.push(TagTarget { key, dir, refusal });
    Ok(None)
}

/// Returns the module that a `go.mod` file names.
fn read_path(go_mod: &[u8]) -> Result<GoPath, String> {
    let parsed = parse_go_mod(go_mod).map_err(|error| error.to_string())?;
    let module = parsed.module.ok_or("it has no `module` line")?;
    module.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_names_no_version_is_explained() {
        let repo: RepoId = "github.com/acme/network".parse().unwrap();
        let names = TagOwner {
            owner: "net".parse().unwrap(),
            namespaces: Vec::new(),
        };
        let explained = |tag: &str| absence_without_files(&repo, &tag.parse().unwrap(), &names);
        insta::assert_snapshot!(explained("x-1.2.3"), @"No Terraform module: net has no namespace of Terraform modules. No Go module: the tag is not a version such as `v1.2.3` or `http/v1.2.3`.");
        insta::assert_snapshot!(explained("http/v2.0.0"), @"No Terraform module: net has no namespace of Terraform modules. No Go module: the commit has no http/go.mod or http/v2/go.mod.");

        let module = |name: &str| PublishedModule {
            dir: RepoPath::root(),
            name: format!("acme/{name}/aws").parse().unwrap(),
            tags: format!("{name}-v*").parse().unwrap(),
        };
        let modules = ["a", "b", "c", "d", "e"].map(module);
        let explained = |modules: &[PublishedModule]| no_module(Some(modules), &repo, &names);
        insta::assert_snapshot!(explained(&[]), @"lockkeeper.yaml lists none");
        insta::assert_snapshot!(explained(&modules[..1]), @"lockkeeper.yaml wants `a-v*`, with a version such as `1.2.3` in place of `*`");
        insta::assert_snapshot!(explained(&modules), @"lockkeeper.yaml wants `a-v*` or `b-v*` or `c-v*` or 2 more, with a version such as `1.2.3` in place of `*`");
    }
}
