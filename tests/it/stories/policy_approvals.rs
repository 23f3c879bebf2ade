//! Stories about plans that violate policies: they are not applied until owners of the policies have approved what they
//! saw. Conftest is the stand-in of `tests/fakes`, which reads its orders from the policies.

use std::path::Path;
use std::time::Duration;

use lockkeeper::emulator::{Delivering, NewTeam, Role};
use lockkeeper::model::{CommandKind, CommandOutcome, PullNumber};
use lockkeeper::queue::Tick;
use serde_json::{Value, json};

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO, WebhookRequest};
use crate::support::db::{Backend, story};

story!(
    a_violation_refuses_the_apply_until_an_owner_approves_it,
    an_approval_does_not_outlive_the_plan_that_its_author_saw,
    nobody_approves_a_plan_before_a_comment_shows_its_violations,
    a_sticky_approval_counts_as_long_as_the_violations_are_the_same,
    every_person_counts_once_and_the_author_not_at_all,
    members_of_a_team_approve,
    a_rule_needs_as_many_members_of_its_team_as_it_says,
    an_approval_can_be_withdrawn,
    owners_withdraw_whatever_the_author_does,
    an_approval_that_was_cut_off_is_told_as_given,
    teams_that_are_not_looked_up_are_told,
    owners_approve_where_only_a_project_is_checked,
    a_set_that_was_not_evaluated_cannot_be_approved,
    a_comment_that_arrives_late_or_twice_approves_what_its_author_saw_once,
    violations_that_nobody_can_read_cannot_be_approved,
    hooks_have_errors_until_the_last_approval,
);

pub(super) const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
pub(super) const LOCK: &str = "acme/infra/network/default by #1";
pub(super) const APPROVE: &str = "lockkeeper approve_policies";
pub(super) const APPLY: &str = "lockkeeper apply";

/// Writes a policy with these orders for the stand-in, and returns its set with further keys.
pub(super) fn set(dir: &Path, name: &str, orders: &str, keys: &Value) -> Value {
    let path = dir.join(name);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("main.rego"), format!("package main\n{orders}\n")).unwrap();
    let mut set = json!({"name": name, "path": path});
    let keys = keys.as_object().unwrap().clone();
    set.as_object_mut().unwrap().extend(keys);
    set
}

pub(super) fn config(sets: &[Value]) -> String {
    json!({"policies": {"policy_sets": sets}}).to_string()
}

/// Opens a pull request of `alice`, whose plan the sets check. The comment about the plan is still unread.
async fn planned(backend: Backend, sets: &[Value]) -> (Bot, PullNumber) {
    let config = config(sets);
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    (bot, pull)
}

/// Comments as somebody, and checks the reply.
pub(super) async fn tells(bot: &mut Bot, pull: PullNumber, who: &str, text: &str, expected: &str) {
    bot.hear(pull, who, text).await;
    let answer = bot.answer(pull);
    assert!(answer.contains(expected), "{who}: {text}\n{answer}");
}

pub(super) fn applies(bot: &Bot) -> usize {
    let calls = bot.calls();
    calls
        .iter()
        .filter(|call| call.starts_with("apply"))
        .count()
}

pub(super) const PUBLIC: &str = "# fake: deny the bucket is public";

pub(super) fn owned_by(users: &[&str]) -> Value {
    json!({"owners": {"users": users}})
}

