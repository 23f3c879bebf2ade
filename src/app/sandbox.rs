//! Chooses the boundaries between runs and the server, and logs them at the start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tracing::{info, warn};

use super::ServiceInputs;
use super::build::scratch;
use crate::config::server::{
    Database, OwnPath, PlanFiles, SandboxConfig, SandboxKind, ServerConfig,
};
use crate::model::RunUser;
use crate::process::{
    Cmd, DiskSpace, Kernel, Mechanism, RunLimits, Sandbox, is_own_user, is_within, missing_rights,
};
use crate::workflow::{ChildEnvironment, RunSandbox, StageSetup};

/// Boundaries between runs and the server.
pub(super) struct Boundaries<'a> {
    config: &'a ServerConfig,
    variables: &'a BTreeMap<String, String>,
    tools: &'a [PathBuf],
    mechanism: Option<Mechanism>,
    has_landlock: bool,
}

impl<'a> Boundaries<'a> {
    /// Chooses the boundaries from the configuration and the abilities of this machine. `environment` is common to
    /// all runs and has the search path of programs.
    pub(super) async fn detect(
        config: &'a ServerConfig,
        parts: &'a ServiceInputs,
        (environment, tools): (&ChildEnvironment, &'a [PathBuf]),
    ) -> anyhow::Result<Self> {
        let kernel = Kernel::detect();
        let mechanism = mechanism(config.sandbox.kind, kernel, environment).await?;
        if let Some(user) = config.sandbox.run_as {
            check_user(user)?;
            if kernel.is_none() && matches!(mechanism, Some(Mechanism::Bubblewrap(_))) {
                bail!(
                    "--run-as with --sandbox bubblewrap needs a kernel with Landlock. Without it, git would run in \
                     namespaces too, where it has no rights to the files of another user. Use another kernel, or \
                     remove --run-as"
                );
            }
            info!(
                user = user.uid,
                group = user.gid,
                "Runs use another user than the server"
            );
        }
        Ok(Self {
            config,
            variables: &parts.environment,
            tools,
            mechanism,
            has_landlock: kernel.is_some(),
        })
    }

    /// Builds the setup of runs with this `environment`. Fails if they could read a secret of the server.
    pub(super) fn setup(&self, environment: ChildEnvironment) -> anyhow::Result<StageSetup> {
        let config = self.config;
        let sandbox = RunSandbox::new(self.mechanism.clone(), &environment, limits(config))
            .reads(self.tools.iter().cloned())
            .reads([config.storage.data_dir.join("plugin-cache")])
            .reads(config.sandbox.read.iter().cloned())
            .writes(config.sandbox.write.iter().cloned())
            .of_user(config.sandbox.run_as, &config.storage.data_dir);
        if let Some(sandbox) = sandbox.common() {
            check(config, &sandbox, &secrets(config, self.variables))?;
        }
        Ok(StageSetup::new(environment, sandbox))
    }

    /// Builds the boundary around git, which reads content that other people pushed. It is Landlock if the kernel has
    /// it, because git is started more often than anything else. Otherwise it is the boundary of runs. Returns `None`
    /// if runs have no boundary either.
    pub(super) fn of_git(&self, environment: &ChildEnvironment, dirs: &[&str]) -> Option<Sandbox> {
        let data_dir = &self.config.storage.data_dir;
        let own = dirs
            .iter()
            .map(|name| data_dir.join(name))
            .chain([scratch(data_dir)]);
        let runs = self.mechanism.clone()?;
        let mechanism = if self.has_landlock {
            Mechanism::Landlock
        } else {
            runs
        };
        let sandbox = RunSandbox::new(Some(mechanism), environment, RunLimits::default())
            .common()?
            .writes(own);
        Some(if self.config.sandbox.run_as.is_some() {
            sandbox.keeps_rights_over_files()
        } else {
            sandbox
        })
    }
}

/// Logs the configuration files that git does not read in runs, because modules from git may need them.
pub(super) fn log_ignored_git_config(plans: &StageSetup) {
    let Some((sandbox, home)) = plans.sandbox.common().zip(plans.environment.get("HOME")) else {
        return;
    };
    for file in [".gitconfig", ".config/git/config"].map(|name| Path::new(home).join(name)) {
        if file.exists() && !sandbox.covers(&file) {
            let file = file.display();
            info!(
                "Git in runs does not read {file}. Add it to --sandbox-read if modules from git need it"
            );
        }
    }
}

/// Checks that the server does not have that user itself, and that it has the rights to change to it.
fn check_user(user: RunUser) -> anyhow::Result<()> {
    if is_own_user(user) {
        bail!(
            "cannot use --run-as {user}: the server itself runs as that user, so runs could read its files. Use a \
             user that no other program has"
        );
    }
    let missing = missing_rights().context("cannot determine the rights of the server")?;
    if !missing.is_empty() {
        bail!(
            "cannot use --run-as {user}: the server lacks {}. Start it as root, or with these as ambient capabilities \
             (AmbientCapabilities= of systemd)",
            missing.join(", ")
        );
    }
    Ok(())
}

async fn mechanism(
    kind: SandboxKind,
    kernel: Option<Kernel>,
    environment: &ChildEnvironment,
) -> anyhow::Result<Option<Mechanism>> {
    match (kind, kernel) {
        (SandboxKind::None, _) => {
            warn!(
                "Runs are not isolated from the server (--sandbox none): code of a pull request can read the tokens \
                 and keys of the server, act as the server, and change other repositories"
            );
            Ok(None)
        }
        (SandboxKind::Landlock | SandboxKind::Require, Some(kernel)) => {
            let gaps = kernel.gaps();
            info!(abi = kernel.abi(), "Landlock isolates runs from the server");
            if !gaps.is_empty() {
                warn!(
                    "The kernel is too old to prevent runs from {}",
                    gaps.join("; ")
                );
            }
            Ok(Some(Mechanism::Landlock))
        }
        (SandboxKind::Landlock, None) => {
            warn!(
                "Runs are not isolated from the server: this kernel has no Landlock, or it is not enabled (Linux 5.19 \
                 or newer, `landlock` in the list of `lsm=`). Code of a pull request can read the server's tokens and \
                 keys. Use another kernel, --sandbox bubblewrap, or --sandbox none to accept this"
            );
            Ok(None)
        }
        (SandboxKind::Require, None) => bail!(
            "--sandbox require: this kernel has no Landlock, or it is not enabled, so runs cannot be isolated from \
             the server. Use Linux 5.19 or newer with `landlock` in the list of `lsm=`, or --sandbox bubblewrap"
        ),
        (SandboxKind::Bubblewrap, _) => {
            let program = bubblewrap(environment)
                .await
                .context("cannot use --sandbox bubblewrap")?;
            info!(program = %program.display(), "bubblewrap isolates runs from the server");
            let gaps = Kernel::gaps_of_namespaces(kernel);
            if !gaps.is_empty() {
                warn!("Namespaces do not prevent runs from {}", gaps.join("; "));
            }
            Ok(Some(Mechanism::Bubblewrap(program)))
        }
    }
}

/// Finds `bwrap` and tries it once, because the machine decides whether it may make namespaces.
async fn bubblewrap(environment: &ChildEnvironment) -> anyhow::Result<PathBuf> {
    let path = environment.path();
    let mut candidates = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("bwrap"));
    let program = candidates.find(|path| path.is_file()).context(
        "the program `bwrap` is not on the PATH. Install it (the package is called bubblewrap)",
    )?;
    let sandbox = RunSandbox::new(
        Some(Mechanism::Bubblewrap(program.clone())),
        environment,
        RunLimits::default(),
    );
    let tried = Cmd::new("true")
        .env("PATH", path)
        .sandbox(sandbox.common())
        .output()
        .await?;
    if !tried.is_success() {
        bail!(
            "`{}` cannot create namespaces here ({}). Allow users to create user namespaces (in containers also new \
             mounts of /proc), or use --sandbox landlock",
            program.display(),
            tried.stderr.text().trim()
        );
    }
    Ok(program)
}

