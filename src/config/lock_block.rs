//! `repo_locks`, as the file of the server and the one of a repository write it (reference 4.1, 4.2, 5.2).

use std::time::Duration;

use super::duration::parse_duration;
use super::overrides::{AllowedOverrides, OverrideKey};
use super::yaml::{Fields, Keys, Located, Reader, shown};
use crate::model::{LockMode, LockScope};

/// When the lock is to be taken, as a repository says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockWish {
    /// When.
    pub mode: LockMode,
    /// Line of the file that says so, from 1.
    pub line: usize,
}

/// What an entry of the server's file says about locks. What it leaves out is left to the entries before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::config) struct LockBlock {
    pub(in crate::config) mode: Option<LockMode>,
    pub(in crate::config) scope: Option<LockScope>,
    pub(in crate::config) ttl: Option<TimeLimit>,
}

/// How long a lock may be idle; without a time for ever, which takes back the limit of an earlier entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct TimeLimit(pub(in crate::config) Option<Duration>);

const OF_SERVER: Keys = Keys { of: "`repo_locks`", here: &["mode", "scope", "ttl"], later: &[], of_server: &[] };

/// A pull request may not widen what a lock covers, nor keep it from ending.
const OF_REPO: Keys = Keys { of: "`repo_locks`", here: &["mode"], later: &[], of_server: &["scope", "ttl"] };

/// Takes `repo_locks` out of an entry of the server's file.
pub(in crate::config) fn read_of_server(reader: &mut Reader, fields: &Fields<'_>) -> Option<LockBlock> {
    let block = reader.fields(fields.get("repo_locks")?, &OF_SERVER)?;
    let read = LockBlock {
        mode: read_mode(reader, &block),
        scope: reader.word(&block, "scope", &LockScope::ALL.iter().map(|scope| scope.as_str()).collect::<Vec<_>>()),
        ttl: read_ttl(reader, &block),
    };
    let is_silent = ["mode", "scope", "ttl"].iter().all(|key| block.get(key).is_none());
    // As Atlantis reads a block that says nothing.
    Some(if is_silent { LockBlock { mode: Some(LockMode::default()), ..read } } else { read })
}

/// Takes `repo_locks` out of the file of a repository, at its top or in a project.
pub(in crate::config) fn read_of_repo(
    reader: &mut Reader,
    fields: &Fields<'_>,
    allowed: &AllowedOverrides,
) -> Option<LockWish> {
    let node = fields.get(OverrideKey::RepoLocks.as_str())?;
    let is_allowed = allowed.check(reader, fields, OverrideKey::RepoLocks);
    let block = reader.fields(node, &OF_REPO)?;
    let mode = if block.get("mode").is_none() { LockMode::default() } else { read_mode(reader, &block)? };
    let line = block.place("mode").unwrap_or(node.place).line;
    is_allowed.then_some(LockWish { mode, line })
}

fn read_mode(reader: &mut Reader, block: &Fields<'_>) -> Option<LockMode> {
    reader.word(block, "mode", &LockMode::ALL.iter().map(|mode| mode.as_str()).collect::<Vec<_>>())
}

fn read_ttl(reader: &mut Reader, block: &Fields<'_>) -> Option<TimeLimit> {
    let text = reader.text(block, "ttl")?;
    if text.text.trim() == "none" {
        return Some(TimeLimit(None));
    }
    read_time(reader, &text).map(|time| TimeLimit(Some(time)))
}

fn read_time(reader: &mut Reader, text: &Located) -> Option<Duration> {
    let refuse = |_| {
        let what = format!("`{}` is not how long a lock may be idle", shown(&text.text));
        let help = "write a time of up to a year, such as `72h` or `3d`, or `none` for no limit";
        reader.problem(text.place, what, help);
    };
    parse_duration(text.text.trim()).map_err(refuse).ok()
}
