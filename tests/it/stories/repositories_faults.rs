//! Stories about faults of mirrors: a forge that lists refs it does not have, a forge that accepts a request and
//! never answers, a git that is killed in the middle, and commands that come meanwhile.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use futures::future::join_all;
use lockkeeper::emulator::Fault;
use lockkeeper::model::{
    CommitSha, FailureKind, PullRef, RepoId, Subject, SyncState, Verification,
};
use lockkeeper::process::Cmd;
use lockkeeper::queue::Tick;
use lockkeeper::sync::SyncAttempt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use super::repositories::{GIT, infra, infra_of, on_disk, round};
use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};
use crate::support::rows::live_lease;

story!(
    what_is_listed_and_never_comes_backs_off_and_is_healed_by_a_fresh_clone,
    a_forge_that_answers_nothing_is_given_up_and_keeps_nobody_else_waiting,
    a_git_that_is_killed_leaves_nothing_in_the_way_of_the_next,
    commands_that_wait_for_a_sync_make_no_fetch_of_their_own,
    a_plan_fetches_again_if_the_mirror_was_replaced_after_its_fetch,
);

/// Route of every list of references, and of every fetch.
const TALK: &str = "POST /acme/infra.git/git-upload-pack";

impl Bot {
    async fn page_of_infra(&self) -> String {
        let pages = self.pages_of(&self.replica).await;
        let request =
            Request::get(format!("/repos/{}", infra())).header("host", "locks.example.com");
        let response = pages
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        String::from_utf8(
            to_bytes(response.into_body(), 1 << 24)
                .await
                .unwrap()
                .to_vec(),
        )
        .unwrap()
    }

    /// Starts an attempt that goes on until the forge hangs in it.
    async fn attempt_that_hangs(&self) -> JoinHandle<SyncAttempt> {
        let ctx = Arc::clone(&self.replica.ctx);
        let attempt = tokio::spawn(async move { ctx.server.syncer.attempt(&infra()).await });
        self.github.hanging(1).await;
        attempt
    }

    async fn lease_of_infra(&self) -> Option<String> {
        let key = format!(
            "repository_sync:{}:{}",
            self.replica.ctx.server.syncer.data_dir_id(),
            infra()
        );
        live_lease(self.store(), &key)
            .await
            .map(|lease| lease.purpose)
    }

    fn list_side_as(&self, id: &CommitSha) {
        self.github.fault(
            TALK,
            1,
            Fault::Lists {
                reference: "refs/heads/side".to_owned(),
                id: id.clone(),
            },
        );
    }
}

/// A cache in front of the forge returns the right list during a sync, and an old one whenever mirror and forge are
/// compared.
async fn what_is_listed_and_never_comes_backs_off_and_is_healed_by_a_fresh_clone(backend: Backend) {
    let bot = Bot::in_step(backend).await;
    let old = bot.github.branches(REPO).await.unwrap()["side"].clone();
    let new = bot.push("side", &[("README.md", "The second.\n")]).await;
    round(&bot.replica).await;
    let mirror = bot
        .db
        .dir
        .path()
        .join("data/mirrors/github.test/acme/infra.git");
    std::fs::write(mirror.join("of-the-old-one"), "").unwrap();
    bot.ask_for_sync().await;
    for count in 1..=2 {
        for id in [&new, &old, &new, &old] {
            bot.list_side_as(id);
        }
        round(&bot.replica).await;
        assert_eq!(
            bot.github.faults_left(),
            0,
            "brought in step and compared, and both once more"
        );
        let state = infra_of(&bot.replica).await;
        assert_eq!(
            (state.state, state.verification),
            (SyncState::Failed, Verification::Mismatch)
        );
        assert_eq!(
            (state.retry_count, state.verification_retry_count),
            (count, count)
        );
        let wait = state.retry_at.unwrap() - bot.db.now();
        assert!(
            wait >= chrono::TimeDelta::seconds(22) * i32::try_from(count).unwrap(),
            "{wait}"
        );
        let page = bot.page_of_infra().await;
        assert!(page.contains("1 at another commit, as refs"), "{page}");
        assert!(
            page.contains("differ from the refs that the forge advertises"),
            "{page}"
        );
        assert_eq!(
            bot.replica.ctx.server.syncer.attempt(&infra()).await,
            SyncAttempt::NotDue
        );
        bot.db.clock.advance(wait.to_std().unwrap());
    }
    round(&bot.replica).await;
    let state = infra_of(&bot.replica).await;
    assert_eq!(
        (state.state, state.verification, state.failure),
        (SyncState::Synced, Verification::Verified, None)
    );
    assert_eq!(
        (
            state.retry_count,
            state.verification_retry_count,
            state.verification_failure
        ),
        (0, 0, None)
    );
    assert!(
        on_disk(&bot, "data")
            .await
            .contains(&format!("refs/heads/side {new}"))
    );
    assert!(
        !mirror.join("of-the-old-one").exists(),
        "another clone is in its place"
    );
    let beside: Vec<_> = std::fs::read_dir(mirror.parent().unwrap())
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    assert_eq!(beside, [mirror], "and nothing is left beside it");
    bot.end(&[]).await;
}

