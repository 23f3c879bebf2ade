//! The real program with a registry, over TLS and under its real name, and directories of people with real clients.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use lockkeeper::clock::{RandomIds, SystemClock};
use lockkeeper::emulator::{Emulator, Options};
use lockkeeper::secret::Secret;
use lockkeeper::store::Store;
use tempfile::TempDir;

use super::tunnel::Tunnel;
use super::world::{HOST, RegistryAdmin, write_keys};
use crate::support::program::ProgramOutput;
use crate::support::server::{BOT, Server, Settings, TOKEN, WEBHOOK_SECRET, find_terraform};

/// Certificate of the authority of the tests, for clients.
pub const AUTHORITY: &str = include_str!("../support/tls/ca.cert.pem");
/// Certificate of the registry, and its key.
pub const CERTIFICATE: &str = include_str!("../support/tls/mods.cert.pem");
pub const KEY: &str = include_str!("../support/tls/mods.key.pem");

/// A running server with a registry.
pub struct Site {
    pub server: Server,
    pub admin: RegistryAdmin,
    tunnel: Tunnel,
    dir: TempDir,
    _github: Emulator,
}

impl Site {
    /// Starts a server with further flags.
    pub async fn open(flags: &[&str]) -> Self {
        Self::open_with(flags, &[]).await
    }

    /// Starts a server with further flags and environment variables.
    pub async fn open_with(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (name, text) in [
            ("ca.pem", AUTHORITY),
            ("cert.pem", CERTIFICATE),
            ("key.pem", KEY),
        ] {
            std::fs::write(path(name), text).unwrap();
        }
        write_keys(&path("keys"));
        let secret = Secret::new(WEBHOOK_SECRET);
        let options = Options::new(&path("forge"), Arc::new(SystemClock), secret);
        let options = options.with_token(BOT, Secret::new(TOKEN));
        let github = Emulator::start(options).await.unwrap();
        let file = |flag: &str, name: &str| format!("--{flag}={}", path(name).display());
        let settings = Settings::default()
            .flag("--registry")
            .flag(&format!("--registry-name={HOST}"))
            .flag(&format!("--web-hosts={HOST}"))
            .flag(&file("encryption-key-file", "keys"))
            .flag(&file("ssl-cert-file", "cert.pem"))
            .flag(&file("ssl-key-file", "key.pem"));
        let settings = flags
            .iter()
            .fold(settings, |settings, flag| settings.flag(flag));
        let settings = variables.iter().fold(settings, |settings, (name, value)| {
            settings.variable(name, value)
        });
        let server = Server::start(&github, settings).await;
        let packages = server.data_dir().join("registry");
        let (clock, ids) = (Arc::new(SystemClock), Arc::new(RandomIds));
        let store = Store::open(&server.database(), clock, ids).await.unwrap();
        let admin = RegistryAdmin::with(store, path("keys"), packages).await;
        Self {
            tunnel: Tunnel::to(address(&server)).await,
            admin,
            server,
            dir,
            _github: github,
        }
    }

    /// Restarts the server on the same data, at another port.
    pub async fn restart(&mut self) {
        self.server.restart().await;
        self.tunnel = Tunnel::to(address(&self.server)).await;
    }

    /// Returns the address of the proxy by which people reach the server.
    pub fn proxy(&self) -> String {
        self.tunnel.url()
    }

    /// Creates the directory of a person, with these files.
    pub fn person(&self, name: &str, files: &[(&str, &str)]) -> Person {
        let dir = self.dir.path().join(name);
        for (path, text) in files {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let person = Person::new(dir, &self.tunnel.url(), &self.dir.path().join("ca.pem"));
        person.with("GOSUMDB", &self.admin.registry.verifier().to_string())
    }
}

fn address(server: &Server) -> SocketAddr {
    let address = server.url().strip_prefix("http://").unwrap();
    address.parse().unwrap()
}

/// A person with `terraform` and `go`.
#[derive(Clone)]
pub struct Person {
    pub dir: PathBuf,
    variables: Vec<(String, String)>,
    /// Program that runs as `terraform`, if it is not the usual one.
    terraform: Option<PathBuf>,
}

impl Person {
    /// Creates a person who works in a directory, reaches hosts through a proxy, and trusts the authority in a file.
    pub fn new(dir: PathBuf, proxy: &str, authority: &Path) -> Self {
        let authority = authority.display().to_string();
        let variables = vec![
            ("HTTPS_PROXY".to_owned(), proxy.to_owned()),
            ("SSL_CERT_FILE".to_owned(), authority),
        ];
        Self {
            dir,
            variables,
            terraform: None,
        }
    }

    /// Uses another program as `terraform`.
    #[must_use]
    pub fn using(self, program: &Path) -> Self {
        Self {
            terraform: Some(program.to_owned()),
            ..self
        }
    }

    /// Sets a variable for all programs.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn write(&self, path: &str, text: &str) {
        std::fs::write(self.dir.join(path), text).unwrap();
    }

    /// Runs `terraform` in the directory of the configuration, with the settings of this site.
    pub fn terraform(&self, args: &[&str]) -> ProgramOutput {
        let program = self.terraform.clone().unwrap_or_else(find_terraform);
        let usual = [
            ("TF_CLI_CONFIG_FILE", "/dev/null"),
            ("CHECKPOINT_DISABLE", "1"),
            ("TF_IN_AUTOMATION", "1"),
        ];
        self.run(&program, args, &usual)
    }

    /// Runs `terraform init` without anything that an earlier one has left.
    pub fn terraform_init(&self) -> ProgramOutput {
        std::fs::remove_dir_all(self.dir.join(".terraform")).ok();
        self.terraform(&["init", "-no-color", "-input=false"])
    }

    /// Runs `go` with the modules of the person. All persons share what was compiled, because Go's own library takes long.
    pub fn go(&self, args: &[&str]) -> ProgramOutput {
        let path = self.dir.join("gopath").display().to_string();
        let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/go-build");
        let usual = [
            ("GOPROXY", "https://mods.example.com/registry/go"),
            ("GOFLAGS", "-mod=mod -modcacherw"),
            ("GOTOOLCHAIN", "local"),
            ("GOENV", "off"),
            ("GOPATH", path.as_str()),
            ("GOCACHE", cache),
        ];
        self.run(&find_go(), args, &usual)
    }

    /// Runs the command line of Lockkeeper as the person does.
    pub fn lockkeeper(&self, args: &[&str]) -> ProgramOutput {
        self.run(Path::new(env!("CARGO_BIN_EXE_lockkeeper")), args, &[])
    }

    /// Forgets everything that `go` has downloaded, but not the head of the log that it has seen.
    pub fn forget_modules(&self) {
        std::fs::remove_dir_all(self.dir.join("gopath/pkg/mod")).ok();
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "clients are run as people run them"
    )]
    fn run(&self, program: &Path, args: &[&str], usual: &[(&str, &str)]) -> ProgramOutput {
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.dir).env_clear();
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.dir)
            .envs(usual.iter().copied());
        let variables = self.variables.iter();
        command.envs(variables.map(|(name, value)| (name, value)));
        let output = tokio::task::block_in_place(|| command.output()).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        ProgramOutput {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// Finds Go on `PATH`, or where `make setup` installs it.
pub fn find_go() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = PathBuf::from("/usr/local/go/bin");
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin");
    let folders = std::env::split_paths(&path).chain([usual, tools]);
    let mut programs = folders.map(|folder| folder.join("go"));
    programs
        .find(|program| program.is_file())
        .expect("no `go` was found: run `make setup`")
}