async fn a_violation_refuses_the_apply_until_an_owner_approves_it(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let sets = [set(dir.path(), "basics", PUBLIC, &owned_by(&["bob"]))];
    let (mut bot, pull) = planned(backend, &sets).await;
    let plan = bot.answer(pull);
    for part in [
        "Ran Plan for dir: `network` workspace: `default`: policies did not pass\n",
        "**❌ Policies did not pass**\n",
        "* ❌ the bucket is public",
        "`bob` can approve this.",
        "<sub>Checked by conftest 0.62.0.</sub>",
        "lockkeeper approve_policies -d network",
    ] {
        assert!(plan.contains(part), "{part}\n{plan}");
    }
    assert!(!plan.contains("lockkeeper apply"), "{plan}");
    let statuses = bot.statuses(pull);
    for line in [
        "lockkeeper/plan: Success, 1/1 projects planned successfully.\n",
        "lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.\n",
        "lockkeeper/policy_check: Failure, Policies of 1/1 projects did not pass.\n",
    ] {
        assert!(statuses.contains(line), "{line}\n{statuses}");
    }
    let unmet = "**Apply refused**: the policies of this plan did not pass: `basics` is violated and has 0 of 1 \
                 approval. Nothing was applied, and the plan is kept.";
    tells(&mut bot, pull, "alice", APPLY, unmet).await;
    let not_owner =
        "**Approve Policies refused**: `alice` may not approve `basics`. `bob` can approve it.";
    tells(&mut bot, pull, "alice", APPROVE, not_owner).await;
    tells(&mut bot, pull, "alice", APPLY, unmet).await;
    assert_eq!(applies(&bot), 0);
    let approved = "`bob` approved the violations of `basics`.";
    tells(&mut bot, pull, "bob", APPROVE, approved).await;
    let statuses = bot.statuses(pull);
    let line =
        "lockkeeper/policy_check: Success, 1/1 projects had policies checked successfully.\n";
    assert!(statuses.contains(line), "{statuses}");
    tells(&mut bot, pull, "alice", APPLY, "Ran Apply for").await;
    assert_eq!(applies(&bot), 1);
    bot.end(&[LOCK]).await;
}

async fn an_approval_does_not_outlive_the_plan_that_its_author_saw(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let sets = [set(dir.path(), "basics", PUBLIC, &owned_by(&["bob"]))];
    let (mut bot, pull) = planned(backend, &sets).await;
    bot.read_comments(pull);
    tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;
    let again = "0 of 1 approval";
    tells(&mut bot, pull, "alice", "lockkeeper plan", again).await;
    tells(&mut bot, pull, "alice", APPLY, "has 0 of 1 approval.").await;
    assert_eq!(applies(&bot), 0);
    bot.end(&[LOCK]).await;
}

/// The first project is planned, and the second one is slow. Somebody approves between the two.
async fn nobody_approves_a_plan_before_a_comment_shows_its_violations(backend: Backend) {
    const ORDER: (&str, &str) = (
        "atlantis.yaml",
        "version: 3\nprojects:\n- name: app\n  dir: app\n  execution_order_group: 1\n- name: net\n  dir: network\n",
    );
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({"owners": {"users": ["bob"]}, "when": {"dirs": ["network"]}});
    let config = config(&[set(dir.path(), "basics", PUBLIC, &keys)]);
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK, APP, ORDER], &flags).await;
    let slow = ("app/main.tf", "# fake: wait plan\n");
    let pull = bot.announce_pull("wider", &[WIDER, slow]).await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    let recorded = bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    bot.db.clock.advance(Duration::from_secs(5));
    let comment = bot.github.comment(REPO, pull, "bob", APPROVE);
    comment.await.unwrap();
    bot.settle_short().await;
    bot.db.clock.advance(Duration::from_secs(5));
    bot.go();
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let told = bot.read_comments(pull);
    let newer = "it is not certain that a comment showed the plan when its approval was requested";
    assert!(told.len() == 2 && told[1].contains(newer), "{told:#?}");
    let apply = "lockkeeper apply -p net";
    tells(&mut bot, pull, "alice", apply, "has 0 of 1 approval.").await;
    assert_eq!(applies(&bot), 0);
    tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;
    tells(&mut bot, pull, "alice", apply, ": applied\n").await;
    assert_eq!(applies(&bot), 1);
    bot.end(&["acme/infra/app/default by #1", LOCK]).await;
}

