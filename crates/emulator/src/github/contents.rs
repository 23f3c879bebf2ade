//! Serves files and directories of a commit.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};

use crate::EmulatorError;
use crate::git::{Blob, Content};
use crate::model::CommitSha;

use super::auth::Caller;
use super::errors::ApiError;
use super::paging::Params;
use super::views::{FileAt, content_directory, content_file, content_symlink};
use super::{Cx, GitHubWire, WireResponse, statuses};

pub(super) async fn root(
    cx: State<Cx>,
    caller: Caller,
    Path((owner, repo)): Path<(String, String)>,
    params: Query<Params>,
    headers: HeaderMap,
) -> WireResponse {
    get(
        cx,
        caller,
        Path((owner, repo, String::new())),
        params,
        headers,
    )
    .await
}

pub(super) async fn get(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, path)): Path<(String, String, String)>,
    Query(params): Query<Params>,
    headers: HeaderMap,
) -> WireResponse {
    let key = caller.repo(&cx.world.state(), &owner, &repo)?.name.key();
    let name = params.get("ref").map_or("main", String::as_str);
    let commit = statuses::resolve(&cx, &key, name)
        .await?
        .ok_or(ApiError::NotFound)?;
    let content = read(&cx, &key, &commit, &path)
        .await?
        .ok_or(ApiError::NotFound)?;
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let state = cx.world.state();
    let place = FileAt {
        repo: state.repo(&key)?,
        name,
    };
    Ok(answer(&cx.github, &place, content, accept.contains("raw")))
}

/// Returns the content at a path. Like GitHub, follows a symbolic link to a file once, and only within the
/// repository.
async fn read(
    cx: &Cx,
    key: &str,
    commit: &CommitSha,
    path: &str,
) -> Result<Option<Content>, ApiError> {
    let git = cx.world.repo_handle(key)?.git;
    let found = git
        .content(commit, path)
        .await
        .map_err(EmulatorError::from)?;
    if let Some(Content::File(blob, bytes)) = &found
        && blob.mode == "120000"
        && let Some(target) = target_of(&blob.path, &String::from_utf8_lossy(bytes))
        && let Some(Content::File(file, bytes)) = git
            .content(commit, &target)
            .await
            .map_err(EmulatorError::from)?
        && file.mode != "120000"
    {
        return Ok(Some(Content::File(
            Blob {
                path: blob.path.clone(),
                ..file
            },
            bytes,
        )));
    }
    Ok(found)
}

/// Returns the target of a link; `None` if the target is outside of the repository.
fn target_of(link: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn answer(github: &GitHubWire, place: &FileAt<'_>, content: Content, raw: bool) -> Response {
    match content {
        Content::Directory(entries) => {
            Json(content_directory(github, place, &entries)).into_response()
        }
        Content::File(_, bytes) if raw => (
            [(
                header::CONTENT_TYPE,
                "application/vnd.github.raw+json; charset=utf-8",
            )],
            bytes,
        )
            .into_response(),
        Content::File(blob, bytes) if blob.mode == "120000" => {
            Json(content_symlink(github, place, &blob, &bytes)).into_response()
        }
        Content::File(blob, bytes) => {
            Json(content_file(github, place, &blob, &bytes)).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_followed_only_inside_the_repository() {
        assert_eq!(target_of("a/b/link", "../c.tf").as_deref(), Some("a/c.tf"));
        assert_eq!(target_of("link", "./x").as_deref(), Some("x"));
        assert_eq!(target_of("a/link", "../../etc/passwd"), None);
        assert_eq!(target_of("link", "/etc/passwd"), None);
    }
}
