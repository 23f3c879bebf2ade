//! Builds the command line of `bwrap`, which creates namespaces that contain only the allowed paths of a sandbox.
//!
//! - *Files.* The root is a small file system in memory that becomes read-only. Allowed paths are bound into it at
//!   their real paths. Links that lead there exist as well, as on the machine. `/tmp` is empty: a run has a temporary
//!   directory of its own.
//! - *Order.* A directory is bound before the paths below it. The wider right wins: a readable path inside a writable
//!   one needs no entry. A writable path inside a readable one gets an entry.
//! - *Processes.* A run sees only its own processes, in a read-only `/proc`. The first process in the namespace
//!   belongs to `bwrap` and ignores SIGINT. When it ends, everything in the namespace ends.
//! - *Network.* The network is shared.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use super::sandbox::DEVICES;

/// Maximum number of links followed on the way to a path (as in the kernel).
const MOST_LINKS: usize = 40;

/// Options that create namespaces without capabilities.
const NAMESPACES: [&str; 5] = [
    "--unshare-user-try",
    "--unshare-pid",
    "--unshare-ipc",
    "--cap-drop",
    "ALL",
];

/// Returns the arguments of `bwrap` up to and including the program, whose own arguments follow.
pub(super) fn arguments(
    read: &[PathBuf],
    write: &[PathBuf],
    program: &OsStr,
    dir: Option<&Path>,
) -> Vec<OsString> {
    let mut places = Places::default();
    places.add([PathBuf::from(program)].iter().chain(read), false);
    places.add(write, true);
    let mut args: Vec<OsString> = NAMESPACES.map(OsString::from).into();
    args.extend(places.mounts().into_values().flatten());
    // The settings of the kernel belong to root, even if root has no capabilities. The root in memory is read-only,
    // because files of a run there would count towards no limit.
    args.extend(["--remount-ro", "/proc", "--remount-ro", "/dev"].map(OsString::from));
    if !places.binds.contains_key(Path::new("/")) {
        args.extend(["--remount-ro", "/"].map(OsString::from));
    }
    let dir = dir.filter(|dir| places.hold(dir)).unwrap_or(Path::new("/"));
    args.extend([
        "--chdir".into(),
        dir.into(),
        "--".into(),
        program.to_owned(),
    ]);
    args
}

/// Paths that exist in the namespace.
#[derive(Debug, Default)]
struct Places {
    /// Real paths, each with true if it is writable.
    binds: BTreeMap<PathBuf, bool>,
    /// Links on the way to the real paths, with their texts.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl Places {
    /// Adds paths and ignores unreachable ones.
    fn add<'a>(&mut self, paths: impl IntoIterator<Item = &'a PathBuf>, may_change: bool) {
        for (real, links) in paths.into_iter().filter_map(|path| resolve(path).ok()) {
            // The namespace has its own devices. A read-only bind over one of them could not even be opened.
            let is_its_own = DEVICES
                .iter()
                .chain(&["/dev"])
                .any(|path| real == Path::new(path));
            if !real.starts_with("/proc") && !is_its_own {
                *self.binds.entry(real).or_default() |= may_change;
                self.links.extend(links);
            }
        }
    }

    /// Returns the options by their path, so that a directory comes before the paths below it.
    fn mounts(&self) -> BTreeMap<&Path, Vec<OsString>> {
        let mut mounts = BTreeMap::new();
        for path in self.binds.keys() {
            let above = path
                .ancestors()
                .skip(1)
                .find(|above| self.binds.contains_key(*above));
            let may_change = self.may_change(path);
            if above.is_none_or(|above| self.may_change(above) != may_change) {
                let how = match may_change {
                    false => "--ro-bind-try",
                    true if path.starts_with("/dev") && !path.starts_with("/dev/shm") => {
                        "--dev-bind-try"
                    }
                    true => "--bind-try",
                };
                mounts.insert(path.as_path(), vec![how.into(), path.into(), path.into()]);
            }
        }
        for (link, target) in &self.links {
            // A link in a bound directory already exists.
            if !link.ancestors().any(|above| self.binds.contains_key(above)) {
                mounts.insert(link, vec!["--symlink".into(), target.into(), link.into()]);
            }
        }
        mounts.insert(
            Path::new("/proc"),
            ["--proc", "/proc"].map(OsString::from).into(),
        );
        mounts.insert(
            Path::new("/dev"),
            ["--dev", "/dev"].map(OsString::from).into(),
        );
        mounts
            .entry(Path::new("/tmp"))
            .or_insert_with(|| ["--dir", "/tmp"].map(OsString::from).into());
        mounts
    }

    fn may_change(&self, path: &Path) -> bool {
        path.ancestors()
            .any(|path| self.binds.get(path) == Some(&true))
    }

    fn hold(&self, path: &Path) -> bool {
        resolve(path)
            .is_ok_and(|(real, _)| real.ancestors().any(|path| self.binds.contains_key(path)))
    }
}

