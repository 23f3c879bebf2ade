//! Compares the webhook of GitHub with Octokit: its example payloads, and its signatures.

use std::fs;
use std::path::Path;

use axum::http::{HeaderMap, HeaderName};
use lockkeeper::config::server::RepoAllowlist;
use lockkeeper::forges::WebhookSource as _;
use lockkeeper::forges::github::webhook::sign;
use lockkeeper::forges::github::{GitHub, GitHubWebhook};
use lockkeeper::model::Event;
use lockkeeper::secret::Secret;
use serde_json::{Map, Value, json};

use super::tools::{npm, run};

fn webhook(secrets: &[&str]) -> GitHubWebhook {
    let secrets = secrets.iter().map(|secret| Secret::new(secret)).collect();
    GitHubWebhook::new("github.com".parse().unwrap(), secrets)
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

/// Brings a signed delivery to the webhook of a connection, which serves all repositories.
pub fn bring(github: &GitHub, event: &str, body: &Value) {
    let secret = Secret::new("the-webhook-secret");
    let served = RepoAllowlist::new(&["*"]).unwrap();
    let webhook = github.webhook(vec![secret.clone()], served);
    let body = body.to_string();
    let headers = headers(
        json!({
            "X-GitHub-Event": event, "X-GitHub-Delivery": "1",
            "X-Hub-Signature-256": sign(&secret, body.as_bytes()),
        })
        .as_object()
        .unwrap(),
    );
    let delivery = webhook.recognise(&headers).unwrap().unwrap();
    let mut check = webhook.begin_check(&headers).unwrap().unwrap();
    check.update(body.as_bytes());
    let sender = check.finish().unwrap();
    webhook
        .parse(&delivery, &headers, body.as_bytes(), Some(&sender))
        .unwrap();
}

/// Returns the deliveries that the folder of the webhook has recordings of.
fn recordings() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/forges/github/webhook/recordings");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|kind| kind == "json"))
        .map(|file| serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap())
        .collect()
}

/// Returns the reason of a refusal.
fn verify(secret: &str, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let mut check = webhook(&[secret])
        .begin_check(headers)
        .unwrap()
        .expect("a webhook with a secret is checked");
    check.update(body);
    check.finish().map(drop).map_err(|error| error.to_string())
}

#[test]
fn every_example_of_octokit_is_understood() {
    let path = npm().join("node_modules/@octokit/webhooks-examples/api.github.com/index.json");
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|_| panic!("{} is missing: run `make setup`", path.display()));
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let webhook = webhook(&[]);
    let (mut used, mut ignored) = (0, 0);
    for event in &events {
        let name = event["name"].as_str().unwrap();
        let headers = headers(
            json!({"X-GitHub-Event": name, "X-GitHub-Delivery": "1"})
                .as_object()
                .unwrap(),
        );
        let delivery = webhook.recognise(&headers).unwrap().unwrap();
        for (index, body) in event["examples"].as_array().unwrap().iter().enumerate() {
            let parsed = webhook
                .parse(&delivery, &headers, body.to_string().as_bytes(), None)
                .unwrap_or_else(|error| panic!("example {index} of {name}: {error}"));
            match parsed.event {
                Event::Ignored { .. } => ignored += 1,
                Event::Pull(_) | Event::Comment(_) | Event::Repositories { .. } => used += 1,
            }
        }
    }
    // The package has 12 uses of pull requests, and 28 of events of repositories. All of its comments are on issues.
    assert!(
        used >= 40 && ignored >= 285,
        "{used} used, {ignored} ignored"
    );
}

#[test]
fn signatures_of_octokit_are_accepted() {
    let secrets = ["hunter2", "It's a Secret to Everybody", "schlüssel 🔑"];
    let bodies: Vec<String> = recordings()
        .iter()
        .map(|recording| recording["body"].to_string())
        .collect();
    let input = json!({"secrets": secrets, "bodies": bodies}).to_string();
    let script = "import { sign } from '@octokit/webhooks-methods';
        import { readFileSync } from 'node:fs';
        const { secrets, bodies } = JSON.parse(readFileSync(0, 'utf8'));
        const all = secrets.map((secret) => Promise.all(bodies.map((body) => sign(secret, body))));
        console.log(JSON.stringify(await Promise.all(all)));";
    let output = run(
        "node",
        &["--input-type=module", "-e", script],
        &npm(),
        input.as_bytes(),
    );
    let signatures: Vec<Vec<String>> = serde_json::from_slice(&output).unwrap();
    for (secret, signatures) in secrets.iter().zip(&signatures) {
        for (body, signature) in bodies.iter().zip(signatures) {
            let headers = headers(
                json!({"X-Hub-Signature-256": signature})
                    .as_object()
                    .unwrap(),
            );
            assert_eq!(verify(secret, &headers, body.as_bytes()), Ok(()));
            let other = verify("another", &headers, body.as_bytes()).unwrap_err();
            assert!(other.starts_with("the signature does not match the body"));
        }
    }
}
