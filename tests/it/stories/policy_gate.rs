//! Stories about everything that leads to an apply of a plan that violates policies, and about sets that change after the plan.
//! The first one follows the tutorial of `docs/policies.md` by its own words.

use std::path::Path;
use std::time::Duration;

use lockkeeper::context::FileCheck;
use lockkeeper::model::PullNumber;
use lockkeeper::process::Cmd;
use serde_json::{Value, json};

use super::policy_approvals::{
    APPLY, APPROVE, LOCK, PUBLIC, WIDER, applies, config, owned_by, set, tells,
};
use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    the_tutorial_works_as_it_is_printed,
    approvals_are_offered_only_if_they_help,
    no_way_leads_around_the_gate,
    a_failed_plan_skips_no_checks_of_other_projects,
    the_sets_and_owners_of_now_decide,
    a_stage_that_checks_nothing_makes_no_plan_stale,
    people_withdraw_their_own_approvals_after_the_set_is_gone,
);

/// First chapter of the page.
fn tutorial() -> &'static str {
    let page = include_str!("../../../docs/policies.md");
    let chapter = page.split("\n## ").nth(1).expect("there is a chapter");
    assert!(chapter.starts_with("From nothing"), "{chapter}");
    chapter
}

/// Returns the text between two marks of the tutorial, without its indentation.
fn printed(from: &str, to: &str) -> String {
    let (_, rest) = tutorial().split_once(from).expect(from);
    let (text, _) = rest.split_once(to).expect(to);
    text.replace("\n   ", "\n")
}

/// Returns the paragraphs and list items of each quoted comment of the tutorial.
fn quotes() -> Vec<Vec<String>> {
    let lines = tutorial().lines().map(str::trim_start);
    let mut quotes: Vec<Vec<String>> = Vec::new();
    let mut is_open = false;
    for line in lines {
        let Some(text) = line.strip_prefix('>') else {
            is_open = false;
            continue;
        };
        if !is_open {
            quotes.push(vec![String::new()]);
        }
        is_open = true;
        let quote = quotes.last_mut().expect("one is open");
        let text = text.trim();
        if text.is_empty() {
            quote.push(String::new());
            continue;
        }
        let last = quote.last_mut().expect("it has a part");
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(text);
    }
    quotes
}

/// Checks that a comment contains everything that the tutorial quotes of it.
fn assert_quoted(comment: &str, quote: &[String]) {
    for part in quote.iter().filter(|part| !part.is_empty()) {
        assert!(comment.contains(part), "{part}\n{comment}");
    }
}

/// Comments a command of the tutorial as `alice`, and returns the answer.
async fn types(bot: &mut Bot, pull: PullNumber, command: &str) -> String {
    let code = format!("`{command}`");
    assert!(tutorial().contains(&code), "{code}");
    bot.say(pull, command).await;
    bot.answer(pull)
}

