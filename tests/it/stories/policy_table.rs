//! A table of every way in which a verdict of policies can be missing, stale or damaged. However the apply is requested, nothing
//! is applied, and the refusal says why.

use std::path::Path;
use std::time::Duration;

use lockkeeper::emulator::NewTeam;
use lockkeeper::features::applications::ApplicationAction;
use lockkeeper::model::PullNumber;
use serde_json::{Value, json};

use super::applications::{network, told};
use super::policy_approvals::{APPLY, PUBLIC, WIDER, applies, config, owned_by, set, tells};
use super::policy_gate::reload;
use crate::support::bot::Bot;
use crate::support::db::{Backend, execute, story};

story!(
    nothing_is_applied_without_a_verdict_that_counts,
    the_api_applies_nothing_without_a_verdict_that_counts,
);

/// Directory of a project, and the parts of the refusal of its plan.
type Way = (&'static str, &'static [&'static str]);

/// Ways in which the verdict of a plan does not count. Each project has a policy set of its own.
const WAYS: [Way; 16] = [
    // The plan and its verdicts: there are none, they are of another plan, or the row was changed.
    (
        "bare",
        &["`foreign` was not checked, because it was added after the plan"],
    ),
    (
        "foreign",
        &["`foreign` was not evaluated (The stored verdict is damaged: "],
    ),
    (
        "damaged",
        &["`damaged` was not evaluated (The stored verdict is damaged: "],
    ),
    // The configuration after the plan.
    (
        "added",
        &["`added` was not checked, because it was added after the plan"],
    ),
    ("changed", &["`changed` was changed after the plan"]),
    (
        "removed",
        &["`removed` was removed from the configuration after the plan"],
    ),
    // Sets that could not be evaluated.
    (
        "tool",
        &["`tool` was not evaluated (`run: no-such-checker --all` (step 3 of the workflow"],
    ),
    (
        "crash",
        &["`crash` was not evaluated (conftest ended with exit code 1: Error: running test"],
    ),
    (
        "silent",
        &[
            "`silent` was not evaluated (conftest ended with exit code 0, and its report cannot be used",
        ],
    ),
    ("rego", &["`rego` was not evaluated ("]),
    (
        "web",
        &[
            "`web` was not evaluated (",
            "there is no function `http.send`",
        ],
    ),
    ("gone", &["`gone` was not evaluated (the policies in "]),
    (
        "huge",
        &[
            "`huge` was not evaluated (the plan as JSON has 191 MiB, and at most 128 MiB are evaluated",
            "`huge inside` was not evaluated (the plan as JSON has 191 MiB, and at most 64 MiB are evaluated",
        ],
    ),
    // What let the violation pass does so no more.
    (
        "waiver",
        &["the waiver for `waiver` ended after this plan was made"],
    ),
    ("sticky", &["`sticky` is violated and has 0 of 1 approval"]),
    ("team", &["`team` is violated and has 0 of 1 approval"]),
];

/// Directory of a project, and parts of the comment with its plan, which shows the problems that exist at that time.
const AT_PLAN: [Way; 12] = [
    (FINE, &["**✅ Policies passed**: `fine`"]),
    (
        "tool",
        &[
            "**Policy set `tool`**: not evaluated: `run: no-such-checker --all` (step 3 of the workflow",
        ],
    ),
    (
        "crash",
        &[
            "**Policy set `crash`**: not evaluated: conftest ended with exit code 1: Error: running test",
        ],
    ),
    (
        "silent",
        &[
            "**Policy set `silent`**: not evaluated: conftest ended with exit code 0, and its report cannot be used",
        ],
    ),
    (
        "rego",
        &[
            "**Policy set `rego`**: not evaluated: ",
            "main.rego:4:1: expecting expression",
        ],
    ),
    (
        "web",
        &[
            "**Policy set `web`**: not evaluated: ",
            "there is no function `http.send`",
        ],
    ),
    (
        "gone",
        &["**Policy set `gone`**: not evaluated: the policies in "],
    ),
    (
        "huge",
        &[
            "**Policy set `huge`**: not evaluated: the plan as JSON has 191 MiB, and at most 128 MiB are evaluated",
            "**Policy set `huge inside`**: not evaluated: the plan as JSON has 191 MiB, and at most 64 MiB are evaluated",
        ],
    ),
    (
        "waiver",
        &[
            "**Policy set `waiver`**: passed",
            "Waived by `bob` until 2026-03-02: known",
        ],
    ),
    (
        "sticky",
        &["**Policy set `sticky`**: 1 violation, 0 of 1 approval"],
    ),
    (
        "team",
        &["**Policy set `team`**: 1 violation, 0 of 1 approval"],
    ),
    ("foreign", &["**✅ Policies passed**: `foreign`"]),
];

/// Directory of a project whose verdict counts.
const FINE: &str = "fine";

/// Policy with a request, which the engine of this program refuses.
const FETCHES: &str =
    "\ndeny contains \"m\" if http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1/\"})";

/// Waivers that end on the day of the plans.
const WAIVERS: &str = "waivers: [{rule: main.deny, resource: terraform_data.it, reason: known, owner: bob, until: 2026-03-02}]\n";

/// Checks that a text has all parts of the way of a directory.
fn assert_told(text: &str, dir: &str, ways: &[Way]) {
    let (_, parts) = ways.iter().find(|way| way.0 == dir).expect(dir);
    for part in *parts {
        assert!(text.contains(part), "{dir}: {part}\n{text}");
    }
}

/// Returns a set for one directory, with further keys. Its name is that of the directory.
fn own(dir: &Path, name: &str, orders: &str, more: &Value) -> Value {
    let keys = json!({"owners": {"users": ["bob"]}, "when": {"dirs": [name]}});
    let mut own = set(dir, name, orders, &keys);
    let more = more.as_object().unwrap().clone();
    own.as_object_mut().unwrap().extend(more);
    own
}

/// Returns the sets when the plans are made. `added` comes later.
fn sets_of_plans(dir: &Path) -> Vec<Value> {
    let none = json!({});
    let inside = json!({"engine": "embedded"});
    let both = json!({"when": {"dirs": ["foreign", "bare"]}});
    let waivers = json!({"waivers": {"branch": "main", "path": "waivers.yaml"}});
    let sticky = json!({"sticky_policy_approvals": true});
    let team = json!({"owners": {"teams": ["acme/ops"]}});
    let large = json!({"engine": "embedded", "when": {"dirs": ["huge"]}});
    let by_step = json!({
        "name": "tool", "engine": "steps", "owners": {"users": ["bob"]}, "when": {"dirs": ["tool"]},
    });
    vec![
        own(dir, FINE, "", &none),
        own(dir, "foreign", "", &both),
        own(dir, "damaged", "", &none),
        own(dir, "changed", "", &none),
        own(dir, "removed", "", &none),
        by_step,
        own(dir, "crash", "# fake: crash", &none),
        own(dir, "silent", "# fake: silent", &none),
        own(dir, "rego", "\ndeny contains", &inside),
        own(dir, "web", FETCHES, &inside),
        own(dir, "gone", "", &json!({"path": dir.join("nowhere")})),
        own(dir, "huge", "", &none),
        own(
            dir,
            "huge inside",
            "\ndeny contains \"m\" if input.bad",
            &large,
        ),
        own(dir, "waiver", PUBLIC, &waivers),
        own(dir, "sticky", PUBLIC, &sticky),
        own(dir, "team", PUBLIC, &team),
    ]
}

/// Returns the server's file with these sets. One set is checked by a step, whose tool is missing. Another step replaces
/// `show`, and makes the JSON of one plan as large as 200 MB, with a hole in place of the bytes.
fn server_file(sets: &[Value]) -> String {
    let shows = r#"if [ "$REPO_REL_DIR" = huge ]; then truncate -s 200MB "$SHOWFILE"
        else terraform show -json "$PLANFILE" >"$SHOWFILE"; fi"#;
    json!({
        "repos": [{"id": "/.*/", "workflow": "checked"}],
        "workflows": {"checked": {"policy_check": {"steps": [
            {"run": shows},
            "policy_check",
            {"run": {"command": "no-such-checker --all", "policy_set": "tool"}},
        ]}}},
        "policies": {"policy_sets": sets},
    })
    .to_string()
}

/// Plans all projects, and approves violations as they are then. The pull request extends the waiver of the branch, which does
/// not count.
async fn planned(backend: Backend, dir: &Path, file: &Path, sets: &[Value]) -> (Bot, PullNumber) {
    const EXTENDED: &str = "waivers: [{rule: main.deny, resource: '*', reason: extended, owner: alice, until: 2030-12-31}]\n";
    const USED: &str = "* ⚪ the bucket is public — `terraform_data.it` (`main.deny`). Waived by `bob` until 2026-03-02: known\n";
    std::fs::write(file, server_file(sets)).unwrap();
    let file = file.display().to_string();
    let flags = [
        ("repo-config", file.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let dirs = WAYS.iter().map(|(dir, _)| *dir).chain([FINE]);
    let paths: Vec<String> = dirs.map(|dir| format!("{dir}/main.tf")).collect();
    let with = |text: &'static str| {
        let files = paths.iter().map(|path| (path.as_str(), text));
        files.collect::<Vec<_>>()
    };
    let mut before = with("# narrow\n");
    before.push(("waivers.yaml", WAIVERS));
    let mut bot = Bot::with(backend, &before, &flags).await;
    let of_olga = NewTeam::new("Ops").with(&["olga"]);
    bot.github.set_team("acme", of_olga).unwrap();
    let mut after = with(WIDER.1);
    after.push(("waivers.yaml", EXTENDED));
    let pull = bot.open_pull("wider", &after).await;
    let comments = bot.read_comments(pull).join("\n");
    assert!(comments.contains(USED), "{comments}");
    assert!(!comments.contains("2030-12-31"), "{comments}");
    for (dir, _) in AT_PLAN {
        assert_told(&comments, dir, &AT_PLAN);
    }
    for (who, command) in [
        ("bob", "lockkeeper approve_policies -d sticky"),
        ("olga", "lockkeeper approve_policies -d team"),
    ] {
        let approved = format!("`{who}` approved");
        tells(&mut bot, pull, who, command, &approved).await;
    }
    let more = format!("{PUBLIC}\n# fake: deny the bucket has no name");
    set(dir, "sticky", &more, &json!({}));
    let again = "lockkeeper plan -d sticky";
    let lost = "2 violations, 0 of 1 approval";
    tells(&mut bot, pull, "alice", again, lost).await;
    (bot, pull)
}

/// Spoils the verdicts in the database, in the server's file, at the forge, and by the time that passes.
async fn spoil(bot: &Bot, dir: &Path, file: &Path, mut sets: Vec<Value>) {
    for sql in [
        "DELETE FROM policy_verdicts WHERE plan IN (SELECT id FROM plans WHERE dir = 'foreign')",
        "UPDATE policy_verdicts SET plan = (SELECT id FROM plans WHERE dir = 'foreign') \
         WHERE plan IN (SELECT id FROM plans WHERE dir = 'bare')",
        "UPDATE policy_verdicts SET findings = '{' WHERE plan IN (SELECT id FROM plans WHERE dir = 'damaged')",
    ] {
        execute(&bot.db, sql).await;
    }
    sets.retain(|one| one["name"] != "removed");
    for one in sets.iter_mut().filter(|one| one["name"] == "changed") {
        one["path"] = own(dir, "elsewhere", "", &json!({}))["path"].clone();
    }
    sets.push(own(dir, "added", "", &json!({})));
    reload(bot, file, &server_file(&sets)).await;
    let of_bob = NewTeam::new("Ops").with(&["bob"]);
    bot.github.set_team("acme", of_bob).unwrap();
    bot.db.clock.advance(Duration::from_hours(24));
}

/// Requests an apply, and checks that each of these ways is refused for its own reason. Only the plan whose verdict counts is
/// applied, the first time.
async fn refuses(bot: &mut Bot, pull: PullNumber, command: &str, ways: &[Way]) {
    bot.say(pull, command).await;
    let told = bot.read_comments(pull).join("\n");
    for (dir, reasons) in ways {
        for reason in *reasons {
            assert!(told.contains(reason), "{command}: {dir}: {reason}\n{told}");
        }
    }
    let calls = bot.calls().into_iter();
    let applied: Vec<String> = calls.filter(|call| call.starts_with("apply")).collect();
    assert_eq!(applied, ["apply fine"], "{command}");
}

async fn nothing_is_applied_without_a_verdict_that_counts(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("repos.yaml");
    let sets = sets_of_plans(dir.path());
    let (mut bot, pull) = planned(backend, dir.path(), &file, &sets).await;
    spoil(&bot, dir.path(), &file, sets).await;
    refuses(&mut bot, pull, APPLY, &WAYS).await;
    for way in WAYS {
        let targeted = format!("{APPLY} -d {}", way.0);
        refuses(&mut bot, pull, &targeted, &[way]).await;
    }
    bot.crash_and_restart().await;
    refuses(&mut bot, pull, APPLY, &WAYS).await;
    // Only PostgreSQL has several servers.
    if backend == Backend::Postgres {
        bot.replica = bot.replica_beside().await;
        refuses(&mut bot, pull, APPLY, &WAYS).await;
    }
    let dirs = WAYS.iter().map(|(dir, _)| *dir).chain([FINE]);
    let mut locks: Vec<String> = dirs
        .map(|dir| format!("acme/infra/{dir}/default by #1"))
        .collect();
    locks.sort();
    let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
    bot.end(&locks).await;
}

/// An application is planned and applied through the API, by the same gate.
async fn the_api_applies_nothing_without_a_verdict_that_counts(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repos.yaml");
    let bob = owned_by(&["bob"]);
    let basics = set(dir.path(), "basics", "", &bob);
    let mut moved = set(dir.path(), "elsewhere", "", &bob);
    moved["name"] = json!("basics");
    let mut renamed = basics.clone();
    renamed["name"] = json!("other");
    let of = |set: &Value| config(std::slice::from_ref(set));
    std::fs::write(&path, of(&basics)).unwrap();
    let file = path.display().to_string();
    let flags = [
        ("repo-config", file.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let files = [WIDER, ("waivers.yaml", WAIVERS)];
    let bot = Bot::with(backend, &files, &flags).await;
    let app = network(&bot).await;
    let plan = told(&bot, &app, ApplicationAction::Plan).await;
    assert!(plan.contains("Policies passed"), "{plan}");
    for (now, sql, reason) in [
        (Some(&moved), None, "`basics` was changed after the plan"),
        (
            Some(&renamed),
            None,
            "`other` was not checked, because it was added after the plan",
        ),
        (
            None,
            None,
            "`basics` was removed from the configuration after the plan",
        ),
        (
            Some(&basics),
            Some("UPDATE policy_verdicts SET outcome = 'failed'"),
            "`basics` was not evaluated (The stored verdict is damaged: ",
        ),
        (
            None,
            Some("DELETE FROM policy_verdicts"),
            "`basics` was not checked, because it was added after the plan",
        ),
    ] {
        if let Some(now) = now {
            reload(&bot, &path, &of(now)).await;
        }
        if let Some(sql) = sql {
            execute(&bot.db, sql).await;
        }
        let refused = told(&bot, &app, ApplicationAction::Apply).await;
        assert!(refused.contains(reason), "{reason}\n{refused}");
        assert_eq!(applies(&bot), 0);
    }
    let (none, inside) = (json!({}), json!({"engine": "embedded"}));
    let nowhere = json!({"path": dir.path().join("nowhere")});
    let waivers = json!({"waivers": {"branch": "main", "path": "waivers.yaml"}});
    for (name, orders, more) in [
        ("crash", "# fake: crash", &none),
        ("silent", "# fake: silent", &none),
        ("rego", "\ndeny contains", &inside),
        ("web", FETCHES, &inside),
        ("gone", "", &nowhere),
        ("waiver", PUBLIC, &waivers),
    ] {
        let mut one = own(dir.path(), name, orders, more);
        one["when"] = json!({"dirs": ["network"]});
        reload(&bot, &path, &of(&one)).await;
        let plan = told(&bot, &app, ApplicationAction::Plan).await;
        assert_told(&plan, name, &AT_PLAN);
        if name == "waiver" {
            bot.db.clock.advance(Duration::from_hours(24));
        }
        let refused = told(&bot, &app, ApplicationAction::Apply).await;
        assert_told(&refused, name, &WAYS);
        assert_eq!(applies(&bot), 0);
    }
    reload(&bot, &path, &of(&basics)).await;
    let plan = told(&bot, &app, ApplicationAction::Plan).await;
    assert!(plan.contains("Policies passed"), "{plan}");
    let applied = told(&bot, &app, ApplicationAction::Apply).await;
    assert!(applied.contains(": applied\n"), "{applied}");
    assert_eq!(applies(&bot), 1);
    bot.end(&[]).await;
}
