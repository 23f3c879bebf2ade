//! Tests downloads from a mirror on this machine, and the choice between installed and released versions.

mod mirror;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::join_all;
use semver::Version;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::*;
use crate::clock::{Clock as _, ManualClock};
use crate::discovery::required_versions;
use crate::model::RepoPath;
use mirror::{MirrorAnswer, ReleaseMirror, Signer, archive_of, program, tar_of};

const ZIP: &str = "terraform_1.9.8_linux_amd64.zip";
const PATIENCE: Duration = Duration::from_millis(300);

/// A mirror, a maker, and a directory for programs.
struct ToolWorld {
    mirror: ReleaseMirror,
    maker: Signer,
    dir: TempDir,
    clock: Arc<ManualClock>,
    downloads: Arc<Downloads>,
}

impl ToolWorld {
    async fn with(versions: &[&str]) -> Self {
        let (mirror, maker, dir) = (
            ReleaseMirror::start().await,
            Signer::new(),
            tempfile::tempdir().unwrap(),
        );
        mirror.release(&maker, versions);
        // The clock starts at the time of the files on disk.
        let clock = Arc::new(ManualClock::new(made_at(dir.path())));
        let settings = DownloadSettings {
            platform: Platform {
                os: "linux",
                arch: "amd64",
            },
            patience: PATIENCE,
            max_bytes: 1 << 20,
            ..DownloadSettings::new(
                dir.path().join("bin"),
                Sources::new(Some(&mirror.url), Some(&mirror.url))
                    .with_conftest(mirror.url.clone()),
            )
        };
        let downloads = Downloads::new(settings, maker.keys(), Arc::clone(&clock) as _).unwrap();
        Self {
            mirror,
            maker,
            dir,
            clock,
            downloads: Arc::new(downloads),
        }
    }

    async fn fetch(&self, text: &str) -> Result<std::path::PathBuf, DownloadError> {
        self.downloads
            .fetch(Distribution::Terraform, &version(text))
            .await
    }

    /// Returns the reason that 1.9.8 is refused.
    async fn refusal(&self) -> String {
        let error = self.fetch("1.9.8").await.unwrap_err();
        assert_eq!(self.kept(), [""; 0], "after: {error}");
        error
            .to_string()
            .replace(self.mirror.url.as_str(), "MIRROR/")
    }

    /// Lists all entries in the directory of programs.
    fn kept(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.downloads.dir()) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.retain(|name| name != ".downloaded");
        names.sort();
        names
    }

    fn tools(self) -> (Tools, ReleaseMirror, TempDir, Arc<ManualClock>) {
        let Self {
            mirror,
            dir,
            clock,
            downloads,
            ..
        } = self;
        let own = dir.path().join("own");
        std::fs::create_dir_all(&own).unwrap();
        let downloads = Arc::into_inner(downloads).unwrap();
        let kept = downloads.dir().to_owned();
        let tools = Tools::with_downloads(&[&own, &kept], ChildEnvironment::default(), downloads);
        assert_eq!(
            tools.dirs(),
            [own, kept],
            "commands find programs there too"
        );
        (tools, mirror, dir, clock)
    }
}

fn made_at(path: &Path) -> DateTime<Utc> {
    std::fs::metadata(path).unwrap().modified().unwrap().into()
}

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

fn install(dir: &Path, name: &str, version: &str) {
    put(dir, name, &program(version));
}

