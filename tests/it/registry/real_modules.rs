//! Packages of real Go modules as `go` has them in its cache: read and made here, they have the checksums that `go` computes.
//!
//! `make interop` downloads the modules of `real_modules.sum`, which has the form of `go.sum`. Among them are
//! pseudo-versions, `+incompatible`, paths with a major version or capitals, modules in directories of others, and modules
//! without `go.mod`.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use lockkeeper::features::registry::CheckedPackage;
use lockkeeper::model::RepoPath;
use lockkeeper_registry::dirhash::DirHash;
use lockkeeper_registry::go_zip::{GO_LIMITS, check_go_zip, select_go_files, write_go_zip};
use lockkeeper_registry::names::{escape_path, escape_version};
use lockkeeper_registry::records::Checksums;
use lockkeeper_registry::tree::{TreeFile, TreeMode};
use lockkeeper_registry::versions::VersionKey;

use super::world::{MAX_PACKAGE, RegistryAdmin};
use crate::support::db::{Backend, TestDb, tell};

const SUMS: &str = include_str!("real_modules.sum");

/// A version, and its two checksums in `go.sum`.
struct RealModule {
    key: VersionKey,
    zip: DirHash,
    go_mod: DirHash,
}

fn modules() -> Vec<RealModule> {
    let (mut zips, mut go_mods) = (BTreeMap::new(), BTreeMap::new());
    for line in SUMS.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        let [path, version, sum] = parts[..] else {
            panic!("{line:?} is no line of go.sum");
        };
        match version.strip_suffix("/go.mod") {
            Some(version) => go_mods.insert((path, version), sum),
            None => zips.insert((path, version), sum),
        };
    }
    let modules = zips.into_iter().map(|((path, version), zip)| RealModule {
        key: format!("go {path} {version}").parse().unwrap(),
        zip: zip.parse().unwrap(),
        go_mod: go_mods[&(path, version)].parse().unwrap(),
    });
    modules.collect()
}

/// Files of a version in the cache of `go`.
struct CachedModule {
    zip: Vec<u8>,
    /// Checksum of the zip that `go` has computed.
    zip_hash: Vec<u8>,
    /// The `go.mod` file that clients get.
    go_mod: Vec<u8>,
    /// Paths and contents of the files that `go` has unpacked.
    files: Vec<(String, Vec<u8>)>,
}

impl CachedModule {
    fn read(key: &VersionKey) -> Self {
        let cache = std::env::var_os("LOCKKEEPER_INTEROP").expect("run `make interop`");
        let cache = PathBuf::from(cache).join("go-modules");
        let (path, version) = key.as_go().unwrap();
        let path = escape_path(path);
        let version = escape_version(&version.to_string()).unwrap();
        let downloads = cache.join("cache/download").join(&path).join("@v");
        let read = |end: &str| {
            let file = downloads.join(format!("{version}.{end}"));
            std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        };
        let mut files = Vec::new();
        let unpacked = cache.join(format!("{path}@{version}"));
        read_files(&unpacked, &unpacked, &mut files);
        Self {
            zip: read("zip"),
            zip_hash: read("ziphash"),
            go_mod: read("mod"),
            files,
        }
    }
}

/// Adds all files below a directory, with their paths from the top.
fn read_files(dir: &Path, top: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_files(&path, top, files);
        } else {
            let name = path.strip_prefix(top).unwrap().to_str().unwrap();
            files.push((name.to_owned(), std::fs::read(&path).unwrap()));
        }
    }
}

/// Checks the package of `go` as one that somebody uploads.
async fn read_by_us(
    admin: &RegistryAdmin,
    module: &RealModule,
    cached: &CachedModule,
) -> Option<String> {
    let mut staging = admin.registry.blobs().stage(MAX_PACKAGE).await.unwrap();
    staging.write(&cached.zip).await.unwrap();
    let staged = staging.finish().await.unwrap();
    let checked = CheckedPackage::of_upload(module.key.clone(), staged, RepoPath::root(), ()).await;
    let package = match checked {
        Ok((package, ())) => package,
        Err(error) => return Some(format!("the package of go is refused: {error}")),
    };
    let expected = Checksums::Go {
        zip: module.zip,
        go_mod: module.go_mod,
    };
    let found = package.content.checksums;
    if found != expected {
        return Some(format!("the package of go has {found:?}"));
    }
    let is_same = package.go_mod.as_ref() == Some(&cached.go_mod);
    (!is_same).then(|| "clients get another go.mod".to_owned())
}

/// Makes the package again from the files that `go` has unpacked.
fn made_by_us(module: &RealModule, cached: &CachedModule) -> Option<String> {
    let tree = cached.files.iter().map(|(path, content)| TreeFile {
        path: path.as_bytes(),
        mode: TreeMode::File,
        content,
    });
    let tree: Vec<TreeFile<'_>> = tree.collect();
    let (path, version) = module.key.as_go().unwrap();
    let selected = match select_go_files(&tree, "") {
        Ok(selected) if selected.omitted.is_empty() => selected,
        Ok(selected) => return Some(format!("left out: {:?}", selected.omitted)),
        Err(error) => return Some(format!("its files are refused: {error}")),
    };
    let mut zip = Cursor::new(Vec::new());
    let made = write_go_zip(path, version, &selected, &mut zip).unwrap();
    let read = check_go_zip(path, version, zip, &GO_LIMITS, |_, _| Ok(()));
    let read = read.map(|contents| contents.hash);
    match read {
        Ok(read) if (made, read) == (module.zip, module.zip) => None,
        read => Some(format!("we make {made}, and read {read:?}")),
    }
}

#[test]
#[ignore = "needs the modules that `make interop` downloads"]
fn packages_of_real_modules_have_the_checksums_of_go() {
    tell(async {
        let db = TestDb::new(Backend::Sqlite).await;
        let admin = RegistryAdmin::open(&db).await;
        let modules = modules();
        assert!(modules.len() >= 300, "only {} modules", modules.len());
        let mut faults = Vec::new();
        for module in &modules {
            let cached = CachedModule::read(&module.key);
            assert_eq!(cached.zip_hash, module.zip.to_string().into_bytes());
            let read = read_by_us(&admin, module, &cached).await;
            let found = [read, made_by_us(module, &cached)];
            let found = found.into_iter().flatten();
            faults.extend(found.map(|fault| format!("{}: {fault}", module.key)));
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    });
}
