//! Attacks by people of the forge: to apply changes without a review, and to give commands without a right to the
//! repository.

use insta::assert_snapshot;
use lockkeeper::emulator::{Change, Delivering, Fault, NewPull, Role};
use lockkeeper::model::PullNumber;
use lockkeeper::queue::Tick;

use crate::support::bot::{Bot, LOGIN, REPO};
use crate::support::db::{Backend, story};

story!(
    what_is_pushed_after_the_review_is_not_applied,
    what_is_forced_into_the_place_of_the_reviewed_commit_is_not_applied,
    a_repository_cannot_make_approvals_of_older_commits_count,
    approvals_of_older_commits_count_where_the_operator_says_so,
    nobody_approves_with_the_account_of_the_bot,
    a_stranger_gives_no_command,
    who_lost_the_right_to_write_applies_nothing_a_moment_later,
    a_role_below_write_gives_no_command,
    nothing_passes_while_the_forge_does_not_tell_who_may_write,
    everyone_is_not_everyone_on_a_public_repository,
    a_fork_is_planned_only_when_somebody_who_may_write_asks,
    a_fork_that_moves_on_before_its_turn_is_not_planned,
    a_fork_that_moves_on_after_the_comment_is_not_planned,
);

const NETWORK: (&str, &str) = ("network/main.tf", "# fake: add 1 change 0 destroy 0\n");
const APP: (&str, &str) = ("app/main.tf", "# fake: add 1 change 0 destroy 0\n");
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const EVIL: (&str, &str) = ("network/main.tf", "# fake: add 0 change 0 destroy 9\n");
const NET_LOCK: &str = "acme/infra/network/default by #1";
const ALL: (&str, &str) = ("allow-commands", "all");
const PERMISSION: &str = "GET /repos/*/*/collaborators/*/permission";

