//! Stories about lost events: the server reads the forge and acts as if the events had come. If they come after all,
//! nothing is done twice.

use std::collections::BTreeSet;
use std::time::Duration;

use insta::assert_snapshot;
use lockkeeper::emulator::{Delivering, EmulatedDelivery, Fault, NewPull};
use lockkeeper::kit::reconcile::TickResult;
use lockkeeper::model::{Actor, PullNumber};

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO, WebhookRequest};
use crate::support::db::{Backend, story, tell};
use crate::support::rows::deliveries;

story!(
    a_push_that_was_not_told_is_planned_once_and_its_late_delivery_does_nothing,
    a_pull_whose_opening_was_not_told_is_planned,
    a_close_that_was_not_told_gives_the_locks_back_once,
    a_reopening_that_was_not_told_is_planned_once,
    another_base_branch_that_was_not_told_is_planned_once,
    a_draft_is_left_alone_until_it_is_ready_for_review,
    deliveries_that_come_late_and_in_the_wrong_order_plan_nothing_again,
    what_was_told_is_not_found_again,
    a_push_after_something_was_found_is_planned_at_once,
    the_backlog_of_a_repository_that_was_not_known_is_not_planned,
    a_comment_on_an_old_pull_is_no_reason_to_plan_all_of_it,
    a_list_that_has_not_changed_costs_one_request_that_is_not_counted,
    a_crash_after_the_list_was_read_loses_nothing,
    little_budget_leaves_the_rest_for_later,
    a_limit_or_an_outage_is_waited_out,
    of_many_repositories_each_has_its_turn,
    a_repository_that_is_not_served_any_more_is_not_asked_about,
    a_fork_is_refused_as_if_it_had_been_told,
    where_planning_by_itself_is_switched_off_a_missed_push_is_only_noted,
    an_app_finds_what_was_missed_through_its_installation,
);

const LOCK: &str = "acme/infra/network/default by #1";
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 0 destroy 0\n");
const WIDEST: (&str, &str) = ("network/main.tf", "# fake: add 3 change 0 destroy 0\n");
const DOCS: (&str, &str) = ("README.md", "Read me.\n");
const NOTHING: TickResult = TickResult {
    looked_at: 1,
    repaired: 0,
};

impl Bot {
    /// Holds all webhooks from now on.
    async fn silence(&self) {
        self.github.set_delivering(Delivering::Held).await;
    }

    /// Loses the held webhooks. They may still be delivered later.
    async fn lose(&self) -> Vec<EmulatedDelivery> {
        let lost = std::iter::from_fn(|| self.github.lose_next()).collect();
        self.github.set_delivering(Delivering::Immediately).await;
        lost
    }

    /// Reads the lists five minutes later, and does everything that follows from it.
    async fn look(&self) -> TickResult {
        self.db.clock.advance(Duration::from_mins(5));
        let found = self.replica.tick("missed_events").await.unwrap();
        self.settle().await;
        found
    }

    /// Delivers a lost webhook after all.
    async fn late(&self, delivery: &EmulatedDelivery) {
        self.github.redeliver(delivery.id).await.unwrap();
        self.settle().await;
    }

    /// Pushes without a webhook.
    async fn push_unheard(&self, branch: &str, files: &[(&str, &str)]) -> Vec<EmulatedDelivery> {
        self.silence().await;
        self.push(branch, files).await;
        self.lose().await
    }

    /// Returns path and status of all requests for lists of open pull requests.
    fn lists(&self) -> Vec<(String, u16)> {
        let lists = self
            .github
            .requests()
            .into_iter()
            .filter(|request| request.path.ends_with("/pulls"));
        lists
            .map(|request| (request.path, request.status))
            .collect()
    }

    fn plans(&self) -> usize {
        self.calls()
            .iter()
            .filter(|call| call.starts_with("plan "))
            .count()
    }

    /// Returns the note about the newest delivery.
    async fn note(&self) -> String {
        deliveries(&self.db.url)
            .await
            .remove(0)
            .note
            .unwrap_or_default()
    }
}

/// Opens a pull request that was planned, and reads the list for the first time.
async fn planned(backend: Backend) -> (Bot, PullNumber) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.answer(pull);
    assert_eq!(bot.look().await, NOTHING);
    (bot, pull)
}

