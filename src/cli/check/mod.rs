//! `lockkeeper check [DIR]`: validates the files, and shows what the change in a local repository would plan, and why.
//! The result is what the server would do after a push. Nothing is run, and no forge is contacted.

mod json;
mod local;
mod origin;
mod text;
mod verdict;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use clap::{ArgMatches, Command, FromArgMatches};

use super::server_args;
use super::style::TerminalStyle;
use crate::config::repos::ServerRepos;
use crate::config::server::{RawSettings, SETTINGS, SearchConfig, Setting, ValueKind};
use crate::kit::term::{
    ExitResult, ExitStatus, SubcommandArgs, Terminal, Usage, block_on, config_files, environment,
};
use crate::model::{BranchName, RepoId};

use crate::config::repo::shown;
use local::Local;
use verdict::{CheckRequest, CheckVerdict};

/// Maximum width of readable lists.
const WIDEST: usize = 120;

/// Check the local configuration, and show what would be planned and why
///
/// Validates the configuration of the repository and of the server, and shows what a pull request with the changes of
/// this working tree would plan. It lists every planned project with the rule and the pattern that selected it, its
/// settings and where each of them comes from. For every other project it gives the reason. Nothing is run.
///
/// Settings of the server are read from the flags below, or from the same environment variables as for the server
/// (`LOCKKEEPER_AUTODISCOVER_MODE`, then `ATLANTIS_AUTODISCOVER_MODE`).
///
/// Exit codes: 0 no problems, 1 a file has errors, 2 the command line is wrong or something cannot be read.
#[derive(clap::Parser)]
pub(super) struct CheckArgs {
    /// Directory of the repository, or a directory in it
    #[arg(default_value = ".")]
    dir: String,
    /// Revision to compare with [default: origin/HEAD, else main or master]
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    /// Base branch of the pull request [default: the branch of --base]
    #[arg(long, value_name = "NAME")]
    base_branch: Option<BranchName>,
    /// Name of the repository on the server [default: from the URL of origin]
    #[arg(long, value_name = "HOST/OWNER/NAME")]
    repo: Option<RepoId>,
    /// Do not shorten lists; if there is no revision to compare with, treat all files as changed
    #[arg(long)]
    all: bool,
    /// Print JSON for programs (docs/check.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    search: SearchFlags,
}

/// Flags of the server that decide what is planned, by name, with their values. The table of settings declares them.
struct SearchFlags(BTreeMap<String, Vec<String>>);

impl SearchFlags {
    const HEADING: &str = "Settings of the server";

    fn settings() -> impl Iterator<Item = &'static Setting> {
        let counts = |setting: &&Setting| SearchConfig::FLAGS.contains(&setting.flag);
        SETTINGS.iter().filter(counts)
    }
}

impl clap::Args for SearchFlags {
    fn augment_args(command: Command) -> Command {
        let flag = |setting| server_args::arg(setting).help_heading(Self::HEADING);
        command.args(Self::settings().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SearchFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = BTreeMap::new();
        for setting in Self::settings() {
            let values: Vec<String> = if setting.kind == ValueKind::Switch {
                let is_on = matches.get_flag(setting.flag);
                is_on.then(|| "true".to_owned()).into_iter().collect()
            } else {
                let values = matches.get_many::<String>(setting.flag);
                values.into_iter().flatten().cloned().collect()
            };
            if !values.is_empty() {
                flags.insert(setting.flag.to_owned(), values);
            }
        }
        Ok(Self(flags))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl SubcommandArgs for CheckArgs {
    fn run(mut self, terminal: &mut Terminal<'_>) -> ExitResult {
        let mut raw = environment::read()?;
        raw.flags.append(&mut self.search.0);
        let raw = config_files::add(raw);
        let config = SearchConfig::from_raw(&raw).map_err(Usage::new)?;
        let verdict = match block_on(run_check(&self, &raw, &config)).flatten() {
            Ok(verdict) => verdict,
            Err(error) => return Ok(terminal.usage(&format!("error: {error:#}\n"))),
        };
        let printed = if self.json {
            let json = serde_json::to_string_pretty(&json::of(&verdict));
            terminal.line(json.context("cannot write JSON")?)
        } else {
            let no_color = raw.variables.get("NO_COLOR").map(String::as_str);
            let style = TerminalStyle::of_stdout(no_color, WIDEST);
            text::print(&verdict, self.all, &style, terminal)
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
}

async fn run_check(
    args: &CheckArgs,
    raw: &RawSettings,
    config: &SearchConfig,
) -> anyhow::Result<CheckVerdict> {
    let dir = raw.absolute(&args.dir);
    let local = inspect_dir(&dir, args.base.as_deref(), raw, args.all).await?;
    let asked = CheckRequest {
        repo: args.repo.clone().unwrap_or_else(|| local.repo()),
        branch: args.base_branch.clone(),
    };
    verdict::reach(local, &asked, config)
}

async fn inspect_dir(
    dir: &Path,
    base: Option<&str>,
    raw: &RawSettings,
    all: bool,
) -> anyhow::Result<Local> {
    if !dir.is_dir() {
        return Err(anyhow!("`{}` is not a directory", dir.display()));
    }
    Local::read(dir, base, environment::for_git(raw), all).await
}

/// Applies `--disable-repo-locking`, which overrides all other settings of locking.
fn without_locking(repos: ServerRepos, is_off: bool) -> ServerRepos {
    if is_off {
        repos.without_locking()
    } else {
        repos
    }
}
