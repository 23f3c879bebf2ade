//! Answers to `terraform` and `go`, by their content and headers.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::response::Response;
use futures::future::join_all;
use futures::poll;
use lockkeeper::features::registry::{Published, VersionOrigin, Visibility};
use lockkeeper::model::Sha256Digest;
use lockkeeper::store::DatabaseUrl;
use lockkeeper_registry::records::{Checksums, TakedownKind};
use lockkeeper_registry::signed_note::open_note;
use lockkeeper_registry::tlog::{
    LogHash, TILE_HEIGHT, Tile, TreeHead, check_record, hash_from_tile, parse_record, prove_record,
    record_hash,
};
use lockkeeper_registry::versions::VersionKey;
use serde_json::{Value, json};
use sqlx::Transaction;
use sqlx_postgres::{PgPool, Postgres};
use tower::ServiceExt as _;

use super::world::{HOST, RegistryAdmin, Replica, archive, by_ops, go_mod_of_size};
use crate::support::db::{TestDb, execute, store_test};
use crate::support::log;

const GO_MOD: &[u8] = b"module example.com/net\n\ngo 1.21\n";
const MODULE: &[(&str, &[u8])] = &[("main.tf", b"output \"x\" { value = 1 }\n")];

/// Opens a registry with a public namespace of each kind, and a server that serves it to everyone.
async fn open(db: &TestDb) -> (RegistryAdmin, Replica) {
    let admin = RegistryAdmin::open(db).await;
    admin.namespace("module acme", Visibility::Public).await;
    admin.namespace("go example.com", Visibility::Public).await;
    let server = admin
        .server(db, 1, &[("registry-anonymous-read", "true")])
        .await;
    (admin, server)
}

async fn publish_go(admin: &RegistryAdmin, versions: &[&str]) {
    for version in versions {
        let source = format!("package net\n\nconst Version = \"{version}\"\n");
        let files = [("go.mod", GO_MOD), ("net.go", source.as_bytes())];
        admin
            .publish(&format!("go example.com/net {version}"), &files)
            .await;
    }
}

async fn the_protocol_of_go_proxies_is_spoken(db: &TestDb) {
    let (admin, server) = open(db).await;
    let pseudo = "v0.0.0-20191109021931-daa7c04131f5";
    publish_go(&admin, &["v1.2.0", "v1.10.0", "v1.11.0-rc.1", pseudo]).await;
    let go = |path: &str| format!("/registry/go/{path}");
    let list = server.get(&go("example.com/net/@v/list"), "").await;
    assert_eq!(list.text(), "v1.2.0\nv1.10.0\nv1.11.0-rc.1\n");
    assert_eq!(list.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(list.header("cache-control"), "private, no-cache");
    let info = server.get(&go("example.com/net/@v/v1.2.0.info"), "").await;
    assert_eq!(
        info.text(),
        r#"{"Version":"v1.2.0","Time":"2026-03-02T09:00:00Z"}"#
    );
    assert_eq!(info.header("content-type"), "application/json");
    assert_eq!(
        info.header("cache-control"),
        "private, max-age=31536000, immutable"
    );
    let latest = server.get(&go("example.com/net/@latest"), "").await;
    assert_eq!(latest.text(), info.text().replace("v1.2.0", "v1.10.0"));
    for version in ["v1.2.0", pseudo] {
        let go_mod = server
            .get(&go(&format!("example.com/net/@v/{version}.mod")), "")
            .await;
        assert_eq!(go_mod.body, GO_MOD);
        let zip = server
            .get(
                &go(&format!("cached-only/example.com/net/@v/{version}.zip")),
                "",
            )
            .await;
        let key: VersionKey = format!("go example.com/net {version}").parse().unwrap();
        let source = format!("package net\n\nconst Version = \"{version}\"\n");
        let files = [("go.mod", GO_MOD), ("net.go", source.as_bytes())];
        assert_eq!(zip.body, archive(&key, &files));
        assert_eq!(zip.header("content-type"), "application/zip");
    }
    for (path, status, text) in [
        (
            "example.com/other/@v/list",
            404,
            "not found: example.com/other is not in this registry\n",
        ),
        (
            "example.com/other/@latest",
            404,
            "not found: example.com/other is not in this registry\n",
        ),
        (
            "example.com/net/@v/v1.3.0.info",
            404,
            "not found: example.com/net v1.3.0 is not in this registry\n",
        ),
        (
            "example.com/net/@v/main.info",
            404,
            "not found: `main` cannot be a version of example.com/net: a version of a Go module is written as `v1.2.3` or \
             `v1.2.3-rc.1`\n",
        ),
        (
            "example.com/net/@v/v2.0.0.info",
            404,
            "not found: `v2.0.0` cannot be a version of example.com/net: `example.com/net` has versions `v0` and `v1`, and \
             higher ones with `+incompatible`, and `v2.0.0` is none of them\n",
        ),
        (
            "example.com/net/@v/v9.tar",
            404,
            "not found: no module has this path\n",
        ),
        (
            "github.com/other/x/@v/list",
            404,
            "not found: github.com/other/x is not in this registry\n",
        ),
        (
            "example.com/Net/@v/list",
            400,
            "bad request: an upper-case letter is escaped as `!` and the lower-case letter\n",
        ),
    ] {
        let answer = server.get(&go(path), "").await;
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (status, text),
            "{path}"
        );
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(answer.header("cache-control"), "no-store");
    }
}

