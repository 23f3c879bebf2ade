//! Restricts the access of a child process with the help of the kernel.
//!
//! The need: a run executes code of a pull request as the user of the server. Without a boundary it can read the
//! server's tokens, keys and database, rewrite mirrors of other repositories, and signal or outlive its supervisor.
//!
//! A [`Sandbox`] is an allow-list of paths with the [`Mechanism`] that enforces it:
//! - *Landlock*: the thread that starts the program gives up rights, so no privilege, user namespace or second
//!   program is needed. Each child has a domain of its own. Besides access to files, the kernel denies it to trace
//!   processes outside the domain (which closes `/proc/PID/environ`, `mem` and `fd`). From Linux 6.12 on it also
//!   denies signals to them.
//! - *Bubblewrap*: the program runs in namespaces made by `bwrap` (see [`super::bubblewrap`]), for kernels without
//!   Landlock. The network is shared, so the parts of it that Landlock can deny are denied as well. A Landlock domain
//!   for files could not be entered before, because the kernel forbids mounts in it.
//!
//! Each child is started by a new thread, because a thread can never leave its domain again.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::thread;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

use nix::unistd::geteuid;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    configure_capability_in_ambient_set, set_capabilities, set_capabilities_secure_bits,
};

use super::user::become_user;
use super::{bubblewrap, ipc};
use crate::model::RunUser;

/// Newest requested Landlock interface; a kernel that lacks some of its rights enforces the others.
const NEWEST: ABI = ABI::V9;
/// Devices without content that programs expect to write to.
pub(super) const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Enforcer of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Landlock, the Linux security module, from Linux 5.19 on.
    Landlock,
    /// Namespaces made by the program `bwrap` at this path.
    Bubblewrap(PathBuf),
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landlock => "Landlock",
            Self::Bubblewrap(_) => "bubblewrap",
        })
    }
}

/// Paths that a child may use. Everything else is denied; paths that do not exist are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    mechanism: Mechanism,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    /// Capabilities over files that the child keeps.
    kept: CapabilitySet,
}

impl Sandbox {
    /// Creates a sandbox that allows nothing except devices without content.
    pub fn new(mechanism: Mechanism) -> Self {
        Self {
            mechanism,
            read: Vec::new(),
            write: Vec::new(),
            kept: CapabilitySet::empty(),
        }
    }

    /// Keeps the capabilities over files of other users among the paths, if this process has them: git works on
    /// checkouts that belong to the user of runs.
    #[must_use]
    pub fn keeps_rights_over_files(self) -> Self {
        Self {
            kept: CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER,
            ..self
        }
    }

    /// Adds files and directories to read and execute, including everything below the directories.
    #[must_use]
    pub fn reads<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.read.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Adds files and directories to read, execute and change, including everything below the directories.
    #[must_use]
    pub fn writes<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.write.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Returns true if a path may be read: it lies at or below an allowed path, with links resolved on both sides.
    pub fn covers(&self, path: &Path) -> bool {
        self.covering(path).is_some()
    }

    /// Returns the first allowed path that makes a path readable.
    pub fn covering(&self, path: &Path) -> Option<&Path> {
        let allowed = self.read.iter().chain(&self.write);
        allowed
            .map(PathBuf::as_path)
            .find(|allowed| is_within(path, allowed))
    }

    /// Returns the same sandbox as options of `lockkeeper supervise`.
    pub(super) fn supervise_options(&self) -> Vec<OsString> {
        let option = |name: &'static str, paths: &[PathBuf]| -> Vec<OsString> {
            paths
                .iter()
                .flat_map(|path| [name.into(), path.clone().into_os_string()])
                .collect()
        };
        let mut options = match &self.mechanism {
            Mechanism::Landlock => vec!["--landlock".into()],
            Mechanism::Bubblewrap(bwrap) => {
                vec!["--bubblewrap".into(), bwrap.clone().into_os_string()]
            }
        };
        options.extend(option("--read", &self.read));
        options.extend(option("--write", &self.write));
        options
    }

    /// Returns the program to start instead of `program`, and its arguments before those of `program`. For another
    /// user, it checks the paths as that user.
    pub(super) fn wrap(
        &self,
        program: &OsStr,
        dir: Option<&Path>,
        user: Option<RunUser>,
    ) -> io::Result<(OsString, Vec<OsString>)> {
        match &self.mechanism {
            Mechanism::Landlock => Ok((program.to_owned(), Vec::new())),
            // A path that only a capability reaches cannot be bound: a run has no capabilities.
            Mechanism::Bubblewrap(bwrap) => on_new_thread(|| {
                user.map_or(Ok(()), become_user)?;
                give_up_capabilities(CapabilitySet::empty())?;
                let args = bubblewrap::arguments(&self.read, &self.write, program, dir);
                Ok((bwrap.clone().into_os_string(), args))
            }),
        }
    }

    /// Returns true if the program named by [`Self::wrap`] waits for another one, which leads its own group.
    pub(super) fn has_namespaces(&self) -> bool {
        match self.mechanism {
            Mechanism::Landlock => false,
            Mechanism::Bubblewrap(_) => true,
        }
    }

    /// Takes all rights that the sandbox does not allow from this thread.
    fn enter(&self) -> io::Result<()> {
        let refused = |error| io::Error::other(format!("Landlock refused: {error}"));
        match self.mechanism {
            Mechanism::Landlock => {
                give_up_capabilities(self.kept)?;
                self.give_up_rights().map(drop).map_err(refused)?;
                ipc::give_up();
                Ok(())
            }
            Mechanism::Bubblewrap(_) => give_up_network().map_err(refused),
        }
    }

    /// Takes every right outside the allow-list from this thread.
    fn give_up_rights(&self) -> Result<LandlockStatus, RulesetError> {
        let ruleset = ruleset()?.set_compatibility(CompatLevel::BestEffort);
        let ruleset = ruleset
            .add_rules(path_beneath_rules(&self.read, reading()))?
            .add_rules(path_beneath_rules(&self.write, AccessFs::from_all(NEWEST)))?
            .add_rules(path_beneath_rules(
                DEVICES,
                AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
            ))?
            // A program may listen on a port that the kernel chooses. With a fixed one, it could take the port of a
            // restarting server.
            .add_rule(NetPort::new(0, AccessNet::BindTcp))?;
        Ok(ruleset.restrict_self()?.landlock)
    }
}

