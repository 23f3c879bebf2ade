//! Manages the comments of a pull request.

use chrono::{DateTime, Utc};

use crate::EmulatorError;
use crate::model::PullNumber;

use super::{Author, EmulatedWorld, Reaction, WorldChange, WorldEvent};

/// A comment on a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatedComment {
    /// Id of the comment.
    pub id: u64,
    /// Login of the author.
    pub author: String,
    /// Text of the comment, as raw Markdown.
    pub body: String,
    /// Time when the comment was posted.
    pub created_at: DateTime<Utc>,
    /// Time of the last edit.
    pub updated_at: DateTime<Utc>,
    /// True if the author acted through an app.
    pub(crate) via_app: bool,
}

/// Reason that a comment is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommentError {
    /// The text is empty or white space.
    #[error("the comment is blank")]
    Blank,
    /// The text is longer than the forge allows.
    #[error("the comment is longer than {0} characters")]
    TooLong(usize),
    /// The repository, pull request or comment does not exist.
    #[error(transparent)]
    Missing(#[from] EmulatorError),
}

impl EmulatedWorld {
    /// Posts a comment on a pull request.
    pub(crate) fn comment(
        &self,
        repo: &str,
        number: PullNumber,
        by: &Author,
        body: &str,
    ) -> Result<(EmulatedComment, WorldEvent), CommentError> {
        let now = self.now();
        self.state().repo(repo)?.pull(number)?;
        self.check_comment(body)?;
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
            let added = WorldChange::CommentAdded;
            let event = state.comment_event(repo, (number, &comment), &by.login, added)?;
            Ok((comment, event))
        })
    }

    /// Replaces the text of a comment.
    pub(crate) fn edit_comment(
        &self,
        repo: &str,
        id: u64,
        by: &Author,
        body: &str,
    ) -> Result<(EmulatedComment, WorldEvent), CommentError> {
        let (now, number) = (self.now(), self.pull_of_comment(repo, id)?);
        self.check_comment(body)?;
        self.change(|state| {
            let pull = state.repo_mut(repo)?.pull_mut(number)?;
            let missing = || EmulatorError::NoComment(repo.to_owned(), id);
            let comment = pull
                .comments
                .iter_mut()
                .find(|comment| comment.id == id)
                .ok_or_else(missing)?;
            let old_body = std::mem::replace(&mut comment.body, body.to_owned());
            comment.updated_at = now;
            let comment = comment.clone();
            let edited = |comment| WorldChange::CommentEdited { comment, old_body };
            let event = state.comment_event(repo, (number, &comment), &by.login, edited)?;
            Ok((comment, event))
        })
    }

    /// Removes a comment from its pull request.
    pub(crate) fn delete_comment(
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
            let deleted = WorldChange::CommentDeleted;
            state.comment_event(repo, (number, &comment), &by.login, deleted)
        })
    }

    /// Adds a reaction; `false` if the account already reacted in this way.
    pub(crate) fn react(
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

    fn check_comment(&self, body: &str) -> Result<(), CommentError> {
        let max = self.conventions.max_comment_chars;
        if body.trim().is_empty() {
            return Err(CommentError::Blank);
        }
        if body.chars().count() > max {
            return Err(CommentError::TooLong(max));
        }
        Ok(())
    }

    fn pull_of_comment(&self, repo: &str, id: u64) -> Result<PullNumber, EmulatorError> {
        let state = self.state();
        let found = state.repo(repo)?.comment(id).map(|(pull, _)| pull.number);
        found.ok_or_else(|| EmulatorError::NoComment(repo.to_owned(), id))
    }
}
