//! Defines the sandbox around runs: the paths that the programs of a run may use, and limits of memory and processes.
//!
//! A run executes code of a pull request. It reads the system, tools, certificates and packages of providers, and
//! owns its checkout, its scratch directory and a temporary directory of its own. The data directory, mirrors, other
//! checkouts, tokens and keys are outside. The administrator adds paths with `--sandbox-read` and `--sandbox-write`.
//! Commands of the administrator (hooks, custom steps) may also read the mirror of their own repository, because
//! tools such as Terragrunt ask git where the repository begins.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::model::RunUser;
use crate::process::{Mechanism, ReachedLimit, RunLimits, Sandbox};

use super::environment::GIT_CONFIG;
use super::{ChildEnvironment, file_owner};

/// Paths that most programs read: executables, libraries, time zones, certificates, names of hosts and users.
/// Directories that usually hold secrets (`/etc` as a whole, `/home`, `/root`, `/run`, `/var`, `/opt`, `/srv`) are
/// excluded.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    // For programs in the sandbox, the kernel hides environment, memory and open files of other processes.
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/alpine-release",
    "/etc/redhat-release",
    "/etc/os-release",
    "/etc/default/locale",
    "/etc/gai.conf",
    // Without this file git fails, and so do modules that are fetched with git.
    "/etc/gitattributes",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/krb5.conf",
    "/etc/krb5.conf.d",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/networks",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/profile",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssh/ssh_config",
    "/etc/ssh/ssh_config.d",
    "/etc/ssh/ssh_known_hosts",
    "/etc/ssl",
    "/etc/terminfo",
    "/etc/timezone",
];

/// Configuration of Terraform and OpenTofu in the home directory. Its content is meant for runs.
const OF_HOME: &[&str] = &[
    ".terraformrc",
    ".tofurc",
    ".terraform.d",
    ".config/opentofu",
];

/// Variables with paths as values. By passing such a variable, the administrator also grants access to its paths.
/// Some are lists.
const PATH_VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "TF_CLI_CONFIG_FILE",
    "TERRAFORM_CONFIG",
    "TF_PLUGIN_CACHE_DIR",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CREDENTIALS",
    "GOOGLE_BACKEND_CREDENTIALS",
    "ARM_CLIENT_CERTIFICATE_PATH",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    GIT_CONFIG,
    "KUBECONFIG",
    "KUBE_CONFIG_PATH",
    "KUBE_CONFIG_PATHS",
];

/// Variables that name a token file. Such a file is replaced from time to time by a new file in the same directory.
const TOKEN_VARIABLES: &[&str] = &[
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "ARM_OIDC_TOKEN_FILE_PATH",
    "AZURE_FEDERATED_TOKEN_FILE",
];

/// Sandbox around all runs of a server.
#[derive(Clone, Debug)]
pub struct RunSandbox {
    /// Mechanism of the sandbox. `None` means no sandbox: programs have all rights of the server.
    mechanism: Option<Mechanism>,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    limits: RunLimits,
    /// User that runs execute as, and the data directory, which contains all that runs use; `None` for the user of
    /// the server.
    user: Option<(RunUser, PathBuf)>,
}

/// Directories of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPlace<'a> {
    /// Root of the checkout.
    pub root: &'a Path,
    /// Mirror of the repository.
    pub mirror: &'a Path,
    /// Files of the run.
    pub scratch: &'a Path,
    /// Temporary directory of the run.
    pub tmp: &'a Path,
    /// Directory with the configuration of the tools, which runs only read; `None` if the server writes none.
    pub config: Option<&'a Path>,
    /// Directory with the plan file, which runs only read; `None` while it is made.
    pub plan: Option<&'a Path>,
}

impl RunSandbox {
    /// Creates a value without sandbox and limits.
    pub fn none() -> Self {
        Self {
            mechanism: None,
            read: Vec::new(),
            write: Vec::new(),
            limits: RunLimits::default(),
            user: None,
        }
    }