/// Returns true if a path lies at or below another one, with links resolved on both sides.
pub fn is_within(path: &Path, folder: &Path) -> bool {
    resolved(path).starts_with(resolved(folder))
}

/// Resolves the links of a path. The missing part of a path is appended to the real path of its existing folder.
fn resolved(path: &Path) -> PathBuf {
    for folder in path.ancestors() {
        if let (Ok(mut real), Ok(rest)) = (folder.canonicalize(), path.strip_prefix(folder)) {
            for part in rest.components() {
                if part == Component::ParentDir {
                    real.pop();
                } else {
                    real.push(part);
                }
            }
            return real;
        }
    }
    path.to_owned()
}

/// Takes the rights that namespaces leave from this thread: fixed ports, and abstract sockets of programs outside.
/// Without Landlock in the kernel it takes nothing.
fn give_up_network() -> Result<(), RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    ruleset
        .add_rule(NetPort::new(0, AccessNet::BindTcp))?
        .restrict_self()
        .map(drop)
}

/// Starts the program named by [`Sandbox::wrap`] on a thread with that user and only the allowed rights. The
/// restrictions apply to its children too.
pub(super) fn confined<T: Send>(
    sandbox: Option<&Sandbox>,
    user: Option<RunUser>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    if sandbox.is_none() && user.is_none() {
        return work();
    }
    on_new_thread(|| {
        if let Some(user) = user {
            become_user(user)?;
            give_up_capabilities(CapabilitySet::empty())?;
        }
        sandbox.map_or(Ok(()), Sandbox::enter)?;
        work()
    })
}

/// Takes the capabilities except `kept` from this thread, for servers that run as root. With them a process could
/// inspect others in spite of its domain (`CAP_PERFMON`), and the limits of a run would not apply. A program that
/// belongs to root does not regain them at its start.
fn give_up_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let permitted = capabilities(None)?.permitted;
    if permitted.is_empty() {
        return Ok(());
    }
    if geteuid().is_root() {
        let no_root = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
        set_capabilities_secure_bits(no_root)?;
    }
    let kept = kept & permitted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: kept,
        },
    )?;
    for right in kept.iter() {
        configure_capability_in_ambient_set(right, true)?;
    }
    Ok(())
}

/// Creates a ruleset that denies everything the kernel can deny, unless a rule allows it. Denied file access is
/// mandatory, because the rest would be useless without it.
fn ruleset() -> Result<landlock::RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V2))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::from_read(NEWEST)
}

fn on_new_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("sandbox".to_owned())
            .spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| {
            Err(io::Error::other(
                "the thread that starts a program panicked",
            ))
        })
    })
}

/// Extent to which the running kernel enforces Landlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    abi: i32,
}

impl Kernel {
    /// Detects Landlock by giving up rights on a thread that ends at once. Returns `None` if the kernel has no
    /// Landlock, has it switched off, or has one that is too old. Before Linux 5.19, no file can be moved between
    /// directories.
    pub fn detect() -> Option<Self> {
        let status = on_new_thread(|| {
            Sandbox::new(Mechanism::Landlock)
                .give_up_rights()
                .map_err(|error| io::Error::other(error.to_string()))
        });
        match status {
            Ok(LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            }) => Some(Self {
                abi: kernel_abi.unwrap_or(effective_abi as i32),
            }),
            Ok(LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) | Err(_) => None,
        }
    }

    /// Returns the version of the interface.
    pub fn abi(self) -> i32 {
        self.abi
    }

    /// Lists the rights that this kernel cannot take from a run, for the log.
    pub fn gaps(self) -> Vec<&'static str> {
        let all = [
            (
                3,
                "truncating files that the user of the server may write (Linux 6.2)",
            ),
            (4, "listening on fixed TCP ports (Linux 6.7)"),
            (
                6,
                "signalling other processes of the same user (Linux 6.12)",
            ),
            (
                9,
                "connecting to Unix sockets in the file system, such as that of Docker (Linux 7.1)",
            ),
        ];
        all.into_iter()
            .filter(|(since, _)| self.abi < *since)
            .map(|(_, gap)| gap)
            .collect()
    }

    /// Lists the rights that a kernel cannot take from a run in namespaces, for the log.
    pub fn gaps_of_namespaces(kernel: Option<Self>) -> Vec<&'static str> {
        let all = [
            (4, "listening on fixed TCP ports (Linux 6.7 with Landlock)"),
            (
                6,
                "connecting to abstract Unix sockets (Linux 6.12 with Landlock)",
            ),
        ];
        let abi = kernel.map_or(0, Self::abi);
        all.into_iter()
            .filter(|(since, _)| abi < *since)
            .map(|(_, gap)| gap)
            .collect()
    }
}
