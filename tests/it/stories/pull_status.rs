//! Stories about statuses and answers that describe the state of a pull request after every kind of change.

use insta::assert_snapshot;
use lockkeeper::emulator::NewPull;
use lockkeeper::queue::Tick;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    what_was_unlocked_is_not_green_any_more,
    many_projects_have_only_the_combined_statuses,
    a_status_of_a_project_never_becomes_untrue,
    an_unlock_after_an_apply_warns_that_it_would_be_undone,
    an_import_discards_a_plan_and_its_green_status,
    a_second_plan_says_no_more_of_applying_than_the_first,
    a_second_apply_does_not_make_less_of_the_first,
    an_apply_while_waiting_names_who_has_the_lock,
    a_push_during_an_apply_is_mentioned,
    lines_that_are_offered_work_whatever_the_directory_is_called,
    a_directory_goes_before_a_pattern,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");

async fn what_was_unlocked_is_not_green_any_more(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .open_pull(
            "both",
            &[WIDER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper unlock").await;
    bot.read_comments(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 2/2 plans were discarded: plan again.
    lockkeeper/plan: app/default: Failure, The plan was discarded: plan again.
    lockkeeper/plan: network/default: Failure, The plan was discarded: plan again.
    ");
    bot.say(pull, "lockkeeper plan -d app").await;
    bot.read_comments(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/2 plans were discarded: plan again.
    lockkeeper/plan: app/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    lockkeeper/plan: network/default: Failure, The plan was discarded: plan again.
    ");
    bot.say(pull, "lockkeeper plan").await;
    bot.read_comments(pull);
    assert!(
        bot.statuses(pull)
            .contains("lockkeeper/plan: Success, 2/2 projects planned successfully.")
    );
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn many_projects_have_only_the_combined_statuses(backend: Backend) {
    let mut bot = with_statuses_of_one(backend).await;
    let pull = bot
        .open_pull(
            "both",
            &[WIDER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    bot.read_comments(pull);
    assert_snapshot!(bot.statuses(pull), @"lockkeeper/plan: Success, 2/2 projects planned successfully.");
    bot.say(pull, "lockkeeper apply").await;
    bot.read_comments(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Success, 2/2 projects applied successfully.
    lockkeeper/plan: Success, 2/2 projects planned successfully.
    ");
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn a_status_of_a_project_never_becomes_untrue(backend: Backend) {
    let mut bot = with_statuses_of_one(backend).await;
    let pull = bot
        .open_pull("both", &[WIDER, ("app/main.tf", "# fake: fail plan\n")])
        .await;
    bot.read_comments(pull);
    // A command on one project sets its status.
    bot.say(pull, "lockkeeper plan -d network").await;
    bot.read_comments(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/2 projects failed to plan.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    // A command on both updates it, and adds no other.
    bot.say(pull, "lockkeeper plan").await;
    bot.read_comments(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/2 projects failed to plan.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    bot.say(pull, "lockkeeper unlock").await;
    bot.read_comments(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/2 projects failed to plan.
    lockkeeper/plan: network/default: Failure, The plan was discarded: plan again.
    ");
    bot.end(&[]).await;
}

async fn with_statuses_of_one(backend: Backend) -> Bot {
    Bot::with(backend, &[NETWORK, APP], &[("max-project-statuses", "1")]).await
}

async fn an_unlock_after_an_apply_warns_that_it_would_be_undone(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.say(pull, "lockkeeper apply").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper unlock").await;
    assert_snapshot!(bot.answer(pull), @"
    Ran Unlock for 1 project

    * dir: `network` workspace: `default`: lock released

    > [!WARNING]
    > Changes of this pull request were applied but are not in the base branch. The next plan of another pull request would undo them. Merge this one soon, or plan and apply the base branch.

    To **plan** again, comment:

    ```shell
    lockkeeper plan
    ```
    ");
    bot.end(&[]).await;
}

async fn an_import_discards_a_plan_and_its_green_status(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("allow-commands", "all")]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper import -d network terraform_data.it id-1")
        .await;
    bot.read_comments(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, The plan was discarded: plan again.
    lockkeeper/plan: network/default: Failure, The plan was discarded: plan again.
    ");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_second_plan_says_no_more_of_applying_than_the_first(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    let first = bot.statuses(pull);
    assert!(!first.contains("lockkeeper/apply"), "{first}");
    bot.say(pull, "lockkeeper plan").await;
    bot.read_comments(pull);
    assert_eq!(bot.statuses(pull), first);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_second_apply_does_not_make_less_of_the_first(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.say(pull, "lockkeeper apply").await;
    bot.read_comments(pull);
    let applied = bot.statuses(pull);
    assert!(
        applied.contains("lockkeeper/apply: Success, 1/1 projects applied successfully."),
        "{applied}"
    );
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.answer(pull).contains("This plan was already applied."));
    assert_eq!(bot.statuses(pull), applied);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn an_apply_while_waiting_names_who_has_the_lock(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot
        .open_pull(
            "second",
            &[("network/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    let third = bot
        .open_pull(
            "third",
            &[("network/main.tf", "# fake: add 3 change 0 destroy 0\n")],
        )
        .await;
    for pull in [first, second, third] {
        bot.read_comments(pull);
    }
    bot.say(second, "lockkeeper apply").await;
    assert_snapshot!(bot.answer(second), @"
    **Apply refused**: there is nothing to apply yet, because this pull request waits for a lock.

    * dir: `network` workspace: `default`: Waiting for #&#8203;1 (alice), next in the queue.
    * It is planned automatically as soon as the lock is free. Look at that plan, then apply it.

    <sub>Commit `c8e9c736` · 0 s</sub>
    ");
    bot.say(third, "lockkeeper apply -d network").await;
    assert!(
        bot.answer(third)
            .contains("(alice), number 2 in the queue.")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_push_during_an_apply_is_mentioned(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    bot.push("wider", &[("network/main.tf", "# fake: wait apply\n")])
        .await;
    let pull = bot
        .github
        .open_pull(REPO, NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.settle().await;
    bot.read_comments(pull);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    bot.push(
        "wider",
        &[("network/main.tf", "# fake: add 1 change 0 destroy 0\n")],
    )
    .await;
    bot.settle_short().await;
    bot.go();
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let told = bot.read_comments(pull);
    assert_snapshot!(told[0].lines().take(3).collect::<Vec<_>>().join("\n"), @"
    Ran Apply for dir: `network` workspace: `default`: applied

    Commits were pushed during this apply: commit `c40a4dbf` was applied, and the newest commit is `f2d2e294`.
    ");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn lines_that_are_offered_work_whatever_the_directory_is_called(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let dirs = [
        "quo'te",
        "f \"g",
        "br[0]",
        "-p",
        "a*b",
        "back`tick",
        "$HOME",
    ];
    let files: Vec<(String, &str)> = dirs
        .iter()
        .map(|dir| {
            (
                format!("{dir}/main.tf"),
                "# fake: add 1 change 0 destroy 0\n",
            )
        })
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    let pull = bot.open_pull("odd", &files).await;
    let told = bot.answer(pull);
    let offered: Vec<String> = told
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("lockkeeper apply -"))
        .map(str::to_owned)
        .collect();
    // The fake writes JSON with this name that cannot be parsed, so this plan is not offered for an apply.
    assert!(told.contains("lockkeeper plan -d 'f \"g'\n"), "{told}");
    assert_eq!(offered.len(), dirs.len() - 1);
    assert_snapshot!(offered.join("\n"), @r#"
    lockkeeper apply -d '$HOME'
    lockkeeper apply --dir=-p
    lockkeeper apply -d "a\\*b"
    lockkeeper apply -d 'back`tick'
    lockkeeper apply -d "br\\[0]"
    lockkeeper apply -d "quo'te"
    "#);
    for line in offered {
        bot.say(pull, &line).await;
        let said = bot.answer(pull);
        assert!(
            said.starts_with("Ran Apply for dir: ")
                && said.contains("workspace: `default`: applied\n"),
            "{line}: {said}"
        );
    }
    bot.say(pull, "lockkeeper plan -d 'f \"g'").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for dir: `f \"g` workspace: `default`: planned\n")
    );
    bot.say(pull, "lockkeeper unlock").await;
    bot.read_comments(pull);
    bot.end(&[]).await;
}

async fn a_directory_goes_before_a_pattern(backend: Backend) {
    let mut bot = Bot::new(
        backend,
        &[
            ("br[0]/main.tf", "# one\n"),
            ("br0/main.tf", "# two\n"),
            APP,
        ],
    )
    .await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    bot.say(pull, "lockkeeper plan -d 'br[0]'").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for dir: `br[0]` workspace: `default`: planned\n")
    );
    bot.say(pull, "lockkeeper apply -d 'br[0]'").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Apply for dir: `br[0]` workspace: `default`: applied\n")
    );
    bot.end(&["acme/infra/br[0]/default by #1"]).await;
}
