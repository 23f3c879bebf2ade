//! Stories about repositories that get another name or another owner, or whose name another one takes.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper::emulator::{Change, Delivering, NewPull};
use lockkeeper::model::{LockEventKind, PullNumber};
use lockkeeper::queue::Tick;

use crate::stories::NETWORK;
use crate::stories::repositories::round;
use crate::support::bot::{Bot, LOGIN, REPO};
use crate::support::db::{Backend, story};

story!(
    a_renamed_repository_keeps_its_lock_its_line_its_plan_and_its_mirror,
    a_rename_that_nobody_told_is_found_out_by_the_next_event,
    a_rename_that_nobody_told_is_found_out_when_the_forge_sends_us_on,
    a_delivery_of_the_old_name_that_comes_late_counts_under_the_new_one,
    a_rename_during_an_apply_waits_for_its_end,
    a_name_that_another_repository_has_taken_takes_nothing_with_it,
    a_name_that_another_repository_has_taken_releases_nothing_of_the_first,
    two_repositories_that_have_swapped_names_keep_their_locks,
    a_repository_that_was_transferred_to_where_nobody_is_served_keeps_its_lock,
    an_app_follows_a_rename_that_nobody_told,
    mirrors_on_the_disks_of_other_servers_follow_too,
    a_checkout_that_could_not_move_goes_with_its_pull_request,
);

const NEW: &str = "acme/network";
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const OTHER: (&str, &str) = ("network/app.tf", "# fake: add 0 change 3 destroy 0\n");
const HELD: &str = "acme/network/network/default by #1";

impl Bot {
    /// Comments as `alice` in some repository, and does everything that follows from it.
    async fn say_in(&self, repo: &str, pull: PullNumber, text: &str) {
        self.github
            .comment(repo, pull, "alice", text)
            .await
            .unwrap();
        self.settle().await;
    }

    /// Returns the first lines of the comments of the bot on a pull request of some repository.
    fn told_in(&self, repo: &str, pull: PullNumber) -> Vec<String> {
        let comments = self.github.comments(repo, pull).unwrap().into_iter();
        let own = comments.filter(|comment| comment.author.starts_with(LOGIN));
        own.map(|comment| comment.body.lines().next().unwrap_or_default().to_owned())
            .collect()
    }

    /// Renames the repository of the stories without a webhook.
    async fn rename_unheard(&self, from: &str, to: &str) {
        self.github.set_delivering(Delivering::Held).await;
        self.github.rename_repo(from, to, "alice").await.unwrap();
        while self.github.lose_next().is_some() {}
        self.github.set_delivering(Delivering::Immediately).await;
    }

    fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|done| *done == call).count()
    }

    fn mirror(&self, name: &str) -> PathBuf {
        self.db
            .dir
            .path()
            .join("data/mirrors/github.test/acme")
            .join(format!("{name}.git"))
    }
}

/// Opens a pull request that has the lock, and one that is queued for it.
async fn two(backend: Backend) -> (Bot, PullNumber, PullNumber) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot.open_pull("second", &[OTHER]).await;
    assert_eq!(
        (
            bot.read_comments(first).len(),
            bot.read_comments(second).len()
        ),
        (1, 1)
    );
    assert_eq!(bot.locks().await, ["acme/infra/network/default by #1"]);
    (bot, first, second)
}

async fn a_renamed_repository_keeps_its_lock_its_line_its_plan_and_its_mirror(backend: Backend) {
    let (bot, first, second) = two(backend).await;
    let mirror = std::fs::metadata(bot.mirror("infra")).unwrap().ino();
    bot.github.rename_repo(REPO, NEW, "alice").await.unwrap();
    bot.settle().await;
    assert_eq!(bot.locks().await, [HELD]);
    assert!(!bot.mirror("infra").exists());
    assert_eq!(
        std::fs::metadata(bot.mirror("network")).unwrap().ino(),
        mirror,
        "it was not cloned again"
    );
    let event = bot
        .store()
        .lock_event_list(1)
        .await
        .unwrap()
        .remove(0)
        .event;
    assert_eq!(event.kind, LockEventKind::RepositoryRenamed);
    assert_eq!(
        event.cause.reason,
        "github.test/acme/infra was renamed to github.test/acme/network: the forge reports the new name"
    );
    bot.say_in(NEW, first, "lockkeeper apply").await;
    assert_eq!(
        (bot.count("plan network"), bot.count("apply network")),
        (1, 1),
        "the plan of before was applied"
    );
    assert!(
        bot.told_in(NEW, first)[1].starts_with("Ran Apply for dir: `network`"),
        "{:?}",
        bot.told_in(NEW, first)
    );
    bot.github.merge(NEW, first, "alice").await.unwrap();
    bot.settle().await;
    assert!(
        bot.told_in(NEW, second)[1].starts_with("Ran Plan for dir: `network`"),
        "{:?}",
        bot.told_in(NEW, second)
    );
    round(&bot.replica).await;
    assert!(
        !bot.mirror("infra").exists(),
        "nothing comes to be under the old name"
    );
    bot.end(&["acme/network/network/default by #2"]).await;
}

