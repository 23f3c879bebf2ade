//! Serves check runs. Only the App may write them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::CommitSha;
use crate::world::{CheckRunFacts, EmulatedAnnotation, EmulatedCheckRun};

use super::auth::Caller;
use super::errors::{ApiError, read_body};
use super::paging::Listing;
use super::views::check_run;
use super::{Cx, WireResponse};

/// Maximum number of annotations of a request (GitHub REST: "Create a check run").
const MAX_ANNOTATIONS: usize = 50;
const MAX_SUMMARY_CHARS: usize = 65_535;
const MAX_MESSAGE_BYTES: usize = 64 << 10;
const MAX_TITLE_CHARS: usize = 255;
const MAX_PATH_BYTES: usize = 4096;
/// Largest number of a line.
const MAX_LINE: u64 = 2_147_483_647;

const CONCLUSIONS: [&str; 7] = [
    "action_required",
    "cancelled",
    "failure",
    "neutral",
    "success",
    "skipped",
    "timed_out",
];
const LEVELS: [&str; 3] = ["notice", "warning", "failure"];

/// Body of a request to create or change a check run.
#[derive(Deserialize)]
struct CheckRunPayload {
    name: Option<String>,
    head_sha: Option<String>,
    external_id: Option<String>,
    details_url: Option<String>,
    status: Option<String>,
    conclusion: Option<String>,
    output: Option<CheckOutputPayload>,
}

#[derive(Deserialize)]
struct CheckOutputPayload {
    title: Option<String>,
    summary: String,
    #[serde(default)]
    annotations: Vec<AnnotationPayload>,
}

#[derive(Deserialize)]
struct AnnotationPayload {
    path: String,
    start_line: u64,
    end_line: u64,
    annotation_level: String,
    title: Option<String>,
    message: String,
}

impl CheckRunPayload {
    /// Checks the fields by GitHub's rules.
    fn check(self) -> Result<Self, ApiError> {
        let conclusion = self.conclusion.as_deref();
        if conclusion.is_some_and(|word| !CONCLUSIONS.contains(&word)) {
            return invalid("conclusion", "conclusion is not included in the list");
        }
        if self.status.as_deref() == Some("completed") && conclusion.is_none() {
            return invalid("conclusion", "conclusion is required for a completed run");
        }
        if self
            .details_url
            .as_ref()
            .is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://"))
        {
            return invalid("details_url", "details_url must use http(s) scheme");
        }
        let Some(output) = &self.output else {
            return Ok(self);
        };
        if output.summary.chars().count() > MAX_SUMMARY_CHARS {
            return invalid("summary", "summary exceeds a maximum length of 65535");
        }
        if output.annotations.len() > MAX_ANNOTATIONS {
            return invalid("annotations", "annotations exceeds the maximum quantity");
        }
        if !output.annotations.iter().all(AnnotationPayload::is_valid) {
            return invalid("annotations", "an annotation is not valid");
        }
        Ok(self)
    }

    /// Moves everything that the request has into the facts of the check run. Returns the annotations to add.
    fn put_into(self, facts: &mut CheckRunFacts) -> Vec<EmulatedAnnotation> {
        let Self {
            name,
            external_id,
            details_url,
            conclusion,
            output,
            ..
        } = self;
        if let Some(name) = name {
            facts.name = name;
        }
        facts.external_id = external_id.or(facts.external_id.take());
        facts.details_url = details_url.or(facts.details_url.take());
        facts.conclusion = conclusion.or(facts.conclusion.take());
        let Some(output) = output else {
            return Vec::new();
        };
        facts.title = output.title.or(facts.title.take());
        facts.summary = Some(output.summary);
        output
            .annotations
            .into_iter()
            .map(|one| EmulatedAnnotation {
                path: one.path,
                start_line: one.start_line,
                end_line: one.end_line,
                level: one.annotation_level,
                title: one.title,
                message: one.message,
            })
            .collect()
    }
}

impl AnnotationPayload {
    fn is_valid(&self) -> bool {
        let path = !self.path.is_empty()
            && self.path.len() <= MAX_PATH_BYTES
            && !self.path.starts_with('/')
            && self
                .path
                .split('/')
                .all(|part| !matches!(part, "" | "." | ".."));
        let title = self.title.as_ref().map_or(0, |title| title.chars().count());
        path && self.start_line >= 1
            && self.start_line <= self.end_line
            && self.end_line <= MAX_LINE
            && LEVELS.contains(&self.annotation_level.as_str())
            && title <= MAX_TITLE_CHARS
            && !self.message.is_empty()
            && self.message.len() <= MAX_MESSAGE_BYTES
    }
}

