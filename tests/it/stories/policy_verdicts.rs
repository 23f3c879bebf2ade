//! Stories about the verdicts that a plan gets from its policy sets: by conftest, by steps of the workflow, and with policies
//! from a branch or another repository. Conftest is the stand-in of `tests/fakes`, which reads its orders from the policies.

use std::path::Path;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use lockkeeper::emulator::Change;
use lockkeeper::model::{PullNumber, PullRef, Sha256Digest, Subject};
use lockkeeper::queue::Tick;
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::policy_approvals::set;
use super::policy_gate::reload;
use crate::stories::NETWORK;
use crate::support::accounts_fixture::git;
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};
use crate::support::rows::recent_runs;

story!(
    each_way_in_which_conftest_ends_is_a_verdict,
    policies_of_a_branch_are_never_those_of_the_pull_request,
    policies_of_another_repository_are_those_of_their_tag_or_commit,
    policies_know_the_author_the_approvals_and_the_earlier_plan,
    each_set_needs_a_step_that_evaluates_it,
    a_step_reports_about_the_set_that_it_names,
    a_plan_is_cancelled_while_conftest_works,
    the_status_is_pending_while_policies_are_checked,
    a_stage_that_fails_evaluates_nothing,
    a_plan_as_json_that_was_there_before_the_stage_does_not_count,
    a_step_cannot_change_the_plan_that_policies_see,
    steps_after_the_check_read_its_results_as_atlantis_writes_them,
    a_workflow_that_hides_output_hides_what_conftest_says,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const LOCK: &str = "acme/infra/network/default by #1";

/// Name of a set, orders of its policies, and the beginning of its verdict.
const CASES: [(&str, &str, &str); 11] = [
    ("passes", "", "passed"),
    ("hints", "# fake: warn no tag", "passed"),
    (
        "denies",
        "# fake: deny the bucket is public",
        "failed: the bucket is public",
    ),
    (
        "asks",
        "# fake: approval 2 look at this",
        "failed: look at this",
    ),
    (
        "crashes",
        "# fake: crash",
        "not evaluated: conftest ended with exit code 1: Error: running test",
    ),
    (
        "is killed",
        "# fake: killed",
        "not evaluated: `conftest test` ended with exit code 137",
    ),
    (
        "is silent",
        "# fake: silent",
        "not evaluated: conftest ended with exit code 0, and its report cannot be used",
    ),
    (
        "says something else",
        "# fake: garbage",
        "not evaluated: conftest ended with exit code 0, and its report cannot be used",
    ),
    (
        "breaks off",
        "# fake: half",
        "not evaluated: conftest ended with exit code 1, and its report cannot be used",
    ),
    (
        "has no rules",
        "# fake: no rules",
        "not evaluated: conftest ended with exit code 0, and its report cannot be used",
    ),
    (
        "fails without a reason",
        "# fake: mute",
        "not evaluated: conftest ended with exit code 1, but its report has no violation",
    ),
];

/// Returns the verdicts of the plans of a pull request, in the order of the sets.
async fn stored(bot: &Bot, pull: PullNumber) -> Vec<Verdict> {
    let at = PullRef {
        repo: "github.test/acme/infra".parse().unwrap(),
        subject: Subject::Pull(pull),
    };
    let mut verdicts = Vec::new();
    for plan in bot.store().plan_list(&at).await.unwrap() {
        let results = bot.store().policy_results_of_run(plan.run).await.unwrap();
        verdicts.extend(results.unwrap_or_default().verdicts);
    }
    verdicts
}

/// Returns `SET: VERDICT` for each verdict of the plans of a pull request.
async fn verdicts(bot: &Bot, pull: PullNumber) -> Vec<String> {
    let verdicts = stored(bot, pull).await.into_iter();
    verdicts
        .map(|verdict| {
            let found: Vec<&str> = verdict
                .findings
                .iter()
                .map(|finding| finding.message.as_str())
                .collect();
            let outcome = match &verdict.outcome {
                VerdictOutcome::Passed => "passed".to_owned(),
                VerdictOutcome::Failed => format!("failed: {}", found.join(", ")),
                VerdictOutcome::NotEvaluated(why) => format!("not evaluated: {why}"),
            };
            format!("{}: {outcome}", verdict.set)
        })
        .collect()
}

/// Checks that each verdict begins as expected.
fn assert_begin(verdicts: &[String], expected: &[String]) {
    assert_eq!(verdicts.len(), expected.len(), "{verdicts:#?}");
    for (verdict, expected) in verdicts.iter().zip(expected) {
        assert!(verdict.starts_with(expected), "{verdict}\n{expected}");
    }
}

/// Plans a pull request with these files, on a server with this configuration.
async fn planned(
    backend: Backend,
    config: &Value,
    base: &[(&str, &str)],
    files: &[(&str, &str)],
) -> (Bot, PullNumber) {
    let config = config.to_string();
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, base, &flags).await;
    let pull = bot.open_pull("wider", files).await;
    (bot, pull)
}

