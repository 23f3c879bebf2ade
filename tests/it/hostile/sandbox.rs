//! Attacks of a pull request on the server from within its own plan. The code runs as the user of the server. The
//! sandbox keeps it from everything that does not belong to it.

use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lockkeeper::emulator::Change;
use lockkeeper::process::Cmd;
use lockkeeper::store::DatabaseUrl;

use super::ordinary;
use crate::e2e::world::{REPO, World, resource};
use crate::support::program::{lockkeeper, run};
use crate::support::server::{LOOK, RUNNER, Settings, TOKEN, WEBHOOK_SECRET, within};

/// Returns code that runs a script at every plan. Terraform's own `provisioner` only starts programs at an apply. A
/// program in `terraform.d/plugins` is started by `init` and `plan`, and needs no network.
fn provider(script: &str) -> [Change; 2] {
    let code = r#"terraform {
  required_providers {
    spy = {
      source  = "example.com/acme/spy"
      version = "1.0.0"
    }
  }
}
resource "spy_thing" "it" {}
"#;
    let plugin =
        "terraform.d/plugins/example.com/acme/spy/1.0.0/linux_amd64/terraform-provider-spy";
    [
        Change::write("main.tf", code),
        Change::program(plugin, script),
    ]
}

/// Expected results of the attempts.
const OUTCOMES: [&str; 20] = [
    "attributes in another mirror: denied",
    "change the database: denied",
    "command line: denied",
    "database: denied",
    "environment of the server: denied",
    "filter in another mirror: denied",
    "fixed port: denied",
    "home of the server: denied",
    "keys: denied",
    "list the data directory: denied",
    "memory of the server: denied",
    "own checkout: done",
    "own mirror: denied",
    "plan files: denied",
    "programs for other runs: denied",
    "signal to the server: denied",
    "signal to the supervisor: denied",
    "system: done",
    "temporary files: done",
    "tokens in /proc: denied",
];

