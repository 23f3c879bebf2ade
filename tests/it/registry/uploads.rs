//! Uploads, deprecations and takedowns by tokens, and everything that is refused.

use std::path::Path;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockkeeper::features::registry::{TokenId, Visibility};
use lockkeeper::model::Sha256Digest;
use lockkeeper_registry::go_mod::MAX_GO_MOD;
use lockkeeper_registry::versions::VersionKey;
use serde_json::{Value, json};

use super::archives::{self, Hostile};
use super::world::{Answer, RegistryAdmin, Replica, archive, by_ops, go_mod_of_size};
use crate::support::db::{TestDb, store_test};

const MODULE: &[(&str, &[u8])] = &[("main.tf", b"output \"x\" { value = 1 }\n")];
const OTHER_MODULE: &[(&str, &[u8])] = &[("main.tf", b"output \"x\" { value = 2 }\n")];
const NET: &[(&str, &[u8])] = &[
    ("go.mod", b"module example.com/net\n"),
    ("net.go", b"package net\n"),
];

/// A registry with namespaces, a server and a token that may do everything.
struct UploadFixture {
    admin: RegistryAdmin,
    server: Replica,
    token: String,
    token_id: TokenId,
}

/// Returns the address of a version for uploads.
fn address(key: &str) -> String {
    let key: VersionKey = key.parse().unwrap();
    let (name, version) = (key.name(), key.version());
    match key.as_go() {
        Some(_) => format!("/api/registry/go/{}/@v/{version}", name.as_str()),
        None => format!("/api/registry/module/{}/{version}", name.as_str()),
    }
}

fn content_digest(bytes: &[u8]) -> String {
    let digest = hex::decode(Sha256Digest::of(bytes).as_str()).unwrap();
    format!("sha-256=:{}:", BASE64_STANDARD.encode(digest))
}

fn reason(answer: &Answer) -> String {
    let json: Value = serde_json::from_str(answer.text()).unwrap();
    json["reason"].as_str().unwrap_or_default().to_owned()
}

fn detail(answer: &Answer) -> String {
    let json: Value = serde_json::from_str(answer.text()).unwrap();
    json["detail"].as_str().unwrap().to_owned()
}

impl UploadFixture {
    async fn open(db: &TestDb) -> Self {
        let admin = RegistryAdmin::open(db).await;
        for prefix in ["module acme", "go example.com"] {
            admin.namespace(prefix, Visibility::Public).await;
        }
        let scopes = ["read:*", "publish:*", "deprecate:*", "takedown:*"];
        let (token, text) = admin.token(&scopes).await;
        let server = admin.server(db, 1, &[]).await;
        Self {
            admin,
            server,
            token: text,
            token_id: token.id,
        }
    }

    /// Sends a body with a token and these headers.
    async fn put(
        &self,
        path: &str,
        token: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut all = headers.to_vec();
        if !token.is_empty() {
            all.push(("authorization", &bearer));
        }
        self.server.send(Method::PUT, path, &all, body.into()).await
    }

    /// Uploads an archive as a version.
    async fn upload(&self, key: &str, bytes: Vec<u8>) -> Answer {
        let digest = content_digest(&bytes);
        let headers = [("content-digest", digest.as_str())];
        self.put(&address(key), &self.token, &headers, bytes).await
    }

    /// Deprecates a version or takes it down.
    async fn change(&self, key: &str, change: &str, token: &str, body: Value) -> Answer {
        let path = format!("{}/{change}", address(key));
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let body = body.to_string().into_bytes();
        self.server
            .send(Method::POST, &path, &headers, body.into())
            .await
    }

    async fn log_size(&self) -> u64 {
        self.admin
            .registry
            .store()
            .registry_log_size()
            .await
            .unwrap()
    }
}

/// Returns the number of files below a directory, at any depth.
pub fn files_below(dir: &Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        count += if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path())
        } else {
            1
        };
    }
    count
}

fn module(files: &[(&str, &[u8])]) -> Vec<u8> {
    archive(&"module acme/vpc/aws 1.0.0".parse().unwrap(), files)
}