async fn a_push_that_was_not_told_is_planned_once_and_its_late_delivery_does_nothing(
    backend: Backend,
) {
    let (mut bot, pull) = planned(backend).await;
    let lost = bot.push_unheard("wider", &[WIDEST]).await;
    assert_eq!(
        bot.replica.tick("missed_events").await.unwrap(),
        TickResult::default(),
        "it was looked at a moment ago"
    );
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(
        bot.comment(pull)
            .contains("**Plan: 3 to add, 0 to change, 0 to destroy.**")
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 3 to add, 0 to change, 0 to destroy.
    ");
    assert_eq!(bot.look().await, NOTHING);
    for delivery in &lost {
        bot.late(delivery).await;
    }
    assert_snapshot!(bot.note().await, @"the delivery is late: its change was found before it arrived");
    assert_eq!(bot.plans(), 2);
    let newest = bot.store().command_list(1).await.unwrap().remove(0);
    assert_eq!(
        newest.actor,
        Actor::of_pull("alice"),
        "it is the author's, whoever pushed"
    );
    bot.end(&[LOCK]).await;
}

async fn a_pull_whose_opening_was_not_told_is_planned(backend: Backend) {
    let (mut bot, _) = planned(backend).await;
    bot.silence().await;
    bot.push("other", &[("app/main.tf", "# wider\n")]).await;
    let second = bot
        .github
        .open_pull(REPO, NewPull::from_branch("other"))
        .await
        .unwrap();
    let lost = bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(
        bot.comment(second)
            .starts_with("Ran Plan for dir: `app` workspace: `default`: planned\n")
    );
    for delivery in &lost {
        bot.late(delivery).await;
    }
    assert_eq!(bot.plans(), 2);
    bot.end(&["acme/infra/app/default by #2", LOCK]).await;
}

async fn a_close_that_was_not_told_gives_the_locks_back_once(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.silence().await;
    bot.github.merge(REPO, pull, "alice").await.unwrap();
    let lost = bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert_snapshot!(bot.comment(pull), @"
    This pull request was merged: its lock is free, and plans that were not applied are discarded.

    * dir: `network` workspace: `default`
    ");
    assert_eq!(bot.look().await, NOTHING);
    for delivery in &lost {
        bot.late(delivery).await;
    }
    bot.end(&[]).await;
}

async fn a_reopening_that_was_not_told_is_planned_once(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.close(pull).await;
    bot.answer(pull);
    bot.silence().await;
    bot.github.reopen(REPO, pull, "alice").await.unwrap();
    let lost = bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(bot.comment(pull).contains(": planned\n"));
    bot.late(&lost[0]).await;
    assert_eq!(bot.plans(), 2);
    bot.end(&[LOCK]).await;
}

async fn another_base_branch_that_was_not_told_is_planned_once(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.push("release", &[DOCS]).await;
    bot.silence().await;
    bot.github
        .change_base(REPO, pull, "alice", "release")
        .await
        .unwrap();
    let lost = bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(bot.comment(pull).contains(": planned\n"));
    bot.late(&lost[0]).await;
    assert_eq!(bot.plans(), 2);
    bot.end(&[LOCK]).await;
}

async fn a_draft_is_left_alone_until_it_is_ready_for_review(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    bot.push("wider", &[WIDER]).await;
    let pull = bot.open(NewPull::from_branch("wider").draft()).await;
    assert_eq!(bot.look().await, NOTHING);
    bot.push_unheard("wider", &[WIDEST]).await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 0
        },
        "a draft is not planned"
    );
    assert_eq!(bot.look().await, NOTHING);
    bot.silence().await;
    bot.github
        .ready_for_review(REPO, pull, "alice")
        .await
        .unwrap();
    let lost = bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(bot.comment(pull).contains("**Plan: 3 to add"));
    bot.late(&lost[0]).await;
    bot.silence().await;
    bot.github
        .convert_to_draft(REPO, pull, "alice")
        .await
        .unwrap();
    bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 0
        }
    );
    bot.github
        .ready_for_review(REPO, pull, "alice")
        .await
        .unwrap();
    bot.settle().await;
    assert!(
        bot.comment(pull).contains("**Plan: 3 to add"),
        "that it is ready again was told in time"
    );
    assert_eq!(bot.plans(), 2);
    bot.end(&[LOCK]).await;
}

