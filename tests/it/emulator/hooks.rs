//! Tests of webhooks: their kinds and order, their signature and shape, and holding and repeating them.

use std::collections::BTreeSet;

use hmac::{Hmac, KeyInit, Mac};
use lockkeeper::emulator::{
    Change, Delivering, EmulatorError, NewPull, RecordedDelivery, SendAttempt,
};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use super::app::installation_token;
use super::rig::{REPO, Receiver, Rig, WEBHOOK_SECRET, name};
use crate::support::openapi::read_package;

/// Performs everything that can happen to a pull request, in one story.
async fn story(rig: &Rig) -> Result<(), EmulatorError> {
    let github = &rig.github;
    let number = rig.open_pull().await;
    github
        .push(REPO, "feature", &[Change::write("a.tf", "x\n")])
        .await?;
    let id = github
        .comment(REPO, number, "bob", "lockkeeper plan")
        .await?;
    github
        .edit_comment(REPO, id, "bob", "lockkeeper apply")
        .await?;
    github.convert_to_draft(REPO, number, "alice").await?;
    github.ready_for_review(REPO, number, "alice").await?;
    github
        .push(REPO, "other-base", &[Change::write("b.tf", "x\n")])
        .await?;
    github
        .change_base(REPO, number, "alice", "other-base")
        .await?;
    github.close(REPO, number, "alice").await?;
    github.reopen(REPO, number, "alice").await?;
    github.merge(REPO, number, "alice").await?;
    Ok(())
}

#[tokio::test]
async fn each_change_tells_the_hook_what_github_would() {
    let rig = Rig::start().await;
    let receiver = Receiver::start(&rig.github).await;
    story(&rig).await.unwrap();
    insta::assert_snapshot!(receiver.names().join("\n"), @"
    push
    pull_request.opened
    push
    pull_request.synchronize
    issue_comment.created
    issue_comment.edited
    pull_request.converted_to_draft
    pull_request.ready_for_review
    push
    pull_request.edited
    pull_request.closed
    pull_request.reopened
    pull_request.closed
    push
    ");
}

#[tokio::test]
async fn webhooks_are_signed_numbered_and_answered() {
    let rig = Rig::start().await;
    let receiver = Receiver::start(&rig.github).await;
    let number = rig.open_pull().await;
    rig.github
        .comment(REPO, number, "bob", "lockkeeper plan")
        .await
        .unwrap();
    let arrived = receiver.take();
    let ids: BTreeSet<_> = arrived
        .iter()
        .map(|(headers, _)| headers["x-github-delivery"].clone())
        .collect();
    assert_eq!(ids.len(), 3);
    for (headers, body) in &arrived {
        let mut mac = Hmac::<Sha256>::new_from_slice(WEBHOOK_SECRET.as_bytes()).unwrap();
        mac.update(body);
        let signature =
            hex::decode(&headers["x-hub-signature-256"].as_bytes()["sha256=".len()..]).unwrap();
        assert!(mac.verify_slice(&signature).is_ok());
        assert!(
            headers["user-agent"]
                .to_str()
                .unwrap()
                .starts_with("GitHub-Hookshot/")
        );
        assert_eq!(
            (&headers["x-github-hook-id"], &headers["content-type"]),
            (&"1".parse().unwrap(), &"application/json".parse().unwrap())
        );
    }
    let outcomes: Vec<_> = rig
        .github
        .deliveries()
        .iter()
        .map(|delivery| delivery.attempts.clone())
        .collect();
    assert_eq!(outcomes, vec![vec![SendAttempt::Answered(202)]; 3]);
}

#[tokio::test]
async fn payloads_have_the_shape_of_githubs_schemas() {
    let rig = Rig::start().await;
    let receiver = Receiver::start(&rig.github).await;
    story(&rig).await.unwrap();
    let (token, body) = (
        installation_token(&rig).await,
        Some(json!({ "body": "Applied." })),
    );
    rig.send(
        Method::POST,
        "/repos/acme/infra/issues/1/comments",
        Some(&token),
        body,
    )
    .await;
    rig.github.set_delivering(Delivering::Immediately).await;
    let definitions = read_package("webhooks-schemas/schema.json")["definitions"].take();
    let arrived = receiver.take();
    assert_eq!(arrived.len(), 15);
    let mut found = BTreeSet::new();
    for delivery in &arrived {
        let name = name(delivery);
        let body: Value = serde_json::from_slice(&delivery.1).unwrap();
        let definition = if name == "push" {
            "push$event".to_owned()
        } else {
            name.replace('.', "$")
        };
        let reference =
            json!({ "$ref": format!("#/definitions/{definition}"), "definitions": definitions });
        let options = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft7)
            .should_validate_formats(true);
        let validator = options.build(&reference).unwrap();
        assert!(
            !validator.is_valid(&json!({})),
            "{name} has no schema that asks for anything"
        );
        found.extend(
            validator
                .iter_errors(&body)
                .map(|error| format!("{name}{}: {:.150}", error.instance_path(), error)),
        );
    }
    assert_eq!(found, BTreeSet::new());
}

