//! Import paths on the host of the registry: `?go-get=1`.

use axum::http::{Method, StatusCode};
use lockkeeper::features::registry::Visibility;

use super::world::{HOST, RegistryAdmin, Replica};
use crate::support::db::{TestDb, store_test};

const IN_NAMESPACE: &str = "/net/http?go-get=1";
const ELSEWHERE: &str = "/other?go-get=1";

async fn open(db: &TestDb, flags: &[(&str, &str)]) -> (RegistryAdmin, Replica) {
    let admin = RegistryAdmin::open(db).await;
    let namespace = format!("go {HOST}/net");
    admin.namespace(&namespace, Visibility::Public).await;
    let server = admin.server(db, 1, flags).await;
    (admin, server)
}

async fn a_stranger_does_not_learn_which_namespaces_there_are(db: &TestDb) {
    let (admin, server) = open(db, &[]).await;
    let (known, other) = (
        server.get(IN_NAMESPACE, "").await,
        server.get(ELSEWHERE, "").await,
    );
    assert_eq!(known.status, StatusCode::UNAUTHORIZED);
    assert_eq!((other.status, other.text()), (known.status, known.text()));
    // A token that reads neither gets the same answer to both.
    let (_, limited) = admin.token(&["read:module acme/*"]).await;
    let known = server.status(IN_NAMESPACE, &limited).await;
    assert_eq!(server.status(ELSEWHERE, &limited).await, known);

    let (_, token) = admin.token(&["read:*"]).await;
    let answer = server.get(IN_NAMESPACE, &token).await;
    assert_eq!(answer.status, StatusCode::OK);
    let content = format!("content=\"{HOST}/net/http mod https://{HOST}/registry/go\"");
    assert!(answer.text().contains(&content), "{}", answer.text());
    assert_eq!(answer.header("x-frame-options"), "DENY");
    let page = server.status("/other", &token).await;
    assert_eq!(server.status(ELSEWHERE, &token).await, page);
}

async fn requests_for_other_hosts_are_refused(db: &TestDb) {
    let (_, server) = open(db, &[("registry-anonymous-read", "true")]).await;
    assert_eq!(server.status(IN_NAMESPACE, "").await, 200);
    // Both the address and the header name the host.
    let path = format!("http://evil.example.com{IN_NAMESPACE}");
    let answer = server.request(Method::GET, &path, &[]).await;
    assert_eq!(answer.status, StatusCode::MISDIRECTED_REQUEST);
}

store_test!(
    a_stranger_does_not_learn_which_namespaces_there_are,
    requests_for_other_hosts_are_refused,
);
