//! Limits the disk space that the files of a run take.
//!
//! The kernel limits the size of one file (`setrlimit`), and quotas of file systems need root. So the supervisor adds up the
//! files in the places that belong to the run. That takes time in a large checkout, so it happens rarely: when the program runs
//! for some time, and as soon as the file system has lost much of its free space, which is one call to ask.
//!
//! The run can hide files from a simple count. These are counted as well:
//! - *Many small files*: each entry of a directory counts at least as [`MIN_BYTES`], also a further name of a file.
//! - *Deleted files*: a file that a process still has open takes its space. Those are found in `/proc`, unless the process only
//!   maps the file, has sent it away, or hides what it has open. Their space is free again at the end of the run.
//! - *Unreadable directories*: the run can take the right to list a directory from itself. The supervisor restores it.
//! - *Deep directories*: nobody nests directories deeper than [`DEEPEST`], so that counts as too much.

use std::collections::HashSet;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat, statvfs};
use rustix::path::Arg;
use rustix::process::geteuid;

use super::together::{EndRun, children, descendants, report_end};

/// Interval between two looks at the free space.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time after which files are counted for the first time. Most programs end before.
const FIRST_COUNT: Duration = Duration::from_secs(5);
/// Minimum time between two counts, unless the free space shrinks.
const COUNT_EVERY: Duration = Duration::from_secs(30);
/// Files are counted again only after this many times the duration of the last count.
const PAUSE: u32 = 50;
/// Part of the limit by which the free space has to shrink for files to be counted at once.
const SHRUNK: u64 = 8;
/// Part of the limit that has to be free for the first count to wait. Otherwise many short programs could fill the disk, each
/// with less than is counted.
const SCARCE: u64 = 4;
/// Part of the limit that an interrupted run may still write.
const SPARE: u64 = 4;
/// Space that an entry of a directory takes at least.
const MIN_BYTES: u64 = 4096;
/// Maximum depth of directories.
const DEEPEST: usize = 200;
/// Maximum number of files with several names that are remembered, so that they count once.
const MAX_REMEMBERED: usize = 100_000;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Message of the supervisor when the files of a run take too much space. The server recognises the limit by it.
pub(super) const DISK: &str =
    "the checkout and the temporary files of this run take more disk space than allowed";

/// Size and free space of a file system in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Size of the whole file system.
    pub total: u64,
    /// Space that everyone may use. Some file systems keep more for root.
    pub free: u64,
}

impl DiskSpace {
    /// Returns the space of the file system with a file or directory.
    pub fn of(place: &Path) -> io::Result<Self> {
        let system = statvfs(place)?;
        Ok(Self {
            total: system.f_blocks.saturating_mul(system.f_frsize),
            free: system.f_bavail.saturating_mul(system.f_frsize),
        })
    }
}

/// Watches the files in these places from now on. Too much space interrupts the run. If it does not end in time or goes on
/// writing, it is killed.
pub(super) fn watch(most: Option<u64>, places: &[PathBuf], run: impl EndRun) -> io::Result<()> {
    let places = outermost(places);
    let Some(most) = most.filter(|_| !places.is_empty()) else {
        return Ok(());
    };
    thread::Builder::new()
        .name("disk".to_owned())
        .spawn(move || {
            let mut free = free_space(&places);
            let is_scarce = free.iter().any(|free| *free < most / SCARCE);
            let mut next = Instant::now();
            if !is_scarce {
                next += FIRST_COUNT;
                thread::sleep(LOOK_EVERY);
            }
            loop {
                let mut has_shrunk = false;
                for (most_free, now) in free.iter_mut().zip(free_space(&places)) {
                    has_shrunk |= now.saturating_add(most / SHRUNK) < *most_free;
                    // Others may have removed files meanwhile.
                    *most_free = now.max(*most_free);
                }
                let begun = Instant::now();
                if has_shrunk || begun >= next {
                    if space_of(&places, most) > most {
                        break;
                    }
                    free = free_space(&places);
                    next = Instant::now() + COUNT_EVERY.max(begun.elapsed() * PAUSE);
                }
                thread::sleep(LOOK_EVERY);
            }
            report_end(DISK);
            run.interrupt();
            let end = Instant::now() + run.grace();
            // A tool may still save its state, and has to write for that.
            let spare = space_of(&places, most.saturating_mul(2)).saturating_add(most / SPARE);
            while Instant::now() < end && space_of(&places, spare) <= spare {
                thread::sleep(LOOK_EVERY);
            }
            run.at_once();
        })?;
    Ok(())
}

/// Returns the places that are in no other one.
fn outermost(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut sorted: Vec<&PathBuf> = places.iter().collect();
    sorted.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for place in sorted {
        if !kept.iter().any(|above| place.starts_with(above)) {
            kept.push(place.clone());
        }
    }
    kept
}

/// Returns the free bytes of the file system of each place. Without an answer, the space does not shrink.
fn free_space(places: &[PathBuf]) -> Vec<u64> {
    places
        .iter()
        .map(|place| DiskSpace::of(place).map_or(u64::MAX, |space| space.free))
        .collect()
}

/// Returns the bytes that the files in these places take. It stops counting when they exceed `most`.
fn space_of(places: &[PathBuf], most: u64) -> u64 {
    let (mut count, mut devices) = (SpaceCount::up_to(most), HashSet::new());
    for place in places {
        if let Ok(stat) = statat(CWD, place, AtFlags::SYMLINK_NOFOLLOW)
            && let Ok(dir) = open_dir(CWD, place, &stat)
        {
            devices.insert(stat.st_dev);
            count.walk(&dir, 0);
        }
    }
    count.add_deleted(&devices);
    count.bytes
}

