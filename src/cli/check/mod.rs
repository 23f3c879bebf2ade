//! `lockkeeper check [DIR]`: validates the files, and shows what the change in a local repository would plan, and why.
//! The result is what the server would do after a push. Nothing is run, and no forge is contacted.

mod json;
mod local;
mod origin;
mod text;
mod verdict;

use std::path::Path;

use anyhow::{Context as _, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::ink::TerminalStyle;
use super::{server, server_args};
use crate::config::repos::ServerRepos;
use crate::config::server::{RawSettings, SETTINGS, SearchConfig, ValueKind};
use crate::kit::term::{
    ExitResult, ExitStatus, Subcommand, Terminal, Usage, block_on, environment,
};
use crate::model::{BranchName, RepoId};

use crate::config::repo::shown;
use local::Local;
use verdict::{CheckRequest, CheckVerdict};

/// Maximum width of readable lists.
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
        .about("Check the local configuration, and show what would be planned and why")
        .long_about(
            "Validates the configuration of the repository and of the server, and shows what a pull request with the \
             changes of this working tree would plan. It lists every planned project with the rule and the pattern that \
             selected it, its settings and where each of them comes from. For every other project it gives the reason. \
             Nothing is run.\n\nSettings of the server are read from the flags below, or from the same environment \
             variables as for the server (LOCKKEEPER_AUTODISCOVER_MODE, then ATLANTIS_AUTODISCOVER_MODE).\n\nExit codes: 0 \
             no problems, 1 a file has errors, 2 the command line is wrong or something cannot be read.",
        )
        .arg(Arg::new("dir").value_name("DIR").default_value(".").help("Directory of the repository, or a directory in it"))
        .args([
            value("base", "REV", "Revision to compare with [default: origin/HEAD, else main or master]"),
            value("base-branch", "NAME", "Base branch of the pull request [default: the branch of --base]")
                .value_parser(value_parser!(BranchName)),
            value("repo", "HOST/OWNER/NAME", "Name of the repository on the server [default: from the URL of origin]")
                .value_parser(value_parser!(RepoId)),
            switch("all", "Do not shorten lists; if there is no revision to compare with, treat all files as changed"),
            switch("json", "Print JSON for programs (docs/check.md)"),
        ])
        .next_help_heading("Settings of the server")
        .args(settings())
}

/// Server flags that decide what is planned.
fn settings() -> impl Iterator<Item = Arg> {
    let counts = |flag: &str| SearchConfig::FLAGS.contains(&flag);
    SETTINGS
        .iter()
        .filter(move |setting| counts(setting.flag))
        .map(|setting| server_args::arg(setting).help_heading("Settings of the server"))
}

fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
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
            &TerminalStyle::of_stdout(no_color, WIDEST),
            terminal,
        )
    };
    match printed {
        // The reader closed the pipe, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        printed => printed?,
    }
    Ok(if verdict.problems.is_empty() {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

/// Returns the server settings that the command line and the environment contain.
fn raw(matches: &ArgMatches) -> anyhow::Result<RawSettings> {
    let mut raw = environment::read()?;
    for setting in SETTINGS
        .iter()
        .filter(|setting| SearchConfig::FLAGS.contains(&setting.flag))
    {
        let given: Vec<String> = if setting.kind == ValueKind::Switch {
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
) -> anyhow::Result<CheckVerdict> {
    let dir = raw.absolute(matches.get_one::<String>("dir").expect("it has a default"));
    let base = matches.get_one::<String>("base").map(String::as_str);
    let local = look_around(&dir, base, raw, matches.get_flag("all")).await?;
    let repo = match matches.get_one::<RepoId>("repo") {
        Some(repo) => repo.clone(),
        None => local.repo(),
    };
    let asked = CheckRequest {
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
        return Err(anyhow!("`{}` is not a directory", dir.display()));
    }
    Local::read(dir, base, git_environment(raw), all).await
}

/// Returns the environment of git: the variables for programs and the person's settings, but none that would lead git
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

/// Applies `--disable-repo-locking`, which overrides all other settings of locking.
fn without_locking(repos: ServerRepos, is_off: bool) -> ServerRepos {
    if is_off {
        repos.without_locking()
    } else {
        repos
    }
}
