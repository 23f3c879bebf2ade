//! Tests of the provider cache with real `terraform init`s, many at once, which fetch from a mirror on this disk.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use lockkeeper::clock::{Clock, ManualClock};
use lockkeeper::process::{CallOutput, Cmd};
use lockkeeper::workflow::{
    CacheSession, InitPlace, PackagePath, Platform, ProgramObserver, ProviderCache,
};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;

use crate::support::db::start_of_time;
use crate::support::server::find_terraform;

/// Number of runs that start at once when a pull request changes all projects of a repository.
const MANY: usize = 32;

/// Projects, a mirror with two providers, and a cache.
struct World {
    dir: TempDir,
    cache: ProviderCache,
    clock: Arc<ManualClock>,
    terraform: PathBuf,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("lockkeeper-providers-")
            .tempdir()
            .unwrap();
        for name in ["one", "two"] {
            publish(&dir.path().join("mirror"), name);
        }
        let mirror = dir.path().join("mirror");
        let config = format!(
            "provider_installation {{\n  filesystem_mirror {{\n    path = \"{}\"\n  }}\n}}\n",
            mirror.display()
        );
        std::fs::write(dir.path().join("terraformrc"), config).unwrap();
        let clock = Arc::new(ManualClock::new(start_of_time()));
        let cache = ProviderCache::new(&dir.path().canonicalize().unwrap(), clock.clone());
        Self {
            cache,
            clock,
            terraform: find_terraform(),
            dir,
        }
    }

    /// Creates a directory with code that needs both providers.
    fn project(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().join("checkouts").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let provider =
            |name: &str| format!("    {name} = {{ source = \"example.com/acme/{name}\" }}\n");
        let code = format!(
            "terraform {{\n  required_providers {{\n{}{}  }}\n}}\n",
            provider("one"),
            provider("two")
        );
        std::fs::write(dir.join("main.tf"), code).unwrap();
        dir
    }

    async fn enter(&self, dir: &Path, lock_file_tracked: bool) -> CacheSession {
        let place = InitPlace {
            dir: dir.to_owned(),
            data_dir: dir.join(".terraform"),
            lock_file_tracked,
        };
        self.cache
            .enter(place, None)
            .await
            .unwrap()
            .expect("nobody set another cache")
    }

    /// Returns the packages in the cache.
    async fn packages(&self) -> Vec<PackagePath> {
        let mut found = self.cache.disk_use().await.unwrap();
        found.sort_by(|a, b| a.package.cmp(&b.package));
        found.into_iter().map(|one| one.package).collect()
    }

    /// Removes all unused packages from the cache.
    async fn make_room(&self) -> Vec<String> {
        let linked = self.cache.scan_links().await.unwrap();
        let mut removed = Vec::new();
        for package in self.packages().await {
            if self.cache.evict(&package, &linked).await.unwrap() {
                removed.push(package.to_string());
            }
        }
        removed
    }

    /// Runs `init` as a run does.
    async fn init(&self, dir: &Path, lock_file_tracked: bool) -> CallOutput {
        self.init_by(Cmd::new(&self.terraform), dir, lock_file_tracked)
            .await
    }

    async fn init_by(&self, terraform: Cmd, dir: &Path, lock_file_tracked: bool) -> CallOutput {
        let session = self.enter(dir, lock_file_tracked).await;
        let upgrade = (!lock_file_tracked).then_some("-upgrade");
        let cmd = terraform
            .args(["init", "-input=false", "-no-color"])
            .args(upgrade)
            .dir(dir)
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.dir.path())
            .env("CHECKPOINT_DISABLE", "1")
            .env("TF_CLI_CONFIG_FILE", self.dir.path().join("terraformrc"))
            .envs(session.variables())
            .deadline(Duration::from_mins(5));
        let output = cmd.output().await.unwrap();
        if output.is_success() {
            let programs = ProgramObserver::begin(dir);
            session.finish(programs).await.unwrap();
        }
        output
    }

    async fn good_init(&self, dir: &Path, lock_file_tracked: bool) -> String {
        let output = self.init(dir, lock_file_tracked).await;
        assert!(
            output.is_success(),
            "{}\n{}",
            output.stdout.text(),
            output.stderr.text()
        );
        for name in ["one", "two"] {
            assert_eq!(
                std::fs::read_to_string(program(dir, name)).unwrap(),
                content(name)
            );
        }
        output.stdout.text().to_string()
    }

    /// Returns every file and directory of the cache, with its type and its modification time. The last use of a
    /// package is recorded beside the package, without a change to it.
    fn store(&self) -> BTreeMap<PathBuf, (u64, u32, i64, i64)> {
        let (mut found, mut todo) = (BTreeMap::new(), vec![self.dir.path().join("plugin-cache")]);
        while let Some(path) = todo.pop() {
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() {
                todo.extend(
                    std::fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            }
            if path.extension().is_none_or(|ending| ending != "used") {
                found.insert(
                    path,
                    (meta.ino(), meta.mode(), meta.ctime(), meta.ctime_nsec()),
                );
            }
        }
        found
    }

    fn leads_to_the_store(&self, dir: &Path, name: &str) -> bool {
        let store = self.dir.path().canonicalize().unwrap().join("plugin-cache");
        program(dir, name)
            .canonicalize()
            .unwrap()
            .starts_with(store)
    }

    fn sessions(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("tmp")).map_or(0, Iterator::count)
    }
}

