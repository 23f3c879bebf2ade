//! Reads many files of a commit without a checkout, through one git process.

use super::{GitError, Mirror};
use crate::model::{CommitSha, RepoPath};
use crate::process::{Dialogue, ProcessError};

/// Maximum length of a line, longer than any name of an object with its path.
const MAX_LINE: usize = 16 * 1024;

/// Reader for the files of one commit.
#[derive(Debug)]
pub struct TreeReader {
    mirror: Mirror,
    commit: CommitSha,
    talk: Option<Dialogue>,
}

impl Mirror {
    /// Returns a reader for the files of a fetched commit.
    pub fn reader(&self, commit: &CommitSha) -> TreeReader {
        TreeReader {
            mirror: self.clone(),
            commit: commit.clone(),
            talk: None,
        }
    }
}

impl TreeReader {
    /// Returns the content of a file, or the text of a symbolic link. Returns `None` if the file does not exist or is
    /// larger than `most`.
    pub async fn read(&mut self, path: &RepoPath, most: u64) -> Result<Option<Vec<u8>>, GitError> {
        let doing = format!("read `{path}` at {}", self.commit.short());
        if self.talk.is_none() {
            self.mirror.check_ours(&doing)?;
        }
        let read = self.talk(path, most).await;
        if read.is_err() {
            // After an error, the next answer of the process is unknown.
            self.talk = None;
        }
        match read {
            Ok(ReaderOutput::File(bytes)) => Ok(Some(bytes)),
            Ok(ReaderOutput::Nothing) => Ok(None),
            Ok(ReaderOutput::Ended) => Err(self.ended(doing).await),
            Err(error) => Err(GitError::from_process(doing, error)),
        }
    }

    async fn talk(&mut self, path: &RepoPath, most: u64) -> Result<ReaderOutput, ProcessError> {
        let talk = match &mut self.talk {
            Some(talk) => talk,
            none => none.insert(
                self.mirror
                    .git()
                    .args(["cat-file", "--batch-command"])
                    .holds_nothing()
                    .dialogue()?,
            ),
        };
        talk.say(format!("info {}:{path}\n", self.commit).as_bytes())
            .await?;
        let Some(line) = talk.line(MAX_LINE).await? else {
            return Ok(ReaderOutput::Ended);
        };
        let Some((id, size)) = blob(&line).filter(|(_, size)| *size <= most) else {
            return Ok(ReaderOutput::Nothing);
        };
        talk.say(format!("contents {id}\n").as_bytes()).await?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // The process repeats the line, then sends the content and a line break.
        if talk
            .line(MAX_LINE)
            .await?
            .is_none_or(|line| blob(&line).is_none())
        {
            return Ok(ReaderOutput::Ended);
        }
        let Some(bytes) = talk.bytes(size).await? else {
            return Ok(ReaderOutput::Ended);
        };
        Ok(if talk.bytes(1).await?.is_some() {
            ReaderOutput::File(bytes)
        } else {
            ReaderOutput::Ended
        })
    }

    async fn ended(&mut self, doing: String) -> GitError {
        let Some(talk) = self.talk.take() else {
            return GitError::other(doing, "git has ended");
        };
        match talk.end().await {
            Ok(output) => GitError::from_output(doing, &output, None),
            Err(error) => GitError::from_process(doing, error),
        }
    }
}

enum ReaderOutput {
    File(Vec<u8>),
    Nothing,
    Ended,
}

/// Parses `1234… blob 57`; any other line is no file.
fn blob(line: &[u8]) -> Option<(&str, u64)> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (id, kind, size) = (words.next()?, words.next()?, words.next()?);
    let is_blob =
        kind == "blob" && words.next().is_none() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((id, size.parse().ok()?)).filter(|_| is_blob)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_is_one() {
        assert_eq!(blob(b"abcd blob 57"), Some(("abcd", 57)));
        for line in [
            "abcd tree 57",
            "abcd:x missing",
            "abcd:a blob 57 missing",
            "abcd:x blob 5",
            "",
            "abcd blob",
        ] {
            assert_eq!(blob(line.as_bytes()), None, "{line}");
        }
    }
}
