//! Stories about apply locks of a repository or a directory, and with an end.

use std::time::Duration;

use chrono::TimeDelta;
use insta::assert_snapshot;
use lockkeeper::model::PullNumber;

use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, applies_in, by, stop_applies, stop_applies_of, story};

story!(
    a_repository_that_is_frozen_applies_nothing_until_the_time_is_over,
    a_frozen_directory_stops_its_projects_and_no_others,
    everything_that_stands_in_the_way_is_named_at_once,
    a_lock_of_another_repository_stops_nothing,
    what_is_applied_already_stays_a_success,
);

/// Starts a bot with a pull request that has two plans. The comments were read. Also returns the host of the
/// emulator.
async fn two_plans(backend: Backend) -> (Bot, PullNumber, String) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let code = "# fake: add 1 change 0 destroy 0\n";
    let pull = bot
        .open_pull("both", &[("network/main.tf", code), ("app/main.tf", code)])
        .await;
    bot.read_comments(pull);
    let lock = bot.store().lock_list().await.unwrap().remove(0);
    (bot, pull, lock.key.repo.to_string())
}

fn applies(bot: &Bot) -> usize {
    bot.calls()
        .iter()
        .filter(|call| call.starts_with("apply "))
        .count()
}

const BOTH: [&str; 2] = [
    "acme/infra/app/default by #1",
    "acme/infra/network/default by #1",
];

async fn a_repository_that_is_frozen_applies_nothing_until_the_time_is_over(backend: Backend) {
    let (mut bot, pull, repo) = two_plans(backend).await;
    let end = bot.db.now() + TimeDelta::hours(63);
    stop_applies_of(
        bot.store(),
        &applies_in(&repo, "."),
        Some(end),
        "olga",
        "no changes over the weekend",
    )
    .await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull).replace(&repo, "HOST/acme/infra"), @"
    **Apply refused**: applies are stopped in the repository `HOST/acme/infra`, by `olga` since 2026-03-02 09:00 UTC, until 2026-03-05 00:00 UTC. Reason: no changes over the weekend

    * If you can use the pages of this server, allow applies again on `https://locks.example.com/apply-locks`. An administrator can also run `lockkeeper apply-lock clear`.
    * The plans are kept until then; run the command again after 2026-03-05 00:00 UTC.

    <sub>Commit `a1598137` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Pending, Applies are stopped in this repository until 2026-03-05 00:00 UTC by olga.
    lockkeeper/plan: Success, 2/2 projects planned successfully.
    lockkeeper/plan: app/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    lockkeeper/plan: network/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    ");
    let line = bot.machine_line(pull);
    assert!(
        line.contains(r#""outcome":"refused","reason":"apply_locked","projects":[]"#),
        "{line}"
    );
    bot.db.clock.advance(Duration::from_hours(63));
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for 2 projects: 2 applied\n")
    );
    bot.replica.tick("apply_locks").await.unwrap();
    let event = bot
        .store()
        .lock_event_list(1)
        .await
        .unwrap()
        .remove(0)
        .event;
    assert_eq!(
        event.cause.reason,
        "it expired; set by olga on 2026-03-02 09:00 UTC: no changes over the weekend"
    );
    bot.end(&BOTH).await;
}

async fn a_frozen_directory_stops_its_projects_and_no_others(backend: Backend) {
    let (mut bot, pull, repo) = two_plans(backend).await;
    stop_applies_of(
        bot.store(),
        &applies_in(&repo, "network"),
        None,
        "olga",
        "the carrier works on its lines",
    )
    .await;
    bot.say(pull, "lockkeeper apply").await;
    let comment = bot.comment(pull).replace(&repo, "HOST/acme/infra");
    assert!(
        comment.starts_with("Ran Apply for 2 projects: 1 refused, 1 applied\n"),
        "{comment}"
    );
    let refused = comment
        .lines()
        .find(|line| line.starts_with("**Apply refused**"))
        .unwrap();
    assert_snapshot!(refused, @"**Apply refused**: applies are stopped in the directory `network` of `HOST/acme/infra` and below it, by `olga` since 2026-03-02 09:00 UTC, until somebody allows them again. Reason: the carrier works on its lines");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Failure, 1/2 projects failed to apply.
    lockkeeper/apply: app/default: Success, Apply succeeded.
    lockkeeper/apply: network/default: Failure, Applies are stopped in network by olga.
    lockkeeper/plan: Success, 2/2 projects planned successfully.
    lockkeeper/plan: app/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    lockkeeper/plan: network/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    ");
    assert_eq!(applies(&bot), 1);
    // None of the remaining plans could be applied.
    bot.say(pull, "lockkeeper apply -d network").await;
    assert!(
        bot.comment(pull)
            .starts_with("**Apply refused**: applies are stopped in the directory `network` of ")
    );
    assert!(
        bot.store()
            .apply_lock_clear(&applies_in(&repo, "network"), by())
            .await
            .unwrap()
            .is_some()
    );
    bot.say(pull, "lockkeeper apply -d network").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&BOTH).await;
}

async fn everything_that_stands_in_the_way_is_named_at_once(backend: Backend) {
    let (mut bot, pull, repo) = two_plans(backend).await;
    let tonight = Some(bot.db.now() + TimeDelta::hours(9));
    stop_applies(bot.store(), "olga", "the database moves").await;
    stop_applies_of(
        bot.store(),
        &applies_in(&repo, "network"),
        tonight,
        "pete",
        "`x` <b>@acme</b>\n* y",
    )
    .await;
    stop_applies_of(
        bot.store(),
        &applies_in(&repo, "other"),
        None,
        "rita",
        "not in the way",
    )
    .await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull).replace(&repo, "HOST/acme/infra"), @r"
    **Apply refused**: applies are stopped on this whole server, by `olga` since 2026-03-02 09:00 UTC, until somebody allows them again. Reason: the database moves
    Applies are also stopped in the directory `network` of `HOST/acme/infra` and below it, by `pete` since 2026-03-02 09:00 UTC, until 2026-03-02 18:00 UTC. Reason: `x` &lt;b&gt;@&#8203;acme&lt;/b&gt; \* y

    * If you can use the pages of this server, allow applies again on `https://locks.example.com/apply-locks`. An administrator can also run `lockkeeper apply-lock clear`.
    * The plans are kept until then; run the command again afterwards.

    <sub>Commit `a1598137` · 0 s</sub>
    ");
    assert_eq!(applies(&bot), 0);
    bot.end(&BOTH).await;
}

async fn a_lock_of_another_repository_stops_nothing(backend: Backend) {
    let (mut bot, pull, repo) = two_plans(backend).await;
    for other in [format!("{repo}-2"), "github.example/acme/infra".to_owned()] {
        stop_applies_of(
            bot.store(),
            &applies_in(&other, "."),
            None,
            "olga",
            "elsewhere",
        )
        .await;
    }
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for 2 projects: 2 applied\n")
    );
    bot.end(&BOTH).await;
}

async fn what_is_applied_already_stays_a_success(backend: Backend) {
    let (mut bot, pull, _) = two_plans(backend).await;
    bot.say(pull, "lockkeeper apply").await;
    bot.read_comments(pull);
    stop_applies(bot.store(), "olga", "the database moves").await;
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("**Apply refused**: applies are stopped on this whole server")
    );
    assert!(
        bot.statuses(pull)
            .contains("lockkeeper/apply: Success, 2/2 projects applied"),
        "{}",
        bot.statuses(pull)
    );
    bot.end(&BOTH).await;
}