/// Returns a script that writes the result of each attempt to a file that the story may read.
fn attempts(report: &Path, attempts: &[(&str, String)]) -> String {
    let mut script = "#!/bin/sh\n".to_owned();
    for (name, attempt) in attempts {
        writeln!(
            script,
            "if {{ {attempt}; }} >/dev/null 2>&1; then echo '{name}: done'; else echo '{name}: denied'; fi >>'{}'",
            report.display()
        )
        .expect("writing to a string does not fail");
    }
    script + "exit 1\n"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_reads_and_changes_nothing_of_the_server() {
    attack(ordinary()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_a_plan_in_namespaces() {
    attack(ordinary().flag("--sandbox=bubblewrap")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_a_plan_in_namespaces_of_a_server_that_runs_as_whoever_runs_the_tests() {
    attack(Settings::default().flag("--sandbox=bubblewrap")).await;
}

/// If root runs the tests, root also runs the server. No right of root helps a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_a_plan_of_a_server_that_runs_as_whoever_runs_the_tests() {
    attack(Settings::default()).await;
}

/// Without a sandbox only the rights of a user remain. They do not apply to ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_a_plan_of_another_user_without_a_sandbox() {
    attack_with(
        Settings::default().run_as(RUNNER).flag("--sandbox=none"),
        &["fixed port"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_a_plan_of_another_user_in_a_sandbox() {
    for sandbox in ["landlock", "bubblewrap"] {
        attack(
            Settings::default()
                .run_as(RUNNER)
                .flag(&format!("--sandbox={sandbox}")),
        )
        .await;
    }
}

/// Returns the directories of Terraform below a directory, with their inode numbers: another number is a new
/// directory.
fn initialised(dir: &Path) -> Vec<(PathBuf, u64)> {
    let below = std::fs::read_dir(dir)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().unwrap().is_dir());
    let of = |entry: std::fs::DirEntry| match entry.file_name().to_str() {
        Some(".terraform") => vec![(dir.to_owned(), dir.metadata().unwrap().ino())],
        _ => initialised(&entry.path()),
    };
    below.flat_map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_plans_and_applies_again_and_again_in_the_same_checkout() {
    let of_root = Settings::default;
    let with_rights = || ordinary();
    for (sandbox, settings) in [
        ("landlock", of_root()),
        ("bubblewrap", of_root()),
        ("none", of_root()),
        ("landlock", with_rights()),
    ] {
        let settings = settings
            .run_as(RUNNER)
            .flag(&format!("--sandbox={sandbox}"));
        let world =
            World::start_with(settings, |files| vec![("main.tf", files.backend("root"))]).await;
        let who = world.dir.path().join("who");
        let code = |value: &str| {
            let id = format!("id -u >{0}; id -G >>{0}", who.display());
            let provisioner =
                format!("  provisioner \"local-exec\" {{\n    command = \"{id}\"\n  }}\n");
            let changed = resource("it", value).replace(
                "{\n",
                &format!("{{\n  triggers_replace = {value}\n{provisioner}"),
            );
            world.files().backend("root") + &changed
        };
        let pull = world.open("feature", &[("main.tf", &code("1"))]).await;
        world
            .answer(pull)
            .await
            .is("autoplan success | . default planned");
        let made = initialised(&world.server.data_dir().join("checkouts"));
        assert_eq!(made.len(), 1, "{made:?}");
        world
            .ask(pull, "lockkeeper plan")
            .await
            .is("plan success | . default planned");
        world
            .ask(pull, "lockkeeper apply")
            .await
            .is("apply success | . default applied")
            .says("1 added");
        assert_eq!(
            std::fs::read_to_string(&who).unwrap(),
            format!(
                "{RUNNER}
{RUNNER}
"
            )
        );
        // Git replaces a file that belongs to the user of the run.
        world.push("feature", "main.tf", &code("2")).await;
        world
            .answer(pull)
            .await
            .is("autoplan success | . default planned");
        world
            .ask(pull, "lockkeeper apply")
            .await
            .is("apply success | . default applied")
            .says("1 destroyed");
        let kept = initialised(&world.server.data_dir().join("checkouts"));
        assert_eq!(
            kept, made,
            "git gave the checkout up instead of changing it"
        );
        world
            .github
            .merge(REPO, pull, "alice")
            .await
            .expect("a merge");
        world.answer(pull).await;
        world.cleaned().await;
        world.finish(&[]).await;
    }
}

async fn attack(settings: Settings) {
    attack_with(settings, &[]).await;
}

/// Plays an attack in which these attempts may succeed.
async fn attack_with(settings: Settings, allowed: &[&str]) {
    let is_of_server = settings.runner().is_some();
    let secrets = tempfile::tempdir().unwrap();
    let key = secrets.path().join("keys");
    std::fs::write(&key, "first key\n").unwrap();
    // A run as the user of the server has the server's rights over files.
    for (path, mode) in [
        (secrets.path(), 0o755),
        (&key, if is_of_server { 0o600 } else { 0o755 }),
    ] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    // The mirror of another repository, whose reviewed code must run unchanged.
    world
        .github
        .create_repo("acme/crown", &[("main.tf", "# honest\n")])
        .await
        .unwrap();

    let (data, report) = (world.server.data_dir(), world.dir.path().join("report"));
    let mirror = data.join("mirrors/github.test/acme/crown.git");
    std::fs::create_dir_all(mirror.join("info")).unwrap();
    std::fs::write(mirror.join("config"), "[core]\n").unwrap();
    world.server.owns(&data.join("mirrors"));
    let lockkeeper = env!("CARGO_BIN_EXE_lockkeeper");
    let server = world.server.pid();
    let script = attempts(
        &report,
        &[
            ("own checkout", "echo x >own && cat own".to_owned()),
            ("temporary files", "f=$(mktemp) && echo x >\"$f\" && rm \"$f\"".to_owned()),
            ("system", "cat /etc/ssl/certs/ca-certificates.crt /usr/bin/env >/dev/null || ls /usr/bin".to_owned()),
            ("keys", format!("cat '{}'", key.display())),
            ("database", format!("cat '{}'", data.join("lockkeeper.db").display())),
            ("change the database", format!("echo >>'{}'", data.join("lockkeeper.db").display())),
            // In namespaces only the directories on the way to allowed files exist, with nothing else in them.
            ("list the data directory", format!("ls '{}' | grep -q lockkeeper.db", data.display())),
            ("filter in another mirror", format!("echo '[filter]' >>'{}'", mirror.join("config").display())),
            ("attributes in another mirror", format!("echo >'{}'", mirror.join("info/attributes").display())),
            ("own mirror", format!("cat '{}'", data.join("mirrors/github.test/acme/infra.git/config").display())),
            ("plan files", format!("ls '{}'", data.join("plans").display())),
            ("programs for other runs", format!("mkdir -p '{0}' && echo >'{0}/terraform1.0.0'", data.join("bin").display())),
            ("home of the server", format!("ls '{}'", world.server.dir().join("home").display())),
            ("tokens in /proc", "cat /proc/[0-9]*/environ | grep -q LOCKKEEPER_".to_owned()),
            ("environment of the server", format!("cat /proc/{server}/environ")),
            ("memory of the server", format!("cat /proc/{server}/maps")),
            ("signal to the server", format!("kill -0 {server}")),
            // By its first argument: a program of another test that looks for the word has it among its arguments, too.
            ("signal to the supervisor", "hit=; for p in /proc/[0-9]*; do if tr '\\0' '\\n' <$p/cmdline | sed -n 2p | grep -qx supervise; then kill -0 ${p#/proc/} && hit=1; fi; done; [ -n \"$hit\" ]".to_owned()),
            ("command line", format!(
                "'{lockkeeper}' apply-lock set --data-dir '{}' --reason 'set by a plan'", data.display()
            )),
            ("fixed port", "python3 -c 'import socket; socket.socket().bind((\"127.0.0.1\", 48641))'".to_owned()),
        ],
    );
    let pull = world.open_with("feature", &provider(&script)).await;
    let said = world.answer(pull).await;
    said.is("autoplan failure | . default failed");

    let report = std::fs::read_to_string(&report)
        .unwrap_or_else(|error| panic!("{error}: nothing ran:\n{}", said.text));
    let mut seen: Vec<&str> = report.lines().collect();
    seen.sort_unstable();
    seen.dedup();
    let denied = |name: &str| {
        allowed
            .iter()
            .find(|allowed| name == format!("{allowed}: denied"))
    };
    let expected = OUTCOMES
        .map(|name| denied(name).map_or_else(|| name.to_owned(), |name| format!("{name}: done")));
    assert_eq!(seen, expected);
    for secret in [TOKEN, WEBHOOK_SECRET] {
        assert!(!said.text.contains(secret), "{}", said.text);
    }
    world.finish(&[]).await;
}

/// Git fails when it cannot read the configuration of its user, which exists on many servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modules_come_by_git_although_runs_do_not_read_what_git_is_told_of_its_user() {
    let settings = ordinary();
    let mut world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let home = world.server.dir().join("home");
    std::fs::write(
        home.join(".gitconfig"),
        "[user]\n  name = secret-of-the-operator\n",
    )
    .unwrap();
    world.server.finish().await;
    world.server.restart().await;
    assert!(
        world
            .server
            .log()
            .contains("home/.gitconfig. Add it to --sandbox-read if modules from git need it")
    );
    world
        .github
        .create_repo("acme/modules", &[("main.tf", "# a module\n")])
        .await
        .unwrap();
    let modules = world.dir.path().join("forge/git/acme/modules.git");
    world.server.owns(&modules);
    world.server.owns(&home);
    let code = world.files().backend("root")
        + &format!(
            "module \"m\" {{\n  source = \"git::file://{}\"\n}}\n",
            modules.display()
        );
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default no_changes");
    world.finish(&["#1 . default"]).await;
}

/// Returns the message of a server that does not start with `--sandbox bubblewrap`.
fn refusal_of_bubblewrap(path: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let database = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
    let flags = [
        "--sandbox=bubblewrap",
        "--port=0",
        "--gh-user=bot",
        "--repo-allowlist=github.com/acme/*",
    ];
    let secrets = [
        ("LOCKKEEPER_GH_TOKEN", TOKEN),
        ("LOCKKEEPER_GH_WEBHOOK_SECRET", WEBHOOK_SECRET),
        ("PATH", path),
    ];
    let said = lockkeeper(&["server"], &database, &flags, &secrets);
    assert_eq!(said.code, 1, "{}", said.err);
    said.err
}

#[test]
fn a_server_does_not_start_without_the_bubblewrap_it_was_told_to_use() {
    let dir = tempfile::tempdir().unwrap();
    let said = refusal_of_bubblewrap(&dir.path().display().to_string());
    assert!(said.contains("cannot use --sandbox bubblewrap"), "{said}");
    assert!(
        said.contains("the program `bwrap` is not on the PATH. Install it"),
        "{said}"
    );

    let bwrap = dir.path().join("bwrap");
    std::fs::write(
        &bwrap,
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n",
    )
    .unwrap();
    std::fs::set_permissions(&bwrap, std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = refusal_of_bubblewrap(&format!("{}:/usr/bin:/bin", dir.path().display()));
    assert!(
        said.contains(
            "cannot create namespaces here (bwrap: No permissions to create new namespace)"
        ),
        "{said}"
    );
}

#[tokio::test]
async fn a_server_does_not_start_that_cannot_have_runs_be_another_user() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this story starts servers as ordinary users, and needs root for that"
    );
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let rights =
        "server lacks CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL, CAP_SETGID, CAP_SETUID";
    for (run_as, code, why) in [
        ("4343", 1, rights),
        ("4242:4343", 1, "the server itself runs as that user"),
        ("0", 2, "neither root (0) nor"),
        ("nobody", 2, "expected numbers"),
    ] {
        let server = Cmd::new("setpriv")
            .args([
                "--reuid=4242",
                "--regid=4242",
                "--clear-groups",
                env!("CARGO_BIN_EXE_lockkeeper"),
                "server",
            ])
            .args([
                "--port=0",
                "--gh-user=bot",
                "--repo-allowlist=github.com/acme/*",
                "--data-dir",
            ])
            .arg(dir.path())
            .arg(format!("--run-as={run_as}"))
            .env("PATH", "/usr/bin:/bin")
            .env("LOCKKEEPER_GH_TOKEN", TOKEN)
            .env("LOCKKEEPER_GH_WEBHOOK_SECRET", WEBHOOK_SECRET);
        let said = server.output().await.unwrap();
        let text = said.stderr.text();
        assert_eq!(said.code, Some(code), "{run_as}: {text}");
        assert!(text.contains(why), "{run_as}: {text}");
    }
}

/// Returns a script that opens the pages in several ways, and reports for each whether there was an answer.
fn visits(port: u16, report: &Path, go: &Path) -> String {
    let (report, go) = (report.display(), go.display());
    format!(
        r#"#!/bin/sh
python3 - >>'{report}' 2>&1 <<'END'
import ctypes, os, socket

def tell(name, source):
    try:
        with socket.create_connection(("127.0.0.1", {port}), 30, (source, 0)) as page:
            page.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            answer = page.recv(1)
    except ConnectionError:
        answer = b""
    print(f"{{name}}: {{'served' if answer else 'refused'}}", flush=True)

tell("plainly", "127.0.0.1")
tell("from another address", "127.0.0.2")
ended, end = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        tell("as a daemon", "127.0.0.1")
    os._exit(0)
os.close(end)
os.read(ended, 1)
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
tell("with hidden descriptors", "127.0.0.1")
END
until [ -e '{go}' ]; do sleep 0.05; done
exit 1
"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_cannot_open_the_pages_while_others_on_the_machine_can() {
    visit(ordinary()).await;
}

/// If root runs the tests, the server and its visitors are the same user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_can_a_plan_where_its_user_is_that_of_the_visitors() {
    visit(Settings::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_can_a_plan_of_another_user_than_the_server() {
    visit(Settings::default().run_as(RUNNER)).await;
}

async fn visit(settings: Settings) {
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let (report, go) = (world.dir.path().join("report"), world.dir.path().join("go"));
    let port = world.server.events().port().unwrap();
    let pull = world
        .open_with("feature", &provider(&visits(port, &report, &go)))
        .await;
    let seen = || {
        let mut seen: Vec<String> = std::fs::read_to_string(&report)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    };
    within("the visits of the plan", async {
        while seen().len() < 4 {
            tokio::time::sleep(LOOK).await;
        }
    })
    .await;
    assert_eq!(
        seen(),
        [
            "as a daemon: refused",
            "from another address: refused",
            "plainly: refused",
            "with hidden descriptors: refused"
        ]
    );
    // The plan is still running.
    let page = format!("{}/healthz", world.server.url());
    let answer = reqwest::Client::builder()
        .no_proxy()
        .build()
        .unwrap()
        .get(&page)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let person = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1])";
    let said = run("python3", world.dir.path(), &["-c", person, &page], &[]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    world
        .server
        .logged("Refused a connection from this machine: the client is a process of a run")
        .await;
    std::fs::write(&go, "").unwrap();
    world
        .answer(pull)
        .await
        .is("autoplan failure | . default failed");
    world.finish(&[]).await;
}