#[tokio::test]
async fn held_webhooks_wait_are_lost_and_come_again() {
    let rig = Rig::start().await;
    let receiver = Receiver::start(&rig.github).await;
    rig.github.set_delivering(Delivering::Held).await;
    let number = rig.open_pull().await;
    rig.github
        .comment(REPO, number, "bob", "lockkeeper plan")
        .await
        .unwrap();
    assert_eq!((receiver.names().len(), rig.github.held().len()), (0, 3));
    assert_eq!(rig.github.deliver_next().await.unwrap().event, "push");
    let lost = rig.github.lose_next().unwrap();
    assert_eq!(lost.action.as_deref(), Some("opened"));
    assert_eq!(receiver.names(), ["push"]);
    let sent = rig.github.deliver_next().await.unwrap();
    assert_eq!(sent.outcome(), Some(&SendAttempt::Answered(202)));
    rig.github.redeliver(sent.id).await.unwrap();
    rig.github.redeliver(lost.id).await.unwrap();
    let arrived = receiver.take();
    let ids: Vec<_> = arrived
        .iter()
        .map(|(headers, _)| headers["x-github-delivery"].to_str().unwrap())
        .collect();
    assert_eq!(ids, [sent.id, sent.id, lost.id].map(|id| id.to_string()));
    assert!(rig.github.deliver_next().await.is_none());
    rig.github
        .comment(REPO, number, "bob", "lockkeeper apply")
        .await
        .unwrap();
    rig.github.set_delivering(Delivering::Immediately).await;
    assert_eq!(receiver.names(), ["issue_comment.created"]);
}

#[tokio::test]
async fn comments_of_the_bot_come_back_as_webhooks_too() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let waiting = rig.github.comment_by(REPO, number, "lockbot", 0);
    let (waited, posted) = tokio::join!(
        waiting,
        rig.post(
            "/repos/acme/infra/issues/1/comments",
            json!({ "body": "Planned." })
        )
    );
    assert_eq!(waited.unwrap().id, posted.body["id"].as_u64().unwrap());
    let delivery = rig.github.deliveries().pop().unwrap();
    assert_eq!(
        (delivery.event.as_str(), delivery.action.as_deref()),
        ("issue_comment", Some("created"))
    );
    assert_eq!(delivery.recorded.body["sender"]["login"], "lockbot");
    assert_eq!(delivery.recorded.body["comment"]["id"], posted.body["id"]);
}

#[tokio::test]
async fn a_change_of_base_tells_what_the_base_was() {
    let rig = Rig::start().await;
    let number = rig.open_pull().await;
    let before = rig.github.pull(REPO, number).unwrap().base;
    rig.github
        .push(REPO, "release", &[Change::write("r.tf", "x\n")])
        .await
        .unwrap();
    rig.github
        .change_base(REPO, number, "alice", "release")
        .await
        .unwrap();
    let edited = rig.github.deliveries().pop().unwrap().recorded.body;
    assert_eq!(
        edited["changes"]["base"],
        json!({ "ref": { "from": "main" }, "sha": { "from": before } })
    );
    assert_eq!(edited["pull_request"]["base"]["ref"], "release");
}

#[tokio::test]
async fn the_same_story_has_the_same_commits_and_deliveries() {
    let mut stories = Vec::new();
    for _ in 0..2 {
        let rig = Rig::start().await;
        story(&rig).await.unwrap();
        let base_url = rig.github.base_url().to_owned();
        let bodies = rig.github.deliveries().into_iter().map(|delivery| {
            let RecordedDelivery { mut headers, body } = delivery.recorded;
            headers.retain(|name, _| {
                name != "X-Hub-Signature-256" && name != "X-GitHub-Enterprise-Host"
            });
            let port = base_url.rsplit(':').next().unwrap_or_default();
            (
                headers,
                body.to_string()
                    .replace(&format!("127.0.0.1:{port}"), "HOST"),
            )
        });
        stories.push(bodies.collect::<Vec<_>>());
    }
    assert_eq!(stories[0], stories[1]);
}

#[tokio::test]
async fn drafts_are_drafts_from_the_start() {
    let rig = Rig::start().await;
    rig.github
        .push(REPO, "wip", &[Change::write("w.tf", "x\n")])
        .await
        .unwrap();
    rig.github
        .open_pull(REPO, NewPull::from_branch("wip").draft())
        .await
        .unwrap();
    let opened = rig.github.deliveries().pop().unwrap().recorded.body;
    assert_eq!(
        (
            &opened["pull_request"]["draft"],
            &opened["pull_request"]["mergeable"]
        ),
        (&json!(true), &Value::Null)
    );
    assert_eq!(opened["installation"]["id"], 70);
}
