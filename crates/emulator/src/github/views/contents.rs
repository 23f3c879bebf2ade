//! Builds the JSON of files and directories.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use crate::git::Blob;
use crate::github::GitHubWire;
use crate::world::Repo;

use super::merged;

/// Repository and requested ref of a file.
pub(in crate::github) struct FileAt<'a> {
    pub(in crate::github) repo: &'a Repo,
    pub(in crate::github) name: &'a str,
}

const RESERVED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`');

/// Encodes a path as part of a URL.
pub(super) fn encoded(path: &str) -> String {
    utf8_percent_encode(path, RESERVED).to_string()
}

fn entry(github: &GitHubWire, place: &FileAt<'_>, blob: &Blob) -> Value {
    let (name, at, path) = (&place.repo.name, place.name, encoded(&blob.path));
    let kind = match blob.mode.as_str() {
        "040000" => "dir",
        "120000" => "symlink",
        "160000" => "submodule",
        _ => "file",
    };
    let (git, page) = if kind == "dir" {
        ("trees", "tree")
    } else {
        ("blobs", "blob")
    };
    let own = github.api(&format!(
        "/repos/{name}/contents/{path}?ref={}",
        encoded(at)
    ));
    let git = github.api(&format!("/repos/{name}/git/{git}/{}", blob.sha));
    let page = github.html(&format!("/{name}/{page}/{}/{path}", encoded(at)));
    let raw = github.html(&format!("/raw/{name}/{}/{path}", encoded(at)));
    json!({
        "type": kind,
        "name": blob.path.rsplit('/').next(),
        "path": blob.path,
        "sha": blob.sha,
        "size": blob.size,
        "url": own,
        "git_url": git,
        "html_url": page,
        "download_url": (kind != "dir").then_some(raw),
        "_links": { "self": own, "git": git, "html": page },
    })
}

/// Builds the JSON of the entries of a directory.
pub(in crate::github) fn content_directory(
    github: &GitHubWire,
    place: &FileAt<'_>,
    entries: &[Blob],
) -> Value {
    entries
        .iter()
        .map(|blob| entry(github, place, blob))
        .collect()
}

/// Builds the JSON of a file with its content in base64, in lines of 60 characters.
pub(in crate::github) fn content_file(
    github: &GitHubWire,
    place: &FileAt<'_>,
    blob: &Blob,
    bytes: &[u8],
) -> Value {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(60)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    let content: String = lines.iter().flat_map(|line| [*line, "\n"]).collect();
    merged(
        entry(github, place, blob),
        json!({ "encoding": "base64", "content": content }),
    )
}

/// Builds the JSON of a symbolic link without a file at its target.
pub(in crate::github) fn content_symlink(
    github: &GitHubWire,
    place: &FileAt<'_>,
    blob: &Blob,
    bytes: &[u8],
) -> Value {
    merged(
        entry(github, place, blob),
        json!({ "target": String::from_utf8_lossy(bytes) }),
    )
}
