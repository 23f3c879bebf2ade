//! Stories about the repositories in the data directory from which git clients of accounts are served.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockkeeper::features::accounts::{AllUsers, NewAccount};
use lockkeeper::kit::reconcile::TickResult;
use lockkeeper::model::AccountId;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use tower::ServiceExt as _;

use crate::support::accounts::by_ops;
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};
use crate::support::program::{lockkeeper, lockkeeper_in};

story!(
    a_repository_that_differs_from_the_database_is_removed_and_made_again,
    a_repository_that_is_behind_stays,
    a_repository_for_nobody_is_removed,
    a_repository_in_use_stays_until_nobody_uses_it,
    the_command_names_repositories_that_differ,
);

/// A server with the account 1000000 of Olga.
struct Cached {
    bot: Bot,
    pages: Router,
    users: AllUsers,
    olga: AccountId,
    credentials: String,
}

impl Cached {
    async fn new(backend: Backend) -> Self {
        let bot = Bot::new(backend, &[]).await;
        let users = AllUsers::new(bot.store().clone(), "lockkeeper.test");
        let new = NewAccount {
            username: Some(ExternalIdKey::username("olga").unwrap()),
            email: Some("olga@example.com".parse().unwrap()),
            ..NewAccount::default()
        };
        let olga = users.create(&by_ops(), &new).await.unwrap();
        let made = lockkeeper(&["accounts", "password"], &bot.db.url, &["olga"], &[]);
        assert_eq!(made.code, 0, "{}", made.err);
        Self {
            pages: bot.pages_of(&bot.replica).await,
            credentials: format!("olga:{}", made.out.trim()),
            bot,
            users,
            olga,
        }
    }

    /// Lists the refs for the administrator, as `git ls-remote` does.
    async fn list(&self) -> String {
        let request = Request::get("/All-Users/info/refs?service=git-upload-pack");
        self.answer(request.body(Body::empty()).unwrap()).await
    }

    /// Lists the refs for Olga.
    async fn list_for_olga(&self) -> String {
        let request = Request::get("/All-Users/info/refs?service=git-upload-pack");
        let said = format!("Basic {}", BASE64_STANDARD.encode(&self.credentials));
        let request = request.header("authorization", said);
        self.answer(request.body(Body::empty()).unwrap()).await
    }

    async fn answer(&self, request: Request<Body>) -> String {
        let response = self.pages.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 24).await.unwrap();
        let text = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(status, StatusCode::OK, "{text}");
        text
    }

    fn data_dir(&self) -> PathBuf {
        self.bot.db.dir.path().join("data")
    }

    fn repo(&self, name: &str) -> PathBuf {
        self.data_dir().join("all-users").join(name)
    }

    /// Returns the id of the directory with the files of an account, and that of its newest commit.
    async fn tree_and_commit(&self, account: AccountId) -> (String, String) {
        let store = self.bot.store();
        let row = store.account_get(account).await.unwrap().unwrap();
        let commit = store.account_object(row.commit).await.unwrap();
        let text = String::from_utf8(commit.content).unwrap();
        let tree = text.lines().next().unwrap().strip_prefix("tree ");
        (tree.unwrap().to_owned(), commit.id.to_string())
    }

    /// Turns the reconciler. Returns the number of repositories, and of those that it removed.
    async fn turn(&self) -> (u64, u64) {
        let TickResult {
            looked_at,
            repaired,
        } = self.bot.replica.tick("accounts_cache").await.unwrap();
        (looked_at, repaired)
    }
}

/// Returns the file of an object.
fn file_of(repo: &Path, id: &str) -> PathBuf {
    repo.join("objects").join(&id[..2]).join(&id[2..])
}

/// Damage of a repository: its name, and how to do it.
type Damage<'a> = (&'a str, &'a dyn Fn(&Path));

