//! Tests the errors that callers get when GitHub does not do what was requested.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::clock::{Clock, ManualClock};
use lockkeeper::forges::github::{GitHub, Timeouts};
use lockkeeper::forges::{Forge, ForgeError};
use serde_json::json;
use tokio::net::TcpListener;

use super::client::pull_answer;
use super::server::{Reply, ScriptedGitHub, anybody, endpoints, pull, start, token};
use crate::support::log;

const PULL: &str = "GET /repos/acme/infra/pulls/12";
const COMMENT: &str = "POST /repos/acme/infra/issues/12/comments";

async fn refusal_of_a_read(server: &ScriptedGitHub) -> ForgeError {
    server.client().pull(&pull()).await.unwrap_err()
}

#[tokio::test]
async fn refusals_are_classified_and_not_repeated() {
    let message = json!({"message": "Not today"});
    for (status, expected) in [
        (
            301,
            "github.com rejected pull request acme/infra#12: it has moved (HTTP status 301 Moved Permanently): was \
            the repository renamed or transferred?",
        ),
        (
            401,
            "github.com refused the credentials for pull request acme/infra#12: Not today",
        ),
        (
            403,
            "github.com refused the credentials for pull request acme/infra#12: Not today",
        ),
        (
            404,
            "pull request acme/infra#12 was not found on github.com, or the credentials of Lockkeeper may not see it",
        ),
        (
            410,
            "pull request acme/infra#12 was not found on github.com, or the credentials of Lockkeeper may not see it",
        ),
        (
            422,
            "github.com rejected pull request acme/infra#12: Not today",
        ),
    ] {
        let server = ScriptedGitHub::start().await;
        server.on(
            PULL,
            Reply::status(status, &message).header("location", "http://127.0.0.1:1/"),
        );
        assert_eq!(refusal_of_a_read(&server).await.to_string(), expected);
    }
}

#[tokio::test]
async fn limits_are_told_with_their_end() {
    for (status, name, value, wait) in [
        (403, "retry-after", "90", 90),
        (429, "retry-after", "Sun, 01 Mar 2026 12:05:00 GMT", 300),
        (403, "x-ratelimit-reset", "1772368200", 1800),
        (429, "x-other", "1", 60),
    ] {
        let server = ScriptedGitHub::start().await;
        let remaining = if name == "x-ratelimit-reset" {
            "0"
        } else {
            "4000"
        };
        let reply = Reply::status(status, &json!({"message": "slow down"}))
            .header("x-ratelimit-remaining", remaining);
        server.on(COMMENT, reply.header(name, value));
        let error = server
            .client()
            .comment_post(&pull(), "x", &anybody())
            .await
            .unwrap_err();
        let ForgeError::RateLimited { until, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(until - start(), TimeDelta::seconds(wait), "{name}: {value}");
    }
}

#[tokio::test]
async fn reads_are_tried_three_times_with_short_waits() {
    let server = ScriptedGitHub::start().await;
    let clock = Arc::new(ManualClock::new(start()));
    let github = server.client_of(token("t"), &clock);
    server.on(PULL, Reply::status(502, &json!("Bad gateway")));
    server.on(PULL, Reply::Drop);
    server.on(PULL, Reply::json(&pull_answer()));
    github.pull(&pull()).await.unwrap();
    assert_eq!(clock.now() - start(), TimeDelta::milliseconds(2500));
    for _ in 0..3 {
        server.on(
            PULL,
            Reply::status(503, &json!({"message": "Down for maintenance"})),
        );
    }
    let error = github.pull(&pull()).await.unwrap_err();
    insta::assert_snapshot!(
        error,
        @"github.com could not be reached for pull request acme/infra#12: Down for maintenance"
    );
}

#[tokio::test]
async fn writes_are_sent_once() {
    let server = ScriptedGitHub::start().await;
    for reply in [Reply::status(500, &json!({})), Reply::Drop] {
        server.on(COMMENT, reply);
        let error = server
            .client()
            .comment_post(&pull(), "x", &anybody())
            .await
            .unwrap_err();
        assert!(matches!(error, ForgeError::Unavailable { .. }), "{error}");
        assert_eq!(server.lines(), [COMMENT]);
    }
}

#[tokio::test]
async fn an_answer_that_is_no_json_leaves_open_whether_the_write_got_through() {
    let server = ScriptedGitHub::start().await;
    let page = Reply::Answer {
        status: 200,
        headers: vec![],
        body: "<html>Please log in</html>".to_owned(),
    };
    server.on(COMMENT, page);
    let error = server
        .client()
        .comment_post(&pull(), "x", &anybody())
        .await
        .unwrap_err();
    insta::assert_snapshot!(
        error,
        @"github.com could not be reached for a comment on acme/infra#12: cannot parse the answer at `.`: expected value at line 1 column 1"
    );
    assert!(matches!(error, ForgeError::Unavailable { .. }));
}

#[tokio::test]
async fn answers_have_a_limit() {
    let server = ScriptedGitHub::start().await;
    server.on(PULL, Reply::Mebibytes(33));
    let error = refusal_of_a_read(&server).await;
    insta::assert_snapshot!(
        error,
        @"github.com rejected pull request acme/infra#12: the answer is larger than 32 MiB, the limit for every request"
    );
    assert!(matches!(error, ForgeError::Rejected { .. }));
}

#[tokio::test]
async fn a_host_that_is_not_there_is_a_passing_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let clock = Arc::new(ManualClock::new(start()));
    let github = GitHub::new(
        endpoints(&url),
        token("ghp_secret"),
        clock,
        Timeouts::default(),
    )
    .unwrap();
    let error = github.pull(&pull()).await.unwrap_err();
    assert!(
        matches!(&error, ForgeError::Unavailable { message, .. } if message.contains("refused")),
        "{error}"
    );
}