fn content(name: &str) -> String {
    format!("#!/bin/sh\n# {name}\nexit 1\n")
}

fn publish(mirror: &Path, name: &str) {
    let platform = Platform::here();
    let dir = mirror.join("example.com/acme").join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let file =
        std::fs::File::create(dir.join(format!("terraform-provider-{name}_1.0.0_{platform}.zip")))
            .unwrap();
    let mut archive = zip::ZipWriter::new(file);
    let options = SimpleFileOptions::default().unix_permissions(0o755);
    archive
        .start_file(format!("terraform-provider-{name}_v1.0.0"), options)
        .unwrap();
    archive.write_all(content(name).as_bytes()).unwrap();
    archive.finish().unwrap();
}

/// Returns the program of a provider, through the link of a project.
fn program(dir: &Path, name: &str) -> PathBuf {
    let package = format!(
        ".terraform/providers/example.com/acme/{name}/1.0.0/{}",
        Platform::here()
    );
    dir.join(package)
        .join(format!("terraform-provider-{name}_v1.0.0"))
}

#[tokio::test]
async fn many_inits_at_once_share_packages_and_never_write_one_file() {
    let world = World::new();
    let round = |name: &'static str| {
        let world = &world;
        (0..MANY).map(move |number| async move {
            let dir = world.project(&format!("{name}{number}"));
            world.good_init(&dir, false).await;
            dir
        })
    };
    let dirs = join_all(round("first")).await;
    assert!(dirs.iter().all(|dir| world.leads_to_the_store(dir, "one") && world.leads_to_the_store(dir, "two")));
    assert_eq!(world.sessions(), 0);
    let before = world.store();

    let locked = (0..MANY).map(|number| {
        let (world, lock) = (&world, dirs[number].join(".terraform.lock.hcl"));
        async move {
            let dir = world.project(&format!("locked{number}"));
            std::fs::copy(lock, dir.join(".terraform.lock.hcl")).unwrap();
            assert!(
                world
                    .good_init(&dir, true)
                    .await
                    .contains("from the shared cache directory")
            );
            dir
        }
    });
    let (again, locked) = tokio::join!(join_all(round("second")), join_all(locked));
    assert!(
        again
            .iter()
            .chain(&locked)
            .all(|dir| world.leads_to_the_store(dir, "one"))
    );
    assert_eq!(world.store(), before, "the store was written to");
    assert_eq!(world.sessions(), 0);
}

