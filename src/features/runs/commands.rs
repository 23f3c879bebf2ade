//! Recent commands and their runs.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::kit::web::text::{Badge, PastTime, PullName, SearchWords, duration, shown};
use crate::kit::web::{WebError, WebState};
use crate::model::{CommandId, PullRef, RepoId};
use crate::store::{CommandRow, RunRow};

/// Number of commands that a search looks through.
const SEARCHED: i64 = 500;
/// Maximum number of commands on the page.
const SHOWN: usize = 40;
/// Maximum number of runs that are read for the commands.
const RUNS: i64 = 2000;

/// A command in the list.
#[derive(Serialize)]
pub(crate) struct CommandLine {
    kind: &'static str,
    pull: PullName,
    actor: String,
    way: &'static str,
    asked: PastTime,
    took: Option<String>,
    badge: Badge,
    note: Option<String>,
    runs: Vec<RunLink>,
}

/// A run of a command.
#[derive(Serialize)]
pub(crate) struct RunLink {
    id: String,
    project: String,
    badge: Badge,
}

/// Returns the newest commands that match the search, on pulls of these repositories or of all.
pub(crate) async fn recent_commands(
    web: &WebState,
    repos: Option<&[RepoId]>,
    search: &SearchWords,
    now: DateTime<Utc>,
) -> Result<Vec<CommandLine>, WebError> {
    let limit = if search.is_empty() {
        i64::try_from(SHOWN).unwrap_or(SEARCHED)
    } else {
        SEARCHED
    };
    let commands = match repos {
        Some(repos) => web.store.command_list_of_repos(repos, limit).await?,
        None => web.store.command_list(limit).await?,
    };
    let ids: Vec<CommandId> = commands.iter().map(|command| command.id).collect();
    let recent = web.store.run_list_of_commands(&ids, RUNS).await?;
    let mut runs: HashMap<CommandId, Vec<RunRow>> = HashMap::new();
    for run in recent {
        runs.entry(run.command).or_default().push(run);
    }
    let lines = commands.iter().filter_map(|command| {
        let runs = runs.remove(&command.id).unwrap_or_default();
        is_found(search, command, &runs).then(|| CommandLine::new(command, &runs, now))
    });
    Ok(lines.take(SHOWN).collect())
}

fn is_found(search: &SearchWords, command: &CommandRow, runs: &[RunRow]) -> bool {
    let pull = format!(
        "{} {}",
        command.pull,
        command.title.as_deref().unwrap_or_default()
    );
    let mut fields = vec![
        command.kind.as_str().to_owned(),
        pull,
        command.asker().to_string(),
    ];
    fields.extend(runs.iter().map(|run| run.project.to_string()));
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    search.finds(&fields)
}

impl CommandLine {
    /// Returns the host of the repository.
    pub fn host(&self) -> &str {
        &self.pull.host
    }

    fn new(command: &CommandRow, runs: &[RunRow], now: DateTime<Utc>) -> Self {
        let took = command
            .finished_at
            .map(|end| duration(end - command.created_at));
        let note = command
            .stop
            .as_ref()
            .map(|stop| &stop.why)
            .or(command.reason.as_ref())
            .map(|note| shown(&note.replace('`', "")));
        Self {
            kind: command.kind.as_str(),
            pull: PullName::titled(&command.pull, &pull_page(command), command.title.as_deref()),
            actor: shown(&command.asker().to_string()),
            way: command.actor.origin.way(),
            asked: PastTime::new(command.created_at, now),
            took,
            badge: Badge::of_command(command.state, command.outcome),
            note,
            runs: runs.iter().rev().map(RunLink::new).collect(),
        }
    }
}

/// Returns links to the runs of a command, in the order of the runs.
pub(crate) fn run_links(runs: &[RunRow]) -> Vec<RunLink> {
    runs.iter().map(RunLink::new).collect()
}

impl RunLink {
    fn new(run: &RunRow) -> Self {
        Self {
            id: run.id.to_string(),
            project: shown(&run.project.status_id()),
            badge: Badge::of_run(run.state, run.outcome),
        }
    }
}

/// Returns the page of the command's pull. If the pull was never read, because only help was requested, the link has the
/// form of GitHub, the only forge with an adapter.
pub(super) fn pull_page(command: &CommandRow) -> String {
    let guess = |pull: &PullRef| {
        format!(
            "https://{}/{}/pull/{}",
            pull.repo.host(),
            pull.repo.full_name(),
            pull.subject
        )
    };
    command
        .pull_url
        .clone()
        .unwrap_or_else(|| guess(&command.pull))
}
