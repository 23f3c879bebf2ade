//! Measures how long a pull request of a repository of many gigabytes waits for its files when the mirror is warm.
//! The commit is fetched from the forge and checked out, completely and in part. The time of `git clone --depth 1` in
//! the same run is the reference.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use lockkeeper::git::{
    CheckoutRequest, CheckoutStrategy, Extent, FetchRequest, Git, GitSettings, Head, Mirror,
    Prepared, RefName, RefSelection, Remote,
};
use lockkeeper::model::{CommitSha, RepoPath, Subject, WorkspaceName};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::checkouts::{DEADLINE, PATH, git, run};
use crate::report::{Section, Table};
use crate::stats::{Samples, ratio};
use crate::support::git_http::GitServer;

/// Number of commits. Each replaces the assets of the one before, so most of the repository is history.
const COMMITS: u32 = 20;
/// Number of assets in each commit. Their content is incompressible.
const ASSETS: u32 = 256;
/// Size of an asset in bytes.
const ASSET: usize = 1024 * 1024;
/// Number of directories with code.
const DIRS: u32 = 100;
/// Number of code files in each directory.
const FILES: u32 = 50;
/// Number of times that each case is measured.
const ROUNDS: i64 = 7;

/// Measures the large repository and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let work = work.join("large");
    let served = work.join("srv/acme/infra.git");
    std::fs::create_dir_all(&served).context("cannot make a directory for the repository")?;
    repository(&served).await?;
    let forge = GitServer::start(&work.join("srv"), None).await;
    let bench = Bench {
        work: &work,
        served: &served,
        url: format!("{}/acme/infra.git", forge.url),
    };
    let clone = bench.clones().await?;
    let mut table = Table::new(&[
        "ms",
        "p50",
        "p90",
        "p99",
        "max",
        "rounds",
        "÷ git clone --depth 1",
    ]);
    let mut row = |what: &str, samples: &Samples| {
        let compared = ratio(samples.quantile(50), clone.quantile(50));
        table.row(what, samples.cells().into_iter().chain([compared]));
    };
    row("git clone --depth 1", &clone);
    let mirror = Git::new(GitSettings::new(&work, PATH)).mirror(&"github.com/acme/infra".parse()?);
    row("the mirror, once", &bench.mirrored(&mirror).await?);
    let part = Extent::of_dirs([RepoPath::new(&dir(0))?]);
    row(
        "another pull, sparse: fetch and checkout",
        &bench.pulls(&mirror, &part, 1_000).await?,
    );
    row(
        "another pull, whole: fetch and checkout",
        &bench.pulls(&mirror, &Extent::Whole, 2_000).await?,
    );
    let mut section = Section::new("A large repository").with_table(table);
    section.note(format!(
        "{:.1} GiB in one pack, nearly all of it history; a commit has {} files of code and {ASSETS} of one MiB. Served by \
         `git http-backend` on this machine. Each pull has a commit of its own, which the mirror lacks. Sparse: one of the {DIRS} \
         directories with code.",
        gibibytes(&served.join("objects/pack"))?,
        DIRS * FILES
    ));
    Ok(section)
}

fn dir(number: u32) -> String {
    format!("team{}/app{number}", number % 10)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a figure with one digit after the point"
)]
fn gibibytes(dir: &Path) -> anyhow::Result<f64> {
    let mut bytes = 0;
    for file in std::fs::read_dir(dir).context("cannot read the directory of packs")? {
        bytes += file?.metadata()?.len();
    }
    Ok(bytes as f64 / 1024.0_f64.powi(3))
}

/// Creates the repository as a forge has it: in one pack. Git does not search for deltas, because there are none.
async fn repository(dir: &Path) -> anyhow::Result<()> {
    run(git(dir).args(["init", "--quiet", "--bare", "--initial-branch=main"])).await?;
    for (key, value) in [("core.compression", "0"), ("pack.window", "0")] {
        run(git(dir).args(["config", key, value])).await?;
    }
    let dir = dir.to_owned();
    tokio::task::spawn_blocking(move || import(&dir, history))
        .await
        .context("the import broke off")?
}

/// Runs `git fast-import` on the output of `write`.
#[expect(
    clippy::disallowed_methods,
    reason = "gigabytes of input, which `process::Cmd` would keep in memory"
)]
fn import(dir: &Path, text: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut child = Command::new("git")
        .args(["fast-import", "--quiet"])
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/dev/null")])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run git")?;
    let mut input = BufWriter::new(child.stdin.take().context("git has no input")?);
    text(&mut input)
        .and_then(|()| input.flush())
        .context("git does not read")?;
    drop(input);
    let status = child.wait().context("cannot wait for git")?;
    ensure!(status.success(), "git fast-import ended with {status}");
    Ok(())
}

