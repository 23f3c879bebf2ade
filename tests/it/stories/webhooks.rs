//! Stories about the webhook endpoint: accepted requests, stored deliveries, and answers.

use std::fmt::Write as _;

use futures::future::join_all;
use insta::assert_snapshot;
use lockkeeper::context::Ctx;
use lockkeeper::emulator::{Delivering, RecordedDelivery, SendAttempt};
use lockkeeper::http;
use lockkeeper::model::PullNumber;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::bot::{Bot, REPO, WebhookRequest, comment_payload};
use crate::support::db::{Backend, story};
use crate::support::log;

story!(
    a_signed_delivery_is_taken_as_json_and_as_a_form,
    any_of_several_secrets_may_sign_while_they_are_rotated,
    a_delivery_without_a_good_signature_is_refused_and_leaves_nothing,
    unsigned_deliveries_are_taken_only_when_allowed,
    a_payload_that_cannot_be_read_is_refused_and_the_log_says_where,
    a_body_over_the_limit_is_refused,
    what_asks_for_nothing_is_kept_with_the_reason,
    the_same_delivery_is_one_run_however_often_it_comes,
    the_same_comment_in_two_deliveries_is_one_command,
    every_recorded_payload_is_answered_and_its_repetition_does_nothing,
    while_the_database_is_away_the_door_says_so_and_a_redelivery_works,
    a_delivery_that_was_answered_is_worked_on_after_a_crash,
);

const PULL: PullNumber = PullNumber(1);

fn help(id: u64) -> serde_json::Value {
    comment_payload(PULL, id, "alice", "lockkeeper help")
}

async fn a_signed_delivery_is_taken_as_json_and_as_a_form(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    let json = bot
        .post(&WebhookRequest::new("d-1", "issue_comment", &help(901)))
        .await;
    let form = bot
        .post(&WebhookRequest::new("d-2", "issue_comment", &help(902)).into_form())
        .await;
    assert_eq!((json.0, form.0), (200, 200));
    assert_eq!(json.1, "accepted\n");
    bot.settle().await;
    assert_eq!(bot.read_comments(pull).len(), 2);
    bot.end(&[]).await;
}

async fn any_of_several_secrets_may_sign_while_they_are_rotated(backend: Backend) {
    let (mut bot, _) = Bot::talking(backend, &[]).await;
    let ping =
        |id: &str, secret: &str| WebhookRequest::new(id, "ping", &json!({})).signed_with(secret);
    let status = async |bot: &Bot, request: WebhookRequest| bot.post(&request).await.0;
    assert_eq!(
        status(&bot, ping("d-1", "the-next-webhook-secret")).await,
        401
    );
    bot.restart_with(&[(
        "gh-webhook-secret",
        &["the-webhook-secret", "the-next-webhook-secret"],
    )])
    .await;
    assert_eq!(status(&bot, ping("d-2", "the-webhook-secret")).await, 200);
    assert_eq!(
        status(&bot, ping("d-3", "the-next-webhook-secret")).await,
        200
    );
    assert_eq!(status(&bot, ping("d-4", "a-third-secret")).await, 401);
    bot.restart_with(&[("gh-webhook-secret", &["the-next-webhook-secret"])])
        .await;
    assert_eq!(status(&bot, ping("d-5", "the-webhook-secret")).await, 401);
    assert_eq!(
        status(&bot, ping("d-6", "the-next-webhook-secret")).await,
        200
    );
    bot.end(&[]).await;
}

