//! Stories of people who publish with the program itself: on the machine of a server, from working trees of git, and over
//! TLS.

use std::path::PathBuf;

use lockkeeper::features::registry::{Published, VersionOrigin, Visibility};
use lockkeeper::store::DatabaseUrl;
use lockkeeper_registry::dirhash::hash_files;
use lockkeeper_registry::versions::VersionKey;
use serde_json::Value;

use super::site::Site;
use super::world::{RegistryAdmin, by_ops};
use crate::support::db::{TestDb, store_test};
use crate::support::program::{ProgramOutput, WorkingTree, run};

const CODE: &str = "output \"x\" {\n  value = 1\n}\n";
const ENVIRONMENT: &[(&str, &str)] = &[("HOME", "/nonexistent")];

/// The machine of a server, whose registry is in this database.
struct Machine {
    admin: RegistryAdmin,
    url: DatabaseUrl,
    data: PathBuf,
    keys: PathBuf,
}

impl Machine {
    async fn open(db: &TestDb) -> Self {
        let data = db.dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let admin = RegistryAdmin::open(db).await;
        std::os::unix::fs::symlink(db.dir.path().join("packages"), data.join("registry")).unwrap();
        for prefix in ["module acme", "go example.com/net"] {
            admin.namespace(prefix, Visibility::Public).await;
        }
        Self {
            admin,
            url: db.url.clone(),
            data,
            keys: db.dir.path().join("keys"),
        }
    }

    /// Runs `lockkeeper registry ARGS…` in a working tree, as an administrator does.
    fn registry(&self, tree: &WorkingTree, args: &[&str]) -> ProgramOutput {
        let url = match &self.url {
            DatabaseUrl::Sqlite(_) => self.url.to_string(),
            DatabaseUrl::Postgres(_) => self.url.to_string().replace("://", "://postgres@"),
        };
        let variables = [
            ("LOCKKEEPER_DATABASE_URL", url),
            ("LOCKKEEPER_DATA_DIR", self.data.display().to_string()),
            (
                "LOCKKEEPER_ENCRYPTION_KEY_FILE",
                self.keys.display().to_string(),
            ),
        ];
        let variables = variables
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let variables: Vec<(&str, &str)> = variables.chain(ENVIRONMENT.iter().copied()).collect();
        let program = env!("CARGO_BIN_EXE_lockkeeper");
        run(
            program,
            &tree.path(),
            &[&["registry"], args].concat(),
            &variables,
        )
    }

    /// Publishes a directory, which has to succeed, and returns the description of the version.
    fn publish(&self, tree: &WorkingTree, dir: &str, name: &str, version: &str) -> Value {
        let args = [
            "publish",
            dir,
            "--name",
            name,
            "--version",
            version,
            "--json",
        ];
        let said = self.registry(tree, &args);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        said.json()
    }
}

fn head(tree: &WorkingTree) -> String {
    let said = run("git", &tree.path(), &["rev-parse", "HEAD"], ENVIRONMENT);
    said.out.trim().to_owned()
}