async fn a_module_of_nothing_but_commits_has_an_empty_list(db: &TestDb) {
    let (admin, server) = open(db).await;
    let (older, newer) = (
        "v0.0.0-20191109021931-daa7c04131f5",
        "v0.0.0-20201109021931-0a7c04131f5d",
    );
    publish_go(&admin, &[newer, older]).await;
    let list = server.get("/registry/go/example.com/net/@v/list", "").await;
    assert_eq!((list.status, list.text()), (StatusCode::OK, ""));
    let latest = server.get("/registry/go/example.com/net/@latest", "").await;
    assert!(latest.text().contains(newer), "{}", latest.text());
}

async fn a_deprecated_version_is_served_and_not_chosen(db: &TestDb) {
    let (admin, server) = open(db).await;
    publish_go(&admin, &["v1.0.0", "v1.1.0"]).await;
    let path = "/registry/go/example.com/net/@v/";
    let list = async || server.get(&format!("{path}list"), "").await;
    assert_eq!(list().await.text(), "v1.0.0\nv1.1.0\n");
    let info = server.get(&format!("{path}v1.1.0.info"), "").await;
    admin
        .deprecate(
            "go example.com/net v1.1.0",
            "It leaks",
            Some("go example.com/net v1.0.0"),
        )
        .await;
    assert_eq!(list().await.text(), "v1.0.0\n");
    let latest = server.get("/registry/go/example.com/net/@latest", "").await;
    assert!(latest.text().contains("v1.0.0"), "{}", latest.text());
    for file in ["info", "mod", "zip"] {
        let answer = server.get(&format!("{path}v1.1.0.{file}"), "").await;
        assert_eq!(answer.status, StatusCode::OK, "{file}");
    }
    let same = server.get(&format!("{path}v1.1.0.info"), "").await;
    assert_eq!(same.body, info.body);
    admin
        .deprecate("go example.com/net v1.0.0", "Too old.", None)
        .await;
    let list = list().await;
    assert_eq!((list.status, list.text()), (StatusCode::OK, ""));
    let latest = server.get("/registry/go/example.com/net/@latest", "").await;
    // `go list -m -u all` asks for the latest version in projects that pin a deprecated one.
    assert!(latest.text().contains("v1.1.0"), "{}", latest.text());
    admin.publish("module acme/vpc/aws 1.0.0", MODULE).await;
    admin
        .deprecate("module acme/vpc/aws 1.0.0", "Too old", None)
        .await;
    let list = server
        .get("/registry/v1/modules/acme/vpc/aws/versions", "")
        .await;
    assert!(list.text().contains("1.0.0"), "{}", list.text());
}