async fn a_rename_that_nobody_told_is_found_out_by_the_next_event(backend: Backend) {
    let (bot, first, second) = two(backend).await;
    bot.rename_unheard(REPO, NEW).await;
    bot.say_in(NEW, second, "lockkeeper plan").await;
    assert_eq!(bot.locks().await, [HELD], "one directory has one lock");
    assert_eq!(bot.count("plan network"), 1, "the second pull still waits");
    assert!(
        bot.told_in(NEW, second)[1].ends_with(": waiting"),
        "{:?}",
        bot.told_in(NEW, second)
    );
    bot.say_in(NEW, first, "lockkeeper apply").await;
    assert_eq!(bot.count("apply network"), 1);
    bot.end(&[HELD]).await;
}

async fn a_rename_that_nobody_told_is_found_out_when_the_forge_sends_us_on(backend: Backend) {
    let (bot, first, _) = two(backend).await;
    bot.rename_unheard(REPO, NEW).await;
    bot.db.clock.advance(Duration::from_mins(5));
    bot.replica.tick("missed_events").await.unwrap();
    bot.settle().await;
    assert_eq!(bot.locks().await, [HELD]);
    bot.say_in(NEW, first, "lockkeeper apply").await;
    assert_eq!(bot.count("apply network"), 1);
    bot.end(&[HELD]).await;
}

async fn a_delivery_of_the_old_name_that_comes_late_counts_under_the_new_one(backend: Backend) {
    let (bot, first, _) = two(backend).await;
    bot.github.set_delivering(Delivering::Held).await;
    bot.github
        .comment(REPO, first, "alice", "lockkeeper apply")
        .await
        .unwrap();
    let late = bot.github.lose_next().unwrap();
    bot.github.set_delivering(Delivering::Immediately).await;
    bot.github.rename_repo(REPO, NEW, "alice").await.unwrap();
    bot.settle().await;
    bot.github.redeliver(late.id).await.unwrap();
    bot.settle().await;
    assert_eq!(
        (bot.locks().await, bot.count("apply network")),
        (vec![HELD.to_owned()], 1)
    );
    assert!(bot.told_in(NEW, first)[1].starts_with("Ran Apply for dir: `network`"));
    assert!(
        bot.store()
            .command_list(9)
            .await
            .unwrap()
            .iter()
            .all(|command| command.pull.repo.name() == "network")
    );
    bot.end(&[HELD]).await;
}

