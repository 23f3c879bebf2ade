//! Manages the comments of a pull request.

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::emulator::EmulatorError;
use crate::emulator::github::views::{WireView, comment_event};
use crate::model::PullNumber;

use super::{Author, EmulatedWorld, Reaction, WorldEvent};

/// Maximum length of a comment on GitHub.
pub const MAX_COMMENT_CHARS: usize = 65_536;

/// A comment on a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatedComment {
    /// Id of the comment on GitHub.
    pub id: u64,
    /// Login of the author.
    pub author: String,
    /// Text of the comment, as raw Markdown.
    pub body: String,
    /// Time when the comment was posted.
    pub created_at: DateTime<Utc>,
    /// Time of the last edit.
    pub updated_at: DateTime<Utc>,
    pub(in crate::emulator) via_app: bool,
}

/// Reason that GitHub refuses a comment.
#[derive(Debug, thiserror::Error)]
pub(in crate::emulator) enum CommentError {
    /// The text is empty or white space.
    #[error("Body cannot be blank")]
    Blank,
    /// The text is longer than [`MAX_COMMENT_CHARS`].
    #[error("Body is too long (maximum is {MAX_COMMENT_CHARS} characters)")]
    TooLong,
    /// The repository, pull request or comment does not exist.
    #[error(transparent)]
    Missing(#[from] EmulatorError),
}

fn check(body: &str) -> Result<(), CommentError> {
    if body.trim().is_empty() {
        return Err(CommentError::Blank);
    }
    if body.chars().count() > MAX_COMMENT_CHARS {
        return Err(CommentError::TooLong);
    }
    Ok(())
}

impl EmulatedWorld {
    /// Posts a comment on a pull request.
    pub(in crate::emulator) fn comment(
        &self,
        repo: &str,
        number: PullNumber,
        by: &Author,
        body: &str,
    ) -> Result<(EmulatedComment, WorldEvent), CommentError> {
        let now = self.now();
        self.state().repo(repo)?.pull(number)?;
        check(body)?;
        self.change(|state| {
            let comment = EmulatedComment {
                id: state.next_id(),
                author: by.login.clone(),
                body: body.to_owned(),
                created_at: now,
                updated_at: now,
                via_app: by.via_app,
            };
            let pull = state.repo_mut(repo)?.pull_mut(number)?;
            pull.comments.push(comment.clone());
            pull.updated_at = now;
            let view = WireView { world: self, state };
            let event = comment_event(
                &view,
                state.repo(repo)?,
                (number, &comment),
                "created",
                &by.login,
                json!({}),
            );
            Ok((comment, event))
        })
    }

    /// Replaces the text of a comment.
    pub(in crate::emulator) fn edit_comment(
        &self,
        repo: &str,
        id: u64,
        by: &Author,
        body: &str,
    ) -> Result<(EmulatedComment, WorldEvent), CommentError> {
        let (now, number) = (self.now(), self.pull_of_comment(repo, id)?);
        check(body)?;
        self.change(|state| {
            let pull = state.repo_mut(repo)?.pull_mut(number)?;
            let missing = || EmulatorError::NoComment(repo.to_owned(), id);
            let comment = pull
                .comments
                .iter_mut()
                .find(|comment| comment.id == id)
                .ok_or_else(missing)?;
            let old = std::mem::replace(&mut comment.body, body.to_owned());
            comment.updated_at = now;
            let comment = comment.clone();
            let view = WireView { world: self, state };
            let extra = json!({ "changes": { "body": { "from": old } } });
            let event = comment_event(
                &view,
                state.repo(repo)?,
                (number, &comment),
                "edited",
                &by.login,
                extra,
            );
            Ok((comment, event))
        })
    }

    /// Removes a comment from its pull request.
    pub(in crate::emulator) fn delete_comment(
        &self,
        repo: &str,
        id: u64,
        by: &Author,
    ) -> Result<WorldEvent, EmulatorError> {
        let number = self.pull_of_comment(repo, id)?;
        self.change(|state| {
            let comments = &mut state.repo_mut(repo)?.pull_mut(number)?.comments;
            let missing = || EmulatorError::NoComment(repo.to_owned(), id);
            let at = comments
                .iter()
                .position(|comment| comment.id == id)
                .ok_or_else(missing)?;
            let comment = comments.remove(at);
            let view = WireView { world: self, state };
            Ok(comment_event(
                &view,
                state.repo(repo)?,
                (number, &comment),
                "deleted",
                &by.login,
                json!({}),
            ))
        })
    }

    /// Adds a reaction; `false` if the account already reacted in this way.
    pub(in crate::emulator) fn react(
        &self,
        repo: &str,
        comment: u64,
        by: &Author,
        content: &str,
    ) -> Result<(Reaction, bool), EmulatorError> {
        self.pull_of_comment(repo, comment)?;
        let now = self.now();
        self.change(|state| {
            let same =
                |r: &&Reaction| r.comment == comment && r.login == by.login && r.content == content;
            if let Some(old) = state.repo(repo)?.reactions.iter().find(same) {
                return Ok((old.clone(), false));
            }
            let id = state.next_id();
            let (login, content) = (by.login.clone(), content.to_owned());
            let reaction = Reaction {
                id,
                comment,
                login,
                content,
                at: now,
            };
            state.repo_mut(repo)?.reactions.push(reaction.clone());
            Ok((reaction, true))
        })
    }

    fn pull_of_comment(&self, repo: &str, id: u64) -> Result<PullNumber, EmulatorError> {
        let state = self.state();
        let found = state.repo(repo)?.comment(id).map(|(pull, _)| pull.number);
        found.ok_or_else(|| EmulatorError::NoComment(repo.to_owned(), id))
    }
}