async fn the_protocol_of_module_registries_is_spoken(db: &TestDb) {
    let (admin, server) = open(db).await;
    for version in ["1.0.0", "1.10.0", "1.2.0"] {
        admin
            .publish(&format!("module acme/vpc/aws {version}"), MODULE)
            .await;
    }
    let found = server.get("/.well-known/terraform.json", "").await;
    let found: Value = serde_json::from_slice(&found.body).unwrap();
    assert_eq!(found, json!({ "modules.v1": "/registry/v1/modules/" }));
    // Terraform sends names as they are written.
    for name in ["acme/vpc/aws", "Acme/VPC/aws"] {
        let list = server
            .get(&format!("/registry/v1/modules/{name}/versions"), "")
            .await;
        assert_eq!(list.header("content-type"), "application/json");
        let list: Value = serde_json::from_slice(&list.body).unwrap();
        let versions =
            json!([{ "version": "1.10.0" }, { "version": "1.2.0" }, { "version": "1.0.0" }]);
        assert_eq!(list, json!({ "modules": [{ "versions": versions }] }));
    }
    let below = "/registry/v1/modules/acme/vpc/aws/1.2.0/";
    let download = server.get(&format!("{below}download"), "").await;
    assert_eq!(download.status, StatusCode::NO_CONTENT);
    let link = download.header("x-terraform-get");
    let path = link.strip_prefix("./").unwrap();
    assert!(path.starts_with("module.tar.gz?"), "{link}");
    let package = server.get(&format!("{below}{path}"), "").await;
    let key = "module acme/vpc/aws 1.2.0".parse().unwrap();
    assert_eq!(package.body, archive(&key, MODULE));
    assert_eq!(package.header("content-type"), "application/gzip");
    for path in [
        "acme/vpc/gcp/versions",
        "other/vpc/aws/versions",
        "acme/vpc/AWS/versions",
        "acme/vpc/aws/1.3.0/download",
        "acme/vpc/aws/v1.2.0/download",
        "acme/vpc/aws/latest/download",
    ] {
        let status = server
            .status(&format!("/registry/v1/modules/{path}"), "")
            .await;
        assert_eq!(status, 404, "{path}");
    }
}

async fn a_link_is_for_one_package_and_ten_minutes(db: &TestDb) {
    let (admin, server) = open(db).await;
    for version in ["1.0.0", "1.1.0"] {
        admin
            .publish(&format!("module acme/vpc/aws {version}"), MODULE)
            .await;
    }
    let below = |version: &str| format!("/registry/v1/modules/acme/vpc/aws/{version}/");
    let download = server.get(&format!("{}download", below("1.0.0")), "").await;
    let link = download.header("x-terraform-get").replace("./", "");
    let used = async |path: String| server.status(&path, "").await;
    let own = format!("{}{link}", below("1.0.0"));
    assert_eq!(used(own.clone()).await, 200);
    assert_eq!(used(format!("{}{link}", below("1.1.0"))).await, 403);
    assert_eq!(
        used(own.replace("module.tar.gz", "other.tar.gz")).await,
        403
    );
    assert_eq!(used(own.replace("expires=", "expires=1")).await, 403);
    assert_eq!(used(own.replace("code=", "code=A")).await, 403);
    let (without, _) = own.split_once('?').unwrap();
    assert_eq!(used(without.to_owned()).await, 403);
    db.clock.advance(Duration::from_secs(599));
    assert_eq!(used(own.clone()).await, 200);
    db.clock.advance(Duration::from_secs(1));
    let late = server.get(&own, "").await;
    assert_eq!(
        (late.status, late.text()),
        (
            StatusCode::FORBIDDEN,
            "The link is not valid any more. Request the version again.\n"
        )
    );
}

