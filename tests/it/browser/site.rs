//! Serves pages with content on a real socket.

use axum::Router;
use lockkeeper::model::{
    Actor, CommandKind, CommandOutcome, LockId, ProjectKey, ProjectOutcome, PullRef, RunId,
    RunKind, Sha256Digest, Subject,
};
use lockkeeper_policy::findings::{AppliedWaiver, FindingLevel, PolicyFinding};
use lockkeeper_policy::sets::{SetDigest, SetName};
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::pages::fixture::{World, project, pull};
use crate::pages::home::busy_world;
use crate::support::db::{applies_in, stop_applies, stop_applies_of};

/// Text that would set a global variable of the browser if it were more than text. The script looks for `ran`.
pub const ATTACK: &str =
    "\"'></textarea><script>ran=1</script><img src=x onerror=ran=1>{{ 1111*1111 }}";
/// The same as [`ATTACK`] for paths and workspaces, which contain neither spaces nor slashes.
pub const ATTACK_PATH: &str = "a\"'><script>ran=1</script><img src=x onerror=ran=1>";
pub const ATTACK_WORKSPACE: &str = "w\"'><script>ran=1<script>";

/// A server on its own port.
pub struct Site {
    url: String,
    _server: AbortOnDropHandle<()>,
}

impl Site {
    pub async fn serve(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// Returns the address of a page.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

/// A lock with a plan, the run that made the plan, and a run that still goes on.
pub struct Shown {
    pub lock: LockId,
    pub finished: RunId,
    pub running: RunId,
}

/// Creates a world with long names, all colours, and lines that fit on no screen.
pub async fn long_names() -> (World, Shown) {
    let world = busy_world().await;
    let infra = pull(
        "github.com/acme/a-rather-long-repository-name-for-infrastructure",
        12,
    );
    let tgw = project(
        "environments/production/eu-central-1/network/transit-gateway",
        "production-eu-central-1",
        Some("prod-eu-transit-gateway"),
    );
    let shown = fill(&world, &infra, &tgw, "christopher-montgomery", &output()).await;
    (world, shown)
}

/// Creates the same world with an [`ATTACK`] in every text that comes from other people.
pub async fn hostile() -> (World, Shown) {
    let world = World::new().await;
    let infra = pull("github.com/acme/infra", 1);
    let shown = fill(
        &world,
        &infra,
        &project(ATTACK_PATH, ATTACK_WORKSPACE, None),
        ATTACK,
        &format!("{ATTACK}\n"),
    )
    .await;
    stop_applies(&world.store, ATTACK, ATTACK).await;
    stop_applies_of(
        &world.store,
        &applies_in("github.com/acme/infra", ATTACK_PATH),
        None,
        ATTACK,
        ATTACK,
    )
    .await;
    (world, shown)
}

async fn fill(world: &World, pull: &PullRef, project: &ProjectKey, who: &str, text: &str) -> Shown {
    let lock = world
        .lock(
            pull,
            project,
            who,
            &format!("planned by a comment of {who}"),
        )
        .await;
    let command = world
        .command(CommandKind::Plan, pull, Actor::commenter(who))
        .await;
    let finished = world.run(command, RunKind::Plan, pull, project).await;
    world.print(finished, 1, text).await;
    world
        .checked_plan(&lock, finished, &[verdict(who), not_evaluated(who)])
        .await;
    world.wait(70);
    world
        .end_run(
            finished,
            ProjectOutcome::Planned,
            Some(&format!("Plan: 2 to add. Told to {who}.")),
        )
        .await;
    world
        .end_command(command, CommandOutcome::Success, Some(who))
        .await;
    let command = world
        .command(CommandKind::Apply, pull, Actor::commenter(who))
        .await;
    world.store.command_start(command, None, &[]).await.unwrap();
    let running = world.run(command, RunKind::Apply, pull, project).await;
    world.print(running, 1, text).await;
    for n in 0..6 {
        let module = format!("{}/{n}", project.dir).parse().unwrap();
        world
            .run(
                command,
                RunKind::Apply,
                pull,
                &ProjectKey {
                    dir: module,
                    ..project.clone()
                },
            )
            .await;
    }
    for number in 13..15 {
        world
            .waiting(
                &PullRef {
                    subject: Subject::pull(number),
                    ..pull.clone()
                },
                project,
                who,
            )
            .await;
    }
    world.wait(42);
    Shown {
        lock: lock.id,
        finished,
        running,
    }
}

/// Returns the verdict of a violated set, with a resource whose name fits on no screen of a phone.
fn verdict(who: &str) -> Verdict {
    let resource = format!("terraform_data.{}", "orders_of_all_customers_".repeat(4));
    let denied = PolicyFinding {
        resource: Some(resource.clone()),
        link: Some("https://policies.example/keep".to_owned()),
        evidence: Some(format!("{resource} {who}")),
        ..PolicyFinding::deny(
            format!("main.deny {who}"),
            format!("{resource} would be destroyed {who}"),
        )
    };
    let waiver = AppliedWaiver {
        reason: who.to_owned(),
        owner: who.to_owned(),
        until: "2026-12-31".to_owned(),
    };
    let level = FindingLevel::RequireApproval {
        count: 2,
        teams: vec![who.to_owned()],
    };
    Verdict {
        outcome: VerdictOutcome::Failed,
        tool: Some(who.to_owned()),
        content: Some(Sha256Digest::of(b"policies")),
        findings: vec![
            denied.clone(),
            PolicyFinding {
                level,
                ..denied.clone()
            },
            PolicyFinding {
                waived: Some(waiver),
                ..denied
            },
        ],
        set: SetName::parse("databases").unwrap(),
        items: vec![Sha256Digest::of(b"item")],
        notes: vec![format!("A waiver has ended. Its owner is {who}.")],
        ..not_evaluated(who)
    }
}

/// Returns the verdict of a set that was not evaluated, with an address that fits on no screen of a phone.
fn not_evaluated(who: &str) -> Verdict {
    let address = format!("https://policies.example/{}", "0123456789".repeat(8));
    let set = SetName::parse("basics").unwrap();
    let definition = SetDigest(Sha256Digest::of(b"definition"));
    let why = format!("{address} cannot be fetched {who}");
    let origin = format!("the directory {who}");
    Verdict::not_evaluated(&set, definition, origin, why, format!("{address} {who}"))
}

fn output() -> String {
    let plan = "\u{1b}[1mInitializing the backend...\u{1b}[0m\n\n\
        \u{1b}[1m\u{1b}[32mTerraform has been successfully initialized!\u{1b}[0m\n\n\
        Resource actions are indicated with the following symbols:\n  \u{1b}[32m+\u{1b}[0m create\n  \
        \u{1b}[33m~\u{1b}[0m update in-place\n  \u{1b}[31m-\u{1b}[0m destroy\n\n\
        \u{1b}[1m  # terraform_data.a\u{1b}[0m will be created\n  \
        \u{1b}[32m+\u{1b}[0m\u{1b}[0m resource \"terraform_data\" \"a\" {\n      \
        \u{1b}[32m+\u{1b}[0m id    = (known after apply)\n      \
        \u{1b}[32m+\u{1b}[0m input = \"a value that has to be wrapped because it fits neither on the screen of a phone \
        nor on that of a desk, where people hope that it would\"\n    }\n\n";
    let all: Vec<String> = (30..38)
        .chain(90..98)
        .map(|n| format!("\u{1b}[{n}mcolour {n} "))
        .collect();
    let all = all.concat();
    let unbroken = "0123456789abcdef".repeat(20);
    format!(
        "{plan}{all}\u{1b}[0m\u{1b}[2mfaint \u{1b}[3mitalic \u{1b}[4munderlined\u{1b}[0m\n{unbroken}\n"
    )
}