/// R1: other files under the same number are refused.
async fn a_version_is_uploaded_once(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let key = "module acme/vpc/aws 1.0.0";
    let bytes = module(MODULE);
    let answer = fixture.upload(key, bytes.clone()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    let json: Value = serde_json::from_str(answer.text()).unwrap();
    let package = &json["packages"][0];
    assert_eq!(
        (
            &json["id"],
            &json["name"],
            &json["state"],
            &json["published_by"]
        ),
        (
            &json!(1),
            &json!("acme/vpc/aws"),
            &json!("added"),
            &json!(format!("token test ({})", fixture.token_id))
        )
    );
    assert_eq!(package["sha256"], json!(Sha256Digest::of(&bytes).as_str()));
    let again = fixture.upload(key, bytes).await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.text());
    // Another compression of the same files.
    let entries = [(archives::FILE, "main.tf", MODULE[0].1)];
    let again = fixture.upload(key, archives::tar_gz(&entries)).await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.text());
    let other = fixture.upload(key, module(OTHER_MODULE)).await;
    assert_eq!(
        (other.status, reason(&other)),
        (StatusCode::CONFLICT, "other_content".to_owned())
    );
    assert_eq!(detail(&other).matches("h1:").count(), 2, "{}", other.text());
    let served = fixture
        .server
        .get("/registry/v1/modules/acme/vpc/aws/versions", &fixture.token)
        .await;
    assert_eq!(
        served.text(),
        r#"{"modules":[{"versions":[{"version":"1.0.0"}]}]}"#
    );
    assert_eq!(fixture.log_size().await, 1);

    let answer = fixture
        .upload("go example.com/net v1.0.0", archives::net_zip(NET))
        .await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    let zip = fixture
        .server
        .get("/registry/go/example.com/net/@v/v1.0.0.zip", &fixture.token)
        .await;
    assert_eq!(zip.body, archives::net_zip(NET));
    assert!(fixture.admin.registry.verify(true).await.unwrap().is_ok());
}

async fn a_go_mod_file_has_a_limit_of_its_own(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let most = usize::try_from(MAX_GO_MOD).unwrap();
    for (version, bytes, status) in [("v1.0.0", most + 1, 422), ("v1.1.0", most, 201)] {
        let key = format!("go example.com/net {version}");
        let go_mod = go_mod_of_size("example.com/net", bytes);
        let files: [(&str, &[u8]); 2] = [("go.mod", go_mod.as_bytes()), NET[1]];
        let answer = fixture
            .upload(&key, archive(&key.parse().unwrap(), &files))
            .await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        if status == 422 {
            assert_eq!(reason(&answer), "bad_package");
            let why = "the go.mod file has more than 1048576 bytes. Remove requirements";
            assert!(detail(&answer).contains(why), "{}", answer.text());
            assert_eq!(fixture.log_size().await, 0);
            let kept = fixture.admin.registry.version(&key.parse().unwrap()).await;
            assert_eq!(kept.unwrap(), None);
        }
    }
    assert!(fixture.admin.registry.verify(true).await.unwrap().is_ok());
}

async fn a_token_does_not_learn_who_has_published_a_version(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let key = "module acme/vpc/aws 1.0.0";
    let bytes = module(MODULE);
    let new = fixture.upload(key, bytes.clone()).await;
    assert_eq!(new.status, StatusCode::CREATED, "{}", new.text());
    let publishes = fixture.admin.token(&["publish:*"]).await.1;
    let digest = content_digest(&bytes);
    let headers = [("content-digest", digest.as_str())];
    let again = fixture
        .put(&address(key), &publishes, &headers, bytes)
        .await;
    let token = fixture.admin.token(&["deprecate:*"]).await.1;
    let body = json!({ "reason": "old" });
    let deprecated = fixture.change(key, "deprecate", &token, body).await;
    let token = fixture.admin.token(&["takedown:*"]).await.1;
    let body = json!({ "reason": "wrong", "kind": "mistake" });
    let taken_down = fixture.change(key, "takedown", &token, body).await;
    for answer in [again, deprecated, taken_down] {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let json: Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(json["name"], json!("acme/vpc/aws"));
        assert_eq!((json.get("published_by"), json.get("origin")), (None, None));
    }
}