/// Space that files take, up to a limit.
struct SpaceCount {
    bytes: u64,
    most: u64,
    /// Files with several names, or none, that are part of the count: device and number.
    remembered: HashSet<(u64, u64)>,
}

impl SpaceCount {
    fn up_to(most: u64) -> Self {
        Self {
            bytes: 0,
            most,
            remembered: HashSet::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.bytes > self.most
    }

    fn walk(&mut self, dir: &OwnedFd, depth: usize) {
        if depth == DEEPEST {
            self.bytes = u64::MAX;
        }
        let Ok(mut entries) = Dir::read_from(dir) else {
            return;
        };
        while let Some(Ok(entry)) = entries.next() {
            if self.is_over() {
                return;
            }
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            // It may be gone by now.
            let Ok(stat) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            self.add(&stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                && let Ok(below) = open_dir(dir.as_fd(), name, &stat)
            {
                self.walk(&below, depth + 1);
            }
        }
    }

    fn add(&mut self, stat: &Stat) {
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let has_more_names = is_file && stat.st_nlink > 1;
        let blocks = if has_more_names && !self.remember(stat.st_dev, stat.st_ino) {
            0
        } else {
            u64::try_from(stat.st_blocks).unwrap_or_default()
        };
        self.add_bytes(blocks.saturating_mul(512).max(MIN_BYTES));
    }

    fn add_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Remembers a file. Returns true if it was not known.
    fn remember(&mut self, device: u64, number: u64) -> bool {
        self.remembered.len() >= MAX_REMEMBERED || self.remembered.insert((device, number))
    }

    /// Adds files without a name that processes of the run have open on these file systems. Memory (`memfd_create`) is on none
    /// of them.
    fn add_deleted(&mut self, devices: &HashSet<u64>) {
        let Ok(own) = i32::try_from(std::process::id()) else {
            return;
        };
        for process in descendants(own, children) {
            let open = std::fs::read_dir(format!("/proc/{process}/fd"));
            for file in open.into_iter().flatten().flatten() {
                // The entry is a link, which leads to the file even without a name.
                let Ok(meta) = std::fs::metadata(file.path()) else {
                    continue;
                };
                if meta.is_file()
                    && meta.nlink() == 0
                    && devices.contains(&meta.dev())
                    && self.remember(meta.dev(), meta.ino())
                {
                    self.add_bytes(meta.blocks().saturating_mul(512));
                }
            }
        }
    }
}

/// Opens a directory. The run may have taken the right to list or to search it from its own user.
fn open_dir(above: BorrowedFd<'_>, name: impl Arg + Copy, stat: &Stat) -> io::Result<OwnedFd> {
    let (mode, needed) = (stat.st_mode & 0o7777, 0o500);
    if mode & needed != needed && stat.st_uid == geteuid().as_raw() {
        let found = openat(above, name, DIRECTORY.union(OFlags::PATH), Mode::empty())?;
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        std::fs::set_permissions(path, Permissions::from_mode(mode | needed))?;
    }
    Ok(openat(above, name, DIRECTORY, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Returns the bytes that the files in a directory take, counted up to `most`.
    fn counted(most: u64, dir: &Path) -> u64 {
        let mut count = SpaceCount::up_to(most);
        let dir = openat(CWD, dir, DIRECTORY, Mode::empty()).unwrap();
        count.walk(&dir, 0);
        count.bytes
    }

    #[test]
    fn empty_files_and_links_count_too() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        symlink("/", dir.path().join("link")).unwrap();
        assert_eq!(counted(u64::MAX - 1, dir.path()), 101 * MIN_BYTES);
        assert_eq!(
            counted(9 * MIN_BYTES, dir.path()),
            10 * MIN_BYTES,
            "it ends when the limit is exceeded"
        );
    }

    #[test]
    fn a_file_with_many_names_counts_once_and_its_names_as_entries() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, vec![1_u8; 1 << 20]).unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        let alone = counted(u64::MAX - 1, dir.path());
        assert!(alone >= 1 << 20, "{alone}");
        for number in 0..10 {
            fs::hard_link(&file, dir.path().join(number.to_string())).unwrap();
        }
        assert_eq!(counted(u64::MAX - 1, dir.path()), alone + 10 * MIN_BYTES);
    }

    #[test]
    fn directories_that_nobody_can_list_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = dir.path().join("hidden");
        fs::create_dir(&hidden).unwrap();
        fs::write(hidden.join("file"), "").unwrap();
        let open = counted(u64::MAX - 1, dir.path());
        for mode in [0o300, 0o600, 0] {
            fs::set_permissions(&hidden, Permissions::from_mode(mode)).unwrap();
            assert_eq!(counted(u64::MAX - 1, dir.path()), open, "{mode:o}");
        }
        fs::set_permissions(dir.path(), Permissions::from_mode(0o000)).unwrap();
        assert!(space_of(&[dir.path().to_owned()], u64::MAX - 1) >= open);
        for path in [dir.path(), &hidden] {
            fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn directories_that_are_nested_without_end_are_too_much() {
        for (depth, is_too_much) in [(DEEPEST - 1, false), (DEEPEST, true)] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("d/".repeat(depth))).unwrap();
            let bytes = counted(1 << 40, dir.path());
            assert_eq!(bytes > 1 << 40, is_too_much, "{depth}");
        }
    }

    #[test]
    fn a_place_in_another_one_does_not_count_twice() {
        let places = ["/a/b/tmp", "/a/bc", "/a/b", "/a/b"].map(PathBuf::from);
        assert_eq!(outermost(&places), ["/a/b", "/a/bc"].map(PathBuf::from));
    }
}
