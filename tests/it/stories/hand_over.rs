//! Stories about locks that people release or hand over, also by force, and about the notices to both pull requests.

use insta::assert_snapshot;
use lockkeeper::emulator::NewPull;
use lockkeeper::features::locks::hand_over_on_server;
use lockkeeper::locks::{HandOver, HandOverOutcome, KeptReason};
use lockkeeper::model::{Actor, Lock, LockEventKind, Origin, PullNumber, Reason};
use lockkeeper::queue::Tick;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};
use crate::support::program::lockkeeper;

story!(
    a_lock_that_is_released_is_told_to_both_pull_requests,
    a_lock_that_nobody_waits_for_is_free_when_it_is_released,
    a_lock_is_taken_by_force_from_a_plan_that_is_being_made,
    a_lock_under_which_something_was_applied_is_taken_by_force,
    a_lock_under_which_an_apply_runs_is_left_alone,
    a_lock_is_handed_to_one_that_is_not_the_first_in_the_queue,
    a_pull_request_that_lost_its_lock_is_queued_again,
    locks_are_shown_released_and_handed_over_on_the_command_line,
    a_notice_is_posted_once_though_the_server_dies,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const OTHER: (&str, &str) = ("network/app.tf", "# fake: add 0 change 3 destroy 0\n");
const THIRD: (&str, &str) = ("network/aaa.tf", "# fake: add 7 change 0 destroy 0\n");

/// Opens three pull requests over `network`: the first has the lock, the others are queued. All comments were read.
async fn three(backend: Backend) -> (Bot, [PullNumber; 3]) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pulls = [
        bot.open_pull("first", &[WIDER]).await,
        bot.open_pull("second", &[OTHER]).await,
        bot.open_pull("third", &[THIRD]).await,
    ];
    for pull in pulls {
        bot.read_comments(pull);
    }
    (bot, pulls)
}

async fn the_lock(bot: &Bot) -> Lock {
    bot.store().lock_list().await.unwrap().remove(0)
}

fn olga(lock: &Lock) -> HandOver {
    let actor = Actor::new("olga", Origin::Page);
    HandOver {
        lock: lock.id,
        to: None,
        force: false,
        reason: None,
        actor,
        remote: None,
    }
}

fn by_force(lock: &Lock) -> HandOver {
    HandOver {
        force: true,
        reason: Reason::read("the outage first").unwrap(),
        ..olga(lock)
    }
}

async fn hand_over(bot: &Bot, giving: &HandOver) -> HandOverOutcome {
    hand_over_on_server(&bot.replica.ctx, giving).await.unwrap()
}

