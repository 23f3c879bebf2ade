//! Pages of the registry: what people see, and what they do not.

use std::os::unix::fs::PermissionsExt;

use axum::http::Method;
use insta::assert_snapshot;
use lockkeeper::features::registry::Visibility;
use lockkeeper_registry::records::TakedownKind;
use lockkeeper_registry::signed_note::open_note;
use lockkeeper_registry::tlog::{LogHash, TreeHead, check_record, record_hash};

use super::world::{Answer, RegistryAdmin, Replica};
use crate::support::db::{TestDb, store_test};

const README: &str = "# VPC\n\nA network with [docs](https://example.com/docs).\n\n<script>alert(1)</script>\n\n[x](javascript:alert(1))\n";
const VARIABLES: &str = "variable \"cidr\" {\n  type        = string\n  description = \"Addresses, such as <b>10.0.0.0/16</b>\"\n}\n\n\
    variable \"zones\" {\n  default = [\"a\"]\n}\n\noutput \"id\" {\n  value     = 1\n  sensitive = true\n}\n";

/// Flags of a server on which people sign in.
pub const SIGNED_IN: [(&str, &str); 3] = [
    ("web-basic-auth", "true"),
    ("web-username", "ops"),
    ("web-password", "a long password of the tests"),
];

async fn with_modules(db: &TestDb) -> RegistryAdmin {
    let admin = RegistryAdmin::open(db).await;
    admin.namespace("module acme", Visibility::Owner).await;
    admin.namespace("module open", Visibility::Public).await;
    admin
        .namespace("go example.com/net", Visibility::Public)
        .await;
    let files: [(&str, &[u8]); 4] = [
        ("README.md", README.as_bytes()),
        ("main.tf", VARIABLES.as_bytes()),
        ("examples/small/main.tf", b"# small"),
        ("modules/subnet/main.tf", b"# subnet"),
    ];
    for version in ["1.2.3", "1.10.0", "2.0.0-rc.1"] {
        admin
            .publish(&format!("module acme/vpc/aws {version}"), &files)
            .await;
    }
    let files: [(&str, &[u8]); 1] = [("main.tf", b"output \"x\" {}")];
    admin.publish("module open/dns/aws 1.0.0", &files).await;
    let files: [(&str, &[u8]); 2] = [
        ("go.mod", b"module example.com/net\n\ngo 1.24\n"),
        ("net.go", b"package net\n"),
    ];
    admin.publish("go example.com/net v1.0.0", &files).await;
    admin
}

pub async fn page(server: &Replica, path: &str, who: Option<&str>) -> Answer {
    use base64::Engine as _;
    let basic = who.map(|who| {
        let text = base64::engine::general_purpose::STANDARD.encode(who);
        format!("Basic {text}")
    });
    let headers: Vec<(&str, &str)> = basic
        .iter()
        .map(|basic| ("authorization", basic.as_str()))
        .collect();
    server.request(Method::GET, path, &headers).await
}

async fn seen(server: &Replica, path: &str) -> String {
    let answer = page(server, path, Some("ops:a long password of the tests")).await;
    assert_eq!(answer.status.as_u16(), 200, "{path}: {}", answer.text());
    answer.text().to_owned()
}