async fn a_sticky_approval_counts_as_long_as_the_violations_are_the_same(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({"owners": {"users": ["bob"]}, "sticky_policy_approvals": true});
    let sets = [set(dir.path(), "basics", PUBLIC, &keys)];
    let (mut bot, pull) = planned(backend, &sets).await;
    bot.read_comments(pull);
    tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;
    let kept = "1 violation, approved by `bob`";
    tells(&mut bot, pull, "alice", "lockkeeper plan", kept).await;
    // People cannot see the character, but this is another bucket.
    set(
        dir.path(),
        "basics",
        "# fake: deny the buck\u{34f}et is public",
        &json!({}),
    );
    let other = "1 violation, 0 of 1 approval";
    tells(&mut bot, pull, "alice", "lockkeeper plan", other).await;
    set(dir.path(), "basics", PUBLIC, &json!({}));
    tells(&mut bot, pull, "alice", "lockkeeper plan", kept).await;
    let more = format!("{PUBLIC}\n# fake: deny the bucket has no name");
    set(dir.path(), "basics", &more, &json!({}));
    let lost = "2 violations, 0 of 1 approval";
    tells(&mut bot, pull, "alice", "lockkeeper plan", lost).await;
    tells(&mut bot, pull, "alice", APPLY, "has 0 of 1 approval.").await;
    assert_eq!(applies(&bot), 0);
    bot.end(&[LOCK]).await;
}

async fn every_person_counts_once_and_the_author_not_at_all(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({
        "owners": {"users": ["alice", "bob", "Olga"]},
        "approve_count": 2,
        "prevent_self_approve": true,
    });
    let sets = [set(dir.path(), "basics", PUBLIC, &keys)];
    let (mut bot, pull) = planned(backend, &sets).await;
    bot.read_comments(pull);
    let author = "`alice` opened this pull request, so somebody else must approve `basics`";
    tells(&mut bot, pull, "alice", APPROVE, author).await;
    bot.hear(pull, "bob", APPROVE).await;
    let answer = bot.answer(pull);
    for part in [
        "workspace: `default`: policies do not pass yet\n",
        "\n`bob` approved the violations of `basics`. Still needed: 1 approval of `basics`.\n",
        "1 violation, 1 of 2 approvals, by `bob`",
    ] {
        assert!(answer.contains(part), "{part}\n{answer}");
    }
    // The command is a success, and the status still is none.
    let command = bot.store().command_list(1).await.unwrap().remove(0);
    assert_eq!(
        (command.kind, command.outcome),
        (CommandKind::ApprovePolicies, Some(CommandOutcome::Success))
    );
    let statuses = bot.statuses(pull);
    let failure = "lockkeeper/policy_check: Failure, Policies of 1/1 projects did not pass.\n";
    assert!(statuses.contains(failure), "{statuses}");
    let twice = "`bob` has already approved `basics`";
    tells(&mut bot, pull, "bob", APPROVE, twice).await;
    tells(&mut bot, pull, "alice", APPLY, "has 1 of 2 approvals.").await;
    // Approvals are listed in the order of time.
    bot.db.clock.advance(Duration::from_mins(1));
    let only = "lockkeeper approve_policies -d network --policy-set basics";
    tells(&mut bot, pull, "olga", only, "approved by `bob` and `olga`").await;
    tells(&mut bot, pull, "alice", APPLY, "Ran Apply for").await;
    assert_eq!(applies(&bot), 1);
    bot.end(&[LOCK]).await;
}

async fn members_of_a_team_approve(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({"owners": {"teams": ["acme/ops"]}});
    let sets = [set(dir.path(), "basics", PUBLIC, &keys)];
    let (mut bot, pull) = planned(backend, &sets).await;
    let ops = NewTeam::new("Ops").with(&["olga"]);
    bot.github.set_team("acme", ops).unwrap();
    bot.read_comments(pull);
    let refused = "`bob` may not approve `basics`. Members of `acme/ops` can approve it.";
    tells(&mut bot, pull, "bob", APPROVE, refused).await;
    tells(&mut bot, pull, "olga", APPROVE, "`olga` approved").await;
    // Olga leaves the team. The server asks for its members again.
    bot.github
        .set_team("acme", NewTeam::new("Ops").with(&["bob"]))
        .unwrap();
    bot.db.clock.advance(Duration::from_mins(1));
    bot.say(pull, APPLY).await;
    let refused = bot.answer(pull);
    for part in [
        "`basics` is violated and has 0 of 1 approval. Nothing was applied",
        "* The approval of `olga` does not count any more, because `olga` may not approve `basics` any more.\n",
        "* Members of `acme/ops` can approve the violations of `basics`.",
    ] {
        assert!(refused.contains(part), "{part}\n{refused}");
    }
    assert_eq!(applies(&bot), 0);
    tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;
    tells(&mut bot, pull, "alice", APPLY, "Ran Apply for").await;
    assert_eq!(applies(&bot), 1);
    bot.end(&[LOCK]).await;
}

