//! From a version to the commit that it names, by the rules of `go`.
//!
//! - A version is the tag with its name, after the directory of the module: `v1.2.3`, `sub/v1.2.3`.
//! - A pseudo-version such as `v1.2.4-0.20191109021931-daa7c04131f5` names a commit by its first twelve digits. The time
//!   has to be that of the commit, and the version before it a tag of one of its ancestors. Otherwise somebody could make
//!   up a high version of any commit.
//! - The commit has to be on a branch or under a tag. Hosts keep commits of forks in the same place, and anybody can make
//!   those.

use lockkeeper_registry::go_mod::{MAX_GO_MOD, parse_go_mod};
use lockkeeper_registry::names::GoPath;
use lockkeeper_registry::versions::{GoVersion, PseudoVersion, VersionKey};

use super::refusal::{FilesFault, SourceRefusal};
use super::repository::ModulePlace;
use crate::git::{CommitSnapshot, ForeignRepository, RemoteRef};
use crate::model::{CommitSha, RepoPath};

/// Number of digits of a commit in a pseudo-version.
const SHORT: usize = 12;

/// Returns the name of the tag that a version needs in the repository of its module.
pub(super) fn tag_of(place: &ModulePlace, version: &GoVersion) -> String {
    let text = version.to_string();
    let text = text.strip_suffix("+incompatible").unwrap_or(&text);
    format!("{}{text}", place.tag_prefix())
}

/// Finds the commit of a tag among the refs of a repository.
pub(super) fn tagged(refs: &[RemoteRef], tag: &str) -> Option<CommitSha> {
    let name = format!("refs/tags/{tag}");
    let found = refs.iter().find(|found| found.name == name)?;
    Some(found.commit.clone())
}

/// Returns the tags that can be versions, without `refs/tags/`. Repositories with a tag for each module and release have many
/// others.
pub(super) fn version_tags(refs: &[RemoteRef]) -> Vec<String> {
    let tags = refs.iter().filter_map(|found| {
        let tag = found.name.strip_prefix("refs/tags/")?;
        let (_, version) = tag.rsplit_once('/').unwrap_or(("", tag));
        let version: GoVersion = version.parse().ok()?;
        let is_one = !version.is_pseudo() && !version.is_incompatible();
        is_one.then(|| tag.to_owned())
    });
    tags.collect()
}

/// Lists the versions of a module among the tags of its repository. Versions of `go` that need the suffix
/// `+incompatible` are left out, because only the files of each could tell which of them exist.
pub(super) fn versions_in(tags: &[String], place: &ModulePlace, path: &GoPath) -> Vec<GoVersion> {
    let prefix = place.tag_prefix();
    let versions = tags.iter().filter_map(|tag| {
        let version: GoVersion = tag.strip_prefix(&prefix)?.parse().ok()?;
        let is_one = !version.is_pseudo()
            && !version.is_incompatible()
            && VersionKey::go(path.clone(), version.clone()).is_ok();
        is_one.then_some(version)
    });
    versions.collect()
}

/// Checks everything about a pseudo-version that its text and the refs tell. Returns the commit of the tag that it follows.
pub(super) fn check_pseudo(
    refs: &[RemoteRef],
    (place, path): (&ModulePlace, &GoPath),
    (version, parts): (&GoVersion, &PseudoVersion),
) -> Result<Option<CommitSha>, SourceRefusal> {
    let revision = parts.revision.as_str();
    let is_short = revision.len() == SHORT
        && revision
            .bytes()
            .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    if !is_short {
        return Err(SourceRefusal::refused(format!(
            "`{revision}` is not the beginning of a commit with {SHORT} digits"
        )));
    }
    let Some(base) = &parts.base else {
        if path.major_suffix().is_empty() && version.to_string().starts_with("v1.") {
            return Err(SourceRefusal::refused(
                "a version of a commit without a tag before it begins with v0",
            ));
        }
        return Ok(None);
    };
    let tag = tag_of(place, base);
    let Some(tagged) = tagged(refs, &tag) else {
        return Err(SourceRefusal::refused(format!(
            "the version follows the tag {tag}, which is not there"
        )));
    };
    if tagged.as_str().starts_with(revision) {
        return Err(SourceRefusal::refused(format!(
            "the commit has the tag {tag}, which is its version"
        )));
    }
    Ok(Some(tagged))
}

/// Finds the commit of a pseudo-version in a repository whose history was fetched, and checks that the version is the one
/// that `go` would give it. `tagged` is the commit of the tag before it.
pub(super) async fn pseudo_commit(
    history: &ForeignRepository,
    parts: &PseudoVersion,
    tagged: Option<&CommitSha>,
) -> Result<CommitSha, SourceRefusal> {
    let revision = parts.revision.as_str();
    let Some(commit) = history.commit(revision).await? else {
        return Err(SourceRefusal::not_found(format!(
            "no branch and no tag has the commit {revision}"
        )));
    };
    // A branch can have a name that looks like a commit.
    if !commit.as_str().starts_with(revision) {
        return Err(SourceRefusal::refused(format!(
            "`{revision}` is not a commit"
        )));
    }
    let time = history.time(&commit).await?;
    if time != parts.time {
        return Err(SourceRefusal::refused(format!(
            "the commit has the time {}, and the version says {}",
            time.format("%Y%m%d%H%M%S"),
            parts.time.format("%Y%m%d%H%M%S")
        )));
    }
    if let Some(tagged) = tagged
        && !history.descends(&commit, tagged).await?
    {
        return Err(SourceRefusal::refused(
            "the version follows a tag, and the commit does not",
        ));
    }
    Ok(commit)
}

