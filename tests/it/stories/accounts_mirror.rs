//! Stories about the copy of the accounts on another server (`--accounts-mirror-to`), with real git on both sides.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use lockkeeper::app::Replica;
use lockkeeper::features::accounts::{AllUsers, NewAccount};
use lockkeeper::features::reconciler as find;
use lockkeeper::git::{GitError, GitSettings, RefName, Remote, RemoteMove, ServedRepo};
use lockkeeper::kit::reconcile::{TickResult, TurnResult};
use lockkeeper::model::AccountId;
use lockkeeper::store::Store;
use tempfile::TempDir;
use tower::ServiceExt as _;

use crate::support::accounts::by_ops;
use crate::support::accounts_fixture::git;
use crate::support::bot::Bot;
use crate::support::db::{Backend, TestDb, story, tell};
use crate::support::git_http::GitServer;
use crate::support::log::listen;
use crate::support::program::lockkeeper;
use crate::support::sshd::Sshd;

story!(
    the_copy_has_every_change_and_is_enough_for_another_server,
    a_copy_that_cannot_be_reached_is_reported_and_catches_up,
    changes_by_others_are_replaced_and_named,
    accounts_of_another_server_are_not_replaced,
    a_push_that_is_killed_anywhere_is_repeated,
    a_damaged_copy_on_the_disk_is_made_again,
);

mod of_several_servers_one_pushes_and_the_newest_state_stays {
    #[test]
    fn postgres() {
        super::tell(super::several_servers());
    }
}

const TOKEN: &str = "token-of-the-copy-0123456789";
const EVERY_HOUR: Duration = Duration::from_hours(1);

/// A repository on another server, for the copy.
struct Elsewhere {
    dir: TempDir,
    server: GitServer,
}

impl Elsewhere {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = GitServer::start(dir.path(), Some(&format!("kim:{TOKEN}"))).await;
        let elsewhere = Self { dir, server };
        elsewhere.write_token(TOKEN);
        elsewhere.init();
        elsewhere
    }

    fn init(&self) {
        let said = git(
            self.dir.path(),
            &["init", "--quiet", "--bare", "accounts.git"],
        );
        assert_eq!(said.code, 0, "{}", said.err);
        self.git(&["config", "http.receivepack", "true"]);
    }

    fn repo(&self) -> PathBuf {
        self.dir.path().join("accounts.git")
    }

    fn token(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    fn write_token(&self, token: &str) {
        std::fs::write(self.token(), format!("{token}\n")).unwrap();
    }

    fn git(&self, args: &[&str]) -> String {
        let said = git(&self.repo(), args);
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        said.out
    }

    /// Returns all refs, each with its object.
    fn refs(&self) -> Vec<(String, String)> {
        let list = self.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
        let lines = list.lines().map(|line| line.split_once(' ').unwrap());
        lines
            .map(|(name, id)| (name.to_owned(), id.to_owned()))
            .collect()
    }

    /// Makes a commit that no server of the story has.
    fn stranger(&self, message: &str) -> String {
        let tree = self.git(&["mktree"]);
        let person = ["-c", "user.name=x", "-c", "user.email=x@example.com"];
        let commit = ["commit-tree", "-m", message, tree.trim()];
        self.git(&[&person[..], &commit].concat()).trim().to_owned()
    }

    fn requests(&self) -> usize {
        self.server.log.lock().unwrap().authorization.len()
    }

    async fn bot(&self, backend: Backend) -> Bot {
        let url = format!("{}/accounts.git", self.server.url.replace("://", "://kim@"));
        let token = self.token().display().to_string();
        let flags = [
            ("accounts-mirror-to", url.as_str()),
            ("accounts-mirror-token-file", token.as_str()),
        ];
        Bot::with(backend, &[], &flags).await
    }
}

async fn refs_of(store: &Store) -> Vec<(String, String)> {
    let (refs, _) = store.account_refs().await.unwrap();
    refs.into_iter()
        .map(|(name, id)| (name, id.to_string()))
        .collect()
}

async fn tick(replica: &Replica) -> anyhow::Result<TickResult> {
    replica.tick("accounts_mirror").await
}

async fn create(bot: &Bot, name: &str) -> AccountId {
    let users = AllUsers::new(bot.store().clone(), "lockkeeper.test");
    let new = NewAccount {
        full_name: Some(name.to_owned()),
        ..NewAccount::default()
    };
    users.create(&by_ops(), &new).await.unwrap()
}

