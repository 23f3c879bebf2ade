//! Measures the disk use of mirrors and checkouts, records when each was last used, and removes them.
//!
//! A time of use is the time of a marker file beside the mirror or checkouts, set by the caller's clock. Access times
//! are no substitute: the disk may be mounted without them, and counting would change them. Walking touches thousands
//! of files, so it runs apart from the asynchronous threads. Links are never followed: each link counts as itself.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

use super::mirror::{make_dir, remove_all};
use super::{Git, GitError, Mirror, kept, place};
use crate::model::{PullRef, RepoId, Subject};
use crate::process::{FileHold, HoldError};

/// Part of the disk that can be removed and created again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DiskPart {
    /// All checkouts of a pull.
    Checkouts(PullRef),
    /// Mirror of a repository; its checkouts need it.
    Mirror(RepoId),
}

impl std::fmt::Display for DiskPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Checkouts(pull) => write!(f, "the checkouts of {pull}"),
            Self::Mirror(repo) => write!(f, "the mirror of {repo}"),
        }
    }
}

/// Disk use of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUse {
    pub part: DiskPart,
    pub bytes: u64,
    /// Time of the last use.
    pub used_at: DateTime<Utc>,
    /// True if the part contains a local Terraform state, which cannot be created again.
    pub has_state: bool,
}

impl Git {
    /// Returns the disk use of everything below `mirrors/` and `checkouts/`.
    pub async fn disk_use(&self) -> io::Result<Vec<DiskUse>> {
        let settings = std::sync::Arc::clone(&self.settings);
        run_blocking(move || {
            let count = |(part, dir): (DiskPart, PathBuf)| {
                let mut count = Count::default();
                for dir in places(&part, &dir) {
                    count.walk(&dir);
                }
                let used_at = used_at(&part, &dir);
                // The only states in a mirror are those that a commit has, in the spare checkout.
                let has_state = count.has_state && matches!(part, DiskPart::Checkouts(_));
                DiskUse {
                    part,
                    bytes: count.bytes,
                    used_at,
                    has_state,
                }
            };
            parts(&settings.data_dir).into_iter().map(count).collect()
        })
        .await
    }

    /// Returns the pulls that have checkouts on this disk, in order.
    pub async fn disk_pulls(&self) -> io::Result<BTreeSet<PullRef>> {
        let settings = std::sync::Arc::clone(&self.settings);
        let of = |(part, _)| match part {
            DiskPart::Checkouts(pull) => Some(pull),
            DiskPart::Mirror(_) => None,
        };
        run_blocking(move || {
            parts(&settings.data_dir)
                .into_iter()
                .filter_map(of)
                .collect()
        })
        .await
    }
}

impl Mirror {
    /// Returns the disk use of the mirror in bytes, without checkouts; zero when there is no mirror.
    pub async fn size(&self) -> io::Result<u64> {
        let dir = self.dir().to_owned();
        run_blocking(move || {
            let mut count = Count::default();
            count.walk(&dir);
            count.bytes
        })
        .await
    }

    /// Records that the mirror, and the checkouts of a pull if one is named, are used at this time.
    pub fn touch(&self, pull: Option<Subject>, at: DateTime<Utc>) -> io::Result<()> {
        let pull = pull
            .map(|pull| place::pull(&self.settings.data_dir, &self.repo, pull).join(place::USED));
        let files = [Some(self.dir().join(place::USED)), pull];
        files.into_iter().flatten().try_for_each(|file| {
            make_dir(file.parent().unwrap_or(&file))?;
            File::create(&file)?.set_modified(SystemTime::from(at))
        })
    }

    /// Removes the checkouts of a pull. If a run still uses one, does nothing and returns `false`. The caller must
    /// ensure that no run begins.
    pub async fn evict_pull(&self, pull: Subject) -> Result<bool, GitError> {
        let doing = format!(
            "remove the checkouts of pull request {pull} of {}",
            self.repo
        );
        let dir = place::pull(&self.settings.data_dir, &self.repo, pull);
        let mut holds = Vec::new();
        for file in fs::read_dir(dir.join(place::HOLDS))
            .into_iter()
            .flatten()
            .flatten()
        {
            match FileHold::exclusive(&file.path(), Duration::ZERO).await {
                Ok(hold) => holds.push(hold),
                Err(HoldError::Busy { .. }) => return Ok(false),
                Err(error @ HoldError::Io { .. }) => {
                    return Err(GitError::from_hold(&doing, error));
                }
            }
        }
        let _writer = self.locks.writer.lock().await;
        removed(&doing, dir).await?;
        self.prune(&doing).await?;
        Ok(true)
    }

