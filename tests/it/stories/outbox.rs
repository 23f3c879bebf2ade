//! Stories about the outbox: comments arrive once, in order, even after a long outage of GitHub.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use insta::assert_snapshot;
use lockkeeper::emulator::{EmulatedComment, Fault, StatusState};
use lockkeeper::features::replies::SetStatus;
use lockkeeper::model::{CommitState, CommitStatus, PullNumber, PullRef, StatusContext};
use lockkeeper::queue::{Job, Tick};
use lockkeeper::render::{MachineLine, PartLine};
use lockkeeper::store::NewJob;

use crate::support::bot::{Bot, LOGIN, REPO};
use crate::support::db::{Backend, start_of_time, story};

story!(
    a_comment_that_met_a_bad_gateway_is_posted_a_moment_later,
    a_secondary_rate_limit_is_waited_out,
    a_limit_stops_every_server_and_whatever_is_written,
    a_comment_whose_answer_was_lost_is_not_posted_twice,
    a_comment_that_arrives_after_it_was_posted_again_is_deleted,
    a_status_that_arrives_after_a_newer_one_does_not_stay,
    a_status_that_is_replaced_before_it_is_sent_is_left_out,
    a_server_that_lost_the_job_while_it_waited_for_a_token_posts_nothing,
    a_server_that_lost_the_job_while_it_waited_for_a_token_sets_no_status,
    statuses_get_through_bad_moments_as_well,
    comments_of_a_pull_keep_their_order_while_the_first_is_tried_again,
    the_parts_of_a_long_comment_are_posted_in_order,
    what_was_said_while_github_was_away_arrives_in_order,
    an_apply_is_not_carried_out_an_hour_late,
    a_pull_request_that_github_does_not_show_at_once_is_waited_for,
    a_pull_request_that_github_never_shows_is_given_up,
    a_primary_rate_limit_on_reads_is_waited_out,
    a_comment_that_can_never_be_posted_is_given_up_and_holds_nothing_up,
    a_close_that_github_knows_nothing_of_is_given_up,
);

const COMMENTS: &str = "POST /repos/*/*/issues/*/comments";
const STATUSES: &str = "POST /repos/*/*/statuses/*";
const PULLS: &str = "GET /repos/*/*/pulls/*";
const NETWORK: (&str, &str) = ("network/main.tf", "# fake: add 2 change 0 destroy 0\n");

/// Returns the seconds from the beginning of the story to the newest comment of the bot.
fn posted_after(bot: &Bot, pull: PullNumber) -> i64 {
    let comments = bot.github.comments(REPO, pull).unwrap();
    let last = comments
        .iter()
        .rev()
        .find(|comment| comment.author == LOGIN)
        .expect("the bot has commented");
    (last.created_at - start_of_time()).num_seconds()
}

fn posts(bot: &Bot) -> usize {
    let posts = |exchange: &&lockkeeper::emulator::Exchange| {
        exchange.method == "POST" && exchange.path.ends_with("/comments")
    };
    bot.github.requests().iter().filter(posts).count()
}

async fn a_comment_that_met_a_bad_gateway_is_posted_a_moment_later(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    bot.github.fault(COMMENTS, 2, Fault::BadGateway);
    bot.say(pull, "lockkeeper help").await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    assert_eq!(
        (posts(&bot), posted_after(&bot, pull)),
        (3, 3),
        "after one second, then after two more"
    );
    bot.github.fault(COMMENTS, 1, Fault::DropConnection);
    bot.say(pull, "lockkeeper help").await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    bot.end(&[]).await;
}

async fn a_secondary_rate_limit_is_waited_out(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    bot.github.fault(
        COMMENTS,
        1,
        Fault::SecondaryLimit {
            status: 429,
            retry_after: 90,
        },
    );
    bot.say(pull, "lockkeeper help").await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    assert_eq!((posts(&bot), posted_after(&bot, pull)), (2, 90));
    let asked = (bot.db.now() - start_of_time()).num_seconds();
    bot.github.fault(
        COMMENTS,
        1,
        Fault::SecondaryLimit {
            status: 403,
            retry_after: 30,
        },
    );
    bot.say(pull, "lockkeeper help").await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    assert_eq!((posts(&bot), posted_after(&bot, pull) - asked), (4, 30));
    bot.end(&[]).await;
}

async fn a_comment_whose_answer_was_lost_is_not_posted_twice(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    bot.github.fault(COMMENTS, 1, Fault::LoseAnswer);
    bot.say(pull, "lockkeeper help").await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    assert_eq!(posts(&bot), 1, "the second attempt looks first");
    bot.end(&[]).await;
}

