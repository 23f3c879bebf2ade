//! Hosts with repositories, as a server finds them on the internet: over TLS and under real names, through a proxy that
//! knows every request.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::tunnel::acceptor;
use crate::support::git_http::GitServer;
use crate::support::installed::on_path;

const AUTHORITY: &str = include_str!("../support/tls/code_ca.cert.pem");
const CERTIFICATE: &str = include_str!("../support/tls/code.cert.pem");
const KEY: &str = include_str!("../support/tls/code.key.pem");

/// Host of the repositories of the tests.
pub const CODE: &str = "code.example.org";
/// Host with pages that lead to repositories, and with redirects.
pub const PAGES: &str = "go.example.org";
/// Host that nobody has allowed.
pub const OTHER: &str = "other.example.org";

/// Time of the commits.
const TIME: &str = "2026-01-02T03:04:05Z";

/// The hosts of a test.
pub struct Outside {
    dir: TempDir,
    git: GitServer,
    proxy: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    pages: Arc<Mutex<HashMap<String, Page>>>,
    is_mute: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone)]
enum Page {
    Text(String),
    LeadsTo(String),
}

type Hosts = HashMap<&'static str, SocketAddr>;

impl Outside {
    pub async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("srv")).unwrap();
        std::fs::write(dir.path().join("ca.pem"), AUTHORITY).unwrap();
        let git = GitServer::start(&dir.path().join("srv"), None).await;
        let code = git.url.strip_prefix("http://").unwrap().parse().unwrap();
        let pages = Arc::<Mutex<HashMap<String, Page>>>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let of_pages = listener.local_addr().unwrap();
        let router = Router::new().fallback(page).with_state(Arc::clone(&pages));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let hosts = HashMap::from([(CODE, code), (PAGES, of_pages), (OTHER, code)]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (known, tls) = (Arc::clone(&asked), acceptor(CERTIFICATE, KEY));
        let is_mute = Arc::<AtomicBool>::default();
        let mute = Arc::clone(&is_mute);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (hosts, known, tls) = (hosts.clone(), Arc::clone(&known), tls.clone());
                let mute = Arc::clone(&mute);
                tokio::spawn(async move { connect(client, &hosts, (&known, &mute), &tls).await });
            }
        });
        Self {
            dir,
            git,
            proxy,
            asked,
            pages,
            is_mute,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Returns the variables by which programs reach the hosts.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let authority = self.dir.path().join("ca.pem").display().to_string();
        vec![
            ("HTTPS_PROXY", format!("http://{}", self.proxy)),
            ("GIT_SSL_CAINFO", authority.clone()),
            ("SSL_CERT_FILE", authority),
        ]
    }

    /// Creates a repository below the host with repositories, with a first commit.
    pub fn repository(&self, path: &str, files: &[(&str, &str)]) -> Repository {
        let bare = self.dir.path().join("srv").join(path);
        std::fs::create_dir_all(&bare).unwrap();
        let work = self.dir.path().join("work").join(path);
        std::fs::create_dir_all(&work).unwrap();
        let repository = Repository { work };
        git(&bare, &["init", "-q", "--bare", "--initial-branch=main"]);
        git(&bare, &["config", "uploadpack.allowFilter", "true"]);
        let work = &repository.work;
        git(work, &["init", "-q", "--initial-branch=main"]);
        git(work, &["remote", "add", "origin", bare.to_str().unwrap()]);
        repository.commit(files);
        repository
    }

    /// Serves a page of the host with pages.
    pub fn page(&self, path: &str, text: &str) {
        let page = Page::Text(text.to_owned());
        self.pages.lock().unwrap().insert(path.to_owned(), page);
    }

    /// Redirects requests for a path, and for everything below it, on the host with pages.
    pub fn redirect(&self, path: &str, to: &str) {
        let page = Page::LeadsTo(to.to_owned());
        self.pages.lock().unwrap().insert(path.to_owned(), page);
    }

    /// Lets all hosts accept connections and never answer, or answer again. Connections that were begun stay as they are.
    pub fn mute(&self, is_mute: bool) {
        self.is_mute.store(is_mute, Ordering::SeqCst);
    }

    /// Returns the hosts that clients wanted to reach so far, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Returns the number of times that the tags of a repository were listed or a commit was fetched.
    pub fn git_requests(&self) -> usize {
        self.git.log.lock().unwrap().asked_for_refs.len()
    }

    /// Returns the number of times that the tags of one repository were listed or a commit of it was fetched.
    pub fn git_requests_for(&self, path: &str) -> usize {
        let (log, begin) = (self.git.log.lock().unwrap(), format!("/{path}/"));
        let paths = log.paths_of_refs.iter();
        paths.filter(|path| path.starts_with(&begin)).count()
    }

    /// Lets requests for a repository wait for their answers, or answers all of them.
    pub fn hold(&self, path: &str, is_held: bool) {
        let begin = format!("/{path}/");
        self.git.held.send_modify(|held| {
            if is_held {
                held.insert(begin);
            } else {
                held.remove(&begin);
            }
        });
    }

    /// Returns the address of a repository for a server that has access to it.
    pub fn address(&self, path: &str) -> String {
        format!("{}/{path}", self.git.url)
    }

    /// Returns true if a request to a repository had credentials.
    pub fn saw_credentials(&self) -> bool {
        let log = self.git.log.lock().unwrap();
        log.authorization.iter().any(Option::is_some)
    }
}

