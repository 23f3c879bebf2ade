//! Stories about mirrors in sync with the forge: real git over HTTP, several data directories, and faults of the
//! forge.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use lockkeeper::app::Replica;
use lockkeeper::claims::application_add;
use lockkeeper::emulator::{Change, Exchange, Fault, NewPull};
use lockkeeper::git::{DiskPart, Git, GitSettings, RefName};
use lockkeeper::model::{
    ApplicationFields, AttemptLease, FailureKind, ForgeHosts, MirrorEvent, MirrorState, PullRef,
    RepoId, Rights, Subject, SyncState, Verification,
};
use lockkeeper::process::Cmd;
use lockkeeper::store::{LeaseHold, MirrorChange, MirrorQuery, NewLease};
use lockkeeper::sync::SyncAttempt;
use serde_json::json;

use crate::stories::NETWORK;
use crate::support::bot::{Bot, REPO, WebhookRequest};
use crate::support::db::{Backend, by, story};
use crate::support::log::listen;

story!(
    a_push_brings_the_mirror_in_step,
    a_killed_sync_is_given_up_and_made_again,
    what_the_forge_answers_is_told_apart_and_shown_with_the_fix,
    a_failing_repository_keeps_no_other_waiting,
    so_many_mirrors_are_worked_at_and_no_more,
    an_update_during_a_sync_is_not_lost,
    a_damaged_mirror_is_made_anew,
    a_damaged_mirror_is_not_replaced_under_a_run,
    every_object_is_looked_for_once_a_day,
    a_mirror_that_somebody_is_at_is_not_removed,
    what_a_server_that_never_comes_back_began_is_ended_by_others,
    a_sync_under_somebody_elses_lease_ends_at_once,
    commands_that_wait_share_one_fetch,
    a_repository_that_is_not_served_any_more_is_forgotten,
    a_mirror_that_was_removed_comes_back_when_it_is_used,
    repositories_that_somebody_means_to_work_with_get_their_mirrors_before_anything_happens,
    what_nobody_waits_for_comes_after_a_push,
);

pub(super) const GIT: &str = "GET /acme/infra.git/info/refs";

pub(super) fn infra() -> RepoId {
    format!("github.test/{REPO}").parse().unwrap()
}

pub(super) async fn round(replica: &Replica) -> u64 {
    let found = replica.tick("repositories").await.unwrap();
    replica.ctx.server.syncer.idle().await;
    found.repaired
}

async fn mirror_of(replica: &Replica, repo: &RepoId) -> MirrorState {
    let ctx = &replica.ctx;
    ctx.store
        .mirror_get(ctx.server.syncer.data_dir_id(), repo)
        .await
        .unwrap()
        .expect("the mirror is known")
        .state
}

pub(super) async fn infra_of(replica: &Replica) -> MirrorState {
    mirror_of(replica, &infra()).await
}

/// Returns `main: 1234567`, a line for each branch and pull request in the mirror on the disk.
pub(super) async fn on_disk(bot: &Bot, data: &str) -> Vec<String> {
    let git = Git::new(GitSettings::new(
        bot.db.dir.path().join(data),
        "/usr/local/bin:/usr/bin:/bin",
    ));
    let refs = git.mirror(&infra()).refs().await.unwrap();
    refs.iter()
        .map(|(name, id)| format!("{name} {id}"))
        .collect()
}

impl Bot {
    /// Creates a repository with one branch whose mirror is in sync.
    pub(super) async fn in_step(backend: Backend) -> Self {
        let bot = Self::new(backend, &[NETWORK]).await;
        round(&bot.replica).await;
        bot.push("side", &[("README.md", "The first.\n")]).await;
        round(&bot.replica).await;
        assert_eq!(infra_of(&bot.replica).await.state, SyncState::Synced);
        bot
    }

    pub(super) async fn ask_for_sync(&self) {
        assert_eq!(
            self.store()
                .mirror_request_sync(&infra(), by())
                .await
                .unwrap(),
            1
        );
    }

    pub(super) fn fetches(&self) -> usize {
        let is_one = |request: &&Exchange| {
            request.path.ends_with("/infra.git/info/refs") && request.status == 200
        };
        self.github.requests().iter().filter(is_one).count()
    }
}