async fn a_limit_stops_every_server_and_whatever_is_written(backend: Backend) {
    let (mut bot, first) = Bot::talking(backend, &[]).await;
    let second = bot
        .open_pull("other", &[("README.md", "Other networks.\n")])
        .await;
    let other = bot.replica_beside().await;
    bot.github.fault(
        COMMENTS,
        1,
        Fault::SecondaryLimit {
            status: 403,
            retry_after: 90,
        },
    );
    for pull in [first, second] {
        bot.github
            .comment(REPO, pull, "alice", "lockkeeper help")
            .await
            .unwrap();
        assert_eq!(
            bot.replica.tick_short().await.unwrap(),
            Tick::Worked,
            "the delivery is read"
        );
        assert_eq!(bot.replica.tick_command().await.unwrap(), Tick::Worked);
    }
    assert_eq!(bot.replica.tick_short().await.unwrap(), Tick::Worked);
    assert_eq!(
        other.tick_short().await.unwrap(),
        Tick::Worked,
        "it has the comment on the other pull request"
    );
    assert_eq!(posts(&bot), 1, "GitHub has asked to wait");
    let at = PullRef {
        repo: "github.test/acme/infra".parse().unwrap(),
        subject: first.into(),
    };
    other
        .ctx
        .forges
        .of(&at.repo)
        .unwrap()
        .pull(&at)
        .await
        .expect("what is read has a limit of its own");

    bot.settle().await;
    assert_eq!(
        (
            bot.read_comments(first).len(),
            bot.read_comments(second).len()
        ),
        (1, 1)
    );
    assert_eq!(
        (
            posts(&bot),
            posted_after(&bot, first),
            posted_after(&bot, second)
        ),
        (3, 90, 90)
    );
    bot.end(&[]).await;
}

async fn a_comment_that_arrives_after_it_was_posted_again_is_deleted(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    bot.github.fault(COMMENTS, 1, Fault::Late);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper help")
        .await
        .unwrap();
    bot.settle_until(start_of_time() + TimeDelta::minutes(1))
        .await;
    let posted = bot.github.comment_by(REPO, pull, LOGIN, 0).await.unwrap();
    bot.github.clear_faults();
    let late = bot
        .github
        .comment_by(REPO, pull, LOGIN, posted.id)
        .await
        .unwrap();
    assert_eq!(late.body, posted.body);
    bot.settle().await;
    let left: Vec<u64> = bot
        .github
        .comments(REPO, pull)
        .unwrap()
        .iter()
        .map(|comment| comment.id)
        .collect();
    assert!(
        left.contains(&posted.id) && !left.contains(&late.id),
        "{left:?}"
    );
    assert_eq!(bot.read_comments(pull).len(), 1);
    bot.end(&[]).await;
}

/// Returns the job that sets the combined status of a plan.
fn plan_status(bot: &Bot, pull: PullNumber, state: CommitState, text: &str) -> NewJob {
    let status = CommitStatus {
        context: StatusContext::new("lockkeeper/plan"),
        state,
        description: text.to_owned(),
        url: None,
    };
    let commit = bot.github.pull(REPO, pull).unwrap().head;
    let at = PullRef {
        repo: "github.test/acme/infra".parse().unwrap(),
        subject: pull.into(),
    };
    SetStatus::of_pull(&at, &commit, status).unwrap().to_new()
}

async fn a_status_that_arrives_after_a_newer_one_does_not_stay(backend: Backend) {
    let (bot, pull) = Bot::talking(backend, &[]).await;
    bot.github.fault(STATUSES, 1, Fault::Late);
    bot.store()
        .job_push(&plan_status(
            &bot,
            pull,
            CommitState::Pending,
            "The older one.",
        ))
        .await
        .unwrap();
    // One that was not sent yet would be left out.
    assert_eq!(bot.replica.tick_short().await.unwrap(), Tick::Worked);
    bot.store()
        .job_push(&plan_status(
            &bot,
            pull,
            CommitState::Success,
            "The newer one.",
        ))
        .await
        .unwrap();
    bot.settle_until(start_of_time() + TimeDelta::minutes(1))
        .await;
    let newest = || {
        bot.statuses(pull)
            .lines()
            .find(|line| line.starts_with("lockkeeper/plan:"))
            .unwrap()
            .to_owned()
    };
    assert_eq!(newest(), "lockkeeper/plan: Success, The newer one.");
    bot.github.clear_faults();
    bot.github
        .wait_for(|_| newest().contains("The older one.").then_some(()))
        .await;
    bot.settle().await;
    assert_eq!(newest(), "lockkeeper/plan: Success, The newer one.");
    bot.end(&[]).await;
}

