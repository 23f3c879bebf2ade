//! A version is never served after its takedown was answered, from the memory of no server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;
use lockkeeper::features::registry::Visibility;
use lockkeeper_registry::records::TakedownKind;

use super::world::{RegistryAdmin, Replica};
use crate::support::db::{TestDb, store_test};

const GO_MOD: &[u8] = b"module example.com/net\n";
const MODULE: &[(&str, &[u8])] = &[("main.tf", b"output \"x\" { value = 1 }\n")];

/// Opens a registry with two servers on one database.
async fn open(db: &TestDb) -> (RegistryAdmin, Vec<Arc<Replica>>) {
    let admin = RegistryAdmin::open(db).await;
    admin.namespace("module acme", Visibility::Public).await;
    admin.namespace("go example.com", Visibility::Public).await;
    let open = [("registry-anonymous-read", "true")];
    let mut servers = Vec::new();
    for number in 1..=2 {
        servers.push(Arc::new(admin.server(db, number, &open).await));
    }
    (admin, servers)
}

async fn publish(admin: &RegistryAdmin, version: &str) {
    let files = [("go.mod", GO_MOD), ("net.go", b"package net\n".as_slice())];
    admin
        .publish(&format!("go example.com/net {version}"), &files)
        .await;
}

/// R1: a version that was taken down is served by nobody.
async fn a_version_that_was_taken_down_is_served_by_no_server(db: &TestDb) {
    let (admin, servers) = open(db).await;
    publish(&admin, "v1.0.0").await;
    publish(&admin, "v1.1.0").await;
    admin.publish("module acme/vpc/aws 1.0.0", MODULE).await;
    admin.publish("module acme/vpc/aws 1.1.0", MODULE).await;
    let go = "/registry/go/example.com/net/@v/v1.1.0";
    let module = "/registry/v1/modules/acme/vpc/aws";
    let mut paths: Vec<String> = ["info", "mod", "zip"]
        .map(|file| format!("{go}.{file}"))
        .into();
    paths.push("/registry/go/sumdb/mods.example.com/lookup/example.com/net@v1.1.0".to_owned());
    let mut modules = vec![format!("{module}/1.1.0/download")];
    for server in &servers {
        let download = server.get(&modules[0], "").await;
        let link = download.header("x-terraform-get");
        modules.push(link.replace("./", &format!("{module}/1.1.0/")));
        for path in paths.iter().chain(&modules) {
            let answer = server.get(path, "").await;
            assert!(answer.status.is_success(), "{path}: {}", answer.text());
        }
    }
    admin
        .take_down(
            "go example.com/net v1.1.0",
            TakedownKind::Security,
            "It leaks",
        )
        .await;
    admin
        .take_down(
            "module acme/vpc/aws 1.1.0",
            TakedownKind::Legal,
            "A court said so.",
        )
        .await;
    for server in &servers {
        for path in &paths {
            let answer = server.get(path, "").await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
            assert_eq!(
                answer.text(),
                "example.com/net v1.1.0 was taken down for security on 2026-03-02: It leaks.\n"
            );
        }
        for path in &modules {
            let answer = server.get(path, "").await;
            assert_eq!(
                answer.status,
                StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS,
                "{path}"
            );
            assert_eq!(
                answer.text(),
                "acme/vpc/aws 1.1.0 was taken down for legal reasons on 2026-03-02: A court said so.\n"
            );
        }
        let list = server.get("/registry/go/example.com/net/@v/list", "").await;
        assert_eq!(list.text(), "v1.0.0\n");
        let list = server.get(&format!("{module}/versions"), "").await;
        assert_eq!(
            list.text(),
            r#"{"modules":[{"versions":[{"version":"1.0.0"}]}]}"#
        );
    }
    admin
        .take_down("go example.com/net v1.0.0", TakedownKind::Mistake, "wrong")
        .await;
    for server in &servers {
        let list = server.get("/registry/go/example.com/net/@v/list", "").await;
        assert_eq!((list.status, list.text()), (StatusCode::OK, ""));
        let latest = server.get("/registry/go/example.com/net/@latest", "").await;
        assert_eq!(latest.status, StatusCode::FORBIDDEN);
    }
}

/// R1: what was in memory goes with the takedown.
async fn no_request_after_a_takedown_is_answered_with_the_version(db: &TestDb) {
    let (admin, servers) = open(db).await;
    for round in 0..10 {
        let version = format!("v1.{round}.0");
        publish(&admin, &version).await;
        let is_down = Arc::new(AtomicBool::new(false));
        let mut readers = Vec::new();
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..8 {
            let (server, is_down) = (Arc::clone(&servers[number % 2]), Arc::clone(&is_down));
            let file = ["info", "mod", "zip"][number % 3];
            let path = format!("/registry/go/example.com/net/@v/{version}.{file}");
            let begun = begun.clone();
            readers.push(tokio::spawn(async move {
                let mut answers = 0;
                loop {
                    let was_down = is_down.load(Ordering::SeqCst);
                    let answer = server.get(&path, "").await;
                    match answer.status.as_u16() {
                        200 => {
                            assert!(!was_down, "{path} was served after its takedown");
                            if answers == 0 {
                                begun.send(()).unwrap();
                            }
                            answers += 1;
                        }
                        403 if was_down => return answers,
                        403 => {}
                        other => panic!("{path}: {other} {}", answer.text()),
                    }
                    tokio::task::yield_now().await;
                }
            }));
        }
        for _ in 0..8 {
            begins.recv().await.unwrap();
        }
        let key = format!("go example.com/net {version}");
        admin.take_down(&key, TakedownKind::Mistake, "wrong").await;
        is_down.store(true, Ordering::SeqCst);
        for reader in readers {
            assert!(
                reader.await.unwrap() > 0,
                "nobody has read before the takedown"
            );
        }
    }
}

async fn new_versions_are_listed_by_all_servers(db: &TestDb) {
    let (admin, servers) = open(db).await;
    let mut expected = String::new();
    for minor in 0..4 {
        publish(&admin, &format!("v1.{minor}.0")).await;
        expected += &["v1.", &minor.to_string(), ".0\n"].concat();
        for server in &servers {
            let list = server.get("/registry/go/example.com/net/@v/list", "").await;
            assert_eq!(list.text(), expected);
        }
    }
}

store_test!(
    a_version_that_was_taken_down_is_served_by_no_server,
    no_request_after_a_takedown_is_answered_with_the_version,
    new_versions_are_listed_by_all_servers,
);