    /// Creates a sandbox with `mechanism` for programs that get `environment`.
    pub fn new(
        mechanism: Option<Mechanism>,
        environment: &ChildEnvironment,
        limits: RunLimits,
    ) -> Self {
        let read = SYSTEM
            .iter()
            .map(PathBuf::from)
            .chain(named_by(environment))
            .collect();
        Self {
            mechanism,
            read,
            write: Vec::new(),
            limits,
            user: None,
        }
    }

    /// Sets the user that runs execute as, if it is not the user of the server.
    #[must_use]
    pub fn of_user(self, user: Option<RunUser>, data_dir: &Path) -> Self {
        Self {
            user: user.map(|user| (user, data_dir.to_owned())),
            ..self
        }
    }

    /// Returns the user that runs execute as; `None` for the user of the server.
    pub fn user(&self) -> Option<RunUser> {
        self.user.as_ref().map(|(user, _)| *user)
    }

    /// Makes the user of runs the owner of the directories of a run, and lets this user reach the downloaded
    /// programs.
    pub(super) async fn hand_over(&self, place: RunPlace<'_>) -> io::Result<()> {
        let Some((user, top)) = self.user.clone() else {
            return Ok(());
        };
        let own = [place.root, place.scratch, place.tmp].map(Path::to_owned);
        let handing_over = move || {
            let programs = top.join("bin");
            if programs.is_dir() {
                file_owner::allow_search(&top, &programs.join("any"), user)?;
            }
            own.iter()
                .try_for_each(|dir| file_owner::change_owner(&top, dir, user))
        };
        tokio::task::spawn_blocking(handing_over)
            .await
            .map_err(io::Error::other)?
    }

    /// Lets every run read additional paths.
    #[must_use]
    pub fn reads(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.read.extend(paths);
        self
    }

    /// Lets every run change additional paths.
    #[must_use]
    pub fn writes(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.write.extend(paths);
        self
    }

    /// Returns the mechanism of the sandbox; `None` if there is no sandbox.
    pub fn mechanism(&self) -> Option<&Mechanism> {
        self.mechanism.as_ref()
    }

    /// Returns the file that git has to read in place of the files of its user. Git fails if one of those exists and
    /// cannot be read. The result is the file that the administrator lets runs read, or an empty one. Returns `None`
    /// if git may read the files of its user, or if the administrator has named a file.
    pub(super) fn git_config(&self, environment: &ChildEnvironment) -> Option<PathBuf> {
        let sandbox = self.common()?;
        if environment.get(GIT_CONFIG).is_some() {
            return None;
        }
        let home = environment.get("HOME").map(PathBuf::from)?;
        let xdg = environment
            .get("XDG_CONFIG_HOME")
            .map_or_else(|| home.join(".config"), PathBuf::from);
        let of_user = [xdg.join("git/config"), home.join(".gitconfig")];
        let (readable, other): (Vec<_>, Vec<_>) =
            of_user.into_iter().partition(|file| sandbox.covers(file));
        if other.is_empty() {
            return None;
        }
        Some(
            readable
                .into_iter()
                .next_back()
                .unwrap_or_else(|| PathBuf::from("/dev/null")),
        )
    }

    /// Returns the limits of each run.
    pub fn limits(&self) -> RunLimits {
        self.limits
    }

