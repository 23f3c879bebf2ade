//! Stories of pull requests whose plans use modules of the registry: with the whole program, the real `terraform`, and
//! without any token.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use lockkeeper::claims::application_add;
use lockkeeper::emulator::{Change, NewPull};
use lockkeeper::features::registry::{JoinRequest, Visibility};
use lockkeeper::model::{ApplicationFields, ForgeHosts, OwnerName, PullNumber, Rights};
use lockkeeper::secret::Secret;
use lockkeeper_registry::records::TakedownKind;
use lockkeeper_registry::states::VersionState;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::deployments::Deployment;
use super::site::find_go;
use super::world::{HOST, RegistryAdmin, archive, by_ops, write_keys};
use crate::e2e::world::{BotComment, REPO, World};
use crate::support::db::{Backend, execute_on};
use crate::support::program::{lockkeeper, run};
use crate::support::server::{HOST as FORGE, RUNNER, Settings, within};

/// Version of the module in the repository.
const USED: &str = "1.2.3";

/// A GitHub, a server with a registry, and the registry as its administrators see it.
struct Site {
    world: World,
    admin: RegistryAdmin,
    /// Directory with the keys of the server, where steps of runs may leave notes.
    dir: TempDir,
}

/// Returns code that uses a version of a module, and shows what it got.
fn project(version: &str) -> String {
    format!(
        "module \"vpc\" {{\n  source  = \"{HOST}/acme/vpc/aws\"\n  version = \"{version}\"\n}}\n\n\
         resource \"terraform_data\" \"size\" {{\n  input = module.vpc.size\n}}\n"
    )
}

fn with_registry(dir: &Path) -> Settings {
    let file = dir.join("keys");
    write_keys(&file);
    Settings::default()
        .writes(&dir.join("notes"))
        .flag("--registry")
        .flag(&format!("--registry-name={HOST}"))
        .flag(&format!("--registry-host={HOST}"))
        .flag(&format!("--encryption-key-file={}", file.display()))
}

/// Makes plans with the steps that `steps` returns for a directory of notes.
fn planned_by(settings: Settings, dir: &Path, steps: impl FnOnce(&str) -> Value) -> Settings {
    let notes = dir.join("notes").display().to_string();
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "noted"}],
        "workflows": {"noted": {"plan": {"steps": steps(&notes)}}},
    });
    settings.flag(&format!("--repo-config-json={config}"))
}

impl Site {
    async fn open(visibility: Visibility) -> Self {
        Self::open_with(visibility, |settings, _| settings).await
    }

