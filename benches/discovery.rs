//! Measures how long it takes to find the projects of a change in a large repository. The time that `git ls-files`
//! takes to list the same files is the reference.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use lockkeeper::config::repo::{RepoConfig, RepoPermissions};
use lockkeeper::discovery::{self, Autodiscover, FileTree, Input, SearchSettings, terragrunt};
use lockkeeper::model::{BranchName, ChangeKind, ChangedFile, RepoPath};

use crate::report::{Section, Table};
use crate::stats::{Samples, millis, ratio};

/// Number of directories with code.
const DIRS: usize = 10_000;
/// Number of files in each directory.
const FILES: usize = 20;
/// Number of files that the pull request changes.
const CHANGED: usize = 500;
/// Number of entries in the configuration file. Each has a pattern for its own directory and one for a module.
const CONFIGURED: usize = 1_000;
/// Number of Terragrunt units.
const UNITS: usize = 1_000;
/// Number of times that each case is measured.
const ROUNDS: usize = 20;

/// Measures discovery and returns the section of the report.
pub fn measure(work: &Path) -> anyhow::Result<Section> {
    let repo = work.join("discovery");
    std::fs::create_dir(&repo).context("cannot make a directory for the repository")?;
    let files = files();
    index(&repo, &files)?;
    let listing = rounds(|| ensure_all(list(&repo)?, files.len()))?;
    let paths = paths(&files)?;
    let tree = FileTree::new(paths.iter().cloned());
    let changed: Vec<ChangedFile> = paths[..DIRS]
        .iter()
        .step_by(DIRS / CHANGED)
        .map(modified)
        .collect();
    let config = RepoConfig::parse(
        "atlantis.yaml",
        &configuration(),
        &RepoPermissions::default(),
    )
    .map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let mut table = Table::new(&["ms", "p50", "p90", "p99", "max", "rounds", "÷ git ls-files"]);
    let mut row = |what: &str, samples: &Samples, listing: &Samples| {
        let compared = ratio(samples.quantile(50), listing.quantile(50));
        table.row(what, samples.cells().into_iter().chain([compared]));
    };
    row("git ls-files", &listing, &listing);
    row(
        "listing read into a tree",
        &rounds(|| {
            ensure_all(
                FileTree::new(paths.iter().cloned()).files().len(),
                paths.len(),
            )
        })?,
        &listing,
    );
    row(
        "projects of the change, discovered",
        &rounds(|| found(&tree, &changed, None, CHANGED))?,
        &listing,
    );
    row(
        "projects of the change, configured",
        &rounds(|| found(&tree, &changed, Some(&config), CONFIGURED * CHANGED / DIRS))?,
        &listing,
    );
    let (units, their_listing) = grunt()?;
    row("1000 units of Terragrunt, read", &units, &their_listing);
    let mut section = Section::new("Projects of a large repository").with_table(table);
    section.note(format!(
        "{DIRS} directories, {} files, {CHANGED} of them changed, each in another directory; nothing is read from the \
         disk but by git. Configured: {CONFIGURED} entries with three patterns each.",
        files.len()
    ));
    section.note(format!(
        "Terragrunt: {UNITS} units that include, read and depend, against `git ls-files` of those: {} ms.",
        millis(their_listing.quantile(50))
    ));
    Ok(section)
}

/// Returns the names of all files: teams, applications, and in each application code and other files.
fn files() -> Vec<String> {
    let dir = |number: usize| format!("team{}/app{number}", number % 100);
    let names = |number| (0..FILES).map(move |file| (number, file));
    let name = |(number, file): (usize, usize)| match file {
        0 => format!("{}/main.tf", dir(number)),
        1 => format!("{}/variables.tf", dir(number)),
        file => format!(
            "{}/file{file}.{}",
            dir(number),
            if file % 3 == 0 { "tf" } else { "md" }
        ),
    };
    (0..DIRS).flat_map(names).map(name).collect()
}

fn paths(files: &[String]) -> anyhow::Result<Vec<RepoPath>> {
    // Every directory occurs once before any occurs again, so that each change is in another directory.
    let mut paths = files
        .iter()
        .map(|file| Ok(RepoPath::new(file)?))
        .collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort_by_key(|path| path.file_name() != "main.tf");
    let (first, rest) = paths.split_at(DIRS);
    Ok(first.iter().chain(rest).cloned().collect())
}

fn modified(path: &RepoPath) -> ChangedFile {
    ChangedFile {
        path: path.clone(),
        previous: None,
        kind: ChangeKind::Modified,
    }
}

fn configuration() -> String {
    let mut text = "version: 3\nprojects:\n".to_owned();
    for number in 0..CONFIGURED {
        let dir = format!("team{}/app{number}", number % 100);
        let patterns = "['*.tf', '../modules/**/*.tf', '!file3.tf']";
        writeln!(
            text,
            "  - {{dir: {dir}, autoplan: {{when_modified: {patterns}}}}}"
        )
        .expect("a text takes everything");
    }
    text
}