async fn a_working_tree_is_published_without_what_git_ignores(db: &TestDb) {
    let machine = Machine::open(db).await;
    let tree = WorkingTree::new(&[
        ("vpc/main.tf", CODE),
        ("vpc/.gitignore", "*.log\n"),
        ("other/main.tf", CODE),
    ]);
    tree.write(&[("vpc/debug.log", "secret"), ("vpc/.terraform/x", "secret")]);
    tree.write(&[("vpc/.gitignore", "*.log\n.terraform/\n")]);
    tree.commit();
    let clean = machine.publish(&tree, "vpc", "acme/vpc/aws", "1.0.0");
    assert_eq!(clean["commit"], Value::from(head(&tree)));
    let said = machine.registry(
        &tree,
        &[
            "publish",
            "vpc",
            "--name",
            "acme/vpc/aws",
            "--version",
            "1.0.0",
        ],
    );
    assert_eq!(
        said.out,
        "acme/vpc/aws@1.0.0 was published before with the same files.\n"
    );
    assert_eq!(
        said.err,
        "Left out .terraform: it is a working directory of Terraform.\n\
         Left out debug.log: git ignores it, or it belongs to another repository.\n"
    );
    // A change elsewhere in the working tree: the commit is not the whole truth.
    tree.write(&[("other/main.tf", "# changed\n")]);
    let changed = machine.publish(&tree, "vpc", "acme/vpc/aws", "1.0.1");
    assert_eq!(
        (&changed["commit"], &changed["files"]),
        (&Value::Null, &clean["files"])
    );
    // A new file that git tracks counts before it is committed.
    tree.write(&[("vpc/outputs.tf", CODE)]);
    tree.git(&["add", "vpc/outputs.tf"]);
    let new = machine.publish(&tree, "vpc", "acme/vpc/aws", "1.0.2");
    assert_ne!(new["files"], clean["files"]);
    tree.commit();
    // Everything is tracked, but not all of it is on the disk.
    tree.git(&[
        "sparse-checkout",
        "set",
        "--no-cone",
        "/*",
        "!/vpc/outputs.tf",
    ]);
    let sparse = machine.publish(&tree, "vpc", "acme/vpc/aws", "1.0.3");
    assert_eq!(
        (&sparse["commit"], &sparse["files"]),
        (&Value::Null, &clean["files"])
    );
    let said = machine.registry(&tree, &["verify", "--packages"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("4 records"), "{}", said.out);
    let version = "module acme/vpc/aws 1.0.0".parse().unwrap();
    let version = machine
        .admin
        .registry
        .version(&version)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(version.origin.unwrap().as_str(), "command");
}

async fn files_that_git_does_not_track_are_refused(db: &TestDb) {
    let machine = Machine::open(db).await;
    let shared = "module \"x\" {\n  source = \"../shared\"\n}\n";
    let tree = WorkingTree::new(&[
        ("vpc/main.tf", shared),
        ("shared/main.tf", CODE),
        ("net/go.mod", "module example.com/net\n"),
        ("net/net.go", "package net\n"),
    ]);
    let publish = |version: &str| {
        let name = ["--name", "acme/vpc/aws", "--version", version];
        machine.registry(&tree, &[&["publish", "vpc"], &name[..]].concat())
    };
    tree.write(&[("vpc/token", "secret"), ("vpc/outputs.tf", CODE)]);
    let said = publish("1.0.0");
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    let fault = "vpc` has 2 files that git does not track: `outputs.tf`, `token`. ";
    assert!(said.err.contains(fault), "{}", said.err);
    std::fs::remove_file(tree.path().join("vpc/token")).unwrap();
    tree.git(&["add", "vpc/outputs.tf"]);

    // The directories that the module brings have the same rule.
    for number in 0..7 {
        tree.write(&[(&format!("shared/{number}.txt"), "")]);
    }
    let said = publish("1.0.0");
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    let fault = "shared` has 7 files that git does not track: \
                 `0.txt`, `1.txt`, `2.txt`, `3.txt`, `4.txt` and 2 more. ";
    assert!(said.err.contains(fault), "{}", said.err);
    tree.git(&["clean", "-q", "-f", "shared"]);
    let said = publish("1.0.0");
    assert_eq!(said.code, 0, "{}", said.err);

    // Go takes the license at the top along, and leaves out vendored packages.
    let publish = |version: &str| {
        let name = ["--name", "example.com/net", "--version", version];
        machine.registry(&tree, &[&["publish", "net"], &name[..]].concat())
    };
    tree.write(&[("net/vendor/x/x.go", "package x\n"), ("LICENSE", "free\n")]);
    let said = publish("v1.0.0");
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    let fault = "infra` has a file that git does not track: `LICENSE`. ";
    assert!(said.err.contains(fault), "{}", said.err);
    std::fs::remove_file(tree.path().join("LICENSE")).unwrap();
    let published = machine.publish(&tree, "net", "example.com/net", "v1.0.0");
    let files = [
        (
            "example.com/net@v1.0.0/go.mod",
            b"module example.com/net\n".as_slice(),
        ),
        ("example.com/net@v1.0.0/net.go", b"package net\n"),
    ];
    let files = hash_files(files).unwrap().to_string();
    assert_eq!(published["files"], Value::from(files));
    tree.write(&[("net/new.go", "package net\n")]);
    let said = publish("v1.0.1");
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    let fault = "net` has a file that git does not track: `new.go`. ";
    assert!(said.err.contains(fault), "{}", said.err);
}

async fn a_file_with_a_token_is_refused(db: &TestDb) {
    let machine = Machine::open(db).await;
    let (_, token) = machine.admin.token(&["publish:*"]).await;
    let text = format!("TOKEN={token}\n");
    let tree = WorkingTree::new(&[
        ("token", &token),
        ("vpc/main.tf", CODE),
        ("vpc/ci/env", &text),
    ]);
    let name = ["--name", "acme/vpc/aws", "--version", "1.0.0"];
    // Nobody answers at this address, and nobody has to.
    let server = ["--server", "https://127.0.0.1:1", "--token-file", "token"];
    let here: &[&str] = &[];
    for more in [here, &server] {
        let args = [&["publish", "vpc"], &name[..], more].concat();
        let said = machine.registry(&tree, &args);
        assert_eq!((said.code, said.out.as_str()), (1, ""));
        let fault = "`ci/env` has a token of a registry";
        assert!(said.err.contains(fault), "{}", said.err);
        assert!(!said.err.contains(&token), "{}", said.err);
    }
    // Everybody can read the files of a version from elsewhere there.
    let key: VersionKey = "go github.com/acme/net v1.0.0".parse().unwrap();
    let files = [
        ("go.mod", b"module github.com/acme/net\n".as_slice()),
        ("env", text.as_bytes()),
    ];
    let (registry, by) = (&machine.admin.registry, by_ops());
    let package = machine.admin.package(&key, &files).await;
    let refused = registry.publish(package, VersionOrigin::Upload, &by).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("`env` has a token"), "{refused}");
    let package = machine.admin.package(&key, &files).await;
    let fetched = registry.publish(package, VersionOrigin::VersionControl, &by);
    assert!(matches!(fetched.await, Ok(Published::New(_))));
}

