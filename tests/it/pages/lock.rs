use axum::http::StatusCode;
use insta::assert_snapshot;
use lockkeeper::model::{Actor, Cause, CommandKind, Lock, ProjectOutcome, RunKind};
use lockkeeper::store::{ApplyChecks, ApplyGate, LockAttempt};

use super::fixture::{World, project, pull};
use super::home::settings;

async fn planned(world: &World) -> Lock {
    let infra = pull("github.com/acme/infra", 12);
    let net = project("infra/net", "prod", Some("net"));
    let lock = world
        .lock(&infra, &net, "alice", "planned by a comment")
        .await;
    let command = world
        .command(CommandKind::Plan, &infra, Actor::commenter("alice"))
        .await;
    let run = world.run(command, RunKind::Plan, &infra, &net).await;
    world.plan(&lock, run).await;
    world.end_run(run, ProjectOutcome::Planned, None).await;
    world.wait(3 * 86400);
    lock
}

#[tokio::test]
async fn the_page_of_a_lock_tells_everything_and_offers_to_give_it_back() {
    let world = World::new().await;
    let lock = planned(&world).await;
    let page = world
        .browser()
        .await
        .get(&format!("/locks/{}", lock.id))
        .await;
    assert_eq!(page.status, StatusCode::OK);
    settings().bind(|| assert_snapshot!("lock", page.body));
}

#[tokio::test]
async fn a_lock_under_which_an_apply_runs_is_not_given_away() {
    let world = World::new().await;
    let lock = planned(&world).await;
    let plan = world.store.plan_list(&lock.pull).await.unwrap().remove(0);
    let command = world
        .command(CommandKind::Apply, &lock.pull, Actor::commenter("alice"))
        .await;
    let run = world
        .run(command, RunKind::Apply, &lock.pull, &lock.project)
        .await;
    let cause = Cause::new(Actor::commenter("alice"), "applied");
    let attempt = LockAttempt {
        key: &lock.key,
        project: &lock.project,
        pull: &lock.pull,
        pull_url: &lock.pull_url,
        cause: &cause,
    };
    let gate = world
        .store
        .apply_begin(&plan, run, Some(&attempt), &ApplyChecks::default())
        .await
        .unwrap();
    assert!(matches!(gate, ApplyGate::Granted(_)), "{gate:?}");

    let (browser, path) = (world.browser().await, format!("/locks/{}", lock.id));
    let page = browser.get(&path).await;
    let why = "An apply, an import or a state rm of pull request #12 is running under this lock.";
    assert!(page.text().contains(why), "{}", page.text());
    assert!(!page.body.contains("<form method=\"post\""));

    for fields in ["", "force=yes&reason=outage", "force=yes"] {
        let answer = browser.post(&path, fields).await;
        assert_eq!(answer.status, StatusCode::CONFLICT, "{fields}");
        let way_out = "Wait until it ends, or comment “lockkeeper cancel --force” on pull request #12 to interrupt \
                       it.";
        assert!(answer.text().contains(way_out), "{}", answer.text());
    }
    assert_eq!(world.store.lock_get(lock.id).await.unwrap(), Some(lock));
}

/// Creates a lock under which something was applied, and two pull requests that are queued for it.
async fn applied(world: &World) -> Lock {
    let lock = planned(world).await;
    let command = world
        .command(CommandKind::Apply, &lock.pull, Actor::commenter("alice"))
        .await;
    let run = world
        .run(command, RunKind::Apply, &lock.pull, &lock.project)
        .await;
    world.end_run(run, ProjectOutcome::Applied, None).await;
    for (number, asker) in [(13, "bob"), (14, "carol")] {
        world
            .waiting(&pull("github.com/acme/infra", number), &lock.project, asker)
            .await;
    }
    lock
}

