//! Stories about disk space: real checkouts are removed when space gets low, but never those that are needed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper::clock::Clock as _;
use lockkeeper::emulator::NewPull;
use lockkeeper::git::{DiskPart, DiskUse};
use lockkeeper::kit::reconcile::TickResult;
use lockkeeper::model::PullNumber;

use crate::stories::{APP, DB, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    without_a_quota_nothing_is_removed,
    what_was_not_used_for_longest_goes_first_and_is_made_anew_when_it_is_needed,
    a_checkout_with_a_local_state_stays,
    what_is_in_use_stays,
    downloaded_programs_go_first_and_never_from_under_a_run,
    what_a_closed_pull_left_behind_goes,
);

const LOCKS: [&str; 3] = [
    "acme/infra/app/default by #2",
    "acme/infra/db/default by #3",
    "acme/infra/network/default by #1",
];

impl Bot {
    async fn disk(&self) -> Vec<DiskUse> {
        let mut parts = self.replica.ctx.checkouts.disk_use().await.unwrap();
        parts.sort_by(|a, b| a.part.cmp(&b.part));
        parts
    }

    /// Returns the pull requests that have checkouts on the disk.
    async fn checked_out(&self) -> Vec<i64> {
        let number = |part: DiskUse| match part.part {
            DiskPart::Checkouts(pull) => Some(pull.subject.stored()),
            DiskPart::Mirror(_) => None,
        };
        self.disk().await.into_iter().filter_map(number).collect()
    }

    fn checkout(&self, pull: PullNumber) -> PathBuf {
        self.db.dir.path().join(format!(
            "data/checkouts/github.test/acme/infra/{pull}/default"
        ))
    }

    /// Reduces the quota to a little less than the used space.
    async fn tighten(&mut self) {
        let total: u64 = self.disk().await.iter().map(|part| part.bytes).sum();
        let quota = format!("{}KiB", (total - 1) / 1024);
        self.restart_with(&[("disk-quota", &[&quota])]).await;
    }
}

/// Opens three pull requests, planned an hour apart.
async fn three(backend: Backend) -> Bot {
    let mut bot = Bot::new(backend, &[NETWORK, APP, DB]).await;
    for dir in ["network", "app", "db"] {
        let pull = bot
            .open_pull(dir, &[(&format!("{dir}/main.tf"), "# wider\n")])
            .await;
        bot.answer(pull);
        bot.db.clock.advance(Duration::from_hours(1));
    }
    assert_eq!(bot.checked_out().await, [1, 2, 3]);
    bot
}

async fn without_a_quota_nothing_is_removed(backend: Backend) {
    let bot = three(backend).await;
    assert_eq!(
        bot.replica.tick("disk").await.unwrap(),
        TickResult {
            looked_at: 3,
            repaired: 0
        }
    );
    assert_eq!(bot.checked_out().await, [1, 2, 3]);
    bot.end(&LOCKS).await;
}

async fn what_was_not_used_for_longest_goes_first_and_is_made_anew_when_it_is_needed(
    backend: Backend,
) {
    let mut bot = three(backend).await;
    bot.say(PullNumber(1), "lockkeeper plan").await;
    bot.answer(PullNumber(1));
    bot.tighten().await;
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 1);
    assert_eq!(bot.checked_out().await, [1, 3], "the first was used again");
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 0);
    bot.say(PullNumber(2), "lockkeeper apply").await;
    assert!(bot.answer(PullNumber(2)).contains(": applied\n"));
    bot.restart_with(&[("disk-quota", &["1KiB"])]).await;
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 4);
    assert_eq!(bot.disk().await, [], "the mirror goes last");
    bot.say(PullNumber(1), "lockkeeper apply").await;
    assert!(bot.answer(PullNumber(1)).contains(": applied\n"));
    bot.end(&LOCKS).await;
}

async fn a_checkout_with_a_local_state_stays(backend: Backend) {
    let mut bot = three(backend).await;
    let state = bot
        .checkout(PullNumber(1))
        .join("network/terraform.tfstate");
    std::fs::write(&state, "{}").unwrap();
    bot.restart_with(&[("disk-quota", &["1KiB"])]).await;
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 2);
    assert_eq!(bot.checked_out().await, [1]);
    assert_eq!(bot.disk().await.len(), 2, "the mirror stays with it");
    bot.say(PullNumber(1), "lockkeeper plan").await;
    bot.answer(PullNumber(1));
    assert_eq!(std::fs::read_to_string(&state).unwrap(), "{}");
    bot.close(PullNumber(1)).await;
    bot.answer(PullNumber(1));
    assert_eq!(
        bot.checked_out().await,
        [0; 0],
        "the README says that it goes with its pull request"
    );
    bot.end(&LOCKS[..2]).await;
}

