//! Shows annotations as check runs (GitHub REST: "Create a check run", "Update a check run"). Only Apps with the
//! permission to write checks may create them. Nothing is sent with other credentials.
//!
//! - A check run never loses an annotation. So other annotations need another run, and GitHub shows the newest one of a
//!   name. `external_id` has a digest of everything that a run shows, so the same run is not made twice.
//! - GitHub takes 50 annotations with a request. A run is completed from its first request on, so a server that stops
//!   before the last one leaves no check that is pending forever. The next attempt counts the annotations of the run and
//!   adds the rest.
//! - The conclusion is `neutral`, which passes where a branch requires the check. The status decides, also about
//!   approvals that come later.

use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Call, RequestFailure};
use super::pages::PAGE;
use super::{GitHub, repo_path, segment};
use crate::forges::{AnnotateAnswer, WritePermit};
use crate::model::{AnnotationSet, LineAnnotation, Sha256Digest, StatusTarget};

/// Maximum number of annotations of a request.
const PER_REQUEST: usize = 50;

/// Page of `GET /repos/{owner}/{repo}/commits/{ref}/check-runs`.
#[derive(Deserialize)]
struct NamedRunsAnswer {
    check_runs: Vec<NamedRunAnswer>,
}

#[derive(Deserialize)]
struct NamedRunAnswer {
    id: u64,
    external_id: Option<String>,
    app: Option<RunAppAnswer>,
    output: RunOutputAnswer,
}

#[derive(Deserialize)]
struct RunAppAnswer {
    id: u64,
}

#[derive(Deserialize)]
struct RunOutputAnswer {
    #[serde(default)]
    annotations_count: usize,
}

/// Answer to a new check run.
#[derive(Deserialize)]
struct CreatedCheckRun {
    id: u64,
}

/// Shows annotations on a commit, in place of those that the same App has shown under the same name.
pub(super) async fn annotate(
    github: &GitHub,
    on: &StatusTarget,
    set: &AnnotationSet,
    permit: &WritePermit,
) -> Result<AnnotateAnswer, RequestFailure> {
    let StatusTarget { repo, commit, .. } = on;
    let Some(app) = github.credentials.writes_checks(&github.wire, repo).await? else {
        return Ok(AnnotateAnswer::NotPossible);
    };
    let what = format!(
        "the annotations `{}` of {}@{}",
        set.name,
        repo.full_name(),
        commit.short()
    );
    let runs = format!("{}/check-runs", repo_path(repo));
    let digest = digest(set);
    let known = newest(github, on, set, app, &what).await?;
    let (id, shown) = match known {
        Some(run) if run.external_id.as_deref() == Some(digest.as_str()) => {
            (run.id, run.output.annotations_count)
        }
        None if set.lines.is_empty() => return Ok(AnnotateAnswer::NothingToShow),
        Some(_) | None => {
            let first = &set.lines[..set.lines.len().min(PER_REQUEST)];
            let body = json!({
                "name": set.name,
                "head_sha": commit,
                "external_id": digest,
                "details_url": set.url,
                "status": "completed",
                "conclusion": "neutral",
                "output": output(set, first),
            });
            let call = Call::post(runs.clone(), body, what.as_str()).with_permit(permit);
            let answer = github.credentials.send(&github.wire, repo, &call).await?;
            let made: CreatedCheckRun = answer.json(&github.wire.host, &call.what)?;
            (made.id, first.len())
        }
    };
    let rest = set.lines.get(shown..).unwrap_or_default();
    for part in rest.chunks(PER_REQUEST) {
        let body = json!({ "output": output(set, part) });
        let call = Call::patch(format!("{runs}/{id}"), body, what.as_str()).with_permit(permit);
        github.credentials.send(&github.wire, repo, &call).await?;
    }
    Ok(AnnotateAnswer::Shown)
}

/// Returns the newest check run of this App with the name on a commit.
async fn newest(
    github: &GitHub,
    on: &StatusTarget,
    set: &AnnotationSet,
    app: u64,
    what: &str,
) -> Result<Option<NamedRunAnswer>, RequestFailure> {
    let path = format!(
        "{}/commits/{}/check-runs?check_name={}&filter=latest&per_page={PAGE}",
        repo_path(&on.repo),
        on.commit,
        segment(set.name.as_str())
    );
    let call = Call::get(path, what);
    let answer = github
        .credentials
        .send(&github.wire, &on.repo, &call)
        .await?;
    let answer: NamedRunsAnswer = answer.json(&github.wire.host, &call.what)?;
    let runs = answer.check_runs.into_iter();
    let own = runs.filter(|run| run.app.as_ref().is_some_and(|by| by.id == app));
    Ok(own.max_by_key(|run| run.id))
}

fn output(set: &AnnotationSet, lines: &[LineAnnotation]) -> Value {
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "path": line.path,
                "start_line": line.line,
                "end_line": line.line,
                "annotation_level": line.level,
                "title": line.title,
                "message": line.message,
            })
        })
        .collect();
    json!({ "title": set.title, "summary": set.summary, "annotations": lines })
}

fn digest(set: &AnnotationSet) -> Sha256Digest {
    let text = serde_json::to_string(set).expect("texts and numbers are JSON");
    Sha256Digest::of(text.as_bytes())
}