#[tokio::test]
async fn an_init_that_goes_through_the_cache_a_second_time_works() {
    let world = World::new();
    let dir = world.project("a");
    for _ in 0..3 {
        world.good_init(&dir, false).await;
    }
    assert!(world.leads_to_the_store(&dir, "two"));
}

#[tokio::test]
async fn a_lock_file_with_another_checksum_neither_uses_nor_harms_the_package_of_others() {
    let world = World::new();
    let dir = world.project("a");
    world.good_init(&dir, false).await;
    let before = world.store();
    let lock = std::fs::read_to_string(dir.join(".terraform.lock.hcl")).unwrap();
    let other: String = lock.split("\"h1:").collect::<Vec<_>>().join("\"h1:AAAA");

    let dir = world.project("b");
    std::fs::write(dir.join(".terraform.lock.hcl"), other).unwrap();
    let output = world.init(&dir, true).await;
    assert!(!output.is_success());
    assert!(
        output.stderr.text().contains("checksum"),
        "{}",
        output.stderr.text()
    );
    assert_eq!(world.store(), before);
    assert_eq!(world.sessions(), 0);

    // A lock file without providers is completed.
    let dir = world.project("c");
    std::fs::write(dir.join(".terraform.lock.hcl"), "").unwrap();
    world.good_init(&dir, true).await;
    assert!(world.leads_to_the_store(&dir, "one"));
    assert_eq!(world.store(), before);
}

#[tokio::test]
async fn packages_that_a_pull_request_brings_are_its_own() {
    let world = World::new();
    let dir = world.project("evil");
    let own = dir.join("terraform.d/plugins");
    publish(&own, "one");
    world.good_init(&dir, false).await;
    assert!(!world.leads_to_the_store(&dir, "one") && !world.leads_to_the_store(&dir, "two"));
    assert!(!world.dir.path().join("plugin-cache").exists());
    assert_eq!(world.sessions(), 0);
}

#[tokio::test]
async fn an_init_that_fails_leaves_nothing_and_the_next_one_mends_it() {
    let world = World::new();
    let dir = world.project("a");
    let good = std::fs::read_to_string(dir.join("main.tf")).unwrap();
    std::fs::write(dir.join("main.tf"), good.replace("acme/two", "acme/absent")).unwrap();
    assert!(!world.init(&dir, false).await.is_success());
    assert_eq!(world.sessions(), 0);
    std::fs::write(dir.join("main.tf"), good).unwrap();
    world.good_init(&dir, false).await;
    assert!(world.leads_to_the_store(&dir, "one"));
}