async fn a_directory_that_git_ignores_is_one_without_git(db: &TestDb) {
    let machine = Machine::open(db).await;
    let tree = WorkingTree::new(&[(".gitignore", "build/\n")]);
    tree.write(&[("build/main.tf", CODE), ("build/x.log", "")]);
    let built = machine.publish(&tree, "build", "acme/vpc/aws", "1.0.0");
    assert_eq!(built["commit"], Value::Null);
    let said = machine.registry(
        &tree,
        &[
            "publish",
            "build",
            "--name",
            "acme/vpc/aws",
            "--version",
            "1.0.0",
        ],
    );
    assert_eq!(said.err, "");
}

async fn only_the_account_of_the_server_publishes_on_its_machine(db: &TestDb) {
    let machine = Machine::open(db).await;
    let tree = WorkingTree::new(&[("main.tf", CODE)]);
    let args = [
        "publish",
        ".",
        "--name",
        "acme/vpc/aws",
        "--version",
        "1.0.0",
    ];
    if nix::unistd::geteuid().is_root() {
        let packages = db.dir.path().join("packages");
        let nobody = Some(nix::unistd::Uid::from_raw(4242));
        nix::unistd::chown(&packages, nobody, None).unwrap();
        let said = machine.registry(&tree, &args);
        assert_eq!(said.code, 1);
        assert!(
            said.err.contains("as the account of the server"),
            "{}",
            said.err
        );
    }
    std::fs::remove_file(machine.data.join("registry")).unwrap();
    let said = machine.registry(&tree, &args);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("--data-dir"), "{}", said.err);
    assert!(!machine.data.join("registry").exists());
}

