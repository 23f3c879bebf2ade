//! Tests GitHub's limits: requests with the same credentials stop together, and writes are sent one after the other.
//! The scripted server fails at its end if it got a request that the test did not read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper::clock::{Clock, ManualClock};
use lockkeeper::forges::github::{GitHub, GitHubEndpoints, Timeouts};
use lockkeeper::forges::{Forge, ForgeError, LocalGates, PostedComment, RateGates};
use lockkeeper::model::{PullRef, RateScope, Traffic};
use serde_json::json;

use super::client::pull_answer;
use super::server::{Reply, ScriptedGitHub, anybody, pull, start, token};

const PULL: &str = "GET /repos/acme/infra/pulls/12";
const COMMENT: &str = "POST /repos/acme/infra/issues/12/comments";

/// Servers that share their rate gates and the time.
struct World {
    server: ScriptedGitHub,
    clock: Arc<ManualClock>,
    gates: Arc<LocalGates>,
}

impl World {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(start()));
        let gates = Arc::new(LocalGates::new(clock.clone()));
        Self {
            server: ScriptedGitHub::start().await,
            clock,
            gates,
        }
    }

    /// Creates a client with a token, for a host that the scripted server represents.
    fn client(&self, host: &str, with: &str) -> GitHub {
        let at = GitHubEndpoints::new(host, Some(self.server.url.parse().unwrap())).unwrap();
        let github = GitHub::new(at, token(with), self.clock.clone(), Timeouts::default()).unwrap();
        github.with_gates(self.gates.clone())
    }

    fn of(&self, with: &str) -> GitHub {
        self.client("github.com", with)
    }

    /// Returns the number of seconds since the test began.
    fn seconds(&self) -> i64 {
        (self.clock.now() - start()).num_seconds()
    }

    fn limits(&self, line: &str, name: &'static str, value: &str) {
        let reply = Reply::status(
            403,
            &json!({"message": "You have exceeded a secondary rate limit."}),
        );
        let left = if name == "x-ratelimit-reset" {
            "0"
        } else {
            "4000"
        };
        self.server.on(
            line,
            reply
                .header("x-ratelimit-remaining", left)
                .header(name, value),
        );
    }

    fn takes_a_comment(&self) {
        self.server.on(
            COMMENT,
            Reply::status(201, &json!({"id": 1, "created_at": "2026-03-01T12:00:05Z"})),
        );
    }
}

async fn post(github: &GitHub) -> Result<PostedComment, ForgeError> {
    github.comment_post(&pull(), "x", &anybody()).await
}

/// Returns the number of seconds that a request has to wait.
#[track_caller]
fn wait<T: std::fmt::Debug>(world: &World, asked: Result<T, ForgeError>) -> i64 {
    let error = asked.unwrap_err();
    let ForgeError::RateLimited { until, .. } = error else {
        panic!("{error}")
    };
    (until - world.clock.now()).num_seconds()
}

#[tokio::test]
async fn a_limit_of_writes_stops_every_write_with_the_credentials_and_no_read() {
    let world = World::new().await;
    let (one, other) = (world.of("t"), world.of("t"));
    world.limits(COMMENT, "retry-after", "20");
    assert_eq!(wait(&world, post(&one).await), 20);
    world.clock.advance(Duration::from_secs(5));
    assert_eq!(
        (
            wait(&world, post(&one).await),
            wait(&world, post(&other).await)
        ),
        (15, 15)
    );
    assert_eq!(world.server.lines(), [COMMENT], "nothing more was sent");

    world.server.on(PULL, Reply::json(&pull_answer()));
    one.pull(&pull()).await.unwrap();
    world.takes_a_comment();
    post(&world.of("another")).await.unwrap();
    world.clock.advance(Duration::from_secs(15));
    world.takes_a_comment();
    post(&other).await.unwrap();
}

