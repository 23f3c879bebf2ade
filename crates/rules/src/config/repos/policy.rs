//! Rules for the lock of one project, and the source of each rule.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{LockMode, LockScope};

/// Rules for the lock of a project: its time, its scope, and its time limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockPolicy {
    /// The time at which the lock is taken.
    pub mode: LockMode,
    /// Projects that share the lock.
    pub scope: LockScope,
    /// Idle time after which the lock expires. `None`: the lock never expires.
    pub ttl: Option<Duration>,
    /// Source of each rule.
    pub decided_by: DecidedBy,
}

impl fmt::Display for LockPolicy {
    /// Formats the rules for logs and explanations: ``mode `on_plan` (the default), …``.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mode,
            scope,
            ttl,
            decided_by,
        } = self;
        let ttl = ttl.map_or("`none`".to_owned(), shown);
        write!(
            f,
            "mode `{mode}` ({}), scope `{scope}` ({}), ttl {ttl} ({})",
            decided_by.mode, decided_by.scope, decided_by.ttl
        )
    }
}

/// Formats a duration with the largest unit that fits: `72h`, `90m` or `45s`.
fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 3600 == 0 => format!("`{}h`", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("`{}m`", seconds / 60),
        seconds => format!("`{seconds}s`"),
    }
}

/// Source of each part of a [`LockPolicy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedBy {
    /// Source of the mode.
    pub mode: Decider,
    /// Source of the scope.
    pub scope: Decider,
    /// Source of the time limit.
    pub ttl: Decider,
}

/// Source of a decision. `Display` returns a phrase for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decider {
    /// The default, because no file or flag decides.
    Default,
    /// A flag of the server.
    Flag(&'static str),
    /// An entry of `repos` in the server's file.
    Server {
        /// Name of the file, without its folders.
        file: Arc<str>,
        /// Line where the entry begins.
        line: usize,
        /// Value of `id` of the entry.
        id: String,
    },
    /// The file of the repository.
    Repo {
        /// Name of the repository's file.
        file: String,
        /// Line of the setting.
        line: usize,
    },
}

impl fmt::Display for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::Flag(flag) => write!(f, "`--{flag}` of the server"),
            Self::Server { file, line, id } => {
                write!(f, "line {line} of the server's `{file}`, for `{id}`")
            }
            Self::Repo { file, line } => write!(f, "line {line} of `{file}`"),
        }
    }
}
