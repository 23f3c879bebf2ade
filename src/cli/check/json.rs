//! The verdict for programs: stable keys, documented in `docs/check.md`.

use serde::Serialize;

use super::local::LocalChange;
use super::verdict::{CheckVerdict, FileProblem};
use crate::config::repo::FilePosition;
use crate::discovery::explain::ExplanationJson;

/// Version of the JSON format.
const VERSION: u32 = 1;

/// Verdict in its JSON format.
#[derive(Serialize)]
pub(super) struct VerdictJson<'a> {
    v: u32,
    repo: String,
    base_branch: &'a str,
    base: Option<BaseJson<'a>>,
    config_file: Option<&'a str>,
    server_file: Option<&'a str>,
    pre_workflow_hooks: usize,
    changed_files: Option<usize>,
    uncommitted_files: Vec<&'a str>,
    problems: Vec<ProblemJson<'a>>,
    warnings: Vec<ProblemJson<'a>>,
    explanation: Option<ExplanationJson<'a>>,
}

#[derive(Serialize)]
struct BaseJson<'a> {
    rev: &'a str,
    merge_base: &'a str,
}

#[derive(Serialize)]
struct ProblemJson<'a> {
    file: Option<&'a str>,
    line: Option<usize>,
    column: Option<usize>,
    what: &'a str,
    help: Option<&'a str>,
}

/// Returns the serializable form of a verdict.
pub(super) fn of(verdict: &CheckVerdict) -> VerdictJson<'_> {
    let change = &verdict.local.change;
    let (base, uncommitted) = match change {
        LocalChange::Since {
            base, uncommitted, ..
        } => {
            let base = BaseJson {
                rev: &base.rev,
                merge_base: base.merge_base.as_str(),
            };
            (
                Some(base),
                uncommitted
                    .iter()
                    .map(crate::model::RepoPath::as_str)
                    .collect(),
            )
        }
        LocalChange::Everything(_) | LocalChange::Unknown { .. } => (None, Vec::new()),
    };
    VerdictJson {
        v: VERSION,
        repo: verdict.repo.to_string(),
        base_branch: verdict.branch.as_str(),
        base,
        config_file: verdict.config_file.as_deref(),
        server_file: verdict.server_file.as_deref(),
        pre_workflow_hooks: verdict.hooks,
        changed_files: change.files().map(<[_]>::len),
        uncommitted_files: uncommitted,
        problems: verdict.problems.iter().flat_map(problems).collect(),
        warnings: verdict.warnings.iter().map(warning).collect(),
        explanation: verdict.explanation.as_ref().map(ExplanationJson::of),
    }
}

fn problems(problem: &FileProblem) -> Vec<ProblemJson<'_>> {
    match problem {
        FileProblem::Whole(what) => vec![ProblemJson {
            file: None,
            line: None,
            column: None,
            what,
            help: None,
        }],
        FileProblem::Errors(errors) => errors
            .problems()
            .map(|problem| ProblemJson {
                file: Some(errors.file()),
                line: problem.place.map(|FilePosition { line, .. }| line),
                column: problem.place.map(|FilePosition { column, .. }| column),
                what: &problem.what,
                help: Some(&problem.help),
            })
            .collect(),
    }
}

fn warning(warning: &crate::discovery::explain::ConfigWarning) -> ProblemJson<'_> {
    ProblemJson {
        file: Some(&warning.file),
        line: warning.line,
        column: None,
        what: &warning.what,
        help: Some(&warning.help),
    }
}