async fn a_package_can_have_its_module_in_a_directory(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let key: VersionKey = "module acme/vpc/aws 1.0.0".parse().unwrap();
    let user = b"module \"x\" {\n  source = \"../shared\"\n}\n";
    let files: [(&str, &[u8]); 2] = [
        ("infra/vpc/main.tf", user),
        ("infra/shared/main.tf", b"output \"x\" { value = 1 }\n"),
    ];
    let bytes = archive(&key, &files);
    let digest = content_digest(&bytes);
    let headers = [("content-digest", digest.as_str())];
    let path = address(&key.to_string());
    for (query, why) in [
        ("dir=elsewhere", "no file with code in “elsewhere”"),
        ("dir=..", "cannot be used"),
        ("dir=infra/../infra/vpc", "cannot be used"),
        ("dir=infra%2Fvpc%20", "cannot be used"),
    ] {
        let path = format!("{path}?{query}");
        let answer = fixture
            .put(&path, &fixture.token, &headers, bytes.clone())
            .await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{query}");
        assert!(detail(&answer).contains(why), "{}", answer.text());
    }
    assert_eq!(fixture.log_size().await, 0);

    let path = format!("{path}?dir=infra/vpc");
    let answer = fixture.put(&path, &fixture.token, &headers, bytes).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    let download = "/registry/v1/modules/acme/vpc/aws/1.0.0/download";
    let download = fixture.server.get(download, &fixture.token).await;
    let link = download.header("x-terraform-get");
    let link = link
        .strip_prefix("./module~infra~vpc.tar.gz//infra/vpc?")
        .unwrap();
    // Clients keep the directory to themselves.
    let package = "/registry/v1/modules/acme/vpc/aws/1.0.0/module~infra~vpc.tar.gz";
    assert_eq!(
        fixture
            .server
            .status(&format!("{package}?{link}"), "")
            .await,
        200
    );

    let net = archive(&"go example.com/net v1.0.0".parse().unwrap(), NET);
    let digest = content_digest(&net);
    let path = format!("{}?dir=net", address("go example.com/net v1.0.0"));
    let headers = [("content-digest", digest.as_str())];
    let answer = fixture.put(&path, &fixture.token, &headers, net).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        detail(&answer).contains("only modules of Terraform"),
        "{}",
        answer.text()
    );
}

/// R2: one record for one change of state.
async fn many_uploads_of_one_version_end_with_one_record(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let (same, other) = (module(MODULE), module(OTHER_MODULE));
    let uploads = (0..12).map(|number| {
        let bytes = if number % 2 == 0 { &same } else { &other };
        fixture.upload("module acme/vpc/aws 1.0.0", bytes.clone())
    });
    let answers = futures::future::join_all(uploads).await;
    let count = |status: u16| {
        answers
            .iter()
            .filter(|answer| answer.status.as_u16() == status)
            .count()
    };
    assert_eq!((count(201), count(200), count(409)), (1, 5, 6));
    assert_eq!(fixture.log_size().await, 1);
    assert!(fixture.admin.registry.verify(true).await.unwrap().is_ok());
}

async fn only_a_token_with_the_scope_publishes(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let path = address("module acme/vpc/aws 1.0.0");
    let bytes = module(MODULE);
    let digest = content_digest(&bytes);
    let headers = [("content-digest", digest.as_str())];
    let put = async |token: &str| {
        let answer = fixture.put(&path, token, &headers, bytes.clone()).await;
        (answer.status.as_u16(), reason(&answer))
    };
    let unknown = format!("lkr_{}", "A".repeat(43));
    for token in ["", "x", unknown.as_str()] {
        assert_eq!(put(token).await, (401, "no_token".to_owned()), "{token}");
    }
    let (revoked, text) = fixture.admin.token(&["publish:*"]).await;
    fixture.admin.revoke(&revoked).await;
    assert_eq!(put(&text).await.0, 401);
    let soon = db.now() + Duration::from_mins(1);
    let (_, text) = fixture.admin.token_until(&["publish:*"], Some(soon)).await;
    db.clock.advance(Duration::from_secs(61));
    assert_eq!(put(&text).await.0, 401);
    for scopes in [
        &["read:*"][..],
        &["publish:module other/*"],
        &["publish:module acme/vpc/google"],
        &["publish:go *", "deprecate:*", "takedown:*"],
    ] {
        let (_, text) = fixture.admin.token(scopes).await;
        assert_eq!(put(&text).await, (403, "no_scope".to_owned()), "{scopes:?}");
    }
    assert_eq!(fixture.log_size().await, 0);
    let answer = fixture
        .upload("module other/vpc/aws 1.0.0", bytes.clone())
        .await;
    assert_eq!(
        (answer.status.as_u16(), reason(&answer)),
        (403, "no_namespace".to_owned())
    );
    // A browser sends a password that it knows with requests that other pages make.
    let (_, text) = fixture.admin.token(&["publish:module acme/vpc/*"]).await;
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("ci:{text}")));
    let by_password = [headers[0], ("authorization", basic.as_str())];
    let answer = fixture.put(&path, "", &by_password, bytes.clone()).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        answer.header("www-authenticate"),
        "Bearer realm=\"Lockkeeper registry\""
    );
    let answer = fixture.put(&path, &text, &headers, bytes.clone()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
}

