//! Planning, by itself and by comment.

use insta::assert_snapshot;

use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

const NETWORK: (&str, &str) = ("network/main.tf", "resource \"terraform_data\" \"it\" {}\n");

story!(a_pull_request_is_planned_when_it_is_opened);

async fn a_pull_request_is_planned_when_it_is_opened(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[("network/main.tf", "# fake: add 2 change 1 destroy 0\n")]).await;
    assert_snapshot!(bot.answer(pull), @"");
    assert_snapshot!(bot.statuses(pull), @"");
    assert_snapshot!(bot.machine_line(pull), @"");
    bot.end(&["acme/infra/network/default by #1"]).await;
}
