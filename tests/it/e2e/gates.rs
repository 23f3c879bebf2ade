//! Where a story stops Terraform for as long as it likes.

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

/// A remote state that is read while a plan is made, and given out when the story says so.
pub struct PlanGate {
    address: String,
    visits: Mutex<mpsc::UnboundedReceiver<Visit>>,
    open: watch::Sender<bool>,
    _server: AbortOnDropHandle<()>,
}

/// A Terraform that waits for its data. Dropping this drops the connection; Terraform then tries again.
pub struct Visit(oneshot::Sender<()>);

impl Visit {
    /// Lets it go on; one that has gone away does not mind.
    pub fn let_in(self) {
        self.0.send(()).ok();
    }
}

/// A state without resources; its output changes nothing.
const STATE: &str = r#"{"version":4,"terraform_version":"1.0.0","serial":1,
    "lineage":"e2e","outputs":{"word":{"value":"hello","type":"string"}},"resources":[]}"#;

impl PlanGate {
    /// A closed gate.
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

    /// Code whose plan goes through the gate, and which has one resource.
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

    /// Nobody waits who was not welcomed.
    pub async fn assert_nobody_waits(&self) {
        assert!(
            self.visits.lock().await.try_recv().is_err(),
            "another Terraform is at the gate"
        );
    }

    /// From now on everybody goes through at once.
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

/// A pipe that a provisioner reads from: the apply goes on when the story writes to it.
#[derive(Clone)]
pub struct ApplyGate {
    pipe: PathBuf,
    done: PathBuf,
}

/// An apply in the middle of its work.
pub struct Applying(Arc<File>);

impl ApplyGate {
    /// A closed gate in a directory.
    pub fn new(dir: &Path) -> Self {
        let gate = Self {
            pipe: dir.join("gate"),
            done: dir.join("done"),
        };
        mkfifo(&gate.pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a new pipe");
        gate
    }

    /// A resource whose creation has a side effect (a line in a file), then waits at the gate, then has another one.
    pub fn code(&self, name: &str) -> String {
        let (pipe, done) = (self.pipe.display(), self.done.display());
        format!(
            "resource \"terraform_data\" \"{name}\" {{\n  provisioner \"local-exec\" {{\n    \
             command = \"echo begun >> {done}; read -r line < {pipe}; echo ended >> {done}\"\n  }}\n}}\n"
        )
    }

    /// The pipe, for code of the story's own and for whoever else lets an apply through.
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

    /// The side effects so far.
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
        // The reader may have been ended.
        (&*self.0).write_all(b"go\n").ok();
    }
}