async fn a_status_that_is_replaced_before_it_is_sent_is_left_out(backend: Backend) {
    let (bot, pull) = Bot::talking(backend, &[]).await;
    let sent = || {
        let requests = bot.github.requests();
        requests
            .iter()
            .filter(|sent| sent.path.contains("/statuses/"))
            .count()
    };
    let before = sent();
    for (state, description) in [
        (CommitState::Pending, "The older one."),
        (CommitState::Success, "The newer one."),
    ] {
        let status = plan_status(&bot, pull, state, description);
        bot.store().job_push(&status).await.unwrap();
    }
    bot.settle().await;
    assert_eq!(sent() - before, 1);
    assert!(
        bot.statuses(pull)
            .contains("lockkeeper/plan: Success, The newer one.")
    );
    bot.end(&[]).await;
}

/// Pauses a server that hangs in a request for a token. Meanwhile another server takes its job and does it. Then the
/// first one goes on.
async fn overtaken_at_the_token(bot: &mut Bot, meanwhile: &[NewJob]) {
    // Tokens are valid for an hour, and one that is about to expire is replaced.
    bot.db.clock.advance(Duration::from_mins(30));
    bot.github
        .fault("POST /app/installations/*/access_tokens", 1, Fault::Hang);
    let paused = Arc::clone(&bot.replica);
    let paused = tokio::spawn(async move { paused.tick_short().await.unwrap() });
    bot.github.hanging(1).await;
    for job in meanwhile {
        bot.store().job_push(job).await.unwrap();
    }
    bot.db.clock.advance(lockkeeper::queue::LEASE * 2);
    bot.replica = bot.replica_beside().await;
    bot.replica.tick("orphans").await.unwrap();
    bot.settle_until(bot.db.now() + TimeDelta::minutes(1)).await;
    bot.github.clear_faults();
    assert_eq!(paused.await.unwrap(), Tick::Worked);
}

async fn a_server_that_lost_the_job_while_it_waited_for_a_token_posts_nothing(backend: Backend) {
    let mut bot = Bot::as_app(backend, &[("README.md", "Networks.\n")]).await;
    let pull = bot
        .open_pull("talk", &[("README.md", "Networks of Acme.\n")])
        .await;
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper help")
        .await
        .unwrap();
    assert_eq!(
        bot.replica.tick_short().await.unwrap(),
        Tick::Worked,
        "the delivery is read"
    );
    assert_eq!(bot.replica.tick_command().await.unwrap(), Tick::Worked);
    overtaken_at_the_token(&mut bot, &[]).await;
    assert_eq!((posts(&bot), bot.read_comments(pull).len()), (1, 1));
    bot.end(&[]).await;
}

async fn a_server_that_lost_the_job_while_it_waited_for_a_token_sets_no_status(backend: Backend) {
    let mut bot = Bot::as_app(backend, &[("README.md", "Networks.\n")]).await;
    let pull = bot
        .open_pull("talk", &[("README.md", "Networks of Acme.\n")])
        .await;
    bot.store()
        .job_push(&plan_status(
            &bot,
            pull,
            CommitState::Pending,
            "The older one.",
        ))
        .await
        .unwrap();
    let newer = plan_status(&bot, pull, CommitState::Success, "The newer one.");
    overtaken_at_the_token(&mut bot, &[newer]).await;
    assert!(
        bot.statuses(pull)
            .contains("lockkeeper/plan: Success, The newer one."),
        "{}",
        bot.statuses(pull)
    );
    bot.end(&[]).await;
}