async fn what_is_in_use_stays(backend: Backend) {
    let flags = [("disk-quota", "1KiB")];
    let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
    let idle = bot.open_pull("idle", &[("app/main.tf", "# wider\n")]).await;
    bot.answer(idle);
    bot.push("wider", &[("network/main.tf", "# fake: wait plan\n")])
        .await;
    let busy = bot
        .github
        .open_pull(REPO, NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 1);
    assert_eq!(bot.checked_out().await, [busy.0]);
    bot.go();
    assert_eq!(command.await.unwrap(), lockkeeper::queue::Tick::Worked);
    bot.settle().await;
    assert!(bot.answer(busy).contains(": planned\n"));
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 2);
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #2",
    ])
    .await;
}

/// Installs a program as if the server had downloaded it.
fn downloaded(bot: &Bot, name: &str, script: &str) -> PathBuf {
    let bin = bot.db.dir.path().join("data/bin");
    std::fs::create_dir_all(bin.join(".downloaded")).unwrap();
    let mark = std::fs::File::create(bin.join(".downloaded").join(name)).unwrap();
    mark.set_modified(bot.db.clock.now().into()).unwrap();
    std::fs::write(bin.join(name), script).unwrap();
    std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o555)).unwrap();
    bin.join(name)
}

async fn downloaded_programs_go_first_and_never_from_under_a_run(backend: Backend) {
    let pinned = (
        "lockkeeper.yaml",
        "version: 3\nprojects:\n- dir: network\n  terraform_version: 1.11.4\n",
    );
    let mut bot = Bot::with(backend, &[NETWORK, pinned], &[("tf-download", "true")]).await;
    let run = format!(
        "#!/bin/sh\nexec '{}' \"$@\"\n",
        bot.tools.join("terraform").display()
    );
    let used = downloaded(&bot, "terraform1.11.4", &run);
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    assert!(bot.answer(pull).contains(": planned\n"));
    // The checkout is older than the last use of the program, but the program is removed first.
    bot.db.clock.advance(Duration::from_hours(1));
    let idle = downloaded(&bot, "terraform1.5.7", &"#".repeat(1 << 20));
    let git: u64 = bot.disk().await.iter().map(|part| part.bytes).sum();
    let quota = format!("{}KiB", git / 1024 + 512);
    bot.restart_with(&[("disk-quota", &[&quota])]).await;
    assert_eq!(
        bot.replica.tick("disk").await.unwrap().repaired,
        2,
        "both programs: the one of the plan, and the idle one"
    );
    assert_eq!(
        (used.exists(), idle.exists(), bot.checked_out().await),
        (false, false, vec![pull.0])
    );

    let used = downloaded(&bot, "terraform1.11.4", &run);
    bot.restart_with(&[("disk-quota", &["1KiB"])]).await;
    bot.push("wider", &[("network/main.tf", "# fake: wait plan\n")])
        .await;
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 0);
    assert!(used.exists(), "a run uses it");
    bot.go();
    assert_eq!(command.await.unwrap(), lockkeeper::queue::Tick::Worked);
    bot.settle().await;
    assert!(bot.answer(pull).contains(": planned\n"));
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 3);
    assert!(!used.exists());
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn what_a_closed_pull_left_behind_goes(backend: Backend) {
    let mut bot = three(backend).await;
    bot.close(PullNumber(1)).await;
    bot.answer(PullNumber(1));
    assert_eq!(bot.checked_out().await, [2, 3]);
    let left = bot.checkout(PullNumber(1));
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("terraform.tfstate"), "{}").unwrap();
    assert_eq!(
        bot.replica.tick("disk").await.unwrap(),
        TickResult {
            looked_at: 3,
            repaired: 1
        }
    );
    assert_eq!(bot.checked_out().await, [2, 3]);
    bot.end(&LOCKS[..2]).await;
}
