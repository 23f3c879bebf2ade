//! Tests `lockkeeper demo` as a new user runs it: the real program, real Terraform.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper::process::{
    CallOutput, Cmd, Ended, LeaseHeartbeat, OutputLine, RunExit, Supervisor,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const LOCKKEEPER: &str = env!("CARGO_BIN_EXE_lockkeeper");
/// Time limit far above the duration of the demo. A test that reaches it has failed.
const LONG: Duration = Duration::from_mins(2);

/// A demo with its own folder. Its `PATH` begins with that folder, which marks its processes.
struct Demo {
    dir: TempDir,
}

impl Demo {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        Self { dir }
    }

    fn mark(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Writes an executable shell script that claims to be Terraform. For every other request it runs `then`.
    fn script(&self, then: &str) -> PathBuf {
        let version =
            r#"if [ "$1" = version ]; then echo '{"terraform_version":"1.9.9"}'; exit; fi"#;
        self.program(&format!("{version}\n{then}"))
    }

    fn program(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("my-terraform");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    fn command(&self, args: &[&str]) -> Cmd {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = [self.mark()]
            .into_iter()
            .chain(std::env::split_paths(&path));
        let path = std::env::join_paths(dirs).unwrap();
        let command = Cmd::new(LOCKKEEPER)
            .args(["demo"])
            .args(args.iter().copied());
        let command = command.arg("--data-dir").arg(self.data());
        command
            .dir(env!("CARGO_MANIFEST_DIR"))
            .env("PATH", path)
            .env("HOME", self.dir.path())
            .deadline(LONG)
    }

    async fn run(&self, args: &[&str]) -> CallOutput {
        self.command(args).output().await.unwrap()
    }

    /// Returns the command lines of the living processes of this demo.
    fn processes(&self) -> Vec<String> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter_map(|process| command_line(&process.path(), &self.mark()))
            .collect()
    }
}

/// Returns the command line of a process whose `PATH` begins with the mark.
fn command_line(process: &Path, mark: &Path) -> Option<String> {
    let environment = std::fs::read(process.join("environ")).ok()?;
    let path = format!("PATH={}", mark.display());
    let ours = environment
        .split(|byte| *byte == 0)
        .any(|variable| variable.starts_with(path.as_bytes()));
    let line = std::fs::read(process.join("cmdline")).ok()?;
    // A process that has ended and was not waited for yet has no command line.
    (ours && !line.is_empty()).then(|| String::from_utf8_lossy(&line).replace('\0', " "))
}

/// Asserts that the text contains all of these parts, one after the other.
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let Some(at) = rest.find(part) else {
            panic!("{part:?} is missing, or comes too early, in:\n{text}")
        };
        rest = &rest[at + part.len()..];
    }
}

/// A running demo that can be interrupted.
struct Running {
    lines: mpsc::Receiver<OutputLine>,
    ctrl_c: CancellationToken,
    end: JoinHandle<RunExit>,
    seen: String,
}

impl Running {
    fn start(command: Cmd) -> Self {
        let supervisor = Supervisor {
            exe: LOCKKEEPER.into(),
            grace: LONG,
            heartbeat: LeaseHeartbeat::unneeded(),
        };
        let (sender, lines) = mpsc::channel(256);
        let ctrl_c = CancellationToken::new();
        let token = ctrl_c.clone();
        let run = command.supervised(&supervisor);
        let end = tokio::spawn(async move { run.run(sender, &token).await.unwrap() });
        Self {
            lines,
            ctrl_c,
            end,
            seen: String::new(),
        }
    }

    /// Reads until a line contains this text.
    async fn until(&mut self, text: &str) {
        while let Some(line) = self.lines.recv().await {
            self.seen.push_str(&line.text);
            self.seen.push('\n');
            if line.text.contains(text) {
                return;
            }
        }
        panic!("{text:?} never came:\n{}", self.seen);
    }

