//! Versions that are not in the registry: repositories on allowed hosts, rules, limits, and the real `go`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Method;
use insta::assert_snapshot;
use lockkeeper::config::server::MissLimits;
use lockkeeper::features::registry::{
    AddNamespace, FillFault, ForeignVersions, LogOutcome, NewChange, Published, VersionOrigin,
    Visibility,
};
use lockkeeper::git::{Git, GitSettings, RefSelection, Remote};
use lockkeeper::store::Store;
use lockkeeper_registry::records::{RecordChange, TakedownKind};
use lockkeeper_registry::states::BaseLocation;
use lockkeeper_registry::versions::VersionKey;
use serde_json::Value;

use super::deployments::Deployment;
use super::outside::{CODE, OTHER, Outside, PAGES};
use super::site::{Person, Site};
use super::world::{RegistryAdmin, Replica, by_ops, go_mod_of_size};
use crate::support::db::{Backend, TestDb, store_test};
use crate::support::log;
use crate::support::program::{ProgramOutput, run};
use crate::support::server::within;

store_test!(
    a_hundred_requests_start_one_fill,
    two_replicas_start_one_fill,
    a_failure_is_remembered,
    an_owned_name_is_never_fetched,
    only_a_token_for_the_name_starts_a_fill,
    only_allowed_hosts_are_asked,
    a_package_that_is_too_large_is_refused,
    a_version_never_changes_after_it_was_fetched,
    a_full_cache_keeps_nothing_more,
    a_go_mod_file_counts_in_the_quota,
    a_pseudo_version_must_be_the_one_that_go_makes,
    files_of_a_public_commit_come_from_our_mirror,
    a_damaged_mirror_does_not_keep_a_version_from_being_fetched,
    the_list_has_new_tags_of_the_repository,
    what_is_here_is_served_while_its_host_is_mute,
    names_from_elsewhere_in_two_cases_are_two_names,
    an_owner_gets_a_name_that_was_fetched_in_another_case,
    what_an_earlier_server_left_is_removed,
    a_commit_with_too_many_files_is_refused_before_it_is_packed,
    a_repository_that_is_too_large_is_refused,
    a_token_has_its_own_limits,
    a_version_does_not_wait_for_the_other_fetches_of_the_token_that_was_first,
    clients_that_wait_and_lists_of_a_token_have_limits,
    a_fetch_that_takes_too_long_ends,
    the_log_has_a_maximum_of_fetched_versions,
    a_name_that_a_peer_published_is_not_taken_for_a_fetched_one,
    a_missing_version_comes_from_another_deployment,
    the_list_of_a_name_that_is_here_has_new_versions_of_another_deployment,
    a_fetched_version_never_counts_in_a_namespace_of_another_deployment,
);

const MODULE: &str = "code.example.org/acme/net.git";
const REPOSITORY: &str = "acme/net.git";
const GO: &str = "/registry/go";

fn go_mod(path: &str) -> String {
    format!("module {path}\n\ngo 1.21\n")
}

/// Creates the usual repository, with version v1.0.0.
fn usual(outside: &Outside) -> super::outside::Repository {
    let text = go_mod(MODULE);
    let files = [
        ("go.mod", text.as_str()),
        ("net.go", "package net\n\nconst Version = 1\n"),
        ("LICENSE", "free\n"),
        (
            ".gitattributes",
            "*.txt text eol=crlf\nhidden.go export-ignore\n",
        ),
        ("notes.txt", "one\ntwo\n"),
        ("hidden.go", "package net\n"),
    ];
    let repository = outside.repository(REPOSITORY, &files);
    repository.tag("v1.0.0");
    repository
}

async fn server(
    admin: &RegistryAdmin,
    db: &TestDb,
    number: u32,
    outside: &Outside,
    more: &[(&str, &str)],
) -> Replica {
    limited(admin, (db, number), outside, more, |_| {}).await
}

/// Starts a server whose clients wait for as long as a fetch takes on a busy machine, and with other limits.
async fn limited(
    admin: &RegistryAdmin,
    (db, number): (&TestDb, u32),
    outside: &Outside,
    more: &[(&str, &str)],
    limit: impl FnOnce(&mut MissLimits),
) -> Replica {
    let flags = [("registry-vcs-allowlist", CODE)];
    let flags: Vec<(&str, &str)> = flags.iter().chain(more).copied().collect();
    let variables = outside.variables();
    // The server and its git read the same variable.
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .filter(|(name, _)| *name != "GIT_SSL_CAINFO")
        .collect();
    let limit = |limits: &mut MissLimits| {
        limits.wait = Duration::from_mins(1);
        limits.list_wait = Duration::from_mins(1);
        limit(limits);
    };
    admin
        .server_within(db, number, (&flags, &variables), limit)
        .await
}

const WAITS: (&str, &str) = ("registry-on-miss", "go *=wait");

fn info(module: &str, version: &str) -> String {
    format!("{GO}/{module}/@v/{version}.info")
}

fn key(module: &str, version: &str) -> VersionKey {
    format!("go {module} {version}").parse().unwrap()
}

fn fills(server: &Replica, outcome: &str) -> u64 {
    let line = format!("lockkeeper_registry_fills_total{{outcome=\"{outcome}\"}} ");
    let metrics = server.metrics();
    let mut values = metrics.lines().filter_map(|text| text.strip_prefix(&line));
    values.next().unwrap().parse().unwrap()
}

