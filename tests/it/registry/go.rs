//! Stories of people with the real `go`: versions of a module, tokens, and a log whose past somebody changes.

use lockkeeper::features::registry::Visibility;
use lockkeeper_registry::records::TakedownKind;

use super::site::{Person, Site};
use crate::support::db::execute_on;

const PROJECT: &[(&str, &str)] = &[
    ("go.mod", "module example.org/app\n\ngo 1.21\n"),
    (
        "main.go",
        "package main\n\nimport \"example.com/net\"\n\nfunc main() { println(net.Version) }\n",
    ),
];

async fn publish(site: &Site, version: &str) {
    let source = format!("package net\n\nconst Version = \"{version}\"\n");
    let files: [(&str, &[u8]); 2] = [
        ("go.mod", b"module example.com/net\n\ngo 1.21\n"),
        ("net.go", source.as_bytes()),
    ];
    let key = format!("go example.com/net {version}");
    site.admin.publish(&key, &files).await;
}

fn works(person: &Person, args: &[&str]) -> String {
    let said = person.go(args);
    assert_eq!(said.code, 0, "go {args:?}: {}{}", said.out, said.err);
    said.out
}

fn fails(person: &Person, args: &[&str], expected: &str) {
    let said = person.go(args);
    assert_ne!(said.code, 0, "go {args:?}: {}", said.out);
    let text = format!("{}{}", said.out, said.err);
    assert!(text.contains(expected), "go {args:?}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_go_module_is_used_deprecated_and_taken_down() {
    let site = Site::open(&["--registry-anonymous-read"]).await;
    site.admin
        .namespace("go example.com", Visibility::Public)
        .await;
    for version in ["v1.0.0", "v1.1.0", "v1.2.0-rc.1"] {
        publish(&site, version).await;
    }
    let kim = site.person("kim", PROJECT);
    let versions = works(&kim, &["list", "-m", "-versions", "example.com/net"]);
    assert_eq!(versions, "example.com/net v1.0.0 v1.1.0 v1.2.0-rc.1\n");
    works(&kim, &["get", "example.com/net"]);
    let chosen = works(&kim, &["list", "-m", "example.com/net"]);
    assert_eq!(chosen, "example.com/net v1.1.0\n");
    works(&kim, &["mod", "download"]);
    works(&kim, &["build", "-o", "app", "."]);
    assert_eq!(works(&kim, &["mod", "verify"]), "all modules verified\n");
    let sums = std::fs::read_to_string(kim.dir.join("go.sum")).unwrap();
    assert!(sums.contains("example.com/net v1.1.0 h1:"), "{sums}");
    let database = kim.dir.join("gopath/pkg/sumdb/mods.example.com/latest");
    assert!(database.exists(), "go has not asked the log");

    site.admin
        .deprecate("go example.com/net v1.1.0", "It leaks.", None)
        .await;
    let versions = works(&kim, &["list", "-m", "-versions", "example.com/net"]);
    assert_eq!(versions, "example.com/net v1.0.0 v1.2.0-rc.1\n");
    let lee = site.person("lee", PROJECT);
    works(&lee, &["get", "example.com/net@latest"]);
    let chosen = works(&lee, &["list", "-m", "example.com/net"]);
    assert_eq!(chosen, "example.com/net v1.0.0\n");
    kim.forget_modules();
    works(&kim, &["mod", "download"]);

    site.admin
        .take_down(
            "go example.com/net v1.1.0",
            TakedownKind::Security,
            "A backdoor was found.",
        )
        .await;
    kim.forget_modules();
    // The way to the repository itself is not taken.
    let direct = kim
        .clone()
        .with("GOPROXY", "https://mods.example.com/registry/go,direct");
    for person in [&kim, &direct] {
        fails(person, &["mod", "download"], "A backdoor was found.");
        fails(person, &["mod", "download"], "403 Forbidden");
    }
    let versions = works(&lee, &["list", "-m", "-versions", "example.com/net"]);
    assert_eq!(versions, "example.com/net v1.0.0 v1.2.0-rc.1\n");

    let legal = "A court said so.";
    site.admin
        .take_down("go example.com/net v1.0.0", TakedownKind::Legal, legal)
        .await;
    lee.forget_modules();
    let direct = lee
        .clone()
        .with("GOPROXY", "https://mods.example.com/registry/go,direct");
    for person in [&lee, &direct] {
        fails(person, &["mod", "download"], legal);
        fails(person, &["mod", "download"], "451 Unavailable");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_go_modules_are_read_with_a_token_in_netrc() {
    let site = Site::open(&[]).await;
    site.admin
        .namespace("go example.com", Visibility::Owner)
        .await;
    publish(&site, "v1.0.0").await;
    let kim = site.person("kim", PROJECT);
    let get = ["get", "example.com/net@v1.0.0"];
    fails(&kim, &get, "401 Unauthorized");
    fails(&kim, &get, "Send a token of this registry");
    let netrc = |token: &str| format!("machine mods.example.com login kim password {token}\n");
    let (_, other) = site.admin.token(&["read:go other.com/..."]).await;
    kim.write(".netrc", &netrc(&other));
    fails(&kim, &get, "404 Not Found");
    let (token, text) = site.admin.token(&["read:go example.com/..."]).await;
    kim.write(".netrc", &netrc(&text));
    works(&kim, &get);
    works(&kim, &["build", "-o", "app", "."]);
    assert_eq!(works(&kim, &["mod", "verify"]), "all modules verified\n");
    site.admin.revoke(&token).await;
    kim.forget_modules();
    fails(&kim, &["mod", "download"], "401 Unauthorized");
    assert!(!site.server.log().contains(&text), "a token is in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_is_found_by_an_import_path_on_the_host_of_the_registry() {
    let host = "--registry-host=mods.example.com";
    let site = Site::open(&["--registry-anonymous-read", host]).await;
    for (prefix, visibility) in [
        ("go mods.example.com/net", Visibility::Public),
        ("go mods.example.com/secret", Visibility::Owner),
    ] {
        site.admin.namespace(prefix, visibility).await;
        let name = prefix.replace("go ", "");
        let go_mod = format!("module {name}\n\ngo 1.21\n");
        let files: [(&str, &[u8]); 2] = [
            ("go.mod", go_mod.as_bytes()),
            (
                "client/client.go",
                b"package client\n\nconst Version = \"one\"\n",
            ),
        ];
        site.admin
            .publish(&format!("{prefix} v1.0.0"), &files)
            .await;
    }
    let person = |name: &str, module: &str| {
        let main = format!(
            "package main\n\nimport \"mods.example.com/{module}/client\"\n\nfunc main() {{ println(client.Version) }}\n"
        );
        let go_mod = "module example.org/app\n\ngo 1.21\n";
        let person = site.person(name, &[("go.mod", go_mod), ("main.go", &main)]);
        person.with("GOPROXY", "direct").with("GONOSUMDB", "*")
    };
    // The package is below the module, so `go` asks for both paths.
    let kim = person("kim", "net");
    works(&kim, &["get", "mods.example.com/net/client@latest"]);
    works(&kim, &["build", "-o", "app", "."]);
    let lee = person("lee", "secret");
    let get = ["get", "mods.example.com/secret/client@latest"];
    fails(&lee, &get, "401 Unauthorized");
    let (_, token) = site
        .admin
        .token(&["read:go mods.example.com/secret/..."])
        .await;
    lee.write(
        ".netrc",
        &format!("machine mods.example.com login lee password {token}\n"),
    );
    works(&lee, &get);
    works(&lee, &["build", "-o", "app", "."]);
}

/// R5: `go` remembers the head that it has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_refuses_a_log_whose_past_was_changed() {
    let mut site = Site::open(&["--registry-anonymous-read"]).await;
    site.admin
        .namespace("go example.com", Visibility::Public)
        .await;
    for version in ["v1.0.0", "v1.1.0", "v1.2.0"] {
        publish(&site, version).await;
    }
    let kim = site.person("kim", PROJECT);
    works(&kim, &["get", "example.com/net@v1.0.0"]);
    // Somebody with the database and the key writes the log again, without the first record.
    site.server.terminate();
    site.server.exit().await;
    let forget = [
        "DELETE FROM registry_log",
        "DELETE FROM registry_log_hashes",
        "DELETE FROM registry_packages",
        "DELETE FROM registry_go_mods",
        "DELETE FROM registry_versions",
        "DELETE FROM registry_names",
    ];
    for statement in forget {
        execute_on(&site.server.database(), statement).await;
    }
    for version in ["v1.1.0", "v1.2.0", "v1.3.0", "v1.4.0"] {
        publish(&site, version).await;
    }
    site.restart().await;
    let kim = site.person("kim", &[]);
    fails(&kim, &["get", "example.com/net@v1.3.0"], "SECURITY ERROR");
    // Everyone else sees a log that is right in itself.
    let lee = site.person("lee", PROJECT);
    works(&lee, &["get", "example.com/net@v1.3.0"]);
}

/// R4: `go` compares what it gets with the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_refuses_a_file_that_is_not_the_recorded_one() {
    let site = Site::open(&["--registry-anonymous-read"]).await;
    site.admin
        .namespace("go example.com", Visibility::Public)
        .await;
    publish(&site, "v1.0.0").await;
    // Somebody with the database, but without the key, gives the version another file.
    let change = "UPDATE registry_go_mods SET content = CAST(content || x'0a' AS BLOB)";
    execute_on(&site.server.database(), change).await;
    let kim = site.person("kim", PROJECT);
    fails(&kim, &["get", "example.com/net@v1.0.0"], "SECURITY ERROR");
}
