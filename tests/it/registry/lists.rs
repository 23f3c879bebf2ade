//! Names, versions and the log as scripts read them.

use axum::http::Method;
use insta::assert_snapshot;
use lockkeeper::features::registry::Visibility;
use lockkeeper_registry::records::TakedownKind;
use serde_json::Value;

use super::world::{RegistryAdmin, Replica};
use crate::support::db::{TestDb, execute, store_test};
use crate::support::program::lockkeeper;

const MODULE: &[(&str, &[u8])] = &[("main.tf", b"output \"x\" { value = 1 }\n")];

/// Publishes versions in a public namespace and in two that are not.
async fn open(db: &TestDb) -> RegistryAdmin {
    let admin = RegistryAdmin::open(db).await;
    for (prefix, visibility) in [
        ("module open", Visibility::Public),
        ("module acme", Visibility::Owner),
        ("go acme.example.com", Visibility::Owner),
    ] {
        admin.namespace(prefix, visibility).await;
    }
    for version in ["1.2.3", "1.10.0", "2.0.0"] {
        let key = format!("module open/vpc/aws {version}");
        admin.publish(&key, MODULE).await;
    }
    admin.publish("module acme/vpc/aws 1.0.0", MODULE).await;
    let files: [(&str, &[u8]); 2] = [
        ("go.mod", b"module acme.example.com/Net\n"),
        ("net.go", b"package net\n"),
    ];
    admin
        .publish("go acme.example.com/Net v1.0.0", &files)
        .await;
    let (used, instead) = ("module open/vpc/aws 1.2.3", "module open/vpc/aws 1.10.0");
    admin
        .deprecate(used, "leaks addresses", Some(instead))
        .await;
    let kind = TakedownKind::Mistake;
    admin
        .take_down("module open/vpc/aws 2.0.0", kind, "not meant to be")
        .await;
    admin
}

async fn json(server: &Replica, path: &str, token: &str) -> Value {
    let answer = server.get(path, token).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    serde_json::from_str(answer.text()).unwrap()
}

/// Returns the names in an answer.
fn names(answer: &Value) -> Vec<&str> {
    let names = answer["names"].as_array().unwrap().iter();
    names.map(|name| name["name"].as_str().unwrap()).collect()
}