async fn deliveries_that_come_late_and_in_the_wrong_order_plan_nothing_again(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    let mut lost = bot.push_unheard("wider", &[WIDEST]).await;
    lost.extend(bot.push_unheard("wider", &[WIDER]).await);
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(bot.comment(pull).contains("**Plan: 2 to add"));
    for delivery in lost.iter().rev() {
        bot.late(delivery).await;
    }
    assert_eq!(bot.look().await, NOTHING);
    bot.silence().await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.lose().await;
    bot.look().await;
    bot.answer(pull);
    for (n, delivery) in lost.iter().enumerate() {
        // With the same id they would be known as duplicates. A second webhook in GitHub sends the same event with
        // another id.
        let again = WebhookRequest::new(
            &format!("again-{n}"),
            "pull_request",
            &delivery.recorded.body,
        );
        assert_eq!(bot.post(&again).await.0, 200);
        bot.settle().await;
    }
    assert_snapshot!(bot.note().await, @"the delivery is late: the pull request is closed");
    assert_eq!(bot.plans(), 2);
    bot.end(&[]).await;
}

async fn what_was_told_is_not_found_again(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.update("wider", &[WIDEST]).await;
    bot.answer(pull);
    bot.silence().await;
    bot.push("wider", &[WIDER]).await;
    bot.github.set_delivering(Delivering::Immediately).await;
    bot.settle_short().await;
    assert_eq!(
        bot.look().await,
        NOTHING,
        "its plan still waits, but it was told"
    );
    bot.answer(pull);
    assert_eq!(bot.plans(), 3);
    bot.end(&[LOCK]).await;
}

async fn a_push_after_something_was_found_is_planned_at_once(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.push_unheard("wider", &[WIDEST]).await;
    bot.look().await;
    bot.answer(pull);
    bot.update("wider", &[WIDER]).await;
    assert!(bot.comment(pull).contains("**Plan: 2 to add"));
    bot.end(&[LOCK]).await;
}

async fn the_backlog_of_a_repository_that_was_not_known_is_not_planned(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    bot.silence().await;
    bot.push("wider", &[WIDER]).await;
    let old = bot
        .github
        .open_pull(REPO, NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult::default(),
        "nobody knows the repository"
    );
    let docs = bot.open_pull("docs", &[DOCS]).await;
    assert_eq!(bot.look().await, NOTHING);
    bot.push_unheard("wider", &[WIDEST]).await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(
        bot.comment(old).contains("**Plan: 3 to add"),
        "from then on nothing of it is missed"
    );
    assert!(bot.read_comments(docs).is_empty());
    bot.end(&[LOCK]).await;
}

async fn a_comment_on_an_old_pull_is_no_reason_to_plan_all_of_it(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    bot.silence().await;
    bot.push("wider", &[WIDER, ("app/main.tf", "# wider\n")])
        .await;
    let old = bot
        .github
        .open_pull(REPO, NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.lose().await;
    bot.say(old, "lockkeeper plan -d app").await;
    bot.answer(old);
    assert_eq!(bot.look().await, NOTHING);
    assert_eq!(bot.plans(), 1);
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn a_list_that_has_not_changed_costs_one_request_that_is_not_counted(backend: Backend) {
    let (bot, _) = planned(backend).await;
    let before = bot.github.requests().len();
    let left = bot.github.requests_left();
    for _ in 0..3 {
        assert_eq!(bot.look().await, NOTHING);
    }
    let list = |status| ("/repos/acme/infra/pulls".to_owned(), status);
    assert_eq!(bot.lists(), [list(200), list(304), list(304), list(304)]);
    assert_eq!(
        bot.github.requests().len(),
        before + 3,
        "nothing else was asked"
    );
    assert_eq!(bot.github.requests_left(), left);
    bot.end(&[LOCK]).await;
}

async fn a_crash_after_the_list_was_read_loses_nothing(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.push_unheard("wider", &[WIDEST]).await;
    bot.github
        .fault("GET /repos/*/*/pulls/1", 3, Fault::BadGateway);
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 0
        },
        "GitHub went away in the middle of it"
    );
    bot.crash_and_restart().await;
    bot.db.clock.advance(Duration::from_mins(10));
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(bot.comment(pull).contains("**Plan: 3 to add"));
    bot.end(&[LOCK]).await;
}

