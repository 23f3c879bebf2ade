//! Downloads programs into the shared directory of programs.
//!
//! - *Verified names.* Only a verified program gets its name in that directory. All work happens in a directory
//!   `.download-…` beside it; the finished program, read-only, gets its name in one step. An existing name is never
//!   given to another file.
//! - *Once per version.* A task that needs a version that is being downloaded waits. Other processes that share the
//!   directory may download it too; the last of them finds the name taken by the same bytes.
//! - *Nothing stays behind.* The work directory is removed when the download ends, fails or is cancelled. Files of a
//!   dead process are removed by the next download after an hour.

use std::collections::HashMap;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use semver::Version;
use tempfile::{NamedTempFile, TempDir};
use tokio::fs::File;
use tracing::{info, warn};
use url::Url;

use super::DownloadError;
use super::conftest;
use super::disk_use::{DownloadUse, ToolDir, ToolInUse};
use super::fetch::{ReleaseClient, SaveError, shown};
use super::releases::{Lists, ReleaseFiles, Sources};
use super::verify::{TrustedKeys, checksum_of};
use crate::clock::Clock;
use crate::model::Distribution;

/// Maximum size of a list of checksums, which has a line of 100 bytes per platform.
const MAX_SUMS_BYTES: u64 = 1 << 20;
/// Maximum size of a signature, which has a few hundred bytes.
const MAX_SIGNATURE_BYTES: u64 = 64 << 10;
/// Prefix of the names of work directories.
const WORKSHOP: &str = ".download-";
/// Age at which a work directory counts as abandoned. No download takes that long.
const ABANDONED: TimeDelta = TimeDelta::hours(1);

/// Settings for the download of programs.
#[derive(Debug, Clone)]
pub struct DownloadSettings {
    /// Directory of the downloaded programs.
    pub dir: PathBuf,
    /// Servers to download from.
    pub sources: Sources,
    /// Platform that the programs are built for.
    pub platform: Platform,
    /// Maximum time that a server may send nothing.
    pub patience: Duration,
    /// Maximum size of an archive, and of a program, in bytes.
    pub max_bytes: u64,
}

impl DownloadSettings {
    /// Creates settings for this machine. Archives have about 30 MB, programs about 100 MB.
    pub fn new(dir: PathBuf, sources: Sources) -> Self {
        Self {
            dir,
            sources,
            platform: Platform::here(),
            patience: Duration::from_secs(30),
            max_bytes: 512 << 20,
        }
    }
}

/// Operating system and processor, in the words of the makers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// Operating system, such as `linux` or `darwin`.
    pub os: &'static str,
    /// Processor, such as `amd64` or `arm64`.
    pub arch: &'static str,
}

impl Platform {
    /// Returns the platform of this machine.
    pub fn here() -> Self {
        let os = match std::env::consts::OS {
            "macos" => "darwin",
            other => other,
        };
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        Self { os, arch }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.os, self.arch)
    }
}

/// Downloads, verifies and removes programs.
pub struct Downloads {
    settings: DownloadSettings,
    keys: Arc<TrustedKeys>,
    clock: Arc<dyn Clock>,
    web: ReleaseClient,
    lists: Lists,
    tools: ToolDir,
    gates: Mutex<HashMap<String, Gate>>,
}

/// Gate of one program, by its file name. Its holder downloads; the others wait for the result.
type Gate = Arc<tokio::sync::Mutex<()>>;

impl fmt::Debug for Downloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Downloads")
            .field("dir", &self.settings.dir)
            .finish_non_exhaustive()
    }
}

