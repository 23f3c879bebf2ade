//! `lockkeeper check [DIR]`: validates the files, and says what the change in a local repository would plan, and why.
//! What it says is what the server would do after a push; nothing is run and nobody is asked.

mod json;
mod local;
mod origin;
mod text;
mod verdict;

use std::path::Path;

use anyhow::{Context as _, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::ink::Look;
use super::{server, server_args};
use crate::config::repos::ServerRepos;
use crate::config::server::{Kind, RawSettings, SETTINGS, SearchConfig};
use crate::kit::term::{Exit, Outcome, Subcommand, Terminal, Usage, block_on, environment};
use crate::model::{BranchName, RepoId};

use crate::config::repo::shown;
use local::Local;
use verdict::{Asked, Verdict};

/// Widest lists that are pleasant to read.
const WIDEST: usize = 120;

pub(super) const SUBCOMMAND: Subcommand = Subcommand {
    name: "check",
    command,
    run,
};

fn command() -> Command {
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    Command::new("check")
        .about("Check the configuration here, and say what would be planned and why")
        .long_about(
            "Validates the configuration of the repository and of the server, and says what a pull request with the \
             changes of this working tree would plan: every project with the rule and the pattern that chose it, what \
             holds for it and who decided that, and for every other one why not. Nothing is run.\n\nThe settings of the \
             server count when they are given here, or in the environment as for the server \
             (LOCKKEEPER_AUTODISCOVER_MODE, then ATLANTIS_AUTODISCOVER_MODE).\n\nExit codes: 0 nothing is wrong, 1 a \
             file has mistakes, 2 the call is wrong or something cannot be read.",
        )
        .arg(Arg::new("dir").value_name("DIR").default_value(".").help("The repository, or a directory in it"))
        .args([
            value("base", "REV", "Compare with this [default: origin/HEAD, else main or master]"),
            value("base-branch", "NAME", "Branch that the pull request would go into [default: that of --base]")
                .value_parser(value_parser!(BranchName)),
            value("repo", "HOST/OWNER/NAME", "What the server calls the repository [default: from origin]")
                .value_parser(value_parser!(RepoId)),
            switch("all", "List everything, however long; without anything to compare with, take all files as changed"),
            switch("json", "For programs, as docs/check.md describes"),
        ])
        .next_help_heading("Settings of the server")
        .args(settings())
}

/// Flags of the server that decide what is planned.
fn settings() -> impl Iterator<Item = Arg> {
    let counts = |flag: &str| SearchConfig::FLAGS.contains(&flag);
    SETTINGS
        .iter()
        .filter(move |setting| counts(setting.flag))
        .map(|setting| server_args::arg(setting).help_heading("Settings of the server"))
}

fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let raw = server::with_files(raw(matches)?);
    let config = SearchConfig::from_raw(&raw).map_err(Usage::new)?;
    let verdict = match block_on(look(matches, &raw, &config)).flatten() {
        Ok(verdict) => verdict,
        Err(error) => return Ok(terminal.usage(&format!("error: {error:#}\n"))),
    };
    let printed = if matches.get_flag("json") {
        terminal
            .line(serde_json::to_string_pretty(&json::of(&verdict)).context("cannot write JSON")?)
    } else {
        let no_color = raw.variables.get("NO_COLOR").map(String::as_str);
        text::print(
            &verdict,
            matches.get_flag("all"),
            &Look::of_stdout(no_color, WIDEST),
            terminal,
        )
    };
    match printed {
        // Whoever reads has read enough, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        printed => printed?,
    }
    Ok(if verdict.problems.is_empty() {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// What was said about the settings of the server, here and in the environment.
fn raw(matches: &ArgMatches) -> anyhow::Result<RawSettings> {
    let mut raw = environment::read()?;
    for setting in SETTINGS
        .iter()
        .filter(|setting| SearchConfig::FLAGS.contains(&setting.flag))
    {
        let given: Vec<String> = if setting.kind == Kind::Switch {
            matches
                .get_flag(setting.flag)
                .then(|| "true".to_owned())
                .into_iter()
                .collect()
        } else {
            matches
                .get_many::<String>(setting.flag)
                .into_iter()
                .flatten()
                .cloned()
                .collect()
        };
        if !given.is_empty() {
            raw.flags.insert(setting.flag.to_owned(), given);
        }
    }
    Ok(raw)
}

async fn look(
    matches: &ArgMatches,
    raw: &RawSettings,
    config: &SearchConfig,
) -> anyhow::Result<Verdict> {
    let dir = raw.absolute(matches.get_one::<String>("dir").expect("it has a default"));
    let base = matches.get_one::<String>("base").map(String::as_str);
    let local = look_around(&dir, base, raw, matches.get_flag("all")).await?;
    let repo = match matches.get_one::<RepoId>("repo") {
        Some(repo) => repo.clone(),
        None => local.repo(),
    };
    let asked = Asked {
        repo,
        branch: matches.get_one("base-branch").cloned(),
    };
    verdict::reach(local, &asked, config)
}

async fn look_around(
    dir: &Path,
    base: Option<&str>,
    raw: &RawSettings,
    all: bool,
) -> anyhow::Result<Local> {
    if !dir.is_dir() {
        return Err(anyhow!("`{}` is no directory", dir.display()));
    }
    Local::read(dir, base, git_environment(raw), all).await
}

/// What git gets of the environment: where programs and the settings of the person are, and nothing that would lead it
/// to another repository.
fn git_environment(raw: &RawSettings) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    const NAMES: [&str; 5] = [
        "PATH",
        "HOME",
        "XDG_CONFIG_HOME",
        "GIT_CONFIG_GLOBAL",
        "GIT_CEILING_DIRECTORIES",
    ];
    let given = NAMES
        .iter()
        .filter_map(|name| Some((name.into(), raw.variables.get(*name)?.into())));
    given.collect()
}

/// `--disable-repo-locking` ends all discussion.
fn without_locking(repos: ServerRepos, is_off: bool) -> ServerRepos {
    if is_off {
        repos.without_locking()
    } else {
        repos
    }
}
