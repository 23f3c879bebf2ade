use std::time::Duration;

use axum::http::StatusCode;
use insta::assert_snapshot;
use lockkeeper::context::{FileState, RefusedContent};
use lockkeeper::model::{ChainLink, PullState, Sha256Digest};
use lockkeeper::queue::LEASE;
use lockkeeper::store::{
    JobClaim, JobFinish, LockEventWalk, NewDelivery, NewJob, Presence, ReconcilerRun, ReplicaId,
};

use super::fixture::{World, project, pull};
use crate::support::db::by;

fn replica(name: &str, host: &str) -> ReplicaId {
    ReplicaId {
        name: name.to_owned(),
        host: host.to_owned(),
        address: format!("{host}:4141"),
        version: "1.2.3".to_owned(),
    }
}

fn job(kind: &'static str, lane: &str) -> NewJob {
    NewJob {
        kind,
        payload: "{}".to_owned(),
        lane: lane.to_owned(),
        share: String::new(),
        priority: 0,
        run_after: None,
    }
}

async fn beat(world: &World, name: &str) {
    let until = world.clock_now() + LEASE;
    world
        .store
        .replica_beat(
            &replica(name, "keeper-1.example"),
            Presence::Serving,
            &[],
            until,
        )
        .await
        .unwrap();
}

async fn repaired(world: &World, name: &str, replica: &str, repaired: u64, error: Option<&str>) {
    let run = ReconcilerRun {
        name,
        replica,
        started_at: world.clock_now(),
        looked_at: 12 + repaired,
        repaired,
        error,
    };
    world.store.reconciler_record(&run).await.unwrap();
}

async fn deliver(world: &World, id: &str) {
    let new = NewDelivery {
        host: "github.com".parse().unwrap(),
        forge_delivery: id.to_owned(),
        event: "push".to_owned(),
        content_type: "application/json".to_owned(),
        body: Vec::new(),
    };
    let _new = world
        .store
        .delivery_ignore(&new, "a push is not looked at")
        .await
        .unwrap();
}

/// Creates a world after a bad night: a server was lost, a reconciler fails, a lane is stuck, jobs were given up.
/// `who` is a server, `error` is the problem.
pub async fn troubled_world(who: &str, error: &str) -> World {
    let world = World::new().await;
    let (store, lost) = (&world.store, format!("keeper-0-{who}"));
    beat(&world, &lost).await;
    repaired(&world, "stops", &lost, 2, None).await;
    world.wait(600);
    let infra = pull(
        "github.com/acme/a-rather-long-repository-name-for-infrastructure",
        12,
    );
    let tgw = project(
        "environments/production/eu-central-1/network/transit-gateway",
        "production",
        None,
    );
    world.lock(&infra, &tgw, who, "planned by a comment").await;
    let lane = "pull:github.com/acme/a-rather-long-repository-name-for-infrastructure#12";
    for kind in ["run_command", "run_command", "take_turn"] {
        store.job_push(&job(kind, lane)).await.unwrap();
    }
    let lease = store
        .job_claim(&JobClaim::any("w", world.clock_now() + LEASE))
        .await
        .unwrap()
        .unwrap();
    world.wait(1200);
    let next = world.clock_now() + Duration::from_mins(4);
    assert_eq!(
        store.job_retry(&lease, next, error).await.unwrap(),
        JobFinish::Recorded
    );
    store
        .job_push(&job("set_status", "status:github.com/acme/infra"))
        .await
        .unwrap();
    for n in 0..2 {
        store
            .job_push(&job("post_comment", &format!("comment:{n}")))
            .await
            .unwrap();
        let lease = store
            .job_claim(&JobClaim {
                only: "post_comment",
                ..JobClaim::any("w", next)
            })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            store.job_fail(&lease, error).await.unwrap(),
            JobFinish::Recorded
        );
    }
    for n in 0..3 {
        deliver(&world, &n.to_string()).await;
    }
    let walked_at = world.clock_now();
    world.seal_log().await;
    let ChainLink { seq, hash } = store
        .lock_event_list(1)
        .await
        .unwrap()
        .remove(0)
        .link
        .unwrap();
    let walk = LockEventWalk {
        name: "new".to_owned(),
        seq,
        hash,
        broken_seq: None,
        fault: None,
        walked_at,
    };
    store.lock_event_walk_set(&walk).await.unwrap();
    world
        .store
        .pull_close(&infra, PullState::Merged, "", by(), |_| vec![])
        .await
        .unwrap();
    let name = "keeper-1-018f9a0e-5b7c-7d2a-9c1e-3f6b8a7d4e21";
    beat(&world, name).await;
    for _ in 0..3 {
        repaired(&world, "closed_pulls", name, 0, Some(error)).await;
    }
    repaired(&world, "orphans", name, 1, None).await;
    repaired(&world, "retention", name, 431, None).await;
    repaired(&world, "audit", name, 0, None).await;
    world.wait(8);
    world
}