/// Deletes an account, which removes its branch.
async fn delete(bot: &Bot, account: AccountId) {
    let users = AllUsers::new(bot.store().clone(), "lockkeeper.test");
    users.set_active(&by_ops(), account, false).await.unwrap();
    users.delete(&by_ops(), account).await.unwrap();
}

fn pushed(looked_at: u64, repaired: u64) -> TickResult {
    TickResult {
        looked_at,
        repaired,
    }
}

async fn the_copy_has_every_change_and_is_enough_for_another_server(backend: Backend) {
    let elsewhere = Elsewhere::new().await;
    let main = elsewhere.stranger("Read me");
    elsewhere.git(&["update-ref", "refs/heads/main", &main]);
    let bot = elsewhere.bot(backend).await;
    assert_eq!(tick(&bot.replica).await.unwrap(), TickResult::default());

    let log = listen();
    let olga = create(&bot, "Olga Ops").await;
    let kim = create(&bot, "Kim").await;
    assert_eq!(tick(&bot.replica).await.unwrap(), pushed(5, 5));
    let said = log.end();
    assert!(!said.contains(TOKEN) && !said.contains("kim@"), "{said}");
    // Nothing has changed, so nobody is asked.
    let requests = elsewhere.requests();
    assert_eq!(tick(&bot.replica).await.unwrap(), TickResult::default());
    assert_eq!(elsewhere.requests(), requests);

    // Several updates become one push.
    delete(&bot, kim).await;
    let users = AllUsers::new(bot.store().clone(), "lockkeeper.test");
    users.set_active(&by_ops(), olga, false).await.unwrap();
    users.set_active(&by_ops(), olga, true).await.unwrap();
    let key = "github:583231".parse().unwrap();
    users.link(&by_ops(), olga, &key, None).await.unwrap();
    assert_eq!(tick(&bot.replica).await.unwrap(), pushed(4, 3));
    let mut expected = refs_of(bot.store()).await;
    expected.insert(0, ("refs/heads/main".to_owned(), main));
    assert_eq!(elsewhere.refs(), expected);
    let names: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "refs/heads/main",
            "refs/meta/config",
            "refs/meta/external-ids",
            "refs/sequences/accounts",
            "refs/users/00/1000000"
        ]
    );

    // The copy keeps every rule, and fills another server.
    let clone = elsewhere.dir.path().join("restored.git");
    let source = elsewhere.repo().display().to_string();
    let cloned = ["clone", "--quiet", "--mirror", &source, "restored.git"];
    assert_eq!(git(elsewhere.dir.path(), &cloned).code, 0);
    let clone = clone.to_str().unwrap();
    let checked = crate::accounts::accounts(&["check", "--git", clone]);
    assert_eq!((checked.code, checked.out.as_str()), (0, ""));
    // The other program knows the refs of accounts only.
    let other = ["-C", clone, "update-ref", "-d", "refs/heads/main"];
    assert_eq!(git(elsewhere.dir.path(), &other).code, 0);
    let independent = crate::accounts::independent(&["check", clone]);
    assert_eq!(independent.code, 0, "{}", independent.out);
    let fresh = TestDb::new(backend).await;
    let imported = lockkeeper(&["accounts", "import", "git"], &fresh.url, &[clone], &[]);
    assert_eq!(imported.code, 0, "{}{}", imported.out, imported.err);
    assert_eq!(refs_of(fresh.store()).await, refs_of(bot.store()).await);
    bot.end(&[]).await;
}