/// The rule names a team, so the approval of the owner of the set is stored and does not count.
async fn a_rule_needs_as_many_members_of_its_team_as_it_says(backend: Backend) {
    const RULE: &str = r#"
import rego.v1

require_approval contains result if {
  input.resource_changes
  result := {"msg": "permissions change", "count": 2, "teams": ["acme/ops"]}
}
"#;
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({"owners": {"users": ["bob"]}, "engine": "embedded"});
    let sets = [set(dir.path(), "basics", RULE, &keys)];
    let (mut bot, pull) = planned(backend, &sets).await;
    let ops = NewTeam::new("Ops").with(&["olga", "carol"]);
    bot.github.set_team("acme", ops).unwrap();
    let plan = bot.answer(pull);
    for part in ["permissions change", "1 violation, 0 of 2 approvals"] {
        assert!(plan.contains(part), "{part}\n{plan}");
    }
    let refused =
        "`alice` may not approve `basics`. `bob`, or members of `acme/ops`, can approve it.";
    tells(&mut bot, pull, "alice", APPROVE, refused).await;
    let owner = "`bob` approved the violations of `basics`. Still needed: 2 approvals of `basics`.";
    tells(&mut bot, pull, "bob", APPROVE, owner).await;
    tells(&mut bot, pull, "alice", APPLY, "has 0 of 2 approvals.").await;
    bot.db.clock.advance(Duration::from_mins(1));
    let half = "1 violation, 1 of 2 approvals, by `olga`";
    tells(&mut bot, pull, "olga", APPROVE, half).await;
    tells(&mut bot, pull, "alice", APPLY, "has 1 of 2 approvals.").await;
    assert_eq!(applies(&bot), 0);
    bot.db.clock.advance(Duration::from_mins(1));
    let both = "1 violation, approved by `olga` and `carol`";
    tells(&mut bot, pull, "carol", APPROVE, both).await;
    tells(&mut bot, pull, "alice", APPLY, ": applied\n").await;
    assert_eq!(applies(&bot), 1);
    bot.end(&[LOCK]).await;
}

async fn an_approval_can_be_withdrawn(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let bob = owned_by(&["bob"]);
    let sets = [
        set(dir.path(), "basics", PUBLIC, &bob),
        set(dir.path(), "network", "# fake: deny no firewall", &bob),
    ];
    let (mut bot, pull) = planned(backend, &sets).await;
    bot.read_comments(pull);
    let clear = "lockkeeper approve_policies --clear-policy-approval";
    let both = "`bob` approved the violations of `basics`, `network`.";
    tells(&mut bot, pull, "bob", APPROVE, both).await;
    let not_owner = "`alice` may not withdraw the approvals of `basics`. `bob` can withdraw them.";
    tells(&mut bot, pull, "alice", clear, not_owner).await;
    let one = format!("{clear} --policy-set network");
    let withdrawn =
        "The approvals of `network` were withdrawn. Still needed: 1 approval of `network`.";
    tells(&mut bot, pull, "bob", &one, withdrawn).await;
    let refused = "did not pass: `network` is violated and has 0 of 1 approval. Nothing";
    tells(&mut bot, pull, "alice", APPLY, refused).await;
    let withdrawn = "The approvals of `basics` were withdrawn. Still needed: 1 approval of `basics`, 1 approval of \
                     `network`.";
    tells(&mut bot, pull, "bob", clear, withdrawn).await;
    let refused = "`basics` is violated and has 0 of 1 approval; `network` is violated";
    tells(&mut bot, pull, "alice", APPLY, refused).await;
    assert_eq!(applies(&bot), 0);
    bot.end(&[LOCK]).await;
}

