//! Annotations of commits: remarks that a forge shows beside lines of the code.

use serde::Serialize;

use super::path::RepoPath;
use super::status::StatusContext;
use super::text::text_enum;

text_enum! {
    /// Weight of an annotation, worst first, in the words of GitHub's REST API.
    pub enum AnnotationLevel {
        /// The line has to be changed.
        Failure = "failure",
        /// The line should be looked at.
        Warning = "warning",
        /// The line is fine, and people should know why.
        Notice = "notice",
    }
}

/// A remark about one line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LineAnnotation {
    /// Weight of the remark.
    pub level: AnnotationLevel,
    /// File, from the root of the repository.
    pub path: RepoPath,
    /// Number of the line, counted from 1.
    pub line: u32,
    /// Heading, on one line.
    pub title: String,
    /// Plain text for people, which no forge reads as Markdown.
    pub message: String,
}

/// All annotations of a commit under one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnnotationSet {
    /// Name, which differs from the names of all statuses.
    pub name: StatusContext,
    /// One line for people.
    pub title: String,
    /// Explanation for people, as Markdown.
    pub summary: String,
    /// URL of the page with details.
    pub url: String,
    /// Remarks about lines, the worst ones first.
    pub lines: Vec<LineAnnotation>,
}
