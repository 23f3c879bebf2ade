//! Fetches files stored with Git LFS and places them in checkouts (`--checkout-lfs`).
//!
//! Filters of a repository never run here, so git checks out LFS pointers: small texts that stand for such files. The
//! program `git-lfs` lists them and fetches their contents from the forge of the repository, regardless of
//! `.lfsconfig`. Lockkeeper then puts the contents in their places.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::disk::run_blocking;
use super::mirror::{make_dir, remove_all};
use super::parts_upkeep::now_on;
use super::remote::Checked;
use super::{Checkout, Git, GitError, Mirror, Remote, environment, objects, place};
use crate::model::{CommitSha, RepoPath};
use crate::process::{CallOutput, Cmd};

/// Maximum size of a pointer in bytes (git-lfs: less than 1024).
const MAX_POINTER: u64 = 1024;
/// Maximum number of LFS files in one commit.
const MAX_FILES: usize = 10_000;
/// Maximum total size of the LFS files of one commit, in bytes.
const MAX_BYTES: u64 = 5 << 30;
const WAY_OUT: &str =
    "Keep fewer of them in the repository, or ask an administrator to turn off `--checkout-lfs`";

/// LFS file whose content was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LfsFile {
    /// Path of the file in the repository.
    pub path: RepoPath,
    /// Content of the file on this disk.
    content: PathBuf,
    bytes: u64,
}

impl Git {
    /// Returns the version of `git-lfs`. If it is not installed, the error says how to install it.
    pub async fn lfs_version(&self) -> Result<String, GitError> {
        let output = environment::git(&self.settings)
            .args(["lfs", "version"])
            .output()
            .await;
        let output = output.map_err(|error| GitError::from_process("run git-lfs", error))?;
        if output.is_success() {
            return Ok(output
                .stdout
                .text()
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned());
        }
        let fix = "the program git-lfs is not installed. Install it (Debian and Ubuntu: `apt-get install git-lfs`; \
                   Alpine: `apk add git-lfs`; macOS: `brew install git-lfs`), or remove --checkout-lfs";
        Err(GitError::other("check out LFS files", fix))
    }
}

impl Mirror {
    /// Fetches the missing LFS files of a commit. The caller must ensure that nothing else does so for this mirror at
    /// the same time.
    pub async fn bring_lfs(
        &self,
        remote: &Remote<'_>,
        commit: &CommitSha,
    ) -> Result<Vec<LfsFile>, GitError> {
        let doing = format!("fetch the LFS files of {}", self.repo);
        let remote = self.check(&doing, remote)?;
        let files = self.lfs_files(&doing, commit).await?;
        if files.iter().all(LfsFile::is_here) {
            return self.note_use(&doing, files);
        }
        let cmd = with_endpoint(self.git_to(&remote), &remote).args([
            "lfs",
            "fetch",
            "origin",
            commit.as_str(),
        ]);
        let output = self.call(&doing, &cmd).await?;
        let missing = files.iter().find(|file| !file.is_here());
        match missing {
            None if output.is_success() => self.note_use(&doing, files),
            _ => Err(fetch_failure(&doing, &remote, &output, missing)),
        }
    }

    /// Records the use of files, because upkeep keeps recently used files.
    fn note_use(&self, doing: &str, files: Vec<LfsFile>) -> Result<Vec<LfsFile>, GitError> {
        let noted = now_on(self.dir()).and_then(|now| {
            files
                .iter()
                .try_for_each(|file| File::open(&file.content)?.set_modified(now))
        });
        noted.map(|()| files).map_err(GitError::from_io(doing))
    }

    /// Returns true if a commit in the mirror has LFS files.
    pub async fn has_lfs(&self, commit: &CommitSha) -> Result<bool, GitError> {
        let doing = format!("find the LFS files of {}", self.repo);
        Ok(!self
            .lfs_names(&doing, commit)
            .await?
            .stdout
            .bytes
            .is_empty())
    }

    /// Lists the paths of the LFS files of a commit, one per line.
    async fn lfs_names(&self, doing: &str, commit: &CommitSha) -> Result<CallOutput, GitError> {
        let cmd = self.git().cap(objects::MAX_LIST).args([
            "lfs",
            "ls-files",
            "--name-only",
            commit.as_str(),
        ]);
        self.run(doing, cmd).await
    }

