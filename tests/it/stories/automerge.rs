//! Stories about `automerge`: a pull request is merged after its apply, but only if all of it is applied and all
//! requirements are met.

use insta::assert_snapshot;
use lockkeeper::emulator::{Change, Fault, NewStatus, Protection, StatusState};
use lockkeeper::model::{MergeMethod, ProjectKey, PullNumber, PullRef, PullState};
use lockkeeper::queue::Tick;
use lockkeeper::store::{ImportBatch, ImportMode, ImportStatus, ImportStatuses};

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, LOGIN, REPO};
use crate::support::db::{Backend, story};

story!(
    a_pull_request_is_merged_once_all_of_it_is_applied,
    projects_without_changes_need_no_apply,
    the_server_can_merge_everywhere_and_a_repository_can_decline,
    the_method_is_that_of_the_comment_then_the_servers_then_the_first_allowed,
    a_method_that_the_repository_does_not_allow_is_refused,
    a_comment_can_leave_the_pull_request_open,
    a_method_without_merging_is_refused_before_the_apply,
    a_label_keeps_a_pull_request_open,
    what_was_pushed_after_the_apply_is_not_merged,
    an_approval_that_was_withdrawn_keeps_the_pull_request_open,
    a_forge_that_is_away_for_a_moment_is_asked_again,
    a_project_without_changes_has_requirements_too,
    a_project_without_changes_has_policies_too,
    a_project_that_was_never_planned_keeps_the_pull_request_open,
    a_project_that_could_not_be_planned_keeps_the_pull_request_open,
    a_plan_that_was_discarded_keeps_the_pull_request_open,
    with_hooks_the_whole_pull_request_has_to_be_planned,
    with_hooks_projects_that_are_only_planned_by_comment_have_to_be,
    what_was_planned_in_part_keeps_the_pull_request_open,
    another_base_branch_at_the_last_moment_keeps_the_pull_request_open,
    the_status_of_the_apply_is_set_before_the_merge,
    github_refuses_with_its_reason_and_the_way_out,
    a_missing_permission_is_named,
    a_merge_whose_answer_was_lost_is_found,
    a_server_that_is_killed_anywhere_merges_or_says_why_not,
    what_atlantis_had_applied_counts,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const MORE: (&str, &str) = ("app/main.tf", "# fake: add 1 change 0 destroy 0\n");
const SAME: (&str, &str) = ("app/main.tf", "# fake: no changes\n");
const MERGING: (&str, &str) = ("atlantis.yaml", "version: 3\nautomerge: true\n");
const NET_LOCK: &str = "acme/infra/network/default by #1";
const MERGES: &str = "PUT /repos/*/*/pulls/*/merge";

/// Starts a bot that merges pull requests, with a planned one. The comment was read.
async fn planned(
    backend: Backend,
    files: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> (Bot, PullNumber) {
    let mut bot = Bot::with(backend, &[NETWORK, APP, MERGING], flags).await;
    let pull = bot.open_pull("wider", files).await;
    bot.read_comments(pull);
    (bot, pull)
}

fn state(bot: &Bot, pull: PullNumber) -> PullState {
    bot.github.pull(REPO, pull).unwrap().state
}

/// Returns the number of requests to merge.
fn merges(bot: &Bot) -> usize {
    bot.github
        .requests()
        .iter()
        .filter(|request| request.method == "PUT" && request.path.ends_with("/merge"))
        .count()
}

/// Returns the only request to merge.
fn request(bot: &Bot) -> String {
    let requests = bot.github.requests();
    let mut merges = requests.iter().filter(|request| request.method == "PUT");
    let body = merges
        .next()
        .expect("a request to merge")
        .request_body
        .clone();
    assert!(merges.next().is_none(), "one request is enough");
    body
}

/// Asserts that the bot merged the pull request, after the answer and before the comment about its locks. Returns the
/// answer.
fn merged(bot: &mut Bot, pull: PullNumber) -> String {
    let mut heard = bot.read_comments(pull);
    assert_eq!(heard.len(), 2, "{heard:#?}");
    assert!(
        heard[1].starts_with("This pull request was merged"),
        "{}",
        heard[1]
    );
    let found = bot.github.pull(REPO, pull).unwrap();
    assert_eq!(
        (found.state, found.merged_by.as_deref()),
        (PullState::Merged, Some(LOGIN))
    );
    heard.remove(0)
}

/// Asserts that the apply succeeded. Returns the comment with the reason why the pull request is still open.
fn not_merged(bot: &mut Bot, pull: PullNumber) -> String {
    let mut heard = bot.read_comments(pull);
    heard.retain(|comment| !comment.starts_with("Ran Plan"));
    assert_eq!(heard.len(), 2, "{heard:#?}");
    assert!(
        heard[0].contains("Lockkeeper merges it now") && heard[0].contains("applied"),
        "{}",
        heard[0]
    );
    assert_eq!(state(bot, pull), PullState::Open);
    heard.remove(1)
}

/// Carries out an apply, but none of the work that follows from it.
async fn apply_alone(bot: &Bot, pull: PullNumber) {
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    assert_eq!(bot.begin_command().await.unwrap(), Tick::Worked);
}

async fn a_pull_request_is_merged_once_all_of_it_is_applied(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER, MORE], &[]).await;
    bot.say(pull, "lockkeeper apply -d app").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `app` workspace: `default`: applied

    Not merged yet: dir: `network` workspace: `default` is planned and not applied.

    **1 added, 0 changed, 0 destroyed.**

    ```diff
    terraform_data.it: Creating...
    terraform_data.it: Creation complete after 0s

    Apply complete! Resources: 1 added, 0 changed, 0 destroyed.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `98c543a7` · 0 s</sub>
    ");
    assert_eq!((state(&bot, pull), merges(&bot)), (PullState::Open, 0));
    bot.say(pull, "lockkeeper apply -d network").await;
    assert_snapshot!(merged(&mut bot, pull), @"
    Ran Apply for dir: `network` workspace: `default`: applied

    All projects of this pull request are applied or have nothing to change: Lockkeeper merges it now.

    **1 added, 0 changed, 0 destroyed.**

    ```diff
    terraform_data.it: Creating...
    terraform_data.it: Creation complete after 0s

    Apply complete! Resources: 1 added, 0 changed, 0 destroyed.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `98c543a7` · 0 s</sub>
    ");
    let head = bot.github.pull(REPO, pull).unwrap().head;
    assert_eq!(
        request(&bot),
        format!(r#"{{"merge_method":"merge","sha":"{head}"}}"#)
    );
    assert_eq!(
        bot.calls()
            .iter()
            .filter(|call| call.starts_with("apply "))
            .count(),
        2
    );
    bot.end(&[]).await;
}

async fn projects_without_changes_need_no_apply(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER, SAME], &[]).await;
    bot.say(pull, "lockkeeper apply -d network").await;
    merged(&mut bot, pull);
    bot.end(&[]).await;
}

