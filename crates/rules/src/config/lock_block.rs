//! Reads `repo_locks` of the server's file and of a repository's file (reference 4.1, 4.2, 5.2).

use std::time::Duration;

use super::duration::parse_duration;
use super::overrides::AllowedOverrides;
use super::yaml::{Field, FileReader, KeyDoc, Located, Mapping, Vocabulary, mapping, shown, words};
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

const MODE: KeyDoc = KeyDoc {
    default: "`on_plan`",
    meaning: "Time at which locks are taken.",
    example: "on_apply",
};

mapping! {
    /// Keys of `repo_locks` in the server's file.
    pub(in crate::config) struct ServerLocksMapping("`repo_locks`") {
        mode: LockMode = MODE,
        scope: LockScope = KeyDoc {
            default: "`workspace`",
            meaning: "Projects that share a lock.",
            example: "project",
        },
        ttl: Located = KeyDoc {
            default: "`none`",
            meaning: "Idle time after which a lock expires: a time of up to a year, or `none`.",
            example: "72h",
        },
    }
}

mapping! {
    /// Keys of `repo_locks` in a repository's file. A pull request may neither widen the scope of a lock nor keep it from
    /// expiring.
    pub(in crate::config) struct RepoLocksMapping("`repo_locks`") {
        mode: LockMode = MODE,
    }
    only_on_server: |name| ServerLocksMapping::KEYS.find(name).is_some(),
}

impl Vocabulary for LockMode {
    fn words() -> Vec<&'static str> {
        words(Self::ALL, Self::as_str)
    }
}

impl Vocabulary for LockScope {
    fn words() -> Vec<&'static str> {
        words(Self::ALL, Self::as_str)
    }
}

/// Reads `repo_locks` from an entry of the server's file.
pub(in crate::config) fn read_of_server(
    reader: &mut FileReader,
    repo_locks: &Field<ServerLocksMapping>,
) -> Option<LockBlock> {
    let block = repo_locks.read(reader)?;
    let read = LockBlock {
        mode: block.mode.read(reader),
        scope: block.scope.read(reader),
        ttl: read_ttl(reader, &block.ttl),
    };
    let is_silent = !block.mode.is_set() && !block.scope.is_set() && !block.ttl.is_set();
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
    repo_locks: &Field<RepoLocksMapping>,
    allowed: &AllowedOverrides,
) -> Option<LockTiming> {
    let is_allowed = allowed.check(reader, repo_locks);
    let block = repo_locks.read(reader)?;
    let mode = if block.mode.is_set() {
        block.mode.read(reader)?
    } else {
        LockMode::default()
    };
    let line = block.mode.place().unwrap_or(block.place()).line;
    is_allowed.then_some(LockTiming {
        mode,
        line,
        is_old_form: false,
    })
}

/// Reads `repo_locks`, or its old form `repo_locking`, from a project.
pub(in crate::config) fn read_of_project(
    reader: &mut FileReader,
    repo_locks: &Field<RepoLocksMapping>,
    repo_locking: &Field<bool>,
    allowed: &AllowedOverrides,
) -> Option<LockTiming> {
    let new = read_of_repo(reader, repo_locks, allowed);
    let Some(place) = repo_locking.place() else {
        return new;
    };
    if repo_locks.is_set() {
        let what = "`repo_locking` is the old form of `repo_locks`, and both are set".to_owned();
        reader.problem(place, what, "remove `repo_locking`");
        return new;
    }
    let is_allowed = allowed.check(reader, repo_locking);
    let mode = if repo_locking.read(reader)? {
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

fn read_ttl(reader: &mut FileReader, ttl: &Field<Located>) -> Option<TimeLimit> {
    let text = ttl.read(reader)?;
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