    /// Returns the LFS files of a commit, fetched or not.
    async fn lfs_files(&self, doing: &str, commit: &CommitSha) -> Result<Vec<LfsFile>, GitError> {
        let output = self.lfs_names(doing, commit).await?;
        let paths: Vec<_> = output
            .stdout
            .bytes
            .split(|byte| *byte == b'\n')
            .filter_map(objects::path_of)
            .collect();
        let mut reader = self.reader(commit);
        let read = run_blocking(move || {
            let texts = paths.into_iter().map(|path| {
                let text = reader.read(&path, MAX_POINTER)?;
                Ok((path, text))
            });
            texts.collect::<Result<Vec<_>, GitError>>()
        });
        let texts = read.await.map_err(GitError::from_io(doing))??;
        let (mut files, mut bytes) = (Vec::new(), 0_u64);
        for (path, text) in texts {
            let Some((id, size)) = text.as_deref().and_then(pointer) else {
                continue;
            };
            bytes = bytes.saturating_add(size);
            if files.len() == MAX_FILES || bytes > MAX_BYTES {
                let limit = format!(
                    "there are more than {MAX_FILES}, or they have more than {} GiB. {WAY_OUT}",
                    MAX_BYTES >> 30
                );
                return Err(GitError::other(doing, limit));
            }
            let content = self
                .dir()
                .join("lfs/objects")
                .join(&id[..2])
                .join(&id[2..4])
                .join(id);
            files.push(LfsFile {
                path,
                content,
                bytes: size,
            });
        }
        Ok(files)
    }

    /// Puts the contents into a checkout in place of the pointers, and records the files that it has.
    pub async fn place_lfs(
        &self,
        checkout: &Checkout,
        files: Vec<LfsFile>,
    ) -> Result<(), GitError> {
        let doing = format!("check out the LFS files of {}", self.repo);
        let _hold = self.hold(&doing, &checkout.hold).await?;
        let Some(admin) = self.admin_dir(&checkout.path) else {
            return Err(GitError::other(doing, "the checkout is not complete"));
        };
        let (root, extent) = (checkout.path.clone(), checkout.extent.clone());
        let put = move || {
            let root = root.canonicalize()?;
            files
                .iter()
                .filter(|file| extent.has(&file.path))
                .try_for_each(|file| put(&root, file))?;
            let note = files
                .iter()
                .map(|file| format!("{} {}\n", file.id(), file.path))
                .collect::<Vec<_>>()
                .concat();
            fs::write(admin.join(place::LFS_FILES), note)
        };
        let placed = tokio::task::spawn_blocking(put)
            .await
            .map_err(io::Error::other);
        placed.flatten().map_err(GitError::from_io(doing))
    }
}

impl LfsFile {
    fn is_here(&self) -> bool {
        self.content
            .symlink_metadata()
            .is_ok_and(|meta| meta.is_file() && meta.len() == self.bytes)
    }

    fn id(&self) -> Cow<'_, str> {
        self.content
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
    }

    /// Returns true if the forge reports the file as unknown:
    /// `[1234…] Object does not exist: [404] Object does not exist`.
    fn is_unknown_by(&self, stderr: &str) -> bool {
        let id = self.id();
        stderr
            .lines()
            .any(|line| line.contains(&*id) && (line.contains("[404]") || line.contains("[410]")))
    }
}

