use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures::{Stream, StreamExt};
use lockkeeper::model::{ProjectOutcome, RunId};

use super::fixture::{Browser, World};
use super::job::running;

/// Events of an open stream, one at a time.
struct Events {
    body: Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>,
    text: String,
}

impl Events {
    async fn open(browser: &Browser, run: RunId, query: &str, last_seen: Option<&str>) -> Self {
        let mut request = browser.request("GET", &format!("/jobs/{run}/events{query}"));
        if let Some(last_seen) = last_seen {
            request = request.header("last-event-id", last_seen);
        }
        let response = browser.respond(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Self {
            body: Box::pin(response.into_body().into_data_stream()),
            text: String::new(),
        }
    }

    /// Returns the next event without tags, or `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (without_tags(event), rest.to_owned());
                self.text = rest;
                return Some(event);
            }
            let chunk = tokio::time::timeout(Duration::from_secs(20), self.body.next())
                .await
                .expect("the stream moves");
            self.text
                .push_str(std::str::from_utf8(&chunk?.unwrap()).unwrap());
        }
    }
}

fn without_tags(event: &str) -> String {
    regex::Regex::new("<[^>]*>")
        .unwrap()
        .replace_all(event, "|")
        .replace('\n', " ")
}

#[tokio::test]
async fn what_is_printed_arrives_and_the_stream_ends_with_the_run() {
    let world = World::new().await;
    let run = running(&world).await;
    world.print(run, 1, "one\n").await;
    let mut events = Events::open(&world.browser().await, run, "", None).await;
    assert_eq!(events.next().await.unwrap(), "id: 1 data: ||1||one||");
    world.print(run, 2, "\u{1b}[31mtwo\nthree\n").await;
    world.hub.announce(run);
    assert_eq!(
        events.next().await.unwrap(),
        "id: 2 data: ||2|||two|||||3|||three|||"
    );
    world.print(run, 3, "four\n").await;
    world.end_run(run, ProjectOutcome::Planned, None).await;
    world.hub.announce(run);
    assert_eq!(events.next().await.unwrap(), "id: 3 data: ||4|||four|||");
    assert_eq!(events.next().await.unwrap(), "event: end data: over");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn what_another_replica_writes_arrives_without_news() {
    let world = World::new().await;
    let run = running(&world).await;
    let mut events = Events::open(&world.browser().await, run, "", None).await;
    let (event, ()) = tokio::join!(events.next(), world.print(run, 1, "one\n"));
    assert_eq!(event.unwrap(), "id: 1 data: ||1||one||");
}

#[tokio::test]
async fn a_stream_goes_on_where_the_browser_was_cut_off() {
    let world = World::new().await;
    let run = running(&world).await;
    for seq in 1..=100 {
        world
            .print(run, seq, &format!("\u{1b}[3{}ma\nb{seq}\n", seq % 8))
            .await;
    }
    world.end_run(run, ProjectOutcome::Planned, None).await;
    let browser = world.browser().await;
    // The header of a reconnecting browser takes precedence over the address that it got at first.
    for (query, last_seen) in [("?after=98", None), ("?after=2", Some("98"))] {
        let mut events = Events::open(&browser, run, query, last_seen).await;
        let first = events.next().await.unwrap();
        assert_eq!(first, "id: 99 data: ||197|||a|||||198|||b99|||", "{query}");
        assert!(events.next().await.unwrap().starts_with("id: 100 "));
        assert_eq!(events.next().await.unwrap(), "event: end data: over");
    }
    for (query, last_seen) in [
        ("?after=100", None),
        ("?after=9999", None),
        ("", Some("100")),
    ] {
        let mut events = Events::open(&browser, run, query, last_seen).await;
        assert_eq!(
            events.next().await.unwrap(),
            "event: end data: over",
            "{query}"
        );
    }
    for (query, last_seen) in [("?after=x", None), ("?after=-5", None), ("", Some("x"))] {
        let mut events = Events::open(&browser, run, query, last_seen).await;
        assert!(
            events.next().await.unwrap().starts_with("id: 1 data: "),
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops_without_saying_that_the_run_is_over() {
    let world = World::new().await;
    let run = running(&world).await;
    world.print(run, 1, "one\n").await;
    let mut events = Events::open(&world.browser().await, run, "", None).await;
    assert!(events.next().await.is_some());
    world.stop.cancel();
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn only_so_many_may_watch_and_who_leaves_makes_room() {
    let world = World::new().await;
    let run = running(&world).await;
    let browser = world.browser().await;
    let mut watchers = Vec::new();
    for _ in 0..256 {
        watchers.push(Events::open(&browser, run, "", None).await);
    }
    let answer = browser.get(&format!("/jobs/{run}/events")).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.body.contains("Too many browsers are watching runs"));
    watchers.pop();
    watchers.push(Events::open(&browser, run, "", None).await);
}