/// A repository that a test writes.
pub struct Repository {
    work: PathBuf,
}

impl Repository {
    /// Commits files to the branch and returns the commit.
    pub fn commit(&self, files: &[(&str, &str)]) -> String {
        for (path, text) in files {
            let path = self.work.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        git(&self.work, &["add", "--all"]);
        git(&self.work, &["commit", "-q", "--allow-empty", "-m", "x"]);
        git(&self.work, &["push", "-q", "origin", "HEAD:main"]);
        git(&self.work, &["rev-parse", "HEAD"])
    }

    /// Takes the newest commit off the branch.
    pub fn take_back(&self) {
        git(&self.work, &["reset", "-q", "--hard", "HEAD~1"]);
        git(&self.work, &["push", "-q", "-f", "origin", "HEAD:main"]);
    }

    /// Commits the usual file of a module, and directories within directories that have the same ten entries each: ten files
    /// become ten to the power of `levels`.
    pub fn commit_many(&self, go_mod: (&str, &str), levels: u32) {
        let blob = |text: &str| git_with(&self.work, &["hash-object", "-w", "--stdin"], text);
        let tree = |lines: &str| git_with(&self.work, &["mktree"], lines);
        let entries = |kind: &str, id: &str| {
            let lines = (0..10).map(|number| format!("{kind} {id}\t{number}\n"));
            lines.collect::<Vec<_>>().concat()
        };
        let mut many = tree(&entries("100644 blob", &blob("")));
        for _ in 1..levels {
            many = tree(&entries("040000 tree", &many));
        }
        let (path, text) = go_mod;
        let file = format!("100644 blob {}\tgo.mod\n", blob(text));
        let of_module = match path.split_once('/') {
            Some((folder, _)) => format!("040000 tree {}\t{folder}\n", tree(&file)),
            None => file,
        };
        let top = tree(&format!("040000 tree {many}\tmany\n{of_module}"));
        let commit = git(&self.work, &["commit-tree", "-m", "x", &top]);
        git(&self.work, &["update-ref", "HEAD", &commit]);
        git(&self.work, &["push", "-q", "-f", "origin", "HEAD:main"]);
    }

    /// Tags the newest commit.
    pub fn tag(&self, name: &str) {
        git(&self.work, &["tag", "-f", "-a", "-m", "x", name]);
        git(&self.work, &["push", "-q", "-f", "origin", name]);
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    git_with(dir, args, "")
}

/// Runs git with this input.
#[expect(
    clippy::disallowed_methods,
    reason = "repositories are made as people make them"
)]
fn git_with(dir: &Path, args: &[&str], input: &str) -> String {
    let mut command = Command::new(on_path("git"));
    command.args(args).current_dir(dir).env_clear();
    command
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), "kim")
            .env(format!("GIT_{role}_EMAIL"), "kim@example.org")
            .env(format!("GIT_{role}_DATE"), TIME);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "git {args:?}: {error}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Leads a client to the host that it asks for.
async fn connect(
    client: TcpStream,
    hosts: &Hosts,
    (asked, mute): (&Mutex<Vec<String>>, &AtomicBool),
    tls: &TlsAcceptor,
) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let (mut first, mut line) = (String::new(), String::new());
    client.read_line(&mut first).await?;
    while client.read_line(&mut line).await? > 0 && line.trim() != "" {
        line.clear();
    }
    let host = first.split(' ').nth(1).unwrap_or_default();
    let host = host.strip_suffix(":443").unwrap_or(host).to_owned();
    asked.lock().unwrap().push(host.clone());
    let Some(server) = hosts.get(host.as_str()) else {
        return client.write_all(b"HTTP/1.1 502 No such host\r\n\r\n").await;
    };
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
    if mute.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let mut client = tls.accept(client).await?;
    let mut server = TcpStream::connect(server).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

async fn page(
    State(pages): State<Arc<Mutex<HashMap<String, Page>>>>,
    request: Request,
) -> Response {
    let path = request.uri().path();
    let pages = pages.lock().unwrap();
    let mut found = pages
        .iter()
        .filter(|(known, page)| match page {
            Page::Text(_) => path == known.as_str(),
            Page::LeadsTo(_) => path.starts_with(known.as_str()),
        })
        .map(|(known, page)| (known.clone(), page.clone()));
    match found.next() {
        Some((_, Page::Text(text))) => text.into_response(),
        Some((known, Page::LeadsTo(to))) => {
            let rest = request.uri().to_string();
            let rest = rest.strip_prefix(known.as_str()).unwrap_or_default();
            let to = format!("{to}{rest}");
            (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