    /// Sends SIGINT, as Ctrl-C does.
    async fn interrupt(mut self) -> (RunExit, String) {
        self.ctrl_c.cancel();
        self.until("Stopping.").await;
        (self.end.await.unwrap(), self.seen)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_story_holds() {
    let demo = Demo::new();
    let output = demo.run(&["--exit"]).await;
    let text = output.stdout.text();
    assert_eq!(
        (output.code, &*output.stderr.text()),
        (Some(0), ""),
        "{text}"
    );
    assert_in_order(
        &text,
        &[
            "Sandbox     each run may use only its own files, enforced by Landlock",
            "1/20",
            "alice opens #1",
            "Plan: 3 to add, 0 to change, 0 to destroy.",
            "✓ #1 holds the lock of `network`",
            "2/20",
            "bob opens #2",
            "pull request #1",
            "holds the lock",
            "next in the queue",
            "… lockkeeper/plan",
            "Waiting for #1 (alice), next in the queue.",
            "✓ #1 still holds the lock",
            "alice comments on #1: lockkeeper aply",
            "Did you mean `apply`?",
            "alice comments on #1: lockkeeper apply",
            "3 added, 0 changed, 0 destroyed.",
            "✓ lockkeeper/apply",
            "✓ Terraform's state has the 3 resources",
            "alice merges #1",
            "✓ #2 was next in the queue and now holds the lock",
            "The lock became free",
            "Plan: 1 to add, 0 to change, 0 to destroy.",
            "✓ #2 holds the lock",
            "network-team: lockkeeper apps add",
            "✓ the network team owns the repository",
            "database-team: lockkeeper apps add",
            "is owned by",
            "✓ the answer names the owner",
            "carol pushes to main",
            "✓ both mirrors have the new commit and are verified",
            "olga edits watch.config: git push origin HEAD:refs/users/self",
            "✓ her account watches the repository",
            "olga edits account.config",
            "is on no external ID",
            "✓ her account is unchanged",
            "network-team: lockkeeper apps add",
            "lockkeeper registry namespaces add acme --owner network-team",
            "✓ all names that begin with `acme/` belong to the network team",
            "emil: git tag v1.0.0 && git push origin v1.0.0",
            "✓ lockkeeper/publish: acme/vpc/aws 1.0.0",
            "✓ the registry has version 1.0.0",
            "dave opens #3",
            "Plan: 2 to add, 0 to change, 0 to destroy.",
            "public-staging",
            "✓ the registry knows that the plan of #3 uses version 1.0.0",
            "emil: git tag v1.1.0 && git push origin main v1.1.0",
            "✓ lockkeeper/publish: acme/vpc/aws 1.1.0",
            "✓ the registry has version 1.1.0",
            "emil: lockkeeper registry deprecate acme/vpc/aws 1.0.0",
            "✓ version 1.0.0 is deprecated",
            "dave comments on #3: lockkeeper plan",
            "deprecated",
            "✓ the comment names the deprecated version and the reason",
            "emil: lockkeeper registry takedown acme/vpc/aws 1.0.0",
            "✓ version 1.0.0 is a tombstone",
            "dave comments on #3: lockkeeper apply",
            "Apply refused",
            "✓ `app` is not applied",
            "✓ the answer names the way out",
            "lockkeeper registry peers invite",
            "modules.acme.example at http://127.0.0.1:",
            "✓ the partner has version 1.1.0, with its package",
            "✓ the partner has the tombstone of version 1.0.0",
            "✓ All 20 steps succeeded",
        ],
    );
    for hidden in ["<!--", "<details>", "\u{1b}"] {
        assert!(!text.contains(hidden), "{hidden:?} in:\n{text}");
    }
    assert_eq!(demo.processes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terraform_that_fails_ends_the_story_with_what_was_seen() {
    let demo = Demo::new();
    let terraform = demo.script("echo 'Error: the disk is made of cheese' >&2; exit 1");
    let output = demo
        .run(&["--exit", "--terraform", terraform.to_str().unwrap()])
        .await;
    let text = output.stdout.text();
    assert_eq!(output.code, Some(1), "{text}");
    assert_in_order(
        &text,
        &[
            "Plan failed",
            "the disk is made of cheese",
            "✗ only `network` is planned",
            "expected: network planned",
            "seen:     network failed",
            "The demo ends here",
            "Last lines of the server's log:",
            "Lockkeeper has stopped",
        ],
    );
    assert!(
        demo.data().join("lockkeeper.log").is_file(),
        "the log is kept"
    );
    assert_eq!(demo.processes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_no_terraform_is_refused_before_anything_begins() {
    let demo = Demo::new();
    let program = demo.program("echo I am a teapot");
    let output = demo
        .run(&["--exit", "--terraform", program.to_str().unwrap()])
        .await;
    assert_eq!((output.code, &*output.stdout.text()), (Some(1), ""));
    assert_in_order(
        &output.stderr.text(),
        &[
            "error: ",
            "my-terraform cannot be used as Terraform",
            "I am a teapot",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_terraform_is_told_with_the_way_out() {
    let demo = Demo::new();
    let command = demo
        .command(&["--exit"])
        .env("PATH", demo.mark())
        .dir(demo.dir.path());
    let output = command.output().await.unwrap();
    assert_eq!(output.code, Some(1));
    let problem = output.stderr.text();
    assert_in_order(
        &problem,
        &[
            "neither `terraform` nor `tofu`",
            "--terraform PROGRAM",
            "`make demo`",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_stays_up_until_ctrl_c() {
    let demo = Demo::new();
    let mut running = Running::start(demo.command(&[]));
    running.until("Ctrl-C").await;
    let address = running
        .seen
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("Dashboard"))
        .unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let sign_in = running
        .seen
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("Sign in"))
        .unwrap();
    let (user, password) = sign_in
        .trim()
        .strip_prefix("as ")
        .unwrap()
        .split_once(", password ")
        .unwrap();
    let page = client.get(address.trim()).send().await.unwrap();
    assert_eq!(page.status(), 401);
    let page = client
        .get(address.trim())
        .basic_auth(user, Some(password))
        .send()
        .await
        .unwrap();
    assert_eq!(page.status(), 200);
    assert!(
        page.text().await.unwrap().contains("infrastructure"),
        "the lock is on the page"
    );
    let (exit, seen) = running.interrupt().await;
    assert_eq!((exit.code, exit.how), (Some(0), Ended::Cancelled), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_in_the_middle_ends_the_terraform_that_runs() {
    let demo = Demo::new();
    let told = demo.data().join("states/told");
    let terraform = demo.script(&format!(
        "trap 'echo interrupted >{}; exit 1' INT\necho hanging\nsleep 1000 &\nwait",
        told.display()
    ));
    let mut running = Running::start(demo.command(&[
        "--exit",
        "--verbose",
        "--terraform",
        terraform.to_str().unwrap(),
    ]));
    running.until("Accepted a delivery").await;
    while !demo
        .processes()
        .iter()
        .any(|line| line.contains("sleep 1000"))
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (exit, seen) = running.interrupt().await;
    assert_eq!((exit.code, exit.how), (Some(1), Ended::Cancelled), "{seen}");
    assert!(exit.duration < LONG, "it ended by itself");
    assert_eq!(std::fs::read_to_string(told).unwrap(), "interrupted\n");
}