async fn a_copy_that_cannot_be_reached_is_reported_and_catches_up(backend: Backend) {
    let elsewhere = Elsewhere::new().await;
    let bot = elsewhere.bot(backend).await;
    let pages = bot.pages_of(&bot.replica).await;
    let away = elsewhere.dir.path().join("away.git");
    std::fs::rename(elsewhere.repo(), &away).unwrap();
    create(&bot, "Olga Ops").await;
    let url = format!("{}/accounts.git", elsewhere.server.url);
    let begin =
        format!("cannot push the accounts to {url} (--accounts-mirror-to) with the token in ");
    let failed = format!("{:#}", tick(&bot.replica).await.unwrap_err());
    assert!(
        failed.starts_with(&begin)
            && failed.contains("/token: cannot list the refs: ")
            && failed.contains("not found"),
        "{failed}"
    );
    std::fs::rename(&away, elsewhere.repo()).unwrap();

    elsewhere.write_token("another-token");
    let failed = format!("{:#}", tick(&bot.replica).await.unwrap_err());
    assert!(failed.starts_with(&begin), "{failed}");
    assert!(failed.contains("refused the credentials"), "{failed}");
    assert!(!failed.contains("another-token"), "{failed}");
    let page = Request::get("/operations").body(Body::empty()).unwrap();
    let page = pages.oneshot(page).await.unwrap().into_body();
    let page = to_bytes(page, 1 << 24).await.unwrap();
    let page = String::from_utf8_lossy(&page).replace("&#x2f;", "/");
    assert!(
        page.contains("The reconciler accounts_mirror has failed 2 times in a row: cannot push the accounts to http://"),
        "{page}"
    );
    std::fs::write(elsewhere.token(), "\n").unwrap();
    let failed = format!("{:#}", tick(&bot.replica).await.unwrap_err());
    assert!(failed.ends_with("is empty"), "{failed}");

    // A server that does not take one of the refs takes none, and its reason is named.
    elsewhere.write_token(TOKEN);
    let hook = elsewhere.repo().join("hooks/update");
    let only_users =
        "#!/bin/sh\ncase $1 in refs/users/*) ;; *) echo 'Users only.' >&2; exit 1 ;; esac\n";
    std::fs::write(&hook, only_users).unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let failed = format!("{:#}", tick(&bot.replica).await.unwrap_err());
    assert!(
        failed.contains("cannot push: refs/sequences/accounts [remote rejected] (hook declined): remote: Users only."),
        "{failed}"
    );
    assert_eq!(elsewhere.refs(), []);

    std::fs::remove_file(hook).unwrap();
    create(&bot, "Kim").await;
    assert_eq!(tick(&bot.replica).await.unwrap(), pushed(5, 5));
    assert_eq!(elsewhere.refs(), refs_of(bot.store()).await);
    bot.end(&[]).await;
}

async fn changes_by_others_are_replaced_and_named(backend: Backend) {
    let elsewhere = Elsewhere::new().await;
    let bot = elsewhere.bot(backend).await;
    create(&bot, "Olga Ops").await;
    create(&bot, "Kim").await;
    tick(&bot.replica).await.unwrap();
    let stranger = elsewhere.stranger("By hand");
    elsewhere.git(&["update-ref", "refs/users/00/1000000", &stranger]);
    elsewhere.git(&["update-ref", "-d", "refs/users/01/1000001"]);
    elsewhere.git(&["update-ref", "refs/users/07/1000007", &stranger]);
    // Without a change of accounts, the copy is compared every hour.
    assert_eq!(tick(&bot.replica).await.unwrap(), TickResult::default());
    bot.db.clock.advance(EVERY_HOUR);
    let log = listen();
    assert_eq!(tick(&bot.replica).await.unwrap(), pushed(5, 3));
    let log = log.end();
    let named = format!(
        "refs=\"refs/users/07/1000007 at {stranger}; refs/users/01/1000001, removed; refs/users/00/1000000 at {stranger}\""
    );
    assert!(
        log.contains("Somebody else has changed the copy") && log.contains(&named),
        "{log}"
    );
    assert_eq!(elsewhere.refs(), refs_of(bot.store()).await);

    // With a change of accounts, only a state that this server never had was made by others.
    elsewhere.git(&["update-ref", "refs/users/00/1000000", &stranger]);
    create(&bot, "Lee").await;
    let log = listen();
    assert_eq!(tick(&bot.replica).await.unwrap(), pushed(6, 3));
    let log = log.end();
    assert!(
        log.contains(&format!("refs=\"refs/users/00/1000000 at {stranger}\"")),
        "{log}"
    );
    assert_eq!(elsewhere.refs(), refs_of(bot.store()).await);
    bot.end(&[]).await;
}

async fn accounts_of_another_server_are_not_replaced(backend: Backend) {
    let elsewhere = Elsewhere::new().await;
    let stranger = elsewhere.stranger("Of another server");
    elsewhere.git(&["update-ref", "refs/users/00/1000000", &stranger]);
    let bot = elsewhere.bot(backend).await;
    let before = elsewhere.refs();
    let refused = async |when: &str| {
        let refused = tick(&bot.replica).await.unwrap_err().to_string();
        assert!(
            refused.contains(
                "it has accounts that this server has never had. Use an empty repository, or"
            ),
            "{when}: {refused}"
        );
        assert_eq!(elsewhere.refs(), before, "{when}");
    };
    refused("an empty server").await;
    create(&bot, "Olga Ops").await;
    refused("a server with accounts").await;
    elsewhere.git(&["update-ref", "-d", "refs/users/00/1000000"]);
    assert_eq!(tick(&bot.replica).await.unwrap(), pushed(4, 4));
    bot.end(&[]).await;
}

