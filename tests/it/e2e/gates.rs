//! Gates where a story stops Terraform for as long as it needs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::support::server::within;

/// A remote state that a plan reads. The story decides when Terraform gets it.
pub struct PlanGate {
    address: String,
    visits: Mutex<mpsc::UnboundedReceiver<Visit>>,
    open: watch::Sender<bool>,
    _server: AbortOnDropHandle<()>,
}

/// A Terraform that waits for its data. Dropping this value drops the connection; Terraform then retries.
pub struct Visit(oneshot::Sender<()>);

impl Visit {
    /// Lets Terraform go on. One that has gone away is no error.
    pub fn let_in(self) {
        self.0.send(()).ok();
    }
}

/// A state without resources. Its output changes nothing.
const STATE: &str = r#"{"version":4,"terraform_version":"1.0.0","serial":1,
    "lineage":"e2e","outputs":{"word":{"value":"hello","type":"string"}},"resources":[]}"#;

impl PlanGate {
    /// Starts a closed gate.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!(
            "http://{}/state",
            listener.local_addr().expect("an address")
        );
        let (sender, visits) = mpsc::unbounded_channel();
        let open = watch::Sender::new(false);
        let opened = open.clone();
        let answer = get(move || visit(sender.clone(), opened.subscribe()));
        let app = Router::new().route("/state", answer);
        let server =
            tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        Self {
            address,
            visits: Mutex::new(visits),
            open,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// Returns code with one resource, whose plan goes through the gate.
    pub fn code(&self) -> String {
        format!(
            "data \"terraform_remote_state\" \"gate\" {{\n  backend = \"http\"\n  config  = {{ address = \"{}\" }}\n}}\n\
             resource \"terraform_data\" \"behind\" {{\n  \
             input = data.terraform_remote_state.gate.outputs.word\n}}\n",
            self.address
        )
    }

    /// Waits for the next Terraform.
    pub async fn visit(&self) -> Visit {
        let mut visits = self.visits.lock().await;
        within("a plan at the gate", visits.recv())
            .await
            .expect("the server lives as long as this")
    }

    /// Asserts that no further Terraform waits at the gate.
    pub async fn assert_nobody_waits(&self) {
        assert!(
            self.visits.lock().await.try_recv().is_err(),
            "another Terraform is at the gate"
        );
    }

    /// Opens the gate, so that every Terraform passes at once.
    pub fn open(&self) {
        self.open.send_replace(true);
    }
}

async fn visit(
    visits: mpsc::UnboundedSender<Visit>,
    open: watch::Receiver<bool>,
) -> ([(axum::http::HeaderName, &'static str); 1], &'static str) {
    if !*open.borrow() {
        let (go, gone) = oneshot::channel();
        visits.send(Visit(go)).ok();
        gone.await.ok();
    }
    ([(CONTENT_TYPE, "application/json")], STATE)
}

/// A pipe that a provisioner reads from. The apply goes on when the story writes to it.
#[derive(Clone)]
pub struct ApplyGate {
    pipe: PathBuf,
    done: PathBuf,
}

/// An apply in the middle of its work.
pub struct Applying(Arc<File>);

impl ApplyGate {
    /// Creates a closed gate in a directory.
    pub fn new(dir: &Path) -> Self {
        let gate = Self {
            pipe: dir.join("gate"),
            done: dir.join("done"),
        };
        mkfifo(&gate.pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a new pipe");
        gate
    }

    /// Returns code of a resource whose creation has a side effect (a line in a file), then waits at the gate, then
    /// has another.
    pub fn code(&self, name: &str) -> String {
        let (pipe, done) = (self.pipe.display(), self.done.display());
        format!(
            "resource \"terraform_data\" \"{name}\" {{\n  provisioner \"local-exec\" {{\n    \
             command = \"echo begun >> {done}; read -r line < {pipe}; echo ended >> {done}\"\n  }}\n}}\n"
        )
    }

    /// Returns the pipe, for code of a story, and for other helpers that let an apply through.
    pub fn pipe(&self) -> &Path {
        &self.pipe
    }

    /// Waits until an apply is at the gate.
    pub async fn reached(&self) -> Applying {
        let pipe = self.pipe.clone();
        // Opening a pipe for writing waits for a reader.
        let open = tokio::task::spawn_blocking(move || File::options().write(true).open(pipe));
        let open = within("an apply at the gate", open)
            .await
            .expect("opening does not panic");
        Applying(Arc::new(open.expect("the pipe is there")))
    }

    /// Returns the side effects so far.
    pub fn effects(&self) -> Vec<String> {
        std::fs::read_to_string(&self.done)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

impl Applying {
    /// Lets the apply go on.
    pub fn let_through(self) {
        use std::io::Write;
        // The reader may be gone.
        (&*self.0).write_all(b"go\n").ok();
    }
}