async fn the_tutorial_works_as_it_is_printed(backend: Backend) {
    const PLACE: &str = "/etc/lockkeeper/policies/databases";
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display().to_string();
    let rego = printed("<<'REGO'", "   REGO");
    std::fs::write(dir.path().join("keep.rego"), rego).unwrap();

    let plan = json!({"format_version": "1.2", "resource_changes": [
        {"address": "terraform_data.db", "type": "terraform_data", "change": {"actions": ["delete"]}},
    ]});
    let other = tempfile::tempdir().unwrap();
    let file = other.path().join("plan.json");
    std::fs::write(&file, plan.to_string()).unwrap();
    let eval = Cmd::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["policy", "eval", "--plan"])
        .arg(&file)
        .arg(dir.path())
        .deadline(Duration::from_mins(5));
    let output = eval.output().await.unwrap();
    let found = output.stdout.text();
    assert!(
        output.code == Some(1) && found.contains("terraform_data.db would be destroyed"),
        "{output:?}"
    );

    let repos = other.path().join("repos.yaml");
    let server = printed("```yaml server", "   ```").replace(PLACE, &here);
    std::fs::write(&repos, server).unwrap();
    let repos = repos.display().to_string();
    let flags = [
        ("repo-config", repos.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let before = ("main.tf", "resource \"terraform_data\" \"db\" {}\n");
    let drops = (
        "main.tf",
        "# fake: add 0 change 0 destroy 1 terraform_data.db\n",
    );
    let mut bot = Bot::with(backend, &[before], &flags).await;
    let pull = bot.open_pull("drop", &[drops]).await;
    let quotes = quotes();
    let [of_plan, of_apply] = &*quotes else {
        panic!("the tutorial quotes two comments: {quotes:?}");
    };
    assert_quoted(&bot.answer(pull).replace(&here, PLACE), of_plan);
    let line = bot.machine_line(pull);
    assert!(line.contains(r#""outcome":"policy_failed""#), "{line}");
    let status = |bot: &Bot| {
        let all = bot.statuses(pull);
        let own = all
            .lines()
            .find(|line| line.starts_with("lockkeeper/policy_check: "));
        own.expect("there is a status").to_owned()
    };
    let failed = status(&bot);
    assert!(failed.contains(": Failure, "), "{failed}");
    assert_quoted(&types(&mut bot, pull, "lockkeeper apply").await, of_apply);
    assert_eq!(applies(&bot), 0);
    let approved = types(&mut bot, pull, "lockkeeper approve_policies -d .").await;
    assert!(
        approved.contains("`alice` approved the violations of `databases`."),
        "{approved}"
    );
    let passed = status(&bot);
    assert!(passed.contains(": Success, "), "{passed}");
    let applied = types(&mut bot, pull, "lockkeeper apply -d .").await;
    assert!(applied.contains(": applied\n"), "{applied}");
    assert_eq!(applies(&bot), 1);
    bot.end(&["acme/infra/./default by #1"]).await;
}

/// One set is violated, and another one is not evaluated.
async fn approvals_are_offered_only_if_they_help(backend: Backend) {
    const OFFER: &str = "* To **approve** the violations, comment:";
    let dir = tempfile::tempdir().unwrap();
    let bob = owned_by(&["bob"]);
    let embedded = json!({"owners": {"users": ["bob"]}, "engine": "embedded"});
    let sets = [
        set(dir.path(), "fine", "", &bob),
        set(dir.path(), "basics", PUBLIC, &bob),
        set(dir.path(), "broken", "\ndeny contains", &embedded),
    ];
    let config = config(&sets);
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
        ("quiet-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    let plan = bot.answer(pull);
    for part in [
        "**❌ Policies did not pass: 2 of 3 sets**",
        "❌ **Policy set `basics`**: 1 violation, 0 of 1 approval",
        "⛔ **Policy set `broken`**: not evaluated: ",
        "main.rego:4:1: expecting expression",
        "Approvals do not help here.",
        "* To **plan** this project again, comment:",
    ] {
        assert!(plan.contains(part), "{part}\n{plan}");
    }
    assert!(!plan.contains(OFFER) && !plan.contains("`fine`"), "{plan}");
    bot.hear(pull, "bob", APPROVE).await;
    let answer = bot.answer(pull);
    assert!(!answer.contains(OFFER), "{answer}");
    let broken = "`broken` was not evaluated (";
    tells(&mut bot, pull, "alice", APPLY, broken).await;
    let corrected = "\ndeny contains \"m\" if input.bad";
    set(dir.path(), "broken", corrected, &embedded);
    bot.say(pull, "lockkeeper plan").await;
    let plan = bot.answer(pull);
    assert!(
        plan.contains("did not pass: 1 of 3 sets") && plan.contains(OFFER),
        "{plan}"
    );
    assert!(!plan.contains("`broken`"), "{plan}");
    tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;
    assert_eq!(applies(&bot), 0);
    tells(&mut bot, pull, "alice", APPLY, ": applied\n").await;
    assert_eq!(applies(&bot), 1);
    bot.end(&[LOCK]).await;
}

/// Applies of several projects and of one, on this server, after a crash, and on another server.
async fn no_way_leads_around_the_gate(backend: Backend) {
    const ONE: &str = "lockkeeper apply -d network";
    const UNMET: &str = "the policies of this plan did not pass: `basics` is violated and has 0 of 1 approval. Nothing was applied, \
                         and the plan is kept.";
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({"owners": {"users": ["bob"]}, "when": {"dirs": ["network"]}});
    let config = config(&[set(dir.path(), "basics", PUBLIC, &keys)]);
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
    let more = ("app/main.tf", "# fake: add 1 change 0 destroy 0\n");
    let pull = bot.open_pull("wider", &[WIDER, more]).await;
    bot.read_comments(pull);
    let apply_calls = |bot: &Bot| -> Vec<String> {
        let calls = bot.calls().into_iter();
        calls.filter(|call| call.starts_with("apply ")).collect()
    };
    tells(&mut bot, pull, "alice", ONE, UNMET).await;
    tells(&mut bot, pull, "alice", APPLY, UNMET).await;
    assert_eq!(apply_calls(&bot), ["apply app"], "no set concerns it");
    bot.crash_and_restart().await;
    tells(&mut bot, pull, "alice", ONE, UNMET).await;
    if backend == Backend::Postgres {
        bot.replica = bot.replica_beside().await;
        tells(&mut bot, pull, "alice", APPLY, UNMET).await;
    }
    assert_eq!(apply_calls(&bot), ["apply app"]);
    tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;
    bot.crash_and_restart().await;
    tells(&mut bot, pull, "alice", ONE, ": applied\n").await;
    assert_eq!(apply_calls(&bot), ["apply app", "apply network"]);
    bot.end(&["acme/infra/app/default by #1", LOCK]).await;
}

/// One plan of the command fails. Atlantis then checks no project, and applies the others (reference 13.6).
async fn a_failed_plan_skips_no_checks_of_other_projects(backend: Backend) {
    const ONE: &str = "lockkeeper apply -d network";
    const FAILED: &str = "**Plan failed**: `terraform plan` ended with exit code 1.";
    let dir = tempfile::tempdir().unwrap();
    let bob = owned_by(&["bob"]);
    let config = config(&[set(dir.path(), "basics", PUBLIC, &bob)]);
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
    let fails = ("app/main.tf", "# fake: fail plan\n");
    let pull = bot.open_pull("wider", &[WIDER, fails]).await;
    let plan = bot.answer(pull);
    for part in [
        FAILED,
        "**❌ Policies did not pass**",
        "* ❌ the bucket is public",
    ] {
        assert!(plan.contains(part), "{part}\n{plan}");
    }
    let line = bot.machine_line(pull);
    for part in [
        r#""dir":"app","workspace":"default","outcome":"failed""#,
        r#""dir":"network","workspace":"default","outcome":"policy_failed""#,
    ] {
        assert!(line.contains(part), "{part}\n{line}");
    }
    let statuses = bot.statuses(pull);
    let failure = "lockkeeper/policy_check: Failure, Policies of 1/2 projects did not pass.\n";
    assert!(statuses.contains(failure), "{statuses}");
    let unmet = "**Apply refused**: the policies of this plan did not pass: `basics` is violated and has 0 of 1 approval.";
    tells(&mut bot, pull, "alice", ONE, unmet).await;
    assert_eq!(applies(&bot), 0);

    set(dir.path(), "basics", "", &bob);
    bot.say(pull, "lockkeeper plan").await;
    let plan = bot.answer(pull);
    for part in [FAILED, "**✅ Policies passed**: `basics`"] {
        assert!(plan.contains(part), "{part}\n{plan}");
    }
    let statuses = bot.statuses(pull);
    let unplanned = "lockkeeper/policy_check: Failure, 1/2 projects had policies checked: the others have no plan.\n";
    assert!(statuses.contains(unplanned), "{statuses}");
    tells(&mut bot, pull, "alice", ONE, ": applied\n").await;
    let no_plan = "**Apply refused**: there is no plan of that project in this pull request.";
    let other = "lockkeeper apply -d app";
    tells(&mut bot, pull, "alice", other, no_plan).await;
    let calls = bot.calls().into_iter();
    let applied: Vec<String> = calls.filter(|call| call.starts_with("apply ")).collect();
    assert_eq!(applied, ["apply network"]);
    let statuses = bot.statuses(pull);
    assert!(statuses.contains(unplanned), "{statuses}");
    bot.end(&[LOCK]).await;
}

/// The server's file changes while the server runs: owners, the place of the policies, the name of the set, and the switch.
async fn the_sets_and_owners_of_now_decide(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repos.yaml");
    let of = |set: &Value| config(std::slice::from_ref(set));
    let basics = set(dir.path(), "basics", PUBLIC, &owned_by(&["bob"]));
    std::fs::write(&path, of(&basics)).unwrap();
    let file = path.display().to_string();
    let flags = [
        ("repo-config", file.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;

    let mut left = basics.clone();
    left["owners"] = json!({"users": ["olga"]});
    reload(&bot, &path, &of(&left)).await;
    bot.say(pull, APPLY).await;
    let refused = bot.answer(pull);
    for part in [
        "`basics` is violated and has 0 of 1 approval. Nothing was applied",
        "* The approval of `bob` does not count any more, because `bob` may not approve `basics` any more.\n",
        "* `olga` can approve the violations of `basics`.",
    ] {
        assert!(refused.contains(part), "{part}\n{refused}");
    }

    let mut moved = set(dir.path(), "elsewhere", PUBLIC, &owned_by(&["bob"]));
    moved["name"] = json!("basics");
    reload(&bot, &path, &of(&moved)).await;
    let changed = "`basics` was changed after the plan";
    tells(&mut bot, pull, "alice", APPLY, changed).await;
    let no_help = "No approval can let this plan pass. Plan again.";
    tells(&mut bot, pull, "bob", APPROVE, no_help).await;

    let mut renamed = basics.clone();
    renamed["name"] = json!("other");
    reload(&bot, &path, &of(&renamed)).await;
    bot.say(pull, APPLY).await;
    let refused = bot.answer(pull);
    for part in [
        "`other` was not checked, because it was added after the plan",
        "`basics` was removed from the configuration after the plan",
    ] {
        assert!(refused.contains(part), "{part}\n{refused}");
    }

    let off = json!({
        "repos": [{"id": "/.*/", "policy_check": false}],
        "policies": {"policy_sets": [basics]},
    });
    reload(&bot, &path, &off.to_string()).await;
    tells(&mut bot, pull, "alice", APPLY, "**Apply refused**").await;
    assert_eq!(applies(&bot), 0);
    bot.say(pull, "lockkeeper plan").await;
    let plan = bot.answer(pull);
    assert!(!plan.contains("olicies"), "{plan}");
    let statuses = bot.statuses(pull);
    let success =
        "lockkeeper/policy_check: Success, 0/0 projects had policies checked successfully.\n";
    assert!(
        statuses.contains(success),
        "a required status must not block the merge for ever: {statuses}"
    );
    tells(&mut bot, pull, "alice", APPLY, ": applied\n").await;
    bot.end(&[LOCK]).await;
}

/// The workflow has a stage `policy_check`, but plans are not checked. When they are, the plan needs a verdict.
async fn a_stage_that_checks_nothing_makes_no_plan_stale(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repos.yaml");
    let sets = [set(dir.path(), "basics", "", &owned_by(&["bob"]))];
    let with = |steps: &[Value], is_checked: bool| {
        json!({
            "repos": [{"id": "/.*/", "workflow": "custom", "policy_check": is_checked}],
            "workflows": {"custom": {"policy_check": {"steps": steps}}},
            "policies": {"policy_sets": sets},
        })
        .to_string()
    };
    let more = [json!("show"), json!({"run": "true"}), json!("policy_check")];
    let fewer = [json!("show"), json!("policy_check")];
    std::fs::write(&path, with(&more, false)).unwrap();
    let file = path.display().to_string();
    let flags = [("repo-config", file.as_str())];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    reload(&bot, &path, &with(&more, true)).await;
    let added = "`basics` was not checked, because it was added after the plan";
    tells(&mut bot, pull, "alice", APPLY, added).await;
    assert_eq!(applies(&bot), 0);
    reload(&bot, &path, &with(&fewer, false)).await;
    tells(&mut bot, pull, "alice", APPLY, ": applied\n").await;
    bot.end(&[LOCK]).await;
}

async fn people_withdraw_their_own_approvals_after_the_set_is_gone(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repos.yaml");
    let of = |set: &Value| config(std::slice::from_ref(set));
    let keys = json!({"owners": {"users": ["bob", "olga"]}, "approve_count": 2});
    let basics = set(dir.path(), "basics", PUBLIC, &keys);
    std::fs::write(&path, of(&basics)).unwrap();
    let file = path.display().to_string();
    let flags = [
        ("repo-config", file.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    tells(&mut bot, pull, "bob", APPROVE, "1 of 2 approvals").await;
    bot.db.clock.advance(Duration::from_mins(1));
    let both = "approved by `bob` and `olga`";
    tells(&mut bot, pull, "olga", APPROVE, both).await;

    let mut renamed = basics.clone();
    renamed["name"] = json!("other");
    reload(&bot, &path, &of(&renamed)).await;
    let clear = "lockkeeper approve_policies --clear-policy-approval";
    let gone = "The set is not configured any more";
    tells(&mut bot, pull, "alice", clear, gone).await;
    let own = "`bob` withdrew the approvals of `basics` that `bob` had given.";
    tells(&mut bot, pull, "bob", clear, own).await;

    reload(&bot, &path, &of(&basics)).await;
    tells(&mut bot, pull, "alice", APPLY, "has 1 of 2 approvals.").await;
    assert_eq!(applies(&bot), 0);
    bot.end(&[LOCK]).await;
}

/// Writes the server's file, and lets the server read it.
pub(super) async fn reload(bot: &Bot, path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    let read = bot.replica.tick_repo_config().await.unwrap();
    assert!(matches!(read, FileCheck::Taken(_)), "{read:?}");
}