async fn a_token_that_is_revoked_while_the_body_arrives_publishes_nothing(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let bytes = module(MODULE);
    let (token, text) = fixture.admin.token(&["publish:*"]).await;
    let (digest, bearer) = (content_digest(&bytes), format!("Bearer {text}"));
    let headers = [
        ("content-digest", digest.as_str()),
        ("authorization", bearer.as_str()),
    ];
    let store = fixture.admin.registry.store().clone();
    let body = futures::stream::once(async move {
        let revoked = store.registry_token_revoke(token.id, &by_ops()).await;
        assert!(revoked.unwrap().is_some());
        Ok::<_, std::io::Error>(Bytes::from(bytes))
    });
    let path = address("module acme/vpc/aws 1.0.0");
    let body = Body::from_stream(body);
    let answer = fixture
        .server
        .send(Method::PUT, &path, &headers, body)
        .await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{}", answer.text());
    assert_eq!(fixture.log_size().await, 0);
}

/// Two bodies of a token that never end keep neither their places for long nor others from publishing.
async fn a_token_has_half_of_the_places(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let (_, slow) = fixture.admin.token(&["publish:*"]).await;
    let bytes = module(MODULE);
    let (digest, bearer) = (content_digest(&bytes), format!("Bearer {slow}"));
    let headers = [
        ("content-digest", digest.as_str()),
        ("authorization", bearer.as_str()),
    ];
    let (begun, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let path = address("module acme/vpc/aws 1.0.0");
    let stuck = || {
        let begun = begun.clone();
        let never = futures::stream::once(async move {
            begun.send(()).unwrap();
            std::future::pending::<std::io::Result<Bytes>>().await
        });
        fixture
            .server
            .send(Method::PUT, &path, &headers, Body::from_stream(never))
    };
    let all = futures::future::join_all((0..4).map(|_| stuck()));
    let others = async {
        for _ in 0..2 {
            starts.recv().await.unwrap();
        }
        let answer = fixture
            .upload("module acme/vpc/aws 1.0.0", bytes.clone())
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    };
    tokio::select! {
        _ = all => panic!("a body that never ends has ended"),
        () = others => {}
    }
    assert!(
        starts.try_recv().is_err(),
        "a token has more than two places"
    );
}

async fn a_request_says_what_it_sends(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let path = address("module acme/vpc/aws 1.0.0");
    let bytes = module(MODULE);
    let digest = content_digest(&bytes);
    let wrong = content_digest(b"other");
    for (headers, status, expected) in [
        (vec![], 400, "no_digest"),
        (vec![("content-digest", "sha-512=:AAAA:")], 400, "no_digest"),
        (vec![("content-digest", "sha-256=AAAA")], 400, "no_digest"),
        (
            vec![("content-digest", wrong.as_str())],
            422,
            "wrong_digest",
        ),
        (
            vec![("content-digest", &digest), ("content-encoding", "gzip")],
            415,
            "content_encoding",
        ),
        (
            vec![("content-digest", &digest), ("content-length", "67108865")],
            413,
            "too_large",
        ),
    ] {
        let answer = fixture
            .put(&path, &fixture.token, &headers, bytes.clone())
            .await;
        assert_eq!(
            (answer.status.as_u16(), reason(&answer).as_str()),
            (status, expected),
            "{headers:?}"
        );
    }
    let headers = [("content-digest", digest.as_str())];
    for (path, status) in [
        ("/api/registry/module/acme/vpc/aws/v1.0.0", 422),
        ("/api/registry/module/acme/vpc/aws/1.0", 422),
        ("/api/registry/module/acme/vpc/AWS/1.0.0", 422),
        // The address of a name, without a version.
        ("/api/registry/module/acme/vpc/1.0.0", 405),
        ("/api/registry/module/acme/%2e%2e/aws/1.0.0", 422),
        ("/api/registry/go/example.com/Net/@v/v1.0.0", 400),
        ("/api/registry/go/example.com/net/@v/v1.0", 422),
        ("/api/registry/go/example.com/net/@v/latest", 422),
        ("/api/registry/go/example.com/net/@v/v2.0.0", 422),
        ("/api/registry/go/example.com/net", 404),
        ("/api/registry/provider/acme/x/1.0.0", 404),
    ] {
        let answer = fixture
            .put(path, &fixture.token, &headers, bytes.clone())
            .await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text());
    }
    // A body without a declared length is counted while it arrives.
    let piece = Bytes::from(vec![0; 1 << 20]);
    let pieces = (0..65).map(move |_| Ok::<_, std::io::Error>(piece.clone()));
    let body = Body::from_stream(futures::stream::iter(pieces));
    let bearer = format!("Bearer {}", fixture.token);
    let headers = [headers[0], ("authorization", bearer.as_str())];
    let answer = fixture
        .server
        .send(Method::PUT, &path, &headers, body)
        .await;
    assert_eq!(
        (answer.status.as_u16(), reason(&answer)),
        (413, "too_large".to_owned())
    );
    let cut_off = [
        Ok(Bytes::from(bytes.clone())),
        Err(std::io::Error::other("gone")),
    ];
    let body = Body::from_stream(futures::stream::iter(cut_off));
    let answer = fixture
        .server
        .send(Method::PUT, &path, &headers, body)
        .await;
    assert_eq!(
        (answer.status.as_u16(), reason(&answer)),
        (400, "cut_off".to_owned())
    );
    assert_eq!(fixture.log_size().await, 0);
    assert_eq!(files_below(&db.dir.path().join("packages")), 1);
}

