//! Readers with and without tokens, on every route.

use std::time::Duration;

use axum::http::Method;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockkeeper::features::registry::Visibility;

use super::world::{RegistryAdmin, Replica};
use crate::support::db::{TestDb, store_test};

const MODULE: &[(&str, &[u8])] = &[("main.tf", b"output \"x\" { value = 1 }\n")];

/// Publishes a Terraform and a Go module in a public namespace, and in one that is not.
async fn publish(admin: &RegistryAdmin) {
    for (namespace, prefix, visibility) in [
        ("open", "open.example.com", Visibility::Public),
        ("acme", "acme.example.com", Visibility::Owner),
    ] {
        admin
            .namespace(&format!("module {namespace}"), visibility)
            .await;
        admin.namespace(&format!("go {prefix}"), visibility).await;
        let module = format!("module {namespace}/vpc/aws 1.0.0");
        admin.publish(&module, MODULE).await;
        let go_mod = format!("module {prefix}/m\n");
        let files: [(&str, &[u8]); 2] = [("go.mod", go_mod.as_bytes()), ("m.go", b"package m\n")];
        admin
            .publish(&format!("go {prefix}/m v1.0.0"), &files)
            .await;
    }
}

/// Returns every route that is about a name.
fn paths(namespace: &str) -> [String; 8] {
    let module = format!("/registry/v1/modules/{namespace}/vpc/aws");
    let go = format!("/registry/go/{namespace}.example.com/m");
    let sumdb = "/registry/go/sumdb/mods.example.com/lookup";
    [
        format!("{module}/versions"),
        format!("{module}/1.0.0/download"),
        format!("{go}/@v/list"),
        format!("{go}/@latest"),
        format!("{go}/@v/v1.0.0.info"),
        format!("{go}/@v/v1.0.0.mod"),
        format!("{go}/@v/v1.0.0.zip"),
        format!("{sumdb}/{namespace}.example.com/m@v1.0.0"),
    ]
}

/// Returns the statuses of the answers of every route that is about a name.
async fn statuses(server: &Replica, namespace: &str, token: &str) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths(namespace) {
        statuses.push(server.status(&path, token).await);
    }
    statuses
}

const SERVED: [u16; 8] = [200, 204, 200, 200, 200, 200, 200, 200];

/// Routes that are about no name.
async fn statuses_of_log(server: &Replica, token: &str) -> [u16; 4] {
    let sumdb = "/registry/go/sumdb/mods.example.com";
    [
        server.status(&format!("{sumdb}/supported"), token).await,
        server.status(&format!("{sumdb}/latest"), token).await,
        server
            .status(&format!("{sumdb}/tile/8/0/000.p/1"), token)
            .await,
        server.status("/registry/go/index", token).await,
    ]
}

async fn every_route_asks_who_reads(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    publish(&admin).await;
    let closed = admin.server(db, 1, &[]).await;
    let open = admin
        .server(db, 2, &[("registry-anonymous-read", "true")])
        .await;
    let all = admin.token(&["read:*"]).await.1;
    let acme = admin
        .token(&["read:module acme/*", "read:go acme.example.com/..."])
        .await
        .1;
    let publisher = admin.token(&["publish:*"]).await.1;
    let unknown = format!("lkr_{}", "A".repeat(43));
    for (server, token, in_open, in_acme, in_none) in [
        (&closed, "", 401, 401, 401),
        (&closed, "nonsense", 401, 401, 401),
        (&closed, unknown.as_str(), 401, 401, 401),
        (&closed, all.as_str(), 200, 404, 404),
        (&closed, acme.as_str(), 404, 200, 404),
        (&closed, publisher.as_str(), 404, 404, 404),
        (&open, "", 200, 401, 404),
        (&open, unknown.as_str(), 401, 401, 401),
        (&open, all.as_str(), 200, 404, 404),
        (&open, acme.as_str(), 200, 200, 404),
        (&open, publisher.as_str(), 200, 404, 404),
    ] {
        let expected = |status| if status == 200 { SERVED } else { [status; 8] };
        for (namespace, status) in [("open", in_open), ("acme", in_acme), ("none", in_none)] {
            // The second answer comes from memory.
            for _ in 0..2 {
                let found = statuses(server, namespace, token).await;
                assert_eq!(found, expected(status), "{namespace} with `{token}`");
            }
        }
    }
    for (server, token, status) in [
        (&closed, "", 401),
        (&closed, unknown.as_str(), 401),
        (&closed, all.as_str(), 200),
        (&closed, acme.as_str(), 200),
        (&closed, publisher.as_str(), 404),
        (&open, "", 200),
        (&open, publisher.as_str(), 200),
    ] {
        let found = statuses_of_log(server, token).await;
        assert_eq!(found, [status; 4], "with `{token}`");
    }
    // Clients find the protocol before they sign in.
    assert_eq!(closed.status("/.well-known/terraform.json", "").await, 200);
}

