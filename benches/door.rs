//! Measures how long GitHub waits until a webhook is acknowledged, and the memory of the server before and after.
//!
//! The webhooks are comments by people that contain no command, on pull requests of an allowed repository: the most
//! common case. The server stores each with a job before it answers, and works on those jobs at the same time (P1,
//! P2).

use std::path::Path;
use std::time::Duration;

use chrono::DateTime;
use lockkeeper::store::{DeliveryState, Store};

use crate::deliveries;
use crate::disk;
use crate::load::{self, Answers};
use crate::memory::{Memory, processor_millis};
use crate::report::{Section, Table};
use crate::server::{self, REPO, SECRET, Server};
use crate::stats::{Samples, millis, ratio};

/// Requests per second, and for how many seconds.
const LOADS: [(u32, u32); 2] = [(50, 10), (200, 15)];
/// Pace and seconds of the appends, which are measured before and after the loads.
const APPENDS: (u32, u32) = (200, 4);
/// Time that the server idles before its memory is measured.
const IDLE: Duration = Duration::from_secs(5);
const DRAIN_DEADLINE: Duration = Duration::from_mins(1);

/// Measures the webhook endpoint and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let dir = work.join("door");
    std::fs::create_dir(&dir)?;
    let github = server::github(&dir).await?;
    github.create_repo(REPO, &[("main.tf", "")]).await?;
    let server = Server::start(&dir, &github).await?;
    let mut weight = Table::new(&[
        "server process",
        "RSS MiB",
        "PSS MiB",
        "anonymous MiB",
        "processor ms in 5 s",
    ]);
    weigh("after the start, idle", &server, &mut weight).await?;
    let section = knock(&dir, &server).await?;
    weigh("after both loads, idle", &server, &mut weight).await?;
    server.stop().await?;
    let mut idle = Section::new("Idle server").with_table(weight);
    idle.note("From `/proc/PID/smaps_rollup` and `/proc/PID/stat` of the server process, which has no children then.");
    Ok(section.followed_by(idle))
}

/// Sends the loads, with disk appends before and after them.
async fn knock(dir: &Path, server: &Server) -> anyhow::Result<Section> {
    let mut section = Section::new("Webhook acknowledgement, SQLite on disk, synchronous = FULL");
    let mut appended = append(dir).await?;
    let store = server.store().await?;
    let mut loads = Vec::new();
    for (series, (rate, seconds)) in (1..).zip(LOADS) {
        let sent = deliveries::comments(series, u64::from(rate * seconds), SECRET);
        let answers = load::send(&server.events, sent, rate).await?;
        let backlog = server::drained(&store, DRAIN_DEADLINE).await?;
        describe(rate, &answers, backlog, &mut section);
        loads.push((rate, answers.latency));
    }
    appended.extend(append(dir).await?);
    check_kept(&store, &mut section).await?;
    store.close().await;
    explain(&mut section);
    Ok(section.with_table(table(&loads, &appended)))
}

fn table(loads: &[(u32, Samples)], appended: &Samples) -> Table {
    let mut table = Table::new(&["ms", "p50", "p90", "p99", "max", "samples"]);
    for (rate, latency) in loads {
        table.row(format!("webhook due → answered, {rate}/s"), latency.cells());
    }
    table.row("append + fdatasync of the same bytes", appended.cells());
    for (rate, latency) in loads {
        table.row(
            format!("webhook ÷ append, {rate}/s"),
            times(latency, appended),
        );
    }
    table
}

async fn weigh(when: &str, server: &Server, table: &mut Table) -> anyhow::Result<()> {
    // Work that the last requests left behind has to finish first.
    tokio::time::sleep(IDLE).await;
    let before = processor_millis(server.pid())?;
    tokio::time::sleep(IDLE).await;
    let used = processor_millis(server.pid())? - before;
    let mut cells = Memory::of(server.pid())?.cells();
    cells.push(used.to_string());
    table.row(when, cells);
    Ok(())
}

async fn append(dir: &Path) -> anyhow::Result<Samples> {
    let (rate, seconds) = APPENDS;
    let bodies = deliveries::comments(0, u64::from(rate * seconds), SECRET)
        .into_iter()
        .map(|signed| signed.body);
    let dir = dir.to_owned();
    tokio::task::spawn_blocking(move || disk::append(&dir, bodies, Duration::from_secs(1) / rate))
        .await?
}

fn times(webhooks: &Samples, appends: &Samples) -> Vec<String> {
    [50, 90, 99, 100]
        .iter()
        .map(|&percent| ratio(webhooks.quantile(percent), appends.quantile(percent)))
        .collect()
}

fn describe(rate: u32, answers: &Answers, backlog: Duration, section: &mut Section) {
    let late = millis(answers.late.quantile(99));
    section.note(format!(
        "At {rate}/s: {} errors; every job done {} ms after the last answer; requests sent late by {late} ms (p99), \
         which counts as time of the server.",
        answers.errors.len(),
        backlog.as_millis(),
    ));
    if let Some(error) = answers.errors.first() {
        section.fail(format!(
            "{} webhooks at {rate}/s were not acknowledged: {error}",
            answers.errors.len()
        ));
    }
}

/// Checks that every delivery is stored and was read.
async fn check_kept(store: &Store, section: &mut Section) -> anyhow::Result<()> {
    let sent: u32 = LOADS.iter().map(|(rate, seconds)| rate * seconds).sum();
    let kept = store.delivery_count_since(DateTime::UNIX_EPOCH).await?;
    let count = |states: &[DeliveryState]| -> i64 {
        kept.iter()
            .filter(|(state, _)| states.contains(state))
            .map(|(_, count)| count)
            .sum()
    };
    let read = count(&[DeliveryState::Ignored]);
    section.note(format!(
        "{sent} webhooks sent, {} stored, {read} read without a command.",
        count(DeliveryState::ALL)
    ));
    if read != i64::from(sent) {
        section.fail(format!("of {sent} webhooks {read} were kept and read"));
    }
    Ok(())
}

fn explain(section: &mut Section) {
    let size = deliveries::comments(0, 1, SECRET)
        .iter()
        .map(|signed| signed.body.len())
        .sum::<usize>();
    section.note(format!(
        "Open loop over loopback from another process: signed `issue_comment` webhooks of {size} bytes, all different, \
         on 50 pulls of a served repository; each is committed with its job before it is answered, and the jobs are \
         worked off meanwhile.",
    ));
}
