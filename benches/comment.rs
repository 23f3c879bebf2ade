//! Measures the time from a comment that requests a plan until the plan is on the pull request. Terraform itself
//! takes no time here.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use chrono::{DateTime, Utc};
use lockkeeper::clock::{Clock as _, SystemClock};
use lockkeeper::emulator::{Change, Emulator, NewPull};
use lockkeeper::model::PullNumber;
use lockkeeper::store::{RunRow, Store};

use crate::memory::Memory;
use crate::report::{Section, Table};
use crate::server::{self, LOGIN, REPO, Server};
use crate::stats::Samples;
use crate::stub::{self, Call};

/// Number of measured rounds. A round before them clones the repository and finds out the version of the program.
const ROUNDS: u32 = 30;
/// Number of rounds with a large plan.
const LARGE_ROUNDS: u32 = 5;
const DEADLINE: Duration = Duration::from_mins(1);

/// Measures comments and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let dir = work.join("comment");
    std::fs::create_dir(&dir)?;
    stub::install(&dir.join("tools"))?;
    let github = server::github(&dir).await?;
    let pull = open_pull(&github).await?;
    let server = Server::start(&dir, &github).await?;
    github.set_webhook_target(server.events.parse().context("an address makes a URL")?);
    let scene = Scene {
        github,
        pull,
        store: server.store().await?,
        tools: dir.join("tools"),
    };
    let first = scene.round().await.with_context(|| server.log())?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(scene.round().await.with_context(|| server.log())?);
    }
    let memory = Memory::of(server.pid())?.cells();
    stub::enlarge(&scene.tools)?;
    let mut large = Vec::new();
    for _ in 0..LARGE_ROUNDS {
        large.push(scene.round().await.with_context(|| server.log())?);
    }
    let peak = Memory::peak(server.pid())?;
    scene.store.close().await;
    server.stop().await?;
    let mut section = report(&first, &rounds, &large);
    section.note(format!(
        "Server process after the rounds with a small plan: RSS {} MiB, PSS {} MiB; most RSS during those with a large plan: {peak} MiB.",
        memory[0], memory[1]
    ));
    Ok(section)
}

async fn open_pull(github: &Emulator) -> anyhow::Result<PullNumber> {
    github
        .create_repo(
            REPO,
            &[
                ("network/main.tf", "# network\n"),
                ("README.md", "# Infrastructure\n"),
            ],
        )
        .await?;
    let change = Change::write(
        "network/main.tf",
        "resource \"terraform_data\" \"subnet\" {}\n",
    );
    github.push(REPO, "subnet", &[change]).await?;
    Ok(github
        .open_pull(REPO, NewPull::from_branch("subnet").titled("Add a subnet"))
        .await?)
}

struct Scene {
    github: Emulator,
    pull: PullNumber,
    store: Store,
    tools: std::path::PathBuf,
}

/// Times of the events between the comment that requests a plan and the comment that answers it.
struct Round {
    asked: DateTime<Utc>,
    command: DateTime<Utc>,
    run: DateTime<Utc>,
    started: DateTime<Utc>,
    stub: Vec<Call>,
    finished: DateTime<Utc>,
    answered: DateTime<Utc>,
}

impl Scene {
    /// Requests a plan, waits for the answer, and then until the server has nothing left to do.
    async fn round(&self) -> anyhow::Result<Round> {
        let asked = SystemClock.now();
        let comment = self
            .github
            .comment(REPO, self.pull, "alice", "lockkeeper plan")
            .await?;
        let answer = self.github.comment_by(REPO, self.pull, LOGIN, comment);
        let answer = tokio::time::timeout(DEADLINE, answer)
            .await
            .context("no answer on the pull")??;
        let answered = SystemClock.now();
        ensure!(
            answer.body.contains(" to add"),
            "the answer is no plan:\n{}",
            answer.body
        );
        server::drained(&self.store, DEADLINE).await?;
        let command = self
            .store
            .command_list(1)
            .await?
            .pop()
            .context("no command is stored")?;
        let run: RunRow = self
            .store
            .run_list(command.id)
            .await?
            .pop()
            .context("no run is stored")?;
        Ok(Round {
            asked,
            command: command.created_at,
            run: run.created_at,
            started: run.started_at.context("the run has no start")?,
            stub: stub::take_calls(&self.tools)?,
            finished: run.finished_at.context("the run has no end")?,
            answered,
        })
    }
}

impl Round {
    fn total(&self) -> Duration {
        between(self.asked, self.answered)
    }

    fn after_tool(&self) -> Duration {
        let ended = self.stub.iter().map(|call| call.ended).max();
        ended.map_or_else(Duration::default, |ended| between(ended, self.answered))
    }

    fn in_stub(&self) -> Duration {
        self.stub
            .iter()
            .map(|call| between(call.began, call.ended))
            .sum()
    }
}

fn between(from: DateTime<Utc>, to: DateTime<Utc>) -> Duration {
    (to - from).to_std().unwrap_or_default()
}

fn report(first: &Round, rounds: &[Round], large: &[Round]) -> Section {
    let mut table = Table::new(&["ms", "p50", "p90", "p99", "max", "rounds"]);
    let mut row = |name: &str, span: &dyn Fn(&Round) -> Duration| {
        table.row(name, rounds.iter().map(span).collect::<Samples>().cells());
    };
    row("comment to answer", &Round::total);
    row("… without the stub's own time", &|round| {
        round.total().saturating_sub(round.in_stub())
    });
    row("1 comment sent → command stored", &|round| {
        between(round.asked, round.command)
    });
    row("2 → pull read, code fetched, projects found", &|round| {
        between(round.command, round.run)
    });
    row("3 → lock taken, place in the pool", &|round| {
        between(round.run, round.started)
    });
    row("4 → init, plan, plan kept", &|round| {
        between(round.started, round.finished)
    });
    row("  … of that inside the stub", &Round::in_stub);
    row("5 → answer on the pull", &|round| {
        between(round.finished, round.answered)
    });
    table.row(
        "the very first, with clone",
        vec![crate::stats::millis(first.total())],
    );
    let after_tool: Samples = large.iter().map(Round::after_tool).collect();
    table.row("large plan: end of the tool → answer", after_tool.cells());
    let mut section =
        Section::new("Webhook to comment, with a stub for Terraform").with_table(table);
    section.note("Real server, SQLite, git over HTTP from an emulated GitHub in the measuring process; one project; one plan at a time.");
    section.note(
        "Steps from the rows of the command and the run; percentiles of steps do not add up.",
    );
    section.note("The large plan has 5,000 resources and prints 50 MB. The tool has ended when its last call has, which is `show -json`.");
    section
}