async fn a_rename_during_an_apply_waits_for_its_end(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot
        .open_pull("first", &[("network/main.tf", "# fake: wait apply\n")])
        .await;
    bot.read_comments(first);
    bot.github
        .comment(REPO, first, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let apply = bot.begin_command();
    bot.printed("waiting").await;
    bot.github.rename_repo(REPO, NEW, "alice").await.unwrap();
    bot.settle_short().await;
    bot.github
        .comment(NEW, first, "alice", "lockkeeper unlock")
        .await
        .unwrap();
    bot.settle_short().await;
    assert_eq!(
        bot.locks().await,
        ["acme/infra/network/default by #1"],
        "it stays as long as the apply runs"
    );
    bot.go();
    assert_eq!(apply.await.unwrap(), Tick::Worked);
    assert_eq!(bot.locks().await, ["acme/infra/network/default by #1"]);
    bot.settle().await;
    let told = bot.told_in(NEW, first);
    assert!(
        told[1].starts_with("Ran Apply for dir: `network` workspace: `default`: applied"),
        "{told:?}"
    );
    assert!(told[2].starts_with("Ran Unlock"), "{told:?}");
    bot.end(&[]).await;
}

/// The repository that has the old name now has other pull requests with the same numbers.
async fn a_name_that_another_repository_has_taken_takes_nothing_with_it(backend: Backend) {
    let (mut bot, first, _) = two(backend).await;
    bot.rename_unheard(REPO, NEW).await;
    bot.github.create_repo(REPO, &[NETWORK]).await.unwrap();
    let other = bot.open_pull("other", &[OTHER]).await;
    assert_eq!(other, first);
    assert!(
        bot.answer(other)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned")
    );
    assert_eq!(
        bot.locks().await,
        ["acme/infra/network/default by #1", HELD]
    );
    bot.say_in(NEW, first, "lockkeeper apply").await;
    assert_eq!(bot.count("apply network"), 1);
    assert!(bot.told_in(NEW, first)[1].starts_with("Ran Apply for dir: `network`"));
    assert!(bot.read_comments(other).is_empty());
    bot.end(&["acme/infra/network/default by #1", HELD]).await;
}

async fn a_name_that_another_repository_has_taken_releases_nothing_of_the_first(backend: Backend) {
    let (bot, _, _) = two(backend).await;
    bot.rename_unheard(REPO, NEW).await;
    bot.github.create_repo(REPO, &[NETWORK]).await.unwrap();
    for _ in 0..3 {
        // The new repository has no pull request with that number.
        bot.db.clock.advance(Duration::from_mins(5));
        bot.replica.tick("closed_pulls").await.unwrap();
        bot.settle().await;
    }
    assert_eq!(bot.locks().await, [HELD]);
    bot.end(&[HELD]).await;
}

async fn two_repositories_that_have_swapped_names_keep_their_locks(backend: Backend) {
    let (bot, first, _) = two(backend).await;
    bot.github
        .create_repo(NEW, &[("db/main.tf", "# nothing yet\n")])
        .await
        .unwrap();
    bot.github
        .push(NEW, "wider", &[Change::write("db/main.tf", "# wider\n")])
        .await
        .unwrap();
    bot.github
        .open_pull(NEW, NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.settle().await;
    assert_eq!(
        bot.locks().await,
        [
            "acme/infra/network/default by #1",
            "acme/network/db/default by #1"
        ]
    );
    for (from, to) in [
        (REPO, "acme/for-a-moment"),
        (NEW, REPO),
        ("acme/for-a-moment", NEW),
    ] {
        bot.rename_unheard(from, to).await;
    }
    bot.say_in(NEW, first, "lockkeeper apply").await;
    assert_eq!(bot.locks().await, ["acme/infra/db/default by #1", HELD]);
    assert_eq!((bot.count("apply network"), bot.count("apply db")), (1, 0));
    bot.say_in(REPO, PullNumber(1), "lockkeeper apply").await;
    assert_eq!((bot.count("apply network"), bot.count("apply db")), (1, 1));
    let mut bot = bot;
    bot.read_comments(PullNumber(1));
    bot.end(&["acme/infra/db/default by #1", HELD]).await;
}

async fn a_repository_that_was_transferred_to_where_nobody_is_served_keeps_its_lock(
    backend: Backend,
) {
    let (bot, first, _) = two(backend).await;
    bot.github
        .rename_repo(REPO, "elsewhere/infra", "alice")
        .await
        .unwrap();
    bot.settle().await;
    assert_eq!(bot.locks().await, ["elsewhere/infra/network/default by #1"]);
    bot.say_in("elsewhere/infra", first, "lockkeeper apply")
        .await;
    assert_eq!(bot.count("apply network"), 0);
    bot.end(&["elsewhere/infra/network/default by #1"]).await;
}

async fn an_app_follows_a_rename_that_nobody_told(backend: Backend) {
    let mut bot = Bot::as_app(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    bot.read_comments(first);
    bot.rename_unheard(REPO, NEW).await;
    bot.db.clock.advance(Duration::from_mins(5));
    bot.replica.tick("missed_events").await.unwrap();
    bot.settle().await;
    assert_eq!(bot.locks().await, [HELD]);
    bot.say_in(NEW, first, "lockkeeper apply").await;
    assert_eq!(bot.count("apply network"), 1);
    bot.end(&[HELD]).await;
}

async fn mirrors_on_the_disks_of_other_servers_follow_too(backend: Backend) {
    let (mut bot, _, _) = two(backend).await;
    // Servers can share PostgreSQL only.
    if backend == Backend::Postgres {
        let beside = bot.replica_beside().await;
        round(&beside).await;
        let mirror = |name: &str| {
            bot.db
                .dir
                .path()
                .join(format!("data-2/mirrors/github.test/acme/{name}.git"))
        };
        let before = std::fs::metadata(mirror("infra")).unwrap().ino();
        bot.github.rename_repo(REPO, NEW, "alice").await.unwrap();
        bot.settle().await;
        round(&beside).await;
        assert!(!mirror("infra").exists());
        assert_eq!(std::fs::metadata(mirror("network")).unwrap().ino(), before);
        bot.end(&[HELD]).await;
    } else {
        bot.end(&["acme/infra/network/default by #1"]).await;
    }
}

/// Another directory has the new place of the checkout, as after a plan between the rename and the move.
async fn a_checkout_that_could_not_move_goes_with_its_pull_request(backend: Backend) {
    let (bot, first, second) = two(backend).await;
    bot.github.rename_repo(REPO, NEW, "alice").await.unwrap();
    bot.settle().await;
    let checkouts = bot.db.dir.path().join("data/checkouts/github.test/acme");
    let left = checkouts
        .join("infra")
        .join(first.to_string())
        .join("default");
    std::fs::create_dir_all(&left).unwrap();
    bot.replica.tick("repositories").await.unwrap();
    assert!(left.exists());
    bot.github.close(NEW, first, "alice").await.unwrap();
    bot.settle().await;
    assert!(!checkouts.join("network").join(first.to_string()).exists());
    assert!(left.exists());
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 1);
    assert!(!left.exists());
    assert!(checkouts.join("network").join(second.to_string()).exists());
    bot.end(&["acme/network/network/default by #2"]).await;
}