/// Waits until the outcome of a fill is in the database.
async fn ended(store: &Store, key: &VersionKey) {
    within("the fill", async {
        loop {
            let is_here = store.registry_version(key).await.unwrap().is_some();
            let has_failed = store.registry_fill_failure(key).await.unwrap().is_some();
            if is_here || has_failed {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn fault(store: &Store, key: &VersionKey) -> (FillFault, String) {
    let failure = store.registry_fill_failure(key).await.unwrap().unwrap();
    (failure.fault, failure.reason)
}

/// R7: one fill for all requests of a server.
async fn a_hundred_requests_start_one_fill(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    let path = info(MODULE, "v1.0.0");
    let requests = (0..100).map(|_| server.status(&path, &token));
    let statuses = futures::future::join_all(requests).await;
    assert_eq!(statuses, [200; 100]);
    assert_eq!(fills(&server, "filled"), 1);
    // The tags are listed once, and once more by the fetch.
    assert_eq!(outside.git_requests(), 2);
    assert!(!outside.saw_credentials());
    let zip = server
        .get(&format!("{GO}/{MODULE}/@v/v1.0.0.zip"), &token)
        .await;
    assert_eq!(
        (zip.status.as_u16(), zip.header("content-type")),
        (200, "application/zip")
    );
    let version = admin
        .registry
        .version(&key(MODULE, "v1.0.0"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(version.origin.unwrap().as_str(), "version_control");
    let by = version.published_by.as_deref();
    assert_eq!(by, Some("https://code.example.org/acme/net.git"));
    let cache = db.store().registry_cache().await.unwrap();
    let bytes = zip.body.len() + go_mod(MODULE).len();
    assert_eq!((cache.bytes, cache.versions), (bytes as u64, 1));
    let told = server.metric("registry_cache_bytes").await;
    assert_eq!(told, Some(bytes as u64));
    assert_eq!(server.metric("registry_cache_versions").await, Some(1));
    // `go` compares versions by the times of their commits.
    let info = server.get(&path, &token).await;
    assert!(
        info.text().contains("\"2026-01-02T03:04:05Z\""),
        "{}",
        info.text()
    );
    assert!(admin.registry.verify(true).await.unwrap().is_ok());
}

/// R7: one fill for all requests of all replicas.
async fn two_replicas_start_one_fill(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let one = server(&admin, db, 1, &outside, &[WAITS]).await;
    let two = server(&admin, db, 2, &outside, &[WAITS]).await;
    let path = info(MODULE, "v1.0.0");
    let (one_said, two_said) = tokio::join!(
        futures::future::join_all((0..20).map(|_| one.status(&path, &token))),
        futures::future::join_all((0..20).map(|_| two.status(&path, &token))),
    );
    assert_eq!((one_said, two_said), (vec![200; 20], vec![200; 20]));
    assert_eq!(fills(&one, "filled") + fills(&two, "filled"), 1);
    assert_eq!(outside.git_requests(), 2);
}

async fn a_failure_is_remembered(db: &TestDb) {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    let missing = key(MODULE, "v1.1.0");
    let path = info(MODULE, "v1.1.0");
    assert_eq!(server.status(&path, &token).await, 404);
    let (kind, why) = fault(db.store(), &missing).await;
    assert_eq!(kind, FillFault::NotFound);
    assert_eq!(
        why,
        "https://code.example.org/acme/net.git has no tag v1.1.0"
    );
    let requests = outside.git_requests();
    repository.tag("v1.1.0");
    for _ in 0..3 {
        assert_eq!(server.status(&path, &token).await, 404);
    }
    assert_eq!(outside.git_requests(), requests, "nobody was asked again");
    assert_eq!(fills(&server, "not_found"), 1);
    db.clock.advance(Duration::from_mins(10));
    assert_eq!(server.status(&path, &token).await, 200);
    assert_eq!(
        db.store().registry_fill_failure(&missing).await.unwrap(),
        None
    );

    // A repository that is not there is remembered as well, and forgotten some time later.
    let gone = key("code.example.org/acme/gone.git", "v1.0.0");
    let path = info("code.example.org/acme/gone.git", "v1.0.0");
    assert_eq!(server.status(&path, &token).await, 404);
    assert_eq!(fault(db.store(), &gone).await.0, FillFault::NotFound);
    assert_eq!(db.store().registry_fills_forget().await.unwrap(), 0);
    db.clock.advance(Duration::from_mins(71));
    assert_eq!(db.store().registry_fills_forget().await.unwrap(), 1);
    assert_eq!(db.store().registry_fill_failure(&gone).await.unwrap(), None);
}

/// R6: no repository is asked about a name of an owner, and the transaction refuses what comes late.
async fn an_owned_name_is_never_fetched(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    let admin = RegistryAdmin::open(db).await;
    admin
        .namespace("go code.example.org/acme", Visibility::Public)
        .await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    for module in [
        MODULE,
        "code.example.org/acme/other.git",
        "code.example.org/Acme/net.git",
    ] {
        let escaped = module.replace("/A", "/!a");
        for file in ["@v/v1.0.0.info", "@v/v1.0.0.zip", "@v/list", "@latest"] {
            let path = format!("{GO}/{escaped}/{file}");
            assert_eq!(server.status(&path, &token).await, 404, "{path}");
        }
    }
    assert_eq!(outside.asked(), [""; 0]);

    // The name gets an owner while a fill is on its way: the transaction decides.
    let late = key(MODULE, "v1.0.0");
    let text = go_mod(MODULE);
    let files: [(&str, &[u8]); 2] = [("go.mod", text.as_bytes()), ("net.go", b"package net\n")];
    let package = admin.package(&late, &files).await;
    let change = NewChange {
        key: late.clone(),
        change: RecordChange::Add(package.content.clone()),
        base: BaseLocation::Here,
        go_mod: package.go_mod.clone(),
        committed_at: None,
        origin: VersionOrigin::VersionControl,
    };
    let recorded = admin.registry.record(&change, &by_ops()).await.unwrap();
    assert_eq!(recorded, LogOutcome::Owned);
    let by = by_ops();
    let published = admin
        .registry
        .publish(package, VersionOrigin::VersionControl, &by);
    assert_eq!(published.await.unwrap(), Published::Owned);
    assert_eq!(admin.registry.version(&late).await.unwrap(), None);
}

async fn only_a_token_for_the_name_starts_a_fill(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    let admin = RegistryAdmin::open(db).await;
    let (_, other) = admin.token(&["read:go example.com/...", "publish:*"]).await;
    let (_, token) = admin.token(&["read:go code.example.org/acme/..."]).await;
    let open = ("registry-anonymous-read", "true");
    let server = server(&admin, db, 1, &outside, &[WAITS, open]).await;
    let path = info(MODULE, "v1.0.0");
    let cached = format!("{GO}/cached-only/{MODULE}/@v/v1.0.0.info");
    for (path, token) in [
        (&path, ""),
        (&path, other.as_str()),
        (&cached, token.as_str()),
    ] {
        assert_eq!(server.status(path, token).await, 404, "{path}");
    }
    for file in ["@v/list", "@latest"] {
        let path = format!("{GO}/{MODULE}/{file}");
        assert_eq!(server.status(&path, "").await, 404, "{path}");
        assert_eq!(server.status(&path, &other).await, 404, "{path}");
    }
    assert_eq!(outside.asked(), [""; 0]);
    assert_eq!(server.status(&path, &token).await, 200);
    // Everyone could have read it at its host.
    for (path, token) in [(&path, ""), (&path, other.as_str()), (&cached, "")] {
        assert_eq!(server.status(path, token).await, 200, "{path}");
    }
}

async fn only_allowed_hosts_are_asked(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    outside.redirect("/away", &format!("https://{OTHER}/acme"));
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let hosts = format!("{CODE}/acme,{PAGES}/away");
    let rules = "go code.example.org/never/...=never,go code.example.org/refuse/...=refuse,module acme/*=refuse,go *=wait";
    let flags = [
        ("registry-vcs-allowlist", hosts.as_str()),
        ("registry-on-miss", rules),
    ];
    let server = server(&admin, db, 1, &outside, &flags).await;
    for module in [
        "other.example.org/acme/net.git",
        "code.example.org/elsewhere/net.git",
        "code.example.org/acmenet.git",
        "github.com/acme/net",
        "127.0.0.1/acme/net.git",
        "code.example.org/never/net.git",
    ] {
        for file in ["@v/v1.0.0.info", "@v/list", "@latest"] {
            let path = format!("{GO}/{module}/{file}");
            assert_eq!(server.status(&path, &token).await, 404, "{path}");
        }
    }
    for path in [
        info("code.example.org/refuse/net.git", "v1.0.0"),
        format!("{GO}/code.example.org/refuse/net.git/@v/list"),
        "/registry/v1/modules/acme/vpc/aws/versions".to_owned(),
        "/registry/v1/modules/acme/vpc/aws/1.0.0/download".to_owned(),
    ] {
        let refused = server.get(&path, &token).await;
        assert_eq!(refused.status.as_u16(), 403, "{path}");
        assert!(
            refused.text().contains("=refuse` refuses it"),
            "{}",
            refused.text()
        );
    }
    let terraform = "/registry/v1/modules/other/vpc/aws/versions";
    assert_eq!(server.status(terraform, &token).await, 404);
    assert_eq!(outside.asked(), [""; 0], "nobody was asked");

    // Git follows no redirect.
    let away = info("go.example.org/away/net.git", "v1.0.0");
    assert_eq!(server.status(&away, &token).await, 404);
    let mut asked = outside.asked();
    asked.dedup();
    assert_eq!(asked, [PAGES]);
    let (kind, _) = fault(db.store(), &key("go.example.org/away/net.git", "v1.0.0")).await;
    assert_eq!(kind, FillFault::Failed);
}

async fn a_package_that_is_too_large_is_refused(db: &TestDb) {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    repository.commit(&[("zeros", &"\0".repeat(32 << 20))]);
    repository.tag("v1.1.0");
    repository.commit(&[("go.mod", "module example.org/other\n"), ("zeros", "")]);
    repository.tag("v1.2.0");
    repository.commit(&[("go.mod", &go_mod_of_size(MODULE, (1 << 20) + 1))]);
    repository.tag("v1.3.0");
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[]).await;
    for (version, expected) in [
        ("v1.1.0", "unpacks to more than 200 times its size"),
        ("v1.2.0", "the go.mod file of the repository is not that of"),
        ("v1.3.0", "`go.mod` has more than 1048576 bytes"),
    ] {
        assert_eq!(server.status(&info(MODULE, version), &token).await, 404);
        let key = key(MODULE, version);
        ended(db.store(), &key).await;
        let (kind, why) = fault(db.store(), &key).await;
        assert_eq!(kind, FillFault::Refused);
        assert!(why.contains(expected), "{why}");
    }
    assert_eq!(db.store().registry_cache().await.unwrap().bytes, 0);
}

/// R1: a tag that moves changes nothing of what was served.
async fn a_version_never_changes_after_it_was_fetched(db: &TestDb) {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    let path = format!("{GO}/{MODULE}/@v/v1.0.0.zip");
    let first = server.get(&path, &token).await;
    repository.commit(&[("net.go", "package net\n\nconst Version = 2\n")]);
    repository.tag("v1.0.0");
    let second = server.get(&path, &token).await;
    assert_eq!(first.body, second.body);
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let head = server.request(Method::HEAD, &path, &headers).await;
    assert_eq!(head.status.as_u16(), 200);

    // After a takedown it does not come back, under the same name.
    let version = "go code.example.org/acme/net.git v1.0.0";
    admin
        .take_down(version, TakedownKind::Security, "A backdoor.")
        .await;
    let gone = server.get(&path, &token).await;
    assert_eq!(gone.status.as_u16(), 403);
    assert!(gone.text().contains("A backdoor."), "{}", gone.text());
    assert_eq!(db.store().registry_cache().await.unwrap().bytes, 0);
    assert_eq!(server.metric("registry_cache_bytes").await, Some(0));
    assert_eq!(server.metric("registry_cache_versions").await, Some(1));

    // A namespace does not take over what came from elsewhere, unless its owner wants that.
    repository.tag("v1.1.0");
    assert_eq!(server.status(&info(MODULE, "v1.1.0"), &token).await, 200);
    let (prefix, owner) = (
        "go code.example.org/acme".parse().unwrap(),
        "net".parse().unwrap(),
    );
    let created = db.store().owner_create(&owner, &by_ops()).await;
    created.map(drop).unwrap();
    let by = by_ops();
    let added = db.store().registry_namespace_add(
        &prefix,
        &owner,
        Visibility::Public,
        ForeignVersions::Refuse,
        &by,
    );
    let AddNamespace::InUse(name) = added.await.unwrap() else {
        panic!("the namespace was added");
    };
    assert_eq!(name.as_str(), MODULE);
    let adopted = db.store().registry_namespace_add(
        &prefix,
        &owner,
        Visibility::Public,
        ForeignVersions::Adopt,
        &by,
    );
    assert!(matches!(adopted.await.unwrap(), AddNamespace::Added(_)));
    assert_eq!(server.status(&info(MODULE, "v1.1.0"), &token).await, 200);
}

/// Returns text that hardly becomes smaller when it is packed.
fn noise(seed: u32, bytes: usize) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + u8::try_from((state >> 16) % 64).unwrap())
    };
    (0..bytes).map(|_| next()).collect()
}

async fn a_full_cache_keeps_nothing_more(db: &TestDb) {
    let outside = Outside::open().await;
    let text = go_mod(MODULE);
    let noises = [noise(1, 40_000), noise(2, 40_000)];
    let repository = outside.repository(REPOSITORY, &[("go.mod", &text), ("noise", &noises[0])]);
    repository.tag("v1.0.0");
    repository.commit(&[("noise", &noises[1])]);
    repository.tag("v1.1.0");
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let (_, other) = admin.token(&["read:*"]).await;
    let quota = ("registry-cache-quota", "50KiB");
    let server = server(&admin, db, 1, &outside, &[WAITS, quota]).await;
    assert_eq!(server.status(&info(MODULE, "v1.0.0"), &token).await, 200);
    // The token has fetched more than a tenth of everything that may be fetched.
    let refused = server.get(&info(MODULE, "v1.1.0"), &token).await;
    assert_eq!(refused.status.as_u16(), 404);
    assert_snapshot!(refused.text().trim_end(), @"not found: code.example.org/acme/net.git v1.1.0 is not in this registry and was not fetched, because the fetches of this token have stored a tenth of --registry-cache-quota in an hour. Try again in an hour, or ask an administrator for a larger quota");
    assert_eq!(fills(&server, "over_budget"), 1);
    let limited = key(MODULE, "v1.1.0");
    let failure = db.store().registry_fill_failure(&limited);
    assert_eq!(failure.await.unwrap(), None);
    assert_eq!(server.status(&info(MODULE, "v1.1.0"), &other).await, 404);
    let (kind, why) = fault(db.store(), &key(MODULE, "v1.1.0")).await;
    assert_eq!(kind, FillFault::Failed);
    assert!(why.contains("--registry-cache-quota is"), "{why}");
    assert_eq!(server.status(&info(MODULE, "v1.0.0"), &token).await, 200);
}

/// The file hardly needs a place in a package, and is stored as it is.
async fn a_go_mod_file_counts_in_the_quota(db: &TestDb) {
    let outside = Outside::open().await;
    let text = go_mod_of_size(MODULE, 600 << 10);
    let repository = outside.repository(
        REPOSITORY,
        &[("go.mod", &text), ("net.go", "package net\n")],
    );
    repository.tag("v1.0.0");
    repository.commit(&[("net.go", "package net\n\nconst Version = 2\n")]);
    repository.tag("v1.1.0");
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let (_, other) = admin.token(&["read:*"]).await;
    let quota = ("registry-cache-quota", "1MiB");
    let server = server(&admin, db, 1, &outside, &[WAITS, quota]).await;
    assert_eq!(server.status(&info(MODULE, "v1.0.0"), &token).await, 200);
    let zip = server
        .get(&format!("{GO}/{MODULE}/@v/v1.0.0.zip"), &token)
        .await;
    let cache = db.store().registry_cache().await.unwrap();
    assert_eq!(cache.bytes, (zip.body.len() + text.len()) as u64);
    assert_eq!(server.status(&info(MODULE, "v1.1.0"), &other).await, 404);
    let (kind, why) = fault(db.store(), &key(MODULE, "v1.1.0")).await;
    assert_eq!(kind, FillFault::Failed);
    assert!(why.contains("--registry-cache-quota is"), "{why}");
    let wrong = format!("go {MODULE} v1.0.0");
    admin
        .take_down(&wrong, TakedownKind::Mistake, "wrong")
        .await;
    assert_eq!(db.store().registry_cache().await.unwrap().bytes, 0);
}

async fn a_pseudo_version_must_be_the_one_that_go_makes(db: &TestDb) {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    let commit = repository.commit(&[("net.go", "package net\n\nconst Version = 2\n")]);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    let short = &commit[..12];
    let right = format!("v1.0.1-0.20260102030405-{short}");
    for (version, expected) in [
        (right.clone(), None),
        (
            format!("v1.9.1-0.20260102030405-{short}"),
            Some("follows the tag v1.9.0, which is not there"),
        ),
        (
            format!("v1.0.1-0.20260102030406-{short}"),
            Some("the version says 20260102030406"),
        ),
        (
            format!("v1.0.1-0.20260102030405-{}", &commit[..11]),
            Some("with 12 digits"),
        ),
        (
            "v1.0.1-0.20260102030405-0123456789ab".to_owned(),
            Some("no branch and no tag has the commit"),
        ),
        (
            format!("v1.0.0-20260102030405-{short}"),
            Some("begins with v0"),
        ),
    ] {
        let status = server.status(&info(MODULE, &version), &token).await;
        let Some(expected) = expected else {
            assert_eq!(
                status,
                200,
                "{version}: {:?}",
                db.store()
                    .registry_fill_failure(&key(MODULE, &version))
                    .await
            );
            continue;
        };
        assert_eq!(status, 404, "{version}");
        let (_, why) = fault(db.store(), &key(MODULE, &version)).await;
        assert!(why.contains(expected), "{version}: {why}");
    }
    let version = admin
        .registry
        .version(&key(MODULE, &right))
        .await
        .unwrap()
        .unwrap();
    let content = &version.known.content().unwrap().content;
    assert_eq!(content.commit.as_ref().unwrap().as_str(), commit);
}

async fn files_of_a_public_commit_come_from_our_mirror(db: &TestDb) {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    let hidden = repository.commit(&[("net.go", "package net\n\nconst Version = 2\n")]);
    mirror(db, 1, &outside).await;
    repository.take_back();
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    let before = outside.git_requests();
    let info_of_version = server.get(&info(MODULE, "v1.0.0"), &token).await;
    assert_eq!(
        info_of_version.text(),
        r#"{"Version":"v1.0.0","Time":"2026-01-02T03:04:05Z"}"#
    );
    // The tags were listed without credentials, and no files were fetched.
    assert_eq!(outside.git_requests() - before, 1);
    assert!(!outside.saw_credentials());
    let zip = format!("{GO}/{MODULE}/@v/v1.0.0.zip");
    assert_eq!(server.status(&zip, &token).await, 200);
    // Only our mirror has the other commit.
    let version = format!("v1.0.1-0.20260102030405-{}", &hidden[..12]);
    assert_eq!(server.status(&info(MODULE, &version), &token).await, 404);
    let (_, why) = fault(db.store(), &key(MODULE, &version)).await;
    assert!(why.contains("no branch and no tag has the commit"), "{why}");
}

/// Makes the mirror of the usual repository in the data directory of a server.
async fn mirror(db: &TestDb, number: u32, outside: &Outside) {
    let data = db.dir.path().join(format!("data-{number}"));
    let path = std::env::var_os("PATH").unwrap();
    let git = Git::new(GitSettings::new(data, path));
    let remote = Remote {
        url: &outside.address(REPOSITORY),
        credentials: None,
        deadline: Duration::from_mins(1),
    };
    let selection = RefSelection {
        branches: true,
        pulls: [].into(),
    };
    let repo = "code.example.org/acme/net".parse().unwrap();
    git.mirror(&repo).sync(&remote, &selection).await.unwrap();
}

/// Returns the mirror in a directory, which has only one.
fn mirror_in(dir: &Path) -> PathBuf {
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        if dir.join("objects").is_dir() {
            return dir;
        }
        let entries = std::fs::read_dir(&dir).unwrap().map(Result::unwrap);
        let paths = entries.map(|entry| entry.path());
        open.extend(paths.filter(|path| path.is_dir()));
    }
    panic!("there is no mirror in {}", dir.display());
}

async fn a_damaged_mirror_does_not_keep_a_version_from_being_fetched(db: &TestDb) {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    mirror(db, 1, &outside).await;
    for version in ["v1.0.1", "v1.0.2", "v1.0.3"] {
        repository.tag(version);
    }
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    let dir = mirror_in(&db.dir.path().join("data-1/mirrors"));
    let shell = |command: &str| {
        let said = run("sh", &dir, &["-c", command], &[]);
        assert_eq!(said.code, 0, "{command}: {}", said.err);
        said.out.trim().to_owned()
    };
    // Objects in files of their own can be damaged one by one.
    shell(
        "mkdir whole; mv objects/pack/* whole/ 2>/dev/null || true; \
         for pack in whole/*.pack; do [ ! -e \"$pack\" ] || git unpack-objects -q < \"$pack\"; done",
    );
    let commit = shell("git for-each-ref --format='%(objectname)' refs/heads");
    let requests = async |version: &str| {
        let before = outside.git_requests();
        assert_eq!(server.status(&info(MODULE, version), &token).await, 200);
        outside.git_requests() - before
    };
    // The tags are listed, and nothing is fetched.
    assert_eq!(requests("v1.0.0").await, 1);
    // A file beside the module, the file that names it, and the commit.
    for (object, version) in [
        (":notes.txt", "v1.0.1"),
        (":go.mod", "v1.0.2"),
        ("", "v1.0.3"),
    ] {
        let id = shell(&format!("git rev-parse {commit}{object}"));
        let file = dir.join("objects").join(&id[..2]).join(&id[2..]);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "damaged").unwrap();
        assert_eq!(requests(version).await, 2, "{version}");
    }
    assert!(admin.registry.verify(true).await.unwrap().is_ok());
    // The packages have the same files, under numbers of the same length.
    let mut sizes = Vec::new();
    for version in ["v1.0.0", "v1.0.1", "v1.0.2", "v1.0.3"] {
        let zip = format!("{GO}/{MODULE}/@v/{version}.zip");
        sizes.push(server.get(&zip, &token).await.body.len());
    }
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
}

#[tokio::test]
async fn a_mirror_that_cannot_be_read_is_named_in_the_log() {
    let heard = log::listen();
    let db = TestDb::new(Backend::Sqlite).await;
    Box::pin(a_damaged_mirror_does_not_keep_a_version_from_being_fetched(
        &db,
    ))
    .await;
    let heard = heard.end();
    let told = "Cannot read a commit in the mirror, so its files are fetched from the host";
    let lines: Vec<&str> = heard.lines().filter(|line| line.contains(told)).collect();
    // The commit that cannot be read counts as one that the mirror does not have yet.
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        let repository = "repository=https://code.example.org/acme/net.git";
        assert!(line.contains(repository), "{line}");
    }
}

