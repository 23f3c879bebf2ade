//! Runs an emulated GitHub of other authors as a child process: `emulate` (npm).
//!
//! The child serves until its standard input ends. Only the test holds the other end of this pipe, so the child is
//! gone as soon as the test ends, even if it crashes.

use std::net::TcpListener;
use std::process::Stdio;

use reqwest::Method;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::tools::npm;
use crate::support::server::within;

/// Version of `emulate` that these tests were written against.
const VERSION: &str = "0.11.2";

/// Script of the child. Its argument is the port. The first line of its standard input is the seed. The first line of
/// its standard output is `ready` or an error. `emulate` reports an occupied port only by an event that it does not
/// handle. An answered request proves that the port was free.
const SERVICE: &str = "
    import { createInterface } from 'node:readline';
    const fail = (error) => { console.log(error.code ?? error.stack); process.exit(1); };
    process.on('uncaughtException', fail);
    process.on('unhandledRejection', fail);
    const { createEmulator } = await import('emulate');
    const port = Number(process.argv[1]);
    const baseUrl = `http://127.0.0.1:${port}`;
    for await (const line of createInterface({ input: process.stdin })) {
        await createEmulator({ service: 'github', port, baseUrl, seed: JSON.parse(line) });
        console.log((await fetch(`${baseUrl}/meta`)).ok ? 'ready' : 'it does not answer');
    }
    process.exit();
";

/// Number of start attempts. Another program on this machine may take the free port before the child does.
const START_TRIES: usize = 5;

/// A running `emulate` process.
pub struct Emulate {
    /// Origin of the API.
    pub url: String,
    client: reqwest::Client,
    _process: Child,
    _lifeline: ChildStdin,
}

impl Emulate {
    /// Starts `emulate` with a seed in the form that its README describes, and waits until it answers.
    pub async fn start(seed: &Value) -> Self {
        check_installed();
        for _ in 0..START_TRIES {
            let port = TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port();
            if let Some(started) = Self::start_on(port, seed).await {
                return started;
            }
        }
        panic!("{START_TRIES} free ports were taken by others");
    }

    /// Starts `emulate` on a port. Returns `None` if another program has the port.
    async fn start_on(port: u16, seed: &Value) -> Option<Self> {
        let mut process = command(port)
            .spawn()
            .unwrap_or_else(|error| panic!("no node ({error}): run `make setup`"));
        let mut lifeline = process.stdin.take().unwrap();
        lifeline
            .write_all(format!("{seed}\n").as_bytes())
            .await
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = within("the start of emulate", said.next_line())
            .await
            .unwrap();
        match first.as_deref() {
            Some("ready") => {}
            Some("EADDRINUSE") => return None,
            other => panic!("emulate did not start: {other:?}"),
        }
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Some(Self {
            url: format!("http://127.0.0.1:{port}"),
            client,
            _process: process,
            _lifeline: lifeline,
        })
    }

    /// Sends a request to the API as the owner of a token. Returns status and answer.
    pub async fn ask(&self, token: &str, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(token);
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (
            status,
            serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default(),
        )
    }

    /// Reads from the API.
    pub async fn get(&self, token: &str, path: &str) -> Value {
        let (status, answer) = self.ask(token, Method::GET, path, &Value::Null).await;
        assert_eq!(status, 200, "GET {path}: {answer}");
        answer
    }

    /// Creates something through the API.
    pub async fn make(&self, token: &str, method: Method, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(token, method.clone(), path, body).await;
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}"
        );
        answer
    }
}

fn check_installed() {
    let path = npm().join("node_modules/emulate/package.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{} cannot be read ({error}): run `make setup`",
            path.display()
        )
    });
    let package: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        package["version"], VERSION,
        "another version is installed: run `make setup`"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test's own helper program, not a child of the product"
)]
fn command(port: u16) -> Command {
    let mut command = Command::new("node");
    command
        .args(["--input-type=module", "-e", SERVICE, &port.to_string()])
        .current_dir(npm());
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}
