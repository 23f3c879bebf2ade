//! Files kept with Git LFS (`--checkout-lfs`).
//!
//! Filters of a repository never run here, so what is checked out are the small texts that stand for such files. The
//! program `git-lfs` is asked which they are and to fetch their contents, from the forge of the repository whatever its
//! `.lfsconfig` says; the contents are put in their places afterwards.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::mirror::{make_dir, remove_all};
use super::parts_upkeep::now_on;
use super::remote::Checked;
use super::{Checkout, Git, GitError, Mirror, Remote, environment, objects, place};
use crate::model::{CommitSha, RepoPath};
use crate::process::{Cmd, Output};

/// Bytes of a text that stands for a file (git-lfs: less than 1024).
const MAX_POINTER: u64 = 1024;
/// Such files of a commit.
const MAX_FILES: usize = 10_000;
/// Bytes of all of them.
const MAX_BYTES: u64 = 5 << 30;
const WAY_OUT: &str = "have whoever runs Lockkeeper switch off `--checkout-lfs`, or keep fewer of them in the repository";

/// A file kept with LFS, whose content was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LfsFile {
    /// Where it belongs.
    pub path: RepoPath,
    /// Its content on this disk.
    content: PathBuf,
    bytes: u64,
}

impl Git {
    /// The version of `git-lfs`; an error that says what to do when it is not there.
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
        let fix = "the program git-lfs is not installed: install it (Debian and Ubuntu: `apt-get install git-lfs`; Alpine: \
                   `apk add git-lfs`; macOS: `brew install git-lfs`), or leave --checkout-lfs out";
        Err(GitError::other("check out files kept with LFS", fix))
    }
}

impl Mirror {
    /// Fetches what is missing of the files of a commit that are kept with LFS. The caller sees to it that nobody else
    /// does so for this mirror.
    pub async fn bring_lfs(
        &self,
        remote: &Remote<'_>,
        commit: &CommitSha,
    ) -> Result<Vec<LfsFile>, GitError> {
        let doing = format!("fetch the files of {} that are kept with LFS", self.repo);
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
            _ => Err(not_brought(&doing, &remote, &output, missing)),
        }
    }

    /// Upkeep leaves alone what was used lately.
    fn note_use(&self, doing: &str, files: Vec<LfsFile>) -> Result<Vec<LfsFile>, GitError> {
        let noted = now_on(self.dir()).and_then(|now| {
            files
                .iter()
                .try_for_each(|file| File::open(&file.content)?.set_modified(now))
        });
        noted.map(|()| files).map_err(GitError::from_io(doing))
    }

    /// Whether a commit that is here has files that are kept with LFS.
    pub async fn has_lfs(&self, commit: &CommitSha) -> Result<bool, GitError> {
        let doing = format!("look for files of {} that are kept with LFS", self.repo);
        Ok(!self
            .lfs_names(&doing, commit)
            .await?
            .stdout
            .bytes
            .is_empty())
    }

    /// Their paths, one in a line.
    async fn lfs_names(&self, doing: &str, commit: &CommitSha) -> Result<Output, GitError> {
        let cmd = self.git().cap(objects::MAX_LIST).args([
            "lfs",
            "ls-files",
            "--name-only",
            commit.as_str(),
        ]);
        self.run(doing, cmd).await
    }

    /// Those that a commit has, whether they are here or not.
    async fn lfs_files(&self, doing: &str, commit: &CommitSha) -> Result<Vec<LfsFile>, GitError> {
        let output = self.lfs_names(doing, commit).await?;
        let (mut reader, mut files, mut bytes) = (self.reader(commit), Vec::new(), 0_u64);
        for path in output
            .stdout
            .bytes
            .split(|byte| *byte == b'\n')
            .filter_map(objects::path_of)
        {
            let text = reader.read(&path, MAX_POINTER).await?;
            let Some((id, size)) = text.as_deref().and_then(pointer) else {
                continue;
            };
            bytes = bytes.saturating_add(size);
            if files.len() == MAX_FILES || bytes > MAX_BYTES {
                let limit = format!(
                    "they are more than {MAX_FILES}, or take more than {} GiB: {WAY_OUT}",
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

    /// Puts the contents into a checkout, in the place of the texts that stand for them, and notes which it has.
    pub async fn place_lfs(
        &self,
        checkout: &Checkout,
        files: Vec<LfsFile>,
    ) -> Result<(), GitError> {
        let doing = format!(
            "check out the files of {} that are kept with LFS",
            self.repo
        );
        let _hold = self.hold(&doing, &checkout.hold).await?;
        let Some(admin) = self.admin_dir(&checkout.path) else {
            return Err(GitError::other(doing, "the checkout is not whole"));
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

    /// Whether the forge says so: `[1234…] Object does not exist: [404] Object does not exist`.
    fn is_unknown_by(&self, stderr: &str) -> bool {
        let id = self.id();
        stderr
            .lines()
            .any(|line| line.contains(&*id) && (line.contains("[404]") || line.contains("[410]")))
    }
}

/// Where the contents are, and nothing that the repository says about that. By SSH the forge is asked for the place by the
/// name of the repository (`git-lfs-authenticate /acme/infra.git download`).
fn with_endpoint(cmd: Cmd, remote: &Checked<'_>) -> Cmd {
    let url = remote.url().trim_end_matches('/');
    let endpoint = if remote.is_by_ssh() {
        url.to_owned()
    } else {
        format!("{url}/info/lfs")
    };
    // What it would find out, and write into the configuration of the mirror.
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

fn not_brought(
    doing: &str,
    remote: &Checked<'_>,
    output: &Output,
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
    let fix = "Push it with `git lfs push --all origin` from a clone that has it, or have whoever runs Lockkeeper switch \
               off `--checkout-lfs`";
    GitError::other(doing, format!("{why}. {fix}"))
}

/// `oid sha256:<64 hexadecimal digits>` and `size <bytes>` of a text that stands for a file.
fn pointer(text: &[u8]) -> Option<(&str, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let id = value("oid sha256:")
        .filter(|id| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    text.starts_with("version https://git-lfs.github.com/spec/")
        .then_some((id, value("size ")?.parse().ok()?))
}

/// A file that a run has put in the way, or a link, is left as it is: the text was not written there either.
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

/// Copies a file whose content has this SHA-256; another one was changed since `git-lfs` fetched and checked it.
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
        "the content {id} that was fetched with LFS was changed by something other than Lockkeeper; the next command \
         fetches it again"
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