async fn little_budget_leaves_the_rest_for_later(backend: Backend) {
    let mut bot = with_repos(backend, 4).await;
    bot.look().await;
    lose_pushes(&bot, 4).await;
    bot.github.leave_requests(900);
    let before = bot.lists().len();
    assert_eq!(bot.look().await, NOTHING);
    assert_eq!(
        bot.lists().len(),
        before + 1,
        "the answer to the first said that little is left"
    );
    assert_eq!(bot.look().await, NOTHING);
    bot.db.clock.advance(Duration::from_hours(1));
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 8,
            repaired: 4
        }
    );
    let asked: Vec<String> = bot
        .lists()
        .into_iter()
        .skip(before)
        .map(|(path, _)| path)
        .collect();
    let asked: Vec<&str> = asked
        .iter()
        .map(|path| path.split('/').nth(3).unwrap())
        .collect();
    let longest_first = ["infra-2", "infra-3", "infra", "infra-1"];
    assert_eq!(
        asked,
        [["infra", "infra-1"].as_slice(), &longest_first].concat()
    );
    assert_eq!(bot.plans(), 8);
    read_all(&mut bot, 4);
    end_of_many(bot, 4).await;
}

async fn a_limit_or_an_outage_is_waited_out(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.push_unheard("wider", &[WIDEST]).await;
    bot.github.fault(
        "GET /repos/*/*/pulls",
        1,
        Fault::SecondaryLimit {
            status: 403,
            retry_after: 60,
        },
    );
    assert_eq!(bot.look().await, NOTHING);
    bot.github.fault("GET /repos/*/*/pulls", 1, Fault::NotFound);
    assert_eq!(bot.look().await, NOTHING);
    bot.github.fault("GET /repos/*/*/pulls", 1, Fault::NotFound);
    assert_eq!(bot.look().await, NOTHING);
    assert_eq!(
        bot.look().await,
        TickResult::default(),
        "what cannot be seen is asked about more rarely"
    );
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(bot.comment(pull).contains("**Plan: 3 to add"));
    bot.push_unheard("wider", &[WIDER]).await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        },
        "what is seen again is looked at as often as ever"
    );
    bot.answer(pull);
    bot.end(&[LOCK]).await;
}

async fn of_many_repositories_each_has_its_turn(backend: Backend) {
    let mut bot = with_repos(backend, 12).await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 12,
            repaired: 0
        }
    );
    lose_pushes(&bot, 12).await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 24,
            repaired: 12
        }
    );
    let asked: BTreeSet<String> = bot.lists().into_iter().map(|(path, _)| path).collect();
    assert_eq!((asked.len(), bot.lists().len()), (12, 24));
    read_all(&mut bot, 12);
    end_of_many(bot, 12).await;
}

async fn a_repository_that_is_not_served_any_more_is_not_asked_about(backend: Backend) {
    let (mut bot, _) = planned(backend).await;
    bot.push_unheard("wider", &[WIDEST]).await;
    bot.restart_with(&[("repo-allowlist", &["github.test/acme/other"])])
        .await;
    let before = bot.lists().len();
    assert_eq!(bot.look().await, TickResult::default());
    assert_eq!(bot.lists().len(), before);
    bot.end(&[LOCK]).await;
}

async fn a_fork_is_refused_as_if_it_had_been_told(backend: Backend) {
    let (mut bot, _) = planned(backend).await;
    let fork = bot.github.fork(REPO, "mallory").await.unwrap();
    let change = lockkeeper::emulator::Change::write("network/main.tf", "# wider\n");
    bot.github.push(&fork, "evil", &[change]).await.unwrap();
    bot.settle().await;
    bot.silence().await;
    let pull = NewPull::from_branch("evil").from_fork(&fork).by("mallory");
    let pull = bot.github.open_pull(REPO, pull).await.unwrap();
    let lost = bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(bot.comment(pull).contains("fork"));
    assert_eq!(bot.look().await, NOTHING);
    bot.late(&lost[0]).await;
    assert_eq!(bot.plans(), 1);
    bot.end(&[LOCK]).await;
}

async fn where_planning_by_itself_is_switched_off_a_missed_push_is_only_noted(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("disable-autoplan", "true")]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.push_unheard("wider", &[WIDEST]).await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 0
        }
    );
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.comment(pull).contains("**Plan: 3 to add"));
    bot.silence().await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        },
        "a close counts all the same"
    );
    bot.answer(pull);
    bot.end(&[]).await;
}

