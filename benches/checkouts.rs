//! Measures how long a pull request of a large repository waits for its files: without a mirror, with one, and with
//! some of the files only. The time of `git clone --depth 1` of the same repository in the same run is the reference.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use lockkeeper::discovery::{FileTree, ProjectReach, Start, reach};
use lockkeeper::git::{
    Checkout, CheckoutRequest, CheckoutStrategy, Extent, Git, GitSettings, Mirror, Prepared,
    RefSelection, Remote,
};
use lockkeeper::model::{CommitSha, RepoPath, Subject, WorkspaceName};
use lockkeeper::process::Cmd;

use crate::report::{Section, Table};
use crate::stats::{Samples, ratio};
use crate::support::git_http::GitServer;

/// Number of directories with code.
const DIRS: usize = 2_000;
/// Number of files in each directory.
const FILES: usize = 50;
/// Number of directories that a plan reads: a project and its modules.
const SPARSE: usize = 4;
/// Number of times that each case is measured.
const ROUNDS: usize = 5;
/// Longest time for one exchange.
pub const DEADLINE: Duration = Duration::from_mins(10);

/// Search path for programs.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Measures checkouts and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let work = work.join("checkouts");
    let served = work.join("srv/acme/infra.git");
    std::fs::create_dir_all(&served).context("cannot make a directory for the repository")?;
    let commits = repository(&served).await?;
    let forge = GitServer::start(&work.join("srv"), None).await;
    let url = format!("{}/acme/infra.git", forge.url);
    let bench = Bench {
        work: &work,
        url: &url,
        commits,
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
    row("cold: no mirror yet", &bench.cold().await?);
    let (mirror, _kept) = bench.mirror("warm").await?;
    row(
        "in sync already: asking the forge",
        &bench.in_step(&mirror).await?,
    );
    row(
        "warm: another pull",
        &bench.warm(&mirror, &Extent::Whole, 1_000).await?,
    );
    let (extent, found) = bench.reached(&mirror).await?;
    ensure!(extent == sparse()?, "the project reaches {extent:?}");
    row("sparse: what a project reaches", &found);
    row(
        "warm, sparse: another pull",
        &bench.warm(&mirror, &extent, 2_000).await?,
    );
    row(
        "the next push to a pull",
        &bench.pushed(&mirror, &Extent::Whole, 3_000).await?,
    );
    row(
        "sparse: the next push to a pull",
        &bench.pushed(&mirror, &extent, 4_000).await?,
    );
    let mut section = Section::new("Checkouts of a large repository").with_table(table);
    section.note(format!(
        "{} files in {DIRS} directories, served by `git http-backend` on this machine; sparse: {SPARSE} of the directories. \
         What a project reaches is found once for a command: all files are listed, and the code of the project and its modules \
         is read. A push changes one file.",
        DIRS * FILES
    ));
    Ok(section)
}

fn sparse() -> anyhow::Result<Extent> {
    let dirs = (0..SPARSE)
        .map(|number| Ok(RepoPath::new(&dir(number))?))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Extent::of_dirs(dirs))
}

fn dir(number: usize) -> String {
    format!("team{}/app{number}", number % 100)
}

/// Creates the repository with two commits. The second one changes one file.
async fn repository(dir: &Path) -> anyhow::Result<[CommitSha; 2]> {
    run(git(dir).args(["init", "--quiet", "--bare", "--initial-branch=main"])).await?;
    run(git(dir).args(["fast-import", "--quiet"]).input(history())).await?;
    // Forges keep a repository in one pack.
    run(git(dir).args(["repack", "-a", "-d", "-q"])).await?;
    let commit = async |name: &str| {
        Ok::<_, anyhow::Error>(
            run(git(dir).args(["rev-parse", name]))
                .await?
                .trim()
                .parse()?,
        )
    };
    Ok([commit("main~1").await?, commit("main").await?])
}

fn history() -> String {
    const HEAD: &str =
        "commit refs/heads/main\ncommitter A <a@example.com> 1700000000 +0000\ndata 1\nx\n";
    let mut text = HEAD.to_owned();
    for number in 0..DIRS {
        for file in 0..FILES {
            let code = format!(
                "resource \"terraform_data\" \"x{number}_{file}\" {{\n  input = {number}\n}}\n"
            );
            let name = format!("{}/file{file}.tf", self::dir(number));
            write!(text, "M 644 inline {name}\ndata {}\n{code}\n", code.len())
                .expect("a text takes everything");
        }
    }
    let module = |number| {
        format!(
            "module \"m{number}\" {{\n  source = \"../../{}\"\n}}\n",
            self::dir(number)
        )
    };
    let modules = (1..SPARSE).map(module).collect::<Vec<_>>().concat();
    write!(
        text,
        "M 644 inline {}/modules.tf\ndata {}\n{modules}\n",
        self::dir(0),
        modules.len()
    )
    .expect("a text takes everything");
    write!(
        text,
        "{HEAD}M 644 inline {}/file0.tf\ndata 7\nchanged\n",
        self::dir(0)
    )
    .expect("a text takes everything");
    text
}

/// Returns a git command that ignores the settings of this machine.
pub fn git(dir: &Path) -> Cmd {
    Cmd::new("git")
        .env("PATH", PATH)
        .env("HOME", "/dev/null")
        .dir(dir)
        .deadline(DEADLINE)
}

/// Runs a program and returns its output. A program that fails is an error.
pub async fn run(cmd: Cmd) -> anyhow::Result<String> {
    let output = cmd.output().await.context("cannot run git")?;
    ensure!(output.is_success(), "git failed: {}", output.stderr.text());
    Ok(output.stdout.text().into_owned())
}

