//! Stories about pending statuses: those that nothing else would end are ended, once. Those that wait for people are
//! kept.

use insta::assert_snapshot;
use lockkeeper::emulator::Fault;
use lockkeeper::kit::reconcile::TickResult;
use lockkeeper::model::PullNumber;

use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, execute, story};

story!(
    a_status_that_was_given_up_is_set_later,
    a_command_without_a_job_is_given_up_with_its_statuses,
    statuses_of_a_command_that_ended_without_a_word_say_so,
    a_status_that_cannot_be_set_again_is_not_tried_for_ever,
    a_status_that_waits_for_people_or_for_a_command_is_left_alone,
);

const LOCK: &str = "acme/infra/network/default by #1";

impl Bot {
    async fn look_at_statuses(&self) -> TickResult {
        let found = self.replica.tick("pending_statuses").await.unwrap();
        self.settle().await;
        found
    }
}

/// Opens a pull request whose plan is running.
async fn planning(
    backend: Backend,
    order: &str,
) -> (
    Bot,
    PullNumber,
    tokio::task::JoinHandle<lockkeeper::queue::Tick>,
) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .announce_pull("wider", &[("network/main.tf", order)])
        .await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    bot.settle_short().await;
    assert_eq!(
        bot.replica.tick("pending_statuses").await.unwrap(),
        TickResult::default(),
        "its command is under way"
    );
    (bot, pull, command)
}

async fn a_status_that_was_given_up_is_set_later(backend: Backend) {
    let (mut bot, pull, command) = planning(backend, "# fake: wait plan\n").await;
    bot.github
        .fault("POST /repos/*/*/statuses/*", 40, Fault::NotFound);
    bot.go();
    assert_eq!(command.await.unwrap(), lockkeeper::queue::Tick::Worked);
    bot.settle().await;
    bot.answer(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Pending, Plan in progress...
    lockkeeper/plan: network/default: Pending, Plan in progress...
    ");
    assert_eq!(
        bot.look_at_statuses().await,
        TickResult {
            looked_at: 2,
            repaired: 2
        }
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    ");
    assert_eq!(bot.look_at_statuses().await, TickResult::default());
    bot.end_given_up(&[LOCK], &["set_status", "set_status"])
        .await;
}

async fn a_command_without_a_job_is_given_up_with_its_statuses(backend: Backend) {
    let (mut bot, pull, command) = planning(backend, "# fake: wait plan\n").await;
    command.abort();
    command.await.unwrap_err();
    execute(
        &bot.db,
        "UPDATE jobs SET state = 'failed', finished_at = created_at WHERE kind = 'run_command'",
    )
    .await;
    bot.crash_and_restart().await;
    assert_eq!(
        bot.look_at_statuses().await,
        TickResult {
            looked_at: 1,
            repaired: 1
        }
    );
    assert!(bot.comment(pull).contains("could not be run"));
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, Plan failed.
    lockkeeper/plan: network/default: Failure, Plan failed.
    ");
    assert_eq!(bot.look_at_statuses().await, TickResult::default());
    bot.go();
    let locks = bot.locks().await;
    bot.end_given_up(
        &locks.iter().map(String::as_str).collect::<Vec<_>>(),
        &["run_command"],
    )
    .await;
}

async fn statuses_of_a_command_that_ended_without_a_word_say_so(backend: Backend) {
    let (mut bot, pull, command) = planning(backend, "# fake: wait plan\n").await;
    command.abort();
    command.await.unwrap_err();
    execute(
        &bot.db,
        "UPDATE jobs SET state = 'failed', finished_at = created_at WHERE kind = 'run_command'",
    )
    .await;
    execute(
        &bot.db,
        "UPDATE commands SET state = 'finished', outcome = 'failure'",
    )
    .await;
    bot.crash_and_restart().await;
    assert_eq!(
        bot.look_at_statuses().await,
        TickResult {
            looked_at: 2,
            repaired: 2
        }
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, Interrupted: run the command again.
    lockkeeper/plan: network/default: Failure, Interrupted: run the command again.
    ");
    assert_eq!(bot.look_at_statuses().await, TickResult::default());
    bot.go();
    bot.end_given_up(&[LOCK], &["run_command"]).await;
}

async fn a_status_that_cannot_be_set_again_is_not_tried_for_ever(backend: Backend) {
    let (mut bot, pull, command) = planning(backend, "# fake: wait plan\n").await;
    bot.github
        .fault("POST /repos/*/*/statuses/*", 80, Fault::NotFound);
    bot.go();
    assert_eq!(command.await.unwrap(), lockkeeper::queue::Tick::Worked);
    bot.settle().await;
    bot.answer(pull);
    assert_eq!(
        bot.look_at_statuses().await,
        TickResult {
            looked_at: 2,
            repaired: 2
        }
    );
    assert_eq!(bot.look_at_statuses().await, TickResult::default());
    bot.end_given_up(&[LOCK], &["set_status"; 4]).await;
}

async fn a_status_that_waits_for_people_or_for_a_command_is_left_alone(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .open_pull(
            "wider",
            &[
                ("network/main.tf", "# wider\n"),
                ("app/main.tf", "# wider\n"),
            ],
        )
        .await;
    bot.answer(pull);
    bot.say(pull, "lockkeeper apply -d app").await;
    bot.answer(pull);
    assert!(
        bot.statuses(pull)
            .contains("lockkeeper/apply: Pending, 1/2 projects applied.")
    );
    assert_eq!(bot.look_at_statuses().await, TickResult::default());
    bot.end(&["acme/infra/app/default by #1", LOCK]).await;
}