/// Starts a bot whose server has these rules for every repository, with a planned pull request of `alice`.
async fn planned(backend: Backend, rules: &str, flags: &[(&str, &str)]) -> (Bot, PullNumber) {
    let rules = format!(r#"{{"repos": [{{"id": "/.*/"{rules}}}]}}"#);
    let flags = [&[("repo-config-json", rules.as_str()), ALL], flags].concat();
    let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.comment(pull);
    (bot, pull)
}

const APPROVED: &str = r#", "apply_requirements": ["approved"]"#;

fn runs(bot: &Bot, step: &str) -> usize {
    bot.calls()
        .iter()
        .filter(|call| call.starts_with(step))
        .count()
}

/// Returns the line with the reason why an apply was refused.
async fn refused(bot: &mut Bot, pull: PullNumber) -> String {
    bot.say(pull, "lockkeeper apply").await;
    let comment = bot.comment(pull);
    assert_eq!(runs(bot, "apply "), 0, "{comment}");
    comment
        .lines()
        .find(|line| line.starts_with("**Apply refused**"))
        .expect(&comment)
        .to_owned()
}

async fn applied(bot: &mut Bot, pull: PullNumber) {
    bot.say(pull, "lockkeeper apply").await;
    let comment = bot.comment(pull);
    assert!(
        comment.starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n"),
        "{comment}"
    );
}

async fn what_is_pushed_after_the_review_is_not_applied(backend: Backend) {
    let (mut bot, pull) = planned(backend, APPROVED, &[]).await;
    bot.approve(pull, "bob");
    bot.update("wider", &[EVIL]).await;
    assert!(
        bot.comment(pull)
            .contains("**Plan: 0 to add, 0 to change, 9 to destroy.**")
    );
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the head commit `31b3ee5c` of the pull request; 1 approval is of an older commit (`2d43ecb8`, by `bob`).
    Nothing was applied, and the plan is kept.

    * Somebody other than the author `alice` must review the head commit `31b3ee5c` and approve it; then run the command again.
    * Or ask an administrator to change that line to `approved: {stale: true}`, so that approvals of older commits count.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `31b3ee5c` · 0 s</sub>
    ");
    assert_eq!(runs(&bot, "apply "), 0);
    // A reviewer of the present commit can approve it.
    bot.approve(pull, "bob");
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn what_is_forced_into_the_place_of_the_reviewed_commit_is_not_applied(backend: Backend) {
    let (mut bot, pull) = planned(backend, APPROVED, &[]).await;
    bot.approve(pull, "bob");
    bot.github
        .force_push(REPO, "wider", &[Change::write(EVIL.0, EVIL.1)])
        .await
        .unwrap();
    bot.settle().await;
    bot.comment(pull);
    assert_snapshot!(refused(&mut bot, pull).await, @"**Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the head commit `a4521fed` of the pull request; 1 approval is of an older commit (`2d43ecb8`, by `bob`).");
    bot.end(&[NET_LOCK]).await;
}

/// Neither the file of the branch nor an override `fewer_requirements` without permission makes old approvals count.
async fn a_repository_cannot_make_approvals_of_older_commits_count(backend: Backend) {
    let rules = format!(r#"{APPROVED}, "allowed_overrides": ["apply_requirements"]"#);
    let (mut bot, pull) = planned(backend, &rules, &[]).await;
    bot.approve(pull, "bob");
    let own =
        "version: 3\nprojects:\n- dir: network\n  apply_requirements: [approved: {stale: true}]\n";
    bot.update("wider", &[EVIL, ("atlantis.yaml", own)]).await;
    bot.comment(pull);
    assert_snapshot!(refused(&mut bot, pull).await, @"**Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the head commit `26ffcffe` of the pull request; 1 approval is of an older commit (`2d43ecb8`, by `bob`).");
    bot.end(&[NET_LOCK]).await;
}

async fn approvals_of_older_commits_count_where_the_operator_says_so(backend: Backend) {
    let rules = r#", "apply_requirements": [{"approved": {"stale": true}}]"#;
    let (mut bot, pull) = planned(backend, rules, &[]).await;
    assert_snapshot!(refused(&mut bot, pull).await, @"**Apply refused**: `approved: {stale: true}` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the pull request.");
    bot.approve(pull, "bob");
    bot.update("wider", &[EVIL]).await;
    bot.comment(pull);
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

/// A plan that steals the token can review with it.
async fn nobody_approves_with_the_account_of_the_bot(backend: Backend) {
    let (mut bot, pull) = planned(backend, APPROVED, &[]).await;
    bot.approve(pull, LOGIN);
    assert_snapshot!(refused(&mut bot, pull).await, @"**Apply refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the pull request.");
    bot.approve(pull, "bob");
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

async fn a_stranger_gives_no_command(backend: Backend) {
    let (mut bot, pull) = planned(backend, "", &[]).await;
    let before = bot.calls();
    for command in [
        "plan -- -destroy",
        "plan -d app",
        "apply",
        "apply -d network",
        "import -d network terraform_data.it x",
        "state rm -d network terraform_data.it",
        "unlock",
        "cancel",
        "cancel --force",
        "version",
    ] {
        bot.hear(pull, "stranger", &format!("lockkeeper {command}"))
            .await;
        let told = bot.comment(pull);
        assert!(
            told.contains(" refused**: `stranger` may not "),
            "{command}: {told}"
        );
        assert!(
            told.contains("and `stranger` has no write access."),
            "{command}: {told}"
        );
    }
    assert_eq!(bot.calls(), before, "nothing was run");
    assert_eq!(bot.locks().await, [NET_LOCK]);
    bot.hear(pull, "stranger", "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: `stranger` may not apply: `--allow-commenters=writers` allows `apply` only for people with write access to `acme/infra`, and `stranger` has no write access.

    * Somebody with write access to the repository can comment the command.
    * Or an administrator of the repository can give `stranger` the role `Write`.
    * Or an administrator of the server can give permissions to teams with `--gh-team-allowlist`.

    <sub>Commit `2d43ecb8` · 0 s</sub>
    ");
    // Commands that run nothing are answered.
    bot.hear(pull, "stranger", "lockkeeper help").await;
    assert!(!bot.comment(pull).contains("refused"));
    bot.hear(pull, "stranger", "lockkeeper explain").await;
    assert!(!bot.comment(pull).contains("refused"));
    assert_eq!(bot.calls(), before, "nothing was run");
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

/// A plan may rely on an answer that is half a minute old. An apply may not.
async fn who_lost_the_right_to_write_applies_nothing_a_moment_later(backend: Backend) {
    let (mut bot, pull) = planned(backend, "", &[]).await;
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.comment(pull).starts_with("Ran Plan"));
    bot.github.set_role(REPO, "alice", Role::Read).unwrap();
    assert_snapshot!(refused(&mut bot, pull).await, @"**Apply refused**: `alice` may not apply: `--allow-commenters=writers` allows `apply` only for people with write access to `acme/infra`, and `alice` has no write access.");
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.comment(pull).contains("`alice` may not plan"),
        "the newer answer counts for plans, too"
    );
    bot.end(&[NET_LOCK]).await;
}

async fn a_role_below_write_gives_no_command(backend: Backend) {
    let (mut bot, pull) = planned(backend, "", &[]).await;
    for (role, may) in [
        (Role::None, false),
        (Role::Read, false),
        (Role::Triage, false),
        (Role::Write, true),
        (Role::Maintain, true),
        (Role::Admin, true),
    ] {
        bot.github.set_role(REPO, "somebody", role).unwrap();
        bot.db.clock.advance(std::time::Duration::from_secs(30));
        bot.hear(pull, "somebody", "lockkeeper plan").await;
        let told = bot.comment(pull);
        assert_eq!(told.starts_with("Ran Plan"), may, "{role:?}: {told}");
    }
    bot.end(&[NET_LOCK]).await;
}

async fn nothing_passes_while_the_forge_does_not_tell_who_may_write(backend: Backend) {
    let (mut bot, pull) = planned(backend, "", &[]).await;
    bot.github.fault(PERMISSION, 1, Fault::Unauthorized);
    assert_snapshot!(refused(&mut bot, pull).await, @"**Apply refused**: `alice` may not apply: `--allow-commenters=writers` allows `apply` only for people with write access to `acme/infra`, and the permissions of `alice` cannot be determined: github.test refused the credentials for the permissions of `alice` in acme/infra: Bad credentials.");
    bot.github.fault(PERMISSION, 100, Fault::BadGateway);
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply failed**: this command could not be run: github.test could not be reached for the permissions of `alice` in acme/infra: Server Error.

    * Run the command again to retry.
    * If it fails again, an administrator can find the cause in the log under `ID`.

    <sub>46 s</sub>
    ");
    assert_eq!(runs(&bot, "apply "), 0);
    bot.github.clear_faults();
    bot.end_given_up(&[NET_LOCK], &["run_command"]).await;
}

async fn everyone_is_not_everyone_on_a_public_repository(backend: Backend) {
    let (mut bot, pull) = planned(backend, "", &[("allow-commenters", "everyone")]).await;
    bot.hear(pull, "stranger", "lockkeeper plan").await;
    assert!(
        bot.comment(pull).starts_with("Ran Plan for dir: `network`"),
        "in a private one it is"
    );
    bot.github.make_public(REPO).unwrap();
    bot.db.clock.advance(std::time::Duration::from_secs(30));
    bot.hear(pull, "stranger", "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: `stranger` may not apply: `--allow-commenters=everyone` has no effect in a public repository, so only people with write access to `acme/infra` are allowed `apply`, and `stranger` has no write access.

    * Somebody with write access to the repository can comment the command.
    * Or an administrator of the repository can give `stranger` the role `Write`.
    * Or an administrator of the server can give permissions to teams with `--gh-team-allowlist`.

    <sub>Commit `2d43ecb8` · 0 s</sub>
    ");
    assert_eq!(runs(&bot, "apply "), 0);
    applied(&mut bot, pull).await;
    bot.end(&[NET_LOCK]).await;
}

/// Opens a pull request from a fork of `stranger`.
async fn from_fork(bot: &Bot, author: &str) -> (String, PullNumber) {
    let fork = bot.github.fork(REPO, "stranger").await.unwrap();
    bot.github
        .push(&fork, "evil", &[Change::write(EVIL.0, EVIL.1)])
        .await
        .unwrap();
    let pull = NewPull::from_branch("evil").from_fork(&fork).by(author);
    let pull = bot.github.open_pull(REPO, pull).await.unwrap();
    bot.settle().await;
    (fork, pull)
}

async fn a_fork_is_planned_only_when_somebody_who_may_write_asks(backend: Backend) {
    for author in ["stranger", "alice"] {
        let mut bot = Bot::with(backend, &[NETWORK], &[("allow-fork-prs", "true")]).await;
        let (fork, pull) = from_fork(&bot, author).await;
        assert_eq!(
            (bot.read_comments(pull), bot.calls()),
            (vec![], vec![]),
            "{author}"
        );
        insta::allow_duplicates! {
            assert_snapshot!(bot.statuses(pull), @"lockkeeper/plan: Failure, Not planned: somebody with write access must review it and comment `lockkeeper plan`.");
        }
        if author == "stranger" {
            let command = bot.store().command_list(10).await.unwrap().remove(0);
            assert_snapshot!(command.reason.unwrap(), @"not_allowed: `stranger` may not plan: `--allow-commenters=writers` allows plans of code from a fork only for people with write access to `acme/infra`, and `stranger` has no write access.");
        }
        bot.hear(pull, "stranger", "lockkeeper plan").await;
        assert!(bot.comment(pull).contains("`stranger` may not plan"));
        bot.hear(pull, "bob", "lockkeeper plan").await;
        assert!(
            bot.comment(pull)
                .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
        );
        let calls = bot.calls();
        bot.github
            .push(
                &fork,
                "evil",
                &[Change::write("network/more.tf", "# fake\n")],
            )
            .await
            .unwrap();
        bot.settle().await;
        assert_eq!(
            (bot.read_comments(pull), bot.calls()),
            (vec![], calls),
            "the next push is not planned either"
        );
        bot.end(&[NET_LOCK]).await;
    }
}

/// The command waits when the author of the fork pushes, and the event about the push is late.
async fn a_fork_that_moves_on_after_the_comment_is_not_planned(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("allow-fork-prs", "true")]).await;
    let (fork, pull) = from_fork(&bot, "stranger").await;
    // Hooks of `version` run code of the commit as well.
    for command in ["version", "plan"] {
        let comment = format!("lockkeeper {command}");
        bot.github
            .comment(REPO, pull, "bob", &comment)
            .await
            .unwrap();
        bot.settle_short().await;
        bot.github.set_delivering(Delivering::Held).await;
        let more = [Change::write(&format!("network/{command}.tf"), "# fake\n")];
        bot.github.push(&fork, "evil", &more).await.unwrap();
        let done = bot.replica.tick_command().await.unwrap();
        assert_ne!(done, Tick::Idle);
        bot.settle().await;
        assert_eq!(
            bot.calls(),
            Vec::<String>::new(),
            "bob has not seen that commit"
        );
        let told = bot.comment(pull);
        assert!(
            told.contains("refused**: the fork has newer commits than the one for which this was requested. `stranger` may not plan: "),
            "{told}"
        );
        assert!(
            told.contains("Somebody with write access to the repository can review the code"),
            "{told}"
        );
    }
    bot.hear(pull, "bob", "lockkeeper plan").await;
    assert!(bot.comment(pull).contains(": planned\n"));
    bot.end(&[NET_LOCK]).await;
}

async fn a_fork_that_moves_on_before_its_turn_is_not_planned(backend: Backend) {
    let flags = [("allow-fork-prs", "true"), ("lock-queue", "true")];
    let (mut bot, first) = planned(backend, "", &flags).await;
    let (fork, pull) = from_fork(&bot, "stranger").await;
    bot.hear(pull, "bob", "lockkeeper plan").await;
    assert!(bot.comment(pull).contains("**next in the queue**"));
    bot.github
        .push(
            &fork,
            "evil",
            &[Change::write("network/more.tf", "# fake\n")],
        )
        .await
        .unwrap();
    bot.settle().await;
    let calls = bot.calls();
    bot.say(first, "lockkeeper unlock").await;
    bot.comment(first);
    assert_eq!(bot.calls(), calls, "nobody asked for that commit");
    let told = bot.comment(pull);
    assert!(
        told.starts_with("**Plan refused**: `stranger` may not plan: "),
        "{told}"
    );
    assert!(
        told.contains("Somebody with write access to the repository can review the code"),
        "{told}"
    );
    bot.end(&[]).await;
}
