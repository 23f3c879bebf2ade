//! Sends webhooks at a fixed pace, whatever the server does (open loop).
//!
//! The time of a request runs from the moment it was due, not from when it was sent: a server that stalls is charged for
//! every request that came due meanwhile, which a client that waits for answers would never have sent.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use reqwest::{Client, StatusCode};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::deliveries::Signed;
use crate::stats::Samples;

/// GitHub gives a receiver this long (GitHub webhooks: best practices).
const TIMEOUT: Duration = Duration::from_secs(10);

/// How a load was answered.
#[derive(Debug, Default)]
pub struct Answers {
    /// From due to answered 200.
    pub latency: Samples,
    /// From due to sent: how much of it is our own doing.
    pub late: Samples,
    /// Anything but 200.
    pub errors: Vec<String>,
}

/// Sends the deliveries, `rate` in a second, and waits for all answers.
pub async fn send(url: &str, deliveries: Vec<Signed>, rate: u32) -> anyhow::Result<Answers> {
    let client = Client::builder()
        .no_proxy()
        .timeout(TIMEOUT)
        .build()
        .context("cannot make an HTTP client")?;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (url, runtime) = (url.to_owned(), Handle::current());
    // A thread of its own, because the timers of the runtime are only exact to a millisecond.
    let pace = tokio::task::spawn_blocking(move || {
        let start = Instant::now() + Duration::from_millis(50);
        for (number, delivery) in (0..).zip(deliveries) {
            let due = start + Duration::from_secs(1) * number / rate;
            wait_until(due);
            let (client, url, sender) = (client.clone(), url.clone(), sender.clone());
            runtime.spawn(async move {
                let late = due.elapsed();
                let answer = post(&client, &url, delivery).await;
                // The receiver is there until the last sender is gone.
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

/// Sleeps; the kernel's timers are exact to a tenth of a millisecond.
pub fn wait_until(due: Instant) {
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}