async fn a_token_is_also_the_password_of_any_user(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    publish(&admin).await;
    let server = admin.server(db, 1, &[]).await;
    let token = admin.token(&["read:*"]).await.1;
    let path = "/registry/go/open.example.com/m/@v/list";
    for user in ["kim", ""] {
        let basic = format!(
            "Basic {}",
            BASE64_STANDARD.encode(format!("{user}:{token}"))
        );
        let headers = [("authorization", basic.as_str())];
        let answer = server.request(Method::GET, path, &headers).await;
        assert_eq!(answer.status, 200);
    }
    let answer = server.get(path, "").await;
    assert_eq!(
        answer.header("www-authenticate"),
        "Basic realm=\"Lockkeeper registry\", charset=\"UTF-8\""
    );
    assert_eq!(
        answer.text(),
        "Send a token of this registry, as a bearer token or as a password (docs/registry.md).\n"
    );
}

async fn a_revoked_or_expired_token_reads_nothing_more(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    publish(&admin).await;
    let servers = [
        admin.server(db, 1, &[]).await,
        admin.server(db, 2, &[]).await,
    ];
    let (token, text) = admin
        .token(&["read:module acme/*", "read:go acme.example.com/..."])
        .await;
    let below = "/registry/v1/modules/acme/vpc/aws/1.0.0/";
    let mut links = Vec::new();
    for server in &servers {
        assert_eq!(statuses(server, "acme", &text).await, SERVED);
        let download = server.get(&format!("{below}download"), &text).await;
        let link = download.header("x-terraform-get").replace("./", below);
        assert_eq!(server.status(&link, "").await, 200);
        links.push(link);
    }
    admin.revoke(&token).await;
    for server in &servers {
        assert_eq!(statuses(server, "acme", &text).await, [401; 8]);
        for link in &links {
            assert_eq!(server.status(link, "").await, 403);
        }
    }
    let end = db.now() + Duration::from_mins(1);
    let short = admin.token_until(&["read:*"], Some(end)).await.1;
    for server in &servers {
        assert_eq!(statuses(server, "open", &short).await, SERVED);
    }
    db.clock.advance(Duration::from_mins(1));
    for server in &servers {
        assert_eq!(statuses(server, "open", &short).await, [401; 8]);
    }
}

async fn a_namespace_with_versions_is_closed_to_others(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    let server = admin
        .server(db, 1, &[("registry-anonymous-read", "true")])
        .await;
    admin.namespace("go example.com", Visibility::Public).await;
    admin
        .publish("go example.com/net v1.0.0", &[("net.go", b"package net\n")])
        .await;
    let (_, for_all) = admin.token(&["read:*"]).await;
    let (_, by_name) = admin.token(&["read:go example.com/..."]).await;
    let path = "/registry/go/example.com/net/@v/list";
    for token in ["", &for_all, &by_name] {
        assert_eq!(server.status(path, token).await, 200);
    }
    admin
        .change_namespace("go example.com", Visibility::Owner)
        .await;
    for (token, status) in [("", 401), (for_all.as_str(), 404), (by_name.as_str(), 200)] {
        assert_eq!(server.status(path, token).await, status);
    }
}

async fn a_token_for_more_names_than_a_private_namespace_does_not_read_it(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    let server = admin.server(db, 1, &[]).await;
    for (namespace, visibility) in [
        ("go code.example.com/acme", Visibility::Owner),
        ("go code.example.com/open", Visibility::Public),
    ] {
        admin.namespace(namespace, visibility).await;
        let files: [(&str, &[u8]); 1] = [("m.go", b"package m\n")];
        admin
            .publish(&format!("{namespace}/m v1.0.0"), &files)
            .await;
    }
    for (scope, private, public) in [
        ("read:go code.example.com/...", 404, 200),
        ("read:go code.example.com/acme/...", 200, 404),
        ("read:go code.example.com/acme/m", 200, 404),
    ] {
        let token = admin.token(&[scope]).await.1;
        for (namespace, status) in [("acme", private), ("open", public)] {
            let path = format!("/registry/go/code.example.com/{namespace}/m/@v/list");
            assert_eq!(
                server.status(&path, &token).await,
                status,
                "{scope}: {path}"
            );
        }
    }
}

/// Returns the answers of every route that is about a name, without the name.
async fn answers(server: &Replica, namespace: &str, token: &str) -> Vec<(u16, String)> {
    let mut answers = Vec::new();
    for path in paths(namespace) {
        let answer = server.get(&path, token).await;
        let text = answer.text().replace(namespace, "NAME");
        answers.push((answer.status.as_u16(), text));
    }
    answers
}

