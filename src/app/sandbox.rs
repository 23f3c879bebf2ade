//! Chooses what separates runs from the server, and says at the start what it is.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tracing::{info, warn};

use super::build::scratch;
use crate::config::server::{Database, GithubAuth, PlanFiles, SandboxKind, SecretSource, ServerConfig};
use crate::model::RunUser;
use crate::process::{Cmd, Kernel, Limits, Mechanism, Sandbox};
use crate::workflow::{ChildEnvironment, RunSandbox};

/// The boundaries of a server.
pub(super) struct Boundaries {
    /// Around plans, and around applies.
    pub runs: [RunSandbox; 2],
    /// Around git, which reads what others have pushed: Landlock where the kernel has it, because git is started more often
    /// than anything else; else what is around runs. `None`: there is nothing, or nobody wants it.
    pub git: Option<Sandbox>,
}

/// Chooses the boundaries by the configuration and what this machine has.
pub(super) async fn boundaries(
    config: &ServerConfig,
    environments: [&ChildEnvironment; 2],
    tools: &[PathBuf],
) -> anyhow::Result<Boundaries> {
    let [environment, _] = environments;
    let data_dir = &config.storage.data_dir;
    let kernel = Kernel::detect();
    let mechanism = mechanism(config.sandbox.kind, kernel, environment).await?;
    let runs = environments.map(|environment| {
        RunSandbox::new(mechanism.clone(), environment, limits(config))
            .reads(tools.iter().cloned())
            .reads([data_dir.join("plugin-cache")])
            .reads(config.sandbox.read.iter().cloned())
            .writes(config.sandbox.write.iter().cloned())
            .of_user(config.sandbox.run_as, data_dir)
    });
    if let Some(user) = config.sandbox.run_as {
        check_user(user)?;
        info!(user = user.uid, group = user.gid, "Runs are another user than the server");
    }
    for (path, what) in secrets(config) {
        for runs in &runs {
            check_outside(runs, &path, what)?;
        }
    }
    let of_git = mechanism.map(|mechanism| if kernel.is_some() { Mechanism::Landlock } else { mechanism });
    if let (Some(_), Some(Mechanism::Bubblewrap(_))) = (config.sandbox.run_as, &of_git) {
        bail!(
            "--run-as with --sandbox bubblewrap needs a kernel with Landlock: without it git would be in namespaces too, \
             where it has no right to the files of another user. Use another kernel, or leave out --run-as"
        );
    }
    let own = ["mirrors", "checkouts"].map(|name| data_dir.join(name)).into_iter().chain([scratch(data_dir)]);
    let git = RunSandbox::new(of_git, environment, Limits::default()).common().map(|sandbox| sandbox.writes(own));
    let git = git.map(|sandbox| match config.sandbox.run_as {
        Some(_) => sandbox.keeps_rights_over_files(),
        None => sandbox,
    });
    Ok(Boundaries { runs, git })
}

/// The server must not be that user itself, and has to have the rights to change to it.
fn check_user(user: RunUser) -> anyhow::Result<()> {
    if user.is_own() {
        bail!(
            "--run-as {user} cannot be followed: the server itself is that user, so runs could read what it reads. Name a \
             user that nothing else has"
        );
    }
    let missing = RunUser::missing_rights().context("cannot tell which rights the server has")?;
    if !missing.is_empty() {
        bail!(
            "--run-as {user} cannot be followed: the server lacks {}. Start it as root, or with these as ambient \
             capabilities (AmbientCapabilities= of systemd)",
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
                 Use another kernel, --sandbox bubblewrap, or --sandbox none to accept it"
            );
            Ok(None)
        }
        (SandboxKind::Require, None) => bail!(
            "--sandbox require: this kernel has no Landlock, or it is not enabled, so runs cannot be separated from the \
             server. Use Linux 5.19 or newer with `landlock` in the list of `lsm=`, or --sandbox bubblewrap"
        ),
        (SandboxKind::Bubblewrap, _) => {
            let program = bubblewrap(environment).await.context("--sandbox bubblewrap cannot be followed")?;
            info!(program = %program.display(), "Runs are separated from the server by bubblewrap");
            let gaps = Kernel::gaps_of_namespaces(kernel);
            if !gaps.is_empty() {
                warn!("Namespaces do not keep runs from {}", gaps.join("; "));
            }
            Ok(Some(Mechanism::Bubblewrap(program)))
        }
    }
}

/// Finds `bwrap` and tries it once: the machine decides whether it may make namespaces.
async fn bubblewrap(environment: &ChildEnvironment) -> anyhow::Result<PathBuf> {
    let path = environment.path();
    let mut candidates = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join("bwrap"));
    let program = candidates
        .find(|path| path.is_file())
        .context("the program `bwrap` is not on the PATH. Install it (the package is called bubblewrap)")?;
    let sandbox = RunSandbox::new(Some(Mechanism::Bubblewrap(program.clone())), environment, Limits::default());
    let tried = Cmd::new("true").env("PATH", path).sandbox(sandbox.common()).output().await?;
    if !tried.is_success() {
        bail!(
            "`{}` cannot make namespaces here ({}). Let users make user namespaces (in containers also new mounts of \
             /proc), or use --sandbox landlock",
            program.display(),
            tried.stderr.text().trim()
        );
    }
    Ok(program)
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