async fn packages_are_sent_whole_in_part_or_not_again(db: &TestDb) {
    let (admin, server) = open(db).await;
    // One package is sent at once, the other in pieces. `stores.rs` has one that is too large for the memory.
    let random: Vec<u8> = (0..300_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        .collect();
    for (version, content) in [("v1.0.0", &random[..100]), ("v1.1.0", &random[..])] {
        let files = [("go.mod", GO_MOD), ("data.bin", content)];
        let key = format!("go example.com/net {version}");
        admin.publish(&key, &files).await;
        let whole = archive(&key.parse().unwrap(), &files);
        let path = format!("/registry/go/example.com/net/@v/{version}.zip");
        for _ in 0..2 {
            let answer = server.get(&path, "").await;
            assert_eq!(answer.body, whole);
            assert_eq!(answer.header("content-length"), whole.len().to_string());
            assert_eq!(answer.header("accept-ranges"), "bytes");
            let tag = answer.header("etag").to_owned();
            assert_eq!(tag.len(), 66, "{tag}");
            let asked = async |method, headers: &[(&str, &str)]| {
                server.request(method, &path, headers).await
            };
            let head = asked(Method::HEAD, &[]).await;
            assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
            assert_eq!(head.header("content-length"), whole.len().to_string());
            assert_eq!(head.header("etag"), tag);
            let known = asked(Method::GET, &[("if-none-match", &tag)]).await;
            assert_eq!(
                (known.status, known.body.len()),
                (StatusCode::NOT_MODIFIED, 0)
            );
            let part = asked(Method::GET, &[("range", "bytes=10-29")]).await;
            assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
            assert_eq!(part.body, &whole[10..30]);
            let range = format!("bytes 10-29/{}", whole.len());
            assert_eq!(part.header("content-range"), range);
            let end = asked(Method::GET, &[("range", "bytes=-5"), ("if-range", &tag)]).await;
            assert_eq!(end.body, &whole[whole.len() - 5..]);
            let other = asked(Method::GET, &[("range", "bytes=-5"), ("if-range", "\"x\"")]).await;
            assert_eq!(other.body, whole);
            let after = asked(Method::GET, &[("range", "bytes=999999999-")]).await;
            assert_eq!(after.status, StatusCode::RANGE_NOT_SATISFIABLE);
            let size = format!("bytes */{}", whole.len());
            assert_eq!(after.header("content-range"), size);
        }
    }
}

async fn a_go_mod_file_is_sent_whole_or_not_again(db: &TestDb) {
    let (admin, server) = open(db).await;
    // Kept in memory, sent at once, sent in pieces, and from before the limit.
    for (version, bytes) in [
        ("v1.0.0", 100),
        ("v1.1.0", 20_000),
        ("v1.2.0", 600_000),
        ("v1.3.0", 2 << 20),
    ] {
        let go_mod = go_mod_of_size("example.com/net", bytes);
        let files: [(&str, &[u8]); 2] = [("go.mod", go_mod.as_bytes()), ("x.go", b"package x\n")];
        let key = format!("go example.com/net {version}");
        admin.publish_unlimited(&key, &files).await;
        let path = format!("/registry/go/example.com/net/@v/{version}.mod");
        let asked =
            async |method, headers: &[(&str, &str)]| server.request(method, &path, headers).await;
        let key: VersionKey = key.parse().unwrap();
        let recorded = admin.registry.version(&key).await.unwrap().unwrap();
        let content = &recorded.known.content().unwrap().content;
        let Checksums::Go { go_mod: hash, .. } = content.checksums else {
            panic!("{content:?}");
        };
        let tag = format!("\"{hash}\"");
        // The first request does not read the file, and the last one may find it in memory.
        for _ in 0..2 {
            let listening = log::listen();
            let known = asked(Method::GET, &[("if-none-match", &tag)]).await;
            let head = asked(Method::HEAD, &[]).await;
            let log = listening.end();
            assert!(!log.contains("SELECT content"), "{log}");
            assert_eq!(
                (known.status, known.body.len(), known.header("etag")),
                (StatusCode::NOT_MODIFIED, 0, tag.as_str())
            );
            assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
            assert_eq!(head.header("content-length"), bytes.to_string());
            let whole = asked(Method::GET, &[]).await;
            assert_eq!(whole.status, StatusCode::OK, "{version}");
            assert!(whole.body == go_mod.as_bytes(), "{version}");
            assert_eq!(whole.header("content-length"), bytes.to_string());
            for answer in [&head, &whole] {
                assert_eq!(answer.header("etag"), tag);
                let kind = "text/plain; charset=utf-8";
                assert_eq!(answer.header("content-type"), kind);
                let fresh = "private, max-age=31536000, immutable";
                assert_eq!(answer.header("cache-control"), fresh);
            }
        }
        let key = key.to_string();
        admin.take_down(&key, TakedownKind::Mistake, "wrong").await;
        assert_eq!(asked(Method::GET, &[]).await.status, StatusCode::FORBIDDEN);
    }
}

/// Sends a request whose client does not read the body, with a token unless it is empty.
fn begin(
    server: &Replica,
    path: &str,
    token: &str,
) -> impl Future<Output = Response> + Send + 'static {
    let mut request = Request::builder().uri(path).header(header::HOST, HOST);
    if !token.is_empty() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Body::empty()).unwrap();
    let answer = server.router.clone().oneshot(request);
    async { answer.await.unwrap() }
}

