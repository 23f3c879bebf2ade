//! What mirrors and checkouts take on this disk, when each was used last, and their removal.
//!
//! Times of use are kept as the time of a file of ours beside them, set by the caller's clock: the disk may be mounted
//! without times of access, and those would tell of our own counting. Walking touches thousands of files, so it happens
//! apart from the asynchronous threads. Links are never followed: they count as themselves.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

use super::mirror::{make_dir, remove_all};
use super::{Git, GitError, Mirror, kept, place};
use crate::model::{PullNumber, PullRef, RepoId};
use crate::process::{Hold, HoldError};

/// What can be removed and made anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DiskPart {
    /// The checkouts of a pull.
    Checkouts(PullRef),
    /// The mirror of a repository, which its checkouts need.
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

/// What one part takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUse {
    /// Which part.
    pub part: DiskPart,
    /// Bytes on disk.
    pub bytes: u64,
    /// When it was used last.
    pub used_at: DateTime<Utc>,
    /// Whether there is a local Terraform state in it, which cannot be made anew.
    pub has_state: bool,
}

impl Git {
    /// Everything below `mirrors/` and `checkouts/`, counted.
    pub async fn disk_use(&self) -> io::Result<Vec<DiskUse>> {
        let settings = std::sync::Arc::clone(&self.settings);
        apart(move || {
            let count = |(part, dir): (DiskPart, PathBuf)| {
                let mut count = Count::default();
                for dir in places(&part, &dir) {
                    count.walk(&dir);
                }
                let used_at = used_at(&part, &dir);
                DiskUse {
                    part,
                    bytes: count.bytes,
                    used_at,
                    has_state: count.has_state,
                }
            };
            parts(&settings.data_dir).into_iter().map(count).collect()
        })
        .await
    }

    /// Pulls that have checkouts on this disk, in order.
    pub async fn disk_pulls(&self) -> io::Result<BTreeSet<PullRef>> {
        let settings = std::sync::Arc::clone(&self.settings);
        let of = |(part, _)| match part {
            DiskPart::Checkouts(pull) => Some(pull),
            DiskPart::Mirror(_) => None,
        };
        apart(move || {
            parts(&settings.data_dir)
                .into_iter()
                .filter_map(of)
                .collect()
        })
        .await
    }
}

impl Mirror {
    /// Bytes that it takes on disk, without checkouts; zero when there is none.
    pub async fn size(&self) -> io::Result<u64> {
        let dir = self.dir().to_owned();
        apart(move || {
            let mut count = Count::default();
            count.walk(&dir);
            count.bytes
        })
        .await
    }

    /// Notes that the mirror, and the checkouts of a pull if one is named, are used at this time.
    pub fn touch(&self, pull: Option<PullNumber>, at: DateTime<Utc>) -> io::Result<()> {
        let pull = pull
            .map(|pull| place::pull(&self.settings.data_dir, &self.repo, pull).join(place::USED));
        let files = [Some(self.dir().join(place::USED)), pull];
        files.into_iter().flatten().try_for_each(|file| {
            make_dir(file.parent().unwrap_or(&file))?;
            File::create(&file)?.set_modified(SystemTime::from(at))
        })
    }

    /// Removes the checkouts of a pull, unless a run still uses one: then nothing is done and `false` returned. The
    /// caller sees to it that none begins.
    pub async fn evict_pull(&self, pull: PullNumber) -> Result<bool, GitError> {
        let doing = format!("remove the checkouts of pull {pull} of {}", self.repo);
        let dir = place::pull(&self.settings.data_dir, &self.repo, pull);
        let mut holds = Vec::new();
        for file in fs::read_dir(dir.join(place::HOLDS))
            .into_iter()
            .flatten()
            .flatten()
        {
            match Hold::exclusive(&file.path(), Duration::ZERO).await {
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

    /// Removes the mirror, unless it is being written or there are checkouts of it: then nothing is done and `false`
    /// returned. The caller sees to it that nobody begins to use it.
    pub async fn evict(&self) -> Result<bool, GitError> {
        let (Ok(_transfer), Ok(_writer)) =
            (self.locks.transfer.try_lock(), self.locks.writer.try_lock())
        else {
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

/// The directories of a part: a killed rebuild leaves others beside a mirror.
fn places(part: &DiskPart, dir: &Path) -> Vec<PathBuf> {
    let beside = match part {
        DiskPart::Checkouts(_) => Vec::new(),
        DiskPart::Mirror(_) => vec![place::beside(dir), place::replaced(dir)],
    };
    std::iter::once(dir.to_owned()).chain(beside).collect()
}

/// Removes a directory, which may be large.
pub(super) async fn removed(doing: &str, dir: PathBuf) -> Result<(), GitError> {
    let removed = apart(move || remove_all(&dir)).await.flatten();
    removed.map_err(GitError::from_io(doing))
}

/// Does what takes the disk long apart from the asynchronous threads.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)
}

/// Every part with its directory. What we would not have named so is left alone.
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
                number: PullNumber(name.parse().ok()?),
            };
            Some((DiskPart::Checkouts(pull), dir))
        })
    });
    checkouts.chain(mirrors).collect()
}

/// The repositories below a directory of three levels.
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

/// The directories in a directory, by name; none where it cannot be read.
fn entries(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect()
}

/// What is not noted was used when it was made, or before this release.
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

/// What a directory takes.
#[derive(Default)]
struct Count {
    bytes: u64,
    has_state: bool,
}

impl Count {
    /// Adds a directory and everything in it. What vanishes meanwhile takes nothing.
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
            place::pull(dir.path(), &repo, PullNumber(12)),
        );
        fs::create_dir_all(&mirror).unwrap();
        fs::create_dir_all(&pull).unwrap();
        fs::create_dir_all(dir.path().join("checkouts/not ours/x/y/z")).unwrap();
        fs::write(dir.path().join("mirrors/file"), "").unwrap();
        let checkouts = DiskPart::Checkouts(PullRef {
            repo: repo.clone(),
            number: PullNumber(12),
        });
        assert_eq!(
            parts(dir.path()),
            [
                (checkouts, pull.clone()),
                (DiskPart::Mirror(repo.clone()), mirror.clone())
            ]
        );
        // Of a rebuild that was killed there may be nothing else.
        fs::remove_dir_all(dir.path().join("checkouts")).unwrap();
        fs::rename(&mirror, place::replaced(&mirror)).unwrap();
        fs::create_dir(place::beside(&mirror)).unwrap();
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
