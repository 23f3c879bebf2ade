//! Findings of policies in a plan.

use serde::{Deserialize, Serialize};

/// One finding of one policy set in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much the finding weighs.
    pub level: FindingLevel,
    /// Rule, such as `main.deny` or `CKV_AWS_20`; empty if the tool names none.
    pub rule: String,
    /// Text for people, on one line.
    pub message: String,
    /// Address of the resource, if the tool names one.
    pub resource: Option<String>,
    /// File and line, if the tool names them.
    pub place: Option<FindingPlace>,
    /// Further reading.
    pub link: Option<String>,
    /// Longer text for people, folded in comments.
    pub evidence: Option<String>,
    /// Waiver that takes the finding out.
    pub waived: Option<AppliedWaiver>,
}

/// Weight of a finding, worst first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum FindingLevel {
    /// A violation.
    Deny,
    /// A violation that passes with this many approvals, of these teams if any are named.
    RequireApproval { count: u32, teams: Vec<String> },
    /// A hint that refuses nothing.
    Warn,
}

/// Place in the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingPlace {
    /// Path in the repository.
    pub file: String,
    /// Line from 1; `None` if only the file is known.
    pub line: Option<u32>,
}

/// A waiver that takes a finding out, as comments name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedWaiver {
    /// Reason of the waiver.
    pub reason: String,
    /// Person who answers for it.
    pub owner: String,
    /// Last day on which it applies, as `2026-12-31`.
    pub until: String,
}
