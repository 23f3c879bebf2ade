use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;

use clap::CommandFactory as _;
use insta::assert_snapshot;
use lockkeeper_registry::names::NamePrefix;
use lockkeeper_registry::signed_note::NoteSigner;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::cli::tests::call;
use crate::clock::{Clock as _, RandomIds, SystemClock};
use crate::features::registry::namespaces::{AddNamespace, ForeignVersions, Visibility};
use crate::features::registry::{BranchReading, BranchUse, FillFault, SeenTags};
use crate::kit::term::ExitStatus;
use crate::model::RepoId;
use crate::seal::key_line;
use crate::store::DatabaseUrl;

/// The machine of a server that has started with `--registry` once, with the owner `net`.
struct Machine(TempDir);

/// Outcome of a command: exit code and output, without hashes, times and identifiers.
type CommandOutcome = (ExitStatus, String);

const SUCCESS: ExitStatus = ExitStatus::Success;

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let line = key_line(
            &"first".parse().unwrap(),
            &std::array::from_fn(|at| 7 + u8::try_from(at).unwrap()),
        );
        let keys = machine.path("keys");
        std::fs::write(&keys, format!("{}\n", line.expose())).unwrap();
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).unwrap();
        block_on(machine.start()).unwrap();
        machine
    }

    async fn start(&self) {
        let store = self.store().await;
        let keys = Arc::new(keyring(&self.path("keys")).unwrap());
        let (name, packages) = ("mods.example.com".parse().unwrap(), self.path(PACKAGES_DIR));
        let registry = Registry::open(store.clone(), Some(keys), name, &packages);
        drop(registry.await.unwrap());
        let created = store
            .owner_create(&"net".parse().unwrap(), &cause(""))
            .await;
        drop(created.unwrap());
        store.close().await;
    }

    async fn store(&self) -> Store {
        let url = DatabaseUrl::Sqlite(self.path("lockkeeper.db"));
        let store = Store::open(&url, Arc::new(SystemClock), Arc::new(RandomIds)).await;
        store.unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a directory with these files.
    fn write(&self, dir: &str, files: &[(&str, &str)]) -> String {
        for (name, text) in files {
            let path = self.path(dir).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        self.path(dir).display().to_string()
    }

    /// Adds a namespace to the database.
    fn namespace(&self, prefix: &str) {
        let prefix: NamePrefix = prefix.parse().unwrap();
        block_on(async {
            let store = self.store().await;
            let (owner, cause) = ("net".parse().unwrap(), cause(""));
            let added = store.registry_namespace_add(
                &prefix,
                &owner,
                Visibility::Public,
                ForeignVersions::Refuse,
                &cause,
            );
            assert!(matches!(added.await.unwrap(), AddNamespace::Added(_)));
            store.close().await;
        })
        .unwrap();
    }

    /// Runs `lockkeeper registry ARGS…` on the database.
    fn registry(&self, args: &[&str]) -> CommandOutcome {
        let data = self.0.path().display().to_string();
        self.cleaned(call(
            &[&["registry"], args, &["--data-dir", &data]].concat(),
        ))
    }

    /// Runs a command that signs with the key of the log.
    fn signing(&self, args: &[&str]) -> CommandOutcome {
        let keys = self.path("keys").display().to_string();
        self.registry(&[args, &["--encryption-key-file", &keys]].concat())
    }

    /// Runs a command with `--json`. Returns the exit code and the lines of standard output.
    fn json(&self, args: &[&str], needs_key: bool) -> (ExitStatus, Vec<Value>) {
        let data = self.0.path().display().to_string();
        let keys = self.path("keys").display().to_string();
        let mut all = [&["registry"], args, &["--json", "--data-dir", &data]].concat();
        if needs_key {
            all.extend(["--encryption-key-file", &keys]);
        }
        let (exit, out, err) = call(&all);
        let lines = out.lines().map(|line| {
            let read: Result<Value, _> = serde_json::from_str(line);
            read.unwrap_or_else(|error| panic!("{args:?}: {error}: {line}\n{err}"))
        });
        (exit, lines.collect())
    }

    /// Stores what others have told: two deployments, a tag of a repository and a use on its default branch.
    fn hear_of_others(&self, repo: &RepoId) {
        block_on(async {
            let store = self.store().await;
            for name in ["two.example.com", "three.example.com"] {
                let signer = NoteSigner::from_seed(name, &[7; 32]).unwrap();
                let url = format!("https://{name}").parse().unwrap();
                let from = "one.example.com".parse().unwrap();
                let proposed = [(url, signer.verifier().clone())];
                let added = store.registry_peers_propose(&from, &proposed).await;
                assert_eq!(added.unwrap(), 1);
            }
            let commit = "a".repeat(40).parse().unwrap();
            let tags = BTreeMap::from([("v1.2.3".parse().unwrap(), commit)]);
            let seen = SeenTags {
                tags: &tags,
                most: 10,
                most_new: 10,
                most_told: 10,
            };
            let due_at = SystemClock.now();
            let seen = store.registry_tags_record(repo, &seen, due_at).await;
            assert_eq!(seen.unwrap().new, 1);
            let uses = BTreeSet::from([BranchUse {
                dir: "net".parse().unwrap(),
                name: "module acme/vpc/aws".parse().unwrap(),
                wanted: "~> 1.2".to_owned(),
                version: None,
            }]);
            let reading = BranchReading {
                head: None,
                basis: "x",
                uses: &uses,
                due_at,
            };
            store.registry_branch_record(repo, &reading).await.unwrap();
            store.close().await;
        })
        .unwrap();
    }

    fn cleaned(&self, (exit, out, err): (ExitStatus, String, String)) -> CommandOutcome {
        let pattern = r"lkr_[\w-]{43}|h1:[A-Za-z0-9+/]{43}=|[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9+/]{42,}={0,2}|\d{4}-\d\d-\d\d(T[\d:]+Z)?|\d+ bytes";
        let secret = regex::Regex::new(pattern).unwrap();
        let user = crate::kit::term::environment::user();
        let said = format!("{out}{err}").replace(&format!("by {user}"), "by kim");
        let said = said.replace(&format!("\"{user}\""), "\"kim\"");
        let said = said.replace(&self.0.path().display().to_string(), "/data");
        (exit, secret.replace_all(&said, "…").into_owned())
    }
}

#[test]
fn a_version_goes_its_way_on_the_command_line() {
    let machine = Machine::new();
    let vpc = machine.write(
        "vpc",
        &[("main.tf", "# VPC\n"), ("terraform.tfstate", "secret")],
    );
    let publish = [
        "publish",
        &vpc,
        "--name",
        "acme/vpc/aws",
        "--version",
        "1.2.3",
    ];
    let (exit, said) = machine.signing(&publish);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"
    error: the name acme/vpc/aws belongs to no owner. Add its namespace with `lockkeeper registry namespaces add`
    Left out terraform.tfstate: it is a state, which can have secrets.
    ");
    let add = ["namespaces", "add", "acme", "--owner", "net"];
    assert_snapshot!(machine.registry(&add).1, @"module acme of net (public), added by kim on …");
    assert_snapshot!(machine.registry(&["list"]).1, @"There are no published versions.");
    assert_snapshot!(machine.registry(&["list", "acme/"]).1, @"There are no published versions whose names begin with acme/.");
    let (exit, said) = machine.signing(&publish);
    assert_eq!(exit, SUCCESS);
    assert_snapshot!(said, @"
    Published acme/vpc/aws@1.2.3 as record 1 of the log.
    Left out terraform.tfstate: it is a state, which can have secrets.
    ");
    assert_snapshot!(machine.signing(&publish).1, @"
    acme/vpc/aws@1.2.3 was published before with the same files.
    Left out terraform.tfstate: it is a state, which can have secrets.
    ");
    machine.write("vpc", &[("main.tf", "# another VPC\n")]);
    let (exit, said) = machine.signing(&publish);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"
    error: acme/vpc/aws@1.2.3 was published with other files: …, and the directory has …. A published version never changes: choose a new number
    Left out terraform.tfstate: it is a state, which can have secrets.
    ");
    let next = [
        "publish",
        &vpc,
        "--name",
        "acme/vpc/aws",
        "--version",
        "1.2.4",
        "--json",
    ];
    assert_snapshot!(machine.signing(&next).1, @r#"
    {"added_at":"…","files":"…","id":2,"kind":"module","name":"acme/vpc/aws","origin":"command","packages":[{"file":"module.tar.gz","sha256":"…","size":92}],"published_by":"kim","state":"added","version":"1.2.4"}
    Left out terraform.tfstate: it is a state, which can have secrets.
    "#);
    assert_snapshot!(machine.registry(&["list", "acme/"]).1, @"acme/vpc/aws: 1.2.4 (2 versions)");

    let deprecate = [
        "deprecate",
        "acme/vpc/aws",
        "1.2.3",
        "--reason",
        "leaks addresses",
        "--instead",
        "1.2.4",
    ];
    assert_snapshot!(machine.signing(&deprecate).1, @"acme/vpc/aws@1.2.3: deprecated, published … by kim, …, SHA-256 …. It was deprecated on …: leaks addresses. Use acme/vpc/aws@1.2.4 instead.");
    let (exit, said) = machine.signing(&deprecate);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"error: acme/vpc/aws@1.2.3 stays deprecated, with the first reason. It was deprecated on …: leaks addresses. Use acme/vpc/aws@1.2.4 instead.");
    let takedown = [
        "takedown",
        "acme/vpc/aws",
        "1.2.3",
        "--kind",
        "security",
        "--reason",
        "has a key.",
    ];
    let (exit, said) = machine.signing(&takedown);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"error: nothing was removed, because the takedown was not confirmed. Type acme/vpc/aws@1.2.3, or give it as --confirm acme/vpc/aws@1.2.3");
    let wrong = [&takedown[..], &["--confirm", "acme/vpc/aws@1.2.4"]].concat();
    assert_eq!(machine.signing(&wrong).0, ExitStatus::Failure);
    let right = [&takedown[..], &["--confirm", "acme/vpc/aws@1.2.3"]].concat();
    assert_snapshot!(machine.signing(&right).1, @"acme/vpc/aws@1.2.3: deleted, published … by kim. It was taken down (security) on …: has a key.");
    let (exit, said) = machine.signing(&publish);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"
    error: acme/vpc/aws@1.2.3 cannot be used again. It was taken down (security) on …: has a key. Choose a new number
    Left out terraform.tfstate: it is a state, which can have secrets.
    ");

    assert_snapshot!(machine.registry(&["show", "acme/vpc/aws"]).1, @"
    acme/vpc/aws@1.2.4: added, published … by kim, …, SHA-256 ….
    acme/vpc/aws@1.2.3: deleted, published … by kim. It was taken down (security) on …: has a key.
    ");
    assert_snapshot!(machine.registry(&["show", "acme/vpc/aws@1.2.3", "--json"]).1, @r#"{"kind":"module","name":"acme/vpc/aws","version":"1.2.3","state":"deleted","packages":[],"origin":"command","published_by":"kim","added_at":"…","notice":{"takedown":"security","reason":"has a key.","at":"…"}}"#);
    assert_snapshot!(machine.registry(&["log", "--after", "1"]).1, @"
    2 … add module acme/vpc/aws 1.2.4
    3 … deprecate module acme/vpc/aws 1.2.3: leaks addresses
    4 … delete module acme/vpc/aws 1.2.3 (security): has a key.
    ");
    assert_snapshot!(machine.signing(&["verify", "--packages"]).1, @"The log is intact: 4 records, with the root …. The state of 2 versions agrees with it. Packages with the right checksums: 1.");
    assert_snapshot!(machine.registry(&["key"]).1, @"mods.example.…");
    let (exit, said) = machine.registry(&["namespaces", "remove", "acme"]);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"error: the namespace stays, because acme/vpc/aws has versions, and published versions are kept for good");
}

#[test]
fn a_registry_that_cannot_be_opened_is_all_that_publish_reports() {
    let machine = Machine::new();
    machine.namespace("module acme");
    let files = [("main.tf", "# VPC\n"), ("terraform.tfstate", "secret")];
    let vpc = machine.write("vpc", &files);
    let name = ["--name", "acme/vpc/aws", "--version", "1.2.3"];
    let publish = [&["publish", vpc.as_str()], &name[..]].concat();
    // Without the key.
    let (exit, said) = machine.registry(&publish);
    assert_ne!(exit, SUCCESS);
    assert!(said.starts_with("error: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    // Files that were left out can be the reason of a refusal.
    std::fs::remove_file(machine.path("vpc/main.tf")).unwrap();
    let (exit, said) = machine.signing(&publish);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"
    Left out terraform.tfstate: it is a state, which can have secrets.
    error: nothing was published: the package has no file
    ");
}

#[test]
fn damage_is_found_by_verify() {
    let machine = Machine::new();
    machine.namespace("module acme");
    let vpc = machine.write("vpc", &[("main.tf", "# VPC\n")]);
    let publish = [
        "publish",
        &vpc,
        "--name",
        "acme/vpc/aws",
        "--version",
        "1.2.3",
    ];
    assert_eq!(machine.signing(&publish).0, SUCCESS);
    let packages = machine.path(PACKAGES_DIR).join("sha256");
    for dir in std::fs::read_dir(packages).unwrap() {
        for file in std::fs::read_dir(dir.unwrap().path()).unwrap() {
            std::fs::write(file.unwrap().path(), "damaged").unwrap();
        }
    }
    assert_eq!(machine.signing(&["verify"]).0, SUCCESS);
    let (exit, said) = machine.signing(&["verify", "--packages"]);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"error: the package module.tar.gz of module acme/vpc/aws 1.2.3 has … instead of 81");
    let (exit, said) = machine.signing(&["verify", "--packages", "--json"]);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @r#"
    {"fault":"the package module.tar.gz of module acme/vpc/aws 1.2.3 has … instead of 81"}
    error: the package module.tar.gz of module acme/vpc/aws 1.2.3 has … instead of 81
    "#);
}

#[test]
fn a_go_module_is_published_under_its_path() {
    let machine = Machine::new();
    machine.namespace("go example.com/net");
    let net = machine.write(
        "net",
        &[
            ("go.mod", "module example.com/net/v2\n"),
            ("net.go", "package net\n"),
            ("vendor/x/x.go", ""),
        ],
    );
    let publish = |version| {
        [
            "publish",
            &net,
            "--name",
            "example.com/net/v2",
            "--version",
            version,
        ]
    };
    let (exit, said) = machine.signing(&publish("v2.0.0"));
    assert_eq!(exit, SUCCESS, "{said}");
    assert_snapshot!(said, @"
    Published example.com/net/v2@v2.0.0 as record 1 of the log.
    Left out vendor/x/x.go: it is vendored.
    ");
    let (exit, said) = machine.signing(&publish("v1.0.0"));
    assert_eq!(exit, ExitStatus::Usage);
    assert_snapshot!(said, @"error: --version: `example.com/net/v2` has versions `v2`, and `v1.0.0` is none of them");
    let other = [
        "publish",
        &net,
        "--name",
        "example.com/net",
        "--version",
        "v1.0.0",
    ];
    let (exit, said) = machine.signing(&other);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"
    Left out vendor/x/x.go: it is vendored.
    error: nothing was published: the go.mod file is that of the module `example.com/net/v2`, and the version is one of `example.com/net`. Write `module example.com/net`, or publish it under the other name
    ");
    let show = machine
        .registry(&["show", "example.com/net/v2", "--json"])
        .1;
    assert_snapshot!(show, @r#"{"kind":"go","name":"example.com/net/v2","version":"v2.0.0","state":"added","files":"…","go_mod":"…","packages":[{"file":"module.zip","sha256":"…","size":344}],"origin":"command","published_by":"kim","added_at":"…"}"#);
}

#[test]
fn names_belong_to_owners() {
    let machine = Machine::new();
    assert_snapshot!(machine.registry(&["namespaces", "list"]).1, @"There are no namespaces yet. Add one with `lockkeeper registry namespaces add`.");
    let add = |prefix, owner| {
        machine.registry(&[
            "namespaces",
            "add",
            prefix,
            "--owner",
            owner,
            "--visibility",
            "owner",
        ])
    };
    assert_eq!(add("acme", "net").0, SUCCESS);
    assert_eq!(add("example.com/net", "net").0, SUCCESS);
    for (prefix, owner) in [("acme", "net"), ("example.com", "net"), ("other", "nobody")] {
        assert_eq!(add(prefix, owner).0, ExitStatus::Failure);
    }
    assert_snapshot!(add("acme", "net").1, @"error: the namespace exists: module acme of net (owner), added by kim on …");
    assert_snapshot!(add("example.com", "net").1, @"error: example.com and example.com/net have names in common, so they have one owner: go example.com/net of net (owner), added by kim on …");
    assert_snapshot!(add("other", "nobody").1, @"error: no owner has the name `nobody`. Add it with `lockkeeper owners add nobody`");
    assert_eq!(add("a/b", "net").0, ExitStatus::Usage);
    assert_snapshot!(machine.registry(&["namespaces", "list"]).1, @"
    go example.com/net of net (owner), added by kim on …
    module acme of net (owner), added by kim on …
    ");
    assert_snapshot!(machine.registry(&["namespaces", "remove", "acme", "--json"]).1, @r#"{"created_at":"…","created_by":"kim","kind":"module","owner":"net","prefix":"acme","visibility":"owner"}"#);
    let (exit, said) = machine.registry(&["namespaces", "remove", "acme"]);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(said, @"error: there is no namespace acme. `lockkeeper registry namespaces list` lists all of them");
}

#[test]
fn a_token_is_shown_once() {
    let machine = Machine::new();
    let create = [
        "tokens",
        "create",
        "--scope",
        "publish:module acme/*",
        "--scope",
        "read:*",
        "--label",
        "ci",
    ];
    let (exit, said) = machine.registry(&create);
    assert_eq!(exit, SUCCESS);
    assert_snapshot!(said, @"
    …
    … ci: publish:module acme/*, read:*; valid until it is revoked, never used, created by kim on …
    Store the token now. Nobody can read it again.
    ");
    let json = machine
        .registry(&[&create[..], &["--expires", "90d", "--json"]].concat())
        .1;
    assert_snapshot!(json, @r#"{"created_at":"…","created_by":"kim","expires_at":"…","id":"…","label":"ci","last_used_at":null,"revoked_at":null,"scopes":["publish:module acme/*","read:*"],"token":"…"}"#);
    assert_snapshot!(machine.registry(&["tokens", "list"]).1, @"
    … ci: publish:module acme/*, read:*; expires at …, never used, created by kim on …
    … ci: publish:module acme/*, read:*; valid until it is revoked, never used, created by kim on …
    ");
    let data = machine.0.path().display().to_string();
    let (_, list, _) = call(&["registry", "tokens", "list", "--data-dir", &data]);
    let id = list.split(' ').next().unwrap();
    assert_snapshot!(machine.registry(&["tokens", "revoke", id]).1, @"… ci: publish:module acme/*, read:*; revoked on …, never used, created by kim on …");
    let none = "00000000-0000-4000-8000-000000000000";
    assert_eq!(
        machine.registry(&["tokens", "revoke", none]).0,
        ExitStatus::Failure
    );
    for scope in ["write:*", "read", "read:acme", "read:module a b"] {
        let (exit, said) = machine.registry(&["tokens", "create", "--scope", scope]);
        assert_eq!(exit, ExitStatus::Usage, "{said}");
    }
}

#[test]
fn a_proposed_deployment_is_approved_limited_and_suspended() {
    let machine = Machine::new();
    let name = "two.example.com";
    block_on(async {
        let store = machine.store().await;
        let signer = NoteSigner::from_seed(name, &[7; 32]).unwrap();
        let url = "https://two.example.com".parse().unwrap();
        let proposed = [(url, signer.verifier().clone())];
        let from = "one.example.com".parse().unwrap();
        let added = store.registry_peers_propose(&from, &proposed).await;
        assert_eq!(added.unwrap(), 1);
        store.close().await;
    })
    .unwrap();
    let peers = |args: &[&str]| machine.registry(&[&["peers"], args].concat());
    let approve = ["approve", name, "--accept", "module two/*"];
    assert_eq!(peers(&approve).0, SUCCESS);
    let (exit, said) = peers(&approve);
    assert_eq!(exit, ExitStatus::Failure);
    assert!(said.contains("there is no such proposal"), "{said}");

    let (exit, said) = peers(&["change", name, "--max-versions", "10", "--json"]);
    assert_eq!(exit, SUCCESS, "{said}");
    for part in [
        "\"max_versions\":10,",
        "\"accepts\":[\"module two/*\"]",
        "\"state\":\"approved\"",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(peers(&["change", name, "--max-bytes", "1GiB"]).0, SUCCESS);
    assert_eq!(
        peers(&["change", name, "--max-bytes", "10"]).0,
        ExitStatus::Usage
    );
    assert_eq!(peers(&["change", name]).0, ExitStatus::Usage);
    let (exit, said) = peers(&["resume", name]);
    assert_eq!(exit, ExitStatus::Failure);
    assert_eq!(
        said,
        "error: two.example.com is approved, so this has no effect. Nothing was changed\n"
    );
    assert_eq!(peers(&["suspend", name]).0, SUCCESS);
    let (exit, said) = peers(&["show", name]);
    assert_eq!(exit, SUCCESS);
    for part in ["suspended", "0 of at most 10 versions", "at most 1 GiB"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn wrong_words_are_usage_errors_with_a_way_out() {
    let machine = Machine::new();
    for (args, part) in [
        (&["show", "acme/vpc"][..], "three parts"),
        (&["show", "acme/vpc/aws@v1"], "SemVer"),
        (
            &["deprecate", "acme/vpc/aws", "v1.0.0", "--reason", "x"],
            "write `1.0.0`",
        ),
        (
            &["deprecate", "acme/vpc/aws", "1.0.0", "--reason", " "],
            "give a short reason",
        ),
        (
            &[
                "takedown",
                "acme/vpc/aws",
                "1.0.0",
                "--reason",
                "x",
                "--kind",
                "bug",
            ],
            "kind",
        ),
        (&["log", "--after", "0"], "a number from 1"),
        (&["setup", "--url", "http://mods.example.com"], "https://"),
        (
            &["tokens", "create", "--scope", "read:module acme"],
            "write `module acme/*`",
        ),
        (
            &[
                "peers",
                "approve",
                "two.example.com",
                "--accept",
                "module acme",
            ],
            "write `module acme/*`",
        ),
        (
            &["peers", "invite", "--url", "https://mods.example.com"],
            "--url is the address of this deployment itself. Give the address of the other one",
        ),
    ] {
        let (exit, said) = machine.registry(args);
        assert_eq!(exit, ExitStatus::Usage, "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
    let deprecate = ["deprecate", "acme/vpc/aws", "1.0.0", "--reason", "x"];
    for instead in ["1.0.0", "example.com/net@v1.0.0"] {
        let args = [&deprecate[..], &["--instead", instead]].concat();
        assert_eq!(machine.signing(&args).0, ExitStatus::Usage);
    }
    for args in [&deprecate[..], &["show", "acme/vpc/aws"]] {
        let said = match args[0] {
            "show" => machine.registry(args),
            _ => machine.signing(args),
        };
        assert_eq!(said.0, ExitStatus::Failure, "{}", said.1);
        assert!(said.1.contains("there is no acme/vpc/aws"), "{}", said.1);
    }
    let empty = tempfile::tempdir().unwrap();
    let url = DatabaseUrl::Sqlite(empty.path().join("lockkeeper.db"));
    block_on(async {
        let store = Store::open(&url, Arc::new(SystemClock), Arc::new(RandomIds)).await;
        store.unwrap().close().await;
    })
    .unwrap();
    let data = empty.path().display().to_string();
    let (exit, _, err) = call(&["registry", "key", "--data-dir", &data]);
    assert_eq!(exit, ExitStatus::Failure);
    assert_snapshot!(err, @"error: this database has no registry yet. A server creates it when it starts with --registry");
}

#[test]
fn a_missing_version_is_explained() {
    let machine = Machine::new();
    machine.namespace("go example.com/net");
    block_on(async {
        let store = machine.store().await;
        let key = "go github.com/acme/net v1.0.0".parse().unwrap();
        let failed = store.registry_fill_failed(&key, FillFault::NotFound, "no tag v1.0.0");
        assert_eq!(failed.await.unwrap().attempts, 1);
        store.close().await;
    })
    .unwrap();
    let explain =
        |name: &str, more: &[&str]| machine.registry(&[&["explain", name], more].concat());
    let hosts = ["--registry-vcs-allowlist", "github.com/acme,go.example.org"];
    let rules = [
        "--registry-on-miss",
        "go github.com/acme/no/...=refuse,go go.example.org/...=wait",
    ];
    let more = [&hosts[..], &rules].concat();
    assert_snapshot!(explain("github.com/acme/net", &[]).1, @"
    A missing version of github.com/acme/net is answered with 404 at once, because there is nobody to ask.
    No other deployment is asked.
    Nothing is fetched from a repository: --registry-vcs-allowlist names no host.
    ");
    assert_snapshot!(explain("github.com/acme/net@v1.0.0", &more).1, @"
    github.com/acme/net@v1.0.0 is not in the registry.
    A missing version of github.com/acme/net is answered with 404 at once, and fetched in the background, by default.
    It would come from the repository https://github.com/acme/net.
    The last attempt failed on …, and the next one begins after …: no tag v1.0.0.
    Packages from elsewhere have at most 10 GiB together (--registry-cache-quota), and at most 500000 versions (--registry-cache-versions).
    ");
    assert_snapshot!(explain("go.example.org/net", &more).1, @"
    A missing version of go.example.org/net is fetched while the client waits for up to 8 seconds, because of the rule `go go.example.org/...=wait` (--registry-on-miss).
    It would come from the repository that https://go.example.org/net?go-get=1 names.
    Packages from elsewhere have at most 10 GiB together (--registry-cache-quota), and at most 500000 versions (--registry-cache-versions).
    ");
    assert_snapshot!(explain("github.com/acme/no/x", &more).1, @"A missing version of github.com/acme/no/x is refused with 403, because of the rule `go github.com/acme/no/...=refuse` (--registry-on-miss).");
    assert_snapshot!(explain("example.com/Net/http", &more).1, @"A missing version of example.com/Net/http is answered with 404, and never fetched, because only the owner of the namespace example.com/net publishes there.");
    assert_snapshot!(explain("acme/vpc/aws", &more).1, @"
    A missing version of acme/vpc/aws is answered with 404 at once, because there is nobody to ask.
    No other deployment is asked.
    Nothing is fetched from a repository: nothing leads from the name of a Terraform module to its repository.
    ");
    let other = explain("github.com/other/net", &[&more[..], &["--json"]].concat());
    assert_snapshot!(other.1, @r#"{"kind":"go","name":"github.com/other/net","version":null,"state":null,"on_miss":"background","because":"default","rule":null,"namespace":null,"peers":[],"source":null,"no_source":"github.com/other/net is not on --registry-vcs-allowlist","failure":null}"#);
    let (exit, said) = explain("acme/vpc/aws", &["--registry-on-miss", "go *"]);
    assert_eq!(exit, ExitStatus::Usage);
    assert!(said.contains("has no `=`"), "{said}");
}

/// Returns the commands that have none below them, such as `namespaces add`, with the flags of each.
fn leaves(command: &clap::Command, above: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for below in command.get_subcommands() {
        let path = format!("{above} {}", below.get_name());
        let path = path.trim_start();
        if below.has_subcommands() {
            found.extend(leaves(below, path));
        } else {
            let flags = below.get_arguments().filter_map(clap::Arg::get_long);
            found.insert(path.to_owned(), flags.map(ToOwned::to_owned).collect());
        }
    }
    found
}

/// Programs read the output line by line. A new command needs a row here, and `--json`.
#[test]
fn with_json_each_line_of_each_command_is_an_object() {
    let machine = Machine::new();
    machine.hear_of_others(&"github.com/acme/terraform-aws-vpc".parse().unwrap());
    let vpc = machine.write("vpc", &[("main.tf", "# VPC\n")]);
    let word = format!("{}/word", machine.write("words", &[("word", "none")]));
    let (mut token, mut invitation) = (String::new(), String::new());
    let commands = leaves(&RegistryArgs::command(), "");
    let mut left: BTreeSet<&String> = commands.keys().collect();
    let failure = ExitStatus::Failure;
    for (line, exit, count) in [
        ("namespaces add acme --owner net", SUCCESS, 1),
        ("namespaces add acme --owner net", failure, 0),
        ("namespaces list", SUCCESS, 1),
        ("namespaces change acme --visibility owner", SUCCESS, 1),
        ("namespaces add spare --owner net", SUCCESS, 1),
        ("namespaces remove spare", SUCCESS, 1),
        ("list", SUCCESS, 0),
        (
            "publish DIR --name acme/vpc/aws --version 1.2.3",
            SUCCESS,
            1,
        ),
        (
            "publish DIR --name acme/vpc/aws --version 1.2.4",
            SUCCESS,
            1,
        ),
        ("list", SUCCESS, 1),
        ("show acme/vpc/aws", SUCCESS, 2),
        ("show acme/vpc/aws@9.9.9", failure, 0),
        (
            "deprecate acme/vpc/aws 1.2.3 --reason old --instead 1.2.4",
            SUCCESS,
            1,
        ),
        (
            "takedown acme/vpc/aws 1.2.3 --kind mistake --reason wrong --confirm acme/vpc/aws@1.2.3",
            SUCCESS,
            1,
        ),
        ("explain acme/vpc/aws@9.9.9", SUCCESS, 1),
        ("uses acme/vpc/aws", SUCCESS, 1),
        ("tags", SUCCESS, 1),
        ("tags github.com/acme/terraform-aws-vpc", SUCCESS, 1),
        ("tags github.com/acme/none", failure, 0),
        ("log", SUCCESS, 4),
        ("verify --packages", SUCCESS, 1),
        ("tokens create --scope read:*", SUCCESS, 1),
        ("tokens list", SUCCESS, 1),
        ("tokens revoke TOKEN", SUCCESS, 1),
        ("peers invite --url https://four.example.com", SUCCESS, 1),
        ("peers invitations", SUCCESS, 1),
        ("peers withdraw INVITATION", SUCCESS, 1),
        ("peers withdraw INVITATION", failure, 0),
        // The file has no word, so nothing is sent.
        (
            "peers join https://four.example.com --word-file WORD",
            failure,
            0,
        ),
        ("peers list", SUCCESS, 2),
        (
            "peers approve two.example.com --accept module:two/*",
            ExitStatus::Usage,
            0,
        ),
        ("peers approve two.example.com --accept *", SUCCESS, 1),
        (
            "peers change two.example.com --visibility public",
            SUCCESS,
            1,
        ),
        ("peers suspend two.example.com", SUCCESS, 1),
        ("peers resume two.example.com", SUCCESS, 1),
        ("peers show two.example.com", SUCCESS, 1),
        ("peers remove three.example.com", SUCCESS, 1),
        ("peers remove three.example.com", failure, 0),
        ("key", SUCCESS, 1),
        ("setup --url https://lockkeeper.example.com", SUCCESS, 1),
    ] {
        let is_first =
            |path: &&String| line == path.as_str() || line.starts_with(&format!("{path} "));
        let path = commands.keys().find(is_first).unwrap();
        let flags = &commands[path];
        assert!(flags.contains("json"), "{path}");
        let words = line.split(' ').map(|text| match text {
            "DIR" => vpc.as_str(),
            "WORD" => word.as_str(),
            "TOKEN" => token.as_str(),
            "INVITATION" => invitation.as_str(),
            text => text,
        });
        let words: Vec<&str> = words.collect();
        let (found, lines) = machine.json(&words, flags.contains("encryption-key-file"));
        assert_eq!((found, lines.len()), (exit, count), "{line}: {lines:?}");
        assert!(lines.iter().all(Value::is_object), "{line}: {lines:?}");
        if path == "tokens create" {
            lines[0]["id"].as_str().unwrap().clone_into(&mut token);
        }
        if path == "peers invite" {
            lines[0]["id"].as_str().unwrap().clone_into(&mut invitation);
        }
        left.remove(path);
    }
    assert!(left.is_empty(), "no arguments for {left:?}");
}
