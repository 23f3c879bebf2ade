//! Stories about requirements of plans and applies, and about results that comments do not show.

use std::time::Duration;

use insta::assert_snapshot;
use lockkeeper::emulator::{Delivering, Fault, NewPull, NewStatus, Protection, Role, StatusState};
use lockkeeper::model::PullNumber;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    an_apply_waits_for_somebody_elses_approval,
    whoever_asks_for_changes_is_named_until_somebody_approves,
    an_approval_does_not_count_for_a_later_base_branch,
    a_base_branch_that_no_webhook_told_needs_a_new_approval,
    no_approval_counts_while_the_forge_does_not_tell_when_the_base_branch_changed,
    an_apply_waits_for_the_checks_that_the_branch_requires,
    an_apply_does_not_wait_for_its_own_status,
    a_rule_that_cannot_be_looked_at_refuses,
    github_may_need_a_moment,
    an_apply_waits_for_the_newest_base_branch,
    a_merge_has_to_be_planned_with_the_newest_base_branch,
    everything_that_is_missing_is_said_at_once,
    a_plan_that_needs_approval_takes_no_lock,
    the_repository_may_demand_more_where_it_is_allowed,
    plans_of_an_older_commit_say_nothing_about_those_of_this_one,
    an_apply_is_refused_while_the_forge_says_nothing,
    results_can_be_left_out_of_comments_but_not_failures,
    pull_requests_into_other_branches_are_left_alone,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const NET_LOCK: &str = "acme/infra/network/default by #1";

