//! Stories about a server for two hosts of GitHub, with a repository of the same owner and name on both.

use insta::assert_snapshot;
use lockkeeper::context::Ctx;
use lockkeeper::emulator::{Change, Emulator, NewPull};
use lockkeeper::model::PullNumber;

use crate::stories::NETWORK;
use crate::support::bot::{Bot, LOGIN, OTHER_LOGIN, REPO, WebhookRequest, comment_payload};
use crate::support::db::{Backend, story};

story!(
    pull_requests_of_the_same_name_on_two_hosts_have_their_own_locks,
    the_account_of_the_bot_on_one_host_is_somebody_else_on_another,
    a_delivery_of_another_host_is_refused,
    a_repository_of_a_host_that_is_not_configured_is_refused,
);

const HOST: &str = "github.test";
const OTHER: &str = "code.test";
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const NARROW: (&str, &str) = ("network/main.tf", "# fake: add 0 change 0 destroy 4\n");

/// Returns the comments of the bot on the second host.
fn comments(github: &Emulator, pull: PullNumber) -> Vec<String> {
    let all = github.comments(REPO, pull).unwrap();
    let own = all.iter().filter(|comment| comment.author == OTHER_LOGIN);
    own.map(|comment| comment.body.clone()).collect()
}

/// Returns the statuses of the head of a pull request: `lockkeeper/plan Success`.
fn statuses(github: &Emulator, pull: PullNumber) -> Vec<String> {
    let head = github.pull(REPO, pull).unwrap().head;
    let mut lines: Vec<String> = github
        .statuses(REPO, &head)
        .unwrap()
        .latest
        .iter()
        .map(|status| format!("{} {:?}", status.context, status.state))
        .collect();
    lines.sort();
    lines
}

async fn open_pull(github: &Emulator, (path, text): (&str, &str)) -> PullNumber {
    let change = [Change::write(path, text)];
    github.push(REPO, "change", &change).await.unwrap();
    github
        .open_pull(REPO, NewPull::from_branch("change"))
        .await
        .unwrap()
}

async fn locks(bot: &Bot) -> Vec<String> {
    let mut locks = bot.store().lock_list().await.unwrap();
    locks.sort_by(|a, b| a.key.cmp(&b.key));
    locks
        .iter()
        .map(|lock| format!("{} {}", lock.key.repo, lock.pull))
        .collect()
}

async fn pull_requests_of_the_same_name_on_two_hosts_have_their_own_locks(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    bot.configure("repo-allowlist", "github.test/acme/*,code.test/acme/*");
    let other = bot.serve_also(OTHER, &[NETWORK]).await;
    let pull = open_pull(&bot.github, WIDER).await;
    let same = open_pull(&other, NARROW).await;
    assert_eq!(pull, same);
    bot.settle_with(&other).await;
    let both = [
        format!("{OTHER}/acme/infra {OTHER}/acme/infra#1"),
        format!("{HOST}/acme/infra {HOST}/acme/infra#1"),
    ];
    assert_eq!(locks(&bot).await, both);
    let (here, there) = (bot.answer(pull), comments(&other, same));
    assert!(here.contains("2 to add, 1 to change"), "{here}");
    assert!(
        there.len() == 1 && there[0].contains("4 to destroy"),
        "{there:?}"
    );
    let planned = statuses(&bot.github, pull);
    assert!(
        planned.contains(&"lockkeeper/plan Success".to_owned()),
        "{planned:?}"
    );
    assert_eq!(statuses(&other, same), planned);

    other
        .comment(REPO, same, "alice", "lockkeeper unlock")
        .await
        .unwrap();
    bot.settle_with(&other).await;
    assert_eq!(locks(&bot).await, both[1..]);
    assert_eq!(comments(&other, same).len(), 2);
    assert_eq!(bot.read_comments(pull), [""; 0]);

    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_with(&other).await;
    assert!(bot.answer(pull).contains("Apply complete"));
    assert_eq!(comments(&other, same).len(), 2);
    assert!(statuses(&bot.github, pull).contains(&"lockkeeper/apply Success".to_owned()));
    assert!(!statuses(&other, same).contains(&"lockkeeper/apply Success".to_owned()));
    let calls = bot.calls();
    let count = |call: &str| calls.iter().filter(|other| other.starts_with(call)).count();
    assert_eq!((count("plan "), count("apply ")), (2, 1), "{calls:?}");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn the_account_of_the_bot_on_one_host_is_somebody_else_on_another(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    bot.configure("repo-allowlist", "github.test/acme/*,code.test/acme/*");
    bot.configure("disable-autoplan", "true");
    let other = bot.serve_also(OTHER, &[NETWORK]).await;
    let pull = open_pull(&other, NARROW).await;
    bot.settle_with(&other).await;
    for (author, text, is_answered) in [
        (LOGIN, "lockkeeper help".to_owned(), true),
        (OTHER_LOGIN, "lockkeeper help".to_owned(), false),
        ("alice", format!("@{LOGIN} help"), false),
        ("alice", format!("@{OTHER_LOGIN} help"), true),
    ] {
        let before = comments(&other, pull).len();
        other.comment(REPO, pull, author, &text).await.unwrap();
        bot.settle_with(&other).await;
        // The comment of the bot's own account is one of its comments, too.
        let own = usize::from(author == OTHER_LOGIN);
        let after = comments(&other, pull).len();
        assert_eq!(
            after - before - own,
            usize::from(is_answered),
            "{author}: {text}"
        );
    }
    bot.end(&[]).await;
}

async fn a_delivery_of_another_host_is_refused(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let other = bot.serve_also(OTHER, &[NETWORK]).await;
    let payload = comment_payload(PullNumber(1), 7, "alice", "lockkeeper plan");
    let request = WebhookRequest::new("strange", "issue_comment", &payload)
        .with("x-github-enterprise-host", "github.example")
        .into_request();
    let router = lockkeeper::http::webhook_router(Ctx::clone(&bot.replica.ctx));
    let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
    assert_eq!(answer.status(), 400);
    let body = axum::body::to_bytes(answer.into_body(), 1000)
        .await
        .unwrap();
    assert_snapshot!(String::from_utf8_lossy(&body), @"`github.example` is not a host of this server, which accepts webhooks of GitHub (github.test), GitHub (code.test)");
    bot.settle_with(&other).await;
    bot.end(&[]).await;
}

async fn a_repository_of_a_host_that_is_not_configured_is_refused(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let forges = |bot: &Bot| {
        let strange = "git.example/acme/infra".parse().unwrap();
        let refused = bot.replica.ctx.forges.of(&strange).err().unwrap();
        refused.to_string()
    };
    assert_snapshot!(forges(&bot), @"git.example is not a forge of this server, which is configured for github.test");
    let other = bot.serve_also(OTHER, &[NETWORK]).await;
    assert_snapshot!(forges(&bot), @"git.example is not a forge of this server, which is configured for code.test and github.test");
    bot.settle_with(&other).await;
    bot.end(&[]).await;
}