async fn an_app_finds_what_was_missed_through_its_installation(backend: Backend) {
    let mut bot = Bot::as_app(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.answer(pull);
    bot.look().await;
    let watched = bot.store().watched_list_due(10).await.unwrap();
    assert!(watched.is_empty(), "it was looked at");
    bot.push_unheard("wider", &[WIDEST]).await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    assert!(bot.comment(pull).contains("**Plan: 3 to add"));
    let looked_up = bot
        .github
        .requests()
        .iter()
        .filter(|request| request.path.ends_with("/installation"))
        .count();
    assert_eq!(looked_up, 1, "git needs an answer of the forge, once");
    bot.github.leave_requests(900);
    bot.look().await;
    bot.end(&[LOCK]).await;
}

/// SQLite has only one server.
#[test]
fn two_servers_find_it_once() {
    tell(two_servers());
}

async fn two_servers() {
    let (mut bot, pull) = planned(Backend::Postgres).await;
    let other = bot.replica_beside().await;
    bot.push_unheard("wider", &[WIDEST]).await;
    bot.db.clock.advance(Duration::from_mins(5));
    let (one, two) = tokio::join!(
        bot.replica.tick("missed_events"),
        other.tick("missed_events")
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(
        (one.looked_at + two.looked_at, one.repaired + two.repaired),
        (2, 1)
    );
    bot.settle().await;
    bot.answer(pull);
    assert_eq!(bot.plans(), 2);
    bot.end(&[LOCK]).await;
}

/// Runs on one database only, because a hundred pull requests take some time. Another test covers pages on both
/// databases.
#[test]
fn more_pulls_than_fit_on_a_page_are_all_looked_at() {
    tell(more_pulls_than_fit_on_a_page());
}

async fn more_pulls_than_fit_on_a_page() {
    let mut bot = Bot::with(Backend::Sqlite, &[NETWORK], &[("disable-autoplan", "true")]).await;
    let first = bot.open_pull("wider", &[WIDER]).await;
    bot.say(first, "lockkeeper plan").await;
    bot.answer(first);
    bot.silence().await;
    for n in 0..105 {
        bot.push(&format!("docs-{n}"), &[("README.md", &format!("{n}\n"))])
            .await;
        bot.github
            .open_pull(REPO, NewPull::from_branch(&format!("docs-{n}")))
            .await
            .unwrap();
    }
    bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 106,
            repaired: 0
        }
    );
    assert_eq!(bot.look().await, NOTHING);
    let statuses: Vec<u16> = bot.lists().into_iter().map(|(_, status)| status).collect();
    assert_eq!(statuses, [200, 200, 304, 304]);
    bot.silence().await;
    bot.github.close(REPO, first, "alice").await.unwrap();
    bot.lose().await;
    assert_eq!(
        bot.look().await,
        TickResult {
            looked_at: 2,
            repaired: 1
        }
    );
    bot.answer(first);
    bot.end(&[]).await;
}

fn repo_name(n: usize) -> String {
    if n == 0 {
        REPO.to_owned()
    } else {
        format!("acme/infra-{n}")
    }
}

/// Starts with this many repositories, each with a planned pull request.
async fn with_repos(backend: Backend, count: usize) -> Bot {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    for n in 0..count {
        let name = repo_name(n);
        if n > 0 {
            bot.github.create_repo(&name, &[NETWORK]).await.unwrap();
        }
        push_to(&bot, &name, WIDER).await;
        bot.github
            .open_pull(&name, NewPull::from_branch("wider"))
            .await
            .unwrap();
    }
    bot.settle().await;
    bot.answer(PullNumber(1));
    bot
}

async fn push_to(bot: &Bot, name: &str, (path, text): (&str, &str)) {
    let change = lockkeeper::emulator::Change::write(path, text);
    bot.github.push(name, "wider", &[change]).await.unwrap();
}

async fn lose_pushes(bot: &Bot, count: usize) {
    bot.silence().await;
    for n in 0..count {
        push_to(bot, &repo_name(n), WIDEST).await;
    }
    bot.lose().await;
}

fn read_all(bot: &mut Bot, count: usize) {
    assert!(bot.comment(PullNumber(1)).contains("**Plan: 3 to add"));
    for n in 0..count {
        let told = bot.github.comments(&repo_name(n), PullNumber(1)).unwrap();
        assert_eq!(told.len(), 2, "{}: {told:#?}", repo_name(n));
    }
}

async fn end_of_many(bot: Bot, count: usize) {
    let mut locks: Vec<String> = (0..count)
        .map(|n| format!("{}/network/default by #1", repo_name(n)))
        .collect();
    locks.sort_by_key(|lock| lock.split("/network").next().unwrap().to_owned());
    bot.end(&locks.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
}
