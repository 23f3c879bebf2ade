//! Stories about every kind of webhook that GitHub is known to send, for an existing repository and pull request.
//! Each is accepted and processed, and the pull request is unchanged for the people who work on it afterwards.

use std::path::Path;

use lockkeeper::model::PullNumber;
use serde_json::{Value, json};

use crate::stories::NETWORK;
use crate::support::bot::{Bot, REPO, WebhookRequest};
use crate::support::db::{Backend, story};

story!(recorded_and_published_payloads_settle_against_open_pull_requests);

/// Name of the event, source of the payload, and the payload.
type Payload = (String, String, Value);

fn recorded() -> Vec<Payload> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/forges/github/webhook/recordings");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|kind| kind == "json"))
        .collect();
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let mut recording: Value =
            serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let header = |(name, value): (&String, &Value)| {
            name.eq_ignore_ascii_case("x-github-event")
                .then(|| value.as_str().unwrap().to_owned())
        };
        let event = recording["headers"]
            .as_object()
            .unwrap()
            .iter()
            .find_map(header)
            .expect("an event");
        (event, file.display().to_string(), recording["body"].take())
    };
    files.iter().map(read).collect()
}

fn published() -> Vec<Payload> {
    let path = ".tools/npm/node_modules/@octokit/webhooks-examples/api.github.com/index.json";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|_| panic!("{} is missing: run `make setup`", path.display()));
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let of = |event: &Value| {
        let name = event["name"].as_str().unwrap().to_owned();
        let examples = event["examples"].as_array().unwrap().iter().enumerate();
        examples
            .map(|(n, body)| (name.clone(), format!("example {n} of {name}"), body.clone()))
            .collect::<Vec<_>>()
    };
    events.iter().flat_map(of).collect()
}

/// Returns the payload, changed to concern our repository and this pull request.
fn told_of(mut body: Value, pull: PullNumber, head: &str) -> Value {
    let (owner, name) = REPO.split_once('/').unwrap();
    let ours = |repo: &mut Value| {
        if let Some(repo) = repo.as_object_mut() {
            // Without an identifier, the name counts.
            repo.remove("id");
            repo.insert("full_name".to_owned(), json!(REPO));
            repo.insert("name".to_owned(), json!(name));
            repo.insert(
                "owner".to_owned(),
                json!({"login": owner, "type": "Organization"}),
            );
        }
    };
    ours(&mut body["repository"]);
    for list in ["repositories", "repositories_added", "repositories_removed"] {
        body.get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .for_each(ours);
    }
    if body["pull_request"].is_object() {
        body["number"] = json!(pull.0);
        let told = &mut body["pull_request"];
        told["number"] = json!(pull.0);
        for side in ["base", "head"] {
            ours(&mut told[side]["repo"]);
        }
        told["base"]["ref"] = json!("main");
        told["head"]["sha"] = json!(head);
    }
    if body["issue"].is_object() {
        body["issue"]["number"] = json!(pull.0);
        body["issue"]["pull_request"] = json!({});
    }
    body
}

async fn recorded_and_published_payloads_settle_against_open_pull_requests(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull(
            "wider",
            &[("network/main.tf", "# fake: add 2 change 1 destroy 0\n")],
        )
        .await;
    bot.read_comments(pull);
    let head = bot.github.pull(REPO, pull).unwrap().head.to_string();
    let payloads: Vec<Payload> = recorded().into_iter().chain(published()).collect();
    assert!(payloads.len() >= 350, "{}", payloads.len());
    for (number, (event, from, body)) in payloads.into_iter().enumerate() {
        let (status, answer) = bot
            .post(&WebhookRequest::new(
                &format!("payload-{number}"),
                &event,
                &told_of(body, pull, &head),
            ))
            .await;
        assert!((200..300).contains(&status), "{from}: {status} {answer}");
        if number % 25 == 0 {
            bot.settle().await;
        }
    }
    bot.settle().await;
    let unfinished = |line: &String| line.split([' ', ':']).nth(1) == Some("received");
    let left: Vec<String> = bot
        .deliveries()
        .await
        .into_iter()
        .filter(unfinished)
        .collect();
    assert_eq!(left, [""; 0]);
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}
