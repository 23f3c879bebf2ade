//! Serves Git LFS: a client asks for the addresses of contents, and downloads them. The world stores contents;
//! clients cannot upload.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Cx;
use super::smart_http::admit;

/// Content type of requests and answers of the batch API.
const JSON: &str = "application/vnd.git-lfs+json";
const MISSING: &str =
    "Object does not exist on the server or you don't have permissions to access it";

/// Batch request of a client.
#[derive(Deserialize)]
struct Batch {
    operation: String,
    objects: Vec<LfsObject>,
}

#[derive(Deserialize)]
struct LfsObject {
    oid: String,
    size: u64,
}

/// Returns the addresses of the requested contents.
pub(super) async fn batch(
    State(cx): State<Cx>,
    Path(name): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let client = match admit(&cx, &name, &headers) {
        Ok(client) => client,
        Err(refusal) => return *refusal,
    };
    let Ok(batch) = serde_json::from_slice::<Batch>(&body) else {
        return told(
            StatusCode::UNPROCESSABLE_ENTITY,
            &json!({"message": "Unable to parse the request"}),
        );
    };
    if batch.operation != "download" {
        return told(
            StatusCode::NOT_IMPLEMENTED,
            &json!({"message": "Contents cannot be uploaded here"}),
        );
    }
    let authorization = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let place = format!(
        "{}/{}.git/info/lfs/objects",
        cx.github.base_url, client.repo.key
    );
    let objects = batch.objects.iter().map(|LfsObject { oid, size }| {
        if cx.world.lfs_content(&client.repo.key, oid).is_none() {
            return json!({"oid": oid, "size": size, "error": {"code": 404, "message": MISSING}});
        }
        let action =
            json!({"href": format!("{place}/{oid}"), "header": {"Authorization": authorization}});
        json!({"oid": oid, "size": size, "authenticated": true, "actions": {"download": action}})
    });
    let objects: Vec<Value> = objects.collect();
    told(
        StatusCode::OK,
        &json!({"transfer": "basic", "objects": objects}),
    )
}

/// Serves the content with an id.
pub(super) async fn download(
    State(cx): State<Cx>,
    Path((owner, name, oid)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Response {
    match admit(&cx, &(owner, name), &headers) {
        Ok(client) => match cx.world.lfs_content(&client.repo.key, &oid) {
            Some(content) => content.into_response(),
            None => told(StatusCode::NOT_FOUND, &json!({"message": MISSING})),
        },
        Err(refusal) => *refusal,
    }
}

fn told(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, JSON)], body.to_string()).into_response()
}