fn limits(config: &ServerConfig) -> RunLimits {
    let sandbox = &config.sandbox;
    let memory = sandbox
        .memory
        .map(crate::config::size::ByteSize::bytes)
        .or_else(three_quarters_of_memory);
    let disk = sandbox
        .disk
        .map(crate::config::size::ByteSize::bytes)
        .or_else(|| half_of_disk(&config.storage.data_dir));
    RunLimits {
        memory,
        processes: sandbox.processes,
        file_size: Some(sandbox.file_size.bytes()),
        disk,
        cpu: Some(sandbox.cpu),
    }
}

/// Returns three quarters of the memory of the machine. `None` if the kernel does not report it.
fn three_quarters_of_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024 / 4 * 3)
}

/// Returns half of the file system of the data directory, which may not exist yet. `None` if the system does not report it.
fn half_of_disk(data_dir: &Path) -> Option<u64> {
    let existing = data_dir.ancestors().find(|dir| dir.is_dir())?;
    let half = DiskSpace::of(existing).ok()?.total / 2;
    (half > 0).then_some(half)
}

/// Folders in the data directory whose files every run may read.
const SHARED: [&str; 2] = ["bin", "plugin-cache"];

/// Suffixes of the files that SQLite keeps beside the file of a database.
const BESIDE_SQLITE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Lists files and directories that no run may read.
fn secrets(config: &ServerConfig, variables: &BTreeMap<String, String>) -> Vec<OwnPath> {
    let storage = &config.storage;
    let own = |path: PathBuf, what: &str| OwnPath {
        path,
        what: what.to_owned(),
    };
    let mut secrets = config.sandbox.secret.clone();
    if let PlanFiles::Directory(path) = &storage.plan_files {
        secrets.push(own(path.clone(), "the plan files (--share-plan-dir)"));
    }
    let mut databases = vec![(&storage.database, "--database-url")];
    let flags = config.accounts.reviewed_flags.iter();
    databases.extend(flags.map(|database| (database, "--reviewed-flags-url")));
    for (database, flag) in databases {
        match database {
            Database::Sqlite(path) => {
                let beside = |end| {
                    let mut name = path.clone().into_os_string();
                    name.push(end);
                    PathBuf::from(name)
                };
                let all = std::iter::once(path.clone()).chain(BESIDE_SQLITE.map(beside));
                secrets.extend(all.map(|path| own(path, &format!("the database ({flag})"))));
            }
            Database::Postgres(url) => {
                let files = postgres_files(url.expose(), variables).into_iter();
                let what = format!("the password or key for the database ({flag})");
                secrets.extend(files.map(|path| own(path, &what)));
            }
        }
    }
    secrets
}