async fn the_server_can_merge_everywhere_and_a_repository_can_decline(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[("automerge", "true")]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    merged(&mut bot, pull);
    let pull = bot
        .open_pull(
            "more",
            &[MORE, ("atlantis.yaml", "version: 3\nautomerge: false\n")],
        )
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert!(!bot.comment(pull).contains("merge"));
    assert_eq!((state(&bot, pull), merges(&bot)), (PullState::Open, 1));
    bot.end(&["acme/infra/app/default by #2"]).await;
}

async fn the_method_is_that_of_the_comment_then_the_servers_then_the_first_allowed(
    backend: Backend,
) {
    let cases = [
        (
            &MergeMethod::ALL[..],
            "rebase",
            "lockkeeper apply --auto-merge-method squash",
            "squash",
        ),
        (&MergeMethod::ALL, "rebase", "lockkeeper apply", "rebase"),
        (
            &[MergeMethod::Rebase, MergeMethod::Squash],
            "",
            "lockkeeper apply",
            "rebase",
        ),
        (&[MergeMethod::Squash], "", "lockkeeper apply", "squash"),
    ];
    for (allowed, flag, comment, method) in cases {
        let (mut bot, pull) = planned(backend, &[WIDER], &[("automerge-method", flag)]).await;
        bot.github.set_merge_methods(REPO, allowed).unwrap();
        bot.say(pull, comment).await;
        merged(&mut bot, pull);
        assert!(
            request(&bot).contains(&format!(r#""merge_method":"{method}""#)),
            "{}",
            request(&bot)
        );
        bot.end(&[]).await;
    }
}

async fn a_method_that_the_repository_does_not_allow_is_refused(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    bot.github
        .set_merge_methods(REPO, &[MergeMethod::Merge, MergeMethod::Squash])
        .unwrap();
    bot.say(pull, "lockkeeper apply --auto-merge-method rebase")
        .await;
    assert_snapshot!(not_merged(&mut bot, pull), @"
    **Not merged**: the repository does not allow the method `rebase` (`--auto-merge-method`); it allows `merge` and `squash`.

    * Comment `lockkeeper apply --auto-merge-method merge`, or merge by hand.
    * Or allow the method in the settings of the repository.

    <sub>Commit `4282ac93`</sub>
    ");
    bot.say(pull, "lockkeeper apply --auto-merge-method squash")
        .await;
    assert!(merged(&mut bot, pull).contains("nothing to apply"));
    bot.end(&[]).await;
}

async fn a_comment_can_leave_the_pull_request_open(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    bot.say(pull, "lockkeeper apply --auto-merge-disabled")
        .await;
    assert!(!bot.comment(pull).contains("merge"));
    assert_eq!((state(&bot, pull), merges(&bot)), (PullState::Open, 0));
    bot.end(&[NET_LOCK]).await;
}

async fn a_method_without_merging_is_refused_before_the_apply(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply --auto-merge-method squash")
        .await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: `--auto-merge-method squash` has no effect here, because pull requests are not merged automatically.

    * Comment the command without the flag, and merge by hand.
    * Or set `automerge: true` in the configuration of this repository, plan again and apply. The administrator of Lockkeeper can set `--automerge` for all repositories.

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert!(!bot.calls().contains(&"apply network".to_owned()));
    bot.end(&[NET_LOCK]).await;
}

async fn a_label_keeps_a_pull_request_open(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[("disable-automerge-label", "hold")]).await;
    bot.github.set_labels(REPO, pull, &["Hold"]).unwrap();
    bot.say(pull, "lockkeeper apply").await;
    let told = bot.comment(pull);
    assert!(
        told.contains("Not merged, because the pull request has the label `hold`."),
        "{told}"
    );
    bot.github.set_labels(REPO, pull, &[]).unwrap();
    apply_alone(&bot, pull).await;
    // Somebody sets the label at the last moment.
    bot.github.set_labels(REPO, pull, &["hold"]).unwrap();
    bot.settle().await;
    assert_snapshot!(bot.read_comments(pull)[1], @"
    **Not merged**: the pull request has the label `hold` (`--disable-automerge-label`).

    * Remove the label and comment `lockkeeper apply` again, or merge by hand.

    <sub>Commit `4282ac93`</sub>
    ");
    assert_eq!((state(&bot, pull), merges(&bot)), (PullState::Open, 0));
    bot.end(&[NET_LOCK]).await;
}

async fn what_was_pushed_after_the_apply_is_not_merged(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    apply_alone(&bot, pull).await;
    bot.push(
        "wider",
        &[("network/main.tf", "# fake: add 3 change 0 destroy 0\n")],
    )
    .await;
    bot.settle().await;
    assert_snapshot!(not_merged(&mut bot, pull), @"
    **Not merged**: commit `4282ac93` was applied, and the newest commit of the pull request is `028606a0` now.

    * Plan and apply the newest commit.

    <sub>Commit `4282ac93`</sub>
    ");
    assert_eq!(merges(&bot), 0);
    bot.end(&[NET_LOCK]).await;
}

async fn an_approval_that_was_withdrawn_keeps_the_pull_request_open(backend: Backend) {
    let rules = r#"{"repos": [{"id": "/.*/", "apply_requirements": ["approved"]}]}"#;
    let (mut bot, pull) = planned(backend, &[WIDER], &[("repo-config-json", rules)]).await;
    bot.approve(pull, "bob");
    apply_alone(&bot, pull).await;
    bot.github.dismiss_reviews(REPO, pull, "bob").unwrap();
    bot.settle().await;
    assert_snapshot!(not_merged(&mut bot, pull), @"
    **Not merged**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the pull request; `bob` reviewed it, but the review was dismissed.
    The pull request stays open.

    * Somebody other than the author `alice` must approve the pull request; then run the command again.

    <sub>Commit `4282ac93`</sub>
    ");
    bot.approve(pull, "bob");
    bot.say(pull, "lockkeeper apply").await;
    merged(&mut bot, pull);
    bot.end(&[]).await;
}

async fn a_forge_that_is_away_for_a_moment_is_asked_again(backend: Backend) {
    let rules = r#"{"repos": [{"id": "/.*/", "apply_requirements": ["approved"]}]}"#;
    let (mut bot, pull) = planned(backend, &[WIDER], &[("repo-config-json", rules)]).await;
    bot.approve(pull, "bob");
    apply_alone(&bot, pull).await;
    bot.github
        .fault("GET /repos/*/*/pulls/*/reviews", 2, Fault::BadGateway);
    bot.settle().await;
    merged(&mut bot, pull);
    bot.end(&[]).await;
}

async fn a_project_without_changes_has_requirements_too(backend: Backend) {
    let rules = r#"{"repos": [{"id": "/.*/", "apply_requirements": ["approved"]}]}"#;
    let (mut bot, pull) = planned(backend, &[SAME], &[("repo-config-json", rules)]).await;
    bot.say(pull, "lockkeeper apply").await;
    let told = not_merged_nothing_applied(&mut bot, pull);
    assert!(
        told.starts_with("**Not merged**: `approved` is required"),
        "{told}"
    );
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn a_project_without_changes_has_policies_too(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let policy = "package main\n# fake: deny the bucket is public\n";
    std::fs::write(dir.path().join("main.rego"), policy).unwrap();
    let config = serde_json::json!({"policies": {"policy_sets": [{
        "name": "basics",
        "path": dir.path(),
        "owners": {"users": ["bob"]},
        "when": {"dirs": ["app"]},
    }]}})
    .to_string();
    let flags = [
        ("repo-config-json", config.as_str()),
        ("enable-policy-checks", "true"),
    ];
    let (mut bot, pull) = planned(backend, &[WIDER, SAME], &flags).await;
    bot.say(pull, "lockkeeper apply").await;
    let told = bot.comment(pull);
    let waits = "Not merged yet: dir: `app` workspace: `default` has policies that did not pass.";
    assert!(
        told.contains(waits) && told.contains("1 applied, 1 nothing to apply"),
        "{told}"
    );
    assert_eq!((state(&bot, pull), merges(&bot)), (PullState::Open, 0));
    bot.hear(pull, "bob", "lockkeeper approve_policies").await;
    let told = bot.comment(pull);
    assert!(told.contains("`bob` approved"), "{told}");
    bot.say(pull, "lockkeeper apply").await;
    merged(&mut bot, pull);
    bot.end(&[]).await;
}

fn not_merged_nothing_applied(bot: &mut Bot, pull: PullNumber) -> String {
    let mut heard = bot.read_comments(pull);
    assert_eq!(heard.len(), 2, "{heard:#?}");
    assert!(heard[0].contains("nothing to apply"), "{}", heard[0]);
    assert_eq!((state(bot, pull), merges(bot)), (PullState::Open, 0));
    heard.remove(1)
}

async fn a_project_that_was_never_planned_keeps_the_pull_request_open(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER, MORE], &[("disable-autoplan", "true")]).await;
    bot.say(pull, "lockkeeper plan -d network").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(not_merged(&mut bot, pull), @"
    **Not merged**: not every project of the pull request is applied or has nothing to change.

    * dir: `app` workspace: `default` has no plan.
    * Comment `lockkeeper plan`, look at the plan, then apply it; or merge by hand.

    <sub>Commit `98c543a7`</sub>
    ");
    bot.say(pull, "lockkeeper plan -d app").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    merged(&mut bot, pull);
    bot.end(&[]).await;
}

async fn a_project_that_could_not_be_planned_keeps_the_pull_request_open(backend: Backend) {
    let (mut bot, pull) = planned(
        backend,
        &[WIDER, ("app/main.tf", "# fake: fail plan once\n")],
        &[],
    )
    .await;
    bot.say(pull, "lockkeeper apply").await;
    let told = bot.comment(pull);
    assert!(
        told.contains("Not merged yet: dir: `app` workspace: `default`"),
        "{told}"
    );
    assert_eq!((state(&bot, pull), merges(&bot)), (PullState::Open, 0));
    bot.end(&[NET_LOCK]).await;
}

async fn a_plan_that_was_discarded_keeps_the_pull_request_open(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    apply_alone(&bot, pull).await;
    let at = PullRef {
        repo: format!("github.test/{REPO}").parse().unwrap(),
        subject: pull.into(),
    };
    bot.store()
        .plan_discard(&at, &ProjectKey::of_dir("network".parse().unwrap()))
        .await
        .unwrap();
    bot.settle().await;
    let told = not_merged(&mut bot, pull);
    assert!(
        told.contains("dir: `network` workspace: `default` has no plan."),
        "{told}"
    );
    bot.end(&[NET_LOCK]).await;
}

async fn with_hooks_the_whole_pull_request_has_to_be_planned(backend: Backend) {
    let rules = r#"{"repos": [{"id": "/.*/", "pre_workflow_hooks": [{"run": "true"}]}]}"#;
    let flags = [("repo-config-json", rules), ("disable-autoplan", "true")];
    let (mut bot, pull) = planned(backend, &[WIDER], &flags).await;
    bot.say(pull, "lockkeeper plan -d network").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(not_merged(&mut bot, pull), @"
    **Not merged**: the newest commit of the pull request has no plan of all projects, so it is unknown whether all of them are applied.

    * Comment `lockkeeper plan`, and apply what is left; or merge by hand.

    <sub>Commit `4282ac93`</sub>
    ");
    bot.say(pull, "lockkeeper plan").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    merged(&mut bot, pull);
    bot.end(&[]).await;
}

async fn with_hooks_projects_that_are_only_planned_by_comment_have_to_be(backend: Backend) {
    let rules = r#"{"repos": [{"id": "/.*/", "pre_workflow_hooks": [{"run": "true"}]}]}"#;
    let config = "version: 3\nautomerge: true\nprojects:\n- dir: network\n- dir: app\n  autoplan: {enabled: false}\n";
    let mut bot = Bot::with(
        backend,
        &[NETWORK, APP, ("atlantis.yaml", config)],
        &[("repo-config-json", rules)],
    )
    .await;
    let pull = bot.open_pull("wider", &[WIDER, MORE]).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    let told = not_merged(&mut bot, pull);
    assert!(
        told.contains("the newest commit of the pull request has no plan of all projects"),
        "{told}"
    );
    bot.say(pull, "lockkeeper plan").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    merged(&mut bot, pull);
    bot.end(&[]).await;
}

async fn what_was_planned_in_part_keeps_the_pull_request_open(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    bot.say(pull, "lockkeeper plan -- -target=terraform_data.it")
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    let told = bot.comment(pull);
    assert!(
        told.contains(
            "Not merged yet: dir: `network` workspace: `default` was planned only in part"
        ),
        "{told}"
    );
    assert_eq!((state(&bot, pull), merges(&bot)), (PullState::Open, 0));
    bot.end(&[NET_LOCK]).await;
}

async fn another_base_branch_at_the_last_moment_keeps_the_pull_request_open(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    bot.github
        .push(REPO, "prod", &[Change::write("notes", "\n")])
        .await
        .unwrap();
    apply_alone(&bot, pull).await;
    // The base branch changes after all other checks.
    bot.github.fault("GET /repos/*/*", 1, Fault::Hang);
    let merging = async {
        bot.github.hanging(1).await;
        bot.github
            .change_base(REPO, pull, "alice", "prod")
            .await
            .unwrap();
        bot.github.clear_faults();
    };
    tokio::join!(bot.settle_short(), merging);
    bot.settle().await;
    let told = not_merged(&mut bot, pull);
    assert!(
        told.starts_with("**Not merged**: its base branch was changed from `main` to `prod`."),
        "{told}"
    );
    assert_eq!(merges(&bot), 0);
    bot.end(&[NET_LOCK]).await;
}

async fn the_status_of_the_apply_is_set_before_the_merge(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    bot.github
        .protect(REPO, "main", Protection::of_checks(&["lockkeeper/apply"]))
        .unwrap();
    bot.github
        .fault("POST /repos/*/*/statuses/*", 6, Fault::BadGateway);
    bot.say(pull, "lockkeeper apply").await;
    merged(&mut bot, pull);
    assert_eq!(merges(&bot), 1);
    bot.end(&[]).await;
}

async fn github_refuses_with_its_reason_and_the_way_out(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    bot.github
        .protect(REPO, "main", Protection::of_checks(&["ci"]))
        .unwrap();
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(not_merged(&mut bot, pull), @r#"
    **Not merged**: github.test refused to merge: Required status check "ci" is expected.

    * Resolve this on github.test. Then comment `lockkeeper apply` again, or merge by hand.

    <sub>Commit `4282ac93`</sub>
    "#);
    // The bot retries, because GitHub may still be computing whether the pull request can be merged.
    assert_eq!(merges(&bot), 4);
    let line = bot.machine_line(pull);
    assert!(
        line.contains(r#""event":"not_merged""#) && line.contains(r#""outcome":"refused""#),
        "{line}"
    );
    let head = bot.github.pull(REPO, pull).unwrap().head;
    let status = NewStatus {
        state: StatusState::Success,
        context: "ci".to_owned(),
        description: None,
        target_url: None,
    };
    bot.github
        .set_status(REPO, &head, "ci", status)
        .await
        .unwrap();
    bot.say(pull, "lockkeeper apply").await;
    merged(&mut bot, pull);
    bot.end(&[]).await;
}

async fn a_missing_permission_is_named(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    bot.github.fault(MERGES, 1, Fault::Forbidden);
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(not_merged(&mut bot, pull), @"
    **Not merged**: Lockkeeper is not allowed to merge: github.test refused the credentials for the merge of acme/infra#&#8203;1: Resource not accessible by integration.

    * Ask the administrator of Lockkeeper to give its GitHub App the permission `Contents: Read and write` (each organization has to accept it), or its account the right to push to this repository.
    * Then comment `lockkeeper apply` again, or merge by hand.

    <sub>Commit `4282ac93`</sub>
    ");
    bot.end(&[NET_LOCK]).await;
}

async fn a_merge_whose_answer_was_lost_is_found(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER], &[]).await;
    bot.github.fault(MERGES, 1, Fault::LoseAnswer);
    bot.say(pull, "lockkeeper apply").await;
    merged(&mut bot, pull);
    assert_eq!(merges(&bot), 1);
    bot.end(&[]).await;
}

/// Wake-ups after which the server is killed.
const KILLS: [usize; 6] = [20, 110, 180, 240, 340, 500];

async fn a_server_that_is_killed_anywhere_merges_or_says_why_not(backend: Backend) {
    let dirs: Vec<String> = (0..KILLS.len())
        .map(|n| format!("p{n:02}/main.tf"))
        .collect();
    let files: Vec<(&str, &str)> = dirs
        .iter()
        .map(|file| (file.as_str(), "# narrow\n"))
        .chain([MERGING])
        .collect();
    let mut bot = Bot::new(backend, &files).await;
    let mut count = 0;
    for (file, wakes) in dirs.iter().zip(KILLS) {
        let pull = bot
            .open_pull(file, &[(file, "# fake: add 1 change 0 destroy 0\n")])
            .await;
        bot.read_comments(pull);
        bot.github
            .comment(REPO, pull, "alice", "lockkeeper apply")
            .await
            .unwrap();
        bot.work_until_killed(wakes).await;
        bot.crash_and_restart().await;
        // The event of a merge may have come when nobody listened. A server looks for such pull requests when it starts.
        bot.replica.tick("closed_pulls").await.unwrap();
        bot.settle().await;
        let told = bot.read_comments(pull);
        let interrupted = told
            .iter()
            .any(|comment| comment.contains("stopped during this apply"));
        let expected = if interrupted {
            PullState::Open
        } else {
            PullState::Merged
        };
        assert_eq!(
            state(&bot, pull),
            expected,
            "killed after {wakes}: {told:#?}"
        );
        count += usize::from(!interrupted);
        if interrupted {
            bot.merge(pull).await;
            bot.read_comments(pull);
        }
    }
    assert!(
        count > KILLS.len() / 2,
        "only {count} pull requests were merged"
    );
    bot.end(&[]).await;
}

/// Returns the states of the projects of a pull request when Atlantis ended, at its newest commit.
fn in_atlantis(bot: &Bot, pull: PullNumber, projects: &[(&str, ImportStatus)]) -> ImportBatch {
    let at = PullRef {
        repo: format!("github.test/{REPO}").parse().unwrap(),
        subject: pull.into(),
    };
    let found = bot.github.pull(REPO, pull).unwrap();
    let statuses = ImportStatuses {
        pull: at.clone(),
        head: found.head,
        base_branch: found.base_branch,
        holder: "Atlantis".to_owned(),
        reason: "taken over from Atlantis".to_owned(),
        spec: "{}".to_owned(),
        projects: projects
            .iter()
            .map(|(dir, status)| (ProjectKey::of_dir(dir.parse().unwrap()), *status))
            .collect(),
    };
    let url = bot.github.pull_url(REPO, pull);
    ImportBatch {
        pulls: vec![(at, url)],
        statuses: vec![statuses],
        ..ImportBatch::default()
    }
}

async fn what_atlantis_had_applied_counts(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[WIDER, MORE], &[("disable-autoplan", "true")]).await;
    let batch = in_atlantis(
        &bot,
        pull,
        &[
            ("network", ImportStatus::Applied),
            ("app", ImportStatus::Unplanned),
        ],
    );
    let imported = bot.store().import(&batch, ImportMode::Write).await.unwrap();
    assert!(
        bot.store()
            .import_verify(&batch, &imported)
            .await
            .unwrap()
            .is_empty()
    );
    bot.say(pull, "lockkeeper apply").await;
    let told = bot.comment(pull);
    assert!(
        told.contains("nothing to apply")
            && told.contains("Not merged yet: dir: `app` workspace: `default`"),
        "{told}"
    );
    bot.say(pull, "lockkeeper plan -d app").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert!(merged(&mut bot, pull).contains("applied"));
    assert!(
        !bot.calls().iter().any(|call| call.ends_with(" network")),
        "nothing is run where all is applied"
    );
    bot.end(&[]).await;
}
