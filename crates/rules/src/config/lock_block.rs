//! Reads `repo_locks` of the server's file and of a repository's file (reference 4.1, 4.2, 5.2).

use std::time::Duration;

use super::duration::parse_duration;
use super::overrides::{AllowedOverrides, OverrideKey};
use super::yaml::{
    DocumentedKey, Fields, FileReader, KeyShape, Located, MappingKeys, shown, words,
};
use crate::model::{LockMode, LockScope};

/// The time at which a repository requests its locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockTiming {
    pub mode: LockMode,
    /// Line of the file with the request, counted from 1.
    pub line: usize,
    /// True for `repo_locking`, the old form. Its `true` stands for the mode `on_plan`, and counts only if no lock
    /// would be taken otherwise.
    pub is_old_form: bool,
}

/// Locks in an entry of the server's file. A missing value leaves the one of an earlier entry in effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::config) struct LockBlock {
    pub(in crate::config) mode: Option<LockMode>,
    pub(in crate::config) scope: Option<LockScope>,
    pub(in crate::config) ttl: Option<TimeLimit>,
}

/// Idle time after which a lock expires. `None` removes the limit of an earlier entry: the lock then never expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct TimeLimit(pub(in crate::config) Option<Duration>);

const MODE: DocumentedKey = DocumentedKey::new(
    "mode",
    KeyShape::Words(|| words(LockMode::ALL, LockMode::as_str)),
    "`on_plan`",
    "Time at which locks are taken.",
    "on_apply",
);

/// Keys of `repo_locks` in the server's file.
pub(in crate::config) static OF_SERVER: MappingKeys = MappingKeys::new(
    "`repo_locks`",
    &[
        MODE,
        DocumentedKey::new(
            "scope",
            KeyShape::Words(|| words(LockScope::ALL, LockScope::as_str)),
            "`workspace`",
            "Projects that share a lock.",
            "project",
        ),
        DocumentedKey::new(
            "ttl",
            KeyShape::Text,
            "`none`",
            "Idle time after which a lock expires: a time of up to a year, or `none`.",
            "72h",
        ),
    ],
);

/// Keys of `repo_locks` in a repository's file. A pull request may neither widen the scope of a lock nor keep it from
/// expiring.
pub(in crate::config) static OF_REPO: MappingKeys = MappingKeys {
    of: "`repo_locks`",
    list: &[MODE],
    of_server: &["scope", "ttl"],
    is_choice: false,
};

/// Reads `repo_locks` from an entry of the server's file.
pub(in crate::config) fn read_of_server(
    reader: &mut FileReader,
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
    // Atlantis reads a block without keys as the default mode.
    Some(if is_silent {
        LockBlock {
            mode: Some(LockMode::default()),
            ..read
        }
    } else {
        read
    })
}

/// Reads `repo_locks` from a repository's file, at its top level or in a project.
pub(in crate::config) fn read_of_repo(
    reader: &mut FileReader,
    fields: &Fields<'_>,
    allowed: &AllowedOverrides,
) -> Option<LockTiming> {
    let node = fields.get(OverrideKey::RepoLocks.as_str())?;
    let is_allowed = allowed.check(reader, fields, OverrideKey::RepoLocks);
    let block = reader.fields(node, &OF_REPO)?;
    let mode = if block.get("mode").is_none() {
        LockMode::default()
    } else {
        read_mode(reader, &block)?
    };
    let line = block.place("mode").unwrap_or(node.place).line;
    is_allowed.then_some(LockTiming {
        mode,
        line,
        is_old_form: false,
    })
}

/// Reads `repo_locks`, or its old form `repo_locking`, from a project.
pub(in crate::config) fn read_of_project(
    reader: &mut FileReader,
    fields: &Fields<'_>,
    allowed: &AllowedOverrides,
) -> Option<LockTiming> {
    let new = read_of_repo(reader, fields, allowed);
    let Some(place) = fields.place(OverrideKey::RepoLocking.as_str()) else {
        return new;
    };
    if fields.get(OverrideKey::RepoLocks.as_str()).is_some() {
        let what = "`repo_locking` is the old form of `repo_locks`, and both are set".to_owned();
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
    is_allowed.then_some(LockTiming {
        mode,
        line: place.line,
        is_old_form: true,
    })
}

fn read_mode(reader: &mut FileReader, block: &Fields<'_>) -> Option<LockMode> {
    reader.word(block, "mode", &words(LockMode::ALL, LockMode::as_str))
}

fn read_ttl(reader: &mut FileReader, block: &Fields<'_>) -> Option<TimeLimit> {
    let text = reader.text(block, "ttl")?;
    if text.text.trim() == "none" {
        return Some(TimeLimit(None));
    }
    read_time(reader, &text).map(|time| TimeLimit(Some(time)))
}

fn read_time(reader: &mut FileReader, text: &Located) -> Option<Duration> {
    let refuse = |_| {
        let what = format!("`{}` is not a valid idle time of a lock", shown(&text.text));
        let help = "write a time of up to a year, such as `72h` or `3d`, or `none` for no limit";
        reader.problem(text.place, what, help);
    };
    parse_duration(text.text.trim()).map_err(refuse).ok()
}
