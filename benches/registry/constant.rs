//! A server that does nothing but answer with constant bytes: the ceiling of the machine. It is this program under another
//! name, in a process of its own as the measured server is.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context as _;
use axum::Router;
use axum::extract::Path as UrlPath;
use axum::routing::get;
use bytes::Bytes;

const NAME: &str = "constant-answers";
/// Size of the largest answer in bytes.
const LARGEST: usize = 8 << 20;

/// A running server of constant answers, killed on drop.
pub struct ConstantServer {
    child: Child,
    /// Address on which it listens.
    pub address: String,
}

impl ConstantServer {
    /// Starts this program under the name that makes it such a server.
    #[expect(
        clippy::disallowed_methods,
        reason = "this program itself, not a child of the product"
    )]
    pub fn start(work: &Path) -> anyhow::Result<Self> {
        let program = work.join(NAME);
        let own = std::env::current_exe().context("cannot tell where this program is")?;
        symlink(own, &program)?;
        let mut child = Command::new(program)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server of constant answers")?;
        let stdout = child.stdout.take().context("the output is a pipe")?;
        let mut server = Self {
            child,
            address: String::new(),
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        line.trim_end().clone_into(&mut server.address);
        Ok(server)
    }
}

impl Drop for ConstantServer {
    fn drop(&mut self) {
        // Killing only fails if the server has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns true if this program was started as the server of constant answers.
pub fn is_constant_server() -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    name.is_some_and(|name| name.ends_with(NAME))
}

/// Serves constant answers until somebody kills the process. `/N` has N bytes.
pub fn answer_constantly() -> ExitCode {
    match tokio::runtime::Runtime::new().map(|runtime| runtime.block_on(serve())) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) | Err(_) => ExitCode::FAILURE,
    }
}

async fn serve() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    let bytes = Bytes::from(vec![b'x'; LARGEST]);
    let answer = get(move |UrlPath(size): UrlPath<usize>| {
        let bytes = bytes.slice(..size.min(LARGEST));
        async move { bytes }
    });
    axum::serve(listener, Router::new().route("/{size}", answer)).await
}
