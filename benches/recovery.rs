//! Measures the time from the death of a server until the interrupted plan runs again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use lockkeeper::emulator::{Change, Emulator, NewPull};
use lockkeeper::model::PullNumber;

use crate::locks::durable_postgres;
use crate::report::{Section, Table};
use crate::server::{self, LOGIN, REPO, Server};
use crate::stats::Samples;
use crate::stub;

/// Number of times that the only server dies.
const ROUNDS: u32 = 5;
const DEADLINE: Duration = Duration::from_mins(3);
const LOOK: Duration = Duration::from_millis(5);

/// Measures recovery and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let restarts = restarts(&work.join("restart"))
        .await
        .context("the only server is started again")?;
    let takeover = takeover(&work.join("takeover"))
        .await
        .context("another server takes over")?;
    let mut table = Table::new(&[
        "ms from SIGKILL to the plan running again",
        "p50",
        "p90",
        "p99",
        "max",
        "deaths",
    ]);
    table.row(
        "SQLite, the server is started again at once",
        restarts.cells(),
    );
    table.row("PostgreSQL, another server takes over", takeover.cells());
    let mut section = Section::new("Death of a server in the middle of a plan").with_table(table);
    section.note("Real servers; the stub for Terraform waits until it has been started twice. The start of the new process is contained.");
    section.note("Another server takes over when the lease of the dead one has ended; a shorter lease would take work from servers that only pause.");
    Ok(section)
}

/// A pull request whose plan does not end until the benchmark lets it.
struct Scene {
    github: Emulator,
    pull: PullNumber,
    tools: PathBuf,
}

impl Scene {
    async fn new(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir(dir)?;
        let tools = dir.join("tools");
        stub::install(&tools)?;
        let github = server::github(dir).await?;
        github
            .create_repo(REPO, &[("network/main.tf", "# network\n")])
            .await?;
        github
            .push(
                REPO,
                "subnet",
                &[Change::write("network/main.tf", "# subnet\n")],
            )
            .await?;
        let pull = github
            .open_pull(REPO, NewPull::from_branch("subnet").titled("Add a subnet"))
            .await?;
        Ok(Self {
            github,
            pull,
            tools,
        })
    }

    /// Requests a plan and waits until it runs. Returns the comment.
    async fn begin(&self, server: &Server) -> anyhow::Result<u64> {
        self.github
            .set_webhook_target(server.events.parse().context("an address makes a URL")?);
        stub::hold(&self.tools)?;
        let comment = self
            .github
            .comment(REPO, self.pull, "alice", "lockkeeper plan")
            .await?;
        self.runs(1, server).await?;
        Ok(comment)
    }

    /// Waits until the plan was started this many times.
    async fn runs(&self, times: usize, server: &Server) -> anyhow::Result<()> {
        let since = Instant::now();
        while stub::held(&self.tools) < times {
            if since.elapsed() > DEADLINE {
                bail!("the plan was not started {times} times\n{}", server.log());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Lets the plan end and waits for the answer.
    async fn end(&self, comment: u64) -> anyhow::Result<()> {
        stub::let_go(&self.tools)?;
        let answer = self.github.comment_by(REPO, self.pull, LOGIN, comment);
        tokio::time::timeout(DEADLINE, answer)
            .await
            .context("no answer on the pull")??;
        Ok(())
    }
}

async fn restarts(dir: &Path) -> anyhow::Result<Samples> {
    let scene = Scene::new(dir).await?;
    let mut server = Server::start(dir, &scene.github).await?;
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        let comment = scene.begin(&server).await?;
        let since = Instant::now();
        server.kill();
        server = Server::start(dir, &scene.github).await?;
        scene.runs(2, &server).await?;
        samples.push(since.elapsed());
        scene.end(comment).await?;
    }
    server.stop().await?;
    Ok(samples)
}

async fn takeover(dir: &Path) -> anyhow::Result<Samples> {
    let scene = Scene::new(dir).await?;
    let (url, _) = durable_postgres().await?;
    let server = |name: &str| {
        let own = dir.join(name);
        std::fs::create_dir(&own)?;
        std::os::unix::fs::symlink(dir.join("tools"), own.join("tools"))?;
        anyhow::Ok(own)
    };
    let (first, second) = (server("first")?, server("second")?);
    let mut dying = Server::start_on(&first, &scene.github, &url).await?;
    let comment = scene.begin(&dying).await?;
    let other = Server::start_on(&second, &scene.github, &url).await?;
    let since = Instant::now();
    dying.kill();
    scene.runs(2, &other).await?;
    let samples = [since.elapsed()].into_iter().collect();
    scene.end(comment).await?;
    other.stop().await?;
    Ok(samples)
}
