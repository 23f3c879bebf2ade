//! Measures a plan of one project while another pull request of the same repository plans 1,000.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use lockkeeper::clock::{Clock as _, SystemClock};
use lockkeeper::model::PullNumber;

use crate::report::{Section, Table};
use crate::server::{self, REPO};
use crate::stats::{Samples, ratio};
use crate::whole::{self, DEADLINE, Stage};

const ROUNDS: usize = 20;
const PROJECTS: usize = 1_000;

/// Measures the plan on the idle server and on the busy one, and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let dir = whole::directory(work, "beside")?;
    let stage = Stage::start(&dir.join("stage"), &[("README.md", "x\n")]).await?;
    stage.push("small", &["small/main.tf".to_owned()]).await?;
    let (small, _) = stage.open("small").await?;
    let mut idle = Vec::new();
    for _ in 0..ROUNDS {
        idle.push(Round::measure(&stage, small).await?);
        server::drained(&stage.store, DEADLINE).await?;
    }
    let paths: Vec<String> = (0..PROJECTS).map(|n| format!("p{n}/main.tf")).collect();
    stage.push("many", &paths).await?;
    let (many, _) = stage.open("many").await?;
    let mut busy = Vec::new();
    while busy.len() < ROUNDS {
        let asked = stage
            .github
            .comment(REPO, many, "alice", "lockkeeper plan")
            .await?;
        // Only rounds that end before the large command does count.
        loop {
            let round = Round::measure(&stage, small).await?;
            if stage.has_answer(many, asked)? {
                break;
            }
            busy.push(round);
        }
        server::drained(&stage.store, DEADLINE).await?;
    }
    stage.stop().await?;
    Ok(report(&idle, &busy))
}

/// Times of the events between the comment that requests a plan and the comment that answers it.
struct Round {
    asked: DateTime<Utc>,
    command: DateTime<Utc>,
    run: DateTime<Utc>,
    started: DateTime<Utc>,
    finished: DateTime<Utc>,
    answered: DateTime<Utc>,
}

impl Round {
    async fn measure(stage: &Stage, pull: PullNumber) -> anyhow::Result<Self> {
        let asked = SystemClock.now();
        let comment = stage
            .github
            .comment(REPO, pull, "alice", "lockkeeper plan")
            .await?;
        stage.answer(pull, comment).await?;
        let answered = SystemClock.now();
        let command = stage.store.command_list(1).await?.pop();
        let command = command.context("no command is stored")?;
        let run = stage.store.run_list(command.id).await?.pop();
        let run = run.context("no run is stored")?;
        Ok(Self {
            asked,
            command: command.created_at,
            run: run.created_at,
            started: run.started_at.context("the run has no start")?,
            finished: run.finished_at.context("the run has no end")?,
            answered,
        })
    }
}

fn report(idle: &[Round], busy: &[Round]) -> Section {
    let mut table = Table::new(&[
        "ms",
        "idle p50",
        "p90",
        "p99",
        "max",
        "rounds",
        "busy p50",
        "p90",
        "p99",
        "max",
        "rounds",
        "busy ÷ idle",
    ]);
    let mut row = |name: &str,
                   from: fn(&Round) -> DateTime<Utc>,
                   to: fn(&Round) -> DateTime<Utc>| {
        let span =
            |round: &Round| -> Duration { (to(round) - from(round)).to_std().unwrap_or_default() };
        let (idle, busy): (Samples, Samples) = (
            idle.iter().map(span).collect(),
            busy.iter().map(span).collect(),
        );
        let compared = ratio(busy.quantile(50), idle.quantile(50));
        let cells = idle.cells().into_iter().chain(busy.cells());
        table.row(name, cells.chain([compared]));
    };
    row("comment to answer", |it| it.asked, |it| it.answered);
    row(
        "1 comment sent → command stored",
        |it| it.asked,
        |it| it.command,
    );
    row(
        "2 → pull read, code fetched, projects found",
        |it| it.command,
        |it| it.run,
    );
    row(
        "3 → lock taken, place in the pool",
        |it| it.run,
        |it| it.started,
    );
    row("4 → plan, plan kept", |it| it.started, |it| it.finished);
    row("5 → answer on the pull", |it| it.finished, |it| it.answered);
    let mut section =
        Section::new("A plan of one project while 1,000 are planned in another pull request")
            .with_table(table);
    section.note("Both pull requests are of one repository. The workflow does nothing. The server with its default settings, its runs and the emulated GitHub share the machine.");
    section
}