impl Downloads {
    /// Creates the value. `keys` are the trusted keys.
    pub fn new(
        settings: DownloadSettings,
        keys: TrustedKeys,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, reqwest::Error> {
        let web = ReleaseClient::new(settings.patience)?;
        let lists = Lists::new(Arc::clone(&clock));
        let tools = ToolDir::new(settings.dir.clone());
        Ok(Self {
            settings,
            keys: Arc::new(keys),
            clock,
            web,
            lists,
            tools,
            gates: Mutex::default(),
        })
    }

    /// Returns the directory of the downloaded programs.
    pub fn dir(&self) -> &Path {
        &self.settings.dir
    }

    /// Lists the downloaded programs with their sizes.
    pub async fn disk_use(&self) -> std::io::Result<Vec<DownloadUse>> {
        let tools = self.tools.clone();
        on_disk(move || tools.disk_use()).await
    }

    /// Removes a downloaded program. Returns `false` and does nothing if a run uses it.
    pub async fn evict(&self, name: &str) -> std::io::Result<bool> {
        let (tools, name) = (self.tools.clone(), name.to_owned());
        on_disk(move || tools.remove(&name)).await
    }

    /// Keeps a version from being removed, even if it is not downloaded yet.
    pub(super) fn hold(&self, distribution: Distribution, version: &Version) -> ToolInUse {
        self.hold_name(&name_of(distribution, version))
    }

    /// Keeps the program of this file name from being removed, even if it is not downloaded yet.
    pub(super) fn hold_name(&self, name: &str) -> ToolInUse {
        self.tools.hold(name)
    }

    /// Notes that a run uses a version.
    pub(super) fn note_use(&self, distribution: Distribution, version: &Version) {
        self.note_use_of(&name_of(distribution, version));
    }

    /// Notes that a run uses the program of this file name.
    pub(super) fn note_use_of(&self, name: &str) {
        if let Err(error) = self.tools.note_use(name, self.clock.now()) {
            warn!(%error, name, "Could not record the last use of a program");
        }
    }

    /// Lists the versions that can be downloaded, sorted. The list is fetched at most once an hour.
    pub async fn released(
        &self,
        distribution: Distribution,
    ) -> Result<Arc<[Version]>, DownloadError> {
        self.lists
            .get(
                &self.web,
                &self.settings.sources,
                distribution,
                &self.settings.platform,
            )
            .await
    }

    /// Downloads a program, unless it exists, and returns its path.
    pub async fn fetch(
        &self,
        distribution: Distribution,
        version: &Version,
    ) -> Result<PathBuf, DownloadError> {
        let name = name_of(distribution, version);
        let program = self.settings.dir.join(&name);
        let download = self.download(distribution, version, &program);
        self.once(&name, distribution.title(), download).await?;
        Ok(program)
    }

    /// Downloads conftest, unless it exists, and returns its path.
    pub(super) async fn fetch_conftest(&self, version: &Version) -> Result<PathBuf, DownloadError> {
        let name = conftest::file_name(version);
        let program = self.settings.dir.join(&name);
        let download = self.download_conftest(version, &program);
        self.once(&name, conftest::TITLE, download).await?;
        Ok(program)
    }

    /// Downloads the program of this file name, unless it exists. The future does nothing until it is awaited.
    async fn once(
        &self,
        name: &str,
        title: &str,
        download: impl Future<Output = Result<(), DownloadError>>,
    ) -> Result<(), DownloadError> {
        let program = self.settings.dir.join(name);
        let gate = self.gate(name);
        let _turn = gate.lock().await;
        if !program.is_file() {
            download.await?;
            // The note is written after the download: a program that an administrator puts there must never count as
            // downloaded.
            if let Err(error) = self.tools.note_download(name, self.clock.now()) {
                warn!(%error, name, "Could not record a download, so it will not be removed to free disk space");
            }
            info!(program = %program.display(), "Downloaded {title}");
        }
        Ok(())
    }

    fn gate(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        Arc::clone(gates.entry(name.to_owned()).or_default())
    }

    async fn download(
        &self,
        distribution: Distribution,
        version: &Version,
        program: &Path,
    ) -> Result<(), DownloadError> {
        let files = self
            .settings
            .sources
            .files(distribution, version, &self.settings.platform);
        let expected = self.signed_checksum(distribution, &files).await?;
        let unpack: Unpack = unpack_zip;
        self.install(
            &files.archive,
            &expected,
            program,
            (distribution.program(), unpack),
        )
        .await
    }

    /// Downloads conftest. Its makers sign no checksums, so the list is as trustworthy as the server with the releases.
    async fn download_conftest(
        &self,
        version: &Version,
        program: &Path,
    ) -> Result<(), DownloadError> {
        let files = self
            .settings
            .sources
            .conftest(version, &self.settings.platform);
        let list = self.web.bytes(&files.sums, MAX_SUMS_BYTES).await?;
        let expected = listed(&list, &files.archive_name, &files.sums)?;
        let unpack: Unpack = unpack_tar;
        self.install(
            &files.archive,
            &expected,
            program,
            (conftest::PROGRAM, unpack),
        )
        .await
    }

    /// Downloads an archive, compares its checksum, and gives the program in it its name.
    async fn install(
        &self,
        url: &Url,
        expected: &str,
        program: &Path,
        (name, unpack): (&'static str, Unpack),
    ) -> Result<(), DownloadError> {
        let workshop = self.workshop().map_err(|error| self.disk(error))?;
        let archive = workshop.path().join("archive");
        self.save_archive(url, expected, &archive).await?;
        let limit = self.settings.max_bytes;
        let goal = program.to_owned();
        // The thread owns the work directory, so it exists until the thread ends, even if no task waits for the
        // result.
        let unpack = move || {
            unpack(&archive, name, limit, workshop.path()).and_then(|file| give_name(file, &goal))
        };
        let unpacked = tokio::task::spawn_blocking(unpack).await;
        let unpacked = unpacked
            .unwrap_or_else(|_| Err(UnpackError::Archive("unpacking was interrupted".to_owned())));
        unpacked.map_err(|error| match error {
            UnpackError::Archive(reason) => DownloadError::Archive {
                url: shown(url),
                reason,
            },
            UnpackError::Disk(error) => self.disk(error),
        })
    }

    /// Returns the checksum of the archive from the list that a maker signed.
    async fn signed_checksum(
        &self,
        maker: Distribution,
        files: &ReleaseFiles,
    ) -> Result<String, DownloadError> {
        let list = self.web.bytes(&files.sums, MAX_SUMS_BYTES).await?;
        let signature = self
            .web
            .bytes(&files.signature, MAX_SIGNATURE_BYTES)
            .await?;
        let (keys, signed) = (Arc::clone(&self.keys), list.clone());
        let verified =
            tokio::task::spawn_blocking(move || keys.verify(maker, &signed, &signature)).await;
        let verified = verified.unwrap_or_else(|_| Err("the check was interrupted".to_owned()));
        verified.map_err(|reason| DownloadError::Signature {
            url: shown(&files.sums),
            reason,
        })?;
        listed(&list, &files.archive_name, &files.sums)
    }

    async fn save_archive(
        &self,
        url: &Url,
        expected: &str,
        path: &Path,
    ) -> Result<(), DownloadError> {
        let mut file = File::create(path).await.map_err(|error| self.disk(error))?;
        let found = self
            .web
            .save(url, self.settings.max_bytes, &mut file)
            .await
            .map_err(|error| match error {
                SaveError::Download(error) => error,
                SaveError::Disk(error) => self.disk(error),
            })?;
        if found == expected {
            return Ok(());
        }
        Err(DownloadError::Checksum {
            url: shown(url),
            expected: expected.to_owned(),
            found,
        })
    }

    /// Creates a work directory for one download, on the same disk as the programs.
    fn workshop(&self) -> std::io::Result<TempDir> {
        std::fs::create_dir_all(&self.settings.dir)?;
        remove_abandoned(&self.settings.dir, self.clock.now());
        tempfile::Builder::new()
            .prefix(WORKSHOP)
            .tempdir_in(&self.settings.dir)
    }

    fn disk(&self, error: std::io::Error) -> DownloadError {
        DownloadError::Disk {
            dir: self.settings.dir.clone(),
            error,
        }
    }
}

/// Returns the file name of a version.
fn name_of(distribution: Distribution, version: &Version) -> String {
    format!("{}{version}", distribution.program())
}

/// Runs file operations on a thread for blocking work, because the disk may be slow.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

/// Removes work directories of processes that died during a download. Those that cannot be removed do no harm.
fn remove_abandoned(dir: &Path, now: DateTime<Utc>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    let is_abandoned = |entry: &std::fs::DirEntry| {
        let changed = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .map(DateTime::<Utc>::from);
        entry.file_name().to_string_lossy().starts_with(WORKSHOP)
            && changed.is_ok_and(|changed| now - changed > ABANDONED)
    };
    for entry in entries.filter_map(Result::ok).filter(is_abandoned) {
        let _gone = std::fs::remove_dir_all(entry.path());
    }
}

/// Returns the checksum of a file from a list, which comes from `url`.
fn listed(list: &[u8], file: &str, url: &Url) -> Result<String, DownloadError> {
    checksum_of(&String::from_utf8_lossy(list), file).ok_or_else(|| DownloadError::NotListed {
        file: file.to_owned(),
        url: shown(url),
    })
}

/// Extracts the program of a name from an archive, if it has at most this many bytes, into a directory.
type Unpack = fn(&Path, &str, u64, &Path) -> Result<NamedTempFile, UnpackError>;

enum UnpackError {
    Archive(String),
    Disk(std::io::Error),
}

impl From<std::io::Error> for UnpackError {
    fn from(error: std::io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Extracts the program from a zip archive. Only the entry of that name is read.
fn unpack_zip(
    archive: &Path,
    program: &str,
    limit: u64,
    workshop: &Path,
) -> Result<NamedTempFile, UnpackError> {
    let bad = |reason: String| UnpackError::Archive(reason);
    let file = std::fs::File::open(archive)?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| bad(error.to_string()))?;
    let mut entry = archive
        .by_name(program)
        .map_err(|error| bad(format!("`{program}`: {error}")))?;
    copied(&mut entry, limit, workshop)
}

/// Extracts the program from a compressed tar archive. What stands before the program is read too, so the whole archive has
/// a limit.
fn unpack_tar(
    archive: &Path,
    program: &str,
    limit: u64,
    workshop: &Path,
) -> Result<NamedTempFile, UnpackError> {
    let bad = |error: std::io::Error| UnpackError::Archive(error.to_string());
    let file = std::io::BufReader::new(std::fs::File::open(archive)?);
    let unzipped = flate2::read::GzDecoder::new(file).take(limit.saturating_mul(2));
    let mut archive = tar::Archive::new(unzipped);
    for entry in archive.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let is_program = entry.header().entry_type().is_file()
            && &*entry.path().map_err(bad)? == Path::new(program);
        if is_program {
            return copied(&mut entry, limit, workshop);
        }
    }
    Err(UnpackError::Archive(format!("it has no file `{program}`")))
}

/// Copies a program of at most `limit` bytes into a directory.
fn copied(
    program: &mut impl Read,
    limit: u64,
    workshop: &Path,
) -> Result<NamedTempFile, UnpackError> {
    let bad = |reason: String| UnpackError::Archive(reason);
    let mut unpacked = NamedTempFile::new_in(workshop)?;
    let mut part = vec![0; 64 << 10];
    let mut size = 0;
    loop {
        let length = program
            .read(&mut part)
            .map_err(|error| bad(error.to_string()))?;
        if length == 0 {
            break;
        }
        size += length as u64;
        if size > limit {
            return Err(bad(format!(
                "the program in it is larger than {limit} bytes"
            )));
        }
        unpacked.write_all(&part[..length])?;
    }
    Ok(unpacked)
}

/// Gives a program its name. From then on no user can write to it and every user can run it.
fn give_name(file: NamedTempFile, name: &Path) -> Result<(), UnpackError> {
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o555))?;
    file.as_file().sync_all()?;
    // The file is closed for writing first, because a program that is open for writing cannot be run.
    match file.into_temp_path().persist_noclobber(name) {
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => Ok(other.map_err(|error| error.error)?),
    }
}
