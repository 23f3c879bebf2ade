//! What a command row asks for, as kept in the database between a delivery and its handling.

use serde::{Deserialize, Serialize};

use crate::command::Command;
use crate::locks::Ask;
use crate::model::ProjectKey;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", content = "with", rename_all = "snake_case")]
pub enum Spec {
    /// A command that could be read.
    Command(Command),
    /// Plan because the pull changed.
    Autoplan,
    /// Plan because locks became free that the pull waited for.
    Turn(Turn),
    /// A comment that was meant as a command but could not be read; the text explains.
    Mistake(String),
    /// A command in a repository that is not served.
    NotServed,
    /// Something in a repository that nobody has claimed.
    Unclaimed,
}

/// What the pull was handed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// What is to be planned.
    pub asks: Vec<Ask>,
    /// Why it is the pull's turn, a clause each, such as `next in line after pull request 1`.
    pub reasons: Vec<String>,
}

impl Turn {
    /// The projects that are to be planned.
    pub fn projects(&self) -> Vec<ProjectKey> {
        self.asks.iter().map(|ask| ask.project.clone()).collect()
    }
}

impl Spec {
    /// The text for the database.
    #[expect(
        clippy::missing_panics_doc,
        reason = "a command consists of texts, numbers and lists"
    )]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a command consists of texts, numbers and lists")
    }

    /// Reads the text back.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}
