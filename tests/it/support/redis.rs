//! A temporary Redis. It ends with the value, and when the test process ends or crashes: a small shell reads a pipe
//! whose other end only this process holds.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

const KEEPER: &str = r#"redis-server "$@" >/dev/null 2>&1 & pid=$!; cat >/dev/null; kill -9 $pid"#;
/// Name of the socket in its own directory.
const SOCKET: &str = "redis.sock";
/// Number of start attempts. Another program on this machine may take the free port before the server does.
const START_TRIES: usize = 5;
/// Maximum number of connection attempts, at intervals of a twentieth of a second.
const LOOKS: usize = 200;

/// A running Redis server.
pub struct Redis {
    /// Port on the loopback interface. 0: the server only listens on its own socket.
    pub port: u16,
    keeper: Child,
    dir: TempDir,
}

impl Redis {
    /// Starts a server with more options, `--requirepass x`, on a socket that nobody else can take.
    pub async fn start(options: &[&str]) -> Self {
        Self::try_start(0, options)
            .await
            .expect("redis-server starts: run `make setup`")
    }

    /// Starts a node of a cluster. Nodes communicate over TCP.
    pub async fn node() -> Self {
        for _ in 0..START_TRIES {
            if let Some(redis) = Self::try_start(free_port(), &["--cluster-enabled", "yes"]).await {
                return redis;
            }
        }
        panic!("redis-server did not start: run `make setup`");
    }

    async fn try_start(port: u16, options: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let keeper = keeper(&dir, port, options);
        let mut redis = Self { port, keeper, dir };
        for _ in 0..LOOKS {
            // Any answer is sufficient, also one that requires a password.
            if tokio::net::UnixStream::connect(redis.socket())
                .await
                .is_ok()
            {
                return Some(redis);
            }
            if redis.keeper.try_wait().is_ok_and(|ended| ended.is_some()) {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        None
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join(SOCKET)
    }

    /// Returns the address, with a password if there is one.
    pub fn url(&self, password: &str) -> String {
        match (self.port, password) {
            (0, "") => format!("unix://{}?db=0", self.socket().display()),
            (0, password) => format!("unix://{}?db=0&pass={password}", self.socket().display()),
            (port, _) => format!("redis://127.0.0.1:{port}/0"),
        }
    }

    /// Sets texts, with the password if there is one.
    pub async fn set(&self, password: &str, values: &[(&str, String)]) {
        let mut connection = self.connection(password).await;
        for (key, value) in values {
            redis::cmd("SET")
                .arg(key)
                .arg(value)
                .exec_async(&mut connection)
                .await
                .expect("a key can be set");
        }
    }

    /// Opens a connection for other commands.
    pub async fn connection(&self, password: &str) -> redis::aio::MultiplexedConnection {
        let client =
            redis::Client::open(self.url(password)).expect("our own address is well-formed");
        client
            .get_multiplexed_async_connection()
            .await
            .expect("the server answers")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().expect("the keeper is our child");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "process::Cmd would end the keeper before it has cleaned up"
)]
fn keeper(dir: &TempDir, port: u16, options: &[&str]) -> Child {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        KEEPER,
        "sh",
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--port",
    ]);
    command.arg(port.to_string()).arg("--dir").arg(dir.path());
    command
        .arg("--unixsocket")
        .arg(dir.path().join(SOCKET))
        .args(options);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command.spawn().expect("every system has a shell")
}

fn free_port() -> u16 {
    // The bus of a cluster listens on a port that is ten thousand higher.
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let port = listener
            .local_addr()
            .expect("a bound socket has an address")
            .port();
        if port < 55535 {
            return port;
        }
    }
}
