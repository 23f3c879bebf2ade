//! Builds the JSON of GitHub's resources, for REST answers and webhooks alike.

mod app;
mod branch;
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

use crate::emulator::world::{EmulatedWorld, WorldState};

pub(super) use app::{app, installation, permissions};
pub(super) use branch::{branch, protection};
pub(super) use comment::{comment, reaction};
pub(super) use contents::{FileAt, content_directory, content_file, content_symlink};
pub(super) use pull::{changed_file, pull_full, pull_simple};
pub(super) use repo::{full_repo, repo};
pub(super) use review::{permission, review};
pub(super) use status::{combined_status, status};
pub(super) use team::{membership, team};
pub(super) use user::public_user;

pub(in crate::emulator) use event::{comment_event, pull_event, repository_event};
pub(in crate::emulator) use push::{PushFacts, push_event};

/// Input of every view: the records, and the world that serves them.
pub(in crate::emulator) struct WireView<'a> {
    pub(in crate::emulator) world: &'a EmulatedWorld,
    pub(in crate::emulator) state: &'a WorldState,
}

impl EmulatedWorld {
    /// Returns the URL of a REST resource.
    fn api(&self, path: &str) -> String {
        format!("{}/api/v3{path}", self.base_url)
    }

    /// Returns the URL of a page.
    fn html(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }
}

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
