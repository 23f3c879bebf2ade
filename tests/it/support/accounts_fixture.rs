//! A running server with accounts, and people with git and the API. When a story ends, everything that its server holds is
//! checked.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockkeeper::clock::{CountingIds, SystemClock};
use lockkeeper::emulator::{Emulator, Options};
use lockkeeper::secret::Secret;
use lockkeeper::store::Store;
use reqwest::{Method, RequestBuilder};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::db::Backend;
use super::installed::on_path;
use super::postgres::{self, Content};
use super::program::{ProgramOutput, lockkeeper};
use super::server::{BOT, Server, Settings, TOKEN, WEBHOOK_SECRET};
use crate::accounts::independent;

pub const ADMIN: &str = "ops:a-long-password-of-the-dashboard";

/// A server with accounts, and directories for clones.
pub struct AccountsFixture {
    pub server: Server,
    pub dir: TempDir,
    /// Errors that `accounts check` reports when the story ends. Almost all stories leave none.
    pub faults: Vec<&'static str>,
    /// True if parts without effect are left, as after an import. Lockkeeper warns of them, and for the reader of copies they
    /// break the rules.
    pub has_unusable: bool,
    _github: Emulator,
}

/// A clone of somebody.
pub struct Clone {
    pub dir: PathBuf,
}

impl AccountsFixture {
    pub async fn open() -> Self {
        Self::started(|_, settings| settings).await
    }

    /// Starts a server with a database of this kind.
    pub async fn on(backend: Backend) -> Self {
        match backend {
            Backend::Sqlite => Self::open().await,
            Backend::Postgres => {
                let url = postgres::new_database(Content::Migrated).await;
                Self::started(|_, settings| settings.database(url)).await
            }
        }
    }

    /// Starts a server with another database for reviewed flags.
    pub async fn with_flags_in(file: &Path) -> Self {
        let url = format!("sqlite:{}", file.display());
        let variable = "LOCKKEEPER_REVIEWED_FLAGS_URL";
        Self::started(|_, settings| settings.variable(variable, &url)).await
    }

    /// Starts a server whose pages let these users in (`--web-accounts-file`).
    pub async fn with_users(text: &str) -> Self {
        Self::started(|dir, settings| {
            let file = dir.join("users");
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            settings.flag(&format!("--web-accounts-file={}", file.display()))
        })
        .await
    }

    async fn started(with: impl FnOnce(&Path, Settings) -> Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let secret = Secret::new(WEBHOOK_SECRET);
        let options = Options::new(&dir.path().join("forge"), Arc::new(SystemClock), secret);
        let options = options.with_token(BOT, Secret::new(TOKEN));
        let github = Emulator::start(options).await.unwrap();
        let settings = Settings::default()
            .flag("--web-basic-auth=true")
            .flag("--web-username=ops")
            .variable(
                "LOCKKEEPER_WEB_PASSWORD",
                "a-long-password-of-the-dashboard",
            );
        let server = Server::start(&github, with(dir.path(), settings)).await;
        Self {
            server,
            dir,
            faults: Vec::new(),
            has_unusable: false,
            _github: github,
        }
    }

    /// Checks that the server, its tables and a copy of everything keep every rule, by three programs.
    pub fn assert_sound(&self) {
        let checked = self.accounts("check", &[]);
        let errors = checked.out.lines();
        let errors = errors.filter(|line| !line.contains(": warning: "));
        assert_eq!(errors.collect::<Vec<_>>(), self.faults, "{}", checked.err);
        let place = tempfile::tempdir().unwrap();
        let url = self.url(ADMIN);
        let clone = ["clone", "--quiet", "--mirror", &url, "copy.git"];
        let said = git(place.path(), &clone);
        assert_eq!(said.code, 0, "{}", said.err);
        let copy = place.path().join("copy.git");
        let fsck = git(&copy, &["fsck", "--strict", "--no-progress"]);
        assert_eq!(fsck.code, 0, "{}{}", fsck.out, fsck.err);
        let theirs = independent(&["check", copy.to_str().unwrap()]);
        let has_faults = !self.faults.is_empty();
        assert_eq!(checked.code, i32::from(has_faults), "{}", checked.err);
        let code = i32::from(has_faults || self.has_unusable);
        assert_eq!(theirs.code, code, "{}", theirs.out);
    }