async fn a_push_brings_the_mirror_in_step(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let mut replicas = vec![("data".to_owned(), Arc::clone(&bot.replica))];
    if backend == Backend::Postgres {
        replicas.push(("data-2".to_owned(), bot.replica_beside().await));
    }
    for (_, replica) in &replicas {
        round(replica).await;
    }
    let commit = bot.push("side", &[("README.md", "The first.\n")]).await;
    for (data, replica) in &replicas {
        round(replica).await;
        let refs = on_disk(&bot, data).await;
        assert!(
            refs.contains(&format!("refs/heads/side {commit}")) && refs.len() == 2,
            "{refs:?}"
        );
        let state = infra_of(replica).await;
        assert_eq!(
            (state.state, state.verification, state.refs),
            (SyncState::Synced, Verification::Verified, Some(2))
        );
        let size = Git::new(GitSettings::new(bot.db.dir.path().join(data), ""))
            .mirror(&infra())
            .size()
            .await
            .unwrap();
        assert!(
            size > 4096
                && state
                    .bytes
                    .is_some_and(|bytes| bytes.abs_diff(size) < 16 << 10),
            "{:?} {size}",
            state.bytes
        );
    }
    let sums: Vec<_> = join_all(replicas.iter().map(|(_, replica)| infra_of(replica))).await;
    assert!(sums.iter().all(|state| state.checksum == sums[0].checksum));
    let changes = [Change::write("README.md", "Another first.\n")];
    let forced = bot.github.force_push(REPO, "side", &changes).await.unwrap();
    for (data, replica) in &replicas {
        round(replica).await;
        assert!(
            on_disk(&bot, data)
                .await
                .contains(&format!("refs/heads/side {forced}"))
        );
    }
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(pull);
    for (data, replica) in &replicas {
        round(replica).await;
        let refs = on_disk(&bot, data).await;
        assert!(
            refs.iter()
                .any(|line| line.starts_with("refs/pull/1/head "))
                && refs.len() == 4,
            "{refs:?}"
        );
    }
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// The server dies in the middle of an attempt. The row says `started`, and the lease ends with the server.
async fn a_killed_sync_is_given_up_and_made_again(backend: Backend) {
    let mut bot = Bot::in_step(backend).await;
    bot.ask_for_sync().await;
    let data_dir_id = bot.replica.ctx.server.syncer.data_dir_id().clone();
    let lease = AttemptLease {
        key: format!("repository_sync:{data_dir_id}:{}", infra()),
        holder: format!("{}/{}", bot.replica.name(), 77),
    };
    let hold = LeaseHold {
        key: lease.key.clone(),
        holder: lease.holder.clone(),
    };
    bot.replica.tick_leases().await.unwrap();
    let until = bot.db.now() + chrono::TimeDelta::hours(3);
    let _taken = bot
        .store()
        .lease_take(NewLease {
            hold: &hold,
            purpose: "sync",
            until,
        })
        .await
        .unwrap();
    let started = MirrorEvent::Started {
        at: bot.db.now(),
        lease,
    };
    let begun = bot
        .store()
        .mirror_change(&data_dir_id, &infra(), &started)
        .await
        .unwrap();
    assert!(matches!(begun, MirrorChange::Changed(_)), "{begun:?}");
    assert_eq!(round(&bot.replica).await, 0, "its server is there");
    assert_eq!(infra_of(&bot.replica).await.state, SyncState::Started);
    bot.crash_and_restart().await;
    assert_eq!(
        bot.replica.ctx.server.syncer.data_dir_id(),
        &data_dir_id,
        "the data directory keeps its name"
    );
    assert_eq!(round(&bot.replica).await, 1);
    let state = infra_of(&bot.replica).await;
    assert_eq!((state.state, state.retry_count), (SyncState::Failed, 1));
    assert_eq!(state.failure.unwrap().kind, FailureKind::Interrupted);
    bot.db.clock.advance(Duration::from_secs(31));
    round(&bot.replica).await;
    let state = infra_of(&bot.replica).await;
    assert_eq!(
        (state.state, state.retry_count, state.asked),
        (SyncState::Synced, 0, None)
    );
    bot.end(&[]).await;
}

async fn what_the_forge_answers_is_told_apart_and_shown_with_the_fix(backend: Backend) {
    let bot = Bot::in_step(backend).await;
    let cases = [
        (
            Fault::Unauthorized,
            FailureKind::Authentication,
            "credentials",
        ),
        (Fault::NotFound, FailureKind::NotFound, "--repo-allowlist"),
        (
            Fault::ServiceUnavailable,
            FailureKind::Unreachable,
            "automatically",
        ),
        (
            Fault::DropConnection,
            FailureKind::Unreachable,
            "automatically",
        ),
    ];
    for (fault, kind, fix) in cases {
        bot.ask_for_sync().await;
        bot.github.fault(GIT, 1_000, fault.clone());
        round(&bot.replica).await;
        bot.github.clear_faults();
        let state = infra_of(&bot.replica).await;
        let failure = state
            .failure
            .clone()
            .unwrap_or_else(|| panic!("{fault:?}: {state:?}"));
        assert_eq!(
            (state.state, failure.kind),
            (SyncState::Failed, kind),
            "{fault:?}: {}",
            failure.message
        );
        assert!(kind.fix().contains(fix), "{fault:?}");
        assert!(!failure.message.contains("ghp_"), "{}", failure.message);
        let wait = state.retry_at.unwrap() - bot.db.now();
        assert_eq!(
            wait >= chrono::TimeDelta::minutes(7),
            kind.needs_somebody(),
            "{fault:?}: {wait}"
        );
    }
    assert_eq!(infra_of(&bot.replica).await.retry_count, 4);
    bot.ask_for_sync().await;
    round(&bot.replica).await;
    let state = infra_of(&bot.replica).await;
    assert_eq!(
        (state.state, state.retry_count, state.failure),
        (SyncState::Synced, 0, None)
    );
    bot.end(&[]).await;
}

async fn a_failing_repository_keeps_no_other_waiting(backend: Backend) {
    let mut bot = Bot::in_step(backend).await;
    bot.restart_with(&[("sync-parallel", &["1"])]).await;
    for name in ["acme/a", "acme/b", "acme/c"] {
        bot.github
            .create_repo(name, &[("README.md", name)])
            .await
            .unwrap();
    }
    bot.github.fault(
        "GET /acme/a.git/info/refs",
        1_000,
        Fault::ServiceUnavailable,
    );
    for name in ["acme/a", "acme/b", "acme/c"] {
        bot.github
            .push(name, "main", &[Change::write("x", "1\n")])
            .await
            .unwrap();
    }
    for _ in 0..3 {
        round(&bot.replica).await;
        bot.db.clock.advance(Duration::from_mins(2));
    }
    let of = |name: &str| {
        format!("github.test/acme/{name}")
            .parse::<RepoId>()
            .unwrap()
    };
    let failing = mirror_of(&bot.replica, &of("a")).await;
    assert_eq!(failing.state, SyncState::Failed);
    assert!(
        failing.retry_count >= 2,
        "it is tried again: {}",
        failing.retry_count
    );
    for name in ["b", "c"] {
        assert_eq!(
            mirror_of(&bot.replica, &of(name)).await.state,
            SyncState::Synced,
            "{name}"
        );
    }
    bot.github.clear_faults();
    bot.end(&[]).await;
}

async fn so_many_mirrors_are_worked_at_and_no_more(backend: Backend) {
    let mut bot = Bot::in_step(backend).await;
    bot.restart_with(&[("sync-parallel", &["2"])]).await;
    let names = ["acme/a", "acme/b", "acme/c", "acme/d", "acme/e"];
    for name in names {
        bot.github
            .create_repo(name, &[("README.md", name)])
            .await
            .unwrap();
        bot.github
            .fault(&format!("GET /{name}.git/info/refs"), 1, Fault::Hang);
        bot.github
            .push(name, "main", &[Change::write("x", "1\n")])
            .await
            .unwrap();
    }
    let states = async |bot: &Bot| {
        let of = names.map(|name| format!("github.test/{name}").parse::<RepoId>().unwrap());
        join_all(of.iter().map(|repo| mirror_of(&bot.replica, repo)))
            .await
            .into_iter()
            .map(|of| of.state)
    };
    bot.replica.tick("repositories").await.unwrap();
    bot.github.hanging(2).await;
    bot.replica.tick("repositories").await.unwrap();
    assert_eq!(
        states(&bot)
            .await
            .filter(|state| *state == SyncState::Started)
            .count(),
        2,
        "while these two hang"
    );
    bot.github.clear_faults();
    bot.replica.ctx.server.syncer.idle().await;
    round(&bot.replica).await;
    assert!(states(&bot).await.all(|state| state == SyncState::Synced));
    bot.end(&[]).await;
}

async fn an_update_during_a_sync_is_not_lost(backend: Backend) {
    let bot = Bot::in_step(backend).await;
    let ctx = Arc::clone(&bot.replica.ctx);
    bot.push("side", &[("README.md", "The second.\n")]).await;
    let gate = ctx.server.syncer.gate(&infra()).await;
    assert_eq!(
        ctx.server.syncer.attempt(&infra()).await,
        SyncAttempt::Busy,
        "a command is at the mirror"
    );
    drop(gate);
    bot.replica.tick("repositories").await.unwrap();
    // Regardless of whether the attempt has begun or ended by now, the mirror has the pushed commit in the end.
    let last = bot.push("side", &[("README.md", "The third.\n")]).await;
    for _ in 0..2 {
        round(&bot.replica).await;
    }
    assert_eq!(infra_of(&bot.replica).await.state, SyncState::Synced);
    assert!(
        on_disk(&bot, "data")
            .await
            .contains(&format!("refs/heads/side {last}"))
    );
    bot.end(&[]).await;
}

async fn a_damaged_mirror_is_made_anew(backend: Backend) {
    let bot = Bot::in_step(backend).await;
    let before = on_disk(&bot, "data").await;
    let mirror = bot
        .db
        .dir
        .path()
        .join("data/mirrors/github.test/acme/infra.git/objects");
    std::fs::remove_dir_all(&mirror).unwrap();
    std::fs::create_dir(&mirror).unwrap();
    bot.ask_for_sync().await;
    for _ in 0..3 {
        round(&bot.replica).await;
        bot.db.clock.advance(Duration::from_mins(2));
    }
    let state = infra_of(&bot.replica).await;
    assert_eq!((state.state, &state.failure), (SyncState::Synced, &None));
    assert_eq!(on_disk(&bot, "data").await, before);
    bot.end(&[]).await;
}

async fn a_damaged_mirror_is_not_replaced_under_a_run(backend: Backend) {
    let mut bot = Bot::in_step(backend).await;
    bot.push("slow", &[("network/main.tf", "# fake: wait plan\n")])
        .await;
    let busy = bot
        .github
        .open_pull(REPO, NewPull::from_branch("slow"))
        .await
        .unwrap();
    bot.settle_short().await;
    let run = bot.begin_command();
    bot.printed("waiting").await;
    let mirror = bot
        .db
        .dir
        .path()
        .join("data/mirrors/github.test/acme/infra.git");
    std::fs::write(mirror.join(".lockkeeper-damaged"), "").unwrap();
    bot.ask_for_sync().await;
    let heard = listen();
    {
        let ctx = Arc::clone(&bot.replica.ctx);
        let at = infra();
        let mut sync = Box::pin(ctx.server.syncer.attempt(&at));
        let waits = async {
            while !heard.so_far().contains("waits for runs") {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = &mut sync => panic!("{ended:?}: it was replaced under a run"),
            () = waits => {}
        }
        bot.go();
        assert_eq!(sync.await, SyncAttempt::Synced);
    }
    assert_eq!(run.await.unwrap(), lockkeeper::queue::Tick::Worked);
    assert!(
        !mirror.join(".lockkeeper-damaged").exists(),
        "it was replaced when the run had ended"
    );
    bot.settle().await;
    assert!(bot.answer(busy).contains(": planned\n"));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// Returns `name state`, a line for each known mirror.
async fn known(bot: &Bot) -> Vec<String> {
    let query = MirrorQuery {
        data_dir_id: Some(bot.replica.ctx.server.syncer.data_dir_id().clone()),
        ..MirrorQuery::default()
    };
    let rows = bot.store().mirror_list(&query, 100).await.unwrap();
    rows.iter()
        .map(|row| format!("{} {}", row.repo.full_name(), row.state.state))
        .collect()
}

async fn repositories_that_somebody_means_to_work_with_get_their_mirrors_before_anything_happens(
    backend: Backend,
) {
    let flags = [(
        "repo-allowlist",
        "github.test/acme/*,github.test/named/infra,!github.test/acme/secret,elsewhere.test/x/y",
    )];
    let bot = Bot::with(backend, &[NETWORK], &flags).await;
    for name in [
        "named/infra",
        "acme/claimed",
        "acme/given",
        "acme/secret",
        "acme/unheard-of",
    ] {
        bot.github
            .create_repo(name, &[("README.md", name)])
            .await
            .unwrap();
    }
    round(&bot.replica).await;
    let team = "team".parse().unwrap();
    drop(bot.store().owner_create(&team, by()).await.unwrap());
    let forges = ForgeHosts::with(
        bot.replica
            .ctx
            .forges
            .all()
            .map(|forge| forge.host().clone()),
    );
    for name in ["acme/claimed", "acme/secret"] {
        let url = format!("https://github.test/{name}");
        let fields = ApplicationFields {
            url: Some(&url),
            branch: Some("main"),
            ..ApplicationFields::default()
        };
        let spec = fields.spec(&forges).unwrap();
        application_add(bot.store(), &team, &spec, (Rights::Whole, by()))
            .await
            .unwrap()
            .or_why()
            .unwrap();
    }
    let given = json!({
        "action": "created",
        "installation": {"id": 7},
        "repositories": [{"id": 9001, "full_name": "stranger/x"}, {"id": 9002, "full_name": "acme/given"}],
    });
    assert_eq!(
        bot.post(&WebhookRequest::new("given", "installation", &given))
            .await
            .0,
        200
    );
    for _ in 0..2 {
        round(&bot.replica).await;
    }
    assert_eq!(
        known(&bot).await,
        [
            "acme/claimed synced",
            "acme/given synced",
            "named/infra synced"
        ]
    );
    bot.end(&[]).await;
}

async fn what_nobody_waits_for_comes_after_a_push(backend: Backend) {
    let named = ["a", "b", "c"].map(|name| format!("acme/{name}"));
    let list = named
        .each_ref()
        .map(|name| format!("github.test/{name}"))
        .join(",");
    let flags = [
        ("repo-allowlist", &*format!("{list},github.test/acme/*")),
        ("sync-parallel", "2"),
    ];
    let bot = Bot::with(backend, &[NETWORK], &flags).await;
    for name in &named {
        bot.github
            .create_repo(name, &[("README.md", name)])
            .await
            .unwrap();
        bot.github
            .fault(&format!("GET /{name}.git/info/refs"), 1, Fault::Hang);
    }
    bot.replica.tick("repositories").await.unwrap();
    bot.github.hanging(1).await;
    let is_started = |line: &String| line.ends_with(" started");
    assert_eq!(
        known(&bot)
            .await
            .iter()
            .filter(|line| is_started(line))
            .count(),
        1,
        "the other worker is free"
    );
    // The request hangs as well, so that the test can see that it has begun.
    bot.github.fault(GIT, 1, Fault::Hang);
    bot.push("side", &[("README.md", "The first.\n")]).await;
    bot.replica.tick("repositories").await.unwrap();
    bot.github.hanging(2).await;
    assert!(
        known(&bot).await.contains(&"acme/infra started".to_owned()),
        "{:?}",
        known(&bot).await
    );
    bot.github.clear_faults();
    bot.replica.ctx.server.syncer.idle().await;
    for _ in 0..3 {
        round(&bot.replica).await;
    }
    assert!(
        known(&bot)
            .await
            .iter()
            .all(|line| line.ends_with(" synced")),
        "{:?}",
        known(&bot).await
    );
    bot.end(&[]).await;
}

/// Removes an object from a mirror. The pack must be unpacked first.
async fn lose_object(mirror: &Path, name: &str) {
    let git = || {
        Cmd::new("git")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .dir(mirror)
    };
    let packs = std::fs::read_dir(mirror.join("objects/pack"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let packs: Vec<_> = packs
        .filter(|path| path.extension().is_some_and(|is| is == "pack"))
        .collect();
    for pack in packs {
        let bytes = std::fs::read(&pack).unwrap();
        std::fs::remove_file(pack.with_extension("idx")).unwrap();
        std::fs::remove_file(&pack).unwrap();
        assert!(
            git()
                .args(["unpack-objects", "-q"])
                .input(bytes)
                .output()
                .await
                .unwrap()
                .is_success()
        );
    }
    let id = git()
        .args(["rev-parse", name])
        .output()
        .await
        .unwrap()
        .stdout
        .text()
        .trim()
        .to_owned();
    let (dir, file) = id.split_at(2);
    std::fs::remove_file(mirror.join("objects").join(dir).join(file)).unwrap();
}

async fn every_object_is_looked_for_once_a_day(backend: Backend) {
    let bot = Bot::in_step(backend).await;
    let checked = infra_of(&bot.replica)
        .await
        .connectivity_at
        .expect("a new mirror is looked through");
    lose_object(
        &bot.db
            .dir
            .path()
            .join("data/mirrors/github.test/acme/infra.git"),
        "refs/heads/side:README.md",
    )
    .await;
    bot.ask_for_sync().await;
    round(&bot.replica).await;
    let state = infra_of(&bot.replica).await;
    assert_eq!(
        (state.state, state.connectivity_at),
        (SyncState::Synced, Some(checked)),
        "no sync needs that object"
    );
    bot.db.clock.advance(Duration::from_hours(25));
    round(&bot.replica).await;
    let state = infra_of(&bot.replica).await;
    assert_eq!(
        (state.state, state.needs_rebuild()),
        (SyncState::Failed, true),
        "{:?}",
        state.failure
    );
    bot.db.clock.advance(Duration::from_mins(2));
    round(&bot.replica).await;
    let state = infra_of(&bot.replica).await;
    assert_eq!(
        (state.state, state.connectivity_at > Some(checked)),
        (SyncState::Synced, true),
        "{:?}",
        state.failure
    );
    let git = Git::new(GitSettings::new(
        bot.db.dir.path().join("data"),
        "/usr/local/bin:/usr/bin:/bin",
    ));
    git.mirror(&infra()).check_connectivity().await.unwrap();
    bot.end(&[]).await;
}

async fn a_mirror_that_somebody_is_at_is_not_removed(backend: Backend) {
    let bot = Bot::in_step(backend).await;
    let (ctx, part) = (&bot.replica.ctx, DiskPart::Mirror(infra()));
    let gate = ctx.server.syncer.gate(&infra()).await;
    assert!(
        !ctx.checkouts.evict(&part).await.unwrap(),
        "a sync may be about to say what it found"
    );
    drop(gate);
    assert!(ctx.checkouts.evict(&part).await.unwrap());
    let state = infra_of(&bot.replica).await;
    assert_eq!(
        (state.state, state.evicted_at.is_some(), state.checksum),
        (SyncState::Pending, true, None)
    );
    bot.end(&[]).await;
}

async fn what_a_server_that_never_comes_back_began_is_ended_by_others(backend: Backend) {
    let bot = Bot::in_step(backend).await;
    let (store, gone) = (bot.store(), "gone".parse().unwrap());
    store.mirror_know(&gone, &infra()).await.unwrap();
    let lease = AttemptLease {
        key: format!("repository_sync:gone:{}", infra()),
        holder: "gone/1".to_owned(),
    };
    let began = store
        .mirror_change(
            &gone,
            &infra(),
            &MirrorEvent::Started {
                at: bot.db.now(),
                lease,
            },
        )
        .await
        .unwrap();
    assert!(matches!(began, MirrorChange::Changed(_)));
    round(&bot.replica).await;
    let row = store.mirror_get(&gone, &infra()).await.unwrap().unwrap();
    let failure = row.state.failure.unwrap();
    assert_eq!(
        (row.state.state, failure.kind),
        (SyncState::Failed, FailureKind::Interrupted),
        "{}",
        failure.message
    );
    bot.end(&[]).await;
}

async fn a_sync_under_somebody_elses_lease_ends_at_once(backend: Backend) {
    let bot = Bot::in_step(backend).await;
    let key = format!(
        "repository_sync:{}:{}",
        bot.replica.ctx.server.syncer.data_dir_id(),
        infra()
    );
    let hold = LeaseHold {
        key,
        holder: "another/1".to_owned(),
    };
    let until = bot.db.now() + chrono::TimeDelta::minutes(1);
    let _taken = bot
        .store()
        .lease_take(NewLease {
            hold: &hold,
            purpose: "by hand",
            until,
        })
        .await
        .unwrap();
    bot.ask_for_sync().await;
    assert_eq!(
        bot.replica.ctx.server.syncer.attempt(&infra()).await,
        SyncAttempt::Busy
    );
    assert_eq!(
        infra_of(&bot.replica).await.state,
        SyncState::Pending,
        "it is tried again"
    );
    bot.store().lease_release(&hold).await.unwrap();
    assert_eq!(
        bot.replica.ctx.server.syncer.attempt(&infra()).await,
        SyncAttempt::Synced
    );
    assert_eq!(
        bot.replica.ctx.server.syncer.attempt(&infra()).await,
        SyncAttempt::NotDue
    );
    bot.end(&[]).await;
}

async fn commands_that_wait_share_one_fetch(backend: Backend) {
    let mut bot = Bot::in_step(backend).await;
    let number = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(number);
    bot.push("wider", &[("network/main.tf", "# wider still\n")])
        .await;
    let ctx = Arc::clone(&bot.replica.ctx);
    let at = PullRef {
        repo: infra(),
        subject: Subject::pull(1),
    };
    let forge = ctx.forges.of(&at.repo).unwrap();
    let pull = forge.pull(&at).await.unwrap();
    let gate = ctx.server.syncer.gate(&infra()).await;
    let before = bot.fetches();
    let mut fetches: Vec<_> = (0..16)
        .map(|_| Box::pin(ctx.checkouts.fetch(&pull)))
        .collect();
    for fetch in &mut fetches {
        assert!(
            futures::poll!(fetch).is_pending(),
            "somebody else is at the mirror"
        );
    }
    drop(gate);
    let sources = join_all(fetches).await;
    assert!(
        sources
            .iter()
            .all(|source| source.as_ref().is_ok_and(|source| source.head == pull.head))
    );
    assert_eq!(bot.fetches() - before, 1, "one for sixteen who waited");
    let state = infra_of(&bot.replica).await;
    assert_eq!(state.used_at, Some(bot.db.now()));
    bot.settle().await;
    let _planned_again = bot.read_comments(number);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_repository_that_is_not_served_any_more_is_forgotten(backend: Backend) {
    let mut bot = Bot::in_step(backend).await;
    bot.ask_for_sync().await;
    bot.restart_with(&[("repo-allowlist", &["github.test/other/*"])])
        .await;
    round(&bot.replica).await;
    let ctx = &bot.replica.ctx;
    assert_eq!(
        ctx.store
            .mirror_get(ctx.server.syncer.data_dir_id(), &infra())
            .await
            .unwrap(),
        None
    );
    bot.push("side", &[("README.md", "The second.\n")]).await;
    assert_eq!(
        ctx.store.repository_event_list(0, 10).await.unwrap().len(),
        1,
        "nobody follows it any more"
    );
    bot.end(&[]).await;
}

async fn a_mirror_that_was_removed_comes_back_when_it_is_used(backend: Backend) {
    let mut bot = Bot::in_step(backend).await;
    bot.restart_with(&[("disk-quota", &["1KiB"])]).await;
    assert_eq!(bot.replica.tick("disk").await.unwrap().repaired, 1);
    bot.push("side", &[("README.md", "The second.\n")]).await;
    round(&bot.replica).await;
    assert!(
        on_disk(&bot, "data").await.is_empty(),
        "a push alone does not bring back what there was no room for"
    );
    let state = infra_of(&bot.replica).await;
    assert_eq!(
        (state.state, state.checksum, state.evicted_at.is_some()),
        (SyncState::Pending, None, true)
    );
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(pull);
    round(&bot.replica).await;
    let state = infra_of(&bot.replica).await;
    assert_eq!((state.state, state.evicted_at), (SyncState::Synced, None));
    let side = RefName::new("refs/heads/side").unwrap();
    assert!(
        on_disk(&bot, "data")
            .await
            .iter()
            .any(|line| line.starts_with(side.as_str()))
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}