/// Lists files with secrets that the driver of PostgreSQL reads automatically.
fn postgres_files(url: &str, variables: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let of_url = url::Url::parse(url).ok();
    let keys = of_url
        .iter()
        .flat_map(url::Url::query_pairs)
        .filter(|(name, _)| name == "sslkey" || name == "ssl-key");
    let keys = keys.map(|(_, file)| PathBuf::from(&*file));
    let named = ["PGSSLKEY", "PGPASSFILE"]
        .iter()
        .filter_map(|name| variables.get(*name))
        .map(PathBuf::from);
    let of_home = variables
        .get("HOME")
        .map(|home| Path::new(home).join(".pgpass"));
    keys.chain(named)
        .chain(of_home)
        .filter(|path| path.is_absolute())
        .collect()
}

/// Refuses settings with which runs could read a secret of the server or change a file that it relies on.
fn check(config: &ServerConfig, sandbox: &Sandbox, secrets: &[OwnPath]) -> anyhow::Result<()> {
    let SandboxConfig {
        read, write, fixed, ..
    } = &config.sandbox;
    for OwnPath { path, what } in secrets {
        if let Some(allowed) = sandbox.covering(path) {
            bail!(
                "runs could read {what}: `{}` is in `{}`, which they may use ({}). Move one of the two, or allow a \
                 smaller directory",
                path.display(),
                allowed.display(),
                reason(&config.sandbox, allowed)
            );
        }
    }
    let data_dir = &config.storage.data_dir;
    let is_shared = |path: &Path| {
        SHARED
            .iter()
            .any(|name| is_within(path, &data_dir.join(name)))
    };
    for (flag, path) in flagged("sandbox-read", read).chain(flagged("sandbox-write", write)) {
        let is_fine = flag == "sandbox-read" && is_shared(path);
        if let Some(OwnPath { path: own, what }) = secrets
            .iter()
            .find(|own| !is_fine && is_within(path, &own.path))
        {
            bail!(
                "--{flag} contains `{}`, which is in {what}, `{}`. That directory belongs to the server and to other \
                 runs. Use a directory outside of it",
                path.display(),
                own.display()
            );
        }
    }
    for allowed in write {
        let is_touched =
            |own: &&OwnPath| is_within(&own.path, allowed) || is_within(allowed, &own.path);
        if let Some(OwnPath { path, what }) = fixed.iter().find(is_touched) {
            bail!(
                "--sandbox-write would allow runs to change {what}: `{}` is in `{}`. Move one of the two, or allow a \
                 smaller directory",
                path.display(),
                allowed.display()
            );
        }
    }
    Ok(())
}