/// Returns the real path and the links on the way to it, each with its path and text.
fn resolve(path: &Path) -> io::Result<(PathBuf, Vec<(PathBuf, PathBuf)>)> {
    let (mut real, mut links) = (PathBuf::from("/"), Vec::new());
    let mut rest: Vec<PathBuf> = parts(path);
    while let Some(part) = rest.pop() {
        match part.components().next() {
            Some(Component::RootDir) => real = part,
            Some(Component::ParentDir) => {
                real.pop();
            }
            Some(Component::Normal(name)) => {
                real.push(name);
                match fs::read_link(&real) {
                    Ok(_) if links.len() == MOST_LINKS => {
                        return Err(ErrorKind::TooManyLinks.into());
                    }
                    Ok(target) => {
                        rest.extend(parts(&target));
                        links.push((real.clone(), target));
                        real.pop();
                    }
                    // The error means that the path is not a link.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => {}
                    Err(error) => return Err(error),
                }
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Ok((real, links))
}

/// Returns the components, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    path.components()
        .rev()
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Creates a directory with `/real/a`, `/real/a/b`, `/other`, and two links: `/link` → `real`, `/real/far` →
    /// `/other`.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/a/b")).unwrap();
        fs::create_dir(root.join("other")).unwrap();
        symlink("real", root.join("link")).unwrap();
        symlink(root.join("other"), root.join("real/far")).unwrap();
        (dir, root)
    }

    /// Returns the mounts below the directory, without its own path.
    fn mounts(root: &Path, read: &[&str], write: &[&str]) -> Vec<String> {
        let mut places = Places::default();
        let below =
            |paths: &[&str]| -> Vec<PathBuf> { paths.iter().map(|path| root.join(path)).collect() };
        places.add(&below(read), false);
        places.add(&below(write), true);
        let below = places
            .mounts()
            .into_iter()
            .filter(|(path, _)| path.starts_with(root));
        let shown = |words: Vec<OsString>| {
            let words: Vec<String> = words
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            words.join(" ").replace(&format!("{}/", root.display()), "")
        };
        below.map(|(_, words)| shown(words)).collect()
    }

    #[test]
    fn a_directory_comes_before_what_is_below_and_the_wider_right_wins() {
        let (_dir, root) = tree();
        let cases: [(&[&str], &[&str], &[&str]); 6] = [
            (&["real/a/b", "real"], &[], &["--ro-bind-try real real"]),
            (
                &["real"],
                &["real/a"],
                &["--ro-bind-try real real", "--bind-try real/a real/a"],
            ),
            (&["real/a"], &["real"], &["--bind-try real real"]),
            (
                &["real/a/b", "real"],
                &["real/a"],
                &["--ro-bind-try real real", "--bind-try real/a real/a"],
            ),
            (&["real"], &["real"], &["--bind-try real real"]),
            (&["nowhere"], &["real/nowhere"], &[]),
        ];
        for (read, write, expected) in cases {
            assert_eq!(mounts(&root, read, write), expected, "{read:?} {write:?}");
        }
    }

    #[test]
    fn links_lead_where_they_lead_on_the_machine() {
        let (_dir, root) = tree();
        let cases: [(&[&str], &[&str]); 5] = [
            (
                &["link"],
                &["--symlink real link", "--ro-bind-try real real"],
            ),
            (
                &["link/a"],
                &["--symlink real link", "--ro-bind-try real/a real/a"],
            ),
            (
                &["real/a/../far"],
                &["--ro-bind-try other other", "--symlink other real/far"],
            ),
            (
                &["real", "link/far"],
                &[
                    "--symlink real link",
                    "--ro-bind-try other other",
                    "--ro-bind-try real real",
                ],
            ),
            (
                &["real/far/./", "other"],
                &["--ro-bind-try other other", "--symlink other real/far"],
            ),
        ];
        for (read, expected) in cases {
            let seen: Vec<String> = mounts(&root, read, &[]);
            let root = format!("{} ", root.display());
            assert_eq!(
                seen.iter()
                    .map(|line| line.replace(&root, ""))
                    .collect::<Vec<_>>(),
                expected,
                "{read:?}"
            );
        }
    }

    #[test]
    fn a_circle_of_links_is_passed_over() {
        let (_dir, root) = tree();
        symlink("two", root.join("one")).unwrap();
        symlink("one", root.join("two")).unwrap();
        assert!(mounts(&root, &["one"], &[]).is_empty());
    }

    #[test]
    fn processes_and_devices_are_those_of_the_namespace() {
        let (_dir, root) = tree();
        // An administrator may name `/dev/null` as an empty file, such as in `TF_CLI_CONFIG_FILE`.
        let paths = ["/proc", "/proc/self/fd", "/dev", "/dev/null"].map(PathBuf::from);
        let write = ["/dev/null".into(), "/dev/pts".into(), root.join("real")];
        let args = arguments(
            &paths,
            &write,
            OsStr::new("/bin/sh"),
            Some(&root.join("link/a")),
        );
        let args: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap()).collect();
        let text = format!(" {} ", args.join(" "));
        assert_eq!(text.matches(" /proc ").count(), 2, "{text}");
        assert!(!text.contains("bind-try /dev "), "{text}");
        assert!(
            !text.contains("/dev/null")
                && text.contains(" --dev /dev --dev-bind-try /dev/pts /dev/pts "),
            "{text}"
        );
        let end = format!(
            " --remount-ro /proc --remount-ro /dev --remount-ro / --chdir {}/link/a -- /bin/sh ",
            root.display()
        );
        assert!(text.ends_with(&end), "{text}");
        let elsewhere = arguments(&[], &[], OsStr::new("/bin/sh"), Some(&root));
        assert_eq!(
            elsewhere[elsewhere.len() - 4..],
            ["--chdir", "/", "--", "/bin/sh"].map(OsString::from)
        );
    }
}