async fn the_list_has_new_tags_of_the_repository(db: &TestDb) {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    repository.tag("v1.1.0");
    repository.tag("v1.2.0-rc.1");
    repository.tag("v2.0.0");
    repository.tag("sub/v1.7.0");
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[]).await;
    let list = format!("{GO}/{MODULE}/@v/list");
    // In the background, a module that is not here is answered at once.
    assert_eq!(server.status(&list, &token).await, 404);
    assert_eq!(outside.asked(), [""; 0]);
    assert_eq!(server.status(&info(MODULE, "v1.0.0"), &token).await, 404);
    ended(db.store(), &key(MODULE, "v1.0.0")).await;
    assert_eq!(server.status(&info(MODULE, "v1.0.0"), &token).await, 200);
    let before = outside.git_requests();
    for _ in 0..3 {
        let all = server.get(&list, &token).await;
        assert_eq!(all.text(), "v1.0.0\nv1.1.0\nv1.2.0-rc.1\n");
    }
    assert_eq!(
        outside.git_requests(),
        before + 1,
        "the tags are kept for a minute"
    );
    // The newest version is fetched in the background, and the one that is here is the answer until then.
    let latest = format!("{GO}/{MODULE}/@latest");
    let answer = server.get(&latest, &token).await;
    assert!(answer.text().contains("\"v1.0.0\""), "{}", answer.text());
    ended(db.store(), &key(MODULE, "v1.1.0")).await;
    let answer = server.get(&latest, &token).await;
    assert!(answer.text().contains("\"v1.1.0\""), "{}", answer.text());
    admin
        .deprecate("go code.example.org/acme/net.git v1.1.0", "no", None)
        .await;
    assert_eq!(
        server.get(&list, &token).await.text(),
        "v1.0.0\nv1.2.0-rc.1\n"
    );
    let cached = format!("{GO}/cached-only/{MODULE}/@v/list");
    assert_eq!(server.get(&cached, &token).await.text(), "v1.0.0\n");
}