/// Points the branch of Olga to another object.
fn point(repo: &Path, id: &str) {
    let packed = repo.join("packed-refs");
    let text = fs::read_to_string(&packed).unwrap();
    let lines = text.lines().map(|line| match line.split_once(' ') {
        Some((_, name)) if name == "refs/users/00/1000000" => format!("{id} {name}\n"),
        _ => format!("{line}\n"),
    });
    let changed: String = lines.collect();
    assert_ne!(changed, text);
    fs::write(&packed, changed).unwrap();
}

async fn a_repository_that_differs_from_the_database_is_removed_and_made_again(backend: Backend) {
    let cached = Cached::new(backend).await;
    let new = NewAccount::default();
    let kim = cached.users.create(&by_ops(), &new).await.unwrap();
    let (tree, _) = cached.tree_and_commit(cached.olga).await;
    let (_, of_kim) = cached.tree_and_commit(kim).await;
    let (all, own) = (cached.list().await, cached.list_for_olga().await);
    assert!(all.contains("refs/users/01/1000001"), "{all}");
    assert!(!own.contains("refs/users/01/1000001"), "{own}");
    assert_eq!(cached.turn().await, (2, 0));
    let damages: [Damage<'_>; 8] = [
        ("an object is lost", &|repo| {
            fs::remove_file(file_of(repo, &tree)).unwrap();
        }),
        ("an object is cut off", &|repo| {
            let file = file_of(repo, &tree);
            fs::remove_file(&file).unwrap();
            fs::write(&file, "").unwrap();
        }),
        ("a ref is at the commit of somebody else", &|repo| {
            point(repo, &of_kim);
        }),
        ("a ref is at no object of the database", &|repo| {
            point(repo, &"11".repeat(20));
        }),
        ("git prefers another file", &|repo| {
            let file = repo.join("refs/users/00/1000000");
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{of_kim}\n")).unwrap();
        }),
        ("git shows a branch that was never there", &|repo| {
            let file = repo.join("refs/users/99/1000099");
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{of_kim}\n")).unwrap();
        }),
        ("the refs are nonsense", &|repo| {
            fs::write(repo.join("packed-refs"), "nonsense\n").unwrap();
        }),
        ("the configuration is lost", &|repo| {
            fs::write(repo.join("config"), "").unwrap();
        }),
    ];
    for name in ["1000000.git", "all.git"] {
        let repo = cached.repo(name);
        for (what, damage) in &damages {
            damage(&repo);
            assert_eq!(cached.turn().await, (2, 1), "{name}: {what}");
            assert!(!repo.exists(), "{name}: {what}");
            assert_eq!(cached.turn().await, (1, 0), "{name}: {what}");
            assert_eq!(cached.list().await, all, "{name}: {what}");
            assert_eq!(cached.list_for_olga().await, own, "{name}: {what}");
            assert_eq!(cached.turn().await, (2, 0), "{name}: {what}");
        }
    }
    // The refs of somebody else.
    let packed = cached.repo("1000000.git").join("packed-refs");
    let mut text = fs::read_to_string(&packed).unwrap();
    text.extend([of_kim.as_str(), " refs/users/01/1000001\n"]);
    fs::write(&packed, text).unwrap();
    assert_eq!(cached.turn().await, (2, 1));
    cached.bot.end(&[]).await;
}

async fn a_repository_that_is_behind_stays(backend: Backend) {
    let cached = Cached::new(backend).await;
    let (users, by) = (&cached.users, by_ops());
    let lee = users.create(&by, &NewAccount::default()).await.unwrap();
    let key = "github:583231".parse().unwrap();
    users.link(&by, lee, &key, None).await.unwrap();
    cached.list().await;
    cached.list_for_olga().await;
    for is_active in [false, true] {
        users.set_active(&by, cached.olga, is_active).await.unwrap();
    }
    users.create(&by, &NewAccount::default()).await.unwrap();
    users.unlink(&by, lee, &[key]).await.unwrap();
    // A branch that is gone was there before.
    users.set_active(&by, lee, false).await.unwrap();
    users.delete(&by, lee).await.unwrap();
    assert_eq!(cached.turn().await, (2, 0));
    // A request that failed has added a commit whose directory is not there yet.
    cached.list().await;
    let (tree, commit) = cached.tree_and_commit(cached.olga).await;
    let all = cached.repo("all.git");
    let nothing = "0 0000000000000000000000000000000000000000";
    fs::write(all.join("lockkeeper-last"), nothing).unwrap();
    fs::remove_file(file_of(&all, &tree)).unwrap();
    assert_eq!(cached.turn().await, (2, 0));
    assert!(cached.list().await.contains(&commit));
    assert!(file_of(&all, &tree).exists());
    assert_eq!(cached.turn().await, (2, 0));
    cached.bot.end(&[]).await;
}