fn flagged<'a>(
    flag: &'static str,
    paths: &'a [PathBuf],
) -> impl Iterator<Item = (&'static str, &'a PathBuf)> {
    paths.iter().map(move |path| (flag, path))
}

/// Returns the setting that lets runs use a path.
fn reason(config: &SandboxConfig, allowed: &Path) -> &'static str {
    let names = |paths: &[PathBuf]| paths.iter().any(|path| path == allowed);
    if names(&config.read) {
        "--sandbox-read"
    } else if names(&config.write) {
        "--sandbox-write"
    } else {
        "by PATH or another variable, --tf-bin-dir, or always: docs/security.md has the list"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::{RawSettings, secret_files_of_hosts};
    use crate::secret::Secret;

    const HOSTS: &str = "\
hosts:
  - host: github.example.com
    user: bot
    token_file: /etc/ghe/token
    webhook_secret_file: /etc/ghe/webhook
  - host: code.example.com
    app: {id: 7, key_file: /etc/code/key.pem}
    webhook_secret_file: /etc/ghe/webhook
";

    const FLAGS: [(&str, &str); 16] = [
        ("repo-allowlist", "github.com/acme/*"),
        ("gh-user", "bot"),
        ("gh-token-file", "/etc/lk/token"),
        ("gh-webhook-secret", "the-old-webhook-secret"),
        ("data-dir", "/srv/lk"),
        ("database-url", "sqlite:/srv/db/lk.db"),
        ("reviewed-flags-url", "sqlite:/srv/flags/f.db"),
        ("share-plan-dir", "/srv/plans"),
        ("encryption-key-file", "/etc/keys/keys"),
        ("ssl-cert-file", "/etc/tls/cert.pem"),
        ("ssl-key-file", "/etc/tls/key.pem"),
        ("web-basic-auth", "true"),
        ("web-password", "a-password-of-some-length"),
        ("web-accounts-file", "/etc/accounts/accounts"),
        ("config", "/etc/config/config.yaml"),
        ("gh-hosts-file", "/etc/hosts/hosts.yaml"),
    ];

    /// Returns the error message at the start; empty if the settings are fine.
    fn told(flags: &[(&str, &str)], variables: &[(&str, &str)]) -> String {
        let given = FLAGS
            .iter()
            .filter(|(flag, _)| flags.iter().all(|(other, _)| other != flag))
            .chain(flags);
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let raw = RawSettings {
            files: BTreeMap::from([("gh-hosts-file".to_owned(), Ok(HOSTS.to_owned()))]),
            flags: given
                .map(owned)
                .map(|(name, value)| (name, vec![value]))
                .collect(),
            variables: variables.iter().map(owned).collect(),
            working_dir: "/".into(),
            ..RawSettings::default()
        };
        let secret = |path| (path, Ok(Secret::new("a-secret-of-some-length")));
        let raw = RawSettings {
            secret_files: secret_files_of_hosts(&raw)
                .into_iter()
                .map(secret)
                .collect(),
            ..raw
        };
        let (mut config, _) =
            ServerConfig::from_raw(&raw, Vec::new()).unwrap_or_else(|errors| panic!("{errors}"));
        // The settings of this test do not add the file, because it does not exist.
        config.sandbox.fixed.push(OwnPath {
            path: "/etc/rules/repos.yaml".into(),
            what: "the rules".to_owned(),
        });
        let sandbox = Sandbox::new(Mechanism::Landlock)
            .reads(["/usr", "/srv/lk/bin", "/srv/lk/plugin-cache"])
            .reads(config.sandbox.read.iter())
            .writes(config.sandbox.write.iter());
        check(&config, &sandbox, &secrets(&config, &raw.variables))
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn no_setting_lets_runs_read_a_secret_or_change_what_the_server_goes_by() {
        let secret = [
            "/etc/lk/token",
            "/etc/keys/keys",
            "/etc/tls/key.pem",
            "/etc/accounts",
            "/etc/config/config.yaml",
            "/etc/ghe/token",
            "/etc/ghe/webhook",
            "/etc/code",
            "/etc",
            "/srv",
            "/srv/lk",
            "/srv/lk/mirrors",
            "/srv/lk/checkouts/1",
            "/srv/lk/any",
            "/srv/db",
            "/srv/db/lk.db-wal",
            "/srv/flags",
            "/srv/flags/f.db-wal",
            "/srv/plans",
            "/srv/plans/ab",
            "/",
        ];
        for path in secret {
            for flag in ["sandbox-read", "sandbox-write"] {
                let told = told(&[(flag, path)], &[]);
                assert!(
                    told.contains(&format!("`{path}`")) && told.contains(&format!("--{flag}")),
                    "{flag} {path}: {told}"
                );
            }
        }
        for (flag, path, is_fine) in [
            ("sandbox-read", "/srv/lk/plugin-cache", true),
            ("sandbox-read", "/srv/lk/bin/terraform1.9.8", true),
            ("sandbox-write", "/srv/lk/plugin-cache", false),
            ("sandbox-write", "/srv/lk/bin", false),
            ("sandbox-read", "/srv/lk/plugin-cache/../mirrors", false),
            ("sandbox-read", "/etc/rules", true),
            ("sandbox-write", "/etc/rules", false),
            ("sandbox-write", "/etc/rules/repos.yaml", false),
            ("sandbox-read", "/etc/tls/cert.pem", true),
            ("sandbox-read", "/etc/hosts", true),
            ("sandbox-write", "/etc/hosts", false),
            ("sandbox-write", "/etc/tls/cert.pem", false),
            ("sandbox-read", "/home/lk/.aws,/etc/aws", true),
            ("sandbox-write", "/var/cache/terragrunt", true),
            ("sandbox-write", "/srv/lk-other", true),
        ] {
            let told = told(&[(flag, path)], &[]);
            assert_eq!(told.is_empty(), is_fine, "{flag} {path}: {told}");
        }
    }

    #[test]
    fn the_message_says_what_why_and_the_way_out() {
        let cases = [
            told(&[("sandbox-read", "/etc/keys")], &[]),
            told(&[("config", "/usr/local/etc/lk.yaml")], &[]),
            told(&[("sandbox-write", "/srv/lk/mirrors/x")], &[]),
            told(&[("sandbox-write", "/etc/rules")], &[]),
        ];
        insta::assert_snapshot!(cases.join("\n"), @"
        runs could read the keys (--encryption-key-file): `/etc/keys/keys` is in `/etc/keys`, which they may use (--sandbox-read). Move one of the two, or allow a smaller directory
        runs could read the settings (--config): `/usr/local/etc/lk.yaml` is in `/usr`, which they may use (by PATH or another variable, --tf-bin-dir, or always: docs/security.md has the list). Move one of the two, or allow a smaller directory
        --sandbox-write contains `/srv/lk/mirrors/x`, which is in the data directory (--data-dir), `/srv/lk`. That directory belongs to the server and to other runs. Use a directory outside of it
        --sandbox-write would allow runs to change the rules: `/etc/rules/repos.yaml` is in `/etc/rules`. Move one of the two, or allow a smaller directory
        ");
    }

    #[test]
    fn files_that_the_driver_of_the_database_reads_are_secret_too() {
        let postgres = "postgres://lk@db/lk?sslkey=/home/lk/client.key&sslmode=require";
        let of_flags = "postgres://lk@db/flags?sslkey=/srv/keys/flags.key";
        let with = |flags: &[(&str, &str)], variables: &[(&str, &str)]| {
            let databases = [("database-url", postgres), ("reviewed-flags-url", of_flags)];
            told(&[flags, &databases].concat(), variables)
        };
        for path in ["/home/lk/client.key", "/home/lk", "/var/passwords/pg"] {
            let told = with(
                &[("sandbox-read", path)],
                &[("PGPASSFILE", "/var/passwords/pg")],
            );
            assert!(
                told.contains("the password or key for the database (--database-url)"),
                "{path}: {told}"
            );
        }
        let told = with(&[("sandbox-read", "/srv/keys")], &[]);
        assert!(
            told.contains("the password or key for the database (--reviewed-flags-url)"),
            "{told}"
        );
        let told = with(&[("sandbox-read", "/root/.pgpass")], &[("HOME", "/root")]);
        assert!(told.contains("`/root/.pgpass`"), "{told}");
        assert_eq!(
            with(&[("sandbox-read", "/root/.aws")], &[("HOME", "/root")]),
            ""
        );
    }

    #[test]
    fn links_are_followed_even_to_what_is_not_there_yet() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        for (data, read) in [
            ("link/data", "real"),
            ("real/data", "link"),
            ("link/data", "real/data/mirrors"),
        ] {
            let told = told(
                &[("data-dir", &path(data)), ("sandbox-read", &path(read))],
                &[],
            );
            assert!(
                told.contains("the data directory (--data-dir)"),
                "{data} {read}: {told}"
            );
        }
    }
}