/// Requests an apply, and checks that nothing was applied. One set that does not let the plan pass is enough.
async fn is_never_applied(mut bot: Bot, pull: PullNumber) {
    bot.say(pull, "lockkeeper apply").await;
    let calls = bot.calls();
    assert!(
        !calls.iter().any(|call| call.starts_with("apply")),
        "{calls:?}"
    );
    bot.read_comments(pull);
    bot.end(&[LOCK]).await;
}

async fn each_way_in_which_conftest_ends_is_a_verdict(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let mut sets = Vec::new();
    for (name, orders, _) in CASES {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let text = format!("package main\n{orders}\n");
        std::fs::write(path.join("main.rego"), text).unwrap();
        sets.push(json!({"name": name, "path": path}));
    }
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    sets.push(json!({"name": "is empty", "path": empty}));
    sets.push(json!({"name": "is gone", "path": dir.path().join("gone")}));
    let config = json!({"policies": {"owners": {"users": ["alice"]}, "policy_sets": sets}});
    // The real program reads this configuration in its working directory.
    let hostile = ("network/conftest.toml", "policy = \"elsewhere\"\n");
    let files = [WIDER, hostile, ("conftest.toml", "no-fail = true\n")];
    let (bot, pull) = planned(backend, &config, &[NETWORK], &files).await;
    let mut expected: Vec<String> = CASES
        .iter()
        .map(|(name, _, verdict)| format!("{name}: {verdict}"))
        .collect();
    expected.push(
        "is empty: not evaluated: conftest ended with exit code 1: Error: running test".to_owned(),
    );
    let gone = dir.path().join("gone");
    expected.push(format!(
        "is gone: not evaluated: the policies in {} cannot be read",
        gone.display()
    ));
    assert_begin(&verdicts(&bot, pull).await, &expected);
    for verdict in stored(&bot, pull).await {
        let is_run = verdict.set.as_str() != "is gone";
        let expected = is_run.then_some("conftest 0.62.0");
        assert_eq!(verdict.tool.as_deref(), expected, "{}", verdict.set);
    }
    let calls = std::fs::read_to_string(bot.tools.join("conftest-calls")).unwrap();
    assert!(
        calls.contains(r#""base_branch":"main""#) && calls.contains(r#""network/conftest.toml""#),
        "policies know facts of the pull request: {calls}"
    );
    is_never_applied(bot, pull).await;
}

async fn policies_of_a_branch_are_never_those_of_the_pull_request(backend: Backend) {
    let at_base = ("policies/main.rego", "# fake: deny a rule of the branch\n");
    let at_head = ("policies/main.rego", "# fake: warn no rule any more\n");
    let config = json!({"policies": {"owners": {"users": ["alice"]}, "policy_sets": [
        {"name": "ours", "source": "branch", "branch": "main", "path": "policies"},
        {"name": "one file", "source": "branch", "branch": "main", "path": "policies/main.rego"},
        {"name": "no directory", "source": "branch", "branch": "main", "path": "rules"},
        {"name": "no branch", "source": "branch", "branch": "stable", "path": "policies"},
        {"name": "own branch", "source": "branch", "branch": "wider", "path": "policies"},
        {"name": "no repository", "source": "repository", "repository": "github.test/acme/gone", "ref": "v1",
         "path": "policies"},
    ]}});
    let (bot, pull) = planned(backend, &config, &[NETWORK, at_base], &[WIDER, at_head]).await;
    assert_begin(
        &verdicts(&bot, pull).await,
        &[
            "ours: failed: a rule of the branch".to_owned(),
            "one file: failed: a rule of the branch".to_owned(),
            "no directory: not evaluated: the commit".to_owned(),
            "no branch: not evaluated: the policies cannot be fetched".to_owned(),
            "own branch: not evaluated: the pull request comes from the branch `wider`".to_owned(),
            "no repository: not evaluated: the policies cannot be fetched".to_owned(),
        ],
    );
    is_never_applied(bot, pull).await;
}

/// Returns the digest of a directory of policies with one file.
fn digest_of(text: &str) -> Sha256Digest {
    let content = Sha256Digest::of(text.as_bytes());
    Sha256Digest::of(format!("{content} 9:main.rego\n").as_bytes())
}

/// Returns what the server answers to a person who has signed in.
async fn get(bot: &Bot, path: &str) -> String {
    let pages = bot.pages_of(&bot.replica).await;
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = pages.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let body = to_bytes(response.into_body(), 1 << 24).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The branch that the tags and the commit came from moves before the first plan, and again before the second one. Then a tag
/// moves. The first set fetches its commit into a mirror that does not exist yet.
async fn policies_of_another_repository_are_those_of_their_tag_or_commit(backend: Backend) {
    const POLICIES: &str = "acme/policies";
    const OLD: &str = "package main\n# fake: deny the old rule\n";
    const NEW: &str = "package main\n# fake: deny the new rule\n";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repos.yaml");
    let config = |commit: &str| {
        let at = |name: &str, reference: &str| {
            let repository = "github.test/acme/policies";
            json!({"name": name, "repository": repository, "ref": reference, "path": "base"})
        };
        let sets = [
            at("commit", commit),
            at("tag", "v1"),
            at("annotated", "v2"),
            at("missing", "v3"),
        ];
        json!({"policies": {"owners": {"users": ["alice"]}, "policy_sets": sets}}).to_string()
    };
    std::fs::write(&path, config("later")).unwrap();
    let file = path.display().to_string();
    let flags = [
        ("repo-config", file.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let files = [("base/main.rego", OLD)];
    let old = bot.github.create_repo(POLICIES, &files).await.unwrap();
    bot.github.tag(POLICIES, "v1", &old).await.unwrap();
    let forge = bot.db.dir.path().join("github/git/acme/policies.git");
    let person = ["-c", "user.name=kim", "-c", "user.email=kim@example.com"];
    let annotated = ["tag", "-a", "-m", "Two", "v2", old.as_str()];
    let said = git(&forge, &[&person[..], &annotated].concat());
    assert_eq!(said.code, 0, "{}", said.err);
    let unrelated = [Change::write("README.md", "Rules.\n")];
    let pushed = bot.github.push(POLICIES, "main", &unrelated).await;
    pushed.unwrap();
    reload(&bot, &path, &config(old.as_str())).await;

    let pull = bot.open_pull("wider", &[WIDER]).await;
    let with_tag = |rule: &str| {
        [
            "commit: failed: the old rule".to_owned(),
            format!("tag: failed: {rule}"),
            "annotated: failed: the old rule".to_owned(),
            "missing: not evaluated: the policies cannot be fetched from github.test/acme/policies: the repository has no \
             `refs/tags/v3`."
                .to_owned(),
        ]
    };
    assert_begin(&verdicts(&bot, pull).await, &with_tag("the old rule"));
    let found = stored(&bot, pull).await;
    for (verdict, reference) in found.iter().zip([old.as_str(), "v1", "v2"]) {
        let origin = format!(
            "base in github.test/acme/policies at {reference} ({})",
            old.short()
        );
        assert_eq!(verdict.origin, origin);
        assert_eq!(verdict.content, Some(digest_of(OLD)), "{reference}");
    }
    let comment = bot.answer(pull);
    // After its first character, a comment has a mark in a commit, so that GitHub does not make a link.
    let short = format!("{})", &old.short()[1..]);
    assert!(comment.contains(&short), "{comment}");
    let plans = bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    let (run, digest) = (plans[0].run, digest_of(OLD).to_string());
    let page = get(&bot, &format!("/jobs/{run}")).await;
    let shown = format!("SHA-256 <code>{digest}</code>");
    assert_eq!(page.matches(&shown).count(), 3, "{page}");
    let results = get(&bot, &format!("/api/runs/{run}/policies")).await;
    let results: Value = serde_json::from_str(&results).unwrap();
    for set in results["sets"].as_array().unwrap().iter().take(3) {
        assert_eq!(set["content"], digest, "{results}");
    }
    assert_eq!(results["sets"][3]["content"], Value::Null, "{results}");

    let other = [Change::write("base/main.rego", NEW)];
    let new = bot.github.push(POLICIES, "main", &other).await.unwrap();
    bot.say(pull, "lockkeeper plan").await;
    assert_begin(&verdicts(&bot, pull).await, &with_tag("the old rule"));
    bot.github.tag(POLICIES, "v1", &new).await.unwrap();
    bot.say(pull, "lockkeeper plan").await;
    assert_begin(&verdicts(&bot, pull).await, &with_tag("the new rule"));
    let found = stored(&bot, pull).await;
    assert_eq!(found[1].content, Some(digest_of(NEW)));
    is_never_applied(bot, pull).await;
}

/// Rules for the embedded engine that tell facts of the pull request.
const TELLS_FACTS: &str = r#"
import rego.v1

deny contains msg if {
  msg := concat(" ", ["opened by", data.lockkeeper.author])
}

deny contains msg if {
  some login in data.lockkeeper.approvals
  msg := concat(" ", ["approved by", login])
}

deny contains "the first plan" if data.lockkeeper.earlier_plan == null

deny contains msg if {
  data.lockkeeper.earlier_plan != null
  msg := concat(" ", ["the plan after", data.lockkeeper.earlier_plan.id])
}
"#;

/// Returns the sorted messages of the set `facts`.
async fn told_facts(bot: &Bot, pull: PullNumber) -> Vec<String> {
    let mut verdicts = stored(bot, pull).await.into_iter();
    let verdict = verdicts
        .find(|verdict| verdict.set.as_str() == "facts")
        .expect("the plan was checked");
    assert_eq!(verdict.outcome, VerdictOutcome::Failed);
    let findings = verdict.findings.into_iter();
    let mut messages: Vec<String> = findings.map(|finding| finding.message).collect();
    messages.sort();
    messages
}

/// Returns the facts of every test that the stand-in for conftest has noted.
fn noted_facts(bot: &Bot) -> Vec<Value> {
    let calls = std::fs::read_to_string(bot.tools.join("conftest-calls")).unwrap();
    let lines = calls.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| {
            let mut data: Value = serde_json::from_str(line).unwrap();
            data["lockkeeper"].take()
        })
        .collect()
}

/// Returns the identifier of the only plan.
async fn only_plan(bot: &Bot, pull: PullNumber) -> String {
    let plans = bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    assert_eq!(plans.len(), 1, "{plans:?}");
    plans[0].id.to_string()
}

/// Both engines get the facts. Carol reviews the first commit, and bob the second one.
async fn policies_know_the_author_the_approvals_and_the_earlier_plan(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let embedded = json!({"engine": "embedded"});
    let sets = [
        set(dir.path(), "facts", TELLS_FACTS, &embedded),
        set(dir.path(), "noted", "", &json!({})),
    ];
    let config = json!({"policies": {"owners": {"users": ["alice"]}, "policy_sets": sets}});
    let (mut bot, pull) = planned(backend, &config, &[NETWORK], &[WIDER]).await;
    bot.read_comments(pull);
    let told = told_facts(&bot, pull).await;
    assert_eq!(told, ["opened by alice", "the first plan"]);
    let first = only_plan(&bot, pull).await;

    bot.approve(pull, "carol");
    bot.say(pull, "lockkeeper plan").await;
    bot.read_comments(pull);
    let told = told_facts(&bot, pull).await;
    let after = format!("the plan after {first}");
    assert_eq!(
        told,
        ["approved by carol", "opened by alice", after.as_str()]
    );

    let more = ("network/main.tf", "# fake: add 3 change 1 destroy 0\n");
    bot.push("wider", &[more]).await;
    bot.settle().await;
    bot.read_comments(pull);
    bot.approve(pull, "bob");
    let third = only_plan(&bot, pull).await;
    bot.say(pull, "lockkeeper plan").await;
    bot.read_comments(pull);
    let told = told_facts(&bot, pull).await;
    let after = format!("the plan after {third}");
    assert_eq!(told, ["approved by bob", "opened by alice", after.as_str()]);

    let noted = noted_facts(&bot);
    assert_eq!(noted.len(), 4, "{noted:#?}");
    assert!(
        noted.iter().all(|facts| facts["author"] == "alice"),
        "{noted:#?}"
    );
    let approvals: Vec<Value> = noted
        .iter()
        .map(|facts| facts["approvals"].clone())
        .collect();
    let expected = json!([[], ["carol"], [], ["bob"]]);
    assert_eq!(Value::Array(approvals), expected);
    let earlier = |number: usize| noted[number].get("earlier_plan").unwrap();
    assert_eq!(earlier(0), &Value::Null);
    assert_eq!(
        (&earlier(1)["id"], &earlier(1)["counts"]["add"]),
        (&json!(first), &json!(2))
    );
    assert_eq!(
        (&earlier(3)["id"], &earlier(3)["counts"]["add"]),
        (&json!(third), &json!(3))
    );
    bot.end(&[LOCK]).await;
}

/// Returns a configuration with sets that these steps evaluate.
fn with_steps(steps: &Value, sets: &Value) -> Value {
    json!({
        "repos": [{"id": "/.*/", "workflow": "custom", "custom_policy_check": true}],
        "workflows": {"custom": {"policy_check": {"steps": steps}}},
        "policies": {"owners": {"users": ["alice"]}, "policy_sets": sets},
    })
}

/// Returns a SARIF log with one result.
fn sarif(message: &str) -> String {
    let result = json!({"ruleId": "r", "level": "error", "message": {"text": message}});
    json!({"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "t"}}, "results": [result]}]})
        .to_string()
}

async fn each_set_needs_a_step_that_evaluates_it(backend: Backend) {
    let report =
        r#"[{"filename":"p","namespace":"main","successes":0,"failures":[{"msg":"public"}]}]"#;
    let junit = r#"<testsuite tests="1" failures="1"><testcase name="tags"><failure message="no tag"/></testcase></testsuite>"#;
    let steps = json!([
        "show",
        {"env": {"name": "GREETING", "value": "1 test, 1 passed"}},
        {"run": "test -s $SHOWFILE && echo $GREETING"},
        {"run": "echo something is wrong; exit 3"},
        {"run": format!("echo noise >&2; echo '{report}'; exit 1")},
        {"run": format!("echo '{}'", sarif("a port is open"))},
        {"run": format!("echo '{junit}'; exit 1")},
    ]);
    let sets = json!([
        {"name": "text", "engine": "steps"},
        {"name": "failing text", "engine": "steps"},
        {"name": "report", "engine": "steps", "format": "conftest"},
        {"name": "scanner", "engine": "steps", "format": "sarif"},
        {"name": "tests", "engine": "steps", "format": "junit"},
        {"name": "nobody", "engine": "steps"},
    ]);
    let config = with_steps(&steps, &sets);
    let (bot, pull) = planned(backend, &config, &[NETWORK], &[WIDER]).await;
    assert_begin(
        &verdicts(&bot, pull).await,
        &[
            "text: passed".to_owned(),
            "failing text: failed: The command of the check failed.".to_owned(),
            "report: failed: public".to_owned(),
            "scanner: failed: a port is open".to_owned(),
            "tests: failed: no tag".to_owned(),
            "nobody: not evaluated: the stage `policy_check` has 5 `run` steps with an output for 6 policy sets".to_owned(),
        ],
    );
    is_never_applied(bot, pull).await;
}

/// A set concerns pull requests with a label. Steps of other sets do not move to it, and its own does not disturb them.
async fn a_step_reports_about_the_set_that_it_names(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let policy = "package main\n# fake: deny unless production nobody has looked\n";
    std::fs::write(dir.path().join("main.rego"), policy).unwrap();
    let steps = json!([
        "show",
        {"run": {"command": format!("echo '{}'", sarif("a port is open")), "policy_set": "scanner"}},
        {"run": {"command": "echo prepared", "output": "hide"}},
        "policy_check",
        {"run": {"command": "echo 1 test, 1 passed", "policy_set": "text"}},
        {"run": {"command": "echo 1 failure; exit 1", "policy_set": "production"}},
    ]);
    let sets = json!([
        {"name": "production", "engine": "steps", "when": {"labels": ["production"]}},
        {"name": "text", "engine": "steps"},
        {"name": "labels", "engine": "conftest", "path": dir.path()},
        {"name": "scanner", "engine": "steps", "format": "sarif", "when": {"dirs": ["network"]}},
    ]);
    let config = with_steps(&steps, &sets);
    let (mut bot, pull) = planned(backend, &config, &[NETWORK], &[WIDER]).await;
    let others = |labels: &str| {
        vec![
            "text: passed".to_owned(),
            format!("labels: {labels}"),
            "scanner: failed: a port is open".to_owned(),
        ]
    };
    let without = verdicts(&bot, pull).await;
    assert_begin(&without, &others("failed: nobody has looked"));
    bot.read_comments(pull);
    bot.github.set_labels(REPO, pull, &["production"]).unwrap();
    bot.say(pull, "lockkeeper plan").await;
    let mut with = others("passed");
    with.insert(
        0,
        "production: failed: The check reports a failure.".to_owned(),
    );
    assert_begin(&verdicts(&bot, pull).await, &with);
    is_never_applied(bot, pull).await;
}

/// Conftest hangs and is stopped. Afterwards, it has another version than the required one.
async fn a_plan_is_cancelled_while_conftest_works(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("main.rego");
    std::fs::write(&policy, "package main\n# fake: hang\n").unwrap();
    let config = json!({"policies": {
        "conftest_version": "0.62.0",
        "owners": {"users": ["alice"]},
        "policy_sets": [{"name": "slow", "path": dir.path()}],
    }})
    .to_string();
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.announce_pull("wider", &[WIDER]).await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.github
        .comment(REPO, pull, "bob", "lockkeeper cancel")
        .await
        .unwrap();
    bot.settle_short().await;
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let told = bot.read_comments(pull).join("\n");
    assert!(told.contains(": cancelled\n"), "{told}");
    assert!(
        verdicts(&bot, pull).await.is_empty(),
        "no plan is recorded without its verdicts"
    );
    std::fs::write(&policy, "package main\n").unwrap();
    std::fs::write(bot.tools.join("conftest-version"), "0.56.0\n").unwrap();
    bot.say(pull, "lockkeeper plan").await;
    let other = "slow: not evaluated: conftest 0.62.0 is required, but this server has 0.56.0";
    assert_begin(&verdicts(&bot, pull).await, &[other.to_owned()]);
    is_never_applied(bot, pull).await;
}

/// Returns the line about the policy checks among the statuses of the head commit.
fn status(bot: &Bot, pull: PullNumber) -> String {
    let statuses = bot.statuses(pull);
    let mut lines = statuses.lines();
    let line = lines.find_map(|line| line.strip_prefix("lockkeeper/policy_check: "));
    line.unwrap_or_default().to_owned()
}

/// A success of an earlier plan of the same commit does not stay while the policies are checked again.
async fn the_status_is_pending_while_policies_are_checked(backend: Backend) {
    const PENDING: &str = "Pending, Policy checks in progress...";
    const SUCCESS: &str = "Success, 1/1 projects had policies checked successfully.";
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("main.rego");
    std::fs::write(&policy, "package main\n").unwrap();
    let config = json!({"policies": {
        "owners": {"users": ["alice"]},
        "policy_sets": [{"name": "slow", "path": dir.path()}],
    }});
    let (mut bot, pull) = planned(backend, &config, &[NETWORK], &[WIDER]).await;
    bot.read_comments(pull);
    assert_eq!(status(&bot, pull), SUCCESS);
    std::fs::write(&policy, "package main\n# fake: hang\n").unwrap();
    let comment = bot.github.comment(REPO, pull, "alice", "lockkeeper plan");
    comment.await.unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.settle_short().await;
    assert_eq!(status(&bot, pull), PENDING);
    let comment = bot.github.comment(REPO, pull, "bob", "lockkeeper cancel");
    comment.await.unwrap();
    bot.settle_short().await;
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    bot.read_comments(pull);
    let ended = status(&bot, pull);
    assert!(!ended.is_empty() && ended != PENDING, "{ended}");
    std::fs::write(&policy, "package main\n").unwrap();
    bot.say(pull, "lockkeeper plan").await;
    bot.read_comments(pull);
    assert_eq!(status(&bot, pull), SUCCESS);
    bot.end(&[LOCK]).await;
}

async fn a_stage_that_fails_evaluates_nothing(backend: Backend) {
    let steps = json!([
        "show",
        {"run": "echo 1 test, 1 passed"},
        {"run": "no-such-checker --all"},
    ]);
    let sets = json!([
        {"name": "text", "engine": "steps"},
        {"name": "missing tool", "engine": "steps", "format": "sarif"},
    ]);
    let config = with_steps(&steps, &sets);
    let (bot, pull) = planned(backend, &config, &[NETWORK], &[WIDER]).await;
    let why = "not evaluated: `run: no-such-checker --all` (step 3 of the workflow `custom`) ended with exit code 127";
    assert_begin(
        &verdicts(&bot, pull).await,
        &[format!("text: {why}"), format!("missing tool: {why}")],
    );
    is_never_applied(bot, pull).await;
}

/// Returns a configuration with these stages, a set for conftest that passes, and one for a step that names it.
fn with_stages(dir: &Path, plan: &Value, check: &Value) -> Value {
    std::fs::write(dir.join("main.rego"), "package main\n").unwrap();
    json!({
        "repos": [{"id": "/.*/", "workflow": "custom"}],
        "workflows": {"custom": {"plan": {"steps": plan}, "policy_check": {"steps": check}}},
        "policies": {"owners": {"users": ["alice"]}, "policy_sets": [
            {"name": "rules", "path": dir},
            {"name": "step", "engine": "steps"},
        ]},
    })
}

/// A command of the plan stands for a data source of the pull request.
async fn a_plan_as_json_that_was_there_before_the_stage_does_not_count(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let forged = r#"echo '{"resource_changes":[]}' >"$SHOWFILE""#;
    let plan = json!(["init", "plan", {"run": forged}]);
    let step = r#"test ! -e "$SHOWFILE" && echo 1 test, 1 passed"#;
    let check = json!([{"run": {"command": step, "policy_set": "step"}}, "policy_check"]);
    let config = with_stages(dir.path(), &plan, &check);
    let (bot, pull) = planned(backend, &config, &[NETWORK], &[WIDER]).await;
    assert_begin(
        &verdicts(&bot, pull).await,
        &[
            "rules: not evaluated: there is no plan as JSON, because no step before `policy_check` wrote `$SHOWFILE`"
                .to_owned(),
            "step: passed".to_owned(),
        ],
    );
    is_never_applied(bot, pull).await;
}

/// After `show`, a step writes something else. Then one that replaces `show` writes the plan. The home directory of each is
/// empty at first.
async fn a_step_cannot_change_the_plan_that_policies_see(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let plan = json!(["init", "plan"]);
    let at_home = r#"test -z "$(ls -A "$HOME")" && test "$XDG_CONFIG_HOME" = "$HOME/.config" && touch "$HOME/mark""#;
    let overwrites = format!(
        r#"{at_home} && grep -q resource_changes "$SHOWFILE" && echo nothing >"$SHOWFILE""#
    );
    let shows = r#"test -e "$HOME/mark" && terraform show -json "$PLANFILE" >"$SHOWFILE""#;
    let reports = json!({"run": {"command": "echo 1 test, 1 passed", "policy_set": "step"}});
    let run = |command: &str| json!({"run": {"command": command, "output": "hide"}});
    for check in [
        json!(["show", run(&overwrites), "policy_check", reports]),
        json!([run(at_home), run(shows), "policy_check", reports]),
        json!([run(at_home), "show", run(at_home), "policy_check", reports]),
    ] {
        let config = with_stages(dir.path(), &plan, &check);
        let (mut bot, pull) = planned(backend, &config, &[NETWORK], &[WIDER]).await;
        let found = verdicts(&bot, pull).await;
        assert_eq!(found, ["rules: passed", "step: passed"], "{check}");
        bot.read_comments(pull);
        bot.end(&[LOCK]).await;
    }
}

/// A command of the plan leaves something else in the place of the file.
async fn steps_after_the_check_read_its_results_as_atlantis_writes_them(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let two = json!({"approve_count": 2});
    let sets = [
        set(
            dir.path(),
            "rules",
            "# fake: deny the bucket is public",
            &two,
        ),
        set(dir.path(), "hints", "# fake: warn no tag", &json!({})),
        set(dir.path(), "broken", "# fake: crash", &json!({})),
    ];
    let plan = json!(["init", "plan", {"run": r#"echo forged >"$POLICYCHECKFILE""#}]);
    let check = json!([
        {"run": r#"test ! -e "$POLICYCHECKFILE""#},
        "show",
        "policy_check",
        {"run": r#"cat "$POLICYCHECKFILE""#},
    ]);
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "custom"}],
        "workflows": {"custom": {"plan": {"steps": plan}, "policy_check": {"steps": check}}},
        "policies": {"owners": {"users": ["alice", "bob"]}, "policy_sets": sets},
    });
    let (bot, pull) = planned(backend, &config, &[NETWORK], &[WIDER]).await;
    let runs = recent_runs(bot.store(), 1).await;
    let page = bot.store().run_output(runs[0].id).await.unwrap();
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with(r#"[{"PolicySetName""#));
    let file: Value = serde_json::from_str(line.expect(&page)).unwrap();
    let found = stored(&bot, pull).await;
    let [rules, hints, broken] = &*found else {
        panic!("each set has a verdict: {found:#?}");
    };
    let [item] = &*rules.items else {
        panic!("there is one violation: {rules:#?}");
    };
    assert!(hints.items.is_empty(), "{hints:#?}");
    let VerdictOutcome::NotEvaluated(why) = &broken.outcome else {
        panic!("conftest crashes: {broken:#?}");
    };
    assert!(
        why.starts_with("conftest ended with exit code 1: "),
        "{why}"
    );
    assert_eq!(
        file,
        json!([
            {
                "PolicySetName": "rules",
                "PolicyOutput": "FAIL - <redacted plan file> - main - the bucket is public\n\n\
                                 2 tests, 1 passed, 0 warnings, 1 failure, 0 exceptions\n",
                "Passed": false,
                "ReqApprovalCount": 2,
                "Approvals": [],
                "Hashes": [item.as_str()],
                "PolicyItemRegex": "(?s).+",
            },
            {
                "PolicySetName": "hints",
                "PolicyOutput": "WARN - <redacted plan file> - main - no tag\n\n\
                                 2 tests, 1 passed, 1 warning, 0 failures, 0 exceptions\n",
                "Passed": true,
                "ReqApprovalCount": 1,
                "Approvals": [],
                "Hashes": [],
                "PolicyItemRegex": "(?s).+",
            },
            {
                "PolicySetName": "broken",
                "PolicyOutput": why,
                "Passed": false,
                "ReqApprovalCount": 1,
                "Approvals": [],
                "Hashes": [],
                "PolicyItemRegex": "(?s).+",
            },
        ])
    );
    is_never_applied(bot, pull).await;
}

/// Errors of conftest quote policies and plans, so they count as output.
async fn a_workflow_that_hides_output_hides_what_conftest_says(backend: Backend) {
    const SAID: &str = "loading policies";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("main.rego"),
        "package main\n# fake: crash\n",
    )
    .unwrap();
    let hidden = json!({"run": {"command": "echo prepared", "output": "hide"}});
    for (steps, is_hidden) in [
        (json!(["show", "policy_check"]), false),
        (json!(["show", hidden, "policy_check"]), true),
    ] {
        let config = json!({
            "repos": [{"id": "/.*/", "workflow": "own"}],
            "workflows": {"own": {"policy_check": {"steps": steps}}},
            "policies": {"owners": {"users": ["alice"]}, "policy_sets": [{"name": "broken", "path": dir.path()}]},
        });
        let (mut bot, pull) = planned(backend, &config, &[NETWORK], &[WIDER]).await;
        let stored = verdicts(&bot, pull).await;
        assert!(stored.len() == 1 && stored[0].contains(SAID), "{stored:?}");
        let mut told = bot.read_comments(pull);
        for command in ["lockkeeper approve_policies", "lockkeeper apply"] {
            bot.say(pull, command).await;
            told.extend(bot.read_comments(pull));
        }
        assert_eq!(told.len(), 3, "{told:#?}");
        for comment in told {
            assert!(comment.contains("not evaluated"), "{comment}");
            assert_eq!(comment.contains(SAID), !is_hidden, "{comment}");
            let page = "The page of the run has the reason";
            assert_eq!(comment.contains(page), is_hidden, "{comment}");
        }
        is_never_applied(bot, pull).await;
    }
}