async fn a_repository_for_nobody_is_removed(backend: Backend) {
    let cached = Cached::new(backend).await;
    let (users, by, olga) = (&cached.users, by_ops(), cached.olga);
    let group = "Administrators";
    users.add_to_group(&by, olga, group, false).await.unwrap();
    let everything = cached.list_for_olga().await;
    assert!(
        everything.contains("refs/meta/external-ids"),
        "{everything}"
    );
    assert!(cached.repo("1000000-all.git").exists());
    assert_eq!(cached.turn().await, (2, 0));
    users.remove_from_group(&by, olga, group).await.unwrap();
    assert_eq!(cached.turn().await, (2, 1));
    assert!(!cached.repo("1000000-all.git").exists());
    cached.list_for_olga().await;
    assert!(cached.repo("1000000.git").exists());
    assert_eq!(cached.turn().await, (2, 0));
    users.set_active(&by, olga, false).await.unwrap();
    users.delete(&by, olga).await.unwrap();
    assert_eq!(cached.turn().await, (2, 1));
    assert!(!cached.repo("1000000.git").exists());
    cached.bot.end(&[]).await;
}

async fn a_repository_in_use_stays_until_nobody_uses_it(backend: Backend) {
    let cached = Cached::new(backend).await;
    cached.list_for_olga().await;
    let repo = cached.repo("1000000.git");
    fs::write(repo.join("config"), "").unwrap();
    let place = cached
        .bot
        .replica
        .ctx
        .server
        .accounts_served
        .of("1000000.git");
    let used = Arc::clone(&place.users).read_owned().await;
    assert_eq!(cached.turn().await, (1, 0));
    assert!(repo.exists());
    drop(used);
    assert_eq!(cached.turn().await, (1, 1));
    assert!(!repo.exists());
    cached.bot.end(&[]).await;
}

async fn the_command_names_repositories_that_differ(backend: Backend) {
    let cached = Cached::new(backend).await;
    cached.list().await;
    cached.list_for_olga().await;
    let (data_dir, url) = (cached.data_dir(), cached.bot.db.url.clone());
    let check = || lockkeeper_in(&data_dir, &["accounts", "check"], &url, &[], &[]);
    let checked = check();
    assert_eq!((checked.code, checked.out.as_str()), (0, ""));
    assert!(
        checked.err.contains("Compared 2 caches in "),
        "{}",
        checked.err
    );
    let (tree, _) = cached.tree_and_commit(cached.olga).await;
    fs::remove_file(file_of(&cached.repo("1000000.git"), &tree)).unwrap();
    let checked = check();
    assert_eq!(checked.code, 1, "{}", checked.err);
    assert_eq!(checked.out.lines().count(), 1, "{}", checked.out);
    assert!(
        checked
            .out
            .starts_with("all-users/1000000.git: error: the object ")
            && checked.out.contains(" is missing"),
        "{}",
        checked.out
    );
    // It changes nothing: it does not know who uses the directory.
    assert!(cached.repo("1000000.git").exists());
    assert_eq!(cached.turn().await, (2, 1));
    let checked = check();
    assert_eq!((checked.code, checked.out.as_str()), (0, ""));
    cached.bot.end(&[]).await;
}