fn history(out: &mut dyn Write) -> io::Result<()> {
    let mut dice = StdRng::seed_from_u64(5);
    let mut asset = vec![0; ASSET];
    for commit in 0..COMMITS {
        head(out, "main")?;
        if commit == 0 {
            code(out)?;
        } else {
            writeln!(out, "D assets/{}", commit - 1)?;
        }
        for number in 0..ASSETS {
            dice.fill_bytes(&mut asset);
            writeln!(
                out,
                "M 644 inline assets/{commit}/{number}.bin\ndata {ASSET}"
            )?;
            out.write_all(&asset)?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn head(out: &mut dyn Write, branch: &str) -> io::Result<()> {
    writeln!(
        out,
        "commit refs/heads/{branch}\ncommitter A <a@example.com> 1700000000 +0000\ndata 1\nx"
    )
}

fn code(out: &mut dyn Write) -> io::Result<()> {
    for number in 0..DIRS {
        for file in 0..FILES {
            let text = format!(
                "resource \"terraform_data\" \"x{number}_{file}\" {{\n  input = {number}\n}}\n"
            );
            writeln!(
                out,
                "M 644 inline {}/file{file}.tf\ndata {}\n{text}",
                dir(number),
                text.len()
            )?;
        }
    }
    Ok(())
}

/// Repository and directories that the measurements use.
struct Bench<'a> {
    work: &'a Path,
    served: &'a Path,
    url: String,
}

impl Bench<'_> {
    async fn clones(&self) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        for round in 0..3 {
            let into = self.work.join(format!("clone{round}"));
            let since = Instant::now();
            run(git(self.work)
                .args(["clone", "--quiet", "--depth=1", &self.url])
                .arg(&into))
            .await?;
            samples.push(since.elapsed());
            std::fs::remove_dir_all(into).context("cannot remove a clone")?;
        }
        Ok(samples)
    }

    async fn mirrored(&self, mirror: &Mirror) -> anyhow::Result<Samples> {
        let remote = Remote {
            url: &self.url,
            credentials: None,
            deadline: DEADLINE,
        };
        let since = Instant::now();
        let synced = mirror
            .sync(
                &remote,
                &RefSelection {
                    branches: true,
                    ..RefSelection::default()
                },
            )
            .await?;
        ensure!(
            synced.refs.len() == 1,
            "{} refs were mirrored",
            synced.refs.len()
        );
        Ok([since.elapsed()].into_iter().collect())
    }

    async fn pulls(&self, mirror: &Mirror, extent: &Extent, first: i64) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        for number in first..first + ROUNDS {
            let head = self.open_pull(number).await?;
            let since = Instant::now();
            self.check_out(mirror, number, &head, extent).await?;
            samples.push(since.elapsed());
        }
        Ok(samples)
    }

    /// Opens a pull request with one commit that changes one file. Returns the commit.
    async fn open_pull(&self, number: i64) -> anyhow::Result<CommitSha> {
        let dir = self.served.to_owned();
        let text = move |out: &mut dyn Write| {
            head(out, &format!("pull{number}"))?;
            let text = format!("# {number}\n");
            writeln!(
                out,
                "from refs/heads/main\nM 644 inline {}/file0.tf\ndata {}\n{text}",
                self::dir(0),
                text.len()
            )
        };
        tokio::task::spawn_blocking(move || import(&dir, text))
            .await
            .context("the import broke off")??;
        let branch = format!("refs/heads/pull{number}");
        let head = run(git(self.served).args(["rev-parse", &branch])).await?;
        run(git(self.served).args([
            "update-ref",
            &format!("refs/pull/{number}/head"),
            head.trim(),
        ]))
        .await?;
        run(git(self.served).args(["update-ref", "-d", &branch])).await?;
        Ok(head.trim().parse()?)
    }

    async fn check_out(
        &self,
        mirror: &Mirror,
        number: i64,
        head: &CommitSha,
        extent: &Extent,
    ) -> anyhow::Result<()> {
        let refs = [
            RefName::new("refs/heads/main")?,
            RefName::new(&format!("refs/pull/{number}/head"))?,
        ];
        let request = FetchRequest {
            url: &self.url,
            credentials: None,
            refs: &refs,
            wanted: Some(head),
            deadline: DEADLINE,
        };
        let fetched = mirror.fetch(&request).await?;
        ensure!(
            fetched.wanted == Head::Present,
            "the commit of pull {number} was not brought"
        );
        let (workspace, strategy) = (WorkspaceName::default(), CheckoutStrategy::Branch);
        let wanted = CheckoutRequest {
            pull: Subject::pull(number),
            workspace: &workspace,
            head,
            base: head,
            strategy,
            extent,
        };
        let Prepared::Ready(checkout) = mirror.prepare(&wanted).await? else {
            anyhow::bail!("there is a conflict")
        };
        let text = std::fs::read_to_string(checkout.path.join(dir(0)).join("file0.tf"))?;
        ensure!(
            text == format!("# {number}\n"),
            "the checkout of pull {number} has {text:?}"
        );
        let assets = checkout.path.join("assets").exists();
        ensure!(
            assets == (*extent == Extent::Whole),
            "the checkout of pull {number} has the wrong extent"
        );
        Ok(())
    }
}