async fn a_forge_that_answers_nothing_is_given_up_and_keeps_nobody_else_waiting(backend: Backend) {
    let mut bot = Bot::in_step(backend).await;
    bot.github
        .create_repo("acme/other", &[("README.md", "Another.\n")])
        .await
        .unwrap();
    let other: RepoId = "github.test/acme/other".parse().unwrap();
    bot.ask_for_sync().await;
    bot.github.fault(GIT, 1_000, Fault::Hang);
    let attempt = bot.attempt_that_hangs().await;
    assert_eq!(bot.lease_of_infra().await.as_deref(), Some("sync a mirror"));
    let ctx = &bot.replica.ctx;
    assert!(
        ctx.store
            .mirror_know(ctx.server.syncer.data_dir_id(), &other)
            .await
            .unwrap()
    );
    assert_eq!(
        ctx.server.syncer.attempt(&other).await,
        SyncAttempt::Synced,
        "while the other hangs"
    );
    assert_eq!(infra_of(&bot.replica).await.state, SyncState::Started);
    bot.github.clear_faults();
    assert_eq!(attempt.await.unwrap(), SyncAttempt::Synced);
    bot.restart_with(&[("fetch-timeout", &["1s"])]).await;
    bot.ask_for_sync().await;
    bot.github.fault(GIT, 1_000, Fault::Hang);
    assert_eq!(
        bot.replica.ctx.server.syncer.attempt(&infra()).await,
        SyncAttempt::Failed(FailureKind::TimedOut)
    );
    assert_eq!(bot.lease_of_infra().await, None, "it was given back");
    let page = bot.page_of_infra().await;
    assert!(page.contains("--fetch-timeout"), "{page}");
    bot.github.clear_faults();
    bot.db.clock.advance(Duration::from_secs(31));
    round(&bot.replica).await;
    assert_eq!(infra_of(&bot.replica).await.state, SyncState::Synced);
    bot.end(&[]).await;
}

/// Returns the processes that work on the mirror.
fn gits(bot: &Bot) -> Vec<Pid> {
    let mark = format!(
        "GIT_DIR={}",
        bot.db.dir.path().join("data/mirrors").display()
    );
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_ours = |id: &i32| {
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable.starts_with(mark.as_bytes()))
    };
    ids.filter(is_ours).map(Pid::from_raw).collect()
}

async fn a_git_that_is_killed_leaves_nothing_in_the_way_of_the_next(backend: Backend) {
    let bot = Bot::in_step(backend).await;
    let new = bot.push("side", &[("README.md", "The second.\n")]).await;
    bot.ask_for_sync().await;
    bot.list_side_as(&new);
    bot.github.fault(TALK, 1_000, Fault::Hang);
    let attempt = bot.attempt_that_hangs().await;
    let killed = gits(&bot);
    assert!(!killed.is_empty());
    for id in killed {
        // The end of the first process may end the others.
        kill(id, Signal::SIGKILL).ok();
    }
    // The kind of failure depends on the process that dies first: git, or its HTTP helper.
    let ended = attempt.await.unwrap();
    assert!(
        matches!(
            ended,
            SyncAttempt::Failed(FailureKind::Other | FailureKind::Unreachable)
        ),
        "{ended:?}"
    );
    assert_eq!(bot.lease_of_infra().await, None);
    // Leftovers of a git that is killed a moment later, while it updates the references.
    let mirror = bot
        .db
        .dir
        .path()
        .join("data/mirrors/github.test/acme/infra.git");
    let locks = [
        "refs/heads/side.lock",
        "refs/heads/main.lock",
        "packed-refs.lock",
    ]
    .map(|name| mirror.join(name));
    for lock in &locks {
        std::fs::write(lock, "").unwrap();
    }
    bot.github.clear_faults();
    bot.db.clock.advance(Duration::from_secs(31));
    assert_eq!(
        bot.replica.ctx.server.syncer.attempt(&infra()).await,
        SyncAttempt::Synced
    );
    assert!(
        on_disk(&bot, "data")
            .await
            .contains(&format!("refs/heads/side {new}"))
    );
    assert!(
        !locks[0].exists() && !locks[1].exists(),
        "what was in the way is gone"
    );
    bot.replica.ctx.server.syncer.idle().await;
    bot.end(&[]).await;
}

