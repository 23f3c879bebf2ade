//! Stories about repositories that have an owner: who may use them, and with which credentials.

use insta::assert_snapshot;
use lockkeeper::claims::CredentialStore;
use lockkeeper::credential::GitAccess;
use lockkeeper::model::{CredentialId, OwnerName, PullNumber, RepoId, RepoUrl, Rights, SyncState};
use lockkeeper::seal::key_line;
use lockkeeper::secret::Secret;
use lockkeeper::store::Acquired;

use crate::stories::repositories::{infra, infra_of, round};
use crate::support::bot::{APP_KEY, Bot, REPO, TEAM_LOGIN, TEAM_TOKEN};
use crate::support::db::{Backend, by, story};

story!(
    a_repository_that_nobody_has_claimed_is_refused_once_and_served_when_claimed,
    without_the_flag_nobody_has_to_claim_anything,
    locks_go_back_although_the_claim_was_given_up,
    a_repository_that_nobody_has_claimed_has_no_mirror,
    the_token_of_the_owner_is_used_for_git_and_the_api,
    the_app_installation_of_the_owner_is_used_for_git_and_the_api,
    a_token_that_was_replaced_is_not_used_any_more,
    the_token_of_the_owner_goes_along_with_a_renamed_repository,
);

const FILES: &[(&str, &str)] = &[("network/main.tf", "# nothing yet\n")];
const CHANGED: &[(&str, &str)] = &[("network/main.tf", "# wider\n")];
/// A token of no account. Every request with it is refused.
const UNKNOWN: &str = "ghp_nobody_knows_this_token";

fn url() -> RepoUrl {
    RepoUrl::of(&"github.test/acme/infra".parse::<RepoId>().unwrap()).unwrap()
}

async fn owner(bot: &Bot) -> OwnerName {
    let name = OwnerName::new("net").unwrap();
    drop(bot.store().owner_create(&name, by()).await.unwrap());
    name
}

async fn claim(bot: &Bot) {
    let owner = bot
        .store()
        .owner_get(&owner(bot).await)
        .await
        .unwrap()
        .unwrap();
    let acquired = bot
        .store()
        .claim_acquire(owner.id, &url(), by())
        .await
        .unwrap();
    assert!(matches!(acquired, Acquired::Claimed(_)));
}

fn credentials(bot: &Bot) -> &CredentialStore {
    &bot.replica.ctx.credentials
}

async fn add(bot: &Bot, access: &GitAccess) -> CredentialId {
    let owner = owner(bot).await;
    credentials(bot)
        .add(&owner, &url(), access, (Rights::Whole, by()))
        .await
        .unwrap()
        .id
}

fn token(text: &str) -> GitAccess {
    GitAccess::Token {
        user: None,
        token: Secret::new(text),
    }
}