async fn large_go_mod_files_take_memory_until_they_are_read(db: &TestDb) {
    let (admin, server) = open(db).await;
    let large = go_mod_of_size("example.com/net", 16 << 20);
    let small = go_mod_of_size("example.com/net", 10_000);
    for (version, go_mod) in [("v1.0.0", &large), ("v1.1.0", &small)] {
        let files: [(&str, &[u8]); 2] = [("go.mod", go_mod.as_bytes()), ("x.go", b"package x\n")];
        let key = format!("go example.com/net {version}");
        admin.publish_unlimited(&key, &files).await;
    }
    let path = |version: &str| format!("/registry/go/example.com/net/@v/{version}.mod");
    let begin = async || begin(&server, &path("v1.0.0"), "").await;
    // They have the 128 MiB of packages and large files.
    let mut unread = Vec::new();
    for number in 0..8 {
        let answer = begin().await;
        assert_eq!(answer.status(), StatusCode::OK, "{number}");
        unread.push(answer);
    }
    let refused = begin().await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()[header::RETRY_AFTER], "5");
    let head = server.request(Method::HEAD, &path("v1.0.0"), &[]).await;
    assert_eq!(head.status, StatusCode::OK);
    assert_eq!(server.get(&path("v1.1.0"), "").await.text(), small);
    unread.pop();
    assert!(server.get(&path("v1.0.0"), "").await.body == large.as_bytes());
}

async fn a_token_with_many_slow_downloads_keeps_nobody_else_waiting(db: &TestDb) {
    let (admin, server) = open(db).await;
    // Nothing makes it smaller.
    let noise: Vec<u8> = (0..50_000_u32)
        .flat_map(|number| number.wrapping_mul(number ^ 0x9E37_79B1).to_le_bytes())
        .collect();
    let files: [(&str, &[u8]); 2] = [("go.mod", GO_MOD), ("data.bin", &noise)];
    admin.publish("go example.com/net v1.0.0", &files).await;
    let path = "/registry/go/example.com/net/@v/v1.0.0.zip";
    let [slow, other] = [
        admin.token(&["read:*"]).await.1,
        admin.token(&["read:*"]).await.1,
    ];
    let mut unread = Vec::new();
    for number in 0..32 {
        let answer = begin(&server, path, &slow).await;
        assert_eq!(answer.status(), StatusCode::OK, "{number}");
        unread.push(answer);
    }
    let waiting = tokio::spawn(begin(&server, path, &slow));
    assert_eq!(server.status(path, &other).await, 200);
    assert_eq!(server.status(path, "").await, 200);
    assert!(!waiting.is_finished(), "the token has 32 downloads already");
    unread.pop();
    assert_eq!(waiting.await.unwrap().status(), StatusCode::OK);
}

async fn a_package_that_was_damaged_is_served_again_once_it_is_mended(db: &TestDb) {
    let (admin, server) = open(db).await;
    let key: VersionKey = "go example.com/net v1.0.0".parse().unwrap();
    let files: &[(&str, &[u8])] = &[("go.mod", GO_MOD), ("net.go", b"package net\n")];
    admin.publish(&key.to_string(), files).await;
    let whole = archive(&key, files);
    let digest = Sha256Digest::of(&whole);
    let (start, rest) = digest.as_str().split_at(2);
    let packages = db.dir.path().join("packages/sha256");
    // Another byte on the disk, and the same size.
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    std::fs::write(packages.join(start).join(rest), damaged).unwrap();
    let path = "/registry/go/example.com/net/@v/v1.0.0.zip";
    for _ in 0..2 {
        assert_eq!(server.status(path, "").await, 500);
    }
    let again = admin.package(&key, files).await;
    let ops = by_ops();
    let again = admin.registry.publish(again, VersionOrigin::Command, &ops);
    assert_eq!(again.await.unwrap(), Published::Same);
    assert_eq!(server.get(path, "").await.body, whole);
}