    /// Returns the limit that a failed program has probably reached, with the name of its setting.
    pub(super) fn reached(&self, signal: Option<i32>, output: &str) -> Option<String> {
        let limits = self.limits;
        let whose = if self.user.is_some() {
            "the user of runs"
        } else {
            "the user of the server"
        };
        Some(match limits.reached(signal, output)? {
            ReachedLimit::Memory => {
                let most = crate::config::size::shown(limits.memory?);
                format!("a run may have {most} of memory (`--run-memory`)")
            }
            ReachedLimit::Processes => {
                format!(
                    "a run and {whose} may each have {} processes and threads (`--run-processes`)",
                    limits.processes?
                )
            }
            ReachedLimit::FileSize => {
                let most = crate::config::size::shown(limits.file_size?);
                format!("a file may be {most} long (`--run-file-size`)")
            }
            ReachedLimit::Disk => {
                let most = crate::config::size::shown(limits.disk?);
                format!(
                    "the checkout and the temporary files of a run may take {most} of disk space (`--run-disk`)"
                )
            }
            ReachedLimit::Cpu => {
                format!(
                    "a run may use {} s of processor time (`--run-cpu-time`)",
                    limits.cpu?.as_secs()
                )
            }
        })
    }

    /// Returns the sandbox without the paths of a single run; `None` if there is no sandbox.
    pub fn common(&self) -> Option<Sandbox> {
        let mechanism = self.mechanism.clone()?;
        Some(
            Sandbox::new(mechanism)
                .reads(self.read.iter().cloned())
                .writes(self.write.iter().cloned()),
        )
    }

    /// Returns the sandbox for the tool of a run.
    pub(super) fn of_tool(&self, place: RunPlace<'_>, program: &Path) -> Option<Sandbox> {
        let own = [place.root, place.scratch, place.tmp].map(Path::to_owned);
        // The program may be a link to the real executable.
        let program = program
            .canonicalize()
            .unwrap_or_else(|_| program.to_owned());
        let read = [program].into_iter().chain(
            [place.config, place.plan]
                .into_iter()
                .flatten()
                .map(Path::to_owned),
        );
        Some(self.common()?.reads(read).writes(own))
    }

    /// Returns the sandbox for a command of the administrator.
    pub(super) fn of_command(&self, place: RunPlace<'_>, program: &Path) -> Option<Sandbox> {
        Some(
            self.of_tool(place, program)?
                .reads([place.mirror.to_owned()]),
        )
    }
}

/// Lists the paths that the environment names: programs, the configuration of the tools, certificates and
/// credentials.
fn named_by(environment: &ChildEnvironment) -> Vec<PathBuf> {
    let paths = |name: &str| -> Vec<PathBuf> {
        let value = environment.get(name).cloned().unwrap_or_default();
        std::env::split_paths(&value)
            .filter(|path| path.is_absolute())
            .collect()
    };
    let mut named = paths("PATH");
    named.extend(
        paths("HOME")
            .iter()
            .flat_map(|home| OF_HOME.iter().map(|name| home.join(name))),
    );
    named.extend(PATH_VARIABLES.iter().flat_map(|name| paths(name)));
    let tokens = TOKEN_VARIABLES.iter().flat_map(|name| paths(name));
    named.extend(tokens.filter_map(|token| token.parent().map(Path::to_owned)));
    named.retain(|path| path != Path::new("/"));
    named
}

