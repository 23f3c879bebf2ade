//! Defines the stored request of a command, between its delivery and its handling.

use serde::{Deserialize, Serialize};

use crate::command::Command;
use crate::locks::QueuedPlan;
use crate::model::ProjectKey;

/// Request of a command row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", content = "with", rename_all = "snake_case")]
pub enum CommandSpec {
    /// A command that could be read.
    Command(Command),
    /// An automatic plan because the pull request changed.
    Autoplan,
    /// A plan because locks became free that the pull request waited for.
    Turn(HandedLocks),
    /// A comment that was meant as a command but could not be read; the text explains the mistake.
    Mistake(String),
    /// A command in a repository that is not served.
    NotServed,
    /// An event in a repository that nobody has claimed.
    Unclaimed,
}

/// Locks that were handed over to the pull request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedLocks {
    /// Projects to plan, with their arguments.
    pub asks: Vec<QueuedPlan>,
    /// Reasons of the turn, a clause each, such as `next in the queue after pull request 1`.
    pub reasons: Vec<String>,
}

impl HandedLocks {
    /// Returns the projects to plan.
    pub fn projects(&self) -> Vec<ProjectKey> {
        self.asks.iter().map(|ask| ask.project.clone()).collect()
    }
}

impl CommandSpec {
    /// Serialises the request for the database.
    #[expect(
        clippy::missing_panics_doc,
        reason = "a command consists of texts, numbers and lists"
    )]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a command consists of texts, numbers and lists")
    }

    /// Reads the request from its stored text.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}