async fn a_script_lists_names_versions_and_records(db: &TestDb) {
    let admin = open(db).await;
    let server = admin.server(db, 1, &[]).await;
    let token = admin.token(&["read:*"]).await.1;

    let listed = json(&server, "/api/registry/names", &token).await;
    assert_snapshot!(listed, @r#"{"names":[{"kind":"module","name":"open/vpc/aws","newest":"1.10.0","versions":3}]}"#);

    let path = "/api/registry/module/open/vpc/aws";
    let versions = json(&server, path, &token).await;
    let of_versions = versions["versions"].as_array().unwrap().iter();
    let shown: Vec<String> = of_versions
        .map(|version| format!("{} {}", version["version"], version["state"]))
        .collect();
    assert_snapshot!(shown.join("\n"), @r#"
    "2.0.0" "deleted"
    "1.10.0" "added"
    "1.2.3" "deprecated"
    "#);
    let mut version = json(&server, &format!("{path}/1.2.3"), &token).await;
    assert_eq!(versions["versions"][2], version);
    version["packages"] = Value::Null;
    assert_snapshot!(serde_json::to_string_pretty(&version).unwrap(), @r#"
    {
      "added_at": "2026-03-02T09:00:00Z",
      "files": "h1:4GITx8sBW3jrXrts+KGIJOL/vwrisLLUGvYvTurY+1U=",
      "kind": "module",
      "name": "open/vpc/aws",
      "notice": {
        "at": "2026-03-02T09:00:00Z",
        "reason": "leaks addresses",
        "replacement": "open/vpc/aws@1.10.0"
      },
      "packages": null,
      "state": "deprecated",
      "version": "1.2.3"
    }
    "#);

    let log = json(&server, "/api/registry/log", &token).await;
    let records = log["records"].as_array().unwrap();
    let line = |record: &Value| {
        let (id, action) = (&record["id"], record["action"].as_str().unwrap());
        format!("{id} {action} {} {}", record["name"], record["version"])
    };
    let shown: Vec<String> = records.iter().map(line).collect();
    assert_snapshot!(shown.join("\n"), @r#"
    1 add "open/vpc/aws" "1.2.3"
    2 add "open/vpc/aws" "1.10.0"
    3 add "open/vpc/aws" "2.0.0"
    6 deprecate "open/vpc/aws" "1.2.3"
    7 delete "open/vpc/aws" "2.0.0"
    "#);
    assert!(
        records[0]["record"]
            .as_str()
            .unwrap()
            .starts_with("add module open/vpc/aws 1.2.3\n"),
        "{log}"
    );
    let newer = json(&server, "/api/registry/log?after=6", &token).await;
    assert_eq!(newer["records"].as_array().unwrap().len(), 1, "{newer}");
    let nothing = json(&server, "/api/registry/log?after=1000", &token).await;
    assert_eq!(nothing, serde_json::json!({"records": []}));
    for path in ["names", "log"] {
        for after in ["x", "-1", "99999999999999999999", "9223372036854775807"] {
            let path = format!("/api/registry/{path}?after={after}");
            assert_eq!(server.status(&path, &token).await, 400, "{path}");
        }
    }
}

async fn names_are_found_by_their_beginning_as_on_the_command_line(db: &TestDb) {
    let admin = open(db).await;
    let server = admin.server(db, 1, &[]).await;
    let scopes = [
        "read:*",
        "read:module acme/*",
        "read:go acme.example.com/...",
    ];
    let token = admin.token(&scopes).await.1;
    for prefix in [
        "",
        "o",
        "open/vpc/",
        "acme",
        "acme/",
        "acme.example.com/N",
        "acme.example.com/n",
        "vpc",
        "%25",
        "none/",
    ] {
        let listed = json(
            &server,
            &format!("/api/registry/names?prefix={prefix}"),
            &token,
        )
        .await;
        let prefix = prefix.replace("%25", "%");
        let said = lockkeeper(
            &["registry", "list", prefix.as_str()],
            &db.url,
            &["--json"],
            &[],
        );
        assert_eq!(said.code, 0, "{}", said.err);
        let lines = said.out.lines();
        let lines: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(listed["names"], Value::from(lines), "{prefix}");
    }
    let found = json(&server, "/api/registry/names?prefix=acme", &token).await;
    assert_eq!(names(&found), ["acme.example.com/Net", "acme/vpc/aws"]);

    // A name more than an answer has.
    let rows = (0..=500).map(|number| {
        let name = format!("open/n{number:03}/aws");
        format!("('module', '{name}', '{name}')")
    });
    let rows: Vec<String> = rows.collect();
    let rows = rows.join(", ");
    execute(
        db,
        &format!("INSERT INTO registry_names (kind, name, folded_name) VALUES {rows}"),
    )
    .await;
    let path = "/api/registry/names?prefix=open/n";
    let first = json(&server, path, &token).await;
    assert_eq!((names(&first).len(), &first["next"]), (500, &500.into()));
    let last = json(&server, &format!("{path}&after=500"), &token).await;
    assert_eq!(names(&last), ["open/n500/aws"]);
    assert_eq!(last.get("next"), None);
}

async fn who_may_not_read_a_name_learns_nothing_of_it(db: &TestDb) {
    let admin = open(db).await;
    let closed = admin.server(db, 1, &[]).await;
    let flags = [("registry-anonymous-read", "true")];
    let open = admin.server(db, 2, &flags).await;
    let all = admin.token(&["read:*"]).await.1;
    let acme = admin.token(&["read:module acme/*"]).await.1;
    let go = admin.token(&["read:go acme.example.com/..."]).await.1;
    let publisher = admin.token(&["publish:*"]).await.1;
    let paths = [
        ("open/vpc/aws", "/api/registry/module/open/vpc/aws"),
        ("open/vpc/aws", "/api/registry/module/open/vpc/aws/1.2.3"),
        ("acme/vpc/aws", "/api/registry/module/acme/vpc/aws"),
        ("acme/vpc/aws", "/api/registry/module/acme/vpc/aws/1.0.0"),
        (
            "acme.example.com/Net",
            "/api/registry/go/acme.example.com/!net",
        ),
        (
            "acme.example.com/Net",
            "/api/registry/go/acme.example.com/!net/@v/v1.0.0",
        ),
        ("none", "/api/registry/module/none/vpc/aws"),
        ("none", "/api/registry/module/open/vpc/aws/9.9.9"),
    ];
    for (server, token, readable) in [
        (&closed, &all, &["open/vpc/aws"][..]),
        (&closed, &acme, &["acme/vpc/aws"]),
        (&closed, &go, &["acme.example.com/Net"]),
        (&closed, &publisher, &[]),
        (&open, &String::new(), &["open/vpc/aws"]),
        (&open, &acme, &["acme/vpc/aws", "open/vpc/aws"]),
        (&open, &publisher, &["open/vpc/aws"]),
    ] {
        let listed = json(server, "/api/registry/names", token).await;
        assert_eq!(names(&listed), readable);
        let log = json(server, "/api/registry/log", token).await;
        for record in log["records"].as_array().unwrap() {
            let name = record["name"].as_str().unwrap();
            assert!(readable.contains(&name), "{record}");
        }
        for (name, path) in paths {
            let expected = if readable.contains(&name) { 200 } else { 404 };
            assert_eq!(server.status(path, token).await, expected, "{path}");
        }
    }
    // The answer is the same for a name that is not here.
    let detail = |path: &'static str| async {
        let answer = closed.get(path, &all).await;
        let answer: Value = serde_json::from_str(answer.text()).unwrap();
        answer["detail"].as_str().unwrap().replace("acme", "none")
    };
    let hidden = detail("/api/registry/module/acme/vpc/aws").await;
    assert_eq!(hidden, "There is no module “none/vpc/aws”.");
    assert_eq!(hidden, detail("/api/registry/module/none/vpc/aws").await);
}

async fn no_route_answers_without_a_token(db: &TestDb) {
    let admin = RegistryAdmin::open(db).await;
    let server = admin.server(db, 1, &[]).await;
    let routes = lockkeeper::http::registry_routes();
    assert!(routes.len() > 10, "{} routes", routes.len());
    for route in routes {
        let expected = match route.path {
            // Clients find the protocol before they sign in.
            "/.well-known/terraform.json" => 200,
            // The word of an invitation is the permission, and it is in the body.
            "/registry/peer/v1/join" => 400,
            // The link has the permission.
            "/registry/v1/modules/{namespace}/{name}/{system}/{version}/{file}" => 403,
            _ => 401,
        };
        let digest = "0".repeat(64);
        let path = [
            ("{namespace}", "open"),
            ("{name}", "vpc"),
            ("{system}", "aws"),
            ("{version}", "1.0.0"),
            ("{file}", "x.tar.gz"),
            ("{digest}", &digest),
            ("{change}", "takedown"),
            ("{*path}", "example.com/m/@v/v1.0.0.info"),
        ];
        let path = path
            .iter()
            .fold(route.path.to_owned(), |path, (name, value)| {
                path.replace(name, value)
            });
        for (name, value) in [("", ""), ("authorization", "Bearer lkr_wrong")] {
            let headers = [(name, value)];
            let headers = if name.is_empty() { &[][..] } else { &headers };
            let answer = server.request(route.method.clone(), &path, headers).await;
            let found = answer.status.as_u16();
            assert_eq!(found, expected, "{} {path}", route.method);
        }
        let head = route.method == Method::GET && expected == 401;
        if head {
            let answer = server.request(Method::HEAD, &path, &[]).await;
            assert_eq!(answer.status, 401, "HEAD {path}");
        }
    }
}

store_test!(
    a_script_lists_names_versions_and_records,
    names_are_found_by_their_beginning_as_on_the_command_line,
    who_may_not_read_a_name_learns_nothing_of_it,
    no_route_answers_without_a_token,
);
