//! A real OpenSSH server, for one key that may call one script.
//!
//! The server needs no more rights than the tests have. The test listens itself, and every connection gets its own
//! `sshd -i`. No other program can therefore take a port, and the process of a connection ends with the runtime of
//! its test.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lockkeeper::process::Cmd;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// Search path for programs. Servers are often not on the path of users.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// A running SSH server.
pub struct Sshd {
    /// Port on 127.0.0.1 where it listens.
    pub port: u16,
    /// User who may log in: the one who runs the tests.
    pub user: String,
    dir: PathBuf,
}

impl Sshd {
    /// Serves from its own directory. A client with the key [`Self::key`] can call this shell script and nothing
    /// else. The requested command is in `SSH_ORIGINAL_COMMAND`.
    pub async fn start(dir: &Path, script: &str) -> Self {
        std::fs::create_dir(dir).unwrap();
        for key in ["host", "other_host", "key", "other_key"] {
            sh(
                dir,
                &format!("ssh-keygen -q -t ed25519 -N '' -C {key} -f {key}"),
            )
            .await;
        }
        let (program, forced) = (dir.join("script"), dir.display());
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let public = read(&dir.join("key.pub"));
        std::fs::write(
            dir.join("authorized_keys"),
            format!("restrict,command=\"{forced}/script\" {public}"),
        )
        .unwrap();
        let config = format!(
            "HostKey {forced}/host\nAuthorizedKeysFile {forced}/authorized_keys\nStrictModes no\nUsePAM no\nPidFile none\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
             AcceptEnv GIT_PROTOCOL\n"
        );
        std::fs::write(dir.join("config"), config).unwrap();
        // sshd needs this directory when it runs as root. Without root, the test cannot create it and sshd does not
        // need it.
        std::fs::create_dir_all("/run/sshd").ok();
        let sshd = sh(
            dir,
            "command -v sshd || echo 'there is no sshd: run `make setup`' >&2",
        )
        .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(serve(listener, sshd.into(), dir.to_owned()));
        Self {
            port,
            user: sh(dir, "id -un").await,
            dir: dir.to_owned(),
        }
    }

    /// Returns the private key that may log in. `other_key` may not.
    pub fn key(&self, name: &str) -> String {
        read(&self.dir.join(name))
    }

    /// Returns the `known_hosts` line of the server. `other_host` is another server.
    pub fn known_hosts(&self, name: &str) -> String {
        format!(
            "[127.0.0.1]:{} {}",
            self.port,
            read(&self.dir.join(name).with_extension("pub"))
        )
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        read(&self.dir.join("log"))
    }
}

/// Serves connections until the future is dropped, which also ends those in progress.
async fn serve(listener: TcpListener, sshd: PathBuf, dir: PathBuf) {
    let mut served: Vec<Child> = Vec::new();
    while let Ok((line, _)) = listener.accept().await {
        served.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        served.push(sshd_on(&sshd, &dir, line.into_std().unwrap()));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the connection is its standard input, which `Cmd` does not offer"
)]
fn sshd_on(sshd: &Path, dir: &Path, line: TcpStream) -> Child {
    line.set_nonblocking(false).unwrap();
    let (input, output) = (
        OwnedFd::from(line.try_clone().unwrap()),
        OwnedFd::from(line),
    );
    let mut command = Command::new(sshd);
    command
        .arg("-i")
        .arg("-f")
        .arg(dir.join("config"))
        .arg("-E")
        .arg(dir.join("log"));
    command
        .env_clear()
        .env("PATH", PATH)
        .stdin(input)
        .stdout(output)
        .kill_on_drop(true);
    command.spawn().unwrap()
}

async fn sh(dir: &Path, script: &str) -> String {
    let output = Cmd::new("sh")
        .env("PATH", PATH)
        .args(["-ec", script])
        .dir(dir)
        .output()
        .await
        .unwrap();
    assert!(
        output.is_success() && output.stderr.bytes.is_empty(),
        "{script}: {}",
        output.stderr.text()
    );
    output.stdout.text().trim().to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