/// Finds the projects of a change. An unexpected number of projects is an error.
fn found(
    tree: &FileTree,
    changed: &[ChangedFile],
    config: Option<&RepoConfig>,
    wanted: usize,
) -> anyhow::Result<()> {
    let read = |_: &RepoPath| Some("resource \"x\" \"y\" {}\n".to_owned());
    let settings = SearchSettings {
        max_projects: usize::MAX,
        ..SearchSettings::default()
    };
    let base = BranchName::new("main")?;
    let input = Input {
        tree,
        changed,
        config,
        base: &base,
        autodiscover: &Autodiscover::default(),
        modules: None,
        settings: &settings,
        read: &read,
    };
    let projects = discovery::discover(&input)?;
    ensure!(
        projects.len() == wanted,
        "{} projects were found instead of {wanted}",
        projects.len()
    );
    Ok(())
}

/// Measures the time to read a Terragrunt tree, and the time of `git ls-files` on a repository of the same size in
/// memory.
fn grunt() -> anyhow::Result<(Samples, Samples)> {
    let text = |file: &RepoPath| -> Option<String> {
        let dir = file.parent();
        let number: usize = dir.file_name().parse().unwrap_or(0);
        Some(match file.file_name() {
            "root.hcl" => {
                "locals {\n  env = read_terragrunt_config(find_in_parent_folders(\"env.hcl\")).locals.env\n}\n"
                    .to_owned()
            }
            "env.hcl" => format!("locals {{\n  env = \"{dir}\"\n}}\n"),
            "terragrunt.hcl" => unit(number),
            _ => "resource \"x\" \"y\" {}\n".to_owned(),
        })
    };
    let mut files = vec!["root.hcl".to_owned(), "modules/app/main.tf".to_owned()];
    files.extend((0..UNITS / 100).map(|env| format!("live/{env}/env.hcl")));
    files.extend((0..UNITS).map(|number| format!("live/{}/{number}/terragrunt.hcl", number / 100)));
    let paths = files
        .iter()
        .map(|file| Ok(RepoPath::new(file)?))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let tree = FileTree::new(paths);
    let samples = rounds(|| {
        let found = terragrunt::units(&tree, &text);
        ensure!(
            found.units.len() == UNITS,
            "{} units were found",
            found.units.len()
        );
        Ok(())
    })?;
    let work = tempfile::tempdir().context("cannot make a directory for the repository")?;
    index(work.path(), &files)?;
    let listing = rounds(|| ensure_all(list(work.path())?, files.len()))?;
    Ok((samples, listing))
}

fn unit(number: usize) -> String {
    let before = number.saturating_sub(1);
    let dependency = format!(
        "dependency \"d\" {{\n  config_path = \"${{get_repo_root()}}/live/{}/{before}\"\n}}\n",
        before / 100
    );
    format!(
        "include \"root\" {{\n  path = find_in_parent_folders(\"root.hcl\")\n}}\nterraform {{\n  source = \
         \"${{get_repo_root()}}/modules//app\"\n}}\n{}",
        if number == 0 { "" } else { &dependency }
    )
}

/// Creates a repository whose index lists the files. The files do not exist on disk, where `git ls-files` does not
/// look.
#[expect(
    clippy::disallowed_methods,
    reason = "the program that is compared with"
)]
fn index(repo: &Path, files: &[String]) -> anyhow::Result<()> {
    const EMPTY: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
    let made = Command::new("git")
        .args(["init", "--quiet"])
        .arg(repo)
        .status()
        .context("cannot start git")?;
    ensure!(made.success(), "git init failed");
    let mut update = Command::new("git");
    update
        .arg("-C")
        .arg(repo)
        .args(["update-index", "--index-info"])
        .stdin(Stdio::piped());
    let mut child = update.spawn().context("cannot start git")?;
    let mut input = child.stdin.take().context("git takes no input")?;
    let lines: Vec<String> = files
        .iter()
        .map(|file| format!("100644 {EMPTY}\t{file}\n"))
        .collect();
    input
        .write_all(lines.concat().as_bytes())
        .context("git does not take its input")?;
    drop(input);
    ensure!(
        child.wait().context("git does not end")?.success(),
        "git update-index failed"
    );
    Ok(())
}

/// Returns the number of files that git lists.
#[expect(
    clippy::disallowed_methods,
    reason = "the program that is compared with"
)]
fn list(repo: &Path) -> anyhow::Result<usize> {
    let output = Command::new("git")
        .arg("-C")
        .arg(repo)
        .args(["ls-files", "-z"])
        .output()
        .context("cannot start git")?;
    ensure!(output.status.success(), "git ls-files failed");
    Ok(output
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .count())
}

/// Fails if files are missing, because figures for fewer files would be too good.
fn ensure_all(listed: usize, wanted: usize) -> anyhow::Result<()> {
    ensure!(listed == wanted, "{listed} of {wanted} files were listed");
    Ok(())
}

fn rounds(mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        let since = Instant::now();
        work()?;
        samples.push(since.elapsed());
    }
    Ok(samples)
}