async fn a_push_that_is_killed_anywhere_is_repeated(backend: Backend) {
    let elsewhere = Elsewhere::new().await;
    let mut bot = elsewhere.bot(backend).await;
    create(&bot, "Olga Ops").await;
    let mut wakes = 0;
    let mut kills = 0;
    loop {
        let account = create(&bot, "Kim").await;
        if kills % 2 == 0 {
            delete(&bot, account).await;
        }
        let done = until_killed(&bot.replica, wakes).await;
        bot.crash_and_restart().await;
        tick(&bot.replica).await.unwrap();
        assert_eq!(
            elsewhere.refs(),
            refs_of(bot.store()).await,
            "{wakes} wake-ups"
        );
        if done {
            break;
        }
        kills += 1;
        wakes += 1;
    }
    // A busy machine wakes the push up less often, because more has arrived each time.
    assert!(kills > 2, "the push had {wakes} wake-ups only");
    let fsck = elsewhere.git(&["fsck", "--strict", "--no-progress", "--no-dangling"]);
    assert_eq!(fsck, "");
    bot.end(&[]).await;
}

/// Pushes, but stops after this many wake-ups. Returns true if everything was done before.
async fn until_killed(replica: &Replica, wakes: usize) -> bool {
    let mut work = pin!(tick(replica));
    let mut left = wakes;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        work.as_mut().poll(cx).map(|done| {
            done.unwrap();
            true
        })
    })
    .await
}

async fn a_damaged_copy_on_the_disk_is_made_again(backend: Backend) {
    let elsewhere = Elsewhere::new().await;
    let bot = elsewhere.bot(backend).await;
    create(&bot, "Olga Ops").await;
    tick(&bot.replica).await.unwrap();
    create(&bot, "Kim").await;
    // The push reads the objects after they are in the copy on the disk.
    std::fs::rename(elsewhere.repo(), elsewhere.dir.path().join("away.git")).unwrap();
    elsewhere.init();
    let objects = bot.db.dir.path().join("data/all-users/all.git/objects");
    for folder in std::fs::read_dir(objects).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let file = file.unwrap().path();
            std::fs::remove_file(&file).unwrap();
            std::fs::write(&file, "").unwrap();
        }
    }
    let log = listen();
    tick(&bot.replica).await.unwrap_err();
    let log = log.end();
    assert!(
        log.contains("that is pushed is damaged and is made again"),
        "{log}"
    );
    assert_eq!(tick(&bot.replica).await.unwrap(), pushed(5, 5));
    assert_eq!(elsewhere.refs(), refs_of(bot.store()).await);
    bot.end(&[]).await;
}

async fn turn(replica: &Arc<Replica>) -> TurnResult {
    replica
        .turn(find("accounts_mirror").unwrap())
        .await
        .unwrap()
}

async fn several_servers() {
    let elsewhere = Elsewhere::new().await;
    let mut bot = elsewhere.bot(Backend::Postgres).await;
    let other = bot.replica_beside().await;
    for server in [&bot.replica, &other] {
        server.tick_leases().await.unwrap();
    }
    create(&bot, "Olga Ops").await;
    assert_eq!(turn(&bot.replica).await, TurnResult::Ran(pushed(4, 4)));
    assert_eq!(turn(&other).await, TurnResult::Skipped);
    bot.db
        .clock
        .advance(find("accounts_mirror").unwrap().period);
    // The other one does not know what was pushed, so it compares.
    assert_eq!(turn(&other).await, TurnResult::Ran(pushed(4, 0)));

    // Even without the lease, as after a pause of a machine, no older state replaces a newer one.
    for _ in 0..5 {
        create(&bot, "Kim").await;
        let (one, two) = tokio::join!(tick(&bot.replica), async {
            create(&bot, "Lee").await;
            tick(&other).await
        });
        for error in [one, two].into_iter().filter_map(Result::err) {
            let error = format!("{error:#}");
            assert!(error.contains("cannot push: refs/"), "{error}");
        }
        tick(&bot.replica).await.unwrap();
        tick(&other).await.unwrap();
        assert_eq!(elsewhere.refs(), refs_of(bot.store()).await);
    }
    bot.end(&[]).await;
}