#[tokio::test]
async fn a_limit_that_is_met_by_reading_stops_everything() {
    for (name, value, seconds) in [
        ("retry-after", "20", 20),
        ("x-ratelimit-reset", "1772366700", 300),
    ] {
        let world = World::new().await;
        world.limits(PULL, name, value);
        let (one, other) = (world.of("t"), world.of("t"));
        assert_eq!(wait(&world, one.pull(&pull()).await), seconds);
        assert_eq!(wait(&world, other.pull(&pull()).await), seconds);
        assert_eq!(wait(&world, post(&other).await), seconds);
        assert_eq!(world.server.lines(), [PULL], "nothing more was sent");
    }
}

#[tokio::test]
async fn when_nothing_is_left_a_write_stops_reads_too() {
    let world = World::new().await;
    world.limits(COMMENT, "x-ratelimit-reset", "1772366700");
    let github = world.of("t");
    assert_eq!(wait(&world, post(&github).await), 300);
    assert_eq!(wait(&world, github.pull(&pull()).await), 300);
}

#[tokio::test]
async fn after_an_hour_one_request_finds_out_whether_the_limit_is_still_there() {
    let world = World::new().await;
    let github = world.of("t");
    world.limits(PULL, "retry-after", "80000");
    assert_eq!(
        wait(&world, github.pull(&pull()).await),
        80_000,
        "the job that met it waits as it was told"
    );
    assert_eq!(wait(&world, github.pull(&pull()).await), 3600);
    world.clock.advance(Duration::from_hours(1));
    world.server.on(PULL, Reply::json(&pull_answer()));
    github.pull(&pull()).await.unwrap();
}

#[tokio::test]
async fn writes_to_githubs_clouds_leave_a_second_apart_whoever_sends_them() {
    for (host, seconds) in [
        ("github.com", 3),
        ("acme.ghe.com", 3),
        ("git.acme.example", 0),
    ] {
        let world = World::new().await;
        let (one, other) = (world.client(host, "t"), world.client(host, "t"));
        for github in [&one, &other, &one, &other] {
            world.takes_a_comment();
            let at = PullRef {
                repo: format!("{host}/acme/infra").parse().unwrap(),
                ..pull()
            };
            github.comment_post(&at, "x", &anybody()).await.unwrap();
        }
        assert_eq!(world.seconds(), seconds, "{host}");
    }
}

#[tokio::test]
async fn reads_do_not_wait_for_the_turn_of_a_write() {
    let world = World::new().await;
    let github = world.of("t");
    world.takes_a_comment();
    post(&github).await.unwrap();
    for _ in 0..3 {
        world.server.on(PULL, Reply::json(&pull_answer()));
        github.pull(&pull()).await.unwrap();
    }
    assert_eq!(world.seconds(), 0);
}

#[tokio::test]
async fn whoever_waits_for_a_turn_hears_of_a_limit_that_was_met_meanwhile() {
    let world = World::new().await;
    let github = world.of("t");
    let credential = "token e3b98a4da31a127d".to_owned();
    let scope = RateScope {
        host: "github.com".parse().unwrap(),
        credential,
    };
    // Another client has the turn of this moment, and GitHub tells it to wait.
    world
        .gates
        .turn(&scope, Duration::from_secs(10))
        .await
        .unwrap();
    let closes = Closes {
        clock: world.clock.clone(),
        gates: world.gates.clone(),
        scope,
    };
    let at = GitHubEndpoints::new("github.com", Some(world.server.url.parse().unwrap())).unwrap();
    let late = GitHub::new(at, token("t"), Arc::new(closes), Timeouts::default()).unwrap();
    let late = late.with_gates(world.gates.clone());
    assert_eq!(wait(&world, post(&late).await), 60);
    assert_eq!(wait(&world, post(&github).await), 60);
}

/// A clock that lets time pass until GitHub has told another client to wait.
struct Closes {
    clock: Arc<ManualClock>,
    gates: Arc<LocalGates>,
    scope: RateScope,
}

#[async_trait]
impl Clock for Closes {
    fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
        let until = self.clock.now() + TimeDelta::minutes(1);
        self.gates
            .close(&self.scope, Traffic::Write, until)
            .await
            .unwrap();
    }
}
