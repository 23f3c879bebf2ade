//! What holds for the lock of one project, and who decided it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{LockMode, LockScope};

/// When the lock of a project is taken, what it covers, and how long it may be idle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockPolicy {
    /// When it is taken.
    pub mode: LockMode,
    /// Which projects share it.
    pub scope: LockScope,
    /// After how long without activity it goes back; `None`: never.
    pub ttl: Option<Duration>,
    /// Who said so.
    pub decided_by: DecidedBy,
}

impl fmt::Display for LockPolicy {
    /// For logs and explanations: ``mode `on_plan` (the default), …``.
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

/// `72h`, `90m` or `45s`: the largest unit that fits.
fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 3600 == 0 => format!("`{}h`", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("`{}m`", seconds / 60),
        seconds => format!("`{seconds}s`"),
    }
}

/// Who decided each part of a [`LockPolicy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedBy {
    /// Who decided the mode.
    pub mode: Decider,
    /// Who decided the scope.
    pub scope: Decider,
    /// Who decided the time limit.
    pub ttl: Decider,
}

/// Who decided something. `Display` gives a phrase for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decider {
    /// Nobody.
    Default,
    /// A flag of the server.
    Flag(&'static str),
    /// An entry of `repos` in the server's file.
    Server {
        /// Name of the file, without its folders.
        file: Arc<str>,
        /// Line where the entry begins.
        line: usize,
        /// Its `id`.
        id: String,
    },
    /// The file of the repository.
    Repo {
        /// Name of the file.
        file: String,
        /// Line that says so.
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
