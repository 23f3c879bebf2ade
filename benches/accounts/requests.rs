//! Measures requests to the API of accounts.

use std::time::Instant;

use anyhow::ensure;
use reqwest::Method;

use super::{AccountsBench, copy};
use crate::report::Table;
use crate::server::{PASSWORD, Server};
use crate::stats::Samples;

/// Number of requests of each kind.
const ROUNDS: u32 = 300;

/// Name of a kind of request, whether the administrator sends it, and the path of each.
type RequestKind<'a> = (&'a str, bool, &'a dyn Fn(u32) -> String);

/// Measures the API, with a row for each kind of request.
pub async fn measure(bench: &AccountsBench<'_>, server: &Server) -> anyhow::Result<Table> {
    let mut table = Table::new(&["requests, ms", "p50", "p90", "p99", "max", "requests"]);
    let admin = ("lockkeeper".to_owned(), PASSWORD.to_owned());
    let place = 7;
    let own = (copy::username(place), bench.password(place)?);
    // Each request is about something else, as far as possible.
    let kinds: [RequestKind<'_>; 9] = [
        ("a page without accounts", false, &|_| "healthz".to_owned()),
        ("query: a rare word", true, &|n| {
            format!("api/accounts/?q={}&n=10", n * 331)
        }),
        ("query: a word of 4,000 names", true, &|n| {
            let words = ["garcia", "okafor", "zhang", "weber", "silva"];
            format!("api/accounts/?q={}&n=25", words[n as usize % words.len()])
        }),
        ("query: a word that nobody has", true, &|n| {
            format!("api/accounts/?q=nobody{n}&n=10")
        }),
        ("query: email:", true, &|n| {
            format!("api/accounts/?q=email:{}", copy::email(n * 331))
        }),
        ("suggest", true, &|n| {
            let typed = ["ad", "kow", "in", "jonas la", "q"];
            let typed = typed[n as usize % typed.len()].replace(' ', "+");
            format!("api/accounts/?suggest&q={typed}")
        }),
        ("watchers of a project, 500 of 1,000", true, &|_| {
            format!("api/accounts/?q=watches:{}&n=500", copy::PROJECT)
        }),
        ("stars of an account", false, &|_| {
            "api/accounts/self/starred.changes".to_owned()
        }),
        ("reviewed flags of a patch set", false, &|_| {
            // The flags of account N are on change 1 + N % 20,000.
            let change = 1 + copy::account(place).get() % copy::CHANGES;
            format!("api/changes/{change}/revisions/2/files/?reviewed")
        }),
    ];
    for (what, by_admin, path) in kinds {
        let who = if by_admin { &admin } else { &own };
        let samples = load(server, who, path).await?;
        table.row(format!("{}, {what}", bench.name), samples.cells());
    }
    Ok(table)
}

async fn load(
    server: &Server,
    (name, password): &(String, String),
    path: &dyn Fn(u32) -> String,
) -> anyhow::Result<Samples> {
    let client = reqwest::Client::new();
    let mut samples = Samples::default();
    for round in 0..=ROUNDS {
        let url = server.events.replace("events", &path(round));
        let since = Instant::now();
        let request = client.request(Method::GET, &url);
        let answer = request.basic_auth(name, Some(password)).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status == 200, "{url}: {status}\n{text}");
        // The first request opens the connection and checks the password.
        if round > 0 {
            samples.push(since.elapsed());
        }
    }
    Ok(samples)
}