    /// Starts a server with a namespace and two versions of a module, and with settings that are changed for a story.
    async fn open_with(
        visibility: Visibility,
        change: impl FnOnce(Settings, &Path) -> Settings,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("notes")).unwrap();
        let settings = change(with_registry(dir.path()), dir.path());
        let world = World::start_with(settings, |_| vec![("README.md", String::new())]).await;
        let packages = world.server.data_dir().join("registry");
        let admin =
            RegistryAdmin::with(world.store().await, dir.path().join("keys"), packages).await;
        admin.namespace("module acme", visibility).await;
        admin.namespace("go example.com/net", visibility).await;
        for version in [USED, "1.2.4"] {
            let main = format!("output \"size\" {{\n  value = \"size of {version}\"\n}}\n");
            let key = format!("module acme/vpc/aws {version}");
            admin.publish(&key, &[("main.tf", main.as_bytes())]).await;
        }
        Self { world, admin, dir }
    }

    /// Returns a file that a step has written.
    fn note(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join("notes").join(name)).unwrap()
    }

    /// Claims the repository of the story for an owner, by an application of a directory that the story does not use.
    async fn claim(&self, owner: &str) {
        let store = self.world.store().await;
        let name: OwnerName = owner.parse().unwrap();
        store
            .owner_create(&name, &by_ops())
            .await
            .map(drop)
            .unwrap();
        let fields = ApplicationFields {
            url: Some(&format!("https://{FORGE}/{REPO}")),
            branch: Some("main"),
            dir: Some("elsewhere"),
            ..ApplicationFields::default()
        };
        let spec = fields.spec(&ForgeHosts::public()).unwrap();
        application_add(&store, &name, &spec, (Rights::Whole, &by_ops()))
            .await
            .unwrap()
            .or_why()
            .unwrap();
        store.close().await;
    }

    /// Opens a pull request that uses a version, and returns the comment about its plan.
    async fn planned(&self, branch: &str, version: &str) -> (PullNumber, BotComment) {
        let files = [("main.tf", &*project(version))];
        let pull = self.world.open(branch, &files).await;
        let said = self.world.answer(pull).await;
        (pull, said)
    }

    /// Lets another deployment join, whose versions count for these names. Everyone who reads public names reads them.
    async fn joined_by(&self, other: &Deployment, accepts: &[&str]) {
        let url = other.url.to_string();
        let mut args = vec!["--url", url.as_str()];
        args.extend(accepts.iter().flat_map(|names| ["--accept", *names]));
        let database = self.world.server.database();
        let said = lockkeeper(&["registry", "peers", "invite"], &database, &args, &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        let request = JoinRequest {
            url: self.world.server.url().parse().unwrap(),
            word: Secret::new(said.out.trim()),
            shares: accepts.join("\n").parse().unwrap(),
            accepts: "".parse().unwrap(),
            visibility: Visibility::Public,
        };
        let joined = other.peers.join(request, &by_ops()).await.unwrap();
        joined.unwrap();
    }

    /// Waits until a version of another deployment has a state here.
    async fn heard_from(&self, other: &Deployment, key: &str, state: VersionState) {
        other.push().await;
        let key = key.parse().unwrap();
        // The server may read the log of the other one at the same time, and nothing is pushed then.
        within("the record of another deployment", async {
            loop {
                let version = self.admin.registry.version(&key).await.unwrap();
                if version.is_some_and(|version| version.known.state() == state) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Runs `lockkeeper registry uses` on the database of the server.
    fn uses(&self, args: &[&str]) -> String {
        let database = self.world.server.database();
        let said = lockkeeper(&["registry", "uses"], &database, args, &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        said.out
    }
}

/// Returns a comment without times, identifiers and the hidden line.
fn shown(said: &BotComment) -> String {
    let text = said.text.split("<!--").next().unwrap_or_default();
    let mut text = text.trim().to_owned();
    for (pattern, with) in [
        ("[0-9a-f]{8}-[0-9a-f-]{27}", "ID"),
        ("[0-9]{4}-[0-9]{2}-[0-9]{2}", "DATE"),
        ("· [0-9.]+ m?s</sub>", "· TIME</sub>"),
        ("`[0-9a-f]{8}`", "`COMMIT`"),
    ] {
        let pattern = regex::Regex::new(pattern).unwrap();
        text = pattern.replace_all(&text, with).into_owned();
    }
    text
}

/// Returns the text of a comment in one line, because `terraform` breaks lines.
fn in_one_line(said: &BotComment) -> String {
    let text = said.text.replace(['│', '╷', '╵'], " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the status of an answer to a request.
fn status(url: &str) -> String {
    let args = ["-s", "-o", "/dev/null", "-w", "%{http_code}", url];
    run("curl", Path::new("/"), &args, &[]).out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_names_a_deprecated_module_and_is_not_applied_once_it_is_taken_down() {
    let site = Site::open(Visibility::Owner).await;
    site.claim("net").await;
    let (pull, said) = site.planned("feature", USED).await;
    said.is("autoplan success | . default planned")
        .says("size of 1.2.3");
    assert!(!said.text.contains("[!"), "{}", said.text);

    let (reason, instead) = ("leaks addresses", Some("module acme/vpc/aws 1.2.4"));
    let used = format!("module acme/vpc/aws {USED}");
    site.admin.deprecate(&used, reason, instead).await;
    let said = site.world.ask(pull, "lockkeeper plan").await;
    said.is("plan success | . default planned");
    assert_snapshot!(shown(&said), @r#"
    Ran Plan for dir: `.` workspace: `default`: planned

    > [!WARNING]
    > **This plan uses modules of the registry that should not be used any more**:
    >
    > * `acme/vpc/aws` `1.2.3` was **deprecated** on DATE: leaks addresses. Use `acme/vpc/aws` `1.2.4` instead.

    **Plan: 1 to add, 0 to change, 0 to destroy.**

    1 to create:

    * create `terraform_data.size`

    <details><summary>Output (14 lines)</summary>

    ```diff
    Terraform used the selected providers to generate the following execution
    plan. Resource actions are indicated with the following symbols:
    + create

    Terraform will perform the following actions:

      # terraform_data.size will be created
    + resource "terraform_data" "size" {
          + id     = (known after apply)
          + input  = "size of 1.2.3"
          + output = (known after apply)
        }

    Plan: 1 to add, 0 to change, 0 to destroy.
    ```

    </details>

    * To **apply** this plan, comment:
      ```shell
      lockkeeper apply -d .
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d .
      ```
    * To **discard** this plan and release its lock, [open the lock](https://lockkeeper.test/locks/ID). `lockkeeper unlock` releases all locks of this pull request.

    [Output](https://lockkeeper.test/jobs/ID)

    <sub>Commit `COMMIT` · TIME</sub>
    "#);
    let lines = site.uses(&["acme/vpc/aws"]);
    let lines = regex::Regex::new(r"planned, [^)]*")
        .unwrap()
        .replace_all(&lines, "planned, TIME");
    assert_snapshot!(lines, @"github.test/acme/infra#1: dir: `.` workspace: `default` uses 1.2.3 (plan planned, TIME)");
    let json: Value = serde_json::from_str(&site.uses(&["acme/vpc/aws@1.2.3", "--json"])).unwrap();
    assert_eq!(
        (&json["pull"], &json["plan"]),
        (&json!(1), &json!("planned"))
    );
    assert_snapshot!(site.uses(&["acme/vpc/aws@1.2.4"]), @"No latest plan of a project and no default branch uses acme/vpc/aws@1.2.4.");

    let (kind, reason) = (TakedownKind::Security, "It has a `private` key.");
    site.admin.take_down(&used, kind, reason).await;
    let refused = site.world.ask(pull, "lockkeeper apply").await;
    refused.is("apply refused | . default refused");
    assert_snapshot!(shown(&refused), @r#"
    Ran Apply for dir: `.` workspace: `default`: refused

    **Apply refused**: the plan uses a module that the registry does not serve any more: `acme/vpc/aws 1.2.3`, which was taken down (security) on DATE: It has a 'private' key. Nothing was applied.

    * Change the module to another version in this pull request. Lockkeeper then plans again.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d .
      ```

    [Output](https://lockkeeper.test/jobs/ID)

    <sub>Commit `COMMIT` · TIME</sub>
    "#);
    assert_eq!(site.world.server.calls("apply").len(), 0);

    site.world
        .push("feature", "main.tf", &project("1.2.4"))
        .await;
    let said = site.world.answer(pull).await;
    said.is("autoplan success | . default planned")
        .says("size of 1.2.4");
    assert!(!said.text.contains("[!"), "{}", said.text);
    let said = site.world.ask(pull, "lockkeeper apply").await;
    said.is("apply success | . default applied");
    site.world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_ends_with_its_run_and_is_shown_nowhere() {
    let go = "curl -s \"${GOPROXY%%,*}/example.com/net/@v/list\"";
    let site = Site::open_with(Visibility::Owner, |settings, dir| {
        planned_by(settings, dir, |notes| {
            json!([
                {"run": format!("env > {notes}/variables; cat \"$TF_CLI_CONFIG_FILE\" > {notes}/cli")},
                {"run": "echo \"modules of Go come from $GOPROXY, not $GONOSUMDB\""},
                {"run": format!("{go} && cat \"$TF_CLI_CONFIG_FILE\"")},
                "init",
                "plan"
            ])
        })
    })
    .await;
    site.claim("net").await;
    let files: [(&str, &[u8]); 1] = [("go.mod", b"module example.com/net\n")];
    site.admin
        .publish("go example.com/net v1.0.0", &files)
        .await;
    let (pull, said) = site.planned("feature", USED).await;
    said.is("autoplan success | . default planned")
        .says("v1.0.0")
        .says("/run/(hidden)/go,direct, not example.com/net")
        .says("/run/(hidden)/v1/modules/");

    let variables = site.note("variables");
    let variable = |name: &str| {
        let mut lines = variables.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("{name}: {variables}"))
            .to_owned()
    };
    let proxy = variable("GOPROXY");
    let (base, _) = proxy.split_once("/go,").unwrap();
    let (_, token) = base.rsplit_once('/').unwrap();
    assert!(token.len() > 40, "{token}");
    assert!(
        site.note("cli")
            .contains(&format!("\"{base}/v1/modules/\""))
    );
    let config = PathBuf::from(variable("TF_CLI_CONFIG_FILE"));
    assert!(!config.exists(), "{}", config.display());
    for path in [
        "v1/modules/acme/vpc/aws/versions",
        "go/example.com/net/@v/list",
    ] {
        assert_eq!(status(&format!("{base}/{path}")), "401", "{path}");
    }
    let (address, _) = base.split_once("/run/").unwrap();
    assert_eq!(status(&format!("{address}/healthz")), "404");
    assert_eq!(
        status(&format!("{address}/run/{}/go/index", "A".repeat(43))),
        "401"
    );

    let store = site.world.store().await;
    let plan = store.plan_list(&World::pull_ref(pull)).await.unwrap();
    let output = store.run_output(plan[0].run).await.unwrap();
    store.close().await;
    assert!(output.contains("(hidden)"), "{output}");
    for text in [output, site.world.server.log(), said.text.clone()] {
        assert!(!text.contains(token), "{text}");
    }
    site.world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_proves_modules_of_go_with_the_log_of_the_registry() {
    const ELSEWHERE: &str = "example.org/elsewhere";
    let site = Site::open_with(Visibility::Owner, |settings, dir| {
        planned_by(settings, dir, |notes| {
            let go = find_go().display().to_string();
            // A folder stands for the repositories of modules from elsewhere.
            let proxies = format!("\"${{GOPROXY%%,*}},file://{notes}/elsewhere\"");
            let download = format!(
                "cd {notes}/app && GOPROXY={proxies} GOPATH={notes}/gopath GOCACHE={notes}/cache GOENV=off \
                 GOTOOLCHAIN=local GOFLAGS='-mod=mod -modcacherw' {go} mod download \"$(cat {notes}/module)\""
            );
            json!([
                {"env": {"name": "GOSUMDB", "command": format!("cat {notes}/database")}},
                {"run": format!("env > {notes}/variables")},
                {"run": download},
                "init",
                "plan"
            ])
        })
    })
    .await;
    site.claim("net").await;
    for version in ["v1.0.0", "v1.1.0"] {
        let files: [(&str, &[u8]); 1] = [("go.mod", b"module example.com/net\n")];
        let key = format!("go example.com/net {version}");
        site.admin.publish(&key, &files).await;
    }
    let write = |name: &str, content: &[u8]| {
        let path = site.dir.path().join("notes").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let log = site.admin.registry.verifier().to_string();
    write("app/go.mod", b"module example.org/app\n\ngo 1.21\n");
    let go_mod = format!("module {ELSEWHERE}\n");
    let key = format!("go {ELSEWHERE} v1.0.0").parse().unwrap();
    let zip = archive(&key, &[("go.mod", go_mod.as_bytes())]);
    for (file, content) in [
        ("list", b"v1.0.0\n".as_slice()),
        (
            "v1.0.0.info",
            br#"{"Version":"v1.0.0","Time":"2026-01-02T03:04:05Z"}"#,
        ),
        ("v1.0.0.mod", go_mod.as_bytes()),
        ("v1.0.0.zip", &zip),
    ] {
        write(&format!("elsewhere/{ELSEWHERE}/@v/{file}"), content);
    }

    // Somebody with the database, but without the key, gives a version another file.
    let change = "UPDATE registry_go_mods SET content = CAST(content || x'0a' AS BLOB) WHERE version = 'v1.1.0'";
    execute_on(&site.world.server.database(), change).await;
    write("database", log.as_bytes());
    write("module", b"example.com/net@v1.1.0");
    let (pull, said) = site.planned("feature", USED).await;
    said.is("autoplan failure | . default failed")
        .says("SECURITY ERROR");
    let variables = site.note("variables");
    assert!(!variables.contains("GONOSUMDB"), "{variables}");

    // The log does not have modules from elsewhere, so `go` refuses them. That is why runs do not get this database.
    write("module", format!("{ELSEWHERE}@v1.0.0").as_bytes());
    let said = site.world.ask(pull, "lockkeeper plan").await;
    said.is("plan failure | . default failed")
        .says(&format!("lookup/{ELSEWHERE}@v1.0.0"));
    write("database", b"off");
    let said = site.world.ask(pull, "lockkeeper plan").await;
    said.is("plan success | . default planned");
    assert!(
        site.note("variables")
            .contains("GONOSUMDB=example.com/net\n")
    );

    write("database", log.as_bytes());
    write("module", b"example.com/net@v1.0.0");
    let said = site.world.ask(pull, "lockkeeper plan").await;
    said.is("plan success | . default planned");
    site.world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_reads_no_modules_that_only_another_owner_may_read() {
    let site = Site::open(Visibility::Owner).await;
    let (pull, said) = site.planned("feature", USED).await;
    said.is("autoplan failure | . default failed");
    assert!(
        in_one_line(&said).contains("cannot be found"),
        "{}",
        said.text
    );
    site.claim("other").await;
    let said = site.world.ask(pull, "lockkeeper plan").await;
    said.is("plan failure | . default failed");
    assert!(
        in_one_line(&said).contains("cannot be found"),
        "{}",
        said.text
    );
    assert!(site.uses(&["acme/vpc/aws"]).starts_with("No latest plan"));
    site.world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_request_from_a_fork_reads_public_modules_alone() {
    for (visibility, outcome) in [
        (Visibility::Public, "plan success | . default planned"),
        (Visibility::Owner, "plan failure | . default failed"),
    ] {
        let fork = |settings: Settings, _: &Path| settings.flag("--allow-fork-prs");
        let site = Site::open_with(visibility, fork).await;
        site.claim("net").await;
        let github = &site.world.github;
        let fork = github.fork(REPO, "mallory").await.unwrap();
        let change = Change::write("main.tf", &project(USED));
        github.push(&fork, "feature", &[change]).await.unwrap();
        let pull = NewPull::from_branch("feature").from_fork(&fork);
        let pull = github.open_pull(REPO, pull).await.unwrap();
        // Somebody who may write to the repository has looked at the change.
        site.world.ask(pull, "lockkeeper plan").await.is(outcome);
        let locks: &[&str] = match visibility {
            Visibility::Public => &["#1 . default"],
            Visibility::Owner => &[],
        };
        site.world.finish(locks).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_list_of_modules_tells_nothing_about_modules_of_others() {
    let site = Site::open_with(Visibility::Owner, |settings, dir| {
        planned_by(settings, dir, |_| {
            let list = json!({"Modules": [
                {"Key": "a", "Source": format!("{HOST}/acme/vpc/aws"), "Version": USED, "Dir": "."},
            ]});
            let write = format!(
                "mkdir -p .terraform/modules; echo '{list}' > .terraform/modules/modules.json"
            );
            json!(["init", {"run": write}, "plan"])
        })
    })
    .await;
    site.claim("other").await;
    let used = format!("module acme/vpc/aws {USED}");
    site.admin
        .deprecate(&used, "leaks the keys of prod", None)
        .await;
    let files = [("main.tf", "resource \"terraform_data\" \"x\" {}\n")];
    let pull = site.world.open("feature", &files).await;
    let said = site.world.answer(pull).await;
    said.is("autoplan success | . default planned");
    assert!(!said.text.contains("leaks the keys"), "{}", said.text);
    let kind = TakedownKind::Security;
    site.admin
        .take_down(&used, kind, "leaks the keys of prod")
        .await;
    let refused = site.world.ask(pull, "lockkeeper apply").await;
    refused
        .is("apply refused | . default refused")
        .says("uses a module that the registry does not serve any more. Nothing was applied.");
    assert!(!refused.text.contains("leaks the keys"), "{}", refused.text);
    site.world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modules_of_another_deployment_are_named_like_those_of_owners_here() {
    let site = Site::open_with(Visibility::Owner, |settings, dir| {
        planned_by(
            settings,
            dir,
            |notes| json!([{"run": format!("env > {notes}/variables")}, "init", "plan"]),
        )
    })
    .await;
    let partner = Deployment::open(Backend::Sqlite, "partner.example.org", &[]).await;
    for prefix in ["module partner", "go partner.example.org/net"] {
        partner.admin.namespace(prefix, Visibility::Public).await;
    }
    let names = ["module partner/*", "go partner.example.org/net/..."];
    site.joined_by(&partner, &names).await;
    let used = "module partner/vpc/aws 1.2.3";
    let main: [(&str, &[u8]); 1] = [("main.tf", b"output \"size\" {\n  value = \"large\"\n}\n")];
    let newer = "module partner/vpc/aws 1.2.4";
    partner.admin.publish(used, &main).await;
    partner.admin.publish(newer, &main).await;
    site.heard_from(&partner, used, VersionState::Added).await;

    let code = project(USED).replace("acme/vpc/aws", "partner/vpc/aws");
    let pull = site.world.open("feature", &[("main.tf", &code)]).await;
    let said = site.world.answer(pull).await;
    said.is("autoplan success | . default planned")
        .says("large");
    assert!(!said.text.contains("[!"), "{}", said.text);
    // The run may read no namespace of Go here.
    let variables = site.note("variables");
    assert!(
        variables.contains("GONOSUMDB=partner.example.org/net\n") && variables.contains("GOPROXY="),
        "{variables}"
    );

    partner
        .admin
        .deprecate(used, "leaks addresses", Some(newer))
        .await;
    site.heard_from(&partner, used, VersionState::Deprecated)
        .await;
    let said = site.world.ask(pull, "lockkeeper plan").await;
    said.is("plan success | . default planned")
        .says("* `partner/vpc/aws` `1.2.3` was **deprecated** on ")
        .says(": leaks addresses. Use `partner/vpc/aws` `1.2.4` instead.");

    let kind = TakedownKind::Security;
    partner.admin.take_down(used, kind, "has a key").await;
    site.heard_from(&partner, used, VersionState::Deleted).await;
    let refused = site.world.ask(pull, "lockkeeper apply").await;
    refused
        .is("apply refused | . default refused")
        .says("`partner/vpc/aws 1.2.3`, which was taken down (security) on ")
        .says(": has a key. Nothing was applied.");

    // Also when the other deployment is not accepted for the name any more.
    let database = site.world.server.database();
    let args = ["partner.example.org", "--accept", names[1]];
    let said = lockkeeper(&["registry", "peers", "change"], &database, &args, &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    let refused = site.world.ask(pull, "lockkeeper apply").await;
    refused
        .is("apply refused | . default refused")
        .says("`partner/vpc/aws 1.2.3`, which was taken down (security) on ")
        .says(": has a key. Nothing was applied.");
    site.world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_another_user_read_modules_too() {
    let other_user = |settings: Settings, _: &Path| settings.run_as(RUNNER);
    let site = Site::open_with(Visibility::Public, other_user).await;
    let (_, said) = site.planned("feature", USED).await;
    said.is("autoplan success | . default planned")
        .says("size of 1.2.3");
    site.world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_do_not_use_the_registry_if_it_is_turned_off_for_them() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("notes")).unwrap();
    let noting = |settings: Settings, dir: &Path| {
        planned_by(
            settings.writes(&dir.join("notes")),
            dir,
            |notes| json!([{"run": format!("env | cut -d= -f1 | sort > {notes}/names")}, "init", "plan"]),
        )
    };
    let without = World::start_with(noting(Settings::default(), dir.path()), |_| {
        vec![("README.md", String::new())]
    })
    .await;
    let pull = without.open("feature", &[("main.tf", "")]).await;
    without
        .answer(pull)
        .await
        .is("autoplan success | . default no_changes");
    without.finish(&["#1 . default"]).await;
    let names = std::fs::read_to_string(dir.path().join("notes/names")).unwrap();
    assert!(!names.contains("GOPROXY"), "{names}");

    let site = Site::open_with(Visibility::Public, |settings, dir| {
        noting(settings.flag("--no-registry-for-runs"), dir)
    })
    .await;
    let (_, said) = site.planned("feature", USED).await;
    said.is("autoplan failure | . default failed");
    assert_eq!(site.note("names"), names);
    assert!(!site.world.server.log().contains("Runs get modules"));
    site.world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_block_of_the_administrator_stays_in_effect() {
    let site = Site::open_with(Visibility::Public, |settings, dir| {
        let file = dir.join("own.tfrc");
        let block = format!(
            "host \"{HOST}\" {{\n  services = {{\n    \"modules.v1\" = \"http://127.0.0.1:9/own/\"\n  }}\n}}\n"
        );
        std::fs::write(&file, block).unwrap();
        settings.variable("TF_CLI_CONFIG_FILE", &file.display().to_string())
    })
    .await;
    let (_, said) = site.planned("feature", USED).await;
    said.is("autoplan failure | . default failed")
        .says("http://127.0.0.1:9/own/acme/vpc/aws/versions");
    site.world.finish(&[]).await;
}
