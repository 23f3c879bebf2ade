//! Chooses what separates runs from the server, and says at the start what it is.

use std::path::{Path, PathBuf};

use anyhow::bail;
use tracing::{info, warn};

use super::build::scratch;
use crate::config::server::{Database, GithubAuth, PlanFiles, SandboxKind, SecretSource, ServerConfig};
use crate::process::{Kernel, Limits, Mechanism, Sandbox};
use crate::workflow::{ChildEnvironment, RunSandbox, StageSetup};

/// The boundaries of a server.
pub(super) struct Boundaries<'a> {
    config: &'a ServerConfig,
    tools: &'a [PathBuf],
    mechanism: Option<Mechanism>,
    has_landlock: bool,
}

impl<'a> Boundaries<'a> {
    /// Chooses the boundaries by the configuration and what this machine has.
    pub(super) fn detect(config: &'a ServerConfig, tools: &'a [PathBuf]) -> anyhow::Result<Self> {
        let kernel = Kernel::detect();
        let mechanism = mechanism(config.sandbox.kind, kernel)?;
        Ok(Self { config, tools, mechanism, has_landlock: kernel.is_some() })
    }

    /// The setup of runs that are given `environment`. Fails if they could read a secret of the server.
    pub(super) fn setup(&self, environment: ChildEnvironment) -> anyhow::Result<StageSetup> {
        let config = self.config;
        let sandbox = RunSandbox::new(self.mechanism.clone(), &environment, limits(config))
            .reads(self.tools.iter().cloned())
            .reads([config.storage.data_dir.join("plugin-cache")])
            .reads(config.sandbox.read.iter().cloned())
            .writes(config.sandbox.write.iter().cloned());
        for (path, what) in secrets(config) {
            check_outside(&sandbox, &path, what)?;
        }
        Ok(StageSetup::new(environment, sandbox))
    }

    /// The boundary around git, which reads what others have pushed; `None`: the kernel has no Landlock, or nobody wants
    /// it.
    pub(super) fn of_git(&self, environment: &ChildEnvironment) -> Option<Sandbox> {
        let data_dir = &self.config.storage.data_dir;
        let own = ["mirrors", "checkouts"].map(|name| data_dir.join(name)).into_iter().chain([scratch(data_dir)]);
        let sandbox = RunSandbox::new(Some(Mechanism::Landlock), environment, Limits::default()).common();
        let is_wanted = self.config.sandbox.kind != SandboxKind::None && self.has_landlock;
        Some(sandbox.filter(|_| is_wanted)?.writes(own))
    }
}

/// Says which configuration git does not read in runs: modules that come by git may need it.
pub(super) fn tell_git_config(plans: &StageSetup) {
    let Some((sandbox, home)) = plans.sandbox.common().zip(plans.environment.get("HOME")) else { return };
    for file in [".gitconfig", ".config/git/config"].map(|name| Path::new(home).join(name)) {
        if file.exists() && !sandbox.covers(&file) {
            let file = file.display();
            info!("Git in runs does not read {file}: name it in --sandbox-read if modules that come by git need it");
        }
    }
}

fn mechanism(kind: SandboxKind, kernel: Option<Kernel>) -> anyhow::Result<Option<Mechanism>> {
    match (kind, kernel) {
        (SandboxKind::None, _) => {
            warn!(
                "Runs are not separated from the server (--sandbox none): code of a pull request can read its tokens and \
                 keys, act as the server, and change other repositories"
            );
            Ok(None)
        }
        (SandboxKind::Landlock | SandboxKind::Require, Some(kernel)) => {
            let gaps = kernel.gaps();
            info!(abi = kernel.abi(), "Runs are separated from the server by Landlock");
            if !gaps.is_empty() {
                warn!("The kernel is too old to keep runs from {}", gaps.join("; "));
            }
            Ok(Some(Mechanism::Landlock))
        }
        (SandboxKind::Landlock, None) => {
            warn!(
                "Runs are not separated from the server: this kernel has no Landlock, or it is not enabled (Linux 5.19 or \
                 newer, `landlock` in the list of `lsm=`). Code of a pull request can read the server's tokens and keys. \
                 Use another kernel, or --sandbox none to accept it"
            );
            Ok(None)
        }
        (SandboxKind::Require, None) => bail!(
            "--sandbox require: this kernel has no Landlock, or it is not enabled, so runs cannot be separated from the \
             server. Use Linux 5.19 or newer with `landlock` in the list of `lsm=`"
        ),
    }
}

fn limits(config: &ServerConfig) -> Limits {
    let sandbox = &config.sandbox;
    let memory = sandbox.memory.map(crate::config::size::ByteSize::bytes).or_else(three_quarters_of_memory);
    Limits { memory, processes: sandbox.processes, file_size: Some(sandbox.file_size.bytes()), cpu: Some(sandbox.cpu) }
}

/// Of the machine, as the kernel tells it; `None`: it does not.
fn three_quarters_of_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024 / 4 * 3)
}

/// Files and directories that no run may read.
fn secrets(config: &ServerConfig) -> Vec<(PathBuf, &'static str)> {
    let storage = &config.storage;
    let mut secrets = vec![(storage.data_dir.clone(), "the data directory (--data-dir)")];
    if let Database::Sqlite(path) = &storage.database {
        secrets.push((path.clone(), "the database (--database-url)"));
    }
    if let PlanFiles::Directory(path) = &storage.plan_files {
        secrets.push((path.clone(), "the plan files (--share-plan-dir)"));
    }
    secrets.extend(storage.encryption_keys.clone().map(|path| (path, "the keys (--encryption-key-file)")));
    secrets.extend(config.web.tls.clone().map(|tls| (tls.key, "the private key (--ssl-key-file)")));
    match &config.github.auth {
        GithubAuth::Token { token: SecretSource::File(path), .. } => {
            secrets.push((path.clone(), "the token (--gh-token-file)"));
        }
        GithubAuth::App { key: SecretSource::File(path), .. } => {
            secrets.push((path.clone(), "the key of the App (--gh-app-key-file)"));
        }
        GithubAuth::Token { token: SecretSource::Inline(_), .. }
        | GithubAuth::App { key: SecretSource::Inline(_), .. } => {}
    }
    secrets
}

fn check_outside(runs: &RunSandbox, path: &Path, what: &str) -> anyhow::Result<()> {
    match runs.common() {
        Some(sandbox) if sandbox.covers(path) => bail!(
            "runs could read {what}: `{}` lies in a folder that they may use. Move it, or name less in --sandbox-read, \
             --sandbox-write and PATH (docs/security.md lists what runs may use always)",
            path.display()
        ),
        Some(_) | None => Ok(()),
    }
}