async fn a_private_name_is_refused_like_one_that_is_not_here(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    publish(&admin).await;
    admin
        .namespace("go host.example.com/Acme", Visibility::Owner)
        .await;
    let usual = admin.server(db, 1, &[]).await;
    let refuse = ("registry-on-miss", "*=refuse");
    let refusing = admin.server(db, 2, &[refuse]).await;
    let all = admin.token(&["read:*"]).await.1;
    let other = admin.token(&["read:module other/*"]).await.1;
    for (server, token, status) in [
        (&usual, &all, 404),
        (&usual, &other, 404),
        (&refusing, &all, 403),
        (&refusing, &other, 404),
    ] {
        let missing = answers(server, "none", token).await;
        assert_eq!(answers(server, "acme", token).await, missing);
        let statuses: Vec<u16> = missing.iter().map(|(status, _)| *status).collect();
        assert_eq!(statuses, [status; 8]);
    }
    // Another spelling of a private name shows as little.
    for path in ["acme/x/@v/list", "acme/x/@v/v1.0.0.info"] {
        let path = format!("/registry/go/host.example.com/{path}");
        let answer = refusing.get(&path, &all).await;
        assert_eq!(answer.status, 403, "{path}");
    }
    // A name that the reader may read is only missing, because no rule is for a namespace.
    for path in ["vpc/gcp/versions", "vpc/aws/9.0.0/download"] {
        let path = format!("/registry/v1/modules/open/{path}");
        assert_eq!(refusing.status(&path, &all).await, 404, "{path}");
    }
}

async fn a_wrong_version_says_what_is_wrong_and_shows_no_private_name(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    publish(&admin).await;
    let usual = admin.server(db, 1, &[]).await;
    let refuse = ("registry-on-miss", "*=refuse");
    let refusing = admin.server(db, 2, &[refuse]).await;
    let all = admin.token(&["read:*"]).await.1;
    let other = admin.token(&["read:module other/*"]).await.1;
    let acme = admin.token(&["read:go acme.example.com/..."]).await.1;
    let why =
        "`v9` cannot be a version of NAME.example.com/m: a version of a Go module is written as";
    let rule = "the rule `*=refuse` refuses it";
    for (server, token, [on_open, on_acme, on_none]) in [
        (&usual, &all, [why; 3]),
        (&usual, &acme, [why; 3]),
        (&usual, &other, [why; 3]),
        // A rule is for names in no namespace, and for those that the reader must take for such.
        (&refusing, &all, [why, rule, rule]),
        (&refusing, &acme, [why; 3]),
        (&refusing, &other, [why; 3]),
    ] {
        for (namespace, expected) in [("open", on_open), ("acme", on_acme), ("none", on_none)] {
            let module = format!("{namespace}.example.com/m");
            for path in [
                format!("/registry/go/{module}/@v/v9.info"),
                format!("/registry/go/{module}/@v/v9.zip"),
                format!("/registry/go/cached-only/{module}/@v/v9.mod"),
                format!("/registry/go/sumdb/mods.example.com/lookup/{module}@v9"),
            ] {
                let answer = server.get(&path, token).await;
                let status = if expected == rule { 403 } else { 404 };
                assert_eq!(answer.status, status, "{path} with `{token}`");
                let text = answer.text().replace(namespace, "NAME");
                assert!(text.contains(expected), "{path} with `{token}`: {text}");
            }
        }
    }
    assert_eq!(
        usual
            .status("/registry/go/acme.example.com/m/@v/v9.info", "")
            .await,
        401
    );
}

async fn a_namespace_is_visible_as_it_was_added_last(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    let server = admin
        .server(db, 1, &[("registry-anonymous-read", "true")])
        .await;
    let path = "/registry/go/acme.example.com/m/@v/list";
    assert_eq!(server.status(path, "").await, 404);
    admin
        .namespace("go acme.example.com", Visibility::Public)
        .await;
    admin.remove_namespace("go acme.example.com").await;
    admin
        .namespace("go acme.example.com", Visibility::Owner)
        .await;
    assert_eq!(server.status(path, "").await, 401);
}

store_test!(
    every_route_asks_who_reads,
    a_token_is_also_the_password_of_any_user,
    a_revoked_or_expired_token_reads_nothing_more,
    a_namespace_is_visible_as_it_was_added_last,
    a_namespace_with_versions_is_closed_to_others,
    a_token_for_more_names_than_a_private_namespace_does_not_read_it,
    a_private_name_is_refused_like_one_that_is_not_here,
    a_wrong_version_says_what_is_wrong_and_shows_no_private_name,
);
