//! `repo_locks`, as the file of the server and the one of a repository write it (reference 4.1, 4.2, 5.2).

use std::time::Duration;

use super::duration::parse_duration;
use super::overrides::{AllowedOverrides, OverrideKey};
use super::yaml::{Fields, Key, Keys, Kind, Located, Reader, shown, words};
use crate::model::{LockMode, LockScope};

/// When the lock is to be taken, as a repository says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockWish {
    /// When.
    pub mode: LockMode,
    /// Line of the file that says so, from 1.
    pub line: usize,
    /// `repo_locking`, the old form. Its `true` has the mode `on_plan`, and counts only where no lock would be taken.
    pub is_old_form: bool,
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

const MODE: Key = Key::new(
    "mode",
    Kind::Words(|| words(LockMode::ALL, LockMode::as_str)),
    "`on_plan`",
    "When locks are taken.",
    "on_apply",
);

/// `repo_locks` of the server.
pub(in crate::config) static OF_SERVER: Keys = Keys::new(
    "`repo_locks`",
    &[
        MODE,
        Key::new(
            "scope",
            Kind::Words(|| words(LockScope::ALL, LockScope::as_str)),
            "`workspace`",
            "Which projects share a lock.",
            "project",
        ),
        Key::new(
            "ttl",
            Kind::Text,
            "`none`",
            "How long a lock may be idle before it is given back: a time of up to a year, or `none`.",
            "72h",
        ),
    ],
);

/// `repo_locks` of a repository. A pull request may not widen what a lock covers, nor keep it from ending.
pub(in crate::config) static OF_REPO: Keys = Keys {
    of: "`repo_locks`",
    list: &[MODE],
    of_server: &["scope", "ttl"],
    is_choice: false,
};

/// Takes `repo_locks` out of an entry of the server's file.
pub(in crate::config) fn read_of_server(
    reader: &mut Reader,
    fields: &Fields<'_>,
) -> Option<LockBlock> {
    let block = reader.fields(fields.get("repo_locks")?, &OF_SERVER)?;
    let read = LockBlock {
        mode: read_mode(reader, &block),
        scope: reader.word(&block, "scope", &words(LockScope::ALL, LockScope::as_str)),
        ttl: read_ttl(reader, &block),
    };
    let is_silent = ["mode", "scope", "ttl"]
        .iter()
        .all(|key| block.get(key).is_none());
    // As Atlantis reads a block that says nothing.
    Some(if is_silent {
        LockBlock {
            mode: Some(LockMode::default()),
            ..read
        }
    } else {
        read
    })
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
    let mode = if block.get("mode").is_none() {
        LockMode::default()
    } else {
        read_mode(reader, &block)?
    };
    let line = block.place("mode").unwrap_or(node.place).line;
    is_allowed.then_some(LockWish {
        mode,
        line,
        is_old_form: false,
    })
}

/// Takes `repo_locks` or `repo_locking`, its old form, out of a project.
pub(in crate::config) fn read_of_project(
    reader: &mut Reader,
    fields: &Fields<'_>,
    allowed: &AllowedOverrides,
) -> Option<LockWish> {
    let new = read_of_repo(reader, fields, allowed);
    let Some(place) = fields.place(OverrideKey::RepoLocking.as_str()) else {
        return new;
    };
    if fields.get(OverrideKey::RepoLocks.as_str()).is_some() {
        let what = "`repo_locking` is the old form of `repo_locks`, and both are here".to_owned();
        reader.problem(place, what, "remove `repo_locking`");
        return new;
    }
    let is_allowed = allowed.check(reader, fields, OverrideKey::RepoLocking);
    let locking = reader.boolean(fields, OverrideKey::RepoLocking.as_str())?;
    let mode = if locking {
        LockMode::OnPlan
    } else {
        LockMode::Disabled
    };
    is_allowed.then_some(LockWish {
        mode,
        line: place.line,
        is_old_form: true,
    })
}

fn read_mode(reader: &mut Reader, block: &Fields<'_>) -> Option<LockMode> {
    reader.word(block, "mode", &words(LockMode::ALL, LockMode::as_str))
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