async fn a_delivery_without_a_good_signature_is_refused_and_leaves_nothing(backend: Backend) {
    let (bot, _) = Bot::talking(backend, &[]).await;
    let before = bot.deliveries().await;
    let signed = WebhookRequest::new("d-1", "issue_comment", &help(901));
    let forged = [
        signed.clone().unsigned(),
        signed.clone().signed_with("a-guess"),
        signed.clone().unsigned().with(
            "x-hub-signature",
            "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59",
        ),
        signed.clone().with("x-hub-signature-256", "sha256=00"),
        WebhookRequest::new("d-1", "issue_comment", &help(902))
            .with("x-hub-signature-256", "sha256="),
    ];
    for request in &forged {
        let answer = bot.post(request).await;
        assert_eq!(
            answer,
            (
                401,
                "the signature of this delivery is missing or wrong\n".to_owned()
            )
        );
    }
    assert_eq!(bot.deliveries().await, before);
    bot.end(&[]).await;
}

async fn unsigned_deliveries_are_taken_only_when_allowed(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    let unsigned =
        |id: u64| WebhookRequest::new(&format!("d-{id}"), "issue_comment", &help(id)).unsigned();
    assert_eq!(bot.post(&unsigned(901)).await.0, 401);
    bot.restart_with(&[
        ("gh-webhook-secret", &[]),
        ("allow-unsigned-webhooks", &["true"]),
    ])
    .await;
    assert_eq!(bot.post(&unsigned(902)).await.0, 200);
    bot.settle().await;
    assert!(
        bot.answer(pull).contains("lockkeeper plan"),
        "the unsigned comment is answered"
    );
    bot.end(&[]).await;
}

