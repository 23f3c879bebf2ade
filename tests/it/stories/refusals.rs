//! Stories about repositories and pull requests that this server does not work for.

use insta::assert_snapshot;
use lockkeeper::emulator::{Change, NewPull, SendAttempt};
use lockkeeper::model::PullNumber;

use crate::support::bot::{Bot, LOGIN, REPO};
use crate::support::db::{Backend, story};

story!(
    a_repository_that_is_not_served_gets_one_answer_to_each_command,
    a_repository_that_is_not_served_is_left_in_silence_when_told_so,
    a_pull_request_from_a_fork_is_refused_unless_allowed,
    a_pull_request_from_a_fork_is_left_in_silence_when_told_so,
);

const OTHER: &str = "umbrella/labs";
const FIRST: PullNumber = PullNumber(1);

/// Opens a pull request in a repository that is not allowed.
async fn stranger(bot: &Bot) {
    bot.github
        .create_repo(OTHER, &[("lab/main.tf", "# a lab\n")])
        .await
        .unwrap();
    let changes = [Change::write("lab/main.tf", "# another lab\n")];
    bot.github.push(OTHER, "wider", &changes).await.unwrap();
    bot.github
        .open_pull(OTHER, NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.settle().await;
}

fn told(bot: &Bot) -> Vec<String> {
    let comments = bot.github.comments(OTHER, FIRST).unwrap().into_iter();
    comments
        .filter(|comment| comment.author == LOGIN)
        .map(|comment| comment.body)
        .collect()
}

async fn a_repository_that_is_not_served_gets_one_answer_to_each_command(backend: Backend) {
    let bot = Bot::new(backend, &[]).await;
    stranger(&bot).await;
    assert_eq!(told(&bot), [""; 0], "nobody asked");
    bot.github
        .comment(OTHER, FIRST, "alice", "lockkeeper plan")
        .await
        .unwrap();
    let refused = bot.github.deliveries().pop().unwrap();
    assert_eq!(refused.outcome(), Some(&SendAttempt::Answered(403)));
    let again = bot.github.redeliver(refused.id).await.unwrap();
    assert_eq!(again.outcome(), Some(&SendAttempt::Answered(403)));
    bot.settle().await;
    let comments = told(&bot);
    assert_eq!(comments.len(), 1);
    assert_snapshot!(comments[0], @r#"
    **Command refused**: this server does not serve `github.test/umbrella/labs`: no entry of its `--repo-allowlist` matches.

    * An administrator can add `github.test/umbrella/labs` to the list.

    <sub>0 s</sub>

    <!-- lockkeeper {"v":1,"command":"help","id":"00000000-0000-7000-8000-000000000007","pull":1,"head":null,"outcome":"refused","reason":"not_allowlisted","projects":[]} -->
    "#);
    bot.github
        .comment(OTHER, FIRST, "alice", "Just talking.")
        .await
        .unwrap();
    bot.settle().await;
    assert_eq!(told(&bot).len(), 1);
    assert_snapshot!(bot.deliveries().await.join("\n"), @"
    push ignored: the repository is not on the allow-list (--repo-allowlist)
    pull_request refused: 403: the repository is not on the allowlist (--repo-allowlist)
    issue_comment refused: 403: the repository is not on the allowlist (--repo-allowlist)
    issue_comment ignored: the comment is Lockkeeper's own
    issue_comment ignored: the comment does not start with a word for the bot
    ");
    assert_eq!(bot.calls(), [""; 0]);
    bot.end(&[]).await;
}

async fn a_repository_that_is_not_served_is_left_in_silence_when_told_so(backend: Backend) {
    let bot = Bot::with(backend, &[], &[("silence-allowlist-errors", "true")]).await;
    stranger(&bot).await;
    bot.github
        .comment(OTHER, FIRST, "alice", "lockkeeper plan")
        .await
        .unwrap();
    assert_eq!(
        bot.github.deliveries().pop().unwrap().outcome(),
        Some(&SendAttempt::Answered(403))
    );
    bot.settle().await;
    assert_eq!(told(&bot), [""; 0]);
    let last = bot.deliveries().await.pop().unwrap();
    assert_eq!(
        last,
        "issue_comment refused: 403: the repository is not on the allowlist (--repo-allowlist)"
    );
    bot.end(&[]).await;
}

/// Opens a pull request of `mallory` from her fork of the repository.
async fn from_fork(bot: &Bot) -> PullNumber {
    let fork = bot.github.fork(REPO, "mallory").await.unwrap();
    bot.github
        .push(
            &fork,
            "wider",
            &[Change::write("network/main.tf", "# wider\n")],
        )
        .await
        .unwrap();
    let pull = NewPull::from_branch("wider").from_fork(&fork).by("mallory");
    let pull = bot.github.open_pull(REPO, pull).await.unwrap();
    bot.settle().await;
    pull
}

const NETWORK: [(&str, &str); 1] = [("network/main.tf", "# narrow\n")];

async fn a_pull_request_from_a_fork_is_refused_unless_allowed(backend: Backend) {
    let mut bot = Bot::new(backend, &NETWORK).await;
    let pull = from_fork(&bot).await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: this pull request comes from the fork `github.test/mallory/infra`, and the server does not run code from forks.

    * Somebody with write access can push the branch to this repository and open a pull request from it.
    * Or an administrator can allow forks with `--allow-fork-prs`.

    <sub>Commit `fcff6ae6` · 0 s</sub>
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"command":"autoplan","id":"ID","pull":1,"head":"fcff6ae650c6b5a441700664f9af535e725eb85f","outcome":"refused","reason":"fork","projects":[]} -->"#);
    assert_eq!(bot.statuses(pull), "");
    assert!(
        bot.ask(pull, "lockkeeper apply")
            .await
            .contains("does not run code from forks")
    );
    assert_eq!(bot.calls(), [""; 0]);
    bot.restart_with(&[("allow-fork-prs", &["true"])]).await;
    let planned = bot.ask(pull, "lockkeeper plan").await;
    assert!(planned.starts_with("Ran Plan"), "{planned}");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_pull_request_from_a_fork_is_left_in_silence_when_told_so(backend: Backend) {
    let mut bot = Bot::with(backend, &NETWORK, &[("silence-fork-pr-errors", "true")]).await;
    let pull = from_fork(&bot).await;
    bot.say(pull, "lockkeeper plan").await;
    assert_eq!(bot.read_comments(pull), [""; 0]);
    assert_eq!(bot.calls(), [""; 0]);
    bot.end(&[]).await;
}
