//! Generates webhooks as GitHub sends them: one recorded request, each time with its own numbers and signature.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use lockkeeper::emulator::RecordedDelivery;
use serde_json::json;
use sha2::Sha256;
use uuid::Uuid;

/// A comment on a pull request.
const RECORDED: &str =
    include_str!("../src/forges/github/webhook/recordings/issue_comment.created_on_pull.json");

/// Text of the comments. Most comments that people write contain no command.
const TEXT: &str =
    "Looks good to me. Shall we give the subnet of the database a name of its own before we merge?";

/// Number of pull requests over which the comments are spread.
const PULLS: u64 = 50;

/// A webhook request that is ready to be sent.
#[derive(Clone, Debug)]
pub struct Signed {
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// Makes comments by people on pull requests of `acme/infra`, no two alike, signed with `secret`. `series` separates
/// the numbers of one load from those of another.
pub fn comments(series: u64, count: u64, secret: &str) -> Vec<Signed> {
    let recorded: RecordedDelivery =
        serde_json::from_str(RECORDED).expect("the recorded delivery is well-formed");
    (0..count)
        .map(|number| comment(recorded.clone(), series, number, secret))
        .collect()
}

fn comment(mut recorded: RecordedDelivery, series: u64, number: u64, secret: &str) -> Signed {
    recorded.body["issue"]["number"] = json!(1 + number % PULLS);
    recorded.body["comment"]["id"] = json!(1_000_000 * series + number);
    recorded.body["comment"]["body"] = json!(TEXT);
    let body = recorded.body_bytes();
    let mut headers = recorded.headers;
    headers.insert(
        "X-GitHub-Delivery".to_owned(),
        Uuid::from_u64_pair(series, number).to_string(),
    );
    headers.insert("X-Hub-Signature-256".to_owned(), signature(secret, &body));
    Signed { headers, body }
}

fn signature(secret: &str, body: &[u8]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}