async fn a_package_with_a_token_is_refused(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let text = format!("TOKEN={}\n", fixture.token);
    let leak = ("ci/env", text.as_bytes());
    for (key, files) in [
        ("module acme/vpc/aws 1.0.0", MODULE),
        ("go example.com/net v1.0.0", NET),
    ] {
        let files = [files, &[leak]].concat();
        let answer = fixture
            .upload(key, archive(&key.parse().unwrap(), &files))
            .await;
        assert_eq!(
            (answer.status.as_u16(), reason(&answer)),
            (422, "bad_package".to_owned())
        );
        let why = detail(&answer);
        assert!(
            why.contains("ci/env") && why.contains("has a token of a registry"),
            "{why}"
        );
        assert!(!answer.text().contains(&fixture.token), "{why}");
    }
    assert_eq!(fixture.log_size().await, 0);
    assert_eq!(files_below(&db.dir.path().join("packages")), 1);
}

async fn names_of_go_modules_do_not_differ_in_case_alone(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let first = fixture
        .upload("go example.com/net v1.0.0", archives::net_zip(NET))
        .await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
    let key = "go example.com/Net v1.0.0".parse().unwrap();
    let files: [(&str, &[u8]); 1] = [("go.mod", b"module example.com/Net\n")];
    let zip = archive(&key, &files);
    let digest = content_digest(&zip);
    let path = "/api/registry/go/example.com/!net/@v/v1.0.0";
    let headers = [("content-digest", digest.as_str())];
    let answer = fixture.put(path, &fixture.token, &headers, zip).await;
    assert_eq!(
        (answer.status.as_u16(), reason(&answer)),
        (409, "other_case".to_owned())
    );
}

