//! Tests the meaning of GitHub's deliveries with recordings.

use std::fs;
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};

use super::header::delivery;
use super::payload::parse;
use crate::forges::{DeliveryHeader, ParsedDelivery};
use crate::model::{Event, HostName};

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/forges/github/webhook/recordings")
}

/// Returns the names of all recordings, without `.json`.
fn names() -> Vec<String> {
    let files = fs::read_dir(recordings())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files
        .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn recording(name: &str) -> (HeaderMap, Value) {
    let text = fs::read_to_string(recordings().join(format!("{name}.json"))).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    (
        headers(value["headers"].as_object().unwrap()),
        value["body"].take(),
    )
}

fn headers(map: &Map<String, Value>) -> HeaderMap {
    map.iter()
        .map(|(name, value)| {
            (
                name.parse::<HeaderName>().unwrap(),
                value.as_str().unwrap().parse().unwrap(),
            )
        })
        .collect()
}

fn identity(headers: &HeaderMap) -> DeliveryHeader {
    delivery(headers).expect("GitHub sent it").unwrap()
}

fn parsed(name: &str, headers: &HeaderMap, body: &[u8]) -> ParsedDelivery {
    let host = HostName::new("github.com").unwrap();
    parse(&identity(headers).event, headers, body, &host)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
        .delivery
}

fn understood(name: &str) -> ParsedDelivery {
    let (headers, body) = recording(name);
    parsed(name, &headers, body.to_string().as_bytes())
}

fn meaning(name: &str) -> String {
    serde_json::to_string(&understood(name).event).unwrap()
}

#[test]
fn deliveries_about_pulls_ask_for_what_they_should() {
    insta::assert_snapshot!(
        meaning("pull_request.opened"),
        @r#"{"event":"pull","pull":{"repo":"github.com/acme/infra","number":2},"action":"opened","draft":false,"head":"ec26c3e57ca3a959ca5aad62de7213c562f8c821","base_branch":"master","sender":"jane-doe","sender_id":21031067}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.opened_draft_through_app"),
        @r#"{"event":"pull","pull":{"repo":"github.com/acme/infra","number":2},"action":"opened","draft":true,"head":"ec26c3e57ca3a959ca5aad62de7213c562f8c821","base_branch":"master","sender":"jane-doe","sender_id":21031067}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.reopened"),
        @r#"{"event":"pull","pull":{"repo":"github.com/acme/infra","number":2},"action":"reopened","draft":false,"head":"ec26c3e57ca3a959ca5aad62de7213c562f8c821","base_branch":"master","sender":"jane-doe","sender_id":21031067}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.ready_for_review"),
        @r#"{"event":"pull","pull":{"repo":"github.com/acme/infra","number":2},"action":"ready_for_review","draft":false,"head":"ec26c3e57ca3a959ca5aad62de7213c562f8c821","base_branch":"master","sender":"jane-doe","sender_id":21031067}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.synchronize"),
        @r#"{"event":"pull","pull":{"repo":"github.com/acme/infra","number":2},"action":"updated","draft":false,"head":"ec26c3e57ca3a959ca5aad62de7213c562f8c821","base_branch":"master","sender":"jane-doe","sender_id":21031067}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.edited_base"),
        @r#"{"event":"pull","pull":{"repo":"github.com/acme/infra","number":2},"action":"base_changed","draft":false,"head":"ec26c3e57ca3a959ca5aad62de7213c562f8c821","base_branch":"master","sender":"jane-doe","sender_id":21031067}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.closed"),
        @r#"{"event":"pull","pull":{"repo":"github.com/acme/infra","number":2},"action":"closed","draft":false,"head":"ec26c3e57ca3a959ca5aad62de7213c562f8c821","base_branch":"master","sender":"jane-doe","sender_id":21031067}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.closed_merged"),
        @r#"{"event":"pull","pull":{"repo":"github.com/acme/infra","number":2},"action":"closed","draft":false,"head":"ec26c3e57ca3a959ca5aad62de7213c562f8c821","base_branch":"master","sender":"jane-doe","sender_id":21031067}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.closed_fork_deleted"),
        @r#"{"event":"pull","pull":{"repo":"github.com/acme/infra","number":2},"action":"closed","draft":false,"head":"ec26c3e57ca3a959ca5aad62de7213c562f8c821","base_branch":"master","sender":"jane-doe","sender_id":21031067}"#
    );
}

#[test]
fn deliveries_about_pulls_that_need_nothing_say_why() {
    insta::assert_snapshot!(
        meaning("pull_request.edited_title"),
        @r#"{"event":"ignored","reason":"only the title or the description of the pull request was edited"}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.converted_to_draft"),
        @r#"{"event":"ignored","reason":"a pull request that becomes a draft needs no new plan"}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.labeled"),
        @r#"{"event":"ignored","reason":"the action `labeled` of a pull request is not used"}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request.review_requested"),
        @r#"{"event":"ignored","reason":"the action `review_requested` of a pull request is not used"}"#
    );
}

#[test]
fn only_new_comments_on_pulls_are_comments() {
    insta::assert_snapshot!(
        meaning("issue_comment.created_on_pull"),
        @r#"{"event":"comment","pull":{"repo":"github.com/acme/infra","number":1},"comment":492700400,"body":"lockkeeper plan -d \"network\" -- -lock=false\r\n\r\nThanks! — Jané 🚢","author":"jane-doe","author_id":21031067,"author_is_bot":false,"written_at":"2019-05-15T15:20:21Z"}"#
    );
    insta::assert_snapshot!(
        meaning("issue_comment.created_on_pull_through_app"),
        @r#"{"event":"comment","pull":{"repo":"github.com/acme/infra","number":1},"comment":492700400,"body":"lockkeeper apply","author":"jane-doe","author_id":21031067,"author_is_bot":false,"written_at":"2019-05-15T15:20:21Z"}"#
    );
    insta::assert_snapshot!(
        meaning("issue_comment.created_by_bot"),
        @r#"{"event":"comment","pull":{"repo":"github.com/acme/infra","number":1},"comment":492700400,"body":"Plan finished.","author":"lockkeeper-acme[bot]","author_id":49699333,"author_is_bot":true,"written_at":"2019-05-15T15:20:21Z"}"#
    );
    insta::assert_snapshot!(
        meaning("issue_comment.created_on_issue"),
        @r#"{"event":"ignored","reason":"the comment is on an issue, not on a pull request"}"#
    );
    insta::assert_snapshot!(
        meaning("issue_comment.edited"),
        @r#"{"event":"ignored","reason":"edited comments are not read again. Write a new comment"}"#
    );
    insta::assert_snapshot!(
        meaning("issue_comment.deleted"),
        @r#"{"event":"ignored","reason":"a comment was deleted. Its command stays in effect"}"#
    );
}

#[test]
fn other_events_are_ignored_by_name() {
    insta::assert_snapshot!(
        meaning("ping"),
        @r#"{"event":"ignored","reason":"a ping: GitHub only checks that the webhook is reachable"}"#
    );
    insta::assert_snapshot!(meaning("push"), @r#"{"event":"repositories","news":[{"repo":"github.com/acme/infra","kind":"push"}]}"#);
    insta::assert_snapshot!(
        meaning("pull_request_review.submitted"),
        @r#"{"event":"ignored","reason":"events of type `pull_request_review` are not used"}"#
    );
    insta::assert_snapshot!(
        meaning("pull_request_review_comment.created"),
        @r#"{"event":"ignored","reason":"events of type `pull_request_review_comment` are not used"}"#
    );
    insta::assert_snapshot!(
        meaning("check_run.completed"),
        @r#"{"event":"ignored","reason":"events of type `check_run` are not used"}"#
    );
    insta::assert_snapshot!(
        meaning("installation.created"),
        @r#"{"event":"repositories","news":[{"repo":"github.com/acme/infra","kind":"changed"}]}"#
    );
}

#[test]
fn no_recording_is_forgotten() {
    let held = include_str!("recorded.rs");
    for name in names() {
        assert!(
            held.contains(&format!("meaning(\"{name}\")")),
            "no test holds what {name} means"
        );
        let header = identity(&recording(&name).0);
        assert!(
            name.split('.').next() == Some(&header.event),
            "{name} is a {}",
            header.event
        );
    }
}

#[test]
fn forms_and_json_mean_the_same() {
    for name in names() {
        let (mut headers, body) = recording(&name);
        headers.insert(
            "Content-Type",
            "application/x-www-form-urlencoded".parse().unwrap(),
        );
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("payload", &body.to_string());
        assert_eq!(
            parsed(&name, &headers, form.finish().as_bytes()),
            understood(&name),
            "{name}"
        );
    }
}

#[test]
fn recordings_name_their_repository_by_its_identifier() {
    for name in names() {
        let (_, body) = recording(&name);
        let ParsedDelivery {
            event,
            repositories,
        } = understood(&name);
        let is_read = matches!(
            name.split('.').next(),
            Some("pull_request" | "issue_comment" | "push" | "installation")
        );
        let id = body["repository"]["id"]
            .as_u64()
            .or_else(|| body["repositories"][0]["id"].as_u64());
        let named: Vec<u64> = repositories.iter().map(|named| named.id).collect();
        let expected: Vec<u64> = id.filter(|_| is_read).into_iter().collect();
        assert_eq!(named, expected, "{name}");
        if let Event::Pull(event) = event {
            assert_eq!(repositories[0].repo, event.pull.repo, "{name}");
        }
    }
}