async fn commands_that_wait_for_a_sync_make_no_fetch_of_their_own(backend: Backend) {
    let mut bot = Bot::in_step(backend).await;
    let number = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(number);
    round(&bot.replica).await;
    bot.push("wider", &[("network/main.tf", "# wider still\n")])
        .await;
    let before = bot.fetches();
    round(&bot.replica).await;
    let of_a_sync = bot.fetches() - before;
    bot.push("wider", &[("network/main.tf", "# widest\n")])
        .await;
    let ctx = Arc::clone(&bot.replica.ctx);
    let pull = ctx
        .forges
        .of(&infra())
        .unwrap()
        .pull(&PullRef {
            repo: infra(),
            subject: Subject::pull(1),
        })
        .await
        .unwrap();
    let before = bot.fetches();
    bot.github.fault(GIT, 1, Fault::Hang);
    bot.replica.tick("repositories").await.unwrap();
    bot.github.hanging(1).await;
    let mut fetches: Vec<_> = (0..4)
        .map(|_| Box::pin(ctx.checkouts.fetch(&pull)))
        .collect();
    for fetch in &mut fetches {
        assert!(
            futures::poll!(fetch).is_pending(),
            "the mirror is being brought in step"
        );
    }
    bot.github.clear_faults();
    let main = bot.github.branches(REPO).await.unwrap()["main"].clone();
    for source in join_all(fetches).await {
        let source = source.unwrap();
        assert_eq!((&source.head, &source.base), (&pull.head, &main));
    }
    ctx.server.syncer.idle().await;
    assert_eq!(
        bot.fetches() - before,
        of_a_sync,
        "what the sync brought is what they came for"
    );
    assert_eq!(infra_of(&bot.replica).await.used_at, Some(bot.db.now()));
    bot.settle().await;
    let _planned_again = bot.read_comments(number);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// The first plan has fetched, has checked out the default workspace for the search of projects, and waits for an answer about approvals, when the fetch of the second finds the mirror
/// damaged. The fresh mirror has only the commits of the second.
async fn a_plan_fetches_again_if_the_mirror_was_replaced_after_its_fetch(backend: Backend) {
    let flags = [
        ("disable-autoplan", "true"),
        (
            "repo-config-json",
            r#"{"repos": [{"id": "/.*/", "plan_requirements": ["approved"]}]}"#,
        ),
    ];
    let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
    let add = "# fake: add 1 change 0 destroy 0\n";
    let first = bot.open_pull("first", &[("network/main.tf", add)]).await;
    let second = bot.open_pull("second", &[("app/main.tf", add)]).await;
    bot.approve(first, "bob");
    bot.approve(second, "bob");
    let route = format!("GET /repos/*/*/pulls/{first}/reviews");
    bot.github.fault(&route, 1, Fault::Hang);
    bot.github
        .comment(
            REPO,
            first,
            "alice",
            "lockkeeper plan -d network -w staging",
        )
        .await
        .unwrap();
    bot.settle_short().await;
    let run = bot.begin_command();
    bot.github.hanging(1).await;

    let mirror = bot
        .db
        .dir
        .path()
        .join("data/mirrors/github.test/acme/infra.git");
    std::fs::write(mirror.join(".lockkeeper-damaged"), "").unwrap();
    bot.say(second, "lockkeeper plan").await;
    let answer = bot.answer(second);
    assert!(answer.contains(": planned\n"), "{answer}");

    let refs = Cmd::new("git")
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .dir(&mirror)
        .args(["for-each-ref"])
        .output()
        .await
        .unwrap();
    let refs = refs.stdout.text();
    assert!(
        refs.contains("refs/pull/2/head") && !refs.contains("refs/pull/1/head"),
        "{refs}"
    );
    bot.github.clear_faults();
    assert_eq!(run.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let answer = bot.answer(first);
    assert!(answer.contains(": planned\n"), "{answer}");
    let locks = [
        "acme/infra/app/default by #2",
        "acme/infra/network/staging by #1",
    ];
    bot.end(&locks).await;
}
