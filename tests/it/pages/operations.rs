use std::time::Duration;

use axum::http::StatusCode;
use insta::assert_snapshot;
use lockkeeper::model::PullState;
use lockkeeper::queue::LEASE;
use lockkeeper::store::{Finish, LockEventWalk, NewDelivery, NewJob, Presence, ReconcilerRun, ReplicaId};

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
    NewJob { kind, payload: "{}".to_owned(), lane: lane.to_owned(), share: String::new(), priority: 0, run_after: None }
}

async fn beat(world: &World, name: &str) {
    let until = world.clock_now() + LEASE;
    world.store.replica_beat(&replica(name, "keeper-1.example"), Presence::Serving, &[], until).await.unwrap();
}

async fn repaired(world: &World, name: &str, replica: &str, repaired: u64, error: Option<&str>) {
    let run = ReconcilerRun { name, replica, started_at: world.clock_now(), looked_at: 12 + repaired, repaired, error };
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
    let _new = world.store.delivery_ignore(&new, "a push is not looked at").await.unwrap();
}

/// A bad night: a server was lost, a repair fails, a lane is stuck, jobs were given up. `who` is a server, `error` what
/// went wrong.
pub async fn troubled_world(who: &str, error: &str) -> World {
    let world = World::new().await;
    let (store, lost) = (&world.store, format!("keeper-0-{who}"));
    beat(&world, &lost).await;
    repaired(&world, "stops", &lost, 2, None).await;
    world.wait(600);
    let infra = pull("github.com/acme/a-rather-long-repository-name-for-infrastructure", 12);
    let tgw = project("environments/production/eu-central-1/network/transit-gateway", "production", None);
    world.lock(&infra, &tgw, who, "planned by a comment").await;
    let lane = "pull:github.com/acme/a-rather-long-repository-name-for-infrastructure#12";
    for kind in ["run_command", "run_command", "take_turn"] {
        store.job_push(&job(kind, lane)).await.unwrap();
    }
    let lease = store.job_claim("w", world.clock_now() + LEASE, "", "", i64::MAX).await.unwrap().unwrap();
    world.wait(1200);
    let next = world.clock_now() + Duration::from_secs(240);
    assert_eq!(store.job_retry(&lease, next, error).await.unwrap(), Finish::Recorded);
    store.job_push(&job("set_status", "status:github.com/acme/infra")).await.unwrap();
    for n in 0..2 {
        store.job_push(&job("post_comment", &format!("comment:{n}"))).await.unwrap();
        let lease = store.job_claim("w", next, "post_comment", "", i64::MAX).await.unwrap().unwrap();
        assert_eq!(store.job_fail(&lease, error).await.unwrap(), Finish::Recorded);
    }
    for n in 0..3 {
        deliver(&world, &n.to_string()).await;
    }
    let walked_at = world.clock_now();
    let head = store.lock_event_list(1).await.unwrap().remove(0);
    let (seq, hash) = (head.seq, head.hash);
    let walk = LockEventWalk { name: "new".to_owned(), seq, hash, broken_seq: None, fault: None, walked_at };
    store.lock_event_walk_set(&walk).await.unwrap();
    world.store.pull_close(&infra, PullState::Merged, "", by(), |_| vec![]).await.unwrap();
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
        "Everything is in order",
        "No server has told the database",
        "Nothing is waiting",
        "No webhook delivery came in.",
        "not verified yet",
        "there is no event yet",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

#[tokio::test]
async fn what_is_wrong_comes_first_and_everything_else_is_told() {
    let text = troubled_world("kim", "GitHub answered 502").await.browser().await.get("/operations").await.text();
    assert_snapshot!(text, @"
    Operations
    Somebody should look at this
    The repair closed_pulls has failed 3 times in a row.
    The repair stops has not been heard of for three of its periods.
    1 lane waits longer than it should.
    1 server was lost without a word.
    2 jobs were given up in the last day.
    Servers
    2
    Name
    State
    Host
    Version
    Last heard
    Since
    keeper-1-018f9a0e-5b7c-7d2a-9c1e-3f6b8a7d4e21
    alive
    keeper-1.example:4141
    1.2.3
    8 s ago
    8 s ago
    keeper-0-kim
    gone
    keeper-1.example:4141
    1.2.3
    30 min ago
    30 min ago
    Repairs
    Repair
    State
    Last look
    Looked at
    Repaired
    In all
    closed_pulls
    Gives back what closed pull requests still hold: the close event was missed, or a server died over it.
    Failed 3 times in a row: GitHub answered 502
    failing
    8 s ago
    by keeper-1-018f9a0e-5b7c-7d2a-9c1e-3f6b8a7d4e21
    every 5 min, on one server
    12
    0
    0
    orphans
    Puts the work of servers that are gone back into the queue, and ends what else they had claimed.
    well
    8 s ago
    by keeper-1-018f9a0e-5b7c-7d2a-9c1e-3f6b8a7d4e21
    every 15 s, on every server
    13
    1
    1
    stops
    Stops commands of this server that somebody cancelled on another.
    late
    30 min ago
    by keeper-0-kim
    every 2 s, on every server
    14
    2
    2
    retention
    Removes what is older than --keep-deliveries and --keep-runs, jobs that ended a week ago, and servers that ended a day ago.
    well
    8 s ago
    by keeper-1-018f9a0e-5b7c-7d2a-9c1e-3f6b8a7d4e21
    every 1 h, on one server
    443
    431
    431
    audit
    Verifies the audit log of locks: first what is new, then all of it again, piece by piece.
    well
    8 s ago
    by keeper-1-018f9a0e-5b7c-7d2a-9c1e-3f6b8a7d4e21
    every 5 min, on one server
    12
    0
    0
    Queue
    Kind
    Running
    Waiting
    Tried again later
    Oldest
    run_command
    0
    1
    1
    20 min ago
    set_status
    0
    1
    0
    8 s ago
    take_turn
    0
    1
    0
    20 min ago
    Lanes that wait longest
    Jobs of a lane run one at a time and in order, so all of them wait for the first.
    Lane
    Jobs
    The first of them
    State
    Tries
    Since
    pull:github.com/
    acme/
    a-rather-long-repository-name-for-infrastructure#12
    3
    run_command
    00000000-0000-7000-8000-000000000002
    GitHub answered 502
    tried again later
    in 3 min 52 s
    1
    20 min ago
    long
    status:github.com/
    acme/
    infra
    1
    set_status
    00000000-0000-7000-8000-000000000005
    waiting
    0
    8 s ago
    Jobs given up in the last day
    2
    Job
    Lane
    Why
    Tries
    When
    post_comment
    00000000-0000-7000-8000-000000000007
    comment:1
    GitHub answered 502
    1
    8 s ago
    post_comment
    00000000-0000-7000-8000-000000000006
    comment:0
    GitHub answered 502
    1
    8 s ago
    Deliveries of the last day
    Ignored
    3
    Audit log of locks
    whole
    Events
    2
    Verified
    8 s ago
    but for the newest 1
    Verified again
    a round is about to begin
    Locks held
    0
    , and 0 in line for one
    Hash of the newest event
    6259832f479b55fe7fe724d163b42e4f965fffda375b08cd1c19649a6af60e36
    Newest events
    Event
    Lock
    Pull request
    Who
    Why
    When
    released
    2
    environments/
    production/
    eu-central-1/
    network/
    transit-gateway/
    production
    acme/a-rather-long-repository-name-for-infrastructure
    #12
    ada
    comment
    as the test wants it
    8 s ago
    taken
    1
    environments/
    production/
    eu-central-1/
    network/
    transit-gateway/
    production
    acme/a-rather-long-repository-name-for-infrastructure
    #12
    kim
    comment
    planned by a comment
    20 min ago
    ");
}

#[tokio::test]
async fn programs_are_told_the_same() {
    let world = troubled_world("kim", "GitHub answered 502").await;
    let body = world.browser().await.get("/api/operations").await.body;
    let mut json: serde_json::Value = serde_json::from_str(&body).unwrap();
    // One of each is enough to see the shape.
    for list in ["replicas", "reconcilers"] {
        json[list].as_array_mut().unwrap().truncate(1);
    }
    for list in ["jobs", "lanes"] {
        json["queue"][list].as_array_mut().unwrap().truncate(1);
    }
    json["queue"]["failed"]["newest"].as_array_mut().unwrap().truncate(1);
    json["audit"]["newest"].as_array_mut().unwrap().truncate(1);
    insta::assert_json_snapshot!(json, @r#"
    {
      "audit": {
        "again_seq": 0,
        "broken": null,
        "events": 2,
        "newest": [
          {
            "actor": "ada",
            "at": "2026-03-04T05:36:07Z",
            "hash": "6259832f479b55fe7fe724d163b42e4f965fffda375b08cd1c19649a6af60e36",
            "kind": "released",
            "lock": "acme/a-rather-long-repository-name-for-infrastructure/environments/production/eu-central-1/network/transit-gateway/production",
            "origin": "comment",
            "pull": 12,
            "reason": "as the test wants it",
            "remote": null,
            "repo": "github.com/acme/a-rather-long-repository-name-for-infrastructure",
            "seq": 2
          }
        ],
        "newest_hash": "6259832f479b55fe7fe724d163b42e4f965fffda375b08cd1c19649a6af60e36",
        "seals": [],
        "unverified": 1,
        "verified_at": "2026-03-04T05:36:07Z",
        "verified_seq": 1
      },
      "deliveries": {
        "ignored": 3
      },
      "held": {
        "apply_locks": 0,
        "lock_waiters": 0,
        "locks": 0
      },
      "now": "2026-03-04T05:36:15Z",
      "queue": {
        "failed": {
          "count": 2,
          "newest": [
            {
              "attempts": 1,
              "error": "GitHub answered 502",
              "finished_at": "2026-03-04T05:36:07Z",
              "id": "00000000-0000-7000-8000-000000000007",
              "kind": "post_comment",
              "lane": "comment:1"
            }
          ]
        },
        "jobs": [
          {
            "jobs": 1,
            "kind": "run_command",
            "oldest_at": "2026-03-04T05:16:07Z",
            "state": "delayed"
          }
        ],
        "lanes": [
          {
            "first": {
              "attempts": 1,
              "created_at": "2026-03-04T05:16:07Z",
              "error": "GitHub answered 502",
              "id": "00000000-0000-7000-8000-000000000002",
              "kind": "run_command",
              "replica": null,
              "run_after": "2026-03-04T05:40:07Z",
              "state": "queued"
            },
            "jobs": 3,
            "lane": "pull:github.com/acme/a-rather-long-repository-name-for-infrastructure#12"
          }
        ]
      },
      "reconcilers": [
        {
          "failing": true,
          "late": false,
          "name": "closed_pulls",
          "period_seconds": 300,
          "repaired_total": 0,
          "repairs": "Gives back what closed pull requests still hold: the close event was missed, or a server died over it.",
          "runs": [
            {
              "error": "GitHub answered 502",
              "failures": 3,
              "finished_at": "2026-03-04T05:36:07Z",
              "looked_at": 12,
              "repaired": 0,
              "repaired_total": 0,
              "replica": "keeper-1-018f9a0e-5b7c-7d2a-9c1e-3f6b8a7d4e21",
              "started_at": "2026-03-04T05:36:07Z",
              "succeeded_at": null
            }
          ],
          "scope": "one_per_group"
        }
      ],
      "replicas": [
        {
          "address": "keeper-1.example:4141",
          "beat_at": "2026-03-04T05:36:07Z",
          "host": "keeper-1.example",
          "name": "keeper-1-018f9a0e-5b7c-7d2a-9c1e-3f6b8a7d4e21",
          "started_at": "2026-03-04T05:36:07Z",
          "state": "alive",
          "version": "1.2.3"
        }
      ],
      "since": "2026-03-03T05:36:15Z",
      "version": "1.2.3"
    }
    "#);
}

#[tokio::test]
async fn monitors_read_what_the_database_knows_and_read_it_again_after_some_seconds() {
    let world = World::new().await;
    let browser = world.browser().await;
    let answer = browser.get("/metrics").await;
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(answer.body.contains("lockkeeper_info{version=\"1.2.3\"} 1\n"), "{}", answer.body);
    assert!(answer.body.contains("lockkeeper_locks 0\n"), "{}", answer.body);
    world.lock(&pull("github.com/acme/infra", 1), &project(".", "default", None), "alice", "planned").await;
    world.store.job_push(&job("run_command", "lane")).await.unwrap();
    world.wait(4);
    assert!(browser.get("/metrics").await.body.contains("lockkeeper_locks 0\n"));
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
    assert!(answer.body.contains("lockkeeper_database_up 0\n"), "{}", answer.body);
    assert!(answer.body.contains("lockkeeper_http_requests_total"), "{}", answer.body);
    assert_eq!(browser.get("/operations").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn addresses_and_verbs_that_somebody_makes_up_are_no_series() {
    let world = World::new().await;
    let browser = world.browser().await;
    for n in 0..5 {
        browser.get(&format!("/made-up/{n}")).await;
        let request = browser.request(&format!("MADEUP{n}"), &format!("/jobs/{n}"));
        browser.send(request.body(axum::body::Body::empty()).unwrap()).await;
    }
    let body = browser.get("/metrics").await.body;
    let series: Vec<&str> = body.lines().filter(|line| line.starts_with("lockkeeper_http_requests_total{")).collect();
    assert_eq!(series.len(), 2, "{series:#?}");
    assert!(!body.contains("made-up") && !body.contains("MADEUP"), "{body}");
}

#[tokio::test]
async fn the_page_of_a_run_that_was_removed_says_so() {
    let world = World::new().await;
    let browser = world.browser().await;
    // Asked for on the first and on the last day of 2025; now is March 2026, and runs are kept for 90 days.
    let old = browser.get("/jobs/01941f29-7c00-7000-8000-000000000001").await;
    assert_eq!(old.status, StatusCode::GONE);
    assert!(old.body.contains("Commands and their runs are removed after 90 days on this server"), "{}", old.body);
    assert!(old.body.contains("this one is of 2025-01-01"), "{}", old.body);
    let young = browser.get("/jobs/019b71b4-4c00-7000-8000-000000000001").await;
    assert_eq!(young.status, StatusCode::NOT_FOUND);
    assert!(young.body.contains("No run has this name."), "{}", young.body);
}