/// R5: every served version has a proof under the signed head.
async fn the_log_proves_what_is_served(db: &TestDb) {
    let (admin, server) = open(db).await;
    let versions: Vec<String> = (0..5).map(|minor| format!("v1.{minor}.0")).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    publish_go(&admin, &versions).await;
    let sumdb = |path: &str| format!("/registry/go/sumdb/mods.example.com/{path}");
    assert_eq!(server.status(&sumdb("supported"), "").await, 200);
    let known = [admin.registry.verifier().clone()];
    let latest = server.get(&sumdb("latest"), "").await;
    let head = open_note(&latest.body, &known).unwrap().text;
    let head: TreeHead = head.parse().unwrap();
    assert_eq!(head.size, 5);
    for (number, version) in (0..).zip(&versions) {
        let found = server
            .get(&sumdb(&format!("lookup/example.com/net@{version}")), "")
            .await;
        let (record, text, rest) = parse_record(&found.body).unwrap();
        assert_eq!(record, number);
        assert!(
            text.contains(&format!("\nexample.com/net {version} h1:")),
            "{text}"
        );
        open_note(rest, &known).unwrap();
        let query = prove_record(head.size, record).unwrap();
        let mut hashes: Vec<LogHash> = Vec::new();
        for index in query.indexes() {
            let tile = Tile::for_index(TILE_HEIGHT, *index);
            let content = server.get(&sumdb(&tile.to_string()), "").await;
            assert_eq!(content.status, StatusCode::OK, "{tile}");
            hashes.push(hash_from_tile(&tile, &content.body, *index).unwrap());
        }
        let proof = query.compute(&hashes).unwrap();
        let hash = record_hash(text.as_bytes());
        check_record(&proof, head.size, &head.root, record, &hash).unwrap();
    }
    for path in [
        "lookup/example.com/net@v1.9.0",
        "tile/8/0/000.p/6",
        "tile/8/0/001",
        "tile/8/data/000.p/5",
        "other",
    ] {
        assert_eq!(server.status(&sumdb(path), "").await, 404, "{path}");
    }
    let other = "/registry/go/sumdb/sum.example.org/supported";
    assert_eq!(server.status(other, "").await, 404);
}

async fn the_index_lists_versions_in_the_order_of_their_addition(db: &TestDb) {
    let (admin, server) = open(db).await;
    admin.namespace("go private.com", Visibility::Owner).await;
    publish_go(&admin, &["v1.1.0"]).await;
    admin.publish("module acme/vpc/aws 1.0.0", MODULE).await;
    let private: &[(&str, &[u8])] = &[
        ("go.mod", b"module private.com/x\n"),
        ("x.go", b"package x\n"),
    ];
    admin.publish("go private.com/x v1.0.0", private).await;
    db.clock.advance(Duration::from_secs(5));
    publish_go(&admin, &["v1.0.0", "v1.2.0"]).await;
    admin
        .take_down("go example.com/net v1.2.0", TakedownKind::Mistake, "wrong")
        .await;
    let (_, reader) = admin
        .token(&["read:go private.com/...", "read:go example.com/..."])
        .await;
    let lines = async |query: &str, token: &str| -> Vec<(String, String)> {
        let answer = server
            .get(&format!("/registry/go/index{query}"), token)
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let lines = answer.text().lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            (
                format!("{} {}", text("Path"), text("Version")),
                text("Timestamp"),
            )
        });
        lines.collect()
    };
    let names = |lines: &[(String, String)]| -> Vec<String> {
        lines.iter().map(|(name, _)| name.clone()).collect()
    };
    let all = lines("", "").await;
    assert_eq!(
        names(&all),
        ["example.com/net v1.1.0", "example.com/net v1.0.0"]
    );
    let of_token = lines("", &reader).await;
    assert_eq!(
        names(&of_token),
        [
            "example.com/net v1.1.0",
            "private.com/x v1.0.0",
            "example.com/net v1.0.0"
        ]
    );
    let since = of_token[1].1.clone();
    let rest = lines(&format!("?since={since}&limit=1"), &reader).await;
    assert_eq!(names(&rest), ["private.com/x v1.0.0"]);
    let rest = lines("?since=2026-03-02T09:00:05Z", "").await;
    assert_eq!(names(&rest), ["example.com/net v1.0.0"]);
    // In UTC, the first one is in the year 10000, whose text sorts before all others, and the second one before year 0.
    for (since, expected) in [
        ("9999-12-31T23:59:59-01:00", Vec::new()),
        ("0000-01-01T00:00:00%2B01:00", names(&all)),
    ] {
        let found = lines(&format!("?since={since}"), "").await;
        assert_eq!(names(&found), expected, "{since}");
    }
    for query in ["?limit=0", "?since=yesterday"] {
        assert_eq!(
            server
                .status(&format!("/registry/go/index{query}"), "")
                .await,
            400
        );
    }
}