/// Writes a key file that only its owner may read.
pub(super) fn key_file(dir: &tempfile::TempDir) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = dir.path().join("keys");
    std::fs::write(
        &path,
        key_line(&"a".parse().unwrap(), b"0123456789abcdef0123456789abcdef").expose(),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

fn authors(bot: &Bot, pull: PullNumber) -> Vec<String> {
    let comments = bot.github.comments(REPO, pull).unwrap().into_iter();
    comments
        .filter(|comment| comment.author != "alice")
        .map(|comment| comment.author)
        .collect()
}

async fn a_repository_that_nobody_has_claimed_is_refused_once_and_served_when_claimed(
    backend: Backend,
) {
    let mut bot = Bot::with(backend, FILES, &[("require-claims", "true")]).await;
    let pull = bot.open_pull("wider", CHANGED).await;
    assert_snapshot!(bot.answer(pull), @"
    **Command refused**: `github.test/acme/infra` has no owner on this server, and the server only serves claimed repositories (`--require-claims`).

    * The account of the whole server can claim it for a team by adding its first application or credential. `https://locks.example.com/claims` shows which team owns which repository.
    * Or an administrator can claim it: `lockkeeper credentials add --owner TEAM --url https://github.test/acme/infra`, or `lockkeeper apps add`.

    <sub>0 s</sub>
    ");
    bot.say(pull, "lockkeeper plan").await;
    assert_eq!(
        bot.read_comments(pull),
        [""; 0],
        "the pull was told already"
    );
    assert_eq!((bot.calls(), bot.locks().await), (vec![], vec![]));
    let refused = "nobody has claimed the repository (--require-claims)";
    let deliveries = bot.deliveries().await;
    let of = |event: &str| {
        deliveries
            .iter()
            .filter(|line| **line == format!("{event} refused: {refused}"))
            .count()
    };
    assert_eq!(
        (of("pull_request"), of("issue_comment")),
        (1, 1),
        "{deliveries:#?}"
    );
    claim(&bot).await;
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.answer(pull).contains("lockkeeper apply"),
        "it is served from now on"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn without_the_flag_nobody_has_to_claim_anything(backend: Backend) {
    let mut bot = Bot::new(backend, FILES).await;
    let pull = bot.open_pull("wider", CHANGED).await;
    assert!(bot.answer(pull).contains("lockkeeper apply"));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn locks_go_back_although_the_claim_was_given_up(backend: Backend) {
    let keys = tempfile::tempdir().unwrap();
    let flags = [
        ("require-claims", "true"),
        ("encryption-key-file", &key_file(&keys)),
    ];
    let mut bot = Bot::with(backend, FILES, &flags).await;
    let id = add(&bot, &token(TEAM_TOKEN)).await;
    let pull = bot.open_pull("wider", CHANGED).await;
    assert_eq!(bot.locks().await, ["acme/infra/network/default by #1"]);
    bot.store().credential_remove(id, by()).await.unwrap();
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.answer(pull), @"
    **Command refused**: `github.test/acme/infra` has no owner on this server, and the server only serves claimed repositories (`--require-claims`).

    * The account of the whole server can claim it for a team by adding its first application or credential. `https://locks.example.com/claims` shows which team owns which repository.
    * Or an administrator can claim it: `lockkeeper credentials add --owner TEAM --url https://github.test/acme/infra`, or `lockkeeper apps add`.

    <sub>0 s</sub>
    ");
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.settle().await;
    assert_eq!(bot.locks().await, [""; 0]);
    assert_eq!(
        bot.read_comments(pull).len(),
        1,
        "it is told what was given back"
    );
    bot.end(&[]).await;
}

async fn a_repository_that_nobody_has_claimed_has_no_mirror(backend: Backend) {
    let keys = tempfile::tempdir().unwrap();
    let flags = [
        ("require-claims", "true"),
        ("encryption-key-file", &key_file(&keys)),
    ];
    let mut bot = Bot::with(backend, FILES, &flags).await;
    round(&bot.replica).await;
    bot.push("side", &[("README.md", "The first.\n")]).await;
    let pull = bot.open_pull("wider", CHANGED).await;
    assert!(bot.answer(pull).starts_with("**Command refused**"));
    round(&bot.replica).await;
    let ignored = "push ignored: nobody has claimed the repository (--require-claims)";
    let deliveries = bot.deliveries().await;
    assert!(
        deliveries.iter().any(|line| line == ignored),
        "{deliveries:#?}"
    );
    assert!(
        !deliveries.iter().any(|line| line == "push handled"),
        "{deliveries:#?}"
    );
    let told = async |bot: &Bot| {
        bot.store()
            .repository_event_list(0, 99)
            .await
            .unwrap()
            .len()
    };
    assert_eq!((told(&bot).await, bot.fetches()), (0, 0));
    let mirror = async |bot: &Bot| {
        bot.store()
            .mirror_get(bot.replica.ctx.server.syncer.data_dir_id(), &infra())
            .await
            .unwrap()
    };
    assert_eq!(mirror(&bot).await, None);

    let id = add(&bot, &token(TEAM_TOKEN)).await;
    bot.push("side", &[("README.md", "The second.\n")]).await;
    round(&bot.replica).await;
    assert_eq!(
        infra_of(&bot.replica).await.state,
        SyncState::Synced,
        "it is served from now on"
    );

    // This sync was requested while the repository was claimed. The worker finds it after the claim is gone.
    bot.ask_for_sync().await;
    let before = (told(&bot).await, bot.fetches());
    assert!(before.0 > 0 && before.1 > 0, "{before:?}");
    bot.store().credential_remove(id, by()).await.unwrap();
    bot.push("side", &[("README.md", "The third.\n")]).await;
    round(&bot.replica).await;
    assert_eq!(mirror(&bot).await, None, "it is forgotten");
    assert_eq!((told(&bot).await, bot.fetches()), before);
    bot.end(&[]).await;
}

async fn the_token_of_the_owner_is_used_for_git_and_the_api(backend: Backend) {
    let keys = tempfile::tempdir().unwrap();
    // With its own token the server could not even fetch.
    let flags = [
        ("gh-token", UNKNOWN),
        ("encryption-key-file", &key_file(&keys)),
    ];
    let mut bot = Bot::with(backend, FILES, &flags).await;
    let id = add(&bot, &token(TEAM_TOKEN)).await;
    let pull = bot.open_pull("wider", CHANGED).await;
    bot.say(pull, "lockkeeper apply").await;
    assert_eq!(authors(&bot, pull), [TEAM_LOGIN, TEAM_LOGIN]);
    let statuses = bot.statuses(pull);
    assert!(statuses.contains("lockkeeper/apply: Success"), "{statuses}");
    assert!(
        bot.store()
            .credential_get(id)
            .await
            .unwrap()
            .unwrap()
            .used_at
            .is_some()
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn the_app_installation_of_the_owner_is_used_for_git_and_the_api(backend: Backend) {
    let keys = tempfile::tempdir().unwrap();
    let flags = [
        ("gh-token", UNKNOWN),
        ("encryption-key-file", &key_file(&keys)),
    ];
    let mut bot = Bot::beside_app(backend, FILES, &flags).await;
    add(
        &bot,
        &GitAccess::App {
            app_id: 7,
            installation: 70,
            key: Secret::new(APP_KEY),
        },
    )
    .await;
    let pull = bot.open_pull("wider", CHANGED).await;
    assert!(bot.answer(pull).contains("lockkeeper apply"));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_token_that_was_replaced_is_not_used_any_more(backend: Backend) {
    let keys = tempfile::tempdir().unwrap();
    let mut bot = Bot::with(backend, FILES, &[("encryption-key-file", &key_file(&keys))]).await;
    let pull = bot.open_pull("wider", CHANGED).await;
    assert_eq!(
        bot.read_comments(pull).len(),
        1,
        "so far as the server itself"
    );
    let id = add(&bot, &token(TEAM_TOKEN)).await;
    bot.say(pull, "lockkeeper plan").await;
    bot.store().credential_remove(id, by()).await.unwrap();
    bot.say(pull, "lockkeeper plan").await;
    assert_eq!(bot.read_comments(pull).len(), 1, "and again");
    assert_eq!(
        authors(&bot, pull)
            .iter()
            .filter(|author| *author == TEAM_LOGIN)
            .count(),
        1
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn the_token_of_the_owner_goes_along_with_a_renamed_repository(backend: Backend) {
    const NEW: &str = "acme/network";
    let keys = tempfile::tempdir().unwrap();
    let flags = [
        ("require-claims", "true"),
        ("encryption-key-file", &key_file(&keys)),
    ];
    let mut bot = Bot::with(backend, FILES, &flags).await;
    add(&bot, &token(TEAM_TOKEN)).await;
    let pull = bot.open_pull("wider", CHANGED).await;
    bot.github.rename_repo(REPO, NEW, "alice").await.unwrap();
    bot.settle().await;
    bot.github
        .comment(NEW, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle().await;
    let comments = bot.github.comments(NEW, pull).unwrap().into_iter();
    let told: Vec<String> = comments
        .filter(|comment| comment.author == TEAM_LOGIN)
        .map(|comment| comment.body)
        .collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(
        told[1].starts_with("Ran Apply for dir: `network`"),
        "{}",
        told[1]
    );
    bot.end(&["acme/network/network/default by #1"]).await;
}
