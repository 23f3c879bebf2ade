//! Measures whole commands as people wait for them: from the webhook to the answer on the pull request, with a
//! workflow that does nothing. Only what Lockkeeper itself takes is left.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use lockkeeper::emulator::{Change, Emulator, NewPull};
use lockkeeper::model::PullNumber;
use lockkeeper::store::Store;

use crate::checkouts::{git, run};
use crate::memory::Memory;
use crate::report::{Section, Table};
use crate::server::{self, LOGIN, REPO, Server};
use crate::stats::{Samples, millis, ratio};
use crate::stub;

/// Maximum time of one command.
pub const DEADLINE: Duration = Duration::from_mins(10);
/// Rounds with a small repository.
const SMALL_ROUNDS: usize = 30;
/// Rounds with a large repository.
const LARGE_ROUNDS: usize = 4;
/// Sizes of pull requests that change many projects.
const PROJECTS: [usize; 3] = [50, 200, 1_000];
/// Directories of the large repository, with [`FILES`] files each.
const DIRS: usize = 1_000;
const FILES: usize = 50;
/// Workflow whose only step does nothing.
const WORKFLOW: &str = "\
repos:
  - id: /.*/
    workflow: noop
workflows:
  noop:
    plan:
      steps:
        - run: 'true'
";

/// Measures whole commands and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let dir = directory(work, "whole")?;
    let mut table = Table::new(&["ms", "p50", "p90", "p99", "max", "rounds", "÷ reference"]);
    let mut notes = Vec::new();
    small(&dir, &mut table, &mut notes).await?;
    many(&dir, &mut table, &mut notes).await?;
    large(&dir, &mut table).await?;
    let mut section =
        Section::new("Whole commands, with a workflow that does nothing").with_table(table);
    section.note("Real server with default settings, SQLite, git over HTTP and the REST API of an emulated GitHub in the measuring process; one command at a time.");
    section.note(format!(
        "The large repository has {} files. Its reference is `git clone --depth 1` from the same server in the same run.",
        DIRS * FILES
    ));
    for note in notes {
        section.note(note);
    }
    Ok(section)
}

/// Makes a directory for stages, with their configuration.
pub fn directory(work: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let dir = work.join(name);
    std::fs::create_dir(&dir)?;
    std::fs::write(dir.join("repos.yaml"), WORKFLOW)?;
    Ok(dir)
}

/// A server and its forge.
pub struct Stage {
    /// GitHub as the server sees it.
    pub github: Emulator,
    server: Server,
    /// Database of the server.
    pub store: Store,
}

impl Stage {
    /// Starts a server and its forge, with a repository that has these files.
    pub async fn start(dir: &Path, files: &[(&str, &str)]) -> anyhow::Result<Self> {
        std::fs::create_dir(dir)?;
        stub::install(&dir.join("tools"))?;
        let github = server::github(dir).await?;
        github.create_repo(REPO, files).await?;
        let workflow = dir.with_file_name("repos.yaml");
        let server = Server::start_with(dir, &github, &[("--repo-config", workflow)]).await?;
        github.set_webhook_target(server.events.parse().context("an address makes a URL")?);
        let store = server.store().await?;
        Ok(Self {
            github,
            server,
            store,
        })
    }

    /// Pushes changes of files to a branch.
    pub async fn push(&self, branch: &str, paths: &[String]) -> anyhow::Result<()> {
        let changes: Vec<Change> = paths
            .iter()
            .map(|path| Change::write(path, "# changed\n"))
            .collect();
        self.github.push(REPO, branch, &changes).await?;
        Ok(())
    }

    /// Opens a pull request, and returns how long it waits for the answer.
    pub async fn open(&self, branch: &str) -> anyhow::Result<(PullNumber, Duration)> {
        let since = Instant::now();
        let pull = NewPull::from_branch(branch).titled("A change");
        let pull = self.github.open_pull(REPO, pull).await?;
        Ok((pull, self.answered(pull, 0, since).await?))
    }

    /// Requests a plan by comment, and returns how long it waits for the answer.
    async fn plan(&self, pull: PullNumber) -> anyhow::Result<Duration> {
        let since = Instant::now();
        let comment = self
            .github
            .comment(REPO, pull, "alice", "lockkeeper plan")
            .await?;
        self.answered(pull, comment, since).await
    }

    /// Waits for the answer, then until the server has nothing left to do.
    async fn answered(
        &self,
        pull: PullNumber,
        after: u64,
        since: Instant,
    ) -> anyhow::Result<Duration> {
        self.answer(pull, after).await?;
        let took = since.elapsed();
        server::drained(&self.store, DEADLINE).await?;
        Ok(took)
    }

    /// Waits for the answer to a command after a comment.
    pub async fn answer(&self, pull: PullNumber, after: u64) -> anyhow::Result<()> {
        let answer = self.github.comment_by(REPO, pull, LOGIN, after);
        let answer = tokio::time::timeout(DEADLINE, answer)
            .await
            .with_context(|| format!("no answer on the pull\n{}", self.server.log()))??;
        ensure!(
            answer.body.contains("Plan for") && !answer.body.contains("failed"),
            "the answer is no plan:\n{}",
            answer.body
        );
        Ok(())
    }

