//! Talks to a program that answers requests one after the other, such as `git cat-file --batch`.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::group::ChildGroup;
use super::output::capture;
use super::secret::SecretWriter;
use super::{CallOutput, Captured, Cmd, ProcessError};

/// Maximum number of bytes kept of standard error.
const COMPLAINTS: usize = 64 * 1024;

/// Running program that reads requests on standard input and answers on standard output. Dropping the value ends the
/// program with its whole group. So does the deadline of the command, which counts from the start.
#[derive(Debug)]
pub struct Dialogue {
    program: OsString,
    /// Time limit, and the moment when it expires.
    deadline: (Duration, Instant),
    group: ChildGroup,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    stderr: JoinHandle<io::Result<Captured>>,
    _teller: Option<SecretWriter>,
}

impl Cmd {
    /// Starts the command as a dialogue; [`Self::input`] is not used.
    ///
    /// # Panics
    ///
    /// Never, because the three pipes were requested.
    pub fn dialogue(&self) -> Result<Dialogue, ProcessError> {
        let program = self.resolve()?;
        let (mut group, teller) =
            self.start(&program, true)
                .map_err(|source| ProcessError::Start {
                    program: self.program().to_owned(),
                    source,
                })?;
        let stdin = group.child.stdin.take().expect("standard input is piped");
        let stdout = BufReader::new(group.child.stdout.take().expect("standard output is piped"));
        let stderr = group.child.stderr.take().expect("standard error is piped");
        let stderr = tokio::spawn(capture(stderr, COMPLAINTS));
        let deadline = (self.deadline, Instant::now() + self.deadline);
        Ok(Dialogue {
            program: self.program().to_owned(),
            deadline,
            group,
            stdin,
            stdout,
            stderr,
            _teller: teller,
        })
    }
}

impl Dialogue {
    /// Sends a request. A program that has ended is noticed only when its answer is read.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), ProcessError> {
        let stdin = &mut self.stdin;
        let said = async {
            stdin.write_all(bytes).await?;
            stdin.flush().await
        };
        match in_time(&self.program, self.deadline, said).await {
            Err(ProcessError::Lost { source, .. })
                if source.kind() == io::ErrorKind::BrokenPipe =>
            {
                Ok(())
            }
            said => said,
        }
    }

    /// Reads a line of the answer without its end. Returns `None` if the program has ended, or the line is longer
    /// than `most` bytes.
    pub async fn line(&mut self, most: usize) -> Result<Option<Vec<u8>>, ProcessError> {
        let mut line = Vec::new();
        let mut stdout = (&mut self.stdout).take(most as u64 + 1);
        in_time(
            &self.program,
            self.deadline,
            stdout.read_until(b'\n', &mut line),
        )
        .await?;
        Ok((line.pop() == Some(b'\n')).then_some(line))
    }

    /// Reads `many` bytes of the answer. Returns `None` if the program has ended before.
    pub async fn bytes(&mut self, many: usize) -> Result<Option<Vec<u8>>, ProcessError> {
        let mut bytes = Vec::new();
        let mut stdout = (&mut self.stdout).take(many as u64);
        in_time(&self.program, self.deadline, stdout.read_to_end(&mut bytes)).await?;
        Ok((bytes.len() == many).then_some(bytes))
    }

    /// Sends the only request, and returns the first bytes of the answer: all of it, or at least `most` bytes.
    pub async fn exchange(&mut self, request: &[u8], most: usize) -> Result<Vec<u8>, ProcessError> {
        let (stdin, stdout) = (&mut self.stdin, &mut self.stdout);
        let say = async {
            let said = async {
                stdin.write_all(request).await?;
                stdin.flush().await
            };
            match said.await {
                // The program has heard enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                said => said,
            }
        };
        let hear = async {
            let mut answer = Vec::new();
            stdout.take(most as u64).read_to_end(&mut answer).await?;
            Ok(answer)
        };
        // At the same time, because a program may answer before it has read everything.
        let asked = async { tokio::try_join!(say, hear) };
        let ((), answer) = in_time(&self.program, self.deadline, asked).await?;
        Ok(answer)
    }

    /// Returns the next bytes of the answer, at most `most` of them. They are empty at its end.
    pub async fn more(&mut self, most: usize) -> Result<Vec<u8>, ProcessError> {
        let mut piece = vec![0; most];
        let read = self.stdout.read(&mut piece);
        let read = in_time(&self.program, self.deadline, read).await?;
        piece.truncate(read);
        Ok(piece)
    }

    /// Closes standard input, waits for the program to end, and discards its remaining answers.
    pub async fn end(mut self) -> Result<CallOutput, ProcessError> {
        drop(self.stdin);
        let (stdout, group) = (&mut self.stdout, &mut self.group);
        let ended = async {
            tokio::io::copy(stdout, &mut tokio::io::sink()).await?;
            let status = group.wait().await?;
            let stderr = self.stderr.await.map_err(io::Error::other)??;
            Ok(CallOutput {
                code: status.code(),
                stdout: Captured::default(),
                stderr,
            })
        };
        in_time(&self.program, self.deadline, ended).await
    }
}

async fn in_time<T>(
    program: &OsStr,
    (after, until): (Duration, Instant),
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, ProcessError> {
    match timeout_at(until, work).await {
        Ok(done) => done.map_err(|source| ProcessError::Lost {
            program: program.to_owned(),
            source,
        }),
        Err(_) => Err(ProcessError::TimedOut {
            program: program.to_owned(),
            after,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Cmd {
        Cmd::new("sh")
            .env("PATH", "/usr/bin:/bin")
            .args(["-c", script])
    }

    #[tokio::test]
    async fn questions_are_answered_one_after_the_other() {
        let mut dialogue =
            sh("while read -r word; do echo \"$word?\"; printf 12; done; echo bad >&2; exit 3")
                .dialogue()
                .unwrap();
        for word in ["one", "two"] {
            dialogue.send(format!("{word}\n").as_bytes()).await.unwrap();
            assert_eq!(
                dialogue.line(10).await.unwrap(),
                Some(format!("{word}?").into_bytes())
            );
            assert_eq!(
                dialogue.bytes(2).await.unwrap().as_deref(),
                Some(&b"12"[..])
            );
        }
        let output = dialogue.end().await.unwrap();
        assert_eq!((output.code, &*output.stderr.text()), (Some(3), "bad\n"));
    }

    #[tokio::test]
    async fn a_program_that_ends_early_and_one_that_hangs_are_noticed() {
        let mut dialogue = sh("printf half").dialogue().unwrap();
        assert_eq!(dialogue.line(10).await.unwrap(), None);
        dialogue.send(b"anybody?").await.unwrap();
        assert_eq!(dialogue.bytes(1).await.unwrap(), None);
        let mut long = sh("echo 1234567890").dialogue().unwrap();
        assert_eq!(long.line(9).await.unwrap(), None);
        let mut silent = sh("exec sleep 60")
            .deadline(Duration::from_millis(50))
            .dialogue()
            .unwrap();
        assert!(matches!(
            silent.line(9).await,
            Err(ProcessError::TimedOut { .. })
        ));
    }
}
