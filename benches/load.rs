//! Sends webhooks at a fixed pace, regardless of the answers of the server (open loop).
//!
//! The time of a request runs from the moment at which it was due, not from when it was sent. A server that stalls is
//! charged for every request that came due meanwhile. A client that waits for answers would never have sent them.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use reqwest::{Client, StatusCode};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::deliveries::Signed;
use crate::stats::Samples;

/// Time after which GitHub gives up on a receiver (GitHub webhooks: best practices).
const TIMEOUT: Duration = Duration::from_secs(10);

/// Answers to one load.
#[derive(Debug, Default)]
pub struct Answers {
    /// Time from the due moment to an answer with 200.
    pub latency: Samples,
    /// Time from the due moment to sending: the share of the latency that this program causes.
    pub late: Samples,
    /// Errors, and answers other than 200.
    pub errors: Vec<String>,
}

/// Sends `rate` deliveries per second and waits for all answers.
pub async fn send(url: &str, deliveries: Vec<Signed>, rate: u32) -> anyhow::Result<Answers> {
    let client = Client::builder()
        .no_proxy()
        .timeout(TIMEOUT)
        .build()
        .context("cannot make an HTTP client")?;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (url, runtime) = (url.to_owned(), Handle::current());
    // A separate thread, because the timers of the runtime are only exact to a millisecond.
    let pace = tokio::task::spawn_blocking(move || {
        let start = Instant::now() + Duration::from_millis(50);
        for (number, delivery) in (0..).zip(deliveries) {
            let due = start + Duration::from_secs(1) * number / rate;
            wait_until(due);
            let (client, url, sender) = (client.clone(), url.clone(), sender.clone());
            runtime.spawn(async move {
                let late = due.elapsed();
                let answer = post(&client, &url, delivery).await;
                // The receiver lives until the last sender is dropped.
                sender.send((late, due.elapsed(), answer)).ok();
            });
        }
    });
    let mut answers = Answers::default();
    while let Some((late, latency, answer)) = receiver.recv().await {
        answers.late.push(late);
        match answer {
            Ok(StatusCode::OK) => answers.latency.push(latency),
            Ok(other) => answers.errors.push(other.to_string()),
            Err(error) => answers.errors.push(error.without_url().to_string()),
        }
    }
    pace.await.context("the pacing thread broke off")?;
    Ok(answers)
}

async fn post(client: &Client, url: &str, delivery: Signed) -> reqwest::Result<StatusCode> {
    let request = delivery
        .headers
        .into_iter()
        .fold(client.post(url), |request, (name, value)| {
            request.header(name, value)
        });
    let response = request.body(delivery.body).send().await?;
    let status = response.status();
    response.bytes().await?;
    Ok(status)
}

/// Sleeps until `due`. The kernel's timers are exact to a tenth of a millisecond.
pub fn wait_until(due: Instant) {
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}