    /// Removes the mirror. If a writer holds it or it has checkouts, does nothing and returns `false`. The caller
    /// must ensure that nothing begins to use it.
    pub async fn evict(&self) -> Result<bool, GitError> {
        let (Ok(_transfer), Ok(_spare), Ok(_writer)) = (
            self.locks.transfer.try_lock(),
            self.locks.spare.try_lock(),
            self.locks.writer.try_lock(),
        ) else {
            return Ok(false);
        };
        let checkouts = place::pulls(&self.settings.data_dir, &self.repo);
        if fs::read_dir(checkouts).is_ok_and(|mut entries| entries.next().is_some()) {
            return Ok(false);
        }
        let doing = format!("remove the mirror of {}", self.repo);
        for dir in places(&DiskPart::Mirror(self.repo.clone()), self.dir()) {
            removed(&doing, dir).await?;
        }
        Ok(true)
    }
}

/// Returns the directories of a part. A killed rebuild leaves others beside a mirror.
fn places(part: &DiskPart, dir: &Path) -> Vec<PathBuf> {
    let beside = match part {
        DiskPart::Checkouts(_) => Vec::new(),
        DiskPart::Mirror(_) => vec![place::replacement_path(dir), place::replaced(dir)],
    };
    std::iter::once(dir.to_owned()).chain(beside).collect()
}

/// Removes a directory, which may be large.
pub(super) async fn removed(doing: &str, dir: PathBuf) -> Result<(), GitError> {
    let removed = run_blocking(move || remove_all(&dir)).await.flatten();
    removed.map_err(GitError::from_io(doing))
}

/// Runs slow disk work apart from the asynchronous threads.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)
}

/// Returns every part with its directory. Directories with names that Lockkeeper would not choose are ignored.
fn parts(data_dir: &Path) -> Vec<(DiskPart, PathBuf)> {
    let mirrors = |ending| {
        repos(&data_dir.join("mirrors"), ending)
            .into_iter()
            .map(|(repo, _)| repo)
    };
    let mirrors: BTreeSet<RepoId> = place::MIRRORS.into_iter().flat_map(mirrors).collect();
    let mirrors = mirrors.into_iter().map(|repo| {
        let dir = place::mirror(data_dir, &repo);
        (DiskPart::Mirror(repo), dir)
    });
    let checkouts = repos(&data_dir.join("checkouts"), "");
    let checkouts = checkouts.into_iter().flat_map(|(repo, dir)| {
        entries(&dir).into_iter().filter_map(move |(name, dir)| {
            let pull = PullRef {
                repo: repo.clone(),
                subject: Subject::of_stored(name.parse().ok()?),
            };
            Some((DiskPart::Checkouts(pull), dir))
        })
    });
    checkouts.chain(mirrors).collect()
}

/// Returns the repositories below a directory of three levels.
fn repos(root: &Path, suffix: &str) -> Vec<(RepoId, PathBuf)> {
    let mut found = Vec::new();
    for (host, dir) in entries(root) {
        for (owner, dir) in entries(&dir) {
            for (name, dir) in entries(&dir) {
                let repo = name
                    .strip_suffix(suffix)
                    .and_then(|name| place::repo_of(&host, &owner, name));
                found.extend(repo.map(|repo| (repo, dir)));
            }
        }
    }
    found
}

/// Returns the directories in a directory with their names, or none where it cannot be read.
fn entries(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect()
}

/// Returns the time of the last use. Without a marker file, this is the time when the part was made, or a time before
/// this release.
fn used_at(part: &DiskPart, dir: &Path) -> DateTime<Utc> {
    let time = |path: &Path| {
        path.symlink_metadata()
            .and_then(|meta| meta.modified())
            .ok()
    };
    let inside = match part {
        DiskPart::Checkouts(_) => None,
        DiskPart::Mirror(_) => time(&dir.join("HEAD")),
    };
    time(&dir.join(place::USED))
        .or(inside)
        .or_else(|| time(dir))
        .unwrap_or(SystemTime::UNIX_EPOCH)
        .into()
}

