//! Tests the pages in a real Chromium, as people see them: on a phone and on a desktop, in light and dark, with and
//! without scripts. Screenshots are in `target/screenshots`.

mod chromium;
mod site;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use axum::Router;
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::response::Html;
use axum::routing::get;
use lockkeeper::config::access::WebRules;
use serde::Deserialize;
use serde_json::{Value, json};

use self::chromium::{Problem, assert_none, browse};
use self::site::{ATTACK, ATTACK_PATH, ATTACK_WORKSPACE, Site, hostile, long_names};
use crate::e2e::gates::ApplyGate;
use crate::e2e::world::{World, resource};
use crate::pages;
use crate::pages::operations::{misconfigured_world, troubled_world};
use crate::support::server::Settings;

/// Result of looking at some pages.
#[derive(Deserialize)]
struct Looked {
    /// HTTP statuses by the name of the page.
    statuses: BTreeMap<String, u16>,
    problems: Vec<Problem>,
}

/// Sizes and colour schemes: all combinations.
const ALL_LOOKS: [[&str; 2]; 4] = [
    ["phone", "light"],
    ["phone", "dark"],
    ["desk", "light"],
    ["desk", "dark"],
];
const TWO_LOOKS: [[&str; 2]; 2] = [["phone", "light"], ["desk", "dark"]];

/// Error of a refused `--repo-config` file, with lines that are too long for a phone.
const REFUSED: &str = "error: `allowed_overides` is not a key of an entry of `repos`\n --> /etc/lockkeeper/repos.yaml:3:5\n  \
    |\n3 |     allowed_overides: [workflow]\n  |     ^^^^^^^^^^^^^^^^\n  = help: did you mean `allowed_overrides`?\n";

/// A page: its name, its address, and texts that must be readable on it.
type View<'a> = (&'a str, String, &'a [&'a str]);

