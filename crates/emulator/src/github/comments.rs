//! Serves comments on pull requests and reactions to them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use super::auth::Caller;
use super::errors::{ApiError, read_body};
use super::paging::Listing;
use super::pulls::number;
use super::views::{comment, reaction};
use super::{Cx, WireResponse};

#[derive(Deserialize)]
struct NewComment {
    body: String,
}

#[derive(Deserialize)]
struct NewReaction {
    content: String,
}

const REACTIONS: [&str; 8] = [
    "+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes",
];

fn id(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| ApiError::NotFound)
}

pub(super) async fn list(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
    listing: Listing,
) -> WireResponse {
    let since = listing
        .params
        .get("since")
        .map(|text| text.parse::<DateTime<Utc>>())
        .transpose();
    let since = since.map_err(|_| ApiError::WrongShape("since is not a timestamp".to_owned()))?;
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    let pull = repo.pull(number(&text)?)?;
    let comments = pull
        .comments
        .iter()
        .filter(|comment| since.is_none_or(|since| comment.updated_at >= since));
    let list: Vec<Value> = comments
        .map(|one| comment(&cx.github, repo, pull, one))
        .collect();
    Ok(listing.answer(&cx, list))
}

pub(super) async fn create(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
    body: Bytes,
) -> WireResponse {
    let (key, author) = caller.writes(&cx.world.state(), &owner, &repo)?;
    let new: NewComment = read_body(&body)?;
    let (posted, event) = cx.world.comment(&key, number(&text)?, &author, &new.body)?;
    cx.publish_later(&[event]);
    show(&cx, &key, posted.id, StatusCode::CREATED)
}

pub(super) async fn get(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
) -> WireResponse {
    let key = caller.repo(&cx.world.state(), &owner, &repo)?.name.key();
    show(&cx, &key, id(&text)?, StatusCode::OK)
}

pub(super) async fn edit(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
    body: Bytes,
) -> WireResponse {
    let (key, author) = caller.writes(&cx.world.state(), &owner, &repo)?;
    let new: NewComment = read_body(&body)?;
    let (edited, event) = cx
        .world
        .edit_comment(&key, id(&text)?, &author, &new.body)?;
    cx.publish_later(&[event]);
    show(&cx, &key, edited.id, StatusCode::OK)
}

pub(super) async fn delete(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
) -> WireResponse {
    let (key, author) = caller.writes(&cx.world.state(), &owner, &repo)?;
    let event = cx.world.delete_comment(&key, id(&text)?, &author)?;
    cx.publish_later(&[event]);
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn react(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
    body: Bytes,
) -> WireResponse {
    let (key, author) = caller.writes(&cx.world.state(), &owner, &repo)?;
    let new: NewReaction = read_body(&body)?;
    if !REACTIONS.contains(&new.content.as_str()) {
        return Err(ApiError::WrongShape(format!(
            "{} is not a member of {REACTIONS:?}",
            new.content
        )));
    }
    let (made, is_new) = cx.world.react(&key, id(&text)?, &author, &new.content)?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(reaction(&cx.github, &made))).into_response())
}

fn show(cx: &Cx, key: &str, id: u64, status: StatusCode) -> WireResponse {
    let state = cx.world.state();
    let repo = state.repo(key)?;
    let (pull, found) = repo.comment(id).ok_or(ApiError::NotFound)?;
    let json = comment(&cx.github, repo, pull, found);
    let location = json["url"]
        .as_str()
        .and_then(|url| HeaderValue::from_str(url).ok());
    let mut response = (status, Json(json)).into_response();
    if let Some(location) = location.filter(|_| status == StatusCode::CREATED) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}