fn invalid<T>(field: &'static str, message: &str) -> Result<T, ApiError> {
    Err(ApiError::Invalid {
        resource: "CheckRun",
        code: "custom",
        field,
        message: message.to_owned(),
    })
}

/// `POST …/check-runs`
pub(super) async fn create(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo)): Path<(String, String)>,
    body: Bytes,
) -> WireResponse {
    caller.must_be_installation()?;
    let (key, _) = caller.writes(&cx.world.state(), &owner, &repo)?;
    let new = read_body::<CheckRunPayload>(&body)?.check()?;
    let (Some(sha), Some(_)) = (&new.head_sha, &new.name) else {
        return invalid("head_sha", "name and head_sha are required");
    };
    let commit = cx.world.commit(&key, sha).await?;
    let mut facts = CheckRunFacts::default();
    let annotations = new.put_into(&mut facts);
    let run = cx.world.add_check_run(&key, commit, facts, annotations)?;
    Ok((StatusCode::CREATED, Json(shown(&cx, &key, &run)?)).into_response())
}

/// `PATCH …/check-runs/{id}`. Annotations are added to those that the check run has.
pub(super) async fn change(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, id)): Path<(String, String, String)>,
    body: Bytes,
) -> WireResponse {
    caller.must_be_installation()?;
    let (key, _) = caller.writes(&cx.world.state(), &owner, &repo)?;
    let id: u64 = id.parse().map_err(|_| ApiError::NotFound)?;
    let changed = read_body::<CheckRunPayload>(&body)?.check()?;
    let run = cx
        .world
        .change_check_run(&key, id, |facts| changed.put_into(facts))?;
    let run = run.ok_or(ApiError::NotFound)?;
    Ok(Json(shown(&cx, &key, &run)?).into_response())
}

fn shown(cx: &Cx, key: &str, run: &EmulatedCheckRun) -> Result<Value, ApiError> {
    let state = cx.world.state();
    Ok(check_run(&cx.github, state.repo(key)?, run))
}

/// `GET …/commits/{ref}/check-runs`, newest first. Without `filter=all` only the newest one of each name.
pub(super) fn of_commit(
    cx: &Cx,
    key: &str,
    sha: &CommitSha,
    listing: &Listing,
) -> Result<Value, ApiError> {
    let state = cx.world.state();
    let repo = state.repo(key)?;
    let wanted = listing.params.get("check_name");
    let has_all = listing
        .params
        .get("filter")
        .is_some_and(|word| word == "all");
    let mut found: Vec<&EmulatedCheckRun> = Vec::new();
    for run in repo.check_runs_of(sha).into_iter().rev() {
        let name = &run.facts.name;
        let is_newest = found.iter().all(|newer| newer.facts.name != *name);
        if wanted.is_none_or(|wanted| wanted == name) && (has_all || is_newest) {
            found.push(run);
        }
    }
    let runs: Vec<Value> = found
        .into_iter()
        .map(|run| check_run(&cx.github, repo, run))
        .collect();
    Ok(json!({ "total_count": runs.len(), "check_runs": listing.page().slice(runs) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotation(path: &str, line: u64) -> Value {
        json!({
            "path": path, "start_line": line, "end_line": line, "annotation_level": "failure", "message": "m",
        })
    }

    fn checked(annotations: &[Value]) -> Result<CheckRunPayload, ApiError> {
        let body = json!({
            "name": "n", "head_sha": "s", "conclusion": "neutral",
            "output": { "title": "t", "summary": "s", "annotations": annotations },
        });
        read_body::<CheckRunPayload>(body.to_string().as_bytes())?.check()
    }

    #[test]
    fn annotations_are_checked_by_githubs_rules() {
        let many = |number: u64| -> Vec<Value> {
            let lines = 1..=number;
            lines.map(|line| annotation("a/main.tf", line)).collect()
        };
        assert!(checked(&many(50)).is_ok());
        assert!(checked(&many(51)).is_err());
        for (path, line) in [
            ("", 1),
            ("/etc/passwd", 1),
            ("../x", 1),
            ("a/./b", 1),
            ("a", 0),
            ("a", 1 << 31),
        ] {
            assert!(checked(&[annotation(path, line)]).is_err(), "{path} {line}");
        }
    }
}