#[tokio::test]
async fn a_lock_that_is_in_use_is_taken_away_with_a_reason_only() {
    let world = World::new().await;
    let lock = applied(&world).await;
    let (browser, path) = (world.browser().await, format!("/locks/{}", lock.id));
    let page = browser.get(&path).await;
    assert_snapshot!(page.text().split_once("Queue").unwrap().1, @"

    2
    Place
    Pull request
    Project
    Requested by
    Since
    Hand over
    1
    acme/infra
    #13
    net
    bob
    just now
    Hand over…
    to pull request #13
    The lock is held by pull request #12, which has applied changes that are not merged. The next plan of another pull request would undo them.
    #13 gets the lock, regardless of its place in the queue, and is planned. Plans of #12 under it are discarded. Lockkeeper posts a comment on both.
    Reason
    Yes, hand over to #13
    2
    acme/infra
    #14
    net
    carol
    just now
    Hand over…
    to pull request #14
    The lock is held by pull request #12, which has applied changes that are not merged. The next plan of another pull request would undo them.
    #14 gets the lock, regardless of its place in the queue, and is planned. Plans of #12 under it are discarded. Lockkeeper posts a comment on both.
    Reason
    Yes, hand over to #14
    Release the lock
    The lock cannot be released now. The lock is held by pull request #12, which has applied changes that are not merged. The next plan of another pull request would undo them. Merge it, or use force with a reason.
    Release by force…
    Plans under the lock are discarded, a running plan is interrupted, and the first pull request in the queue gets the lock.
    Lockkeeper posts a comment with your reason on pull request #12.
    Reason, for the pull requests and the audit log
    Yes, release by force
    History
    Event
    Pull request
    By
    Reason
    When
    queued
    #14
    carol
    by comment
    planned by comment
    just now
    queued
    #13
    bob
    by comment
    planned by comment
    just now
    taken
    #12
    alice
    by comment
    planned by a comment
    3 days ago
    This list has at most the newest 50 events. On the server,
    lockkeeper audit list
    lists all events, and
    lockkeeper audit verify
    proves that none was changed.
    ");
    assert!(!page.body.contains("Yes, release<"));
    for (fields, status, title) in [
        ("", StatusCode::CONFLICT, "Unmerged apply"),
        ("reason=outage", StatusCode::CONFLICT, "Unmerged apply"),
        (
            "force=yes&reason=+%09",
            StatusCode::UNPROCESSABLE_ENTITY,
            "Reason required",
        ),
        (
            "force=yes&to=99&reason=x",
            StatusCode::CONFLICT,
            "Not queued",
        ),
        (
            "force=yes&to=x&reason=x",
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid input",
        ),
    ] {
        let answer = browser.post(&path, fields).await;
        assert_eq!(answer.status, status, "{fields}");
        let text = answer.text();
        assert!(
            text.contains(title) && text.contains("Nothing was changed."),
            "{fields}: {text}"
        );
    }
    let endless = browser
        .post(&path, &format!("force=yes&reason={}", "x".repeat(301)))
        .await;
    assert_eq!(endless.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        endless
            .text()
            .contains("it has 301 characters, and at most 300 are allowed"),
        "{}",
        endless.text()
    );
    assert_eq!(
        world.store.lock_get(lock.id).await.unwrap(),
        Some(lock.clone())
    );

    let answer = browser
        .post(&path, "force=yes&reason=the+outage+first")
        .await;
    assert_eq!(answer.header("location"), "/?notice=taken-away");
    let now = world.store.lock_list().await.unwrap().remove(0);
    assert_eq!(now.pull.subject.stored(), 13);
    let page = browser.get(&format!("/locks/{}", now.id)).await.text();
    assert!(page.contains("taken away\n#12\nops\non the dashboard\nreleased by force: the outage"));
}

#[tokio::test]
async fn a_lock_is_handed_to_one_that_waits() {
    let world = World::new().await;
    let lock = applied(&world).await;
    let (browser, path) = (world.browser().await, format!("/locks/{}", lock.id));
    let answer = browser
        .post(&path, "force=yes&to=14&reason=the+outage+first")
        .await;
    assert_eq!(answer.header("location"), "/?notice=handed-over");
    assert!(
        browser
            .get("/?notice=handed-over")
            .await
            .text()
            .contains("The lock was handed over")
    );
    let now = world.store.lock_list().await.unwrap().remove(0);
    assert_eq!(now.pull.subject.stored(), 14);
    let answer = browser.post(&format!("/locks/{}", now.id), "to=13").await;
    assert_eq!(
        answer.header("location"),
        "/?notice=handed-over",
        "nothing of it is in use"
    );
}

#[tokio::test]
async fn the_classic_name_leads_to_the_lock() {
    let world = World::new().await;
    let lock = planned(&world).await;
    let browser = world.browser().await;
    for path in [
        "/locks/acme%2Finfra%2Finfra%2Fnet%2Fprod",
        "/locks/acme/infra/infra/net/prod",
        "/locks/github.com%2FAcme%2FInfra%2Finfra%2Fnet%2Fprod",
        "/lock?id=acme%2Finfra%2Finfra%2Fnet%2Fprod%2Fnet",
        "/lock?id=acme/infra/infra/net/prod/",
    ] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{path}");
        assert_eq!(
            answer.header("location"),
            format!("/locks/{}", lock.id),
            "{path}"
        );
    }
    let by_id = browser.get(&format!("/lock?id={}", lock.id)).await;
    assert_eq!(by_id.header("location"), format!("/locks/{}", lock.id));
}

#[tokio::test]
async fn a_classic_name_of_locks_on_two_hosts_leads_to_the_choice() {
    let world = World::new().await;
    for host in ["github.com", "git.example"] {
        world
            .lock(
                &pull(&format!("{host}/acme/infra"), 1),
                &project("net", "default", None),
                "a",
                "planned",
            )
            .await;
    }
    let browser = world.browser().await;
    let answer = browser.get("/locks/acme%2Finfra%2Fnet%2Fdefault").await;
    assert_eq!(
        answer.header("location"),
        "/?q=acme%2Finfra%2Fnet%2Fdefault"
    );
    let page = browser.get(answer.header("location")).await;
    assert!(page.body.contains("<span class=\"count\">2 of 2</span>"));
    let text = page.text();
    assert!(
        text.contains("github.com/\nacme/infra") && text.contains("git.example/\nacme/infra"),
        "{text}"
    );
}

#[tokio::test]
async fn a_lock_that_nobody_holds_is_explained() {
    let browser = World::new().await.browser().await;
    for path in [
        "/locks/00000000-0000-7000-8000-000000000009",
        "/locks/acme%2Finfra%2Fnet%2Fdefault",
        "/lock?id=acme/infra/net/default",
        "/locks/%3Cscript%3E",
    ] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(
            answer.text().contains("Most likely it was released"),
            "{path}"
        );
        assert!(!answer.body.contains("<script>"), "{path}");
    }
    assert_eq!(browser.get("/lock").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        browser.get("/locks/%ff").await.status,
        StatusCode::NOT_FOUND
    );
}
