use axum::http::StatusCode;
use insta::assert_snapshot;
use lockkeeper::model::{Actor, Cause, CommandKind, Lock, ProjectOutcome, RunKind};
use lockkeeper::store::{ApplyGate, LockWish};

use super::fixture::{World, project, pull};
use super::home::settings;

async fn planned(world: &World) -> Lock {
    let infra = pull("github.com/acme/infra", 12);
    let net = project("infra/net", "prod", Some("net"));
    let lock = world.lock(&infra, &net, "alice", "planned by a comment").await;
    let command = world.command(CommandKind::Plan, &infra, Actor::commenter("alice")).await;
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
    let page = world.browser().await.get(&format!("/locks/{}", lock.id)).await;
    assert_eq!(page.status, StatusCode::OK);
    settings().bind(|| assert_snapshot!("lock", page.body));
}

#[tokio::test]
async fn a_lock_under_which_an_apply_runs_cannot_be_discarded() {
    let world = World::new().await;
    let lock = planned(&world).await;
    let plan = world.store.plan_list(&lock.pull).await.unwrap().remove(0);
    let command = world.command(CommandKind::Apply, &lock.pull, Actor::commenter("alice")).await;
    let run = world.run(command, RunKind::Apply, &lock.pull, &lock.project).await;
    let cause = Cause::new(Actor::commenter("alice"), "applied");
    let wish =
        LockWish { key: &lock.key, project: &lock.project, pull: &lock.pull, pull_url: &lock.pull_url, cause: &cause };
    let gate = world.store.apply_begin(&plan, run, Some(&wish)).await.unwrap();
    assert!(matches!(gate, ApplyGate::Granted(_)), "{gate:?}");

    let (browser, path) = (world.browser().await, format!("/locks/{}", lock.id));
    let page = browser.get(&path).await;
    assert!(page.text().contains("An apply is running under this lock, so it cannot be discarded now."));
    assert!(!page.body.contains("<form method=\"post\""));

    let answer = browser.post(&path, "").await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert!(answer.text().contains("Wait for the apply to end"));
    assert_eq!(world.store.lock_get(lock.id).await.unwrap(), Some(lock));
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
        assert_eq!(answer.header("location"), format!("/locks/{}", lock.id), "{path}");
    }
    let by_id = browser.get(&format!("/lock?id={}", lock.id)).await;
    assert_eq!(by_id.header("location"), format!("/locks/{}", lock.id));
}

#[tokio::test]
async fn a_classic_name_of_locks_on_two_hosts_leads_to_the_choice() {
    let world = World::new().await;
    for host in ["github.com", "git.example"] {
        world.lock(&pull(&format!("{host}/acme/infra"), 1), &project("net", "default", None), "a", "planned").await;
    }
    let browser = world.browser().await;
    let answer = browser.get("/locks/acme%2Finfra%2Fnet%2Fdefault").await;
    assert_eq!(answer.header("location"), "/?q=acme%2Finfra%2Fnet%2Fdefault");
    let page = browser.get(answer.header("location")).await;
    assert!(page.body.contains("<span class=\"count\">2 of 2</span>"));
    let text = page.text();
    assert!(text.contains("github.com/\nacme/infra") && text.contains("git.example/\nacme/infra"), "{text}");
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
        assert!(answer.text().contains("Most likely it was given back already"), "{path}");
        assert!(!answer.body.contains("<script>"), "{path}");
    }
    assert_eq!(browser.get("/lock").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(browser.get("/locks/%ff").await.status, StatusCode::NOT_FOUND);
}