async fn a_payload_that_cannot_be_read_is_refused_and_the_log_says_where(backend: Backend) {
    let (bot, _) = Bot::talking(backend, &[]).await;
    let before = bot.deliveries().await;
    let pull = |number: serde_json::Value| {
        let body = json!({
            "action": "opened", "pull_request": {"number": number}, "repository": {"full_name": REPO},
            "sender": {"login": "alice"},
        });
        WebhookRequest::new("d-1", "pull_request", &body)
    };
    let told = [
        answer_with_log(&bot, pull(json!("one"))).await,
        answer_with_log(&bot, pull(json!(-4))).await,
        answer_with_log(
            &bot,
            WebhookRequest::raw(
                "d-1",
                "issue_comment",
                "application/json",
                b"{\"action\": ".to_vec(),
            ),
        )
        .await,
        answer_with_log(
            &bot,
            WebhookRequest::raw("d-1", "issue_comment", "text/xml", b"<action/>".to_vec()),
        )
        .await,
        answer_with_log(&bot, WebhookRequest::new("", "issue_comment", &help(901))).await,
        answer_with_log(
            &bot,
            WebhookRequest::new("d-1", "issue_comment", &help(901)).without("x-github-event"),
        )
        .await,
        answer_with_log(
            &bot,
            WebhookRequest::new("d-1", "Note Hook", &help(901))
                .without("x-github-delivery")
                .without("x-github-event")
                .with("x-gitlab-event", "Note Hook"),
        )
        .await,
    ];
    assert_snapshot!(told.join("\n"), @r#"
    400 Bad Request: the payload cannot be read: at `pull_request.number`: invalid type: string "one", expected i64 at line 1 column 49
    log:  WARN lockkeeper::http::events: Refused a delivery that cannot be read delivery="d-1" event="pull_request" error=at `pull_request.number`: invalid type: string "one", expected i64 at line 1 column 49

    400 Bad Request: the payload cannot be read: at `pull_request.number`: -4 is not the number of a pull request
    log:  WARN lockkeeper::http::events: Refused a delivery that cannot be read delivery="d-1" event="pull_request" error=at `pull_request.number`: -4 is not the number of a pull request

    400 Bad Request: the payload cannot be read: at `action`: EOF while parsing a value at line 1 column 11
    log:  WARN lockkeeper::http::events: Refused a delivery that cannot be read delivery="d-1" event="issue_comment" error=at `action`: EOF while parsing a value at line 1 column 11

    400 Bad Request: the payload cannot be read: the Content-Type `text/xml` is neither application/json nor application/x-www-form-urlencoded
    log:  WARN lockkeeper::http::events: Refused a delivery that cannot be read delivery="d-1" event="issue_comment" error=the Content-Type `text/xml` is neither application/json nor application/x-www-form-urlencoded

    400 Bad Request: the header X-GitHub-Delivery is empty or too long, or has characters that GitHub does not use
    log: 
    400 Bad Request: the header X-GitHub-Event is missing
    log: 
    400 Bad Request: the headers are not those of a configured forge. This server accepts webhooks of GitHub (github.test)
    log:
    "#);
    assert_eq!(bot.deliveries().await, before);
    bot.end(&[]).await;
}

/// Returns the answer to a delivery, and the lines of the log about it.
async fn answer_with_log(bot: &Bot, request: WebhookRequest) -> String {
    let listening = log::listen();
    let answer = http::webhook_router(Ctx::clone(&bot.replica.ctx))
        .oneshot(request.into_request())
        .await
        .unwrap();
    let heard = listening.end();
    let ours = |line: &&str| line.contains(" lockkeeper::http::events: ");
    let logged: String = heard.split_inclusive('\n').filter(ours).collect();
    let status = answer.status();
    let body = axum::body::to_bytes(answer.into_body(), 10_000)
        .await
        .unwrap();
    format!("{status}: {}log: {logged}", String::from_utf8_lossy(&body))
}

async fn a_body_over_the_limit_is_refused(backend: Backend) {
    let (bot, _) = Bot::talking(backend, &[]).await;
    let before = bot.deliveries().await;
    let push = |size: usize| {
        WebhookRequest::raw("d-1", "star", "application/json", vec![b' '; size]).into_request()
    };
    let router = || http::webhook_router(Ctx::clone(&bot.replica.ctx));
    let over = router().oneshot(push(25 * 1024 * 1024 + 1)).await.unwrap();
    assert_eq!(over.status(), 413);
    assert_eq!(bot.deliveries().await, before);
    let just = router().oneshot(push(25 * 1024 * 1024)).await.unwrap();
    assert_eq!(just.status(), 200);
    bot.end(&[]).await;
}

async fn what_asks_for_nothing_is_kept_with_the_reason(backend: Backend) {
    let (bot, pull) = Bot::talking(backend, &[]).await;
    let comment = |id: u64| comment_payload(pull, id, "alice", "lockkeeper help");
    let (mut on_issue, mut edited, mut deleted) = (comment(901), comment(902), comment(903));
    on_issue["issue"]["pull_request"] = serde_json::Value::Null;
    edited["action"] = json!("edited");
    deleted["action"] = json!("deleted");
    let talk = comment_payload(pull, 904, "alice", "Looks good to me.");
    let requests = [
        WebhookRequest::new("d-1", "ping", &json!({"zen": "Keep it logically awesome."})),
        WebhookRequest::new("d-2", "deployment_protection_rule", &json!([])),
        WebhookRequest::new("d-3", "issue_comment", &on_issue),
        WebhookRequest::new("d-4", "issue_comment", &edited),
        WebhookRequest::new("d-5", "issue_comment", &deleted),
        WebhookRequest::new("d-6", "issue_comment", &talk),
    ];
    for request in &requests {
        assert_eq!(bot.post(request).await.0, 200);
    }
    bot.settle().await;
    assert_snapshot!(bot.deliveries().await.join("\n"), @"
    push handled
    pull_request ignored: automatic plans are disabled (--disable-autoplan)
    ping ignored: a ping: GitHub only checks that the webhook is reachable
    deployment_protection_rule ignored: events of type `deployment_protection_rule` are not used
    issue_comment ignored: the comment is on an issue, not on a pull request
    issue_comment ignored: edited comments are not read again. Write a new comment
    issue_comment ignored: a comment was deleted. Its command stays in effect
    issue_comment ignored: the comment does not start with a word for the bot
    ");
    bot.end(&[]).await;
}

async fn the_same_delivery_is_one_run_however_often_it_comes(backend: Backend) {
    let files = [("network/main.tf", "# fake: add 1 change 0 destroy 0\n")];
    let mut bot = Bot::new(backend, &[]).await;
    bot.github.set_delivering(Delivering::Held).await;
    bot.push("wider", &files).await;
    let opened = lockkeeper::emulator::NewPull::from_branch("wider");
    let pull = bot.github.open_pull(REPO, opened).await.unwrap();
    bot.settle().await;
    let delivery = bot
        .github
        .deliveries()
        .into_iter()
        .find(|d| d.event == "pull_request")
        .unwrap();
    let again = bot.github.redeliver(delivery.id).await.unwrap();
    assert_eq!(again.outcome(), Some(&SendAttempt::Answered(200)));
    bot.settle().await;
    assert_eq!(bot.read_comments(pull).len(), 1);

    let request = WebhookRequest::new(
        "d-1",
        "issue_comment",
        &comment_payload(pull, 901, "alice", "lockkeeper plan"),
    );
    let answers = join_all((0..20).map(|_| bot.post(&request))).await;
    let taken = answers
        .iter()
        .filter(|answer| answer.1 == "accepted\n")
        .count();
    let repeated = answers
        .iter()
        .filter(|answer| answer.1 == "this delivery was already accepted\n")
        .count();
    assert!(answers.iter().all(|answer| answer.0 == 200), "{answers:?}");
    assert_eq!((taken, repeated), (1, 19));
    bot.settle().await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    assert_eq!(
        bot.calls()
            .iter()
            .filter(|call| *call == "plan network")
            .count(),
        2,
        "one by itself, one by comment"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn the_same_comment_in_two_deliveries_is_one_command(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    for id in ["d-1", "d-2"] {
        let answer = bot
            .post(&WebhookRequest::new(id, "issue_comment", &help(901)))
            .await;
        assert_eq!(answer, (200, "accepted\n".to_owned()));
    }
    bot.settle().await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    bot.end(&[]).await;
}

async fn every_recorded_payload_is_answered_and_its_repetition_does_nothing(backend: Backend) {
    let (mut bot, first) = Bot::talking(backend, &[]).await;
    let second = bot
        .open_pull("other", &[("README.md", "Other networks.\n")])
        .await;
    bot.github.close(REPO, second, "alice").await.unwrap();
    bot.settle().await;
    let infra = "github.test/acme/infra".parse().unwrap();
    let id = bot
        .store()
        .repository_id(&infra)
        .await
        .unwrap()
        .expect("the deliveries of before have told it");
    let mut answers = String::new();
    for (name, event, request) in recorded(id) {
        let before = bot.deliveries().await.len();
        let told = bot.post(&request).await;
        bot.settle().await;
        let (kept, comments) = (
            bot.deliveries().await,
            bot.read_comments(first).len() + bot.read_comments(second).len(),
        );
        let what = kept[before].strip_prefix(&event).unwrap();
        writeln!(answers, "{name}: {},{what}; {comments} comments", told.0).unwrap();
        assert_eq!(bot.post(&request).await.0, told.0, "{name} comes again");
        bot.settle().await;
        assert_eq!(bot.deliveries().await, kept, "{name} comes again");
        assert_eq!(
            bot.read_comments(first).len() + bot.read_comments(second).len(),
            0,
            "{name} comes again"
        );
    }
    assert_snapshot!(answers, @"
    check_run.completed: 200, ignored: events of type `check_run` are not used; 0 comments
    installation.created: 200, handled; 0 comments
    issue_comment.created_by_bot: 200, ignored: the comment does not start with a word for the bot; 0 comments
    issue_comment.created_on_issue: 200, ignored: the comment is on an issue, not on a pull request; 0 comments
    issue_comment.created_on_pull: 200, ignored: the comment has more than one line of text; 0 comments
    issue_comment.created_on_pull_through_app: 200, handled; 1 comments
    issue_comment.deleted: 200, ignored: a comment was deleted. Its command stays in effect; 0 comments
    issue_comment.edited: 200, ignored: edited comments are not read again. Write a new comment; 0 comments
    ping: 200, ignored: a ping: GitHub only checks that the webhook is reachable; 0 comments
    pull_request.closed: 200, handled; 0 comments
    pull_request.closed_fork_deleted: 200, handled; 0 comments
    pull_request.closed_merged: 200, handled; 0 comments
    pull_request.converted_to_draft: 200, ignored: a pull request that becomes a draft needs no new plan; 0 comments
    pull_request.edited_base: 200, ignored: the delivery is late: the pull request is closed; 0 comments
    pull_request.edited_title: 200, ignored: only the title or the description of the pull request was edited; 0 comments
    pull_request.labeled: 200, ignored: the action `labeled` of a pull request is not used; 0 comments
    pull_request.opened: 200, ignored: the delivery is late: the pull request is closed; 0 comments
    pull_request.opened_draft_through_app: 200, ignored: the delivery is late: the pull request is closed; 0 comments
    pull_request.ready_for_review: 200, ignored: the delivery is late: the pull request is closed; 0 comments
    pull_request.reopened: 200, ignored: automatic plans are disabled (--disable-autoplan); 0 comments
    pull_request.review_requested: 200, ignored: the action `review_requested` of a pull request is not used; 0 comments
    pull_request.synchronize: 200, ignored: automatic plans are disabled (--disable-autoplan); 0 comments
    pull_request_review.submitted: 200, ignored: events of type `pull_request_review` are not used; 0 comments
    pull_request_review_comment.created: 200, ignored: events of type `pull_request_review_comment` are not used; 0 comments
    push: 200, handled; 0 comments
    ");
    bot.end(&[]).await;
}

/// Returns every recorded payload with its name and event, signed again. The repository in the payloads gets this
/// identifier.
fn recorded(repository: u64) -> Vec<(String, String, WebhookRequest)> {
    let dir = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/forges/github/webhook/recordings"
    );
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    paths.sort();
    assert!(paths.len() > 20, "the recordings are gone");
    paths
        .iter()
        .map(|path| {
            let mut file: RecordedDelivery =
                serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            if let Some(told) = file.body.get_mut("repository") {
                told["id"] = json!(repository);
            }
            let installed = file
                .body
                .get_mut("repositories")
                .and_then(Value::as_array_mut);
            installed
                .into_iter()
                .flatten()
                .for_each(|told| told["id"] = json!(repository));
            let (id, event) = (
                &file.headers["X-GitHub-Delivery"],
                &file.headers["X-GitHub-Event"],
            );
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (
                name,
                event.clone(),
                WebhookRequest::raw(id, event, "application/json", file.body_bytes()),
            )
        })
        .collect()
}

async fn while_the_database_is_away_the_door_says_so_and_a_redelivery_works(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    bot.store().close().await;
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper help")
        .await
        .unwrap();
    let refused = bot.github.deliveries().pop().unwrap();
    assert_eq!(refused.outcome(), Some(&SendAttempt::Answered(503)));
    bot.crash_and_restart().await;
    bot.settle().await;
    assert_eq!(bot.read_comments(pull).len(), 0, "nobody knows of it");
    let again = bot.github.redeliver(refused.id).await.unwrap();
    assert_eq!(again.outcome(), Some(&SendAttempt::Answered(200)));
    bot.settle().await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    bot.end(&[]).await;
}

async fn a_delivery_that_was_answered_is_worked_on_after_a_crash(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper help")
        .await
        .unwrap();
    assert_eq!(
        bot.github.deliveries().pop().unwrap().outcome(),
        Some(&SendAttempt::Answered(200))
    );
    bot.crash_and_restart().await;
    bot.settle().await;
    assert_eq!(bot.read_comments(pull).len(), 1);
    bot.end(&[]).await;
}