    /// Returns true if a command after a comment has been answered.
    pub fn has_answer(&self, pull: PullNumber, after: u64) -> anyhow::Result<bool> {
        let comments = self.github.comments(REPO, pull)?;
        Ok(comments
            .iter()
            .any(|comment| comment.id > after && comment.author == LOGIN))
    }

    /// Stops the server and waits until it has ended.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.store.close().await;
        self.server.stop().await
    }
}

async fn small(dir: &Path, table: &mut Table, notes: &mut Vec<String>) -> anyhow::Result<()> {
    let files = [
        ("network/main.tf", "# network\n"),
        ("README.md", "# Infra\n"),
    ];
    let stage = Stage::start(&dir.join("small"), &files).await?;
    notes.push(idle(&stage, "after the start")?);
    let (mut opened, mut planned) = (Samples::default(), Samples::default());
    let mut last = None;
    for round in 0..SMALL_ROUNDS {
        let branch = format!("change{round}");
        stage.push(&branch, &[format!("p{round}/main.tf")]).await?;
        let (pull, took) = stage.open(&branch).await?;
        opened.push(took);
        last = Some(pull);
    }
    let pull = last.context("no pull was opened")?;
    for _ in 0..SMALL_ROUNDS {
        planned.push(stage.plan(pull).await?);
    }
    table.row("comment to answer, one project", planned.cells());
    table.row("pull opened to answer, one project", opened.cells());
    notes.push(idle(&stage, "after these commands")?);
    stage.stop().await
}

fn idle(stage: &Stage, when: &str) -> anyhow::Result<String> {
    let memory = Memory::of(stage.server.pid())?.cells();
    Ok(format!(
        "Server process {when}: RSS {} MiB, of which {} MiB are not of the file of the program.",
        memory[0], memory[2]
    ))
}

async fn many(dir: &Path, table: &mut Table, notes: &mut Vec<String>) -> anyhow::Result<()> {
    for projects in PROJECTS {
        let stage = Stage::start(
            &dir.join(format!("many{projects}")),
            &[("README.md", "x\n")],
        )
        .await?;
        let paths: Vec<String> = (0..projects).map(|n| format!("p{n}/main.tf")).collect();
        stage.push("change", &paths).await?;
        let (pull, opened) = stage.open("change").await?;
        let requests = stage.github.requests().len();
        let planned = stage.plan(pull).await?;
        let requests = stage.github.requests().len().saturating_sub(requests);
        table.row(
            format!("pull opened to answer, {projects} projects"),
            [millis(opened)],
        );
        table.row(
            format!("comment to answer, {projects} projects"),
            [millis(planned)],
        );
        notes.push(format!("Requests to the forge for the plan of {projects} projects: {requests} (at most 4096 are counted)."));
        notes.push(idle(&stage, &format!("after {projects} projects"))?);
        stage.stop().await?;
    }
    Ok(())
}

async fn large(dir: &Path, table: &mut Table) -> anyhow::Result<()> {
    let files: Vec<(String, String)> = (0..DIRS * FILES)
        .map(|n| {
            let (dir, file) = (n / FILES, n % FILES);
            (
                format!("team{}/app{dir}/file{file}.tf", dir % 100),
                format!("resource \"terraform_data\" \"x{dir}_{file}\" {{\n  input = {n}\n}}\n"),
            )
        })
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    let stage = Stage::start(&dir.join("large"), &files).await?;
    let clone = clones(dir, &stage.github).await?;
    let mut row = |what: &str, samples: &Samples| {
        let compared = ratio(samples.quantile(50), clone.quantile(50));
        table.row(what, samples.cells().into_iter().chain([compared]));
    };
    row("large repository: git clone --depth 1", &clone);
    let (mut first, mut again) = (Samples::default(), Samples::default());
    for round in 0..=LARGE_ROUNDS {
        let branch = format!("change{round}");
        stage
            .push(&branch, &[format!("team{round}/app{round}/file0.tf")])
            .await?;
        let (pull, took) = stage.open(&branch).await?;
        if round == 0 {
            row(
                "large repository: the very first plan",
                &[took].into_iter().collect(),
            );
            continue;
        }
        first.push(took);
        again.push(stage.plan(pull).await?);
    }
    row("large repository: first plan of another pull", &first);
    row("large repository: second plan of the same commit", &again);
    stage.stop().await
}

async fn clones(dir: &Path, github: &Emulator) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..LARGE_ROUNDS {
        let into = dir.join(format!("clone{round}"));
        let url = server::with_token(&github.clone_url(REPO));
        let since = Instant::now();
        run(git(dir)
            .args(["clone", "--quiet", "--depth=1"])
            .arg(url)
            .arg(&into))
        .await?;
        samples.push(since.elapsed());
        std::fs::remove_dir_all(into).context("cannot remove a clone")?;
    }
    Ok(samples)
}
