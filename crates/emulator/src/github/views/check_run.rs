//! Builds the JSON of check runs.

use serde_json::{Value, json};

use crate::github::{GitHubWire, time};
use crate::world::{EmulatedCheckRun, Repo};

use super::app::app;
use super::node_id;

/// Builds the JSON of a check run. Every check run is one of the App, because nobody else may create any.
pub(in crate::github) fn check_run(
    github: &GitHubWire,
    repo: &Repo,
    run: &EmulatedCheckRun,
) -> Value {
    let own = github.api(&format!("/repos/{}/check-runs/{}", repo.name, run.id));
    let html = github.html(&format!("/{}/runs/{}", repo.name, run.id));
    let facts = &run.facts;
    let is_completed = facts.conclusion.is_some();
    json!({
        "id": run.id,
        "node_id": node_id("CheckRun", run.id),
        "head_sha": run.sha,
        "external_id": facts.external_id.as_deref().unwrap_or_default(),
        "url": own,
        "html_url": html,
        "details_url": facts.details_url.as_ref().unwrap_or(&html),
        "status": if is_completed { "completed" } else { "in_progress" },
        "conclusion": facts.conclusion,
        "started_at": time(run.created_at),
        "completed_at": is_completed.then(|| time(run.created_at)),
        "output": {
            "title": facts.title,
            "summary": facts.summary,
            "text": null,
            "annotations_count": run.annotations.len(),
            "annotations_url": format!("{own}/annotations"),
        },
        "name": facts.name,
        "check_suite": { "id": 1 },
        "app": github.app.as_ref().map(|of| app(github, of)),
        "pull_requests": [],
    })
}