async fn a_set_that_was_not_evaluated_cannot_be_approved(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let orders = "# fake: no rules";
    let sets = [set(dir.path(), "basics", orders, &owned_by(&["bob"]))];
    let (mut bot, pull) = planned(backend, &sets).await;
    let plan = bot.answer(pull);
    assert!(
        plan.contains("**Policy set `basics`**: not evaluated"),
        "{plan}"
    );
    assert!(!plan.contains("approve_policies"), "{plan}");
    let no_help = "No approval can let this plan pass. Plan again.";
    tells(&mut bot, pull, "bob", APPROVE, no_help).await;
    let refused = "`basics` was not evaluated (";
    tells(&mut bot, pull, "alice", APPLY, refused).await;
    assert_eq!(applies(&bot), 0);
    bot.end(&[LOCK]).await;
}

async fn a_comment_that_arrives_late_or_twice_approves_what_its_author_saw_once(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({"owners": {"users": ["bob", "olga"]}, "approve_count": 2});
    let sets = [set(dir.path(), "basics", PUBLIC, &keys)];
    let (mut bot, pull) = planned(backend, &sets).await;
    bot.read_comments(pull);
    // The delivery of the comment is lost, and the project is planned again before somebody delivers it.
    bot.github.set_delivering(Delivering::Held).await;
    let comment = bot.github.comment(REPO, pull, "bob", APPROVE).await;
    comment.unwrap();
    let late = bot.github.lose_next().expect("it was held");
    assert_eq!(late.event, "issue_comment");
    bot.db.clock.advance(Duration::from_mins(5));
    let again = "0 of 2 approvals";
    tells(&mut bot, pull, "alice", "lockkeeper plan", again).await;
    bot.github.redeliver(late.id).await.unwrap();
    bot.settle().await;
    let answer = bot.answer(pull);
    let newer = "it is not certain that a comment showed the plan when its approval was requested";
    assert!(answer.contains(newer), "{answer}");
    tells(&mut bot, pull, "alice", APPLY, "has 0 of 2 approvals.").await;
    let half = "1 violation, 1 of 2 approvals, by `bob`";
    tells(&mut bot, pull, "bob", APPROVE, half).await;
    let mut deliveries = bot.github.deliveries().into_iter();
    let of_bob = deliveries
        .rfind(|one| one.recorded.body["comment"]["user"]["login"] == "bob")
        .expect("the comment was delivered");
    assert_ne!(of_bob.id, late.id);
    bot.github.redeliver(of_bob.id).await.unwrap();
    // A webhook of the organisation delivers the same comment under another number.
    let delivery = WebhookRequest::new("d-2", "issue_comment", &of_bob.recorded.body);
    assert_eq!(bot.post(&delivery).await, (200, "accepted\n".to_owned()));
    bot.settle().await;
    assert_eq!(bot.read_comments(pull), Vec::<String>::new());
    tells(&mut bot, pull, "alice", APPLY, "has 1 of 2 approvals.").await;
    assert_eq!(applies(&bot), 0);
    bot.db.clock.advance(Duration::from_mins(1));
    let both = "approved by `bob` and `olga`";
    tells(&mut bot, pull, "olga", APPROVE, both).await;
    tells(&mut bot, pull, "alice", APPLY, "Ran Apply for").await;
    assert_eq!(applies(&bot), 1);
    bot.end(&[LOCK]).await;
}

