//! Pull requests in line for a lock: whoever waits need not come back to ask.

use insta::assert_snapshot;
use lockkeeper::model::PullNumber;

use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    the_next_in_line_is_planned_by_itself_when_the_lock_is_free,
    a_new_commit_keeps_the_place_and_unlock_gives_it_up,
    arguments_of_the_one_who_waits_are_kept,
    two_pull_requests_that_want_each_others_lock_do_not_wait_for_ever,
    a_pull_request_that_needs_the_project_no_longer_passes_its_turn_on,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const OTHER: (&str, &str) = ("network/main.tf", "# fake: add 0 change 3 destroy 0\n");
const THIRD: (&str, &str) = ("network/main.tf", "# fake: add 7 change 0 destroy 0\n");

/// Three pull requests over `network`: the first has the lock, the others wait.
async fn three(backend: Backend) -> (Bot, [PullNumber; 3]) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    bot.heard(first);
    let second = bot.open_pull("second", &[OTHER]).await;
    let third = bot.open_pull("third", &[THIRD]).await;
    (bot, [first, second, third])
}

async fn the_next_in_line_is_planned_by_itself_when_the_lock_is_free(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    assert_snapshot!(bot.comment(second), @"");
    assert_snapshot!(bot.comment(third), @"");
    bot.merge(first).await;
    bot.heard(first);
    assert_snapshot!(bot.comment(second), @"");
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn a_new_commit_keeps_the_place_and_unlock_gives_it_up(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    bot.heard(second);
    bot.heard(third);
    bot.push("second", &[("network/main.tf", "# fake: add 0 change 4 destroy 0\n")]).await;
    bot.settle().await;
    assert!(bot.comment(second).contains("**next in line**"));
    bot.say(second, "lockkeeper unlock").await;
    assert_snapshot!(bot.comment(second), @"");
    bot.say(first, "lockkeeper unlock").await;
    bot.heard(first);
    assert!(bot.comment(third).contains("next in line after #1"));
    bot.end(&["acme/infra/network/default by #3"]).await;
}

async fn arguments_of_the_one_who_waits_are_kept(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    bot.heard(second);
    bot.heard(third);
    bot.say(second, "lockkeeper plan -d network -- -refresh=false").await;
    bot.heard(second);
    let before = bot.calls().len();
    bot.say(first, "lockkeeper unlock").await;
    bot.heard(first);
    bot.heard(second);
    assert_eq!(bot.calls()[before..], ["init network", "plan network -refresh=false"]);
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn two_pull_requests_that_want_each_others_lock_do_not_wait_for_ever(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let app = ("app/main.tf", "# fake: add 1 change 0 destroy 0\n");
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot.open_pull("second", &[app]).await;
    bot.heard(first);
    bot.heard(second);
    bot.push("first", &[("app/main.tf", "# fake: add 2 change 0 destroy 0\n")]).await;
    bot.settle().await;
    bot.heard(first);
    bot.push("second", &[OTHER]).await;
    bot.settle().await;
    assert_snapshot!(bot.comment(second), @"");
    assert_snapshot!(bot.comment(first), @"");
    bot.merge(first).await;
    bot.heard(first);
    assert_snapshot!(bot.comment(second), @"");
    bot.end(&["acme/infra/app/default by #2", "acme/infra/network/default by #2"]).await;
}

async fn a_pull_request_that_needs_the_project_no_longer_passes_its_turn_on(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    bot.heard(second);
    bot.heard(third);
    bot.push("second", &[NETWORK, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")]).await;
    bot.settle().await;
    bot.heard(second);
    bot.say(first, "lockkeeper unlock").await;
    bot.heard(first);
    assert!(bot.comment(third).contains("next in line after #1"));
    bot.end(&["acme/infra/app/default by #2", "acme/infra/network/default by #3"]).await;
}