async fn statuses_get_through_bad_moments_as_well(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# narrow\n")]).await;
    bot.github.fault(STATUSES, 1, Fault::BadGateway);
    bot.github.fault(STATUSES, 1, Fault::LoseAnswer);
    bot.github.fault(
        STATUSES,
        1,
        Fault::SecondaryLimit {
            status: 403,
            retry_after: 60,
        },
    );
    bot.github.fault(STATUSES, 1, Fault::DropConnection);
    let pull = bot.open_pull("wider", &[NETWORK]).await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 0 to change, 0 to destroy.
    ");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn comments_of_a_pull_keep_their_order_while_the_first_is_tried_again(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    bot.github.fault(COMMENTS, 3, Fault::BadGateway);
    for text in [
        "lockkeeper help",
        "lockkeeper unlock",
        "lockkeeper paln",
        "lockkeeper approve_policies",
    ] {
        bot.github.comment(REPO, pull, "alice", text).await.unwrap();
    }
    bot.settle().await;
    let first_lines: Vec<String> = bot
        .read_comments(pull)
        .iter()
        .map(|text| first_line(text))
        .collect();
    assert_snapshot!(first_lines.join("\n"), @"
    **Lockkeeper** runs Terraform and OpenTofu for this pull request and keeps the locks. Write a command as a comment of its own, on one line.
    Ran Unlock: this pull request holds no lock and has no plan, so there was nothing to release.
    **Nothing was run**: `paln` is not a command. Did you mean `plan`? Commands here: `plan`, `apply`, `cancel`, `unlock`, `explain`, `approve_policies`, `version`, `help`.
    **Approve Policies refused**: plans of this repository are not checked against policies, so there is nothing to approve.
    ");
    bot.end(&[]).await;
}

fn first_line(text: &str) -> String {
    text.trim_start()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

async fn the_parts_of_a_long_comment_are_posted_in_order(backend: Backend) {
    let files = ["a/main.tf", "b/main.tf", "c/main.tf", "d/main.tf"];
    let mut bot = Bot::new(backend, &files.map(|path| (path, "# narrow\n"))).await;
    bot.github.fault(COMMENTS, 1, Fault::LoseAnswer);
    bot.github.fault(COMMENTS, 1, Fault::BadGateway);
    let pull = bot
        .open_pull("wider", &files.map(|path| (path, "# fake: big 750\n")))
        .await;
    let parts = bot.read_comments(pull);
    let lines: usize = parts
        .iter()
        .map(|part| part.matches("of a very large plan").count())
        .sum();
    assert_eq!(
        (parts.len(), lines),
        (3, 3000),
        "no line is lost and none is told twice"
    );
    let told = bot.github.comments(REPO, pull).unwrap();
    let part = |comment: &EmulatedComment| {
        PartLine::find(&comment.body).map(|line| (line.part, line.parts))
    };
    assert_eq!(
        told.iter().map(part).collect::<Vec<_>>(),
        [Some((1, 3)), Some((2, 3)), Some((3, 3))]
    );
    let is_whole = |comment: &EmulatedComment| MachineLine::find(&comment.body).is_some();
    assert_eq!(
        told.iter().map(is_whole).collect::<Vec<_>>(),
        [false, false, true],
        "what came of it is told once"
    );
    let locks = ["a", "b", "c", "d"].map(|dir| format!("acme/infra/{dir}/default by #1"));
    bot.end(&locks.each_ref().map(String::as_str)).await;
}

/// Makes the requests to GitHub that the story sends fail: comments, statuses, pull requests and git.
fn take_away(bot: &Bot) {
    for route in [
        "* /repos/*/*/issues/*/comments",
        STATUSES,
        PULLS,
        "* /*/*/info/refs",
    ] {
        bot.github.fault(route, 10_000, Fault::BadGateway);
    }
}

async fn what_was_said_while_github_was_away_arrives_in_order(backend: Backend) {
    let mut bot = Bot::new(
        backend,
        &[
            ("network/main.tf", "# narrow\n"),
            ("README.md", "Networks.\n"),
        ],
    )
    .await;
    let talk = bot
        .open_pull("talk", &[("README.md", "Networks of Acme.\n")])
        .await;
    take_away(&bot);
    bot.push("wider", &[NETWORK]).await;
    let wider = lockkeeper::emulator::NewPull::from_branch("wider");
    let plan = bot.github.open_pull(REPO, wider).await.unwrap();
    for text in ["lockkeeper help", "lockkeeper unlock", "lockkeeper paln"] {
        bot.github.comment(REPO, talk, "alice", text).await.unwrap();
    }
    bot.settle_until(start_of_time() + TimeDelta::minutes(50))
        .await;
    assert_eq!(
        (bot.read_comments(talk).len(), bot.read_comments(plan).len()),
        (0, 0)
    );
    bot.github.clear_faults();
    bot.settle().await;
    let first_lines: Vec<String> = bot
        .read_comments(talk)
        .iter()
        .map(|text| first_line(text))
        .collect();
    assert_snapshot!(first_lines.join("\n"), @"
    **Lockkeeper** runs Terraform and OpenTofu for this pull request and keeps the locks. Write a command as a comment of its own, on one line.
    Ran Unlock: this pull request holds no lock and has no plan, so there was nothing to release.
    **Nothing was run**: `paln` is not a command. Did you mean `plan`? Commands here: `plan`, `apply`, `cancel`, `unlock`, `explain`, `approve_policies`, `version`, `help`.
    ");
    assert_snapshot!(first_line(&bot.answer(plan)), @"Ran Plan for dir: `network` workspace: `default`: planned");
    assert_snapshot!(bot.statuses(plan), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 0 to change, 0 to destroy.
    ");
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn an_apply_is_not_carried_out_an_hour_late(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# narrow\n")]).await;
    let pull = bot.open_pull("wider", &[NETWORK]).await;
    bot.answer(pull);
    take_away(&bot);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_until(start_of_time() + TimeDelta::hours(1))
        .await;
    bot.github.clear_faults();
    bot.settle().await;
    assert_snapshot!(bot.answer(pull), @"
    **Apply failed**: this command could not be run: github.test could not be reached for pull request acme/infra#&#8203;1: Server Error.

    * Run the command again to retry.
    * If it fails again, an administrator can find the cause in the log under `ID`.

    <sub>46 s</sub>
    ");
    assert!(
        !bot.calls().contains(&"apply network".to_owned()),
        "{:?}",
        bot.calls()
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 0 to change, 0 to destroy.
    ");
    bot.end_given_up(&["acme/infra/network/default by #1"], &["run_command"])
        .await;
}

async fn a_pull_request_that_github_does_not_show_at_once_is_waited_for(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# narrow\n")]).await;
    bot.github.hide_new_pulls(2);
    let pull = bot.open_pull("wider", &[NETWORK]).await;
    assert_eq!(
        first_line(&bot.answer(pull)),
        "Ran Plan for dir: `network` workspace: `default`: planned"
    );
    assert_eq!(
        posted_after(&bot, pull),
        4,
        "after one second, then after three more"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_pull_request_that_github_never_shows_is_given_up(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# narrow\n")]).await;
    bot.github.hide_new_pulls(1000);
    let pull = bot.open_pull("wider", &[NETWORK]).await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan failed**: this command could not be run: pull request acme/infra#&#8203;1 was not found on github.test, or the credentials of Lockkeeper may not see it.

    * Run the command again to retry.
    * If it fails again, an administrator can find the cause in the log under `ID`.

    <sub>26 s</sub>
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"command":"autoplan","id":"ID","pull":1,"head":null,"outcome":"failure","reason":"broken","projects":[]} -->"#);
    bot.github.clear_faults();
    bot.end_given_up(&[], &["run_command"]).await;
}

async fn a_primary_rate_limit_on_reads_is_waited_out(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# narrow\n")]).await;
    let reset = start_of_time() + TimeDelta::minutes(20);
    bot.github.fault(PULLS, 1, Fault::PrimaryLimit { reset });
    bot.github.fault(
        PULLS,
        1,
        Fault::PrimaryLimit {
            reset: reset + Duration::from_mins(5),
        },
    );
    let pull = bot.open_pull("wider", &[NETWORK]).await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    assert_eq!(posted_after(&bot, pull), 25 * 60);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_comment_that_can_never_be_posted_is_given_up_and_holds_nothing_up(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# narrow\n")]).await;
    bot.github.fault(COMMENTS, 1000, Fault::NotFound);
    let pull = bot.open_pull("wider", &[NETWORK]).await;
    let head = bot.github.pull(REPO, pull).unwrap().head;
    let statuses = bot.github.statuses(REPO, &head).unwrap().latest;
    assert!(
        statuses
            .iter()
            .all(|status| status.state == StatusState::Success),
        "{statuses:?}"
    );
    let (failed, _) = bot
        .store()
        .job_list_failed_since(DateTime::UNIX_EPOCH, 10)
        .await
        .unwrap();
    assert_snapshot!(failed[0].last_error.as_deref().unwrap_or_default(), @"a comment on acme/infra#1 was not found on github.test, or the credentials of Lockkeeper may not see it");
    bot.github.clear_faults();
    assert!(
        bot.ask(pull, "lockkeeper help")
            .await
            .contains("lockkeeper plan"),
        "the lane is free"
    );
    bot.end_given_up(&["acme/infra/network/default by #1"], &["post_comment"])
        .await;
}

async fn a_close_that_github_knows_nothing_of_is_given_up(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# narrow\n")]).await;
    let pull = bot.open_pull("wider", &[NETWORK]).await;
    bot.answer(pull);
    bot.github.fault(PULLS, 1000, Fault::NotFound);
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.settle().await;
    assert_snapshot!(bot.deliveries().await.pop().unwrap(), @"pull_request refused: given up: pull request acme/infra#1 was not found on github.test, or the credentials of Lockkeeper may not see it");
    assert_eq!(
        bot.locks().await,
        ["acme/infra/network/default by #1"],
        "nobody knows whether it is closed"
    );
    bot.github.clear_faults();
    bot.replica.tick("closed_pulls").await.unwrap();
    bot.settle().await;
    assert!(bot.answer(pull).contains("network"));
    bot.end_given_up(&[], &["read_delivery"]).await;
}