#[tokio::test]
async fn a_ref_is_moved_only_from_where_it_was_seen() {
    let elsewhere = Elsewhere::new().await;
    let work = elsewhere.dir.path().join("work");
    let settings = GitSettings {
        allow_file: true,
        ..GitSettings::new(&work, "/usr/local/bin:/usr/bin:/bin")
    };
    let repo = ServedRepo::open(&settings, work.join("all.git")).unwrap();
    let [old, seen, new] = ["old", "seen", "new"].map(|text| {
        let id = gix_hash::ObjectId::from_hex(blob(&work.join("all.git"), text).as_bytes());
        id.unwrap()
    });
    let url = format!("file://{}", elsewhere.repo().display());
    let remote = Remote {
        url: &url,
        credentials: None,
        deadline: Duration::from_mins(1),
    };
    let name = RefName::new("refs/sequences/accounts").unwrap();
    let push = async |from, to| {
        let other = RefName::new("refs/users/00/1000000").unwrap();
        let moves = [
            RemoteMove {
                name: name.clone(),
                from,
                to,
            },
            RemoteMove {
                name: other,
                from: None,
                to,
            },
        ];
        let moves = if from.is_none() && to == Some(seen) {
            &moves[..1]
        } else {
            &moves[..]
        };
        repo.push(&remote, moves).await
    };
    push(None, Some(seen)).await.unwrap();
    for (from, to) in [(None, Some(new)), (Some(old), Some(new)), (Some(old), None)] {
        let error = push(from, to).await.unwrap_err();
        let is_stale =
            |text: &str| text.contains("refs/sequences/accounts [rejected] (stale info)");
        assert!(
            matches!(&error, GitError::Other { message, .. } if is_stale(message)),
            "{error}"
        );
        // The ref beside it would be fine, but is not moved alone.
        assert_eq!(
            remote.refs(&settings).await.unwrap(),
            [(name.clone(), seen)].into()
        );
    }
    push(Some(seen), Some(new)).await.unwrap();
    assert_eq!(remote.refs(&settings).await.unwrap().len(), 2);
}

fn blob(repo: &Path, text: &str) -> String {
    std::fs::write(repo.join("text"), text).unwrap();
    let said = git(repo, &["hash-object", "-w", "text"]);
    assert_eq!(said.code, 0, "{}", said.err);
    said.out.trim().to_owned()
}

mod a_copy_is_pushed_by_ssh_with_a_key {
    #[test]
    fn sqlite() {
        super::tell(super::by_ssh());
    }
}

async fn by_ssh() {
    let elsewhere = Elsewhere::new().await;
    let repo = elsewhere.repo().display().to_string();
    let script = format!(
        "case $SSH_ORIGINAL_COMMAND in\n\
         \"git-upload-pack '/ops/accounts.git'\") exec git upload-pack {repo} ;;\n\
         \"git-receive-pack '/ops/accounts.git'\") exec git receive-pack {repo} ;;\n\
         *) echo 'ERROR: Repository not found.' >&2; exit 1 ;;\n\
         esac"
    );
    let sshd = Sshd::start(&elsewhere.dir.path().join("sshd"), &script).await;
    let url = format!(
        "ssh://{}@127.0.0.1:{}/ops/accounts.git",
        sshd.user, sshd.port
    );
    let file = |name: &str, text: String| {
        let file = elsewhere.dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let key = file("key", sshd.key("key"));
    let known_hosts = file("known_hosts", sshd.known_hosts("other_host"));
    let flags = [
        ("accounts-mirror-to", url.as_str()),
        ("accounts-mirror-ssh-key-file", key.as_str()),
        ("accounts-mirror-known-hosts-file", known_hosts.as_str()),
    ];
    let bot = Bot::with(Backend::Sqlite, &[], &flags).await;
    create(&bot, "Olga Ops").await;
    let failed = format!("{:#}", tick(&bot.replica).await.unwrap_err());
    assert!(failed.contains("Host key verification failed"), "{failed}");
    file("known_hosts", sshd.known_hosts("host"));
    assert_eq!(tick(&bot.replica).await.unwrap(), pushed(4, 4));
    assert_eq!(elsewhere.refs(), refs_of(bot.store()).await);
    // The key is on the disk only while git uses it.
    let scratch = std::fs::read_dir(bot.db.dir.path().join("data/tmp")).unwrap();
    assert_eq!(scratch.count(), 0);
    bot.end(&[]).await;
}