/// Fetches the usual version, so that it is here.
async fn fetched(server: &Replica, token: &str) {
    assert_eq!(server.status(&info(MODULE, "v1.0.0"), token).await, 200);
}

/// R8: a host that does not answer keeps nothing from being served that is here.
async fn what_is_here_is_served_while_its_host_is_mute(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    // No client waits for a list, because it would wait in vain.
    let hasty = |limits: &mut MissLimits| {
        limits.list_wait = Duration::ZERO;
        limits.begun_of_token = 1;
    };
    let server = limited(&admin, (db, 1), &outside, &[WAITS], hasty).await;
    fetched(&server, &token).await;
    outside.mute(true);
    let before = outside.asked().len();
    for _ in 0..3 {
        for (file, expected) in [("@v/list", "v1.0.0\n"), ("@latest", "\"v1.0.0\"")] {
            let path = format!("{GO}/{MODULE}/{file}");
            let answer = server.get(&path, &token).await;
            assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
            assert!(answer.text().contains(expected), "{}", answer.text());
        }
    }
    within("the request of the list", async {
        while outside.asked().len() == before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(
        outside.asked().len(),
        before + 1,
        "one reading for all that want the list"
    );
    // A second reading would be one too many for the token.
    assert_eq!(fills(&server, "busy"), 0);
}

async fn names_from_elsewhere_in_two_cases_are_two_names(db: &TestDb) {
    let outside = Outside::open().await;
    for path in ["acme/plain.git", "Acme/plain.git"] {
        outside
            .repository(path, &[("net.go", "package net\n")])
            .tag("v1.0.0");
    }
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    for module in [
        "code.example.org/acme/plain.git",
        "code.example.org/!acme/plain.git",
    ] {
        let path = info(module, "v1.0.0");
        assert_eq!(server.status(&path, &token).await, 200, "{module}");
    }
}

async fn an_owner_gets_a_name_that_was_fetched_in_another_case(db: &TestDb) {
    let outside = Outside::open().await;
    outside
        .repository("acme/plain.git", &[("net.go", "package net\n")])
        .tag("v1.0.0");
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    outside
        .repository("lib/Plain.git", &[("net.go", "package net\n")])
        .tag("v1.0.0");
    let fetched = info("code.example.org/lib/!plain.git", "v1.0.0");
    assert_eq!(server.status(&fetched, &token).await, 200);
    let module = "code.example.org/acme/plain.git";
    assert_eq!(server.status(&info(module, "v1.0.0"), &token).await, 200);
    let (prefix, owner, by) = (
        "go code.example.org/Acme".parse().unwrap(),
        "net".parse().unwrap(),
        by_ops(),
    );
    let store = db.store();
    let created = store.owner_create(&owner, &by).await;
    created.map(drop).unwrap();
    let public = Visibility::Public;
    let added = store.registry_namespace_add(&prefix, &owner, public, ForeignVersions::Refuse, &by);
    let AddNamespace::InUse(name) = added.await.unwrap() else {
        panic!("the namespace was added");
    };
    assert_eq!(name.as_str(), module);
    let adopted =
        store.registry_namespace_add(&prefix, &owner, public, ForeignVersions::Adopt, &by);
    assert!(matches!(adopted.await.unwrap(), AddNamespace::Added(_)));
    let files: [(&str, &[u8]); 2] = [
        ("go.mod", b"module code.example.org/Acme/plain.git\n"),
        ("net.go", b"package net\n"),
    ];
    let at_acme = "go code.example.org/Acme/plain.git v1.0.0";
    admin.publish(at_acme, &files).await;
    // A fill that had begun before the namespace was there ends without a version.
    let late = key(module, "v1.1.0");
    let files: [(&str, &[u8]); 1] = [("net.go", b"package net\n")];
    let package = admin.package(&late, &files).await;
    let published = admin
        .registry
        .publish(package, VersionOrigin::VersionControl, &by);
    assert_eq!(published.await.unwrap(), Published::Owned);
    assert_eq!(server.status(&info(module, "v1.2.0"), &token).await, 404);
    // A fetched version makes no second spelling of a name that its owner has published.
    let all = "go code.example.org/lib".parse().unwrap();
    let adopted = store.registry_namespace_add(&all, &owner, public, ForeignVersions::Adopt, &by);
    assert!(matches!(adopted.await.unwrap(), AddNamespace::Added(_)));
    let files: [(&str, &[u8]); 1] = [("net.go", b"package net\n")];
    admin
        .publish("go code.example.org/lib/plain.git v1.0.0", &files)
        .await;
    let package = admin
        .package(&key("code.example.org/lib/Plain.git", "v1.0.1"), &files)
        .await;
    let published = admin.registry.publish(package, VersionOrigin::Command, &by);
    let Ok(Published::CaseConflict(other)) = published.await else {
        panic!("the second spelling was published");
    };
    assert_eq!(other.as_str(), "code.example.org/lib/plain.git");
}

fn scratch(db: &TestDb, number: u32) -> std::path::PathBuf {
    db.dir.path().join(format!("data-{number}/registry-fills"))
}

fn left(db: &TestDb, number: u32) -> usize {
    std::fs::read_dir(scratch(db, number)).unwrap().count()
}

async fn what_an_earlier_server_left_is_removed(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let old = scratch(db, 1).join("commit-of-a-killed-server");
    std::fs::create_dir_all(&old).unwrap();
    std::fs::write(old.join("pack"), "x").unwrap();
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    assert_eq!(left(db, 1), 0);
    fetched(&server, &token).await;
    assert_eq!(left(db, 1), 0);
}

async fn a_commit_with_too_many_files_is_refused_before_it_is_packed(db: &TestDb) {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    repository.commit_many(("go.mod", &go_mod(MODULE)), 5);
    repository.tag("v1.1.0");
    // The module is small, but git reads the directories of the whole commit.
    let sub = format!("{MODULE}/sub");
    repository.commit_many(("sub/go.mod", &go_mod(&sub)), 6);
    repository.tag("sub/v1.0.0");
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let server = server(&admin, db, 1, &outside, &[WAITS]).await;
    for (module, version, expected) in [
        (MODULE, "v1.1.0", "more than 100000 files"),
        (sub.as_str(), "v1.0.0", "more than 1000000 files"),
    ] {
        assert_eq!(server.status(&info(module, version), &token).await, 404);
        let (kind, why) = fault(db.store(), &key(module, version)).await;
        assert_eq!(kind, FillFault::Refused, "{why}");
        assert!(why.contains(expected), "{why}");
    }
    assert_eq!(left(db, 1), 0);
}

async fn a_repository_that_is_too_large_is_refused(db: &TestDb) {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    repository.commit(&[("noise", &noise(3, 2 << 20))]);
    repository.tag("v1.1.0");
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let small = |limits: &mut MissLimits| limits.repository_bytes = 1 << 20;
    let server = limited(&admin, (db, 1), &outside, &[WAITS], small).await;
    assert_eq!(server.status(&info(MODULE, "v1.1.0"), &token).await, 404);
    let (kind, why) = fault(db.store(), &key(MODULE, "v1.1.0")).await;
    assert_eq!(kind, FillFault::Refused);
    assert!(why.contains("is too large"), "{why}");
    fetched(&server, &token).await;
}

async fn a_token_has_its_own_limits(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let (_, other) = admin.token(&["read:*"]).await;
    let few = |limits: &mut MissLimits| {
        limits.begun_of_token = 1;
        limits.of_token = 2;
    };
    let server = limited(&admin, (db, 1), &outside, &[], few).await;
    let ask = async |version: &str, token: &str| {
        assert_eq!(server.status(&info(MODULE, version), token).await, 404);
    };
    ask("v1.0.0", &token).await;
    ended(db.store(), &key(MODULE, "v1.0.0")).await;
    fetched(&server, &token).await;
    // The first fetch ends, and its entry goes, a moment after its version has come.
    within("the end of the first fetch", async {
        while server.running() > 0.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    outside.mute(true);
    within("the second fetch", async {
        while server.running() < 1.0 {
            ask("v1.1.0", &token).await;
            tokio::task::yield_now().await;
        }
    })
    .await;
    let busy = fills(&server, "busy");
    ask("v1.2.0", &token).await;
    assert_eq!(fills(&server, "busy"), busy + 1);
    ask("v1.2.0", &other).await;
    assert_eq!(fills(&server, "busy"), busy + 1);
    assert_eq!(fills(&server, "over_budget"), 0);
}

async fn a_version_does_not_wait_for_the_other_fetches_of_the_token_that_was_first(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    outside.mute(true);
    let admin = RegistryAdmin::open(db).await;
    let (_, first) = admin.token(&["read:*"]).await;
    let (_, second) = admin.token(&["read:*"]).await;
    let few = |limits: &mut MissLimits| {
        limits.at_once_of_token = 1;
        limits.begun_of_token = 3;
        limits.look = Duration::from_millis(50);
    };
    let server = limited(&admin, (db, 1), &outside, &[], few).await;
    let ask = async |version: &str, token: &str| {
        assert_eq!(server.status(&info(MODULE, version), token).await, 404);
    };
    let running = async |count: f64| {
        within("the fetch", async {
            while server.running() < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    ask("v1.0.0", &first).await;
    running(1.0).await;
    ask("v1.1.0", &first).await;
    ask("v1.2.0", &first).await;
    // The place of the second token is free.
    ask("v1.1.0", &second).await;
    running(2.0).await;

    // A version in the queue comes by another way, and its fetch ends.
    let is_busy = async || {
        let busy = fills(&server, "busy");
        ask("v1.3.0", &first).await;
        fills(&server, "busy") > busy
    };
    assert!(is_busy().await);
    let text = go_mod(MODULE);
    let files: [(&str, &[u8]); 2] = [("go.mod", text.as_bytes()), ("net.go", b"package net\n")];
    let package = admin.package(&key(MODULE, "v1.2.0"), &files).await;
    let (by, origin) = (by_ops(), VersionOrigin::VersionControl);
    let published = admin.registry.publish(package, origin, &by).await;
    assert!(matches!(published, Ok(Published::New(_))));
    within("the end of the fetch in the queue", async {
        while is_busy().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn clients_that_wait_and_lists_of_a_token_have_limits(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    outside.mute(true);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let few = |limits: &mut MissLimits| {
        limits.waiting_of_token = 1;
        limits.lists_of_token = 1;
    };
    let server = limited(&admin, (db, 1), &outside, &[WAITS], few).await;
    let (path, list) = (info(MODULE, "v1.0.0"), format!("{GO}/{MODULE}/@v/list"));
    let at_once = async {
        within("the fetch", async {
            while server.running() < 1.0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // The token has a request that waits, so another one does not.
        assert_eq!(server.status(&path, &token).await, 404);
        assert_eq!(server.status(&list, &token).await, 404);
        let second = format!("{GO}/code.example.org/acme/more.git/@v/list");
        assert_eq!(server.status(&second, &token).await, 404);
        assert_eq!(fills(&server, "over_budget"), 1);
    };
    tokio::select! {
        status = server.status(&path, &token) => panic!("the first client does not wait: {status}"),
        () = at_once => {}
    }
}

async fn a_fetch_that_takes_too_long_ends(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside);
    outside.mute(true);
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let hasty = |limits: &mut MissLimits| {
        limits.fill_time = Duration::from_millis(50);
        limits.of_token = 1;
    };
    let server = limited(&admin, (db, 1), &outside, &[WAITS], hasty).await;
    assert_eq!(server.status(&info(MODULE, "v1.0.0"), &token).await, 404);
    let (kind, why) = fault(db.store(), &key(MODULE, "v1.0.0")).await;
    assert_eq!(
        (kind, why.as_str()),
        (FillFault::Failed, "it takes too long")
    );
    within("the end of the fetch", async {
        while server.running() > 0.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.status(&info(MODULE, "v1.1.0"), &token).await, 404);
    assert_eq!(fills(&server, "over_budget"), 1);
}

async fn the_log_has_a_maximum_of_fetched_versions(db: &TestDb) {
    let outside = Outside::open().await;
    usual(&outside).tag("v1.1.0");
    let admin = RegistryAdmin::open(db).await;
    let (_, token) = admin.token(&["read:*"]).await;
    let one = ("registry-cache-versions", "1");
    let server = server(&admin, db, 1, &outside, &[WAITS, one]).await;
    fetched(&server, &token).await;
    assert_eq!(server.status(&info(MODULE, "v1.1.0"), &token).await, 404);
    let (_, why) = fault(db.store(), &key(MODULE, "v1.1.0")).await;
    assert!(why.contains("--registry-cache-versions is 1"), "{why}");
}

const VPC: &str = "module acme/vpc/aws";
const VPC_AT: &str = "/registry/v1/modules/acme/vpc/aws";
const MAIN: [(&str, &[u8]); 1] = [("main.tf", b"output \"x\" {}\n")];

async fn a_name_that_a_peer_published_is_not_taken_for_a_fetched_one(db: &TestDb) {
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    one.admin.publish(&format!("{VPC} 1.2.3"), &MAIN).await;
    assert_eq!(two.pull().await, 1);
    let versions = format!("{VPC_AT}/versions");
    assert_eq!(two.server.status(&versions, &two.token).await, 200);
    // Nobody is accepted for the name any more, so nobody has said who may read it.
    two.accepts("one.example.com", "go *").await;
    assert_eq!(two.server.status(&versions, &two.token).await, 404);
}

async fn a_missing_version_comes_from_another_deployment(db: &TestDb) {
    let waits = ("registry-on-miss", "*=wait");
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let two = Deployment::open(db.backend, "two.example.com", &[waits]).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    one.admin.publish(&format!("{VPC} 1.2.3"), &MAIN).await;
    let versions = format!("{VPC_AT}/versions");
    let listed = two.server.get(&versions, &two.token).await;
    assert!(listed.text().contains("1.2.3"), "{}", listed.text());
    one.admin.publish(&format!("{VPC} 1.2.4"), &MAIN).await;
    let download = format!("{VPC_AT}/1.2.4/download");
    let requests = (0..20).map(|_| two.server.status(&download, &two.token));
    let statuses = futures::future::join_all(requests).await;
    assert_eq!(statuses, [204; 20]);
    assert_eq!(fills(&two.server, "filled"), 1);

    // Everything that is here is served while the other one is away.
    one.reachable(false);
    let missing = format!("{VPC_AT}/1.2.5/download");
    assert_eq!(two.server.status(&missing, &two.token).await, 404);
    let (kind, why) = fault(two.store(), &format!("{VPC} 1.2.5").parse().unwrap()).await;
    assert_eq!(kind, FillFault::Failed);
    assert_eq!(why, "another deployment that may have it did not answer");
    assert_eq!(two.server.status(&versions, &two.token).await, 200);
    // Nobody who may not read the name makes the server ask.
    let (_, other) = two.admin.token(&["read:go *"]).await;
    let missing = format!("{VPC_AT}/1.2.6/download");
    assert_eq!(two.server.status(&missing, &other).await, 404);
    assert_eq!(fills(&two.server, "failed"), 1);
    // Nobody has a version that is nowhere.
    one.reachable(true);
    assert_eq!(two.pull().await, 0);
    let missing = format!("{VPC_AT}/1.2.7/download");
    assert_eq!(two.server.status(&missing, &two.token).await, 404);
    let (kind, why) = fault(two.store(), &format!("{VPC} 1.2.7").parse().unwrap()).await;
    assert_eq!(kind, FillFault::NotFound);
    assert_eq!(why, "no other deployment has it");
}

async fn the_list_of_a_name_that_is_here_has_new_versions_of_another_deployment(db: &TestDb) {
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let waits = ("registry-on-miss", "*=wait");
    let two = Deployment::open(db.backend, "two.example.com", &[waits]).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    one.admin.publish(&format!("{VPC} 1.2.3"), &MAIN).await;
    assert_eq!(two.pull().await, 1);
    one.admin.publish(&format!("{VPC} 1.2.4"), &MAIN).await;
    // Terraform chooses from the list. It waits for a second only, which can be too short on a busy machine.
    let mut listed = String::new();
    for _ in 0..30 {
        let versions = two
            .server
            .get(&format!("{VPC_AT}/versions"), &two.token)
            .await;
        versions.text().clone_into(&mut listed);
        if listed.contains("1.2.4") {
            break;
        }
    }
    assert!(
        listed.contains("1.2.3") && listed.contains("1.2.4"),
        "{listed}"
    );
}

/// R6: code that a peer has fetched is not that of the owner here, even if a pattern names the namespace.
async fn a_fetched_version_never_counts_in_a_namespace_of_another_deployment(db: &TestDb) {
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    let owned = "go code.example.org/acme";
    two.admin.namespace(owned, Visibility::Public).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    let accepts = "*\ngo code.example.org/acme/...";
    two.join(&one, "*", accepts).await;
    let fetched = key(MODULE, "v1.0.0");
    let text = go_mod(MODULE);
    let files: [(&str, &[u8]); 2] = [("go.mod", text.as_bytes()), ("net.go", b"package net\n")];
    let package = one.admin.package(&fetched, &files).await;
    let by = by_ops();
    let published = one
        .admin
        .registry
        .publish(package, VersionOrigin::VersionControl, &by);
    assert!(matches!(published.await, Ok(Published::New(_))));
    one.admin.publish(&format!("{VPC} 1.2.3"), &MAIN).await;
    assert_eq!(two.pull().await, 1);
    let known = two.admin.registry.version(&fetched).await.unwrap();
    assert_eq!(known, None);
    let why = two.peer("one.example.com").await.skipped_last.unwrap();
    assert!(why.contains("belongs to net here"), "{why}");
    assert!(why.contains("has fetched the version"), "{why}");
}

/// Returns a person whose `go` gets everything from the repositories themselves.
fn direct(person: Person, outside: &Outside) -> Person {
    let person = person.with("GOPROXY", "direct").with("GOSUMDB", "off");
    let variables = outside.variables();
    variables
        .iter()
        .fold(person, |person, (name, value)| person.with(name, value))
}

fn download(person: &Person, versions: &[String]) -> ProgramOutput {
    let mut args = vec!["mod", "download", "-json"];
    args.extend(versions.iter().map(String::as_str));
    person.go(&args)
}

fn sums(person: &Person, versions: &[String]) -> Vec<Value> {
    let said = download(person, versions);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let stream = serde_json::Deserializer::from_str(&said.out).into_iter::<Value>();
    stream
        .map(|module| {
            let module = module.unwrap();
            serde_json::json!([
                module["Path"],
                module["Version"],
                module["Sum"],
                module["GoModSum"]
            ])
        })
        .collect()
}

const APP: &[(&str, &str)] = &[("go.mod", "module example.org/app\n\ngo 1.21\n")];

async fn site(outside: &Outside, rules: &str) -> (Site, Person) {
    let hosts = format!("--registry-vcs-allowlist={CODE},{PAGES}");
    let rules = format!("--registry-on-miss={rules}");
    let variables = outside.variables();
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let site = Site::open_with(&[&hosts, &rules], &variables).await;
    let kim = site.person("kim", APP);
    let (_, token) = site.admin.token(&["read:*"]).await;
    kim.write(
        ".netrc",
        &format!("machine mods.example.com login kim password {token}\n"),
    );
    (site, kim)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_gets_the_same_from_here_and_from_the_repositories() {
    let outside = Outside::open().await;
    let repository = usual(&outside);
    let (sub, two) = (
        go_mod(&format!("{MODULE}/sub")),
        go_mod(&format!("{MODULE}/v2")),
    );
    let old = outside.repository("acme/old.git", &[("old.go", "package old\n")]);
    old.tag("v1.0.0");
    let old_commit = old.commit(&[("more.go", "package old\n")]);
    old.tag("v2.0.0");
    let unicode = "package sub // é\r\n";
    repository.commit(&[
        ("sub/go.mod", &sub),
        ("sub/sub.go", unicode),
        ("sub/vendor/x/x.go", "package x\n"),
    ]);
    repository.tag("sub/v0.1.0");
    repository.commit(&[("go.mod", &two)]);
    repository.tag("v2.0.0");
    let three = go_mod(&format!("{MODULE}/v3"));
    repository.commit(&[("v3/go.mod", &three), ("v3/net.go", "package net\n")]);
    repository.tag("v3.0.0");
    let page =
        format!("<meta name=\"go-import\" content=\"{PAGES}/net git https://{CODE}/acme/vanity\">");
    for path in ["/net", "/net/sub"] {
        outside.page(path, &page);
    }
    let (top, sub) = (
        go_mod(&format!("{PAGES}/net")),
        go_mod(&format!("{PAGES}/net/sub")),
    );
    let vanity = outside.repository(
        "acme/vanity",
        &[
            ("go.mod", &top),
            ("sub/go.mod", &sub),
            ("sub/a.go", "package a\n"),
        ],
    );
    vanity.tag("v1.0.0");
    vanity.tag("sub/v1.0.0");
    // Redirects keep the query of the request.
    outside.redirect("/moved", &format!("https://{PAGES}/pages/moved"));
    let moved = format!("{PAGES}/moved");
    let page =
        format!("<meta name=\"go-import\" content=\"{moved} git https://{CODE}/acme/moved\">");
    outside.page("/pages/moved", &page);
    let repository = outside.repository("acme/moved", &[("go.mod", &go_mod(&moved))]);
    repository.tag("v1.0.0");
    let versions = [
        format!("{MODULE}@v1.0.0"),
        format!("{MODULE}/sub@v0.1.0"),
        format!("{MODULE}/v2@v2.0.0"),
        format!("{MODULE}/v3@v3.0.0"),
        "code.example.org/acme/old.git@v1.0.0".to_owned(),
        "code.example.org/acme/old.git@v2.0.0+incompatible".to_owned(),
        format!(
            "code.example.org/acme/old.git@v1.0.1-0.20260102030405-{}",
            &old_commit[..12]
        ),
        format!("{PAGES}/net@v1.0.0"),
        format!("{PAGES}/net/sub@v1.0.0"),
        format!("{moved}@v1.0.0"),
    ];
    let (site, kim) = site(&outside, "go *=wait").await;
    // On a busy machine, some fetches take longer than clients wait.
    download(&kim, &versions);
    for version in &versions {
        let (path, version) = version.split_once('@').unwrap();
        ended(site.admin.registry.store(), &key(path, version)).await;
    }
    let of_registry = sums(&kim, &versions);
    let lee = direct(site.person("lee", APP), &outside);
    let of_repositories = sums(&lee, &versions);
    assert_eq!(of_registry, of_repositories);
    assert_eq!(of_registry.len(), versions.len());
    assert!(!outside.saw_credentials());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_finds_a_missing_version_in_the_end() {
    let outside = Outside::open().await;
    usual(&outside);
    outside.repository("acme/no.git", APP).tag("v1.0.0");
    outside
        .repository(
            "acme/slow.git",
            &[("go.mod", &go_mod("code.example.org/acme/slow.git"))],
        )
        .tag("v1.0.0");
    outside.page(
        "/evil",
        &format!("<meta name=go-import content=\"{PAGES}/evil git https://{OTHER}/acme/net.git\">"),
    );
    outside.redirect("/away", &format!("https://{OTHER}/away"));
    let rules = "go code.example.org/acme/no.git=refuse,go code.example.org/acme/slow.git=wait";
    let (site, kim) = site(&outside, rules).await;
    let get = |module: &str| vec!["get".to_owned(), format!("{module}@v1.0.0")];
    let run = |person: &Person, args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = person.go(&args);
        (said.code, format!("{}{}", said.out, said.err))
    };
    // In the background: the first attempt finds nothing, and a later one does.
    let (code, text) = run(&kim, &get(MODULE));
    assert_ne!(code, 0);
    assert!(text.contains("404 Not Found"), "{text}");
    site.server
        .logged("Fetched go code.example.org/acme/net.git v1.0.0")
        .await;
    let (code, text) = run(&kim, &get(MODULE));
    assert_eq!(code, 0, "{text}");
    let said = kim.go(&["list", "-m", "-versions", MODULE]);
    assert_eq!(said.out, format!("{MODULE} v1.0.0\n"), "{}", said.err);
    // With `wait`, also the newest version is found.
    let latest = [
        "get".to_owned(),
        "code.example.org/acme/slow.git@latest".to_owned(),
    ];
    // On a busy machine, the list or the fetch takes longer than the client waits.
    let mut said = (1, String::new());
    for _ in 0..10 {
        said = run(&kim, &latest);
        if said.0 == 0 {
            break;
        }
    }
    assert_eq!(said.0, 0, "{}", said.1);
    // A refusal keeps `go` from the repository.
    let max = direct(site.person("max", APP), &outside)
        .with("GOPROXY", "https://mods.example.com/registry/go,direct");
    std::fs::copy(kim.dir.join(".netrc"), max.dir.join(".netrc")).unwrap();
    let max = max
        .with("HTTPS_PROXY", &site.proxy())
        .with("SSL_CERT_FILE", &authority(&kim.dir));
    let (code, text) = run(&max, &get("code.example.org/acme/no.git"));
    assert_ne!(code, 0);
    assert!(text.contains("403 Forbidden"), "{text}");
    assert!(text.contains("acme/no.git=refuse"), "{text}");

    // Pages lead to no host that is not allowed.
    for module in [format!("{PAGES}/evil"), format!("{PAGES}/away")] {
        let (code, _) = run(&kim, &get(&module));
        assert_ne!(code, 0, "{module}");
        let key = key(&module, "v1.0.0");
        ended(site.admin.registry.store(), &key).await;
        let (_, why) = fault(site.admin.registry.store(), &key).await;
        assert!(why.contains("not on --registry-vcs-allowlist"), "{why}");
    }
    assert!(!outside.asked().contains(&OTHER.to_owned()));
}

/// Returns the certificate of the authority that the registry of a site has.
fn authority(person: &Path) -> String {
    person
        .parent()
        .unwrap()
        .join("ca.pem")
        .display()
        .to_string()
}