/// Sets the place of the contents, and ignores the settings of the repository. By SSH, `git-lfs` asks the forge for
/// the place by the name of the repository (`git-lfs-authenticate /acme/infra.git download`).
fn with_endpoint(cmd: Cmd, remote: &Checked<'_>) -> Cmd {
    let url = remote.url().trim_end_matches('/');
    let endpoint = if remote.is_by_ssh() {
        url.to_owned()
    } else {
        format!("{url}/info/lfs")
    };
    // Without this setting, `git-lfs` would detect the access and write it into the configuration of the mirror.
    let access = format!("lfs.{endpoint}.access=basic");
    let access = ["-c", &access]
        .into_iter()
        .filter(|_| remote.presents_password());
    cmd.args(["-c", &format!("remote.origin.url={url}")])
        .args(["-c", &format!("remote.origin.lfsurl={endpoint}")])
        .args(["-c", &format!("lfs.url={endpoint}")])
        .args([
            "-c",
            "lfs.skipdownloaderrors=false",
            "-c",
            "lfs.fetchinclude=",
            "-c",
            "lfs.fetchexclude=",
        ])
        .args(access)
        .args([
            "-c",
            "lfs.basictransfersonly=true",
            "-c",
            "lfs.gitprotocol=https",
            "-c",
            "lfs.fetchrecentalways=false",
        ])
}

fn fetch_failure(
    doing: &str,
    remote: &Checked<'_>,
    output: &CallOutput,
    missing: Option<&LfsFile>,
) -> GitError {
    let error = remote.failure(doing, output);
    if matches!(
        error,
        GitError::Unreachable { .. } | GitError::TimedOut { .. }
    ) {
        return error;
    }
    let stderr = output.stderr.text();
    let why = match missing {
        Some(file) if file.is_unknown_by(&stderr) => {
            format!("the forge does not have the content of `{}`", file.path)
        }
        Some(file) => format!(
            "`{}`: {}",
            file.path,
            error.into_message().replace('\n', " ")
        ),
        None => error.into_message().replace('\n', " "),
    };
    let fix = "Push it with `git lfs push --all origin` from a clone that has it, or ask an administrator to turn off \
               `--checkout-lfs`";
    GitError::other(doing, format!("{why}. {fix}"))
}

/// Parses `oid sha256:<64 hexadecimal digits>` and `size <bytes>` of a pointer.
fn pointer(text: &[u8]) -> Option<(&str, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let id = value("oid sha256:")
        .filter(|id| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    text.starts_with("version https://git-lfs.github.com/spec/")
        .then_some((id, value("size ")?.parse().ok()?))
}

/// Replaces a pointer by the content. A file that a run has put in its place, or a link, stays as it is: git wrote no
/// pointer there either.
fn put(root: &Path, file: &LfsFile) -> io::Result<()> {
    let to = root.join(file.path.as_str());
    let dir = to.parent().unwrap_or(root);
    let is_pointer = to
        .symlink_metadata()
        .is_ok_and(|meta| meta.is_file() && meta.len() < MAX_POINTER);
    if !is_pointer || dir.canonicalize()? != dir {
        return Ok(());
    }
    let permissions = to.metadata()?.permissions();
    make_dir(dir)?;
    let beside = tempfile::Builder::new()
        .prefix(".lockkeeper-lfs-")
        .tempfile_in(dir)?
        .into_temp_path();
    copy_of(&file.content, &beside, &file.id())?;
    fs::set_permissions(&beside, permissions)?;
    remove_all(&to)?;
    beside.persist(&to).map_err(|error| error.error)
}

/// Copies a file with this SHA-256. A content with another hash was changed after `git-lfs` fetched and checked it,
/// and is removed.
fn copy_of(content: &Path, to: &Path, id: &str) -> io::Result<()> {
    let (mut from, mut to, mut hash) = (File::open(content)?, File::create(to)?, Sha256::new());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer)? {
            0 => break,
            many => {
                hash.update(&buffer[..many]);
                to.write_all(&buffer[..many])?;
            }
        }
    }
    if hex::encode(hash.finalize()) == id.to_ascii_lowercase() {
        return Ok(());
    }
    remove_all(content)?;
    let what = format!(
        "another program changed the fetched LFS content {id}; the next command fetches it again"
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_told_from_other_texts() {
        let id = "ab".repeat(32);
        let text =
            format!("version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize 12345\n");
        assert_eq!(pointer(text.as_bytes()), Some((id.as_str(), 12345)));
        for other in [
            text.replace("version", "x"),
            text.replace(&id, "../../../x"),
            text.replace("12345", "-1"),
            text.replace("size", ""),
            "a file".to_owned(),
        ] {
            assert_eq!(pointer(other.as_bytes()), None, "{other}");
        }
    }
}