/// A verdict keeps 200 violations. The policies find one more.
async fn violations_that_nobody_can_read_cannot_be_approved(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let orders = |count: usize| -> String {
        let numbers = 0..count;
        let lines: Vec<String> = numbers
            .map(|n| format!("# fake: deny bucket {n} is public"))
            .collect();
        lines.join("\n")
    };
    let bob = owned_by(&["bob"]);
    let sets = [set(dir.path(), "basics", &orders(201), &bob)];
    let (mut bot, pull) = planned(backend, &sets).await;
    let plan = bot.answer(pull);
    for part in [
        "**Policy set `basics`**: not evaluated: The policies found 201 violations.",
        "nobody can approve them",
        "then plan again.",
        "Approvals do not help here.",
    ] {
        assert!(plan.contains(part), "{part}\n{plan}");
    }
    assert!(!plan.contains("approve_policies"), "{plan}");
    let no_help = "No approval can let this plan pass. Plan again.";
    tells(&mut bot, pull, "bob", APPROVE, no_help).await;
    let refused = "The policies found 201 violations.";
    tells(&mut bot, pull, "alice", APPLY, refused).await;
    assert_eq!(applies(&bot), 0);
    // As many as a verdict keeps can be read and approved.
    set(dir.path(), "basics", &orders(200), &bob);
    let fewer = "200 violations, 0 of 1 approval";
    tells(&mut bot, pull, "alice", "lockkeeper plan", fewer).await;
    tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;
    tells(&mut bot, pull, "alice", APPLY, ": applied\n").await;
    assert_eq!(applies(&bot), 1);
    bot.end(&[LOCK]).await;
}

/// The author discards the plan, takes away the label that a set asks for, and breaks the configuration.
async fn owners_withdraw_whatever_the_author_does(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({
        "owners": {"users": ["bob"]},
        "sticky_policy_approvals": true,
        "when": {"labels": ["production"]},
    });
    let sets = [set(dir.path(), "basics", PUBLIC, &keys)];
    let (mut bot, pull) = planned(backend, &sets).await;
    bot.read_comments(pull);
    let clear = "lockkeeper approve_policies --clear-policy-approval";
    for broken in [None, Some(("atlantis.yaml", "version: [\n"))] {
        bot.github.set_labels(REPO, pull, &["production"]).unwrap();
        bot.say(pull, "lockkeeper plan").await;
        let plan = bot.answer(pull);
        assert!(plan.contains("0 of 1 approval"), "{plan}");
        tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;
        if let Some(file) = broken {
            bot.push("wider", &[file]).await;
            bot.settle().await;
        } else {
            bot.say(pull, "lockkeeper unlock").await;
        }
        bot.read_comments(pull);
        bot.github.set_labels(REPO, pull, &[]).unwrap();
        let not_owner = "`alice` may not withdraw the approvals of `basics`.";
        tells(&mut bot, pull, "alice", clear, not_owner).await;
        let withdrawn = "The approvals of `basics` were withdrawn.";
        tells(&mut bot, pull, "bob", clear, withdrawn).await;
    }
    let left = bot.store().policy_approvals(&Bot::pull_ref(pull)).await;
    assert_eq!(left.unwrap(), []);
    bot.say(pull, "lockkeeper unlock").await;
    bot.read_comments(pull);
    bot.end(&[]).await;
}

/// The server dies at some moment of an approval. The next one does the command again.
async fn an_approval_that_was_cut_off_is_told_as_given(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({"owners": {"users": ["bob", "olga"]}, "approve_count": 2});
    let sets = [set(dir.path(), "basics", PUBLIC, &keys)];
    let (mut bot, pull) = planned(backend, &sets).await;
    bot.read_comments(pull);
    let (mut cut, mut stored) = (0, 0);
    for wakes in [4, 11, 22, 30, 45, 60, 80, 100, 140, 200] {
        let comment = bot.github.comment(REPO, pull, "bob", APPROVE);
        comment.await.unwrap();
        cut += usize::from(bot.work_until_killed(wakes).await);
        let approvals = bot.store().policy_approvals(&Bot::pull_ref(pull)).await;
        stored += approvals.unwrap().len();
        bot.crash_and_restart().await;
        bot.settle().await;
        let answer = bot.answer(pull);
        let half = "1 violation, 1 of 2 approvals, by `bob`";
        assert!(answer.contains(half), "killed after {wakes}: {answer}");
        assert!(
            !answer.contains("refused"),
            "killed after {wakes}: {answer}"
        );
        let clear = "lockkeeper approve_policies --clear-policy-approval";
        tells(&mut bot, pull, "bob", clear, "were withdrawn.").await;
    }
    assert!(cut > 2 && stored > 0, "{cut} were cut off, {stored} stored");
    bot.end(&[LOCK]).await;
}