/// Returns the main part of a page as text: elements and repeated spaces are left out.
pub fn text(page: &str) -> String {
    let main = page
        .split("<main")
        .nth(1)
        .unwrap()
        .split("</main>")
        .next()
        .unwrap();
    let main = main.split_once('>').unwrap().1;
    let text = regex::Regex::new("<[^>]*>").unwrap().replace_all(main, " ");
    let text = text
        .replace("&quot;", "\"")
        .replace("&#x2f;", "/")
        .replace("&#x27;", "'");
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

async fn a_module_has_a_page_with_what_its_package_tells(db: &TestDb) {
    let admin = with_modules(db).await;
    let used = "module acme/vpc/aws 1.2.3";
    admin
        .deprecate(
            used,
            "leaks <b>addresses</b>",
            Some("module acme/vpc/aws 1.10.0"),
        )
        .await;
    let server = admin.server(db, 1, &SIGNED_IN).await;
    assert_snapshot!(text(&seen(&server, "/registry").await), @"
    Modules
    Versions that this registry serves to terraform , tofu and go . A version never changes. Log of all changes · Other deployments
    Search modules
    Search
    All modules 3
    Module
    Kind
    Version
    Published
    Owner
    example.com/ net
    Go
    v1.0.0 served
    just now
    net
    acme/ vpc/ aws
    Terraform
    1.10.0 served 3 versions
    just now
    net private
    open/ dns/ aws
    Terraform
    1.0.0 served
    just now
    net
    ");
    let html = seen(&server, "/registry/modules/acme/vpc/aws").await;
    assert_snapshot!(text(&html), @r#"
    ← Modules
    acme/ vpc/ aws 1.10.0 served
    Terraform module, owned by net , private.
    Usage
    module "vpc" {
    source = "mods.example.com/acme/vpc/aws"
    version = "1.10.0"
    }
    Version
    Published just now by the command line (ops)
    Package 381 bytes
    SHA-256 of the package ed2a227c3fd66c1692d51e787d9607ff301577a1d238ef295360931a20ab4e13
    Checksum of the files h1:dS8rBuyOuK7s0tL4X/ezHE6ZSSCZMFL1AeXwDvyWpC4=
    Versions 3
    Version
    State
    Published
    2.0.0-rc.1
    served
    just now ops
    1.10.0
    served
    just now ops
    1.2.3 It was deprecated on 2026-03-02: leaks &lt;b&gt;addresses&lt;/b&gt;. Use acme/vpc/aws@1.10.0 instead.
    deprecated
    just now ops
    Used by 0
    No latest plan of a project uses this module.
    Used by default branches 0
    No default branch of a mirrored repository uses this module.
    Inputs 2
    Name
    Type
    Default
    cidr Addresses, such as &lt;b&gt;10.0.0.0/16&lt;/b&gt;
    string
    required
    zones
    any
    ["a"]
    Outputs 1
    id sensitive no description
    Submodules and examples
    mods.example.com/acme/vpc/aws//examples/small
    mods.example.com/acme/vpc/aws//modules/subnet
    README
    VPC
    A network with docs .
    x
    "#);
    assert!(
        !html.contains("<script") && !html.contains("javascript:"),
        "{html}"
    );
    assert!(html.contains("href=\"https://example.com/docs\""), "{html}");
    assert!(html.contains(concat!("Lockkeeper ", env!("CARGO_PKG_VERSION"))));
    let old = text(&seen(&server, "/registry/modules/acme/vpc/aws@1.2.3").await);
    assert!(old.contains("It was deprecated on"), "{old}");
    assert!(old.contains("Use acme/vpc/aws@1.10.0 instead."), "{old}");
    let go = text(&seen(&server, "/registry/modules/example.com/net").await);
    assert!(go.contains("go get example.com/net@v1.0.0"), "{go}");
    assert!(go.contains("module example.com/net"), "{go}");
}

async fn a_version_that_was_taken_down_shows_only_why(db: &TestDb) {
    let admin = with_modules(db).await;
    let server = admin.server(db, 1, &SIGNED_IN).await;
    let path = "/registry/modules/acme/vpc/aws@1.10.0";
    assert!(seen(&server, path).await.contains("A network with"));
    let (key, why) = ("module acme/vpc/aws 1.10.0", "It has a key.");
    admin.take_down(key, TakedownKind::Security, why).await;
    let html = seen(&server, path).await;
    assert!(
        html.contains("taken down (security)") && html.contains(why),
        "{html}"
    );
    assert!(
        !html.contains("A network with") && !html.contains("Usage"),
        "{html}"
    );
    // The name is shown by the version in front of it.
    let name = seen(&server, "/registry/modules/acme/vpc/aws").await;
    assert!(name.contains("version = \"1.2.3\""), "{name}");
}

async fn a_record_has_a_proof_that_leads_to_the_signed_head(db: &TestDb) {
    let admin = with_modules(db).await;
    let server = admin.server(db, 1, &SIGNED_IN).await;
    let list = text(&seen(&server, "/registry/log").await);
    assert!(list.contains("Records 5"), "{list}");
    for id in 1..=5_u64 {
        let html = seen(&server, &format!("/registry/log/{id}")).await;
        let html = html.replace("&#x2f;", "/").replace("&quot;", "\"");
        let codes: Vec<&str> = html
            .split("<code>")
            .skip(1)
            .map(|code| code.split("</code>").next().unwrap())
            .collect();
        // The name of the module, the text, the hash, the proof and the head.
        let (record, rest) = (codes[1], &codes[2..]);
        let head = rest
            .iter()
            .position(|code| code.starts_with("go.sum"))
            .unwrap();
        let verifier = admin.registry.verifier().clone();
        let note = open_note(rest[head].as_bytes(), &[verifier]).unwrap();
        let head_of_log: TreeHead = note.text.parse().unwrap();
        let hashes: Vec<LogHash> = rest[..head]
            .iter()
            .map(|hash| hash.parse().unwrap())
            .collect();
        assert_eq!(record_hash(record.as_bytes()), hashes[0]);
        check_record(
            &hashes[1..],
            head_of_log.size,
            &head_of_log.root,
            id - 1,
            &hashes[0],
        )
        .unwrap();
    }
    for missing in ["0", "6", "x", "-1"] {
        let answer = page(
            &server,
            &format!("/registry/log/{missing}"),
            Some("ops:a long password of the tests"),
        )
        .await;
        assert_eq!(answer.status.as_u16(), 404, "{missing}");
    }
}

async fn people_see_only_names_that_they_may_read(db: &TestDb) {
    let admin = with_modules(db).await;
    let private = ["/registry/modules/acme/vpc/aws", "/registry/log/1"];
    let public = ["/registry/modules/open/dns/aws", "/registry/log/4"];
    // Nobody signs in, and nothing is served without a token.
    let closed = admin.server(db, 1, &[]).await;
    for path in [private, public].concat() {
        assert_eq!(
            page(&closed, path, None).await.status.as_u16(),
            404,
            "{path}"
        );
    }
    let list = page(&closed, "/registry", None).await;
    assert!(
        list.text().contains("Modules are not shown here."),
        "{}",
        list.text()
    );
    assert!(!list.text().contains("/registry/modules/"));
    let log = page(&closed, "/registry/log", None).await;
    let log = text(log.text());
    assert!(
        log.contains("The log is not shown here.") && !log.contains("Records"),
        "{log}"
    );
    // Public names are.
    let open = admin
        .server(db, 2, &[("registry-anonymous-read", "true")])
        .await;
    for path in private {
        assert_eq!(page(&open, path, None).await.status.as_u16(), 404, "{path}");
    }
    for path in public {
        assert_eq!(page(&open, path, None).await.status.as_u16(), 200, "{path}");
    }
    let list = text(page(&open, "/registry", None).await.text());
    assert!(
        list.contains("open/ dns/ aws") && !list.contains("acme"),
        "{list}"
    );
    // Owners and publishers are for accounts.
    assert!(!list.contains("net\nopen"), "{list}");
    let module = page(&open, "/registry/modules/open/dns/aws", None).await;
    let module = text(module.text());
    assert!(
        !module.contains("owned by") && !module.contains("(ops)"),
        "{module}"
    );
    let log = text(page(&open, "/registry/log", None).await.text());
    assert!(
        log.contains("not shown to you") && !log.contains("acme"),
        "{log}"
    );
    // An unknown name and one that is not shown get the same answer.
    let unknown = page(&open, "/registry/modules/none/vpc/aws", None).await;
    let hidden = page(&open, "/registry/modules/acme/vpc/aws", None).await;
    let said = |answer: &Answer| {
        answer
            .text()
            .split("\"reference\"")
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(said(&unknown).replace("none/", "acme/"), said(&hidden));
    // Without a password there is no page on a server where people sign in.
    let file = db.dir.path().join("accounts");
    std::fs::write(
        &file,
        "user=kim owners=net allow=none password=kims-password-of-kim\n\
         user=lee owners=other allow=none password=lees-password-of-lee\n",
    )
    .unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let file = file.display().to_string();
    let flags = [&SIGNED_IN[..], &[("web-accounts-file", file.as_str())]].concat();
    let signed = admin.server(db, 3, &flags).await;
    assert_eq!(page(&signed, "/registry", None).await.status.as_u16(), 401);
    // Accounts that are limited to owners see their names, and public ones.
    for (who, expected) in [
        ("kim:kims-password-of-kim", 200),
        ("lee:lees-password-of-lee", 404),
    ] {
        for path in private {
            let status = page(&signed, path, Some(who)).await.status;
            assert_eq!(status.as_u16(), expected, "{who} {path}");
        }
        for path in public {
            let status = page(&signed, path, Some(who)).await.status;
            assert_eq!(status.as_u16(), 200, "{who} {path}");
        }
        for path in ["/registry", "/registry/log"] {
            let list = page(&signed, path, Some(who)).await;
            let list = text(list.text());
            assert_eq!(list.contains("acme/ vpc"), expected == 200, "{who} {list}");
            assert!(list.contains("open/ dns"), "{who} {list}");
        }
    }
}

async fn a_search_finds_parts_of_names_in_any_case(db: &TestDb) {
    let admin = with_modules(db).await;
    let server = admin.server(db, 1, &SIGNED_IN).await;
    for (search, expected) in [
        ("", 3),
        ("VPC", 1),
        ("aws", 2),
        ("example.com", 1),
        ("%25", 0),
        ("_", 0),
        ("nothing", 0),
    ] {
        let found = text(&seen(&server, &format!("/registry?q={search}")).await);
        let title = if search.is_empty() {
            "All modules"
        } else {
            "Found"
        };
        assert!(
            found.contains(&format!("{title} {expected}")),
            "{search}: {found}"
        );
    }
}

store_test!(
    a_module_has_a_page_with_what_its_package_tells,
    a_version_that_was_taken_down_shows_only_why,
    a_record_has_a_proof_that_leads_to_the_signed_head,
    people_see_only_names_that_they_may_read,
    a_search_finds_parts_of_names_in_any_case,
);