fn put(dir: &Path, name: &str, script: &[u8]) {
    let file = dir.join(name);
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn sources(constraint: &str) -> VersionSources {
    let text = format!("terraform {{\n  required_version = \"{constraint}\"\n}}\n");
    let files: [RepoPath; 1] = ["versions.tf".parse().unwrap()];
    let code = required_versions(&files, Distribution::Terraform, &|_| Some(text.clone()));
    VersionSources {
        distribution: Distribution::Terraform,
        project: None,
        code,
        default: None,
    }
}

#[tokio::test]
async fn a_verified_program_is_kept_read_only_and_downloaded_once() {
    let world = ToolWorld::with(&["1.9.8"]).await;
    let program = world.fetch("1.9.8").await.unwrap();
    assert_eq!(program, world.downloads.dir().join("terraform1.9.8"));
    assert_eq!(std::fs::read(&program).unwrap(), mirror::program("1.9.8"));
    assert_eq!(
        std::fs::metadata(&program).unwrap().permissions().mode() & 0o777,
        0o555
    );
    assert_eq!(world.kept(), ["terraform1.9.8"]);
    world.fetch("1.9.8").await.unwrap();
    assert_eq!(world.mirror.asked(ZIP), 1);
}

const CONFTEST: &[u8] = b"#!/bin/sh\necho 'Conftest: 0.62.0'\necho 'OPA: 1.6.0'\n";
const CONFTEST_TAR: &str = "conftest_0.62.0_Linux_x86_64.tar.gz";

/// Publishes version 0.62.0 of conftest with this checksum.
fn release_conftest(mirror: &ReleaseMirror, archive: Vec<u8>, digest: &str) {
    let sums = format!("{digest}  {CONFTEST_TAR}\n");
    let folder = "v0.62.0";
    mirror.put(
        &format!("{folder}/checksums.txt"),
        MirrorAnswer::Bytes(sums.into()),
    );
    mirror.put(
        &format!("{folder}/{CONFTEST_TAR}"),
        MirrorAnswer::Bytes(archive),
    );
}

#[tokio::test]
async fn conftest_is_downloaded_once_with_the_checksum_of_its_release() {
    let world = ToolWorld::with(&[]).await;
    let archive = tar_of(&[("README.md", b"x".as_slice()), ("conftest", CONFTEST)]);
    let digest = hex::encode(Sha256::digest(&archive));
    release_conftest(&world.mirror, archive, &digest);
    let (tools, mirror, _dir, _clock) = world.tools();
    let wanted = version("0.62.0");
    let found = tools.conftest(Some(&wanted)).await.unwrap();
    assert_eq!(found.version.as_ref(), Some(&wanted));
    assert_eq!(std::fs::read(&found.program).unwrap(), CONFTEST);
    let again = tools.conftest(Some(&wanted)).await.unwrap();
    assert_eq!(again, found);
    assert_eq!(mirror.asked(CONFTEST_TAR), 1);
    let downloads = tools.downloads().unwrap();
    assert!(
        !downloads.evict("conftest0.62.0").await.unwrap(),
        "it is in use"
    );
    drop((found, again));
    assert!(downloads.evict("conftest0.62.0").await.unwrap());
    let other = tools.conftest(Some(&version("0.61.0"))).await.unwrap_err();
    assert!(matches!(other, ToolError::Download { .. }), "{other}");
    let plain = tools.conftest(None).await.unwrap_err();
    assert!(matches!(plain, ToolError::Missing { .. }), "{plain}");
}

#[tokio::test]
async fn a_download_of_conftest_with_another_checksum_is_deleted() {
    let world = ToolWorld::with(&[]).await;
    let wanted = version("0.62.0");
    for (archive, expected) in [
        (
            tar_of(&[("conftest", CONFTEST)]),
            "is not the released file",
        ),
        (
            tar_of(&[("conftest/conftest", CONFTEST)]),
            "it has no file `conftest`",
        ),
        (b"no archive".to_vec(), "cannot be unpacked"),
    ] {
        let digest = if expected == "is not the released file" {
            "a".repeat(64)
        } else {
            hex::encode(Sha256::digest(&archive))
        };
        release_conftest(&world.mirror, archive, &digest);
        let error = world.downloads.fetch_conftest(&wanted).await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(world.kept(), [""; 0], "after: {error}");
    }
}

#[tokio::test]
async fn an_installed_conftest_has_to_be_the_requested_version() {
    let dir = tempfile::tempdir().unwrap();
    let tools = Tools::new(&[dir.path()], ChildEnvironment::default());
    let (wanted, other) = (version("0.62.0"), version("0.60.0"));
    put(dir.path(), "conftest", CONFTEST);
    assert!(tools.conftest(None).await.is_ok());
    assert!(tools.conftest(Some(&wanted)).await.is_ok());
    let error = tools.conftest(Some(&other)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "conftest 0.60.0 is required, but this server has 0.62.0"
    );
    // A program that `go install` has built knows no version. With the version in its name, it counts.
    let dev = b"#!/bin/sh\necho 'Conftest: dev'\n";
    put(dir.path(), "conftest", dev);
    assert!(tools.conftest(None).await.is_ok());
    let error = tools.conftest(Some(&other)).await.unwrap_err();
    assert!(matches!(error, ToolError::Unasked { .. }), "{error}");
    put(dir.path(), "conftest0.60.0", dev);
    let found = tools.conftest(Some(&other)).await.unwrap();
    assert_eq!(found.program, dir.path().join("conftest0.60.0"));
}

#[tokio::test]
async fn a_program_goes_when_nobody_uses_it_and_is_downloaded_again() {
    let world = ToolWorld::with(&["1.9.8", "1.10.5"]).await;
    let (tools, mirror, _dir, clock) = world.tools();
    let downloads = tools.downloads().unwrap();
    let (wanted, other) = (version("1.9.8"), version("1.10.5"));
    let tool = tools
        .find(Distribution::Terraform, Some(&wanted))
        .await
        .unwrap();
    let same = tools
        .find(Distribution::Terraform, Some(&wanted))
        .await
        .unwrap();
    tools
        .find(Distribution::Terraform, Some(&other))
        .await
        .unwrap();
    assert_eq!(tool, same);
    let uses = async || {
        let mut uses = downloads.disk_use().await.unwrap();
        uses.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(uses.iter().all(|program| program.bytes > 0), "{uses:?}");
        uses.into_iter()
            .map(|program| (program.name, program.used_at))
            .collect::<Vec<_>>()
    };
    let at_first = clock.now();
    assert_eq!(
        uses().await,
        [
            ("terraform1.10.5".to_owned(), at_first),
            ("terraform1.9.8".to_owned(), at_first)
        ]
    );
    clock.advance(Duration::from_hours(1));
    drop(same);
    assert!(
        !downloads.evict("terraform1.9.8").await.unwrap(),
        "one of the two uses it still"
    );
    assert!(downloads.evict("terraform1.10.5").await.unwrap());
    assert!(tool.program.is_file());
    drop(tool);
    let tool = tools
        .find(Distribution::Terraform, Some(&wanted))
        .await
        .unwrap();
    assert_eq!(uses().await, [("terraform1.9.8".to_owned(), clock.now())]);
    drop(tool);
    assert!(downloads.evict("terraform1.9.8").await.unwrap());
    assert!(
        !downloads.evict("terraform1.9.8").await.unwrap(),
        "it has gone"
    );
    tools
        .find(Distribution::Terraform, Some(&wanted))
        .await
        .unwrap();
    assert_eq!(mirror.asked(ZIP), 2);
}

#[tokio::test]
async fn many_who_want_a_version_at_once_download_it_once() {
    let world = ToolWorld::with(&["1.9.8", "1.10.5"]).await;
    let fetches =
        (0..16).map(|number| world.fetch(if number % 2 == 0 { "1.9.8" } else { "1.10.5" }));
    for fetched in join_all(fetches).await {
        fetched.unwrap();
    }
    assert_eq!(
        (
            world.mirror.asked(ZIP),
            world.mirror.asked("terraform_1.10.5_linux_amd64.zip")
        ),
        (1, 1)
    );
    assert_eq!(world.kept(), ["terraform1.10.5", "terraform1.9.8"]);
}

#[tokio::test]
async fn what_is_not_exactly_what_a_maker_signed_is_never_kept() {
    let world = ToolWorld::with(&["1.9.8"]).await;
    let zip = format!("terraform/1.9.8/{ZIP}");
    let sums = "terraform/1.9.8/terraform_1.9.8_SHA256SUMS";
    let good = archive_of("terraform", &program("1.9.8"));
    let sum_of = |bytes: &[u8]| format!("{}  {ZIP}\n", hex::encode(Sha256::digest(bytes)));
    let mut refusals = Vec::new();

    world
        .mirror
        .put(&zip, MirrorAnswer::Bytes(archive_of("terraform", b"evil")));
    refusals.push(world.refusal().await);
    world
        .mirror
        .put(&zip, MirrorAnswer::Bytes(good[..good.len() / 2].to_vec()));
    refusals.push(world.refusal().await);

    // The list matches the file, but the signature does not; then the signature is that of a stranger.
    world.mirror.put(&zip, MirrorAnswer::Bytes(good.clone()));
    world.mirror.put(
        sums,
        MirrorAnswer::Bytes(format!("{}x", sum_of(&good)).into()),
    );
    refusals.push(world.refusal().await);
    world.mirror.sums(&Signer::new(), "1.9.8", &sum_of(&good));
    refusals.push(world.refusal().await);
    world.mirror.put(
        &format!("{sums}.sig"),
        MirrorAnswer::Bytes(b"no signature".to_vec()),
    );
    refusals.push(world.refusal().await);

    // The list is good, but for another version.
    world.mirror.sums(
        &world.maker,
        "1.9.8",
        &sum_of(&good).replace("1.9.8", "1.9.7"),
    );
    refusals.push(world.refusal().await);

    // The maker signed an archive that is unusable.
    for archive in [
        b"no archive".to_vec(),
        archive_of("readme", b"x"),
        archive_of("terraform", &vec![0; 2 << 20]),
    ] {
        world.mirror.sums(&world.maker, "1.9.8", &sum_of(&archive));
        world.mirror.put(&zip, MirrorAnswer::Bytes(archive));
        refusals.push(world.refusal().await);
    }
    insta::with_settings!({filters => [(r"[0-9a-f]{64}", "SHA256"), (r"key [0-9A-F]{40}", "key KEY")]}, {
        insta::assert_snapshot!(refusals.join("\n"), @"
        MIRROR/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip is not the released file: its SHA-256 is SHA256, not SHA256. The download was deleted
        MIRROR/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip is not the released file: its SHA-256 is SHA256, not SHA256. The download was deleted
        the signature of MIRROR/terraform/1.9.8/terraform_1.9.8_SHA256SUMS is not valid, so its checksums cannot be trusted: it is not a signature of this file with the key KEY
        the signature of MIRROR/terraform/1.9.8/terraform_1.9.8_SHA256SUMS is not valid, so its checksums cannot be trusted: it is not a signature of this file with the key KEY
        the signature of MIRROR/terraform/1.9.8/terraform_1.9.8_SHA256SUMS is not valid, so its checksums cannot be trusted: it is not an OpenPGP signature
        there is no terraform_1.9.8_linux_amd64.zip: MIRROR/terraform/1.9.8/terraform_1.9.8_SHA256SUMS does not list it
        MIRROR/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip cannot be unpacked: invalid Zip archive: Could not find EOCD
        MIRROR/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip cannot be unpacked: `terraform`: specified file not found in archive
        MIRROR/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip cannot be unpacked: the program in it is larger than 1048576 bytes
        ");
    });
}

#[tokio::test]
async fn a_download_that_does_not_come_to_its_end_leaves_nothing() {
    let world = ToolWorld::with(&["1.9.8"]).await;
    let zip = format!("terraform/1.9.8/{ZIP}");
    let mut refusals = Vec::new();
    for answer in [
        MirrorAnswer::Broken(archive_of("terraform", &program("1.9.8"))),
        MirrorAnswer::Silence,
        MirrorAnswer::Endless,
        MirrorAnswer::Bytes(vec![0; (1 << 20) + 1]),
    ] {
        world.mirror.put(&zip, answer);
        refusals.push(world.refusal().await);
    }
    let unknown = world.fetch("1.2.3").await.unwrap_err().to_string();
    refusals.push(unknown.replace(world.mirror.url.as_str(), "MIRROR/"));
    insta::assert_snapshot!(refusals.join("\n"), @"
    MIRROR/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip cannot be fetched: connection closed before message completed
    MIRROR/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip cannot be fetched: the server did not answer in time
    MIRROR/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip is larger than 1048576 bytes
    MIRROR/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip is larger than 1048576 bytes
    MIRROR/terraform/1.2.3/terraform_1.2.3_SHA256SUMS returned 404 Not Found
    ");
}

#[tokio::test]
async fn a_download_that_is_given_up_leaves_nothing_and_the_next_one_goes_on() {
    let world = ToolWorld::with(&["1.9.8"]).await;
    let zip = format!("terraform/1.9.8/{ZIP}");
    world.mirror.put(&zip, MirrorAnswer::Silence);
    tokio::select! {
        _ = world.fetch("1.9.8") => panic!("it cannot come to its end"),
        () = world.mirror.silence() => {}
    }
    assert_eq!(world.kept(), [""; 0]);
    world.mirror.put(
        &zip,
        MirrorAnswer::Bytes(archive_of("terraform", &program("1.9.8"))),
    );
    world.fetch("1.9.8").await.unwrap();
}

#[tokio::test]
async fn what_a_dead_process_left_is_removed_after_an_hour() {
    let world = ToolWorld::with(&["1.9.8", "1.9.9"]).await;
    let left = world.downloads.dir().join(".download-left");
    std::fs::create_dir_all(&left).unwrap();
    let clock = Arc::new(ManualClock::new(made_at(&left)));
    let settings = DownloadSettings {
        platform: Platform {
            os: "linux",
            arch: "amd64",
        },
        ..DownloadSettings::new(
            world.downloads.dir().to_owned(),
            Sources::new(Some(&world.mirror.url), None),
        )
    };
    let downloads = Downloads::new(settings, world.maker.keys(), Arc::clone(&clock) as _).unwrap();
    downloads
        .fetch(Distribution::Terraform, &version("1.9.8"))
        .await
        .unwrap();
    assert!(left.exists(), "somebody may be at work in it");
    clock.advance(Duration::from_secs(3601));
    downloads
        .fetch(Distribution::Terraform, &version("1.9.9"))
        .await
        .unwrap();
    assert_eq!(world.kept(), ["terraform1.9.8", "terraform1.9.9"]);
}

#[tokio::test]
async fn the_highest_version_that_matches_is_chosen_among_those_here_and_those_there() {
    let (tools, mirror, dir, _) = ToolWorld::with(&["1.8.5", "1.9.7", "1.10.0", "1.11.0-rc1"])
        .await
        .tools();
    install(&dir.path().join("own"), "terraform1.9.8", "1.9.8");
    install(&dir.path().join("own"), "terraform", "1.5.7");
    let mut choices = Vec::new();
    for constraint in ["~> 1.9.0", ">= 1.9", "< 1.6", "1.8.5", ">= 1.11", "1.2.3"] {
        let chosen = tools.choose(&sources(constraint)).await;
        choices
            .push(chosen.map_or_else(|error| error.to_string(), |(_, choice)| choice.to_string()));
    }
    insta::assert_snapshot!(choices.join("\n").replace(mirror.url.as_str(), "MIRROR/"), @"
    Terraform 1.9.8, because line 2 of `versions.tf` says `~> 1.9.0`
    Terraform 1.10.0, because line 2 of `versions.tf` says `>= 1.9`
    Terraform 1.5.7, because line 2 of `versions.tf` says `< 1.6`
    Terraform 1.8.5, because line 2 of `versions.tf` says `= 1.8.5`
    no version of Terraform matches the code: line 2 of `versions.tf` says `>= 1.11`. This server has 1.10.0, 1.9.8, 1.8.5, 1.5.7; none of the 4 released versions matches
    no version of Terraform matches the code: line 2 of `versions.tf` says `= 1.2.3`. This server has 1.10.0, 1.9.8, 1.8.5, 1.5.7; the download of another version failed: MIRROR/terraform/1.2.3/terraform_1.2.3_SHA256SUMS returned 404 Not Found
    ");
    assert_eq!(mirror.asked("index.json"), 1);
    assert_eq!(mirror.asked(".zip"), 2, "1.10.0 and 1.8.5");
}

#[tokio::test]
async fn the_list_of_releases_is_asked_for_once_an_hour_and_an_old_one_does_when_there_is_none() {
    let world = ToolWorld::with(&["1.9.8"]).await;
    let released = || world.downloads.released(Distribution::Terraform);
    for minutes in [0, 30, 31] {
        world.clock.advance(Duration::from_secs(minutes * 60));
        assert_eq!(released().await.unwrap().len(), 1);
    }
    assert_eq!(world.mirror.asked("index.json"), 2);
    world.mirror.put(
        "terraform/index.json",
        MirrorAnswer::Bytes(b"oops".to_vec()),
    );
    world.clock.advance(Duration::from_hours(1));
    assert_eq!(released().await.unwrap().len(), 1);
}

#[tokio::test]
async fn without_a_list_or_a_download_what_is_here_must_do() {
    let world = ToolWorld::with(&["1.9.8", "1.9.9"]).await;
    world.mirror.put(
        "terraform/1.9.9/terraform_1.9.9_SHA256SUMS",
        MirrorAnswer::Bytes(b"nonsense".to_vec()),
    );
    let (tools, mirror, dir, clock) = world.tools();
    install(&dir.path().join("own"), "terraform1.9.7", "1.9.7");
    let (tool, _) = tools.choose(&sources("~> 1.9.0")).await.unwrap();
    assert_eq!(
        tool.version,
        version("1.9.7"),
        "the highest cannot be verified"
    );
    drop((mirror, clock));

    let world = ToolWorld::with(&[]).await;
    world.mirror.put(
        "terraform/index.json",
        MirrorAnswer::Bytes(b"oops".to_vec()),
    );
    let (tools, mirror, dir, _) = world.tools();
    let error = tools
        .choose(&sources("~> 1.9.0"))
        .await
        .unwrap_err()
        .to_string();
    install(&dir.path().join("own"), "terraform1.9.7", "1.9.7");
    let (tool, _) = tools.choose(&sources("~> 1.9.0")).await.unwrap();
    assert_eq!(tool.version, version("1.9.7"));
    insta::assert_snapshot!(error.replace(mirror.url.as_str(), "MIRROR/"), @"no version of Terraform matches the code: line 2 of `versions.tf` says `~> 1.9.0`. This server has none; the list of released versions cannot be read: MIRROR/terraform/index.json is not a list of releases: expected value at line 1 column 1");
}

#[tokio::test]
async fn without_leave_to_download_only_what_is_here_counts() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path(), "terraform1.9.8", "1.9.8");
    install(dir.path(), "terraform", "1.5.7");
    let tools = Tools::new(&[dir.path()], ChildEnvironment::default());
    let mut choices = Vec::new();
    for constraint in ["~> 1.9.0", "< 2", "~> 1.5.0", "= 1.4.0", ">= 2", "lots"] {
        let chosen = tools.choose(&sources(constraint)).await;
        choices
            .push(chosen.map_or_else(|error| error.to_string(), |(_, choice)| choice.to_string()));
    }
    insta::assert_snapshot!(choices.join("\n"), @"
    Terraform 1.9.8, because line 2 of `versions.tf` says `~> 1.9.0`
    Terraform 1.9.8, because line 2 of `versions.tf` says `< 2`
    Terraform 1.5.7, because line 2 of `versions.tf` says `~> 1.5.0`
    no version of Terraform matches the code: line 2 of `versions.tf` says `= 1.4.0`. This server has 1.9.8, 1.5.7; it may not download others (`--tf-download=false`)
    no version of Terraform matches the code: line 2 of `versions.tf` says `>= 2`. This server has 1.9.8, 1.5.7; it may not download others (`--tf-download=false`)
    cannot determine the version to use: line 2 of `versions.tf`: `lots` is not a version constraint: `lots` is not a version; write one such as `1.9.0`
    ");
}

/// Answer of a script that chooses among versions when none is chosen.
const UNDECIDED: &[u8] = b"#!/bin/sh\necho 'No version is chosen' >&2\nexit 1\n";

#[tokio::test]
async fn a_program_that_does_not_say_what_it_is_keeps_no_version_from_being_downloaded() {
    let (tools, mirror, dir, _) = ToolWorld::with(&["1.9.8", "1.9.9"]).await.tools();
    put(&dir.path().join("own"), "terraform", UNDECIDED);
    let downloaded = |version: &str| dir.path().join(format!("bin/terraform{version}"));
    let tool = tools
        .find(Distribution::Terraform, Some(&version("1.9.8")))
        .await
        .unwrap();
    assert_eq!(
        (tool.program, tool.version),
        (downloaded("1.9.8"), version("1.9.8"))
    );
    let (tool, _) = tools.choose(&sources("~> 1.9.0")).await.unwrap();
    assert_eq!(tool.program, downloaded("1.9.9"));
    let error = tools.find(Distribution::Terraform, None).await.unwrap_err();
    assert!(
        matches!(error, ToolError::Unreadable { .. }),
        "any will do, and that is the one: {error}"
    );
    assert_eq!(mirror.asked(".zip"), 2);
}

#[tokio::test]
async fn a_program_that_does_not_say_what_it_is_is_named_where_nothing_can_be_downloaded() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "terraform", UNDECIDED);
    install(dir.path(), "terraform1.9.9", "1.9.9");
    let tools = Tools::new(&[dir.path()], ChildEnvironment::default());
    let wanted = version("1.9.8");
    let error = || async {
        let error = tools
            .find(Distribution::Terraform, Some(&wanted))
            .await
            .unwrap_err();
        error
            .to_string()
            .replace(&dir.path().display().to_string(), "BIN")
    };
    let first = error().await;
    std::fs::set_permissions(
        dir.path().join("terraform"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let second = error().await;
    assert!(second.contains("BIN/terraform\""), "{second}");
    insta::assert_snapshot!(first, @"Terraform 1.9.8 is required, but the version on this server cannot be determined: `BIN/terraform version` did not print a version: No version is chosen");
    let (tool, _) = tools.choose(&sources("~> 1.9.0")).await.unwrap();
    assert_eq!(tool.version, version("1.9.9"), "those that say it count");
}

/// Answer of Terraform before 0.13, even to `version -json`.
const PLAIN: &[u8] = b"#!/bin/sh\nprintf 'Terraform v0.12.31\\n+ provider.aws v2.70.0\\n\\n'\n\
    printf 'Your version of Terraform is out of date! The latest version\\nis 1.9.8.\\n'\n";

#[tokio::test]
async fn a_program_that_answers_with_text_is_understood() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "terraform", PLAIN);
    put(dir.path(), "terraform0.12.30", PLAIN);
    let tools = Tools::new(&[dir.path()], ChildEnvironment::default());
    let (tool, choice) = tools.choose(&sources("~> 0.12.31")).await.unwrap();
    assert_eq!(
        (tool.program, tool.version),
        (dir.path().join("terraform"), version("0.12.31"))
    );
    assert_eq!(
        choice.to_string(),
        "Terraform 0.12.31, because line 2 of `versions.tf` says `~> 0.12.31`"
    );
    let error = tools
        .find(Distribution::Terraform, Some(&version("0.12.30")))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Terraform 0.12.30 is required, but this server has 0.12.31"
    );
    put(dir.path(), "terraform", &[PLAIN, b"exit 1\n"].concat());
    let error = tools.find(Distribution::Terraform, None).await.unwrap_err();
    assert!(
        matches!(error, ToolError::Unreadable { .. }),
        "it failed: {error}"
    );
}

#[tokio::test]
async fn distributions_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path(), "terraform1.9.8", "1.9.8");
    install(dir.path(), "tofu1.9.8", "1.9.8");
    let tools = Tools::new(&[dir.path()], ChildEnvironment::default());
    let wanted = version("1.9.8");
    for distribution in [Distribution::Terraform, Distribution::OpenTofu] {
        let tool = tools.find(distribution, Some(&wanted)).await.unwrap();
        assert_eq!(
            tool.program,
            dir.path().join(format!("{}1.9.8", distribution.program()))
        );
    }
}
