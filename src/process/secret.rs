//! Gives a child process a secret that is neither in its arguments nor in its environment.
//!
//! Every process of the same user can read both while the child lives (`/proc/PID/environ`). A memory file or a pipe
//! has the same weakness: another process can open the files in `/proc/PID/fd` again. So the child gets one end of a
//! pair of sockets, which cannot be opened by a path. This process keeps the other end and answers each message with
//! the secret. So the secret never waits in the kernel, and a program that asks again is answered again.
//!
//! The sockets are connected (`SOCK_SEQPACKET`): if this process dies, a program that waits for an answer reads an
//! end. A datagram socket would never report that, and git would wait for its helper forever.
//!
//! The child inherits its end ([`super::inherit`]), and no other child that starts at the same moment does.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram as Messages;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::net::UnixDatagram;
use tokio_util::task::AbortOnDropHandle;

use super::Cmd;
use super::inherit::InheritedSecret;
use crate::secret::Secret;

/// Maximum length of a question in bytes; its content does not matter.
const QUESTION: usize = 16;

/// Task that answers the child while this value is kept.
#[derive(Debug)]
pub(super) struct SecretWriter {
    _task: AbortOnDropHandle<()>,
}

impl Cmd {
    /// Number of the descriptor on which a child requests the secret: a shell can name descriptors below ten.
    pub const SECRET_FD: i32 = 3;

    /// Sets a secret. The child and its children request it with a message of any content on the descriptor
    /// [`Self::SECRET_FD`]. They read it there as one message, until the command has ended.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Creates the descriptor for the command that is about to start, if there is a secret. The first value is to be
    /// inherited; the second one answers the child.
    pub(super) fn secret_for_child(
        &self,
        command: &mut tokio::process::Command,
    ) -> io::Result<(Option<InheritedSecret>, Option<SecretWriter>)> {
        let Some(secret) = self.secret.clone() else {
            return Ok((None, None));
        };
        let (ours, theirs) = connected()?;
        ours.set_nonblocking(true)?;
        let ours = UnixDatagram::from_std(ours)?;
        let inherited = InheritedSecret::new(theirs, command)?;
        let task = tokio::spawn(async move { answer_questions(&ours, &secret).await });
        let writer = SecretWriter {
            _task: AbortOnDropHandle::new(task),
        };
        Ok((inherited, Some(writer)))
    }
}

/// Creates both ends, which every `exec` closes. Our end has the type for messages, which works the same on a
/// connected socket.
fn connected() -> io::Result<(Messages, OwnedFd)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((Messages::from(ours), theirs))
}

/// Answers questions until an empty message reports that the other end is closed.
async fn answer_questions(socket: &UnixDatagram, secret: &Secret) {
    let mut question = [0; QUESTION];
    while socket
        .recv(&mut question)
        .await
        .is_ok_and(|length| length > 0)
    {
        if socket.send(secret.expose().as_bytes()).await.is_err() {
            break;
        }
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

    const ASK: &str = "printf get >&3 && dd bs=65536 count=1 <&3 2>/dev/null";

    #[tokio::test]
    async fn a_secret_is_told_to_whoever_asks_as_often_as_they_ask() {
        let long = Secret::new(&"hunter2:".repeat(2000));
        let script = format!("{ASK} | wc -c; sh -c '{ASK}' | wc -c");
        let output = sh(&script).secret(long).output().await.unwrap();
        assert_eq!(
            output.stdout.text().split_whitespace().collect::<Vec<_>>(),
            ["16000", "16000"]
        );
        let mut dialogue = sh(&format!("read -r _; {ASK}; echo"))
            .secret(Secret::new("hunter2"))
            .dialogue()
            .unwrap();
        dialogue.send(b"\n").await.unwrap();
        assert_eq!(
            dialogue.line(100).await.unwrap().as_deref(),
            Some(&b"hunter2"[..])
        );
    }

    /// Limit far above the expected time; a wait that reaches it has failed.
    const LONG: std::time::Duration = std::time::Duration::from_mins(1);

    #[test]
    fn whoever_waits_for_a_secret_hears_that_the_server_has_died() {
        let (ours, theirs) = connected().unwrap();
        let theirs = Messages::from(theirs);
        theirs.set_read_timeout(Some(LONG)).unwrap();
        theirs.send(b"get").unwrap();
        drop(ours);
        let heard = theirs.recv(&mut [0; 16]);
        let is_end = match &heard {
            Ok(length) => *length == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        };
        assert!(is_end, "{heard:?}");
    }

    #[tokio::test]
    async fn a_secret_is_nowhere_that_a_path_leads_to() {
        let look = "tr '\\0' '\\n' </proc/$$/environ; tr '\\0' '\\n' </proc/$$/cmdline; \
                    for fd in /proc/$$/fd/*; do echo \"$fd\"; done; \
                    if (exec 4</proc/$$/fd/3) 2>/dev/null; then echo op''ened; fi";
        let output = sh(look)
            .secret(Secret::new("hunter2"))
            .output()
            .await
            .unwrap();
        let text = output.stdout.text();
        assert!(
            !text.contains("hunter2") && !text.contains("opened") && text.contains("/fd/3\n"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn other_children_do_not_inherit_it() {
        let list = "for fd in /proc/$$/fd/*; do readlink \"$fd\"; done";
        let asker = sh("sleep 1000").secret(Secret::new("hunter2"));
        let held = asker.dialogue().unwrap();
        let others = futures::future::join_all((0..20).map(|_| async {
            let (with, without) = (sh(list).secret(Secret::new("x")), sh(list));
            (
                with.output().await.unwrap(),
                without.output().await.unwrap(),
            )
        }));
        for (with, without) in others.await {
            assert_eq!(
                with.stdout.text().matches("socket:").count(),
                1,
                "{}",
                with.stdout.text()
            );
            assert_eq!(
                without.stdout.text().matches("socket:").count(),
                0,
                "{}",
                without.stdout.text()
            );
        }
        drop(held);
    }
}