async fn an_answer_from_memory_needs_one_statement(db: &TestDb) {
    let (admin, server) = open(db).await;
    publish_go(&admin, &["v1.0.0"]).await;
    admin.publish("module acme/vpc/aws 1.0.0", MODULE).await;
    let files = ["list", "v1.0.0.info", "v1.0.0.mod", "v1.0.0.zip"];
    let paths = files.map(|file| format!("/registry/go/example.com/net/@v/{file}"));
    let mut paths = Vec::from(paths);
    paths.push("/registry/v1/modules/acme/vpc/aws/versions".to_owned());
    for path in &paths {
        assert_eq!(server.status(path, "").await, 200, "{path}");
    }
    let heard = log::listen();
    for path in &paths {
        assert_eq!(server.status(path, "").await, 200, "{path}");
    }
    let log = heard.end();
    // SQLite logs on threads of its own.
    if let DatabaseUrl::Postgres(_) = &db.url {
        let statements = log.lines().filter(|line| line.contains("db.statement="));
        let statements: Vec<&str> = statements.collect();
        assert_eq!(statements.len(), paths.len(), "{log}");
        let is_of_state = |statement: &&str| statement.contains("FROM registry_access");
        assert!(statements.iter().all(is_of_state), "{log}");
    }
}

/// The state of the registry while no request can read it. SQLite is read on a thread of its own, so that no request is
/// answered before the last one waits. PostgreSQL can answer faster than the test sends the next request.
enum HeldState {
    Sqlite,
    Postgres(Transaction<'static, Postgres>),
}

impl HeldState {
    /// Changes the database. On PostgreSQL, the change is not committed yet.
    async fn after(db: &TestDb, change: &'static str) -> Self {
        match &db.url {
            DatabaseUrl::Sqlite(_) if change.starts_with("LOCK") => Self::Sqlite,
            DatabaseUrl::Sqlite(_) => {
                execute(db, change).await;
                Self::Sqlite
            }
            DatabaseUrl::Postgres(options) => {
                let pool = PgPool::connect_with((**options).clone()).await.unwrap();
                let mut change_begun = pool.begin().await.unwrap();
                sqlx::raw_sql(change)
                    .execute(&mut *change_begun)
                    .await
                    .unwrap();
                Self::Postgres(change_begun)
            }
        }
    }