/// Returns the variables that name the temporary directory of a run.
pub(super) fn temporary(tmp: &Path) -> [(&'static str, OsString); 3] {
    ["TMPDIR", "TMP", "TEMP"].map(|name| (name, tmp.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_environment_names_may_be_read_and_nothing_beside_it() {
        let environment = ChildEnvironment::from_iter(
            [
                ("PATH", "/opt/tools/bin:relative:/usr/bin"),
                ("HOME", "/home/us"),
                ("AWS_CONFIG_FILE", "/srv/aws/config"),
                ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks/token"),
                ("GOOGLE_CREDENTIALS", r#"{"type":"service_account"}"#),
                ("AWS_SECRET_ACCESS_KEY", "/not/a/path/variable"),
                ("SSL_CERT_DIR", "/"),
            ]
            .map(|(name, value)| (name.into(), value.into())),
        );
        let sandbox = RunSandbox::new(
            Some(Mechanism::Landlock),
            &environment,
            RunLimits::default(),
        )
        .common()
        .unwrap();
        for path in [
            "/opt/tools/bin/terraform",
            "/home/us/.terraformrc",
            "/home/us/.terraform.d/x",
            "/srv/aws/config",
            "/var/run/secrets/eks/token.new",
            "/usr/share/zoneinfo",
            "/etc/ssl/certs/ca.pem",
        ] {
            assert!(sandbox.covers(Path::new(path)), "{path}");
        }
        for path in [
            "/",
            "/opt/tools/secret",
            "/home/us/.aws/credentials",
            "/srv/aws/other",
            "/etc/lockkeeper/token",
            "/etc/shadow",
            "/not/a/path/variable",
            "/var/lib/lockkeeper/lockkeeper.db",
        ] {
            assert!(!sandbox.covers(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn git_reads_of_its_user_what_runs_may_read() {
        let environment = |pairs: &[(&str, &str)]| -> ChildEnvironment {
            pairs
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect()
        };
        let home = environment(&[("HOME", "/home/us")]);
        let xdg = environment(&[("HOME", "/home/us"), ("XDG_CONFIG_HOME", "/srv/config")]);
        let own = environment(&[
            ("HOME", "/home/us"),
            ("GIT_CONFIG_GLOBAL", "/srv/gitconfig"),
        ]);
        let both = ["/home/us/.gitconfig", "/home/us/.config/git/config"];
        for (environment, named, expected) in [
            (&home, &[] as &[&str], Some("/dev/null")),
            (&home, &both[..1], Some("/home/us/.gitconfig")),
            (&home, &both[1..], Some("/home/us/.config/git/config")),
            (&home, &both, None),
            (&home, &["/home/us"], None),
            (&xdg, &["/srv/config/git"], Some("/srv/config/git/config")),
            (&own, &[], None),
        ] {
            let sandbox =
                RunSandbox::new(Some(Mechanism::Landlock), environment, RunLimits::default());
            let sandbox = sandbox.reads(named.iter().map(PathBuf::from));
            assert_eq!(
                sandbox.git_config(environment),
                expected.map(PathBuf::from),
                "{environment:?} {named:?}"
            );
            assert_eq!(RunSandbox::none().git_config(environment), None);
        }
    }

    #[test]
    fn a_run_has_its_own_places_and_only_commands_have_the_mirror() {
        let sandbox = RunSandbox::new(
            Some(Mechanism::Landlock),
            &ChildEnvironment::default(),
            RunLimits::default(),
        );
        let place = RunPlace {
            root: Path::new("/data/checkouts/1"),
            mirror: Path::new("/data/mirrors/infra.git"),
            scratch: Path::new("/data/tmp/run-1"),
            tmp: Path::new("/data/tmp/run-1/tmp"),
            config: Some(Path::new("/data/tmp/registry-1")),
            plan: Some(Path::new("/data/tmp/plan-1")),
        };
        let (tool, command) = (
            sandbox.of_tool(place, Path::new("/x/terraform")),
            sandbox.of_command(place, Path::new("/bin/sh")),
        );
        let (tool, command) = (tool.unwrap(), command.unwrap());
        for (path, by_tool, by_command) in [
            ("/data/checkouts/1/main.tf", true, true),
            ("/data/checkouts/2/main.tf", false, false),
            ("/data/mirrors/infra.git/HEAD", false, true),
            ("/data/mirrors/crown.git/HEAD", false, false),
            ("/data/lockkeeper.db", false, false),
            ("/data/tmp/run-2", false, false),
            ("/data/tmp/registry-1/cli.tfrc", true, true),
            ("/data/tmp/registry-2/cli.tfrc", false, false),
        ] {
            assert_eq!(
                (
                    tool.covers(Path::new(path)),
                    command.covers(Path::new(path))
                ),
                (by_tool, by_command),
                "{path}"
            );
        }
        assert_eq!(RunSandbox::none().of_tool(place, Path::new("/x")), None);
    }
}