/// Finds the directory of a module in a fetched commit: that of the path, or the one of the major version below it.
pub(super) async fn module_directory(
    files: &CommitSnapshot,
    place: &ModulePlace,
    path: &GoPath,
) -> Result<RepoPath, FilesFault> {
    let is_of_module = async |directory: &RepoPath| -> Result<Option<bool>, FilesFault> {
        let file = directory.join("go.mod").map_err(no_directory)?;
        let content = files.read(&file, MAX_GO_MOD).await?;
        Ok(content.map(|content| {
            let parsed = parse_go_mod(&content).ok();
            parsed.and_then(|parsed| parsed.module).as_deref() == Some(path.as_str())
        }))
    };
    let directory = directory_of(&place.directory)?;
    let here = is_of_module(&directory).await?;
    if let Some(major) = &place.major_directory {
        let major = directory_of(major)?;
        match (here, is_of_module(&major).await?) {
            (Some(true), Some(true)) => {
                let why = format!("both `{directory}` and `{major}` have a go.mod file of {path}");
                return Err(SourceRefusal::refused(why).into());
            }
            (_, Some(true)) => return Ok(major),
            (_, Some(false) | None) => {}
        }
    }
    match here {
        Some(true) => Ok(directory),
        Some(false) => {
            let why = format!("the go.mod file of the repository is not that of {path}");
            Err(SourceRefusal::refused(why).into())
        }
        // Only a module at the top, in versions before v2, can lack the file.
        None if directory.is_root() && place.major_directory.is_none() => Ok(directory),
        None => {
            let why = format!("the commit has no go.mod file of {path}");
            Err(SourceRefusal::not_found(why).into())
        }
    }
}

fn directory_of(text: &str) -> Result<RepoPath, SourceRefusal> {
    if text.is_empty() {
        return Ok(RepoPath::root());
    }
    RepoPath::new(text).map_err(no_directory)
}

fn no_directory(error: impl std::fmt::Display) -> SourceRefusal {
    SourceRefusal::refused(format!("the module has no possible directory: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::fixed_seed;

    #[test]
    fn the_tags_of_a_module_are_its_versions() {
        let refs: Vec<RemoteRef> = [
            "refs/heads/v1.9.0",
            "refs/tags/v1.0.0",
            "refs/tags/v1.1.0-rc.1",
            "refs/tags/v1.2",
            "refs/tags/v2.0.0",
            "refs/tags/sub/v0.1.0",
            "refs/tags/v0.0.0-20191109021931-daa7c04131f5",
        ]
        .iter()
        .map(|name| RemoteRef {
            name: (*name).to_owned(),
            commit: "a".repeat(40).parse().unwrap(),
        })
        .collect();
        let versions = |directory: &str, path: &str| {
            let place = ModulePlace {
                directory: directory.to_owned(),
                major_directory: None,
            };
            let versions = versions_in(&version_tags(&refs), &place, &path.parse().unwrap());
            versions.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(versions("", "example.com/m"), ["v1.0.0", "v1.1.0-rc.1"]);
        assert_eq!(versions("", "example.com/m/v2"), ["v2.0.0"]);
        assert_eq!(versions("sub", "example.com/m/sub"), ["v0.1.0"]);
        let place = ModulePlace {
            directory: "sub".to_owned(),
            major_directory: None,
        };
        let tag = tag_of(&place, &"v2.0.0+incompatible".parse().unwrap());
        assert_eq!(tag, "sub/v2.0.0");
        assert!(tagged(&refs, "sub/v0.1.0").is_some());
        assert!(tagged(&refs, "v1.9.0").is_none());
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn every_version_of_any_tags_has_its_tag(
            names in proptest::collection::vec(
                "refs/(tags|heads)/(sub/|go/)?v[0-3]\\.[0-9]{1,20}\\.0(-[a-z0-9.-]{0,6})?(\\+[a-z]{1,12})?|.{0,30}",
                0..20,
            ),
            directory in "|sub|go",
            path in "example\\.com/m(/v[23])?",
        ) {
            let refs = names.iter().map(|name| RemoteRef {
                name: name.clone(),
                commit: "a".repeat(40).parse().unwrap(),
            });
            let refs: Vec<RemoteRef> = refs.collect();
            let place = ModulePlace { directory, major_directory: None };
            for version in versions_in(&version_tags(&refs), &place, &path.parse().unwrap()) {
                prop_assert!(tagged(&refs, &tag_of(&place, &version)).is_some(), "{version}");
            }
        }
    }
}