async fn a_module_brings_the_directories_of_its_repository_that_it_uses(db: &TestDb) {
    let machine = Machine::open(db).await;
    let shared = "module \"x\" {\n  source = \"../shared\"\n}\n";
    let tree = WorkingTree::new(&[
        (".gitignore", "*.log\n"),
        ("infra/vpc/main.tf", shared),
        ("infra/shared/main.tf", CODE),
        ("infra/other/main.tf", CODE),
        (
            "linked/main.tf",
            "module \"x\" {\n  source = \"../away\"\n}\n",
        ),
        ("out/main.tf", "module \"x\" {\n  source = \"../../x\"\n}\n"),
    ]);
    tree.write(&[("infra/shared/debug.log", "secret")]);
    // Nothing is taken from behind a link, which could lead anywhere.
    std::os::unix::fs::symlink("infra/other", tree.path().join("away")).unwrap();
    tree.commit();
    let published = machine.publish(&tree, "infra/vpc", "acme/vpc/aws", "1.0.0");
    let files = [
        ("infra/shared/main.tf", CODE.as_bytes()),
        ("infra/vpc/main.tf", shared.as_bytes()),
    ];
    let files = hash_files(files).unwrap().to_string();
    assert_eq!(
        (&published["files"], &published["commit"]),
        (&Value::from(files), &Value::from(head(&tree)))
    );
    let package = &published["packages"][0]["file"];
    assert_eq!(*package, Value::from("module~infra~vpc.tar.gz"));
    let publish = |tree: &WorkingTree, dir: &str, version: &str| {
        let name = ["--name", "acme/vpc/aws", "--version", version];
        machine.registry(tree, &[&["publish", dir], &name[..]].concat())
    };
    let said = publish(&tree, "infra/vpc", "1.0.0");
    assert_eq!(
        (said.out.as_str(), said.err.as_str()),
        (
            "acme/vpc/aws@1.0.0 was published before with the same files.\n",
            "Left out infra/shared/debug.log: git ignores it, or it belongs to another repository.\n\
             The package also has the directory infra/shared of the repository, because the module uses it.\n"
        )
    );
    for (dir, fault) in [
        ("linked", "uses `../away`, which is not in the package"),
        ("out", "uses `../../x`, which is outside of the package"),
    ] {
        let said = publish(&tree, dir, "1.0.1");
        assert_eq!(said.code, 1, "{}", said.out);
        assert!(said.err.contains(fault), "{}", said.err);
    }
    // Without git, nobody knows what belongs together.
    std::fs::remove_dir_all(tree.path().join(".git")).unwrap();
    let said = publish(&tree, "infra/vpc", "1.0.1");
    assert_eq!(said.code, 1, "{}", said.out);
    let fault = "the module uses `../shared`, which is outside of the package";
    assert!(said.err.contains(fault), "{}", said.err);
}

store_test!(
    a_working_tree_is_published_without_what_git_ignores,
    files_that_git_does_not_track_are_refused,
    a_file_with_a_token_is_refused,
    a_directory_that_git_ignores_is_one_without_git,
    only_the_account_of_the_server_publishes_on_its_machine,
    a_module_brings_the_directories_of_its_repository_that_it_uses,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_publishes_over_tls() {
    let site = Site::open(&[]).await;
    site.admin
        .namespace("module acme", Visibility::Public)
        .await;
    let (_, token) = site.admin.token(&["publish:module acme/*"]).await;
    let ci = site.person(
        "ci",
        &[
            ("vpc/main.tf", CODE),
            ("token", &format!("{token}\n")),
            ("wrong", "lkr_wrong\n"),
        ],
    );
    let publish = |version: &str, token: &str, server: &str| {
        ci.lockkeeper(&[
            "registry",
            "publish",
            "vpc",
            "--name",
            "acme/vpc/aws",
            "--version",
            version,
            "--server",
            server,
            "--token-file",
            token,
        ])
    };
    let here = "https://mods.example.com";
    let said = publish("1.0.0", "token", here);
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "Published acme/vpc/aws@1.0.0 as record 1 of the log.\n"),
        "{}",
        said.err
    );
    let said = publish("1.0.0", "token", "https://mods.example.com/");
    assert_eq!(
        (said.code, said.out.as_str()),
        (
            0,
            "acme/vpc/aws@1.0.0 was published before with the same files.\n"
        ),
        "{}",
        said.err
    );
    ci.write("vpc/main.tf", "# other\n");
    let said = publish("1.0.0", "token", here);
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("is published with other files: “h1:"),
        "{}",
        said.err
    );
    assert!(
        said.err.contains("Publish the files under a new version."),
        "{}",
        said.err
    );
    let said = publish("1.0.1", "wrong", here);
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("no token of the registry"),
        "{}",
        said.err
    );
    let said = publish("1.0.1", "token", "https://mods.example.com/elsewhere");
    assert_eq!(said.code, 1, "{}", said.out);
    let said = publish("1.0.1", "none", here);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("--token-file"), "{}", said.err);

    // Terraform uses what the pipeline has published.
    let (_, reader) = site.admin.token(&["read:*"]).await;
    let user = "module \"vpc\" {\n  source  = \"mods.example.com/acme/vpc/aws\"\n  version = \"1.0.0\"\n}\n";
    let kim = site.person("kim", &[("main.tf", user)]);
    let kim = kim.with("TF_TOKEN_mods_example_com", &reader);
    let said = kim.terraform_init();
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let installed = kim.dir.join(".terraform/modules/vpc/main.tf");
    assert_eq!(std::fs::read_to_string(installed).unwrap(), CODE);
}

