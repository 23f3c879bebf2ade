//! Builds the JSON of GitHub's resources, for REST answers and webhooks alike.

mod app;
mod branch;
mod check_run;
mod comment;
mod contents;
mod event;
mod pull;
mod push;
mod repo;
mod review;
mod status;
mod team;
mod user;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(super) use app::{app, installation, permissions};
pub(super) use branch::{branch, protection};
pub(super) use check_run::check_run;
pub(super) use comment::{comment, reaction};
pub(super) use contents::{FileAt, content_directory, content_file, content_symlink};
pub(super) use event::payload;
pub(super) use pull::{base_change, changed_file, pull_full, pull_simple};
pub(super) use repo::{full_repo, repo};
pub(super) use review::{permission, review};
pub(super) use status::{combined_status, state_word, status};
pub(super) use team::{membership, team};
pub(super) use user::{email, public_user};

/// Builds an opaque global id in GitHub's format.
fn node_id(kind: &str, id: u64) -> String {
    STANDARD.encode(format!("{:03}:{kind}{id}", kind.len()))
}

fn merged(mut into: serde_json::Value, from: serde_json::Value) -> serde_json::Value {
    if let (Some(into), serde_json::Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
    into
}