async fn look(views: &[View<'_>], looks: &[[&str; 2]]) -> Looked {
    let view = |(name, url, texts): &View<'_>| json!({ "name": name, "url": url, "texts": texts });
    browse(json!({ "job": "look", "views": views.iter().map(view).collect::<Value>(), "looks": looks })).await
}

#[tokio::test]
async fn every_page_fits_every_screen_can_be_used_by_everybody_and_stays_at_home() {
    let (mut world, shown) = long_names().await;
    let site = Site::serve(world.signed_in_app().await).await;
    let idle = world
        .store
        .lock_list()
        .await
        .unwrap()
        .into_iter()
        .find(|lock| lock.id != shown.lock)
        .unwrap()
        .id;
    world.web_rules = WebRules::new(&["none"]).unwrap();
    let closed = Site::serve(world.signed_in_app().await).await;
    let unused = pages::fixture::World::new().await;
    let new = Site::serve(unused.signed_in_app().await).await;
    let stopped = pages::apply_locks::world().await;
    let frozen = Site::serve(stopped.signed_in_app().await).await;
    let teams = pages::credentials::world().await;
    let owned = Site::serve(teams.signed_in_app().await).await;
    let night = troubled_world("a server of Kim's", "GitHub answered 502 Bad Gateway").await;
    let troubled = Site::serve(night.signed_in_app().await).await;
    let mistaken = misconfigured_world(REFUSED).await;
    let misconfigured = Site::serve(mistaken.signed_in_app().await).await;
    let (exclusive, mirrored) = (pages::leases::world().await, pages::repos::world().await);
    let (leased, kept) = (
        Site::serve(exclusive.signed_in_app().await).await,
        Site::serve(mirrored.signed_in_app().await).await,
    );
    let (registered, [planned, busy]) = pages::apps::world().await;
    let apps = Site::serve(registered.signed_in_app().await).await;
    let looked = look(
        &[
            (
                "empty",
                new.at("/"),
                &["No locks are held.", "No commands yet."],
            ),
            (
                "home",
                site.at("/"),
                &["Applies are allowed", "prod-eu-transit-gateway", "mallory"],
            ),
            (
                "search",
                site.at("/locks?q=nowhere"),
                &["None of the 3 locks match"],
            ),
            (
                "lock",
                site.at(&format!("/locks/{}", shown.lock)),
                &[
                    "Release the lock",
                    "2 to add, 1 to change",
                    "Yes, release by force",
                    "Yes, hand over to #14",
                ],
            ),
            (
                "lock-idle",
                site.at(&format!("/locks/{idle}")),
                &["Yes, release", "The queue is empty."],
            ),
            (
                "lock-closed",
                closed.at(&format!("/locks/{}", shown.lock)),
                &[
                    "These pages cannot release locks by force",
                    "These pages cannot hand locks over",
                ],
            ),
            (
                "finished",
                site.at(&format!("/jobs/{}", shown.finished)),
                &[
                    "planned",
                    "Needs 2 approvals from members of christopher-montgomery.",
                    "Nobody has approved the violations of this plan.",
                    "colour 97",
                ],
            ),
            (
                "running",
                site.at(&format!("/jobs/{}", shown.running)),
                &["running", "Live: new lines appear"],
            ),
            (
                "apply-locks",
                frozen.at("/apply-locks"),
                &["Everywhere", "no changes over the weekend", "no end time"],
            ),
            (
                "frozen",
                frozen.at("/"),
                &["All applies are stopped", "2 more apply locks"],
            ),
            ("owners", owned.at("/owners"), &["net", "web", "ada"]),
            (
                "owner",
                owned.at("/owners/net"),
                &[
                    "a-repository-with-a-long-name",
                    "a token",
                    "user ci-bot",
                    "never",
                ],
            ),
            (
                "app",
                apps.at(&planned),
                &["2 to add, 1 to change", "Apply…", "Discard the plan"],
            ),
            (
                "app-busy",
                apps.at(&busy),
                &["A run is in progress", "Cancel…"],
            ),
            ("claims", owned.at("/claims"), &["All owners", "shop"]),
            (
                "audit",
                owned.at("/audit"),
                &[
                    "All owners",
                    "repository claimed",
                    "registered",
                    "by comment",
                ],
            ),
            ("no-owners", new.at("/owners"), &["No owners yet."]),
            (
                "no-claims",
                new.at("/claims"),
                &["No repository is claimed"],
            ),
            ("no-audit", new.at("/audit"), &["No events yet."]),
            (
                "no-apply-locks",
                new.at("/apply-locks"),
                &["No apply locks.", "Stop these applies"],
            ),
            (
                "operations-empty",
                new.at("/operations"),
                &["No problems found.", "No jobs are queued or running."],
            ),
            (
                "operations",
                troubled.at("/operations"),
                &["Needs attention", "closed_pulls", "intact"],
            ),
            (
                "operations-refused",
                misconfigured.at("/operations"),
                &["refused", "is not a key of an entry"],
            ),
            (
                "leases",
                leased.at("/operations"),
                &["Leases", "its server is gone", "Release…"],
            ),
            ("repos-empty", new.at("/repos"), &["No mirrors yet."]),
            (
                "repos",
                kept.at("/repos"),
                &[
                    "The forge refused the credentials.",
                    "differs",
                    "waiting",
                    "syncing",
                ],
            ),
            (
                "repo",
                kept.at(&format!("/repos/{}", pages::repos::INFRA)),
                &[
                    "The last sync failed",
                    "Checksum of the references",
                    "Request a sync",
                ],
            ),
            ("missing", site.at("/nowhere"), &["404", "Page not found"]),
        ],
        &ALL_LOOKS,
    )
    .await;
    assert_none(&looked.problems);
    let refused: Vec<_> = looked
        .statuses
        .into_iter()
        .filter(|(_, status)| *status != 200)
        .collect();
    assert_eq!(refused, [("missing".to_owned(), 404)]);
}

#[tokio::test]
async fn hostile_text_is_read_and_not_run() {
    let (world, shown) = hostile().await;
    let site = Site::serve(world.signed_in_app().await).await;
    let night = troubled_world(ATTACK, ATTACK).await;
    let troubled = Site::serve(night.signed_in_app().await).await;
    let attacks = [ATTACK, ATTACK_PATH, ATTACK_WORKSPACE];
    let looked = look(
        &[
            (
                "hostile-home",
                site.at("/"),
                &[
                    "All applies are stopped",
                    ATTACK,
                    ATTACK_PATH,
                    ATTACK_WORKSPACE,
                ],
            ),
            (
                "hostile-apply-locks",
                site.at("/apply-locks"),
                &[ATTACK, ATTACK_PATH],
            ),
            ("hostile-audit", site.at("/audit"), &attacks),
            (
                "hostile-lock",
                site.at(&format!("/locks/{}", shown.lock)),
                &attacks,
            ),
            (
                "hostile-finished",
                site.at(&format!("/jobs/{}", shown.finished)),
                &attacks,
            ),
            (
                "hostile-running",
                site.at(&format!("/jobs/{}", shown.running)),
                &attacks,
            ),
            ("hostile-operations", troubled.at("/operations"), &[ATTACK]),
            (
                "hostile-search",
                site.at("/?q=%22%3E%3Cscript%3Eran=1%3C/script%3E"),
                &["\"><script>ran=1</script>"],
            ),
            (
                "hostile-address",
                site.at("/locks/%3Cscript%3Eran=1%3C%2Fscript%3E"),
                &["<script>ran=1</script>"],
            ),
        ],
        &TWO_LOOKS,
    )
    .await;
    assert_none(&looked.problems);
}

/// A page with every fault that the tests above look for.
const BAD_PAGE: &str = "<!doctype html><title>x</title><input><p style=\"width: 2000px\">wide</p>\
    <img src=\"http://evil.example/x\"><script>ran=1</script>";

#[tokio::test]
async fn a_bad_page_would_be_noticed() {
    let policy = [(CONTENT_SECURITY_POLICY, "script-src 'none'")];
    let app = Router::new()
        .route("/", get(|| async { Html(BAD_PAGE) }))
        .route(
            "/strict",
            get(move || async move { (policy, Html("<script>ran=1</script>")) }),
        );
    let site = Site::serve(app).await;
    let views: [View<'_>; 2] = [
        ("bad", site.at("/"), &["nowhere"]),
        ("bad-strict", site.at("/strict"), &[]),
    ];
    let looked = look(&views, &TWO_LOOKS[..1]).await;
    let kinds: BTreeSet<&str> = looked
        .problems
        .iter()
        .map(|problem| problem.kind.as_str())
        .collect();
    let all = [
        "accessibility",
        "console",
        "foreign request",
        "missing text",
        "script",
        "sideways scrolling",
    ];
    assert_eq!(kinds, BTreeSet::from(all));
    let blocked = |problem: &&Problem| {
        problem.kind == "console" && problem.what.contains("Content Security Policy")
    };
    assert_eq!(
        looked.problems.iter().filter(blocked).count(),
        1,
        "{:?}",
        looked.problems
    );
}

#[derive(Deserialize)]
struct Switched {
    stopped: String,
    allowed: String,
    released: String,
    scripts: bool,
    problems: Vec<Problem>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_applies_are_stopped_and_allowed_and_a_lock_is_given_back() {
    let settings = Settings::default()
        .flag("--web-basic-auth")
        .flag("--web-username=ops");
    let settings = settings.variable("LOCKKEEPER_WEB_PASSWORD", "correct horse battery");
    let world = World::start_with(settings, |files| vec![("main.tf", files.backend("root"))]).await;
    let pull = world
        .open("feature", &[("x.tf", &resource("a", "1"))])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");

    let user = json!({ "username": "ops", "password": "correct horse battery" });
    let task = json!({ "job": "switchAndRelease", "url": world.server.url(), "user": user, "reason": ATTACK });
    let seen: Switched = browse(task).await;
    assert_none(&seen.problems);
    assert!(
        seen.stopped
            .contains("All applies are stopped. Running applies continue"),
        "{}",
        seen.stopped
    );
    assert!(
        seen.stopped.contains(&format!("{ATTACK}\n\nby ops")),
        "{}",
        seen.stopped
    );
    assert!(
        seen.allowed.contains("Applies are allowed again."),
        "{}",
        seen.allowed
    );
    assert!(
        seen.released
            .contains("The lock was released, and its plans were discarded."),
        "{}",
        seen.released
    );
    assert!(!seen.scripts);

    world
        .answer(pull)
        .await
        .is("lock_lost success | . default discarded");
    world.finish(&[]).await;
}

/// Observations of a person who watches a run.
#[derive(Deserialize)]
struct Watched {
    /// Status of a page without the password, and with it.
    refused: u16,
    welcome: u16,
    running: Facts,
    ended: Facts,
    /// Classes of the lines that were printed while the page was open.
    appeared: [String; 2],
    /// Number of times that the page was loaded meanwhile.
    loads: u32,
    scripts: bool,
    problems: Vec<Problem>,
}

#[derive(Deserialize)]
struct Facts {
    title: String,
    facts: String,
}

/// Lines that a provisioner prints. It waits at a pipe between them.
const LINES: [&str; 3] = [
    "the first line",
    "<script>ran=1</script> in bold red",
    "the last line, in green",
];

/// Returns code with a provisioner that prints the lines. Its script is a file because Terraform shows the command.
fn code_that_prints(dir: &Path, gate: &ApplyGate) -> String {
    let [first, second, third] = LINES;
    let script = format!(
        "exec 3< '{}'\necho '{first}'\nread -r go <&3\nprintf '\\033[1;31m%s\\033[0m\\n' '{second}'\nread -r go <&3\n\
         printf '\\033[32m%s\\033[0m\\n' '{third}'\n",
        gate.pipe().display()
    );
    let file = dir.join("print.sh");
    std::fs::write(&file, script).unwrap();
    let command = format!("sh '{}'", file.display());
    format!(
        "resource \"terraform_data\" \"slow\" {{\n  provisioner \"local-exec\" {{\n    command = \"{command}\"\n  }}\n}}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_knows_the_password_watches_a_run_to_its_end_without_a_reload() {
    let settings = Settings::default()
        .flag("--web-basic-auth")
        .flag("--web-username=ops");
    let settings = settings.variable("LOCKKEEPER_WEB_PASSWORD", "correct horse battery");
    let world = World::start_with(settings, |files| vec![("main.tf", files.backend("root"))]).await;
    let gate = ApplyGate::new(world.dir.path());
    let pull = world
        .open(
            "feature",
            &[("x.tf", &code_that_prints(world.dir.path(), &gate))],
        )
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.comment(pull, "lockkeeper apply").await;
    let applying = gate.reached().await;

    let user = json!({ "username": "ops", "password": "correct horse battery" });
    let task = json!({ "job": "watch", "url": world.server.url(), "user": user, "gate": gate.pipe(), "lines": LINES });
    let seen: Watched = browse(task).await;
    assert_none(&seen.problems);
    assert_eq!((seen.refused, seen.welcome), (401, 200));
    assert_eq!(seen.running.title, "Apply of ., running · Lockkeeper");
    assert!(
        seen.running.facts.contains("Running for"),
        "{}",
        seen.running.facts
    );
    assert_eq!(seen.appeared, ["b c1", "c2"]);
    assert_eq!(seen.ended.title, "Apply of ., applied · Lockkeeper");
    assert!(seen.ended.facts.contains("Took"), "{}", seen.ended.facts);
    assert_eq!((seen.loads, seen.scripts), (0, false));

    drop(applying);
    world
        .answer(pull)
        .await
        .is("apply success | . default applied");
    world.finish(&["#1 . default"]).await;
}