    pub fn accounts(&self, command: &str, args: &[&str]) -> ProgramOutput {
        lockkeeper(&["accounts", command], &self.server.database(), args, &[])
    }

    /// Creates an account with an address and a password. Returns the number and the credentials.
    pub fn person(&self, name: &str) -> (String, String) {
        let email = format!("{name}@example.com");
        let created = self.accounts("create", &[name, "--email", &email]);
        assert_eq!(created.code, 0, "{}", created.err);
        let password = self.accounts("password", &[name]);
        assert_eq!(password.code, 0, "{}", password.err);
        let number = created.out.trim().to_owned();
        (number, format!("{name}:{}", password.out.trim()))
    }

    pub fn url(&self, credentials: &str) -> String {
        let host = self.server.url().trim_start_matches("http://");
        format!("http://{credentials}@{host}/All-Users")
    }

    /// Sends the beginning of a request, and waits until the server wants its body.
    pub async fn begin_late(
        &self,
        (method, path, content_type): (&str, &str, &str),
        credentials: &str,
        length: usize,
    ) -> BufReader<TcpStream> {
        let host = self.server.url().trim_start_matches("http://");
        let stream = TcpStream::connect(host).await.unwrap();
        let mut stream = BufReader::new(stream);
        let password = BASE64_STANDARD.encode(credentials);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {password}\r\n\
             Content-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\
             Expect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
        stream
    }

    /// Sends a request whose body comes late: `meanwhile` happens when the server waits for it. Returns the answer.
    pub async fn with_late_body(
        &self,
        request: (&str, &str, &str),
        credentials: &str,
        body: &[u8],
        meanwhile: impl FnOnce(),
    ) -> String {
        let stream = self.begin_late(request, credentials, body.len()).await;
        meanwhile();
        end_late(stream, body).await
    }

    /// Opens the database of the server as another server would.
    pub async fn store(&self) -> Store {
        let url = self.server.database();
        let ids = Arc::new(CountingIds::default());
        Store::open(&url, Arc::new(SystemClock), ids).await.unwrap()
    }

    /// Begins a request to the API of accounts.
    pub fn api(&self, method: Method, credentials: &str, path: &str) -> RequestBuilder {
        self.request(method, credentials, &format!("/api/accounts{path}"))
    }

    /// Begins a request of somebody.
    pub fn request(&self, method: Method, credentials: &str, path: &str) -> RequestBuilder {
        let host = self.server.url().trim_start_matches("http://");
        let url = format!("http://{credentials}@{host}{path}");
        reqwest::Client::new().request(method, url)
    }

    /// Clones what somebody may read, all refs.
    pub fn mirror(&self, credentials: &str, name: &str) -> PathBuf {
        let dir = self.dir.path().join(name);
        let said = git(
            self.dir.path(),
            &["clone", "--quiet", "--mirror", &self.url(credentials), name],
        );
        assert_eq!(said.code, 0, "{}", said.err);
        dir
    }

    /// Makes an empty repository of somebody with this address.
    pub fn empty(&self, name: &str, email: &str) -> Clone {
        let dir = self.dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let clone = Clone { dir };
        clone.git(&["init", "--quiet"]);
        clone.git(&["config", "user.name", email]);
        clone.git(&["config", "user.email", email]);
        clone
    }