/// Running total of a directory walk.
#[derive(Default)]
struct Count {
    bytes: u64,
    has_state: bool,
}

impl Count {
    /// Adds a directory and everything in it. Files that vanish meanwhile count as nothing.
    fn walk(&mut self, root: &Path) {
        let mut todo = vec![root.to_owned()];
        while let Some(dir) = todo.pop() {
            self.add(dir.symlink_metadata());
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                match entry.metadata() {
                    Ok(meta) if meta.is_dir() => todo.push(entry.path()),
                    meta => {
                        let is_empty = meta.as_ref().is_ok_and(|meta| meta.len() == 0);
                        self.has_state |= !is_empty
                            && kept::is_state_in(dir.strip_prefix(root).unwrap_or(&dir), &name);
                        self.add(meta);
                    }
                }
            }
        }
    }

    fn add(&mut self, meta: io::Result<Metadata>) {
        self.bytes += meta.map_or(0, |meta| meta.blocks() * 512);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(files: &[(&str, usize)]) -> Count {
        let dir = tempfile::tempdir().unwrap();
        for (name, size) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x".repeat(*size)).unwrap();
        }
        let mut count = Count::default();
        count.walk(dir.path());
        count
    }

    #[test]
    fn a_local_state_is_told_from_the_settings_of_a_backend() {
        for (file, has_state) in [
            ("terraform.tfstate", true),
            ("net/terraform.tfstate.backup", true),
            ("net/terraform.tfstate.d/prod/terraform.tfstate", true),
            (".terragrunt-cache/a/b/terraform.tfstate", true),
            (".terraform/terraform.tfstate", false),
            ("net/.terraform/modules/x/terraform.tfstate", false),
            ("main.tf", false),
        ] {
            assert_eq!(count(&[(file, 1)]).has_state, has_state, "{file}");
        }
        assert!(
            !count(&[("terraform.tfstate", 0)]).has_state,
            "an empty file is no state"
        );
    }

    #[test]
    fn a_link_takes_no_more_than_itself() {
        let dir = tempfile::tempdir().unwrap();
        let (big, small) = (dir.path().join("big"), dir.path().join("small"));
        fs::create_dir_all(&big).unwrap();
        fs::create_dir_all(&small).unwrap();
        fs::write(big.join("file"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(&big, small.join("link")).unwrap();
        std::os::unix::fs::symlink("/", small.join("root")).unwrap();
        let mut counts = [Count::default(), Count::default()];
        counts[0].walk(&big);
        counts[1].walk(&small);
        assert!(
            counts[0].bytes >= 1 << 20 && counts[1].bytes < 1 << 16,
            "{} {}",
            counts[0].bytes,
            counts[1].bytes
        );
    }

    #[test]
    fn parts_are_found_under_the_names_they_were_given() {
        let dir = tempfile::tempdir().unwrap();
        let repo: RepoId = "git.example.com:8443/a/b.git/c_d".parse().unwrap();
        let (mirror, pull) = (
            place::mirror(dir.path(), &repo),
            place::pull(dir.path(), &repo, Subject::Application(3)),
        );
        fs::create_dir_all(&mirror).unwrap();
        fs::create_dir_all(&pull).unwrap();
        fs::create_dir_all(dir.path().join("checkouts/not ours/x/y/z")).unwrap();
        fs::write(dir.path().join("mirrors/file"), "").unwrap();
        let checkouts = DiskPart::Checkouts(PullRef {
            repo: repo.clone(),
            subject: Subject::Application(3),
        });
        assert_eq!(
            parts(dir.path()),
            [
                (checkouts, pull.clone()),
                (DiskPart::Mirror(repo.clone()), mirror.clone())
            ]
        );
        // After a killed rebuild, nothing else may be left.
        fs::remove_dir_all(dir.path().join("checkouts")).unwrap();
        fs::rename(&mirror, place::replaced(&mirror)).unwrap();
        fs::create_dir(place::replacement_path(&mirror)).unwrap();
        let part = DiskPart::Mirror(repo);
        assert_eq!(parts(dir.path()), [(part.clone(), mirror.clone())]);
        assert_eq!(
            places(&part, &mirror)
                .iter()
                .filter(|place| place.exists())
                .count(),
            2
        );
    }
}
