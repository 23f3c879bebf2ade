//! Stories about findings of policy checks that GitHub shows beside the lines of the code, where the bot is a GitHub App.

use lockkeeper::emulator::{EmulatedAnnotation, EmulatedCheckRun, Fault};
use lockkeeper::model::PullNumber;
use serde_json::{Value, json};

use crate::stories::NETWORK;
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    findings_with_a_line_are_shown_beside_the_code,
    annotations_change_nothing_where_github_does_not_take_them,
    a_token_never_sends_annotations,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const LOCK: &str = "acme/infra/network/default by #1";
const CREATE: &str = "POST /repos/*/*/check-runs";
const FAILED: &str = "lockkeeper/policy_check: Failure, Policies of 1/1 projects did not pass.";

/// Returns a step that prints a SARIF log with a result for each place.
fn step(policy_set: &str, message: &str, places: &[(&str, u32)]) -> Value {
    let result = |(file, line): &(&str, u32)| {
        json!({"ruleId": "r", "level": "error", "message": {"text": message}, "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": file}, "region": {"startLine": line}}}]})
    };
    let results: Vec<Value> = places.iter().map(result).collect();
    let runs = json!([{"tool": {"driver": {"name": "t"}}, "results": results}]);
    let log = json!({"version": "2.1.0", "runs": runs});
    json!({"run": {"command": format!("echo '{log}'"), "policy_set": policy_set}})
}

/// Returns a configuration in which one set has a result with a line, one that leaves the repository, and one of a file of
/// the server. Another set has 60 results, for pull requests with a label.
fn config() -> String {
    let many: Vec<(&str, u32)> = (1..=60).map(|line| ("network/main.tf", line)).collect();
    let places = [
        ("main.tf", 2),
        ("../modules/vpc/main.tf", 7),
        ("../../../etc/passwd", 1),
        ("/etc/passwd", 1),
    ];
    let steps = [
        json!("show"),
        step("scanner", "a port is open", &places),
        step("production", "no tag", &many),
    ];
    json!({
        "repos": [{"id": "/.*/", "workflow": "custom", "custom_policy_check": true}],
        "workflows": {"custom": {"policy_check": {"steps": steps}}},
        "policies": {"owners": {"users": ["alice"]}, "policy_sets": [
            {"name": "scanner", "engine": "steps", "format": "sarif"},
            {"name": "production", "engine": "steps", "format": "sarif", "when": {"labels": ["production"]}},
        ]},
    })
    .to_string()
}

fn check_runs(bot: &Bot, pull: PullNumber) -> Vec<EmulatedCheckRun> {
    let head = bot.github.pull(REPO, pull).unwrap().head;
    bot.github.check_runs(REPO, &head).unwrap()
}

/// Checks that the plan was made and the status is a failure, with and without annotations.
fn assert_verdict(bot: &mut Bot, pull: PullNumber) {
    let answer = bot.answer(pull);
    assert!(answer.contains("Policies did not pass"), "{answer}");
    let statuses = bot.statuses(pull);
    assert!(statuses.lines().any(|line| line == FAILED), "{statuses}");
}

async fn findings_with_a_line_are_shown_beside_the_code(backend: Backend) {
    let config = config();
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::as_app_with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_verdict(&mut bot, pull);
    let annotation = |path: &str, line| EmulatedAnnotation {
        path: path.to_owned(),
        start_line: line,
        end_line: line,
        level: "failure".to_owned(),
        title: Some("Policy set scanner: r".to_owned()),
        message: "a port is open".to_owned(),
    };
    let runs = check_runs(&bot, pull);
    let [first] = &*runs else {
        panic!("there is one check run: {runs:#?}");
    };
    assert_eq!(
        first.annotations,
        [
            annotation("modules/vpc/main.tf", 7),
            annotation("network/main.tf", 2)
        ]
    );
    let facts = &first.facts;
    assert_eq!(facts.name, "lockkeeper/policy_findings");
    assert_eq!(facts.conclusion.as_deref(), Some("neutral"));
    assert_eq!(facts.title.as_deref(), Some("2 violations"));
    insta::assert_snapshot!(
        facts.summary.as_deref().unwrap(),
        @"
    Findings of policy checks that name a line, in the newest plans of `network/default`.

    This check only shows them beside the code, and is neutral: the status `lockkeeper/policy_check` says if the policies passed. The comments with the plans have all findings, and the people who can approve them.
    "
    );

    bot.say(pull, "lockkeeper plan").await;
    assert_verdict(&mut bot, pull);
    assert_eq!(check_runs(&bot, pull), runs, "the findings are the same");

    bot.github.set_labels(REPO, pull, &["production"]).unwrap();
    bot.say(pull, "lockkeeper plan").await;
    assert_verdict(&mut bot, pull);
    let runs = check_runs(&bot, pull);
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[1].annotations.len(), 62);
    assert_eq!(runs[1].facts.title.as_deref(), Some("62 violations"));
    bot.end(&[LOCK]).await;
}

async fn annotations_change_nothing_where_github_does_not_take_them(backend: Backend) {
    let config = config();
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::as_app_with(backend, &[NETWORK], &flags).await;
    // The permission was withdrawn after the token was issued.
    bot.github.fault(CREATE, 1, Fault::Forbidden);
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_verdict(&mut bot, pull);
    assert_eq!(check_runs(&bot, pull).len(), 0);

    bot.github.fault(CREATE, 2, Fault::BadGateway);
    bot.github.fault(CREATE, 1, Fault::LoseAnswer);
    bot.say(pull, "lockkeeper plan").await;
    assert_verdict(&mut bot, pull);
    let runs = check_runs(&bot, pull);
    assert_eq!(runs.len(), 1, "a retry finds the check run: {runs:#?}");
    assert_eq!(runs[0].annotations.len(), 2);
    bot.end(&[LOCK]).await;
}

async fn a_token_never_sends_annotations(backend: Backend) {
    let config = config();
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_verdict(&mut bot, pull);
    let requests = bot.github.requests();
    let about_checks = requests
        .iter()
        .filter(|request| request.path.contains("check-runs"));
    assert_eq!(about_checks.count(), 0);
    bot.end(&[LOCK]).await;
}