async fn a_lock_that_is_released_is_told_to_both_pull_requests(backend: Backend) {
    let (mut bot, [first, second, _]) = three(backend).await;
    let giving = olga(&the_lock(&bot).await);
    assert!(matches!(
        hand_over(&bot, &giving).await,
        HandOverOutcome::Done(_)
    ));
    assert_eq!(hand_over(&bot, &giving).await, HandOverOutcome::NotHeld);
    bot.settle().await;
    assert_snapshot!(bot.comment(first), @"
    **Lock released**: `olga` released the lock of dir: `network` workspace: `default` on the dashboard. Its plan was discarded.

    The next in the queue, pull request [#2](https://github.test/acme/infra/pull/2), has the lock now.

    To **plan** it again and join the queue for the lock, comment:

    ```shell
    lockkeeper plan -d network
    ```
    ");
    let line = bot.machine_line(first);
    assert_snapshot!(bot.plain(&line), @r#"<!-- lockkeeper {"v":1,"event":"lock_lost","id":"ID","pull":1,"head":null,"outcome":"success","projects":[{"name":null,"dir":"network","workspace":"default","outcome":"discarded","plan":null}]} -->"#);
    assert_snapshot!(bot.comment(second), @"
    Ran Plan for dir: `network` workspace: `default`: planned

    The lock became free: this pull request was next in the queue after pull request 1, whose lock olga released.

    **Plan: 0 to add, 3 to change, 0 to destroy.**

    3 to update:

    * update `terraform_data.other[1]`
    * update `terraform_data.other[2]`
    * update `terraform_data.other[3]`

    <details><summary>Output (7 lines)</summary>

    ```diff
    Terraform will perform the following actions:

      # terraform_data.other[1] will be updated in-place
      # terraform_data.other[2] will be updated in-place
      # terraform_data.other[3] will be updated in-place

    Plan: 0 to add, 3 to change, 0 to destroy.
    ```

    </details>

    * To **apply** this plan, comment:
      ```shell
      lockkeeper apply -d network
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID). `lockkeeper unlock` releases all locks of this pull request.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `d8765de0` · 0 s</sub>
    ");
    bot.say(first, "lockkeeper apply").await;
    assert!(
        bot.comment(first)
            .starts_with("**Apply refused**: there is no plan to apply in this pull request.\n")
    );
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn a_lock_that_nobody_waits_for_is_free_when_it_is_released(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("first", &[WIDER]).await;
    bot.read_comments(pull);
    let reason = Reason::read("it is `forgotten`, says @olga").unwrap();
    assert!(matches!(
        hand_over(
            &bot,
            &HandOver {
                reason,
                ..olga(&the_lock(&bot).await)
            }
        )
        .await,
        HandOverOutcome::Done(_)
    ));
    bot.settle().await;
    assert_snapshot!(bot.comment(pull), @"
    **Lock released**: `olga` released the lock of dir: `network` workspace: `default` on the dashboard. Its plan was discarded.

    Why: it is `forgotten`, says @&#8203;olga

    No pull request is queued for the lock, so it is free.

    To **plan** it again, comment:

    ```shell
    lockkeeper plan -d network
    ```
    ");
    bot.end(&[]).await;
}

async fn a_lock_is_taken_by_force_from_a_plan_that_is_being_made(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    bot.push("first", &[("network/main.tf", "# fake: hang plan\n")])
        .await;
    let first = bot
        .github
        .open_pull(REPO, NewPull::from_branch("first"))
        .await
        .unwrap();
    bot.settle_short().await;
    let planning = bot.begin_command();
    bot.printed("hanging").await;
    let lock = the_lock(&bot).await;
    let HandOverOutcome::Refused(_, why) = hand_over(&bot, &olga(&lock)).await else {
        panic!("it is in use")
    };
    assert_eq!(why, KeptReason::PlanRunning);
    assert!(matches!(
        hand_over(&bot, &by_force(&lock)).await,
        HandOverOutcome::Done(_)
    ));
    assert_eq!(planning.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let told = bot.comments(first);
    assert_snapshot!(told.join("\n----\n"), @"
    **Lock taken away**: `olga` took the lock of dir: `network` workspace: `default` away on the dashboard. The plan in progress was interrupted.

    Why: the outage first

    No pull request is queued for the lock, so it is free.

    To **plan** it again, comment:

    ```shell
    lockkeeper plan -d network
    ```
    ----
    Ran Plan for dir: `network` workspace: `default`: cancelled

    **Plan cancelled**: `olga` took its lock away on the dashboard, so `terraform plan` was interrupted.

    ```diff
    hanging
    Interrupt received.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `8b03f0ef` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(first), @"
    lockkeeper/plan: Failure, 1/1 projects failed to plan.
    lockkeeper/plan: network/default: Failure, Plan failed: it was cancelled.
    ");
    bot.end(&[]).await;
}

async fn a_lock_under_which_something_was_applied_is_taken_by_force(backend: Backend) {
    let (mut bot, [first, second, _]) = three(backend).await;
    bot.say(first, "lockkeeper apply").await;
    assert!(bot.comment(first).contains(": applied\n"));
    let lock = the_lock(&bot).await;
    let HandOverOutcome::Refused(_, why) = hand_over(&bot, &olga(&lock)).await else {
        panic!("it was used")
    };
    assert_eq!(why, KeptReason::Applied);
    assert!(matches!(
        hand_over(&bot, &by_force(&lock)).await,
        HandOverOutcome::Done(_)
    ));
    bot.settle().await;
    assert_snapshot!(bot.comment(first), @"
    **Lock taken away**: `olga` took the lock of dir: `network` workspace: `default` away on the dashboard.

    Why: the outage first

    The next in the queue, pull request [#2](https://github.test/acme/infra/pull/2), has the lock now.

    This pull request has applied changes that are not in its base branch yet, and **the next plan of another pull request would undo them**. Merge this one before anyone applies that plan.

    To **plan** it again and join the queue for the lock, comment:

    ```shell
    lockkeeper plan -d network
    ```
    ");
    let planned = bot.comment(second);
    assert_snapshot!(planned.lines().nth(2).unwrap(), @"The lock became free: this pull request was next in the queue after pull request 1, whose lock olga took away (the outage first).");
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn a_lock_under_which_an_apply_runs_is_left_alone(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("first", &[("network/main.tf", "# fake: wait apply\n")])
        .await;
    bot.read_comments(pull);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let applying = bot.begin_command();
    bot.printed("waiting").await;
    let lock = the_lock(&bot).await;
    for giving in [olga(&lock), by_force(&lock)] {
        let HandOverOutcome::Refused(held, why) = hand_over(&bot, &giving).await else {
            panic!("an apply is running")
        };
        assert_eq!((*held, why), (lock.clone(), KeptReason::ApplyRunning));
    }
    bot.go();
    assert_eq!(applying.await.unwrap(), Tick::Worked);
    bot.settle().await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_lock_is_handed_to_one_that_is_not_the_first_in_the_queue(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    let reason = Reason::read("the outage first").unwrap();
    let giving = HandOver {
        to: Some(third.into()),
        reason,
        ..olga(&the_lock(&bot).await)
    };
    assert!(matches!(
        hand_over(&bot, &giving).await,
        HandOverOutcome::Done(_)
    ));
    bot.settle().await;
    assert_snapshot!(bot.comment(first), @"
    **Lock handed over**: `olga` handed over the lock of dir: `network` workspace: `default` to pull request [#3](https://github.test/acme/infra/pull/3) on the dashboard. Its plan was discarded.

    Why: the outage first

    To **plan** it again and join the queue for the lock, comment:

    ```shell
    lockkeeper plan -d network
    ```
    ");
    let planned = bot.comment(third);
    assert_snapshot!(planned.lines().take(5).collect::<Vec<_>>().join("\n"), @"
    Ran Plan for dir: `network` workspace: `default`: planned

    The lock became free: this pull request was chosen by olga, who handed the lock over from pull request 1 (the outage first).

    **Plan: 7 to add, 0 to change, 0 to destroy.**
    ");
    assert_eq!(bot.read_comments(second), [""; 0], "it still waits");
    bot.end(&["acme/infra/network/default by #3"]).await;
}

async fn a_pull_request_that_lost_its_lock_is_queued_again(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    assert!(matches!(
        hand_over(&bot, &by_force(&the_lock(&bot).await)).await,
        HandOverOutcome::Done(_)
    ));
    bot.settle().await;
    bot.read_comments(second);
    bot.read_comments(first);
    bot.say(first, "lockkeeper plan -d network").await;
    assert!(
        bot.comment(first)
            .contains("This pull request is **number 2 in the queue**")
    );
    bot.merge(second).await;
    bot.read_comments(second);
    bot.read_comments(third);
    bot.say(third, "lockkeeper unlock").await;
    bot.read_comments(third);
    assert!(
        bot.comment(first)
            .contains("next in the queue after pull request 3")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

const NAME: &str = "acme/infra/network/default";

async fn locks_are_shown_released_and_handed_over_on_the_command_line(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    let url = bot.db.url.clone();
    let call = |args: &[&str]| lockkeeper(&["locks", args[0]], &url, &args[1..], &[]);

    let list = call(&["list"]);
    assert!(list.out.contains(
        "acme/infra/network/default of #1 by alice since 2026-03-02T09:00:00Z: planned when"
    ));
    assert_eq!(
        call(&["list", "--repo", "acme/other"]).err,
        "No lock is held.\n"
    );
    let listed = call(&["list", "--json", "--repo", "GitHub.test/acme/infra"]).json();
    assert_eq!(
        (listed[0]["pull"].clone(), listed[0]["dir"].clone()),
        (1.into(), "network".into())
    );
    let shown = call(&["show", NAME]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(
        shown
            .out
            .contains("Queue: 2\n  1. #2 by alice since 2026-03-02T09:00:00Z\n"),
        "{}",
        shown.out
    );
    let facts = call(&["show", NAME, "--json"]).json();
    assert_eq!(
        (
            facts["waiting"].clone(),
            facts["history"][2]["kind"].clone()
        ),
        (2.into(), "taken".into())
    );

    let nobody = call(&["hand-over", NAME, "--to", "9"]);
    assert_eq!((nobody.code, nobody.out.as_str()), (1, ""));
    assert!(
        nobody
            .err
            .contains("error: Pull request #9 is not queued for this lock. Nothing was changed.\n")
    );
    let unexplained = call(&["release", NAME, "--force"]);
    assert!(
        unexplained.err.contains("Enter a short reason."),
        "{}",
        unexplained.err
    );
    let unknown = call(&["release", "acme/infra/nowhere/default"]);
    assert!(
        unknown.code == 1
            && unknown
                .err
                .contains("there is no lock \"acme/infra/nowhere/default\"")
    );

    let id = the_lock(&bot).await.id.to_string();
    let done = call(&[
        "hand-over",
        &id,
        "--to",
        "#3",
        "--reason",
        "the outage first",
    ]);
    assert_eq!(
        done.out,
        "Handed over the lock of acme/infra/network/default from pull request #1: pull request #3 has it now. \
         Its plan is discarded.\n"
    );
    assert!(
        done.err
            .contains("The server posts a comment on the pull requests"),
        "{}",
        done.err
    );
    let event = bot
        .store()
        .lock_event_list(2)
        .await
        .unwrap()
        .remove(1)
        .event;
    assert_eq!(
        (event.kind, event.cause.actor.origin),
        (LockEventKind::Stolen, Origin::Cli)
    );
    bot.settle().await;
    let told = bot.comment(first);
    assert!(
        told.starts_with("**Lock handed over**: ")
            && told.contains(" on the command line. Its plan"),
        "{told}"
    );
    assert!(
        bot.comment(third)
            .contains("this pull request was chosen by ")
    );

    let done = call(&["release", NAME]);
    assert_eq!(
        done.out,
        "Released the lock of acme/infra/network/default from pull request #3: pull request #2 has it now. \
         Its plan is discarded.\n"
    );
    bot.settle().await;
    assert!(bot.comment(third).starts_with("**Lock released**: "));
    assert!(bot.comment(second).contains(": planned\n"));
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn a_notice_is_posted_once_though_the_server_dies(backend: Backend) {
    for wakes in [1, 2, 3, 5, 8, 13] {
        let mut bot = Bot::new(backend, &[NETWORK]).await;
        let pull = bot.open_pull("first", &[WIDER]).await;
        bot.read_comments(pull);
        assert!(matches!(
            hand_over(&bot, &olga(&the_lock(&bot).await)).await,
            HandOverOutcome::Done(_)
        ));
        bot.work_until_killed(wakes).await;
        bot.crash_and_restart().await;
        bot.settle().await;
        let told = bot.read_comments(pull);
        assert!(
            told.len() == 1 && told[0].starts_with("**Lock released**"),
            "killed after {wakes}: {told:#?}"
        );
        bot.end(&[]).await;
    }
}