    /// Clones the branch of somebody and checks it out.
    pub fn clone_of(&self, credentials: &str, name: &str) -> Clone {
        let dir = self.dir.path().join(name);
        let said = git(
            self.dir.path(),
            &["clone", "--quiet", &self.url(credentials), name],
        );
        assert_eq!(said.code, 0, "{}", said.err);
        let clone = Clone { dir };
        clone.git(&["config", "user.name", name]);
        clone.git(&["config", "user.email", &format!("{name}@example.com")]);
        clone.git(&["fetch", "--quiet", "origin", "refs/users/self"]);
        clone.git(&["checkout", "--quiet", "FETCH_HEAD"]);
        clone
    }
}

/// Checks each story at its end. A story that has failed already leaves anything behind.
impl Drop for AccountsFixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_sound();
        }
    }
}

/// Sends the body of a request that was begun. Returns the answer.
pub async fn end_late(mut stream: BufReader<TcpStream>, body: &[u8]) -> String {
    stream.write_all(body).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

impl Clone {
    pub fn git(&self, args: &[&str]) -> String {
        let said = git(&self.dir, args);
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        said.out
    }

    pub fn commit(&self, file: &str, text: &str) {
        std::fs::write(self.dir.join(file), text).unwrap();
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "Edit"]);
    }

    pub fn push(&self, args: &[&str]) -> ProgramOutput {
        git(&self.dir, &[&["push"], args].concat())
    }

    /// Makes a directory with as many entries, all of them the same directory.
    pub fn tree(&self, inner: &str, entries: usize) -> String {
        let lines = (0..entries).map(|n| format!("040000 tree {inner}\td{n:02}\n"));
        self.directory(&lines.collect::<String>())
    }

    /// Makes a directory with these entries, in lines as `git ls-tree` prints them. The objects need not be there.
    pub fn directory(&self, entries: &str) -> String {
        std::fs::write(self.dir.join(".git/listing"), entries).unwrap();
        let make = "alias.x=!git mktree --missing < .git/listing";
        self.git(&["-c", make, "x"]).trim().to_owned()
    }

    /// Returns the newest commit.
    pub fn tip(&self) -> String {
        self.git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Packs these objects, and no others that they lead to.
    pub fn pack(&self, objects: &[&str]) -> Vec<u8> {
        let listing = format!("{}\n", objects.join("\n"));
        std::fs::write(self.dir.join(".git/listing"), listing).unwrap();
        let pack = "alias.x=!git pack-objects -q .git/pushed < .git/listing";
        let hash = self.git(&["-c", pack, "x"]);
        let file = format!(".git/pushed-{}.pack", hash.trim());
        std::fs::read(self.dir.join(file)).unwrap()
    }

    /// Packs everything that the newest commit has and an older one has not.
    pub fn pack_since(&self, old: &str) -> Vec<u8> {
        let objects = self.git(&["rev-list", "--objects", "HEAD", &format!("^{old}")]);
        self.pack(&objects.lines().collect::<Vec<_>>())
    }

    /// Pushes, and returns what git says to the person, without the address of the server.
    pub fn refused(&self, args: &[&str]) -> String {
        let said = self.push(args);
        let pushed = || self.git(&["show", "HEAD"]);
        assert_ne!(said.code, 0, "the push was accepted: {}", pushed());
        words_of(&said)
    }
}

/// Returns what git said about a push, without the address of the server.
pub fn words_of(said: &ProgramOutput) -> String {
    let lines = said.err.lines().map(str::trim_end);
    let lines = lines
        .filter(|line| !line.starts_with("To http") && !line.starts_with("error: failed to push"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the id of an object in a repository.
pub fn object_id(repository: &Path, name: &str) -> String {
    let said = git(repository, &["rev-parse", name]);
    assert_eq!(said.code, 0, "{}", said.err);
    said.out.trim().to_owned()
}

#[expect(clippy::disallowed_methods, reason = "git is run as people run it")]
pub fn git(dir: &Path, args: &[&str]) -> ProgramOutput {
    let output = Command::new(on_path("git"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    ProgramOutput {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

pub const WATCH: &str =
    "[project \"github.com/acme/infra\"]\n\tnotify = branch:main [ALL_COMMENTS]\n";