#[tokio::test]
async fn a_new_server_is_in_order_and_says_what_will_be_there() {
    let answer = World::new().await.browser().await.get("/operations").await;
    assert_eq!(answer.status, StatusCode::OK);
    let text = answer.text();
    for expected in [
        "No problems found.",
        "No server has reported to the database",
        "No jobs are queued or running.",
        "No webhook delivery arrived.",
        "not verified yet",
        "no event is sealed yet",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

#[tokio::test]
async fn what_is_wrong_comes_first_and_everything_else_is_told() {
    let text = troubled_world("kim", "GitHub answered 502")
        .await
        .browser()
        .await
        .get("/operations")
        .await
        .text();
    assert_snapshot!("troubled operations", text);
}

#[tokio::test]
async fn programs_are_told_the_same() {
    let world = troubled_world("kim", "GitHub answered 502").await;
    let body = world.browser().await.get("/api/operations").await.body;
    let mut json: serde_json::Value = serde_json::from_str(&body).unwrap();
    // One entry of each is enough to see the shape.
    for list in ["replicas", "reconcilers"] {
        json[list].as_array_mut().unwrap().truncate(1);
    }
    for list in ["jobs", "lanes"] {
        json["queue"][list].as_array_mut().unwrap().truncate(1);
    }
    json["queue"]["failed"]["newest"]
        .as_array_mut()
        .unwrap()
        .truncate(1);
    json["audit"]["newest"].as_array_mut().unwrap().truncate(1);
    insta::assert_json_snapshot!("operations for programs", json);
}

fn file_that_holds(world: &World) -> FileState {
    FileState {
        path: "/etc/lockkeeper/repos.yaml".into(),
        digest: Sha256Digest::of(b"repos: []\n"),
        since: world.clock_now(),
        refused: None,
    }
}

fn refused(world: &World, state: FileState, error: &str) -> FileState {
    FileState {
        refused: Some(RefusedContent {
            at: world.clock_now(),
            error: error.to_owned(),
            digest: None,
        }),
        ..state
    }
}

/// Creates a server whose `--repo-config` file was changed to an invalid configuration.
pub async fn misconfigured_world(error: &str) -> World {
    let mut world = World::new().await;
    world.repo_config = Some(refused(&world, file_that_holds(&world), error));
    world
}

#[tokio::test]
async fn the_page_says_which_file_holds_and_what_is_refused() {
    let mut world = World::new().await;
    world.repo_config = Some(file_that_holds(&world));
    world.wait(120);
    let text = world.browser().await.get("/operations").await.text();
    assert!(text.contains("No problems found."), "{text}");
    assert!(
        text.contains("This server uses\n/etc/lockkeeper/repos.yaml\nas of\n2 min ago"),
        "{text}"
    );
    let error = "error: `<b>` is not a key of the file\n--> /etc/lockkeeper/repos.yaml:1:1";
    world.repo_config = world
        .repo_config
        .take()
        .map(|state| refused(&world, state, error));
    let browser = world.browser().await;
    let text = browser.get("/operations").await.text();
    assert!(
        text.contains(
            "The file of --repo-config is invalid; its previous content stays in effect."
        ),
        "{text}"
    );
    assert!(text.contains("is not a key of the file"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&browser.get("/api/operations").await.body).unwrap();
    assert_eq!(json["repo_config"]["file"], "/etc/lockkeeper/repos.yaml");
    assert!(
        json["repo_config"]["refused"]["error"]
            .as_str()
            .unwrap()
            .starts_with("error: `<b>`")
    );
}

#[tokio::test]
async fn the_page_lists_settings_that_have_no_effect() {
    let mut world = World::new().await;
    assert!(
        !world
            .browser()
            .await
            .get("/operations")
            .await
            .text()
            .contains("without effect")
    );
    world.without_effect =
        vec!["repos.yaml line 4: `metrics` has no effect: it is there".to_owned()];
    let browser = world.browser().await;
    let text = browser.get("/operations").await.text();
    assert!(
        text.contains("No problems found.") && text.contains("Settings without effect"),
        "{text}"
    );
    assert!(
        text.contains("repos.yaml line 4: `metrics` has no effect: it is there"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&browser.get("/api/operations").await.body).unwrap();
    assert_eq!(json["without_effect"][0], world.without_effect[0]);
}

#[tokio::test]
async fn monitors_read_what_the_database_knows_and_read_it_again_after_some_seconds() {
    let world = World::new().await;
    let browser = world.browser().await;
    let answer = browser.get("/metrics").await;
    assert_eq!(
        answer.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    assert!(
        answer
            .body
            .contains("lockkeeper_info{version=\"1.2.3\"} 1\n"),
        "{}",
        answer.body
    );
    assert!(
        answer.body.contains("lockkeeper_locks 0\n"),
        "{}",
        answer.body
    );
    world
        .lock(
            &pull("github.com/acme/infra", 1),
            &project(".", "default", None),
            "alice",
            "planned",
        )
        .await;
    world
        .store
        .job_push(&job("run_command", "lane"))
        .await
        .unwrap();
    world.wait(4);
    assert!(
        browser
            .get("/metrics")
            .await
            .body
            .contains("lockkeeper_locks 0\n")
    );
    world.wait(1);
    let body = browser.get("/metrics").await.body;
    for line in [
        "lockkeeper_locks 1\n",
        "lockkeeper_queue_jobs{kind=\"run_command\",state=\"waiting\"} 1\n",
        "lockkeeper_queue_oldest_seconds{kind=\"run_command\"} 5\n",
        "lockkeeper_audit_events 1\n",
        "lockkeeper_replicas{state=\"gone\"} 0\n",
        "lockkeeper_http_requests_total{route=\"/metrics\",method=\"GET\",status=\"2xx\"} 2\n",
    ] {
        assert!(body.contains(line), "{line} is not in {body}");
    }
}

#[tokio::test]
async fn without_its_database_a_server_still_tells_what_it_counted() {
    let world = World::new().await;
    let browser = world.browser().await;
    browser.get("/metrics").await;
    world.store.close().await;
    world.wait(10);
    let answer = browser.get("/metrics").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(
        answer.body.contains("lockkeeper_database_up 0\n"),
        "{}",
        answer.body
    );
    assert!(
        answer.body.contains("lockkeeper_http_requests_total"),
        "{}",
        answer.body
    );
    assert_eq!(
        browser.get("/operations").await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[tokio::test]
async fn addresses_and_verbs_that_somebody_makes_up_are_no_series() {
    let world = World::new().await;
    let browser = world.browser().await;
    for n in 0..5 {
        browser.get(&format!("/made-up/{n}")).await;
        let request = browser.request(&format!("MADEUP{n}"), &format!("/jobs/{n}"));
        browser
            .send(request.body(axum::body::Body::empty()).unwrap())
            .await;
    }
    let body = browser.get("/metrics").await.body;
    let series: Vec<&str> = body
        .lines()
        .filter(|line| line.starts_with("lockkeeper_http_requests_total{"))
        .collect();
    assert_eq!(series.len(), 2, "{series:#?}");
    assert!(
        !body.contains("made-up") && !body.contains("MADEUP"),
        "{body}"
    );
}

#[tokio::test]
async fn the_page_of_a_run_that_was_removed_says_so() {
    let world = World::new().await;
    let browser = world.browser().await;
    // The identifiers are of the first and of the last day of 2025. Now is March 2026, and runs are kept for 90 days.
    let old = browser
        .get("/jobs/01941f29-7c00-7000-8000-000000000001")
        .await;
    assert_eq!(old.status, StatusCode::GONE);
    assert!(
        old.body
            .contains("This server removes commands and their runs after 90 days"),
        "{}",
        old.body
    );
    assert!(
        old.body.contains("this one is from 2025-01-01"),
        "{}",
        old.body
    );
    let young = browser
        .get("/jobs/019b71b4-4c00-7000-8000-000000000001")
        .await;
    assert_eq!(young.status, StatusCode::NOT_FOUND);
    assert!(
        young.body.contains("No run has this identifier."),
        "{}",
        young.body
    );
}