async fn teams_that_are_not_looked_up_are_told(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let teams: Vec<String> = (0..31).map(|n| format!("acme/t{n}")).collect();
    let keys = json!({"owners": {"teams": teams}});
    let sets = [set(dir.path(), "basics", PUBLIC, &keys)];
    let (mut bot, pull) = planned(backend, &sets).await;
    for (name, who) in [("T29", "bob"), ("T30", "olga")] {
        let team = NewTeam::new(name).with(&[who]);
        bot.github.set_team("acme", team).unwrap();
    }
    bot.read_comments(pull);
    let left_out = "1 more team of the set was not looked up, because the maximum is 30.";
    tells(&mut bot, pull, "olga", APPROVE, left_out).await;
    tells(&mut bot, pull, "bob", APPROVE, "`bob` approved").await;
    bot.end(&[LOCK]).await;
}

/// Neither a flag nor the server's file switches checks on, and the owner may not write to the repository.
async fn owners_approve_where_only_a_project_is_checked(backend: Backend) {
    const CHECKED: (&str, &str) = (
        "atlantis.yaml",
        "version: 3\nprojects:\n- dir: network\n  policy_check: true\n- dir: app\n",
    );
    let dir = tempfile::tempdir().unwrap();
    let config = json!({
        "repos": [{"id": "/.*/", "allowed_overrides": ["policy_check"]}],
        "policies": {"policy_sets": [set(dir.path(), "basics", PUBLIC, &owned_by(&["rita"]))]},
    })
    .to_string();
    let flags = [("repo-config-json", config.as_str())];
    let mut bot = Bot::with(backend, &[NETWORK, APP, CHECKED], &flags).await;
    bot.github.set_role(REPO, "rita", Role::Read).unwrap();
    let pull = bot.open_pull("wider", &[WIDER]).await;
    let plan = bot.answer(pull);
    assert!(plan.contains("`rita` can approve this."), "{plan}");
    tells(&mut bot, pull, "rita", APPROVE, "`rita` approved").await;
    let statuses = bot.statuses(pull);
    assert!(statuses.contains("policy_check: Success"), "{statuses}");
    tells(&mut bot, pull, "alice", APPLY, ": applied\n").await;
    // The other project is not checked.
    let more = ("app/main.tf", "# fake: add 1 change 0 destroy 0\n");
    let other = bot.open_pull("other", &[more]).await;
    let plan = bot.answer(other);
    assert!(!plan.contains("olicies"), "{plan}");
    let off = "plans of this repository are not checked against policies";
    tells(&mut bot, other, "rita", APPROVE, off).await;
    bot.end(&["acme/infra/app/default by #2", LOCK]).await;
}

async fn hooks_have_errors_until_the_last_approval(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({"owners": {"users": ["bob", "olga"]}, "approve_count": 2});
    let tell = "echo $COMMAND_NAME $COMMAND_HAS_ERRORS >$OUTPUT_STATUS_FILE";
    let config = json!({
        "repos": [{"id": "/.*/", "post_workflow_hooks": [{"run": tell}]}],
        "policies": {"policy_sets": [set(dir.path(), "basics", PUBLIC, &keys)]},
    })
    .to_string();
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    for (who, has_errors) in [("bob", true), ("olga", false)] {
        let approved = format!("`{who}` approved the violations of `basics`.");
        tells(&mut bot, pull, who, APPROVE, &approved).await;
        let statuses = bot.statuses(pull);
        let line = format!("hook #0: Success, approve_policies {has_errors}\n");
        assert!(statuses.contains(&line), "{who}\n{statuses}");
    }
    bot.end(&[LOCK]).await;
}