#[tokio::test]
async fn a_cache_that_the_operator_set_stays_as_it_is() {
    let world = World::new();
    let dir = world.project("a");
    let place = InitPlace {
        data_dir: dir.join(".terraform"),
        dir,
        lock_file_tracked: false,
    };
    assert!(
        world
            .cache
            .enter(place.clone(), Some("/srv/cache".as_ref()))
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .cache
            .enter(place, Some("".as_ref()))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn packages_go_when_no_project_links_to_them_any_more() {
    let world = World::new();
    let (a, b) = (world.project("a"), world.project("b"));
    world.good_init(&a, false).await;
    world.clock.advance(Duration::from_hours(1));
    world.good_init(&b, false).await;
    let used = world.cache.disk_use().await.unwrap();
    assert_eq!(used.len(), 2);
    assert!(
        used.iter()
            .all(|one| one.bytes > 0 && one.used_at == world.clock.now()),
        "the second has used them: {used:?}"
    );
    assert_eq!(world.make_room().await, [""; 0]);

    std::fs::remove_dir_all(&a).unwrap();
    std::fs::remove_file(program(&b, "two").parent().unwrap()).unwrap();
    assert_eq!(world.make_room().await, ["example.com/acme/two 1.0.0"]);
    assert_eq!(
        std::fs::read_to_string(program(&b, "one")).unwrap(),
        content("one"),
        "it is in use"
    );
    std::fs::remove_dir_all(&b).unwrap();
    assert_eq!(world.make_room().await, ["example.com/acme/one 1.0.0"]);
    assert_eq!(
        std::fs::read_dir(world.dir.path().join("plugin-cache"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(world.sessions(), 0);

    world.good_init(&world.project("c"), false).await;
    assert_eq!(
        world.packages().await.len(),
        2,
        "they come back when they are needed"
    );
}

#[tokio::test]
async fn no_package_goes_while_an_init_is_about_to_use_it() {
    let world = World::new();
    let dir = world.project("a");
    world.good_init(&dir, false).await;
    std::fs::remove_dir_all(&dir).unwrap();
    let before = world.cache.scan_links().await.unwrap();
    let package = world.packages().await[0].clone();

    let session = world.enter(&world.project("b"), false).await;
    assert!(
        !world.cache.evict(&package, &before).await.unwrap(),
        "a session has a link to it"
    );
    assert_eq!(world.make_room().await, [""; 0]);
    drop(session);

    // This `init` ended after the links were read.
    let before = world.cache.scan_links().await.unwrap();
    let dir = world.project("c");
    world.good_init(&dir, false).await;
    assert!(!world.cache.evict(&package, &before).await.unwrap());
    assert!(world.leads_to_the_store(&dir, "one") && world.leads_to_the_store(&dir, "two"));
}

#[tokio::test]
async fn inits_go_on_while_room_is_made() {
    let world = World::new();
    let inits = (0..MANY / 2).map(|number| {
        let world = &world;
        async move {
            let dir = world.project(&format!("p{number}"));
            world.good_init(&dir, false).await;
            if number % 2 == 0 {
                std::fs::remove_dir_all(&dir).unwrap();
            }
        }
    });
    let room = async {
        loop {
            world.make_room().await;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { _ = join_all(inits) => {}, () = room => {} }
    for number in (1..MANY / 2).step_by(2) {
        let dir = world.dir.path().join(format!("checkouts/p{number}"));
        assert_eq!(
            std::fs::read_to_string(program(&dir, "one")).unwrap(),
            content("one")
        );
        assert_eq!(
            std::fs::read_to_string(program(&dir, "two")).unwrap(),
            content("two")
        );
    }
}

/// The user can neither enter the directory nor read the packages that the server has unpacked, unless the server
/// allows it.
#[tokio::test]
async fn another_user_takes_packages_from_the_store_and_owns_nothing_in_it() {
    const USER: u32 = 4343;
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test has runs of another user, and needs root to begin them"
    );
    let world = World::new();
    let cache = world
        .cache
        .clone()
        .of_user(Some(USER.to_string().parse().unwrap()));
    let world = World { cache, ..world };
    let may_come = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    may_come(world.dir.path(), 0o700);
    for (name, is_shared) in [("first", false), ("second", true)] {
        let dir = world.project(name);
        for path in [dir.clone(), dir.join("main.tf")] {
            std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
        }
        let as_user = [
            format!("--reuid={USER}"),
            format!("--regid={USER}"),
            "--clear-groups".to_owned(),
        ];
        let terraform = Cmd::new("setpriv").args(as_user).arg(&world.terraform);
        let output = world.init_by(terraform, &dir, false).await;
        assert!(
            output.is_success(),
            "{}{}",
            output.stdout.text(),
            output.stderr.text()
        );
        assert_eq!(
            output
                .stdout
                .text()
                .contains("from the shared cache directory"),
            is_shared
        );
        assert!(world.leads_to_the_store(&dir, "one") && world.leads_to_the_store(&dir, "two"));
        for (path, _) in world.store() {
            assert_eq!(
                path.symlink_metadata().unwrap().uid(),
                0,
                "{}",
                path.display()
            );
        }
        // Servers set these modes, so that their files belong to them alone.
        let store = world.dir.path().join("plugin-cache");
        for (path, (_, mode, ..)) in world.store().into_iter().filter(|(path, _)| *path != store) {
            may_come(&path, mode & 0o700);
        }
    }
    assert_eq!(world.dir.path().metadata().unwrap().mode() & 0o777, 0o710);
}