/// Directories and commits that the measurements use.
struct Bench<'a> {
    work: &'a Path,
    url: &'a str,
    /// The older and the newer commit.
    commits: [CommitSha; 2],
}

impl Bench<'_> {
    async fn clones(&self) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        for round in 0..ROUNDS {
            let into = self.work.join(format!("clone{round}"));
            let since = Instant::now();
            run(git(self.work)
                .args(["clone", "--quiet", "--depth=1", self.url])
                .arg(&into))
            .await?;
            samples.push(since.elapsed());
            std::fs::remove_dir_all(into).context("cannot remove a clone")?;
        }
        Ok(samples)
    }

    fn remote(&self) -> Remote<'_> {
        Remote {
            url: self.url,
            credentials: None,
            deadline: DEADLINE,
        }
    }

    /// Creates a mirror that is in sync with the forge. Also returns the guard of its directory.
    async fn mirror(&self, name: &str) -> anyhow::Result<(Mirror, tempfile::TempDir)> {
        let dir = tempfile::Builder::new()
            .prefix(name)
            .tempdir_in(self.work)
            .context("cannot make a directory")?;
        let git = Git::new(GitSettings::new(dir.path(), PATH));
        let mirror = git.mirror(&"github.com/acme/infra".parse()?);
        self.sync(&mirror).await?;
        Ok((mirror, dir))
    }

    async fn sync(&self, mirror: &Mirror) -> anyhow::Result<()> {
        let wanted = RefSelection {
            branches: true,
            ..RefSelection::default()
        };
        let synced = mirror.sync(&self.remote(), &wanted).await?;
        ensure!(
            synced.refs.len() == 1,
            "{} refs were mirrored",
            synced.refs.len()
        );
        Ok(())
    }

    async fn cold(&self) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..ROUNDS {
            let since = Instant::now();
            let (mirror, _kept) = self.mirror("cold").await?;
            self.prepare(&mirror, 1, &self.commits[1], &Extent::Whole)
                .await?;
            samples.push(since.elapsed());
        }
        Ok(samples)
    }

    async fn in_step(&self, mirror: &Mirror) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..ROUNDS {
            let since = Instant::now();
            self.sync(mirror).await?;
            samples.push(since.elapsed());
        }
        Ok(samples)
    }

    async fn warm(
        &self,
        mirror: &Mirror,
        extent: &Extent,
        first: usize,
    ) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        for number in first..first + ROUNDS {
            let since = Instant::now();
            self.prepare(mirror, number, &self.commits[1], extent)
                .await?;
            samples.push(since.elapsed());
        }
        Ok(samples)
    }

    /// Finds the directories that a project needs, as a command with `--sparse-checkout` does.
    async fn reached(&self, mirror: &Mirror) -> anyhow::Result<(Extent, Samples)> {
        let (mut samples, mut extent) = (Samples::default(), Extent::Whole);
        for _ in 0..ROUNDS {
            let since = Instant::now();
            let tree = FileTree::new(mirror.files(&self.commits[1]).await?.paths);
            let reader = RefCell::new(mirror.reader(&self.commits[1]));
            let start = Start {
                dir: RepoPath::new(&dir(0))?,
                texts: Vec::new(),
            };
            let search = move || {
                let read = |path: &RepoPath| {
                    let bytes = reader.borrow_mut().read(path, 1 << 20).ok().flatten();
                    bytes.and_then(|bytes| String::from_utf8(bytes).ok())
                };
                reach(&tree, &read, &[start])
            };
            let reached = tokio::task::spawn_blocking(search)
                .await
                .context("the search broke off")?;
            samples.push(since.elapsed());
            if let ProjectReach::These { dirs, files } = reached {
                extent = Extent::of_dirs(dirs).with_files(&files);
            }
        }
        Ok((extent, samples))
    }

    async fn pushed(
        &self,
        mirror: &Mirror,
        extent: &Extent,
        pull: usize,
    ) -> anyhow::Result<Samples> {
        self.prepare(mirror, pull, &self.commits[0], extent).await?;
        let mut samples = Samples::default();
        for round in 1..=ROUNDS {
            let since = Instant::now();
            self.prepare(mirror, pull, &self.commits[round % 2], extent)
                .await?;
            samples.push(since.elapsed());
        }
        Ok(samples)
    }

    /// Checks out the files and counts them, because figures for fewer files would be too good.
    async fn prepare(
        &self,
        mirror: &Mirror,
        pull: usize,
        head: &CommitSha,
        extent: &Extent,
    ) -> anyhow::Result<()> {
        let (workspace, strategy) = (WorkspaceName::default(), CheckoutStrategy::Branch);
        let pull = Subject::pull(i64::try_from(pull)?);
        let wanted = CheckoutRequest {
            pull,
            workspace: &workspace,
            head,
            base: head,
            strategy,
            extent,
        };
        match mirror.prepare(&wanted).await? {
            Prepared::Ready(checkout) => ensure_all(&checkout, extent),
            Prepared::Conflict { files } => anyhow::bail!("conflict in {files:?}"),
        }
    }
}

fn ensure_all(checkout: &Checkout, extent: &Extent) -> anyhow::Result<()> {
    let last = if *extent == Extent::Whole {
        DIRS - 1
    } else {
        SPARSE - 1
    };
    for (number, wanted) in [
        (0, true),
        (last, true),
        (DIRS - 1, *extent == Extent::Whole),
    ] {
        let file = checkout
            .path
            .join(dir(number))
            .join(format!("file{}.tf", FILES - 1));
        ensure!(
            file.exists() == wanted,
            "{} is {}",
            file.display(),
            if wanted { "missing" } else { "there" }
        );
    }
    Ok(())
}