    /// Sends all requests, and lets the state be read when they wait for it.
    async fn answers<T>(self, requests: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
        let mut all = Box::pin(tokio::task::unconstrained(join_all(requests)));
        if let Self::Postgres(change_begun) = self {
            // A poll may end before it has reached every request.
            for _ in 0..10 {
                assert!(poll!(&mut all).is_pending(), "nothing can be read yet");
            }
            change_begun.commit().await.unwrap();
        }
        all.await
    }
}

async fn many_requests_at_once_share_statements(db: &TestDb) {
    let (admin, server) = open(db).await;
    publish_go(&admin, &["v1.0.0", "v1.1.0"]).await;
    admin.publish("module acme/vpc/aws 1.0.0", MODULE).await;
    let paths = [
        "/registry/go/example.com/net/@v/v1.0.0.info",
        "/registry/go/example.com/net/@v/v1.1.0.mod",
        "/registry/go/example.com/net/@v/list",
        "/registry/v1/modules/acme/vpc/aws/versions",
    ];
    for path in paths {
        assert_eq!(server.status(path, "").await, 200, "{path}");
    }
    let held = HeldState::after(db, "LOCK TABLE registry_access IN ACCESS EXCLUSIVE MODE").await;
    let heard = log::listen();
    let requests = paths.iter().cycle().take(48);
    let statuses = held
        .answers(requests.map(|path| server.status(path, "")))
        .await;
    let log = heard.end();
    assert_eq!(statuses, [200; 48]);
    // SQLite logs on threads of its own. The first request reads for itself, and the second one for all others.
    if let DatabaseUrl::Postgres(_) = &db.url {
        let statements = log.lines().filter(|line| line.contains("db.statement="));
        // That of the test.
        let statements = statements.filter(|line| !line.contains("summary=\"COMMIT\""));
        let statements: Vec<&str> = statements.collect();
        assert_eq!(statements.len(), 2, "{log}");
        let is_of_state = |statement: &&str| statement.contains("FROM registry_access");
        assert!(statements.iter().all(is_of_state), "{log}");
    }
}

async fn a_request_that_is_cancelled_leaves_the_others_their_answers(db: &TestDb) {
    let (admin, server) = open(db).await;
    publish_go(&admin, &["v1.0.0"]).await;
    let info = "/registry/go/example.com/net/@v/v1.0.0.info";
    assert_eq!(server.status(info, "").await, 200);
    for _ in 0..10 {
        let mut reading = Box::pin(server.status(info, ""));
        let mut cancelled = Box::pin(server.status(info, ""));
        let mut others = Box::pin(join_all((0..8).map(|_| server.status(info, ""))));
        // The first one reads the state, and all others wait for it.
        let early = tokio::select! {
            biased;
            _ = &mut reading => None,
            _ = &mut cancelled => None,
            statuses = &mut others => Some(statuses),
            () = std::future::ready(()) => None,
        };
        drop(reading);
        drop(cancelled);
        let statuses = match early {
            Some(statuses) => statuses,
            None => others.await,
        };
        assert_eq!(statuses, [200; 8]);
    }
}

async fn requests_that_wait_for_the_same_reading_fail_with_it(db: &TestDb) {
    let (admin, server) = open(db).await;
    publish_go(&admin, &["v1.0.0"]).await;
    let info = "/registry/go/example.com/net/@v/v1.0.0.info";
    assert_eq!(server.status(info, "").await, 200);
    let held = HeldState::after(db, "ALTER TABLE registry_access RENAME TO registry_gone").await;
    let heard = log::listen();
    let statuses = held.answers((0..8).map(|_| server.status(info, ""))).await;
    let log = heard.end();
    assert_eq!(statuses, [503; 8]);
    let failed = log
        .lines()
        .filter(|line| line.contains("The registry could not answer a request"));
    let failed: Vec<&str> = failed.collect();
    assert_eq!(failed.len(), 8, "{log}");
    // The first request reads for itself, the second one for all others.
    let own = failed
        .iter()
        .filter(|line| line.contains("registry_access"));
    assert_eq!(own.count(), 2, "{log}");
    execute(db, "ALTER TABLE registry_gone RENAME TO registry_access").await;
    assert_eq!(server.status(info, "").await, 200);
}

async fn requests_are_answered_after_connections_to_the_database_were_cut(db: &TestDb) {
    let (admin, server) = open(db).await;
    publish_go(&admin, &["v1.0.0"]).await;
    let info = "/registry/go/example.com/net/@v/v1.0.0.info";
    assert_eq!(server.status(info, "").await, 200);
    if let DatabaseUrl::Postgres(_) = &db.url {
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()";
        execute(db, others).await;
    }
    assert_eq!(server.status(info, "").await, 200);
}

async fn without_the_setting_there_is_no_registry(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    let server = admin.server(db, 1, &[("registry", "false")]).await;
    for path in [
        "/.well-known/terraform.json",
        "/registry/v1/modules/acme/vpc/aws/versions",
        "/registry/go/example.com/net/@v/list",
    ] {
        assert_eq!(server.status(path, "").await, 404, "{path}");
    }
}

store_test!(
    the_protocol_of_go_proxies_is_spoken,
    a_module_of_nothing_but_commits_has_an_empty_list,
    a_deprecated_version_is_served_and_not_chosen,
    the_protocol_of_module_registries_is_spoken,
    a_link_is_for_one_package_and_ten_minutes,
    packages_are_sent_whole_in_part_or_not_again,
    a_go_mod_file_is_sent_whole_or_not_again,
    large_go_mod_files_take_memory_until_they_are_read,
    a_token_with_many_slow_downloads_keeps_nobody_else_waiting,
    a_package_that_was_damaged_is_served_again_once_it_is_mended,
    the_log_proves_what_is_served,
    the_index_lists_versions_in_the_order_of_their_addition,
    an_answer_from_memory_needs_one_statement,
    many_requests_at_once_share_statements,
    a_request_that_is_cancelled_leaves_the_others_their_answers,
    requests_that_wait_for_the_same_reading_fail_with_it,
    requests_are_answered_after_connections_to_the_database_were_cut,
    without_the_setting_there_is_no_registry,
);
