//! Stories about settings of the server that affect pull requests: `--disable-apply-all`, labels, the form of
//! comments.

use lockkeeper::emulator::{Change, NewPull};

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    an_apply_has_to_name_its_project_where_the_server_wants_it,
    a_label_keeps_a_pull_from_being_planned_by_itself,
    a_label_keeps_locks_from_being_given_back,
    projects_without_changes_can_be_left_out_and_nothing_folded,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const OTHER: (&str, &str) = ("app/main.tf", "# fake: no changes\n");

async fn an_apply_has_to_name_its_project_where_the_server_wants_it(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[("disable-apply-all", "true")]).await;
    let pull = bot
        .open_pull(
            "both",
            &[WIDER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    let comment = bot.comment(pull);
    assert!(
        comment.contains("lockkeeper apply -d network") && !comment.contains("lockkeeper apply\n"),
        "{comment}"
    );
    bot.say(pull, "lockkeeper apply").await;
    let refused = bot.comment(pull);
    assert!(
        refused.contains("an apply must name its project (`--disable-apply-all`)"),
        "{refused}"
    );
    bot.say(pull, "lockkeeper apply -d network").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network`")
    );
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn open_labelled(bot: &mut Bot, branch: &str, label: &str) -> lockkeeper::model::PullNumber {
    bot.github
        .push(REPO, branch, &[Change::write(WIDER.0, WIDER.1)])
        .await
        .unwrap();
    bot.open(
        NewPull::from_branch(branch)
            .labelled("other")
            .labelled(label),
    )
    .await
}

async fn a_label_keeps_a_pull_from_being_planned_by_itself(backend: Backend) {
    let mut bot = Bot::with(
        backend,
        &[NETWORK],
        &[("disable-autoplan-label", "No Autoplan")],
    )
    .await;
    let pull = open_labelled(&mut bot, "quiet", "no autoplan").await;
    assert_eq!(bot.comments(pull), [""; 0]);
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.comment(pull).starts_with("Ran Plan for dir: `network`"));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_label_keeps_locks_from_being_given_back(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("disable-unlock-label", "keep")]).await;
    let pull = open_labelled(&mut bot, "kept", "keep").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper unlock").await;
    let refused = bot.comment(pull);
    assert!(
        refused.contains("this pull request is labelled `keep` (`--disable-unlock-label`)"),
        "{refused}"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn projects_without_changes_can_be_left_out_and_nothing_folded(backend: Backend) {
    let flags = [
        ("hide-unchanged-plan-comments", "true"),
        ("disable-markdown-folding", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
    let pull = bot.open_pull("both", &[WIDER, OTHER]).await;
    let comment = bot.comment(pull);
    assert!(!comment.contains("<details>"), "{comment}");
    assert_eq!(comment.matches("dir: `app`").count(), 0, "{comment}");
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}