async fn a_version_is_deprecated_and_taken_down_by_tokens(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let key = "module acme/vpc/aws 1.0.0";
    let why = json!({"reason": "leaks addresses", "replacement": "1.0.1"});
    let missing = fixture
        .change(key, "deprecate", &fixture.token, why.clone())
        .await;
    assert_eq!(
        (missing.status.as_u16(), reason(&missing)),
        (404, "no_version".to_owned())
    );
    drop(fixture.upload(key, module(MODULE)).await);
    let (_, publisher) = fixture.admin.token(&["publish:*", "read:*"]).await;
    for change in ["deprecate", "takedown"] {
        let answer = fixture.change(key, change, &publisher, why.clone()).await;
        assert_eq!(
            (answer.status.as_u16(), reason(&answer)),
            (403, "no_scope".to_owned())
        );
        let answer = fixture.change(key, change, "x", why.clone()).await;
        assert_eq!(answer.status.as_u16(), 401);
    }
    for (change, body, field) in [
        ("deprecate", json!({}), "reason"),
        ("deprecate", json!({"reason": " "}), "reason"),
        ("deprecate", json!({"reason": "x".repeat(301)}), "reason"),
        (
            "deprecate",
            json!({"reason": "x", "replacement": "1.0.0"}),
            "replacement",
        ),
        (
            "deprecate",
            json!({"reason": "x", "replacement": "example.com/net@v1.0.0"}),
            "replacement",
        ),
        ("deprecate", json!({"reason": "x", "kind": "legal"}), "kind"),
        ("takedown", json!({"reason": "x"}), "kind"),
        ("takedown", json!({"reason": "x", "kind": "bug"}), "kind"),
    ] {
        let answer = fixture
            .change(key, change, &fixture.token, body.clone())
            .await;
        let json: Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(answer.status.as_u16(), 422, "{body}: {}", answer.text());
        assert_eq!(json["field"], json!(field), "{body}");
    }
    let answer = fixture
        .change(key, "delete", &fixture.token, why.clone())
        .await;
    assert_eq!(answer.status.as_u16(), 404);
    let answer = fixture
        .change(
            key,
            "deprecate",
            &fixture.token,
            json!({"reason": "x", "other": 1}),
        )
        .await;
    assert!(answer.status.is_client_error());

    for _ in 0..2 {
        let answer = fixture
            .change(key, "deprecate", &fixture.token, why.clone())
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let json: Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(
            (&json["state"], &json["notice"]["replacement"]),
            (&json!("deprecated"), &json!("acme/vpc/aws@1.0.1"))
        );
    }
    let gone = json!({"reason": "has a key", "kind": "security"});
    for _ in 0..2 {
        let answer = fixture
            .change(key, "takedown", &fixture.token, gone.clone())
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let json: Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(
            (&json["state"], &json["packages"]),
            (&json!("deleted"), &json!([]))
        );
    }
    let answer = fixture.change(key, "deprecate", &fixture.token, why).await;
    assert_eq!(
        (answer.status.as_u16(), reason(&answer)),
        (410, "taken_down".to_owned())
    );
    let answer = fixture.upload(key, module(MODULE)).await;
    assert_eq!(
        (answer.status.as_u16(), reason(&answer)),
        (410, "taken_down".to_owned())
    );
    assert!(detail(&answer).contains("has a key"), "{}", answer.text());
    assert_eq!(fixture.log_size().await, 3);
    assert!(fixture.admin.registry.verify(true).await.unwrap().is_ok());
    let events = fixture
        .admin
        .registry
        .store()
        .lock_event_list(100)
        .await
        .unwrap();
    let by = format!("token test ({})", fixture.token_id);
    let of_registry = events
        .iter()
        .filter(|event| event.event.kind.as_str().starts_with("registry_"));
    let by_token = of_registry.filter(|event| event.event.cause.actor.login == by);
    assert_eq!(by_token.count(), 3);
}

async fn nothing_is_kept_of_hostile_archives(db: &TestDb) {
    let fixture = UploadFixture::open(db).await;
    let packages = db.dir.path().join("packages");
    let archives = archives::of_modules().into_iter().chain(archives::of_go());
    let mut count = 0;
    for (number, hostile) in archives.enumerate() {
        let Hostile {
            key,
            archive,
            status,
            reason,
        } = hostile;
        let answer = fixture.upload(key, archive).await;
        let shown = format!("{number} {key} {reason:?}: {}", answer.text());
        assert_eq!(answer.status.as_u16(), status, "{shown}");
        assert!(detail(&answer).contains(reason), "{shown}");
        // Only the identifier of the store.
        assert_eq!(files_below(&packages), 1, "{shown}");
        count += 1;
    }
    assert!(count > 50, "{count}");
    assert_eq!(fixture.log_size().await, 0);
    assert_eq!(
        fixture.admin.registry.names(None, None, 10).await.unwrap(),
        []
    );
}

store_test!(a_version_is_uploaded_once);
store_test!(a_package_can_have_its_module_in_a_directory);
store_test!(many_uploads_of_one_version_end_with_one_record);
store_test!(a_go_mod_file_has_a_limit_of_its_own);
store_test!(a_token_does_not_learn_who_has_published_a_version);
store_test!(only_a_token_with_the_scope_publishes);
store_test!(a_token_that_is_revoked_while_the_body_arrives_publishes_nothing);
store_test!(a_token_has_half_of_the_places);
store_test!(a_request_says_what_it_sends);
store_test!(a_package_with_a_token_is_refused);
store_test!(names_of_go_modules_do_not_differ_in_case_alone);
store_test!(a_version_is_deprecated_and_taken_down_by_tokens);
store_test!(nothing_is_kept_of_hostile_archives);