/// Starts a bot whose server has these rules for every repository, with a pull request of `alice`.
async fn planned(backend: Backend, rules: &str, flags: &[(&str, &str)]) -> (Bot, PullNumber) {
    let rules = format!(r#"{{"repos": [{{"id": "/.*/", {rules}}}]}}"#);
    let flags: Vec<_> = [("repo-config-json", rules.as_str())]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    (bot, pull)
}

fn applies(bot: &Bot) -> usize {
    bot.calls()
        .iter()
        .filter(|call| call.starts_with("apply "))
        .count()
}

async fn applied(bot: &mut Bot, pull: PullNumber) {
    bot.say(pull, "lockkeeper apply").await;
    let comment = bot.comment(pull);
    assert!(
        comment.starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n"),
        "{comment}"
    );
    assert_eq!(applies(bot), 1);
}

/// Requests an apply. Returns the message of its refusal, without the repository's host.
async fn refused(bot: &mut Bot, pull: PullNumber) -> String {
    bot.say(pull, "lockkeeper apply").await;
    let comment = bot.comment(pull);
    assert!(
        comment.starts_with("Ran Apply for dir: `network` workspace: `default`: refused\n"),
        "{comment}"
    );
    assert_eq!(applies(bot), 0);
    comment
}

const APPROVED: &str = r#""apply_requirements": ["approved"]"#;

async fn an_apply_waits_for_somebody_elses_approval(backend: Backend) {
    let (mut bot, pull) = planned(backend, APPROVED, &[]).await;
    bot.read_comments(pull);
    assert_snapshot!(refused(&mut bot, pull).await, @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the pull request.
    Nothing was applied, and the plan is kept.

    * Somebody other than the author `alice` must approve the pull request; then run the command again.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Failure, 1/1 projects failed to apply.
    lockkeeper/apply: network/default: Failure, Apply failed: refused, see the comment.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    bot.approve(pull, "bob");
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn whoever_asks_for_changes_is_named_until_somebody_approves(backend: Backend) {
    let (mut bot, pull) = planned(backend, APPROVED, &[]).await;
    bot.read_comments(pull);
    bot.approve(pull, "bob");
    bot.ask_for_changes(pull, "bob");
    bot.approve(pull, "carol");
    bot.github.dismiss_reviews(REPO, pull, "carol").unwrap();
    let comment = refused(&mut bot, pull).await;
    let line = comment
        .lines()
        .find(|line| line.starts_with("**Apply refused**"))
        .unwrap();
    assert_snapshot!(line, @"**Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the pull request; `bob` asks for changes; `carol` reviewed it, but the review was dismissed.");
    bot.approve(pull, "bob");
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

/// Returns the line with the reason why an apply was refused.
fn reason(comment: &str) -> &str {
    comment
        .lines()
        .find(|line| line.starts_with("**Apply refused**"))
        .expect(comment)
}

/// The planned merge contains the base branch, which is the author's own and which nobody has reviewed.
async fn an_approval_does_not_count_for_a_later_base_branch(backend: Backend) {
    let all = r#""apply_requirements": ["approved", "mergeable", "undiverged"]"#;
    let (mut bot, pull) = planned(backend, all, &[]).await;
    bot.read_comments(pull);
    bot.approve(pull, "bob");
    bot.push("own", &[("network/backdoor.tf", "# not reviewed\n")])
        .await;
    bot.db.clock.advance(Duration::from_mins(1));
    bot.github
        .change_base(REPO, pull, "alice", "own")
        .await
        .unwrap();
    bot.settle().await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    let comment = refused(&mut bot, pull).await;
    assert_snapshot!(reason(&comment), @"**Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the pull request; the approval by `bob` was given before the base branch changed to `own`.");
    assert!(
        comment.contains("* Ask for a new review: somebody other than the author `alice` must approve the pull request with its present base branch `own`; then run the command again.\n"),
        "{comment}"
    );
    bot.db.clock.advance(Duration::from_mins(1));
    bot.approve(pull, "bob");
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

/// The forge is asked, so it does not matter what the server has heard. The way back to the old base branch is a change,
/// too.
async fn a_base_branch_that_no_webhook_told_needs_a_new_approval(backend: Backend) {
    let (mut bot, pull) = planned(backend, APPROVED, &[]).await;
    bot.read_comments(pull);
    bot.push("own", &[("network/backdoor.tf", "# not reviewed\n")])
        .await;
    bot.approve(pull, "bob");
    for base in ["own", "main"] {
        bot.db.clock.advance(Duration::from_mins(1));
        bot.github.set_delivering(Delivering::Held).await;
        bot.github
            .change_base(REPO, pull, "alice", base)
            .await
            .unwrap();
        while bot.github.lose_next().is_some() {}
        bot.say(pull, "lockkeeper plan").await;
        bot.read_comments(pull);
        let comment = refused(&mut bot, pull).await;
        let expected =
            format!("the approval by `bob` was given before the base branch changed to `{base}`.");
        assert!(reason(&comment).ends_with(&expected), "{comment}");
    }
    bot.db.clock.advance(Duration::from_mins(1));
    bot.approve(pull, "carol");
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn no_approval_counts_while_the_forge_does_not_tell_when_the_base_branch_changed(
    backend: Backend,
) {
    let (mut bot, pull) = planned(backend, APPROVED, &[]).await;
    bot.read_comments(pull);
    bot.approve(pull, "bob");
    bot.github
        .fault("GET /repos/*/*/issues/*/events", 3, Fault::BadGateway);
    let comment = refused(&mut bot, pull).await;
    assert_snapshot!(reason(&comment), @"**Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and Lockkeeper cannot determine who has approved: github.test could not be reached for the last change of the base branch of acme/infra#&#8203;1: Server Error.");
    assert!(
        comment.contains("* Run the command again in a moment."),
        "{comment}"
    );
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

const MERGEABLE: &str = r#""apply_requirements": ["mergeable"]"#;

/// Sets a status of another program on the head commit.
async fn check(bot: &Bot, pull: PullNumber, context: &str, state: StatusState) {
    let head = bot.github.pull(REPO, pull).unwrap().head;
    let (description, target_url) = (None, None);
    let status = NewStatus {
        state,
        context: context.to_owned(),
        description,
        target_url,
    };
    bot.github
        .set_status(REPO, &head, "ci", status)
        .await
        .unwrap();
}

async fn an_apply_waits_for_the_checks_that_the_branch_requires(backend: Backend) {
    let (mut bot, pull) = planned(backend, MERGEABLE, &[]).await;
    bot.read_comments(pull);
    let rules = Protection::of_checks(&["ci/test", "ci/lint", "lockkeeper/plan"]).with_approvals(1);
    bot.github.protect(REPO, "main", rules).unwrap();
    check(&bot, pull, "ci/test", StatusState::Failure).await;
    bot.github.set_role(REPO, "eve", Role::Read).unwrap();
    bot.approve(pull, "eve");
    assert_snapshot!(refused(&mut bot, pull).await, @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: `mergeable` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and the pull request cannot be merged: the required check `ci/test` failed; the required check `ci/lint` has not been set; 1 approval is required from people with write access, and nobody has approved.
    Nothing was applied, and the plan is kept.

    * Fix the failed checks; then run the command again.
    * Wait for the required checks; then run the command again.
    * Somebody with write access other than the author must approve the pull request; then run the command again.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    check(&bot, pull, "ci/test", StatusState::Success).await;
    check(&bot, pull, "ci/lint", StatusState::Success).await;
    bot.approve(pull, "bob");
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn an_apply_does_not_wait_for_its_own_status(backend: Backend) {
    let (mut bot, pull) = planned(
        backend,
        MERGEABLE,
        &[("ignore-vcs-status-names", "atlantis-eu")],
    )
    .await;
    bot.read_comments(pull);
    let rules = Protection::of_checks(&["lockkeeper/apply", "atlantis-eu/apply", "ci/test"]);
    bot.github.protect(REPO, "main", rules).unwrap();
    let comment = refused(&mut bot, pull).await;
    let line = comment
        .lines()
        .find(|line| line.starts_with("**Apply refused**"))
        .unwrap();
    assert_snapshot!(line, @"**Apply refused**: `mergeable` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and the pull request cannot be merged: the required check `ci/test` has not been set.");
    check(&bot, pull, "ci/test", StatusState::Success).await;
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn a_rule_that_cannot_be_looked_at_refuses(backend: Backend) {
    let (mut bot, pull) = planned(backend, MERGEABLE, &[]).await;
    bot.read_comments(pull);
    let rules = || Protection::of_checks(&["lockkeeper/apply"]);
    bot.github
        .protect(REPO, "main", rules().with_conversations())
        .unwrap();
    assert_snapshot!(refused(&mut bot, pull).await, @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: `mergeable` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and the pull request cannot be merged: Lockkeeper cannot check the rule that every conversation is resolved, because GitHub's REST API does not return it.
    Nothing was applied, and the plan is kept.

    * The merge box of the pull request shows the rule. If `lockkeeper/apply` is a required check of `main`, Lockkeeper cannot use the merge box, because it waits for this status; so Lockkeeper must check all other rules itself. An administrator of the repository can change the rule, extend Lockkeeper's permissions, or remove that check from the required checks.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.github.protect(REPO, "main", rules()).unwrap();
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn github_may_need_a_moment(backend: Backend) {
    let (mut bot, pull) = planned(backend, MERGEABLE, &[]).await;
    bot.read_comments(pull);
    bot.github.unsettle(REPO, pull, 100).unwrap();
    let comment = refused(&mut bot, pull).await;
    let line = comment
        .lines()
        .find(|line| line.starts_with("**Apply refused**"))
        .unwrap();
    assert_snapshot!(line, @"**Apply refused**: `mergeable` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and the forge is still checking whether the pull request can be merged.");
    bot.github.unsettle(REPO, pull, 4).unwrap();
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

const BRANCH: (&str, &str) = ("checkout-strategy", "branch");
const UNDIVERGED: &str = r#""apply_requirements": ["undiverged"]"#;

async fn an_apply_waits_for_the_newest_base_branch(backend: Backend) {
    let (mut bot, pull) = planned(backend, UNDIVERGED, &[BRANCH]).await;
    bot.read_comments(pull);
    bot.push("main", &[("README.md", "newer\n")]).await;
    assert_snapshot!(refused(&mut bot, pull).await, @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: `undiverged` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and `main` has 1 commit that the pull request does not contain.
    Nothing was applied, and the plan is kept.

    * Merge `main` into the branch of the pull request, or rebase it, and push. Lockkeeper plans the push automatically.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    // The new commit is based on the present base branch.
    let change = [lockkeeper::emulator::Change::write(WIDER.0, WIDER.1)];
    bot.github.force_push(REPO, "wider", &change).await.unwrap();
    bot.settle().await;
    bot.read_comments(pull);
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn a_merge_has_to_be_planned_with_the_newest_base_branch(backend: Backend) {
    let (mut bot, pull) = planned(backend, UNDIVERGED, &[]).await;
    bot.read_comments(pull);
    bot.push("main", &[("README.md", "newer\n")]).await;
    assert_snapshot!(refused(&mut bot, pull).await, @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: `undiverged` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and `main` has 1 commit that the planned merge does not contain.
    Nothing was applied, and the plan is kept.

    * Comment `lockkeeper plan` to plan the merge with the newest `main`. Check the new plan, then apply it.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper plan").await;
    bot.read_comments(pull);
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn everything_that_is_missing_is_said_at_once(backend: Backend) {
    let all = r#""apply_requirements": ["mergeable", "approved", "undiverged"]"#;
    let (mut bot, pull) = planned(backend, all, &[BRANCH]).await;
    bot.read_comments(pull);
    bot.push("main", &[("README.md", "newer\n")]).await;
    bot.github
        .convert_to_draft(REPO, pull, "alice")
        .await
        .unwrap();
    bot.settle().await;
    assert_snapshot!(refused(&mut bot, pull).await, @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: `mergeable` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and the pull request cannot be merged: it is a draft.
    `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the pull request.
    `undiverged` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and `main` has 1 commit that the pull request does not contain.
    Nothing was applied, and the plan is kept.

    * Mark the pull request as ready for review; then run the command again.
    * Somebody other than the author `alice` must approve the pull request; then run the command again.
    * Merge `main` into the branch of the pull request, or rebase it, and push. Lockkeeper plans the push automatically.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.end(&[NET_LOCK]).await;
}

async fn a_plan_that_needs_approval_takes_no_lock(backend: Backend) {
    let (mut bot, pull) = planned(
        backend,
        r#""plan_requirements": ["approved", "undiverged"]"#,
        &[],
    )
    .await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: refused

    **Plan refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the pull request.
    Nothing was planned, and no lock was taken.

    * Somebody other than the author `alice` must approve the pull request; then run the command again.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/1 projects failed to plan.
    lockkeeper/plan: network/default: Failure, Plan failed: refused, see the comment.
    ");
    assert_eq!((bot.locks().await.len(), bot.calls().len()), (0, 0));
    bot.approve(pull, "bob");
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn the_repository_may_demand_more_where_it_is_allowed(backend: Backend) {
    let rules = r#"{"repos": [{"id": "/.*/", "allowed_overrides": ["apply_requirements"]}]}"#;
    let own = "version: 3\nprojects:\n  - dir: network\n    apply_requirements: [approved]\n  - dir: app\n";
    let files = [NETWORK, APP, ("atlantis.yaml", own)];
    let mut bot = Bot::with(backend, &files, &[("repo-config-json", rules)]).await;
    let pull = bot
        .open_pull(
            "both",
            &[WIDER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    let comment = bot.comment(pull);
    assert!(
        comment.starts_with("Ran Apply for 2 projects: 1 refused, 1 applied\n"),
        "{comment}"
    );
    let line = comment
        .lines()
        .find(|line| line.starts_with("**Apply refused**"))
        .unwrap();
    assert_snapshot!(line, @"**Apply refused**: `approved` is required (line 4 of `atlantis.yaml`), and nobody has approved the pull request.");
    bot.approve(pull, "bob");
    bot.say(pull, "lockkeeper apply -d network").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&["acme/infra/app/default by #1", NET_LOCK]).await;
}

/// `app` was planned before the repository had requirements, `network` afterwards.
async fn plans_of_an_older_commit_say_nothing_about_those_of_this_one(backend: Backend) {
    let demanding =
        "version: 3\nprojects:\n- {dir: app}\n- {dir: network, apply_requirements: [approved]}\n";
    let rules = r#"{"repos": [{"id": "/.*/", "allowed_overrides": ["apply_requirements"]}]}"#;
    let flags = [("repo-config-json", rules), ("disable-autoplan", "true")];
    let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.say(pull, "lockkeeper plan -d app").await;
    bot.update("wider", &[("atlantis.yaml", demanding)]).await;
    bot.say(pull, "lockkeeper plan -d network").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    let comment = bot.comment(pull);
    assert!(
        comment.contains("`approved` is required (line 4 of `atlantis.yaml`)"),
        "{comment}"
    );
    assert!(comment.contains("and the pull request is at"), "{comment}");
    assert_eq!(applies(&bot), 0);
    bot.end(&["acme/infra/app/default by #1", NET_LOCK]).await;
}

async fn an_apply_is_refused_while_the_forge_says_nothing(backend: Backend) {
    let (mut bot, pull) = planned(backend, APPROVED, &[]).await;
    bot.read_comments(pull);
    bot.approve(pull, "bob");
    bot.github
        .fault("GET /repos/*/*/pulls/*/reviews", 3, Fault::BadGateway);
    assert_snapshot!(refused(&mut bot, pull).await, @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and Lockkeeper cannot determine who has approved: github.test could not be reached for the reviews of acme/infra#&#8203;1: Server Error.
    Nothing was applied, and the plan is kept.

    * Run the command again in a moment. If the error remains, ask an administrator of Lockkeeper for help.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 2 s</sub>
    ");
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn results_can_be_left_out_of_comments_but_not_failures(backend: Backend) {
    let (mut bot, pull) = planned(backend, r#""silence_pr_comments": ["plan"]"#, &[]).await;
    assert!(bot.read_comments(pull).is_empty());
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    applied(&mut bot, pull).await;
    bot.push(
        "wider",
        &[
            ("network/main.tf", "# fake: fail plan\n"),
            ("app/main.tf", "# fake: add 1 change 0 destroy 0\n"),
        ],
    )
    .await;
    bot.settle().await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: failed

    **Plan failed**: `terraform plan` ended with exit code 1.

    ```text
    Error: The plan went wrong

      on main.tf line 1:

    This is what the story asked for.
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `e5643f39` · 0 s</sub>
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"command":"autoplan","id":"ID","pull":1,"head":"e5643f39f60a2649715fee4f8b030244d5aeebf8","outcome":"partial","projects":[{"name":null,"dir":"app","workspace":"default","outcome":"planned","plan":{"add":1,"change":0,"destroy":0,"import":0,"forget":0}},{"name":null,"dir":"network","workspace":"default","outcome":"failed","plan":null}]} -->"#);
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn pull_requests_into_other_branches_are_left_alone(backend: Backend) {
    let (mut bot, pull) = planned(backend, r#""branch": "/^release/""#, &[]).await;
    assert!(
        bot.read_comments(pull).is_empty()
            && bot.statuses(pull).is_empty()
            && bot.locks().await.is_empty()
    );
    bot.say(pull, "lockkeeper plan").await;
    assert_snapshot!(bot.comment(pull), @"
    **Plan refused**: the base branch of this pull request is `main`, and the server only serves base branches that match `/^release/` (line 1 of the server's `--repo-config-json`, for `/.*/`).

    * Change the base branch of the pull request, if it is the wrong one.
    * Or an administrator can change that line.

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.push("release/1", &[("README.md", "release\n")]).await;
    bot.github
        .change_base(REPO, pull, "alice", "release/1")
        .await
        .unwrap();
    bot.settle().await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    // Locks can be released on any base branch.
    bot.github
        .change_base(REPO, pull, "alice", "main")
        .await
        .unwrap();
    bot.settle().await;
    bot.say(pull, "lockkeeper unlock").await;
    assert!(bot.comment(pull).starts_with("Ran Unlock"));
    let other = bot
        .github
        .open_pull(REPO, NewPull::from_branch("wider").into_base("release/1"))
        .await
        .unwrap();
    bot.settle().await;
    assert!(
        bot.comment(other)
            .starts_with("Ran Plan for dir: `network`")
    );
    bot.end(&["acme/infra/network/default by #2"]).await;
}