/// The `go` command makes the package of a commit on its own, from the repository. Ours has the same checksums.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packages_have_the_checksums_that_go_computes() {
    let site = Site::open(&[]).await;
    site.admin
        .namespace("go git.example.com", Visibility::Public)
        .await;
    let (_, token) = site.admin.token(&["publish:*"]).await;
    let path = "git.example.com/net.git";
    let tree = WorkingTree::new(&[
        ("go.mod", "module git.example.com/net.git\n\ngo 1.21\n"),
        ("net.go", "package net\n"),
        ("LICENSE", "free\n"),
        ("dir/x.txt", "x"),
        ("Upper/Ünïcode.txt", "é"),
        ("vendor/modules.txt", "# vendor\n"),
        ("vendor/example.com/x/x.go", "package x\n"),
        (".gitignore", "ignored.go\n"),
        (
            "http/go.mod",
            "module git.example.com/net.git/http\n\ngo 1.24\n",
        ),
        ("http/http.go", "package http\n"),
        ("http/vendor/modules.txt", "# vendor\n"),
        (
            "plain/v2/go.mod",
            "module git.example.com/net.git/plain/v2\n",
        ),
        ("plain/v2/LICENSE", "not free\n"),
    ]);
    tree.write(&[
        ("ignored.go", "package ignored\n"),
        ("run.sh", "#!/bin/sh\n"),
    ]);
    std::os::unix::fs::symlink("net.go", tree.path().join("link.go")).unwrap();
    tree.commit();
    tree.git(&["tag", "v1.0.0"]);
    tree.git(&["tag", "http/v0.1.0"]);
    tree.git(&["tag", "plain/v2.3.4"]);
    let config = format!(
        "[url \"file://{}\"]\n\tinsteadOf = https://{path}\n\tinsteadOf = https://{}\n",
        tree.path().display(),
        path.trim_end_matches(".git")
    );
    let person = site.person("kim", &[("token", &token), ("gitconfig", &config)]);
    let config = person.dir.join("gitconfig").display().to_string();
    let from_git = person.clone().with("GIT_CONFIG_GLOBAL", &config);
    let from_git = from_git
        .with("GOPROXY", "direct")
        .with("GOSUMDB", "off")
        .with("GOVCS", "*:git");
    let token = person.dir.join("token").display().to_string();
    for (dir, module, version) in [
        ("", path.to_owned(), "v1.0.0"),
        ("http", format!("{path}/http"), "v0.1.0"),
        ("plain/v2", format!("{path}/plain/v2"), "v2.3.4"),
    ] {
        let said = from_git.go(&["mod", "download", "-json", &format!("{module}@{version}")]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        let by_go = said.json();
        let dir = tree.path().join(dir).display().to_string();
        let said = person.lockkeeper(&[
            "registry",
            "publish",
            &dir,
            "--name",
            &module,
            "--version",
            version,
            "--server",
            "https://mods.example.com",
            "--token-file",
            &token,
            "--json",
        ]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        let ours = said.json();
        assert_eq!(
            (&ours["files"], &ours["go_mod"]),
            (&by_go["Sum"], &by_go["GoModSum"]),
            "{module}"
        );
        // A server records no commit that somebody else names.
        assert_eq!(ours["commit"], Value::Null);
    }
}