#[tokio::test]
async fn a_host_that_never_answers_is_given_up() {
    let brief = Duration::from_millis(40);
    let long = Duration::from_mins(1);
    for timeouts in [
        Timeouts {
            request: brief,
            ..Timeouts::default()
        },
        Timeouts {
            read: brief,
            request: long,
            ..Timeouts::default()
        },
    ] {
        // The kernel accepts the connection, and nobody reads from it. A busy machine may need all the time to
        // connect, so nothing depends on whether the request was received.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let clock = Arc::new(ManualClock::new(start()));
        let github = GitHub::new(endpoints(&url), token("t"), clock, timeouts).unwrap();
        let error = github
            .comment_post(&pull(), "x", &anybody())
            .await
            .unwrap_err();
        let ForgeError::Unavailable { message, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(
            message.contains("no complete answer within 40 ms"),
            timeouts.request == brief,
            "{message}"
        );
    }
}

#[tokio::test]
async fn every_request_is_logged_without_the_token() {
    let server = ScriptedGitHub::start().await;
    let github = server.client_of(token("ghp_secret"), &Arc::new(ManualClock::new(start())));
    let listening = log::listen();
    server.on(PULL, Reply::Drop);
    server.on(
        PULL,
        Reply::json(&pull_answer()).header("x-ratelimit-remaining", "4998"),
    );
    github.pull(&pull()).await.unwrap();
    let text = listening.end();
    assert!(!text.contains("ghp_secret"), "{text}");
    let ours: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("lockkeeper::forges"))
        .collect();
    assert_eq!(ours.len(), 2, "{text}");
    assert!(
        ours[0].contains("GitHub gave no answer to GET /repos/acme/infra/pulls/12"),
        "{}",
        ours[0]
    );
    insta::assert_snapshot!(
        ours[1].trim(),
        @r#"DEBUG lockkeeper::forges::github::client::wire: GitHub answered GET /repos/acme/infra/pulls/12 with 200 host=github.com http.method=GET http.path=/repos/acme/infra/pulls/12 http.status=200 duration_ms=0 rate_limit.remaining="4998""#
    );
}
