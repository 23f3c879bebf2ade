//! Reads the states of required checks of a commit. Commit statuses and check runs share names, and GitHub requires
//! both where both exist (GitHub REST: "List commit statuses for a reference", "List check runs for a Git
//! reference"). An App needs the permissions to read commit statuses and checks.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::call::RequestFailure;
use super::pages::Pages;
use super::rules::RequiredCheck;
use super::{GitHub, repo_path};
use crate::model::Pull;

/// State of a required check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequiredState {
    Passed,
    Missing,
    Pending,
    /// The status passed, but GitHub does not tell which App set it.
    OfUnknownApp,
    Failed,
}

/// Entry of `GET /repos/{owner}/{repo}/commits/{ref}/statuses`, newest first.
#[derive(Deserialize)]
struct StatusAnswer {
    context: String,
    state: String,
}

/// Page of `GET /repos/{owner}/{repo}/commits/{ref}/check-runs`.
#[derive(Deserialize)]
struct RunsAnswer {
    check_runs: Vec<RunAnswer>,
}

#[derive(Deserialize)]
struct RunAnswer {
    name: String,
    status: String,
    #[serde(default)]
    conclusion: Option<String>,
    #[serde(default)]
    app: Option<AppAnswer>,
}

#[derive(Deserialize)]
struct AppAnswer {
    id: i64,
}

/// Statuses and check runs of a commit.
#[derive(Default)]
pub(super) struct CommitChecks {
    /// Newest status of each name, in lower case.
    statuses: BTreeMap<String, RequiredState>,
    /// Check runs by name, with their Apps.
    runs: Vec<(String, Option<i64>, RequiredState)>,
}

/// Fetches the checks of a pull's head. Sends no request if no check is required.
pub(super) async fn of(
    github: &GitHub,
    pull: &Pull,
    required: &[RequiredCheck],
) -> Result<CommitChecks, RequestFailure> {
    let mut checks = CommitChecks::default();
    if required.is_empty() {
        return Ok(checks);
    }
    let (repo, commit) = (
        &pull.at.repo,
        format!("{}/commits/{}", repo_path(&pull.at.repo), pull.head),
    );
    let what = |what: &str| format!("the {what} of {}@{}", repo.full_name(), pull.head.short());
    let mut pages = Pages::new(
        github,
        repo,
        &format!("{commit}/statuses"),
        "",
        what("statuses"),
    );
    while let Some(page) = pages.next::<StatusAnswer>().await? {
        for status in page {
            checks
                .statuses
                .entry(status.context.to_lowercase())
                .or_insert(of_status(&status.state));
        }
    }
    let mut pages = Pages::new(
        github,
        repo,
        &format!("{commit}/check-runs"),
        "filter=latest&",
        what("check runs"),
    );
    while let Some(page) = pages
        .next_as(|page: &RunsAnswer| page.check_runs.len())
        .await?
    {
        checks.runs.extend(page.check_runs.into_iter().map(|run| {
            let state = of_run(&run);
            (run.name.to_lowercase(), run.app.map(|app| app.id), state)
        }));
    }
    Ok(checks)
}

impl CommitChecks {
    /// Returns the state of a required check: the worst of all statuses and runs with its name.
    pub fn of(&self, check: &RequiredCheck) -> RequiredState {
        let name = check.context.to_lowercase();
        let status = self
            .statuses
            .get(&name)
            .map(|state| match (check.app, state) {
                (Some(_), RequiredState::Passed) => RequiredState::OfUnknownApp,
                (_, state) => *state,
            });
        let runs = self.runs.iter().filter(|(run, ..)| *run == name);
        let of_app = runs
            .filter(|(_, app, _)| check.app.is_none() || check.app == *app)
            .map(|(.., state)| *state);
        let run = of_app.max();
        match (status, run) {
            // The run is of the required App, so the status need not be.
            (Some(RequiredState::OfUnknownApp), Some(run)) => run,
            (status, run) => status.max(run).unwrap_or(RequiredState::Missing),
        }
    }
}

fn of_status(state: &str) -> RequiredState {
    match state {
        "success" => RequiredState::Passed,
        "pending" => RequiredState::Pending,
        _ => RequiredState::Failed,
    }
}

fn of_run(run: &RunAnswer) -> RequiredState {
    match (run.status.as_str(), run.conclusion.as_deref()) {
        ("completed", Some("success" | "neutral" | "skipped")) => RequiredState::Passed,
        ("completed", _) => RequiredState::Failed,
        _ => RequiredState::Pending,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checks() -> CommitChecks {
        let run = |name: &str, app: i64, status: &str, conclusion: Option<&str>| {
            let run = json!({"name": name, "status": status, "conclusion": conclusion, "app": {"id": app}});
            let run: RunAnswer = serde_json::from_value(run).unwrap();
            (
                run.name.to_lowercase(),
                run.app.as_ref().map(|app| app.id),
                of_run(&run),
            )
        };
        let statuses = [
            ("ci/a", "success"),
            ("ci/b", "pending"),
            ("ci/c", "error"),
            ("both", "success"),
        ];
        CommitChecks {
            statuses: statuses
                .map(|(name, state)| (name.to_owned(), of_status(state)))
                .into(),
            runs: vec![
                run("Test", 7, "completed", Some("success")),
                run("test", 8, "completed", Some("failure")),
                run("lint", 7, "completed", Some("skipped")),
                run("slow", 7, "in_progress", None),
                run("old", 7, "completed", Some("stale")),
                run("both", 7, "completed", Some("cancelled")),
            ],
        }
    }

    #[test]
    fn everything_with_the_name_has_to_pass() {
        let of = |context: &str, app| {
            checks().of(&RequiredCheck {
                context: context.to_owned(),
                app,
            })
        };
        for (context, app, expected) in [
            ("ci/a", None, RequiredState::Passed),
            ("CI/A", None, RequiredState::Passed),
            ("ci/a", Some(7), RequiredState::OfUnknownApp),
            ("ci/b", None, RequiredState::Pending),
            ("ci/c", Some(7), RequiredState::Failed),
            ("ci/d", None, RequiredState::Missing),
            ("both", None, RequiredState::Failed),
            ("test", None, RequiredState::Failed),
            ("test", Some(7), RequiredState::Passed),
            ("test", Some(9), RequiredState::Missing),
            ("lint", None, RequiredState::Passed),
            ("slow", None, RequiredState::Pending),
            ("old", None, RequiredState::Failed),
        ] {
            assert_eq!(of(context, app), expected, "{context} {app:?}");
        }
    }
}
