//! Runs short calls and captures their output.

use std::borrow::Cow;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::timeout;

use super::group::ChildGroup;
use super::{Cmd, ProcessError};

/// Captured output of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// First bytes of the stream.
    pub bytes: Vec<u8>,
    /// True if there was more output than the cap of the command.
    pub truncated: bool,
}

impl Captured {
    /// Returns the text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// Result of a short call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallOutput {
    /// Exit code; `None` when a signal ended the program.
    pub code: Option<i32>,
    pub stdout: Captured,
    pub stderr: Captured,
}

impl CallOutput {
    /// Returns true if the exit code is 0.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

impl Cmd {
    /// Runs the command and captures its output. An exit code other than 0 is not an error here, because its meaning
    /// depends on the caller. Dropping the future kills the process group.
    pub async fn output(&self) -> Result<CallOutput, ProcessError> {
        let program = self.resolve()?;
        let (mut group, _teller) =
            self.start(&program, self.input.is_some())
                .map_err(|source| ProcessError::Start {
                    program: self.program().to_owned(),
                    source,
                })?;
        if let Ok(output) = timeout(self.deadline, self.collect(&mut group)).await {
            return output.map_err(|source| ProcessError::Lost {
                program: self.program().to_owned(),
                source,
            });
        }
        group.stop().await;
        Err(ProcessError::TimedOut {
            program: self.program().to_owned(),
            after: self.deadline,
        })
    }

    async fn collect(&self, group: &mut ChildGroup) -> io::Result<CallOutput> {
        let input = feed(
            group.child.stdin.take(),
            self.input.as_deref().unwrap_or_default(),
        );
        let stdout = group.child.stdout.take().expect("standard output is piped");
        let stderr = group.child.stderr.take().expect("standard error is piped");
        let (status, stdout, stderr, ()) = tokio::try_join!(
            group.wait(),
            capture(stdout, self.cap),
            capture(stderr, self.cap),
            input
        )?;
        Ok(CallOutput {
            code: status.code(),
            stdout,
            stderr,
        })
    }
}

/// Writes everything and closes the pipe. If a program ends before it has read all of it, its own output explains
/// that.
async fn feed(pipe: Option<ChildStdin>, bytes: &[u8]) -> io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    match pipe.write_all(bytes).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Reads to the end and discards everything above the cap, so that a full pipe does not block the program.
pub(super) async fn capture(mut pipe: impl AsyncRead + Unpin, cap: usize) -> io::Result<Captured> {
    let mut bytes = Vec::new();
    (&mut pipe).take(cap as u64).read_to_end(&mut bytes).await?;
    let rest = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    Ok(Captured {
        bytes,
        truncated: rest > 0,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::RunLimits;

    fn sh(script: &str) -> Cmd {
        Cmd::new("sh")
            .env("PATH", "/usr/bin:/bin")
            .args(["-c", script])
    }

    #[tokio::test]
    async fn streams_are_kept_apart_and_the_code_is_told() {
        let output = sh("echo out; echo err >&2; exit 3").output().await.unwrap();
        assert_eq!(
            (output.code, &*output.stdout.text(), &*output.stderr.text()),
            (Some(3), "out\n", "err\n")
        );
    }

    #[tokio::test]
    async fn output_beyond_the_cap_is_cut_and_flagged() {
        let output = sh("printf 0123456789; printf 01234 >&2")
            .cap(5)
            .output()
            .await
            .unwrap();
        assert_eq!(
            output.stdout,
            Captured {
                bytes: b"01234".to_vec(),
                truncated: true
            }
        );
        assert_eq!(
            output.stderr,
            Captured {
                bytes: b"01234".to_vec(),
                truncated: false
            }
        );
        assert!(output.is_success());
    }

    #[tokio::test]
    async fn the_environment_is_only_what_was_given_and_standard_input_is_empty() {
        let output = Cmd::new("/usr/bin/env")
            .env("ONLY", "this")
            .output()
            .await
            .unwrap();
        assert_eq!(output.stdout.text(), "ONLY=this\n");
        assert_eq!(sh("cat").output().await.unwrap().stdout.text(), "");
    }

    #[tokio::test]
    async fn input_is_read_to_its_end_or_left_unread() {
        let list = "line\n".repeat(100_000);
        let output = sh("wc -l").input(list.as_str()).output().await.unwrap();
        assert_eq!(output.stdout.text().trim(), "100000");
        assert_eq!(
            sh("exec <&-; echo done")
                .input(list)
                .output()
                .await
                .unwrap()
                .stdout
                .text(),
            "done\n"
        );
    }

    #[tokio::test]
    async fn a_call_is_limited_before_it_gets_its_input() {
        let limits = RunLimits {
            memory: Some(512 << 20),
            processes: None,
            file_size: Some(1 << 20),
            disk: None,
            cpu: Some(Duration::from_secs(20)),
        };
        let cmd = sh("read go; cat /proc/self/limits").input("go\n");
        let output = cmd.limits(limits).output().await.unwrap();
        let text = output.stdout.text();
        let soft = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
            let words = lines.next().unwrap_or_else(|| panic!("{name}: {text}"));
            words.split_whitespace().next().unwrap().to_owned()
        };
        assert_eq!(soft("Max data size"), "536870912");
        assert_eq!(soft("Max file size"), "1048576");
        assert_eq!(soft("Max cpu time"), "20");
    }

    #[tokio::test]
    async fn the_deadline_ends_the_whole_group_and_lets_it_clean_up() {
        let dir = tempfile::tempdir().unwrap();
        let script = "trap 'echo clean > done; exit' TERM; sleep 1000 & wait";
        let error = sh(script)
            .dir(dir.path())
            .deadline(Duration::from_secs(2))
            .output()
            .await
            .unwrap_err();
        assert!(matches!(error, ProcessError::TimedOut { .. }), "{error}");
        assert_eq!(
            std::fs::read_to_string(dir.path().join("done")).unwrap(),
            "clean\n"
        );
    }

    #[tokio::test]
    async fn a_straggler_that_keeps_the_pipe_open_does_not_delay_the_end() {
        let output = sh("sleep 1000 & echo out")
            .deadline(Duration::from_secs(30))
            .output()
            .await
            .unwrap();
        assert_eq!(output.stdout.text(), "out\n");
    }
}
