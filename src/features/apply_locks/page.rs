//! `/apply-locks`: the apply locks with their scopes, reasons and end times.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use serde::{Deserialize, Serialize};

use super::actions::{StopOutcome, allow, not_set, seen, set_before, stop, unusable};
use super::input::{ApplyLockField, ApplyLockFields, ApplyLockProblem, NewApplyLock};
use super::view::ApplyLockEntry;
use crate::kit::web::csrf::{Confirmed, EmptyForm};
use crate::kit::web::extract::{LenientQuery, Segment};
use crate::kit::web::forms::FormProblems;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{ApplyLock, ApplyLockId, Reason, RepoPath};

/// `?notice=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ApplyLocksQuery {
    notice: String,
}

fn notice(code: &str) -> Option<&'static str> {
    match code {
        "set" => Some("These applies are stopped. Running applies continue to their end."),
        "ended" => {
            Some("The apply lock was ended. Applies that no other lock stops are allowed again.")
        }
        "gone" => Some("That apply lock had already ended."),
        _ => None,
    }
}

#[derive(Serialize)]
struct ApplyLocksPage {
    notice: Option<&'static str>,
    locks: Vec<ApplyLockEntry>,
    typed: ApplyLockForm,
    wrong: FormProblems,
    most_chars: usize,
    longest_dir: usize,
}

/// Values of the form, which are shown again if something is wrong.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ApplyLockForm {
    scope: String,
    repo: String,
    dir: String,
    reason: String,
    until: String,
}

impl ApplyLockForm {
    /// Returns the values of the form on the dashboard, which stops all applies.
    pub fn everywhere(reason: String) -> Self {
        Self {
            scope: "server".to_owned(),
            reason,
            ..Self::default()
        }
    }

    fn new_lock(&self) -> Result<NewApplyLock, Vec<ApplyLockProblem>> {
        let fields = ApplyLockFields {
            repo: &self.repo,
            dir: &self.dir,
            reason: &self.reason,
            until: &self.until,
        };
        let (read, mut contradictions) = (fields.new_lock(), self.contradictions());
        match read {
            Ok(lock) if contradictions.is_empty() => Ok(lock),
            Ok(_) => Err(contradictions),
            Err(problems) => {
                contradictions.extend(problems);
                Err(contradictions)
            }
        }
    }

    /// Finds contradictions between the chosen scope and the fields.
    fn contradictions(&self) -> Vec<ApplyLockProblem> {
        let (has_repo, has_dir) = (!self.repo.trim().is_empty(), !self.dir.trim().is_empty());
        let (repo, dir) = match self.scope.as_str() {
            "server" => (
                has_repo
                    .then_some("All repositories are chosen above. Choose one repository there, or empty this field."),
                has_dir
                    .then_some("All repositories are chosen above. Choose one directory there, or empty this field."),
            ),
            "repo" => (
                (!has_repo).then_some("Give the repository with its host, as in github.com/acme/infra."),
                has_dir
                    .then_some("A whole repository is chosen above. Choose one directory there, or empty this field."),
            ),
            "path" => (
                (!has_repo).then_some("Give the repository of the directory, as in github.com/acme/infra."),
                (!has_dir).then_some("Give the directory from the root of the repository, as in network/eu."),
            ),
            _ => (Some("Choose above which applies to stop."), None),
        };
        let problem = |field| move |text: &str| ApplyLockProblem::new(field, text);
        let repo = repo.map(problem(ApplyLockField::Repo));
        repo.into_iter()
            .chain(dir.map(problem(ApplyLockField::Dir)))
            .collect()
    }
}

/// `GET /apply-locks`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    LenientQuery(params): LenientQuery<ApplyLocksQuery>,
) -> Result<Response, WebError> {
    let scope = if visible.owners().is_none() {
        "server"
    } else {
        "repo"
    };
    let typed = ApplyLockForm {
        scope: scope.to_owned(),
        ..ApplyLockForm::default()
    };
    page(
        &web,
        (&visitor, &visible),
        notice(&params.notice),
        typed,
        FormProblems::default(),
    )
    .await
}

async fn page(
    web: &WebState,
    (visitor, visible): (&Visitor, &VisibleScope),
    notice: Option<&'static str>,
    typed: ApplyLockForm,
    wrong: FormProblems,
) -> Result<Response, WebError> {
    let locks = seen(web, visible, None).await?;
    let locks = locks.iter().map(ApplyLockEntry::from).collect();
    let (most_chars, longest_dir) = (Reason::MAX_CHARS, RepoPath::MAX_BYTES);
    visitor.page(
        "apply_locks.html",
        &ApplyLocksPage {
            notice,
            locks,
            typed,
            wrong,
            most_chars,
            longest_dir,
        },
    )
}

/// `POST /apply-locks`
pub(super) async fn set(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    form: Confirmed<ApplyLockForm>,
) -> Result<Response, WebError> {
    match set_or_show_form(&web, (&visitor, &visible), form).await? {
        Ok(_) => Ok(to_page(&web, "set").into_response()),
        Err(again) => Ok(again),
    }
}

/// Sets the apply lock. If the form is wrong, answers with the page, the problems and all values.
pub(super) async fn set_or_show_form(
    web: &WebState,
    who: (&Visitor, &VisibleScope),
    form: Confirmed<ApplyLockForm>,
) -> Result<Result<ApplyLock, Response>, WebError> {
    let typed = form.fields;
    let (status, wrong) = match stop(web, typed.new_lock(), &form.who.at_page()).await? {
        StopOutcome::Set(lock) => return Ok(Ok(lock)),
        StopOutcome::AlreadySet(lock) => (
            StatusCode::CONFLICT,
            FormProblems::general(set_before(&lock)),
        ),
        StopOutcome::Wrong(problems) => {
            let fields: Vec<&str> = ApplyLockField::ALL
                .iter()
                .map(|field| field.as_str())
                .collect();
            let wrong = FormProblems::by_field(&fields, unusable(&problems).problems());
            (StatusCode::UNPROCESSABLE_ENTITY, wrong)
        }
    };
    Ok(Err(
        (status, page(web, who, None, typed, wrong).await?).into_response()
    ))
}

/// `POST /apply-locks/{id}/end`
pub(super) async fn end(
    State(web): State<Arc<WebState>>,
    Segment(asked): Segment,
    form: Confirmed<EmptyForm>,
) -> Result<Redirect, WebError> {
    let id: ApplyLockId = asked.parse().map_err(|_| not_set())?;
    let ended = allow(&web, id, &form.who.at_page()).await?;
    Ok(to_page(
        &web,
        if ended.is_some() { "ended" } else { "gone" },
    ))
}

fn to_page(web: &WebState, notice: &str) -> Redirect {
    Redirect::to(&web.link(&format!("/apply-locks?notice={notice}")))
}
